#include <stdlib.h>
#include <string.h>

#include "io/io.h"

#define MAX_LISTED 50 /* items of one error: enough to see the pattern */

/* One file: eight bytes of header length, the header, the data. */
typedef struct shard {
    char *path;
    pi0_mapping map;
    const uint8_t *bytes; /* of the whole file: the mapping's, or the caller's */
    size_t size;
    json_t *header; /* owns the names that the views point to */
    uint64_t data_bytes;
} shard;

struct pi0_safetensors {
    shard *shards;
    size_t n_shards;
    pi0_tensor_view *tensors; /* by shard, then by place in the file */
    size_t count, capacity;
    const pi0_tensor_view **by_name;
};

static const struct {
    const char *name;
    pi0_dtype dtype;
} dtype_names[] = {
    {"F32", PI0_F32}, {"BF16", PI0_BF16}, {"F16", PI0_F16}, {"F64", PI0_F64}, {"U8", PI0_U8},   {"I8", PI0_I8},     {"I16", PI0_I16},
    {"U16", PI0_U16}, {"I32", PI0_I32},   {"U32", PI0_U32}, {"I64", PI0_I64}, {"U64", PI0_U64}, {"BOOL", PI0_BOOL},
};

/* ------------------------------------------------------------------ one tensor of a header */

static pi0_status fail_tensor(pi0_error *err, const char *where, const char *name, const char *what)
{
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "%s", what);
    pi0_err_where(err, "%s: tensor \"%.256s\"", where, name);
    return status;
}

static pi0_status read_dtype(const char *name, const json_t *entry, const char *where, pi0_dtype *out, pi0_error *err)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text) {
        pi0_status status = fail_tensor(err, where, name, "a tensor has no dtype");
        pi0_err_expected(err, "\"dtype\": a string");
        pi0_err_got(err, "%s", pi0_json_type_name(json_object_get(entry, "dtype")));
        return status;
    }
    for (size_t i = 0; i < sizeof dtype_names / sizeof *dtype_names; i++)
        if (strcmp(text, dtype_names[i].name) == 0) {
            *out = dtype_names[i].dtype;
            return PI0_OK;
        }
    pi0_fail(err, PI0_ERR_UNSUPPORTED, "the tensor type %.64s is not supported", text);
    pi0_err_where(err, "%s: tensor \"%.256s\"", where, name);
    pi0_err_expected(err, "F32, BF16, F16, F64, U8, I8, I16, U16, I32, U32, I64, U64 or BOOL");
    pi0_err_got(err, "%.64s", text);
    pi0_err_hint(err, "save the checkpoint in BF16 or F32");
    return PI0_ERR_UNSUPPORTED;
}

static pi0_status read_shape(const char *name, const json_t *entry, const char *where, pi0_tensor_view *out, pi0_error *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    size_t rank = json_array_size(shape);
    if (!json_is_array(shape) || rank > PI0_MAX_RANK) {
        pi0_status status = fail_tensor(err, where, name, "a tensor has no usable shape");
        pi0_err_expected(err, "\"shape\": an array of at most %d extents", PI0_MAX_RANK);
        if (json_is_array(shape))
            pi0_err_got(err, "%zu extents", rank);
        else
            pi0_err_got(err, "%s", pi0_json_type_name(shape));
        return status;
    }
    for (size_t i = 0; i < rank; i++) {
        const json_t *extent = json_array_get(shape, i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0) {
            pi0_status status = fail_tensor(err, where, name, "a tensor has an impossible extent");
            pi0_err_expected(err, "\"shape\"[%zu]: an integer, 0 or more", i);
            if (json_is_integer(extent))
                pi0_err_got(err, "%lld", (long long)json_integer_value(extent));
            else
                pi0_err_got(err, "%s", pi0_json_type_name(extent));
            return status;
        }
        out->shape[i] = json_integer_value(extent);
    }
    out->rank = (int)rank;
    return PI0_OK;
}

/* The byte range, relative to the data; checked against the data's size and against shape and dtype. */
static pi0_status read_range(const char *name, const json_t *entry, const char *where, uint64_t data_bytes, pi0_tensor_view *view,
                             uint64_t *begin, pi0_error *err)
{
    const json_t *range = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(range, 0), *second = json_array_get(range, 1);
    pi0_status status;
    if (json_array_size(range) != 2 || !json_is_integer(first) || !json_is_integer(second)) {
        status = fail_tensor(err, where, name, "a tensor has no usable data_offsets");
        pi0_err_expected(err, "\"data_offsets\": two integers");
        pi0_err_got(err, "%s of %s and %s", pi0_json_type_name(range), pi0_json_type_name(first), pi0_json_type_name(second));
        return status;
    }
    int64_t from = json_integer_value(first), to = json_integer_value(second);
    if (from < 0 || to < from || (uint64_t)to > data_bytes) {
        status = fail_tensor(err, where, name, "a tensor lies outside the file's data");
        pi0_err_expected(err, "0 <= begin <= end <= %llu", (unsigned long long)data_bytes);
        pi0_err_got(err, "begin %lld, end %lld", (long long)from, (long long)to);
        pi0_err_hint(err, "the file may have been cut short: compare its size with the original's");
        return status;
    }
    size_t expected;
    bool fits = pi0_shape_bytes(view->shape, view->rank, pi0_dtype_size(view->dtype), &expected);
    if (!fits || expected != (uint64_t)(to - from)) {
        status = fail_tensor(err, where, name, "a tensor's byte range does not have the size of its shape");
        if (fits)
            pi0_err_expected(err, "%zu bytes for shape and dtype %s", expected, pi0_dtype_name(view->dtype));
        else
            pi0_err_expected(err, "a shape whose size fits 64 bits");
        pi0_err_got(err, "%lld bytes", (long long)(to - from));
        return status;
    }
    *begin = (uint64_t)from;
    view->bytes = expected;
    return PI0_OK;
}

static pi0_status read_metadata(json_t *metadata, const char *where, pi0_error *err)
{
    const json_t *odd = json_is_object(metadata) ? NULL : metadata;
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            odd = value;
    }
    if (!odd)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_FORMAT, "the metadata of the header is malformed");
    pi0_err_where(err, "%s: \"__metadata__\"", where);
    pi0_err_expected(err, "an object whose values are strings");
    pi0_err_got(err, "%s", pi0_json_type_name(odd));
    return PI0_ERR_FORMAT;
}

/* ------------------------------------------------------------------ one file */

static int compare_places(const void *a, const void *b)
{
    const pi0_tensor_view *x = a, *y = b;
    const char *px = x->data, *py = y->data;
    if (px != py)
        return px < py ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name); /* only empty tensors get here without being an overlap */
}

/* tensors: sorted by place. Every byte of the data must belong to exactly one. */
static pi0_status check_cover(const pi0_tensor_view *tensors, size_t count, const uint8_t *data, uint64_t data_bytes, const char *where,
                              pi0_error *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t begin = (uint64_t)((const uint8_t *)tensors[i].data - data);
        if (begin != at) {
            pi0_status status =
                fail_tensor(err, where, tensors[i].name, begin < at ? "two tensors overlap" : "there is a hole between two tensors");
            if (i > 0)
                pi0_err_expected(err, "begin %llu, where \"%.256s\" ends", (unsigned long long)at, tensors[i - 1].name);
            else
                pi0_err_expected(err, "begin 0");
            pi0_err_got(err, "begin %llu", (unsigned long long)begin);
            return status;
        }
        at += tensors[i].bytes;
    }
    if (at != data_bytes) {
        pi0_fail(err, PI0_ERR_FORMAT, "the tensors do not cover the file's data");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "%llu bytes of data, where the last tensor ends", (unsigned long long)at);
        pi0_err_got(err, "%llu bytes after the header", (unsigned long long)data_bytes);
        return PI0_ERR_FORMAT;
    }
    return PI0_OK;
}

/* Length of the header, whose text then is data[8 .. 8 + length). */
static pi0_status read_header_length(const uint8_t *data, size_t bytes, const char *where, size_t *length, pi0_error *err)
{
    uint64_t n = 0;
    if (bytes >= 8)
        memcpy(&n, data, sizeof n);
    if (bytes < 8 || n > bytes - 8) {
        pi0_fail(err, PI0_ERR_FORMAT, bytes < 8 ? "the file is too short for safetensors" : "the header is longer than the file");
        pi0_err_where(err, "%s", where);
        if (bytes < 8)
            pi0_err_expected(err, "at least 8 bytes");
        else
            pi0_err_expected(err, "a header of at most %zu bytes", bytes - 8);
        pi0_err_got(err, "%llu bytes", (unsigned long long)(bytes < 8 ? bytes : n));
        pi0_err_hint(err, "is this a safetensors file, and whole? Compare its size with the original's");
        return PI0_ERR_FORMAT;
    }
    if (n > PI0_MAX_SAFETENSORS_HEADER) {
        pi0_fail(err, PI0_ERR_FORMAT, "the header is too large");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "at most %u bytes", PI0_MAX_SAFETENSORS_HEADER);
        pi0_err_got(err, "%llu bytes", (unsigned long long)n);
        return PI0_ERR_FORMAT;
    }
    if (n == 0 || data[8] != '{') {
        pi0_fail(err, PI0_ERR_FORMAT, "the header is not a JSON object");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "'{' at byte 8");
        if (n)
            pi0_err_got(err, "byte 0x%02x", data[8]);
        else
            pi0_err_got(err, "a header of 0 bytes");
        return PI0_ERR_FORMAT;
    }
    *length = (size_t)n;
    return PI0_OK;
}

static pi0_status reserve_tensors(pi0_safetensors *file, size_t more, const char *where, pi0_error *err)
{
    if (more > PI0_MAX_TENSORS - file->count) {
        pi0_fail(err, PI0_ERR_FORMAT, "too many tensors");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "at most %d", PI0_MAX_TENSORS);
        pi0_err_got(err, "%zu", file->count + more);
        return PI0_ERR_FORMAT;
    }
    size_t capacity = file->count + more > 2 * file->capacity ? file->count + more : 2 * file->capacity;
    if (file->count + more <= file->capacity)
        return PI0_OK;
    pi0_tensor_view *grown = realloc(file->tensors, capacity * sizeof *grown);
    if (!grown)
        return pi0_fail_memory(err, capacity * sizeof *grown, "a list of tensors");
    file->tensors = grown;
    file->capacity = capacity;
    return PI0_OK;
}

/* Appends the tensors of file->shards[index], whose bytes are given, to the file's list. */
static pi0_status parse_shard(pi0_safetensors *file, size_t index, const uint8_t *data, size_t bytes, const char *where, pi0_error *err)
{
    shard *s = &file->shards[index];
    size_t header_bytes;
    PI0_TRY(pi0_refuse_impostor(data, bytes, where, err));
    PI0_TRY(read_header_length(data, bytes, where, &header_bytes, err));
    PI0_TRY(pi0_json_parse((const char *)data + 8, header_bytes, where, &s->header, err));
    const uint8_t *body = data + 8 + header_bytes;
    s->bytes = data;
    s->size = bytes;
    s->data_bytes = bytes - 8 - header_bytes;
    PI0_TRY(reserve_tensors(file, json_object_size(s->header), where, err));

    size_t first = file->count;
    const char *name;
    json_t *entry;
    json_object_foreach(s->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0) {
            PI0_TRY(read_metadata(entry, where, err));
            continue;
        }
        if (strlen(name) > PI0_MAX_NAME || !json_is_object(entry)) {
            pi0_status status = fail_tensor(err, where, name, "a tensor's entry in the header is malformed");
            pi0_err_expected(err, "a name of at most %d bytes, and an object", PI0_MAX_NAME);
            pi0_err_got(err, "a name of %zu bytes, and %s", strlen(name), pi0_json_type_name(entry));
            return status;
        }
        pi0_tensor_view view = {.name = name, .shard = (int)index};
        uint64_t begin = 0;
        PI0_TRY(read_dtype(name, entry, where, &view.dtype, err));
        PI0_TRY(read_shape(name, entry, where, &view, err));
        PI0_TRY(read_range(name, entry, where, s->data_bytes, &view, &begin, err));
        view.data = body + begin;
        file->tensors[file->count++] = view;
    }
    size_t count = file->count - first;
    pi0_tensor_view *own = count ? file->tensors + first : NULL;
    if (count > 1)
        qsort(own, count, sizeof *own, compare_places);
    return check_cover(own, count, body, s->data_bytes, where, err);
}

static int compare_names(const void *a, const void *b)
{
    const pi0_tensor_view *x = *(const pi0_tensor_view *const *)a, *y = *(const pi0_tensor_view *const *)b;
    return strcmp(x->name, y->name);
}

/* Sorted names rather than a hash table: no file can choose names that make the look-up slow. */
static pi0_status index_names(pi0_safetensors *file, pi0_error *err)
{
    file->by_name = malloc((file->count + 1) * sizeof *file->by_name);
    if (!file->by_name)
        return pi0_fail_memory(err, (file->count + 1) * sizeof *file->by_name, "an index of tensors");
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->tensors[i];
    if (file->count > 1)
        qsort(file->by_name, file->count, sizeof *file->by_name, compare_names);
    for (size_t i = 1; i < file->count; i++) {
        const pi0_tensor_view *a = file->by_name[i - 1], *b = file->by_name[i];
        if (strcmp(a->name, b->name) != 0)
            continue;
        pi0_status status = fail_tensor(err, file->shards[a->shard].path, a->name, "two shards hold a tensor of the same name");
        pi0_err_got(err, "the same name in %s", file->shards[b->shard].path);
        return status;
    }
    return PI0_OK;
}

static pi0_safetensors *new_file(size_t n_shards)
{
    pi0_safetensors *file = calloc(1, sizeof *file);
    if (!file)
        return NULL;
    file->shards = calloc(n_shards + 1, sizeof *file->shards);
    file->n_shards = n_shards;
    if (!file->shards)
        pi0_safetensors_close(&file);
    return file;
}

static pi0_status open_shard(pi0_safetensors *file, size_t index, pi0_error *err)
{
    shard *s = &file->shards[index];
    if (!s->path)
        return pi0_fail_memory(err, PI0_MAX_NAME, "a path");
    PI0_TRY(pi0_map_file(s->path, &s->map, err));
    return parse_shard(file, index, s->map.data, s->map.bytes, s->path, err);
}

static pi0_status open_single(const char *path, pi0_safetensors **out, pi0_error *err)
{
    pi0_status status;
    pi0_safetensors *file = new_file(1);
    if (!file)
        return pi0_fail_memory(err, sizeof *file, "a safetensors file");
    file->shards[0].path = pi0_strdup(path);
    PI0_TRY_GOTO(open_shard(file, 0, err));
    PI0_TRY_GOTO(index_names(file, err));
    *out = file;
    return PI0_OK;
fail:
    pi0_safetensors_close(&file);
    return status;
}

pi0_status pi0_safetensors_parse(const void *data, size_t bytes, const char *where, pi0_safetensors **out, pi0_error *err)
{
    pi0_status status;
    *out = NULL;
    pi0_safetensors *file = new_file(1);
    if (!file)
        return pi0_fail_memory(err, sizeof *file, "a safetensors file");
    file->shards[0].path = pi0_strdup(where);
    if (!file->shards[0].path) {
        status = pi0_fail_memory(err, strlen(where) + 1, "a path");
        goto fail;
    }
    PI0_TRY_GOTO(parse_shard(file, 0, data, bytes, where, err));
    PI0_TRY_GOTO(index_names(file, err));
    *out = file;
    return PI0_OK;
fail:
    pi0_safetensors_close(&file);
    return status;
}

/* ------------------------------------------------------------------ an index of shards */

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_plain_file_name(const char *name)
{
    return name[0] && strlen(name) <= 255 && !strchr(name, '/') && !strchr(name, '\\') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* The distinct shard names of a weight map, sorted; *names is malloc'ed and its texts belong to the map. */
static pi0_status list_shards(const json_t *map, const char *where, const char ***names, size_t *count, pi0_error *err)
{
    size_t n = json_object_size(map), kept = 0;
    if (n == 0 || n > PI0_MAX_TENSORS) {
        pi0_fail(err, PI0_ERR_FORMAT, "the index maps %s", n ? "too many tensors" : "no tensor");
        pi0_err_where(err, "%s: \"weight_map\"", where);
        pi0_err_expected(err, "1 .. %d tensors", PI0_MAX_TENSORS);
        pi0_err_got(err, "%zu", n);
        return PI0_ERR_FORMAT;
    }
    *names = malloc(n * sizeof **names);
    if (!*names)
        return pi0_fail_memory(err, n * sizeof **names, "a list of shards");
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!name || !is_plain_file_name(name)) {
            pi0_status status = fail_tensor(err, where, tensor, "the index names a shard that cannot be");
            pi0_err_expected(err, "the plain name of a file beside the index");
            pi0_err_got(err, "%.256s", name ? name : pi0_json_type_name(value));
            return status;
        }
        (*names)[kept++] = name;
    }
    qsort(*names, n, sizeof **names, compare_texts);
    kept = 0;
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || strcmp((*names)[kept - 1], (*names)[i]) != 0)
            (*names)[kept++] = (*names)[i];
    if (kept > PI0_MAX_SHARDS) {
        pi0_fail(err, PI0_ERR_FORMAT, "the index names too many shards");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "at most %d", PI0_MAX_SHARDS);
        pi0_err_got(err, "%zu", kept);
        return PI0_ERR_FORMAT;
    }
    *count = kept;
    return PI0_OK;
}

/* Every mapped tensor is in its shard, and every tensor of a shard is mapped to it; all that is not so in one error. */
static pi0_status check_map(const pi0_safetensors *file, const char *const *names, const json_t *map, const char *where, pi0_error *err)
{
    size_t wrong = 0;
    pi0_status status = PI0_OK;
    for (size_t pass = 0; pass < 2; pass++) { /* count, then list: the first call to pi0_fail empties the list */
        if (pass == 1 && wrong == 0)
            break;
        if (pass == 1) {
            status = pi0_fail(err, PI0_ERR_FORMAT, "the index and its shards disagree about %zu tensor%s", wrong, wrong == 1 ? "" : "s");
            pi0_err_where(err, "%s", where);
            pi0_err_expected(err, "every tensor of the index in its shard, and every tensor of a shard in the index");
            pi0_err_hint(err, "the files may come from different versions of the checkpoint: fetch all of them again");
        }
        size_t listed = 0;
        const char *name;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)map, name, value)
        {
            const pi0_tensor_view *view = pi0_safetensors_find(file, name);
            if (view && strcmp(names[view->shard], json_string_value(value)) == 0)
                continue;
            if (pass == 0)
                wrong++;
            else if (listed++ < MAX_LISTED)
                pi0_err_item(err, "%.256s: the index says %s, found in %s", name, json_string_value(value),
                             view ? names[view->shard] : "no shard");
        }
        for (size_t i = 0; i < file->count; i++) {
            const pi0_tensor_view *view = &file->tensors[i];
            if (json_object_get(map, view->name))
                continue;
            if (pass == 0)
                wrong++;
            else if (listed++ < MAX_LISTED)
                pi0_err_item(err, "%.256s: in %s, not in the index", view->name, names[view->shard]);
        }
        if (pass == 1 && listed > MAX_LISTED)
            pi0_err_item(err, "... and %zu more", listed - MAX_LISTED);
    }
    return status;
}

static pi0_status check_total_size(const pi0_safetensors *file, const json_t *index, const char *where, pi0_error *err)
{
    const json_t *total = json_object_get(json_object_get(index, "metadata"), "total_size");
    uint64_t bytes = pi0_safetensors_data_bytes(file);
    if (!total || json_is_null(total))
        return PI0_OK;
    bool same = json_is_integer(total) ? json_integer_value(total) >= 0 && (uint64_t)json_integer_value(total) == bytes
                                       : json_is_real(total) && json_real_value(total) == (double)bytes;
    if (same)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_FORMAT, "the index states another size than its shards have");
    pi0_err_where(err, "%s: \"metadata\": \"total_size\"", where);
    pi0_err_expected(err, "%llu, the bytes of all tensors in the shards", (unsigned long long)bytes);
    if (json_is_number(total))
        pi0_err_got(err, "%.17g", json_number_value(total));
    else
        pi0_err_got(err, "%s", pi0_json_type_name(total));
    pi0_err_hint(err, "the files may come from different versions of the checkpoint: fetch all of them again");
    return PI0_ERR_FORMAT;
}

/* All at once: whoever fetches the rest wants the whole list. */
static pi0_status check_present(const pi0_safetensors *file, const char *index, pi0_error *err)
{
    size_t absent = 0;
    for (size_t i = 0; i < file->n_shards; i++)
        absent += !pi0_exists(file->shards[i].path);
    if (absent == 0)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_IO, "%zu of %zu shards are not there", absent, file->n_shards);
    pi0_err_where(err, "%s", index);
    pi0_err_expected(err, "beside this index, every file that it lists");
    pi0_err_hint(err, "fetch the missing files of the same checkpoint; an index does not help without all of them");
    for (size_t i = 0; i < file->n_shards; i++)
        if (!pi0_exists(file->shards[i].path))
            pi0_err_item(err, "missing: %s", file->shards[i].path);
    return PI0_ERR_IO;
}

static pi0_status open_index(const char *path, pi0_safetensors **out, pi0_error *err)
{
    pi0_status status;
    json_t *index = NULL, *map = NULL;
    const char **names = NULL;
    size_t n_shards = 0;
    pi0_safetensors *file = NULL;
    PI0_TRY_GOTO(pi0_json_read(path, PI0_MAX_JSON, &index, err));
    PI0_TRY_GOTO(pi0_json_get_object(index, "weight_map", path, &map, err));
    PI0_TRY_GOTO(list_shards(map, path, &names, &n_shards, err));
    file = new_file(n_shards);
    if (!file) {
        status = pi0_fail_memory(err, n_shards * sizeof(shard), "a list of shards");
        goto fail;
    }
    const char *slash = strrchr(path, '/');
    int dir_length = slash ? (int)(slash + 1 - path) : 0;
    for (size_t i = 0; i < n_shards; i++) {
        file->shards[i].path = pi0_sprintf("%.*s%s", dir_length, path, names[i]);
        if (!file->shards[i].path) {
            status = pi0_fail_memory(err, strlen(path) + PI0_MAX_NAME, "a path");
            goto fail;
        }
    }
    PI0_TRY_GOTO(check_present(file, path, err));
    for (size_t i = 0; i < n_shards; i++)
        PI0_TRY_GOTO(open_shard(file, i, err));
    PI0_TRY_GOTO(index_names(file, err));
    PI0_TRY_GOTO(check_map(file, names, map, path, err));
    PI0_TRY_GOTO(check_total_size(file, index, path, err));
    *out = file;
    file = NULL;
fail:
    pi0_safetensors_close(&file);
    free(names);
    json_decref(index);
    return status;
}

/* ------------------------------------------------------------------ the opened file */

pi0_status pi0_safetensors_open(const char *path, pi0_safetensors **out, pi0_error *err)
{
    *out = NULL;
    size_t n = strlen(path);
    if (n > 5 && strcmp(path + n - 5, ".json") == 0)
        return open_index(path, out, err);
    return open_single(path, out, err);
}

void pi0_safetensors_close(pi0_safetensors **file)
{
    if (!file || !*file)
        return;
    pi0_safetensors *f = *file;
    for (size_t i = 0; f->shards && i < f->n_shards; i++) {
        json_decref(f->shards[i].header);
        pi0_unmap(&f->shards[i].map);
        pi0_free(f->shards[i].path);
    }
    free(f->shards);
    free(f->tensors);
    free(f->by_name);
    free(f);
    *file = NULL;
}

size_t pi0_safetensors_count(const pi0_safetensors *file)
{
    return file->count;
}

const pi0_tensor_view *pi0_safetensors_at(const pi0_safetensors *file, size_t index)
{
    return index < file->count ? &file->tensors[index] : NULL;
}

const pi0_tensor_view *pi0_safetensors_find(const pi0_safetensors *file, const char *name)
{
    size_t low = 0, high = file->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, file->by_name[middle]->name);
        if (order == 0)
            return file->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const char *pi0_safetensors_metadata(const pi0_safetensors *file, const char *key)
{
    for (size_t i = 0; i < file->n_shards; i++) {
        const char *text = json_string_value(json_object_get(json_object_get(file->shards[i].header, "__metadata__"), key));
        if (text)
            return text;
    }
    return NULL;
}

size_t pi0_safetensors_shards(const pi0_safetensors *file)
{
    return file->n_shards;
}

const char *pi0_safetensors_shard_path(const pi0_safetensors *file, size_t shard_index)
{
    return shard_index < file->n_shards ? file->shards[shard_index].path : NULL;
}

uint64_t pi0_safetensors_data_bytes(const pi0_safetensors *file)
{
    uint64_t total = 0;
    for (size_t i = 0; i < file->n_shards; i++)
        total += file->shards[i].data_bytes;
    return total;
}

const uint8_t *pi0_safetensors_shard_bytes(const pi0_safetensors *file, size_t shard_index, size_t *bytes)
{
    *bytes = file->shards[shard_index].size;
    return file->shards[shard_index].bytes;
}

size_t pi0_safetensors_header_bytes(const pi0_safetensors *file, size_t shard_index)
{
    const shard *s = &file->shards[shard_index];
    return s->size - (size_t)s->data_bytes;
}

/* ------------------------------------------------------------------ values */

static pi0_status check_values(const pi0_tensor_view *tensor, size_t count, pi0_error *err)
{
    size_t size = pi0_dtype_size(tensor->dtype);
    bool is_float = tensor->dtype == PI0_F32 || tensor->dtype == PI0_F64 || tensor->dtype == PI0_F16 || tensor->dtype == PI0_BF16;
    if (is_float && tensor->bytes / size == count)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_MODEL, is_float ? "a tensor does not have the expected number of values" : "a tensor does not hold real numbers");
    pi0_err_where(err, "tensor \"%.256s\"", tensor->name);
    pi0_err_expected(err, "%zu values of type f32, f64, f16 or bf16", count);
    pi0_err_got(err, "%zu values of type %s", size ? tensor->bytes / size : 0, pi0_dtype_name(tensor->dtype));
    return PI0_ERR_MODEL;
}

/* Element i of a checked tensor. memcpy: the file need not align its tensors. */
static double value_at(const pi0_tensor_view *tensor, size_t i)
{
    const uint8_t *p = (const uint8_t *)tensor->data + i * pi0_dtype_size(tensor->dtype);
    if (tensor->dtype == PI0_F64) {
        double wide;
        memcpy(&wide, p, sizeof wide);
        return wide;
    }
    if (tensor->dtype == PI0_F32) {
        float single;
        memcpy(&single, p, sizeof single);
        return (double)single;
    }
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return (double)(tensor->dtype == PI0_F16 ? pi0_f32_from_f16(half) : pi0_f32_from_bf16(half));
}

pi0_status pi0_tensor_to_f64(const pi0_tensor_view *tensor, double *out, size_t count, pi0_error *err)
{
    PI0_TRY(check_values(tensor, count, err));
    for (size_t i = 0; i < count; i++)
        out[i] = value_at(tensor, i);
    return PI0_OK;
}

pi0_status pi0_tensor_to_f32(const pi0_tensor_view *tensor, float *out, size_t count, pi0_error *err)
{
    PI0_TRY(check_values(tensor, count, err));
    for (size_t i = 0; i < count; i++)
        out[i] = (float)value_at(tensor, i);
    return PI0_OK;
}
