#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define MAX_TRIES 100 /* temporary names taken by other threads, or left by a killed process of the same id */

static void forget(pi0_writer *writer)
{
    pi0_free(writer->path);
    pi0_free(writer->temporary);
    memset(writer, 0, sizeof *writer);
}

/* Opens a new file beside writer->path, with a name that `ls` hides. */
static int open_temporary(pi0_writer *writer)
{
    const char *slash = strrchr(writer->path, '/');
    const char *name = slash ? slash + 1 : writer->path;
    int dir_length = slash ? (int)(name - writer->path) : 0;
    for (int i = 0; i < MAX_TRIES; i++) {
        /* .150: the longest names still leave room for the rest below NAME_MAX */
        writer->temporary = pi0_sprintf("%.*s.%.150s.%ld.%d.tmp", dir_length, writer->path, name, (long)getpid(), i);
        if (!writer->temporary) {
            errno = ENOMEM;
            return -1;
        }
        int fd = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0)
            return fd;
        int code = errno;
        pi0_free(writer->temporary);
        writer->temporary = NULL;
        errno = code;
        if (code != EEXIST)
            return -1;
    }
    return -1;
}

pi0_status pi0_writer_open(pi0_writer *writer, const char *path, pi0_error *err)
{
    memset(writer, 0, sizeof *writer);
    struct stat info;
    bool exists = stat(path, &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) {
        pi0_status status = pi0_fail(err, PI0_ERR_IO, "cannot write: there is a directory of that name");
        pi0_err_where(err, "%s", path);
        return status;
    }
    /* A link stays a link: the file that it points to is the one replaced. */
    char *target = exists ? realpath(path, NULL) : NULL;
    writer->path = target ? target : pi0_strdup(path);
    if (!writer->path)
        return pi0_fail_memory(err, strlen(path) + 1, "a path");
    /* A rename over /dev/stdout or a pipe would replace it: such a target is written in place. */
    bool in_place = exists && !S_ISREG(info.st_mode);
    int fd = in_place ? open(path, O_WRONLY | O_CLOEXEC) : open_temporary(writer);
    if (fd < 0) {
        pi0_status status = pi0_fail_errno(err, "create the file", path);
        forget(writer);
        return status;
    }
    if (exists && !in_place)
        (void)fchmod(fd, info.st_mode & 0777); /* not ours to change? then it has the mode of a new file */
    writer->file = fdopen(fd, "wb");
    if (!writer->file) {
        pi0_status status = pi0_fail_errno(err, "create the file", path);
        close(fd);
        pi0_writer_abort(writer);
        return status;
    }
    return PI0_OK;
}

pi0_status pi0_writer_put(pi0_writer *writer, const void *data, size_t bytes, pi0_error *err)
{
    if (!writer->file)
        return pi0_fail(err, PI0_ERR_IO, "cannot write: the file is not open");
    if (bytes && fwrite(data, 1, bytes, writer->file) != bytes)
        return pi0_fail_errno(err, "write the file", writer->path);
    writer->bytes += bytes;
    return PI0_OK;
}

pi0_status pi0_writer_skip(pi0_writer *writer, uint64_t bytes, pi0_error *err)
{
    if (!writer->file)
        return pi0_fail(err, PI0_ERR_IO, "cannot write: the file is not open");
    if (fflush(writer->file) != 0 || ftruncate(fileno(writer->file), (off_t)(writer->bytes + bytes)) != 0 ||
        fseeko(writer->file, 0, SEEK_END) != 0)
        return pi0_fail_errno(err, "write the file", writer->path);
    writer->bytes += bytes;
    return PI0_OK;
}

/* Everything on the disk, or errno says why not. Pipes and terminals have no disk to wait for. */
static bool flush_all(pi0_writer *writer)
{
    if (fflush(writer->file) != 0 || ferror(writer->file))
        return false;
    return fsync(fileno(writer->file)) == 0 || (!writer->temporary && (errno == EINVAL || errno == ENOTSUP || errno == EROFS));
}

pi0_status pi0_writer_commit(pi0_writer *writer, pi0_error *err)
{
    pi0_status status;
    if (!writer->file)
        return pi0_fail(err, PI0_ERR_IO, "cannot write: the file is not open");
    if (!flush_all(writer)) {
        status = pi0_fail_errno(err, "write the file", writer->path);
        goto fail;
    }
    FILE *file = writer->file;
    writer->file = NULL;
    if (fclose(file) != 0) {
        status = pi0_fail_errno(err, "write the file", writer->path);
        goto fail;
    }
    if (writer->temporary && rename(writer->temporary, writer->path) != 0) {
        status = pi0_fail_errno(err, "rename the finished file", writer->path);
        goto fail;
    }
    forget(writer);
    return PI0_OK;
fail:
    pi0_writer_abort(writer);
    return status;
}

void pi0_writer_abort(pi0_writer *writer)
{
    if (!writer)
        return;
    if (writer->file)
        fclose(writer->file);
    if (writer->temporary)
        unlink(writer->temporary);
    forget(writer);
}

pi0_status pi0_file_write(const char *path, const void *data, size_t bytes, pi0_error *err)
{
    pi0_writer writer;
    PI0_TRY(pi0_writer_open(&writer, path, err));
    pi0_status status = pi0_writer_put(&writer, data, bytes, err);
    if (status != PI0_OK) {
        pi0_writer_abort(&writer);
        return status;
    }
    return pi0_writer_commit(&writer, err);
}
