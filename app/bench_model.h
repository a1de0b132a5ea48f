/* bench_model - a random checkpoint for as long as it takes to open it. */
#ifndef APP_BENCH_MODEL_H
#define APP_BENCH_MODEL_H

#include "report.h"

typedef struct app_bench_model {
    char *folder, *path; /* path: the checkpoint, below the temporary folder */
} app_bench_model;

/* options: what to write; progress is the report's. A signal is held until app_bench_model_remove. */
pi0_status app_bench_model_make(app_report *report, pi0_synth_options options, app_bench_model *out, pi0_error *err);

/* An open model keeps its weights: what is mapped stays until it is closed. */
void app_bench_model_remove(app_bench_model *made);

#endif
