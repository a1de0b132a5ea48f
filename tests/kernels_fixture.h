/* kernels_fixture - guarded matrices and the instruction sets to test, for the tests of src/kernels. Included once by each of them.
 *
 * Matrices are guarded: before, between and after the columns of each row lie NaNs of one bit pattern. A kernel that reads them spoils
 * its result, one that writes them is found by guard_check, and the memory ends with the last element for AddressSanitizer.
 */
#ifndef PI0_TEST_KERNELS_FIXTURE_H
#define PI0_TEST_KERNELS_FIXTURE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

#include "kernels/kernels.h"

#define U 5.9604645e-8 /* half a unit in the last place of f32 */

enum { MAX_ISAS = 16, FRONT = 5, GAP = 3 };

static const uint32_t guard_bits = 0x7fc0beefu;

static pi0_kernels isas[MAX_ISAS];
static int isa_count;

static inline int load_isas(void **state)
{
    (void)state;
    pi0_isa_report report[MAX_ISAS];
    size_t n = pi0_kernels_report(report, MAX_ISAS);
    for (size_t i = 0; i < n; i++) {
        if (!report[i].usable) {
            print_message("instruction set %s not tested: %s\n", report[i].name, report[i].reason);
            continue;
        }
        print_message("instruction set %s tested\n", report[i].name);
        if (pi0_kernels_select(report[i].name, &isas[isa_count++], NULL) != PI0_OK)
            return 1;
    }
    return isa_count == 0;
}

#define EACH_ISA(k) for (const pi0_kernels *k = isas; k < isas + isa_count; k++)
/* Those that bring their own `member`: the others have it from the one before. */
#define EACH_ISA_WITH(k, member) EACH_ISA(k) if (k->member != NULL && (k == isas || k->member != k[-1].member))

static uint32_t seed_now = 1;

static inline float uniform(void) /* [-1,1) */
{
    seed_now = seed_now * 1664525u + 1013904223u;
    return (float)(int32_t)seed_now * 0x1p-31f;
}

typedef struct guarded {
    float *base, *at; /* [rows, cols] */
    size_t ld, count;
    int rows, cols;
} guarded;

static inline guarded guarded_new(int rows, int cols)
{
    guarded g = {.rows = rows, .cols = cols, .ld = (size_t)cols + GAP};
    g.count = FRONT + (rows > 0 ? (size_t)(rows - 1) * g.ld + (size_t)cols : 0);
    g.base = malloc(g.count * sizeof(float));
    assert_non_null(g.base);
    for (size_t i = 0; i < g.count; i++)
        memcpy(g.base + i, &guard_bits, sizeof guard_bits);
    g.at = g.base + FRONT;
    return g;
}

static inline guarded guarded_random(int rows, int cols, float size)
{
    guarded g = guarded_new(rows, cols);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            g.at[(size_t)r * g.ld + (size_t)c] = size * uniform();
    return g;
}

static inline void guarded_free(guarded *g)
{
    free(g->base);
}

/* Everything outside rows [r0,r1) x columns [c0,c1) still holds the guard. */
static inline void guard_check(const guarded *g, int r0, int r1, int c0, int c1)
{
    for (size_t i = 0; i < g->count; i++) {
        if (i >= FRONT) {
            int r = (int)((i - FRONT) / g->ld), c = (int)((i - FRONT) % g->ld);
            if (r >= r0 && r < r1 && c >= c0 && c < c1)
                continue;
        }
        assert_memory_equal(g->base + i, &guard_bits, sizeof guard_bits);
    }
}

static inline float *cell(const guarded *g, int r, int c)
{
    return g->at + (size_t)r * g->ld + (size_t)c;
}

static inline void same_bits(const guarded *a, const guarded *b)
{
    for (int r = 0; r < a->rows; r++)
        assert_memory_equal(cell(a, r, 0), cell(b, r, 0), (size_t)a->cols * sizeof(float));
}

static inline void close_to(double got, double expected, double bound, const char *isa, const char *what)
{
    if (!(fabs(got - expected) <= bound)) /* written so that a NaN fails */
        fail_msg("%s %s: got %.9g, expected %.9g, bound %.3g", isa, what, got, expected, bound);
}

/* A stored weight matrix: the exact values as float, and the bytes as a checkpoint has them. */
typedef struct weights {
    guarded value;
    void *stored;
    size_t ld;
    pi0_dtype dtype;
} weights;

static inline uint16_t half_from(float x, pi0_dtype dtype)
{
    return dtype == PI0_BF16 ? pi0_bf16_from_f32(x) : pi0_f16_from_f32(x);
}
static inline float half_to(uint16_t x, pi0_dtype dtype)
{
    return dtype == PI0_BF16 ? pi0_f32_from_bf16(x) : pi0_f32_from_f16(x);
}

static inline weights weights_from(guarded value, pi0_dtype dtype)
{
    weights w = {.value = value, .dtype = dtype, .ld = (size_t)value.cols + 1};
    size_t element = dtype == PI0_F32 ? 4 : 2;
    w.stored = malloc(((size_t)value.rows * w.ld + 1) * element);
    assert_non_null(w.stored);
    memset(w.stored, 0xff, ((size_t)value.rows * w.ld + 1) * element); /* NaN in all three formats */
    for (int r = 0; r < value.rows; r++)
        for (int c = 0; c < value.cols; c++) {
            size_t at = (size_t)r * w.ld + (size_t)c;
            if (dtype == PI0_F32) {
                ((float *)w.stored)[at] = *cell(&value, r, c);
            } else {
                ((uint16_t *)w.stored)[at] = half_from(*cell(&value, r, c), dtype);
                *cell(&value, r, c) = half_to(((uint16_t *)w.stored)[at], dtype);
            }
        }
    return w;
}

static inline void weights_free(weights *w)
{
    guarded_free(&w->value);
    free(w->stored);
}

#endif
