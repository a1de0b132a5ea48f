/* Outlier channels, as trained models have them: in some layers a few channels of what a norm gives are many times larger than all others,
 * and the matrices that meet them are as much smaller there. The model computes what it would without them, but for rounding; a product
 * whose inputs share one scale a row loses everything else in those rows. (Dettmers et al., LLM.int8(), 2022.) */
#include <stdlib.h>
#include <string.h>

#include "model/synth.h"

typedef struct tower {
    const char *stem; /* up to the number of a layer */
    int width, depth;
    bool offset; /* a norm multiplies by 1 + w */
} tower;

static bool find_tower(const pi0_arch *arch, const char *name, tower *out)
{
    const tower towers[] = {
        {PI0_VISION "encoder.layers.", arch->vision.width, arch->vision.depth, false},
        {PI0_PREFIX "layers.", arch->prefix.width, arch->prefix.depth, true},
        {PI0_EXPERT "layers.", arch->expert.width, arch->expert.depth, true},
    };
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (!strncmp(name, towers[i].stem, strlen(towers[i].stem))) {
            *out = towers[i];
            return true;
        }
    return false;
}

static uint64_t tower_seed(const pi0_synth_plan *plan, const tower *t)
{
    return pi0_mix64(pi0_mix64(plan->seed) ^ pi0_fnv1a(t->stem) ^ pi0_fnv1a("outliers"));
}

/* A third of the layers, and one at least. */
static bool has_outliers(const pi0_synth_plan *plan, const tower *t, int layer)
{
    const uint64_t seed = tower_seed(plan, t);
    return (uint64_t)layer == pi0_random_word(seed, 0) % (uint64_t)t->depth || pi0_random_word(seed, 1 + (uint64_t)layer) % 3 == 0;
}

/* The same channels in all layers of a tower. */
static void choose_channels(const pi0_synth_plan *plan, const tower *t, pi0_synth_outlier *out)
{
    const uint64_t seed = tower_seed(plan, t);
    for (uint64_t draw = 1000; out->n < plan->outliers; draw++) {
        const size_t channel = (size_t)(pi0_random_word(seed, draw) % (uint64_t)t->width);
        bool taken = false;
        for (int i = 0; i < out->n; i++)
            taken |= out->channel[i] == channel;
        if (!taken)
            out->channel[out->n++] = channel;
    }
}

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names) != 0)
        names++;
    return *names != NULL;
}

/* leaf: the name below its layer. */
static bool describe(const char *leaf, const tower *t, float factor, pi0_synth_outlier *out)
{
    static const char *const matrices[] = {"self_attn.q_proj.weight",
                                           "self_attn.k_proj.weight",
                                           "self_attn.v_proj.weight",
                                           "mlp.gate_proj.weight",
                                           "mlp.up_proj.weight",
                                           "mlp.fc1.weight",
                                           NULL};
    static const char *const norms[] = {"layer_norm1.weight",
                                        "layer_norm1.bias",
                                        "layer_norm2.weight",
                                        "layer_norm2.bias",
                                        "input_layernorm.weight",
                                        "post_attention_layernorm.weight",
                                        NULL};
    static const char *const mods[] = {"input_layernorm.dense.weight", "post_attention_layernorm.dense.weight", NULL};
    static const char *const mod_biases[] = {"input_layernorm.dense.bias", "post_attention_layernorm.dense.bias", NULL};
    const size_t width = (size_t)t->width;
    *out = (pi0_synth_outlier){.step = 1, .width = width, .end = SIZE_MAX, .factor = factor};
    if (is_one_of(leaf, matrices)) {
        out->factor = 1 / factor;
    } else if (is_one_of(leaf, norms)) {
        out->add = t->offset ? factor - 1 : 0; /* factor * (1 + w) - 1 */
        out->add_end = width;
    } else if (is_one_of(leaf, mods)) { /* rows of scale and shift, not those of the gate */
        out->step = width;
        out->end = 2 * width * width;
    } else if (is_one_of(leaf, mod_biases)) {
        out->end = 2 * width;
        out->add = factor - 1;
        out->add_end = width;
    } else {
        return false;
    }
    return true;
}

void pi0_synth_outlier_of(const pi0_synth_plan *plan, const pi0_tensor_spec *tensor, pi0_synth_outlier *out)
{
    tower t;
    *out = (pi0_synth_outlier){0};
    if (!plan->outliers || !find_tower(&plan->arch, tensor->name, &t))
        return;
    char *leaf;
    const int layer = (int)strtol(tensor->name + strlen(t.stem), &leaf, 10);
    if (*leaf != '.' || !has_outliers(plan, &t, layer) || !describe(leaf + 1, &t, (float)plan->outlier_factor, out))
        return;
    choose_channels(plan, &t, out);
}

void pi0_synth_outlier_apply(const pi0_synth_outlier *o, size_t first, float *values, size_t count)
{
    for (size_t i = 0; i < count && first + i < o->end; i++) {
        const size_t channel = (first + i) / o->step % o->width;
        for (int c = 0; c < o->n; c++)
            if (o->channel[c] == channel)
                values[i] = values[i] * o->factor + (first + i < o->add_end ? o->add : 0.0f);
    }
}
