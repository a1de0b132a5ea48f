/* tile_f32_tpl - the tile on f32: x as it is, w widened when it is packed. */

V_INLINE vf tile_load_f32(const void *const *row, const float *factor, int column, pi0_dtype dtype, size_t element, int left)
{
    (void)factor;
    const void *from = row[column];
    if (from == NULL || left <= 0)
        return (vf){0};
    return left >= V_LANES ? v_widen(from, dtype, element) : v_widen_part(from, dtype, element, left);
}

/* A row of the panel is TILE_COLS f32. A NULL row counts as zeros. */
static inline void tile_pack_f32(const void *const *row, pi0_dtype dtype, size_t k0, int k, void *panel)
{
    if (dtype == PI0_BF16)
        tile_pack(tile_load_f32, TILE_COLS, 1, row, NULL, PI0_BF16, k0, k, panel);
    else if (dtype == PI0_F16)
        tile_pack(tile_load_f32, TILE_COLS, 1, row, NULL, PI0_F16, k0, k, panel);
    else
        tile_pack(tile_load_f32, TILE_COLS, 1, row, NULL, PI0_F32, k0, k, panel);
}

#define PRODUCT(name) tile_f32_##name
#define PRODUCT_SUM vf
#define PRODUCT_X(p) v_set1(*(const float *)(p))
#define PRODUCT_W_WORDS TILE_COLS
#define PRODUCT_LOAD(w, b)           \
    for (int v = 0; v < V_TILE; v++) \
        b[v] = v_load((w) + v * V_LANES);
#define PRODUCT_STEP(x, b, sum) v_fma(x, b, sum)
#include "kernels/product_tpl.h"
