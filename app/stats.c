#include "stats.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "observation.h"

enum { MAX_GPUS = 8 };

struct app_stats {
    double every_ms, last_ms;
    const pi0_model *model; /* that `before` was read from */
    pi0_stats before;
    pi0_gpus *gpus; /* NULL where there is no driver to ask */
};

pi0_status app_stats_open(app_context *app, pi0_error *err)
{
    const int64_t seconds = app_args_int(&app->args, "stats", 0);
    if (!seconds)
        return PI0_OK;
    app_stats *stats = calloc(1, sizeof *stats);
    if (!stats)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the statistics");
    stats->every_ms = (double)seconds * 1e3;
    stats->last_ms = app_now_ms();
    stats->before.process_cpu_s = (double)clock() / CLOCKS_PER_SEC;
    pi0_gpus_open(&stats->gpus, NULL);
    app->report.stats = stats;
    return PI0_OK;
}

void app_stats_close(app_report *report)
{
    if (report->stats)
        pi0_gpus_close(&report->stats->gpus);
    free(report->stats);
    report->stats = NULL;
}

static void add_mean(app_text *line, const char *name, double sum_now, double sum_before, uint64_t count)
{
    if (count)
        app_text_add(line, " %s=%.1fms", name, (sum_now - sum_before) / (double)count);
    else
        app_text_add(line, " %s=-", name);
}

static void add_stages(app_text *line, const pi0_timing *now, const pi0_timing *before, uint64_t count)
{
    add_mean(line, "total", now->total, before->total, count);
    add_mean(line, "prepare", now->decode + now->preprocess + now->tokenize, before->decode + before->preprocess + before->tokenize, count);
    add_mean(line, "vision", now->vision, before->vision, count);
    add_mean(line, "prefix", now->prefix, before->prefix, count);
    add_mean(line, "denoise", now->denoise, before->denoise, count);
}

static void add_bytes(app_text *line, const char *name, uint64_t bytes)
{
    app_text_add(line, " %s=%.0fMiB", name, (double)bytes / (1 << 20));
}

static void add_memory(app_text *line, const pi0_stats *now)
{
    add_bytes(line, "rss", now->process_resident);
    add_bytes(line, "weights", now->memory.weights_mapped + now->memory.weights_owned);
    add_bytes(line, "kv", now->memory.kv_cache);
    add_bytes(line, "activations", now->memory.activations);
    add_bytes(line, "workspace", now->memory.workspace);
}

static void add_gpus(app_text *line, pi0_gpus *gpus)
{
    pi0_gpu list[MAX_GPUS];
    const size_t count = gpus ? pi0_gpus_read(gpus, list, MAX_GPUS) : 0;
    for (size_t i = 0; i < count && i < MAX_GPUS; i++) {
        app_text_add(line, " gpu%zu=", i);
        if (list[i].utilisation >= 0)
            app_text_add(line, "%.0f%%,", 100 * list[i].utilisation);
        app_text_add(line, "%.0fMiB", (double)list[i].memory_used / (1 << 20));
        if (list[i].temperature_c >= 0)
            app_text_add(line, ",%.0fC", list[i].temperature_c);
        if (list[i].power_w >= 0)
            app_text_add(line, ",%.0fW", list[i].power_w);
    }
}

void app_stats_tick(app_report *report, const pi0_model *model)
{
    app_stats *stats = report->stats;
    const double now_ms = app_now_ms(), wall = stats ? now_ms - stats->last_ms : 0;
    if (!stats || wall < stats->every_ms)
        return;
    stats->last_ms = now_ms;
    const pi0_stats now = pi0_model_stats(model);
    if (stats->model != model || now.inferences < stats->before.inferences) /* another one, even if it lies where the last did */
        stats->before = (pi0_stats){.process_cpu_s = stats->before.process_cpu_s};
    stats->model = model;
    const pi0_stats *before = &stats->before;
    const double seconds = now.elapsed_s - before->elapsed_s;
    const uint64_t count = now.inferences - before->inferences;
    app_text line = {0};
    app_text_add(&line, "stats t=%.1fs n=%llu rate=%.2f/s", now.elapsed_s, (unsigned long long)now.inferences, (double)count / seconds);
    add_stages(&line, &now.sum_ms, &before->sum_ms, count);
    app_text_add(&line, " busy=%.0f%% cpu=%.0f%%", 100 * (now.busy_s - before->busy_s) / seconds,
                 100e3 * (now.process_cpu_s - before->process_cpu_s) / wall);
    add_memory(&line, &now);
    app_text_add(&line, " queue=%d/%d dropped=%llu failed=%llu", now.queue, now.queue_limit, (unsigned long long)now.dropped,
                 (unsigned long long)now.failures);
    add_gpus(&line, stats->gpus);
    if (!line.failed)
        app_note(report, "%s", line.data);
    app_text_release(&line);
    stats->before = now;
}
