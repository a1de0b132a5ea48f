/* Which function runs which op, and how rows are shared out among threads. */
#include "device/cpu/cpu.h"

pi0_cpu_op pi0_cpu_bind(const pi0_op *op)
{
    switch (op->kind) {
    case PI0_OP_PATCHIFY:
        return pi0_cpu_patchify;
    case PI0_OP_EMBED:
        return pi0_cpu_embed;
    case PI0_OP_LINEAR:
    case PI0_OP_LINEARS:
        return pi0_cpu_linear;
    case PI0_OP_ADD:
    case PI0_OP_MUL:
    case PI0_OP_EULER:
        return pi0_cpu_binary;
    case PI0_OP_GELU:
    case PI0_OP_SILU:
        return pi0_cpu_unary;
    case PI0_OP_LAYER_NORM:
    case PI0_OP_RMS_NORM:
        return pi0_cpu_norm;
    case PI0_OP_ADD_NORM:
        return pi0_cpu_add_norm;
    case PI0_OP_ADA_NORM:
    case PI0_OP_GATED_ADD:
    case PI0_OP_CONCAT_COLS:
        return pi0_cpu_by_time;
    case PI0_OP_ROPE:
    case PI0_OP_ROPE_TABLE:
        return pi0_cpu_rope;
    case PI0_OP_ATTN_SCORES:
    case PI0_OP_SOFTMAX:
    case PI0_OP_ATTN_MIX:
    case PI0_OP_ATTENTION:
        return pi0_cpu_attention;
    case PI0_OP_CONCAT_ROWS:
        return pi0_cpu_concat_rows;
    case PI0_OP_TAKE_ROWS:
        return pi0_cpu_take_rows;
    case PI0_OP_TIME_EMBED:
        return pi0_cpu_time_embed;
    case PI0_OP_COUNT:
        break;
    }
    return NULL;
}

size_t pi0_cpu_thread_workspace(const pi0_device *device, const pi0_plan *plan)
{
    size_t bytes = device->kernels.attention_workspace;
    for (int i = 0; i < plan->n_ops; i++) {
        const pi0_op *op = &plan->ops[i];
        if (op->kind == PI0_OP_ROPE) /* without a table: cos and sin of one row */
            bytes = pi0_max_size(bytes, (size_t)op->head_dim * sizeof(float));
        if (op->kind != PI0_OP_LINEAR && op->kind != PI0_OP_LINEARS)
            continue;
        const pi0_weight *weight = &plan->weights[plan->tensors[op->in[1]].weight], int8 = pi0_cpu_int8_of(weight);
        bytes = pi0_max_size(bytes, pi0_cpu_linear_workspace(device, weight));
        if (weight->stays)
            bytes = pi0_max_size(bytes, pi0_cpu_linear_workspace(device, &int8));
    }
    return pi0_round_up(bytes + PI0_ALIGN, PI0_ALIGN);
}

typedef struct row_job {
    pi0_cpu_rows_fn fn;
    void *context;
    int rows, chunk;
} row_job;

static void run_rows(void *context, int task, int thread)
{
    const row_job *job = context;
    int row0 = task * job->chunk;
    job->fn(job->context, row0, pi0_min_int(row0 + job->chunk, job->rows), thread);
}

/* Below this many floats a wake-up costs more than the work. */
enum { ROWS_WORTH_SHARING = 1 << 14 };

void pi0_cpu_for_rows(pi0_exec *exec, int rows, size_t cost, pi0_cpu_rows_fn fn, void *context)
{
    if (rows <= 0)
        return;
    const int threads = exec->device->threads;
    if (threads == 1 || rows == 1 || (size_t)rows * cost < ROWS_WORTH_SHARING) {
        fn(context, 0, rows, 0);
        return;
    }
    const int pieces = pi0_min_int(rows, threads * 4);
    row_job job = {fn, context, rows, (rows + pieces - 1) / pieces};
    pi0_pool_run(exec->device->pool, run_rows, &job, (rows + job.chunk - 1) / job.chunk);
}
