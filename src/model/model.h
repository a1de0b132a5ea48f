/* model - what a pi0 policy is: how its checkpoints are laid out and named, what its weights and its recipe say, which computation it
 * describes. It knows no device and calls no kernel: it emits plans (plan.h) and transforms observations and actions on the host.
 */
#ifndef PI0_MODEL_H
#define PI0_MODEL_H

#include "device/device.h"
#include "io/io.h"
#include "plan/plan.h"

/* ------------------------------------------------------------------ arch.c: sizes, read from tensor shapes */

typedef struct pi0_gemma_arch {
    int width, depth, mlp, heads, kv_heads, head_dim;
} pi0_gemma_arch;

typedef struct pi0_arch {
    bool pi05; /* adaRMS expert, time_mlp, state in the prompt; else pi0 */
    struct {
        int width, depth, mlp, heads, patch, side, tokens; /* side: picture in pixels; tokens = (side/patch)^2 */
    } vision;
    pi0_gemma_arch prefix; /* "Gemma 2B" */
    pi0_gemma_arch expert; /* "300M": shares depth, heads, kv_heads, head_dim with prefix */
    int vocab;
    int action_dim; /* A: width of action_in_proj */
    bool untied;    /* embed_tokens is stored beside lm_head and is the token table */
} pi0_arch;

/* The tensors of an architecture under their canonical names: openpi-PyTorch's, which have no prefix before "paligemma_with_expert."
 * or "action_in_proj." (reference: openpi models_pytorch/pi0_pytorch.py). */
typedef struct pi0_tensor_spec {
    char name[160];
    int rank;
    int64_t shape[4];
    bool needed; /* false: published files carry it and inference never reads it (the expert's lm_head, the last norm) */
} pi0_tensor_spec;

/* Calls fn for every tensor, in file-independent order; stops at the first non-zero return and returns it. */
int pi0_arch_each_tensor(const pi0_arch *arch, int (*fn)(void *context, const pi0_tensor_spec *spec), void *context);
pi0_arch pi0_arch_base(bool pi05); /* the published sizes */
uint64_t pi0_arch_parameters(const pi0_arch *arch, bool needed_only);
pi0_flop pi0_arch_flop(const pi0_arch *arch, int cameras, int tokens, int horizon, int steps); /* flop.c: what pi0_model_flop says */

/* ------------------------------------------------------------------ checkpoint.c: a MODEL argument -> files, layout, checked tensors */

typedef enum pi0_layout { PI0_LAYOUT_OPENPI, PI0_LAYOUT_LEROBOT, PI0_LAYOUT_LEROBOT_03 } pi0_layout;

typedef struct pi0_checkpoint {
    char *path; /* what was asked for, resolved through the caches */
    char *dir;  /* where the side files lie; NULL for a packed file, which needs none */
    pi0_layout layout;
    const char *naming; /* words for the dialect found: "openpi", "lerobot (model. prefix)", ... */
    pi0_arch arch;
    pi0_safetensors *file;
    struct pi0_name_map *names; /* canonical name -> tensor */
    json_t *config;             /* config.json, or NULL */
    bool packed;
    pi0_precision packed_for; /* of a packed file */
} pi0_checkpoint;

/* Finds, maps and checks everything: layout, naming, every needed tensor with its exact shape, pi0 against pi05 by tensors and config.
 * All that is missing, misshapen or unexpected is in one error. pi0-FAST, MEM, PEFT and orbax are refused by name. */
pi0_status pi0_checkpoint_open(const char *path, const pi0_options *options, const pi0_log *log, pi0_checkpoint **out, pi0_error *err);
void pi0_checkpoint_close(pi0_checkpoint **checkpoint);
const pi0_tensor_view *pi0_checkpoint_tensor(const pi0_checkpoint *checkpoint, const char *canonical); /* NULL when absent */
const char *pi0_layout_name(pi0_layout layout);
json_t *pi0_checkpoint_describe(const pi0_checkpoint *checkpoint, bool tensors); /* for inspect; NULL when out of memory */

/* fingerprint.c: 16 hexadecimal digits that two models share only when they are the same, by names, shapes and sampled bytes. The same
 * weights in another layout or other shards have the same ones, in another type they do not. */
typedef struct pi0_fingerprint {
    char text[20];
} pi0_fingerprint;

pi0_fingerprint pi0_checkpoint_fingerprint(const pi0_checkpoint *checkpoint);

/* Where a MODEL argument's directory and weights are, without opening them. malloc'ed; *dir is NULL for a .pi0 file. */
pi0_status pi0_checkpoint_locate(const char *path, const pi0_options *options, char **dir, char **weights_file, pi0_error *err);

/* ------------------------------------------------------------------ packed.c: what `pi0 pack` writes (docs/formats.md) */

#define PI0_PACKED_VERSION 1
/* metadata */
#define PI0_PACKED_VERSION_KEY "pi0.pack"
#define PI0_PACKED_WRITER_KEY "pi0.written_by"
#define PI0_PACKED_ORDER_KEY "pi0.byte_order"
#define PI0_PACKED_PRECISION_KEY "pi0.precision"
#define PI0_PACKED_CALIBRATION_KEY "pi0.calibration" /* only of a file packed for int8:auto: what `pi0 calibrate` wrote */
#define PI0_PACKED_LAYOUT_KEY "pi0.layout"           /* of the checkpoint it was made from */
#define PI0_PACKED_RECIPE_KEY "pi0.recipe"           /* the recipe file, statistics and all */
#define PI0_PACKED_ORIGINS_KEY "pi0.origins"         /* {"field": "where its value came from"} */
#define PI0_PACKED_SOURCE_KEY "pi0.source"           /* [{"file","bytes","sha256"}] */
#define PI0_PACKED_TOKENIZER_KEY "pi0.tokenizer"     /* name of the tokenizer's file */
/* tensors besides those of the model, by the beginning of their names */
#define PI0_PACKED_OWN "pi0/"
#define PI0_PACKED_CHECKSUMS PI0_PACKED_OWN "checksums" /* last in the file */
#define PI0_PACKED_PAD PI0_PACKED_OWN "pad/"
#define PI0_PACKED_ORDER "packed/" /* then layout, form and sources of a weight: pi0_packed_name */

typedef struct pi0_packed_facts {
    pi0_precision precision;
    pi0_layout layout;
} pi0_packed_facts;

typedef struct pi0_packed_progress {
    pi0_progress_fn fn; /* or NULL */
    void *user;
    uint64_t total;
} pi0_packed_progress;

bool pi0_packed_is(const pi0_safetensors *file);
bool pi0_packed_reserved(const char *name); /* a tensor of a packed file that is none of the model's */
const char *pi0_byte_order(void);           /* of this machine: "little" or "big" */

/* Version, byte order, checksum of the header, and that nothing is missing but weights. PI0_ERR_UNSUPPORTED: a newer version, another byte
 * order. The data are not read. */
pi0_status pi0_packed_check(const pi0_safetensors *file, const char *where, pi0_packed_facts *out, pi0_error *err);
/* Every tensor's checksum, of a file that was checked. PI0_ERR_FORMAT lists those that differ. */
pi0_status pi0_packed_verify(const pi0_safetensors *file, const char *where, const pi0_packed_progress *progress, pi0_error *err);

/* The name under which a weight in a layout of a device's is stored; false when it is too long. */
bool pi0_packed_name(const char *layout, const pi0_weight *weight, char *out, size_t size);
const pi0_tensor_view *pi0_packed_weight(const pi0_checkpoint *checkpoint, const char *layout, const pi0_weight *weight); /* or NULL */
const char *pi0_packed_calibration(const pi0_checkpoint *checkpoint); /* or NULL: packed for one precision, or not packed */
json_t *pi0_packed_describe(const pi0_safetensors *file);             /* for inspect; NULL when out of memory */

/* Calls fn for every tensor that inference reads, by canonical name in order; stops at the first non-zero return and returns it. */
int pi0_checkpoint_each_needed(const pi0_checkpoint *checkpoint,
                               int (*fn)(void *context, const char *canonical, const pi0_tensor_view *tensor), void *context);

/* ------------------------------------------------------------------ recipe.c …: what the weights alone do not say (docs/recipe.md) */

typedef enum pi0_norm_kind {
    PI0_NORM_IDENTITY,
    PI0_NORM_MEAN_STD,
    PI0_NORM_QUANTILES,
    PI0_NORM_QUANTILE10,
    PI0_NORM_MIN_MAX
} pi0_norm_kind;
typedef enum pi0_family { PI0_FAMILY_OPENPI, PI0_FAMILY_LEROBOT } pi0_family; /* arithmetic of normalisation and of the time schedule */

typedef struct pi0_recipe pi0_recipe; /* recipe.h, private to the recipe files: fields, origins, statistics */

/* What the engine reads from a recipe. */
typedef struct pi0_recipe_facts {
    pi0_family family;
    bool pi05;
    int n_slots;
    const char *slots[PI0_MAX_CAMERAS]; /* model slots, in model order */
    const char *keys[PI0_MAX_CAMERAS];  /* the robot's key of each, "" when the slot is one of empty_cameras */
    bool empty[PI0_MAX_CAMERAS];        /* never given: masked */
    bool close_up;                      /* absent cameras move behind the present ones (LeRobot) instead of keeping their place (openpi) */
    bool required[PI0_MAX_CAMERAS];     /* absence is an error */
    pi0_resize resize;
    int image_size;
    int state_dim, action_dim; /* the robot's widths */
    bool state_in_prompt;      /* the prompt cannot be made without the state */
    int horizon, steps, max_tokens;
    bool time_in_f32;              /* openpi: t += dt in f32; LeRobot: 1 + step*dt in f64, then f32 */
    double min_period, max_period; /* of the time embedding */
    const char *default_prompt;    /* or NULL */
    const char *tokenizer_rules;   /* "hf" or "spm": how text that spells special tokens is read */
} pi0_recipe_facts;

/* checkpoint may be NULL with options->recipe or options->config set (tools). tokenizer_dir etc. come from options. Missing statistics are
 * an error unless options->no_norm; with problems != NULL they are appended there (json array of strings) and loading goes on. */
pi0_status pi0_recipe_load(const pi0_checkpoint *checkpoint, const pi0_options *options, const pi0_log *log, json_t *problems,
                           pi0_recipe **out, pi0_error *err);
void pi0_recipe_free(pi0_recipe **recipe);
const pi0_recipe_facts *pi0_recipe_get_facts(const pi0_recipe *recipe);
json_t *pi0_recipe_describe(const pi0_recipe *recipe); /* every field {"value","origin"}, statistics summary and warnings */
json_t *pi0_recipe_to_json(const pi0_recipe *recipe);  /* the recipe file */
json_t *pi0_recipe_origins(const pi0_recipe *recipe);  /* {"field": "where its value came from"} */
json_t *pi0_json_words(const char *text);              /* a JSON string of any bytes: what is not UTF-8 becomes U+FFFD */

/* Which slot a camera name means: the robot's key, its short form, or the slot's own name. The error lists expected and given.
 * *slot = -1 with PI0_OK: a camera that this robot may send and the model has no use for (ALOHA's cam_low). */
pi0_status pi0_recipe_camera(const pi0_recipe *recipe, const char *name, int *slot, pi0_error *err);

/* Where an openpi config keeps its statistics, below assets/; NULL for a name that is no config. */
const char *pi0_config_asset_id(const char *config_name);

/* transform.c. Raw state -> the model's: joint flips and gripper maps, normalisation. padded: f32 [model_dim], zero-filled;
 * text: f64 [state_dim] as the prompt digitises it. */
pi0_status pi0_recipe_state(const pi0_recipe *recipe, const double *raw, int model_dim, float *padded, double *text, pi0_error *err);

/* prompt.c: what making a prompt needs, kept between calls. Zero-initialise. */
typedef struct pi0_prompt_room {
    pi0_text text; /* after a call: the framed text */
    pi0_scratch ids, work;
} pi0_prompt_room;

/* Room for this prompt (NULL = the default, if there is one) and every state: pi0_recipe_prompt then allocates nothing for it. */
pi0_status pi0_prompt_room_reserve(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, const char *prompt, pi0_prompt_room *room,
                                   pi0_error *err);
void pi0_prompt_room_release(pi0_prompt_room *room);

/* Clean, frame, digitise, tokenise, truncate. prompt NULL = default. ids: cap >= max_tokens. room may be NULL. A cut prompt is logged as a
 * warning. */
pi0_status pi0_recipe_prompt(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, const char *prompt, const double *text_state,
                             const pi0_log *log, int64_t *ids, size_t cap, size_t *count, pi0_prompt_room *room, pi0_error *err);

/* transform.c. Model actions f32 [rows, model_dim] -> robot actions f64 [rows, action_dim], with the state of the request. */
pi0_status pi0_recipe_actions(const pi0_recipe *recipe, const float *actions, int rows, int model_dim, const double *raw_state, double *out,
                              pi0_error *err);

/* tokenizer_find.c: the tokenizer file for a model; which rules to read it by is the recipe's. path_out: pi0_free. */
pi0_status pi0_tokenizer_locate(const char *dir, const pi0_options *options, char **path_out, pi0_error *err);
/* The same for a checkpoint: a packed file is its own tokenizer file. */
pi0_status pi0_checkpoint_tokenizer(const pi0_checkpoint *checkpoint, const pi0_options *options, char **path_out, pi0_error *err);

/* ------------------------------------------------------------------ weights.c: plan weights -> host memory */

/* Evaluates one weight expression over the checkpoint's tensors. A tensor that is wanted as it is stored becomes a view of the mapping;
 * else *out owns fresh memory. The sources are checked against the expression's shape. */
pi0_status pi0_weight_evaluate(const pi0_checkpoint *checkpoint, const pi0_weight *weight, pi0_host_weight *out, pi0_error *err);

/* What that will give: how many bytes, and whether they are the mapping's or fresh memory. */
typedef struct pi0_weight_memory {
    pi0_dtype dtype;
    uint64_t bytes;
    bool mapped;
} pi0_weight_memory;

pi0_weight_memory pi0_weight_memory_of(const pi0_checkpoint *checkpoint, const pi0_weight *weight);

/* What --precision auto means: bf16 when the large matrices are stored so, else f32; of a packed file, what it was packed for. */
pi0_precision pi0_checkpoint_precision(const pi0_checkpoint *checkpoint);
const char *pi0_precision_word(pi0_precision precision); /* "f32", "bf16", "int8": as --precision has it */

/* ------------------------------------------------------------------ vision.c, gemma.c, policy.c: the computation, as two plans */

typedef struct pi0_policy_sizes {
    int cameras;              /* slots of the model */
    int max_tokens;           /* prompt rows, at most */
    int horizon;              /* action rows */
    int lanes;                /* max_batch */
    int times;                /* flow times that the schedule holds, at most */
    int window;               /* of the actions' attention to each other (local-window); 0: every action sees every other */
    bool state_kv, time_fold; /* passes that change what is emitted */
} pi0_policy_sizes;

/* Tables by flow time: pi0's time half of the MLP, or the modulation of each of pi0.5's norms. */
#define PI0_MAX_TABLES (2 * PI0_MAX_LAYERS + 1)

/* Tensors of the plans that the engine reads, writes and connects. Ids belong to the plan named; -1: the plan has none. */
typedef struct pi0_policy_io {
    /* context plan */
    int pictures;                                         /* in: CAMERA rows, side*side*3 */
    int tokens;                                           /* in: TEXT rows, i32 ids */
    int vision;                                           /* out: IMAGE rows, prefix width; looked at for values that are not finite */
    int k[PI0_MAX_LAYERS], v[PI0_MAX_LAYERS];             /* out: PREFIX rows, kv_heads*head_dim */
    int context_state;                                    /* in, pi0 with state-kv: STATE rows, action_dim */
    int state_k[PI0_MAX_LAYERS], state_v[PI0_MAX_LAYERS]; /* out, with it: STATE rows */
    /* schedule plan (time-fold) */
    int n_tables;
    int table[PI0_MAX_TABLES]; /* out: TIME rows */
    /* denoise plan */
    int state;                                                  /* in, pi0 without state-kv: STATE rows, action_dim */
    int state_k_in[PI0_MAX_LAYERS], state_v_in[PI0_MAX_LAYERS]; /* in, with it: bound to state_k, state_v of context */
    int table_in[PI0_MAX_TABLES];                               /* in: bound to table of schedule */
    int x;                                                      /* in: ACTION rows, action_dim */
    int velocity;                                               /* out */
    int x_next;                                                 /* out */
    int k_in[PI0_MAX_LAYERS], v_in[PI0_MAX_LAYERS];             /* in: PREFIX rows, bound to k, v of context */
} pi0_policy_io;

/* The plans of a policy. */
typedef struct pi0_policy_plans {
    pi0_plan *context, *schedule /* with time-fold, else NULL */, *denoise;
} pi0_policy_plans;

/* Builds the plans; every weight is declared by canonical name. On failure all are NULL. */
pi0_status pi0_policy_emit(const pi0_arch *arch, const pi0_policy_sizes *sizes, double min_period, double max_period,
                           pi0_policy_plans *plans, pi0_policy_io *io, pi0_error *err);
void pi0_policy_free(pi0_policy_plans *plans);

#endif
