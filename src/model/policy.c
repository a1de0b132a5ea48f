/* pi0 and pi0.5 as plans: `context` fills the K/V cache from pictures and instruction, `denoise` is one flow-matching step, `schedule` what
 * the flow times alone decide (time-fold). Black et al., pi0: A Vision-Language-Action Flow Model (2024); Physical Intelligence, pi0.5
 * (2025); reference: openpi pi0_pytorch.py.
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
    max_rows[PI0_ROWS_TIME] = s->time_fold ? s->times : 1;
}

/* pi0's state token through the expert, for its keys and values: it attends to the prefix and itself. */
static void emit_state(pi0_plan *plan, const pi0_arch *arch, int lane_prefix, pi0_policy_io *io)
{
    pi0_plan_part(plan, "expert", -1);
    io->context_state = pi0_plan_input(plan, "state", PI0_F32, PI0_ROWS_STATE, arch->action_dim);
    int x = pi0_emit_exact(plan, io->context_state, "state_proj", arch->expert.width, arch->action_dim);
    const pi0_gemma_tower tower = {
        .prefix = EXPERT,
        .part = "expert",
        .arch = &arch->expert,
        .cond = -1,
        .attention = {.heads = arch->expert.heads,
                      .kv_heads = arch->expert.kv_heads,
                      .head_dim = arch->expert.head_dim,
                      .keys = lane_prefix + 1,
                      .masked = true},
        .k_in = io->k,
        .v_in = io->v,
        .k_out = io->state_k,
        .v_out = io->state_v,
    };
    pi0_emit_gemma(plan, &tower, x);
    for (int layer = 0; layer < arch->expert.depth; layer++) {
        pi0_plan_output(plan, io->state_k[layer], "state_k");
        pi0_plan_output(plan, io->state_v[layer], "state_v");
    }
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
    if (sizes->state_kv)
        emit_state(plan, arch, lane_prefix, io);
}

#define MLP_IN "action_time_mlp_in"
#define ACTION_IN "action_in_proj"

/* A table of the schedule as an input of the step. */
static int emit_table_input(pi0_plan *plan, pi0_policy_io *io, int cols)
{
    const int table = io->n_tables++;
    return io->table_in[table] = pi0_plan_input(plan, "table", PI0_F32, PI0_ROWS_TIME, cols);
}

/* pi0's actions mixed with the flow time: silu(mlp_in [action_in x | time]). With mlp_in = [A | T] that is silu(A action_in x + table),
 * the table made of T time and all constants. */
static int emit_actions_pi0(pi0_plan *plan, const pi0_arch *arch, bool time_fold, int time, pi0_policy_io *io)
{
    const int width = arch->expert.width, dim = arch->action_dim;
    if (!time_fold) {
        int actions = pi0_emit_exact(plan, io->x, ACTION_IN, width, dim);
        int h = pi0_plan_concat_cols(plan, actions, time); /* [ACTION, 2*width] */
        return pi0_plan_unary(plan, PI0_OP_SILU, pi0_emit_exact(plan, h, MLP_IN, width, 2ll * width));
    }
    int folded = pi0_plan_weight(plan, PI0_FORM_FOLD, PI0_USE_EXACT, MLP_IN ".weight", width, dim);
    pi0_plan_weight_source(plan, folded, ACTION_IN ".weight");
    int h = pi0_plan_linear(plan, io->x, folded, -1);
    return pi0_plan_unary(plan, PI0_OP_SILU, pi0_plan_binary(plan, PI0_OP_ADD, h, emit_table_input(plan, io, width)));
}

/* pi0: [state | actions], or the actions alone when the state is part of the context. */
static int emit_suffix_pi0(pi0_plan *plan, const pi0_arch *arch, const pi0_policy_sizes *sizes, int time, pi0_policy_io *io)
{
    const int width = arch->expert.width, dim = arch->action_dim;
    if (sizes->state_kv)
        return pi0_emit_exact(plan, emit_actions_pi0(plan, arch, sizes->time_fold, time, io), "action_time_mlp_out", width, width);
    io->state = pi0_plan_input(plan, "state", PI0_F32, PI0_ROWS_STATE, dim);
    int state = pi0_emit_exact(plan, io->state, "state_proj", width, dim);
    int h = emit_actions_pi0(plan, arch, sizes->time_fold, time, io);
    h = pi0_emit_exact(plan, h, "action_time_mlp_out", width, width);
    return pi0_plan_concat_rows(plan, state, h, PI0_ROWS_SUFFIX);
}

/* pi0.5's condition of every norm: [TIME, width]. */
static int emit_condition(pi0_plan *plan, const pi0_arch *arch, int time)
{
    const int width = arch->expert.width;
    int h = pi0_plan_unary(plan, PI0_OP_SILU, pi0_emit_exact(plan, time, "time_mlp_in", width, width));
    return pi0_plan_unary(plan, PI0_OP_SILU, pi0_emit_exact(plan, h, "time_mlp_out", width, width));
}

/* What the flow time alone decides, for all steps at once. */
static void emit_schedule(pi0_plan *plan, const pi0_arch *arch, double min_period, double max_period, pi0_policy_io *io)
{
    const int width = arch->expert.width;
    pi0_plan_part(plan, "schedule", -1);
    int time = pi0_plan_time_embed(plan, width, min_period, max_period); /* [TIME, width] */
    if (!arch->pi05) {
        int right = pi0_plan_weight(plan, PI0_FORM_RIGHT, PI0_USE_EXACT, MLP_IN ".weight", width, width);
        int bias = pi0_plan_weight(plan, PI0_FORM_FOLD_BIAS, PI0_USE_VECTOR, MLP_IN ".weight", 1, width);
        pi0_plan_weight_source(plan, bias, ACTION_IN ".bias");
        pi0_plan_weight_source(plan, bias, MLP_IN ".bias");
        io->table[0] = pi0_plan_linear(plan, time, right, bias);
    } else {
        const int cond = emit_condition(plan, arch, time);
        for (int i = 0; i < 2 * arch->expert.depth + 1; i++)
            io->table[i] = pi0_emit_modulation(plan, &arch->expert, EXPERT, cond, i);
    }
    for (int i = 0; i < (arch->pi05 ? 2 * arch->expert.depth + 1 : 1); i++)
        pi0_plan_output(plan, io->table[i], "table");
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
    const int time = sizes->time_fold ? -1 : pi0_plan_time_embed(plan, arch->expert.width, min_period, max_period); /* [TIME, width] */
    int mods[PI0_MAX_TABLES];
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
                      .alone = !arch->pi05 && !sizes->state_kv,
                      .masked = true,
                      .window = sizes->window},
        .k_in = io->k_in,
        .v_in = io->v_in,
        .k_out = k_own,
        .v_out = v_own,
    };
    for (int layer = 0; layer < arch->expert.depth && sizes->state_kv; layer++) {
        io->state_k_in[layer] = pi0_plan_input(plan, "state_k", PI0_F32, PI0_ROWS_STATE, kv_width);
        io->state_v_in[layer] = pi0_plan_input(plan, "state_v", PI0_F32, PI0_ROWS_STATE, kv_width);
        tower.k_state = io->state_k_in;
        tower.v_state = io->state_v_in;
    }
    int x = arch->pi05 ? pi0_emit_exact(plan, io->x, ACTION_IN, arch->expert.width, dim) : emit_suffix_pi0(plan, arch, sizes, time, io);
    if (arch->pi05 && sizes->time_fold) {
        for (int i = 0; i < 2 * arch->expert.depth + 1; i++)
            mods[i] = emit_table_input(plan, io, 3 * arch->expert.width);
        tower.mods = mods;
    } else if (arch->pi05) {
        tower.cond = emit_condition(plan, arch, time);
    }
    x = pi0_emit_gemma_norm(plan, &tower, pi0_emit_gemma(plan, &tower, x));
    pi0_plan_part(plan, "action", -1);
    if (!arch->pi05 && !sizes->state_kv)
        x = pi0_plan_take_rows(plan, x, PI0_ROWS_ACTION);
    io->velocity = pi0_emit_exact(plan, x, "action_out_proj", dim, arch->expert.width);
    io->x_next = pi0_plan_binary(plan, PI0_OP_EULER, io->x, io->velocity);
    pi0_plan_output(plan, io->velocity, "velocity");
    pi0_plan_output(plan, io->x_next, "x");
}

void pi0_policy_free(pi0_policy_plans *plans)
{
    pi0_plan_free(&plans->context);
    pi0_plan_free(&plans->schedule);
    pi0_plan_free(&plans->denoise);
}

pi0_status pi0_policy_emit(const pi0_arch *arch, const pi0_policy_sizes *sizes, double min_period, double max_period,
                           pi0_policy_plans *plans, pi0_policy_io *io, pi0_error *err)
{
    int max_rows[PI0_ROWS_COUNT];
    fill_max_rows(arch, sizes, max_rows);
    *plans = (pi0_policy_plans){0};
    io->state = io->context_state = -1;
    io->n_tables = 0;
    pi0_status status;
    PI0_TRY_GOTO(pi0_plan_create("context", max_rows, arch->vision.tokens, &plans->context, err));
    emit_context(plans->context, arch, sizes, io);
    PI0_TRY_GOTO(pi0_plan_finish(plans->context));
    if (sizes->time_fold) {
        PI0_TRY_GOTO(pi0_plan_create("schedule", max_rows, arch->vision.tokens, &plans->schedule, err));
        emit_schedule(plans->schedule, arch, min_period, max_period, io);
        PI0_TRY_GOTO(pi0_plan_finish(plans->schedule));
    }
    PI0_TRY_GOTO(pi0_plan_create("denoise", max_rows, arch->vision.tokens, &plans->denoise, err));
    emit_denoise(plans->denoise, arch, sizes, min_period, max_period, io);
    PI0_TRY_GOTO(pi0_plan_finish(plans->denoise));
    return PI0_OK;
fail:
    pi0_policy_free(plans);
    return status;
}
