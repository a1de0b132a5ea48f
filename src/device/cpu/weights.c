/* Weights on the CPU: which kernel multiplies by which, and what is packed at open.
 *
 * A checkpoint's rows can be multiplied where the file is mapped; the product then packs them a panel at a time, every time. That costs
 * some hundredths of a tall product and a third of a short one, in every inference; packing once costs about as much as one inference
 * loses. So every matrix is packed when it is opened, but for those that a calibration reads as well.
 */
#include <stdio.h>
#include <string.h>

#include "device/cpu/cpu.h"

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

static bool is_multiplied(const pi0_weight *as)
{
    return (as->use == PI0_USE_MATRIX || as->use == PI0_USE_EXACT) && as->most_rows > 0;
}

size_t pi0_cpu_weight_bytes(const pi0_device *device, const pi0_weight *as, pi0_dtype stored)
{
    if (!is_multiplied(as) || as->stays)
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

/* ------------------------------------------------------------------ weights that come packed */

/* Part of every name below: raise it when packed bytes change in a way that a small sample does not show. */
enum { PACK_VERSION = 1 };

static void fill_sample(void *values, pi0_dtype dtype, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float value = (float)((int)(i * 37 % 251) - 125);
        if (dtype == PI0_F32)
            ((float *)values)[i] = value;
        else
            ((uint16_t *)values)[i] = dtype == PI0_F16 ? pi0_f16_from_f32(value) : pi0_bf16_from_f32(value);
    }
}

/* What the kernel makes of a small matrix of the same kind: no change of its order can be forgotten in the name of a layout. */
static pi0_status sample_mark(const pi0_gemm_kernel *kernel, const pi0_gemm *like, uint32_t *out, pi0_error *err)
{
    enum { COLUMNS = 69 };
    pi0_gemm g = {.w_dtype = like->w_dtype, .ldw = COLUMNS, .k = COLUMNS};
    const int rows = kernel->tile_cols + 6;
    for (int i = 0; i < PI0_GEMM_PARTS && like->part[i].n > 0; i++)
        g.part[i] = (pi0_gemm_part){.n = rows, .pairs = like->part[i].pairs, .head = rows};
    const size_t count = (size_t)rows * COLUMNS, words = kernel->packed_bytes(&g) / sizeof(uint32_t);
    void *values = pi0_alloc_array(count, pi0_dtype_size(like->w_dtype));
    uint32_t *packed = pi0_alloc_array(words, sizeof *packed);
    uint64_t mark = PACK_VERSION;
    if (values && packed) {
        fill_sample(values, like->w_dtype, count);
        for (int i = 0; i < PI0_GEMM_PARTS; i++)
            g.part[i].w = values;
        kernel->pack(&g, 0, pi0_panels(&g, kernel->tile_cols), packed);
        for (size_t i = 0; i < words; i++)
            mark = pi0_mix64(mark ^ packed[i]);
    }
    pi0_free(packed);
    pi0_free(values);
    *out = (uint32_t)mark;
    return values && packed ? PI0_OK : pi0_fail_memory(err, count * sizeof(float), "a sample of a layout");
}

/* "cpu.bf16.c32.k512.bf16-rope256-rope256-plain.v1.0123abcd": form, columns of a panel, step of k, stored type, parts, version, sample. */
pi0_status pi0_cpu_layout(const pi0_device *device, const pi0_weight *as, pi0_dtype stored, char *out, pi0_error *err)
{
    const pi0_gemm_kernel *kernel = pi0_cpu_gemm_kernel(device, as);
    *out = 0;
    if (!is_multiplied(as) || as->stays)
        return PI0_OK;
    const pi0_gemm g = pi0_cpu_gemm_of(as, stored);
    uint32_t mark;
    PI0_TRY(sample_mark(kernel, &g, &mark, err));
    int used = snprintf(out, PI0_LAYOUT_TEXT, "cpu.%s.c%d.k%d.%s", pi0_gemm_form_names[kernel - device->kernels.gemm], kernel->tile_cols,
                        kernel->k_step, pi0_dtype_name(stored));
    for (int i = 0; i < PI0_GEMM_PARTS && g.part[i].n > 0; i++) {
        const pi0_gemm_part *part = &g.part[i];
        used += part->pairs == PI0_PAIRS_ROPE
                    ? snprintf(out + used, (size_t)(PI0_LAYOUT_TEXT - used), "-rope%d", part->head)
                    : snprintf(out + used, (size_t)(PI0_LAYOUT_TEXT - used), part->pairs == PI0_PAIRS_GEGLU ? "-geglu" : "-plain");
    }
    snprintf(out + used, (size_t)(PI0_LAYOUT_TEXT - used), ".v%d.%08x", PACK_VERSION, (unsigned)mark);
    return PI0_OK;
}

pi0_status pi0_cpu_import_packed(pi0_device *device, const pi0_weight *as, pi0_dtype stored, const void *packed, size_t bytes,
                                 pi0_device_weight *out, pi0_error *err)
{
    const pi0_gemm g = pi0_cpu_gemm_of(as, stored);
    const size_t expected = pi0_cpu_gemm_kernel(device, as)->packed_bytes(&g);
    *out = (pi0_device_weight){.host = {.dtype = stored, .rows = as->rows, .cols = as->cols}, .packed = true};
    if (bytes != expected) {
        pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "a packed weight has the wrong size");
        pi0_err_expected(err, "%zu bytes, for %lld x %lld values in this layout", expected, (long long)as->rows, (long long)as->cols);
        pi0_err_got(err, "%zu bytes", bytes);
        return status;
    }
    while (out->host.n_parts < PI0_GEMM_PARTS && g.part[out->host.n_parts].n > 0) {
        out->host.part[out->host.n_parts].rows = g.part[out->host.n_parts].n;
        out->host.n_parts++;
    }
    if ((uintptr_t)packed % PI0_ALIGN == 0) {
        out->buffer = (pi0_buffer){.host = (void *)(uintptr_t)packed, .bytes = bytes}; /* no handle: not the device's to free */
        return PI0_OK;
    }
    PI0_TRY(pi0_device_cpu.alloc(device, bytes, &out->buffer, err)); /* a file that another program wrote again */
    return pi0_device_cpu.write(device, &out->buffer, 0, packed, bytes, err);
}
