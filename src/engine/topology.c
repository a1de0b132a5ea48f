/* What /sys tells of processors and caches. Nothing of it is certain to be there: containers hide it, emulators have none. */
#include <dirent.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"

enum { MAX_CPUS = 4096, CACHE_INDICES = 8 };

const char *const pi0_cache_names[PI0_CACHES] = {"L1", "L2", "L3"};

/* The first number of a file, or -1. A list of CPUs ("0-3,8") begins with its lowest. */
static long file_number(const char *path, char *unit)
{
    long value = -1;
    *unit = 0;
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%ld%c", &value, unit) < 1)
        value = -1;
    if (file)
        fclose(file);
    return value;
}

static long cpu_number(int cpu, const char *what, char *unit)
{
    char path[160];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", cpu, what);
    return file_number(path, unit);
}

static void count_caches(int cpu, pi0_topology *out)
{
    for (int index = 0; index < CACHE_INDICES; index++) {
        char name[64], unit;
        snprintf(name, sizeof name, "cache/index%d/level", index);
        const long level = cpu_number(cpu, name, &unit);
        snprintf(name, sizeof name, "cache/index%d/shared_cpu_list", index);
        const long first = cpu_number(cpu, name, &unit);
        snprintf(name, sizeof name, "cache/index%d/size", index);
        const long size = cpu_number(cpu, name, &unit);
        /* of level 1 index 0 holds data, index 1 instructions */
        if (level < 1 || level > PI0_CACHES || size <= 0 || (level == 1 && index > 0))
            continue;
        out->cache_bytes[level - 1] = (size_t)size << (unit == 'M' ? 20 : unit == 'K' ? 10 : 0);
        out->cache_count[level - 1] += first == cpu;
    }
}

static int count_nodes(void)
{
    int count = 0;
    DIR *nodes = opendir("/sys/devices/system/node");
    for (struct dirent *entry; nodes && (entry = readdir(nodes)) != NULL;)
        count += !strncmp(entry->d_name, "node", 4) && entry->d_name[4] >= '0' && entry->d_name[4] <= '9';
    if (nodes)
        closedir(nodes);
    return count;
}

/* Where /sys has no sizes libc may know them. */
static void ask_libc(pi0_topology *out)
{
#ifdef _SC_LEVEL1_DCACHE_SIZE
    static const int names[PI0_CACHES] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    for (int level = 0; level < PI0_CACHES; level++) {
        const long bytes = out->cache_bytes[level] ? 0 : sysconf(names[level]);
        if (bytes > 0)
            out->cache_bytes[level] = (size_t)bytes;
    }
#endif
    for (int level = 0; level < PI0_CACHES; level++)
        if (out->cache_bytes[level] && !out->cache_count[level])
            out->cache_count[level] = level < 2 ? pi0_max_int(out->cores, 1) : pi0_max_int(out->sockets, 1);
}

pi0_topology pi0_topology_read(void)
{
    pi0_topology out = {.nodes = count_nodes()};
    bool seen[MAX_CPUS] = {false}; /* sockets, by their number */
    for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
        char unit;
        const long socket = cpu_number(cpu, "topology/physical_package_id", &unit);
        const long sibling = cpu_number(cpu, "topology/thread_siblings_list", &unit);
        if (socket < 0 || sibling < 0) /* offline, or not there */
            continue;
        out.cpus++;
        out.cores += sibling == cpu;
        if (socket < MAX_CPUS && !seen[socket]) {
            seen[socket] = true;
            out.sockets++;
        }
        count_caches(cpu, &out);
    }
    ask_libc(&out);
    return out;
}
