#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "describe.h"
#include "model_options.h"
#include "observation.h"
#include "profile_report.h"
#include "result.h"
#include "signals.h"

static const app_option options[] = {
    {.name = "repeat",
     .kind = APP_INT,
     .metavar = "N",
     .min = 1,
     .max = 100,
     .help = "runs that are recorded (default: as many as fit into 10 seconds, 1 to 10); as many more are not, to compare with"},
    {.name = "html", .kind = APP_TEXT, .metavar = "FILE.html", .help = "a page to look at and to send: timeline, ops, roofline, memory"},
    {.name = "trace", .kind = APP_TEXT, .metavar = "FILE.json", .help = "Chrome's trace format, for ui.perfetto.dev and chrome://tracing"},
    {.name = NULL},
};

typedef struct profile_run {
    app_policy policy;
    app_observation observation;
    double *ms[2]; /* of each run without and with recording; [MOST_RUNS] */
    app_trace trace;
    app_profile profile;
    app_profile_context context;
} profile_run;

enum { MOST_RUNS = 100, PEAKS_AT_MOST = 8 };

/* ------------------------------------------------------------------ options */

static pi0_status check_outputs(const app_args *args, pi0_error *err)
{
    static const char *const files[][2] = {{"html", ".html"}, {"trace", ".json"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = app_args_text(args, files[i][0]);
        if (!path)
            continue;
        if (!app_ends_with(path, files[i][1])) { /* nor can a picture or an observation be lost to a slip */
            app_err(err, PI0_ERR_ARGUMENT, "the file's ending does not say what it is");
            app_err_field(err->where, "--%s", files[i][0]);
            app_err_field(err->expected, "%s", files[i][1]);
            app_err_field(err->got, "%.200s", path);
            return err->status;
        }
        pi0_status status = app_check_folder(files[i][0], path, err);
        if (status != PI0_OK)
            return status;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ the machine */

/* What it can do at best, found out with as many threads and the same kernels as the model will use. */
static pi0_status measure_machine(profile_run *run, pi0_error *err)
{
    char *text = NULL;
    pi0_options chosen = run->policy.settings.options;
    chosen.log = NULL;
    pi0_status status = pi0_doctor(NULL, &chosen, 1, &text, err);
    if (status != PI0_OK)
        return status;
    json_t *page = json_loads(text, 0, NULL);
    pi0_text_free(&text);
    run->context.machine = json_incref(json_object_get(page, "machine"));
    app_roof_read(&run->profile.roof, json_object_get(page, "measured"));
    json_decref(page);
    return run->context.machine ? PI0_OK : app_err(err, PI0_ERR_MEMORY, "not enough memory for the description of the machine");
}

/* ------------------------------------------------------------------ runs */

/* From the files to the text of the actions. */
static pi0_status run_once(app_context *app, profile_run *run, double *ms, pi0_error *err)
{
    const app_args *args = &app->args;
    const uint64_t start = app_now_ns();
    app_observation *observation = &run->observation;
    app_observation_release(observation);
    pi0_status status = app_observation_load(args, observation, err);
    pi0_trace_add(run->policy.model, "decode", start, app_now_ns());
    if (status == PI0_OK) {
        pi0_session_reset(run->policy.session, app_args_unsigned(args, "seed", 0));
        status = app_observation_apply(observation, pi0_model_info(run->policy.model), run->policy.session, err);
    }
    if (status == PI0_OK)
        status = pi0_infer(&run->policy.session, 1, run->context.steps, err);
    const uint64_t encode = app_now_ns();
    app_result result = {0};
    if (status == PI0_OK)
        status = app_result_take(run->policy.session, observation->preprocessed, &result, err);
    if (status == PI0_OK) {
        app_text text = {0};
        app_result_json(&text, &result, pi0_model_info(run->policy.model), pi0_model_memory(run->policy.model));
        app_text_release(&text);
    }
    app_result_release(&result);
    const uint64_t end = app_now_ns();
    pi0_trace_add(run->policy.model, "encode", encode, end);
    pi0_trace_add(run->policy.model, "run", start, end);
    *ms = (double)(end - start) * 1e-6;
    return status;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What recording costs shows in the fastest runs: neighbours on the machine take time away and never add any. */
static void compare_runs(profile_run *run, size_t runs)
{
    for (int i = 0; i < 2; i++)
        qsort(run->ms[i], runs, sizeof(double), by_size);
    run->context.untraced_ms = run->ms[0][0];
    run->context.traced_ms = run->ms[1][0];
}

/* With and without recording in turns, each as often first as second; the peak of the arithmetic is taken between them. */
static pi0_status run_all(app_context *app, profile_run *run, app_phase *phase, pi0_error *err)
{
    double first_ms;
    pi0_status status = run_once(app, run, &first_ms, err);
    if (status != PI0_OK)
        return status;
    app_note(&app->report, "the first run, which does not count, took %.1f ms", first_ms);
    *phase = APP_COMPUTING;
    const double fit = 5e3 / first_ms;
    const size_t runs = (size_t)app_args_int(&app->args, "repeat", fit < 1 ? 1 : fit > 10 ? 10 : (int64_t)fit);
    status = pi0_trace_start(run->policy.model, runs, run->context.steps, err);
    for (size_t i = 0; i < 2 * runs && status == PI0_OK; i++) {
        if (app_report_progress(&app->report, "recording", i, 2 * runs))
            return app_err(err, PI0_ERR_CANCELLED, "stopped while it recorded");
        const size_t pair = i / 2, recorded = (i + pair) % 2;
        pi0_trace_record(run->policy.model, (int)recorded);
        status = run_once(app, run, &run->ms[recorded][pair], err);
        if (status == PI0_OK && i < PEAKS_AT_MOST)
            status = app_roof_raise(&run->profile.roof, run->policy.model, err);
    }
    pi0_trace_record(run->policy.model, 0);
    app_report_progress(&app->report, "recording", 2 * runs, 2 * runs);
    if (status == PI0_OK)
        compare_runs(run, runs);
    return status;
}

static pi0_status compute(app_context *app, profile_run *run, app_phase *phase, pi0_error *err)
{
    const app_args *args = &app->args;
    *phase = APP_WRITING;
    pi0_status status = check_outputs(args, err);
    if (status != PI0_OK)
        return status;
    *phase = APP_READING;
    status = app_observation_load(args, &run->observation, err);
    if (status == PI0_OK)
        status = app_model_settings_fill(app, &run->policy.settings, err);
    if (status == PI0_OK)
        status = measure_machine(run, err);
    if (status != PI0_OK)
        return status;
    app_observation_settle(&run->observation, &run->policy.settings.options);
    status = app_policy_open(app, &run->policy, err);
    if (status != PI0_OK)
        return status;
    run->context.title = args->positional[0];
    run->context.steps = (int)app_args_int(args, "steps", pi0_model_info(run->policy.model)->steps);
    for (int i = 0; i < 2; i++)
        if (!(run->ms[i] = calloc(MOST_RUNS, sizeof(double))))
            return app_err(err, PI0_ERR_MEMORY, "not enough memory for the runs");
    status = run_all(app, run, phase, err);
    run->context.tokens = pi0_token_count(run->policy.session);
    run->context.memory = pi0_model_memory(run->policy.model);
    if (status == PI0_OK)
        status = pi0_memory_map(run->policy.model, &run->context.memory_map, err);
    if (status == PI0_OK)
        status = app_trace_take(run->policy.model, &run->trace, err);
    return status == PI0_OK ? app_profile_sum(&run->profile, &run->trace, pi0_model_info(run->policy.model), err) : status;
}

/* ------------------------------------------------------------------ results */

static int print_profile(app_context *app, const profile_run *run)
{
    app_text out = {0};
    if (app->json)
        app_describe_json(&out, app_profile_json(&run->profile, &run->context));
    else
        app_profile_page(&out, &run->profile, &run->context);
    const int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

/* One file that cannot be written keeps neither the other nor the result from whoever waited for them. */
static int write_files(app_context *app, const profile_run *run)
{
    static const char *const files[] = {"html", "trace"};
    int code = APP_OK;
    for (int i = 0; i < 2; i++) {
        const char *path = app_args_text(&app->args, files[i]);
        pi0_error err = {0};
        app_text text = {0};
        if (!path)
            continue;
        if (i == 0)
            app_profile_html(&text, &run->profile, &run->context);
        else
            app_trace_json(&text, &run->trace, run->profile.info);
        if (app_text_write(path, &text, &err) != PI0_OK)
            code = app_fail(&app->report, &err, APP_WRITING);
        else
            app_note(&app->report, "wrote %s", path);
    }
    return code;
}

static void release(profile_run *run)
{
    app_profile_release(&run->profile);
    app_trace_release(&run->trace);
    pi0_text_free(&run->context.memory_map);
    json_decref(run->context.machine);
    free(run->ms[0]);
    free(run->ms[1]);
    app_policy_release(&run->policy);
    app_observation_release(&run->observation);
}

static int profile(app_context *app)
{
    profile_run run = {0};
    pi0_error err = {0};
    app_phase phase = APP_READING;
    int code;
    if (compute(app, &run, &phase, &err) != PI0_OK) {
        code = app_fail(&app->report, &err, phase);
    } else {
        app_signals_hold();
        code = print_profile(app, &run);
        const int written = write_files(app, &run);
        code = code == APP_OK ? written : code;
        app_signals_release();
    }
    release(&run);
    return code;
}

static const char *const names[] = {"MODEL: a checkpoint directory, a .safetensors or .pi0 file, or org/name in the Hugging Face cache"};

const app_command app_profile_command = {
    .name = "profile",
    .summary = "where the time goes: stages, ops, threads, memory",
    .usage = "MODEL OBSERVATION... [options]",
    .text =
        "Runs the policy a few times while the library records when every stage, layer and op began and ended and what every thread did, "
        "and as often without, to tell what the recording costs. Prints the time of each stage; the share of all threads' time that "
        "went to matrix work, to vector work, to work on one thread outside of the model, and to waiting; and the ops, slowest first, "
        "each with what it did a second and how near that is to what this machine can do, which is measured before and between the "
        "runs. --html writes the same as one page with a timeline, a roofline and a map of the memory that needs no network and may be "
        "sent to somebody; --trace writes every span of every run.",
    .examples = "  pi0 profile ~/my_policy --image top=top.png --image wrist=wrist.jpg --state 0.1,-0.4,0,0,0.2,0 --prompt \"pick up\"\n"
                "  pi0 profile ~/my_policy --obs episode.npz --html profile.html\n"
                "  pi0 profile ~/my_policy --obs episode.npz --trace trace.json --repeat 1 --json\n",
    .syntax = {.tables = {options, app_observation_options, app_chunk_options, app_model_options, app_general_options},
               .names = names,
               .min_positional = 1,
               .max_positional = 1},
    .run = profile,
};
