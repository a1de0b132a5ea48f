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
    bool scaled; /* sums are int32 and become f32 by the scales of row and column, which lie before the rows of x and each panel of w */
} gemm_form;

static inline int gemm_words(const gemm_form *f, int k)
{
    return (k + f->group - 1) / f->group;
}

/* Words of k elements of a panel of w. */
static inline size_t gemm_step_words(const gemm_form *f, int k)
{
    return (size_t)tile_pad(gemm_words(f, k), TILE_STEP) * (size_t)f->w_words;
}

/* Of a panel as it is packed. */
static inline size_t gemm_panel_words(const gemm_form *f, int k)
{
    return (f->scaled ? 2 * TILE_COLS : 0) + gemm_step_words(f, k);
}

/* Before the lines of m prepared rows. */
static inline size_t gemm_head_words(const gemm_form *f, int m)
{
    return f->scaled ? (size_t)tile_pad(m, TILE_LINE) : 0;
}

/* Which columns a panel holds. */
typedef struct gemm_panel {
    const pi0_gemm_part *part;
    int column, count; /* the first, and how many: of the first halves of pairs, when they are paired */
} gemm_panel;

static inline gemm_panel gemm_panel_at(const pi0_gemm *g, int p)
{
    int part = 0;
    for (int panels; part < PI0_GEMM_PARTS - 1 && p >= (panels = pi0_panels_of_part(g, part, TILE_COLS)); part++)
        p -= panels;
    gemm_panel panel = {.part = &g->part[part]};
    const int n = panel.part->n, half = TILE_COLS / 2;
    if (panel.part->pairs == PI0_PAIRS_ROPE) {
        const int turned = panel.part->head / 2, panels_a_head = (turned + half - 1) / half, first = p % panels_a_head * half;
        panel.column = p / panels_a_head * panel.part->head + first;
        panel.count = pi0_min_int(half, turned - first);
    } else {
        const int width = panel.part->pairs == PI0_PAIRS_GEGLU ? half : TILE_COLS;
        panel.column = p * width;
        panel.count = pi0_min_int(width, n - panel.column);
    }
    return panel;
}

static inline const void *gemm_row(const pi0_gemm *g, const pi0_gemm_part *part, int n)
{
    return (const char *)part->w + (size_t)n * g->ldw * pi0_dtype_size(g->w_dtype);
}

/* The stored rows behind the columns of a panel; NULL where it has none. */
static inline void gemm_rows_of_panel(const pi0_gemm *g, const gemm_panel *panel, const void *row[TILE_COLS])
{
    const pi0_gemm_part *part = panel->part;
    for (int i = 0; i < TILE_COLS; i++)
        row[i] = NULL;
    for (int i = 0; i < panel->count; i++)
        row[i] = gemm_row(g, part, panel->column + i);
    for (int i = 0; i < panel->count && part->pairs != PI0_PAIRS_NONE; i++)
        row[TILE_COLS / 2 + i] = part->pairs == PI0_PAIRS_ROPE ? gemm_row(g, part, panel->column + part->head / 2 + i)
                                                               : gemm_row(g, part + 1, panel->column + i);
}

static inline size_t gemm_packed_bytes(const gemm_form *f, const pi0_gemm *g)
{
    return (size_t)pi0_panels(g, TILE_COLS) * gemm_panel_words(f, g->k) * sizeof(float);
}

static inline void gemm_pack(const gemm_form *f, const pi0_gemm *g, int p0, int p1, void *packed)
{
    for (int p = p0; p < p1; p++) {
        const void *row[TILE_COLS];
        const gemm_panel panel = gemm_panel_at(g, p);
        gemm_rows_of_panel(g, &panel, row);
        f->pack(row, g->w_dtype, 0, g->k, (float *)packed + (size_t)p * gemm_panel_words(f, g->k));
    }
}

/* ------------------------------------------------------------------ a tile's way to y */

/* What the sums of a tile are multiples of. row NULL: they are f32 already. */
typedef struct gemm_scales {
    const float *row, *column;
    const int32_t *excess; /* of each column: what its sums have too much */
} gemm_scales;

static inline gemm_scales gemm_scales_of(const gemm_form *f, const pi0_gemm *g, int p, int m, const void *prepared)
{
    if (!f->scaled)
        return (gemm_scales){.row = NULL};
    const float *panel = (const float *)g->packed + (size_t)p * gemm_panel_words(f, g->k);
    return (gemm_scales){(const float *)prepared + m, panel, (const int32_t *)(const void *)(panel + TILE_COLS)};
}

V_INLINE vf gemm_add(const gemm_scales *scales, vf a, vf b)
{
    return scales->row != NULL ? (vf)((vi)a + (vi)b) : a + b;
}

typedef struct gemm_columns {
    vf unit;
    vi excess;
} gemm_columns;

V_INLINE gemm_columns gemm_columns_at(const gemm_scales *scales, int j)
{
    if (scales->row == NULL)
        return (gemm_columns){.unit = {0}};
    return (gemm_columns){v_load(scales->column + j), (vi)v_load((const float *)(const void *)(scales->excess + j))};
}

/* A sum of row i of a tile, in f32. */
V_INLINE vf gemm_value(const gemm_scales *scales, gemm_columns columns, vf sum, int i)
{
    if (scales->row == NULL)
        return sum;
    return __builtin_convertvector((vi)sum - columns.excess, vf) * (v_set1(scales->row[i]) * columns.unit);
}

/* y = tile (+ y when k does not start here) (+ bias, through gelu, when it ends here) */
static inline void gemm_finish(const pi0_gemm *g, const gemm_panel *panel, const gemm_scales *scales, const float *tile, int m, int rows,
                               bool add, bool last)
{
    const pi0_gemm_part *part = panel->part;
    for (int j = 0; j < panel->count; j += V_LANES) {
        const int left = panel->count - j;
        const bool biased = last && part->bias != NULL;
        const gemm_columns columns = gemm_columns_at(scales, j);
        const vf bias = biased ? v_get(part->bias + panel->column + j, left) : (vf){0};
        for (int i = 0; i < rows; i++) {
            float *y = part->y + (size_t)(m + i) * part->ldy + panel->column + j;
            vf value = v_load(tile + i * TILE_COLS + j);
            if (add)
                value = gemm_add(scales, v_get(y, left), value);
            if (last)
                value = gemm_value(scales, columns, value, i);
            if (biased)
                value += bias;
            if (last && g->gelu)
                value = v_gelu(value);
            v_put(y, value, left);
        }
    }
}

static inline void gemm_finish_rope(const pi0_gemm *g, const gemm_panel *panel, const gemm_scales *scales, const float *tile, int m,
                                    int rows)
{
    const pi0_gemm_part *part = panel->part;
    const int half = part->head / 2, first = panel->column % part->head;
    for (int i = 0; i < rows; i++) {
        const float *cos = g->cos + (size_t)g->position[m + i] * (size_t)half + first;
        const float *sin = g->sin + (size_t)g->position[m + i] * (size_t)half + first;
        float *y = part->y + (size_t)(m + i) * part->ldy + panel->column;
        for (int j = 0; j < panel->count; j += V_LANES) {
            const int left = panel->count - j;
            vf a = gemm_value(scales, gemm_columns_at(scales, j), v_load(tile + i * TILE_COLS + j), i);
            vf b = gemm_value(scales, gemm_columns_at(scales, TILE_COLS / 2 + j), v_load(tile + i * TILE_COLS + TILE_COLS / 2 + j), i);
            if (part->bias != NULL) {
                a += v_get(part->bias + panel->column + j, left);
                b += v_get(part->bias + panel->column + half + j, left);
            }
            const vf c = v_get(cos + j, left), s = v_get(sin + j, left);
            v_put(y + j, a * c - b * s, left);
            v_put(y + half + j, b * c + a * s, left);
        }
    }
}

static inline void gemm_finish_geglu(const gemm_panel *panel, const gemm_scales *scales, const float *tile, int m, int rows)
{
    const pi0_gemm_part *gate = panel->part, *up = gate + 1;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < panel->count; j += V_LANES) {
            const int left = panel->count - j;
            vf a = gemm_value(scales, gemm_columns_at(scales, j), v_load(tile + i * TILE_COLS + j), i);
            vf b = gemm_value(scales, gemm_columns_at(scales, TILE_COLS / 2 + j), v_load(tile + i * TILE_COLS + TILE_COLS / 2 + j), i);
            if (gate->bias != NULL)
                a += v_get(gate->bias + panel->column + j, left);
            if (up->bias != NULL)
                b += v_get(up->bias + panel->column + j, left);
            v_put(gate->y + (size_t)(m + i) * gate->ldy + panel->column + j, v_gelu(a) * b, left);
        }
}

/* ------------------------------------------------------------------ the product */

/* What is read next of w, in as many parts as there are tiles to hide the reading behind. */
typedef struct gemm_ahead {
    const char *from[TILE_COLS];
    int rows;
    size_t row_bytes;
} gemm_ahead;

static inline const float *gemm_packed_weights(const gemm_form *f, const pi0_gemm *g, int p, int k)
{
    const size_t head = gemm_panel_words(f, 0);
    return (const float *)g->packed + (size_t)p * gemm_panel_words(f, g->k) + head + gemm_step_words(f, k);
}

static inline gemm_ahead gemm_look_ahead(const gemm_form *f, const pi0_gemm *g, int p, int k0, int k)
{
    gemm_ahead ahead = {.rows = 0};
    if (g->packed != NULL) {
        ahead.rows = 1;
        ahead.from[0] = (const char *)gemm_packed_weights(f, g, p, k0);
        ahead.row_bytes = gemm_step_words(f, k) * sizeof(float);
        return ahead;
    }
    const void *row[TILE_COLS];
    const gemm_panel panel = gemm_panel_at(g, p);
    gemm_rows_of_panel(g, &panel, row);
    const size_t element = pi0_dtype_size(g->w_dtype);
    for (int i = 0; i < TILE_COLS; i++)
        if (row[i] != NULL)
            ahead.from[ahead.rows++] = (const char *)row[i] + (size_t)k0 * element;
    ahead.row_bytes = (size_t)k * element;
    return ahead;
}

static inline void gemm_prefetch(const gemm_ahead *ahead, int part, int parts)
{
    const size_t lines_of_row = (ahead->row_bytes + 63) / 64, lines = (size_t)ahead->rows * lines_of_row;
    const size_t first = lines * (size_t)part / (size_t)parts, end = lines * (size_t)(part + 1) / (size_t)parts;
    if (ahead->rows == 1) { /* packed; as few instructions as can be, for they stand between the products */
        const char *from = ahead->from[0] + first * 64;
        const char *const stop = ahead->from[0] + end * 64;
        for (; from < stop - 256; from += 256) {
            __builtin_prefetch(from);
            __builtin_prefetch(from + 64);
            __builtin_prefetch(from + 128);
            __builtin_prefetch(from + 192);
        }
        for (; from < stop; from += 64)
            __builtin_prefetch(from);
        return;
    }
    size_t row = lines > 0 ? first / lines_of_row : 0, at = first - row * lines_of_row;
    for (size_t line = first; line < end; line++) { /* no division here: it would take as long as the products */
        __builtin_prefetch(ahead->from[row] + at * 64);
        if (++at == lines_of_row) {
            at = 0;
            row++;
        }
    }
}

/* Elements k .. k+kc of a panel of w, packed into workspace when they are not yet. */
static inline const float *gemm_weights(const gemm_form *f, const pi0_gemm *g, const gemm_panel *panel, int p, int k, int kc,
                                        void *workspace)
{
    if (g->packed != NULL)
        return gemm_packed_weights(f, g, p, k);
    const void *row[TILE_COLS];
    gemm_rows_of_panel(g, panel, row);
    f->pack(row, g->w_dtype, (size_t)k, kc, workspace);
    return workspace;
}

/* One tile by one panel over elements k .. k+kc of a span that starts at k0. */
static inline void gemm_tile(const gemm_form *f, int rows, int m, size_t line_words, int k, int kc, const float *lines,
                             const float *weights, float *tile)
{
    const float *x = lines + (size_t)m * line_words + (size_t)rows * (size_t)(k / f->group);
    f->product[rows](tile_pad(gemm_words(f, kc), TILE_STEP), x, weights, tile, TILE_COLS);
}

/* Pairs need the whole sum before they can be finished: steps of k are added up in a buffer, in the order in which y would be. */
static inline void gemm_multiply_pairs(const gemm_form *f, const pi0_gemm *g, const gemm_panel *panel, int p, int t0, int t1, int p_ahead,
                                       const void *prepared, void *workspace)
{
    const int tiles = pi0_tiles(g->m, TILE_ROWS);
    const size_t line_words = tile_line_words(gemm_words(f, g->k));
    const float *lines = (const float *)prepared + gemm_head_words(f, g->m);
    const float *weights = gemm_weights(f, g, panel, p, 0, g->k, workspace);
    const gemm_ahead ahead = p_ahead > p ? gemm_look_ahead(f, g, p_ahead, 0, g->k) : (gemm_ahead){.rows = 0};
    for (int t = t0; t < t1; t++) {
        float sum[TILE_ROWS * TILE_COLS], tile[TILE_ROWS * TILE_COLS];
        const int m = pi0_tile_at(g->m, tiles, t), rows = pi0_tile_at(g->m, tiles, t + 1) - m;
        const gemm_scales scales = gemm_scales_of(f, g, p, m, prepared);
        gemm_prefetch(&ahead, t - t0, t1 - t0);
        gemm_tile(f, rows, m, line_words, 0, pi0_min_int(f->k_step, g->k), lines, weights, sum);
        for (int k = f->k_step; k < g->k; k += f->k_step) {
            gemm_tile(f, rows, m, line_words, k, pi0_min_int(f->k_step, g->k - k), lines, weights + gemm_step_words(f, k), tile);
            for (int i = 0; i < rows * TILE_COLS; i += V_LANES)
                v_store(sum + i, gemm_add(&scales, v_load(sum + i), v_load(tile + i)));
        }
        if (panel->part->pairs == PI0_PAIRS_ROPE)
            gemm_finish_rope(g, panel, &scales, sum, m, rows);
        else
            gemm_finish_geglu(panel, &scales, sum, m, rows);
    }
}

static inline void gemm_multiply(const gemm_form *f, const pi0_gemm *g, int k0, int k1, int t0, int t1, int p0, int p1,
                                 const void *prepared, void *workspace)
{
    const int tiles = pi0_tiles(g->m, TILE_ROWS);
    const size_t line_words = tile_line_words(gemm_words(f, k1 - k0));
    const float *lines = (const float *)prepared + gemm_head_words(f, g->m);
    int k = k0;
    do { /* once even when k is 0: y is then the bias */
        const int kc = pi0_min_int(f->k_step, k1 - k);
        for (int p = p0; p < p1; p++) {
            const gemm_panel panel = gemm_panel_at(g, p);
            const int p_ahead = pi0_min_int(p + 1, p1 - 1);
            if (panel.part->pairs != PI0_PAIRS_NONE) {
                if (k == 0)
                    gemm_multiply_pairs(f, g, &panel, p, t0, t1, p_ahead, prepared, workspace);
                continue;
            }
            const float *weights = gemm_weights(f, g, &panel, p, k, kc, workspace);
            const gemm_ahead ahead = p_ahead > p ? gemm_look_ahead(f, g, p_ahead, k, kc) : (gemm_ahead){.rows = 0};
            for (int t = t0; t < t1; t++) {
                float tile[TILE_ROWS * TILE_COLS];
                const int m = pi0_tile_at(g->m, tiles, t), rows = pi0_tile_at(g->m, tiles, t + 1) - m;
                gemm_prefetch(&ahead, t - t0, t1 - t0);
                const gemm_scales scales = gemm_scales_of(f, g, p, m, prepared);
                gemm_tile(f, rows, m, line_words, k - k0, kc, lines, weights, tile);
                gemm_finish(g, &panel, &scales, tile, m, rows, k > 0, k + kc == g->k);
            }
        }
        k += kc;
    } while (k < k1);
}

/* Room for the panel that is packed as it is needed. */
static inline size_t gemm_workspace_bytes(const gemm_form *f, const pi0_gemm *g)
{
    return gemm_step_words(f, pi0_has_pairs(g) ? g->k : pi0_min_int(f->k_step, g->k)) * sizeof(float);
}
