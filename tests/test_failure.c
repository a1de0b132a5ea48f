/* Allocation failure at every allocation of open, observation and inference: each is an error, nothing leaks (the sanitizer run proves the
 * latter), and the same calls work afterwards.
 * ctest: timeout=900 */
#include <stdio.h>
#include <string.h>

#include "support.h"

static char *dir;

static void make_checkpoint(const char *name, const char *model, const char *layout)
{
    pi0_error err = {0};
    pi0_synth_options options;
    pi0_synth_options_init(&options);
    options.model = model;
    options.layout = layout;
    options.size = "tiny";
    options.cameras = 2;
    options.horizon = 4;
    PI0_ASSERT_OK(pi0_synth(pi0_test_path(dir, name), &options, &err), &err);
}

typedef struct checkpoint {
    char path[1024];
    const char *config;
} checkpoint;

static pi0_status whole_path(void *context, pi0_error *err)
{
    static uint8_t pixels[40 * 30 * 3];
    const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {30, 40, 3}, .data = pixels, .bytes = sizeof pixels};
    const checkpoint *from = context;
    pi0_options options;
    pi0_model *model = NULL;
    pi0_session *session = NULL;
    pi0_options_init(&options);
    options.config = from->config;
    options.threads = 2;
    pi0_status status = pi0_open(from->path, &options, &model, err);
    if (status == PI0_OK)
        status = pi0_session_open(model, 1, &session, err);
    if (status == PI0_OK) {
        const double state[256] = {0.1};
        const pi0_info *info = pi0_model_info(model);
        for (int slot = 0; slot < 2 && status == PI0_OK; slot++)
            status = pi0_set_image(session, info->slots[slot], &picture, err);
        if (status == PI0_OK)
            status = pi0_set_state(session, state, (size_t)info->state_dim, err);
        if (status == PI0_OK)
            status = pi0_set_prompt(session, "pick up the cube", err);
        if (status == PI0_OK)
            status = pi0_infer(&session, 1, 1, err);
        if (status == PI0_OK)
            assert_non_null(pi0_actions(session, NULL, NULL));
    }
    pi0_session_close(&session);
    pi0_close(&model);
    return status;
}

/* Every allocation of the last stretch, where plans, device and session live; every seventh of the thousands that readers make alike. */
static void sweep(const char *name, const char *config)
{
    checkpoint from = {.config = config};
    snprintf(from.path, sizeof from.path, "%s", pi0_test_path(dir, name));
    pi0_test_fail_allocations(name, whole_path, &from, (pi0_test_sweep){.first = 200, .last = 3000, .stride = 7});
}

static void every_allocation_of_an_openpi_model(void **state)
{
    (void)state;
    make_checkpoint("openpi", "pi05", "openpi");
    sweep("openpi", "pi05_droid");
}

static void every_allocation_of_a_lerobot_model(void **state)
{
    (void)state;
    make_checkpoint("lerobot", "pi0", "lerobot");
    sweep("lerobot", NULL);
}

static int make_dir(void **state)
{
    (void)state;
    dir = pi0_test_make_dir();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    pi0_test_remove_dir(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_of_an_openpi_model),
        cmocka_unit_test(every_allocation_of_a_lerobot_model),
    };
    return cmocka_run_group_tests_name("failure", tests, make_dir, remove_dir);
}
