/* The parts of a policy's computation, shared by vision.c, gemma.c and policy.c only. */
#ifndef PI0_MODEL_POLICY_H
#define PI0_MODEL_POLICY_H

#include "model/model.h"

typedef struct pi0_tensor_name {
    char text[192];
} pi0_tensor_name;

/* prefix followed by suffix; empty, which no checkpoint has, when that is too long. */
pi0_tensor_name pi0_join_name(const char *prefix, const char *suffix);

/* Declare a weight under "prefix" "suffix". */
int pi0_emit_vector(pi0_plan *plan, const char *prefix, const char *suffix, int64_t cols);
/* x * W^T (+ b): weight "prefix.weight", bias "prefix.bias" when has_bias. */
int pi0_emit_linear(pi0_plan *plan, int x, const char *prefix, int64_t rows, int64_t cols, bool has_bias, pi0_weight_use use);
/* x * W^T + b with PI0_USE_EXACT: pictures, state, actions, flow time. */
int pi0_emit_exact(pi0_plan *plan, int x, const char *prefix, int64_t rows, int64_t cols);

/* SigLIP So400m/14 and the projector: pictures [CAMERA, side*side*3] -> [IMAGE, prefix width]. */
int pi0_emit_vision(pi0_plan *plan, const pi0_arch *arch, int pictures);

/* One of the two Gemma towers over its rows. */
typedef struct pi0_gemma_tower {
    const char *prefix; /* tensor names: "...language_model." or "...gemma_expert.model." */
    const char *part;   /* "prefix" or "expert" */
    const pi0_gemma_arch *arch;
    int cond;        /* [TIME, width] adaRMS condition, or -1 */
    const int *mods; /* [2*depth+1] modulations of the norms, made elsewhere, or NULL; with neither: RMSNorm */
    pi0_attention_form attention;
    const int *k_in, *v_in;       /* [depth] cached keys and values to attend to first, or NULL */
    const int *k_state, *v_state; /* [depth] the state's keys and values, which its actions see before their own, or NULL */
    int *k_out, *v_out;           /* [depth] receives this tower's own keys and values */
} pi0_gemma_tower;

/* The modulation [TIME, 3*width] of norm `index` (two a layer, then the last) from the condition. */
int pi0_emit_modulation(pi0_plan *plan, const pi0_gemma_arch *arch, const char *prefix, int cond, int index);

int pi0_emit_gemma(pi0_plan *plan, const pi0_gemma_tower *tower, int x);      /* all layers, without the last norm */
int pi0_emit_gemma_norm(pi0_plan *plan, const pi0_gemma_tower *tower, int x); /* the last norm */

#endif
