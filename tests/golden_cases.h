/* The recorded cases of tests/data/goldens: which checkpoint and config each one ran on (its manifest.json says the same). */
#ifndef PI0_TEST_GOLDEN_CASES_H
#define PI0_TEST_GOLDEN_CASES_H

#include <stdbool.h>

#include "pi0.h"

typedef struct pi0_golden_case {
    const char *name, *checkpoint;
    const char *config; /* openpi config, or NULL */
    int steps;
    const char *set[2]; /* recipe fields that the files leave open, or NULL */
} pi0_golden_case;

extern const pi0_golden_case pi0_golden_cases[]; /* ends with name == NULL */

/* Directory of a golden checkpoint, made on first use below the build tree and kept there. Valid until the next call. */
const char *pi0_test_golden_dir(const char *checkpoint);

/* golden_older.c: the same for LeRobot 0.3 and 0.4; false when there is no such checkpoint. */
bool pi0_test_make_older_checkpoint(const char *checkpoint, const char *dir);

/* The recorded arrays of a case; pi0_arrays_free. */
pi0_arrays *pi0_test_golden_arrays(const char *name);

/* Opens a case's checkpoint with its config; `change` (may be NULL) edits the options first. */
pi0_model *pi0_test_golden_open(const pi0_golden_case *c, void (*change)(pi0_options *options));

/* Gives a session the model inputs that the reference recorded (ref/image.*, ref/tokens, ref/state, noise). */
void pi0_test_golden_inputs(pi0_session *session, const pi0_arrays *arrays);

/* max|a-b| / max(1, max|b|), the error that the gates bound; the shapes must be equal. */
double pi0_test_stage_error(const pi0_array *ours, const pi0_array *reference);
double pi0_test_stage_cosine(const pi0_array *ours, const pi0_array *reference);

#endif
