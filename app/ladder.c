#include "ladder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_report.h"
#include "observation.h"

/* ------------------------------------------------------------------ the rungs */

static app_rung *add_rung(app_ladder *ladder, app_rung rung, pi0_error *err)
{
    if (ladder->n == ladder->capacity) {
        const int capacity = ladder->capacity * 2 + 16;
        app_rung *rungs = realloc(ladder->rungs, (size_t)capacity * sizeof *rungs);
        if (!rungs) {
            app_err(err, PI0_ERR_MEMORY, "not enough memory for the ladder");
            return NULL;
        }
        ladder->rungs = rungs;
        ladder->capacity = capacity;
    }
    ladder->rungs[ladder->n] = rung;
    return &ladder->rungs[ladder->n++];
}

/* A pass that changes what the model computes is no optimisation of it. */
static bool is_optimisation(size_t pass)
{
    return strcmp(pi0_pass_at(pass).exactness, "model") != 0;
}

/* Passes `first` up to before `end`, or to the last. */
static void disable_passes(app_rung *rung, size_t first, size_t end)
{
    for (size_t i = first; i < end && pi0_pass_at(i).name; i++)
        if (is_optimisation(i))
            app_text_add(&rung->disable, "%s%s", rung->disable.length ? "," : "", pi0_pass_at(i).name);
}

static bool add_passes(app_ladder *ladder, app_rung rung, pi0_error *err)
{
    rung.kind = APP_RUNG_PASS;
    for (size_t i = 0; pi0_pass_at(i).name; i++) {
        const pi0_pass_info pass = pi0_pass_at(i);
        if (!is_optimisation(i))
            continue;
        rung.name = pass.name, rung.summary = pass.summary, rung.founding = pass.founding;
        rung.before = ladder->n - 1;
        app_rung *added = add_rung(ladder, rung, err);
        if (!added)
            return false;
        disable_passes(added, i + 1, SIZE_MAX);
    }
    return true;
}

static bool add_precisions(app_ladder *ladder, app_rung rung, pi0_error *err)
{
    static const char *const precisions[] = {"f32", "bf16", "int8"};
    size_t i = 0;
    for (size_t k = 0; k < sizeof precisions / sizeof *precisions; k++)
        i = strcmp(rung.precision, precisions[k]) == 0 ? k : i;
    rung.kind = APP_RUNG_PRECISION;
    rung.summary = "every pass, in this precision";
    rung.founding = "mixed precision";
    for (i++; i < sizeof precisions / sizeof *precisions; i++) {
        rung.name = rung.precision = precisions[i];
        rung.before = ladder->n - 1;
        if (!add_rung(ladder, rung, err))
            return false;
    }
    return true;
}

static bool add_without(app_ladder *ladder, app_rung rung, pi0_error *err)
{
    rung.kind = APP_RUNG_WITHOUT;
    rung.before = rung.top;
    for (size_t i = 0; pi0_pass_at(i).name; i++) {
        const pi0_pass_info pass = pi0_pass_at(i);
        if (!is_optimisation(i))
            continue;
        rung.name = pass.name, rung.summary = pass.summary, rung.founding = pass.founding;
        app_rung *added = add_rung(ladder, rung, err);
        if (!added)
            return false;
        disable_passes(added, i, i + 1);
    }
    return true;
}

pi0_status app_ladder_add(app_ladder *ladder, const char *precision, int batch, bool every, bool without, pi0_error *err)
{
    app_rung rung = {.kind = APP_RUNG_BOTTOM,
                     .name = "as the reference",
                     .summary = "every pass off: op by op, masked work computed, one allocation a tensor",
                     .precision = precision,
                     .batch = batch,
                     .first = ladder->n,
                     .before = -1};
    app_rung *bottom = add_rung(ladder, rung, err);
    if (!bottom)
        return err->status;
    disable_passes(bottom, 0, SIZE_MAX);
    if (every) {
        if (!add_passes(ladder, rung, err))
            return err->status;
    } else {
        rung.kind = APP_RUNG_TOP, rung.name = "every pass", rung.summary = "every pass on";
        rung.before = rung.first;
        if (!add_rung(ladder, rung, err))
            return err->status;
    }
    rung.top = ladder->n - 1;
    for (int i = rung.first; i < ladder->n; i++)
        ladder->rungs[i].top = rung.top;
    if (!add_precisions(ladder, rung, err) || (without && !add_without(ladder, rung, err)))
        return err->status;
    return PI0_OK;
}

/* ------------------------------------------------------------------ one rung after another */

/* Every rung says the same as it opens; what is amiss is worth hearing, once. */
static void log_warnings(void *user, pi0_log_level level, const char *text)
{
    if (level == PI0_LOG_WARNING)
        app_report_log(user, level, text);
}

/* What is quick gets a few seconds; what is slow its share of a quarter of an hour, but one run at least. */
static size_t count_runs(const app_ladder *ladder, size_t repeat, double spent_ms, double one_ms)
{
    const double share = (900e3 / ladder->n - spent_ms) / one_ms, quick = fmax(3, fmin(30, 3e3 / one_ms));
    return repeat ? repeat : (size_t)fmax(1, fmin(share, quick));
}

static pi0_status keep_actions(const app_ladder *ladder, app_rung *rung, const app_case *c, pi0_error *err)
{
    rung->actions = calloc((size_t)rung->batch * ladder->n_actions, sizeof *rung->actions);
    if (!rung->actions)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the actions of a rung");
    for (int lane = 0; lane < rung->batch; lane++)
        memcpy(rung->actions + (size_t)lane * ladder->n_actions, pi0_actions_raw(c->sessions[lane], NULL, NULL),
               ladder->n_actions * sizeof *rung->actions);
    return PI0_OK;
}

static void keep_info(app_ladder *ladder, const pi0_info *info)
{
    snprintf(ladder->model, sizeof ladder->model, "%s", info->model);
    snprintf(ladder->layout, sizeof ladder->layout, "%s", info->layout);
    snprintf(ladder->device, sizeof ladder->device, "%s", info->device);
    snprintf(ladder->isa, sizeof ladder->isa, "%s", info->isa);
    ladder->threads = info->threads;
    ladder->horizon = info->horizon;
    ladder->slots = info->n_slots;
    ladder->max_tokens = info->max_tokens;
    ladder->n_actions = (size_t)info->horizon * (size_t)info->model_action_dim;
}

static pi0_status measure_rung(app_ladder *ladder, app_rung *rung, app_case *c, app_report *report, double opened_ms, size_t repeat,
                               pi0_error *err)
{
    pi0_status status = app_case_warm(c, &rung->measured, err);
    if (status != PI0_OK)
        return status;
    keep_info(ladder, rung->measured.info);
    snprintf(rung->computed, sizeof rung->computed, "%s", rung->measured.info->precision);
    status = keep_actions(ladder, rung, c, err);
    if (status != PI0_OK)
        return status;
    const double one_ms = rung->measured.first_ms;
    return app_case_measure(c, report, count_runs(ladder, repeat, opened_ms + one_ms, one_ms), &rung->measured, err);
}

static pi0_status climb_rung(app_ladder *ladder, int at, app_report *report, const char *path, pi0_options options,
                             app_case_settings settings, size_t repeat, app_phase *phase, pi0_error *err)
{
    app_rung *rung = &ladder->rungs[at];
    app_case c = {0};
    if (rung->disable.failed)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the ladder");
    options.disable = rung->disable.data;
    options.precision = rung->precision;
    options.log = log_warnings;
    settings.batch = rung->batch;
    const bool forgotten = app_forget_resident();
    const double start = app_now_ms();
    *phase = APP_READING;
    pi0_status status = app_case_open(&c, path, &options, &settings, err);
    if (status == PI0_OK) {
        *phase = APP_COMPUTING;
        status = measure_rung(ladder, rung, &c, report, app_now_ms() - start, repeat, err);
    }
    if (!forgotten)
        rung->measured.resident_bytes = 0; /* it would be that of the largest rung so far */
    rung->measured.info = NULL;
    app_case_close(&c);
    return status;
}

static void compare_actions(const app_ladder *ladder, app_rung *rung)
{
    const float *a = rung->actions, *b = ladder->rungs[rung->top].actions;
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < (size_t)rung->batch * ladder->n_actions; i++) {
        rung->difference = fmax(rung->difference, fabs((double)a[i] - b[i]));
        ab += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    rung->cosine = aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : aa == bb;
}

pi0_status app_ladder_climb(app_ladder *ladder, app_report *report, const char *path, const pi0_options *options,
                            const app_case_settings *settings, size_t repeat, app_phase *phase, pi0_error *err)
{
    pi0_status status = PI0_OK;
    for (int i = 0; i < ladder->n && status == PI0_OK; i++) {
        const app_rung *rung = &ladder->rungs[i];
        status = climb_rung(ladder, i, report, path, *options, *settings, repeat, phase, err);
        if (status == PI0_OK)
            app_note(report, "rung %d of %d, %s%s: %.1f ms", i + 1, ladder->n, rung->kind == APP_RUNG_WITHOUT ? "without " : "", rung->name,
                     app_median_ms(&rung->measured, APP_TOTAL));
    }
    for (int i = 0; i < ladder->n && status == PI0_OK; i++)
        compare_actions(ladder, &ladder->rungs[i]);
    return status == PI0_OK ? app_machine_json(options, &ladder->machine, err) : status;
}

void app_ladder_release(app_ladder *ladder)
{
    for (int i = 0; i < ladder->n; i++) {
        app_text_release(&ladder->rungs[i].disable);
        app_measured_release(&ladder->rungs[i].measured);
        free(ladder->rungs[i].actions);
    }
    free(ladder->rungs);
    json_decref(ladder->machine);
    *ladder = (app_ladder){0};
}
