/* tile_tpl - the tile of a product that is kept in registers, and the panels that feed it. Products and attention stand on it.
 *
 * A word is 32 bits: one f32, two bf16 or four int8 that follow each other in k. A panel of x holds a tile's rows in lines of TILE_LINE
 * words: line 0 of every row, then line 1 of every row; the tile reads it as one stream. A panel of w holds, word after word of k, that
 * word of each of its TILE_COLS columns. Words are padded with zeros to TILE_STEP.
 */

enum {
    TILE_ROWS = 6,
    TILE_COLS = V_TILE * V_LANES, /* V_TILE vectors: with TILE_ROWS the most that the registers hold */
    TILE_LINE = 16,               /* a cache line */
    TILE_STEP = 4                 /* words that the loop takes at once */
};

/* out[rows][ldo] = x panel * w panel over `words` words, TILE_COLS columns */
typedef void (*tile_product)(int words, const void *x, const void *w, void *out, size_t ldo);

static inline int tile_pad(int n, int to)
{
    return (n + to - 1) / to * to;
}

/* Words that a panel of x takes a row. */
static inline size_t tile_line_words(int words)
{
    return (size_t)tile_pad(words, TILE_LINE);
}

/* f32 rows as they are. */
static inline void tile_lines(const float *x, size_t ldx, int rows, int words, float *panel)
{
    for (int w = 0; w < words; w += TILE_LINE)
        for (int i = 0; i < rows; i++, panel += TILE_LINE) {
            const float *from = x + (size_t)i * ldx + w;
            V_UNROLL
            for (int j = 0; j < TILE_LINE; j += V_LANES)
                v_store(panel + j, w + j < words ? v_get(from + j, words - w - j) : (vf){0});
        }
}

/* The next V_LANES words of column `column`, of which `left` elements exist; those beyond are 0. factor: what the elements of each column
 * are multiplied by, where words hold integers. */
typedef vf (*tile_load)(const void *const *row, const float *factor, int column, pi0_dtype dtype, size_t element, int left);

/* panel[words][columns] of elements k0 .. k0+k, `group` elements a word */
V_INLINE void tile_pack(tile_load load, int columns, int group, const void *const *row, const float *factor, pi0_dtype dtype, size_t k0,
                        int k, float *panel)
{
    const int words = tile_pad((k + group - 1) / group, TILE_STEP);
    for (int first = 0; first < columns; first += V_LANES)
        for (int j = 0; j < words; j += V_LANES) {
            vf r[V_LANES];
            V_UNROLL
            for (int i = 0; i < V_LANES; i++)
                r[i] = load(row, factor, first + i, dtype, k0 + (size_t)(j * group), k - j * group);
            v_transpose(r);
            float *to = panel + (size_t)j * (size_t)columns + first;
            if (words - j >= V_LANES) {
                V_UNROLL
                for (int i = 0; i < V_LANES; i++)
                    v_store(to + i * columns, r[i]);
            } else {
                for (int i = 0; i < words - j; i++)
                    v_store(to + i * columns, r[i]);
            }
        }
}
