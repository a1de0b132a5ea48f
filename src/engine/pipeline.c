/* A pipeline: two threads and a few slots. One thread prepares observations, the other computes them; a slot is a session that goes from
 * hand to hand. All of it is one lock and one condition: it turns over some tens of times a second. */
#include <string.h>
#include <time.h>

#include "engine/engine.h"

typedef enum slot_state { FREE, WAITING, PREPARING, READY, COMPUTING, DONE, TAKEN } slot_state;

typedef struct slot {
    slot_state state;
    uint64_t number, submitted_ns;
    void *item;
    pi0_session *session;
    pi0_status status; /* of DONE */
    pi0_error err;
} slot;

/* With `latest` at most one slot is in each state, but DONE: a result and a failure. */
enum { LATEST_SLOTS = 7, DEFAULT_DEPTH = 3, MAX_SLOTS = PI0_MAX_DEPTH + 1 };

struct pi0_pipeline {
    pi0_model *model;
    pi0_pipeline_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool lock_made, changed_made, stop;
    pthread_t threads[2];
    int n_threads;
    uint64_t submitted;
    slot slots[MAX_SLOTS];
    int n_slots, limit; /* limit: observations that it may hold, besides the result that was taken last */
};

/* ------------------------------------------------------------------ slots; all under the lock */

static bool holds_observation(const slot *s)
{
    return s->state != FREE && s->state != TAKEN;
}

static slot *oldest(pi0_pipeline *p, slot_state state)
{
    slot *found = NULL;
    for (int i = 0; i < p->n_slots; i++)
        if (p->slots[i].state == state && (!found || p->slots[i].number < found->number))
            found = &p->slots[i];
    return found;
}

static slot *oldest_observation(pi0_pipeline *p)
{
    slot *found = NULL;
    for (int i = 0; i < p->n_slots; i++)
        if (holds_observation(&p->slots[i]) && (!found || p->slots[i].number < found->number))
            found = &p->slots[i];
    return found;
}

static void release_item(pi0_pipeline *p, slot *s)
{
    if (p->options.release)
        p->options.release(p->options.user, s->item);
    s->item = NULL;
}

static void drop(pi0_pipeline *p, slot *s)
{
    if (s->state == WAITING)
        release_item(p, s);
    pi0_error_clear(&s->err);
    s->state = FREE;
    pi0_count_queue(p->model->counters, (pi0_queue_change){.waiting = -1, .dropped = 1});
}

/* With `latest` what is older leaves the state; a failure, though, takes no result's place. */
static void enter(pi0_pipeline *p, slot *s, slot_state state)
{
    s->state = state;
    const bool replaces = p->options.latest && (state == READY || state == DONE);
    for (int i = 0; i < p->n_slots && replaces; i++) {
        slot *other = &p->slots[i];
        if (other->state == state && other->number < s->number && (s->status == PI0_OK || other->status != PI0_OK))
            drop(p, other);
    }
    pthread_cond_broadcast(&p->changed);
}

/* ------------------------------------------------------------------ the two threads */

static void prepare(pi0_pipeline *p, slot *s)
{
    const uint64_t start = pi0_now_ns();
    pi0_session_reset(s->session, p->options.seed);
    s->session->inferences = s->number;
    s->status = p->options.prepare(p->options.user, s->item, s->session, &s->err);
    release_item(p, s);
    if (s->status == PI0_OK)
        s->status = pi0_prepare_inputs(s->session, &s->err);
    s->session->prepared = s->status == PI0_OK;
    pi0_timing *t = &s->session->timing;
    s->session->preprocess_ms = (double)(pi0_now_ns() - start) * 1e-6; /* all of it counts in the total */
    t->decode = s->session->preprocess_ms - t->preprocess - t->tokenize;
    if (s->status != PI0_OK)
        pi0_count_queue(p->model->counters, (pi0_queue_change){.failed = 1});
}

static void compute(pi0_pipeline *p, slot *s)
{
    s->status = pi0_infer(&s->session, 1, p->options.steps, &s->err);
}

/* Takes slots from one state to the next, outside the lock, until the end. */
static void work(pi0_pipeline *p, slot_state from, slot_state during, slot_state to, void (*act)(pi0_pipeline *p, slot *s))
{
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        slot *s = oldest(p, from);
        if (!s) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        s->state = during;
        pthread_mutex_unlock(&p->lock);
        act(p, s);
        pthread_mutex_lock(&p->lock);
        enter(p, s, s->status == PI0_OK ? to : DONE);
    }
    pthread_mutex_unlock(&p->lock);
}

static void *prepare_all(void *pipeline)
{
    work(pipeline, WAITING, PREPARING, READY, prepare);
    return NULL;
}

static void *compute_all(void *pipeline)
{
    work(pipeline, READY, COMPUTING, DONE, compute);
    return NULL;
}

/* ------------------------------------------------------------------ opening and closing */

void pi0_pipeline_options_init(pi0_pipeline_options *options)
{
    *options = (pi0_pipeline_options){0};
}

void pi0_pipeline_close(pi0_pipeline **handle)
{
    if (!handle || !*handle)
        return;
    pi0_pipeline *p = *handle;
    if (p->n_threads > 0) {
        pthread_mutex_lock(&p->lock);
        p->stop = true;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    for (int i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    int waiting = 0;
    for (int i = 0; i < p->n_slots; i++) {
        slot *s = &p->slots[i];
        waiting += holds_observation(s);
        if (s->state == WAITING)
            release_item(p, s);
        pi0_error_clear(&s->err);
        pi0_session_close(&s->session);
    }
    pi0_count_queue(p->model->counters, (pi0_queue_change){.waiting = -waiting, .limit = -p->limit});
    if (p->changed_made)
        pthread_cond_destroy(&p->changed);
    if (p->lock_made)
        pthread_mutex_destroy(&p->lock);
    pi0_free(p);
    *handle = NULL;
}

static bool make_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        return false;
    const bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 && pthread_cond_init(condition, &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return made;
}

static pi0_status start(pi0_pipeline *p, pi0_error *err)
{
    void *(*const mains[2])(void *) = {prepare_all, compute_all};
    for (; p->n_slots < p->limit + 1; p->n_slots++)
        PI0_TRY(pi0_session_open(p->model, p->options.seed, &p->slots[p->n_slots].session, err));
    p->lock_made = pthread_mutex_init(&p->lock, NULL) == 0;
    p->changed_made = make_condition(&p->changed);
    bool made = p->lock_made && p->changed_made;
    for (int i = 0; i < 2 && made; i++) {
        made = pthread_create(&p->threads[i], NULL, mains[i], p) == 0;
        p->n_threads += made;
    }
    if (made)
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_MEMORY, "cannot start the threads of a pipeline");
    pi0_err_hint(err, "raise the limit on processes (ulimit -u, the container's pids limit)");
    return status;
}

pi0_status pi0_pipeline_open(pi0_model *model, const pi0_pipeline_options *options, pi0_pipeline **out, pi0_error *err)
{
    *out = NULL;
    if (!options->prepare)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "a pipeline needs a function that prepares its observations");
    if (options->depth != 0 && (options->depth < 2 || options->depth > PI0_MAX_DEPTH)) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the depth of the pipeline is out of range");
        pi0_err_expected(err, "2 .. %d, or 0 for %d: one that is computed, one that is prepared", PI0_MAX_DEPTH, DEFAULT_DEPTH);
        pi0_err_got(err, "%d", options->depth);
        return status;
    }
    pi0_pipeline *p = pi0_alloc(sizeof *p);
    if (!p)
        return pi0_fail_memory(err, sizeof *p, "a pipeline");
    p->model = model;
    p->options = *options;
    p->limit = options->latest ? LATEST_SLOTS - 1 : options->depth ? options->depth : DEFAULT_DEPTH;
    pi0_count_queue(model->counters, (pi0_queue_change){.limit = p->limit});
    pi0_status status = start(p, err);
    if (status != PI0_OK)
        pi0_pipeline_close(&p);
    *out = p;
    return status;
}

/* ------------------------------------------------------------------ in and out */

static int count_observations(const pi0_pipeline *p)
{
    int count = 0;
    for (int i = 0; i < p->n_slots; i++)
        count += holds_observation(&p->slots[i]);
    return count;
}

uint64_t pi0_pipeline_submit(pi0_pipeline *p, void *item)
{
    pthread_mutex_lock(&p->lock);
    slot *waiting = oldest(p, WAITING);
    if (p->options.latest && waiting)
        drop(p, waiting);
    while (count_observations(p) == p->limit)
        pthread_cond_wait(&p->changed, &p->lock);
    slot *s = oldest(p, FREE);
    s->item = item;
    const uint64_t number = s->number = p->submitted++;
    s->submitted_ns = pi0_now_ns();
    pi0_count_queue(p->model->counters, (pi0_queue_change){.waiting = 1});
    enter(p, s, WAITING);
    pthread_mutex_unlock(&p->lock);
    return number;
}

/* The result that is next, once it is there. */
static slot *finished(pi0_pipeline *p)
{
    if (p->options.latest)
        return oldest(p, DONE);
    slot *s = oldest_observation(p);
    return s && s->state == DONE ? s : NULL;
}

static slot *wait_for_result(pi0_pipeline *p, double timeout_s)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    const double whole = timeout_s > 0 ? (double)(int64_t)timeout_s : 0;
    end.tv_sec += (time_t)whole;
    end.tv_nsec += timeout_s > 0 ? (long)((timeout_s - whole) * 1e9) : 0;
    if (end.tv_nsec >= 1000000000) {
        end.tv_nsec -= 1000000000;
        end.tv_sec++;
    }
    slot *s = NULL;
    int code = 0;
    while (!(s = finished(p)) && code == 0)
        code = timeout_s < 0 ? pthread_cond_wait(&p->changed, &p->lock) : pthread_cond_timedwait(&p->changed, &p->lock, &end);
    return s;
}

pi0_status pi0_pipeline_next(pi0_pipeline *p, double timeout_s, pi0_pipeline_result *out, pi0_error *err)
{
    pi0_status status = PI0_OK;
    *out = (pi0_pipeline_result){0};
    pthread_mutex_lock(&p->lock);
    slot *before = oldest(p, TAKEN), *s;
    if (before)
        enter(p, before, FREE);
    if ((s = wait_for_result(p, timeout_s))) {
        status = s->status;
        out->number = s->number;
        out->session = status == PI0_OK ? s->session : NULL;
        out->latency_ms = (double)(pi0_now_ns() - s->submitted_ns) * 1e-6;
        if (status != PI0_OK && err) {
            pi0_error_clear(err);
            *err = s->err;
            s->err = (pi0_error){0};
        }
        pi0_error_clear(&s->err);
        enter(p, s, status == PI0_OK ? TAKEN : FREE);
        pi0_count_queue(p->model->counters, (pi0_queue_change){.waiting = -1});
    }
    pthread_mutex_unlock(&p->lock);
    return status;
}
