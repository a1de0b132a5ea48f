#include "json_out.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void begin_value(app_json *json)
{
    if (json->wants_comma)
        app_text_add(json->out, ", ");
    json->wants_comma = true;
}

void app_json_open(app_json *json, char bracket)
{
    begin_value(json);
    app_text_add(json->out, "%c", bracket);
    json->wants_comma = false;
}

void app_json_close(app_json *json, char bracket)
{
    app_text_add(json->out, "%c", bracket);
    json->wants_comma = true;
}

void app_json_key(app_json *json, const char *key)
{
    app_json_string(json, key);
    app_text_add(json->out, ": ");
    json->wants_comma = false;
}

void app_json_string(app_json *json, const char *text)
{
    begin_value(json);
    app_json_quote(json->out, text, strlen(text));
}

void app_json_int(app_json *json, int64_t value)
{
    begin_value(json);
    app_text_add(json->out, "%" PRId64, value);
}

void app_json_unsigned(app_json *json, uint64_t value)
{
    begin_value(json);
    app_text_add(json->out, "%" PRIu64, value);
}

void app_json_real(app_json *json, double value)
{
    begin_value(json);
    if (isfinite(value))
        app_text_add(json->out, "%.17g", value);
    else
        app_text_add(json->out, "null");
}

void app_json_bool(app_json *json, bool value)
{
    begin_value(json);
    app_text_add(json->out, value ? "true" : "false");
}

/* Bytes of the well-formed UTF-8 character at `text`, or 0. */
static size_t utf8_length(const unsigned char *text, size_t left)
{
    unsigned char c = text[0];
    size_t length = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (!length || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (c == 0xe0 && text[1] < 0xa0) || (c == 0xf0 && text[1] < 0x90);
    bool outside = (c == 0xed && text[1] >= 0xa0) || (c == 0xf4 && text[1] >= 0x90);
    return overlong || outside ? 0 : length;
}

void app_json_quote(app_text *out, const char *text, size_t bytes)
{
    app_text_add(out, "\"");
    for (size_t i = 0; i < bytes;) {
        unsigned char c = (unsigned char)text[i];
        size_t length = utf8_length((const unsigned char *)text + i, bytes - i);
        if (c == '"' || c == '\\')
            app_text_add(out, "\\%c", c);
        else if (c == '\n')
            app_text_add(out, "\\n");
        else if (c < 0x20 || c == 0x7f)
            app_text_add(out, "\\u%04x", c);
        else if (length)
            app_text_bytes(out, text + i, length);
        else
            app_text_add(out, "\\ufffd");
        i += length ? length : 1;
    }
    app_text_add(out, "\"");
}
