/* The memory planner: liveness of every value, then an offset in one arena.
 *
 * Values are placed largest first, each at the lowest offset where it overlaps no value that is alive at the same time ("greedy by size",
 * Pisarchyk and Lee, Efficient Memory Management for Deep Neural Net Inference, 2020). An op marked in_place may write where its first
 * input lies when that is the input's last use: the pair is placed as one value.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct interval {
    int tensor; /* the first of its chain */
    int first, last;
    size_t bytes, offset;
} interval;

size_t pi0_tensor_bytes(const pi0_plan *plan, int tensor)
{
    const pi0_tensor *t = &plan->tensors[tensor];
    if (t->kind == PI0_TENSOR_WEIGHT)
        return 0;
    size_t rows = (size_t)pi0_max_int(plan->max_rows[t->rows], 1);
    return pi0_round_up(rows * (size_t)t->cols * pi0_dtype_size(t->dtype), PI0_ALIGN);
}

void pi0_plan_last_uses(const pi0_plan *plan, int *last_use)
{
    for (int t = 0; t < plan->n_tensors; t++)
        last_use[t] = -1;
    for (int i = 0; i < plan->n_ops; i++) {
        const pi0_op *op = &plan->ops[i];
        for (int j = 0; j < PI0_OP_INPUTS; j++)
            if (op->in[j] >= 0)
                last_use[op->in[j]] = i;
        for (int r = 0; r < pi0_op_results(op); r++)
            last_use[pi0_op_result(op, r)] =
                pi0_max_int(last_use[pi0_op_result(op, r)], i); /* what nobody reads needs room too, to be written */
    }
}

static bool in_arena(const pi0_plan *plan, int tensor)
{
    return plan->tensors[tensor].kind == PI0_TENSOR_VALUE && !plan->tensors[tensor].output;
}

/* One interval a chain of in-place writes; home[t] = index of the interval that holds tensor t, or -1. */
static int find_intervals(const pi0_plan *plan, const int *last_use, interval *list, int *home)
{
    int n = 0;
    for (int t = 0; t < plan->n_tensors; t++)
        home[t] = -1;
    for (int i = 0; i < plan->n_ops; i++) {
        const pi0_op *op = &plan->ops[i];
        for (int r = 1; r < pi0_op_results(op); r++) {
            const int more = pi0_op_result(op, r);
            if (!in_arena(plan, more))
                continue;
            list[n] = (interval){.tensor = more, .first = i, .last = last_use[more], .bytes = pi0_tensor_bytes(plan, more)};
            home[more] = n++;
        }
        if (!in_arena(plan, op->out))
            continue;
        int from = op->in[0];
        bool reuse = pi0_op_infos[op->kind].in_place && from >= 0 && home[from] >= 0 && last_use[from] == i &&
                     pi0_tensor_bytes(plan, from) == pi0_tensor_bytes(plan, op->out);
        for (int j = 1; reuse && j < PI0_OP_INPUTS; j++)
            reuse = op->in[j] != from;
        if (!reuse) {
            list[n] = (interval){.tensor = op->out, .first = i, .bytes = pi0_tensor_bytes(plan, op->out)};
            home[op->out] = n++;
        } else {
            home[op->out] = home[from];
        }
        list[home[op->out]].last = last_use[op->out];
    }
    return n;
}

static int by_size(const void *a, const void *b)
{
    const interval *x = *(const interval *const *)a, *y = *(const interval *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->first - y->first;
}

static bool overlaps_in_time(const interval *a, const interval *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* placed: intervals with an offset, sorted by offset. Inserts `fresh` at the lowest gap that fits. */
static void place(interval **placed, int n_placed, interval *fresh)
{
    size_t offset = 0;
    for (int i = 0; i < n_placed; i++) {
        const interval *other = placed[i];
        if (!overlaps_in_time(fresh, other))
            continue;
        if (offset + fresh->bytes <= other->offset)
            break;
        if (other->offset + other->bytes > offset)
            offset = other->offset + other->bytes;
    }
    fresh->offset = offset;
    int at = n_placed;
    for (; at > 0 && placed[at - 1]->offset > offset; at--)
        placed[at] = placed[at - 1];
    placed[at] = fresh;
}

static size_t most_alive(const pi0_plan *plan, const interval *list, int n)
{
    size_t most = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        size_t alive = 0;
        for (int k = 0; k < n; k++)
            if (list[k].first <= i && i <= list[k].last)
                alive += list[k].bytes;
        most = alive > most ? alive : most;
    }
    return most;
}

pi0_status pi0_plan_layout(pi0_plan *plan, pi0_error *err)
{
    size_t n = (size_t)plan->n_tensors + 1;
    int *last_use = pi0_alloc_array(n, sizeof *last_use);
    int *home = pi0_alloc_array(n, sizeof *home);
    interval *list = pi0_alloc_array(n, sizeof *list);
    interval **order = pi0_alloc_array(n, sizeof *order);
    interval **placed = pi0_alloc_array(n, sizeof *placed);
    pi0_status status = PI0_OK;
    if (!last_use || !home || !list || !order || !placed) {
        status = pi0_fail_memory(err, n * sizeof *list, "the memory planner");
        goto fail;
    }
    pi0_plan_last_uses(plan, last_use);
    int count = find_intervals(plan, last_use, list, home);
    for (int i = 0; i < count; i++)
        order[i] = &list[i];
    qsort(order, (size_t)count, sizeof *order, by_size);
    plan->arena_bytes = 0;
    for (int i = 0; i < count; i++) {
        place(placed, i, order[i]);
        size_t end = order[i]->offset + order[i]->bytes;
        plan->arena_bytes = end > plan->arena_bytes ? end : plan->arena_bytes;
    }
    for (int t = 0; t < plan->n_tensors; t++)
        if (home[t] >= 0)
            plan->tensors[t].offset = list[home[t]].offset;
    plan->live_bytes = most_alive(plan, list, count);
fail:
    pi0_free(last_use);
    pi0_free(home);
    pi0_free(list);
    pi0_free(order);
    pi0_free(placed);
    return status;
}
