/* ctest: timeout=400 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"

#define MAX_IDS 4096

/* ------------------------------------------------------------------ helpers */

static pi0_tokenizer *open_file(const char *path, const char *rules)
{
    pi0_error err = {0};
    pi0_tokenizer *t = NULL;
    PI0_ASSERT_OK(pi0_tokenizer_open(path, rules, &t, &err), &err);
    assert_non_null(t);
    return t;
}

static pi0_tokenizer *open_data(const char *name, const char *rules)
{
    return open_file(pi0_test_data(name), rules);
}

/* The file with the first `from` replaced by `to`; malloc'ed. */
static char *edited(const char *name, const char *from, const char *to, size_t *bytes)
{
    char *text = pi0_test_read_file(pi0_test_data(name), bytes);
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("%s does not hold %s", name, from);
    size_t before = (size_t)(at - text), after = *bytes - before - strlen(from);
    char *out = malloc(*bytes + strlen(to) + 1);
    assert_non_null(out);
    memcpy(out, text, before);
    memcpy(out + before, to, strlen(to));
    memcpy(out + before + strlen(to), at + strlen(from), after + 1);
    *bytes = before + strlen(to) + after;
    free(text);
    return out;
}

static pi0_scratch kept; /* dirty from the call before, of whichever tokenizer */

static void assert_ids(const pi0_tokenizer *t, const char *label, const char *text, size_t bytes, int bos, const int64_t *expected,
                       size_t n_expected)
{
    int64_t ids[MAX_IDS];
    size_t count = 0;
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_tokenizer_encode_in(t, text, bytes, bos, ids, MAX_IDS, &count, &kept, &err), &err);
    assert_true(kept.bytes >= pi0_tokenizer_room(t, 0) && pi0_tokenizer_bytes(t) > 0);
    size_t same = 0;
    while (same < count && same < n_expected && ids[same] == expected[same])
        same++;
    if (same != count || same != n_expected)
        fail_msg("%s, \"%.*s\": %zu ids for %zu, first difference at %zu: %lld for %lld", label, (int)bytes, text, count, n_expected, same,
                 same < count ? (long long)ids[same] : -1, same < n_expected ? (long long)expected[same] : -1);
}

typedef struct bytes_reader {
    const uint8_t *at, *end;
} bytes_reader;

static uint32_t take_number(bytes_reader *r, size_t bytes)
{
    uint32_t value = 0;
    assert_true((size_t)(r->end - r->at) >= bytes);
    memcpy(&value, r->at, bytes);
    r->at += bytes;
    return value;
}

static const char *take_text(bytes_reader *r, size_t *bytes)
{
    *bytes = take_number(r, 2);
    assert_true((size_t)(r->end - r->at) >= *bytes);
    r->at += *bytes;
    return (const char *)r->at - *bytes;
}

/* Returns false, and leaves ids alone, for "the same as before". */
static bool take_ids(bytes_reader *r, int64_t *ids, size_t *count)
{
    size_t n = take_number(r, 2);
    if (n == 65535)
        return false;
    assert_true(n <= MAX_IDS);
    for (size_t i = 0; i < n; i++)
        ids[i] = take_number(r, 2);
    *count = n;
    return true;
}

/* ------------------------------------------------------------------ against the reference libraries */

/* cases.bin of tools/make_tokenizer_data.py: each list of ids, and the files and rules that must give it */
static const struct {
    int list;
    const char *file, *rules;
} readings[] = {
    {0, "tokenizer/small.model", "spm"},
    {0, "tokenizer/small.model", NULL},
    {0, "tokenizer/small_old.json", "spm"},
    {0, "tokenizer/small_new.json", "spm"},
    {1, "tokenizer/small_old.json", "hf"},
    {1, "tokenizer/small_old.json", NULL},
    {2, "tokenizer/small_new.json", "hf"},
    {2, "tokenizer/small.model", "hf"},
    {3, "tokenizer/plain.model", "spm"},
    {4, "tokenizer/odd.json", "hf"},
    {5, "odd fused", "hf"},
};
#define N_READINGS (sizeof readings / sizeof readings[0])
#define N_LISTS 6

static pi0_tokenizer *open_reading(size_t i)
{
    if (strcmp(readings[i].file, "odd fused") != 0)
        return open_data(readings[i].file, readings[i].rules);
    size_t bytes;
    pi0_error err = {0};
    pi0_tokenizer *t = NULL;
    char *text = edited("tokenizer/odd.json", "\"fuse_unk\":false", "\"fuse_unk\":true", &bytes);
    PI0_ASSERT_OK(pi0_tokenizer_parse(text, bytes, true, "hf", "odd fused", &t, &err), &err);
    free(text);
    return t;
}

static void ids_are_the_reference_libraries(void **state)
{
    (void)state;
    size_t bytes, text_bytes, count = 0;
    pi0_tokenizer *t[N_READINGS];
    uint8_t *file = pi0_test_read_file(pi0_test_data("tokenizer/cases.bin"), &bytes);
    bytes_reader r = {file, file + bytes};
    for (size_t i = 0; i < N_READINGS; i++)
        t[i] = open_reading(i);
    uint32_t n_cases = take_number(&r, 4);
    assert_true(n_cases >= 2500);
    for (uint32_t c = 0; c < n_cases; c++) {
        int64_t ids[MAX_IDS];
        const char *text = take_text(&r, &text_bytes);
        for (int list = 0; list < N_LISTS; list++) {
            take_ids(&r, ids, &count);
            for (size_t i = 0; i < N_READINGS; i++)
                if (readings[i].list == list)
                    assert_ids(t[i], readings[i].file, text, text_bytes, 0, ids, count);
        }
    }
    assert_ptr_equal(r.at, r.end);
    for (size_t i = 0; i < N_READINGS; i++)
        pi0_tokenizer_close(&t[i]);
    free(file);
}

static void assert_decoded(const pi0_tokenizer *t, const int64_t *ids, size_t count, const char *expected, size_t bytes)
{
    char *text = NULL;
    pi0_error err = {0};
    PI0_ASSERT_OK(pi0_tokenizer_decode(t, ids, count, &text, &err), &err);
    if (strlen(text) != bytes || memcmp(text, expected, bytes) != 0)
        fail_msg("decoded \"%s\" for \"%.*s\"", text, (int)bytes, expected);
    pi0_text_free(&text);
}

static void text_is_the_reference_libraries(void **state)
{
    (void)state;
    size_t bytes, count = 0, text_bytes;
    uint8_t *file = pi0_test_read_file(pi0_test_data("tokenizer/decode.bin"), &bytes);
    bytes_reader r = {file, file + bytes};
    pi0_tokenizer *hf = open_data("tokenizer/small_old.json", "hf"), *spm = open_data("tokenizer/small.model", "spm");
    for (uint32_t n = take_number(&r, 4); n > 0; n--) {
        int64_t ids[MAX_IDS];
        take_ids(&r, ids, &count);
        const char *text = take_text(&r, &text_bytes);
        assert_decoded(hf, ids, count, text, text_bytes);
        text = take_text(&r, &text_bytes);
        assert_decoded(spm, ids, count, text, text_bytes);
    }
    assert_ptr_equal(r.at, r.end);
    static const int64_t special[] = {2, 0, 3, 1};
    assert_decoded(spm, special, 4, "<bos><pad><unk><eos>", 20);
    assert_decoded(hf, special, 4, "<bos><pad><unk><eos>", 20);
    assert_decoded(hf, special, 0, "", 0);
    pi0_tokenizer_close(&hf);
    pi0_tokenizer_close(&spm);
    free(file);
}

static size_t read_ids(const json_t *line, const char *key, int64_t *ids)
{
    const json_t *list = json_object_get(line, key);
    size_t count = json_array_size(list);
    assert_true(count <= MAX_IDS);
    for (size_t i = 0; i < count; i++)
        ids[i] = json_integer_value(json_array_get(list, i));
    return count;
}

static void ids_of_the_real_gemma_vocabulary(void **state)
{
    (void)state;
    size_t bytes, n_lines = 0;
    char *cases = pi0_test_read_file(pi0_test_need_shared("goldens/tokenizer_cases.jsonl"), &bytes);
    const char *path = pi0_test_need_shared("tokenizer/gemma/tokenizer.json");
    pi0_tokenizer *hf = open_file(path, "hf"), *spm = open_file(path, "spm");
    assert_int_equal(pi0_tokenizer_vocab(hf), 256000);
    for (char *line = cases, *end; (end = strchr(line, '\n')); line = end + 1, n_lines++) {
        int64_t ids[MAX_IDS];
        json_t *value = NULL;
        pi0_error err = {0};
        PI0_ASSERT_OK(pi0_json_parse(line, (size_t)(end - line), "a case", &value, &err), &err);
        const char *text = json_string_value(json_object_get(value, "text"));
        size_t count = read_ids(value, "hf", ids);
        assert_ids(hf, "hf", text, strlen(text), 1, ids, count);
        count = read_ids(value, "hf_noadd", ids);
        assert_ids(hf, "hf without BOS", text, strlen(text), 0, ids, count);
        count = read_ids(value, "spm", ids);
        assert_ids(spm, "spm", text, strlen(text), 1, ids, count);
        json_decref(value);
    }
    assert_true(n_lines >= 100);
    pi0_tokenizer_close(&hf);
    pi0_tokenizer_close(&spm);
    free(cases);
}

/* ------------------------------------------------------------------ the calls */

static void room_and_bos(void **state)
{
    (void)state;
    int64_t ids[8] = {-7, -7, -7};
    size_t count = 99;
    pi0_error err = {0};
    pi0_tokenizer *t = open_data("tokenizer/small.model", NULL);
    PI0_ASSERT_OK(pi0_tokenizer_encode(t, "", 0, 0, NULL, 0, &count, &err), &err);
    assert_int_equal(count, 0);
    PI0_ASSERT_OK(pi0_tokenizer_encode(t, "", 0, 1, ids, 8, &count, &err), &err);
    assert_int_equal(count, 1);
    assert_int_equal(ids[0], 2);
    PI0_ASSERT_OK(pi0_tokenizer_encode(t, "\xc6\xb5", 2, 1, NULL, 0, &count, &err), &err);
    assert_int_equal(count, 3);
    ids[2] = -7;
    assert_int_equal(pi0_tokenizer_encode(t, "\xc6\xb5", 2, 1, ids, 2, &count, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "room for 3", "room for 2", NULL);
    assert_int_equal(count, 3);
    assert_int_equal(ids[2], -7);
    PI0_ASSERT_OK(pi0_tokenizer_encode(t, "\xc6\xb5", 2, 1, ids, 3, &count, &err), &err);
    pi0_tokenizer_close(&t);
    pi0_tokenizer_close(&t);
    pi0_tokenizer_close(NULL);
}

static void text_that_is_not_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text, *where;
    } bad[] = {{"\xff", "byte 0 "},       {"abc\x80", "byte 3 "},          {"a\xc3", "byte 1 "},     {"\xed\xa0\x80", "byte 0 "},
               {"ab\xc0\x80", "byte 2 "}, {"\xf4\x90\x80\x80", "byte 0 "}, {"\xe2\x82 x", "byte 0 "}};
    pi0_tokenizer *t = open_data("tokenizer/small.model", NULL);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t count;
        pi0_error err = {0};
        assert_int_equal(pi0_tokenizer_encode(t, bad[i].text, strlen(bad[i].text), 1, NULL, 0, &count, &err), PI0_ERR_ARGUMENT);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "UTF-8", bad[i].where, NULL);
    }
    pi0_tokenizer_close(&t);
}

/* Every rule on texts in which almost every position competes: what comes out must spell what went in. */
static void long_texts_survive(void **state)
{
    (void)state;
    static const char *const units[] = {"a", "the ", "\n", " ", "<b>", "\xf0\x9f\xa7\xbd", "\t"};
    enum { BYTES = 65536 };
    char *text = malloc(BYTES + 8);
    int64_t *ids = malloc(BYTES * sizeof *ids * 4);
    assert_true(text && ids);
    for (size_t i = 0; i < N_READINGS; i++) {
        pi0_tokenizer *t = open_reading(i);
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            size_t n = 0, count;
            for (size_t step = strlen(units[u]); n + step <= BYTES; n += step)
                memcpy(text + n, units[u], step);
            pi0_error err = {0};
            PI0_ASSERT_OK(pi0_tokenizer_encode(t, text, n, 0, ids, BYTES * 4, &count, &err), &err);
            assert_true(count > 0);
            if (readings[i].list < 3)
                assert_decoded(t, ids, count, text, n);
        }
        pi0_tokenizer_close(&t);
    }
    free(text);
    free(ids);
}

static void D7_token_id_outside_the_vocabulary(void **state)
{
    (void)state;
    pi0_tokenizer *t = open_data("tokenizer/small.model", NULL);
    int64_t size = (int64_t)pi0_tokenizer_vocab(t);
    const int64_t bad[] = {300000, size, -1, INT64_MIN, INT64_MAX, (int64_t)1 << 32};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const int64_t ids[2] = {size - 1, bad[i]};
        char *text = NULL;
        pi0_error err = {0};
        assert_int_equal(pi0_tokenizer_decode(t, ids, 2, &text, &err), PI0_ERR_ARGUMENT);
        assert_null(text);
        pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "ids[1]", NULL);
    }
    pi0_tokenizer_close(&t);
}

/* ------------------------------------------------------------------ bad files */

static void assert_refused(const void *data, size_t bytes, bool is_json, const char *rules, pi0_status status, const char *text)
{
    pi0_error err = {0};
    pi0_tokenizer *t = NULL;
    pi0_status got = pi0_tokenizer_parse(data, bytes, is_json, rules, "a-file", &t, &err);
    if (got != status)
        fail_msg("%s: status %s", text, pi0_status_name(got));
    assert_null(t);
    pi0_test_assert_error(&err, status, text, status == PI0_ERR_ARGUMENT ? NULL : "a-file", NULL);
}

static void D6_file_of_another_kind(void **state)
{
    (void)state;
    static const char config[] = "{\"model_max_length\": 48, \"tokenizer_class\": \"GemmaTokenizer\"}";
    static const char unigram[] = "{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0.0]]}}";
    static const char wordpiece[] = "{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"u\", \"vocab\": {\"u\": 0}}}";
    static const char header[] = "\x20\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\"}}";
    assert_refused(config, sizeof config - 1, true, NULL, PI0_ERR_FORMAT, "tokenizer_config.json");
    assert_refused(unigram, sizeof unigram - 1, true, NULL, PI0_ERR_UNSUPPORTED, "Unigram");
    assert_refused(wordpiece, sizeof wordpiece - 1, true, NULL, PI0_ERR_UNSUPPORTED, "WordPiece");
    assert_refused("[]", 2, true, NULL, PI0_ERR_FORMAT, "tokenizer.json");
    assert_refused("{}", 2, true, NULL, PI0_ERR_FORMAT, "\"model\"");
    assert_refused("{\"model\":{\"type\":\"BPE\"}}", 24, true, NULL, PI0_ERR_FORMAT, "model.vocab");
    assert_refused("{\"model\":{\"vocab\":{}}}", 22, true, NULL, PI0_ERR_FORMAT, "model.merges");
    assert_refused(header, sizeof header - 1, false, NULL, PI0_ERR_FORMAT, "SentencePiece");
    assert_refused("hello, world", 12, false, NULL, PI0_ERR_FORMAT, "SentencePiece");
    assert_refused("", 0, true, NULL, PI0_ERR_FORMAT, "empty");
    for (int is_json = 0; is_json < 2; is_json++) {
        assert_refused("version https://git-lfs.github.com/spec/v1\n", 43, is_json, NULL, PI0_ERR_FORMAT, "Git LFS pointer");
        assert_refused("<html></html>", 13, is_json, NULL, PI0_ERR_FORMAT, "web page");
    }
    assert_refused("{}", 2, true, "wordpiece", PI0_ERR_ARGUMENT, "hf");
    pi0_error err = {0};
    pi0_tokenizer *t = NULL;
    assert_int_not_equal(pi0_tokenizer_open(pi0_test_data("tokenizer"), NULL, &t, &err), PI0_OK);
    pi0_error_clear(&err);
    assert_int_not_equal(pi0_tokenizer_open("/nonexistent/tokenizer.json", NULL, &t, &err), PI0_OK);
    pi0_error_clear(&err);
}

static void D6_kind_is_told_by_content(void **state)
{
    (void)state;
    size_t bytes;
    pi0_error err = {0};
    pi0_tokenizer *t = NULL;
    char *dir = pi0_test_make_dir();
    void *model = pi0_test_read_file(pi0_test_data("tokenizer/small.model"), &bytes);
    pi0_test_write_file(pi0_test_path(dir, "tokenizer"), model, bytes);
    t = open_file(pi0_test_path(dir, "tokenizer"), NULL);
    pi0_tokenizer_close(&t);
    free(model);
    char *json = pi0_test_read_file(pi0_test_data("tokenizer/small_old.json"), &bytes);
    pi0_test_write_file(pi0_test_path(dir, "renamed.model"), json, bytes);
    t = open_file(pi0_test_path(dir, "renamed.model"), "spm");
    pi0_tokenizer_close(&t);
    free(json);
    pi0_test_write_file(pi0_test_path(dir, "x.json"), "oops", 4);
    assert_int_equal(pi0_tokenizer_open(pi0_test_path(dir, "x.json"), NULL, &t, &err), PI0_ERR_FORMAT);
    pi0_test_assert_error(&err, PI0_ERR_FORMAT, "x.json", "JSON", NULL);
    pi0_test_remove_dir(dir);
}

static void json_edits_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *rules;
        pi0_status status;
        const char *text;
    } edits[] = {
        {"\"<pad>\":0", "\"<eos>\":0", "hf", PI0_ERR_FORMAT, "twice"},
        {"\"<pad>\":0", "\"<pad>\":1", "hf", PI0_ERR_FORMAT, "same id"},
        {"\"<pad>\":0", "\"<pad>\":-1", "hf", PI0_ERR_FORMAT, "whole number"},
        {"\"<pad>\":0", "\"<pad>\":00", "hf", PI0_ERR_FORMAT, "whole number"},
        {"\"<pad>\":0", "\"<pad>\":1.5", "hf", PI0_ERR_FORMAT, "','"},
        {"\"<pad>\":0", "\"<pad>\":99999999999", "hf", PI0_ERR_FORMAT, "range"},
        {"\"<pad>\":0", "\"<pad>\":\"0\"", "hf", PI0_ERR_FORMAT, "whole number"},
        {"\"<pad>\":0", "\"\":0", "hf", PI0_ERR_FORMAT, "empty"},
        {"\"<pad>\":0", "\"\\ud800\":0", "hf", PI0_ERR_FORMAT, "surrogates"},
        {"\"<pad>\":0", "\"\\q\":0", "hf", PI0_ERR_FORMAT, "escape"},
        {"\"<pad>\":0", "\"\xff\":0", "hf", PI0_ERR_FORMAT, "UTF-8"},
        {"\"<pad>\":0", "\"\n\":0", "hf", PI0_ERR_FORMAT, "UTF-8"},
        {"\"merges\":[", "\"merges\":[\"the zz\",", "hf", PI0_ERR_FORMAT, "\"zz\""},
        {"\"merges\":[", "\"merges\":[\"the zz\",", "spm", PI0_ERR_FORMAT, "model.merges[0]"},
        {"\"merges\":[", "\"merges\":[\"a b c\",", "hf", PI0_ERR_FORMAT, "one space"},
        {"\"merges\":[", "\"merges\":[\"ab\",", "hf", PI0_ERR_FORMAT, "one space"},
        {"\"merges\":[", "\"merges\":[[\"a\"],", "hf", PI0_ERR_FORMAT, "two parts"},
        {"\"merges\":[", "\"merges\":[[\"a\",\"b\",\"c\"],", "hf", PI0_ERR_FORMAT, "two parts"},
        {"\"merges\":[", "\"merges\":[7,", "hf", PI0_ERR_FORMAT, "string"},
        {"\"merges\":[", "\"merges\":[],\"more\":[", "hf", PI0_OK, ""},
        {"\"merges\":[", "\"merges\":{},\"more\":[", "hf", PI0_ERR_FORMAT, "array"},
        {"\"vocab\":{", "\"vocab\":[],\"more\":{", "hf", PI0_ERR_FORMAT, "object"},
        {"\"vocab\":{", "\"vocab\":{},\"vocab\":{", "hf", PI0_ERR_FORMAT, "vocab"},
        {"\"byte_fallback\":true", "\"byte_fallback\":1", "hf", PI0_ERR_FORMAT, "byte_fallback"},
        {"\"fuse_unk\":true", "\"fuse_unk\":\"yes\"", "hf", PI0_ERR_FORMAT, "fuse_unk"},
        {"\"dropout\":null", "\"dropout\":0.1", "hf", PI0_ERR_UNSUPPORTED, "dropout"},
        {"\"end_of_word_suffix\":null", "\"end_of_word_suffix\":\"</w>\"", "hf", PI0_ERR_UNSUPPORTED, "suffix"},
        {"\"unk_token\":\"<unk>\"", "\"unk_token\":\"<what>\"", "hf", PI0_ERR_FORMAT, "<what>"},
        {"\"unk_token\":\"<unk>\"", "\"unk_token\":5", "hf", PI0_ERR_FORMAT, "unk_token"},
        {"\"type\":\"BPE\"", "\"type\":\"WordLevel\"", "hf", PI0_ERR_UNSUPPORTED, "WordLevel"},
        {"\"version\":\"1.0\"", "\"version\":\"2.0\"", "hf", PI0_ERR_UNSUPPORTED, "2.0"},
        {"\"single_word\":false", "\"single_word\":true", "hf", PI0_ERR_UNSUPPORTED, "single_word"},
        {"\"id\":0,\"content\"", "\"id\":7,\"content\"", "hf", PI0_ERR_FORMAT, "contradicts"},
        {"\"content\":\"<pad>\"", "\"content\":\"<new>\"", "hf", PI0_ERR_FORMAT, "<new>"},
        {"\"content\":\"<pad>\"", "\"content\":null", "hf", PI0_ERR_FORMAT, "content"},
        {"\"ids\":[2]", "\"ids\":[3]", "hf", PI0_ERR_FORMAT, "contradicts"},
        {"\"ids\":[2]", "\"ids\":[2,2]", "hf", PI0_ERR_UNSUPPORTED, "post_processor"},
        {"{\"Sequence\":{\"id\":\"A\"", "{\"Sequence\":{\"id\":\"B\"", "hf", PI0_ERR_UNSUPPORTED, "post_processor"},
        {"\"TemplateProcessing\"", "\"RobertaProcessing\"", "hf", PI0_ERR_UNSUPPORTED, "RobertaProcessing"},
        {"\"normalizer\":{\"type\":\"Replace\"", "\"normalizer\":{\"type\":\"NFKC\"", "hf", PI0_ERR_UNSUPPORTED, "NFKC"},
        {"{\"String\":\" \"}", "{\"String\":\"  \"}", "hf", PI0_ERR_UNSUPPORTED, "normalizer"},
        {"\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"ByteLevel\"}", "hf", PI0_ERR_UNSUPPORTED, "ByteLevel"},
        {"\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"x\"}}", "hf", PI0_ERR_UNSUPPORTED,
         "Split"},
        {"\"ByteFallback\"", "\"WordPiece\"", "hf", PI0_ERR_UNSUPPORTED, "WordPiece"},
        {"\"<0x41>\":", "\"<0x4?>\":", "spm", PI0_ERR_UNSUPPORTED, "<0xFF>"},
        {"\"added_tokens\":[", "\"added_tokens\":5,\"more\":[", "hf", PI0_ERR_FORMAT, "added_tokens"},
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        size_t bytes;
        pi0_error err = {0};
        pi0_tokenizer *t = NULL;
        char *text = edited("tokenizer/small_old.json", edits[i].from, edits[i].to, &bytes);
        if (edits[i].status == PI0_OK)
            PI0_ASSERT_OK(pi0_tokenizer_parse(text, bytes, true, edits[i].rules, "a-file", &t, &err), &err);
        else
            assert_refused(text, bytes, true, edits[i].rules, edits[i].status, edits[i].text);
        pi0_tokenizer_close(&t);
        free(text);
    }
}

static void truncated_files_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer/small_old.json", "tokenizer/small_new.json", "tokenizer/small.model"};
    for (int i = 0; i < 3; i++) {
        size_t bytes;
        char *whole = pi0_test_read_file(pi0_test_data(names[i]), &bytes);
        for (size_t cut = 0; cut < bytes; cut += cut < 600 || bytes - cut < 600 ? 7 : 211) {
            pi0_test_guard guard = pi0_test_guard_open(cut);
            pi0_error err = {0};
            pi0_tokenizer *t = NULL;
            memcpy(guard.data, whole, cut);
            assert_int_not_equal(pi0_tokenizer_parse(guard.data, cut, i < 2, NULL, "cut", &t, &err), PI0_OK);
            assert_null(t);
            pi0_error_clear(&err);
            pi0_test_guard_close(&guard);
        }
        free(whole);
    }
}

#define PIECE(text, type) "\x0a" text "\x18" type
#define BPE_IDENTITY "\x12\x02\x18\x02\x1a\x04\x18\0\x20\0" /* trainer_spec {bpe}, normalizer_spec {no dummy prefix, keeps spaces} */

static void model_edits_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *data;
        size_t bytes;
        pi0_status status;
        const char *text;
    } files[] = {
#define FILE_OF(text) text, sizeof text - 1
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") BPE_IDENTITY), PI0_OK, ""},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x0a\x07" PIECE("\x03<u>", "\x01") BPE_IDENTITY), PI0_ERR_FORMAT, "twice"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x0a\x07" PIECE("\x03<v>", "\x02") BPE_IDENTITY), PI0_ERR_UNSUPPORTED, "several"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x01") BPE_IDENTITY), PI0_ERR_UNSUPPORTED, "unknown piece"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x09") BPE_IDENTITY), PI0_ERR_FORMAT, "unknown type"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x0a\x02\x18\x01" BPE_IDENTITY), PI0_ERR_FORMAT, "empty"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x0a\x0a" PIECE("\x06<0x41>", "\x06") BPE_IDENTITY), PI0_ERR_FORMAT, "byte_fallback"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x0a\x07" PIECE("\x03<x>", "\x06") BPE_IDENTITY), PI0_ERR_FORMAT, "<0x41>"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x0a\x0a\x0a\x03<x>\x15\0\0\xc0\x7f" BPE_IDENTITY), PI0_ERR_FORMAT, "finite"},
        {FILE_OF("\x0a\x07" PIECE("\x03<\xffu", "\x02") BPE_IDENTITY), PI0_ERR_FORMAT, "UTF-8"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x1a\x04\x18\0\x20\0"), PI0_ERR_UNSUPPORTED, "unigram"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x12\x05\x18\x02\x98\x02\x01\x1a\x04\x18\0\x20\0"), PI0_ERR_UNSUPPORTED, "<0xFF>"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x12\x02\x18\x02\x1a\x02\x20\0"), PI0_ERR_UNSUPPORTED, "add_dummy_prefix"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x12\x02\x18\x02\x1a\x02\x18\0"), PI0_ERR_UNSUPPORTED, "remove_extra"},
        {FILE_OF("\x0a\x07" PIECE("\x03<u>", "\x02") "\x12\x02\x18\x02\x1a\x07\x18\0\x20\0\x12\x01x"), PI0_ERR_UNSUPPORTED, "charsmap"},
        {FILE_OF("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), PI0_ERR_FORMAT, "cut short"},
        {FILE_OF("\x0a\x85\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), PI0_ERR_FORMAT, "cut short"},
        {FILE_OF("\x0b\x01"), PI0_ERR_FORMAT, "cut short"},
        {FILE_OF("\x08\x01"), PI0_ERR_FORMAT, "another type"},
        {FILE_OF("\x0a\x02\x08\x01"), PI0_ERR_FORMAT, "another type"},
        {FILE_OF(BPE_IDENTITY), PI0_ERR_FORMAT, "no vocabulary"},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        pi0_error err = {0};
        pi0_tokenizer *t = NULL;
        if (files[i].status == PI0_OK)
            PI0_ASSERT_OK(pi0_tokenizer_parse(files[i].data, files[i].bytes, false, NULL, "a-file", &t, &err), &err);
        else
            assert_refused(files[i].data, files[i].bytes, false, NULL, files[i].status, files[i].text);
        pi0_tokenizer_close(&t);
    }
}

static void bos_that_a_file_lacks(void **state)
{
    (void)state;
    static const char tiny[] = "{\"model\":{\"vocab\":{\"a\":0,\"b\":5,\"ab\":2},\"merges\":[\"#version: 0.2\",\"a b\"]}}";
    size_t count;
    pi0_error err = {0};
    pi0_tokenizer *t = NULL;
    int64_t ids[4] = {0};
    char *text = NULL;
    PI0_ASSERT_OK(pi0_tokenizer_parse(tiny, sizeof tiny - 1, true, NULL, "tiny", &t, &err), &err);
    assert_int_equal(pi0_tokenizer_vocab(t), 6);
    assert_int_equal(pi0_tokenizer_encode(t, "ab", 2, 1, ids, 4, &count, &err), PI0_ERR_ARGUMENT);
    pi0_test_assert_error(&err, PI0_ERR_ARGUMENT, "beginning", NULL);
    PI0_ASSERT_OK(pi0_tokenizer_encode(t, "abba?", 5, 0, ids, 4, &count, &err), &err);
    assert_int_equal(count, 3); /* without an unknown token, Hugging Face drops what it does not know */
    assert_int_equal(ids[0], 2);
    ids[0] = 3; /* an id that the vocabulary leaves out */
    assert_int_equal(pi0_tokenizer_decode(t, ids, 1, &text, &err), PI0_ERR_ARGUMENT);
    pi0_error_clear(&err);
    pi0_tokenizer_close(&t);
}

/* ------------------------------------------------------------------ memory */

static void allocation_failures(void **state)
{
    (void)state;
    static const char *const names[] = {"tokenizer/odd.json", "tokenizer/small_old.json", "tokenizer/small.model", "tokenizer/plain.model"};
    for (int i = 0; i < 8; i++) {
        const char *name = names[i / 2], *rules = i % 2 && i != 1 ? "spm" : "hf";
        size_t bytes;
        void *data = pi0_test_read_file(pi0_test_data(name), &bytes);
        for (long n = 1;; n++) {
            int64_t ids[64];
            size_t count = 0;
            char *text = NULL;
            pi0_error err = {0};
            pi0_tokenizer *t = NULL;
            pi0_test_fail_allocation(n);
            pi0_status status = pi0_tokenizer_parse(data, bytes, i < 4, rules, name, &t, &err);
            if (status == PI0_OK)
                status = pi0_tokenizer_encode(t, "the cube \xf0\x9f\xa7\xbd", 13, 1, ids, 64, &count, &err);
            if (status == PI0_OK)
                status = pi0_tokenizer_decode(t, ids, count, &text, &err);
            int failed = pi0_test_allocation_failed();
            pi0_error_clear(&err);
            pi0_text_free(&text);
            pi0_tokenizer_close(&t);
            assert_int_equal(status, failed ? PI0_ERR_MEMORY : PI0_OK);
            if (!failed)
                break;
        }
        free(data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_the_reference_libraries),
        cmocka_unit_test(text_is_the_reference_libraries),
        cmocka_unit_test(ids_of_the_real_gemma_vocabulary),
        cmocka_unit_test(room_and_bos),
        cmocka_unit_test(text_that_is_not_utf8),
        cmocka_unit_test(long_texts_survive),
        cmocka_unit_test(D7_token_id_outside_the_vocabulary),
        cmocka_unit_test(D6_file_of_another_kind),
        cmocka_unit_test(D6_kind_is_told_by_content),
        cmocka_unit_test(json_edits_are_refused),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(model_edits_are_refused),
        cmocka_unit_test(bos_that_a_file_lacks),
        cmocka_unit_test(allocation_failures),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    pi0_scratch_release(&kept);
    return failed;
}
