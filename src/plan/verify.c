/* Checks a plan after passes have rewritten it. The builder checks shapes as ops are added; this finds what a pass got wrong. */
#include "plan/plan.h"

static pi0_status fault(const pi0_plan *plan, int op, pi0_error *err, const char *what)
{
    pi0_status status = pi0_fail(err, PI0_ERR_INTERNAL, "the plan '%s' is not well formed: %s", plan->name, what);
    if (op >= 0)
        pi0_err_where(err, "op %d, %s, %s layer %d", op, pi0_op_infos[plan->ops[op].kind].name,
                      plan->ops[op].part ? plan->ops[op].part : "-", plan->ops[op].layer);
    return status;
}

static bool ready(const pi0_plan *plan, const bool *written, int tensor)
{
    return tensor >= 0 && tensor < plan->n_tensors && (plan->tensors[tensor].kind != PI0_TENSOR_VALUE || written[tensor]);
}

static int64_t expected_cols(const pi0_plan *plan, const pi0_op *op, int result)
{
    const pi0_tensor *t = plan->tensors;
    switch (op->kind) {
    case PI0_OP_LINEAR:
        return plan->weights[t[op->in[1]].weight].rows;
    case PI0_OP_LINEARS:
        return plan->weights[t[op->in[1]].weight].source_rows[result];
    case PI0_OP_EMBED:
        return t[op->in[1]].cols;
    case PI0_OP_PATCHIFY:
        return 3ll * op->patch * op->patch;
    case PI0_OP_ATTN_SCORES:
        return (int64_t)op->heads * op->keys;
    case PI0_OP_ATTN_MIX:
    case PI0_OP_ATTENTION:
        return (int64_t)op->heads * op->head_dim;
    case PI0_OP_CONCAT_COLS:
        return (int64_t)t[op->in[0]].cols + t[op->in[1]].cols;
    case PI0_OP_TIME_EMBED:
        return t[op->out].cols;
    default: /* everything else keeps its first input's columns */
        return t[op->in[0]].cols;
    }
}

static pi0_status check_op(const pi0_plan *plan, int i, bool *written, pi0_error *err)
{
    const pi0_op *op = &plan->ops[i];
    if ((int)op->kind < 0 || op->kind >= PI0_OP_COUNT)
        return fault(plan, -1, err, "an op that a pass removed is still in the list");
    const pi0_op_info *info = &pi0_op_infos[op->kind];
    int inputs = 0;
    for (int j = 0; j < PI0_OP_INPUTS; j++) {
        if (op->in[j] < 0)
            continue;
        inputs++;
        if (!ready(plan, written, op->in[j]))
            return fault(plan, i, err, "an input is read before any op has written it");
    }
    if (inputs < info->min_in || inputs > info->max_in)
        return fault(plan, i, err, "the op has too few or too many inputs");
    if (op->n_more < 0 || op->n_more > (info->fused ? PI0_OP_MORE : 0))
        return fault(plan, i, err, "the op has results that its kind has not");
    for (int r = 0; r < pi0_op_results(op); r++) {
        const int out = pi0_op_result(op, r);
        if (out < 0 || out >= plan->n_tensors || plan->tensors[out].kind != PI0_TENSOR_VALUE || written[out])
            return fault(plan, i, err, "the result is not a value written for the first time");
        if (expected_cols(plan, op, r) != plan->tensors[out].cols)
            return fault(plan, i, err, "the result has the wrong number of columns");
        written[out] = true;
    }
    return PI0_OK;
}

pi0_status pi0_plan_verify(const pi0_plan *plan, pi0_error *err)
{
    bool *written = pi0_alloc_array((size_t)plan->n_tensors + 1, sizeof *written);
    if (!written)
        return pi0_fail_memory(err, (size_t)plan->n_tensors, "checking a plan");
    pi0_status status = PI0_OK;
    for (int i = 0; i < plan->n_ops && status == PI0_OK; i++)
        status = check_op(plan, i, written, err);
    for (int t = 0; t < plan->n_tensors && status == PI0_OK; t++)
        if (plan->tensors[t].output && plan->tensors[t].kind == PI0_TENSOR_VALUE && !written[t]) {
            status = fault(plan, -1, err, "no op writes an output");
            pi0_err_where(err, "output '%s'", plan->tensors[t].name);
        }
    pi0_free(written);
    return status;
}
