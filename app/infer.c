#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "app.h"
#include "model_options.h"
#include "observation.h"
#include "plot.h"
#include "record.h"
#include "result.h"
#include "signals.h"
#include "stats.h"
#include "trace.h"

static const app_option options[] = {
    {.name = "output",
     .letter = 'o',
     .kind = APP_TEXT,
     .metavar = "FILE",
     .help = "write the actions to a .npy, .json or .csv instead of the table"},
    {.name = "raw", .kind = APP_FLAG, .help = "actions in model space, [H,A], before the output transforms"},
    {.name = "dump", .kind = APP_TEXT, .metavar = "FILE.npz", .help = "every stage of the computation"},
    {.name = "record", .kind = APP_TEXT, .metavar = "REF.npz", .help = "observation, noise and every stage, for `pi0 check`"},
    {.name = "trace",
     .kind = APP_TEXT,
     .metavar = "FILE.json",
     .help = "every stage, layer, op and thread in Chrome's trace format, of the first 100 runs"},
    {.name = "plot", .kind = APP_TEXT, .metavar = "FILE.svg", .help = "the chunk as curves"},
    {.name = "sketch", .kind = APP_FLAG, .help = "draw the curves below the table also where stdout is no terminal"},
    {.name = "repeat",
     .kind = APP_INT,
     .metavar = "N",
     .min = 1,
     .max = 1000000,
     .help = "run N times, print each timing (--json holds the first), insist on the same bits"},
    {.name = "warm",
     .kind = APP_FLAG,
     .help = "while opening, one inference of the largest size that is thrown away: with --repeat the first run then takes no longer than "
             "the others"},
    APP_STATS_OPTION,
    {.name = NULL},
};

typedef struct infer_run {
    app_policy policy;
    app_observation observation;
    app_result result;
    pi0_timing *timings;
    size_t runs;
} infer_run;

/* A file that is both read and written, or written twice, would be lost without a word. */
static pi0_status check_named_once(const app_args *args, const char *option, const char *path, pi0_error *err)
{
    static const char *const others[] = {"output", "dump", "record", "trace", "plot", "obs", "preprocessed", "noise", "state"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const char *other = strcmp(others[i], option) != 0 ? app_args_text(args, others[i]) : NULL;
        if (!other || strcmp(other, path) != 0)
            continue;
        app_err(err, PI0_ERR_ARGUMENT, "one file is named for two things");
        app_err_field(err->where, "--%s and --%s", option, others[i]);
        app_err_field(err->got, "%.200s", path);
        return err->status;
    }
    return PI0_OK;
}

/* Outputs that cannot work are refused before the minutes of work, not after. */
static pi0_status check_outputs(const app_args *args, pi0_error *err)
{
    static const struct {
        const char *option, *ending;
    } files[] = {{"output", NULL}, {"dump", ".npz"}, {"record", ".npz"}, {"trace", ".json"}, {"plot", ".svg"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        const char *path = app_args_text(args, files[i].option);
        if (!path)
            continue;
        if (files[i].ending ? app_ends_with(path, files[i].ending) : app_result_can_write(path)) {
            pi0_status status = app_check_folder(files[i].option, path, err);
            if (status == PI0_OK)
                status = check_named_once(args, files[i].option, path, err);
            if (status != PI0_OK)
                return status;
            continue;
        }
        app_err(err, PI0_ERR_ARGUMENT, "the file's ending does not say a format that can be written");
        app_err_field(err->where, "--%s", files[i].option);
        app_err_field(err->expected, "%s", files[i].ending ? files[i].ending : ".npy, .json or .csv");
        app_err_field(err->got, "%.200s", path);
        return err->status;
    }
    return PI0_OK;
}

static pi0_status same_bits(const infer_run *run, const app_result *again, size_t number, pi0_error *err)
{
    size_t count = (size_t)run->result.rows * (size_t)run->result.columns;
    if (again->rows == run->result.rows && again->columns == run->result.columns &&
        memcmp(again->actions, run->result.actions, count * sizeof(double)) == 0)
        return PI0_OK;
    app_err(err, PI0_ERR_INTERNAL, "run %zu gave other actions than run 0 from the same observation and noise", number);
    app_err_field(err->expected, "the same bits");
    app_err_field(err->hint, "please report this with the output of `pi0 doctor`");
    return err->status;
}

/* One inference from a fresh session, so that each run draws the same noise. */
static pi0_status infer_once(app_context *app, infer_run *run, size_t number, app_phase *phase, pi0_error *err)
{
    uint64_t seed = app_args_unsigned(&app->args, "seed", 0);
    bool raw = app_args_flag(&app->args, "raw") || run->observation.preprocessed;
    *phase = APP_READING;
    pi0_session_reset(run->policy.session, seed);
    pi0_status status = app_observation_apply(&run->observation, pi0_model_info(run->policy.model), run->policy.session, err);
    if (status != PI0_OK)
        return status;
    *phase = APP_COMPUTING;
    status = pi0_infer(&run->policy.session, 1, (int)app_args_int(&app->args, "steps", 0), err);
    if (status != PI0_OK)
        return status;
    app_result result;
    status = app_result_take(run->policy.session, raw, &result, err);
    if (status != PI0_OK)
        return status;
    if (number == 0) {
        /* the files were read once, for the first run */
        const double decode_ms = (double)(run->observation.decode_end_ns - run->observation.decode_start_ns) * 1e-6;
        result.timing.decode += decode_ms;
        result.timing.total += decode_ms;
        result.seed = seed;
        run->result = result;
        run->timings[0] = result.timing;
    } else {
        run->timings[number] = result.timing;
        status = same_bits(run, &result, number, err);
        app_result_release(&result);
    }
    app_stats_tick(&app->report, run->policy.model);
    return status;
}

/* What will be computed with, before it is. */
static void note_model(app_context *app, const infer_run *run)
{
    const pi0_info *info = pi0_model_info(run->policy.model);
    app_text memory = {0};
    app_text_size(&memory, (double)pi0_model_memory(run->policy.model).total);
    app_note(&app->report, "%s, %s layout, %s on %s (%s kernels, %d threads), %s of memory", info->model, info->layout, info->precision,
             info->device, info->isa, info->threads, memory.data ? memory.data : "?");
    app_text_release(&memory);
}

static void note_timings(app_context *app, const infer_run *run)
{
    for (size_t i = 0; i < run->runs; i++) {
        app_text line = {0};
        app_timing_line(&line, &run->timings[i]);
        if (line.data && run->runs > 1)
            app_note(&app->report, "run %zu: %s", i, line.data);
        else if (line.data)
            app_note(&app->report, "%s", line.data);
        app_text_release(&line);
    }
}

enum { MOST_TRACED = 100 }; /* some megabytes */

static pi0_status start_trace(const app_context *app, infer_run *run, uint64_t open_start_ns, pi0_error *err)
{
    const uint64_t open_end_ns = app_now_ns();
    const size_t runs = run->runs < MOST_TRACED ? run->runs : MOST_TRACED;
    pi0_status status = pi0_trace_start(run->policy.model, runs, (int)app_args_int(&app->args, "steps", 0), err);
    pi0_trace_add(run->policy.model, "decode", run->observation.decode_start_ns, run->observation.decode_end_ns);
    pi0_trace_add(run->policy.model, "open", open_start_ns, open_end_ns);
    return status;
}

static pi0_status compute(app_context *app, infer_run *run, app_phase *phase, pi0_error *err)
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
    if (status != PI0_OK)
        return status;
    pi0_options *chosen = &run->policy.settings.options;
    chosen->warm = app_args_flag(args, "warm");
    chosen->stages = app_args_text(args, "dump") || app_args_text(args, "record");
    app_observation_settle(&run->observation, chosen);
    const uint64_t open_start = app_now_ns();
    status = app_policy_open(app, &run->policy, err);
    if (status != PI0_OK)
        return status;
    note_model(app, run);
    run->runs = (size_t)app_args_int(args, "repeat", 1);
    run->timings = calloc(run->runs, sizeof *run->timings);
    if (!run->timings)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for %zu runs", run->runs);
    if (app_args_text(args, "trace"))
        status = start_trace(app, run, open_start, err);
    for (size_t i = 0; status == PI0_OK && i < run->runs; i++)
        status = infer_once(app, run, i, phase, err);
    return status;
}

static app_curves curves_of(const infer_run *run, char *title, size_t size)
{
    const pi0_info *info = pi0_model_info(run->policy.model);
    snprintf(title, size, "%s action chunk, %d steps of %d joints%s", info->model, run->result.rows, run->result.columns,
             run->result.raw ? ", model space" : "");
    return (app_curves){.values = run->result.actions,
                        .rows = run->result.rows,
                        .columns = run->result.columns,
                        .title = title,
                        .x_label = "step of the chunk",
                        .y_label = run->result.raw ? "model space" : "the robot's units"};
}

static pi0_status write_outputs(const app_context *app, const infer_run *run, pi0_error *err)
{
    const app_args *args = &app->args;
    const pi0_info *info = pi0_model_info(run->policy.model);
    const char *path;
    pi0_status status = PI0_OK;
    if ((path = app_args_text(args, "output")))
        status = app_result_write(path, &run->result, info, pi0_model_memory(run->policy.model), err);
    if (status == PI0_OK && (path = app_args_text(args, "dump")))
        status = app_dump_write(path, run->policy.session, err);
    if (status == PI0_OK && (path = app_args_text(args, "record")))
        status = app_record_write(path, &run->observation, run->policy.session, err);
    if (status == PI0_OK && (path = app_args_text(args, "plot"))) {
        char title[160];
        app_curves curves = curves_of(run, title, sizeof title);
        app_text text = {0};
        app_plot_svg(&text, &curves);
        status = app_text_write(path, &text, err);
    }
    return status;
}

/* Columns of the terminal, or 0 where stdout is none. */
static size_t terminal_width(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO))
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40 ? size.ws_col : 80;
}

static int print_result(app_context *app, const infer_run *run)
{
    const pi0_info *info = pi0_model_info(run->policy.model);
    size_t width = terminal_width();
    app_text out = {0};
    if (app->json) {
        app_result_json(&out, &run->result, info, pi0_model_memory(run->policy.model));
    } else if (!app_args_text(&app->args, "output")) {
        app_result_table(&out, &run->result, info, width);
        if (width || app_args_flag(&app->args, "sketch")) {
            char title[160];
            app_curves curves = curves_of(run, title, sizeof title);
            app_text_add(&out, "\n");
            app_plot_sketch(&out, &curves, width ? (int)width - 14 : 80, 18);
        }
    }
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static pi0_status write_trace(const infer_run *run, const char *path, pi0_error *err)
{
    app_trace trace = {0};
    app_text text = {0};
    pi0_status status = app_trace_take(run->policy.model, &trace, err);
    if (status == PI0_OK) {
        app_trace_json(&text, &trace, pi0_model_info(run->policy.model));
        status = app_text_write(path, &text, err);
    }
    app_trace_release(&trace);
    return status;
}

/* The trace comes last: a disk that fills up then has cost no actions. */
static int finish(app_context *app, const infer_run *run)
{
    pi0_error err = {0};
    const char *trace = app_args_text(&app->args, "trace");
    const uint64_t start = app_now_ns();
    if (write_outputs(app, run, &err) != PI0_OK)
        return app_fail(&app->report, &err, APP_WRITING);
    int code = print_result(app, run);
    pi0_trace_add(run->policy.model, "encode", start, app_now_ns());
    if (trace && write_trace(run, trace, &err) != PI0_OK)
        code = app_fail(&app->report, &err, APP_WRITING);
    return code;
}

static void release(infer_run *run)
{
    app_result_release(&run->result);
    free(run->timings);
    app_policy_release(&run->policy);
    app_observation_release(&run->observation);
}

static int infer(app_context *app)
{
    infer_run run = {0};
    pi0_error err = {0};
    app_phase phase = APP_READING;
    int code = APP_OK;
    if (compute(app, &run, &phase, &err) != PI0_OK) {
        code = app_fail(&app->report, &err, phase);
        goto done;
    }
    note_timings(app, &run);
    app_signals_hold();
    code = finish(app, &run);
    app_signals_release();
done:
    release(&run);
    return code;
}

static const char *const names[] = {"MODEL: a checkpoint directory, a .safetensors or .pi0 file, or org/name in the Hugging Face cache"};

const app_command app_infer = {
    .name = "infer",
    .summary = "one chunk of actions from pictures, state and a sentence",
    .usage = "MODEL OBSERVATION... [options]",
    .text = "Runs the policy once. The result is a chunk of H future actions of D joints in the robot's own units, as a table, as "
            "--json, or in a file with -o. The same observation, seed and noise give the same bits on every run, whatever --threads. "
            "`pi0 inspect MODEL` names the cameras and the state that the model expects.",
    .examples =
        "  pi0 infer ~/my_policy --image top=top.png --image wrist=wrist.jpg --state 0.1,-0.4,0,0,0.2,0 --prompt \"pick up the cube\"\n"
        "  pi0 infer pi0_aloha_sim_dir --config pi0_aloha_sim --obs episode.npz -o actions.npy --plot actions.svg\n"
        "  pi0 infer ~/my_policy --obs episode.npz --record ref.npz     and on another machine: pi0 check ~/my_policy ref.npz\n",
    .syntax = {.tables = {options, app_observation_options, app_chunk_options, app_model_options, app_general_options},
               .names = names,
               .min_positional = 1,
               .max_positional = 1},
    .run = infer,
};
