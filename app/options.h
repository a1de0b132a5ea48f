/* options - the command line and its environment twins, parsed against one table. Knows nothing about what an option means. */
#ifndef APP_OPTIONS_H
#define APP_OPTIONS_H

#include <stdint.h>

#include "report.h"

typedef enum app_kind {
    APP_FLAG,  /* present, or =on/off/1/0/true/false/yes/no, or one of `choices` where there are any */
    APP_TEXT,  /* any text */
    APP_INT,   /* min .. max, or one of `choices` where there are any: app_args_int then says that it is missing */
    APP_SEED,  /* 0 .. 2^64-1 */
    APP_SIZE,  /* bytes, not 0: 8G, 512MiB, 1000000 */
    APP_CHOICE /* one of `choices` */
} app_kind;

typedef struct app_option {
    const char *name; /* "memory-limit"; NULL ends a table */
    char letter;      /* 'o' for -o, or 0 */
    app_kind kind;
    bool repeat; /* may be given several times */
    const char *metavar;
    const char *help;
    int64_t min, max;
    const char *choices; /* "pil torch": separated by one space */
} app_option;

#define APP_MAX_TABLES 5

/* What a command accepts. */
typedef struct app_syntax {
    const app_option *tables[APP_MAX_TABLES]; /* first its own, then shared ones; NULL after the last */
    const char *const *names;                 /* of the positional arguments, for error texts */
    int min_positional, max_positional;
} app_syntax;

typedef struct app_value {
    const app_option *option;
    char *text;
    bool from_environment;
} app_value;

typedef struct app_args {
    app_value *values;
    size_t n_values, capacity;
    const char **positional; /* into argv */
    int n_positional;
} app_args;

/* Parses argv[0 .. argc-1] (what follows the command's name), then the environment for every option that was not given.
 * Every value is checked against its kind here. PI0_ERR_ARGUMENT names the option and the nearest known one. */
pi0_status app_args_parse(const char *command, const app_syntax *syntax, int argc, char **argv, app_args *args, pi0_error *err);
pi0_status app_args_environment(const app_syntax *syntax, app_args *args, pi0_error *err);
void app_args_release(app_args *args);

/* Of a repeatable KEY=VALUE option: a key given twice is an error, for which of the two was meant cannot be known. */
pi0_status app_args_keys_once(const app_args *args, const char *name, pi0_error *err);

/* The value given, the first of a repeatable option; or NULL. */
const char *app_args_text(const app_args *args, const char *name);
const char *app_args_nth(const app_args *args, const char *name, size_t index); /* NULL past the end */
bool app_args_flag(const app_args *args, const char *name);
int64_t app_args_int(const app_args *args, const char *name, int64_t missing);
uint64_t app_args_unsigned(const app_args *args, const char *name, uint64_t missing); /* APP_SEED and APP_SIZE */

/* "PI0_MEMORY_LIMIT" into name[64]. */
void app_option_variable(const app_option *option, char name[64]);

/* Whether `text` is a value of the option's kind. */
bool app_option_accepts(const app_option *option, const char *text);

/* The candidate with the smallest edit distance to `word`. */
typedef struct app_nearest {
    const char *word, *best;
    size_t distance;
} app_nearest;

void app_nearest_try(app_nearest *nearest, const char *candidate);

/* Strict readers: the whole text, nothing around it. */
bool app_read_int(const char *text, int64_t min, int64_t max, int64_t *out);
bool app_read_unsigned(const char *text, uint64_t *out);
bool app_read_size(const char *text, uint64_t *out);
bool app_read_flag(const char *text, bool *out);
bool app_read_double(const char *text, double *out); /* plain decimal; blanks around it are fine */

/* Whether a file's name has this ending, in either case, and something before it. */
bool app_ends_with(const char *path, const char *ending);

#endif
