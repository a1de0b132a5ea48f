#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "io/io.h"
#include "io/utf8.h"

#define SATURATED32 0xffffffffu
#define FIRST_DOS_DATE 0x0021u /* 1 January 1980, always: the same arrays give the same bytes */
#define FLAG_UTF8 0x0800u

/* One array as .npy: header and data. */
typedef struct image {
    char header[512];
    size_t header_bytes;
    const void *data;
    size_t bytes;
    void *owned; /* the data, where they had to be converted */
} image;

static pi0_status fail_array(const pi0_array *array, const char *expected, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_ARGUMENT, "an array that cannot be written");
    pi0_err_where(err, "array \"%.256s\"", array->name ? array->name : "(no name)");
    pi0_err_expected(err, "%s", expected);
    pi0_err_got(err, "type %s, rank %d, %zu bytes", pi0_dtype_name(array->dtype), array->rank, array->bytes);
    return PI0_ERR_ARGUMENT;
}

/* ------------------------------------------------------------------ .npy */

static const char *descr_of(pi0_dtype dtype)
{
    switch (dtype) {
    case PI0_F32:
    case PI0_BF16: /* npy has no bf16; f32 holds its values exactly */
        return "<f4";
    case PI0_F64:
        return "<f8";
    case PI0_F16:
        return "<f2";
    case PI0_U8:
        return "|u1";
    case PI0_I8:
        return "|i1";
    case PI0_I16:
        return "<i2";
    case PI0_U16:
        return "<u2";
    case PI0_I32:
        return "<i4";
    case PI0_U32:
        return "<u4";
    case PI0_I64:
        return "<i8";
    case PI0_U64:
        return "<u8";
    case PI0_BOOL:
        return "|b1";
    case PI0_TEXT:
        break;
    }
    return NULL;
}

/* Version 1.0, padded with spaces so that the data begin at a multiple of 64. */
static void make_header(image *out, const char *descr, const int64_t *shape, int rank)
{
    char *h = out->header;
    size_t size = sizeof out->header, n = 10;
    n += (size_t)snprintf(h + n, size - n, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < rank; i++)
        n += (size_t)snprintf(h + n, size - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    n += (size_t)snprintf(h + n, size - n, "%s), }", rank == 1 ? "," : "");
    size_t end = pi0_round_up(n + 1, 64);
    memset(h + n, ' ', end - n - 1);
    h[end - 1] = '\n';
    memcpy(h, "\x93NUMPY\1", 8);
    h[8] = (char)((end - 10) & 0xff);
    h[9] = (char)((end - 10) >> 8);
    out->header_bytes = end;
}

/* UTF-8 to an array of code points without an axis. */
static pi0_status make_text(image *out, const pi0_array *array, pi0_error *err)
{
    size_t units = 0, room = array->bytes ? array->bytes : 1; /* numpy has no text type of length 0 */
    uint32_t *codes = pi0_alloc_array(room, sizeof *codes);
    out->owned = codes;
    if (!codes)
        return pi0_fail_memory(err, room, "a text");
    const uint8_t *text = array->data;
    for (size_t i = 0, n; i < array->bytes; i += n) {
        n = pi0_utf8_decode(text + i, array->bytes - i, &codes[units]);
        if (n == 0 || codes[units] == 0)
            return fail_array(array, "text in UTF-8 without a NUL", err);
        units++;
    }
    char descr[32];
    units = units ? units : 1;
    snprintf(descr, sizeof descr, "<U%zu", units);
    make_header(out, descr, NULL, 0);
    out->data = codes;
    out->bytes = units * sizeof *codes;
    return PI0_OK;
}

static pi0_status widen_bf16(image *out, const pi0_array *array, pi0_error *err)
{
    size_t count = array->bytes / 2;
    float *wide = pi0_alloc_array(count, sizeof *wide);
    if (!wide)
        return pi0_fail_memory(err, count * sizeof *wide, "an array");
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, (const uint8_t *)array->data + 2 * i, sizeof half);
        wide[i] = pi0_f32_from_bf16(half);
    }
    out->owned = wide;
    out->data = wide;
    out->bytes = count * sizeof *wide;
    return PI0_OK;
}

static pi0_status make_image(image *out, const pi0_array *array, pi0_error *err)
{
    *out = (image){.data = array->data, .bytes = array->bytes};
    if (array->bytes > PI0_MAX_ARRAY_BYTES || (array->bytes && !array->data))
        return fail_array(array, "data, at most 4 GiB", err);
    if (array->dtype == PI0_TEXT)
        return make_text(out, array, err);
    const char *descr = descr_of(array->dtype);
    size_t bytes;
    bool ok = descr && array->rank >= 0 && array->rank <= PI0_MAX_RANK &&
              pi0_shape_bytes(array->shape, array->rank, pi0_dtype_size(array->dtype), &bytes) && bytes == array->bytes;
    if (!ok)
        return fail_array(array, "a known type, at most 8 extents of 0 or more, and as many bytes as they make", err);
    make_header(out, descr, array->shape, array->rank);
    return array->dtype == PI0_BF16 ? widen_bf16(out, array, err) : PI0_OK;
}

static pi0_status put_image(pi0_writer *writer, const image *npy, pi0_error *err)
{
    PI0_TRY(pi0_writer_put(writer, npy->header, npy->header_bytes, err));
    return pi0_writer_put(writer, npy->data, npy->bytes, err);
}

static pi0_status write_npy(pi0_writer *writer, const pi0_array *array, pi0_error *err)
{
    image npy;
    pi0_status status = make_image(&npy, array, err);
    if (status == PI0_OK)
        status = put_image(writer, &npy, err);
    pi0_free(npy.owned);
    return status;
}

/* ------------------------------------------------------------------ .npz: a zip of stored members */

static void add(pi0_text *out, uint64_t value, int bytes)
{
    char little[8];
    for (int i = 0; i < bytes; i++)
        little[i] = (char)(value >> (8 * i) & 0xff);
    pi0_text_add_bytes(out, little, (size_t)bytes);
}

static void add_short(pi0_text *out, uint64_t value)
{
    add(out, value < SATURATED32 ? value : SATURATED32, 4);
}

/* What the local header and the directory entry have in common: from "version needed" to the length of the extra field. */
static void add_common(pi0_text *out, const char *name, uLong crc, uint64_t bytes, bool is_long, size_t extra_bytes)
{
    bool ascii = true;
    for (const char *c = name; *c; c++)
        ascii = ascii && (unsigned char)*c < 0x80;
    add(out, is_long ? 45 : 20, 2);
    add(out, ascii ? 0 : FLAG_UTF8, 2);
    add(out, 0, 2); /* stored */
    add(out, 0, 2); /* midnight */
    add(out, FIRST_DOS_DATE, 2);
    add(out, crc, 4);
    add_short(out, bytes);
    add_short(out, bytes);
    add(out, strlen(name) + 4, 2);
    add(out, extra_bytes, 2);
}

static void add_name(pi0_text *out, const char *name)
{
    pi0_text_add_bytes(out, name, strlen(name));
    pi0_text_add_bytes(out, ".npy", 4);
}

/* The zip64 field: only the numbers that do not fit 32 bits. */
static void add_extra(pi0_text *out, uint64_t bytes, uint64_t start)
{
    bool large = bytes >= SATURATED32, far = start >= SATURATED32;
    if (!large && !far)
        return;
    add(out, 1, 2);
    add(out, (large ? 16 : 0) + (far ? 8 : 0), 2);
    if (large) {
        add(out, bytes, 8);
        add(out, bytes, 8);
    }
    if (far)
        add(out, start, 8);
}

static size_t extra_bytes_of(uint64_t bytes, uint64_t start)
{
    bool large = bytes >= SATURATED32, far = start >= SATURATED32;
    return large || far ? 4u + (large ? 16u : 0u) + (far ? 8u : 0u) : 0;
}

/* Writes one member and appends its entry to the directory. */
static pi0_status put_member(pi0_writer *writer, const pi0_array *array, pi0_text *directory, pi0_error *err)
{
    image npy;
    pi0_text local = {0};
    uint64_t start = writer->bytes;
    pi0_status status;
    PI0_TRY_GOTO(make_image(&npy, array, err));
    uint64_t bytes = npy.header_bytes + (uint64_t)npy.bytes;
    uLong crc = crc32_z(0, (const Bytef *)npy.header, npy.header_bytes);
    if (npy.bytes) /* zlib takes NULL for "start anew" */
        crc = crc32_z(crc, npy.data, npy.bytes);

    add(&local, 0x04034b50, 4);
    add_common(&local, array->name, crc, bytes, bytes >= SATURATED32, extra_bytes_of(bytes, 0));
    add_name(&local, array->name);
    add_extra(&local, bytes, 0);

    add(directory, 0x02014b50, 4);
    add(directory, 45, 2); /* made by */
    add_common(directory, array->name, crc, bytes, bytes >= SATURATED32 || start >= SATURATED32, extra_bytes_of(bytes, start));
    add(directory, 0, 2); /* comment */
    add(directory, 0, 2); /* disk */
    add(directory, 0, 2); /* internal attributes */
    add(directory, 0, 4); /* external attributes */
    add_short(directory, start);
    add_name(directory, array->name);
    add_extra(directory, bytes, start);
    if (local.failed || directory->failed) {
        status = pi0_fail_memory(err, 256, "the directory of an archive");
        goto fail;
    }
    PI0_TRY_GOTO(pi0_writer_put(writer, local.data, local.length, err));
    status = put_image(writer, &npy, err);
fail:
    pi0_text_release(&local);
    pi0_free(npy.owned);
    return status;
}

static pi0_status put_directory(pi0_writer *writer, const pi0_text *directory, size_t count, pi0_error *err)
{
    pi0_text end = {0};
    uint64_t start = writer->bytes;
    bool is_long = start >= SATURATED32 || directory->length >= SATURATED32;
    if (is_long) {
        add(&end, 0x06064b50, 4);
        add(&end, 44, 8);
        add(&end, 45, 2);
        add(&end, 45, 2);
        add(&end, 0, 4);
        add(&end, 0, 4);
        add(&end, count, 8);
        add(&end, count, 8);
        add(&end, directory->length, 8);
        add(&end, start, 8);
        add(&end, 0x07064b50, 4);
        add(&end, 0, 4);
        add(&end, start + directory->length, 8);
        add(&end, 1, 4);
    }
    add(&end, 0x06054b50, 4);
    add(&end, 0, 4);
    add(&end, count, 2);
    add(&end, count, 2);
    add_short(&end, directory->length);
    add_short(&end, start);
    add(&end, 0, 2);
    pi0_status status = end.failed ? pi0_fail_memory(err, 128, "the end of an archive") : PI0_OK;
    if (status == PI0_OK)
        status = pi0_writer_put(writer, directory->data, directory->length, err);
    if (status == PI0_OK)
        status = pi0_writer_put(writer, end.data, end.length, err);
    pi0_text_release(&end);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static pi0_status check_names(const pi0_array *list, size_t count, pi0_error *err)
{
    pi0_status status = PI0_OK;
    const char **names = malloc((count + 1) * sizeof *names);
    if (!names)
        return pi0_fail_memory(err, (count + 1) * sizeof *names, "a list of names");
    for (size_t i = 0; i < count && status == PI0_OK; i++) {
        names[i] = list[i].name;
        size_t n = names[i] ? strlen(names[i]) : 0;
        if (n == 0 || n > PI0_MAX_NAME || !pi0_utf8_is_text(names[i], n))
            status = fail_array(&list[i], "a name in UTF-8", err);
    }
    if (status == PI0_OK)
        qsort(names, count, sizeof *names, compare_names);
    for (size_t i = 1; i < count && status == PI0_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = pi0_fail(err, PI0_ERR_ARGUMENT, "two arrays of the same name, \"%.256s\", cannot be in one file", names[i]);
    free(names);
    return status;
}

static pi0_status write_npz(pi0_writer *writer, const pi0_array *list, size_t count, pi0_error *err)
{
    pi0_text directory = {0};
    pi0_status status = PI0_OK;
    for (size_t i = 0; i < count && status == PI0_OK; i++)
        status = put_member(writer, &list[i], &directory, err);
    if (status == PI0_OK)
        status = put_directory(writer, &directory, count, err);
    pi0_text_release(&directory);
    return status;
}

static bool ends_with(const char *path, const char *ending)
{
    size_t n = strlen(path), m = strlen(ending);
    return n > m && strcasecmp(path + n - m, ending) == 0;
}

pi0_status pi0_arrays_write(const char *path, const pi0_array *list, size_t count, pi0_error *err)
{
    pi0_status status;
    pi0_writer writer = {0};
    bool is_npz = ends_with(path, ".npz");
    if (!is_npz && !ends_with(path, ".npy")) {
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "the name of the file does not say its kind");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "a name that ends in .npy or .npz");
        return status;
    }
    if (is_npz ? count > PI0_MAX_ARRAYS : count != 1) {
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "a file of this kind cannot hold so many arrays");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "at most %d", is_npz ? PI0_MAX_ARRAYS : 1);
        pi0_err_got(err, "%zu", count);
        return status;
    }
    if (is_npz)
        PI0_TRY(check_names(list, count, err));
    PI0_TRY(pi0_writer_open(&writer, path, err));
    PI0_TRY_GOTO(is_npz ? write_npz(&writer, list, count, err) : write_npy(&writer, list, err));
    return pi0_writer_commit(&writer, err);
fail:
    pi0_writer_abort(&writer);
    return status;
}
