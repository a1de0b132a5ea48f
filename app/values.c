/* Strict readers of single values, and the nearest name for what cannot be read. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "options.h"

bool app_read_int(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (!*digits || strspn(digits, "0123456789") != strlen(digits))
        return false;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno || value < min || value > max)
        return false;
    *out = value;
    return true;
}

bool app_read_unsigned(const char *text, uint64_t *out)
{
    if (!*text || strspn(text, "0123456789") != strlen(text))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno)
        return false;
    *out = value;
    return true;
}

bool app_read_size(const char *text, uint64_t *out)
{
    size_t digits = strspn(text, "0123456789.");
    char number[32];
    if (!digits || digits >= sizeof number)
        return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    double value;
    if (!app_read_double(number, &value))
        return false;
    static const char letters[] = "kmgt";
    const char *unit = text + digits;
    if (*unit && strcasecmp(unit, "B") != 0) {
        const char *found = strchr(letters, tolower((unsigned char)*unit));
        const char *rest = unit + 1;
        bool decimal = strcasecmp(rest, "B") == 0; /* kB, MB, GB are of 1000; k, kiB, Ki of 1024 */
        if (!found || (*rest && !decimal && strcasecmp(rest, "i") != 0 && strcasecmp(rest, "iB") != 0))
            return false;
        for (const char *at = letters; at <= found; at++)
            value *= decimal ? 1000.0 : 1024.0;
    }
    if (!(value >= 1 && value < 9.0e18))
        return false;
    *out = (uint64_t)value;
    return true;
}

bool app_read_flag(const char *text, bool *out)
{
    static const char *const on[] = {"1", "on", "true", "yes"}, *const off[] = {"0", "off", "false", "no"};
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(text, on[i]) == 0) {
            *out = true;
            return true;
        }
        if (strcasecmp(text, off[i]) == 0) {
            *out = false;
            return true;
        }
    }
    return false;
}

bool app_read_double(const char *text, double *out)
{
    char number[64];
    while (isspace((unsigned char)*text))
        text++;
    size_t bytes = strlen(text);
    while (bytes && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    if (!bytes || bytes >= sizeof number)
        return false;
    memcpy(number, text, bytes);
    number[bytes] = '\0';
    /* strtod alone would also take hexadecimal, inf and nan */
    if (strspn(number, "0123456789+-.eE") != bytes)
        return false;
    char *end;
    double value = strtod(number, &end);
    if (end != number + bytes || !isfinite(value))
        return false;
    *out = value;
    return true;
}

bool app_ends_with(const char *path, const char *ending)
{
    size_t a = strlen(path), b = strlen(ending);
    return a > b && strcasecmp(path + a - b, ending) == 0;
}

/* Levenshtein over two rows; names longer than the rows are no candidates. */
static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    size_t na = strlen(a), nb = strlen(b), row[LONGEST + 1];
    if (na > LONGEST || nb > LONGEST)
        return LONGEST * 2;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = above;
            row[j] = best;
        }
    }
    return row[nb];
}

void app_nearest_try(app_nearest *nearest, const char *candidate)
{
    size_t distance = edit_distance(nearest->word, candidate);
    if (!nearest->best || distance < nearest->distance) {
        nearest->best = candidate;
        nearest->distance = distance;
    }
}
