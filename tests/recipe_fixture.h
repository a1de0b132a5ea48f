/* recipe_fixture - a checkpoint as the recipe reader sees it, without weights, and observations of the reference set. */
#ifndef PI0_TEST_RECIPE_FIXTURE_H
#define PI0_TEST_RECIPE_FIXTURE_H

#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

/* Everything that one load needs and gives. */
typedef struct fixture {
    pi0_checkpoint checkpoint;
    pi0_options options;
    pi0_log log;
    const char *set[16];
    pi0_text lines; /* what was logged, warnings marked "! " */
    pi0_recipe *recipe;
    pi0_error err;
} fixture;

static inline void fixture_log(void *user, pi0_log_level level, const char *text)
{
    pi0_text_add(user, "%s%s\n", level == PI0_LOG_WARNING ? "! " : "", text);
}

/* dir NULL: no checkpoint. */
static inline void fixture_open(fixture *f, const char *dir, pi0_layout layout, bool pi05)
{
    memset(f, 0, sizeof *f);
    f->options = (pi0_options){.set = f->set};
    f->log = (pi0_log){fixture_log, &f->lines};
    f->checkpoint.layout = layout;
    f->checkpoint.arch.pi05 = pi05;
    f->checkpoint.arch.action_dim = 32;
    f->checkpoint.arch.vision.side = 224;
    if (dir)
        f->checkpoint.dir = strdup(dir);
    char *path = dir ? pi0_path_join(dir, "config.json") : NULL;
    if (path && pi0_is_file(path))
        PI0_ASSERT_OK(pi0_json_read(path, PI0_MAX_JSON, &f->checkpoint.config, &f->err), &f->err);
    pi0_free(path);
}

static inline void fixture_set(fixture *f, const char *assignment)
{
    assert_true(f->options.n_set < 16);
    f->set[f->options.n_set++] = assignment;
}

static inline pi0_status fixture_load(fixture *f)
{
    pi0_recipe_free(&f->recipe);
    pi0_error_clear(&f->err);
    pi0_text_release(&f->lines);
    return pi0_recipe_load(f->checkpoint.dir ? &f->checkpoint : NULL, &f->options, &f->log, NULL, &f->recipe, &f->err);
}

static inline void fixture_close(fixture *f)
{
    pi0_recipe_free(&f->recipe);
    pi0_error_clear(&f->err);
    pi0_text_release(&f->lines);
    free(f->checkpoint.dir);
    json_decref(f->checkpoint.config);
}

static inline bool fixture_logged(const fixture *f, const char *text)
{
    return f->lines.data && strstr(f->lines.data, text);
}

/* One field of the description, as compact JSON; free it. */
static inline char *fixture_value(const fixture *f, const char *field, const char *which)
{
    json_t *all = pi0_recipe_describe(f->recipe);
    assert_non_null(all);
    json_t *value = json_object_get(json_object_get(json_object_get(all, "fields"), field), which);
    char *text = json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    json_decref(all);
    return text;
}

static inline void assert_field(const fixture *f, const char *field, const char *value)
{
    char *got = fixture_value(f, field, "value");
    if (!got || strcmp(got, value) != 0)
        fail_msg("%s is %s, not %s", field, got ? got : "(absent)", value);
    free(got);
}

static inline void assert_origin(const fixture *f, const char *field, const char *part)
{
    char *got = fixture_value(f, field, "origin");
    if (!got || !strstr(got, part))
        fail_msg("the origin of %s is \"%s\", without \"%s\"", field, got ? got : "(absent)", part);
    free(got);
}

/* A case of the reference set: its arrays, its manifest entry, its recipe loaded. */
typedef struct golden {
    fixture f;
    json_t *manifest;
    const json_t *info; /* borrowed */
    pi0_arrays *arrays;
    char name[64];
} golden;

static inline const char *golden_text(const golden *g, const char *key)
{
    return json_string_value(json_object_get(g->info, key));
}

static inline void golden_open(golden *g, const char *name)
{
    memset(g, 0, sizeof *g);
    char file[128];
    snprintf(g->name, sizeof g->name, "%s", name);
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_json_read(pi0_test_data("goldens/manifest.json"), PI0_MAX_JSON, &g->manifest, &err), &err);
    g->info = json_object_get(g->manifest, name);
    assert_non_null(g->info);
    snprintf(file, sizeof file, "goldens/%s.npz", name);
    PI0_ASSERT_OK(pi0_arrays_read(pi0_test_data(file), &g->arrays, &err), &err);
    bool openpi = strcmp(golden_text(g, "family"), "openpi") == 0;
    snprintf(file, sizeof file, "recipe/%s", openpi ? "openpi" : golden_text(g, "checkpoint"));
    fixture_open(&g->f, pi0_test_data(file), openpi ? PI0_LAYOUT_OPENPI : PI0_LAYOUT_LEROBOT, strcmp(golden_text(g, "model"), "pi05") == 0);
    g->f.options.config = openpi ? golden_text(g, "config") : NULL;
    PI0_ASSERT_OK(fixture_load(&g->f), &g->f.err);
}

static inline void golden_close(golden *g)
{
    fixture_close(&g->f);
    pi0_arrays_free(&g->arrays);
    json_decref(g->manifest);
}

static inline const pi0_array *golden_array(const golden *g, const char *name)
{
    const pi0_array *array = pi0_arrays_find(g->arrays, name);
    if (!array)
        fail_msg("%s has no array %s", g->name, name);
    return array;
}

static inline const float *golden_f32(const golden *g, const char *name)
{
    assert_int_equal(golden_array(g, name)->dtype, PI0_F32);
    return golden_array(g, name)->data;
}

static inline void golden_state(const golden *g, double *state)
{
    const pi0_array *array = golden_array(g, "state");
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_array_to_f64(array, state, pi0_array_count(array), &err), &err);
}

static const char *const golden_names[] = {
    "openpi_pi0_aloha",         "openpi_pi0_aloha_sim", "openpi_pi0_libero", "openpi_pi0_droid",    "openpi_pi0_long_prompt",
    "openpi_pi05_droid",        "openpi_pi05_libero",   "openpi_pi05_aloha", "lerobot_pi0",         "lerobot_pi0_middle_missing",
    "lerobot_pi0_empty_camera", "lerobot_pi0_relative", "lerobot_pi05",      "lerobot_pi05_rename", "lerobot_pi05_untied",
};
enum { N_GOLDENS = sizeof golden_names / sizeof golden_names[0] };

#endif
