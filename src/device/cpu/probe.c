/* Measuring int8: a product's int8 form on the inputs that the product had, and how far its results are from the product's own. The
 * weights are packed anew each time, so that it takes the memory of one of them. */
#include "device/cpu/cpu.h"

pi0_weight pi0_cpu_int8_of(const pi0_weight *weight)
{
    pi0_weight int8 = *weight;
    int8.precision = PI0_PRECISION_INT8;
    int8.stays = false;
    return int8;
}

static size_t packed_bytes(const pi0_device *device, const pi0_weight *weight)
{
    const pi0_weight int8 = pi0_cpu_int8_of(weight);
    const pi0_gemm g = pi0_cpu_gemm_of(&int8, PI0_F32);
    return pi0_round_up(pi0_cpu_gemm_kernel(device, &int8)->packed_bytes(&g), PI0_ALIGN);
}

/* The largest weight in int8; behind it the results of the largest product lie. */
static size_t most_packed(const pi0_device *device, const pi0_plan *plan)
{
    size_t most = 0;
    for (int i = 0; i < plan->n_weights; i++)
        if (plan->weights[i].stays && plan->weights[i].rows)
            most = pi0_max_size(most, packed_bytes(device, &plan->weights[i]));
    return most;
}

size_t pi0_cpu_probe_workspace(const pi0_device *device, const pi0_plan *plan)
{
    size_t results = 0;
    if (!plan->measures_int8)
        return 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const pi0_op *op = &plan->ops[i];
        size_t bytes = 0;
        for (int r = 0; r < pi0_op_results(op); r++)
            bytes += pi0_tensor_bytes(plan, pi0_op_result(op, r));
        if (op->kind == PI0_OP_LINEAR || op->kind == PI0_OP_LINEARS)
            results = pi0_max_size(results, bytes);
    }
    return most_packed(device, plan) + results;
}

/* Cut into the same pieces whatever the number of threads, and added up in their order: the same bits on any. */
enum { PIECES = 32 };

typedef struct compare_job {
    const float *want, *got;
    size_t ld_want, ld_got;
    int rows, cols;
    pi0_product_error sums[PIECES];
} compare_job;

static void run_compare(void *context, int piece, int thread)
{
    (void)thread;
    compare_job *job = context;
    pi0_product_error sum = {0};
    for (int row = pi0_tile_at(job->rows, PIECES, piece); row < pi0_tile_at(job->rows, PIECES, piece + 1); row++) {
        const float *want = job->want + (size_t)row * job->ld_want, *got = job->got + (size_t)row * job->ld_got;
        for (int i = 0; i < job->cols; i++) {
            const double w = want[i], g = got[i];
            sum.difference2 += (g - w) * (g - w);
            sum.want2 += w * w;
            sum.got2 += g * g;
            sum.dot += g * w;
        }
    }
    job->sums[piece] = sum;
}

static void compare(pi0_pool *pool, compare_job *job, pi0_product_error *into)
{
    pi0_pool_run(pool, run_compare, job, PIECES);
    for (int i = 0; i < PIECES; i++) {
        into->difference2 += job->sums[i].difference2;
        into->want2 += job->sums[i].want2;
        into->got2 += job->sums[i].got2;
        into->dot += job->sums[i].dot;
    }
}

void pi0_cpu_probe(pi0_exec *exec, const pi0_op *op, const pi0_gemm *gemm)
{
    const int index = pi0_cpu_tensor(exec, op->in[1])->weight;
    const pi0_weight int8 = pi0_cpu_int8_of(&exec->plan->weights[index]);
    const pi0_gemm_kernel *kernel = pi0_cpu_gemm_kernel(exec->device, &int8);
    pi0_product_error *error = exec->errors[index];
    float *results = (float *)(void *)(exec->probe + most_packed(exec->device, exec->plan));
    pi0_gemm g = *gemm;
    pi0_cpu_pack(exec->device, &int8, &pi0_cpu_weight(exec, op->in[1])->host, exec->probe);
    g.packed = exec->probe;
    float *at = results;
    for (int r = 0; r < pi0_op_results(op); r++) {
        g.part[r].y = at;
        at += pi0_tensor_bytes(exec->plan, pi0_op_result(op, r)) / sizeof *at;
    }
    pi0_cpu_product(exec, kernel, &g);
    for (int r = 0; r < pi0_op_results(op); r++) {
        compare_job job = {.want = gemm->part[r].y,
                           .got = g.part[r].y,
                           .ld_want = gemm->part[r].ldy,
                           .ld_got = g.part[r].ldy,
                           .rows = g.m,
                           .cols = pi0_cpu_tensor(exec, pi0_op_result(op, r))->cols};
        compare(exec->device->pool, &job, error);
    }
    error->flop += 2.0 * g.m * (double)int8.rows * (double)int8.cols;
}
