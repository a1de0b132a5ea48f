/* gemm_tpl - matrix products on top of tiles, for every form.
 *
 * A tile of the product stays in registers over GEMM_STEP elements of k; longer sums are added up in y, in ascending order whatever the
 * split. Weights that were not packed are packed a panel and a step at a time, which is worth its while from some hundred rows of x on.
 */

/* How a form lays out its words. */
typedef struct gemm_form {
    int group;   /* elements of k in a word of x */
    int w_words; /* words of w a word of k: all columns of the panel */
    int k_step;  /* elements of k that a tile stays in registers for */
    const tile_product *product;
    void (*pack)(const void *const *row, pi0_dtype dtype, size_t k0, int k, void *panel);
} gemm_form;

static inline int gemm_words(const gemm_form *f, int k)
{
    return (k + f->group - 1) / f->group;
}

static inline size_t gemm_panel_words(const gemm_form *f, int k)
{
    return (size_t)tile_pad(gemm_words(f, k), TILE_STEP) * (size_t)f->w_words;
}

/* The stored rows behind columns n .. n+TILE_COLS; NULL beyond the last. */
static inline void gemm_rows_of_panel(const pi0_gemm *g, int n, const void *row[TILE_COLS])
{
    const size_t element = pi0_dtype_size(g->w_dtype);
    int part = 0, first = 0;
    for (int i = 0; i < TILE_COLS; i++) {
        row[i] = NULL;
        while (part < PI0_GEMM_PARTS && n + i >= first + g->part[part].n)
            first += g->part[part++].n;
        if (part < PI0_GEMM_PARTS && n + i < g->n)
            row[i] = (const char *)g->part[part].w + (size_t)(n + i - first) * g->ldw * element;
    }
}

static inline void gemm_pack(const gemm_form *f, const pi0_gemm *g, int n0, int n1, void *packed)
{
    const size_t panel_words = gemm_panel_words(f, g->k);
    for (int n = n0; n < n1; n += TILE_COLS) {
        const void *row[TILE_COLS];
        gemm_rows_of_panel(g, n, row);
        f->pack(row, g->w_dtype, 0, g->k, (float *)packed + (size_t)(n / TILE_COLS) * panel_words);
    }
}

/* y = tile (+ y when k does not start here) (+ bias when it ends here) */
static inline void gemm_finish(const pi0_gemm *g, const float *tile, int m, int rows, int n, bool add, bool last)
{
    const int cols = pi0_min_int(TILE_COLS, g->n - n);
    for (int j = 0; j < cols; j += V_LANES) {
        const vf bias = last && g->bias != NULL ? v_get(g->bias + n + j, cols - j) : (vf){0};
        for (int i = 0; i < rows; i++) {
            float *y = g->y + (size_t)(m + i) * g->ldy + n + j;
            vf value = v_load(tile + i * TILE_COLS + j);
            if (add)
                value = v_get(y, cols - j) + value;
            if (last && g->bias != NULL)
                value += bias;
            v_put(y, value, cols - j);
        }
    }
}

/* What is read next of w, in as many parts as there are tiles to hide the reading behind. */
typedef struct gemm_ahead {
    const char *from[TILE_COLS];
    int rows;
    size_t row_bytes;
} gemm_ahead;

static inline gemm_ahead gemm_look_ahead(const gemm_form *f, const pi0_gemm *g, int n, int k0, int k)
{
    gemm_ahead ahead = {.rows = 0};
    if (n >= g->n)
        return ahead;
    if (g->packed != NULL) {
        const size_t at = (size_t)(n / TILE_COLS) * gemm_panel_words(f, g->k) + (size_t)(k0 / f->group) * (size_t)f->w_words;
        ahead.rows = 1;
        ahead.from[0] = (const char *)g->packed + at * sizeof(float);
        ahead.row_bytes = gemm_panel_words(f, k) * sizeof(float);
        return ahead;
    }
    const void *row[TILE_COLS];
    gemm_rows_of_panel(g, n, row);
    const size_t element = pi0_dtype_size(g->w_dtype);
    for (; ahead.rows < TILE_COLS && row[ahead.rows] != NULL; ahead.rows++)
        ahead.from[ahead.rows] = (const char *)row[ahead.rows] + (size_t)k0 * element;
    ahead.row_bytes = (size_t)k * element;
    return ahead;
}

static inline void gemm_prefetch(const gemm_ahead *ahead, int part, int parts)
{
    const size_t lines_of_row = (ahead->row_bytes + 63) / 64, lines = (size_t)ahead->rows * lines_of_row;
    const size_t end = lines * (size_t)(part + 1) / (size_t)parts;
    for (size_t line = lines * (size_t)part / (size_t)parts; line < end; line++)
        __builtin_prefetch(ahead->from[line / lines_of_row] + line % lines_of_row * 64);
}

static inline void gemm_multiply(const gemm_form *f, const pi0_gemm *g, int k0, int k1, int t0, int t1, int n0, int n1,
                                 const void *prepared, void *workspace)
{
    const int tiles = pi0_tiles(g->m, TILE_ROWS);
    const size_t line_words = tile_line_words(gemm_words(f, k1 - k0));
    int k = k0;
    do { /* once even when k is 0: y is then the bias */
        const int kc = pi0_min_int(f->k_step, k1 - k), words = tile_pad(gemm_words(f, kc), TILE_STEP);
        for (int n = n0; n < n1; n += TILE_COLS) {
            const void *row[TILE_COLS];
            const float *panel = workspace;
            if (g->packed != NULL) {
                panel = (const float *)g->packed + (size_t)(n / TILE_COLS) * gemm_panel_words(f, g->k) +
                        (size_t)(k / f->group) * (size_t)f->w_words;
            } else {
                gemm_rows_of_panel(g, n, row);
                f->pack(row, g->w_dtype, (size_t)k, kc, workspace);
            }
            const gemm_ahead ahead = gemm_look_ahead(f, g, n + TILE_COLS, k, kc);
            for (int t = t0; t < t1; t++) {
                float tile[TILE_ROWS * TILE_COLS];
                const int m = pi0_tile_at(g->m, tiles, t), rows = pi0_tile_at(g->m, tiles, t + 1) - m;
                const float *x = (const float *)prepared + (size_t)m * line_words + (size_t)rows * (size_t)((k - k0) / f->group);
                gemm_prefetch(&ahead, t - t0, t1 - t0);
                f->product[rows](words, x, panel, tile);
                gemm_finish(g, tile, m, rows, n, k > 0, k + kc == g->k);
            }
        }
        k += kc;
    } while (k < k1);
}
