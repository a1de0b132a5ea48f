/* Attention and softmax of every instruction set against plain loops in double. */
#include "kernels_fixture.h"

/* Every value is a bf16, so that all forms are given the same. */
static guarded guarded_bf16(int rows, int cols, float size)
{
    guarded g = guarded_random(rows, cols, size);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            *cell(&g, r, c) = pi0_f32_from_bf16(pi0_bf16_from_f32(*cell(&g, r, c)));
    return g;
}

typedef struct problem {
    guarded q, k, v, k2, v2, out;
    uint8_t *mask;
    pi0_attention a;
} problem;

static problem problem_new(int rows, int keys, int keys2, int heads, int kv_heads, int d, bool masked, int alone)
{
    problem p = {.q = guarded_bf16(rows, heads * d, 2.0f),
                 .k = guarded_bf16(keys, kv_heads * d, 2.0f),
                 .v = guarded_bf16(keys, kv_heads * d, 3.0f),
                 .k2 = guarded_bf16(keys2, kv_heads * d, 2.0f),
                 .v2 = guarded_bf16(keys2, kv_heads * d, 3.0f),
                 .out = guarded_new(rows, heads * d)};
    p.mask = malloc((size_t)keys + 1);
    assert_non_null(p.mask);
    for (int j = 0; j < keys; j++) {
        p.mask[j] = uniform() < 0.2f ? 0 : 1;
        for (int c = 0; masked && !p.mask[j] && c < kv_heads * d; c++) /* whatever a masked key holds must not matter */
            *cell(&p.k, j, c) = NAN, *cell(&p.v, j, c) = c % 2 ? NAN : INFINITY;
    }
    p.a = (pi0_attention){.q = p.q.at,
                          .ldq = p.q.ld,
                          .k = p.k.at,
                          .v = p.v.at,
                          .ldkv = p.k.ld,
                          .k2 = keys2 > 0 ? p.k2.at : NULL,
                          .v2 = keys2 > 0 ? p.v2.at : NULL,
                          .ldkv2 = p.k2.ld,
                          .mask = masked ? p.mask : NULL,
                          .out = p.out.at,
                          .ldo = p.out.ld,
                          .rows = rows,
                          .keys = keys,
                          .keys2 = keys2,
                          .heads = heads,
                          .kv_heads = kv_heads,
                          .d = d,
                          .alone = alone,
                          .scale = 1.0f / sqrtf((float)d)};
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
    const bool far = a->window > 0 && j >= a->always && abs(r + a->diagonal - j) >= a->window;
    return far || (r < a->alone && j >= a->alone) ? NULL : second + (size_t)j * a->ldkv2;
}

/* One head of one row in double; the bound follows from the error of the scores, of the weights and of the sums over keys. */
static double attention_reference(const pi0_attention *a, int h, int r, double *out, double rounding)
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
    return (2.0 * delta + (n + 64) * U + rounding) * v_max_abs;
}

/* All heads that share their keys at once, when asked for the first of them. */
static void run_fused(const pi0_kernels *k, pi0_gemm_form form, const pi0_attention *a, int head, int r0, int r1)
{
    const int heads = a->heads / a->kv_heads;
    if (head % heads != 0)
        return;
    void *workspace = pi0_alloc(k->attention_workspace);
    assert_non_null(workspace);
    memset(workspace, 0xff, k->attention_workspace);
    k->attention[form](a, head / heads, r0, r1, workspace);
    pi0_free(workspace);
}

static void run_attention(const pi0_kernels *k, const pi0_attention *a, int head, int r0, int r1)
{
    run_fused(k, PI0_GEMM_F32, a, head, r0, r1);
}

static void run_bf16_attention(const pi0_kernels *k, const pi0_attention *a, int head, int r0, int r1)
{
    run_fused(k, PI0_GEMM_BF16, a, head, r0, r1);
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

static const attention_way ways[] = {run_attention, run_core_attention, run_bf16_attention};
static const char *const way_names[] = {"attention", "core attention", "bf16 attention"};
enum { BF16_WAY = 2, WAYS = 3 };

#define EACH_WAY(k, way)                 \
    for (int way = 0; way < WAYS; way++) \
    EACH_ISA_WITH(k, attention[way == BF16_WAY ? PI0_GEMM_BF16 : PI0_GEMM_F32])

static void check_output(const pi0_kernels *k, const problem *p, int way)
{
    const pi0_attention *a = &p->a;
    double *expected = malloc((size_t)a->d * sizeof *expected);
    assert_non_null(expected);
    for (int h = 0; h < a->heads; h++)
        for (int r = 0; r < a->rows; r++) {
            double bound = attention_reference(a, h, r, expected, way == BF16_WAY ? 0x1p-8 : 0.0);
            for (int c = 0; c < a->d; c++)
                close_to(*cell(&p->out, r, h * a->d + c), expected[c], bound, k->isa, way_names[way]);
        }
    guard_check(&p->out, 0, a->rows, 0, a->heads * a->d);
    free(expected);
}

static void check_attention(int rows, int keys, int keys2, int heads, int kv_heads, int d, bool masked, int alone)
{
    EACH_WAY(k, way)
    {
        problem p = problem_new(rows, keys, keys2, heads, kv_heads, d, masked, alone);
        for (int h = 0; h < heads; h++)
            ways[way](k, &p.a, h, 0, rows);
        check_output(k, &p, way);
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
    check_attention(20, 131, 21, 2, 1, 256, true, 1);
    check_attention(100, 70, 0, 2, 2, 36, false, 0); /* more rows than one block */
    check_attention(3, 40, 6, 4, 2, 300, true, 2);   /* wider than one chunk of a head, grouped heads */
    check_attention(9, 0, 9, 2, 1, 16, false, 1);
    check_attention(4, 257, 129, 1, 1, 20, true, 3);
}

static void B12_fused_attention_agrees_with_the_core_pieces(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
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
        check_attention(2, keys[i], 0, 2, 1, 17, false, 0);
        check_attention(2, keys[i], 3, 1, 1, 16, true, 1);
    }
}

static void B14_rows_without_any_key_give_zeros(void **state)
{
    (void)state;
    EACH_WAY(k, way)
    {
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
    EACH_WAY(k, way)
    {
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
    enum { ROWS = 100, D = 20, H = 2 };
    static const int batches[] = {1, 7, 51};
    EACH_WAY(k, way)
    {
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

/* Windows of every size around the blocks of keys, with and without a state's key before the actions' own. */
static void attention_within_a_window_matches_double(void **state)
{
    (void)state;
    static const int windows[] = {1, 2, 31, 127, 128, 129, 298, 299, 5000};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++)
        for (int keys_before = 0; keys_before < 2; keys_before++)
            EACH_WAY(k, way)
            {
                problem p = problem_new(300, 20, 300 + keys_before, 2, 1, 16, i % 2, i % 3 == 0 ? 1 : 0);
                p.a.window = windows[i], p.a.always = i % 3 == 0 ? 1 : keys_before, p.a.diagonal = keys_before;
                for (int h = 0; h < 2; h++)
                    ways[way](k, &p.a, h, 0, 300);
                check_output(k, &p, way);
                problem_free(&p);
            }
}

/* What makes the cost linear: blocks of keys that no row of a call sees are not even read. */
static void attention_within_a_window_reads_near_keys_only(void **state)
{
    (void)state;
    enum { ROWS = 2000, WINDOW = 10, FIRST = 1000, LAST = 1008 };
    for (int way = 0; way < WAYS; way += BF16_WAY)
        EACH_ISA_WITH(k, attention[way == BF16_WAY ? PI0_GEMM_BF16 : PI0_GEMM_F32])
        {
            problem p = problem_new(ROWS, 5, ROWS, 1, 1, 16, false, 0);
            p.a.window = WINDOW;
            for (int j = 0; j < ROWS; j++)
                for (int c = 0; c < 16 && (j < FIRST - 256 || j > LAST + 256); c++)
                    *cell(&p.k2, j, c) = *cell(&p.v2, j, c) = NAN;
            ways[way](k, &p.a, 0, FIRST, LAST);
            for (int r = FIRST; r < LAST; r++)
                for (int c = 0; c < 16; c++)
                    assert_true(isfinite(*cell(&p.out, r, c)));
            problem_free(&p);
        }
}

/* A window that covers everything is none, and how rows are shared out changes no bit. */
static void attention_within_a_window_keeps_the_bits_of_rows(void **state)
{
    (void)state;
    enum { ROWS = 300 };
    EACH_WAY(k, way)
    for (int window = 40; window <= ROWS; window += ROWS - 40) {
        problem p = problem_new(ROWS, 30, ROWS, 1, 1, 16, true, 0);
        guarded other = guarded_new(ROWS, 16);
        pi0_attention a = p.a;
        a.out = other.at, a.ldo = other.ld;
        p.a.window = window;
        a.window = window < ROWS ? window : 0;
        ways[way](k, &p.a, 0, 0, ROWS);
        for (int r = 0; r < ROWS; r += 7)
            ways[way](k, &a, 0, r, pi0_min_int(ROWS, r + 7));
        same_bits(&p.out, &other);
        guarded_free(&other);
        problem_free(&p);
    }
}

/* Scores far apart: the running maximum moves by hundreds from block to block. */
static void attention_survives_large_scores(void **state)
{
    (void)state;
    EACH_WAY(k, way)
    {
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_matches_double),
        cmocka_unit_test(B12_fused_attention_agrees_with_the_core_pieces),
        cmocka_unit_test(B13_key_counts_around_1024_and_2048),
        cmocka_unit_test(B14_rows_without_any_key_give_zeros),
        cmocka_unit_test(attention_alone_row_copies_its_own_value),
        cmocka_unit_test(attention_row_bits_do_not_depend_on_batch_or_split),
        cmocka_unit_test(attention_within_a_window_matches_double),
        cmocka_unit_test(attention_within_a_window_reads_near_keys_only),
        cmocka_unit_test(attention_within_a_window_keeps_the_bits_of_rows),
        cmocka_unit_test(attention_survives_large_scores),
        cmocka_unit_test(softmax_matches_double),
    };
    return cmocka_run_group_tests_name("kernels_attention", tests, load_isas, NULL);
}
