/* linear x2 of one input, the first through gelu -> linears: gate and up of an MLP from one product. */
#include "plan/plan.h"

pi0_status pi0_pass_fuse_gate_up(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_fuse_gate_up(pi0_plan *plan, pi0_error *err)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const pi0_op *gate = &plan->ops[i];
        if (gate->kind != PI0_OP_LINEAR)
            continue;
        const int reader = pi0_plan_only_reader(plan, gate->out);
        if (reader < 0 || plan->ops[reader].kind != PI0_OP_GELU)
            continue;
        for (int j = i + 1; j < plan->n_ops; j++)
            if (plan->ops[j].kind == PI0_OP_LINEAR && plan->ops[j].in[0] == gate->in[0]) {
                if (!pi0_plan_merge_linears(plan, (int[]){i, j}, 2))
                    return pi0_fail_memory(err, 0, "a plan");
                break;
            }
    }
    pi0_plan_compact(plan);
    return PI0_OK;
}
