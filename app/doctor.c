#include "app.h"
#include "describe.h"
#include "model_options.h"

static const app_option options[] = {
    {.name = "measure", .kind = APP_FLAG, .help = "also what the machine can do: arithmetic, caches, memory (2 to 5 seconds on all cores)"},
    {.name = NULL},
};

static int doctor(app_context *app)
{
    pi0_error err = {0};
    app_model_settings settings;
    char *text = NULL;
    pi0_status status = app_model_settings_fill(app, &settings, &err);
    settings.options.log = NULL; /* the page holds every warning */
    if (status == PI0_OK)
        status = pi0_doctor(app->args.n_positional ? app->args.positional[0] : NULL, &settings.options,
                            app_args_flag(&app->args, "measure"), &text, &err);
    int code = status == PI0_OK ? app_describe_print(app, text, NULL) : app_fail(&app->report, &err, APP_READING);
    pi0_text_free(&text);
    app_model_settings_release(&settings);
    return code;
}

static const char *const names[] = {"MODEL: a checkpoint whose health to report as well"};

const app_command app_doctor = {
    .name = "doctor",
    .summary = "the machine, its devices and libraries, and a model's health",
    .usage = "[MODEL] [options]",
    .text = "Says what this machine has: processors and caches, instruction sets and which of them each kind of kernel uses, devices with "
            "the reason each is or is not usable, libraries. With MODEL also whether its files, statistics and tokenizer are in order. "
            "--measure adds what the machine can do at best: multiply-adds on registers alone, reading and copying (bytes read and "
            "written) of each cache and of memory, the best of several short loops.",
    .examples = "  pi0 doctor\n"
                "  pi0 doctor --measure\n"
                "  pi0 doctor ~/my_policy\n"
                "  pi0 doctor --json\n",
    .syntax = {.tables = {options, app_model_options, app_general_options}, .names = names, .max_positional = 1},
    .run = doctor,
};
