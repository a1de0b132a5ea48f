/* attention_keys_tpl - the keys that an attention sees, in two runs, and which of them a row may attend to.
 *
 * Keys go in blocks of ATT_KEYS counted from the start of each run, so a row's sums are formed the same way whichever rows share the
 * call. Keys that nobody may attend are never read: whatever lies there, NaN included, has no influence.
 */

enum {
    ATT_ROWS = 256, /* rows of queries that share a packed block of keys */
    ATT_KEYS = 256, /* keys of one block: scores of a row, kept in L1 */
    ATT_CHUNK = 256 /* columns of a head taken at a time: all of Gemma's */
};

/* One of the two runs of keys, as one head sees it. */
typedef struct att_run {
    const float *k, *v; /* [keys, d] */
    size_t ld;
    const uint8_t *mask; /* or NULL */
    int keys;
    int alone;                    /* rows before this one see only as many keys */
    int window, always, diagonal; /* as the problem has them; window 0: no row is kept from any key */
} att_run;

static inline att_run att_run_of(const pi0_attention *a, int head, int which)
{
    size_t at = (size_t)(head / (a->heads / a->kv_heads)) * (size_t)a->d;
    /* attention_scores is given no values and attention_mix no keys */
    const float *k = which ? a->k2 : a->k, *v = which ? a->v2 : a->v;
    att_run run = {.k = k ? k + at : NULL, .v = v ? v + at : NULL};
    run.ld = which ? a->ldkv2 : a->ldkv;
    run.keys = k == NULL && v == NULL ? 0 : which ? a->keys2 : a->keys;
    run.mask = which ? NULL : a->mask;
    run.alone = which ? a->alone : 0;
    run.window = which ? a->window : 0;
    run.always = a->always;
    run.diagonal = a->diagonal;
    return run;
}

static inline bool att_attends(const att_run *run, int key)
{
    return run->mask == NULL || run->mask[key] != 0;
}

/* Whether any row of first .. last may attend to any of these keys. */
static inline bool att_attends_any(const att_run *run, int j0, int keys, int first, int last)
{
    if (run->window > 0 && j0 >= run->always &&
        (j0 >= last + run->diagonal + run->window || j0 + keys <= first + run->diagonal - run->window + 1))
        return false;
    for (int j = 0; j < keys; j++)
        if (att_attends(run, j0 + j))
            return true;
    return false;
}

/* -inf as the score of each key outside a row's window. */
static inline void att_hide_far(const att_run *run, int row, int j0, int keys, float *s)
{
    const int own = row + run->diagonal - j0, first = pi0_max_int(0, run->always - j0);
    for (int j = first; j < pi0_min_int(keys, own - run->window + 1); j++)
        s[j] = -INFINITY;
    for (int j = pi0_max_int(first, own + run->window); j < keys; j++)
        s[j] = -INFINITY;
}

/* -inf as the score of each key that a row may not attend to. row: of the queries, for the run's own rules. */
static inline void att_hide(const att_run *run, int row, int j0, int keys, float *s)
{
    const int seen = row < run->alone ? pi0_max_int(0, pi0_min_int(keys, run->alone - j0)) : keys;
    for (int j = seen; j < keys; j++)
        s[j] = -INFINITY;
    if (run->mask != NULL)
        for (int j = 0; j < seen; j++)
            if (!att_attends(run, j0 + j))
                s[j] = -INFINITY;
    if (run->window > 0)
        att_hide_far(run, row, j0, keys, s);
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
