/* The CPU device: a plan becomes an array of bound kernel calls over a worker pool. Private to this folder. */
#ifndef PI0_DEVICE_CPU_H
#define PI0_DEVICE_CPU_H

#include "device/device.h"
#include "kernels/kernels.h"

struct pi0_device {
    pi0_kernels kernels;
    pi0_pool *pool;
    pi0_tracer *tracer; /* NULL: nothing is recorded */
    int threads;
    bool hot;
};

struct pi0_exec;
typedef void (*pi0_cpu_op)(struct pi0_exec *exec, const pi0_op *op, const pi0_params *params);

#define PI0_CPU_PARTS 8

struct pi0_exec {
    pi0_device *device;
    const pi0_plan *plan;
    void **data; /* [n_tensors] where each tensor lies */
    const pi0_device_weight *weights;
    pi0_cpu_op *calls;      /* [n_ops] bound at compile (replay); NULL: looked up as they run */
    int *last_use;          /* [n_tensors] for one allocation a tensor (arena off) */
    uint8_t *workspace;     /* threads * workspace_bytes, then what all of them share */
    size_t workspace_bytes; /* of one thread */
    pi0_product_error *const *errors;
    uint8_t *probe; /* probe.c's part of the workspace */
    const char *part[PI0_CPU_PARTS];
    uint64_t part_ns[PI0_CPU_PARTS];
    int n_parts;
};

/* bind.c */
pi0_cpu_op pi0_cpu_bind(const pi0_op *op);
size_t pi0_cpu_thread_workspace(const pi0_device *device, const pi0_plan *plan);

/* trace.c */
void pi0_cpu_describe(const pi0_exec *exec, int op, const pi0_params *params, pi0_trace_span *span); /* fills in what the op did */

/* ops.c */
void pi0_cpu_patchify(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_embed(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_binary(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_unary(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_add_norm(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_norm(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_by_time(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_rope(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_concat_rows(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_take_rows(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_time_embed(pi0_exec *exec, const pi0_op *op, const pi0_params *params);

/* weights.c */
const pi0_gemm_kernel *pi0_cpu_gemm_kernel(const pi0_device *device, const pi0_weight *weight);
pi0_gemm pi0_cpu_gemm_of(const pi0_weight *weight, pi0_dtype stored); /* its parts without data */
size_t pi0_cpu_linear_workspace(const pi0_device *device, const pi0_weight *weight);
void pi0_cpu_pack(pi0_device *device, const pi0_weight *as, const pi0_host_weight *host, void *packed);
size_t pi0_cpu_weight_bytes(const pi0_device *device, const pi0_weight *as, pi0_dtype stored);
pi0_status pi0_cpu_import_weight(pi0_device *device, const pi0_weight *as, const pi0_host_weight *host, pi0_device_weight *out,
                                 pi0_error *err);

pi0_status pi0_cpu_layout(const pi0_device *device, const pi0_weight *as, pi0_dtype stored, char *out, pi0_error *err);
pi0_status pi0_cpu_import_packed(pi0_device *device, const pi0_weight *as, pi0_dtype stored, const void *packed, size_t bytes,
                                 pi0_device_weight *out, pi0_error *err);

/* matrix.c */
size_t pi0_cpu_shared_workspace(const pi0_device *device, const pi0_plan *plan);
void pi0_cpu_product(pi0_exec *exec, const pi0_gemm_kernel *kernel, const pi0_gemm *gemm);
void pi0_cpu_linear(pi0_exec *exec, const pi0_op *op, const pi0_params *params);
void pi0_cpu_attention(pi0_exec *exec, const pi0_op *op, const pi0_params *params);

static inline bool pi0_cpu_attention_in_bf16(const pi0_device *device, const pi0_op *op)
{
    return op->precision != PI0_PRECISION_F32 && device->kernels.attention[PI0_GEMM_BF16];
}

/* probe.c: a plan that measures int8 */
pi0_weight pi0_cpu_int8_of(const pi0_weight *weight); /* the same with precision int8; its names are borrowed */
size_t pi0_cpu_probe_workspace(const pi0_device *device, const pi0_plan *plan);
void pi0_cpu_probe(pi0_exec *exec, const pi0_op *op, const pi0_gemm *gemm); /* after the product, while x is alive */

/* Runs fn(context, first row, end row, thread) over `rows` rows, in as many pieces as are worth it. cost: floats touched a row. */
typedef void (*pi0_cpu_rows_fn)(void *context, int row0, int row1, int thread);
void pi0_cpu_for_rows(pi0_exec *exec, int rows, size_t cost, pi0_cpu_rows_fn fn, void *context);

static inline const pi0_tensor *pi0_cpu_tensor(const pi0_exec *exec, int tensor)
{
    return &exec->plan->tensors[tensor];
}
static inline size_t pi0_cpu_ld(const pi0_exec *exec, int tensor)
{
    return (size_t)exec->plan->tensors[tensor].cols;
}
static inline float *pi0_cpu_f32(const pi0_exec *exec, int tensor)
{
    return exec->data[tensor];
}
static inline const pi0_device_weight *pi0_cpu_weight(const pi0_exec *exec, int tensor)
{
    return &exec->weights[exec->plan->tensors[tensor].weight];
}
/* RoPE position of each row of a tensor whose rows have one. */
static inline const int32_t *pi0_cpu_positions(const pi0_exec *exec, int tensor, const pi0_params *params)
{
    const pi0_rows rows = exec->plan->tensors[tensor].rows;
    return rows == PI0_ROWS_PREFIX   ? params->prefix_position
           : rows == PI0_ROWS_SUFFIX ? params->suffix_position
           : rows == PI0_ROWS_STATE  ? params->state_position
                                     : params->action_position;
}
static inline int pi0_cpu_live(const pi0_exec *exec, int tensor, const pi0_params *params)
{
    return params->total[exec->plan->tensors[tensor].rows];
}

#endif
