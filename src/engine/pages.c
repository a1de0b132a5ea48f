/* The pages of weights that stay in their file come into the process when it is opened. */
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

uint64_t pi0_host_bytes(const pi0_host_weight *weight)
{
    int64_t rows = 0;
    for (int part = 0; part < weight->n_parts; part++)
        rows += weight->part[part].rows;
    return (uint64_t)(rows * weight->cols) * pi0_dtype_size(weight->dtype);
}

bool pi0_is_mapped(const pi0_weight *as, const pi0_device_weight *weight)
{
    return as->rows > 0 && !as->shared && as->use != PI0_USE_TABLE && !weight->buffer.handle && !weight->host.owned;
}

static void list_pages(page_list *list, const pi0_program *program)
{
    for (int i = 0; program->plan && i < program->plan->n_weights; i++) {
        const pi0_device_weight *weight = &program->weights[i];
        if (!pi0_is_mapped(&program->plan->weights[i], weight))
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

/* A few pieces for each thread at a time, so that the opening can be watched and stopped. */
static pi0_status take_all(const pi0_model *model, page_list *list, uint64_t *done, uint64_t total, pi0_error *err)
{
    const size_t some = 2 * (size_t)model->api->info(model->device).threads;
    for (size_t at = 0; at < list->count; at += some) {
        const size_t n = list->count - at < some ? list->count - at : some;
        PI0_TRY(pi0_open_progress(model, "weights", *done, total, err));
        model->api->on_host(model->device, take_range, list->ranges + at, (int)n);
        for (size_t i = 0; i < n; i++)
            *done += list->ranges[at + i].bytes;
    }
    return PI0_OK;
}

/* The first inference shall take as long as any other: thousands of page faults, or the disk, come before it and not into it. */
pi0_status pi0_take_pages(pi0_model *model, uint64_t *done, uint64_t total, pi0_error *err)
{
    const pi0_program *const programs[] = {&model->context, &model->schedule, &model->denoise};
    page_list list = {0};
    for (size_t i = 0; i < 3; i++)
        list_pages(&list, programs[i]);
    const size_t count = list.count;
    if (count == 0)
        return PI0_OK;
    list = (page_list){.ranges = pi0_alloc_array(count, sizeof *list.ranges)};
    if (!list.ranges)
        return pi0_fail_memory(err, count * sizeof *list.ranges, "a list of pages");
    for (size_t i = 0; i < 3; i++)
        list_pages(&list, programs[i]);
    pi0_status status = take_all(model, &list, done, total, err);
    pi0_free(list.ranges);
    return status;
}
