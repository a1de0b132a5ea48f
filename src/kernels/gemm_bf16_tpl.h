/* gemm_bf16_tpl - products of bf16 by bf16 where the chip multiplies pairs of them and adds both to an f32.
 *
 * Needs of the folder: v_dot_bf16(x, w, sum) on words of two, v_to_bf16(low, high), the f32 of one vector and then those of the next as
 * words of two bf16, and for attention v_pair_bf16(low, high), words of one element of each. */

/* The next 2 * V_LANES f32 as words; those beyond `left` are 0. */
V_INLINE vf gemm_bf16_words(const float *x, int left)
{
    const vf zero = {0};
    if (left >= 2 * V_LANES)
        return v_to_bf16(v_load(x), v_load(x + V_LANES));
    return v_to_bf16(left > 0 ? v_get(x, left) : zero, left > V_LANES ? v_get(x + V_LANES, left - V_LANES) : zero);
}

V_INLINE vf tile_load_pairs(const void *const *row, const float *factor, int column, pi0_dtype dtype, size_t element, int left)
{
    (void)factor;
    const void *from = row[column];
    if (from == NULL || left <= 0)
        return (vf){0};
    if (dtype == PI0_BF16 && left >= 2 * V_LANES)
        return v_load_anywhere((const uint16_t *)from + element);
    if (dtype == PI0_F32)
        return gemm_bf16_words((const float *)from + element, left);
    const int count = pi0_min_int(left, 2 * V_LANES);
    if (dtype == PI0_BF16) {
        uint16_t pairs[2 * V_LANES] = {0};
        memcpy(pairs, (const uint16_t *)from + element, (size_t)count * sizeof pairs[0]);
        return v_load_anywhere(pairs);
    }
    if (left >= 2 * V_LANES)
        return v_to_bf16(v_widen(from, PI0_F16, element), v_widen(from, PI0_F16, element + V_LANES));
    float wide[2 * V_LANES] = {0};
    for (int i = 0; i < count; i++)
        wide[i] = pi0_f32_from_f16(((const uint16_t *)from)[element + (size_t)i]);
    return gemm_bf16_words(wide, count);
}

static inline void tile_pack_pairs(const void *const *row, pi0_dtype dtype, size_t k0, int k, void *panel)
{
    if (dtype == PI0_BF16)
        tile_pack(tile_load_pairs, TILE_COLS, 2, row, NULL, PI0_BF16, k0, k, panel);
    else if (dtype == PI0_F16)
        tile_pack(tile_load_pairs, TILE_COLS, 2, row, NULL, PI0_F16, k0, k, panel);
    else
        tile_pack(tile_load_pairs, TILE_COLS, 2, row, NULL, PI0_F32, k0, k, panel);
}

#define PRODUCT(name) tile_pairs_##name
#define PRODUCT_SUM vf
#define PRODUCT_X(p) v_set1(*(p))
#define PRODUCT_W_WORDS TILE_COLS
#define PRODUCT_LOAD(w, b)           \
    for (int v = 0; v < V_TILE; v++) \
        b[v] = v_load((w) + v * V_LANES);
#define PRODUCT_STEP(x, b, sum) v_dot_bf16(x, b, sum)
#include "kernels/product_tpl.h"

static const gemm_form gemm_bf16_pairs = {
    .group = 2, .w_words = TILE_COLS, .k_step = GEMM_BF16_STEP, .product = tile_pairs_table, .pack = tile_pack_pairs};

static size_t gemm_bf16_x_bytes(int m, int k)
{
    return (size_t)m * tile_line_words((k + 1) / 2) * sizeof(float);
}

/* A line of a panel: the first `left` of 2 * TILE_LINE elements, zeros behind them. */
static inline void gemm_bf16_line(const float *x, int left, float *to)
{
    for (int j = 0; j < TILE_LINE; j += V_LANES, x += 2 * V_LANES, left -= 2 * V_LANES)
        v_store(to + j, gemm_bf16_words(x, left));
}

static void gemm_bf16_prepare(const pi0_gemm *g, int k0, int k1, int t0, int t1, void *prepared)
{
    const int tiles = pi0_tiles(g->m, TILE_ROWS), k = k1 - k0;
    const size_t line_words = tile_line_words((k + 1) / 2);
    for (int t = t0; t < t1; t++) {
        const int m = pi0_tile_at(g->m, tiles, t), rows = pi0_tile_at(g->m, tiles, t + 1) - m;
        float *to = (float *)prepared + (size_t)m * line_words;
        for (int at = 0; at < k; at += 2 * TILE_LINE)
            for (int i = 0; i < rows; i++, to += TILE_LINE)
                gemm_bf16_line(g->x + (size_t)(m + i) * g->ldx + k0 + at, k - at, to);
    }
}

static void gemm_bf16_multiply(const pi0_gemm *g, int k0, int k1, int t0, int t1, int p0, int p1, const void *prepared, void *workspace)
{
    gemm_multiply(&gemm_bf16_pairs, g, k0, k1, t0, t1, p0, p1, prepared, workspace);
}

static size_t gemm_bf16_workspace_bytes(const pi0_gemm *g)
{
    return gemm_workspace_bytes(&gemm_bf16_pairs, g);
}

static size_t gemm_bf16_packed_bytes(const pi0_gemm *g)
{
    return gemm_packed_bytes(&gemm_bf16_pairs, g);
}

static void gemm_bf16_pack(const pi0_gemm *g, int p0, int p1, void *packed)
{
    gemm_pack(&gemm_bf16_pairs, g, p0, p1, packed);
}

static double gemm_bf16_peak(int rounds)
{
    return 4.0 * tile_pairs_peak(rounds);
}

#define GEMM_BF16_KERNEL                                                                                                         \
    {                                                                                                                            \
        .title = "bf16", .tile_rows = TILE_ROWS, .tile_cols = TILE_COLS, .k_step = GEMM_BF16_STEP, .x_bytes = gemm_bf16_x_bytes, \
        .prepare = gemm_bf16_prepare, .multiply = gemm_bf16_multiply, .workspace_bytes = gemm_bf16_workspace_bytes,              \
        .packed_bytes = gemm_bf16_packed_bytes, .pack = gemm_bf16_pack, .peak = gemm_bf16_peak                                   \
    }
