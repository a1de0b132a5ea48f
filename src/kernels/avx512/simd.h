/* simd (avx512) - sixteen lanes, thirty-two registers, masks for tails. The names are explained in ref/simd.h. */
#ifndef PI0_KERNELS_AVX512_SIMD_H
#define PI0_KERNELS_AVX512_SIMD_H

#include <immintrin.h>

#include "base/base.h"

#define V_LANES 16
#define V_TILE 4           /* vectors of a row of a tile */
#define GEMM_F32_STEP 1024 /* a panel of bf16 weights: 128 KB, of L2 */

typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));
typedef float vf_unaligned __attribute__((vector_size(64), aligned(4), may_alias));

static inline vf v_set1(float x)
{
    return (vf)_mm512_set1_ps(x);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16);
}

static inline vf v_load_f16(const uint16_t *p)
{
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Pairs, then fours within each 128-bit lane, then the lanes themselves in two steps. */
static inline void v_transpose(vf r[V_LANES])
{
    __m512 a[V_LANES], b[V_LANES];
#pragma GCC unroll 16
    for (int i = 0; i < V_LANES; i += 2) {
        a[i] = _mm512_unpacklo_ps((__m512)r[i], (__m512)r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps((__m512)r[i], (__m512)r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < V_LANES; i += 4) {
        b[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) { /* b[4g+i]: columns i, 4+i, 8+i, 12+i of rows 4g .. 4g+3 */
        __m512 even01 = _mm512_shuffle_f32x4(b[i], b[4 + i], 0x88), odd01 = _mm512_shuffle_f32x4(b[i], b[4 + i], 0xdd);
        __m512 even23 = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0x88), odd23 = _mm512_shuffle_f32x4(b[8 + i], b[12 + i], 0xdd);
        r[i] = (vf)_mm512_shuffle_f32x4(even01, even23, 0x88);
        r[4 + i] = (vf)_mm512_shuffle_f32x4(odd01, odd23, 0x88);
        r[8 + i] = (vf)_mm512_shuffle_f32x4(even01, even23, 0xdd);
        r[12 + i] = (vf)_mm512_shuffle_f32x4(odd01, odd23, 0xdd);
    }
}

#define V_OWN_PARTS

static inline __mmask16 v_first(int n)
{
    return (__mmask16)((1u << n) - 1);
}

/* Lanes n and above hold `fill`; n from 0 to V_LANES. */
static inline vf v_load_part(const float *p, int n, float fill)
{
    return (vf)_mm512_mask_loadu_ps(_mm512_set1_ps(fill), v_first(n), p);
}

static inline void v_store_part(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, v_first(n), (__m512)x);
}

#define V_OWN_SCALE

static inline vf v_scale(vf x, vf n)
{
    return (vf)_mm512_scalef_ps((__m512)x, (__m512)n);
}

#define V_OWN_COMPARISONS

/* The instructions return their second operand when either is NaN. */
static inline vf v_max(vf x, vf y)
{
    return (vf)_mm512_max_ps((__m512)y, (__m512)x);
}

static inline vf v_min(vf x, vf y)
{
    return (vf)_mm512_min_ps((__m512)y, (__m512)x);
}

static inline vi v_larger(vi x, vi y)
{
    return (vi)_mm512_max_epi32((__m512i)x, (__m512i)y);
}

/* Halves upon halves, as vector_tpl.h has it. */
static inline float v_sum(vf x)
{
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

static inline float v_largest(vf x)
{
    __m256 eight = _mm256_max_ps(_mm512_castps512_ps256((__m512)x), _mm512_extractf32x8_ps((__m512)x, 1));
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

typedef struct v_double_sum {
    __m512d low, high;
} v_double_sum;

static inline __m512d v_low_doubles(vf x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
}

static inline __m512d v_high_doubles(vf x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
}

static inline void v_double_add(v_double_sum *sum, vf x)
{
    sum->low = _mm512_add_pd(sum->low, v_low_doubles(x));
    sum->high = _mm512_add_pd(sum->high, v_high_doubles(x));
}

static inline void v_double_add_square(v_double_sum *sum, vf x, double mean)
{
    __m512d center = _mm512_set1_pd(mean);
    __m512d a = _mm512_sub_pd(v_low_doubles(x), center), b = _mm512_sub_pd(v_high_doubles(x), center);
    sum->low = _mm512_fmadd_pd(a, a, sum->low);
    sum->high = _mm512_fmadd_pd(b, b, sum->high);
}

static inline double v_double_total(const v_double_sum *sum)
{
    double lane[8];
    _mm512_storeu_pd(lane, _mm512_add_pd(sum->low, sum->high));
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

#endif
