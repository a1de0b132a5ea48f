/* Memory: the plan and its limit, the planner on the published sizes, inferences that allocate nothing, sessions that come and go, --warm.
 * ctest: timeout=600 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "support.h"

static char *dir;
static char pi0_path[1024], pi05_path[1024];
static const char *const precisions[] = {"f32", "bf16", "int8"};

enum { SIDE = 32, SLOTS = 3 };

static void make_checkpoint(const char *model, const char *size, int hollow, char path[1024])
{
    pi0_error err = {0};
    pi0_synth_options options;
    pi0_synth_options_init(&options);
    options.model = model;
    options.size = size;
    options.hollow = hollow;
    options.horizon = hollow ? 0 : 6;
    char name[64];
    snprintf(name, sizeof name, "%s_%s", model, size);
    snprintf(path, 1024, "%s", pi0_test_path(dir, name));
    PI0_ASSERT_OK(pi0_synth(path, &options, &err), &err);
    struct stat file;
    if (hollow && stat(pi0_test_path(path, "model.safetensors"), &file) == 0)
        assert_true(file.st_size > (off_t)6e9 && file.st_blocks < 2048); /* the sizes are there, the bytes are not */
}

static pi0_model *open_model(const char *path, const pi0_options *like)
{
    pi0_error err = {0};
    pi0_model *model;
    pi0_options options = *like;
    options.threads = 2;
    PI0_ASSERT_OK(pi0_open(path, &options, &model, &err), &err);
    return model;
}

static pi0_session *open_session(pi0_model *model)
{
    pi0_error err = {0};
    pi0_session *session;
    PI0_ASSERT_OK(pi0_session_open(model, 1, &session, &err), &err);
    return session;
}

/* cameras: bit i for slot i; words: of the prompt. */
static void observe(pi0_session *session, int cameras, int words)
{
    static uint8_t pixels[SIDE * SIDE * 3];
    const pi0_array picture = {.name = "", .dtype = PI0_U8, .rank = 3, .shape = {SIDE, SIDE, 3}, .data = pixels, .bytes = sizeof pixels};
    const pi0_info *info = pi0_model_info(session->model);
    const double state[256] = {0.1, -0.2};
    char prompt[1024] = "go";
    pi0_error err = {0};
    for (int i = 1; i < words; i++)
        snprintf(prompt + strlen(prompt), sizeof prompt - strlen(prompt), " cube");
    for (int slot = 0; slot < info->n_slots; slot++)
        PI0_ASSERT_OK(pi0_set_image(session, info->slots[slot], cameras >> slot & 1 ? &picture : NULL, &err), &err);
    PI0_ASSERT_OK(pi0_set_state(session, state, (size_t)info->state_dim, &err), &err);
    PI0_ASSERT_OK(pi0_set_prompt(session, prompt, &err), &err);
}

static void infer_without_allocation(pi0_session **sessions, int n)
{
    pi0_error err = {0};
    const uint64_t before = pi0_allocation_count();
    pi0_test_fail_allocation(0);
    const pi0_status status = pi0_infer(sessions, (size_t)n, 2, &err);
    const long seen = pi0_test_allocation_count();
    pi0_test_allocation_failed();
    PI0_ASSERT_OK(status, &err);
    assert_int_equal(seen, 0);
    assert_int_equal(pi0_allocation_count() - before, 0);
}

/* ------------------------------------------------------------------ the planner */

static json_t *inspect(const char *path, const pi0_options *options)
{
    pi0_error err = {0};
    char *text;
    PI0_ASSERT_OK(pi0_inspect(path, options, &text, &err), &err);
    json_t *page = json_loads(text, 0, NULL);
    assert_non_null(page);
    pi0_text_free(&text);
    return page;
}

/* At most 1.10 times what is alive at once, for every plan of the published sizes, with the passes on and with all of them off. */
static void arenas_are_near_the_least_possible(void **state)
{
    (void)state;
    static const char *const models[] = {"pi0", "pi05"}, *const plans[] = {"context", "schedule", "denoise"};
    static const char *const off[] = {NULL, "drop-masked,last-layer-kv,fuse-qkv,fuse-gate-up,rope-table,fuse-rope,flash-attention,"
                                            "add-norm,geglu,state-kv,time-fold"};
    for (int m = 0; m < 2; m++) {
        char path[1024];
        make_checkpoint(models[m], "base", 1, path);
        for (int batch = 1; batch <= 8; batch++)
            for (int o = 0; o < (batch == 1 || batch == 8 ? 2 : 1); o++) {
                pi0_options options;
                pi0_options_init(&options);
                options.max_batch = batch;
                options.disable = off[o];
                json_t *page = inspect(path, &options), *all = json_object_get(page, "plans");
                assert_int_equal(json_integer_value(json_object_get(all, "batch")), batch);
                for (int p = 0; p < 3; p++) {
                    const json_t *plan = json_object_get(all, plans[p]);
                    assert_true(plan || (p == 1 && o == 1)); /* the schedule is time-fold's */
                    const double arena = (double)json_integer_value(json_object_get(plan, "arena_bytes"));
                    const double live = (double)json_integer_value(json_object_get(plan, "live_bytes"));
                    if (plan && !(live > 0 && live <= arena && arena <= 1.10 * live))
                        fail_msg("%s, %s, batch %d: %.0f bytes where %.0f are alive", models[m], plans[p], batch, arena, live);
                }
                json_decref(page);
            }
    }
}

/* ------------------------------------------------------------------ the plan */

static void the_lines_of_the_plan_add_up(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        pi0_options options;
        pi0_options_init(&options);
        options.precision = precisions[i];
        options.max_batch = 3;
        pi0_model *model = open_model(pi0_path, &options);
        const pi0_memory m = pi0_model_memory(model);
        const uint64_t weights = m.weights_mapped + m.weights_owned;
        assert_int_equal(weights, m.weights_f32 + m.weights_bf16 + m.weights_f16 + m.weights_int8);
        assert_true((m.weights_int8 > 0) == (i == 2) && (m.weights_bf16 > 0) == (i == 1));
        assert_int_equal(m.beside_weights, m.kv_cache + m.activations + m.workspace + m.host + 3 * m.session);
        assert_int_equal(m.total, weights + m.beside_weights);
        assert_true(m.token_table > 0 && m.kv_cache > 0 && m.activations > 0 && m.workspace > 0 && m.host > 0 && m.session > 0);
        /* what was taken is what was planned */
        uint64_t taken = model->arena.bytes + model->pictures.bytes + model->tokens.bytes + model->vision.bytes + model->state.bytes +
                         model->x.bytes + model->x_next.bytes + model->velocity.bytes,
                 cache = 0;
        for (int layer = 0; layer < PI0_MAX_LAYERS; layer++) {
            cache += model->k[layer].bytes + model->v[layer].bytes;
            taken += model->state_k[layer].bytes + model->state_v[layer].bytes;
        }
        for (int t = 0; t < PI0_MAX_TABLES; t++)
            taken += model->table[t].bytes;
        assert_int_equal(taken, m.activations);
        assert_int_equal(cache, m.kv_cache);
        assert_int_equal(model->workspace.bytes, m.workspace);
        /* and `pi0 inspect` knew it before */
        json_t *page = inspect(pi0_path, &options);
        const json_t *lines = json_object_get(page, "memory");
        for (size_t line = 0; pi0_memory_line_at(&m, line).name; line++)
            assert_int_equal(json_integer_value(json_object_get(lines, pi0_memory_line_at(&m, line).name)),
                             pi0_memory_line_at(&m, line).bytes);
        json_decref(page);
        pi0_close(&model);
    }
}

static void a_limit_is_kept_and_says_what_would_fit(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_options options;
    pi0_options_init(&options);
    pi0_model *model = open_model(pi0_path, &options);
    const uint64_t one = pi0_model_memory(model).total;
    pi0_close(&model);
    options.max_batch = 4;
    model = open_model(pi0_path, &options);
    const uint64_t four = pi0_model_memory(model).total;
    pi0_close(&model);

    options.memory_limit = four;
    model = open_model(pi0_path, &options);
    pi0_close(&model);
    options.memory_limit = four - 1;
    assert_int_equal(pi0_open(pi0_path, &options, &model, &err), PI0_ERR_MEMORY);
    pi0_test_assert_error(&err, PI0_ERR_MEMORY, "--memory-limit", "would fit: a batch of 3", "would fit: --precision int8", "K/V cache",
                          "--precision", NULL);
    options.memory_limit = one;
    assert_int_equal(pi0_open(pi0_path, &options, &model, &err), PI0_ERR_MEMORY);
    pi0_test_assert_error(&err, PI0_ERR_MEMORY, "would fit: a batch of 1", NULL);
    options.max_batch = 1;
    options.memory_limit = 1000;
    assert_int_equal(pi0_open(pi0_path, &options, &model, &err), PI0_ERR_MEMORY);
    pi0_test_assert_error(&err, PI0_ERR_MEMORY, "would not fit either: --precision int8", "a larger limit: at least", "--horizon", NULL);
}

/* ------------------------------------------------------------------ inferences */

static void no_inference_allocates(void **state)
{
    (void)state;
    const char *const paths[] = {pi0_path, pi05_path};
    for (int m = 0; m < 2; m++)
        for (int p = 0; p < 3; p++)
            for (int lanes = 1; lanes <= 3; lanes += 2) {
                pi0_options options;
                pi0_options_init(&options);
                options.precision = precisions[p];
                options.max_batch = lanes;
                pi0_model *model = open_model(paths[m], &options);
                pi0_session *sessions[4];
                for (int i = 0; i < lanes + 1; i++) { /* one in a turn of its own */
                    sessions[i] = open_session(model);
                    observe(sessions[i], 1 + i, 1 + 9 * i);
                }
                infer_without_allocation(sessions, lanes + 1); /* the very first */
                observe(sessions[0], 7, 30);
                infer_without_allocation(sessions, lanes + 1);
                for (int i = 0; i < lanes + 1; i++)
                    pi0_session_close(&sessions[i]);
                pi0_close(&model);
            }
}

/* Plans are made for the longest prompt and all cameras, once: what an observation has of them changes no buffer and no compiled plan. */
static void lengths_and_cameras_rebuild_nothing(void **state)
{
    (void)state;
    static const int cameras[] = {1, 7, 2, 3, 7, 4}, words[] = {1, 40, 3, 20, 2, 33};
    pi0_options options;
    pi0_options_init(&options);
    options.max_batch = 2;
    pi0_model *model = open_model(pi05_path, &options);
    pi0_session *sessions[] = {open_session(model), open_session(model)};
    pi0_error err = {0};
    for (int i = 0; i < 2; i++)
        observe(sessions[i], 7, 1);
    PI0_ASSERT_OK(pi0_infer(sessions, 2, 2, &err), &err);
    const pi0_program programs[] = {model->context, model->schedule, model->denoise};
    const pi0_buffer arena = model->arena, workspace = model->workspace;
    int least = PI0_MAX_TOKENS, most = 0;
    for (int i = 0; i < 6; i++) {
        observe(sessions[0], cameras[i], words[i]);
        observe(sessions[1], cameras[5 - i], words[(i + 2) % 6]);
        infer_without_allocation(sessions, 1 + i % 2);
        least = pi0_min_int(least, pi0_token_count(sessions[0]));
        most = pi0_max_int(most, pi0_token_count(sessions[0]));
        assert_memory_equal(&programs[0], &model->context, sizeof *programs);
        assert_memory_equal(&programs[1], &model->schedule, sizeof *programs);
        assert_memory_equal(&programs[2], &model->denoise, sizeof *programs);
        assert_memory_equal(&arena, &model->arena, sizeof arena);
        assert_memory_equal(&workspace, &model->workspace, sizeof workspace);
    }
    assert_true(most > least + 20);
    assert_int_equal(model->context.plan->max_rows[PI0_ROWS_PREFIX], 2 * (SLOTS * 256 + pi0_model_info(model)->max_tokens));
    for (int i = 0; i < 2; i++)
        pi0_session_close(&sessions[i]);
    pi0_close(&model);
}

/* ------------------------------------------------------------------ sessions */

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*s %llu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * pi0_page_bytes();
}

static bool under_sanitizer(void)
{
    const char *sanitizer = getenv("SANITIZE");
    return sanitizer != NULL && *sanitizer != '\0';
}

static void sessions_are_counted_and_give_their_pages_back(void **state)
{
    (void)state;
    enum { MANY = 24 };
    pi0_options options;
    pi0_options_init(&options);
    pi0_model *model = open_model(pi0_path, &options);
    pi0_session *sessions[MANY];
    const uint64_t one = pi0_model_memory(model).session, before = resident_bytes();
    for (int i = 0; i < MANY; i++) {
        sessions[i] = open_session(model);
        observe(sessions[i], 7, 10);
    }
    pi0_session_memory m = pi0_model_sessions(model);
    const uint64_t with_scratch = m.bytes, full = resident_bytes();
    assert_true(m.open == MANY && m.most_open == MANY && m.failures == 0);
    assert_true(m.bytes >= MANY * one && m.bytes == m.most_bytes && m.unused_bytes < MANY * pi0_page_bytes());
    /* those in between go: what is left is what the others hold */
    for (int i = 0; i < MANY; i += 2)
        pi0_session_close(&sessions[i]);
    m = pi0_model_sessions(model);
    assert_true(m.open == MANY / 2 && m.most_open == MANY && m.bytes == with_scratch / 2 && m.most_bytes == with_scratch);
    const uint64_t half = resident_bytes();
    for (int i = 1; i < MANY; i += 2)
        pi0_session_close(&sessions[i]);
    m = pi0_model_sessions(model);
    assert_true(m.open == 0 && m.bytes == 0 && m.unused_bytes == 0 && m.most_bytes == with_scratch);
    if (before && !under_sanitizer()) {
        assert_true(full >= before + MANY * one * 9 / 10);
        assert_true(half <= full - MANY / 2 * one * 9 / 10);
        assert_true(resident_bytes() <= before + MANY * one / 20);
    }
    pi0_close(&model);
}

static void a_session_that_is_refused_is_counted(void **state)
{
    (void)state;
    pi0_error err = {0};
    pi0_options options;
    pi0_options_init(&options);
    pi0_model *model = open_model(pi0_path, &options);
    pi0_session *session;
    pi0_test_fail_allocation(1);
    const pi0_status status = pi0_session_open(model, 1, &session, &err);
    assert_true(pi0_test_allocation_failed());
    assert_int_equal(status, PI0_ERR_MEMORY);
    assert_null(session);
    pi0_error_clear(&err);
    session = open_session(model);
    uint64_t failures = 1;
    for (long n = 1;; n++) { /* a longer prompt than any before */
        pi0_test_fail_allocation(n);
        const pi0_status refused = pi0_set_prompt(session, "put the cube into the bowl, then put the bowl onto the table", &err);
        if (!pi0_test_allocation_failed()) {
            PI0_ASSERT_OK(refused, &err);
            break;
        }
        assert_int_equal(refused, PI0_ERR_MEMORY);
        pi0_error_clear(&err);
        failures++;
    }
    assert_true(failures > 2);
    assert_int_equal(pi0_model_sessions(model).failures, failures);
    pi0_session_close(&session);
    assert_int_equal(pi0_model_sessions(model).bytes, 0);
    pi0_close(&model);
}

/* ------------------------------------------------------------------ warm */

/* After it an inference of any size brings no page into memory that was not there. */
static void a_warm_model_has_all_its_pages(void **state)
{
    (void)state;
    float actions[2][6 * 32];
    for (int warm = 0; warm < 2; warm++) {
        pi0_options options;
        pi0_options_init(&options);
        options.warm = warm;
        options.max_batch = 2;
        options.precision = "f32";
        pi0_model *model = open_model(pi0_path, &options);
        assert_int_equal(model->scheduled.steps, warm ? model->info.steps : 0);
        const pi0_session_memory m = pi0_model_sessions(model);
        assert_true(m.open == 0 && m.most_open == 0 && m.most_bytes == 0);
        pi0_session *sessions[] = {open_session(model), open_session(model)};
        pi0_error err = {0};
        observe(sessions[0], 7, 40);
        observe(sessions[1], 3, 5);
        const uint64_t before = resident_bytes();
        PI0_ASSERT_OK(pi0_infer(sessions, 2, 0, &err), &err);
        const uint64_t after = resident_bytes();
        if (before && !under_sanitizer()) {
            const uint64_t grown = after > before ? after - before : 0;
            if (warm ? grown > (uint64_t)512 << 10 : grown < (uint64_t)2 << 20)
                fail_msg("%s: an inference brought in %llu bytes", warm ? "warm" : "cold", (unsigned long long)grown);
        }
        memcpy(actions[warm], pi0_actions_raw(sessions[0], NULL, NULL), sizeof actions[warm]);
        pi0_session_close(&sessions[0]);
        pi0_session_close(&sessions[1]);
        pi0_close(&model);
    }
    assert_memory_equal(actions[0], actions[1], sizeof actions[0]);
}

static int make_models(void **state)
{
    (void)state;
    dir = pi0_test_make_dir();
    make_checkpoint("pi0", "tiny", 0, pi0_path);
    make_checkpoint("pi05", "tiny", 0, pi05_path);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    pi0_test_remove_dir(dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arenas_are_near_the_least_possible),      cmocka_unit_test(the_lines_of_the_plan_add_up),
        cmocka_unit_test(a_limit_is_kept_and_says_what_would_fit), cmocka_unit_test(no_inference_allocates),
        cmocka_unit_test(lengths_and_cameras_rebuild_nothing),     cmocka_unit_test(sessions_are_counted_and_give_their_pages_back),
        cmocka_unit_test(a_session_that_is_refused_is_counted),    cmocka_unit_test(a_warm_model_has_all_its_pages),
    };
    return cmocka_run_group_tests_name("memory", tests, make_models, remove_models);
}
