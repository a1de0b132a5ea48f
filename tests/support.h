/* support - what several tests need. Every test program is linked with it (CMakeLists.txt).
 *
 * A test that names itself in its source with
 *     ctest: label=threads label=long timeout=300
 * inside a comment gets these CTest properties; `threads` joins the ThreadSanitizer run, `long` runs under `./dev test --full` only.
 */
#ifndef PI0_TEST_SUPPORT_H
#define PI0_TEST_SUPPORT_H

/* cmocka.h asks for these four first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pi0.h"

/* The folder of large reference files that no clone carries, or NULL: environment PI0_SHARED, else <root>/../shared. */
#define PI0_SHARED_DIR pi0_test_shared_dir()
const char *pi0_test_shared_dir(void);

/* Path of a file below the shared folder; when it is absent prints why and skips the running test. Valid until the next call. */
const char *pi0_test_need_shared(const char *name);

/* Path of a file below tests/data; fails the test when it is absent. Valid until the next call. */
const char *pi0_test_data(const char *name);

/* A new empty directory below $TMPDIR or /tmp; pi0_test_remove_dir removes it with all that is in it and frees the path. */
char *pi0_test_make_dir(void);
void pi0_test_remove_dir(char *dir);
int pi0_test_count_files(const char *dir); /* entries but . and .. */

/* dir/name as text that lives until the next call. */
const char *pi0_test_path(const char *dir, const char *name);

void pi0_test_write_file(const char *path, const void *data, size_t bytes);
void *pi0_test_read_file(const char *path, size_t *bytes); /* malloc'ed, a NUL after the last byte */

/* Asserts that an error holds `status` and that each text (NULL-terminated list) occurs in one of its fields; clears it. */
void pi0_test_assert_error(pi0_error *err, pi0_status status, ...);

/* Asserts success and prints the error when there is one. */
#define PI0_ASSERT_OK(status, err) pi0_test_assert_ok((status), (err), __FILE__, __LINE__)
void pi0_test_assert_ok(pi0_status status, pi0_error *err, const char *file, int line);

/* Memory whose `bytes` end exactly before an inaccessible page; another lies before its first page. */
typedef struct pi0_test_guard {
    void *data;
    void *base;
    size_t mapped;
} pi0_test_guard;

pi0_test_guard pi0_test_guard_open(size_t bytes);
void pi0_test_guard_close(pi0_test_guard *guard);

/* Allocation failure: counts the allocations of the library and of the test (malloc, calloc, realloc, posix_memalign, aligned_alloc,
 * strdup, strndup, mmap of memory, and jansson's) and lets the nth (from 1) fail, once; 0 = none fails. Typical loop:
 *
 *     for (long n = 1; ; n++) {
 *         pi0_test_fail_allocation(n);
 *         status = call();
 *         if (!pi0_test_allocation_failed()) break;      // n is past the last one: status must be PI0_OK
 *         assert_int_equal(status, PI0_ERR_MEMORY);
 *     }
 */
void pi0_test_fail_allocation(long nth);
int pi0_test_allocation_failed(void); /* 1 when the chosen one was reached; ends the counting */
long pi0_test_allocation_count(void); /* since pi0_test_fail_allocation */

/* That loop for a call of thousands of allocations: it fails at each of the first and of the last ones, and at every `stride`th between.
 * The call must succeed when none fails, before and after, and with one failing say so: PI0_ERR_MEMORY, or PI0_ERR_IO where the C library
 * could not open a file for want of memory. It leaves nothing allocated. */
typedef pi0_status pi0_test_call(void *context, pi0_error *err);
typedef struct pi0_test_sweep {
    long first, last, stride;
} pi0_test_sweep;
void pi0_test_fail_allocations(const char *name, pi0_test_call *call, void *context, pi0_test_sweep which);

#endif
