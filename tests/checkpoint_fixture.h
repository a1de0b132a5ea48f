/* A very small checkpoint as a list of tensors that a test may rename, drop, reshape and write (test_checkpoint.c, test_locate.c). */
#ifndef PI0_TEST_CHECKPOINT_FIXTURE_H
#define PI0_TEST_CHECKPOINT_FIXTURE_H

#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

typedef struct tensor {
    char name[300];
    pi0_dtype dtype;
    int rank;
    int64_t shape[4];
    uint8_t fill; /* every byte of its data */
    bool needed;
} tensor;

typedef struct model {
    tensor items[200];
    size_t count;
} model;

#define TABLE "paligemma_with_expert.paligemma.lm_head.weight"
#define EMBED "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight"
#define LANGUAGE "paligemma_with_expert.paligemma.model.language_model."
#define EXPERT "paligemma_with_expert.gemma_expert.model."
#define VISION "paligemma_with_expert.paligemma.model.vision_tower.vision_model."

static inline pi0_arch small_arch(bool pi05)
{
    pi0_arch arch = {.pi05 = pi05, .vocab = 64, .action_dim = 5};
    arch.vision.width = 72, arch.vision.depth = 2, arch.vision.mlp = 6, arch.vision.heads = 1;
    arch.vision.patch = 14, arch.vision.side = 28, arch.vision.tokens = 4;
    arch.prefix = (pi0_gemma_arch){.width = 8, .depth = 2, .mlp = 12, .heads = 2, .kv_heads = 1, .head_dim = 4};
    arch.expert = (pi0_gemma_arch){.width = 6, .depth = 2, .mlp = 10, .heads = 2, .kv_heads = 1, .head_dim = 4};
    return arch;
}

static inline tensor *model_add(model *m, const char *name, pi0_dtype dtype, int rank, const int64_t *shape)
{
    assert_true(m->count < sizeof m->items / sizeof m->items[0]);
    tensor *t = &m->items[m->count++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->dtype = dtype;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->fill = (uint8_t)(pi0_fnv1a(name) & 0x3f);
    return t;
}

static inline tensor *model_add_vector(model *m, const char *name, int64_t n)
{
    return model_add(m, name, PI0_F32, 1, &n);
}

static inline int model_collect(void *context, const pi0_tensor_spec *spec)
{
    model_add(context, spec->name, PI0_F32, spec->rank, spec->shape)->needed = spec->needed;
    return 0;
}

static inline model small_model(bool pi05)
{
    model m = {.count = 0};
    pi0_arch arch = small_arch(pi05);
    assert_int_equal(pi0_arch_each_tensor(&arch, model_collect, &m), 0);
    return m;
}

static inline tensor *model_find(model *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->items[i].name, name) == 0)
            return &m->items[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static inline void model_drop(model *m, const char *name)
{
    tensor *t = model_find(m, name);
    *t = m->items[--m->count];
}

static inline void replace_part(char *name, size_t size, const char *old, const char *now)
{
    char *at = strstr(name, old);
    if (!at)
        return;
    char rest[300];
    snprintf(rest, sizeof rest, "%s", at + strlen(old));
    snprintf(at, size - (size_t)(at - name), "%s%s", now, rest);
}

static inline size_t tensor_bytes(const tensor *t)
{
    size_t n = pi0_dtype_size(t->dtype);
    for (int i = 0; i < t->rank; i++)
        n *= (size_t)t->shape[i];
    return n;
}

static inline const char *tensor_code(pi0_dtype dtype)
{
    switch (dtype) {
    case PI0_F32:
        return "F32";
    case PI0_BF16:
        return "BF16";
    case PI0_F16:
        return "F16";
    case PI0_F64:
        return "F64";
    default:
        return "I32";
    }
}

/* Not through the library's own writer, which waits for the disk. */
static inline void model_write(const model *m, const char *dir, const char *file)
{
    char *bytes = NULL;
    size_t size = 0, offset = 0;
    FILE *header = open_memstream(&bytes, &size);
    assert_non_null(header);
    fprintf(header, "%8s{", "");
    for (size_t i = 0; i < m->count; i++) {
        const tensor *t = &m->items[i];
        fprintf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "", t->name, tensor_code(t->dtype));
        for (int j = 0; j < t->rank; j++)
            fprintf(header, "%s%lld", j ? "," : "", (long long)t->shape[j]);
        fprintf(header, "],\"data_offsets\":[%zu,%zu]}", offset, offset + tensor_bytes(t));
        offset += tensor_bytes(t);
    }
    fputc('}', header);
    fclose(header);
    uint64_t length = size - 8;
    char *whole = malloc(size + offset);
    assert_non_null(whole);
    memcpy(whole, bytes, size);
    memcpy(whole, &length, sizeof length);
    free(bytes);
    char *at = whole + size;
    for (size_t i = 0; i < m->count; i++) {
        memset(at, m->items[i].fill, tensor_bytes(&m->items[i]));
        at += tensor_bytes(&m->items[i]);
    }
    pi0_test_write_file(pi0_test_path(dir, file), whole, size + offset);
    free(whole);
}

static inline void write_text(const char *dir, const char *name, const char *text)
{
    pi0_test_write_file(pi0_test_path(dir, name), text, strlen(text));
}

/* ------------------------------------------------------------------ opening */

static inline pi0_status open_dir(const char *path, const char *config, pi0_checkpoint **out, pi0_error *err)
{
    pi0_options options = {.config = config};
    return pi0_checkpoint_open(path, &options, NULL, out, err);
}

static inline pi0_checkpoint *must_open(const char *path)
{
    pi0_checkpoint *checkpoint = NULL;
    pi0_error err = {0};
    PI0_ASSERT_OK(open_dir(path, NULL, &checkpoint, &err), &err);
    return checkpoint;
}

/* The open must fail so, and leave nothing. */
#define MUST_FAIL(path, config, status, ...)                                     \
    do {                                                                         \
        pi0_checkpoint *none_ = NULL;                                            \
        pi0_error err_ = {0};                                                    \
        assert_int_equal(open_dir((path), (config), &none_, &err_), (status));   \
        assert_null(none_);                                                      \
        pi0_test_assert_error(&err_, (status), __VA_ARGS__, (const char *)NULL); \
    } while (0)

#endif
