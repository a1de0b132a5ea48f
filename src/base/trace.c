#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

enum { MAX_CALLERS = 16 }; /* threads that call the library while it records: one in a program, a few in a server */

/* A thread of the pool at one op. Its tasks follow each other, so the time between two of them in one run counts as work. */
typedef struct work {
    int64_t op;
    uint64_t start_ns, end_ns, busy_ns, prepare_ns;
    int tasks;
} work;

typedef struct lane {
    _Alignas(PI0_ALIGN) work *list; /* of its own thread until a run ends, so without a lock */
    size_t count, dropped;
    uint64_t run; /* that it last took part in */
} lane;

/* A thread that calls the library. */
typedef struct caller {
    pthread_t id;
    int thread;
    int64_t open; /* the innermost span that it has not ended */
} caller;

struct pi0_tracer {
    pi0_trace_span *spans;
    size_t capacity, capacity_work;
    atomic_size_t drawn; /* places in spans; may pass capacity */
    atomic_size_t lost;  /* spans of more callers than there is room for */
    uint64_t serial;     /* no other tracer of this process has it */
    pthread_mutex_t lock;
    bool lock_made;
    caller callers[MAX_CALLERS];
    int n_callers, threads;
    /* of the thread that runs the pool, between its runs */
    int64_t op;
    uint64_t run;
    bool prepares;
    lane lanes[];
};

static atomic_uint_fast64_t serials;

/* A thread finds itself without a lock from the second time on. */
static _Thread_local struct {
    uint64_t serial;
    caller *caller;
} own;

pi0_status pi0_tracer_open(size_t spans, size_t ops, int threads, pi0_tracer **out, pi0_error *err)
{
    *out = NULL;
    const size_t bytes = sizeof(pi0_tracer) + (size_t)threads * sizeof(lane);
    pi0_tracer *tracer = pi0_alloc(bytes);
    if (!tracer)
        return pi0_fail_memory(err, bytes, "a trace");
    tracer->capacity = spans;
    tracer->capacity_work = ops;
    tracer->threads = threads;
    tracer->serial = atomic_fetch_add(&serials, 1) + 1;
    tracer->op = -1;
    atomic_init(&tracer->drawn, 0);
    atomic_init(&tracer->lost, 0);
    tracer->lock_made = pthread_mutex_init(&tracer->lock, NULL) == 0;
    bool ok = tracer->lock_made && (tracer->spans = pi0_alloc_array(spans, sizeof *tracer->spans)) != NULL;
    for (int i = 0; i < threads; i++)
        ok = ok && (tracer->lanes[i].list = pi0_alloc_array(ops, sizeof(work))) != NULL;
    if (!ok) {
        pi0_tracer_close(&tracer);
        pi0_fail(err, PI0_ERR_MEMORY, "not enough memory for a trace of %zu spans and %zu ops on %d threads", spans, ops, threads);
        pi0_err_hint(err, "record fewer inferences");
        return PI0_ERR_MEMORY;
    }
    *out = tracer;
    return PI0_OK;
}

void pi0_tracer_close(pi0_tracer **tracer_at)
{
    if (!tracer_at || !*tracer_at)
        return;
    pi0_tracer *tracer = *tracer_at;
    for (int i = 0; i < tracer->threads; i++)
        pi0_free(tracer->lanes[i].list);
    pi0_free(tracer->spans);
    if (tracer->lock_made)
        pthread_mutex_destroy(&tracer->lock);
    pi0_free(tracer);
    *tracer_at = NULL;
}

/* ------------------------------------------------------------------ spans of the calling threads */

static caller *register_caller(pi0_tracer *tracer)
{
    caller *found = NULL;
    pthread_mutex_lock(&tracer->lock);
    for (int i = 0; i < tracer->n_callers && !found; i++)
        if (pthread_equal(tracer->callers[i].id, pthread_self()))
            found = &tracer->callers[i];
    if (!found && tracer->n_callers < MAX_CALLERS) {
        found = &tracer->callers[tracer->n_callers];
        /* the pool's workers are 1 .. threads-1 */
        *found = (caller){pthread_self(), tracer->n_callers ? tracer->threads + tracer->n_callers - 1 : 0, -1};
        tracer->n_callers++;
    }
    pthread_mutex_unlock(&tracer->lock);
    return found;
}

static caller *find_caller(pi0_tracer *tracer)
{
    if (own.serial != tracer->serial) {
        own.caller = register_caller(tracer);
        own.serial = tracer->serial;
    }
    return own.caller;
}

/* A place for one more span of this thread; NULL: no room. */
static pi0_trace_span *draw(pi0_tracer *tracer, caller *self, const char *name, int64_t *index)
{
    const size_t at = self ? atomic_fetch_add(&tracer->drawn, 1) : atomic_fetch_add(&tracer->lost, 1);
    if (!self || at >= tracer->capacity)
        return NULL;
    *index = (int64_t)at;
    tracer->spans[at] = (pi0_trace_span){.name = name,
                                         .index = -1,
                                         .thread = self->thread,
                                         .parent = self->open,
                                         .plan = "",
                                         .op = -1,
                                         .part = "",
                                         .layer = -1,
                                         .product = "",
                                         .arithmetic = ""};
    return &tracer->spans[at];
}

int64_t pi0_tracer_begin(pi0_tracer *tracer, pi0_span_kind kind, const char *name, int index)
{
    caller *self = find_caller(tracer);
    int64_t at = -1;
    pi0_trace_span *span = draw(tracer, self, name, &at);
    if (kind == PI0_SPAN_OP)
        tracer->op = at;
    if (!span)
        return -1;
    span->kind = kind;
    span->index = index;
    self->open = at;
    span->start_ns = pi0_now_ns();
    return at;
}

void pi0_tracer_end(pi0_tracer *tracer, int64_t at)
{
    const uint64_t now = pi0_now_ns();
    if (at < 0)
        return;
    caller *self = find_caller(tracer);
    while (self->open > at) { /* an error came out of it */
        tracer->spans[self->open].end_ns = now;
        self->open = tracer->spans[self->open].parent;
    }
    tracer->spans[at].end_ns = now;
    self->open = tracer->spans[at].parent;
    if (tracer->spans[at].kind == PI0_SPAN_OP)
        tracer->op = -1;
}

pi0_trace_span *pi0_tracer_span(const pi0_tracer *tracer, int64_t span)
{
    return span < 0 ? NULL : &tracer->spans[span];
}

void pi0_tracer_add(pi0_tracer *tracer, const char *name, uint64_t start_ns, uint64_t end_ns)
{
    int64_t at;
    pi0_trace_span *span = draw(tracer, find_caller(tracer), name, &at);
    if (!span)
        return;
    span->start_ns = start_ns;
    span->end_ns = end_ns;
}

/* ------------------------------------------------------------------ work of the pool */

void pi0_tracer_prepares(pi0_tracer *tracer, bool prepares)
{
    tracer->prepares = prepares;
}

void pi0_tracer_run(pi0_tracer *tracer)
{
    tracer->run++;
}

void pi0_tracer_task_begin(pi0_tracer *tracer, int thread)
{
    lane *l = &tracer->lanes[thread];
    work *last = l->count ? &l->list[l->count - 1] : NULL;
    if (l->run == tracer->run || tracer->op < 0)
        return; /* the task before ended just now */
    l->run = tracer->run;
    const uint64_t now = pi0_now_ns();
    if (last && last->op == tracer->op) {
        last->end_ns = now; /* where this run's work begins */
    } else if (l->count < tracer->capacity_work) {
        l->list[l->count++] = (work){.op = tracer->op, .start_ns = now, .end_ns = now};
    } else {
        l->dropped++;
    }
}

void pi0_tracer_task_end(pi0_tracer *tracer, int thread)
{
    lane *l = &tracer->lanes[thread];
    work *last = l->count ? &l->list[l->count - 1] : NULL;
    if (!last || last->op != tracer->op)
        return;
    const uint64_t now = pi0_now_ns(), took = now - last->end_ns;
    last->busy_ns += took;
    last->prepare_ns += tracer->prepares ? took : 0;
    last->tasks++;
    last->end_ns = now;
}

/* ------------------------------------------------------------------ reading */

static size_t stored(const pi0_tracer *tracer)
{
    const size_t drawn = atomic_load(&tracer->drawn);
    return drawn < tracer->capacity ? drawn : tracer->capacity;
}

size_t pi0_tracer_count(const pi0_tracer *tracer)
{
    size_t count = stored(tracer);
    for (int i = 0; i < tracer->threads; i++)
        count += tracer->lanes[i].count;
    return count;
}

size_t pi0_tracer_dropped(const pi0_tracer *tracer)
{
    size_t dropped = atomic_load(&tracer->drawn) - stored(tracer) + atomic_load(&tracer->lost);
    for (int i = 0; i < tracer->threads; i++)
        dropped += tracer->lanes[i].dropped;
    return dropped;
}

pi0_trace_span pi0_tracer_at(const pi0_tracer *tracer, size_t index)
{
    if (index < stored(tracer))
        return tracer->spans[index];
    index -= stored(tracer);
    int thread = 0;
    while (index >= tracer->lanes[thread].count)
        index -= tracer->lanes[thread++].count;
    const work *w = &tracer->lanes[thread].list[index];
    pi0_trace_span span = tracer->spans[w->op]; /* what it works on */
    span.kind = PI0_SPAN_WORK;
    span.parent = w->op;
    span.thread = thread ? thread : span.thread;
    span.start_ns = w->start_ns;
    span.end_ns = w->end_ns;
    span.busy_ns = w->busy_ns;
    span.prepare_ns = w->prepare_ns;
    span.tasks = w->tasks;
    return span;
}
