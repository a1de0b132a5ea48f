#include "options.h"

#include <stdlib.h>
#include <string.h>

static bool same_name(const char *given, size_t bytes, const char *name)
{
    if (strlen(name) != bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if ((given[i] == '_' ? '-' : given[i]) != name[i])
            return false;
    return true;
}

static const app_option *find_long(const app_syntax *syntax, const char *given, size_t bytes)
{
    for (int t = 0; t < APP_MAX_TABLES && syntax->tables[t]; t++)
        for (const app_option *option = syntax->tables[t]; option->name; option++)
            if (same_name(given, bytes, option->name))
                return option;
    return NULL;
}

static const app_option *find_letter(const app_syntax *syntax, char letter)
{
    for (int t = 0; t < APP_MAX_TABLES && syntax->tables[t]; t++)
        for (const app_option *option = syntax->tables[t]; option->name; option++)
            if (option->letter && option->letter == letter)
                return option;
    return NULL;
}

static bool in_choices(const char *choices, const char *text)
{
    size_t bytes = strlen(text);
    for (const char *at = choices; *at;) {
        size_t length = strcspn(at, " ");
        if (length == bytes && memcmp(at, text, bytes) == 0)
            return true;
        at += length + (at[length] == ' ');
    }
    return false;
}

bool app_option_accepts(const app_option *option, const char *text)
{
    int64_t integer;
    uint64_t number;
    bool flag;
    switch (option->kind) {
    case APP_FLAG:
        return app_read_flag(text, &flag) || (option->choices && in_choices(option->choices, text));
    case APP_TEXT:
        return true;
    case APP_INT:
        return app_read_int(text, option->min, option->max, &integer) || (option->choices && in_choices(option->choices, text));
    case APP_SEED:
        return app_read_unsigned(text, &number);
    case APP_SIZE:
        return app_read_size(text, &number);
    case APP_CHOICE:
        return in_choices(option->choices, text);
    }
    return false;
}

static void describe_kind(const app_option *option, char *field, size_t size)
{
    switch (option->kind) {
    case APP_FLAG:
        app_err_print(field, size, "on or off (1, 0, true, false, yes, no)%s%s", option->choices ? ", or one of: " : "",
                      option->choices ? option->choices : "");
        break;
    case APP_TEXT:
        app_err_print(field, size, "%s", option->metavar);
        break;
    case APP_INT:
        app_err_print(field, size, "a whole number from %lld to %lld%s%s", (long long)option->min, (long long)option->max,
                      option->choices ? ", or " : "", option->choices ? option->choices : "");
        break;
    case APP_SEED:
        app_err_print(field, size, "a whole number from 0 to 18446744073709551615");
        break;
    case APP_SIZE:
        app_err_print(field, size, "more than 0 bytes, also as a number with k, M, G or T (of 1024): 8G, 512MiB");
        break;
    case APP_CHOICE:
        app_err_print(field, size, "one of: %s", option->choices);
        break;
    }
}

static pi0_status add_value(app_args *args, const app_option *option, const char *text, bool from_environment, pi0_error *err)
{
    if (!app_option_accepts(option, text)) {
        char variable[64];
        app_option_variable(option, variable);
        app_err(err, PI0_ERR_ARGUMENT, "bad value of an option");
        if (from_environment)
            app_err_field(err->where, "environment variable %s (option --%s)", variable, option->name);
        else
            app_err_field(err->where, "--%s", option->name);
        describe_kind(option, err->expected, sizeof err->expected);
        app_err_field(err->got, "%.200s", text);
        return err->status;
    }
    if (args->n_values == args->capacity) {
        size_t capacity = args->capacity * 2 + 16;
        app_value *values = realloc(args->values, capacity * sizeof *values);
        if (!values)
            return app_err(err, PI0_ERR_MEMORY, "not enough memory for the command line");
        args->values = values;
        args->capacity = capacity;
    }
    size_t bytes = strlen(text) + 1;
    char *copy = malloc(bytes);
    if (!copy)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the command line");
    memcpy(copy, text, bytes);
    args->values[args->n_values++] = (app_value){option, copy, from_environment};
    return PI0_OK;
}

static pi0_status unknown_option(const char *command, const app_syntax *syntax, const char *given, pi0_error *err)
{
    char word[64];
    size_t n = 0;
    for (const char *at = given + strspn(given, "-"); *at && *at != '=' && n + 1 < sizeof word; at++)
        word[n++] = *at == '_' ? '-' : *at;
    word[n] = '\0';
    app_nearest nearest = {.word = word};
    for (int t = 0; t < APP_MAX_TABLES && syntax->tables[t]; t++)
        for (const app_option *option = syntax->tables[t]; option->name; option++)
            app_nearest_try(&nearest, option->name);
    app_err(err, PI0_ERR_ARGUMENT, "unknown option");
    app_err_field(err->where, "pi0 %s", command);
    app_err_field(err->got, "%.200s", given);
    if (nearest.best)
        app_err_field(err->hint, "the nearest is --%s; `pi0 help %s` lists all; an argument that starts with - goes after --", nearest.best,
                      command);
    else
        app_err_field(err->hint, "`pi0 help %s` lists its options", command);
    return err->status;
}

/* Something that the user plainly meant as the next option is not a value: `--prompt --steps 5` forgot the prompt. */
static bool looks_like_option(const app_syntax *syntax, const char *text)
{
    if (strcmp(text, "--") == 0)
        return true;
    if (strncmp(text, "--", 2) == 0)
        return find_long(syntax, text + 2, strcspn(text + 2, "=")) != NULL;
    return text[0] == '-' && text[1] && !text[2] && find_letter(syntax, text[1]);
}

static pi0_status take_option(const char *command, const app_syntax *syntax, int argc, char **argv, int *at, app_args *args, pi0_error *err)
{
    const char *given = argv[*at];
    const app_option *option;
    const char *attached = NULL;
    if (given[1] == '-') {
        size_t bytes = strcspn(given + 2, "=");
        option = find_long(syntax, given + 2, bytes);
        if (given[2 + bytes] == '=')
            attached = given + 3 + bytes;
    } else {
        option = find_letter(syntax, given[1]);
        if (option && given[2])
            attached = given + 2 + (given[2] == '=');
    }
    if (!option)
        return unknown_option(command, syntax, given, err);
    if (!option->repeat && app_args_nth(args, option->name, 0)) {
        app_err(err, PI0_ERR_ARGUMENT, "option given twice");
        app_err_field(err->where, "--%s", option->name);
        app_err_field(err->hint, "keep one of them");
        return err->status;
    }
    if (attached || option->kind == APP_FLAG)
        return add_value(args, option, attached ? attached : "on", false, err);
    if (*at + 1 >= argc || looks_like_option(syntax, argv[*at + 1])) {
        app_err(err, PI0_ERR_ARGUMENT, "option without its value");
        app_err_field(err->where, "--%s", option->name);
        describe_kind(option, err->expected, sizeof err->expected);
        if (*at + 1 < argc)
            app_err_field(err->hint, "if %.100s is the value, write --%s=%.100s", argv[*at + 1], option->name, argv[*at + 1]);
        return err->status;
    }
    (*at)++;
    return add_value(args, option, argv[*at], false, err);
}

static pi0_status check_positional(const char *command, const app_syntax *syntax, const app_args *args, pi0_error *err)
{
    if (args->n_positional < syntax->min_positional) {
        app_err(err, PI0_ERR_ARGUMENT, "missing argument");
        app_err_field(err->where, "pi0 %s", command);
        app_err_field(err->expected, "%s", syntax->names[args->n_positional]);
        app_err_field(err->hint, "`pi0 help %s` shows examples", command);
        return err->status;
    }
    if (args->n_positional > syntax->max_positional) {
        app_err(err, PI0_ERR_ARGUMENT, "one argument too many");
        app_err_field(err->where, "pi0 %s", command);
        app_err_field(err->got, "%.200s", args->positional[syntax->max_positional]);
        app_err_field(err->hint, "quote an argument that holds blanks; `pi0 help %s` shows examples", command);
        return err->status;
    }
    return PI0_OK;
}

/* A sentence that happens to start with a dash is no option: no name has a blank in it. */
static bool is_option(const app_syntax *syntax, const char *text)
{
    if (text[0] != '-' || !text[1])
        return false;
    if (text[1] != '-')
        return find_letter(syntax, text[1]) || !strpbrk(text, " \t\n");
    size_t bytes = strcspn(text + 2, "=");
    return strcspn(text + 2, " \t\n") >= bytes;
}

pi0_status app_args_parse(const char *command, const app_syntax *syntax, int argc, char **argv, app_args *args, pi0_error *err)
{
    memset(args, 0, sizeof *args);
    args->positional = calloc((size_t)argc + 1, sizeof *args->positional);
    if (!args->positional)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the command line");
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        if (options_ended || !is_option(syntax, argv[i])) {
            args->positional[args->n_positional++] = argv[i];
        } else if (strcmp(argv[i], "--") == 0) {
            options_ended = true;
        } else {
            pi0_status status = take_option(command, syntax, argc, argv, &i, args, err);
            if (status != PI0_OK)
                return status;
        }
    }
    return check_positional(command, syntax, args, err);
}

/* One value, or for a repeatable option one value a line. */
static pi0_status add_from_environment(app_args *args, const app_option *option, const char *text, pi0_error *err)
{
    if (!option->repeat)
        return add_value(args, option, text, true, err);
    while (*text) {
        char line[4096];
        size_t bytes = strcspn(text, "\n");
        if (bytes >= sizeof line) {
            app_err(err, PI0_ERR_ARGUMENT, "an environment variable is too long");
            app_err_field(err->where, "the twin of --%s", option->name);
            app_err_field(err->expected, "one value a line, each below %zu bytes", sizeof line);
            return err->status;
        }
        memcpy(line, text, bytes);
        line[bytes] = '\0';
        if (bytes) {
            pi0_status status = add_value(args, option, line, true, err);
            if (status != PI0_OK)
                return status;
        }
        text += bytes + (text[bytes] == '\n');
    }
    return PI0_OK;
}

pi0_status app_args_environment(const app_syntax *syntax, app_args *args, pi0_error *err)
{
    for (int t = 0; t < APP_MAX_TABLES && syntax->tables[t]; t++)
        for (const app_option *option = syntax->tables[t]; option->name; option++) {
            char variable[64];
            app_option_variable(option, variable);
            const char *text = getenv(variable);
            if (!text || !*text)
                continue;
            bool given = app_args_nth(args, option->name, 0) != NULL;
            size_t before = args->n_values;
            /* A bad value is an error even where the command line overrides it: it would bite at the next call. */
            pi0_status status = add_from_environment(args, option, text, err);
            if (status != PI0_OK)
                return status;
            while (given && args->n_values > before)
                free(args->values[--args->n_values].text);
        }
    return PI0_OK;
}

void app_args_release(app_args *args)
{
    for (size_t i = 0; i < args->n_values; i++)
        free(args->values[i].text);
    free(args->values);
    free(args->positional);
    memset(args, 0, sizeof *args);
}

const char *app_args_nth(const app_args *args, const char *name, size_t index)
{
    for (size_t i = 0; i < args->n_values; i++)
        if (strcmp(args->values[i].option->name, name) == 0 && index-- == 0)
            return args->values[i].text;
    return NULL;
}

pi0_status app_args_keys_once(const app_args *args, const char *name, pi0_error *err)
{
    const char *text, *before;
    for (size_t i = 0; (text = app_args_nth(args, name, i)); i++)
        for (size_t j = 0; j < i && (before = app_args_nth(args, name, j)); j++) {
            size_t bytes = strcspn(text, "=");
            if (strcspn(before, "=") != bytes || memcmp(before, text, bytes) != 0)
                continue;
            app_err(err, PI0_ERR_ARGUMENT, "--%s names one thing twice", name);
            app_err_field(err->where, "--%s %.*s", name, (int)(bytes < 200 ? bytes : 200), text);
            app_err_field(err->got, "%.200s and %.200s", before, text);
            app_err_field(err->hint, "keep one of them");
            return err->status;
        }
    return PI0_OK;
}

const char *app_args_text(const app_args *args, const char *name)
{
    return app_args_nth(args, name, 0);
}

bool app_args_flag(const app_args *args, const char *name)
{
    bool flag = false;
    const char *text = app_args_text(args, name);
    return text && app_read_flag(text, &flag) && flag;
}

int64_t app_args_int(const app_args *args, const char *name, int64_t missing)
{
    const char *text = app_args_text(args, name);
    int64_t value = missing;
    return text && app_read_int(text, INT64_MIN, INT64_MAX, &value) ? value : missing;
}

uint64_t app_args_unsigned(const app_args *args, const char *name, uint64_t missing)
{
    const char *text = app_args_text(args, name);
    uint64_t value = missing;
    return text && (app_read_unsigned(text, &value) || app_read_size(text, &value)) ? value : missing;
}

void app_option_variable(const app_option *option, char name[64])
{
    size_t n = 4;
    memcpy(name, "PI0_", 4);
    for (const char *at = option->name; *at && n < 63; at++)
        name[n++] = (char)(*at == '-' ? '_' : *at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
    name[n] = '\0';
}
