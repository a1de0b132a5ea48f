/* The largest inference there is, before the first one that counts: after it every page is in memory and every table is made. */
#include "engine/engine.h"

/* Grey pictures in every slot that can be given, the longest prompt, a state of zeros. */
static void fill(pi0_session *session)
{
    const pi0_model *model = session->model;
    session->preprocessed = session->has_tokens = session->has_model_state = true;
    for (int slot = 0; slot < model->facts.n_slots; slot++)
        session->has_image[slot] = !model->facts.empty[slot];
    session->n_tokens = (size_t)model->sizes.max_tokens;
}

/* What only this inference left behind. */
static void forget(pi0_model *model)
{
    atomic_store(&model->sessions.most_open, 0);
    atomic_store(&model->sessions.most_bytes, 0);
    for (size_t i = 0; i < model->n_layers; i++)
        model->layers[i].error = (pi0_product_error){0};
}

pi0_status pi0_warm(pi0_model *model, pi0_error *err)
{
    pi0_session *sessions[PI0_MAX_BATCH] = {NULL};
    pi0_status status = PI0_OK;
    int lanes = 0;
    for (; lanes < model->sizes.lanes && status == PI0_OK; lanes++)
        if ((status = pi0_session_open(model, 0, &sessions[lanes], err)) == PI0_OK)
            fill(sessions[lanes]);
    if (status == PI0_OK)
        status = pi0_infer(sessions, (size_t)lanes, 0, err);
    for (int lane = 0; lane < PI0_MAX_BATCH; lane++)
        pi0_session_close(&sessions[lane]);
    forget(model);
    return status;
}
