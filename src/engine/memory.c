/* The memory plan: what a model will take, before a weight is read; and what fits where it does not. */
#include <string.h>

#include "engine/engine.h"

/* ------------------------------------------------------------------ weights */

static uint64_t *by_numbers(pi0_memory *m, const pi0_weight *weight, pi0_dtype dtype)
{
    if (weight->precision == PI0_PRECISION_INT8)
        return &m->weights_int8;
    return dtype == PI0_BF16 ? &m->weights_bf16 : dtype == PI0_F16 ? &m->weights_f16 : &m->weights_f32;
}

static void count_packing(const pi0_placement *place, pi0_pack_use *use)
{
    use->ready += place->ready != NULL;
    use->ready_bytes += place->ready ? place->mapped : 0;
    use->packed += place->packs;
    use->packed_bytes += place->packs ? place->owned : 0;
    if (place->packs && !*use->missing)
        memcpy(use->missing, place->layout, sizeof use->missing);
}

static pi0_status count_weights(const pi0_site *site, const pi0_plan *plan, pi0_blueprint *b, pi0_error *err)
{
    pi0_memory *m = &b->memory;
    for (int i = 0; i < plan->n_weights; i++) {
        const pi0_weight *weight = &plan->weights[i];
        pi0_placement place;
        if (weight->rows == 0 || weight->shared)
            continue;
        PI0_TRY(pi0_place_weight(site->checkpoint, site->api, site->device, weight, &place, err));
        count_packing(&place, &b->pack_use);
        if (weight->use == PI0_USE_TABLE && !place.owned) {
            m->token_table += place.mapped;
            continue;
        }
        m->weights_mapped += place.mapped;
        m->weights_owned += place.owned;
        *by_numbers(m, weight, place.stored) += place.mapped + place.owned;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ everything else */

enum { PLANS = 3 };

static bool has_output(const pi0_plan *plan, const char *name)
{
    for (int t = 0; plan && t < plan->n_tensors; t++)
        if (plan->tensors[t].output && !strcmp(plan->tensors[t].name, name))
            return true;
    return false;
}

/* Buffers that plans are bound to, but for the K/V cache. An input that an earlier plan writes is that plan's buffer. */
static uint64_t io_bytes(const pi0_plan *const plans[PLANS])
{
    uint64_t bytes = 0;
    for (int p = 0; p < PLANS; p++)
        for (int t = 0; plans[p] && t < plans[p]->n_tensors; t++) {
            const pi0_tensor *tensor = &plans[p]->tensors[t];
            bool counts = (tensor->kind == PI0_TENSOR_INPUT || tensor->output) && strncmp(tensor->name, "prefix_", 7) != 0;
            for (int earlier = 0; counts && !tensor->output && earlier < p; earlier++)
                counts = !has_output(plans[earlier], tensor->name);
            bytes += counts ? pi0_tensor_bytes(plans[p], t) : 0;
        }
    return bytes;
}

size_t pi0_host_floats(const pi0_arch *arch, const pi0_policy_sizes *sizes)
{
    const size_t picture = (size_t)arch->vision.tokens, prefix = (size_t)sizes->cameras * picture + (size_t)sizes->max_tokens;
    return pi0_max_size(picture * (size_t)arch->prefix.width, prefix * (size_t)(arch->prefix.kv_heads * arch->prefix.head_dim));
}

uint64_t pi0_param_bytes(const pi0_arch *arch, const pi0_policy_sizes *sizes, const int rows[PI0_ROWS_COUNT])
{
    const uint64_t prefix = (uint64_t)rows[PI0_ROWS_PREFIX], suffix = (uint64_t)rows[PI0_ROWS_SUFFIX];
    const uint64_t positions = prefix + 4 * suffix + (uint64_t)rows[PI0_ROWS_TEXT];
    return positions * sizeof(int32_t) + prefix + suffix * (uint64_t)arch->action_dim * sizeof(float) +
           pi0_host_floats(arch, sizes) * sizeof(float);
}

pi0_status pi0_plan_memory(const pi0_site *site, pi0_blueprint *b, pi0_error *err)
{
    pi0_memory *m = &b->memory;
    const pi0_plan *const plans[PLANS] = {b->plans.context, b->plans.schedule, b->plans.denoise};
    size_t arena = 0;
    for (int i = 0; i < PLANS; i++)
        if (plans[i]) {
            PI0_TRY(count_weights(site, plans[i], b, err));
            arena = pi0_max_size(arena, plans[i]->use_arena ? plans[i]->arena_bytes : plans[i]->live_bytes);
        }
    for (int layer = 0; layer < b->arch.prefix.depth; layer++)
        m->kv_cache += pi0_tensor_bytes(b->plans.context, b->io.k[layer]) + pi0_tensor_bytes(b->plans.context, b->io.v[layer]);
    m->activations = arena + io_bytes(plans);
    m->workspace = b->workspace;
    m->host = pi0_param_bytes(&b->arch, &b->sizes, b->plans.context->max_rows) + pi0_tokenizer_bytes(site->tokenizer);
    m->session = pi0_session_layout_of(&b->arch, &b->sizes, site->facts->action_dim).bytes;
    m->beside_weights = m->kv_cache + m->activations + m->workspace + m->host + (uint64_t)b->sizes.lanes * m->session;
    m->total = m->weights_mapped + m->weights_owned + m->beside_weights;
    return PI0_OK;
}

pi0_memory_line pi0_memory_line_at(const pi0_memory *m, size_t index)
{
    const pi0_memory_line lines[] = {
        {"weights_mapped", m->weights_mapped},
        {"weights_owned", m->weights_owned},
        {"weights_f32", m->weights_f32},
        {"weights_bf16", m->weights_bf16},
        {"weights_f16", m->weights_f16},
        {"weights_int8", m->weights_int8},
        {"token_table", m->token_table},
        {"kv_cache", m->kv_cache},
        {"activations", m->activations},
        {"workspace", m->workspace},
        {"host", m->host},
        {"session", m->session},
        {"beside_weights", m->beside_weights},
        {"total", m->total},
    };
    return index < sizeof lines / sizeof *lines ? lines[index] : (pi0_memory_line){0};
}

/* ------------------------------------------------------------------ a limit */

static double mib(uint64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* 0: such a model cannot be made. */
static uint64_t total_of(const pi0_site *site, const char *precision, int lanes)
{
    pi0_options options = *site->options;
    pi0_site other = *site;
    pi0_blueprint b;
    options.memory_limit = 0;
    options.log = NULL;
    options.precision = precision;
    options.max_batch = lanes;
    other.options = &options;
    if (pi0_blueprint_make(&other, &b, NULL) != PI0_OK)
        return 0;
    const uint64_t total = b.memory.total;
    pi0_blueprint_free(&b);
    return total;
}

/* What the same file would take otherwise. */
typedef struct choice {
    uint64_t limit, smallest;
    char fits[48]; /* the first that would */
} choice;

static void offer(choice *c, uint64_t total, const char *name, pi0_error *err)
{
    const bool fits = total <= c->limit;
    pi0_err_item(err, "%s: %s: %.1f MiB", fits ? "would fit" : "would not fit either", name, mib(total));
    if (fits && !*c->fits)
        snprintf(c->fits, sizeof c->fits, "%s", name);
    c->smallest = total < c->smallest ? total : c->smallest;
}

/* Other precisions for as many robots, then as many robots as fit. */
static void offer_choices(const pi0_site *site, const pi0_blueprint *b, choice *c, pi0_error *err)
{
    static const pi0_precision precisions[] = {PI0_PRECISION_F32, PI0_PRECISION_BF16, PI0_PRECISION_INT8};
    char name[48];
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        const uint64_t total = precisions[i] != b->precision ? total_of(site, pi0_precision_word(precisions[i]), b->sizes.lanes) : 0;
        snprintf(name, sizeof name, "--precision %s", pi0_precision_word(precisions[i]));
        if (total && total < b->memory.total)
            offer(c, total, name, err);
    }
    for (int lanes = b->sizes.lanes - 1; lanes >= 1; lanes--) {
        const uint64_t total = total_of(site, site->options->precision, lanes);
        snprintf(name, sizeof name, "a batch of %d", lanes);
        if (total && (total <= c->limit || lanes == 1)) {
            offer(c, total, name, err);
            break;
        }
    }
}

pi0_status pi0_check_memory_limit(const pi0_site *site, const pi0_blueprint *b, pi0_error *err)
{
    const uint64_t limit = site->options->memory_limit;
    const pi0_memory *m = &b->memory;
    if (!limit || m->total <= limit)
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_MEMORY, "the model needs more memory than the limit allows");
    pi0_err_where(err, "--memory-limit");
    pi0_err_expected(err, "at most %llu bytes (%.1f MiB)", (unsigned long long)limit, mib(limit));
    pi0_err_got(err, "%.1f MiB", mib(m->total));
    pi0_err_item(err, "weights: %.1f MiB mapped from the file, %.1f MiB in memory of their own", mib(m->weights_mapped),
                 mib(m->weights_owned));
    pi0_err_item(err, "K/V cache: %.1f MiB", mib(m->kv_cache));
    pi0_err_item(err, "activations: %.1f MiB", mib(m->activations));
    pi0_err_item(err, "workspace: %.1f MiB", mib(m->workspace));
    pi0_err_item(err, "tables, tokenizer: %.1f MiB", mib(m->host));
    pi0_err_item(err, "sessions: %d of %.1f MiB", b->sizes.lanes, mib(m->session));
    choice c = {.limit = limit, .smallest = m->total};
    if (err)
        offer_choices(site, b, &c, err);
    if (*c.fits)
        pi0_err_hint(err, "%s, which would fit; or a larger limit", c.fits);
    else
        pi0_err_hint(err, "a larger limit: at least %.1f MiB; or a shorter --horizon", mib(c.smallest));
    return status;
}
