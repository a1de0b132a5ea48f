/* immintrin - AVX-512 out of AVX2: SIMDe, and here what release 0.7.4 of it lacks of what src/kernels/avx512* use.
 *
 * A build with PI0_EMULATE_AVX512 compiles those folders with this header in place of the compiler's, so that their tests run on
 * machines that have no such registers.
 */
#include_next <immintrin.h> /* which SIMDe includes again by the same name */

#ifndef PI0_EMULATE_IMMINTRIN_H
#define PI0_EMULATE_IMMINTRIN_H

#include <math.h>
#include <string.h>

#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>

/* The compiler declares the functions even where it cannot compile a call of them, so their names must be macros. */
#define _mm512_cvtepu16_epi32 emulate_cvtepu16_epi32
#define _mm512_cvtph_ps emulate_cvtph_ps
#define _mm512_cvtps_pd emulate_cvtps_pd
#define _mm512_extractf32x8_ps emulate_extractf32x8_ps
#define _mm512_shuffle_f32x4 emulate_shuffle_f32x4
#define _mm512_cvtneps_pbh emulate_cvtneps_pbh
#define _mm512_cvtne2ps_pbh emulate_cvtne2ps_pbh
#define _mm512_mask_loadu_ps emulate_mask_loadu_ps
#define _mm512_mask_storeu_ps emulate_mask_storeu_ps

#undef _mm512_scalef_ps /* SIMDe makes 0 of subnormal values */
#define _mm512_scalef_ps emulate_scalef_ps
#undef _mm512_madd_epi16 /* an alias that takes the arguments of another function */
#define _mm512_madd_epi16 simde_mm512_madd_epi16

static inline __m512i emulate_cvtepu16_epi32(__m256i x)
{
    const __m256i half[2] = {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))};
    __m512i whole;
    memcpy(&whole, half, sizeof whole);
    return whole;
}

static inline __m512 emulate_cvtph_ps(__m256i x)
{
    const __m256 half[2] = {_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
    __m512 whole;
    memcpy(&whole, half, sizeof whole);
    return whole;
}

static inline __m512d emulate_cvtps_pd(__m256 x)
{
    const __m256d half[2] = {_mm256_cvtps_pd(_mm256_castps256_ps128(x)), _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1))};
    __m512d whole;
    memcpy(&whole, half, sizeof whole);
    return whole;
}

static inline __m256 emulate_extractf32x8_ps(__m512 x, int which)
{
    __m256 half[2];
    memcpy(half, &x, sizeof half);
    return half[which & 1];
}

static inline __m512 emulate_shuffle_f32x4(__m512 a, __m512 b, int choice)
{
    __m128 from_a[4], from_b[4];
    memcpy(from_a, &a, sizeof from_a);
    memcpy(from_b, &b, sizeof from_b);
    const __m128 quarter[4] = {from_a[choice & 3], from_a[choice >> 2 & 3], from_b[choice >> 4 & 3], from_b[choice >> 6 & 3]};
    __m512 whole;
    memcpy(&whole, quarter, sizeof whole);
    return whole;
}

static inline __m512 emulate_mask_loadu_ps(__m512 other, __mmask16 mask, const void *from)
{
    float lane[16];
    memcpy(lane, &other, sizeof lane);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            memcpy(lane + i, (const char *)from + i * 4, sizeof lane[i]);
    __m512 whole;
    memcpy(&whole, lane, sizeof whole);
    return whole;
}

static inline void emulate_mask_storeu_ps(void *to, __mmask16 mask, __m512 x)
{
    float lane[16];
    memcpy(lane, &x, sizeof lane);
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1)
            memcpy((char *)to + i * 4, lane + i, sizeof lane[i]);
}

/* power: whole numbers, or NaN. */
static inline __m512 emulate_scalef_ps(__m512 x, __m512 power)
{
    float lane[16], n[16];
    memcpy(lane, &x, sizeof lane);
    memcpy(n, &power, sizeof n);
    for (int i = 0; i < 16; i++)
        lane[i] = n[i] != n[i] ? n[i] : scalbnf(lane[i], (int)n[i]);
    __m512 whole;
    memcpy(&whole, lane, sizeof whole);
    return whole;
}

/* To nearest even; subnormal values become 0, a NaN stays one. */
static inline __m256bh emulate_cvtneps_pbh(__m512 x)
{
    uint32_t wide[16];
    uint16_t narrow[16];
    memcpy(wide, &x, sizeof wide);
    for (int i = 0; i < 16; i++) {
        const uint32_t size = wide[i] & 0x7fffffff, sign = wide[i] ^ size;
        const uint32_t rounded = size < 0x00800000 ? 0 : size > 0x7f800000 ? size | 0x00400000 : size + 0x7fff + (size >> 16 & 1);
        narrow[i] = (uint16_t)((sign | rounded) >> 16);
    }
    __m256bh half;
    memcpy(&half, narrow, sizeof half);
    return half;
}

/* b comes first. */
static inline __m512bh emulate_cvtne2ps_pbh(__m512 a, __m512 b)
{
    const __m256bh half[2] = {emulate_cvtneps_pbh(b), emulate_cvtneps_pbh(a)};
    __m512bh whole;
    memcpy(&whole, half, sizeof whole);
    return whole;
}

#endif
