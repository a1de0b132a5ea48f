/* pi0_pack: a model in one file, with its weights in the order of this machine's kernels (docs/formats.md, "Packed files"). */
#include <string.h>

#include "engine/engine.h"

enum {
    PAGE = 4096,     /* what is larger begins on one: it is read from the disk, and leaves memory, without its neighbours */
    PIECE = 4 << 20, /* bytes between two looks at the progress function */
    N_METADATA = 10,
};

/* One tensor of the file. Its bytes come from `data`, or from packing `weight`; padding has neither. */
typedef struct member {
    const uint8_t *data;
    const pi0_weight *weight;
} member;

typedef struct packing {
    const pi0_options *options;
    pi0_log log;
    pi0_checkpoint *checkpoint;
    pi0_recipe *recipe;
    pi0_mapping tokenizer_file;
    const uint8_t *tokenizer; /* bytes of the file, or of the tensor of a packed one */
    size_t tokenizer_bytes;
    char *tokenizer_name;
    const pi0_device_api *api;
    pi0_device *device;
    pi0_blueprint blueprint;
    pi0_tensor_view *views; /* [count] names are owned */
    member *members;
    size_t count, capacity;
    uint64_t at;         /* bytes of data so far */
    uint32_t *checksums; /* [count + 1]: of the header, then of every tensor but the last, then of these */
    char *recipe_text, *origins, *source, *calibration;
    pi0_safetensors_writer writer;
    uint64_t done;
    pi0_error *err;
    pi0_status failed; /* of a walk over tensors */
    pi0_pack_report report;
} packing;

static void release(packing *p)
{
    pi0_safetensors_abort(&p->writer);
    for (size_t i = 0; i < p->count; i++)
        pi0_free((void *)(uintptr_t)p->views[i].name);
    pi0_free(p->views);
    pi0_free(p->members);
    pi0_free(p->checksums);
    pi0_text_free(&p->recipe_text);
    pi0_text_free(&p->origins);
    pi0_text_free(&p->source);
    pi0_text_free(&p->calibration);
    pi0_free(p->tokenizer_name);
    pi0_unmap(&p->tokenizer_file);
    pi0_blueprint_free(&p->blueprint);
    if (p->device)
        p->api->close(&p->device);
    pi0_recipe_free(&p->recipe);
    pi0_checkpoint_close(&p->checkpoint);
}

static pi0_status report_progress(packing *p, const char *stage, uint64_t total)
{
    if (p->options->progress && p->options->progress(p->options->progress_user, stage, p->done, total))
        return pi0_fail(p->err, PI0_ERR_CANCELLED, "packing was cancelled");
    return PI0_OK;
}

/* ------------------------------------------------------------------ what goes into the file */

static pi0_status grow(packing *p)
{
    if (p->count < p->capacity)
        return PI0_OK;
    const size_t capacity = p->capacity ? 2 * p->capacity : 1024;
    pi0_tensor_view *views = pi0_alloc_array(capacity, sizeof *views);
    member *members = pi0_alloc_array(capacity, sizeof *members);
    if (!views || !members) {
        pi0_free(views);
        pi0_free(members);
        return pi0_fail_memory(p->err, capacity * sizeof *views, "the list of tensors");
    }
    if (p->count) {
        memcpy(views, p->views, p->count * sizeof *views);
        memcpy(members, p->members, p->count * sizeof *members);
    }
    pi0_free(p->views);
    pi0_free(p->members);
    p->views = views;
    p->members = members;
    p->capacity = capacity;
    return PI0_OK;
}

static pi0_status append(packing *p, const pi0_tensor_view *view, member m)
{
    PI0_TRY(grow(p));
    pi0_tensor_view *own = &p->views[p->count];
    *own = *view;
    own->name = pi0_strdup(view->name);
    if (!own->name)
        return pi0_fail_memory(p->err, strlen(view->name) + 1, "a tensor name");
    p->members[p->count++] = m;
    p->at += view->bytes;
    return PI0_OK;
}

/* The format allows no holes: what lies between two tensors for the sake of the second is a tensor too. */
static pi0_status pad(packing *p, size_t align)
{
    char name[64];
    const size_t hole = pi0_round_up((size_t)p->at, align) - (size_t)p->at;
    snprintf(name, sizeof name, PI0_PACKED_PAD "%zu", p->count);
    const pi0_tensor_view view = {.name = name, .dtype = PI0_U8, .rank = 1, .shape = {(int64_t)hole}, .bytes = hole};
    return hole ? append(p, &view, (member){0}) : PI0_OK;
}

static pi0_status add(packing *p, const pi0_tensor_view *view, member m)
{
    PI0_TRY(pad(p, view->bytes >= PAGE ? PAGE : PI0_ALIGN));
    return append(p, view, m);
}

static pi0_status add_bytes(packing *p, const char *name, size_t bytes, member m)
{
    const pi0_tensor_view view = {.name = name, .dtype = PI0_U8, .rank = 1, .shape = {(int64_t)bytes}, .bytes = bytes};
    return add(p, &view, m);
}

static int add_stored(void *context, const char *canonical, const pi0_tensor_view *tensor)
{
    packing *p = context;
    pi0_tensor_view view = *tensor;
    view.name = canonical;
    p->failed = add(p, &view, (member){.data = tensor->data});
    p->report.stored_tensors++;
    p->report.stored_bytes += tensor->bytes;
    return p->failed != PI0_OK;
}

static bool has_member(const packing *p, const char *name)
{
    for (size_t i = p->count; i-- > 0;)
        if (!strcmp(p->views[i].name, name))
            return true;
    return false;
}

/* The weights that the device would pack at open. Those that it multiplies as they are stored gain nothing. */
static pi0_status add_packed(packing *p, const pi0_plan *plan)
{
    for (int i = 0; plan && i < plan->n_weights; i++) {
        const pi0_weight *weight = &plan->weights[i];
        char layout[PI0_LAYOUT_TEXT], name[PI0_MAX_NAME + 1];
        if (weight->rows == 0 || weight->shared)
            continue;
        const pi0_dtype stored = pi0_weight_memory_of(p->checkpoint, weight).dtype;
        const size_t bytes = p->api->weight_bytes(p->device, weight, stored);
        PI0_TRY(p->api->layout(p->device, weight, stored, layout, p->err));
        if (!bytes || !*layout || !pi0_packed_name(layout, weight, name, sizeof name) || has_member(p, name))
            continue;
        PI0_TRY(add_bytes(p, name, bytes, (member){.weight = weight}));
        p->report.packed_weights++;
        p->report.packed_bytes += bytes;
    }
    return PI0_OK;
}

static pi0_status list_members(packing *p)
{
    PI0_TRY(add_bytes(p, PI0_TOKENIZER_TENSOR, p->tokenizer_bytes, (member){.data = p->tokenizer}));
    pi0_checkpoint_each_needed(p->checkpoint, add_stored, p);
    PI0_TRY(p->failed);
    PI0_TRY(add_packed(p, p->blueprint.plans.context));
    PI0_TRY(add_packed(p, p->blueprint.plans.schedule));
    PI0_TRY(add_packed(p, p->blueprint.plans.denoise));
    PI0_TRY(pad(p, PI0_ALIGN));
    const size_t sums = p->count + 2;
    const pi0_tensor_view list = {
        .name = PI0_PACKED_CHECKSUMS, .dtype = PI0_U32, .rank = 1, .shape = {(int64_t)sums}, .bytes = sums * sizeof *p->checksums};
    p->checksums = pi0_alloc_array(sums, sizeof *p->checksums);
    return p->checksums ? append(p, &list, (member){0}) : pi0_fail_memory(p->err, list.bytes, "a list of checksums");
}

/* ------------------------------------------------------------------ what is said about it */

/* Takes `object`, which may be NULL for want of memory. */
static pi0_status dump(json_t *object, char **out, pi0_error *err)
{
    *out = pi0_json_text(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(object);
    return *out ? PI0_OK : pi0_fail_memory(err, 0, "a JSON text");
}

/* What is packed again is vouched for by new checksums: the old ones must hold first. */
static pi0_status verify_source(packing *p)
{
    const pi0_safetensors *file = p->checkpoint->file;
    const pi0_packed_progress progress = {
        .fn = p->options->progress, .user = p->options->progress_user, .total = pi0_safetensors_data_bytes(file)};
    return p->checkpoint->packed ? pi0_packed_verify(file, p->checkpoint->path, &progress, p->err) : PI0_OK;
}

static pi0_status hash_file(packing *p, size_t shard, uint64_t total, char text[PI0_SHA256_TEXT])
{
    size_t bytes;
    const uint8_t *data = pi0_safetensors_shard_bytes(p->checkpoint->file, shard, &bytes);
    pi0_sha256 hash;
    pi0_sha256_start(&hash);
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        PI0_TRY(report_progress(p, "hash", total));
        pi0_sha256_add(&hash, data + at, piece);
        pi0_map_release_pages(data + at, piece);
        p->done += piece;
    }
    pi0_sha256_finish(&hash, text);
    return PI0_OK;
}

/* [{"file","bytes","sha256"}] of the checkpoint's weights; a packed file hands on what it knows. */
static pi0_status describe_source(packing *p)
{
    const pi0_safetensors *file = p->checkpoint->file;
    const char *known = p->checkpoint->packed ? pi0_safetensors_metadata(file, PI0_PACKED_SOURCE_KEY) : NULL;
    uint64_t total = 0;
    size_t bytes;
    if (known) {
        p->source = pi0_strdup(known);
        return p->source ? PI0_OK : pi0_fail_memory(p->err, strlen(known), "a description of the source");
    }
    for (size_t i = 0; i < pi0_safetensors_shards(file); i++, total += bytes)
        pi0_safetensors_shard_bytes(file, i, &bytes);
    json_t *list = json_array();
    for (size_t i = 0; i < pi0_safetensors_shards(file); i++) {
        char hash[PI0_SHA256_TEXT];
        const char *path = pi0_safetensors_shard_path(file, i), *slash = strrchr(path, '/');
        pi0_safetensors_shard_bytes(file, i, &bytes);
        pi0_status status = hash_file(p, i, total, hash);
        if (status == PI0_OK && json_array_append_new(list, json_pack("{s:o,s:I,s:s}", "file", pi0_json_words(slash ? slash + 1 : path),
                                                                      "bytes", (json_int_t)bytes, "sha256", hash)) != 0)
            status = pi0_fail_memory(p->err, sizeof hash, "a description of the source");
        if (status != PI0_OK) {
            json_decref(list);
            return status;
        }
    }
    return dump(list, &p->source, p->err);
}

/* int8:auto: a file that is packed for it needs no other to be opened so. */
static pi0_status read_calibration(packing *p)
{
    pi0_calibration calibration;
    if (!p->blueprint.by_layer)
        return PI0_OK;
    const pi0_device_info info = p->api->info(p->device);
    PI0_TRY(pi0_calibration_open(p->options, p->checkpoint, &info, &calibration, p->err));
    const pi0_status status = dump(json_incref(calibration.document), &p->calibration, p->err);
    pi0_calibration_close(&calibration);
    return status;
}

static pi0_status create_file(packing *p, const char *to)
{
    char version[8], writer[32];
    snprintf(version, sizeof version, "%d", PI0_PACKED_VERSION);
    snprintf(writer, sizeof writer, "pi0 %s", pi0_version());
    const char *metadata[2 * N_METADATA + 1] = {PI0_PACKED_VERSION_KEY,   version,
                                                PI0_PACKED_WRITER_KEY,    writer,
                                                PI0_PACKED_ORDER_KEY,     pi0_byte_order(),
                                                PI0_PACKED_PRECISION_KEY, pi0_precision_word(p->blueprint.precision),
                                                PI0_PACKED_LAYOUT_KEY,    pi0_layout_name(p->checkpoint->layout),
                                                PI0_PACKED_TOKENIZER_KEY, p->tokenizer_name,
                                                PI0_PACKED_SOURCE_KEY,    p->source,
                                                PI0_PACKED_RECIPE_KEY,    p->recipe_text,
                                                PI0_PACKED_ORIGINS_KEY,   p->origins};
    if (p->calibration) {
        metadata[2 * N_METADATA - 2] = PI0_PACKED_CALIBRATION_KEY;
        metadata[2 * N_METADATA - 1] = p->calibration;
    }
    p->done = 0;
    PI0_TRY(report_progress(p, "write", p->at)); /* before the first thing that can go wrong with the new file */
    return pi0_safetensors_create_aligned(&p->writer, to, p->views, p->count, metadata, PAGE, p->err);
}

/* ------------------------------------------------------------------ writing */

static pi0_status put(packing *p, const uint8_t *data, size_t bytes, bool mapped, uint32_t *crc)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        const size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        PI0_TRY(report_progress(p, "write", p->at));
        PI0_TRY(pi0_safetensors_put(&p->writer, data + at, piece, p->err));
        *crc = pi0_crc32(*crc, data + at, piece);
        if (mapped)
            pi0_map_release_pages(data + at, piece);
        p->done += piece;
    }
    return PI0_OK;
}

static pi0_status put_weight(packing *p, const pi0_weight *weight, size_t bytes, uint32_t *crc)
{
    pi0_device_weight packed = {0};
    PI0_TRY(pi0_import_weight(p->checkpoint, p->api, p->device, weight, &packed, p->err));
    uint8_t *copy = packed.buffer.host ? NULL : pi0_alloc(bytes);
    pi0_status status = PI0_OK;
    if (!packed.buffer.host && !copy)
        status = pi0_fail_memory(p->err, bytes, "a packed weight");
    else if (copy)
        status = p->api->read(p->device, &packed.buffer, 0, copy, bytes, p->err);
    if (status == PI0_OK)
        status = put(p, copy ? copy : packed.buffer.host, bytes, !packed.buffer.handle, crc);
    pi0_free(copy);
    if (packed.buffer.handle)
        p->api->free(p->device, &packed.buffer);
    return status;
}

static pi0_status write_members(packing *p)
{
    static const uint8_t zeros[PAGE];
    p->checksums[0] = p->writer.header_crc;
    for (size_t i = 0; i + 1 < p->count; i++) {
        const pi0_tensor_view *view = &p->views[i];
        const member *m = &p->members[i];
        uint32_t *crc = &p->checksums[i + 1];
        PI0_TRY(m->weight ? put_weight(p, m->weight, view->bytes, crc) : put(p, m->data ? m->data : zeros, view->bytes, m->data, crc));
    }
    p->checksums[p->count] = pi0_crc32(0, p->checksums, p->count * sizeof *p->checksums);
    PI0_TRY(pi0_safetensors_put(&p->writer, p->checksums, (p->count + 1) * sizeof *p->checksums, p->err));
    p->report.bytes = p->writer.file.bytes;
    return pi0_safetensors_finish(&p->writer, p->err);
}

/* ------------------------------------------------------------------ the whole */

static pi0_status read_tokenizer(packing *p)
{
    pi0_tokenizer *checked = NULL;
    char *path = NULL;
    const pi0_safetensors *file = p->checkpoint->file;
    PI0_TRY(pi0_open_tokenizer(p->checkpoint, pi0_recipe_get_facts(p->recipe), p->options, &checked, p->err));
    pi0_tokenizer_close(&checked);
    if (p->checkpoint->packed && !p->options->tokenizer) {
        const pi0_tensor_view *inside = pi0_safetensors_find(file, PI0_TOKENIZER_TENSOR);
        const char *name = pi0_safetensors_metadata(file, PI0_PACKED_TOKENIZER_KEY);
        p->tokenizer = inside->data;
        p->tokenizer_bytes = inside->bytes;
        p->tokenizer_name = pi0_strdup(name ? name : "tokenizer");
    } else {
        PI0_TRY(pi0_checkpoint_tokenizer(p->checkpoint, p->options, &path, p->err));
        pi0_status status = pi0_map_file(path, &p->tokenizer_file, p->err);
        const char *slash = strrchr(path, '/');
        json_t *words = pi0_json_words(slash ? slash + 1 : path); /* a header is UTF-8, a path need not be */
        p->tokenizer_name = words ? pi0_strdup(json_string_value(words)) : NULL;
        json_decref(words);
        pi0_free(path);
        PI0_TRY(status);
        p->tokenizer = p->tokenizer_file.data;
        p->tokenizer_bytes = p->tokenizer_file.bytes;
    }
    return p->tokenizer_name ? PI0_OK : pi0_fail_memory(p->err, 0, "a name");
}

static pi0_status pack(packing *p, const char *path, const char *to)
{
    const pi0_options *options = p->options;
    pi0_error *err = p->err;
    PI0_TRY(pi0_find_device(options->device, &p->api, err));
    PI0_TRY(pi0_checkpoint_open(path, options, &p->log, &p->checkpoint, err));
    PI0_TRY(pi0_recipe_load(p->checkpoint, options, &p->log, NULL, &p->recipe, err));
    PI0_TRY(read_tokenizer(p));
    const pi0_device_options device_options = {.threads = options->threads, .isa = options->isa, .log = &p->log};
    PI0_TRY(p->api->open(&device_options, &p->device, err));
    const pi0_site site = {
        .checkpoint = p->checkpoint, .facts = pi0_recipe_get_facts(p->recipe), .options = options, .api = p->api, .device = p->device};
    PI0_TRY(pi0_blueprint_make(&site, &p->blueprint, err));
    p->report.precision = p->blueprint.by_layer ? "int8:auto" : pi0_precision_word(p->blueprint.precision);
    PI0_TRY(read_calibration(p));
    PI0_TRY(verify_source(p));
    PI0_TRY(list_members(p));
    PI0_TRY(dump(pi0_recipe_to_json(p->recipe), &p->recipe_text, err));
    PI0_TRY(dump(pi0_recipe_origins(p->recipe), &p->origins, err));
    PI0_TRY(describe_source(p));
    PI0_TRY(create_file(p, to));
    return write_members(p);
}

static pi0_status check_target(const char *to, pi0_error *err)
{
    const size_t length = to ? strlen(to) : 0;
    if (length > 4 && !strcmp(to + length - 4, ".pi0"))
        return PI0_OK;
    pi0_fail(err, PI0_ERR_ARGUMENT, "a packed file needs a name that ends in .pi0");
    pi0_err_expected(err, "FILE.pi0");
    pi0_err_got(err, "%s", to ? to : "no name");
    return PI0_ERR_ARGUMENT;
}

pi0_status pi0_pack(const char *path, const pi0_options *options, const char *to, pi0_pack_report *report, pi0_error *err)
{
    pi0_options defaults;
    pi0_options_init(&defaults);
    packing p = {.options = options ? options : &defaults, .err = err};
    PI0_TRY(check_target(to, err));
    p.log = (pi0_log){p.options->log, p.options->log_user};
    pi0_status status = pack(&p, path, to);
    if (status == PI0_OK && report)
        *report = p.report;
    release(&p);
    return status;
}

pi0_status pi0_pack_verify(const char *path, const pi0_options *options, uint64_t *tensors, uint64_t *bytes, pi0_error *err)
{
    pi0_safetensors *file = NULL;
    pi0_packed_facts facts;
    PI0_TRY(pi0_safetensors_open(path, &file, err));
    const pi0_packed_progress progress = {.fn = options ? options->progress : NULL,
                                          .user = options ? options->progress_user : NULL,
                                          .total = pi0_safetensors_data_bytes(file)};
    pi0_status status = PI0_OK;
    if (!pi0_packed_is(file)) {
        status = pi0_fail(err, PI0_ERR_FORMAT, "not a packed file: it holds no checksums");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "a file that `pi0 pack MODEL -o FILE.pi0` wrote");
        goto fail;
    }
    PI0_TRY_GOTO(pi0_packed_check(file, path, &facts, err));
    PI0_TRY_GOTO(pi0_packed_verify(file, path, &progress, err));
    if (tensors)
        *tensors = pi0_safetensors_count(file);
    if (bytes)
        *bytes = pi0_safetensors_data_bytes(file);
fail:
    pi0_safetensors_close(&file);
    return status;
}
