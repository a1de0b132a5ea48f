#include <stdio.h>
#include <string.h>

#include "app.h"
#include "json_out.h"
#include "signals.h"

static const app_option options[] = {
    {.name = "model", .kind = APP_CHOICE, .metavar = "MODEL", .choices = "pi0 pi05", .help = "pi0 or pi05"},
    {.name = "layout",
     .kind = APP_CHOICE,
     .metavar = "LAYOUT",
     .choices = "openpi lerobot lerobot-0.3",
     .help = "whose files it imitates: openpi, lerobot or lerobot-0.3"},
    {.name = "size",
     .kind = APP_CHOICE,
     .metavar = "SIZE",
     .choices = "tiny small base",
     .help = "tiny, small, or base (the published sizes: about 7 GB in bf16)"},
    {.name = "config", .kind = APP_TEXT, .metavar = "NAME", .help = "the openpi config whose robot is imitated"},
    {.name = "dtype", .kind = APP_CHOICE, .metavar = "TYPE", .choices = "f32 bf16", .help = "f32 or bf16"},
    {.name = "seed", .kind = APP_SEED, .metavar = "N", .help = "the same seed gives the same bytes (default 0)"},
    {.name = "cameras", .kind = APP_INT, .metavar = "N", .min = 1, .max = 4, .help = "cameras of the robot"},
    {.name = "state-dim", .kind = APP_INT, .metavar = "N", .min = 1, .max = 256, .help = "width of the robot's state"},
    {.name = "action-dim", .kind = APP_INT, .metavar = "N", .min = 1, .max = 256, .help = "width of the robot's action"},
    {.name = "horizon", .kind = APP_INT, .metavar = "N", .min = 1, .max = 4096, .help = "rows of an action chunk"},
    {.name = "outliers",
     .kind = APP_TEXT,
     .metavar = "N[xFACTOR]",
     .help = "in a third of the layers N channels are FACTOR (50) times larger where matrices meet them, at the same results: what "
             "plain int8 cannot do"},
    {.name = "shards", .kind = APP_INT, .metavar = "N", .min = 1, .max = 1024, .help = "split the weights over N files"},
    {.name = NULL},
};

/* "4" or "4x50" */
static pi0_status read_outliers(const app_args *args, pi0_synth_options *synth, pi0_error *err)
{
    const char *text = app_args_text(args, "outliers");
    char count[16];
    int64_t n = 0, factor = 0;
    const size_t bytes = text ? strcspn(text, "x") : 0;
    if (!text)
        return PI0_OK;
    snprintf(count, sizeof count, "%.*s", (int)bytes, text);
    if (bytes < sizeof count && app_read_int(count, 0, 1000, &n) && (!text[bytes] || app_read_int(text + bytes + 1, 2, 1000, &factor))) {
        synth->outliers = (int)n;
        synth->outlier_factor = (int)factor;
        return PI0_OK;
    }
    app_err(err, PI0_ERR_ARGUMENT, "--outliers needs a number of channels and, if you like, a factor from 2 to 1000");
    app_err_field(err->where, "--outliers");
    app_err_field(err->expected, "N or NxFACTOR, such as 4x50");
    app_err_field(err->got, "%.200s", text);
    return err->status;
}

static pi0_status fill(app_context *app, pi0_synth_options *synth, pi0_error *err)
{
    const app_args *args = &app->args;
    static const char *const required[] = {"model", "layout", "size"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        if (!app_args_text(args, required[i])) {
            app_err(err, PI0_ERR_ARGUMENT, "missing option");
            app_err_field(err->where, "pi0 synth");
            app_err_field(err->expected, "--%s", required[i]);
            app_err_field(err->hint, "for example: pi0 synth DIR --model pi0 --layout lerobot --size tiny");
            return err->status;
        }
    pi0_synth_options_init(synth);
    synth->model = app_args_text(args, "model");
    synth->layout = app_args_text(args, "layout");
    synth->size = app_args_text(args, "size");
    synth->config = app_args_text(args, "config");
    if (app_args_text(args, "dtype"))
        synth->dtype = app_args_text(args, "dtype");
    synth->seed = app_args_unsigned(args, "seed", 0);
    synth->cameras = (int)app_args_int(args, "cameras", 0);
    synth->state_dim = (int)app_args_int(args, "state-dim", 0);
    synth->action_dim = (int)app_args_int(args, "action-dim", 0);
    synth->horizon = (int)app_args_int(args, "horizon", 0);
    synth->shards = (int)app_args_int(args, "shards", 0);
    synth->progress = app_report_progress;
    synth->progress_user = &app->report;
    return read_outliers(args, synth, err);
}

static int print_done(app_context *app, const pi0_synth_options *synth)
{
    const char *dir = app->args.positional[0];
    app_text out = {0};
    if (app->json) {
        app_json json = {.out = &out};
        const char *const pairs[][2] = {{"path", dir}, {"model", synth->model}, {"layout", synth->layout}, {"size", synth->size}};
        app_json_open(&json, '{');
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            app_json_key(&json, pairs[i][0]);
            app_json_string(&json, pairs[i][1]);
        }
        app_json_key(&json, "seed");
        app_json_unsigned(&json, synth->seed);
        app_json_close(&json, '}');
        app_text_add(&out, "\n");
    } else {
        app_text_add(&out, "%s: a random %s checkpoint of size %s in %s layout\n", dir, synth->model, synth->size, synth->layout);
    }
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static int synth(app_context *app)
{
    pi0_error err = {0};
    pi0_synth_options synth_options;
    if (fill(app, &synth_options, &err) != PI0_OK)
        return app_fail(&app->report, &err, APP_READING);
    app_signals_hold();
    if (pi0_synth(app->args.positional[0], &synth_options, &err) != PI0_OK)
        return app_fail(&app->report, &err, APP_WRITING);
    app_signals_release();
    return print_done(app, &synth_options);
}

static const char *const names[] = {"DIR: where to write it; must not exist, or be empty"};

const app_command app_synth = {
    .name = "synth",
    .summary = "writes a complete random checkpoint",
    .usage = "DIR --model pi0|pi05 --layout openpi|lerobot|lerobot-0.3 --size tiny|small|base [options]",
    .text =
        "Writes weights, configuration, statistics and a small tokenizer with which everything else of this program can be tried "
        "without a download. The same options give the same bytes on every machine. Nothing is left behind when it fails or is stopped.",
    .examples = "  pi0 synth /tmp/tiny --model pi0 --layout lerobot --size tiny --cameras 2\n"
                "  pi0 synth /tmp/droid --model pi05 --layout openpi --size small --config pi05_droid\n"
                "  pi0 synth /tmp/outliers --model pi0 --layout lerobot --size tiny --outliers 4x50\n"
                "  pi0 synth /data/full --model pi0 --layout openpi --size base --dtype bf16 --shards 3\n",
    .syntax = {.tables = {options, app_general_options}, .names = names, .min_positional = 1, .max_positional = 1},
    .run = synth,
};
