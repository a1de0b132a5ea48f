/* attention_tpl - scores, softmax and mix, and the three together without a score matrix.
 *
 * Keys go in blocks of ATT_KEYS counted from the start of each run, so a row's sums are formed the same way whichever rows share the
 * call. Keys that nobody may attend are never read: whatever lies there, NaN included, has no influence.
 */

enum {
    ATT_ROWS = 96,      /* rows of queries that share a transposed block of keys */
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

/* panels of [chunk][TILE_ROWS] */
static void att_interleave(const float *x, size_t ldx, int rows, int k, float *panels)
{
    for (int i = 0; i < rows; i += TILE_ROWS)
        tile_interleave(x + (size_t)i * ldx, ldx, pi0_min_int(TILE_ROWS, rows - i), k, panels + (size_t)i * (size_t)k);
}

/* s[rows][keys] = (or +=) q . k over columns c0 .. c0+cc of the head */
static void att_dots(const float *q_panels, int rows, const att_run *run, int j0, int keys, int c0, int cc, float *panel, float *s,
                     size_t lds)
{
    for (int j = 0; j < keys; j += TILE_COLS) {
        const void *row[TILE_COLS];
        for (int i = 0; i < TILE_COLS; i++)
            row[i] = j + i < keys && att_attends(run, j0 + j + i) ? run->k + (size_t)(j0 + j + i) * run->ld : NULL;
        tile_transpose(row, PI0_F32, (size_t)c0, cc, panel);
        for (int i = 0; i < rows; i += TILE_ROWS) {
            float tile[TILE_ROWS * TILE_COLS];
            tile_product(cc, q_panels + (size_t)i * (size_t)cc, panel, tile);
            tile_put(tile, s + (size_t)i * lds + j, lds, pi0_min_int(TILE_ROWS, rows - i), pi0_min_int(TILE_COLS, keys - j), c0 > 0);
        }
    }
}

/* Scales the scores of rows r0 .. and writes -inf where a key is not attended. */
static void att_scale(const att_run *run, int r0, int rows, int j0, int keys, float scale, float *s, size_t lds)
{
    for (int i = 0; i < rows; i++) {
        float *to = s + (size_t)i * lds;
        int seen = r0 + i < run->alone ? pi0_max_int(0, pi0_min_int(keys, run->alone - j0)) : keys;
        for (int j = 0; j < seen; j += V_LANES)
            v_put(to + j, v_get(to + j, seen - j) * v_set1(scale), seen - j);
        for (int j = seen; j < keys; j++)
            to[j] = -INFINITY;
        if (run->mask != NULL)
            for (int j = 0; j < seen; j++)
                if (!att_attends(run, j0 + j))
                    to[j] = -INFINITY;
    }
}

/* out[rows][d] = out * keep[row] + p . v; keep NULL: out as it is, and `first`: out need not be set */
static void att_mix(const float *p_panels, int rows, const att_run *run, int j0, int keys, int d, float *panel, const float *keep,
                    bool first, float *out, size_t ldo)
{
    for (int c = 0; c < d; c += TILE_COLS) {
        int cols = pi0_min_int(TILE_COLS, d - c);
        for (int j = 0; j < keys; j++) {
            const float *v = run->v + (size_t)(j0 + j) * run->ld + c;
            bool seen = att_attends(run, j0 + j);
            for (int l = 0; l < TILE_COLS; l += V_LANES)
                v_store(panel + j * TILE_COLS + l, seen && l < cols ? v_get(v + l, cols - l) : (vf){0});
        }
        for (int i = 0; i < rows; i += TILE_ROWS) {
            float tile[TILE_ROWS * TILE_COLS];
            int some = pi0_min_int(TILE_ROWS, rows - i);
            float *y = out + (size_t)i * ldo + c;
            tile_product(keys, p_panels + (size_t)i * (size_t)keys, panel, tile);
            if (keep == NULL) {
                tile_put(tile, y, ldo, some, cols, !first);
                continue;
            }
            for (int r = 0; r < some; r++)
                for (int l = 0; l < cols; l += V_LANES) {
                    float *at = y + (size_t)r * ldo + l;
                    v_put(at, v_fma(v_get(at, cols - l), v_set1(keep[i + r]), v_load(tile + r * TILE_COLS + l)), cols - l);
                }
        }
    }
}

static void att_zero(float *out, size_t ldo, int rows, int d)
{
    for (int r = 0; r < rows; r++)
        memset(out + (size_t)r * ldo, 0, (size_t)d * sizeof *out);
}

static void attention_scores(const pi0_attention *a, int head, int r0, int r1, float *scores, size_t lds)
{
    float q_panels[ATT_CORE_ROWS * ATT_CHUNK + PANEL_SLACK], panel[ATT_CHUNK * TILE_COLS];
    for (int r = r0; r < r1; r += ATT_CORE_ROWS) {
        int rows = pi0_min_int(ATT_CORE_ROWS, r1 - r), column = 0;
        const float *q = a->q + (size_t)r * a->ldq + (size_t)head * (size_t)a->d;
        for (int which = 0; which < 2; which++) {
            att_run run = att_run_of(a, head, which);
            float *s = scores + (size_t)r * lds + column;
            for (int c = 0; c < a->d; c += ATT_CHUNK) {
                int cc = pi0_min_int(ATT_CHUNK, a->d - c);
                att_interleave(q + c, a->ldq, rows, cc, q_panels);
                att_dots(q_panels, rows, &run, 0, run.keys, c, cc, panel, s, lds);
            }
            att_scale(&run, r, rows, 0, run.keys, a->scale, s, lds);
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
    float p_panels[ATT_CORE_ROWS * ATT_KEYS + PANEL_SLACK], panel[ATT_KEYS * TILE_COLS];
    for (int r = r0; r < r1; r += ATT_CORE_ROWS) {
        int rows = pi0_min_int(ATT_CORE_ROWS, r1 - r), column = 0;
        float *out = a->out + (size_t)r * a->ldo + (size_t)head * (size_t)a->d;
        bool first = true;
        for (int which = 0; which < 2; which++) {
            att_run run = att_run_of(a, head, which);
            for (int j = 0; j < run.keys; j += ATT_KEYS) {
                int keys = pi0_min_int(ATT_KEYS, run.keys - j);
                att_interleave(scores + (size_t)r * lds + column + j, lds, rows, keys, p_panels);
                att_mix(p_panels, rows, &run, j, keys, a->d, panel, NULL, first, out, a->ldo);
                first = false;
            }
            column += run.keys;
        }
        if (first)
            att_zero(out, a->ldo, rows, a->d);
    }
}

/* Running maximum and sum of a row, and the factor by which what is summed so far shrinks under the newest maximum. */
typedef struct att_state {
    float largest[ATT_ROWS], sum[ATT_ROWS], keep[ATT_ROWS];
} att_state;

/* Scores of one block become weights relative to the maximum so far. */
static void att_weigh(float *s, int keys, int row, att_state *state)
{
    vf high = v_set1(state->largest[row]);
    for (int j = 0; j < keys; j += V_LANES)
        high = v_max(keys - j >= V_LANES ? v_load(s + j) : v_load_part(s + j, keys - j, -INFINITY), high);
    float largest = v_largest(high);
    vf base = v_set1(largest == -INFINITY ? 0.0f : largest); /* nothing attended yet: weights 0 instead of NaN */
    vf sum = v_set1(0.0f);
    for (int j = 0; j < keys; j += V_LANES) {
        vf e = v_exp((keys - j >= V_LANES ? v_load(s + j) : v_load_part(s + j, keys - j, -INFINITY)) - base);
        sum += e;
        v_put(s + j, e, keys - j);
    }
    state->keep[row] = v_exp(v_set1(state->largest[row]) - base)[0];
    state->sum[row] = state->sum[row] * state->keep[row] + v_sum(sum);
    state->largest[row] = largest;
}

/* Divides by the sum; a row that attended nothing keeps its zeros. */
static void att_finish(const att_state *state, float *out, size_t ldo, int rows, int d)
{
    for (int r = 0; r < rows; r++) {
        float *y = out + (size_t)r * ldo;
        vf factor = v_set1(state->sum[r] == 0.0f ? 0.0f : 1.0f / state->sum[r]);
        for (int j = 0; j < d; j += V_LANES)
            v_put(y + j, v_get(y + j, d - j) * factor, d - j);
    }
}

static void attention(const pi0_attention *a, int head, int r0, int r1, void *workspace)
{
    float *panel = workspace, *s = panel + ATT_CHUNK * TILE_COLS;
    float *q_panels = s + ATT_ROWS * ATT_KEYS, *p_panels = q_panels + ATT_ROWS * ATT_CHUNK + PANEL_SLACK;
    for (int r = r0; r < r1; r += ATT_ROWS) {
        int rows = pi0_min_int(ATT_ROWS, r1 - r), interleaved = -1;
        const float *q = a->q + (size_t)r * a->ldq + (size_t)head * (size_t)a->d;
        float *out = a->out + (size_t)r * a->ldo + (size_t)head * (size_t)a->d;
        att_state state;
        for (int i = 0; i < rows; i++)
            state.largest[i] = -INFINITY, state.sum[i] = 0.0f;
        att_zero(out, a->ldo, rows, a->d);
        for (int which = 0; which < 2; which++) {
            att_run run = att_run_of(a, head, which);
            for (int j = 0; j < run.keys; j += ATT_KEYS) {
                int keys = pi0_min_int(ATT_KEYS, run.keys - j);
                if (!att_attends_any(&run, j, keys))
                    continue;
                for (int c = 0; c < a->d; c += ATT_CHUNK) {
                    int cc = pi0_min_int(ATT_CHUNK, a->d - c);
                    if (interleaved != c)
                        att_interleave(q + c, a->ldq, rows, cc, q_panels);
                    interleaved = c;
                    att_dots(q_panels, rows, &run, j, keys, c, cc, panel, s, ATT_KEYS);
                }
                att_scale(&run, r, rows, j, keys, a->scale, s, ATT_KEYS);
                for (int i = 0; i < rows; i++)
                    att_weigh(s + i * ATT_KEYS, keys, i, &state);
                att_interleave(s, ATT_KEYS, rows, keys, p_panels);
                att_mix(p_panels, rows, &run, j, keys, a->d, panel, state.keep, false, out, a->ldo);
            }
        }
        att_finish(&state, out, a->ldo, rows, a->d);
    }
}

enum { ATT_WORKSPACE = (int)sizeof(float) * (ATT_CHUNK * TILE_COLS + 2 * ATT_ROWS * ATT_KEYS + ATT_ROWS * ATT_CHUNK + 2 * PANEL_SLACK) };
