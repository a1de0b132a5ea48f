#include "golden_checkpoints.h"

#include <errno.h>
#include <ftw.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ the generator: SplitMix64 by index, four quarters summed */

static const double SUM_DEVIATION = 37837.22723720648;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint64_t fnv(const char *text)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 0x100000001B3u;
    return h;
}

static uint64_t word(uint64_t seed, uint64_t i)
{
    return mix(seed + (i + 1) * 0x9E3779B97F4A7C15u);
}

static double quarter_sum(uint64_t w)
{
    int64_t sum = (int64_t)((w & 0xFFFF) + ((w >> 16) & 0xFFFF) + ((w >> 32) & 0xFFFF) + (w >> 48));
    return (double)(sum - 131070);
}

static double normal(uint64_t seed, uint64_t i)
{
    return quarter_sum(word(seed, i)) / SUM_DEVIATION;
}

static double uniform(uint64_t seed, uint64_t i)
{
    return (double)(word(seed, i) >> 11) * (1.0 / 9007199254740992.0);
}

static uint16_t bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7FFF + ((u >> 16) & 1)) >> 16);
}

/* ------------------------------------------------------------------ which checkpoints there are */

enum { VOCAB = 257152, ACTION_DIM = 32 };

typedef struct tower {
    int width, depth, mlp, heads, head_dim;
} tower;

typedef struct arch {
    char letter;
    tower vision, prefix, expert;
    uint64_t seed[2]; /* pi0, pi05 */
} arch;

static const arch ARCHS[] = {
    {'P', {144, 2, 288, 2, 72}, {48, 2, 160, 8, 256}, {32, 2, 64, 8, 256}, {1618033, 3141592}},
    {'Q', {72, 1, 140, 1, 72}, {40, 3, 100, 4, 16}, {24, 3, 72, 4, 16}, {2718281, 5772156}},
};

typedef struct checkpoint {
    const char *name;
    bool pi05, bf16, lerobot, untied;
    const char *prefix;
    const char *robot;
    const char *norm;
    int chunk, cameras, empty, steps;
    bool relative, rename;
} checkpoint;

static const checkpoint CHECKPOINTS[] = {
    {.name = "openpi_pi0_P", .prefix = ""},
    {.name = "openpi_pi0_Q", .prefix = ""},
    {.name = "openpi_pi05_P", .pi05 = true, .bf16 = true, .prefix = ""},
    {.name = "openpi_pi05_Q", .pi05 = true, .prefix = ""},
    {.name = "lerobot_pi0_Q",
     .lerobot = true,
     .prefix = "model.",
     .robot = "aloha",
     .norm = "MEAN_STD",
     .chunk = 50,
     .cameras = 3,
     .steps = 10},
    {.name = "lerobot_pi0_P_bare",
     .lerobot = true,
     .prefix = "",
     .robot = "arm7",
     .norm = "MEAN_STD",
     .chunk = 16,
     .cameras = 3,
     .steps = 4},
    {.name = "lerobot_pi0_Q_empty",
     .lerobot = true,
     .prefix = "model.",
     .robot = "libero",
     .norm = "MEAN_STD",
     .chunk = 20,
     .cameras = 2,
     .empty = 1,
     .steps = 10},
    {.name = "lerobot_pi0_Q_relative",
     .lerobot = true,
     .prefix = "model.",
     .robot = "aloha",
     .norm = "MEAN_STD",
     .chunk = 30,
     .cameras = 3,
     .steps = 10,
     .relative = true},
    {.name = "lerobot_pi05_P_bare",
     .pi05 = true,
     .bf16 = true,
     .lerobot = true,
     .prefix = "",
     .robot = "aloha",
     .norm = "QUANTILES",
     .chunk = 50,
     .cameras = 3,
     .steps = 10},
    {.name = "lerobot_pi05_Q_rename",
     .pi05 = true,
     .lerobot = true,
     .prefix = "model.",
     .robot = "libero",
     .norm = "MEAN_STD",
     .chunk = 10,
     .cameras = 2,
     .steps = 10,
     .rename = true},
    {.name = "lerobot_pi05_Q_untied",
     .pi05 = true,
     .lerobot = true,
     .untied = true,
     .prefix = "model.",
     .robot = "droid",
     .norm = "QUANTILES",
     .chunk = 15,
     .cameras = 3,
     .steps = 10},
};

const char *pi0_test_checkpoint_name(size_t index)
{
    return index < sizeof CHECKPOINTS / sizeof CHECKPOINTS[0] ? CHECKPOINTS[index].name : NULL;
}

static const arch *checkpoint_arch(const checkpoint *c)
{
    return strchr(c->name, 'P') ? &ARCHS[0] : &ARCHS[1];
}

/* ------------------------------------------------------------------ tensors */

typedef struct tensor {
    char name[160];
    int rank;
    int shape[4];
    double scale;
    float mean; /* added to every value of index >= mean_from */
    size_t mean_from;
    const double *values; /* statistics: given instead of generated */
    bool bf16;
} tensor;

typedef struct table {
    tensor *items;
    size_t count, capacity;
    bool failed;
} table;

static size_t tensor_count(const tensor *t)
{
    size_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= (size_t)t->shape[i];
    return n;
}

static tensor *table_add(table *t, double scale, int rank, const int *shape, const char *stem, const char *leaf)
{
    static tensor dump;
    if (t->count == t->capacity) {
        size_t capacity = t->capacity ? 2 * t->capacity : 128;
        tensor *items = realloc(t->items, capacity * sizeof *items);
        if (!items) {
            t->failed = true;
            return &dump;
        }
        t->items = items;
        t->capacity = capacity;
    }
    tensor *out = &t->items[t->count++];
    memset(out, 0, sizeof *out);
    out->scale = scale;
    out->rank = rank;
    memcpy(out->shape, shape, (size_t)rank * sizeof *shape);
    out->mean_from = SIZE_MAX;
    snprintf(out->name, sizeof out->name, "%s%s", stem, leaf);
    return out;
}

static tensor *add_vector(table *t, int n, double scale, const char *stem, const char *leaf)
{
    return table_add(t, scale, 1, (int[]){n}, stem, leaf);
}

static void add_linear(table *t, int rows, int cols, double gain, bool bias, const char *stem, const char *leaf)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s.weight", stem, leaf);
    table_add(t, gain / sqrt(cols), 2, (int[]){rows, cols}, name, "");
    if (bias) {
        snprintf(name, sizeof name, "%s%s.bias", stem, leaf);
        add_vector(t, rows, 0.1, name, "");
    }
}

static void add_layer_norm(table *t, int width, const char *stem, const char *leaf)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s", stem, leaf);
    tensor *weight = add_vector(t, width, 0.15, name, ".weight");
    weight->mean = 1.0f;
    weight->mean_from = 0;
    add_vector(t, width, 0.1, name, ".bias");
}

static void add_rms_norm(table *t, int width, bool ada, const char *stem, const char *leaf)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s", stem, leaf);
    if (!ada) {
        add_vector(t, width, 0.2, name, ".weight");
        return;
    }
    table_add(t, 0.35 / sqrt(width), 2, (int[]){3 * width, width}, name, ".dense.weight");
    tensor *bias = add_vector(t, 3 * width, 0.3, name, ".dense.bias");
    bias->mean = 0.8f; /* the gates */
    bias->mean_from = (size_t)(2 * width);
}

#define PALI "paligemma_with_expert."
#define VISION PALI "paligemma.model.vision_tower.vision_model."

static void add_vision(table *t, const tower *v)
{
    const char *const attention[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"};
    const double gain[] = {1.3, 1.3, 1.2, 1.3};
    table_add(t, 2.0 / sqrt(588), 4, (int[]){v->width, 3, 14, 14}, VISION, "embeddings.patch_embedding.weight");
    add_vector(t, v->width, 0.1, VISION, "embeddings.patch_embedding.bias");
    table_add(t, 0.4, 2, (int[]){256, v->width}, VISION, "embeddings.position_embedding.weight");
    for (int i = 0; i < v->depth; i++) {
        char stem[128];
        snprintf(stem, sizeof stem, VISION "encoder.layers.%d.", i);
        add_layer_norm(t, v->width, stem, "layer_norm1");
        add_layer_norm(t, v->width, stem, "layer_norm2");
        for (int j = 0; j < 4; j++)
            add_linear(t, v->width, v->width, gain[j], true, stem, attention[j]);
        add_linear(t, v->mlp, v->width, 1.3, true, stem, "mlp.fc1");
        add_linear(t, v->width, v->mlp, 1.5, true, stem, "mlp.fc2");
    }
    add_layer_norm(t, v->width, VISION, "post_layernorm");
}

static void add_gemma(table *t, const tower *g, bool ada, const char *prefix)
{
    int inner = g->heads * g->head_dim;
    for (int i = 0; i < g->depth; i++) {
        char stem[128];
        snprintf(stem, sizeof stem, "%slayers.%d.", prefix, i);
        add_linear(t, inner, g->width, 1.4, false, stem, "self_attn.q_proj");
        add_linear(t, g->head_dim, g->width, 1.4, false, stem, "self_attn.k_proj");
        add_linear(t, g->head_dim, g->width, 1.3, false, stem, "self_attn.v_proj");
        add_linear(t, g->width, inner, 2.0, false, stem, "self_attn.o_proj");
        add_linear(t, g->mlp, g->width, 1.4, false, stem, "mlp.gate_proj");
        add_linear(t, g->mlp, g->width, 1.2, false, stem, "mlp.up_proj");
        add_linear(t, g->width, g->mlp, 1.2, false, stem, "mlp.down_proj");
        add_rms_norm(t, g->width, ada, stem, "input_layernorm");
        add_rms_norm(t, g->width, ada, stem, "post_attention_layernorm");
    }
    add_rms_norm(t, g->width, ada, prefix, "norm");
}

static void add_model(table *t, const checkpoint *c)
{
    const arch *a = checkpoint_arch(c);
    int width = a->expert.width;
    add_vision(t, &a->vision);
    add_linear(t, a->prefix.width, a->vision.width, 1.2, true, PALI, "paligemma.model.multi_modal_projector.linear");
    double scale = 1.0 / sqrt(a->prefix.width);
    int shape[] = {VOCAB, a->prefix.width};
    table_add(t, scale, 2, shape, PALI, "paligemma.lm_head.weight")->bf16 = true;
    if (c->untied)
        table_add(t, scale, 2, shape, PALI, "paligemma.model.language_model.embed_tokens.weight")->bf16 = true;
    add_gemma(t, &a->prefix, false, PALI "paligemma.model.language_model.");
    add_gemma(t, &a->expert, c->pi05, PALI "gemma_expert.model.");
    table_add(t, 0.02, 2, (int[]){VOCAB, width}, PALI, "gemma_expert.lm_head.weight")->bf16 = true;
    add_linear(t, width, ACTION_DIM, 1.2, true, "", "action_in_proj");
    add_linear(t, ACTION_DIM, width, 1.0, true, "", "action_out_proj");
    if (c->pi05) {
        add_linear(t, width, width, 1.4, true, "", "time_mlp_in");
        add_linear(t, width, width, 1.6, true, "", "time_mlp_out");
    } else {
        add_linear(t, width, ACTION_DIM, 4.0, true, "", "state_proj");
        add_linear(t, width, 2 * width, 1.4, true, "", "action_time_mlp_in");
        add_linear(t, width, width, 1.6, true, "", "action_time_mlp_out");
    }
}

/* ------------------------------------------------------------------ files */

static FILE *create(const char *dir, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (char *slash = strchr(path + strlen(dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return NULL;
        *slash = '/';
    }
    return fopen(path, "wb");
}

static int finish(FILE *file)
{
    int bad = ferror(file);
    return fclose(file) != 0 || bad ? -1 : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const tensor *)a)->name, ((const tensor *)b)->name);
}

/* metadata: ready JSON text. The header is what Python's json.dumps with the tightest separators gives, padded to 8 bytes. */
static int write_header(FILE *file, const table *t, const char *prefix, const char *metadata)
{
    char *text = NULL;
    size_t bytes = 0, offset = 0;
    FILE *header = open_memstream(&text, &bytes);
    if (!header)
        return -1;
    fprintf(header, "{%s", metadata);
    for (size_t i = 0; i < t->count; i++) {
        const tensor *x = &t->items[i];
        size_t size = tensor_count(x) * (x->bf16 ? 2 : 4);
        fprintf(header, "%s\"%s%s\":{\"dtype\":\"%s\",\"shape\":[", i || *metadata ? "," : "", prefix, x->name, x->bf16 ? "BF16" : "F32");
        for (int j = 0; j < x->rank; j++)
            fprintf(header, "%s%d", j ? "," : "", x->shape[j]);
        fprintf(header, "],\"data_offsets\":[%zu,%zu]}", offset, offset + size);
        offset += size;
    }
    fputc('}', header);
    if (finish(header) != 0) {
        free(text);
        return -1;
    }
    uint64_t padded = (bytes + 7) / 8 * 8;
    fwrite(&padded, sizeof padded, 1, file);
    fwrite(text, 1, bytes, file);
    for (; bytes < padded; bytes++)
        fputc(' ', file);
    free(text);
    return 0;
}

static void write_values(FILE *file, const tensor *x, uint64_t model_seed)
{
    enum { PIECE = 8192 };
    float f32[PIECE];
    uint16_t half[PIECE];
    uint64_t seed = mix(model_seed ^ fnv(x->name));
    double k = x->scale / SUM_DEVIATION;
    size_t total = tensor_count(x);
    for (size_t start = 0; start < total; start += PIECE) {
        size_t n = total - start < PIECE ? total - start : PIECE;
        for (size_t i = 0; i < n; i++) {
            f32[i] = (float)(x->values ? x->values[start + i] : k * quarter_sum(word(seed, start + i)));
            if (start + i >= x->mean_from)
                f32[i] += x->mean;
        }
        if (!x->bf16) {
            fwrite(f32, sizeof *f32, n, file);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            half[i] = bf16(f32[i]);
        fwrite(half, sizeof *half, n, file);
    }
}

static int write_tensors(const char *dir, const char *name, table *t, const char *prefix, const char *metadata, uint64_t model_seed)
{
    if (t->failed)
        return -1;
    qsort(t->items, t->count, sizeof *t->items, by_name);
    FILE *file = create(dir, name);
    if (!file)
        return -1;
    if (write_header(file, t, prefix, metadata) != 0) {
        fclose(file);
        return -1;
    }
    for (size_t i = 0; i < t->count; i++)
        write_values(file, &t->items[i], model_seed);
    return finish(file);
}

static int write_model(const char *dir, const checkpoint *c)
{
    table t = {0};
    add_model(&t, c);
    for (size_t i = 0; c->bf16 && i < t.count; i++)
        t.items[i].bf16 = true;
    const char *metadata = c->lerobot ? "\"__metadata__\":{\"format\":\"pt\"}"
                                      : "\"__metadata__\":{\"format\":\"pt\","
                                        "\"" PALI "paligemma.model.language_model.embed_tokens.weight\":\"" PALI
                                        "paligemma.lm_head.weight\"}";
    int result = write_tensors(dir, "model.safetensors", &t, c->prefix, metadata, checkpoint_arch(c)->seed[c->pi05]);
    free(t.items);
    return result;
}

/* ------------------------------------------------------------------ JSON as Python's json module spells it */

static void dump_real(FILE *file, double value)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) { /* the shortest that reads back: Python's repr */
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    fprintf(file, strpbrk(text, ".e") ? "%s" : "%s.0", text);
}

static void dump(FILE *file, json_t *value, int indent, int depth)
{
    bool object = json_is_object(value);
    if (json_is_real(value)) {
        dump_real(file, json_real_value(value));
        return;
    }
    size_t count = object ? json_object_size(value) : json_array_size(value);
    if ((!object && !json_is_array(value)) || count == 0) {
        json_dumpf(value, file, JSON_ENCODE_ANY);
        return;
    }
    void *iter = object ? json_object_iter(value) : NULL;
    fputc(object ? '{' : '[', file);
    for (size_t i = 0; i < count; i++) {
        fprintf(file, "%s\n%*s", i ? "," : "", indent * (depth + 1), "");
        if (object) {
            fprintf(file, "\"%s\": ", json_object_iter_key(iter));
            dump(file, json_object_iter_value(iter), indent, depth + 1);
            iter = json_object_iter_next(value, iter);
        } else {
            dump(file, json_array_get(value, i), indent, depth + 1);
        }
    }
    fprintf(file, "\n%*s%c", indent * depth, "", object ? '}' : ']');
}

static int write_json(const char *dir, const char *name, json_t *value, int indent, const char *end) /* takes value */
{
    FILE *file = value ? create(dir, name) : NULL;
    if (!file) {
        json_decref(value);
        return -1;
    }
    dump(file, value, indent, 0);
    fputs(end, file);
    json_decref(value);
    return finish(file);
}

static json_t *parse(const char *single_quoted)
{
    char *text = strdup(single_quoted);
    if (!text)
        return NULL;
    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    free(text);
    return value;
}

/* ------------------------------------------------------------------ statistics */

enum { MEAN, STD, Q01, Q99, MIN, MAX, Q10, Q50, Q90, COUNT, STATS };
static const char *const STAT_NAMES[STATS] = {"mean", "std", "q01", "q99", "min", "max", "q10", "q50", "q90", "count"};
static const char *const STAT_KEYS[2] = {"state", "actions"};

typedef struct statistics {
    int dims;
    double values[STATS][16];
} statistics;

static double round6(double x)
{
    return rint(x * 1e6) / 1e6;
}

static statistics make_statistics(const char *robot, int which)
{
    statistics s = {.dims = !strcmp(robot, "aloha") ? 14 : !strcmp(robot, "arm7") ? 7 : !strcmp(robot, "libero") && which ? 7 : 8};
    char name[64];
    snprintf(name, sizeof name, "%s/%s", robot, STAT_KEYS[which]);
    uint64_t seed = mix(86028121 ^ fnv(name));
    for (int i = 0; i < s.dims; i++) {
        uint64_t at = (uint64_t)i;
        double mean = round6(normal(seed, at) * 0.35), std = round6(0.08 + uniform(seed + 1, at) * 0.5);
        double low = round6(mean - (1.7 + uniform(seed + 2, at)) * std), high = round6(mean + (1.5 + uniform(seed + 3, at)) * std);
        s.values[MEAN][i] = mean;
        s.values[STD][i] = std;
        s.values[Q01][i] = low;
        s.values[Q99][i] = high;
        s.values[MIN][i] = low - 0.25 * std;
        s.values[MAX][i] = high + 0.25 * std;
        s.values[Q10][i] = mean - 1.2 * std;
        s.values[Q50][i] = mean;
        s.values[Q90][i] = mean + 1.2 * std;
    }
    s.values[COUNT][0] = 54321.0;
    return s;
}

static int write_norm_stats(const char *dir, const char *asset, const char *robot)
{
    char name[256];
    snprintf(name, sizeof name, "assets/%s/norm_stats.json", asset);
    json_t *both = json_object();
    for (int which = 0; which < 2; which++) {
        statistics s = make_statistics(robot, which);
        json_t *one = json_object();
        for (int stat = MEAN; stat <= Q99; stat++) {
            json_t *list = json_array();
            for (int i = 0; i < s.dims; i++)
                json_array_append_new(list, json_real(s.values[stat][i]));
            json_object_set_new(one, STAT_NAMES[stat], list);
        }
        json_object_set_new(both, STAT_KEYS[which], one);
    }
    json_t *root = json_object();
    json_object_set_new(root, "norm_stats", both);
    return write_json(dir, name, root, 2, "");
}

static int write_statistics_tensors(const char *dir, const char *name, const char *robot)
{
    statistics stats[2];
    table t = {0};
    for (int which = 0; which < 2; which++) {
        stats[which] = make_statistics(robot, which);
        for (int stat = 0; stat < STATS; stat++)
            add_vector(&t, stat == COUNT ? 1 : stats[which].dims, 0, which ? "action." : "observation.state.", STAT_NAMES[stat])->values =
                stats[which].values[stat];
    }
    int result = write_tensors(dir, name, &t, "", "", 0);
    free(t.items);
    return result;
}

/* ------------------------------------------------------------------ LeRobot's side files */

static const char *const THREE[] = {"observation.images.base_0_rgb", "observation.images.left_wrist_0_rgb",
                                    "observation.images.right_wrist_0_rgb"};
static const char *const TWO[] = {"observation.images.image", "observation.images.image2"};

static const char CONFIG[] =
    "{'type':0,'n_obs_steps':1,'input_features':0,'output_features':0,'device':'cpu','use_amp':false,'use_peft':false,"
    "'push_to_hub':false,'repo_id':null,'private':null,'tags':null,'license':null,'pretrained_path':null,"
    "'paligemma_variant':'gemma_2b','action_expert_variant':'gemma_300m','dtype':'float32','chunk_size':0,'n_action_steps':0,"
    "'max_state_dim':32,'max_action_dim':32,'num_inference_steps':0,'time_sampling_beta_alpha':1.5,'time_sampling_beta_beta':1.0,"
    "'time_sampling_scale':0.999,'time_sampling_offset':0.001,'min_period':0.004,'max_period':4.0,'use_relative_actions':0,"
    "'relative_exclude_joints':['gripper'],'action_feature_names':null,'rtc_config':null,'image_resolution':[224,224],'empty_cameras':0,"
    "'normalization_mapping':0,'gradient_checkpointing':false,'compile_model':false,'compile_mode':'max-autotune',"
    "'freeze_vision_encoder':false,'train_expert_only':false,'optimizer_lr':2.5e-05,'optimizer_betas':[0.9,0.95],'optimizer_eps':1e-08,"
    "'optimizer_weight_decay':0.01,'optimizer_grad_clip_norm':1.0,'scheduler_warmup_steps':1000,'scheduler_decay_steps':30000,"
    "'scheduler_decay_lr':2.5e-06,'tokenizer_max_length':0}";

static const char TOKENIZE[] = "{'registry_name':'tokenizer_processor','config':{'max_length':0,'task_key':'task','padding_side':'right',"
                               "'padding':'max_length','truncation':true,'tokenizer_name':'google/paligemma-3b-pt-224'}}";

static json_t *feature(const char *type, int a, int b, int c)
{
    return b ? json_pack("{s:s,s:[i,i,i]}", "type", type, "shape", a, b, c) : json_pack("{s:s,s:[i]}", "type", type, "shape", a);
}

static void add_inputs(json_t *out, const checkpoint *c)
{
    for (int i = 0; i < c->cameras; i++)
        json_object_set_new(out, c->cameras == 3 ? THREE[i] : TWO[i], feature("VISUAL", 3, 224, 224));
    json_object_set_new(out, "observation.state", feature("STATE", make_statistics(c->robot, 0).dims, 0, 0));
    for (int i = 0; i < c->empty; i++) {
        char key[64];
        snprintf(key, sizeof key, "observation.images.empty_camera_%d", i);
        json_object_set_new(out, key, feature("VISUAL", 3, 224, 224));
    }
}

static void add_outputs(json_t *out, const checkpoint *c)
{
    json_object_set_new(out, "action", feature("ACTION", make_statistics(c->robot, 1).dims, 0, 0));
}

static json_t *norm_map(const checkpoint *c)
{
    return json_pack("{s:s,s:s,s:s}", "VISUAL", "IDENTITY", "STATE", c->norm, "ACTION", c->norm);
}

static json_t *action_names(const checkpoint *c)
{
    static const char *const joints[] = {"waist", "shoulder", "elbow", "forearm_roll", "wrist_angle", "wrist_rotate", "gripper"};
    if (!c->relative)
        return json_null();
    json_t *names = json_array();
    for (int i = 0; i < 14; i++)
        json_array_append_new(names, json_sprintf("%s_%s", i < 7 ? "left" : "right", joints[i % 7]));
    return names;
}

static int write_config(const char *dir, const checkpoint *c)
{
    json_t *config = parse(CONFIG), *inputs = json_object(), *outputs = json_object();
    add_inputs(inputs, c);
    add_outputs(outputs, c);
    json_object_set_new(config, "type", json_string(c->pi05 ? "pi05" : "pi0"));
    json_object_set_new(config, "input_features", inputs);
    json_object_set_new(config, "output_features", outputs);
    json_object_set_new(config, "chunk_size", json_integer(c->chunk));
    json_object_set_new(config, "n_action_steps", json_integer(c->chunk));
    json_object_set_new(config, "num_inference_steps", json_integer(c->steps));
    json_object_set_new(config, "use_relative_actions", json_boolean(c->relative));
    json_object_set_new(config, "action_feature_names", action_names(c));
    json_object_set_new(config, "empty_cameras", json_integer(c->empty));
    json_object_set_new(config, "normalization_mapping", norm_map(c));
    json_object_set_new(config, "tokenizer_max_length", json_integer(c->pi05 ? 200 : 48));
    return write_json(dir, "config.json", config, 4, "\n");
}

static json_t *step(const char *name)
{
    return json_pack("{s:s,s:{}}", "registry_name", name, "config");
}

static json_t *normalizer(const checkpoint *c, const char *name, bool inputs, const char *state_file)
{
    json_t *out = step(name), *config = json_object_get(out, "config"), *features = json_object();
    if (inputs)
        add_inputs(features, c);
    add_outputs(features, c);
    json_object_set_new(config, "eps", json_real(1e-8));
    json_object_set_new(config, "features", features);
    json_object_set_new(config, "norm_map", norm_map(c));
    json_object_set_new(out, "state_file", json_string(state_file));
    return out;
}

static json_t *device_step(void)
{
    return parse("{'registry_name':'device_processor','config':{'device':'cpu','float_dtype':null}}");
}

static json_t *rename_step(const checkpoint *c)
{
    json_t *out = step("rename_observations_processor"), *map = json_object();
    if (c->rename) {
        json_object_set_new(map, "observation.images.front", json_string(TWO[0]));
        json_object_set_new(map, "observation.images.hand", json_string(TWO[1]));
    }
    json_object_set_new(json_object_get(out, "config"), "rename_map", map);
    return out;
}

static json_t *relative_step(const checkpoint *c)
{
    json_t *out = step("relative_actions_processor"), *config = json_object_get(out, "config");
    json_object_set_new(config, "enabled", json_boolean(c->relative));
    json_object_set_new(config, "exclude_joints", parse("['gripper']"));
    json_object_set_new(config, "action_names", action_names(c));
    return out;
}

static int write_preprocessor(const char *dir, const checkpoint *c, const char *state_file)
{
    json_t *steps = json_array(), *tokenize = parse(TOKENIZE);
    json_object_set_new(json_object_get(tokenize, "config"), "max_length", json_integer(c->pi05 ? 200 : 48));
    json_array_append_new(steps, rename_step(c));
    json_array_append_new(steps, step("to_batch_processor"));
    if (c->pi05) {
        json_array_append_new(steps, relative_step(c));
        json_array_append_new(steps, normalizer(c, "normalizer_processor", true, state_file));
        json_array_append_new(steps, step("pi05_prepare_state_tokenizer_processor_step"));
        json_array_append_new(steps, tokenize);
        json_array_append_new(steps, device_step());
    } else {
        json_array_append_new(steps, step("pi0_new_line_processor"));
        json_array_append_new(steps, tokenize);
        json_array_append_new(steps, device_step());
        json_array_append_new(steps, relative_step(c));
        json_array_append_new(steps, normalizer(c, "normalizer_processor", true, state_file));
    }
    return write_json(dir, "policy_preprocessor.json", json_pack("{s:s,s:o}", "name", "policy_preprocessor", "steps", steps), 2, "");
}

static int write_postprocessor(const char *dir, const checkpoint *c, const char *state_file)
{
    json_t *absolute = step("absolute_actions_processor");
    json_object_set_new(json_object_get(absolute, "config"), "enabled", json_boolean(c->relative));
    json_t *steps = json_pack("[o,o,o]", normalizer(c, "unnormalizer_processor", false, state_file), absolute, device_step());
    return write_json(dir, "policy_postprocessor.json", json_pack("{s:s,s:o}", "name", "policy_postprocessor", "steps", steps), 2, "");
}

static int write_lerobot(const char *dir, const checkpoint *c)
{
    const char *pre = c->pi05 ? "policy_preprocessor_step_3_normalizer_processor.safetensors"
                              : "policy_preprocessor_step_6_normalizer_processor.safetensors";
    const char *post = "policy_postprocessor_step_0_unnormalizer_processor.safetensors";
    if (write_config(dir, c) != 0 || write_preprocessor(dir, c, pre) != 0 || write_postprocessor(dir, c, post) != 0)
        return -1;
    return write_statistics_tensors(dir, pre, c->robot) != 0 || write_statistics_tensors(dir, post, c->robot) != 0 ? -1 : 0;
}

static int write_openpi(const char *dir)
{
    static const char *const assets[][2] = {{"trossen", "aloha"},
                                            {"lerobot/aloha_sim_transfer_cube_human", "aloha"},
                                            {"physical-intelligence/libero", "libero"},
                                            {"droid", "droid"}};
    for (size_t i = 0; i < sizeof assets / sizeof assets[0]; i++)
        if (write_norm_stats(dir, assets[i][0], assets[i][1]) != 0)
            return -1;
    return 0;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

int pi0_test_make_checkpoint(const char *name, const char *dir)
{
    const checkpoint *c = NULL;
    for (size_t i = 0; !c && pi0_test_checkpoint_name(i); i++)
        if (!strcmp(CHECKPOINTS[i].name, name))
            c = &CHECKPOINTS[i];
    if (!c) {
        errno = EINVAL;
        return -1;
    }
    char probe[1024], temporary[1024];
    snprintf(probe, sizeof probe, "%s/model.safetensors", dir);
    if (access(probe, R_OK) == 0)
        return 0;
    snprintf(temporary, sizeof temporary, "%s.%ld.tmp", dir, (long)getpid());
    if (mkdir(temporary, 0777) != 0)
        return -1;
    if ((c->lerobot ? write_lerobot(temporary, c) : write_openpi(temporary)) == 0 && write_model(temporary, c) == 0 &&
        rename(temporary, dir) == 0)
        return 0;
    int why = errno;
    nftw(temporary, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    errno = why;
    return access(probe, R_OK); /* somebody else may have been quicker */
}
