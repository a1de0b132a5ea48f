/* The stages of the last inference, kept for dumps and comparison when the model was opened with `stages`. */
#include <stdarg.h>
#include <string.h>

#include "engine/engine.h"

void pi0_stages_clear(pi0_session *session)
{
    for (size_t i = 0; i < session->n_stages; i++)
        pi0_free(session->stages[i].data);
    session->n_stages = 0;
}

void pi0_stages_free(pi0_session *session)
{
    pi0_stages_clear(session);
    pi0_free(session->stages);
    session->stages = NULL;
    session->cap_stages = 0;
}

static bool grow(pi0_session *session)
{
    if (session->n_stages < session->cap_stages)
        return true;
    const size_t bigger = session->cap_stages ? session->cap_stages * 2 : 128;
    pi0_stage_record *fresh = pi0_alloc_array(bigger, sizeof *fresh);
    if (!fresh)
        return false;
    if (session->n_stages)
        memcpy(fresh, session->stages, session->n_stages * sizeof *fresh);
    pi0_free(session->stages);
    session->stages = fresh;
    session->cap_stages = bigger;
    return true;
}

pi0_status pi0_stages_add(pi0_session *session, pi0_dtype dtype, const void *data, int rank, const int64_t *shape, pi0_error *err,
                          const char *name, ...)
{
    size_t bytes;
    if (!pi0_shape_bytes(shape, rank, pi0_dtype_size(dtype), &bytes))
        return pi0_fail(err, PI0_ERR_INTERNAL, "a stage is too large");
    void *copy = pi0_alloc(bytes ? bytes : 1);
    if (!copy || !grow(session)) {
        pi0_free(copy);
        return pi0_fail_memory(err, bytes, "a stage");
    }
    if (bytes)
        memcpy(copy, data, bytes);
    pi0_stage_record *record = &session->stages[session->n_stages++];
    *record = (pi0_stage_record){.array = {.dtype = dtype, .rank = rank, .data = copy, .bytes = bytes}, .data = copy};
    memcpy(record->array.shape, shape, (size_t)rank * sizeof *shape);
    va_list arguments;
    va_start(arguments, name);
    vsnprintf(record->name, sizeof record->name, name, arguments);
    va_end(arguments);
    return PI0_OK;
}

size_t pi0_stage_count(const pi0_session *session)
{
    return session->n_stages;
}

const char *pi0_stage_name(const pi0_session *session, size_t index)
{
    return index < session->n_stages ? session->stages[index].name : NULL;
}

pi0_status pi0_stage(const pi0_session *session, const char *name, pi0_array *out, pi0_error *err)
{
    for (size_t i = 0; i < session->n_stages; i++)
        if (!strcmp(session->stages[i].name, name)) {
            *out = session->stages[i].array;
            out->name = session->stages[i].name;
            return PI0_OK;
        }
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the last inference has no stage '%s'", name);
    if (!session->model->stages)
        pi0_err_hint(err, "open the model with pi0_options.stages");
    else if (!session->n_stages)
        pi0_err_hint(err, "run an inference first");
    return status;
}
