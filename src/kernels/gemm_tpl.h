/* gemm_tpl - matrix product with weights read where they lie, and the tile that attention shares with it.
 *
 * Rows of x are interleaved six at a time (a panel [k][TILE_ROWS]), rows of w are widened and transposed TILE_COLS at a time (a panel
 * [k][TILE_COLS], small enough for L1), and a tile of the product is kept in registers over one block of k. Missing rows and columns
 * of a panel are zeros: every element goes through the same arithmetic, blocks of GEMM_K in ascending order, whatever the split.
 */

enum {
    TILE_ROWS = 6,
    TILE_COLS = 2 * V_LANES,
    PANEL_SLACK = 16, /* floats that the interleaving stores write past the last element of a panel */
    GEMM_K = 256,     /* with TILE_COLS = 16: a panel of w is 16 KB */
    GEMM_M = 576,     /* rows interleaved at a time: 0.6 MB, half of a usual L2 */
    GEMM_N = 512      /* columns between two interleavings of the same rows: keeps the accumulated columns of y in cache */
};

/* out[TILE_ROWS][TILE_COLS] = a[k][TILE_ROWS]^T * b[k][TILE_COLS] */
static __attribute__((noinline)) void tile_product(int k, const float *a, const float *b, float *out)
{
#define TILE_EACH_ROW(what) what(0) what(1) what(2) what(3) what(4) what(5)
#define TILE_ZERO(i) vf c##i = {0}, d##i = {0};
#define TILE_STEP(i)               \
    {                              \
        vf x = v_set1(a[i]);       \
        c##i = v_fma(x, b0, c##i); \
        d##i = v_fma(x, b1, d##i); \
    }
#define TILE_OUT(i)                     \
    v_store(out + i * TILE_COLS, c##i); \
    v_store(out + i * TILE_COLS + V_LANES, d##i);
    TILE_EACH_ROW(TILE_ZERO)
    for (int j = 0; j < k; j++) {
        vf b0 = v_load(b), b1 = v_load(b + V_LANES);
        TILE_EACH_ROW(TILE_STEP)
        a += TILE_ROWS;
        b += TILE_COLS;
    }
    TILE_EACH_ROW(TILE_OUT)
#undef TILE_EACH_ROW
#undef TILE_ZERO
#undef TILE_STEP
#undef TILE_OUT
}

/* panel[k][TILE_ROWS] = x[rows][k]^T, rows above `rows` zero */
static void tile_interleave(const float *x, size_t ldx, int rows, int k, float *panel)
{
    const float *row[2 * V_LANES];
    for (int i = 0; i < TILE_ROWS; i++)
        row[i] = i < rows ? x + (size_t)i * ldx : NULL;
    int whole = k / V_LANES * V_LANES;
    for (int first = 0; first < TILE_ROWS; first += V_LANES) {
        for (int j = 0; j < whole; j += V_LANES) {
            vf r[V_LANES];
            V_UNROLL
            for (int i = 0; i < V_LANES; i++)
                r[i] = first + i < rows && first + i < TILE_ROWS ? v_load(row[first + i] + j) : (vf){0};
            v_transpose(r);
            V_UNROLL
            for (int i = 0; i < V_LANES; i++) {
                float *to = panel + (size_t)(j + i) * TILE_ROWS + first;
                /* a store may run over what lies after its own elements only while those are still to be written */
                if (first == 0)
                    v_store(to, r[i]);
                else
                    v_store_part(to, r[i], TILE_ROWS - first);
            }
        }
    }
    for (int j = whole; j < k; j++)
        for (int i = 0; i < TILE_ROWS; i++)
            panel[(size_t)j * TILE_ROWS + i] = i < rows ? row[i][j] : 0.0f;
}

/* panel[k][TILE_COLS] = columns k0 .. k0+k of the rows, widened and transposed; a NULL row counts as zeros */
V_INLINE void tile_transpose_as(const void *const row[TILE_COLS], pi0_dtype dtype, size_t k0, int k, float *panel)
{
    int whole = k / V_LANES * V_LANES;
    for (int first = 0; first < TILE_COLS; first += V_LANES) {
        const void *const *from = row + first;
        bool full = true;
        for (int i = 0; i < V_LANES; i++)
            full = full && from[i] != NULL;
        for (int j = 0; j < k; j += V_LANES) {
            vf r[V_LANES];
            size_t at = k0 + (size_t)j;
            if (full && j < whole) {
                V_UNROLL
                for (int i = 0; i < V_LANES; i++)
                    r[i] = v_widen(from[i], dtype, at);
            } else {
                int n = pi0_min_int(V_LANES, k - j);
                V_UNROLL
                for (int i = 0; i < V_LANES; i++)
                    r[i] = from[i] != NULL ? v_widen_part(from[i], dtype, at, n) : (vf){0};
            }
            v_transpose(r);
            float *to = panel + (size_t)j * TILE_COLS + first;
            if (j < whole) {
                V_UNROLL
                for (int i = 0; i < V_LANES; i++)
                    v_store(to + i * TILE_COLS, r[i]);
            } else {
                for (int i = 0; i < k - j; i++)
                    v_store(to + i * TILE_COLS, r[i]);
            }
        }
    }
}

static void tile_transpose(const void *const row[TILE_COLS], pi0_dtype dtype, size_t k0, int k, float *panel)
{
    if (dtype == PI0_BF16)
        tile_transpose_as(row, PI0_BF16, k0, k, panel);
    else if (dtype == PI0_F16)
        tile_transpose_as(row, PI0_F16, k0, k, panel);
    else
        tile_transpose_as(row, PI0_F32, k0, k, panel);
}

/* y[rows][cols] = tile, or += */
static void tile_put(const float *tile, float *y, size_t ldy, int rows, int cols, bool add)
{
    for (int i = 0; i < rows; i++, tile += TILE_COLS, y += ldy)
        for (int j = 0; j < cols; j += V_LANES) {
            vf t = v_load(tile + j);
            v_put(y + j, add ? v_get(y + j, cols - j) + t : t, cols - j);
        }
}

static void tile_add_bias(const float *bias, float *y, size_t ldy, int rows, int cols)
{
    for (int j = 0; j < cols; j += V_LANES) {
        vf b = v_get(bias + j, cols - j);
        for (int i = 0; i < rows; i++) {
            float *at = y + (size_t)i * ldy + j;
            v_put(at, v_get(at, cols - j) + b, cols - j);
        }
    }
}

typedef struct gemm_panel {
    const void *row[TILE_COLS];
    size_t row_bytes; /* of one block of k */
} gemm_panel;

static gemm_panel gemm_panel_at(const pi0_gemm *g, int n, int n1, int kc)
{
    size_t element = g->w_dtype == PI0_F32 ? sizeof(float) : sizeof(uint16_t);
    gemm_panel p = {.row_bytes = (size_t)kc * element};
    for (int i = 0; i < TILE_COLS; i++)
        p.row[i] = n + i < n1 ? (const char *)g->w + (size_t)(n + i) * g->ldw * element : NULL;
    return p;
}

/* Asks for part `part` of `parts` of the next panel while the current one is being multiplied: its rows are too short for the
 * hardware's own stream detection to run ahead. */
static void gemm_prefetch(const gemm_panel *p, size_t k0_bytes, int part, int parts)
{
    int first = TILE_COLS * part / parts, last = TILE_COLS * (part + 1) / parts;
    for (int i = first; i < last; i++)
        if (p->row[i] != NULL)
            for (size_t b = 0; b < p->row_bytes; b += 64)
                __builtin_prefetch((const char *)p->row[i] + k0_bytes + b);
}

/* Rows [m0,m1) x columns [n0,n1) over one block of k. */
static void gemm_block(const pi0_gemm *g, int m0, int m1, int n0, int n1, int k0, int kc, const float *a, float *b)
{
    int tiles = (m1 - m0 + TILE_ROWS - 1) / TILE_ROWS;
    bool last = k0 + kc == g->k;
    gemm_panel panel = gemm_panel_at(g, n0, n1, kc);
    size_t element = kc > 0 ? panel.row_bytes / (size_t)kc : 1;
    for (int n = n0; n < n1; n += TILE_COLS) {
        int cols = pi0_min_int(TILE_COLS, n1 - n);
        tile_transpose(panel.row, g->w_dtype, (size_t)k0, kc, b);
        panel = gemm_panel_at(g, n + TILE_COLS, n1, kc);
        for (int t = 0; t < tiles; t++) {
            float tile[TILE_ROWS * TILE_COLS];
            int m = m0 + t * TILE_ROWS, rows = pi0_min_int(TILE_ROWS, m1 - m);
            float *y = g->y + (size_t)m * g->ldy + n;
            gemm_prefetch(&panel, (size_t)k0 * element, t, tiles);
            tile_product(kc, a + (size_t)t * TILE_ROWS * (size_t)kc, b, tile);
            tile_put(tile, y, g->ldy, rows, cols, k0 > 0);
            if (last && g->bias != NULL)
                tile_add_bias(g->bias + n, y, g->ldy, rows, cols);
        }
    }
}

static void gemm(const pi0_gemm *g, int m0, int m1, int n0, int n1, void *workspace)
{
    float *b = workspace, *a = b + GEMM_K * TILE_COLS;
    for (int m = m0; m < m1; m += GEMM_M) {
        int m_end = pi0_min_int(m1, m + GEMM_M), interleaved = -1;
        for (int n = n0; n < n1; n += GEMM_N) {
            int n_end = pi0_min_int(n1, n + GEMM_N), k0 = 0;
            do {
                int kc = pi0_min_int(GEMM_K, g->k - k0);
                if (interleaved != k0)
                    for (int i = m; i < m_end; i += TILE_ROWS)
                        tile_interleave(g->x + (size_t)i * g->ldx + k0, g->ldx, pi0_min_int(TILE_ROWS, m_end - i), kc,
                                        a + (size_t)(i - m) * (size_t)kc);
                interleaved = k0;
                gemm_block(g, m, m_end, n, n_end, k0, kc, a, b);
                k0 += kc;
            } while (k0 < g->k);
        }
    }
}

enum { GEMM_WORKSPACE = (int)sizeof(float) * (GEMM_K * TILE_COLS + GEMM_K * GEMM_M + PANEL_SLACK) };
