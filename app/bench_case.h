/* bench_case - one open model, what it sees, and how long an inference of it takes. */
#ifndef APP_BENCH_CASE_H
#define APP_BENCH_CASE_H

#include <jansson.h>

#include "report.h"

enum { APP_MAX_BATCH = 16, APP_MAX_IDS = 1024 };

typedef enum app_stage {
    APP_PREPROCESS,
    APP_TOKENIZE,
    APP_VISION,
    APP_PREFIX,
    APP_DENOISE,
    APP_POST,
    APP_TOTAL, /* from the pictures to the actions, by the program's own clock */
    APP_STAGES
} app_stage;

/* What is asked for. */
typedef struct app_case_settings {
    int cameras; /* how many see something; 0: all that the model has */
    int tokens;  /* ids of the prompt; 0: a sentence, tokenized in every run */
    int steps;   /* 0: the recipe's */
    int batch;
} app_case_settings;

/* An open model and what it sees. Zero-initialise; app_case_close accepts what failed to open. */
typedef struct app_case {
    app_case_settings settings;
    pi0_model *model;
    pi0_session *sessions[APP_MAX_BATCH]; /* lane i draws from noise stream i */
    uint8_t *picture;
    double state[256];
    int64_t ids[APP_MAX_IDS];
} app_case;

/* options->max_batch is the settings'. */
pi0_status app_case_open(app_case *c, const char *path, const pi0_options *options, const app_case_settings *settings, pi0_error *err);
void app_case_close(app_case *c);

/* Gives a session what the case's robot sees. file: a picture for every camera, read and decoded anew; NULL: one made up. */
pi0_status app_case_observe(const app_case *c, const char *file, pi0_session *session, pi0_error *err);

typedef struct app_measured {
    const pi0_info *info; /* the model's, while it is open */
    pi0_memory plan;
    uint64_t resident_bytes; /* most that was in memory, 0 where the system does not tell */
    json_t *machine;         /* of pi0_doctor */
    pi0_flop flop;           /* of one inference */
    double flop_per_s;       /* of the machine at best */
    int cameras, tokens, steps, batch;
    size_t runs;
    double *ms[APP_STAGES]; /* [runs], ascending */
    double first_ms;        /* of the run that does not count */
    uint64_t allocations;   /* that the last inference made */
} app_measured;

/* The first inference, which does not count: the k-th of every case draws the same noise. */
pi0_status app_case_warm(app_case *c, app_measured *out, pi0_error *err);

/* Then `runs` that do, with the machine's peak taken between them. `out` is released by app_measured_release, also after a failure. */
pi0_status app_case_measure(app_case *c, app_report *report, size_t runs, app_measured *out, pi0_error *err);
void app_measured_release(app_measured *m);

/* Gives unused memory back and starts the count of pi0_memory.peak_resident anew. False where the system does not allow it. */
bool app_forget_resident(void);

/* The machine as pi0_doctor describes it. */
pi0_status app_machine_json(const pi0_options *options, json_t **out, pi0_error *err);

#endif
