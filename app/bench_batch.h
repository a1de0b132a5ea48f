/* bench_batch - how many robots to infer together: measured, within a limit of memory and one of latency. */
#ifndef APP_BENCH_BATCH_H
#define APP_BENCH_BATCH_H

#include <jansson.h>

#include "bench_case.h"

typedef struct app_batch_row {
    int batch;
    double latency_ms, share_ms; /* of the batch; of it for each robot. 0: it was not run */
    uint64_t planned;            /* bytes; 0: it was not opened */
    const char *beyond;          /* the limit that it passes: "memory" or "latency"; or NULL */
} app_batch_row;

enum { APP_BATCH_ROWS = 16 };

typedef struct app_batch_curve {
    app_batch_row rows[APP_BATCH_ROWS]; /* in the order of measuring */
    int n, best;                        /* best: the batch chosen */
    const char *ended_by;               /* "memory", "latency", "share" (a larger batch gains nothing more) or "largest" */
    uint64_t memory_limit;              /* 0: none, as the next */
    double latency_limit_ms;
} app_batch_curve;

/* Doubles the batch for as long as that shortens a robot's share by a twentieth; where a limit ends it, looks between the last two too.
 * settings->batch becomes the best. An error when not even one robot is within the limits. */
pi0_status app_batch_choose(app_batch_curve *curve, app_report *report, const char *path, const pi0_options *options,
                            app_case_settings *settings, pi0_error *err);

json_t *app_batch_json(const app_batch_curve *curve);
void app_batch_page(app_text *out, const app_batch_curve *curve, bool markdown);

#endif
