/* LeRobot's config.json -> recipe. Three dialects: 0.3 (statistics inside the weights), 0.4 and 0.5.0 (not told apart by their files),
 * 0.5.1 and later. Reference: lerobot policies/pi0, policies/pi05, processor/, tags v0.3.3 to v0.6.1. */
#include "model/recipe.h"

#include <string.h>

static const char where_config[] = "config.json";

/* ------------------------------------------------------------------ config members */

static bool is_true(const json_t *config, const char *key)
{
    return json_is_true(json_object_get(config, key));
}

/* Types of members, names that are not known, and models that are refused: checkpoint_config.c has seen to them.
 * An integer field of the recipe from a member, or LeRobot's default. */
static pi0_status take_count(pi0_recipe *recipe, int id, int *out, const json_t *config, const char *key, int fallback, pi0_error *err)
{
    const pi0_field *field = pi0_recipe_field((pi0_field_id)id);
    int64_t value = fallback;
    if (!json_object_get(config, key)) {
        *out = fallback;
        return pi0_recipe_origin(recipe, id, err, "rule: LeRobot's default (config.json has no %s)", key);
    }
    PI0_TRY(pi0_json_get_int(config, key, where_config, (int64_t)field->min, (int64_t)field->max, &value, err));
    *out = (int)value;
    return pi0_recipe_origin(recipe, id, err, "config.json: %s", key);
}

static pi0_status take_number(pi0_recipe *recipe, int id, double *out, const json_t *config, const char *key, double fallback,
                              pi0_error *err)
{
    *out = fallback;
    if (!json_object_get(config, key))
        return pi0_recipe_origin(recipe, id, err, "rule: LeRobot's default (config.json has no %s)", key);
    PI0_TRY(pi0_json_get_number(config, key, where_config, out, err));
    return pi0_recipe_origin(recipe, id, err, "config.json: %s", key);
}

/* ------------------------------------------------------------------ model type and what is refused */

static pi0_status refuse(pi0_error *err, const char *key, const char *what, const char *hint)
{
    pi0_status status = pi0_fail(err, PI0_ERR_UNSUPPORTED, "%s", what);
    pi0_err_where(err, "%s: %s", where_config, key);
    pi0_err_hint(err, "%s", hint);
    return status;
}

static pi0_status take_model(pi0_recipe_job *job, const json_t *config, pi0_error *err)
{
    const char *type;
    PI0_TRY(pi0_json_get_string(config, "type", where_config, &type, err));
    job->recipe->model = strcmp(type, "pi05") == 0;
    PI0_TRY(pi0_recipe_origin(job->recipe, PI0_FIELD_MODEL, err, "config.json: type"));
    if (is_true(config, "use_delta_joint_actions_aloha"))
        return refuse(err, "use_delta_joint_actions_aloha", "LeRobot itself does not run models with this switch",
                      "say which joints are relative in a recipe (action.delta): --recipe FILE.json");
    const json_t *n_obs = json_object_get(config, "n_obs_steps");
    if (n_obs && json_integer_value(n_obs) != 1)
        return refuse(err, "n_obs_steps", "more than one observation a step is not known of pi0 and pi0.5",
                      "is this config.json of these weights? LeRobot writes 1");
    return PI0_OK;
}

/* ------------------------------------------------------------------ features */

static const char *short_key(const char *key)
{
    if (strncmp(key, "observation.images.", 19) == 0 && key[19])
        return key + 19;
    return strncmp(key, "observation.", 12) == 0 && key[12] ? key + 12 : key;
}

/* Width of a one-dimensional feature. */
static pi0_status feature_width(const json_t *features, const char *group, const char *key, int *out, pi0_error *err)
{
    const json_t *shape = json_object_get(json_object_get(features, key), "shape");
    const json_t *width = json_array_get(shape, 0);
    if (json_is_array(shape) && json_array_size(shape) == 1 && json_is_integer(width) && json_integer_value(width) >= 1 &&
        json_integer_value(width) <= PI0_MAX_DIM) {
        *out = (int)json_integer_value(width);
        return PI0_OK;
    }
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "a feature has no usable shape");
    pi0_err_where(err, "%s: %s.%.200s.shape", where_config, group, key);
    pi0_err_expected(err, "one width from 1 to %d", PI0_MAX_DIM);
    pi0_err_got(err, "%s of %zu", pi0_json_type_name(shape), json_array_size(shape));
    return status;
}

static pi0_status take_width(pi0_recipe *recipe, int feature, const json_t *config, pi0_error *err)
{
    const char *group = feature == PI0_STATE ? "input_features" : "output_features";
    const char *key = feature == PI0_STATE ? "observation.state" : "action";
    const char *fallback = feature == PI0_STATE ? "max_state_dim" : "max_action_dim";
    int id = feature == PI0_STATE ? PI0_FIELD_STATE_DIM : PI0_FIELD_ACTION_DIM;
    const json_t *features = json_object_get(config, group);
    if (!json_object_get(features, key))
        return take_count(recipe, id, &recipe->dim[feature], config, fallback, 32, err);
    PI0_TRY(feature_width(features, group, key, &recipe->dim[feature], err));
    return pi0_recipe_origin(recipe, id, err, "config.json: %s.%s", group, key);
}

static pi0_status take_cameras(pi0_recipe *recipe, const json_t *config, pi0_error *err)
{
    const char *key;
    json_t *feature;
    int empty = 0;
    int64_t wanted = 0;
    char name[64];
    if (json_object_get(config, "empty_cameras"))
        PI0_TRY(pi0_json_get_int(config, "empty_cameras", where_config, 0, PI0_MAX_CAMERAS, &wanted, err));
    json_object_foreach(json_object_get(config, "input_features"), key, feature)
    {
        const char *type = json_string_value(json_object_get(feature, "type"));
        if (!type) {
            pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "a feature has no type");
            pi0_err_where(err, "%s: input_features.%.200s", where_config, key);
            pi0_err_expected(err, "{\"type\": \"VISUAL\" or \"STATE\", \"shape\": [...]}");
            return status;
        }
        if (strcmp(type, "VISUAL") != 0)
            continue;
        bool is_empty = strncmp(key, "observation.images.empty_camera_", 32) == 0;
        empty += is_empty;
        PI0_TRY(pi0_cameras_add(&recipe->cameras, short_key(key), key, is_empty, false, "config.json: input_features", err));
    }
    for (; empty < wanted; empty++) {
        snprintf(name, sizeof name, "empty_camera_%d", empty);
        PI0_TRY(pi0_cameras_add(&recipe->cameras, name, "", true, false, "config.json: empty_cameras", err));
    }
    if (recipe->cameras.n == empty) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "config.json names no camera");
        pi0_err_where(err, "%s: input_features", where_config);
        pi0_err_expected(err, "at least one feature of type VISUAL, such as observation.images.top");
        pi0_err_hint(err, "this is a base without a robot: fine-tune it, or describe the robot with --recipe FILE.json or --config NAME");
        return status;
    }
    PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_CAMERAS, err, "config.json: input_features, in the file's order%s",
                              wanted ? "; empty_cameras" : ""));
    recipe->close_up = true;
    return pi0_recipe_origin(recipe, PI0_FIELD_CLOSE_UP, err, "rule: LeRobot moves absent cameras behind the present ones");
}

static pi0_status take_resolution(pi0_recipe *recipe, const json_t *config, const char *key, pi0_error *err)
{
    const json_t *pair = json_object_get(config, key);
    const json_t *h = json_array_get(pair, 0), *w = json_array_get(pair, 1);
    recipe->image_size = 224;
    if (!json_is_array(pair))
        return pi0_recipe_origin(recipe, PI0_FIELD_IMAGE_SIZE, err, "rule: LeRobot's default (config.json has no %s)", key);
    bool numbers = json_array_size(pair) == 2 && json_is_integer(h) && json_is_integer(w) && json_integer_value(h) > 0 &&
                   json_integer_value(h) <= 4096;
    if (!numbers || json_integer_value(h) != json_integer_value(w)) {
        pi0_status status = pi0_fail(err, numbers ? PI0_ERR_UNSUPPORTED : PI0_ERR_FORMAT, "the picture size is not a square");
        pi0_err_where(err, "%s: %s", where_config, key);
        pi0_err_expected(err, "two equal whole numbers, such as [224, 224]");
        return status;
    }
    recipe->image_size = (int)json_integer_value(h);
    return pi0_recipe_origin(recipe, PI0_FIELD_IMAGE_SIZE, err, "config.json: %s", key);
}

/* ------------------------------------------------------------------ what config.json alone says of normalisation and of relative actions
 */

static pi0_status take_norm(pi0_recipe *recipe, const json_t *config, int feature, pi0_error *err)
{
    static const char *const kinds[] = {"IDENTITY", "MEAN_STD", "QUANTILES", "QUANTILE10", "MIN_MAX"};
    int id = feature == PI0_STATE ? PI0_FIELD_NORM_STATE : PI0_FIELD_NORM_ACTION;
    const char *key = feature == PI0_STATE ? "STATE" : "ACTION";
    const json_t *value = json_object_get(json_object_get(config, "normalization_mapping"), key);
    if (!value) {
        recipe->norm[feature] = recipe->model ? PI0_NORM_QUANTILES : PI0_NORM_MEAN_STD;
        return pi0_recipe_origin(recipe, id, err, "rule: LeRobot's default of %s (config.json has no normalization_mapping.%s)",
                                 recipe->model ? "pi05" : "pi0", key);
    }
    for (int k = 0; k < 5; k++)
        if (json_is_string(value) && strcmp(json_string_value(value), kinds[k]) == 0) {
            recipe->norm[feature] = k;
            return pi0_recipe_origin(recipe, id, err, "config.json: normalization_mapping.%s", key);
        }
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "an unknown kind of normalisation");
    pi0_err_where(err, "%s: normalization_mapping.%s", where_config, key);
    pi0_err_expected(err, "IDENTITY, MEAN_STD, QUANTILES, QUANTILE10 or MIN_MAX");
    pi0_err_got(err, "%.100s", json_is_string(value) ? json_string_value(value) : pi0_json_type_name(value));
    return status;
}

static bool contains_no_case(const char *text, const char *part)
{
    size_t length = strlen(part);
    for (; *text; text++)
        if (strncasecmp(text, part, length) == 0)
            return true;
    return false;
}

pi0_status pi0_lerobot_delta(pi0_recipe_job *job, bool enabled, const json_t *exclude, const json_t *names, const char *origin,
                             pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    bool any = false;
    for (size_t k = 0; k < json_array_size(exclude); k++)
        any |= json_string_length(json_array_get(exclude, k)) > 0;
    recipe->delta.n = enabled ? recipe->dim[PI0_ACTION] : 0;
    for (int i = 0; i < recipe->delta.n; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));
        recipe->delta.v[i] = true;
        for (size_t k = 0; name && k < json_array_size(exclude); k++) {
            const char *part = json_string_value(json_array_get(exclude, k));
            if (part && *part && contains_no_case(name, part))
                recipe->delta.v[i] = false;
        }
    }
    if (enabled && any && !json_is_array(names))
        PI0_TRY(pi0_recipe_warn(
            job, err, "%s: joints are to be kept absolute by name, but the file has no action names: all dims are relative, as in LeRobot",
            origin));
    PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_DELTA, err, "%s", origin));
    if (!json_is_array(names) || json_array_size(names) == 0)
        return PI0_OK;
    json_incref((json_t *)names);
    pi0_status status = pi0_recipe_value_read(recipe, PI0_FIELD_ACTION_NAMES, names, origin, err);
    json_decref((json_t *)names);
    return status != PI0_OK ? status : pi0_recipe_origin(recipe, PI0_FIELD_ACTION_NAMES, err, "%s", origin);
}

/* ------------------------------------------------------------------ the dialects */

typedef struct rule {
    pi0_field_id id;
    const char *origin;
} rule;

static pi0_status apply_rules(pi0_recipe *recipe, const rule *rules, size_t n, pi0_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!recipe->origin[rules[i].id])
            PI0_TRY(pi0_recipe_origin(recipe, rules[i].id, err, "%s", rules[i].origin));
    return PI0_OK;
}

static pi0_status fill_common(pi0_recipe *recipe, pi0_error *err)
{
    static const rule rules[] = {
        {PI0_FIELD_FAMILY, "rule: the checkpoint is LeRobot's"},
        {PI0_FIELD_STATE_FLIP, "rule: LeRobot changes no signs"},
        {PI0_FIELD_ACTION_FLIP, "rule: LeRobot changes no signs"},
        {PI0_FIELD_STATE_GRIPPER, "rule: LeRobot maps no grippers"},
        {PI0_FIELD_ACTION_GRIPPER, "rule: LeRobot maps no grippers"},
        {PI0_FIELD_STATE_GRIPPER_AT, "rule: LeRobot maps no grippers"},
        {PI0_FIELD_ACTION_GRIPPER_AT, "rule: LeRobot maps no grippers"},
        {PI0_FIELD_CLEAN, "rule: LeRobot's pi0 takes the prompt as it is, its pi05 cleans it as openpi does"},
        {PI0_FIELD_NEWLINE, "rule: LeRobot's pi0 ends the prompt with one newline"},
        {PI0_FIELD_FRAME, "rule: the frame of the model"},
        {PI0_FIELD_PROMPT_STATE, "rule: LeRobot's pi05 writes the state into the prompt"},
        {PI0_FIELD_STATE_PAD, "rule: LeRobot writes the robot's own dims since 0.5.0"},
        {PI0_FIELD_OVERFLOW, "rule: LeRobot cuts the prompt"},
        {PI0_FIELD_RULES, "rule: LeRobot tokenizes with Hugging Face tokenizers"},
        {PI0_FIELD_DEFAULT_PROMPT, "rule: LeRobot has none"},
        {PI0_FIELD_ARITHMETIC, "rule: LeRobot normalises in f32"},
        {PI0_FIELD_EPSILON, "rule: LeRobot's default"},
        {PI0_FIELD_RESIZE, "rule: LeRobot since 0.5.0"},
        {PI0_FIELD_DELTA, "rule: LeRobot's default"},
    };
    bool pi05 = recipe->model == 1;
    recipe->family = PI0_FAMILY_LEROBOT;
    recipe->clean = pi05 ? PI0_CLEAN_OPENPI : PI0_CLEAN_NONE;
    recipe->newline = pi05 ? PI0_NEWLINE_NONE : PI0_NEWLINE_ENSURE;
    recipe->frame = pi05 ? PI0_FRAME_PI05 : PI0_FRAME_PI0;
    recipe->prompt_state = pi05 ? PI0_STATE_DIGITS : PI0_STATE_NONE;
    recipe->overflow = PI0_OVERFLOW_CUT;
    recipe->rules = PI0_RULES_HF;
    recipe->arithmetic = PI0_ARITHMETIC_LEROBOT;
    recipe->resize = PI0_RESIZE_TORCH;
    return apply_rules(recipe, rules, sizeof rules / sizeof rules[0], err);
}

/* LeRobot 0.3's own code path, rewritten in 0.4: another letterbox, another place for the statistics, another loop over time. */
static pi0_status fill_03(pi0_recipe_job *job, const json_t *config, pi0_error *err)
{
    static const rule rules[] = {
        {PI0_FIELD_RESIZE, "rule: LeRobot 0.3 pads top and left"},
        {PI0_FIELD_OVERFLOW, "rule: LeRobot 0.3 did not cut long prompts; a longer one is refused here"},
        {PI0_FIELD_ARITHMETIC, "rule: LeRobot 0.3"},
        {PI0_FIELD_SCHEDULE, "rule: LeRobot 0.3 adds dt in f32"},
    };
    static const int flips[] = {-1, 2, -5, 2, -4, 0}; /* runs: joints 1, 2, 8, 9 */
    pi0_recipe *recipe = job->recipe;
    if (recipe->model != 0)
        return refuse(err, "type", "LeRobot 0.3 had no pi05: these files contradict one another",
                      "give the recipe with --recipe FILE.json");
    PI0_TRY(apply_rules(recipe, rules, sizeof rules / sizeof rules[0], err));
    PI0_TRY(
        take_count(recipe, PI0_FIELD_HORIZON, &recipe->horizon, config, "n_action_steps", 50, err)); /* the noise has n_action_steps rows */
    PI0_TRY(take_count(recipe, PI0_FIELD_STEPS, &recipe->steps, config, "num_steps", 10, err));
    PI0_TRY(take_resolution(recipe, config, "resize_imgs_with_padding", err));
    if (is_true(config, "adapt_to_pi_aloha")) {
        static const pi0_field_id adapted[] = {PI0_FIELD_STATE_FLIP,     PI0_FIELD_ACTION_FLIP,      PI0_FIELD_STATE_GRIPPER,
                                               PI0_FIELD_ACTION_GRIPPER, PI0_FIELD_STATE_GRIPPER_AT, PI0_FIELD_ACTION_GRIPPER_AT};
        for (int f = 0; f < PI0_FEATURES; f++) {
            pi0_flags_from_runs(&recipe->flip[f], flips);
            recipe->gripper[f] = PI0_GRIPPER_ALOHA_LEROBOT03;
            recipe->gripper_at[f] = (pi0_indices){2, {6, 13}};
        }
        for (size_t i = 0; i < sizeof adapted / sizeof adapted[0]; i++)
            PI0_TRY(pi0_recipe_origin(recipe, adapted[i], err, "config.json: adapt_to_pi_aloha"));
    }
    PI0_TRY(fill_common(recipe, err));
    recipe->resize = PI0_RESIZE_TOP_LEFT;
    recipe->overflow = PI0_OVERFLOW_ERROR;
    recipe->arithmetic = PI0_ARITHMETIC_LEROBOT03;
    recipe->schedule = PI0_SCHEDULE_F32;
    return PI0_OK;
}

static bool has_newer_members(const json_t *config)
{
    static const char *const since_051[] = {"use_relative_actions",   "relative_exclude_joints", "action_feature_names",
                                            "rtc_training_max_delay", "use_visual_memory",       "use_proprioceptive_memory",
                                            "memory_frames"};
    for (size_t i = 0; i < sizeof since_051 / sizeof since_051[0]; i++)
        if (json_object_get(config, since_051[i]))
            return true;
    return false;
}

/* LeRobot writes every member that its config has, so that what a whole file lacks dates it as well as what it holds. */
static bool before_043(const json_t *config)
{
    return json_object_get(config, "compile_model") && !json_object_get(config, "use_peft");
}

static pi0_status take_schedule(pi0_recipe *recipe, const json_t *config, bool newer, pi0_error *err)
{
    bool f32 = !newer && before_043(config);
    recipe->schedule = f32 ? PI0_SCHEDULE_F32 : PI0_SCHEDULE_F64;
    return pi0_recipe_origin(recipe, PI0_FIELD_SCHEDULE, err, "rule: LeRobot %s",
                             f32                                            ? "0.4.0 to 0.4.2 adds dt in f32 (config.json has no use_peft)"
                             : newer || json_object_get(config, "use_peft") ? "since 0.4.3 computes 1 + step * dt in f64"
                                                                            : "since 0.4.3 computes 1 + step * dt in f64; the files do not "
                                                                              "tell, and before it was f32, about 1e-7 apart");
}

static pi0_status fill_04(pi0_recipe_job *job, const json_t *config, bool newer, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    PI0_TRY(take_count(recipe, PI0_FIELD_HORIZON, &recipe->horizon, config, "chunk_size", 50, err));
    PI0_TRY(take_count(recipe, PI0_FIELD_STEPS, &recipe->steps, config, "num_inference_steps", 10, err));
    PI0_TRY(take_resolution(recipe, config, "image_resolution", err));
    if (!recipe->origin[PI0_FIELD_DELTA])
        PI0_TRY(pi0_lerobot_delta(job, is_true(config, "use_relative_actions"), json_object_get(config, "relative_exclude_joints"),
                                  json_object_get(config, "action_feature_names"), "config.json: use_relative_actions", err));
    PI0_TRY(take_schedule(recipe, config, newer, err));
    PI0_TRY(fill_common(recipe, err));
    if (newer)
        return PI0_OK;
    bool migrated = json_object_get(config, "resize_imgs_with_padding") != NULL;
    PI0_TRY(pi0_recipe_ask(recipe, PI0_FIELD_RESIZE, err,
                           "torch (LeRobot 0.5.0 and later: black borders), torch-lerobot04 (0.4: borders of -3)%s. A checkpoint saved by "
                           "0.5.1 or later shows "
                           "use_relative_actions in config.json or a relative_actions_processor step; this one has neither%s",
                           migrated ? ", top-left (trained with 0.3)" : "",
                           before_043(config) ? ", nor use_peft: it was saved by 0.4.0 to 0.4.2" : ""));
    if (recipe->model == 1)
        PI0_TRY(pi0_recipe_ask(recipe, PI0_FIELD_STATE_PAD, err,
                               "0 (LeRobot 0.5.0 and later), 32 (0.4: the state was padded before it was written)"));
    return PI0_OK;
}

/* ------------------------------------------------------------------ */

static pi0_status dataset_stats(pi0_recipe_job *job, pi0_error *err)
{
    static const char *const places[] = {"meta/stats.json", "stats.json", "norm_stats.json"};
    const char *dir = job->checkpoint ? job->checkpoint->dir : NULL;
    for (size_t i = 0; dir && i < sizeof places / sizeof places[0] && !job->stats_done; i++) {
        char *path = pi0_path_join(dir, places[i]);
        if (!path)
            return pi0_fail_memory(err, strlen(dir), "a path");
        pi0_status status = pi0_exists(path) ? pi0_stats_read(job, path, places[i], err) : PI0_OK;
        pi0_free(path);
        if (status != PI0_OK)
            return status;
    }
    return PI0_OK;
}

pi0_status pi0_recipe_from_lerobot(pi0_recipe_job *job, const json_t *config, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    bool steps = false, newer_steps = false, buffers = false;
    recipe->epsilon = 1e-8;
    PI0_TRY(take_model(job, config, err));
    PI0_TRY(take_width(recipe, PI0_STATE, config, err));
    PI0_TRY(take_width(recipe, PI0_ACTION, config, err));
    PI0_TRY(take_cameras(recipe, config, err));
    PI0_TRY(take_norm(recipe, config, PI0_STATE, err));
    PI0_TRY(take_norm(recipe, config, PI0_ACTION, err));
    PI0_TRY(take_count(recipe, PI0_FIELD_MAX_TOKENS, &recipe->max_tokens, config, "tokenizer_max_length", recipe->model ? 200 : 48, err));
    PI0_TRY(take_number(recipe, PI0_FIELD_MIN_PERIOD, &recipe->min_period, config, "min_period", 4e-3, err));
    PI0_TRY(take_number(recipe, PI0_FIELD_MAX_PERIOD, &recipe->max_period, config, "max_period", 4.0, err));
    PI0_TRY(pi0_recipe_read_steps(job, &steps, &newer_steps, err));
    if (!job->stats_done && !job->options->norm_stats) {
        PI0_TRY(pi0_stats_from_buffers(job, &buffers, err));
        if (buffers)
            pi0_log_info(job->log, "legacy checkpoint: its statistics are inside the weights file (LeRobot 0.3)");
        else
            PI0_TRY(dataset_stats(job, err));
    }
    bool layout_03 = job->checkpoint && job->checkpoint->layout == PI0_LAYOUT_LEROBOT_03;
    bool old = !steps && !json_object_get(config, "image_resolution") &&
               (layout_03 || buffers || json_object_get(config, "resize_imgs_with_padding"));
    if (old)
        return fill_03(job, config, err);
    return fill_04(job, config, newer_steps || has_newer_members(config), err);
}
