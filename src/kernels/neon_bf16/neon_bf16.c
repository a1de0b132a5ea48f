/* What the bf16 extension adds to neon: products of bf16. Compiled with its flags where the target is aarch64, and empty elsewhere. */
typedef int pi0_neon_bf16_not_empty;

#ifdef PI0_HAVE_NEON_BF16

#include "kernels/neon/simd.h"

#include <math.h>
#include <string.h>

#include "kernels/isa.h"

#include "kernels/vector_tpl.h"

#include "kernels/tile_tpl.h"

#include "kernels/attention_keys_tpl.h"
#include "kernels/gemm_tpl.h"

enum { GEMM_BF16_STEP = 1024 }; /* a panel of w and one of x: 44 KB, of the 64 KB L1 of the cores that have it */

V_INLINE vf v_dot_bf16(vf x, vf w, vf sum)
{
    return (vf)vbfdotq_f32((float32x4_t)sum, (bfloat16x8_t)x, (bfloat16x8_t)w);
}

V_INLINE vf v_to_bf16(vf low, vf high)
{
    return (vf)vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)low), (float32x4_t)high);
}

V_INLINE vf v_pair_bf16(vf low, vf high)
{
    const uint16x4_t a = (uint16x4_t)vcvt_bf16_f32((float32x4_t)low), b = (uint16x4_t)vcvt_bf16_f32((float32x4_t)high);
    return (vf)vzip1q_u16(vcombine_u16(a, a), vcombine_u16(b, b));
}

#include "kernels/gemm_bf16_tpl.h"

#include "kernels/attention_bf16_tpl.h"

static const pi0_kernels table = {.isa = "neon-bf16",
                                  .gemm = {[PI0_GEMM_BF16] = GEMM_BF16_KERNEL},
                                  .attention = {[PI0_GEMM_BF16] = attention},
                                  .attention_workspace = ATT_WORKSPACE};

const pi0_kernels_isa pi0_isa_neon_bf16 = {.name = "neon-bf16", .table = &table};

#endif
