#include <string.h>

#include "app.h"
#include "json_out.h"
#include "model_options.h"
#include "result.h"
#include "signals.h"

static const app_option options[] = {
    {.name = "output", .letter = 'o', .kind = APP_TEXT, .metavar = "FILE.pi0", .help = "the file to write; one of that name is replaced"},
    {.name = "verify", .kind = APP_FLAG, .help = "write nothing: read the packed file MODEL and compare every checksum"},
    {.name = NULL},
};

static void add_numbers(app_json *json, const char *const names[], const uint64_t values[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        app_json_key(json, names[i]);
        app_json_unsigned(json, values[i]);
    }
}

static int print_verified(app_context *app, const char *path, uint64_t tensors, uint64_t bytes)
{
    app_text out = {0};
    if (app->json) {
        app_json json = {.out = &out};
        app_json_open(&json, '{');
        app_json_key(&json, "path");
        app_json_string(&json, path);
        add_numbers(&json, (const char *const[]){"tensors", "bytes"}, (const uint64_t[]){tensors, bytes}, 2);
        app_json_close(&json, '}');
        app_text_add(&out, "\n");
    } else {
        app_text_add(&out, "%s: whole and as it was written; %llu tensors, ", path, (unsigned long long)tensors);
        app_text_size(&out, (double)bytes);
        app_text_add(&out, "\n");
    }
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static int print_packed(app_context *app, const char *path, const pi0_pack_report *report)
{
    app_text out = {0};
    if (app->json) {
        app_json json = {.out = &out};
        app_json_open(&json, '{');
        app_json_key(&json, "path");
        app_json_string(&json, path);
        app_json_key(&json, "precision");
        app_json_string(&json, report->precision);
        add_numbers(
            &json, (const char *const[]){"bytes", "stored_tensors", "stored_bytes", "packed_weights", "packed_bytes"},
            (const uint64_t[]){report->bytes, report->stored_tensors, report->stored_bytes, report->packed_weights, report->packed_bytes},
            5);
        app_json_close(&json, '}');
        app_text_add(&out, "\n");
    } else {
        app_text_add(&out, "%s: ", path);
        app_text_size(&out, (double)report->bytes);
        app_text_add(&out, "; %llu tensors as stored (", (unsigned long long)report->stored_tensors);
        app_text_size(&out, (double)report->stored_bytes);
        app_text_add(&out, "), %llu weights in the order of this machine's %s kernels (", (unsigned long long)report->packed_weights,
                     report->precision);
        app_text_size(&out, (double)report->packed_bytes);
        app_text_add(&out, ")\n");
    }
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}

static pi0_status check_combination(const app_args *args, pi0_error *err)
{
    const bool verify = app_args_flag(args, "verify"), output = app_args_text(args, "output") != NULL;
    if (verify != output)
        return PI0_OK;
    app_err(err, PI0_ERR_ARGUMENT, verify ? "both --verify and -o" : "no file to write was named");
    app_err_field(err->where, "pi0 pack");
    app_err_field(err->expected, "-o FILE.pi0 to write one, or --verify to check one");
    app_err_field(err->hint, "pi0 pack MODEL -o FILE.pi0, or: pi0 pack --verify FILE.pi0");
    return err->status;
}

typedef struct pack_progress {
    app_report *report;
    bool writing;
} pack_progress;

/* An error of the same kind means another thing once the new file is being written. */
static int watch(void *user, const char *stage, uint64_t done, uint64_t total)
{
    pack_progress *progress = user;
    progress->writing = strcmp(stage, "write") == 0;
    return app_report_progress(progress->report, stage, done, total);
}

static int pack(app_context *app)
{
    pi0_error err = {0};
    app_model_settings settings = {0};
    pi0_pack_report report;
    uint64_t tensors, bytes;
    const char *model = app->args.positional[0], *output = app_args_text(&app->args, "output");
    if (check_combination(&app->args, &err) != PI0_OK || app_model_settings_fill(app, &settings, &err) != PI0_OK) {
        app_model_settings_release(&settings);
        return app_fail(&app->report, &err, APP_READING);
    }
    if (output && app_check_folder("output", output, &err) != PI0_OK) {
        app_model_settings_release(&settings);
        return app_fail(&app->report, &err, APP_WRITING);
    }
    pack_progress progress = {.report = &app->report};
    settings.options.progress = watch;
    settings.options.progress_user = &progress;
    app_signals_hold();
    const pi0_status status = output ? pi0_pack(model, &settings.options, output, &report, &err)
                                     : pi0_pack_verify(model, &settings.options, &tensors, &bytes, &err);
    app_signals_release();
    app_model_settings_release(&settings);
    if (status != PI0_OK)
        return app_fail(&app->report, &err, progress.writing && status == PI0_ERR_IO ? APP_WRITING : APP_READING);
    return output ? print_packed(app, output, &report) : print_verified(app, model, tensors, bytes);
}

static const char *const names[] = {"MODEL: a checkpoint directory, a .safetensors or .pi0 file, or org/name in the Hugging Face cache; "
                                    "with --verify a packed file"};

const app_command app_pack = {
    .name = "pack",
    .summary = "one file with all of a model, in the order of this machine's kernels",
    .usage = "MODEL -o FILE.pi0 [--precision P] [options]\n       pi0 pack --verify FILE.pi0",
    .text = "FILE.pi0 holds weights, recipe, statistics and tokenizer, and every command takes it as MODEL with no other file beside it. "
            "The weights that would be packed when the model is opened are in it as the kernels of this machine want them, for the "
            "precision chosen here, which then is the file's own `auto`; they are used where the file is mapped. All tensors are in it as "
            "they were stored, too: on another chip, or with another --precision, it opens with a warning, later but with the actions of "
            "the checkpoint there. Packed with --precision int8:auto it brings its calibration along, which holds for one form of int8. "
            "Options that change the recipe are kept in the file. The SHA-256 of the weights it came from is in it, and a checksum "
            "of every tensor, which --verify compares (exit 3 and the tensors' names when one differs). Nothing is left behind when it "
            "fails or is stopped. A packed file may be packed again, on the machine where it shall run.",
    .examples = "  pi0 pack ~/my_policy -o my_policy.pi0\n"
                "  pi0 pack openpi_dir --config pi05_libero --precision int8 -o libero.pi0\n"
                "  pi0 infer my_policy.pi0 --image top=top.png --state 0.1,-0.4,0.3,0,0.2,-0.1 --prompt \"pick up the cube\"\n"
                "  pi0 pack --verify my_policy.pi0\n",
    .syntax = {.tables = {options, app_model_options, app_general_options}, .names = names, .min_positional = 1, .max_positional = 1},
    .run = pack,
};
