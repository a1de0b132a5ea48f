/* What AVX-VNNI adds to avx2: products of whole numbers. Compiled with its flags where the target is x86-64, and empty elsewhere. */
typedef int pi0_avx2_vnni_not_empty;

#ifdef PI0_HAVE_AVX2_VNNI

#include "kernels/avx2/simd.h"

#include <math.h>
#include <string.h>

#include "kernels/isa.h"

#include "kernels/vector_tpl.h"

#include "kernels/tile_tpl.h"

#include "kernels/tile_f32_tpl.h"

#include "kernels/gemm_tpl.h"

#define I8_TITLE "int8 (w8a8)"
enum { I8_W_MOST = 127, I8_X_MOST = 127, I8_X_EXCESS = 128, GEMM_I8_STEP = 1024 };

V_INLINE vi v_dot_i8(vf x, vf w, vi sum)
{
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
}

#include "kernels/gemm_i8_tpl.h"

static const pi0_kernels table = {.isa = "avx2-vnni", .gemm = {[PI0_GEMM_I8] = GEMM_I8_KERNEL}};

const pi0_kernels_isa pi0_isa_avx2_vnni = {.name = "avx2-vnni", .table = &table};

#endif
