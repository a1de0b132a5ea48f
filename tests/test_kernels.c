/* Matrix products and the choice of kernels: every instruction set that this machine can run, against plain loops in double. */
#include "kernels_fixture.h"

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
    return (pi0_gemm){.x = x->at,
                      .ldx = x->ld,
                      .w = w->stored,
                      .w_dtype = w->dtype,
                      .ldw = w->ld,
                      .bias = bias != NULL ? bias->at : NULL,
                      .y = y->at,
                      .ldy = y->ld,
                      .m = x->rows,
                      .n = w->value.rows,
                      .k = x->cols};
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
    static const int sizes[][3] = {{1, 1, 1},    {1, 2, 3},    {2, 3, 5},     {3, 5, 2},    {5, 7, 17},    {7, 17, 31}, {17, 31, 33},
                                   {31, 33, 7},  {33, 1, 255}, {1, 33, 256},  {6, 16, 257}, {12, 32, 513}, {13, 8, 64}, {2, 529, 19},
                                   {51, 40, 72}, {50, 32, 32}, {583, 17, 20}, {3, 1030, 9}, {18, 48, 1000}};
    static const pi0_dtype dtypes[] = {PI0_F32, PI0_BF16, PI0_F16};
    EACH_ISA(k)
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int t = 0; t < 3; t++)
            check_gemm(k, sizes[i][0], sizes[i][1], sizes[i][2], dtypes[t], (i + (size_t)t) % 2 == 0);
}

static void gemm_of_depth_zero_is_the_bias(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
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
    EACH_ISA(k)
    {
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
    EACH_ISA(k)
    {
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
    EACH_ISA(k)
    {
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
    EACH_ISA(k)
    {
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
    EACH_ISA(table)
    {
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
        cmocka_unit_test(select_knows_its_ladder),
    };
    return cmocka_run_group_tests_name("kernels", tests, load_isas, NULL);
}
