/* Normalisation statistics: openpi's norm_stats.json, a LeRobot dataset's stats.json, processor state files, LeRobot 0.3's buffers. */
#include "model/recipe.h"

#include <math.h>
#include <string.h>

void pi0_stats_clear(pi0_recipe *recipe, int feature)
{
    for (int s = 0; s < PI0_STATS; s++) {
        recipe->stats[feature][s].n = 0;
        pi0_field_id id = pi0_stat_field(feature, s);
        pi0_free(recipe->origin[id]);
        recipe->origin[id] = NULL;
    }
}

const int *pi0_norm_needs(int norm)
{
    static const int needs[][2] = {
        [PI0_NORM_IDENTITY] = {-1, -1},
        [PI0_NORM_MEAN_STD] = {PI0_STAT_MEAN, PI0_STAT_STD},
        [PI0_NORM_QUANTILES] = {PI0_STAT_Q01, PI0_STAT_Q99},
        [PI0_NORM_QUANTILE10] = {PI0_STAT_Q10, PI0_STAT_Q90},
        [PI0_NORM_MIN_MAX] = {PI0_STAT_MIN, PI0_STAT_MAX},
    };
    return needs[norm];
}

static int stat_find(const char *name)
{
    for (int s = 0; s < PI0_STATS; s++)
        if (strcmp(pi0_stat_name(s), name) == 0)
            return s;
    return -1;
}

/* Remembered so that "no statistics" can show what the file holds instead. */
static pi0_status remember(pi0_recipe *recipe, const char *key, pi0_error *err)
{
    if (json_array_size(recipe->seen_keys) >= 64 || (!strstr(key, "state") && !strstr(key, "action")))
        return PI0_OK;
    if (json_array_append_new(recipe->seen_keys, pi0_json_words(key)) != 0)
        return pi0_fail_memory(err, strlen(key), "a key");
    return PI0_OK;
}

/* ------------------------------------------------------------------ JSON */

static pi0_status read_feature(pi0_recipe *recipe, int feature, const json_t *object, const char *path, const char *key, const char *origin,
                               pi0_error *err)
{
    char where[640];
    if (!json_is_object(object)) {
        pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "statistics are an object of lists");
        pi0_err_where(err, "%s: %s", path, key);
        pi0_err_expected(err, "an object such as {\"mean\": [...], \"std\": [...], \"q01\": [...], \"q99\": [...]}");
        pi0_err_got(err, "%s", pi0_json_type_name(object));
        return status;
    }
    for (int s = 0; s < PI0_STATS; s++) {
        const json_t *value = json_object_get(object, pi0_stat_name(s));
        if (!value || json_is_null(value))
            continue;
        pi0_field_id id = pi0_stat_field(feature, s);
        snprintf(where, sizeof where, "%s: %s.%s", path, key, pi0_stat_name(s));
        PI0_TRY(pi0_recipe_value_read(recipe, id, value, where, err));
        PI0_TRY(pi0_recipe_origin(recipe, id, err, "%s: %s.%s", origin, key, pi0_stat_name(s)));
    }
    return PI0_OK;
}

static pi0_status read_json(pi0_recipe *recipe, const char *path, const char *origin, pi0_error *err)
{
    static const char *const keys[PI0_FEATURES][2] = {{"state", "observation.state"}, {"actions", "action"}};
    json_t *root = NULL;
    PI0_TRY(pi0_json_read(path, PI0_MAX_JSON, &root, err));
    pi0_status status = PI0_OK;
    const json_t *wrapped = json_object_get(root, "norm_stats");
    const json_t *all = wrapped ? wrapped : root;
    const char *key;
    json_t *value;
    if (!json_is_object(all)) {
        status = pi0_fail(err, PI0_ERR_FORMAT, "this is not a file of statistics");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(
            err,
            "openpi's {\"norm_stats\": {\"state\": ..., \"actions\": ...}} or LeRobot's {\"observation.state\": ..., \"action\": ...}");
        pi0_err_got(err, "%s", pi0_json_type_name(all));
        goto fail;
    }
    json_object_foreach((json_t *)all, key, value) PI0_TRY_GOTO(remember(recipe, key, err));
    for (int f = 0; f < PI0_FEATURES; f++)
        for (int k = 0; k < 2; k++)
            if (json_object_get(all, keys[f][k])) {
                PI0_TRY_GOTO(read_feature(recipe, f, json_object_get(all, keys[f][k]), path, keys[f][k], origin, err));
                break;
            }
fail:
    json_decref(root);
    return status;
}

/* ------------------------------------------------------------------ tensors */

static pi0_status read_tensor(pi0_recipe *recipe, int feature, int stat, const pi0_tensor_view *tensor, const char *origin, pi0_error *err)
{
    pi0_numbers *numbers = &recipe->stats[feature][stat];
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++)
        count = tensor->shape[i] > 0 && tensor->shape[i] <= PI0_MAX_DIM && count > 0 ? count * tensor->shape[i] : 0;
    if (count < 1 || count > PI0_MAX_DIM) {
        pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "a statistics tensor has an impossible size");
        pi0_err_where(err, "%s: %s", origin, tensor->name);
        pi0_err_expected(err, "1 to %d values", PI0_MAX_DIM);
        return status;
    }
    PI0_TRY(pi0_tensor_to_f64(tensor, numbers->v, (size_t)count, err));
    numbers->n = (int)count;
    return pi0_recipe_origin(recipe, pi0_stat_field(feature, stat), err, "%s: %s", origin, tensor->name);
}

pi0_status pi0_stats_from_tensors(pi0_recipe_job *job, const pi0_safetensors *file, bool wanted[PI0_FEATURES], const char *origin,
                                  pi0_error *err)
{
    static const char *const prefix[PI0_FEATURES] = {"observation.state.", "action."};
    for (size_t i = 0; i < pi0_safetensors_count(file); i++) {
        const pi0_tensor_view *tensor = pi0_safetensors_at(file, i);
        PI0_TRY(remember(job->recipe, tensor->name, err));
        for (int f = 0; f < PI0_FEATURES; f++) {
            size_t length = strlen(prefix[f]);
            if (!wanted[f] || strncmp(tensor->name, prefix[f], length) != 0)
                continue;
            int stat = stat_find(tensor->name + length);
            if (stat >= 0)
                PI0_TRY(read_tensor(job->recipe, f, stat, tensor, origin, err));
        }
    }
    return PI0_OK;
}

pi0_status pi0_stats_from_buffers(pi0_recipe_job *job, bool *found, pi0_error *err)
{
    static const char *const prefix[PI0_FEATURES] = {"normalize_inputs.buffer_observation_state.", "unnormalize_outputs.buffer_action."};
    *found = false;
    const pi0_safetensors *file = job->checkpoint ? job->checkpoint->file : NULL;
    for (int f = 0; file && f < PI0_FEATURES; f++)
        for (int s = 0; s < PI0_STATS; s++) {
            char name[128];
            snprintf(name, sizeof name, "%s%s", prefix[f], pi0_stat_name(s));
            const pi0_tensor_view *tensor = pi0_safetensors_find(file, name);
            if (!tensor)
                continue;
            PI0_TRY(remember(job->recipe, name, err));
            PI0_TRY(read_tensor(job->recipe, f, s, tensor, "model.safetensors (legacy)", err));
            pi0_numbers *numbers = &job->recipe->stats[f][s];
            if (isinf(numbers->v[0])) { /* LeRobot's mark for "never set" */
                numbers->n = 0;
                PI0_TRY(remember(job->recipe, "the state or action buffers are infinite: they were never set", err));
            } else
                *found = true;
        }
    return PI0_OK;
}

pi0_status pi0_stats_read(pi0_recipe_job *job, const char *path, const char *origin, pi0_error *err)
{
    size_t length = strlen(path);
    job->stats_done = true;
    if (length < 12 || strcmp(path + length - 12, ".safetensors") != 0)
        return read_json(job->recipe, path, origin, err);
    pi0_safetensors *file = NULL;
    bool both[PI0_FEATURES] = {true, true};
    PI0_TRY(pi0_safetensors_open(path, &file, err));
    pi0_status status = pi0_stats_from_tensors(job, file, both, origin, err);
    pi0_safetensors_close(&file);
    return status;
}

/* ------------------------------------------------------------------ checking */

static bool any_missing(const pi0_recipe *recipe)
{
    for (int f = 0; f < PI0_FEATURES; f++) {
        const int *needs = pi0_norm_needs(recipe->norm[f]);
        if (needs[0] >= 0 && (recipe->stats[f][needs[0]].n == 0 || recipe->stats[f][needs[1]].n == 0))
            return true;
    }
    return false;
}

static pi0_status missing(pi0_recipe_job *job, pi0_error *err)
{
    const pi0_recipe *recipe = job->recipe;
    pi0_text lacking = {0}, have = {0};
    if (!any_missing(recipe))
        return PI0_OK;
    for (int f = 0; f < PI0_FEATURES; f++) {
        const int *needs = pi0_norm_needs(recipe->norm[f]);
        for (int k = 0; k < 2 && needs[k] >= 0; k++)
            if (recipe->stats[f][needs[k]].n == 0)
                pi0_text_add(&lacking, "%s%s.%s", lacking.length ? ", " : "", pi0_feature_name(f), pi0_stat_name(needs[k]));
        for (int s = 0; s < PI0_STATS; s++)
            if (recipe->stats[f][s].n)
                pi0_text_add(&have, "%s%s.%s", have.length ? ", " : "", pi0_feature_name(f), pi0_stat_name(s));
    }
    pi0_status status = PI0_OK;
    if (lacking.failed || have.failed) {
        status = pi0_fail_memory(err, 256, "an error text");
    } else if (job->problems) {
        pi0_text line = {0};
        pi0_text_add(&line, "no statistics for %s", lacking.data);
        if (json_array_append_new(job->problems, line.data ? pi0_json_words(line.data) : NULL) != 0)
            status = pi0_fail_memory(err, line.length, "a problem text");
        pi0_text_release(&line);
    } else {
        status = pi0_fail(err, PI0_ERR_MODEL, "normalisation statistics are missing: %.300s", lacking.data);
        pi0_err_where(err, "%s", job->checkpoint && job->checkpoint->dir ? job->checkpoint->dir : "recipe");
        pi0_err_expected(err, "%.400s, as norm.state=%s and norm.action=%s ask", lacking.data,
                         pi0_recipe_field(PI0_FIELD_NORM_STATE)->choices[recipe->norm[PI0_STATE]],
                         pi0_recipe_field(PI0_FIELD_NORM_ACTION)->choices[recipe->norm[PI0_ACTION]]);
        pi0_err_got(err, "%s", have.data ? have.data : "none");
        pi0_err_hint(
            err,
            "--norm-stats FILE (norm_stats.json, a dataset's stats.json, a processor state file); --asset-id ID with an openpi checkpoint; "
            "--set norm.state=KIND if the model was trained with another kind; --no-norm to run without, on purpose");
        const json_t *key;
        size_t i;
        json_array_foreach(recipe->seen_keys, i, key) pi0_err_item(err, "the files hold: %s", json_string_value(key));
    }
    pi0_text_release(&lacking);
    pi0_text_release(&have);
    return status;
}

/* A problem instead of an error where the caller collects them. */
static pi0_status refuse(pi0_recipe_job *job, pi0_error *err, const char *what, const char *where, const char *expected, const char *got,
                         const char *hint)
{
    if (job->problems) {
        char text[512];
        snprintf(text, sizeof text, "%s: %s (expected %s, got %s)", where, what, expected, got);
        if (json_array_append_new(job->problems, pi0_json_words(text)) != 0)
            return pi0_fail_memory(err, sizeof text, "a problem text");
        return PI0_OK;
    }
    pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "%s", what);
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "%s", expected);
    pi0_err_got(err, "%s", got);
    pi0_err_hint(err, "%s", hint);
    return status;
}

static pi0_status check_width(pi0_recipe_job *job, int f, int stat, pi0_error *err)
{
    const pi0_recipe *recipe = job->recipe;
    int have = recipe->stats[f][stat].n, want = recipe->dim[f];
    char where[300], expected[64], got[64];
    if (have == want || have == 0)
        return PI0_OK;
    snprintf(where, sizeof where, "%s.%s (%.200s)", pi0_feature_name(f), pi0_stat_name(stat), recipe->origin[pi0_stat_field(f, stat)]);
    bool openpi = recipe->arithmetic == PI0_ARITHMETIC_OPENPI;
    if (openpi && have > want) /* openpi slices them */
        return pi0_recipe_warn(job, err, "%s has %d dims, the robot %d: the first %d are used", where, have, want, want);
    if (openpi && f == PI0_ACTION) /* openpi pads them with 0 and 1 */
        return pi0_recipe_warn(job, err, "%s has %d dims, the robot %d: the rest is not un-normalised", where, have, want);
    snprintf(expected, sizeof expected, "%d values, the robot's width", want);
    snprintf(got, sizeof got, "%d", have);
    char hint[200];
    snprintf(hint, sizeof hint,
             "are these the statistics of this robot? give its own with --norm-stats FILE; --set %s.dim=%d if that is its width",
             pi0_feature_name(f), have);
    return refuse(job, err, "the statistics are not as wide as the robot", where, expected, got, hint);
}

/* A joint that hardly moved while the statistics were taken: any value off its mean becomes a huge number (E3). */
#define PI0_TINY_RANGE 2e-3
#define PI0_TINY_STD 5e-4

typedef enum fault { FAULT_NONE, FAULT_NOT_FINITE, FAULT_NEGATIVE, FAULT_ORDER, FAULT_TINY, FAULTS } fault;

static fault fault_of(double low, double high, bool spread)
{
    if (!isfinite(low) || !isfinite(high))
        return FAULT_NOT_FINITE;
    if (spread ? high < 0 : high < low)
        return spread ? FAULT_NEGATIVE : FAULT_ORDER;
    return (spread ? high : high - low) < (spread ? PI0_TINY_STD : PI0_TINY_RANGE) ? FAULT_TINY : FAULT_NONE;
}

static pi0_status report_fault(pi0_recipe_job *job, fault kind, int f, const int *needs, const char *dims, pi0_error *err)
{
    static const char *const what[] = {[FAULT_NOT_FINITE] = "a statistic is not a finite number",
                                       [FAULT_NEGATIVE] = "a standard deviation is negative",
                                       [FAULT_ORDER] = "the quantiles are in the wrong order"};
    static const char *const expected[] = {
        [FAULT_NOT_FINITE] = "finite numbers", [FAULT_NEGATIVE] = "0 or more", [FAULT_ORDER] = "the first below the second"};
    const char *feature = pi0_feature_name(f), *low = pi0_stat_name(needs[0]), *high = pi0_stat_name(needs[1]);
    if (kind == FAULT_TINY)
        return pi0_recipe_warn(job, err,
                               "%s.%s, %s.%s: dims that hardly varied in the data: %s: a value off its usual place becomes very large",
                               feature, low, feature, high, dims);
    char where[120], hint[160];
    snprintf(where, sizeof where, "%s.%s, %s.%s", feature, low, feature, high);
    snprintf(hint, sizeof hint,
             "give other statistics with --norm-stats FILE, or these alone with --set %s.%s=V,V,... and --set %s.%s=V,V,...", feature, low,
             feature, high);
    return refuse(job, err, what[kind], where, expected[kind], dims, hint);
}

/* One report for each kind of fault: a robot parked during recording has it in many dims. */
static pi0_status check_health(pi0_recipe_job *job, int f, const int *needs, pi0_error *err)
{
    const pi0_numbers *low = &job->recipe->stats[f][needs[0]], *high = &job->recipe->stats[f][needs[1]];
    bool spread = needs[1] == PI0_STAT_STD;
    pi0_status status = PI0_OK;
    for (fault kind = FAULT_NOT_FINITE; kind < FAULTS && status == PI0_OK; kind++) {
        pi0_text dims = {0};
        for (int i = 0; i < job->recipe->dim[f] && i < low->n && i < high->n; i++)
            if (fault_of(low->v[i], high->v[i], spread) == kind)
                pi0_text_add(&dims, "%s%d (%g, %g)", dims.length ? ", " : "", i, low->v[i], high->v[i]);
        if (dims.failed)
            status = pi0_fail_memory(err, 256, "a list of dims");
        else if (dims.length)
            status = report_fault(job, kind, f, needs, dims.data, err);
        pi0_text_release(&dims);
    }
    return status;
}

pi0_status pi0_stats_check(pi0_recipe_job *job, pi0_error *err)
{
    PI0_TRY(missing(job, err));
    for (int f = 0; f < PI0_FEATURES; f++) {
        const int *needs = pi0_norm_needs(job->recipe->norm[f]);
        if (needs[0] < 0)
            continue;
        PI0_TRY(check_width(job, f, needs[0], err));
        PI0_TRY(check_width(job, f, needs[1], err));
        PI0_TRY(check_health(job, f, needs, err));
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ describing */

json_t *pi0_stats_describe(const pi0_recipe *recipe)
{
    json_t *all = json_object();
    for (int f = 0; all && f < PI0_FEATURES; f++) {
        json_t *one = json_object();
        const char *norm = pi0_recipe_field(PI0_FIELD_NORM_STATE)->choices[recipe->norm[f]];
        bool failed = json_object_set_new(one, "norm", json_string(norm)) != 0;
        for (int s = 0; s < PI0_STATS; s++) {
            pi0_field_id id = pi0_stat_field(f, s);
            if (recipe->stats[f][s].n == 0)
                continue;
            json_t *entry = json_object();
            failed |= json_object_set_new(entry, "value", pi0_recipe_value_json(recipe, id)) != 0;
            failed |= json_object_set_new(entry, "origin", pi0_json_words(recipe->origin[id] ? recipe->origin[id] : "")) != 0;
            failed |= json_object_set_new(one, pi0_stat_name(s), entry) != 0;
        }
        failed |= json_object_set(all, pi0_feature_name(f), one) != 0;
        json_decref(one);
        if (failed) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}
