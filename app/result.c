#include "result.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "json_out.h"
#include "table.h"

pi0_status app_result_take(const pi0_session *session, bool raw, app_result *result, pi0_error *err)
{
    int rows = 0, columns = 0;
    const double *robot = NULL;
    const float *model = NULL;
    if (raw)
        model = pi0_actions_raw(session, &rows, &columns);
    else
        robot = pi0_actions(session, &rows, &columns);
    size_t count = rows > 0 && columns > 0 ? (size_t)rows * (size_t)columns : 0;
    if (!count || !(model || robot))
        return app_err(err, PI0_ERR_INTERNAL, "the inference gave no actions");
    double *actions = malloc(count * sizeof *actions);
    if (!actions)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the actions");
    for (size_t i = 0; i < count; i++)
        actions[i] = raw ? (double)model[i] : robot[i];
    *result = (app_result){.actions = actions,
                           .rows = rows,
                           .columns = columns,
                           .raw = raw,
                           .tokens = pi0_token_count(session),
                           .timing = pi0_session_timing(session)};
    return PI0_OK;
}

void app_result_release(app_result *result)
{
    free(result->actions);
    memset(result, 0, sizeof *result);
}

static void add_timing(app_json *json, const pi0_timing *timing)
{
    const struct {
        const char *name;
        double ms;
    } parts[] = {{"decode", timing->decode}, {"preprocess", timing->preprocess}, {"tokenize", timing->tokenize}, {"vision", timing->vision},
                 {"prefix", timing->prefix}, {"denoise", timing->denoise},       {"post", timing->post},         {"total", timing->total}};
    app_json_key(json, "timing_ms");
    app_json_open(json, '{');
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        app_json_key(json, parts[i].name);
        app_json_real(json, parts[i].ms);
    }
    app_json_close(json, '}');
}

static void add_memory(app_json *json, pi0_memory memory)
{
    app_json_key(json, "memory");
    app_json_open(json, '{');
    for (size_t i = 0; pi0_memory_line_at(&memory, i).name; i++) {
        app_json_key(json, pi0_memory_line_at(&memory, i).name);
        app_json_unsigned(json, pi0_memory_line_at(&memory, i).bytes);
    }
    app_json_key(json, "peak_resident");
    app_json_unsigned(json, memory.peak_resident);
    app_json_close(json, '}');
}

void app_result_json(app_text *out, const app_result *result, const pi0_info *info, pi0_memory memory)
{
    app_json json = {.out = out};
    app_json_open(&json, '{');
    app_json_key(&json, "actions");
    app_json_open(&json, '[');
    for (int r = 0; r < result->rows; r++) {
        app_text_add(out, r ? ",\n  " : "\n  ");
        json.wants_comma = false;
        app_json_open(&json, '[');
        for (int c = 0; c < result->columns; c++)
            app_json_real(&json, result->actions[(size_t)r * (size_t)result->columns + (size_t)c]);
        app_json_close(&json, ']');
    }
    app_json_close(&json, ']');
    app_json_key(&json, "shape");
    app_json_open(&json, '[');
    app_json_int(&json, result->rows);
    app_json_int(&json, result->columns);
    app_json_close(&json, ']');
    app_json_key(&json, "tokens");
    app_json_int(&json, result->tokens);
    app_json_key(&json, "seed");
    app_json_unsigned(&json, result->seed);
    app_json_key(&json, "device");
    app_json_string(&json, info->device);
    app_json_key(&json, "precision");
    app_json_string(&json, info->precision);
    add_timing(&json, &result->timing);
    add_memory(&json, memory);
    app_json_close(&json, '}');
    app_text_add(out, "\n");
}

void app_result_csv(app_text *out, const app_result *result)
{
    for (int r = 0; r < result->rows; r++)
        for (int c = 0; c < result->columns; c++)
            app_text_add(out, "%.17g%s", result->actions[(size_t)r * (size_t)result->columns + (size_t)c],
                         c + 1 == result->columns ? "\n" : ",");
}

void app_result_table(app_text *out, const app_result *result, const pi0_info *info, size_t width)
{
    app_text_add(out, "%s actions [%d,%d] in %s; %s on %s, %s\n\n", info->model, result->rows, result->columns,
                 result->raw ? "model space" : "the robot's units", info->precision, info->device, info->layout);
    char align[512] = "r";
    size_t columns = (size_t)result->columns < sizeof align - 2 ? (size_t)result->columns : sizeof align - 2;
    memset(align + 1, 'r', columns);
    app_table *table = app_table_open(align);
    app_table_cell(table, "step");
    for (size_t c = 0; c < columns; c++)
        app_table_cell(table, "%zu", c);
    for (int r = 0; r < result->rows; r++) {
        app_table_cell(table, "%d", r);
        for (size_t c = 0; c < columns; c++)
            app_table_cell(table, "%.4f", result->actions[(size_t)r * (size_t)result->columns + c]);
    }
    app_table_add_to(table, out, 0, width);
    app_table_close(&table);
}

/* A disk with less than this cannot take a result. */
enum { LEAST_ROOM = 1 << 20 };

static pi0_status check_room(const char *option, const char *folder, pi0_error *err)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0 || disk.f_blocks == 0) /* no disk, or one that does not tell */
        return PI0_OK;
    const double left = (double)disk.f_bfree * (double)disk.f_frsize;
    if (left >= LEAST_ROOM)
        return PI0_OK;
    app_err(err, PI0_ERR_IO, "the disk is full");
    app_err_field(err->where, "%.300s (--%s)", folder, option);
    app_err_field(err->expected, "at least %d bytes free", LEAST_ROOM);
    app_err_field(err->got, "%.0f", left);
    app_err_field(err->hint, "make room, or name another folder");
    return err->status;
}

pi0_status app_check_folder(const char *option, const char *path, pi0_error *err)
{
    char folder[4096];
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        app_err(err, PI0_ERR_IO, "cannot write: there is a directory of that name");
        app_err_field(err->where, "%.300s (--%s)", path, option);
        return err->status;
    }
    const char *slash = strrchr(path, '/');
    size_t bytes = slash ? (size_t)(slash - path) + 1 : 2;
    if (bytes >= sizeof folder)
        return PI0_OK; /* the writer will say so */
    memcpy(folder, slash ? path : "./", bytes);
    folder[bytes] = '\0';
    if (access(folder, W_OK | X_OK) == 0)
        return check_room(option, folder, err);
    app_err(err, PI0_ERR_IO, "cannot write into this folder: %s", strerror(errno));
    app_err_field(err->where, "%.300s (--%s)", folder, option);
    app_err_field(err->hint, "make the folder first, or name another");
    return err->status;
}

bool app_result_can_write(const char *path)
{
    return app_ends_with(path, ".npy") || app_ends_with(path, ".json") || app_ends_with(path, ".csv");
}

pi0_status app_text_write(const char *path, app_text *text, pi0_error *err)
{
    pi0_status status = text->failed ? app_err(err, PI0_ERR_MEMORY, "not enough memory for the text of the result")
                                     : pi0_file_write(path, text->data, text->length, err);
    app_text_release(text);
    return status;
}

static pi0_status write_npy(const char *path, const app_result *result, pi0_error *err)
{
    size_t count = (size_t)result->rows * (size_t)result->columns;
    pi0_array array = {.name = "", .dtype = PI0_F64, .rank = 2, .shape = {result->rows, result->columns}, .data = result->actions};
    float *narrow = NULL;
    if (result->raw) {
        narrow = malloc(count * sizeof *narrow);
        if (!narrow)
            return app_err(err, PI0_ERR_MEMORY, "not enough memory for the actions");
        for (size_t i = 0; i < count; i++)
            narrow[i] = (float)result->actions[i];
        array.dtype = PI0_F32;
        array.data = narrow;
    }
    array.bytes = count * pi0_dtype_size(array.dtype);
    pi0_status status = pi0_arrays_write(path, &array, 1, err);
    free(narrow);
    return status;
}

pi0_status app_result_write(const char *path, const app_result *result, const pi0_info *info, pi0_memory memory, pi0_error *err)
{
    if (app_ends_with(path, ".npy"))
        return write_npy(path, result, err);
    app_text text = {0};
    if (app_ends_with(path, ".json"))
        app_result_json(&text, result, info, memory);
    else
        app_result_csv(&text, result);
    return app_text_write(path, &text, err);
}

void app_timing_line(app_text *out, const pi0_timing *timing)
{
    app_text_add(out, "%.1f ms: decode %.1f, preprocess %.1f, tokenize %.1f, vision %.1f, prefix %.1f, denoise %.1f, post %.1f",
                 timing->total, timing->decode, timing->preprocess, timing->tokenize, timing->vision, timing->prefix, timing->denoise,
                 timing->post);
}
