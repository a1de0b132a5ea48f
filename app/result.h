/* result - one inference's answer, and every form in which it is handed out. */
#ifndef APP_RESULT_H
#define APP_RESULT_H

#include "observation.h"

typedef struct app_result {
    double *actions; /* [rows, columns]; heap */
    int rows, columns;
    bool raw; /* model space */
    int tokens;
    uint64_t seed;
    pi0_timing timing;
} app_result;

/* Copies the last inference of a session. raw: [H,A] in model space instead of [H,D]. */
pi0_status app_result_take(const pi0_session *session, bool raw, app_result *result, pi0_error *err);
void app_result_release(app_result *result);

void app_result_json(app_text *out, const app_result *result, const pi0_info *info, pi0_memory memory);
void app_result_csv(app_text *out, const app_result *result);

/* A table of rows and joints; width 0 does not wrap. */
void app_result_table(app_text *out, const app_result *result, const pi0_info *info, size_t width);

/* By the ending of path: .npy (f64, or f32 with raw), .json, .csv. */
bool app_result_can_write(const char *path);

/* Whether a file can be made at `path`, which --option names: to be asked before the minutes of work, not after. */
pi0_status app_check_folder(const char *option, const char *path, pi0_error *err);

pi0_status app_result_write(const char *path, const app_result *result, const pi0_info *info, pi0_memory memory, pi0_error *err);

/* Writes the text, if it is whole, and releases it. */
pi0_status app_text_write(const char *path, app_text *text, pi0_error *err);

/* "vision 12.1 ms, ..." */
void app_timing_line(app_text *out, const pi0_timing *timing);

#endif
