/* simd (neon) - four lanes, thirty-two registers, what every aarch64 has. The names are explained in ref/simd.h. */
#ifndef PI0_KERNELS_NEON_SIMD_H
#define PI0_KERNELS_NEON_SIMD_H

#include <arm_neon.h>

#include "base/base.h"

#define V_LANES 4
#define V_TILE 4          /* vectors of a row of a tile */
#define GEMM_F32_STEP 512 /* a panel of bf16 weights and one of x stay in L1 together */

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef float vf_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

static inline vf v_set1(float x)
{
    return (vf)vdupq_n_f32(x);
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return (vf)vshll_n_u16(vld1_u16(p), 16);
}

static inline vf v_load_f16(const uint16_t *p)
{
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline void v_transpose(vf r[V_LANES])
{
    const float64x2_t a = (float64x2_t)vtrn1q_f32((float32x4_t)r[0], (float32x4_t)r[1]);
    const float64x2_t b = (float64x2_t)vtrn2q_f32((float32x4_t)r[0], (float32x4_t)r[1]);
    const float64x2_t c = (float64x2_t)vtrn1q_f32((float32x4_t)r[2], (float32x4_t)r[3]);
    const float64x2_t d = (float64x2_t)vtrn2q_f32((float32x4_t)r[2], (float32x4_t)r[3]);
    r[0] = (vf)vtrn1q_f64(a, c);
    r[1] = (vf)vtrn1q_f64(b, d);
    r[2] = (vf)vtrn2q_f64(a, c);
    r[3] = (vf)vtrn2q_f64(b, d);
}

#define V_OWN_COMPARISONS

/* Compared and chosen: of the instructions, one keeps a NaN of either side and the other of none. */
static inline vf v_max(vf x, vf y)
{
    return (vf)vbslq_f32(vcltq_f32((float32x4_t)x, (float32x4_t)y), (float32x4_t)y, (float32x4_t)x);
}

static inline vf v_min(vf x, vf y)
{
    return (vf)vbslq_f32(vcgtq_f32((float32x4_t)x, (float32x4_t)y), (float32x4_t)y, (float32x4_t)x);
}

static inline vi v_larger(vi x, vi y)
{
    return (vi)vmaxq_s32((int32x4_t)x, (int32x4_t)y);
}

/* Halves upon halves, as vector_tpl.h has it. */
static inline float v_sum(vf x)
{
    return vaddv_f32(vadd_f32(vget_low_f32((float32x4_t)x), vget_high_f32((float32x4_t)x)));
}

static inline float v_largest(vf x)
{
    return vmaxvq_f32((float32x4_t)x);
}

typedef struct v_double_sum {
    float64x2_t low, high;
} v_double_sum;

static inline void v_double_add(v_double_sum *sum, vf x)
{
    sum->low = vaddq_f64(sum->low, vcvt_f64_f32(vget_low_f32((float32x4_t)x)));
    sum->high = vaddq_f64(sum->high, vcvt_high_f64_f32((float32x4_t)x));
}

static inline void v_double_add_square(v_double_sum *sum, vf x, double mean)
{
    const float64x2_t center = vdupq_n_f64(mean);
    const float64x2_t a = vsubq_f64(vcvt_f64_f32(vget_low_f32((float32x4_t)x)), center);
    const float64x2_t b = vsubq_f64(vcvt_high_f64_f32((float32x4_t)x), center);
    sum->low = vfmaq_f64(sum->low, a, a);
    sum->high = vfmaq_f64(sum->high, b, b);
}

static inline double v_double_total(const v_double_sum *sum)
{
    return vaddvq_f64(vaddq_f64(sum->low, sum->high));
}

#endif
