/* Compiled with -mavx2 -mfma -mf16c and PI0_HAVE_AVX2 where the target is x86-64, and empty elsewhere. */
typedef int pi0_avx2_not_empty;

#ifdef PI0_HAVE_AVX2

#include "kernels/avx2/simd.h"

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

#define I8_TITLE "int8 (w8a7)"
enum { I8_W_MOST = 127, I8_X_MOST = 63, I8_X_EXCESS = 64, GEMM_I8_STEP = 1024 };

/* Two products of 7 bits without sign by 8 with one are at most 2 * 127 * 127: the sum of each pair does not saturate. */
V_INLINE vi v_dot_i8(vf x, vf w, vi sum)
{
    const __m256i pairs = _mm256_maddubs_epi16((__m256i)x, (__m256i)w);
    return sum + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

#include "kernels/gemm_i8_tpl.h"

#include "kernels/rows_tpl.h"
#include "kernels/table_tpl.h"

static const pi0_kernels table = KERNELS_FROM_TEMPLATES("avx2");

const pi0_kernels_isa pi0_isa_avx2 = {.name = "avx2", .table = &table};

#endif
