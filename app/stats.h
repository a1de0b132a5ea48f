/* stats - one line on stderr every so many seconds while a long command works: what the model does, and what it takes to do it. */
#ifndef APP_STATS_H
#define APP_STATS_H

#include "app.h"

/* A row of a command's table of options. */
#define APP_STATS_OPTION                                                                                           \
    {                                                                                                              \
        .name = "stats", .kind = APP_INT, .metavar = "SECONDS", .min = 1, .max = 86400,                            \
        .help = "a line on stderr every SECONDS, between inferences: rate, stages, processor, memory, queue, GPUs" \
    }

/* Reads --stats into the report. Nothing is printed without it. */
pi0_status app_stats_open(app_context *app, pi0_error *err);
void app_stats_close(app_report *report);

/* After an inference: prints the line when it is due. */
void app_stats_tick(app_report *report, const pi0_model *model);

#endif
