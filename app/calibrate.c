#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "layers.h"
#include "model_options.h"
#include "observation.h"
#include "result.h"
#include "signals.h"
#include "stats.h"

static const app_option options[] = {
    {.name = "output", .letter = 'o', .kind = APP_TEXT, .metavar = "FILE.json", .help = "where to write the calibration"},
    {.name = "cosine",
     .kind = APP_TEXT,
     .metavar = "C",
     .help = "what the actions must keep of those of f32 on average (default 0.9995); any one observation may lose four times as much"},
    {.name = "actions-only",
     .kind = APP_FLAG,
     .help = "judge by the actions alone: fewer products in bf16, but `pi0 check` may find stages beyond its gate"},
    APP_STATS_OPTION,
    {.name = NULL},
};

enum { MOST_OBSERVATIONS = 256, WORST_SHOWN = 20 };

typedef struct calibrate_run {
    app_model_settings settings;
    app_observation one; /* from the options, when there are no files */
    pi0_arrays **files;  /* or NULL */
    const char **paths;  /* of the files */
    size_t n_files;
    bool preprocessed;
    uint64_t seed;
    pi0_calibrate_options how;
    char *json;
    app_report *report;
} calibrate_run;

/* ------------------------------------------------------------------ observations */

static const char *file_at(const app_args *args, size_t index)
{
    const size_t named = (size_t)args->n_positional - 1;
    return index < named ? args->positional[index + 1] : app_args_nth(args, "obs", index - named);
}

static pi0_status read_file(const char *path, calibrate_run *run, pi0_error *err)
{
    pi0_arrays **file = &run->files[run->n_files];
    run->paths[run->n_files] = path;
    pi0_status status = pi0_observation_read(path, file, err);
    if (status != PI0_OK)
        return status;
    /* raw observations have no tokens */
    const bool preprocessed = pi0_arrays_find(*file, "tokens") != NULL;
    if (run->n_files++ == 0)
        run->preprocessed = preprocessed;
    const int rows = app_noise_rows(pi0_arrays_find(*file, "noise"));
    int *horizon = &run->settings.options.horizon;
    if (rows && *horizon && *horizon != rows) {
        app_err(err, PI0_ERR_ARGUMENT, "the noise of an observation has another number of rows");
        app_err_field(err->where, "%.400s: noise", path);
        app_err_field(err->expected, "%d, as --horizon or an earlier file has it", *horizon);
        app_err_field(err->got, "%d", rows);
        return err->status;
    }
    *horizon = rows ? rows : *horizon;
    if (preprocessed == run->preprocessed)
        return PI0_OK;
    app_err(err, PI0_ERR_ARGUMENT, "raw and preprocessed observations cannot be mixed");
    app_err_field(err->where, "%.400s", path);
    app_err_field(err->expected, "%s, as the first file has", run->preprocessed ? "tokens" : "no tokens");
    return err->status;
}

static pi0_status read_files(const app_args *args, size_t count, calibrate_run *run, pi0_error *err)
{
    static const char *const others[] = {"image", "state", "prompt", "noise", "preprocessed"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (app_args_text(args, others[i])) {
            app_err(err, PI0_ERR_ARGUMENT, "observations come from files or from options, not from both");
            app_err_field(err->where, "--%s beside %.300s", others[i], file_at(args, 0));
            return err->status;
        }
    run->files = calloc(count, sizeof *run->files);
    run->paths = calloc(count, sizeof *run->paths);
    if (!run->files || !run->paths)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for %zu observations", count);
    pi0_status status = PI0_OK;
    for (size_t i = 0; i < count && status == PI0_OK; i++)
        status = read_file(file_at(args, i), run, err);
    run->how.observations = count;
    return status;
}

static pi0_status read_observations(const app_args *args, calibrate_run *run, pi0_error *err)
{
    size_t count = 0;
    while (file_at(args, count))
        count++;
    if (args->n_positional > 1 || count > 1)
        return read_files(args, count, run, err);
    pi0_status status = app_observation_load(args, &run->one, err);
    run->preprocessed = run->one.preprocessed;
    run->how.observations = 1;
    if (status == PI0_OK)
        app_observation_settle(&run->one, &run->settings.options);
    return status;
}

/* Each observation with noise of its own, and the same every time. */
static pi0_status observe(void *user, size_t index, const pi0_model *model, pi0_session *session, pi0_error *err)
{
    const calibrate_run *run = user;
    app_stats_tick(run->report, model);
    pi0_session_reset(session, run->seed + index);
    if (run->files) {
        const pi0_status status = pi0_set_observation(session, run->files[index], run->preprocessed, err);
        char where[sizeof err->where];
        snprintf(where, sizeof where, "%s", err->where);
        if (status != PI0_OK)
            app_err_field(err->where, "%.200s: %.200s", run->paths[index], where);
        return status;
    }
    return app_observation_apply(&run->one, pi0_model_info(model), session, err);
}

/* ------------------------------------------------------------------ the work */

static pi0_status read_cosine(const app_args *args, double *out, pi0_error *err)
{
    const char *text = app_args_text(args, "cosine");
    if (!text || (app_read_double(text, out) && *out > 0 && *out < 1))
        return PI0_OK;
    app_err(err, PI0_ERR_ARGUMENT, "bad value");
    app_err_field(err->where, "--cosine");
    app_err_field(err->expected, "a number between 0 and 1, such as 0.9995");
    app_err_field(err->got, "%.100s", text);
    return err->status;
}

static pi0_status compute(app_context *app, calibrate_run *run, app_phase *phase, pi0_error *err)
{
    const app_args *args = &app->args;
    const char *output = app_args_text(args, "output");
    if (!output) {
        app_err(err, PI0_ERR_ARGUMENT, "missing option");
        app_err_field(err->where, "pi0 calibrate");
        app_err_field(err->expected, "-o FILE");
        return err->status;
    }
    if (!app_ends_with(output, ".json")) { /* nor can an observation, or a model, be lost to a slip */
        app_err(err, PI0_ERR_ARGUMENT, "a calibration needs a name that ends in .json");
        app_err_field(err->where, "--output");
        app_err_field(err->expected, "FILE.json");
        app_err_field(err->got, "%.300s", output);
        return err->status;
    }
    *phase = APP_WRITING;
    pi0_status status = app_check_folder("output", output, err);
    if (status != PI0_OK)
        return status;
    *phase = APP_READING;
    status = read_cosine(args, &run->how.cosine, err);
    if (status == PI0_OK)
        status = app_model_settings_fill(app, &run->settings, err);
    if (status == PI0_OK)
        status = read_observations(args, run, err);
    if (status != PI0_OK)
        return status;
    run->settings.options.preprocessed = run->preprocessed;
    run->seed = app_args_unsigned(args, "seed", 0);
    run->how.steps = (int)app_args_int(args, "steps", 0);
    run->how.actions_only = app_args_flag(args, "actions-only");
    run->how.observe = observe;
    run->how.user = run;
    run->report = &app->report;
    return pi0_calibrate(args->positional[0], &run->settings.options, &run->how, &run->json, err);
}

/* ------------------------------------------------------------------ the report */

static pi0_status take_layers(const json_t *document, app_layers *layers, pi0_error *err)
{
    const json_t *list = json_object_get(document, "layers");
    layers->items = calloc(json_array_size(list) + 1, sizeof *layers->items);
    if (!layers->items)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the report");
    for (; layers->count < json_array_size(list); layers->count++) {
        const json_t *from = json_array_get(list, layers->count);
        app_layer *to = &layers->items[layers->count];
        snprintf(to->name, sizeof to->name, "%s", json_string_value(json_object_get(from, "name")));
        snprintf(to->precision, sizeof to->precision, "%s", json_string_value(json_object_get(from, "precision")));
        to->error = json_number_value(json_object_get(from, "error"));
        to->cosine = json_number_value(json_object_get(from, "cosine"));
        to->flop = json_number_value(json_object_get(from, "flop"));
    }
    return PI0_OK;
}

static double number(const json_t *document, const char *object, const char *key)
{
    return json_number_value(json_object_get(object ? json_object_get(document, object) : document, key));
}

static void add_cosines(app_text *out, const json_t *document, const char *name, const char *key)
{
    const char *stage = json_string_value(json_object_get(json_object_get(document, key), "lowest_stage"));
    app_text_add(
        out, "%-10s cosine of the actions %.6f on average, %.6f at worst, of all stages %.6f (%s); largest difference of an action %.4f\n",
        name, number(document, key, "mean"), number(document, key, "worst"), number(document, key, "stages"),
        stage && *stage ? stage : "all equal", number(document, key, "largest_difference"));
}

static void add_report(app_text *out, const json_t *document, const app_layers *layers)
{
    app_text_add(out, "int8 (%s) of each product alone, on its inputs in f32, worst first:\n\n",
                 json_string_value(json_object_get(document, "int8")));
    app_layers_add(out, layers, WORST_SHOWN);
    app_text_add(out, "\n");
    add_cosines(out, document, "int8", "plain");
    add_cosines(out, document, "int8:auto", "chosen");
    app_text_add(out, "%lld of %lld products stay bf16; %.1f %% of the products' FLOP are int8\n",
                 (long long)number(document, NULL, "products_bf16"), (long long)number(document, NULL, "products"),
                 100 * number(document, NULL, "int8_share_of_flop"));
}

static int print_failure(app_context *app, const json_t *document)
{
    pi0_error err = {0};
    app_err(&err, PI0_ERR_ARGUMENT, "no choice of products passes the gate, not even all of them in bf16");
    app_err_field(err.where, "%.300s", app->args.positional[0]);
    app_err_field(err.expected, "actions of cosine %.6f on average, %.6f at worst, as all stages, and a quarter of that distance to spare",
                  number(document, "gate", "mean"), number(document, "gate", "worst"));
    app_err_field(err.got, "%.6f on average, %.6f at worst, all stages %.6f", number(document, "chosen", "mean"),
                  number(document, "chosen", "worst"), number(document, "chosen", "stages"));
    app_err_field(err.hint, "--precision f32 or bf16 for this model; nothing was written");
    app_fail(&app->report, &err, APP_COMPUTING);
    return APP_GATE;
}

/* The result on stdout, then the file, which only a calibration that passed becomes. */
static int finish(app_context *app, const calibrate_run *run, const json_t *document)
{
    pi0_error err = {0};
    app_text out = {0};
    app_layers layers = {0};
    const bool passed = json_is_true(json_object_get(document, "passed"));
    const char *path = app_args_text(&app->args, "output");
    int code = APP_OK;
    if (take_layers(document, &layers, &err) != PI0_OK)
        return app_fail(&app->report, &err, APP_COMPUTING);
    app_signals_hold();
    if (passed && pi0_file_write(path, run->json, strlen(run->json), &err) != PI0_OK)
        code = app_fail(&app->report, &err, APP_WRITING);
    app_signals_release();
    if (app->json)
        app_text_add(&out, "%s\n", run->json);
    else
        add_report(&out, document, &layers);
    if (code == APP_OK)
        code = app_print(&app->report, &out);
    if (code == APP_OK && !passed)
        code = print_failure(app, document);
    else if (code == APP_OK)
        app_note(&app->report, "wrote %s; use it with --precision int8:auto --calibration %s", path, path);
    app_text_release(&out);
    app_layers_release(&layers);
    return code;
}

static int calibrate(app_context *app)
{
    calibrate_run run = {0};
    pi0_error err = {0};
    app_phase phase = APP_READING;
    int code;
    if (compute(app, &run, &phase, &err) != PI0_OK) {
        code = app_fail(&app->report, &err, phase);
    } else {
        json_t *document = json_loads(run.json, 0, NULL);
        code = document ? finish(app, &run, document)
                        : (app_err(&err, PI0_ERR_MEMORY, "not enough memory for the report"), app_fail(&app->report, &err, phase));
        json_decref(document);
    }
    pi0_text_free(&run.json);
    for (size_t i = 0; i < run.n_files; i++)
        pi0_arrays_free(&run.files[i]);
    free(run.files);
    free(run.paths);
    app_observation_release(&run.one);
    app_model_settings_release(&run.settings);
    return code;
}

static const char *const names[] = {"MODEL: a checkpoint directory, a .safetensors file, or org/name in the Hugging Face cache"};

const app_command app_calibrate = {
    .name = "calibrate",
    .summary = "which matrix products may be int8, decided over observations",
    .usage = "MODEL OBSERVATION... -o FILE [options]",
    .text =
        "Runs the model in f32 and measures for every matrix product what it would lose in int8, on the inputs that it really has. Then it "
        "finds by bisection the smallest number of the worst products that have to stay bf16 for the actions to keep a cosine of 0.9995 "
        "with those of f32 on average, and of 0.998, as all stages have to, on every observation; with a quarter of either distance to "
        "spare. `--precision int8:auto --calibration FILE` then uses the choice. FILE is for this model and for this machine's form of "
        "int8; anything else refuses it. Several observations, of different moments of the task, decide better than one: --obs may be "
        "repeated, and what `pi0 infer --record` wrote may be named after MODEL. Opens the model about ten times. Exit 4, and no FILE, "
        "when the gate is not even met with every product in bf16.",
    .examples =
        "  pi0 calibrate ~/my_policy --image top=top.png --image wrist=wrist.jpg --state 0.1,-0.4,0,0,0.2,0 --prompt \"pick up\" -o "
        "calibration.json\n"
        "  pi0 calibrate ~/my_policy --obs first.npz --obs second.npz --obs third.npz -o calibration.json\n"
        "  pi0 calibrate ~/my_policy ref1.npz ref2.npz -o calibration.json --json\n"
        "  pi0 infer ~/my_policy --obs first.npz --precision int8:auto --calibration calibration.json\n",
    .syntax = {.tables = {options, app_observation_options, app_chunk_options, app_model_options, app_general_options},
               .names = names,
               .min_positional = 1,
               .max_positional = 1 + MOST_OBSERVATIONS},
    .run = calibrate,
};
