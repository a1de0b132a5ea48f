/* The builder: adds ops to a plan and infers the shape of what they write. */
#include <string.h>

#include "plan/plan.h"

const char *const pi0_rows_names[PI0_ROWS_COUNT] = {"CAMERA", "IMAGE", "TEXT", "PREFIX", "STATE", "ACTION", "SUFFIX", "TIME"};

enum { CORE = 0, FUSED = 1 };

const pi0_op_info pi0_op_infos[PI0_OP_COUNT] = {
#define OP(id, name, min, max, kind, in_place) [PI0_OP_##id] = {name, min, max, kind == FUSED, in_place},
#include "plan/ops.def"
#undef OP
};

/* ------------------------------------------------------------------ storage */

static bool grow(void **array, int *capacity, int needed, size_t element)
{
    if (needed <= *capacity)
        return true;
    int bigger = *capacity ? *capacity * 2 : 64;
    void *fresh = pi0_alloc_array((size_t)bigger, element);
    if (!fresh)
        return false;
    if (*array)
        memcpy(fresh, *array, (size_t)*capacity * element);
    pi0_free(*array);
    *array = fresh;
    *capacity = bigger;
    return true;
}

static int fail_memory(pi0_plan *plan)
{
    if (plan->failed == PI0_OK)
        plan->failed = pi0_fail_memory(plan->err, 0, "a plan");
    return -1;
}

static int fail_shape(pi0_plan *plan, pi0_op_kind kind, const char *what)
{
    if (plan->failed == PI0_OK) {
        plan->failed = pi0_fail(plan->err, PI0_ERR_INTERNAL, "the plan '%s' cannot take op %d, %s: %s", plan->name, plan->n_ops,
                                pi0_op_infos[kind].name, what);
        pi0_err_where(plan->err, "%s, layer %d", plan->part ? plan->part : "-", plan->layer);
    }
    return -1;
}

pi0_status pi0_plan_create(const char *name, const int max_rows[PI0_ROWS_COUNT], int image_tokens, pi0_plan **out, pi0_error *err)
{
    *out = NULL;
    pi0_plan *plan = pi0_alloc(sizeof *plan);
    if (!plan)
        return pi0_fail_memory(err, sizeof *plan, "a plan");
    plan->name = name;
    plan->err = err;
    plan->layer = -1;
    plan->image_tokens = image_tokens;
    plan->use_arena = plan->use_replay = true;
    memcpy(plan->max_rows, max_rows, sizeof plan->max_rows);
    *out = plan;
    return PI0_OK;
}

void pi0_plan_free(pi0_plan **plan)
{
    if (!plan || !*plan)
        return;
    for (int w = 0; w < (*plan)->n_weights; w++)
        for (int s = 0; s < (*plan)->weights[w].n_sources; s++)
            pi0_free((*plan)->weights[w].source[s]);
    pi0_free((*plan)->tensors);
    pi0_free((*plan)->ops);
    pi0_free((*plan)->weights);
    pi0_free(*plan);
    *plan = NULL;
}

pi0_status pi0_plan_finish(pi0_plan *plan)
{
    plan->err = NULL;
    return plan->failed;
}

void pi0_plan_part(pi0_plan *plan, const char *part, int layer)
{
    plan->part = part;
    plan->layer = layer;
}

static int new_tensor(pi0_plan *plan, pi0_tensor tensor)
{
    if (plan->failed != PI0_OK)
        return -1;
    if (!grow((void **)&plan->tensors, &plan->capacity_tensors, plan->n_tensors + 1, sizeof *plan->tensors))
        return fail_memory(plan);
    plan->tensors[plan->n_tensors] = tensor;
    return plan->n_tensors++;
}

int pi0_plan_new_value(pi0_plan *plan, pi0_rows rows, int cols)
{
    return new_tensor(plan, (pi0_tensor){.kind = PI0_TENSOR_VALUE, .dtype = PI0_F32, .rows = rows, .cols = cols, .weight = -1});
}

int pi0_plan_insert_op(pi0_plan *plan, int at, pi0_op op)
{
    if (plan->failed != PI0_OK)
        return -1;
    if (!grow((void **)&plan->ops, &plan->capacity_ops, plan->n_ops + 1, sizeof *plan->ops))
        return fail_memory(plan);
    memmove(plan->ops + at + 1, plan->ops + at, (size_t)(plan->n_ops - at) * sizeof *plan->ops);
    plan->ops[at] = op;
    plan->n_ops++;
    return at;
}

/* Appends an op that writes a new [rows, cols] tensor. */
static int append(pi0_plan *plan, pi0_op op, pi0_rows rows, int64_t cols)
{
    if (plan->failed != PI0_OK)
        return -1;
    if (cols < 1 || cols > INT32_MAX)
        return fail_shape(plan, op.kind, "its result would have no columns, or too many");
    op.out = pi0_plan_new_value(plan, rows, (int)cols);
    op.part = plan->part;
    op.layer = plan->layer;
    if (op.out < 0 || pi0_plan_insert_op(plan, plan->n_ops, op) < 0)
        return -1;
    return op.out;
}

static pi0_op make_op(pi0_op_kind kind, int a, int b, int c)
{
    pi0_op op = {.kind = kind, .in = {a, b, c, -1, -1}, .out = -1};
    return op;
}

/* ------------------------------------------------------------------ inputs, outputs, weights */

int pi0_plan_input(pi0_plan *plan, const char *name, pi0_dtype dtype, pi0_rows rows, int cols)
{
    return new_tensor(plan, (pi0_tensor){.kind = PI0_TENSOR_INPUT, .dtype = dtype, .rows = rows, .cols = cols, .weight = -1, .name = name});
}

void pi0_plan_output(pi0_plan *plan, int tensor, const char *name)
{
    if (plan->failed != PI0_OK || tensor < 0)
        return;
    plan->tensors[tensor].output = true;
    plan->tensors[tensor].name = name;
}

int pi0_plan_weight(pi0_plan *plan, pi0_weight_form form, pi0_weight_use use, const char *source, int64_t rows, int64_t cols)
{
    if (plan->failed != PI0_OK)
        return -1;
    if (!grow((void **)&plan->weights, &plan->capacity_weights, plan->n_weights + 1, sizeof *plan->weights))
        return fail_memory(plan);
    pi0_weight *weight = &plan->weights[plan->n_weights];
    *weight = (pi0_weight){.form = form, .use = use, .rows = rows, .cols = cols};
    if (source) {
        weight->source[0] = pi0_strdup(source);
        if (!weight->source[0])
            return fail_memory(plan);
        weight->source_rows[0] = rows;
        weight->n_sources = 1;
    }
    plan->n_weights++;
    return new_tensor(plan, (pi0_tensor){.kind = PI0_TENSOR_WEIGHT, .dtype = PI0_F32, .cols = (int)cols, .weight = plan->n_weights - 1});
}

void pi0_plan_weight_source(pi0_plan *plan, int tensor, const char *source)
{
    if (plan->failed != PI0_OK || tensor < 0)
        return;
    pi0_weight *weight = &plan->weights[plan->tensors[tensor].weight];
    weight->source[weight->n_sources] = pi0_strdup(source);
    if (!weight->source[weight->n_sources]) {
        fail_memory(plan);
        return;
    }
    weight->n_sources++;
}

/* ------------------------------------------------------------------ checks */

/* An activation: an input or a value. */
static const pi0_tensor *activation(const pi0_plan *plan, int tensor)
{
    if (tensor < 0 || tensor >= plan->n_tensors || plan->tensors[tensor].kind == PI0_TENSOR_WEIGHT)
        return NULL;
    return &plan->tensors[tensor];
}

static bool is_weight(const pi0_plan *plan, int tensor, int64_t rows, int64_t cols)
{
    if (tensor < 0 || tensor >= plan->n_tensors || plan->tensors[tensor].kind != PI0_TENSOR_WEIGHT)
        return false;
    const pi0_weight *w = &plan->weights[plan->tensors[tensor].weight];
    return (rows < 0 || w->rows == rows) && (cols < 0 || w->cols == cols);
}

static bool same_shape(const pi0_plan *plan, int a, int b)
{
    const pi0_tensor *x = activation(plan, a), *y = activation(plan, b);
    return x && y && x->rows == y->rows && x->cols == y->cols;
}

/* ------------------------------------------------------------------ ops */

int pi0_plan_patchify(pi0_plan *plan, int pictures, int side, int patch)
{
    const pi0_tensor *x = activation(plan, pictures);
    if (!x || x->rows != PI0_ROWS_CAMERA || patch < 1 || side % patch || x->cols != side * side * 3 ||
        (side / patch) * (side / patch) != plan->image_tokens)
        return fail_shape(plan, PI0_OP_PATCHIFY, "needs pictures [CAMERA, side*side*3] that the patch divides");
    pi0_op op = make_op(PI0_OP_PATCHIFY, pictures, -1, -1);
    op.side = side;
    op.patch = patch;
    return append(plan, op, PI0_ROWS_IMAGE, 3ll * patch * patch);
}

int pi0_plan_embed(pi0_plan *plan, int ids, int table, float scale)
{
    const pi0_tensor *x = activation(plan, ids);
    if (!x || x->dtype != PI0_I32 || x->cols != 1 || !is_weight(plan, table, -1, -1))
        return fail_shape(plan, PI0_OP_EMBED, "needs i32 ids [R, 1] and a table");
    pi0_op op = make_op(PI0_OP_EMBED, ids, table, -1);
    op.scale = scale;
    return append(plan, op, x->rows, plan->tensors[table].cols);
}

int pi0_plan_linear(pi0_plan *plan, int x, int w, int bias)
{
    const pi0_tensor *a = activation(plan, x);
    if (!a || !is_weight(plan, w, -1, a->cols))
        return fail_shape(plan, PI0_OP_LINEAR, "the weight's columns are not the input's");
    int64_t n = plan->weights[plan->tensors[w].weight].rows;
    if (bias >= 0 && !is_weight(plan, bias, 1, n))
        return fail_shape(plan, PI0_OP_LINEAR, "the bias is not [1, n]");
    return append(plan, make_op(PI0_OP_LINEAR, x, w, bias), a->rows, n);
}

int pi0_plan_unary(pi0_plan *plan, pi0_op_kind kind, int x)
{
    const pi0_tensor *a = activation(plan, x);
    if (!a)
        return fail_shape(plan, kind, "no input");
    return append(plan, make_op(kind, x, -1, -1), a->rows, a->cols);
}

int pi0_plan_binary(pi0_plan *plan, pi0_op_kind kind, int a, int b)
{
    const pi0_tensor *x = activation(plan, a);
    const pi0_tensor *y = activation(plan, b);
    bool table = x && kind == PI0_OP_ADD && is_weight(plan, b, -1, x->cols);
    bool by_time = x && y && kind == PI0_OP_ADD && y->rows == PI0_ROWS_TIME && y->cols == x->cols;
    if (!table && !by_time && !same_shape(plan, a, b))
        return fail_shape(plan, kind, "the inputs differ in shape");
    return append(plan, make_op(kind, a, b, -1), x->rows, x->cols);
}

int pi0_plan_layer_norm(pi0_plan *plan, int x, int w, int b, float eps)
{
    const pi0_tensor *a = activation(plan, x);
    if (!a || !is_weight(plan, w, 1, a->cols) || !is_weight(plan, b, 1, a->cols))
        return fail_shape(plan, PI0_OP_LAYER_NORM, "weight and bias must be [1, cols]");
    pi0_op op = make_op(PI0_OP_LAYER_NORM, x, w, b);
    op.eps = eps;
    return append(plan, op, a->rows, a->cols);
}

int pi0_plan_rms_norm(pi0_plan *plan, int x, int w, float eps)
{
    const pi0_tensor *a = activation(plan, x);
    if (!a || !is_weight(plan, w, 1, a->cols))
        return fail_shape(plan, PI0_OP_RMS_NORM, "the weight must be [1, cols]");
    pi0_op op = make_op(PI0_OP_RMS_NORM, x, w, -1);
    op.eps = eps;
    return append(plan, op, a->rows, a->cols);
}

int pi0_plan_ada_norm(pi0_plan *plan, int x, int mod, float eps)
{
    const pi0_tensor *a = activation(plan, x), *m = activation(plan, mod);
    if (!a || !m || m->rows != PI0_ROWS_TIME || m->cols != 3 * a->cols)
        return fail_shape(plan, PI0_OP_ADA_NORM, "the modulation must be [TIME, 3*cols]");
    pi0_op op = make_op(PI0_OP_ADA_NORM, x, mod, -1);
    op.eps = eps;
    return append(plan, op, a->rows, a->cols);
}

int pi0_plan_gated_add(pi0_plan *plan, int x, int branch, int mod)
{
    const pi0_tensor *a = activation(plan, x), *m = activation(plan, mod);
    if (!same_shape(plan, x, branch) || !m || m->rows != PI0_ROWS_TIME || m->cols != 3 * a->cols)
        return fail_shape(plan, PI0_OP_GATED_ADD, "needs two equal shapes and a modulation [TIME, 3*cols]");
    return append(plan, make_op(PI0_OP_GATED_ADD, x, branch, mod), a->rows, a->cols);
}

int pi0_plan_rope(pi0_plan *plan, int x, int heads, int head_dim)
{
    const pi0_tensor *a = activation(plan, x);
    bool placed =
        a && (a->rows == PI0_ROWS_PREFIX || a->rows == PI0_ROWS_SUFFIX || a->rows == PI0_ROWS_STATE || a->rows == PI0_ROWS_ACTION);
    if (!placed || head_dim % 2 || a->cols != heads * head_dim)
        return fail_shape(plan, PI0_OP_ROPE, "needs rows that have positions, heads * head_dim columns, head_dim even");
    pi0_op op = make_op(PI0_OP_ROPE, x, -1, -1);
    op.heads = heads;
    op.head_dim = head_dim;
    return append(plan, op, a->rows, a->cols);
}

static bool attention_shapes(const pi0_plan *plan, const pi0_attention_form *f, int q, int k, int v, int k2, int v2)
{
    const pi0_tensor *tq = activation(plan, q), *tk = activation(plan, k), *t2 = activation(plan, k2);
    int kv_cols = f->kv_heads * f->head_dim;
    if (!tq || !tk || f->kv_heads < 1 || f->heads % f->kv_heads || tq->cols != f->heads * f->head_dim || tk->cols != kv_cols)
        return false;
    if (!same_shape(plan, k, v) || (k2 >= 0) != (v2 >= 0))
        return false;
    /* actions may see the state's key before their own */
    return k2 < 0 || (same_shape(plan, k2, v2) && t2->cols == kv_cols &&
                      (t2->rows == tq->rows || (t2->rows == PI0_ROWS_SUFFIX && tq->rows == PI0_ROWS_ACTION)));
}

int pi0_plan_attention(pi0_plan *plan, const pi0_attention_form *form, int q, int k, int v, int k2, int v2)
{
    if (plan->failed != PI0_OK)
        return -1;
    if (!attention_shapes(plan, form, q, k, v, k2, v2))
        return fail_shape(plan, PI0_OP_ATTN_SCORES, "q, k, v do not fit heads, kv_heads, head_dim");
    pi0_rows rows = plan->tensors[q].rows;
    pi0_op op = make_op(PI0_OP_ATTN_SCORES, q, k, k2);
    op.heads = form->heads;
    op.kv_heads = form->kv_heads;
    op.head_dim = form->head_dim;
    op.keys = form->keys;
    op.group = form->group;
    op.alone = form->alone;
    op.masked = form->masked;
    op.window = form->window;
    op.scale = 1.0f / __builtin_sqrtf((float)form->head_dim);
    int scores = append(plan, op, rows, (int64_t)form->heads * form->keys);
    op.kind = PI0_OP_SOFTMAX;
    op.in[0] = scores, op.in[1] = op.in[2] = -1;
    int weights = append(plan, op, rows, (int64_t)form->heads * form->keys);
    op.kind = PI0_OP_ATTN_MIX;
    op.in[0] = weights, op.in[1] = v, op.in[2] = v2;
    return append(plan, op, rows, (int64_t)form->heads * form->head_dim);
}

int pi0_plan_concat_rows(pi0_plan *plan, int a, int b, pi0_rows rows)
{
    const pi0_tensor *x = activation(plan, a), *y = activation(plan, b);
    bool fits = x && y && x->cols == y->cols &&
                ((rows == PI0_ROWS_PREFIX && x->rows == PI0_ROWS_IMAGE && y->rows == PI0_ROWS_TEXT) ||
                 (rows == PI0_ROWS_SUFFIX && x->rows == PI0_ROWS_STATE && y->rows == PI0_ROWS_ACTION));
    if (!fits)
        return fail_shape(plan, PI0_OP_CONCAT_ROWS, "joins IMAGE+TEXT to PREFIX or STATE+ACTION to SUFFIX, equal columns");
    return append(plan, make_op(PI0_OP_CONCAT_ROWS, a, b, -1), rows, x->cols);
}

int pi0_plan_take_rows(pi0_plan *plan, int x, pi0_rows rows)
{
    const pi0_tensor *a = activation(plan, x);
    if (!a || a->rows != PI0_ROWS_SUFFIX || rows != PI0_ROWS_ACTION)
        return fail_shape(plan, PI0_OP_TAKE_ROWS, "takes ACTION rows from SUFFIX rows");
    return append(plan, make_op(PI0_OP_TAKE_ROWS, x, -1, -1), rows, a->cols);
}

int pi0_plan_concat_cols(pi0_plan *plan, int a, int b)
{
    const pi0_tensor *x = activation(plan, a), *y = activation(plan, b);
    if (!x || !y || (y->rows != x->rows && y->rows != PI0_ROWS_TIME))
        return fail_shape(plan, PI0_OP_CONCAT_COLS, "the second input must have the first one's rows, or TIME rows");
    return append(plan, make_op(PI0_OP_CONCAT_COLS, a, b, -1), x->rows, (int64_t)x->cols + y->cols);
}

int pi0_plan_time_embed(pi0_plan *plan, int width, double min_period, double max_period)
{
    if (width < 2 || width % 2)
        return fail_shape(plan, PI0_OP_TIME_EMBED, "the width must be even");
    pi0_op op = make_op(PI0_OP_TIME_EMBED, -1, -1, -1);
    op.min_period = min_period;
    op.max_period = max_period;
    return append(plan, op, PI0_ROWS_TIME, width);
}
