#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "app.h"
#include "json_out.h"
#include "model_options.h"
#include "observation.h"

static const app_option options[] = {
    {.name = "stdin", .kind = APP_FLAG, .help = "read one JSON string a line (with --decode: ids) and answer with one line each"},
    {.name = "no-bos", .kind = APP_FLAG, .help = "without the begin-of-sequence token"},
    {.name = "rules",
     .kind = APP_CHOICE,
     .metavar = "RULES",
     .choices = "hf spm",
     .help = "hf (Hugging Face) or spm (SentencePiece); default: hf for a .json, spm for a .model"},
    {.name = "decode", .kind = APP_FLAG, .help = "ids to text"},
    {.name = "as-prompt",
     .kind = APP_FLAG,
     .help = "as MODEL is given it: cleaned, framed, with the state where the recipe says so, cut at its limit"},
    {.name = "state", .kind = APP_TEXT, .metavar = "V,V,...|FILE.npy", .help = "the raw state, for --as-prompt"},
    {.name = NULL},
};

typedef struct tokenize_run {
    app_model_settings settings;
    pi0_tokenizer *tokenizer; /* or, with --as-prompt, */
    pi0_prompter *prompter;
    double *state;
    size_t state_count;
    int64_t *ids;
    size_t ids_capacity;
    app_text out;
    app_json json;
} tokenize_run;

/* A file that is no checkpoint is the tokenizer itself. */
static bool is_tokenizer_file(const char *path)
{
    struct stat info;
    if (app_ends_with(path, ".safetensors") || app_ends_with(path, ".pi0"))
        return false;
    if (stat(path, &info) == 0)
        return !S_ISDIR(info.st_mode);
    return app_ends_with(path, ".json") || app_ends_with(path, ".model");
}

static pi0_status bad_combination(pi0_error *err, const char *what, const char *hint)
{
    app_err(err, PI0_ERR_ARGUMENT, "%s", what);
    app_err_field(err->where, "pi0 tokenize");
    app_err_field(err->hint, "%s", hint);
    return err->status;
}

static pi0_status check_combination(const app_args *args, pi0_error *err)
{
    bool from_stdin = app_args_flag(args, "stdin"), as_prompt = app_args_flag(args, "as-prompt");
    bool text = args->n_positional > 1;
    if (text == from_stdin)
        return bad_combination(err, text ? "both TEXT and --stdin" : "no text", "give TEXT as one quoted argument, or --stdin");
    if (as_prompt && app_args_flag(args, "decode"))
        return bad_combination(err, "--as-prompt does not go with --decode", "leave one out");
    if (as_prompt && (app_args_flag(args, "no-bos") || app_args_text(args, "rules")))
        return bad_combination(err, "--as-prompt follows the model's family", "leave out --no-bos and --rules");
    if (as_prompt && is_tokenizer_file(args->positional[0]))
        return bad_combination(err, "--as-prompt needs a MODEL, not a tokenizer file",
                               "give the checkpoint, and the file with --tokenizer FILE");
    if (app_args_text(args, "state") && !as_prompt)
        return bad_combination(err, "--state needs --as-prompt", "add --as-prompt, or leave out --state: plain text has no state in it");
    return PI0_OK;
}

static pi0_status open_tokenizer(app_context *app, tokenize_run *run, pi0_error *err)
{
    const char *path = app->args.positional[0], *rules = app_args_text(&app->args, "rules"), *family = NULL;
    if (is_tokenizer_file(path))
        return pi0_tokenizer_open(path, rules, &run->tokenizer, err);
    char *found = NULL;
    pi0_status status = pi0_find_tokenizer(path, &run->settings.options, &found, &family, err);
    if (status == PI0_OK) {
        app_note(&app->report, "tokenizer %s", found);
        status = pi0_tokenizer_open(found, rules, &run->tokenizer, err);
    }
    pi0_text_free(&found);
    return status;
}

static pi0_status reserve_ids(tokenize_run *run, size_t count, pi0_error *err)
{
    if (count <= run->ids_capacity)
        return PI0_OK;
    size_t capacity = count + count / 2 + 64;
    int64_t *ids = capacity < SIZE_MAX / sizeof *ids ? realloc(run->ids, capacity * sizeof *ids) : NULL;
    if (!ids)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for %zu ids", count);
    run->ids = ids;
    run->ids_capacity = capacity;
    return PI0_OK;
}

static void add_ids(app_context *app, tokenize_run *run, const int64_t *ids, size_t count, const char *text, size_t bytes)
{
    if (!app->json) {
        for (size_t i = 0; i < count; i++)
            app_text_add(&run->out, i ? " %lld" : "%lld", (long long)ids[i]);
        app_text_add(&run->out, "\n");
        return;
    }
    app_json_open(&run->json, '{');
    app_json_key(&run->json, "ids");
    app_json_open(&run->json, '[');
    for (size_t i = 0; i < count; i++)
        app_json_int(&run->json, ids[i]);
    app_json_close(&run->json, ']');
    app_json_key(&run->json, "text");
    app_json_quote(&run->out, text, bytes);
    run->json.wants_comma = true;
    app_json_close(&run->json, '}');
}

static pi0_status encode_prompt(app_context *app, tokenize_run *run, const char *text, size_t bytes, pi0_error *err)
{
    if (strlen(text) != bytes)
        return app_err(err, PI0_ERR_ARGUMENT, "a prompt cannot hold a NUL character");
    int64_t *ids = NULL;
    size_t count = 0;
    char *framed = NULL;
    pi0_status status = pi0_prompter_tokens(run->prompter, text, run->state, run->state_count, &ids, &count, &framed, err);
    if (status == PI0_OK)
        add_ids(app, run, ids, count, framed, strlen(framed));
    pi0_ids_free(&ids);
    pi0_text_free(&framed);
    return status;
}

static pi0_status encode(app_context *app, tokenize_run *run, const char *text, size_t bytes, pi0_error *err)
{
    if (app_args_flag(&app->args, "as-prompt"))
        return encode_prompt(app, run, text, bytes, err);
    int bos = !app_args_flag(&app->args, "no-bos");
    size_t count = 0;
    pi0_status status = reserve_ids(run, bytes + 8, err);
    if (status != PI0_OK)
        return status;
    status = pi0_tokenizer_encode(run->tokenizer, text, bytes, bos, run->ids, run->ids_capacity, &count, err);
    if (status == PI0_ERR_ARGUMENT && count > run->ids_capacity) {
        status = reserve_ids(run, count, err);
        if (status == PI0_OK)
            status = pi0_tokenizer_encode(run->tokenizer, text, bytes, bos, run->ids, run->ids_capacity, &count, err);
    }
    if (status == PI0_OK)
        add_ids(app, run, run->ids, count, text, bytes);
    return status;
}

static pi0_status decode(app_context *app, tokenize_run *run, const char *text, pi0_error *err)
{
    static const char separators[] = " ,\t\r[]";
    size_t count = 0;
    const char *at = text + strspn(text, separators);
    while (*at) {
        char word[32];
        size_t bytes = strcspn(at, separators);
        int64_t id;
        pi0_status status = reserve_ids(run, count + 1, err);
        if (status != PI0_OK)
            return status;
        size_t kept = bytes < sizeof word ? bytes : sizeof word - 1;
        memcpy(word, at, kept);
        word[kept] = '\0';
        if (kept != bytes || !app_read_int(word, 0, INT64_MAX, &id)) {
            app_err(err, PI0_ERR_ARGUMENT, "an id is a whole number from 0 up");
            app_err_field(err->got, "%s", word);
            return err->status;
        }
        run->ids[count++] = id;
        at += bytes;
        at += strspn(at, separators);
    }
    char *decoded = NULL;
    pi0_status status = pi0_tokenizer_decode(run->tokenizer, run->ids, count, &decoded, err);
    if (status != PI0_OK)
        return status;
    if (app->json)
        add_ids(app, run, run->ids, count, decoded, strlen(decoded));
    else if (app_args_flag(&app->args, "stdin"))
        app_json_quote(&run->out, decoded, strlen(decoded));
    else
        app_text_add(&run->out, "%s", decoded);
    if (!app->json)
        app_text_add(&run->out, "\n");
    pi0_text_free(&decoded);
    return PI0_OK;
}

static pi0_status take_line(app_context *app, tokenize_run *run, const char *line, size_t bytes, pi0_error *err)
{
    if (app_args_flag(&app->args, "decode")) {
        if (strlen(line) != bytes)
            return app_err(err, PI0_ERR_FORMAT, "a line of ids holds a NUL byte");
        return decode(app, run, line, err);
    }
    json_error_t where;
    json_t *value = json_loadb(line, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &where);
    pi0_status status;
    if (json_is_string(value)) {
        status = encode(app, run, json_string_value(value), json_string_length(value), err);
    } else {
        status = app_err(err, PI0_ERR_FORMAT, "a line is not a JSON string%s%s", value ? "" : ": ", value ? "" : where.text);
        app_err_field(err->expected, "one quoted JSON string a line, such as \"pick up the cube\"");
        app_err_field(err->got, "%.200s", line);
    }
    json_decref(value);
    return status;
}

static pi0_status take_stdin(app_context *app, tokenize_run *run, pi0_error *err)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t bytes;
    pi0_status status = PI0_OK;
    size_t number = 0;
    while (status == PI0_OK && (bytes = getline(&line, &capacity, stdin)) >= 0) {
        number++;
        if (bytes > 0 && line[bytes - 1] == '\n')
            line[--bytes] = '\0';
        if (app->json)
            app_text_add(&run->out, number > 1 ? ",\n  " : "\n  ");
        run->json.wants_comma = false;
        status = take_line(app, run, line, (size_t)bytes, err);
    }
    if (status == PI0_OK && ferror(stdin))
        status = app_err(err, PI0_ERR_IO, "cannot read standard input");
    if (status != PI0_OK && !*err->where)
        app_err_field(err->where, "<stdin>, line %zu", number);
    free(line);
    return status;
}

static pi0_status compute(app_context *app, tokenize_run *run, pi0_error *err)
{
    const app_args *args = &app->args;
    pi0_status status = check_combination(args, err);
    if (status == PI0_OK)
        status = app_model_settings_fill(app, &run->settings, err);
    if (status == PI0_OK && app_args_text(args, "state"))
        status = app_state_read(app_args_text(args, "state"), &run->state, &run->state_count, err);
    if (status == PI0_OK)
        status = app_args_flag(args, "as-prompt") ? pi0_prompter_open(args->positional[0], &run->settings.options, &run->prompter, err)
                                                  : open_tokenizer(app, run, err);
    if (status != PI0_OK)
        return status;
    if (!app_args_flag(args, "stdin")) {
        const char *text = args->positional[1];
        return app_args_flag(args, "decode") ? decode(app, run, text, err) : encode(app, run, text, strlen(text), err);
    }
    if (app->json)
        app_json_open(&run->json, '[');
    status = take_stdin(app, run, err);
    if (app->json)
        app_json_close(&run->json, ']');
    return status;
}

static int tokenize(app_context *app)
{
    tokenize_run run = {0};
    pi0_error err = {0};
    run.json.out = &run.out;
    pi0_status status = compute(app, &run, &err);
    if (app->json)
        app_text_add(&run.out, "\n");
    int code = status == PI0_OK ? app_print(&app->report, &run.out) : app_fail(&app->report, &err, APP_READING);
    app_text_release(&run.out);
    pi0_tokenizer_close(&run.tokenizer);
    pi0_prompter_close(&run.prompter);
    free(run.ids);
    free(run.state);
    app_model_settings_release(&run.settings);
    return code;
}

static const char *const names[] = {"FILE or MODEL: tokenizer.json, tokenizer.model, or a checkpoint", "TEXT"};

const app_command app_tokenize = {
    .name = "tokenize",
    .summary = "text to ids and back",
    .usage = "FILE|MODEL [TEXT] [--stdin] [--as-prompt [--state V,V,...]] [options]",
    .text =
        "Prints the ids of one text, separated by spaces, on one line; BOS first unless --no-bos. With --as-prompt the text is what the "
        "robot would be told, and the ids are what the model would be given.",
    .examples = "  pi0 tokenize tokenizer.json \"pick up the red block\"\n"
                "  printf '\"pick up\"\\n\"tabs\\\\tand more\"\\n' | pi0 tokenize tokenizer.model --stdin\n"
                "  pi0 tokenize ~/my_policy \"pick up\" --as-prompt --state 0.1,-0.4,0,0,0.2,0\n"
                "  pi0 tokenize tokenizer.json --decode \"2 18075 908\"\n",
    .syntax = {.tables = {options, app_model_options, app_general_options}, .names = names, .min_positional = 1, .max_positional = 2},
    .run = tokenize,
};
