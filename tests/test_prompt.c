/* Prompts: cleaning, frames, the state in digits, the token limit; and the tokens of the reference set with the real tokenizer. */
#include "recipe_fixture.h"

#include "io/io.h"

/* A tokenizer that knows every byte, and nothing longer but the space: ids are 4 + byte. */
static pi0_tokenizer *byte_tokenizer(void)
{
    pi0_text json = {0};
    pi0_error err = {0};
    pi0_tokenizer *tokenizer = NULL;
    pi0_text_add(&json, "{\"version\": \"1.0\", \"added_tokens\": [");
    static const char *const special[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    for (int i = 0; i < 4; i++)
        pi0_text_add(&json,
                     "%s{\"id\": %d, \"content\": \"%s\", \"special\": true, \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                     "\"normalized\": false}",
                     i ? ", " : "", i, special[i]);
    pi0_text_add(
        &json,
        "], \"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\\u2581\"}, \"pre_tokenizer\": null,"
        " \"post_processor\": null, \"decoder\": null, \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": \"<unk>\","
        " \"fuse_unk\": true, \"byte_fallback\": true, \"vocab\": {");
    for (int i = 0; i < 4; i++)
        pi0_text_add(&json, "%s\"%s\": %d", i ? ", " : "", special[i], i);
    for (int i = 0; i < 256; i++)
        pi0_text_add(&json, ", \"<0x%02X>\": %d", (unsigned)i, 4 + i);
    pi0_text_add(&json, ", \"\\u2581\": 260}, \"merges\": []}}");
    PI0_ASSERT_OK(pi0_tokenizer_parse(json.data, json.length, true, "spm", "byte tokenizer", &tokenizer, &err), &err);
    pi0_text_release(&json);
    return tokenizer;
}

static void robot(fixture *f, const char *config, bool pi05, const char *dims)
{
    static char set[2][32];
    fixture_open(f, pi0_test_data("recipe/openpi"), PI0_LAYOUT_OPENPI, pi05);
    f->options.config = config;
    f->options.no_norm = 1;
    snprintf(set[0], sizeof set[0], "state.dim=%s", dims);
    snprintf(set[1], sizeof set[1], "action.dim=%s", dims);
    fixture_set(f, set[0]);
    fixture_set(f, set[1]);
}

/* The text that would be tokenized; free it. */
static char *framed(fixture *f, const char *prompt, const double *state, size_t *count)
{
    pi0_tokenizer *tokenizer = byte_tokenizer();
    int64_t ids[PI0_MAX_TOKENS];
    size_t n = 0;
    pi0_prompt_room room = {0};
    pi0_text_release(&f->lines);
    PI0_ASSERT_OK(pi0_recipe_prompt(f->recipe, tokenizer, prompt, state, &f->log, ids, PI0_MAX_TOKENS, count ? count : &n, &room, &f->err),
                  &f->err);
    pi0_tokenizer_close(&tokenizer);
    char *out = strdup(room.text.data);
    pi0_prompt_room_release(&room);
    return out;
}

static void assert_framed(fixture *f, const char *prompt, const double *state, const char *want)
{
    char *got = framed(f, prompt, state, NULL);
    assert_string_equal(got, want);
    free(got);
}

/* ------------------------------------------------------------------ the reference set */

static void the_tokens_of_every_golden_case(void **unused)
{
    (void)unused;
    const char *path = pi0_test_need_shared("tokenizer/gemma/tokenizer.json");
    for (int pass = 0; pass < 2; pass++) {
        const char *rules = pass ? "hf" : "spm";
        pi0_tokenizer *tokenizer = NULL;
        pi0_error err = {0};
        PI0_ASSERT_OK(pi0_tokenizer_open(path, rules, &tokenizer, &err), &err);
        for (int i = 0; i < N_GOLDENS; i++) {
            golden g;
            golden_open(&g, golden_names[i]);
            const pi0_array *want = golden_array(&g, "ref/tokens"), *prompt = pi0_arrays_find(g.arrays, "prompt");
            if (strcmp(pi0_recipe_get_facts(g.f.recipe)->tokenizer_rules, rules) == 0) {
                double state[PI0_MAX_DIM], text[PI0_MAX_DIM];
                float padded[32];
                int64_t ids[PI0_MAX_TOKENS];
                size_t n = 0;
                golden_state(&g, state);
                PI0_ASSERT_OK(pi0_recipe_state(g.f.recipe, state, 32, padded, text, &err), &err);
                PI0_ASSERT_OK(pi0_recipe_prompt(g.f.recipe, tokenizer, prompt ? prompt->data : NULL, text, &g.f.log, ids, PI0_MAX_TOKENS,
                                                &n, NULL, &err),
                              &err);
                if (n != pi0_array_count(want) || memcmp(ids, want->data, n * sizeof *ids) != 0)
                    fail_msg("%s: other tokens than the reference's (%zu, %zu)", g.name, n, pi0_array_count(want));
                assert_int_equal(fixture_logged(&g.f, "is cut to 48"), strcmp(g.name, "openpi_pi0_long_prompt") == 0);
            }
            golden_close(&g);
        }
        pi0_tokenizer_close(&tokenizer);
    }
}

/* ------------------------------------------------------------------ digits */

static void D2_digits_below_between_and_above_the_edges(void **unused)
{
    (void)unused;
    fixture f;
    robot(&f, "pi05_droid", true, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    const double a[8] = {-1, 0, 1, 2, -2, .5, -.5, .999};
    assert_framed(&f, "go", a, "Task: go, State: 0 128 255 255 -1 192 64 255;\nAction: ");
    const double b[8] = {nextafter(-1, -2), nextafter(0.9921875, 0), 0.9921875, nextafter(1, 0), nextafter(0, -1), 1e-300, -1e-18,
                         nextafter(0.5, 0)};
    assert_framed(&f, "go", b, "Task: go, State: -1 254 255 255 127 128 127 191;\nAction: ");
    fixture_close(&f);
}

static void every_edge_belongs_to_the_bin_above(void **unused)
{
    (void)unused;
    fixture f;
    robot(&f, "pi05_droid", true, "2");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    for (int k = 0; k < 256; k++) {
        double edge = -1 + k / 128.0, state[2] = {edge, nextafter(edge, -2)};
        char want[64];
        snprintf(want, sizeof want, "Task: , State: %d %d;\nAction: ", k, k - 1);
        assert_framed(&f, "", state, want);
    }
    fixture_close(&f);
}

static void openpi_halfway_is_bin_127(void **unused)
{
    (void)unused;
    fixture f;
    fixture_open(&f, pi0_test_data("recipe/openpi"), PI0_LAYOUT_OPENPI, true);
    f.options.config = "pi05_droid";
    static const char *const sets[] = {"state.dim=4",       "action.dim=4",       "state.q01=0,0,0,0",
                                       "state.q99=1,1,1,1", "action.q01=0,0,0,0", "action.q99=1,1,1,1"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++)
        fixture_set(&f, sets[i]);
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    const double raw[4] = {0.5, 0.25, 0, 1};
    double text[4];
    float padded[32];
    PI0_ASSERT_OK(pi0_recipe_state(f.recipe, raw, 32, padded, text, &f.err), &f.err);
    assert_framed(&f, "go", text, "Task: go, State: 127 63 0 255;\nAction: ");
    fixture_close(&f);
}

static void D1_the_state_is_padded_only_for_lerobot_04(void **unused)
{
    (void)unused;
    fixture f;
    const double zero[8] = {0};
    robot(&f, "pi05_droid", true, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_framed(&f, "go", zero, "Task: go, State: 128 128 128 128 128 128 128 128;\nAction: ");
    fixture_set(&f, "prompt.state_pad=32");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    char *text = framed(&f, "go", zero, NULL);
    int times = 0;
    for (const char *at = text; (at = strstr(at, "128")) != NULL; at += 3)
        times++;
    assert_int_equal(times, 32);
    free(text);
    fixture_close(&f);
}

/* ------------------------------------------------------------------ text */

static void D3_each_family_cleans_in_its_own_way(void **unused)
{
    (void)unused;
    static const char odd[] = "  pick_up the\nred_block ";
    fixture f;
    robot(&f, "pi0_droid", false, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_framed(&f, odd, NULL, "pick up the red block\n");
    assert_framed(&f, "\t\xc2\xa0\xe3\x80\x80_x \xe2\x80\x83\n", NULL, " x\n"); /* Unicode spaces go, the underscore's space stays */
    assert_framed(&f, " \n", NULL, "\n");
    fixture_close(&f);

    golden g;
    golden_open(&g, "lerobot_pi0");
    assert_framed(&g.f, odd, NULL, "  pick_up the\nred_block \n");
    assert_framed(&g.f, "done\n", NULL, "done\n");
    golden_close(&g);
}

static void the_newline_of_openpi_pi0_is_a_token_of_its_own(void **unused)
{
    (void)unused;
    fixture f;
    robot(&f, "pi0_droid", false, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    pi0_tokenizer *tokenizer = byte_tokenizer();
    int64_t ids[8];
    size_t n = 0;
    PI0_ASSERT_OK(pi0_recipe_prompt(f.recipe, tokenizer, "a b", NULL, &f.log, ids, 8, &n, NULL, &f.err), &f.err);
    const int64_t want[] = {2, 4 + 'a', 260, 4 + 'b', 4 + '\n'};
    assert_int_equal(n, 5);
    assert_memory_equal(ids, want, sizeof want);
    pi0_tokenizer_close(&tokenizer);
    fixture_close(&f);
}

static void D4_a_long_prompt_is_cut_with_a_warning_or_refused(void **unused)
{
    (void)unused;
    char words[80];
    size_t n = 0;
    fixture f;
    memset(words, 'x', sizeof words - 1);
    words[sizeof words - 1] = 0;
    robot(&f, "pi0_droid", false, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    free(framed(&f, words, NULL, &n));
    assert_int_equal(n, 48);
    assert_true(fixture_logged(&f, "! the prompt has 81 tokens"));
    words[46] = 0; /* bos, 46, newline: exactly 48 */
    free(framed(&f, words, NULL, &n));
    assert_int_equal(n, 48);
    assert_null(f.lines.data);
    words[46] = 'x';
    fixture_set(&f, "prompt.overflow=error");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    pi0_tokenizer *tokenizer = byte_tokenizer();
    int64_t ids[64];
    assert_int_equal(pi0_recipe_prompt(f.recipe, tokenizer, words, NULL, &f.log, ids, 64, &n, NULL, &f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "48", "81", NULL);
    pi0_tokenizer_close(&tokenizer);
    fixture_close(&f);
}

static void a_very_long_prompt_uses_the_heap(void **unused)
{
    (void)unused;
    static char words[PI0_MAX_PROMPT_BYTES + 2];
    size_t n = 0;
    fixture f;
    memset(words, 'x', PI0_MAX_PROMPT_BYTES + 1);
    robot(&f, "pi0_droid", false, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    pi0_tokenizer *tokenizer = byte_tokenizer();
    int64_t ids[64];
    assert_int_equal(pi0_recipe_prompt(f.recipe, tokenizer, words, NULL, &f.log, ids, 64, &n, NULL, &f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "65536", NULL);
    words[5000] = 0;
    for (long fail = 1;; fail++) {
        pi0_test_fail_allocation(fail);
        pi0_status status = pi0_recipe_prompt(f.recipe, tokenizer, words, NULL, NULL, ids, 64, &n, NULL, &f.err);
        if (!pi0_test_allocation_failed()) {
            PI0_ASSERT_OK(status, &f.err);
            break;
        }
        assert_int_equal(status, PI0_ERR_MEMORY);
        pi0_error_clear(&f.err);
    }
    assert_int_equal(n, 48);
    pi0_tokenizer_close(&tokenizer);
    fixture_close(&f);
}

static void D11_no_prompt_is_an_error_unless_there_is_a_default(void **unused)
{
    (void)unused;
    fixture f;
    robot(&f, "pi0_droid", false, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    pi0_tokenizer *tokenizer = byte_tokenizer();
    int64_t ids[64];
    size_t n;
    assert_int_equal(pi0_recipe_prompt(f.recipe, tokenizer, NULL, NULL, &f.log, ids, 64, &n, NULL, &f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "no prompt", "--prompt", NULL);
    assert_int_equal(pi0_recipe_prompt(f.recipe, tokenizer, "a\xff", NULL, &f.log, ids, 64, &n, NULL, &f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "UTF-8", "byte 1", NULL);
    fixture_set(&f, "prompt.default=fold_it");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_framed(&f, NULL, NULL, "fold it\n");
    fixture_close(&f);
    robot(&f, "pi05_droid", true, "8");
    PI0_ASSERT_OK(fixture_load(&f), &f.err);
    assert_int_equal(pi0_recipe_prompt(f.recipe, tokenizer, "x", NULL, &f.log, ids, 64, &n, NULL, &f.err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&f.err, PI0_ERR_ARGUMENT, "state", NULL);
    pi0_tokenizer_close(&tokenizer);
    fixture_close(&f);
}

static void A14_four_recipes_for_one_robot(void **unused)
{
    (void)unused;
    static const struct {
        const char *config, *pad, *want, *horizon;
    } rows[] = {
        {"pi05_libero", "prompt.state_pad=0", "pick up\n", "10"},                               /* openpi: the state is not in the prompt */
        {"pi05_droid", "prompt.state_pad=0", "Task: pick up, State: 128 192;\nAction: ", "15"}, /* openpi, LeRobot since 0.5 */
        {"pi05_droid", "prompt.state_pad=4", "Task: pick up, State: 128 192 128 128;\nAction: ", "15"}, /* LeRobot 0.4, with 4 for 32 */
        {"pi05_aloha", "prompt.state_pad=0", "Task: pick up, State: 128 192;\nAction: ", "50"},
    };
    const double state[2] = {0, 0.5};
    for (size_t i = 0; i < 4; i++) {
        fixture f;
        robot(&f, rows[i].config, true, "2");
        fixture_set(&f, rows[i].pad);
        fixture_set(&f, "state.flip=");
        fixture_set(&f, "action.flip=");
        fixture_set(&f, "state.gripper.index=");
        fixture_set(&f, "action.gripper.index=");
        fixture_set(&f, "action.delta=");
        PI0_ASSERT_OK(fixture_load(&f), &f.err);
        assert_framed(&f, "pick_up", state, rows[i].want);
        assert_field(&f, "action.horizon", rows[i].horizon);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tokens_of_every_golden_case),
        cmocka_unit_test(D2_digits_below_between_and_above_the_edges),
        cmocka_unit_test(every_edge_belongs_to_the_bin_above),
        cmocka_unit_test(openpi_halfway_is_bin_127),
        cmocka_unit_test(D1_the_state_is_padded_only_for_lerobot_04),
        cmocka_unit_test(D3_each_family_cleans_in_its_own_way),
        cmocka_unit_test(the_newline_of_openpi_pi0_is_a_token_of_its_own),
        cmocka_unit_test(D4_a_long_prompt_is_cut_with_a_warning_or_refused),
        cmocka_unit_test(a_very_long_prompt_uses_the_heap),
        cmocka_unit_test(D11_no_prompt_is_an_error_unless_there_is_a_default),
        cmocka_unit_test(A14_four_recipes_for_one_robot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
