#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

bool pi0_shape_bytes(const int64_t *shape, int rank, size_t element, size_t *bytes)
{
    size_t total = element;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return false;
        if (shape[i] == 0)
            empty = true;
        else if (!pi0_mul(total, (size_t)shape[i], &total))
            return false; /* even beside a zero extent: strides would overflow */
    }
    *bytes = empty ? 0 : total;
    return true;
}

static atomic_uint_fast64_t allocations;

void pi0_count_allocation(void)
{
    atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
}

uint64_t pi0_allocation_count(void)
{
    return atomic_load_explicit(&allocations, memory_order_relaxed);
}

void *pi0_alloc_unset(size_t bytes)
{
    if (bytes > (size_t)PTRDIFF_MAX - PI0_ALIGN)
        return NULL;
    void *p = NULL;
    pi0_count_allocation();
    return posix_memalign(&p, PI0_ALIGN, pi0_round_up(bytes ? bytes : 1, PI0_ALIGN)) == 0 ? p : NULL;
}

void *pi0_alloc(size_t bytes)
{
    void *p = pi0_alloc_unset(bytes);
    if (p)
        memset(p, 0, pi0_round_up(bytes ? bytes : 1, PI0_ALIGN));
    return p;
}

void pi0_free(void *p)
{
    free(p);
}

enum { HUGE_FROM = 4 << 20 }; /* below, a large page would mostly hold what was not asked for */

void *pi0_alloc_pages(size_t bytes)
{
    if (bytes == 0 || bytes > (size_t)PTRDIFF_MAX)
        return NULL;
    pi0_count_allocation();
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (bytes >= HUGE_FROM)
        madvise(p, bytes, MADV_HUGEPAGE); /* a wish: without it the pages are small */
    return p;
}

void pi0_free_pages(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes);
}

size_t pi0_page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

bool pi0_scratch_reserve(pi0_scratch *scratch, size_t bytes)
{
    if (scratch->bytes >= bytes)
        return true;
    pi0_scratch_release(scratch);
    if (bytes > (size_t)PTRDIFF_MAX - pi0_page_bytes())
        return false;
    bytes = pi0_round_up(bytes, pi0_page_bytes());
    if (!(scratch->data = pi0_alloc_pages(bytes)))
        return false;
    scratch->bytes = bytes;
    return true;
}

void pi0_scratch_release(pi0_scratch *scratch)
{
    pi0_free_pages(scratch->data, scratch->bytes);
    *scratch = (pi0_scratch){0};
}

void *pi0_alloc_array(size_t count, size_t element)
{
    size_t bytes;
    return pi0_mul(count, element, &bytes) ? pi0_alloc(bytes) : NULL;
}

void pi0_ids_free(int64_t **ids)
{
    if (!ids)
        return;
    free(*ids);
    *ids = NULL;
}

/* Bytes of a line of six letters, such as "VmHWM:"; 0 where the system does not tell. */
static uint64_t process_bytes(const char *name)
{
    char line[128];
    unsigned long long kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r"); /* getrusage would count what ran before exec too */
    while (file && !kilobytes && fgets(line, sizeof line, file))
        if (strncmp(line, name, 6) == 0)
            kilobytes = strtoull(line + 6, NULL, 10);
    if (file)
        fclose(file);
    return kilobytes * 1024;
}

uint64_t pi0_peak_resident(void)
{
    return process_bytes("VmHWM:");
}

uint64_t pi0_resident(void)
{
    return process_bytes("VmRSS:");
}
