/* Inference through the public API: determinism, lanes, passes, sessions, errors.
 * ctest: label=threads timeout=600 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_fixture.h"

enum { H = 10 };

typedef struct chunk {
    float x[H * A];
} chunk;

static chunk result(const pi0_session *session)
{
    chunk c;
    int rows, cols;
    const float *raw = pi0_actions_raw(session, &rows, &cols);
    assert_non_null(raw);
    assert_int_equal(rows, H);
    assert_int_equal(cols, A);
    memcpy(c.x, raw, sizeof c.x);
    return c;
}

static chunk infer(pi0_session *session, int steps)
{
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_infer(&session, 1, steps, &err), &err);
    return result(session);
}

static void assert_same_bits(const chunk *a, const chunk *b)
{
    assert_memory_equal(a->x, b->x, sizeof a->x);
}

static double furthest(const chunk *a, const chunk *b)
{
    double most = 0;
    for (int i = 0; i < H * A; i++)
        most = fmax(most, fabs((double)a->x[i] - (double)b->x[i]));
    return most;
}

/* One observation on a model opened with `change`. */
static chunk run_once(const pi0_golden_case *c, void (*change)(pi0_options *options), uint64_t seed, int n_tokens, int cameras)
{
    pi0_model *model = pi0_test_golden_open(c, change);
    pi0_session *session = open_session(model);
    observe(session, seed, n_tokens, cameras);
    chunk out = infer(session, 4);
    pi0_session_close(&session);
    pi0_close(&model);
    return out;
}

/* ------------------------------------------------------------------ determinism */

static bool under_sanitizer(void)
{
    const char *sanitizer = getenv("SANITIZE");
    return sanitizer != NULL && *sanitizer != '\0';
}

static int threads_wanted;
static void with_threads(pi0_options *options)
{
    options->threads = threads_wanted;
    options->stages = 0;
}

static void same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++) {
        const pi0_golden_case *c = model ? &pi05_case : &pi0_case;
        threads_wanted = 1;
        const chunk one = run_once(c, with_threads, 5, 9, 3);
        static const int counts[] = {2, 3, 7, 64, 256}; /* far more than there are cores, where no sanitizer watches */
        for (size_t i = 0; i < (under_sanitizer() ? 3 : sizeof counts / sizeof *counts); i++) {
            threads_wanted = counts[i];
            const chunk many = run_once(c, with_threads, 5, 9, 3);
            assert_same_bits(&one, &many);
        }
    }
}

static void B16_F4_F6_no_state_between_calls(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model);
    observe(session, 1, 7, 3);
    const chunk first = infer(session, 4);
    observe(session, 2, 20, 7);
    const chunk other = infer(session, 4);
    observe(session, 1, 7, 3);
    const chunk again = infer(session, 4);
    assert_same_bits(&first, &again);
    assert_true(furthest(&first, &other) > 1e-3);
    pi0_session_close(&session);
    pi0_close(&model);
}

static void G1_noise_is_a_stream_of_seed_and_inference(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *a = open_session(model);
    pi0_array noise[3];
    chunk drawn[3];
    pi0_error err = {0};
    observe(a, 3, 7, 1);
    infer(a, 1); /* uses the noise given */
    for (int i = 0; i < 3; i++) {
        if (i == 2) { /* reset: the stream starts again */
            observe(a, 3, 7, 1);
            infer(a, 1);
        }
        infer(a, 1);
        PI0_ASSERT_OK(pi0_stage(a, "noise", &noise[i], &err), &err);
        memcpy(drawn[i].x, noise[i].data, sizeof drawn[i].x);
    }
    assert_true(furthest(&drawn[0], &drawn[1]) > 0.1);
    assert_same_bits(&drawn[0], &drawn[2]);
    pi0_session_close(&a);
    pi0_close(&model);
}

/* ------------------------------------------------------------------ lanes */

static int lanes_wanted;
static const char *lanes_precision, *lanes_disable;
static void with_lanes(pi0_options *options)
{
    options->max_batch = lanes_wanted;
    options->precision = lanes_precision;
    options->disable = lanes_disable;
    options->stages = 0;
}

/* Five sessions with prompts, cameras and masks of their own: more than the lanes, so in turns. */
static void infer_five(const pi0_golden_case *c, chunk out[5])
{
    static const int tokens[] = {3, 9, 17, 48, 1}, cameras[] = {1, 3, 7, 5, 2};
    pi0_model *model = pi0_test_golden_open(c, with_lanes);
    pi0_session *sessions[5];
    pi0_error err = {0};
    for (int i = 0; i < 5; i++) {
        sessions[i] = open_session(model);
        observe(sessions[i], (uint64_t)i + 10, tokens[i], cameras[i]);
    }
    PI0_ASSERT_OK(pi0_infer(sessions, 5, 3, &err), &err);
    for (int i = 0; i < 5; i++) {
        out[i] = result(sessions[i]);
        pi0_session_close(&sessions[i]);
    }
    pi0_close(&model);
}

static void expect_batch_is_singles(int first_lanes, int last_lanes)
{
    for (int kind = 0; kind < 2; kind++) {
        chunk single[5], batched[5];
        lanes_wanted = 1;
        infer_five(kind ? &pi05_case : &pi0_case, single);
        for (lanes_wanted = first_lanes; lanes_wanted <= last_lanes; lanes_wanted++) {
            infer_five(kind ? &pi05_case : &pi0_case, batched);
            for (int i = 0; i < 5; i++)
                assert_same_bits(&single[i], &batched[i]);
        }
    }
}

static void G5_F7_batch_is_singles_bit_for_bit(void **state)
{
    (void)state;
    lanes_precision = lanes_disable = NULL;
    expect_batch_is_singles(2, 4);
}

static void G5_F7_batch_is_singles_in_every_precision_and_with_masks(void **state)
{
    (void)state;
    static const char *const precisions[] = {"f32", "bf16", "int8"}, *const masks[] = {NULL, "drop-masked", "drop-masked,flash-attention"};
    for (int i = 0; i < 3; i++)
        for (int mask = i == 0; mask < 3; mask++) { /* f32 without a mask is the test above */
            lanes_precision = precisions[i];
            lanes_disable = masks[mask];
            expect_batch_is_singles(3, 3);
        }
}

/* ------------------------------------------------------------------ passes */

static const char *disabled;
static void with_disabled(pi0_options *options)
{
    options->disable = disabled;
    options->stages = 0;
}

static void bit_passes_change_no_bit(void **state)
{
    (void)state;
    static const char *const bit[] = {
        "last-layer-kv", "rope-table", "fuse-qkv", "fuse-gate-up", "fuse-rope",
        "add-norm",      "geglu",      "arena",    "replay",       "arena,replay,rope-table,last-layer-kv,fuse-qkv,fuse-gate-up,add-norm"};
    for (int model = 0; model < 2; model++) {
        const pi0_golden_case *c = model ? &pi05_case : &pi0_case;
        disabled = NULL;
        const chunk all_on = run_once(c, with_disabled, 21, 12, 3);
        for (size_t i = 0; i < sizeof bit / sizeof *bit; i++) {
            disabled = bit[i];
            const chunk off = run_once(c, with_disabled, 21, 12, 3);
            assert_same_bits(&all_on, &off);
        }
    }
}

static void order_passes_change_rounding_only(void **state)
{
    (void)state;
    static const char *const order[] = {
        "drop-masked", "flash-attention",
        "drop-masked,flash-attention,rope-table,last-layer-kv,arena,replay,fuse-qkv,fuse-gate-up,add-norm,geglu,time-fold,state-kv"};
    for (int model = 0; model < 2; model++) {
        const pi0_golden_case *c = model ? &pi05_case : &pi0_case;
        disabled = NULL;
        const chunk all_on = run_once(c, with_disabled, 22, 12, 5);
        for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
            disabled = order[i];
            const chunk off = run_once(c, with_disabled, 22, 12, 5);
            const double distance = furthest(&all_on, &off);
            if (!(distance < 2e-5))
                fail_msg("without %s the actions move by %g", order[i], distance);
        }
    }
}

/* The tables of time-fold are kept between calls, made anew when the steps change, and in windows when there are more steps than rows. */
static void time_tables_follow_the_steps(void **state)
{
    (void)state;
    static const int steps[] = {4, 10, 23, 23, 4, 1, 4};
    for (int model_kind = 0; model_kind < 2; model_kind++) {
        const pi0_golden_case *c = model_kind ? &pi05_case : &pi0_case;
        chunk seen[2][7];
        for (int off = 0; off < 2; off++) {
            disabled = off ? "time-fold" : NULL;
            pi0_model *model = pi0_test_golden_open(c, with_disabled);
            pi0_session *session = open_session(model);
            for (int i = 0; i < 7; i++) {
                observe(session, 31, 9, 1);
                seen[off][i] = infer(session, steps[i]);
            }
            pi0_session_close(&session);
            pi0_close(&model);
        }
        for (int i = 0; i < 7; i++)
            assert_true(furthest(&seen[0][i], &seen[1][i]) < 2e-5);
        assert_same_bits(&seen[0][2], &seen[0][3]);
        assert_same_bits(&seen[0][0], &seen[0][4]);
        assert_same_bits(&seen[0][0], &seen[0][6]);
        assert_true(furthest(&seen[0][0], &seen[0][1]) > 1e-5);
    }
}

/* C6: what a masked camera holds cannot matter, and masking one equals leaving it out. */
static void C6_absent_camera_changes_nothing_but_itself(void **state)
{
    (void)state;
    chunk seen[2];
    disabled = "drop-masked";
    pi0_model *model = pi0_test_golden_open(&pi0_case, with_disabled);
    for (int i = 0; i < 2; i++) {
        pi0_session *session = open_session(model);
        observe(session, i ? 99 : 98, 30, 7); /* other pictures lie in the slots before */
        infer(session, 1);
        observe(session, 4, 9, 1);
        seen[i] = infer(session, 4);
        pi0_session_close(&session);
    }
    pi0_close(&model);
    assert_same_bits(&seen[0], &seen[1]);
    disabled = NULL;
    const chunk dropped = run_once(&pi0_case, with_disabled, 4, 9, 1);
    assert_true(furthest(&seen[0], &dropped) < 2e-5);
}

/* ------------------------------------------------------------------ inputs matter, and only in their way */

static void B17_one_pixel_changes_the_prefix(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model);
    pi0_error err = {0};
    pi0_array k;
    observe(session, 6, 9, 1);
    infer(session, 1);
    PI0_ASSERT_OK(pi0_stage(session, "prefix_k.0", &k, &err), &err);
    assert_int_equal(k.shape[0], 256 + 9);
    float *before = malloc(k.bytes);
    assert_non_null(before);
    memcpy(before, k.data, k.bytes);
    float *pixels = calloc(S * S * 3, sizeof *pixels);
    assert_non_null(pixels);
    PI0_ASSERT_OK(pi0_stage(session, "image.base_0_rgb", &k, &err), &err);
    memcpy(pixels, k.data, k.bytes);
    pixels[0] = -pixels[0] + 0.5f;
    set_array(session, "image.base_0_rgb", PI0_F32, pixels, S * S * 3 * sizeof *pixels, 3, (int64_t[]){S, S, 3});
    infer(session, 1);
    PI0_ASSERT_OK(pi0_stage(session, "prefix_k.0", &k, &err), &err);
    assert_memory_not_equal(before, k.data, k.bytes);
    free(before);
    free(pixels);
    pi0_session_close(&session);
    pi0_close(&model);
}

static void D9_alternating_prompts_equal_separate_ones(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi05_case, NULL);
    pi0_session *session = open_session(model);
    chunk first[2];
    for (int i = 0; i < 6; i++) {
        observe(session, 30 + (uint64_t)(i % 2), i % 2 ? 40 : 6, 3);
        const chunk got = infer(session, 2);
        if (i < 2)
            first[i] = got;
        else
            assert_same_bits(&first[i % 2], &got);
    }
    pi0_session_close(&session);
    pi0_close(&model);
}

static void G4_exactly_n_steps(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 5, 7, 10, 16, 20, 50, 100};
    pi0_model *model = pi0_test_golden_open(&pi05_case, NULL);
    pi0_session *session = open_session(model);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        observe(session, 40, 5, 1);
        infer(session, counts[i]);
        int velocities = 0;
        for (size_t s = 0; s < pi0_stage_count(session); s++)
            velocities += !strncmp(pi0_stage_name(session, s), "velocity.", 9);
        assert_int_equal(velocities, counts[i]);
    }
    pi0_session_close(&session);
    pi0_close(&model);
}

static int horizon_wanted;
static void with_horizon(pi0_options *options)
{
    options->horizon = horizon_wanted;
}

static void A8_F5_horizon_is_a_run_option(void **state)
{
    (void)state;
    static const int horizons[] = {1, 16, 50};
    for (size_t i = 0; i < sizeof horizons / sizeof *horizons; i++) {
        horizon_wanted = horizons[i];
        pi0_model *model = pi0_test_golden_open(&pi0_case, with_horizon);
        pi0_session *session = open_session(model);
        pi0_error err = {0};
        int rows, cols;
        int64_t token = 2;
        float values[A] = {0};
        set_picture(session, "base_0_rgb", 1);
        set_array(session, "tokens", PI0_I64, &token, sizeof token, 1, (int64_t[]){1});
        set_array(session, "state", PI0_F32, values, sizeof values, 1, (int64_t[]){A});
        PI0_ASSERT_OK(pi0_infer(&session, 1, 2, &err), &err);
        assert_non_null(pi0_actions_raw(session, &rows, &cols));
        assert_int_equal(rows, horizons[i]);
        pi0_session_close(&session);
        pi0_close(&model);
    }
}

/* ------------------------------------------------------------------ refusals */

static void G2_G3_noise_shapes(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model);
    pi0_error err = {0};
    float noise[H * A];
    for (int i = 0; i < H * A; i++)
        noise[i] = stirred(50, (uint64_t)i);
    observe(session, 7, 9, 1);
    set_array(session, "noise", PI0_F32, noise, sizeof noise, 2, (int64_t[]){H, A});
    const chunk flat = infer(session, 2);
    observe(session, 7, 9, 1);
    set_array(session, "noise", PI0_F32, noise, sizeof noise, 3, (int64_t[]){1, H, A});
    const chunk batched = infer(session, 2);
    assert_same_bits(&flat, &batched);
    assert_int_equal(pi0_set_noise(session, noise, 1, A, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "noise", "[10, 32]", "[1, 32]", NULL);
    assert_int_equal(pi0_set_noise(session, noise, H, 31, &err), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    noise[5] = NAN;
    assert_int_equal(pi0_set_noise(session, noise, H, A, &err), PI0_ERR_NONFINITE);
    pi0_test_assert_error(&err, PI0_ERR_NONFINITE, "noise[0,5]", NULL);
    pi0_session_close(&session);
    pi0_close(&model);
}

/* B6: the first suffix row stands right behind the last valid prefix row; pi0's is the state, its actions follow. */
static void B6_suffix_positions_follow_the_valid_prefix(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        pi0_model *model = pi0_test_golden_open(kind ? &pi05_case : &pi0_case, NULL);
        pi0_session *session = open_session(model);
        observe(session, 60, 7, 3);
        infer(session, 1);
        const pi0_params *p = &model->params;
        assert_int_equal(p->total[PI0_ROWS_PREFIX], 2 * 256 + 7);
        assert_int_equal(p->total[PI0_ROWS_SUFFIX], kind ? H : 1 + H);
        for (int row = 0; row < p->total[PI0_ROWS_PREFIX]; row++)
            assert_int_equal(p->prefix_position[row], row);
        for (int row = 0; row < p->total[PI0_ROWS_SUFFIX]; row++)
            assert_int_equal(p->suffix_position[row], 519 + row);
        pi0_session_close(&session);
        pi0_close(&model);
    }
}

static const char *precision_wanted;
static void with_precision(pi0_options *options)
{
    options->precision = precision_wanted;
}

static void B3_precision_is_what_was_asked_for(void **state)
{
    (void)state;
    chunk runs[2];
    for (int i = 0; i < 2; i++) {
        precision_wanted = i ? "bf16" : "f32";
        pi0_model *model = pi0_test_golden_open(&pi0_case, with_precision); /* the file holds f32 */
        assert_string_equal(pi0_model_info(model)->precision, precision_wanted);
        pi0_close(&model);
        runs[i] = run_once(&pi0_case, with_precision, 70, 9, 1);
    }
    precision_wanted = "auto";
    const chunk automatic = run_once(&pi0_case, with_precision, 70, 9, 1);
    assert_same_bits(&runs[0], &automatic);
    assert_true(furthest(&runs[0], &runs[1]) > 1e-5);
}

static void with_int8(pi0_options *options)
{
    options->precision = "int8";
}

static void with_int8_and_three_threads(pi0_options *options)
{
    with_int8(options);
    options->threads = 3;
}

/* Matrices are taken into memory of a quarter of their f32 size. */
static void int8_is_announced_counted_and_the_same_on_any_number_of_threads(void **state)
{
    (void)state;
    pi0_model *plain = pi0_test_golden_open(&pi0_case, NULL), *model = pi0_test_golden_open(&pi0_case, with_int8);
    assert_true(!strncmp(pi0_model_info(model)->precision, "int8 (w8a", 9));
    const pi0_memory f32 = pi0_model_memory(plain), int8 = pi0_model_memory(model);
    const uint64_t before = f32.weights_mapped + f32.weights_owned, after = int8.weights_mapped + int8.weights_owned;
    assert_true(int8.weights_owned < f32.weights_owned && after < before);
    uint64_t taken = 0;
    for (int i = 0; i < model->context.plan->n_weights; i++) {
        const pi0_weight *weight = &model->context.plan->weights[i];
        assert_true((weight->precision == PI0_PRECISION_INT8) == (weight->use == PI0_USE_MATRIX));
        taken += model->context.weights[i].packed ? model->context.weights[i].buffer.bytes : 0;
    }
    assert_true(taken > 0 && taken < int8.weights_owned);
    pi0_close(&plain);
    pi0_close(&model);
    const chunk two = run_once(&pi0_case, with_int8, 70, 9, 1), three = run_once(&pi0_case, with_int8_and_three_threads, 70, 9, 1);
    const chunk exact = run_once(&pi0_case, NULL, 70, 9, 1);
    assert_same_bits(&two, &three);
    assert_true(furthest(&two, &exact) > 1e-5);
}

static void D7_token_outside_the_table(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model);
    pi0_error err = {0};
    static const int64_t bad[] = {300000, -1, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        observe(session, 8, 4, 1);
        set_array(session, "tokens", PI0_I64, &bad[i], sizeof bad[i], 1, (int64_t[]){1});
        assert_int_equal(pi0_infer(&session, 1, 1, &err), PI0_ERR_ARGUMENT);
        assert_null(pi0_actions_raw(session, NULL, NULL));
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "token", "257151", NULL);
    }
    pi0_session_close(&session);
    pi0_close(&model);
}

static void B14_no_picture_is_an_error(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model);
    pi0_error err = {0};
    observe(session, 8, 4, 0);
    assert_int_equal(pi0_infer(&session, 1, 1, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "no picture", "base_0_rgb", NULL);
    pi0_session_close(&session);
    pi0_close(&model);
}

static void C9_non_finite_input_is_refused_by_name(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model);
    pi0_error err = {0};
    observe(session, 9, 4, 1);
    const chunk good = infer(session, 1);
    float *pixels = calloc(S * S * 3, sizeof *pixels);
    assert_non_null(pixels);
    pixels[12345] = INFINITY;
    pi0_array picture = {
        .name = "image.base_0_rgb", .dtype = PI0_F32, .rank = 3, .shape = {S, S, 3}, .data = pixels, .bytes = S * S * 3 * sizeof *pixels};
    assert_int_equal(pi0_set_input(session, &picture, &err), PI0_ERR_NONFINITE);
    pi0_test_assert_error(&err, PI0_ERR_NONFINITE, "image.base_0_rgb", NULL);
    float values[A] = {[3] = NAN};
    pi0_array robot = {.name = "state", .dtype = PI0_F32, .rank = 1, .shape = {A}, .data = values, .bytes = sizeof values};
    assert_int_equal(pi0_set_input(session, &robot, &err), PI0_ERR_NONFINITE);
    pi0_test_assert_error(&err, PI0_ERR_NONFINITE, "state[3]", NULL);
    observe(session, 9, 4, 1); /* the session lives on */
    const chunk again = infer(session, 1);
    assert_same_bits(&good, &again);
    free(pixels);
    pi0_session_close(&session);
    pi0_close(&model);
}

static void preprocessed_inputs_in_other_units_are_refused(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model);
    pi0_error err = {0};
    float *pixels = calloc(S * S * 3, sizeof *pixels);
    uint8_t *bytes = calloc(S * S * 3, 1);
    assert_true(pixels && bytes);
    pixels[7] = 200; /* 0 .. 255 */
    pi0_array picture = {
        .name = "image.base_0_rgb", .dtype = PI0_F32, .rank = 3, .shape = {S, S, 3}, .data = pixels, .bytes = S * S * 3 * sizeof *pixels};
    assert_int_equal(pi0_set_input(session, &picture, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "image.base_0_rgb", "[-1, 1]", "200", NULL);
    picture.dtype = PI0_U8;
    picture.data = bytes;
    picture.bytes = S * S * 3;
    assert_int_equal(pi0_set_input(session, &picture, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "floats", NULL);
    const float ids[] = {2, 3};
    const pi0_array tokens = {.name = "tokens", .dtype = PI0_F32, .rank = 1, .shape = {2}, .data = ids, .bytes = sizeof ids};
    assert_int_equal(pi0_set_input(session, &tokens, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "integers", NULL);
    free(pixels);
    free(bytes);
    pi0_session_close(&session);
    pi0_close(&model);
}

/* Flips one value of a tensor in a copy of a checkpoint to NaN and expects the stage to be named. */
static void poisoned_weight_names_its_stage(const char *tensor, const char *stage)
{
    pi0_error err = {0};
    size_t bytes;
    char *dir = pi0_test_make_dir();
    char source[1100];
    snprintf(source, sizeof source, "%s/model.safetensors", pi0_test_golden_dir("openpi_pi0_Q"));
    uint8_t *file = pi0_test_read_file(source, &bytes);
    uint64_t header;
    memcpy(&header, file, sizeof header);
    char *entry = memmem(file + 8, header, tensor, strlen(tensor));
    assert_non_null(entry);
    const char *offsets = strstr(entry, "data_offsets\":[");
    assert_non_null(offsets);
    const uint64_t at = 8 + header + strtoull(offsets + 15, NULL, 10);
    memcpy(file + at, &(float){NAN}, sizeof(float));
    pi0_test_write_file(pi0_test_path(dir, "model.safetensors"), file, bytes);
    free(file);

    pi0_options options;
    pi0_options_init(&options);
    options.config = "pi0_droid";
    options.preprocessed = 1;
    pi0_model *model;
    PI0_ASSERT_OK(pi0_open(dir, &options, &model, &err), &err);
    pi0_session *session = open_session(model);
    observe(session, 9, 4, 1);
    assert_int_equal(pi0_infer(&session, 1, 3, &err), PI0_ERR_NONFINITE);
    assert_null(pi0_actions_raw(session, NULL, NULL));
    pi0_test_assert_error(&err, PI0_ERR_NONFINITE, stage, NULL);
    pi0_session_close(&session);
    pi0_close(&model);
    pi0_test_remove_dir(dir);
}

static void non_finite_stage_is_named_and_gives_no_action(void **state)
{
    (void)state;
    poisoned_weight_names_its_stage("\"action_out_proj.weight\"", "velocity.0");
    poisoned_weight_names_its_stage("embeddings.patch_embedding.weight\"", "vision.base_0_rgb");
    poisoned_weight_names_its_stage("language_model.layers.1.self_attn.v_proj.weight\"", "prefix_k.1");
}

/* ------------------------------------------------------------------ opening */

static void expect_open_error(const char *dir, const pi0_options *options, pi0_status status, const char *word)
{
    pi0_error err = {0};
    pi0_model *model = (pi0_model *)&err;
    assert_int_equal(pi0_open(dir, options, &model, &err), status);
    assert_null(model);
    pi0_test_assert_error(&err, status, word, NULL);
}

static void options_out_of_range_are_errors(void **state)
{
    (void)state;
    char dir[1024];
    snprintf(dir, sizeof dir, "%s", pi0_test_golden_dir("openpi_pi0_Q"));
    pi0_options good, o;
    pi0_options_init(&good);
    good.config = "pi0_droid";
    good.preprocessed = 1;
#define EXPECT(change, status, word) (o = good, o.change, expect_open_error(dir, &o, status, word))
    EXPECT(threads = -1, PI0_ERR_ARGUMENT, "threads");
    EXPECT(threads = 100000, PI0_ERR_ARGUMENT, "threads");
    EXPECT(device = "cuda:0", PI0_ERR_DEVICE, "cuda:0");
    EXPECT(device = "tpu", PI0_ERR_ARGUMENT, "tpu");
    EXPECT(precision = "int8:auto", PI0_ERR_ARGUMENT, "pi0 calibrate");
    EXPECT(precision = "int8:auto:auto", PI0_ERR_ARGUMENT, "int8:auto");
    EXPECT(precision = "int4", PI0_ERR_UNSUPPORTED, "int4");
    EXPECT(precision = "int88", PI0_ERR_ARGUMENT, "int88");
    EXPECT(precision = "f31", PI0_ERR_ARGUMENT, "f31");
    EXPECT(isa = "avx9000", PI0_ERR_ARGUMENT, "avx9000");
    EXPECT(disable = "gravity", PI0_ERR_ARGUMENT, "gravity");
    EXPECT(max_batch = 17, PI0_ERR_ARGUMENT, "max_batch");
    EXPECT(horizon = -3, PI0_ERR_ARGUMENT, "horizon");
    EXPECT(horizon = 1000000, PI0_ERR_ARGUMENT, "horizon");
    EXPECT(memory_limit = 1 << 20, PI0_ERR_MEMORY, "memory");
#undef EXPECT
    expect_open_error("", &good, PI0_ERR_ARGUMENT, "model");
}

static void calls_out_of_range_are_errors(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi0_case, NULL);
    pi0_session *session = open_session(model), *twice[2] = {session, session};
    pi0_error err = {0};
    observe(session, 1, 3, 1);
    assert_int_equal(pi0_infer(&session, 0, 0, &err), PI0_ERR_ARGUMENT);
    assert_int_equal(pi0_infer(&session, 1, -1, &err), PI0_ERR_ARGUMENT);
    assert_int_equal(pi0_infer(&session, 1, 100000, &err), PI0_ERR_ARGUMENT);
    assert_int_equal(pi0_infer(twice, 2, 1, &err), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    pi0_array none;
    assert_int_equal(pi0_stage(session, "velocity.77", &none, &err), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    pi0_session_close(&session);
    pi0_close(&model);
}

/* ------------------------------------------------------------------ memory */

static void no_stages(pi0_options *options)
{
    options->stages = 0;
}

static void D8_an_inference_allocates_and_rebuilds_nothing(void **state)
{
    (void)state;
    pi0_model *model = pi0_test_golden_open(&pi05_case, no_stages);
    pi0_session *session = open_session(model);
    pi0_error err = {0};
    for (int i = 0; i < 3; i++) {
        observe(session, (uint64_t)i, 5 + 9 * i, 3);
        const uint64_t before = pi0_allocation_count();
        pi0_test_fail_allocation(0);
        PI0_ASSERT_OK(pi0_infer(&session, 1, 3, &err), &err);
        assert_int_equal(pi0_test_allocation_count(), 0);
        assert_int_equal(pi0_allocation_count() - before, 0);
    }
    pi0_session_close(&session);
    pi0_close(&model);
}

int main(void)
{
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(B16_F4_F6_no_state_between_calls),
        cmocka_unit_test(G5_F7_batch_is_singles_bit_for_bit),
    };
    const struct CMUnitTest others[] = {
        cmocka_unit_test(G5_F7_batch_is_singles_in_every_precision_and_with_masks),
        cmocka_unit_test(G1_noise_is_a_stream_of_seed_and_inference),
        cmocka_unit_test(bit_passes_change_no_bit),
        cmocka_unit_test(order_passes_change_rounding_only),
        cmocka_unit_test(time_tables_follow_the_steps),
        cmocka_unit_test(C6_absent_camera_changes_nothing_but_itself),
        cmocka_unit_test(B17_one_pixel_changes_the_prefix),
        cmocka_unit_test(D9_alternating_prompts_equal_separate_ones),
        cmocka_unit_test(G4_exactly_n_steps),
        cmocka_unit_test(A8_F5_horizon_is_a_run_option),
        cmocka_unit_test(G2_G3_noise_shapes),
        cmocka_unit_test(B6_suffix_positions_follow_the_valid_prefix),
        cmocka_unit_test(B3_precision_is_what_was_asked_for),
        cmocka_unit_test(int8_is_announced_counted_and_the_same_on_any_number_of_threads),
        cmocka_unit_test(D7_token_outside_the_table),
        cmocka_unit_test(B14_no_picture_is_an_error),
        cmocka_unit_test(C9_non_finite_input_is_refused_by_name),
        cmocka_unit_test(preprocessed_inputs_in_other_units_are_refused),
        cmocka_unit_test(non_finite_stage_is_named_and_gives_no_action),
        cmocka_unit_test(options_out_of_range_are_errors),
        cmocka_unit_test(calls_out_of_range_are_errors),
        cmocka_unit_test(D8_an_inference_allocates_and_rebuilds_nothing),
    };
    int failed = cmocka_run_group_tests_name("engine, threads", threads, NULL, NULL);
    /* ThreadSanitizer makes an inference some fifty times slower, and these find nothing more for it. */
    const char *sanitizer = getenv("SANITIZE");
    if (sanitizer == NULL || strcmp(sanitizer, "thread") != 0)
        failed += cmocka_run_group_tests_name("engine", others, NULL, NULL);
    return failed;
}
