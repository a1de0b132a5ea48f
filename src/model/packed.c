/* Packed files: what `pi0 pack` writes, read again (docs/formats.md). One is an ordinary safetensors file whose metadata say what else it
 * is; the engine writes it, with the names and keys of model.h. */
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint.h"

bool pi0_packed_is(const pi0_safetensors *file)
{
    return pi0_safetensors_shards(file) == 1 && pi0_safetensors_metadata(file, PI0_PACKED_VERSION_KEY) != NULL;
}

bool pi0_packed_reserved(const char *name)
{
    return !strncmp(name, PI0_PACKED_OWN, strlen(PI0_PACKED_OWN)) || !strncmp(name, PI0_PACKED_ORDER, strlen(PI0_PACKED_ORDER));
}

const char *pi0_byte_order(void)
{
    const uint16_t probe = 1;
    uint8_t first;
    memcpy(&first, &probe, 1);
    return first ? "little" : "big";
}

/* ------------------------------------------------------------------ is it whole, and can it be read */

static pi0_status fail_key(const char *where, const char *what, const char *key, const char *expected, const char *got, const char *hint,
                           pi0_status status, pi0_error *err)
{
    pi0_fail(err, status, "%s", what);
    pi0_err_where(err, "%s: \"__metadata__\": \"%s\"", where, key);
    pi0_err_expected(err, "%s", expected);
    pi0_err_got(err, "%.200s", got ? got : "nothing");
    pi0_err_hint(err, "%s", hint);
    return status;
}

static pi0_status check_version(const pi0_safetensors *file, const char *where, pi0_error *err)
{
    static const char again[] = "pack the checkpoint again with this program: pi0 pack MODEL -o FILE.pi0";
    const char *version = pi0_safetensors_metadata(file, PI0_PACKED_VERSION_KEY);
    const char *order = pi0_safetensors_metadata(file, PI0_PACKED_ORDER_KEY);
    char *end;
    const long number = strtol(version, &end, 10);
    if (*end || end == version || number < 1)
        return fail_key(where, "the packed file's version is no number", PI0_PACKED_VERSION_KEY, "1", version, again, PI0_ERR_FORMAT, err);
    if (number > PI0_PACKED_VERSION)
        return fail_key(where, "the packed file is of a newer version than this program reads", PI0_PACKED_VERSION_KEY, "at most 1",
                        version, "use the program that wrote it, or a newer one; or pack the checkpoint again with this one",
                        PI0_ERR_UNSUPPORTED, err);
    if (!order || strcmp(order, pi0_byte_order()) != 0)
        return fail_key(where, "the packed file has another byte order than this machine", PI0_PACKED_ORDER_KEY, pi0_byte_order(), order,
                        again, PI0_ERR_UNSUPPORTED, err);
    return PI0_OK;
}

/* The checksums: of the header, of each tensor before the list in file order, of all these. NULL when the list is not as it should be. */
static const uint8_t *checksum_list(const pi0_safetensors *file, size_t *count)
{
    const pi0_tensor_view *list = pi0_safetensors_find(file, PI0_PACKED_CHECKSUMS);
    const size_t tensors = pi0_safetensors_count(file);
    *count = tensors + 1;
    const bool right = list && list->dtype == PI0_U32 && list->bytes == *count * sizeof(uint32_t);
    return right && pi0_safetensors_at(file, tensors - 1) == list ? list->data : NULL;
}

static uint32_t checksum_at(const uint8_t *list, size_t index)
{
    uint32_t value;
    memcpy(&value, list + index * sizeof value, sizeof value);
    return value;
}

static pi0_status check_header(const pi0_safetensors *file, const char *where, pi0_error *err)
{
    size_t count, bytes;
    const uint8_t *list = checksum_list(file, &count);
    const uint8_t *start = pi0_safetensors_shard_bytes(file, 0, &bytes);
    const char *what = !list ? "the packed file has no list of checksums" : NULL;
    if (list && pi0_crc32(0, list, (count - 1) * sizeof(uint32_t)) != checksum_at(list, count - 1))
        what = "the packed file's list of checksums is damaged";
    else if (list && pi0_crc32(0, start, pi0_safetensors_header_bytes(file, 0)) != checksum_at(list, 0))
        what = "the packed file's header is damaged";
    if (!what)
        return PI0_OK;
    pi0_fail(err, PI0_ERR_FORMAT, "%s", what);
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "the header and " PI0_PACKED_CHECKSUMS " as `pi0 pack` wrote them");
    pi0_err_hint(err, "copy the file again, or pack the checkpoint again; another program may have changed it");
    return PI0_ERR_FORMAT;
}

static bool precision_of(const char *name, pi0_precision *out)
{
    static const pi0_precision known[] = {PI0_PRECISION_F32, PI0_PRECISION_BF16, PI0_PRECISION_INT8};
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, pi0_precision_word(known[i]))) {
            *out = known[i];
            return true;
        }
    return false;
}

static bool layout_of(const char *name, pi0_layout *out)
{
    for (pi0_layout layout = PI0_LAYOUT_OPENPI; name && layout <= PI0_LAYOUT_LEROBOT_03; layout++)
        if (!strcmp(name, pi0_layout_name(layout))) {
            *out = layout;
            return true;
        }
    return false;
}

pi0_status pi0_packed_check(const pi0_safetensors *file, const char *where, pi0_packed_facts *out, pi0_error *err)
{
    static const char again[] = "pack the checkpoint again";
    PI0_TRY(check_version(file, where, err));
    PI0_TRY(check_header(file, where, err));
    const char *precision = pi0_safetensors_metadata(file, PI0_PACKED_PRECISION_KEY);
    const char *layout = pi0_safetensors_metadata(file, PI0_PACKED_LAYOUT_KEY);
    if (!precision_of(precision, &out->precision))
        return fail_key(where, "the packed file does not say for which precision it is", PI0_PACKED_PRECISION_KEY, "f32, bf16 or int8",
                        precision, again, PI0_ERR_FORMAT, err);
    if (!layout_of(layout, &out->layout))
        return fail_key(where, "the packed file does not say what it was packed from", PI0_PACKED_LAYOUT_KEY,
                        "openpi, lerobot or lerobot-0.3", layout, again, PI0_ERR_FORMAT, err);
    const pi0_tensor_view *tokenizer = pi0_safetensors_find(file, PI0_TOKENIZER_TENSOR);
    if (!pi0_safetensors_metadata(file, PI0_PACKED_RECIPE_KEY) || !tokenizer)
        return fail_key(where, "the packed file is incomplete", PI0_PACKED_RECIPE_KEY, "a recipe, and the tensor " PI0_TOKENIZER_TENSOR,
                        tokenizer ? "no recipe" : "no tokenizer", again, PI0_ERR_FORMAT, err);
    return PI0_OK;
}

/* ------------------------------------------------------------------ every checksum */

enum { PIECE = 4 << 20 };

static pi0_status checksum_tensor(const pi0_tensor_view *tensor, const pi0_packed_progress *progress, uint64_t *done, uint32_t *crc,
                                  pi0_error *err)
{
    const uint8_t *data = tensor->data;
    *crc = 0;
    for (size_t at = 0; at < tensor->bytes; at += PIECE) {
        const size_t bytes = tensor->bytes - at < PIECE ? tensor->bytes - at : PIECE;
        if (progress->fn && progress->fn(progress->user, "verify", *done, progress->total))
            return pi0_fail(err, PI0_ERR_CANCELLED, "the comparison was cancelled");
        *crc = pi0_crc32(*crc, data + at, bytes);
        pi0_map_release_pages(data + at, bytes);
        *done += bytes;
    }
    return PI0_OK;
}

pi0_status pi0_packed_verify(const pi0_safetensors *file, const char *where, const pi0_packed_progress *progress, pi0_error *err)
{
    size_t count, damaged = 0;
    uint64_t done = 0;
    const uint8_t *list = checksum_list(file, &count); /* pi0_packed_check has seen it */
    for (size_t i = 0; i + 2 < count; i++) {
        const pi0_tensor_view *tensor = pi0_safetensors_at(file, i);
        uint32_t crc;
        PI0_TRY(checksum_tensor(tensor, progress, &done, &crc, err));
        if (crc == checksum_at(list, i + 1))
            continue;
        if (damaged++ == 0) {
            pi0_fail(err, PI0_ERR_FORMAT, "the packed file is damaged");
            pi0_err_where(err, "%s: tensor \"%.256s\"", where, tensor->name);
            pi0_err_expected(err, "CRC-32 %08x", (unsigned)checksum_at(list, i + 1));
            pi0_err_got(err, "%08x", (unsigned)crc);
            pi0_err_hint(err, "copy the file again, or pack the checkpoint again; do not let a robot move by it");
        }
        pi0_err_item(err, "damaged: %s", tensor->name);
    }
    return damaged ? PI0_ERR_FORMAT : PI0_OK;
}

/* ------------------------------------------------------------------ packed weights */

bool pi0_packed_name(const char *layout, const pi0_weight *weight, char *out, size_t size)
{
    static const char *const forms[] = {[PI0_FORM_TENSOR] = "tensor", [PI0_FORM_ONE_PLUS] = "one-plus",   [PI0_FORM_RIGHT] = "right",
                                        [PI0_FORM_FOLD] = "fold",     [PI0_FORM_FOLD_BIAS] = "fold-bias", [PI0_FORM_ROPE_TABLE] = "rope"};
    size_t used = (size_t)snprintf(out, size, PI0_PACKED_ORDER "%s/%s/", layout, forms[weight->form]);
    for (int i = 0; i < weight->n_sources && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? "+" : "", weight->source[i]);
    return used < size;
}

const pi0_tensor_view *pi0_packed_weight(const pi0_checkpoint *checkpoint, const char *layout, const pi0_weight *weight)
{
    char name[PI0_MAX_NAME + 1];
    if (!checkpoint->packed || !*layout || !pi0_packed_name(layout, weight, name, sizeof name))
        return NULL;
    const pi0_tensor_view *view = pi0_safetensors_find(checkpoint->file, name);
    return view && view->dtype == PI0_U8 ? view : NULL;
}

/* ------------------------------------------------------------------ for inspect */

static json_t *describe_layouts(const pi0_safetensors *file)
{
    json_t *layouts = json_object();
    for (size_t i = 0; layouts && i < pi0_safetensors_count(file); i++) {
        const pi0_tensor_view *tensor = pi0_safetensors_at(file, i);
        if (strncmp(tensor->name, PI0_PACKED_ORDER, strlen(PI0_PACKED_ORDER)) != 0)
            continue;
        const char *layout = tensor->name + strlen(PI0_PACKED_ORDER);
        char key[PI0_MAX_NAME + 1];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(layout, "/"), layout);
        const json_t *had = json_object_get(layouts, key);
        const json_int_t weights = json_integer_value(json_object_get(had, "weights")) + 1;
        const json_int_t bytes = json_integer_value(json_object_get(had, "bytes")) + (json_int_t)tensor->bytes;
        if (json_object_set_new(layouts, key, json_pack("{s:I,s:I}", "weights", weights, "bytes", bytes)) != 0) {
            json_decref(layouts);
            return NULL;
        }
    }
    return layouts;
}

const char *pi0_packed_calibration(const pi0_checkpoint *checkpoint)
{
    return checkpoint->packed ? pi0_safetensors_metadata(checkpoint->file, PI0_PACKED_CALIBRATION_KEY) : NULL;
}

json_t *pi0_packed_describe(const pi0_safetensors *file)
{
    const char *source = pi0_safetensors_metadata(file, PI0_PACKED_SOURCE_KEY);
    json_t *sources = source ? json_loads(source, 0, NULL) : NULL;
    const bool calibrated = pi0_safetensors_metadata(file, PI0_PACKED_CALIBRATION_KEY) != NULL;
    return json_pack("{s:s,s:s?,s:s?,s:b,s:s?,s:o,s:s?,s:o?}", "version", pi0_safetensors_metadata(file, PI0_PACKED_VERSION_KEY),
                     "written_by", pi0_safetensors_metadata(file, PI0_PACKED_WRITER_KEY), "precision",
                     pi0_safetensors_metadata(file, PI0_PACKED_PRECISION_KEY), "calibrated", (int)calibrated, "byte_order",
                     pi0_safetensors_metadata(file, PI0_PACKED_ORDER_KEY), "layouts", describe_layouts(file), "tokenizer",
                     pi0_safetensors_metadata(file, PI0_PACKED_TOKENIZER_KEY), "source", sources);
}
