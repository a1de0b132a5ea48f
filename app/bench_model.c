#include "bench_model.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "signals.h"

/* Room that a checkpoint of each size takes, with some to spare. */
static const struct {
    const char *size;
    double bytes;
} sizes[] = {{"tiny", 16e6}, {"small", 0.7e9}, {"base", 8e9}};

static pi0_status check_room(const char *folder, const char *size, pi0_error *err)
{
    struct statvfs room;
    if (statvfs(folder, &room) != 0)
        return PI0_OK; /* the writer will say what is wrong with the folder */
    double free_bytes = (double)room.f_bavail * (double)room.f_frsize, needed = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        needed = strcmp(sizes[i].size, size) == 0 ? sizes[i].bytes : needed;
    if (free_bytes >= needed)
        return PI0_OK;
    app_err(err, PI0_ERR_IO, "not enough room for a random checkpoint of size %s", size);
    app_err_field(err->where, "%.300s", folder);
    app_err_field(err->expected, "%.1f GB free", needed * 1e-9);
    app_err_field(err->got, "%.1f GB", free_bytes * 1e-9);
    app_err_field(err->hint,
                  "set TMPDIR to a folder with more room, or write one elsewhere with `pi0 synth` and name it instead of --size");
    return err->status;
}

/* size: NULL where the checkpoint takes no room. */
static pi0_status make_folder(app_bench_model *out, const char *size, pi0_error *err)
{
    const char *parent = getenv("TMPDIR");
    parent = parent && *parent ? parent : "/tmp";
    pi0_status status = size ? check_room(parent, size, err) : PI0_OK;
    if (status != PI0_OK)
        return status;
    static const char name[] = "/pi0_bench.XXXXXX", below[] = "/model";
    size_t bytes = strlen(parent) + sizeof name + sizeof below;
    out->folder = malloc(bytes);
    out->path = malloc(bytes);
    if (!out->folder || !out->path)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for a path");
    snprintf(out->folder, bytes, "%s%s", parent, name);
    if (!mkdtemp(out->folder)) {
        app_err(err, PI0_ERR_IO, "cannot make a temporary folder: %s", strerror(errno));
        app_err_field(err->where, "%.300s", parent);
        app_err_field(err->hint, "set TMPDIR to a folder that can be written into");
        free(out->folder);
        out->folder = NULL;
        return err->status;
    }
    snprintf(out->path, bytes, "%s%s", out->folder, below);
    return PI0_OK;
}

pi0_status app_bench_model_make(app_report *report, pi0_synth_options options, app_bench_model *out, pi0_error *err)
{
    app_signals_hold();
    pi0_status status = make_folder(out, options.hollow ? NULL : options.size, err);
    if (status != PI0_OK)
        return status;
    if (!options.hollow)
        app_note(report, "writing a random %s checkpoint of size %s into %s, for this run only", options.model, options.size, out->folder);
    options.progress = app_report_progress;
    options.progress_user = report;
    return pi0_synth(out->path, &options, err);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

void app_bench_model_remove(app_bench_model *made)
{
    if (made->folder)
        nftw(made->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(made->folder);
    free(made->path);
    *made = (app_bench_model){0};
    app_signals_release();
}
