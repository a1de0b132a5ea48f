#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "bench_model.h"
#include "bench_report.h"
#include "model_options.h"
#include "observation.h"

enum { MAX_BATCH = 16, MAX_TOKENS = 1024, PICTURE_ROWS = 480, PICTURE_COLUMNS = 640 };

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
     .max = MAX_TOKENS,
     .help = "a prompt of N tokens that are given as ids (default: a sentence, tokenized in every run)"},
    {.name = "steps", .kind = APP_INT, .metavar = "N", .min = 1, .max = 1000, .help = "flow-matching steps (default: the recipe's)"},
    {.name = "horizon", .kind = APP_INT, .metavar = "N", .min = 1, .max = 4096, .help = "rows of the chunk (default: the recipe's)"},
    {.name = "batch", .kind = APP_INT, .metavar = "N", .min = 1, .max = MAX_BATCH, .help = "robots inferred together (default 1)"},
    {.name = "repeat",
     .kind = APP_INT,
     .metavar = "N",
     .min = 1,
     .max = 1000000,
     .help = "runs that count (default: as many as fit into 20 seconds, 3 to 100)"},
    {.name = "markdown", .kind = APP_FLAG, .help = "the result as a table in Markdown"},
    {.name = "ablate", .kind = APP_FLAG, .help = "each pass switched off in turn (not in this version)"},
    {.name = "scenario", .kind = APP_TEXT, .metavar = "NAME", .help = "a machine that is not this one (not in this version)"},
    {.name = "plan-report", .kind = APP_FLAG, .help = "the plan op by op (not in this version)"},
    {.name = "compare", .kind = APP_TEXT, .metavar = "NAME[,NAME]", .help = "other libraries (not in this version)"},
    {.name = NULL},
};

typedef struct bench_run {
    app_model_settings settings;
    app_bench_model made;
    pi0_model *model;
    pi0_session *sessions[MAX_BATCH];
    uint8_t *picture;
    double state[256];
    int64_t tokens[MAX_TOKENS];
    app_measured result;
} bench_run;

/* ------------------------------------------------------------------ options */

static pi0_status refuse_later(const app_args *args, pi0_error *err)
{
    static const char *const later[] = {"ablate", "scenario", "plan-report", "compare"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (app_args_text(args, later[i])) {
            app_err(err, PI0_ERR_UNSUPPORTED, "`pi0 bench --%s` is not in this version", later[i]);
            app_err_field(err->hint, "leave --%s out", later[i]);
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
    } else {
        return PI0_OK;
    }
    return err->status;
}

/* ------------------------------------------------------------------ a model and what it sees */

static pi0_status open_model(app_context *app, bench_run *run, app_phase *phase, pi0_error *err)
{
    const app_args *args = &app->args;
    const char *path = args->n_positional ? args->positional[0] : NULL, *model = app_args_text(args, "model");
    pi0_status status = app_model_settings_fill(app, &run->settings, err);
    if (status == PI0_OK && !path) {
        const int cameras = (int)app_args_int(args, "cameras", 0);
        *phase = APP_WRITING;
        status = app_bench_model_make(&app->report, model ? model : "pi0", app_args_text(args, "size"), cameras, &run->made, err);
        path = run->made.path;
    }
    if (status != PI0_OK)
        return status;
    *phase = APP_READING;
    run->result.batch = (int)app_args_int(args, "batch", 1);
    run->settings.options.max_batch = run->result.batch;
    status = pi0_open(path, &run->settings.options, &run->model, err);
    if (status == PI0_OK)
        app_bench_model_remove(&run->made);
    for (int i = 0; i < run->result.batch && status == PI0_OK; i++)
        status = pi0_session_open(run->model, (uint64_t)i, &run->sessions[i], err);
    return status;
}

/* A picture as cameras give them, which no resizing rule leaves as it is; and a robot that is not at rest. */
static pi0_status make_observation(const app_args *args, bench_run *run, pi0_error *err)
{
    const pi0_info *info = pi0_model_info(run->model);
    app_measured *result = &run->result;
    int cameras = 0;
    for (int slot = 0; slot < info->n_slots; slot++)
        cameras += *info->keys[slot] != '\0';
    result->cameras = (int)app_args_int(args, "cameras", cameras);
    if (result->cameras > cameras) {
        app_err(err, PI0_ERR_ARGUMENT, "the model has fewer cameras");
        app_err_field(err->where, "--cameras");
        app_err_field(err->expected, "1 to %d", cameras);
        app_err_field(err->got, "%d", result->cameras);
        return err->status;
    }
    run->picture = malloc((size_t)PICTURE_ROWS * PICTURE_COLUMNS * 3);
    if (!run->picture)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for a picture");
    for (int y = 0; y < PICTURE_ROWS; y++)
        for (int x = 0; x < PICTURE_COLUMNS * 3; x++)
            run->picture[(size_t)y * PICTURE_COLUMNS * 3 + (size_t)x] = (uint8_t)(x * 7 + y * 11 + x * y / 64);
    for (int i = 0; i < info->state_dim; i++)
        run->state[i] = 0.01 * (i + 1);
    for (int i = 0; i < MAX_TOKENS; i++)
        run->tokens[i] = 2 + i % 100;
    return PI0_OK;
}

static pi0_status set_observation(const app_args *args, bench_run *run, pi0_session *session, pi0_error *err)
{
    const pi0_info *info = pi0_model_info(run->model);
    const pi0_array picture = {.name = "",
                               .dtype = PI0_U8,
                               .rank = 3,
                               .shape = {PICTURE_ROWS, PICTURE_COLUMNS, 3},
                               .data = run->picture,
                               .bytes = (size_t)PICTURE_ROWS * PICTURE_COLUMNS * 3};
    pi0_status status = pi0_set_state(session, run->state, (size_t)info->state_dim, err);
    for (int slot = 0, given = 0; slot < info->n_slots && given < run->result.cameras && status == PI0_OK; slot++)
        if (*info->keys[slot]) {
            status = pi0_set_image(session, info->slots[slot], &picture, err);
            given++;
        }
    if (status != PI0_OK)
        return status;
    const size_t tokens = (size_t)app_args_int(args, "prompt-tokens", 0);
    return tokens ? pi0_set_tokens(session, run->tokens, tokens, err)
                  : pi0_set_prompt(session, "pick up the red cube and put it into the bowl", err);
}

/* ------------------------------------------------------------------ runs */

/* The stages of the lanes' own add up; vision, prefix and denoise are done for all lanes at once. */
static pi0_status run_once(const app_args *args, bench_run *run, double ms[APP_STAGES], pi0_error *err)
{
    const double start = app_now_ms();
    pi0_status status = PI0_OK;
    for (int i = 0; i < run->result.batch && status == PI0_OK; i++)
        status = set_observation(args, run, run->sessions[i], err);
    if (status == PI0_OK)
        status = pi0_infer(run->sessions, (size_t)run->result.batch, run->result.steps, err);
    if (status != PI0_OK)
        return status;
    memset(ms, 0, APP_STAGES * sizeof *ms);
    ms[APP_TOTAL] = app_now_ms() - start;
    for (int i = 0; i < run->result.batch; i++) {
        const pi0_timing t = pi0_session_timing(run->sessions[i]);
        ms[APP_PREPROCESS] += t.preprocess;
        ms[APP_TOKENIZE] += t.tokenize;
        ms[APP_POST] += t.post;
        ms[APP_VISION] = t.vision;
        ms[APP_PREFIX] = t.prefix;
        ms[APP_DENOISE] = t.denoise;
    }
    return PI0_OK;
}

static pi0_status take_peak(bench_run *run, pi0_error *err)
{
    double now = 0;
    pi0_status status = pi0_model_peak(run->model, &now, err);
    if (now > run->result.flop_per_s)
        run->result.flop_per_s = now;
    return status;
}

static size_t count_runs(const app_args *args, double one_ms)
{
    double fit = 20e3 / one_ms;
    return (size_t)app_args_int(args, "repeat", fit < 3 ? 3 : fit > 100 ? 100 : (int64_t)fit);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The machine's peak is taken between the runs: both see the same clock and the same neighbours. */
static pi0_status measure(app_context *app, bench_run *run, pi0_error *err)
{
    app_measured *result = &run->result;
    double ms[APP_STAGES];
    result->steps = (int)app_args_int(&app->args, "steps", pi0_model_info(run->model)->steps);
    pi0_status status = run_once(&app->args, run, ms, err);
    if (status != PI0_OK)
        return status;
    app_note(&app->report, "the first run, which does not count, took %.1f ms", ms[APP_TOTAL]);
    result->tokens = pi0_token_count(run->sessions[0]);
    const size_t runs = count_runs(&app->args, ms[APP_TOTAL]);
    for (int stage = 0; stage < APP_STAGES; stage++)
        if (!(result->ms[stage] = calloc(runs, sizeof(double))))
            return app_err(err, PI0_ERR_MEMORY, "not enough memory for %zu runs", runs);
    status = take_peak(run, err);
    for (; result->runs < runs && status == PI0_OK; result->runs++) {
        app_report_progress(&app->report, "measuring", result->runs, runs);
        status = run_once(&app->args, run, ms, err);
        for (int stage = 0; stage < APP_STAGES && status == PI0_OK; stage++)
            result->ms[stage][result->runs] = ms[stage];
        if (status == PI0_OK)
            status = take_peak(run, err);
    }
    for (int stage = 0; stage < APP_STAGES; stage++)
        qsort(result->ms[stage], result->runs, sizeof(double), by_size);
    return status;
}

/* ------------------------------------------------------------------ the result */

static pi0_status complete(bench_run *run, pi0_error *err)
{
    app_measured *result = &run->result;
    result->info = pi0_model_info(run->model);
    result->plan = pi0_model_memory(run->model);
    result->flop = pi0_model_flop(run->model, result->cameras, result->tokens, result->steps);
    result->resident_bytes = result->plan.peak_resident;
    char *text = NULL;
    pi0_status status = pi0_doctor(NULL, &run->settings.options, 0, &text, err);
    if (status != PI0_OK)
        return status;
    json_t *page = json_loads(text, 0, NULL);
    pi0_text_free(&text);
    result->machine = json_incref(json_object_get(page, "machine"));
    json_decref(page);
    return result->machine ? PI0_OK : app_err(err, PI0_ERR_MEMORY, "not enough memory for the description of the machine");
}

static int print_result(app_context *app, const app_measured *result)
{
    app_text out = {0};
    if (app->json) {
        json_t *object = app_bench_json(result);
        char *text = object ? json_dumps(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
        out.failed = !text;
        app_text_add(&out, "%s\n", text ? text : "");
        free(text);
        json_decref(object);
    } else if (app_args_flag(&app->args, "markdown")) {
        app_bench_markdown(&out, result);
    } else {
        app_bench_page(&out, result);
    }
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static void release(bench_run *run)
{
    for (int stage = 0; stage < APP_STAGES; stage++)
        free(run->result.ms[stage]);
    for (int i = 0; i < MAX_BATCH; i++)
        pi0_session_close(&run->sessions[i]);
    pi0_close(&run->model);
    json_decref(run->result.machine);
    free(run->picture);
    app_model_settings_release(&run->settings);
    app_bench_model_remove(&run->made);
}

static int bench(app_context *app)
{
    bench_run run = {0};
    pi0_error err = {0};
    int code = APP_RUNTIME;
    app_phase phase = APP_READING;
    if (refuse_later(&app->args, &err) != PI0_OK) {
        app_fail(&app->report, &err, phase);
        return code;
    }
    pi0_status status = check_options(&app->args, &err);
    if (status == PI0_OK)
        status = open_model(app, &run, &phase, &err);
    if (status == PI0_OK)
        status = make_observation(&app->args, &run, &err);
    if (status == PI0_OK)
        status = measure(app, &run, &err);
    if (status == PI0_OK) {
        phase = APP_COMPUTING;
        status = complete(&run, &err);
    }
    code = status == PI0_OK ? print_result(app, &run.result) : app_fail(&app->report, &err, phase);
    release(&run);
    return code;
}

static const char *const names[] = {"MODEL: a checkpoint; or --size instead"};

const app_command app_bench = {
    .name = "bench",
    .summary = "latency by stage against the machine's peak",
    .usage = "MODEL|--size SIZE [options]",
    .text = "Infers again and again from pictures made on the spot and prints how long each stage took: the best run, the median, what "
            "nine runs of ten and 99 of 100 stayed below, the slowest. Beside it stands what the model needs, counted from its sizes, and "
            "what this machine "
            "could do at best, multiply-adds of the same kind on registers alone on the same threads, measured between the runs. The "
            "needed operations are the same whatever the passes and kernels, so the share of the peak compares machines and versions.",
    .examples = "  pi0 bench ~/my_policy\n"
                "  pi0 bench --size small --model pi05\n"
                "  pi0 bench --size base --model pi0 --cameras 2 --prompt-tokens 20 --json\n",
    .syntax = {.tables = {options, app_model_options, app_general_options}, .names = names, .max_positional = 1},
    .run = bench,
};
