/* What NVIDIA's management library says of the GPUs, where its driver is installed: loaded when it is asked for, never needed. */
#include <dlfcn.h>
#include <string.h>

#include "base/base.h"

enum { NVML_OK = 0, NVML_TEMPERATURE_GPU = 0 };

typedef struct nvml_utilisation {
    unsigned gpu, memory; /* percent */
} nvml_utilisation;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

struct pi0_gpus {
    void *library;
    bool initialised;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*device)(unsigned index, void **device);
    int (*name)(void *device, char *name, unsigned size);
    int (*utilisation)(void *device, nvml_utilisation *out);
    int (*memory)(void *device, nvml_memory *out);
    int (*temperature)(void *device, int sensor, unsigned *celsius);
    int (*power)(void *device, unsigned *milliwatts);
};

static const char library_name[] = "libnvidia-ml.so.1";

/* A function of the library's; a data pointer cannot be cast to it in C. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool find_all(pi0_gpus *g)
{
    return find(g->library, "nvmlInit_v2", &g->init) && find(g->library, "nvmlShutdown", &g->shutdown) &&
           find(g->library, "nvmlDeviceGetCount_v2", &g->count) && find(g->library, "nvmlDeviceGetHandleByIndex_v2", &g->device) &&
           find(g->library, "nvmlDeviceGetName", &g->name) && find(g->library, "nvmlDeviceGetUtilizationRates", &g->utilisation) &&
           find(g->library, "nvmlDeviceGetMemoryInfo", &g->memory) && find(g->library, "nvmlDeviceGetTemperature", &g->temperature) &&
           find(g->library, "nvmlDeviceGetPowerUsage", &g->power);
}

static pi0_status load(pi0_gpus *g, pi0_error *err)
{
    pi0_status status = PI0_OK;
    g->library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (!g->library) {
        const char *reason = dlerror();
        status = pi0_fail(err, PI0_ERR_DEVICE, "there is no NVIDIA driver to ask about GPUs");
        pi0_err_got(err, "%s", reason ? reason : "");
    } else if (!find_all(g)) {
        status = pi0_fail(err, PI0_ERR_DEVICE, "the NVIDIA driver is too old to be asked about GPUs");
        pi0_err_expected(err, "nvmlInit_v2 and its contemporaries");
    } else {
        const int code = g->init();
        g->initialised = code == NVML_OK;
        if (!g->initialised)
            status = pi0_fail(err, PI0_ERR_DEVICE, "the NVIDIA driver does not answer: nvmlInit_v2 gives %d", code);
    }
    if (status != PI0_OK)
        pi0_err_where(err, "%s", library_name);
    return status;
}

pi0_status pi0_gpus_open(pi0_gpus **out, pi0_error *err)
{
    *out = NULL;
    pi0_gpus *g = pi0_alloc(sizeof *g);
    if (!g)
        return pi0_fail_memory(err, sizeof *g, "the GPUs' figures");
    pi0_status status = load(g, err);
    if (status != PI0_OK)
        pi0_gpus_close(&g);
    *out = g;
    return status;
}

static pi0_gpu read_one(const pi0_gpus *g, void *device)
{
    pi0_gpu gpu = {.utilisation = -1, .temperature_c = -1, .power_w = -1};
    nvml_utilisation busy;
    nvml_memory memory;
    unsigned value;
    if (g->name(device, gpu.name, sizeof gpu.name) != NVML_OK)
        *gpu.name = '\0';
    if (g->utilisation(device, &busy) == NVML_OK)
        gpu.utilisation = busy.gpu * 0.01;
    if (g->memory(device, &memory) == NVML_OK) {
        gpu.memory_used = memory.used;
        gpu.memory_total = memory.total;
    }
    if (g->temperature(device, NVML_TEMPERATURE_GPU, &value) == NVML_OK)
        gpu.temperature_c = value;
    if (g->power(device, &value) == NVML_OK)
        gpu.power_w = value * 1e-3;
    return gpu;
}

size_t pi0_gpus_read(pi0_gpus *gpus, pi0_gpu *out, size_t cap)
{
    unsigned count = 0;
    void *device;
    if (gpus->count(&count) != NVML_OK)
        return 0;
    for (unsigned i = 0; i < count && i < cap; i++)
        out[i] =
            gpus->device(i, &device) == NVML_OK ? read_one(gpus, device) : (pi0_gpu){.utilisation = -1, .temperature_c = -1, .power_w = -1};
    return count;
}

void pi0_gpus_close(pi0_gpus **handle)
{
    if (!handle || !*handle)
        return;
    if ((*handle)->initialised)
        (*handle)->shutdown();
    if ((*handle)->library)
        dlclose((*handle)->library);
    pi0_free(*handle);
    *handle = NULL;
}
