/* attention_f32_tpl - both products of an attention in f32. */

#define PRODUCT(name) tile_f32_narrow_##name
#define PRODUCT_SUM vf
#define PRODUCT_X(p) v_set1(*(const float *)(p))
#define PRODUCT_VECTORS 1
#define PRODUCT_W_WORDS V_LANES
#define PRODUCT_LOAD(w, b)                    \
    for (int v = 0; v < PRODUCT_VECTORS; v++) \
        b[v] = v_load((w) + v * V_LANES);
#define PRODUCT_STEP(x, b, sum) v_fma(x, b, sum)
#include "kernels/product_tpl.h"

static inline void att_line(const float *x, int left, float *to)
{
    tile_lines(x, 0, 1, pi0_min_int(left, TILE_LINE), to);
}

#define ATT_GROUP 1

V_INLINE vf att_words_of(const vf e[ATT_GROUP])
{
    return e[0];
}

static inline vf att_values(const att_run *run, int j0, int keys, int j, int c, int left)
{
    if (j >= keys || left <= 0 || !att_attends(run, j0 + j))
        return (vf){0};
    return v_get(run->v + (size_t)(j0 + j) * run->ld + c, left);
}

#define ATT_WIDE tile_f32_table
#define ATT_NARROW tile_f32_narrow_table
#define ATT_PACK_KEYS(row, d0, d, panel) tile_pack_f32(row, PI0_F32, d0, d, panel)
#include "kernels/attention_tpl.h"
