/* base - what every other layer stands on: errors, checked sizes, memory, files, clock, threads.
 *
 * It knows nothing about models, tensors or devices, and includes only pi0.h (for the status and error types) and libc.
 */
#ifndef PI0_BASE_H
#define PI0_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/limits.h"
#include "pi0.h"

/* ------------------------------------------------------------------ errors */

/* Propagates a failure to the caller, who receives *err as the callee filled it. */
#define PI0_TRY(expr)                    \
    do {                                 \
        pi0_status try_status_ = (expr); \
        if (try_status_ != PI0_OK)       \
            return try_status_;          \
    } while (0)

/* As PI0_TRY, for functions that clean up below `fail:`; needs a local `pi0_status status`. */
#define PI0_TRY_GOTO(expr)    \
    do {                      \
        status = (expr);      \
        if (status != PI0_OK) \
            goto fail;        \
    } while (0)

#define PI0_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Starts an error: empties *err, sets status and `what`, returns status. err may be NULL in all of these. */
pi0_status pi0_fail(pi0_error *err, pi0_status status, const char *what, ...) PI0_PRINTF(3, 4);

/* Add a field to an error started with pi0_fail. */
void pi0_err_where(pi0_error *err, const char *text, ...) PI0_PRINTF(2, 3);
void pi0_err_expected(pi0_error *err, const char *text, ...) PI0_PRINTF(2, 3);
void pi0_err_got(pi0_error *err, const char *text, ...) PI0_PRINTF(2, 3);
void pi0_err_hint(pi0_error *err, const char *text, ...) PI0_PRINTF(2, 3);
void pi0_err_item(pi0_error *err, const char *text, ...) PI0_PRINTF(2, 3); /* appends one line to the list */

pi0_status pi0_fail_memory(pi0_error *err, size_t bytes, const char *what_for);
pi0_status pi0_fail_errno(pi0_error *err, const char *action, const char *path); /* PI0_ERR_IO from errno: "cannot ACTION" */

/* ------------------------------------------------------------------ log: one line to the caller's function, or nowhere */

typedef struct pi0_log {
    pi0_log_fn fn;
    void *user;
} pi0_log;

void pi0_log_info(const pi0_log *log, const char *text, ...) PI0_PRINTF(2, 3);
void pi0_log_warning(const pi0_log *log, const char *text, ...) PI0_PRINTF(2, 3);

/* ------------------------------------------------------------------ checked sizes: false on overflow, *out untouched */

static inline bool pi0_mul(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
static inline bool pi0_add(size_t a, size_t b, size_t *out)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
bool pi0_shape_bytes(const int64_t *shape, int rank, size_t element, size_t *bytes); /* also false for a negative extent */
static inline size_t pi0_round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}
static inline int pi0_min_int(int a, int b)
{
    return a < b ? a : b;
}
static inline int pi0_max_int(int a, int b)
{
    return a > b ? a : b;
}
static inline size_t pi0_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ------------------------------------------------------------------ memory */

#define PI0_ALIGN 64 /* cache line, and the widest vector */

void *pi0_alloc(size_t bytes);       /* PI0_ALIGN-aligned, zeroed; NULL on failure and for huge sizes; free with pi0_free */
void *pi0_alloc_unset(size_t bytes); /* the same, not zeroed */
void pi0_free(void *p);
void *pi0_alloc_array(size_t count, size_t element); /* checked count * element */
/* For megabytes: whole pages of the system's, large ones where it has them, zeroed when first touched. NULL on failure. */
void *pi0_alloc_pages(size_t bytes);
void pi0_free_pages(void *p, size_t bytes);
size_t pi0_page_bytes(void); /* of the system */
/* Memory of one user that grows and is kept between calls, in pages of its own: they go back to the system when it is released.
 * Zero-initialise. */
typedef struct pi0_scratch {
    void *data;
    size_t bytes;
} pi0_scratch;

bool pi0_scratch_reserve(pi0_scratch *scratch, size_t bytes); /* what it held is gone when it grows; empty after a failure */
void pi0_scratch_release(pi0_scratch *scratch);
void pi0_count_allocation(void);                             /* for pi0_allocation_count, by whoever asks libc for memory itself */
char *pi0_strdup(const char *text);                          /* free with pi0_free */
char *pi0_sprintf(const char *format, ...) PI0_PRINTF(1, 2); /* malloc'ed text or NULL; free with pi0_free */

/* Text that grows. After a failed append `failed` stays set and later appends do nothing; check once at the end. */
typedef struct pi0_text {
    char *data; /* NUL-terminated, or NULL while empty */
    size_t length, capacity;
    bool failed;
} pi0_text;

void pi0_text_add(pi0_text *text, const char *format, ...) PI0_PRINTF(2, 3);
void pi0_text_add_bytes(pi0_text *text, const char *bytes, size_t count);
bool pi0_text_reserve(pi0_text *text, size_t count); /* room for so many more; false: text->failed is set */
void pi0_text_release(pi0_text *text);

/* ------------------------------------------------------------------ files */

/* A whole file mapped read-only. Zero-initialised means "none". An empty file maps to data = NULL, bytes = 0. */
typedef struct pi0_mapping {
    const uint8_t *data;
    size_t bytes;
} pi0_mapping;

pi0_status pi0_map_file(const char *path, pi0_mapping *out, pi0_error *err); /* refuses anything but a regular file */
void pi0_unmap(pi0_mapping *mapping);
void pi0_map_take_pages(const void *data, size_t bytes);    /* all of them at once: cheaper than a page fault for every few */
void pi0_map_release_pages(const void *data, size_t bytes); /* the pages wholly inside may leave memory; they come back when read */

bool pi0_is_dir(const char *path);
bool pi0_is_file(const char *path);
bool pi0_exists(const char *path); /* something has this name, even a link that leads nowhere: opening it tells what is wrong */
char *pi0_path_join(const char *dir, const char *name); /* malloc'ed or NULL; free with pi0_free */

/* Writes to a temporary file beside `path`; commit renames it over `path`, abort removes it.
 * close-without-commit is abort. All functions accept a writer whose open failed. */
typedef struct pi0_writer {
    FILE *file;
    char *path, *temporary;
    uint64_t bytes;
} pi0_writer;

pi0_status pi0_writer_open(pi0_writer *writer, const char *path, pi0_error *err);
pi0_status pi0_writer_put(pi0_writer *writer, const void *data, size_t bytes, pi0_error *err);
pi0_status pi0_writer_skip(pi0_writer *writer, uint64_t bytes, pi0_error *err); /* zeros that take no room where files may have holes */
pi0_status pi0_writer_commit(pi0_writer *writer, pi0_error *err);               /* flush, fsync, rename; aborts on failure */
void pi0_writer_abort(pi0_writer *writer);

uint64_t pi0_resident(void);      /* bytes that this process has in memory now, of its own and of files; 0 where unknown */
uint64_t pi0_peak_resident(void); /* bytes: the most memory that this process has had, of its own and of files; 0 where unknown */

/* ------------------------------------------------------------------ clock */

uint64_t pi0_now_ns(void); /* monotonic */
uint64_t pi0_cpu_ns(void); /* processor time of this process so far, of all its threads */

/* ------------------------------------------------------------------ rounding: one routine per format, to nearest even, NaN kept */

static inline uint16_t pi0_bf16_from_f32(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((v.u >> 16) | 0x40u);
    return (uint16_t)((v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16);
}

static inline float pi0_f32_from_bf16(uint16_t x)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)x << 16};
    return v.f;
}

uint16_t pi0_f16_from_f32(float x);
float pi0_f32_from_f16(uint16_t x);

/* ------------------------------------------------------------------ random: integers only, the same on every machine (docs/numerics.md) */

uint64_t pi0_mix64(uint64_t z);                          /* SplitMix64's finaliser */
uint64_t pi0_random_word(uint64_t seed, uint64_t index); /* the index-th output of SplitMix64 started at seed */
uint64_t pi0_fnv1a(const char *text);

/* N(0,1), f32: element `index` of stream (seed, stream). Uses + - * / and sqrt of IEEE doubles only, no libm. */
void pi0_random_normal(uint64_t seed, uint64_t stream, float *out, size_t count);

/* ------------------------------------------------------------------ spans: what pi0_trace_start records
 * A tracer never grows, and recording takes no lock: every thread writes into room of its own or into a place that it drew. */

typedef struct pi0_tracer pi0_tracer;

/* Room for `spans` spans, and for the work of `threads` threads on `ops` ops. */
pi0_status pi0_tracer_open(size_t spans, size_t ops, int threads, pi0_tracer **out, pi0_error *err);
void pi0_tracer_close(pi0_tracer **tracer);
size_t pi0_tracer_count(const pi0_tracer *tracer);
size_t pi0_tracer_dropped(const pi0_tracer *tracer);
pi0_trace_span pi0_tracer_at(const pi0_tracer *tracer, size_t index);

/* Begins a span inside of the one that this thread has open; name is static text. -1: no room. */
int64_t pi0_tracer_begin(pi0_tracer *tracer, pi0_span_kind kind, const char *name, int index);
void pi0_tracer_end(pi0_tracer *tracer, int64_t span);                   /* and whatever was left open in it */
pi0_trace_span *pi0_tracer_span(const pi0_tracer *tracer, int64_t span); /* to fill in the rest; NULL for -1 */
void pi0_tracer_add(pi0_tracer *tracer, const char *name, uint64_t start_ns, uint64_t end_ns);

/* For whoever may be recorded or not: tracer NULL. */
static inline int64_t pi0_span_begin(pi0_tracer *tracer, const char *name, int index)
{
    return tracer ? pi0_tracer_begin(tracer, PI0_SPAN_STAGE, name, index) : -1;
}
static inline void pi0_span_end(pi0_tracer *tracer, int64_t span)
{
    if (tracer)
        pi0_tracer_end(tracer, span);
}

/* Between the runs of a pool: whether the tasks of the next ones prepare an op's inputs. */
void pi0_tracer_prepares(pi0_tracer *tracer, bool prepares);

/* By the pool: before a run, and around each task of thread 0 .. threads-1. */
void pi0_tracer_run(pi0_tracer *tracer);
void pi0_tracer_task_begin(pi0_tracer *tracer, int thread);
void pi0_tracer_task_end(pi0_tracer *tracer, int thread);

/* ------------------------------------------------------------------ threads */

typedef struct pi0_pool pi0_pool;

/* task in 0 .. n_tasks-1; thread in 0 .. pi0_pool_threads-1, 0 is the caller */
typedef void (*pi0_task_fn)(void *context, int task, int thread);

/* threads 1 .. PI0_MAX_THREADS; starts threads-1 workers. cpus [threads]: thread i stays on CPU cpus[i], all but the caller's, which is
 * the caller's own; NULL: where the system puts them. */
pi0_status pi0_pool_open(int threads, const int *cpus, pi0_pool **out, pi0_error *err);
void pi0_pool_close(pi0_pool **pool);
int pi0_pool_threads(const pi0_pool *pool);
void pi0_pool_trace(pi0_pool *pool, pi0_tracer *tracer); /* what its threads do is recorded; NULL: no longer. Not during a run. */

/* Runs all tasks and returns when the last is done. One run at a time per pool. Which thread runs a task is not defined. */
void pi0_pool_run(pi0_pool *pool, pi0_task_fn fn, void *context, int n_tasks);

int pi0_physical_cores(void); /* online, respecting the process's affinity mask; at least 1 */
/* One CPU of each of them, up to cap. Returns how many there are; 0 where the system does not tell. */
int pi0_core_cpus(int *cpus, int cap);
/* The CPUs of `count` threads: "cores", one of each core, or a list such as "0,2,8-11". Fewer than count, one that this process may not
 * use or one named twice is PI0_ERR_ARGUMENT; of more the first are taken. */
pi0_status pi0_cpus_of(const char *affinity, int count, int *cpus, pi0_error *err);

#endif
