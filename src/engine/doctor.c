/* pi0 doctor: what this machine is, which kernels and devices can be used and why the others cannot, which libraries are in. */
#include <png.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <zlib.h>

#include "engine/engine.h"
#include "kernels/kernels.h"

/* The value of the first "key : value" line of a /proc file; "" when there is none (another system, another processor). */
static void proc_value(const char *path, const char *key, char *out, size_t size)
{
    char line[512];
    *out = 0;
    FILE *file = fopen(path, "r");
    while (file && !*out && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) != 0)
            continue;
        const char *value = strchr(line, ':');
        if (!value)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (file)
        fclose(file);
}

static json_t *known(int count)
{
    return count > 0 ? json_integer(count) : json_null();
}

static void put_topology(json_t *machine, bool *failed)
{
    const pi0_topology t = pi0_topology_read();
    pi0_json_put(machine, "sockets", known(t.sockets), failed);
    pi0_json_put(machine, "cores", known(t.cores), failed);
    pi0_json_put(machine, "threads_per_core", known(t.cores ? t.cpus / t.cores : 0), failed);
    pi0_json_put(machine, "numa_nodes", known(t.nodes), failed);
    json_t *caches = json_array();
    for (int level = 0; level < PI0_CACHES; level++)
        if (t.cache_bytes[level])
            *failed |= json_array_append_new(caches, json_pack("{s:s,s:I,s:i}", "level", pi0_cache_names[level], "bytes",
                                                               (json_int_t)t.cache_bytes[level], "count", t.cache_count[level])) != 0;
    pi0_json_put(machine, "caches", caches, failed);
}

static json_t *machine_json(bool *failed)
{
    struct utsname name;
    char cpu[256], memory[64];
    proc_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
    proc_value("/proc/meminfo", "MemTotal", memory, sizeof memory);
    json_t *machine = json_object();
    if (uname(&name) == 0) {
        pi0_json_put(machine, "system", json_string(name.sysname), failed);
        pi0_json_put(machine, "kernel", json_string(name.release), failed);
        pi0_json_put(machine, "architecture", json_string(name.machine), failed);
    }
    pi0_json_put(machine, "processor", json_string(*cpu ? cpu : "unknown"), failed);
    pi0_json_put(machine, "memory", json_string(*memory ? memory : "unknown"), failed);
    pi0_json_put(machine, "physical_cores", json_integer(pi0_physical_cores()), failed);
    pi0_json_put(machine, "logical_cpus", json_integer(sysconf(_SC_NPROCESSORS_ONLN)), failed);
    pi0_json_put(machine, "page_bytes", json_integer(sysconf(_SC_PAGESIZE)), failed);
    put_topology(machine, failed);
    return machine;
}

static json_t *isa_json(bool *failed)
{
    pi0_isa_report reports[16];
    size_t n = pi0_kernels_report(reports, 16);
    json_t *list = json_array();
    for (size_t i = 0; i < n && i < 16; i++)
        *failed |= json_array_append_new(list, json_pack("{s:s,s:b,s:b,s:b,s:s}", "name", reports[i].name, "compiled",
                                                         (int)reports[i].compiled, "usable", (int)reports[i].usable, "used",
                                                         (int)reports[i].used, "reason", reports[i].reason)) != 0;
    return list;
}

/* A kernel of each family stands for all of it: instruction sets bring families whole. */
typedef void (*any_kernel)(void);

enum { FAMILIES = 2 * PI0_GEMM_FORMS + 1 };

static any_kernel kernel_of(const pi0_kernels *k, int family)
{
    if (family < PI0_GEMM_FORMS)
        return (any_kernel)k->gemm[family].multiply;
    return family < 2 * PI0_GEMM_FORMS ? (any_kernel)k->attention[family - PI0_GEMM_FORMS] : (any_kernel)k->layer_norm;
}

static void family_name(int family, char *out, size_t size)
{
    if (family == 2 * PI0_GEMM_FORMS)
        snprintf(out, size, "rows");
    else
        snprintf(out, size, "%s %s", family < PI0_GEMM_FORMS ? "product" : "attention", pi0_gemm_form_names[family % PI0_GEMM_FORMS]);
}

/* Which instruction set each family comes from: the lowest whose table has the same kernel. */
static pi0_status families_json(const char *cap, json_t **out, bool *failed, pi0_error *err)
{
    pi0_isa_report reports[16];
    const size_t n = pi0_kernels_report(reports, 16);
    pi0_kernels best, k;
    *out = NULL;
    PI0_TRY(pi0_kernels_select(cap, &best, err));
    *out = json_array();
    for (int family = 0; family < FAMILIES; family++) {
        char name[32];
        const char *from = NULL;
        const any_kernel kernel = kernel_of(&best, family);
        family_name(family, name, sizeof name);
        for (size_t i = 0; i < n && i < 16 && !from && kernel; i++)
            if (reports[i].usable && pi0_kernels_select(reports[i].name, &k, NULL) == PI0_OK && kernel_of(&k, family) == kernel)
                from = reports[i].name;
        *failed |= json_array_append_new(*out, json_pack("{s:s,s:s?,s:s}", "family", name, "instruction_set", from, "note",
                                                         from ? "" : "none here: the f32 one is used")) != 0;
    }
    return PI0_OK;
}

static json_t *devices_json(bool *failed)
{
    json_t *list = json_array();
    for (size_t i = 0; i < pi0_device_count(); i++) {
        char *reason = NULL;
        const bool usable = pi0_device_at(i)->probe(&reason);
        *failed |= json_array_append_new(list, json_pack("{s:s,s:b,s:s}", "name", pi0_device_at(i)->name, "usable", (int)usable, "reason",
                                                         reason ? reason : "")) != 0;
        pi0_free(reason);
    }
    static const char *const later[] = {"cuda", "ascend"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        *failed |= json_array_append_new(list, json_pack("{s:s,s:b,s:s}", "name", later[i], "usable", 0, "reason",
                                                         "this version has no backend for it")) != 0;
    return list;
}

static json_t *libraries_json(bool *failed)
{
    json_t *list = json_object();
    pi0_json_put(list, "pi0", json_string(pi0_version()), failed);
    pi0_json_put(list, "jansson", json_string(jansson_version_str()), failed);
    pi0_json_put(list, "libpng", json_string(png_get_libpng_ver(NULL)), failed);
    pi0_json_put(list, "libjpeg-turbo", json_string("through its TurboJPEG API"), failed);
    pi0_json_put(list, "zlib", json_string(zlibVersion()), failed);
    return list;
}

static pi0_status put_model(json_t *out, const char *path, const pi0_options *options, bool *failed, pi0_error *err)
{
    char *text = NULL;
    PI0_TRY(pi0_inspect(path, options, &text, err));
    json_t *model = json_loads(text, 0, NULL);
    pi0_text_free(&text);
    *failed |= !model;
    json_object_del(model, "tensors");
    pi0_json_put(out, "model", model, failed);
    return PI0_OK;
}

static pi0_status examine(json_t *out, const char *path, const pi0_options *options, bool measure, bool *failed, pi0_error *err)
{
    json_t *part;
    pi0_json_put(out, "machine", machine_json(failed), failed);
    pi0_json_put(out, "instruction_sets", isa_json(failed), failed);
    PI0_TRY(families_json(options->isa, &part, failed, err));
    pi0_json_put(out, "kernels", part, failed);
    pi0_json_put(out, "devices", devices_json(failed), failed);
    pi0_json_put(out, "libraries", libraries_json(failed), failed);
    if (measure) {
        PI0_TRY(pi0_measure(options, &part, err));
        pi0_json_put(out, "measured", part, failed);
    }
    return path ? put_model(out, path, options, failed, err) : PI0_OK;
}

pi0_status pi0_doctor(const char *path, const pi0_options *options, int measure, char **json, pi0_error *err)
{
    *json = NULL;
    pi0_options defaults;
    pi0_options_init(&defaults);
    bool failed = false;
    json_t *out = json_object();
    pi0_status status = examine(out, path, options ? options : &defaults, measure != 0, &failed, err);
    if (status == PI0_OK && !failed)
        *json = pi0_json_text(out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(out);
    return status != PI0_OK || *json ? status : pi0_fail_memory(err, 0, "a JSON text");
}
