/* LeRobot's policy_preprocessor.json and policy_postprocessor.json, and the state files that they name. */
#include "model/recipe.h"

#include <string.h>

static const char pre_file[] = "policy_preprocessor.json", post_file[] = "policy_postprocessor.json";

/* One processor file while it is read. */
typedef struct pipeline {
    pi0_recipe_job *job;
    const char *file;
    bool pre;
    int feature; /* whose statistics this file is read for */
    int actions; /* pre: how actions were normalised in training; -1: not said */
    bool seen_norm, seen_prepare, seen_newline, seen_relative, relative, newer, absolute;
    const json_t *relative_config; /* borrowed from the preprocessor's JSON */
} pipeline;

typedef pi0_status (*step_reader)(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err);

static pi0_status refuse(pi0_error *err, pi0_status code, const char *where, const char *what, const char *expected, const char *got)
{
    pi0_status status = pi0_fail(err, code, "%s", what);
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "%s", expected);
    pi0_err_got(err, "%.300s", got);
    pi0_err_hint(err, "describe what this model needs with --recipe FILE.json (pi0 inspect MODEL --write-recipe writes one to start from)");
    return status;
}

/* ------------------------------------------------------------------ the steps */

static pi0_status skip_step(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    (void)p, (void)step, (void)config, (void)where, (void)err;
    return PI0_OK;
}

static pi0_status read_rename(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    (void)step;
    const json_t *map = json_object_get(config, "rename_map");
    const char *from;
    json_t *to;
    if (map && !json_is_object(map))
        return refuse(err, PI0_ERR_FORMAT, where, "the rename map is not an object", "{\"robot's key\": \"policy's key\"}",
                      pi0_json_type_name(map));
    pi0_cameras *cameras = &p->job->recipe->cameras;
    json_object_foreach((json_t *)map, from, to) if (!json_is_string(to)) return refuse(
        err, PI0_ERR_FORMAT, where, "the rename map does not hold names", "{\"robot's key\": \"policy's key\"}", pi0_json_type_name(to));
    for (int i = 0; i < cameras->n; i++) {
        const char *key = NULL; /* until now the camera's key is the policy's own */
        json_object_foreach((json_t *)map, from, to)
        {
            if (cameras->v[i].empty || strcmp(json_string_value(to), cameras->v[i].key) != 0)
                continue;
            if (key)
                return refuse(err, PI0_ERR_MODEL, where, "the rename map gives one camera two names", key, from);
            key = from;
        }
        if (!key)
            continue;
        char *copy = pi0_strdup(key);
        if (!copy)
            return pi0_fail_memory(err, strlen(key), "a camera key");
        pi0_free(cameras->v[i].key);
        cameras->v[i].key = copy;
        PI0_TRY(pi0_recipe_origin(p->job->recipe, PI0_FIELD_CAMERAS, err,
                                  "config.json: input_features, in the file's order; keys renamed by %s: rename_map", p->file));
    }
    return PI0_OK;
}

static pi0_status read_newline(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    (void)step, (void)config;
    p->seen_newline = true;
    if (p->job->recipe->model == 1)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "a pi05 checkpoint with pi0's prompt step",
                      "pi05_prepare_state_tokenizer_processor_step", "pi0_new_line_processor");
    return PI0_OK;
}

static pi0_status read_prepare(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    (void)step, (void)config;
    p->seen_prepare = true;
    if (p->job->recipe->model == 0)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "a pi0 checkpoint with pi05's prompt step", "pi0_new_line_processor",
                      "pi05_prepare_state_tokenizer_processor_step");
    if (!p->seen_norm)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "the state is written into the prompt before it is normalised",
                      "normalizer_processor before this step", "it comes after");
    return PI0_OK;
}

static pi0_status read_tokenizer(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    (void)step;
    pi0_recipe *recipe = p->job->recipe;
    int64_t length = 0;
    const char *side = json_string_value(json_object_get(config, "padding_side"));
    if (side && strcmp(side, "right") != 0)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "prompts padded on the left are not known of pi0 and pi0.5",
                      "padding_side \"right\"", side);
    if (json_is_false(json_object_get(config, "truncation"))) {
        recipe->overflow = PI0_OVERFLOW_ERROR;
        PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_OVERFLOW, err, "%s: truncation false", where));
    }
    if (!json_object_get(config, "max_length"))
        return PI0_OK;
    PI0_TRY(pi0_json_get_int(config, "max_length", where, 1, PI0_MAX_TOKENS, &length, err));
    if ((int)length != recipe->max_tokens)
        PI0_TRY(pi0_recipe_warn(p->job, err, "%s: max_length is %d, config.json says %d; the processor stands", where, (int)length,
                                recipe->max_tokens));
    recipe->max_tokens = (int)length;
    return pi0_recipe_origin(recipe, PI0_FIELD_MAX_TOKENS, err, "%s: max_length", where);
}

static pi0_status read_relative(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    (void)step;
    const json_t *enabled = json_object_get(config, "enabled"), *exclude = json_object_get(config, "exclude_joints"),
                 *names = json_object_get(config, "action_names");
    bool right = (!enabled || json_is_boolean(enabled)) && (!exclude || json_is_null(exclude) || json_is_array(exclude)) &&
                 (!names || json_is_null(names) || json_is_array(names));
    if (!right)
        return refuse(err, PI0_ERR_FORMAT, where, "the step has members of the wrong type",
                      "enabled: true or false, exclude_joints and action_names: lists", "something else");
    p->newer = p->seen_relative = true;
    p->relative = json_is_true(enabled);
    p->relative_config = config;
    if (p->relative && p->seen_norm)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "actions are made relative to the normalised state",
                      "this step before normalizer_processor", "it comes after");
    return PI0_OK;
}

static pi0_status read_absolute(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    (void)step, (void)where, (void)err;
    p->newer = true;
    p->absolute = json_is_true(json_object_get(config, "enabled"));
    if (p->absolute && !p->seen_norm)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "actions are made absolute before they are un-normalised",
                      "this step after unnormalizer_processor", "it comes before");
    return PI0_OK;
}

/* ------------------------------------------------------------------ normalizer and unnormalizer */

static bool safe_relative(const char *path)
{
    if (!*path || *path == '/' || strchr(path, '\\'))
        return false;
    for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == 0))
            return false;
    return true;
}

/* LeRobot numbers the state file by the step's position; pi0 had 5 and pi05 2 before the relative step came in between (0.5.1). */
static bool numbered_newer(const pipeline *p, const char *name)
{
    return strstr(name, p->job->recipe->model ? "_step_3_normalizer" : "_step_6_normalizer") != NULL;
}

static pi0_status read_state_file(pipeline *p, const json_t *step, const char *where, pi0_error *err)
{
    const json_t *name = json_object_get(step, "state_file");
    pi0_recipe_job *job = p->job;
    if (!name || json_is_null(name) || job->options->norm_stats)
        return PI0_OK;
    if (!json_is_string(name) || !safe_relative(json_string_value(name)))
        return refuse(err, PI0_ERR_FORMAT, where, "the state file's name is not a plain one",
                      "a file beside the processor, without .. and not absolute",
                      json_is_string(name) ? json_string_value(name) : pi0_json_type_name(name));
    p->newer |= p->pre && numbered_newer(p, json_string_value(name));
    char *path = pi0_path_join(job->checkpoint->dir, json_string_value(name));
    if (!path)
        return pi0_fail_memory(err, json_string_length(name), "a path");
    pi0_safetensors *file = NULL;
    bool wanted[PI0_FEATURES] = {p->feature == PI0_STATE, p->feature == PI0_ACTION};
    pi0_status status = PI0_OK;
    if (job->problems && !pi0_exists(path)) {
        if (json_array_append_new(job->problems, pi0_json_words("a state file that the processors name is not there")) != 0)
            status = pi0_fail_memory(err, 64, "a problem text");
    } else {
        status = pi0_safetensors_open(path, &file, err);
        if (status == PI0_OK)
            status = pi0_stats_from_tensors(job, file, wanted, json_string_value(name), err);
        if (status != PI0_OK && !file)
            pi0_err_hint(err, "the processors name this file (%s); --norm-stats FILE gives the statistics from elsewhere", where);
    }
    job->stats_done = job->stats_done || status == PI0_OK;
    pi0_safetensors_close(&file);
    pi0_free(path);
    return status;
}

static pi0_status read_kind(const json_t *map, const char *key, const char *where, int *out, pi0_error *err)
{
    static const char *const kinds[] = {"IDENTITY", "MEAN_STD", "QUANTILES", "QUANTILE10", "MIN_MAX"};
    const json_t *value = json_object_get(map, key);
    *out = PI0_NORM_IDENTITY;
    if (!value)
        return PI0_OK;
    for (int k = 0; k < 5; k++)
        if (json_is_string(value) && strcmp(json_string_value(value), kinds[k]) == 0) {
            *out = k;
            return PI0_OK;
        }
    return refuse(err, PI0_ERR_FORMAT, where, "an unknown kind of normalisation", "IDENTITY, MEAN_STD, QUANTILES, QUANTILE10 or MIN_MAX",
                  json_is_string(value) ? json_string_value(value) : pi0_json_type_name(value));
}

/* normalize_observation_keys, where present, names the only features that are normalised. */
static bool state_left_out(const json_t *config)
{
    const json_t *keys = json_object_get(config, "normalize_observation_keys");
    if (!json_is_array(keys))
        return false;
    for (size_t i = 0; i < json_array_size(keys); i++) {
        const char *key = json_string_value(json_array_get(keys, i));
        if (key && strcmp(key, "observation.state") == 0)
            return false;
    }
    return true;
}

/* LeRobot runs the processor and reads the mapping of config.json only to make one. */
static pi0_status compare_kind(pipeline *p, int id, int kind, const char *where, pi0_error *err)
{
    const pi0_recipe *recipe = p->job->recipe;
    const char *key = p->feature == PI0_STATE ? "STATE" : "ACTION";
    const json_t *said = json_object_get(json_object_get(p->job->checkpoint->config, "normalization_mapping"), key);
    const char *const *kinds = pi0_recipe_field((pi0_field_id)id)->choices;
    if (!said || kind == recipe->norm[p->feature])
        return PI0_OK;
    return pi0_recipe_warn(p->job, err, "config.json: normalization_mapping.%s is %s, but %s has %s; the processor stands", key,
                           kinds[recipe->norm[p->feature]], where, kinds[kind]);
}

static pi0_status read_normalizer(pipeline *p, const json_t *step, const json_t *config, const char *where, pi0_error *err)
{
    pi0_recipe *recipe = p->job->recipe;
    int id = p->feature == PI0_STATE ? PI0_FIELD_NORM_STATE : PI0_FIELD_NORM_ACTION, kind = 0, visual = 0;
    const json_t *map = NULL;
    json_t *borrowed;
    if (p->seen_norm)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "a second normalisation step", "one", "two");
    p->seen_norm = true;
    PI0_TRY(pi0_json_get_object(config, "norm_map", where, &borrowed, err));
    map = borrowed;
    PI0_TRY(read_kind(map, "VISUAL", where, &visual, err));
    if (visual != PI0_NORM_IDENTITY && p->pre)
        return refuse(err, PI0_ERR_UNSUPPORTED, where, "pictures normalised by statistics are not known of pi0 and pi0.5",
                      "norm_map.VISUAL \"IDENTITY\"", "another kind");
    PI0_TRY(read_kind(map, p->feature == PI0_STATE ? "STATE" : "ACTION", where, &kind, err));
    if (p->feature == PI0_STATE && state_left_out(config))
        kind = PI0_NORM_IDENTITY;
    PI0_TRY(compare_kind(p, id, kind, where, err));
    if (p->pre && json_object_get(map, "ACTION"))
        PI0_TRY(read_kind(map, "ACTION", where, &p->actions, err));
    recipe->norm[p->feature] = kind;
    PI0_TRY(pi0_recipe_origin(recipe, id, err, "%s.norm_map.%s", where, p->feature == PI0_STATE ? "STATE" : "ACTION"));
    if (json_object_get(config, "eps")) {
        double epsilon = 0;
        PI0_TRY(pi0_json_get_number(config, "eps", where, &epsilon, err));
        if (!p->pre && epsilon != recipe->epsilon)
            return refuse(err, PI0_ERR_UNSUPPORTED, where, "the two processors have different eps", "one value", "two");
        recipe->epsilon = epsilon;
        PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_EPSILON, err, "%s.eps", where));
    }
    return read_state_file(p, step, where, err);
}

/* ------------------------------------------------------------------ walking a file */

static const struct {
    const char *name;
    step_reader read;
    bool pre, post;
} known_steps[] = {
    {"rename_observations_processor", read_rename, true, false}, {"to_batch_processor", skip_step, true, true},
    {"pi0_new_line_processor", read_newline, true, false},       {"pi05_prepare_state_tokenizer_processor_step", read_prepare, true, false},
    {"tokenizer_processor", read_tokenizer, true, false},        {"relative_actions_processor", read_relative, true, false},
    {"normalizer_processor", read_normalizer, true, false},      {"unnormalizer_processor", read_normalizer, false, true},
    {"absolute_actions_processor", read_absolute, false, true},  {"device_processor", skip_step, true, true},
};
enum { N_STEPS = sizeof known_steps / sizeof known_steps[0], MAX_STEPS = 64 };

static pi0_status unknown_step(const pipeline *p, const char *where, const json_t *step, pi0_error *err)
{
    const char *name = json_string_value(json_object_get(step, "registry_name"));
    const char *class = json_string_value(json_object_get(step, "class"));
    pi0_status status = pi0_fail(err, PI0_ERR_UNSUPPORTED, "%s",
                                 !name && class ? "a processor step is custom Python code" : "a processor step is not known");
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "a step with a registry_name of the list below");
    pi0_err_got(err, "%.300s", name ? name : class ? class : "a step without registry_name");
    pi0_err_hint(err, "ignoring it could change the actions; if what it does can be said in a recipe, give one with --recipe FILE.json");
    for (int i = 0; i < N_STEPS; i++)
        if (p->pre ? known_steps[i].pre : known_steps[i].post)
            pi0_err_item(err, "%s", known_steps[i].name);
    return status;
}

static pi0_status read_step(pipeline *p, const json_t *step, size_t index, pi0_error *err)
{
    char where[160];
    snprintf(where, sizeof where, "%s: steps[%zu]", p->file, index);
    const char *name = json_string_value(json_object_get(step, "registry_name"));
    for (int i = 0; name && i < N_STEPS; i++) {
        if (strcmp(known_steps[i].name, name) != 0 || !(p->pre ? known_steps[i].pre : known_steps[i].post))
            continue;
        const json_t *config = json_object_get(step, "config");
        if (config && !json_is_object(config))
            return refuse(err, PI0_ERR_FORMAT, where, "a step's config is not an object", "an object", pi0_json_type_name(config));
        p->newer |= json_object_get(step, "artifacts") != NULL;
        snprintf(where, sizeof where, "%s: steps[%zu] %s", p->file, index, name);
        return known_steps[i].read(p, step, config, where, err);
    }
    return unknown_step(p, where, step, err);
}

static pi0_status read_pipeline(pipeline *p, json_t **root, pi0_error *err)
{
    char *path = pi0_path_join(p->job->checkpoint->dir, p->file);
    if (!path)
        return pi0_fail_memory(err, 256, "a path");
    json_t *steps = NULL;
    pi0_status status = pi0_json_read(path, PI0_MAX_JSON, root, err);
    if (status == PI0_OK)
        status = pi0_json_get_array(*root, "steps", path, &steps, err);
    pi0_free(path);
    if (status != PI0_OK)
        return status;
    if (json_array_size(steps) > MAX_STEPS)
        return refuse(err, PI0_ERR_FORMAT, p->file, "the processor has too many steps", "at most 64", "more");
    for (size_t i = 0; i < json_array_size(steps); i++)
        PI0_TRY(read_step(p, json_array_get(steps, i), i, err));
    if (!p->seen_norm)
        return refuse(err, PI0_ERR_MODEL, p->file, "the processor has no normalisation step",
                      p->pre ? "normalizer_processor" : "unnormalizer_processor", "none");
    if (p->pre && p->job->recipe->model == 1 && !p->seen_prepare)
        return refuse(err, PI0_ERR_MODEL, p->file, "the processor does not write the state into the prompt",
                      "pi05_prepare_state_tokenizer_processor_step", "no such step");
    if (p->pre && p->job->recipe->model == 0 && !p->seen_newline)
        return refuse(err, PI0_ERR_MODEL, p->file, "the processor does not end the prompt with a newline", "pi0_new_line_processor",
                      "no such step");
    return PI0_OK;
}

/* ------------------------------------------------------------------ both files together */

static pi0_status settle_relative(pi0_recipe_job *job, const pipeline *pre, const pipeline *post, pi0_error *err)
{
    if (pre->relative != post->absolute && !job->recipe->by_user[PI0_FIELD_DELTA])
        PI0_TRY(pi0_recipe_ask(
            job->recipe, PI0_FIELD_DELTA, err,
            "%s says relative actions are %s, %s says %s. A list of 0 and 1, one for each action dim (1 = relative), or an empty one",
            pre_file, pre->relative ? "on" : "off", post_file, post->absolute ? "on" : "off"));
    if (!pre->seen_relative)
        return PI0_OK;
    char origin[128];
    snprintf(origin, sizeof origin, "%s: relative_actions_processor", pre_file);
    return pi0_lerobot_delta(job, post->absolute, json_object_get(pre->relative_config, "exclude_joints"),
                             json_object_get(pre->relative_config, "action_names"), origin, err);
}

/* LeRobot runs the second file; what the first did to actions, it did in training. */
static pi0_status compare_actions(pi0_recipe_job *job, const pipeline *pre, pi0_error *err)
{
    int undone = job->recipe->norm[PI0_ACTION];
    const char *const *kinds = pi0_recipe_field(PI0_FIELD_NORM_ACTION)->choices;
    if (pre->actions < 0 || pre->actions == undone)
        return PI0_OK;
    return pi0_recipe_warn(job, err, "%s normalises actions by %s, %s undoes %s; the second is followed (--set norm.action=%s: the first)",
                           pre_file, kinds[pre->actions], post_file, kinds[undone], kinds[pre->actions]);
}

pi0_status pi0_recipe_read_steps(pi0_recipe_job *job, bool *found, bool *newer, pi0_error *err)
{
    pipeline pre = {.job = job, .file = pre_file, .pre = true, .feature = PI0_STATE, .actions = -1};
    pipeline post = {.job = job, .file = post_file, .feature = PI0_ACTION};
    json_t *pre_root = NULL, *post_root = NULL;
    *found = *newer = false;
    if (!job->checkpoint || !job->checkpoint->dir)
        return PI0_OK;
    char *path[2] = {pi0_path_join(job->checkpoint->dir, pre_file), pi0_path_join(job->checkpoint->dir, post_file)};
    bool there[2] = {path[0] && pi0_exists(path[0]), path[1] && pi0_exists(path[1])};
    pi0_status status = path[0] && path[1] ? PI0_OK : pi0_fail_memory(err, 256, "a path");
    pi0_free(path[0]);
    pi0_free(path[1]);
    if (status != PI0_OK || (!there[0] && !there[1]))
        return status;
    if (!there[0] || !there[1])
        return refuse(err, PI0_ERR_MODEL, job->checkpoint->dir, "one of the two processor files is missing",
                      "policy_preprocessor.json and policy_postprocessor.json", there[0] ? "the first only" : "the second only");
    PI0_TRY_GOTO(read_pipeline(&pre, &pre_root, err));
    PI0_TRY_GOTO(read_pipeline(&post, &post_root, err));
    PI0_TRY_GOTO(settle_relative(job, &pre, &post, err));
    PI0_TRY_GOTO(compare_actions(job, &pre, err));
    *found = true;
    *newer = pre.newer || post.newer;
fail:
    json_decref(pre_root);
    json_decref(post_root);
    return status;
}
