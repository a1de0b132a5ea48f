/* One robot's observation: what was set, checked as it is set. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"

/* ------------------------------------------------------------------ memory */

static size_t take(size_t *at, size_t bytes)
{
    const size_t from = *at;
    *at += pi0_round_up(bytes, PI0_ALIGN);
    return from;
}

pi0_session_layout pi0_session_layout_of(const pi0_arch *arch, const pi0_policy_sizes *sizes, int action_dim)
{
    const size_t picture = (size_t)arch->vision.side * (size_t)arch->vision.side * 3, rows = (size_t)sizes->horizon;
    pi0_session_layout l = {.used = pi0_round_up(sizeof(pi0_session), PI0_ALIGN)};
    for (int slot = 0; slot < sizes->cameras; slot++)
        l.pixels[slot] = take(&l.used, picture * sizeof(float));
    l.noise = take(&l.used, rows * (size_t)arch->action_dim * sizeof(float));
    l.raw = take(&l.used, rows * (size_t)arch->action_dim * sizeof(float));
    l.actions = take(&l.used, rows * (size_t)pi0_max_int(action_dim, 1) * sizeof(double));
    l.bytes = pi0_round_up(l.used, pi0_page_bytes());
    return l;
}

static void raise_to(atomic_uint_fast64_t *most, uint64_t now)
{
    uint_fast64_t seen = atomic_load(most);
    while (seen < now && !atomic_compare_exchange_weak(most, &seen, now)) {
    }
}

/* The model's counters follow what the session holds now. */
static void count_memory(pi0_session *session, uint64_t bytes, uint64_t used)
{
    pi0_model *model = session->model;
    const uint64_t all = atomic_fetch_add(&model->sessions.bytes, bytes - session->bytes) + bytes - session->bytes;
    atomic_fetch_add(&model->sessions.used, used - session->used);
    raise_to(&model->sessions.most_bytes, all);
    session->bytes = bytes;
    session->used = used;
}

/* After a call that may have grown the session's scratch memory: says so when that was refused. */
static pi0_status recount(pi0_session *session, pi0_status status)
{
    const pi0_session_layout l = pi0_session_layout_of(&session->model->arch, &session->model->sizes, session->model->facts.action_dim);
    const size_t scratch = session->scratch.bytes + session->prompt_room.ids.bytes + session->prompt_room.work.bytes;
    count_memory(session, l.bytes + scratch, l.used + scratch);
    if (status == PI0_ERR_MEMORY)
        atomic_fetch_add(&session->model->sessions.failures, 1);
    return status;
}

pi0_session_memory pi0_model_sessions(const pi0_model *model)
{
    const uint64_t bytes = atomic_load(&model->sessions.bytes), used = atomic_load(&model->sessions.used);
    return (pi0_session_memory){.open = atomic_load(&model->sessions.open),
                                .most_open = atomic_load(&model->sessions.most_open),
                                .bytes = bytes,
                                .most_bytes = atomic_load(&model->sessions.most_bytes),
                                .unused_bytes = bytes > used ? bytes - used : 0, /* another thread may be between the two */
                                .failures = atomic_load(&model->sessions.failures)};
}

/* One block of pages, all of a model's sessions alike: nothing is left over between them when they come and go. */
pi0_status pi0_session_open(pi0_model *model, uint64_t seed, pi0_session **out, pi0_error *err)
{
    const pi0_session_layout l = pi0_session_layout_of(&model->arch, &model->sizes, model->facts.action_dim);
    uint8_t *pages = pi0_alloc_pages(l.bytes);
    *out = NULL;
    if (!pages) {
        atomic_fetch_add(&model->sessions.failures, 1);
        return pi0_fail_memory(err, l.bytes, "a session");
    }
    pi0_session *session = (pi0_session *)(void *)pages;
    session->model = model;
    for (int slot = 0; slot < model->facts.n_slots; slot++)
        session->pixels[slot] = (float *)(void *)(pages + l.pixels[slot]);
    session->noise = (float *)(void *)(pages + l.noise);
    session->raw = (float *)(void *)(pages + l.raw);
    session->actions = (double *)(void *)(pages + l.actions);
    raise_to(&model->sessions.most_open, atomic_fetch_add(&model->sessions.open, 1) + 1);
    pi0_session_reset(session, seed);
    pi0_status status = recount(session, pi0_prompt_room_reserve(model->recipe, model->tokenizer, NULL, &session->prompt_room, err));
    if (status != PI0_OK)
        pi0_session_close(&session);
    *out = session;
    return status;
}

void pi0_session_close(pi0_session **handle)
{
    if (!handle || !*handle)
        return;
    pi0_session *session = *handle;
    pi0_model *model = session->model;
    pi0_free(session->prompt);
    pi0_scratch_release(&session->scratch);
    pi0_prompt_room_release(&session->prompt_room);
    pi0_stages_free(session);
    count_memory(session, 0, 0);
    atomic_fetch_sub(&model->sessions.open, 1);
    pi0_free_pages(session, pi0_session_layout_of(&model->arch, &model->sizes, model->facts.action_dim).bytes);
    *handle = NULL;
}

/* ------------------------------------------------------------------ the observation as a whole */

static void clear_observation(pi0_session *session)
{
    memset(session->has_image, 0, sizeof session->has_image);
    session->prepared = false;
    session->has_state = session->has_noise = session->preprocessed = session->has_tokens = session->has_model_state = false;
    session->preprocess_ms = 0;
    pi0_free(session->prompt);
    session->prompt = NULL;
}

void pi0_session_reset(pi0_session *session, uint64_t seed)
{
    clear_observation(session);
    session->seed = seed;
    session->inferences = 0;
    session->has_result = session->has_actions = false;
    session->timing = (pi0_timing){0};
    pi0_stages_clear(session);
}

/* ------------------------------------------------------------------ raw observation */

/* A raw and a preprocessed observation do not mix: whichever kind is set last starts afresh. */
static pi0_status begin_raw(pi0_session *session, pi0_error *err)
{
    if (session->model->preprocessed)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "this model was opened for preprocessed inputs only (pi0_options.preprocessed)");
    if (session->preprocessed)
        clear_observation(session);
    return PI0_OK;
}

pi0_status pi0_set_image(pi0_session *session, const char *name, const pi0_array *image, pi0_error *err)
{
    PI0_TRY(begin_raw(session, err));
    const pi0_recipe_facts *facts = &session->model->facts;
    int slot;
    PI0_TRY(pi0_recipe_camera(session->model->recipe, name, &slot, err));
    if (slot < 0) /* a camera that the robot has and the model does not look at */
        return PI0_OK;
    session->has_image[slot] = false;
    if (!image)
        return PI0_OK;
    const uint64_t start = pi0_now_ns();
    const int64_t span = pi0_span_begin(session->model->tracing, "preprocess", slot);
    pi0_status status = pi0_image_to_input(image, facts->resize, facts->image_size, session->pixels[slot], &session->scratch, err);
    pi0_span_end(session->model->tracing, span);
    session->preprocess_ms += (double)(pi0_now_ns() - start) * 1e-6;
    recount(session, status);
    if (status != PI0_OK && err) {
        char detail[sizeof err->where];
        memcpy(detail, err->where, sizeof detail);
        pi0_err_where(err, "image.%s%s%.400s", facts->slots[slot], *detail ? ": " : "", detail);
    }
    PI0_TRY(status);
    session->has_image[slot] = true;
    return PI0_OK;
}

pi0_status pi0_set_state(pi0_session *session, const double *state, size_t count, pi0_error *err)
{
    PI0_TRY(begin_raw(session, err));
    session->has_state = false;
    if (count != (size_t)session->model->facts.state_dim) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the state has the wrong number of values");
        pi0_err_where(err, "state");
        pi0_err_expected(err, "%d values, the robot's own order and units", session->model->facts.state_dim);
        pi0_err_got(err, "%zu values", count);
        return status;
    }
    for (size_t i = 0; i < count; i++)
        if (!isfinite(state[i])) {
            pi0_status status = pi0_fail(err, PI0_ERR_NONFINITE, "the state holds a value that is not finite");
            pi0_err_where(err, "state[%zu]", i);
            pi0_err_got(err, "%g", state[i]);
            return status;
        }
    memcpy(session->raw_state, state, count * sizeof *state);
    session->has_state = true;
    return PI0_OK;
}

pi0_status pi0_set_prompt(pi0_session *session, const char *prompt, pi0_error *err)
{
    PI0_TRY(begin_raw(session, err));
    char *copy = NULL;
    if (prompt) {
        if (strlen(prompt) > PI0_MAX_PROMPT_BYTES)
            return pi0_fail(err, PI0_ERR_ARGUMENT, "the prompt is longer than %d bytes", PI0_MAX_PROMPT_BYTES);
        copy = pi0_strdup(prompt);
        if (!copy)
            return recount(session, pi0_fail_memory(err, strlen(prompt), "the prompt"));
    }
    pi0_status status =
        recount(session, pi0_prompt_room_reserve(session->model->recipe, session->model->tokenizer, prompt, &session->prompt_room, err));
    if (status != PI0_OK) {
        pi0_free(copy);
        return status;
    }
    pi0_free(session->prompt);
    session->prompt = copy;
    session->has_tokens = false;
    return PI0_OK;
}

static pi0_status check_token_count(const pi0_session *session, size_t count, pi0_error *err)
{
    if (count >= 1 && count <= (size_t)session->model->sizes.max_tokens)
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the prompt has too many or too few tokens");
    pi0_err_where(err, "tokens");
    pi0_err_expected(err, "1 .. %d", session->model->sizes.max_tokens);
    pi0_err_got(err, "%zu", count);
    return status;
}

pi0_status pi0_set_tokens(pi0_session *session, const int64_t *ids, size_t count, pi0_error *err)
{
    PI0_TRY(begin_raw(session, err));
    PI0_TRY(check_token_count(session, count, err));
    memcpy(session->tokens, ids, count * sizeof *ids);
    session->n_tokens = count;
    session->has_tokens = true;
    return PI0_OK;
}

pi0_status pi0_set_noise(pi0_session *session, const float *noise, int rows, int cols, pi0_error *err)
{
    const int horizon = session->model->sizes.horizon, width = session->model->arch.action_dim;
    session->has_noise = false;
    if (rows != horizon || cols != width) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the noise has the wrong shape");
        pi0_err_where(err, "noise");
        pi0_err_expected(err, "[%d, %d]: one independent row for each action; it is never repeated or cut", horizon, width);
        pi0_err_got(err, "[%d, %d]", rows, cols);
        if (cols == width && rows >= 1 && rows <= PI0_MAX_HORIZON)
            pi0_err_hint(err, "--horizon %d, if that many rows are wanted: it is fixed when the model is opened", rows);
        else
            pi0_err_hint(err, "give noise of that shape, or none: it is drawn then");
        return status;
    }
    for (int i = 0; i < rows * cols; i++)
        if (!isfinite(noise[i])) {
            pi0_status status = pi0_fail(err, PI0_ERR_NONFINITE, "the noise holds a value that is not finite");
            pi0_err_where(err, "noise[%d,%d]", i / cols, i % cols);
            return status;
        }
    memcpy(session->noise, noise, (size_t)rows * (size_t)cols * sizeof *noise);
    session->has_noise = true;
    return PI0_OK;
}

/* ------------------------------------------------------------------ arrays */

static pi0_status wrong_shape(const pi0_array *array, const char *expected, pi0_error *err)
{
    char got[128] = "[";
    for (int i = 0; i < array->rank; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", i ? ", " : "", (long long)array->shape[i]);
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "an array has the wrong shape or type");
    pi0_err_where(err, "%s", array->name);
    pi0_err_expected(err, "%s", expected);
    pi0_err_got(err, "%s %s]", pi0_dtype_name(array->dtype), got);
    return status;
}

/* [n], or [1, n] as batch-of-one files have it. */
static bool is_vector(const pi0_array *array, size_t *count)
{
    *count = pi0_array_count(array);
    return array->dtype != PI0_TEXT && (array->rank == 1 || (array->rank == 2 && array->shape[0] == 1));
}

static pi0_status set_noise_array(pi0_session *session, const pi0_array *array, pi0_error *err)
{
    const int lead = array->rank == 3 && array->shape[0] == 1; /* [1,H,A] */
    const bool floats = array->dtype == PI0_F32 || array->dtype == PI0_F64 || array->dtype == PI0_F16;
    if (array->rank - lead != 2 || !floats)
        return wrong_shape(array, "f32 (or f64, f16) [H, A] or [1, H, A]", err);
    const size_t count = pi0_array_count(array);
    const size_t wanted = (size_t)session->model->sizes.horizon * (size_t)session->model->arch.action_dim;
    const int64_t rows = array->shape[lead], cols = array->shape[lead + 1];
    if (count != wanted || rows > PI0_MAX_HORIZON || cols > PI0_MAX_DIM) {
        char expected[64];
        snprintf(expected, sizeof expected, "[%d, %d]", session->model->sizes.horizon, session->model->arch.action_dim);
        return wrong_shape(array, expected, err);
    }
    float *values = pi0_alloc_array(count, sizeof *values);
    if (!values)
        return pi0_fail_memory(err, count * sizeof *values, "the noise");
    pi0_status status = pi0_array_to_f32(array, values, count, err);
    if (status == PI0_OK)
        status = pi0_set_noise(session, values, (int)rows, (int)cols, err);
    pi0_free(values);
    return status;
}

static pi0_status set_state_array(pi0_session *session, const pi0_array *array, pi0_error *err)
{
    size_t count;
    if (!is_vector(array, &count) || count > PI0_MAX_DIM)
        return wrong_shape(array, "a vector of the robot's state values", err);
    double values[PI0_MAX_DIM];
    PI0_TRY(pi0_array_to_f64(array, values, count, err));
    return pi0_set_state(session, values, count, err);
}

static pi0_status set_prompt_array(pi0_session *session, const pi0_array *array, pi0_error *err)
{
    const bool bytes = (array->dtype == PI0_U8 || array->dtype == PI0_I8) && array->rank <= 1;
    if (array->dtype != PI0_TEXT && !bytes)
        return wrong_shape(array, "text: a 0-d string, or bytes", err);
    char *text = pi0_alloc(array->bytes + 1);
    if (!text)
        return pi0_fail_memory(err, array->bytes, "the prompt");
    memcpy(text, array->data, array->bytes);
    pi0_status status;
    if (memchr(text, 0, array->bytes))
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "the prompt holds a NUL byte");
    else
        status = pi0_set_prompt(session, text, err);
    pi0_free(text);
    return status;
}

/* ------------------------------------------------------------------ preprocessed inputs */

static int slot_by_name(const pi0_session *session, const char *name)
{
    for (int slot = 0; slot < session->model->facts.n_slots; slot++)
        if (!strcmp(session->model->facts.slots[slot], name))
            return slot;
    return -1;
}

static pi0_status unknown_array(const pi0_session *session, const char *name, bool preprocessed, pi0_error *err)
{
    const pi0_recipe_facts *facts = &session->model->facts;
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the observation holds an array that this model does not know");
    pi0_err_where(err, "%s", name);
    pi0_err_hint(err, "known names:");
    for (int slot = 0; slot < facts->n_slots; slot++) {
        if (preprocessed)
            pi0_err_item(err, "image.%s", facts->slots[slot]);
        else if (!facts->empty[slot])
            pi0_err_item(err, "%s (or %s)", facts->keys[slot], facts->slots[slot]);
    }
    pi0_err_item(err, preprocessed ? "tokens" : "prompt");
    pi0_err_item(err, "state");
    pi0_err_item(err, "noise");
    return status;
}

/* -3 is what LeRobot 0.4 padded with; what lies outside is a picture in other units. */
static pi0_status check_pixels(const char *name, const float *pixels, size_t count, pi0_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (isfinite(pixels[i]) && pixels[i] >= -3.001f && pixels[i] <= 1.001f)
            continue;
        pi0_status status = isfinite(pixels[i]) ? pi0_fail(err, PI0_ERR_ARGUMENT, "a preprocessed picture is out of range")
                                                : pi0_fail(err, PI0_ERR_NONFINITE, "a picture holds a value that is not finite");
        pi0_err_where(err, "%s, element %zu", name, i);
        pi0_err_expected(err, "values in [-1, 1]; -3 in LeRobot 0.4's borders");
        pi0_err_got(err, "%g", (double)pixels[i]);
        pi0_err_hint(err, "a raw picture (0 .. 255) belongs into --image or --obs");
        return status;
    }
    return PI0_OK;
}

static pi0_status set_picture_input(pi0_session *session, const pi0_array *input, pi0_error *err)
{
    const int slot = slot_by_name(session, input->name + 6);
    const int side = session->model->facts.image_size;
    if (slot < 0)
        return unknown_array(session, input->name, true, err);
    const size_t count = (size_t)side * (size_t)side * 3;
    const int lead = input->rank == 4 && input->shape[0] == 1;
    if (input->rank - lead != 3 || input->shape[lead] != side || input->shape[lead + 1] != side || input->shape[lead + 2] != 3)
        return wrong_shape(input, "[S, S, 3] in [-1, 1]", err);
    if (input->dtype != PI0_F32 && input->dtype != PI0_F64 && input->dtype != PI0_F16)
        return wrong_shape(input, "floats: the picture as it enters the vision tower, in [-1, 1]", err);
    session->has_image[slot] = false;
    PI0_TRY(pi0_array_to_f32(input, session->pixels[slot], count, err));
    PI0_TRY(check_pixels(input->name, session->pixels[slot], count, err));
    session->has_image[slot] = true;
    return PI0_OK;
}

static pi0_status set_tokens_input(pi0_session *session, const pi0_array *input, pi0_error *err)
{
    size_t count;
    const bool integers = input->dtype == PI0_I64 || input->dtype == PI0_I32 || input->dtype == PI0_U32 || input->dtype == PI0_U64;
    if (!is_vector(input, &count) || !integers)
        return wrong_shape(input, "[n] token ids, integers", err);
    PI0_TRY(check_token_count(session, count, err));
    session->has_tokens = false;
    PI0_TRY(pi0_array_to_i64(input, session->tokens, count, err));
    session->n_tokens = count;
    session->has_tokens = true;
    return PI0_OK;
}

static pi0_status set_state_input(pi0_session *session, const pi0_array *input, pi0_error *err)
{
    size_t count;
    char expected[64];
    snprintf(expected, sizeof expected, "[%d]: normalised and padded", session->model->arch.action_dim);
    if (!is_vector(input, &count) || count != (size_t)session->model->arch.action_dim)
        return wrong_shape(input, expected, err);
    session->has_model_state = false;
    PI0_TRY(pi0_array_to_f32(input, session->model_state, count, err));
    for (size_t i = 0; i < count; i++)
        if (!isfinite(session->model_state[i])) {
            pi0_status status = pi0_fail(err, PI0_ERR_NONFINITE, "the state holds a value that is not finite");
            pi0_err_where(err, "state[%zu]", i);
            return status;
        }
    session->has_model_state = true;
    return PI0_OK;
}

pi0_status pi0_set_input(pi0_session *session, const pi0_array *input, pi0_error *err)
{
    if (!session->preprocessed) {
        clear_observation(session);
        session->preprocessed = true;
    }
    if (!strncmp(input->name, "image.", 6))
        return set_picture_input(session, input, err);
    if (!strcmp(input->name, "tokens"))
        return set_tokens_input(session, input, err);
    if (!strcmp(input->name, "state"))
        return set_state_input(session, input, err);
    if (!strcmp(input->name, "noise"))
        return set_noise_array(session, input, err);
    return unknown_array(session, input->name, true, err);
}

/* A camera may be named by its key, its short key or its slot; two names for one camera would make the order of arrays matter. */
static pi0_status set_camera_array(pi0_session *session, const pi0_array *array, bool given[PI0_MAX_CAMERAS], pi0_error *err)
{
    int slot;
    if (pi0_recipe_camera(session->model->recipe, array->name, &slot, NULL) != PI0_OK)
        return unknown_array(session, array->name, false, err);
    if (slot >= 0 && given[slot]) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the observation holds one camera under two names");
        pi0_err_where(err, "%s", array->name);
        pi0_err_expected(err, "one picture for slot %s", session->model->facts.slots[slot]);
        return status;
    }
    if (slot >= 0)
        given[slot] = true;
    return pi0_set_image(session, array->name, array, err);
}

/* Not the observation's: the stages and gates of `pi0 check`. */
static const char *const reference_prefixes[] = {"ref/", "gate/", NULL};

static bool is_reference(const char *name)
{
    for (const char *const *prefix = reference_prefixes; *prefix; prefix++)
        if (strncmp(name, *prefix, strlen(*prefix)) == 0)
            return true;
    return false;
}

pi0_status pi0_observation_read(const char *path, pi0_arrays **out, pi0_error *err)
{
    PI0_TRY(pi0_arrays_read_without(path, reference_prefixes, out, err));
    if (pi0_arrays_count(*out) != 1 || *pi0_arrays_at(*out, 0)->name)
        return PI0_OK;
    pi0_arrays_free(out);
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "a single array is no observation");
    pi0_err_where(err, "%s", path);
    pi0_err_expected(err, "an .npz of named arrays: --obs FILE.npz");
    pi0_err_got(err, "an .npy, whose array has no name");
    pi0_err_hint(err, "--image CAMERA=FILE.npy, --state FILE.npy and --noise FILE.npy take single arrays");
    return status;
}

pi0_status pi0_set_observation(pi0_session *session, const pi0_arrays *arrays, int preprocessed, pi0_error *err)
{
    bool given[PI0_MAX_CAMERAS] = {false};
    clear_observation(session);
    session->preprocessed = preprocessed != 0;
    for (size_t i = 0; i < pi0_arrays_count(arrays); i++) {
        const pi0_array *array = pi0_arrays_at(arrays, i);
        if (is_reference(array->name))
            continue;
        if (preprocessed)
            PI0_TRY(pi0_set_input(session, array, err));
        else if (!strcmp(array->name, "state"))
            PI0_TRY(set_state_array(session, array, err));
        else if (!strcmp(array->name, "prompt"))
            PI0_TRY(set_prompt_array(session, array, err));
        else if (!strcmp(array->name, "noise"))
            PI0_TRY(set_noise_array(session, array, err));
        else
            PI0_TRY(set_camera_array(session, array, given, err));
    }
    return PI0_OK;
}
