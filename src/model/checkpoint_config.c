#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint.h"

void pi0_checkpoint_warn(struct pi0_name_map *names, const pi0_log *log, const char *text, ...)
{
    char line[512];
    va_list args;
    va_start(args, text);
    vsnprintf(line, sizeof line, text, args);
    va_end(args);
    pi0_log_warning(log, "%s", line);
    if (names)
        json_array_append_new(names->warnings, pi0_json_words(line)); /* a lost line of inspect is no reason to refuse the model */
}

/* ------------------------------------------------------------------ the keys that LeRobot and openpi's converter write */

typedef enum kind { INTEGER, NUMBER, BOOLEAN, TEXT, LIST, OBJECT, ANY } kind;

static const char *const KIND_NAMES[] = {"integer", "number", "true or false", "text", "list", "object", "anything"};

static const struct {
    const char *key;
    kind kind;
    bool nullable;
} KEYS[] = {
    {"type", TEXT, false},
    {"n_obs_steps", INTEGER, false},
    {"input_features", OBJECT, true},
    {"output_features", OBJECT, true},
    {"normalization_mapping", OBJECT, false},
    {"chunk_size", INTEGER, false},
    {"n_action_steps", INTEGER, false},
    {"max_state_dim", INTEGER, false},
    {"max_action_dim", INTEGER, false},
    {"num_inference_steps", INTEGER, false},
    {"num_steps", INTEGER, false},
    {"min_period", NUMBER, false},
    {"max_period", NUMBER, false},
    {"image_resolution", LIST, false},
    {"resize_imgs_with_padding", LIST, true},
    {"empty_cameras", INTEGER, false},
    {"tokenizer_max_length", INTEGER, false},
    {"proj_width", INTEGER, false},
    {"adapt_to_pi_aloha", BOOLEAN, false},
    {"use_delta_joint_actions_aloha", BOOLEAN, false},
    {"use_relative_actions", BOOLEAN, false},
    {"relative_exclude_joints", LIST, true},
    {"action_feature_names", LIST, true},
    {"paligemma_variant", TEXT, false},
    {"action_expert_variant", TEXT, false},
    {"dtype", TEXT, false},
    {"use_peft", BOOLEAN, false},
    {"use_visual_memory", BOOLEAN, false},
    {"use_proprioceptive_memory", BOOLEAN, false},
    {"rtc_config", OBJECT, true},
    {"rtc_training_max_delay", INTEGER, false},
    /* openpi's converter */
    {"action_dim", INTEGER, false},
    {"action_horizon", INTEGER, false},
    {"precision", TEXT, false},
    /* known, and without meaning for inference */
    {"device", ANY, true},
    {"use_amp", ANY, true},
    {"push_to_hub", ANY, true},
    {"repo_id", ANY, true},
    {"private", ANY, true},
    {"tags", ANY, true},
    {"license", ANY, true},
    {"pretrained_path", ANY, true},
    {"pretrained_revision", ANY, true},
    {"use_cache", ANY, true},
    {"attention_implementation", ANY, true},
    {"time_sampling_beta_alpha", ANY, true},
    {"time_sampling_beta_beta", ANY, true},
    {"time_sampling_scale", ANY, true},
    {"time_sampling_offset", ANY, true},
    {"gradient_checkpointing", ANY, true},
    {"compile_model", ANY, true},
    {"compile_mode", ANY, true},
    {"freeze_vision_encoder", ANY, true},
    {"train_expert_only", ANY, true},
    {"train_state_proj", ANY, true},
    {"memory_temporal_attention_every", ANY, true},
    {"memory_stride", ANY, true},
    {"memory_frames", ANY, true},
};

static bool is_kind(const json_t *value, kind wanted)
{
    switch (wanted) {
    case INTEGER:
        return json_is_integer(value);
    case NUMBER:
        return json_is_number(value);
    case BOOLEAN:
        return json_is_boolean(value);
    case TEXT:
        return json_is_string(value);
    case LIST:
        return json_is_array(value);
    case OBJECT:
        return json_is_object(value);
    case ANY:
        break;
    }
    return true;
}

static pi0_status check_types(const json_t *config, const char *where, const pi0_log *log, pi0_error *err)
{
    pi0_status status = PI0_OK;
    const char *key;
    json_t *value;
    char unknown[400] = "";
    json_object_foreach((json_t *)config, key, value)
    {
        size_t i = 0, n = sizeof KEYS / sizeof KEYS[0];
        while (i < n && strcmp(KEYS[i].key, key) != 0)
            i++;
        if (i == n) {
            bool training = strncmp(key, "optimizer_", 10) == 0 || strncmp(key, "scheduler_", 10) == 0;
            size_t used = strlen(unknown);
            if (!training)
                snprintf(unknown + used, sizeof unknown - used, "%s%s", used ? ", " : "", key);
            continue;
        }
        if (is_kind(value, KEYS[i].kind) || (KEYS[i].nullable && json_is_null(value)))
            continue;
        if (status == PI0_OK) {
            status = pi0_fail(err, PI0_ERR_FORMAT, "config.json holds a value of the wrong type");
            pi0_err_where(err, "%s", where);
        }
        pi0_err_item(err, "%s: expected %s, got %s", key, KIND_NAMES[KEYS[i].kind], pi0_json_type_name(value));
    }
    if (unknown[0])
        pi0_log_info(log, "config.json: fields that mean nothing here: %s", unknown);
    return status;
}

/* ------------------------------------------------------------------ which model it says it is */

static pi0_status refuse_fast(const char *where, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_UNSUPPORTED, "this is a pi0-FAST model, which this version does not run");
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "pi0 or pi05: flow-matching models with an action expert");
    pi0_err_hint(err, "use a pi0 or pi05 checkpoint of the same robot");
    return PI0_ERR_UNSUPPORTED;
}

static pi0_status read_type(const json_t *config, const char *where, pi0_said *out, pi0_error *err)
{
    const char *key = "type", *type = json_string_value(json_object_get(config, "type"));
    if (!type) { /* Hugging Face models of other kinds name themselves so */
        key = "model_type";
        type = json_string_value(json_object_get(config, key));
    }
    *out = PI0_SAID_NOTHING;
    if (!type)
        return PI0_OK;
    if (strcmp(type, "pi0_fast") == 0 || strcmp(type, "pi0fast") == 0)
        return refuse_fast(where, err);
    if (strcmp(type, "pi0") == 0 || strcmp(type, "pi05") == 0) {
        *out = type[3] ? PI0_SAID_PI05 : PI0_SAID_PI0;
        return PI0_OK;
    }
    pi0_fail(err, PI0_ERR_UNSUPPORTED, "this checkpoint is of another kind of policy: %s", type);
    pi0_err_where(err, "%s, key \"%s\"", where, key);
    pi0_err_expected(err, "\"pi0\" or \"pi05\"");
    pi0_err_got(err, "\"%s\"", type);
    pi0_err_hint(err, "pi0.c runs pi0 and pi0.5 only");
    return PI0_ERR_UNSUPPORTED;
}

pi0_status pi0_config_check(const json_t *config, const char *where, const pi0_log *log, pi0_said *out, pi0_error *err)
{
    if (!json_is_object(config)) {
        pi0_fail(err, PI0_ERR_FORMAT, "config.json is no object");
        pi0_err_where(err, "%s", where);
        pi0_err_got(err, "%s", pi0_json_type_name(config));
        return PI0_ERR_FORMAT;
    }
    PI0_TRY(read_type(config, where, out, err));
    PI0_TRY(check_types(config, where, log, err));
    if (json_is_true(json_object_get(config, "use_peft")))
        return pi0_refuse_adapter(where, err);
    const char *memory[] = {"use_visual_memory", "use_proprioceptive_memory"};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (json_is_true(json_object_get(config, memory[i]))) {
            pi0_fail(err, PI0_ERR_UNSUPPORTED, "this is a MEM model (pi05 with memory), which this version does not run");
            pi0_err_where(err, "%s, key \"%s\"", where, memory[i]);
            pi0_err_expected(err, "false");
            pi0_err_hint(err, "use a pi05 checkpoint without memory");
            return PI0_ERR_UNSUPPORTED;
        }
    return PI0_OK;
}

pi0_status pi0_config_name_check(const char *config_name, pi0_said *out, pi0_error *err)
{
    *out = PI0_SAID_NOTHING;
    if (!config_name)
        return PI0_OK;
    if (strncmp(config_name, "pi0_fast", 8) == 0)
        return refuse_fast("the config named", err);
    if (strncmp(config_name, "pi05_", 5) == 0)
        *out = PI0_SAID_PI05;
    else if (strncmp(config_name, "pi0_", 4) == 0)
        *out = PI0_SAID_PI0;
    return PI0_OK;
}

bool pi0_config_is_old(const json_t *config)
{
    static const char *const keys[] = {"resize_imgs_with_padding", "proj_width", "num_steps", "adapt_to_pi_aloha", "train_state_proj"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (json_object_get(config, keys[i]))
            return true;
    return false;
}

/* ------------------------------------------------------------------ variant names (openpi models/gemma.py) */

static const struct {
    const char *name;
    pi0_gemma_arch arch;
} VARIANTS[] = {
    {"dummy", {64, 4, 128, 8, 1, 16}},
    {"gemma_300m", {1024, 18, 4096, 8, 1, 256}},
    {"gemma_300m_lora", {1024, 18, 4096, 8, 1, 256}},
    {"gemma_2b", {2048, 18, 16384, 8, 1, 256}},
    {"gemma_2b_lora", {2048, 18, 16384, 8, 1, 256}},
};

static void compare_variant(const json_t *config, const char *key, const pi0_gemma_arch *have, const pi0_log *log,
                            struct pi0_name_map *names)
{
    const char *name = json_string_value(json_object_get(config, key));
    const pi0_gemma_arch *said = NULL;
    for (size_t i = 0; name && i < sizeof VARIANTS / sizeof VARIANTS[0]; i++)
        if (strcmp(VARIANTS[i].name, name) == 0)
            said = &VARIANTS[i].arch;
    if (said && memcmp(said, have, sizeof *said) != 0)
        pi0_checkpoint_warn(
            names, log,
            "config.json says %s = %s (width %d, depth %d, MLP %d, %d x %d), the tensors say width %d, depth %d, MLP %d, %d x %d: "
            "the tensors are followed",
            key, name, said->width, said->depth, said->mlp, said->heads, said->head_dim, have->width, have->depth, have->mlp, have->heads,
            have->head_dim);
}

static void compare_width(const json_t *config, const char *key, int have, const char *tensor, const pi0_log *log,
                          struct pi0_name_map *names)
{
    const json_t *said = json_object_get(config, key);
    if (said && json_integer_value(said) != have)
        pi0_checkpoint_warn(names, log, "config.json says %s = %lld, %s says %d: the tensors are followed", key,
                            (long long)json_integer_value(said), tensor, have);
}

void pi0_config_compare(const json_t *config, const pi0_arch *arch, const pi0_log *log, struct pi0_name_map *names)
{
    compare_variant(config, "paligemma_variant", &arch->prefix, log, names);
    compare_variant(config, "action_expert_variant", &arch->expert, log, names);
    compare_width(config, "max_action_dim", arch->action_dim, "action_in_proj", log, names);
    compare_width(config, "action_dim", arch->action_dim, "action_in_proj", log, names);
    if (!arch->pi05) /* pi05 has no tensor as wide as its state */
        compare_width(config, "max_state_dim", arch->action_dim, "state_proj", log, names);
    compare_width(config, "proj_width", arch->expert.width, "action_in_proj", log, names);
}
