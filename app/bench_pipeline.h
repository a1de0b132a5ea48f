/* bench_pipeline - what a pipeline gains: observations out of a picture file, one after another and overlapped, in turns. */
#ifndef APP_BENCH_PIPELINE_H
#define APP_BENCH_PIPELINE_H

#include <jansson.h>

#include "bench_case.h"

typedef struct app_overlap {
    size_t observations;         /* in each way */
    double alone_ms, overlap_ms; /* for each observation: one after another; through the pipeline */
    double prepare_ms;           /* of alone_ms: reading, decoding, resizing, tokenizing */
    double latency_ms;           /* in the pipeline, from submit to the result */
} app_overlap;

/* `observations` of each way, on a case of batch 1 that was run before. Other actions than alone are an error. */
pi0_status app_overlap_measure(const app_case *c, app_report *report, const char *file, size_t observations, app_overlap *out,
                               pi0_error *err);

json_t *app_overlap_json(const app_overlap *o);
void app_overlap_page(app_text *out, const app_overlap *o, const char *item);

#endif
