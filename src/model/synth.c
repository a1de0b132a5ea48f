#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/synth.h"

void pi0_synth_options_init(pi0_synth_options *options)
{
    memset(options, 0, sizeof *options);
    options->layout = "lerobot";
    options->size = "tiny";
}

static pi0_status fail_choice(const char *option, const char *choices, const char *got, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_ARGUMENT, "no such %s of a synthetic checkpoint", option);
    pi0_err_where(err, "--%s", option);
    pi0_err_expected(err, "%s", choices);
    pi0_err_got(err, "%s", got);
    return PI0_ERR_ARGUMENT;
}

static pi0_status check_range(const char *option, int value, int min, int max, pi0_error *err)
{
    if (value >= min && value <= max)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_ARGUMENT, "a value of the synthetic checkpoint is out of range");
    pi0_err_where(err, "--%s", option);
    pi0_err_expected(err, "%d to %d", min, max);
    pi0_err_got(err, "%d", value);
    return PI0_ERR_ARGUMENT;
}

/* ------------------------------------------------------------------ options -> plan */

static pi0_status choose_layout(const pi0_synth_options *o, pi0_synth_plan *plan, pi0_error *err)
{
    const char *layout = o->layout ? o->layout : "lerobot";
    if (strcmp(layout, "openpi") == 0)
        plan->layout = PI0_LAYOUT_OPENPI;
    else if (strcmp(layout, "lerobot") == 0)
        plan->layout = PI0_LAYOUT_LEROBOT;
    else if (strcmp(layout, "lerobot-0.3") == 0)
        plan->layout = PI0_LAYOUT_LEROBOT_03;
    else
        return fail_choice("layout", "openpi, lerobot or lerobot-0.3", layout, err);
    return PI0_OK;
}

static pi0_status choose_arch(const pi0_synth_options *o, bool pi05, pi0_synth_plan *plan, pi0_error *err)
{
    const char *size = o->size ? o->size : "tiny";
    pi0_arch arch = pi0_arch_base(pi05);
    bool base = strcmp(size, "base") == 0;
    if (strcmp(size, "tiny") == 0) {
        arch.vision.width = 72, arch.vision.depth = 1, arch.vision.mlp = 140;
        arch.prefix = (pi0_gemma_arch){.width = 40, .depth = 3, .mlp = 100, .heads = 4, .kv_heads = 1, .head_dim = 16};
        arch.expert = (pi0_gemma_arch){.width = 24, .depth = 3, .mlp = 72, .heads = 4, .kv_heads = 1, .head_dim = 16};
    } else if (strcmp(size, "small") == 0) {
        arch.vision.width = 288, arch.vision.depth = 6, arch.vision.mlp = 1152;
        arch.prefix = (pi0_gemma_arch){.width = 512, .depth = 12, .mlp = 2048, .heads = 8, .kv_heads = 1, .head_dim = 64};
        arch.expert = (pi0_gemma_arch){.width = 256, .depth = 12, .mlp = 1024, .heads = 8, .kv_heads = 1, .head_dim = 64};
    } else if (!base) {
        return fail_choice("size", "tiny, small or base", size, err);
    }
    arch.vision.heads = arch.vision.width / 72;
    int pieces = pi0_synth_tokenizer_pieces();
    if (pieces == 0)
        return pi0_fail_memory(err, 0, "the tokenizer");
    if (!base)
        arch.vocab = (int)pi0_round_up((size_t)pieces, 256);
    snprintf(plan->variant[0], sizeof plan->variant[0], "%s", base ? "gemma_2b" : size);
    snprintf(plan->variant[1], sizeof plan->variant[1], "%s", base ? "gemma_300m" : size);
    plan->arch = arch;
    const char *dtype = o->dtype ? o->dtype : base ? "bf16" : "f32";
    if (strcmp(dtype, "f32") != 0 && strcmp(dtype, "bf16") != 0)
        return fail_choice("dtype", "f32 or bf16", dtype, err);
    plan->dtype = strcmp(dtype, "f32") == 0 ? PI0_F32 : PI0_BF16;
    return PI0_OK;
}

/* The robot: an openpi config's, or the options' own. */
static pi0_status choose_robot(const pi0_synth_options *o, const char *config, pi0_synth_plan *plan, pi0_error *err)
{
    int state_dim = 14, action_dim = 14, horizon = 50, cameras = 3;
    if (config) {
        pi0_options options = {.config = config, .no_norm = 1};
        pi0_recipe *recipe = NULL;
        PI0_TRY(pi0_recipe_load(NULL, &options, NULL, NULL, &recipe, err));
        const pi0_recipe_facts *facts = pi0_recipe_get_facts(recipe);
        state_dim = facts->state_dim, action_dim = facts->action_dim, horizon = facts->horizon;
        cameras = 0;
        for (int i = 0; i < facts->n_slots; i++)
            cameras += !facts->empty[i];
        pi0_recipe_free(&recipe);
        snprintf(plan->asset, sizeof plan->asset, "%s", pi0_config_asset_id(config));
    }
    bool fixed = plan->layout == PI0_LAYOUT_OPENPI; /* there the config on the command line says the widths, no file does */
    if (fixed && ((o->state_dim && o->state_dim != state_dim) || (o->action_dim && o->action_dim != action_dim))) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "the widths of an openpi checkpoint are its config's");
        pi0_err_where(err, "--state-dim, --action-dim");
        pi0_err_expected(err, "%d and %d, those of %s", state_dim, action_dim, config);
        pi0_err_got(err, "%d and %d", o->state_dim, o->action_dim);
        pi0_err_hint(err, "choose another --config, or a LeRobot layout");
        return PI0_ERR_ARGUMENT;
    }
    plan->state_dim = o->state_dim ? o->state_dim : state_dim;
    plan->action_dim = o->action_dim ? o->action_dim : action_dim;
    plan->horizon = o->horizon ? o->horizon : horizon;
    plan->cameras = o->cameras ? o->cameras : cameras;
    plan->shards = o->shards ? o->shards : 1;
    PI0_TRY(check_range("state-dim", plan->state_dim, 1, plan->arch.action_dim, err));
    PI0_TRY(check_range("action-dim", plan->action_dim, 1, plan->arch.action_dim, err));
    PI0_TRY(check_range("horizon", plan->horizon, 1, PI0_MAX_HORIZON, err));
    plan->outliers = o->outliers;
    plan->outlier_factor = o->outlier_factor ? o->outlier_factor : 50;
    const int narrowest = pi0_min_int(plan->arch.vision.width, pi0_min_int(plan->arch.prefix.width, plan->arch.expert.width));
    PI0_TRY(check_range("outliers", plan->outliers, 0, pi0_min_int(PI0_SYNTH_OUTLIERS, narrowest / 4), err));
    PI0_TRY(check_range("outliers", plan->outlier_factor, 2, 1000, err));
    PI0_TRY(check_range("cameras", plan->cameras, 1, fixed ? 3 : PI0_MAX_CAMERAS, err));
    return check_range("shards", plan->shards, 1, PI0_MAX_SHARDS, err);
}

static pi0_status choose_model(const pi0_synth_options *o, bool *pi05, pi0_error *err)
{
    pi0_said named = PI0_SAID_NOTHING;
    PI0_TRY(pi0_config_name_check(o->config, &named, err));
    const char *model = o->model ? o->model : named == PI0_SAID_PI05 ? "pi05" : "pi0";
    *pi05 = strcmp(model, "pi05") == 0;
    if (!*pi05 && strcmp(model, "pi0") != 0)
        return fail_choice("model", "pi0 or pi05", model, err);
    if (named != PI0_SAID_NOTHING && (named == PI0_SAID_PI05) != *pi05)
        return fail_choice("config", *pi05 ? "a config of pi05" : "a config of pi0", o->config, err);
    return PI0_OK;
}

static pi0_status make_plan(const pi0_synth_options *o, pi0_synth_plan *plan, pi0_error *err)
{
    bool pi05 = false;
    PI0_TRY(choose_layout(o, plan, err));
    PI0_TRY(choose_model(o, &pi05, err));
    if (pi05 && plan->layout == PI0_LAYOUT_LEROBOT_03)
        return fail_choice("layout", "openpi or lerobot: LeRobot 0.3 had no pi05", "lerobot-0.3", err);
    PI0_TRY(choose_arch(o, pi05, plan, err));
    const char *config = o->config ? o->config : plan->layout != PI0_LAYOUT_OPENPI ? NULL : pi05 ? "pi05_droid" : "pi0_droid";
    PI0_TRY(choose_robot(o, config, plan, err));
    plan->seed = o->seed;
    plan->hollow = o->hollow != 0;
    plan->progress = o->progress;
    plan->progress_user = o->progress_user;
    pi0_synth_make_stats(plan);
    return PI0_OK;
}

/* ------------------------------------------------------------------ the directory */

static bool is_empty(const char *dir)
{
    DIR *entries = opendir(dir);
    bool empty = entries != NULL;
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            empty = false;
    if (entries)
        closedir(entries);
    return empty;
}

static bool is_mounted(const char *dir, const struct stat *info)
{
    struct stat above;
    char *parent = pi0_path_join(dir, "..");
    bool mounted = parent && stat(parent, &above) == 0 && above.st_dev != info->st_dev;
    pi0_free(parent);
    return mounted;
}

/* What stands in the way of a directory of this name (without a slash at its end), or NULL. *mode: of the empty one that is replaced. */
static const char *obstacle(const char *dir, mode_t *mode)
{
    const char *slash = strrchr(dir, '/'), *name = slash ? slash + 1 : dir;
    struct stat info;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return "a directory without a name of its own";
    if (lstat(dir, &info) != 0)
        return NULL; /* mkdir beside it will tell whether its parent will do */
    if (S_ISLNK(info.st_mode))
        return "a symbolic link";
    if (!S_ISDIR(info.st_mode) || !is_empty(dir))
        return "a file, or a directory that is not empty";
    *mode = info.st_mode & 07777;
    return is_mounted(dir, &info) ? "a mounted file system" : NULL;
}

/* A finished directory takes its name by a rename: what that cannot replace is found out here, not after gigabytes of weights. */
static pi0_status check_target(const char *dir, mode_t *mode, pi0_error *err)
{
    const char *got = obstacle(dir, mode);
    if (!got)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_ARGUMENT, "something is there already, and it is not overwritten");
    pi0_err_where(err, "%s", *dir ? dir : "/");
    pi0_err_expected(err, "the name of a new or an empty directory");
    pi0_err_got(err, "%s", got);
    pi0_err_hint(err, "name one that is not there yet");
    return PI0_ERR_ARGUMENT;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static pi0_status make_temporary(const char *dir, char **out, pi0_error *err)
{
    for (int i = 0; i < 100; i++) {
        *out = pi0_sprintf("%s.%ld.%d.tmp", dir, (long)getpid(), i);
        if (!*out)
            return pi0_fail_memory(err, strlen(dir), "a path");
        if (mkdir(*out, 0777) == 0)
            return PI0_OK;
        pi0_status status = errno == EEXIST ? PI0_OK : pi0_fail_errno(err, "create a directory", *out);
        pi0_free(*out);
        *out = NULL;
        PI0_TRY(status);
    }
    errno = EEXIST;
    return pi0_fail_errno(err, "create a temporary directory beside it", dir);
}

/* Without the slashes at its end; the root is "". */
static char *directory_name(const char *dir)
{
    size_t length = strlen(dir);
    while (length > 0 && dir[length - 1] == '/')
        length--;
    return pi0_sprintf("%.*s", (int)length, dir);
}

pi0_status pi0_synth(const char *dir, const pi0_synth_options *options, pi0_error *err)
{
    pi0_status status = PI0_OK;
    char *temporary = NULL, *target = NULL;
    mode_t mode = 0;
    pi0_synth_plan *plan = pi0_alloc(sizeof *plan);
    if (!plan)
        return pi0_fail_memory(err, sizeof *plan, "the plan of a checkpoint");
    if (!dir || !*dir) {
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "no directory is named");
        goto fail;
    }
    if (!(target = directory_name(dir))) {
        status = pi0_fail_memory(err, strlen(dir), "a path");
        goto fail;
    }
    PI0_TRY_GOTO(make_plan(options, plan, err));
    PI0_TRY_GOTO(check_target(target, &mode, err));
    PI0_TRY_GOTO(make_temporary(target, &temporary, err));
    PI0_TRY_GOTO(pi0_synth_write_files(plan, temporary, err));
    PI0_TRY_GOTO(pi0_synth_write_tokenizer(temporary, err));
    PI0_TRY_GOTO(pi0_synth_write_weights(plan, temporary, err));
    if (mode)
        (void)chmod(temporary, mode); /* not ours to change? then it has the mode of a new directory */
    if (rename(temporary, target) != 0)
        status = pi0_fail_errno(err, "give the finished directory its name", target);
fail:
    if (temporary && status != PI0_OK)
        nftw(temporary, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    pi0_free(temporary);
    pi0_free(target);
    pi0_free(plan);
    return status;
}
