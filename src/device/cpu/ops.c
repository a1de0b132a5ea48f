/* Row-wise ops: each hands ranges of rows to a kernel. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"

typedef struct row_op {
    pi0_exec *exec;
    const pi0_op *op;
    const pi0_params *params;
} row_op;

static float *row_of(const row_op *r, int tensor, int row)
{
    return pi0_cpu_f32(r->exec, tensor) + (size_t)row * pi0_cpu_ld(r->exec, tensor);
}

static void for_rows_of_result(pi0_exec *exec, const pi0_op *op, const pi0_params *params, pi0_cpu_rows_fn fn)
{
    row_op context = {exec, op, params};
    pi0_cpu_for_rows(exec, pi0_cpu_live(exec, op->out, params), pi0_cpu_ld(exec, op->out), fn, &context);
}

/* ------------------------------------------------------------------ pictures and tokens */

static void patchify_rows(void *context, int row0, int row1, int thread)
{
    (void)thread;
    const row_op *r = context;
    const int tokens = r->exec->plan->image_tokens;
    while (row0 < row1) { /* one picture at a time */
        int camera = row0 / tokens, first = row0 % tokens, count = pi0_min_int(row1 - row0, tokens - first);
        r->exec->device->kernels.patchify(row_of(r, r->op->in[0], camera), r->op->side, r->op->patch,
                                          row_of(r, r->op->out, camera * tokens), pi0_cpu_ld(r->exec, r->op->out), first, first + count);
        row0 += count;
    }
}

void pi0_cpu_patchify(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    for_rows_of_result(exec, op, params, patchify_rows);
}

void pi0_cpu_embed(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    const size_t ld = pi0_cpu_ld(exec, op->out);
    exec->device->kernels.embed(exec->data[op->in[0]], exec->data[op->in[1]], pi0_cpu_weight(exec, op->in[1])->host.dtype, ld, op->scale,
                                pi0_cpu_f32(exec, op->out), ld, pi0_cpu_live(exec, op->out, params), (int)ld);
}

/* ------------------------------------------------------------------ elementwise and norms */

static void add_table_rows(const row_op *r, int row0, int row1)
{
    const pi0_tensor *table = pi0_cpu_tensor(r->exec, r->op->in[1]);
    const int period = (int)r->exec->plan->weights[table->weight].rows;
    const size_t ld = pi0_cpu_ld(r->exec, r->op->out);
    while (row0 < row1) {
        int first = row0 % period, count = pi0_min_int(row1 - row0, period - first);
        r->exec->device->kernels.add(row_of(r, r->op->in[0], row0), ld, row_of(r, r->op->in[1], first), ld, row_of(r, r->op->out, row0), ld,
                                     count, (int)ld);
        row0 += count;
    }
}

/* Adds to each row the table's row of its flow time. */
static void add_time_rows(const row_op *r, int row0, int row1)
{
    const size_t ld = pi0_cpu_ld(r->exec, r->op->out);
    for (int row = row0; row < row1; row++)
        r->exec->device->kernels.add(row_of(r, r->op->in[0], row), ld, row_of(r, r->op->in[1], r->params->time_row[row]), ld,
                                     row_of(r, r->op->out, row), ld, 1, (int)ld);
}

static void binary_rows(void *context, int row0, int row1, int thread)
{
    (void)thread;
    const row_op *r = context;
    const pi0_kernels *k = &r->exec->device->kernels;
    if (pi0_cpu_tensor(r->exec, r->op->in[1])->kind == PI0_TENSOR_WEIGHT) {
        add_table_rows(r, row0, row1);
        return;
    }
    if (pi0_cpu_tensor(r->exec, r->op->in[1])->rows == PI0_ROWS_TIME && pi0_cpu_tensor(r->exec, r->op->in[0])->rows != PI0_ROWS_TIME) {
        add_time_rows(r, row0, row1);
        return;
    }
    const size_t ld = pi0_cpu_ld(r->exec, r->op->out);
    const float *a = row_of(r, r->op->in[0], row0), *b = row_of(r, r->op->in[1], row0);
    float *y = row_of(r, r->op->out, row0);
    if (r->op->kind == PI0_OP_ADD)
        k->add(a, ld, b, ld, y, ld, row1 - row0, (int)ld);
    else if (r->op->kind == PI0_OP_MUL)
        k->mul(a, ld, b, ld, y, ld, row1 - row0, (int)ld);
    else
        k->euler(a, ld, b, ld, r->params->dt, y, ld, row1 - row0, (int)ld);
}

void pi0_cpu_binary(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    for_rows_of_result(exec, op, params, binary_rows);
}

static void unary_rows(void *context, int row0, int row1, int thread)
{
    (void)thread;
    const row_op *r = context;
    const pi0_kernels *k = &r->exec->device->kernels;
    const size_t ld = pi0_cpu_ld(r->exec, r->op->out);
    (r->op->kind == PI0_OP_GELU ? k->gelu : k->silu)(row_of(r, r->op->in[0], row0), ld, row_of(r, r->op->out, row0), ld, row1 - row0,
                                                     (int)ld);
}

void pi0_cpu_unary(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    for_rows_of_result(exec, op, params, unary_rows);
}

static void norm_rows(void *context, int row0, int row1, int thread)
{
    (void)thread;
    const row_op *r = context;
    const pi0_kernels *k = &r->exec->device->kernels;
    const size_t ld = pi0_cpu_ld(r->exec, r->op->out);
    const float *x = row_of(r, r->op->in[0], row0), *w = row_of(r, r->op->in[1], 0);
    float *y = row_of(r, r->op->out, row0);
    if (r->op->kind == PI0_OP_LAYER_NORM)
        k->layer_norm(x, ld, w, row_of(r, r->op->in[2], 0), r->op->eps, y, ld, row1 - row0, (int)ld);
    else
        k->rms_norm(x, ld, w, r->op->eps, y, ld, row1 - row0, (int)ld);
}

void pi0_cpu_norm(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    for_rows_of_result(exec, op, params, norm_rows);
}

/* ------------------------------------------------------------------ ops whose rows are conditioned on a flow time */

static void concat_cols_rows(const row_op *r, int row0, int row1)
{
    const int b = r->op->in[1];
    const bool by_time = pi0_cpu_tensor(r->exec, b)->rows == PI0_ROWS_TIME;
    const size_t left = pi0_cpu_ld(r->exec, r->op->in[0]), right = pi0_cpu_ld(r->exec, b);
    for (int row = row0; row < row1; row++) {
        float *y = row_of(r, r->op->out, row);
        memcpy(y, row_of(r, r->op->in[0], row), left * sizeof *y);
        memcpy(y + left, row_of(r, b, by_time ? r->params->time_row[row] : row), right * sizeof *y);
    }
}

static void by_time_rows(void *context, int row0, int row1, int thread)
{
    (void)thread;
    const row_op *r = context;
    const pi0_kernels *k = &r->exec->device->kernels;
    if (r->op->kind == PI0_OP_CONCAT_COLS) {
        concat_cols_rows(r, row0, row1);
        return;
    }
    const size_t ld = pi0_cpu_ld(r->exec, r->op->out);
    while (row0 < row1) { /* rows of one flow time at a time */
        const int time = r->params->time_row[row0];
        int end = row0 + 1;
        while (end < row1 && r->params->time_row[end] == time)
            end++;
        const float *x = row_of(r, r->op->in[0], row0);
        float *y = row_of(r, r->op->out, row0);
        if (r->op->kind == PI0_OP_ADA_NORM)
            k->ada_norm(x, ld, row_of(r, r->op->in[1], time), r->op->eps, y, ld, end - row0, (int)ld);
        else
            k->gated_add(x, ld, row_of(r, r->op->in[1], row0), ld, row_of(r, r->op->in[2], time) + 2 * ld, y, ld, end - row0, (int)ld);
        row0 = end;
    }
}

void pi0_cpu_by_time(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    for_rows_of_result(exec, op, params, by_time_rows);
}

/* Row by row, so that the norm finds the sum in cache. */
static void add_norm_rows(void *context, int row0, int row1, int thread)
{
    (void)thread;
    const row_op *r = context;
    const pi0_op *op = r->op;
    const pi0_kernels *k = &r->exec->device->kernels;
    const size_t ld = pi0_cpu_ld(r->exec, op->out);
    const int cols = (int)ld;
    for (int row = row0; row < row1; row++) {
        const float *x = row_of(r, op->in[0], row), *branch = row_of(r, op->in[1], row);
        float *sum = row_of(r, op->out, row), *norm = row_of(r, op->more[0], row);
        if (op->norm == PI0_OP_ADA_NORM) {
            const int time = r->params->time_row[row];
            k->gated_add(x, ld, branch, ld, row_of(r, op->in[2], time) + 2 * ld, sum, ld, 1, cols);
            k->ada_norm(sum, ld, row_of(r, op->in[3], time), op->eps, norm, ld, 1, cols);
            continue;
        }
        k->add(x, ld, branch, ld, sum, ld, 1, cols);
        if (op->norm == PI0_OP_LAYER_NORM)
            k->layer_norm(sum, ld, row_of(r, op->in[2], 0), row_of(r, op->in[3], 0), op->eps, norm, ld, 1, cols);
        else
            k->rms_norm(sum, ld, row_of(r, op->in[2], 0), op->eps, norm, ld, 1, cols);
    }
}

void pi0_cpu_add_norm(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    for_rows_of_result(exec, op, params, add_norm_rows);
}

/* Sinusoids of the flow time (openpi create_sinusoidal_pos_embedding): angles and sin/cos in f64, one rounding at the end.
 * The fractions are torch.linspace's, which counts from the nearer end. */
void pi0_cpu_time_embed(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    const int half = pi0_cpu_tensor(exec, op->out)->cols / 2;
    const double step = half > 1 ? 1.0 / (half - 1) : 0.0;
    for (int row = 0; row < params->total[PI0_ROWS_TIME]; row++) {
        float *y = pi0_cpu_f32(exec, op->out) + (size_t)row * 2 * (size_t)half;
        for (int i = 0; i < half; i++) {
            double fraction = i < half / 2 ? step * i : 1.0 - step * (half - 1 - i);
            double period = op->min_period * pow(op->max_period / op->min_period, fraction);
            double angle = 1.0 / period * 2.0 * 3.14159265358979323846 * (double)params->time[row];
            y[i] = (float)sin(angle);
            y[half + i] = (float)cos(angle);
        }
    }
}

/* ------------------------------------------------------------------ positions */

static void rope_rows(void *context, int row0, int row1, int thread)
{
    const row_op *r = context;
    const pi0_op *op = r->op;
    const pi0_kernels *k = &r->exec->device->kernels;
    const size_t ld = pi0_cpu_ld(r->exec, op->out);
    const int32_t *position = pi0_cpu_positions(r->exec, op->out, r->params);
    const int half = op->head_dim / 2;
    if (op->kind == PI0_OP_ROPE_TABLE) {
        const pi0_weight *table = &r->exec->plan->weights[pi0_cpu_tensor(r->exec, op->in[1])->weight];
        const float *cosines = pi0_cpu_f32(r->exec, op->in[1]), *sines = cosines + (size_t)(table->rows / 2) * (size_t)half;
        k->rope(row_of(r, op->in[0], row0), ld, cosines, sines, position + row0, op->heads, op->head_dim, row_of(r, op->out, row0), ld,
                row1 - row0);
        return;
    }
    float *angles = (float *)(void *)(r->exec->workspace + (size_t)thread * r->exec->workspace_bytes);
    const int32_t zero = 0;
    for (int row = row0; row < row1; row++) {
        pi0_rope_angles(position[row], op->head_dim, angles, angles + half);
        k->rope(row_of(r, op->in[0], row), ld, angles, angles + half, &zero, op->heads, op->head_dim, row_of(r, op->out, row), ld, 1);
    }
}

void pi0_cpu_rope(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    for_rows_of_result(exec, op, params, rope_rows);
}

/* ------------------------------------------------------------------ moving rows */

static void copy_rows(const row_op *r, int to_row, int from, int from_row, int count)
{
    if (count > 0)
        memcpy(row_of(r, r->op->out, to_row), row_of(r, from, from_row), (size_t)count * pi0_cpu_ld(r->exec, from) * sizeof(float));
}

void pi0_cpu_concat_rows(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    const row_op r = {exec, op, params};
    const pi0_rows a = pi0_cpu_tensor(exec, op->in[0])->rows, b = pi0_cpu_tensor(exec, op->in[1])->rows;
    for (int lane = 0; lane < params->lanes; lane++) {
        int to = params->span[pi0_cpu_tensor(exec, op->out)->rows][lane].first;
        copy_rows(&r, to, op->in[0], params->span[a][lane].first, params->span[a][lane].count);
        copy_rows(&r, to + params->span[a][lane].count, op->in[1], params->span[b][lane].first, params->span[b][lane].count);
    }
}

void pi0_cpu_take_rows(pi0_exec *exec, const pi0_op *op, const pi0_params *params)
{
    const row_op r = {exec, op, params};
    const pi0_rows from = pi0_cpu_tensor(exec, op->in[0])->rows, to = pi0_cpu_tensor(exec, op->out)->rows;
    for (int lane = 0; lane < params->lanes; lane++) {
        const pi0_span source = params->span[from][lane], result = params->span[to][lane];
        copy_rows(&r, result.first, op->in[0], source.first + source.count - result.count, result.count);
    }
}
