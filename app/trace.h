/* trace - what the library recorded, by name, and in Chrome's trace format. */
#ifndef APP_TRACE_H
#define APP_TRACE_H

#include "pi0.h"

#include "text.h"

/* All spans of a model's trace, for those who walk over them more than once. Texts are the model's. */
typedef struct app_trace {
    pi0_trace_span *spans;
    size_t count, dropped;
} app_trace;

pi0_status app_trace_take(const pi0_model *model, app_trace *trace, pi0_error *err);
void app_trace_release(app_trace *trace);

typedef struct app_span_name {
    char text[160];
} app_span_name;

/* "step 3", "preprocess cam_high", "prefix 4"; of an op and of work on it its role. */
app_span_name app_trace_name(const pi0_info *info, const pi0_trace_span *span);

/* A product without its tower and layer, "mlp.gate_proj+up_proj"; of other ops their kind. */
const char *app_trace_role(const pi0_trace_span *op);

/* What chrome://tracing and ui.perfetto.dev read: one process for the threads that call, one for the device's. */
void app_trace_json(app_text *out, const app_trace *trace, const pi0_info *info);

#endif
