/* What a model needs, and what the doctor says of the machine: the counts, and the structure of the page; never a time.
 * ctest: label=threads timeout=300 */
#include <jansson.h>
#include <string.h>

#include "engine/engine.h"
#include "kernels/kernels.h"
#include "support.h"

/* Written out by the count that this one follows (roofline.py of the project's references: openpi's definition, 17 layers and K and V of
 * the last, 10 steps of 51 rows). */
static void needed_operations_are_those_of_the_roofline(void **state)
{
    (void)state;
    static const struct {
        bool pi05;
        int cameras, tokens;
        double vision, prefix, denoise;
    } cases[] = {
        {false, 2, 20, 440353161216.0, 2032028221440.0, 362612817920.0},
        {false, 3, 48, 660529741824.0, 3149068763136.0, 383970344960.0},
        {false, 1, 48, 220176580608.0, 1151506317312.0, 345466634240.0},
        {true, 2, 20, 440353161216.0, 2032028221440.0, 354402304000.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pi0_arch arch = pi0_arch_base(cases[i].pi05);
        const pi0_flop flop = pi0_arch_flop(&arch, cases[i].cameras, cases[i].tokens, 50, 10);
        assert_true(flop.vision == cases[i].vision && flop.prefix == cases[i].prefix && flop.denoise == cases[i].denoise);
    }
}

static json_t *doctor(const pi0_options *options, int measure)
{
    pi0_error err = {0};
    char *text = NULL;
    PI0_ASSERT_OK(pi0_doctor(NULL, options, measure, &text, &err), &err);
    json_t *page = json_loads(text, 0, NULL);
    assert_true(json_is_object(page));
    pi0_text_free(&text);
    return page;
}

static void every_kernel_family_names_its_instruction_set(void **state)
{
    (void)state;
    pi0_options options;
    pi0_options_init(&options);
    const char *const caps[] = {NULL, "ref"};
    for (int i = 0; i < 2; i++) {
        options.isa = caps[i];
        json_t *page = doctor(&options, 0), *families = json_object_get(page, "kernels"), *family;
        assert_int_equal(json_array_size(families), 2 * PI0_GEMM_FORMS + 1);
        assert_null(json_object_get(page, "measured"));
        size_t index;
        json_array_foreach(families, index, family)
        {
            const char *set = json_string_value(json_object_get(family, "instruction_set"));
            assert_true(set ? !caps[i] || strcmp(set, "ref") == 0 : *json_string_value(json_object_get(family, "note")) != '\0');
        }
        json_decref(page);
    }
    pi0_error err = {0};
    char *text;
    options.isa = "mmx";
    assert_int_equal(pi0_doctor(NULL, &options, 0, &text, &err), PI0_ERR_ARGUMENT);
    assert_null(text);
    pi0_error_clear(&err);
}

static void assert_rate(const json_t *row, const char *key, bool may_lack)
{
    const json_t *value = json_object_get(row, key);
    assert_true(may_lack && json_is_null(value) ? true : json_is_real(value) && json_real_value(value) > 0);
}

static void measuring_fills_every_rate(void **state)
{
    (void)state;
    pi0_options options;
    pi0_options_init(&options);
    options.threads = 2;
    json_t *page = doctor(&options, 1), *measured = json_object_get(page, "measured"), *row;
    size_t index, tables = 0;
    json_array_foreach(json_object_get(page, "instruction_sets"), index, row)
    {
        tables += json_is_true(json_object_get(row, "usable"));
    }
    assert_int_equal(json_integer_value(json_object_get(measured, "threads")), 2);
    const json_t *arithmetic = json_object_get(measured, "arithmetic_gflops"),
                 *bandwidth = json_object_get(measured, "bandwidth_gbytes_per_s");
    assert_in_range(json_array_size(arithmetic), 1, PI0_GEMM_FORMS * tables);
    json_array_foreach(arithmetic, index, row)
    {
        assert_rate(row, "one_thread", false);
        assert_rate(row, "all_threads", false);
    }
    assert_in_range(json_array_size(bandwidth), 1, PI0_CACHES + 1);
    json_array_foreach(bandwidth, index, row)
    {
        assert_rate(row, "read_one_thread", false);
        assert_rate(row, "copy_one_thread", false);
        assert_rate(row, "read_all_threads", true);
        assert_rate(row, "copy_all_threads", true);
    }
    assert_string_equal(json_string_value(json_object_get(json_array_get(bandwidth, json_array_size(bandwidth) - 1), "of")), "memory");
    json_decref(page);
}

static int stop_at_once(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user, (void)stage, (void)done, (void)total;
    return 1;
}

static void measuring_can_be_cancelled(void **state)
{
    (void)state;
    pi0_error err = {0};
    char *text;
    pi0_options options;
    pi0_options_init(&options);
    options.progress = stop_at_once;
    assert_int_equal(pi0_doctor(NULL, &options, 1, &text, &err), PI0_ERR_CANCELLED);
    assert_null(text);
    pi0_error_clear(&err);
}

static void a_model_has_a_peak(void **state)
{
    (void)state;
    pi0_error err = {0};
    char *dir = pi0_test_make_dir();
    pi0_synth_options synth;
    pi0_options options;
    pi0_model *model;
    double peak = 0;
    pi0_synth_options_init(&synth);
    pi0_options_init(&options);
    options.threads = 2;
    PI0_ASSERT_OK(pi0_synth(pi0_test_path(dir, "model"), &synth, &err), &err);
    PI0_ASSERT_OK(pi0_open(pi0_test_path(dir, "model"), &options, &model, &err), &err);
    PI0_ASSERT_OK(pi0_model_peak(model, &peak, &err), &err);
    assert_true(peak > 0);
    const pi0_flop few = pi0_model_flop(model, 1, 5, 1), more = pi0_model_flop(model, 2, 5, 2);
    assert_true(few.vision > 0 && more.vision == 2 * few.vision && more.prefix > few.prefix && more.denoise > 2 * few.denoise);
    pi0_close(&model);
    pi0_test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(needed_operations_are_those_of_the_roofline),
        cmocka_unit_test(every_kernel_family_names_its_instruction_set),
        cmocka_unit_test(measuring_fills_every_rate),
        cmocka_unit_test(measuring_can_be_cancelled),
        cmocka_unit_test(a_model_has_a_peak),
    };
    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
