/* attention_bf16_tpl - both products of an attention on bf16: queries, keys, weights and values rounded, sums and softmax f32. */

#define PRODUCT(name) tile_pairs_narrow_##name
#define PRODUCT_SUM vf
#define PRODUCT_X(p) v_set1(*(p))
#define PRODUCT_VECTORS 1
#define PRODUCT_W_WORDS V_LANES
#define PRODUCT_LOAD(w, b)                    \
    for (int v = 0; v < PRODUCT_VECTORS; v++) \
        b[v] = v_load((w) + v * V_LANES);
#define PRODUCT_STEP(x, b, sum) v_dot_bf16(x, b, sum)
#include "kernels/product_tpl.h"

static inline void att_line(const float *x, int left, float *to)
{
    gemm_bf16_line(x, left, to);
}

#define ATT_GROUP 2

V_INLINE vf att_words_of(const vf e[ATT_GROUP])
{
    return v_to_bf16(e[0], e[1]);
}

static inline vf att_value(const att_run *run, int j0, int keys, int j, int c, int left)
{
    return j < keys && left > 0 && att_attends(run, j0 + j) ? v_get(run->v + (size_t)(j0 + j) * run->ld + c, left) : (vf){0};
}

static inline vf att_values(const att_run *run, int j0, int keys, int j, int c, int left)
{
    return v_pair_bf16(att_value(run, j0, keys, j, c, left), att_value(run, j0, keys, j + 1, c, left));
}

#define ATT_WIDE tile_pairs_table
#define ATT_NARROW tile_pairs_narrow_table
#define ATT_PACK_KEYS(row, d0, d, panel) tile_pack_pairs(row, PI0_F32, d0, d, panel)
#include "kernels/attention_tpl.h"
