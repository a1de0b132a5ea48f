/* attention_tpl - attention without a score matrix (Dao et al., FlashAttention, 2022; online softmax: Milakov and Gimelshein, 2018).
 *
 * All heads that share a head of keys are done together, their queries one below the other, so that keys and values are packed once for
 * them. A row here is a query row of one of those heads.
 *
 * Included with
 *   ATT_GROUP                        elements in a word of the two products
 *   ATT_WIDE, ATT_NARROW             tables of their tiles: TILE_COLS columns, V_LANES columns
 *   ATT_PACK_KEYS(row, d0, d, panel) a panel of rows of keys
 *   att_line(x, left, to)            TILE_LINE words of a row
 *   att_words_of(e)                  ATT_GROUP vectors of elements that follow each other, as a vector of words
 *   att_values(run, j0, keys, j, c, left)
 *                                    one word of columns c .. of the values of keys j0+j .. j0+j+ATT_GROUP: `left` columns, keys that are
 *                                    below j0+keys and attended; 0 for others
 */

_Static_assert(ATT_KEYS % TILE_COLS == 0, "a whole tile of scores has room in a row of them");

typedef struct att_rows {
    const pi0_attention *a;
    int head, heads;  /* first of those that share the keys, how many */
    int first, count; /* rows of this block: row i is query row (first + i) / heads */
    bool started;     /* something is summed already */
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

static inline int att_words(int elements)
{
    return (elements + ATT_GROUP - 1) / ATT_GROUP;
}

/* A row of n elements as row `i` of a tile of `rows`, in the panel that starts at `panel`. */
static inline void att_put_row(const float *x, int n, float *panel, int rows, int i)
{
    float *to = panel + i * TILE_LINE;
    for (int at = 0; at < n; at += ATT_GROUP * TILE_LINE, to += rows * TILE_LINE)
        att_line(x + at, n - at, to);
}

/* Panels of columns c .. c+cc of the queries. */
static inline void att_queries(const att_rows *rows, int c, int cc, float *panels)
{
    const int tiles = pi0_tiles(rows->count, TILE_ROWS);
    for (int t = 0; t < tiles; t++) {
        const int i0 = pi0_tile_at(rows->count, tiles, t), some = pi0_tile_at(rows->count, tiles, t + 1) - i0;
        for (int i = 0; i < some; i++) {
            const float *q = rows->a->q + (size_t)att_query(rows, i0 + i) * rows->a->ldq + att_column(rows, i0 + i) + c;
            att_put_row(q, cc, panels + (size_t)i0 * tile_line_words(att_words(cc)), some, i);
        }
    }
}

/* s[rows][keys] = (or +=) q . k over columns c .. c+cc of the head */
static inline void att_scores(const att_rows *rows, const float *q_panels, const att_run *run, int j0, int keys, int c, int cc,
                              float *panel, float *s)
{
    const int tiles = pi0_tiles(rows->count, TILE_ROWS), words = tile_pad(att_words(cc), TILE_STEP);
    for (int j = 0; j < keys; j += TILE_COLS) {
        const void *row[TILE_COLS];
        for (int i = 0; i < TILE_COLS; i++)
            row[i] = j + i < keys && att_attends(run, j0 + j + i) ? run->k + (size_t)(j0 + j + i) * run->ld : NULL;
        ATT_PACK_KEYS(row, (size_t)c, cc, panel);
        for (int t = 0; t < tiles; t++) {
            const int i = pi0_tile_at(rows->count, tiles, t), some = pi0_tile_at(rows->count, tiles, t + 1) - i;
            const float *queries = q_panels + (size_t)i * tile_line_words(att_words(cc));
            float *to = s + (size_t)i * ATT_KEYS + j, tile[TILE_ROWS * TILE_COLS];
            if (c == 0) { /* columns beyond the keys are room that nobody reads */
                ATT_WIDE[some](words, queries, panel, to, ATT_KEYS);
                continue;
            }
            ATT_WIDE[some](words, queries, panel, tile, TILE_COLS);
            att_put(tile, to, ATT_KEYS, some, pi0_min_int(TILE_COLS, keys - j), true);
        }
    }
}

/* Scores of one block become weights relative to the maximum so far, as row `i` of the `some` of the panel at `panel`. A weight is
 * 2^((score - largest) * unit). */
V_INLINE void att_weigh(att_rows *rows, int row, const float *s, int keys, float unit, float *panel, int some, int i)
{
    vf high = v_set1(rows->largest[row]);
    for (int j = 0; j < keys; j += V_LANES)
        high = v_max(keys - j >= V_LANES ? v_load(s + j) : v_load_part(s + j, keys - j, -INFINITY), high);
    const float largest = v_largest(high);
    const vf base = v_set1(largest == -INFINITY ? 0.0f : largest); /* nothing attended yet: weights 0 instead of NaN */
    vf sum = {0};
    float *to = panel + i * TILE_LINE;
    for (int j = 0, word = 0; j < keys; j += ATT_GROUP * V_LANES, word += V_LANES) {
        vf e[ATT_GROUP];
        V_UNROLL
        for (int v = 0; v < ATT_GROUP; v++) {
            const int left = keys - j - v * V_LANES;
            const vf x = left >= V_LANES ? v_load(s + j + v * V_LANES)
                         : left > 0      ? v_load_part(s + j + v * V_LANES, left, -INFINITY)
                                         : v_set1(-INFINITY);
            e[v] = v_exp2((x - base) * v_set1(unit)); /* not one multiply-add: the largest must weigh exactly 1 */
            sum += e[v];
        }
        v_store(to + word / TILE_LINE * some * TILE_LINE + word % TILE_LINE, att_words_of(e));
    }
    rows->keep[row] = v_exp2((v_set1(rows->largest[row]) - base) * v_set1(unit))[0];
    rows->sum[row] = rows->sum[row] * rows->keep[row] + v_sum(sum);
    rows->largest[row] = largest;
}

/* Scores of a block of keys -> panels of weights. */
static inline void att_weights(att_rows *rows, const att_run *run, int j0, int keys, float *s, float *p_panels)
{
    const int tiles = pi0_tiles(rows->count, TILE_ROWS);
    const float unit = rows->a->scale * 1.44269504f; /* of powers of 2 */
    for (int t = 0; t < tiles; t++) {
        const int i0 = pi0_tile_at(rows->count, tiles, t), some = pi0_tile_at(rows->count, tiles, t + 1) - i0;
        for (int i = 0; i < some; i++) {
            float *row = s + (i0 + i) * ATT_KEYS;
            const bool all = run->mask == NULL && run->window == 0 && att_query(rows, i0 + i) >= run->alone;
            if (!all)
                att_hide(run, att_query(rows, i0 + i), j0, keys, row);
            float *panel = p_panels + (size_t)i0 * tile_line_words(att_words(keys));
            if (keys == ATT_KEYS) /* most blocks: no tails */
                att_weigh(rows, i0 + i, row, ATT_KEYS, unit, panel, some, i);
            else
                att_weigh(rows, i0 + i, row, keys, unit, panel, some, i);
        }
    }
}

/* out = out * keep + p . v for one block of keys and columns c .. c+cols; width: of the panel, in vectors */
static inline void att_accumulate(const att_rows *rows, const float *p_panels, const att_run *run, int j0, int keys, int c, int cols,
                                  int width, float *panel)
{
    const int tiles = pi0_tiles(rows->count, TILE_ROWS), words = tile_pad(att_words(keys), TILE_STEP);
    for (int w = 0; w < words; w++)
        for (int v = 0; v < width; v++)
            v_store(panel + (w * width + v) * V_LANES, att_values(run, j0, keys, w * ATT_GROUP, c + v * V_LANES, cols - v * V_LANES));
    for (int t = 0; t < tiles; t++) {
        float tile[TILE_ROWS * TILE_COLS];
        const int i0 = pi0_tile_at(rows->count, tiles, t), some = pi0_tile_at(rows->count, tiles, t + 1) - i0;
        (width == V_TILE ? ATT_WIDE : ATT_NARROW)[some](words, p_panels + (size_t)i0 * tile_line_words(att_words(keys)), panel, tile,
                                                        TILE_COLS);
        for (int i = 0; i < some; i++) {
            float *y = att_out(rows, i0 + i) + c;
            const vf keep = v_set1(rows->keep[i0 + i]);
            for (int l = 0; l < cols; l += V_LANES) {
                const vf p_v = v_load(tile + i * TILE_COLS + l);
                v_put(y + l, rows->started ? v_fma(v_get(y + l, cols - l), keep, p_v) : p_v, cols - l);
            }
        }
    }
}

/* All columns of a head: wide panels, and narrow ones where a wide one would be half empty. */
static inline void att_mix_block(const att_rows *rows, const float *p_panels, const att_run *run, int j0, int keys, float *panel)
{
    for (int c = 0, width; c < rows->a->d; c += width * V_LANES) {
        const int left = rows->a->d - c;
        width = left * 2 > TILE_COLS ? V_TILE : 1;
        att_accumulate(rows, p_panels, run, j0, keys, c, pi0_min_int(left, width * V_LANES), width, panel);
    }
}

/* By the sums of the weights. A row that attended nothing is 0. */
static inline void att_divide(const att_rows *rows)
{
    const int d = rows->a->d;
    for (int i = 0; i < rows->count; i++) {
        float *y = att_out(rows, i);
        if (!rows->started)
            memset(y, 0, (size_t)d * sizeof *y);
        const vf factor = v_set1(rows->sum[i] == 0.0f ? 0.0f : 1.0f / rows->sum[i]);
        for (int j = 0; j < d; j += V_LANES)
            v_put(y + j, v_get(y + j, d - j) * factor, d - j);
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
        for (int i = 0; i < rows.count; i++)
            rows.largest[i] = -INFINITY, rows.sum[i] = 0.0f;
        rows.started = false;
        for (int which = 0; which < 2; which++) {
            const att_run run = att_run_of(a, rows.head, which);
            for (int j = 0; j < run.keys; j += ATT_KEYS) {
                const int keys = pi0_min_int(ATT_KEYS, run.keys - j);
                if (!att_attends_any(&run, j, keys, att_query(&rows, 0), att_query(&rows, rows.count - 1)))
                    continue;
                for (int c = 0; c < a->d; c += ATT_CHUNK) {
                    const int cc = pi0_min_int(ATT_CHUNK, a->d - c);
                    if (loaded != c)
                        att_queries(&rows, c, cc, q_panels);
                    loaded = c;
                    att_scores(&rows, q_panels, &run, j, keys, c, cc, panel, s);
                }
                att_weights(&rows, &run, j, keys, s, p_panels);
                att_mix_block(&rows, p_panels, &run, j, keys, panel);
                rows.started = true;
            }
        }
        att_divide(&rows);
    }
}

enum { ATT_WORKSPACE = (int)sizeof(float) * (ATT_CHUNK * TILE_COLS + 2 * ATT_ROWS * ATT_KEYS + ATT_ROWS * ATT_CHUNK) };
