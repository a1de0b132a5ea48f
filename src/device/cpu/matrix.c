/* Matrix work: products and attention, cut into tasks for the pool. How the work is cut changes no bit of the result (kernels.h). */
#include "device/cpu/cpu.h"

static void *thread_workspace(const pi0_exec *exec, int thread)
{
    return exec->workspace + (size_t)thread * exec->workspace_bytes;
}

/* ------------------------------------------------------------------ linear */

/* Prepared inputs are kept to this size by doing a long k in spans. */
enum { SHARED_BYTES = 24 << 20 };

static int k_span(const pi0_gemm_kernel *kernel, int m, int k)
{
    if (kernel->x_bytes(m, k) <= SHARED_BYTES)
        return k;
    int steps = k / kernel->k_step;
    while (steps > 1 && kernel->x_bytes(m, steps * kernel->k_step) > SHARED_BYTES)
        steps--;
    return pi0_max_int(steps, 1) * kernel->k_step;
}

/* Prepared inputs of a product of m rows. Fewer live rows may allow a longer span, but never one of more bytes than these. */
static size_t prepared_bytes(const pi0_device *device, const pi0_weight *w, int m)
{
    const pi0_gemm_kernel *kernel = pi0_cpu_gemm_kernel(device, w);
    const int k = (int)w->cols;
    const pi0_gemm g = pi0_cpu_gemm_of(w, PI0_F32);
    const size_t bytes = kernel->x_bytes(m, k);
    if (bytes <= SHARED_BYTES || pi0_has_pairs(&g))
        return bytes;
    return pi0_max_size(SHARED_BYTES, kernel->x_bytes(m, pi0_min_int(kernel->k_step, k)));
}

size_t pi0_cpu_shared_workspace(const pi0_device *device, const pi0_plan *plan)
{
    size_t most = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].kind != PI0_OP_LINEAR && plan->ops[i].kind != PI0_OP_LINEARS)
            continue;
        const pi0_weight *w = &plan->weights[plan->tensors[plan->ops[i].in[1]].weight], int8 = pi0_cpu_int8_of(w);
        const int m = plan->max_rows[plan->tensors[plan->ops[i].out].rows];
        most = pi0_max_size(most, prepared_bytes(device, w, m));
        if (w->stays)
            most = pi0_max_size(most, prepared_bytes(device, &int8, m));
    }
    return pi0_round_up(most, PI0_ALIGN);
}

typedef struct gemm_job {
    const pi0_gemm_kernel *kernel;
    pi0_gemm gemm;
    const pi0_exec *exec;
    void *prepared; /* x over k0 .. k1 */
    int k0, k1;
    int tiles, t_chunk, t_chunks; /* of x; a task's share; how many shares */
    int panels, p_chunk;          /* of w */
} gemm_job;

static void run_prepare(void *context, int task, int thread)
{
    (void)thread;
    const gemm_job *job = context;
    const int t0 = task * job->t_chunk;
    job->kernel->prepare(&job->gemm, job->k0, job->k1, t0, pi0_min_int(t0 + job->t_chunk, job->tiles), job->prepared);
}

static void run_multiply(void *context, int task, int thread)
{
    const gemm_job *job = context;
    const int t0 = task % job->t_chunks * job->t_chunk, p0 = task / job->t_chunks * job->p_chunk;
    job->kernel->multiply(&job->gemm, job->k0, job->k1, t0, pi0_min_int(t0 + job->t_chunk, job->tiles), p0,
                          pi0_min_int(p0 + job->p_chunk, job->panels), job->prepared, thread_workspace(job->exec, thread));
}

static int divide_up(int a, int b)
{
    return (a + b - 1) / b;
}

/* Many small tasks even out the end of an op; a task of several panels reads the next one ahead. */
enum { TASKS_A_THREAD = 16, PANELS_A_TASK = 4 };

static void run_span(gemm_job *job)
{
    pi0_pool *pool = job->exec->device->pool;
    const int threads = job->exec->device->threads;
    pi0_tracer *tracer = job->exec->device->tracer;
    job->t_chunk = divide_up(job->tiles, pi0_min_int(job->tiles, threads * 4));
    if (tracer)
        pi0_tracer_prepares(tracer, true);
    pi0_pool_run(pool, run_prepare, job, divide_up(job->tiles, job->t_chunk));
    if (tracer)
        pi0_tracer_prepares(tracer, false);

    /* Panels are shared out first: what is not packed is packed by the task that multiplies by it. Rows are cut when panels do not last. */
    job->p_chunk = pi0_max_int(1, pi0_min_int(PANELS_A_TASK, job->panels / (threads * TASKS_A_THREAD)));
    const int p_chunks = divide_up(job->panels, job->p_chunk);
    job->t_chunks = p_chunks >= threads * 2 ? 1 : pi0_min_int(job->tiles, divide_up(threads * 2, p_chunks));
    job->t_chunk = divide_up(job->tiles, job->t_chunks);
    job->t_chunks = divide_up(job->tiles, job->t_chunk);
    pi0_pool_run(pool, run_multiply, job, job->t_chunks * p_chunks);
}

static void fill_parts(const pi0_exec *exec, const pi0_op *op, const pi0_params *params, pi0_gemm *g)
{
    const pi0_device_weight *weight = pi0_cpu_weight(exec, op->in[1]);
    const float *bias = op->in[2] >= 0 ? pi0_cpu_f32(exec, op->in[2]) : NULL;
    for (int i = 0; i < weight->host.n_parts; i++) {
        const bool has_result = i < pi0_op_results(op);
        pi0_gemm_part *part = &g->part[i];
        part->w = weight->host.part[i].data;
        part->bias = bias;
        part->y = has_result ? pi0_cpu_f32(exec, pi0_op_result(op, i)) : NULL;
        part->ldy = has_result ? pi0_cpu_ld(exec, pi0_op_result(op, i)) : 0;
        bias = bias ? bias + part->n : NULL;
    }
    if (op->in[3] >= 0) { /* the rope table: cosines of all positions, then sines */
        const pi0_weight *table = &exec->plan->weights[pi0_cpu_tensor(exec, op->in[3])->weight];
        g->cos = pi0_cpu_f32(exec, op->in[3]);
        g->sin = g->cos + (size_t)(table->rows / 2 * table->cols);
        g->position = pi0_cpu_positions(exec, op->out, params);
    }
}

void pi0_cpu_product(pi0_exec *exec, const pi0_gemm_kernel *kernel, const pi0_gemm *gemm)
{
    gemm_job job = {.kernel = kernel,
                    .gemm = *gemm,
                    .exec = exec,
                    .prepared = thread_workspace(exec, exec->device->threads),
                    .tiles = pi0_tiles(gemm->m, kernel->tile_rows),
                    .panels = pi0_panels(gemm, kernel->tile_cols)};
    const int span = pi0_has_pairs(gemm) ? gemm->k : k_span(kernel, gemm->m, gemm->k);
    do {
        job.k1 = pi0_min_int(job.k0 + span, gemm->k);
        run_span(&job);
        job.k0 = job.k1;
    } while (job.k0 < gemm->k);
}

void pi0_cpu_linear(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    const int index = pi0_cpu_tensor(exec, op->in[1])->weight;
    const pi0_weight *w = &exec->plan->weights[index];
    const pi0_device_weight *weight = pi0_cpu_weight(exec, op->in[1]);
    pi0_gemm gemm = pi0_cpu_gemm_of(w, weight->host.dtype);
    gemm.x = pi0_cpu_f32(exec, op->in[0]);
    gemm.ldx = pi0_cpu_ld(exec, op->in[0]);
    gemm.m = pi0_cpu_live(exec, op->in[0], params);
    gemm.packed = weight->packed ? weight->buffer.host : NULL;
    gemm.gelu = op->gelu;
    if (gemm.m == 0)
        return;
    fill_parts(exec, op, params, &gemm);
    pi0_cpu_product(exec, pi0_cpu_gemm_kernel(exec->device, w), &gemm);
    if (exec->errors && exec->errors[index])
        pi0_cpu_probe(exec, op, &gemm);
}

/* ------------------------------------------------------------------ attention, whole or in its three core pieces */

enum { ROW_BLOCK = 256 }; /* most query rows a task, of all heads that it does */

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
static pi0_attention describe(const attention_job *job, int group, const pi0_key_rows *rows)
{
    const pi0_exec *exec = job->exec;
    const pi0_op *op = job->op;
    const pi0_rows query_rows = pi0_cpu_tensor(exec, op->out)->rows;
    const bool whole = op->kind == PI0_OP_ATTENTION, scores = op->kind == PI0_OP_ATTN_SCORES;
    const int q = whole || scores ? op->in[0] : -1, k = whole || scores ? op->in[1] : -1, v = whole ? op->in[2] : scores ? -1 : op->in[1];
    const int k2 = whole ? op->in[3] : scores ? op->in[2] : -1, v2 = whole ? op->in[4] : scores ? -1 : op->in[2];
    const pi0_span queries = group_span(job, query_rows, group), keys = group_span(job, rows->first, group);
    const pi0_span own = rows->two_runs ? group_span(job, rows->second, group) : (pi0_span){0, 0};
    pi0_attention a = {.rows = queries.count,
                       .keys = keys.count,
                       .keys2 = own.count,
                       .heads = op->heads,
                       .kv_heads = op->kv_heads,
                       .d = op->head_dim,
                       .ldkv = (size_t)op->kv_heads * (size_t)op->head_dim,
                       .ldkv2 = (size_t)op->kv_heads * (size_t)op->head_dim,
                       .alone = op->alone ? job->params->span[PI0_ROWS_STATE][group].count : 0,
                       .window = op->window,
                       .always = op->window ? job->params->span[PI0_ROWS_STATE][group].count : 0,
                       .diagonal = own.count - queries.count, /* actions may see the state's key before their own */
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
    a.k2 = k2 >= 0 ? rows_at(exec, k2, own.first) : NULL;
    a.v2 = v2 >= 0 ? rows_at(exec, v2, own.first) : NULL;
    a.mask = op->masked && job->params->prefix_mask ? job->params->prefix_mask + keys.first : NULL;
    return a;
}

static void run_piece(const attention_job *job, int group, int head, int row0, int row1, int thread)
{
    const pi0_exec *exec = job->exec;
    const pi0_op *op = job->op;
    const pi0_kernels *kernels = &exec->device->kernels;
    const pi0_key_rows rows = pi0_plan_key_rows(exec->plan, op);
    const pi0_attention a = describe(job, group, &rows);
    if (op->kind == PI0_OP_ATTENTION) {
        kernels->attention[pi0_cpu_attention_in_bf16(exec->device, op) ? PI0_GEMM_BF16 : PI0_GEMM_F32](&a, head, row0, row1,
                                                                                                       thread_workspace(exec, thread));
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
        const int live = a.keys + a.keys2;
        for (int row = row0; row < row1; row++) {
            if (from != scores)
                __builtin_memcpy(scores + (size_t)row * ld, from + (size_t)row * ld, (size_t)live * sizeof *scores);
        }
        kernels->softmax(scores + (size_t)row0 * ld, ld, row1 - row0, live);
    }
}

/* How the rows of a group are shared out: the fused op does all heads that share a head of keys at once, a core piece one. */
typedef struct row_split {
    int heads, rows, blocks; /* heads: tasks of each block */
} row_split;

static row_split split_rows(const attention_job *job, int group)
{
    const pi0_op *op = job->op;
    const int rows = group_span(job, pi0_cpu_tensor(job->exec, op->out)->rows, group).count;
    const int together = op->kind == PI0_OP_ATTENTION ? op->heads / op->kv_heads : 1, heads = op->heads / together;
    const int blocks = divide_up(rows * together, ROW_BLOCK);
    /* every thread gets as many blocks as any other */
    const int even =
        heads >= job->exec->device->threads * 2 ? blocks : divide_up(blocks, job->exec->device->threads) * job->exec->device->threads;
    return (row_split){heads, rows, pi0_min_int(even, rows)};
}

static void run_attention(void *context, int task, int thread)
{
    const attention_job *job = context;
    int group = 0;
    row_split split;
    while (split = split_rows(job, group), task >= split.blocks * split.heads) {
        task -= split.blocks * split.heads;
        group++;
    }
    const int block = task / split.heads;
    run_piece(job, group, task % split.heads, pi0_tile_at(split.rows, split.blocks, block),
              pi0_tile_at(split.rows, split.blocks, block + 1), thread);
}

void pi0_cpu_attention(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    attention_job job = {exec, op, params, op->group == PI0_GROUP_CAMERA ? params->total[PI0_ROWS_CAMERA] : params->lanes};
    int tasks = 0;
    for (int group = 0; group < job.groups; group++) {
        const row_split split = split_rows(&job, group);
        tasks += split.blocks * split.heads;
    }
    if (tasks)
        pi0_pool_run(exec->device->pool, run_attention, &job, tasks);
}
