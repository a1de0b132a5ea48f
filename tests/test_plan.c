/* Plans: the builder's checks, passes, expansion, verification, the memory planner. */
#include <string.h>

#include "plan/plan.h"
#include "support.h"

static const int rows[PI0_ROWS_COUNT] = {
    [PI0_ROWS_CAMERA] = 2, [PI0_ROWS_IMAGE] = 8,   [PI0_ROWS_TEXT] = 5,    [PI0_ROWS_PREFIX] = 13,
    [PI0_ROWS_STATE] = 1,  [PI0_ROWS_ACTION] = 10, [PI0_ROWS_SUFFIX] = 11, [PI0_ROWS_TIME] = 1,
};

static pi0_plan *new_plan(pi0_error *err)
{
    pi0_plan *plan;
    assert_int_equal(pi0_plan_create("test", rows, 4, &plan, err), PI0_OK);
    return plan;
}

static int weight(pi0_plan *plan, int64_t n, int64_t k)
{
    return pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_MATRIX, "w", n, k);
}

/* x -> q, k, v -> rope -> attention -> add; keeps k and v. */
static pi0_plan *layer_plan(pi0_error *err)
{
    pi0_plan *plan = new_plan(err);
    int x = pi0_plan_input(plan, "x", PI0_F32, PI0_ROWS_PREFIX, 16);
    int q = pi0_plan_rope(plan, pi0_plan_linear(plan, x, weight(plan, 16, 16), -1), 2, 8);
    int k = pi0_plan_rope(plan, pi0_plan_linear(plan, x, weight(plan, 8, 16), -1), 1, 8);
    int v = pi0_plan_linear(plan, x, weight(plan, 8, 16), -1);
    const pi0_attention_form form = {.heads = 2, .kv_heads = 1, .head_dim = 8, .keys = 13, .masked = true};
    int a = pi0_plan_attention(plan, &form, q, k, v, -1, -1);
    pi0_plan_binary(plan, PI0_OP_ADD, x, a);
    pi0_plan_output(plan, k, "prefix_k");
    pi0_plan_output(plan, v, "prefix_v");
    assert_int_equal(pi0_plan_finish(plan), PI0_OK);
    return plan;
}

static int count(const pi0_plan *plan, pi0_op_kind kind)
{
    int n = 0;
    for (int i = 0; i < plan->n_ops; i++)
        n += plan->ops[i].kind == kind;
    return n;
}

/* ------------------------------------------------------------------ builder */

static void builder_refuses_shapes_that_do_not_fit(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = new_plan(&err);
    int x = pi0_plan_input(plan, "x", PI0_F32, PI0_ROWS_PREFIX, 16);
    assert_int_equal(pi0_plan_linear(plan, x, weight(plan, 4, 15), -1), -1);
    assert_int_equal(pi0_plan_unary(plan, PI0_OP_GELU, x), -1); /* sticky: nothing is added any more */
    assert_int_equal(pi0_plan_finish(plan), PI0_ERR_INTERNAL);
    pi0_test_assert_error(&err, PI0_ERR_INTERNAL, "linear", "columns", NULL);
    pi0_plan_free(&plan);

    plan = new_plan(&err);
    x = pi0_plan_input(plan, "x", PI0_F32, PI0_ROWS_PREFIX, 16);
    int y = pi0_plan_input(plan, "y", PI0_F32, PI0_ROWS_TEXT, 16);
    pi0_plan_binary(plan, PI0_OP_ADD, x, y);
    assert_int_equal(pi0_plan_finish(plan), PI0_ERR_INTERNAL);
    pi0_test_assert_error(&err, PI0_ERR_INTERNAL, "add", NULL);
    pi0_plan_free(&plan);
}

static void verify_finds_what_a_pass_broke(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = layer_plan(&err);
    assert_int_equal(pi0_plan_verify(plan, &err), PI0_OK);
    const pi0_op first = plan->ops[0];
    plan->ops[0] = plan->ops[1]; /* a rope before the product that it reads, and twice */
    assert_int_equal(pi0_plan_verify(plan, &err), PI0_ERR_INTERNAL);
    pi0_test_assert_error(&err, PI0_ERR_INTERNAL, "before any op has written it", NULL);
    plan->ops[0] = first;
    plan->tensors[plan->ops[0].out].cols = 7;
    assert_int_equal(pi0_plan_verify(plan, &err), PI0_ERR_INTERNAL);
    pi0_test_assert_error(&err, PI0_ERR_INTERNAL, "number of columns", NULL);
    pi0_plan_free(&plan);
}

/* ------------------------------------------------------------------ passes */

static void unknown_pass_is_an_error_that_lists_all(void **state)
{
    (void)state;
    pi0_error err = {0};
    assert_int_equal(pi0_passes_check("arena,fuse-everything", &err), PI0_ERR_ARGUMENT);
    assert_non_null(err.list);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "fuse-everything", "drop-masked", "last-layer-kv", NULL);
    assert_int_equal(pi0_passes_check("arena, replay", &err), PI0_OK);
    assert_false(pi0_pass_enabled("arena, replay", "replay"));
    assert_true(pi0_pass_enabled("arena, replay", "drop-masked"));
    assert_true(pi0_pass_enabled("arenas", "arena"));
}

static void drop_masked_removes_masks_and_keeps_live_rows_only(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = layer_plan(&err);
    assert_int_equal(pi0_passes_run(plan, "drop-masked,flash-attention", &err), PI0_OK);
    assert_false(plan->live_rows);
    for (int i = 0; i < plan->n_ops; i++)
        assert_true(plan->ops[i].kind != PI0_OP_ATTN_SCORES || plan->ops[i].masked);
    assert_int_equal(pi0_pass_find("drop-masked")->run(plan, &err), PI0_OK);
    assert_true(plan->live_rows);
    for (int i = 0; i < plan->n_ops; i++)
        assert_false(plan->ops[i].masked);
    pi0_plan_free(&plan);
}

static void last_layer_kv_leaves_keys_and_values_only(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = layer_plan(&err);
    assert_int_equal(pi0_passes_run(plan, "last-layer-kv,fuse-qkv", &err), PI0_OK);
    assert_int_equal(count(plan, PI0_OP_LINEAR), 3);
    pi0_plan_free(&plan);
    plan = layer_plan(&err);
    assert_int_equal(pi0_passes_run(plan, "fuse-qkv", &err), PI0_OK);
    assert_int_equal(count(plan, PI0_OP_LINEAR), 2); /* k and v */
    assert_int_equal(count(plan, PI0_OP_ATTENTION) + count(plan, PI0_OP_ADD), 0);
    pi0_plan_drop_unread(plan);
    assert_true(plan->weights[0].rows == 0 && plan->weights[1].rows == 8 && plan->weights[2].rows == 8); /* q; k and v */
    pi0_plan_free(&plan);
}

static bool takes_nothing(const pi0_op *op)
{
    (void)op;
    return false;
}

/* norm -> q, k, v -> rope -> attention -> add -> norm -> gate, up -> mul -> down -> add -> norm: all that a Gemma layer has. */
static pi0_plan *gemma_plan(pi0_error *err)
{
    pi0_plan *plan = new_plan(err);
    const pi0_attention_form form = {.heads = 2, .kv_heads = 1, .head_dim = 8, .keys = 13};
    int x = pi0_plan_input(plan, "x", PI0_F32, PI0_ROWS_PREFIX, 16);
    int norm[3];
    for (int i = 0; i < 3; i++)
        norm[i] = pi0_plan_weight(plan, PI0_FORM_ONE_PLUS, PI0_USE_VECTOR, "n", 1, 16);
    int n = pi0_plan_rms_norm(plan, x, norm[0], 1e-6f);
    int q = pi0_plan_rope(plan, pi0_plan_linear(plan, n, weight(plan, 16, 16), -1), 2, 8);
    int k = pi0_plan_rope(plan, pi0_plan_linear(plan, n, weight(plan, 8, 16), -1), 1, 8);
    int v = pi0_plan_linear(plan, n, weight(plan, 8, 16), -1);
    int h = pi0_plan_linear(plan, pi0_plan_attention(plan, &form, q, k, v, -1, -1), weight(plan, 16, 16), -1);
    x = pi0_plan_binary(plan, PI0_OP_ADD, x, h);
    n = pi0_plan_rms_norm(plan, x, norm[1], 1e-6f);
    int gate = pi0_plan_unary(plan, PI0_OP_GELU, pi0_plan_linear(plan, n, weight(plan, 24, 16), -1));
    int up = pi0_plan_linear(plan, n, weight(plan, 24, 16), -1);
    h = pi0_plan_linear(plan, pi0_plan_binary(plan, PI0_OP_MUL, gate, up), weight(plan, 16, 24), -1);
    x = pi0_plan_binary(plan, PI0_OP_ADD, x, h);
    pi0_plan_output(plan, pi0_plan_rms_norm(plan, x, norm[2], 1e-6f), "y");
    assert_int_equal(pi0_plan_finish(plan), PI0_OK);
    return plan;
}

/* The same for a SigLIP MLP: biases, layer norm, gelu without a gate. */
static pi0_plan *vision_plan(pi0_error *err)
{
    pi0_plan *plan = new_plan(err);
    int vector[7];
    for (int i = 0; i < 7; i++)
        vector[i] = pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_VECTOR, "b", 1, i == 5 ? 24 : 16);
    const pi0_attention_form form = {.heads = 2, .kv_heads = 2, .head_dim = 8, .keys = 4, .group = PI0_GROUP_CAMERA};
    int x = pi0_plan_input(plan, "x", PI0_F32, PI0_ROWS_IMAGE, 16), qkv[3];
    for (int i = 0; i < 3; i++)
        qkv[i] = pi0_plan_linear(plan, x, weight(plan, 16, 16), vector[i]);
    x = pi0_plan_binary(plan, PI0_OP_ADD, x, pi0_plan_attention(plan, &form, qkv[0], qkv[1], qkv[2], -1, -1));
    int h = pi0_plan_layer_norm(plan, x, vector[3], vector[4], 1e-6f);
    h = pi0_plan_unary(plan, PI0_OP_GELU, pi0_plan_linear(plan, h, weight(plan, 24, 16), vector[5]));
    h = pi0_plan_linear(plan, h, weight(plan, 16, 24), vector[6]);
    pi0_plan_output(plan, pi0_plan_binary(plan, PI0_OP_ADD, x, h), "y");
    assert_int_equal(pi0_plan_finish(plan), PI0_OK);
    return plan;
}

static const pi0_weight *weight_of(const pi0_plan *plan, int op)
{
    return &plan->weights[plan->tensors[plan->ops[op].in[1]].weight];
}

static int find(const pi0_plan *plan, pi0_op_kind kind, int which)
{
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == kind && which-- == 0)
            return i;
    fail_msg("the plan has too few ops of kind %s", pi0_op_infos[kind].name);
    return -1;
}

static void a_gemma_layer_becomes_eight_ops(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = gemma_plan(&err);
    const int before = plan->n_ops;
    PI0_ASSERT_OK(pi0_passes_run(plan, NULL, &err), &err);
    PI0_ASSERT_OK(pi0_plan_layout(plan, &err), &err);
    assert_int_equal(plan->n_ops, 8); /* norm, qkv, attention, o, add+norm, gate and up, down, add+norm */
    assert_int_equal(count(plan, PI0_OP_ADD_NORM), 2);
    const int qkv = find(plan, PI0_OP_LINEARS, 0), mlp = find(plan, PI0_OP_LINEARS, 1);
    assert_int_equal(plan->ops[qkv].n_more, 2);
    assert_int_equal(weight_of(plan, qkv)->rows, 16 + 8 + 8);
    assert_int_equal(weight_of(plan, qkv)->pairing[0], PI0_PAIRING_ROPE);
    assert_int_equal(weight_of(plan, qkv)->pairing[1], PI0_PAIRING_ROPE);
    assert_int_equal(weight_of(plan, qkv)->pairing[2], PI0_PAIRING_NONE);
    assert_int_equal(weight_of(plan, qkv)->head, 8);
    assert_true(plan->ops[mlp].geglu && plan->ops[mlp].n_more == 0);
    assert_int_equal(weight_of(plan, mlp)->rows, 48);
    assert_int_equal(plan->tensors[plan->ops[mlp].out].cols, 24);
    int expanded;
    PI0_ASSERT_OK(pi0_plan_expand(plan, takes_nothing, &expanded, &err), &err);
    PI0_ASSERT_OK(pi0_plan_verify(plan, &err), &err);
    assert_int_equal(plan->n_ops, before);
    assert_int_equal(count(plan, PI0_OP_LINEAR), 7);
    pi0_plan_free(&plan);
}

static void vision_layers_fuse_with_their_biases(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = vision_plan(&err);
    const int before = plan->n_ops;
    PI0_ASSERT_OK(pi0_passes_run(plan, NULL, &err), &err);
    assert_int_equal(plan->n_ops, 6); /* qkv, attention, add+norm, fc1 with gelu, fc2, add */
    const pi0_op *qkv = &plan->ops[find(plan, PI0_OP_LINEARS, 0)], *fc1 = &plan->ops[find(plan, PI0_OP_LINEARS, 1)];
    const pi0_weight *bias = &plan->weights[plan->tensors[qkv->in[2]].weight];
    assert_true(bias->rows == 48 && bias->cols == 1 && bias->n_sources == 3);
    assert_true(fc1->gelu && fc1->n_more == 0);
    int expanded;
    PI0_ASSERT_OK(pi0_plan_expand(plan, takes_nothing, &expanded, &err), &err);
    PI0_ASSERT_OK(pi0_plan_verify(plan, &err), &err);
    assert_int_equal(plan->n_ops, before);
    for (int i = 0; i < plan->n_ops; i++) /* every bias is a row again */
        if (plan->ops[i].kind == PI0_OP_LINEAR)
            assert_int_equal(plan->weights[plan->tensors[plan->ops[i].in[2]].weight].cols, weight_of(plan, i)->rows);
    pi0_plan_free(&plan);
}

/* A value that something else reads, or that is an output, stays as it is. */
static void fusion_stops_at_what_is_read_elsewhere(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = gemma_plan(&err);
    pi0_plan_output(plan, plan->ops[find(plan, PI0_OP_GELU, 0)].out, "tap");
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == PI0_OP_ROPE) {
            pi0_plan_output(plan, plan->ops[i].in[0], "tap");
            break;
        }
    PI0_ASSERT_OK(pi0_passes_run(plan, NULL, &err), &err);
    assert_int_equal(count(plan, PI0_OP_GELU), 1);
    assert_int_equal(count(plan, PI0_OP_MUL), 1);
    assert_int_equal(count(plan, PI0_OP_ROPE_TABLE), 1);
    assert_int_equal(weight_of(plan, find(plan, PI0_OP_LINEARS, 0))->pairing[0], PI0_PAIRING_NONE);
    assert_int_equal(weight_of(plan, find(plan, PI0_OP_LINEARS, 0))->pairing[1], PI0_PAIRING_ROPE);
    pi0_plan_free(&plan);
}

static void a_tap_survives_every_pass(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = layer_plan(&err);
    int sum = plan->ops[plan->n_ops - 1].out;
    pi0_plan_output(plan, sum, "tap");
    assert_int_equal(pi0_passes_run(plan, NULL, &err), PI0_OK);
    assert_true(pi0_plan_producer(plan, sum) >= 0);
    assert_int_equal(count(plan, PI0_OP_ATTENTION), 1);
    pi0_plan_free(&plan);
}

static bool takes_all(const pi0_op *op)
{
    (void)op;
    return true;
}

static void fused_ops_expand_to_what_they_were(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = layer_plan(&err);
    int expanded = -1;
    assert_int_equal(pi0_passes_run(plan, "last-layer-kv,fuse-qkv", &err), PI0_OK);
    assert_int_equal(count(plan, PI0_OP_ATTENTION), 1);
    assert_int_equal(count(plan, PI0_OP_ROPE_TABLE), 2);
    assert_int_equal(pi0_plan_expand(plan, takes_all, &expanded, &err), PI0_OK);
    assert_int_equal(expanded, 0);
    assert_int_equal(pi0_plan_expand(plan, takes_nothing, &expanded, &err), PI0_OK);
    assert_int_equal(expanded, 3);
    assert_int_equal(pi0_plan_verify(plan, &err), PI0_OK);
    assert_int_equal(count(plan, PI0_OP_ATTENTION) + count(plan, PI0_OP_ROPE_TABLE), 0);
    assert_int_equal(count(plan, PI0_OP_ATTN_SCORES), 1);
    assert_int_equal(count(plan, PI0_OP_SOFTMAX), 1);
    assert_int_equal(count(plan, PI0_OP_ATTN_MIX), 1);
    assert_int_equal(count(plan, PI0_OP_ROPE), 2);
    pi0_plan_free(&plan);
}

static void quantise_touches_matrices_only(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_plan *plan = layer_plan(&err);
    int vector = pi0_plan_weight(plan, PI0_FORM_ONE_PLUS, PI0_USE_VECTOR, "n", 1, 16);
    int table = pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_TABLE, "t", 99, 16);
    int exact = pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_EXACT, "e", 8, 16);
    pi0_plan_quantise(plan, &(pi0_precision_policy){.matrices = PI0_PRECISION_BF16});
    assert_int_equal(plan->weights[0].precision, PI0_PRECISION_BF16);
    assert_int_equal(plan->weights[0].most_rows, plan->max_rows[plan->tensors[plan->ops[0].out].rows]);
    assert_int_equal(plan->weights[plan->tensors[exact].weight].precision, PI0_PRECISION_F32);
    assert_int_equal(plan->weights[plan->tensors[exact].weight].most_rows, 0);
    assert_int_equal(plan->weights[plan->tensors[vector].weight].precision, PI0_PRECISION_F32);
    assert_int_equal(plan->weights[plan->tensors[table].weight].precision, PI0_PRECISION_STORED);
    pi0_plan_quantise(plan, &(pi0_precision_policy){.matrices = PI0_PRECISION_INT8});
    assert_int_equal(plan->weights[0].precision, PI0_PRECISION_INT8);
    assert_int_equal(plan->weights[plan->tensors[exact].weight].precision, PI0_PRECISION_F32);
    assert_false(plan->weights[0].stays);
    /* one by one: the matrix that reads a name, and no other kind of weight that does */
    int named = pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_MATRIX, "named", 8, 16);
    const char *const names[] = {"e", "t", "n", "named"};
    pi0_plan_quantise(plan, &(pi0_precision_policy){.matrices = PI0_PRECISION_INT8, .in_bf16 = names, .n_in_bf16 = 4});
    assert_int_equal(plan->weights[plan->tensors[named].weight].precision, PI0_PRECISION_BF16);
    assert_int_equal(plan->weights[0].precision, PI0_PRECISION_INT8);
    assert_int_equal(plan->weights[plan->tensors[exact].weight].precision, PI0_PRECISION_F32);
    assert_int_equal(plan->weights[plan->tensors[vector].weight].precision, PI0_PRECISION_F32);
    assert_int_equal(plan->weights[plan->tensors[table].weight].precision, PI0_PRECISION_STORED);
    /* what is measured stays where it can be read again */
    pi0_plan_quantise(plan, &(pi0_precision_policy){.matrices = PI0_PRECISION_F32, .measures_int8 = true});
    assert_true(plan->measures_int8 && plan->weights[0].stays);
    assert_false(plan->weights[plan->tensors[exact].weight].stays);
    pi0_plan_free(&plan);
}

/* ------------------------------------------------------------------ planner */

typedef struct lifetime {
    int first, last;
} lifetime;

static lifetime lifetime_of(const pi0_plan *plan, int tensor)
{
    lifetime l = {pi0_plan_producer(plan, tensor), pi0_plan_producer(plan, tensor)};
    for (int i = 0; i < plan->n_ops; i++)
        for (int j = 0; j < PI0_OP_INPUTS; j++)
            if (plan->ops[i].in[j] == tensor)
                l.last = i;
    return l;
}

/* Two values may share bytes only if one is dead before the other is written - or at that very op, when it writes in place. */
static void assert_no_overlap(const pi0_plan *plan)
{
    for (int a = 0; a < plan->n_tensors; a++)
        for (int b = 0; b < plan->n_tensors; b++) {
            const pi0_tensor *x = &plan->tensors[a], *y = &plan->tensors[b];
            if (a == b || x->kind != PI0_TENSOR_VALUE || y->kind != PI0_TENSOR_VALUE || x->output || y->output)
                continue;
            const lifetime p = lifetime_of(plan, a), q = lifetime_of(plan, b);
            if (p.first < 0 || q.first < 0 || p.first > q.first)
                continue;
            const bool in_place = p.last == q.first && pi0_op_infos[plan->ops[q.first].kind].in_place && plan->ops[q.first].in[0] == a;
            const bool apart = x->offset + pi0_tensor_bytes(plan, a) <= y->offset || y->offset + pi0_tensor_bytes(plan, b) <= x->offset;
            if (p.last >= q.first && !in_place && !apart)
                fail_msg("tensors %d and %d are alive at once and overlap", a, b);
            assert_true(x->offset + pi0_tensor_bytes(plan, a) <= plan->arena_bytes);
        }
}

static void planner_never_overlaps_live_values(void **state)
{
    (void)state;
    pi0_error err = {0};
    static const char *const disabled[] = {NULL, "last-layer-kv", "last-layer-kv,flash-attention",
                                           "last-layer-kv,flash-attention,rope-table"};
    for (size_t i = 0; i < sizeof disabled / sizeof *disabled; i++) {
        pi0_plan *plan = layer_plan(&err);
        assert_int_equal(pi0_passes_run(plan, disabled[i], &err), PI0_OK);
        assert_int_equal(pi0_plan_layout(plan, &err), PI0_OK);
        assert_no_overlap(plan);
        assert_true(plan->live_bytes <= plan->arena_bytes);
        pi0_plan_free(&plan);
    }
}

/* Random straight-line programs: every layout is legal and close to the bound. */
static void planner_on_random_plans(void **state)
{
    (void)state;
    pi0_error err = {0};
    for (uint64_t seed = 0; seed < 200; seed++) {
        pi0_plan *plan = new_plan(&err);
        int values[64], n = 0;
        values[n++] = pi0_plan_input(plan, "x", PI0_F32, PI0_ROWS_PREFIX, 16);
        for (uint64_t i = 0; i < 40; i++) {
            const uint64_t word = pi0_random_word(seed, i);
            const int from = values[word % (uint64_t)n];
            const int cols = plan->tensors[from].cols;
            if (word >> 8 & 1)
                values[n++] = pi0_plan_unary(plan, PI0_OP_GELU, from);
            else if (word >> 9 & 1)
                values[n++] = pi0_plan_binary(plan, PI0_OP_ADD, from, from);
            else
                values[n++] = pi0_plan_linear(plan, from, weight(plan, 1 + (int64_t)(word >> 16 & 63), cols), -1);
        }
        pi0_plan_output(plan, values[n - 1], "y");
        assert_int_equal(pi0_plan_finish(plan), PI0_OK);
        assert_int_equal(pi0_plan_layout(plan, &err), PI0_OK);
        assert_no_overlap(plan);
        assert_true((double)plan->arena_bytes <= 1.5 * (double)plan->live_bytes);
        pi0_plan_free(&plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builder_refuses_shapes_that_do_not_fit),
        cmocka_unit_test(verify_finds_what_a_pass_broke),
        cmocka_unit_test(unknown_pass_is_an_error_that_lists_all),
        cmocka_unit_test(drop_masked_removes_masks_and_keeps_live_rows_only),
        cmocka_unit_test(last_layer_kv_leaves_keys_and_values_only),
        cmocka_unit_test(a_tap_survives_every_pass),
        cmocka_unit_test(a_gemma_layer_becomes_eight_ops),
        cmocka_unit_test(vision_layers_fuse_with_their_biases),
        cmocka_unit_test(fusion_stops_at_what_is_read_elsewhere),
        cmocka_unit_test(fused_ops_expand_to_what_they_were),
        cmocka_unit_test(quantise_touches_matrices_only),
        cmocka_unit_test(planner_never_overlaps_live_values),
        cmocka_unit_test(planner_on_random_plans),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
