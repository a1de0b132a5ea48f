/* Row kernels of every instruction set against plain loops in double. */
#include "kernels_fixture.h"

#include "kernels/ref/simd.h"

#include "kernels/vector_tpl.h"

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

static double gelu_of(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}
static double silu_of(double x)
{
    return x / (1.0 + exp(-x));
}

static void activations_match_double(void **state)
{
    (void)state;
    enum { N = 8003 };
    guarded x = guarded_new(1, N), y = guarded_new(1, N);
    for (int i = 0; i < N; i++)
        *cell(&x, 0, i) = (float)(i - N / 2) / 200.0f + 1e-3f * uniform();
    static const float special[] = {0.0f, 1e-40f, -1e-40f, 1e-10f, -1e-10f, 80.0f, -80.0f, 100.0f, -100.0f, 1e15f, -1e15f, 3e38f, -3e38f};
    memcpy(x.at, special, sizeof special);
    EACH_ISA(k)
    {
        double worst[2] = {0.0, 0.0};
        for (int which = 0; which < 2; which++) {
            (which ? k->silu : k->gelu)(x.at, x.ld, y.at, y.ld, 1, N);
            guard_check(&y, 0, 1, 0, N);
            for (int i = 0; i < N; i++) {
                double in = *cell(&x, 0, i), expected = which ? silu_of(in) : gelu_of(in), got = *cell(&y, 0, i);
                worst[which] = fmax(worst[which], fabs(got - expected) / (1.0 + fabs(expected)));
                close_to(got, expected, which ? 4e-7 * (1.0 + fabs(expected)) : 1e-6 * (1.0 + fabs(expected)), k->isa,
                         which ? "silu" : "gelu");
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
    EACH_ISA(k)
    {
        guarded a = guarded_random(5, 19, 1.0f), b = guarded_random(5, 19, 1.0f), gate = guarded_random(1, 19, 1.0f),
                y = guarded_new(5, 19);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulp),
        cmocka_unit_test(activations_match_double),
        cmocka_unit_test(norms_match_double),
        cmocka_unit_test(elementwise_is_rounded_operation_by_operation),
        cmocka_unit_test(two_matrices_keep_their_own_row_distance),
        cmocka_unit_test(rope_rotates_halves),
        cmocka_unit_test(embed_takes_scaled_rows),
        cmocka_unit_test(patchify_orders_channel_row_column),
        cmocka_unit_test(finite_finds_one_bad_value_anywhere),
    };
    return cmocka_run_group_tests_name("kernels_rows", tests, load_isas, NULL);
}
