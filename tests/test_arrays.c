#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "io/io.h"
#include "support.h"

static pi0_arrays *read_case(const char *name)
{
    pi0_error err = {0};
    pi0_arrays *arrays;
    char path[64];
    snprintf(path, sizeof path, "npy/%s", name);
    PI0_ASSERT_OK(pi0_arrays_read(pi0_test_data(path), &arrays, &err), &err);
    assert_non_null(arrays);
    return arrays;
}

static uint8_t *load_case(const char *name, size_t *bytes)
{
    char path[64];
    snprintf(path, sizeof path, "npy/%s", name);
    return pi0_test_read_file(pi0_test_data(path), bytes);
}

/* ------------------------------------------------------------------ writing */

static void written_npy_files_are_numpys_own_bytes(void **state)
{
    (void)state;
    const char *const names[] = {"little_b1.npy", "little_u1.npy", "little_i1.npy", "little_i2.npy", "little_u2.npy", "little_i4.npy",
                                 "little_u4.npy", "little_i8.npy", "little_u8.npy", "little_f2.npy", "little_f4.npy", "little_f8.npy",
                                 "scalar.npy",    "empty.npy",     "text.npy",      "text_empty.npy"};
    char *dir = pi0_test_make_dir();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pi0_error err = {0};
        size_t bytes, expected_bytes;
        pi0_arrays *arrays = read_case(names[i]);
        PI0_ASSERT_OK(pi0_arrays_write(pi0_test_path(dir, "x.npy"), pi0_arrays_at(arrays, 0), 1, &err), &err);
        uint8_t *file = pi0_test_read_file(pi0_test_path(dir, "x.npy"), &bytes), *expected = load_case(names[i], &expected_bytes);
        assert_int_equal(bytes, expected_bytes);
        assert_memory_equal(file, expected, bytes);
        free(file);
        free(expected);
        pi0_arrays_free(&arrays);
    }
    assert_int_equal(pi0_test_count_files(dir), 1);
    pi0_test_remove_dir(dir);
}

static void written_archives_are_read_back_and_always_the_same(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_arrays *arrays = read_case("deflated.npz"), *again;
    char *dir = pi0_test_make_dir();
    size_t bytes[2];
    uint8_t *file[2];
    for (int i = 0; i < 2; i++) {
        PI0_ASSERT_OK(pi0_arrays_write(pi0_test_path(dir, "x.npz"), pi0_arrays_at(arrays, 0), pi0_arrays_count(arrays), &err), &err);
        file[i] = pi0_test_read_file(pi0_test_path(dir, "x.npz"), &bytes[i]);
    }
    assert_int_equal(bytes[0], bytes[1]);
    assert_memory_equal(file[0], file[1], bytes[0]);
    PI0_ASSERT_OK(pi0_arrays_read(pi0_test_path(dir, "x.npz"), &again, &err), &err);
    assert_int_equal(pi0_arrays_count(again), pi0_arrays_count(arrays));
    for (size_t i = 0; i < pi0_arrays_count(arrays); i++) {
        const pi0_array *x = pi0_arrays_at(arrays, i), *y = pi0_arrays_at(again, i);
        assert_string_equal(x->name, y->name);
        assert_int_equal(x->dtype, y->dtype);
        assert_int_equal(x->rank, y->rank);
        assert_memory_equal(x->shape, y->shape, sizeof x->shape);
        assert_int_equal(x->bytes, y->bytes);
        assert_memory_equal(x->data, y->data, x->bytes);
    }
    pi0_arrays_free(&again);
    PI0_ASSERT_OK(pi0_arrays_write(pi0_test_path(dir, "none.npz"), NULL, 0, &err), &err);
    PI0_ASSERT_OK(pi0_arrays_read(pi0_test_path(dir, "none.npz"), &again, &err), &err);
    assert_int_equal(pi0_arrays_count(again), 0);
    pi0_arrays_free(&again);
    free(file[0]);
    free(file[1]);
    pi0_arrays_free(&arrays);
    pi0_test_remove_dir(dir);
}

/* A file of observations may hold pickled objects where nobody looks. */
static void skipped_arrays_may_be_of_any_kind(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_arrays *arrays;
    const char *const skip[] = {"zz", "b", NULL}, *const other[] = {"a", NULL};
    PI0_ASSERT_OK(pi0_arrays_read_without(pi0_test_data("npy/bad_object.npz"), skip, &arrays, &err), &err);
    assert_int_equal(pi0_arrays_count(arrays), 1);
    assert_non_null(pi0_arrays_find(arrays, "a"));
    pi0_arrays_free(&arrays);
    assert_int_equal(pi0_arrays_read_without(pi0_test_data("npy/bad_object.npz"), other, &arrays, &err), PI0_ERR_UNSUPPORTED);
    pi0_test_assert_error(&err, PI0_ERR_UNSUPPORTED, "array \"b\"", NULL);
}

static void endings_may_be_upper_case(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_arrays *arrays;
    char *dir = pi0_test_make_dir();
    const float values[2] = {1, 2};
    const pi0_array array = {.name = "x", .dtype = PI0_F32, .rank = 1, .shape = {2}, .data = values, .bytes = sizeof values};
    static const char *const names[] = {"X.NPY", "X.Npz"};
    for (size_t i = 0; i < 2; i++) {
        PI0_ASSERT_OK(pi0_arrays_write(pi0_test_path(dir, names[i]), &array, 1, &err), &err);
        PI0_ASSERT_OK(pi0_arrays_read(pi0_test_path(dir, names[i]), &arrays, &err), &err);
        assert_string_equal(pi0_arrays_at(arrays, 0)->name, i ? "x" : "");
        pi0_arrays_free(&arrays);
    }
    pi0_test_remove_dir(dir);
}

static void bf16_is_written_as_f32(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_arrays *arrays;
    char *dir = pi0_test_make_dir();
    const uint16_t values[2] = {0x3f81, 0xc000};
    const pi0_array array = {.name = "x", .dtype = PI0_BF16, .rank = 1, .shape = {2}, .data = values, .bytes = 4};
    PI0_ASSERT_OK(pi0_arrays_write(pi0_test_path(dir, "x.npz"), &array, 1, &err), &err);
    PI0_ASSERT_OK(pi0_arrays_read(pi0_test_path(dir, "x.npz"), &arrays, &err), &err);
    const pi0_array *wide = pi0_arrays_find(arrays, "x");
    assert_int_equal(wide->dtype, PI0_F32);
    assert_true(((const float *)wide->data)[0] == 1 + 0x1p-7f);
    assert_true(((const float *)wide->data)[1] == -2.0f);
    pi0_arrays_free(&arrays);
    pi0_test_remove_dir(dir);
}

static void arrays_that_cannot_be_written_are_refused(void **state)
{
    (void)state;
    const uint8_t data[16] = {0};
    const pi0_array good = {.name = "g", .dtype = PI0_U8, .rank = 1, .shape = {16}, .data = data, .bytes = 16};
    const pi0_array bad[] = {
        {.name = "", .dtype = PI0_U8, .rank = 1, .shape = {16}, .data = data, .bytes = 16},
        {.name = NULL, .dtype = PI0_U8, .rank = 1, .shape = {16}, .data = data, .bytes = 16},
        {.name = "\xff", .dtype = PI0_U8, .rank = 1, .shape = {16}, .data = data, .bytes = 16},
        {.name = "x", .dtype = PI0_U8, .rank = 1, .shape = {17}, .data = data, .bytes = 16},
        {.name = "x", .dtype = PI0_U8, .rank = 1, .shape = {-16}, .data = data, .bytes = 16},
        {.name = "x", .dtype = PI0_U8, .rank = 9, .shape = {1}, .data = data, .bytes = 1},
        {.name = "x", .dtype = (pi0_dtype)99, .rank = 1, .shape = {16}, .data = data, .bytes = 16},
        {.name = "x", .dtype = PI0_U8, .rank = 1, .shape = {16}, .data = NULL, .bytes = 16},
        {.name = "x", .dtype = PI0_TEXT, .data = "a\0b", .bytes = 3},
        {.name = "x", .dtype = PI0_TEXT, .data = "a\xff", .bytes = 2},
    };
    char *dir = pi0_test_make_dir();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pi0_error err = {0};
        const pi0_array list[] = {good, bad[i]};
        assert_int_equal(pi0_arrays_write(pi0_test_path(dir, "x.npz"), list, 2, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "cannot be written", NULL);
    }
    pi0_error err = {0};
    const pi0_array twice[] = {good, good};
    pi0_arrays_write(pi0_test_path(dir, "x.npz"), twice, 2, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "same name", "\"g\"", NULL);
    pi0_arrays_write(pi0_test_path(dir, "x.npy"), twice, 2, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "at most 1", "2", NULL);
    pi0_arrays_write(pi0_test_path(dir, "x.npy"), NULL, 0, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "x.npy", NULL);
    pi0_arrays_write(pi0_test_path(dir, "x.bin"), &good, 1, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "ends in .npy or .npz", "x.bin", NULL);
    pi0_arrays_write(pi0_test_path(dir, "no/x.npy"), &good, 1, &err);
    pi0_test_assert_error(&err, PI0_ERR_IO, "no/x.npy", NULL);
    assert_int_equal(pi0_test_count_files(dir), 0);
    pi0_test_remove_dir(dir);
}

/* A disk that is full, as far as this process can tell: no file may pass 64 KiB. */
static void a_full_disk_leaves_the_old_file(void **state)
{
    (void)state;
    pi0_error err = {0};
    char *dir = pi0_test_make_dir();
    uint8_t *data = calloc(1, 1 << 20);
    const pi0_array large = {.name = "w", .dtype = PI0_U8, .rank = 1, .shape = {1 << 20}, .data = data, .bytes = 1 << 20};
    pi0_test_write_file(pi0_test_path(dir, "x.npz"), "old", 3);
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 1 << 16;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    pi0_status status = pi0_arrays_write(pi0_test_path(dir, "x.npz"), &large, 1, &err);
    setrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "x.npz", NULL);
    assert_int_equal(pi0_test_count_files(dir), 1);
    size_t bytes;
    char *text = pi0_test_read_file(pi0_test_path(dir, "x.npz"), &bytes);
    assert_string_equal(text, "old");
    free(text);
    free(data);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ sets and values */

static void arrays_are_made_to_be_filled(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_arrays *arrays = NULL;
    void *data;
    const int64_t shape[] = {2, 3}, negative[] = {-1}, huge[] = {1ll << 40};
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        PI0_ASSERT_OK(pi0_arrays_add(&arrays, name, PI0_F32, shape, 2, &data, &err), &err);
        ((float *)data)[5] = (float)i;
    }
    PI0_ASSERT_OK(pi0_arrays_add_text(&arrays, "t", "abc", 2, &err), &err);
    assert_int_equal(pi0_arrays_count(arrays), 21);
    assert_true(((const float *)pi0_arrays_find(arrays, "n7")->data)[5] == 7);
    assert_true(((const float *)pi0_arrays_find(arrays, "n7")->data)[4] == 0);
    assert_string_equal(pi0_arrays_find(arrays, "t")->data, "ab");
    assert_int_equal(pi0_arrays_find(arrays, "t")->bytes, 2);
    pi0_arrays_add(&arrays, "x", PI0_F32, negative, 1, &data, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "\"x\"", NULL);
    pi0_arrays_add(&arrays, "x", PI0_F32, huge, 1, &data, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "\"x\"", NULL);
    pi0_arrays_add(&arrays, "x", PI0_TEXT, shape, 1, &data, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "\"x\"", NULL);
    assert_int_equal(pi0_arrays_count(arrays), 21);
    pi0_arrays_free(&arrays);
    pi0_arrays_free(&arrays);
    pi0_arrays_free(NULL);
    assert_int_equal(pi0_arrays_count(NULL), 0);
    assert_null(pi0_arrays_find(NULL, "a"));
}

static void integers_that_do_not_fit_are_errors(void **state)
{
    (void)state;
    pi0_error err = {0};
    double wide[2];
    float single[2];
    int64_t integer[2];
    const int64_t i64[2] = {-(1ll << 53), (1ll << 53) + 1};
    pi0_array array = {.name = "x", .dtype = PI0_I64, .rank = 1, .shape = {2}, .data = i64, .bytes = 16};
    pi0_array_to_f64(&array, wide, 2, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "\"x\", element 1", "f64", NULL);
    pi0_array_to_f32(&array, single, 2, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "element 1", "f32", NULL);
    const int64_t edge[2] = {INT64_MIN, 1ll << 62};
    array.data = edge;
    PI0_ASSERT_OK(pi0_array_to_f64(&array, wide, 2, &err), &err);
    assert_true(wide[0] == -0x1p63 && wide[1] == 0x1p62);
    PI0_ASSERT_OK(pi0_array_to_f32(&array, single, 2, &err), &err);
    PI0_ASSERT_OK(pi0_array_to_i64(&array, integer, 2, &err), &err);
    assert_true(integer[0] == INT64_MIN);
    const uint64_t u64[2] = {1ull << 63, UINT64_MAX};
    array = (pi0_array){.name = "x", .dtype = PI0_U64, .rank = 1, .shape = {2}, .data = u64, .bytes = 16};
    pi0_array_to_i64(&array, integer, 2, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "element 0", "signed", NULL);
    pi0_array_to_f64(&array, wide, 2, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "element 1", NULL);
    const double f64[][2] = {{3, -0x1p63}, {0.5, 0}, {0x1p63, 0}, {NAN, 0}, {INFINITY, 0}};
    array = (pi0_array){.name = "x", .dtype = PI0_F64, .rank = 1, .shape = {2}, .data = f64[0], .bytes = 16};
    PI0_ASSERT_OK(pi0_array_to_i64(&array, integer, 2, &err), &err);
    assert_true(integer[0] == 3 && integer[1] == INT64_MIN);
    for (int i = 1; i < 5; i++) {
        array.data = f64[i];
        pi0_array_to_i64(&array, integer, 2, &err);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "element 0", "whole number", NULL);
    }
}

static void counts_are_checked(void **state)
{
    (void)state;
    pi0_error err = {0};
    double wide[4];
    const float f32[4] = {0};
    pi0_array array = {.name = "x", .dtype = PI0_F32, .rank = 1, .shape = {4}, .data = f32, .bytes = 16};
    pi0_array_to_f64(&array, wide, 3, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "\"x\"", "3 numbers", "4 of type f32", NULL);
    array.bytes = 12;
    assert_int_equal(pi0_array_to_f64(&array, wide, 4, NULL), PI0_ERR_ARGUMENT);
    array = (pi0_array){.name = "x", .dtype = PI0_TEXT, .data = "a", .bytes = 1};
    pi0_array_to_f64(&array, wide, 1, &err);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "does not hold numbers", "text", NULL);
    array = (pi0_array){.name = "x", .dtype = PI0_F32, .rank = 2, .shape = {-1, -4}, .data = f32, .bytes = 16};
    assert_int_equal(pi0_array_count(&array), 0);
    array.rank = 9;
    assert_int_equal(pi0_array_count(&array), 0);
}

/* ------------------------------------------------------------------ memory */

static pi0_status read_and_write(const uint8_t *file, size_t bytes, const char *dir, pi0_error *err)
{
    pi0_arrays *arrays;
    pi0_status status = pi0_arrays_parse(file, bytes, "x.npz", &arrays, err);
    if (status == PI0_OK)
        status = pi0_arrays_write(pi0_test_path(dir, "x.npz"), pi0_arrays_at(arrays, 0), pi0_arrays_count(arrays), err);
    else
        assert_null(arrays);
    pi0_arrays_free(&arrays);
    return status;
}

static void every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    size_t bytes;
    char *dir = pi0_test_make_dir();
    uint8_t *file = load_case("deflated.npz", &bytes);
    for (long n = 1;; n++) {
        pi0_error err = {0};
        pi0_test_fail_allocation(n);
        pi0_status status = read_and_write(file, bytes, dir, &err);
        bool failed = pi0_test_allocation_failed();
        if (!failed) {
            PI0_ASSERT_OK(status, &err);
            assert_true(n > 25);
            break;
        }
        if (status != PI0_ERR_IO) /* the writer's file of the C library: errno says ENOMEM */
            assert_int_equal(status, PI0_ERR_MEMORY);
        pi0_error_clear(&err);
        assert_int_equal(pi0_test_count_files(dir), 0);
    }
    free(file);
    pi0_test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_npy_files_are_numpys_own_bytes),
        cmocka_unit_test(written_archives_are_read_back_and_always_the_same),
        cmocka_unit_test(skipped_arrays_may_be_of_any_kind),
        cmocka_unit_test(endings_may_be_upper_case),
        cmocka_unit_test(bf16_is_written_as_f32),
        cmocka_unit_test(arrays_that_cannot_be_written_are_refused),
        cmocka_unit_test(a_full_disk_leaves_the_old_file),
        cmocka_unit_test(arrays_are_made_to_be_filled),
        cmocka_unit_test(integers_that_do_not_fit_are_errors),
        cmocka_unit_test(counts_are_checked),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests_name("arrays", tests, NULL, NULL);
}
