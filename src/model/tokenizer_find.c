#include <string.h>

#include "model/checkpoint.h"

/* The PaliGemma repository whose tokenizer both families were trained with. */
static const char REPOSITORY[] = "google/paligemma-3b-pt-224";

typedef struct search {
    char *found;
    pi0_text looked; /* one path a line */
    bool memory;     /* an allocation failed */
} search;

static void try_file(search *s, const char *dir, const char *name)
{
    if (s->found || s->memory)
        return;
    char *path = pi0_path_join(dir, name);
    if (!path) {
        s->memory = true;
        return;
    }
    if (pi0_exists(path)) {
        s->found = path;
        return;
    }
    pi0_text_add(&s->looked, "%s\n", path);
    pi0_free(path);
}

static void try_folder(search *s, const char *dir)
{
    try_file(s, dir, "tokenizer.json");
    try_file(s, dir, "tokenizer.model");
}

static void try_hub(search *s, const char *hf_home)
{
    char *dir = NULL, *looked = NULL;
    if (s->found || s->memory || !hf_home)
        return;
    pi0_status status = pi0_hub_snapshot(REPOSITORY, hf_home, &dir, &looked, NULL);
    if (status == PI0_OK)
        try_folder(s, dir);
    else if (status == PI0_ERR_MEMORY)
        s->memory = true;
    else
        pi0_text_add(&s->looked, "%s\n", looked);
    pi0_free(dir);
    pi0_free(looked);
}

static pi0_status fail_not_found(search *s, const char *given, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_MODEL, given ? "the tokenizer file named is not there" : "no tokenizer file was found");
    pi0_err_expected(err, "PaliGemma's tokenizer.json or tokenizer.model");
    if (given)
        pi0_err_where(err, "%s", given);
    pi0_err_hint(err, "give it with --tokenizer FILE, or: hf download %s tokenizer.json tokenizer.model", REPOSITORY);
    for (char *line = s->looked.data; line && *line;) {
        char *end = strchr(line, '\n');
        pi0_err_item(err, "looked at: %.*s", (int)(end - line), line);
        line = end + 1;
    }
    return PI0_ERR_MODEL;
}

pi0_status pi0_tokenizer_locate(const char *dir, const pi0_options *options, char **path_out, pi0_error *err)
{
    search s = {0};
    *path_out = NULL;
    if (options && options->tokenizer) {
        if (!pi0_exists(options->tokenizer))
            return fail_not_found(&s, options->tokenizer, err);
        s.found = pi0_strdup(options->tokenizer);
        s.memory = !s.found;
    } else {
        if (dir) {
            char *inner = pi0_path_join(dir, "tokenizer");
            s.memory = !inner;
            try_folder(&s, dir);
            if (inner)
                try_folder(&s, inner);
            pi0_free(inner);
        }
        try_hub(&s, options ? options->hf_home : NULL);
        if (options && options->openpi_home)
            try_file(&s, options->openpi_home, "big_vision/paligemma_tokenizer.model");
    }
    pi0_status status = PI0_OK;
    if (s.memory || s.looked.failed)
        status = pi0_fail_memory(err, 0, "the search for a tokenizer");
    else if (!s.found)
        status = fail_not_found(&s, NULL, err);
    pi0_text_release(&s.looked);
    if (status != PI0_OK) {
        pi0_free(s.found);
        return status;
    }
    *path_out = s.found;
    return PI0_OK;
}

pi0_status pi0_checkpoint_tokenizer(const pi0_checkpoint *checkpoint, const pi0_options *options, char **path_out, pi0_error *err)
{
    if (!checkpoint->packed || (options && options->tokenizer))
        return pi0_tokenizer_locate(checkpoint->dir, options, path_out, err);
    const char *inside = pi0_safetensors_shard_path(checkpoint->file, 0);
    *path_out = pi0_strdup(inside);
    return *path_out ? PI0_OK : pi0_fail_memory(err, strlen(inside), "a path");
}
