/* Tracing by the public API, and where values lie in memory. */
#include "engine/engine.h"

/* ------------------------------------------------------------------ room for a trace */

typedef struct room {
    size_t spans, ops;
} room;

/* One run of a plan: its ops, and a span around those of each layer and of each part. */
static room room_of(const pi0_plan *plan)
{
    room r = {0};
    for (int i = 0; plan && i < plan->n_ops; i++) {
        const pi0_op *op = &plan->ops[i], *last = i ? op - 1 : NULL;
        r.spans += last && last->part == op->part ? 0 : 1;
        r.spans += last && last->part == op->part && last->layer == op->layer ? 0 : 1;
        r.spans++;
        r.ops++;
    }
    return r;
}

static room room_of_inference(const pi0_model *model, int steps)
{
    const room context = room_of(model->context.plan), schedule = room_of(model->schedule.plan), step = room_of(model->denoise.plan);
    const size_t tables = (size_t)((steps + model->sizes.times - 1) / model->sizes.times), n = (size_t)steps;
    enum {
        WHOLE = 4, /* inference, upload, check, denoise */
        LANE = 3,  /* preprocess, tokenize, post; and each camera */
        CALLER = 8
    };
    const size_t lanes = (size_t)model->sizes.lanes * (LANE + (size_t)model->facts.n_slots);
    return (room){.spans = WHOLE + CALLER + lanes + context.spans + tables * schedule.spans + n * (1 + step.spans),
                  .ops = context.ops + tables * schedule.ops + n * step.ops};
}

/* ------------------------------------------------------------------ on and off */

static void record(pi0_model *model, pi0_tracer *tracer)
{
    model->tracing = tracer;
    if (model->api->trace)
        model->api->trace(model->device, tracer);
}

pi0_status pi0_trace_start(pi0_model *model, size_t inferences, int steps, pi0_error *err)
{
    if (steps < 0 || steps > PI0_MAX_STEPS || inferences == 0) {
        pi0_status status =
            pi0_fail(err, PI0_ERR_ARGUMENT, "a trace needs room for at least one inference of a number of steps that there is");
        pi0_err_expected(err, "1 inference or more; 1 .. %d steps, or 0 for the recipe's", PI0_MAX_STEPS);
        pi0_err_got(err, "%zu inferences, %d steps", inferences, steps);
        return status;
    }
    room all = room_of_inference(model, steps ? steps : model->facts.steps);
    if (!pi0_mul(all.spans, inferences, &all.spans) || !pi0_mul(all.ops, inferences, &all.ops))
        return pi0_fail_memory(err, SIZE_MAX, "a trace");
    record(model, NULL);
    pi0_tracer_close(&model->tracer);
    PI0_TRY(pi0_tracer_open(all.spans, all.ops, model->info.threads, &model->tracer, err));
    record(model, model->tracer);
    return PI0_OK;
}

void pi0_trace_record(pi0_model *model, int on)
{
    record(model, on ? model->tracer : NULL);
}

void pi0_trace_add(pi0_model *model, const char *name, uint64_t start_ns, uint64_t end_ns)
{
    if (model->tracing)
        pi0_tracer_add(model->tracing, name, start_ns, end_ns);
}

/* ------------------------------------------------------------------ reading */

size_t pi0_trace_count(const pi0_model *model)
{
    return model->tracer ? pi0_tracer_count(model->tracer) : 0;
}

size_t pi0_trace_dropped(const pi0_model *model)
{
    return model->tracer ? pi0_tracer_dropped(model->tracer) : 0;
}

pi0_trace_span pi0_trace_at(const pi0_model *model, size_t index)
{
    if (index >= pi0_trace_count(model))
        return (pi0_trace_span){.name = "", .plan = "", .part = "", .product = "", .arithmetic = "", .parent = -1};
    pi0_trace_span span = pi0_tracer_at(model->tracer, index);
    const pi0_program *const programs[] = {&model->context, &model->schedule, &model->denoise};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (programs[i]->plan && span.plan == programs[i]->plan->name)
            span.product = pi0_product_name(model, programs[i], &programs[i]->plan->ops[span.op]);
    return span;
}

/* ------------------------------------------------------------------ the arena over time */

static json_t *ops_json(const pi0_plan *plan, bool *failed)
{
    json_t *list = json_array();
    for (int i = 0; i < plan->n_ops; i++)
        *failed |= json_array_append_new(list, json_pack("{s:s,s:s,s:i}", "name", pi0_op_infos[plan->ops[i].kind].name, "part",
                                                         plan->ops[i].part, "layer", plan->ops[i].layer)) != 0;
    return list;
}

static json_t *values_json(const pi0_plan *plan, const int *last_use, bool *failed)
{
    json_t *list = json_array();
    for (int i = 0; i < plan->n_ops; i++)
        for (int r = 0; r < pi0_op_results(&plan->ops[i]); r++) {
            const int t = pi0_op_result(&plan->ops[i], r);
            if (plan->tensors[t].kind != PI0_TENSOR_VALUE || plan->tensors[t].output)
                continue;
            *failed |=
                json_array_append_new(list, json_pack("{s:I,s:I,s:i,s:i,s:i,s:i}", "offset", (json_int_t)plan->tensors[t].offset, "bytes",
                                                      (json_int_t)pi0_tensor_bytes(plan, t), "first_op", i, "last_op", last_use[t], "rows",
                                                      plan->max_rows[plan->tensors[t].rows], "columns", plan->tensors[t].cols)) != 0;
        }
    return list;
}

static pi0_status put_plan(json_t *list, const pi0_plan *plan, bool *failed, pi0_error *err)
{
    const size_t n = (size_t)plan->n_tensors + 1;
    int *last_use = pi0_alloc_array(n, sizeof *last_use);
    if (!last_use)
        return pi0_fail_memory(err, n * sizeof *last_use, "a map of the arena");
    pi0_plan_last_uses(plan, last_use);
    *failed |=
        json_array_append_new(list, json_pack("{s:s,s:b,s:I,s:I,s:o,s:o}", "name", plan->name, "arena", (int)plan->use_arena, "arena_bytes",
                                              (json_int_t)plan->arena_bytes, "live_bytes", (json_int_t)plan->live_bytes, "ops",
                                              ops_json(plan, failed), "values", values_json(plan, last_use, failed))) != 0;
    pi0_free(last_use);
    return PI0_OK;
}

pi0_status pi0_memory_map(const pi0_model *model, char **json, pi0_error *err)
{
    const pi0_plan *const plans[] = {model->context.plan, model->schedule.plan, model->denoise.plan};
    bool failed = false;
    pi0_status status = PI0_OK;
    *json = NULL;
    json_t *out = json_object(), *list = json_array();
    for (size_t i = 0; i < sizeof plans / sizeof *plans && status == PI0_OK; i++)
        if (plans[i])
            status = put_plan(list, plans[i], &failed, err);
    pi0_json_put(out, "plans", list, &failed);
    if (status == PI0_OK && !failed)
        *json = pi0_json_text(out, JSON_INDENT(2));
    json_decref(out);
    return status != PI0_OK || *json ? status : pi0_fail_memory(err, 0, "a JSON text");
}
