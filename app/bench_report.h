/* bench_report - what `pi0 bench` measured, and every form in which it is handed out. */
#ifndef APP_BENCH_REPORT_H
#define APP_BENCH_REPORT_H

#include <jansson.h>

#include "bench_case.h"
#include "text.h"

double app_median_ms(const app_measured *m, app_stage stage);
double app_fraction_of_peak(const app_measured *m); /* what was needed, by the median of the total */

json_t *app_bench_json(const app_measured *m); /* NULL when there is no memory */
void app_bench_page(app_text *out, const app_measured *m, bool markdown);

/* One line. machine: of pi0_doctor. */
void app_bench_machine(app_text *out, const json_t *machine, const char *item);

/* resident_bytes 0: null */
json_t *app_memory_json(const pi0_memory *plan, uint64_t resident_bytes);

#endif
