/* pi0.h - the public API of libpi0: pi0 and pi0.5 robot policies in C.
 *
 * In: camera pictures, a robot state, an instruction. Out: one chunk of actions in the robot's own units.
 *
 * Three objects:
 *   pi0_model    an opened checkpoint: weights, recipe, compiled plans. Immutable after pi0_open, shareable between threads.
 *   pi0_session  one robot's timeline: its current observation, its noise stream, its last actions. Used by one thread at a time.
 *   pi0_error    why a call failed: what, where, expected, got, what to try.
 *
 * Conventions
 *   Every function that can fail returns a pi0_status: 0 is ok, negative is an error, and fills *err when err is not NULL.
 *   Option structs are filled by their _init function first; fields left alone keep their defaults.
 *   Strings are UTF-8. Paths are the operating system's. Pointers returned by a getter belong to the object that they came from.
 *   The library never exits, never prints, never reads the environment, and opens no network connection.
 *   Threads: different sessions of one model may be used from different threads; pi0_infer calls on one model run one after another.
 */
#ifndef PI0_H
#define PI0_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define PI0_API
#else
#define PI0_API __attribute__((visibility("default")))
#endif

/* ------------------------------------------------------------------ status and errors */

typedef enum pi0_status {
    PI0_OK = 0,
    PI0_ERR_ARGUMENT = -1,    /* the caller's argument: wrong name, shape, range, or missing input */
    PI0_ERR_IO = -2,          /* the operating system refused: open, read, write, map */
    PI0_ERR_FORMAT = -3,      /* a file is not what it claims to be, or breaks its format's rules */
    PI0_ERR_MODEL = -4,       /* the files are well formed, but no model can be made of them as they are */
    PI0_ERR_MEMORY = -5,      /* an allocation failed, or a memory limit would be passed */
    PI0_ERR_DEVICE = -6,      /* the device, or its driver, is absent or refuses */
    PI0_ERR_UNSUPPORTED = -7, /* understood, and deliberately not done by this version */
    PI0_ERR_NONFINITE = -8,   /* a NaN or infinity in an input, a stage or an action */
    PI0_ERR_CANCELLED = -9,   /* a progress callback or pi0_opening_cancel asked to stop */
    PI0_ERR_INTERNAL = -10    /* a bug in this library */
} pi0_status;

/* What went wrong. Fields that do not apply are empty strings. `list` holds one item a line (all missing tensors, say), or NULL.
 * Zero-initialise before first use; pi0_error_clear frees `list` and empties the rest. */
typedef struct pi0_error {
    pi0_status status;
    char what[512];  /* one sentence */
    char where[512]; /* file, key, tensor, option, stage */
    char expected[512];
    char got[512];
    char hint[512]; /* what to try */
    char *list;     /* heap text owned by the error, or NULL */
} pi0_error;

PI0_API const char *pi0_version(void);
PI0_API const char *pi0_status_name(pi0_status status);
PI0_API void pi0_error_clear(pi0_error *err);

/* ------------------------------------------------------------------ named arrays: .npy, .npz, pictures */

typedef enum pi0_dtype {
    PI0_F32 = 1,
    PI0_F64,
    PI0_F16,
    PI0_BF16,
    PI0_U8,
    PI0_I8,
    PI0_I16,
    PI0_U16,
    PI0_I32,
    PI0_U32,
    PI0_I64,
    PI0_U64,
    PI0_BOOL,
    PI0_TEXT /* one UTF-8 string; data is NUL-terminated, bytes excludes the NUL */
} pi0_dtype;

PI0_API size_t pi0_dtype_size(pi0_dtype dtype);      /* bytes of one element; 1 for PI0_TEXT, 0 for an unknown value */
PI0_API const char *pi0_dtype_name(pi0_dtype dtype); /* "f32", ... */

#define PI0_MAX_RANK 8

/* A dense C-order array. `name` is "" for the array of a .npy file. Whoever made it owns name and data. */
typedef struct pi0_array {
    const char *name;
    pi0_dtype dtype;
    int rank;
    int64_t shape[PI0_MAX_RANK];
    const void *data;
    size_t bytes;
} pi0_array;

/* A set of arrays read from one file; owns all names and data. */
typedef struct pi0_arrays pi0_arrays;

PI0_API pi0_status pi0_arrays_read(const char *path, pi0_arrays **out, pi0_error *err); /* .npy or .npz, told by content */

/* The same without the arrays named ref/... and gate/..., which belong to `pi0 check`: they are not decoded, so may be of any kind. A
 * single array without a name is no observation: PI0_ERR_FORMAT. */
PI0_API pi0_status pi0_observation_read(const char *path, pi0_arrays **out, pi0_error *err);
PI0_API size_t pi0_arrays_count(const pi0_arrays *arrays);
PI0_API const pi0_array *pi0_arrays_at(const pi0_arrays *arrays, size_t index);
PI0_API const pi0_array *pi0_arrays_find(const pi0_arrays *arrays, const char *name); /* NULL when absent */
PI0_API void pi0_arrays_free(pi0_arrays **arrays);

/* Writes .npy (exactly one array) or .npz (any number), told by the path's ending. Goes to a temporary name and is renamed:
 * on failure nothing is left behind and an older file of that name is untouched. */
PI0_API pi0_status pi0_arrays_write(const char *path, const pi0_array *list, size_t count, pi0_error *err);

/* Writes bytes the same atomic way. */
PI0_API pi0_status pi0_file_write(const char *path, const void *data, size_t bytes, pi0_error *err);

/* Reads a PNG, a JPEG (both give u8 [h,w,3] RGB) or a .npy picture as stored. The result holds exactly one array. */
PI0_API pi0_status pi0_image_read(const char *path, pi0_arrays **out, pi0_error *err);

/* One picture -> what the vision tower sees: f32 [size,size,3] in [-1,1], written to out.
 * image: u8 or f32/f64, HWC or CHW (3 channels; an ambiguous shape is an error); floats in [0,1] or [-1,1].
 * resize: "pil", "torch", "torch-lerobot04" or "top-left" (docs/recipe.md). */
PI0_API pi0_status pi0_preprocess(const pi0_array *image, const char *resize, int size, float *out, pi0_error *err);

/* Writes a [size,size,3] f32 picture in [-1,1] as an 8-bit PNG. */
PI0_API pi0_status pi0_image_write_png(const char *path, const float *pixels, int size, pi0_error *err);

/* ------------------------------------------------------------------ opening a model */

typedef enum pi0_log_level { PI0_LOG_INFO, PI0_LOG_WARNING } pi0_log_level;

/* text: one line, no newline. May be called from the thread that calls the library only. */
typedef void (*pi0_log_fn)(void *user, pi0_log_level level, const char *text);

/* done/total in bytes, but in runs where the stage is "measuring" or "calibrating"; total 0: not known; return non-zero to cancel (the call
 * ends with PI0_ERR_CANCELLED and leaves nothing behind). */
typedef int (*pi0_progress_fn)(void *user, const char *stage, uint64_t done, uint64_t total);

typedef struct pi0_options {
    /* recipe (docs/recipe.md); NULL = decide from the checkpoint's own files */
    const char *config;     /* an openpi config name: "pi0_aloha_sim", "pi05_libero", ... */
    const char *recipe;     /* a recipe JSON file: the whole of it */
    const char *const *set; /* n_set strings "KEY=VALUE", one recipe field each */
    size_t n_set;
    const char *tokenizer;  /* tokenizer.json or SentencePiece tokenizer.model */
    const char *norm_stats; /* norm_stats.json, stats.json or statistics safetensors */
    const char *asset_id;   /* which folder below assets/ */
    int no_norm;            /* 1: identity normalisation, on purpose */
    /* where MODEL names and tokenizers may be found in caches; NULL = not searched. The app passes the environment's. */
    const char *hf_home;     /* ~/.cache/huggingface */
    const char *openpi_home; /* ~/.cache/openpi */
    /* computing */
    const char *device;    /* "cpu" */
    const char *precision; /* "auto", "f32", "bf16", "int8", "int8:auto"; auto of a packed file: what it was packed for */
    /* of "int8:auto": what pi0_calibrate made, as a file or, where it begins with '{', as the text itself */
    const char *calibration;
    int threads;          /* 0 = physical cores */
    const char *affinity; /* where the threads stay: "cores" (one on each), or CPUs such as "2,3,8-11", one for each thread; the thread that
                             calls the library is the caller's own and is left alone. NULL: where the system puts them */
    const char *isa;      /* highest instruction set to use, NULL = best: "ref", "avx2" */
    const char *disable;  /* passes to switch off, comma separated (docs/numerics.md lists them) */
    uint64_t memory_limit; /* bytes; 0 = none. pi0_open fails with the numbers when the plan needs more */
    int max_batch;         /* lanes allocated, 1 .. 16; 0 = 1 */
    int horizon;           /* rows of the action chunk; 0 = the recipe's */
    int window;            /* > 0: an action attends, of the actions, to those less than this away only (local-window,
                            * docs/long-horizon.md): changes a trained model's result. 0, or the horizon and more: none */
    int stages;            /* 1: keep every stage of an inference for pi0_stage */
    int layer_errors;      /* 1: also do every product in int8 and compare, for pi0_layer_at; not with precision int8 */
    int warm;              /* 1: pi0_open runs one inference of the largest size, max_batch robots, and throws its actions away: the first
                            * one afterwards finds every page in memory and every table made (docs/memory.md) */
    int preprocessed;      /* 1: only pi0_set_input will be used: needs no tokenizer, no statistics and no config, gives raw actions only */
    pi0_log_fn log;
    void *log_user;
    pi0_progress_fn progress;
    void *progress_user;
} pi0_options;

typedef struct pi0_model pi0_model;
typedef struct pi0_session pi0_session;

PI0_API void pi0_options_init(pi0_options *options);

/* path: a LeRobot directory, an openpi directory, one .safetensors file, a packed .pi0 file, "org/name" or "gs://..." present in a cache.
 */
PI0_API pi0_status pi0_open(const char *path, const pi0_options *options, pi0_model **out, pi0_error *err);
PI0_API void pi0_close(pi0_model **model); /* after its sessions; NULL is fine */

/* pi0_open on a thread of the library's, while the caller does something else: decodes pictures, opens a pi0_prompter. */
typedef struct pi0_opening pi0_opening;

typedef struct pi0_open_state {
    char stage[32];       /* "checkpoint", "tokenizer", "plan", "weights" */
    uint64_t done, total; /* bytes of this stage; total 0: it has no such measure */
    double elapsed_s;     /* since pi0_open_async */
    double left_s;        /* of this stage, at its speed so far; -1: not known yet */
    int finished;         /* 1: pi0_opening_wait will not wait */
} pi0_open_state;

/* path and all that options point at must stay until pi0_opening_wait returns; options->log and progress are called from that thread. */
PI0_API pi0_status pi0_open_async(const char *path, const pi0_options *options, pi0_opening **out, pi0_error *err);
PI0_API pi0_open_state pi0_opening_poll(pi0_opening *opening); /* at once, from any thread */
/* Asks it to stop, from any thread. It does so before the next weight; from now on pi0_opening_wait gives PI0_ERR_CANCELLED, or an earlier
 * error, and no model. */
PI0_API void pi0_opening_cancel(pi0_opening *opening);
/* Waits for its end, frees *opening in every case and returns as pi0_open does. out NULL: the model is closed again. */
PI0_API pi0_status pi0_opening_wait(pi0_opening **opening, pi0_model **out, pi0_error *err);

typedef struct pi0_info {
    const char *model;     /* "pi0" or "pi05" */
    const char *layout;    /* "openpi", "lerobot", "lerobot-0.3" */
    const char *device;    /* "cpu" */
    const char *precision; /* "f32", "bf16", "int8 (w8a8)": the bits of weights and inputs that the device multiplies, or
                            * "int8:auto (w8a8, 12 of 250 products bf16)" */
    const char *isa;       /* kernel table in use */
    int horizon;           /* H: rows of a chunk */
    int window;            /* in use; 0: every action attends to every other */
    int model_action_dim;  /* A: the network's action width (32) */
    int action_dim;        /* D: the robot's action width */
    int state_dim;         /* the robot's state width */
    int steps;             /* flow-matching steps when none is asked for */
    int max_tokens;        /* prompt limit */
    int max_batch;
    int threads;
    int n_slots;          /* camera slots of the model, in model order */
    const char *slots[4]; /* their names */
    const char *keys[4];  /* the robot's own key of each slot, as the recipe gives it */
} pi0_info;

PI0_API const pi0_info *pi0_model_info(const pi0_model *model);

/* Everything `pi0 inspect` shows, as one JSON text (malloc'ed; free with pi0_text_free): files, layout, sizes, tensors,
 * recipe with the origin of every field, statistics and their warnings, compute types, passes, memory plan.
 * Works where pi0_open would refuse for want of statistics or a tokenizer, and says so in "problems". */
PI0_API pi0_status pi0_inspect(const char *path, const pi0_options *options, char **json, pi0_error *err);

/* The whole recipe as JSON text, to be edited and given back as pi0_options.recipe. */
PI0_API pi0_status pi0_recipe_text(const char *path, const pi0_options *options, char **json, pi0_error *err);

/* Machine, instruction sets, devices with the reason each is or is not usable, libraries; with path also the model's health. With
 * measure != 0 also what the machine can do, found out in 2 to 5 seconds on options->threads threads: arithmetic, caches, memory. */
PI0_API pi0_status pi0_doctor(const char *path, const pi0_options *options, int measure, char **json, pi0_error *err);
PI0_API void pi0_text_free(char **text);

/* ------------------------------------------------------------------ one robot */

PI0_API pi0_status pi0_session_open(pi0_model *model, uint64_t seed, pi0_session **out, pi0_error *err);
PI0_API void pi0_session_close(pi0_session **session);

/* Back to the state after pi0_session_open: no observation, inference number 0 of noise stream `seed`. */
PI0_API void pi0_session_reset(pi0_session *session, uint64_t seed);

/* name: the robot's own key ("cam_high", "observation.images.top" or just "top") or a model slot ("base_0_rgb").
 * image as for pi0_preprocess; read during the call, not kept. NULL image: this camera is absent from now on. */
PI0_API pi0_status pi0_set_image(pi0_session *session, const char *name, const pi0_array *image, pi0_error *err);

/* The raw state, in the robot's own order and units, count = pi0_info.state_dim. */
PI0_API pi0_status pi0_set_state(pi0_session *session, const double *state, size_t count, pi0_error *err);

/* The instruction. NULL: the recipe's default prompt, an error if it has none. */
PI0_API pi0_status pi0_set_prompt(pi0_session *session, const char *prompt, pi0_error *err);

/* The instruction as token ids, for callers with a tokenizer of their own: all that the model is to see, BOS and frame included. */
PI0_API pi0_status pi0_set_tokens(pi0_session *session, const int64_t *ids, size_t count, pi0_error *err);

/* Noise of the next inference only: f32 [rows,cols] = [H,A]. */
PI0_API pi0_status pi0_set_noise(pi0_session *session, const float *noise, int rows, int cols, pi0_error *err);

/* Skips the input transforms for one model input: "image.<slot>" f32 [S,S,3] in [-1,1], "tokens" i64 [n], "state" f32 [A],
 * "noise" [H,A] f32 (or f64, f16: rounded to f32). A session that was given any of these must be given all of them but absent cameras and
 * noise. */
PI0_API pi0_status pi0_set_input(pi0_session *session, const pi0_array *input, pi0_error *err);

/* Sets every array of an observation file at once (CLI.md, --obs; with preprocessed != 0, --preprocessed).
 * Arrays named ref/... and gate/... are ignored; any other unknown array is an error that lists the names known. */
PI0_API pi0_status pi0_set_observation(pi0_session *session, const pi0_arrays *arrays, int preprocessed, pi0_error *err);

/* Runs n sessions of one model; more than max_batch run in turns. steps: flow-matching steps, 0 = the recipe's.
 * The observation stays set; the noise of the next call is stream (seed, number of inferences so far). */
PI0_API pi0_status pi0_infer(pi0_session *const *sessions, size_t n, int steps, pi0_error *err);

/* Results of the last inference; valid until the next call on this session. */
PI0_API const double *pi0_actions(const pi0_session *session, int *rows, int *cols);    /* [H,D], the robot's units; NULL if preprocessed */
PI0_API const float *pi0_actions_raw(const pi0_session *session, int *rows, int *cols); /* [H,A], model space */
PI0_API int pi0_token_count(const pi0_session *session);

/* A stage of the last inference by its CLI.md name ("vision.base_0_rgb", "prefix_k.0", "velocity.3", ...).
 * Needs pi0_options.stages. index walks all of them: PI0_ERR_ARGUMENT past the end. */
PI0_API pi0_status pi0_stage(const pi0_session *session, const char *name, pi0_array *out, pi0_error *err);
PI0_API size_t pi0_stage_count(const pi0_session *session);
PI0_API const char *pi0_stage_name(const pi0_session *session, size_t index);

typedef struct pi0_timing { /* milliseconds of the last inference */
    double decode, preprocess, tokenize, vision, prefix, denoise, post, total;
} pi0_timing;

PI0_API pi0_timing pi0_session_timing(const pi0_session *session);

typedef struct pi0_memory {  /* bytes; all but the last two as planned before a weight is read (docs/memory.md) */
    uint64_t weights_mapped; /* used where the file is mapped */
    uint64_t weights_owned;  /* copied, converted or packed into memory of their own */
    uint64_t weights_f32, weights_bf16, weights_f16, weights_int8; /* the same two, by the numbers that they are made of */
    uint64_t token_table;                                          /* mapped, of which only the rows of a prompt are read: in no sum */
    uint64_t kv_cache, activations, workspace;                     /* for max_batch robots */
    uint64_t host;                                                 /* row tables, copies for checks, tokenizer */
    uint64_t session;                                              /* of one robot */
    uint64_t beside_weights;                                       /* all but the weights, with max_batch sessions */
    uint64_t total;                                                /* weights and what is beside them */
    uint64_t resident_before; /* what the process had in memory when pi0_open began: the program itself; 0 where the system does not tell */
    uint64_t peak_resident;   /* the most that the process has had in memory so far, as the system counts; 0 where it does not */
} pi0_memory;

typedef struct pi0_memory_line {
    const char *name; /* as --json has it: the field's */
    uint64_t bytes;
} pi0_memory_line;

/* The planned lines, in the order of the struct; past the last one name is NULL. */
PI0_API pi0_memory_line pi0_memory_line_at(const pi0_memory *memory, size_t index);

PI0_API pi0_memory pi0_model_memory(const pi0_model *model);

/* What the sessions of a model take and took. Each lies in pages of its own, which go back to the system when it is closed. */
typedef struct pi0_session_memory {
    uint64_t open, most_open;   /* sessions: now, and at most at once */
    uint64_t bytes, most_bytes; /* whole pages of them: now, and at most at once */
    uint64_t unused_bytes;      /* of `bytes`, at the ends of last pages: all the fragmentation that there is */
    uint64_t failures;          /* allocations of sessions that were refused */
} pi0_session_memory;

PI0_API pi0_session_memory pi0_model_sessions(const pi0_model *model);
/* ------------------------------------------------------------------ a pipeline: prepare the next observation while one is computed */

typedef struct pi0_pipeline pi0_pipeline;

/* Gives `item` to a session with pi0_set_...: reads, decodes, describes; pictures are resized there and then. The prompt is tokenized and
 * the state normalised right after it. On the pipeline's preparing thread, one item at a time; the session is as after
 * pi0_session_reset. A failure is that observation's alone. */
typedef pi0_status (*pi0_prepare_fn)(void *user, void *item, pi0_session *session, pi0_error *err);

typedef struct pi0_pipeline_options {
    pi0_prepare_fn prepare;
    /* Called once for each item when the pipeline needs it no more: prepared, dropped or left over at close. On any of the threads that use
     * the pipeline, or its own. NULL: nobody needs to know. */
    void (*release)(void *user, void *item);
    void *user;
    uint64_t seed; /* observation k draws from noise stream (seed, k), as inference k of one session would */
    int steps;     /* flow-matching steps; 0 = the recipe's */
    int depth;     /* observations in the pipeline, from submit until their result is taken, 2 .. 16; 0 = 3 */
    int latest;    /* 1: nothing waits. A newer observation replaces one that waits, a newer result one that was not taken; depth is not
                      used. For control loops, which want the newest and never an old one */
} pi0_pipeline_options;

PI0_API void pi0_pipeline_options_init(pi0_pipeline_options *options);

/* Starts two threads. The model must outlive the pipeline; others may use it at the same time, and wait for each other then. */
PI0_API pi0_status pi0_pipeline_open(pi0_model *model, const pi0_pipeline_options *options, pi0_pipeline **out, pi0_error *err);

/* Hands in an observation and returns its number, from 0. While `depth` are in the pipeline it waits for a result to be taken: a thread
 * that does both submits no more than that before it takes one. */
PI0_API uint64_t pi0_pipeline_submit(pi0_pipeline *pipeline, void *item);

typedef struct pi0_pipeline_result {
    uint64_t number;            /* of the observation */
    const pi0_session *session; /* its actions, timing and stages, until the next pi0_pipeline_next; NULL: see there */
    double latency_ms;          /* from submit to the result */
} pi0_pipeline_result;

/* Takes the next result: in the order of submission, or with `latest` the newest. Waits for at most timeout_s seconds, without end when
 * that is negative. Returns PI0_OK with a session; PI0_OK without one when the time is over; or what observation out->number failed with.
 * The pipeline goes on in each case. One thread takes results. */
PI0_API pi0_status pi0_pipeline_next(pi0_pipeline *pipeline, double timeout_s, pi0_pipeline_result *out, pi0_error *err);

/* Waits for the observation that is being prepared and the one that is being computed; what else is in the pipeline is given up. Not while
 * another thread is inside a call of this pipeline. NULL is fine. */
PI0_API void pi0_pipeline_close(pi0_pipeline **pipeline);

/* ------------------------------------------------------------------ watching a model work */

/* Counters since pi0_open. Rates and averages are differences of two readings. */
typedef struct pi0_stats {
    double elapsed_s;
    double busy_s;       /* of elapsed_s, in which an inference ran; the model waited in the rest */
    uint64_t inferences; /* observations that became actions */
    uint64_t failures;   /* observations that did not: those of a failed batch, or of a pipeline's failed preparation */
    pi0_timing sum_ms;   /* over these inferences, as each observation saw it: in a batch all of them the whole batch's stages */
    pi0_timing last_ms;
    int queue, queue_limit; /* observations that this model's pipelines hold, submitted and not yet taken; how many they may */
    uint64_t dropped;       /* by pipelines that keep the latest */
    pi0_memory memory;
    double process_cpu_s;      /* processor time of this process, of all its threads */
    uint64_t process_resident; /* bytes in memory now; 0 where the system does not tell */
} pi0_stats;

PI0_API pi0_stats pi0_model_stats(const pi0_model *model); /* from any thread, also while an inference runs */

/* GPUs, as NVIDIA's management library (libnvidia-ml.so.1, part of the driver) sees them: all processes together. */
typedef struct pi0_gpus pi0_gpus;

typedef struct pi0_gpu {
    char name[96];
    double utilisation; /* 0 .. 1; -1: not told */
    uint64_t memory_used, memory_total;
    double temperature_c, power_w; /* -1: not told */
} pi0_gpu;

/* Loads the library. PI0_ERR_DEVICE where there is none, as on most machines without such a GPU. */
PI0_API pi0_status pi0_gpus_open(pi0_gpus **out, pi0_error *err);
PI0_API size_t pi0_gpus_read(pi0_gpus *gpus, pi0_gpu *out, size_t cap); /* fills at most cap; returns how many there are */
PI0_API void pi0_gpus_close(pi0_gpus **gpus);

/* ------------------------------------------------------------------ int8, product by product */

/* One matrix product of a model, as its passes made it: several matrices that multiply the same rows are one product. */
typedef struct pi0_layer {
    const char *name;      /* "prefix.3.mlp.gate_proj+up_proj" */
    const char *precision; /* "f32", "bf16" or "int8" */
    /* With pi0_options.layer_errors, over all inferences so far, else 0: how far the product's results in int8 are from those computed,
     * on the inputs that it really had. error: root of the summed squares, relative; cosine: of all results as one vector. */
    double error, cosine;
    double flop; /* of these inferences */
} pi0_layer;

PI0_API size_t pi0_layer_count(const pi0_model *model);
PI0_API pi0_layer pi0_layer_at(const pi0_model *model, size_t index); /* not while an inference runs; texts live as long as the model */

/* Gives observation `index` to a session (pi0_session_reset for a seed, pi0_set_...). A failure ends the calibration. Called once for
 * each inference, so always with the same result. */
typedef pi0_status (*pi0_observe_fn)(void *user, size_t index, const pi0_model *model, pi0_session *session, pi0_error *err);

typedef struct pi0_calibrate_options {
    pi0_observe_fn observe;
    void *user;
    size_t observations; /* at least 1 */
    int steps;           /* 0 = the recipe's */
    double cosine;       /* of the actions with those of f32, on average over the observations; 0 = 0.9995 */
    int actions_only;    /* 1: stages before the actions need not keep the gate of single observations */
} pi0_calibrate_options;

/* Which products may be int8, for "int8:auto": as many as leave the actions within the gate (docs/numerics.md). options are those of
 * pi0_open; precision, calibration, stages and layer_errors are chosen here. Opens the model about ten times and runs every observation
 * each time. *json (pi0_text_free) is the calibration, to be stored as a file. Its "passed" is false when the gate was not even met with
 * every product in bf16: pi0_open refuses it then. */
PI0_API pi0_status pi0_calibrate(const char *path, const pi0_options *options, const pi0_calibrate_options *how, char **json,
                                 pi0_error *err);

/* Allocations that the library has asked for in this process so far, by any thread; those of the libraries that it uses are not counted.
 * pi0_infer makes none unless the arena pass is disabled or stages are kept. */
PI0_API uint64_t pi0_allocation_count(void);

/* ------------------------------------------------------------------ passes: the optimisations, each with its switch */

typedef struct pi0_pass_info {
    const char *name;      /* as pi0_options.disable takes it */
    const char *exactness; /* "bit": changes no bit of a result, "order": the order of sums, "rounding": roundings (docs/numerics.md);
                            * "model": what the model computes, and only where an option of its own asks for it */
    const char *summary;
    const char *founding; /* what it carries over from the work that this project grew from (docs/bench.md), or NULL */
} pi0_pass_info;

/* In running order: a pass builds on earlier ones only. Past the last one name is NULL. */
PI0_API pi0_pass_info pi0_pass_at(size_t index);

/* ------------------------------------------------------------------ how fast it could be */

typedef struct pi0_flop { /* floating-point operations of one inference, by the stage that does them */
    double vision, prefix, denoise;
} pi0_flop;

/* What an inference cannot do without: every multiply-add of the model's products and attentions, counted as two. The same whatever
 * passes and kernels are used. */
PI0_API pi0_flop pi0_model_flop(const pi0_model *model, int cameras, int tokens, int steps);

/* Operations a second of the arithmetic that the model's large products are done in, on registers alone and on all of the model's threads
 * together. Takes some tens of milliseconds. To compare with: call it before, between and after what is measured, and take the best. */
PI0_API pi0_status pi0_model_peak(const pi0_model *model, double *flop_per_s, pi0_error *err);

/* ------------------------------------------------------------------ tracing: what ran when, and what every thread did (docs/profile.md) */

typedef enum pi0_span_kind {
    PI0_SPAN_STAGE, /* a part of an inference ("vision", "step"), or what pi0_trace_add named */
    PI0_SPAN_LAYER, /* one layer of a tower */
    PI0_SPAN_OP,    /* one op of a plan, on the thread that waits for it */
    PI0_SPAN_WORK   /* one thread's share of an op: from its first task to its last */
} pi0_span_kind;

/* Texts live as long as the model; those that do not apply are "", numbers that do not are 0 or -1. */
typedef struct pi0_trace_span {
    pi0_span_kind kind;
    const char *name; /* of an op its kind: "linears" */
    int index;        /* of a layer or a step, the slot of a camera; else -1 */
    int thread;       /* 0: the first that was seen to call the library; 1 .. pi0_info.threads - 1: workers; beyond: other callers */
    int64_t parent;   /* index of the span that this one lies in; -1: of none */
    uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
    /* PI0_SPAN_WORK: time at tasks, and of that at preparing the inputs of a product (rounding, reordering) */
    uint64_t busy_ns, prepare_ns;
    int tasks;
    /* PI0_SPAN_OP */
    const char *plan; /* "context", "schedule" or "denoise" */
    int op;           /* its number there */
    const char *part; /* "vision", "prefix", ... */
    int layer;
    const char *product;    /* pi0_layer.name where it is one of those */
    int matrix;             /* 1: products or attention; 0: vector work */
    const char *arithmetic; /* of matrix work: "f32", "bf16" or "int8" */
    int64_t rows, cols;     /* of the results, as they were in this inference */
    int64_t inner;          /* what a matrix op sums over: columns of the input, or most keys of a row */
    double flop;            /* a multiply-add is two; docs/profile.md has the count of every op */
    double bytes;           /* inputs, weights and results, each moved once */
} pi0_trace_span;

/* From now on inferences of this model are recorded: up to `inferences` runs of the network of at most `steps` steps (0 = the recipe's) and
 * max_batch sessions. Allocates the room, the only allocation of tracing, and forgets an earlier trace. What does not fit is counted, not
 * recorded. None of these functions may run beside other calls on the model or its sessions, but for pi0_trace_add. */
PI0_API pi0_status pi0_trace_start(pi0_model *model, size_t inferences, int steps, pi0_error *err);
PI0_API void pi0_trace_record(pi0_model *model, int on); /* 0: nothing more for now; what was recorded stays. 1: go on */

/* A span of the caller's own, such as "decode"; ignored while nothing is recorded. name: must live as long as the model. */
PI0_API void pi0_trace_add(pi0_model *model, const char *name, uint64_t start_ns, uint64_t end_ns);

PI0_API size_t pi0_trace_count(const pi0_model *model);
PI0_API size_t pi0_trace_dropped(const pi0_model *model); /* spans that did not fit */
PI0_API pi0_trace_span pi0_trace_at(const pi0_model *model, size_t index);

/* Where every value of the plans lies in the arena and while which ops it lives there, as one JSON text (pi0_text_free). */
PI0_API pi0_status pi0_memory_map(const pi0_model *model, char **json, pi0_error *err);

/* ------------------------------------------------------------------ tokenizer */

typedef struct pi0_tokenizer pi0_tokenizer;

/* path: tokenizer.json, a SentencePiece model, or a packed file. rules: "hf", "spm" or NULL = hf for a .json, spm for a .model */
PI0_API pi0_status pi0_tokenizer_open(const char *path, const char *rules, pi0_tokenizer **out, pi0_error *err);
PI0_API void pi0_tokenizer_close(pi0_tokenizer **tokenizer);
PI0_API size_t pi0_tokenizer_vocab(const pi0_tokenizer *tokenizer);

/* text -> ids. bos != 0 puts BOS first. *count receives the number needed; ids may be NULL when cap is 0;
 * more than cap is PI0_ERR_ARGUMENT with *count set. Invalid UTF-8 is PI0_ERR_ARGUMENT. */
PI0_API pi0_status pi0_tokenizer_encode(const pi0_tokenizer *tokenizer, const char *text, size_t bytes, int bos, int64_t *ids, size_t cap,
                                        size_t *count, pi0_error *err);
/* ids -> text (malloc'ed, pi0_text_free). Special tokens are written as their names. */
PI0_API pi0_status pi0_tokenizer_decode(const pi0_tokenizer *tokenizer, const int64_t *ids, size_t count, char **text, pi0_error *err);

/* What a model does with prompts, without its weights. Used by one thread at a time. */
typedef struct pi0_prompter pi0_prompter;

PI0_API pi0_status pi0_prompter_open(const char *path, const pi0_options *options, pi0_prompter **out, pi0_error *err);
PI0_API void pi0_prompter_close(pi0_prompter **prompter);

/* A prompt as the model would be given it: cleaned, framed, with the state in it where the recipe says so (state: raw, or NULL with count
 * 0 where the recipe needs none), cut at its limit. *ids and *framed are malloc'ed (pi0_text_free on framed, free ids with pi0_ids_free);
 * framed is the text before tokenizing. */
PI0_API pi0_status pi0_prompter_tokens(const pi0_prompter *prompter, const char *prompt, const double *state, size_t state_count,
                                       int64_t **ids, size_t *count, char **framed, pi0_error *err);
PI0_API void pi0_ids_free(int64_t **ids);

/* The tokenizer file that a model would use. path_out is malloc'ed (pi0_text_free). *rules_out: "hf" or "spm". */
PI0_API pi0_status pi0_find_tokenizer(const char *path, const pi0_options *options, char **path_out, const char **rules_out,
                                      pi0_error *err);

/* ------------------------------------------------------------------ packed files */

typedef struct pi0_pack_report {
    uint64_t bytes;                        /* of the file */
    uint64_t stored_tensors, stored_bytes; /* as the checkpoint stores them: what any machine can use */
    uint64_t packed_weights, packed_bytes; /* in the order of this machine's kernels: used where they are mapped */
    const char *precision;                 /* that the order is for: "f32", "bf16", "int8" */
} pi0_pack_report;

/* Writes one file (docs/formats.md) that every function with a model's path takes: the tensors that inference reads, weights in the order
 * of the kernels that options->device, isa and precision choose, the recipe as options make it, statistics, tokenizer, SHA-256 of the
 * source files, a checksum of each tensor. path may be a packed file itself. Goes to a temporary name and is renamed: failure or cancel
 * leaves nothing and an older file untouched. Stages of options->progress: "verify" and "hash" while it reads the source, "write" from
 * before the new file is made. report may be NULL. */
PI0_API pi0_status pi0_pack(const char *path, const pi0_options *options, const char *to, pi0_pack_report *report, pi0_error *err);

/* Reads all of a packed file and compares every checksum: PI0_ERR_FORMAT lists the tensors that are damaged. Of options only progress is
 * used; may be NULL. tensors, bytes: how much was compared; may be NULL. */
PI0_API pi0_status pi0_pack_verify(const char *path, const pi0_options *options, uint64_t *tensors, uint64_t *bytes, pi0_error *err);

/* ------------------------------------------------------------------ synthetic checkpoints */

typedef struct pi0_synth_options {
    const char *model;  /* "pi0", "pi05" */
    const char *layout; /* "openpi", "lerobot", "lerobot-0.3" */
    const char *size;   /* "tiny", "small", "base" (the published sizes) */
    const char *config; /* openpi config name whose robot is imitated; NULL = the layout's default */
    const char *dtype;  /* "f32", "bf16" */
    uint64_t seed;
    int cameras, state_dim, action_dim, horizon; /* 0 = default */
    int shards;                                  /* 0 or 1 = one file */
    int outliers;                                /* channels of each tower that are larger where its matrices meet them; 0 = none */
    int outlier_factor;                          /* by so much; 0 = 50 */
    int hollow;                                  /* 1: weights of zeros that take no room on the disk, to plan with but not to infer */
    pi0_progress_fn progress;
    void *progress_user;
} pi0_synth_options;

PI0_API void pi0_synth_options_init(pi0_synth_options *options);

/* Writes a complete random checkpoint into dir (must not exist, or be empty, and no link): weights, config, processors or assets,
 * statistics, tokenizer. The same options give the same bytes on every machine. Written beside dir and renamed: failure or cancel leaves
 * nothing. */
PI0_API pi0_status pi0_synth(const char *dir, const pi0_synth_options *options, pi0_error *err);

#ifdef __cplusplus
}
#endif
#endif
