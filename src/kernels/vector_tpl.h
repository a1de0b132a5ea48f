/* vector_tpl - what follows from a folder's simd.h: loads and stores with tails, selection, reductions, exp.
 *
 * Included once by the one source of each folder, after its simd.h. A tail is the same vector operation on a vector whose missing
 * lanes are filled, so that an element's bits depend neither on its column nor on the number of columns.
 */

#define V_INLINE static inline __attribute__((always_inline))

/* Loops over the lanes of vectors held in registers must vanish, or the vectors go through memory. */
#if defined(__clang__)
#define V_UNROLL _Pragma("clang loop unroll(full)")
#else
#define V_UNROLL _Pragma("GCC unroll 16")
#endif

/* The compiler must take x as unknown from here on, and keep it in a register. */
#if defined(__x86_64__) && !defined(PI0_EMULATE_AVX512)
#define V_KEEP(x) __asm__ volatile("" : "+v"(x))
#elif defined(__aarch64__)
#define V_KEEP(x) __asm__ volatile("" : "+w"(x))
#else
#define V_KEEP(x) __asm__ volatile("" : "+m"(x))
#endif

V_INLINE vf v_load(const float *p)
{
    return *(const vf_unaligned *)p;
}
/* From any address: words made of smaller elements. */
typedef vf vf_anywhere __attribute__((aligned(1), may_alias));
V_INLINE vf v_load_anywhere(const void *p)
{
    return *(const vf_anywhere *)p;
}
V_INLINE void v_store(float *p, vf x)
{
    *(vf_unaligned *)p = x;
}

#ifndef V_OWN_PARTS /* a folder whose chip has instructions for these defines them in its simd.h */

/* Lanes n and above hold `fill`. */
static inline vf v_load_part(const float *p, int n, float fill)
{
    vf v = v_set1(fill);
    for (int i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}

static inline void v_store_part(float *p, vf x, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = x[i];
}

#endif

/* A whole vector when `left` elements allow it, otherwise the `left` ones. */
V_INLINE vf v_get(const float *p, int left)
{
    return left >= V_LANES ? v_load(p) : v_load_part(p, left, 0.0f);
}

V_INLINE void v_put(float *p, vf x, int left)
{
    if (left >= V_LANES)
        v_store(p, x);
    else
        v_store_part(p, x, left);
}

/* The next elements of a stored matrix, widened; `element` is their index from `base`. */
V_INLINE vf v_widen(const void *base, pi0_dtype dtype, size_t element)
{
    if (dtype == PI0_BF16)
        return v_load_bf16((const uint16_t *)base + element);
    if (dtype == PI0_F16)
        return v_load_f16((const uint16_t *)base + element);
    return v_load((const float *)base + element);
}

static inline vf v_widen_part(const void *base, pi0_dtype dtype, size_t element, int n)
{
    if (dtype == PI0_F32)
        return v_load_part((const float *)base + element, n, 0.0f);
    uint16_t part[V_LANES] = {0};
    memcpy(part, (const uint16_t *)base + element, (size_t)n * sizeof part[0]);
    return dtype == PI0_BF16 ? v_load_bf16(part) : v_load_f16(part);
}

V_INLINE vf v_select(vi mask, vf yes, vf no)
{
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

#ifndef V_OWN_COMPARISONS /* a folder whose chip has instructions for these defines them in its simd.h */

/* A NaN in x stays, a NaN in y does not. */
V_INLINE vf v_max(vf x, vf y)
{
    return v_select((vi)(x < y), y, x);
}
V_INLINE vf v_min(vf x, vf y)
{
    return v_select((vi)(x > y), y, x);
}
V_INLINE vi v_larger(vi x, vi y)
{
    return (vi)v_select(x > y, (vf)x, (vf)y);
}

static inline float v_sum(vf x)
{
    float lane[V_LANES];
    v_store(lane, x);
    for (int half = V_LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

static inline float v_largest(vf x)
{
    float best = x[0];
    for (int i = 1; i < V_LANES; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

#endif

#ifndef V_OWN_SCALE /* as above */

/* x * 2^n, n from -151 to 129: in two factors, so that neither of them leaves the range before the product does. */
V_INLINE vf v_scale(vf x, vf n)
{
    const vi power = __builtin_convertvector(n, vi), half = power >> 1;
    const vf a = (vf)((half + 127) << 23), b = (vf)((power - half + 127) << 23);
    return x * a * b;
}

#endif

/* e^x within 2 ulp everywhere, subnormal results included; -inf gives 0, above 88.72 +inf, NaN stays NaN.
 * x = n ln2 + r with |r| <= 0.347; Taylor's series of degree 7 is off by 6e-9 there. The clamps are where the result has become 0 or
 * infinite anyway. */
V_INLINE vf v_exp(vf x)
{
    const vf magic = v_set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
    x = v_min(v_max(x, v_set1(-104.0f)), v_set1(89.0f));
    vf shifted = v_fma(x, v_set1(1.44269504f), magic);
    vf n = shifted - magic;
    vf r = v_fma(n, v_set1(-0.693359375f), x); /* exact: nine bits of ln2 times eight of n */
    r = v_fma(n, v_set1(2.12194440e-4f), r);
    vf p = v_set1(1.0f / 5040.0f);
    p = v_fma(p, r, v_set1(1.0f / 720.0f));
    p = v_fma(p, r, v_set1(1.0f / 120.0f));
    p = v_fma(p, r, v_set1(1.0f / 24.0f));
    p = v_fma(p, r, v_set1(1.0f / 6.0f));
    p = v_fma(p, r, v_set1(0.5f));
    p = v_fma(p * r, r, r) + v_set1(1.0f);
    return v_scale(p, n);
}

/* 2^x for x <= 0 within 1.6e-7, relative; -inf gives 0, NaN stays NaN. Softmax needs no more: its arguments are differences from the
 * largest. x = n + r with |r| <= 0.5; a polynomial of degree 5, 2^0 exactly 1. */
V_INLINE vf v_exp2(vf x)
{
    const vf magic = v_set1(12582912.0f); /* as in v_exp */
    x = v_max(x, v_set1(-151.0f));        /* 2^-151 rounds to 0 */
    const vf n = x + magic - magic, r = x - n;
    vf p = v_set1(0.00132186722f);
    p = v_fma(p, r, v_set1(0.00967169832f));
    p = v_fma(p, r, v_set1(0.0555089302f));
    p = v_fma(p, r, v_set1(0.24022238f));
    p = v_fma(p, r, v_set1(0.693146884f));
    p = v_fma(p, r, v_set1(1.0f));
    return v_scale(p, n);
}

/* The tanh form: x/2 (1 + tanh u) = x / (1 + e^-2u), without the cancellation that 1 + tanh has for negative u. */
V_INLINE vf v_gelu(vf x)
{
    vf u = v_fma(v_set1(0.044715f) * x * x, x, x);
    return x / (v_set1(1.0f) + v_exp(v_set1(-1.59576912f) * u)); /* -2 sqrt(2/pi) */
}
