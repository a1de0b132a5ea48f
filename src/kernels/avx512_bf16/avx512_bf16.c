/* What AVX512-BF16 adds to avx512: products of bf16. Compiled with its flags where the target is x86-64, and empty elsewhere. */
typedef int pi0_avx512_bf16_not_empty;

#ifdef PI0_HAVE_AVX512_BF16

#include "kernels/avx512/simd.h"

#include <math.h>
#include <string.h>

#include "kernels/isa.h"

#include "kernels/vector_tpl.h"

#include "kernels/tile_tpl.h"

#include "kernels/attention_keys_tpl.h"
#include "kernels/gemm_tpl.h"

enum { GEMM_BF16_STEP = 2048 }; /* a panel of w: 256 KB, of L2 */

V_INLINE vf v_dot_bf16(vf x, vf w, vf sum)
{
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
}

V_INLINE vf v_to_bf16(vf low, vf high)
{
    return (vf)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
}

V_INLINE vf v_pair_bf16(vf low, vf high)
{
    static const uint16_t zip[2 * V_LANES] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                              8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return (vf)_mm512_permutexvar_epi16((__m512i)v_load_anywhere(zip), (__m512i)v_to_bf16(low, high));
}

#include "kernels/gemm_bf16_tpl.h"

#include "kernels/attention_bf16_tpl.h"

static const pi0_kernels table = {.isa = "avx512-bf16",
                                  .gemm = {[PI0_GEMM_BF16] = GEMM_BF16_KERNEL},
                                  .attention = {[PI0_GEMM_BF16] = attention},
                                  .attention_workspace = ATT_WORKSPACE};

const pi0_kernels_isa pi0_isa_avx512_bf16 = {.name = "avx512-bf16", .table = &table};

#endif
