#include "bench_report.h"

#include <stdio.h>

#include "table.h"

static const char *const stage_names[APP_STAGES] = {"preprocess", "tokenize", "vision", "prefix", "denoise", "post", "total"};

enum { QUANTILES = 5 };

static const struct {
    const char *name;
    int percent;
} quantiles[QUANTILES] = {{"min", 0}, {"p50", 50}, {"p90", 90}, {"p99", 99}, {"max", 100}};

/* By nearest rank: a run that there was, none in between. */
static double quantile_ms(const app_measured *m, app_stage stage, int percent)
{
    size_t rank = (m->runs * (size_t)percent + 99) / 100;
    return m->ms[stage][rank ? rank - 1 : 0];
}

double app_median_ms(const app_measured *m, app_stage stage)
{
    return quantile_ms(m, stage, 50);
}

/* Operations of a whole call. */
static double stage_flop(const app_measured *m, app_stage stage)
{
    const pi0_flop *f = &m->flop;
    double one = stage == APP_VISION    ? f->vision
                 : stage == APP_PREFIX  ? f->prefix
                 : stage == APP_DENOISE ? f->denoise
                 : stage == APP_TOTAL   ? f->vision + f->prefix + f->denoise
                                        : 0;
    return one * m->batch;
}

static double stage_flop_per_s(const app_measured *m, app_stage stage)
{
    return stage_flop(m, stage) / (quantile_ms(m, stage, 50) * 1e-3);
}

static double needed_flop(const app_measured *m)
{
    return m->flop.vision + m->flop.prefix + m->flop.denoise;
}

double app_fraction_of_peak(const app_measured *m)
{
    return stage_flop_per_s(m, APP_TOTAL) / m->flop_per_s;
}

/* ------------------------------------------------------------------ json */

static json_t *latency_json(const app_measured *m)
{
    json_t *list = json_object();
    for (int stage = 0; stage < APP_STAGES; stage++) {
        json_t *row = json_object();
        for (int i = 0; i < QUANTILES; i++)
            json_object_set_new(row, quantiles[i].name, json_real(quantile_ms(m, stage, quantiles[i].percent)));
        json_object_set_new(list, stage_names[stage], row);
    }
    return list;
}

json_t *app_memory_json(const pi0_memory *p, uint64_t resident_bytes)
{
    json_t *object = json_object();
    for (size_t i = 0; pi0_memory_line_at(p, i).name; i++)
        json_object_set_new(object, pi0_memory_line_at(p, i).name, json_integer((json_int_t)pi0_memory_line_at(p, i).bytes));
    json_object_set_new(object, "resident_before", json_integer((json_int_t)p->resident_before));
    json_object_set_new(object, "peak_resident", resident_bytes ? json_integer((json_int_t)resident_bytes) : json_null());
    return object;
}

json_t *app_bench_json(const app_measured *m)
{
    const pi0_info *info = m->info;
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:f,s:f,s:f,s:f,s:o,s:o,s:O}", "model", info->model, "layout",
                     info->layout, "device", info->device, "precision", info->precision, "instruction_set", info->isa, "threads",
                     info->threads, "cameras", m->cameras, "prompt_tokens", m->tokens, "steps", m->steps, "horizon", info->horizon,
                     "window", info->window, "batch", m->batch, "runs", (json_int_t)m->runs, "needed_tflop", needed_flop(m) * 1e-12,
                     "peak_gflops", m->flop_per_s * 1e-9, "gflops", stage_flop_per_s(m, APP_TOTAL) * 1e-9, "fraction_of_peak",
                     app_fraction_of_peak(m), "latency_ms", latency_json(m), "memory", app_memory_json(&m->plan, m->resident_bytes),
                     "machine", m->machine);
}

/* ------------------------------------------------------------------ page and markdown */

enum { COLUMNS = 1 + QUANTILES + 3, CELL = 24 };

static const char *const headings[COLUMNS] = {"ms", "min", "p50", "p90", "p99", "max", "GFLOP", "GFLOP/s", "of peak"};

static void fill_row(const app_measured *m, app_stage stage, char cells[COLUMNS][CELL])
{
    snprintf(cells[0], CELL, "%s", stage_names[stage]);
    for (int i = 0; i < QUANTILES; i++)
        snprintf(cells[1 + i], CELL, "%.2f", quantile_ms(m, stage, quantiles[i].percent));
    const double flop = stage_flop(m, stage), rate = stage_flop_per_s(m, stage);
    const char *const formats[] = {"%.4g", "%.1f", "%.1f%%"};
    const double values[] = {flop * 1e-9, rate * 1e-9, 100 * rate / m->flop_per_s};
    for (int i = 0; i < 3; i++)
        snprintf(cells[1 + QUANTILES + i], CELL, flop > 0 ? formats[i] : "", values[i]);
}

static void add_case(app_text *out, const app_measured *m)
{
    const pi0_info *info = m->info;
    app_text_add(out, "%s, %s on %s (%s, %d threads): %d cameras, %d tokens, %d steps, horizon %d, batch %d; %zu runs", info->model,
                 info->precision, info->device, info->isa, info->threads, m->cameras, m->tokens, m->steps, info->horizon, m->batch,
                 m->runs);
    if (info->window)
        app_text_add(out, "; an action sees those less than %d away", info->window);
}

void app_bench_machine(app_text *out, const json_t *machine, const char *item)
{
    app_text_add(out, "%smachine: %s, %lld cores, %s\n", item, json_string_value(json_object_get(machine, "processor")),
                 (long long)json_integer_value(json_object_get(machine, "physical_cores")),
                 json_string_value(json_object_get(machine, "memory")));
}

static void add_size(app_text *out, const char *before, uint64_t bytes)
{
    app_text_add(out, "%s", before);
    app_text_size(out, (double)bytes);
}

static void add_memory(app_text *out, const app_measured *m, const char *item)
{
    const pi0_memory *p = &m->plan;
    add_size(out, item, p->weights_mapped + p->weights_owned);
    add_size(out, " of weights, ", p->weights_mapped);
    add_size(out, " of them mapped; beside them ", p->beside_weights);
    add_size(out, ": K/V cache ", p->kv_cache);
    add_size(out, ", activations ", p->activations);
    add_size(out, ", workspace ", p->workspace);
    add_size(out, ", tables and tokenizer ", p->host);
    add_size(out, ", each session ", p->session);
    app_text_add(out, "\n");
}

static void add_closing(app_text *out, const app_measured *m, const char *item)
{
    app_text_add(out, "%sneeds %.4g TFLOP an inference; the machine at best does %.1f GFLOP/s, measured between the runs\n", item,
                 needed_flop(m) * 1e-12, m->flop_per_s * 1e-9);
    app_text_add(out, "%smemory: ", item);
    app_text_size(out, (double)m->plan.total);
    app_text_add(out, " planned");
    if (m->resident_bytes) {
        app_text_add(out, ", ");
        app_text_size(out, (double)m->resident_bytes);
        app_text_add(out, " resident at most");
    }
    app_text_add(out, "\n");
    add_memory(out, m, item);
    app_bench_machine(out, m->machine, item);
}

static void add_table(app_text *out, const app_measured *m, bool markdown)
{
    app_table *table = app_table_open("lrrrrrrrr");
    for (int i = 0; i < COLUMNS; i++)
        app_table_cell(table, "%s", headings[i]);
    for (int stage = 0; stage < APP_STAGES; stage++) {
        char cells[COLUMNS][CELL];
        fill_row(m, stage, cells);
        for (int i = 0; i < COLUMNS; i++)
            app_table_cell(table, "%s", cells[i]);
    }
    app_table_finish(&table, out, markdown);
}

void app_bench_page(app_text *out, const app_measured *m, bool markdown)
{
    add_case(out, m);
    app_text_add(out, "\n\n");
    add_table(out, m, markdown);
    app_text_add(out, "\n");
    add_closing(out, m, markdown ? "* " : "");
}
