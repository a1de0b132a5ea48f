/* The product as an inference does it: a plan of one op on the CPU device, which decides what is packed at open and how work is shared. */
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "gemm.h"
#include "kernels/kernels.h"

static const pi0_device_api *const api = &pi0_device_cpu;

typedef struct product {
    pi0_device *device;
    pi0_plan *plan;
    pi0_buffer tensor[3], arena, workspace; /* x, w (has none), y */
    pi0_device_weight weight;
    pi0_params params;
    pi0_exec *exec;
} product;

static void ok(pi0_status status, const pi0_error *err)
{
    if (status == PI0_OK)
        return;
    fprintf(stderr, "compare_gemm: %s\n", err->what);
    exit(1);
}

static const char *version(void)
{
    static pi0_kernels kernels;
    pi0_error err = {0};
    ok(pi0_kernels_select(NULL, &kernels, &err), &err);
    return kernels.isa;
}

static const char *lacking(const problem *p)
{
    static pi0_kernels kernels;
    pi0_error err = {0};
    ok(pi0_kernels_select(NULL, &kernels, &err), &err);
    return kernels.gemm[p->kind].multiply ? NULL : "not on this chip";
}

static pi0_buffer at(const void *memory, size_t bytes)
{
    return (pi0_buffer){.handle = (void *)(uintptr_t)memory, .host = (void *)(uintptr_t)memory, .bytes = bytes};
}

static void *open_product(const problem *p, const char **why)
{
    if ((*why = lacking(p)))
        return NULL;
    product *r = need(calloc(1, sizeof *r));
    pi0_error err = {0};
    const int rows[PI0_ROWS_COUNT] = {[PI0_ROWS_PREFIX] = p->m};
    ok(api->open(&(pi0_device_options){.threads = p->threads}, &r->device, &err), &err);
    ok(pi0_plan_create("product", rows, 1, &r->plan, &err), &err);
    const int x = pi0_plan_input(r->plan, "x", PI0_F32, PI0_ROWS_PREFIX, p->k);
    const int w = pi0_plan_weight(r->plan, PI0_FORM_TENSOR, PI0_USE_MATRIX, "w", p->n, p->k);
    const int y = pi0_plan_linear(r->plan, x, w, -1);
    pi0_plan_output(r->plan, y, "y");
    ok(pi0_plan_finish(r->plan), &err);
    const pi0_precision_policy policy = {.matrices = (pi0_precision)(PI0_PRECISION_F32 + (int)p->kind)}; /* both lists have this order */
    pi0_plan_quantise(r->plan, &policy);
    ok(pi0_plan_layout(r->plan, &err), &err);

    const pi0_host_weight host = {.dtype = PI0_BF16, .rows = p->n, .cols = p->k, .n_parts = 1, .part = {{p->w, p->n}}};
    ok(api->import_weight(r->device, &r->plan->weights[0], &host, &r->weight, &err), &err);
    r->tensor[x] = at(p->x, pi0_tensor_bytes(r->plan, x)); /* both are allocated a little longer than they are */
    r->tensor[y] = at(p->y, pi0_tensor_bytes(r->plan, y));
    ok(api->alloc(r->device, r->plan->arena_bytes, &r->arena, &err), &err);
    ok(api->alloc(r->device, api->workspace(r->device, r->plan), &r->workspace, &err), &err);
    const pi0_bindings bindings = {.tensors = r->tensor, .weights = &r->weight, .arena = r->arena, .workspace = r->workspace};
    ok(api->compile(r->device, r->plan, &bindings, &r->exec, &err), &err);
    r->params.lanes = 1;
    r->params.span[PI0_ROWS_PREFIX][0].count = r->params.total[PI0_ROWS_PREFIX] = p->m;
    return r;
}

static void run_product(void *context)
{
    product *r = context;
    pi0_error err = {0};
    ok(api->run(r->device, r->exec, &r->params, &err), &err);
}

static void close_product(void *context)
{
    product *r = context;
    api->release(r->device, &r->exec);
    if (r->weight.buffer.handle)
        api->free(r->device, &r->weight.buffer);
    api->free(r->device, &r->arena);
    api->free(r->device, &r->workspace);
    pi0_plan_free(&r->plan);
    api->close(&r->device);
    free(r);
}

_Static_assert(KIND_F32 == (int)PI0_GEMM_F32 && KIND_BF16 == (int)PI0_GEMM_BF16 && KIND_INT8 == (int)PI0_GEMM_I8, "kinds are forms");
_Static_assert(PI0_PRECISION_BF16 == PI0_PRECISION_F32 + 1 && PI0_PRECISION_INT8 == PI0_PRECISION_F32 + 2, "kinds are precisions");

const contestant contestant_pi0 = {"pi0", version, open_product, run_product, close_product};
