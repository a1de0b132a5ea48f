/* How fast this machine is: arithmetic on registers alone, and memory as far away as it can be.
 *
 * A probe is one loop on some threads. Every slice of it takes a millisecond or two, slices of all probes take turns, and the best of each
 * counts: what else runs on the machine takes time away and never adds any.
 */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "kernels/kernels.h"

enum {
    ROUNDS = 12,
    PEAK_SLICES = 32,
    MAX_REPEATS = 1 << 28,
    MAX_ISAS = 16,
    MAX_PROBES = 2 * PI0_GEMM_FORMS * MAX_ISAS + 4 * (PI0_CACHES + 1) /* on one thread and on all; reading and copying */
};

static const double slice_s = 1.5e-3, longest_s = 4.0; /* shorter than the scheduler's turns: some slices are left in peace */

typedef struct probe probe;
struct probe {
    /* Returns the operations or bytes done. */
    double (*work)(const probe *p, int thread, int repeats);
    int threads;
    const pi0_kernels *kernels; /* arithmetic: of this table */
    const pi0_gemm_kernel *kernel;
    const char *of;  /* memory: "L2" */
    uint8_t *memory; /* thread i works in the `bytes` from memory + i * stride */
    size_t stride, bytes;
    int repeats; /* that make a slice long enough */
    double best; /* a second */
};

/* ------------------------------------------------------------------ slices */

/* Threads that stay each on a core of its own, as far as there are enough: a scheduler that has milliseconds only may not find the free
 * one. */
typedef struct crew {
    pi0_pool *pool;
    cpu_set_t before; /* of the caller's thread, which is only borrowed */
    bool stays;
    int cpus[PI0_MAX_THREADS];
} crew;

static pi0_status crew_open(crew *c, int threads, pi0_error *err)
{
    c->stays = pi0_core_cpus(c->cpus, PI0_MAX_THREADS) >= threads && sched_getaffinity(0, sizeof c->before, &c->before) == 0;
    return pi0_pool_open(threads, NULL, &c->pool, err);
}

typedef struct slice {
    const crew *crew;
    const probe *probe;
    atomic_int arrived;
    double done[PI0_MAX_THREADS];
    uint64_t start[PI0_MAX_THREADS], end[PI0_MAX_THREADS];
} slice;

/* Waits for all the others: so every thread takes part, each with one task, and all at once. */
static void run_thread(void *context, int task, int thread)
{
    slice *s = context;
    (void)task;
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(s->crew->cpus[thread], &own);
    if (s->crew->stays)
        sched_setaffinity(0, sizeof own, &own);
    atomic_fetch_add(&s->arrived, 1);
    while (atomic_load(&s->arrived) < s->probe->threads)
        if (!s->crew->stays)
            sched_yield();
    s->start[thread] = pi0_now_ns();
    s->done[thread] = s->probe->work(s->probe, thread, s->probe->repeats);
    s->end[thread] = pi0_now_ns();
}

static double run_slice(const crew *c, probe *p)
{
    slice s = {.crew = c, .probe = p};
    pi0_pool_run(c->pool, run_thread, &s, p->threads);
    if (c->stays)
        sched_setaffinity(0, sizeof c->before, &c->before);
    uint64_t start = s.start[0], end = s.end[0];
    double done = 0;
    for (int i = 0; i < p->threads; i++) {
        start = s.start[i] < start ? s.start[i] : start;
        end = s.end[i] > end ? s.end[i] : end;
        done += s.done[i];
    }
    const double seconds = (double)(end - start + 1) * 1e-9;
    p->best = done / seconds > p->best ? done / seconds : p->best;
    return seconds;
}

/* One slice, and before it what it takes to find how many repeats that is. */
static void sample(const crew *c, probe *p)
{
    p->repeats = pi0_max_int(p->repeats, 1);
    for (double seconds; (seconds = run_slice(c, p)) < slice_s / 2 && p->repeats < MAX_REPEATS;)
        p->repeats *= seconds < slice_s / 32 ? 16 : 2;
}

static double work_peak(const probe *p, int thread, int repeats)
{
    (void)thread;
    return p->kernel->peak(repeats);
}

/* Or the compiler would see that a second pass over the same bytes is of no use. */
static void forget(const void *bytes)
{
    __asm__ volatile("" : : "r"(bytes) : "memory");
}

/* libc's search and copy are written for the widest loads of each processor. The memory holds zeros, so the search sees all of it. */
static double work_read(const probe *p, int thread, int repeats)
{
    const uint8_t *from = p->memory + (size_t)thread * p->stride;
    for (int i = 0; i < repeats; i++)
        forget(memchr(from, 1, p->bytes));
    return (double)repeats * (double)p->bytes;
}

static double work_copy(const probe *p, int thread, int repeats)
{
    uint8_t *from = p->memory + (size_t)thread * p->stride, *to = from + p->bytes / 2;
    for (int i = 0; i < repeats; i++) {
        memcpy(to, from, p->bytes / 2);
        forget(to);
    }
    return (double)repeats * (double)p->bytes;
}

/* A page has no memory before it is written, and then that of the node whose thread wrote it. */
static double work_touch(const probe *p, int thread, int repeats)
{
    (void)repeats;
    memset(p->memory + (size_t)thread * p->stride, 0, p->bytes);
    return (double)p->bytes;
}

/* ------------------------------------------------------------------ what a model needs, and could get */

pi0_flop pi0_model_flop(const pi0_model *model, int cameras, int tokens, int steps)
{
    return pi0_arch_flop(&model->arch, cameras, tokens, model->sizes.horizon, steps);
}

pi0_status pi0_model_peak(const pi0_model *model, double *flop_per_s, pi0_error *err)
{
    pi0_kernels kernels;
    crew c = {0};
    PI0_TRY(pi0_kernels_select(model->info.isa, &kernels, err));
    PI0_TRY(crew_open(&c, model->info.threads, err));
    pi0_gemm_form form = model->precision == PI0_PRECISION_INT8   ? PI0_GEMM_I8
                         : model->precision == PI0_PRECISION_BF16 ? PI0_GEMM_BF16
                                                                  : PI0_GEMM_F32;
    if (!kernels.gemm[form].multiply)
        form = PI0_GEMM_F32;
    probe p = {.work = work_peak, .threads = model->info.threads, .kernel = &kernels.gemm[form]};
    for (int i = 0; i < PEAK_SLICES; i++)
        sample(&c, &p);
    pi0_pool_close(&c.pool);
    *flop_per_s = p.best;
    return PI0_OK;
}

/* ------------------------------------------------------------------ the machine */

typedef struct machine {
    int threads;
    pi0_topology topology;
    pi0_kernels table[MAX_ISAS]; /* usable ones, worst first */
    int n_tables;
    crew crew;
    uint8_t *memory;
    size_t bytes, stride;
    probe probes[MAX_PROBES];
    int n_probes;
} machine;

/* On one thread and on all: two probes that follow each other. all_bytes 0: only the first. */
static void add_probes(machine *m, probe p, size_t one_bytes, size_t all_bytes)
{
    const size_t bytes[2] = {one_bytes, all_bytes};
    for (int i = 0; i < 2; i++) {
        p.threads = i == 0 ? 1 : bytes[i] ? m->threads : 0;
        p.bytes = bytes[i] / 128 * 128; /* a copy has two halves of whole cache lines */
        m->probes[m->n_probes++] = p;
    }
}

static pi0_status load_tables(machine *m, const char *cap, pi0_error *err)
{
    pi0_kernels best;
    PI0_TRY(pi0_kernels_select(cap, &best, err));
    pi0_isa_report report[MAX_ISAS];
    const size_t n = pi0_kernels_report(report, MAX_ISAS);
    for (size_t i = 0; i < n && i < MAX_ISAS; i++)
        if (report[i].usable && (m->n_tables == 0 || strcmp(m->table[m->n_tables - 1].isa, best.isa) != 0))
            PI0_TRY(pi0_kernels_select(report[i].name, &m->table[m->n_tables++], err));
    return PI0_OK;
}

/* Several times what the caches hold, but no great part of a small machine's memory. */
static pi0_status alloc_memory(machine *m, pi0_error *err)
{
    const size_t *cache = m->topology.cache_bytes, least = (size_t)64 << 20, most = (size_t)1 << 30;
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const size_t eighth = pages > 0 && page > 0 ? (size_t)pages / 8 * (size_t)page : most;
    size_t wanted = pi0_max_size(4 * cache[2] * (size_t)m->topology.cache_count[2], 4 * cache[1] * (size_t)m->threads);
    wanted = pi0_max_size(wanted, least);
    wanted = wanted < most ? wanted : most;
    wanted = wanted < eighth ? wanted : eighth;
    m->stride = pi0_max_size(wanted / (size_t)m->threads / 4096, 1) * 4096;
    m->bytes = m->stride * (size_t)m->threads;
    m->memory = pi0_alloc_pages(m->bytes);
    if (!m->memory)
        return pi0_fail_memory(err, m->bytes, "the memory whose speed is measured");
    run_slice(&m->crew, &(probe){.work = work_touch, .threads = m->threads, .memory = m->memory, .stride = m->stride, .bytes = m->stride});
    return PI0_OK;
}

static void add_arithmetic(machine *m)
{
    for (int form = 0; form < PI0_GEMM_FORMS; form++)
        for (int i = 0; i < m->n_tables; i++) {
            const pi0_gemm_kernel *kernel = &m->table[i].gemm[form];
            if (kernel->multiply && (i == 0 || kernel->peak != m->table[i - 1].gemm[form].peak))
                add_probes(m, (probe){.work = work_peak, .kernel = kernel, .kernels = &m->table[i]}, 1, 1);
        }
}

/* Half of each cache, so that it is in no other; then memory. A level that all threads together cannot fill without fitting into the one
 * before is left out for them. */
static void add_memory(machine *m)
{
    const size_t *cache = m->topology.cache_bytes;
    probe p = {.memory = m->memory, .stride = m->stride};
    for (int level = 0; level <= PI0_CACHES; level++) {
        size_t one = m->bytes, all = m->stride;
        p.of = level < PI0_CACHES ? pi0_cache_names[level] : "memory";
        if (level < PI0_CACHES) {
            one = cache[level] / 2;
            all = level < 2 ? one : one * (size_t)m->topology.cache_count[level] / (size_t)m->threads;
            if (one == 0 || one > m->bytes)
                continue;
            if (all > m->stride || (level > 0 && all <= cache[level - 1]))
                all = 0;
        }
        p.work = work_read;
        add_probes(m, p, one, all);
        p.work = work_copy;
        add_probes(m, p, one, all);
    }
}

static pi0_status run_probes(machine *m, const pi0_options *options, pi0_error *err)
{
    const uint64_t last = pi0_now_ns() + (uint64_t)(longest_s * 1e9);
    for (int round = 0; round < ROUNDS; round++) {
        if (options->progress && options->progress(options->progress_user, "measuring", (uint64_t)round, ROUNDS))
            return pi0_fail(err, PI0_ERR_CANCELLED, "measuring was cancelled");
        for (int i = 0; i < m->n_probes; i++) {
            probe *p = &m->probes[i];
            if (p->threads == 0 || (round && pi0_now_ns() > last)) /* on a slow machine fewer rounds have to do */
                continue;
            if (i % 2) /* threads that are interrupted would make few repeats look long enough */
                p->repeats = pi0_max_int(p->repeats, p[-1].repeats);
            sample(&m->crew, p);
        }
    }
    if (options->progress)
        options->progress(options->progress_user, "measuring", ROUNDS, ROUNDS);
    return PI0_OK;
}

/* ------------------------------------------------------------------ what came of it */

/* In billions; null where it was left out. */
static json_t *rate(const probe *p)
{
    return p->threads ? json_real(p->best * 1e-9) : json_null();
}

static json_t *arithmetic_json(const machine *m, bool *failed)
{
    json_t *list = json_array();
    for (int i = 0; i < m->n_probes; i += 2) {
        const probe *p = &m->probes[i];
        if (p->work == work_peak)
            *failed |= json_array_append_new(list, json_pack("{s:s,s:s,s:o,s:o}", "multiplies",
                                                             pi0_gemm_form_names[p->kernel - p->kernels->gemm], "instruction_set",
                                                             p->kernels->isa, "one_thread", rate(p), "all_threads", rate(p + 1))) != 0;
    }
    return list;
}

static json_t *memory_json(const machine *m, bool *failed)
{
    json_t *list = json_array();
    for (int i = 0; i < m->n_probes; i += 2) {
        const probe *p = &m->probes[i];
        if (p->work == work_read)
            *failed |= json_array_append_new(list, json_pack("{s:s,s:I,s:o,s:o,s:o,s:o}", "of", p->of, "buffer_bytes", (json_int_t)p->bytes,
                                                             "read_one_thread", rate(p), "read_all_threads", rate(p + 1), "copy_one_thread",
                                                             rate(p + 2), "copy_all_threads", rate(p + 3))) != 0;
    }
    return list;
}

pi0_status pi0_measure(const pi0_options *options, json_t **out, pi0_error *err)
{
    *out = NULL;
    machine *m = pi0_alloc(sizeof *m);
    if (!m)
        return pi0_fail_memory(err, sizeof *m, "the measurement");
    m->threads = options->threads > 0 ? options->threads : pi0_physical_cores();
    m->topology = pi0_topology_read();
    bool failed = false;
    pi0_status status;
    PI0_TRY_GOTO(load_tables(m, options->isa, err));
    PI0_TRY_GOTO(crew_open(&m->crew, m->threads, err));
    PI0_TRY_GOTO(alloc_memory(m, err));
    add_arithmetic(m);
    add_memory(m);
    PI0_TRY_GOTO(run_probes(m, options, err));
    *out = json_object();
    pi0_json_put(*out, "threads", json_integer(m->threads), &failed);
    pi0_json_put(*out, "arithmetic_gflops", arithmetic_json(m, &failed), &failed);
    pi0_json_put(*out, "bandwidth_gbytes_per_s", memory_json(m, &failed), &failed);
    if (failed) {
        json_decref(*out);
        *out = NULL;
        status = pi0_fail_memory(err, 0, "a JSON text");
    }
fail:
    pi0_pool_close(&m->crew.pool);
    if (m->memory)
        pi0_free_pages(m->memory, m->bytes);
    pi0_free(m);
    return status;
}
