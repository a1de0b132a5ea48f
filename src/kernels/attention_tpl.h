/* attention_tpl - scores, softmax and mix, and the three together without a score matrix.
 *
 * Keys go in blocks of ATT_KEYS counted from the start of each run, so a row's sums are formed the same way whichever rows share the
 * call. Keys that nobody may attend are never read: whatever lies there, NaN included, has no influence.
 */

enum {
    ATT_ROWS = 128,     /* rows of queries that share a packed block of keys */
    ATT_CORE_ROWS = 48, /* the same for the core pieces, whose buffers lie on the stack */
    ATT_KEYS = 128,     /* keys of one block: scores of a row, kept in L1 */
    ATT_CHUNK = 256     /* columns of a head taken at a time: all of Gemma's */
};

/* One of the two runs of keys, as one head sees it. */
typedef struct att_run {
    const float *k, *v; /* [keys, d] */
    size_t ld;
    const uint8_t *mask; /* or NULL */
    int keys;
    int alone; /* rows before this one see only as many keys */
} att_run;

static att_run att_run_of(const pi0_attention *a, int head, int which)
{
    size_t at = (size_t)(head / (a->heads / a->kv_heads)) * (size_t)a->d;
    /* attention_scores is given no values and attention_mix no keys */
    const float *k = which ? a->k2 : a->k, *v = which ? a->v2 : a->v;
    att_run run = {.k = k ? k + at : NULL, .v = v ? v + at : NULL};
    run.ld = which ? a->ldkv2 : a->ldkv;
    run.keys = k == NULL && v == NULL ? 0 : which ? a->keys2 : a->keys;
    run.mask = which ? NULL : a->mask;
    run.alone = which ? a->alone : 0;
    return run;
}

static bool att_attends(const att_run *run, int key)
{
    return run->mask == NULL || run->mask[key] != 0;
}

static bool att_attends_any(const att_run *run, int j0, int keys)
{
    for (int j = 0; j < keys; j++)
        if (att_attends(run, j0 + j))
            return true;
    return false;
}

/* Panels of the tiles that `rows` rows are cut into. */
static inline void att_lines(const float *x, size_t ldx, int rows, int words, float *panels)
{
    const int tiles = pi0_tiles(rows, TILE_ROWS);
    for (int t = 0; t < tiles; t++) {
        const int i = pi0_tile_at(rows, tiles, t);
        tile_lines(x + (size_t)i * ldx, ldx, pi0_tile_at(rows, tiles, t + 1) - i, words, panels + (size_t)i * tile_line_words(words));
    }
}

/* y[rows][cols] = tile, or += */
static inline void att_put(const float *tile, float *y, size_t ldy, int rows, int cols, bool add)
{
    for (int i = 0; i < rows; i++, tile += TILE_COLS, y += ldy)
        for (int j = 0; j < cols; j += V_LANES) {
            vf t = v_load(tile + j);
            v_put(y + j, add ? v_get(y + j, cols - j) + t : t, cols - j);
        }
}

/* s[rows][keys] = (or +=) q . k over columns c0 .. c0+cc of the head */
static inline void att_dots(const float *q_panels, int rows, const att_run *run, int j0, int keys, int c0, int cc, float *panel, float *s,
                            size_t lds)
{
    const int tiles = pi0_tiles(rows, TILE_ROWS), words = tile_pad(cc, TILE_STEP);
    for (int j = 0; j < keys; j += TILE_COLS) {
        const void *row[TILE_COLS];
        for (int i = 0; i < TILE_COLS; i++)
            row[i] = j + i < keys && att_attends(run, j0 + j + i) ? run->k + (size_t)(j0 + j + i) * run->ld : NULL;
        tile_pack_f32(row, PI0_F32, (size_t)c0, cc, panel);
        for (int t = 0; t < tiles; t++) {
            float tile[TILE_ROWS * TILE_COLS];
            const int i = pi0_tile_at(rows, tiles, t), some = pi0_tile_at(rows, tiles, t + 1) - i;
            tile_f32_table[some](words, q_panels + (size_t)i * tile_line_words(cc), panel, tile);
            att_put(tile, s + (size_t)i * lds + j, lds, some, pi0_min_int(TILE_COLS, keys - j), c0 > 0);
        }
    }
}

/* Scales a row's scores and writes -inf where a key is not attended. row: of the queries, for the run's own rule. */
static inline void att_scale(const att_run *run, int row, int j0, int keys, float scale, float *s)
{
    const int seen = row < run->alone ? pi0_max_int(0, pi0_min_int(keys, run->alone - j0)) : keys;
    for (int j = 0; j < seen; j += V_LANES)
        v_put(s + j, v_get(s + j, seen - j) * v_set1(scale), seen - j);
    for (int j = seen; j < keys; j++)
        s[j] = -INFINITY;
    if (run->mask != NULL)
        for (int j = 0; j < seen; j++)
            if (!att_attends(run, j0 + j))
                s[j] = -INFINITY;
}

/* panel[keys][TILE_COLS] = columns c .. of the values, zero where a key is not attended or beyond d */
static inline void att_pack_values(const att_run *run, int j0, int keys, int c, int cols, float *panel)
{
    for (int j = 0; j < tile_pad(keys, TILE_STEP); j++, panel += TILE_COLS) {
        const float *v = run->v + (size_t)(j0 + j) * run->ld + c;
        const bool seen = j < keys && att_attends(run, j0 + j);
        for (int l = 0; l < TILE_COLS; l += V_LANES)
            v_store(panel + l, seen && l < cols ? v_get(v + l, cols - l) : (vf){0});
    }
}

static void att_zero(float *out, size_t ldo, int rows, int d)
{
    for (int r = 0; r < rows; r++)
        memset(out + (size_t)r * ldo, 0, (size_t)d * sizeof *out);
}

static void attention_scores(const pi0_attention *a, int head, int r0, int r1, float *scores, size_t lds)
{
    float q_panels[ATT_CORE_ROWS * ATT_CHUNK], panel[ATT_CHUNK * TILE_COLS];
    for (int r = r0; r < r1; r += ATT_CORE_ROWS) {
        int rows = pi0_min_int(ATT_CORE_ROWS, r1 - r), column = 0;
        const float *q = a->q + (size_t)r * a->ldq + (size_t)head * (size_t)a->d;
        for (int which = 0; which < 2; which++) {
            att_run run = att_run_of(a, head, which);
            float *s = scores + (size_t)r * lds + column;
            for (int c = 0; c < a->d; c += ATT_CHUNK) {
                int cc = pi0_min_int(ATT_CHUNK, a->d - c);
                att_lines(q + c, a->ldq, rows, cc, q_panels);
                att_dots(q_panels, rows, &run, 0, run.keys, c, cc, panel, s, lds);
            }
            for (int i = 0; i < rows; i++)
                att_scale(&run, r + i, 0, run.keys, a->scale, s + (size_t)i * lds);
            column += run.keys;
        }
    }
}

static void softmax(float *scores, size_t lds, int rows, int cols)
{
    for (int r = 0; r < rows; r++) {
        float *s = scores + (size_t)r * lds;
        vf high = v_set1(-INFINITY);
        for (int j = 0; j < cols; j += V_LANES)
            high = v_max(cols - j >= V_LANES ? v_load(s + j) : v_load_part(s + j, cols - j, -INFINITY), high);
        float largest = v_largest(high);
        if (largest == -INFINITY)
            largest = 0.0f; /* every weight becomes 0 instead of NaN */
        v_double_sum sum = {0};
        for (int j = 0; j < cols; j += V_LANES) {
            vf e = v_exp((cols - j >= V_LANES ? v_load(s + j) : v_load_part(s + j, cols - j, -INFINITY)) - v_set1(largest));
            v_double_add(&sum, e);
            v_put(s + j, e, cols - j);
        }
        double total = v_double_total(&sum);
        vf factor = v_set1(total == 0.0 ? 0.0f : (float)(1.0 / total));
        for (int j = 0; j < cols; j += V_LANES)
            v_put(s + j, v_get(s + j, cols - j) * factor, cols - j);
    }
}

static void attention_mix(const pi0_attention *a, int head, int r0, int r1, const float *scores, size_t lds)
{
    float p_panels[ATT_CORE_ROWS * ATT_KEYS], panel[ATT_KEYS * TILE_COLS];
    for (int r = r0; r < r1; r += ATT_CORE_ROWS) {
        const int rows = pi0_min_int(ATT_CORE_ROWS, r1 - r), tiles = pi0_tiles(rows, TILE_ROWS);
        float *out = a->out + (size_t)r * a->ldo + (size_t)head * (size_t)a->d;
        int column = 0;
        bool first = true;
        for (int which = 0; which < 2; which++) {
            att_run run = att_run_of(a, head, which);
            for (int j = 0; j < run.keys; j += ATT_KEYS, first = false) {
                const int keys = pi0_min_int(ATT_KEYS, run.keys - j);
                att_lines(scores + (size_t)r * lds + column + j, lds, rows, keys, p_panels);
                for (int c = 0; c < a->d; c += TILE_COLS) {
                    const int cols = pi0_min_int(TILE_COLS, a->d - c);
                    att_pack_values(&run, j, keys, c, cols, panel);
                    for (int t = 0; t < tiles; t++) {
                        float tile[TILE_ROWS * TILE_COLS];
                        const int i = pi0_tile_at(rows, tiles, t), some = pi0_tile_at(rows, tiles, t + 1) - i;
                        tile_f32_table[some](tile_pad(keys, TILE_STEP), p_panels + (size_t)i * tile_line_words(keys), panel, tile);
                        att_put(tile, out + (size_t)i * a->ldo + c, a->ldo, some, cols, !first);
                    }
                }
            }
            column += run.keys;
        }
        if (first)
            att_zero(out, a->ldo, rows, a->d);
    }
}

/* ------------------------------------------------------------------ without a score matrix
 *
 * All heads that share a head of keys are done together, their queries one below the other, so that keys and values are packed once for
 * them. A row here is a query row of one of those heads. */

typedef struct att_rows {
    const pi0_attention *a;
    int head, heads;  /* first of those that share the keys, how many */
    int first, count; /* rows of this block: row i is query row (first + i) / heads */
    /* running maximum and sum of each row, and the factor by which what is summed so far shrinks under the newest maximum */
    float largest[ATT_ROWS], sum[ATT_ROWS], keep[ATT_ROWS];
} att_rows;

static inline int att_query(const att_rows *rows, int i)
{
    return (rows->first + i) / rows->heads;
}

static inline size_t att_column(const att_rows *rows, int i)
{
    return (size_t)(rows->head + (rows->first + i) % rows->heads) * (size_t)rows->a->d;
}

static inline float *att_out(const att_rows *rows, int i)
{
    return rows->a->out + (size_t)att_query(rows, i) * rows->a->ldo + att_column(rows, i);
}

/* Panels of columns c .. c+cc of the queries. */
static inline void att_queries(const att_rows *rows, int c, int cc, float *panels)
{
    const int tiles = pi0_tiles(rows->count, TILE_ROWS);
    for (int t = 0; t < tiles; t++) {
        const int i0 = pi0_tile_at(rows->count, tiles, t), some = pi0_tile_at(rows->count, tiles, t + 1) - i0;
        for (int i = 0; i < some; i++) {
            const float *q = rows->a->q + (size_t)att_query(rows, i0 + i) * rows->a->ldq + att_column(rows, i0 + i) + c;
            float *to = panels + (size_t)i0 * tile_line_words(cc) + (size_t)i * TILE_LINE;
            for (int w = 0; w < cc; w += TILE_LINE, to += some * TILE_LINE)
                tile_lines(q + w, 0, 1, pi0_min_int(TILE_LINE, cc - w), to);
        }
    }
}

/* Scores of one block become weights relative to the maximum so far, in lines of a panel that lie `stride` apart. */
static inline void att_weigh(att_rows *rows, int i, const float *s, int keys, float *to, size_t stride)
{
    vf high = v_set1(rows->largest[i]);
    for (int j = 0; j < keys; j += V_LANES)
        high = v_max(keys - j >= V_LANES ? v_load(s + j) : v_load_part(s + j, keys - j, -INFINITY), high);
    float largest = v_largest(high);
    vf base = v_set1(largest == -INFINITY ? 0.0f : largest); /* nothing attended yet: weights 0 instead of NaN */
    vf sum = v_set1(0.0f);
    for (int j = 0; j < tile_pad(keys, TILE_LINE); j += V_LANES) {
        vf e = {0};
        if (j < keys)
            e = v_exp((keys - j >= V_LANES ? v_load(s + j) : v_load_part(s + j, keys - j, -INFINITY)) - base);
        sum += e;
        v_store(to + (size_t)(j / TILE_LINE) * stride + j % TILE_LINE, e);
    }
    rows->keep[i] = v_exp(v_set1(rows->largest[i]) - base)[0];
    rows->sum[i] = rows->sum[i] * rows->keep[i] + v_sum(sum);
    rows->largest[i] = largest;
}

/* out = out * keep + p . v for one block of keys */
static inline void att_accumulate(const att_rows *rows, const float *p_panels, const att_run *run, int j0, int keys, float *panel)
{
    const int tiles = pi0_tiles(rows->count, TILE_ROWS), d = rows->a->d;
    for (int c = 0; c < d; c += TILE_COLS) {
        const int cols = pi0_min_int(TILE_COLS, d - c);
        att_pack_values(run, j0, keys, c, cols, panel);
        for (int t = 0; t < tiles; t++) {
            float tile[TILE_ROWS * TILE_COLS];
            const int i0 = pi0_tile_at(rows->count, tiles, t), some = pi0_tile_at(rows->count, tiles, t + 1) - i0;
            tile_f32_table[some](tile_pad(keys, TILE_STEP), p_panels + (size_t)i0 * tile_line_words(keys), panel, tile);
            for (int i = 0; i < some; i++) {
                float *y = att_out(rows, i0 + i) + c;
                const vf keep = v_set1(rows->keep[i0 + i]);
                for (int l = 0; l < cols; l += V_LANES)
                    v_put(y + l, v_fma(v_get(y + l, cols - l), keep, v_load(tile + i * TILE_COLS + l)), cols - l);
            }
        }
    }
}

/* Scores of a block of keys -> panels of weights. */
static inline void att_weights(att_rows *rows, const att_run *run, int j0, int keys, float *s, float *p_panels)
{
    const int tiles = pi0_tiles(rows->count, TILE_ROWS);
    const size_t line_words = tile_line_words(keys);
    for (int i = 0; i < rows->count; i++)
        att_scale(run, att_query(rows, i), j0, keys, rows->a->scale, s + i * ATT_KEYS);
    for (int t = 0; t < tiles; t++) {
        const int i0 = pi0_tile_at(rows->count, tiles, t), some = pi0_tile_at(rows->count, tiles, t + 1) - i0;
        for (int i = 0; i < some; i++)
            att_weigh(rows, i0 + i, s + (i0 + i) * ATT_KEYS, keys, p_panels + (size_t)i0 * line_words + i * TILE_LINE,
                      (size_t)some * TILE_LINE);
    }
}

static void attention(const pi0_attention *a, int kv_head, int r0, int r1, void *workspace)
{
    float *panel = workspace, *s = panel + ATT_CHUNK * TILE_COLS, *p_panels = s + ATT_ROWS * ATT_KEYS;
    float *q_panels = p_panels + ATT_ROWS * ATT_KEYS;
    const int heads = a->heads / a->kv_heads;
    att_rows rows = {.a = a, .head = kv_head * heads, .heads = heads};
    for (rows.first = r0 * heads; rows.first < r1 * heads; rows.first += rows.count) {
        rows.count = pi0_min_int(ATT_ROWS, r1 * heads - rows.first);
        int loaded = -1; /* column of the queries in q_panels */
        for (int i = 0; i < rows.count; i++) {
            rows.largest[i] = -INFINITY, rows.sum[i] = 0.0f;
            att_zero(att_out(&rows, i), 0, 1, a->d);
        }
        for (int which = 0; which < 2; which++) {
            const att_run run = att_run_of(a, rows.head, which);
            for (int j = 0; j < run.keys; j += ATT_KEYS) {
                const int keys = pi0_min_int(ATT_KEYS, run.keys - j);
                if (!att_attends_any(&run, j, keys))
                    continue;
                for (int c = 0; c < a->d; c += ATT_CHUNK) {
                    const int cc = pi0_min_int(ATT_CHUNK, a->d - c);
                    if (loaded != c)
                        att_queries(&rows, c, cc, q_panels);
                    loaded = c;
                    att_dots(q_panels, rows.count, &run, j, keys, c, cc, panel, s, ATT_KEYS);
                }
                att_weights(&rows, &run, j, keys, s, p_panels);
                att_accumulate(&rows, p_panels, &run, j, keys, panel);
            }
        }
        for (int i = 0; i < rows.count; i++) {
            float *y = att_out(&rows, i); /* a row that attended nothing keeps its zeros */
            const vf factor = v_set1(rows.sum[i] == 0.0f ? 0.0f : 1.0f / rows.sum[i]);
            for (int j = 0; j < a->d; j += V_LANES)
                v_put(y + j, v_get(y + j, a->d - j) * factor, a->d - j);
        }
    }
}

enum { ATT_WORKSPACE = (int)sizeof(float) * (ATT_CHUNK * TILE_COLS + 2 * ATT_ROWS * ATT_KEYS + ATT_ROWS * ATT_CHUNK) };
