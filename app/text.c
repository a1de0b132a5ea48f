#include "text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool text_reserve(app_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (more < text->capacity - text->length)
        return true;
    if (more > SIZE_MAX / 4 || text->length > SIZE_MAX / 4) {
        text->failed = true;
        return false;
    }
    size_t capacity = (text->length + more + 1) * 3 / 2 + 64;
    char *data = realloc(text->data, capacity);
    if (!data) {
        text->failed = true;
        return false;
    }
    text->data = data;
    text->capacity = capacity;
    text->data[text->length] = '\0';
    return true;
}

void app_text_add(app_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (count < 0)
        text->failed = true;
    else if (text_reserve(text, (size_t)count)) {
        vsnprintf(text->data + text->length, (size_t)count + 1, format, again);
        text->length += (size_t)count;
    }
    va_end(again);
}

void app_text_bytes(app_text *text, const char *bytes, size_t count)
{
    if (!text_reserve(text, count))
        return;
    if (count)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void app_text_repeat(app_text *text, const char *piece, size_t times)
{
    for (size_t i = 0; i < times; i++)
        app_text_bytes(text, piece, strlen(piece));
}

void app_text_release(app_text *text)
{
    free(text->data);
    memset(text, 0, sizeof *text);
}

size_t app_text_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0u) != 0x80u;
    return width;
}

void app_text_wrap(app_text *out, const char *text, size_t indent, size_t width)
{
    size_t room = width > indent + 20 ? width - indent : 20, used = 0;
    while (*text) {
        size_t bytes = strcspn(text, " \n"), columns = 0;
        for (size_t i = 0; i < bytes; i++)
            columns += ((unsigned char)text[i] & 0xc0u) != 0x80u;
        if (used && used + 1 + columns > room) {
            app_text_add(out, "\n");
            app_text_repeat(out, " ", indent);
            used = 0;
        }
        if (used) {
            app_text_add(out, " ");
            used++;
        }
        app_text_bytes(out, text, bytes);
        used += columns;
        text += bytes;
        if (*text == '\n') {
            app_text_add(out, "\n");
            app_text_repeat(out, " ", indent);
            used = 0;
        }
        if (*text)
            text++;
    }
}

void app_text_size(app_text *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    app_text_add(out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}
