/* attention_core_tpl - scores, softmax and mix as three kernels, in f32. */

enum { ATT_CORE_ROWS = 48 }; /* rows of queries that share a packed block of keys; their buffers lie on the stack */

/* Panels of the tiles that `rows` rows are cut into. */
static inline void att_lines(const float *x, size_t ldx, int rows, int words, float *panels)
{
    const int tiles = pi0_tiles(rows, TILE_ROWS);
    for (int t = 0; t < tiles; t++) {
        const int i = pi0_tile_at(rows, tiles, t);
        tile_lines(x + (size_t)i * ldx, ldx, pi0_tile_at(rows, tiles, t + 1) - i, words, panels + (size_t)i * tile_line_words(words));
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
            tile_f32_table[some](words, q_panels + (size_t)i * tile_line_words(cc), panel, tile, TILE_COLS);
            att_put(tile, s + (size_t)i * lds + j, lds, some, pi0_min_int(TILE_COLS, keys - j), c0 > 0);
        }
    }
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
            for (int i = 0; i < rows; i++) {
                float *row = s + (size_t)i * lds;
                for (int j = 0; j < run.keys; j += V_LANES)
                    v_put(row + j, v_get(row + j, run.keys - j) * v_set1(a->scale), run.keys - j);
                att_hide(&run, r + i, 0, run.keys, row);
            }
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
                        tile_f32_table[some](tile_pad(keys, TILE_STEP), p_panels + (size_t)i * tile_line_words(keys), panel, tile,
                                             TILE_COLS);
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
