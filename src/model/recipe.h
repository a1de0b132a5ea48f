/* recipe - private to the recipe files (recipe*.c, stats.c, transform.c, prompt.c): the fields, where each came from, the statistics.
 * The field table below is the single list of names: the recipe file, --set, inspect and every error text use it (docs/recipe.md).
 */
#ifndef PI0_MODEL_RECIPE_H
#define PI0_MODEL_RECIPE_H

#include "model/model.h"

/* ------------------------------------------------------------------ values */

typedef struct pi0_numbers {
    int n; /* 0: none */
    double v[PI0_MAX_DIM];
} pi0_numbers;

typedef struct pi0_flags {
    int n; /* 0: none; positions past n are off */
    bool v[PI0_MAX_DIM];
} pi0_flags;

typedef struct pi0_indices {
    int n;
    int v[PI0_MAX_DIM];
} pi0_indices;

typedef struct pi0_names {
    int n;
    char *v[PI0_MAX_DIM]; /* owned */
} pi0_names;

typedef struct pi0_recipe_camera_slot {
    char *slot, *key; /* owned; key "" when empty */
    bool empty, required;
} pi0_recipe_camera_slot;

typedef struct pi0_cameras {
    int n;
    pi0_recipe_camera_slot v[PI0_MAX_CAMERAS];
} pi0_cameras;

/* Choices: the order is that of the name lists in recipe.c. */
typedef enum pi0_gripper_map { PI0_GRIPPER_NONE, PI0_GRIPPER_ALOHA, PI0_GRIPPER_ALOHA_LEROBOT03 } pi0_gripper_map;
typedef enum pi0_prompt_frame { PI0_FRAME_PI0, PI0_FRAME_PI05 } pi0_prompt_frame;
typedef enum pi0_prompt_clean { PI0_CLEAN_OPENPI, PI0_CLEAN_NONE } pi0_prompt_clean;
typedef enum pi0_prompt_newline { PI0_NEWLINE_SEPARATE, PI0_NEWLINE_ENSURE, PI0_NEWLINE_NONE } pi0_prompt_newline;
typedef enum pi0_prompt_state { PI0_STATE_NONE, PI0_STATE_DIGITS } pi0_prompt_state;
typedef enum pi0_prompt_overflow { PI0_OVERFLOW_CUT, PI0_OVERFLOW_ERROR } pi0_prompt_overflow;
typedef enum pi0_prompt_rules { PI0_RULES_HF, PI0_RULES_SPM } pi0_prompt_rules;
typedef enum pi0_arithmetic { PI0_ARITHMETIC_OPENPI, PI0_ARITHMETIC_LEROBOT, PI0_ARITHMETIC_LEROBOT03 } pi0_arithmetic;
typedef enum pi0_schedule { PI0_SCHEDULE_F32, PI0_SCHEDULE_F64 } pi0_schedule;

enum { PI0_STATE, PI0_ACTION, PI0_FEATURES };
typedef enum pi0_stat {
    PI0_STAT_MEAN,
    PI0_STAT_STD,
    PI0_STAT_Q01,
    PI0_STAT_Q99,
    PI0_STAT_Q10,
    PI0_STAT_Q90,
    PI0_STAT_MIN,
    PI0_STAT_MAX,
    PI0_STATS
} pi0_stat;

/* ------------------------------------------------------------------ fields */

typedef enum pi0_field_type {
    PI0_TYPE_CHOICE,
    PI0_TYPE_INT,
    PI0_TYPE_NUMBER,
    PI0_TYPE_BOOL,
    PI0_TYPE_TEXT,
    PI0_TYPE_FLAGS,
    PI0_TYPE_INDICES,
    PI0_TYPE_NUMBERS,
    PI0_TYPE_NAMES,
    PI0_TYPE_CAMERAS
} pi0_field_type;

/* X(id, name, type, member, choices, min, max, optional): optional fields may be left out of a recipe file. */
#define PI0_RECIPE_FIELDS(X)                                                                         \
    X(MODEL, "model", CHOICE, model, pi0_models, 0, 0, false)                                        \
    X(FAMILY, "family", CHOICE, family, pi0_families, 0, 0, false)                                   \
    X(CAMERAS, "cameras", CAMERAS, cameras, NULL, 0, 0, false)                                       \
    X(CLOSE_UP, "cameras.close_up", BOOL, close_up, NULL, 0, 0, false)                               \
    X(IGNORED, "cameras.ignored", NAMES, ignored, NULL, 0, 0, true)                                  \
    X(RESIZE, "image.resize", CHOICE, resize, pi0_resizes, 0, 0, false)                              \
    X(IMAGE_SIZE, "image.size", INT, image_size, NULL, 1, 4096, false)                               \
    X(STATE_DIM, "state.dim", INT, dim[PI0_STATE], NULL, 1, PI0_MAX_DIM, false)                      \
    X(STATE_FLIP, "state.flip", FLAGS, flip[PI0_STATE], NULL, 0, 0, false)                           \
    X(STATE_GRIPPER, "state.gripper.map", CHOICE, gripper[PI0_STATE], pi0_grippers, 0, 0, false)     \
    X(STATE_GRIPPER_AT, "state.gripper.index", INDICES, gripper_at[PI0_STATE], NULL, 0, 0, false)    \
    X(STATE_NAMES, "state.names", NAMES, names[PI0_STATE], NULL, 0, 0, true)                         \
    X(STATE_ROBOT_NAMES, "state.robot_names", NAMES, robot_names[PI0_STATE], NULL, 0, 0, true)       \
    X(FRAME, "prompt.frame", CHOICE, frame, pi0_frames, 0, 0, false)                                 \
    X(CLEAN, "prompt.clean", CHOICE, clean, pi0_cleans, 0, 0, false)                                 \
    X(NEWLINE, "prompt.newline", CHOICE, newline, pi0_newlines, 0, 0, false)                         \
    X(PROMPT_STATE, "prompt.state", CHOICE, prompt_state, pi0_prompt_states, 0, 0, false)            \
    X(STATE_PAD, "prompt.state_pad", INT, state_pad, NULL, 0, PI0_MAX_DIM, false)                    \
    X(MAX_TOKENS, "prompt.max_tokens", INT, max_tokens, NULL, 1, PI0_MAX_TOKENS, false)              \
    X(OVERFLOW, "prompt.overflow", CHOICE, overflow, pi0_overflows, 0, 0, false)                     \
    X(RULES, "prompt.rules", CHOICE, rules, pi0_rules, 0, 0, false)                                  \
    X(DEFAULT_PROMPT, "prompt.default", TEXT, default_prompt, NULL, 0, 0, false)                     \
    X(ARITHMETIC, "norm.arithmetic", CHOICE, arithmetic, pi0_arithmetics, 0, 0, false)               \
    X(EPSILON, "norm.epsilon", NUMBER, epsilon, NULL, 0, 1, false)                                   \
    X(NORM_STATE, "norm.state", CHOICE, norm[PI0_STATE], pi0_norms, 0, 0, false)                     \
    X(NORM_ACTION, "norm.action", CHOICE, norm[PI0_ACTION], pi0_norms, 0, 0, false)                  \
    X(ACTION_DIM, "action.dim", INT, dim[PI0_ACTION], NULL, 1, PI0_MAX_DIM, false)                   \
    X(HORIZON, "action.horizon", INT, horizon, NULL, 1, PI0_MAX_HORIZON, false)                      \
    X(DELTA, "action.delta", FLAGS, delta, NULL, 0, 0, false)                                        \
    X(ACTION_FLIP, "action.flip", FLAGS, flip[PI0_ACTION], NULL, 0, 0, false)                        \
    X(ACTION_GRIPPER, "action.gripper.map", CHOICE, gripper[PI0_ACTION], pi0_grippers, 0, 0, false)  \
    X(ACTION_GRIPPER_AT, "action.gripper.index", INDICES, gripper_at[PI0_ACTION], NULL, 0, 0, false) \
    X(ACTION_NAMES, "action.names", NAMES, names[PI0_ACTION], NULL, 0, 0, true)                      \
    X(ACTION_ROBOT_NAMES, "action.robot_names", NAMES, robot_names[PI0_ACTION], NULL, 0, 0, true)    \
    X(STEPS, "steps", INT, steps, NULL, 1, PI0_MAX_STEPS, false)                                     \
    X(SCHEDULE, "time.schedule", CHOICE, schedule, pi0_schedules, 0, 0, false)                       \
    X(MIN_PERIOD, "time.min_period", NUMBER, min_period, NULL, 1e-9, 1e9, false)                     \
    X(MAX_PERIOD, "time.max_period", NUMBER, max_period, NULL, 1e-9, 1e9, false)                     \
    PI0_RECIPE_STATS(X, STATE, "state")                                                              \
    PI0_RECIPE_STATS(X, ACTION, "action")

#define PI0_RECIPE_STATS(X, F, word)                                                    \
    X(F##_MEAN, word ".mean", NUMBERS, stats[PI0_##F][PI0_STAT_MEAN], NULL, 0, 0, true) \
    X(F##_STD, word ".std", NUMBERS, stats[PI0_##F][PI0_STAT_STD], NULL, 0, 0, true)    \
    X(F##_Q01, word ".q01", NUMBERS, stats[PI0_##F][PI0_STAT_Q01], NULL, 0, 0, true)    \
    X(F##_Q99, word ".q99", NUMBERS, stats[PI0_##F][PI0_STAT_Q99], NULL, 0, 0, true)    \
    X(F##_Q10, word ".q10", NUMBERS, stats[PI0_##F][PI0_STAT_Q10], NULL, 0, 0, true)    \
    X(F##_Q90, word ".q90", NUMBERS, stats[PI0_##F][PI0_STAT_Q90], NULL, 0, 0, true)    \
    X(F##_MIN, word ".min", NUMBERS, stats[PI0_##F][PI0_STAT_MIN], NULL, 0, 0, true)    \
    X(F##_MAX, word ".max", NUMBERS, stats[PI0_##F][PI0_STAT_MAX], NULL, 0, 0, true)

#define PI0_FIELD_ID(id, ...) PI0_FIELD_##id,
typedef enum pi0_field_id { PI0_RECIPE_FIELDS(PI0_FIELD_ID) PI0_FIELDS } pi0_field_id;
#undef PI0_FIELD_ID

typedef struct pi0_field {
    const char *name;
    pi0_field_type type;
    size_t offset;              /* of the value in pi0_recipe; choices are int */
    const char *const *choices; /* NULL-terminated */
    double min, max;            /* INT, NUMBER */
    bool optional;
} pi0_field;

const pi0_field *pi0_recipe_field(pi0_field_id id);
int pi0_recipe_field_find(const char *name); /* -1 when there is none of that name */
bool pi0_field_is_stat(int id);
pi0_field_id pi0_stat_field(int feature, int stat);
const char *pi0_stat_name(int stat);       /* "mean", ... */
const char *pi0_feature_name(int feature); /* "state", "action" */

/* ------------------------------------------------------------------ the recipe */

struct pi0_recipe {
    int model, family;
    pi0_cameras cameras;
    bool close_up;
    pi0_names ignored; /* the robot may send them; the model has no use for them */
    int resize, image_size;
    int dim[PI0_FEATURES];
    pi0_flags flip[PI0_FEATURES]; /* dims that change sign between robot and model */
    int gripper[PI0_FEATURES];
    pi0_indices gripper_at[PI0_FEATURES];
    pi0_names names[PI0_FEATURES];       /* the checkpoint's order */
    pi0_names robot_names[PI0_FEATURES]; /* the caller's order; none = the same */
    int frame, clean, newline, prompt_state, state_pad, max_tokens, overflow, rules;
    char *default_prompt; /* or NULL */
    int arithmetic;
    double epsilon;
    int norm[PI0_FEATURES];
    int horizon, steps;
    pi0_flags delta; /* action dims that are relative to the state of the request */
    int schedule;
    double min_period, max_period;
    pi0_numbers stats[PI0_FEATURES][PI0_STATS];

    char *origin[PI0_FIELDS];   /* owned; NULL: nobody set it */
    bool by_user[PI0_FIELDS];   /* --set, a flag, or a recipe file: never a question any more */
    char *question[PI0_FIELDS]; /* owned: the files leave this open; the choices in words */
    json_t *warnings;           /* array of strings */
    json_t *seen_keys;          /* array: what the statistics files hold, for near misses */

    int from_robot[PI0_FEATURES][PI0_MAX_DIM]; /* checkpoint dim -> the caller's dim */
    pi0_recipe_facts facts;
};

/* What a load works on. */
typedef struct pi0_recipe_job {
    pi0_recipe *recipe;
    const pi0_checkpoint *checkpoint; /* or NULL */
    const pi0_options *options;
    const pi0_log *log;
    json_t *problems; /* or NULL */
    bool stats_done;  /* the source has seen to the statistics */
} pi0_recipe_job;

/* Records where a value came from; the value itself is assigned by the caller. */
pi0_status pi0_recipe_origin(pi0_recipe *recipe, int id, pi0_error *err, const char *format, ...) PI0_PRINTF(4, 5);
pi0_status pi0_recipe_ask(pi0_recipe *recipe, int id, pi0_error *err, const char *format, ...) PI0_PRINTF(4, 5);
pi0_status pi0_recipe_warn(pi0_recipe_job *job, pi0_error *err, const char *format, ...) PI0_PRINTF(3, 4); /* logs and remembers */
bool pi0_recipe_given(const pi0_recipe *recipe, int id); /* by the user: --set is applied last, but is known from the start */

/* Values that own memory. Old contents are freed. */
pi0_status pi0_names_add(pi0_names *names, const char *text, size_t length, const char *where, pi0_error *err);
void pi0_names_clear(pi0_names *names);
pi0_status pi0_cameras_add(pi0_cameras *cameras, const char *slot, const char *key, bool empty, bool required, const char *where,
                           pi0_error *err);
void pi0_cameras_clear(pi0_cameras *cameras);
void pi0_flags_from_runs(pi0_flags *flags, const int *runs); /* 6,-1,6,-1,0: runs of on (positive) and off, 0 ends */

/* recipe_check.c: all that must hold before the recipe is used; fills the derived members and the facts. */
pi0_status pi0_recipe_check(pi0_recipe_job *job, pi0_error *err);

/* recipe_json.c */
pi0_status pi0_recipe_read(pi0_recipe_job *job, const char *path, pi0_error *err);
pi0_status pi0_recipe_read_packed(pi0_recipe_job *job, pi0_error *err); /* the one inside a packed file */
pi0_status pi0_recipe_value_read(pi0_recipe *recipe, int id, const json_t *value, const char *where, pi0_error *err);
json_t *pi0_recipe_value_json(const pi0_recipe *recipe, int id); /* NULL when out of memory */

/* recipe_set.c */
pi0_status pi0_recipe_set(pi0_recipe *recipe, const char *assignment, pi0_error *err);
int pi0_name_distance(const char *a, const char *b);                  /* edits between two names, for "nearest: ..." */
pi0_status pi0_recipe_note_sets(pi0_recipe_job *job, pi0_error *err); /* which fields the user's --set will decide */

/* recipe_openpi.c */
pi0_status pi0_recipe_from_config(pi0_recipe_job *job, const char *name, pi0_error *err);
pi0_status pi0_recipe_fail_no_config(const pi0_recipe_job *job, pi0_error *err);

/* recipe_lerobot.c, recipe_steps.c */
pi0_status pi0_recipe_from_lerobot(pi0_recipe_job *job, const json_t *config, pi0_error *err);
pi0_status pi0_lerobot_delta(pi0_recipe_job *job, bool enabled, const json_t *exclude, const json_t *names, const char *origin,
                             pi0_error *err);
pi0_status pi0_recipe_read_steps(pi0_recipe_job *job, bool *found, bool *newer, pi0_error *err);

/* stats.c */
pi0_status pi0_stats_read(pi0_recipe_job *job, const char *path, const char *origin, pi0_error *err); /* any of the three kinds of file */
pi0_status pi0_stats_from_tensors(pi0_recipe_job *job, const pi0_safetensors *file, bool features[PI0_FEATURES], const char *origin,
                                  pi0_error *err);
pi0_status pi0_stats_from_buffers(pi0_recipe_job *job, bool *found, pi0_error *err); /* LeRobot 0.3: inside model.safetensors */
pi0_status pi0_stats_check(pi0_recipe_job *job, pi0_error *err);                     /* presence, widths, health */
void pi0_stats_clear(pi0_recipe *recipe, int feature);
const int *pi0_norm_needs(int norm); /* the two statistics a kind reads; -1 -1 for identity */
json_t *pi0_stats_describe(const pi0_recipe *recipe);

#endif
