/* bench_kernels - a stopwatch for the products and the attention at the shapes of the published models.
 *
 * Usage: bench_kernels [--threads N] [--only TEXT] [isa ...]   (default: one thread, every usable isa; TEXT: lines that contain it)
 * Each line is GFLOP/s and the fraction of a loop of multiply-adds on registers alone, of the same vector width, run between the slices
 * of the work: the two see the same clock and the same neighbours. A slice is what a device would give to a thread (some columns of a
 * product, one head of an attention). The best slice is compared with the best loop, so that a machine that is slowed down now and then
 * still gives a usable fraction, and the median slice with the median loop. Threads take slices by turns and are added up.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"

/* Time of this thread on the processor: what others do on the machine is not in it. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const char *only = "";

enum { SLICES = 16, SLICE_COLUMNS = 256, PEAK_ROUNDS = 20000 };

typedef struct shape {
    const char *what;
    int m, n, k;
} shape;

static double peak_of(const pi0_gemm_kernel *kernel)
{
    uint64_t start = cpu_ns();
    double flop = kernel->peak(PEAK_ROUNDS);
    return flop / (double)(cpu_ns() - start);
}

static void *filled(size_t count, pi0_dtype dtype)
{
    size_t element = dtype == PI0_F32 ? 4 : 2;
    void *data = pi0_alloc(count * element);
    if (data == NULL) {
        fprintf(stderr, "bench_kernels: not enough memory for %zu elements\n", count);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        float x = (float)((i * 2654435761u >> 16) % 1000) / 1000.0f - 0.5f;
        if (dtype == PI0_F32)
            ((float *)data)[i] = x;
        else
            ((uint16_t *)data)[i] = dtype == PI0_BF16 ? pi0_bf16_from_f32(x) : pi0_f16_from_f32(x);
    }
    return data;
}

enum { THREADS_MOST = 64, TIMES_MOST = 256 };
static int threads = 1;

typedef void (*run_slice)(void *context, int slice, int thread);

typedef struct worker {
    const pi0_gemm_kernel *kernel;
    run_slice run;
    void *context;
    double flop; /* of one slice */
    int slices, thread, times;
    double rate[TIMES_MOST], peak[TIMES_MOST];
} worker;

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *work(void *of)
{
    worker *w = of;
    for (int i = 0; i < w->times; i++) {
        const uint64_t start = cpu_ns();
        w->run(w->context, (i * threads + w->thread) % w->slices, w->thread);
        w->rate[i] = w->flop / (double)(cpu_ns() - start);
        w->peak[i] = peak_of(w->kernel);
    }
    qsort(w->rate, (size_t)w->times, sizeof w->rate[0], ascending);
    qsort(w->peak, (size_t)w->times, sizeof w->peak[0], ascending);
    return NULL;
}

/* Calls run for every slice, at least SLICES times, between peak loops. */
static void measure(const char *isa, const pi0_gemm_kernel *kernel, const char *what, double flop, int slices, run_slice run, void *context)
{
    static worker workers[THREADS_MOST];
    pthread_t id[THREADS_MOST];
    const int each = (slices + threads - 1) / threads, times = pi0_min_int(each > SLICES ? each : SLICES, TIMES_MOST);
    (void)peak_of(kernel); /* the clock settles */
    for (int t = 0; t < threads; t++) {
        workers[t] =
            (worker){.kernel = kernel, .run = run, .context = context, .flop = flop, .slices = slices, .thread = t, .times = times};
        if (pthread_create(&id[t], NULL, work, &workers[t]) != 0) {
            fprintf(stderr, "bench_kernels: no %d threads\n", threads);
            exit(1);
        }
    }
    double best = 0.0, middle = 0.0, best_peak = 0.0, middle_peak = 0.0;
    for (int t = 0; t < threads; t++) {
        pthread_join(id[t], NULL);
        best += workers[t].rate[times - 1], middle += workers[t].rate[times / 2];
        best_peak += workers[t].peak[times - 1], middle_peak += workers[t].peak[times / 2];
    }
    printf("%-11s %-52s %7.1f GFLOP/s  %5.1f%% of %.1f; median %7.1f  %5.1f%% of %.1f\n", isa, what, best, 100.0 * best / best_peak,
           best_peak, middle, 100.0 * middle / middle_peak, middle_peak);
    fflush(stdout);
}

typedef struct gemm_run {
    const pi0_gemm_kernel *kernel;
    pi0_gemm g;
    void *prepared, *workspace[THREADS_MOST];
} gemm_run;

/* Prepares its share of x too: a slice costs what it costs in a whole product. */
static void run_gemm(void *context, int slice, int thread)
{
    gemm_run *r = context;
    const int tiles = pi0_tiles(r->g.m, r->kernel->tile_rows), slices = r->g.part[0].n / SLICE_COLUMNS;
    const int panels = SLICE_COLUMNS / r->kernel->tile_cols;
    r->kernel->prepare(&r->g, 0, r->g.k, tiles * slice / slices, tiles * (slice + 1) / slices, r->prepared);
    r->kernel->multiply(&r->g, 0, r->g.k, 0, tiles, slice * panels, (slice + 1) * panels, r->prepared, r->workspace[thread]);
}

static void bench_gemm(const pi0_kernels *k, pi0_gemm_form form, const shape *s, pi0_dtype dtype)
{
    const pi0_gemm_kernel *kernel = &k->gemm[form];
    char what[96];
    snprintf(what, sizeof what, "%s %dx%dx%d %s %s", s->what, s->m, s->n, s->k, kernel->title, pi0_dtype_name(dtype));
    if (!strstr(what, only))
        return;
    size_t m = (size_t)s->m, n = (size_t)s->n, depth = (size_t)s->k;
    float *x = filled(m * depth, PI0_F32), *y = filled(m * n, PI0_F32);
    void *w = filled(n * depth, dtype);
    gemm_run r = {
        .kernel = kernel,
        .g = {.x = x, .ldx = depth, .part = {{.w = w, .n = s->n, .y = y, .ldy = n}}, .w_dtype = dtype, .ldw = depth, .m = s->m, .k = s->k},
        .prepared = filled(kernel->x_bytes(s->m, s->k) / 4, PI0_F32)};
    for (int t = 0; t < threads; t++)
        r.workspace[t] = filled(kernel->workspace_bytes(&r.g) / 4, PI0_F32);
    void *packed_w = filled(kernel->packed_bytes(&r.g) / 4, PI0_F32);
    kernel->prepare(&r.g, 0, s->k, 0, pi0_tiles(s->m, kernel->tile_rows), r.prepared);
    kernel->pack(&r.g, 0, pi0_panels(&r.g, kernel->tile_cols), packed_w);
    r.g.packed = packed_w;
    measure(k->isa, kernel, what, 2.0 * (double)m * SLICE_COLUMNS * (double)depth, s->n / SLICE_COLUMNS, run_gemm, &r);
    pi0_free(x);
    pi0_free(y);
    pi0_free(w);
    pi0_free(packed_w);
    pi0_free(r.prepared);
    for (int t = 0; t < threads; t++)
        pi0_free(r.workspace[t]);
}

static int attention_parts(int kv_heads)
{
    return kv_heads < threads ? threads : 1;
}

typedef struct attention_run {
    const pi0_kernels *kernels;
    pi0_gemm_form form;
    pi0_attention a;
    void *workspace[THREADS_MOST];
} attention_run;

/* Threads beyond the heads of keys share one head's rows, as the device has it. */
static void run_attention(void *context, int slice, int thread)
{
    attention_run *r = context;
    const int parts = attention_parts(r->a.kv_heads), head = slice / parts, part = slice % parts;
    r->kernels->attention[r->form](&r->a, head, r->a.rows * part / parts, r->a.rows * (part + 1) / parts, r->workspace[thread]);
}

static void bench_attention(const pi0_kernels *k, pi0_gemm_form form, const char *name, int rows, int keys, int keys2, int heads,
                            int kv_heads, int d)
{
    char what[96];
    snprintf(what, sizeof what, "attention %s %d rows %d+%d keys %dx%d %s", name, rows, keys, keys2, heads, d, pi0_gemm_form_names[form]);
    if (!strstr(what, only))
        return;
    size_t wide = (size_t)heads * (size_t)d, narrow = (size_t)kv_heads * (size_t)d;
    float *q = filled((size_t)rows * wide, PI0_F32), *out = filled((size_t)rows * wide, PI0_F32);
    float *kv = filled((size_t)(keys + keys2) * narrow, PI0_F32);
    attention_run r = {.kernels = k,
                       .form = form,
                       .a = {.q = q,
                             .ldq = wide,
                             .k = kv,
                             .v = kv,
                             .ldkv = narrow,
                             .out = out,
                             .ldo = wide,
                             .rows = rows,
                             .keys = keys,
                             .keys2 = keys2,
                             .heads = heads,
                             .kv_heads = kv_heads,
                             .d = d,
                             .scale = 0.1f}};
    for (int t = 0; t < threads; t++)
        r.workspace[t] = filled(k->attention_workspace / 4, PI0_F32);
    if (keys2 > 0)
        r.a.k2 = r.a.v2 = kv + (size_t)keys * narrow, r.a.ldkv2 = narrow;
    const int parts = attention_parts(kv_heads);
    measure(k->isa, &k->gemm[form], what, 4.0 * rows * (double)(keys + keys2) * d * (heads / kv_heads) / parts, kv_heads * parts,
            run_attention, &r);
    pi0_free(q);
    pi0_free(out);
    pi0_free(kv);
    for (int t = 0; t < threads; t++)
        pi0_free(r.workspace[t]);
}

static void bench_isa(const char *name)
{
    pi0_kernels k;
    pi0_error err = {0};
    if (pi0_kernels_select(name, &k, &err) != PI0_OK) {
        fprintf(stderr, "bench_kernels: %s\n", err.what);
        pi0_error_clear(&err);
        exit(2);
    }
    static const shape shapes[] = {
        {"prefix gate", 558, 16384, 2048}, {"prefix down", 558, 2048, 16384}, {"vision fc1", 256, 4304, 1152},
        {"vision qkv", 256, 1152, 1152},   {"expert gate", 51, 4096, 1024},   {"expert down", 51, 1024, 4096},
        {"expert q", 51, 2048, 1024},      {"one row", 1, 4096, 1024},
    };
    enum { GATE = 4 };
    for (int form = 0; form < PI0_GEMM_FORMS; form++) {
        if (k.gemm[form].multiply == NULL)
            continue;
        for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++)
            bench_gemm(&k, form, &shapes[i], PI0_BF16);
        bench_gemm(&k, form, &shapes[GATE], PI0_F32);
    }
    for (int form = 0; form < PI0_GEMM_FORMS; form++) {
        if (k.attention[form] == NULL)
            continue;
        bench_attention(&k, form, "vision", 256, 256, 0, 16, 16, 72);
        bench_attention(&k, form, "prefix", 558, 558, 0, 8, 1, 256);
        bench_attention(&k, form, "step", 51, 558, 51, 8, 1, 256);
    }
}

static void usage(void)
{
    fprintf(stderr, "usage: bench_kernels [--threads N] [--only TEXT] [isa ...]   N from 1 to %d\n", THREADS_MOST);
    exit(2);
}

int main(int argc, char **argv)
{
    int named = 1;
    for (; named < argc && argv[named][0] == '-'; named += 2) {
        if (named + 1 == argc)
            usage();
        if (!strcmp(argv[named], "--only"))
            only = argv[named + 1];
        else if (!strcmp(argv[named], "--threads"))
            threads = atoi(argv[named + 1]);
        else
            usage();
    }
    if (threads < 1 || threads > THREADS_MOST)
        usage();
    for (int i = named; i < argc; i++)
        bench_isa(argv[i]);
    pi0_isa_report report[16];
    size_t n = argc > named ? 0 : pi0_kernels_report(report, 16);
    for (size_t i = 0; i < n && i < 16; i++)
        if (report[i].usable)
            bench_isa(report[i].name);
    return 0;
}
