/* OpenBLAS: sgemm on f32 weights. */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "gemm.h"

typedef struct product {
    problem p;
    float *w;
} product;

/* Which of its kernels it took: on a processor younger than the library, or told by OPENBLAS_CORETYPE, not the best one. */
static const char *version(void)
{
    static char text[256];
    snprintf(text, sizeof text, "%s", openblas_get_config());
    return text;
}

static void *open_product(const problem *p, const char **why)
{
    if (p->kind != KIND_F32) {
        *why = "sgemm only";
        return NULL;
    }
    product *r = need(calloc(1, sizeof *r));
    *r = (product){*p, widened(p)};
    return r;
}

static void run_product(void *context)
{
    const product *r = context;
    const problem *p = &r->p;
    openblas_set_num_threads(p->threads);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, p->m, p->n, p->k, 1.0f, p->x, p->k, r->w, p->k, 0.0f, p->y, p->n);
}

static void close_product(void *context)
{
    product *r = context;
    pi0_free(r->w);
    free(r);
}

const contestant contestant_openblas = {"openblas", version, open_product, run_product, close_product};
