/* What passes share: looking around in a plan and removing ops. */
#include <string.h>

#include "plan/plan.h"

int pi0_plan_producer(const pi0_plan *plan, int tensor)
{
    for (int i = 0; i < plan->n_ops; i++)
        for (int r = 0; plan->ops[i].kind != PI0_OP_COUNT && r < pi0_op_results(&plan->ops[i]); r++)
            if (pi0_op_result(&plan->ops[i], r) == tensor)
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

int pi0_plan_only_reader(const pi0_plan *plan, int tensor)
{
    int reader = -1;
    if (pi0_plan_uses(plan, tensor) != 1 || plan->tensors[tensor].output)
        return -1;
    for (int i = 0; i < plan->n_ops; i++)
        for (int j = 0; plan->ops[i].kind != PI0_OP_COUNT && j < PI0_OP_INPUTS; j++)
            if (plan->ops[i].in[j] == tensor)
                reader = i;
    return reader;
}

/* Moves the sources of `from` below those of `into`. A vector becomes a column, so that it can have several. */
static void merge_weight(pi0_weight *into, pi0_weight *from)
{
    if (into->use == PI0_USE_VECTOR && into->n_sources == 1) {
        into->source_rows[0] = into->rows = into->cols;
        into->cols = 1;
    }
    const int64_t rows = from->use == PI0_USE_VECTOR ? from->cols : from->rows;
    into->source[into->n_sources] = from->source[0];
    into->source_rows[into->n_sources++] = rows;
    into->rows += rows;
    from->n_sources = 0;
    from->rows = 0;
}

bool pi0_plan_merge_linears(pi0_plan *plan, const int *ops, int n)
{
    if (plan->failed != PI0_OK)
        return false;
    pi0_op *first = &plan->ops[ops[0]];
    first->kind = PI0_OP_LINEARS;
    for (int i = 1; i < n; i++) {
        pi0_op *other = &plan->ops[ops[i]];
        for (int j = 1; j <= 2; j++) /* weight, bias */
            if (first->in[j] >= 0)
                merge_weight(&plan->weights[plan->tensors[first->in[j]].weight], &plan->weights[plan->tensors[other->in[j]].weight]);
        first->more[first->n_more++] = other->out;
        other->kind = PI0_OP_COUNT;
    }
    return true;
}

void pi0_plan_compact(pi0_plan *plan)
{
    int kept = 0;
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind != PI0_OP_COUNT)
            plan->ops[kept++] = plan->ops[i];
    plan->n_ops = kept;
}

void pi0_plan_drop_unread(pi0_plan *plan)
{
    for (int w = 0; w < plan->n_weights; w++) {
        int uses = 0;
        for (int t = 0; t < plan->n_tensors && !uses; t++)
            uses = plan->tensors[t].kind == PI0_TENSOR_WEIGHT && plan->tensors[t].weight == w ? pi0_plan_uses(plan, t) : 0;
        if (!uses)
            plan->weights[w].rows = 0;
    }
}

static bool reads_any(const pi0_weight *weight, const char *const *names, size_t n_names)
{
    for (int s = 0; s < weight->n_sources; s++)
        for (size_t i = 0; i < n_names; i++)
            if (!strcmp(weight->source[s], names[i]))
                return true;
    return false;
}

/* The one place where precision is decided (docs/design.md): vectors are always f32, tables stay as stored. */
void pi0_plan_quantise(pi0_plan *plan, const pi0_precision_policy *policy)
{
    plan->measures_int8 = policy->measures_int8;
    for (int i = 0; i < plan->n_weights; i++) {
        pi0_weight *weight = &plan->weights[i];
        const bool matrix = weight->use == PI0_USE_MATRIX, excepted = matrix && reads_any(weight, policy->in_bf16, policy->n_in_bf16);
        weight->precision = excepted                       ? PI0_PRECISION_BF16
                            : matrix                       ? policy->matrices
                            : weight->use == PI0_USE_TABLE ? PI0_PRECISION_STORED
                                                           : PI0_PRECISION_F32;
        weight->stays = matrix && policy->measures_int8;
    }
    for (int i = 0; i < plan->n_ops; i++) {
        pi0_op *op = &plan->ops[i];
        if (op->kind == PI0_OP_ATTENTION)
            op->precision = policy->matrices;
        if (op->kind == PI0_OP_LINEAR || op->kind == PI0_OP_LINEARS) {
            pi0_weight *weight = &plan->weights[plan->tensors[op->in[1]].weight];
            weight->most_rows = pi0_max_int(weight->most_rows, plan->max_rows[plan->tensors[op->out].rows]);
        }
    }
}

static bool same_weight(const pi0_weight *a, const pi0_weight *b)
{
    bool same = a->form == b->form && a->use == b->use && a->precision == b->precision && a->n_sources == b->n_sources &&
                a->n_sources > 0 && a->rows == b->rows && a->cols == b->cols && a->head == b->head;
    for (int i = 0; same && i < a->n_sources; i++)
        same = a->pairing[i] == b->pairing[i] && strcmp(a->source[i], b->source[i]) == 0;
    return same;
}

void pi0_plan_share(pi0_plan *earlier, pi0_plan *plan)
{
    for (int i = 0; i < plan->n_weights; i++)
        for (int j = 0; j < earlier->n_weights && !plan->weights[i].shared; j++) {
            pi0_weight *mine = &plan->weights[i], *theirs = &earlier->weights[j];
            if (!same_weight(mine, theirs))
                continue;
            mine->shared = j + 1;
            mine->most_rows = theirs->most_rows = pi0_max_int(mine->most_rows, theirs->most_rows);
        }
}
