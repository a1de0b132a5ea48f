/* linears, gelu, mul -> linears with one result; linear, gelu -> linears: the activation while the product's tile is still in registers. */
#include "plan/plan.h"

pi0_status pi0_pass_geglu(pi0_plan *plan, pi0_error *err);

static void fuse_gelu(pi0_plan *plan, pi0_op *op)
{
    const int gelu = pi0_plan_only_reader(plan, op->out);
    if (gelu < 0 || plan->ops[gelu].kind != PI0_OP_GELU)
        return;
    op->kind = PI0_OP_LINEARS;
    op->gelu = true;
    op->out = plan->ops[gelu].out;
    plan->ops[gelu].kind = PI0_OP_COUNT;
}

static void fuse_geglu(pi0_plan *plan, pi0_op *op)
{
    const int gelu = pi0_plan_only_reader(plan, op->out), mul = pi0_plan_only_reader(plan, op->more[0]);
    if (gelu < 0 || plan->ops[gelu].kind != PI0_OP_GELU || mul < 0 || plan->ops[mul].kind != PI0_OP_MUL ||
        pi0_plan_only_reader(plan, plan->ops[gelu].out) != mul)
        return;
    plan->weights[plan->tensors[op->in[1]].weight].pairing[0] = PI0_PAIRING_GEGLU;
    op->geglu = true;
    op->n_more = 0;
    op->out = plan->ops[mul].out;
    plan->ops[gelu].kind = plan->ops[mul].kind = PI0_OP_COUNT;
}

pi0_status pi0_pass_geglu(pi0_plan *plan, pi0_error *err)
{
    (void)err;
    for (int i = 0; i < plan->n_ops; i++) {
        pi0_op *op = &plan->ops[i];
        if (op->kind == PI0_OP_LINEAR)
            fuse_gelu(plan, op);
        else if (op->kind == PI0_OP_LINEARS && op->n_more == 1)
            fuse_geglu(plan, op);
    }
    pi0_plan_compact(plan);
    return PI0_OK;
}
