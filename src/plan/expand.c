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

/* A weight of one source of a merged one, as it was before. Returns its tensor. */
static int single_weight(pi0_plan *plan, int tensor, int source)
{
    const pi0_weight merged = plan->weights[plan->tensors[tensor].weight];
    const bool vector = merged.use == PI0_USE_VECTOR;
    return pi0_plan_weight(plan, merged.form, merged.use, merged.source[source], vector ? 1 : merged.source_rows[source],
                           merged.n_sources > 1 && vector ? merged.source_rows[source] : merged.cols);
}

/* linear for each source, each followed by what its result went through. */
static void expand_linears(pi0_plan *plan, int at)
{
    const pi0_op fused = plan->ops[at];
    const pi0_weight merged = plan->weights[plan->tensors[fused.in[1]].weight];
    const pi0_rows rows = plan->tensors[fused.out].rows;
    int product[PI0_MAX_SOURCES];
    plan->ops[at].kind = PI0_OP_COUNT; /* leaves when the list is compacted */
    for (int s = 0; s < merged.n_sources && plan->failed == PI0_OK; s++) {
        const bool turned = merged.pairing[s] == PI0_PAIRING_ROPE, last = !turned && !fused.gelu && !fused.geglu;
        pi0_op op = fused;
        op.kind = PI0_OP_LINEAR;
        op.n_more = 0;
        op.gelu = op.geglu = false;
        op.in[1] = single_weight(plan, fused.in[1], s);
        op.in[2] = fused.in[2] < 0 ? -1 : single_weight(plan, fused.in[2], s);
        op.in[3] = -1;
        op.out = product[s] = last ? pi0_op_result(&fused, s) : pi0_plan_new_value(plan, rows, (int)merged.source_rows[s]);
        pi0_plan_insert_op(plan, ++at, op);
        op.in[0] = product[s], op.in[1] = op.in[2] = -1;
        if (turned) {
            op.kind = PI0_OP_ROPE_TABLE;
            op.in[1] = fused.in[3];
            op.head_dim = merged.head;
            op.heads = (int)merged.source_rows[s] / merged.head;
            op.out = pi0_op_result(&fused, s);
            pi0_plan_insert_op(plan, ++at, op);
        } else if (fused.gelu || (fused.geglu && s == 0)) {
            op.kind = PI0_OP_GELU;
            op.out = product[s] = fused.gelu ? pi0_op_result(&fused, s) : pi0_plan_new_value(plan, rows, (int)merged.source_rows[s]);
            pi0_plan_insert_op(plan, ++at, op);
        }
        if (fused.geglu && s == 1) {
            op.kind = PI0_OP_MUL;
            op.in[0] = product[0], op.in[1] = product[1];
            op.out = fused.out;
            pi0_plan_insert_op(plan, ++at, op);
        }
    }
    plan->weights[plan->tensors[fused.in[1]].weight].rows = 0;
    if (fused.in[2] >= 0)
        plan->weights[plan->tensors[fused.in[2]].weight].rows = 0;
}

static void expand_add_norm(pi0_plan *plan, int at)
{
    const pi0_op fused = plan->ops[at];
    const bool by_time = fused.norm == PI0_OP_ADA_NORM;
    pi0_op op = fused;
    op.n_more = 0;
    op.kind = (pi0_op_kind)fused.norm;
    op.in[0] = fused.out;
    op.in[1] = by_time ? fused.in[3] : fused.in[2];
    op.in[2] = by_time ? -1 : fused.in[3];
    op.in[3] = -1;
    op.out = fused.more[0];
    plan->ops[at] = op;
    op.kind = by_time ? PI0_OP_GATED_ADD : PI0_OP_ADD;
    op.in[0] = fused.in[0], op.in[1] = fused.in[1];
    op.in[2] = by_time ? fused.in[2] : -1;
    op.out = fused.out;
    pi0_plan_insert_op(plan, at, op);
}

pi0_status pi0_plan_expand(pi0_plan *plan, bool (*takes)(const pi0_op *op), int *expanded, pi0_error *err)
{
    int count = 0;
    for (int i = plan->n_ops - 1; i >= 0 && plan->failed == PI0_OK; i--) {
        const pi0_op *op = &plan->ops[i];
        if (op->kind == PI0_OP_COUNT || !pi0_op_infos[op->kind].fused || takes(op))
            continue;
        count++;
        if (op->kind == PI0_OP_ATTENTION)
            expand_attention(plan, i);
        else if (op->kind == PI0_OP_LINEARS)
            expand_linears(plan, i);
        else if (op->kind == PI0_OP_ADD_NORM)
            expand_add_norm(plan, i);
        else if (op->kind == PI0_OP_ROPE_TABLE)
            expand_rope_table(plan, i);
        else
            return pi0_fail(err, PI0_ERR_INTERNAL, "the fused op %s has no expansion", pi0_op_infos[op->kind].name);
        i = plan->n_ops; /* an expansion may contain fused ops */
    }
    pi0_plan_compact(plan);
    if (expanded)
        *expanded = count;
    return plan->failed == PI0_OK ? PI0_OK : pi0_fail_memory(err, 0, "a plan");
}
