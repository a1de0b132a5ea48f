/* What the dot product extension adds to neon: products of whole numbers. Compiled with its flags where the target is aarch64, and empty
 * elsewhere. */
typedef int pi0_neon_dotprod_not_empty;

#ifdef PI0_HAVE_NEON_DOTPROD

#include "kernels/neon/simd.h"

#include <math.h>
#include <string.h>

#include "kernels/isa.h"

#include "kernels/vector_tpl.h"

#include "kernels/tile_tpl.h"

#include "kernels/tile_f32_tpl.h"

#include "kernels/gemm_tpl.h"

#define I8_TITLE "int8 (w8a8)"
enum { I8_W_MOST = 127, I8_X_MOST = 127, I8_X_EXCESS = 0, GEMM_I8_STEP = 2048 };

V_INLINE vi v_dot_i8(vf x, vf w, vi sum)
{
    return (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)x, (int8x16_t)w);
}

#include "kernels/gemm_i8_tpl.h"

static const pi0_kernels table = {.isa = "neon-dotprod", .gemm = {[PI0_GEMM_I8] = GEMM_I8_KERNEL}};

const pi0_kernels_isa pi0_isa_neon_dotprod = {.name = "neon-dotprod", .table = &table};

#endif
