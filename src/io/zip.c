#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "io/utf8.h"
#include "io/zip.h"

/* PKWARE's APPNOTE names these records; all numbers in them are little-endian. */
#define SIG_LOCAL 0x04034b50u
#define SIG_CENTRAL 0x02014b50u
#define SIG_END 0x06054b50u
#define SIG_END64 0x06064b50u
#define SIG_LOCATOR64 0x07064b50u
#define LOCAL_BYTES 30u
#define CENTRAL_BYTES 46u
#define END_BYTES 22u
#define END64_BYTES 56u
#define LOCATOR64_BYTES 20u
#define SATURATED16 0xffffu
#define SATURATED32 0xffffffffu

#define FLAG_ENCRYPTED 0x0041u /* plain and strong encryption */
#define FLAG_PATCH 0x0020u
#define MAX_DEFLATE_RATIO 1032u  /* 258 bytes from two bits */
#define INFLATE_PIECE (1u << 30) /* zlib counts in unsigned ints */

typedef struct archive {
    const uint8_t *data;
    size_t bytes;
    const char *where;
    pi0_error *err;
    uint64_t directory, directory_bytes, entries;
} archive;

static uint64_t get(const uint8_t *p, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

static pi0_status fail_archive(const archive *a, const char *what, const char *expected)
{
    pi0_status status = pi0_fail(a->err, PI0_ERR_FORMAT, "%s", what);
    pi0_err_where(a->err, "%s", a->where);
    pi0_err_expected(a->err, "%s", expected);
    return status;
}

static pi0_status fail_member(pi0_error *err, pi0_status status, const char *where, const pi0_zip_member *member, const char *what)
{
    int shown = member->name_bytes < 256 ? (int)member->name_bytes : 256;
    pi0_fail(err, status, "%s", what);
    pi0_err_where(err, "%s: member \"%.*s\"", where, shown, member->name);
    return status;
}

/* ------------------------------------------------------------------ the end records */

/* Position of the end record: the last one whose comment reaches exactly to the end of the file. */
static bool find_end(const archive *a, size_t *position)
{
    size_t deepest = a->bytes > END_BYTES + 65535 ? a->bytes - END_BYTES - 65535 : 0;
    if (a->bytes < END_BYTES)
        return false;
    for (size_t at = a->bytes - END_BYTES;; at--) {
        if (get(a->data + at, 4) == SIG_END && get(a->data + at + 20, 2) == a->bytes - at - END_BYTES) {
            *position = at;
            return true;
        }
        if (at == deepest)
            return false;
    }
}

/* A field of the short record either says the same as the long one or says "look there". */
static bool agrees(uint64_t shorter, uint64_t longer, uint64_t saturated)
{
    return shorter == longer || shorter == saturated;
}

/* Reads the 64-bit end record that the locator before the short record points to. *stop: where the central directory must end. */
static pi0_status read_end64(archive *a, size_t end, size_t *stop)
{
    size_t locator = end - LOCATOR64_BYTES;
    const uint8_t *l = a->data + locator, *e = a->data + end;
    uint64_t at = get(l + 8, 8);
    if (get(l + 4, 4) != 0 || get(l + 16, 4) != 1 || locator < END64_BYTES || at > locator - END64_BYTES)
        return fail_archive(a, "the zip64 locator is malformed", "one disk, and a record before the locator");
    const uint8_t *r = a->data + at;
    if (get(r, 4) != SIG_END64 || get(r + 4, 8) != locator - at - 12 || get(r + 16, 8) != 0 || get(r + 24, 8) != get(r + 32, 8))
        return fail_archive(a, "the zip64 end record is malformed", "a record of one disk that ends at its locator");
    a->entries = get(r + 32, 8);
    a->directory_bytes = get(r + 40, 8);
    a->directory = get(r + 48, 8);
    if (!agrees(get(e + 10, 2), a->entries, SATURATED16) || !agrees(get(e + 12, 4), a->directory_bytes, SATURATED32) ||
        !agrees(get(e + 16, 4), a->directory, SATURATED32))
        return fail_archive(a, "the two end records of the archive disagree", "the same numbers in both");
    *stop = (size_t)at;
    return PI0_OK;
}

static pi0_status read_end(archive *a)
{
    size_t end = 0, stop = 0;
    if (!find_end(a, &end)) {
        pi0_status status = fail_archive(a, "the archive has no end record", "a whole zip file");
        pi0_err_hint(a->err, "the file may have been cut short: compare its size with the original's");
        return status;
    }
    const uint8_t *e = a->data + end;
    if (end >= LOCATOR64_BYTES && get(e - LOCATOR64_BYTES, 4) == SIG_LOCATOR64) {
        PI0_TRY(read_end64(a, end, &stop));
    } else {
        if (get(e + 4, 4) != 0 || get(e + 8, 2) != get(e + 10, 2))
            return fail_archive(a, "the archive is split over several disks", "one file");
        a->entries = get(e + 10, 2);
        a->directory_bytes = get(e + 12, 4);
        a->directory = get(e + 16, 4);
        stop = end;
    }
    if (a->directory > stop || a->directory_bytes != stop - a->directory || a->entries > a->directory_bytes / CENTRAL_BYTES)
        return fail_archive(a, "the archive's directory is not where its end record says", "a directory that ends at the end record");
    if (a->entries > PI0_MAX_ARRAYS) {
        pi0_status status = fail_archive(a, "too many members in the archive", "");
        pi0_err_expected(a->err, "at most %d", PI0_MAX_ARRAYS);
        pi0_err_got(a->err, "%llu", (unsigned long long)a->entries);
        return status;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ the directory */

/* Replaces the saturated ones of sizes and start by the 64-bit values of the extra field. */
static bool read_extra64(const uint8_t *extra, size_t bytes, pi0_zip_member *m)
{
    uint64_t *const wanted[3] = {&m->bytes, &m->packed_bytes, &m->start};
    if (m->bytes != SATURATED32 && m->packed_bytes != SATURATED32 && m->start != SATURATED32)
        return true;
    for (size_t at = 0; bytes - at >= 4;) {
        size_t length = (size_t)get(extra + at + 2, 2);
        if (length > bytes - at - 4)
            return false;
        const uint8_t *p = extra + at + 4;
        if (get(extra + at, 2) != 1) {
            at += 4 + length;
            continue;
        }
        for (int i = 0; i < 3; i++) {
            if (*wanted[i] != SATURATED32)
                continue;
            if (length < 8)
                return false;
            *wanted[i] = get(p, 8);
            p += 8;
            length -= 8;
        }
        return true;
    }
    return false;
}

/* Finds the packed bytes behind the member's own header, which must tell the same story as the directory. */
static pi0_status read_local(const archive *a, pi0_zip_member *m, unsigned method)
{
    pi0_status status;
    if (m->start > a->directory || a->directory - m->start < LOCAL_BYTES || get(a->data + m->start, 4) != SIG_LOCAL) {
        status = fail_member(a->err, PI0_ERR_FORMAT, a->where, m, "a member's header is not where the directory says");
        pi0_err_got(a->err, "offset %llu in an archive of %zu bytes", (unsigned long long)m->start, a->bytes);
        return status;
    }
    const uint8_t *local = a->data + m->start;
    uint64_t room = a->directory - m->start - LOCAL_BYTES;
    uint64_t name_bytes = get(local + 26, 2), extra_bytes = get(local + 28, 2);
    bool same = name_bytes == m->name_bytes && name_bytes + extra_bytes <= room && get(local + 8, 2) == method &&
                (get(local + 6, 2) & FLAG_ENCRYPTED) == 0 && memcmp(local + LOCAL_BYTES, m->name, m->name_bytes) == 0;
    if (!same)
        return fail_member(a->err, PI0_ERR_FORMAT, a->where, m, "a member's header disagrees with the directory");
    room -= name_bytes + extra_bytes;
    if (m->packed_bytes > room) {
        status = fail_member(a->err, PI0_ERR_FORMAT, a->where, m, "a member reaches past the archive's data");
        pi0_err_expected(a->err, "at most %llu bytes", (unsigned long long)room);
        pi0_err_got(a->err, "%llu bytes", (unsigned long long)m->packed_bytes);
        return status;
    }
    m->packed = local + LOCAL_BYTES + name_bytes + extra_bytes;
    bool possible = m->deflated ? m->bytes / MAX_DEFLATE_RATIO <= m->packed_bytes : m->bytes == m->packed_bytes;
    if (!possible) {
        status = fail_member(a->err, PI0_ERR_FORMAT, a->where, m, "a member claims a size that its packed bytes cannot have");
        pi0_err_got(a->err, "%llu bytes packed, %llu unpacked", (unsigned long long)m->packed_bytes, (unsigned long long)m->bytes);
        return status;
    }
    return PI0_OK;
}

/* Reads the directory entry at *at and moves *at behind it. */
static pi0_status read_entry(const archive *a, uint64_t *at, pi0_zip_member *m)
{
    uint64_t room = a->directory + a->directory_bytes - *at;
    const uint8_t *p = a->data + *at;
    if (room < CENTRAL_BYTES || get(p, 4) != SIG_CENTRAL)
        return fail_archive(a, "the archive's directory is malformed", "as many entries as the end record says");
    uint64_t name_bytes = get(p + 28, 2), extra_bytes = get(p + 30, 2), comment_bytes = get(p + 32, 2);
    if (name_bytes + extra_bytes + comment_bytes > room - CENTRAL_BYTES)
        return fail_archive(a, "an entry of the archive's directory is longer than the directory", "a whole zip file");
    unsigned flags = (unsigned)get(p + 8, 2), method = (unsigned)get(p + 10, 2);
    *m = (pi0_zip_member){.name = (const char *)p + CENTRAL_BYTES,
                          .name_bytes = (size_t)name_bytes,
                          .crc = (uint32_t)get(p + 16, 4),
                          .packed_bytes = get(p + 20, 4),
                          .bytes = get(p + 24, 4),
                          .start = get(p + 42, 4),
                          .deflated = method == 8};
    *at += CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes;
    if (!pi0_utf8_is_text(m->name, m->name_bytes))
        return fail_archive(a, "a member's name is not text", "names in UTF-8");
    if (flags & (FLAG_ENCRYPTED | FLAG_PATCH))
        return fail_member(a->err, PI0_ERR_UNSUPPORTED, a->where, m, "an encrypted or patched zip member is not supported");
    if (method != 0 && method != 8) {
        fail_member(a->err, PI0_ERR_UNSUPPORTED, a->where, m, "a zip member is packed by a method that is not supported");
        pi0_err_expected(a->err, "0 (stored) or 8 (deflated)");
        pi0_err_got(a->err, "method %u", method);
        pi0_err_hint(a->err, "write it with numpy.savez or numpy.savez_compressed");
        return PI0_ERR_UNSUPPORTED;
    }
    if (!read_extra64(p + CENTRAL_BYTES + name_bytes, (size_t)extra_bytes, m))
        return fail_member(a->err, PI0_ERR_FORMAT, a->where, m, "a member's zip64 sizes are missing");
    return read_local(a, m, method);
}

static int compare_names(const void *a, const void *b)
{
    const pi0_zip_member *x = *(const pi0_zip_member *const *)a, *y = *(const pi0_zip_member *const *)b;
    size_t common = x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes;
    int order = memcmp(x->name, y->name, common);
    return order ? order : (x->name_bytes > y->name_bytes) - (x->name_bytes < y->name_bytes);
}

static int compare_starts(const void *a, const void *b)
{
    const pi0_zip_member *x = *(const pi0_zip_member *const *)a, *y = *(const pi0_zip_member *const *)b;
    return (x->start > y->start) - (x->start < y->start);
}

static pi0_status check_members(const archive *a, const pi0_zip_member *members, size_t count)
{
    pi0_status status = PI0_OK;
    const pi0_zip_member **sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted)
        return pi0_fail_memory(a->err, (count + 1) * sizeof *sorted, "a list of zip members");
    for (size_t i = 0; i < count; i++)
        sorted[i] = &members[i];
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count && status == PI0_OK; i++)
        if (compare_names(&sorted[i - 1], &sorted[i]) == 0)
            status = fail_member(a->err, PI0_ERR_FORMAT, a->where, sorted[i], "two members have the same name");
    qsort(sorted, count, sizeof *sorted, compare_starts);
    for (size_t i = 1; i < count && status == PI0_OK; i++)
        if (sorted[i - 1]->packed + sorted[i - 1]->packed_bytes > a->data + sorted[i]->start)
            status = fail_member(a->err, PI0_ERR_FORMAT, a->where, sorted[i], "two members overlap");
    free(sorted);
    return status;
}

pi0_status pi0_zip_list(const uint8_t *data, size_t bytes, const char *where, pi0_zip_member **members, size_t *count, pi0_error *err)
{
    pi0_status status;
    archive a = {.data = data, .bytes = bytes, .where = where, .err = err};
    *members = NULL;
    *count = 0;
    PI0_TRY(read_end(&a));
    size_t n = (size_t)a.entries;
    pi0_zip_member *list = pi0_alloc_array(n, sizeof *list);
    if (!list)
        return pi0_fail_memory(err, n * sizeof *list, "a list of zip members");
    uint64_t at = a.directory;
    for (size_t i = 0; i < n; i++)
        PI0_TRY_GOTO(read_entry(&a, &at, &list[i]));
    if (at != a.directory + a.directory_bytes) {
        status = fail_archive(&a, "the archive's directory has more entries than the end record says", "as many entries as it says");
        goto fail;
    }
    PI0_TRY_GOTO(check_members(&a, list, n));
    *members = list;
    *count = n;
    return PI0_OK;
fail:
    pi0_free(list);
    return status;
}

/* ------------------------------------------------------------------ unpacking */

static unsigned piece(uint64_t left)
{
    return left > INFLATE_PIECE ? INFLATE_PIECE : (unsigned)left;
}

/* true when the stream holds exactly member->bytes bytes and uses up its packed bytes; *code is zlib's last word. */
static bool inflate_member(const pi0_zip_member *member, uint8_t *out, int *code)
{
    z_stream stream = {0};
    uint64_t in_left = member->packed_bytes, out_left = member->bytes;
    uint8_t excess;
    bool too_long = false;
    *code = inflateInit2(&stream, -MAX_WBITS);
    if (*code != Z_OK)
        return false;
    stream.next_in = (Bytef *)(uintptr_t)member->packed;
    stream.next_out = out;
    do {
        if (stream.avail_in == 0)
            in_left -= stream.avail_in = piece(in_left);
        if (stream.avail_out == 0 && out_left > 0)
            out_left -= stream.avail_out = piece(out_left);
        else if (stream.avail_out == 0) {
            stream.next_out = &excess; /* the end mark may still be to come, but no byte */
            stream.avail_out = 1;
        }
        *code = inflate(&stream, Z_NO_FLUSH);
        too_long = stream.next_out == &excess + 1;
    } while (*code == Z_OK && !too_long);
    bool whole = *code == Z_STREAM_END && !too_long && out_left == 0 && in_left == 0 && stream.avail_in == 0;
    whole = whole && (stream.avail_out == 0 || stream.next_out == &excess);
    inflateEnd(&stream);
    return whole;
}

pi0_status pi0_zip_inflate(const pi0_zip_member *member, const char *where, uint8_t *out, pi0_error *err)
{
    int code;
    if (!inflate_member(member, out, &code)) {
        if (code == Z_MEM_ERROR)
            return pi0_fail_memory(err, 1u << 16, "unpacking");
        pi0_status status = fail_member(err, PI0_ERR_FORMAT, where, member, "a packed member is damaged");
        pi0_err_expected(err, "a deflate stream of exactly %llu bytes", (unsigned long long)member->bytes);
        return status;
    }
    return pi0_zip_check(member, where, out, err);
}

pi0_status pi0_zip_check(const pi0_zip_member *member, const char *where, const uint8_t *unpacked, pi0_error *err)
{
    uint32_t crc = (uint32_t)crc32_z(0, unpacked, (size_t)member->bytes);
    if (crc == member->crc)
        return PI0_OK;
    pi0_status status = fail_member(err, PI0_ERR_FORMAT, where, member, "a member is damaged: its checksum is wrong");
    pi0_err_expected(err, "CRC-32 %08x", (unsigned)member->crc);
    pi0_err_got(err, "%08x", (unsigned)crc);
    return status;
}
