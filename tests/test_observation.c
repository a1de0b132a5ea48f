/* Raw observations through the public API, on synthetic checkpoints that carry their own tokenizer.
 * ctest: timeout=300 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "support.h"

static char *dir;
static pi0_model *model; /* pi05, LeRobot layout: 2 cameras, 7 state values, 6 action values, 8 rows */
enum { STATE = 7, ACTION = 6, HORIZON = 8 };
static const double resting[STATE] = {0.1, -0.2, 0.3, 0, 0.05, -0.4, 1};

static int open_model(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_synth_options synth;
    pi0_options options;
    dir = pi0_test_make_dir();
    pi0_synth_options_init(&synth);
    synth.model = "pi05";
    synth.layout = "lerobot";
    synth.size = "tiny";
    synth.cameras = 2;
    synth.state_dim = STATE;
    synth.action_dim = ACTION;
    synth.horizon = HORIZON;
    PI0_ASSERT_OK(pi0_synth(pi0_test_path(dir, "robot"), &synth, &err), &err);
    pi0_options_init(&options);
    options.stages = 1;
    options.threads = 2;
    PI0_ASSERT_OK(pi0_open(pi0_test_path(dir, "robot"), &options, &model, &err), &err);
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    pi0_close(&model);
    pi0_test_remove_dir(dir);
    return 0;
}

static pi0_session *new_session(void)
{
    pi0_error err = {0};
    pi0_session *session;
    PI0_ASSERT_OK(pi0_session_open(model, 5, &session, &err), &err);
    return session;
}

static void set_picture(pi0_session *session, const char *name, uint8_t shade)
{
    static uint8_t pixels[20 * 30 * 3];
    pi0_error err = {0};
    memset(pixels, shade, sizeof pixels);
    const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {20, 30, 3}, .data = pixels, .bytes = sizeof pixels};
    PI0_ASSERT_OK(pi0_set_image(session, name, &picture, &err), &err);
}

static pi0_session *observed(void)
{
    pi0_error err = {0};
    pi0_session *session = new_session();
    set_picture(session, pi0_model_info(model)->slots[0], 90);
    PI0_ASSERT_OK(pi0_set_state(session, resting, STATE, &err), &err);
    PI0_ASSERT_OK(pi0_set_prompt(session, "fold the towel", &err), &err);
    return session;
}

static void copy_actions(const pi0_session *session, double out[HORIZON * ACTION])
{
    int rows, cols;
    const double *actions = pi0_actions(session, &rows, &cols);
    assert_non_null(actions);
    assert_int_equal(rows, HORIZON);
    assert_int_equal(cols, ACTION);
    memcpy(out, actions, HORIZON * ACTION * sizeof *out);
}

static void run(pi0_session *session, double out[HORIZON * ACTION])
{
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_infer(&session, 1, 2, &err), &err);
    copy_actions(session, out);
}

/* ------------------------------------------------------------------ one prompt, many spellings */

static void D5_D10_one_prompt_however_it_is_packed(void **state)
{
    (void)state;
    static const char text[] = "fold the towel";
    double reference[HORIZON * ACTION], got[HORIZON * ACTION];
    pi0_session *session = observed();
    run(session, reference);
    pi0_session_close(&session);

    static uint8_t pixels[20 * 30 * 3];
    memset(pixels, 90, sizeof pixels);
    const struct {
        pi0_dtype dtype;
        int rank;
        int64_t shape;
    } forms[] = {{PI0_TEXT, 0, 0}, {PI0_TEXT, 1, 1}, {PI0_U8, 1, sizeof text - 1}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        pi0_error err = {0};
        pi0_arrays *set = NULL;
        char file[1100];
        const pi0_array list[] = {
            {.name = pi0_model_info(model)->keys[0],
             .dtype = PI0_U8,
             .rank = 3,
             .shape = {20, 30, 3},
             .data = pixels,
             .bytes = sizeof pixels},
            {.name = "state", .dtype = PI0_F64, .rank = 1, .shape = {STATE}, .data = resting, .bytes = sizeof resting},
            {.name = "prompt",
             .dtype = forms[i].dtype,
             .rank = forms[i].dtype == PI0_TEXT ? 0 : forms[i].rank,
             .shape = {forms[i].shape},
             .data = text,
             .bytes = sizeof text - 1},
            {.name = "ref/ignored", .dtype = PI0_F64, .rank = 1, .shape = {STATE}, .data = resting, .bytes = sizeof resting},
        };
        snprintf(file, sizeof file, "%s", pi0_test_path(dir, "observation.npz"));
        PI0_ASSERT_OK(pi0_arrays_write(file, list, 4, &err), &err);
        PI0_ASSERT_OK(pi0_observation_read(file, &set, &err), &err);
        assert_int_equal(pi0_arrays_count(set), 3);
        pi0_arrays_free(&set);
        PI0_ASSERT_OK(pi0_arrays_read(file, &set, &err), &err);
        session = new_session();
        PI0_ASSERT_OK(pi0_set_observation(session, set, 0, &err), &err);
        run(session, got);
        assert_memory_equal(got, reference, sizeof got);
        pi0_session_close(&session);
        pi0_arrays_free(&set);
    }
}

/* ------------------------------------------------------------------ what comes back */

static void F8_actions_are_cut_to_the_robots_width(void **state)
{
    (void)state;
    double actions[HORIZON * ACTION];
    int rows, cols;
    pi0_session *session = observed();
    run(session, actions);
    assert_non_null(pi0_actions_raw(session, &rows, &cols));
    assert_int_equal(cols, 32);
    for (int i = 0; i < HORIZON * ACTION; i++)
        assert_true(isfinite(actions[i]));
    pi0_session_close(&session);
}

static void F2_the_observation_stays_and_noise_moves_on(void **state)
{
    (void)state;
    double first[HORIZON * ACTION], second[HORIZON * ACTION], again[HORIZON * ACTION];
    pi0_session *session = observed(), *other = observed();
    run(session, first);
    run(session, second);
    assert_memory_not_equal(first, second, sizeof first);
    run(other, again);
    assert_memory_equal(first, again, sizeof first);
    run(other, again);
    assert_memory_equal(second, again, sizeof first);
    pi0_session_close(&session);
    pi0_session_close(&other);
}

/* ------------------------------------------------------------------ refusals */

static void C7_unknown_names_list_what_is_known(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_session *session = observed();
    static const uint8_t pixels[12];
    const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {2, 2, 3}, .data = pixels, .bytes = sizeof pixels};
    assert_int_equal(pi0_set_image(session, "no_such_camera", &picture, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "no_such_camera", pi0_model_info(model)->slots[0], pi0_model_info(model)->slots[1], NULL);

    pi0_arrays *set = NULL;
    const pi0_array list[] = {{.name = "velocity_of_light", .dtype = PI0_F64, .rank = 1, .shape = {1}, .data = resting, .bytes = 8}};
    char file[1100];
    snprintf(file, sizeof file, "%s", pi0_test_path(dir, "odd.npz"));
    PI0_ASSERT_OK(pi0_arrays_write(file, list, 1, &err), &err);
    PI0_ASSERT_OK(pi0_arrays_read(file, &set, &err), &err);
    assert_int_equal(pi0_set_observation(session, set, 0, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "velocity_of_light", "prompt", "noise", NULL);
    pi0_arrays_free(&set);
    pi0_session_close(&session);
}

/* Else the order of arrays in a file would matter. */
static void one_camera_under_two_names_is_refused(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_arrays *set = NULL;
    static const uint8_t pixels[12];
    const pi0_array list[] = {
        {.name = pi0_model_info(model)->keys[0], .dtype = PI0_U8, .rank = 3, .shape = {2, 2, 3}, .data = pixels, .bytes = sizeof pixels},
        {.name = pi0_model_info(model)->slots[0], .dtype = PI0_U8, .rank = 3, .shape = {2, 2, 3}, .data = pixels, .bytes = sizeof pixels},
    };
    char file[1100];
    snprintf(file, sizeof file, "%s", pi0_test_path(dir, "twice.npz"));
    PI0_ASSERT_OK(pi0_arrays_write(file, list, 2, &err), &err);
    PI0_ASSERT_OK(pi0_arrays_read(file, &set, &err), &err);
    pi0_session *session = new_session();
    assert_int_equal(pi0_set_observation(session, set, 0, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "under two names", pi0_model_info(model)->slots[0], NULL);
    pi0_session_close(&session);
    pi0_arrays_free(&set);
}

/* Whole numbers are no draw from N(0,1): a mistaken file. */
static void G2_noise_is_floats_of_any_width(void **state)
{
    (void)state;
    pi0_error err = {0};
    static float narrow[HORIZON * 32];
    static double wide[HORIZON * 32];
    static const int32_t whole[HORIZON * 32];
    double reference[HORIZON * ACTION], got[HORIZON * ACTION];
    for (int i = 0; i < HORIZON * 32; i++)
        wide[i] = (double)(narrow[i] = (float)(i % 7) * 0.25f - 0.75f);
    const struct {
        pi0_dtype dtype;
        const void *data;
        size_t bytes;
    } forms[] = {{PI0_F32, narrow, sizeof narrow}, {PI0_F64, wide, sizeof wide}, {PI0_I32, whole, sizeof whole}};
    for (size_t i = 0; i < 3; i++) {
        pi0_arrays *set = NULL;
        const pi0_array noise = {
            .name = "noise", .dtype = forms[i].dtype, .rank = 3, .shape = {1, HORIZON, 32}, .data = forms[i].data, .bytes = forms[i].bytes};
        char file[1100];
        snprintf(file, sizeof file, "%s", pi0_test_path(dir, "noise.npz"));
        PI0_ASSERT_OK(pi0_arrays_write(file, &noise, 1, &err), &err);
        PI0_ASSERT_OK(pi0_observation_read(file, &set, &err), &err);
        pi0_session *session = new_session();
        const pi0_status status = pi0_set_observation(session, set, 0, &err);
        if (forms[i].dtype == PI0_I32) {
            pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "f32 (or f64, f16)", "i32", NULL);
        } else {
            PI0_ASSERT_OK(status, &err);
            set_picture(session, pi0_model_info(model)->slots[0], 90);
            PI0_ASSERT_OK(pi0_set_state(session, resting, STATE, &err), &err);
            PI0_ASSERT_OK(pi0_set_prompt(session, "fold the towel", &err), &err);
            run(session, i ? got : reference);
        }
        pi0_session_close(&session);
        pi0_arrays_free(&set);
    }
    assert_memory_equal(got, reference, sizeof got);
}

/* One opening serves any number of prompts. */
static void tokens_may_stand_for_the_prompt(void **state)
{
    (void)state;
    pi0_error err = {0};
    int64_t *ids = NULL;
    size_t count = 0;
    char *framed = NULL;
    double told[HORIZON * ACTION], given[HORIZON * ACTION];
    pi0_prompter *prompter = NULL;
    PI0_ASSERT_OK(pi0_prompter_open(pi0_test_path(dir, "robot"), NULL, &prompter, &err), &err);
    PI0_ASSERT_OK(pi0_prompter_tokens(prompter, "fold the towel", resting, STATE, &ids, &count, &framed, &err), &err);
    pi0_session *session = observed();
    PI0_ASSERT_OK(pi0_infer(&session, 1, 0, &err), &err);
    copy_actions(session, told);
    pi0_session_close(&session);

    session = observed();
    PI0_ASSERT_OK(pi0_set_prompt(session, "something else", &err), &err);
    PI0_ASSERT_OK(pi0_set_tokens(session, ids, count, &err), &err);
    PI0_ASSERT_OK(pi0_infer(&session, 1, 0, &err), &err);
    copy_actions(session, given);
    assert_int_equal(pi0_token_count(session), count);
    assert_memory_equal(told, given, sizeof told);

    /* whichever was set last counts */
    pi0_session_reset(session, 5);
    set_picture(session, pi0_model_info(model)->slots[0], 90);
    PI0_ASSERT_OK(pi0_set_state(session, resting, STATE, &err), &err);
    PI0_ASSERT_OK(pi0_set_tokens(session, ids, 1, &err), &err);
    PI0_ASSERT_OK(pi0_set_prompt(session, "fold the towel", &err), &err);
    PI0_ASSERT_OK(pi0_infer(&session, 1, 0, &err), &err);
    copy_actions(session, given);
    assert_memory_equal(told, given, sizeof told);

    assert_int_equal(pi0_set_tokens(session, ids, 0, &err), PI0_ERR_ARGUMENT);
    assert_int_equal(pi0_set_tokens(session, ids, (size_t)pi0_model_info(model)->max_tokens + 1, &err), PI0_ERR_ARGUMENT);
    ids[0] = 1 << 30;
    PI0_ASSERT_OK(pi0_set_tokens(session, ids, count, &err), &err);
    assert_int_equal(pi0_infer(&session, 1, 0, &err), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    pi0_session_close(&session);
    pi0_ids_free(&ids);
    pi0_text_free(&framed);
    pi0_prompter_close(&prompter);
}

static void one_prompter_takes_many_prompts(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_prompter *prompter = NULL;
    PI0_ASSERT_OK(pi0_prompter_open(pi0_test_path(dir, "robot"), NULL, &prompter, &err), &err);
    static const char *const prompts[] = {"fold the towel", "pour"};
    for (size_t i = 0; i < 4; i++) {
        int64_t *ids = NULL;
        size_t count = 0;
        char *framed = NULL;
        PI0_ASSERT_OK(pi0_prompter_tokens(prompter, prompts[i % 2], resting, STATE, &ids, &count, &framed, &err), &err);
        assert_true(count > 0);
        assert_non_null(strstr(framed, prompts[i % 2]));
        assert_null(strstr(framed, prompts[(i + 1) % 2]));
        pi0_ids_free(&ids);
        pi0_text_free(&framed);
        assert_int_equal(pi0_prompter_tokens(prompter, "pour", NULL, 0, &ids, &count, &framed, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "holds the state", "with 7 values", NULL);
        assert_int_equal(pi0_prompter_tokens(prompter, "pour", resting, 2, &ids, &count, &framed, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "wrong number", "7", NULL);
    }
    pi0_prompter_close(&prompter);
    assert_null(prompter);
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_session *session = new_session();
    assert_int_equal(pi0_infer(&session, 1, 1, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "picture", NULL);
    set_picture(session, pi0_model_info(model)->slots[1], 3);
    assert_int_equal(pi0_infer(&session, 1, 1, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "state", NULL);
    PI0_ASSERT_OK(pi0_set_state(session, resting, STATE, &err), &err);
    assert_int_equal(pi0_infer(&session, 1, 1, &err), PI0_ERR_ARGUMENT); /* LeRobot has no default prompt */
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "prompt", NULL);
    PI0_ASSERT_OK(pi0_set_prompt(session, "go", &err), &err);
    PI0_ASSERT_OK(pi0_infer(&session, 1, 1, &err), &err);
    assert_int_equal(pi0_set_state(session, resting, STATE - 1, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "7 values", "6 values", NULL);
    double broken[STATE] = {[2] = NAN};
    assert_int_equal(pi0_set_state(session, broken, STATE, &err), PI0_ERR_NONFINITE);
    pi0_test_assert_error(&err, PI0_ERR_NONFINITE, "state[2]", NULL);
    assert_int_equal(pi0_infer(&session, 1, 1, &err), PI0_ERR_ARGUMENT); /* a refused state is no state */
    pi0_error_clear(&err);
    pi0_session_close(&session);
}

/* The order in which an observation is set, and of the arrays in a file, cannot matter. */
static void order_of_setting_does_not_matter(void **state)
{
    (void)state;
    pi0_error err = {0};
    double a[HORIZON * ACTION], b[HORIZON * ACTION];
    pi0_session *one = new_session(), *two = new_session();
    set_picture(one, pi0_model_info(model)->slots[0], 10);
    set_picture(one, pi0_model_info(model)->slots[1], 200);
    PI0_ASSERT_OK(pi0_set_state(one, resting, STATE, &err), &err);
    PI0_ASSERT_OK(pi0_set_prompt(one, "pour", &err), &err);
    PI0_ASSERT_OK(pi0_set_prompt(two, "pour", &err), &err);
    PI0_ASSERT_OK(pi0_set_state(two, resting, STATE, &err), &err);
    set_picture(two, pi0_model_info(model)->slots[1], 200);
    set_picture(two, pi0_model_info(model)->slots[0], 10);
    run(one, a);
    run(two, b);
    assert_memory_equal(a, b, sizeof a);
    pi0_session_close(&one);
    pi0_session_close(&two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(D5_D10_one_prompt_however_it_is_packed),
        cmocka_unit_test(F8_actions_are_cut_to_the_robots_width),
        cmocka_unit_test(F2_the_observation_stays_and_noise_moves_on),
        cmocka_unit_test(C7_unknown_names_list_what_is_known),
        cmocka_unit_test(one_camera_under_two_names_is_refused),
        cmocka_unit_test(G2_noise_is_floats_of_any_width),
        cmocka_unit_test(tokens_may_stand_for_the_prompt),
        cmocka_unit_test(one_prompter_takes_many_prompts),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(order_of_setting_does_not_matter),
    };
    return cmocka_run_group_tests_name("observation", tests, open_model, close_model);
}
