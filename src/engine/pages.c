/* The pages of a packed file come into the process when it is opened. */
#include "engine/engine.h"

enum { PIECE = 32 << 20 }; /* bytes of a task: evens out the end, and a disk reads it in one go */

typedef struct page_range {
    const uint8_t *data;
    size_t bytes;
} page_range;

typedef struct page_list {
    page_range *ranges; /* [capacity], or NULL while they are counted */
    size_t count;
} page_list;

static void list_range(page_list *list, const void *data, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE, list->count++)
        if (list->ranges)
            list->ranges[list->count] = (page_range){(const uint8_t *)data + at, bytes - at < PIECE ? bytes - at : PIECE};
}

/* What the device reads where the file is mapped, but for tables, of which an inference reads some rows. */
static void list_pages(const pi0_program *program, page_list *list)
{
    for (int i = 0; program->plan && i < program->plan->n_weights; i++) {
        const pi0_weight *as = &program->plan->weights[i];
        const pi0_device_weight *weight = &program->weights[i];
        if (as->rows == 0 || as->shared || as->use == PI0_USE_TABLE || weight->buffer.handle || weight->host.owned)
            continue;
        if (weight->packed)
            list_range(list, weight->buffer.host, weight->buffer.bytes);
        for (int part = 0; part < weight->host.n_parts && !weight->packed; part++)
            list_range(list, weight->host.part[part].data,
                       (size_t)(weight->host.part[part].rows * weight->host.cols) * pi0_dtype_size(weight->host.dtype));
    }
}

static void take_range(void *context, int task, int thread)
{
    (void)thread;
    const page_range *range = &((const page_range *)context)[task];
    pi0_map_take_pages(range->data, range->bytes);
}

/* The first inference shall take as long as any other: thousands of page faults, or the disk, come before it and not into it. */
pi0_status pi0_take_pages(pi0_model *model, pi0_error *err)
{
    const pi0_program *const programs[] = {&model->context, &model->schedule, &model->denoise};
    page_list list = {0};
    for (size_t i = 0; i < 3; i++)
        list_pages(programs[i], &list);
    const size_t count = list.count;
    list = (page_list){.ranges = pi0_alloc_array(count + 1, sizeof *list.ranges)};
    if (!list.ranges)
        return pi0_fail_memory(err, count * sizeof *list.ranges, "a list of pages");
    for (size_t i = 0; i < 3; i++)
        list_pages(programs[i], &list);
    model->api->on_host(model->device, take_range, list.ranges, (int)count);
    pi0_free(list.ranges);
    return PI0_OK;
}
