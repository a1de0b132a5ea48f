#include "base/base.h"

uint16_t pi0_f16_from_f32(float x)
{
    union {
        float f;
        uint32_t u;
    } v = {x};
    uint16_t sign = (uint16_t)((v.u >> 16) & 0x8000u);
    uint32_t magnitude = v.u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN: the quiet bit keeps it from becoming an infinity when the payload's top is zero */
        return (uint16_t)(sign | 0x7c00u | ((magnitude >> 13) & 0x3ffu) | ((magnitude & 0x7fe000u) ? 0u : 0x200u));
    if (magnitude >= 0x477ff000u) /* 65520, halfway past the largest finite value */
        return (uint16_t)(sign | 0x7c00u);
    uint32_t mantissa, shift;
    uint16_t exponent;
    if (magnitude >= 0x38800000u) { /* normal: 2^-14 and up */
        mantissa = magnitude & 0x7fffffu;
        exponent = (uint16_t)(((magnitude >> 23) - 112u) << 10);
        shift = 13;
    } else {
        if (magnitude < 0x33000000u) /* below 2^-25 */
            return sign;
        mantissa = (magnitude & 0x7fffffu) | 0x800000u;
        exponent = 0;
        shift = 126u - (magnitude >> 23);
    }
    uint32_t kept = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1u), half = 1u << (shift - 1);
    if (rest > half || (rest == half && (kept & 1u)))
        kept++; /* may carry into the exponent, which is then right as well */
    return (uint16_t)(sign | (exponent + kept));
}

float pi0_f32_from_f16(uint16_t x)
{
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16;
    uint32_t exponent = (x >> 10) & 0x1fu, mantissa = x & 0x3ffu;
    union {
        uint32_t u;
        float f;
    } v;
    if (exponent == 0) { /* zero and subnormals: an exact product of two representable numbers */
        v.f = (float)mantissa * 0x1p-24f;
        v.u |= sign;
    } else if (exponent == 0x1f) {
        v.u = sign | 0x7f800000u | (mantissa << 13);
    } else {
        v.u = sign | ((exponent + 112u) << 23) | (mantissa << 13);
    }
    return v.f;
}
