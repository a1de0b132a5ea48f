#include "describe.h"

#include <string.h>

#include "render.h"

static int add_bytes(const char *bytes, size_t count, void *text)
{
    app_text_bytes(text, bytes, count);
    return ((app_text *)text)->failed ? -1 : 0;
}

void app_describe_json(app_text *out, json_t *value)
{
    if (json_dump_callback(value, add_bytes, out, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
        out->failed = true;
    app_text_add(out, "\n");
    json_decref(value);
}

int app_describe_print(app_context *app, const char *json_text, const char *without)
{
    json_error_t where;
    json_t *root = json_loads(json_text, 0, &where);
    if (!json_is_object(root)) {
        json_decref(root);
        pi0_error err = {0};
        app_err(&err, PI0_ERR_INTERNAL, "the library's description is no JSON object: %s", where.text);
        return app_fail(&app->report, &err, APP_COMPUTING);
    }
    if (without)
        json_object_del(root, without);
    app_text out = {0};
    if (app->json) {
        app_describe_json(&out, json_incref(root));
    } else {
        app_render(&out, root, 110);
    }
    json_decref(root);
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}
