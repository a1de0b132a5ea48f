/* The pipeline: the bits of one session in the order of submission, a bounded queue, the newest first where that is wanted, failures that
 * are one observation's own, and an end at any time. And the counters that tell of all this.
 * ctest: label=threads timeout=600 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "live_fixture.h"

enum { MANY = 8, STEPS = 2, SEED = 9 };

/* What is handed in, and what became of it. */
typedef struct thing {
    int which;
    enum { GOOD, REFUSED, WITHOUT_STATE, BAD_TOKEN } kind;
    atomic_int prepared, released;
} thing;

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int entered, open;
} gate;

typedef struct robot {
    const pi0_info *info;
    gate *gate; /* preparing waits until it is open; NULL: nothing waits */
} robot;

static void pass(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->entered++;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void wait_for_entry(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->entered)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void open_gate(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->open = 1;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static pi0_status prepare(void *user, void *item, pi0_session *session, pi0_error *err)
{
    const robot *r = user;
    thing *t = item;
    atomic_fetch_add(&t->prepared, 1);
    if (r->gate)
        pass(r->gate);
    if (t->kind == WITHOUT_STATE) {
        const uint8_t grey[12] = {0};
        const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {2, 2, 3}, .data = grey, .bytes = sizeof grey};
        return pi0_set_image(session, r->info->slots[0], &picture, err);
    }
    pi0_status status = see(session, r->info, t->which, err);
    if (status == PI0_OK && t->kind == REFUSED)
        status = pi0_set_image(session, "no_such_camera", NULL, err);
    if (status == PI0_OK && t->kind == BAD_TOKEN)
        status = pi0_set_tokens(session, &(int64_t){1ll << 40}, 1, err);
    return status;
}

static void release(void *user, void *item)
{
    (void)user;
    atomic_fetch_add(&((thing *)item)->released, 1);
}

static pi0_pipeline *open_pipeline(pi0_model *model, robot *r, int depth, int latest)
{
    pi0_error err = {0};
    pi0_pipeline *pipeline = NULL;
    pi0_pipeline_options options;
    pi0_pipeline_options_init(&options);
    options.prepare = prepare;
    options.release = release;
    options.user = r;
    options.seed = SEED;
    options.steps = STEPS;
    options.depth = depth;
    options.latest = latest;
    PI0_ASSERT_OK(pi0_pipeline_open(model, &options, &pipeline, &err), &err);
    return pipeline;
}

/* The actions of observations 0 .. MANY-1 in one session: [MANY][rows * cols], freed by the caller. */
static float *infer_one_after_another(pi0_model *model, size_t *count)
{
    pi0_error err = {0};
    pi0_session *session = NULL;
    int rows, cols;
    PI0_ASSERT_OK(pi0_session_open(model, SEED, &session, &err), &err);
    pi0_actions_raw(session, &rows, &cols);
    *count = (size_t)rows * (size_t)cols;
    float *out = malloc(MANY * *count * sizeof *out);
    assert_non_null(out);
    for (int i = 0; i < MANY; i++) {
        PI0_ASSERT_OK(see(session, pi0_model_info(model), i, &err), &err);
        PI0_ASSERT_OK(pi0_infer(&session, 1, STEPS, &err), &err);
        memcpy(out + (size_t)i * *count, pi0_actions_raw(session, NULL, NULL), *count * sizeof *out);
    }
    pi0_session_close(&session);
    return out;
}

static void make_things(thing *things)
{
    for (int i = 0; i < MANY; i++)
        things[i] = (thing){.which = i};
}

static void expect_released_once(const thing *things)
{
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(atomic_load(&things[i].released), 1);
        assert_true(atomic_load(&things[i].prepared) <= 1);
    }
}

static void expect_actions(const pi0_pipeline_result *result, const float *want, size_t count)
{
    assert_non_null(result->session);
    assert_memory_equal(pi0_actions_raw(result->session, NULL, NULL), want + result->number * count, count * sizeof *want);
}

static void results_are_those_of_one_session_in_order(void **state)
{
    (void)state;
    pi0_model *model = open_live_model();
    robot r = {.info = pi0_model_info(model)};
    size_t count;
    float *want = infer_one_after_another(model, &count);
    const pi0_stats before = pi0_model_stats(model);
    static const int depths[] = {2, 0, 16};
    for (int d = 0; d < 3; d++) {
        thing things[MANY];
        make_things(things);
        const int depth = depths[d] ? depths[d] : 3;
        pi0_pipeline *pipeline = open_pipeline(model, &r, depths[d], 0);
        assert_int_equal(pi0_model_stats(model).queue_limit, depth);
        for (int taken = 0, submitted = 0; taken < MANY; taken++) {
            pi0_error err = {0};
            pi0_pipeline_result result;
            for (; submitted < MANY && submitted - taken < depth; submitted++)
                assert_int_equal(pi0_pipeline_submit(pipeline, &things[submitted]), submitted);
            PI0_ASSERT_OK(pi0_pipeline_next(pipeline, -1, &result, &err), &err);
            assert_int_equal(result.number, taken);
            expect_actions(&result, want, count);
            const pi0_timing t = pi0_session_timing(result.session);
            assert_true(result.latency_ms >= t.denoise && t.tokenize > 0 && t.total > t.tokenize);
        }
        pi0_pipeline_close(&pipeline);
        assert_null(pipeline);
        expect_released_once(things);
    }
    const pi0_stats after = pi0_model_stats(model);
    assert_int_equal(after.inferences - before.inferences, 3 * MANY);
    assert_int_equal(after.failures, 0);
    assert_int_equal(after.dropped, 0);
    assert_true(after.queue == 0 && after.queue_limit == 0);
    assert_true(after.busy_s > before.busy_s && after.busy_s <= after.elapsed_s);
    assert_true(after.sum_ms.total > before.sum_ms.total && after.sum_ms.tokenize > before.sum_ms.tokenize);
    assert_true(after.last_ms.total > 0 && after.memory.total > 0 && after.process_cpu_s > 0);
    free(want);
    pi0_close(&model);
}

typedef struct producer {
    pi0_pipeline *pipeline;
    thing *things;
    atomic_int submitted;
} producer;

static void *submit_all(void *context)
{
    producer *p = context;
    for (int i = 0; i < MANY; i++) {
        pi0_pipeline_submit(p->pipeline, &p->things[i]);
        atomic_fetch_add(&p->submitted, 1);
    }
    return NULL;
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000l}, NULL);
}

/* Whoever does not take results holds up whoever submits. */
static void a_full_pipeline_makes_submit_wait(void **state)
{
    (void)state;
    enum { DEPTH = 2 };
    pi0_model *model = open_live_model();
    robot r = {.info = pi0_model_info(model)};
    thing things[MANY];
    make_things(things);
    producer p = {.pipeline = open_pipeline(model, &r, DEPTH, 0), .things = things};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, submit_all, &p), 0);
    while (pi0_model_stats(model).inferences < DEPTH) /* all that was let in is finished, and lies there */
        pause_ms(1);
    for (int taken = 0; taken < MANY; taken++) {
        pi0_error err = {0};
        pi0_pipeline_result result;
        pause_ms(taken < 3 ? 30 : 0); /* for a submit that should not have been let in */
        assert_true(atomic_load(&p.submitted) <= taken + DEPTH);
        assert_true(pi0_model_stats(model).queue <= DEPTH);
        PI0_ASSERT_OK(pi0_pipeline_next(p.pipeline, -1, &result, &err), &err);
        assert_int_equal(result.number, taken);
    }
    pthread_join(thread, NULL);
    pi0_pipeline_close(&p.pipeline);
    expect_released_once(things);
    pi0_close(&model);
}

static void the_latest_replaces_what_waits(void **state)
{
    (void)state;
    pi0_model *model = open_live_model();
    gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    robot r = {.info = pi0_model_info(model), .gate = &g};
    size_t count;
    float *want = infer_one_after_another(model, &count);
    thing things[MANY];
    make_things(things);
    pi0_pipeline *pipeline = open_pipeline(model, &r, 0, 1);
    pi0_pipeline_submit(pipeline, &things[0]);
    wait_for_entry(&g);
    for (int i = 1; i < MANY; i++) /* none of them waits */
        pi0_pipeline_submit(pipeline, &things[i]);
    for (int i = 1; i < MANY - 1; i++) {
        assert_int_equal(atomic_load(&things[i].released), 1);
        assert_int_equal(atomic_load(&things[i].prepared), 0);
    }
    assert_int_equal(pi0_model_stats(model).dropped, MANY - 2);
    open_gate(&g);
    pi0_error err = {0};
    pi0_pipeline_result result = {0};
    while (result.number != MANY - 1) { /* the first one may be there, or be replaced by the last before it was taken */
        PI0_ASSERT_OK(pi0_pipeline_next(pipeline, -1, &result, &err), &err);
        assert_true(result.number == 0 || result.number == MANY - 1);
        expect_actions(&result, want, count);
    }
    PI0_ASSERT_OK(pi0_pipeline_next(pipeline, 0, &result, &err), &err);
    assert_null(result.session);
    pi0_pipeline_close(&pipeline);
    expect_released_once(things);
    free(want);
    pi0_close(&model);
}

/* A result that was not taken gives way to a newer one, however many there are, and no submit waits. */
static void the_latest_result_replaces_older_ones(void **state)
{
    (void)state;
    pi0_model *model = open_live_model();
    robot r = {.info = pi0_model_info(model)};
    thing things[MANY];
    make_things(things);
    things[3].kind = REFUSED; /* a failure takes no result's place */
    pi0_pipeline *pipeline = open_pipeline(model, &r, 0, 1);
    for (int i = 0; i < 4; i++) {
        const pi0_stats before = pi0_model_stats(model);
        pi0_pipeline_submit(pipeline, &things[i]);
        for (pi0_stats now = before; now.inferences + now.failures == before.inferences + before.failures; now = pi0_model_stats(model))
            pause_ms(1);
    }
    pi0_error err = {0};
    pi0_pipeline_result result;
    PI0_ASSERT_OK(pi0_pipeline_next(pipeline, -1, &result, &err), &err);
    assert_int_equal(result.number, 2);
    assert_int_equal(pi0_pipeline_next(pipeline, -1, &result, &err), PI0_ERR_ARGUMENT);
    assert_int_equal(result.number, 3);
    pi0_error_clear(&err);
    assert_int_equal(pi0_model_stats(model).dropped, 2);
    pi0_pipeline_close(&pipeline);
    pi0_close(&model);
}

static void a_failure_is_one_observations_own(void **state)
{
    (void)state;
    pi0_model *model = open_live_model();
    robot r = {.info = pi0_model_info(model)};
    size_t count;
    float *want = infer_one_after_another(model, &count);
    thing things[MANY];
    make_things(things);
    things[1].kind = REFUSED, things[2].kind = WITHOUT_STATE, things[5].kind = BAD_TOKEN;
    static const char *const texts[MANY] = {[1] = "no_such_camera", [2] = "no state", [5] = "token"};
    pi0_pipeline *pipeline = open_pipeline(model, &r, MANY, 0);
    for (int i = 0; i < MANY; i++)
        pi0_pipeline_submit(pipeline, &things[i]);
    for (int i = 0; i < MANY; i++) {
        pi0_error err = {0};
        pi0_pipeline_result result;
        const pi0_status status = pi0_pipeline_next(pipeline, -1, &result, &err);
        assert_int_equal(result.number, i);
        if (things[i].kind == GOOD) {
            PI0_ASSERT_OK(status, &err);
            expect_actions(&result, want, count);
            continue;
        }
        assert_null(result.session);
        assert_int_not_equal(status, PI0_OK);
        pi0_test_assert_error(&err, status, texts[i], NULL);
    }
    assert_int_equal(pi0_model_stats(model).failures, 3);
    pi0_pipeline_close(&pipeline);
    expect_released_once(things);
    free(want);
    pi0_close(&model);
}

static void closing_gives_up_what_is_in_flight(void **state)
{
    (void)state;
    pi0_model *model = open_live_model();
    robot r = {.info = pi0_model_info(model)};
    for (int latest = 0; latest < 2; latest++)
        for (int ms = 0; ms < 24; ms += 6) {
            thing things[MANY];
            make_things(things);
            things[0].kind = ms % 4 ? REFUSED : GOOD; /* an error that nobody takes */
            pi0_pipeline *pipeline = open_pipeline(model, &r, MANY, latest);
            for (int i = 0; i < MANY; i++)
                pi0_pipeline_submit(pipeline, &things[i]);
            pause_ms(ms);
            pi0_pipeline_close(&pipeline);
            expect_released_once(things);
            const pi0_stats now = pi0_model_stats(model);
            assert_true(now.queue == 0 && now.queue_limit == 0);
        }
    pi0_close(&model);
}

static void two_pipelines_and_a_session_share_a_model(void **state)
{
    (void)state;
    pi0_model *model = open_live_model();
    robot r = {.info = pi0_model_info(model)};
    size_t count;
    float *want = infer_one_after_another(model, &count);
    thing things[2][MANY];
    pi0_pipeline *pipelines[2];
    for (int k = 0; k < 2; k++) {
        make_things(things[k]);
        pipelines[k] = open_pipeline(model, &r, MANY, 0);
        for (int i = 0; i < MANY; i++)
            pi0_pipeline_submit(pipelines[k], &things[k][i]);
    }
    size_t again;
    float *meanwhile = infer_one_after_another(model, &again);
    assert_memory_equal(want, meanwhile, MANY * count * sizeof *want);
    for (int i = 0; i < 2 * MANY; i++) {
        pi0_error err = {0};
        pi0_pipeline_result result;
        PI0_ASSERT_OK(pi0_pipeline_next(pipelines[i % 2], -1, &result, &err), &err);
        expect_actions(&result, want, count);
    }
    for (int k = 0; k < 2; k++)
        pi0_pipeline_close(&pipelines[k]);
    free(meanwhile);
    free(want);
    pi0_close(&model);
}

static void bad_options_and_empty_pipelines(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_model *model = open_live_model();
    robot r = {.info = pi0_model_info(model)};
    pi0_pipeline *pipeline = (pi0_pipeline *)&err;
    pi0_pipeline_options options;
    pi0_pipeline_options_init(&options);
    assert_int_equal(pi0_pipeline_open(model, &options, &pipeline, &err), PI0_ERR_ARGUMENT);
    assert_null(pipeline);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "prepares", NULL);
    options.prepare = prepare;
    static const int depths[] = {-1, 1, 17};
    for (int i = 0; i < 3; i++) {
        options.depth = depths[i];
        assert_int_equal(pi0_pipeline_open(model, &options, &pipeline, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "depth", "2 .. 16", NULL);
    }
    pi0_pipeline_result result;
    pipeline = open_pipeline(model, &r, 2, 0);
    PI0_ASSERT_OK(pi0_pipeline_next(pipeline, 0, &result, &err), &err);
    assert_null(result.session);
    PI0_ASSERT_OK(pi0_pipeline_next(pipeline, 0.002, &result, &err), &err);
    assert_null(result.session);
    pi0_pipeline_close(&pipeline);
    pi0_pipeline_close(&pipeline);
    pi0_close(&model);
}

static pi0_status open_and_close(void *model, pi0_error *err)
{
    pi0_pipeline *pipeline = NULL;
    pi0_pipeline_options options;
    pi0_pipeline_options_init(&options);
    options.prepare = prepare;
    const pi0_status status = pi0_pipeline_open(model, &options, &pipeline, err);
    assert_int_equal(pipeline != NULL, status == PI0_OK);
    assert_int_equal(pi0_model_stats(model).queue_limit, pipeline ? 3 : 0);
    pi0_pipeline_close(&pipeline);
    return status;
}

static void a_failed_allocation_leaves_nothing(void **state)
{
    (void)state;
    pi0_model *model = open_live_model();
    pi0_test_fail_allocations("pipeline", open_and_close, model, (pi0_test_sweep){.first = 100, .last = 1, .stride = 1});
    pi0_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_one_session_in_order),
        cmocka_unit_test(a_full_pipeline_makes_submit_wait),
        cmocka_unit_test(the_latest_replaces_what_waits),
        cmocka_unit_test(the_latest_result_replaces_older_ones),
        cmocka_unit_test(a_failure_is_one_observations_own),
        cmocka_unit_test(closing_gives_up_what_is_in_flight),
        cmocka_unit_test(two_pipelines_and_a_session_share_a_model),
        cmocka_unit_test(bad_options_and_empty_pipelines),
        cmocka_unit_test(a_failed_allocation_leaves_nothing),
    };
    return cmocka_run_group_tests_name("pipeline", tests, make_live_model, remove_live_model);
}
