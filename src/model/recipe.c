#include "model/recipe.h"

#include <stdarg.h>
#include <string.h>

/* ------------------------------------------------------------------ the field table */

static const char *const pi0_models[] = {"pi0", "pi05", NULL};
static const char *const pi0_families[] = {"openpi", "lerobot", NULL};
static const char *const pi0_resizes[] = {"pil", "torch", "torch-lerobot04", "top-left", NULL};
static const char *const pi0_grippers[] = {"none", "aloha", "aloha-lerobot03", NULL};
static const char *const pi0_frames[] = {"pi0", "pi05", NULL};
static const char *const pi0_cleans[] = {"openpi", "none", NULL};
static const char *const pi0_newlines[] = {"separate", "ensure", "none", NULL};
static const char *const pi0_prompt_states[] = {"none", "digits", NULL};
static const char *const pi0_overflows[] = {"cut", "error", NULL};
static const char *const pi0_rules[] = {"hf", "spm", NULL};
static const char *const pi0_arithmetics[] = {"openpi", "lerobot", "lerobot-0.3", NULL};
static const char *const pi0_norms[] = {"identity", "mean_std", "quantiles", "quantile10", "min_max", NULL};
static const char *const pi0_schedules[] = {"f32", "f64", NULL};

#define PI0_FIELD_ROW(id, name, type, member, choices, min, max, optional) \
    {name, PI0_TYPE_##type, offsetof(struct pi0_recipe, member), choices, min, max, optional},
static const pi0_field fields[PI0_FIELDS] = {PI0_RECIPE_FIELDS(PI0_FIELD_ROW)};
#undef PI0_FIELD_ROW

const pi0_field *pi0_recipe_field(pi0_field_id id)
{
    return &fields[id];
}

int pi0_recipe_field_find(const char *name)
{
    for (int id = 0; id < PI0_FIELDS; id++)
        if (strcmp(fields[id].name, name) == 0)
            return id;
    return -1;
}

bool pi0_field_is_stat(int id)
{
    return fields[id].type == PI0_TYPE_NUMBERS;
}

pi0_field_id pi0_stat_field(int feature, int stat)
{
    return (pi0_field_id)((feature == PI0_STATE ? PI0_FIELD_STATE_MEAN : PI0_FIELD_ACTION_MEAN) + stat);
}

const char *pi0_stat_name(int stat)
{
    static const char *const names[PI0_STATS] = {"mean", "std", "q01", "q99", "q10", "q90", "min", "max"};
    return names[stat];
}

const char *pi0_feature_name(int feature)
{
    return feature == PI0_STATE ? "state" : "action";
}

/* ------------------------------------------------------------------ origins, questions, warnings */

static char *format_text(const char *format, va_list args)
{
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    return pi0_strdup(text);
}

pi0_status pi0_recipe_origin(pi0_recipe *recipe, int id, pi0_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    if (!text)
        return pi0_fail_memory(err, 512, "the origin of a recipe field");
    pi0_free(recipe->origin[id]);
    recipe->origin[id] = text;
    return PI0_OK;
}

pi0_status pi0_recipe_ask(pi0_recipe *recipe, int id, pi0_error *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    if (!text)
        return pi0_fail_memory(err, 512, "an open question of the recipe");
    pi0_free(recipe->question[id]);
    recipe->question[id] = text;
    return PI0_OK;
}

pi0_status pi0_recipe_warn(pi0_recipe_job *job, pi0_error *err, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pi0_log_warning(job->log, "%s", text);
    if (json_array_append_new(job->recipe->warnings, pi0_json_words(text)) != 0)
        return pi0_fail_memory(err, sizeof text, "a warning about the recipe");
    return PI0_OK;
}

bool pi0_recipe_given(const pi0_recipe *recipe, int id)
{
    return recipe->by_user[id];
}

/* ------------------------------------------------------------------ values that own memory */

pi0_status pi0_names_add(pi0_names *names, const char *text, size_t length, const char *where, pi0_error *err)
{
    if (names->n == PI0_MAX_DIM || length > PI0_MAX_NAME) {
        pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "a list of names is too long");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "at most %d names of at most %d bytes", PI0_MAX_DIM, PI0_MAX_NAME);
        return status;
    }
    char *copy = pi0_alloc(length + 1);
    if (!copy)
        return pi0_fail_memory(err, length + 1, "a name of the recipe");
    memcpy(copy, text, length);
    names->v[names->n++] = copy;
    return PI0_OK;
}

void pi0_names_clear(pi0_names *names)
{
    while (names->n > 0)
        pi0_free(names->v[--names->n]);
}

pi0_status pi0_cameras_add(pi0_cameras *cameras, const char *slot, const char *key, bool empty, bool required, const char *where,
                           pi0_error *err)
{
    if (cameras->n == PI0_MAX_CAMERAS) {
        pi0_status status = pi0_fail(err, PI0_ERR_UNSUPPORTED, "too many cameras");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "at most %d camera slots", PI0_MAX_CAMERAS);
        pi0_err_got(err, "another one: %s", slot);
        return status;
    }
    pi0_recipe_camera_slot *camera = &cameras->v[cameras->n];
    *camera = (pi0_recipe_camera_slot){pi0_strdup(slot), pi0_strdup(empty ? "" : key), empty, required};
    cameras->n++;
    if (!camera->slot || !camera->key)
        return pi0_fail_memory(err, strlen(slot) + strlen(key) + 2, "a camera of the recipe");
    return PI0_OK;
}

void pi0_cameras_clear(pi0_cameras *cameras)
{
    while (cameras->n > 0) {
        cameras->n--;
        pi0_free(cameras->v[cameras->n].slot);
        pi0_free(cameras->v[cameras->n].key);
    }
}

void pi0_flags_from_runs(pi0_flags *flags, const int *runs)
{
    flags->n = 0;
    for (; *runs != 0; runs++)
        for (int i = 0; i < (*runs > 0 ? *runs : -*runs) && flags->n < PI0_MAX_DIM; i++)
            flags->v[flags->n++] = *runs > 0;
}

/* ------------------------------------------------------------------ loading */

static pi0_status recipe_new(pi0_recipe **out, pi0_error *err)
{
    *out = NULL;
    pi0_recipe *recipe = pi0_alloc(sizeof *recipe);
    if (recipe) {
        recipe->warnings = json_array();
        recipe->seen_keys = json_array();
    }
    if (!recipe || !recipe->warnings || !recipe->seen_keys) {
        pi0_recipe_free(&recipe);
        return pi0_fail_memory(err, sizeof *recipe, "the recipe");
    }
    *out = recipe;
    return PI0_OK;
}

void pi0_recipe_free(pi0_recipe **pointer)
{
    if (!pointer || !*pointer)
        return;
    pi0_recipe *recipe = *pointer;
    pi0_cameras_clear(&recipe->cameras);
    pi0_names_clear(&recipe->ignored);
    for (int f = 0; f < PI0_FEATURES; f++) {
        pi0_names_clear(&recipe->names[f]);
        pi0_names_clear(&recipe->robot_names[f]);
    }
    pi0_free(recipe->default_prompt);
    for (int id = 0; id < PI0_FIELDS; id++) {
        pi0_free(recipe->origin[id]);
        pi0_free(recipe->question[id]);
    }
    json_decref(recipe->warnings);
    json_decref(recipe->seen_keys);
    pi0_free(recipe);
    *pointer = NULL;
}

/* The file that settles a directory once and for all, whatever its layout. */
#define PI0_RECIPE_FILE "pi0_recipe.json"

static pi0_status load_source(pi0_recipe_job *job, pi0_error *err)
{
    const pi0_options *options = job->options;
    const pi0_checkpoint *checkpoint = job->checkpoint;
    if (options->recipe && options->config) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "a recipe file and a config name were both given");
        pi0_err_where(err, "--recipe %s, --config %s", options->recipe, options->config);
        pi0_err_hint(err, "a recipe file is the whole of it; leave one of the two out");
        return status;
    }
    if (options->recipe)
        return pi0_recipe_read(job, options->recipe, err);
    if (options->config)
        return pi0_recipe_from_config(job, options->config, err);
    if (!checkpoint)
        return pi0_recipe_fail_no_config(job, err);
    if (checkpoint->packed)
        return pi0_recipe_read_packed(job, err);
    if (checkpoint->dir) {
        char *path = pi0_path_join(checkpoint->dir, PI0_RECIPE_FILE);
        if (!path)
            return pi0_fail_memory(err, strlen(checkpoint->dir), "a path");
        pi0_status status = pi0_exists(path) ? pi0_recipe_read(job, path, err) : PI0_OK;
        bool found = job->recipe->origin[PI0_FIELD_MODEL] != NULL;
        pi0_free(path);
        if (found || status != PI0_OK)
            return status;
    }
    /* Published LeRobot bases have openpi's tensor names: the config's "type" tells them apart. */
    bool typed = checkpoint->config && json_object_get(checkpoint->config, "type");
    if (checkpoint->layout == PI0_LAYOUT_OPENPI && !typed)
        return pi0_recipe_fail_no_config(job, err);
    if (!checkpoint->config) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "the checkpoint has no config.json beside it");
        pi0_err_where(err, "%s", checkpoint->dir ? checkpoint->dir : "(no directory)");
        pi0_err_expected(err, "LeRobot's config.json, policy_preprocessor.json and policy_postprocessor.json");
        pi0_err_hint(err, "give the directory instead of the .safetensors file, or describe the robot with --recipe FILE.json");
        return status;
    }
    return pi0_recipe_from_lerobot(job, checkpoint->config, err);
}

static pi0_status apply_flags(pi0_recipe_job *job, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    const pi0_options *options = job->options;
    if (options->norm_stats) {
        for (int f = 0; f < PI0_FEATURES; f++)
            pi0_stats_clear(recipe, f);
        PI0_TRY(pi0_stats_read(job, options->norm_stats, "--norm-stats", err));
    }
    for (size_t i = 0; i < options->n_set; i++)
        PI0_TRY(pi0_recipe_set(recipe, options->set[i], err));
    if (options->no_norm) {
        recipe->norm[PI0_STATE] = recipe->norm[PI0_ACTION] = PI0_NORM_IDENTITY;
        PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_NORM_STATE, err, "--no-norm"));
        PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_NORM_ACTION, err, "--no-norm"));
    }
    return PI0_OK;
}

pi0_status pi0_recipe_load(const pi0_checkpoint *checkpoint, const pi0_options *options, const pi0_log *log, json_t *problems,
                           pi0_recipe **out, pi0_error *err)
{
    pi0_status status = PI0_OK;
    pi0_recipe_job job = {.checkpoint = checkpoint, .options = options, .log = log, .problems = problems};
    *out = NULL;
    PI0_TRY(recipe_new(&job.recipe, err));
    PI0_TRY_GOTO(pi0_recipe_note_sets(&job, err));
    PI0_TRY_GOTO(load_source(&job, err));
    PI0_TRY_GOTO(apply_flags(&job, err));
    PI0_TRY_GOTO(pi0_recipe_check(&job, err));
    *out = job.recipe;
    return PI0_OK;
fail:
    pi0_recipe_free(&job.recipe);
    return status;
}

const pi0_recipe_facts *pi0_recipe_get_facts(const pi0_recipe *recipe)
{
    return &recipe->facts;
}

/* ------------------------------------------------------------------ describing */

json_t *pi0_recipe_describe(const pi0_recipe *recipe)
{
    json_t *fields_json = json_object();
    for (int id = 0; fields_json && id < PI0_FIELDS; id++) {
        if (pi0_field_is_stat(id) || !recipe->origin[id])
            continue;
        json_t *entry = json_object();
        bool failed = json_object_set_new(entry, "value", pi0_recipe_value_json(recipe, id)) != 0 ||
                      json_object_set_new(entry, "origin", pi0_json_words(recipe->origin[id])) != 0;
        if (failed)
            json_decref(entry);
        if (failed || json_object_set_new(fields_json, fields[id].name, entry) != 0) {
            json_decref(fields_json);
            fields_json = NULL;
        }
    }
    json_t *all = json_object();
    bool failed = json_object_set_new(all, "fields", fields_json) != 0;
    failed |= json_object_set_new(all, "statistics", pi0_stats_describe(recipe)) != 0;
    failed |= json_object_set(all, "warnings", recipe->warnings) != 0;
    if (!failed)
        return all;
    json_decref(all);
    return NULL;
}

json_t *pi0_recipe_origins(const pi0_recipe *recipe)
{
    json_t *origins = json_object();
    for (int id = 0; origins && id < PI0_FIELDS; id++)
        if (recipe->origin[id] && json_object_set_new(origins, fields[id].name, pi0_json_words(recipe->origin[id])) != 0) {
            json_decref(origins);
            origins = NULL;
        }
    return origins;
}

/* ------------------------------------------------------------------ cameras by name */

static bool ends_with_key(const char *key, const char *name)
{
    size_t have = strlen(key), want = strlen(name);
    if (want >= have || strcmp(key + have - want, name) != 0)
        return false;
    char before = key[have - want - 1];
    if (before == '/')
        return true;
    /* "top" for "observation.images.top", but not "0_rgb" after any other dot of a longer name */
    return before == '.' &&
           (strncmp(key, "observation.images.", 19) == 0 ? have - want == 19 : strncmp(key, "observation.", 12) == 0 && have - want == 12);
}

static pi0_status camera_unknown(const pi0_recipe *recipe, const char *name, const char *what, pi0_error *err)
{
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "%s: %s", what, name);
    pi0_err_where(err, "camera name");
    pi0_text list = {0};
    for (int i = 0; i < recipe->cameras.n; i++) {
        const pi0_recipe_camera_slot *camera = &recipe->cameras.v[i];
        if (camera->empty)
            continue;
        pi0_err_item(err, "%s (slot %s%s)", camera->key, camera->slot, camera->required ? ", required" : "");
        pi0_text_add(&list, "%s%s", list.length ? ", " : "", camera->key);
    }
    pi0_err_expected(err, "one of %s", list.data ? list.data : "(no cameras)");
    pi0_err_got(err, "%s", name);
    pi0_err_hint(err, "use the robot's own key or the slot's name; --set cameras.SLOT.key=NAME gives a slot another key");
    pi0_text_release(&list);
    return status;
}

pi0_status pi0_recipe_camera(const pi0_recipe *recipe, const char *name, int *slot, pi0_error *err)
{
    int found = -1;
    *slot = -1;
    for (int i = 0; i < recipe->cameras.n; i++)
        if (!recipe->cameras.v[i].empty && strcmp(recipe->cameras.v[i].key, name) == 0) {
            *slot = i;
            return PI0_OK;
        }
    for (int i = 0; i < recipe->cameras.n; i++) {
        const pi0_recipe_camera_slot *camera = &recipe->cameras.v[i];
        bool own =
            strcmp(camera->slot, name) == 0 || (strncmp(name, "observation.images.", 19) == 0 && strcmp(camera->slot, name + 19) == 0);
        if (!own && (camera->empty || !ends_with_key(camera->key, name)))
            continue;
        if (own && camera->empty)
            return camera_unknown(recipe, name, "this slot is an empty camera: it takes no picture", err);
        if (found >= 0 && found != i)
            return camera_unknown(recipe, name, "the name fits two cameras, a key of one and the slot of another", err);
        found = i;
    }
    if (found >= 0) {
        *slot = found;
        return PI0_OK;
    }
    for (int i = 0; i < recipe->ignored.n; i++)
        if (strcmp(recipe->ignored.v[i], name) == 0)
            return PI0_OK;
    return camera_unknown(recipe, name, "no camera of this name", err);
}
