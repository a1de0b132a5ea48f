#include <stdarg.h>
#include <string.h>

#include "base/base.h"

/* One line: a name out of a file may hold newlines, the caller's log may not. */
static void log_line(const pi0_log *log, pi0_log_level level, const char *format, va_list args)
{
    char line[1024];
    if (vsnprintf(line, sizeof line, format, args) < 0)
        return;
    for (char *s = line; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = ' ';
    log->fn(log->user, level, line);
}

void pi0_log_info(const pi0_log *log, const char *text, ...)
{
    if (!log || !log->fn)
        return;
    va_list args;
    va_start(args, text);
    log_line(log, PI0_LOG_INFO, text, args);
    va_end(args);
}

void pi0_log_warning(const pi0_log *log, const char *text, ...)
{
    if (!log || !log->fn)
        return;
    va_list args;
    va_start(args, text);
    log_line(log, PI0_LOG_WARNING, text, args);
    va_end(args);
}
