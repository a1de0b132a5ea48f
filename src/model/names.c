#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"

/* ------------------------------------------------------------------ one name */

/* Replaces text[at, at+length) by `with`; false when it would not fit. */
static bool splice(char *text, size_t size, size_t at, size_t length, const char *with)
{
    size_t have = strlen(text), add = strlen(with);
    if (have - length + add + 1 > size)
        return false;
    memmove(text + at + add, text + at + length, have - at - length + 1);
    memcpy(text + at, with, add);
    return true;
}

static bool starts(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* transformers before 4.52 kept PaliGemma's towers one level higher and the head one level lower: LeRobot <= 0.3 saved those names. */
static const struct {
    const char *old, *now;
} OLD_NAMES[] = {
    {PI0_PALIGEMMA "language_model.lm_head.", PI0_PALIGEMMA "lm_head."},
    {PI0_PALIGEMMA "language_model.model.", PI0_PALIGEMMA "model.language_model."},
    {PI0_PALIGEMMA "vision_tower.", PI0_PALIGEMMA "model.vision_tower."},
    {PI0_PALIGEMMA "multi_modal_projector.", PI0_PALIGEMMA "model.multi_modal_projector."},
};

bool pi0_name_canonical(const char *name, char *out, size_t size, struct pi0_name_map *seen)
{
    struct pi0_name_map unseen = {0};
    seen = seen ? seen : &unseen;
    if (strlen(name) + 1 > size)
        return false;
    strcpy(out, name);
    for (char *p; (p = strstr(out, "_orig_mod.")) != NULL && (p == out || p[-1] == '.');) { /* torch.compile wraps a module so */
        splice(out, size, (size_t)(p - out), strlen("_orig_mod."), "");
        seen->compiled = true;
    }
    if (starts(out, "model.")) {
        splice(out, size, 0, strlen("model."), "");
        seen->model_prefix = true;
    }
    for (size_t i = 0; i < sizeof OLD_NAMES / sizeof OLD_NAMES[0]; i++) {
        if (!starts(out, OLD_NAMES[i].old))
            continue;
        if (!splice(out, size, 0, strlen(OLD_NAMES[i].old), OLD_NAMES[i].now))
            return false;
        seen->old_names = true;
        break;
    }
    const char *tower = PI0_PALIGEMMA "model.vision_tower.";
    if (starts(out, tower) && !starts(out, PI0_VISION)) { /* newer transformers drop the level */
        if (!splice(out, size, strlen(tower), 0, "vision_model."))
            return false;
        seen->flat_vision = true;
    }
    if (starts(out, "normalize_inputs.") || starts(out, "normalize_targets.") || starts(out, "unnormalize_outputs."))
        seen->statistics = true;
    return true;
}

void pi0_name_old(const char *canonical, char *out, size_t size)
{
    const char *front = "", *rest = canonical;
    for (size_t i = 0; i < sizeof OLD_NAMES / sizeof OLD_NAMES[0]; i++)
        if (starts(canonical, OLD_NAMES[i].now)) {
            front = OLD_NAMES[i].old;
            rest = canonical + strlen(OLD_NAMES[i].now);
        }
    snprintf(out, size, "model.%s%s", front, rest);
}

bool pi0_name_ignorable(const char *canonical)
{
    static const char *const beginnings[] = {"normalize_inputs.", "normalize_targets.", "unnormalize_outputs."};
    static const char *const endings[] = {".rotary_emb.inv_freq", ".embeddings.position_ids", "gemma_expert.model.embed_tokens.weight"};
    for (size_t i = 0; i < sizeof beginnings / sizeof beginnings[0]; i++)
        if (starts(canonical, beginnings[i]))
            return true;
    size_t length = strlen(canonical);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t n = strlen(endings[i]);
        if (length >= n && strcmp(canonical + length - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------ all names of a file */

static int by_canonical(const void *a, const void *b)
{
    return strcmp(((const pi0_name_entry *)a)->canonical, ((const pi0_name_entry *)b)->canonical);
}

static void describe_naming(struct pi0_name_map *names)
{
    const char *family = names->old_names || names->statistics ? "lerobot <= 0.3" : names->model_prefix ? "lerobot" : "openpi";
    snprintf(names->words, sizeof names->words, "%s (%s%s%s%s)", family, names->model_prefix ? "model. prefix" : "no prefix",
             names->old_names ? ", names of transformers < 4.52" : "", names->flat_vision ? ", vision tower without vision_model" : "",
             names->compiled ? ", torch.compile's _orig_mod" : "");
}

static pi0_status check_unique(const struct pi0_name_map *names, pi0_error *err)
{
    pi0_status status = PI0_OK;
    for (size_t i = 1; i < names->count; i++) {
        const pi0_name_entry *a = &names->entries[i - 1], *b = &names->entries[i];
        if (strcmp(a->canonical, b->canonical) != 0)
            continue;
        if (status == PI0_OK) {
            status = pi0_fail(err, PI0_ERR_MODEL, "two tensors of the file mean the same weight");
            pi0_err_hint(err, "the file mixes two naming dialects: save it again from one model, or remove one of each pair");
        }
        pi0_err_item(err, "both mean %s: %s, %s", a->canonical, a->tensor->name, b->tensor->name);
    }
    return status;
}

pi0_status pi0_name_map_open(const pi0_safetensors *file, struct pi0_name_map **out, pi0_error *err)
{
    size_t count = pi0_safetensors_count(file);
    pi0_status status = PI0_OK;
    struct pi0_name_map *names = pi0_alloc(sizeof *names);
    if (!names)
        return pi0_fail_memory(err, sizeof *names, "the name table");
    names->entries = pi0_alloc_array(count ? count : 1, sizeof *names->entries);
    names->warnings = json_array();
    if (!names->entries || !names->warnings) {
        status = pi0_fail_memory(err, count * sizeof *names->entries, "the name table");
        goto fail;
    }
    const bool packed = pi0_packed_is(file);
    for (size_t i = 0; i < count; i++) {
        const pi0_tensor_view *tensor = pi0_safetensors_at(file, i);
        if (packed && pi0_packed_reserved(tensor->name))
            continue;
        char canonical[2 * PI0_MAX_NAME];
        if (!pi0_name_canonical(tensor->name, canonical, sizeof canonical, names)) {
            status = pi0_fail(err, PI0_ERR_FORMAT, "a tensor name is too long");
            pi0_err_expected(err, "at most %d bytes", PI0_MAX_NAME);
            goto fail;
        }
        pi0_name_entry *entry = &names->entries[names->count++];
        entry->tensor = tensor;
        entry->canonical = pi0_strdup(canonical);
        if (!entry->canonical) {
            status = pi0_fail_memory(err, strlen(canonical) + 1, "a tensor name");
            goto fail;
        }
    }
    qsort(names->entries, names->count, sizeof *names->entries, by_canonical);
    PI0_TRY_GOTO(check_unique(names, err));
    names->table_is_embed_tokens = pi0_name_map_find(names, PI0_EMBED_TOKENS) && !pi0_name_map_find(names, PI0_LM_HEAD);
    describe_naming(names);
    *out = names;
    return PI0_OK;
fail:
    pi0_name_map_close(&names);
    return status;
}

void pi0_name_map_close(struct pi0_name_map **names)
{
    if (!names || !*names)
        return;
    for (size_t i = 0; i < (*names)->count; i++)
        pi0_free((*names)->entries[i].canonical);
    pi0_free((*names)->entries);
    json_decref((*names)->warnings);
    pi0_free(*names);
    *names = NULL;
}

/* First entry that is not below `text`. */
static size_t lower_bound(const struct pi0_name_map *names, const char *text)
{
    size_t low = 0, high = names->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(names->entries[middle].canonical, text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

pi0_name_entry *pi0_name_map_find(const struct pi0_name_map *names, const char *canonical)
{
    size_t at = lower_bound(names, canonical);
    return at < names->count && strcmp(names->entries[at].canonical, canonical) == 0 ? &names->entries[at] : NULL;
}

const pi0_name_entry *pi0_name_map_first(const struct pi0_name_map *names, const char *prefix)
{
    size_t at = lower_bound(names, prefix);
    return at < names->count && starts(names->entries[at].canonical, prefix) ? &names->entries[at] : NULL;
}

const pi0_tensor_view *pi0_name_map_tensor(const struct pi0_name_map *names, const char *canonical)
{
    if (names->table_is_embed_tokens && strcmp(canonical, PI0_LM_HEAD) == 0)
        canonical = PI0_EMBED_TOKENS;
    const pi0_name_entry *entry = pi0_name_map_find(names, canonical);
    return entry ? entry->tensor : NULL;
}
