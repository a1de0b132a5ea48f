#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "io/io.h"
#include "support.h"

/* ------------------------------------------------------------------ small files, written by hand */

/* Eight bytes of length, the header, `data_bytes` bytes 0, 1, 2, ... ; malloc'ed. */
static uint8_t *make_file(const char *header, size_t data_bytes, size_t *bytes)
{
    size_t n = strlen(header);
    uint8_t *file = malloc(8 + n + data_bytes);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        file[8 + n + i] = (uint8_t)i;
    *bytes = 8 + n + data_bytes;
    return file;
}

static void write_shard(const char *dir, const char *name, const char *header, size_t data_bytes)
{
    size_t bytes;
    uint8_t *file = make_file(header, data_bytes, &bytes);
    pi0_test_write_file(pi0_test_path(dir, name), file, bytes);
    free(file);
}

/* The bytes end at an inaccessible page: reading one too many is seen without a sanitizer, too. */
static void refuse_bytes(const uint8_t *file, size_t bytes, pi0_status expected, const char *part, const char *other)
{
    pi0_error err = {0};
    pi0_safetensors *opened = (pi0_safetensors *)&err;
    pi0_test_guard guard = pi0_test_guard_open(bytes ? bytes : 1);
    if (bytes)
        memcpy(guard.data, file, bytes);
    pi0_status status = pi0_safetensors_parse(guard.data, bytes, "m.safetensors", &opened, &err);
    assert_null(opened);
    assert_int_equal(status, expected);
    pi0_test_assert_error(&err, expected, "m.safetensors", part, other, NULL);
    assert_int_equal(pi0_safetensors_parse(guard.data, bytes, "m.safetensors", &opened, NULL), expected);
    pi0_test_guard_close(&guard);
}

static void refuse(const char *header, size_t data_bytes, const char *part, const char *other)
{
    size_t bytes;
    uint8_t *file = make_file(header, data_bytes, &bytes);
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, part, other);
    free(file);
}

static const char good_header[] = "{\"__metadata__\": {\"format\": \"pt\"},"
                                  "\"b\": {\"dtype\": \"F32\", \"shape\": [2, 1], \"data_offsets\": [8, 16]},"
                                  "\"a\": {\"dtype\": \"BF16\", \"shape\": [4], \"data_offsets\": [0, 8]},"
                                  "\"none\": {\"dtype\": \"F16\", \"shape\": [3, 0], \"data_offsets\": [8, 8]},"
                                  "\"one\": {\"dtype\": \"I64\", \"shape\": [], \"data_offsets\": [16, 24], \"extra\": 1}}    ";

/* ------------------------------------------------------------------ reading */

static void tensors_are_given_in_file_order_and_by_name(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_safetensors *file;
    size_t bytes;
    uint8_t *data = make_file(good_header, 24, &bytes);
    PI0_ASSERT_OK(pi0_safetensors_parse(data, bytes, "m", &file, &err), &err);
    assert_int_equal(pi0_safetensors_count(file), 4);
    const char *const order[] = {"a", "none", "b", "one"};
    for (size_t i = 0; i < 4; i++) {
        const pi0_tensor_view *view = pi0_safetensors_at(file, i);
        assert_string_equal(view->name, order[i]);
        assert_ptr_equal(pi0_safetensors_find(file, order[i]), view);
        assert_int_equal(view->shard, 0);
    }
    assert_null(pi0_safetensors_at(file, 4));
    assert_null(pi0_safetensors_find(file, "c"));
    assert_null(pi0_safetensors_find(file, "__metadata__"));
    assert_null(pi0_safetensors_find(file, ""));
    const pi0_tensor_view *b = pi0_safetensors_find(file, "b");
    assert_int_equal(b->dtype, PI0_F32);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 1);
    assert_int_equal(b->bytes, 8);
    assert_ptr_equal(b->data, data + bytes - 16); /* a view, not a copy */
    const pi0_tensor_view *none = pi0_safetensors_find(file, "none"), *one = pi0_safetensors_find(file, "one");
    assert_int_equal(none->bytes, 0);
    assert_int_equal(one->rank, 0);
    assert_int_equal(one->bytes, 8);
    assert_string_equal(pi0_safetensors_metadata(file, "format"), "pt");
    assert_null(pi0_safetensors_metadata(file, "other"));
    assert_int_equal(pi0_safetensors_data_bytes(file), 24);
    assert_int_equal(pi0_safetensors_shards(file), 1);
    assert_string_equal(pi0_safetensors_shard_path(file, 0), "m");
    assert_null(pi0_safetensors_shard_path(file, 1));
    pi0_safetensors_close(&file);
    assert_null(file);
    pi0_safetensors_close(&file);
    free(data);
}

static void every_element_type_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        pi0_dtype dtype;
    } types[] = {{"F64", PI0_F64}, {"F32", PI0_F32}, {"F16", PI0_F16},  {"BF16", PI0_BF16}, {"U8", PI0_U8},
                 {"I8", PI0_I8},   {"I16", PI0_I16}, {"U16", PI0_U16},  {"I32", PI0_I32},   {"U32", PI0_U32},
                 {"I64", PI0_I64}, {"U64", PI0_U64}, {"BOOL", PI0_BOOL}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        pi0_error err = {0};
        pi0_safetensors *file;
        char header[200];
        size_t bytes, size = 3 * pi0_dtype_size(types[i].dtype);
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%zu]}}", types[i].name, size);
        uint8_t *data = make_file(header, size, &bytes);
        PI0_ASSERT_OK(pi0_safetensors_parse(data, bytes, "m", &file, &err), &err);
        assert_int_equal(pi0_safetensors_at(file, 0)->dtype, types[i].dtype);
        pi0_safetensors_close(&file);
        free(data);
    }
}

static void other_element_types_are_refused_by_name(void **state)
{
    (void)state;
    const char *const names[] = {"F8_E4M3", "F8_E5M2", "C64", "F4", "f32", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char header[200];
        size_t bytes;
        snprintf(header, sizeof header, "{\"t.w\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,3]}}", names[i]);
        uint8_t *data = make_file(header, 3, &bytes);
        refuse_bytes(data, bytes, PI0_ERR_UNSUPPORTED, "\"t.w\"", names[i]);
        free(data);
    }
}

/* B2: nothing rounds the value on the way. */
static void B2_f32_values_are_read_back_exactly(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_safetensors *file;
    pi0_safetensors_writer writer;
    char *dir = pi0_test_make_dir();
    const float values[3] = {1.0000001f, -0.0f, 0x1.fffffep-127f};
    const pi0_tensor_view tensor = {.name = "x", .dtype = PI0_F32, .rank = 1, .shape = {3}};
    PI0_ASSERT_OK(pi0_safetensors_create(&writer, pi0_test_path(dir, "x.safetensors"), &tensor, 1, NULL, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_put(&writer, values, sizeof values, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_finish(&writer, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_open(pi0_test_path(dir, "x.safetensors"), &file, &err), &err);
    float single[3];
    double wide[3];
    PI0_ASSERT_OK(pi0_tensor_to_f32(pi0_safetensors_find(file, "x"), single, 3, &err), &err);
    PI0_ASSERT_OK(pi0_tensor_to_f64(pi0_safetensors_find(file, "x"), wide, 3, &err), &err);
    assert_memory_equal(single, values, sizeof values);
    assert_true(wide[0] == 0x1.000002p0);
    pi0_safetensors_close(&file);
    pi0_test_remove_dir(dir);
}

static void values_of_the_four_float_types_are_converted(void **state)
{
    (void)state;
    pi0_error err = {0};
    const double wide = 0.1;
    const uint16_t half = 0x3c01, brain = 0x3f81; /* 1 + 2^-10, 1 + 2^-7 */
    const int32_t integer = 1;
    pi0_tensor_view view = {.name = "x", .dtype = PI0_F64, .data = &wide, .bytes = 8};
    double out;
    float single;
    PI0_ASSERT_OK(pi0_tensor_to_f64(&view, &out, 1, &err), &err);
    assert_true(out == 0.1);
    PI0_ASSERT_OK(pi0_tensor_to_f32(&view, &single, 1, &err), &err);
    assert_true(single == 0.1f);
    view = (pi0_tensor_view){.name = "x", .dtype = PI0_F16, .data = &half, .bytes = 2};
    PI0_ASSERT_OK(pi0_tensor_to_f64(&view, &out, 1, &err), &err);
    assert_true(out == 1 + 0x1p-10);
    view = (pi0_tensor_view){.name = "x", .dtype = PI0_BF16, .data = &brain, .bytes = 2};
    PI0_ASSERT_OK(pi0_tensor_to_f32(&view, &single, 1, &err), &err);
    assert_true(single == 1 + 0x1p-7f);
    pi0_tensor_to_f32(&view, &single, 2, &err);
    pi0_test_assert_error(&err, PI0_ERR_MODEL, "\"x\"", "2 values", "1 values of type bf16", NULL);
    view = (pi0_tensor_view){.name = "x", .dtype = PI0_I32, .data = &integer, .bytes = 4};
    pi0_tensor_to_f64(&view, &out, 1, &err);
    pi0_test_assert_error(&err, PI0_ERR_MODEL, "\"x\"", "type i32", NULL);
}

/* ------------------------------------------------------------------ A12: files that lie */

static void A12_truncated_at_every_length(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = make_file(good_header, 24, &bytes);
    for (size_t n = 0; n < bytes; n++)
        refuse_bytes(file, n, PI0_ERR_FORMAT, "", "");
    refuse_bytes(file, 7, PI0_ERR_FORMAT, "too short", "7 bytes");
    refuse_bytes(file, bytes - 1, PI0_ERR_FORMAT, "outside the file's data", "\"one\"");
    free(file);
    file = make_file(good_header, 25, &bytes);
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, "do not cover", "25 bytes");
    free(file);
}

static void A12_header_length_of_two_to_the_forty(void **state)
{
    (void)state;
    const uint64_t lengths[] = {1ull << 40, UINT64_MAX, UINT64_MAX - 7, 1ull << 63, 3};
    uint8_t file[10] = {0};
    memcpy(file + 8, "{}", 2);
    for (size_t i = 0; i < 5; i++) {
        memcpy(file, &lengths[i], 8);
        refuse_bytes(file, sizeof file, PI0_ERR_FORMAT, "longer than the file", "at most 2 bytes");
    }
}

static void A12_header_over_the_cap(void **state)
{
    (void)state;
    size_t n = PI0_MAX_SAFETENSORS_HEADER + 1;
    uint8_t *file = calloc(1, 8 + n);
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        file[i] = (uint8_t)((uint64_t)n >> (8 * i));
    file[8] = '{';
    refuse_bytes(file, 8 + n, PI0_ERR_FORMAT, "too large", "104857601 bytes");
    free(file);
}

static void A12_header_that_is_no_object(void **state)
{
    (void)state;
    refuse("", 0, "'{' at byte 8", "0 bytes");
    refuse("[]", 0, "'{' at byte 8", "0x5b");
    refuse(" {}", 0, "'{' at byte 8", "0x20");
    refuse("{", 0, "not valid JSON", "column 2");
    refuse("{}x", 0, "not valid JSON", "'x'");
    refuse("{\"a\": 1}", 0, "\"a\"", "integer");
    refuse("{\"__metadata__\": []}", 0, "__metadata__", "array");
    refuse("{\"__metadata__\": {\"a\": \"x\", \"b\": 1}}", 0, "__metadata__", "integer");
    refuse("{}", 1, "do not cover", "1 bytes");
}

static void A12_duplicate_names(void **state)
{
    (void)state;
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
           1, "\"a\" again", "every key once");
}

/* A file of one F32 tensor with the given texts for its shape and offsets. */
static void refuse_one(const char *shape, const char *offsets, size_t data_bytes, const char *part, const char *other)
{
    char header[300];
    snprintf(header, sizeof header, "{\"layer.w\":{\"dtype\":\"F32\",\"shape\":%s,\"data_offsets\":%s}}", shape, offsets);
    refuse(header, data_bytes, part, other);
    refuse(header, data_bytes, "layer.w", other);
}

static void A12_offset_past_the_end(void **state)
{
    (void)state;
    refuse_one("[2]", "[0,8]", 7, "end <= 7", "end 8");
    refuse_one("[2]", "[0,9223372036854775807]", 8, "outside the file's data", "end 9223372036854775807");
    refuse_one("[2]", "[9223372036854775800,9223372036854775807]", 8, "outside", "begin 9223372036854775800");
    refuse_one("[2]", "[8,0]", 8, "outside", "begin 8, end 0");
    refuse_one("[2]", "[-8,0]", 8, "outside", "begin -8");
}

static void A12_offsets_that_are_no_pair_of_integers(void **state)
{
    (void)state;
    refuse_one("[2]", "[0,8.0]", 8, "two integers", "real");
    refuse_one("[2]", "[0,18446744073709551616]", 8, "two integers", "real");
    refuse_one("[2]", "[0]", 8, "two integers", "missing");
    refuse_one("[2]", "[0,4,8]", 8, "two integers", "array");
    refuse_one("[2]", "{}", 8, "two integers", "object");
    refuse_one("[2]", "[\"0\",8]", 8, "two integers", "string");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "two integers", "missing");
    refuse("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "\"dtype\"", "missing");
    refuse("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "\"shape\"", "missing");
}

static void A12_negative_and_impossible_shapes(void **state)
{
    (void)state;
    refuse_one("[-2]", "[0,8]", 8, "an integer, 0 or more", "-2");
    refuse_one("[-1,-2]", "[0,8]", 8, "an integer, 0 or more", "-1");
    refuse_one("[2.0]", "[0,8]", 8, "an integer, 0 or more", "real");
    refuse_one("[1,1,1,1,1,1,1,1,2]", "[0,8]", 8, "at most 8", "9 extents");
    refuse_one("2", "[0,8]", 8, "at most 8", "integer");
    refuse_one("[3]", "[0,8]", 8, "12 bytes", "8 bytes");
    refuse_one("[]", "[0,8]", 8, "4 bytes", "8 bytes");
    refuse_one("[4611686018427387904,4]", "[0,8]", 8, "fits 64 bits", "8 bytes");
    refuse_one("[4294967296,4294967296,2]", "[0,0]", 0, "fits 64 bits", "0 bytes"); /* 2^64 times 8: 0 when it wraps */
    refuse_one("[4611686018427387904]", "[0,0]", 0, "fits 64 bits", "0 bytes");
}

static void A12_overlaps_and_holes(void **state)
{
    (void)state;
#define PAIR(a0, a1, b0, b1)                                                          \
    "{\"first\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #a0 "," #a1 "]}," \
    "\"second\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #b0 "," #b1 "]}}"
    refuse(PAIR(0, 4, 2, 6), 6, "two tensors overlap", "\"second\"");
    refuse(PAIR(2, 6, 0, 4), 6, "two tensors overlap", "\"first\"");
    refuse(PAIR(0, 4, 0, 4), 4, "two tensors overlap", "begin 0");
    refuse(PAIR(0, 4, 5, 9), 9, "a hole", "begin 5");
    refuse(PAIR(1, 5, 5, 9), 9, "a hole", "begin 1");
    refuse(PAIR(0, 4, 4, 8), 9, "do not cover", "9 bytes");
#undef PAIR
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
           4, "two tensors overlap", "\"z\"");
}

static void too_many_tensors_and_too_long_names(void **state)
{
    (void)state;
    pi0_text text = {0};
    pi0_text_add(&text, "{");
    for (int i = 0; i <= PI0_MAX_TENSORS; i++)
        pi0_text_add(&text, "%s\"%d\":0", i ? "," : "", i);
    pi0_text_add(&text, "}");
    refuse(text.data, 0, "too many tensors", "65537");
    pi0_text_release(&text);
    pi0_text_add(&text, "{\"%01025d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 1);
    refuse(text.data, 0, "at most 1024 bytes", "1025 bytes");
    pi0_text_release(&text);
}

static void files_that_are_something_else(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_safetensors *file;
    char *dir = pi0_test_make_dir();
    const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 14500000000\n";
    pi0_test_write_file(pi0_test_path(dir, "m.safetensors"), pointer, sizeof pointer - 1);
    pi0_safetensors_open(pi0_test_path(dir, "m.safetensors"), &file, &err);
    assert_null(file);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, "m.safetensors", "Git LFS pointer", "git lfs pull", NULL);
    pi0_test_write_file(pi0_test_path(dir, "m.safetensors"), "\n<!DOCTYPE html><html>", 22);
    pi0_safetensors_open(pi0_test_path(dir, "m.safetensors"), &file, &err);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, "m.safetensors", "web page", "hf download", NULL);
    pi0_test_write_file(pi0_test_path(dir, "m.safetensors"), "", 0);
    pi0_safetensors_open(pi0_test_path(dir, "m.safetensors"), &file, &err);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, "too short", NULL);
    pi0_safetensors_open(pi0_test_path(dir, "absent.safetensors"), &file, &err);
    pi0_test_assert_error(&err, PI0_ERR_IO, "absent.safetensors", NULL);
    pi0_safetensors_open(dir, &file, &err);
    pi0_test_assert_error(&err, PI0_ERR_IO, dir, NULL);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ shards */

static const char shard1[] = "{\"__metadata__\":{\"k\":\"one\"},\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
static const char shard2[] =
    "{\"__metadata__\":{\"k\":\"two\",\"l\":\"two\"},\"c\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}";

/* Opens dir/m.safetensors.index.json with the given text. */
static pi0_status open_index(const char *dir, const char *index, pi0_safetensors **file, pi0_error *err)
{
    const char *path = pi0_test_path(dir, "m.safetensors.index.json");
    pi0_test_write_file(path, index, strlen(index));
    return pi0_safetensors_open(path, file, err);
}

static void refuse_index(const char *dir, const char *index, const char *part, const char *other)
{
    pi0_error err = {0};
    pi0_safetensors *file;
    open_index(dir, index, &file, &err);
    assert_null(file);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, part, other, NULL);
}

static char *make_shards(void)
{
    char *dir = pi0_test_make_dir();
    write_shard(dir, "m-1.safetensors", shard1, 4);
    write_shard(dir, "m-2.safetensors", shard2, 6);
    return dir;
}

static void shards_are_one_set_of_tensors(void **state)
{
    (void)state;
    char *dir = make_shards();
#define WEIGHTS "\"weight_map\":{\"b\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\",\"c\":\"m-2.safetensors\"}}"
    const char *const indices[] = {("{\"metadata\":{\"total_size\":10}," WEIGHTS), ("{\"metadata\":{\"total_size\":10.0}," WEIGHTS),
                                   ("{\"metadata\":{}," WEIGHTS), ("{" WEIGHTS)};
    for (size_t i = 0; i < 4; i++) {
        pi0_error err = {0};
        pi0_safetensors *file;
        PI0_ASSERT_OK(open_index(dir, indices[i], &file, &err), &err);
        assert_int_equal(pi0_safetensors_count(file), 3);
        assert_string_equal(pi0_safetensors_at(file, 0)->name, "a");
        assert_string_equal(pi0_safetensors_at(file, 1)->name, "c");
        assert_string_equal(pi0_safetensors_at(file, 2)->name, "b");
        const pi0_tensor_view *b = pi0_safetensors_find(file, "b");
        assert_int_equal(b->shard, 1);
        assert_int_equal(((const uint8_t *)b->data)[0], 2);
        assert_int_equal(pi0_safetensors_find(file, "a")->shard, 0);
        assert_int_equal(pi0_safetensors_shards(file), 2);
        assert_non_null(strstr(pi0_safetensors_shard_path(file, 1), "/m-2.safetensors"));
        assert_string_equal(pi0_safetensors_metadata(file, "k"), "one");
        assert_string_equal(pi0_safetensors_metadata(file, "l"), "two");
        assert_int_equal(pi0_safetensors_data_bytes(file), 10);
        pi0_safetensors_close(&file);
    }
    pi0_test_remove_dir(dir);
}

static void A12_an_index_that_disagrees_with_its_shards(void **state)
{
    (void)state;
    char *dir = make_shards();
#define MAP(entries) "{\"weight_map\":{" entries "}}"
#define A1 "\"a\":\"m-1.safetensors\""
#define B2 "\"b\":\"m-2.safetensors\""
#define C2 "\"c\":\"m-2.safetensors\""
    refuse_index(dir, MAP(A1 "," B2), "c: in m-2.safetensors, not in the index", "1 tensor");
    refuse_index(dir, MAP(A1 "," B2 "," C2 ",\"d\":\"m-1.safetensors\""), "d: the index says m-1.safetensors, found in no shard",
                 "1 tensor");
    refuse_index(dir, MAP(A1 "," B2 ",\"c\":\"m-1.safetensors\""), "c: the index says m-1.safetensors, found in m-2.safetensors",
                 "1 tensor");
    refuse_index(dir, MAP(A1 "," B2 ",\"d\":\"m-1.safetensors\""), "d: the index says", "2 tensors");
    refuse_index(dir, "{\"metadata\":{\"total_size\":11},\"weight_map\":{" A1 "," B2 "," C2 "}}", "total_size", "11");
    refuse_index(dir, "{\"metadata\":{\"total_size\":-1},\"weight_map\":{" A1 "," B2 "," C2 "}}", "total_size", "-1");
    refuse_index(dir, "{\"metadata\":{\"total_size\":\"10\"},\"weight_map\":{" A1 "," B2 "," C2 "}}", "total_size", "string");
    refuse_index(dir, "{\"weight_map\":[]}", "weight_map", "an object");
    refuse_index(dir, "{}", "weight_map", "missing");
    refuse_index(dir, "[]", "weight_map", "array");
    refuse_index(dir, MAP(""), "no tensor", "weight_map");
    write_shard(dir, "m-3.safetensors", shard1, 4);
    refuse_index(dir, MAP(A1 "," B2 "," C2 ",\"d\":\"m-3.safetensors\""), "two shards", "m-3.safetensors");
    write_shard(dir, "m-1.safetensors", shard1, 3);
    refuse_index(dir, MAP(A1 "," B2 "," C2), "m-1.safetensors", "outside the file's data");
    pi0_error err = {0};
    pi0_safetensors *file;
    open_index(dir, MAP("\"a\":\"m-9.safetensors\"," B2 ",\"e\":\"m-8.safetensors\""), &file, &err);
    pi0_test_assert_error(&err, PI0_ERR_IO, "2 of 3 shards", "m.safetensors.index.json", "m-9.safetensors", "m-8.safetensors", NULL);
    assert_int_equal(symlink("gone", pi0_test_path(dir, "m-9.safetensors")), 0);
    open_index(dir, MAP("\"a\":\"m-9.safetensors\""), &file, &err);
    pi0_test_assert_error(&err, PI0_ERR_IO, "m-9.safetensors", "symbolic link", NULL);
    pi0_test_remove_dir(dir);
}

static void A12_shards_outside_the_folder_are_refused(void **state)
{
    (void)state;
    char *dir = make_shards();
    const char *const names[] = {"/etc/passwd", "../m-1.safetensors", "sub/m-1.safetensors", "..", ".", "", "a\\\\b", "./m-1.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char index[200];
        snprintf(index, sizeof index, "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
        refuse_index(dir, index, "plain name", "\"a\"");
    }
    refuse_index(dir, "{\"weight_map\":{\"a\":1}}", "plain name", "integer");
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ writing */

static const pi0_tensor_view three[] = {
    {.name = "w \"quoted\" \\ \xc3\xa9\x01", .dtype = PI0_BF16, .rank = 2, .shape = {2, 3}},
    {.name = "empty", .dtype = PI0_F32, .rank = 1, .shape = {0}},
    {.name = "scalar", .dtype = PI0_I64},
};

static void written_files_are_read_back(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_safetensors *file;
    pi0_safetensors_writer writer;
    char *dir = pi0_test_make_dir();
    uint8_t data[20];
    for (int i = 0; i < 20; i++)
        data[i] = (uint8_t)(i * 7);
    const char *const metadata[] = {"format", "pt", "quote", "\"\n", NULL};
    PI0_ASSERT_OK(pi0_safetensors_create(&writer, pi0_test_path(dir, "x.safetensors"), three, 3, metadata, &err), &err);
    for (size_t i = 0; i < 20; i += 5)
        PI0_ASSERT_OK(pi0_safetensors_put(&writer, data + i, 5, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_finish(&writer, &err), &err);
    assert_int_equal(pi0_test_count_files(dir), 1);
    PI0_ASSERT_OK(pi0_safetensors_open(pi0_test_path(dir, "x.safetensors"), &file, &err), &err);
    assert_int_equal(pi0_safetensors_count(file), 3);
    const pi0_tensor_view *w = pi0_safetensors_find(file, three[0].name);
    assert_non_null(w);
    assert_int_equal(w->dtype, PI0_BF16);
    assert_int_equal(w->shape[1], 3);
    assert_memory_equal(w->data, data, 12);
    assert_int_equal((uintptr_t)w->data % PI0_ALIGN, 0);
    assert_memory_equal(pi0_safetensors_find(file, "scalar")->data, data + 12, 8);
    assert_int_equal(pi0_safetensors_find(file, "empty")->shape[0], 0);
    assert_string_equal(pi0_safetensors_metadata(file, "quote"), "\"\n");
    pi0_safetensors_close(&file);

    PI0_ASSERT_OK(pi0_safetensors_create(&writer, pi0_test_path(dir, "none.safetensors"), NULL, 0, NULL, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_finish(&writer, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_open(pi0_test_path(dir, "none.safetensors"), &file, &err), &err);
    assert_int_equal(pi0_safetensors_count(file), 0);
    pi0_safetensors_close(&file);
    pi0_test_remove_dir(dir);
}

static void tensors_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    pi0_safetensors_writer writer;
    char *dir = pi0_test_make_dir();
    const pi0_tensor_view bad[] = {
        {.name = "t", .dtype = PI0_TEXT},
        {.name = "t", .dtype = PI0_F32, .rank = 1, .shape = {-1}},
        {.name = "t", .dtype = PI0_F32, .rank = 9},
        {.name = NULL, .dtype = PI0_F32},
        {.name = "\xff", .dtype = PI0_F32},
        {.name = "__metadata__", .dtype = PI0_F32},
        {.name = "t", .dtype = PI0_F32, .rank = 2, .shape = {INT64_MAX, 4}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pi0_error err = {0};
        assert_int_equal(pi0_safetensors_create(&writer, pi0_test_path(dir, "x"), &bad[i], 1, NULL, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, NULL);
        pi0_safetensors_abort(&writer);
    }
    pi0_error err = {0};
    const pi0_tensor_view twice[] = {three[1], three[1]};
    pi0_safetensors_create(&writer, pi0_test_path(dir, "x"), twice, 2, NULL, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "\"empty\" again", NULL);
    assert_int_equal(pi0_test_count_files(dir), 0);
    pi0_test_remove_dir(dir);
}

static void data_must_be_as_long_as_declared(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_safetensors_writer writer;
    uint8_t data[21] = {0};
    char *dir = pi0_test_make_dir();
    char *path = pi0_strdup(pi0_test_path(dir, "x.safetensors"));
    pi0_test_write_file(path, "old", 3);
    PI0_ASSERT_OK(pi0_safetensors_create(&writer, path, three, 3, NULL, &err), &err);
    pi0_safetensors_put(&writer, data, 21, &err);
    pi0_test_assert_error(&err, PI0_ERR_INTERNAL, "20 bytes", "x.safetensors", NULL);
    PI0_ASSERT_OK(pi0_safetensors_put(&writer, data, 19, &err), &err);
    pi0_safetensors_finish(&writer, &err);
    pi0_test_assert_error(&err, PI0_ERR_INTERNAL, "19 bytes", "x.safetensors", NULL);
    pi0_safetensors_abort(&writer);
    pi0_safetensors_abort(NULL);
    PI0_ASSERT_OK(pi0_safetensors_create(&writer, path, three, 3, NULL, &err), &err);
    pi0_safetensors_abort(&writer);
    assert_int_equal(pi0_test_count_files(dir), 1);
    size_t bytes;
    char *text = pi0_test_read_file(path, &bytes);
    assert_string_equal(text, "old");
    free(text);
    pi0_free(path);
    pi0_test_remove_dir(dir);
}

/* A disk that is full, as far as this process can tell: no file may pass 64 KiB. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_safetensors_writer writer;
    char *dir = pi0_test_make_dir();
    char *path = pi0_strdup(pi0_test_path(dir, "x.safetensors"));
    pi0_test_write_file(path, "old", 3);
    const pi0_tensor_view large = {.name = "w", .dtype = PI0_U8, .rank = 1, .shape = {1 << 20}};
    uint8_t *data = calloc(1, 1 << 20);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1 << 16;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pi0_status status = pi0_safetensors_create(&writer, path, &large, 1, NULL, &err);
    if (status == PI0_OK)
        status = pi0_safetensors_put(&writer, data, 1 << 20, &err);
    if (status == PI0_OK)
        status = pi0_safetensors_finish(&writer, &err);
    pi0_safetensors_abort(&writer);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "x.safetensors", NULL);
    assert_int_equal(pi0_test_count_files(dir), 1);
    size_t bytes;
    char *text = pi0_test_read_file(path, &bytes);
    assert_string_equal(text, "old");
    free(text);
    free(data);
    pi0_free(path);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ memory */

static pi0_status write_and_open(const char *dir, pi0_error *err)
{
    pi0_safetensors_writer writer;
    pi0_safetensors *file = NULL;
    uint8_t data[20] = {0};
    const char *const metadata[] = {"format", "pt", NULL};
    pi0_status status;
    PI0_TRY_GOTO(pi0_safetensors_create(&writer, pi0_test_path(dir, "x.safetensors"), three, 3, metadata, err));
    PI0_TRY_GOTO(pi0_safetensors_put(&writer, data, 20, err));
    PI0_TRY_GOTO(pi0_safetensors_finish(&writer, err));
    PI0_TRY_GOTO(pi0_safetensors_open(pi0_test_path(dir, "x.safetensors"), &file, err));
    assert_int_equal(pi0_safetensors_count(file), 3);
    pi0_safetensors_close(&file);
    PI0_TRY_GOTO(pi0_safetensors_open(pi0_test_path(dir, "m.safetensors.index.json"), &file, err));
    assert_int_equal(pi0_safetensors_count(file), 3);
fail:
    if (status != PI0_OK)
        assert_null(file);
    pi0_safetensors_close(&file);
    pi0_safetensors_abort(&writer);
    return status;
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    char *dir = make_shards();
    const char index[] = "{" WEIGHTS;
    pi0_test_write_file(pi0_test_path(dir, "m.safetensors.index.json"), index, sizeof index - 1);
    for (long n = 1;; n++) {
        pi0_error err = {0};
        pi0_test_fail_allocation(n);
        pi0_status status = write_and_open(dir, &err);
        bool failed = pi0_test_allocation_failed();
        if (!failed) {
            PI0_ASSERT_OK(status, &err);
            assert_true(n > 40);
            break;
        }
        if (status != PI0_ERR_IO) /* the writer's file of the C library: errno says ENOMEM */
            assert_int_equal(status, PI0_ERR_MEMORY);
        pi0_error_clear(&err);
        int files = pi0_test_count_files(dir);
        assert_true(files == 3 || files == 4);
    }
    pi0_test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_given_in_file_order_and_by_name),
        cmocka_unit_test(every_element_type_is_known),
        cmocka_unit_test(other_element_types_are_refused_by_name),
        cmocka_unit_test(B2_f32_values_are_read_back_exactly),
        cmocka_unit_test(values_of_the_four_float_types_are_converted),
        cmocka_unit_test(A12_truncated_at_every_length),
        cmocka_unit_test(A12_header_length_of_two_to_the_forty),
        cmocka_unit_test(A12_header_over_the_cap),
        cmocka_unit_test(A12_header_that_is_no_object),
        cmocka_unit_test(A12_duplicate_names),
        cmocka_unit_test(A12_offset_past_the_end),
        cmocka_unit_test(A12_offsets_that_are_no_pair_of_integers),
        cmocka_unit_test(A12_negative_and_impossible_shapes),
        cmocka_unit_test(A12_overlaps_and_holes),
        cmocka_unit_test(too_many_tensors_and_too_long_names),
        cmocka_unit_test(files_that_are_something_else),
        cmocka_unit_test(shards_are_one_set_of_tensors),
        cmocka_unit_test(A12_an_index_that_disagrees_with_its_shards),
        cmocka_unit_test(A12_shards_outside_the_folder_are_refused),
        cmocka_unit_test(written_files_are_read_back),
        cmocka_unit_test(tensors_that_cannot_be_written_are_refused),
        cmocka_unit_test(data_must_be_as_long_as_declared),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
