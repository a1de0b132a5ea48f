#include "trace.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_out.h"
#include "report.h"

pi0_status app_trace_take(const pi0_model *model, app_trace *trace, pi0_error *err)
{
    const size_t count = pi0_trace_count(model);
    trace->spans = calloc(count + 1, sizeof *trace->spans);
    if (!trace->spans)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for a trace of %zu spans", count);
    for (size_t i = 0; i < count; i++)
        trace->spans[i] = pi0_trace_at(model, i);
    trace->count = count;
    trace->dropped = pi0_trace_dropped(model);
    return PI0_OK;
}

void app_trace_release(app_trace *trace)
{
    free(trace->spans);
    *trace = (app_trace){0};
}

const char *app_trace_role(const pi0_trace_span *op)
{
    const char *role = *op->product ? op->product : op->name;
    const char *dot = strchr(role, '.');
    if (!dot || !isdigit((unsigned char)dot[1]))
        return role;
    dot = strchr(dot + 1, '.');
    return dot ? dot + 1 : role;
}

app_span_name app_trace_name(const pi0_info *info, const pi0_trace_span *span)
{
    app_span_name name;
    const bool camera = span->kind == PI0_SPAN_STAGE && strcmp(span->name, "preprocess") == 0;
    if (span->kind == PI0_SPAN_OP || span->kind == PI0_SPAN_WORK)
        snprintf(name.text, sizeof name.text, "%s", app_trace_role(span));
    else if (camera && span->index >= 0 && span->index < info->n_slots)
        snprintf(name.text, sizeof name.text, "%s %s", span->name, info->slots[span->index]);
    else if (span->index >= 0)
        snprintf(name.text, sizeof name.text, "%s %d", span->name, span->index);
    else
        snprintf(name.text, sizeof name.text, "%s", span->name);
    return name;
}

/* ------------------------------------------------------------------ Chrome's trace format */

enum { HOST = 1, DEVICE = 2 };

typedef struct writer {
    app_json json;
    const pi0_info *info;
    uint64_t origin_ns;
} writer;

static void begin_event(writer *w, const char *name, const char *phase, int process, int thread)
{
    app_text_add(w->json.out, w->json.wants_comma ? ",\n" : "\n");
    w->json.wants_comma = false;
    app_json_open(&w->json, '{');
    app_json_key(&w->json, "name");
    app_json_string(&w->json, name);
    app_json_key(&w->json, "ph");
    app_json_string(&w->json, phase);
    app_json_key(&w->json, "pid");
    app_json_int(&w->json, process);
    app_json_key(&w->json, "tid");
    app_json_int(&w->json, thread);
}

/* Metadata: what a process or a thread is called. */
static void add_name(writer *w, const char *what, int process, int thread, const char *name)
{
    begin_event(w, what, "M", process, thread);
    app_json_key(&w->json, "args");
    app_json_open(&w->json, '{');
    app_json_key(&w->json, "name");
    app_json_string(&w->json, name);
    app_json_close(&w->json, '}');
    app_json_close(&w->json, '}');
}

static void add_names(writer *w, const app_trace *trace)
{
    char text[160];
    int callers = 0;
    snprintf(text, sizeof text, "pi0 %s, %s", w->info->model, w->info->precision);
    add_name(w, "process_name", HOST, 0, text);
    snprintf(text, sizeof text, "device %s (%s)", w->info->device, w->info->isa);
    add_name(w, "process_name", DEVICE, 0, text);
    for (size_t i = 0; i < trace->count; i++) {
        const pi0_trace_span *span = &trace->spans[i];
        const int caller = span->thread < w->info->threads ? 0 : span->thread;
        callers = span->kind != PI0_SPAN_WORK && caller > callers ? caller : callers;
    }
    add_name(w, "thread_name", HOST, 0, "calling thread");
    for (int thread = w->info->threads; thread <= callers; thread++) {
        snprintf(text, sizeof text, "calling thread %d", thread);
        add_name(w, "thread_name", HOST, thread, text);
    }
    for (int thread = 0; thread < w->info->threads; thread++) {
        snprintf(text, sizeof text, thread ? "worker %d" : "worker %d (the calling thread)", thread);
        add_name(w, "thread_name", DEVICE, thread, text);
    }
}

static void add_real(writer *w, const char *key, double value)
{
    app_json_key(&w->json, key);
    app_json_real(&w->json, value);
}

static void add_op_arguments(writer *w, const pi0_trace_span *span)
{
    app_json_key(&w->json, "op");
    app_json_string(&w->json, span->name);
    app_json_key(&w->json, "plan");
    app_json_string(&w->json, span->plan);
    if (*span->product) {
        app_json_key(&w->json, "product");
        app_json_string(&w->json, span->product);
    }
    if (span->matrix) {
        app_json_key(&w->json, "arithmetic");
        app_json_string(&w->json, span->arithmetic);
        add_real(w, "inner", (double)span->inner);
    }
    add_real(w, "rows", (double)span->rows);
    add_real(w, "cols", (double)span->cols);
    add_real(w, "flop", span->flop);
    add_real(w, "bytes", span->bytes);
}

static void add_span(writer *w, const pi0_trace_span *span)
{
    static const char *const categories[] = {"stage", "layer", "op", "work"};
    const bool work = span->kind == PI0_SPAN_WORK;
    begin_event(w, app_trace_name(w->info, span).text, "X", work ? DEVICE : HOST, span->thread);
    app_json_key(&w->json, "cat");
    app_json_string(&w->json, categories[span->kind]);
    app_text_add(w->json.out, ", \"ts\": %.3f, \"dur\": %.3f", (double)(span->start_ns - w->origin_ns) * 1e-3,
                 (double)(span->end_ns - span->start_ns) * 1e-3);
    app_json_key(&w->json, "args");
    app_json_open(&w->json, '{');
    if (span->kind == PI0_SPAN_OP)
        add_op_arguments(w, span);
    if (work) {
        app_json_key(&w->json, "tasks");
        app_json_int(&w->json, span->tasks);
        add_real(w, "busy_us", (double)span->busy_ns * 1e-3);
        add_real(w, "prepare_us", (double)span->prepare_ns * 1e-3);
    }
    app_json_close(&w->json, '}');
    app_json_close(&w->json, '}');
}

void app_trace_json(app_text *out, const app_trace *trace, const pi0_info *info)
{
    writer w = {.json = {.out = out}, .info = info, .origin_ns = UINT64_MAX};
    for (size_t i = 0; i < trace->count; i++)
        if (trace->spans[i].start_ns < w.origin_ns)
            w.origin_ns = trace->spans[i].start_ns;
    app_json_open(&w.json, '{');
    app_json_key(&w.json, "displayTimeUnit");
    app_json_string(&w.json, "ms");
    app_json_key(&w.json, "otherData");
    app_json_open(&w.json, '{');
    app_json_key(&w.json, "version");
    app_json_string(&w.json, pi0_version());
    app_json_key(&w.json, "dropped_spans");
    app_json_unsigned(&w.json, trace->dropped);
    app_json_close(&w.json, '}');
    app_json_key(&w.json, "traceEvents");
    app_json_open(&w.json, '[');
    add_names(&w, trace);
    for (size_t i = 0; i < trace->count; i++)
        add_span(&w, &trace->spans[i]);
    app_text_add(out, "\n");
    app_json_close(&w.json, ']');
    app_json_close(&w.json, '}');
    app_text_add(out, "\n");
}
