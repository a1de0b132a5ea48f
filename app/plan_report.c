#include "plan_report.h"

#include <string.h>

#include "table.h"

static const char *const plan_names[] = {"context", "schedule", "denoise"};

/* ------------------------------------------------------------------ what the library says */

/* Where the recipe is not known there is no plan, and the problems say why. */
static pi0_status no_plan(const json_t *page, const char *path, pi0_error *err)
{
    const json_t *problem = json_array_get(json_object_get(page, "problems"), 0);
    app_err(err, PI0_ERR_MODEL, "no plan can be made of this model");
    app_err_field(err->where, "%.300s", path);
    app_err_field(err->got, "%.400s", problem ? json_string_value(problem) : "no recipe");
    app_err_field(err->hint, "pi0 inspect lists all that is missing; an openpi directory needs --config");
    return err->status;
}

static void note_worst(json_t *report, const json_t *plans)
{
    for (size_t i = 0; i < sizeof plan_names / sizeof *plan_names; i++) {
        const double ratio = json_real_value(json_object_get(json_object_get(plans, plan_names[i]), "over_live"));
        if (ratio > json_real_value(json_object_get(report, "worst_over_live")))
            json_object_set_new(report, "worst_over_live", json_real(ratio));
    }
}

static pi0_status add_batch(json_t *report, const char *path, const pi0_options *options, pi0_error *err)
{
    char *text = NULL;
    pi0_status status = pi0_inspect(path, options, &text, err);
    if (status != PI0_OK)
        return status;
    json_t *page = json_loads(text, 0, NULL), *row = json_object();
    pi0_text_free(&text);
    const json_t *plans = json_object_get(page, "plans");
    if (page && !plans) {
        status = no_plan(page, path, err);
    } else {
        json_object_set(report, "model", json_object_get(page, "model"));
        json_object_set(report, "precision", json_object_get(json_object_get(page, "compute"), "precision"));
        note_worst(report, plans);
        json_object_set_new(row, "batch", json_integer(options->max_batch));
        for (size_t i = 0; i < sizeof plan_names / sizeof *plan_names; i++)
            if (json_object_get(plans, plan_names[i]))
                json_object_set(row, plan_names[i], json_object_get(plans, plan_names[i]));
        json_object_set(row, "memory", json_object_get(page, "memory"));
        if (!page || json_array_append(json_object_get(report, "batches"), row) != 0)
            status = app_err(err, PI0_ERR_MEMORY, "not enough memory for the report");
    }
    json_decref(page);
    json_decref(row);
    return status;
}

pi0_status app_plan_report(const char *path, const pi0_options *options, int first, int last, json_t **out, pi0_error *err)
{
    pi0_options chosen = *options;
    pi0_status status = PI0_OK;
    *out = json_pack("{s:n,s:n,s:f,s:[]}", "model", "precision", "worst_over_live", 0.0, "batches");
    if (!*out)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the report");
    chosen.log = NULL; /* once for each batch would be too often */
    for (int batch = first; batch <= last && status == PI0_OK; batch++) {
        chosen.max_batch = batch;
        status = add_batch(*out, path, &chosen, err);
    }
    if (status == PI0_OK)
        return PI0_OK;
    json_decref(*out);
    *out = NULL;
    return status;
}

/* ------------------------------------------------------------------ page */

static void size_cell(app_table *table, const json_t *bytes)
{
    app_text text = {0};
    app_text_size(&text, (double)json_integer_value(bytes));
    app_table_cell(table, "%s", text.data ? text.data : "");
    app_text_release(&text);
}

static void add_plans(app_text *out, const json_t *batches, bool markdown)
{
    static const char *const headings[] = {"batch", "plan", "ops", "values", "alive at most", "arena", "arena / alive"};
    app_table *table = app_table_open("rlrrrrr");
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        app_table_cell(table, "%s", headings[i]);
    for (size_t b = 0; b < json_array_size(batches); b++)
        for (size_t i = 0; i < sizeof plan_names / sizeof *plan_names; i++) {
            const json_t *row = json_array_get(batches, b), *plan = json_object_get(row, plan_names[i]);
            if (!plan)
                continue;
            app_table_cell(table, "%lld", (long long)json_integer_value(json_object_get(row, "batch")));
            app_table_cell(table, "%s", plan_names[i]);
            app_table_cell(table, "%lld", (long long)json_integer_value(json_object_get(plan, "ops")));
            app_table_cell(table, "%lld", (long long)json_integer_value(json_object_get(plan, "arena_values")));
            size_cell(table, json_object_get(plan, "live_bytes"));
            size_cell(table, json_object_get(plan, "arena_bytes"));
            app_table_cell(table, "%.3f", json_real_value(json_object_get(plan, "over_live")));
        }
    app_table_finish(&table, out, markdown);
}

static void add_memory(app_text *out, const json_t *batches, bool markdown)
{
    static const char *const lines[] = {"weights_mapped", "weights_owned", "kv_cache",       "activations", "workspace",
                                        "host",           "session",       "beside_weights", "total"};
    app_table *table = app_table_open("rrrrrrrrrr");
    app_table_cell(table, "batch");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        app_table_cell(table, "%s", lines[i]);
    for (size_t b = 0; b < json_array_size(batches); b++) {
        const json_t *row = json_array_get(batches, b);
        app_table_cell(table, "%lld", (long long)json_integer_value(json_object_get(row, "batch")));
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            size_cell(table, json_object_get(json_object_get(row, "memory"), lines[i]));
    }
    app_table_finish(&table, out, markdown);
}

void app_plan_report_page(app_text *out, const json_t *report, bool markdown)
{
    const json_t *batches = json_object_get(report, "batches");
    app_text_add(out, "%s, %s: memory as it is planned, before a weight is read\n\n", json_string_value(json_object_get(report, "model")),
                 json_string_value(json_object_get(report, "precision")));
    add_plans(out, batches, markdown);
    app_text_add(out, "\nno arena takes more than %.3f times what is alive in it at once\n\n",
                 json_real_value(json_object_get(report, "worst_over_live")));
    add_memory(out, batches, markdown);
}
