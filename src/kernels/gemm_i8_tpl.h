/* gemm_i8_tpl - products of whole numbers: w scaled by column when it is packed, x by row when it is prepared, both symmetric, so that the
 * largest magnitude becomes the largest whole number. Four of them make a word. Sums are int32 and exact for every k, longer ones are
 * added up as int32 where y will be; the end is one conversion and one multiplication.
 *
 * Needs of the folder:
 *   I8_TITLE                     what the form is called
 *   I8_W_MOST, I8_X_MOST        the largest whole numbers
 *   I8_X_EXCESS                 what is added to those of x, for instructions that take one side without sign
 *   v_dot_i8(x, w, sum)         sum + the products of the four in each word, without saturation whatever they are
 *   GEMM_I8_STEP                as in the other forms
 */

_Static_assert((int64_t)PI0_MAX_WIDTH *(I8_X_MOST + I8_X_EXCESS) * I8_W_MOST <= INT32_MAX, "sums over the largest k are exact");

typedef int8_t vb __attribute__((vector_size(V_LANES)));

/* ------------------------------------------------------------------ scales */

/* The magnitude of the largest element, as the bits of an f32: NaN is above infinity, and that above all numbers. */
V_INLINE int32_t i8_largest(const void *row, pi0_dtype dtype, int k)
{
    enum { AT_ONCE = 4 }; /* maxima that do not wait for each other */
    vi part[AT_ONCE] = {{0}};
    int i = 0;
    for (; k - i >= AT_ONCE * V_LANES; i += AT_ONCE * V_LANES) {
        V_UNROLL
        for (int j = 0; j < AT_ONCE; j++)
            part[j] = v_larger(part[j], (vi)v_widen(row, dtype, (size_t)(i + j * V_LANES)) & 0x7fffffff);
    }
    for (; i < k; i += V_LANES) {
        const vf x = k - i >= V_LANES ? v_widen(row, dtype, (size_t)i) : v_widen_part(row, dtype, (size_t)i, k - i);
        part[0] = v_larger(part[0], (vi)x & 0x7fffffff);
    }
    const vi most = v_larger(v_larger(part[0], part[1]), v_larger(part[2], part[3]));
    int32_t best = most[0];
    for (int lane = 1; lane < V_LANES; lane++)
        best = most[lane] > best ? most[lane] : best;
    return best;
}

typedef struct i8_scale {
    float factor; /* to whole numbers */
    float unit;   /* and back */
} i8_scale;

/* What is not finite makes the unit, and with it all that is made of it, NaN. Below 2^-100 everything counts as 0: the factor would not
 * be finite. */
static inline i8_scale i8_scale_of(int32_t largest, int most)
{
    float size;
    memcpy(&size, &largest, sizeof size);
    if (largest >= 0x7f800000)
        return (i8_scale){0.0f, NAN};
    if (size < 0x1p-100f)
        return (i8_scale){0.0f, 0.0f};
    return (i8_scale){(float)most / size, size / (float)most};
}

/* To nearest even: 1.5 * 2^23 leaves no bits for a fraction. */
V_INLINE vb i8_round(vf x, float factor, int excess)
{
    const vf magic = v_set1(12582912.0f), shifted = x * v_set1(factor) + magic;
    return __builtin_convertvector((vi)shifted - (vi)magic + excess, vb);
}

/* ------------------------------------------------------------------ weights */

V_INLINE vf tile_load_i8(const void *const *row, const float *factor, int column, pi0_dtype dtype, size_t element, int left)
{
    vb bytes[4];
    V_UNROLL
    for (int i = 0; i < 4; i++) {
        const int after = i * V_LANES;
        bytes[i] = i8_round(tile_load_f32(row, NULL, column, dtype, element + (size_t)after, left - after), factor[column], 0);
    }
    return v_load_anywhere(bytes);
}

/* Units of the columns, what x's excess adds to their sums, then the words. */
V_INLINE void tile_pack_i8_of(const void *const *row, pi0_dtype dtype, int k, float *panel)
{
    float factor[TILE_COLS];
    for (int i = 0; i < TILE_COLS; i++) {
        const i8_scale scale = i8_scale_of(row[i] != NULL ? i8_largest(row[i], dtype, k) : 0, I8_W_MOST);
        factor[i] = scale.factor;
        panel[i] = scale.unit;
    }
    float *excess = panel + TILE_COLS, *words = panel + 2 * TILE_COLS;
    tile_pack(tile_load_i8, TILE_COLS, 4, row, factor, dtype, 0, k, words);
    for (int j = 0; j < TILE_COLS; j += V_LANES) {
        vi sum = {0};
        for (int at = 0; at < k; at += 4) {
            const vi word = (vi)v_load(words + (size_t)(at / 4) * TILE_COLS + j);
            sum += (word << 24 >> 24) + (word << 16 >> 24) + (word << 8 >> 24) + (word >> 24);
        }
        v_store(excess + j, (vf)(sum * I8_X_EXCESS));
    }
}

static inline void tile_pack_i8(const void *const *row, pi0_dtype dtype, size_t k0, int k, void *panel)
{
    (void)k0; /* packed whole: always 0 */
    if (dtype == PI0_BF16)
        tile_pack_i8_of(row, PI0_BF16, k, panel);
    else if (dtype == PI0_F16)
        tile_pack_i8_of(row, PI0_F16, k, panel);
    else
        tile_pack_i8_of(row, PI0_F32, k, panel);
}

/* ------------------------------------------------------------------ the product */

#define PRODUCT(name) tile_i8_##name
#define PRODUCT_SUM vi
#define PRODUCT_X(p) v_set1(*(p))
#define PRODUCT_W_WORDS TILE_COLS
#define PRODUCT_LOAD(w, b)           \
    for (int v = 0; v < V_TILE; v++) \
        b[v] = v_load((w) + v * V_LANES);
#define PRODUCT_STEP(x, b, sum) v_dot_i8(x, b, sum)
#include "kernels/product_tpl.h"

static const gemm_form gemm_i8_words = {
    .group = 4, .w_words = TILE_COLS, .k_step = GEMM_I8_STEP, .product = tile_i8_table, .pack = tile_pack_i8, .scaled = true};

static size_t gemm_i8_x_bytes(int m, int k)
{
    return (gemm_head_words(&gemm_i8_words, m) + (size_t)m * tile_line_words((k + 3) / 4)) * sizeof(float);
}

static void gemm_i8_prepare(const pi0_gemm *g, int k0, int k1, int t0, int t1, void *prepared)
{
    const int tiles = pi0_tiles(g->m, TILE_ROWS), k = k1 - k0;
    const size_t line_words = tile_line_words((k + 3) / 4);
    float *const unit = prepared, *const lines = unit + gemm_head_words(&gemm_i8_words, g->m);
    for (int t = t0; t < t1; t++) {
        const int m = pi0_tile_at(g->m, tiles, t), rows = pi0_tile_at(g->m, tiles, t + 1) - m;
        float factor[TILE_ROWS];
        for (int i = 0; i < rows; i++) { /* of all k, whatever the span */
            const i8_scale scale = i8_scale_of(i8_largest(g->x + (size_t)(m + i) * g->ldx, PI0_F32, g->k), I8_X_MOST);
            factor[i] = scale.factor;
            unit[m + i] = scale.unit;
        }
        int8_t *to = (int8_t *)(lines + (size_t)m * line_words);
        for (int at = 0; at < k; at += 4 * TILE_LINE)
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < 4 * TILE_LINE; j += V_LANES, to += V_LANES) {
                    const int left = k - at - j;
                    const vf x = left > 0 ? v_get(g->x + (size_t)(m + i) * g->ldx + k0 + at + j, left) : (vf){0};
                    const vb bytes = i8_round(x, factor[i], I8_X_EXCESS);
                    memcpy(to, &bytes, sizeof bytes);
                }
    }
}

static void gemm_i8_multiply(const pi0_gemm *g, int k0, int k1, int t0, int t1, int p0, int p1, const void *prepared, void *workspace)
{
    gemm_multiply(&gemm_i8_words, g, k0, k1, t0, t1, p0, p1, prepared, workspace);
}

static size_t gemm_i8_workspace_bytes(const pi0_gemm *g)
{
    (void)g;
    return 0;
}

static size_t gemm_i8_packed_bytes(const pi0_gemm *g)
{
    return gemm_packed_bytes(&gemm_i8_words, g);
}

static void gemm_i8_pack(const pi0_gemm *g, int p0, int p1, void *packed)
{
    gemm_pack(&gemm_i8_words, g, p0, p1, packed);
}

static double gemm_i8_peak(int rounds)
{
    return 8.0 * tile_i8_peak(rounds);
}

#define GEMM_I8_KERNEL                                                                                                         \
    {                                                                                                                          \
        .title = I8_TITLE, .tile_rows = TILE_ROWS, .tile_cols = TILE_COLS, .k_step = GEMM_I8_STEP, .x_bytes = gemm_i8_x_bytes, \
        .prepare = gemm_i8_prepare, .multiply = gemm_i8_multiply, .workspace_bytes = gemm_i8_workspace_bytes,                  \
        .packed_bytes = gemm_i8_packed_bytes, .pack = gemm_i8_pack, .peak = gemm_i8_peak                                       \
    }
