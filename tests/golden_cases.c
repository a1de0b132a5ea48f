#include "golden_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "golden_checkpoints.h"
#include "io/io.h"
#include "support.h"

const pi0_golden_case pi0_golden_cases[] = {
    {"openpi_pi0_aloha", "openpi_pi0_Q", "pi0_aloha", 10, {NULL}},
    {"openpi_pi0_aloha_sim", "openpi_pi0_P", "pi0_aloha_sim", 10, {NULL}},
    {"openpi_pi0_libero", "openpi_pi0_Q", "pi0_libero", 10, {NULL}},
    {"openpi_pi0_droid", "openpi_pi0_Q", "pi0_droid", 10, {NULL}},
    {"openpi_pi0_long_prompt", "openpi_pi0_Q", "pi0_droid", 10, {NULL}},
    {"openpi_pi05_droid", "openpi_pi05_P", "pi05_droid", 10, {NULL}},
    {"openpi_pi05_libero", "openpi_pi05_Q", "pi05_libero", 10, {NULL}},
    {"openpi_pi05_aloha", "openpi_pi05_Q", "pi05_aloha", 10, {NULL}},
    {"lerobot_pi0", "lerobot_pi0_Q", NULL, 10, {NULL}},
    {"lerobot_pi0_middle_missing", "lerobot_pi0_P_bare", NULL, 4, {NULL}},
    {"lerobot_pi0_empty_camera", "lerobot_pi0_Q_empty", NULL, 10, {NULL}},
    {"lerobot_pi0_relative", "lerobot_pi0_Q_relative", NULL, 10, {NULL}},
    {"lerobot_pi05", "lerobot_pi05_P_bare", NULL, 10, {NULL}},
    {"lerobot_pi05_rename", "lerobot_pi05_Q_rename", NULL, 10, {NULL}},
    {"lerobot_pi05_untied", "lerobot_pi05_Q_untied", NULL, 10, {NULL}},
    {"lerobot03_pi0", "lerobot03_pi0_Q", NULL, 10, {NULL}},
    {"lerobot03_pi0_minmax", "lerobot03_pi0_Q_minmax", NULL, 5, {NULL}},
    {"lerobot04_pi0", "lerobot04_pi0_Q", NULL, 10, {"image.resize=torch-lerobot04"}},
    {"lerobot04_pi05", "lerobot04_pi05_Q", NULL, 10, {"image.resize=torch-lerobot04", "prompt.state_pad=32"}},
    {NULL, NULL, NULL, 0, {NULL}},
};

const char *pi0_test_golden_dir(const char *checkpoint)
{
    static char path[1024];
    const char *build = getenv("BUILD");
    snprintf(path, sizeof path, "%s/golden_checkpoints", build ? build : "/tmp");
    mkdir(path, 0777);
    snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", checkpoint);
    char made[1024]; /* making an older one asks for another directory on the way */
    snprintf(made, sizeof made, "%s", path);
    if (!pi0_test_make_older_checkpoint(checkpoint, made))
        assert_int_equal(pi0_test_make_checkpoint(checkpoint, made), 0);
    snprintf(path, sizeof path, "%s", made);
    return path;
}

pi0_arrays *pi0_test_golden_arrays(const char *name)
{
    char file[256];
    pi0_arrays *arrays;
    pi0_error err = {0};
    snprintf(file, sizeof file, "goldens/%s.npz", name);
    PI0_ASSERT_OK(pi0_arrays_read(pi0_test_data(file), &arrays, &err), &err);
    return arrays;
}

pi0_model *pi0_test_golden_open(const pi0_golden_case *c, void (*change)(pi0_options *options))
{
    pi0_options options;
    pi0_error err = {0};
    pi0_model *model;
    pi0_options_init(&options);
    options.config = c->config;
    options.preprocessed = 1;
    options.stages = 1;
    options.threads = 2;
    options.precision = "f32"; /* some are stored in bf16 */
    options.set = c->set;
    while (options.n_set < 2 && c->set[options.n_set])
        options.n_set++;
    if (change)
        change(&options);
    PI0_ASSERT_OK(pi0_open(pi0_test_golden_dir(c->checkpoint), &options, &model, &err), &err);
    return model;
}

void pi0_test_golden_inputs(pi0_session *session, const pi0_arrays *arrays)
{
    pi0_error err = {0};
    for (size_t i = 0; i < pi0_arrays_count(arrays); i++) {
        pi0_array input = *pi0_arrays_at(arrays, i);
        const bool recorded =
            !strncmp(input.name, "ref/image.", 10) || !strcmp(input.name, "ref/tokens") || !strcmp(input.name, "ref/state");
        if (!recorded && strcmp(input.name, "noise") != 0)
            continue;
        if (recorded)
            input.name += 4;
        PI0_ASSERT_OK(pi0_set_input(session, &input, &err), &err);
    }
}

static size_t both_as_f64(const pi0_array *ours, const pi0_array *reference, double **a, double **b)
{
    pi0_error err = {0};
    const size_t count = pi0_array_count(reference);
    assert_int_equal(ours->rank, reference->rank);
    for (int i = 0; i < ours->rank; i++)
        assert_int_equal(ours->shape[i], reference->shape[i]);
    *a = calloc(count + 1, sizeof **a);
    *b = calloc(count + 1, sizeof **b);
    assert_true(*a && *b);
    PI0_ASSERT_OK(pi0_array_to_f64(ours, *a, count, &err), &err);
    PI0_ASSERT_OK(pi0_array_to_f64(reference, *b, count, &err), &err);
    return count;
}

double pi0_test_stage_error(const pi0_array *ours, const pi0_array *reference)
{
    double *a, *b, most = 0, largest = 1;
    const size_t count = both_as_f64(ours, reference, &a, &b);
    for (size_t i = 0; i < count; i++) {
        const double difference = fabs(a[i] - b[i]);
        most = difference > most || isnan(difference) ? difference : most;
        largest = fabs(b[i]) > largest ? fabs(b[i]) : largest;
    }
    free(a);
    free(b);
    return most / largest;
}

double pi0_test_stage_cosine(const pi0_array *ours, const pi0_array *reference)
{
    double *a, *b, ab = 0, aa = 0, bb = 0;
    const size_t count = both_as_f64(ours, reference, &a, &b);
    for (size_t i = 0; i < count; i++) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    free(a);
    free(b);
    return ab / sqrt(aa * bb);
}
