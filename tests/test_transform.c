/* State and actions against the reference set, and the rows of user-problems.md about statistics and actions. */
#include "recipe_fixture.h"

/* ------------------------------------------------------------------ the reference set */

static void the_state_of_every_golden_case(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_GOLDENS; i++) {
        golden g;
        golden_open(&g, golden_names[i]);
        double state[PI0_MAX_DIM], text[PI0_MAX_DIM];
        float padded[32];
        const float *want = golden_f32(&g, "ref/state");
        golden_state(&g, state);
        PI0_ASSERT_OK(pi0_recipe_state(g.f.recipe, state, 32, padded, text, &g.f.err), &g.f.err);
        bool lerobot = pi0_recipe_get_facts(g.f.recipe)->family == PI0_FAMILY_LEROBOT;
        for (int k = 0; k < 32; k++)
            if (lerobot ? padded[k] != want[k] : fabsf(padded[k] - want[k]) > 1e-6f)
                fail_msg("%s: state[%d] is %.9g, the reference has %.9g", g.name, k, (double)padded[k], (double)want[k]);
        golden_close(&g);
    }
}

static void the_actions_of_every_golden_case(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_GOLDENS; i++) {
        golden g;
        golden_open(&g, golden_names[i]);
        double state[PI0_MAX_DIM];
        const pi0_array *raw = golden_array(&g, "ref/actions_raw"), *want = golden_array(&g, "ref/actions");
        int rows = (int)raw->shape[0], dim = (int)want->shape[1];
        assert_int_equal(dim, pi0_recipe_get_facts(g.f.recipe)->action_dim);
        assert_int_equal(rows, pi0_recipe_get_facts(g.f.recipe)->horizon);
        golden_state(&g, state);
        double *got = calloc((size_t)rows * (size_t)dim, sizeof *got);
        PI0_ASSERT_OK(pi0_recipe_actions(g.f.recipe, raw->data, rows, 32, state, got, &g.f.err), &g.f.err);
        bool lerobot = pi0_recipe_get_facts(g.f.recipe)->family == PI0_FAMILY_LEROBOT;
        for (int k = 0; k < rows * dim; k++) {
            float ref = ((const float *)want->data)[k];
            if (lerobot ? got[k] != (double)ref : fabs(got[k] - (double)ref) > 1e-6)
                fail_msg("%s: action %d is %.9g, the reference has %.9g", g.name, k, got[k], (double)ref);
        }
        free(got);
        golden_close(&g);
    }
}

/* ------------------------------------------------------------------ a robot of one's own, set up field by field */

static void droid_open(fixture *f, bool pi05)
{
    fixture_open(f, pi0_test_data("recipe/openpi"), PI0_LAYOUT_OPENPI, pi05);
    f->options.config = pi05 ? "pi05_droid" : "pi0_droid";
}

static double one_action(const fixture *f, float y, int model_dim)
{
    float row[32] = {y};
    double out[PI0_MAX_DIM], state[PI0_MAX_DIM] = {0};
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_recipe_actions(f->recipe, row, 1, model_dim, state, out, &err), &err);
    return out[0];
}

static double one_state(const fixture *f, double x)
{
    float padded[32];
    double state[PI0_MAX_DIM] = {x}, text[PI0_MAX_DIM];
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_recipe_state(f->recipe, state, 32, padded, text, &err), &err);
    return text[0];
}

static void make_one_dim(fixture *f)
{
    fixture_set(f, "state.dim=1");
    fixture_set(f, "action.dim=1");
}

static void E1_quantiles_without_q01_name_the_key(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, true);
    fixture_set(&f, "state.q01=");
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "state.q01", "state.mean", "--norm-stats", NULL);
    fixture_close(&f);
}

static void E2_E4_the_kind_is_shown_and_selectable(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, true);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_field(&f, "norm.state", "quantiles");
    double quantile = one_state(&f, 0.5);
    fixture_set(&f, "norm.state=mean_std");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_origin(&f, "norm.state", "--set");
    assert_true(fabs(one_state(&f, 0.5) - quantile) > 1e-3);
    fixture_close(&f);
}

static void E3_a_tiny_range_gives_a_warning_and_the_families_own_number(void **unused)
{
    (void)unused;
    static const char *const arithmetic[] = {"norm.arithmetic=openpi", "norm.arithmetic=lerobot"};
    static const double want[] = {-3200.4942, -3203.8066};
    for (int k = 0; k < 2; k++) {
        fixture f;
        droid_open(&f, true);
        make_one_dim(&f);
        fixture_set(&f, "state.q01=1.568642928333805");
        fixture_set(&f, "state.q99=1.5696224851423788");
        fixture_set(&f, "action.q01=0");
        fixture_set(&f, "action.q99=1");
        fixture_set(&f, arithmetic[k]);
        fixture_set(&f, k ? "norm.epsilon=1e-8" : "norm.epsilon=1e-6");
        PI0_ASSERT_OK(fixture_load(&f), &f.err);
        assert_true(fixture_logged(&f, "! state.q01, state.q99: "));
        assert_true(fabs(one_state(&f, 0) - want[k]) < 2e-3);
        fixture_close(&f);
    }
}

static void E3_dims_that_hardly_varied_are_one_warning(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, false);
    fixture_set(&f, "state.mean=1,2,3,4,5,6,7,8");
    fixture_set(&f, "state.std=1,0,1,1,1,0,0.0001,1");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    const char *first = strstr(f.lines.data, "hardly varied");
    assert_non_null(first);
    assert_null(strstr(first + 1, "hardly varied"));
    assert_true(fixture_logged(&f, "! state.mean, state.std: ") && fixture_logged(&f, "1 (2, 0), 5 (6, 0), 6 (7, 0.0001)"));
    fixture_set(&f, "state.std=1,-1,1,1,1,1,-2,1");
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "negative", "1 (2, -1), 6 (7, -2)", "--set state.std=V", NULL);
    fixture_set(&f, "state.std=1,1,1");
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "as wide as the robot", "--set state.dim=3", NULL);
    fixture_close(&f);
}

static void E5_absent_statistics_are_an_error_with_near_misses(void **unused)
{
    (void)unused;
    char *dir = pi0_test_make_dir();
    fixture f;
    droid_open(&f, false);
    static const char stats[] = "{\"norm_stats\": {\"state\": {\"mean\": [0,0,0,0,0,0,0,0], \"std\": [1,1,1,1,1,1,1,1]}, "
                                "\"so100.buffer.action\": {\"mean\": [1]}}}";
    pi0_test_write_file(pi0_test_path(dir, "stats.json"), stats, sizeof stats - 1);
    f.options.norm_stats = pi0_test_path(dir, "stats.json");
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    assert_non_null(f.err.list);
    assert_non_null(strstr(f.err.list, "so100.buffer.action"));
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "action.mean, action.std", "--no-norm", NULL);
    f.options.no_norm = 1;
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_origin(&f, "norm.action", "--no-norm");
    assert_true(one_action(&f, 0.25f, 32) == 0.25);
    assert_true(one_state(&f, 7.5) == 7.5);
    fixture_close(&f);
    pi0_test_remove_dir(dir);
}

static void E6_each_family_has_its_epsilon(void **unused)
{
    (void)unused;
    static const char *const kind[] = {"norm.action=mean_std", "norm.action=quantiles"};
    static const double want[2][2] = {{0.300001, 0.3}, {0.500001, 0.5}}; /* [kind][family]: 0.50000001 in f32 is 0.5 */
    for (int k = 0; k < 2; k++)
        for (int family = 0; family < 2; family++) {
            fixture f;
            droid_open(&f, false);
            make_one_dim(&f);
            fixture_set(&f, kind[k]);
            fixture_set(&f, "norm.state=identity");
            fixture_set(&f, "action.mean=0.1");
            fixture_set(&f, "action.std=0.2");
            fixture_set(&f, "action.q01=0.5");
            fixture_set(&f, "action.q99=0.5");
            fixture_set(&f, family ? "norm.arithmetic=lerobot" : "norm.arithmetic=openpi");
            fixture_set(&f, family ? "norm.epsilon=1e-8" : "norm.epsilon=1e-6");
            PI0_ASSERT_OK(fixture_load(&f), &f.err);
            assert_true(fabs(one_action(&f, 1, 32) - want[k][family]) < 5e-8);
            fixture_close(&f);
        }
}

static void E7_F8_statistics_apply_to_real_dims_and_the_tail_is_cut(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, false);
    fixture_set(&f, "action.dim=7");
    fixture_set(&f, "action.mean=1,2,3,4,5,6,7");
    fixture_set(&f, "action.std=1,1,1,1,1,1,1");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    float raw[2 * 32];
    double out[2 * 7 + 1], state[8] = {0};
    for (int i = 0; i < 64; i++)
        raw[i] = (float)i;
    out[14] = 12345;
    PI0_ASSERT_OK(pi0_recipe_actions(f.recipe, raw, 2, 32, state, out, &f.err), &f.err);
    for (int r = 0; r < 2; r++)
        for (int i = 0; i < 7; i++)
            assert_true(fabs(out[r * 7 + i] - ((r * 32 + i) * (1 + 1e-6) + 1 + i)) < 1e-9);
    assert_true(out[14] == 12345); /* F9: padding never leaves */

    fixture_set(&f, "action.dim=8"); /* openpi pads mean with 0 and std with 1 */
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_true(fixture_logged(&f, "not un-normalised"));
    double wide[8];
    PI0_ASSERT_OK(pi0_recipe_actions(f.recipe, raw, 1, 32, state, wide, &f.err), &f.err);
    assert_true(fabs(wide[7] - 7 * (1 + 1e-6)) < 1e-12);

    fixture_set(&f, "state.dim=9"); /* openpi would stop here too */
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "state.mean", "9 values", NULL);
    fixture_close(&f);
}

static void E9_unhealthy_statistics(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, true);
    make_one_dim(&f);
    fixture_set(&f, "action.q01=0");
    fixture_set(&f, "action.q99=1");
    fixture_set(&f, "state.q01=2");
    fixture_set(&f, "state.q99=1");
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "wrong order", "state.q01, state.q99", "0 (2, 1)", NULL);
    fixture_close(&f);

    droid_open(&f, true); /* too wide: openpi uses the first dims */
    fixture_set(&f, "state.dim=3");
    fixture_set(&f, "action.dim=3");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_true(fixture_logged(&f, "has 8 dims, the robot 3"));
    json_t *all = pi0_recipe_describe(f.recipe);
    assert_int_equal(json_array_size(json_object_get(all, "warnings")), 4); /* of both features both statistics */
    json_decref(all);
    fixture_close(&f);
}

static void no_clipping_anywhere(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, true);
    make_one_dim(&f);
    fixture_set(&f, "state.q01=0");
    fixture_set(&f, "state.q99=1");
    fixture_set(&f, "action.q01=0");
    fixture_set(&f, "action.q99=1");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_true(fabs(one_state(&f, 5) - 9) < 1e-4);
    assert_true(fabs(one_action(&f, 5, 32) - 3) < 1e-4);
    fixture_close(&f);
}

static void min_max_and_quantile10(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, false);
    make_one_dim(&f);
    fixture_set(&f, "norm.arithmetic=lerobot");
    fixture_set(&f, "norm.state=min_max");
    fixture_set(&f, "norm.action=quantile10");
    fixture_set(&f, "state.min=2");
    fixture_set(&f, "state.max=6");
    fixture_set(&f, "action.q10=-1");
    fixture_set(&f, "action.q90=3");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_true(one_state(&f, 5) == 0.5);
    assert_true(one_action(&f, 0.5f, 32) == 2);
    fixture_close(&f);
}

/* ------------------------------------------------------------------ actions */

static void F1_delta_is_per_dim(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, false);
    f.options.no_norm = 1;
    fixture_set(&f, "state.dim=4");
    fixture_set(&f, "action.dim=4");
    fixture_set(&f, "action.delta=1,1,1,0");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    const float raw[4] = {.1f, .2f, .3f, .9f};
    const double state[4] = {1, 2, 3, 4}, want[4] = {1.1, 2.2, 3.3, 0.9};
    double out[4];
    PI0_ASSERT_OK(pi0_recipe_actions(f.recipe, raw, 1, 4, state, out, &f.err), &f.err);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(out[i] - want[i]) < 1e-5);
    assert_int_equal(pi0_recipe_actions(f.recipe, raw, 1, 4, NULL, out, &f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "relative", NULL);
    fixture_close(&f);
}

static void F2_the_whole_chunk_uses_one_state(void **unused)
{
    (void)unused;
    golden g;
    golden_open(&g, "lerobot_pi0_relative");
    double state[PI0_MAX_DIM], other[PI0_MAX_DIM], a[2 * 14], b[2 * 14];
    float same[2 * 32] = {0};
    golden_state(&g, state);
    memcpy(other, state, sizeof other);
    other[0] += 1;
    PI0_ASSERT_OK(pi0_recipe_actions(g.f.recipe, same, 2, 32, state, a, &g.f.err), &g.f.err);
    PI0_ASSERT_OK(pi0_recipe_actions(g.f.recipe, same, 2, 32, other, b, &g.f.err), &g.f.err);
    assert_memory_equal(a, a + 14, 14 * sizeof *a);
    assert_true(fabs(b[0] - a[0] - 1) < 1e-5 && fabs(b[14] - a[14] - 1) < 1e-5);
    assert_true(b[1] == a[1]);
    golden_close(&g);
}

static void F3_names_in_the_robots_order_are_reordered_or_refused(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, false);
    f.options.no_norm = 1;
    fixture_set(&f, "state.dim=3");
    fixture_set(&f, "action.dim=3");
    fixture_set(&f, "state.names=a,b,c");
    fixture_set(&f, "action.names=a,b,c");
    fixture_set(&f, "state.robot_names=c,a,b");
    fixture_set(&f, "action.robot_names=c,a,b");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    const double robot[3] = {30, 10, 20}; /* c, a, b */
    double text[3], out[3];
    float padded[32];
    PI0_ASSERT_OK(pi0_recipe_state(f.recipe, robot, 32, padded, text, &f.err), &f.err);
    assert_true(text[0] == 10 && text[1] == 20 && text[2] == 30);
    const float raw[3] = {1, 2, 3}; /* a, b, c */
    PI0_ASSERT_OK(pi0_recipe_actions(f.recipe, raw, 1, 3, robot, out, &f.err), &f.err);
    assert_true(out[0] == 3 && out[1] == 1 && out[2] == 2);
    fixture_set(&f, "action.robot_names=c,a,elbow");
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "action.robot_names", "elbow", NULL);
    fixture_close(&f);
}

static void aloha_grippers_of_lerobot_03(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, false);
    f.options.no_norm = 1;
    make_one_dim(&f);
    fixture_set(&f, "norm.arithmetic=lerobot-0.3");
    fixture_set(&f, "state.gripper.map=aloha-lerobot03");
    fixture_set(&f, "state.gripper.index=0");
    fixture_set(&f, "action.gripper.map=aloha-lerobot03");
    fixture_set(&f, "action.gripper.index=0");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    double p = 0.5 * (0.05800 - 0.01844) + 0.01844;
    double angle = asin((0.022 * 0.022 + p * p - 0.036 * 0.036) / (2 * 0.022 * p));
    assert_true(fabs(one_state(&f, 0.5) - (angle - 0.4) / 1.1) < 1e-5);
    assert_true(fabs(one_action(&f, 0.5f, 32) - (0.5 * 1.1 + 0.4 + 0.6213) / (1.4910 + 0.6213)) < 1e-6);
    fixture_close(&f);
}

static void nonfinite_values_are_named(void **unused)
{
    (void)unused;
    fixture f;
    droid_open(&f, false);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    double state[8] = {0}, out[8], text[8];
    float padded[32], raw[32] = {0};
    state[3] = (double)NAN;
    assert_int_equal(pi0_recipe_state(f.recipe, state, 32, padded, text, &f.err), PI0_ERR_NONFINITE);
    pi0_test_assert_error(&f.err, PI0_ERR_NONFINITE, "state", "[3]", NULL);
    state[3] = 1e300; /* finite, until it is an f32 */
    assert_int_equal(pi0_recipe_state(f.recipe, state, 32, padded, text, &f.err), PI0_ERR_NONFINITE);
    pi0_error_clear(&f.err);
    raw[2] = INFINITY;
    assert_int_equal(pi0_recipe_actions(f.recipe, raw, 1, 32, state, out, &f.err), PI0_ERR_NONFINITE);
    pi0_test_assert_error(&f.err, PI0_ERR_NONFINITE, "actions, row 0", "[2]", NULL);
    assert_int_equal(pi0_recipe_actions(f.recipe, raw, 1, 7, state, out, &f.err), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "action.dim", NULL);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_state_of_every_golden_case),
        cmocka_unit_test(the_actions_of_every_golden_case),
        cmocka_unit_test(E1_quantiles_without_q01_name_the_key),
        cmocka_unit_test(E2_E4_the_kind_is_shown_and_selectable),
        cmocka_unit_test(E3_a_tiny_range_gives_a_warning_and_the_families_own_number),
        cmocka_unit_test(E3_dims_that_hardly_varied_are_one_warning),
        cmocka_unit_test(E5_absent_statistics_are_an_error_with_near_misses),
        cmocka_unit_test(E6_each_family_has_its_epsilon),
        cmocka_unit_test(E7_F8_statistics_apply_to_real_dims_and_the_tail_is_cut),
        cmocka_unit_test(E9_unhealthy_statistics),
        cmocka_unit_test(no_clipping_anywhere),
        cmocka_unit_test(min_max_and_quantile10),
        cmocka_unit_test(F1_delta_is_per_dim),
        cmocka_unit_test(F2_the_whole_chunk_uses_one_state),
        cmocka_unit_test(F3_names_in_the_robots_order_are_reordered_or_refused),
        cmocka_unit_test(aloha_grippers_of_lerobot_03),
        cmocka_unit_test(nonfinite_values_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
