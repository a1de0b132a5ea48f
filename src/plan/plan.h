/* plan - what to compute: a flat list of ops over tensors, built once, checked, rewritten by passes, laid out in one arena.
 *
 * A plan is SSA: every op writes one new tensor; where that lies is the planner's business alone. It is built for maximum sizes. What
 * varies from one inference to the next is in the parameter block (pi0_params), which a device reads while it runs.
 *
 * Rows are ragged: a tensor is [row space, cols]; a row space (pi0_rows) says what its rows stand for. The live rows of all lanes lie one
 * lane after another without gaps, so a matrix product sees one tall matrix, and attention finds each lane's rows in the parameter block.
 *
 * Nothing here runs anything: devices do (device/device.h). Nothing here knows what a policy is: the model does (model/model.h).
 */
#ifndef PI0_PLAN_H
#define PI0_PLAN_H

#include "base/base.h"

/* ------------------------------------------------------------------ row spaces */

typedef enum pi0_rows {
    PI0_ROWS_CAMERA, /* one a picture */
    PI0_ROWS_IMAGE,  /* image_tokens a picture */
    PI0_ROWS_TEXT,   /* prompt tokens */
    PI0_ROWS_PREFIX, /* a lane's IMAGE rows, then its TEXT rows */
    PI0_ROWS_STATE,  /* one a lane (pi0) */
    PI0_ROWS_ACTION, /* horizon a lane */
    PI0_ROWS_SUFFIX, /* a lane's STATE row (pi0), then its ACTION rows */
    PI0_ROWS_TIME,   /* one for each flow time in use */
    PI0_ROWS_COUNT
} pi0_rows;

extern const char *const pi0_rows_names[PI0_ROWS_COUNT];

typedef struct pi0_span {
    int first, count;
} pi0_span;

/* What varies between runs. Owned and filled by the engine; host memory. */
typedef struct pi0_params {
    int lanes;
    pi0_span span[PI0_ROWS_COUNT][PI0_MAX_BATCH]; /* rows of each lane; PI0_ROWS_TIME uses lane 0 */
    int total[PI0_ROWS_COUNT];                    /* live rows of all lanes */
    const int32_t *prefix_position;               /* [PREFIX rows] RoPE positions */
    const int32_t *suffix_position;               /* [SUFFIX rows] */
    const int32_t *state_position;                /* [STATE rows] */
    const int32_t *action_position;               /* [ACTION rows] */
    const uint8_t *prefix_mask;                   /* [PREFIX rows] 0 = not attended; NULL = all are (drop-masked) */
    const int32_t *time_row;                      /* [action rows] which TIME row conditions it */
    const float *time;                            /* [TIME rows] flow time, 1 = noise, 0 = actions */
    float dt;                                     /* of the Euler step, negative */
} pi0_params;

/* ------------------------------------------------------------------ weights: expressions over checkpoint tensors */

typedef enum pi0_weight_use {
    PI0_USE_MATRIX, /* right-hand side of LINEAR: precision chosen by the quantise pass */
    PI0_USE_EXACT,  /* the same, where values enter and leave the model: its inputs stay f32, as in the reference's bf16 */
    PI0_USE_VECTOR, /* bias, norm, small table: always f32 */
    PI0_USE_TABLE   /* token table: stays as stored, rows are read where they lie */
} pi0_weight_use;

typedef enum pi0_weight_form {
    PI0_FORM_TENSOR,   /* the sources one below the other, as stored */
    PI0_FORM_ONE_PLUS, /* 1 + w: Gemma's RMSNorm scale, in f32 */
    /* of a matrix [A | T] with twice as many columns as rows (time-fold), summed in f64, kept in f32: */
    PI0_FORM_RIGHT,     /* T; source: the matrix */
    PI0_FORM_FOLD,      /* A * w; sources: the matrix, w */
    PI0_FORM_FOLD_BIAS, /* A * b + c; sources: the matrix, b, c */
    PI0_FORM_ROPE_TABLE /* no source: [2*positions, d/2]: cos of p * theta^(-2i/d) for all positions p, then sin */
} pi0_weight_form;

typedef enum pi0_precision { PI0_PRECISION_STORED, PI0_PRECISION_F32, PI0_PRECISION_BF16, PI0_PRECISION_INT8 } pi0_precision;

#define PI0_MAX_SOURCES 3

/* What a fused product does with pairs of columns of one source (LINEARS in ops.def): a device may want them side by side. */
typedef enum pi0_pairing {
    PI0_PAIRING_NONE,
    PI0_PAIRING_ROPE, /* columns i and i + head/2 of each head are turned together */
    PI0_PAIRING_GEGLU /* column i of this source and of the next become one */
} pi0_pairing;

typedef struct pi0_weight {
    pi0_weight_form form;
    pi0_weight_use use;
    pi0_precision precision; /* STORED until the quantise pass has run: of both sides of the product */
    int most_rows;           /* of the products that read it, once the quantise pass has run */
    bool stays;              /* the device multiplies by it where the host has it: it is read there for more than the product */
    int shared;              /* 1 + index of the weight of an earlier plan that this is, or 0 (pi0_plan_share) */
    int n_sources;
    char *source[PI0_MAX_SOURCES]; /* canonical names, owned */
    int64_t source_rows[PI0_MAX_SOURCES];
    pi0_pairing pairing[PI0_MAX_SOURCES];
    int head;           /* PI0_PAIRING_ROPE */
    int64_t rows, cols; /* a vector is [1, cols], several one below the other [all, 1]; rows 0: no op reads it any more */
} pi0_weight;

/* ------------------------------------------------------------------ tensors and ops */

typedef enum pi0_tensor_kind { PI0_TENSOR_INPUT, PI0_TENSOR_WEIGHT, PI0_TENSOR_VALUE } pi0_tensor_kind;

typedef struct pi0_tensor {
    pi0_tensor_kind kind;
    pi0_dtype dtype; /* PI0_F32, or PI0_I32 for token ids */
    pi0_rows rows;   /* of inputs and values */
    int cols;
    int weight;       /* index into plan->weights, or -1 */
    bool output;      /* kept: bound to a buffer of the engine's, no pass may remove it */
    const char *name; /* of inputs and outputs; static text */
    size_t offset;    /* in the arena, of values that are no outputs (planner.c) */
} pi0_tensor;

typedef enum pi0_op_kind {
#define OP(id, name, min, max, kind, in_place) PI0_OP_##id,
#include "plan/ops.def"
#undef OP
    PI0_OP_COUNT
} pi0_op_kind;

#define PI0_OP_INPUTS 5
#define PI0_OP_MORE 2

typedef enum pi0_group { PI0_GROUP_LANE, PI0_GROUP_CAMERA } pi0_group; /* what attends to what: a lane's rows, or one picture's */

typedef struct pi0_op {
    pi0_op_kind kind;
    int in[PI0_OP_INPUTS]; /* tensor ids, -1 = absent */
    int out;
    int n_more, more[PI0_OP_MORE]; /* further results of a fused op */
    const char *part;              /* "vision", "prefix", "expert", "action": for reports; static text */
    int layer;                     /* or -1 */
    /* attributes; which ones count depends on the kind */
    int heads, kv_heads, head_dim; /* ROPE*, attention */
    int keys;                      /* attention: most keys of one group */
    pi0_group group;
    bool alone;                    /* attention: a lane's STATE row sees, of the second run of keys, only itself */
    int window;                    /* attention: > 0: of the second run a row sees the STATE row, and rows less than this far from it */
    bool masked;                   /* attention: prefix_mask applies to the first run of keys */
    pi0_precision precision;       /* ATTENTION: of its products, once the quantise pass has run */
    bool gelu, geglu;              /* LINEARS */
    int norm;                      /* ADD_NORM: the kind of the norm */
    int side, patch;               /* PATCHIFY */
    float scale, eps;              /* scale: EMBED, attention. eps: norms */
    double min_period, max_period; /* TIME_EMBED */
} pi0_op;

static inline int pi0_op_results(const pi0_op *op)
{
    return 1 + op->n_more;
}
static inline int pi0_op_result(const pi0_op *op, int i)
{
    return i == 0 ? op->out : op->more[i - 1];
}

typedef struct pi0_op_info {
    const char *name;
    int min_in, max_in;
    bool fused, in_place;
} pi0_op_info;

extern const pi0_op_info pi0_op_infos[PI0_OP_COUNT];

typedef struct pi0_plan {
    const char *name; /* "context" or "denoise" */
    pi0_tensor *tensors;
    int n_tensors;
    pi0_op *ops;
    int n_ops;
    pi0_weight *weights;
    int n_weights;
    int max_rows[PI0_ROWS_COUNT]; /* of all lanes together */
    int image_tokens;             /* IMAGE rows a CAMERA row */
    const char *part;             /* builder state: stamped on new ops */
    int layer;
    int capacity_tensors, capacity_ops, capacity_weights;
    pi0_status failed; /* sticky: the builder functions do nothing once set */
    pi0_error *err;    /* where the first failure is described; borrowed from pi0_plan_create */
    /* set by passes */
    bool live_rows; /* drop-masked: only valid prefix rows are computed */
    bool use_arena, use_replay;
    bool measures_int8; /* every matrix product is also done in int8, and the difference added up (device.h) */
    /* set by the planner */
    size_t arena_bytes; /* what the layout takes */
    size_t live_bytes;  /* the most bytes alive at once: no layout can be smaller */
} pi0_plan;

/* ------------------------------------------------------------------ build.c
 * Builder functions return a tensor id, or -1 once something failed; check plan->failed (or pi0_plan_finish) at the end. Shapes are
 * checked as ops are added; a mismatch is PI0_ERR_INTERNAL that names op and shapes. */

pi0_status pi0_plan_create(const char *name, const int max_rows[PI0_ROWS_COUNT], int image_tokens, pi0_plan **out, pi0_error *err);
void pi0_plan_free(pi0_plan **plan);
pi0_status pi0_plan_finish(pi0_plan *plan); /* the sticky status; forgets plan->err */

void pi0_plan_part(pi0_plan *plan, const char *part, int layer);
int pi0_plan_input(pi0_plan *plan, const char *name, pi0_dtype dtype, pi0_rows rows, int cols);
void pi0_plan_output(pi0_plan *plan, int tensor, const char *name);
int pi0_plan_weight(pi0_plan *plan, pi0_weight_form form, pi0_weight_use use, const char *source, int64_t rows, int64_t cols);
void pi0_plan_weight_source(pi0_plan *plan, int tensor, const char *source); /* one more source of a weight that is no concatenation */

int pi0_plan_patchify(pi0_plan *plan, int pictures, int side, int patch);
int pi0_plan_embed(pi0_plan *plan, int ids, int table, float scale);
int pi0_plan_linear(pi0_plan *plan, int x, int w, int bias /* or -1 */);
int pi0_plan_unary(pi0_plan *plan, pi0_op_kind kind, int x);         /* GELU, SILU */
int pi0_plan_binary(pi0_plan *plan, pi0_op_kind kind, int a, int b); /* ADD, MUL, EULER */
int pi0_plan_layer_norm(pi0_plan *plan, int x, int w, int b, float eps);
int pi0_plan_rms_norm(pi0_plan *plan, int x, int w, float eps);
int pi0_plan_ada_norm(pi0_plan *plan, int x, int mod, float eps);
int pi0_plan_gated_add(pi0_plan *plan, int x, int branch, int mod);
int pi0_plan_rope(pi0_plan *plan, int x, int heads, int head_dim);
/* attn_scores, softmax, attn_mix. k2, v2 may be -1. scale is 1/sqrt(head_dim). */
typedef struct pi0_attention_form {
    int heads, kv_heads, head_dim, keys;
    pi0_group group;
    bool alone, masked;
    int window;
} pi0_attention_form;
int pi0_plan_attention(pi0_plan *plan, const pi0_attention_form *form, int q, int k, int v, int k2, int v2);
int pi0_plan_concat_rows(pi0_plan *plan, int a, int b, pi0_rows rows);
int pi0_plan_take_rows(pi0_plan *plan, int x, pi0_rows rows);
int pi0_plan_concat_cols(pi0_plan *plan, int a, int b);
int pi0_plan_time_embed(pi0_plan *plan, int width, double min_period, double max_period);

/* ------------------------------------------------------------------ passes/: one file a pass, one line in passes.def */

/* MODEL: changes what a trained model computes, so does nothing unless an option of its own asks for it. */
typedef enum pi0_pass_class { PI0_PASS_BIT, PI0_PASS_ORDER, PI0_PASS_ROUNDING, PI0_PASS_MODEL } pi0_pass_class;

typedef struct pi0_pass {
    const char *name;
    pi0_pass_class class;
    const char *summary;
    const char *founding; /* what it carries over from the work that this project grew from, or NULL */
    pi0_status (*run)(pi0_plan *plan, pi0_error *err);
} pi0_pass;

extern const pi0_pass pi0_passes[]; /* in running order; ends with name == NULL */
const pi0_pass *pi0_pass_find(const char *name);
const char *pi0_pass_class_name(pi0_pass_class class);

/* Runs every pass but those in `disabled` (comma separated, may be NULL). An unknown name is PI0_ERR_ARGUMENT that lists the passes. */
pi0_status pi0_passes_check(const char *disabled, pi0_error *err);
bool pi0_pass_enabled(const char *disabled, const char *name);
pi0_status pi0_passes_run(pi0_plan *plan, const char *disabled, pi0_error *err);

/* Weights that no op reads any more get no rows: after passes and expansion, so that nobody takes them into memory. */
void pi0_plan_drop_unread(pi0_plan *plan);

/* What the quantise pass decides by. Names are canonical and borrowed. */
typedef struct pi0_precision_policy {
    pi0_precision matrices;     /* of every matrix and every attention, but for */
    const char *const *in_bf16; /* matrices that read any of these n_in_bf16 tensors, which are PI0_PRECISION_BF16 */
    size_t n_in_bf16;
    bool measures_int8; /* matrices must not be int8 then */
} pi0_precision_policy;

/* The one place where precision is decided: every matrix gets what the policy says, and learns how tall its products can be. */
void pi0_plan_quantise(pi0_plan *plan, const pi0_precision_policy *policy);

/* Every weight of `plan` that `earlier` has too becomes shared, and both expect the taller products of the two. After quantise. */
void pi0_plan_share(pi0_plan *earlier, pi0_plan *plan);

/* For passes: rewriting keeps tensor ids; ops marked with kind PI0_OP_COUNT are removed by pi0_plan_compact. */
void pi0_plan_compact(pi0_plan *plan);
int pi0_plan_producer(const pi0_plan *plan, int tensor);   /* op index, or -1 */
int pi0_plan_uses(const pi0_plan *plan, int tensor);       /* how many op inputs read it; an output counts one more */
int pi0_plan_insert_op(pi0_plan *plan, int at, pi0_op op); /* returns the index, or -1 with plan->failed set */
int pi0_plan_new_value(pi0_plan *plan, pi0_rows rows, int cols);
int pi0_plan_only_reader(const pi0_plan *plan, int tensor); /* index of the one op that reads it, once; -1 otherwise, and for outputs */
/* The first op becomes a LINEARS of all of them, the others are marked as removed. They read the same x. False: plan->failed is set. */
bool pi0_plan_merge_linears(pi0_plan *plan, const int *ops, int n);

/* expand.c: replaces every fused op that takes() refuses by its core ops. expanded may be NULL, else gets the number of ops replaced. */
pi0_status pi0_plan_expand(pi0_plan *plan, bool (*takes)(const pi0_op *op), int *expanded, pi0_error *err);

/* verify.c: SSA, every input produced before use, shapes of every op, outputs kept. PI0_ERR_INTERNAL names the first fault. */
pi0_status pi0_plan_verify(const pi0_plan *plan, pi0_error *err);

/* rope.c: cos and sin [head_dim/2] of one position; what ROPE computes and PI0_FORM_ROPE_TABLE holds for every position. */
void pi0_rope_angles(int position, int head_dim, float *cosines, float *sines);

/* ------------------------------------------------------------------ cost.c */

/* The rows that the keys of an attention, or of one of its core pieces, stand for. */
typedef struct pi0_key_rows {
    pi0_rows first, second;
    bool two_runs;
} pi0_key_rows;

pi0_key_rows pi0_plan_key_rows(const pi0_plan *plan, const pi0_op *op);

/* What one op does in a run. */
typedef struct pi0_cost {
    bool matrix;         /* products or attention */
    int rows;            /* of the results */
    int64_t cols, inner; /* of all results; what a matrix op sums over */
    double flop, bytes;  /* bytes: of inputs and results, each moved once, without the weights, whose type the device knows */
} pi0_cost;

pi0_cost pi0_op_cost(const pi0_plan *plan, const pi0_op *op, const pi0_params *params);

/* ------------------------------------------------------------------ planner.c */

/* Liveness -> offset of every value that is no output; sets arena_bytes and live_bytes. */
pi0_status pi0_plan_layout(pi0_plan *plan, pi0_error *err);
size_t pi0_tensor_bytes(const pi0_plan *plan, int tensor); /* at maximum rows, rounded to PI0_ALIGN; ld = cols */
void pi0_plan_last_uses(const pi0_plan *plan, int *last_use /* [n_tensors]: op index, or -1 */);

#endif
