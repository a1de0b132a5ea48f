#include <string.h>

#include "io/io.h"

/* Written at a time, at a multiple of it in the file: the system then keeps what it wrote in large pages, which whoever maps the file from
 * memory is given at once instead of 4 KB at a time. */
enum { WRITE_BYTES = 4 << 20 };

static const char *dtype_code(pi0_dtype dtype)
{
    switch (dtype) {
    case PI0_F32:
        return "F32";
    case PI0_F64:
        return "F64";
    case PI0_F16:
        return "F16";
    case PI0_BF16:
        return "BF16";
    case PI0_U8:
        return "U8";
    case PI0_I8:
        return "I8";
    case PI0_I16:
        return "I16";
    case PI0_U16:
        return "U16";
    case PI0_I32:
        return "I32";
    case PI0_U32:
        return "U32";
    case PI0_I64:
        return "I64";
    case PI0_U64:
        return "U64";
    case PI0_BOOL:
        return "BOOL";
    case PI0_TEXT:
        break;
    }
    return NULL;
}

static void add_quoted(pi0_text *text, const char *value)
{
    pi0_text_add_bytes(text, "\"", 1);
    for (const char *c = value; *c; c++) {
        if ((unsigned char)*c < 0x20)
            pi0_text_add(text, "\\u%04x", (unsigned)(unsigned char)*c);
        else if (*c == '"' || *c == '\\')
            pi0_text_add(text, "\\%c", *c);
        else
            pi0_text_add_bytes(text, c, 1);
    }
    pi0_text_add_bytes(text, "\"", 1);
}

/* Appends one tensor's entry; *at is where its data begins and moves to where they end. */
static pi0_status add_tensor(pi0_text *header, const pi0_tensor_view *tensor, uint64_t *at, pi0_error *err)
{
    const char *code = dtype_code(tensor->dtype);
    size_t bytes;
    bool ok = code && tensor->name && strlen(tensor->name) <= PI0_MAX_NAME && strcmp(tensor->name, "__metadata__") != 0;
    ok = ok && tensor->rank >= 0 && tensor->rank <= PI0_MAX_RANK;
    ok = ok && pi0_shape_bytes(tensor->shape, tensor->rank, pi0_dtype_size(tensor->dtype), &bytes) && bytes <= INT64_MAX - *at;
    if (!ok) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "a tensor that cannot be written to a safetensors file");
        pi0_err_where(err, "tensor \"%.256s\"", tensor->name ? tensor->name : "(no name)");
        pi0_err_expected(err, "a name of at most %d bytes, a numeric type, at most %d extents of 0 or more", PI0_MAX_NAME, PI0_MAX_RANK);
        pi0_err_got(err, "type %s, rank %d", pi0_dtype_name(tensor->dtype), tensor->rank);
        return PI0_ERR_ARGUMENT;
    }
    add_quoted(header, tensor->name);
    pi0_text_add(header, ":{\"dtype\":\"%s\",\"shape\":[", code);
    for (int i = 0; i < tensor->rank; i++)
        pi0_text_add(header, i ? ",%lld" : "%lld", (long long)tensor->shape[i]);
    pi0_text_add(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*at, (unsigned long long)(*at + bytes));
    *at += bytes;
    return PI0_OK;
}

static pi0_status build_header(pi0_text *header, const pi0_tensor_view *tensors, size_t count, const char *const *metadata, size_t align,
                               uint64_t *bytes, pi0_error *err)
{
    bool first = true;
    pi0_text_add_bytes(header, "{", 1);
    if (metadata && metadata[0]) {
        pi0_text_add(header, "\"__metadata__\":{");
        for (size_t i = 0; metadata[i] && metadata[i + 1]; i += 2) {
            if (i)
                pi0_text_add_bytes(header, ",", 1);
            add_quoted(header, metadata[i]);
            pi0_text_add_bytes(header, ":", 1);
            add_quoted(header, metadata[i + 1]);
        }
        pi0_text_add_bytes(header, "}", 1);
        first = false;
    }
    for (size_t i = 0; i < count; i++, first = false) {
        if (!first)
            pi0_text_add_bytes(header, ",", 1);
        PI0_TRY(add_tensor(header, &tensors[i], bytes, err));
    }
    pi0_text_add_bytes(header, "}", 1);
    while (!header->failed && (8 + header->length) % align != 0)
        pi0_text_add_bytes(header, " ", 1);
    return header->failed ? pi0_fail_memory(err, header->length, "a safetensors header") : PI0_OK;
}

/* What this library writes, it must be able to read: duplicate names and text that is not UTF-8 are found by the reader itself. */
static pi0_status check_header(const pi0_text *header, size_t count, const char *path, pi0_error *err)
{
    json_t *parsed;
    if (count > PI0_MAX_TENSORS || header->length > PI0_MAX_SAFETENSORS_HEADER) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "too many tensors for one safetensors file");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "at most %d tensors and %u bytes of header", PI0_MAX_TENSORS, PI0_MAX_SAFETENSORS_HEADER);
        pi0_err_got(err, "%zu tensors, %zu bytes", count, header->length);
        return PI0_ERR_ARGUMENT;
    }
    pi0_status status = pi0_json_parse(header->data, header->length, "the header to be written", &parsed, err);
    if (status == PI0_ERR_FORMAT) {
        status = PI0_ERR_ARGUMENT;
        if (err)
            err->status = status;
    }
    json_decref(parsed);
    return status;
}

pi0_status pi0_safetensors_create_aligned(pi0_safetensors_writer *writer, const char *path, const pi0_tensor_view *tensors, size_t count,
                                          const char *const *metadata, size_t align, pi0_error *err)
{
    pi0_status status;
    pi0_text header = {0};
    uint64_t bytes = 0;
    memset(writer, 0, sizeof *writer);
    PI0_TRY_GOTO(build_header(&header, tensors, count, metadata, align, &bytes, err));
    PI0_TRY_GOTO(check_header(&header, count, path, err));
    PI0_TRY_GOTO(pi0_writer_open(&writer->file, path, err));
    (void)setvbuf(writer->file.file, NULL, _IOFBF, WRITE_BYTES); /* refused, the file becomes the same */
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)header.length >> (8 * i));
    PI0_TRY_GOTO(pi0_writer_put(&writer->file, length, sizeof length, err));
    PI0_TRY_GOTO(pi0_writer_put(&writer->file, header.data, header.length, err));
    writer->header_crc = pi0_crc32(pi0_crc32(0, length, sizeof length), header.data, header.length);
    writer->expected = bytes;
    writer->data_start = writer->file.bytes;
    pi0_text_release(&header);
    return PI0_OK;
fail:
    pi0_text_release(&header);
    pi0_safetensors_abort(writer);
    return status;
}

pi0_status pi0_safetensors_create(pi0_safetensors_writer *writer, const char *path, const pi0_tensor_view *tensors, size_t count,
                                  const char *const *metadata, pi0_error *err)
{
    return pi0_safetensors_create_aligned(writer, path, tensors, count, metadata, PI0_ALIGN, err);
}

pi0_status pi0_safetensors_put(pi0_safetensors_writer *writer, const void *data, size_t bytes, pi0_error *err)
{
    uint64_t written = writer->file.bytes - writer->data_start;
    if (bytes > writer->expected - written) {
        pi0_fail(err, PI0_ERR_INTERNAL, "more tensor data than was declared");
        pi0_err_where(err, "%s", writer->file.path ? writer->file.path : "(not open)");
        pi0_err_expected(err, "%llu bytes", (unsigned long long)writer->expected);
        pi0_err_got(err, "%zu bytes after %llu", bytes, (unsigned long long)written);
        return PI0_ERR_INTERNAL;
    }
    return pi0_writer_put(&writer->file, data, bytes, err);
}

pi0_status pi0_safetensors_skip_all(pi0_safetensors_writer *writer, pi0_error *err)
{
    return pi0_writer_skip(&writer->file, writer->expected, err);
}

pi0_status pi0_safetensors_finish(pi0_safetensors_writer *writer, pi0_error *err)
{
    uint64_t written = writer->file.bytes - writer->data_start;
    if (written != writer->expected) {
        pi0_fail(err, PI0_ERR_INTERNAL, "less tensor data than was declared");
        pi0_err_where(err, "%s", writer->file.path ? writer->file.path : "(not open)");
        pi0_err_expected(err, "%llu bytes", (unsigned long long)writer->expected);
        pi0_err_got(err, "%llu bytes", (unsigned long long)written);
        pi0_safetensors_abort(writer);
        return PI0_ERR_INTERNAL;
    }
    pi0_status status = pi0_writer_commit(&writer->file, err);
    memset(writer, 0, sizeof *writer);
    return status;
}

void pi0_safetensors_abort(pi0_safetensors_writer *writer)
{
    if (!writer)
        return;
    pi0_writer_abort(&writer->file);
    memset(writer, 0, sizeof *writer);
}
