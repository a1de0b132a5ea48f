/* live_fixture - a tiny random model with its files, and what a robot sees, for tests of opening, pipeline and counters. */
#ifndef PI0_TEST_LIVE_FIXTURE_H
#define PI0_TEST_LIVE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

static char *live_dir;
static char live_path[1024];

static int make_live_model(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_synth_options options;
    pi0_synth_options_init(&options);
    options.model = "pi05"; /* the state is in the prompt: its tokens differ from one observation to the next */
    options.layout = "lerobot";
    options.size = "tiny";
    options.cameras = 2;
    options.horizon = 4;
    live_dir = pi0_test_make_dir();
    snprintf(live_path, sizeof live_path, "%s", pi0_test_path(live_dir, "model"));
    PI0_ASSERT_OK(pi0_synth(live_path, &options, &err), &err);
    return 0;
}

static int remove_live_model(void **state)
{
    (void)state;
    pi0_test_remove_dir(live_dir);
    return 0;
}

static inline pi0_options live_options(void)
{
    pi0_options options;
    pi0_options_init(&options);
    options.threads = 2;
    return options;
}

static inline pi0_model *open_live_model(void)
{
    pi0_error err = {0};
    pi0_model *model = NULL;
    const pi0_options options = live_options();
    PI0_ASSERT_OK(pi0_open(live_path, &options, &model, &err), &err);
    return model;
}

/* Observation `which` of any number: pictures, state and prompt of its own. */
static inline pi0_status see(pi0_session *session, const pi0_info *info, int which, pi0_error *err)
{
    static const char *const prompts[] = {"pick up the cube", "open the drawer", "put the cup on the plate, then the spoon beside it"};
    uint8_t pixels[24 * 32 * 3];
    const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {24, 32, 3}, .data = pixels, .bytes = sizeof pixels};
    double robot[256];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * (size_t)(which + 3) + (size_t)which * 37);
    for (int i = 0; i < info->state_dim; i++)
        robot[i] = 0.1 * which - 0.05 * i;
    pi0_status status = pi0_set_state(session, robot, (size_t)info->state_dim, err);
    for (int slot = 0; slot < 2 && status == PI0_OK; slot++)
        status = pi0_set_image(session, info->slots[slot], &picture, err);
    return status == PI0_OK ? pi0_set_prompt(session, prompts[which % 3], err) : status;
}

#endif
