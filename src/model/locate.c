#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"

static const char INDEX[] = "model.safetensors.index.json";

static bool ends(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* Looking allocates nothing, so that short memory cannot pass for an absent file. Longer paths the system would refuse anyway. */
typedef struct place {
    char path[4096];
} place;

static bool join(place *out, const char *dir, const char *name)
{
    int n = snprintf(out->path, sizeof out->path, "%s/%s", dir, name);
    return n >= 0 && (size_t)n < sizeof out->path;
}

static bool has(const char *dir, const char *name, bool (*kind)(const char *path))
{
    place at;
    return join(&at, dir, name) && kind(at.path);
}

/* ------------------------------------------------------------------ Hugging Face cache */

/* org/name and nothing else: no scheme, no further slash, no part that a file system would read as a step. */
static bool is_repository(const char *text)
{
    int slashes = 0;
    if (text[0] == '.' || text[0] == '~')
        return false;
    for (const char *p = text; *p; p++) {
        bool plain =
            (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || *p == '-' || *p == '_' || *p == '.';
        bool slash = *p == '/';
        slashes += slash;
        if ((!plain && !slash) || (slash && (p == text || p[1] == '\0' || p[1] == '.')))
            return false;
    }
    return slashes == 1;
}

/* refs/main holds the commit whose snapshot is current. */
static bool read_ref(const char *cache, place *snapshot)
{
    place at;
    char commit[128] = "";
    FILE *file = join(&at, cache, "refs/main") ? fopen(at.path, "r") : NULL;
    if (!file)
        return false;
    bool read = fgets(commit, sizeof commit, file) != NULL;
    fclose(file);
    commit[strspn(commit, "0123456789abcdef")] = '\0'; /* nothing that a file system would read as a step */
    return read && commit[0] && join(&at, cache, "snapshots") && join(snapshot, at.path, commit) && pi0_is_dir(snapshot->path);
}

/* Without a ref (a download by commit) a lone snapshot is still unambiguous. */
static bool lone_snapshot(const char *cache, place *snapshot)
{
    place at;
    DIR *dir = join(&at, cache, "snapshots") ? opendir(at.path) : NULL;
    int count = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.' && join(snapshot, at.path, entry->d_name))
            count++;
    if (dir)
        closedir(dir);
    return count == 1 && pi0_is_dir(snapshot->path);
}

static pi0_status fail_not_cached(const char *repository, const char *looked, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_IO, "%s is neither a path on this machine nor in the Hugging Face cache", repository);
    pi0_err_where(err, "%s", *looked ? looked : "no cache folder is set (HF_HOME)");
    pi0_err_expected(err, "a directory, a .safetensors file, or a repository that was downloaded before (nothing is downloaded here)");
    pi0_err_hint(err, "hf download %s", repository);
    return PI0_ERR_IO;
}

pi0_status pi0_hub_snapshot(const char *repository, const char *hf_home, char **dir, char **looked, pi0_error *err)
{
    const char *slash = strchr(repository, '/');
    int org = (int)(slash - repository);
    place cache[2] = {{""}, {""}}, snapshot;
    bool found = false;
    *dir = NULL;
    if (looked)
        *looked = NULL;
    for (int i = 0; hf_home && i < 2 && !found; i++) { /* HF_HOME/hub is usual; HF_HUB_CACHE points at the inner folder itself */
        char name[256];
        snprintf(name, sizeof name, "%smodels--%.*s--%s", i == 0 ? "hub/" : "", org, repository, slash + 1);
        found = join(&cache[i], hf_home, name) && (read_ref(cache[i].path, &snapshot) || lone_snapshot(cache[i].path, &snapshot));
    }
    if (found)
        *dir = pi0_strdup(snapshot.path);
    else if (looked)
        *looked = pi0_strdup(cache[0].path);
    if (found ? !*dir : looked && !*looked)
        return pi0_fail_memory(err, sizeof snapshot, "a path in the Hugging Face cache");
    return found ? PI0_OK : fail_not_cached(repository, cache[0].path, err);
}

/* ------------------------------------------------------------------ openpi cache */

static pi0_status find_bucket(const char *url, const char *openpi_home, char **path, pi0_error *err)
{
    const char *inner = url + strlen("gs://");
    size_t length = strlen(inner);
    while (length > 0 && inner[length - 1] == '/')
        length--;
    if (length == 0 || strstr(inner, "..") || inner[0] == '/') {
        pi0_fail(err, PI0_ERR_ARGUMENT, "not a bucket address");
        pi0_err_expected(err, "gs://BUCKET/PATH, for example gs://openpi-assets/checkpoints/pi05_droid");
        pi0_err_got(err, "%s", url);
        return PI0_ERR_ARGUMENT;
    }
    *path = pi0_sprintf("%s/%.*s", openpi_home ? openpi_home : "", (int)length, inner);
    if (!*path)
        return pi0_fail_memory(err, length, "a path in the openpi cache");
    if (openpi_home && (pi0_is_dir(*path) || pi0_is_file(*path)))
        return PI0_OK;
    pi0_fail(err, PI0_ERR_IO, "%s is not in the openpi cache", url);
    pi0_err_where(err, "%s", openpi_home ? *path : "no cache folder is set (OPENPI_DATA_HOME)");
    pi0_err_expected(err, "a checkpoint that was downloaded before (nothing is downloaded here)");
    pi0_err_hint(err, "in an openpi checkout: uv run python -c \"from openpi.shared import download; download.maybe_download('%s')\"", url);
    pi0_free(*path);
    *path = NULL;
    return PI0_ERR_IO;
}

/* ------------------------------------------------------------------ what a directory holds */

pi0_status pi0_refuse_adapter(const char *where, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_UNSUPPORTED, "this is an adapter (PEFT, LoRA), not a whole model");
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "a checkpoint whose adapters were merged into its weights");
    pi0_err_hint(err, "merge it first: in LeRobot load the policy with its adapter, call merge_and_unload(), then save_pretrained()");
    return PI0_ERR_UNSUPPORTED;
}

static bool is_orbax(const char *dir)
{
    return has(dir, "params/_METADATA", pi0_is_file) || has(dir, "params/manifest.ocdbt", pi0_is_file) ||
           has(dir, "_METADATA", pi0_is_file) || has(dir, "manifest.ocdbt", pi0_is_file);
}

/* path without trailing slashes and without a last component "params" */
static char *orbax_root(const char *dir)
{
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    bool inside = n > 7 && strncmp(dir + n - 7, "/params", 7) == 0;
    return pi0_sprintf("%.*s", (int)(inside ? n - 7 : n), dir);
}

static pi0_status refuse_orbax(const char *dir, const pi0_options *options, pi0_error *err)
{
    char *root = orbax_root(dir);
    if (!root)
        return pi0_fail_memory(err, strlen(dir), "a path");
    const char *base = strrchr(root, '/');
    base = base ? base + 1 : root;
    /* A published directory bears its config's name; a training run ends in a step number. */
    const char *config = options && options->config                              ? options->config
                         : strncmp(base, "pi0", 3) == 0 && !strstr(base, "base") ? base
                                                                                 : "CONFIG_NAME";
    pi0_fail(err, PI0_ERR_UNSUPPORTED, "this is a JAX (orbax) checkpoint of openpi; convert it to PyTorch first");
    pi0_err_where(err, "%s", root);
    pi0_err_expected(err, "model.safetensors");
    pi0_err_got(err, "orbax arrays in params/");
    pi0_err_item(
        err,
        "convert, in an openpi checkout: uv run python examples/convert_jax_model_to_pytorch.py --checkpoint-dir %s --config-name %s "
        "--output-path %s_pytorch",
        root, config, root);
    pi0_err_item(err, "then copy the statistics, which the converter seeks one folder too high: cp -r %s/assets %s_pytorch/", root, root);
    pi0_err_item(err, "then give %s_pytorch here%s", root,
                 strcmp(config, "CONFIG_NAME") == 0 ? "; CONFIG_NAME is openpi's name of the config it was trained with" : "");
    char *command = pi0_sprintf("uv run python examples/convert_jax_model_to_pytorch.py --checkpoint-dir %s --config-name %s --output-path "
                                "%s_pytorch && cp -r %s/assets %s_pytorch/",
                                root, config, root, root, root);
    if (err && command && strlen(command) < sizeof err->hint)
        pi0_err_hint(err, "%s", command);
    else
        pi0_err_hint(err, "the commands are in the list");
    pi0_free(command);
    pi0_free(root);
    return PI0_ERR_UNSUPPORTED;
}

/* What a user most likely meant by a directory without weights. */
static void hint_nearby(const char *dir, pi0_error *err)
{
    static const char *const inner[] = {"pretrained_model", "last/pretrained_model", "checkpoints/last/pretrained_model"};
    for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++)
        if (has(dir, inner[i], pi0_is_dir)) {
            pi0_err_hint(err, "give the folder inside: %s/%s", dir, inner[i]);
            return;
        }
    DIR *entries = opendir(dir);
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        const char *name = entry->d_name;
        if (name[0] == '.')
            continue;
        if (ends(name, ".safetensors") && strncmp(name, "policy_", 7) != 0 && has(dir, name, pi0_is_file))
            pi0_err_hint(err, "if these are the weights, give the file: %s/%s", dir, name);
        else if (ends(name, ".bin") || ends(name, ".pt") || ends(name, ".pth") || ends(name, ".ckpt"))
            pi0_err_hint(err, "%s is pickled and may run code when read; save it as safetensors", name);
        else if (has(dir, name, pi0_is_dir)) {
            place sub;
            if (join(&sub, dir, name) && (has(sub.path, "model.safetensors", pi0_is_file) || is_orbax(sub.path)))
                pi0_err_hint(err, "give the folder inside: %s", sub.path);
        }
    }
    if (entries)
        closedir(entries);
}

static pi0_status find_in_directory(const char *dir, const pi0_options *options, char **weights_file, pi0_error *err)
{
    if (has(dir, "adapter_config.json", pi0_is_file) || has(dir, "adapter_model.safetensors", pi0_is_file))
        return pi0_refuse_adapter(dir, err);
    const char *names[] = {"model.safetensors", INDEX};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (has(dir, names[i], pi0_exists)) { /* whatever it is: opening it says why it will not do */
            *weights_file = pi0_path_join(dir, names[i]);
            return *weights_file ? PI0_OK : pi0_fail_memory(err, strlen(dir), "a path");
        }
    if (is_orbax(dir))
        return refuse_orbax(dir, options, err);
    pi0_fail(err, PI0_ERR_MODEL, "no weights in this directory");
    pi0_err_where(err, "%s", dir);
    pi0_err_expected(err, "model.safetensors or %s", INDEX);
    hint_nearby(dir, err);
    return PI0_ERR_MODEL;
}

static pi0_status check_file(const char *path, pi0_error *err)
{
    static const char *const pickled[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};
    if (ends(path, ".safetensors") || ends(path, ".safetensors.index.json") || ends(path, ".pi0") || !pi0_is_file(path))
        return PI0_OK; /* what is no file at all, opening it says */
    if (ends(path, ".gguf")) {
        pi0_fail(err, PI0_ERR_UNSUPPORTED, "GGUF files are not read by this version");
        pi0_err_hint(err, "give the LeRobot or openpi checkpoint that it was converted from");
    } else {
        pi0_fail(err, PI0_ERR_MODEL, "this file is no checkpoint that can be read");
        pi0_err_hint(err, "give the directory of the checkpoint");
        for (size_t i = 0; i < sizeof pickled / sizeof pickled[0]; i++)
            if (ends(path, pickled[i]))
                pi0_err_hint(err, "pickled files may run code when read; save the model as safetensors");
    }
    pi0_err_where(err, "%s", path);
    pi0_err_expected(err, "a directory, or a file that ends in .safetensors, .safetensors.index.json or .pi0");
    return err ? err->status : PI0_ERR_MODEL;
}

/* ------------------------------------------------------------------ the whole */

static pi0_status resolve(const char *path, const pi0_options *options, char **local, pi0_error *err)
{
    if (strncmp(path, "gs://", 5) == 0)
        return find_bucket(path, options ? options->openpi_home : NULL, local, err);
    if (!pi0_exists(path)) {
        if (is_repository(path))
            return pi0_hub_snapshot(path, options ? options->hf_home : NULL, local, NULL, err);
        pi0_fail(err, PI0_ERR_IO, "no such model");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err,
                         "a directory, a .safetensors or .pi0 file, org/name of the Hugging Face cache, or gs://... of the openpi cache");
        pi0_err_hint(err, "check the spelling; `pi0 synth DIR` writes a random model to try things with");
        return PI0_ERR_IO;
    }
    *local = pi0_strdup(path);
    return *local ? PI0_OK : pi0_fail_memory(err, strlen(path), "a path");
}

pi0_status pi0_checkpoint_locate(const char *path, const pi0_options *options, char **dir, char **weights_file, pi0_error *err)
{
    pi0_status status = PI0_OK;
    char *local = NULL;
    *dir = *weights_file = NULL;
    if (!path || !*path) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "no model is named");
        pi0_err_expected(err, "a directory, a .safetensors or .pi0 file, org/name or gs://...");
        return PI0_ERR_ARGUMENT;
    }
    PI0_TRY_GOTO(resolve(path, options, &local, err));
    if (pi0_is_dir(local)) {
        PI0_TRY_GOTO(find_in_directory(local, options, weights_file, err));
        *dir = local;
        return PI0_OK;
    }
    PI0_TRY_GOTO(check_file(local, err));
    if (ends(local, ".pi0")) {
        *weights_file = local;
        return PI0_OK;
    }
    const char *slash = strrchr(local, '/');
    *dir = !slash ? pi0_strdup(".") : pi0_sprintf("%.*s", slash == local ? 1 : (int)(slash - local), local);
    *weights_file = local;
    local = NULL;
    if (!*dir) {
        status = pi0_fail_memory(err, strlen(path), "a path");
        goto fail;
    }
    if (has(*dir, "adapter_config.json", pi0_is_file)) {
        status = pi0_refuse_adapter(*weights_file, err);
        goto fail;
    }
    return PI0_OK;
fail:
    pi0_free(local);
    pi0_free(*dir);
    pi0_free(*weights_file);
    *dir = *weights_file = NULL;
    return status;
}
