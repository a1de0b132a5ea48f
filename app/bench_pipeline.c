#include "bench_pipeline.h"

#include <stdlib.h>
#include <string.h>

#include "observation.h"
#include "stats.h"

/* Observations of one way before it is the other's turn: the machine may change while both are measured. */
enum { IN_TURN = 5, DEPTH = 3 };

typedef struct measurement {
    const app_case *c;
    app_report *report;
    const char *file;
    size_t n_actions; /* of one observation */
    float *actions;   /* [IN_TURN][n_actions] of the observations that were inferred alone */
    app_overlap *out;
} measurement;

static pi0_status prepare(void *user, void *item, pi0_session *session, pi0_error *err)
{
    (void)item;
    const measurement *m = user;
    return app_case_observe(m->c, m->file, session, err);
}

static pi0_status run_alone(measurement *m, size_t count, pi0_error *err)
{
    pi0_session *session = m->c->sessions[0];
    pi0_status status = PI0_OK;
    const double start = app_now_ms();
    pi0_session_reset(session, 0);
    for (size_t i = 0; i < count && status == PI0_OK; i++) {
        const double begin = app_now_ms();
        status = prepare(m, NULL, session, err);
        m->out->prepare_ms += app_now_ms() - begin;
        if (status == PI0_OK)
            status = pi0_infer(&session, 1, m->c->settings.steps, err);
        if (status == PI0_OK)
            memcpy(m->actions + i * m->n_actions, pi0_actions_raw(session, NULL, NULL), m->n_actions * sizeof(float));
        m->out->prepare_ms += pi0_session_timing(session).tokenize;
        app_stats_tick(m->report, m->c->model);
    }
    m->out->alone_ms += app_now_ms() - start;
    return status;
}

static pi0_status take_result(measurement *m, pi0_pipeline *pipeline, pi0_error *err)
{
    pi0_pipeline_result result;
    pi0_status status = pi0_pipeline_next(pipeline, -1, &result, err);
    if (status != PI0_OK)
        return status;
    m->out->latency_ms += result.latency_ms;
    app_stats_tick(m->report, m->c->model);
    const float *alone = m->actions + result.number * m->n_actions;
    if (memcmp(alone, pi0_actions_raw(result.session, NULL, NULL), m->n_actions * sizeof *alone) == 0)
        return PI0_OK;
    app_err(err, PI0_ERR_INTERNAL, "observation %llu gave other actions in the pipeline than alone", (unsigned long long)result.number);
    app_err_field(err->hint, "please report this with the output of `pi0 doctor`");
    return err->status;
}

static pi0_status run_overlapped(measurement *m, size_t count, pi0_error *err)
{
    pi0_pipeline *pipeline = NULL;
    pi0_pipeline_options options;
    pi0_pipeline_options_init(&options);
    options.prepare = prepare;
    options.user = m;
    options.steps = m->c->settings.steps;
    options.depth = DEPTH;
    pi0_status status = pi0_pipeline_open(m->c->model, &options, &pipeline, err);
    const double start = app_now_ms();
    for (size_t taken = 0, submitted = 0; taken < count && status == PI0_OK; taken++) {
        for (; submitted < count && submitted - taken < DEPTH; submitted++)
            pi0_pipeline_submit(pipeline, NULL);
        status = take_result(m, pipeline, err);
    }
    m->out->overlap_ms += app_now_ms() - start;
    pi0_pipeline_close(&pipeline);
    return status;
}

pi0_status app_overlap_measure(const app_case *c, app_report *report, const char *file, size_t observations, app_overlap *out,
                               pi0_error *err)
{
    const pi0_info *info = pi0_model_info(c->model);
    *out = (app_overlap){.observations = observations};
    measurement m = {
        .c = c, .report = report, .file = file, .n_actions = (size_t)info->horizon * (size_t)info->model_action_dim, .out = out};
    m.actions = calloc(IN_TURN * m.n_actions, sizeof *m.actions);
    pi0_status status = m.actions ? PI0_OK : app_err(err, PI0_ERR_MEMORY, "not enough memory for the actions of a turn");
    for (size_t done = 0, count; done < observations && status == PI0_OK; done += count) {
        count = observations - done < IN_TURN ? observations - done : IN_TURN;
        if (app_report_progress(report, "measuring", done, observations))
            status = app_err(err, PI0_ERR_CANCELLED, "stopped while it measured");
        if (status == PI0_OK)
            status = run_alone(&m, count, err);
        if (status == PI0_OK)
            status = run_overlapped(&m, count, err);
    }
    free(m.actions);
    double *const sums[] = {&out->alone_ms, &out->overlap_ms, &out->prepare_ms, &out->latency_ms};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *sums[i] /= (double)observations;
    return status;
}

json_t *app_overlap_json(const app_overlap *o)
{
    return json_pack("{s:I,s:f,s:f,s:f,s:f,s:f}", "observations", (json_int_t)o->observations, "one_after_another_ms", o->alone_ms,
                     "prepare_ms", o->prepare_ms, "overlapped_ms", o->overlap_ms, "latency_ms", o->latency_ms, "gain",
                     o->alone_ms / o->overlap_ms);
}

void app_overlap_page(app_text *out, const app_overlap *o, const char *item)
{
    app_text_add(out,
                 "%spipeline: %.2f ms an observation one after another, of which %.2f ms prepare it; overlapped %.2f ms, %.3f times as "
                 "fast, %.2f ms from submit to result (%zu observations of each, in turns; the same actions)\n",
                 item, o->alone_ms, o->prepare_ms, o->overlap_ms, o->alone_ms / o->overlap_ms, o->latency_ms, o->observations);
}
