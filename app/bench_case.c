#include "bench_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "observation.h"
#include "stats.h"

enum { PICTURE_ROWS = 480, PICTURE_COLUMNS = 640 };

/* ------------------------------------------------------------------ a model and what it sees */

static pi0_status check_cameras(app_case *c, pi0_error *err)
{
    const pi0_info *info = pi0_model_info(c->model);
    int cameras = 0;
    for (int slot = 0; slot < info->n_slots; slot++)
        cameras += *info->keys[slot] != '\0';
    if (!c->settings.cameras)
        c->settings.cameras = cameras;
    if (c->settings.cameras <= cameras)
        return PI0_OK;
    app_err(err, PI0_ERR_ARGUMENT, "the model has fewer cameras");
    app_err_field(err->where, "--cameras");
    app_err_field(err->expected, "1 to %d", cameras);
    app_err_field(err->got, "%d", c->settings.cameras);
    return err->status;
}

/* A picture as cameras give them, which no resizing rule leaves as it is; and a robot that is not at rest. */
static pi0_status make_observation(app_case *c, pi0_error *err)
{
    c->picture = malloc((size_t)PICTURE_ROWS * PICTURE_COLUMNS * 3);
    if (!c->picture)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for a picture");
    for (int y = 0; y < PICTURE_ROWS; y++)
        for (int x = 0; x < PICTURE_COLUMNS * 3; x++)
            c->picture[(size_t)y * PICTURE_COLUMNS * 3 + (size_t)x] = (uint8_t)(x * 7 + y * 11 + x * y / 64);
    for (int i = 0; i < pi0_model_info(c->model)->state_dim; i++)
        c->state[i] = 0.01 * (i + 1);
    for (int i = 0; i < APP_MAX_IDS; i++)
        c->ids[i] = 2 + i % 100;
    return PI0_OK;
}

pi0_status app_case_open(app_case *c, const char *path, const pi0_options *options, const app_case_settings *settings, pi0_error *err)
{
    c->settings = *settings;
    pi0_options chosen = *options;
    chosen.max_batch = settings->batch;
    pi0_status status = pi0_open(path, &chosen, &c->model, err);
    for (int i = 0; i < settings->batch && status == PI0_OK; i++)
        status = pi0_session_open(c->model, (uint64_t)i, &c->sessions[i], err);
    if (status == PI0_OK && !c->settings.steps)
        c->settings.steps = pi0_model_info(c->model)->steps;
    if (status == PI0_OK)
        status = check_cameras(c, err);
    return status == PI0_OK ? make_observation(c, err) : status;
}

void app_case_close(app_case *c)
{
    for (int i = 0; i < APP_MAX_BATCH; i++)
        pi0_session_close(&c->sessions[i]);
    pi0_close(&c->model);
    free(c->picture);
    c->picture = NULL;
}

/* NULL: the one made up; else read and decoded for each camera, as each has its own. */
static pi0_status set_picture(const app_case *c, const char *file, const char *slot, pi0_session *session, pi0_error *err)
{
    const pi0_array picture = {.name = "",
                               .dtype = PI0_U8,
                               .rank = 3,
                               .shape = {PICTURE_ROWS, PICTURE_COLUMNS, 3},
                               .data = c->picture,
                               .bytes = (size_t)PICTURE_ROWS * PICTURE_COLUMNS * 3};
    if (!file)
        return pi0_set_image(session, slot, &picture, err);
    pi0_arrays *decoded = NULL;
    pi0_status status = pi0_image_read(file, &decoded, err);
    if (status == PI0_OK)
        status = pi0_set_image(session, slot, pi0_arrays_at(decoded, 0), err);
    pi0_arrays_free(&decoded);
    return status;
}

pi0_status app_case_observe(const app_case *c, const char *file, pi0_session *session, pi0_error *err)
{
    const pi0_info *info = pi0_model_info(c->model);
    pi0_status status = pi0_set_state(session, c->state, (size_t)info->state_dim, err);
    for (int slot = 0, given = 0; slot < info->n_slots && given < c->settings.cameras && status == PI0_OK; slot++)
        if (*info->keys[slot]) {
            status = set_picture(c, file, info->slots[slot], session, err);
            given++;
        }
    if (status != PI0_OK)
        return status;
    return c->settings.tokens ? pi0_set_tokens(session, c->ids, (size_t)c->settings.tokens, err)
                              : pi0_set_prompt(session, "pick up the red cube and put it into the bowl", err);
}

/* ------------------------------------------------------------------ runs */

/* The stages of the lanes' own add up; vision, prefix and denoise are done for all lanes at once. */
static pi0_status run_once(app_case *c, double ms[APP_STAGES], uint64_t *allocations, pi0_error *err)
{
    const double start = app_now_ms();
    const int batch = c->settings.batch;
    pi0_status status = PI0_OK;
    for (int i = 0; i < batch && status == PI0_OK; i++)
        status = app_case_observe(c, NULL, c->sessions[i], err);
    const uint64_t before = pi0_allocation_count();
    if (status == PI0_OK)
        status = pi0_infer(c->sessions, (size_t)batch, c->settings.steps, err);
    if (status != PI0_OK)
        return status;
    *allocations = pi0_allocation_count() - before;
    memset(ms, 0, APP_STAGES * sizeof *ms);
    ms[APP_TOTAL] = app_now_ms() - start;
    for (int i = 0; i < batch; i++) {
        const pi0_timing t = pi0_session_timing(c->sessions[i]);
        ms[APP_PREPROCESS] += t.preprocess;
        ms[APP_TOKENIZE] += t.tokenize;
        ms[APP_POST] += t.post;
        ms[APP_VISION] = t.vision;
        ms[APP_PREFIX] = t.prefix;
        ms[APP_DENOISE] = t.denoise;
    }
    return PI0_OK;
}

static pi0_status take_peak(const app_case *c, app_measured *out, pi0_error *err)
{
    double now = 0;
    pi0_status status = pi0_model_peak(c->model, &now, err);
    if (now > out->flop_per_s)
        out->flop_per_s = now;
    return status;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

pi0_status app_case_warm(app_case *c, app_measured *out, pi0_error *err)
{
    double ms[APP_STAGES];
    pi0_status status = run_once(c, ms, &out->allocations, err);
    if (status != PI0_OK)
        return status;
    out->first_ms = ms[APP_TOTAL];
    out->info = pi0_model_info(c->model);
    out->plan = pi0_model_memory(c->model);
    out->cameras = c->settings.cameras;
    out->steps = c->settings.steps;
    out->batch = c->settings.batch;
    out->tokens = pi0_token_count(c->sessions[0]);
    out->flop = pi0_model_flop(c->model, out->cameras, out->tokens, out->steps);
    return PI0_OK;
}

/* The machine's peak is taken between the runs: both see the same clock and the same neighbours. */
pi0_status app_case_measure(app_case *c, app_report *report, size_t runs, app_measured *out, pi0_error *err)
{
    double ms[APP_STAGES];
    for (int stage = 0; stage < APP_STAGES; stage++)
        if (!(out->ms[stage] = calloc(runs, sizeof(double))))
            return app_err(err, PI0_ERR_MEMORY, "not enough memory for %zu runs", runs);
    pi0_status status = take_peak(c, out, err);
    for (; out->runs < runs && status == PI0_OK; out->runs++) {
        if (app_report_progress(report, "measuring", out->runs, runs))
            return app_err(err, PI0_ERR_CANCELLED, "stopped while it measured");
        status = run_once(c, ms, &out->allocations, err);
        for (int stage = 0; stage < APP_STAGES && status == PI0_OK; stage++)
            out->ms[stage][out->runs] = ms[stage];
        if (status == PI0_OK)
            status = take_peak(c, out, err);
        app_stats_tick(report, c->model);
    }
    for (int stage = 0; stage < APP_STAGES; stage++)
        qsort(out->ms[stage], out->runs, sizeof(double), by_size);
    out->resident_bytes = pi0_model_memory(c->model).peak_resident;
    return status;
}

void app_measured_release(app_measured *m)
{
    for (int stage = 0; stage < APP_STAGES; stage++)
        free(m->ms[stage]);
    json_decref(m->machine);
    *m = (app_measured){0};
}

/* ------------------------------------------------------------------ the process and the machine */

bool app_forget_resident(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (!file)
        return false;
    const bool written = fputs("5", file) >= 0; /* proc(5): the peak becomes what is resident now */
    return (fclose(file) == 0) & written;
}

pi0_status app_machine_json(const pi0_options *options, json_t **out, pi0_error *err)
{
    char *text = NULL;
    pi0_status status = pi0_doctor(NULL, options, 0, &text, err);
    if (status != PI0_OK)
        return status;
    json_t *page = json_loads(text, 0, NULL);
    pi0_text_free(&text);
    *out = json_incref(json_object_get(page, "machine"));
    json_decref(page);
    return *out ? PI0_OK : app_err(err, PI0_ERR_MEMORY, "not enough memory for the description of the machine");
}
