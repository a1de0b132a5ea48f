/* Checkpoints: naming dialects, sizes from shapes, layouts, and everything that must be refused. */
#include "checkpoint_fixture.h"

/* ------------------------------------------------------------------ opening */

typedef struct noted {
    int warnings;
    char last[600];
} noted;

static void note(void *user, pi0_log_level level, const char *text)
{
    noted *n = user;
    n->warnings += level == PI0_LOG_WARNING;
    snprintf(n->last, sizeof n->last, "%s", text);
}

static bool same_bytes(const pi0_tensor_view *view, uint8_t fill)
{
    for (size_t i = 0; i < view->bytes; i++)
        if (((const uint8_t *)view->data)[i] != fill)
            return false;
    return true;
}

/* ------------------------------------------------------------------ sizes */

static int count_one(void *context, const pi0_tensor_spec *spec)
{
    (void)spec;
    ++*(int *)context;
    return 0;
}

static void published_models_have_their_tensors_and_parameters(void **state)
{
    (void)state;
    static const struct {
        int tensors;
        uint64_t parameters, needed;
    } published[2] = {{777, 3501372176u, 3238046480u}, {812, 3616757520u, 3353431824u}};
    for (int pi05 = 0; pi05 < 2; pi05++) {
        pi0_arch arch = pi0_arch_base(pi05);
        int count = 0;
        assert_int_equal(pi0_arch_each_tensor(&arch, count_one, &count), 0);
        assert_int_equal(count, published[pi05].tensors);
        assert_true(pi0_arch_parameters(&arch, false) == published[pi05].parameters);
        assert_true(pi0_arch_parameters(&arch, true) == published[pi05].needed);
        arch.untied = true;
        assert_true(pi0_arch_parameters(&arch, false) == published[pi05].parameters + 257152u * 2048u);
        assert_true(pi0_arch_parameters(&arch, true) == published[pi05].needed);
    }
}

static int stop_at_third(void *context, const pi0_tensor_spec *spec)
{
    (void)spec;
    return ++*(int *)context == 3 ? 7 : 0;
}

static void walking_tensors_stops_where_it_is_told(void **state)
{
    (void)state;
    pi0_arch arch = small_arch(false);
    int count = 0;
    assert_int_equal(pi0_arch_each_tensor(&arch, stop_at_third, &count), 7);
    assert_int_equal(count, 3);
}

static void sizes_are_read_from_shapes(void **state)
{
    (void)state;
    for (int pi05 = 0; pi05 < 2; pi05++) {
        char *dir = pi0_test_make_dir();
        model m = small_model(pi05);
        model_write(&m, dir, "model.safetensors");
        pi0_checkpoint *checkpoint = must_open(dir);
        pi0_arch want = small_arch(pi05);
        assert_int_equal(checkpoint->arch.pi05, pi05);
        assert_false(checkpoint->arch.untied);
        assert_memory_equal(&checkpoint->arch.vision, &want.vision, sizeof want.vision);
        assert_memory_equal(&checkpoint->arch.prefix, &want.prefix, sizeof want.prefix);
        assert_memory_equal(&checkpoint->arch.expert, &want.expert, sizeof want.expert);
        assert_int_equal(checkpoint->arch.vocab, 64);
        assert_int_equal(checkpoint->arch.action_dim, 5);
        assert_int_equal(checkpoint->layout, PI0_LAYOUT_OPENPI);
        pi0_checkpoint_close(&checkpoint);
        assert_null(checkpoint);
        pi0_checkpoint_close(&checkpoint);
        pi0_test_remove_dir(dir);
    }
}

static void A7_action_width_comes_from_the_tensors(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = {.count = 0};
    pi0_arch arch = small_arch(false);
    arch.action_dim = 8;
    pi0_arch_each_tensor(&arch, model_collect, &m);
    model_write(&m, dir, "model.safetensors");
    pi0_checkpoint *checkpoint = must_open(dir);
    assert_int_equal(checkpoint->arch.action_dim, 8);
    pi0_checkpoint_close(&checkpoint);
    pi0_test_remove_dir(dir);
}

static void A8_width_mismatch_says_expected_and_got(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_find(&m, "action_out_proj.weight")->shape[0] = 7;
    model_find(&m, "state_proj.weight")->shape[1] = 9;
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "shape: action_out_proj.weight expected [5, 6] got [7, 6]",
              "shape: state_proj.weight expected [6, 5] got [6, 9]", "2 of another shape");
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ the token table */

static void A1_either_name_is_the_token_table(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(true);
    model_write(&m, dir, "lm_head.safetensors");
    snprintf(model_find(&m, TABLE)->name, sizeof m.items[0].name, "%s", EMBED);
    model_find(&m, EMBED)->fill = 17;
    model_write(&m, dir, "embed.safetensors");
    model_add(&m, TABLE, PI0_F32, 2, (int64_t[]){64, 8})->fill = 17;
    model_write(&m, dir, "same.safetensors");
    model_find(&m, TABLE)->fill = 18;
    model_write(&m, dir, "different.safetensors");
    static const struct {
        const char *file;
        bool untied;
    } files[] = {{"lm_head.safetensors", false}, {"embed.safetensors", false}, {"same.safetensors", true}, {"different.safetensors", true}};
    for (size_t i = 0; i < 4; i++) {
        pi0_checkpoint *checkpoint = must_open(pi0_test_path(dir, files[i].file));
        assert_int_equal(checkpoint->arch.untied, files[i].untied);
        const pi0_tensor_view *table = pi0_checkpoint_tensor(checkpoint, files[i].untied ? EMBED : TABLE);
        assert_non_null(table);
        if (i > 0)
            assert_true(same_bytes(table, 17));
        json_t *text = pi0_checkpoint_describe(checkpoint, true);
        assert_non_null(text);
        assert_string_equal(json_string_value(json_object_get(text, "token_table")), i == 0 ? "lm_head" : "embed_tokens");
        json_decref(text);
        pi0_checkpoint_close(&checkpoint);
    }
    pi0_test_remove_dir(dir);
}

static void A1_neither_table_names_both(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_drop(&m, TABLE);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "missing: " TABLE " [?, 8]", EMBED, "1 missing, 0 of another shape");
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ naming dialects */

typedef void rename_fn(char *name, size_t size);

static void rename_bare(char *name, size_t size)
{
    (void)name, (void)size;
}

static void rename_prefixed(char *name, size_t size)
{
    replace_part(name, size, "", "model.");
}

static void rename_flat(char *name, size_t size)
{
    replace_part(name, size, "vision_tower.vision_model.", "vision_tower.");
}

static void rename_compiled(char *name, size_t size)
{
    rename_prefixed(name, size);
    replace_part(name, size, "model.", "model._orig_mod.");
}

static void rename_compiled_outside(char *name, size_t size)
{
    replace_part(name, size, "", "_orig_mod.model.");
    replace_part(name, size, "gemma_expert.", "gemma_expert._orig_mod.");
}

static void rename_old(char *name, size_t size)
{
    replace_part(name, size, "paligemma.lm_head", "paligemma.language_model.lm_head");
    replace_part(name, size, "paligemma.model.language_model", "paligemma.language_model.model");
    replace_part(name, size, "paligemma.model.vision_tower", "paligemma.vision_tower");
    replace_part(name, size, "paligemma.model.multi_modal_projector", "paligemma.multi_modal_projector");
    rename_prefixed(name, size);
}

static void rename_old_flat(char *name, size_t size)
{
    rename_old(name, size);
    rename_flat(name, size);
}

static void A2_every_published_naming_gives_the_same_tensors(void **state)
{
    (void)state;
    static const struct {
        rename_fn *rename;
        const char *words;
        pi0_layout layout;
    } dialects[] = {
        {rename_bare, "openpi (no prefix)", PI0_LAYOUT_OPENPI},
        {rename_prefixed, "lerobot (model. prefix)", PI0_LAYOUT_OPENPI},
        {rename_flat, "openpi (no prefix, vision tower without vision_model)", PI0_LAYOUT_OPENPI},
        {rename_compiled, "lerobot (model. prefix, torch.compile's _orig_mod)", PI0_LAYOUT_OPENPI},
        {rename_compiled_outside, "lerobot (model. prefix, torch.compile's _orig_mod)", PI0_LAYOUT_OPENPI},
        {rename_old, "lerobot <= 0.3 (model. prefix, names of transformers < 4.52)", PI0_LAYOUT_LEROBOT_03},
        {rename_old_flat, "lerobot <= 0.3 (model. prefix, names of transformers < 4.52, vision tower without vision_model)",
         PI0_LAYOUT_LEROBOT_03},
    };
    for (size_t i = 0; i < 2 * sizeof dialects / sizeof dialects[0]; i++) {
        char *dir = pi0_test_make_dir();
        model original = small_model(i % 2), m = original;
        for (size_t j = 0; j < m.count; j++)
            dialects[i / 2].rename(m.items[j].name, sizeof m.items[j].name);
        model_write(&m, dir, "model.safetensors");
        pi0_checkpoint *checkpoint = must_open(dir);
        assert_string_equal(checkpoint->naming, dialects[i / 2].words);
        assert_int_equal(checkpoint->layout, dialects[i / 2].layout);
        for (size_t j = 0; j < original.count; j++) {
            const pi0_tensor_view *view = pi0_checkpoint_tensor(checkpoint, original.items[j].name);
            assert_non_null(view);
            assert_string_equal(view->name, m.items[j].name);
            assert_true(same_bytes(view, original.items[j].fill));
        }
        assert_null(pi0_checkpoint_tensor(checkpoint, "no.such.tensor"));
        pi0_checkpoint_close(&checkpoint);
        pi0_test_remove_dir(dir);
    }
}

static void two_tensors_for_one_weight_are_refused(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_add_vector(&m, "model.action_in_proj.bias", 6);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "both mean action_in_proj.bias", "model.action_in_proj.bias");
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ missing, misshapen, unexpected */

static void A5_a_missing_expert_tensor_is_an_error(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(true);
    model_drop(&m, EXPERT "layers.1.mlp.up_proj.weight");
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "missing: " EXPERT "layers.1.mlp.up_proj.weight [10, 6]", "model.safetensors", "1 missing");
    pi0_test_remove_dir(dir);
}

static void A6_each_needed_tensor_dropped_in_turn_fails(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    for (int pi05 = 0; pi05 < 2; pi05++) {
        model whole = small_model(pi05);
        for (size_t i = 0; i < whole.count; i++) {
            model m = whole;
            char line[400];
            const tensor *t = &whole.items[i];
            model_drop(&m, t->name);
            model_write(&m, dir, "model.safetensors");
            if (!t->needed) { /* published files carry it, inference does not read it */
                pi0_checkpoint *checkpoint = must_open(dir);
                pi0_checkpoint_close(&checkpoint);
                continue;
            }
            snprintf(line, sizeof line, "missing: %s [", t->name);
            MUST_FAIL(dir, NULL, PI0_ERR_MODEL, line, "1 missing, 0 of another shape, 0 of another type, 0 unexpected");
        }
    }
    pi0_test_remove_dir(dir);
}

static void each_needed_tensor_reshaped_in_turn_fails(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    for (int pi05 = 0; pi05 < 2; pi05++) {
        model whole = small_model(pi05);
        for (size_t i = 0; i < whole.count; i++) {
            if (!whole.items[i].needed)
                continue;
            model m = whole;
            m.items[i].shape[0] += 1;
            model_write(&m, dir, "model.safetensors");
            pi0_checkpoint *checkpoint = NULL;
            pi0_error err = {0};
            /* the table alone says how large the vocabulary is */
            bool free_size = strcmp(m.items[i].name, TABLE) == 0;
            assert_int_equal(open_dir(dir, NULL, &checkpoint, &err), free_size ? PI0_OK : PI0_ERR_MODEL);
            pi0_error_clear(&err);
            pi0_checkpoint_close(&checkpoint);
        }
    }
    pi0_test_remove_dir(dir);
}

static void all_faults_are_in_one_list(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_drop(&m, LANGUAGE "layers.0.self_attn.o_proj.weight");
    model_drop(&m, VISION "post_layernorm.bias");
    model_find(&m, EXPERT "layers.0.mlp.gate_proj.weight")->shape[1] = 3;
    model_find(&m, EXPERT "norm.weight")->rank = 2;
    model_find(&m, EXPERT "norm.weight")->shape[1] = 1;
    model_find(&m, LANGUAGE "layers.1.input_layernorm.weight")->dtype = PI0_I32;
    model_find(&m, "action_in_proj.bias")->dtype = PI0_F64;
    model_add_vector(&m, "value_head.weight", 3);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "missing: " LANGUAGE "layers.0.self_attn.o_proj.weight [8, 8]",
              "missing: " VISION "post_layernorm.bias [72]", "shape: " EXPERT "layers.0.mlp.gate_proj.weight expected [10, 6] got [10, 3]",
              "shape: " EXPERT "norm.weight expected [6] got [6, 1]",
              "type: " LANGUAGE "layers.1.input_layernorm.weight expected f32, bf16 or f16 got i32", "type: action_in_proj.bias", "got f64",
              "unexpected: value_head.weight [3]", "2 missing, 2 of another shape, 2 of another type, 1 unexpected");
    pi0_test_remove_dir(dir);
}

static void a_gap_in_the_layers_is_a_missing_layer(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    for (size_t i = 0; i < m.count; i++)
        replace_part(m.items[i].name, sizeof m.items[i].name, EXPERT "layers.1.", EXPERT "layers.2.");
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "missing: " EXPERT "layers.1.self_attn.q_proj.weight [8, 6]",
              "missing: " LANGUAGE "layers.2.mlp.down_proj.weight [8, 12]", "18 missing");
    pi0_test_remove_dir(dir);
}

static void a_model_without_layers_is_refused(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false), none = {.count = 0};
    for (size_t i = 0; i < m.count; i++)
        if (!strstr(m.items[i].name, ".layers."))
            none.items[none.count++] = m.items[i];
    model_write(&none, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "missing: " LANGUAGE "layers.0.* (no layer at all)");
    pi0_test_remove_dir(dir);
}

static void buffers_that_inference_ignores_are_let_through(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_add_vector(&m, LANGUAGE "rotary_emb.inv_freq", 2);
    model_add(&m, VISION "embeddings.position_ids", PI0_I32, 1, (int64_t[]){4});
    model_add(&m, EXPERT "embed_tokens.weight", PI0_F32, 2, (int64_t[]){64, 6});
    model_write(&m, dir, "model.safetensors");
    pi0_checkpoint *checkpoint = must_open(dir);
    pi0_checkpoint_close(&checkpoint);
    pi0_test_remove_dir(dir);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
        int axis;
        int64_t size;
    } faults[] = {
        {VISION "embeddings.patch_embedding.weight", "a multiple of 72", 0, 73},
        {VISION "embeddings.position_embedding.weight", "a square number of rows", 0, 5},
        {LANGUAGE "layers.0.self_attn.k_proj.weight", "rows of q_proj a multiple", 0, 3},
        {LANGUAGE "layers.0.self_attn.q_proj.weight", "rows of q_proj a multiple", 0, 9},
        {"action_in_proj.weight", "an even number of rows", 0, 7},
        {"action_in_proj.weight", "1 to 256", 1, 257},
        {"action_in_proj.weight", "1 to 256", 1, 0},
        {LANGUAGE "layers.0.mlp.gate_proj.weight", "an MLP width is out of bounds", 0, 0},
        {TABLE, "the vocabulary is out of bounds", 0, 0},
    };
    char *dir = pi0_test_make_dir();
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        model m = small_model(false);
        model_find(&m, faults[i].name)->shape[faults[i].axis] = faults[i].size;
        model_write(&m, dir, "model.safetensors");
        MUST_FAIL(dir, NULL, PI0_ERR_MODEL, faults[i].says);
    }
    model m = small_model(false);
    model_add_vector(&m, LANGUAGE "layers.99999999999999999999.input_layernorm.weight", 8);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "unexpected: " LANGUAGE "layers.99999999999999999999.input_layernorm.weight [8]");
    model_add_vector(&m, LANGUAGE "layers.128.input_layernorm.weight", 8);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "the number of layers is out of bounds", "1 to 128", "129");
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ pi0 or pi05 */

static void A3_config_and_tensors_that_disagree_are_refused(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(true);
    model_write(&m, dir, "model.safetensors");
    write_text(dir, "config.json", "{\"type\": \"pi0\"}");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "config.json says pi0, the tensors are those of pi05", "time_mlp_in.weight", "state_proj");
    write_text(dir, "config.json", "{\"type\": \"pi05\"}");
    pi0_checkpoint *checkpoint = must_open(dir);
    assert_int_equal(checkpoint->layout, PI0_LAYOUT_LEROBOT);
    pi0_checkpoint_close(&checkpoint);
    MUST_FAIL(dir, "pi0_droid", PI0_ERR_MODEL, "the config named says pi0, the tensors are those of pi05");
    m = small_model(false);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "config.json says pi05, the tensors are those of pi0");
    pi0_test_remove_dir(dir);
}

static void A3_tensors_of_both_are_refused_and_never_renamed(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(true);
    model_add(&m, "state_proj.weight", PI0_F32, 2, (int64_t[]){6, 5});
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "both pi0 and pi05", "of pi0: state_proj.weight", "of pi05: time_mlp_in.weight");
    m = small_model(false); /* LeRobot would read action_time_mlp_* as time_mlp_* here */
    model_drop(&m, "state_proj.weight");
    model_drop(&m, "state_proj.bias");
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "missing: state_proj.weight [6, 5]", "2 missing");
    pi0_test_remove_dir(dir);
}

static void a_file_of_something_else_is_refused(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = {.count = 0};
    model_add_vector(&m, "backbone.conv1.weight", 4);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "neither pi0 nor pi05", "in the file: backbone.conv1.weight");
    pi0_test_remove_dir(dir);
}

static void widths_that_disagree_are_a_warning(void **state)
{
    (void)state;
    static const struct {
        const char *key, *tensor;
        bool pi05;
        int warnings;
    } rows[] = {{"max_action_dim", "action_in_proj", false, 1}, {"max_action_dim", "action_in_proj", true, 1},
                {"max_state_dim", "state_proj", false, 1},      {"max_state_dim", "", true, 0},
                {"proj_width", "action_in_proj", false, 1},     {"action_dim", "action_in_proj", true, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *dir = pi0_test_make_dir(), config[80];
        model m = small_model(rows[i].pi05);
        model_write(&m, dir, "model.safetensors");
        snprintf(config, sizeof config, "{\"type\": \"%s\", \"%s\": 64}", rows[i].pi05 ? "pi05" : "pi0", rows[i].key);
        write_text(dir, "config.json", config);
        pi0_checkpoint *checkpoint = must_open(dir);
        json_t *text = pi0_checkpoint_describe(checkpoint, false);
        json_t *warnings = json_object_get(text, "warnings");
        assert_int_equal(json_array_size(warnings), rows[i].warnings);
        const char *warning = json_string_value(json_array_get(warnings, 0));
        assert_true(!warning || (strstr(warning, rows[i].key) && strstr(warning, rows[i].tensor) && strstr(warning, "64")));
        assert_int_equal(checkpoint->arch.action_dim, 5);
        json_decref(text);
        pi0_checkpoint_close(&checkpoint);
        pi0_test_remove_dir(dir);
    }
}

static void variant_names_that_disagree_are_a_warning(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_write(&m, dir, "model.safetensors");
    write_text(dir, "config.json",
               "{\"action_dim\": 5, \"action_horizon\": 50, \"paligemma_variant\": \"gemma_2b\", \"precision\": \"bfloat16\"}");
    pi0_checkpoint *checkpoint = NULL;
    pi0_error err = {0};
    noted n = {0};
    pi0_log log = {note, &n};
    PI0_ASSERT_OK(pi0_checkpoint_open(dir, NULL, &log, &checkpoint, &err), &err);
    assert_int_equal(n.warnings, 1);
    assert_non_null(strstr(n.last, "paligemma_variant = gemma_2b"));
    assert_int_equal(checkpoint->layout, PI0_LAYOUT_OPENPI);
    json_t *text = pi0_checkpoint_describe(checkpoint, false);
    assert_int_equal(json_array_size(json_object_get(text, "warnings")), 1);
    json_decref(text);
    pi0_checkpoint_close(&checkpoint);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ refused by name */

static void A9_adapters_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {EXPERT "layers.0.self_attn.q_proj.lora_A.default.weight",
                                        EXPERT "layers.0.mlp.gating_einsum_lora_a", "base_model.model.state_proj.lora_B.weight"};
    char *dir = pi0_test_make_dir();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        model m = small_model(false);
        model_add_vector(&m, names[i], 4);
        model_write(&m, dir, "model.safetensors");
        MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "LoRA", names[i], "merge");
    }
    model m = small_model(false);
    model_write(&m, dir, "model.safetensors");
    write_text(dir, "config.json", "{\"type\": \"pi0\", \"use_peft\": true}");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "PEFT", "config.json");
    write_text(dir, "config.json", "{\"type\": \"pi0\"}");
    write_text(dir, "adapter_config.json", "{}");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "PEFT");
    MUST_FAIL(pi0_test_path(dir, "model.safetensors"), NULL, PI0_ERR_UNSUPPORTED, "PEFT");
    pi0_test_remove_dir(dir);
}

static void memory_models_are_refused(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(true);
    model_add_vector(&m, "model.proprio_history_proj.weight", 4);
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "MEM", "proprio_history_proj");
    write_text(dir, "config.json", "{\"type\": \"pi05\", \"use_visual_memory\": true}");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "MEM", "use_visual_memory");
    write_text(dir, "config.json", "{\"type\": \"pi05\", \"use_proprioceptive_memory\": true}");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "MEM", "use_proprioceptive_memory");
    pi0_test_remove_dir(dir);
}

static void fast_models_are_refused(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false), fast = {.count = 0};
    for (size_t i = 0; i < m.count; i++)
        if (strstr(m.items[i].name, "paligemma_with_expert.paligemma."))
            fast.items[fast.count++] = m.items[i];
    model_write(&fast, dir, "model.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "pi0-FAST");
    model_write(&m, dir, "model.safetensors");
    MUST_FAIL(dir, "pi0_fast_droid", PI0_ERR_UNSUPPORTED, "pi0-FAST");
    write_text(dir, "config.json", "{\"type\": \"pi0_fast\"}");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "pi0-FAST", "config.json");
    pi0_test_remove_dir(dir);
}

static void other_policies_are_refused_by_name(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_write(&m, dir, "model.safetensors");
    write_text(dir, "config.json", "{\"type\": \"act\", \"chunk_size\": 100}");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "\"act\"", "\"pi0\" or \"pi05\"");
    write_text(dir, "config.json", "{\"model_type\": \"gr00t_n1_5\"}");
    MUST_FAIL(dir, NULL, PI0_ERR_UNSUPPORTED, "gr00t_n1_5", "model_type");
    pi0_test_remove_dir(dir);
}

static void A10_unknown_config_fields_are_noted_known_ones_are_checked(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_write(&m, dir, "model.safetensors");
    write_text(dir, "config.json", "{\"type\": \"pi0\", \"foo\": 1, \"optimizer_lr\": 0.1, \"rtc_config\": null, \"bar\": {}}");
    pi0_checkpoint *checkpoint = NULL;
    pi0_error err = {0};
    noted n = {0};
    pi0_log log = {note, &n};
    PI0_ASSERT_OK(pi0_checkpoint_open(dir, NULL, &log, &checkpoint, &err), &err);
    assert_int_equal(n.warnings, 0);
    assert_non_null(strstr(n.last, "foo, bar"));
    assert_null(strstr(n.last, "optimizer_lr"));
    pi0_checkpoint_close(&checkpoint);
    write_text(dir, "config.json", "{\"type\": \"pi0\", \"chunk_size\": \"x\", \"empty_cameras\": null}");
    MUST_FAIL(dir, NULL, PI0_ERR_FORMAT, "chunk_size: expected integer, got string", "empty_cameras: expected integer, got null",
              "config.json");
    write_text(dir, "config.json", "[1]");
    MUST_FAIL(dir, NULL, PI0_ERR_FORMAT, "config.json");
    write_text(dir, "config.json", "{\"type\": ");
    MUST_FAIL(dir, NULL, PI0_ERR_FORMAT, "config.json");
    pi0_test_remove_dir(dir);
}

static void A12_a_damaged_file_is_refused(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_write(&m, dir, "whole.safetensors");
    size_t bytes;
    char *data = pi0_test_read_file(pi0_test_path(dir, "whole.safetensors"), &bytes);
    static const size_t lengths[] = {0, 7, 8, 500, 20000};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        pi0_test_write_file(pi0_test_path(dir, "model.safetensors"), data, lengths[i]);
        MUST_FAIL(dir, NULL, PI0_ERR_FORMAT, "model.safetensors");
    }
    pi0_test_write_file(pi0_test_path(dir, "model.safetensors"), data, bytes - 1);
    MUST_FAIL(dir, NULL, PI0_ERR_FORMAT, "model.safetensors");
    free(data);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ layouts */

static pi0_layout layout_of(const char *dir)
{
    pi0_checkpoint *checkpoint = must_open(dir);
    pi0_layout layout = checkpoint->layout;
    pi0_checkpoint_close(&checkpoint);
    return layout;
}

static void A13_old_layouts_are_recognised(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    model_write(&m, dir, "model.safetensors");
    assert_int_equal(layout_of(dir), PI0_LAYOUT_OPENPI);
    write_text(dir, "config.json", "{\"type\": \"pi0\", \"chunk_size\": 50}");
    assert_int_equal(layout_of(dir), PI0_LAYOUT_LEROBOT);
    write_text(dir, "config.json", "{\"type\": \"pi0\", \"num_steps\": 10, \"proj_width\": 1024}");
    assert_int_equal(layout_of(dir), PI0_LAYOUT_LEROBOT_03);
    write_text(dir, "policy_preprocessor.json", "{}"); /* migrated: the processors rule */
    assert_int_equal(layout_of(dir), PI0_LAYOUT_LEROBOT);
    remove(pi0_test_path(dir, "policy_preprocessor.json"));
    remove(pi0_test_path(dir, "config.json"));
    model_add_vector(&m, "normalize_inputs.buffer_observation_state.mean", 3);
    model_add_vector(&m, "unnormalize_outputs.buffer_action.std", 3);
    model_write(&m, dir, "model.safetensors");
    pi0_checkpoint *checkpoint = NULL;
    pi0_error err = {0};
    noted n = {0};
    pi0_log log = {note, &n};
    PI0_ASSERT_OK(pi0_checkpoint_open(dir, NULL, &log, &checkpoint, &err), &err);
    assert_int_equal(checkpoint->layout, PI0_LAYOUT_LEROBOT_03);
    assert_non_null(strstr(n.last, "legacy"));
    assert_non_null(pi0_safetensors_find(checkpoint->file, "unnormalize_outputs.buffer_action.std"));
    pi0_checkpoint_close(&checkpoint);
    pi0_test_remove_dir(dir);
}

static void B4_stored_types_of_each_block_are_told(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false);
    for (size_t i = 0; i < m.count; i++)
        if (strstr(m.items[i].name, "language_model.layers.") && strstr(m.items[i].name, "proj"))
            m.items[i].dtype = PI0_BF16;
    model_find(&m, TABLE)->dtype = PI0_F16;
    model_write(&m, dir, "model.safetensors");
    pi0_checkpoint *checkpoint = must_open(dir);
    json_t *text = pi0_checkpoint_describe(checkpoint, true), *stored = json_object_get(text, "stored");
    assert_string_equal(json_string_value(json_object_get(stored, "vision")), "f32");
    assert_string_equal(json_string_value(json_object_get(stored, "prefix")), "f32 + bf16");
    assert_string_equal(json_string_value(json_object_get(stored, "token_table")), "f16");
    assert_string_equal(json_string_value(json_object_get(text, "model")), "pi0");
    assert_int_equal(json_array_size(json_object_get(text, "tensors")), m.count);
    json_decref(text);
    pi0_checkpoint_close(&checkpoint);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ memory */

static void a_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(true);
    for (size_t i = 0; i < m.count; i++)
        rename_prefixed(m.items[i].name, sizeof m.items[i].name);
    model_write(&m, dir, "model.safetensors");
    write_text(dir, "config.json", "{\"type\": \"pi05\", \"chunk_size\": 50}");
    long n = 1;
    for (;; n += n < 400 ? 1 : 7) {
        pi0_checkpoint *checkpoint = NULL;
        pi0_error err = {0};
        pi0_test_fail_allocation(n);
        pi0_status status = open_dir(dir, NULL, &checkpoint, &err);
        bool reached = pi0_test_allocation_failed();
        if (status == PI0_OK) {
            pi0_checkpoint_close(&checkpoint);
        } else {
            assert_true(reached);
            assert_null(checkpoint);
            assert_int_equal(err.status, PI0_ERR_MEMORY);
        }
        pi0_error_clear(&err);
        if (!reached)
            break;
    }
    assert_true(n > 100);
    pi0_test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_models_have_their_tensors_and_parameters),
        cmocka_unit_test(walking_tensors_stops_where_it_is_told),
        cmocka_unit_test(sizes_are_read_from_shapes),
        cmocka_unit_test(A7_action_width_comes_from_the_tensors),
        cmocka_unit_test(A8_width_mismatch_says_expected_and_got),
        cmocka_unit_test(A1_either_name_is_the_token_table),
        cmocka_unit_test(A1_neither_table_names_both),
        cmocka_unit_test(A2_every_published_naming_gives_the_same_tensors),
        cmocka_unit_test(two_tensors_for_one_weight_are_refused),
        cmocka_unit_test(A5_a_missing_expert_tensor_is_an_error),
        cmocka_unit_test(A6_each_needed_tensor_dropped_in_turn_fails),
        cmocka_unit_test(each_needed_tensor_reshaped_in_turn_fails),
        cmocka_unit_test(all_faults_are_in_one_list),
        cmocka_unit_test(a_gap_in_the_layers_is_a_missing_layer),
        cmocka_unit_test(a_model_without_layers_is_refused),
        cmocka_unit_test(buffers_that_inference_ignores_are_let_through),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(A3_config_and_tensors_that_disagree_are_refused),
        cmocka_unit_test(A3_tensors_of_both_are_refused_and_never_renamed),
        cmocka_unit_test(a_file_of_something_else_is_refused),
        cmocka_unit_test(widths_that_disagree_are_a_warning),
        cmocka_unit_test(variant_names_that_disagree_are_a_warning),
        cmocka_unit_test(A9_adapters_are_refused),
        cmocka_unit_test(memory_models_are_refused),
        cmocka_unit_test(fast_models_are_refused),
        cmocka_unit_test(other_policies_are_refused_by_name),
        cmocka_unit_test(A10_unknown_config_fields_are_noted_known_ones_are_checked),
        cmocka_unit_test(A12_a_damaged_file_is_refused),
        cmocka_unit_test(A13_old_layouts_are_recognised),
        cmocka_unit_test(B4_stored_types_of_each_block_are_told),
        cmocka_unit_test(a_failed_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
