#include "model_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const app_option app_general_options[] = {
    {.name = "json", .kind = APP_FLAG, .help = "the result as one JSON document"},
    {.name = "quiet", .letter = 'q', .kind = APP_FLAG, .help = "nothing on stderr but errors"},
    {.name = NULL},
};

const app_option app_chunk_options[] = {
    {.name = "steps", .kind = APP_INT, .metavar = "N", .min = 1, .max = 1000, .help = "flow-matching steps (default: the recipe's)"},
    {.name = "horizon", .kind = APP_INT, .metavar = "N", .min = 1, .max = 4096, .help = "rows of the chunk (default: the recipe's)"},
    {.name = NULL},
};

const app_option app_model_options[] = {
    {.name = "config", .kind = APP_TEXT, .metavar = "NAME", .help = "an openpi config, such as pi0_aloha_sim or pi05_libero"},
    {.name = "recipe",
     .kind = APP_TEXT,
     .metavar = "FILE.json",
     .help = "the whole recipe; `pi0 inspect --write-recipe` writes one to start from"},
    {.name = "set", .kind = APP_TEXT, .repeat = true, .metavar = "KEY=VALUE", .help = "one field of the recipe (repeatable)"},
    {.name = "tokenizer", .kind = APP_TEXT, .metavar = "FILE", .help = "tokenizer.json or SentencePiece tokenizer.model"},
    {.name = "norm-stats", .kind = APP_TEXT, .metavar = "FILE", .help = "normalisation statistics"},
    {.name = "asset-id", .kind = APP_TEXT, .metavar = "ID", .help = "which folder below assets/ holds the statistics"},
    {.name = "no-norm", .kind = APP_FLAG, .help = "no normalisation, on purpose"},
    {.name = "device", .kind = APP_TEXT, .metavar = "DEVICE", .help = "cpu (the default)"},
    {.name = "precision",
     .kind = APP_TEXT,
     .metavar = "P",
     .help = "auto, f32, bf16, int8 or int8:auto; auto is bf16 where the large matrices are stored so, else f32"},
    {.name = "calibration",
     .kind = APP_TEXT,
     .metavar = "FILE",
     .help = "for int8:auto: which matrix products may be int8; `pi0 calibrate` writes it"},
    {.name = "threads",
     .kind = APP_INT,
     .metavar = "N",
     .max = 256,
     .help = "worker threads; 0, the default, is one for each physical core"},
    {.name = "affinity",
     .kind = APP_TEXT,
     .metavar = "CPUS",
     .help = "where worker threads stay: cores (one on each), or CPUs such as 2,3,8-11; default: where the system puts them"},
    {.name = "isa", .kind = APP_TEXT, .metavar = "NAME", .help = "highest instruction set to use"},
    {.name = "disable", .kind = APP_TEXT, .metavar = "PASS[,PASS]", .help = "optimisation passes to leave out"},
    {.name = "window",
     .kind = APP_INT,
     .metavar = "N",
     .max = 4096,
     .help = "long horizons: an action attends, of the actions, to those less than N away only; changes a trained model's result; 0, the "
             "default: to all"},
    {.name = "memory-limit",
     .kind = APP_SIZE,
     .metavar = "SIZE",
     .help = "refuse to start when the plan needs more, such as 8G or 512m; without it there is no limit"},
    {.name = NULL},
};

/* $variable, or $HOME/below, as heap text; NULL without either. */
static char *home_path(const char *variable, const char *second, const char *second_below, const char *below)
{
    const char *base = variable ? getenv(variable) : NULL;
    const char *tail = "";
    if (!base || !*base) {
        base = second ? getenv(second) : NULL;
        tail = second_below;
    }
    if (!base || !*base) {
        base = getenv("HOME");
        tail = below;
    }
    if (!base || !*base)
        return NULL;
    size_t bytes = strlen(base) + strlen(tail) + 1;
    char *path = malloc(bytes);
    if (path)
        snprintf(path, bytes, "%s%s", base, tail);
    return path;
}

pi0_status app_model_settings_fill(app_context *app, app_model_settings *settings, pi0_error *err)
{
    const app_args *args = &app->args;
    memset(settings, 0, sizeof *settings);
    pi0_options *options = &settings->options;
    pi0_options_init(options);
    pi0_status status = app_args_keys_once(args, "set", err);
    if (status != PI0_OK)
        return status;
    size_t n_set = 0;
    while (app_args_nth(args, "set", n_set))
        n_set++;
    settings->set = calloc(n_set + 1, sizeof *settings->set);
    if (!settings->set)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the options");
    for (size_t i = 0; i < n_set; i++)
        settings->set[i] = app_args_nth(args, "set", i);
    settings->hf_home = home_path("HF_HOME", "XDG_CACHE_HOME", "/huggingface", "/.cache/huggingface");
    settings->openpi_home = home_path("OPENPI_DATA_HOME", NULL, "", "/.cache/openpi");

    options->config = app_args_text(args, "config");
    options->recipe = app_args_text(args, "recipe");
    options->set = settings->set;
    options->n_set = n_set;
    options->tokenizer = app_args_text(args, "tokenizer");
    options->norm_stats = app_args_text(args, "norm-stats");
    options->asset_id = app_args_text(args, "asset-id");
    options->no_norm = app_args_flag(args, "no-norm");
    options->hf_home = settings->hf_home;
    options->openpi_home = settings->openpi_home;
    if (app_args_text(args, "device"))
        options->device = app_args_text(args, "device");
    if (app_args_text(args, "precision"))
        options->precision = app_args_text(args, "precision");
    options->calibration = app_args_text(args, "calibration");
    options->threads = (int)app_args_int(args, "threads", 0);
    options->affinity = app_args_text(args, "affinity");
    options->isa = app_args_text(args, "isa");
    options->disable = app_args_text(args, "disable");
    options->window = (int)app_args_int(args, "window", 0);
    options->memory_limit = app_args_unsigned(args, "memory-limit", 0);
    options->horizon = (int)app_args_int(args, "horizon", 0);
    options->log = app_report_log;
    options->log_user = &app->report;
    options->progress = app_report_progress;
    options->progress_user = &app->report;
    return PI0_OK;
}

void app_model_settings_release(app_model_settings *settings)
{
    free(settings->set);
    free(settings->hf_home);
    free(settings->openpi_home);
    memset(settings, 0, sizeof *settings);
}

pi0_status app_policy_open(const app_context *app, app_policy *policy, pi0_error *err)
{
    pi0_status status = pi0_open(app->args.positional[0], &policy->settings.options, &policy->model, err);
    if (status == PI0_OK)
        status = pi0_session_open(policy->model, app_args_unsigned(&app->args, "seed", 0), &policy->session, err);
    return status;
}

void app_policy_shut(app_policy *policy)
{
    pi0_session_close(&policy->session);
    pi0_close(&policy->model);
}

void app_policy_release(app_policy *policy)
{
    app_policy_shut(policy);
    app_model_settings_release(&policy->settings);
}
