/* render - any JSON object as a page that people read: aligned pairs, tables where the members are alike, wrapped lists. */
#ifndef APP_RENDER_H
#define APP_RENDER_H

#include <jansson.h>

#include "text.h"

void app_render(app_text *out, const json_t *object, size_t width);

#endif
