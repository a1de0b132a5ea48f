/* Where MODEL and its tokenizer may lie: directories, files, shards, caches; and what is said of everything else. */
#include "checkpoint_fixture.h"

#include <sys/stat.h>
#include <unistd.h>

static void make_dirs(const char *root, const char *below)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", root, below);
    for (char *p = path + strlen(root) + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0777);
            *p = '/';
        }
    mkdir(path, 0777);
}

static void a_file_a_directory_and_shards_open_alike(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    model m = small_model(false), halves[2] = {{.count = 0}, {.count = 0}};
    char index[32768] = "{\"metadata\": {}, \"weight_map\": {";
    for (size_t i = 0; i < m.count; i++) {
        halves[i % 2].items[halves[i % 2].count++] = m.items[i];
        size_t used = strlen(index);
        snprintf(index + used, sizeof index - used, "%s\"%s\": \"part%zu.safetensors\"", i ? ", " : "", m.items[i].name, i % 2);
    }
    strcat(index, "}}");
    model_write(&halves[0], dir, "part0.safetensors");
    model_write(&halves[1], dir, "part1.safetensors");
    write_text(dir, "model.safetensors.index.json", index);
    pi0_checkpoint *checkpoint = must_open(dir);
    assert_int_equal(pi0_safetensors_shards(checkpoint->file), 2);
    assert_string_equal(checkpoint->path, dir);
    assert_string_equal(checkpoint->dir, dir);
    pi0_checkpoint_close(&checkpoint);
    checkpoint = must_open(pi0_test_path(dir, "model.safetensors.index.json"));
    assert_string_equal(checkpoint->dir, dir);
    pi0_checkpoint_close(&checkpoint);
    model_write(&m, dir, "mine.safetensors");
    char path[600];
    snprintf(path, sizeof path, "%s", pi0_test_path(dir, "mine.safetensors"));
    checkpoint = must_open(path);
    assert_string_equal(checkpoint->path, path);
    assert_string_equal(checkpoint->dir, dir);
    pi0_checkpoint_close(&checkpoint);
    pi0_test_remove_dir(dir);
}

static void repositories_are_found_in_the_cache_and_never_fetched(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir(), commit[1100];
    pi0_options options = {.hf_home = dir};
    pi0_checkpoint *checkpoint = NULL;
    pi0_error err = {0};
    assert_int_equal(pi0_checkpoint_open("lerobot/pi0_base", &options, NULL, &checkpoint, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "hf download lerobot/pi0_base", "models--lerobot--pi0_base", (const char *)NULL);
    options.hf_home = NULL;
    assert_int_equal(pi0_checkpoint_open("lerobot/pi0_base", &options, NULL, &checkpoint, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "hf download lerobot/pi0_base", (const char *)NULL);
    options.hf_home = dir;
    make_dirs(dir, "hub/models--lerobot--pi0_base/snapshots/0123abcd");
    snprintf(commit, sizeof commit, "%s/hub/models--lerobot--pi0_base/snapshots/0123abcd", dir);
    model m = small_model(false);
    model_write(&m, commit, "model.safetensors");
    /* no ref: a lone snapshot will do; two need refs/main */
    PI0_ASSERT_OK(pi0_checkpoint_open("lerobot/pi0_base", &options, NULL, &checkpoint, &err), &err);
    assert_string_equal(checkpoint->dir, commit);
    pi0_checkpoint_close(&checkpoint);
    make_dirs(dir, "hub/models--lerobot--pi0_base/snapshots/ffff");
    assert_int_equal(pi0_checkpoint_open("lerobot/pi0_base", &options, NULL, &checkpoint, &err), PI0_ERR_IO);
    pi0_error_clear(&err);
    make_dirs(dir, "hub/models--lerobot--pi0_base/refs");
    write_text(dir, "hub/models--lerobot--pi0_base/refs/main", "0123abcd\n");
    PI0_ASSERT_OK(pi0_checkpoint_open("lerobot/pi0_base", &options, NULL, &checkpoint, &err), &err);
    pi0_checkpoint_close(&checkpoint);
    write_text(dir, "hub/models--lerobot--pi0_base/refs/main", "../../../../etc\n");
    assert_int_equal(pi0_checkpoint_open("lerobot/pi0_base", &options, NULL, &checkpoint, &err), PI0_ERR_IO);
    pi0_error_clear(&err);
    pi0_test_remove_dir(dir);
}

static void buckets_are_found_in_the_openpi_cache(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir(), inner[1100];
    pi0_options options = {.openpi_home = dir};
    pi0_checkpoint *checkpoint = NULL;
    pi0_error err = {0};
    const char *url = "gs://openpi-assets/checkpoints/pi05_droid";
    assert_int_equal(pi0_checkpoint_open(url, &options, NULL, &checkpoint, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "maybe_download('gs://openpi-assets/checkpoints/pi05_droid')", (const char *)NULL);
    make_dirs(dir, "openpi-assets/checkpoints/pi05_droid");
    snprintf(inner, sizeof inner, "%s/openpi-assets/checkpoints/pi05_droid", dir);
    model m = small_model(true);
    model_write(&m, inner, "model.safetensors");
    PI0_ASSERT_OK(pi0_checkpoint_open(url, &options, NULL, &checkpoint, &err), &err);
    pi0_checkpoint_close(&checkpoint);
    assert_int_equal(pi0_checkpoint_open("gs://openpi-assets/../../etc", &options, NULL, &checkpoint, &err), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    pi0_test_remove_dir(dir);
}

static void orbax_is_answered_with_the_converter_command(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir(), inner[1100], command[2600], copy[2600];
    make_dirs(dir, "pi05_droid/params");
    write_text(dir, "pi05_droid/params/_METADATA", "{}");
    snprintf(inner, sizeof inner, "%s/pi05_droid", dir);
    snprintf(command, sizeof command,
             "examples/convert_jax_model_to_pytorch.py --checkpoint-dir %s --config-name pi05_droid --output-path %s_pytorch", inner,
             inner);
    snprintf(copy, sizeof copy, "cp -r %s/assets %s_pytorch/", inner, inner);
    MUST_FAIL(inner, NULL, PI0_ERR_UNSUPPORTED, command, copy, "orbax");
    MUST_FAIL(pi0_test_path(inner, "params"), NULL, PI0_ERR_UNSUPPORTED, command, copy);
    MUST_FAIL(inner, "pi05_libero", PI0_ERR_UNSUPPORTED, "--config-name pi05_libero");
    remove(pi0_test_path(inner, "params/_METADATA"));
    write_text(inner, "params/manifest.ocdbt", "x");
    MUST_FAIL(inner, NULL, PI0_ERR_UNSUPPORTED, command);
    pi0_test_remove_dir(dir);
}

static void paths_that_are_no_checkpoint_say_what_to_do(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir();
    MUST_FAIL("", NULL, PI0_ERR_ARGUMENT, "org/name");
    MUST_FAIL("/no/such/place", NULL, PI0_ERR_IO, "/no/such/place");
    MUST_FAIL("../no_model_of_this_name", NULL, PI0_ERR_IO, "no such model");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "model.safetensors");
    write_text(dir, "pytorch_model.bin", "x");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "pickled");
    MUST_FAIL(pi0_test_path(dir, "pytorch_model.bin"), NULL, PI0_ERR_MODEL, "pickled");
    write_text(dir, "m.pi0", "x");
    MUST_FAIL(pi0_test_path(dir, "m.pi0"), NULL, PI0_ERR_FORMAT, "too short", "m.pi0");
    write_text(dir, "m.gguf", "x");
    MUST_FAIL(pi0_test_path(dir, "m.gguf"), NULL, PI0_ERR_UNSUPPORTED, "GGUF");
    write_text(dir, "config.json", "{}");
    MUST_FAIL(pi0_test_path(dir, "config.json"), NULL, PI0_ERR_MODEL, "directory of the checkpoint");
    make_dirs(dir, "checkpoints/last/pretrained_model");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "checkpoints/last/pretrained_model");
    pi0_test_remove_dir(dir);
}

/* Never a hang, never "no weights": the name is there, and the error says what bears it. */
static void names_that_are_no_files_are_told_apart(void **state)
{
    (void)state;
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json", "config.json"};
    for (int i = 0; i < 3; i++) {
        char *dir = pi0_test_make_dir(), path[600];
        model m = small_model(false);
        if (i == 2)
            model_write(&m, dir, "model.safetensors");
        snprintf(path, sizeof path, "%s", pi0_test_path(dir, names[i]));
        assert_int_equal(mkfifo(path, 0600), 0);
        MUST_FAIL(dir, NULL, PI0_ERR_IO, "not a regular file", "a pipe", path);
        if (i < 2)
            MUST_FAIL(path, NULL, PI0_ERR_IO, "a pipe", path);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("/dev/zero", path), 0);
        MUST_FAIL(dir, NULL, PI0_ERR_IO, "a device", path);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink(names[i], path), 0);
        MUST_FAIL(dir, NULL, PI0_ERR_IO, "circle", path);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("../blobs/gone", path), 0);
        MUST_FAIL(dir, NULL, PI0_ERR_IO, "a file that is not there", path);
        assert_int_equal(unlink(path), 0);
        make_dirs(dir, names[i]);
        MUST_FAIL(dir, NULL, PI0_ERR_IO, "a directory", path);
        pi0_test_remove_dir(dir);
    }
    char *dir = pi0_test_make_dir();
    make_dirs(dir, "mine.safetensors");
    MUST_FAIL(dir, NULL, PI0_ERR_MODEL, "no weights", "model.safetensors");
    pi0_checkpoint *none = NULL;
    pi0_error err = {0};
    open_dir(dir, NULL, &none, &err);
    assert_null(strstr(err.hint, "mine.safetensors")); /* it would lead to this very error */
    pi0_error_clear(&err);
    pi0_test_remove_dir(dir);
}

/* ------------------------------------------------------------------ the tokenizer file */

static void find(const char *dir, const pi0_options *options, const char *want)
{
    char *path = NULL;
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_tokenizer_locate(dir, options, &path, &err), &err);
    assert_string_equal(path, want);
    pi0_free(path);
}

static void D6_tokenizer_is_sought_in_order_and_its_absence_lists_every_place(void **state)
{
    (void)state;
    char *dir = pi0_test_make_dir(), where[6][1200], home[600];
    snprintf(home, sizeof home, "%s/home", dir);
    make_dirs(dir, "home/hub/models--google--paligemma-3b-pt-224/snapshots/abc");
    make_dirs(dir, "home/big_vision");
    make_dirs(dir, "ckpt/tokenizer");
    char ckpt[600];
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", dir);
    static const char *const places[] = {"home/big_vision/paligemma_tokenizer.model",
                                         "home/hub/models--google--paligemma-3b-pt-224/snapshots/abc/tokenizer.model",
                                         "home/hub/models--google--paligemma-3b-pt-224/snapshots/abc/tokenizer.json",
                                         "ckpt/tokenizer/tokenizer.json",
                                         "ckpt/tokenizer.model",
                                         "ckpt/tokenizer.json"};
    for (int i = 0; i < 6; i++)
        snprintf(where[i], sizeof where[i], "%s/%s", dir, places[i]);
    pi0_options options = {.hf_home = home, .openpi_home = home};
    char *path = NULL;
    pi0_error err = {0};
    assert_int_equal(pi0_tokenizer_locate(ckpt, &options, &path, &err), PI0_ERR_MODEL);
    assert_null(path);
    pi0_test_assert_error(&err, PI0_ERR_MODEL, where[0], where[1], where[2], where[3], where[4], where[5], "--tokenizer",
                          (const char *)NULL);
    for (int i = 0; i < 6; i++) { /* each later one is nearer */
        pi0_test_write_file(where[i], "x", 1);
        find(ckpt, &options, where[i]);
    }
    options.tokenizer = where[0];
    find(ckpt, &options, where[0]);
    options.tokenizer = "/no/such/tokenizer.json";
    assert_int_equal(pi0_tokenizer_locate(ckpt, &options, &path, &err), PI0_ERR_MODEL);
    pi0_test_assert_error(&err, PI0_ERR_MODEL, "/no/such/tokenizer.json", (const char *)NULL);
    assert_int_equal(pi0_tokenizer_locate(NULL, NULL, &path, &err), PI0_ERR_MODEL);
    pi0_error_clear(&err);
    pi0_test_remove_dir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_a_directory_and_shards_open_alike),
        cmocka_unit_test(repositories_are_found_in_the_cache_and_never_fetched),
        cmocka_unit_test(buckets_are_found_in_the_openpi_cache),
        cmocka_unit_test(orbax_is_answered_with_the_converter_command),
        cmocka_unit_test(paths_that_are_no_checkpoint_say_what_to_do),
        cmocka_unit_test(names_that_are_no_files_are_told_apart),
        cmocka_unit_test(D6_tokenizer_is_sought_in_order_and_its_absence_lists_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
