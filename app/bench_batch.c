#include "bench_batch.h"

#include <stdio.h>
#include <string.h>

#include "bench_report.h"
#include "table.h"

/* One row: the case opened with this batch, and run a few times. Memory beyond the limit is part of the answer, not an error. */
static pi0_status measure_row(app_batch_curve *curve, app_report *report, const char *path, const pi0_options *options,
                              app_case_settings settings, int batch, pi0_error *err)
{
    app_case c = {0};
    app_measured result = {0};
    app_batch_row *row = &curve->rows[curve->n++];
    *row = (app_batch_row){.batch = settings.batch = batch};
    pi0_status status = app_case_open(&c, path, options, &settings, err);
    if (status == PI0_ERR_MEMORY && curve->memory_limit && batch > 1) {
        pi0_error_clear(err);
        row->beyond = "memory";
        status = PI0_OK;
        goto done;
    }
    if (status == PI0_OK)
        status = app_case_warm(&c, &result, err);
    if (status == PI0_OK)
        status = app_case_measure(&c, report, result.first_ms < 5e3 ? 3 : 1, &result, err);
    if (status == PI0_OK) {
        row->latency_ms = app_median_ms(&result, APP_TOTAL);
        row->share_ms = row->latency_ms / batch;
        row->planned = result.plan.total;
        if (curve->latency_limit_ms > 0 && row->latency_ms > curve->latency_limit_ms)
            row->beyond = "latency";
        app_note(report, "batch %d: %.1f ms, %.1f ms for each robot", batch, row->latency_ms, row->share_ms);
    }
done:
    app_measured_release(&result);
    app_case_close(&c);
    return status;
}

static pi0_status too_slow(const app_batch_row *row, double limit_ms, pi0_error *err)
{
    app_err(err, PI0_ERR_DEVICE, "not even one robot is served within the latency limit");
    app_err_field(err->where, "--latency-limit");
    app_err_field(err->expected, "at most %.1f ms", limit_ms);
    app_err_field(err->got, "%.1f ms", row->latency_ms);
    app_err_field(err->hint, "fewer --steps, less --precision, or a larger limit");
    return err->status;
}

/* Of the batches that are left between one that is within the limits and one that is not. */
static pi0_status search_between(app_batch_curve *curve, app_report *report, const char *path, const pi0_options *options,
                                 const app_case_settings *settings, int within, int beyond, double *share, pi0_error *err)
{
    while (beyond - within > 1) {
        const int batch = (within + beyond) / 2;
        pi0_status status = measure_row(curve, report, path, options, *settings, batch, err);
        if (status != PI0_OK)
            return status;
        const app_batch_row *row = &curve->rows[curve->n - 1];
        if (row->beyond) {
            beyond = batch;
            continue;
        }
        within = batch;
        if (row->share_ms < *share) {
            *share = row->share_ms;
            curve->best = batch;
        }
    }
    return PI0_OK;
}

pi0_status app_batch_choose(app_batch_curve *curve, app_report *report, const char *path, const pi0_options *options,
                            app_case_settings *settings, pi0_error *err)
{
    double share = 0;
    pi0_status status = PI0_OK;
    curve->best = 1;
    curve->ended_by = "largest";
    for (int batch = 1; batch <= APP_MAX_BATCH && status == PI0_OK; batch *= 2) {
        status = measure_row(curve, report, path, options, *settings, batch, err);
        const app_batch_row *row = &curve->rows[curve->n - 1];
        if (status != PI0_OK)
            break;
        if (row->beyond && batch == 1)
            return too_slow(row, curve->latency_limit_ms, err);
        if (row->beyond) {
            curve->ended_by = row->beyond;
            status = search_between(curve, report, path, options, settings, batch / 2, batch, &share, err);
            break;
        }
        if (batch > 1 && row->share_ms > 0.95 * share) {
            curve->ended_by = "share";
            break;
        }
        share = row->share_ms;
        curve->best = batch;
    }
    settings->batch = curve->best;
    return status;
}

/* ------------------------------------------------------------------ what came of it */

json_t *app_batch_json(const app_batch_curve *curve)
{
    json_t *rows = json_array();
    for (int i = 0; i < curve->n; i++) {
        const app_batch_row *row = &curve->rows[i];
        json_array_append_new(rows, json_pack("{s:i,s:o,s:o,s:o,s:o}", "batch", row->batch, "latency_ms",
                                              row->latency_ms > 0 ? json_real(row->latency_ms) : json_null(), "per_robot_ms",
                                              row->share_ms > 0 ? json_real(row->share_ms) : json_null(), "planned_bytes",
                                              row->planned ? json_integer((json_int_t)row->planned) : json_null(), "beyond",
                                              row->beyond ? json_string(row->beyond) : json_null()));
    }
    return json_pack("{s:i,s:s,s:o,s:o,s:o}", "best", curve->best, "ended_by", curve->ended_by, "memory_limit_bytes",
                     curve->memory_limit ? json_integer((json_int_t)curve->memory_limit) : json_null(), "latency_limit_ms",
                     curve->latency_limit_ms > 0 ? json_real(curve->latency_limit_ms) : json_null(), "curve", rows);
}

static void add_known(app_table *table, bool known, int digits, double value)
{
    if (known)
        app_table_cell(table, "%.*f", digits, value);
    else
        app_table_cell(table, "%s", "");
}

static void add_row(app_table *table, const app_batch_curve *curve, const app_batch_row *row)
{
    app_text planned = {0};
    if (row->planned)
        app_text_size(&planned, (double)row->planned);
    app_table_cell(table, "%d", row->batch);
    add_known(table, row->latency_ms > 0, 1, row->latency_ms);
    add_known(table, row->share_ms > 0, 1, row->share_ms);
    add_known(table, row->share_ms > 0, 2, row->share_ms / curve->rows[0].share_ms);
    app_table_cell(table, "%s", planned.data ? planned.data : "");
    app_table_cell(table, "%s%s",
                   row->beyond                 ? "beyond the limit of "
                   : row->batch == curve->best ? "best"
                                               : "",
                   row->beyond ? row->beyond : "");
    app_text_release(&planned);
}

void app_batch_page(app_text *out, const app_batch_curve *curve, bool markdown)
{
    static const char *const headings[] = {"batch", "ms", "ms a robot", "of alone", "planned", ""};
    app_table *table = app_table_open("rrrrrl");
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        app_table_cell(table, "%s", headings[i]);
    for (int batch = 1; batch <= APP_MAX_BATCH; batch++) /* in their own order */
        for (int i = 0; i < curve->n; i++)
            if (curve->rows[i].batch == batch)
                add_row(table, curve, &curve->rows[i]);
    app_table_finish(&table, out, markdown);
    app_text_add(out, "\n");
}
