/* Inference: binds sessions to lanes, fills the parameter block, runs `context` once and `denoise` once a step. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"

typedef struct batch {
    pi0_model *model;
    pi0_session *const *sessions;
    int lanes, steps;
    int order[PI0_MAX_BATCH][PI0_MAX_CAMERAS]; /* slots in prefix order */
    int cameras[PI0_MAX_BATCH];                /* CAMERA rows of each lane */
    int valid[PI0_MAX_BATCH];                  /* prefix rows that are attended to */
} batch;

static size_t rows_bytes(const pi0_model *model, int rows)
{
    return (size_t)rows * (size_t)model->arch.action_dim * sizeof(float);
}

/* ------------------------------------------------------------------ the parameter block */

/* Prefix order of a lane's slots. LeRobot moves absent cameras behind the present ones; openpi keeps the places. */
static void order_cameras(batch *b, int lane)
{
    const pi0_session *session = b->sessions[lane];
    const pi0_recipe_facts *facts = &b->model->facts;
    const bool live = b->model->context.plan->live_rows;
    int n = 0;
    for (int round = 0; round < 2; round++) /* present ones, then absent ones; or all at once in place */
        for (int slot = 0; slot < facts->n_slots; slot++) {
            const bool now = facts->close_up || live ? session->has_image[slot] == (round == 0) : round == 0;
            if (now && !(live && !session->has_image[slot]))
                b->order[lane][n++] = slot;
        }
    b->cameras[lane] = n;
}

static void set_span(pi0_params *params, pi0_rows rows, int lane, int count)
{
    params->span[rows][lane] = (pi0_span){params->total[rows], count};
    params->total[rows] += count;
}

static void set_lane_rows(batch *b, int lane)
{
    pi0_model *model = b->model;
    pi0_params *p = &model->params;
    const int images = b->cameras[lane] * model->arch.vision.tokens;
    const int text = model->context.plan->live_rows ? (int)b->sessions[lane]->n_tokens : model->sizes.max_tokens;
    const int state = model->arch.pi05 ? 0 : 1, horizon = model->sizes.horizon;
    set_span(p, PI0_ROWS_CAMERA, lane, b->cameras[lane]);
    set_span(p, PI0_ROWS_IMAGE, lane, images);
    set_span(p, PI0_ROWS_TEXT, lane, text);
    set_span(p, PI0_ROWS_PREFIX, lane, images + text);
    set_span(p, PI0_ROWS_STATE, lane, state);
    set_span(p, PI0_ROWS_ACTION, lane, horizon);
    set_span(p, PI0_ROWS_SUFFIX, lane, state + horizon);
}

/* Which prefix rows count, and every row's position: the number of valid rows before it. */
static void set_lane_positions(batch *b, int lane)
{
    pi0_model *model = b->model;
    const pi0_session *session = b->sessions[lane];
    const pi0_span prefix = model->params.span[PI0_ROWS_PREFIX][lane], suffix = model->params.span[PI0_ROWS_SUFFIX][lane];
    const int tokens = model->arch.vision.tokens, images = b->cameras[lane] * tokens;
    int valid = 0;
    for (int row = 0; row < prefix.count; row++) {
        const bool counts = row < images ? session->has_image[b->order[lane][row / tokens]] : row - images < (int)session->n_tokens;
        model->arrays.prefix_mask[prefix.first + row] = counts;
        valid += counts;
        model->arrays.prefix_position[prefix.first + row] = pi0_max_int(valid - 1, 0);
    }
    const pi0_span state = model->params.span[PI0_ROWS_STATE][lane], action = model->params.span[PI0_ROWS_ACTION][lane];
    for (int row = 0; row < suffix.count; row++)
        model->arrays.suffix_position[suffix.first + row] = valid + row;
    for (int row = 0; row < state.count; row++)
        model->arrays.state_position[state.first + row] = valid + row;
    for (int row = 0; row < action.count; row++)
        model->arrays.action_position[action.first + row] = valid + state.count + row;
    b->valid[lane] = valid;
}

/* The flow time of every step. openpi adds dt to t in f32; LeRobot computes 1 + step*dt in f64 and rounds once (formats 11.1). */
static void fill_times(batch *b)
{
    pi0_model *model = b->model;
    const double dt = -1.0 / b->steps;
    model->params.dt = (float)dt;
    float time = 1.0f;
    for (int step = 0; step < b->steps; step++, time += (float)dt)
        model->arrays.time[step] = model->facts.time_in_f32 ? time : (float)(1.0 + step * dt);
}

static void fill_params(batch *b)
{
    pi0_model *model = b->model;
    pi0_params *p = &model->params;
    memset(p, 0, sizeof *p);
    p->lanes = b->lanes;
    for (int lane = 0; lane < b->lanes; lane++) {
        order_cameras(b, lane);
        set_lane_rows(b, lane);
        set_lane_positions(b, lane);
    }
    p->prefix_position = model->arrays.prefix_position;
    p->suffix_position = model->arrays.suffix_position;
    p->state_position = model->arrays.state_position;
    p->action_position = model->arrays.action_position;
    p->prefix_mask = model->context.plan->live_rows ? NULL : model->arrays.prefix_mask;
    p->time_row = model->arrays.time_row;
    fill_times(b);
}

static pi0_status write_inputs(batch *b, pi0_error *err)
{
    pi0_model *model = b->model;
    const size_t picture = (size_t)model->facts.image_size * (size_t)model->facts.image_size * 3 * sizeof(float);
    memset(model->arrays.tokens, 0, (size_t)model->params.total[PI0_ROWS_TEXT] * sizeof *model->arrays.tokens);
    for (int lane = 0; lane < b->lanes; lane++) {
        const pi0_session *session = b->sessions[lane];
        const pi0_span camera = model->params.span[PI0_ROWS_CAMERA][lane], text = model->params.span[PI0_ROWS_TEXT][lane];
        for (int i = 0; i < camera.count; i++)
            PI0_TRY(model->api->write(model->device, &model->pictures, (size_t)(camera.first + i) * picture,
                                      session->pixels[b->order[lane][i]], picture, err));
        for (size_t i = 0; i < session->n_tokens; i++)
            model->arrays.tokens[text.first + (int)i] = (int32_t)session->tokens[i];
        if (model->state.handle)
            PI0_TRY(model->api->write(model->device, &model->state, rows_bytes(model, model->params.span[PI0_ROWS_STATE][lane].first),
                                      session->model_state, rows_bytes(model, 1), err));
        PI0_TRY(model->api->write(model->device, &model->x, rows_bytes(model, model->params.span[PI0_ROWS_ACTION][lane].first),
                                  session->noise, rows_bytes(model, model->sizes.horizon), err));
    }
    return model->api->write(model->device, &model->tokens, 0, model->arrays.tokens,
                             (size_t)model->params.total[PI0_ROWS_TEXT] * sizeof *model->arrays.tokens, err);
}

/* ------------------------------------------------------------------ finite checks: the error names the stage */

static bool all_finite(const float *values, size_t count)
{
    float sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i] * 0.0f; /* NaN and infinity turn the sum into NaN */
    return sum == 0.0f;
}

static pi0_status not_finite(pi0_error *err, const char *stage, int index)
{
    pi0_status status = pi0_fail(err, PI0_ERR_NONFINITE, "a stage of the inference holds a value that is not finite; no action is given");
    if (index >= 0)
        pi0_err_where(err, "%s.%d", stage, index);
    else
        pi0_err_where(err, "%s", stage);
    pi0_err_hint(
        err, "pi0 inspect MODEL --tensors, pi0 check MODEL REF.npz: weights or statistics are damaged, or the input is far outside them");
    return status;
}

static pi0_status check_cache(batch *b, int layer, bool *finite, pi0_error *err)
{
    pi0_model *model = b->model;
    const size_t width = (size_t)(model->arch.prefix.kv_heads * model->arch.prefix.head_dim);
    for (int lane = 0; lane < b->lanes; lane++) {
        const pi0_span span = model->params.span[PI0_ROWS_PREFIX][lane];
        for (int which = 0; which < 2; which++) {
            const pi0_buffer *from = which ? &model->v[layer] : &model->k[layer];
            const size_t count = (size_t)span.count * width;
            PI0_TRY(model->api->read(model->device, from, (size_t)span.first * width * sizeof(float), model->host_rows,
                                     count * sizeof(float), err));
            for (int row = 0; row < span.count && *finite; row++) /* masked rows may hold anything */
                *finite = !model->arrays.prefix_mask[span.first + row] || all_finite(model->host_rows + (size_t)row * width, width);
        }
    }
    return PI0_OK;
}

static pi0_status check_vision(batch *b, pi0_error *err)
{
    pi0_model *model = b->model;
    const size_t count = (size_t)model->arch.vision.tokens * (size_t)model->arch.prefix.width, bytes = count * sizeof(float);
    for (int lane = 0; lane < b->lanes; lane++)
        for (int i = 0; i < b->cameras[lane]; i++) {
            const int slot = b->order[lane][i], picture = model->params.span[PI0_ROWS_CAMERA][lane].first + i;
            PI0_TRY(model->api->read(model->device, &model->vision, (size_t)picture * bytes, model->host_rows, bytes, err));
            if (b->sessions[lane]->has_image[slot] && !all_finite(model->host_rows, count)) {
                pi0_status status = not_finite(err, "vision", -1);
                pi0_err_where(err, "vision.%s", model->facts.slots[slot]);
                return status;
            }
        }
    return PI0_OK;
}

/* Whatever is not finite in an earlier layer reaches the last one, so that alone is looked at unless it is bad. */
static pi0_status check_context(batch *b, pi0_error *err)
{
    const int depth = b->model->arch.prefix.depth;
    bool finite = true;
    PI0_TRY(check_vision(b, err));
    PI0_TRY(check_cache(b, depth - 1, &finite, err));
    for (int layer = 0; layer < depth && !finite; layer++) {
        bool here = true;
        PI0_TRY(check_cache(b, layer, &here, err));
        if (!here)
            return not_finite(err, "prefix_k", layer);
    }
    return finite ? PI0_OK : not_finite(err, "prefix_k", depth - 1);
}

/* ------------------------------------------------------------------ stages */

static pi0_status keep_context_stages(batch *b, int lane, pi0_error *err)
{
    pi0_model *model = b->model;
    pi0_session *session = b->sessions[lane];
    const int side = model->facts.image_size, tokens = model->arch.vision.tokens, width = model->arch.prefix.width;
    const int kv_width = model->arch.prefix.kv_heads * model->arch.prefix.head_dim;
    const pi0_span prefix = model->params.span[PI0_ROWS_PREFIX][lane], image = model->params.span[PI0_ROWS_IMAGE][lane];
    for (int slot = 0; slot < model->facts.n_slots; slot++)
        if (session->has_image[slot])
            PI0_TRY(pi0_stages_add(session, PI0_F32, session->pixels[slot], 3, (int64_t[]){side, side, 3}, err, "image.%s",
                                   model->facts.slots[slot]));
    PI0_TRY(pi0_stages_add(session, PI0_I64, session->tokens, 1, (int64_t[]){(int64_t)session->n_tokens}, err, "tokens"));
    PI0_TRY(pi0_stages_add(session, PI0_F32, session->model_state, 1, (int64_t[]){model->arch.action_dim}, err, "state"));
    PI0_TRY(pi0_stages_add(session, PI0_F32, session->noise, 2, (int64_t[]){model->sizes.horizon, model->arch.action_dim}, err, "noise"));
    for (int i = 0; i < b->cameras[lane]; i++) {
        const int slot = b->order[lane][i];
        if (!session->has_image[slot])
            continue;
        const size_t bytes = (size_t)tokens * (size_t)width * sizeof(float);
        PI0_TRY(model->api->read(model->device, &model->vision, (size_t)(image.first + i * tokens) * (size_t)width * sizeof(float),
                                 model->host_rows, bytes, err));
        PI0_TRY(
            pi0_stages_add(session, PI0_F32, model->host_rows, 2, (int64_t[]){tokens, width}, err, "vision.%s", model->facts.slots[slot]));
    }
    for (int layer = 0; layer < 2 * model->arch.prefix.depth; layer++) {
        const bool is_v = layer % 2;
        const size_t row = (size_t)kv_width * sizeof(float);
        PI0_TRY(model->api->read(model->device, is_v ? &model->v[layer / 2] : &model->k[layer / 2], (size_t)prefix.first * row,
                                 model->host_rows, (size_t)prefix.count * row, err));
        int valid = 0;
        for (int r = 0; r < prefix.count; r++) /* valid rows close up */
            if (model->arrays.prefix_mask[prefix.first + r])
                memmove(model->host_rows + (size_t)valid++ * (size_t)kv_width, model->host_rows + (size_t)r * (size_t)kv_width, row);
        PI0_TRY(pi0_stages_add(session, PI0_F32, model->host_rows, 2, (int64_t[]){valid, kv_width}, err, "prefix_%s.%d", is_v ? "v" : "k",
                               layer / 2));
    }
    return PI0_OK;
}

static pi0_status keep_rows_stage(batch *b, const float *values, const char *name, int step, pi0_error *err)
{
    const pi0_model *model = b->model;
    const int64_t shape[] = {model->sizes.horizon, model->arch.action_dim};
    for (int lane = 0; lane < b->lanes; lane++) {
        const float *rows = values + (size_t)model->params.span[PI0_ROWS_ACTION][lane].first * (size_t)model->arch.action_dim;
        PI0_TRY(pi0_stages_add(b->sessions[lane], PI0_F32, rows, 2, shape, err, "%s.%d", name, step));
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ running */

/* The flow times that the next run of a plan reads, and which of them all action rows stand at. */
static void set_times(batch *b, int first, int count, int at)
{
    pi0_model *model = b->model;
    pi0_params *p = &model->params;
    p->time = model->arrays.time + first;
    p->span[PI0_ROWS_TIME][0] = (pi0_span){0, count};
    p->total[PI0_ROWS_TIME] = count;
    for (int row = 0; row < p->total[PI0_ROWS_ACTION]; row++)
        model->arrays.time_row[row] = at;
}

/* Before a step: its flow time, or with time-fold the tables that hold it, made anew when they do not yet. */
static pi0_status enter_step(batch *b, int step, pi0_error *err)
{
    pi0_model *model = b->model;
    if (!model->schedule.plan) {
        set_times(b, step, 1, 0);
        return PI0_OK;
    }
    if (model->scheduled.steps != b->steps || step < model->scheduled.first || step >= model->scheduled.first + model->scheduled.count) {
        const int count = pi0_min_int(model->sizes.times, b->steps - step);
        model->scheduled.steps = 0; /* nothing, should the run fail */
        set_times(b, step, count, 0);
        PI0_TRY(model->api->run(model->device, model->schedule.exec, &model->params, err));
        model->scheduled.steps = b->steps;
        model->scheduled.first = step;
        model->scheduled.count = count;
    }
    set_times(b, model->scheduled.first, model->scheduled.count, step - model->scheduled.first);
    return PI0_OK;
}

/* Spans that an error leaves open end with that of the inference. */
static pi0_status run_step(batch *b, int step, pi0_error *err)
{
    pi0_model *model = b->model;
    const int64_t span = pi0_span_begin(model->tracing, "step", step);
    const int rows = model->params.total[PI0_ROWS_ACTION];
    const size_t bytes = rows_bytes(model, rows), count = bytes / sizeof(float);
    PI0_TRY(enter_step(b, step, err));
    PI0_TRY(model->api->run(model->device, model->denoise.exec, &model->params, err));
    PI0_TRY(model->api->read(model->device, &model->velocity, 0, model->host_actions, bytes, err));
    if (!all_finite(model->host_actions, count))
        return not_finite(err, "velocity", step);
    if (model->stages)
        PI0_TRY(keep_rows_stage(b, model->host_actions, "velocity", step, err));
    PI0_TRY(model->api->read(model->device, &model->x_next, 0, model->host_actions, bytes, err));
    if (!all_finite(model->host_actions, count))
        return not_finite(err, "x", step);
    if (model->stages)
        PI0_TRY(keep_rows_stage(b, model->host_actions, "x", step, err));
    PI0_TRY(model->api->write(model->device, &model->x, 0, model->host_actions, bytes, err));
    pi0_span_end(model->tracing, span);
    return PI0_OK;
}

static pi0_status finish_lane(batch *b, int lane, pi0_error *err)
{
    pi0_model *model = b->model;
    pi0_session *session = b->sessions[lane];
    const int horizon = model->sizes.horizon, width = model->arch.action_dim, dim = model->facts.action_dim;
    const uint64_t start = pi0_now_ns();
    const int64_t span = pi0_span_begin(model->tracing, "post", -1);
    memcpy(session->raw, (const uint8_t *)model->host_actions + rows_bytes(model, model->params.span[PI0_ROWS_ACTION][lane].first),
           rows_bytes(model, horizon));
    session->has_actions = !session->preprocessed;
    if (session->has_actions) {
        PI0_TRY(pi0_recipe_actions(model->recipe, session->raw, horizon, width, session->raw_state, session->actions, err));
        for (int i = 0; i < horizon * dim; i++)
            if (!isfinite(session->actions[i]))
                return not_finite(err, "actions", -1);
    }
    if (model->stages) {
        PI0_TRY(pi0_stages_add(session, PI0_F32, session->raw, 2, (int64_t[]){horizon, width}, err, "actions_raw"));
        if (session->has_actions)
            PI0_TRY(pi0_stages_add(session, PI0_F64, session->actions, 2, (int64_t[]){horizon, dim}, err, "actions"));
    }
    pi0_span_end(model->tracing, span);
    session->timing.post = (double)(pi0_now_ns() - start) * 1e-6;
    session->inferences++;
    session->has_noise = false;
    session->has_result = true;
    return PI0_OK;
}

static void set_timing(batch *b, const pi0_timing *run, uint64_t start)
{
    for (int lane = 0; lane < b->lanes; lane++) {
        pi0_timing *t = &b->sessions[lane]->timing;
        t->vision = run->vision;
        t->prefix = run->prefix;
        t->denoise = run->denoise;
        t->total = (double)(pi0_now_ns() - start) * 1e-6 + b->sessions[lane]->preprocess_ms;
        b->sessions[lane]->preprocess_ms = 0;
    }
}

/* Pictures and prompts to the cache that the steps read. */
static pi0_status run_context(batch *b, pi0_timing *run, pi0_error *err)
{
    pi0_model *model = b->model;
    int64_t span = pi0_span_begin(model->tracing, "upload", -1);
    fill_params(b);
    PI0_TRY(write_inputs(b, err));
    pi0_span_end(model->tracing, span);
    const uint64_t start = pi0_now_ns();
    PI0_TRY(model->api->run(model->device, model->context.exec, &model->params, err));
    const double context = (double)(pi0_now_ns() - start) * 1e-6;
    run->vision = model->api->part_ms(model->context.exec, "vision");
    run->prefix = context - run->vision;
    span = pi0_span_begin(model->tracing, "check", -1);
    PI0_TRY(check_context(b, err));
    for (int lane = 0; lane < b->lanes && model->stages; lane++)
        PI0_TRY(keep_context_stages(b, lane, err));
    pi0_span_end(model->tracing, span);
    return PI0_OK;
}

static pi0_status run_batch(batch *b, pi0_error *err)
{
    pi0_model *model = b->model;
    const uint64_t start = pi0_now_ns();
    pi0_timing run = {0};
    for (int lane = 0; lane < b->lanes; lane++)
        if (!b->sessions[lane]->prepared)
            PI0_TRY(pi0_prepare_inputs(b->sessions[lane], err));
    PI0_TRY(run_context(b, &run, err));
    const uint64_t denoise_start = pi0_now_ns();
    const int64_t span = pi0_span_begin(model->tracing, "denoise", -1);
    for (int step = 0; step < b->steps; step++)
        PI0_TRY(run_step(b, step, err));
    pi0_span_end(model->tracing, span);
    run.denoise = (double)(pi0_now_ns() - denoise_start) * 1e-6;
    for (int lane = 0; lane < b->lanes; lane++)
        PI0_TRY(finish_lane(b, lane, err));
    set_timing(b, &run, start);
    return PI0_OK;
}

static pi0_status check_call(pi0_session *const *sessions, size_t n, int steps, pi0_error *err)
{
    if (!n || !sessions)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "pi0_infer was given no session");
    if (steps < 0 || steps > PI0_MAX_STEPS) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the number of steps is out of range");
        pi0_err_expected(err, "1 .. %d", PI0_MAX_STEPS);
        pi0_err_got(err, "%d", steps);
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        if (!sessions[i] || sessions[i]->model != sessions[0]->model)
            return pi0_fail(err, PI0_ERR_ARGUMENT, "all sessions of one pi0_infer call must belong to one model");
        for (size_t j = 0; j < i; j++)
            if (sessions[j] == sessions[i])
                return pi0_fail(err, PI0_ERR_ARGUMENT, "a session appears twice in one pi0_infer call");
    }
    return PI0_OK;
}

pi0_status pi0_infer(pi0_session *const *sessions, size_t n, int steps, pi0_error *err)
{
    PI0_TRY(check_call(sessions, n, steps, err));
    pi0_model *model = sessions[0]->model;
    for (size_t i = 0; i < n; i++) {
        sessions[i]->has_result = sessions[i]->has_actions = false;
        pi0_stages_clear(sessions[i]);
    }
    pthread_mutex_lock(&model->lock);
    pi0_status status = PI0_OK;
    for (size_t done = 0; done < n && status == PI0_OK;) {
        batch b = {.model = model,
                   .sessions = sessions + done,
                   .lanes = (int)(n - done < (size_t)model->sizes.lanes ? n - done : (size_t)model->sizes.lanes),
                   .steps = steps ? steps : model->facts.steps};
        const int64_t span = pi0_span_begin(model->tracing, "inference", -1);
        pi0_count_start(model->counters);
        status = run_batch(&b, err);
        pi0_count_end(model->counters, b.sessions, (size_t)b.lanes, status);
        pi0_span_end(model->tracing, span);
        done += (size_t)b.lanes;
    }
    pthread_mutex_unlock(&model->lock);
    return status;
}

/* ------------------------------------------------------------------ results */

const float *pi0_actions_raw(const pi0_session *session, int *rows, int *cols)
{
    if (rows)
        *rows = session->model->sizes.horizon;
    if (cols)
        *cols = session->model->arch.action_dim;
    return session->has_result ? session->raw : NULL;
}

const double *pi0_actions(const pi0_session *session, int *rows, int *cols)
{
    if (rows)
        *rows = session->model->sizes.horizon;
    if (cols)
        *cols = session->model->facts.action_dim;
    return session->has_result && session->has_actions ? session->actions : NULL;
}

int pi0_token_count(const pi0_session *session)
{
    return (int)session->n_tokens;
}

pi0_timing pi0_session_timing(const pi0_session *session)
{
    return session->timing;
}
