/* add, norm -> add_norm; gated_add, ada_norm -> add_norm: a residual sum is normed while its row is still in cache. */
#include "plan/plan.h"

pi0_status pi0_pass_add_norm(pi0_plan *plan, pi0_error *err);

/* The sum is written where the norm stands: nothing may read it before. */
static bool read_between(const pi0_plan *plan, int tensor, int first, int last)
{
    for (int i = first + 1; i < last; i++)
        for (int j = 0; plan->ops[i].kind != PI0_OP_COUNT && j < PI0_OP_INPUTS; j++)
            if (plan->ops[i].in[j] == tensor)
                return true;
    return false;
}

/* Index of the op that made the sum which `norm` reads, when both can be one; else -1. */
static int sum_of(const pi0_plan *plan, int at)
{
    const pi0_op *norm = &plan->ops[at];
    const bool plain = norm->kind == PI0_OP_RMS_NORM || norm->kind == PI0_OP_LAYER_NORM;
    if (!plain && norm->kind != PI0_OP_ADA_NORM)
        return -1;
    const int sum = pi0_plan_producer(plan, norm->in[0]);
    if (sum < 0 || plan->ops[sum].kind != (plain ? PI0_OP_ADD : PI0_OP_GATED_ADD) || read_between(plan, norm->in[0], sum, at))
        return -1;
    return plan->tensors[plan->ops[sum].in[1]].kind == PI0_TENSOR_WEIGHT ? -1 : sum; /* a table is added once, not a residual */
}

pi0_status pi0_pass_add_norm(pi0_plan *plan, pi0_error *err)
{
    (void)err;
    for (int i = 0; i < plan->n_ops; i++) {
        const int at = sum_of(plan, i);
        if (at < 0)
            continue;
        pi0_op *norm = &plan->ops[i], *sum = &plan->ops[at];
        pi0_op fused = *norm;
        fused.kind = PI0_OP_ADD_NORM;
        fused.norm = (int)norm->kind;
        fused.in[0] = sum->in[0];
        fused.in[1] = sum->in[1];
        fused.in[2] = norm->kind == PI0_OP_ADA_NORM ? sum->in[2] : norm->in[1];
        fused.in[3] = norm->kind == PI0_OP_ADA_NORM ? norm->in[1] : norm->in[2];
        fused.out = sum->out;
        fused.more[fused.n_more++] = norm->out;
        *norm = fused;
        sum->kind = PI0_OP_COUNT;
    }
    pi0_plan_compact(plan);
    return PI0_OK;
}
