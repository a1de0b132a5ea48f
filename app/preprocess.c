#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "json_out.h"
#include "observation.h"
#include "signals.h"

static const app_option options[] = {
    {.name = "resize",
     .kind = APP_CHOICE,
     .metavar = "RULE",
     .choices = "pil torch torch-lerobot04 top-left",
     .help = "pil (openpi), torch (LeRobot), torch-lerobot04 or top-left"},
    {.name = "size", .kind = APP_INT, .metavar = "S", .min = 1, .max = 4096, .help = "side of the model's picture (default 224)"},
    {.name = "output", .letter = 'o', .kind = APP_TEXT, .metavar = "FILE", .help = ".npy (f32 [S,S,3] in [-1,1]) or .png"},
    {.name = NULL},
};

static pi0_status check_options(const app_args *args, pi0_error *err)
{
    const char *path = app_args_text(args, "output");
    if (!app_args_text(args, "resize") || !path) {
        app_err(err, PI0_ERR_ARGUMENT, "missing option");
        app_err_field(err->where, "pi0 preprocess");
        app_err_field(err->expected, "%s", path ? "--resize pil|torch|torch-lerobot04|top-left" : "-o FILE.npy or -o FILE.png");
        app_err_field(err->hint, "openpi checkpoints use pil, LeRobot's torch: the two differ; `pi0 inspect MODEL` says which");
        return err->status;
    }
    if (app_ends_with(path, ".npy") || app_ends_with(path, ".png"))
        return PI0_OK;
    app_err(err, PI0_ERR_ARGUMENT, "the file's ending does not say a format that can be written");
    app_err_field(err->where, "--output");
    app_err_field(err->expected, ".npy or .png");
    app_err_field(err->got, "%.200s", path);
    return err->status;
}

static int print_done(app_context *app, const char *path, int size)
{
    if (!app->json) {
        app_note(&app->report, "wrote %s", path);
        return APP_OK;
    }
    app_text out = {0};
    app_json json = {.out = &out};
    app_json_open(&json, '{');
    app_json_key(&json, "output");
    app_json_string(&json, path);
    app_json_key(&json, "shape");
    app_json_open(&json, '[');
    app_json_int(&json, size);
    app_json_int(&json, size);
    app_json_int(&json, 3);
    app_json_close(&json, ']');
    app_json_close(&json, '}');
    app_text_add(&out, "\n");
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static pi0_status write_picture(const char *path, const float *pixels, int size, pi0_error *err)
{
    if (app_ends_with(path, ".png"))
        return pi0_image_write_png(path, pixels, size, err);
    pi0_array array = {.name = "", .dtype = PI0_F32, .rank = 3, .shape = {size, size, 3}, .data = pixels};
    array.bytes = (size_t)size * (size_t)size * 3 * sizeof(float);
    return pi0_arrays_write(path, &array, 1, err);
}

static int preprocess(app_context *app)
{
    const app_args *args = &app->args;
    pi0_error err = {0};
    app_phase phase = APP_READING;
    pi0_arrays *image = NULL;
    float *pixels = NULL; /* [size, size, 3] */
    int size = (int)app_args_int(args, "size", 224), code;
    const char *path = app_args_text(args, "output");
    pi0_status status = check_options(args, &err);
    if (status == PI0_OK)
        status = pi0_image_read(args->positional[0], &image, &err);
    if (status == PI0_OK) {
        pixels = malloc((size_t)size * (size_t)size * 3 * sizeof *pixels);
        if (!pixels)
            status = app_err(&err, PI0_ERR_MEMORY, "not enough memory for a picture of side %d", size);
    }
    if (status == PI0_OK)
        status = pi0_preprocess(pi0_arrays_at(image, 0), app_args_text(args, "resize"), size, pixels, &err);
    if (status == PI0_OK) {
        phase = APP_WRITING;
        app_signals_hold();
        status = write_picture(path, pixels, size, &err);
        if (status == PI0_OK)
            app_signals_release();
    }
    code = status == PI0_OK ? print_done(app, path, size) : app_fail(&app->report, &err, phase);
    free(pixels);
    pi0_arrays_free(&image);
    return code;
}

static const char *const names[] = {"IMAGE: a png, jpeg or npy picture"};

const app_command app_preprocess = {
    .name = "preprocess",
    .summary = "a camera picture as the vision tower sees it",
    .usage = "IMAGE --resize pil|torch|torch-lerobot04|top-left [--size 224] -o OUT.npy|.png",
    .text = "Resizes one picture by the rule that a checkpoint was trained with. The rules give different pixels and the wrong one costs "
            "success rate without an error, so none is assumed here.",
    .examples = "  pi0 preprocess frame.png --resize pil -o seen.png\n"
                "  pi0 preprocess frame.jpg --resize torch --size 224 -o seen.npy\n",
    .syntax = {.tables = {options, app_general_options}, .names = names, .min_positional = 1, .max_positional = 1},
    .run = preprocess,
};
