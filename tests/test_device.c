/* The CPU device: single ops through compile and run, against plain arithmetic; the contract's refusals.
 * ctest: label=threads */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "support.h"

enum { LANES = 2, IMAGE_TOKENS = 3, WIDTH = 8 };

/* Two lanes: 1 and 2 pictures, 2 and 1 words, 3 actions each. */
static const int live[PI0_ROWS_COUNT][LANES] = {
    [PI0_ROWS_CAMERA] = {1, 2}, [PI0_ROWS_IMAGE] = {3, 6},  [PI0_ROWS_TEXT] = {2, 1},   [PI0_ROWS_PREFIX] = {5, 7},
    [PI0_ROWS_STATE] = {1, 1},  [PI0_ROWS_ACTION] = {3, 3}, [PI0_ROWS_SUFFIX] = {4, 4}, [PI0_ROWS_TIME] = {2, 0},
};

typedef struct rig {
    pi0_device *device;
    pi0_plan *plan;
    pi0_exec *exec;
    pi0_buffer buffers[16], arena, workspace;
    pi0_device_weight weights[8];
    pi0_params params;
    int32_t prefix_position[16], suffix_position[16], time_row[16];
    float time[2];
} rig;

static const pi0_device_api *const api = &pi0_device_cpu;

static void fill_params(rig *r)
{
    pi0_params *p = &r->params;
    p->lanes = LANES;
    for (int rows = 0; rows < PI0_ROWS_COUNT; rows++)
        for (int lane = 0; lane < LANES; lane++) {
            p->span[rows][lane] = (pi0_span){p->total[rows], live[rows][lane]};
            p->total[rows] += live[rows][lane];
        }
    for (int i = 0; i < 16; i++) {
        r->prefix_position[i] = i % 7;
        r->suffix_position[i] = 9 + i % 4;
        r->time_row[i] = i % 2;
    }
    r->time[0] = 0.7f;
    r->time[1] = 1.0f;
    p->prefix_position = r->prefix_position;
    p->suffix_position = r->suffix_position;
    p->time_row = r->time_row;
    p->time = r->time;
    p->dt = -0.25f;
}

static void rig_open(rig *r, int threads)
{
    pi0_error err = {0};
    int rows[PI0_ROWS_COUNT];
    memset(r, 0, sizeof *r);
    fill_params(r);
    for (int i = 0; i < PI0_ROWS_COUNT; i++)
        rows[i] = r->params.total[i] + 2; /* room beyond what is live */
    const pi0_device_options options = {.threads = threads};
    PI0_ASSERT_OK(api->open(&options, &r->device, &err), &err);
    PI0_ASSERT_OK(pi0_plan_create("rig", rows, IMAGE_TOKENS, &r->plan, &err), &err);
}

static int rig_input(rig *r, const char *name, pi0_rows rows, int cols, uint64_t seed)
{
    pi0_error err = {0};
    int tensor = pi0_plan_input(r->plan, name, PI0_F32, rows, cols);
    PI0_ASSERT_OK(api->alloc(r->device, pi0_tensor_bytes(r->plan, tensor), &r->buffers[tensor], &err), &err);
    pi0_random_normal(seed, 0, r->buffers[tensor].host, (size_t)r->plan->max_rows[rows] * (size_t)cols);
    return tensor;
}

static int rig_weight(rig *r, int64_t rows, int64_t cols, uint64_t seed)
{
    pi0_error err = {0};
    int tensor = pi0_plan_weight(r->plan, PI0_FORM_TENSOR, PI0_USE_VECTOR, NULL, rows, cols), index = r->plan->tensors[tensor].weight;
    pi0_device_weight *weight = &r->weights[index];
    PI0_ASSERT_OK(api->alloc(r->device, (size_t)(rows * cols) * sizeof(float), &weight->buffer, &err), &err);
    pi0_random_normal(seed, 1, weight->buffer.host, (size_t)(rows * cols));
    weight->host = (pi0_host_weight){.dtype = PI0_F32, .rows = rows, .cols = cols, .n_parts = 1, .part = {{weight->buffer.host, rows}}};
    return tensor;
}

/* Compiles what was built, runs it, and returns the rows of `out`. */
static const float *rig_run(rig *r, int out)
{
    pi0_error err = {0};
    pi0_plan_output(r->plan, out, "out");
    PI0_ASSERT_OK(pi0_plan_finish(r->plan), &err);
    PI0_ASSERT_OK(pi0_plan_layout(r->plan, &err), &err);
    PI0_ASSERT_OK(api->alloc(r->device, pi0_tensor_bytes(r->plan, out), &r->buffers[out], &err), &err);
    PI0_ASSERT_OK(api->alloc(r->device, r->plan->arena_bytes, &r->arena, &err), &err);
    PI0_ASSERT_OK(api->alloc(r->device, api->workspace(r->device, r->plan), &r->workspace, &err), &err);
    const pi0_bindings bindings = {.tensors = r->buffers, .weights = r->weights, .arena = r->arena, .workspace = r->workspace};
    PI0_ASSERT_OK(api->compile(r->device, r->plan, &bindings, &r->exec, &err), &err);
    PI0_ASSERT_OK(api->run(r->device, r->exec, &r->params, &err), &err);
    return r->buffers[out].host;
}

static void rig_close(rig *r)
{
    api->release(r->device, &r->exec);
    for (int i = 0; i < 16; i++)
        if (r->buffers[i].handle)
            api->free(r->device, &r->buffers[i]);
    for (int i = 0; i < 8; i++)
        if (r->weights[i].buffer.handle)
            api->free(r->device, &r->weights[i].buffer);
    api->free(r->device, &r->arena);
    api->free(r->device, &r->workspace);
    pi0_plan_free(&r->plan);
    api->close(&r->device);
}

static const float *rows_of(const rig *r, int tensor, int row)
{
    return (const float *)r->buffers[tensor].host + (size_t)row * (size_t)r->plan->tensors[tensor].cols;
}

static void assert_near(float got, double expected)
{
    if (!(fabs((double)got - expected) <= 1e-5 * fmax(1, fabs(expected))))
        fail_msg("got %.9g, expected %.9g", (double)got, expected);
}

/* ------------------------------------------------------------------ ops */

/* B9: angles in f64 of a time that is f32 (values from the running reference, formats 11.2, and exact ones at t = 1). */
static void B9_time_embedding(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 1);
    const float *out = rig_run(&r, pi0_plan_time_embed(r.plan, 1024, 4e-3, 4.0));
    assert_true(fabsf(out[1] - -0.8099221f) < 2e-6f);
    const double period = 4e-3 * pow(4.0 / 4e-3, 100.0 / 511.0);
    const double angle = 2 * 3.14159265358979323846 / period;
    assert_true(fabs((double)out[1024 + 100] - sin(angle)) < 1e-6);
    assert_true(fabs((double)out[1024 + 512 + 100] - cos(angle)) < 1e-6);
    rig_close(&r);
}

static void rows_of_lanes_are_joined_and_taken(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 2);
    const int images = rig_input(&r, "images", PI0_ROWS_IMAGE, WIDTH, 1), words = rig_input(&r, "words", PI0_ROWS_TEXT, WIDTH, 2);
    const float *out = rig_run(&r, pi0_plan_concat_rows(r.plan, images, words, PI0_ROWS_PREFIX));
    static const int from_image[] = {0, 1, 2, -1, -1, 3, 4, 5, 6, 7, 8, -1}, from_text[] = {-1, -1, -1, 0, 1, -1, -1, -1, -1, -1, -1, 2};
    for (int row = 0; row < 12; row++)
        assert_memory_equal(out + row * WIDTH,
                            from_image[row] >= 0 ? rows_of(&r, images, from_image[row]) : rows_of(&r, words, from_text[row]),
                            WIDTH * sizeof(float));
    rig_close(&r);

    rig_open(&r, 2);
    const int suffix = rig_input(&r, "suffix", PI0_ROWS_SUFFIX, WIDTH, 3);
    out = rig_run(&r, pi0_plan_take_rows(r.plan, suffix, PI0_ROWS_ACTION));
    for (int row = 0; row < 6; row++)
        assert_memory_equal(out + row * WIDTH, rows_of(&r, suffix, row / 3 * 4 + 1 + row % 3), WIDTH * sizeof(float));
    rig_close(&r);
}

static void rows_take_the_modulation_of_their_time(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 2);
    const int x = rig_input(&r, "x", PI0_ROWS_ACTION, WIDTH, 4), branch = rig_input(&r, "branch", PI0_ROWS_ACTION, WIDTH, 5);
    const int mod = rig_input(&r, "mod", PI0_ROWS_TIME, 3 * WIDTH, 6);
    const float *out = rig_run(&r, pi0_plan_gated_add(r.plan, x, branch, mod));
    for (int row = 0; row < 6; row++)
        for (int c = 0; c < WIDTH; c++)
            assert_near(out[row * WIDTH + c], (double)rows_of(&r, x, row)[c] +
                                                  (double)rows_of(&r, branch, row)[c] * (double)rows_of(&r, mod, row % 2)[2 * WIDTH + c]);
    rig_close(&r);

    rig_open(&r, 1);
    const int y = rig_input(&r, "y", PI0_ROWS_ACTION, WIDTH, 4), mod2 = rig_input(&r, "mod", PI0_ROWS_TIME, 3 * WIDTH, 6);
    out = rig_run(&r, pi0_plan_ada_norm(r.plan, y, mod2, 1e-6f));
    for (int row = 0; row < 6; row++) {
        double square = 0;
        for (int c = 0; c < WIDTH; c++)
            square += (double)rows_of(&r, y, row)[c] * (double)rows_of(&r, y, row)[c];
        const double scale = 1 / sqrt(square / WIDTH + 1e-6);
        const float *m = rows_of(&r, mod2, row % 2);
        for (int c = 0; c < WIDTH; c++)
            assert_near(out[row * WIDTH + c], (double)rows_of(&r, y, row)[c] * scale * (1 + (double)m[c]) + (double)m[WIDTH + c]);
    }
    rig_close(&r);
}

static void a_table_repeats_over_rows(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 2);
    const int x = rig_input(&r, "x", PI0_ROWS_IMAGE, WIDTH, 7), table = rig_weight(&r, IMAGE_TOKENS, WIDTH, 8);
    const float *weights = r.weights[0].buffer.host, *out = rig_run(&r, pi0_plan_binary(r.plan, PI0_OP_ADD, x, table));
    for (int row = 0; row < 9; row++)
        for (int c = 0; c < WIDTH; c++)
            assert_near(out[row * WIDTH + c], (double)rows_of(&r, x, row)[c] + (double)weights[row % IMAGE_TOKENS * WIDTH + c]);
    rig_close(&r);
}

static void rope_turns_by_the_rows_position(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 2);
    const int x = rig_input(&r, "x", PI0_ROWS_SUFFIX, 2 * WIDTH, 9);
    const float *out = rig_run(&r, pi0_plan_rope(r.plan, x, 2, WIDTH));
    for (int row = 0; row < 8; row++)
        for (int c = 0; c < 2 * WIDTH; c++) {
            const int head = c / WIDTH, i = c % WIDTH % (WIDTH / 2);
            const double angle = (9 + row % 4) * pow(10000, -2.0 * i / WIDTH);
            const double a = (double)rows_of(&r, x, row)[head * WIDTH + i], b = (double)rows_of(&r, x, row)[head * WIDTH + i + WIDTH / 2];
            assert_near(out[row * 2 * WIDTH + c],
                        c % WIDTH < WIDTH / 2 ? a * cos(angle) - b * sin(angle) : b * cos(angle) + a * sin(angle));
        }
    rig_close(&r);
}

static void euler_goes_down_the_velocity(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, 1);
    const int x = rig_input(&r, "x", PI0_ROWS_ACTION, WIDTH, 10), v = rig_input(&r, "v", PI0_ROWS_ACTION, WIDTH, 11);
    const float *out = rig_run(&r, pi0_plan_binary(r.plan, PI0_OP_EULER, x, v));
    for (int i = 0; i < 6 * WIDTH; i++)
        assert_near(out[i], (double)rows_of(&r, x, 0)[i] - 0.25 * (double)rows_of(&r, v, 0)[i]);
    rig_close(&r);
}

/* ------------------------------------------------------------------ contract */

static void transfers_past_the_end_are_refused(void **state)
{
    (void)state;
    rig r;
    pi0_error err = {0};
    pi0_buffer buffer;
    uint8_t bytes[64] = {0};
    rig_open(&r, 1);
    PI0_ASSERT_OK(api->alloc(r.device, 64, &buffer, &err), &err);
    assert_int_equal(api->write(r.device, &buffer, 1, bytes, 64, &err), PI0_ERR_INTERNAL);
    assert_int_equal(api->read(r.device, &buffer, SIZE_MAX, bytes, 64, &err), PI0_ERR_INTERNAL);
    pi0_error_clear(&err);
    api->free(r.device, &buffer);
    rig_close(&r);
}

static void weights_are_left_copied_or_packed(void **state)
{
    (void)state;
    rig r;
    pi0_error err = {0};
    static _Alignas(64) uint8_t file[64] = {1, 2, 3, 4, 5, 6, 7, 8};
    pi0_device_weight got;
    rig_open(&r, 1);
    const pi0_weight multiplied = {.use = PI0_USE_MATRIX, .rows = 2, .cols = 2, .most_rows = 4};
    pi0_weight left = multiplied; /* a calibration reads it too */
    left.stays = true;
    pi0_host_weight host = {.dtype = PI0_F32, .rows = 2, .cols = 2, .n_parts = 1, .part = {{file, 2}}};
    PI0_ASSERT_OK(api->import_weight(r.device, &left, &host, &got, &err), &err);
    assert_true(got.host.part[0].data == file && !got.buffer.handle && !got.packed);
    assert_int_equal(api->weight_bytes(r.device, &left, PI0_F32), 0);
    host.part[0].data = file + 2; /* misaligned */
    PI0_ASSERT_OK(api->import_weight(r.device, &left, &host, &got, &err), &err);
    assert_true(got.buffer.handle && !got.packed);
    assert_memory_equal(got.host.part[0].data, file + 2, 16);
    api->free(r.device, &got.buffer);
    for (int misaligned = 0; misaligned < 2; misaligned++) {
        host.part[0].data = file + 2 * misaligned;
        PI0_ASSERT_OK(api->import_weight(r.device, &multiplied, &host, &got, &err), &err);
        assert_true(got.packed);
        assert_int_equal(got.buffer.bytes, api->weight_bytes(r.device, &multiplied, PI0_F32));
        assert_memory_equal(got.buffer.host, (const uint8_t *)host.part[0].data, 4);
        api->free(r.device, &got.buffer);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B9_time_embedding),
        cmocka_unit_test(rows_of_lanes_are_joined_and_taken),
        cmocka_unit_test(rows_take_the_modulation_of_their_time),
        cmocka_unit_test(a_table_repeats_over_rows),
        cmocka_unit_test(rope_turns_by_the_rows_position),
        cmocka_unit_test(euler_goes_down_the_velocity),
        cmocka_unit_test(transfers_past_the_end_are_refused),
        cmocka_unit_test(weights_are_left_copied_or_packed),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
