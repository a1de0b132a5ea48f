/* Dead ops go. In `context` only K and V of each layer are read later, so everything of the last prefix layer behind them is dead:
 * queries, attention, output projection, MLP. The reference computes it all and throws it away.
 */
#include "plan/plan.h"

pi0_status pi0_pass_last_layer_kv(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_last_layer_kv(pi0_plan *plan, pi0_error *err)
{
    bool *needed = pi0_alloc_array((size_t)plan->n_tensors + 1, sizeof *needed);
    if (!needed)
        return pi0_fail_memory(err, (size_t)plan->n_tensors, "the pass last-layer-kv");
    for (int i = plan->n_ops - 1; i >= 0; i--) {
        pi0_op *op = &plan->ops[i];
        bool read = false;
        for (int r = 0; r < pi0_op_results(op); r++)
            read |= plan->tensors[pi0_op_result(op, r)].output || needed[pi0_op_result(op, r)];
        if (!read) {
            op->kind = PI0_OP_COUNT;
            continue;
        }
        for (int j = 0; j < PI0_OP_INPUTS; j++)
            if (op->in[j] >= 0)
                needed[op->in[j]] = true;
    }
    pi0_free(needed);
    pi0_plan_compact(plan);
    return PI0_OK;
}
