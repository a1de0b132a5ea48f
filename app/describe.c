#include "describe.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "render.h"

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
        char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
        out.failed = !text;
        app_text_add(&out, "%s\n", text ? text : "");
        free(text);
    } else {
        app_render(&out, root, 110);
    }
    json_decref(root);
    int code = app_print(&app->report, &out);
    app_text_release(&out);
    return code;
}
