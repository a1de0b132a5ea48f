/* Compiled with PI0_HAVE_NEON where the target is aarch64, and empty elsewhere. */
typedef int pi0_neon_not_empty;

#ifdef PI0_HAVE_NEON

#include "kernels/neon/simd.h"

#include <math.h>
#include <string.h>

#include "kernels/isa.h"

#include "kernels/vector_tpl.h"

#include "kernels/tile_tpl.h"

#include "kernels/tile_f32_tpl.h"

#include "kernels/attention_keys_tpl.h"

#include "kernels/attention_core_tpl.h"
#include "kernels/attention_f32_tpl.h"
#include "kernels/gemm_tpl.h"

#include "kernels/gemm_f32_tpl.h"

#define I8_TITLE "int8 (w8a8)"
enum { I8_W_MOST = 127, I8_X_MOST = 127, I8_X_EXCESS = 0, GEMM_I8_STEP = 1024 };

/* Two products of 8 bits and their sum fit in 16. */
V_INLINE vi v_dot_i8(vf x, vf w, vi sum)
{
    const int8x16_t a = (int8x16_t)x, b = (int8x16_t)w;
    const int16x8_t pairs = vpaddq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)), vmull_high_s8(a, b));
    return (vi)vpadalq_s16((int32x4_t)sum, pairs);
}

#include "kernels/gemm_i8_tpl.h"

#include "kernels/rows_tpl.h"
#include "kernels/table_tpl.h"

static const pi0_kernels table = KERNELS_FROM_TEMPLATES("neon");

const pi0_kernels_isa pi0_isa_neon = {.name = "neon", .table = &table};

#endif
