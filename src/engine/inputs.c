/* One session's observation -> one lane's model inputs: tokens, normalised state, noise. Pictures were resized when they were set. */
#include <string.h>

#include "engine/engine.h"

static pi0_status missing(pi0_error *err, const char *what, const char *hint)
{
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the observation has no %s", what);
    pi0_err_hint(err, "%s", hint);
    return status;
}

static pi0_status check_cameras(const pi0_session *session, pi0_error *err)
{
    const pi0_recipe_facts *facts = &session->model->facts;
    bool any = false;
    for (int slot = 0; slot < facts->n_slots; slot++)
        any |= session->has_image[slot];
    for (int slot = 0; slot < facts->n_slots; slot++) {
        const bool required = facts->required[slot] && !session->preprocessed;
        if (session->has_image[slot] || (any && !required))
            continue;
        if (facts->empty[slot])
            continue;
        pi0_status status = any ? pi0_fail(err, PI0_ERR_ARGUMENT, "the observation lacks a camera that this model requires")
                                : pi0_fail(err, PI0_ERR_ARGUMENT, "the observation has no picture");
        pi0_err_where(err, "%s", any ? facts->keys[slot] : "");
        pi0_err_hint(err, "cameras of this model:");
        for (int i = 0; i < facts->n_slots; i++)
            if (!facts->empty[i])
                pi0_err_item(err, "%s (slot %s)%s%s", facts->keys[i], facts->slots[i], facts->required[i] ? ", required" : "",
                             session->has_image[i] ? ", given" : "");
        return status;
    }
    return PI0_OK;
}

static pi0_status check_tokens(const pi0_session *session, pi0_error *err)
{
    for (size_t i = 0; i < session->n_tokens; i++)
        if (session->tokens[i] < 0 || session->tokens[i] >= session->model->arch.vocab) {
            pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "a token id lies outside the model's table");
            pi0_err_where(err, "tokens[%zu]", i);
            pi0_err_expected(err, "0 .. %d", session->model->arch.vocab - 1);
            pi0_err_got(err, "%lld", (long long)session->tokens[i]);
            return status;
        }
    return PI0_OK;
}

static pi0_status make_raw_inputs(pi0_session *session, pi0_error *err)
{
    pi0_model *model = session->model;
    if (!session->has_state)
        return missing(err, "state", "set it: --state V,V,... or an array 'state'");
    double text_state[PI0_MAX_DIM];
    PI0_TRY(pi0_recipe_state(model->recipe, session->raw_state, model->arch.action_dim, session->model_state, text_state, err));
    if (session->has_tokens)
        return PI0_OK;
    const uint64_t start = pi0_now_ns();
    const int64_t span = pi0_span_begin(model->tracing, "tokenize", -1);
    PI0_TRY(pi0_recipe_prompt(model->recipe, model->tokenizer, session->prompt, text_state, &model->log, session->tokens, PI0_MAX_TOKENS,
                              &session->n_tokens, &session->prompt_room, err));
    pi0_span_end(model->tracing, span);
    session->timing.tokenize = (double)(pi0_now_ns() - start) * 1e-6;
    return PI0_OK;
}

pi0_status pi0_prepare_inputs(pi0_session *session, pi0_error *err)
{
    const uint64_t start = pi0_now_ns();
    pi0_model *model = session->model;
    const int64_t span = pi0_span_begin(model->tracing, "preprocess", -1);
    session->timing = (pi0_timing){0};
    PI0_TRY(check_cameras(session, err));
    if (!session->preprocessed) {
        PI0_TRY(make_raw_inputs(session, err));
    } else {
        if (!session->has_tokens)
            return missing(err, "tokens", "a preprocessed observation needs the array 'tokens'");
        if (!session->has_model_state && !model->arch.pi05)
            return missing(err, "state", "a preprocessed observation needs the array 'state'");
    }
    PI0_TRY(check_tokens(session, err));
    if (!session->has_noise)
        pi0_random_normal(session->seed, session->inferences, session->noise,
                          (size_t)model->sizes.horizon * (size_t)model->arch.action_dim);
    session->timing.preprocess = session->preprocess_ms + (double)(pi0_now_ns() - start) * 1e-6 - session->timing.tokenize;
    pi0_span_end(model->tracing, span); /* after an error the inference's span ends it */
    return PI0_OK;
}
