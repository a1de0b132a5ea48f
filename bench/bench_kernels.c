/* bench_kernels - a stopwatch for the products and the attention at the shapes of the published models, one thread.
 *
 * Usage: bench_kernels [--only TEXT] [isa ...]   (default: every usable one; TEXT: lines that contain it)
 * Each line is GFLOP/s and the fraction of a loop of multiply-adds on registers alone, of the same vector width, run between the slices
 * of the work: the two see the same clock and the same neighbours. A slice is what a device would give to a thread (some columns of a
 * product, one head of an attention); the best slice and the best loop are compared, so that a machine that is slowed down now and then
 * still gives a usable fraction.
 */
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

/* Calls run(context, slice) for every slice, at least SLICES times, between peak loops. flop: of one slice. */
static void measure(const char *isa, const pi0_gemm_kernel *kernel, const char *what, double flop, int slices, void (*run)(void *, int),
                    void *context)
{
    double best = 0.0, peak = peak_of(kernel);
    int times = slices > SLICES ? slices : SLICES;
    for (int i = 0; i < times; i++) {
        uint64_t start = cpu_ns();
        run(context, i % slices);
        double rate = flop / (double)(cpu_ns() - start), now = peak_of(kernel);
        best = rate > best ? rate : best;
        peak = now > peak ? now : peak;
    }
    printf("%-11s %-52s %7.1f GFLOP/s  %5.1f%% of %.1f\n", isa, what, best, 100.0 * best / peak, peak);
    fflush(stdout);
}

typedef struct gemm_run {
    const pi0_gemm_kernel *kernel;
    pi0_gemm g;
    void *prepared, *workspace;
} gemm_run;

/* Prepares its share of x too: a slice costs what it costs in a whole product. */
static void run_gemm(void *context, int slice)
{
    gemm_run *r = context;
    const int tiles = pi0_tiles(r->g.m, r->kernel->tile_rows), slices = r->g.part[0].n / SLICE_COLUMNS;
    const int panels = SLICE_COLUMNS / r->kernel->tile_cols;
    r->kernel->prepare(&r->g, 0, r->g.k, tiles * slice / slices, tiles * (slice + 1) / slices, r->prepared);
    r->kernel->multiply(&r->g, 0, r->g.k, 0, tiles, slice * panels, (slice + 1) * panels, r->prepared, r->workspace);
}

static void bench_gemm(const pi0_kernels *k, pi0_gemm_form form, const shape *s, pi0_dtype dtype, bool packed)
{
    const pi0_gemm_kernel *kernel = &k->gemm[form];
    char what[96];
    snprintf(what, sizeof what, "%s %dx%dx%d %s %s %s", s->what, s->m, s->n, s->k, kernel->title, pi0_dtype_name(dtype),
             packed ? "packed" : "as stored");
    if (!strstr(what, only))
        return;
    size_t m = (size_t)s->m, n = (size_t)s->n, depth = (size_t)s->k;
    float *x = filled(m * depth, PI0_F32), *y = filled(m * n, PI0_F32);
    void *w = filled(n * depth, dtype);
    gemm_run r = {
        .kernel = kernel,
        .g = {.x = x, .ldx = depth, .part = {{.w = w, .n = s->n, .y = y, .ldy = n}}, .w_dtype = dtype, .ldw = depth, .m = s->m, .k = s->k},
        .prepared = filled(kernel->x_bytes(s->m, s->k) / 4, PI0_F32)};
    r.workspace = filled(kernel->workspace_bytes(&r.g) / 4, PI0_F32);
    void *packed_w = packed ? filled(kernel->packed_bytes(&r.g) / 4, PI0_F32) : NULL;
    kernel->prepare(&r.g, 0, s->k, 0, pi0_tiles(s->m, kernel->tile_rows), r.prepared);
    if (packed)
        kernel->pack(&r.g, 0, pi0_panels(&r.g, kernel->tile_cols), packed_w);
    r.g.packed = packed_w;
    measure(k->isa, kernel, what, 2.0 * (double)m * SLICE_COLUMNS * (double)depth, s->n / SLICE_COLUMNS, run_gemm, &r);
    pi0_free(x);
    pi0_free(y);
    pi0_free(w);
    pi0_free(packed_w);
    pi0_free(r.prepared);
    pi0_free(r.workspace);
}

typedef struct attention_run {
    const pi0_kernels *kernels;
    pi0_gemm_form form;
    pi0_attention a;
    void *workspace;
} attention_run;

static void run_attention(void *context, int slice)
{
    attention_run *r = context;
    r->kernels->attention[r->form](&r->a, slice, 0, r->a.rows, r->workspace);
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
                             .scale = 0.1f},
                       .workspace = filled(k->attention_workspace / 4, PI0_F32)};
    if (keys2 > 0)
        r.a.k2 = r.a.v2 = kv + (size_t)keys * narrow, r.a.ldkv2 = narrow;
    measure(k->isa, &k->gemm[form], what, 4.0 * rows * (double)(keys + keys2) * d * (heads / kv_heads), kv_heads, run_attention, &r);
    pi0_free(q);
    pi0_free(out);
    pi0_free(kv);
    pi0_free(r.workspace);
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
    enum { SHORT = 4 }; /* from here on a checkpoint's weights are packed when it is opened (device/cpu/weights.c) */
    for (int form = 0; form < PI0_GEMM_FORMS; form++) {
        if (k.gemm[form].multiply == NULL)
            continue;
        for (int i = 0; i < (int)(sizeof shapes / sizeof shapes[0]); i++)
            bench_gemm(&k, form, &shapes[i], PI0_BF16, i >= SHORT || form == PI0_GEMM_I8);
        bench_gemm(&k, form, &shapes[SHORT], PI0_F32, true);
    }
    for (int form = 0; form < PI0_GEMM_FORMS; form++) {
        if (k.attention[form] == NULL)
            continue;
        bench_attention(&k, form, "vision", 256, 256, 0, 16, 16, 72);
        bench_attention(&k, form, "prefix", 558, 558, 0, 8, 1, 256);
        bench_attention(&k, form, "step", 51, 558, 51, 8, 1, 256);
    }
}

int main(int argc, char **argv)
{
    int named = 1;
    if (argc > 2 && !strcmp(argv[1], "--only")) {
        only = argv[2];
        named = 3;
    }
    for (int i = named; i < argc; i++)
        bench_isa(argv[i]);
    pi0_isa_report report[16];
    size_t n = argc > named ? 0 : pi0_kernels_report(report, 16);
    for (size_t i = 0; i < n && i < 16; i++)
        if (report[i].usable)
            bench_isa(report[i].name);
    return 0;
}
