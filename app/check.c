#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "compare.h"
#include "json_out.h"
#include "layers.h"
#include "model_options.h"
#include "observation.h"
#include "table.h"

static const app_option options[] = {
    {.name = "tol",
     .kind = APP_TEXT,
     .repeat = true,
     .metavar = "STAGE=VALUE",
     .help = "largest error of a stage (repeatable): velocity=1e-3 covers velocity.0, velocity.1, ...; all=1e-3 covers everything"},
    {.name = "steps",
     .kind = APP_INT,
     .metavar = "N",
     .min = 1,
     .max = 1000,
     .help = "steps, for a REF that holds no ref/velocity.* to count"},
    {.name = "layers",
     .kind = APP_FLAG,
     .help = "also what int8 costs: the error of every matrix product in int8 on the inputs that it has in f32, largest first"},
    {.name = NULL},
};

typedef struct row {
    const char *stage; /* into the reference file */
    app_difference difference;
    app_gate gate;
    bool compared; /* else `note` says why not */
    bool passed;
    char note[300];
} row;

typedef struct check_run {
    app_policy policy;
    pi0_arrays *reference;
    bool preprocessed;
    int steps;
    app_gates gates;
    row *rows;
    size_t n_rows;
    char device[32], precision[96], model[16];
    app_layers layers; /* --layers */
    float *raw;        /* actions of the run with taps */
    double *robot;
    size_t raw_count, robot_count;
} check_run;

static pi0_status bad_reference(pi0_error *err, const char *path, const char *what, const char *hint)
{
    app_err(err, PI0_ERR_FORMAT, "%s", what);
    app_err_field(err->where, "%.400s", path);
    app_err_field(err->hint, "%s", hint);
    return err->status;
}

/* velocity.0 .. velocity.n-1 say how many steps the reference took. */
static pi0_status count_steps(check_run *run, const char *path, pi0_error *err)
{
    int steps = 0;
    for (size_t i = 0; i < pi0_arrays_count(run->reference); i++)
        steps += strncmp(pi0_arrays_at(run->reference, i)->name, "ref/velocity.", 13) == 0;
    for (int i = 0; i < steps; i++) {
        char name[48];
        snprintf(name, sizeof name, "ref/velocity.%d", i);
        if (pi0_arrays_find(run->reference, name))
            continue;
        app_err(err, PI0_ERR_FORMAT, "the reference file holds %d ref/velocity.*, but not one for each step from 0", steps);
        app_err_field(err->where, "%.400s", path);
        app_err_field(err->expected, "%s", name);
        return err->status;
    }
    run->steps = steps;
    return PI0_OK;
}

static pi0_status read_reference(app_context *app, check_run *run, pi0_error *err)
{
    const char *path = app->args.positional[1];
    pi0_status status = pi0_arrays_read(path, &run->reference, err);
    if (status == PI0_OK)
        status = count_steps(run, path, err);
    if (status == PI0_OK)
        status = app_gates_open(&run->gates, &app->args, run->reference, err);
    if (status != PI0_OK)
        return status;
    size_t count = pi0_arrays_count(run->reference), named = 0;
    run->rows = calloc(count + 2, sizeof *run->rows);
    if (!run->rows)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for %zu stages", count);
    for (size_t i = 0; i < count; i++) {
        const char *name = pi0_arrays_at(run->reference, i)->name;
        if (app_is_stage(name))
            run->rows[run->n_rows++].stage = name + 4;
        named += *name != '\0';
    }
    if (!named)
        return bad_reference(err, path, "a single array is no reference",
                             "give an .npz, such as `pi0 infer MODEL OBSERVATION... --record REF.npz` writes");
    if (!run->n_rows)
        return bad_reference(err, path, "the file holds no array named ref/<stage>, so there is nothing to compare with",
                             "record one with `pi0 infer MODEL OBSERVATION... --record REF.npz`, or with the scripts in tools/ that drive "
                             "the reference code");
    const pi0_array *noise = pi0_arrays_find(run->reference, "noise");
    if (!noise)
        noise = pi0_arrays_find(run->reference, "ref/noise");
    if (!noise)
        return bad_reference(err, path, "the reference file holds no noise, so its run cannot be replayed",
                             "store the starting noise that the reference used as the array `noise`, [H,A] f32");
    /* raw observations have no tokens */
    run->preprocessed = pi0_arrays_find(run->reference, "tokens") != NULL;
    if (run->steps == 0)
        run->steps = (int)app_args_int(&app->args, "steps", 0);
    if (app_noise_rows(noise))
        run->policy.settings.options.horizon = app_noise_rows(noise);
    return PI0_OK;
}

static pi0_status give_observation(check_run *run, pi0_error *err)
{
    pi0_session *session = run->policy.session;
    pi0_status status = pi0_set_observation(session, run->reference, run->preprocessed, err);
    if (status != PI0_OK || pi0_arrays_find(run->reference, "noise"))
        return status;
    float *noise = NULL;
    int rows, columns;
    status = app_noise_take(pi0_arrays_find(run->reference, "ref/noise"), "ref/noise", &noise, &rows, &columns, err);
    if (status == PI0_OK)
        status = pi0_set_noise(session, noise, rows, columns, err);
    free(noise);
    return status;
}

static pi0_status infer_once(app_context *app, check_run *run, bool taps, app_phase *phase, pi0_error *err)
{
    pi0_options *chosen = &run->policy.settings.options;
    chosen->stages = taps;
    /* the second opening would only repeat what the first one said */
    if (!taps)
        chosen->log = NULL;
    *phase = APP_READING;
    app_policy_shut(&run->policy);
    pi0_status status = app_policy_open(app, &run->policy, err);
    if (status == PI0_OK)
        status = give_observation(run, err);
    if (status != PI0_OK)
        return status;
    *phase = APP_COMPUTING;
    return pi0_infer(&run->policy.session, 1, run->steps, err);
}

static void compare_stage(check_run *run, row *r)
{
    pi0_error err = {0};
    char name[1100], got_text[128], reference_text[128];
    snprintf(name, sizeof name, "ref/%s", r->stage);
    const pi0_array *reference = pi0_arrays_find(run->reference, name);
    pi0_array got;
    if (pi0_stage(run->policy.session, r->stage, &got, &err) != PI0_OK) {
        snprintf(r->note, sizeof r->note, "this run has no such stage");
        pi0_error_clear(&err);
        return;
    }
    app_array_describe(&got, got_text, sizeof got_text);
    app_array_describe(reference, reference_text, sizeof reference_text);
    if (reference->dtype == PI0_TEXT || !app_same_shape(&got, reference)) {
        snprintf(r->note, sizeof r->note, "shapes differ: this run %s, reference %s", got_text, reference_text);
        return;
    }
    r->compared = true;
    r->gate = app_gate_of(&run->gates, r->stage);
    r->difference = app_compare(&got, reference);
    if (!r->difference.finite)
        snprintf(r->note, sizeof r->note, "a value is not finite, first difference at element %zu", r->difference.first_different);
    else if (r->gate.exact && !r->difference.equal)
        snprintf(r->note, sizeof r->note, "element %zu is %.17g, the reference has %.17g", r->difference.first_different,
                 app_array_value(&got, r->difference.first_different), app_array_value(reference, r->difference.first_different));
    r->passed = app_gate_holds(&r->gate, &r->difference);
}

static pi0_status keep_actions(check_run *run, pi0_error *err)
{
    const pi0_session *session = run->policy.session;
    int rows = 0, columns = 0;
    const float *raw = pi0_actions_raw(session, &rows, &columns);
    run->raw_count = raw ? (size_t)rows * (size_t)columns : 0;
    const double *robot = pi0_actions(session, &rows, &columns);
    run->robot_count = robot ? (size_t)rows * (size_t)columns : 0;
    run->raw = malloc(run->raw_count * sizeof *run->raw + 1);
    run->robot = malloc(run->robot_count * sizeof *run->robot + 1);
    if (!run->raw || !run->robot)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the actions");
    if (raw)
        memcpy(run->raw, raw, run->raw_count * sizeof *raw);
    if (robot)
        memcpy(run->robot, robot, run->robot_count * sizeof *robot);
    return PI0_OK;
}

/* Watching the stages must not change the result. */
static void compare_untapped(check_run *run)
{
    const pi0_session *session = run->policy.session;
    row *r = &run->rows[run->n_rows++];
    int rows = 0, columns = 0;
    const float *raw = pi0_actions_raw(session, &rows, &columns);
    size_t raw_count = raw ? (size_t)rows * (size_t)columns : 0;
    const double *robot = pi0_actions(session, &rows, &columns);
    size_t robot_count = robot ? (size_t)rows * (size_t)columns : 0;
    r->stage = "same actions without taps";
    r->gate.exact = true;
    bool same = raw_count && raw_count == run->raw_count && robot_count == run->robot_count &&
                memcmp(raw, run->raw, raw_count * sizeof *raw) == 0 &&
                (!robot_count || memcmp(robot, run->robot, robot_count * sizeof *robot) == 0);
    r->passed = same;
    snprintf(r->note, sizeof r->note, same ? "the same bits" : "other bits: the run without recorded stages computed something else");
}

/* The products as the model has them, then once more in f32 with int8 beside it. */
static pi0_status measure_layers(app_context *app, check_run *run, app_phase *phase, pi0_error *err)
{
    pi0_status status = app_layers_take(&run->layers, run->policy.model, err);
    if (status != PI0_OK)
        return status;
    pi0_options *chosen = &run->policy.settings.options;
    chosen->precision = "f32";
    chosen->calibration = NULL;
    chosen->layer_errors = 1;
    status = infer_once(app, run, false, phase, err);
    if (status == PI0_OK)
        app_layers_measure(&run->layers, run->policy.model);
    return status;
}

static pi0_status compute(app_context *app, check_run *run, app_phase *phase, pi0_error *err)
{
    *phase = APP_READING;
    pi0_status status = app_model_settings_fill(app, &run->policy.settings, err);
    if (status == PI0_OK)
        status = read_reference(app, run, err);
    if (status == PI0_OK)
        status = infer_once(app, run, true, phase, err);
    if (status != PI0_OK)
        return status;
    const pi0_info *info = pi0_model_info(run->policy.model);
    snprintf(run->device, sizeof run->device, "%s", info->device);
    snprintf(run->precision, sizeof run->precision, "%s", info->precision);
    snprintf(run->model, sizeof run->model, "%s", info->model);
    if (run->steps == 0)
        run->steps = info->steps;
    run->gates.precision = run->precision;
    for (size_t i = 0; i < run->n_rows; i++)
        compare_stage(run, &run->rows[i]);
    status = keep_actions(run, err);
    if (status == PI0_OK)
        status = infer_once(app, run, false, phase, err);
    if (status == PI0_OK)
        compare_untapped(run);
    if (status == PI0_OK && app_args_flag(&app->args, "layers"))
        status = measure_layers(app, run, phase, err);
    app_policy_shut(&run->policy);
    return status;
}

static size_t count_failed(const check_run *run)
{
    size_t count = 0;
    for (size_t i = 0; i < run->n_rows; i++)
        count += !run->rows[i].passed;
    return count;
}

static void table_row(app_table *table, const row *r)
{
    app_table_cell(table, "%s", r->stage);
    if (!r->compared) {
        for (int i = 0; i < 4; i++)
            app_table_cell(table, "-");
    } else {
        app_table_cell(table, "%.3e", r->difference.max_abs);
        app_table_cell(table, "%.3e", r->difference.rms);
        app_table_cell(table, "%.3e", r->difference.error);
        app_table_cell(table, "%.7f", r->difference.cosine);
    }
    if (r->gate.exact)
        app_table_cell(table, "equal");
    else if (r->gate.has_error && r->gate.has_cosine)
        app_table_cell(table, "%.1e, cosine %.5f", r->gate.error, r->gate.cosine);
    else if (r->gate.has_error)
        app_table_cell(table, "%.1e", r->gate.error);
    else if (r->gate.has_cosine)
        app_table_cell(table, "cosine %.5f", r->gate.cosine);
    else
        app_table_cell(table, "-");
    app_table_cell(table, "%s", r->passed ? "ok" : "FAIL");
    app_table_end_row(table);
}

static void print_table(app_text *out, const check_run *run, const char *reference)
{
    app_text_add(out, "%s, %s on %s, %d steps, against %s\n\n", run->model, run->precision, run->device, run->steps, reference);
    app_table *table = app_table_open("lrrrrll");
    const char *const headings[] = {"stage", "max abs", "rms", "error", "cosine", "gate", "verdict"};
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        app_table_cell(table, "%s", headings[i]);
    for (size_t i = 0; i < run->n_rows; i++)
        table_row(table, &run->rows[i]);
    app_table_add_to(table, out, 0, 0);
    app_table_close(&table);
    app_text_add(out, "\nerror = max abs / max(1, largest reference value): the number that the gate bounds\n");
    for (size_t i = 0; i < run->n_rows; i++)
        if (!run->rows[i].passed && *run->rows[i].note)
            app_text_add(out, "%s: %s\n", run->rows[i].stage, run->rows[i].note);
    if (run->layers.count) {
        app_text_add(out, "\nint8 of each product alone, on its inputs in f32:\n\n");
        app_layers_add(out, &run->layers, run->layers.count);
        app_text_add(out, "\n");
    }
    size_t failed = count_failed(run);
    if (failed)
        app_text_add(out, "FAILED: %zu of %zu\n", failed, run->n_rows);
    else
        app_text_add(out, "passed: all %zu\n", run->n_rows);
}

static void json_row(app_json *json, const row *r)
{
    app_json_open(json, '{');
    app_json_key(json, "stage");
    app_json_string(json, r->stage);
    if (r->compared) {
        const struct {
            const char *name;
            double value;
        } numbers[] = {{"max_abs", r->difference.max_abs},
                       {"rms", r->difference.rms},
                       {"error", r->difference.error},
                       {"cosine", r->difference.cosine}};
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            app_json_key(json, numbers[i].name);
            app_json_real(json, numbers[i].value);
        }
    }
    if (r->gate.has_error) {
        app_json_key(json, "gate");
        app_json_real(json, r->gate.error);
    }
    if (r->gate.has_cosine) {
        app_json_key(json, "gate_cosine");
        app_json_real(json, r->gate.cosine);
    }
    if (r->gate.exact) {
        app_json_key(json, "gate");
        app_json_string(json, "equal");
    }
    app_json_key(json, "verdict");
    app_json_string(json, r->passed ? "ok" : "fail");
    if (*r->note) {
        app_json_key(json, "note");
        app_json_string(json, r->note);
    }
    app_json_close(json, '}');
}

static void print_json(app_text *out, const check_run *run)
{
    app_json json = {.out = out};
    app_json_open(&json, '{');
    app_json_key(&json, "passed");
    app_json_bool(&json, count_failed(run) == 0);
    app_json_key(&json, "model");
    app_json_string(&json, run->model);
    app_json_key(&json, "device");
    app_json_string(&json, run->device);
    app_json_key(&json, "precision");
    app_json_string(&json, run->precision);
    app_json_key(&json, "steps");
    app_json_int(&json, run->steps);
    app_json_key(&json, "stages");
    app_json_open(&json, '[');
    for (size_t i = 0; i < run->n_rows; i++) {
        app_text_add(out, i ? ",\n  " : "\n  ");
        json.wants_comma = false;
        json_row(&json, &run->rows[i]);
    }
    app_json_close(&json, ']');
    if (run->layers.count) {
        app_json_key(&json, "layers");
        app_layers_json(&json, &run->layers);
    }
    app_json_close(&json, '}');
    app_text_add(out, "\n");
}

static int print_failure(app_context *app, const check_run *run)
{
    pi0_error err = {0};
    const row *first = NULL;
    for (size_t i = 0; i < run->n_rows && !first; i++)
        if (!run->rows[i].passed)
            first = &run->rows[i];
    app_err(&err, PI0_ERR_ARGUMENT, "%zu of %zu rows failed their gate", count_failed(run), run->n_rows);
    app_err_field(err.where, "first: %.400s", first ? first->stage : "");
    if (first && *first->note)
        app_err_field(err.got, "%s", first->note);
    else if (first)
        app_err_field(err.got, "error %.3e, cosine %.7f", first->difference.error, first->difference.cosine);
    app_err_field(err.hint, "look at the first stage that fails: everything before it agrees with the reference");
    app_fail(&app->report, &err, APP_COMPUTING);
    return APP_GATE;
}

static int check(app_context *app)
{
    check_run run = {0};
    pi0_error err = {0};
    app_phase phase = APP_READING;
    int code;
    if (compute(app, &run, &phase, &err) != PI0_OK) {
        code = app_fail(&app->report, &err, phase);
    } else {
        app_text out = {0};
        if (app->json)
            print_json(&out, &run);
        else
            print_table(&out, &run, app->args.positional[1]);
        code = app_print(&app->report, &out);
        app_text_release(&out);
        if (code == APP_OK && count_failed(&run))
            code = print_failure(app, &run);
    }
    free(run.rows);
    free(run.raw);
    free(run.robot);
    app_layers_release(&run.layers);
    pi0_arrays_free(&run.reference);
    app_policy_release(&run.policy);
    return code;
}

static const char *const names[] = {"MODEL: the checkpoint to check", "REF.npz: an observation with recorded stages"};

const app_command app_check = {
    .name = "check",
    .summary = "compares every stage with a recorded reference",
    .usage = "MODEL REF.npz [--tol STAGE=VALUE] [--layers] [options]",
    .text =
        "Replays the observation of REF with its noise and step count, and compares every array named ref/<stage> in it. "
        "Gates: --tol, else gate/<stage> in REF, else: tokens equal; in f32 an error of 1e-4 (pictures 1e-5); in bf16 "
        "a cosine of 0.9995 and, where REF holds the reference's own bf16 run (ref/bf16_actions_raw), actions_raw at most twice as far "
        "away as that run, the cosine relaxed to twice its angle where that is wider; in int8 a cosine of 0.998. A stage that this run "
        "does not have, or that has "
        "another shape, "
        "fails. At last the run is repeated without recorded stages and must give the same bits. Exit 4 when anything fails. --layers adds "
        "where the error of int8 comes from, product by product; `pi0 calibrate` decides by that.",
    .examples = "  pi0 check ~/my_policy ref.npz\n"
                "  pi0 check pi0_droid_dir ref.npz --config pi0_droid --precision bf16 --tol actions_raw=0.05\n"
                "  pi0 check ~/my_policy ref.npz --precision int8 --layers\n"
                "  pi0 check ~/my_policy ref.npz --precision int8:auto --calibration calibration.json --json\n",
    .syntax = {.tables = {options, app_model_options, app_general_options}, .names = names, .min_positional = 2, .max_positional = 2},
    .run = check,
};
