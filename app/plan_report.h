/* plan_report - how much memory the plans of a model take, against the least that they could: `pi0 bench --plan-report`. */
#ifndef APP_PLAN_REPORT_H
#define APP_PLAN_REPORT_H

#include <jansson.h>

#include "report.h"
#include "text.h"

/* Plans for batches of `first` to `last` robots; no weight is read. *out: a new reference. */
pi0_status app_plan_report(const char *path, const pi0_options *options, int first, int last, json_t **out, pi0_error *err);

void app_plan_report_page(app_text *out, const json_t *report, bool markdown);

#endif
