/* linears, rope_table -> linears: what is turned is turned while the product's tile is still in registers. */
#include "plan/plan.h"

pi0_status pi0_pass_fuse_rope(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_fuse_rope(pi0_plan *plan, pi0_error *err)
{
    (void)err;
    for (int i = 0; i < plan->n_ops; i++) {
        pi0_op *op = &plan->ops[i];
        if (op->kind != PI0_OP_LINEARS)
            continue;
        pi0_weight *weight = &plan->weights[plan->tensors[op->in[1]].weight];
        for (int r = 0; r < pi0_op_results(op); r++) {
            const int reader = pi0_plan_only_reader(plan, pi0_op_result(op, r));
            if (reader < 0 || plan->ops[reader].kind != PI0_OP_ROPE_TABLE)
                continue;
            pi0_op *rope = &plan->ops[reader];
            *(r == 0 ? &op->out : &op->more[r - 1]) = rope->out;
            op->in[3] = rope->in[1];
            weight->pairing[r] = PI0_PAIRING_ROPE;
            weight->head = rope->head_dim;
            rope->kind = PI0_OP_COUNT;
        }
    }
    pi0_plan_compact(plan);
    return PI0_OK;
}
