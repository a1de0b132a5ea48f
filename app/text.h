/* text - a growing string, and the only ways in which the program turns values into text. */
#ifndef APP_TEXT_H
#define APP_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define APP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* Zero-initialise. After an allocation fails `failed` stays set and later appends do nothing: look at it once, at the end. */
typedef struct app_text {
    char *data; /* NUL-terminated, or NULL while empty */
    size_t length, capacity;
    bool failed;
} app_text;

void app_text_add(app_text *text, const char *format, ...) APP_PRINTF(2, 3);
void app_text_bytes(app_text *text, const char *bytes, size_t count);
void app_text_repeat(app_text *text, const char *piece, size_t times);
void app_text_release(app_text *text);

/* Columns that a terminal needs for UTF-8 text: one per code point. */
size_t app_text_width(const char *text);

/* Appends `text` broken at spaces into lines of at most `width` columns, every line after the first indented. */
void app_text_wrap(app_text *out, const char *text, size_t indent, size_t width);

/* 1536 -> "1.5 KiB" */
void app_text_size(app_text *out, double bytes);

#endif
