/* pi0 and pi0.5 as two plans: `context` fills the K/V cache from pictures and instruction, `denoise` is one flow-matching step.
 * Black et al., pi0: A Vision-Language-Action Flow Model (2024); Physical Intelligence, pi0.5 (2025); reference: openpi pi0_pytorch.py.
 */
#include <math.h>

#include "model/policy.h"

#define LANGUAGE "paligemma_with_expert.paligemma.model.language_model."
#define EXPERT "paligemma_with_expert.gemma_expert.model."
#define LM_HEAD "paligemma_with_expert.paligemma.lm_head.weight"

static void fill_max_rows(const pi0_arch *arch, const pi0_policy_sizes *s, int max_rows[PI0_ROWS_COUNT])
{
    const int lanes = s->lanes;
    max_rows[PI0_ROWS_CAMERA] = lanes * s->cameras;
    max_rows[PI0_ROWS_IMAGE] = lanes * s->cameras * arch->vision.tokens;
    max_rows[PI0_ROWS_TEXT] = lanes * s->max_tokens;
    max_rows[PI0_ROWS_PREFIX] = max_rows[PI0_ROWS_IMAGE] + max_rows[PI0_ROWS_TEXT];
    max_rows[PI0_ROWS_STATE] = arch->pi05 ? 0 : lanes;
    max_rows[PI0_ROWS_ACTION] = lanes * s->horizon;
    max_rows[PI0_ROWS_SUFFIX] = max_rows[PI0_ROWS_STATE] + max_rows[PI0_ROWS_ACTION];
    max_rows[PI0_ROWS_TIME] = 1;
}

static void emit_context(pi0_plan *plan, const pi0_arch *arch, const pi0_policy_sizes *sizes, pi0_policy_io *io)
{
    const int side = arch->vision.side, lane_prefix = sizes->cameras * arch->vision.tokens + sizes->max_tokens;
    io->pictures = pi0_plan_input(plan, "pictures", PI0_F32, PI0_ROWS_CAMERA, side * side * 3);
    io->tokens = pi0_plan_input(plan, "tokens", PI0_I32, PI0_ROWS_TEXT, 1);

    io->vision = pi0_emit_vision(plan, arch, io->pictures); /* [IMAGE, width] */
    pi0_plan_output(plan, io->vision, "vision");

    pi0_plan_part(plan, "prefix", -1);
    const char *table_name = arch->untied ? LANGUAGE "embed_tokens.weight" : LM_HEAD;
    int table = pi0_plan_weight(plan, PI0_FORM_TENSOR, PI0_USE_TABLE, table_name, arch->vocab, arch->prefix.width);
    int text = pi0_plan_embed(plan, io->tokens, table, sqrtf((float)arch->prefix.width)); /* [TEXT, width]; pictures are not scaled */
    int x = pi0_plan_concat_rows(plan, io->vision, text, PI0_ROWS_PREFIX);
    const pi0_gemma_tower tower = {
        .prefix = LANGUAGE,
        .part = "prefix",
        .arch = &arch->prefix,
        .cond = -1,
        .attention = {.heads = arch->prefix.heads,
                      .kv_heads = arch->prefix.kv_heads,
                      .head_dim = arch->prefix.head_dim,
                      .keys = lane_prefix,
                      .masked = true},
        .k_out = io->k,
        .v_out = io->v,
    };
    pi0_emit_gemma(plan, &tower, x); /* its result is not read: only K and V of each layer are */
    for (int layer = 0; layer < arch->prefix.depth; layer++) {
        pi0_plan_output(plan, io->k[layer], "prefix_k");
        pi0_plan_output(plan, io->v[layer], "prefix_v");
    }
}

/* pi0: [state | actions mixed with the flow time]. *cond stays -1. */
static int emit_suffix_pi0(pi0_plan *plan, const pi0_arch *arch, int time, pi0_policy_io *io)
{
    const int width = arch->expert.width, dim = arch->action_dim;
    io->state = pi0_plan_input(plan, "state", PI0_F32, PI0_ROWS_STATE, dim);
    int state = pi0_emit_exact(plan, io->state, "state_proj", width, dim);
    int actions = pi0_emit_exact(plan, io->x, "action_in_proj", width, dim);
    int h = pi0_plan_concat_cols(plan, actions, time); /* [ACTION, 2*width] */
    h = pi0_plan_unary(plan, PI0_OP_SILU, pi0_emit_exact(plan, h, "action_time_mlp_in", width, 2ll * width));
    h = pi0_emit_exact(plan, h, "action_time_mlp_out", width, width);
    return pi0_plan_concat_rows(plan, state, h, PI0_ROWS_SUFFIX);
}

/* pi0.5: the actions alone; the flow time conditions every norm. */
static int emit_suffix_pi05(pi0_plan *plan, const pi0_arch *arch, int time, pi0_policy_io *io, int *cond)
{
    const int width = arch->expert.width;
    io->state = -1;
    int h = pi0_plan_unary(plan, PI0_OP_SILU, pi0_emit_exact(plan, time, "time_mlp_in", width, width));
    *cond = pi0_plan_unary(plan, PI0_OP_SILU, pi0_emit_exact(plan, h, "time_mlp_out", width, width));
    return pi0_emit_exact(plan, io->x, "action_in_proj", width, arch->action_dim);
}

static void emit_denoise(pi0_plan *plan, const pi0_arch *arch, const pi0_policy_sizes *sizes, double min_period, double max_period,
                         pi0_policy_io *io)
{
    const int dim = arch->action_dim, kv_width = arch->expert.kv_heads * arch->expert.head_dim;
    const int lane_suffix = sizes->horizon + (arch->pi05 ? 0 : 1);
    const int lane_prefix = sizes->cameras * arch->vision.tokens + sizes->max_tokens;
    pi0_plan_part(plan, "action", -1);
    io->x = pi0_plan_input(plan, "x", PI0_F32, arch->pi05 ? PI0_ROWS_SUFFIX : PI0_ROWS_ACTION, dim);
    for (int layer = 0; layer < arch->expert.depth; layer++) {
        io->k_in[layer] = pi0_plan_input(plan, "prefix_k", PI0_F32, PI0_ROWS_PREFIX, kv_width);
        io->v_in[layer] = pi0_plan_input(plan, "prefix_v", PI0_F32, PI0_ROWS_PREFIX, kv_width);
    }
    int time = pi0_plan_time_embed(plan, arch->expert.width, min_period, max_period); /* [TIME, width] */
    int k_own[PI0_MAX_LAYERS], v_own[PI0_MAX_LAYERS];
    pi0_gemma_tower tower = {
        .prefix = EXPERT,
        .part = "expert",
        .arch = &arch->expert,
        .cond = -1,
        .attention = {.heads = arch->expert.heads,
                      .kv_heads = arch->expert.kv_heads,
                      .head_dim = arch->expert.head_dim,
                      .keys = lane_prefix + lane_suffix,
                      .alone = !arch->pi05,
                      .masked = true},
        .k_in = io->k_in,
        .v_in = io->v_in,
        .k_out = k_own,
        .v_out = v_own,
    };
    int x = arch->pi05 ? emit_suffix_pi05(plan, arch, time, io, &tower.cond) : emit_suffix_pi0(plan, arch, time, io);
    x = pi0_emit_gemma_norm(plan, &tower, pi0_emit_gemma(plan, &tower, x));
    pi0_plan_part(plan, "action", -1);
    if (!arch->pi05)
        x = pi0_plan_take_rows(plan, x, PI0_ROWS_ACTION);
    io->velocity = pi0_emit_exact(plan, x, "action_out_proj", dim, arch->expert.width);
    io->x_next = pi0_plan_binary(plan, PI0_OP_EULER, io->x, io->velocity);
    pi0_plan_output(plan, io->velocity, "velocity");
    pi0_plan_output(plan, io->x_next, "x");
}

pi0_status pi0_policy_emit(const pi0_arch *arch, const pi0_policy_sizes *sizes, double min_period, double max_period, pi0_plan **context,
                           pi0_plan **denoise, pi0_policy_io *io, pi0_error *err)
{
    int max_rows[PI0_ROWS_COUNT];
    fill_max_rows(arch, sizes, max_rows);
    *context = *denoise = NULL;
    pi0_status status;
    PI0_TRY_GOTO(pi0_plan_create("context", max_rows, arch->vision.tokens, context, err));
    emit_context(*context, arch, sizes, io);
    PI0_TRY_GOTO(pi0_plan_finish(*context));
    PI0_TRY_GOTO(pi0_plan_create("denoise", max_rows, arch->vision.tokens, denoise, err));
    emit_denoise(*denoise, arch, sizes, min_period, max_period, io);
    PI0_TRY_GOTO(pi0_plan_finish(*denoise));
    return PI0_OK;
fail:
    pi0_plan_free(context);
    pi0_plan_free(denoise);
    return status;
}
