#include "compare.h"

#include <math.h>
#include <string.h>

/* Differences below what f32 arithmetic in another order explains; pictures are bytes before they are scaled. */
static const double f32_error = 1e-4, picture_error = 1e-5;
static const double bf16_cosine = 0.9995, int8_cosine = 0.998;

bool app_same_shape(const pi0_array *a, const pi0_array *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i])
            return false;
    return app_array_count(a) == app_array_count(b);
}

app_difference app_compare(const pi0_array *got, const pi0_array *reference)
{
    app_difference d = {.equal = true, .finite = true, .cosine = 1};
    size_t count = app_array_count(reference);
    double squares = 0, largest = 0, dot = 0, got2 = 0, reference2 = 0;
    for (size_t i = 0; i < count; i++) {
        double a = app_array_value(got, i), b = app_array_value(reference, i), distance = fabs(a - b);
        d.finite = d.finite && isfinite(a) && isfinite(b);
        if (d.equal && !(a == b)) {
            d.equal = false;
            d.first_different = i;
        }
        d.max_abs = distance > d.max_abs ? distance : d.max_abs;
        largest = fabs(b) > largest ? fabs(b) : largest;
        squares += distance * distance;
        dot += a * b;
        got2 += a * a;
        reference2 += b * b;
    }
    d.rms = count ? sqrt(squares / (double)count) : 0;
    d.error = d.max_abs / (largest > 1 ? largest : 1);
    if (got2 > 0 && reference2 > 0)
        d.cosine = dot / sqrt(got2) / sqrt(reference2);
    else if (got2 > 0 || reference2 > 0)
        d.cosine = 0;
    if (!d.finite)
        d.max_abs = d.rms = d.error = d.cosine = NAN;
    return d;
}

/* "velocity" covers velocity.0, velocity.1, ...; "all" covers everything. The longest name wins. */
static size_t match_length(const char *pattern, size_t bytes, const char *stage)
{
    if (bytes == 3 && memcmp(pattern, "all", 3) == 0)
        return 1;
    if (strncmp(stage, pattern, bytes) != 0 || (stage[bytes] && stage[bytes] != '.'))
        return 0;
    return bytes + 1;
}

static bool option_gate(const app_args *args, const char *stage, double *error)
{
    size_t best = 0;
    const char *text;
    for (size_t i = 0; (text = app_args_nth(args, "tol", i)); i++) {
        const char *equals = strrchr(text, '=');
        size_t length = equals ? match_length(text, (size_t)(equals - text), stage) : 0;
        double value;
        if (length > best && app_read_double(equals + 1, &value)) {
            best = length;
            *error = value;
        }
    }
    return best > 0;
}

static bool file_gate(const pi0_arrays *file, const char *stage, double *error)
{
    size_t best = 0;
    for (size_t i = 0; i < pi0_arrays_count(file); i++) {
        const pi0_array *array = pi0_arrays_at(file, i);
        if (strncmp(array->name, "gate/", 5) != 0)
            continue;
        size_t length = match_length(array->name + 5, strlen(array->name + 5), stage);
        if (length > best) {
            best = length;
            *error = app_array_value(array, 0);
        }
    }
    return best > 0;
}

bool app_is_stage(const char *name)
{
    return strncmp(name, "ref/", 4) == 0 && strcmp(name, "ref/bf16_actions_raw") != 0;
}

static bool covers_a_stage(const pi0_arrays *file, const char *pattern, size_t bytes)
{
    for (size_t i = 0; i < pi0_arrays_count(file); i++) {
        const char *name = pi0_arrays_at(file, i)->name;
        if (app_is_stage(name) && match_length(pattern, bytes, name + 4))
            return true;
    }
    return false;
}

/* The stages of the file without what follows their dot, each once, as the list of the error. */
static pi0_status fail_no_stage(const pi0_arrays *file, const char *what, const char *where, pi0_error *err)
{
    app_err(err, PI0_ERR_FORMAT, "%s", what);
    app_err_field(err->where, "%.300s", where);
    app_err_field(err->expected, "all, the name of a stage in REF, or its part before the dot; REF holds those below");
    app_text list = {0};
    for (size_t i = 0; i < pi0_arrays_count(file); i++) {
        const char *name = pi0_arrays_at(file, i)->name;
        if (!app_is_stage(name))
            continue;
        const char *stage = name + 4;
        size_t bytes = strcspn(stage, ".");
        bool listed = false;
        for (const char *line = list.data; line && *line; line += strcspn(line, "\n") + 1)
            listed |= strcspn(line, "\n") == bytes && memcmp(line, stage, bytes) == 0;
        if (!listed)
            app_text_add(&list, "%.*s\n", (int)bytes, stage);
    }
    err->list = list.data;
    return err->status;
}

static pi0_status check_tolerances(const app_args *args, const pi0_arrays *file, pi0_error *err)
{
    const char *text;
    for (size_t i = 0; (text = app_args_nth(args, "tol", i)); i++) {
        const char *equals = strrchr(text, '=');
        double value;
        if (!equals || equals == text || !app_read_double(equals + 1, &value) || value < 0) {
            app_err(err, PI0_ERR_ARGUMENT, "--tol needs a stage and the largest error");
            app_err_field(err->where, "--tol");
            app_err_field(err->expected, "STAGE=VALUE, such as velocity=1e-3 or actions_raw=0.01 or all=1e-4");
            app_err_field(err->got, "%.200s", text);
            return err->status;
        }
        if (covers_a_stage(file, text, (size_t)(equals - text)))
            continue;
        fail_no_stage(file, "--tol names a stage that the reference file does not hold", text, err);
        app_err_field(err->where, "--tol %.200s", text);
        return err->status = PI0_ERR_ARGUMENT;
    }
    return app_args_keys_once(args, "tol", err);
}

pi0_status app_gates_open(app_gates *gates, const app_args *args, const pi0_arrays *file, pi0_error *err)
{
    *gates = (app_gates){.args = args, .file = file, .precision = "f32"};
    pi0_status status = check_tolerances(args, file, err);
    if (status != PI0_OK)
        return status;
    for (size_t i = 0; i < pi0_arrays_count(file); i++) {
        const pi0_array *array = pi0_arrays_at(file, i);
        if (strncmp(array->name, "gate/", 5) != 0)
            continue;
        if (!covers_a_stage(file, array->name + 5, strlen(array->name + 5)))
            return fail_no_stage(file, "a gate of the reference file is for no stage in it", array->name, err);
        if (array->dtype != PI0_TEXT && app_array_count(array) == 1 && app_array_value(array, 0) >= 0)
            continue;
        app_err(err, PI0_ERR_FORMAT, "a gate of the reference file is not one number from 0 up");
        app_err_field(err->where, "%.300s", array->name);
        app_array_describe(array, err->got, sizeof err->got);
        return err->status;
    }
    const pi0_array *low = pi0_arrays_find(file, "ref/bf16_actions_raw"), *full = pi0_arrays_find(file, "ref/actions_raw");
    if (low && full && low->dtype != PI0_TEXT && full->dtype != PI0_TEXT && app_same_shape(low, full)) {
        gates->drift = app_compare(low, full);
        gates->has_drift = gates->drift.finite;
    }
    return PI0_OK;
}

static bool is_input(const char *stage)
{
    return strncmp(stage, "image.", 6) == 0 || strcmp(stage, "state") == 0 || strcmp(stage, "noise") == 0;
}

app_gate app_gate_of(const app_gates *gates, const char *stage)
{
    app_gate gate = {0};
    if (option_gate(gates->args, stage, &gate.error) || file_gate(gates->file, stage, &gate.error)) {
        gate.has_error = true;
        return gate;
    }
    gate.exact = strcmp(stage, "tokens") == 0;
    if (gate.exact)
        return gate;
    /* what enters the model does not depend on how the model computes */
    if (!strcmp(gates->precision, "f32") || is_input(stage)) {
        gate.has_error = true;
        gate.error = strncmp(stage, "image.", 6) == 0 ? picture_error : f32_error;
        return gate;
    }
    gate.has_cosine = true;
    const bool bf16 = !strcmp(gates->precision, "bf16");
    gate.cosine = bf16 ? bf16_cosine : int8_cosine;
    if (bf16 && gates->has_drift) {
        /* twice the distance of the reference's own bf16 run; twice the angle is four times 1 - cosine */
        double allowed = 1 - 4 * (1 - gates->drift.cosine);
        gate.cosine = allowed < gate.cosine ? allowed : gate.cosine;
        gate.has_error = strcmp(stage, "actions_raw") == 0;
        gate.error = 2 * gates->drift.error;
    }
    return gate;
}

bool app_gate_holds(const app_gate *gate, const app_difference *difference)
{
    if (!difference->finite || (gate->exact && !difference->equal))
        return false;
    if (gate->has_error && !(difference->error <= gate->error))
        return false;
    return !gate->has_cosine || difference->cosine >= gate->cosine;
}
