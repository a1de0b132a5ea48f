#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "support.h"

/* The files below tests/data/npy are numpy's own: tools/make_npy_cases.py says what is in each. */
#define TEXT "pick up the r\xc3\xb6\x64 \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80"

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

/* The bytes end at an inaccessible page: reading one too many is seen without a sanitizer, too. */
static void refuse_bytes(const void *file, size_t bytes, pi0_status expected, const char *part, const char *other)
{
    pi0_error err = {0};
    pi0_arrays *arrays = (pi0_arrays *)&err;
    pi0_test_guard guard = pi0_test_guard_open(bytes ? bytes : 1);
    if (bytes)
        memcpy(guard.data, file, bytes);
    pi0_status status = pi0_arrays_parse(guard.data, bytes, "x.npz", &arrays, &err);
    if (status == PI0_OK)
        print_error("not refused: %s, %s\n", part, other);
    assert_null(arrays);
    assert_int_equal(status, expected);
    pi0_test_assert_error(&err, expected, "x.npz", part, other, NULL);
    pi0_test_guard_close(&guard);
}

static void refuse_case(const char *name, pi0_status expected, const char *part, const char *other)
{
    size_t bytes;
    uint8_t *file = load_case(name, &bytes);
    refuse_bytes(file, bytes, expected, part, other);
    free(file);
}

/* ------------------------------------------------------------------ .npy as numpy writes it */

static const struct {
    const char *name;
    pi0_dtype dtype;
    int first; /* the ramp first, first + 3, ... of tools/make_npy_cases.py */
} types[] = {{"u1", PI0_U8, 0},   {"i1", PI0_I8, -7}, {"i2", PI0_I16, -7}, {"u2", PI0_U16, 0},  {"i4", PI0_I32, -7}, {"u4", PI0_U32, 0},
             {"i8", PI0_I64, -7}, {"u8", PI0_U64, 0}, {"f2", PI0_F16, -7}, {"f4", PI0_F32, -7}, {"f8", PI0_F64, -7}};

static void check_ramp(const pi0_array *array, pi0_dtype dtype, int first)
{
    pi0_error err = {0};
    double wide[6];
    float single[6];
    int64_t integer[6];
    assert_int_equal(array->dtype, dtype);
    assert_int_equal(array->rank, 2);
    assert_int_equal(array->shape[0], 2);
    assert_int_equal(array->shape[1], 3);
    assert_int_equal(array->bytes, 6 * pi0_dtype_size(dtype));
    assert_int_equal(pi0_array_count(array), 6);
    assert_int_equal((uintptr_t)array->data % PI0_ALIGN, 0);
    PI0_ASSERT_OK(pi0_array_to_f64(array, wide, 6, &err), &err);
    PI0_ASSERT_OK(pi0_array_to_f32(array, single, 6, &err), &err);
    PI0_ASSERT_OK(pi0_array_to_i64(array, integer, 6, &err), &err);
    for (int i = 0; i < 6; i++) {
        assert_true(wide[i] == first + 3 * i);
        assert_true(single[i] == (float)(first + 3 * i));
        assert_true(integer[i] == first + 3 * i);
    }
}

static void every_type_in_both_byte_orders(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (int big = 0; big < 2; big++) {
            if (big && pi0_dtype_size(types[i].dtype) == 1)
                continue;
            char name[32];
            snprintf(name, sizeof name, "%s_%s.npy", big ? "big" : "little", types[i].name);
            pi0_arrays *arrays = read_case(name);
            assert_int_equal(pi0_arrays_count(arrays), 1);
            assert_string_equal(pi0_arrays_at(arrays, 0)->name, "");
            assert_ptr_equal(pi0_arrays_find(arrays, ""), pi0_arrays_at(arrays, 0));
            check_ramp(pi0_arrays_at(arrays, 0), types[i].dtype, types[i].first);
            pi0_arrays_free(&arrays);
            assert_null(arrays);
        }
}

static void booleans_are_zero_and_one(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = load_case("little_b1.npy", &bytes);
    for (int turn = 0; turn < 2; turn++) {
        pi0_error err = {0};
        pi0_arrays *arrays;
        const uint8_t expected[6] = {0, 1, 1, 1, 1, 1};
        PI0_ASSERT_OK(pi0_arrays_parse(file, bytes, "x.npy", &arrays, &err), &err);
        assert_int_equal(pi0_arrays_at(arrays, 0)->dtype, PI0_BOOL);
        assert_memory_equal(pi0_arrays_at(arrays, 0)->data, expected, 6);
        pi0_arrays_free(&arrays);
        file[bytes - 1] = 0x80; /* not what numpy writes, but True to numpy */
    }
    free(file);
}

static void fortran_order_becomes_c_order(void **state)
{
    (void)state;
    const char *const names[] = {"fortran.npy", "fortran_big.npy", "version2.npy", "version3.npy"};
    for (int k = 0; k < 4; k++) {
        pi0_arrays *arrays = read_case(names[k]);
        const pi0_array *cube = pi0_arrays_at(arrays, 0);
        assert_int_equal(cube->rank, 3);
        assert_int_equal(cube->shape[2], 4);
        for (int i = 0; i < 24; i++)
            assert_int_equal(((const int32_t *)cube->data)[i], i);
        pi0_arrays_free(&arrays);
    }
}

static void scalars_and_empty_arrays(void **state)
{
    (void)state;
    pi0_arrays *arrays = read_case("scalar.npy");
    assert_int_equal(pi0_arrays_at(arrays, 0)->rank, 0);
    assert_int_equal(pi0_array_count(pi0_arrays_at(arrays, 0)), 1);
    assert_true(*(const double *)pi0_arrays_at(arrays, 0)->data == 2.5);
    pi0_arrays_free(&arrays);
    arrays = read_case("empty.npy");
    assert_int_equal(pi0_arrays_at(arrays, 0)->shape[1], 3);
    assert_int_equal(pi0_arrays_at(arrays, 0)->bytes, 0);
    assert_non_null(pi0_arrays_at(arrays, 0)->data);
    assert_int_equal(pi0_array_count(pi0_arrays_at(arrays, 0)), 0);
    pi0_arrays_free(&arrays);
}

/* D10: string, bytes, 0-d array, 1-element list. */
static void D10_a_prompt_in_any_wrapping_is_the_same_text(void **state)
{
    (void)state;
    const char *const names[] = {"text.npy", "text_big.npy", "text_bytes.npy", "text_list.npy"};
    for (int i = 0; i < 4; i++) {
        pi0_arrays *arrays = read_case(names[i]);
        const pi0_array *text = pi0_arrays_at(arrays, 0);
        assert_int_equal(text->dtype, PI0_TEXT);
        assert_int_equal(text->rank, 0);
        assert_string_equal(text->data, TEXT);
        assert_int_equal(text->bytes, strlen(TEXT));
        pi0_arrays_free(&arrays);
    }
    pi0_arrays *arrays = read_case("text_empty.npy");
    assert_string_equal(pi0_arrays_at(arrays, 0)->data, "");
    assert_int_equal(pi0_arrays_at(arrays, 0)->bytes, 0);
    pi0_arrays_free(&arrays);
}

static void what_is_no_array_of_numbers_is_refused_by_name(void **state)
{
    (void)state;
    refuse_case("bad_object.npy", PI0_ERR_UNSUPPORTED, "pickled", "'|O'");
    refuse_case("bad_object.npz", PI0_ERR_UNSUPPORTED, "pickled", "array \"b\"");
    refuse_case("bad_struct.npy", PI0_ERR_FORMAT, "structured", "('a', '<f4')");
    refuse_case("bad_complex.npy", PI0_ERR_UNSUPPORTED, "element type", "'<c8'");
    refuse_case("bad_void.npy", PI0_ERR_UNSUPPORTED, "bfloat16", "'|V2'");
    refuse_case("bad_texts.npy", PI0_ERR_UNSUPPORTED, "array of texts", "'<U3'");
    refuse_case("bad_member.npz", PI0_ERR_FORMAT, "not an .npy array", "readme.txt");
    refuse_case("bad_bzip2.npz", PI0_ERR_UNSUPPORTED, "a.npy", "method 12");
    refuse_bytes("\x80\x04\x95", 3, PI0_ERR_FORMAT, "neither", "3 bytes");
    refuse_bytes("\x89PNG\r\n", 6, PI0_ERR_FORMAT, "neither", "89 50 4e 47");
    refuse_bytes("", 0, PI0_ERR_FORMAT, "neither", "0 bytes");
    refuse_bytes("version https://git-lfs.github.com/spec/v1\n", 43, PI0_ERR_FORMAT, "Git LFS pointer", "git lfs pull");
    refuse_bytes("<?xml version='1.0'?>", 21, PI0_ERR_FORMAT, "web page", "21 bytes");
}

/* ------------------------------------------------------------------ .npy headers by hand */

static size_t make_npy(uint8_t *out, const char *dict, size_t data_bytes)
{
    size_t n = strlen(dict);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)(n & 0xff);
    out[9] = (uint8_t)(n >> 8);
    memcpy(out + 10, dict, n);
    memset(out + 10 + n, 1, data_bytes);
    return 10 + n + data_bytes;
}

static void refuse_dict(const char *dict, size_t data_bytes, const char *part, const char *other)
{
    uint8_t file[1024];
    refuse_bytes(file, make_npy(file, dict, data_bytes), PI0_ERR_FORMAT, part, other);
}

static void accept_dict(const char *dict, size_t data_bytes, int rank, int64_t first)
{
    uint8_t file[1024];
    pi0_error err = {0};
    pi0_arrays *arrays;
    PI0_ASSERT_OK(pi0_arrays_parse(file, make_npy(file, dict, data_bytes), "x.npy", &arrays, &err), &err);
    assert_int_equal(pi0_arrays_at(arrays, 0)->rank, rank);
    assert_int_equal(pi0_arrays_at(arrays, 0)->shape[0], first);
    pi0_arrays_free(&arrays);
}

static void headers_in_every_permitted_form(void **state)
{
    (void)state;
    accept_dict("{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}", 8, 1, 2);
    accept_dict("{\"descr\":\"<f4\",\"fortran_order\":True,\"shape\":(2,1,),}\n", 8, 2, 2);
    accept_dict(" { 'descr' : '|u1' , 'fortran_order' : False , 'shape' : ( 3 , 1 ) } \n", 3, 2, 3);
    accept_dict("{'descr': '<u1', 'fortran_order': False, 'shape': (3L,), }", 3, 1, 3);
    accept_dict("{'descr': '>b1', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1), }", 1, 8, 1);
    accept_dict("{'descr': '|u1', 'fortran_order': True, 'shape': (4, 0, 9), }", 0, 3, 4);
}

static void A12_headers_that_lie_or_break_the_grammar(void **state)
{
    (void)state;
#define DICT(descr, shape) "{'descr': " descr ", 'fortran_order': False, 'shape': " shape ", }"
    refuse_dict(DICT("'<f4'", "(-2,)"), 8, "0 or more", "(-2,)");
    refuse_dict(DICT("'<f4'", "(2)"), 8, "a tuple", "(2)");
    refuse_dict(DICT("'<f4'", "(02,)"), 8, "a tuple", "(02,)");
    refuse_dict(DICT("'<f4'", "(2,,)"), 8, "a tuple", "(2,,)");
    refuse_dict(DICT("'<f4'", "(2 2)"), 16, "a tuple", "(2 2)");
    refuse_dict(DICT("'<f4'", "(2.0,)"), 8, "a tuple", "(2.0,)");
    refuse_dict(DICT("'<f4'", "[2]"), 8, "a tuple", "[2]");
    refuse_dict(DICT("'<f4'", "(1,1,1,1,1,1,1,1,1)"), 4, "at most 8", "1,1)");
    refuse_dict(DICT("'<f4'", "(99999999999999999999,)"), 4, "a tuple", "99999999999999999999");
    refuse_dict(DICT("'<f4'", "(4611686018427387904, 4)"), 4, "too large", "at most");
    refuse_dict(DICT("'<f4'", "(4294967296,)"), 4, "too large", "at most 4294967296");
    refuse_dict(DICT("'<f4'", "(3,)"), 8, "12 bytes of type '<f4'", "8 bytes");
    refuse_dict(DICT("'<f4'", "(2,)"), 9, "8 bytes of type '<f4'", "9 bytes");
    refuse_dict("{'descr': '<f4', 'fortran_order': False}", 0, "the header of the array cannot be read", "'shape'");
    refuse_dict("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", 4, "True or False", "0");
    refuse_dict("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", 4, "cannot be read", "descr");
    refuse_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'more': 1}", 4, "cannot be read", "more");
    refuse_dict("{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 4, "cannot be read", "x");
    refuse_dict("{'descr': '<f4' 'fortran_order': False, 'shape': ()}", 4, "cannot be read", "descr");
    refuse_dict("{'descr': '<f4', 'fortran_order': False, 'shape': (", 4, "cannot be read", "shape");
    refuse_dict("{'descr': '<f4", 4, "cannot be read", "descr");
    refuse_dict("", 4, "cannot be read", "");
#undef DICT
}

static void types_that_are_not_numpys_are_refused(void **state)
{
    (void)state;
    const char *const names[] = {"f4",   "<f",   "<f3", "=f4", "|f4",           "<i16", "<b2",
                                 "<f4x", "<f04", "<",   "",    "<U99999999999", "|U3",  "<M8[ns]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint8_t file[256];
        char dict[128];
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (), }", names[i]);
        refuse_bytes(file, make_npy(file, dict, 4), PI0_ERR_UNSUPPORTED, "element type", names[i]);
    }
}

static void texts_that_are_not_unicode_are_refused(void **state)
{
    (void)state;
    const char dict[] = "{'descr': '<U2', 'fortran_order': False, 'shape': (), }";
    const uint32_t codes[][2] = {{0x110000, 'a'}, {0xd800, 'a'}, {0, 'a'}, {'a', 0xffffffff}};
    uint8_t file[256];
    size_t bytes = make_npy(file, dict, 8);
    for (int i = 0; i < 4; i++) {
        memcpy(file + bytes - 8, codes[i], 8);
        refuse_bytes(file, bytes, PI0_ERR_FORMAT, "text is not valid", "Unicode");
    }
    bytes = make_npy(file, "{'descr': '|S3', 'fortran_order': False, 'shape': (1,), }", 3);
    memcpy(file + bytes - 3, "a\xff", 3);
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, "text is not valid", "UTF-8");
    memcpy(file + bytes - 3, "a\0b", 3);
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, "text is not valid", "NUL");
}

static void A12_truncated_npy_at_every_length(void **state)
{
    (void)state;
    const char *const names[] = {"little_f4.npy", "version2.npy", "text.npy"};
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        uint8_t *file = load_case(names[i], &bytes);
        for (size_t n = 0; n < bytes; n++)
            refuse_bytes(file, n, PI0_ERR_FORMAT, "", "");
        file[6] = 4;
        refuse_bytes(file, bytes, PI0_ERR_FORMAT, "version 1.0", "version 4.0");
        file[6] = 2;
        memset(file + 8, 0xff, 4);
        refuse_bytes(file, bytes, PI0_ERR_FORMAT, "longer than the file", "4294967295 bytes");
        free(file);
    }
}

/* ------------------------------------------------------------------ .npz as numpy writes it */

static void archives_of_every_kind(void **state)
{
    (void)state;
    const char *const names[] = {"stored.npz", "deflated.npz", "zip64.npz", "descriptors.npz"};
    for (int k = 0; k < 4; k++) {
        pi0_error err = {0};
        pi0_arrays *arrays = read_case(names[k]);
        assert_int_equal(pi0_arrays_count(arrays), 5);
        double values[8];
        PI0_ASSERT_OK(pi0_array_to_f64(pi0_arrays_find(arrays, "observation/state"), values, 8, &err), &err);
        assert_true(values[0] == -1 && values[7] == 1);
        check_ramp(pi0_arrays_find(arrays, "noise"), PI0_F32, -7);
        check_ramp(pi0_arrays_find(arrays, "\xc3\xa9t\xc3\xa9"), PI0_U8, 0);
        assert_string_equal(pi0_arrays_find(arrays, "prompt")->data, TEXT);
        const pi0_array *zeros = pi0_arrays_find(arrays, "zeros");
        assert_int_equal(zeros->bytes, 8000);
        for (int i = 0; i < 2000; i++)
            assert_true(((const float *)zeros->data)[i] == 0);
        assert_null(pi0_arrays_find(arrays, "noise.npy"));
        assert_null(pi0_arrays_at(arrays, 5));
        pi0_arrays_free(&arrays);
    }
    pi0_arrays *none = read_case("none.npz");
    assert_int_equal(pi0_arrays_count(none), 0);
    pi0_arrays_free(&none);
}

static void the_recorded_references_are_all_read(void **state)
{
    (void)state;
    char folder[512];
    snprintf(folder, sizeof folder, "%s", pi0_test_need_shared("goldens/data"));
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int read = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        pi0_error err = {0};
        pi0_arrays *arrays;
        if (!strstr(entry->d_name, ".npz"))
            continue;
        PI0_ASSERT_OK(pi0_arrays_read(pi0_test_path(folder, entry->d_name), &arrays, &err), &err);
        assert_true(pi0_arrays_count(arrays) > 10);
        assert_non_null(pi0_arrays_find(arrays, "noise"));
        pi0_arrays_free(&arrays);
        read++;
    }
    closedir(dir);
    assert_true(read >= 15);
}

/* ------------------------------------------------------------------ archives that lie */

/* The directory entry of member i. */
static uint8_t *entry_of(uint8_t *file, size_t bytes, int i)
{
    uint8_t *at = file;
    for (int k = -1; k < i; k++) {
        at = memmem(at + 1, bytes - (size_t)(at + 1 - file), "PK\1\2", 4);
        assert_non_null(at);
    }
    return at;
}

static void put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static void A12_truncated_npz_at_every_length(void **state)
{
    (void)state;
    const char *const names[] = {"deflated.npz", "none.npz"};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        uint8_t *file = load_case(names[i], &bytes);
        for (size_t n = 0; n < bytes; n++)
            refuse_bytes(file, n, PI0_ERR_FORMAT, "", "");
        free(file);
    }
}

static void damage_is_noticed_wherever_it_is(void **state)
{
    (void)state;
    const char *const names[] = {"deflated.npz", "descriptors.npz"};
    for (int k = 0; k < 2; k++) {
        size_t bytes;
        uint8_t *file = load_case(names[k], &bytes);
        pi0_arrays *whole = read_case(names[k]);
        for (size_t i = 0; i < bytes; i++) {
            pi0_arrays *arrays;
            file[i] ^= 0x10;
            if (pi0_arrays_parse(file, bytes, "x.npz", &arrays, NULL) == PI0_OK) {
                /* a date, an attribute, a descriptor: what the reader does not use; the arrays are the same */
                assert_int_equal(pi0_arrays_count(arrays), pi0_arrays_count(whole));
                for (size_t a = 0; a < pi0_arrays_count(arrays); a++) {
                    const pi0_array *x = pi0_arrays_at(arrays, a), *y = pi0_arrays_at(whole, a);
                    assert_string_equal(x->name, y->name);
                    assert_int_equal(x->dtype, y->dtype);
                    assert_memory_equal(x->shape, y->shape, sizeof x->shape);
                    assert_int_equal(x->bytes, y->bytes);
                    assert_memory_equal(x->data, y->data, x->bytes);
                }
            }
            pi0_arrays_free(&arrays);
            file[i] ^= 0x10;
        }
        pi0_arrays_free(&whole);
        free(file);
    }
}

static void A12_archive_entries_that_lie(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = load_case("deflated.npz", &bytes);
    uint8_t *entry = entry_of(file, bytes, 4);
    uint8_t saved[46];
    memcpy(saved, entry, sizeof saved);
#define LIE(change, status, part, other)            \
    change;                                         \
    refuse_bytes(file, bytes, status, part, other); \
    memcpy(entry, saved, sizeof saved)
    LIE(entry[8] |= 1, PI0_ERR_UNSUPPORTED, "encrypted", "zeros.npy");
    LIE(entry[10] = 14, PI0_ERR_UNSUPPORTED, "method 14", "zeros.npy");
    LIE(entry[10] = 0, PI0_ERR_FORMAT, "disagrees with the directory", "zeros.npy");
    LIE(put32(entry + 16, 1), PI0_ERR_FORMAT, "checksum", "00000001");
    LIE(put32(entry + 24, 8127), PI0_ERR_FORMAT, "damaged", "8127 bytes");
    LIE(put32(entry + 24, 8129), PI0_ERR_FORMAT, "damaged", "8129 bytes");
    LIE(put32(entry + 24, 0), PI0_ERR_FORMAT, "damaged", "0 bytes");
    LIE(put32(entry + 24, 0xfffffff0), PI0_ERR_FORMAT, "cannot have", "4294967280 unpacked"); /* a bomb: nothing is allocated */
    LIE(put32(entry + 24, 0xffffffff), PI0_ERR_FORMAT, "zip64", "zeros.npy");
    LIE(put32(entry + 20, 0xfffffff0), PI0_ERR_FORMAT, "past the archive's data", "4294967280 bytes");
    LIE(entry[20]--, PI0_ERR_FORMAT, "damaged", "8128 bytes");
    LIE(entry[20]++, PI0_ERR_FORMAT, "", "");
    LIE(put32(entry + 42, 0xfffffff0), PI0_ERR_FORMAT, "not where the directory says", "offset 4294967280");
    LIE(put32(entry + 42, 1), PI0_ERR_FORMAT, "not where the directory says", "offset 1");
    LIE(put32(entry + 42, 0), PI0_ERR_FORMAT, "disagrees", "zeros.npy");
    LIE(entry[28] = 0xff, PI0_ERR_FORMAT, "longer than the directory", "");
    LIE(entry[0] = 'Q', PI0_ERR_FORMAT, "directory is malformed", "");
    LIE(entry[46] = 0xff, PI0_ERR_FORMAT, "not text", "");
    entry[46] = 'z';
    LIE(entry[46] = 'y', PI0_ERR_FORMAT, "disagrees", "yeros.npy");
#undef LIE
    free(file);
}

static void A12_archive_ends_that_lie(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = load_case("deflated.npz", &bytes), saved[22];
    uint8_t *end = file + bytes - 22;
    memcpy(saved, end, 22);
#define LIE(change, part)                                \
    change;                                              \
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, part, ""); \
    memcpy(end, saved, 22)
    LIE(end[4] = 1, "several disks");
    LIE(end[8]--, "several disks");
    LIE((end[8]--, end[10]--), "more entries");
    LIE((end[8]++, end[10]++), "directory is malformed");
    LIE(memset(end + 8, 0xff, 4), "not where its end record says");
    LIE(put32(end + 16, 0xffffffff), "not where its end record says");
    LIE(end[16]++, "not where its end record says");
    LIE(end[20] = 1, "no end record");
    memcpy(end - 20, "PK\6\7", 4); /* a 64-bit locator that leads nowhere */
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, "zip64", "");
#undef LIE
    free(file);
}

static void A12_members_that_overlap_or_share_a_name(void **state)
{
    (void)state;
    pi0_error err = {0};
    char *dir = pi0_test_make_dir();
    const uint8_t data[64] = {0};
    const pi0_array two[] = {{.name = "a1", .dtype = PI0_U8, .rank = 1, .shape = {64}, .data = data, .bytes = 64},
                             {.name = "a2", .dtype = PI0_U8, .rank = 1, .shape = {64}, .data = data, .bytes = 64}};
    PI0_ASSERT_OK(pi0_arrays_write(pi0_test_path(dir, "x.npz"), two, 2, &err), &err);
    size_t bytes;
    uint8_t *file = pi0_test_read_file(pi0_test_path(dir, "x.npz"), &bytes);
    uint8_t *first = entry_of(file, bytes, 0);
    put32(first + 20, 193);
    put32(first + 24, 193);
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, "overlap", "a2.npy");
    put32(first + 20, 192);
    put32(first + 24, 192);
    for (uint8_t *at = file; (at = memmem(at, bytes - (size_t)(at - file), "a2.npy", 6));)
        at[1] = '1';
    refuse_bytes(file, bytes, PI0_ERR_FORMAT, "same name", "a1.npy");
    free(file);
    pi0_test_remove_dir(dir);
}

static void an_archive_may_carry_a_comment(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = load_case("deflated.npz", &bytes);
    uint8_t *longer = calloc(1, bytes + 65535);
    memcpy(longer, file, bytes);
    longer[bytes - 2] = longer[bytes - 1] = 0xff;
    memcpy(longer + bytes + 100, "PK\5\6", 4); /* an end record that is none: its comment would not reach the end */
    pi0_arrays *arrays;
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_arrays_parse(longer, bytes + 65535, "x.npz", &arrays, &err), &err);
    assert_int_equal(pi0_arrays_count(arrays), 5);
    pi0_arrays_free(&arrays);
    free(longer);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_in_both_byte_orders),
        cmocka_unit_test(booleans_are_zero_and_one),
        cmocka_unit_test(fortran_order_becomes_c_order),
        cmocka_unit_test(scalars_and_empty_arrays),
        cmocka_unit_test(D10_a_prompt_in_any_wrapping_is_the_same_text),
        cmocka_unit_test(what_is_no_array_of_numbers_is_refused_by_name),
        cmocka_unit_test(headers_in_every_permitted_form),
        cmocka_unit_test(A12_headers_that_lie_or_break_the_grammar),
        cmocka_unit_test(types_that_are_not_numpys_are_refused),
        cmocka_unit_test(texts_that_are_not_unicode_are_refused),
        cmocka_unit_test(A12_truncated_npy_at_every_length),
        cmocka_unit_test(archives_of_every_kind),
        cmocka_unit_test(the_recorded_references_are_all_read),
        cmocka_unit_test(A12_truncated_npz_at_every_length),
        cmocka_unit_test(damage_is_noticed_wherever_it_is),
        cmocka_unit_test(A12_archive_entries_that_lie),
        cmocka_unit_test(A12_archive_ends_that_lie),
        cmocka_unit_test(A12_members_that_overlap_or_share_a_name),
        cmocka_unit_test(an_archive_may_carry_a_comment),
    };
    return cmocka_run_group_tests_name("npy", tests, NULL, NULL);
}
