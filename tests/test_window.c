/* The pass local-window: which actions see which, that a window as long as the chunk is none, and that nothing else depends on it.
 * ctest: timeout=600 */
#include <math.h>
#include <stdbool.h>

#include "engine_fixture.h"

enum { LONG = 300 };

static int horizon, window, threads, lanes;
static const char *disable;

static void with_window(pi0_options *options)
{
    options->horizon = horizon;
    options->window = window;
    options->threads = threads;
    options->max_batch = lanes;
    options->disable = disable;
    options->stages = 0;
}

static void choose(int new_horizon, int new_window)
{
    horizon = new_horizon, window = new_window;
    threads = 2, lanes = 1;
    disable = NULL;
}

/* [horizon, A], freed by the caller. changed >= 0: that action's noise is another. */
static float *infer(const pi0_golden_case *c, int steps, int changed)
{
    pi0_error err = {0};
    pi0_model *model = pi0_test_golden_open(c, with_window);
    pi0_session *session = open_session(model);
    observe(session, 3, 9, 3);
    if (changed >= 0)
        for (int i = 0; i < A; i++)
            session->noise[changed * A + i] += 0.5f;
    PI0_ASSERT_OK(pi0_infer(&session, 1, steps, &err), &err);
    float *out = malloc((size_t)horizon * A * sizeof *out);
    assert_non_null(out);
    memcpy(out, pi0_actions_raw(session, NULL, NULL), (size_t)horizon * A * sizeof *out);
    pi0_session_close(&session);
    pi0_close(&model);
    return out;
}

static double furthest(const float *a, const float *b)
{
    double most = 0;
    for (int i = 0; i < horizon * A; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

#define EACH_MODEL(c) for (const pi0_golden_case *c = &pi0_case; c; c = c == &pi0_case ? &pi05_case : NULL)

static void a_window_of_the_whole_chunk_is_none(void **state)
{
    (void)state;
    static const int none[] = {10, 11, 4096};
    EACH_MODEL(c)
    {
        choose(10, 0);
        float *dense = infer(c, 3, -1);
        for (int i = 0; i < 4; i++) {
            choose(10, i < 3 ? none[i] : 2);
            disable = i < 3 ? NULL : "local-window"; /* nor is one that is switched off */
            float *got = infer(c, 3, -1);
            assert_memory_equal(dense, got, sizeof(float) * 10 * A);
            free(got);
        }
        choose(10, 2);
        float *near = infer(c, 3, -1);
        assert_true(furthest(dense, near) > 1e-4);
        free(near);
        free(dense);
    }
}

/* One step of a model of D layers: noise reaches D * (window - 1) actions far, and not one further. */
static void an_action_sees_the_actions_near_it_only(void **state)
{
    (void)state;
    EACH_MODEL(c)
    for (int w = 1; w <= 3; w++) {
        choose(60, w);
        pi0_model *model = pi0_test_golden_open(c, with_window);
        assert_int_equal(pi0_model_info(model)->window, w);
        const int reach = model->arch.expert.depth * (w - 1), at = 30;
        pi0_close(&model);
        assert_true(reach < at);
        float *a = infer(c, 1, -1), *b = infer(c, 1, at);
        for (int row = 0; row < horizon; row++) {
            const bool same = memcmp(a + row * A, b + row * A, A * sizeof *a) == 0;
            if (abs(row - at) > reach)
                assert_true(same);
            if (abs(row - at) < w) /* seen directly: no rounding hides it */
                assert_false(same);
        }
        free(a);
        free(b);
    }
}

static void every_form_of_attention_has_the_same_window(void **state)
{
    (void)state;
    static const char *const ways[] = {"flash-attention", "state-kv", "drop-masked", "state-kv,flash-attention,drop-masked,arena,replay"};
    EACH_MODEL(c)
    {
        choose(LONG, 17);
        float *want = infer(c, 2, -1);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            disable = ways[i];
            float *got = infer(c, 2, -1);
            const double distance = furthest(want, got);
            if (!(distance < 2e-5))
                fail_msg("without %s the actions move by %g", ways[i], distance);
            free(got);
        }
        free(want);
    }
}

static void same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    EACH_MODEL(c)
    {
        choose(LONG, 40);
        float *want = infer(c, 2, -1);
        static const int counts[] = {1, 3, 7};
        for (int i = 0; i < 3; i++) {
            threads = counts[i];
            float *got = infer(c, 2, -1);
            assert_memory_equal(want, got, sizeof(float) * LONG * A);
            free(got);
        }
        free(want);
    }
}

static void a_batch_with_a_window_is_its_singles(void **state)
{
    (void)state;
    EACH_MODEL(c)
    {
        float *single[3];
        pi0_error err = {0};
        for (int batched = 0; batched < 2; batched++) {
            choose(LONG, 40);
            lanes = batched ? 3 : 1;
            pi0_model *model = pi0_test_golden_open(c, with_window);
            pi0_session *sessions[3];
            for (int i = 0; i < 3; i++) {
                sessions[i] = open_session(model);
                observe(sessions[i], (uint64_t)i, 5 + 8 * i, 1 + 2 * i);
            }
            PI0_ASSERT_OK(pi0_infer(sessions, 3, 2, &err), &err);
            for (int i = 0; i < 3; i++) {
                const float *got = pi0_actions_raw(sessions[i], NULL, NULL);
                if (batched) {
                    assert_memory_equal(single[i], got, sizeof(float) * LONG * A);
                    free(single[i]);
                } else {
                    single[i] = malloc(sizeof(float) * LONG * A);
                    assert_non_null(single[i]);
                    memcpy(single[i], got, sizeof(float) * LONG * A);
                }
                pi0_session_close(&sessions[i]);
            }
            pi0_close(&model);
        }
    }
}

static void windows_out_of_range_are_errors(void **state)
{
    (void)state;
    static const int bad[] = {-1, 4097};
    for (int i = 0; i < 2; i++) {
        pi0_error err = {0};
        pi0_options options;
        pi0_model *model = NULL;
        pi0_options_init(&options);
        options.config = "pi0_droid";
        options.preprocessed = 1;
        options.window = bad[i];
        assert_int_equal(pi0_open(pi0_test_golden_dir("openpi_pi0_Q"), &options, &model, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "window", "4096", NULL);
        assert_null(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_of_the_whole_chunk_is_none),         cmocka_unit_test(an_action_sees_the_actions_near_it_only),
        cmocka_unit_test(every_form_of_attention_has_the_same_window), cmocka_unit_test(same_bits_on_any_number_of_threads),
        cmocka_unit_test(a_batch_with_a_window_is_its_singles),        cmocka_unit_test(windows_out_of_range_are_errors),
    };
    return cmocka_run_group_tests_name("window", tests, NULL, NULL);
}
