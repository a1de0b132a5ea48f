#include <float.h>
#include <math.h>

#include "base/base.h"

/* Same bits everywhere: every double operation here is one that IEEE 754 rounds in one way only (+ - * / sqrt), none is contracted
 * (-ffp-contract=off), and no intermediate is wider than a double. */
_Static_assert(FLT_EVAL_METHOD == 0, "the noise generator needs arithmetic without excess precision");

#define GOLDEN 0x9e3779b97f4a7c15u /* SplitMix64's increment */

uint64_t pi0_mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t pi0_random_word(uint64_t seed, uint64_t index)
{
    return pi0_mix64(seed + (index + 1) * GOLDEN);
}

uint64_t pi0_fnv1a(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const unsigned char *s = (const unsigned char *)text; *s; s++)
        hash = (hash ^ *s) * 0x100000001b3u;
    return hash;
}

/* Natural logarithm of a normal x > 0, within about 1e-15 relative of the true value for x away from 1.
 * x = 2^e * m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh((m-1)/(m+1)), summed as far as doubles see it. */
static double log_plain(double x)
{
    union {
        double f;
        uint64_t u;
    } v = {x};
    int e = (int)(v.u >> 52) - 1023;
    v.u = (v.u & 0xfffffffffffffu) | 0x3ff0000000000000u;
    double m = v.f;
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        e++;
    }
    double s = (m - 1.0) / (m + 1.0), s2 = s * s, series = 1.0 / 25.0;
    for (int k = 23; k >= 1; k -= 2)
        series = series * s2 + 1.0 / (double)k;
    /* ln 2 in two parts, the first with enough trailing zeros that e times it is exact */
    return (double)e * 0x1.62e42fee00000p-1 + (2.0 * s * series + (double)e * 0x1.a39ef35793c76p-33);
}

/* c[0] + c[1] x + ... + c[7] x^7 */
static double polynomial7(const double *c, double x)
{
    double sum = c[7];
    for (int i = 6; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}

/* Quantile of the normal distribution: M. J. Wichura, Algorithm AS 241 (PPND16), Applied Statistics 37 (1988), about 1e-16 relative. */
static double normal_quantile(double p)
{
    static const double centre_num[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                                         1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                                         3.3430575583588128105e4, 2.5090809287301226727e3};
    static const double centre_den[8] = {1.0,
                                         4.2313330701600911252e1,
                                         6.8718700749205790830e2,
                                         5.3941960214247511077e3,
                                         2.1213794301586595867e4,
                                         3.9307895800092710610e4,
                                         2.8729085735721942674e4,
                                         5.2264952788528545610e3};
    static const double middle_num[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                         3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                         2.27238449892691845833e-2, 7.74545014278341407640e-4};
    static const double middle_den[8] = {1.0,
                                         2.05319162663775882187e0,
                                         1.67638483018380384940e0,
                                         6.89767334985100004550e-1,
                                         1.48103976427480074590e-1,
                                         1.51986665636164571966e-2,
                                         5.47593808499534494600e-4,
                                         1.05075007164441684324e-9};
    static const double tail_num[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                       2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                       2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double tail_den[8] = {1.0,
                                       5.99832206555887937690e-1,
                                       1.36929880922735805310e-1,
                                       1.48753612908506148525e-2,
                                       7.86869131145613259100e-4,
                                       1.84631831751005468180e-5,
                                       1.42151175831644588870e-7,
                                       2.04426310338993978564e-15};
    double q = p - 0.5;
    if (q >= -0.425 && q <= 0.425) {
        double r = 0.180625 - q * q;
        return q * polynomial7(centre_num, r) / polynomial7(centre_den, r);
    }
    double r = sqrt(-log_plain(q < 0 ? p : 1.0 - p)), z;
    if (r <= 5.0)
        z = polynomial7(middle_num, r - 1.6) / polynomial7(middle_den, r - 1.6);
    else
        z = polynomial7(tail_num, r - 5.0) / polynomial7(tail_den, r - 5.0);
    return q < 0 ? -z : z;
}

void pi0_random_normal(uint64_t seed, uint64_t stream, float *out, size_t count)
{
    uint64_t base = pi0_mix64(seed) ^ pi0_mix64(stream * 0xd1342543de82ef95u + 0x2545f4914f6cdd1du);
    for (size_t i = 0; i < count; i++) {
        /* 52 bits and a half: exact in a double, symmetric, and never 0 or 1 */
        double p = ((double)(pi0_random_word(base, i) >> 12) + 0.5) * 0x1p-52;
        out[i] = (float)normal_quantile(p);
    }
}
