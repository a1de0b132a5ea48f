#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* A hostile file can name 65,536 tensors of a kilobyte each; a list that long helps nobody, and appending to it is quadratic. */
#define MAX_LIST_BYTES (256u << 10)
static const char list_cut[] = "(the list is longer than can be shown)";

/* Length of the well-formed UTF-8 sequence at s, or 0. */
static size_t utf8_length(const unsigned char *s)
{
    unsigned c = s[0];
    size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if (n == 3 && ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f)))
        return 0;
    if (n == 4 && ((c == 0xf0 && s[1] < 0x90) || (c == 0xf4 && s[1] > 0x8f)))
        return 0;
    return n;
}

/* Error text quotes names out of files that nobody checked: no terminal escapes, always valid UTF-8 (it may end in a JSON document). */
static void make_printable(char *text, bool keep_lines)
{
    for (unsigned char *s = (unsigned char *)text; *s;) {
        size_t n = utf8_length(s);
        bool control = *s < 0x20 || *s == 0x7f || (*s == 0xc2 && n == 2 && s[1] < 0xa0);
        if (keep_lines && (*s == '\n' || *s == '\t'))
            control = false;
        if (n == 0) {
            *s++ = '?';
            continue;
        }
        if (control)
            memset(s, '?', n);
        s += n;
    }
}

/* A text that does not fit ends in "..." so that nobody takes the rest for the whole. */
static void format_field(char *out, size_t size, const char *format, va_list args)
{
    int n = vsnprintf(out, size, format, args);
    if (n < 0)
        snprintf(out, size, "(unprintable text)");
    if (n >= 0 && (size_t)n >= size) {
        size_t cut = size - 4;
        while (cut > 0 && ((unsigned char)out[cut] & 0xc0) == 0x80)
            cut--;
        memcpy(out + cut, "...", 4);
    }
    make_printable(out, true);
}

void pi0_error_clear(pi0_error *err)
{
    if (!err)
        return;
    free(err->list);
    memset(err, 0, sizeof *err);
}

pi0_status pi0_fail(pi0_error *err, pi0_status status, const char *what, ...)
{
    if (!err)
        return status;
    /* The arguments may point into *err, which is about to be emptied. */
    char text[sizeof err->what];
    va_list args;
    va_start(args, what);
    format_field(text, sizeof text, what, args);
    va_end(args);
    pi0_error_clear(err);
    err->status = status;
    memcpy(err->what, text, sizeof text);
    return status;
}

#define SET_FIELD(err, member, text)                         \
    do {                                                     \
        if (err) {                                           \
            char field_[sizeof(err)->member];                \
            va_list args;                                    \
            va_start(args, text);                            \
            format_field(field_, sizeof field_, text, args); \
            va_end(args);                                    \
            memcpy((err)->member, field_, sizeof field_);    \
        }                                                    \
    } while (0)

void pi0_err_where(pi0_error *err, const char *text, ...)
{
    SET_FIELD(err, where, text);
}

void pi0_err_expected(pi0_error *err, const char *text, ...)
{
    SET_FIELD(err, expected, text);
}

void pi0_err_got(pi0_error *err, const char *text, ...)
{
    SET_FIELD(err, got, text);
}

void pi0_err_hint(pi0_error *err, const char *text, ...)
{
    SET_FIELD(err, hint, text);
}

/* Room of a list that holds `length` bytes: a power of two, so that it is known without being stored and few appends move the list. */
static size_t list_room(size_t length)
{
    size_t room = 256;
    while (room < length + 1)
        room *= 2;
    return room;
}

void pi0_err_item(pi0_error *err, const char *text, ...)
{
    if (!err)
        return;
    size_t old = err->list ? strlen(err->list) : 0;
    size_t cut = sizeof list_cut - 1;
    if (old >= cut && memcmp(err->list + old - cut, list_cut, cut) == 0)
        return;
    char line[PI0_MAX_NAME + 512];
    va_list args;
    va_start(args, text);
    format_field(line, sizeof line, text, args);
    va_end(args);
    make_printable(line, false);
    size_t n = strlen(line);
    if (old + n + 1 > MAX_LIST_BYTES) {
        memcpy(line, list_cut, sizeof list_cut);
        n = cut;
    }
    size_t length = old + (old > 0) + n;
    if (!err->list || list_room(length) != list_room(old)) {
        char *grown = realloc(err->list, list_room(length));
        if (!grown)
            return; /* the error itself still stands */
        err->list = grown;
    }
    if (old)
        err->list[old++] = '\n';
    memcpy(err->list + old, line, n + 1);
}

pi0_status pi0_fail_memory(pi0_error *err, size_t bytes, const char *what_for)
{
    pi0_fail(err, PI0_ERR_MEMORY, "out of memory: %zu bytes for %s", bytes, what_for);
    return PI0_ERR_MEMORY;
}

static const char *errno_hint(int code)
{
    switch (code) {
    case ENOENT:
        return "check the spelling, and that it is on this machine";
    case EACCES:
    case EPERM:
        return "check the permissions of the file and of the folders above it";
    case ELOOP:
        return "its symbolic links lead in a circle: put the file itself there";
    case ENOSPC:
    case EDQUOT:
        return "free some space, or choose another disk";
    case EROFS:
        return "choose a folder that can be written";
    default:
        return "";
    }
}

pi0_status pi0_fail_errno(pi0_error *err, const char *action, const char *path)
{
    int code = errno;
    char buffer[128];
    pi0_fail(err, PI0_ERR_IO, "cannot %s", action);
    pi0_err_where(err, "%s", path ? path : "");
    pi0_err_got(err, "%s", strerror_r(code, buffer, sizeof buffer));
    pi0_err_hint(err, "%s", errno_hint(code));
    return PI0_ERR_IO;
}

const char *pi0_status_name(pi0_status status)
{
    switch (status) {
    case PI0_OK:
        return "ok";
    case PI0_ERR_ARGUMENT:
        return "argument";
    case PI0_ERR_IO:
        return "io";
    case PI0_ERR_FORMAT:
        return "format";
    case PI0_ERR_MODEL:
        return "model";
    case PI0_ERR_MEMORY:
        return "memory";
    case PI0_ERR_DEVICE:
        return "device";
    case PI0_ERR_UNSUPPORTED:
        return "unsupported";
    case PI0_ERR_NONFINITE:
        return "nonfinite";
    case PI0_ERR_CANCELLED:
        return "cancelled";
    case PI0_ERR_INTERNAL:
        return "internal";
    }
    return "unknown";
}
