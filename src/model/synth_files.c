#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "model/synth.h"

pi0_status pi0_synth_write_json(const char *dir, const char *name, json_t *value, int indent, pi0_error *err)
{
    char *path = pi0_path_join(dir, name);
    /* 9 digits carry every number here: they have at most 6 decimals */
    char *text = pi0_json_text(value, JSON_INDENT((size_t)indent) | JSON_REAL_PRECISION(9));
    pi0_status status = path && text ? pi0_file_write(path, text, strlen(text), err) : pi0_fail_memory(err, 0, name);
    pi0_text_free(&text);
    json_decref(value);
    pi0_free(path);
    return status;
}

/* ------------------------------------------------------------------ statistics: whole millionths, so that no rounding can differ */

const char *const pi0_synth_stat_names[PI0_SYNTH_STATS] = {"mean", "std", "q01", "q99", "min", "max", "q10", "q50", "q90", "count"};

void pi0_synth_make_stats(pi0_synth_plan *plan)
{
    for (int which = 0; which < 2; which++) {
        uint64_t seed = pi0_mix64(pi0_mix64(plan->seed) ^ pi0_fnv1a(which ? "action" : "observation.state"));
        int dims = which ? plan->action_dim : plan->state_dim;
        for (int i = 0; i < dims; i++) {
            uint64_t at = 4 * (uint64_t)i;
            int64_t mean = (int64_t)(pi0_random_word(seed, at) % 700001) - 350000;
            int64_t std = 80000 + (int64_t)(pi0_random_word(seed, at + 1) % 500001);
            int64_t low = mean - std * (1700 + (int64_t)(pi0_random_word(seed, at + 2) % 1000)) / 1000;
            int64_t high = mean + std * (1500 + (int64_t)(pi0_random_word(seed, at + 3) % 1000)) / 1000;
            int64_t all[] = {mean, std, low, high, low - std / 4, high + std / 4, mean - std * 6 / 5, mean, mean + std * 6 / 5};
            for (size_t stat = 0; stat < sizeof all / sizeof all[0]; stat++)
                plan->stats[which][stat][i] = (double)all[stat] / 1e6;
        }
        plan->stats[which][9][0] = 54321;
    }
}

/* ------------------------------------------------------------------ openpi */

static json_t *stats_object(const pi0_synth_plan *plan, int which)
{
    json_t *out = json_object();
    for (int stat = 0; stat < 4; stat++) {
        json_t *list = json_array();
        for (int i = 0; i < (which ? plan->action_dim : plan->state_dim); i++)
            json_array_append_new(list, json_real(plan->stats[which][stat][i]));
        json_object_set_new(out, pi0_synth_stat_names[stat], list);
    }
    return out;
}

static pi0_status make_dirs(const char *dir, const char *below, pi0_error *err)
{
    char *path = pi0_path_join(dir, below);
    if (!path)
        return pi0_fail_memory(err, strlen(dir), "a path");
    for (char *slash = path + strlen(dir) + 1; *slash; slash++) {
        if (*slash != '/')
            continue;
        *slash = '\0';
        mkdir(path, 0777); /* one that cannot be made shows at the last */
        *slash = '/';
    }
    pi0_status status = mkdir(path, 0777) == 0 ? PI0_OK : pi0_fail_errno(err, "create a directory", path);
    pi0_free(path);
    return status;
}

static pi0_status write_openpi(const pi0_synth_plan *plan, const char *dir, pi0_error *err)
{
    char assets[128];
    json_t *config = json_pack("{s:i,s:i,s:s,s:s,s:s}", "action_dim", plan->arch.action_dim, "action_horizon", plan->horizon,
                               "paligemma_variant", plan->variant[0], "action_expert_variant", plan->variant[1], "precision",
                               plan->dtype == PI0_BF16 ? "bfloat16" : "float32");
    PI0_TRY(pi0_synth_write_json(dir, "config.json", config, 2, err));
    snprintf(assets, sizeof assets, "assets/%s", plan->asset);
    PI0_TRY(make_dirs(dir, assets, err));
    snprintf(assets, sizeof assets, "assets/%s/norm_stats.json", plan->asset);
    json_t *stats = json_pack("{s:{s:o,s:o}}", "norm_stats", "state", stats_object(plan, 0), "actions", stats_object(plan, 1));
    return pi0_synth_write_json(dir, assets, stats, 2, err);
}

/* ------------------------------------------------------------------ LeRobot */

static const char *const CAMERAS[PI0_MAX_CAMERAS] = {"observation.images.base_0_rgb", "observation.images.left_wrist_0_rgb",
                                                     "observation.images.right_wrist_0_rgb", "observation.images.base_1_rgb"};

static json_t *feature(const char *type, int dim)
{
    return json_pack("{s:s,s:[i]}", "type", type, "shape", dim);
}

static json_t *features(const pi0_synth_plan *plan, bool inputs, bool outputs)
{
    json_t *out = json_object();
    int side = plan->arch.vision.side;
    for (int i = 0; inputs && i < plan->cameras; i++)
        json_object_set_new(out, CAMERAS[i], json_pack("{s:s,s:[i,i,i]}", "type", "VISUAL", "shape", 3, side, side));
    if (inputs)
        json_object_set_new(out, "observation.state", feature("STATE", plan->state_dim));
    if (outputs)
        json_object_set_new(out, "action", feature("ACTION", plan->action_dim));
    return out;
}

static json_t *norm_map(const pi0_synth_plan *plan)
{
    const char *kind = plan->arch.pi05 ? "QUANTILES" : "MEAN_STD";
    return json_pack("{s:s,s:s,s:s}", "VISUAL", "IDENTITY", "STATE", kind, "ACTION", kind);
}

static json_t *config_common(const pi0_synth_plan *plan)
{
    return json_pack("{s:s,s:i,s:o,s:o,s:s,s:b,s:o,s:i,s:i,s:i,s:i,s:i,s:i}", "type", plan->arch.pi05 ? "pi05" : "pi0", "n_obs_steps", 1,
                     "input_features", features(plan, true, false), "output_features", features(plan, false, true), "device", "cpu",
                     "use_amp", 0, "normalization_mapping", norm_map(plan), "chunk_size", plan->horizon, "n_action_steps", plan->horizon,
                     "max_state_dim", plan->arch.action_dim, "max_action_dim", plan->arch.action_dim, "empty_cameras", 0,
                     "tokenizer_max_length", plan->arch.pi05 ? 200 : 48);
}

static json_t *config_now(const pi0_synth_plan *plan)
{
    json_t *config = config_common(plan);
    int side = plan->arch.vision.side;
    json_t *more =
        json_pack("{s:b,s:s,s:s,s:s,s:i,s:f,s:f,s:b,s:[s],s:n,s:n,s:[i,i]}", "use_peft", 0, "paligemma_variant", plan->variant[0],
                  "action_expert_variant", plan->variant[1], "dtype", plan->dtype == PI0_BF16 ? "bfloat16" : "float32",
                  "num_inference_steps", 10, "min_period", 0.004, "max_period", 4.0, "use_relative_actions", 0, "relative_exclude_joints",
                  "gripper", "action_feature_names", "rtc_config", "image_resolution", side, side);
    if (!config || !more || json_object_update(config, more) != 0) {
        json_decref(config);
        config = NULL;
    }
    json_decref(more);
    return config;
}

static json_t *config_03(const pi0_synth_plan *plan)
{
    json_t *config = config_common(plan);
    int side = plan->arch.vision.side;
    json_t *more =
        json_pack("{s:[i,i],s:b,s:b,s:i,s:i,s:b,s:s,s:b,s:b,s:b}", "resize_imgs_with_padding", side, side, "adapt_to_pi_aloha", 0,
                  "use_delta_joint_actions_aloha", 0, "proj_width", plan->arch.expert.width, "num_steps", 10, "use_cache", 1,
                  "attention_implementation", "eager", "freeze_vision_encoder", 1, "train_expert_only", 0, "train_state_proj", 1);
    if (!config || !more || json_object_update(config, more) != 0) {
        json_decref(config);
        config = NULL;
    }
    json_decref(more);
    return config;
}

static json_t *step(const char *name, json_t *config)
{
    return json_pack("{s:s,s:o}", "registry_name", name, "config", config);
}

static json_t *norm_step(const pi0_synth_plan *plan, bool inputs, const char *state_file)
{
    return json_pack("{s:s,s:{s:f,s:o,s:o},s:s}", "registry_name", inputs ? "normalizer_processor" : "unnormalizer_processor", "config",
                     "eps", 1e-8, "features", features(plan, inputs, true), "norm_map", norm_map(plan), "state_file", state_file);
}

static json_t *device_step(void)
{
    return step("device_processor", json_pack("{s:s,s:n}", "device", "cpu", "float_dtype"));
}

static json_t *relative_step(void)
{
    return step("relative_actions_processor", json_pack("{s:b,s:[s],s:n}", "enabled", 0, "exclude_joints", "gripper", "action_names"));
}

static json_t *tokenize_step(const pi0_synth_plan *plan)
{
    return step("tokenizer_processor",
                json_pack("{s:i,s:s,s:s,s:s,s:b,s:s}", "max_length", plan->arch.pi05 ? 200 : 48, "task_key", "task", "padding_side",
                          "right", "padding", "max_length", "truncation", 1, "tokenizer_name", "google/paligemma-3b-pt-224"));
}

/* json_pack refuses a NULL for "o", so a step that could not be made makes the whole NULL. */
static json_t *preprocessor(const pi0_synth_plan *plan, const char *state_file)
{
    json_t *rename = step("rename_observations_processor", json_pack("{s:{}}", "rename_map"));
    json_t *batch = step("to_batch_processor", json_object());
    if (plan->arch.pi05)
        return json_pack("{s:s,s:[o,o,o,o,o,o,o]}", "name", "policy_preprocessor", "steps", rename, batch, relative_step(),
                         norm_step(plan, true, state_file), step("pi05_prepare_state_tokenizer_processor_step", json_object()),
                         tokenize_step(plan), device_step());
    return json_pack("{s:s,s:[o,o,o,o,o,o,o]}", "name", "policy_preprocessor", "steps", rename, batch,
                     step("pi0_new_line_processor", json_object()), tokenize_step(plan), device_step(), relative_step(),
                     norm_step(plan, true, state_file));
}

static json_t *postprocessor(const pi0_synth_plan *plan, const char *state_file)
{
    return json_pack("{s:s,s:[o,o,o]}", "name", "policy_postprocessor", "steps", norm_step(plan, false, state_file),
                     step("absolute_actions_processor", json_pack("{s:b}", "enabled", 0)), device_step());
}

static pi0_status write_state_file(const pi0_synth_plan *plan, const char *dir, const char *name, pi0_error *err)
{
    pi0_status status = PI0_OK;
    pi0_safetensors_writer writer = {0};
    pi0_tensor_view views[2 * PI0_SYNTH_STATS] = {0};
    char names[2 * PI0_SYNTH_STATS][64];
    char *path = pi0_path_join(dir, name);
    if (!path)
        return pi0_fail_memory(err, strlen(dir), "a path");
    for (int i = 0; i < 2 * PI0_SYNTH_STATS; i++) {
        int which = i / PI0_SYNTH_STATS, stat = i % PI0_SYNTH_STATS;
        snprintf(names[i], sizeof names[i], "%s.%s", which ? "action" : "observation.state", pi0_synth_stat_names[stat]);
        views[i] = (pi0_tensor_view){.name = names[i], .dtype = PI0_F32, .rank = 1};
        views[i].shape[0] = stat == 9 ? 1 : which ? plan->action_dim : plan->state_dim;
    }
    PI0_TRY_GOTO(pi0_safetensors_create(&writer, path, views, 2 * PI0_SYNTH_STATS, NULL, err));
    for (int i = 0; i < 2 * PI0_SYNTH_STATS; i++) {
        float values[PI0_MAX_DIM];
        for (int64_t j = 0; j < views[i].shape[0]; j++)
            values[j] = (float)plan->stats[i / PI0_SYNTH_STATS][i % PI0_SYNTH_STATS][j];
        PI0_TRY_GOTO(pi0_safetensors_put(&writer, values, (size_t)views[i].shape[0] * sizeof *values, err));
    }
    PI0_TRY_GOTO(pi0_safetensors_finish(&writer, err));
    pi0_free(path);
    return PI0_OK;
fail:
    pi0_safetensors_abort(&writer);
    pi0_free(path);
    return status;
}

static pi0_status write_lerobot(const pi0_synth_plan *plan, const char *dir, pi0_error *err)
{
    const char *pre = plan->arch.pi05 ? "policy_preprocessor_step_3_normalizer_processor.safetensors"
                                      : "policy_preprocessor_step_6_normalizer_processor.safetensors";
    const char *post = "policy_postprocessor_step_0_unnormalizer_processor.safetensors";
    PI0_TRY(pi0_synth_write_json(dir, "config.json", config_now(plan), 4, err));
    PI0_TRY(pi0_synth_write_json(dir, "policy_preprocessor.json", preprocessor(plan, pre), 2, err));
    PI0_TRY(pi0_synth_write_json(dir, "policy_postprocessor.json", postprocessor(plan, post), 2, err));
    PI0_TRY(write_state_file(plan, dir, pre, err));
    return write_state_file(plan, dir, post, err);
}

pi0_status pi0_synth_write_files(const pi0_synth_plan *plan, const char *dir, pi0_error *err)
{
    if (plan->layout == PI0_LAYOUT_OPENPI)
        return write_openpi(plan, dir, err);
    if (plan->layout == PI0_LAYOUT_LEROBOT)
        return write_lerobot(plan, dir, err);
    return pi0_synth_write_json(dir, "config.json", config_03(plan), 4, err);
}
