/* What an op costs: operations, and bytes that must move even when caches forget nothing. A multiply-add is two operations; a root, a
 * quotient, an exponential or a hyperbolic tangent is one, which flatters the machine; what is done to a product as it is finished (bias,
 * activation, rotation) is not counted.
 */
#include "plan/plan.h"

pi0_key_rows pi0_plan_key_rows(const pi0_plan *plan, const pi0_op *op)
{
    while (op->kind == PI0_OP_SOFTMAX) /* it has none among its inputs: those of the op that made its scores */
        op = &plan->ops[pi0_plan_producer(plan, op->in[0])];
    const int second = op->kind == PI0_OP_ATTENTION ? op->in[3] : op->in[2];
    pi0_key_rows rows = {.first = plan->tensors[op->in[1]].rows, .two_runs = second >= 0};
    if (rows.two_runs)
        rows.second = plan->tensors[second].rows;
    return rows;
}

static bool is_attention(const pi0_op *op)
{
    return op->kind == PI0_OP_ATTENTION || op->kind == PI0_OP_ATTN_SCORES || op->kind == PI0_OP_SOFTMAX || op->kind == PI0_OP_ATTN_MIX;
}

/* Operations on one element of the result of a row-wise op. */
static double element_flop(pi0_op_kind kind)
{
    switch (kind) {
    case PI0_OP_ADD:
    case PI0_OP_MUL:
    case PI0_OP_EMBED:
        return 1;
    case PI0_OP_EULER:
    case PI0_OP_GATED_ADD:
        return 2;
    case PI0_OP_ROPE:
    case PI0_OP_ROPE_TABLE:
        return 3;
    case PI0_OP_RMS_NORM: /* square, sum, scale, weight */
    case PI0_OP_SOFTMAX:  /* largest, difference, exponential, sum, scale: the scale is the next op's */
    case PI0_OP_SILU:     /* negate, exponential, add, divide */
        return 4;
    case PI0_OP_ADA_NORM: /* and 1 + scale, shift */
        return 6;
    case PI0_OP_LAYER_NORM: /* sum, difference, square, sum, scale, weight, bias */
        return 7;
    case PI0_OP_GELU: /* four for the cubic, scale, tanh, add, two products */
        return 9;
    default: /* moves, or is too small to matter */
        return 0;
    }
}

/* Pairs of a query and a key; *keys: the most that one query has. */
static double attention_pairs(const pi0_plan *plan, const pi0_op *op, const pi0_params *params, int64_t *keys)
{
    const pi0_rows queries = plan->tensors[op->out].rows;
    if (op->group == PI0_GROUP_CAMERA) {
        *keys = plan->image_tokens;
        return (double)params->total[queries] * plan->image_tokens;
    }
    const pi0_key_rows rows = pi0_plan_key_rows(plan, op);
    double pairs = 0;
    *keys = 0;
    for (int lane = 0; lane < params->lanes; lane++) {
        const int count = params->span[rows.first][lane].count + (rows.two_runs ? params->span[rows.second][lane].count : 0);
        pairs += (double)params->span[queries][lane].count * count;
        *keys = count > *keys ? count : *keys;
    }
    return pairs;
}

/* Scores are rows of all heads' keys, of which the live ones count. */
static void add_attention(const pi0_plan *plan, const pi0_op *op, const pi0_params *params, pi0_cost *cost)
{
    const double pairs = attention_pairs(plan, op, params, &cost->inner) * op->heads, product = 2 * pairs * op->head_dim;
    cost->matrix = op->kind != PI0_OP_SOFTMAX;
    cost->flop = op->kind == PI0_OP_ATTENTION ? 2 * product : cost->matrix ? product : pairs * element_flop(op->kind);
    for (int i = 0; i < PI0_OP_INPUTS; i++)
        if (op->in[i] >= 0 && !(i == 0 && (op->kind == PI0_OP_SOFTMAX || op->kind == PI0_OP_ATTN_MIX)))
            cost->bytes += (double)params->total[plan->tensors[op->in[i]].rows] * plan->tensors[op->in[i]].cols * sizeof(float);
    if (op->kind != PI0_OP_ATTENTION)
        cost->bytes += pairs * sizeof(float) * (op->kind == PI0_OP_SOFTMAX ? 2 : 1);
    if (op->kind == PI0_OP_ATTENTION || op->kind == PI0_OP_ATTN_MIX)
        cost->bytes += (double)cost->rows * (double)cost->cols * sizeof(float);
}

pi0_cost pi0_op_cost(const pi0_plan *plan, const pi0_op *op, const pi0_params *params)
{
    pi0_cost cost = {.rows = params->total[plan->tensors[op->out].rows]};
    for (int r = 0; r < pi0_op_results(op); r++)
        cost.cols += plan->tensors[pi0_op_result(op, r)].cols;
    if (is_attention(op)) {
        add_attention(plan, op, params, &cost);
        return cost;
    }
    for (int i = 0; i < PI0_OP_INPUTS; i++)
        if (op->in[i] >= 0 && plan->tensors[op->in[i]].kind != PI0_TENSOR_WEIGHT) {
            const pi0_tensor *t = &plan->tensors[op->in[i]];
            const bool looked_up =
                t->rows == PI0_ROWS_TIME && plan->tensors[op->out].rows != PI0_ROWS_TIME; /* all rows stand at one time */
            cost.bytes += (looked_up ? 1.0 : params->total[t->rows]) * t->cols * (double)pi0_dtype_size(t->dtype);
        }
    cost.bytes += (double)cost.rows * (double)cost.cols * sizeof(float);
    if (op->kind == PI0_OP_LINEAR || op->kind == PI0_OP_LINEARS) {
        const pi0_weight *w = &plan->weights[plan->tensors[op->in[1]].weight];
        cost.matrix = true;
        cost.inner = w->cols;
        cost.flop = 2.0 * cost.rows * (double)w->rows * (double)w->cols;
    } else if (op->kind == PI0_OP_ADD_NORM) {
        cost.flop = (double)cost.rows * (double)cost.cols / 2 *
                    (element_flop((pi0_op_kind)op->norm) + element_flop(op->norm == PI0_OP_ADA_NORM ? PI0_OP_GATED_ADD : PI0_OP_ADD));
    } else {
        cost.flop = (double)cost.rows * (double)cost.cols * element_flop(op->kind);
    }
    return cost;
}
