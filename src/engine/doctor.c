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

pi0_status pi0_doctor(const char *path, const pi0_options *options, char **json, pi0_error *err)
{
    *json = NULL;
    bool failed = false;
    json_t *out = json_object();
    pi0_json_put(out, "machine", machine_json(&failed), &failed);
    pi0_json_put(out, "instruction_sets", isa_json(&failed), &failed);
    pi0_json_put(out, "devices", devices_json(&failed), &failed);
    pi0_json_put(out, "libraries", libraries_json(&failed), &failed);
    if (path) {
        char *text = NULL;
        pi0_status status = pi0_inspect(path, options, &text, err);
        if (status != PI0_OK) {
            json_decref(out);
            return status;
        }
        json_t *model = json_loads(text, 0, NULL);
        pi0_text_free(&text);
        failed |= !model;
        json_object_del(model, "tensors");
        pi0_json_put(out, "model", model, &failed);
    }
    *json = failed ? NULL : json_dumps(out, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(out);
    return *json ? PI0_OK : pi0_fail_memory(err, 0, "a JSON text");
}
