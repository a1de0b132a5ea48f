#include <string.h>

#include "io/tokenizer.h"
#include "io/utf8.h"

#define ESCAPED_SPACE "\xe2\x96\x81" /* U+2581 */
#define REPLACEMENT "\xef\xbf\xbd"   /* U+FFFD */

/* The value of a byte piece, or -1. */
static int byte_of(const pi0_tokenizer *t, int64_t id)
{
    int value = pi0_piece_byte_value(pi0_piece_name(&t->pieces, (int32_t)id), t->pieces.at[id].bytes);
    return value >= 0 && t->byte_ids[value] == id ? value : -1;
}

/* Bytes that are not UTF-8 become U+FFFD each: in Hugging Face's rules all of a run that has a flaw, in SentencePiece's only those. */
static void put_bytes(const pi0_tokenizer *t, pi0_text *out, const pi0_text *run)
{
    const uint8_t *bytes = (const uint8_t *)run->data;
    uint32_t code;
    bool flawed = false;
    for (size_t i = 0, n; i < run->length && !flawed; i += n) {
        n = pi0_utf8_decode(bytes + i, run->length - i, &code);
        flawed = n == 0;
    }
    for (size_t i = 0, n; i < run->length; i += n) {
        n = flawed && t->rules == PI0_RULES_HF ? 0 : pi0_utf8_decode(bytes + i, run->length - i, &code);
        pi0_text_add_bytes(out, n ? run->data + i : REPLACEMENT, n ? n : 3);
        n = n ? n : 1;
    }
}

static void put_name(const pi0_tokenizer *t, pi0_text *out, int64_t id)
{
    const char *name = pi0_piece_name(&t->pieces, (int32_t)id);
    size_t bytes = t->pieces.at[id].bytes;
    for (size_t i = 0; i < bytes;) {
        bool space = bytes - i >= 3 && memcmp(name + i, ESCAPED_SPACE, 3) == 0;
        pi0_text_add_bytes(out, space ? " " : name + i, 1);
        i += space ? 3 : 1;
    }
}

static pi0_status check_ids(const pi0_tokenizer *t, const int64_t *ids, size_t count, pi0_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && (uint64_t)ids[i] < t->pieces.size && t->pieces.at[ids[i]].type != PI0_PIECE_NONE)
            continue;
        pi0_fail(err, PI0_ERR_ARGUMENT, "a token id is not in the vocabulary");
        pi0_err_where(err, "ids[%zu]", i);
        pi0_err_expected(err, "0 to %zu", t->pieces.size - 1);
        pi0_err_got(err, "%lld", (long long)ids[i]);
        return PI0_ERR_ARGUMENT;
    }
    return PI0_OK;
}

pi0_status pi0_tokenizer_decode(const pi0_tokenizer *tokenizer, const int64_t *ids, size_t count, char **text, pi0_error *err)
{
    pi0_text out = {0}, run = {0};
    *text = NULL;
    PI0_TRY(check_ids(tokenizer, ids, count, err));
    pi0_text_add_bytes(&out, "", 0);
    for (size_t i = 0; i <= count; i++) {
        int value = i < count ? byte_of(tokenizer, ids[i]) : -1;
        char byte = (char)value;
        if (value >= 0) {
            pi0_text_add_bytes(&run, &byte, 1);
            continue;
        }
        put_bytes(tokenizer, &out, &run);
        run.length = 0;
        if (i < count)
            put_name(tokenizer, &out, ids[i]);
    }
    bool failed = out.failed || run.failed;
    pi0_text_release(&run);
    if (failed) {
        pi0_text_release(&out);
        return pi0_fail_memory(err, count, "decoding token ids");
    }
    *text = out.data;
    return PI0_OK;
}
