/* utf8 - one code point at a time, for the readers of this folder. Strict: no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef PI0_IO_UTF8_H
#define PI0_IO_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the sequence at p (1 .. 4), or 0 when the `room` bytes there do not begin with a well-formed one. */
static inline size_t pi0_utf8_decode(const uint8_t *p, size_t room, uint32_t *code)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (room == 0)
        return 0;
    uint32_t c = p[0];
    if (c < 0x80) {
        *code = c;
        return 1;
    }
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || n > room)
        return 0;
    c &= 0xffu >> (n + 1);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3fu);
    }
    if (c < smallest[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *code = c;
    return n;
}

/* Writes 1 .. 4 bytes; 0 for a number that is no code point. */
static inline size_t pi0_utf8_encode(uint32_t code, char out[4])
{
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80u | (code & 0x3fu));
    out[0] = (char)((0xf00u >> n & 0xffu) | code);
    return n;
}

/* A name that C strings and JSON can hold: well-formed, without a NUL inside. */
static inline bool pi0_utf8_is_text(const char *text, size_t bytes)
{
    uint32_t code = 1;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = pi0_utf8_decode((const uint8_t *)text + i, bytes - i, &code);
        if (n == 0 || code == 0)
            return false;
    }
    return true;
}

#endif
