/* One matrix product, y[m,n] = x[m,k] * w[n,k]^T, by whoever is there. */
#ifndef COMPARE_GEMM_H
#define COMPARE_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* What is multiplied; sums are f32, or whole numbers. */
typedef enum kind { KIND_F32, KIND_BF16, KIND_INT8, KINDS } kind;

typedef struct problem {
    kind kind;
    int m, n, k, threads;
    const float *x;    /* [m,k] */
    const uint16_t *w; /* [n,k] bf16, as checkpoints have it */
    float *y;          /* [m,n] */
} problem;

typedef struct contestant {
    const char *name;
    const char *(*version)(void);
    /* What may be done once, before any product: threads, the own order of the weights. NULL: cannot, and why. */
    void *(*open)(const problem *p, const char **why);
    void (*run)(void *product);
    void (*close)(void *product);
} contestant;

extern const contestant contestant_pi0, contestant_onednn, contestant_openblas;

/* The scale of whole numbers that stand for x and w, which are below 0.5. */
#define INT8_SCALE 254.0f

void *need(void *memory); /* or the end, with a word on it */
float *widened(const problem *p);
void set_openmp_threads(int threads); /* of whatever OpenMP a library brought along, if any */

#endif
