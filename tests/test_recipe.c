/* Recipes: the reference set's facts, openpi's named configs and assets, the recipe file, --set. LeRobot: tests/test_recipe_lerobot.c. */
#include "recipe_fixture.h"

#include <sys/stat.h>

/* ------------------------------------------------------------------ the reference set */

static void facts_of_every_golden_case(void **unused)
{
    (void)unused;
    for (int i = 0; i < N_GOLDENS; i++) {
        golden g;
        golden_open(&g, golden_names[i]);
        const pi0_recipe_facts *facts = pi0_recipe_get_facts(g.f.recipe);
        bool openpi = strcmp(golden_text(&g, "family"), "openpi") == 0;
        assert_int_equal(facts->family, openpi ? PI0_FAMILY_OPENPI : PI0_FAMILY_LEROBOT);
        assert_int_equal(facts->pi05, strcmp(golden_text(&g, "model"), "pi05") == 0);
        assert_int_equal(facts->state_dim, json_integer_value(json_object_get(g.info, "state_dim")));
        assert_int_equal(facts->action_dim, json_integer_value(json_object_get(g.info, "action_dim")));
        assert_int_equal(facts->horizon, json_integer_value(json_object_get(g.info, "horizon")));
        assert_int_equal(facts->steps, json_integer_value(json_object_get(g.info, "steps")));
        assert_int_equal(facts->close_up, !openpi);
        assert_int_equal(facts->time_in_f32, openpi);
        assert_int_equal(facts->resize, openpi ? PI0_RESIZE_PIL : PI0_RESIZE_TORCH);
        assert_int_equal(facts->image_size, 224);
        assert_string_equal(facts->tokenizer_rules, openpi ? "spm" : "hf");
        assert_int_equal(facts->state_in_prompt, facts->pi05 && strcmp(g.name, "openpi_pi05_libero") != 0);
        const char *prompt = golden_text(&g, "default_prompt");
        assert_true(prompt ? facts->default_prompt && strcmp(prompt, facts->default_prompt) == 0 : !facts->default_prompt);
        const char *key;
        json_t *slot;
        json_object_foreach(json_object_get(g.info, "cameras"), key, slot)
        {
            int at = -1;
            PI0_ASSERT_OK(pi0_recipe_camera(g.f.recipe, key, &at, &g.f.err), &g.f.err);
            assert_string_equal(facts->slots[at], json_string_value(slot));
            assert_string_equal(facts->keys[at], key);
        }
        assert_int_equal(facts->n_slots, 3 - (strcmp(g.name, "lerobot_pi05_rename") == 0));
        golden_close(&g);
    }
}

static void a_written_recipe_is_complete_by_itself(void **unused)
{
    (void)unused;
    char *dir = pi0_test_make_dir();
    for (int i = 0; i < N_GOLDENS; i++) {
        golden g;
        golden_open(&g, golden_names[i]);
        json_t *written = pi0_recipe_to_json(g.f.recipe);
        assert_non_null(written);
        char path[600];
        snprintf(path, sizeof path, "%s", pi0_test_path(dir, "recipe.json"));
        assert_int_equal(json_dump_file(written, path, JSON_INDENT(1)), 0);
        fixture f;
        fixture_open(&f, NULL, PI0_LAYOUT_OPENPI, false);
        f.options.recipe = path;
        PI0_ASSERT_OK(fixture_load(&f), &f.err);
        assert_origin(&f, "action.horizon", "recipe file: ");
        json_t *again = pi0_recipe_to_json(f.recipe);
        if (!json_equal(written, again))
            fail_msg("%s: the recipe file does not come back as it was", g.name);
        json_decref(written);
        json_decref(again);
        fixture_close(&f);
        golden_close(&g);
    }
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ openpi */

static void openpi_open(fixture *f, const char *config, bool pi05)
{
    fixture_open(f, pi0_test_data("recipe/openpi"), PI0_LAYOUT_OPENPI, pi05);
    f->options.config = config;
}

static void every_openpi_config(void **unused)
{
    (void)unused;
    static const struct {
        const char *name, *horizon, *tokens, *delta;
        bool pi05;
    } rows[] = {
        {"pi0_aloha", "50", "48", "[true,true,true,true,true,true,false,true,true,true,true,true,true,false]", false},
        {"pi05_aloha", "50", "200", "[true,true,true,true,true,true,false,true,true,true,true,true,true,false]", true},
        {"pi0_aloha_towel", "50", "48", NULL, false},
        {"pi0_aloha_tupperware", "50", "48", NULL, false},
        {"pi0_aloha_pen_uncap", "50", "48", NULL, false},
        {"pi05_aloha_pen_uncap", "50", "200", NULL, true},
        {"pi0_aloha_sim", "50", "48", "[]", false},
        {"pi0_droid", "10", "48", "[]", false},
        {"pi05_droid", "15", "200", "[]", true},
        {"pi05_droid_finetune", "16", "200", "[]", true},
        {"pi05_full_droid_finetune", "16", "200", "[true,true,true,true,true,true,true,false]", true},
        {"pi05_droid_jointpos_polaris", "15", "200", "[true,true,true,true,true,true,true,false]", true},
        {"pi0_droid_jointpos_polaris", "10", "100", "[true,true,true,true,true,true,true,false]", false},
        {"pi0_droid_jointpos_100k_polaris", "10", "100", "[true,true,true,true,true,true,true,false]", false},
        {"paligemma_diffusion_droid", "10", "48", "[]", false},
        {"pi0_libero", "50", "48", "[true,true,true,true,true,true,false]", false},
        {"pi0_libero_low_mem_finetune", "50", "48", "[true,true,true,true,true,true,false]", false},
        {"pi05_libero", "10", "200", "[]", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture f;
        openpi_open(&f, rows[i].name, rows[i].pi05);
        PI0_ASSERT_OK(fixture_load(&f), &f.err);
        assert_field(&f, "action.horizon", rows[i].horizon);
        assert_field(&f, "prompt.max_tokens", rows[i].tokens);
        if (rows[i].delta)
            assert_field(&f, "action.delta", rows[i].delta);
        assert_field(&f, "norm.action", rows[i].pi05 ? "quantiles" : "mean_std");
        assert_origin(&f, "action.horizon", rows[i].name);
        fixture_close(&f);
    }
}

static void openpi_aloha_in_full(void **unused)
{
    (void)unused;
    fixture f;
    openpi_open(&f, "pi0_aloha", false);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    const pi0_recipe_facts *facts = pi0_recipe_get_facts(f.recipe);
    assert_true(facts->required[0] && !facts->required[1] && !facts->required[2]);
    assert_field(&f, "state.flip", "[false,true,true,false,false,false,false,false,true,true,false,false,false,false]");
    assert_field(&f, "state.gripper.index", "[6,13]");
    assert_field(&f, "action.gripper.map", "aloha");
    int slot = 0;
    PI0_ASSERT_OK(pi0_recipe_camera(f.recipe, "cam_low", &slot, &f.err), &f.err);
    assert_int_equal(slot, -1);
    PI0_ASSERT_OK(pi0_recipe_camera(f.recipe, "right_wrist_0_rgb", &slot, &f.err), &f.err);
    assert_int_equal(slot, 2);
    json_t *all = pi0_recipe_describe(f.recipe);
    json_t *mean = json_object_get(json_object_get(json_object_get(all, "statistics"), "state"), "mean");
    assert_string_equal(json_string_value(json_object_get(mean, "origin")), "assets/trossen/norm_stats.json: state.mean");
    json_decref(all);
    fixture_close(&f);
}

static void an_openpi_directory_needs_a_config(void **unused)
{
    (void)unused;
    fixture f;
    openpi_open(&f, NULL, true);
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    assert_non_null(strstr(f.err.list, "pi05_droid"));
    assert_null(strstr(f.err.list, "pi0_droid"));
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "--config", "--recipe", NULL);
    f.options.config = "pi05_drodi";
    assert_int_equal(fixture_load(&f), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "pi05_drodi", "pi05_droid", NULL);
    f.options.config = "pi0_fast_droid";
    assert_int_equal(fixture_load(&f), PI0_ERR_UNSUPPORTED);
    pi0_test_assert_error(&f.err, PI0_ERR_UNSUPPORTED, "pi0_fast_droid", "autoregressive", NULL);
    f.options.config = "pi0_droid"; /* A3 */
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "pi0_droid", "pi05", NULL);
    f.options.config = "pi05_droid";
    f.options.recipe = "x.json";
    assert_int_equal(fixture_load(&f), PI0_ERR_ARGUMENT);
    fixture_close(&f);
}

static void a_recipe_file_beside_the_weights_settles_an_openpi_directory(void **unused)
{
    (void)unused;
    fixture f;
    openpi_open(&f, "pi0_droid", false);
    fixture_set(&f, "action.horizon=7");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    json_t *written = pi0_recipe_to_json(f.recipe);
    fixture_close(&f);
    char *dir = pi0_test_make_dir();
    assert_int_equal(json_dump_file(written, pi0_test_path(dir, "pi0_recipe.json"), 0), 0);
    json_decref(written);
    fixture_open(&f, dir, PI0_LAYOUT_OPENPI, false);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_field(&f, "action.horizon", "7");
    fixture_close(&f);
    pi0_test_remove_dir(dir);
}

static void make_asset(const char *dir, const char *id, const char *stats)
{
    char path[600];
    snprintf(path, sizeof path, "%s/assets", dir);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/assets/%s", dir, id);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s/assets/%s/norm_stats.json", dir, id);
    pi0_test_write_file(path, stats, strlen(stats));
}

#define EIGHT(x) "[" x "," x "," x "," x "," x "," x "," x "," x "]"
#define STATS8 "{\"mean\": " EIGHT("0") ", \"std\": " EIGHT("1") ", \"q01\": null, \"q99\": null}"

static void A11_statistics_below_assets(void **unused)
{
    (void)unused;
    static const char stats[] = "{\"norm_stats\": {\"state\": " STATS8 ", \"actions\": " STATS8 "}}";
    char *dir = pi0_test_make_dir();
    fixture f;
    fixture_open(&f, dir, PI0_LAYOUT_OPENPI, false);
    f.options.config = "pi0_droid";
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL); /* none */
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "--norm-stats", "--asset-id", NULL);
    f.options.asset_id = "bar";
    assert_int_equal(fixture_load(&f), PI0_ERR_ARGUMENT); /* asked for, and not replaced by no statistics at all */
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "bar/norm_stats.json", "--norm-stats", NULL);
    f.options.asset_id = NULL;
    make_asset(dir, "foo", stats);
    PI0_ASSERT_OK(fixture_load(&f), &f.err); /* the only one */
    assert_true(fixture_logged(&f, "! ") && fixture_logged(&f, "assets/foo"));
    make_asset(dir, "bar", stats);
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL); /* which? */
    assert_string_equal(f.err.list, "bar\nfoo");
    assert_non_null(strstr(f.err.hint, "--asset-id"));
    f.options.asset_id = "bar";
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_false(fixture_logged(&f, "! "));
    f.options.asset_id = "baz";
    assert_int_equal(fixture_load(&f), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "baz", "foo", NULL);
    f.options.asset_id = "../foo";
    assert_int_equal(fixture_load(&f), PI0_ERR_ARGUMENT);
    f.options.asset_id = NULL;
    make_asset(dir, "droid", stats); /* the config's own */
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    fixture_close(&f);
    pi0_test_remove_dir(dir);
}

static void statistics_of_a_dataset_replace_those_of_the_checkpoint(void **unused)
{
    (void)unused;
    static const char stats[] = "{\"observation.images.top\": {\"mean\": [[[0.5]]]}, \"observation.state\": " STATS8
                                ", \"action\": {\"mean\": " EIGHT("2") ", \"std\": " EIGHT("3") ", \"count\": [5]}}";
    char *dir = pi0_test_make_dir();
    pi0_test_write_file(pi0_test_path(dir, "stats.json"), stats, sizeof stats - 1);
    fixture f;
    openpi_open(&f, "pi0_droid", false);
    char path[600];
    snprintf(path, sizeof path, "%s", pi0_test_path(dir, "stats.json"));
    f.options.norm_stats = path;
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    float raw[32] = {1};
    double out[8], state[8] = {0};
    PI0_ASSERT_OK(pi0_recipe_actions(f.recipe, raw, 1, 32, state, out, &f.err), &f.err);
    assert_true(fabs(out[0] - (3 + 1e-6 + 2)) < 1e-12);
    static const char bad[] = "{\"norm_stats\": {\"state\": {\"mean\": [1, \"x\"]}}}";
    pi0_test_write_file(path, bad, sizeof bad - 1);
    assert_int_equal(fixture_load(&f), PI0_ERR_FORMAT);
    pi0_test_assert_error(&f.err, PI0_ERR_FORMAT, "state.mean", NULL);
    fixture_close(&f);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ recipe files and --set */

static void recipe_files_name_what_is_wrong(void **unused)
{
    (void)unused;
    char *dir = pi0_test_make_dir(), path[600];
    fixture f;
    snprintf(path, sizeof path, "%s", pi0_test_path(dir, "r.json"));
    openpi_open(&f, "pi05_droid", true);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    json_t *good = pi0_recipe_to_json(f.recipe);
    f.options.config = NULL;
    f.options.recipe = path;

    json_t *bad = json_deep_copy(good);
    json_object_del(bad, "action.horizon");
    json_object_set_new(bad, "action.horizn", json_integer(3));
    json_dump_file(bad, path, 0);
    assert_int_equal(fixture_load(&f), PI0_ERR_FORMAT);
    pi0_test_assert_error(&f.err, PI0_ERR_FORMAT, "missing: action.horizon", "unknown: action.horizn", NULL);
    json_decref(bad);

    static const struct {
        const char *field, *value, *word;
    } rows[] = {
        {"action.horizon", "\"x\"", "whole number"},
        {"action.horizon", "0", "from 1"},
        {"image.resize", "\"bicubic\"", "torch-lerobot04"},
        {"action.delta", "[1, 2]", "true and false"},
        {"state.q01", "[\"a\"]", "numbers"},
        {"cameras", "[]", "camera"},
        {"cameras", "[{\"slot\": \"a\"}]", "required"},
        {"norm.epsilon", "true", "a number"},
        {"time.max_period", "0.001", "min_period"},
        {"prompt.default", "7", "text"},
        {"state.gripper.index", "[99]", "0 to 7"},
        {"prompt.newline", "\"ensure\"", "pi05"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bad = json_deep_copy(good);
        json_object_set_new(bad, rows[i].field, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        json_dump_file(bad, path, 0);
        pi0_status status = fixture_load(&f);
        assert_true(status == PI0_ERR_FORMAT || status == PI0_ERR_MODEL);
        pi0_test_assert_error(&f.err, status, rows[i].field, rows[i].word, NULL);
        json_decref(bad);
    }
    pi0_test_write_file(path, "[1]", 3);
    assert_int_equal(fixture_load(&f), PI0_ERR_FORMAT);
    pi0_test_assert_error(&f.err, PI0_ERR_FORMAT, "not a recipe file", NULL);
    json_decref(good);
    fixture_close(&f);
    pi0_test_remove_dir(dir);
}

static void ones_own_robot_is_described_without_c(void **unused)
{
    (void)unused;
    static const char *const sets[] = {"cameras.base_0_rgb.key=front",
                                       "cameras.1.key=hand",
                                       "cameras.right_wrist_0_rgb.empty=true",
                                       "cameras.1.required=false",
                                       "state.dim=3",
                                       "action.dim=3",
                                       "state.flip=0,1",
                                       "action.flip=false,true",
                                       "action.delta=1,1,0",
                                       "state.names=a,b,c",
                                       "prompt.default=pick it up, please",
                                       "action.horizon=12",
                                       "cameras.ignored=depth,thermal"};
    fixture f;
    openpi_open(&f, "pi0_droid", false);
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        fixture_set(&f, sets[i]);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    int slot = 5;
    PI0_ASSERT_OK(pi0_recipe_camera(f.recipe, "hand", &slot, &f.err), &f.err);
    assert_int_equal(slot, 1);
    PI0_ASSERT_OK(pi0_recipe_camera(f.recipe, "thermal", &slot, &f.err), &f.err);
    assert_int_equal(slot, -1);
    assert_string_equal(pi0_recipe_get_facts(f.recipe)->default_prompt, "pick it up, please");
    assert_false(pi0_recipe_get_facts(f.recipe)->required[1]);
    assert_field(&f, "state.flip", "[false,true]");
    assert_origin(&f, "cameras", "--set cameras.base_0_rgb.key=front");
    assert_origin(&f, "action.horizon", "--set");
    fixture_close(&f);
}

static void set_errors_name_the_nearest_field(void **unused)
{
    (void)unused;
    static const struct {
        const char *set, *word, *other;
    } rows[] = {
        {"image.resise=torch", "nearest: image.resize", "image.resise"},
        {"steps", "KEY=VALUE", "steps"},
        {"=3", "KEY=VALUE", ""},
        {"steps=ten", "whole number", "ten"},
        {"steps=5000", "1 to 1000", "5000"},
        {"prompt.rules=bpe", "hf, spm", "bpe"},
        {"action.delta=yes", "true and false", "yes"},
        {"state.mean=1,,2", "numbers", "state.mean"},
        {"state.mean=1,nan", "numbers", "nan"},
        {"cameras.nobody.key=x", "base_0_rgb", "nobody"},
        {"cameras.base_0_rgb.colour=x", "cameras.SLOT.key", "colour"},
        {"cameras=three", "list of", "three"},
        {"cameras.close_up=maybe", "true or false", "maybe"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture f;
        openpi_open(&f, "pi0_droid", false);
        fixture_set(&f, rows[i].set);
        assert_int_equal(fixture_load(&f), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, rows[i].word, rows[i].other, NULL);
        fixture_close(&f);
    }
}

/* ------------------------------------------------------------------ memory */

/* What the hint says, done, makes the recipe load. */
static void hints_lead_somewhere(void **unused)
{
    (void)unused;
    static const struct {
        const char *wrong, *hint, *right[3];
    } rows[] = {{"image.size=448", "--set image.size=224", {"image.size=224"}},
                {"prompt.state=digits", "--set prompt.state=none", {"prompt.state=none"}},
                {"prompt.state=digits", "--set prompt.frame=pi05", {"prompt.frame=pi05", "prompt.newline=none"}},
                {"prompt.frame=pi05", "--set prompt.newline=none", {"prompt.newline=none"}},
                {"cameras.1.key=observation/exterior_image_1_left", "--set cameras.SLOT.key=NAME", {"cameras.1.key=wrist"}},
                {"state.flip=0,0,0,0,0,0,0,0,1", "--set state.flip=VALUE", {"state.flip="}},
                {"model=pi05", "leave --set model out", {"model=pi0"}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture f;
        openpi_open(&f, "pi0_droid", false);
        fixture_set(&f, rows[i].wrong);
        assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
        if (!strstr(f.err.hint, rows[i].hint))
            fail_msg("%s: the hint is %s", rows[i].wrong, f.err.hint);
        for (int k = 0; k < 3 && rows[i].right[k]; k++)
            fixture_set(&f, rows[i].right[k]);
        PI0_ASSERT_OK(fixture_load(&f), &f.err);
        fixture_close(&f);
    }
    fixture f;
    openpi_open(&f, "pi0_droid", false);
    fixture_set(&f, "cameras.0.empty=true");
    fixture_set(&f, "cameras.1.empty=true");
    assert_int_equal(fixture_load(&f), PI0_ERR_MODEL);
    pi0_test_assert_error(&f.err, PI0_ERR_MODEL, "no camera", "--set cameras.0.key=NAME", NULL);
    fixture_set(&f, "cameras.0.key=front");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    fixture_close(&f);
}

static void statistics_lie_below_the_configs_own_asset_id(void **unused)
{
    (void)unused;
    assert_string_equal(pi0_config_asset_id("pi05_aloha_pen_uncap"), "trossen");
    assert_string_equal(pi0_config_asset_id("pi0_aloha_sim"), "lerobot/aloha_sim_transfer_cube_human");
    assert_string_equal(pi0_config_asset_id("pi0_libero_low_mem_finetune"), "physical-intelligence/libero");
    assert_string_equal(pi0_config_asset_id("paligemma_diffusion_droid"), "droid");
    assert_null(pi0_config_asset_id("my_aloha"));
}

static void fail_each_allocation(fixture *f)
{
    for (long n = 1;; n++) {
        pi0_test_fail_allocation(n);
        pi0_status status = pi0_recipe_load(f->checkpoint.dir ? &f->checkpoint : NULL, &f->options, NULL, NULL, &f->recipe, &f->err);
        json_t *described = status == PI0_OK ? pi0_recipe_describe(f->recipe) : NULL;
        json_t *written = status == PI0_OK && described ? pi0_recipe_to_json(f->recipe) : NULL;
        bool failed = pi0_test_allocation_failed();
        if (failed ? status == PI0_OK && described && written : status != PI0_OK || !described || !written)
            fail_msg("allocation %ld: %s", n, failed ? "the failure went unnoticed" : f->err.what);
        if (failed && status != PI0_OK)
            assert_int_equal(status, PI0_ERR_MEMORY);
        json_decref(described);
        json_decref(written);
        pi0_recipe_free(&f->recipe);
        pi0_error_clear(&f->err);
        if (!failed)
            return;
    }
}

static void every_allocation_of_a_load_may_fail(void **unused)
{
    (void)unused;
    fixture f;
    openpi_open(&f, "pi0_aloha_sim", false);
    fixture_set(&f, "cameras.base_0_rgb.key=front");
    fixture_set(&f, "action.robot_names=");
    fail_each_allocation(&f);
    fixture_close(&f);
    fixture_open(&f, pi0_test_data("recipe/lerobot_pi0_Q_relative"), PI0_LAYOUT_LEROBOT, false);
    fail_each_allocation(&f);
    fixture_close(&f);
    char *dir = pi0_test_make_dir();
    golden g;
    golden_open(&g, "lerobot_pi05_rename");
    json_t *written = pi0_recipe_to_json(g.f.recipe);
    char path[600];
    snprintf(path, sizeof path, "%s", pi0_test_path(dir, "r.json"));
    json_dump_file(written, path, 0);
    json_decref(written);
    golden_close(&g);
    fixture_open(&f, NULL, PI0_LAYOUT_OPENPI, false);
    f.options.recipe = path;
    fail_each_allocation(&f);
    fixture_close(&f);
    pi0_test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_of_every_golden_case),
        cmocka_unit_test(a_written_recipe_is_complete_by_itself),
        cmocka_unit_test(every_openpi_config),
        cmocka_unit_test(openpi_aloha_in_full),
        cmocka_unit_test(an_openpi_directory_needs_a_config),
        cmocka_unit_test(a_recipe_file_beside_the_weights_settles_an_openpi_directory),
        cmocka_unit_test(A11_statistics_below_assets),
        cmocka_unit_test(statistics_of_a_dataset_replace_those_of_the_checkpoint),
        cmocka_unit_test(recipe_files_name_what_is_wrong),
        cmocka_unit_test(ones_own_robot_is_described_without_c),
        cmocka_unit_test(hints_lead_somewhere),
        cmocka_unit_test(statistics_lie_below_the_configs_own_asset_id),
        cmocka_unit_test(set_errors_name_the_nearest_field),
        cmocka_unit_test(every_allocation_of_a_load_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
