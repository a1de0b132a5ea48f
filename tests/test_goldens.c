/* Every stage of every recorded case against the reference implementations (openpi, LeRobot).
 * ctest: timeout=900 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden_cases.h"
#include "io/io.h"
#include "kernels/kernels.h"
#include "support.h"

/* The gates of docs/numerics.md. */
static const double f32_gate = 1e-4, picture_gate = 1e-5, bf16_cosine = 0.9995, int8_mean_cosine = 0.9995, int8_worst_cosine = 0.998;

/* The instruction set under test; under a sanitizer only the best. */
static const char *isa;

static bool next_isa(size_t *at)
{
    pi0_isa_report report[16];
    const size_t known = pi0_kernels_report(report, 16);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    isa = NULL;
    return (*at)++ == 0;
#endif
    while (*at < known && !report[*at].usable)
        (*at)++;
    isa = *at < known ? report[*at].name : NULL;
    return (*at)++ < known;
}

/* The wide checkpoints run on the best instruction set only; where a sanitizer would take minutes for them, only the first one does. */
static bool too_slow_here(const pi0_golden_case *c)
{
    pi0_kernels best;
    if (strstr(c->checkpoint, "_P") == NULL)
        return false;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return strcmp(c->checkpoint, "openpi_pi0_P") != 0;
#endif
    return isa != NULL && pi0_kernels_select(NULL, &best, NULL) == PI0_OK && strcmp(isa, best.isa) != 0;
}

static void use_isa(pi0_options *options)
{
    options->isa = isa;
}

static void check_stage(const pi0_golden_case *c, const pi0_session *session, const pi0_array *reference)
{
    const char *stage = reference->name + 4;
    pi0_array ours;
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_stage(session, stage, &ours, &err), &err);
    const double error = pi0_test_stage_error(&ours, reference);
    const double gate = !strcmp(stage, "tokens") ? 0 : !strncmp(stage, "image.", 6) ? picture_gate : f32_gate;
    if (!(error <= gate))
        fail_msg("%s, %s: %s is %.3g from the reference, gate %.3g", c->name, isa, stage, error, gate);
}

static void check_all_stages(const pi0_golden_case *c, const pi0_session *session, const pi0_arrays *arrays, bool robot_units)
{
    int stages = 0;
    for (size_t i = 0; i < pi0_arrays_count(arrays); i++) {
        const pi0_array *reference = pi0_arrays_at(arrays, i);
        if (strncmp(reference->name, "ref/", 4) != 0 || !strcmp(reference->name, "ref/bf16_actions_raw"))
            continue;
        if (!strcmp(reference->name, "ref/actions") && !robot_units)
            continue;
        check_stage(c, session, reference);
        stages++;
    }
    assert_true(stages >= 16);
}

static void B1_network_agrees_in_f32(void **state)
{
    (void)state;
    for (size_t i = 0; next_isa(&i);)
        for (const pi0_golden_case *c = pi0_golden_cases; c->name; c++) {
            if (too_slow_here(c))
                continue;
            pi0_error err = {0};
            pi0_session *session;
            pi0_arrays *arrays = pi0_test_golden_arrays(c->name);
            pi0_model *model = pi0_test_golden_open(c, use_isa);
            PI0_ASSERT_OK(pi0_session_open(model, 0, &session, &err), &err);
            pi0_test_golden_inputs(session, arrays);
            PI0_ASSERT_OK(pi0_infer(&session, 1, c->steps, &err), &err);
            check_all_stages(c, session, arrays, false);
            pi0_session_close(&session);
            pi0_close(&model);
            pi0_arrays_free(&arrays);
        }
}

static void use_bf16(pi0_options *options)
{
    options->precision = "bf16";
    options->isa = isa;
}

/* bf16 is no further from the f32 reference than the reference's own bf16 run: on average over the cases, and at most twice on any one. */
static void B5_network_agrees_in_bf16(void **state)
{
    (void)state;
    for (size_t i = 0; next_isa(&i);) {
        double ours_sum = 0, reference_sum = 0;
        for (const pi0_golden_case *c = pi0_golden_cases; c->name; c++) {
            if (too_slow_here(c))
                continue;
            pi0_error err = {0};
            pi0_session *session;
            pi0_array ours;
            pi0_arrays *arrays = pi0_test_golden_arrays(c->name);
            const pi0_array *f32 = pi0_arrays_find(arrays, "ref/actions_raw"), *bf16 = pi0_arrays_find(arrays, "ref/bf16_actions_raw");
            pi0_model *model = pi0_test_golden_open(c, use_bf16);
            PI0_ASSERT_OK(pi0_session_open(model, 0, &session, &err), &err);
            pi0_test_golden_inputs(session, arrays);
            PI0_ASSERT_OK(pi0_infer(&session, 1, c->steps, &err), &err);
            PI0_ASSERT_OK(pi0_stage(session, "actions_raw", &ours, &err), &err);
            const double error = pi0_test_stage_error(&ours, f32), drift = pi0_test_stage_error(bf16, f32);
            const double cosine = pi0_test_stage_cosine(&ours, f32);
            print_message("%-28s %s bf16: ours %.4f, the reference's own %.4f, cosine %.6f\n", c->name, isa, error, drift, cosine);
            if (!(error <= 2 * drift) || !(cosine >= bf16_cosine))
                fail_msg("%s: bf16 is %.4f from the f32 reference (cosine %.6f), the reference's own bf16 %.4f", c->name, error, cosine,
                         drift);
            ours_sum += error;
            reference_sum += drift;
            pi0_session_close(&session);
            pi0_close(&model);
            pi0_arrays_free(&arrays);
        }
        assert_true(ours_sum <= reference_sum);
    }
}

static void use_int8(pi0_options *options)
{
    options->precision = "int8";
    options->isa = isa;
}

/* The largest third difference along the rows of a chunk: what a robot feels as a jolt. */
static double jerk_of(const pi0_array *chunk)
{
    const size_t count = pi0_array_count(chunk), width = (size_t)chunk->shape[chunk->rank - 1];
    double *a = calloc(count, sizeof *a), most = 0;
    pi0_error err = {0};
    assert_non_null(a);
    PI0_ASSERT_OK(pi0_array_to_f64(chunk, a, count, &err), &err);
    for (size_t i = 3 * width; i < count; i++)
        most = fmax(most, fabs(a[i] - 3 * a[i - width] + 3 * a[i - 2 * width] - a[i - 3 * width]));
    free(a);
    return most;
}

static void network_agrees_in_int8(void **state)
{
    (void)state;
    for (size_t i = 0; next_isa(&i);) {
        double sum = 0, worst = 1;
        int cases = 0;
        for (const pi0_golden_case *c = pi0_golden_cases; c->name; c++) {
            if (too_slow_here(c))
                continue;
            pi0_error err = {0};
            pi0_session *session;
            pi0_array ours;
            pi0_arrays *arrays = pi0_test_golden_arrays(c->name);
            const pi0_array *f32 = pi0_arrays_find(arrays, "ref/actions_raw");
            pi0_model *model = pi0_test_golden_open(c, use_int8);
            PI0_ASSERT_OK(pi0_session_open(model, 0, &session, &err), &err);
            pi0_test_golden_inputs(session, arrays);
            PI0_ASSERT_OK(pi0_infer(&session, 1, c->steps, &err), &err);
            PI0_ASSERT_OK(pi0_stage(session, "actions_raw", &ours, &err), &err);
            const double cosine = pi0_test_stage_cosine(&ours, f32);
            print_message("%-28s %s %s: cosine %.6f, largest difference %.4f, jerk %.4f, the reference's %.4f\n", c->name, isa,
                          pi0_model_info(model)->precision, cosine, pi0_test_stage_error(&ours, f32), jerk_of(&ours), jerk_of(f32));
            sum += cosine;
            worst = cosine < worst || isnan(cosine) ? cosine : worst;
            cases++;
            pi0_session_close(&session);
            pi0_close(&model);
            pi0_arrays_free(&arrays);
        }
        print_message("%s int8: cosine %.6f on average, %.6f at worst\n", isa, sum / cases, worst);
        assert_true(sum / cases >= int8_mean_cosine);
        assert_true(worst >= int8_worst_cosine);
    }
}

static char tokenizer[1024];

static void take_raw(pi0_options *options)
{
    options->preprocessed = 0;
    options->tokenizer = tokenizer;
}

/* B1, B7: from the raw observation, as users compare. Needs Gemma's own tokenizer, which no clone carries. */
static void B7_whole_path_agrees_from_raw_observation(void **state)
{
    (void)state;
    snprintf(tokenizer, sizeof tokenizer, "%s", pi0_test_need_shared("tokenizer/gemma/tokenizer.json"));
    for (const pi0_golden_case *c = pi0_golden_cases; c->name; c++) {
        pi0_error err = {0};
        pi0_session *session;
        if (too_slow_here(c))
            continue;
        pi0_arrays *arrays = pi0_test_golden_arrays(c->name);
        pi0_model *model = pi0_test_golden_open(c, take_raw);
        PI0_ASSERT_OK(pi0_session_open(model, 0, &session, &err), &err);
        PI0_ASSERT_OK(pi0_set_observation(session, arrays, 0, &err), &err);
        PI0_ASSERT_OK(pi0_infer(&session, 1, c->steps, &err), &err);
        check_all_stages(c, session, arrays, true);
        pi0_session_close(&session);
        pi0_close(&model);
        pi0_arrays_free(&arrays);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B1_network_agrees_in_f32),
        cmocka_unit_test(B5_network_agrees_in_bf16),
        cmocka_unit_test(network_agrees_in_int8),
        cmocka_unit_test(B7_whole_path_agrees_from_raw_observation),
    };
    return cmocka_run_group_tests_name("goldens", tests, NULL, NULL);
}
