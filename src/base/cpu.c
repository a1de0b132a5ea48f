#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

#define MAX_CPUS 4096

/* True for one CPU of each core: the lowest-numbered sibling that this process may use. */
static bool leads_its_core(int cpu, const cpu_set_t *allowed, size_t set_bytes)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (!file)
        return true; /* no topology told: every CPU counts */
    bool leads = true;
    int first, last;
    char separator;
    /* a list such as "0,4" or "0-1,8-9" */
    while (leads && fscanf(file, "%d", &first) == 1) {
        last = first;
        if (fscanf(file, "%c", &separator) == 1 && separator == '-' && fscanf(file, "%d%c", &last, &separator) < 1)
            last = first;
        for (int i = first; i <= last && i < cpu && leads; i++)
            leads = !(i >= 0 && CPU_ISSET_S(i, set_bytes, allowed));
    }
    fclose(file);
    return leads;
}

int pi0_core_cpus(int *cpus, int cap)
{
    int count = 0;
    size_t set_bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *allowed = CPU_ALLOC(MAX_CPUS);
    if (allowed && sched_getaffinity(0, set_bytes, allowed) == 0)
        for (int cpu = 0; cpu < MAX_CPUS; cpu++)
            if (CPU_ISSET_S(cpu, set_bytes, allowed) && leads_its_core(cpu, allowed, set_bytes) && count++ < cap)
                cpus[count - 1] = cpu;
    CPU_FREE(allowed);
    return count;
}

int pi0_physical_cores(void)
{
    int count = pi0_core_cpus(NULL, 0);
    if (count == 0)
        count = (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count;
}

typedef struct cpu_list {
    int cpus[MAX_CPUS];
    int count;
} cpu_list;

/* "0,2,8-11", every CPU once. */
static bool parse_cpus(const char *text, cpu_list *out)
{
    do {
        char *end;
        if (*text < '0' || *text > '9')
            return false;
        const long first = strtol(text, &end, 10);
        long last = first;
        if (*end == '-') {
            text = end + 1;
            if (*text < '0' || *text > '9')
                return false;
            last = strtol(text, &end, 10);
        }
        if (first > last || last >= MAX_CPUS)
            return false;
        for (long cpu = first; cpu <= last; cpu++) {
            for (int i = 0; i < out->count; i++)
                if (out->cpus[i] == cpu)
                    return false;
            out->cpus[out->count++] = (int)cpu;
        }
        text = end;
    } while (*text++ == ',');
    return text[-1] == '\0';
}

static int first_forbidden(const cpu_list *list, int count)
{
    size_t set_bytes = CPU_ALLOC_SIZE(MAX_CPUS);
    cpu_set_t *allowed = CPU_ALLOC(MAX_CPUS);
    int forbidden = -1;
    if (allowed && sched_getaffinity(0, set_bytes, allowed) == 0)
        for (int i = 0; i < count && forbidden < 0; i++)
            if (!CPU_ISSET_S(list->cpus[i], set_bytes, allowed))
                forbidden = list->cpus[i];
    CPU_FREE(allowed);
    return forbidden;
}

pi0_status pi0_cpus_of(const char *affinity, int count, int *cpus, pi0_error *err)
{
    cpu_list list = {.count = 0};
    pi0_status status = PI0_ERR_ARGUMENT;
    int forbidden;
    if (!strcmp(affinity, "cores")) {
        list.count = pi0_min_int(pi0_core_cpus(list.cpus, MAX_CPUS), MAX_CPUS);
    } else if (!parse_cpus(affinity, &list)) {
        pi0_fail(err, status, "the affinity is no list of CPUs");
        pi0_err_expected(err, "cores, or numbers below %d such as 0,2,8-11, each once", MAX_CPUS);
        pi0_err_got(err, "%s", affinity);
        return status;
    }
    if (list.count < count) {
        pi0_fail(err, status, "the affinity names fewer CPUs than there are threads");
        pi0_err_expected(err, "%d", count);
        pi0_err_got(err, "%d: %s", list.count, affinity);
        pi0_err_hint(err, "--threads %d, or more CPUs", list.count);
        return status;
    }
    if ((forbidden = first_forbidden(&list, count)) >= 0) {
        pi0_fail(err, status, "CPU %d is not there, or not for this process", forbidden);
        pi0_err_where(err, "the affinity %s", affinity);
        pi0_err_hint(err, "nproc and taskset -p $$ tell which CPUs a process may use");
        return status;
    }
    memcpy(cpus, list.cpus, (size_t)count * sizeof *cpus);
    return PI0_OK;
}
