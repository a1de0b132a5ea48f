/* pi0_open_async: pi0_open on a thread of its own that can be watched and stopped. */
#include <stdatomic.h>
#include <string.h>

#include "engine/engine.h"

struct pi0_opening {
    const char *path;
    pi0_options options; /* with the progress function replaced by this file's */
    pi0_progress_fn progress;
    void *progress_user;
    atomic_bool cancelled;
    uint64_t start_ns;
    pthread_t thread;
    bool started;
    /* written by the thread and read by whoever polls */
    pthread_mutex_t lock;
    bool lock_ready;
    uint64_t stage_ns; /* when the stage began */
    pi0_open_state state;
    /* the thread's result, read once it has ended */
    pi0_model *model;
    pi0_status status;
    pi0_error err;
};

static int watch(void *user, const char *stage, uint64_t done, uint64_t total)
{
    pi0_opening *opening = user;
    pthread_mutex_lock(&opening->lock);
    if (strcmp(opening->state.stage, stage) != 0) {
        snprintf(opening->state.stage, sizeof opening->state.stage, "%s", stage);
        opening->stage_ns = pi0_now_ns();
    }
    opening->state.done = done;
    opening->state.total = total;
    pthread_mutex_unlock(&opening->lock);
    const int stop = opening->progress ? opening->progress(opening->progress_user, stage, done, total) : 0;
    return stop || atomic_load(&opening->cancelled);
}

static void *open_model(void *argument)
{
    pi0_opening *opening = argument;
    opening->status = pi0_open(opening->path, &opening->options, &opening->model, &opening->err);
    pthread_mutex_lock(&opening->lock);
    opening->state.finished = 1;
    pthread_mutex_unlock(&opening->lock);
    return NULL;
}

static void free_opening(pi0_opening **opening)
{
    pi0_close(&(*opening)->model);
    pi0_error_clear(&(*opening)->err);
    if ((*opening)->lock_ready)
        pthread_mutex_destroy(&(*opening)->lock);
    pi0_free(*opening);
    *opening = NULL;
}

pi0_status pi0_open_async(const char *path, const pi0_options *options, pi0_opening **out, pi0_error *err)
{
    *out = NULL;
    pi0_opening *opening = pi0_alloc(sizeof *opening);
    if (!opening)
        return pi0_fail_memory(err, sizeof *opening, "the opening of a model");
    atomic_init(&opening->cancelled, false);
    opening->path = path;
    if (options)
        opening->options = *options;
    else
        pi0_options_init(&opening->options);
    opening->progress = opening->options.progress;
    opening->progress_user = opening->options.progress_user;
    opening->options.progress = watch;
    opening->options.progress_user = opening;
    opening->start_ns = opening->stage_ns = pi0_now_ns();
    opening->lock_ready = pthread_mutex_init(&opening->lock, NULL) == 0;
    opening->started = opening->lock_ready && pthread_create(&opening->thread, NULL, open_model, opening) == 0;
    if (!opening->started) {
        free_opening(&opening);
        pi0_status status = pi0_fail(err, PI0_ERR_MEMORY, "cannot start the thread that opens a model");
        pi0_err_hint(err, "raise the limit on processes (ulimit -u, the container's pids limit)");
        return status;
    }
    *out = opening;
    return PI0_OK;
}

pi0_open_state pi0_opening_poll(pi0_opening *opening)
{
    pthread_mutex_lock(&opening->lock);
    pi0_open_state state = opening->state;
    const uint64_t now = pi0_now_ns(), stage_ns = opening->stage_ns;
    pthread_mutex_unlock(&opening->lock);
    state.elapsed_s = (double)(now - opening->start_ns) * 1e-9;
    state.left_s = -1;
    if (state.finished)
        state.left_s = 0;
    else if (state.done > 0 && state.total > 0)
        state.left_s = (double)(now - stage_ns) * 1e-9 * ((double)state.total / (double)state.done - 1);
    return state;
}

void pi0_opening_cancel(pi0_opening *opening)
{
    atomic_store(&opening->cancelled, true);
}

pi0_status pi0_opening_wait(pi0_opening **handle, pi0_model **out, pi0_error *err)
{
    if (out)
        *out = NULL;
    pi0_opening *opening = *handle;
    pthread_join(opening->thread, NULL);
    pi0_status status = opening->status;
    if (status != PI0_OK && err) {
        pi0_error_clear(err);
        *err = opening->err;
        opening->err = (pi0_error){0};
    } else if (status == PI0_OK && atomic_load(&opening->cancelled)) {
        status = pi0_fail(err, PI0_ERR_CANCELLED, "opening the model was cancelled");
        pi0_err_where(err, "%s: it had just been opened", opening->path);
    } else if (out) {
        *out = opening->model;
        opening->model = NULL;
    }
    free_opening(handle);
    return status;
}
