/* pi0_open_async: the same model as pi0_open gives, watched, stopped at every point, and with every error it can have.
 * ctest: label=threads timeout=300 */
#include <stdatomic.h>
#include <time.h>

#include "live_fixture.h"

static pi0_opening *start_opening(const char *path, const pi0_options *options)
{
    pi0_error err = {0};
    pi0_opening *opening = NULL;
    PI0_ASSERT_OK(pi0_open_async(path, options, &opening, &err), &err);
    assert_non_null(opening);
    return opening;
}

static void wait_until_finished(pi0_opening *opening)
{
    while (!pi0_opening_poll(opening).finished)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static float first_action(pi0_model *model)
{
    pi0_error err = {0};
    pi0_session *session = NULL;
    PI0_ASSERT_OK(pi0_session_open(model, 5, &session, &err), &err);
    PI0_ASSERT_OK(see(session, pi0_model_info(model), 1, &err), &err);
    PI0_ASSERT_OK(pi0_infer(&session, 1, 2, &err), &err);
    const float action = pi0_actions_raw(session, NULL, NULL)[0];
    pi0_session_close(&session);
    return action;
}

static void a_model_opened_beside_other_work_is_the_same(void **state)
{
    (void)state;
    pi0_error err = {0};
    const pi0_options options = live_options();
    pi0_opening *opening = start_opening(live_path, &options);
    pi0_prompter *prompter = NULL; /* the caller's inputs, meanwhile */
    const double robot[256] = {0.5};
    int64_t *ids = NULL;
    char *framed = NULL;
    size_t count = 0;
    PI0_ASSERT_OK(pi0_prompter_open(live_path, &options, &prompter, &err), &err);
    pi0_model *model = NULL, *plain = open_live_model();
    PI0_ASSERT_OK(pi0_prompter_tokens(prompter, "pick", robot, (size_t)pi0_model_info(plain)->state_dim, &ids, &count, &framed, &err),
                  &err);
    assert_true(count > 0);
    wait_until_finished(opening);
    const pi0_open_state state_now = pi0_opening_poll(opening);
    assert_string_equal(state_now.stage, "weights");
    assert_true(state_now.total > 0 && state_now.done == state_now.total);
    assert_true(state_now.left_s == 0 && state_now.elapsed_s > 0);
    PI0_ASSERT_OK(pi0_opening_wait(&opening, &model, &err), &err);
    assert_null(opening);
    assert_true(first_action(model) == first_action(plain));
    const pi0_memory memory = pi0_model_memory(model);
    assert_true(memory.weights_mapped + memory.weights_owned + memory.token_table == state_now.total);
    pi0_ids_free(&ids);
    pi0_text_free(&framed);
    pi0_prompter_close(&prompter);
    pi0_close(&model);
    pi0_close(&plain);
}

typedef struct watcher {
    int calls, stop_at; /* the call that cancels; 0: none */
    char stages[256];
    char stage[32];
    uint64_t done, total;
} watcher;

static int watch(void *user, const char *stage, uint64_t done, uint64_t total)
{
    watcher *w = user;
    if (strcmp(w->stage, stage) != 0) {
        snprintf(w->stage, sizeof w->stage, "%s", stage);
        snprintf(w->stages + strlen(w->stages), sizeof w->stages - strlen(w->stages), "%s ", stage);
        w->done = 0;
    }
    assert_true(done >= w->done && done <= total);
    w->done = done, w->total = total;
    return ++w->calls == w->stop_at;
}

static void progress_names_every_stage_and_ends_at_the_total(void **state)
{
    (void)state;
    pi0_error err = {0};
    watcher w = {0};
    pi0_options options = live_options();
    options.progress = watch;
    options.progress_user = &w;
    pi0_opening *opening = start_opening(live_path, &options);
    PI0_ASSERT_OK(pi0_opening_wait(&opening, NULL, &err), &err); /* nobody wants the model */
    assert_string_equal(w.stages, "checkpoint tokenizer plan weights ");
    assert_true(w.done == w.total && w.total > 0);
}

static void cancelled_at_any_point_nothing_is_left(void **state)
{
    (void)state;
    pi0_error err = {0};
    int calls = 0;
    for (int stop_at = 1; calls == stop_at - 1; stop_at += stop_at < 12 ? 1 : 17) {
        watcher w = {.stop_at = stop_at};
        pi0_options options = live_options();
        options.progress = watch;
        options.progress_user = &w;
        pi0_opening *opening = start_opening(live_path, &options);
        pi0_model *model = (pi0_model *)&err;
        const pi0_status status = pi0_opening_wait(&opening, &model, &err);
        if (w.calls < stop_at) { /* past the last one */
            assert_int_equal(status, PI0_OK);
            assert_true(stop_at > 20);
            pi0_close(&model);
            return;
        }
        calls = stop_at + (stop_at < 12 ? 0 : 16);
        assert_int_equal(w.calls, stop_at);
        assert_null(model);
        assert_int_equal(status, PI0_ERR_CANCELLED);
        pi0_test_assert_error(&err, PI0_ERR_CANCELLED, "cancelled", NULL);
    }
    fail();
}

static void a_cancelled_opening_gives_no_model_even_when_it_was_done(void **state)
{
    (void)state;
    const pi0_options options = live_options();
    for (int late = 0; late < 2; late++) {
        pi0_error err = {0};
        pi0_model *model = (pi0_model *)&err;
        pi0_opening *opening = start_opening(live_path, &options);
        if (late)
            wait_until_finished(opening);
        pi0_opening_cancel(opening);
        assert_int_equal(pi0_opening_wait(&opening, &model, &err), PI0_ERR_CANCELLED);
        pi0_test_assert_error(&err, PI0_ERR_CANCELLED, "cancelled", NULL);
        assert_null(model);
        assert_null(opening);
    }
}

static void its_errors_are_those_of_opening(void **state)
{
    (void)state;
    for (int missing = 0; missing < 2; missing++) {
        const char *path = missing ? "/nowhere/at/all" : live_path;
        pi0_error direct = {0}, later = {0};
        pi0_options options = live_options();
        options.precision = "f7";
        pi0_model *model = NULL;
        const pi0_status status = pi0_open(path, &options, &model, &direct);
        pi0_opening *opening = start_opening(path, &options);
        assert_int_not_equal(status, PI0_OK);
        assert_int_equal(pi0_opening_wait(&opening, &model, &later), status);
        assert_null(model);
        assert_string_equal(direct.what, later.what);
        assert_string_equal(direct.hint, later.hint);
        pi0_error_clear(&direct);
        pi0_error_clear(&later);
        opening = start_opening(path, &options);
        assert_int_equal(pi0_opening_wait(&opening, &model, NULL), status);
    }
}

static pi0_status open_and_close(void *context, pi0_error *err)
{
    pi0_model *model = NULL;
    pi0_opening *opening = NULL;
    pi0_status status = pi0_open_async(live_path, context, &opening, err);
    if (status == PI0_OK)
        status = pi0_opening_wait(&opening, &model, err);
    assert_null(opening);
    assert_int_equal(model != NULL, status == PI0_OK);
    pi0_close(&model);
    return status;
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    pi0_options options = live_options();
    pi0_test_fail_allocations("opening", open_and_close, &options, (pi0_test_sweep){.first = 4, .last = 4, .stride = 199});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_opened_beside_other_work_is_the_same),
        cmocka_unit_test(progress_names_every_stage_and_ends_at_the_total),
        cmocka_unit_test(cancelled_at_any_point_nothing_is_left),
        cmocka_unit_test(a_cancelled_opening_gives_no_model_even_when_it_was_done),
        cmocka_unit_test(its_errors_are_those_of_opening),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests_name("opening", tests, make_live_model, remove_live_model);
}
