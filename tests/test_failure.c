/* Allocation failure at every allocation of open, observation and inference: each is an error, nothing leaks (the sanitizer run proves the
 * latter), and the same calls work afterwards.
 * ctest: timeout=900 */
#include <stdbool.h>
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

static pi0_status whole_path(const char *path, const char *config, const pi0_array *picture, pi0_error *err)
{
    pi0_options options;
    pi0_model *model = NULL;
    pi0_session *session = NULL;
    pi0_options_init(&options);
    options.config = config;
    options.threads = 2;
    pi0_status status = pi0_open(path, &options, &model, err);
    if (status == PI0_OK)
        status = pi0_session_open(model, 1, &session, err);
    if (status == PI0_OK) {
        const double state[256] = {0.1};
        const pi0_info *info = pi0_model_info(model);
        for (int slot = 0; slot < 2 && status == PI0_OK; slot++)
            status = pi0_set_image(session, info->slots[slot], picture, err);
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

static void sweep(const char *name, const char *config)
{
    static uint8_t pixels[40 * 30 * 3];
    const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {30, 40, 3}, .data = pixels, .bytes = sizeof pixels};
    char path[1024];
    snprintf(path, sizeof path, "%s", pi0_test_path(dir, name));
    pi0_error err = {0};
    pi0_test_fail_allocation(0);
    PI0_ASSERT_OK(whole_path(path, config, &picture, &err), &err);
    const long total = pi0_test_allocation_count();
    assert_true(total > 100);
    /* Every allocation of the last stretch, where plans, device and session live; every seventh of the thousands that readers make alike.
     */
    const long dense = total > 3000 ? total - 3000 : 0;
    long failures = 0, wrong = 0;
    for (long n = 1; n <= total; n += n >= dense || n < 200 ? 1 : 7) {
        pi0_test_fail_allocation(n);
        const pi0_status status = whole_path(path, config, &picture, &err);
        if (!pi0_test_allocation_failed())
            break;
        if (status != PI0_ERR_MEMORY && status != PI0_ERR_IO) { /* stdio reports what it could not allocate as a failed open */
            print_error("%s: with allocation %ld of %ld failing the status is %s: %s\n", name, n, total, pi0_status_name(status), err.what);
            wrong++;
        }
        pi0_error_clear(&err);
        failures++;
    }
    assert_int_equal(wrong, 0);
    print_message("%s: %ld allocations, %ld of them failed one at a time\n", name, total, failures);
    pi0_test_fail_allocation(0);
    PI0_ASSERT_OK(whole_path(path, config, &picture, &err), &err);
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
