/* observation - what the robot sees and is told, read from the options and given to a session. */
#ifndef APP_OBSERVATION_H
#define APP_OBSERVATION_H

#include "app.h"

#define APP_MAX_IMAGES 16

typedef struct app_observation {
    struct {
        char name[256];
        pi0_arrays *file;
        pi0_array array; /* named `name` */
    } images[APP_MAX_IMAGES];
    size_t n_images;
    double *state; /* NULL: not given apart from `all` */
    size_t state_count;
    const char *prompt;
    float *noise; /* [noise_rows, noise_columns] or NULL */
    int noise_rows, noise_columns;
    pi0_arrays *all; /* --obs or --preprocessed */
    bool preprocessed;
    uint64_t decode_start_ns, decode_end_ns; /* reading and decoding the files */
} app_observation;

/* Reads every file the options name. Nothing given at all is an error that says what can be. */
pi0_status app_observation_load(const app_args *args, app_observation *observation, pi0_error *err);
/* What it says of how its model is opened: whether it is preprocessed, and then the horizon that its noise has, where none is chosen. */
void app_observation_settle(const app_observation *observation, pi0_options *options);

pi0_status app_observation_apply(const app_observation *observation, const pi0_info *info, pi0_session *session, pi0_error *err);
void app_observation_release(app_observation *observation);

/* "0.1,-0.2,3" or the path of a .npy file of one row -> heap doubles. */
pi0_status app_state_read(const char *text, double **out, size_t *count, pi0_error *err);

/* Noise [H,A] or [1,H,A] of any float type -> heap floats. `where` names it in an error. */
pi0_status app_noise_take(const pi0_array *array, const char *where, float **out, int *rows, int *columns, pi0_error *err);

/* The horizon that noise [...,H,A] has; 0 for NULL, or what cannot be one. */
int app_noise_rows(const pi0_array *noise);

/* One element as a double, whatever the array's numeric type. */
double app_array_value(const pi0_array *array, size_t index);
size_t app_array_count(const pi0_array *array);

/* "f32 [50,32]" */
void app_array_describe(const pi0_array *array, char *text, size_t size);

double app_now_ms(void);
uint64_t app_now_ns(void); /* the clock of pi0_trace_span */

#endif
