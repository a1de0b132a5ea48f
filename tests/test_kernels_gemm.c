/* Matrix products: every form on every instruction set that this machine can run, against plain loops in double. */
#include "kernels_fixture.h"

/* ------------------------------------------------------------------ one product in all the ways to ask for it */

typedef enum storage { AS_STORED, IN_PARTS, PACKED, STORAGES } storage;

#define EACH_FORM(k, form)                            \
    for (int form = 0; form < PI0_GEMM_FORMS; form++) \
    EACH_ISA_WITH(k, gemm[form].multiply)

static void *poisoned(size_t bytes)
{
    void *memory = pi0_alloc(bytes);
    assert_non_null(memory);
    memset(memory, 0xff, bytes); /* NaN */
    return memory;
}

/* Packs in two pieces; the result is g->packed, to be freed. */
static void *pack(const pi0_gemm_kernel *kernel, pi0_gemm *g)
{
    const size_t bytes = kernel->packed_bytes(g);
    uint8_t *packed = poisoned(bytes + 64);
    const int panels = pi0_panels(g, kernel->tile_cols);
    kernel->pack(g, 0, panels / 2, packed);
    kernel->pack(g, panels / 2, panels, packed);
    for (size_t i = bytes; i < bytes + 64; i++)
        assert_int_equal(packed[i], 0xff);
    g->packed = packed;
    return packed;
}

/* Products of whole numbers read packed weights only: packs what is not. */
static void *pack_if_needed(const pi0_gemm_kernel *kernel, pi0_gemm *g)
{
    return g->packed == NULL && strncmp(kernel->title, "int8", 4) == 0 ? pack(kernel, g) : NULL;
}

/* Prepares and multiplies tiles [t0,t1) x panels [p0,p1), in spans of `span` of k (0: all at once). */
static void run_range(const pi0_gemm_kernel *kernel, const pi0_gemm *asked, int t0, int t1, int p0, int p1, int span)
{
    pi0_gemm copy = *asked, *const g = &copy;
    void *packed = pack_if_needed(kernel, g), *workspace = poisoned(kernel->workspace_bytes(g));
    int k0 = 0;
    do {
        const int k1 = span > 0 ? pi0_min_int(k0 + span, g->k) : g->k, tiles = pi0_tiles(g->m, kernel->tile_rows);
        void *prepared = poisoned(kernel->x_bytes(g->m, k1 - k0));
        kernel->prepare(g, k0, k1, 0, tiles / 2, prepared);
        kernel->prepare(g, k0, k1, tiles / 2, tiles, prepared);
        kernel->multiply(g, k0, k1, t0, t1, p0, p1, prepared, workspace);
        pi0_free(prepared);
        k0 = k1;
    } while (k0 < g->k);
    pi0_free(workspace);
    pi0_free(packed);
}

static void run_whole(const pi0_gemm_kernel *kernel, const pi0_gemm *g)
{
    run_range(kernel, g, 0, pi0_tiles(g->m, kernel->tile_rows), 0, pi0_panels(g, kernel->tile_cols), 0);
}

static pi0_gemm gemm_of(const guarded *x, const weights *w, const guarded *bias, const guarded *y)
{
    return (pi0_gemm){.x = x->at,
                      .ldx = x->ld,
                      .part = {{.w = w->stored, .n = w->value.rows, .bias = bias != NULL ? bias->at : NULL, .y = y->at, .ldy = y->ld}},
                      .w_dtype = w->dtype,
                      .ldw = w->ld,
                      .m = x->rows,
                      .k = x->cols};
}

/* w as three matrices that lie apart, each with its own columns of the result. */
static void split(pi0_gemm *g, const weights *w, void *parts[2])
{
    const size_t row = w->ld * pi0_dtype_size(w->dtype);
    const pi0_gemm_part whole = g->part[0];
    int from = g->part[0].n = whole.n / 3;
    for (int i = 0; i < 2; i++) {
        const int rows = i ? whole.n - from : whole.n / 2 - from;
        parts[i] = malloc((size_t)rows * row + 1);
        assert_non_null(parts[i]);
        memcpy(parts[i], (const char *)w->stored + (size_t)from * row, (size_t)rows * row);
        g->part[i + 1] = (pi0_gemm_part){
            .w = parts[i], .n = rows, .bias = whole.bias != NULL ? whole.bias + from : NULL, .y = whole.y + from, .ldy = whole.ldy};
        from += rows;
    }
}

static double met(double value, int form)
{
    return form == PI0_GEMM_BF16 ? (double)pi0_f32_from_bf16(pi0_bf16_from_f32((float)value)) : value;
}

/* The largest whole number of `bits` bits with a sign, and a row in such numbers: its unit, and a rounded element. */
static float most_of(char bits)
{
    return (float)((1 << (bits - '1')) - 1);
}

static float largest_of(const guarded *a, int row)
{
    float most = 0.0f;
    for (int c = 0; c < a->cols; c++)
        most = fmaxf(most, fabsf(*cell(a, row, c)));
    return most < 0x1p-100f ? 0.0f : most;
}

static double whole(float value, float largest, float most)
{
    return largest > 0.0f ? (double)rintf(value * (most / largest)) : 0.0;
}

/* The same bits as exact sums of rounded inputs, and no further from the products of the inputs as they are than the rounding explains. */
static void check_whole_product(const pi0_gemm_kernel *kernel, const pi0_gemm *g, const guarded *x, const weights *w, const guarded *y,
                                const char *isa)
{
    const char *bits = strchr(kernel->title, '(');
    const float w_most = most_of(bits[2]), x_most = most_of(bits[4]), *bias = g->part[0].bias;
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < w->value.rows; j++) {
            const float x_largest = largest_of(x, i), w_largest = largest_of(&w->value, j);
            const float x_unit = x_largest / x_most, w_unit = w_largest / w_most;
            double sum = 0.0, exact = bias != NULL ? (double)bias[j] : 0.0, size = fabs(exact), rounding = 0.0;
            for (int c = 0; c < g->k; c++) {
                const float a = *cell(x, i, c), b = *cell(&w->value, j, c);
                sum += whole(a, x_largest, x_most) * whole(b, w_largest, w_most);
                exact += (double)a * (double)b;
                size += fabs((double)a * (double)b);
                rounding +=
                    0.5 * (fabs((double)a) * (double)w_unit + fabs((double)b) * (double)x_unit) + 0.25 * (double)x_unit * (double)w_unit;
            }
            float expected = (float)(int32_t)sum * (x_unit * w_unit);
            if (bias != NULL)
                expected += bias[j];
            if (!(*cell(y, i, j) == expected))
                fail_msg("%s %s: [%d,%d] is %.9g, expected %.9g", isa, kernel->title, i, j, (double)*cell(y, i, j), (double)expected);
            close_to(expected, exact, 1.001 * rounding + 8 * U * size, isa, kernel->title);
        }
}

static void check_product(const pi0_kernels *k, const pi0_gemm *g, const guarded *x, const weights *w, const guarded *y, int form)
{
    if (form == PI0_GEMM_I8) {
        check_whole_product(&k->gemm[form], g, x, w, y, k->isa);
        return;
    }
    const float *bias = g->part[0].bias;
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < w->value.rows; j++) {
            double sum = bias != NULL ? (double)bias[j] : 0.0, size = fabs(sum);
            for (int c = 0; c < g->k; c++) {
                const double term = met(*cell(x, i, c), form) * met(*cell(&w->value, j, c), form);
                sum += term;
                size += fabs(term);
            }
            close_to(*cell(y, i, j), sum, (pi0_min_int(g->k, 2048) + g->k / 512 + 3) * U * size, k->isa, pi0_gemm_form_names[form]);
        }
}

static void check_gemm(const pi0_kernels *k, int form, int m, int n, int depth, pi0_dtype dtype, bool with_bias, storage how)
{
    guarded x = guarded_random(m, depth, 2.0f), bias = guarded_random(1, n, 1.0f), y = guarded_new(m, n);
    weights w = weights_from(guarded_random(n, depth, 1.0f), dtype);
    pi0_gemm g = gemm_of(&x, &w, with_bias ? &bias : NULL, &y);
    void *parts[2] = {NULL, NULL}, *packed = NULL;
    if (how != AS_STORED)
        split(&g, &w, parts);
    if (how == PACKED)
        packed = pack(&k->gemm[form], &g);
    run_whole(&k->gemm[form], &g);
    guard_check(&y, 0, m, 0, n);
    check_product(k, &g, &x, &w, &y, form);
    free(parts[0]), free(parts[1]), pi0_free(packed);
    guarded_free(&x), guarded_free(&bias), guarded_free(&y), weights_free(&w);
}

/* ------------------------------------------------------------------ the tests */

static void gemm_matches_double(void **state)
{
    (void)state;
    static const int sizes[][3] = {{1, 1, 1},    {1, 2, 3},     {2, 3, 5},     {3, 5, 2},     {5, 7, 17},    {7, 17, 31},   {17, 31, 33},
                                   {31, 33, 7},  {33, 1, 255},  {1, 33, 256},  {6, 16, 257},  {12, 32, 513}, {13, 8, 64},   {2, 129, 19},
                                   {51, 40, 72}, {50, 132, 32}, {183, 17, 20}, {3, 10, 1030}, {4, 9, 4099},  {18, 48, 1000}};
    static const pi0_dtype dtypes[] = {PI0_F32, PI0_BF16, PI0_F16};
    EACH_FORM(k, form)
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t t = 0; t < 3; t++)
            check_gemm(k, form, sizes[i][0], sizes[i][1], sizes[i][2], dtypes[t], (i + t) % 2 == 0, (storage)((i + 2 * t) % STORAGES));
}

static void gemm_of_depth_zero_is_the_bias(void **state)
{
    (void)state;
    EACH_FORM(k, form)
    {
        check_gemm(k, form, 3, 20, 0, PI0_BF16, true, AS_STORED);
        check_gemm(k, form, 3, 20, 0, PI0_F32, false, PACKED);
    }
}

static void gemm_row_bits_do_not_depend_on_batch_split_or_packing(void **state)
{
    (void)state;
    enum { M = 23, N = 140, K = 2500 };
    guarded x = guarded_random(M, K, 1.0f), bias = guarded_random(1, N, 1.0f);
    weights w = weights_from(guarded_random(N, K, 1.0f), PI0_BF16);
    EACH_FORM(k, form)
    {
        const pi0_gemm_kernel *kernel = &k->gemm[form];
        guarded whole = guarded_new(M, N), parts = guarded_new(M, N);
        pi0_gemm g = gemm_of(&x, &w, &bias, &whole);
        run_whole(kernel, &g);
        void *packed = pack(kernel, &g);
        static const int batches[] = {1, 7, 22};
        for (int b = 0; b < 3; b++)
            for (int m = 0; m < M; m += batches[b]) { /* as problems of their own */
                guarded y = guarded_new(batches[b], N);
                pi0_gemm part = gemm_of(&x, &w, &bias, &y);
                part.packed = b == 0 ? packed : NULL; /* to pack all of w for every row takes too long */
                part.m = pi0_min_int(batches[b], M - m);
                part.x = cell(&x, m, 0);
                run_whole(kernel, &part);
                for (int i = 0; i < part.m; i++)
                    assert_memory_equal(cell(&y, i, 0), cell(&whole, m + i, 0), N * sizeof(float));
                guarded_free(&y);
            }
        g.packed = NULL;
        g.part[0].y = parts.at;
        const int panels = pi0_panels(&g, kernel->tile_cols), tiles = pi0_tiles(M, kernel->tile_rows);
        for (int p = 0; p < panels; p++) { /* as ranges of one problem, a span of k at a time */
            run_range(kernel, &g, 0, 3, p, p + 1, kernel->k_step);
            run_range(kernel, &g, 3, tiles, p, p + 1, 0);
            if (p == 0)
                guard_check(&parts, 0, M, 0, pi0_min_int(N, kernel->tile_cols));
        }
        same_bits(&whole, &parts);
        run_range(kernel, &g, 3, 3, 0, panels, 0);
        run_range(kernel, &g, 0, tiles, 1, 1, 0);
        same_bits(&whole, &parts);
        g.packed = packed;
        memset(parts.at, 0, sizeof(float));
        run_whole(kernel, &g);
        same_bits(&whole, &parts);
        pi0_free(packed);
        guarded_free(&whole), guarded_free(&parts);
    }
    guarded_free(&x), guarded_free(&bias), weights_free(&w);
}

static void gemm_keeps_extremes_in_their_row_and_column(void **state)
{
    (void)state;
    enum { M = 8, N = 20, K = 40 };
    EACH_FORM(k, form)
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
        run_whole(&k->gemm[form], &g);
        for (int i = 0; i < M; i++)
            for (int j = 0; j < N; j++)
                if (i == 2)
                    assert_true(isnan(*cell(&y, i, j)));
                else if (i == 6 && j == 19)
                    assert_false(isfinite(*cell(&y, i, j)) && form == PI0_GEMM_F32); /* bf16 units may take 1e-40 as 0 */
                else
                    assert_true((j == 19) == !isfinite(*cell(&y, i, j)));
        const double large = met(1e19f, form);
        close_to(*cell(&y, 5, 3), 2.0 * large * (double)*cell(&w.value, 3, 0), 1e32, k->isa, "large");
        close_to(*cell(&y, 6, 3), form == PI0_GEMM_F32 ? 2.0 * 1e-40f * (double)*cell(&w.value, 3, 0) : 0.0,
                 form == PI0_GEMM_F32 ? 1e-27 : 1e-20, k->isa, "subnormal");
        guarded_free(&x), guarded_free(&y), weights_free(&w);
    }
}

static void B10_stored_bf16_is_rounded_to_nearest_even_on_every_path(void **state)
{
    (void)state;
    static const float from[] = {1.01171875f, 0.1f, 65504.0f}, to[] = {1.015625f, 0.10009765625f, 65536.0f};
    EACH_FORM(k, form)
    for (int i = 0; i < 3 && form != PI0_GEMM_I8; i++) {
        const uint16_t stored = pi0_bf16_from_f32(from[i]);
        int32_t id = 0;
        float one = 1.0f, y = 0.0f;
        pi0_gemm g = {
            .x = &one, .ldx = 1, .part = {{.w = &stored, .n = 1, .y = &y, .ldy = 1}}, .w_dtype = PI0_BF16, .ldw = 1, .m = 1, .k = 1};
        run_whole(&k->gemm[form], &g);
        assert_true(y == to[i]);
        if (form == PI0_GEMM_BF16) { /* both sides are rounded: the input, and an f32 weight */
            g.x = &from[i];
            g.part[0].w = &one;
            g.w_dtype = PI0_F32;
            run_whole(&k->gemm[form], &g);
            assert_true(y == to[i]);
            g.x = &one;
            g.part[0].w = &from[i];
            run_whole(&k->gemm[form], &g);
            assert_true(y == to[i]);
        }
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
        run_whole(&k->gemm[PI0_GEMM_F32], &g);
        assert_true(k->finite(y.at, y.ld, ROWS, N));
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0.0, size = 0.0;
                for (int c = 0; c < K; c++) {
                    sum += (double)*cell(&x, i, c) * (double)*cell(&w.value, j, c);
                    size += fabs((double)*cell(&x, i, c) * (double)*cell(&w.value, j, c));
                }
                close_to(*cell(&y, i, j), sum, 600 * U * size, k->isa, "checkerboard");
            }
        assert_true(*cell(&y, 0, 0) == 599760.0f);
        guarded_free(&x), guarded_free(&y), weights_free(&w);
    }
}

/* ------------------------------------------------------------------ what a product can do as it is finished: the same bits as afterwards
 */

enum { PAIR_ROWS = 20, PAIR_DEPTH = 2100, HEAD = 20, HEADS = 5 };

static void same_as_afterwards(const pi0_kernels *k, int form, bool packed, pi0_gemm fused, pi0_gemm plain,
                               void (*after)(const pi0_kernels *k, const pi0_gemm *plain))
{
    const pi0_gemm_kernel *kernel = &k->gemm[form];
    void *memory = packed ? pack(kernel, &fused) : NULL;
    run_whole(kernel, &fused);
    run_whole(kernel, &plain);
    after(k, &plain);
    pi0_free(memory);
}

static const float *angle_cos, *angle_sin;
static int32_t positions[PAIR_ROWS];

static void turn(const pi0_kernels *k, const pi0_gemm *plain)
{
    const pi0_gemm_part *q = &plain->part[0];
    k->rope(q->y, q->ldy, angle_cos, angle_sin, positions, HEADS, HEAD, q->y, q->ldy, PAIR_ROWS);
}

static void rope_in_the_product_is_rope_after_it(void **state)
{
    (void)state;
    guarded x = guarded_random(PAIR_ROWS, PAIR_DEPTH, 1.0f), bias = guarded_random(1, 2 * HEADS * HEAD, 1.0f);
    guarded cos = guarded_random(7, HEAD / 2, 1.0f), sin = guarded_random(7, HEAD / 2, 1.0f);
    weights w = weights_from(guarded_random(2 * HEADS * HEAD, PAIR_DEPTH, 1.0f), PI0_BF16);
    float table[2][7 * HEAD / 2];
    for (int r = 0; r < 7; r++) {
        memcpy(table[0] + r * HEAD / 2, cell(&cos, r, 0), HEAD / 2 * sizeof(float));
        memcpy(table[1] + r * HEAD / 2, cell(&sin, r, 0), HEAD / 2 * sizeof(float));
    }
    angle_cos = table[0], angle_sin = table[1];
    for (int i = 0; i < PAIR_ROWS; i++)
        positions[i] = i % 7;
    EACH_FORM(k, form)
    for (int packed = 0; packed < 2; packed++) {
        guarded y = guarded_new(PAIR_ROWS, 2 * HEADS * HEAD), expected = guarded_new(PAIR_ROWS, 2 * HEADS * HEAD);
        pi0_gemm plain = gemm_of(&x, &w, &bias, &expected), fused = gemm_of(&x, &w, &bias, &y);
        const int n = HEADS * HEAD; /* turned queries, and values as they are */
        fused.part[0].n = n;
        fused.part[1] = (pi0_gemm_part){
            .w = (const char *)w.stored + (size_t)n * w.ld * sizeof(uint16_t), .n = n, .bias = bias.at + n, .y = y.at + n, .ldy = y.ld};
        fused.part[0].pairs = PI0_PAIRS_ROPE;
        fused.part[0].head = HEAD;
        fused.cos = table[0], fused.sin = table[1], fused.position = positions;
        same_as_afterwards(k, form, packed, fused, plain, turn);
        same_bits(&y, &expected);
        guard_check(&y, 0, PAIR_ROWS, 0, 2 * n);
        guarded_free(&y), guarded_free(&expected);
    }
    guarded_free(&x), guarded_free(&bias), guarded_free(&cos), guarded_free(&sin), weights_free(&w);
}

static void gate(const pi0_kernels *k, const pi0_gemm *plain)
{
    const pi0_gemm_part *y = &plain->part[0];
    const int n = y->n / 2;
    k->gelu(y->y, y->ldy, y->y, y->ldy, PAIR_ROWS, n);
    k->mul(y->y, y->ldy, y->y + n, y->ldy, y->y, y->ldy, PAIR_ROWS, n);
}

static void geglu_in_the_product_is_geglu_after_it(void **state)
{
    (void)state;
    enum { N = 77 };
    guarded x = guarded_random(PAIR_ROWS, PAIR_DEPTH, 0.1f);
    weights w = weights_from(guarded_random(2 * N, PAIR_DEPTH, 1.0f), PI0_BF16);
    EACH_FORM(k, form)
    for (int packed = 0; packed < 2; packed++) {
        guarded y = guarded_new(PAIR_ROWS, N), expected = guarded_new(PAIR_ROWS, 2 * N);
        pi0_gemm plain = gemm_of(&x, &w, NULL, &expected), fused = gemm_of(&x, &w, NULL, &y);
        fused.part[0].n = N;
        fused.part[0].pairs = PI0_PAIRS_GEGLU;
        fused.part[1] = (pi0_gemm_part){.w = (const char *)w.stored + (size_t)N * w.ld * sizeof(uint16_t), .n = N};
        same_as_afterwards(k, form, packed, fused, plain, gate);
        for (int i = 0; i < PAIR_ROWS; i++)
            assert_memory_equal(cell(&y, i, 0), cell(&expected, i, 0), N * sizeof(float));
        guard_check(&y, 0, PAIR_ROWS, 0, N);
        guarded_free(&y), guarded_free(&expected);
    }
    guarded_free(&x), weights_free(&w);
}

static void smooth(const pi0_kernels *k, const pi0_gemm *plain)
{
    k->gelu(plain->part[0].y, plain->part[0].ldy, plain->part[0].y, plain->part[0].ldy, PAIR_ROWS, plain->part[0].n);
}

static void gelu_in_the_product_is_gelu_after_it(void **state)
{
    (void)state;
    enum { N = 77 };
    guarded x = guarded_random(PAIR_ROWS, PAIR_DEPTH, 0.1f), bias = guarded_random(1, N, 1.0f);
    weights w = weights_from(guarded_random(N, PAIR_DEPTH, 1.0f), PI0_F32);
    EACH_FORM(k, form)
    for (int packed = 0; packed < 2; packed++) {
        guarded y = guarded_new(PAIR_ROWS, N), expected = guarded_new(PAIR_ROWS, N);
        pi0_gemm plain = gemm_of(&x, &w, &bias, &expected), fused = gemm_of(&x, &w, &bias, &y);
        fused.gelu = true;
        same_as_afterwards(k, form, packed, fused, plain, smooth);
        same_bits(&y, &expected);
        guarded_free(&y), guarded_free(&expected);
    }
    guarded_free(&x), guarded_free(&bias), weights_free(&w);
}

/* Everything at its largest: what would saturate if anything could, up to the widest k there is. */
static void whole_numbers_never_saturate(void **state)
{
    (void)state;
    enum { M = 7, N = 5 };
    static const int depths[] = {1, 4, 63, 1030, PI0_MAX_WIDTH};
    EACH_ISA(k)
    for (size_t d = 0; d < sizeof depths / sizeof depths[0]; d++) {
        const int depth = depths[d];
        guarded x = guarded_new(M, depth), value = guarded_new(N, depth), y = guarded_new(M, N);
        for (int c = 0; c < depth; c++) {
            const float alternating = c % 2 ? -1.0f : 1.0f, fours = c / 4 % 2 ? -1.0f : 1.0f;
            const float rows[M] = {3.0f, -3.0f, 3.0f * alternating, 3.0f * fours, 0.0f, c ? 2.99f : 3.0f, c ? -2.99f : 3.0f};
            const float columns[N] = {1.0f, -1.0f, alternating, fours, 0.0f};
            for (int i = 0; i < M; i++)
                *cell(&x, i, c) = rows[i];
            for (int j = 0; j < N; j++)
                *cell(&value, j, c) = columns[j];
        }
        weights w = weights_from(value, PI0_BF16);
        const pi0_gemm g = gemm_of(&x, &w, NULL, &y);
        run_whole(&k->gemm[PI0_GEMM_I8], &g);
        check_product(k, &g, &x, &w, &y, PI0_GEMM_I8);
        for (int j = 0; j < N; j++)
            assert_true(*cell(&y, 4, j) == 0.0f);
        guarded_free(&x), guarded_free(&y), weights_free(&w);
    }
}

static void whole_numbers_hide_nothing_that_is_not_finite(void **state)
{
    (void)state;
    enum { M = 9, N = 70, K = 300 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    EACH_ISA(k)
    for (int b = 0; b < 3; b++)
        for (int at = 0; at < K; at += 13) {
            guarded x = guarded_random(M, K, 1.0f), value = guarded_random(N, K, 1.0f), y = guarded_new(M, N);
            *cell(&x, 4, at) = bad[b];
            *cell(&value, 33, K - 1 - at) = bad[b];
            weights w = weights_from(value, at % 2 ? PI0_F32 : PI0_F16);
            const pi0_gemm g = gemm_of(&x, &w, NULL, &y);
            run_whole(&k->gemm[PI0_GEMM_I8], &g);
            for (int i = 0; i < M; i++)
                for (int j = 0; j < N; j++)
                    assert_true((i == 4 || j == 33) == isnan(*cell(&y, i, j)));
            guarded_free(&x), guarded_free(&y), weights_free(&w);
        }
}

static void peaks_count_their_work(void **state)
{
    (void)state;
    EACH_FORM(k, form)
    {
        const double one = k->gemm[form].peak(1);
        assert_true(one >= 2 * 12 * 4 && k->gemm[form].peak(10) == 10 * one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemm_matches_double),
        cmocka_unit_test(gemm_of_depth_zero_is_the_bias),
        cmocka_unit_test(gemm_row_bits_do_not_depend_on_batch_split_or_packing),
        cmocka_unit_test(gemm_keeps_extremes_in_their_row_and_column),
        cmocka_unit_test(B10_stored_bf16_is_rounded_to_nearest_even_on_every_path),
        cmocka_unit_test(B11_checkerboard_picture_accumulates_in_f32),
        cmocka_unit_test(rope_in_the_product_is_rope_after_it),
        cmocka_unit_test(geglu_in_the_product_is_geglu_after_it),
        cmocka_unit_test(gelu_in_the_product_is_gelu_after_it),
        cmocka_unit_test(whole_numbers_never_saturate),
        cmocka_unit_test(whole_numbers_hide_nothing_that_is_not_finite),
        cmocka_unit_test(peaks_count_their_work),
    };
    return cmocka_run_group_tests_name("gemm", tests, load_isas, NULL);
}
