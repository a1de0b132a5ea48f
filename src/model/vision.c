/* SigLIP So400m/14 with PaliGemma's projector.
 * Zhai et al., Sigmoid Loss for Language Image Pre-Training (2023); reference: transformers modeling_siglip.py as openpi loads it.
 */
#include "model/policy.h"

#define VISION "paligemma_with_expert.paligemma.model.vision_tower.vision_model."
#define PROJECTOR "paligemma_with_expert.paligemma.model.multi_modal_projector.linear"

static const float layer_norm_eps = 1e-6f;

static int emit_layer_norm(pi0_plan *plan, int x, const char *prefix, const char *name, int width)
{
    const pi0_tensor_name full = pi0_join_name(prefix, name);
    int w = pi0_emit_vector(plan, full.text, ".weight", width);
    int b = pi0_emit_vector(plan, full.text, ".bias", width);
    return pi0_plan_layer_norm(plan, x, w, b, layer_norm_eps);
}

static int emit_projection(pi0_plan *plan, int x, const char *prefix, const char *name, int rows, int cols)
{
    return pi0_emit_linear(plan, x, pi0_join_name(prefix, name).text, rows, cols, true, PI0_USE_MATRIX);
}

static int emit_layer(pi0_plan *plan, const pi0_arch *arch, int layer, int x)
{
    const int width = arch->vision.width, mlp = arch->vision.mlp;
    char prefix[128];
    snprintf(prefix, sizeof prefix, VISION "encoder.layers.%d.", layer);
    pi0_plan_part(plan, "vision", layer);

    int n = emit_layer_norm(plan, x, prefix, "layer_norm1", width); /* [IMAGE, width] */
    int q = emit_projection(plan, n, prefix, "self_attn.q_proj", width, width);
    int k = emit_projection(plan, n, prefix, "self_attn.k_proj", width, width);
    int v = emit_projection(plan, n, prefix, "self_attn.v_proj", width, width);
    const pi0_attention_form form = {.heads = arch->vision.heads,
                                     .kv_heads = arch->vision.heads,
                                     .head_dim = width / arch->vision.heads,
                                     .keys = arch->vision.tokens,
                                     .group = PI0_GROUP_CAMERA};
    int a = pi0_plan_attention(plan, &form, q, k, v, -1, -1);
    a = emit_projection(plan, a, prefix, "self_attn.out_proj", width, width);
    x = pi0_plan_binary(plan, PI0_OP_ADD, x, a);

    n = emit_layer_norm(plan, x, prefix, "layer_norm2", width);
    int h = emit_projection(plan, n, prefix, "mlp.fc1", mlp, width); /* [IMAGE, mlp] */
    h = pi0_plan_unary(plan, PI0_OP_GELU, h);
    h = emit_projection(plan, h, prefix, "mlp.fc2", width, mlp);
    return pi0_plan_binary(plan, PI0_OP_ADD, x, h);
}

int pi0_emit_vision(pi0_plan *plan, const pi0_arch *arch, int pictures)
{
    const int width = arch->vision.width, patch = arch->vision.patch;
    pi0_plan_part(plan, "vision", -1);
    int x = pi0_plan_patchify(plan, pictures, arch->vision.side, patch); /* [IMAGE, 3*patch*patch] */
    x = pi0_emit_exact(plan, x, VISION "embeddings.patch_embedding", width, 3ll * patch * patch);
    int position =
        pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_VECTOR, VISION "embeddings.position_embedding.weight", arch->vision.tokens, width);
    x = pi0_plan_binary(plan, PI0_OP_ADD, x, position);
    for (int layer = 0; layer < arch->vision.depth; layer++)
        x = emit_layer(plan, arch, layer, x);
    pi0_plan_part(plan, "vision", -1);
    x = emit_layer_norm(plan, x, VISION, "post_layernorm", width);
    return pi0_emit_linear(plan, x, PROJECTOR, arch->prefix.width, width, true, PI0_USE_MATRIX);
}
