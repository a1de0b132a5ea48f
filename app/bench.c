#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "bench_batch.h"
#include "bench_model.h"
#include "bench_pipeline.h"
#include "bench_report.h"
#include "describe.h"
#include "ladder.h"
#include "model_options.h"
#include "plan_report.h"
#include "stats.h"

static const app_option options[] = {
    {.name = "size",
     .kind = APP_CHOICE,
     .metavar = "SIZE",
     .choices = "tiny small base",
     .help =
         "instead of MODEL: a random checkpoint of size tiny, small or base (7 GB), in TMPDIR or /tmp for as long as it is being opened"},
    {.name = "model", .kind = APP_CHOICE, .metavar = "MODEL", .choices = "pi0 pi05", .help = "with --size: pi0 (the default) or pi05"},
    {.name = "cameras", .kind = APP_INT, .metavar = "N", .min = 1, .max = 4, .help = "how many cameras see something (default: all)"},
    {.name = "prompt-tokens",
     .kind = APP_INT,
     .metavar = "N",
     .min = 1,
     .max = APP_MAX_IDS,
     .help = "a prompt of N tokens that are given as ids (default: a sentence, tokenized in every run)"},
    {.name = "batch",
     .kind = APP_INT,
     .choices = "auto",
     .metavar = "N|auto",
     .min = 1,
     .max = APP_MAX_BATCH,
     .help = "robots inferred together (default 1); auto: 1, 2, 4 ... for as long as a robot's share of the time shrinks, within "
             "--memory-limit and --latency-limit"},
    {.name = "latency-limit",
     .kind = APP_INT,
     .metavar = "MS",
     .min = 1,
     .max = 86400000,
     .help = "with --batch auto: the longest that a batch may take"},
    {.name = "pipeline",
     .kind = APP_TEXT,
     .metavar = "FILE",
     .help = "also observations whose pictures are all read from FILE (jpeg or png), one after another and through a pipeline"},
    APP_STATS_OPTION,
    {.name = "repeat",
     .kind = APP_INT,
     .metavar = "N",
     .min = 1,
     .max = 1000000,
     .help = "runs that count (default: as many as fit into 20 seconds, 3 to 100; of a ladder, into a quarter of an hour for all rungs)"},
    {.name = "warm",
     .kind = APP_FLAG,
     .help = "while opening, one inference of the largest size that is thrown away: the first run, which is told but does not count, then "
             "takes no longer than the others"},
    {.name = "markdown", .kind = APP_FLAG, .help = "the result as a table in Markdown"},
    {.name = "ablate",
     .kind = APP_FLAG,
     .choices = "full",
     .metavar = "[=full]",
     .help = "the ladder: from every pass off to every pass on, one more at a time, then the precisions; full: and each left out alone"},
    {.name = "scenario",
     .kind = APP_CHOICE,
     .metavar = "NAME",
     .choices = "ascend data",
     .help = "every pass off against every pass on; ascend: two cameras, 50 actions; data: 100 actions, one robot and eight"},
    {.name = "plan-report",
     .kind = APP_FLAG,
     .help = "infers nothing: how much memory the plans take for 1 to 8 robots (or --batch), against the least that they could"},
    {.name = "compare", .kind = APP_TEXT, .metavar = "NAME[,NAME]", .help = "other libraries (not in this version)"},
    {.name = NULL},
};

/* ------------------------------------------------------------------ options */

static bool is_full(const app_args *args)
{
    const char *ablate = app_args_text(args, "ablate");
    return ablate && strcmp(ablate, "full") == 0;
}

static bool is_batch_auto(const app_args *args)
{
    const char *batch = app_args_text(args, "batch");
    return batch && strcmp(batch, "auto") == 0;
}

static bool is_plan_report(const app_args *args)
{
    return app_args_flag(args, "plan-report");
}

static bool is_ladder(const app_args *args)
{
    return app_args_flag(args, "ablate") || is_full(args) || app_args_text(args, "scenario");
}

static pi0_status refuse_later(const app_args *args, pi0_error *err)
{
    static const char *const later[] = {"compare"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (app_args_text(args, later[i])) {
            app_err(err, PI0_ERR_UNSUPPORTED, "`pi0 bench --%s` is not in this version", later[i]);
            app_err_field(err->hint, "leave --%s out", later[i]);
            return err->status;
        }
    return PI0_OK;
}

/* What a ladder or a scenario decides by itself. */
static pi0_status check_ladder(const app_args *args, pi0_error *err)
{
    static const char *const fixed[] = {"disable", "cameras", "horizon", "batch"};
    const char *scenario = app_args_text(args, "scenario");
    if (scenario && (app_args_flag(args, "ablate") || is_full(args))) {
        app_err(err, PI0_ERR_ARGUMENT, "both --ablate and --scenario");
        app_err_field(err->expected, "one of them");
        return err->status;
    }
    if (is_batch_auto(args)) {
        app_err(err, PI0_ERR_ARGUMENT, "--batch auto beside a ladder, whose rungs are all of one batch");
        app_err_field(err->hint, "--batch 1, or another number");
        return err->status;
    }
    for (size_t i = 0; i < (scenario ? sizeof fixed / sizeof *fixed : 1); i++)
        if (app_args_text(args, fixed[i])) {
            app_err(err, PI0_ERR_ARGUMENT, "--%s beside --%s, which decides that itself", fixed[i], scenario ? "scenario" : "ablate");
            app_err_field(err->hint, "leave --%s out", fixed[i]);
            return err->status;
        }
    return PI0_OK;
}

static pi0_status check_options(const app_args *args, pi0_error *err)
{
    const bool size = app_args_text(args, "size") != NULL, named = args->n_positional > 0;
    if (size == named) {
        app_err(err, PI0_ERR_ARGUMENT, size ? "both a MODEL and --size" : "nothing to measure");
        app_err_field(err->where, "pi0 bench");
        app_err_field(err->expected, "MODEL, or --size for a random one");
        app_err_field(err->hint, "for example: pi0 bench --size small --model pi0");
    } else if (named && app_args_text(args, "model")) {
        app_err(err, PI0_ERR_ARGUMENT, "--model goes with --size: a checkpoint says itself what it is");
        app_err_field(err->hint, "leave --model out");
    } else if (app_args_flag(args, "json") && app_args_flag(args, "markdown")) {
        app_err(err, PI0_ERR_ARGUMENT, "both --json and --markdown");
        app_err_field(err->expected, "one form of the result");
    } else if (is_plan_report(args) && (is_ladder(args) || is_batch_auto(args))) {
        app_err(err, PI0_ERR_ARGUMENT, "--plan-report beside something that is measured");
        app_err_field(err->hint, "leave --ablate, --scenario and --batch auto out");
    } else if (app_args_text(args, "latency-limit") && !is_batch_auto(args)) {
        app_err(err, PI0_ERR_ARGUMENT, "--latency-limit goes with --batch auto, which looks for the batch that keeps to it");
    } else if (app_args_text(args, "pipeline") && (is_ladder(args) || app_args_int(args, "batch", 1) != 1 || is_batch_auto(args))) {
        app_err(err, PI0_ERR_ARGUMENT, "--pipeline goes with one robot and every pass");
        app_err_field(err->hint, "leave out --batch, --ablate and --scenario");
    } else {
        return is_ladder(args) ? check_ladder(args, err) : PI0_OK;
    }
    return err->status;
}

/* ------------------------------------------------------------------ what is measured */

typedef struct bench_run {
    app_model_settings settings;
    app_bench_model made;
    const char *path;
    app_case_settings case_settings;
    app_batch_curve curve; /* of --batch auto */
    app_overlap overlap;   /* of --pipeline */
} bench_run;

/* A ladder's model has a slot more than its robot has cameras, as the models that openpi serves often have. */
static void choose_synth(const app_args *args, bench_run *run, pi0_synth_options *synth)
{
    const char *model = app_args_text(args, "model"), *scenario = app_args_text(args, "scenario");
    pi0_synth_options_init(synth);
    synth->model = model ? model : "pi0";
    synth->size = app_args_text(args, "size");
    if (scenario) {
        synth->cameras = run->case_settings.cameras;
        synth->state_dim = synth->action_dim = 6;
    } else if (is_ladder(args)) {
        if (!run->settings.options.config)
            run->settings.options.config = strcmp(synth->model, "pi05") == 0 ? "pi05_aloha" : "pi0_aloha";
        synth->layout = "openpi";
        synth->config = run->settings.options.config;
    } else {
        synth->cameras = run->case_settings.cameras;
    }
}

/* A file that cannot be read is told before the minutes of work. */
static pi0_status check_picture(const app_args *args, pi0_error *err)
{
    pi0_arrays *picture = NULL;
    const char *file = app_args_text(args, "pipeline");
    pi0_status status = file ? pi0_image_read(file, &picture, err) : PI0_OK;
    pi0_arrays_free(&picture);
    return status;
}

static pi0_status prepare(app_context *app, bench_run *run, app_phase *phase, pi0_error *err)
{
    const app_args *args = &app->args;
    const bool ladder = is_ladder(args);
    const char *scenario = app_args_text(args, "scenario");
    pi0_status status = app_model_settings_fill(app, &run->settings, err);
    if (status == PI0_OK)
        status = check_picture(args, err);
    if (status != PI0_OK)
        return status;
    run->settings.options.warm = app_args_flag(args, "warm");
    const int cameras = scenario || (ladder && !args->n_positional) ? 2 : 0;
    run->case_settings = (app_case_settings){.cameras = (int)app_args_int(args, "cameras", cameras),
                                             .tokens = (int)app_args_int(args, "prompt-tokens", ladder ? 20 : 0),
                                             .steps = (int)app_args_int(args, "steps", 0),
                                             .batch = (int)app_args_int(args, "batch", 1)};
    run->curve.memory_limit = run->settings.options.memory_limit;
    run->curve.latency_limit_ms = (double)app_args_int(args, "latency-limit", 0);
    if (scenario)
        run->settings.options.horizon = strcmp(scenario, "data") == 0 ? 100 : 50;
    run->path = args->n_positional ? args->positional[0] : NULL;
    if (run->path)
        return PI0_OK;
    pi0_synth_options synth;
    choose_synth(args, run, &synth);
    synth.hollow = is_plan_report(args);
    *phase = APP_WRITING;
    status = app_bench_model_make(&app->report, synth, &run->made, err);
    if (status != PI0_OK)
        return status;
    run->path = run->made.path;
    *phase = APP_READING;
    return PI0_OK;
}

/* ------------------------------------------------------------------ results */

static json_t *result_json(const bench_run *run, const app_measured *result)
{
    json_t *page = app_bench_json(result);
    if (page && run->curve.n)
        json_object_set_new(page, "batch_auto", app_batch_json(&run->curve));
    if (page && run->overlap.observations)
        json_object_set_new(page, "pipeline", app_overlap_json(&run->overlap));
    return page;
}

static int print_result(app_context *app, const bench_run *run, const app_measured *result)
{
    const bool markdown = app_args_flag(&app->args, "markdown");
    app_text out = {0};
    if (app->json) {
        app_describe_json(&out, result_json(run, result));
    } else {
        if (run->curve.n)
            app_batch_page(&out, &run->curve, markdown);
        app_bench_page(&out, result, markdown);
        if (run->overlap.observations)
            app_overlap_page(&out, &run->overlap, markdown ? "* " : "");
    }
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static int print_ladder(app_context *app, const app_ladder *ladder)
{
    app_text out = {0};
    if (app->json)
        app_describe_json(&out, app_ladder_json(ladder));
    else
        app_ladder_page(&out, ladder, app_args_flag(&app->args, "markdown"));
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

/* ------------------------------------------------------------------ one model */

static size_t count_runs(const app_args *args, double one_ms)
{
    double fit = 20e3 / one_ms;
    return (size_t)app_args_int(args, "repeat", fit < 3 ? 3 : fit > 100 ? 100 : (int64_t)fit);
}

static pi0_status measure(app_context *app, bench_run *run, app_case *c, app_measured *result, app_phase *phase, pi0_error *err)
{
    pi0_status status = PI0_OK;
    if (is_batch_auto(&app->args))
        status = app_batch_choose(&run->curve, &app->report, run->path, &run->settings.options, &run->case_settings, err);
    if (status == PI0_OK)
        status = app_case_open(c, run->path, &run->settings.options, &run->case_settings, err);
    if (status != PI0_OK)
        return status;
    app_bench_model_remove(&run->made); /* an open model keeps what it has mapped */
    *phase = APP_COMPUTING;
    status = app_case_warm(c, result, err);
    if (status != PI0_OK)
        return status;
    app_note(&app->report, "the first run, which does not count, took %.1f ms", result->first_ms);
    const size_t runs = count_runs(&app->args, result->first_ms);
    status = app_case_measure(c, &app->report, runs, result, err);
    const char *file = app_args_text(&app->args, "pipeline");
    if (status == PI0_OK && file)
        status = app_overlap_measure(c, &app->report, file, runs, &run->overlap, err);
    return status == PI0_OK ? app_machine_json(&run->settings.options, &result->machine, err) : status;
}

static int bench_model(app_context *app, bench_run *run, app_phase phase)
{
    app_case c = {0};
    app_measured result = {0};
    pi0_error err = {0};
    const pi0_status status = measure(app, run, &c, &result, &phase, &err);
    const int code = status == PI0_OK ? print_result(app, run, &result) : app_fail(&app->report, &err, phase);
    app_measured_release(&result);
    app_case_close(&c);
    return code;
}

/* ------------------------------------------------------------------ the ladder */

/* f32 is what the reference computes in on a CPU; what is gained by less stands above the passes. */
static pi0_status add_rungs(const app_args *args, app_ladder *ladder, pi0_error *err)
{
    const char *given = app_args_text(args, "precision"), *precision = given ? given : "f32";
    ladder->scenario = app_args_text(args, "scenario");
    if (!ladder->scenario)
        return app_ladder_add(ladder, precision, (int)app_args_int(args, "batch", 1), true, is_full(args), err);
    pi0_status status = app_ladder_add(ladder, precision, 1, false, false, err);
    return status == PI0_OK && strcmp(ladder->scenario, "data") == 0 ? app_ladder_add(ladder, precision, 8, false, false, err) : status;
}

static int bench_ladder(app_context *app, bench_run *run, app_phase phase)
{
    app_ladder ladder = {0};
    pi0_error err = {0};
    pi0_status status = add_rungs(&app->args, &ladder, &err);
    if (status == PI0_OK)
        status = app_ladder_climb(&ladder, &app->report, run->path, &run->settings.options, &run->case_settings,
                                  (size_t)app_args_int(&app->args, "repeat", 0), &phase, &err);
    const int code = status == PI0_OK ? print_ladder(app, &ladder) : app_fail(&app->report, &err, phase);
    app_ladder_release(&ladder);
    return code;
}

/* ------------------------------------------------------------------ plans alone */

static int report_plans(app_context *app, const bench_run *run)
{
    const int batch = (int)app_args_int(&app->args, "batch", 0);
    json_t *report = NULL;
    pi0_error err = {0};
    app_text out = {0};
    if (app_plan_report(run->path, &run->settings.options, batch ? batch : 1, batch ? batch : 8, &report, &err) != PI0_OK)
        return app_fail(&app->report, &err, APP_READING);
    if (app->json)
        app_describe_json(&out, json_incref(report));
    else
        app_plan_report_page(&out, report, app_args_flag(&app->args, "markdown"));
    json_decref(report);
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static int bench(app_context *app)
{
    bench_run run = {0};
    pi0_error err = {0};
    app_phase phase = APP_READING;
    if (refuse_later(&app->args, &err) != PI0_OK) {
        app_fail(&app->report, &err, phase);
        return APP_RUNTIME;
    }
    pi0_status status = check_options(&app->args, &err);
    if (status == PI0_OK)
        status = prepare(app, &run, &phase, &err);
    const int code = status != PI0_OK             ? app_fail(&app->report, &err, phase)
                     : is_plan_report(&app->args) ? report_plans(app, &run)
                     : is_ladder(&app->args)      ? bench_ladder(app, &run, phase)
                                                  : bench_model(app, &run, phase);
    app_model_settings_release(&run.settings);
    app_bench_model_remove(&run.made);
    return code;
}

static const char *const names[] = {"MODEL: a checkpoint; or --size instead"};

const app_command app_bench = {
    .name = "bench",
    .summary = "latency by stage against the machine's peak",
    .usage = "MODEL|--size SIZE [options]",
    .text =
        "Infers again and again from pictures made on the spot and prints how long each stage took: the best run, the median, what "
        "nine runs of ten and 99 of 100 stayed below, the slowest. Beside it stands what the model needs, counted from its sizes, and "
        "what this machine "
        "could do at best, multiply-adds of the same kind on registers alone on the same threads, measured between the runs. The "
        "needed operations are the same whatever the passes and kernels, so the share of the peak compares machines and versions. "
        "--ablate shows what every optimisation is worth: it opens the model once for each rung, from every pass off to every pass on, "
        "and then in each further precision. All rungs see the same observation and noise: some cameras, the other slots masked, a "
        "prompt of 20 tokens in a longer row. For each it prints time, memory, allocations, and how far its actions are from those with "
        "every pass on. Without --precision the passes are climbed in f32.",
    .examples = "  pi0 bench ~/my_policy\n"
                "  pi0 bench --size small --model pi05\n"
                "  pi0 bench --size base --model pi0 --cameras 2 --prompt-tokens 20 --json\n"
                "  pi0 bench --size small --ablate=full --markdown\n"
                "  pi0 bench --size small --scenario data\n"
                "  pi0 bench --size base --model pi05 --plan-report\n",
    .syntax = {.tables = {options, app_chunk_options, app_model_options, app_general_options}, .names = names, .max_positional = 1},
    .run = bench,
};
