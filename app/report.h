/* report - everything that goes to stderr: the error block, warnings, notes, progress; and the exit codes. */
#ifndef APP_REPORT_H
#define APP_REPORT_H

#include "pi0.h"
#include <stdbool.h>

#include "text.h"

typedef enum app_exit { APP_OK = 0, APP_RUNTIME = 1, APP_USAGE = 2, APP_FILE = 3, APP_GATE = 4 } app_exit;

/* What the program was doing when a status came back: the same status means different things to a script. */
typedef enum app_phase {
    APP_READING,   /* options, model, observation: what the user gave */
    APP_COMPUTING, /* the inference itself */
    APP_WRITING    /* results */
} app_phase;

typedef struct app_stats app_stats; /* stats.h */

typedef struct app_report {
    bool quiet;         /* errors only */
    bool terminal;      /* stderr is one: progress may be drawn */
    bool line_open;     /* a progress line is on the screen */
    bool stdout_closed; /* the program was started without a stdout */
    app_text said;      /* the library's warnings so far, one a line */
    char stage[32];     /* of the progress, and when it began */
    double stage_ms;
    app_stats *stats; /* of --stats, or NULL */
} app_report;

/* Starts an error of the program's own in *err (emptied first) and returns status. */
pi0_status app_err(pi0_error *err, pi0_status status, const char *what, ...) APP_PRINTF(3, 4);

/* Fills one field of a pi0_error: app_err_field(err.got, "..."). */
#define app_err_field(field, ...) app_err_print((field), sizeof(field), __VA_ARGS__)
void app_err_print(char *field, size_t size, const char *format, ...) APP_PRINTF(3, 4);

/* Prints the error block, clears *err and returns the exit code for its status in that phase. */
int app_fail(app_report *report, pi0_error *err, app_phase phase);

int app_exit_code(pi0_status status, app_phase phase);

void app_warn(app_report *report, const char *format, ...) APP_PRINTF(2, 3);
void app_note(app_report *report, const char *format, ...) APP_PRINTF(2, 3);

/* For pi0_options: user is an app_report. The progress callback also carries a Ctrl-C into the library. */
void app_report_log(void *user, pi0_log_level level, const char *text);
int app_report_progress(void *user, const char *stage, uint64_t done, uint64_t total);

/* Writes the result to stdout; a full disk or a closed pipe is an error, not a short answer. Returns the exit code. */
int app_print(app_report *report, const app_text *text);

#endif
