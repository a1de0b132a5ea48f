#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/base.h"

/* Waiting threads look this long before they sleep: the gap between two runs of one inference is shorter than waking a thread is. */
#define SPIN_NS 20000

/* Work is claimed from `ticket`: run number in the high half, tasks not yet claimed in the low half. A claim is one compare-and-swap, so a
 * worker that comes late can neither take a task of a finished run nor mistake one run for the next; and after a successful claim the run
 * cannot end before that task does, so fn, context and n_tasks are stable while they are read. */
struct pi0_pool {
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) atomic_int unfinished; /* tasks of this run not yet done */
    _Alignas(64) atomic_int sleepers;   /* workers asleep on `wake`, or about to be */
    atomic_bool caller_sleeps, stop;
    pi0_task_fn fn;
    void *context;
    int n_tasks;
    pi0_tracer *tracer; /* NULL: nothing is recorded */
    int threads;        /* with the caller */
    int started;        /* workers that exist */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    bool lock_made, wake_made, done_made;
    struct worker {
        pi0_pool *pool;
        pthread_t id;
        int thread;
    } workers[PI0_MAX_THREADS];
};

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool work_left(const pi0_pool *pool)
{
    return (uint32_t)atomic_load(&pool->ticket) != 0;
}

/* Claims one task; -1 when none is left. */
static int claim(pi0_pool *pool)
{
    uint64_t ticket = atomic_load(&pool->ticket);
    while ((uint32_t)ticket != 0)
        if (atomic_compare_exchange_weak(&pool->ticket, &ticket, ticket - 1))
            return pool->n_tasks - (int)(uint32_t)ticket;
    return -1;
}

static void run_task(pi0_tracer *tracer, pi0_task_fn fn, void *context, int task, int thread)
{
    if (tracer)
        pi0_tracer_task_begin(tracer, thread);
    fn(context, task, thread);
    if (tracer) /* before the task counts as done: with the last one the run ends, and the trace may be read */
        pi0_tracer_task_end(tracer, thread);
}

static void work(pi0_pool *pool, int thread)
{
    for (int task; (task = claim(pool)) >= 0;) {
        run_task(pool->tracer, pool->fn, pool->context, task, thread);
        if (atomic_fetch_sub(&pool->unfinished, 1) == 1 && thread != 0 && atomic_load(&pool->caller_sleeps)) {
            pthread_mutex_lock(&pool->lock);
            pthread_cond_signal(&pool->done);
            pthread_mutex_unlock(&pool->lock);
        }
    }
}

static void *worker_main(void *argument)
{
    struct worker *self = argument;
    pi0_pool *pool = self->pool;
    while (!atomic_load(&pool->stop)) {
        work(pool, self->thread);
        uint64_t until = pi0_now_ns() + SPIN_NS;
        while (!work_left(pool) && !atomic_load(&pool->stop) && pi0_now_ns() < until)
            relax();
        if (work_left(pool))
            continue;
        pthread_mutex_lock(&pool->lock);
        atomic_fetch_add(&pool->sleepers, 1);
        while (!work_left(pool) && !atomic_load(&pool->stop))
            pthread_cond_wait(&pool->wake, &pool->lock);
        atomic_fetch_sub(&pool->sleepers, 1);
        pthread_mutex_unlock(&pool->lock);
    }
    return NULL;
}

/* A worker on the CPU that it is to stay on; -1: on any. Returns an errno. */
static int start_worker(struct worker *worker, int cpu)
{
    pthread_attr_t attributes;
    int code = pthread_attr_init(&attributes);
    if (code != 0)
        return code;
    if (cpu >= 0) {
        const size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
        cpu_set_t *set = CPU_ALLOC(cpu + 1);
        if (set) {
            CPU_ZERO_S(bytes, set);
            CPU_SET_S(cpu, bytes, set);
        }
        code = set ? pthread_attr_setaffinity_np(&attributes, bytes, set) : ENOMEM;
        CPU_FREE(set);
    }
    if (code == 0)
        code = pthread_create(&worker->id, &attributes, worker_main, worker);
    pthread_attr_destroy(&attributes);
    return code;
}

static pi0_status start_workers(pi0_pool *pool, const int *cpus, pi0_error *err)
{
    pool->lock_made = pthread_mutex_init(&pool->lock, NULL) == 0;
    pool->wake_made = pthread_cond_init(&pool->wake, NULL) == 0;
    pool->done_made = pthread_cond_init(&pool->done, NULL) == 0;
    if (!pool->lock_made || !pool->wake_made || !pool->done_made)
        return pi0_fail(err, PI0_ERR_MEMORY, "cannot make the locks of the thread pool");
    for (int i = 1; i < pool->threads; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->thread = i;
        const int code = start_worker(worker, cpus ? cpus[i] : -1);
        if (code != 0) {
            char buffer[128];
            pi0_fail(err, PI0_ERR_MEMORY, "cannot start thread %d of %d", i + 1, pool->threads);
            pi0_err_got(err, "%s", strerror_r(code, buffer, sizeof buffer));
            pi0_err_hint(err, "ask for fewer threads, or raise the limit on processes (ulimit -u, the container's pids limit)");
            return PI0_ERR_MEMORY;
        }
        pool->started++;
    }
    return PI0_OK;
}

pi0_status pi0_pool_open(int threads, const int *cpus, pi0_pool **out, pi0_error *err)
{
    *out = NULL;
    if (threads < 1 || threads > PI0_MAX_THREADS) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "the number of threads is out of range");
        pi0_err_expected(err, "1 to %d", PI0_MAX_THREADS);
        pi0_err_got(err, "%d", threads);
        return PI0_ERR_ARGUMENT;
    }
    pi0_pool *pool = pi0_alloc(sizeof *pool);
    if (!pool)
        return pi0_fail_memory(err, sizeof *pool, "the thread pool");
    atomic_init(&pool->ticket, 0);
    atomic_init(&pool->unfinished, 0);
    atomic_init(&pool->sleepers, 0);
    atomic_init(&pool->caller_sleeps, false);
    atomic_init(&pool->stop, false);
    pool->threads = threads;
    pi0_status status = start_workers(pool, cpus, err);
    if (status != PI0_OK) {
        pi0_pool_close(&pool);
        return status;
    }
    *out = pool;
    return PI0_OK;
}

void pi0_pool_close(pi0_pool **pool_at)
{
    if (!pool_at || !*pool_at)
        return;
    pi0_pool *pool = *pool_at;
    if (pool->started > 0) {
        pthread_mutex_lock(&pool->lock);
        atomic_store(&pool->stop, true);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->workers[i].id, NULL);
    if (pool->done_made)
        pthread_cond_destroy(&pool->done);
    if (pool->wake_made)
        pthread_cond_destroy(&pool->wake);
    if (pool->lock_made)
        pthread_mutex_destroy(&pool->lock);
    pi0_free(pool);
    *pool_at = NULL;
}

int pi0_pool_threads(const pi0_pool *pool)
{
    return pool->threads;
}

/* Sleepers are woken one for each task beyond the caller's own, not all: 64 workers have nothing to do in a run of 3 tasks. */
static void wake_workers(pi0_pool *pool, int n_tasks)
{
    if (atomic_load(&pool->sleepers) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    if (n_tasks >= pool->threads)
        pthread_cond_broadcast(&pool->wake);
    else
        for (int i = 1; i < n_tasks; i++)
            pthread_cond_signal(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
}

void pi0_pool_trace(pi0_pool *pool, pi0_tracer *tracer)
{
    pool->tracer = tracer;
}

void pi0_pool_run(pi0_pool *pool, pi0_task_fn fn, void *context, int n_tasks)
{
    if (pool->tracer)
        pi0_tracer_run(pool->tracer);
    if (pool->threads == 1 || n_tasks <= 1) {
        for (int task = 0; task < n_tasks; task++)
            run_task(pool->tracer, fn, context, task, 0);
        return;
    }
    pool->fn = fn;
    pool->context = context;
    pool->n_tasks = n_tasks;
    atomic_store(&pool->unfinished, n_tasks);
    uint64_t run = (atomic_load(&pool->ticket) >> 32) + 1;
    atomic_store(&pool->ticket, run << 32 | (uint32_t)n_tasks);
    wake_workers(pool, n_tasks);
    work(pool, 0);
    uint64_t until = pi0_now_ns() + SPIN_NS;
    while (atomic_load(&pool->unfinished) != 0 && pi0_now_ns() < until)
        relax();
    if (atomic_load(&pool->unfinished) == 0)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->caller_sleeps, true);
    while (atomic_load(&pool->unfinished) != 0)
        pthread_cond_wait(&pool->done, &pool->lock);
    atomic_store(&pool->caller_sleeps, false);
    pthread_mutex_unlock(&pool->lock);
}
