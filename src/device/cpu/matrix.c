/* Matrix work: products and attention, cut into tasks for the pool. How the work is cut changes no bit of the result (kernels.h). */
#include "device/cpu/cpu.h"

static void *thread_workspace(const pi0_exec *exec, int thread)
{
    return exec->workspace + (size_t)thread * exec->workspace_bytes;
}

/* ------------------------------------------------------------------ linear */

typedef struct gemm_job {
    pi0_gemm gemm;
    const pi0_exec *exec;
    int m_chunk, n_chunk, m_chunks;
} gemm_job;

static void run_gemm(void *context, int task, int thread)
{
    const gemm_job *job = context;
    const int m0 = task % job->m_chunks * job->m_chunk, n0 = task / job->m_chunks * job->n_chunk;
    job->exec->device->kernels.gemm(&job->gemm, m0, pi0_min_int(m0 + job->m_chunk, job->gemm.m), n0,
                                    pi0_min_int(n0 + job->n_chunk, job->gemm.n), thread_workspace(job->exec, thread));
}

void pi0_cpu_linear(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    const pi0_kernels *k = &exec->device->kernels;
    const pi0_weight *w = &exec->plan->weights[pi0_cpu_tensor(exec, op->in[1])->weight];
    gemm_job job = {.exec = exec,
                    .gemm = {.x = pi0_cpu_f32(exec, op->in[0]),
                             .ldx = pi0_cpu_ld(exec, op->in[0]),
                             .w = exec->data[op->in[1]],
                             .w_dtype = exec->dtype[op->in[1]],
                             .ldw = (size_t)w->cols,
                             .bias = op->in[2] >= 0 ? pi0_cpu_f32(exec, op->in[2]) : NULL,
                             .y = pi0_cpu_f32(exec, op->out),
                             .ldy = pi0_cpu_ld(exec, op->out),
                             .m = pi0_cpu_live(exec, op->in[0], params),
                             .n = (int)w->rows,
                             .k = (int)w->cols}};
    if (job.gemm.m == 0)
        return;
    /* Columns are shared out first: every piece packs its part of the weights once. Four pieces a thread even out the end. */
    const int threads = exec->device->threads, pieces = threads == 1 ? 1 : threads * 4;
    const int n_step = k->gemm_n_step, n_steps = (job.gemm.n + n_step - 1) / n_step;
    const int steps_a_chunk = pi0_max_int((n_steps + pieces - 1) / pieces, pi0_min_int(n_steps, 128 / n_step > 0 ? 128 / n_step : 1));
    job.n_chunk = steps_a_chunk * n_step;
    const int n_chunks = (job.gemm.n + job.n_chunk - 1) / job.n_chunk;
    const int wanted = n_chunks >= threads ? 1 : (threads + n_chunks - 1) / n_chunks;
    job.m_chunk = pi0_max_int((job.gemm.m + wanted - 1) / wanted, pi0_min_int(job.gemm.m, 48));
    job.m_chunks = (job.gemm.m + job.m_chunk - 1) / job.m_chunk;
    const int tasks = job.m_chunks * n_chunks;
    if (tasks == 1 || threads == 1) {
        for (int task = 0; task < tasks; task++)
            run_gemm(&job, task, 0);
        return;
    }
    pi0_pool_run(exec->device->pool, run_gemm, &job, tasks);
}

/* ------------------------------------------------------------------ attention, whole or in its three core pieces */

enum { ROW_BLOCK = 64 }; /* query rows a task */

typedef struct attention_job {
    const pi0_exec *exec;
    const pi0_op *op;
    const pi0_params *params;
    int groups;
} attention_job;

static pi0_span group_span(const attention_job *job, pi0_rows rows, int group)
{
    if (job->op->group == PI0_GROUP_CAMERA) {
        const int tokens = job->exec->plan->image_tokens;
        return (pi0_span){group * tokens, tokens};
    }
    return job->params->span[rows][group];
}

static const float *rows_at(const pi0_exec *exec, int tensor, int row)
{
    return pi0_cpu_f32(exec, tensor) + (size_t)row * pi0_cpu_ld(exec, tensor);
}

/* Fills in the problem of one group. Tensors that a piece does not have stay NULL. */
static pi0_attention describe(const attention_job *job, int group, pi0_rows key_rows)
{
    const pi0_exec *exec = job->exec;
    const pi0_op *op = job->op;
    const pi0_rows query_rows = pi0_cpu_tensor(exec, op->out)->rows;
    const bool whole = op->kind == PI0_OP_ATTENTION, scores = op->kind == PI0_OP_ATTN_SCORES;
    const int q = whole || scores ? op->in[0] : -1, k = whole || scores ? op->in[1] : -1, v = whole ? op->in[2] : scores ? -1 : op->in[1];
    const int k2 = whole ? op->in[3] : scores ? op->in[2] : -1, v2 = whole ? op->in[4] : scores ? -1 : op->in[2];
    const pi0_span queries = group_span(job, query_rows, group), keys = group_span(job, key_rows, group);
    const bool second = k2 >= 0 || v2 >= 0;
    pi0_attention a = {.rows = queries.count,
                       .keys = keys.count,
                       .keys2 = second ? queries.count : 0,
                       .heads = op->heads,
                       .kv_heads = op->kv_heads,
                       .d = op->head_dim,
                       .ldkv = (size_t)op->kv_heads * (size_t)op->head_dim,
                       .ldkv2 = (size_t)op->kv_heads * (size_t)op->head_dim,
                       .alone = op->alone ? job->params->span[PI0_ROWS_STATE][group].count : 0,
                       .scale = op->scale};
    if (q >= 0) {
        a.q = rows_at(exec, q, queries.first);
        a.ldq = pi0_cpu_ld(exec, q);
    }
    if (!scores) {
        a.out = pi0_cpu_f32(exec, op->out) + (size_t)queries.first * pi0_cpu_ld(exec, op->out);
        a.ldo = pi0_cpu_ld(exec, op->out);
    }
    a.k = k >= 0 ? rows_at(exec, k, keys.first) : NULL;
    a.v = v >= 0 ? rows_at(exec, v, keys.first) : NULL;
    a.k2 = k2 >= 0 ? rows_at(exec, k2, queries.first) : NULL;
    a.v2 = v2 >= 0 ? rows_at(exec, v2, queries.first) : NULL;
    a.mask = op->masked && job->params->prefix_mask ? job->params->prefix_mask + keys.first : NULL;
    return a;
}

/* The rows that keys stand for; softmax has none among its inputs and takes them from the op that made its scores. */
static pi0_rows key_rows_of(const pi0_exec *exec, const pi0_op *op, bool *second)
{
    while (op->kind == PI0_OP_SOFTMAX)
        op = &exec->plan->ops[pi0_plan_producer(exec->plan, op->in[0])];
    *second = op->kind == PI0_OP_ATTENTION ? op->in[3] >= 0 : op->in[2] >= 0;
    return pi0_cpu_tensor(exec, op->in[1])->rows;
}

static void run_piece(const attention_job *job, int group, int head, int row0, int row1, int thread)
{
    const pi0_exec *exec = job->exec;
    const pi0_op *op = job->op;
    const pi0_kernels *kernels = &exec->device->kernels;
    bool second;
    const pi0_rows key_rows = key_rows_of(exec, op, &second);
    const pi0_attention a = describe(job, group, key_rows);
    if (op->kind == PI0_OP_ATTENTION) {
        kernels->attention(&a, head, row0, row1, thread_workspace(exec, thread));
        return;
    }
    const int table = op->kind == PI0_OP_ATTN_MIX ? op->in[0] : op->out; /* scores [R, heads*keys] */
    const size_t ld = pi0_cpu_ld(exec, table);
    const int first = group_span(job, pi0_cpu_tensor(exec, op->out)->rows, group).first;
    float *scores = pi0_cpu_f32(exec, table) + (size_t)first * ld + (size_t)head * (size_t)op->keys;
    if (op->kind == PI0_OP_ATTN_SCORES) {
        kernels->attention_scores(&a, head, row0, row1, scores, ld);
    } else if (op->kind == PI0_OP_ATTN_MIX) {
        kernels->attention_mix(&a, head, row0, row1, scores, ld);
    } else {
        const float *from = pi0_cpu_f32(exec, op->in[0]) + (size_t)first * ld + (size_t)head * (size_t)op->keys;
        const int live = a.keys + (second ? a.rows : 0);
        for (int row = row0; row < row1; row++) {
            if (from != scores)
                __builtin_memcpy(scores + (size_t)row * ld, from + (size_t)row * ld, (size_t)live * sizeof *scores);
        }
        kernels->softmax(scores + (size_t)row0 * ld, ld, row1 - row0, live);
    }
}

static int row_blocks(const attention_job *job, int group)
{
    return (group_span(job, pi0_cpu_tensor(job->exec, job->op->out)->rows, group).count + ROW_BLOCK - 1) / ROW_BLOCK;
}

static void run_attention(void *context, int task, int thread)
{
    const attention_job *job = context;
    int group = 0;
    while (task >= row_blocks(job, group) * job->op->heads)
        task -= row_blocks(job, group++) * job->op->heads;
    const int head = task % job->op->heads, row0 = task / job->op->heads * ROW_BLOCK;
    const int rows = group_span(job, pi0_cpu_tensor(job->exec, job->op->out)->rows, group).count;
    run_piece(job, group, head, row0, pi0_min_int(row0 + ROW_BLOCK, rows), thread);
}

void pi0_cpu_attention(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    attention_job job = {exec, op, params, op->group == PI0_GROUP_CAMERA ? params->total[PI0_ROWS_CAMERA] : params->lanes};
    int tasks = 0;
    for (int group = 0; group < job.groups; group++)
        tasks += row_blocks(&job, group) * op->heads;
    if (tasks)
        pi0_pool_run(exec->device->pool, run_attention, &job, tasks);
}
