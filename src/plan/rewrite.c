/* What passes share: looking around in a plan and removing ops. */
#include "plan/plan.h"

int pi0_plan_producer(const pi0_plan *plan, int tensor)
{
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind != PI0_OP_COUNT && plan->ops[i].out == tensor)
            return i;
    return -1;
}

int pi0_plan_uses(const pi0_plan *plan, int tensor)
{
    int uses = plan->tensors[tensor].output ? 1 : 0;
    for (int i = 0; i < plan->n_ops; i++)
        for (int j = 0; plan->ops[i].kind != PI0_OP_COUNT && j < PI0_OP_INPUTS; j++)
            uses += plan->ops[i].in[j] == tensor;
    return uses;
}

void pi0_plan_compact(pi0_plan *plan)
{
    int kept = 0;
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind != PI0_OP_COUNT)
            plan->ops[kept++] = plan->ops[i];
    plan->n_ops = kept;
}

/* The one place where precision is decided (docs/design.md): vectors are always f32, tables stay as stored. */
void pi0_plan_quantise(pi0_plan *plan, pi0_precision matrices)
{
    for (int i = 0; i < plan->n_weights; i++) {
        pi0_weight *weight = &plan->weights[i];
        weight->precision = weight->use == PI0_USE_MATRIX  ? matrices
                            : weight->use == PI0_USE_TABLE ? PI0_PRECISION_STORED
                                                           : PI0_PRECISION_F32;
    }
    for (int i = 0; i < plan->n_ops; i++) {
        const pi0_op *op = &plan->ops[i];
        if (op->kind == PI0_OP_LINEAR) {
            pi0_weight *weight = &plan->weights[plan->tensors[op->in[1]].weight];
            weight->most_rows = pi0_max_int(weight->most_rows, plan->max_rows[plan->tensors[op->out].rows]);
        }
    }
}
