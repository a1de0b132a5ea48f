/* What a span of an op says of it. */
#include "device/cpu/cpu.h"

/* Bytes of a weight that the op reads: all of it, but of tables the rows that are looked up. */
static double weight_bytes(const pi0_exec *exec, int tensor, int rows)
{
    const pi0_weight *w = &exec->plan->weights[pi0_cpu_tensor(exec, tensor)->weight];
    const pi0_device_weight *weight = pi0_cpu_weight(exec, tensor);
    const double row = (double)w->cols * (double)pi0_dtype_size(weight->host.dtype);
    if (w->use == PI0_USE_TABLE)
        return rows * row;
    if (w->form == PI0_FORM_ROPE_TABLE) /* a cosine's and a sine's */
        return 2.0 * rows * row;
    return weight->packed ? (double)weight->buffer.bytes : (double)w->rows * row;
}

static const char *arithmetic_of(const pi0_exec *exec, const pi0_op *op)
{
    const pi0_kernels *kernels = &exec->device->kernels;
    if (op->kind == PI0_OP_LINEAR || op->kind == PI0_OP_LINEARS) {
        const pi0_weight *w = &exec->plan->weights[pi0_cpu_tensor(exec, op->in[1])->weight];
        return pi0_gemm_form_names[pi0_cpu_gemm_kernel(exec->device, w) - kernels->gemm];
    }
    const bool bf16 = op->kind == PI0_OP_ATTENTION && pi0_cpu_attention_in_bf16(exec->device, op);
    return pi0_gemm_form_names[bf16 ? PI0_GEMM_BF16 : PI0_GEMM_F32];
}

void pi0_cpu_describe(const pi0_exec *exec, int index, const pi0_params *params, pi0_trace_span *span)
{
    const pi0_op *op = &exec->plan->ops[index];
    const pi0_cost cost = pi0_op_cost(exec->plan, op, params);
    span->plan = exec->plan->name;
    span->op = index;
    span->part = op->part;
    span->layer = op->layer;
    span->matrix = cost.matrix;
    span->arithmetic = cost.matrix ? arithmetic_of(exec, op) : "";
    span->rows = cost.rows;
    span->cols = cost.cols;
    span->inner = cost.inner;
    span->flop = cost.flop;
    span->bytes = cost.bytes;
    for (int i = 0; i < PI0_OP_INPUTS && cost.rows; i++)
        if (op->in[i] >= 0 && pi0_cpu_tensor(exec, op->in[i])->kind == PI0_TENSOR_WEIGHT)
            span->bytes += weight_bytes(exec, op->in[i], cost.rows);
}
