/* simd (ref) - four lanes of portable C vectors: SSE2 on x86-64, NEON on aarch64, without any intrinsic.
 *
 * Every folder's simd.h defines the same names; vector_tpl.h and the other templates are written on top of them.
 */
#ifndef PI0_KERNELS_REF_SIMD_H
#define PI0_KERNELS_REF_SIMD_H

#include "base/base.h"

#define V_LANES 4
#define V_TILE 2          /* vectors of a row of a tile */
#define GEMM_F32_STEP 512 /* a panel of bf16 weights and one of x stay in L1 together */

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef float vf_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

static inline vf v_set1(float x)
{
    return (vf){x, x, x, x};
}

static inline vf v_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

static inline vf v_load_bf16(const uint16_t *p)
{
    vi bits = {(int32_t)((uint32_t)p[0] << 16), (int32_t)((uint32_t)p[1] << 16), (int32_t)((uint32_t)p[2] << 16),
               (int32_t)((uint32_t)p[3] << 16)};
    return (vf)bits;
}

static inline vf v_load_f16(const uint16_t *p)
{
    return (vf){pi0_f32_from_f16(p[0]), pi0_f32_from_f16(p[1]), pi0_f32_from_f16(p[2]), pi0_f32_from_f16(p[3])};
}

#if defined(__clang__)
#define V_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define V_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (vi){i, j, k, l})
#endif

static inline void v_transpose(vf r[V_LANES])
{
    vf a = V_SHUFFLE(r[0], r[1], 0, 4, 1, 5), b = V_SHUFFLE(r[2], r[3], 0, 4, 1, 5);
    vf c = V_SHUFFLE(r[0], r[1], 2, 6, 3, 7), d = V_SHUFFLE(r[2], r[3], 2, 6, 3, 7);
    r[0] = V_SHUFFLE(a, b, 0, 1, 4, 5);
    r[1] = V_SHUFFLE(a, b, 2, 3, 6, 7);
    r[2] = V_SHUFFLE(c, d, 0, 1, 4, 5);
    r[3] = V_SHUFFLE(c, d, 2, 3, 6, 7);
}

/* Sums in double: one partial sum for each lane. */
typedef struct v_double_sum {
    double lane[V_LANES];
} v_double_sum;

static inline void v_double_add(v_double_sum *sum, vf x)
{
    for (int i = 0; i < V_LANES; i++)
        sum->lane[i] += (double)x[i];
}

/* Adds (x - mean)^2. */
static inline void v_double_add_square(v_double_sum *sum, vf x, double mean)
{
    for (int i = 0; i < V_LANES; i++) {
        double e = (double)x[i] - mean;
        sum->lane[i] += e * e;
    }
}

static inline double v_double_total(const v_double_sum *sum)
{
    return (sum->lane[0] + sum->lane[2]) + (sum->lane[1] + sum->lane[3]);
}

#endif
