#include <sched.h>
#include <stdlib.h>
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
