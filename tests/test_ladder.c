/* What `pi0 bench --ablate` stands on: every beginning of the list of passes is a model of its own that gives the same actions, and the
 * library's count of allocations is that of whoever listens to libc.
 * ctest: timeout=300 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "golden_cases.h"
#include "support.h"

static const pi0_golden_case *find_case(const char *name)
{
    const pi0_golden_case *c = pi0_golden_cases;
    while (c->name && strcmp(c->name, name) != 0)
        c++;
    assert_non_null(c->name);
    return c;
}

static const pi0_golden_case *cases[2];

static int find_cases(void **state)
{
    (void)state;
    cases[0] = find_case("openpi_pi0_droid");
    cases[1] = find_case("openpi_pi05_libero");
    return 0;
}

static char disabled[512];

static void with_disabled(pi0_options *options)
{
    options->disable = disabled;
    options->stages = 0; /* keeping them allocates */
}

typedef struct opened {
    pi0_arrays *arrays;
    pi0_model *model;
    pi0_session *session;
} opened;

/* With the recorded inputs set. */
static opened open_case(const pi0_golden_case *c)
{
    pi0_error err = {0};
    opened o = {.arrays = pi0_test_golden_arrays(c->name), .model = pi0_test_golden_open(c, with_disabled)};
    PI0_ASSERT_OK(pi0_session_open(o.model, 0, &o.session, &err), &err);
    pi0_test_golden_inputs(o.session, o.arrays);
    return o;
}

static void close_case(opened *o)
{
    pi0_session_close(&o->session);
    pi0_close(&o->model);
    pi0_arrays_free(&o->arrays);
}

/* The actions, malloc'ed. */
static float *infer(const pi0_golden_case *c, size_t *count)
{
    pi0_error err = {0};
    opened o = open_case(c);
    PI0_ASSERT_OK(pi0_infer(&o.session, 1, 3, &err), &err);
    int rows, cols;
    const float *raw = pi0_actions_raw(o.session, &rows, &cols);
    assert_non_null(raw);
    *count = (size_t)rows * (size_t)cols;
    float *copy = malloc(*count * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, raw, *count * sizeof *copy);
    close_case(&o);
    return copy;
}

static void every_rung_gives_the_same_actions(void **state)
{
    (void)state;
    size_t n = 0;
    while (pi0_pass_at(n).name)
        n++;
    assert_true(n >= 13);
    assert_null(pi0_pass_at(n + 5).name);
    for (int i = 0; i < 2; i++) {
        size_t count, again;
        *disabled = '\0';
        float *top = infer(cases[i], &count);
        for (size_t on = 0; on < n; on++) {
            *disabled = '\0';
            for (size_t off = on; off < n; off++)
                snprintf(disabled + strlen(disabled), sizeof disabled - strlen(disabled), "%s,", pi0_pass_at(off).name);
            float *rung = infer(cases[i], &again);
            assert_int_equal(again, count);
            for (size_t k = 0; k < count; k++)
                if (!(fabsf(rung[k] - top[k]) < 2e-5f))
                    fail_msg("without %s an action moves by %g", disabled, (double)(rung[k] - top[k]));
            free(rung);
        }
        free(top);
    }
}

/* Allocations of one inference by libc and by the library; the arena that was made at open. */
static long count_allocations(const pi0_golden_case *c, size_t *arena)
{
    pi0_error err = {0};
    opened o = open_case(c);
    const uint64_t before = pi0_allocation_count();
    pi0_test_fail_allocation(0);
    PI0_ASSERT_OK(pi0_infer(&o.session, 1, 3, &err), &err);
    const long count = pi0_test_allocation_count();
    assert_int_equal(count, pi0_allocation_count() - before);
    *arena = o.model->arena.bytes;
    close_case(&o);
    return count;
}

static void without_an_arena_every_tensor_is_an_allocation(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        size_t arena;
        snprintf(disabled, sizeof disabled, "arena");
        assert_true(count_allocations(cases[i], &arena) > 100);
        assert_int_equal(arena, 0);
        *disabled = '\0';
        assert_int_equal(count_allocations(cases[i], &arena), 0);
        assert_true(arena > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rung_gives_the_same_actions),
        cmocka_unit_test(without_an_arena_every_tensor_is_an_allocation),
    };
    return cmocka_run_group_tests_name("ladder", tests, find_cases, NULL);
}
