/* Private to the synthetic checkpoints (synth.c, synth_weights.c, synth_files.c, synth_tokenizer.c). */
#ifndef PI0_MODEL_SYNTH_H
#define PI0_MODEL_SYNTH_H

#include "model/checkpoint.h"

enum { PI0_SYNTH_OUTLIERS = 16 }; /* at most: half of the narrowest tower and more would be no outliers */
enum { PI0_SYNTH_STATS = 10 };    /* mean std q01 q99 min max q10 q50 q90 count */

/* Everything that the options come to. */
typedef struct pi0_synth_plan {
    pi0_arch arch;
    pi0_layout layout;
    pi0_dtype dtype;
    uint64_t seed;
    char asset[64]; /* openpi: where the statistics go below assets/ */
    int cameras;    /* of a LeRobot layout */
    int state_dim, action_dim, horizon;
    int shards;
    int outliers, outlier_factor;
    bool hollow;
    double stats[2][PI0_SYNTH_STATS][PI0_MAX_DIM]; /* state, action */
    char variant[2][16];                           /* names of the two Gemma sizes in config.json */
    pi0_progress_fn progress;
    void *progress_user;
} pi0_synth_plan;

extern const char *const pi0_synth_stat_names[PI0_SYNTH_STATS];
void pi0_synth_make_stats(pi0_synth_plan *plan);

/* synth_outliers.c: which elements of one tensor are multiplied, by what, and what is added. An element belongs to channel
 * i / step % width; from `end` on to none. */
typedef struct pi0_synth_outlier {
    int n; /* 0: the tensor has none */
    size_t channel[PI0_SYNTH_OUTLIERS];
    size_t step, width, end;
    float factor, add;
    size_t add_end; /* nothing is added from here on */
} pi0_synth_outlier;

void pi0_synth_outlier_of(const pi0_synth_plan *plan, const pi0_tensor_spec *tensor, pi0_synth_outlier *out);
void pi0_synth_outlier_apply(const pi0_synth_outlier *o, size_t first, float *values, size_t count); /* elements first .. first+count-1 */

pi0_status pi0_synth_write_weights(const pi0_synth_plan *plan, const char *dir, pi0_error *err);
pi0_status pi0_synth_write_files(const pi0_synth_plan *plan, const char *dir, pi0_error *err); /* all but weights and tokenizer */
pi0_status pi0_synth_write_tokenizer(const char *dir, pi0_error *err);
int pi0_synth_tokenizer_pieces(void); /* vocabulary entries of that tokenizer; 0 when out of memory */
pi0_status pi0_synth_write_json(const char *dir, const char *name, json_t *value, int indent,
                                pi0_error *err); /* takes value, NULL = no memory */

#endif
