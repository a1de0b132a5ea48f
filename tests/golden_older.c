/* The tiny checkpoints of LeRobot's older layouts: the weights of a shared one, under older names where that is what changed, with the
 * small files that LeRobot's own classes of that version wrote (tests/data/goldens/<checkpoint>/, tools/make_lerobot_goldens.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "golden_cases.h"
#include "golden_checkpoints.h"
#include "io/io.h"
#include "support.h"

typedef struct older_checkpoint {
    const char *name, *weights_of;
    bool old_names; /* LeRobot <= 0.3: older names, statistics inside the weights */
    const char *statistics[2];
    const char *files[6]; /* NULL-terminated */
} older_checkpoint;

static const older_checkpoint older[] = {
    {"lerobot03_pi0_Q", "lerobot_pi0_Q", true, {"mean", "std"}, {"config.json"}},
    {"lerobot03_pi0_Q_minmax", "lerobot_pi0_Q_empty", true, {"min", "max"}, {"config.json"}},
    {"lerobot04_pi0_Q",
     "lerobot_pi0_Q",
     false,
     {NULL},
     {"config.json", "policy_preprocessor.json", "policy_postprocessor.json", "policy_preprocessor_step_5_normalizer_processor.safetensors",
      "policy_postprocessor_step_0_unnormalizer_processor.safetensors"}},
    {"lerobot04_pi05_Q",
     "lerobot_pi05_Q_rename",
     false,
     {NULL},
     {"config.json", "policy_preprocessor.json", "policy_postprocessor.json", "policy_preprocessor_step_2_normalizer_processor.safetensors",
      "policy_postprocessor_step_0_unnormalizer_processor.safetensors"}},
};

/* model.paligemma_with_expert.paligemma.X as LeRobot <= 0.3 called it; malloc'ed. */
static char *old_name(const char *name)
{
    static const char *const pairs[][2] = {{"paligemma.lm_head", "paligemma.language_model.lm_head"},
                                           {"paligemma.model.language_model", "paligemma.language_model.model"},
                                           {"paligemma.model.vision_tower", "paligemma.vision_tower"},
                                           {"paligemma.model.multi_modal_projector", "paligemma.multi_modal_projector"}};
    static const char start[] = "model.paligemma_with_expert.";
    const size_t skip = sizeof start - 1;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!strncmp(name, start, skip) && !strncmp(name + skip, pairs[i][0], strlen(pairs[i][0])))
            return pi0_sprintf("%s%s%s", start, pairs[i][1], name + skip + strlen(pairs[i][0]));
    return pi0_strdup(name);
}

static void add_statistics(const older_checkpoint *c, const pi0_safetensors *file, pi0_tensor_view *list, size_t *n)
{
    static const char *const buffers[][2] = {{"normalize_inputs.buffer_observation_state", "observation.state"},
                                             {"normalize_targets.buffer_action", "action"},
                                             {"unnormalize_outputs.buffer_action", "action"}};
    for (size_t b = 0; b < 3; b++)
        for (int s = 0; s < 2; s++) {
            char from[128];
            snprintf(from, sizeof from, "%s.%s", buffers[b][1], c->statistics[s]);
            const pi0_tensor_view *view = pi0_safetensors_find(file, from);
            assert_non_null(view);
            list[*n] = *view;
            list[(*n)++].name = pi0_sprintf("%s.%s", buffers[b][0], c->statistics[s]);
        }
}

static void write_old_weights(const older_checkpoint *c, const char *source, const char *target)
{
    pi0_error err = {0};
    pi0_safetensors *weights, *statistics;
    pi0_safetensors_writer writer;
    char path[1200];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    PI0_ASSERT_OK(pi0_safetensors_open(path, &weights, &err), &err);
    snprintf(path, sizeof path, "%s/policy_preprocessor_step_6_normalizer_processor.safetensors", source);
    PI0_ASSERT_OK(pi0_safetensors_open(path, &statistics, &err), &err);
    pi0_tensor_view *list = calloc(pi0_safetensors_count(weights) + 6, sizeof *list);
    assert_non_null(list);
    for (; n < pi0_safetensors_count(weights); n++) {
        list[n] = *pi0_safetensors_at(weights, n);
        list[n].name = old_name(list[n].name);
    }
    add_statistics(c, statistics, list, &n);
    PI0_ASSERT_OK(pi0_safetensors_create(&writer, target, list, n, NULL, &err), &err);
    for (size_t i = 0; i < n; i++)
        PI0_ASSERT_OK(pi0_safetensors_put(&writer, list[i].data, list[i].bytes, &err), &err);
    PI0_ASSERT_OK(pi0_safetensors_finish(&writer, &err), &err);
    for (size_t i = 0; i < n; i++)
        pi0_free((void *)(uintptr_t)list[i].name);
    free(list);
    pi0_safetensors_close(&weights);
    pi0_safetensors_close(&statistics);
}

bool pi0_test_make_older_checkpoint(const char *name, const char *dir)
{
    const older_checkpoint *c = NULL;
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        if (!strcmp(older[i].name, name))
            c = &older[i];
    if (!c)
        return false;
    char source[1024], target[1200], file[256];
    snprintf(source, sizeof source, "%s", pi0_test_golden_dir(c->weights_of));
    mkdir(dir, 0777);
    for (int i = 0; c->files[i]; i++) {
        size_t bytes;
        snprintf(file, sizeof file, "goldens/%s/%s", name, c->files[i]);
        void *data = pi0_test_read_file(pi0_test_data(file), &bytes);
        snprintf(target, sizeof target, "%s/%s", dir, c->files[i]);
        pi0_test_write_file(target, data, bytes);
        free(data);
    }
    snprintf(target, sizeof target, "%s/model.safetensors", dir);
    if (access(target, R_OK) == 0)
        return true;
    if (c->old_names) {
        write_old_weights(c, source, target);
    } else {
        strncat(source, "/model.safetensors", sizeof source - strlen(source) - 1);
        assert_int_equal(symlink(source, target), 0);
    }
    return true;
}
