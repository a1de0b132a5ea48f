#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

enum { LARGE_FILE = 64 << 20 };

static const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode) ? "a directory" : S_ISFIFO(mode) ? "a pipe" : S_ISSOCK(mode) ? "a socket" : "a device";
}

static pi0_status fail_open(const char *path, pi0_error *err)
{
    bool absent = errno == ENOENT;
    pi0_status status = pi0_fail_errno(err, "open the file", path);
    if (absent && pi0_exists(path)) {
        pi0_err_got(err, "a symbolic link to a file that is not there");
        pi0_err_hint(err, "put back what it links to; in a download cache, fetch the file again");
    }
    return status;
}

pi0_status pi0_map_file(const char *path, pi0_mapping *out, pi0_error *err)
{
    out->data = NULL;
    out->bytes = 0;
    pi0_status status = PI0_OK;
    /* O_NONBLOCK: opening a pipe nobody writes to must not hang */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_open(path, err);
    struct stat info;
    if (fstat(fd, &info) != 0) {
        status = pi0_fail_errno(err, "examine the file", path);
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        status = pi0_fail(err, PI0_ERR_IO, "not a regular file");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "a file that can be mapped into memory");
        pi0_err_got(err, "%s", file_kind(info.st_mode));
        if (!S_ISDIR(info.st_mode))
            pi0_err_hint(err, "write what comes out of it to a file, and name that");
        goto done;
    }
    if ((uint64_t)info.st_size > PTRDIFF_MAX) {
        errno = EFBIG;
        status = pi0_fail_errno(err, "map the file", path);
        goto done;
    }
    if (info.st_size > 0) {
        void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            status = pi0_fail_errno(err, "map the file", path);
            goto done;
        }
        if (info.st_size >= LARGE_FILE)
            (void)madvise(data, (size_t)info.st_size, MADV_HUGEPAGE); /* a wish: fewer, larger pages as they come from the disk */
        out->data = data;
        out->bytes = (size_t)info.st_size;
    }
done:
    close(fd);
    return status;
}

void pi0_unmap(pi0_mapping *mapping)
{
    if (!mapping)
        return;
    if (mapping->data)
        munmap((void *)(uintptr_t)mapping->data, mapping->bytes);
    mapping->data = NULL;
    mapping->bytes = 0;
}

void pi0_map_release_pages(const void *data, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)data + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)data + bytes) / page * page;
    if (data && end > first)
        (void)madvise((void *)first, end - first, MADV_DONTNEED); /* advice: refusal costs memory, not correctness */
}

void pi0_map_take_pages(const void *data, size_t bytes)
{
#ifdef MADV_POPULATE_READ
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)data / page * page, end = (uintptr_t)data + bytes;
    if (bytes)
        (void)madvise((void *)first, end - first, MADV_POPULATE_READ); /* Linux 5.14; without it each page comes when it is read */
#else
    (void)data;
    (void)bytes;
#endif
}

bool pi0_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool pi0_is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool pi0_exists(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0;
}

char *pi0_path_join(const char *dir, const char *name)
{
    size_t n = strlen(dir);
    bool slash = n > 0 && dir[n - 1] != '/';
    return pi0_sprintf("%s%s%s", dir, slash ? "/" : "", name);
}
