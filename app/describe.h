/* describe - prints a JSON text of the library: as it is, or as a page. */
#ifndef APP_DESCRIBE_H
#define APP_DESCRIBE_H

#include "app.h"

/* without: a top-level member to leave out, or NULL. Returns the exit code. */
int app_describe_print(app_context *app, const char *json_text, const char *without);

#endif
