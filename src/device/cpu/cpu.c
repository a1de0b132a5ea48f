/* The device contract for the CPU: memory, weights, lifetime. */
#include <string.h>

#include "device/cpu/cpu.h"

static bool cpu_probe(char **reason)
{
    pi0_kernels kernels;
    bool usable = pi0_kernels_select(NULL, &kernels, NULL) == PI0_OK;
    *reason = usable ? pi0_sprintf("%d cores, kernels %s", pi0_physical_cores(), kernels.isa) : pi0_sprintf("no kernel table can be used");
    return usable;
}

static void cpu_close(pi0_device **device)
{
    if (!device || !*device)
        return;
    pi0_pool_close(&(*device)->pool);
    pi0_free(*device);
    *device = NULL;
}

static pi0_status cpu_open(const pi0_device_options *options, pi0_device **out, pi0_error *err)
{
    *out = NULL;
    pi0_device *device = pi0_alloc(sizeof *device);
    if (!device)
        return pi0_fail_memory(err, sizeof *device, "the CPU device");
    device->threads = options->threads > 0 ? options->threads : pi0_physical_cores();
    pi0_status status;
    PI0_TRY_GOTO(pi0_kernels_select(options->isa, &device->kernels, err));
    int cpus[PI0_MAX_THREADS];
    if (options->affinity)
        PI0_TRY_GOTO(pi0_cpus_of(options->affinity, device->threads, cpus, err));
    PI0_TRY_GOTO(pi0_pool_open(device->threads, options->affinity ? cpus : NULL, &device->pool, err));
    *out = device;
    return PI0_OK;
fail:
    cpu_close(&device);
    return status;
}

static const char bf16_native[] = "bf16: weights and inputs in bf16, f32 accumulation; f32: weights as stored, widened, f32 inputs";
static const char bf16_widened[] = "weights as stored, widened to f32 inside the product; f32 inputs, f32 accumulation";

static pi0_device_info cpu_info(const pi0_device *device)
{
    return (pi0_device_info){.name = "cpu",
                             .detail = device->kernels.isa,
                             .compute = device->kernels.gemm[PI0_GEMM_BF16].multiply ? bf16_native : bf16_widened,
                             .int8 = device->kernels.gemm[PI0_GEMM_I8].title,
                             .threads = device->threads};
}

static void cpu_set_hot(pi0_device *device, bool hot)
{
    device->hot = hot;
}

static void cpu_on_host(pi0_device *device, pi0_task_fn fn, void *context, int tasks)
{
    pi0_pool_run(device->pool, fn, context, tasks);
}

/* Arenas and packed weights: a small page for every 4 KB of them costs more time than filling them. */
static bool in_pages(size_t bytes)
{
    return bytes >= (size_t)4 << 20;
}

static pi0_status cpu_alloc(pi0_device *device, size_t bytes, pi0_buffer *out, pi0_error *err)
{
    *out = (pi0_buffer){0};
    if (device->hot)
        return pi0_fail(err, PI0_ERR_INTERNAL, "a device buffer of %zu bytes was asked for while inferences run", bytes);
    void *memory = in_pages(bytes) ? pi0_alloc_pages(bytes) : pi0_alloc(bytes);
    if (!memory)
        return pi0_fail_memory(err, bytes, "a device buffer");
    *out = (pi0_buffer){.handle = memory, .host = memory, .bytes = bytes};
    return PI0_OK;
}

static void cpu_free(pi0_device *device, pi0_buffer *buffer)
{
    (void)device;
    if (in_pages(buffer->bytes))
        pi0_free_pages(buffer->handle, buffer->bytes);
    else
        pi0_free(buffer->handle);
    *buffer = (pi0_buffer){0};
}

static pi0_status check_range(const pi0_buffer *buffer, size_t offset, size_t bytes, pi0_error *err)
{
    size_t end;
    if (buffer->host && pi0_add(offset, bytes, &end) && end <= buffer->bytes)
        return PI0_OK;
    return pi0_fail(err, PI0_ERR_INTERNAL, "a transfer of %zu bytes at %zu passes the end of a device buffer of %zu", bytes, offset,
                    buffer->bytes);
}

static pi0_status cpu_write(pi0_device *device, const pi0_buffer *to, size_t offset, const void *from, size_t bytes, pi0_error *err)
{
    (void)device;
    PI0_TRY(check_range(to, offset, bytes, err));
    if (bytes)
        memcpy((uint8_t *)to->host + offset, from, bytes);
    return PI0_OK;
}

static pi0_status cpu_read(pi0_device *device, const pi0_buffer *from, size_t offset, void *to, size_t bytes, pi0_error *err)
{
    (void)device;
    PI0_TRY(check_range(from, offset, bytes, err));
    if (bytes)
        memcpy(to, (const uint8_t *)from->host + offset, bytes);
    return PI0_OK;
}

static bool cpu_takes(const pi0_op *op)
{
    return pi0_op_infos[op->kind].fused;
}

static size_t cpu_workspace(const pi0_device *device, const pi0_plan *plan)
{
    return (size_t)device->threads * pi0_cpu_thread_workspace(device, plan) + pi0_cpu_shared_workspace(device, plan) +
           pi0_cpu_probe_workspace(device, plan);
}

static void cpu_release(pi0_device *device, pi0_exec **exec)
{
    (void)device;
    if (!exec || !*exec)
        return;
    pi0_free((*exec)->data);
    pi0_free((*exec)->calls);
    pi0_free((*exec)->last_use);
    pi0_free(*exec);
    *exec = NULL;
}

static pi0_status place_tensors(pi0_exec *exec, const pi0_bindings *bindings, pi0_error *err)
{
    const pi0_plan *plan = exec->plan;
    for (int t = 0; t < plan->n_tensors; t++) {
        const pi0_tensor *tensor = &plan->tensors[t];
        if (tensor->kind == PI0_TENSOR_WEIGHT) {
            const pi0_device_weight *weight = &bindings->weights[tensor->weight];
            exec->data[t] = weight->buffer.host ? weight->buffer.host : (void *)(uintptr_t)weight->host.part[0].data;
        } else if (tensor->kind == PI0_TENSOR_INPUT || tensor->output) {
            if (!bindings->tensors[t].host || bindings->tensors[t].bytes < pi0_tensor_bytes(plan, t))
                return pi0_fail(err, PI0_ERR_INTERNAL, "the plan '%s' has no buffer, or one too small, for '%s'", plan->name, tensor->name);
            exec->data[t] = bindings->tensors[t].host;
        } else if (plan->use_arena) {
            exec->data[t] = (uint8_t *)bindings->arena.host + tensor->offset;
        }
    }
    return PI0_OK;
}

static pi0_status bind_calls(pi0_exec *exec, pi0_error *err)
{
    const pi0_plan *plan = exec->plan;
    for (int i = 0; i < plan->n_ops; i++) {
        pi0_cpu_op call = pi0_cpu_bind(&plan->ops[i]);
        if (!call) {
            pi0_status status = pi0_fail(err, PI0_ERR_UNSUPPORTED, "the CPU device has no op %s", pi0_op_infos[plan->ops[i].kind].name);
            pi0_err_where(err, "plan '%s', op %d, result [%s, %d]", plan->name, i, pi0_rows_names[plan->tensors[plan->ops[i].out].rows],
                          plan->tensors[plan->ops[i].out].cols);
            return status;
        }
        if (exec->calls)
            exec->calls[i] = call;
    }
    return PI0_OK;
}

static pi0_status cpu_compile(pi0_device *device, const pi0_plan *plan, const pi0_bindings *bindings, pi0_exec **out, pi0_error *err)
{
    *out = NULL;
    pi0_exec *exec = pi0_alloc(sizeof *exec);
    if (!exec)
        return pi0_fail_memory(err, sizeof *exec, "a compiled plan");
    const size_t n = (size_t)plan->n_tensors + 1;
    exec->device = device;
    exec->plan = plan;
    exec->data = pi0_alloc_array(n, sizeof *exec->data);
    exec->weights = bindings->weights;
    exec->last_use = pi0_alloc_array(n, sizeof *exec->last_use);
    exec->calls = plan->use_replay ? pi0_alloc_array((size_t)plan->n_ops + 1, sizeof *exec->calls) : NULL;
    exec->workspace = bindings->workspace.host;
    exec->workspace_bytes = pi0_cpu_thread_workspace(device, plan);
    exec->errors = bindings->errors;
    exec->probe = exec->workspace + cpu_workspace(device, plan) - pi0_cpu_probe_workspace(device, plan);
    pi0_status status = PI0_OK;
    if (!exec->data || !exec->last_use || (plan->use_replay && !exec->calls)) {
        status = pi0_fail_memory(err, n * sizeof *exec->data, "a compiled plan");
        goto fail;
    }
    pi0_plan_last_uses(plan, exec->last_use);
    PI0_TRY_GOTO(place_tensors(exec, bindings, err));
    PI0_TRY_GOTO(bind_calls(exec, err));
    *out = exec;
    return PI0_OK;
fail:
    cpu_release(device, &exec);
    return status;
}

/* ------------------------------------------------------------------ running */

static uint64_t *part_clock(pi0_exec *exec, const char *part)
{
    for (int i = 0; i < exec->n_parts; i++)
        if (exec->part[i] == part)
            return &exec->part_ns[i];
    if (exec->n_parts == PI0_CPU_PARTS)
        return &exec->part_ns[PI0_CPU_PARTS - 1];
    exec->part[exec->n_parts] = part;
    exec->part_ns[exec->n_parts] = 0;
    return &exec->part_ns[exec->n_parts++];
}

static bool owns_value(const pi0_exec *exec, int tensor)
{
    const pi0_tensor *t = &exec->plan->tensors[tensor];
    return !exec->plan->use_arena && t->kind == PI0_TENSOR_VALUE && !t->output;
}

/* Arena off: frees every value that op `i` was the last to use. */
static void free_dead_values(pi0_exec *exec, int i)
{
    const pi0_op *op = &exec->plan->ops[i];
    for (int j = 0; j < PI0_OP_INPUTS + pi0_op_results(op); j++) {
        int t = j < PI0_OP_INPUTS ? op->in[j] : pi0_op_result(op, j - PI0_OP_INPUTS);
        if (t >= 0 && owns_value(exec, t) && exec->last_use[t] == i) {
            pi0_free(exec->data[t]);
            exec->data[t] = NULL;
        }
    }
}

/* Arena off: memory for what the op writes, which like the arena's holds anything before. */
static pi0_status alloc_results(pi0_exec *exec, const pi0_op *op, pi0_error *err)
{
    for (int r = 0; r < pi0_op_results(op); r++) {
        const int t = pi0_op_result(op, r);
        if (owns_value(exec, t) && !(exec->data[t] = pi0_alloc_unset(pi0_tensor_bytes(exec->plan, t))))
            return pi0_fail_memory(err, pi0_tensor_bytes(exec->plan, t), pi0_op_infos[op->kind].name);
    }
    return PI0_OK;
}

static pi0_status run_op(pi0_exec *exec, int i, const pi0_params *params, pi0_error *err)
{
    const pi0_op *op = &exec->plan->ops[i];
    pi0_tracer *tracer = exec->device->tracer;
    const int64_t span = tracer ? pi0_tracer_begin(tracer, PI0_SPAN_OP, pi0_op_infos[op->kind].name, -1) : -1;
    pi0_status status = alloc_results(exec, op, err);
    if (status == PI0_OK) {
        (exec->calls ? exec->calls[i] : pi0_cpu_bind(op))(exec, op, params);
        free_dead_values(exec, i);
    }
    pi0_span_end(tracer, span);
    if (span >= 0)
        pi0_cpu_describe(exec, i, params, pi0_tracer_span(tracer, span));
    return status;
}

/* From op i on as long as they are of its part and layer; returns the first that is not. */
static int run_layer(pi0_exec *exec, int i, const pi0_params *params, pi0_status *status, pi0_error *err)
{
    const pi0_plan *plan = exec->plan;
    const pi0_op *first = &plan->ops[i];
    pi0_tracer *tracer = first->layer >= 0 ? exec->device->tracer : NULL;
    const int64_t span = tracer ? pi0_tracer_begin(tracer, PI0_SPAN_LAYER, first->part, first->layer) : -1;
    for (; i < plan->n_ops && plan->ops[i].part == first->part && plan->ops[i].layer == first->layer && *status == PI0_OK; i++)
        *status = run_op(exec, i, params, err);
    pi0_span_end(tracer, span);
    return i;
}

static pi0_status cpu_run(pi0_device *device, pi0_exec *exec, const pi0_params *params, pi0_error *err)
{
    const pi0_plan *plan = exec->plan;
    pi0_status status = PI0_OK;
    exec->n_parts = 0;
    for (int i = 0; i < plan->n_ops && status == PI0_OK;) {
        const char *part = plan->ops[i].part;
        const uint64_t start = pi0_now_ns();
        const int64_t span = pi0_span_begin(device->tracer, part, -1);
        while (i < plan->n_ops && plan->ops[i].part == part && status == PI0_OK)
            i = run_layer(exec, i, params, &status, err);
        pi0_span_end(device->tracer, span);
        *part_clock(exec, part) += pi0_now_ns() - start;
    }
    for (int t = 0; t < plan->n_tensors && status != PI0_OK; t++)
        if (owns_value(exec, t)) {
            pi0_free(exec->data[t]);
            exec->data[t] = NULL;
        }
    return status;
}

static void cpu_trace(pi0_device *device, pi0_tracer *tracer)
{
    device->tracer = tracer;
    pi0_pool_trace(device->pool, tracer);
}

static double cpu_part_ms(const pi0_exec *exec, const char *part)
{
    uint64_t ns = 0;
    for (int i = 0; i < exec->n_parts; i++)
        if (exec->part[i] && !strcmp(exec->part[i], part))
            ns += exec->part_ns[i];
    return (double)ns * 1e-6;
}

const pi0_device_api pi0_device_cpu = {
    .name = "cpu",
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .info = cpu_info,
    .set_hot = cpu_set_hot,
    .on_host = cpu_on_host,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .write = cpu_write,
    .read = cpu_read,
    .import_weight = pi0_cpu_import_weight,
    .weight_bytes = pi0_cpu_weight_bytes,
    .layout = pi0_cpu_layout,
    .import_packed = pi0_cpu_import_packed,
    .takes = cpu_takes,
    .workspace = cpu_workspace,
    .compile = cpu_compile,
    .release = cpu_release,
    .run = cpu_run,
    .part_ms = cpu_part_ms,
    .trace = cpu_trace,
};
