/* Recipes from LeRobot's files: config.json, the processors, the three dialects. */
#include "recipe_fixture.h"

/* ------------------------------------------------------------------ directories made on the spot */

static json_t *read_json(const char *path)
{
    json_t *root = json_load_file(path, 0, NULL);
    if (!root)
        fail_msg("%s is not JSON", path);
    return root;
}

/* A copy of a LeRobot directory of tests/data/recipe, to be edited. */
typedef struct lerobot_dir {
    char *path;
    json_t *config, *pre, *post;
    json_t *pre_steps, *post_steps; /* borrowed */
} lerobot_dir;

static void copy_file(const char *from_dir, const char *to_dir, const char *name)
{
    size_t bytes;
    void *data = pi0_test_read_file(pi0_test_path(from_dir, name), &bytes);
    pi0_test_write_file(pi0_test_path(to_dir, name), data, bytes);
    free(data);
}

static void lerobot_copy(lerobot_dir *d, const char *name)
{
    char from[512], file[128];
    snprintf(file, sizeof file, "recipe/%s", name);
    snprintf(from, sizeof from, "%s", pi0_test_data(file));
    *d = (lerobot_dir){.path = pi0_test_make_dir()};
    d->config = read_json(pi0_test_path(from, "config.json"));
    d->pre = read_json(pi0_test_path(from, "policy_preprocessor.json"));
    d->post = read_json(pi0_test_path(from, "policy_postprocessor.json"));
    d->pre_steps = json_object_get(d->pre, "steps");
    d->post_steps = json_object_get(d->post, "steps");
    bool pi05 = strcmp(json_string_value(json_object_get(d->config, "type")), "pi05") == 0;
    snprintf(file, sizeof file, "policy_preprocessor_step_%d_normalizer_processor.safetensors", pi05 ? 3 : 6);
    copy_file(from, d->path, file);
    copy_file(from, d->path, "policy_postprocessor_step_0_unnormalizer_processor.safetensors");
}

static void lerobot_write(const lerobot_dir *d)
{
    assert_int_equal(json_dump_file(d->config, pi0_test_path(d->path, "config.json"), 0), 0);
    if (d->pre)
        assert_int_equal(json_dump_file(d->pre, pi0_test_path(d->path, "policy_preprocessor.json"), 0), 0);
    if (d->post)
        assert_int_equal(json_dump_file(d->post, pi0_test_path(d->path, "policy_postprocessor.json"), 0), 0);
}

static void lerobot_drop(lerobot_dir *d)
{
    json_decref(d->config);
    json_decref(d->pre);
    json_decref(d->post);
    pi0_test_remove_dir(d->path);
}

static json_t *step_of(json_t *steps, const char *name)
{
    for (size_t i = 0; i < json_array_size(steps); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(steps, i), "registry_name")), name) == 0)
            return json_array_get(steps, i);
    fail_msg("no step %s", name);
    return NULL;
}

static void remove_step(json_t *steps, const char *name)
{
    for (size_t i = 0; i < json_array_size(steps); i++)
        if (json_array_get(steps, i) == step_of(steps, name)) {
            json_array_remove(steps, i);
            return;
        }
}

static json_t *config_of(json_t *steps, const char *name)
{
    return json_object_get(step_of(steps, name), "config");
}

/* What 0.4 and 0.5.0 wrote: nothing of relative actions. */
static void make_undated(lerobot_dir *d)
{
    static const char *const later[] = {"use_relative_actions", "relative_exclude_joints", "action_feature_names"};
    for (size_t i = 0; i < 3; i++)
        json_object_del(d->config, later[i]);
    remove_step(d->pre_steps, "relative_actions_processor");
    remove_step(d->post_steps, "absolute_actions_processor");
    json_t *normalizer = step_of(d->pre_steps, "normalizer_processor");
    const char *name = json_string_value(json_object_get(normalizer, "state_file"));
    char from[600];
    snprintf(from, sizeof from, "%s", pi0_test_path(d->path, name));
    assert_int_equal(rename(from, pi0_test_path(d->path, "policy_preprocessor_step_5_normalizer_processor.safetensors")), 0);
    json_object_set_new(normalizer, "state_file", json_string("policy_preprocessor_step_5_normalizer_processor.safetensors"));
}

static pi0_status lerobot_load(fixture *f, lerobot_dir *d)
{
    lerobot_write(d);
    bool pi05 = strcmp(json_string_value(json_object_get(d->config, "type")), "pi05") == 0;
    fixture_open(f, d->path, PI0_LAYOUT_LEROBOT, pi05);
    return fixture_load(f);
}

static void lerobot_expect(lerobot_dir *d, pi0_status status, const char *a, const char *b)
{
    fixture f;
    assert_int_equal(lerobot_load(&f, d), status);
    pi0_test_assert_error(&f.err, status, a, b, NULL);
    fixture_close(&f);
    lerobot_drop(d);
}

/* ------------------------------------------------------------------ LeRobot */

static void lerobot_origins(void **unused)
{
    (void)unused;
    golden g;
    golden_open(&g, "lerobot_pi05_rename");
    assert_origin(&g.f, "action.horizon", "config.json: chunk_size");
    assert_origin(&g.f, "norm.state", "policy_preprocessor.json: steps[3] normalizer_processor.norm_map.STATE");
    assert_origin(&g.f, "cameras", "rename_map");
    assert_origin(&g.f, "image.resize", "rule: ");
    assert_field(&g.f, "norm.state", "mean_std");
    assert_field(&g.f, "norm.epsilon", "1e-8");
    int slot = -1;
    static const char *const names[] = {"observation.images.front", "front", "image", "observation.images.image"};
    for (int i = 0; i < 4; i++) {
        PI0_ASSERT_OK(pi0_recipe_camera(g.f.recipe, names[i], &slot, &g.f.err), &g.f.err);
        assert_int_equal(slot, 0);
    }
    golden_close(&g);
}

static void C7_unknown_camera_names_list_both_sets(void **unused)
{
    (void)unused;
    golden g;
    int slot;
    golden_open(&g, "lerobot_pi0_empty_camera");
    assert_int_equal(pi0_recipe_camera(g.f.recipe, "top", &slot, &g.f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&g.f.err, PI0_ERR_ARGUMENT, "top", "observation.images.image2", NULL);
    assert_int_equal(pi0_recipe_camera(g.f.recipe, "empty_camera_0", &slot, &g.f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&g.f.err, PI0_ERR_ARGUMENT, "empty camera", NULL);
    golden_close(&g);
}

static void camera_names_that_fit_two_slots_are_refused(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    int slot = -1;
    lerobot_copy(&d, "lerobot_pi0_Q_empty");
    json_t *map = json_object_get(config_of(d.pre_steps, "rename_observations_processor"), "rename_map");
    json_object_set_new(map, "observation.images.image", json_string("observation.images.image2"));
    json_object_set_new(map, "observation.images.image2", json_string("observation.images.image"));
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    PI0_ASSERT_OK(pi0_recipe_camera(f.recipe, "observation.images.image", &slot, &f.err), &f.err);
    assert_int_equal(slot, 1);
    assert_int_equal(pi0_recipe_camera(f.recipe, "image", &slot, &f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "two cameras", NULL);
    fixture_close(&f);
    lerobot_drop(&d);
}

static void camera_order_is_that_of_the_file(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_t *features = json_object_get(d.config, "input_features"), *ordered = json_object();
    static const char *const order[] = {"observation.images.right_wrist_0_rgb", "observation.state", "observation.images.base_0_rgb",
                                        "observation.images.left_wrist_0_rgb"};
    for (int i = 0; i < 4; i++)
        json_object_set(ordered, order[i], json_object_get(features, order[i]));
    json_object_set_new(d.config, "input_features", ordered);
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    assert_string_equal(pi0_recipe_get_facts(f.recipe)->slots[0], "right_wrist_0_rgb");
    assert_string_equal(pi0_recipe_get_facts(f.recipe)->slots[1], "base_0_rgb");
    assert_false(pi0_recipe_get_facts(f.recipe)->required[0]);
    fixture_close(&f);
    lerobot_drop(&d);
}

static void empty_cameras_are_appended(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi0_Q_empty");
    json_object_del(json_object_get(d.config, "input_features"), "observation.images.empty_camera_0");
    json_object_set_new(d.config, "empty_cameras", json_integer(2));
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    const pi0_recipe_facts *facts = pi0_recipe_get_facts(f.recipe);
    assert_int_equal(facts->n_slots, 4);
    assert_true(!facts->empty[1] && facts->empty[2] && facts->empty[3]);
    assert_string_equal(facts->slots[3], "empty_camera_1");
    assert_string_equal(facts->keys[3], "");
    fixture_close(&f);
    json_object_set_new(d.config, "empty_cameras", json_integer(3));
    lerobot_expect(&d, PI0_ERR_UNSUPPORTED, "too many cameras", "at most 4");
}

static void switches_that_lerobot_does_not_run_are_refused(void **unused)
{
    (void)unused;
    lerobot_dir d;
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_object_set_new(d.config, "use_delta_joint_actions_aloha", json_true());
    lerobot_expect(&d, PI0_ERR_UNSUPPORTED, "use_delta_joint_actions_aloha", "itself");
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_object_set_new(d.config, "n_obs_steps", json_integer(2));
    lerobot_expect(&d, PI0_ERR_UNSUPPORTED, "n_obs_steps", "LeRobot writes 1");
}

static void A3_config_against_tensors(void **unused)
{
    (void)unused;
    fixture f;
    fixture_open(&f, pi0_test_data("recipe/lerobot_pi0_Q"), PI0_LAYOUT_LEROBOT, true);
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "config.json: type", "pi05", NULL);
    fixture_close(&f);
}

static void A7_widths_beyond_the_weights(void **unused)
{
    (void)unused;
    fixture f;
    fixture_open(&f, pi0_test_data("recipe/lerobot_pi0_Q"), PI0_LAYOUT_LEROBOT, false);
    f.checkpoint.arch.action_dim = 8;
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    assert_null(strstr(f.err.hint, "--set")); /* fewer dims would not fit the statistics */
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "action.dim", "14", "of one model", NULL);
    f.checkpoint.arch.action_dim = 14;
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    f.checkpoint.arch.vision.side = 448;
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "image.size", "config.json", "--set image.size=448", NULL);
    fixture_set(&f, "image.size=448");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    fixture_close(&f);
}

/* ------------------------------------------------------------------ dialects */

static void an_undated_pi05_is_a_question(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi05_P_bare");
    make_undated(&d);
    assert_int_equal(lerobot_load(&f, &d), PI0_ERR_MODEL);
    assert_non_null(strstr(f.err.list, "torch-lerobot04"));
    assert_non_null(strstr(f.err.list, "prompt.state_pad"));
    pi0_error_clear(&f.err);

    json_t *problems = json_array(); /* inspect goes on */
    PI0_ASSERT_OK(pi0_recipe_load(&f.checkpoint, &f.options, &f.log, problems, &f.recipe, &f.err), &f.err);
    assert_int_equal(json_array_size(problems), 2);
    json_decref(problems);

    fixture_set(&f, "image.resize=torch-lerobot04");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_field(&f, "prompt.state_pad", "32");
    assert_origin(&f, "prompt.state_pad", "rule: ");
    fixture_set(&f, "prompt.state_pad=0");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_field(&f, "prompt.state_pad", "0");
    f.options.n_set = 0;
    fixture_set(&f, "prompt.state_pad=0");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_field(&f, "image.resize", "torch");
    fixture_close(&f);

    json_object_set_new(d.config, "use_relative_actions", json_false()); /* 0.5.1 or later */
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    assert_field(&f, "image.resize", "torch");
    assert_field(&f, "prompt.state_pad", "0");
    fixture_close(&f);
    lerobot_drop(&d);
}

static void an_undated_pi0_asks_for_the_letterbox_only(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi0_Q");
    make_undated(&d);
    assert_int_equal(lerobot_load(&f, &d), PI0_ERR_MODEL);
    assert_null(strstr(f.err.list, "state_pad"));
    fixture_set(&f, "image.resize=torch");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    fixture_close(&f);
    json_object_set_new(step_of(d.pre_steps, "tokenizer_processor"), "artifacts", json_object());
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    fixture_close(&f);
    lerobot_drop(&d);
}

static void the_schedule_follows_the_release_that_saved_the_file(void **unused)
{
    (void)unused;
    static const struct {
        const char *without[2], *schedule, *origin;
    } rows[] = {{{NULL}, "f64", "since 0.4.3"},
                {{"use_peft"}, "f32", "0.4.0 to 0.4.2"},
                {{"use_peft", "compile_model"}, "f64", "do not tell"}}; /* not a file that LeRobot wrote whole */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        lerobot_dir d;
        fixture f;
        lerobot_copy(&d, "lerobot_pi05_P_bare");
        make_undated(&d);
        for (int k = 0; k < 2 && rows[i].without[k]; k++)
            json_object_del(d.config, rows[i].without[k]);
        assert_int_equal(lerobot_load(&f, &d), PI0_ERR_MODEL);
        assert_int_equal(strstr(f.err.list, "saved by 0.4.0 to 0.4.2") != NULL, strcmp(rows[i].schedule, "f32") == 0);
        fixture_set(&f, "image.resize=torch-lerobot04");
        PI0_ASSERT_OK(fixture_load(&f), &f.err);
        assert_field(&f, "time.schedule", rows[i].schedule);
        assert_origin(&f, "time.schedule", rows[i].origin);
        fixture_close(&f);
        lerobot_drop(&d);
    }
}

static void write_buffers(const char *path, bool set)
{
    static const char *const names[4] = {"normalize_inputs.buffer_observation_state.mean", "normalize_inputs.buffer_observation_state.std",
                                         "unnormalize_outputs.buffer_action.mean", "unnormalize_outputs.buffer_action.std"};
    pi0_tensor_view views[4];
    float data[4][14];
    pi0_error err = {0};
    for (int t = 0; t < 4; t++) {
        for (int i = 0; i < 14; i++)
            data[t][i] = set ? (float)(t + 1) : INFINITY;
        views[t] =
            (pi0_tensor_view){.name = names[t], .dtype = PI0_F32, .rank = 1, .shape = {14}, .data = data[t], .bytes = sizeof data[t]};
    }
    pi0_safetensors_writer writer;
    PI0_ASSERT_OK(pi0_safetensors_create(&writer, path, views, 4, NULL, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_put(&writer, data, sizeof data, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_finish(&writer, &err), &err);
}

static const char config_03[] =
    "{\"type\": \"pi0\", \"n_obs_steps\": 1, \"chunk_size\": 50, \"n_action_steps\": 40, \"num_steps\": 7, \"proj_width\": 1024,"
    " \"normalization_mapping\": {\"VISUAL\": \"IDENTITY\", \"STATE\": \"MEAN_STD\", \"ACTION\": \"MEAN_STD\"},"
    " \"input_features\": {\"observation.images.top\": {\"type\": \"VISUAL\", \"shape\": [3, 480, 640]},"
    " \"observation.state\": {\"type\": \"STATE\", \"shape\": [14]}},"
    " \"output_features\": {\"action\": {\"type\": \"ACTION\", \"shape\": [14]}},"
    " \"resize_imgs_with_padding\": [224, 224], \"empty_cameras\": 2, \"adapt_to_pi_aloha\": true, \"tokenizer_max_length\": 48}";

static void A13_lerobot_03_keeps_its_statistics_in_the_weights(void **unused)
{
    (void)unused;
    char *dir = pi0_test_make_dir(), weights[600];
    fixture f;
    pi0_test_write_file(pi0_test_path(dir, "config.json"), config_03, sizeof config_03 - 1);
    snprintf(weights, sizeof weights, "%s", pi0_test_path(dir, "model.safetensors"));
    write_buffers(weights, true);
    static const char others[] = "{\"observation.state\": {\"mean\": [9]}, \"action\": {\"mean\": [9]}}"; /* the checkpoint's own win */
    pi0_test_write_file(pi0_test_path(dir, "stats.json"), others, sizeof others - 1);
    fixture_open(&f, dir, PI0_LAYOUT_LEROBOT_03, false);
    PI0_ASSERT_OK(pi0_safetensors_open(weights, &f.checkpoint.file, &f.err), &f.err);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_true(fixture_logged(&f, "legacy"));
    assert_field(&f, "image.resize", "top-left");
    assert_field(&f, "time.schedule", "f32");
    assert_field(&f, "action.horizon", "40");
    assert_field(&f, "steps", "7");
    assert_field(&f, "state.gripper.map", "aloha-lerobot03");
    assert_field(&f, "norm.arithmetic", "lerobot-0.3");
    assert_field(&f, "prompt.overflow", "error");
    assert_int_equal(pi0_recipe_get_facts(f.recipe)->n_slots, 3);
    float raw[32] = {0}, padded[32];
    double out[14], state[14] = {[1] = 5}, text[14];
    PI0_ASSERT_OK(pi0_recipe_actions(f.recipe, raw, 1, 32, state, out, &f.err), &f.err);
    assert_true(out[0] == 3 && out[1] == -3); /* mean 3, joint 1 flipped */
    PI0_ASSERT_OK(pi0_recipe_state(f.recipe, state, 32, padded, text, &f.err), &f.err);
    assert_true(padded[1] == -3); /* (-5 - 1) / 2 */
    pi0_safetensors_close(&f.checkpoint.file);

    write_buffers(weights, false); /* infinity: never set */
    assert_int_equal(remove(pi0_test_path(dir, "stats.json")), 0);
    PI0_ASSERT_OK(pi0_safetensors_open(weights, &f.checkpoint.file, &f.err), &f.err);
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "state.mean", "never set", NULL);
    pi0_safetensors_close(&f.checkpoint.file);
    fixture_close(&f);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ processors */

static void processor_steps_that_are_not_known_are_refused(void **unused)
{
    (void)unused;
    lerobot_dir d;
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_array_append_new(d.pre_steps, json_pack("{s:s}", "registry_name", "render_messages_processor"));
    lerobot_expect(&d, PI0_ERR_UNSUPPORTED, "render_messages_processor", "steps[7]");
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_array_append_new(d.post_steps, json_pack("{s:s}", "class", "my.module.Step"));
    lerobot_expect(&d, PI0_ERR_UNSUPPORTED, "my.module.Step", "policy_postprocessor.json");
    lerobot_copy(&d, "lerobot_pi05_P_bare");
    json_t *prepare = json_incref(step_of(d.pre_steps, "pi05_prepare_state_tokenizer_processor_step"));
    remove_step(d.pre_steps, "pi05_prepare_state_tokenizer_processor_step");
    json_array_insert_new(d.pre_steps, 0, prepare);
    lerobot_expect(&d, PI0_ERR_UNSUPPORTED, "before it is normalised", "steps[0]");
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_object_set_new(config_of(d.pre_steps, "tokenizer_processor"), "padding_side", json_string("left"));
    lerobot_expect(&d, PI0_ERR_UNSUPPORTED, "left", "tokenizer_processor");
    lerobot_copy(&d, "lerobot_pi0_Q");
    remove_step(d.pre_steps, "pi0_new_line_processor");
    lerobot_expect(&d, PI0_ERR_MODEL, "newline", "policy_preprocessor.json");
}

static void state_files_stay_in_the_directory(void **unused)
{
    (void)unused;
    static const char *const names[] = {"../stats.safetensors", "/etc/stats.safetensors", "a/../../b.safetensors", ""};
    for (int i = 0; i < 4; i++) {
        lerobot_dir d;
        lerobot_copy(&d, "lerobot_pi0_Q");
        json_object_set_new(step_of(d.pre_steps, "normalizer_processor"), "state_file", json_string(names[i]));
        lerobot_expect(&d, PI0_ERR_FORMAT, "state file", "normalizer_processor");
    }
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_object_set_new(step_of(d.pre_steps, "normalizer_processor"), "state_file", json_string("gone.safetensors"));
    assert_int_equal(lerobot_load(&f, &d), PI0_ERR_IO);
    json_t *problems = json_array();
    PI0_ASSERT_OK(pi0_recipe_load(&f.checkpoint, &f.options, &f.log, problems, &f.recipe, &f.err), &f.err);
    assert_int_equal(json_array_size(problems), 2); /* the file, and the statistics that it would have held */
    json_decref(problems);
    fixture_close(&f);
    lerobot_drop(&d);
}

static void the_processors_stand_against_the_mapping_of_config_json(void **unused)
{
    (void)unused;
    static const struct {
        const char *key, *field, *place;
    } rows[] = {{"STATE", "norm.state", "policy_preprocessor.json: steps["},
                {"ACTION", "norm.action", "policy_postprocessor.json: steps["}};
    for (int i = 0; i < 2; i++) {
        lerobot_dir d;
        fixture f;
        char warning[80];
        lerobot_copy(&d, "lerobot_pi0_Q");
        PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
        assert_false(fixture_logged(&f, "normalization_mapping"));
        fixture_close(&f);
        json_object_set_new(json_object_get(d.config, "normalization_mapping"), rows[i].key, json_string("QUANTILES"));
        PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
        snprintf(warning, sizeof warning, "! config.json: normalization_mapping.%s is quantiles, but", rows[i].key);
        assert_true(fixture_logged(&f, warning) && fixture_logged(&f, rows[i].place));
        assert_field(&f, rows[i].field, "mean_std");
        fixture_close(&f);
        lerobot_drop(&d);
    }
}

static void processors_that_undo_another_normalisation_are_a_warning(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi0_Q");
    json_object_set_new(json_object_get(config_of(d.pre_steps, "normalizer_processor"), "norm_map"), "ACTION", json_string("QUANTILES"));
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    assert_true(
        fixture_logged(&f, "! policy_preprocessor.json normalises actions by quantiles, policy_postprocessor.json undoes mean_std"));
    assert_field(&f, "norm.action", "mean_std");
    fixture_close(&f);
    lerobot_drop(&d);
}

static void F1_relative_on_one_side_only_is_a_question(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi0_Q_relative");
    json_object_set_new(config_of(d.post_steps, "absolute_actions_processor"), "enabled", json_false());
    assert_int_equal(lerobot_load(&f, &d), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "action.delta", "policy_postprocessor.json", NULL);
    fixture_set(&f, "action.delta=");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_field(&f, "action.delta", "[]");
    fixture_close(&f);
    lerobot_drop(&d);
}

static void grippers_are_excluded_by_name_and_without_names_nothing_is(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi0_Q_relative");
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    assert_field(&f, "action.delta", "[true,true,true,true,true,true,false,true,true,true,true,true,true,false]");
    fixture_close(&f);
    json_object_set_new(config_of(d.pre_steps, "relative_actions_processor"), "action_names", json_null());
    PI0_ASSERT_OK(lerobot_load(&f, &d), &f.err);
    assert_field(&f, "action.delta", "[true,true,true,true,true,true,true,true,true,true,true,true,true,true]");
    assert_true(fixture_logged(&f, "! "));
    fixture_close(&f);
    lerobot_drop(&d);
}

static void a_base_without_processors_follows_its_config(void **unused)
{
    (void)unused;
    lerobot_dir d;
    fixture f;
    lerobot_copy(&d, "lerobot_pi05_P_bare");
    json_decref(d.pre);
    json_decref(d.post);
    d.pre = d.post = NULL;
    assert_int_equal(lerobot_load(&f, &d), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "statistics", "state.q01", NULL);
    f.options.no_norm = 1;
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_field(&f, "prompt.state", "digits");
    fixture_close(&f);
    lerobot_drop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lerobot_origins),
        cmocka_unit_test(C7_unknown_camera_names_list_both_sets),
        cmocka_unit_test(camera_names_that_fit_two_slots_are_refused),
        cmocka_unit_test(camera_order_is_that_of_the_file),
        cmocka_unit_test(empty_cameras_are_appended),
        cmocka_unit_test(switches_that_lerobot_does_not_run_are_refused),
        cmocka_unit_test(A3_config_against_tensors),
        cmocka_unit_test(A7_widths_beyond_the_weights),
        cmocka_unit_test(an_undated_pi05_is_a_question),
        cmocka_unit_test(an_undated_pi0_asks_for_the_letterbox_only),
        cmocka_unit_test(the_schedule_follows_the_release_that_saved_the_file),
        cmocka_unit_test(A13_lerobot_03_keeps_its_statistics_in_the_weights),
        cmocka_unit_test(processor_steps_that_are_not_known_are_refused),
        cmocka_unit_test(state_files_stay_in_the_directory),
        cmocka_unit_test(the_processors_stand_against_the_mapping_of_config_json),
        cmocka_unit_test(processors_that_undo_another_normalisation_are_a_warning),
        cmocka_unit_test(F1_relative_on_one_side_only_is_a_question),
        cmocka_unit_test(grippers_are_excluded_by_name_and_without_names_nothing_is),
        cmocka_unit_test(a_base_without_processors_follows_its_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
