/* compare - how far a stage is from its reference, and how far it may be. */
#ifndef APP_COMPARE_H
#define APP_COMPARE_H

#include "observation.h"

typedef struct app_difference {
    double max_abs, rms;
    double error;  /* max_abs / max(1, max |reference|) */
    double cosine; /* 1 when both are zero */
    bool equal;    /* every element */
    bool finite;   /* no NaN or infinity on either side */
    size_t first_different;
} app_difference;

/* Whether an array of a reference file is a stage: ref/<stage>, but not the reference's own low-precision run. */
bool app_is_stage(const char *name);

/* Same shape required; the types may differ. */
bool app_same_shape(const pi0_array *a, const pi0_array *b);
app_difference app_compare(const pi0_array *got, const pi0_array *reference);

/* What a stage must keep. A gate that is not set does not count. */
typedef struct app_gate {
    bool has_error, has_cosine, exact;
    double error, cosine;
} app_gate;

/* What decides the gates: options first, then the file's own, then the rules of the precision. */
typedef struct app_gates {
    const app_args *args;   /* --tol */
    const pi0_arrays *file; /* gate/<stage> */
    const char *precision;  /* as pi0_info has it; the caller sets it once the model is open */
    bool has_drift;         /* the file holds the reference's own bf16 run */
    app_difference drift;
} app_gates;

/* Reads the options' and the file's gates once for errors, so that a typing mistake is no silent default. */
pi0_status app_gates_open(app_gates *gates, const app_args *args, const pi0_arrays *file, pi0_error *err);
app_gate app_gate_of(const app_gates *gates, const char *stage);
bool app_gate_holds(const app_gate *gate, const app_difference *difference);

#endif
