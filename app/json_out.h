/* json_out - writes JSON as it goes. Numbers keep every bit (%.17g); names and texts become valid UTF-8 whatever they were. */
#ifndef APP_JSON_OUT_H
#define APP_JSON_OUT_H

#include <stdint.h>

#include "text.h"

typedef struct app_json {
    app_text *out;
    bool wants_comma; /* something stands before the next value on this level */
} app_json;

void app_json_open(app_json *json, char bracket);  /* '{' or '[' */
void app_json_close(app_json *json, char bracket); /* '}' or ']' */
void app_json_key(app_json *json, const char *key);
void app_json_string(app_json *json, const char *text);
void app_json_int(app_json *json, int64_t value);
void app_json_unsigned(app_json *json, uint64_t value);
void app_json_real(app_json *json, double value); /* null when it is not finite */
void app_json_bool(app_json *json, bool value);

/* Appends the quoted string alone. */
void app_json_quote(app_text *out, const char *text, size_t bytes);

#endif
