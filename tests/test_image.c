/* Pictures: files of many kinds against PIL, the four resize rules against PIL and torch, layouts, ranges, and refusals.
 * tools/make_image_data.py made the data and says what is in it. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "io/io.h"

static pi0_error err;

/* ------------------------------------------------------------------ helpers */

/* u8 [height,width,3], the one of tools/make_image_data.py */
static uint8_t *noise_picture(int width, int height)
{
    size_t count = (size_t)width * (size_t)height * 3;
    uint8_t *out = malloc(count);
    assert_non_null(out);
    uint64_t seed = (uint64_t)width * 100003u + (uint64_t)height;
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)(pi0_mix64(seed + i) >> 56);
    return out;
}

static pi0_array picture_array(pi0_dtype dtype, const void *data, int64_t a, int64_t b, int64_t c)
{
    return (pi0_array){
        .name = "", .dtype = dtype, .rank = 3, .shape = {a, b, c}, .data = data, .bytes = (size_t)(a * b * c) * pi0_dtype_size(dtype)};
}

static float *preprocess(const pi0_array *image, const char *resize, int size)
{
    float *out = malloc((size_t)size * (size_t)size * 3 * sizeof(float));
    assert_non_null(out);
    PI0_ASSERT_OK(pi0_preprocess(image, resize, size, out, &err), &err);
    return out;
}

static float *preprocess_u8(const uint8_t *data, int width, int height, const char *resize, int size)
{
    pi0_array image = picture_array(PI0_U8, data, height, width, 3);
    return preprocess(&image, resize, size);
}

/* the byte that a value of the PIL rule came from */
static uint8_t to_byte(float v)
{
    return (uint8_t)lrintf((v + 1.0f) * 127.5f);
}

static double max_diff(const float *a, const float *b, size_t count)
{
    double worst = 0;
    for (size_t i = 0; i < count; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        worst = d > worst || isnan(d) ? d : worst;
    }
    return worst;
}

static FILE *open_data(const char *name)
{
    FILE *file = fopen(pi0_test_data(name), "r");
    assert_non_null(file);
    return file;
}

static const char *const rules[] = {"pil", "torch", "torch-lerobot04", "top-left"};

/* ------------------------------------------------------------------ files */

static void every_picture_file_equals_PIL(void **state)
{
    (void)state;
    FILE *list = open_data("image/files.txt");
    char name[64], path[128];
    int width, height, files = 0;
    unsigned crc;
    while (fscanf(list, "%63s %d %d %x", name, &width, &height, &crc) == 4) {
        snprintf(path, sizeof path, "image/files/%s", name);
        pi0_arrays *arrays = NULL;
        PI0_ASSERT_OK(pi0_image_read(pi0_test_data(path), &arrays, &err), &err);
        assert_int_equal(pi0_arrays_count(arrays), 1);
        const pi0_array *image = pi0_arrays_at(arrays, 0);
        assert_int_equal(image->dtype, PI0_U8);
        assert_int_equal(image->rank, 3);
        assert_int_equal(image->shape[0], height);
        assert_int_equal(image->shape[1], width);
        assert_int_equal(image->shape[2], 3);
        if (crc32(0, image->data, (uInt)image->bytes) != crc)
            fail_msg("%s decodes to other pixels than PIL's", name);
        pi0_arrays_free(&arrays);
        files++;
    }
    fclose(list);
    assert_true(files >= 26);
}

static void sixteen_bit_grey_keeps_its_high_byte(void **state)
{
    (void)state;
    /* 2 x 1, samples 0x1234 and 0xfe01: PIL's own conversion clips these to white */
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n', 0, 0,  0, 13, 'I', 'H', 'D',
                                  'R',  0,   0,   0,   2,    0,    0,    0,    1, 16, 0, 0,  0,   0};
    uint8_t file[128];
    memcpy(file, png, sizeof png);
    size_t at = sizeof png;
    uLong crc = crc32(0, file + 12, 17);
    for (int i = 0; i < 4; i++)
        file[at++] = (uint8_t)(crc >> (24 - 8 * i));
    static const uint8_t row[] = {0, 0x12, 0x34, 0xfe, 0x01};
    uLongf packed = 64;
    uint8_t *body = file + at + 8;
    assert_int_equal(compress(body, &packed, row, sizeof row), Z_OK);
    memcpy(file + at, "\0\0\0", 3);
    file[at + 3] = (uint8_t)packed;
    memcpy(file + at + 4, "IDAT", 4);
    crc = crc32(0, file + at + 4, (uInt)packed + 4);
    at += 8 + packed;
    for (int i = 0; i < 4; i++)
        file[at++] = (uint8_t)(crc >> (24 - 8 * i));
    memcpy(file + at, "\0\0\0\0IEND\xae\x42\x60\x82", 12);
    at += 12;
    pi0_arrays *arrays = NULL;
    PI0_ASSERT_OK(pi0_image_decode(file, at, "grey16", &arrays, &err), &err);
    static const uint8_t expected[] = {0x12, 0x12, 0x12, 0xfe, 0xfe, 0xfe};
    assert_memory_equal(pi0_arrays_at(arrays, 0)->data, expected, sizeof expected);
    pi0_arrays_free(&arrays);
}

static void npy_picture_is_read_as_stored(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    float data[4 * 5 * 3];
    for (size_t i = 0; i < 60; i++)
        data[i] = (float)i / 60.0f;
    pi0_array image = picture_array(PI0_F32, data, 4, 5, 3);
    PI0_ASSERT_OK(pi0_arrays_write(pi0_test_path(dir, "a.npy"), &image, 1, &err), &err);
    pi0_arrays *arrays = NULL;
    PI0_ASSERT_OK(pi0_image_read(pi0_test_path(dir, "a.npy"), &arrays, &err), &err);
    assert_int_equal(pi0_arrays_at(arrays, 0)->dtype, PI0_F32);
    assert_memory_equal(pi0_arrays_at(arrays, 0)->data, data, sizeof data);
    pi0_arrays_free(&arrays);
    pi0_test_remove_dir(dir);
}

static void written_png_reads_back(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    uint8_t *bytes = noise_picture(19, 19);
    float *pixels = preprocess_u8(bytes, 19, 19, "torch", 19);
    PI0_ASSERT_OK(pi0_image_write_png(pi0_test_path(dir, "a.png"), pixels, 19, &err), &err);
    pi0_arrays *arrays = NULL;
    PI0_ASSERT_OK(pi0_image_read(pi0_test_path(dir, "a.png"), &arrays, &err), &err);
    assert_memory_equal(pi0_arrays_at(arrays, 0)->data, bytes, 19 * 19 * 3);
    pi0_arrays_free(&arrays);
    for (size_t i = 0; i < 19 * 19 * 3; i++)
        pixels[i] = i % 2 ? -3.0f : 1.5f; /* beyond the range: the nearest that a PNG can hold */
    PI0_ASSERT_OK(pi0_image_write_png(pi0_test_path(dir, "a.png"), pixels, 19, &err), &err);
    PI0_ASSERT_OK(pi0_image_read(pi0_test_path(dir, "a.png"), &arrays, &err), &err);
    const uint8_t *back = pi0_arrays_at(arrays, 0)->data;
    assert_int_equal(back[0], 255);
    assert_int_equal(back[1], 0);
    pi0_arrays_free(&arrays);
    pixels[7] = NAN;
    assert_int_equal(pi0_image_write_png(pi0_test_path(dir, "b.png"), pixels, 19, &err), PI0_ERR_NONFINITE);
    pi0_test_assert_error(&err, PI0_ERR_NONFINITE, "row 0, column 2", NULL);
    assert_int_equal(pi0_image_write_png(pi0_test_path(dir, "no/such/dir.png"), pixels, 1, &err), PI0_ERR_IO);
    pi0_error_clear(&err);
    assert_int_equal(pi0_test_count_files(dir), 1);
    free(pixels);
    free(bytes);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ resize */

static void C3_PIL_rule_equals_PIL_bit_for_bit(void **state)
{
    (void)state;
    FILE *list = open_data("image/pil.txt");
    int width, height, size, cases = 0;
    unsigned crc;
    while (fscanf(list, "%d %d %d %x", &width, &height, &size, &crc) == 4) {
        uint8_t *picture = noise_picture(width, height);
        float *out = preprocess_u8(picture, width, height, "pil", size);
        size_t count = (size_t)size * (size_t)size * 3;
        uint8_t *bytes = malloc(count);
        assert_non_null(bytes);
        for (size_t i = 0; i < count; i++) {
            bytes[i] = to_byte(out[i]);
            assert_true(out[i] == (float)bytes[i] / 255.0f * 2.0f - 1.0f);
        }
        if (crc32(0, bytes, (uInt)count) != crc)
            fail_msg("%dx%d to %d differs from PIL", width, height, size);
        free(bytes);
        free(out);
        free(picture);
        cases++;
    }
    fclose(list);
    assert_true(cases >= 400);
}

static float *float_picture(const uint8_t *bytes, size_t count)
{
    float *out = malloc(count * sizeof(float));
    assert_non_null(out);
    for (size_t i = 0; i < count; i++)
        out[i] = ((float)bytes[i] + 0.25f) / 256.0f;
    return out;
}

static void C3_torch_rules_agree_with_torch(void **state)
{
    (void)state;
    pi0_arrays *data = NULL;
    PI0_ASSERT_OK(pi0_arrays_read(pi0_test_data("image/torch.npz"), &data, &err), &err);
    const pi0_array *cases = pi0_arrays_find(data, "cases"), *samples = pi0_arrays_find(data, "samples"),
                    *means = pi0_arrays_find(data, "mean");
    assert_true(cases != NULL && samples != NULL && means != NULL);
    assert_true(cases->shape[0] >= 300);
    size_t per_case = (size_t)samples->shape[1];
    int whole = 0;
    for (int64_t n = 0; n < cases->shape[0]; n++) {
        const int32_t *c = (const int32_t *)cases->data + 5 * n; /* rule, width, height, size, float input */
        uint8_t *bytes = noise_picture(c[1], c[2]);
        float *floats = float_picture(bytes, (size_t)c[1] * (size_t)c[2] * 3);
        pi0_array image = picture_array(c[4] ? PI0_F32 : PI0_U8, c[4] ? (const void *)floats : bytes, c[2], c[1], 3);
        float *out = preprocess(&image, rules[1 + c[0]], c[3]);
        size_t count = (size_t)c[3] * (size_t)c[3] * 3;
        double mean = 0, worst = 0;
        for (size_t i = 0; i < count; i++)
            mean += (double)out[i] / (double)count;
        for (size_t i = 0; i < per_case; i++)
            worst = fmax(worst, fabs((double)out[i * 7919 % count] - (double)((const float *)samples->data)[(size_t)n * per_case + i]));
        char name[32];
        snprintf(name, sizeof name, "full.%lld", (long long)n);
        const pi0_array *full = pi0_arrays_find(data, name);
        if (full != NULL) {
            worst = fmax(worst, max_diff(out, full->data, count));
            whole++;
        }
        if (!(worst <= 1e-6) || !(fabs(mean - ((const double *)means->data)[n]) <= 1e-6))
            fail_msg("%s %dx%d to %d: off by %g, mean by %g", rules[1 + c[0]], c[1], c[2], c[3], worst,
                     mean - ((const double *)means->data)[n]);
        free(out);
        free(floats);
        free(bytes);
    }
    assert_true(whole >= 9);
    pi0_arrays_free(&data);
}

/* The pictures of recordings of the whole reference programs: name in the observation, stage, rule. */
static void C1_pictures_of_recorded_cases_agree(void **state)
{
    (void)state;
    static const struct {
        const char *file, *name, *stage, *rule;
    } table[] = {
        {"openpi_pi0_aloha", "cam_high", "base_0_rgb", "pil"},
        {"openpi_pi0_aloha", "cam_left_wrist", "left_wrist_0_rgb", "pil"},
        {"openpi_pi0_aloha", "cam_right_wrist", "right_wrist_0_rgb", "pil"},
        {"lerobot_pi0", "observation.images.base_0_rgb", "base_0_rgb", "torch"},
        {"lerobot_pi0", "observation.images.right_wrist_0_rgb", "right_wrist_0_rgb", "torch"},
        {"lerobot04_pi0", "observation.images.image", "image", "torch-lerobot04"},
        {"lerobot04_pi05", "observation.images.base_0_rgb", "base_0_rgb", "torch-lerobot04"},
        {"lerobot04_pi05", "observation.images.right_wrist_0_rgb", "right_wrist_0_rgb", "torch-lerobot04"},
        {"lerobot03_pi0", "observation.images.top", "top", "top-left"},
        {"lerobot03_pi0", "observation.images.wrist", "wrist", "top-left"},
    };
    for (size_t n = 0; n < sizeof table / sizeof table[0]; n++) {
        char name[128];
        snprintf(name, sizeof name, "goldens/%s.npz", table[n].file);
        pi0_arrays *data = NULL;
        PI0_ASSERT_OK(pi0_arrays_read(pi0_test_data(name), &data, &err), &err);
        snprintf(name, sizeof name, "ref/image.%s", table[n].stage);
        const pi0_array *picture = pi0_arrays_find(data, table[n].name), *expected = pi0_arrays_find(data, name);
        assert_true(picture != NULL && expected != NULL);
        float *out = preprocess(picture, table[n].rule, 224);
        double worst = max_diff(out, expected->data, 224 * 224 * 3);
        if (!(worst <= (strcmp(table[n].rule, "pil") == 0 ? 0 : 1e-6)))
            fail_msg("%s %s: off by %g", table[n].file, table[n].name, worst);
        free(out);
        pi0_arrays_free(&data);
    }
}

static void C3_the_two_filters_differ_as_the_references_do(void **state)
{
    (void)state;
    uint8_t *board = malloc(640 * 480 * 3);
    assert_non_null(board);
    for (size_t i = 0; i < 640 * 480 * 3; i++)
        board[i] = (i / 3 % 640 / 2 + i / 3 / 640 / 2) % 2 ? 255 : 0;
    float *pil = preprocess_u8(board, 640, 480, "pil", 224), *plain = preprocess_u8(board, 640, 480, "torch", 224);
    double sum = 0, worst = 0;
    for (size_t i = 28 * 224 * 3; i < 196 * 224 * 3; i++) {
        double d = fabs((double)pil[i] - (double)plain[i]) * 127.5;
        sum += d;
        worst = fmax(worst, d);
    }
    double mean = sum / (168 * 224 * 3);
    assert_true(mean > 65 && mean < 69);
    assert_true(worst > 123 && worst < 127);
    free(pil);
    free(plain);
    free(board);
}

static void C1_padding_is_black_and_minus_three_only_where_asked(void **state)
{
    (void)state;
    uint8_t *white = malloc(640 * 480 * 3);
    assert_non_null(white);
    memset(white, 255, 640 * 480 * 3);
    for (int r = 0; r < 4; r++) {
        float *out = preprocess_u8(white, 640, 480, rules[r], 224);
        int top = r == 3 ? 56 : 28, bottom = r == 3 ? 0 : 28;
        float pad = r == 2 ? -3.0f : -1.0f;
        for (int y = 0; y < 224; y++)
            for (int i = 0; i < 224 * 3; i++)
                assert_true(out[y * 224 * 3 + i] == (y < top || y >= 224 - bottom ? pad : 1.0f));
        free(out);
    }
    for (int r = 0; r < 4; r++) { /* a tall one */
        float *out = preprocess_u8(white, 100, 200, rules[r], 50);
        int left = r == 3 ? 25 : 12, right = r == 3 ? 0 : 13;
        float pad = r == 2 ? -3.0f : -1.0f;
        for (int y = 0; y < 50; y++)
            for (int x = 0; x < 50; x++)
                assert_true(out[(y * 50 + x) * 3 + 1] == (x < left || x >= 50 - right ? pad : 1.0f));
        free(out);
    }
    free(white);
}

static void C4_letterbox_sizes_are_computed_in_double(void **state)
{
    (void)state;
    /* width, height, and what is left of them in 224 x 224 */
    static const int table[][4] = {{256, 256, 224, 224}, {1024, 768, 224, 168}, {288, 240, 223, 186},
                                   {240, 288, 186, 223}, {224, 225, 223, 223},  {667, 375, 223, 125},
                                   {640, 480, 224, 168}, {224, 224, 224, 224},  {480, 640, 168, 224}};
    uint8_t *white = malloc(1024 * 768 * 3);
    assert_non_null(white);
    memset(white, 255, 1024 * 768 * 3);
    for (size_t n = 0; n < sizeof table / sizeof table[0]; n++) {
        for (int r = 0; r < 4; r++) {
            const int *t = table[n];
            float *out = preprocess_u8(white, t[0], t[1], rules[r], 224);
            int rows = 0, columns = 0;
            for (int i = 0; i < 224; i++) {
                int middle_row = r == 3 ? 223 : 112;
                rows += out[(i * 224 + middle_row) * 3] == 1.0f;
                columns += out[(middle_row * 224 + i) * 3] == 1.0f;
            }
            assert_int_equal(columns, t[2]);
            assert_int_equal(rows, t[3]);
            free(out);
        }
    }
    free(white);
}

static void C10_bytes_are_scaled_with_the_references_own_operations(void **state)
{
    (void)state;
    uint8_t bytes[16 * 16 * 3];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i % 256);
    for (int r = 0; r < 4; r++) {
        float *out = preprocess_u8(bytes, 16, 16, rules[r], 16);
        for (size_t i = 0; i < sizeof bytes; i++)
            assert_true(out[i] == (float)bytes[i] / 255.0f * 2.0f - 1.0f);
        free(out);
    }
}

static void B11_a_checkerboard_stays_finite_and_in_range(void **state)
{
    (void)state;
    uint8_t *board = malloc(448 * 336 * 3);
    assert_non_null(board);
    for (size_t i = 0; i < 448 * 336 * 3; i++)
        board[i] = (i / 3 % 448 / 14 + i / 3 / 448 / 14) % 2 ? 255 : 0;
    for (int r = 0; r < 4; r++) {
        float *out = preprocess_u8(board, 448, 336, rules[r], 224);
        for (size_t i = 0; i < 224 * 224 * 3; i++)
            assert_true(isfinite(out[i]) && out[i] >= (r == 2 ? -3.0f : -1.0f) && out[i] <= 1.0f);
        free(out);
    }
    free(board);
}

static void a_kept_scratch_changes_nothing(void **state)
{
    (void)state;
    pi0_scratch scratch = {0};
    static const int sizes[][2] = {{300, 200}, {31, 64}, {224, 224}, {640, 480}, {3, 9}, {300, 200}};
    for (size_t n = 0; n < 6; n++) {
        for (int r = 0; r < 4; r++) {
            uint8_t *bytes = noise_picture(sizes[n][0], sizes[n][1]);
            float *fresh = preprocess_u8(bytes, sizes[n][0], sizes[n][1], rules[r], 64);
            float *kept = malloc(64 * 64 * 3 * sizeof(float));
            assert_non_null(kept);
            pi0_array image = picture_array(PI0_U8, bytes, sizes[n][1], sizes[n][0], 3);
            pi0_resize resize;
            assert_true(pi0_resize_from_name(rules[r], &resize));
            assert_string_equal(pi0_resize_name(resize), rules[r]);
            PI0_ASSERT_OK(pi0_image_to_input(&image, resize, 64, kept, &scratch, &err), &err);
            assert_memory_equal(fresh, kept, 64 * 64 * 3 * sizeof(float));
            free(kept);
            free(fresh);
            free(bytes);
        }
    }
    pi0_scratch_release(&scratch);
    assert_null(scratch.data);
}

/* ------------------------------------------------------------------ layouts and ranges */

static void C8_every_layout_of_one_picture_gives_the_same(void **state)
{
    (void)state;
    enum { W = 40, H = 30, N = W * H * 3 };
    uint8_t *hwc = noise_picture(W, H);
    uint8_t chw[N];
    float f32[N], signed_f32[N], chw_f32[N];
    double f64[N];
    uint16_t f16[N];
    for (size_t i = 0; i < N; i++) {
        size_t pixel = i / 3, channel = i % 3;
        chw[channel * W * H + pixel] = hwc[i];
        f32[i] = (float)hwc[i] / 255.0f;
        chw_f32[channel * W * H + pixel] = f32[i];
        f64[i] = hwc[i] / 255.0;
        f16[i] = pi0_f16_from_f32(f32[i]);
        signed_f32[i] = f32[i] * 2.0f - 1.0f;
    }
    for (int r = 0; r < 4; r++) {
        float *expected = preprocess_u8(hwc, W, H, rules[r], 32);
        pi0_array forms[] = {picture_array(PI0_U8, chw, 3, H, W),      picture_array(PI0_F32, f32, H, W, 3),
                             picture_array(PI0_F32, chw_f32, 3, H, W), picture_array(PI0_F64, f64, H, W, 3),
                             picture_array(PI0_F16, f16, H, W, 3),     picture_array(PI0_F32, signed_f32, H, W, 3)};
        /* bytes agree exactly in either order; floats within one step of a byte, since openpi truncates 255*x */
        double allowed[] = {0, 2.01 / 255, 2.01 / 255, 2.01 / 255, 2.01 / 255, 1e-6};
        for (size_t n = 0; n < sizeof forms / sizeof forms[0]; n++) {
            float *out = preprocess(&forms[n], rules[r], 32);
            if (!(max_diff(out, expected, 32 * 32 * 3) <= allowed[n]))
                fail_msg("%s, form %zu: off by %g", rules[r], n, max_diff(out, expected, 32 * 32 * 3));
            free(out);
        }
        free(expected);
    }
    free(hwc);
}

static void C8_floats_become_bytes_as_openpi_makes_them(void **state)
{
    (void)state;
    /* 255*x, cut off, in the type of the array */
    float f32[4 * 4 * 3] = {0.0f, 1.0f, 0.5f, 0.999f, 1.0f / 3.0f, 0.00392f};
    static const uint8_t expected[] = {0, 255, 127, 254, 85, 0};
    pi0_array image = picture_array(PI0_F32, f32, 4, 4, 3);
    float *out = preprocess(&image, "pil", 4);
    for (size_t i = 0; i < sizeof expected; i++)
        assert_int_equal(to_byte(out[i]), expected[i]);
    free(out);
}

static void C5_a_leading_axis_of_one_is_accepted(void **state)
{
    (void)state;
    uint8_t *bytes = noise_picture(12, 9);
    float *expected = preprocess_u8(bytes, 12, 9, "torch", 8);
    pi0_array image = {.name = "top", .dtype = PI0_U8, .rank = 4, .shape = {1, 9, 12, 3}, .data = bytes, .bytes = 12 * 9 * 3};
    float *out = preprocess(&image, "torch", 8);
    assert_memory_equal(out, expected, 8 * 8 * 3 * sizeof(float));
    image.shape[0] = 2; /* a batch of two is not one picture */
    image.shape[1] = 9;
    image.shape[2] = 6;
    assert_int_equal(pi0_preprocess(&image, "torch", 8, out, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "image top", "u8 [2,9,6,3]", NULL);
    free(out);
    free(expected);
    free(bytes);
}

static void C8_other_shapes_and_types_are_refused_by_name(void **state)
{
    (void)state;
    static const uint8_t bytes[4096];
    float out[8 * 8 * 3];
    static const struct {
        pi0_dtype dtype;
        int rank;
        int64_t shape[4];
        const char *what, *got;
    } table[] = {
        {PI0_U8, 3, {3, 10, 3}, "ambiguous", "u8 [3,10,3]"},
        {PI0_U8, 3, {10, 10, 4}, "alpha", "u8 [10,10,4]"},
        {PI0_U8, 3, {10, 10, 1}, "grey", "u8 [10,10,1]"},
        {PI0_U8, 2, {10, 10}, "three dimensions", "u8 [10,10]"},
        {PI0_U8, 3, {10, 10, 5}, "three channels", "u8 [10,10,5]"},
        {PI0_I64, 3, {4, 4, 3}, "uint8 or floats", "i64 [4,4,3]"},
        {PI0_BOOL, 3, {4, 4, 3}, "uint8 or floats", "bool"},
        {PI0_U8, 3, {0, 4, 3}, "out of range", "u8 [0,4,3]"},
        {PI0_U8, 3, {4, 20000, 3}, "out of range", "20000"},
        {PI0_U8, 3, {-4, 4, 3}, "out of range", "-4"},
        {PI0_U8, 3, {2, 672, 3}, "too thin", "u8 [2,672,3]"},
        {PI0_U8, 3, {INT64_MAX, INT64_MAX, 3}, "out of range", "9223372036854775807"},
    };
    for (size_t n = 0; n < sizeof table / sizeof table[0]; n++) {
        pi0_array image = {.name = "", .dtype = table[n].dtype, .rank = table[n].rank, .data = bytes};
        size_t count = pi0_dtype_size(table[n].dtype);
        for (int i = 0; i < table[n].rank; i++) {
            image.shape[i] = table[n].shape[i];
            count *= (size_t)table[n].shape[i];
        }
        image.bytes = count;
        for (int r = 0; r < 4; r++) {
            assert_int_equal(pi0_preprocess(&image, rules[r], 8, out, &err), PI0_ERR_ARGUMENT);
            pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, table[n].what, table[n].got, NULL);
        }
    }
    pi0_array image = picture_array(PI0_U8, bytes, 10, 10, 3);
    image.bytes--;
    assert_int_equal(pi0_preprocess(&image, "pil", 8, out, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "byte count", NULL);
    image.bytes++;
    assert_int_equal(pi0_preprocess(&image, "bicubic", 8, out, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "torch-lerobot04", "bicubic", NULL);
    assert_int_equal(pi0_preprocess(&image, "pil", 0, out, &err), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
}

static void C8_floats_outside_their_range_are_refused(void **state)
{
    (void)state;
    enum { N = 5 * 6 * 3 };
    float f32[N] = {0}, out[8 * 8 * 3];
    double f64[N] = {0};
    uint16_t f16[N] = {0};
    f32[6 * 3 + 2 * 3 + 1] = 255.0f;
    f64[3] = -1.5;
    f16[0] = pi0_f16_from_f32(2.0f);
    pi0_array forms[] = {picture_array(PI0_F32, f32, 5, 6, 3), picture_array(PI0_F64, f64, 5, 6, 3), picture_array(PI0_F16, f16, 5, 6, 3)};
    static const char *const places[] = {"row 1, column 2, channel 1", "row 0, column 1, channel 0", "row 0, column 0, channel 0"};
    static const char *const values[] = {"255", "-1.5", "2"};
    for (int r = 0; r < 4; r++) {
        for (int n = 0; n < 3; n++) {
            assert_int_equal(pi0_preprocess(&forms[n], rules[r], 8, out, &err), PI0_ERR_ARGUMENT);
            pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, places[n], values[n], "0-255", NULL);
        }
    }
    /* another library's rounding is not another range */
    for (size_t i = 0; i < N; i++)
        f32[i] = i % 2 ? 1.0000004f : -0.0000004f;
    float *result = preprocess(&forms[0], "torch", 8);
    for (size_t i = 0; i < 8 * 8 * 3; i++)
        assert_true(result[i] >= -1.0f && result[i] <= 1.0f);
    free(result);
}

static void C9_a_nan_pixel_is_an_error_that_says_where(void **state)
{
    (void)state;
    enum { N = 7 * 4 * 3 };
    float out[8 * 8 * 3], f32[N] = {0};
    double f64[N] = {0};
    f32[2 * 7 * 4 + 2 * 7 + 6] = NAN; /* CHW: channel 2, row 2, column 6 */
    f32[0] = 7.0f;                    /* a second fault must not hide it */
    f64[N - 1] = INFINITY;
    pi0_array planes = picture_array(PI0_F32, f32, 3, 4, 7), last = picture_array(PI0_F64, f64, 4, 7, 3);
    for (int r = 0; r < 4; r++) {
        assert_int_equal(pi0_preprocess(&planes, rules[r], 8, out, &err), PI0_ERR_NONFINITE);
        pi0_test_assert_error(&err, PI0_ERR_NONFINITE, "row 2, column 6, channel 2", "nan", NULL);
        assert_int_equal(pi0_preprocess(&last, rules[r], 8, out, &err), PI0_ERR_NONFINITE);
        pi0_test_assert_error(&err, PI0_ERR_NONFINITE, "row 3, column 6, channel 2", "inf", NULL);
    }
}

/* ------------------------------------------------------------------ refusals */

static void refuse_file(const char *name, pi0_status status, const char *a, const char *b)
{
    char path[128];
    snprintf(path, sizeof path, "image/refused/%s", name);
    pi0_arrays *arrays = NULL;
    assert_int_equal(pi0_image_read(pi0_test_data(path), &arrays, &err), status);
    assert_null(arrays);
    pi0_test_assert_error(&err, status, name, a, b, NULL);
}

static void C9_huge_declared_sizes_are_refused_before_allocation(void **state)
{
    (void)state;
    refuse_file("bomb_65535.jpg", PI0_ERR_FORMAT, "dimension", "65500"); /* libjpeg's own bound */
    refuse_file("bomb_60000.jpg", PI0_ERR_FORMAT, "60000 x 60000", "16384");
    refuse_file("bomb_16000.jpg", PI0_ERR_FORMAT, "16000 x 16000", "67108864");
    refuse_file("bomb_2147483647.png", PI0_ERR_FORMAT, "2147483647 x 2147483647", "16384");
}

static void damaged_and_foreign_files_are_refused(void **state)
{
    (void)state;
    refuse_file("truncated.jpg", PI0_ERR_FORMAT, "cannot be decoded", "libjpeg-turbo");
    refuse_file("truncated.png", PI0_ERR_FORMAT, "cannot be decoded", "ends early");
    refuse_file("bad_checksum.png", PI0_ERR_FORMAT, "cannot be decoded", "CRC");
    refuse_file("cmyk.jpg", PI0_ERR_UNSUPPORTED, "CMYK", "convert");
    static const struct {
        const char *bytes;
        size_t count;
        const char *got;
    } table[] = {
        {"", 0, "an empty file"}, {"GIF89a", 6, "a GIF"}, {"RIFF....WEBPVP8 ", 16, "a WebP"}, {"hello", 5, "unknown"}, {"BM", 2, "a BMP"}};
    for (size_t n = 0; n < sizeof table / sizeof table[0]; n++) {
        pi0_arrays *arrays = NULL;
        assert_int_equal(pi0_image_decode(table[n].bytes, table[n].count, "here", &arrays, &err), PI0_ERR_FORMAT);
        pi0_test_assert_error(&err, PI0_ERR_FORMAT, "here", table[n].got, "PNG", NULL);
    }
    pi0_arrays *arrays = NULL;
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n";
    assert_int_equal(pi0_image_decode(pointer, sizeof pointer - 1, "here", &arrays, &err), PI0_ERR_FORMAT);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, "here", "Git LFS pointer", NULL);
    assert_int_equal(pi0_image_read("/no/such/picture.png", &arrays, &err), PI0_ERR_IO);
    pi0_error_clear(&err);
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    static const char *const files[] = {"image/files/rgb8_interlaced.png", "image/files/palette4.png", "image/files/420.jpg"};
    for (size_t f = 0; f < 3; f++) {
        size_t bytes;
        uint8_t *data = pi0_test_read_file(pi0_test_data(files[f]), &bytes);
        float *out = malloc(32 * 32 * 3 * sizeof(float));
        assert_non_null(out);
        const char *path = pi0_test_path(dir, "out.png");
        int refused = 0;
        for (long n = 1;; n++) {
            pi0_arrays *arrays = NULL;
            pi0_test_fail_allocation(n);
            pi0_status status = pi0_image_decode(data, bytes, "here", &arrays, &err);
            if (status == PI0_OK)
                status = pi0_preprocess(pi0_arrays_at(arrays, 0), n % 2 ? "pil" : "torch", 32, out, &err);
            if (status == PI0_OK)
                status = pi0_image_write_png(path, out, 32, &err);
            int reached = pi0_test_allocation_failed();
            pi0_arrays_free(&arrays);
            /* the system's own ENOMEM, met while a file is made, is PI0_ERR_IO */
            assert_true(reached ? status == PI0_ERR_MEMORY || status == PI0_ERR_IO : status == PI0_OK);
            pi0_error_clear(&err);
            if (!reached)
                break;
            assert_int_equal(pi0_test_count_files(dir), 0);
            refused++;
        }
        assert_true(refused > 5);
        assert_int_equal(remove(path), 0);
        free(out);
        free(data);
    }
    pi0_test_remove_dir(dir);
}

/* Every cut and many flipped bits of real files: an error or a picture, never anything else. */
static void cut_and_flipped_files_never_crash(void **state)
{
    (void)state;
    static const char *const files[] = {"444.jpg", "420_progressive.jpg", "rgb8_interlaced.png", "palette4.png"};
    for (size_t n = 0; n < 4; n++) {
        char path[128];
        snprintf(path, sizeof path, "image/files/%s", files[n]);
        size_t bytes;
        uint8_t *data = pi0_test_read_file(pi0_test_data(path), &bytes);
        for (size_t cut = 0; cut < bytes; cut += 1 + bytes / 97) {
            pi0_test_guard guard = pi0_test_guard_open(cut);
            memcpy(guard.data, data, cut);
            pi0_arrays *arrays = NULL;
            pi0_status status = pi0_image_decode(guard.data, cut, "cut", &arrays, &err);
            assert_int_not_equal(status, PI0_OK);
            assert_null(arrays);
            pi0_error_clear(&err);
            pi0_test_guard_close(&guard);
        }
        for (size_t flip = 0; flip < 200; flip++) {
            uint64_t draw = pi0_mix64(flip * 8191 + n);
            size_t at = (size_t)(draw % bytes);
            uint8_t bit = (uint8_t)(1u << (draw >> 60 & 7));
            data[at] ^= bit;
            pi0_arrays *arrays = NULL;
            pi0_status status = pi0_image_decode(data, bytes, "flipped", &arrays, &err);
            assert_true((status == PI0_OK) == (arrays != NULL));
            pi0_arrays_free(&arrays);
            pi0_error_clear(&err);
            data[at] ^= bit;
        }
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_picture_file_equals_PIL),
        cmocka_unit_test(sixteen_bit_grey_keeps_its_high_byte),
        cmocka_unit_test(npy_picture_is_read_as_stored),
        cmocka_unit_test(written_png_reads_back),
        cmocka_unit_test(C3_PIL_rule_equals_PIL_bit_for_bit),
        cmocka_unit_test(C3_torch_rules_agree_with_torch),
        cmocka_unit_test(C1_pictures_of_recorded_cases_agree),
        cmocka_unit_test(C3_the_two_filters_differ_as_the_references_do),
        cmocka_unit_test(C1_padding_is_black_and_minus_three_only_where_asked),
        cmocka_unit_test(C4_letterbox_sizes_are_computed_in_double),
        cmocka_unit_test(C10_bytes_are_scaled_with_the_references_own_operations),
        cmocka_unit_test(B11_a_checkerboard_stays_finite_and_in_range),
        cmocka_unit_test(a_kept_scratch_changes_nothing),
        cmocka_unit_test(C8_every_layout_of_one_picture_gives_the_same),
        cmocka_unit_test(C8_floats_become_bytes_as_openpi_makes_them),
        cmocka_unit_test(C5_a_leading_axis_of_one_is_accepted),
        cmocka_unit_test(C8_other_shapes_and_types_are_refused_by_name),
        cmocka_unit_test(C8_floats_outside_their_range_are_refused),
        cmocka_unit_test(C9_a_nan_pixel_is_an_error_that_says_where),
        cmocka_unit_test(C9_huge_declared_sizes_are_refused_before_allocation),
        cmocka_unit_test(damaged_and_foreign_files_are_refused),
        cmocka_unit_test(every_failed_allocation_is_an_error),
        cmocka_unit_test(cut_and_flipped_files_never_crash),
    };
    return cmocka_run_group_tests_name("image", tests, NULL, NULL);
}
