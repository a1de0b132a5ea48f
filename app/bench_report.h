/* bench_report - what `pi0 bench` measured, and every form in which it is handed out. */
#ifndef APP_BENCH_REPORT_H
#define APP_BENCH_REPORT_H

#include <jansson.h>

#include "pi0.h"

#include "text.h"

typedef enum app_stage {
    APP_PREPROCESS,
    APP_TOKENIZE,
    APP_VISION,
    APP_PREFIX,
    APP_DENOISE,
    APP_POST,
    APP_TOTAL, /* from the pictures to the actions, by the program's own clock */
    APP_STAGES
} app_stage;

typedef struct app_measured {
    const pi0_info *info;
    pi0_memory plan;
    uint64_t resident_bytes; /* most that the process ever had in memory, 0 where the system does not tell */
    json_t *machine;         /* of pi0_doctor */
    pi0_flop flop;           /* of one inference */
    double flop_per_s;       /* of the machine at best */
    int cameras, tokens, steps, batch;
    size_t runs;
    double *ms[APP_STAGES]; /* [runs], ascending */
} app_measured;

json_t *app_bench_json(const app_measured *m); /* NULL when there is no memory */
void app_bench_page(app_text *out, const app_measured *m);
void app_bench_markdown(app_text *out, const app_measured *m);

#endif
