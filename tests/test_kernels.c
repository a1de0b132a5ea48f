/* Every kernel of every instruction set that this machine can run, against plain loops in double.
 *
 * Matrices are guarded: before, between and after the columns of each row lie NaNs of one bit pattern. A kernel that reads them spoils
 * its result, one that writes them is found by guard_check, and the memory ends with the last element for AddressSanitizer.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

#include "kernels/ref/simd.h"

#include "kernels/vector_tpl.h"

#define U 5.9604645e-8 /* half a unit in the last place of f32 */

enum { MAX_ISAS = 8, FRONT = 5, GAP = 3 };

static const uint32_t guard_bits = 0x7fc0beefu;

static pi0_kernels isas[MAX_ISAS];
static int isa_count;

static int load_isas(void **state)
{
    (void)state;
    pi0_isa_report report[MAX_ISAS];
    size_t n = pi0_kernels_report(report, MAX_ISAS);
    for (size_t i = 0; i < n; i++) {
        if (!report[i].usable) {
            print_message("instruction set %s not tested: %s\n", report[i].name, report[i].reason);
            continue;
        }
        if (pi0_kernels_select(report[i].name, &isas[isa_count++], NULL) != PI0_OK)
            return 1;
    }
    return isa_count == 0;
}

#define EACH_ISA(k) for (const pi0_kernels *k = isas; k < isas + isa_count; k++)

/* ------------------------------------------------------------------ data */

static uint32_t seed_now = 1;

static float uniform(void) /* [-1,1) */
{
    seed_now = seed_now * 1664525u + 1013904223u;
    return (float)(int32_t)seed_now * 0x1p-31f;
}

typedef struct guarded {
    float *base, *at; /* [rows, cols] */
    size_t ld, count;
    int rows, cols;
} guarded;

static guarded guarded_new(int rows, int cols)
{
    guarded g = {.rows = rows, .cols = cols, .ld = (size_t)cols + GAP};
    g.count = FRONT + (rows > 0 ? (size_t)(rows - 1) * g.ld + (size_t)cols : 0);
    g.base = malloc(g.count * sizeof(float));
    assert_non_null(g.base);
    for (size_t i = 0; i < g.count; i++)
        memcpy(g.base + i, &guard_bits, sizeof guard_bits);
    g.at = g.base + FRONT;
    return g;
}

static guarded guarded_random(int rows, int cols, float size)
{
    guarded g = guarded_new(rows, cols);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            g.at[(size_t)r * g.ld + (size_t)c] = size * uniform();
    return g;
}

static void guarded_free(guarded *g) { free(g->base); }

/* Everything outside rows [r0,r1) x columns [c0,c1) still holds the guard. */
static void guard_check(const guarded *g, int r0, int r1, int c0, int c1)
{
    for (size_t i = 0; i < g->count; i++) {
        if (i >= FRONT) {
            int r = (int)((i - FRONT) / g->ld), c = (int)((i - FRONT) % g->ld);
            if (r >= r0 && r < r1 && c >= c0 && c < c1)
                continue;
        }
        assert_memory_equal(g->base + i, &guard_bits, sizeof guard_bits);
    }
}

static float *cell(const guarded *g, int r, int c) { return g->at + (size_t)r * g->ld + (size_t)c; }

static void same_bits(const guarded *a, const guarded *b)
{
    for (int r = 0; r < a->rows; r++)
        assert_memory_equal(cell(a, r, 0), cell(b, r, 0), (size_t)a->cols * sizeof(float));
}

static void close_to(double got, double expected, double bound, const char *isa, const char *what)
{
    if (!(fabs(got - expected) <= bound)) /* written so that a NaN fails */
        fail_msg("%s %s: got %.9g, expected %.9g, bound %.3g", isa, what, got, expected, bound);
}

/* A stored weight matrix: the exact values as float, and the bytes as a checkpoint has them. */
typedef struct weights {
    guarded value;
    void *stored;
    size_t ld;
    pi0_dtype dtype;
} weights;

static uint16_t half_from(float x, pi0_dtype dtype) { return dtype == PI0_BF16 ? pi0_bf16_from_f32(x) : pi0_f16_from_f32(x); }
static float half_to(uint16_t x, pi0_dtype dtype) { return dtype == PI0_BF16 ? pi0_f32_from_bf16(x) : pi0_f32_from_f16(x); }

static weights weights_from(guarded value, pi0_dtype dtype)
{
    weights w = {.value = value, .dtype = dtype, .ld = (size_t)value.cols + 1};
    size_t element = dtype == PI0_F32 ? 4 : 2;
    w.stored = malloc(((size_t)value.rows * w.ld + 1) * element);
    assert_non_null(w.stored);
    memset(w.stored, 0xff, ((size_t)value.rows * w.ld + 1) * element); /* NaN in all three formats */
    for (int r = 0; r < value.rows; r++)
        for (int c = 0; c < value.cols; c++) {
            size_t at = (size_t)r * w.ld + (size_t)c;
            if (dtype == PI0_F32) {
                ((float *)w.stored)[at] = *cell(&value, r, c);
            } else {
                ((uint16_t *)w.stored)[at] = half_from(*cell(&value, r, c), dtype);
                *cell(&value, r, c) = half_to(((uint16_t *)w.stored)[at], dtype);
            }
        }
    return w;
}

static void weights_free(weights *w)
{
    guarded_free(&w->value);
    free(w->stored);
}

/* ------------------------------------------------------------------ gemm */

static void run_gemm(const pi0_kernels *k, const pi0_gemm *g, int m0, int m1, int n0, int n1)
{
    void *workspace = pi0_alloc(k->gemm_workspace);
    assert_non_null(workspace);
    memset(workspace, 0xff, k->gemm_workspace);
    k->gemm(g, m0, m1, n0, n1, workspace);
    pi0_free(workspace);
}

static pi0_gemm gemm_of(const guarded *x, const weights *w, const guarded *bias, const guarded *y)
{
    return (pi0_gemm){.x = x->at, .ldx = x->ld, .w = w->stored, .w_dtype = w->dtype, .ldw = w->ld,
                      .bias = bias != NULL ? bias->at : NULL, .y = y->at, .ldy = y->ld, .m = x->rows, .n = w->value.rows, .k = x->cols};
}

static void check_gemm(const pi0_kernels *k, int m, int n, int depth, pi0_dtype dtype, bool with_bias)
{
    guarded x = guarded_random(m, depth, 2.0f), bias = guarded_random(1, n, 1.0f), y = guarded_new(m, n);
    weights w = weights_from(guarded_random(n, depth, 1.0f), dtype);
    pi0_gemm g = gemm_of(&x, &w, with_bias ? &bias : NULL, &y);
    run_gemm(k, &g, 0, m, 0, n);
    guard_check(&y, 0, m, 0, n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = with_bias ? *cell(&bias, 0, j) : 0.0, size = fabs(sum);
            for (int c = 0; c < depth; c++) {
                double term = (double)*cell(&x, i, c) * (double)*cell(&w.value, j, c);
                sum += term;
                size += fabs(term);
            }
            close_to(*cell(&y, i, j), sum, (pi0_min_int(depth, 256) + depth / 256 + 3) * U * size, k->isa, "gemm");
        }
    guarded_free(&x), guarded_free(&bias), guarded_free(&y), weights_free(&w);
}

static void gemm_matches_double(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 1, 1},    {1, 2, 3},    {2, 3, 5},     {3, 5, 2},     {5, 7, 17},    {7, 17, 31},   {17, 31, 33},
                                   {31, 33, 7},  {33, 1, 255}, {1, 33, 256},  {6, 16, 257},  {12, 32, 513}, {13, 8, 64},   {2, 529, 19},
                                   {51, 40, 72}, {50, 32, 32}, {583, 17, 20}, {3, 1030, 9},  {18, 48, 1000}};
    static const pi0_dtype dtypes[] = {PI0_F32, PI0_BF16, PI0_F16};
    EACH_ISA(k)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int t = 0; t < 3; t++)
                check_gemm(k, sizes[i][0], sizes[i][1], sizes[i][2], dtypes[t], (i + (size_t)t) % 2 == 0);
}

static void gemm_of_depth_zero_is_the_bias(void **state)
{
    (void)state;
    EACH_ISA(k) {
        check_gemm(k, 3, 20, 0, PI0_BF16, true);
        check_gemm(k, 3, 20, 0, PI0_F32, false);
    }
}

static void gemm_row_bits_do_not_depend_on_batch_or_split(void **state)
{
    (void)state;
    enum { M = 51, N = 120, K = 333 };
    guarded x = guarded_random(M, K, 1.0f), bias = guarded_random(1, N, 1.0f);
    weights w = weights_from(guarded_random(N, K, 1.0f), PI0_BF16);
    EACH_ISA(k) {
        guarded whole = guarded_new(M, N), parts = guarded_new(M, N);
        pi0_gemm g = gemm_of(&x, &w, &bias, &whole);
        run_gemm(k, &g, 0, M, 0, N);
        static const int batches[] = {1, 7, 51};
        for (int b = 0; b < 3; b++) {
            for (int m = 0; m < M; m += batches[b]) { /* as problems of their own */
                guarded y = guarded_new(batches[b], N);
                pi0_gemm part = gemm_of(&x, &w, &bias, &y);
                part.m = pi0_min_int(batches[b], M - m);
                part.x = cell(&x, m, 0);
                run_gemm(k, &part, 0, part.m, 0, N);
                for (int i = 0; i < part.m; i++)
                    assert_memory_equal(cell(&y, i, 0), cell(&whole, m + i, 0), N * sizeof(float));
                guarded_free(&y);
            }
        }
        g.y = parts.at;
        int step = k->gemm_n_step * 2;
        for (int n = 0; n < N; n += step) { /* as ranges of one problem */
            int end = pi0_min_int(N, n + step);
            run_gemm(k, &g, 0, 20, n, end);
            run_gemm(k, &g, 20, M, n, end);
            if (n == 0)
                guard_check(&parts, 0, M, 0, end);
        }
        same_bits(&whole, &parts);
        run_gemm(k, &g, 3, 3, 0, N);
        run_gemm(k, &g, 0, M, step, step);
        same_bits(&whole, &parts);
        guarded_free(&whole), guarded_free(&parts);
    }
    guarded_free(&x), guarded_free(&bias), weights_free(&w);
}

static void gemm_keeps_extremes_in_their_row_and_column(void **state)
{
    (void)state;
    enum { M = 8, N = 20, K = 40 };
    EACH_ISA(k) {
        guarded x = guarded_random(M, K, 1.0f), value = guarded_random(N, K, 1.0f), y = guarded_new(M, N);
        *cell(&x, 2, 39) = NAN;
        *cell(&value, 19, 0) = INFINITY;
        for (int c = 0; c < K; c++) {
            *cell(&x, 5, c) = 1e19f; /* products of 1e38: sums stay finite in f32 */
            *cell(&x, 6, c) = 1e-40f;
            *cell(&value, 3, c) = c < 2 ? 1e19f : 0.0f;
        }
        weights w = weights_from(value, PI0_BF16);
        pi0_gemm g = gemm_of(&x, &w, NULL, &y);
        run_gemm(k, &g, 0, M, 0, N);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++)
                if (i == 2)
                    assert_true(isnan(*cell(&y, i, j)));
                else
                    assert_true((j == 19) == !isfinite(*cell(&y, i, j)));
        close_to(*cell(&y, 5, 3), 2.0 * 1e19f * (double)*cell(&w.value, 3, 0), 1e32, k->isa, "large");
        close_to(*cell(&y, 6, 3), 2.0 * 1e-40f * (double)*cell(&w.value, 3, 0), 1e-27, k->isa, "subnormal");
        guarded_free(&x), guarded_free(&y), weights_free(&w);
    }
}

static void B10_stored_bf16_is_rounded_to_nearest_even_on_every_path(void **state)
{
    (void)state;
    static const float from[] = {1.01171875f, 0.1f, 65504.0f}, to[] = {1.015625f, 0.10009765625f, 65536.0f};
    EACH_ISA(k)
        for (int i = 0; i < 3; i++) {
            uint16_t stored = pi0_bf16_from_f32(from[i]);
            int32_t id = 0;
            float one = 1.0f, y = 0.0f;
            pi0_gemm g = {.x = &one, .ldx = 1, .w = &stored, .w_dtype = PI0_BF16, .ldw = 1, .y = &y, .ldy = 1, .m = 1, .n = 1, .k = 1};
            run_gemm(k, &g, 0, 1, 0, 1);
            assert_true(y == to[i]);
            k->embed(&id, &stored, PI0_BF16, 1, 1.0f, &y, 1, 1, 1);
            assert_true(y == to[i]);
        }
}

static void B11_checkerboard_picture_accumulates_in_f32(void **state)
{
    (void)state;
    enum { SIDE = 56, P = 14, ROWS = 16, K = 3 * P * P, N = 24 };
    static float picture[SIDE * SIDE * 3];
    for (int i = 0; i < SIDE * SIDE * 3; i++)
        picture[i] = ((i / 3 % SIDE) + i / 3 / SIDE) % 2 ? 255.0f : 0.0f;
    EACH_ISA(k) {
        guarded x = guarded_new(ROWS, K), y = guarded_new(ROWS, N), value = guarded_random(N, K, 1.0f);
        for (int c = 0; c < K; c++)
            *cell(&value, 0, c) = 8.0f; /* sums to 599760, beyond f16 */
        k->patchify(picture, SIDE, P, x.at, x.ld, 0, ROWS);
        weights w = weights_from(value, PI0_BF16);
        pi0_gemm g = gemm_of(&x, &w, NULL, &y);
        run_gemm(k, &g, 0, ROWS, 0, N);
        assert_true(k->finite(y.at, y.ld, ROWS, N));
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0.0, size = 0.0;
                for (int c = 0; c < K; c++) {
                    sum += (double)*cell(&x, i, c) * (double)*cell(&w.value, j, c);
                    size += fabs((double)*cell(&x, i, c) * (double)*cell(&w.value, j, c));
                }
                close_to(*cell(&y, i, j), sum, 270 * U * size, k->isa, "checkerboard");
            }
        assert_true(*cell(&y, 0, 0) == 599760.0f);
        guarded_free(&x), guarded_free(&y), weights_free(&w);
    }
}

static void B18_every_f16_code_is_read_the_same(void **state)
{
    (void)state;
    enum { CODES = 65536 };
    uint16_t *table = malloc(CODES * sizeof *table);
    float *y = malloc(CODES * sizeof *y);
    assert_non_null(table);
    assert_non_null(y);
    for (int i = 0; i < CODES; i++)
        table[i] = (uint16_t)i;
    int32_t id = 0;
    EACH_ISA(k) {
        k->embed(&id, table, PI0_F16, CODES, 1.0f, y, CODES, 1, CODES);
        for (int i = 0; i < CODES; i++) {
            float expected = pi0_f32_from_f16((uint16_t)i);
            if (isnan(expected))
                assert_true(isnan(y[i]));
            else
                assert_memory_equal(y + i, &expected, sizeof expected);
        }
        assert_true(y[0x3c00] == 1.0f && y[0x0001] == 0x1p-24f && y[0x7bff] == 65504.0f && isinf(y[0x7c00]));
    }
    free(table);
    free(y);
}

/* ------------------------------------------------------------------ attention */

typedef struct problem {
    guarded q, k, v, k2, v2, out;
    uint8_t *mask;
    pi0_attention a;
} problem;

static problem problem_new(int rows, int keys, int keys2, int heads, int kv_heads, int d, bool masked, int alone)
{
    problem p = {.q = guarded_random(rows, heads * d, 2.0f),
                 .k = guarded_random(keys, kv_heads * d, 2.0f),
                 .v = guarded_random(keys, kv_heads * d, 3.0f),
                 .k2 = guarded_random(keys2, kv_heads * d, 2.0f),
                 .v2 = guarded_random(keys2, kv_heads * d, 3.0f),
                 .out = guarded_new(rows, heads * d)};
    p.mask = malloc((size_t)keys + 1);
    assert_non_null(p.mask);
    for (int j = 0; j < keys; j++) {
        p.mask[j] = uniform() < 0.2f ? 0 : 1;
        for (int c = 0; masked && !p.mask[j] && c < kv_heads * d; c++) /* whatever a masked key holds must not matter */
            *cell(&p.k, j, c) = NAN, *cell(&p.v, j, c) = c % 2 ? NAN : INFINITY;
    }
    p.a = (pi0_attention){.q = p.q.at, .ldq = p.q.ld, .k = p.k.at, .v = p.v.at, .ldkv = p.k.ld,
                          .k2 = keys2 > 0 ? p.k2.at : NULL, .v2 = keys2 > 0 ? p.v2.at : NULL, .ldkv2 = p.k2.ld,
                          .mask = masked ? p.mask : NULL, .out = p.out.at, .ldo = p.out.ld, .rows = rows, .keys = keys, .keys2 = keys2,
                          .heads = heads, .kv_heads = kv_heads, .d = d, .alone = alone, .scale = 1.0f / sqrtf((float)d)};
    return p;
}

static void problem_free(problem *p)
{
    guarded_free(&p->q), guarded_free(&p->k), guarded_free(&p->v), guarded_free(&p->k2), guarded_free(&p->v2), guarded_free(&p->out);
    free(p->mask);
}

/* Key j of both runs as one list, or NULL when row r does not attend it. */
static const float *key_of(const pi0_attention *a, int r, int j, const float *first, const float *second)
{
    if (j < a->keys)
        return a->mask == NULL || a->mask[j] ? first + (size_t)j * a->ldkv : NULL;
    j -= a->keys;
    return r < a->alone && j >= a->alone ? NULL : second + (size_t)j * a->ldkv2;
}

/* One head of one row in double; the bound follows from the error of the scores and of the sums over keys. */
static double attention_reference(const pi0_attention *a, int h, int r, double *out)
{
    int n = a->keys + a->keys2, at = h / (a->heads / a->kv_heads) * a->d;
    double *s = malloc(((size_t)n + 1) * sizeof *s), largest = -INFINITY, total = 0.0, delta = 0.0, v_max_abs = 0.0;
    assert_non_null(s);
    const float *q = a->q + (size_t)r * a->ldq + (size_t)h * (size_t)a->d;
    for (int j = 0; j < n; j++) {
        const float *k = key_of(a, r, j, a->k, a->k2);
        double size = 0.0;
        s[j] = k == NULL ? -INFINITY : 0.0;
        for (int c = 0; k != NULL && c < a->d; c++) {
            s[j] += (double)q[c] * (double)k[at + c] * (double)a->scale;
            size += fabs((double)q[c] * (double)k[at + c] * (double)a->scale);
        }
        delta = fmax(delta, (a->d + 4) * U * size);
        largest = fmax(largest, s[j]);
    }
    for (int c = 0; c < a->d; c++)
        out[c] = 0.0;
    for (int j = 0; j < n; j++) {
        const float *v = key_of(a, r, j, a->v, a->v2);
        if (v == NULL)
            continue;
        double weight = exp(s[j] - largest);
        total += weight;
        for (int c = 0; c < a->d; c++) {
            out[c] += weight * (double)v[at + c];
            v_max_abs = fmax(v_max_abs, fabs((double)v[at + c]));
        }
    }
    for (int c = 0; c < a->d; c++)
        out[c] = total > 0.0 ? out[c] / total : 0.0;
    free(s);
    return (2.0 * delta + (n + 64) * U) * v_max_abs;
}

static void run_attention(const pi0_kernels *k, const pi0_attention *a, int head, int r0, int r1)
{
    void *workspace = pi0_alloc(k->attention_workspace);
    assert_non_null(workspace);
    memset(workspace, 0xff, k->attention_workspace);
    k->attention(a, head, r0, r1, workspace);
    pi0_free(workspace);
}

static void run_core_attention(const pi0_kernels *k, const pi0_attention *a, int head, int r0, int r1)
{
    guarded scores = guarded_new(a->rows, a->keys + a->keys2);
    k->attention_scores(a, head, r0, r1, scores.at, scores.ld);
    k->softmax(cell(&scores, r0, 0), scores.ld, r1 - r0, scores.cols);
    guard_check(&scores, r0, r1, 0, scores.cols);
    k->attention_mix(a, head, r0, r1, scores.at, scores.ld);
    guarded_free(&scores);
}

typedef void (*attention_way)(const pi0_kernels *k, const pi0_attention *a, int head, int r0, int r1);

static const attention_way ways[] = {run_attention, run_core_attention};

static void check_output(const pi0_kernels *k, const problem *p, const char *what)
{
    const pi0_attention *a = &p->a;
    double *expected = malloc((size_t)a->d * sizeof *expected);
    assert_non_null(expected);
    for (int h = 0; h < a->heads; h++)
        for (int r = 0; r < a->rows; r++) {
            double bound = attention_reference(a, h, r, expected);
            for (int c = 0; c < a->d; c++)
                close_to(*cell(&p->out, r, h * a->d + c), expected[c], bound, k->isa, what);
        }
    guard_check(&p->out, 0, a->rows, 0, a->heads * a->d);
    free(expected);
}

static void check_attention(int rows, int keys, int keys2, int heads, int kv_heads, int d, bool masked, int alone)
{
    EACH_ISA(k)
        for (int way = 0; way < 2; way++) {
            problem p = problem_new(rows, keys, keys2, heads, kv_heads, d, masked, alone);
            for (int h = 0; h < heads; h++)
                ways[way](k, &p.a, h, 0, rows);
            check_output(k, &p, way ? "core attention" : "attention");
            problem_free(&p);
        }
}

static void attention_matches_double(void **state)
{
    (void)state;
    static const int d[] = {1, 2, 3, 5, 7, 16, 17, 31, 33, 72};
    for (size_t i = 0; i < sizeof d / sizeof d[0]; i++) {
        check_attention(1 + (int)i, 1 + 3 * (int)i, 0, 2, 2, d[i], false, 0);
        check_attention(7, 33, 5, 3, 1, d[i], true, i % 2 ? 1 : 0);
    }
    check_attention(50, 131, 51, 2, 1, 256, true, 1);
    check_attention(130, 140, 0, 2, 2, 72, false, 0);
    check_attention(3, 40, 6, 4, 2, 300, true, 2); /* wider than one chunk of a head, grouped heads */
    check_attention(9, 0, 9, 2, 1, 16, false, 1);
    check_attention(4, 257, 129, 1, 1, 20, true, 3);
}

static void B12_fused_attention_agrees_with_the_core_pieces(void **state)
{
    (void)state;
    EACH_ISA(k) {
        problem p = problem_new(51, 300, 51, 2, 1, 64, true, 1);
        guarded other = guarded_new(51, 128);
        pi0_attention a = p.a;
        a.out = other.at, a.ldo = other.ld;
        for (int h = 0; h < 2; h++) {
            run_attention(k, &p.a, h, 0, 51);
            run_core_attention(k, &a, h, 0, 51);
        }
        for (int r = 0; r < 51; r++)
            for (int c = 0; c < 128; c++)
                close_to(*cell(&p.out, r, c), *cell(&other, r, c), 2e-6, k->isa, "fused against core");
        guarded_free(&other);
        problem_free(&p);
    }
}

static void B13_key_counts_around_1024_and_2048(void **state)
{
    (void)state;
    static const int keys[] = {1023, 1024, 1025, 2048};
    for (int i = 0; i < 4; i++) {
        check_attention(2, keys[i], 0, 2, 1, 32, false, 0);
        check_attention(2, keys[i], 3, 1, 1, 16, true, 1);
    }
}

static void B14_rows_without_any_key_give_zeros(void **state)
{
    (void)state;
    EACH_ISA(k)
        for (int way = 0; way < 2; way++) {
            problem p = problem_new(9, 150, 0, 2, 1, 24, true, 0);
            memset(p.mask, 0, 150);
            for (int h = 0; h < 2; h++)
                ways[way](k, &p.a, h, 0, 9);
            p.a.keys = 0; /* no key at all: the second half of the rows again */
            for (int h = 0; h < 2; h++)
                ways[way](k, &p.a, h, 5, 9);
            for (int r = 0; r < 9; r++)
                for (int c = 0; c < 48; c++)
                    assert_true(*cell(&p.out, r, c) == 0.0f);
            guard_check(&p.out, 0, 9, 0, 48);
            problem_free(&p);
        }
}

/* A state token (alone = 1) sees itself only, with the first run masked altogether. */
static void attention_alone_row_copies_its_own_value(void **state)
{
    (void)state;
    EACH_ISA(k)
        for (int way = 0; way < 2; way++) {
            problem p = problem_new(6, 20, 6, 1, 1, 8, true, 1);
            memset(p.mask, 0, 20);
            ways[way](k, &p.a, 0, 0, 6);
            for (int c = 0; c < 8; c++)
                close_to(*cell(&p.out, 0, c), *cell(&p.v2, 0, c), 4 * U * 3, k->isa, "alone");
            problem_free(&p);
        }
}

static void attention_row_bits_do_not_depend_on_batch_or_split(void **state)
{
    (void)state;
    enum { ROWS = 120, D = 40, H = 2 };
    static const int batches[] = {1, 7, 51};
    EACH_ISA(k)
        for (int way = 0; way < 2; way++) {
            problem p = problem_new(ROWS, 200, ROWS, H, 1, D, true, 1);
            guarded other = guarded_new(ROWS, H * D);
            for (int h = 0; h < H; h++)
                ways[way](k, &p.a, h, 0, ROWS);
            pi0_attention a = p.a;
            a.out = other.at, a.ldo = other.ld;
            for (int b = 0; b < 3; b++)
                for (int h = 0; h < H; h++)
                    for (int r = 0; r < ROWS; r += batches[b])
                        ways[way](k, &a, h, r, pi0_min_int(ROWS, r + batches[b]));
            guard_check(&other, 0, ROWS, 0, H * D);
            same_bits(&p.out, &other);
            a.q += 30 * a.ldq, a.rows = 5, a.alone = 0; /* as a problem of its own */
            for (int h = 0; h < H; h++)
                ways[way](k, &a, h, 0, 5);
            for (int r = 0; r < 5; r++)
                assert_memory_equal(cell(&other, r, 0), cell(&p.out, 30 + r, 0), H * D * sizeof(float));
            guarded_free(&other);
            problem_free(&p);
        }
}

/* Scores far apart: the running maximum moves by hundreds from block to block. */
static void attention_survives_large_scores(void **state)
{
    (void)state;
    EACH_ISA(k)
        for (int way = 0; way < 2; way++) {
            problem p = problem_new(3, 400, 0, 1, 1, 4, false, 0);
            for (int j = 0; j < 400; j++)
                for (int c = 0; c < 4; c++)
                    *cell(&p.k, j, c) = (j == 333 ? 400.0f : -400.0f + (float)j) * (c == 0 ? 1.0f : 0.0f);
            for (int r = 0; r < 3; r++)
                *cell(&p.q, r, 0) = 10.0f;
            ways[way](k, &p.a, 0, 0, 3);
            for (int r = 0; r < 3; r++)
                for (int c = 0; c < 4; c++)
                    close_to(*cell(&p.out, r, c), *cell(&p.v, 333, c), 4 * U * 3, k->isa, "large scores");
            problem_free(&p);
        }
}

static void softmax_matches_double(void **state)
{
    (void)state;
    static const int cols[] = {1, 2, 3, 5, 7, 17, 31, 33, 568, 1023, 1025};
    EACH_ISA(k)
        for (size_t i = 0; i < sizeof cols / sizeof cols[0]; i++) {
            int n = cols[i];
            guarded s = guarded_random(4, n, 20.0f), e = guarded_new(4, n);
            for (int c = 0; c < n; c++) {
                if (c % 5 == 1)
                    *cell(&s, 1, c) = -INFINITY;
                *cell(&s, 2, c) = -INFINITY;
                *cell(&s, 3, c) = c == n / 2 ? 3e38f : -3e38f;
            }
            for (int r = 0; r < 4; r++)
                memcpy(cell(&e, r, 0), cell(&s, r, 0), (size_t)n * sizeof(float));
            k->softmax(s.at, s.ld, 4, n);
            guard_check(&s, 0, 4, 0, n);
            for (int r = 0; r < 4; r++) {
                double largest = -INFINITY, total = 0.0;
                for (int c = 0; c < n; c++)
                    largest = fmax(largest, *cell(&e, r, c));
                for (int c = 0; c < n; c++)
                    total += r == 2 ? 1.0 : exp(*cell(&e, r, c) - largest);
                for (int c = 0; c < n; c++) {
                    double x = *cell(&e, r, c) - largest, expected = r == 2 ? 0.0 : exp(x) / total;
                    /* rounding of x - largest, then exp, sum and division */
                    double bound = expected == 0.0 ? 0.0 : expected * (fabs(x) + 8) * U;
                    close_to(*cell(&s, r, c), expected, bound + 0x1p-149, k->isa, "softmax");
                }
            }
            guarded_free(&s), guarded_free(&e);
        }
}

/* ------------------------------------------------------------------ exp and activations */

static void exp_is_within_two_ulp(void **state)
{
    (void)state;
    double worst = 0.0;
    for (uint32_t bits = 0; bits < 0xff800000u; bits += 7919) {
        float x;
        memcpy(&x, &bits, sizeof x);
        if (isnan(x))
            continue;
        float got = v_exp(v_set1(x))[0];
        double expected = exp((double)x);
        if (expected > 3.4028235677973366e38) {
            assert_true(isinf(got) && got > 0);
            continue;
        }
        int exponent;
        frexp(expected, &exponent);
        double ulp = ldexp(1.0, exponent > -125 ? exponent - 24 : -149);
        double error = fabs((double)got - expected) / ulp;
        close_to(error, 0.0, 2.0, "ref", "exp, error in ulp");
        worst = fmax(worst, error);
    }
    print_message("exp: worst error %.3f ulp\n", worst);
    assert_true(v_exp(v_set1(-INFINITY))[0] == 0.0f);
    assert_true(v_exp(v_set1(0.0f))[0] == 1.0f && v_exp(v_set1(-0.0f))[0] == 1.0f);
    assert_true(isinf(v_exp(v_set1(INFINITY))[0]) && isnan(v_exp(v_set1(NAN))[0]));
}

static double gelu_of(double x) { return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x))); }
static double silu_of(double x) { return x / (1.0 + exp(-x)); }

static void activations_match_double(void **state)
{
    (void)state;
    enum { N = 8003 };
    guarded x = guarded_new(1, N), y = guarded_new(1, N);
    for (int i = 0; i < N; i++)
        *cell(&x, 0, i) = (float)(i - N / 2) / 200.0f + 1e-3f * uniform();
    static const float special[] = {0.0f, 1e-40f, -1e-40f, 1e-10f, -1e-10f, 80.0f, -80.0f, 100.0f, -100.0f, 1e15f, -1e15f, 3e38f, -3e38f};
    memcpy(x.at, special, sizeof special);
    EACH_ISA(k) {
        double worst[2] = {0.0, 0.0};
        for (int which = 0; which < 2; which++) {
            (which ? k->silu : k->gelu)(x.at, x.ld, y.at, y.ld, 1, N);
            guard_check(&y, 0, 1, 0, N);
            for (int i = 0; i < N; i++) {
                double in = *cell(&x, 0, i), expected = which ? silu_of(in) : gelu_of(in), got = *cell(&y, 0, i);
                worst[which] = fmax(worst[which], fabs(got - expected) / (1.0 + fabs(expected)));
                close_to(got, expected, which ? 4e-7 * (1.0 + fabs(expected)) : 1e-6 * (1.0 + fabs(expected)), k->isa, which ? "silu" : "gelu");
            }
        }
        print_message("%s: worst error relative to 1+|y|: gelu %.2g, silu %.2g\n", k->isa, worst[0], worst[1]);
        float nan = NAN, out = 0.0f;
        k->gelu(&nan, 1, &out, 1, 1, 1);
        assert_true(isnan(out));
    }
    guarded_free(&x), guarded_free(&y);
}

/* ------------------------------------------------------------------ row kernels */

static const int row_cols[] = {1, 2, 3, 5, 7, 8, 17, 31, 33, 72, 257, 2048};

enum { ROW_SIZES = sizeof row_cols / sizeof row_cols[0], ROWS = 4 };

/* Same results in place, and for each row on its own. */
typedef void (*row_call)(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows);

static void check_in_place_and_alone(const pi0_kernels *k, row_call call, const guarded *x, const guarded *arg, const guarded *y)
{
    guarded copy = guarded_new(x->rows, x->cols);
    for (int r = 0; r < x->rows; r++)
        memcpy(cell(&copy, r, 0), cell(x, r, 0), (size_t)x->cols * sizeof(float));
    call(k, &copy, arg, &copy, x->rows);
    same_bits(y, &copy);
    guard_check(&copy, 0, x->rows, 0, x->cols);
    guarded one = guarded_new(1, x->cols), from = *x;
    from.at = cell(x, x->rows - 1, 0);
    call(k, &from, arg, &one, 1);
    assert_memory_equal(one.at, cell(y, x->rows - 1, 0), (size_t)x->cols * sizeof(float));
    guard_check(&one, 0, 1, 0, x->cols);
    guarded_free(&copy), guarded_free(&one);
}

/* arg of the norms: [scale or w | shift or b | gate], each `cols` */
static void call_layer_norm(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    k->layer_norm(x->at, x->ld, arg->at, arg->at + x->cols, 1e-6f, y->at, y->ld, rows, x->cols);
}

static void call_rms_norm(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    k->rms_norm(x->at, x->ld, arg->at, 1e-6f, y->at, y->ld, rows, x->cols);
}

static void call_ada_norm(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    k->ada_norm(x->at, x->ld, arg->at, 1e-6f, y->at, y->ld, rows, x->cols);
}

static void check_norm(const pi0_kernels *k, int kind, int n, float size, float offset)
{
    static const row_call calls[] = {call_layer_norm, call_rms_norm, call_ada_norm};
    guarded x = guarded_random(ROWS, n, size), y = guarded_new(ROWS, n), arg = guarded_random(1, 3 * n, 1.0f);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < n; c++)
            *cell(&x, r, c) = r == 3 ? 0.0f : *cell(&x, r, c) + offset;
    calls[kind](k, &x, &arg, &y, ROWS);
    guard_check(&y, 0, ROWS, 0, n);
    for (int r = 0; r < ROWS; r++) {
        double mean = 0.0, square = 0.0;
        for (int c = 0; c < n && kind == 0; c++)
            mean += (double)*cell(&x, r, c) / n;
        for (int c = 0; c < n; c++)
            square += ((double)*cell(&x, r, c) - mean) * ((double)*cell(&x, r, c) - mean) / n;
        double factor = 1.0 / sqrt(square + (double)1e-6f);
        for (int c = 0; c < n; c++) {
            double u = arg.at[c], v = kind == 1 ? 0.0 : arg.at[n + c], in = *cell(&x, r, c);
            double scaled = (in - mean) * factor * (kind == 2 ? 1.0 + u : u);
            double bound = 6 * U * (fabs(scaled) + fabs(v) + (fabs(mean) + fabs(in)) * factor * (1.0 + fabs(u)));
            close_to(*cell(&y, r, c), scaled + v, bound + 1e-45, k->isa, kind == 0 ? "layer_norm" : kind == 1 ? "rms_norm" : "ada_norm");
        }
    }
    check_in_place_and_alone(k, calls[kind], &x, &arg, &y);
    guarded_free(&x), guarded_free(&y), guarded_free(&arg);
}

static void norms_match_double(void **state)
{
    (void)state;
    EACH_ISA(k)
        for (int kind = 0; kind < 3; kind++)
            for (int i = 0; i < ROW_SIZES; i++) {
                check_norm(k, kind, row_cols[i], 1.0f, 0.0f);
                check_norm(k, kind, row_cols[i], 1e30f, 0.0f); /* squares overflow f32 */
                check_norm(k, kind, row_cols[i], 1e-30f, 0.0f);
                check_norm(k, kind, row_cols[i], 1.0f, 100.0f);
            }
}

static void call_add(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    k->add(x->at, x->ld, arg->at, 0, y->at, y->ld, rows, x->cols);
}

static void call_mul(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    k->mul(x->at, x->ld, arg->at, 0, y->at, y->ld, rows, x->cols);
}

static void call_gated_add(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    k->gated_add(x->at, x->ld, arg->at, 0, arg->at + x->cols, y->at, y->ld, rows, x->cols);
}

static void call_euler(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    k->euler(x->at, x->ld, arg->at, 0, -0.1f, y->at, y->ld, rows, x->cols);
}

static void call_gelu(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    (void)arg;
    k->gelu(x->at, x->ld, y->at, y->ld, rows, x->cols);
}

static void call_silu(const pi0_kernels *k, const guarded *x, const guarded *arg, guarded *y, int rows)
{
    (void)arg;
    k->silu(x->at, x->ld, y->at, y->ld, rows, x->cols);
}

/* Each product and sum rounded once, in every instruction set: compared exactly. */
static void elementwise_is_rounded_operation_by_operation(void **state)
{
    (void)state;
    static const row_call calls[] = {call_add, call_mul, call_gated_add, call_euler, call_gelu, call_silu};
    EACH_ISA(k)
        for (int kind = 0; kind < 6; kind++)
            for (int i = 0; i < ROW_SIZES; i++) {
                int n = row_cols[i];
                guarded x = guarded_random(ROWS, n, 3.0f), arg = guarded_random(1, 2 * n, 1.0f), y = guarded_new(ROWS, n);
                calls[kind](k, &x, &arg, &y, ROWS);
                guard_check(&y, 0, ROWS, 0, n);
                for (int r = 0; r < ROWS && kind < 4; r++)
                    for (int c = 0; c < n; c++) {
                        volatile float a = *cell(&x, r, c), b = arg.at[c], product = b * (kind == 2 ? arg.at[n + c] : -0.1f);
                        float expected = kind == 0 ? a + b : kind == 1 ? a * b : a + product;
                        assert_true(*cell(&y, r, c) == expected);
                    }
                check_in_place_and_alone(k, calls[kind], &x, &arg, &y);
                guarded_free(&x), guarded_free(&arg), guarded_free(&y);
            }
}

static void two_matrices_keep_their_own_row_distance(void **state)
{
    (void)state;
    EACH_ISA(k) {
        guarded a = guarded_random(5, 19, 1.0f), b = guarded_random(5, 19, 1.0f), gate = guarded_random(1, 19, 1.0f), y = guarded_new(5, 19);
        guarded wide = guarded_new(5, 30);
        for (int r = 0; r < 5; r++)
            memcpy(cell(&wide, r, 0), cell(&b, r, 0), 19 * sizeof(float));
        k->add(a.at, a.ld, wide.at, wide.ld, y.at, y.ld, 5, 19);
        for (int r = 0; r < 5; r++)
            for (int c = 0; c < 19; c++)
                assert_true(*cell(&y, r, c) == *cell(&a, r, c) + *cell(&b, r, c));
        k->mul(a.at, a.ld, wide.at, wide.ld, y.at, y.ld, 5, 19);
        for (int r = 0; r < 5; r++)
            for (int c = 0; c < 19; c++)
                assert_true(*cell(&y, r, c) == *cell(&a, r, c) * *cell(&b, r, c));
        k->gated_add(a.at, a.ld, wide.at, wide.ld, gate.at, y.at, y.ld, 5, 19);
        for (int r = 0; r < 5; r++)
            for (int c = 0; c < 19; c++) {
                volatile float product = *cell(&b, r, c) * gate.at[c];
                assert_true(*cell(&y, r, c) == *cell(&a, r, c) + product);
            }
        guard_check(&y, 0, 5, 0, 19);
        guarded_free(&a), guarded_free(&b), guarded_free(&gate), guarded_free(&y), guarded_free(&wide);
    }
}

static void rope_rotates_halves(void **state)
{
    (void)state;
    static const int widths[] = {2, 6, 10, 16, 34, 72, 256};
    EACH_ISA(k)
        for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
            enum { HEADS = 3, POSITIONS = 9 };
            int d = widths[i], half = d / 2;
            guarded x = guarded_random(ROWS, HEADS * d, 2.0f), y = guarded_new(ROWS, HEADS * d);
            float *cs = malloc((size_t)(POSITIONS * half) * sizeof(float)), *sn = malloc((size_t)(POSITIONS * half) * sizeof(float));
            assert_non_null(cs);
            assert_non_null(sn);
            for (int j = 0; j < POSITIONS * half; j++) {
                cs[j] = cosf((float)j);
                sn[j] = sinf((float)j);
            }
            static const int32_t position[ROWS] = {8, 0, 3, 3};
            k->rope(x.at, x.ld, cs, sn, position, HEADS, d, y.at, y.ld, ROWS);
            guard_check(&y, 0, ROWS, 0, HEADS * d);
            for (int r = 0; r < ROWS; r++)
                for (int c = 0; c < HEADS * d; c++) {
                    int j = c % d % half, upper = c % d >= half, at = position[r] * half + j, base = c - c % d;
                    volatile float p = *cell(&x, r, c) * cs[at], q = *cell(&x, r, base + (upper ? j : half + j)) * sn[at];
                    assert_true(*cell(&y, r, c) == (upper ? p + q : p - q));
                }
            k->rope(x.at, x.ld, cs, sn, position, HEADS, d, x.at, x.ld, ROWS);
            same_bits(&x, &y);
            guarded_free(&x), guarded_free(&y);
            free(cs);
            free(sn);
        }
}

static void embed_takes_scaled_rows(void **state)
{
    (void)state;
    static const pi0_dtype dtypes[] = {PI0_F32, PI0_BF16, PI0_F16};
    static const int32_t ids[] = {6, 0, 3, 6, 2};
    EACH_ISA(k)
        for (int t = 0; t < 3; t++)
            for (int i = 0; i < ROW_SIZES; i++) {
                int n = row_cols[i];
                weights w = weights_from(guarded_random(7, n, 1.0f), dtypes[t]);
                guarded y = guarded_new(5, n);
                k->embed(ids, w.stored, w.dtype, w.ld, 45.254834f, y.at, y.ld, 5, n);
                guard_check(&y, 0, 5, 0, n);
                for (int r = 0; r < 5; r++)
                    for (int c = 0; c < n; c++)
                        assert_true(*cell(&y, r, c) == *cell(&w.value, ids[r], c) * 45.254834f);
                guarded_free(&y), weights_free(&w);
            }
}

static void patchify_orders_channel_row_column(void **state)
{
    (void)state;
    static const int cases[][2] = {{28, 14}, {6, 2}, {5, 1}, {7, 3}, {4, 4}}; /* 7/3: what does not fill a patch is left out */
    EACH_ISA(k)
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            int side = cases[i][0], p = cases[i][1], across = side / p, rows = across * across, n = 3 * p * p;
            float *picture = malloc((size_t)(side * side * 3) * sizeof(float));
            assert_non_null(picture);
            for (int j = 0; j < side * side * 3; j++)
                picture[j] = (float)j;
            guarded y = guarded_new(rows, n);
            int middle = rows / 2;
            k->patchify(picture, side, p, y.at, y.ld, 0, middle);
            guard_check(&y, 0, middle, 0, n);
            k->patchify(picture, side, p, y.at, y.ld, middle, rows);
            guard_check(&y, 0, rows, 0, n);
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < n; c++) {
                    int line = r / across * p + c / p % p, column = r % across * p + c % p;
                    assert_true(*cell(&y, r, c) == (float)((line * side + column) * 3 + c / (p * p)));
                }
            guarded_free(&y);
            free(picture);
        }
}

static void finite_finds_one_bad_value_anywhere(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    EACH_ISA(k)
        for (int i = 0; i < ROW_SIZES - 1; i++) {
            guarded x = guarded_random(3, row_cols[i], 1.0f);
            *cell(&x, 0, 0) = 3.4e38f;
            assert_true(k->finite(x.at, x.ld, 3, x.cols)); /* the NaN guards between the rows do not count */
            for (int r = 0; r < 3; r++)
                for (int c = 0; c < x.cols; c++) {
                    float was = *cell(&x, r, c);
                    *cell(&x, r, c) = bad[(r + c) % 3];
                    assert_false(k->finite(x.at, x.ld, 3, x.cols));
                    *cell(&x, r, c) = was;
                }
            assert_true(k->finite(x.at, x.ld, 0, x.cols));
            guarded_free(&x);
        }
}

/* ------------------------------------------------------------------ dispatch */

static void select_knows_its_ladder(void **state)
{
    (void)state;
    pi0_kernels k;
    pi0_error err = {0};
    pi0_isa_report report[MAX_ISAS];
    size_t n = pi0_kernels_report(report, MAX_ISAS);
    assert_int_equal(pi0_kernels_report(NULL, 0), n);
    assert_string_equal(report[0].name, "ref");
    assert_true(report[0].compiled && report[0].usable);
    int used = 0;
    assert_int_equal(pi0_kernels_select(NULL, &k, &err), PI0_OK);
    for (size_t i = 0; i < n; i++) {
        used += report[i].used;
        if (report[i].used)
            assert_string_equal(report[i].name, k.isa);
        assert_true(report[i].usable == (report[i].reason[0] == '\0'));
        if (!report[i].usable)
            assert_int_equal(pi0_kernels_select(report[i].name, &k, &err), PI0_ERR_ARGUMENT);
    }
    assert_int_equal(used, 1);
    assert_int_equal(pi0_kernels_select("ref", &k, &err), PI0_OK);
    assert_string_equal(k.isa, "ref");
    assert_int_equal(pi0_kernels_select("AVX3", &k, &err), PI0_ERR_ARGUMENT);
    assert_int_equal(pi0_kernels_select("", &k, NULL), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    EACH_ISA(table) {
        assert_true(table->gemm && table->attention_scores && table->softmax && table->attention_mix && table->attention);
        assert_true(table->layer_norm && table->rms_norm && table->ada_norm && table->gated_add && table->add && table->mul);
        assert_true(table->gelu && table->silu && table->rope && table->embed && table->patchify && table->euler && table->finite);
        assert_true(table->gemm_n_step > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_matches_double),
        cmocka_unit_test(gemm_of_depth_zero_is_the_bias),
        cmocka_unit_test(gemm_row_bits_do_not_depend_on_batch_or_split),
        cmocka_unit_test(gemm_keeps_extremes_in_their_row_and_column),
        cmocka_unit_test(B10_stored_bf16_is_rounded_to_nearest_even_on_every_path),
        cmocka_unit_test(B11_checkerboard_picture_accumulates_in_f32),
        cmocka_unit_test(B18_every_f16_code_is_read_the_same),
        cmocka_unit_test(attention_matches_double),
        cmocka_unit_test(B12_fused_attention_agrees_with_the_core_pieces),
        cmocka_unit_test(B13_key_counts_around_1024_and_2048),
        cmocka_unit_test(B14_rows_without_any_key_give_zeros),
        cmocka_unit_test(attention_alone_row_copies_its_own_value),
        cmocka_unit_test(attention_row_bits_do_not_depend_on_batch_or_split),
        cmocka_unit_test(attention_survives_large_scores),
        cmocka_unit_test(softmax_matches_double),
        cmocka_unit_test(exp_is_within_two_ulp),
        cmocka_unit_test(activations_match_double),
        cmocka_unit_test(norms_match_double),
        cmocka_unit_test(elementwise_is_rounded_operation_by_operation),
        cmocka_unit_test(two_matrices_keep_their_own_row_distance),
        cmocka_unit_test(rope_rotates_halves),
        cmocka_unit_test(embed_takes_scaled_rows),
        cmocka_unit_test(patchify_orders_channel_row_column),
        cmocka_unit_test(finite_finds_one_bad_value_anywhere),
        cmocka_unit_test(select_knows_its_ladder),
    };
    return cmocka_run_group_tests_name("kernels", tests, load_isas, NULL);
}
