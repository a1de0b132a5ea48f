/* oneDNN: matmul, with both sides in the type that meets and the weights in the order that it asks for, put there at open. What turns
 * activations into bf16 or whole numbers is not in its time; in pi0's it is. */
#include <dnnl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "gemm.h"

/* Descriptions of memory are values in oneDNN 2 and handles since 3; a borrowed one is a pointer in both. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout;
#else
typedef const dnnl_memory_desc_t *layout;
#endif

typedef struct product {
    problem p;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_desc_t md[4]; /* x, w as given, w in any order, y */
    dnnl_primitive_desc_t described;
    dnnl_primitive_t matmul;
    dnnl_memory_t x, w, y;
    void *given; /* x in its type; f32: NULL, the problem's own */
} product;

static const char *version(void)
{
    static char text[64];
    const dnnl_version_t *v = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", v->major, v->minor, v->patch);
    return text;
}

static void ok(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return;
    fprintf(stderr, "compare_gemm: oneDNN: %s: status %d\n", what, (int)status);
    exit(1);
}

static layout borrow(const product *r, int i)
{
#if DNNL_VERSION_MAJOR >= 3
    return r->md[i];
#else
    return &r->md[i];
#endif
}

static void describe(product *r, int i, int rows, int cols, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    const dnnl_dims_t dims = {rows, cols};
#if DNNL_VERSION_MAJOR >= 3
    ok(dnnl_memory_desc_create_with_tag(&r->md[i], 2, dims, type, tag), "a description of memory");
#else
    ok(dnnl_memory_desc_init_by_tag(&r->md[i], 2, dims, type, tag), "a description of memory");
#endif
}

static dnnl_status_t describe_matmul(product *r)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(&r->described, r->engine, borrow(r, 0), borrow(r, 2), NULL, borrow(r, 3), NULL);
#else
    dnnl_matmul_desc_t d;
    ok(dnnl_matmul_desc_init(&d, borrow(r, 0), borrow(r, 2), NULL, borrow(r, 3)), "a description of a product");
    return dnnl_primitive_desc_create(&r->described, &d, NULL, r->engine, NULL);
#endif
}

static int8_t whole(float x)
{
    return (int8_t)lrintf(x * INT8_SCALE);
}

static void *x_in_type(const problem *p)
{
    const size_t count = (size_t)p->m * (size_t)p->k;
    uint16_t *bf16 = p->kind == KIND_BF16 ? need(pi0_alloc(count * 2)) : NULL;
    int8_t *int8 = p->kind == KIND_INT8 ? need(pi0_alloc(count)) : NULL;
    for (size_t i = 0; i < count && bf16; i++)
        bf16[i] = pi0_bf16_from_f32(p->x[i]);
    for (size_t i = 0; i < count && int8; i++)
        int8[i] = whole(p->x[i]);
    return bf16 ? (void *)bf16 : int8;
}

static void *w_in_type(const problem *p)
{
    const size_t count = (size_t)p->n * (size_t)p->k;
    if (p->kind == KIND_F32)
        return widened(p);
    uint8_t *out = need(pi0_alloc(p->kind == KIND_BF16 ? count * 2 : count));
    if (p->kind == KIND_BF16)
        memcpy(out, p->w, count * 2);
    for (size_t i = 0; i < count && p->kind == KIND_INT8; i++)
        out[i] = (uint8_t)whole(pi0_f32_from_bf16(p->w[i]));
    return out;
}

/* Into the order that the product asks for. */
static void pack(product *r)
{
    void *given = w_in_type(&r->p);
    layout wanted = dnnl_primitive_desc_query_md(r->described, dnnl_query_weights_md, 0);
    dnnl_memory_t from;
    dnnl_primitive_desc_t described;
    dnnl_primitive_t reorder;
    ok(dnnl_memory_create(&from, borrow(r, 1), r->engine, given), "memory");
    ok(dnnl_memory_create(&r->w, wanted, r->engine, DNNL_MEMORY_ALLOCATE), "memory");
    ok(dnnl_reorder_primitive_desc_create(&described, borrow(r, 1), r->engine, wanted, r->engine, NULL), "a reorder");
    ok(dnnl_primitive_create(&reorder, described), "a reorder");
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, r->w}};
    ok(dnnl_primitive_execute(reorder, r->stream, 2, args), "a reorder");
    ok(dnnl_stream_wait(r->stream), "a reorder");
    dnnl_primitive_destroy(reorder);
    dnnl_primitive_desc_destroy(described);
    dnnl_memory_destroy(from);
    pi0_free(given);
}

static void close_product(void *context)
{
    product *r = context;
    dnnl_primitive_destroy(r->matmul);
    dnnl_primitive_desc_destroy(r->described);
    dnnl_memory_destroy(r->x);
    dnnl_memory_destroy(r->w);
    dnnl_memory_destroy(r->y);
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < 4; i++)
        dnnl_memory_desc_destroy(r->md[i]);
#endif
    dnnl_stream_destroy(r->stream);
    dnnl_engine_destroy(r->engine);
    pi0_free(r->given);
    free(r);
}

static void *open_product(const problem *p, const char **why)
{
    static const dnnl_data_type_t types[KINDS] = {[KIND_F32] = dnnl_f32, [KIND_BF16] = dnnl_bf16, [KIND_INT8] = dnnl_s8};
    product *r = need(calloc(1, sizeof *r));
    r->p = *p;
    set_openmp_threads(p->threads); /* some of its choices depend on it */
    ok(dnnl_engine_create(&r->engine, dnnl_cpu, 0), "an engine");
    ok(dnnl_stream_create(&r->stream, r->engine, dnnl_stream_default_flags), "a stream");
    describe(r, 0, p->m, p->k, types[p->kind], dnnl_ab);
    describe(r, 1, p->k, p->n, types[p->kind], dnnl_ba); /* [n,k] in memory */
    describe(r, 2, p->k, p->n, types[p->kind], dnnl_format_tag_any);
    describe(r, 3, p->m, p->n, dnnl_f32, dnnl_ab);
    if (describe_matmul(r) != dnnl_success) {
        *why = "not on this chip";
        close_product(r);
        return NULL;
    }
    ok(dnnl_primitive_create(&r->matmul, r->described), "a product");
    r->given = x_in_type(p);
    ok(dnnl_memory_create(&r->x, borrow(r, 0), r->engine, r->given ? r->given : (void *)(uintptr_t)p->x), "memory");
    ok(dnnl_memory_create(&r->y, borrow(r, 3), r->engine, p->y), "memory");
    pack(r);
    return r;
}

static void run_product(void *context)
{
    const product *r = context;
    set_openmp_threads(r->p.threads);
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, r->x}, {DNNL_ARG_WEIGHTS, r->w}, {DNNL_ARG_DST, r->y}};
    ok(dnnl_primitive_execute(r->matmul, r->stream, 3, args), "a product");
    ok(dnnl_stream_wait(r->stream), "a product");
}

const contestant contestant_onednn = {"onednn", version, open_product, run_product, close_product};
