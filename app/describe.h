/* describe - prints JSON: as it is, or as a page. */
#ifndef APP_DESCRIBE_H
#define APP_DESCRIBE_H

#include <jansson.h>

#include "app.h"

/* A value, which it takes, and a line end. NULL, or no memory: out->failed. */
void app_describe_json(app_text *out, json_t *value);

/* A JSON text of the library. without: a top-level member to leave out, or NULL. Returns the exit code. */
int app_describe_print(app_context *app, const char *json_text, const char *without);

#endif
