/* simd (avx2) - eight lanes, fused multiply-add, f16 conversion in hardware. The names are explained in ref/simd.h. */
#ifndef PI0_KERNELS_AVX2_SIMD_H
#define PI0_KERNELS_AVX2_SIMD_H

#include <immintrin.h>

#include "base/base.h"

#define V_LANES 8
#define V_TILE 2          /* vectors of a row of a tile */
#define GEMM_F32_STEP 512 /* a panel of bf16 weights and one of x stay in L1 together */

typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));
typedef float vf_unaligned __attribute__((vector_size(32), aligned(4), may_alias));

static inline vf v_set1(float x)
{
    return (vf)_mm256_set1_ps(x);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16);
}

static inline vf v_load_f16(const uint16_t *p)
{
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static inline void v_transpose(vf r[V_LANES])
{
    __m256 a0 = _mm256_unpacklo_ps((__m256)r[0], (__m256)r[1]), a1 = _mm256_unpackhi_ps((__m256)r[0], (__m256)r[1]);
    __m256 a2 = _mm256_unpacklo_ps((__m256)r[2], (__m256)r[3]), a3 = _mm256_unpackhi_ps((__m256)r[2], (__m256)r[3]);
    __m256 a4 = _mm256_unpacklo_ps((__m256)r[4], (__m256)r[5]), a5 = _mm256_unpackhi_ps((__m256)r[4], (__m256)r[5]);
    __m256 a6 = _mm256_unpacklo_ps((__m256)r[6], (__m256)r[7]), a7 = _mm256_unpackhi_ps((__m256)r[6], (__m256)r[7]);
    __m256 b0 = _mm256_shuffle_ps(a0, a2, 0x44), b1 = _mm256_shuffle_ps(a0, a2, 0xee);
    __m256 b2 = _mm256_shuffle_ps(a1, a3, 0x44), b3 = _mm256_shuffle_ps(a1, a3, 0xee);
    __m256 b4 = _mm256_shuffle_ps(a4, a6, 0x44), b5 = _mm256_shuffle_ps(a4, a6, 0xee);
    __m256 b6 = _mm256_shuffle_ps(a5, a7, 0x44), b7 = _mm256_shuffle_ps(a5, a7, 0xee);
    r[0] = (vf)_mm256_permute2f128_ps(b0, b4, 0x20);
    r[1] = (vf)_mm256_permute2f128_ps(b1, b5, 0x20);
    r[2] = (vf)_mm256_permute2f128_ps(b2, b6, 0x20);
    r[3] = (vf)_mm256_permute2f128_ps(b3, b7, 0x20);
    r[4] = (vf)_mm256_permute2f128_ps(b0, b4, 0x31);
    r[5] = (vf)_mm256_permute2f128_ps(b1, b5, 0x31);
    r[6] = (vf)_mm256_permute2f128_ps(b2, b6, 0x31);
    r[7] = (vf)_mm256_permute2f128_ps(b3, b7, 0x31);
}

#define V_OWN_PARTS

static inline __m256i v_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* Lanes n and above hold `fill`; n from 0 to V_LANES. */
static inline vf v_load_part(const float *p, int n, float fill)
{
    const __m256i first = v_first(n);
    return (vf)_mm256_blendv_ps(_mm256_set1_ps(fill), _mm256_maskload_ps(p, first), (__m256)first);
}

static inline void v_store_part(float *p, vf x, int n)
{
    _mm256_maskstore_ps(p, v_first(n), (__m256)x);
}

#define V_OWN_COMPARISONS

/* The instructions return their second operand when either is NaN. */
static inline vf v_max(vf x, vf y)
{
    return (vf)_mm256_max_ps((__m256)y, (__m256)x);
}

static inline vf v_min(vf x, vf y)
{
    return (vf)_mm256_min_ps((__m256)y, (__m256)x);
}

static inline vi v_larger(vi x, vi y)
{
    return (vi)_mm256_max_epi32((__m256i)x, (__m256i)y);
}

/* Halves upon halves, as vector_tpl.h has it. */
static inline float v_sum(vf x)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float v_largest(vf x)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

typedef struct v_double_sum {
    __m256d low, high;
} v_double_sum;

static inline void v_double_add(v_double_sum *sum, vf x)
{
    sum->low = _mm256_add_pd(sum->low, _mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)));
    sum->high = _mm256_add_pd(sum->high, _mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1)));
}

static inline void v_double_add_square(v_double_sum *sum, vf x, double mean)
{
    __m256d center = _mm256_set1_pd(mean);
    __m256d a = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x)), center);
    __m256d b = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1)), center);
    sum->low = _mm256_fmadd_pd(a, a, sum->low);
    sum->high = _mm256_fmadd_pd(b, b, sum->high);
}

static inline double v_double_total(const v_double_sum *sum)
{
    __m256d all = _mm256_add_pd(sum->low, sum->high);
    double lane[4];
    _mm256_storeu_pd(lane, all);
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

#endif
