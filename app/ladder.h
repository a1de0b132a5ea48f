/* ladder - one optimisation after another on one model: what each is worth, and whether the actions stay the same. */
#ifndef APP_LADDER_H
#define APP_LADDER_H

#include "bench_case.h"
#include "text.h"

typedef enum app_rung_kind {
    APP_RUNG_BOTTOM,    /* every pass off: as the reference executes it */
    APP_RUNG_PASS,      /* one pass more than the rung before */
    APP_RUNG_TOP,       /* every pass at once, in a ladder of two rungs */
    APP_RUNG_PRECISION, /* every pass, and another precision */
    APP_RUNG_WITHOUT    /* every pass but one */
} app_rung_kind;

typedef struct app_rung {
    app_rung_kind kind;
    const char *name;      /* the pass, or the precision */
    const char *summary;   /* what it does */
    const char *founding;  /* the founding work's name for it, or NULL */
    app_text disable;      /* of pi0_options */
    const char *precision; /* likewise */
    int batch, first, before,
        top;                   /* rungs to compare with: the bottom one, the one below (WITHOUT: the top one), the one with every pass */
    char computed[32];         /* the precision that it came to */
    app_measured measured;     /* resident_bytes: of this rung alone */
    float *actions;            /* [batch,H,A] of its first inference, in model space */
    double difference, cosine; /* of the actions from those of `top` */
} app_rung;

typedef struct app_ladder {
    app_rung *rungs;
    int n, capacity;
    const char *scenario; /* or NULL */
    char model[16], layout[16], device[16], isa[32];
    int threads, horizon, slots, max_tokens;
    size_t n_actions; /* H*A */
    json_t *machine;
} app_ladder;

/* Appends a ladder of its own for `batch` robots. every: a rung for each pass; else from nothing to all at once. Then each precision that
 * comes after `precision` in f32, bf16, int8. without: and every pass left out in turn. After a failure release the ladder. */
pi0_status app_ladder_add(app_ladder *ladder, const char *precision, int batch, bool every, bool without, pi0_error *err);

/* Opens and measures one rung after another, so that only one model is in memory at a time. settings->batch is the rungs'. repeat 0: as
 * many runs as let the whole end in about a quarter of an hour. */
pi0_status app_ladder_climb(app_ladder *ladder, app_report *report, const char *path, const pi0_options *options,
                            const app_case_settings *settings, size_t repeat, app_phase *phase, pi0_error *err);
void app_ladder_release(app_ladder *ladder);

json_t *app_ladder_json(const app_ladder *ladder); /* NULL when there is no memory */
void app_ladder_page(app_text *out, const app_ladder *ladder, bool markdown);

#endif
