#include "profile_report.h"

#include <stdio.h>
#include <string.h>

#include "bench_report.h"
#include "describe.h"
#include "json_out.h"
#include "table.h"

extern const char app_profile_template[]; /* app/profile.html, made by cmake/embed.cmake */

static double per_run(const app_profile *p, double ms)
{
    return ms / (double)p->runs;
}

/* ------------------------------------------------------------------ page */

enum { OPS_SHOWN = 24 };

static void add_stages(app_text *out, const app_profile *p)
{
    app_table *table = app_table_open("lrr");
    app_table_cell(table, "stage");
    app_table_cell(table, "ms");
    app_table_cell(table, "share");
    for (size_t i = 0; i < p->n_stages; i++) {
        const app_stage_sum *s = &p->stages[i];
        app_table_cell(table, "%s", s->name);
        app_table_cell(table, "%.2f", per_run(p, s->ms));
        app_table_cell(table, "%.1f%%", 100 * s->ms / p->total_ms);
    }
    app_table_cell(table, "between them");
    app_table_cell(table, "%.2f", per_run(p, p->total_ms * (1 - p->covered)));
    app_table_cell(table, "%.1f%%", 100 * (1 - p->covered));
    app_table_cell(table, "total");
    app_table_cell(table, "%.2f", per_run(p, p->total_ms));
    app_table_cell(table, "100.0%%");
    app_table_add_to(table, out, 0, 0);
    app_table_close(&table);
}

/* One line for the layers of a tower, or for the steps. */
static void add_parts(app_text *out, const app_profile *p, const char *stage, const char *title)
{
    app_text line = {0};
    app_text_add(&line, "%s", title);
    for (size_t i = 0; i < p->n_parts; i++)
        if (strcmp(p->parts[i].stage, stage) == 0)
            app_text_add(&line, " %.2f", per_run(p, p->parts[i].ms));
    out->failed |= line.failed;
    app_text_wrap(out, line.data ? line.data : "", 2, 110);
    app_text_add(out, "\n");
    app_text_release(&line);
}

static void add_shares(app_text *out, const app_profile *p)
{
    app_table *table = app_table_open("lrrrr");
    static const char *const headings[] = {"threads", "matrix", "vector", "host", "idle"};
    for (int i = 0; i < 5; i++)
        app_table_cell(table, "%s", headings[i]);
    for (int i = 0; i <= p->info->threads; i++) {
        const app_shares *s = i ? &p->threads[i - 1] : &p->shares;
        if (i)
            app_table_cell(table, i == 1 ? "  %d, which calls" : "  %d", i - 1);
        else
            app_table_cell(table, "all %d", p->info->threads);
        const double values[] = {s->matrix, s->vector, s->host, s->idle};
        for (int k = 0; k < 4; k++)
            app_table_cell(table, "%.1f%%", 100 * values[k]);
    }
    app_table_add_to(table, out, 0, 0);
    app_table_close(&table);
}

static void add_rate(app_table *table, double amount, double ms)
{
    if (amount > 0)
        app_table_cell(table, "%.1f", amount / ms * 1e-6);
    else
        app_table_cell(table, "%s", "");
}

static void add_ops(app_text *out, const app_profile *p)
{
    static const char *const headings[] = {"op", "where", "as", "calls", "ms", "share", "GFLOP/s", "GB/s", "of peak", ""};
    app_table *table = app_table_open("lllrrrrrrl");
    double rest_ms = 0;
    for (int i = 0; i < 10; i++)
        app_table_cell(table, "%s", headings[i]);
    for (size_t i = 0; i < p->n_ops; i++) {
        const app_op_sum *op = &p->ops[i];
        double share;
        const char *limit = app_op_limit(p, op, &share);
        if (i >= OPS_SHOWN) {
            rest_ms += op->ms;
            continue;
        }
        app_table_cell(table, "%s", app_trace_role(op->first));
        app_table_cell(table, "%s %s", op->first->plan, op->first->part);
        app_table_cell(table, "%s", op->first->matrix ? op->first->arithmetic : "vector");
        app_table_cell(table, "%zu", op->calls / p->runs);
        app_table_cell(table, "%.2f", per_run(p, op->ms));
        app_table_cell(table, "%.1f%%", 100 * op->ms / p->total_ms);
        add_rate(table, op->flop, op->ms);
        add_rate(table, op->bytes, op->ms);
        if (limit)
            app_table_cell(table, "%.0f%%", 100 * share);
        else
            app_table_cell(table, "%s", "");
        app_table_cell(table, "%s", limit ? limit : "");
    }
    app_table_add_to(table, out, 0, 0);
    app_table_close(&table);
    if (p->n_ops > OPS_SHOWN)
        app_text_add(out, "and %zu more, %.2f ms together\n", p->n_ops - OPS_SHOWN, per_run(p, rest_ms));
}

static void add_roof(app_text *out, const app_profile *p)
{
    app_text_add(out, "\nthis machine at best:");
    for (int form = 0; form < 3; form++)
        if (p->roof.flop_per_s[form] > 0)
            app_text_add(out, " %s %.1f GFLOP/s,", app_roof_forms[form], p->roof.flop_per_s[form] * 1e-9);
    app_text_add(out, " memory %.1f GB/s, measured on %d threads\n", p->roof.bytes_per_s * 1e-9, p->info->threads);
}

void app_profile_page(app_text *out, const app_profile *p, const app_profile_context *c)
{
    const pi0_info *info = p->info;
    app_text_add(out, "%s, %s on %s (%s, %d threads): ", info->model, info->precision, info->device, info->isa, info->threads);
    if (p->cameras)
        app_text_add(out, "%d cameras, ", p->cameras);
    app_text_add(out, "%d tokens, %d steps, horizon %d; %zu runs\n\n", c->tokens, c->steps, info->horizon, p->runs);
    add_stages(out, p);
    app_text_add(out, "\n");
    add_parts(out, p, "vision", "vision by layer, all cameras together:");
    add_parts(out, p, "prefix", "prefix by layer:");
    add_parts(out, p, "denoise", "denoise by step:");
    app_text_add(out, "\n");
    add_shares(out, p);
    app_text_add(out, "\n");
    add_ops(out, p);
    add_roof(out, p);
    app_text_add(out, "recording: the fastest run %.2f ms with it, %.2f ms without (%+.1f%%)\n", c->traced_ms, c->untraced_ms,
                 100 * (c->traced_ms / c->untraced_ms - 1));
    if (p->trace->dropped)
        app_text_add(out, "%zu spans did not fit and are missing above\n", p->trace->dropped);
}

/* ------------------------------------------------------------------ json */

static json_t *shares_json(const app_shares *s)
{
    return json_pack("{s:f,s:f,s:f,s:f}", "matrix", s->matrix, "vector", s->vector, "host", s->host, "idle", s->idle);
}

static json_t *stages_json(const app_profile *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_stages; i++) {
        const app_stage_sum *s = &p->stages[i];
        json_array_append_new(list, json_pack("{s:s,s:f,s:f,s:f}", "name", s->name, "calls", (double)s->calls / (double)p->runs, "ms",
                                              per_run(p, s->ms), "share", s->ms / p->total_ms));
    }
    return list;
}

static json_t *parts_json(const app_profile *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_parts; i++)
        json_array_append_new(list, json_pack("{s:s,s:i,s:f,s:f}", "stage", p->parts[i].stage, "index", p->parts[i].index, "calls",
                                              (double)p->parts[i].calls / (double)p->runs, "ms", per_run(p, p->parts[i].ms)));
    return list;
}

static json_t *ops_json(const app_profile *p)
{
    json_t *list = json_array();
    for (size_t i = 0; i < p->n_ops; i++) {
        const app_op_sum *op = &p->ops[i];
        double share;
        const char *limit = app_op_limit(p, op, &share);
        json_array_append_new(list, json_pack("{s:s,s:s,s:s,s:s,s:b,s:s,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:s?,s:i,s:I,s:I}", "role",
                                              app_trace_role(op->first), "op", op->first->name, "plan", op->first->plan, "part",
                                              op->first->part, "matrix", op->first->matrix, "arithmetic", op->first->arithmetic, "calls",
                                              (double)op->calls / (double)p->runs, "ms", per_run(p, op->ms), "share", op->ms / p->total_ms,
                                              "busy", op->busy_ms / op->ms / p->info->threads, "flop", op->flop / (double)p->runs, "bytes",
                                              op->bytes / (double)p->runs, "gflops", op->flop / op->ms * 1e-6, "fraction_of_peak", share,
                                              "limit", limit, "rows", (int)op->first->rows, "cols", (json_int_t)op->first->cols, "inner",
                                              (json_int_t)op->first->inner));
    }
    return list;
}

static json_t *peaks_json(const app_roof *roof)
{
    json_t *peaks = json_object();
    for (int form = 0; form < 3; form++)
        if (roof->flop_per_s[form] > 0)
            json_object_set_new(peaks, app_roof_forms[form], json_real(roof->flop_per_s[form] * 1e-9));
    return json_pack("{s:o,s:f}", "gflops", peaks, "memory_gbytes_per_s", roof->bytes_per_s * 1e-9);
}

json_t *app_profile_json(const app_profile *p, const app_profile_context *c)
{
    const pi0_info *info = p->info;
    json_t *threads = json_array();
    for (int i = 0; i < info->threads; i++)
        json_array_append_new(threads, shares_json(&p->threads[i]));
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:I,s:f,s:f,s:f,s:f,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:O}", "version",
                     pi0_version(), "title", c->title, "model", info->model, "layout", info->layout, "device", info->device, "precision",
                     info->precision, "instruction_set", info->isa, "threads", info->threads, "cameras", p->cameras, "prompt_tokens",
                     c->tokens, "steps", c->steps, "horizon", info->horizon, "runs", (json_int_t)p->runs, "total_ms",
                     per_run(p, p->total_ms), "covered", p->covered, "traced_ms", c->traced_ms, "untraced_ms", c->untraced_ms,
                     "dropped_spans", (json_int_t)p->trace->dropped, "stages", stages_json(p), "parts", parts_json(p), "shares",
                     shares_json(&p->shares), "thread_shares", threads, "ops", ops_json(p), "peaks", peaks_json(&p->roof), "memory",
                     app_memory_json(&c->memory, c->memory.peak_resident), "machine", c->machine);
}

/* ------------------------------------------------------------------ html */

/* The op of the table that a span belongs to, or -1. */
static int row_of(const app_profile *p, const pi0_trace_span *span)
{
    for (size_t i = 0; i < p->n_ops && (span->kind == PI0_SPAN_OP || span->kind == PI0_SPAN_WORK); i++)
        if (app_same_op(p->ops[i].first, span))
            return (int)i;
    return -1;
}

/* [kind, thread, start in us, duration in us, row of the table of ops, op of its plan, name or busy time in us] */
static void add_timeline(app_text *out, const app_profile *p)
{
    app_json json = {.out = out};
    app_json_open(&json, '[');
    for (size_t i = 0; i < p->trace->count; i++) {
        const pi0_trace_span *s = &p->trace->spans[i];
        if (s->start_ns < p->start_ns || s->end_ns > p->end_ns || strcmp(s->name, "run") == 0)
            continue;
        app_json_open(&json, '[');
        app_json_int(&json, s->kind);
        app_json_int(&json, s->thread < p->info->threads ? s->thread : 0);
        app_text_add(out, ",%.1f,%.1f,%d,%d", (double)(s->start_ns - p->start_ns) * 1e-3, (double)(s->end_ns - s->start_ns) * 1e-3,
                     row_of(p, s), s->op);
        if (s->kind == PI0_SPAN_WORK) {
            app_text_add(out, ",%.1f", (double)s->busy_ns * 1e-3);
        } else if (s->kind != PI0_SPAN_OP) {
            app_json_string(&json, app_trace_name(p->info, s).text);
        }
        app_json_close(&json, ']');
    }
    app_json_close(&json, ']');
}

/* A text of JSON inside of a page: no tag may end it. */
static void add_for_page(app_text *out, const char *json)
{
    for (const char *at = json; *at;) {
        const size_t plain = strcspn(at, "<");
        app_text_bytes(out, at, plain);
        at += plain;
        if (*at == '<') {
            app_text_add(out, "\\u003c");
            at++;
        }
    }
}

void app_profile_html(app_text *out, const app_profile *p, const app_profile_context *c)
{
    static const char mark[] = "@DATA@";
    const char *at = strstr(app_profile_template, mark);
    app_text summary = {0};
    app_describe_json(&summary, app_profile_json(p, c));
    app_text timeline = {0};
    add_timeline(&timeline, p);
    app_text_bytes(out, app_profile_template, (size_t)(at - app_profile_template));
    app_text_add(out, "{\"profile\":");
    add_for_page(out, summary.data ? summary.data : "");
    app_text_add(out, ",\"map\":");
    add_for_page(out, c->memory_map);
    app_text_add(out, ",\"run_ms\":%.6f,\"timeline\":", (double)(p->end_ns - p->start_ns) * 1e-6);
    add_for_page(out, timeline.data ? timeline.data : "");
    app_text_add(out, "}%s", at + strlen(mark));
    out->failed |= summary.failed || timeline.failed;
    app_text_release(&timeline);
    app_text_release(&summary);
}
