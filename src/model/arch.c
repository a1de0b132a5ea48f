#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/checkpoint.h"

/* ------------------------------------------------------------------ the table of tensors */

typedef struct walk {
    int (*fn)(void *context, const pi0_tensor_spec *spec);
    void *context;
    int stopped; /* first non-zero return */
} walk;

static void emit(walk *w, bool needed, int rank, const int64_t *shape, const char *stem, int layer, const char *leaf)
{
    if (w->stopped)
        return;
    pi0_tensor_spec spec = {.rank = rank, .needed = needed};
    if (layer < 0)
        snprintf(spec.name, sizeof spec.name, "%s%s", stem, leaf);
    else
        snprintf(spec.name, sizeof spec.name, "%slayers.%d.%s", stem, layer, leaf);
    memcpy(spec.shape, shape, (size_t)rank * sizeof *shape);
    w->stopped = w->fn(w->context, &spec);
}

static void emit_vector(walk *w, int64_t n, const char *stem, int layer, const char *leaf)
{
    emit(w, true, 1, &n, stem, layer, leaf);
}

static void emit_matrix(walk *w, int64_t rows, int64_t cols, const char *stem, int layer, const char *leaf)
{
    int64_t shape[] = {rows, cols};
    emit(w, true, 2, shape, stem, layer, leaf);
}

static void emit_vision(walk *w, const pi0_arch *arch)
{
    int64_t width = arch->vision.width, mlp = arch->vision.mlp;
    int64_t patch[] = {width, 3, arch->vision.patch, arch->vision.patch};
    emit(w, true, 4, patch, PI0_VISION, -1, "embeddings.patch_embedding.weight");
    emit_vector(w, width, PI0_VISION, -1, "embeddings.patch_embedding.bias");
    emit_matrix(w, arch->vision.tokens, width, PI0_VISION, -1, "embeddings.position_embedding.weight");
    for (int i = 0; i < arch->vision.depth; i++) {
        static const char *const square[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"};
        const char *stem = PI0_VISION "encoder.";
        emit_vector(w, width, stem, i, "layer_norm1.weight");
        emit_vector(w, width, stem, i, "layer_norm1.bias");
        for (size_t j = 0; j < sizeof square / sizeof square[0]; j++) {
            char leaf[64];
            snprintf(leaf, sizeof leaf, "%s.weight", square[j]);
            emit_matrix(w, width, width, stem, i, leaf);
            snprintf(leaf, sizeof leaf, "%s.bias", square[j]);
            emit_vector(w, width, stem, i, leaf);
        }
        emit_vector(w, width, stem, i, "layer_norm2.weight");
        emit_vector(w, width, stem, i, "layer_norm2.bias");
        emit_matrix(w, mlp, width, stem, i, "mlp.fc1.weight");
        emit_vector(w, mlp, stem, i, "mlp.fc1.bias");
        emit_matrix(w, width, mlp, stem, i, "mlp.fc2.weight");
        emit_vector(w, width, stem, i, "mlp.fc2.bias");
    }
    emit_vector(w, width, PI0_VISION, -1, "post_layernorm.weight");
    emit_vector(w, width, PI0_VISION, -1, "post_layernorm.bias");
}

static void emit_norm(walk *w, const pi0_gemma_arch *gemma, bool ada, bool needed, const char *stem, int layer, const char *name)
{
    char leaf[64];
    int64_t width = gemma->width;
    if (ada) {
        snprintf(leaf, sizeof leaf, "%s.dense.weight", name);
        emit_matrix(w, 3 * width, width, stem, layer, leaf);
        snprintf(leaf, sizeof leaf, "%s.dense.bias", name);
        emit_vector(w, 3 * width, stem, layer, leaf);
        return;
    }
    snprintf(leaf, sizeof leaf, "%s.weight", name);
    emit(w, needed, 1, &width, stem, layer, leaf);
}

static void emit_gemma(walk *w, const pi0_gemma_arch *gemma, bool ada, bool norm_needed, const char *stem)
{
    int64_t width = gemma->width, mlp = gemma->mlp;
    int64_t queries = (int64_t)gemma->heads * gemma->head_dim, keys = (int64_t)gemma->kv_heads * gemma->head_dim;
    for (int i = 0; i < gemma->depth; i++) {
        emit_norm(w, gemma, ada, true, stem, i, "input_layernorm");
        emit_matrix(w, queries, width, stem, i, "self_attn.q_proj.weight");
        emit_matrix(w, keys, width, stem, i, "self_attn.k_proj.weight");
        emit_matrix(w, keys, width, stem, i, "self_attn.v_proj.weight");
        emit_matrix(w, width, queries, stem, i, "self_attn.o_proj.weight");
        emit_norm(w, gemma, ada, true, stem, i, "post_attention_layernorm");
        emit_matrix(w, mlp, width, stem, i, "mlp.gate_proj.weight");
        emit_matrix(w, mlp, width, stem, i, "mlp.up_proj.weight");
        emit_matrix(w, width, mlp, stem, i, "mlp.down_proj.weight");
    }
    emit_norm(w, gemma, ada, norm_needed, stem, -1, "norm");
}

static void emit_linear(walk *w, int64_t rows, int64_t cols, const char *name)
{
    emit_matrix(w, rows, cols, name, -1, ".weight");
    emit_vector(w, rows, name, -1, ".bias");
}

int pi0_arch_each_tensor(const pi0_arch *arch, int (*fn)(void *context, const pi0_tensor_spec *spec), void *context)
{
    walk w = {.fn = fn, .context = context};
    int64_t width = arch->expert.width;
    int64_t table[] = {arch->vocab, arch->prefix.width}, expert_head[] = {arch->vocab, width};
    emit_vision(&w, arch);
    emit_matrix(&w, arch->prefix.width, arch->vision.width, PI0_PROJECTOR, -1, "weight");
    emit_vector(&w, arch->prefix.width, PI0_PROJECTOR, -1, "bias");
    emit(&w, !arch->untied, 2, table, PI0_LM_HEAD, -1, "");
    if (arch->untied)
        emit(&w, true, 2, table, PI0_EMBED_TOKENS, -1, "");
    /* The prefix only feeds keys and values to the expert, so what comes after its last layer is never read. */
    emit_gemma(&w, &arch->prefix, false, false, PI0_PREFIX);
    emit_gemma(&w, &arch->expert, arch->pi05, true, PI0_EXPERT);
    emit(&w, false, 2, expert_head, PI0_EXPERT_HEAD, -1, "");
    emit_linear(&w, width, arch->action_dim, "action_in_proj");
    emit_linear(&w, arch->action_dim, width, "action_out_proj");
    if (arch->pi05) {
        emit_linear(&w, width, width, "time_mlp_in");
        emit_linear(&w, width, width, "time_mlp_out");
    } else {
        emit_linear(&w, width, arch->action_dim, "state_proj");
        emit_linear(&w, width, 2 * width, "action_time_mlp_in");
        emit_linear(&w, width, width, "action_time_mlp_out");
    }
    return w.stopped;
}

pi0_arch pi0_arch_base(bool pi05)
{
    pi0_arch arch = {
        .pi05 = pi05,
        .vision = {.width = 1152, .depth = 27, .mlp = 4304, .heads = 16, .patch = 14, .side = 224, .tokens = 256},
        .prefix = {.width = 2048, .depth = 18, .mlp = 16384, .heads = 8, .kv_heads = 1, .head_dim = 256},
        .expert = {.width = 1024, .depth = 18, .mlp = 4096, .heads = 8, .kv_heads = 1, .head_dim = 256},
        .vocab = 257152,
        .action_dim = 32,
    };
    return arch;
}

typedef struct tally {
    bool needed_only;
    uint64_t parameters;
} tally;

static int add_parameters(void *context, const pi0_tensor_spec *spec)
{
    tally *t = context;
    uint64_t n = 1;
    for (int i = 0; i < spec->rank; i++)
        n *= (uint64_t)spec->shape[i];
    if (spec->needed || !t->needed_only)
        t->parameters += n;
    return 0;
}

uint64_t pi0_arch_parameters(const pi0_arch *arch, bool needed_only)
{
    tally t = {.needed_only = needed_only};
    pi0_arch_each_tensor(arch, add_parameters, &t);
    return t.parameters;
}

/* ------------------------------------------------------------------ sizes from shapes */

typedef struct reading {
    const struct pi0_name_map *names;
    pi0_error *err;
    pi0_status status;
} reading;

/* A size that is beyond its bound is remembered as an error and read as unknown. */
static int bounded(reading *r, int64_t size, int64_t max, const char *what, const char *tensor)
{
    if (size >= 1 && size <= max)
        return (int)size;
    if (r->status == PI0_OK) {
        r->status = pi0_fail(r->err, PI0_ERR_MODEL, "%s is out of bounds", what);
        pi0_err_where(r->err, "%s", tensor);
        pi0_err_expected(r->err, "1 to %lld", (long long)max);
        pi0_err_got(r->err, "%lld", (long long)size);
    }
    return 0;
}

/* 0 when there is no such tensor or it has no such axis; both end in the list of what is missing and misshapen. */
static int size_of(reading *r, const char *name, int axis, int64_t max, const char *what)
{
    const pi0_tensor_view *tensor = pi0_name_map_tensor(r->names, name);
    return tensor && tensor->rank > axis ? bounded(r, tensor->shape[axis], max, what, tensor->name) : 0;
}

static int size_in_layers(reading *r, const char *stem, int depth, const char *leaf, int axis, int64_t max, const char *what)
{
    int size = 0;
    for (int i = 0; i < depth && size == 0; i++) {
        char name[192];
        snprintf(name, sizeof name, "%slayers.%d.%s", stem, i, leaf);
        size = size_of(r, name, axis, max, what);
    }
    return size;
}

static int first_known(int a, int b)
{
    return a ? a : b;
}

/* Highest layer + 1 among tensors that a layer can have; a gap below shows as missing tensors. */
static int read_depth(reading *r, const char *stem)
{
    static const char *const leaves[] = {"self_attn.",   "mlp.",        "input_layernorm.", "post_attention_layernorm.",
                                         "layer_norm1.", "layer_norm2."};
    char prefix[160];
    size_t length = (size_t)snprintf(prefix, sizeof prefix, "%slayers.", stem);
    int depth = 0;
    for (size_t i = 0; i < r->names->count; i++) {
        const char *name = r->names->entries[i].canonical;
        if (strncmp(name, prefix, length) != 0)
            continue;
        const char *p = name + length;
        int64_t layer = 0;
        for (; *p >= '0' && *p <= '9' && layer < INT32_MAX; p++)
            layer = 10 * layer + (*p - '0');
        if (p == name + length || *p != '.')
            continue;
        for (size_t j = 0; j < sizeof leaves / sizeof leaves[0]; j++)
            if (strncmp(p + 1, leaves[j], strlen(leaves[j])) == 0 && layer >= depth)
                depth = bounded(r, layer + 1, PI0_MAX_LAYERS, "the number of layers", name);
    }
    return depth;
}

static void read_vision(reading *r, pi0_arch *arch)
{
    const char *layers = PI0_VISION "encoder.", *position = PI0_VISION "embeddings.position_embedding.weight";
    arch->vision.patch = 14;
    arch->vision.depth = read_depth(r, layers);
    int width = size_of(r, PI0_VISION "embeddings.patch_embedding.weight", 0, PI0_MAX_WIDTH, "the vision width");
    arch->vision.width = first_known(width, size_of(r, position, 1, PI0_MAX_WIDTH, "the vision width"));
    arch->vision.mlp = size_in_layers(r, layers, arch->vision.depth, "mlp.fc1.weight", 0, PI0_MAX_WIDTH, "the vision MLP width");
    int max_side = PI0_MAX_IMAGE_SIDE / arch->vision.patch;
    arch->vision.tokens = size_of(r, position, 0, (int64_t)max_side * max_side, "the number of patches");
    int side = 0;
    while ((int64_t)side * side < arch->vision.tokens)
        side++;
    arch->vision.side = side * arch->vision.patch;
    arch->vision.heads = arch->vision.width / 72;
    if (r->status == PI0_OK && arch->vision.width % 72 != 0) {
        r->status = pi0_fail(r->err, PI0_ERR_MODEL, "the vision width is no multiple of SigLIP's head width");
        pi0_err_where(r->err, PI0_VISION "embeddings.patch_embedding.weight");
        pi0_err_expected(r->err, "a multiple of 72");
        pi0_err_got(r->err, "%d", arch->vision.width);
    }
    if (r->status == PI0_OK && side * side != arch->vision.tokens) {
        r->status = pi0_fail(r->err, PI0_ERR_MODEL, "the patches of a picture form no square");
        pi0_err_where(r->err, "%s", position);
        pi0_err_expected(r->err, "a square number of rows (256 for 224 x 224 pixels)");
        pi0_err_got(r->err, "%d rows", arch->vision.tokens);
    }
}

static void read_gemma(reading *r, pi0_gemma_arch *gemma, const char *stem)
{
    gemma->kv_heads = 1; /* no published variant has more, and shapes alone could not tell 2 heads of 128 from 1 of 256 */
    gemma->depth = read_depth(r, stem);
    gemma->mlp = size_in_layers(r, stem, gemma->depth, "mlp.gate_proj.weight", 0, PI0_MAX_WIDTH, "an MLP width");
    gemma->mlp = first_known(gemma->mlp, size_in_layers(r, stem, gemma->depth, "mlp.up_proj.weight", 0, PI0_MAX_WIDTH, "an MLP width"));
    int dim = size_in_layers(r, stem, gemma->depth, "self_attn.k_proj.weight", 0, PI0_MAX_WIDTH, "the head width");
    gemma->head_dim =
        first_known(dim, size_in_layers(r, stem, gemma->depth, "self_attn.v_proj.weight", 0, PI0_MAX_WIDTH, "the head width"));
}

/* Both towers attend over the same keys, so what one of them does not tell the other does. */
static void read_heads(reading *r, pi0_arch *arch)
{
    int depth = pi0_max_int(arch->prefix.depth, arch->expert.depth);
    int dim = first_known(arch->prefix.head_dim, arch->expert.head_dim);
    int queries = size_in_layers(r, PI0_PREFIX, depth, "self_attn.q_proj.weight", 0, PI0_MAX_WIDTH, "the width of the queries");
    queries =
        first_known(queries, size_in_layers(r, PI0_EXPERT, depth, "self_attn.q_proj.weight", 0, PI0_MAX_WIDTH, "the width of the queries"));
    int heads = dim ? queries / dim : 0;
    if (r->status == PI0_OK && dim && queries && (queries % dim != 0 || dim % 2 != 0)) {
        r->status = pi0_fail(r->err, PI0_ERR_MODEL, "the attention heads do not come out whole");
        pi0_err_where(r->err, PI0_PREFIX "layers.*.self_attn");
        pi0_err_expected(r->err, "rows of k_proj even (one head), rows of q_proj a multiple of them");
        pi0_err_got(r->err, "k_proj %d rows, q_proj %d rows", dim, queries);
    }
    arch->prefix.depth = arch->expert.depth = depth;
    arch->prefix.head_dim = arch->expert.head_dim = dim;
    arch->prefix.heads = arch->expert.heads = heads;
}

pi0_status pi0_arch_read(const struct pi0_name_map *names, bool pi05, pi0_arch *out, pi0_error *err)
{
    reading r = {.names = names, .err = err};
    pi0_arch arch = {.pi05 = pi05};
    const char *table = pi0_name_map_find(names, PI0_EMBED_TOKENS) ? PI0_EMBED_TOKENS : PI0_LM_HEAD;
    arch.untied = pi0_name_map_find(names, PI0_EMBED_TOKENS) && pi0_name_map_find(names, PI0_LM_HEAD);
    read_vision(&r, &arch);
    read_gemma(&r, &arch.prefix, PI0_PREFIX);
    read_gemma(&r, &arch.expert, PI0_EXPERT);
    read_heads(&r, &arch);
    arch.vocab = size_of(&r, table, 0, PI0_MAX_PIECES, "the vocabulary");
    int width = size_of(&r, PI0_PROJECTOR "weight", 0, PI0_MAX_WIDTH, "the prefix width");
    arch.prefix.width = first_known(width, size_of(&r, table, 1, PI0_MAX_WIDTH, "the prefix width"));
    width = size_of(&r, "action_in_proj.weight", 0, PI0_MAX_WIDTH, "the expert width");
    arch.expert.width = first_known(width, size_of(&r, "action_in_proj.bias", 0, PI0_MAX_WIDTH, "the expert width"));
    int dim = size_of(&r, "action_in_proj.weight", 1, PI0_MAX_DIM, "the action width");
    arch.action_dim = first_known(dim, size_of(&r, "action_out_proj.weight", 0, PI0_MAX_DIM, "the action width"));
    if (r.status == PI0_OK && arch.expert.width % 2 != 0) {
        r.status = pi0_fail(err, PI0_ERR_MODEL, "the expert width is odd");
        pi0_err_where(err, "action_in_proj.weight");
        pi0_err_expected(err, "an even number of rows: half sines, half cosines of the flow time");
        pi0_err_got(err, "%d", arch.expert.width);
    }
    *out = arch;
    return r.status;
}
