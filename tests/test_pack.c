/* Packed files: the same bits as the checkpoint, used where they are mapped, repacked where they do not fit, damage that is found.
 * ctest: timeout=900 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "engine/engine.h"
#include "kernels/kernels.h"
#include "support.h"

static char *dir;

/* ------------------------------------------------------------------ a model and what it does */

typedef struct robot {
    const char *model, *layout, *dtype, *config;
} robot;

static const robot lerobot_pi0 = {"pi0", "lerobot", "bf16", NULL};

/* A path below `dir`, for as long as the next three. */
static const char *at(const char *name)
{
    static char paths[4][1024];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void make_checkpoint(const char *name, const robot *r)
{
    pi0_error err = {0};
    pi0_synth_options options;
    pi0_synth_options_init(&options);
    options.model = r->model;
    options.layout = r->layout;
    options.dtype = r->dtype;
    options.config = r->config;
    options.size = "tiny";
    options.horizon = strcmp(r->layout, "openpi") ? 6 : 0;
    PI0_ASSERT_OK(pi0_synth(at(name), &options, &err), &err);
}

typedef struct told {
    int warnings;
    char text[1024]; /* the last that is about packing */
} told;

static void listen(void *user, pi0_log_level level, const char *text)
{
    told *t = user;
    if (level != PI0_LOG_WARNING || !strstr(text, "pack"))
        return;
    t->warnings++;
    snprintf(t->text, sizeof t->text, "%s", text);
}

typedef struct actions {
    double values[64 * 64];
    int count;
} actions;

static pi0_options options_for(const char *config, const char *precision, const char *isa, told *t)
{
    pi0_options options;
    pi0_options_init(&options);
    options.config = config;
    options.precision = precision;
    options.isa = isa;
    options.threads = 2;
    options.log = listen;
    options.log_user = t;
    return options;
}

static pi0_status act(pi0_model *model, actions *out, pi0_error *err)
{
    static uint8_t pixels[30 * 40 * 3];
    const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {30, 40, 3}, .data = pixels, .bytes = sizeof pixels};
    const pi0_info *info = pi0_model_info(model);
    const double state[256] = {0.1, -0.2, 0.3};
    pi0_session *session;
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * 7 % 251);
    pi0_status status = pi0_session_open(model, 3, &session, err);
    for (int slot = 0; slot < info->n_slots && status == PI0_OK; slot++)
        if (*info->keys[slot])
            status = pi0_set_image(session, info->slots[slot], &picture, err);
    if (status == PI0_OK)
        status = pi0_set_state(session, state, (size_t)info->state_dim, err);
    if (status == PI0_OK)
        status = pi0_set_prompt(session, "pick up the cube", err);
    if (status == PI0_OK)
        status = pi0_infer(&session, 1, 2, err);
    if (status == PI0_OK) {
        int rows, cols;
        const double *values = pi0_actions(session, &rows, &cols);
        out->count = rows * cols;
        assert_in_range(out->count, 1, 64 * 64);
        memcpy(out->values, values, (size_t)out->count * sizeof *values);
    }
    pi0_session_close(&session);
    return status;
}

static actions actions_of(const char *path, const char *config, const char *precision, const char *isa, told *t)
{
    pi0_error err = {0};
    pi0_model *model;
    actions out = {.count = 0};
    const pi0_options options = options_for(config, precision, isa, t);
    PI0_ASSERT_OK(pi0_open(path, &options, &model, &err), &err);
    PI0_ASSERT_OK(act(model, &out, &err), &err);
    pi0_close(&model);
    return out;
}

static void assert_same(const actions *a, const actions *b)
{
    assert_int_equal(a->count, b->count);
    assert_memory_equal(a->values, b->values, (size_t)a->count * sizeof *a->values);
}

static pi0_pack_report pack_model(const char *from, const char *to, const char *config, const char *precision, const char *isa)
{
    pi0_error err = {0};
    pi0_pack_report report;
    told t = {0};
    const pi0_options options = options_for(config, precision, isa, &t);
    PI0_ASSERT_OK(pi0_pack(from, &options, to, &report, &err), &err);
    return report;
}

/* ------------------------------------------------------------------ the same model */

static void a_packed_file_alone_gives_the_bits_of_its_checkpoint(void **state)
{
    (void)state;
    static const robot robots[] = {{"pi0", "lerobot", "bf16", NULL},
                                   {"pi05", "lerobot", "f32", NULL},
                                   {"pi0", "openpi", "f32", "pi0_droid"},
                                   {"pi05", "openpi", "bf16", "pi05_libero"}};
    static const char *const precisions[] = {"f32", "bf16", "int8"};
    for (size_t i = 0; i < 4; i++) {
        make_checkpoint("source", &robots[i]);
        for (size_t j = 0; j < 3; j++) {
            told t = {0};
            const pi0_pack_report report = pack_model(at("source"), at("m.pi0"), robots[i].config, precisions[j], NULL);
            assert_string_equal(report.precision, precisions[j]);
            assert_true(report.packed_weights > 0 && report.bytes > report.stored_bytes + report.packed_bytes);
            const actions original = actions_of(at("source"), robots[i].config, precisions[j], NULL, &t);
            /* no config, no side file, and `auto` is what it was packed for */
            const actions packed = actions_of(at("m.pi0"), NULL, "auto", NULL, &t);
            assert_same(&original, &packed);
            assert_int_equal(t.warnings, 0);
            remove(at("m.pi0"));
        }
        char *source = strdup(at("source"));
        pi0_test_remove_dir(source);
    }
}

static void packed_weights_are_used_where_they_are_mapped(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_model *model, *original;
    told t = {0};
    make_checkpoint("source", &lerobot_pi0);
    pack_model(at("source"), at("m.pi0"), NULL, "int8", NULL);
    const pi0_options options = options_for(NULL, "int8", NULL, &t);
    PI0_ASSERT_OK(pi0_open(at("source"), &options, &original, &err), &err);
    PI0_ASSERT_OK(pi0_open(at("m.pi0"), &options, &model, &err), &err);
    size_t bytes, ready = 0;
    const uint8_t *file = pi0_safetensors_shard_bytes(model->checkpoint->file, 0, &bytes);
    for (int i = 0; i < model->context.plan->n_weights; i++) {
        const pi0_device_weight *weight = &model->context.weights[i];
        if (!weight->packed)
            continue;
        const uint8_t *data = weight->buffer.host;
        assert_null(weight->buffer.handle);
        assert_true(data >= file && data + weight->buffer.bytes <= file + bytes);
        assert_int_equal((uintptr_t)data % PI0_ALIGN, 0);
        ready++;
    }
    assert_true(ready > 10);
    /* what was memory of its own is the file's */
    const pi0_memory before = pi0_model_memory(original), after = pi0_model_memory(model);
    assert_true(after.weights_owned < before.weights_owned / 2);
    assert_int_equal(after.weights_owned + after.weights_mapped, before.weights_owned + before.weights_mapped);
    pi0_close(&model);
    pi0_close(&original);
}

static void another_precision_or_chip_packs_again_and_says_so(void **state)
{
    (void)state;
    make_checkpoint("source", &lerobot_pi0);
    pack_model(at("source"), at("int8.pi0"), NULL, "int8", NULL);
    told t = {0};
    const actions bf16 = actions_of(at("source"), NULL, "bf16", NULL, &t);
    assert_int_equal(t.warnings, 0);
    const actions other = actions_of(at("int8.pi0"), NULL, "bf16", NULL, &t);
    assert_same(&bf16, &other);
    assert_int_equal(t.warnings, 1);
    assert_non_null(strstr(t.text, "packed for int8"));
    assert_non_null(strstr(t.text, "it lacks layout cpu."));
    /* the portable kernels have an order of their own, unless they are all that this machine has */
    pack_model(at("source"), at("ref.pi0"), NULL, "f32", "ref");
    told here = {0};
    const actions f32 = actions_of(at("source"), NULL, "f32", NULL, &here), moved = actions_of(at("ref.pi0"), NULL, "f32", NULL, &here);
    assert_same(&f32, &moved);
    pi0_kernels kernels;
    assert_int_equal(pi0_kernels_select(NULL, &kernels, NULL), PI0_OK);
    const int columns = kernels.gemm[PI0_GEMM_F32].tile_cols;
    assert_int_equal(pi0_kernels_select("ref", &kernels, NULL), PI0_OK);
    if (columns != kernels.gemm[PI0_GEMM_F32].tile_cols)
        assert_int_equal(here.warnings, 1);
    told there = {0};
    const actions ref = actions_of(at("ref.pi0"), NULL, "f32", "ref", &there);
    assert_int_equal(there.warnings, 0);
    assert_int_equal(ref.count, f32.count);
}

static void a_packed_file_can_be_packed_again(void **state)
{
    (void)state;
    make_checkpoint("source", &lerobot_pi0);
    pack_model(at("source"), at("first.pi0"), NULL, "int8", NULL);
    remove(at("source/config.json"));
    pack_model(at("first.pi0"), at("second.pi0"), NULL, "bf16", NULL);
    pack_model(at("second.pi0"), at("second.pi0"), NULL, "auto", NULL); /* onto itself */
    told t = {0};
    const actions a = actions_of(at("first.pi0"), NULL, "bf16", NULL, &t);
    t.warnings = 0;
    const actions b = actions_of(at("second.pi0"), NULL, "auto", NULL, &t);
    assert_same(&a, &b);
    assert_int_equal(t.warnings, 0);
    pi0_error err = {0};
    char *page;
    PI0_ASSERT_OK(pi0_inspect(at("second.pi0"), NULL, &page, &err), &err);
    json_t *root = json_loads(page, 0, NULL), *packed = json_object_get(root, "packed");
    json_t *source = json_array_get(json_object_get(packed, "source"), 0);
    assert_string_equal(json_string_value(json_object_get(source, "file")), "model.safetensors");
    assert_int_equal(strlen(json_string_value(json_object_get(source, "sha256"))), 64);
    assert_string_equal(json_string_value(json_object_get(packed, "precision")), "bf16");
    assert_int_equal(json_integer_value(json_object_get(packed, "weights_packed_at_open")), 0);
    const json_t *origin = json_object_get(json_object_get(json_object_get(root, "recipe"), "action.horizon"), "origin");
    assert_int_equal(strncmp(json_string_value(origin), "packed file, from ", 18), 0);
    assert_null(strstr(json_string_value(origin) + 1, "packed file"));
    json_decref(root);
    pi0_text_free(&page);
}

/* ------------------------------------------------------------------ files that were changed */

/* What a rewritten file is to have otherwise. */
typedef struct change {
    const char *key, *value; /* of the metadata */
    int rename, shrink;      /* 1 + which packed weight */
    bool no_padding, no_tokenizer, no_checksums;
} change;

static int keep_tensor(const change *c, const pi0_tensor_view *view)
{
    return !(c->no_padding && !strncmp(view->name, PI0_PACKED_PAD, strlen(PI0_PACKED_PAD))) &&
           !(c->no_tokenizer && !strcmp(view->name, PI0_TOKENIZER_TENSOR)) && strcmp(view->name, PI0_PACKED_CHECKSUMS) != 0;
}

/* Copies a packed file with a change that its checksums agree with, as another program could. */
static void rewrite(const char *from, const char *to, const change *c)
{
    static const char *const keys[] = {PI0_PACKED_VERSION_KEY,   PI0_PACKED_WRITER_KEY, PI0_PACKED_ORDER_KEY,  PI0_PACKED_LAYOUT_KEY,
                                       PI0_PACKED_PRECISION_KEY, PI0_PACKED_RECIPE_KEY, PI0_PACKED_SOURCE_KEY, PI0_PACKED_TOKENIZER_KEY};
    enum { KEYS = sizeof keys / sizeof *keys };
    const char *metadata[2 * KEYS + 1] = {NULL};
    static pi0_tensor_view views[1024];
    static char renamed[PI0_MAX_NAME];
    static uint32_t sums[1024];
    pi0_error err = {0};
    pi0_safetensors *file;
    pi0_safetensors_writer writer;
    size_t n = 0;
    int packed = 0;
    PI0_ASSERT_OK(pi0_safetensors_open(from, &file, &err), &err);
    for (size_t i = 0; i < KEYS; i++) {
        metadata[2 * i] = keys[i];
        metadata[2 * i + 1] = c->key && !strcmp(c->key, keys[i]) ? c->value : pi0_safetensors_metadata(file, keys[i]);
    }
    for (size_t i = 0; i < pi0_safetensors_count(file); i++) {
        pi0_tensor_view view = *pi0_safetensors_at(file, i);
        packed += !strncmp(view.name, PI0_PACKED_ORDER, strlen(PI0_PACKED_ORDER));
        if (!keep_tensor(c, &view))
            continue;
        if (!strncmp(view.name, PI0_PACKED_ORDER, strlen(PI0_PACKED_ORDER)) && packed == c->rename) {
            snprintf(renamed, sizeof renamed, PI0_PACKED_ORDER "gpu%s", view.name + strlen(PI0_PACKED_ORDER));
            view.name = renamed;
        } else if (!strncmp(view.name, PI0_PACKED_ORDER, strlen(PI0_PACKED_ORDER)) && packed == c->shrink) {
            view.bytes -= 64;
            view.shape[0] -= 64;
        }
        assert_true(n < 1000);
        views[n++] = view;
    }
    views[n] = (pi0_tensor_view){
        .name = PI0_PACKED_CHECKSUMS, .dtype = PI0_U32, .rank = 1, .shape = {(int64_t)n + 2}, .bytes = (n + 2) * sizeof *sums};
    PI0_ASSERT_OK(pi0_safetensors_create(&writer, to, views, n + !c->no_checksums, metadata, &err), &err);
    sums[0] = writer.header_crc;
    for (size_t i = 0; i < n; i++) {
        sums[i + 1] = pi0_crc32(0, views[i].data, views[i].bytes);
        PI0_ASSERT_OK(pi0_safetensors_put(&writer, views[i].data, views[i].bytes, &err), &err);
    }
    sums[n + 1] = pi0_crc32(0, sums, (n + 1) * sizeof *sums);
    if (!c->no_checksums)
        PI0_ASSERT_OK(pi0_safetensors_put(&writer, sums, (n + 2) * sizeof *sums, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_finish(&writer, &err), &err);
    pi0_safetensors_close(&file);
}

/* Opening must fail, with these texts in the error. */
#define MUST_REFUSE(path, status, ...)                                           \
    do {                                                                         \
        pi0_model *none_;                                                        \
        pi0_error err_ = {0};                                                    \
        assert_int_equal(pi0_open((path), NULL, &none_, &err_), (status));       \
        assert_null(none_);                                                      \
        pi0_test_assert_error(&err_, (status), __VA_ARGS__, (const char *)NULL); \
        pi0_test_assert_error_of_verify((path), (status));                       \
    } while (0)

static void pi0_test_assert_error_of_verify(const char *path, pi0_status status)
{
    pi0_error err = {0};
    assert_int_equal(pi0_pack_verify(path, NULL, NULL, NULL, &err), status);
    pi0_error_clear(&err);
}

static void files_that_cannot_be_are_refused(void **state)
{
    (void)state;
    make_checkpoint("source", &lerobot_pi0);
    pack_model(at("source"), at("good.pi0"), NULL, "auto", NULL);
    static const struct {
        change change;
        pi0_status status;
        const char *says[2];
    } bad[] = {
        {{.key = PI0_PACKED_VERSION_KEY, .value = "2"}, PI0_ERR_UNSUPPORTED, {"newer version", "at most 1"}},
        {{.key = PI0_PACKED_VERSION_KEY, .value = "one"}, PI0_ERR_FORMAT, {"no number", "one"}},
        {{.key = PI0_PACKED_VERSION_KEY, .value = "-1"}, PI0_ERR_FORMAT, {"no number", "-1"}},
        {{.key = PI0_PACKED_ORDER_KEY, .value = "middle"}, PI0_ERR_UNSUPPORTED, {"another byte order", "middle"}},
        {{.key = PI0_PACKED_PRECISION_KEY, .value = "int3"}, PI0_ERR_FORMAT, {"which precision", "int3"}},
        {{.key = PI0_PACKED_LAYOUT_KEY, .value = "robot"}, PI0_ERR_FORMAT, {"packed from", "robot"}},
        {{.no_tokenizer = true}, PI0_ERR_FORMAT, {"incomplete", "no tokenizer"}},
        {{.no_checksums = true}, PI0_ERR_FORMAT, {"no list of checksums", "bad.pi0"}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        rewrite(at("good.pi0"), at("bad.pi0"), &bad[i].change);
        MUST_REFUSE(at("bad.pi0"), bad[i].status, bad[i].says[0], bad[i].says[1]);
    }
    pi0_error err = {0};
    pi0_model *model;
    rewrite(at("good.pi0"), at("bad.pi0"), &(change){.key = PI0_PACKED_RECIPE_KEY, .value = "{\"pi0_recipe\": 1}"});
    assert_int_equal(pi0_open(at("bad.pi0"), NULL, &model, &err), PI0_ERR_FORMAT);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, "fields of a recipe", "bad.pi0", NULL);
    rewrite(at("good.pi0"), at("bad.pi0"), &(change){.shrink = 2});
    assert_int_equal(pi0_open(at("bad.pi0"), NULL, &model, &err), PI0_ERR_FORMAT);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, "wrong size", "bad.pi0: tensor \"packed/cpu", NULL);
    /* weights alone, under a packed file's name */
    assert_int_equal(rename(at("source/model.safetensors"), at("bad.pi0")), 0);
    MUST_REFUSE(at("bad.pi0"), PI0_ERR_FORMAT, "pi0 pack", PI0_PACKED_VERSION_KEY);
}

static void what_is_missing_or_misaligned_costs_time_only(void **state)
{
    (void)state;
    make_checkpoint("source", &lerobot_pi0);
    pack_model(at("source"), at("good.pi0"), NULL, "int8", NULL);
    told t = {0};
    const actions good = actions_of(at("good.pi0"), NULL, "auto", NULL, &t);
    rewrite(at("good.pi0"), at("other.pi0"), &(change){.rename = 3});
    const actions missing = actions_of(at("other.pi0"), NULL, "auto", NULL, &t);
    assert_same(&good, &missing);
    assert_int_equal(t.warnings, 1);
    assert_non_null(strstr(t.text, ": 1 of "));
    rewrite(at("good.pi0"), at("other.pi0"),
            &(change){.no_padding = true, .key = PI0_PACKED_WRITER_KEY, .value = "a longer name, thus odd"});
    const actions shifted = actions_of(at("other.pi0"), NULL, "auto", NULL, &t);
    assert_same(&good, &shifted);
    assert_int_equal(t.warnings, 1);
    /* under another name it is what it was, and what lies beside it is not looked at */
    pi0_test_write_file(at("config.json"), "{", 1);
    rewrite(at("good.pi0"), at("other.safetensors"), &(change){.key = NULL});
    remove(at("config.json"));
    const actions named = actions_of(at("other.safetensors"), NULL, "auto", NULL, &t);
    assert_same(&good, &named);
}

static void poke(const char *path, size_t offset)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    const int was = fgetc(file);
    assert_int_equal(fseek(file, (long)offset, SEEK_SET), 0);
    fputc(was ^ 1, file);
    fclose(file);
}

static void every_flipped_byte_is_found(void **state)
{
    (void)state;
    pi0_error err = {0};
    make_checkpoint("source", &lerobot_pi0);
    pack_model(at("source"), at("m.pi0"), NULL, "auto", NULL);
    uint64_t tensors, bytes;
    PI0_ASSERT_OK(pi0_pack_verify(at("m.pi0"), NULL, &tensors, &bytes, &err), &err);
    pi0_safetensors *file;
    PI0_ASSERT_OK(pi0_safetensors_open(at("m.pi0"), &file, &err), &err);
    assert_int_equal(tensors, pi0_safetensors_count(file));
    size_t size;
    const uint8_t *start = pi0_safetensors_shard_bytes(file, 0, &size);
    for (size_t i = 0; i + 1 < tensors; i += 9) { /* one byte of a tensor, any of its */
        const pi0_tensor_view *view = pi0_safetensors_at(file, i);
        const size_t offset = (size_t)((const uint8_t *)view->data - start) + view->bytes * (i % 10) / 10;
        poke(at("m.pi0"), offset);
        assert_int_equal(pi0_pack_verify(at("m.pi0"), NULL, NULL, NULL, &err), PI0_ERR_FORMAT);
        pi0_test_assert_error(&err, PI0_ERR_FORMAT, "damaged", view->name, NULL);
        poke(at("m.pi0"), offset);
    }
    const size_t header = pi0_safetensors_header_bytes(file, 0), list = size - 16;
    pi0_safetensors_close(&file);
    char *text = pi0_test_read_file(at("m.pi0"), &size);
    const size_t word = (size_t)(strstr(text + 8, "written_by\":\"pi0") - text) + 14;
    free(text);
    poke(at("m.pi0"), word); /* the header remains JSON, the model the same */
    MUST_REFUSE(at("m.pi0"), PI0_ERR_FORMAT, "header is damaged", "m.pi0");
    poke(at("m.pi0"), word);
    poke(at("m.pi0"), list);
    MUST_REFUSE(at("m.pi0"), PI0_ERR_FORMAT, "list of checksums is damaged", "m.pi0");
    poke(at("m.pi0"), list);
    PI0_ASSERT_OK(pi0_pack_verify(at("m.pi0"), NULL, NULL, NULL, &err), &err);
    const size_t cuts[] = {0, 7, header / 2, header, size / 2, size - 1};
    for (size_t i = sizeof cuts / sizeof *cuts; i-- > 0;) {
        char *whole = pi0_test_read_file(at("m.pi0"), &size);
        pi0_test_write_file(at("cut.pi0"), whole, cuts[i]);
        free(whole);
        MUST_REFUSE(at("cut.pi0"), PI0_ERR_FORMAT, "cut.pi0");
    }
}

/* ------------------------------------------------------------------ writing that fails */

static int stop_at_write(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user;
    return !strcmp(stage, "write") && done > total / 2;
}

static void a_failed_or_stopped_pack_leaves_the_old_file(void **state)
{
    (void)state;
    pi0_error err = {0};
    told t = {0};
    pi0_options options = options_for(NULL, "auto", NULL, &t);
    make_checkpoint("source", &lerobot_pi0);
    pi0_test_write_file(at("m.pi0"), "old", 3);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1 << 16;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pi0_status status = pi0_pack(at("source"), &options, at("m.pi0"), NULL, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "m.pi0", NULL);
    options.progress = stop_at_write;
    assert_int_equal(pi0_pack(at("source"), &options, at("m.pi0"), NULL, &err), PI0_ERR_CANCELLED);
    pi0_error_clear(&err);
    assert_int_equal(pi0_pack(at("source"), NULL, at("m.safetensors"), NULL, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "FILE.pi0", "m.safetensors", NULL);
    assert_int_equal(pi0_pack(at("source"), NULL, at("no/m.pi0"), NULL, &err), PI0_ERR_IO);
    pi0_error_clear(&err);
    size_t bytes;
    char *text = pi0_test_read_file(at("m.pi0"), &bytes);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(pi0_test_count_files(dir), 2);
}

static pi0_status pack_once(void *options, pi0_error *err)
{
    return pi0_pack(at("source"), options, at("n.pi0"), NULL, err);
}

static void an_allocation_that_fails_is_an_error(void **state)
{
    (void)state;
    told t = {0};
    pi0_options options = options_for(NULL, "int8", NULL, &t);
    make_checkpoint("source", &lerobot_pi0);
    pi0_test_fail_allocations("pack", pack_once, &options, (pi0_test_sweep){.first = 1, .last = 250, .stride = 13});
    assert_int_equal(pi0_test_count_files(dir), 2);
}

/* ------------------------------------------------------------------ checksums */

static void sha256_and_crc32_are_those_of_the_standards(void **state)
{
    (void)state;
    static const struct {
        size_t bytes;
        const char *hash;
    } known[] = {{0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
                 {1, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"},
                 {1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
    char *text = malloc(1000000), hash[PI0_SHA256_TEXT], pieces[PI0_SHA256_TEXT];
    memset(text, 'a', 1000000);
    pi0_sha256 h;
    for (size_t i = 0; i < 3; i++) {
        pi0_sha256_start(&h);
        pi0_sha256_add(&h, text, known[i].bytes);
        pi0_sha256_finish(&h, hash);
        assert_string_equal(hash, known[i].hash);
    }
    for (size_t bytes = 50; bytes < 200; bytes++) { /* every way to end a block, in two and in many pieces */
        pi0_sha256_start(&h);
        pi0_sha256_add(&h, text, bytes);
        pi0_sha256_finish(&h, hash);
        pi0_sha256_start(&h);
        for (size_t i = 0; i < bytes; i += 7)
            pi0_sha256_add(&h, text + i, bytes - i < 7 ? bytes - i : 7);
        pi0_sha256_finish(&h, pieces);
        assert_string_equal(hash, pieces);
    }
    assert_int_equal(pi0_crc32(0, "123456789", 9), 0xcbf43926);
    assert_int_equal(pi0_crc32(pi0_crc32(0, "1234", 4), "56789", 5), 0xcbf43926);
    free(text);
}

/* ------------------------------------------------------------------ */

static int make_dir(void **state)
{
    (void)state;
    dir = pi0_test_make_dir();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    pi0_test_remove_dir(dir);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_packed_file_alone_gives_the_bits_of_its_checkpoint),
        TEST(packed_weights_are_used_where_they_are_mapped),
        TEST(another_precision_or_chip_packs_again_and_says_so),
        TEST(a_packed_file_can_be_packed_again),
        TEST(files_that_cannot_be_are_refused),
        TEST(what_is_missing_or_misaligned_costs_time_only),
        TEST(every_flipped_byte_is_found),
        TEST(a_failed_or_stopped_pack_leaves_the_old_file),
        TEST(an_allocation_that_fails_is_an_error),
        TEST(sha256_and_crc32_are_those_of_the_standards),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
