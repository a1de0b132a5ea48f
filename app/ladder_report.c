#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_report.h"
#include "ladder.h"
#include "table.h"

/* What the founding work lists and no rung switches, with the reason. */
static const struct {
    const char *name, *reason;
} without_rung[] = {
    {"layout", "weights and pictures are brought into their kernels' order in every rung: there is no other path to switch to"},
    {"window", "attention within a window (--window) changes what a trained model computes, and pi0 and pi0.5 have none"},
};

enum { WITHOUT_RUNG = sizeof without_rung / sizeof *without_rung };

static double total_ms(const app_rung *rung)
{
    return app_median_ms(&rung->measured, APP_TOTAL);
}

/* How many times as fast as the other. */
static double gain(const app_ladder *ladder, const app_rung *rung, int other)
{
    return total_ms(&ladder->rungs[other]) / total_ms(rung);
}

/* ------------------------------------------------------------------ json */

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

static json_t *rung_json(const app_ladder *ladder, const app_rung *rung)
{
    static const char *const kinds[] = {"reference", "pass", "every pass", "precision", "without"};
    const app_measured *m = &rung->measured;
    json_t *latency = json_pack("{s:f,s:f,s:f,s:f}", "total", total_ms(rung), "vision", app_median_ms(m, APP_VISION), "prefix",
                                app_median_ms(m, APP_PREFIX), "denoise", app_median_ms(m, APP_DENOISE));
    return json_pack("{s:s,s:s,s:s,s:o,s:s,s:i,s:o,s:I,s:o,s:o,s:f,s:f,s:f,s:f,s:I,s:o,s:I,s:f,s:f}", "rung", rung->name, "kind",
                     kinds[rung->kind], "does", rung->summary, "founding_work", text_or_null(rung->founding), "precision", rung->computed,
                     "batch", rung->batch, "disabled", text_or_null(rung->disable.data), "runs", (json_int_t)m->runs, "latency_ms", latency,
                     "speedup_previous",
                     rung->before >= 0 && rung->kind != APP_RUNG_WITHOUT ? json_real(gain(ladder, rung, rung->before)) : json_null(),
                     "speedup_first", gain(ladder, rung, rung->first), "time_against_top", 1 / gain(ladder, rung, rung->top), "peak_gflops",
                     m->flop_per_s * 1e-9, "fraction_of_peak", app_fraction_of_peak(m), "planned_bytes", (json_int_t)m->plan.total,
                     "peak_resident_bytes", m->resident_bytes ? json_integer((json_int_t)m->resident_bytes) : json_null(), "allocations",
                     (json_int_t)m->allocations, "largest_difference", rung->difference, "cosine", rung->cosine);
}

json_t *app_ladder_json(const app_ladder *ladder)
{
    const app_measured *m = &ladder->rungs[0].measured;
    json_t *rungs = json_array(), *left_out = json_array();
    bool failed = false;
    for (int i = 0; i < ladder->n; i++)
        failed |= json_array_append_new(rungs, rung_json(ladder, &ladder->rungs[i])) != 0;
    for (size_t i = 0; i < WITHOUT_RUNG; i++)
        failed |= json_array_append_new(
                      left_out, json_pack("{s:s,s:s}", "founding_work", without_rung[i].name, "reason", without_rung[i].reason)) != 0;
    json_t *page = json_pack("{s:s,s:s,s:s,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:o,s:f,s:o,s:o,s:O}", "model", ladder->model, "layout",
                             ladder->layout, "device", ladder->device, "instruction_set", ladder->isa, "threads", ladder->threads,
                             "cameras", m->cameras, "camera_slots", ladder->slots, "prompt_tokens", m->tokens, "max_tokens",
                             ladder->max_tokens, "steps", m->steps, "horizon", ladder->horizon, "scenario", text_or_null(ladder->scenario),
                             "needed_tflop", (m->flop.vision + m->flop.prefix + m->flop.denoise) * 1e-12, "rungs", rungs, "without_rung",
                             left_out, "machine", ladder->machine);
    if (failed) {
        json_decref(page);
        page = NULL;
    }
    return page;
}

/* ------------------------------------------------------------------ page and markdown */

enum { BAR = 20 };

/* The share of the longest time, in blocks; what took any time has one. */
static void fill_bar(char bar[3 * BAR + 1], double share)
{
    const int blocks = (int)fmax(1, round(share * BAR));
    *bar = '\0';
    for (int i = 0; i < blocks && i < BAR; i++)
        strcat(bar, "█");
}

static double longest_ms(const app_ladder *ladder)
{
    double longest = 0;
    for (int i = 0; i < ladder->n; i++)
        longest = fmax(longest, total_ms(&ladder->rungs[i]));
    return longest;
}

static void add_name(app_table *table, const app_ladder *ladder, const app_rung *rung)
{
    static const char *const signs[] = {"", "+ ", "+ ", "+ ", "- "};
    if (ladder->scenario)
        app_table_cell(table, "%s, %s, batch %d",
                       rung->kind == APP_RUNG_BOTTOM ? "before"
                       : rung->kind == APP_RUNG_TOP  ? "after"
                                                     : "and mixed",
                       rung->computed, rung->batch);
    else
        app_table_cell(table, "%s%s", signs[rung->kind], rung->kind == APP_RUNG_PRECISION ? rung->computed : rung->name);
}

/* The ladder itself, or what leaving one pass out costs. */
static bool belongs(const app_rung *rung, bool without)
{
    return (rung->kind == APP_RUNG_WITHOUT) == without;
}

static void add_headings(app_table *table, const char *const *headings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        app_table_cell(table, "%s", headings[i]);
}

static void add_times(app_text *out, const app_ladder *ladder, bool without, bool markdown)
{
    const char *const headings[] = {"median ms", "total", "vision",  "prefix", "denoise", without ? "x every pass" : "x before",
                                    "x first",   "runs",  "of peak", ""};
    app_table *table = app_table_open("lrrrrrrrrl");
    const double longest = longest_ms(ladder);
    add_headings(table, headings, sizeof headings / sizeof *headings);
    for (int i = 0; i < ladder->n; i++) {
        const app_rung *rung = &ladder->rungs[i];
        if (!belongs(rung, without))
            continue;
        add_name(table, ladder, rung);
        static const app_stage stages[] = {APP_TOTAL, APP_VISION, APP_PREFIX, APP_DENOISE};
        for (size_t k = 0; k < sizeof stages / sizeof *stages; k++)
            app_table_cell(table, "%.1f", app_median_ms(&rung->measured, stages[k]));
        if (rung->before >= 0)
            app_table_cell(table, "%.2f", gain(ladder, rung, rung->before));
        else
            app_table_cell(table, "%s", "");
        app_table_cell(table, "%.2f", gain(ladder, rung, rung->first));
        app_table_cell(table, "%zu", rung->measured.runs);
        app_table_cell(table, "%.1f%%", 100 * app_fraction_of_peak(&rung->measured));
        char bar[3 * BAR + 1];
        fill_bar(bar, total_ms(rung) / longest);
        app_table_cell(table, "%s", bar);
    }
    app_table_finish(&table, out, markdown);
    app_text_add(out, "\n");
}

static void add_size(app_table *table, uint64_t bytes)
{
    app_text size = {0};
    if (bytes)
        app_text_size(&size, (double)bytes);
    app_table_cell(table, "%s", bytes && size.data ? size.data : "-");
    app_text_release(&size);
}

static void add_results(app_text *out, const app_ladder *ladder, bool without, bool markdown)
{
    static const char *const headings[] = {"",           "planned", "peak",      "allocations",
                                           "difference", "cosine",  "precision", "in the founding work"};
    app_table *table = app_table_open("lrrrrrll");
    add_headings(table, headings, sizeof headings / sizeof *headings);
    for (int i = 0; i < ladder->n; i++) {
        const app_rung *rung = &ladder->rungs[i];
        if (!belongs(rung, without))
            continue;
        add_name(table, ladder, rung);
        add_size(table, rung->measured.plan.total);
        add_size(table, rung->measured.resident_bytes);
        app_table_cell(table, "%llu", (unsigned long long)rung->measured.allocations);
        app_table_cell(table, "%.2g", rung->difference);
        app_table_cell(table, "%.7f", rung->cosine);
        app_table_cell(table, "%s", rung->computed);
        app_table_cell(table, "%s", rung->founding ? rung->founding : "");
    }
    app_table_finish(&table, out, markdown);
    app_text_add(out, "\n");
}

void app_ladder_page(app_text *out, const app_ladder *ladder, bool markdown)
{
    const app_measured *m = &ladder->rungs[0].measured;
    const char *item = markdown ? "* " : "";
    bool without = false, told = false;
    for (int i = 0; i < ladder->n; i++) {
        without |= ladder->rungs[i].kind == APP_RUNG_WITHOUT;
        told |= ladder->rungs[i].measured.resident_bytes > 0;
    }
    app_text_add(out, "%s on %s (%s, %d threads): %d of %d camera slots, %d of %d tokens, %d steps, horizon %d%s%s\n\n", ladder->model,
                 ladder->device, ladder->isa, ladder->threads, m->cameras, ladder->slots, m->tokens, ladder->max_tokens, m->steps,
                 ladder->horizon, ladder->scenario ? "; scenario " : "", ladder->scenario ? ladder->scenario : "");
    for (int part = 0; part <= without; part++) {
        add_times(out, ladder, part, markdown);
        add_results(out, ladder, part, markdown);
    }
    app_text_add(out,
                 "%severy rung has the same pictures, state, prompt, noise and kernels; difference and cosine are those of its actions\n"
                 "%sagainst the rung with every pass on, before precision changes\n",
                 item, markdown ? "  " : "");
    app_text_add(
        out, "%sthe peak is measured between the runs of each rung: where times say one thing and shares another, the machine changed\n",
        item);
    app_text_add(out, "%s%s\n", item,
                 told ? "planned: at open; peak: most that was resident, the mapped weights among it, in this rung alone"
                      : "planned: at open; the system does not let a program measure the peak of a part of it");
    for (size_t i = 0; !ladder->scenario && i < WITHOUT_RUNG; i++)
        app_text_add(out, "%sin the founding work, without a rung here: %s; %s\n", item, without_rung[i].name, without_rung[i].reason);
    app_bench_machine(out, ladder->machine, item);
}
