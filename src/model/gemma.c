/* The Gemma block that prefix and action expert share.
 * Gemma Team, Gemma: Open Models (2024); adaRMS: Physical Intelligence, pi0.5 (2025); reference: openpi models_pytorch/gemma_pytorch.py.
 */
#include "model/policy.h"

static const float rms_eps = 1e-6f;

pi0_tensor_name pi0_join_name(const char *prefix, const char *suffix)
{
    pi0_tensor_name name;
    int length = snprintf(name.text, sizeof name.text, "%s%s", prefix, suffix);
    if (length < 0 || length >= (int)sizeof name.text)
        name.text[0] = 0;
    return name;
}

int pi0_emit_vector(pi0_plan *plan, const char *prefix, const char *suffix, int64_t cols)
{
    return pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_VECTOR, pi0_join_name(prefix, suffix).text, 1, cols);
}

int pi0_emit_linear(pi0_plan *plan, int x, const char *prefix, int64_t rows, int64_t cols, bool has_bias, pi0_weight_use use)
{
    int w = pi0_plan_weight(plan, PI0_FORM_TENSOR, use, pi0_join_name(prefix, ".weight").text, rows, cols);
    int b = has_bias ? pi0_emit_vector(plan, prefix, ".bias", rows) : -1;
    return pi0_plan_linear(plan, x, w, b);
}

int pi0_emit_exact(pi0_plan *plan, int x, const char *prefix, int64_t rows, int64_t cols)
{
    return pi0_emit_linear(plan, x, prefix, rows, cols, true, PI0_USE_EXACT);
}

/* Name of norm `index` of a tower: two a layer, then the last. */
static pi0_tensor_name norm_name(const char *prefix, int depth, int index)
{
    char name[64];
    if (index == 2 * depth)
        return pi0_join_name(prefix, "norm");
    snprintf(name, sizeof name, "layers.%d.%s", index / 2, index % 2 ? "post_attention_layernorm" : "input_layernorm");
    return pi0_join_name(prefix, name);
}

int pi0_emit_modulation(pi0_plan *plan, const pi0_gemma_arch *arch, const char *prefix, int cond, int index)
{
    const pi0_tensor_name name = norm_name(prefix, arch->depth, index);
    return pi0_emit_exact(plan, cond, pi0_join_name(name.text, ".dense").text, 3ll * arch->width, arch->width);
}

/* RMSNorm, or adaRMS; *mod receives the modulation [TIME, 3*width] whose gate the residual needs, or -1. */
static int emit_norm(pi0_plan *plan, const pi0_gemma_tower *tower, int x, int index, int *mod)
{
    *mod = tower->mods        ? tower->mods[index]
           : tower->cond >= 0 ? pi0_emit_modulation(plan, tower->arch, tower->prefix, tower->cond, index)
                              : -1;
    if (*mod >= 0)
        return pi0_plan_ada_norm(plan, x, *mod, rms_eps);
    const pi0_tensor_name name = norm_name(tower->prefix, tower->arch->depth, index);
    int w = pi0_plan_weight(plan, PI0_FORM_ONE_PLUS, PI0_USE_VECTOR, pi0_join_name(name.text, ".weight").text, 1, tower->arch->width);
    return pi0_plan_rms_norm(plan, x, w, rms_eps);
}

static int emit_residual(pi0_plan *plan, int x, int branch, int mod)
{
    return mod >= 0 ? pi0_plan_gated_add(plan, x, branch, mod) : pi0_plan_binary(plan, PI0_OP_ADD, x, branch);
}

static int emit_projection(pi0_plan *plan, int x, const char *prefix, const char *name, int64_t rows, int64_t cols)
{
    return pi0_emit_linear(plan, x, pi0_join_name(prefix, name).text, rows, cols, false, PI0_USE_MATRIX);
}

static int emit_layer(pi0_plan *plan, const pi0_gemma_tower *tower, int layer, int x)
{
    const pi0_gemma_arch *a = tower->arch;
    const int q_width = a->heads * a->head_dim, kv_width = a->kv_heads * a->head_dim;
    char layer_name[32];
    snprintf(layer_name, sizeof layer_name, "layers.%d.", layer);
    const pi0_tensor_name name = pi0_join_name(tower->prefix, layer_name);
    const char *prefix = name.text;
    pi0_plan_part(plan, tower->part, layer);
    int mod;

    int n = emit_norm(plan, tower, x, 2 * layer, &mod); /* [R, width] */
    int q = pi0_plan_rope(plan, emit_projection(plan, n, prefix, "self_attn.q_proj", q_width, a->width), a->heads, a->head_dim);
    int k = pi0_plan_rope(plan, emit_projection(plan, n, prefix, "self_attn.k_proj", kv_width, a->width), a->kv_heads, a->head_dim);
    int v = emit_projection(plan, n, prefix, "self_attn.v_proj", kv_width, a->width);
    tower->k_out[layer] = k;
    tower->v_out[layer] = v;
    if (tower->k_state) {
        k = pi0_plan_concat_rows(plan, tower->k_state[layer], k, PI0_ROWS_SUFFIX);
        v = pi0_plan_concat_rows(plan, tower->v_state[layer], v, PI0_ROWS_SUFFIX);
    }
    int h = tower->k_in ? pi0_plan_attention(plan, &tower->attention, q, tower->k_in[layer], tower->v_in[layer], k, v)
                        : pi0_plan_attention(plan, &tower->attention, q, k, v, -1, -1);
    h = emit_projection(plan, h, prefix, "self_attn.o_proj", a->width, q_width);
    x = emit_residual(plan, x, h, mod);

    n = emit_norm(plan, tower, x, 2 * layer + 1, &mod);
    int gate = emit_projection(plan, n, prefix, "mlp.gate_proj", a->mlp, a->width); /* [R, mlp] */
    gate = pi0_plan_unary(plan, PI0_OP_GELU, gate);
    int up = emit_projection(plan, n, prefix, "mlp.up_proj", a->mlp, a->width);
    h = pi0_plan_binary(plan, PI0_OP_MUL, gate, up);
    h = emit_projection(plan, h, prefix, "mlp.down_proj", a->width, a->mlp);
    return emit_residual(plan, x, h, mod);
}

int pi0_emit_gemma(pi0_plan *plan, const pi0_gemma_tower *tower, int x)
{
    for (int layer = 0; layer < tower->arch->depth; layer++)
        x = emit_layer(plan, tower, layer, x);
    return x;
}

int pi0_emit_gemma_norm(pi0_plan *plan, const pi0_gemma_tower *tower, int x)
{
    int mod;
    pi0_plan_part(plan, tower->part, tower->arch->depth);
    return emit_norm(plan, tower, x, 2 * tower->arch->depth, &mod);
}
