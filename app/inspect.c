#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "describe.h"
#include "model_options.h"
#include "signals.h"

static const app_option options[] = {
    {.name = "tensors", .kind = APP_FLAG, .help = "every tensor with its type and shape"},
    {.name = "write-recipe",
     .kind = APP_TEXT,
     .metavar = "FILE.json",
     .help = "write the recipe, to be edited and given back with --recipe"},
    {.name = NULL},
};

static int write_recipe(app_context *app, const pi0_options *model_options, const char *path)
{
    pi0_error err = {0};
    char *text = NULL;
    if (pi0_recipe_text(app->args.positional[0], model_options, &text, &err) != PI0_OK)
        return app_fail(&app->report, &err, APP_READING);
    app_signals_hold();
    pi0_status status = pi0_file_write(path, text, strlen(text), &err);
    pi0_text_free(&text);
    int code = status == PI0_OK ? APP_OK : app_fail(&app->report, &err, APP_WRITING);
    app_signals_release();
    if (code == APP_OK)
        app_note(&app->report, "wrote the recipe to %s", path);
    return code;
}

static int inspect(app_context *app)
{
    pi0_error err = {0};
    app_model_settings settings;
    char *text = NULL;
    int code;
    pi0_status status = app_model_settings_fill(app, &settings, &err);
    settings.options.log = NULL; /* the page holds every warning */
    if (status == PI0_OK)
        status = pi0_inspect(app->args.positional[0], &settings.options, &text, &err);
    if (status != PI0_OK) {
        code = app_fail(&app->report, &err, APP_READING);
    } else {
        const char *recipe = app_args_text(&app->args, "write-recipe");
        code = recipe ? write_recipe(app, &settings.options, recipe) : APP_OK;
        if (code == APP_OK)
            code = app_describe_print(app, text, app_args_flag(&app->args, "tensors") ? NULL : "tensors");
    }
    pi0_text_free(&text);
    app_model_settings_release(&settings);
    return code;
}

static const char *const names[] = {"MODEL: a checkpoint directory, a .safetensors or .pi0 file, or org/name in the Hugging Face cache"};

const app_command app_inspect = {
    .name = "inspect",
    .summary = "what a checkpoint is, what it expects and what it will use",
    .usage = "MODEL [--tensors] [--write-recipe FILE.json] [options]",
    .text = "Reads everything but computes nothing: layout and sizes, the recipe with the origin of every field, statistics with their "
            "warnings, compute types, passes and the memory plan. It also works where `pi0 infer` would refuse, and names the problems.",
    .examples = "  pi0 inspect ~/my_policy\n"
                "  pi0 inspect openpi_dir --config pi05_libero --json\n"
                "  pi0 inspect ~/my_policy --write-recipe my_robot.json\n",
    .syntax = {.tables = {options, app_model_options, app_general_options}, .names = names, .min_positional = 1, .max_positional = 1},
    .run = inspect,
};
