/* engine_fixture - stirred observations of a golden checkpoint's three cameras, for tests that run a whole inference. */
#ifndef PI0_TEST_ENGINE_FIXTURE_H
#define PI0_TEST_ENGINE_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "golden_cases.h"
#include "support.h"

static const pi0_golden_case pi0_case = {"openpi_pi0_droid", "openpi_pi0_Q", "pi0_droid", 10, {NULL}}; /* H = 10, two of three cameras */
static const pi0_golden_case pi05_case = {"openpi_pi05_libero", "openpi_pi05_Q", "pi05_libero", 10, {NULL}}; /* H = 10 */

enum { A = 32, S = 224 };

static inline uint64_t stir(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed + 1) * 0x9E3779B97F4A7C15u + i * 0xBF58476D1CE4E5B9u;
    z ^= z >> 31;
    z *= 0x94D049BB133111EBu;
    return z ^ z >> 29;
}

/* In [-1, 1). */
static inline float stirred(uint64_t seed, uint64_t i)
{
    return (float)(stir(seed, i) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

static inline void set_array(pi0_session *session, const char *name, pi0_dtype dtype, const void *data, size_t bytes, int rank,
                             const int64_t *shape)
{
    pi0_error err = {0};
    pi0_array array = {.name = name, .dtype = dtype, .rank = rank, .data = data, .bytes = bytes};
    memcpy(array.shape, shape, (size_t)rank * sizeof *shape);
    PI0_ASSERT_OK(pi0_set_input(session, &array, &err), &err);
}

static inline void set_picture(pi0_session *session, const char *slot, uint64_t seed)
{
    char name[64];
    float *pixels = malloc(S * S * 3 * sizeof *pixels);
    assert_non_null(pixels);
    for (uint64_t i = 0; i < S * S * 3; i++)
        pixels[i] = stirred(seed, i / 48);
    snprintf(name, sizeof name, "image.%s", slot);
    set_array(session, name, PI0_F32, pixels, S * S * 3 * sizeof *pixels, 3, (int64_t[]){S, S, 3});
    free(pixels);
}

/* A whole preprocessed observation. cameras: bit 0 base, 1 left wrist, 2 right wrist. */
static inline void observe(pi0_session *session, uint64_t seed, int n_tokens, int cameras)
{
    static const char *const slots[] = {"base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"};
    const int horizon = session->model->sizes.horizon;
    int64_t tokens[64];
    float values[A], *noise = malloc((size_t)horizon * A * sizeof *noise);
    assert_non_null(noise);
    pi0_session_reset(session, seed);
    for (int slot = 0; slot < 3; slot++)
        if (cameras >> slot & 1)
            set_picture(session, slots[slot], seed * 3 + (uint64_t)slot);
    for (int i = 0; i < n_tokens; i++)
        tokens[i] = i ? (int64_t)(stir(seed + 7, (uint64_t)i) % 200000) : 2;
    for (int i = 0; i < A; i++)
        values[i] = stirred(seed + 8, (uint64_t)i);
    for (int i = 0; i < horizon * A; i++)
        noise[i] = stirred(seed + 9, (uint64_t)i);
    set_array(session, "tokens", PI0_I64, tokens, (size_t)n_tokens * sizeof *tokens, 1, (int64_t[]){n_tokens});
    set_array(session, "state", PI0_F32, values, sizeof values, 1, (int64_t[]){A});
    set_array(session, "noise", PI0_F32, noise, (size_t)horizon * A * sizeof *noise, 2, (int64_t[]){horizon, A});
    free(noise);
}

static inline pi0_session *open_session(pi0_model *model)
{
    pi0_error err = {0};
    pi0_session *session;
    PI0_ASSERT_OK(pi0_session_open(model, 0, &session, &err), &err);
    return session;
}

#endif
