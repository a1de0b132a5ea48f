/* The tiny checkpoints of the reference set, made again from integer arithmetic (tests/data/goldens holds what the references computed on
 * them).
 *
 * A checkpoint is a few megabytes to 60 MB, so it is made where it is needed and never committed. The bytes are those of the recording:
 * tests/test_synth.c compares the small files with committed hashes.
 */
#ifndef PI0_TEST_GOLDEN_CHECKPOINTS_H
#define PI0_TEST_GOLDEN_CHECKPOINTS_H

#include <stddef.h>

/* Writes checkpoint `name` ("openpi_pi0_Q", "lerobot_pi05_P_bare", ...) as directory `dir`, whose parent must exist. A directory that is
 * already complete is left alone, so tests may share one. Returns 0, or -1 with errno set (EINVAL: no such name). Safe when several
 * processes make the same directory at once. */
int pi0_test_make_checkpoint(const char *name, const char *dir);

/* The names, in the order of the reference set; NULL past the end. */
const char *pi0_test_checkpoint_name(size_t index);

#endif
