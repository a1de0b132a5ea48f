#include "profile_sums.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

static double ms_of(const pi0_trace_span *span)
{
    return (double)(span->end_ns - span->start_ns) * 1e-6;
}

static bool is_stage(const pi0_trace_span *span, const char *name)
{
    return span->kind == PI0_SPAN_STAGE && strcmp(span->name, name) == 0;
}

/* ------------------------------------------------------------------ runs */

static int by_duration(const void *a, const void *b)
{
    const double x = ms_of(a), y = ms_of(b);
    return (x > y) - (x < y);
}

static pi0_status find_runs(app_profile *p, pi0_error *err)
{
    const app_trace *trace = p->trace;
    pi0_trace_span *runs = calloc(trace->count + 1, sizeof *runs);
    if (!runs)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the runs of a trace");
    for (size_t i = 0; i < trace->count; i++)
        if (is_stage(&trace->spans[i], "run")) {
            runs[p->runs++] = trace->spans[i];
            p->total_ms += ms_of(&trace->spans[i]);
        }
    qsort(runs, p->runs, sizeof *runs, by_duration);
    if (p->runs) {
        p->start_ns = runs[p->runs / 2].start_ns;
        p->end_ns = runs[p->runs / 2].end_ns;
    }
    free(runs);
    return p->runs ? PI0_OK : app_err(err, PI0_ERR_INTERNAL, "the trace holds no run");
}

/* ------------------------------------------------------------------ stages */

static void add_stage(app_profile *p, const char *name, double ms)
{
    size_t i = 0;
    while (i < p->n_stages && strcmp(p->stages[i].name, name) != 0)
        i++;
    if (i == APP_MAX_STAGES)
        return;
    if (i == p->n_stages) {
        snprintf(p->stages[i].name, sizeof p->stages[i].name, "%s", name);
        p->n_stages++;
    }
    p->stages[i].calls++;
    p->stages[i].ms += ms;
}

static pi0_status add_part(app_profile *p, const char *stage, const pi0_trace_span *span, pi0_error *err)
{
    size_t i = 0;
    while (i < p->n_parts && (p->parts[i].index != span->index || strcmp(p->parts[i].stage, stage) != 0))
        i++;
    if (i == p->capacity_parts) {
        const size_t capacity = p->capacity_parts ? 2 * p->capacity_parts : 64;
        app_part_sum *grown = realloc(p->parts, capacity * sizeof *grown);
        if (!grown)
            return app_err(err, PI0_ERR_MEMORY, "not enough memory for the layers of a profile");
        p->parts = grown;
        p->capacity_parts = capacity;
    }
    if (i == p->n_parts)
        p->parts[p->n_parts++] = (app_part_sum){.stage = stage, .index = span->index};
    p->parts[i].calls++;
    p->parts[i].ms += ms_of(span);
    return PI0_OK;
}

/* A layer's part of the plan lies in the inference or in a step; the state's pass through the expert is no step's. */
static bool is_layer_of_interest(const app_trace *trace, const pi0_trace_span *span)
{
    if (span->kind != PI0_SPAN_LAYER)
        return false;
    const pi0_trace_span *part = &trace->spans[span->parent], *around = &trace->spans[part->parent];
    return is_stage(around, "step") || strcmp(span->name, "expert") != 0;
}

/* In the order in which they begin. A prompt is tokenized while the other inputs are made. */
static pi0_status sum_stages(app_profile *p, pi0_error *err)
{
    double tokenize_ms = 0, covered_ms = 0;
    pi0_status status = PI0_OK;
    for (size_t i = 0; i < p->trace->count && status == PI0_OK; i++) {
        const pi0_trace_span *span = &p->trace->spans[i], *parent = span->parent >= 0 ? &p->trace->spans[span->parent] : NULL;
        const bool tokenize = is_stage(span, "tokenize");
        if (is_stage(span, "step"))
            status = add_part(p, "denoise", span, err);
        else if (is_layer_of_interest(p->trace, span))
            status = add_part(p, span->name, span, err);
        if (span->kind != PI0_SPAN_STAGE || is_stage(span, "run") || is_stage(span, "inference"))
            continue;
        if (parent && !is_stage(parent, "inference") && !tokenize)
            continue; /* within another */
        add_stage(p, app_trace_name(p->info, span).text, ms_of(span));
        tokenize_ms += tokenize ? ms_of(span) : 0;
        covered_ms += tokenize ? 0 : ms_of(span);
        p->cameras = p->cameras > span->index + 1 || !is_stage(span, "preprocess") ? p->cameras : span->index + 1;
    }
    for (size_t i = 0; i < p->n_stages; i++)
        if (strcmp(p->stages[i].name, "preprocess") == 0)
            p->stages[i].ms -= tokenize_ms;
    p->covered = covered_ms / p->total_ms;
    return status;
}

/* ------------------------------------------------------------------ ops */

/* Everything but the layer, the step and the number of live rows. */
bool app_same_op(const pi0_trace_span *a, const pi0_trace_span *b)
{
    return a->plan == b->plan && a->part == b->part && a->name == b->name && a->cols == b->cols && a->inner == b->inner &&
           strcmp(a->arithmetic, b->arithmetic) == 0 && strcmp(app_trace_role(a), app_trace_role(b)) == 0;
}

static int slowest_first(const void *a, const void *b)
{
    const double x = ((const app_op_sum *)a)->ms, y = ((const app_op_sum *)b)->ms;
    return (x < y) - (x > y);
}

/* busy_ms[i]: of all threads on span i. */
static pi0_status sum_ops(app_profile *p, const double *busy_ms, pi0_error *err)
{
    size_t capacity = 0;
    for (size_t i = 0; i < p->trace->count; i++) {
        const pi0_trace_span *span = &p->trace->spans[i];
        if (span->kind != PI0_SPAN_OP)
            continue;
        size_t at = 0;
        while (at < p->n_ops && !app_same_op(p->ops[at].first, span))
            at++;
        if (at == capacity) {
            capacity = capacity ? 2 * capacity : 64;
            app_op_sum *grown = realloc(p->ops, capacity * sizeof *grown);
            if (!grown)
                return app_err(err, PI0_ERR_MEMORY, "not enough memory for the table of ops");
            p->ops = grown;
        }
        if (at == p->n_ops)
            p->ops[p->n_ops++] = (app_op_sum){.first = span};
        p->ops[at].calls++;
        p->ops[at].ms += ms_of(span);
        p->ops[at].busy_ms += busy_ms[i];
        p->ops[at].flop += span->flop;
        p->ops[at].bytes += span->bytes;
    }
    if (p->n_ops)
        qsort(p->ops, p->n_ops, sizeof *p->ops, slowest_first);
    return PI0_OK;
}

/* ------------------------------------------------------------------ threads */

/* Of thread 0 the time within an op that is not at its tasks is waiting, unless the op has no tasks: then it does all of it itself.
 * busy_ms[i] becomes the time of all threads at op i. */
static void sum_threads(app_profile *p, double *busy_ms)
{
    const app_trace *trace = p->trace;
    const int threads = p->info->threads;
    double ops_ms = 0;
    for (size_t i = 0; i < trace->count; i++) {
        const pi0_trace_span *span = &trace->spans[i];
        if (span->kind != PI0_SPAN_WORK)
            continue;
        const int thread = span->thread < threads ? span->thread : 0;
        const double busy = (double)span->busy_ns * 1e-6, prepare = (double)span->prepare_ns * 1e-6;
        p->threads[thread].matrix += span->matrix ? busy - prepare : 0;
        p->threads[thread].vector += span->matrix ? prepare : busy;
        busy_ms[span->parent] += busy;
    }
    for (size_t i = 0; i < trace->count; i++) {
        const pi0_trace_span *span = &trace->spans[i];
        if (span->kind != PI0_SPAN_OP)
            continue;
        ops_ms += ms_of(span);
        if (busy_ms[i] > 0)
            continue;
        busy_ms[i] = ms_of(span);
        *(span->matrix ? &p->threads[0].matrix : &p->threads[0].vector) += ms_of(span);
    }
    p->threads[0].host = p->total_ms - ops_ms;
    for (int i = 0; i < threads; i++) {
        app_shares *t = &p->threads[i];
        t->idle = p->total_ms - t->matrix - t->vector - t->host;
        double *const parts[] = {&t->matrix, &t->vector, &t->host, &t->idle};
        double *const sums[] = {&p->shares.matrix, &p->shares.vector, &p->shares.host, &p->shares.idle};
        for (int k = 0; k < 4; k++) {
            *parts[k] /= p->total_ms;
            *sums[k] += *parts[k] / threads;
        }
    }
}

pi0_status app_profile_sum(app_profile *p, const app_trace *trace, const pi0_info *info, pi0_error *err)
{
    p->trace = trace;
    p->info = info;
    double *busy_ms = calloc(trace->count + 1, sizeof *busy_ms);
    p->threads = calloc((size_t)info->threads, sizeof *p->threads);
    pi0_status status = busy_ms && p->threads ? PI0_OK : app_err(err, PI0_ERR_MEMORY, "not enough memory for a profile");
    if (status == PI0_OK)
        status = find_runs(p, err);
    if (status == PI0_OK)
        status = sum_stages(p, err);
    if (status == PI0_OK) {
        sum_threads(p, busy_ms);
        status = sum_ops(p, busy_ms, err);
    }
    free(busy_ms);
    return status;
}

void app_profile_release(app_profile *p)
{
    free(p->parts);
    free(p->ops);
    free(p->threads);
    *p = (app_profile){0};
}

/* ------------------------------------------------------------------ the machine's best */

const char *const app_roof_forms[3] = {"f32", "bf16", "int8"};

/* The list goes from the worst instruction set to the best, and the best is what computes. */
void app_roof_read(app_roof *roof, const json_t *measured)
{
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(measured, "arithmetic_gflops"), i, item)
    {
        for (int form = 0; form < 3; form++)
            if (strcmp(app_roof_forms[form], json_string_value(json_object_get(item, "multiplies"))) == 0)
                roof->flop_per_s[form] = json_number_value(json_object_get(item, "all_threads")) * 1e9;
    }
    json_array_foreach(json_object_get(measured, "bandwidth_gbytes_per_s"), i, item)
    {
        if (strcmp("memory", json_string_value(json_object_get(item, "of"))) == 0)
            roof->bytes_per_s = json_number_value(json_object_get(item, "read_all_threads")) * 1e9;
    }
}

/* "int8 (w8a8)" computes in int8. */
pi0_status app_roof_raise(app_roof *roof, const pi0_model *model, pi0_error *err)
{
    double now = 0;
    const char *precision = pi0_model_info(model)->precision;
    pi0_status status = pi0_model_peak(model, &now, err);
    for (int form = 0; form < 3 && status == PI0_OK; form++)
        if (strncmp(app_roof_forms[form], precision, strlen(app_roof_forms[form])) == 0 && roof->flop_per_s[form] > 0 &&
            now > roof->flop_per_s[form])
            roof->flop_per_s[form] = now;
    return status;
}

double app_roof_flop_per_s(const app_roof *roof, const char *arithmetic)
{
    for (int form = 0; form < 3; form++)
        if (strcmp(app_roof_forms[form], arithmetic) == 0)
            return roof->flop_per_s[form];
    return 0;
}

const char *app_op_limit(const app_profile *p, const app_op_sum *op, double *share)
{
    const double seconds = op->ms * 1e-3, peak = app_roof_flop_per_s(&p->roof, op->first->arithmetic);
    const double arithmetic = peak > 0 && seconds > 0 ? op->flop / seconds / peak : 0;
    const double memory = p->roof.bytes_per_s > 0 && seconds > 0 ? op->bytes / seconds / p->roof.bytes_per_s : 0;
    *share = arithmetic > memory ? arithmetic : memory;
    return *share <= 0 ? NULL : arithmetic > memory ? "arithmetic" : "memory";
}
