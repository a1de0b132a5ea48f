/* rope -> rope_table: the angles depend on the position alone, so one table made at open serves every layer and step. */
#include "plan/plan.h"

pi0_status pi0_pass_rope_table(pi0_plan *plan, pi0_error *err);

/* Positions count valid rows: prefix rows first, then a lane's suffix. */
static int most_positions(const pi0_plan *plan)
{
    return plan->max_rows[PI0_ROWS_PREFIX] + plan->max_rows[PI0_ROWS_SUFFIX];
}

pi0_status pi0_pass_rope_table(pi0_plan *plan, pi0_error *err)
{
    int table = -1, head_dim = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].kind != PI0_OP_ROPE)
            continue;
        if (table < 0 || plan->ops[i].head_dim != head_dim) {
            head_dim = plan->ops[i].head_dim;
            table = pi0_plan_weight(plan, PI0_FORM_ROPE_TABLE, PI0_USE_VECTOR, NULL, 2ll * most_positions(plan), head_dim / 2);
            if (table < 0)
                return pi0_fail_memory(err, 0, "the rope table");
        }
        plan->ops[i].kind = PI0_OP_ROPE_TABLE;
        plan->ops[i].in[1] = table;
    }
    return PI0_OK;
}
