/* int8 by layer: what the calibration's reader refuses, what is measured, and that a calibration keeps the accuracy which plain int8 loses
 * on checkpoints with outlier channels.
 * ctest: timeout=900 */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "support.h"

static char *dir;

enum { STEPS = 3, PIXELS = 64, CALIBRATED = 2, UNSEEN = 2, MOST_ACTIONS = 64 * 32 };

/* ------------------------------------------------------------------ models and observations */

/* dir/name; lives until the test program ends. */
static const char *make_checkpoint(const char *model, const char *size, int outliers)
{
    static char path[8][1100];
    static int next;
    char *out = path[next++ % 8];
    pi0_error err = {0};
    pi0_synth_options options;
    snprintf(out, sizeof path[0], "%s/%s_%s_%d", dir, model, size, outliers);
    if (pi0_is_dir(out))
        return out;
    pi0_synth_options_init(&options);
    options.model = model;
    options.size = size;
    options.cameras = 1;
    options.horizon = 10;
    options.dtype = "bf16";
    options.outliers = outliers;
    PI0_ASSERT_OK(pi0_synth(out, &options, &err), &err);
    return out;
}

/* Observation `index`: another picture, state, sentence and noise each. */
static pi0_status observe(void *user, size_t index, const pi0_model *model, pi0_session *session, pi0_error *err)
{
    static const char *const prompts[] = {"pick up the cube", "open the drawer", "fold the towel", "push the red block to the left"};
    static uint8_t pixels[PIXELS * PIXELS * 3];
    (void)user;
    const pi0_info *info = pi0_model_info(model);
    const pi0_array picture = {
        .name = "", .dtype = PI0_U8, .rank = 3, .shape = {PIXELS, PIXELS, 3}, .data = pixels, .bytes = sizeof pixels};
    double state[PI0_MAX_DIM];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(pi0_random_word(index, i / 96) + i / 7);
    for (int i = 0; i < info->state_dim; i++)
        state[i] = (double)(pi0_random_word(index + 100, (uint64_t)i) % 1000) / 1000 - 0.5;
    pi0_session_reset(session, index);
    PI0_TRY(pi0_set_image(session, info->slots[0], &picture, err));
    PI0_TRY(pi0_set_state(session, state, (size_t)info->state_dim, err));
    return pi0_set_prompt(session, prompts[index % 4], err);
}

typedef struct setting {
    const char *precision, *calibration;
    int threads, layer_errors;
} setting;

static pi0_status open_model(const char *path, const setting *how, pi0_model **out, pi0_error *err)
{
    pi0_options options;
    pi0_options_init(&options);
    options.precision = how->precision;
    options.calibration = how->calibration;
    options.threads = how->threads ? how->threads : 2;
    options.layer_errors = how->layer_errors;
    return pi0_open(path, &options, out, err);
}

static size_t infer(pi0_model *model, size_t index, float *actions)
{
    pi0_error err = {0};
    pi0_session *session;
    int rows, cols;
    PI0_ASSERT_OK(pi0_session_open(model, 0, &session, &err), &err);
    PI0_ASSERT_OK(observe(NULL, index, model, session, &err), &err);
    PI0_ASSERT_OK(pi0_infer(&session, 1, STEPS, &err), &err);
    const float *raw = pi0_actions_raw(session, &rows, &cols);
    const size_t count = (size_t)rows * (size_t)cols;
    assert_true(count <= MOST_ACTIONS);
    memcpy(actions, raw, count * sizeof *raw);
    pi0_session_close(&session);
    return count;
}

static size_t infer_with(const char *path, const setting *how, size_t index, float *actions)
{
    pi0_error err = {0};
    pi0_model *model;
    PI0_ASSERT_OK(open_model(path, how, &model, &err), &err);
    const size_t count = infer(model, index, actions);
    pi0_close(&model);
    return count;
}

static double cosine_of(const float *a, const float *b, size_t count)
{
    double dot = 0, a2 = 0, b2 = 0;
    for (size_t i = 0; i < count; i++) {
        dot += (double)a[i] * (double)b[i];
        a2 += (double)a[i] * (double)a[i];
        b2 += (double)b[i] * (double)b[i];
    }
    return dot / sqrt(a2) / sqrt(b2);
}

static pi0_status calibrate(const char *path, size_t observations, double cosine, char **json, pi0_error *err)
{
    pi0_options options;
    pi0_options_init(&options);
    options.threads = 2;
    const pi0_calibrate_options how = {.observe = observe, .observations = observations, .steps = STEPS, .cosine = cosine};
    return pi0_calibrate(path, &options, &how, json, err);
}

/* ------------------------------------------------------------------ accuracy */

static double number(const json_t *document, const char *object, const char *key)
{
    return json_number_value(json_object_get(object ? json_object_get(document, object) : document, key));
}

/* Plain int8 fails, the calibrated choice passes, on what it was calibrated with and on what it has not seen. */
static void keeps_the_gate(const char *model, const char *size)
{
    const char *path = make_checkpoint(model, size, 4);
    float want[MOST_ACTIONS], got[MOST_ACTIONS];
    pi0_error err = {0};
    char *json;
    PI0_ASSERT_OK(calibrate(path, CALIBRATED, 0, &json, &err), &err);
    json_t *document = json_loads(json, 0, NULL);
    assert_non_null(document);
    const double plain = number(document, "plain", "mean"), chosen = number(document, "chosen", "mean");
    const double in_bf16 = number(document, NULL, "products_bf16"), products = number(document, NULL, "products");
    print_message("%s %s: plain int8 %.6f, with %.0f of %.0f products in bf16 %.6f (worst %.6f), %.3f of the FLOP int8\n", model, size,
                  plain, in_bf16, products, chosen, number(document, "chosen", "worst"), number(document, NULL, "int8_share_of_flop"));
    assert_true(json_is_true(json_object_get(document, "passed")));
    assert_true(plain < 0.9995);
    assert_true(chosen >= 0.9995);
    assert_true(number(document, "chosen", "worst") >= 0.998);
    assert_true(number(document, "chosen", "stages") >= 0.998);
    assert_true(in_bf16 > 0 && in_bf16 < products);
    json_decref(document);

    pi0_model *f32, *by_layer;
    const setting exact = {.precision = "f32"}, automatic = {.precision = "int8:auto", .calibration = json};
    PI0_ASSERT_OK(open_model(path, &exact, &f32, &err), &err);
    PI0_ASSERT_OK(open_model(path, &automatic, &by_layer, &err), &err);
    char expected[64];
    snprintf(expected, sizeof expected, "%.0f of %.0f products bf16)", in_bf16, products);
    assert_non_null(strstr(pi0_model_info(by_layer)->precision, expected));
    double mean = 0;
    for (size_t i = CALIBRATED; i < CALIBRATED + UNSEEN; i++) {
        const size_t count = infer(f32, i, want);
        infer(by_layer, i, got);
        const double cosine = cosine_of(got, want, count);
        print_message("  unseen observation %zu: %.6f\n", i, cosine);
        assert_true(cosine >= 0.998);
        mean += cosine / UNSEEN;
    }
    assert_true(mean >= 0.9995);
    pi0_close(&f32);
    pi0_close(&by_layer);
    pi0_text_free(&json);
}

static void tiny_models_with_outliers_keep_the_gate(void **state)
{
    (void)state;
    keeps_the_gate("pi0", "tiny");
    keeps_the_gate("pi05", "tiny");
}

static void small_models_with_outliers_keep_the_gate(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* minutes, for no other code than the tiny ones */
#endif
    keeps_the_gate("pi0", "small");
    keeps_the_gate("pi05", "small");
}

static void without_outliers_every_product_is_int8(void **state)
{
    (void)state;
    pi0_error err = {0};
    char *json;
    PI0_ASSERT_OK(calibrate(make_checkpoint("pi0", "tiny", 0), 1, 0, &json, &err), &err);
    json_t *document = json_loads(json, 0, NULL);
    assert_true(number(document, NULL, "products_bf16") == 0);
    assert_true(number(document, NULL, "int8_share_of_flop") == 1);
    assert_true(number(document, "plain", "mean") == number(document, "chosen", "mean"));
    json_decref(document);
    float plain[MOST_ACTIONS], chosen[MOST_ACTIONS];
    const char *path = make_checkpoint("pi0", "tiny", 0);
    const size_t count = infer_with(path, &(setting){.precision = "int8"}, 1, plain);
    infer_with(path, &(setting){.precision = "int8:auto", .calibration = json}, 1, chosen);
    assert_memory_equal(plain, chosen, count * sizeof *plain);
    pi0_text_free(&json);
}

static void judged_by_the_actions_alone_no_more_products_stay(void **state)
{
    (void)state;
    const char *path = make_checkpoint("pi0", "tiny", 4);
    double in_bf16[2];
    for (int actions_only = 0; actions_only < 2; actions_only++) {
        pi0_error err = {0};
        char *json;
        const pi0_calibrate_options how = {.observe = observe, .observations = 1, .steps = STEPS, .actions_only = actions_only};
        PI0_ASSERT_OK(pi0_calibrate(path, NULL, &how, &json, &err), &err);
        json_t *document = json_loads(json, 0, NULL);
        in_bf16[actions_only] = number(document, NULL, "products_bf16");
        assert_true(number(document, "chosen", "mean") >= 0.9995);
        assert_true(actions_only || number(document, "chosen", "stages") >= 0.998);
        json_decref(document);
        pi0_text_free(&json);
    }
    assert_true(in_bf16[1] > 0 && in_bf16[1] <= in_bf16[0]);
}

static void a_gate_beyond_bf16_is_not_passed(void **state)
{
    (void)state;
    const char *path = make_checkpoint("pi0", "tiny", 4);
    pi0_error err = {0};
    pi0_model *model;
    char *json;
    /* stored in bf16, the model is exact on instruction sets that widen: then even this gate is met, by every product */
    PI0_ASSERT_OK(calibrate(path, 1, 1 - 1e-15, &json, &err), &err);
    json_t *document = json_loads(json, 0, NULL);
    assert_true(number(document, NULL, "products_bf16") == number(document, NULL, "products"));
    json_object_set_new(document, "passed", json_false());
    char *failed = json_dumps(document, 0);
    assert_int_equal(open_model(path, &(setting){.precision = "int8:auto", .calibration = failed}, &model, &err), PI0_ERR_MODEL);
    pi0_test_assert_error(&err, PI0_ERR_MODEL, "failed", "bf16", NULL);
    free(failed);
    json_decref(document);
    pi0_text_free(&json);
}

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    const char *path = make_checkpoint("pi0", "tiny", 4);
    static const int threads[] = {1, 2, 3, 7};
    float first[MOST_ACTIONS], other[MOST_ACTIONS];
    pi0_error err = {0};
    char *json;
    PI0_ASSERT_OK(calibrate(path, 1, 0, &json, &err), &err);
    size_t count = 0;
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        const setting how = {.precision = "int8:auto", .calibration = json, .threads = threads[i]};
        count = infer_with(path, &how, 0, i ? other : first);
        if (i)
            assert_memory_equal(first, other, count * sizeof *first);
    }
    infer_with(path, &(setting){.precision = "int8"}, 0, other);
    assert_memory_not_equal(first, other, count * sizeof *first);
    pi0_text_free(&json);
}

/* ------------------------------------------------------------------ measuring */

static void measuring_changes_no_action_and_finds_the_outliers(void **state)
{
    (void)state;
    const char *path = make_checkpoint("pi0", "tiny", 4);
    float plain[MOST_ACTIONS], measured[MOST_ACTIONS];
    pi0_error err = {0};
    pi0_model *model[2];
    const size_t count = infer_with(path, &(setting){.precision = "f32"}, 0, plain);
    for (int i = 0; i < 2; i++) {
        const setting how = {.precision = "f32", .threads = 1 + 2 * i, .layer_errors = 1};
        PI0_ASSERT_OK(open_model(path, &how, &model[i], &err), &err);
        infer(model[i], 0, measured);
        assert_memory_equal(plain, measured, count * sizeof *plain);
    }
    size_t large = 0, fed_by_a_norm = 0;
    assert_true(pi0_layer_count(model[0]) > 10);
    for (size_t i = 0; i < pi0_layer_count(model[0]); i++) {
        const pi0_layer layer = pi0_layer_at(model[0], i), again = pi0_layer_at(model[1], i);
        assert_string_equal(layer.name, again.name);
        assert_true(layer.error == again.error && layer.cosine == again.cosine && layer.flop == again.flop);
        assert_string_equal(layer.precision, "f32");
        assert_true(layer.error > 1e-4 && layer.error < 1 && layer.flop > 0);
        assert_true(layer.cosine > 0.5 && layer.cosine < 1);
        const bool norm = strstr(layer.name, "_proj+") || strstr(layer.name, "fc1");
        fed_by_a_norm += layer.error > 0.05 && norm;
        large += layer.error > 0.05;
    }
    assert_true(large >= 4);                /* both norms of a layer of each tower */
    assert_int_equal(large, fed_by_a_norm); /* what no norm feeds has no outliers */
    pi0_close(&model[0]);
    pi0_close(&model[1]);
}

static void the_sum_of_all_products_is_the_models_arithmetic(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_model *model;
    float actions[MOST_ACTIONS];
    PI0_ASSERT_OK(open_model(make_checkpoint("pi0", "small", 4), &(setting){.precision = "f32", .layer_errors = 1}, &model, &err), &err);
    infer(model, 0, actions);
    double flop = 0;
    for (size_t i = 0; i < pi0_layer_count(model); i++)
        flop += pi0_layer_at(model, i).flop;
    const pi0_flop needed = pi0_model_flop(model, 1, 8, STEPS);
    const double all = needed.vision + needed.prefix + needed.denoise;
    assert_true(flop > 0.6 * all && flop < all); /* attention, patches and action projections are none of these products */
    pi0_close(&model);
}

static void int8_is_not_measured_beside_int8(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_model *model;
    const setting how = {.precision = "int8", .layer_errors = 1};
    assert_int_equal(open_model(make_checkpoint("pi0", "tiny", 0), &how, &model, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "beside itself", NULL);
}

/* ------------------------------------------------------------------ the reader */

#define MATRIX "paligemma_with_expert.paligemma.model.language_model.layers.0.mlp.gate_proj.weight"

/* A calibration of the tiny model with one member replaced; value NULL leaves it out. */
static char *edited(const char *key, const char *value)
{
    static char text[4][2048];
    static int next;
    static const char *const members[][2] = {
        {"format", "\"pi0-calibration\""}, {"version", "1"}, {"model", NULL}, {"int8", NULL}, {"passed", "true"},
        {"bf16", "[\"" MATRIX "\"]"}};
    static char model[32], form[32];
    if (!*model) {
        pi0_error err = {0};
        pi0_model *opened;
        PI0_ASSERT_OK(open_model(make_checkpoint("pi0", "tiny", 0), &(setting){.precision = "int8"}, &opened, &err), &err);
        const pi0_device_info device = opened->api->info(opened->device);
        snprintf(model, sizeof model, "\"%s\"", pi0_checkpoint_fingerprint(opened->checkpoint).text);
        snprintf(form, sizeof form, "\"%s\"", pi0_int8_form_of(&device).text);
        pi0_close(&opened);
    }
    char *out = text[next++ % 4];
    size_t length = 0;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *now = members[i][1] ? members[i][1] : !strcmp(members[i][0], "model") ? model : form;
        if (!strcmp(key, members[i][0]))
            now = value;
        if (now)
            length += (size_t)snprintf(out + length, sizeof text[0] - length, "%c \"%s\": %s", length ? ',' : '{', members[i][0], now);
    }
    snprintf(out + length, sizeof text[0] - length, "}");
    return out;
}

static void refused(const char *calibration, pi0_status status, const char *first, const char *second)
{
    pi0_error err = {0};
    pi0_model *model;
    const setting how = {.precision = "int8:auto", .calibration = calibration};
    assert_int_equal(open_model(make_checkpoint("pi0", "tiny", 0), &how, &model, &err), status);
    assert_null(model);
    pi0_test_assert_error(&err, status, first, second, NULL);
}

static void the_reader_takes_what_it_should_and_says_why_not(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_model *model;
    const char *file = pi0_test_path(dir, "edited.json");
    const char *good = edited("", NULL);
    pi0_test_write_file(file, good, strlen(good));
    for (int i = 0; i < 2; i++) { /* as text and as a file */
        const setting how = {.precision = "int8:auto", .calibration = i ? pi0_test_path(dir, "edited.json") : good};
        PI0_ASSERT_OK(open_model(make_checkpoint("pi0", "tiny", 0), &how, &model, &err), &err);
        assert_non_null(strstr(pi0_model_info(model)->precision, ", 1 of "));
        pi0_close(&model);
    }
    refused(NULL, PI0_ERR_ARGUMENT, "--calibration FILE", "pi0 calibrate");
    refused(pi0_test_path(dir, "absent.json"), PI0_ERR_IO, "absent.json", "absent.json");
    refused("{ \"format\": ", PI0_ERR_FORMAT, "not valid JSON", "line 1");
    refused(edited("format", "\"recipe\""), PI0_ERR_FORMAT, "no calibration", "recipe");
    refused(edited("format", NULL), PI0_ERR_FORMAT, "format", "missing");
    refused(edited("version", "2"), PI0_ERR_UNSUPPORTED, "newer version", "pi0 calibrate");
    refused(edited("version", "0"), PI0_ERR_FORMAT, "version", "range");
    refused(edited("version", "\"1\""), PI0_ERR_FORMAT, "version", "integer");
    refused(edited("model", "\"0123456789abcdef\""), PI0_ERR_MODEL, "another model", "0123456789abcdef");
    refused(edited("int8", "\"w4a4\""), PI0_ERR_MODEL, "another form", "w4a4");
    refused(edited("passed", "false"), PI0_ERR_MODEL, "failed", "--precision bf16");
    refused(edited("bf16", "\"" MATRIX "\""), PI0_ERR_FORMAT, "bf16", "an array");
    refused(edited("bf16", "[\"" MATRIX "\", 7]"), PI0_ERR_FORMAT, "bf16[1]", "integer");
    refused(edited("bf16", "[\"" MATRIX "\", \"no.such.weight\"]"), PI0_ERR_MODEL, "bf16[1]", "no.such.weight");
    refused(edited("bf16", "[\"action_in_proj.bias\"]"), PI0_ERR_MODEL, "does not have", "action_in_proj.bias");
    pi0_test_write_file(pi0_test_path(dir, "list.json"), "[1]", 3);
    refused(pi0_test_path(dir, "list.json"), PI0_ERR_FORMAT, "no calibration", "array");
}

static void a_fingerprint_knows_the_weights_and_not_the_files(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_fingerprint print[4];
    for (int i = 0; i < 4; i++) {
        char path[1100];
        pi0_checkpoint *checkpoint;
        pi0_options options;
        pi0_options_init(&options);
        const pi0_synth_options synth = {.model = "pi0",
                                         .layout = i == 1 ? "openpi" : "lerobot",
                                         .size = "tiny",
                                         .seed = i == 2,
                                         .dtype = i == 3 ? "bf16" : "f32",
                                         .shards = i == 1 ? 3 : 1};
        snprintf(path, sizeof path, "%s/print%d", dir, i);
        PI0_ASSERT_OK(pi0_synth(path, &synth, &err), &err);
        PI0_ASSERT_OK(pi0_checkpoint_open(path, &options, NULL, &checkpoint, &err), &err);
        print[i] = pi0_checkpoint_fingerprint(checkpoint);
        pi0_checkpoint_close(&checkpoint);
    }
    assert_string_equal(print[0].text, print[1].text);
    assert_string_not_equal(print[0].text, print[2].text);
    assert_string_not_equal(print[0].text, print[3].text);
}

/* ------------------------------------------------------------------ calls that cannot work */

static pi0_status fails(void *user, size_t index, const pi0_model *model, pi0_session *session, pi0_error *err)
{
    (void)user, (void)model, (void)session;
    return index ? pi0_fail(err, PI0_ERR_IO, "the second observation is gone") : observe(NULL, index, model, session, err);
}

static int stop(void *user, const char *stage, uint64_t done, uint64_t total)
{
    (void)user;
    return !strcmp(stage, "calibrating") && done == 1 && total > 1;
}

static void what_cannot_be_calibrated_is_an_error(void **state)
{
    (void)state;
    const char *path = make_checkpoint("pi0", "tiny", 0);
    pi0_error err = {0};
    pi0_options options;
    char *json;
    pi0_options_init(&options);
    pi0_calibrate_options how = {.observe = observe, .steps = STEPS};
    assert_int_equal(pi0_calibrate(path, &options, &how, &json, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "observations", NULL);
    how.observations = 1;
    how.cosine = 1;
    assert_int_equal(pi0_calibrate(path, &options, &how, &json, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "below 1", NULL);
    how.cosine = 0;
    options.precision = "f32";
    assert_int_equal(pi0_calibrate(path, &options, &how, &json, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "about int8", NULL);
    options.precision = NULL;
    how.observe = fails;
    how.observations = 2;
    assert_int_equal(pi0_calibrate(path, &options, &how, &json, &err), PI0_ERR_IO);
    pi0_test_assert_error(&err, PI0_ERR_IO, "second observation", NULL);
    how.observe = observe;
    options.progress = stop;
    assert_int_equal(pi0_calibrate(path, &options, &how, &json, &err), PI0_ERR_CANCELLED);
    pi0_test_assert_error(&err, PI0_ERR_CANCELLED, NULL);
    assert_null(json);
}

static pi0_status calibrate_once(void *path, pi0_error *err)
{
    char *json;
    const pi0_status status = calibrate(path, 1, 0, &json, err);
    assert_true((status == PI0_OK) == (json != NULL));
    pi0_text_free(&json);
    return status;
}

static pi0_status parse_once(void *text, pi0_error *err)
{
    pi0_calibration calibration;
    PI0_TRY(pi0_calibration_parse(text, strlen(text), "text", &calibration, err));
    assert_int_equal(calibration.n_in_bf16, 1);
    assert_string_equal(calibration.in_bf16[0], MATRIX);
    pi0_calibration_close(&calibration);
    return PI0_OK;
}

/* The steps of a calibration are openings and inferences, which test_failure takes apart; here some of them, and all of the report. */
static void a_failed_allocation_is_an_error(void **state)
{
    (void)state;
    pi0_test_fail_allocations("calibrate", calibrate_once, (char *)make_checkpoint("pi0", "tiny", 0),
                              (pi0_test_sweep){.first = 1, .last = 60, .stride = 1000});
    pi0_test_fail_allocations("parse", parse_once, (char *)edited("", NULL), (pi0_test_sweep){.first = 1, .last = 1, .stride = 1});
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
        cmocka_unit_test(tiny_models_with_outliers_keep_the_gate),
        cmocka_unit_test(small_models_with_outliers_keep_the_gate),
        cmocka_unit_test(without_outliers_every_product_is_int8),
        cmocka_unit_test(judged_by_the_actions_alone_no_more_products_stay),
        cmocka_unit_test(a_gate_beyond_bf16_is_not_passed),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(measuring_changes_no_action_and_finds_the_outliers),
        cmocka_unit_test(the_sum_of_all_products_is_the_models_arithmetic),
        cmocka_unit_test(int8_is_not_measured_beside_int8),
        cmocka_unit_test(the_reader_takes_what_it_should_and_says_why_not),
        cmocka_unit_test(a_fingerprint_knows_the_weights_and_not_the_files),
        cmocka_unit_test(what_cannot_be_calibrated_is_an_error),
        cmocka_unit_test(a_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests_name("calibration", tests, make_dir, remove_dir);
}
