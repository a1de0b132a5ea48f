/* Fused ops -> the core ops that they stand for. */
#include "plan/plan.h"

static void expand_attention(pi0_plan *plan, int at)
{
    const pi0_op fused = plan->ops[at];
    const int q = fused.in[0], k = fused.in[1], v = fused.in[2], k2 = fused.in[3], v2 = fused.in[4];
    const pi0_rows rows = plan->tensors[fused.out].rows;
    int scores = pi0_plan_new_value(plan, rows, fused.heads * fused.keys);
    int weights = pi0_plan_new_value(plan, rows, fused.heads * fused.keys);
    pi0_op op = fused;
    op.kind = PI0_OP_ATTN_MIX;
    op.in[0] = weights, op.in[1] = v, op.in[2] = v2, op.in[3] = op.in[4] = -1;
    plan->ops[at] = op;
    op.kind = PI0_OP_SOFTMAX;
    op.in[0] = scores, op.in[1] = op.in[2] = -1;
    op.out = weights;
    pi0_plan_insert_op(plan, at, op);
    op.kind = PI0_OP_ATTN_SCORES;
    op.in[0] = q, op.in[1] = k, op.in[2] = k2;
    op.out = scores;
    pi0_plan_insert_op(plan, at, op);
}

static void expand_rope_table(pi0_plan *plan, int at)
{
    plan->ops[at].kind = PI0_OP_ROPE;
    plan->ops[at].in[1] = -1;
}

pi0_status pi0_plan_expand(pi0_plan *plan, bool (*takes)(const pi0_op *op), int *expanded, pi0_error *err)
{
    int count = 0;
    for (int i = plan->n_ops - 1; i >= 0 && plan->failed == PI0_OK; i--) {
        const pi0_op *op = &plan->ops[i];
        if (!pi0_op_infos[op->kind].fused || takes(op))
            continue;
        count++;
        if (op->kind == PI0_OP_ATTENTION)
            expand_attention(plan, i);
        else if (op->kind == PI0_OP_ROPE_TABLE)
            expand_rope_table(plan, i);
        else
            return pi0_fail(err, PI0_ERR_INTERNAL, "the fused op %s has no expansion", pi0_op_infos[op->kind].name);
    }
    if (expanded)
        *expanded = count;
    return plan->failed == PI0_OK ? PI0_OK : pi0_fail_memory(err, 0, "a plan");
}
