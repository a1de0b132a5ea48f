/* gemm_f32_tpl - products in f32 with weights of f32, f16 (widened when packed) or bf16 (widened in registers). */

/* Two columns, V_LANES apart, in the halves of a word: one shift and one mask widen both. */
V_INLINE vf tile_load_halves(const void *const *row, const float *factor, int column, pi0_dtype dtype, size_t element, int left)
{
    const void *const *from = row + column / V_LANES * 2 * V_LANES + column % V_LANES;
    vi low = (vi)tile_load_f32(from, factor, 0, dtype, element, left),
       high = (vi)tile_load_f32(from, factor, V_LANES, dtype, element, left);
    return (vf)(((low >> 16) & 0xffff) | (high & (int32_t)0xffff0000));
}

/* A row of the panel is TILE_COLS bf16 in TILE_COLS / 2 words. */
static inline void tile_pack_halves(const void *const *row, pi0_dtype dtype, size_t k0, int k, void *panel)
{
    (void)dtype;
    tile_pack(tile_load_halves, TILE_COLS / 2, 1, row, NULL, PI0_BF16, k0, k, panel);
}

#define PRODUCT(name) tile_halves_##name
#define PRODUCT_SUM vf
#define PRODUCT_X(p) v_set1(*(const float *)(p))
#define PRODUCT_W_WORDS (TILE_COLS / 2)
#define PRODUCT_LOAD(w, b)                             \
    for (int v = 0; v < V_TILE; v += 2) {              \
        vi halves = (vi)v_load((w) + v / 2 * V_LANES); \
        b[v] = (vf)(halves << 16);                     \
        b[v + 1] = (vf)(halves & (int32_t)0xffff0000); \
    }
#define PRODUCT_STEP(x, b, sum) v_fma(x, b, sum)
#include "kernels/product_tpl.h"

static const gemm_form gemm_f32_words = {
    .group = 1, .w_words = TILE_COLS, .k_step = GEMM_F32_STEP, .product = tile_f32_table, .pack = tile_pack_f32};
static const gemm_form gemm_f32_halves = {
    .group = 1, .w_words = TILE_COLS / 2, .k_step = GEMM_F32_STEP, .product = tile_halves_table, .pack = tile_pack_halves};

static inline const gemm_form *gemm_f32_form(pi0_dtype stored)
{
    return stored == PI0_BF16 ? &gemm_f32_halves : &gemm_f32_words;
}

static size_t gemm_f32_x_bytes(int m, int k)
{
    return (size_t)m * tile_line_words(k) * sizeof(float);
}

static void gemm_f32_prepare(const pi0_gemm *g, int k0, int k1, int t0, int t1, void *prepared)
{
    const int tiles = pi0_tiles(g->m, TILE_ROWS);
    for (int t = t0; t < t1; t++) {
        const int m = pi0_tile_at(g->m, tiles, t), rows = pi0_tile_at(g->m, tiles, t + 1) - m;
        tile_lines(g->x + (size_t)m * g->ldx + k0, g->ldx, rows, k1 - k0, (float *)prepared + (size_t)m * tile_line_words(k1 - k0));
    }
}

static void gemm_f32_multiply(const pi0_gemm *g, int k0, int k1, int t0, int t1, int p0, int p1, const void *prepared, void *workspace)
{
    gemm_multiply(gemm_f32_form(g->w_dtype), g, k0, k1, t0, t1, p0, p1, prepared, workspace);
}

static size_t gemm_f32_workspace_bytes(const pi0_gemm *g)
{
    return gemm_workspace_bytes(gemm_f32_form(g->w_dtype), g);
}

static size_t gemm_f32_packed_bytes(const pi0_gemm *g)
{
    return gemm_packed_bytes(gemm_f32_form(g->w_dtype), g);
}

static void gemm_f32_pack(const pi0_gemm *g, int p0, int p1, void *packed)
{
    gemm_pack(gemm_f32_form(g->w_dtype), g, p0, p1, packed);
}

static double gemm_f32_peak(int rounds)
{
    return 2.0 * tile_f32_peak(rounds);
}

#define GEMM_F32_KERNEL                                                                                                       \
    {                                                                                                                         \
        .title = "f32", .tile_rows = TILE_ROWS, .tile_cols = TILE_COLS, .k_step = GEMM_F32_STEP, .x_bytes = gemm_f32_x_bytes, \
        .prepare = gemm_f32_prepare, .multiply = gemm_f32_multiply, .workspace_bytes = gemm_f32_workspace_bytes,              \
        .packed_bytes = gemm_f32_packed_bytes, .pack = gemm_f32_pack, .peak = gemm_f32_peak                                   \
    }
