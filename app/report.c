#include "report.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observation.h"
#include "signals.h"

pi0_status app_err(pi0_error *err, pi0_status status, const char *what, ...)
{
    pi0_error_clear(err);
    err->status = status;
    va_list args;
    va_start(args, what);
    vsnprintf(err->what, sizeof err->what, what, args);
    va_end(args);
    return status;
}

void app_err_print(char *field, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(field, size, format, args);
    va_end(args);
}

int app_exit_code(pi0_status status, app_phase phase)
{
    switch (status) {
    case PI0_OK:
        return APP_OK;
    case PI0_ERR_ARGUMENT:
        return APP_USAGE;
    case PI0_ERR_IO:
    case PI0_ERR_FORMAT:
    case PI0_ERR_MODEL:
    case PI0_ERR_UNSUPPORTED:
        return phase == APP_WRITING ? APP_RUNTIME : APP_FILE;
    case PI0_ERR_NONFINITE:
        return phase == APP_READING ? APP_USAGE : APP_FILE; /* an input; or weights and statistics that make one */
    case PI0_ERR_MEMORY:
    case PI0_ERR_DEVICE:
    case PI0_ERR_CANCELLED:
    case PI0_ERR_INTERNAL:
        break;
    }
    return APP_RUNTIME;
}

static void end_progress_line(app_report *report)
{
    if (report->line_open)
        fputs("\r\033[K", stderr);
    report->line_open = false;
}

/* A text may come from a file: control bytes must not reach the terminal. */
static void print_clean(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            fprintf(stderr, "\\x%02x", (unsigned)c);
        else
            fputc(c, stderr);
    }
    fputc('\n', stderr);
}

static void print_field(const char *label, const char *text)
{
    if (!*text)
        return;
    while (true) {
        size_t bytes = strcspn(text, "\n");
        fprintf(stderr, "  %-10s", label);
        print_clean(text, bytes);
        if (!text[bytes])
            break;
        text += bytes + 1;
        label = "";
    }
}

static void print_list(const char *list)
{
    while (list && *list) {
        size_t bytes = strcspn(list, "\n");
        if (bytes) {
            fputs("    ", stderr);
            print_clean(list, bytes);
        }
        list += bytes + (list[bytes] == '\n');
    }
}

int app_fail(app_report *report, pi0_error *err, app_phase phase)
{
    end_progress_line(report);
    fputs("pi0: error: ", stderr);
    const char *what = *err->what ? err->what : pi0_status_name(err->status);
    print_clean(what, strlen(what));
    print_field("where:", err->where);
    print_field("expected:", err->expected);
    print_field("got:", err->got);
    print_field("try:", err->hint);
    print_list(err->list); /* last: the texts above announce it */
    int code = app_exit_code(err->status, phase);
    pi0_error_clear(err);
    return code;
}

static void print_line(app_report *report, const char *label, const char *format, va_list args)
{
    if (report->quiet)
        return;
    end_progress_line(report);
    char line[2048];
    vsnprintf(line, sizeof line, format, args);
    fprintf(stderr, "pi0: %s", label);
    print_clean(line, strlen(line));
}

void app_warn(app_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(report, "warning: ", format, args);
    va_end(args);
}

void app_note(app_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    print_line(report, "", format, args);
    va_end(args);
}

/* The library warns at every opening and inference; the user needs to hear it once. */
static bool said_before(app_report *report, const char *text)
{
    size_t bytes = strlen(text);
    for (const char *line = report->said.data; line && *line; line += strcspn(line, "\n") + 1)
        if (strncmp(line, text, bytes) == 0 && line[bytes] == '\n')
            return true;
    app_text_add(&report->said, "%s\n", text);
    return false;
}

void app_report_log(void *user, pi0_log_level level, const char *text)
{
    app_report *report = user;
    if (level == PI0_LOG_WARNING && said_before(report, text))
        return;
    if (level == PI0_LOG_WARNING)
        app_warn(report, "%s", text);
    else
        app_note(report, "%s", text);
}

/* What runs count, others do in bytes (pi0.h). */
static bool counts_runs(const char *stage)
{
    return strcmp(stage, "measuring") == 0 || strcmp(stage, "calibrating") == 0;
}

static void add_amounts(app_text *line, const char *stage, uint64_t done, uint64_t total, double elapsed_ms)
{
    app_text_add(line, " %3.0f%%, ", 100.0 * (double)done / (double)total);
    if (counts_runs(stage)) {
        app_text_add(line, "%llu of %llu", (unsigned long long)done, (unsigned long long)total);
    } else {
        app_text_size(line, (double)done);
        app_text_add(line, " of ");
        app_text_size(line, (double)total);
    }
    if (done > 0)
        app_text_add(line, ", %.0f s left", ceil(elapsed_ms * 1e-3 * ((double)total / (double)done - 1)));
}

static void draw_progress(app_report *report, const char *stage, uint64_t done, uint64_t total)
{
    const double now = app_now_ms();
    if (strcmp(report->stage, stage) != 0) {
        snprintf(report->stage, sizeof report->stage, "%s", stage);
        report->stage_ms = now;
    }
    app_text line = {0};
    app_text_add(&line, "\r\033[Kpi0: %s", stage);
    if (total)
        add_amounts(&line, stage, done, total, now - report->stage_ms);
    if (!line.failed)
        fputs(line.data, stderr);
    fflush(stderr);
    app_text_release(&line);
    report->line_open = true;
    if (total && done >= total) {
        end_progress_line(report);
        *report->stage = '\0'; /* the next of this name is another */
    }
}

int app_report_progress(void *user, const char *stage, uint64_t done, uint64_t total)
{
    app_report *report = user;
    if (report->terminal && !report->quiet)
        draw_progress(report, stage, done, total);
    return app_stop_requested();
}

int app_print(app_report *report, const app_text *text)
{
    end_progress_line(report);
    pi0_error err = {0};
    if (text->failed) {
        app_err(&err, PI0_ERR_MEMORY, "not enough memory for the text of the result");
        return app_fail(report, &err, APP_WRITING);
    }
    errno = report->stdout_closed ? EBADF : 0;
    bool good = !report->stdout_closed && fwrite(text->data ? text->data : "", 1, text->length, stdout) == text->length;
    good = good && fflush(stdout) == 0;
    if (good)
        return APP_OK;
    app_err(&err, PI0_ERR_IO, "cannot write the result to standard output: %s", strerror(errno));
    app_err_field(err.where, "<stdout>");
    app_err_field(err.hint, "look for a full disk, or a program after the pipe that ended early");
    return app_fail(report, &err, APP_WRITING);
}
