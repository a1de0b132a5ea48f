/* device - the contract between the engine and a place that can compute: cpu/, later cuda/ and ascend/.
 *
 * A device takes plans and makes something that it can replay. Phases: OPEN (may allocate, capture, tune), HOT (only contents change; an
 * allocation is a bug, and an error), CLOSE. There is no silent fallback: compile refuses and names the op and its shape.
 */
#ifndef PI0_DEVICE_H
#define PI0_DEVICE_H

#include "plan/plan.h"

typedef struct pi0_device pi0_device; /* a backend's own state */
typedef struct pi0_exec pi0_exec;     /* a compiled plan */

/* Memory of the device. `host` is where the host may touch it directly, or NULL. */
typedef struct pi0_buffer {
    void *handle;
    void *host;
    size_t bytes;
} pi0_buffer;

/* A weight as the host has it: views into the mapped checkpoint, or evaluated into memory that `owned` says is its own. */
typedef struct pi0_host_weight {
    pi0_dtype dtype;
    int64_t rows, cols;
    int n_parts;
    struct {
        const void *data; /* row-major, dense */
        int64_t rows;
    } part[PI0_MAX_SOURCES]; /* one below the other */
    void *owned;             /* pi0_free it after import when the device did not keep it; NULL for views */
} pi0_host_weight;

/* A weight as a device has it. */
typedef struct pi0_device_weight {
    pi0_host_weight host; /* where the parts lie, when buffer is empty */
    pi0_buffer buffer;    /* memory of the device's */
    bool packed;          /* buffer is in the order of the device's kernels */
} pi0_device_weight;

enum { PI0_LAYOUT_TEXT = 96 };

typedef struct pi0_device_options {
    int threads;
    const char *affinity; /* as pi0_options.affinity */
    const char *isa;
    const pi0_log *log;
} pi0_device_options;

typedef struct pi0_device_info {
    const char *name;
    const char *detail;  /* CPU: the kernel table in use */
    const char *compute; /* how matrix products are done here, in each precision */
    const char *int8;    /* what int8 is here: "int8 (w8a8)", the bits of weights and of inputs */
    int threads;
} pi0_device_info;

/* What a plan that measures int8 adds up for each matrix product: over all elements of its results, as they leave the fused op, `want`
 * those of the plan and `got` those of the same inputs in int8. */
typedef struct pi0_product_error {
    double difference2; /* (got - want)^2 */
    double want2, got2, dot;
    double flop; /* of one of the two */
} pi0_product_error;

/* Where a compiled plan's inputs, outputs and weights lie: indexed by tensor id and weight index. */
typedef struct pi0_bindings {
    const pi0_buffer *tensors;        /* [n_tensors]; handle NULL for values that the arena holds */
    const pi0_device_weight *weights; /* [n_weights] as import_weight gave them; lives as long as the exec */
    pi0_buffer arena;                 /* at least plan->arena_bytes; shared by plans that never run at once */
    pi0_buffer workspace;             /* at least workspace(); likewise shared */
    pi0_product_error *const *errors; /* [n_weights] host memory, NULL where nobody asks; NULL: the plan does not measure */
} pi0_bindings;

typedef struct pi0_device_api {
    const char *name;
    /* Usable here? reason (malloc'ed, pi0_free) says why, or what was found; NULL when out of memory. */
    bool (*probe)(char **reason);
    pi0_status (*open)(const pi0_device_options *options, pi0_device **out, pi0_error *err);
    void (*close)(pi0_device **device);
    pi0_device_info (*info)(const pi0_device *device);
    void (*set_hot)(pi0_device *device, bool hot); /* from OPEN to HOT and back */
    /* Work of the engine's own on the threads that the device has on the host: fn(context, 0 .. tasks-1, thread). Returns when it is done.
     */
    void (*on_host)(pi0_device *device, pi0_task_fn fn, void *context, int tasks);

    pi0_status (*alloc)(pi0_device *device, size_t bytes, pi0_buffer *out, pi0_error *err); /* zeroed */
    void (*free)(pi0_device *device, pi0_buffer *buffer);
    pi0_status (*write)(pi0_device *device, const pi0_buffer *to, size_t offset, const void *from, size_t bytes, pi0_error *err);
    pi0_status (*read)(pi0_device *device, const pi0_buffer *from, size_t offset, void *to, size_t bytes, pi0_error *err);

    /* Takes a weight in: copies it in its own order, or leaves it where it is (out->buffer empty), where it must then outlive the device.
     * as: what the plan does with it. weight_bytes: how much memory of its own the device will take for it. */
    pi0_status (*import_weight)(pi0_device *device, const pi0_weight *as, const pi0_host_weight *host, pi0_device_weight *out,
                                pi0_error *err);
    size_t (*weight_bytes)(const pi0_device *device, const pi0_weight *as, pi0_dtype stored);
    /* The order of its kernels for this weight, by a name that other machines understand: where two layouts have one name, the same values
     * become the same bytes, which this device can multiply by. Empty: it has no such order. out: PI0_LAYOUT_TEXT bytes. */
    pi0_status (*layout)(const pi0_device *device, const pi0_weight *as, pi0_dtype stored, char *out, pi0_error *err);
    /* Takes in bytes that are in that order already. They stay where they lie, and must outlive the device, when they are aligned to
     * PI0_ALIGN; of another size than this weight's they are PI0_ERR_FORMAT. */
    pi0_status (*import_packed)(pi0_device *device, const pi0_weight *as, pi0_dtype stored, const void *packed, size_t bytes,
                                pi0_device_weight *out, pi0_error *err);

    bool (*takes)(const pi0_op *op); /* fused ops only; every core op is taken */
    size_t (*workspace)(const pi0_device *device, const pi0_plan *plan);
    pi0_status (*compile)(pi0_device *device, const pi0_plan *plan, const pi0_bindings *bindings, pi0_exec **out, pi0_error *err);
    void (*release)(pi0_device *device, pi0_exec **exec);
    pi0_status (*run)(pi0_device *device, pi0_exec *exec, const pi0_params *params, pi0_error *err); /* returns when it is done */
    double (*part_ms)(const pi0_exec *exec, const char *part); /* of the last run: time in the ops of one part of the plan */
    /* What runs from now on is recorded, inside of the span that the caller of run has open: a stage for each part of the plan, a span for
     * each layer and op. tracer NULL: no longer. May be absent: then only stages of the
     * engine are recorded. */
    void (*trace)(pi0_device *device, pi0_tracer *tracer);
} pi0_device_api;

extern const pi0_device_api pi0_device_cpu;

#endif
