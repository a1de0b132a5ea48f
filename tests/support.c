#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_PATH 4096

/* ------------------------------------------------------------------ files */

const char *pi0_test_shared_dir(void)
{
    static char path[MAX_PATH];
    const char *given = getenv("PI0_SHARED");
    snprintf(path, sizeof path, "%s", given ? given : PI0_TEST_DATA "/../../../shared");
    return access(path, R_OK) == 0 ? path : NULL;
}

const char *pi0_test_need_shared(const char *name)
{
    static char path[MAX_PATH];
    const char *dir = pi0_test_shared_dir();
    snprintf(path, sizeof path, "%s/%s", dir ? dir : "../shared", name);
    if (access(path, R_OK) != 0) {
        print_message("skipped: %s is not on this machine (PI0_SHARED names the folder that holds it)\n", path);
        skip();
    }
    return path;
}

const char *pi0_test_data(const char *name)
{
    static char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/%s", PI0_TEST_DATA, name);
    if (access(path, R_OK) != 0)
        fail_msg("%s: %s", path, strerror(errno));
    return path;
}

char *pi0_test_make_dir(void)
{
    const char *parent = getenv("TMPDIR");
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/pi0-test-XXXXXX", parent && *parent ? parent : "/tmp");
    if (!mkdtemp(path))
        fail_msg("mkdtemp %s: %s", path, strerror(errno));
    return strdup(path);
}

static int remove_one(const char *path, const struct stat *info, int flag, struct FTW *walk)
{
    (void)info;
    (void)flag;
    (void)walk;
    return remove(path);
}

void pi0_test_remove_dir(char *dir)
{
    if (!dir)
        return;
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(dir);
}

int pi0_test_count_files(const char *dir)
{
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(stream));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(stream);
    return count;
}

const char *pi0_test_path(const char *dir, const char *name)
{
    static char path[MAX_PATH];
    assert_true(snprintf(path, sizeof path, "%s/%s", dir, name) < (int)sizeof path);
    return path;
}

void pi0_test_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(bytes ? fwrite(data, 1, bytes, file) : 0, bytes);
    assert_int_equal(fclose(file), 0);
}

void *pi0_test_read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(file);
    rewind(file);
    char *data = malloc(size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, size, file), size);
    fclose(file);
    data[size] = '\0';
    if (bytes)
        *bytes = size;
    return data;
}

/* ------------------------------------------------------------------ errors */

static void print_fields(const pi0_error *err)
{
    print_message("error %s: %s\n", pi0_status_name(err->status), err->what);
    const char *names[] = {"where", "expected", "got", "try"};
    const char *texts[] = {err->where, err->expected, err->got, err->hint};
    for (int i = 0; i < 4; i++)
        if (texts[i][0])
            print_message("  %s: %s\n", names[i], texts[i]);
    if (err->list)
        print_message("%s\n", err->list);
}

void pi0_test_assert_error(pi0_error *err, pi0_status status, ...)
{
    const char *fields[] = {err->what, err->where, err->expected, err->got, err->hint, err->list ? err->list : ""};
    if (err->status != status) {
        print_fields(err);
        fail_msg("expected status %s, got %s", pi0_status_name(status), pi0_status_name(err->status));
    }
    va_list texts;
    va_start(texts, status);
    for (const char *text; (text = va_arg(texts, const char *));) {
        int found = 0;
        for (int i = 0; i < 6; i++)
            found |= strstr(fields[i], text) != NULL;
        if (!found) {
            print_fields(err);
            fail_msg("the error does not say \"%s\"", text);
        }
    }
    va_end(texts);
    pi0_error_clear(err);
}

void pi0_test_assert_ok(pi0_status status, pi0_error *err, const char *file, int line)
{
    if (status == PI0_OK)
        return;
    if (err)
        print_fields(err);
    _fail(file, line);
}

/* ------------------------------------------------------------------ guarded memory */

pi0_test_guard pi0_test_guard_open(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    pi0_test_guard guard = {NULL, NULL, inner + 2 * page};
    guard.base = mmap(NULL, guard.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(guard.base != MAP_FAILED);
    char *first = (char *)guard.base + page;
    if (inner)
        assert_int_equal(mprotect(first, inner, PROT_READ | PROT_WRITE), 0);
    guard.data = first + (inner - bytes);
    return guard;
}

void pi0_test_guard_close(pi0_test_guard *guard)
{
    if (guard->base)
        munmap(guard->base, guard->mapped);
    memset(guard, 0, sizeof *guard);
}

/* ------------------------------------------------------------------ allocation failure (the linker sends every call here: --wrap) */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **out, size_t align, size_t bytes);
void *__real_aligned_alloc(size_t align, size_t bytes);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **out, size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset);

static atomic_bool counting;
static atomic_long counted, chosen;

static int refused(void)
{
    if (!atomic_load(&counting) || atomic_fetch_add(&counted, 1) + 1 != atomic_load(&chosen))
        return 0;
    errno = ENOMEM;
    return 1;
}

void *__wrap_malloc(size_t bytes)
{
    return refused() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return refused() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return refused() ? NULL : __real_realloc(old, bytes);
}

int __wrap_posix_memalign(void **out, size_t align, size_t bytes)
{
    return refused() ? ENOMEM : __real_posix_memalign(out, align, bytes);
}

void *__wrap_aligned_alloc(size_t align, size_t bytes)
{
    return refused() ? NULL : __real_aligned_alloc(align, bytes);
}

char *__wrap_strdup(const char *text)
{
    return refused() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t bytes)
{
    return refused() ? NULL : __real_strndup(text, bytes);
}

/* Memory alone: a file that cannot be mapped is another failure. */
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset)
{
    return flags & MAP_ANONYMOUS && refused() ? MAP_FAILED : __real_mmap(at, bytes, access, flags, file, offset);
}

void pi0_test_fail_allocation(long nth)
{
    /* jansson is a shared library and calls libc by itself unless it is told otherwise */
    json_set_alloc_funcs(__wrap_malloc, free);
    atomic_store(&counted, 0);
    atomic_store(&chosen, nth);
    atomic_store(&counting, 1);
}

int pi0_test_allocation_failed(void)
{
    atomic_store(&counting, 0);
    return atomic_load(&chosen) > 0 && atomic_load(&counted) >= atomic_load(&chosen);
}

long pi0_test_allocation_count(void)
{
    return atomic_load(&counted);
}

void pi0_test_fail_allocations(const char *name, pi0_test_call *call, void *context, pi0_test_sweep which)
{
    pi0_error err = {0};
    pi0_test_fail_allocation(0);
    PI0_ASSERT_OK(call(context, &err), &err);
    const long total = pi0_test_allocation_count(), tail = total - which.last;
    long failures = 0, wrong = 0;
    for (long n = 1; n <= total; n += n < which.first || n > tail ? 1 : which.stride) {
        pi0_test_fail_allocation(n);
        const pi0_status status = call(context, &err);
        if (!pi0_test_allocation_failed())
            break;
        if (status != PI0_ERR_MEMORY && status != PI0_ERR_IO) {
            print_error("%s: with allocation %ld of %ld failing the status is %s: %s\n", name, n, total, pi0_status_name(status), err.what);
            wrong++;
        }
        pi0_error_clear(&err);
        failures++;
    }
    assert_int_equal(wrong, 0);
    assert_true(failures > 0);
    print_message("%s: %ld allocations, %ld of them failed one at a time\n", name, total, failures);
    pi0_test_fail_allocation(0);
    PI0_ASSERT_OK(call(context, &err), &err);
}
