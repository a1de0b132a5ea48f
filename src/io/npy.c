#include <string.h>

#include "io/io.h"
#include "io/utf8.h"
#include "io/zip.h"

/* Where an array comes from, for the error texts. */
typedef struct source {
    const char *file;
    const char *name; /* of the array; "" for a .npy file */
    pi0_error *err;
} source;

/* What the header of a .npy file says. */
typedef struct header {
    char descr[32];
    char kind;   /* numpy's letter: b i u f U S */
    size_t item; /* bytes of one element */
    bool big_endian;
    bool fortran;
    pi0_dtype dtype;
    int rank;
    int64_t shape[PI0_MAX_RANK];
    size_t bytes; /* of all elements */
} header;

typedef struct cursor {
    const char *at, *end;
} cursor;

static pi0_status fail_array(const source *from, pi0_status status, const char *what)
{
    pi0_fail(from->err, status, "%s", what);
    if (from->name[0])
        pi0_err_where(from->err, "%s: array \"%.256s\"", from->file, from->name);
    else
        pi0_err_where(from->err, "%s", from->file);
    return status;
}

/* ------------------------------------------------------------------ the header: a Python dict of three known keys */

static void skip_space(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t' || *c->at == '\r'))
        c->at++;
}

static bool take(cursor *c, const char *word)
{
    size_t n = strlen(word);
    skip_space(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0)
        return false;
    c->at += n;
    return true;
}

/* A Python string without escapes, of at most size - 1 bytes. */
static bool take_string(cursor *c, char *out, size_t size)
{
    size_t n = 0;
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    char quote = *c->at++;
    for (; c->at < c->end && *c->at != quote; c->at++) {
        if (*c->at == '\\' || *c->at == '\n' || *c->at == '\0' || n + 1 >= size)
            return false;
        out[n++] = *c->at;
    }
    out[n] = '\0';
    return c->at++ < c->end;
}

static bool take_number(const char **at, const char *end, int64_t *out)
{
    int64_t value = 0;
    const char *first = *at;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        if (__builtin_mul_overflow(value, (int64_t)10, &value) || __builtin_add_overflow(value, (int64_t)(**at - '0'), &value))
            return false;
    *out = value;
    return *at > first && (*first != '0' || *at == first + 1);
}

/* A tuple of integers: (), (3,), (3, 4), (3, 4,) */
static bool take_shape(cursor *c, header *h)
{
    bool comma = true;
    if (!take(c, "("))
        return false;
    for (h->rank = 0; !take(c, ")"); h->rank++) {
        if (!comma || h->rank == PI0_MAX_RANK)
            return false;
        if (!take_number(&c->at, c->end, &h->shape[h->rank]))
            return false;
        take(c, "L"); /* Python 2 wrote its long integers so */
        comma = take(c, ",");
    }
    return h->rank != 1 || comma; /* (3) is a number */
}

static bool take_entry(cursor *c, header *h, unsigned *seen)
{
    char key[16];
    unsigned bit = 0;
    bool ok = take_string(c, key, sizeof key) && take(c, ":");
    if (ok && strcmp(key, "descr") == 0) {
        bit = 1;
        ok = take_string(c, h->descr, sizeof h->descr);
    } else if (ok && strcmp(key, "fortran_order") == 0) {
        bit = 2;
        h->fortran = take(c, "True");
        ok = h->fortran || take(c, "False");
    } else if (ok && strcmp(key, "shape") == 0) {
        bit = 4;
        ok = take_shape(c, h);
    }
    ok = ok && bit && !(*seen & bit);
    *seen |= bit;
    return ok;
}

static pi0_status parse_dict(const source *from, const char *text, size_t bytes, header *h)
{
    cursor c = {text, text + bytes};
    unsigned seen = 0;
    bool ok = take(&c, "{"), closed = false;
    while (ok && !(closed = take(&c, "}"))) {
        ok = take_entry(&c, h, &seen);
        if (ok && !take(&c, ",")) {
            ok = closed = take(&c, "}");
            break;
        }
    }
    skip_space(&c);
    if (ok && closed && seen == 7 && c.at == c.end)
        return PI0_OK;
    while (bytes > 0 && (text[bytes - 1] == ' ' || text[bytes - 1] == '\n'))
        bytes--;
    pi0_status status = fail_array(from, PI0_ERR_FORMAT, "the header of the array cannot be read");
    pi0_err_expected(from->err, "{'descr': TYPE, 'fortran_order': True or False, 'shape': a tuple of at most %d integers, 0 or more}",
                     PI0_MAX_RANK);
    pi0_err_got(from->err, "%.*s", bytes < 200 ? (int)bytes : 200, text);
    if (memmem(text, bytes, "[(", 2))
        pi0_err_hint(from->err, "a structured array is not read: save its fields as arrays of their own");
    return status;
}

/* ------------------------------------------------------------------ the element type */

static pi0_status fail_type(const source *from, const header *h)
{
    bool is_object = strchr(h->descr, 'O') != NULL, is_void = strchr(h->descr, 'V') != NULL;
    pi0_status status =
        fail_array(from, PI0_ERR_UNSUPPORTED,
                   is_object ? "an object array (pickled Python objects) is not read" : "the element type is not supported");
    pi0_err_expected(from->err, "bool, integers of 1 .. 8 bytes, floats of 2, 4 or 8 bytes, or one text");
    pi0_err_got(from->err, "'%s'", h->descr);
    if (is_object)
        pi0_err_hint(from->err, "make it an array of numbers or one string before saving: numpy.asarray(x, dtype=...)");
    else if (is_void)
        pi0_err_hint(from->err, "bfloat16 is saved so: convert it with .astype(numpy.float32) before saving");
    return status;
}

static bool numeric_type(char kind, size_t item, pi0_dtype *out)
{
    static const struct {
        char kind;
        uint8_t item;
        uint8_t dtype;
    } types[] = {{'b', 1, PI0_BOOL}, {'u', 1, PI0_U8},  {'i', 1, PI0_I8},  {'i', 2, PI0_I16}, {'u', 2, PI0_U16}, {'i', 4, PI0_I32},
                 {'u', 4, PI0_U32},  {'i', 8, PI0_I64}, {'u', 8, PI0_U64}, {'f', 2, PI0_F16}, {'f', 4, PI0_F32}, {'f', 8, PI0_F64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].kind == kind && types[i].item == item) {
            *out = (pi0_dtype)types[i].dtype;
            return true;
        }
    return false;
}

/* descr is byte order, kind, size: '<f4' */
static pi0_status parse_type(const source *from, header *h)
{
    const char *size_at = h->descr + 2, *end = h->descr + strlen(h->descr);
    int64_t size = 0;
    char order = h->descr[0];
    bool ok = end - h->descr >= 3 && (order == '<' || order == '>' || order == '|') && take_number(&size_at, end, &size);
    if (!ok || size_at != end || size > (int64_t)(PI0_MAX_ARRAY_BYTES / 4))
        return fail_type(from, h);
    h->kind = h->descr[1];
    h->big_endian = order == '>';
    h->item = (size_t)size * (h->kind == 'U' ? 4 : 1);
    if (h->kind == 'U' || h->kind == 'S')
        h->dtype = PI0_TEXT;
    else if (!numeric_type(h->kind, h->item, &h->dtype))
        return fail_type(from, h);
    if (order == '|' && (h->kind == 'U' || (h->kind != 'S' && h->item > 1)))
        return fail_type(from, h);
    return PI0_OK;
}

/* Reads everything before the data; *data_at is where they begin. */
static pi0_status parse_header(const source *from, const uint8_t *npy, size_t bytes, header *h, size_t *data_at)
{
    pi0_status status;
    size_t version = bytes > 7 ? npy[6] : 0, start = version == 1 ? 10 : 12;
    if (bytes < start || memcmp(npy, "\x93NUMPY", 6) != 0 || version < 1 || version > 3 || npy[7] != 0) {
        status = fail_array(from, PI0_ERR_FORMAT, "not an .npy array of a known version");
        pi0_err_expected(from->err, "0x93 NUMPY and version 1.0, 2.0 or 3.0");
        if (bytes >= 8 && memcmp(npy, "\x93NUMPY", 6) == 0)
            pi0_err_got(from->err, "version %d.%d", npy[6], npy[7]);
        return status;
    }
    size_t length = npy[8] | (size_t)npy[9] << 8;
    if (version > 1)
        length |= (size_t)npy[10] << 16 | (size_t)npy[11] << 24;
    if (length > bytes - start) {
        status = fail_array(from, PI0_ERR_FORMAT, "the header of the array is longer than the file");
        pi0_err_expected(from->err, "at most %zu bytes", bytes - start);
        pi0_err_got(from->err, "%zu bytes", length);
        return status;
    }
    PI0_TRY(parse_dict(from, (const char *)npy + start, length, h));
    PI0_TRY(parse_type(from, h));
    *data_at = start + length;
    if (!pi0_shape_bytes(h->shape, h->rank, h->item, &h->bytes) || h->bytes > PI0_MAX_ARRAY_BYTES) {
        status = fail_array(from, PI0_ERR_FORMAT, "the array is too large");
        pi0_err_expected(from->err, "at most %llu bytes", (unsigned long long)PI0_MAX_ARRAY_BYTES);
        return status;
    }
    if (h->bytes != bytes - *data_at) {
        status = fail_array(from, PI0_ERR_FORMAT, "the array's data do not have the size of its shape");
        pi0_err_expected(from->err, "%zu bytes of type '%s'", h->bytes, h->descr);
        pi0_err_got(from->err, "%zu bytes", bytes - *data_at);
        return status;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ the data */

static void copy_element(uint8_t *out, const uint8_t *in, const header *h)
{
    if (h->big_endian)
        for (size_t i = 0; i < h->item; i++)
            out[i] = in[h->item - 1 - i];
    else
        memcpy(out, in, h->item);
}

/* From the file's order of elements and bytes to C order and this machine's bytes. */
static void copy_elements(uint8_t *out, const uint8_t *in, const header *h)
{
    size_t count = h->item ? h->bytes / h->item : 0;
    if (h->fortran && h->rank > 1) {
        size_t stride[PI0_MAX_RANK], index[PI0_MAX_RANK] = {0}, at = 0; /* in elements of the file */
        for (int d = 0; d < h->rank; d++)
            stride[d] = d ? stride[d - 1] * (size_t)h->shape[d - 1] : 1;
        for (size_t i = 0; i < count; i++) {
            copy_element(out + i * h->item, in + at * h->item, h);
            for (int d = h->rank - 1; d >= 0; d--) {
                at += stride[d];
                if (++index[d] < (size_t)h->shape[d])
                    break;
                at -= stride[d] * index[d];
                index[d] = 0;
            }
        }
    } else if (h->big_endian && h->item > 1) {
        for (size_t i = 0; i < count; i++)
            copy_element(out + i * h->item, in + i * h->item, h);
    } else if (h->bytes) {
        memcpy(out, in, h->bytes);
    }
    if (h->dtype == PI0_BOOL) /* numpy takes any other byte for True, too */
        for (size_t i = 0; i < count; i++)
            out[i] = out[i] != 0;
}

/* One code point of a U array, or one byte of an S array. */
static uint32_t text_unit(const uint8_t *in, size_t i, const header *h)
{
    if (h->kind == 'S')
        return in[i];
    const uint8_t *p = in + 4 * i;
    return h->big_endian ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]
                         : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

static pi0_status add_text(const source *from, const uint8_t *in, const header *h, pi0_arrays **arrays)
{
    pi0_text text = {0};
    size_t units = h->kind == 'S' ? h->bytes : h->bytes / 4;
    while (units > 0 && text_unit(in, units - 1, h) == 0) /* numpy pads with NULs, and cuts them off when it reads */
        units--;
    bool ok = true;
    for (size_t i = 0; i < units && ok; i++) {
        char bytes[4];
        uint32_t unit = text_unit(in, i, h);
        size_t n = h->kind == 'S' ? 1 : pi0_utf8_encode(unit, bytes);
        if (h->kind == 'S')
            bytes[0] = (char)unit;
        ok = n > 0 && unit != 0;
        pi0_text_add_bytes(&text, bytes, n);
    }
    pi0_status status;
    if (text.failed) {
        status = pi0_fail_memory(from->err, h->bytes, "a text");
    } else if (!ok || !pi0_utf8_is_text(text.data, text.length)) {
        status = fail_array(from, PI0_ERR_FORMAT, "the text is not valid");
        pi0_err_expected(from->err, h->kind == 'S' ? "UTF-8 without a NUL inside" : "Unicode without a NUL inside");
    } else {
        status = pi0_arrays_add_text(arrays, from->name, text.data, text.length, from->err);
    }
    pi0_text_release(&text);
    return status;
}

/* Appends the array of a whole .npy image. */
static pi0_status add_npy(const source *from, const uint8_t *npy, size_t bytes, pi0_arrays **arrays)
{
    header h = {0};
    size_t data_at = 0;
    void *data;
    PI0_TRY(parse_header(from, npy, bytes, &h, &data_at));
    if (h.dtype == PI0_TEXT) {
        if (h.rank == 0 || (h.rank == 1 && h.shape[0] == 1))
            return add_text(from, npy + data_at, &h, arrays);
        pi0_status status = fail_array(from, PI0_ERR_UNSUPPORTED, "an array of texts is not read");
        pi0_err_expected(from->err, "one text: no axis, or one axis of 1");
        pi0_err_got(from->err, "%d axes, type '%s'", h.rank, h.descr);
        return status;
    }
    PI0_TRY(pi0_arrays_add(arrays, from->name, h.dtype, h.shape, h.rank, &data, from->err));
    copy_elements(data, npy + data_at, &h);
    return PI0_OK;
}

/* ------------------------------------------------------------------ files */

static pi0_status add_member(const pi0_zip_member *member, const char *where, pi0_arrays **arrays, pi0_error *err)
{
    char name[PI0_MAX_NAME + 1] = "";
    source from = {where, name, err};
    size_t n = member->name_bytes;
    bool is_npy = n > 4 && n - 4 <= PI0_MAX_NAME && memcmp(member->name + n - 4, ".npy", 4) == 0;
    if (!is_npy) {
        pi0_fail(err, PI0_ERR_FORMAT, "the archive is no .npz: a member is not an .npy array");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "members named NAME.npy, NAME of 1 .. %d bytes", PI0_MAX_NAME);
        pi0_err_got(err, "%.*s", n < 256 ? (int)n : 256, member->name);
        return PI0_ERR_FORMAT;
    }
    memcpy(name, member->name, n - 4);
    if (!member->deflated) {
        PI0_TRY(pi0_zip_check(member, where, member->packed, err));
        return add_npy(&from, member->packed, (size_t)member->bytes, arrays);
    }
    uint8_t *unpacked = pi0_alloc((size_t)member->bytes);
    if (!unpacked)
        return pi0_fail_memory(err, (size_t)member->bytes, "an unpacked array");
    pi0_status status = pi0_zip_inflate(member, where, unpacked, err);
    if (status == PI0_OK)
        status = add_npy(&from, unpacked, (size_t)member->bytes, arrays);
    pi0_free(unpacked);
    return status;
}

static bool is_skipped(const pi0_zip_member *member, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (member->name_bytes >= strlen(*prefixes) && memcmp(member->name, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

static pi0_status read_npz(const uint8_t *data, size_t bytes, const char *where, const char *const *prefixes, pi0_arrays **arrays,
                           pi0_error *err)
{
    pi0_zip_member *members;
    size_t count;
    uint64_t total = 0;
    pi0_status status;
    PI0_TRY(pi0_zip_list(data, bytes, where, &members, &count, err));
    for (size_t i = 0; i < count && total <= PI0_MAX_ARRAY_BYTES; i++)
        if (__builtin_add_overflow(total, members[i].bytes, &total))
            total = UINT64_MAX;
    if (total > PI0_MAX_ARRAY_BYTES) {
        status = pi0_fail(err, PI0_ERR_FORMAT, "the arrays of the file are too large together");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "at most %llu bytes unpacked", (unsigned long long)PI0_MAX_ARRAY_BYTES);
        goto fail;
    }
    PI0_TRY_GOTO(pi0_arrays_new(arrays, err));
    for (size_t i = 0; i < count; i++)
        if (!is_skipped(&members[i], prefixes))
            PI0_TRY_GOTO(add_member(&members[i], where, arrays, err));
fail:
    pi0_free(members);
    return status;
}

static pi0_status parse(const void *data, size_t bytes, const char *where, const char *const *prefixes, pi0_arrays **out, pi0_error *err)
{
    pi0_status status;
    pi0_arrays *arrays = NULL;
    *out = NULL;
    if (bytes >= 6 && memcmp(data, "\x93NUMPY", 6) == 0) {
        source from = {where, "", err};
        status = add_npy(&from, data, bytes, &arrays);
    } else if (bytes >= 4 && (memcmp(data, "PK\3\4", 4) == 0 || memcmp(data, "PK\5\6", 4) == 0)) {
        status = read_npz(data, bytes, where, prefixes, &arrays, err);
    } else if ((status = pi0_refuse_impostor(data, bytes, where, err)) == PI0_OK) {
        status = pi0_fail(err, PI0_ERR_FORMAT, "neither an .npy nor an .npz file");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "0x93 NUMPY or PK at the beginning");
        if (bytes >= 4)
            pi0_err_got(err, "%02x %02x %02x %02x", ((const uint8_t *)data)[0], ((const uint8_t *)data)[1], ((const uint8_t *)data)[2],
                        ((const uint8_t *)data)[3]);
        else
            pi0_err_got(err, "%zu bytes", bytes);
        pi0_err_hint(err, "write it with numpy.save, numpy.savez or numpy.savez_compressed");
    }
    if (status != PI0_OK)
        pi0_arrays_free(&arrays);
    *out = arrays;
    return status;
}

static const char *const no_prefixes[] = {NULL};

pi0_status pi0_arrays_parse(const void *data, size_t bytes, const char *where, pi0_arrays **out, pi0_error *err)
{
    return parse(data, bytes, where, no_prefixes, out, err);
}

pi0_status pi0_arrays_read_without(const char *path, const char *const *prefixes, pi0_arrays **out, pi0_error *err)
{
    *out = NULL;
    pi0_mapping map;
    PI0_TRY(pi0_map_file(path, &map, err));
    pi0_status status = parse(map.data, map.bytes, path, prefixes, out, err);
    pi0_unmap(&map);
    return status;
}

pi0_status pi0_arrays_read(const char *path, pi0_arrays **out, pi0_error *err)
{
    return pi0_arrays_read_without(path, no_prefixes, out, err);
}
