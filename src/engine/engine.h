/* engine - the composition root: puts checkpoint, recipe, plans and device together, and owns every lifetime. Private to this folder;
 * its public face is pi0.h. */
#ifndef PI0_ENGINE_H
#define PI0_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "model/model.h"

/* A matrix product, whatever plans do it. */
typedef struct pi0_layer_record {
    const pi0_weight *weight; /* of one of the plans */
    char name[112];
    pi0_product_error error;
} pi0_layer_record;

/* A plan with everything that its compiled form needs. */
typedef struct pi0_program {
    pi0_plan *plan;
    pi0_exec *exec;
    pi0_buffer *tensors;        /* [n_tensors] borrowed copies of the model's buffers */
    pi0_device_weight *weights; /* [n_weights] */
    pi0_product_error **errors; /* [n_weights] into the model's layers; NULL: not measured */
} pi0_program;

/* Host arrays behind the parameter block, sized for all lanes. */
typedef struct pi0_param_arrays {
    int32_t *prefix_position, *suffix_position, *state_position, *action_position, *time_row;
    uint8_t *prefix_mask;
    int32_t *tokens;
    float time[PI0_MAX_STEPS]; /* of each step */
} pi0_param_arrays;

/* stats.c */
typedef struct pi0_counters {
    pthread_mutex_t lock;                       /* held for nanoseconds: an inference never waits for who watches it */
    uint64_t opened_ns, busy_ns, busy_since_ns; /* busy_since_ns 0: no inference runs */
    uint64_t inferences, failures, dropped;
    pi0_timing sum, last;
    int queue, queue_limit;
} pi0_counters;

typedef struct pi0_queue_change {
    int waiting, limit; /* more or fewer */
    unsigned dropped, failed;
} pi0_queue_change;

pi0_status pi0_counters_open(pi0_counters **out, pi0_error *err);
void pi0_counters_close(pi0_counters **counters);
void pi0_count_start(pi0_counters *counters); /* of a batch; one at a time */
void pi0_count_end(pi0_counters *counters, pi0_session *const *sessions, size_t n, pi0_status status);
void pi0_count_queue(pi0_counters *counters, pi0_queue_change change);

struct pi0_model {
    pi0_checkpoint *checkpoint;
    pi0_recipe *recipe;
    pi0_recipe_facts facts;
    pi0_tokenizer *tokenizer;
    pi0_arch arch;
    pi0_policy_sizes sizes;
    pi0_policy_io io;
    const pi0_device_api *api;
    pi0_device *device;
    pi0_program context, schedule, denoise;
    pi0_buffer table[PI0_MAX_TABLES];
    struct {
        int steps, first, count; /* which flow times the tables hold; steps 0: none yet */
    } scheduled;
    pi0_buffer pictures, tokens, vision, state, x, x_next, velocity, arena, workspace;
    pi0_buffer k[PI0_MAX_LAYERS], v[PI0_MAX_LAYERS];
    pi0_buffer state_k[PI0_MAX_LAYERS], state_v[PI0_MAX_LAYERS]; /* state-kv */
    pi0_params params;
    pi0_param_arrays arrays;
    float *host_actions; /* [lanes*H, A] one step's x on the host */
    float *host_rows;    /* [pi0_host_floats] for stages and finite checks */
    pi0_precision precision;
    char precision_text[80];
    pi0_layer_record *layers;
    size_t n_layers;
    pi0_info info;
    pi0_memory memory;
    struct {
        atomic_uint_fast64_t open, most_open, bytes, most_bytes, used, failures; /* pi0_session_memory; used: of bytes */
    } sessions;
    pi0_log log;
    pi0_progress_fn progress;
    void *progress_user;
    bool stages, preprocessed;
    pi0_tracer *tracer, *tracing; /* what was recorded; the same while more is, else NULL */
    pthread_mutex_t lock;         /* one inference at a time: K/V cache and workspace are the model's */
    bool lock_ready;
    pi0_counters *counters;
};

typedef struct pi0_stage_record {
    char name[96];
    pi0_array array;
    void *data;
} pi0_stage_record;

struct pi0_session {
    pi0_model *model;
    uint64_t seed, inferences;
    /* observation */
    bool has_image[PI0_MAX_CAMERAS];
    float *pixels[PI0_MAX_CAMERAS]; /* [S,S,3] */
    bool has_state;
    double raw_state[PI0_MAX_DIM]; /* the robot's */
    char *prompt;                  /* NULL: the default */
    bool has_noise;
    float *noise; /* [H,A] */
    /* model inputs: from the observation, or given directly (preprocessed) */
    bool preprocessed, has_tokens, has_model_state;
    int64_t tokens[PI0_MAX_TOKENS];
    size_t n_tokens;
    float model_state[PI0_MAX_DIM]; /* [A] */
    /* results */
    bool has_result, has_actions; /* has_actions: in robot units too */
    float *raw;                   /* [H,A] */
    double *actions;              /* [H,D] */
    double preprocess_ms;         /* pictures, since the last inference */
    bool prepared;                /* by a pipeline: the next inference need not */
    pi0_timing timing;
    pi0_scratch scratch;
    pi0_prompt_room prompt_room;
    uint64_t bytes, used; /* of the session and what it holds, as the model's counters have them */
    pi0_stage_record *stages;
    size_t n_stages, cap_stages;
};

/* open.c */
/* PI0_ERR_CANCELLED when the caller's progress function asks for it. */
pi0_status pi0_open_progress(const pi0_model *model, const char *stage, uint64_t done, uint64_t total, pi0_error *err);
pi0_status pi0_open_tokenizer(const pi0_checkpoint *checkpoint, const pi0_recipe_facts *facts, const pi0_options *options,
                              pi0_tokenizer **out, pi0_error *err); /* that fits the model's table */
pi0_status pi0_find_device(const char *name, const pi0_device_api **out, pi0_error *err);
size_t pi0_device_count(void);
const pi0_device_api *pi0_device_at(size_t index);

/* How the device takes a weight of the checkpoint: from the bytes that a packed file has for it, packed at open, or as it is stored. */
typedef struct pi0_placement {
    pi0_dtype stored;             /* of the weight before it is packed */
    char layout[PI0_LAYOUT_TEXT]; /* of the device's kernels for it, or empty */
    const pi0_tensor_view *ready; /* in that layout, mapped; or NULL */
    uint64_t mapped, owned;       /* bytes of the file's mapping, of the device's or of fresh memory */
    bool packs;                   /* at open: the time that a packed file saves */
} pi0_placement;

pi0_status pi0_place_weight(const pi0_checkpoint *checkpoint, const pi0_device_api *api, const pi0_device *device, const pi0_weight *weight,
                            pi0_placement *out, pi0_error *err);

/* From the checkpoint to the device. What the device made a copy of leaves host memory; without a buffer in *out, out->host.owned is the
 * caller's to free after the device let go of it. */
pi0_status pi0_import_weight(const pi0_checkpoint *checkpoint, const pi0_device_api *api, pi0_device *device, const pi0_weight *as,
                             pi0_device_weight *out, pi0_error *err);

/* How many weights are packed at open, and of a packed file how many are used where they lie. */
typedef struct pi0_pack_use {
    int ready, packed;
    uint64_t ready_bytes, packed_bytes;
    char missing[PI0_LAYOUT_TEXT]; /* the first layout that the file does not have */
} pi0_pack_use;

/* blueprint.c: everything of a model that can be known before a byte of weights is touched: arch, sizes, plans, memory plan */
typedef struct pi0_blueprint {
    pi0_arch arch;
    pi0_policy_sizes sizes;
    pi0_policy_io io;
    pi0_precision precision;
    bool by_layer;           /* int8:auto: int8 but for what a calibration names */
    char precision_text[80]; /* pi0_info.precision */
    pi0_policy_plans plans;
    int expanded; /* fused ops that the device does not take */
    size_t workspace;
    pi0_memory memory;
    pi0_pack_use pack_use;
} pi0_blueprint;

/* What one is made for. */
typedef struct pi0_site {
    const pi0_checkpoint *checkpoint;
    const pi0_recipe_facts *facts;
    const pi0_tokenizer *tokenizer; /* or NULL */
    const pi0_options *options;
    const pi0_device_api *api;
    const pi0_device *device;
} pi0_site;

pi0_status pi0_blueprint_make(const pi0_site *site, pi0_blueprint *out, pi0_error *err);
void pi0_blueprint_free(pi0_blueprint *blueprint);

/* memory.c */
pi0_status pi0_plan_memory(const pi0_site *site, pi0_blueprint *b, pi0_error *err);              /* after the plans: fills b->memory */
pi0_status pi0_check_memory_limit(const pi0_site *site, const pi0_blueprint *b, pi0_error *err); /* PI0_ERR_MEMORY lists what would fit */
/* Of pi0_param_arrays and the host's copies. host_rows holds, one after the other, a picture's vision rows and a lane's keys of a layer. */
uint64_t pi0_param_bytes(const pi0_arch *arch, const pi0_policy_sizes *sizes, const int rows[PI0_ROWS_COUNT]);
size_t pi0_host_floats(const pi0_arch *arch, const pi0_policy_sizes *sizes);

/* session.c: where everything lies in a session's pages */
typedef struct pi0_session_layout {
    size_t pixels[PI0_MAX_CAMERAS], noise, raw, actions;
    size_t used, bytes; /* bytes: whole pages */
} pi0_session_layout;

pi0_session_layout pi0_session_layout_of(const pi0_arch *arch, const pi0_policy_sizes *sizes, int action_dim /* the robot's */);

/* calibration.c: the file of `pi0 calibrate`. Names point into `document`. */
#define PI0_INT8_MEAN_COSINE 0.9995 /* of the actions, over recorded observations (docs/numerics.md) */

typedef struct pi0_calibration {
    json_t *document;
    const char *model, *form; /* fingerprint; "w8a8" */
    const char **in_bf16;     /* canonical names of tensors */
    size_t n_in_bf16;
} pi0_calibration;

pi0_status pi0_calibration_parse(const char *text, size_t bytes, const char *where, pi0_calibration *out, pi0_error *err);
/* Whether the options name one, or a packed file brings one along. */
bool pi0_calibration_exists(const pi0_options *options, const pi0_checkpoint *checkpoint);
/* Reads and parses the one that exists, and checks that it was made for this model and this form of int8. */
pi0_status pi0_calibration_open(const pi0_options *options, const pi0_checkpoint *checkpoint, const pi0_device_info *device,
                                pi0_calibration *out, pi0_error *err);
void pi0_calibration_close(pi0_calibration *calibration);

/* A calibration without any report: what a reader needs, and what pi0_calibrate adds to. NULL when out of memory. */
json_t *pi0_calibration_new(pi0_fingerprint model, const char *form, const char *const *in_bf16, size_t n_in_bf16);

/* "w8a8" from the device's "int8 (w8a8)". */
typedef struct pi0_int8_form {
    char text[16];
} pi0_int8_form;

pi0_int8_form pi0_int8_form_of(const pi0_device_info *device);

/* layers.c */
pi0_status pi0_layers_open(pi0_model *model, bool measure, pi0_error *err); /* after the plans, before they are compiled */
void pi0_layers_close(pi0_model *model);
/* Products of the plans whose first source begins with `prefix`, and how many of them are in this precision. */
typedef struct pi0_product_count {
    int all, chosen;
} pi0_product_count;

pi0_product_count pi0_products_count(const pi0_policy_plans *plans, const char *prefix, pi0_precision precision);
double pi0_product_error_relative(const pi0_product_error *error);
double pi0_product_error_cosine(const pi0_product_error *error);

/* "prefix.3.mlp.gate_proj+up_proj" of an op of a program; "" where it is no product of the list. */
const char *pi0_product_name(const pi0_model *model, const pi0_program *program, const pi0_op *op);

/* pages.c: brings what the device reads where the file is mapped into memory, on the device's number of threads. After all imports.
 * *done, total: bytes for the progress. */
pi0_status pi0_take_pages(pi0_model *model, uint64_t *done, uint64_t total, pi0_error *err);
bool pi0_is_mapped(const pi0_weight *as, const pi0_device_weight *weight); /* read there, but for tables, of which some rows are */
uint64_t pi0_host_bytes(const pi0_host_weight *weight);

/* warm.c: once the model is whole (pi0_options.warm) */
pi0_status pi0_warm(pi0_model *model, pi0_error *err);

/* stages.c */
void pi0_stages_clear(pi0_session *session);
pi0_status pi0_stages_add(pi0_session *session, pi0_dtype dtype, const void *data, int rank, const int64_t *shape, pi0_error *err,
                          const char *name, ...) PI0_PRINTF(7, 8);
void pi0_stages_free(pi0_session *session);

/* describe.c: sets object[key]. Steals `value`; *failed becomes true when anything is out of memory. */
void pi0_json_put(json_t *object, const char *key, json_t *value, bool *failed);

/* topology.c: processors and caches, as the system tells of them; 0 is not known */
enum { PI0_CACHES = 3 };
extern const char *const pi0_cache_names[PI0_CACHES];

typedef struct pi0_topology {
    int sockets, cores, cpus, nodes;
    size_t cache_bytes[PI0_CACHES]; /* of one; at level 1 for data */
    int cache_count[PI0_CACHES];
} pi0_topology;

pi0_topology pi0_topology_read(void);

/* measure.c: what the machine can do, as a JSON object */
pi0_status pi0_measure(const pi0_options *options, json_t **out, pi0_error *err);

/* inputs.c: one session's observation -> one lane's model inputs */
pi0_status pi0_prepare_inputs(pi0_session *session, pi0_error *err);

#endif
