/* profile_sums - what the spans of a trace add up to: by stage, by kind of op, by thread. */
#ifndef APP_PROFILE_SUMS_H
#define APP_PROFILE_SUMS_H

#include <jansson.h>

#include "trace.h"

/* Where the time of all threads together goes. */
typedef struct app_shares {
    double matrix; /* products and attention */
    double vector; /* every other op, and preparing the inputs of products */
    double host;   /* outside of ops: pictures, tokens, actions, files */
    double idle;
} app_shares;

/* Ops of one kind at one place of the model: all layers, steps and runs. */
typedef struct app_op_sum {
    const pi0_trace_span *first;
    size_t calls;
    double ms, busy_ms; /* busy: of all threads together */
    double flop, bytes;
} app_op_sum;

typedef struct app_stage_sum {
    char name[160];
    size_t calls;
    double ms;
} app_stage_sum;

/* A layer or a step. Those of the action expert are added up over the steps. */
typedef struct app_part_sum {
    const char *stage; /* "vision", "prefix", "expert"; of a step "denoise" */
    int index;
    size_t calls;
    double ms;
} app_part_sum;

/* The machine at best. */
typedef struct app_roof {
    double flop_per_s[3]; /* by app_roof_forms; 0: not known */
    double bytes_per_s;   /* read from memory on all threads */
} app_roof;

extern const char *const app_roof_forms[3];

enum { APP_MAX_STAGES = 32, APP_MAX_THREADS = 256 };

typedef struct app_profile {
    const app_trace *trace;
    const pi0_info *info;
    size_t runs;
    double total_ms;           /* of all runs together, from the files to the text of the actions */
    double covered;            /* of it, what the stages below account for */
    uint64_t start_ns, end_ns; /* of the run in the middle */
    app_stage_sum stages[APP_MAX_STAGES];
    size_t n_stages;
    app_part_sum *parts; /* as they came */
    size_t n_parts, capacity_parts;
    app_op_sum *ops; /* slowest first */
    size_t n_ops;
    app_shares shares, *threads; /* [info->threads] */
    int cameras;
    app_roof roof;
} app_profile;

/* The spans named "run" of the trace are what is added up. */
pi0_status app_profile_sum(app_profile *profile, const app_trace *trace, const pi0_info *info, pi0_error *err);
void app_profile_release(app_profile *profile);

/* Whether two spans are of one row of the table. */
bool app_same_op(const pi0_trace_span *a, const pi0_trace_span *b);

/* From what pi0_doctor measured. */
void app_roof_read(app_roof *roof, const json_t *measured);
/* Measures the arithmetic of a model's large products once more and keeps the better of the two. */
pi0_status app_roof_raise(app_roof *roof, const pi0_model *model, pi0_error *err);
double app_roof_flop_per_s(const app_roof *roof, const char *arithmetic);

/* How near an op comes to what the machine can do: the larger of its shares of arithmetic and of memory. NULL: not known. */
const char *app_op_limit(const app_profile *profile, const app_op_sum *op, double *share);

#endif
