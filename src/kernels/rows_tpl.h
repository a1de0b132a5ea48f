/* rows_tpl - kernels that work row by row: norms, element-wise operations, rope, embedding, patches.
 *
 * Element-wise products and sums are rounded one by one, as the reference implementations do, not fused: their bits are the same in
 * every folder.
 */

#define ROW(pointer, ld) ((pointer) + (size_t)r * (ld))

static double row_mean_square(const float *x, int cols, double mean)
{
    v_double_sum sum = {0};
    int whole = cols / V_LANES * V_LANES;
    for (int j = 0; j < whole; j += V_LANES)
        v_double_add_square(&sum, v_load(x + j), mean);
    double total = v_double_total(&sum);
    for (int j = whole; j < cols; j++)
        total += ((double)x[j] - mean) * ((double)x[j] - mean);
    return total / cols;
}

static double row_mean(const float *x, int cols)
{
    v_double_sum sum = {0};
    for (int j = 0; j < cols; j += V_LANES)
        v_double_add(&sum, v_get(x + j, cols - j));
    return v_double_total(&sum) / cols;
}

static void layer_norm(const float *x, size_t ldx, const float *w, const float *b, float eps, float *y, size_t ldy, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        const float *from = ROW(x, ldx);
        float *to = ROW(y, ldy);
        double mean = row_mean(from, cols);
        vf factor = v_set1((float)(1.0 / sqrt(row_mean_square(from, cols, mean) + (double)eps))), center = v_set1((float)mean);
        for (int j = 0; j < cols; j += V_LANES) {
            int left = cols - j;
            v_put(to + j, (v_get(from + j, left) - center) * factor * v_get(w + j, left) + v_get(b + j, left), left);
        }
    }
}

static vf rms_factor(const float *x, int cols, float eps)
{
    return v_set1((float)(1.0 / sqrt(row_mean_square(x, cols, 0.0) + (double)eps)));
}

static void rms_norm(const float *x, size_t ldx, const float *w1, float eps, float *y, size_t ldy, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        const float *from = ROW(x, ldx);
        float *to = ROW(y, ldy);
        vf factor = rms_factor(from, cols, eps);
        for (int j = 0; j < cols; j += V_LANES) {
            int left = cols - j;
            v_put(to + j, v_get(from + j, left) * factor * v_get(w1 + j, left), left);
        }
    }
}

static void ada_norm(const float *x, size_t ldx, const float *mod, float eps, float *y, size_t ldy, int rows, int cols)
{
    const float *scale = mod, *shift = mod + cols;
    for (int r = 0; r < rows; r++) {
        const float *from = ROW(x, ldx);
        float *to = ROW(y, ldy);
        vf factor = rms_factor(from, cols, eps);
        for (int j = 0; j < cols; j += V_LANES) {
            int left = cols - j;
            v_put(to + j, v_get(from + j, left) * factor * (v_set1(1.0f) + v_get(scale + j, left)) + v_get(shift + j, left), left);
        }
    }
}

/* One loop for everything that maps equal columns of two inputs to an output: `value` is made of a and b. */
#define ROWS_OF_TWO(a_, lda_, b_, ldb_, value)                                         \
    for (int r = 0; r < rows; r++)                                                     \
        for (int j = 0; j < cols; j += V_LANES) {                                      \
            int left = cols - j;                                                       \
            vf a = v_get(ROW(a_, lda_) + j, left), b = v_get(ROW(b_, ldb_) + j, left); \
            v_put(ROW(y, ldy) + j, value, left);                                       \
        }

static void gated_add(const float *x, size_t ldx, const float *branch, size_t ldb, const float *gate, float *y, size_t ldy, int rows,
                      int cols)
{
    ROWS_OF_TWO(x, ldx, branch, ldb, a + b * v_get(gate + j, left))
}

static void add(const float *u, size_t ldu, const float *v, size_t ldv, float *y, size_t ldy, int rows, int cols)
{
    ROWS_OF_TWO(u, ldu, v, ldv, a + b)
}

static void mul(const float *u, size_t ldu, const float *v, size_t ldv, float *y, size_t ldy, int rows, int cols)
{
    ROWS_OF_TWO(u, ldu, v, ldv, a * b)
}

static void euler(const float *x, size_t ldx, const float *v, size_t ldv, float dt, float *y, size_t ldy, int rows, int cols)
{
    ROWS_OF_TWO(x, ldx, v, ldv, a + v_set1(dt) * b)
}

static void silu(const float *x, size_t ldx, float *y, size_t ldy, int rows, int cols)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < cols; j += V_LANES) {
            vf v = v_get(ROW(x, ldx) + j, cols - j);
            v_put(ROW(y, ldy) + j, v / (v_set1(1.0f) + v_exp(-v)), cols - j);
        }
}

static void gelu(const float *x, size_t ldx, float *y, size_t ldy, int rows, int cols)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < cols; j += V_LANES)
            v_put(ROW(y, ldy) + j, v_gelu(v_get(ROW(x, ldx) + j, cols - j)), cols - j);
}

static void rope(const float *x, size_t ldx, const float *cos, const float *sin, const int32_t *position, int heads, int d, float *y,
                 size_t ldy, int rows)
{
    int half = d / 2;
    for (int r = 0; r < rows; r++) {
        const float *c = cos + (size_t)position[r] * (size_t)half, *s = sin + (size_t)position[r] * (size_t)half;
        for (int h = 0; h < heads; h++) {
            const float *from = ROW(x, ldx) + (size_t)h * (size_t)d;
            float *to = ROW(y, ldy) + (size_t)h * (size_t)d;
            for (int j = 0; j < half; j += V_LANES) {
                int left = half - j;
                vf a = v_get(from + j, left), b = v_get(from + half + j, left), cj = v_get(c + j, left), sj = v_get(s + j, left);
                v_put(to + j, a * cj - b * sj, left);
                v_put(to + half + j, b * cj + a * sj, left);
            }
        }
    }
}

static void embed(const int32_t *ids, const void *table, pi0_dtype dtype, size_t ldt, float scale, float *y, size_t ldy, int rows, int cols)
{
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < cols; j += V_LANES) {
            size_t at = (size_t)ids[r] * ldt + (size_t)j;
            int left = cols - j;
            vf v = left >= V_LANES ? v_widen(table, dtype, at) : v_widen_part(table, dtype, at, left);
            v_put(ROW(y, ldy) + j, v * v_set1(scale), left);
        }
}

static void patchify(const float *picture, int side, int p, float *y, size_t ldy, int row0, int row1)
{
    int across = side / p;
    for (int row = row0; row < row1; row++) {
        const float *corner = picture + ((size_t)(row / across) * (size_t)side + (size_t)(row % across)) * (size_t)p * 3;
        float *to = y + (size_t)row * ldy;
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < p; i++)
                for (int j = 0; j < p; j++)
                    *to++ = corner[((size_t)i * (size_t)side + (size_t)j) * 3 + (size_t)c];
    }
}

static bool finite_rows(const float *x, size_t ldx, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        vi bad = {0};
        for (int j = 0; j < cols; j += V_LANES)
            bad |= (vi)(((vi)v_get(ROW(x, ldx) + j, cols - j) & 0x7f800000) == 0x7f800000);
        for (int i = 0; i < V_LANES; i++)
            if (bad[i])
                return false;
    }
    return true;
}
