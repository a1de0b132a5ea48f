#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

char *pi0_strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    pi0_count_allocation();
    char *copy = malloc(n);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

char *pi0_sprintf(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    pi0_count_allocation();
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}

void pi0_text_free(char **text)
{
    if (!text)
        return;
    free(*text);
    *text = NULL;
}

/* Makes room for `count` more bytes and the NUL. */
bool pi0_text_reserve(pi0_text *text, size_t count)
{
    size_t need;
    if (text->failed)
        return false;
    if (!pi0_add(text->length, count, &need) || !pi0_add(need, 1, &need) || need > PTRDIFF_MAX) {
        text->failed = true;
        return false;
    }
    if (need <= text->capacity)
        return true;
    size_t capacity = text->capacity ? text->capacity : 128;
    while (capacity < need)
        capacity = capacity > PTRDIFF_MAX / 2 ? need : capacity * 2;
    pi0_count_allocation();
    char *grown = realloc(text->data, capacity);
    if (!grown) {
        text->failed = true;
        return false;
    }
    text->data = grown;
    text->capacity = capacity;
    return true;
}

void pi0_text_add_bytes(pi0_text *text, const char *bytes, size_t count)
{
    if (!pi0_text_reserve(text, count))
        return;
    if (count)
        memcpy(text->data + text->length, bytes, count);
    text->length += count;
    text->data[text->length] = '\0';
}

void pi0_text_add(pi0_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        text->failed = true;
    else if (pi0_text_reserve(text, (size_t)n)) {
        vsnprintf(text->data + text->length, (size_t)n + 1, format, again);
        text->length += (size_t)n;
    }
    va_end(again);
}

void pi0_text_release(pi0_text *text)
{
    if (!text)
        return;
    free(text->data);
    memset(text, 0, sizeof *text);
}
