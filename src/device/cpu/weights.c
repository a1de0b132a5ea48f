/* Weights on the CPU: which kernel multiplies by which, and what is packed at open.
 *
 * A checkpoint's rows can be multiplied where the file is mapped; the product then packs them a panel at a time, every time. That costs
 * a hundredth of a tall product and a third of a short one, so what only meets few rows (the action expert, ten times an inference) is
 * packed once and the rest costs no memory and no time to load. int8 is always packed: that is where weights are rounded.
 */
#include <string.h>

#include "device/cpu/cpu.h"

enum { PACK_BELOW_ROWS = 128 };

const pi0_gemm_kernel *pi0_cpu_gemm_kernel(const pi0_device *device, const pi0_weight *weight)
{
    const pi0_gemm_kernel *gemm = device->kernels.gemm;
    if (weight->precision == PI0_PRECISION_INT8)
        return &gemm[PI0_GEMM_I8];
    return weight->precision == PI0_PRECISION_BF16 && gemm[PI0_GEMM_BF16].multiply ? &gemm[PI0_GEMM_BF16] : &gemm[PI0_GEMM_F32];
}

pi0_gemm pi0_cpu_gemm_of(const pi0_weight *weight, pi0_dtype stored)
{
    static const pi0_pairs pairs[] = {[PI0_PAIRING_ROPE] = PI0_PAIRS_ROPE, [PI0_PAIRING_GEGLU] = PI0_PAIRS_GEGLU};
    pi0_gemm g = {.w_dtype = stored, .ldw = (size_t)weight->cols, .k = (int)weight->cols};
    g.part[0].n = (int)weight->rows;
    for (int i = 0; i < weight->n_sources && weight->form == PI0_FORM_TENSOR; i++)
        g.part[i] = (pi0_gemm_part){.n = (int)weight->source_rows[i], .pairs = pairs[weight->pairing[i]], .head = weight->head};
    return g;
}

size_t pi0_cpu_linear_workspace(const pi0_device *device, const pi0_weight *weight)
{
    const pi0_gemm g = pi0_cpu_gemm_of(weight, PI0_F32); /* the widest */
    return pi0_cpu_gemm_kernel(device, weight)->workspace_bytes(&g);
}

size_t pi0_cpu_weight_bytes(const pi0_device *device, const pi0_weight *as, pi0_dtype stored)
{
    const bool matrix = as->use == PI0_USE_MATRIX || as->use == PI0_USE_EXACT;
    if (!matrix || as->most_rows == 0 || as->stays || (as->most_rows >= PACK_BELOW_ROWS && as->precision != PI0_PRECISION_INT8))
        return 0;
    const pi0_gemm g = pi0_cpu_gemm_of(as, stored);
    return pi0_cpu_gemm_kernel(device, as)->packed_bytes(&g);
}

typedef struct pack_job {
    const pi0_gemm_kernel *kernel;
    pi0_gemm gemm;
    int panels, chunk; /* a task */
    void *packed;
} pack_job;

static void run_pack(void *context, int task, int thread)
{
    (void)thread;
    const pack_job *job = context;
    const int p0 = task * job->chunk;
    job->kernel->pack(&job->gemm, p0, pi0_min_int(p0 + job->chunk, job->panels), job->packed);
}

void pi0_cpu_pack(pi0_device *device, const pi0_weight *as, const pi0_host_weight *host, void *packed)
{
    pack_job job = {.kernel = pi0_cpu_gemm_kernel(device, as), .gemm = pi0_cpu_gemm_of(as, host->dtype), .packed = packed};
    for (int i = 0; i < host->n_parts; i++)
        job.gemm.part[i].w = host->part[i].data;
    job.panels = pi0_panels(&job.gemm, job.kernel->tile_cols);
    const int pieces = pi0_min_int(job.panels, device->threads * 4);
    job.chunk = (job.panels + pieces - 1) / pieces;
    pi0_pool_run(device->pool, run_pack, &job, (job.panels + job.chunk - 1) / job.chunk);
}

static bool aligned(const pi0_host_weight *host)
{
    for (int i = 0; i < host->n_parts; i++)
        if ((uintptr_t)host->part[i].data % pi0_dtype_size(host->dtype))
            return false;
    return true;
}

/* The parts in one aligned copy, for the rare file that misaligns them. */
static pi0_status straighten(pi0_device *device, pi0_host_weight *host, pi0_buffer *memory, pi0_error *err)
{
    const size_t row = (size_t)host->cols * pi0_dtype_size(host->dtype);
    PI0_TRY(pi0_device_cpu.alloc(device, (size_t)host->rows * row, memory, err));
    uint8_t *to = memory->host;
    for (int i = 0; i < host->n_parts; i++) {
        memcpy(to, host->part[i].data, (size_t)host->part[i].rows * row);
        host->part[i].data = to;
        to += (size_t)host->part[i].rows * row;
    }
    return PI0_OK;
}

pi0_status pi0_cpu_import_weight(pi0_device *device, const pi0_weight *as, const pi0_host_weight *host, pi0_device_weight *out,
                                 pi0_error *err)
{
    *out = (pi0_device_weight){.host = *host};
    pi0_buffer straight = {0};
    if (!aligned(host))
        PI0_TRY(straighten(device, &out->host, &straight, err));
    const size_t packed = pi0_cpu_weight_bytes(device, as, host->dtype);
    if (packed == 0) {
        out->buffer = straight;
        return PI0_OK;
    }
    pi0_status status = pi0_device_cpu.alloc(device, packed, &out->buffer, err);
    if (status == PI0_OK) {
        pi0_cpu_pack(device, as, &out->host, out->buffer.host);
        out->packed = true;
    }
    pi0_device_cpu.free(device, &straight);
    return status;
}
