/* openpi: what its named training configs say, as data, and where its checkpoints keep statistics.
 * Reference: openpi src/openpi/training/config.py and misc/, policies/{aloha,droid,libero}_policy.py. */
#include "model/recipe.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ the robots */

typedef struct robot {
    const char *name; /* openpi's adapter */
    int state_dim, action_dim;
    const char *keys[3]; /* of base_0_rgb, left_wrist_0_rgb, right_wrist_0_rgb; NULL: that slot stays masked */
    bool required[3];
    const char *ignored;
    bool adapt; /* ALOHA's joint signs and gripper ranges */
} robot;

static const robot aloha = {"aloha", 14, 14, {"cam_high", "cam_left_wrist", "cam_right_wrist"}, {true, false, false}, "cam_low", true};
static const robot droid = {
    "droid", 8, 8, {"observation/exterior_image_1_left", "observation/wrist_image_left", NULL}, {true, true, false}, NULL, false};
static const robot libero = {"libero", 8, 7, {"observation/image", "observation/wrist_image", NULL}, {true, true, false}, NULL, false};

static const char *const slot_names[3] = {"base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"};
static const int aloha_flips[] = {-1, 2, -5, 2, -4, 0}; /* runs: joints 1, 2, 8, 9 */

/* ------------------------------------------------------------------ the configs */

typedef struct config {
    const char *name;
    bool pi05;
    int horizon, max_tokens;
    const robot *robot;
    const char *asset_id;
    int delta[5]; /* runs, 0 ends */
    const char *prompt;
    bool state_in_prompt;
} config;

#define ALOHA_DELTA     \
    {                   \
        6, -1, 6, -1, 0 \
    }
#define ARM7_DELTA \
    {              \
        7, -1, 0   \
    }
#define ARM6_DELTA \
    {              \
        6, -1, 0   \
    }
#define NO_DELTA \
    {            \
        0        \
    }
#define LIBERO_ID "physical-intelligence/libero"

static const config configs[] = {
    {"pi0_aloha", false, 50, 48, &aloha, "trossen", ALOHA_DELTA, NULL, false},
    {"pi05_aloha", true, 50, 200, &aloha, "trossen", ALOHA_DELTA, NULL, true},
    {"pi0_aloha_towel", false, 50, 48, &aloha, "trossen", ALOHA_DELTA, "fold the towel", false},
    {"pi0_aloha_tupperware", false, 50, 48, &aloha, "trossen", ALOHA_DELTA, "open the tupperware and put the food on the plate", false},
    {"pi0_aloha_pen_uncap", false, 50, 48, &aloha, "trossen", ALOHA_DELTA, "uncap the pen", false},
    {"pi05_aloha_pen_uncap", true, 50, 200, &aloha, "trossen", ALOHA_DELTA, "uncap the pen", true},
    {"pi0_aloha_sim", false, 50, 48, &aloha, "lerobot/aloha_sim_transfer_cube_human", NO_DELTA, "Transfer cube", false},
    {"pi0_droid", false, 10, 48, &droid, "droid", NO_DELTA, NULL, false},
    {"pi05_droid", true, 15, 200, &droid, "droid", NO_DELTA, NULL, true},
    {"pi05_droid_finetune", true, 16, 200, &droid, "droid", NO_DELTA, NULL, true},
    {"pi05_full_droid_finetune", true, 16, 200, &droid, "droid", ARM7_DELTA, NULL, true},
    {"pi05_droid_jointpos_polaris", true, 15, 200, &droid, "droid", ARM7_DELTA, NULL, true},
    {"pi0_droid_jointpos_polaris", false, 10, 100, &droid, "droid", ARM7_DELTA, NULL, false},
    {"pi0_droid_jointpos_100k_polaris", false, 10, 100, &droid, "droid", ARM7_DELTA, NULL, false},
    {"paligemma_diffusion_droid", false, 10, 48, &droid, "droid", NO_DELTA, NULL, false},
    {"pi0_libero", false, 50, 48, &libero, LIBERO_ID, ARM6_DELTA, NULL, false},
    {"pi0_libero_low_mem_finetune", false, 50, 48, &libero, LIBERO_ID, ARM6_DELTA, NULL, false},
    {"pi05_libero", true, 10, 200, &libero, LIBERO_ID, NO_DELTA, NULL, false},
};
enum { N_CONFIGS = sizeof configs / sizeof configs[0] };

/* Autoregressive models under openpi's registry: another architecture, refused by name. */
static const char *const autoregressive[] = {
    "pi0_fast_droid",
    "pi0_fast_libero",
    "pi0_fast_libero_low_mem_finetune",
    "pi0_fast_full_droid_finetune",
    "pi0_fast_droid_jointpos_polaris",
    "paligemma_binning_droid",
    "paligemma_binning_droid_jointpos",
    "paligemma_fast_droid",
    "paligemma_fast_specialist_droid",
    "paligemma_vq_droid",
};

static void list_configs(const pi0_recipe_job *job, pi0_error *err)
{
    int known = job->checkpoint && job->checkpoint->arch.action_dim > 0 ? (int)job->checkpoint->arch.pi05 : -1;
    for (int i = 0; i < N_CONFIGS; i++)
        if (known < 0 || configs[i].pi05 == (known == 1))
            pi0_err_item(err, "%s (%s, %s)", configs[i].name, configs[i].robot->name, configs[i].pi05 ? "pi05" : "pi0");
}

pi0_status pi0_recipe_fail_no_config(const pi0_recipe_job *job, pi0_error *err)
{
    pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "the files do not say which robot this model is for");
    pi0_err_where(err, "%s", job->checkpoint && job->checkpoint->dir ? job->checkpoint->dir : "options");
    pi0_err_expected(err, "--config with an openpi config name, or --recipe FILE.json");
    pi0_err_got(err, "%s", job->checkpoint ? "an openpi checkpoint, which carries neither" : "neither");
    pi0_err_hint(err, "give --config NAME, one of the list below; for one's own robot start from "
                      "pi0 inspect MODEL --config NAME --write-recipe FILE.json and give it back with --recipe");
    list_configs(job, err);
    return status;
}

static const config *config_named(const char *name)
{
    for (int i = 0; i < N_CONFIGS; i++)
        if (strcmp(configs[i].name, name) == 0)
            return &configs[i];
    return NULL;
}

const char *pi0_config_asset_id(const char *config_name)
{
    const config *c = config_named(config_name);
    return c ? c->asset_id : NULL;
}

static pi0_status find_config(const pi0_recipe_job *job, const char *name, const config **out, pi0_error *err)
{
    *out = config_named(name);
    if (*out)
        return PI0_OK;
    for (size_t i = 0; i < sizeof autoregressive / sizeof autoregressive[0]; i++)
        if (strcmp(autoregressive[i], name) == 0) {
            pi0_status status =
                pi0_fail(err, PI0_ERR_UNSUPPORTED, "%s is an autoregressive model (pi0-FAST and its kin), which pi0.c does not run", name);
            pi0_err_where(err, "--config %s", name);
            pi0_err_expected(err, "a config of a flow-matching model: pi0 or pi05");
            list_configs(job, err);
            return status;
        }
    int best = 0;
    for (int i = 1; i < N_CONFIGS; i++)
        if (pi0_name_distance(name, configs[i].name) < pi0_name_distance(name, configs[best].name))
            best = i;
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "no openpi config is called %.200s", name);
    pi0_err_where(err, "--config %.200s", name);
    pi0_err_expected(err, "one of the names below");
    pi0_err_got(err, "%.200s", name);
    pi0_err_hint(err,
                 "nearest: %s; a config of one's own is described by a recipe file: pi0 inspect MODEL --config NAME --write-recipe "
                 "FILE.json, then --recipe",
                 configs[best].name);
    list_configs(job, err);
    return status;
}

/* ------------------------------------------------------------------ config -> recipe */

static pi0_status fill_robot(pi0_recipe_job *job, const config *c, const char *origin, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    const robot *r = c->robot;
    pi0_cameras_clear(&recipe->cameras);
    for (int i = 0; i < 3; i++)
        PI0_TRY(pi0_cameras_add(&recipe->cameras, slot_names[i], r->keys[i] ? r->keys[i] : "", !r->keys[i], r->required[i], origin, err));
    pi0_names_clear(&recipe->ignored);
    if (r->ignored) {
        PI0_TRY(pi0_names_add(&recipe->ignored, r->ignored, strlen(r->ignored), origin, err));
        PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_IGNORED, err, "%s", origin));
    }
    recipe->dim[PI0_STATE] = r->state_dim;
    recipe->dim[PI0_ACTION] = r->action_dim;
    for (int f = 0; f < PI0_FEATURES; f++) {
        recipe->gripper[f] = r->adapt ? PI0_GRIPPER_ALOHA : PI0_GRIPPER_NONE;
        if (!r->adapt)
            continue;
        pi0_flags_from_runs(&recipe->flip[f], aloha_flips);
        recipe->gripper_at[f] = (pi0_indices){2, {6, 13}};
    }
    pi0_flags_from_runs(&recipe->delta, c->delta);
    return PI0_OK;
}

static pi0_status fill_config(pi0_recipe_job *job, const config *c, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    char origin[128];
    snprintf(origin, sizeof origin, "openpi config %s", c->name);
    PI0_TRY(fill_robot(job, c, origin, err));
    if (c->prompt) {
        recipe->default_prompt = pi0_strdup(c->prompt);
        if (!recipe->default_prompt)
            return pi0_fail_memory(err, strlen(c->prompt), "the default prompt");
    }
    recipe->model = c->pi05;
    recipe->horizon = c->horizon;
    recipe->max_tokens = c->max_tokens;
    recipe->frame = c->state_in_prompt ? PI0_FRAME_PI05 : PI0_FRAME_PI0;
    recipe->prompt_state = c->state_in_prompt ? PI0_STATE_DIGITS : PI0_STATE_NONE;
    recipe->newline = c->state_in_prompt ? PI0_NEWLINE_NONE : PI0_NEWLINE_SEPARATE;
    recipe->norm[PI0_STATE] = recipe->norm[PI0_ACTION] = c->pi05 ? PI0_NORM_QUANTILES : PI0_NORM_MEAN_STD;
    static const pi0_field_id by_config[] = {
        PI0_FIELD_MODEL,
        PI0_FIELD_CAMERAS,
        PI0_FIELD_STATE_DIM,
        PI0_FIELD_STATE_FLIP,
        PI0_FIELD_STATE_GRIPPER,
        PI0_FIELD_STATE_GRIPPER_AT,
        PI0_FIELD_FRAME,
        PI0_FIELD_NEWLINE,
        PI0_FIELD_PROMPT_STATE,
        PI0_FIELD_MAX_TOKENS,
        PI0_FIELD_DEFAULT_PROMPT,
        PI0_FIELD_ACTION_DIM,
        PI0_FIELD_HORIZON,
        PI0_FIELD_DELTA,
        PI0_FIELD_ACTION_FLIP,
        PI0_FIELD_ACTION_GRIPPER,
        PI0_FIELD_ACTION_GRIPPER_AT,
    };
    for (size_t i = 0; i < sizeof by_config / sizeof by_config[0]; i++)
        PI0_TRY(pi0_recipe_origin(recipe, by_config[i], err, "%s", origin));
    PI0_TRY(pi0_recipe_origin(recipe, PI0_FIELD_NORM_STATE, err, "rule: openpi uses %s with %s", c->pi05 ? "quantiles" : "mean and std",
                              c->pi05 ? "pi05" : "pi0"));
    return pi0_recipe_origin(recipe, PI0_FIELD_NORM_ACTION, err, "%s", recipe->origin[PI0_FIELD_NORM_STATE]);
}

/* What holds for every model that openpi serves. */
static pi0_status fill_family(pi0_recipe_job *job, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    recipe->family = PI0_FAMILY_OPENPI;
    recipe->close_up = false;
    recipe->resize = PI0_RESIZE_PIL;
    recipe->image_size = 224;
    recipe->clean = PI0_CLEAN_OPENPI;
    recipe->state_pad = 0;
    recipe->overflow = PI0_OVERFLOW_CUT;
    recipe->rules = PI0_RULES_SPM;
    recipe->arithmetic = PI0_ARITHMETIC_OPENPI;
    recipe->epsilon = 1e-6;
    recipe->steps = 10;
    recipe->schedule = PI0_SCHEDULE_F32;
    recipe->min_period = 4e-3;
    recipe->max_period = 4.0;
    static const struct {
        pi0_field_id id;
        const char *origin;
    } rules[] = {
        {PI0_FIELD_FAMILY, "rule: the config is openpi's"},
        {PI0_FIELD_CLOSE_UP, "rule: openpi masks an absent camera in its own slot"},
        {PI0_FIELD_RESIZE, "rule: openpi resizes with PIL"},
        {PI0_FIELD_IMAGE_SIZE, "rule: openpi resizes to 224"},
        {PI0_FIELD_CLEAN, "rule: openpi cleans the prompt"},
        {PI0_FIELD_STATE_PAD, "rule: openpi writes the robot's own dims"},
        {PI0_FIELD_OVERFLOW, "rule: openpi cuts the prompt with a warning"},
        {PI0_FIELD_RULES, "rule: openpi tokenizes with SentencePiece"},
        {PI0_FIELD_ARITHMETIC, "rule: openpi normalises in f64"},
        {PI0_FIELD_EPSILON, "rule: openpi adds 1e-6 both ways"},
        {PI0_FIELD_STEPS, "rule: openpi's default"},
        {PI0_FIELD_SCHEDULE, "rule: openpi adds dt in f32"},
        {PI0_FIELD_MIN_PERIOD, "rule: fixed in openpi"},
        {PI0_FIELD_MAX_PERIOD, "rule: fixed in openpi"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        PI0_TRY(pi0_recipe_origin(recipe, rules[i].id, err, "%s", rules[i].origin));
    const pi0_checkpoint *checkpoint = job->checkpoint;
    if (!checkpoint || checkpoint->arch.vision.side <= 0 || checkpoint->arch.vision.side == recipe->image_size)
        return PI0_OK;
    recipe->image_size = checkpoint->arch.vision.side;
    return pi0_recipe_origin(recipe, PI0_FIELD_IMAGE_SIZE, err, "tensors: position_embedding (openpi itself always uses 224)");
}

/* ------------------------------------------------------------------ assets/<id>/norm_stats.json */

enum { MAX_ASSETS = 64, ASSET_DEPTH = 4 };

typedef struct assets {
    int n;
    char *id[MAX_ASSETS]; /* owned; relative to assets/ */
} assets;

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static pi0_status find_assets(const char *root, const char *below, int depth, assets *found, pi0_error *err)
{
    char *dir = *below ? pi0_path_join(root, below) : pi0_strdup(root);
    char *file = dir ? pi0_path_join(dir, "norm_stats.json") : NULL;
    pi0_status status = file ? PI0_OK : pi0_fail_memory(err, 256, "a path");
    if (file && *below && pi0_exists(file) && found->n < MAX_ASSETS) {
        found->id[found->n] = pi0_strdup(below);
        if (found->id[found->n])
            found->n++;
        else
            status = pi0_fail_memory(err, strlen(below), "a path");
    }
    DIR *handle = status == PI0_OK && depth < ASSET_DEPTH ? opendir(dir) : NULL;
    if (status == PI0_OK && depth < ASSET_DEPTH && !handle && errno != ENOENT && errno != ENOTDIR)
        status = errno == ENOMEM ? pi0_fail_memory(err, 32768, "a directory") : pi0_fail_errno(err, "read the directory", dir);
    struct dirent *entry;
    while (handle && status == PI0_OK && found->n < MAX_ASSETS && (entry = readdir(handle)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        char *next = *below ? pi0_path_join(below, entry->d_name) : pi0_strdup(entry->d_name);
        char *path = next ? pi0_path_join(root, next) : NULL;
        if (!path)
            status = pi0_fail_memory(err, 256, "a path");
        else if (pi0_is_dir(path))
            status = find_assets(root, next, depth + 1, found, err);
        pi0_free(next);
        pi0_free(path);
    }
    if (handle)
        closedir(handle);
    pi0_free(dir);
    pi0_free(file);
    return status;
}

static bool safe_relative(const char *path)
{
    if (!*path || *path == '/')
        return false;
    for (const char *part = path; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL)
        if (strncmp(part, "..", 2) == 0 && (part[2] == '/' || part[2] == 0))
            return false;
    return true;
}

static pi0_status fail_assets(const assets *found, const char *root, const char *wanted, bool by_option, pi0_error *err)
{
    pi0_status status = pi0_fail(err, by_option ? PI0_ERR_ARGUMENT : PI0_ERR_MODEL, "which statistics to use is not settled");
    pi0_err_where(err, "%s", root);
    pi0_err_expected(err, "%s/norm_stats.json (%s)", wanted, by_option ? "--asset-id" : "the config's asset id");
    pi0_err_got(err, found->n ? "%d others" : "no statistics there", found->n);
    pi0_err_hint(err, "%s--norm-stats FILE",
                 found->n ? "name one of the list with --asset-id ID, or give a file with " : "give a file with ");
    for (int i = 0; i < found->n; i++)
        pi0_err_item(err, "%s", found->id[i]);
    return status;
}

/* Fills *path with the file to read, or leaves it NULL when there is none at all. */
static pi0_status choose_asset(pi0_recipe_job *job, const char *root, const char *config_id, assets *found, char **path, pi0_error *err)
{
    const char *asked = job->options->asset_id;
    const char *wanted = asked ? asked : config_id;
    if (!safe_relative(wanted)) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "an asset id names a folder below assets/");
        pi0_err_where(err, "--asset-id %.200s", wanted);
        return status;
    }
    PI0_TRY(find_assets(root, "", 0, found, err));
    qsort(found->id, (size_t)found->n, sizeof found->id[0], by_name);
    const char *use = NULL;
    for (int i = 0; i < found->n; i++)
        if (strcmp(found->id[i], wanted) == 0)
            use = found->id[i];
    if (!use && (asked || found->n > 1)) /* what was asked for is not replaced */
        return fail_assets(found, root, wanted, asked != NULL, err);
    if (!use && found->n == 1) {
        use = found->id[0];
        PI0_TRY(pi0_recipe_warn(job, err, "the config's statistics (assets/%s) are not there; assets/%s, the only ones present, are used",
                                wanted, use));
    }
    if (!use)
        return PI0_OK;
    char *dir = pi0_path_join(root, use);
    *path = dir ? pi0_path_join(dir, "norm_stats.json") : NULL;
    pi0_free(dir);
    return *path ? PI0_OK : pi0_fail_memory(err, 256, "a path");
}

static pi0_status load_assets(pi0_recipe_job *job, const char *config_id, pi0_error *err)
{
    const char *dir = job->checkpoint ? job->checkpoint->dir : NULL;
    if (job->options->norm_stats || !dir)
        return PI0_OK;
    assets found = {0};
    char *path = NULL, *root = pi0_path_join(dir, "assets");
    pi0_status status = root ? choose_asset(job, root, config_id, &found, &path, err) : pi0_fail_memory(err, 256, "a path");
    if (status == PI0_OK && !path) {
        path = pi0_path_join(dir, "norm_stats.json");
        if (!path)
            status = pi0_fail_memory(err, 256, "a path");
        else if (!pi0_exists(path)) {
            pi0_free(path);
            path = NULL;
        }
    }
    if (status == PI0_OK && path) {
        const char *origin = strncmp(path, dir, strlen(dir)) == 0 ? path + strlen(dir) : path;
        status = pi0_stats_read(job, path, *origin == '/' ? origin + 1 : origin, err);
    }
    for (int i = 0; i < found.n; i++)
        pi0_free(found.id[i]);
    pi0_free(path);
    pi0_free(root);
    return status;
}

/* ------------------------------------------------------------------ */

static pi0_status compare_config_json(pi0_recipe_job *job, const config *c, pi0_error *err)
{
    const json_t *file = job->checkpoint ? job->checkpoint->config : NULL;
    const json_t *horizon = json_object_get(file, "action_horizon");
    if (json_is_integer(horizon) && json_integer_value(horizon) != c->horizon)
        return pi0_recipe_warn(job, err,
                               "config.json says action_horizon %d, the config %s says %d; the config stands (--set action.horizon=N)",
                               (int)json_integer_value(horizon), c->name, c->horizon);
    return PI0_OK;
}

pi0_status pi0_recipe_from_config(pi0_recipe_job *job, const char *name, pi0_error *err)
{
    const config *c = NULL;
    PI0_TRY(find_config(job, name, &c, err));
    const pi0_checkpoint *checkpoint = job->checkpoint;
    if (checkpoint && checkpoint->arch.action_dim > 0 && checkpoint->arch.pi05 != c->pi05) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "the config is for another model than the weights are");
        pi0_err_where(err, "--config %s", name);
        pi0_err_expected(err, "a %s config: the tensors are %s's", checkpoint->arch.pi05 ? "pi05" : "pi0",
                         checkpoint->arch.pi05 ? "pi05" : "pi0");
        pi0_err_got(err, "%s, a %s config", name, c->pi05 ? "pi05" : "pi0");
        list_configs(job, err);
        return status;
    }
    PI0_TRY(fill_family(job, err));
    PI0_TRY(fill_config(job, c, err));
    PI0_TRY(compare_config_json(job, c, err));
    return load_assets(job, c->asset_id, err);
}
