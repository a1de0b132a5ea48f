/* compare_gemm - the products of the published models, ours beside oneDNN's and OpenBLAS's (docs/compare.md).
 *
 * Usage: compare_gemm [--threads 1,2] [--kinds f32,bf16,int8] [--m 50,558] [--rounds 5] [--divide 1] [--json FILE]
 *
 * Everybody gets the same numbers. In every round each contestant multiplies once, and before it a loop of multiply-adds on registers
 * alone runs on the same threads: all see the same clock and the same neighbours. A share of that peak and a ratio of two contestants are
 * taken within a round; what is printed are medians over the rounds.
 */
#include <dlfcn.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/base.h"
#include "gemm.h"
#include "kernels/kernels.h"

enum { MAX_ROUNDS = 99, MAX_LIST = 16, PAUSE_MS = 50 };

static const char *const kind_names[KINDS] = {"f32", "bf16", "int8"};
/* The sums are done in another order, int8 is rounded in another way; a wrong product is far outside. */
static const double furthest[KINDS] = {1e-6, 1e-6, 1e-3};

/* What a tower multiplies by, and how many rows it meets: a picture's patches, two or three pictures and a prompt, a chunk of actions. */
typedef struct tower {
    const char *name;
    int m[4];
    struct {
        const char *name;
        int n, k;
    } product[6];
} tower;

static const tower towers[] = {
    {"vision", {256}, {{"qkv, out", 1152, 1152}, {"fc1", 4304, 1152}, {"fc2", 1152, 4304}}},
    {"prefix", {532, 558, 816}, {{"q, out", 2048, 2048}, {"gate+up", 32768, 2048}, {"down", 2048, 16384}}},
    {"expert", {50}, {{"qkv", 2560, 1024}, {"out", 1024, 2048}, {"gate or up", 4096, 1024}, {"down", 1024, 4096}}},
};

static const contestant *const contestants[] = {
    &contestant_pi0,
#ifdef HAVE_ONEDNN
    &contestant_onednn,
#endif
#ifdef HAVE_OPENBLAS
    &contestant_openblas,
#endif
};

enum { CONTESTANTS = sizeof contestants / sizeof *contestants, TOWERS = sizeof towers / sizeof *towers };

typedef struct settings {
    int threads[MAX_LIST], m[MAX_LIST]; /* end with 0; no m: each tower's own */
    bool kinds[KINDS];
    int rounds, divide;
    FILE *json;
} settings;

/* ------------------------------------------------------------------ for the contestants */

void *need(void *memory)
{
    if (memory)
        return memory;
    fprintf(stderr, "compare_gemm: not enough memory\n");
    exit(1);
}

float *widened(const problem *p)
{
    const size_t count = (size_t)p->n * (size_t)p->k;
    float *out = need(pi0_alloc(count * sizeof *out));
    for (size_t i = 0; i < count; i++)
        out[i] = pi0_f32_from_bf16(p->w[i]);
    return out;
}

void set_openmp_threads(int threads)
{
    void (*set)(int);
    *(void **)&set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set)
        set(threads);
}

/* ------------------------------------------------------------------ the peak */

typedef struct peak {
    pi0_pool *pool;
    const pi0_gemm_kernel *kernel; /* NULL: this chip has none of the kind */
    int threads, rounds;
    atomic_int arrived;
    double flop[PI0_MAX_THREADS];
} peak;

/* Waits for the others, so that every thread takes one task. */
static void run_peak(void *context, int task, int thread)
{
    peak *p = context;
    (void)task;
    atomic_fetch_add(&p->arrived, 1);
    while (atomic_load(&p->arrived) < p->threads)
        sched_yield();
    p->flop[thread] = p->kernel->peak(p->rounds);
}

static double peak_gflops(peak *p)
{
    if (!p->kernel)
        return 0;
    double flop = 0;
    atomic_store(&p->arrived, 0);
    const uint64_t start = pi0_now_ns();
    pi0_pool_run(p->pool, run_peak, p, p->threads);
    const double ns = (double)(pi0_now_ns() - start);
    for (int i = 0; i < p->threads; i++)
        flop += p->flop[i];
    if (ns < 20e6 && p->rounds < 1 << 28) { /* long enough to see what the products see */
        p->rounds *= 2;
        return peak_gflops(p);
    }
    return flop / ns;
}

/* ------------------------------------------------------------------ one problem */

typedef struct result {
    double ms[MAX_ROUNDS], share[MAX_ROUNDS], ratio[MAX_ROUNDS]; /* of the peak; to the first contestant */
    void *product;
    const char *why; /* it does not take part */
    float *y;
} result;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_size);
    return (sorted[n / 2] + sorted[(n - 1) / 2]) / 2;
}

/* 1 - cosine: blind to the scale, which whole numbers leave out. */
static double distance(const float *a, const float *b, size_t count)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < count; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return aa > 0 && bb > 0 ? 1 - ab / sqrt(aa * bb) : 1;
}

/* A library's threads look for more work for some time after a call; nobody shall measure those of another. */
static void let_settle(void)
{
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000L}, NULL);
}

static double timed_ms(const contestant *c, result *r)
{
    let_settle();
    const uint64_t start = pi0_now_ns();
    c->run(r->product);
    return (double)(pi0_now_ns() - start) * 1e-6;
}

/* Opens all, lets each multiply once, which is not timed, and compares what comes out with the first one's. */
static void prepare(const problem *p, result *results)
{
    const size_t count = (size_t)p->m * (size_t)p->n;
    const result *first = NULL;
    for (int i = 0; i < CONTESTANTS; i++) {
        result *r = &results[i];
        problem own = *p;
        own.y = r->y = need(pi0_alloc(pi0_round_up(count * sizeof(float), PI0_ALIGN)));
        r->product = contestants[i]->open(&own, &r->why);
        if (!r->product)
            continue;
        contestants[i]->run(r->product);
        if (first && distance(first->y, r->y, count) > furthest[p->kind])
            r->why = "WRONG RESULT";
        first = first ? first : r;
    }
}

static double compete(const problem *p, int rounds, peak *at_most, result *results)
{
    const double gflop = 2e-9 * p->m * (double)p->n * p->k;
    double peaks[MAX_ROUNDS];
    for (int round = 0; round < rounds; round++) {
        peaks[round] = 0;
        for (int i = 0; i < CONTESTANTS; i++) {
            result *r = &results[i];
            if (!r->product)
                continue;
            let_settle();
            const double limit = peak_gflops(at_most);
            r->ms[round] = timed_ms(contestants[i], r);
            r->share[round] = limit > 0 ? gflop / (r->ms[round] * 1e-3) / limit : 0;
            r->ratio[round] = results[0].product ? r->ms[round] / results[0].ms[round] : 0;
            peaks[round] = limit > peaks[round] ? limit : peaks[round];
        }
    }
    return median(peaks, rounds);
}

/* ------------------------------------------------------------------ reports */

static void print_row(const problem *p, const char *what, double at_most, int rounds, const result *results)
{
    const double gflop = 2e-9 * p->m * (double)p->n * p->k;
    printf("%-18s %4d x %5d x %5d  %4s %d  %7.1f", what, p->m, p->n, p->k, kind_names[p->kind], p->threads, at_most);
    for (int i = 0; i < CONTESTANTS; i++) {
        const result *r = &results[i];
        if (r->why) {
            printf("  | %s: %s", contestants[i]->name, r->why);
            continue;
        }
        printf("  | %s %.1f", contestants[i]->name, gflop / (median(r->ms, rounds) * 1e-3));
        if (at_most > 0)
            printf(" %.1f%%", 100 * median(r->share, rounds));
        if (i > 0 && results[0].product)
            printf(" %.2fx", median(r->ratio, rounds));
    }
    printf("\n");
    fflush(stdout);
}

static void write_json(FILE *out, const problem *p, const char *what, double at_most, int rounds, const result *results)
{
    static const char *before = "[\n";
    fprintf(out, "%s {\"product\": \"%s\", \"m\": %d, \"n\": %d, \"k\": %d, \"kind\": \"%s\", \"threads\": %d, \"rounds\": %d,", before,
            what, p->m, p->n, p->k, kind_names[p->kind], p->threads, rounds);
    before = ",\n";
    fprintf(out, " \"peak_gflops\": %.2f, \"contestants\": {", at_most);
    for (int i = 0; i < CONTESTANTS; i++) {
        const result *r = &results[i];
        fprintf(out, "%s\"%s\": ", i ? ", " : "", contestants[i]->name);
        if (r->why)
            fprintf(out, "{\"skipped\": \"%s\"}", r->why);
        else
            fprintf(out, "{\"ms\": %.4f, \"fraction_of_peak\": %.4f, \"times_of_pi0\": %.4f}", median(r->ms, rounds),
                    median(r->share, rounds), median(r->ratio, rounds));
    }
    fprintf(out, "}}");
}

/* For the geometric means: every product weighs the same, however long it takes or often it is done. */
static double log_ratio[KINDS][2 /* threads: 1, more */][CONTESTANTS];
static int ratios[KINDS][2][CONTESTANTS], wrong;

static void add_up(const problem *p, int rounds, const result *results)
{
    for (int i = 1; i < CONTESTANTS; i++)
        if (!results[i].why && results[0].product) {
            log_ratio[p->kind][p->threads > 1][i] += log(median(results[i].ratio, rounds));
            ratios[p->kind][p->threads > 1][i]++;
        } else if (results[i].product) {
            wrong++;
        }
}

static void print_sums(void)
{
    for (int many = 0; many < 2; many++)
        for (int k = 0; k < KINDS; k++)
            for (int i = 1; i < CONTESTANTS; i++)
                if (ratios[k][many][i])
                    printf("%s, %s: %s takes %.3f times as long as pi0 (geometric mean of %d products)\n", kind_names[k],
                           many ? "all threads" : "1 thread", contestants[i]->name, exp(log_ratio[k][many][i] / ratios[k][many][i]),
                           ratios[k][many][i]);
}

/* ------------------------------------------------------------------ all problems */

static void do_problem(const settings *s, const problem *p, const char *what)
{
    result *results = need(calloc(CONTESTANTS, sizeof *results));
    pi0_kernels kernels;
    pi0_error err = {0};
    peak at_most = {.threads = p->threads, .rounds = 1000};
    if (pi0_kernels_select(NULL, &kernels, &err) != PI0_OK || pi0_pool_open(p->threads, &at_most.pool, &err) != PI0_OK)
        exit(1);
    if (kernels.gemm[p->kind].multiply)
        at_most.kernel = &kernels.gemm[p->kind];
    prepare(p, results);
    const double limit = compete(p, s->rounds, &at_most, results);
    print_row(p, what, limit, s->rounds, results);
    if (s->json)
        write_json(s->json, p, what, limit, s->rounds, results);
    add_up(p, s->rounds, results);
    for (int i = 0; i < CONTESTANTS; i++) {
        if (results[i].product)
            contestants[i]->close(results[i].product);
        pi0_free(results[i].y);
    }
    pi0_pool_close(&at_most.pool);
    free(results);
}

/* Values spread over (-0.5, 0.5); those of w are given as bf16. */
static float value(size_t i)
{
    return (float)((i * 2654435761u >> 16) % 1000) / 1000.0f - 0.4995f;
}

static void do_tower(const settings *s, const tower *t, problem p)
{
    const int *m = s->m[0] ? s->m : t->m;
    for (int i = 0; m[i]; i++)
        for (int j = 0; t->product[j].name; j++) {
            char what[64];
            snprintf(what, sizeof what, "%s %s", t->name, t->product[j].name);
            p.m = m[i];
            p.n = t->product[j].n / s->divide;
            p.k = t->product[j].k / s->divide;
            do_problem(s, &p, what);
        }
}

static void do_all(const settings *s)
{
    int most_m = 0;
    for (int i = 0; s->m[i]; i++)
        most_m = s->m[i] > most_m ? s->m[i] : most_m;
    const size_t x_count = (size_t)(most_m > 816 ? most_m : 816) * 16384, w_count = (size_t)32768 * 2048;
    float *x = need(pi0_alloc(x_count * sizeof *x));
    uint16_t *w = need(pi0_alloc(w_count * sizeof *w));
    for (size_t i = 0; i < x_count; i++)
        x[i] = value(i);
    for (size_t i = 0; i < w_count; i++)
        w[i] = pi0_bf16_from_f32(value(i + 12345));
    for (int i = 0; s->threads[i]; i++)
        for (int k = 0; k < KINDS; k++)
            for (int t = 0; t < TOWERS && s->kinds[k]; t++)
                do_tower(s, &towers[t], (problem){.kind = (kind)k, .threads = s->threads[i], .x = x, .w = w});
    pi0_free(x);
    pi0_free(w);
}

/* ------------------------------------------------------------------ options */

static void usage(void)
{
    fprintf(stderr, "usage: compare_gemm [--threads 1,2] [--kinds f32,bf16,int8] [--m 50,558] [--rounds 5] [--divide 1] [--json FILE]\n");
    exit(2);
}

static int positive(const char *text, int most)
{
    char *end;
    const long n = strtol(text, &end, 10);
    if ((*end && *end != ',') || n < 1 || n > most)
        usage();
    return (int)n;
}

static void read_list(const char *text, int list[MAX_LIST], int most)
{
    memset(list, 0, MAX_LIST * sizeof *list);
    for (int i = 0; text && i < MAX_LIST - 1; i++) {
        list[i] = positive(text, most);
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
}

static void read_kinds(const char *text, bool kinds[KINDS])
{
    for (int k = 0; k < KINDS; k++)
        kinds[k] = strstr(text, kind_names[k]) != NULL;
}

static settings read_options(int argc, char **argv)
{
    settings s = {.threads = {1, 2}, .kinds = {true, true, true}, .rounds = 5, .divide = 1};
    for (int i = 1; i < argc; i += 2) {
        const char *name = argv[i], *text = argv[i + 1];
        if (!text)
            usage();
        if (!strcmp(name, "--threads"))
            read_list(text, s.threads, PI0_MAX_THREADS);
        else if (!strcmp(name, "--m"))
            read_list(text, s.m, 4096);
        else if (!strcmp(name, "--kinds"))
            read_kinds(text, s.kinds);
        else if (!strcmp(name, "--rounds"))
            s.rounds = positive(text, MAX_ROUNDS);
        else if (!strcmp(name, "--divide"))
            s.divide = positive(text, 64);
        else if (strcmp(name, "--json") != 0 || !(s.json = fopen(text, "we")))
            usage();
    }
    return s;
}

int main(int argc, char **argv)
{
    settings s = read_options(argc, argv);
    for (int i = 0; i < CONTESTANTS; i++)
        printf("%s: %s\n", contestants[i]->name, contestants[i]->version());
#ifndef HAVE_ONEDNN
    printf("onednn: skipped, not found when this was built (Debian: libdnnl-dev)\n");
#endif
#ifndef HAVE_OPENBLAS
    printf("openblas: skipped, not found when this was built (Debian: libopenblas-dev)\n");
#endif
    printf("product              m x n x k, kind, threads, GFLOP/s of registers alone | GFLOP/s, share of that, time as a multiple of "
           "pi0's\n");
    do_all(&s);
    print_sums();
    if (s.json) {
        fprintf(s.json, "\n]\n");
        fclose(s.json);
    }
    return wrong ? 1 : 0;
}
