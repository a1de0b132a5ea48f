#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/synth.h"

/* Values come from a counter, so any part of a tensor can be made alone; they depend on the seed and the canonical name only, not on the
 * layout, the number of shards or the type: a bf16 file holds the rounded values of the f32 one. */

enum { BLOCK_WORDS = 2048, BLOCK = 4 * BLOCK_WORDS, PIECE = 128 * BLOCK };

typedef struct spec {
    char name[224]; /* in the file */
    pi0_dtype dtype;
    int rank;
    int64_t shape[4];
    size_t count;
    uint64_t seed;
    float scale; /* of one step of the 65,536 of a uniform value */
    float mean;  /* added from index mean_from on */
    size_t mean_from;
    const double *values; /* statistics: given, not made */
    pi0_synth_outlier outlier;
} spec;

typedef struct specs {
    const pi0_synth_plan *plan;
    spec *items;
    size_t count, capacity;
    uint64_t bytes;
} specs;

/* ------------------------------------------------------------------ how large values are */

static bool ends(const char *text, const char *ending)
{
    size_t n = strlen(text), m = strlen(ending);
    return n >= m && strcmp(text + n - m, ending) == 0;
}

/* Gains keep activations of order one: what adds to a residual stream shrinks with the depth of its tower. */
static double gain_of(const pi0_arch *arch, const char *name)
{
    static const struct {
        const char *ending;
        double gain;
        bool residual;
    } gains[] = {
        {"patch_embedding.weight", 2.0, false},  {"self_attn.out_proj.weight", 1.3, true}, {"mlp.fc1.weight", 1.3, false},
        {"mlp.fc2.weight", 1.5, true},           {"self_attn.q_proj.weight", 1.4, false},  {"self_attn.k_proj.weight", 1.4, false},
        {"self_attn.v_proj.weight", 1.3, false}, {"self_attn.o_proj.weight", 2.0, true},   {"mlp.gate_proj.weight", 1.4, false},
        {"mlp.up_proj.weight", 1.2, false},      {"mlp.down_proj.weight", 1.2, true},      {".dense.weight", 0.35, false},
        {"linear.weight", 1.2, false},           {"action_in_proj.weight", 1.2, false},    {"state_proj.weight", 4.0, false},
        {"time_mlp_in.weight", 1.4, false},      {"time_mlp_out.weight", 1.6, false},
    };
    int depth = strncmp(name, PI0_VISION, strlen(PI0_VISION)) == 0 ? arch->vision.depth : arch->prefix.depth;
    for (size_t i = 0; i < sizeof gains / sizeof gains[0]; i++)
        if (ends(name, gains[i].ending))
            return gains[i].residual && depth > 3 ? gains[i].gain * sqrt(3.0 / depth) : gains[i].gain;
    return 1.0;
}

static double deviation_of(const pi0_arch *arch, const pi0_tensor_spec *tensor)
{
    const char *name = tensor->name;
    if (strcmp(name, PI0_EXPERT_HEAD) == 0)
        return 0.02;
    if (ends(name, "position_embedding.weight"))
        return 0.4;
    if (ends(name, ".dense.bias"))
        return 0.3;
    if (tensor->rank == 1) {
        bool layer_norm = strncmp(name, PI0_VISION, strlen(PI0_VISION)) == 0;
        return ends(name, ".bias") ? 0.1 : layer_norm ? 0.15 : 0.2;
    }
    double inputs = 1;
    for (int i = 1; i < tensor->rank; i++)
        inputs *= (double)tensor->shape[i];
    return gain_of(arch, name) / sqrt(inputs);
}

/* ------------------------------------------------------------------ the list of tensors */

static spec *add_spec(specs *s)
{
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 256;
        spec *items = pi0_alloc_array(capacity, sizeof *items);
        if (!items)
            return NULL;
        if (s->count)
            memcpy(items, s->items, s->count * sizeof *items);
        pi0_free(s->items);
        s->items = items;
        s->capacity = capacity;
    }
    spec *item = &s->items[s->count++];
    item->mean_from = SIZE_MAX;
    return item;
}

static void finish_spec(specs *s, spec *item)
{
    item->count = 1;
    for (int i = 0; i < item->rank; i++)
        item->count *= (size_t)item->shape[i];
    s->bytes += item->count * pi0_dtype_size(item->dtype);
}

static int add_model_tensor(void *context, const pi0_tensor_spec *tensor)
{
    static const double uniform_deviation = 18918.61361860324; /* sqrt((65536^2 - 1) / 12) */
    specs *s = context;
    spec *item = add_spec(s);
    if (!item)
        return -1;
    if (s->plan->layout == PI0_LAYOUT_OPENPI)
        snprintf(item->name, sizeof item->name, "%s", tensor->name);
    else if (s->plan->layout == PI0_LAYOUT_LEROBOT)
        snprintf(item->name, sizeof item->name, "model.%s", tensor->name);
    else
        pi0_name_old(tensor->name, item->name, sizeof item->name);
    item->dtype = s->plan->dtype;
    item->rank = tensor->rank;
    memcpy(item->shape, tensor->shape, sizeof item->shape);
    item->seed = pi0_mix64(pi0_mix64(s->plan->seed) ^ pi0_fnv1a(tensor->name));
    item->scale = (float)(deviation_of(&s->plan->arch, tensor) / uniform_deviation);
    finish_spec(s, item);
    if (ends(tensor->name, ".dense.bias")) { /* scale, shift, gate: gates near 1, or nothing flows */
        item->mean = 0.8f;
        item->mean_from = item->count / 3 * 2;
    } else if (tensor->rank == 1 && ends(tensor->name, ".weight") && strncmp(tensor->name, PI0_VISION, strlen(PI0_VISION)) == 0) {
        item->mean = 1.0f; /* LayerNorm; Gemma's norms add their own 1 */
        item->mean_from = 0;
    }
    pi0_synth_outlier_of(s->plan, tensor, &item->outlier);
    return 0;
}

/* LeRobot 0.3 kept the statistics as buffers of the policy. */
static int add_statistics(specs *s)
{
    static const struct {
        const char *stem;
        int which;
    } buffers[] = {{"normalize_inputs.buffer_observation_state.", 0},
                   {"normalize_targets.buffer_action.", 1},
                   {"unnormalize_outputs.buffer_action.", 1}};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        for (int stat = 0; stat < 2; stat++) {
            spec *item = add_spec(s);
            if (!item)
                return -1;
            snprintf(item->name, sizeof item->name, "%s%s", buffers[i].stem, pi0_synth_stat_names[stat]);
            item->dtype = PI0_F32;
            item->rank = 1;
            item->shape[0] = buffers[i].which ? s->plan->action_dim : s->plan->state_dim;
            item->values = s->plan->stats[buffers[i].which][stat];
            finish_spec(s, item);
        }
    return 0;
}

/* The reference writer's order: wide types first, so that everything lies aligned; then by name. */
static int by_type_and_name(const void *a, const void *b)
{
    const spec *x = a, *y = b;
    if (x->dtype != y->dtype)
        return x->dtype == PI0_F32 ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* ------------------------------------------------------------------ values */

typedef union word_block {
    uint64_t words[BLOCK_WORDS];
    uint16_t quarters[BLOCK];
} word_block;

/* pi0_random_word where the compiler can see it: a call a word would halve the speed. tests/test_synth.c holds the two together. */
static inline uint64_t random_word(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void make_block(const spec *item, size_t first, float *out)
{
    word_block block;
    uint64_t index = first / 4;
    for (size_t i = 0; i < BLOCK_WORDS; i++)
        block.words[i] = random_word(item->seed, index + i);
    float scale = item->scale;
    for (size_t i = 0; i < BLOCK; i++)
        out[i] = scale * ((float)block.quarters[i] - 32767.5f);
    for (size_t i = item->mean_from > first ? item->mean_from - first : 0; item->mean_from != SIZE_MAX && i < BLOCK; i++)
        out[i] += item->mean;
    if (item->outlier.n)
        pi0_synth_outlier_apply(&item->outlier, first, out, BLOCK);
}

/* pi0_bf16_from_f32 without its care for NaN, which no value here is: the loop then becomes vector code. The test holds the two together.
 */
static void convert(const spec *item, const float *values, size_t n, uint8_t *out)
{
    uint32_t bits[BLOCK];
    uint16_t half[BLOCK];
    if (item->dtype == PI0_F32) {
        memcpy(out, values, n * sizeof *values);
        return;
    }
    memcpy(bits, values, sizeof bits);
    for (size_t i = 0; i < BLOCK; i++)
        half[i] = (uint16_t)((bits[i] + 0x7fffu + ((bits[i] >> 16) & 1u)) >> 16);
    memcpy(out, half, n * sizeof *half);
}

/* piece: PIECE values of the widest type */
static pi0_status put_tensor(const pi0_synth_plan *plan, pi0_safetensors_writer *writer, const spec *item, uint8_t *piece, uint64_t *done,
                             uint64_t total, pi0_error *err)
{
    size_t element = pi0_dtype_size(item->dtype);
    for (size_t start = 0; start < item->count; start += PIECE) {
        size_t n = item->count - start < PIECE ? item->count - start : PIECE;
        float values[BLOCK] = {0};
        for (size_t at = 0; at < n; at += BLOCK) {
            size_t some = n - at < BLOCK ? n - at : BLOCK;
            if (item->values)
                for (size_t i = 0; i < some; i++)
                    values[i] = (float)item->values[start + at + i];
            else
                make_block(item, start + at, values);
            convert(item, values, some, piece + at * element);
        }
        PI0_TRY(pi0_safetensors_put(writer, piece, n * element, err));
        *done += n * element;
        if (plan->progress && plan->progress(plan->progress_user, "writing weights", *done, total) != 0)
            return pi0_fail(err, PI0_ERR_CANCELLED, "cancelled while writing the weights");
    }
    return PI0_OK;
}

static pi0_status write_shard(const specs *s, size_t first, size_t end, const char *path, uint64_t *done, pi0_error *err)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    pi0_status status = PI0_OK;
    pi0_safetensors_writer writer = {0};
    uint8_t *piece = pi0_alloc_array(PIECE, sizeof(float));
    pi0_tensor_view *views = pi0_alloc_array(end - first, sizeof *views);
    if (!piece || !views) {
        status = pi0_fail_memory(err, PIECE * sizeof(float), "a piece of weights");
        goto fail;
    }
    for (size_t i = first; i < end; i++) {
        const spec *item = &s->items[i];
        pi0_tensor_view *view = &views[i - first];
        view->name = item->name;
        view->dtype = item->dtype;
        view->rank = item->rank;
        memcpy(view->shape, item->shape, sizeof item->shape);
    }
    PI0_TRY_GOTO(pi0_safetensors_create(&writer, path, views, end - first, metadata, err));
    if (s->plan->hollow)
        PI0_TRY_GOTO(pi0_safetensors_skip_all(&writer, err));
    for (size_t i = first; i < end && !s->plan->hollow; i++)
        PI0_TRY_GOTO(put_tensor(s->plan, &writer, &s->items[i], piece, done, s->bytes, err));
    PI0_TRY_GOTO(pi0_safetensors_finish(&writer, err));
    pi0_free(piece);
    pi0_free(views);
    return PI0_OK;
fail:
    pi0_safetensors_abort(&writer);
    pi0_free(piece);
    pi0_free(views);
    return status;
}

/* ------------------------------------------------------------------ shards */

/* Equal shares by bytes, at least one tensor each. */
static size_t shard_end(const specs *s, size_t first, int shard, uint64_t *bytes)
{
    int left = s->plan->shards - shard - 1;
    uint64_t goal = s->bytes / (uint64_t)s->plan->shards * (uint64_t)(shard + 1);
    size_t end = first;
    while (end < s->count - (size_t)left && (end == first || left == 0 || *bytes < goal)) {
        *bytes += s->items[end].count * pi0_dtype_size(s->items[end].dtype);
        end++;
    }
    return end;
}

static pi0_status write_shards(const specs *s, const char *dir, pi0_error *err)
{
    pi0_status status = PI0_OK;
    uint64_t done = 0, assigned = 0;
    json_t *map = json_object();
    char *path = NULL;
    size_t first = 0;
    for (int shard = 0; shard < s->plan->shards; shard++) {
        char name[64];
        size_t end = shard_end(s, first, shard, &assigned);
        if (s->plan->shards == 1)
            snprintf(name, sizeof name, "model.safetensors");
        else
            snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", shard + 1, s->plan->shards);
        for (size_t i = first; i < end; i++)
            if (json_object_set_new(map, s->items[i].name, json_string(name)) != 0) {
                status = pi0_fail_memory(err, 64, "the index of shards");
                goto fail;
            }
        path = pi0_path_join(dir, name);
        if (!path) {
            status = pi0_fail_memory(err, strlen(dir), "a path");
            goto fail;
        }
        PI0_TRY_GOTO(write_shard(s, first, end, path, &done, err));
        pi0_free(path);
        path = NULL;
        first = end;
    }
    if (s->plan->shards > 1) {
        json_t *index = json_pack("{s:{s:I},s:O}", "metadata", "total_size", (json_int_t)s->bytes, "weight_map", map);
        PI0_TRY_GOTO(pi0_synth_write_json(dir, "model.safetensors.index.json", index, 2, err));
    }
    json_decref(map);
    return PI0_OK;
fail:
    json_decref(map);
    pi0_free(path);
    return status;
}

pi0_status pi0_synth_write_weights(const pi0_synth_plan *plan, const char *dir, pi0_error *err)
{
    specs s = {.plan = plan};
    pi0_status status = PI0_OK;
    if (pi0_arch_each_tensor(&plan->arch, add_model_tensor, &s) != 0 || (plan->layout == PI0_LAYOUT_LEROBOT_03 && add_statistics(&s) != 0))
        status = pi0_fail_memory(err, sizeof *s.items, "the list of tensors");
    if (status == PI0_OK && (size_t)plan->shards > s.count) {
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "more shards than tensors");
        pi0_err_expected(err, "1 to %zu", s.count);
        pi0_err_got(err, "%d", plan->shards);
    }
    if (status == PI0_OK) {
        qsort(s.items, s.count, sizeof *s.items, by_type_and_name);
        status = write_shards(&s, dir, err);
    }
    pi0_free(s.items);
    return status;
}
