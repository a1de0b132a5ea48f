/* One JSON object holds the small files of a checkpoint (see corpus/fuzz_recipe): "config", "pre", "post", "recipe", "stats" go to files of
 * a temporary directory, "openpi" is a config name, "set" a list of KEY=VALUE, "layout" a number. What loads is then used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FILES = 5, MAX_SETS = 8 };
static const char *const members[FILES] = {"config", "pre", "post", "recipe", "stats"};
static const char *const names[FILES] = {"config.json", "policy_preprocessor.json", "policy_postprocessor.json", "recipe.json",
                                         "stats.json"};
static char dir[64];

static void clean(void)
{
    char path[128];
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
}

static void leave(void)
{
    clean();
    rmdir(dir);
}

static void prepare(void)
{
    if (*dir)
        return;
    snprintf(dir, sizeof dir, "/tmp/pi0-fuzz-recipe-XXXXXX");
    if (!mkdtemp(dir))
        abort();
    atexit(leave);
}

static void use(const pi0_recipe *recipe)
{
    double raw[PI0_MAX_DIM] = {0.25, -1}, text[PI0_MAX_DIM], out[2 * PI0_MAX_DIM];
    float padded[PI0_MAX_DIM], actions[2 * PI0_MAX_DIM] = {0.5f, -0.5f};
    pi0_error err = {0};
    int slot;
    const pi0_recipe_facts *facts = pi0_recipe_get_facts(recipe);
    pi0_recipe_state(recipe, raw, PI0_MAX_DIM, padded, text, &err);
    pi0_recipe_actions(recipe, actions, 2, PI0_MAX_DIM, raw, out, &err);
    for (int i = 0; i < facts->n_slots; i++)
        if (!facts->empty[i] && (pi0_recipe_camera(recipe, facts->keys[i], &slot, &err) != PI0_OK || slot != i))
            __builtin_trap();
    json_t *described = pi0_recipe_describe(recipe), *written = pi0_recipe_to_json(recipe);
    if (!described || !written)
        __builtin_trap();
    json_decref(described);
    json_decref(written);
    pi0_error_clear(&err);
}

static void load(const pi0_checkpoint *checkpoint, const pi0_options *options, json_t *problems)
{
    pi0_error err = {0};
    pi0_recipe *recipe = NULL;
    if (pi0_recipe_load(checkpoint, options, NULL, problems, &recipe, &err) == PI0_OK)
        use(recipe);
    else if (recipe || !err.what[0])
        __builtin_trap();
    pi0_recipe_free(&recipe);
    pi0_error_clear(&err);
}

static void try_checkpoint(const json_t *root)
{
    char recipe[128], stats[128];
    const char *set[MAX_SETS];
    const json_t *sets = json_object_get(root, "set");
    pi0_options options = {.set = set, .config = json_string_value(json_object_get(root, "openpi"))};
    snprintf(recipe, sizeof recipe, "%s/recipe.json", dir);
    snprintf(stats, sizeof stats, "%s/stats.json", dir);
    for (size_t i = 0; i < json_array_size(sets) && options.n_set < MAX_SETS; i++)
        if (json_is_string(json_array_get(sets, i)))
            set[options.n_set++] = json_string_value(json_array_get(sets, i));
    options.recipe = json_object_get(root, "recipe") ? recipe : NULL;
    options.norm_stats = json_object_get(root, "stats") ? stats : NULL;
    json_t *config = json_object_get(root, "config");
    pi0_checkpoint checkpoint = {.dir = dir, .config = json_is_object(config) ? config : NULL};
    checkpoint.layout = (pi0_layout)((unsigned)json_integer_value(json_object_get(root, "layout")) % 3);
    json_t *problems = json_array();
    load(&checkpoint, &options, NULL);
    load(&checkpoint, &options, problems);
    json_decref(problems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pi0_error err = {0};
    json_t *root = NULL;
    prepare();
    if (pi0_json_parse((const char *)data, size, "input", &root, &err) == PI0_OK && json_is_object(root)) {
        for (int i = 0; i < FILES; i++) {
            char path[128];
            const json_t *member = json_object_get(root, members[i]);
            snprintf(path, sizeof path, "%s/%s", dir, names[i]);
            if (member)
                json_dump_file(member, path, JSON_ENCODE_ANY);
        }
        try_checkpoint(root);
        clean();
    }
    json_decref(root);
    pi0_error_clear(&err);
    return 0;
}
