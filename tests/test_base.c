/* ctest: label=threads */
#include "support.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* ------------------------------------------------------------------ errors */

static void error_keeps_what_its_arguments_point_to(void **state)
{
    (void)state;
    pi0_error err = {0};
    assert_int_equal(pi0_fail(&err, PI0_ERR_FORMAT, "bad %s", "header"), PI0_ERR_FORMAT);
    pi0_err_item(&err, "one");
    pi0_err_item(&err, "two");
    assert_string_equal(err.list, "one\ntwo");
    pi0_fail(&err, PI0_ERR_MODEL, "because: %s", err.what);
    assert_string_equal(err.what, "because: bad header");
    assert_null(err.list);
    pi0_err_where(&err, "<%s>", err.what);
    assert_string_equal(err.where, "<because: bad header>");
    pi0_error_clear(&err);
    assert_int_equal(err.status, PI0_OK);
    assert_int_equal(pi0_fail(NULL, PI0_ERR_IO, "x"), PI0_ERR_IO);
    pi0_err_item(NULL, "x");
    pi0_err_hint(NULL, "x");
    pi0_error_clear(NULL);
}

static void error_text_is_cut_visibly_and_printable(void **state)
{
    (void)state;
    pi0_error err = {0};
    char longtext[2000];
    memset(longtext, 'a', sizeof longtext - 1);
    longtext[sizeof longtext - 1] = '\0';
    pi0_fail(&err, PI0_ERR_FORMAT, "%s", longtext);
    assert_int_equal(strlen(err.what), sizeof err.what - 1);
    assert_string_equal(err.what + sizeof err.what - 4, "...");
    /* a two-byte character over the cut goes as a whole */
    for (size_t i = 0; i + 1 < sizeof longtext - 1; i += 2)
        memcpy(longtext + i, "\xc3\xa9", 2);
    longtext[sizeof longtext - 2] = '\0';
    pi0_err_got(&err, "%s", longtext);
    assert_string_equal(err.got + strlen(err.got) - 3, "...");
    assert_int_equal((strlen(err.got) - 3) % 2, 0);
    pi0_err_where(&err, "%s", "a\x1b[31mb\xffz\xc2\x9bq\xc3\xa9\xf0\x9f\x98\x80\xed\xa0\x80");
    assert_string_equal(err.where, "a?[31mb?z??q\xc3\xa9\xf0\x9f\x98\x80???");
    pi0_err_item(&err, "%s", "a\nb");
    assert_string_equal(err.list, "a?b");
    pi0_error_clear(&err);
}

static void error_list_has_an_end(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_fail(&err, PI0_ERR_MODEL, "many");
    for (int i = 0; i < 20000; i++)
        pi0_err_item(&err, "tensor.%05d is missing, expected [1024,1024]", i);
    assert_true(strlen(err.list) < 300000);
    assert_non_null(strstr(err.list, "tensor.04000"));
    const char *cut = strstr(err.list, "\n(the list is longer than can be shown)");
    assert_non_null(cut);
    assert_null(strchr(cut + 1, '\n'));
    pi0_error_clear(&err);
}

static void status_and_dtype_names(void **state)
{
    (void)state;
    for (int i = 0; i >= PI0_ERR_INTERNAL; i--)
        assert_string_not_equal(pi0_status_name((pi0_status)i), "unknown");
    assert_string_equal(pi0_status_name((pi0_status)-99), "unknown");
    const struct {
        pi0_dtype dtype;
        const char *name;
        size_t size;
    } rows[] = {{PI0_F32, "f32", 4}, {PI0_F64, "f64", 8}, {PI0_F16, "f16", 2},   {PI0_BF16, "bf16", 2}, {PI0_U8, "u8", 1},
                {PI0_I8, "i8", 1},   {PI0_I16, "i16", 2}, {PI0_U16, "u16", 2},   {PI0_I32, "i32", 4},   {PI0_U32, "u32", 4},
                {PI0_I64, "i64", 8}, {PI0_U64, "u64", 8}, {PI0_BOOL, "bool", 1}, {PI0_TEXT, "text", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_string_equal(pi0_dtype_name(rows[i].dtype), rows[i].name);
        assert_int_equal(pi0_dtype_size(rows[i].dtype), rows[i].size);
    }
    assert_int_equal(pi0_dtype_size((pi0_dtype)0), 0);
    assert_int_equal(pi0_dtype_size((pi0_dtype)99), 0);
    assert_string_equal(pi0_dtype_name((pi0_dtype)0), "unknown");
    assert_string_equal(pi0_dtype_name((pi0_dtype)-1), "unknown");
    assert_true(strlen(pi0_version()) >= 5);
}

/* ------------------------------------------------------------------ memory and text */

static void memory_is_aligned_zeroed_and_bounded(void **state)
{
    (void)state;
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *p = pi0_alloc(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % PI0_ALIGN, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xee, n);
        pi0_free(p);
    }
    enum { PAGES = 5 << 20 };
    unsigned char *pages = pi0_alloc_pages(PAGES + 7);
    assert_non_null(pages);
    assert_int_equal((uintptr_t)pages % PI0_ALIGN, 0);
    assert_true(pages[0] == 0 && pages[PAGES + 6] == 0);
    memset(pages, 0xee, PAGES + 7);
    pi0_free_pages(pages, PAGES + 7);
    pi0_free_pages(NULL, 0);
    assert_null(pi0_alloc_pages(0));
    assert_null(pi0_alloc_pages(SIZE_MAX));
    assert_null(pi0_alloc_pages((size_t)1 << 60));
    assert_null(pi0_alloc(SIZE_MAX));
    assert_null(pi0_alloc((size_t)PTRDIFF_MAX + 1));
    assert_null(pi0_alloc((size_t)PTRDIFF_MAX));
    assert_null(pi0_alloc_array(SIZE_MAX / 2, 3));
    assert_null(pi0_alloc_array((size_t)1 << 33, (size_t)1 << 33));
    pi0_free(NULL);
}

static void shape_bytes_never_overflows(void **state)
{
    (void)state;
    size_t bytes = 77;
    int64_t fine[] = {2, 3, 4}, negative[] = {2, -1}, huge[] = {INT64_MAX, 4}, empty[] = {0, 5}, sly[] = {0, INT64_MAX, INT64_MAX};
    assert_true(pi0_shape_bytes(fine, 3, 4, &bytes));
    assert_int_equal(bytes, 96);
    assert_true(pi0_shape_bytes(NULL, 0, 8, &bytes));
    assert_int_equal(bytes, 8);
    assert_true(pi0_shape_bytes(empty, 2, 8, &bytes));
    assert_int_equal(bytes, 0);
    bytes = 77;
    assert_false(pi0_shape_bytes(negative, 2, 1, &bytes));
    assert_false(pi0_shape_bytes(huge, 2, 4, &bytes));
    assert_false(pi0_shape_bytes(sly, 3, 4, &bytes));
    assert_int_equal(bytes, 77);
    assert_false(pi0_mul(SIZE_MAX, 2, &bytes));
    assert_false(pi0_add(SIZE_MAX, 1, &bytes));
    assert_int_equal(bytes, 77);
}

static void text_grows_and_stays_failed(void **state)
{
    (void)state;
    pi0_text text = {0};
    for (int i = 0; i < 1000; i++)
        pi0_text_add(&text, "%03d,", i);
    pi0_text_add_bytes(&text, "a\0b", 3);
    assert_int_equal(text.length, 4003);
    assert_memory_equal(text.data + 3996, "999,a\0b", 8);
    assert_false(text.failed);
    pi0_text_release(&text);
    assert_null(text.data);

    pi0_text_add(&text, "x");
    pi0_test_fail_allocation(1);
    for (int i = 0; i < 1000; i++)
        pi0_text_add_bytes(&text, "0123456789", 10);
    assert_true(pi0_test_allocation_failed());
    assert_true(text.failed);
    size_t length = text.length;
    pi0_text_add(&text, "more");
    assert_int_equal(text.length, length);
    char *data = text.data;
    pi0_text_free(&data);
    assert_null(data);
    pi0_text_free(NULL);
}

/* ------------------------------------------------------------------ files */

static void map_file_takes_regular_files_only(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    pi0_error err = {0};
    pi0_mapping map = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/a", dir);
    pi0_test_write_file(path, "hello", 5);
    PI0_ASSERT_OK(pi0_map_file(path, &map, &err), &err);
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "hello", 5);
    pi0_map_release_pages(map.data, map.bytes);
    assert_memory_equal(map.data, "hello", 5);
    pi0_unmap(&map);
    assert_null(map.data);
    pi0_unmap(&map);
    assert_true(pi0_is_file(path) && !pi0_is_dir(path));

    pi0_test_write_file(path, "", 0);
    PI0_ASSERT_OK(pi0_map_file(path, &map, &err), &err);
    assert_true(map.data == NULL && map.bytes == 0);

    assert_int_equal(pi0_map_file(dir, &map, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "a directory", dir, NULL);
    assert_true(pi0_is_dir(dir) && !pi0_is_file(dir));
    snprintf(path, sizeof path, "%s/fifo", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(pi0_map_file(path, &map, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "a pipe", "fifo", NULL);
    snprintf(path, sizeof path, "%s/absent", dir);
    assert_int_equal(pi0_map_file(path, &map, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "absent", "No such file", "spelling", NULL);
    assert_false(pi0_exists(path));
    static const char *const links[][3] = {{"gone", "link to a file that is not there", "links to"}, {"link", "Too many levels", "circle"}};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/link", dir);
        assert_int_equal(symlink(links[i][0], path), 0);
        assert_true(pi0_exists(path) && !pi0_is_file(path));
        assert_int_equal(pi0_map_file(path, &map, &err), PI0_ERR_IO);
        pi0_test_assert_error(&err, PI0_ERR_IO, path, links[i][1], links[i][2], NULL);
        assert_int_equal(unlink(path), 0);
    }
    pi0_test_remove_dir(dir);
}

static void released_pages_come_back(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    const char *path = pi0_test_path(dir, "big");
    size_t bytes = 300000;
    unsigned char *data = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 4096);
    pi0_test_write_file(path, data, bytes);
    pi0_mapping map;
    PI0_ASSERT_OK(pi0_map_file(path, &map, NULL), NULL);
    assert_memory_equal(map.data, data, bytes);
    pi0_map_release_pages(map.data + 100, bytes - 200);
    assert_memory_equal(map.data, data, bytes);
    pi0_unmap(&map);
    free(data);
    pi0_test_remove_dir(dir);
}

static void path_join_puts_one_slash(void **state)
{
    (void)state;
    const char *rows[][3] = {{"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < 4; i++) {
        char *path = pi0_path_join(rows[i][0], rows[i][1]);
        assert_string_equal(path, rows[i][2]);
        pi0_free(path);
    }
}

static void assert_file_holds(const char *path, const char *text)
{
    char *got = pi0_test_read_file(path, NULL);
    assert_string_equal(got, text);
    free(got);
}

static void writer_leaves_the_old_file_or_the_whole_new_one(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    pi0_error err = {0};
    char path[600], link[600];
    snprintf(path, sizeof path, "%s/out", dir);
    PI0_ASSERT_OK(pi0_file_write(path, "old", 3, &err), &err);
    assert_int_equal(pi0_test_count_files(dir), 1);

    pi0_writer writer;
    PI0_ASSERT_OK(pi0_writer_open(&writer, path, &err), &err);
    PI0_ASSERT_OK(pi0_writer_put(&writer, "half", 4, &err), &err);
    assert_file_holds(path, "old");
    pi0_writer_abort(&writer);
    pi0_writer_abort(&writer);
    assert_int_equal(pi0_test_count_files(dir), 1);
    assert_file_holds(path, "old");

    assert_int_equal(chmod(path, 0640), 0);
    PI0_ASSERT_OK(pi0_writer_open(&writer, path, &err), &err);
    PI0_ASSERT_OK(pi0_writer_put(&writer, "new", 3, &err), &err);
    assert_int_equal(writer.bytes, 3);
    PI0_ASSERT_OK(pi0_writer_commit(&writer, &err), &err);
    assert_file_holds(path, "new");
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_equal(pi0_writer_put(&writer, "x", 1, &err), PI0_ERR_IO);
    assert_int_equal(pi0_writer_commit(&writer, &err), PI0_ERR_IO);

    snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(symlink("out", link), 0);
    PI0_ASSERT_OK(pi0_file_write(link, "through", 7, &err), &err);
    assert_file_holds(path, "through");
    assert_int_equal(lstat(link, &info), 0);
    assert_true(S_ISLNK(info.st_mode));

    assert_int_equal(pi0_file_write(dir, "x", 1, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "directory", dir, NULL);
    snprintf(path, sizeof path, "%s/no/such", dir);
    assert_int_equal(pi0_file_write(path, "x", 1, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "create", path, NULL);
    pi0_test_remove_dir(dir);
}

/* A device is written in place: a rename would replace /dev/null by a file. */
static void writer_reports_a_full_disk_and_spares_devices(void **state)
{
    (void)state;
    pi0_error err = {0};
    struct stat info;
    PI0_ASSERT_OK(pi0_file_write("/dev/null", "x", 1, &err), &err);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(pi0_file_write("/dev/full", "x", 1, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "write", "/dev/full", "No space", "free some space", NULL);
    pi0_writer writer;
    PI0_ASSERT_OK(pi0_writer_open(&writer, "/dev/full", &err), &err);
    char block[65536] = {0};
    pi0_status status = PI0_OK;
    for (int i = 0; i < 4 && status == PI0_OK; i++)
        status = pi0_writer_put(&writer, block, sizeof block, &err);
    assert_int_equal(status, PI0_ERR_IO);
    pi0_writer_abort(&writer);
    pi0_error_clear(&err);
}

/* The limit on file size stands in for the full disk of a real folder. */
static void writer_removes_what_did_not_fit(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    pi0_error err = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/out", dir);
    PI0_ASSERT_OK(pi0_file_write(path, "old", 3, &err), &err);
    struct rlimit before, small = {1000, 1000};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    char block[5000] = {0};
    pi0_status status = pi0_file_write(path, block, sizeof block, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "write", "out", NULL);
    assert_int_equal(pi0_test_count_files(dir), 1);
    assert_file_holds(path, "old");
    pi0_test_remove_dir(dir);
}

static void writer_survives_every_allocation_failure(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    char path[600];
    snprintf(path, sizeof path, "%s/out", dir);
    for (long n = 1;; n++) {
        pi0_error err = {0};
        pi0_test_fail_allocation(n);
        pi0_status status = pi0_file_write(path, "abc", 3, &err);
        int failed = pi0_test_allocation_failed();
        pi0_error_clear(&err);
        if (!failed) {
            assert_int_equal(status, PI0_OK);
            assert_true(n > 2);
            break;
        }
        assert_int_not_equal(status, PI0_OK);
        assert_int_equal(pi0_test_count_files(dir), 0);
    }
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ rounding */

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void B10_bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(bits_of(pi0_f32_from_bf16(pi0_bf16_from_f32(1.01171875f))), bits_of(1.015625f));
    assert_int_equal(bits_of(pi0_f32_from_bf16(pi0_bf16_from_f32(0.1f))), bits_of(0.10009765625f));
    assert_int_equal(bits_of(pi0_f32_from_bf16(pi0_bf16_from_f32(65504.0f))), bits_of(65536.0f));
    assert_int_equal(pi0_bf16_from_f32(float_of(0x3f808000)), 0x3f80); /* tie to even: down */
    assert_int_equal(pi0_bf16_from_f32(float_of(0x3f818000)), 0x3f82); /* up */
    assert_int_equal(pi0_bf16_from_f32(float_of(0x7f7fffff)), 0x7f80);
    assert_int_equal(pi0_bf16_from_f32(float_of(0x7f800001)), 0x7fc0); /* a NaN stays one */
    assert_int_equal(pi0_bf16_from_f32(float_of(0xffffffff)), 0xffff);
    assert_int_equal(pi0_bf16_from_f32(float_of(0x80000000)), 0x8000);
    for (uint32_t code = 0; code < 65536; code++) {
        float f = pi0_f32_from_bf16((uint16_t)code);
        uint16_t back = pi0_bf16_from_f32(f);
        assert_int_equal(back, isnan(f) ? (code | 0x40) : code);
    }
}

static void B18_f16_rounds_to_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(pi0_f16_from_f32(1.00048828125f), 0x3c00);
    assert_int_equal(pi0_f16_from_f32(1.00146484375f), 0x3c02);
    assert_int_equal(pi0_f16_from_f32(0x1p-25f), 0);
    assert_int_equal(pi0_f16_from_f32(-0x1p-25f), 0x8000);
    assert_int_equal(pi0_f16_from_f32(float_of(0x33000001)), 1);
    assert_int_equal(pi0_f16_from_f32(0x1.8p-24f), 2);
    assert_int_equal(pi0_f16_from_f32(0x1p-14f), 0x0400);
    assert_int_equal(pi0_f16_from_f32(0x1.ff8p-15f), 0x03ff);
    assert_int_equal(pi0_f16_from_f32(0x1.ffbffep-15f), 0x03ff);
    assert_int_equal(pi0_f16_from_f32(0x1.ffcp-15f), 0x0400); /* the tie above the largest subnormal */
    assert_int_equal(pi0_f16_from_f32(65504.0f), 0x7bff);
    assert_int_equal(pi0_f16_from_f32(65519.996f), 0x7bff);
    assert_int_equal(pi0_f16_from_f32(65520.0f), 0x7c00);
    assert_int_equal(pi0_f16_from_f32(1e30f), 0x7c00);
    assert_int_equal(pi0_f16_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(pi0_f16_from_f32(float_of(0x7f800001)), 0x7e00);
    assert_int_equal(pi0_f16_from_f32(0.0f), 0);
    assert_int_equal(pi0_f16_from_f32(-0.0f), 0x8000);
    assert_true(pi0_f32_from_f16(0x0001) == 0x1p-24f);
    assert_true(pi0_f32_from_f16(0x3555) == 0x1.554p-2f);
    for (uint32_t code = 0; code < 65536; code++) {
        float f = pi0_f32_from_f16((uint16_t)code);
        assert_int_equal(isnan(f), (code & 0x7fff) > 0x7c00);
        assert_int_equal(pi0_f16_from_f32(f), code);
    }
}

/* Against the definition: no f16 value is nearer, and of two equally near the even one was taken. */
static void B18_f16_matches_the_definition(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)pi0_random_word(7, i);
        /* exponents around the range of f16 */
        bits = (bits & 0x807fffffu) | ((96 + (bits >> 23 & 0xff) % 50) << 23);
        if (i % 3 == 0)
            bits &= ~0xfffu; /* ties */
        double x = (double)float_of(bits);
        uint16_t code = pi0_f16_from_f32((float)x);
        double got = (double)pi0_f32_from_f16(code);
        if (isinf(got)) {
            assert_true(fabs(x) >= 65520.0);
            continue;
        }
        uint16_t neighbours[2] = {(uint16_t)(code + 1), (uint16_t)(code - 1)};
        for (int k = 0; k < 2; k++) {
            double other = (double)pi0_f32_from_f16(neighbours[k]);
            if (isfinite(other) && signbit(other) == signbit(got))
                assert_true(fabs(x - got) < fabs(x - other) || (fabs(x - got) == fabs(x - other) && code % 2 == 0));
        }
    }
}

/* ------------------------------------------------------------------ random */

static void random_words_are_splitmix64(void **state)
{
    (void)state;
    /* the published sequence of the reference generator started at 1234567 */
    const uint64_t published[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
                                  16408922859458223821u};
    for (uint64_t i = 0; i < 5; i++)
        assert_true(pi0_random_word(1234567, i) == published[i]);
    assert_true(pi0_fnv1a("") == 0xcbf29ce484222325u);
    assert_true(pi0_fnv1a("foobar") == 0x85944171f73967e8u);
}

static void G1_noise_is_pinned_bit_for_bit(void **state)
{
    (void)state;
    const uint32_t first[2][4] = {{0x3eb25fda, 0x3e67c63f, 0x3f28d333, 0x403b4182}, {0x3d8103ec, 0x3f4ca273, 0x3f737e0b, 0x3ed84b21}};
    float noise[4];
    pi0_random_normal(0, 0, noise, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(bits_of(noise[i]), first[0][i]);
    pi0_random_normal(42, 3, noise, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(bits_of(noise[i]), first[1][i]);
}

static void G1_noise_is_standard_normal(void **state)
{
    (void)state;
    enum { COUNT = 1000000 };
    float *noise = malloc(COUNT * sizeof *noise);
    pi0_random_normal(5, 1, noise, COUNT);
    double sum = 0, square = 0, fourth = 0, lagged = 0;
    int beyond[5] = {0};
    for (int i = 0; i < COUNT; i++) {
        double z = (double)noise[i];
        sum += z;
        square += z * z;
        fourth += z * z * z * z;
        lagged += i ? z * (double)noise[i - 1] : 0;
        for (int k = 1; k < 5; k++)
            beyond[k] += fabs(z) > k;
        assert_true(fabs(z) < 8.3);
    }
    assert_true(fabs(sum / COUNT) < 0.005);
    assert_true(fabs(square / COUNT - 1) < 0.01);
    assert_true(fabs(fourth / COUNT - 3) < 0.05);
    assert_true(fabs(lagged / COUNT) < 0.005);
    const double tail[5] = {1, 0.317311, 0.0455003, 0.0026998, 6.3342e-5};
    for (int k = 1; k < 5; k++) {
        double expected = tail[k] * COUNT;
        assert_true(fabs(beyond[k] - expected) < 5 * sqrt(expected));
    }
    free(noise);
}

static int compare_pairs(const void *a, const void *b)
{
    return memcmp(a, b, 2 * sizeof(float));
}

static void G1_streams_and_seeds_differ(void **state)
{
    (void)state;
    enum { STREAMS = 64 };
    float noise[STREAMS * STREAMS][2];
    for (int seed = 0; seed < STREAMS; seed++)
        for (int stream = 0; stream < STREAMS; stream++)
            pi0_random_normal((uint64_t)seed, (uint64_t)stream, noise[seed * STREAMS + stream], 2);
    qsort(noise, STREAMS * STREAMS, sizeof noise[0], compare_pairs);
    for (int i = 1; i < STREAMS * STREAMS; i++)
        assert_memory_not_equal(noise[i], noise[i - 1], sizeof noise[i]);
    /* a longer draw begins with the shorter one */
    float many[100], few[10];
    pi0_random_normal(9, 9, many, 100);
    pi0_random_normal(9, 9, few, 10);
    assert_memory_equal(many, few, sizeof few);
}

/* ------------------------------------------------------------------ threads */

typedef struct pool_check {
    atomic_int *done; /* [tasks] */
    atomic_int *busy; /* [threads]: no two tasks at once on one thread number */
    int tasks, threads;
    atomic_int wrong;
} pool_check;

static void count_task(void *context, int task, int thread)
{
    pool_check *check = context;
    if (task < 0 || task >= check->tasks || thread < 0 || thread >= check->threads || atomic_fetch_add(&check->busy[thread], 1) != 0) {
        atomic_fetch_add(&check->wrong, 1);
        return;
    }
    atomic_fetch_add(&check->done[task], 1);
    atomic_fetch_sub(&check->busy[thread], 1);
}

static void pool_runs_every_task_once(void **state)
{
    (void)state;
    const int sizes[] = {1, 2, 3, 7, 64};
    for (size_t s = 0; s < 5; s++) {
        pi0_pool *pool;
        pi0_error err = {0};
        PI0_ASSERT_OK(pi0_pool_open(sizes[s], NULL, &pool, &err), &err);
        assert_int_equal(pi0_pool_threads(pool), sizes[s]);
        int rounds = sizes[s] > 7 ? 60 : 400;
        for (int round = 0; round < rounds; round++) {
            int tasks = round % 5 == 4 ? 257 : round % 9;
            atomic_int done[257] = {0}, busy[64] = {0};
            pool_check check = {done, busy, tasks, sizes[s], 0};
            if (round % 50 == 49)
                usleep(1000); /* long enough for the workers to fall asleep */
            pi0_pool_run(pool, count_task, &check, tasks);
            assert_int_equal(atomic_load(&check.wrong), 0);
            for (int i = 0; i < 257; i++)
                assert_int_equal(atomic_load(&done[i]), i < tasks);
        }
        pi0_pool_close(&pool);
        assert_null(pool);
    }
}

static void add_up(void *context, int task, int thread)
{
    (void)thread;
    long *sums = context;
    for (int i = 0; i < 1000; i++)
        sums[task * 8] += i % (task + 2);
}

/* What tasks wrote is seen by the caller after the run, and by tasks of the next. */
static void pool_run_publishes_results(void **state)
{
    (void)state;
    pi0_pool *pool;
    PI0_ASSERT_OK(pi0_pool_open(4, NULL, &pool, NULL), NULL);
    long sums[16 * 8] = {0}, expected[16 * 8] = {0};
    for (int round = 0; round < 50; round++) {
        pi0_pool_run(pool, add_up, sums, 16);
        for (int task = 0; task < 16; task++)
            add_up(expected, task, 0);
        assert_memory_equal(sums, expected, sizeof sums);
    }
    pi0_pool_close(&pool);
    pi0_pool_close(&pool);
    pi0_pool_close(NULL);
}

static void slow_task(void *context, int task, int thread)
{
    (void)thread;
    usleep(task == 0 ? 100 : 2000);
    atomic_fetch_add((atomic_int *)context, 1);
}

/* The caller outlives its spinning and is woken by the last worker. */
static void pool_caller_sleeps_until_the_last_task(void **state)
{
    (void)state;
    pi0_pool *pool;
    PI0_ASSERT_OK(pi0_pool_open(3, NULL, &pool, NULL), NULL);
    for (int round = 0; round < 10; round++) {
        atomic_int count = 0;
        pi0_pool_run(pool, slow_task, &count, 4);
        assert_int_equal(atomic_load(&count), 4);
    }
    pi0_pool_close(&pool);
}

static void pool_refuses_bad_counts_and_lack_of_memory(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_pool *pool = (pi0_pool *)1;
    const int bad[] = {0, -1, PI0_MAX_THREADS + 1};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pi0_pool_open(bad[i], NULL, &pool, &err), PI0_ERR_ARGUMENT);
        assert_null(pool);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "threads", "1 to", NULL);
    }
    pi0_test_fail_allocation(1);
    pi0_status status = pi0_pool_open(2, NULL, &pool, &err);
    assert_true(pi0_test_allocation_failed());
    assert_int_equal(status, PI0_ERR_MEMORY);
    assert_null(pool);
    pi0_error_clear(&err);
    assert_true(pi0_physical_cores() >= 1);
    assert_true(pi0_physical_cores() <= sysconf(_SC_NPROCESSORS_CONF));
}

typedef struct whereabouts {
    pthread_barrier_t both; /* a task waits here for the other: the worker must take one of two */
    int cpus, cpu;          /* how many the worker may run on, and the last of them */
} whereabouts;

static void where_may_i_be(void *context, int task, int thread)
{
    (void)task;
    whereabouts *w = context;
    if (thread != 0) {
        cpu_set_t set;
        assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
        w->cpus = CPU_COUNT(&set);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set))
                w->cpu = cpu;
    }
    pthread_barrier_wait(&w->both);
}

static void workers_stay_on_their_cpus(void **state)
{
    (void)state;
    int cpus[2], all[64];
    pi0_error err = {0};
    if (pi0_core_cpus(all, 64) < 2)
        skip();
    PI0_ASSERT_OK(pi0_cpus_of("cores", 2, cpus, &err), &err);
    assert_int_equal(cpus[1], all[1]);
    const int turned[] = {cpus[1], cpus[0]};
    pi0_pool *pool;
    for (int turn = 0; turn < 2; turn++) {
        PI0_ASSERT_OK(pi0_pool_open(2, turn ? turned : cpus, &pool, &err), &err);
        whereabouts seen = {.cpu = -1};
        assert_int_equal(pthread_barrier_init(&seen.both, NULL, 2), 0);
        pi0_pool_run(pool, where_may_i_be, &seen, 2);
        assert_int_equal(seen.cpus, 1);
        assert_int_equal(seen.cpu, turn ? cpus[0] : cpus[1]);
        pthread_barrier_destroy(&seen.both);
        pi0_pool_close(&pool);
    }
}

static void an_affinity_is_checked(void **state)
{
    (void)state;
    int cpus[4], all[64];
    pi0_error err = {0};
    const char *const bad[] = {"", "a", "0,", ",0", "0-", "1-0", "0 1", "-1", "0,0", "0-1,1", "99999999999999999999", "cores,0", "0x1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(pi0_cpus_of(bad[i], 1, cpus, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "list of CPUs", "8-11", NULL);
    }
    char own[32];
    assert_true(pi0_core_cpus(all, 64) >= 1);
    snprintf(own, sizeof own, "%d", all[0]);
    PI0_ASSERT_OK(pi0_cpus_of(own, 1, cpus, &err), &err);
    assert_int_equal(cpus[0], all[0]);
    assert_int_equal(pi0_cpus_of(own, 2, cpus, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "fewer CPUs", "2", NULL);
    assert_int_equal(pi0_cpus_of("4095", 1, cpus, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "4095", NULL, NULL);
}

/* ------------------------------------------------------------------ log, clock */

static void keep_line(void *user, pi0_log_level level, const char *text)
{
    snprintf(user, 200, "%d %s", (int)level, text);
}

static void log_gives_one_line(void **state)
{
    (void)state;
    char line[200] = "";
    pi0_log log = {keep_line, line};
    pi0_log_warning(&log, "a %d\nb", 5);
    assert_string_equal(line, "1 a 5 b");
    pi0_log_info(&log, "%s", "c");
    assert_string_equal(line, "0 c");
    pi0_log silent = {NULL, NULL};
    pi0_log_info(&silent, "x");
    pi0_log_warning(NULL, "x");
    uint64_t t = pi0_now_ns();
    assert_true(pi0_now_ns() >= t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_keeps_what_its_arguments_point_to),
        cmocka_unit_test(error_text_is_cut_visibly_and_printable),
        cmocka_unit_test(error_list_has_an_end),
        cmocka_unit_test(status_and_dtype_names),
        cmocka_unit_test(memory_is_aligned_zeroed_and_bounded),
        cmocka_unit_test(shape_bytes_never_overflows),
        cmocka_unit_test(text_grows_and_stays_failed),
        cmocka_unit_test(map_file_takes_regular_files_only),
        cmocka_unit_test(released_pages_come_back),
        cmocka_unit_test(path_join_puts_one_slash),
        cmocka_unit_test(writer_leaves_the_old_file_or_the_whole_new_one),
        cmocka_unit_test(writer_reports_a_full_disk_and_spares_devices),
        cmocka_unit_test(writer_removes_what_did_not_fit),
        cmocka_unit_test(writer_survives_every_allocation_failure),
        cmocka_unit_test(B10_bf16_rounds_to_nearest_even),
        cmocka_unit_test(B18_f16_rounds_to_nearest_even),
        cmocka_unit_test(B18_f16_matches_the_definition),
        cmocka_unit_test(random_words_are_splitmix64),
        cmocka_unit_test(G1_noise_is_pinned_bit_for_bit),
        cmocka_unit_test(G1_noise_is_standard_normal),
        cmocka_unit_test(G1_streams_and_seeds_differ),
        cmocka_unit_test(pool_runs_every_task_once),
        cmocka_unit_test(pool_run_publishes_results),
        cmocka_unit_test(pool_caller_sleeps_until_the_last_task),
        cmocka_unit_test(pool_refuses_bad_counts_and_lack_of_memory),
        cmocka_unit_test(workers_stay_on_their_cpus),
        cmocka_unit_test(an_affinity_is_checked),
        cmocka_unit_test(log_gives_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
