#include <string.h>

#include "io/tokenizer_json.h"
#include "io/utf8.h"

/* tokenizer.json in two steps: the vocabulary and the merges are a million values of two plain shapes and are read here straight from the
 * text, in a sixth of the time that building JSON values takes; all else goes through the JSON reader (tokenizer_json_fields.c). */

/* ------------------------------------------------------------------ a cursor over JSON text */

static pi0_status fail_at(pi0_json_cursor *c, const char *expected)
{
    pi0_fail(c->err, PI0_ERR_FORMAT, "not a well-formed tokenizer.json");
    pi0_err_where(c->err, "%s: byte %zu", c->where, (size_t)(c->at - c->begin));
    pi0_err_expected(c->err, "%s", expected);
    if (c->at == c->end)
        pi0_err_got(c->err, "the end of the file");
    else if (*c->at >= ' ' && *c->at <= '~')
        pi0_err_got(c->err, "'%c'", *c->at);
    else
        pi0_err_got(c->err, "byte 0x%02x", (unsigned)(uint8_t)*c->at);
    return PI0_ERR_FORMAT;
}

static void skip_space(pi0_json_cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\r' || *c->at == '\t'))
        c->at++;
}

static bool take(pi0_json_cursor *c, char wanted)
{
    skip_space(c);
    if (c->at == c->end || *c->at != wanted)
        return false;
    c->at++;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The four digits after "\u", or -1. */
static int32_t take_hex(pi0_json_cursor *c)
{
    int32_t code = 0;
    if (c->end - c->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(c->at[i]);
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    c->at += 4;
    return code;
}

static pi0_status take_escape(pi0_json_cursor *c, pi0_text *out)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    c->at++; /* the backslash */
    if (c->at == c->end)
        return fail_at(c, "an escaped character");
    const char *known = *c->at ? strchr(names, *c->at) : NULL;
    if (known) {
        pi0_text_add_bytes(out, &values[known - names], 1);
        c->at++;
        return PI0_OK;
    }
    if (*c->at++ != 'u')
        return fail_at(c, "an escape that JSON knows");
    int32_t code = take_hex(c);
    if (code >= 0xd800 && code < 0xdc00 && c->end - c->at >= 2 && c->at[0] == '\\' && c->at[1] == 'u') {
        c->at += 2;
        int32_t low = take_hex(c);
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    char utf8[4];
    size_t bytes = code < 0 ? 0 : pi0_utf8_encode((uint32_t)code, utf8);
    if (bytes == 0)
        return fail_at(c, "four hexadecimal digits of a character (surrogates in pairs)");
    pi0_text_add_bytes(out, utf8, bytes);
    return PI0_OK;
}

/* A string: *text points into the file, or into *scratch when it holds escapes. */
static pi0_status take_string(pi0_json_cursor *c, pi0_text *scratch, const char **text, size_t *bytes)
{
    if (!take(c, '"'))
        return fail_at(c, "a string");
    const char *run = c->at; /* what is not in scratch yet */
    bool plain = true;
    scratch->length = 0;
    for (;;) {
        uint32_t code;
        size_t n = pi0_utf8_decode((const uint8_t *)c->at, (size_t)(c->end - c->at), &code);
        if (n == 0 || code < 0x20)
            return fail_at(c, "the rest of a string in UTF-8, with its closing quote");
        if (code == '"')
            break;
        if (code != '\\') {
            c->at += n;
            continue;
        }
        pi0_text_add_bytes(scratch, run, (size_t)(c->at - run));
        PI0_TRY(take_escape(c, scratch));
        run = c->at;
        plain = false;
    }
    *text = run;
    *bytes = (size_t)(c->at - run);
    if (!plain) {
        pi0_text_add_bytes(scratch, run, *bytes);
        *text = scratch->data;
        *bytes = scratch->length;
    }
    c->at++;
    return scratch->failed ? pi0_fail_memory(c->err, 0, "a vocabulary entry") : PI0_OK;
}

/* ------------------------------------------------------------------ finding the two large members */

static bool skip_string(pi0_json_cursor *c)
{
    for (c->at++; c->at < c->end; c->at++) {
        if (*c->at == '\\')
            c->at++;
        else if (*c->at == '"') {
            c->at++;
            return true;
        }
    }
    c->at = c->end;
    return false;
}

/* Over one value, by its brackets and strings alone: whoever reads it then checks the rest. */
static bool skip_value(pi0_json_cursor *c)
{
    size_t depth = 0;
    do {
        skip_space(c);
        if (c->at == c->end)
            return false;
        char first = *c->at;
        if (first == '"') {
            if (!skip_string(c))
                return false;
        } else if (first == '{' || first == '[') {
            depth++;
            c->at++;
        } else if (first == '}' || first == ']') {
            if (depth == 0)
                return false;
            depth--;
            c->at++;
        } else if (first == ',' || first == ':') {
            if (depth == 0)
                return false;
            c->at++;
        } else {
            while (c->at < c->end && !strchr(",:]}[{\" \t\r\n", *c->at))
                c->at++;
            if (c->at < c->end && *c->at == '\0') /* strchr finds the end of its own list */
                return false;
        }
    } while (depth > 0);
    return true;
}

/* Steps to the value of the next member of an object that was entered: 1, 0 after its end, -1 when malformed. */
static int next_member(pi0_json_cursor *c, bool first, const char **key, size_t *key_bytes)
{
    if (take(c, '}'))
        return 0;
    if (!first && !take(c, ','))
        return -1;
    skip_space(c);
    if (c->at == c->end || *c->at != '"')
        return -1;
    *key = c->at + 1;
    if (!skip_string(c))
        return -1;
    *key_bytes = (size_t)(c->at - *key) - 1;
    if (!take(c, ':'))
        return -1;
    skip_space(c);
    return 1;
}

static bool key_is(const char *key, size_t bytes, const char *name)
{
    return bytes == strlen(name) && memcmp(key, name, bytes) == 0;
}

static bool find_in_model(pi0_json_cursor *c, pi0_json_span *vocab, pi0_json_span *merges)
{
    const char *key;
    size_t bytes;
    int more;
    c->at++;
    for (bool first = true; (more = next_member(c, first, &key, &bytes)) == 1; first = false) {
        const char *begin = c->at;
        if (!skip_value(c))
            return false;
        pi0_json_span *span = key_is(key, bytes, "vocab") ? vocab : key_is(key, bytes, "merges") ? merges : NULL;
        if (span)
            *span = (pi0_json_span){begin, c->at};
    }
    return more == 0;
}

static bool find_spans(pi0_json_cursor *c, pi0_json_span *vocab, pi0_json_span *merges)
{
    const char *key;
    size_t bytes;
    int more;
    if (!take(c, '{'))
        return false;
    for (bool first = true; (more = next_member(c, first, &key, &bytes)) == 1; first = false) {
        bool model = key_is(key, bytes, "model") && c->at < c->end && *c->at == '{';
        if (!(model ? find_in_model(c, vocab, merges) : skip_value(c)))
            return false;
    }
    return more == 0;
}

pi0_status pi0_tokenizer_json_cut(pi0_json_cursor *c, pi0_json_span *vocab, pi0_json_span *merges, pi0_text *rest)
{
    if (!find_spans(c, vocab, merges)) {
        fail_at(c, "a complete JSON object");
        pi0_err_hint(c->err, "give a tokenizer.json or a SentencePiece tokenizer.model; a download may have been cut short");
        return PI0_ERR_FORMAT;
    }
    const pi0_json_span *spans[2] = {vocab, merges};
    if (vocab->begin && merges->begin && merges->begin < vocab->begin) {
        spans[0] = merges;
        spans[1] = vocab;
    }
    const char *from = c->begin;
    for (int i = 0; i < 2; i++) {
        if (!spans[i]->begin)
            continue;
        pi0_text_add_bytes(rest, from, (size_t)(spans[i]->begin - from));
        pi0_text_add_bytes(rest, "null", 4);
        from = spans[i]->end;
    }
    if ((size_t)(c->end - from) > PI0_MAX_JSON || rest->length > PI0_MAX_JSON) {
        pi0_fail(c->err, PI0_ERR_FORMAT, "too much beside the vocabulary and the merges");
        pi0_err_where(c->err, "%s", c->where);
        pi0_err_expected(c->err, "at most %u bytes, in a file whose \"model\" holds \"vocab\" and \"merges\"", PI0_MAX_JSON);
        return PI0_ERR_FORMAT;
    }
    pi0_text_add_bytes(rest, from, (size_t)(c->end - from));
    return rest->failed ? pi0_fail_memory(c->err, (size_t)(c->end - c->begin), "tokenizer.json") : PI0_OK;
}

/* ------------------------------------------------------------------ model.vocab */

static pi0_status take_id(pi0_json_cursor *c, int64_t *id)
{
    skip_space(c);
    const char *first = c->at;
    *id = 0;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && c->at - first < 10)
        *id = *id * 10 + (*c->at++ - '0');
    bool leading_zero = c->at - first > 1 && *first == '0';
    return c->at == first || leading_zero ? fail_at(c, "the id of a vocabulary entry, a whole number from 0 up") : PI0_OK;
}

static pi0_status add_where(pi0_json_cursor *c, pi0_status status, const char *key)
{
    if (status != PI0_OK)
        pi0_err_where(c->err, "%s: %s", c->where, key);
    return status;
}

pi0_status pi0_tokenizer_json_vocab(pi0_json_cursor *c, pi0_json_span span, pi0_pieces *pieces)
{
    const char *name;
    size_t bytes;
    int64_t id;
    c->at = span.begin;
    if (!take(c, '{'))
        return fail_at(c, "model.vocab as an object of piece: id (a BPE vocabulary)");
    if (take(c, '}'))
        return PI0_OK;
    do {
        PI0_TRY(take_string(c, &c->scratch[0], &name, &bytes));
        if (!take(c, ':'))
            return fail_at(c, "':' after a vocabulary entry");
        PI0_TRY(take_id(c, &id));
        PI0_TRY(add_where(c, pi0_pieces_add(pieces, id, name, bytes, PI0_PIECE_NORMAL, c->err), "model.vocab"));
    } while (take(c, ','));
    return take(c, '}') ? PI0_OK : fail_at(c, "',' or '}' in model.vocab");
}

/* ------------------------------------------------------------------ model.merges */

typedef struct merge_text {
    const char *left, *right;
    size_t left_bytes, right_bytes;
} merge_text;

/* ["a", "b"], or the older "a b" in which no part can hold a space */
static pi0_status take_merge(pi0_json_cursor *c, merge_text *m)
{
    if (take(c, '[')) {
        PI0_TRY(take_string(c, &c->scratch[0], &m->left, &m->left_bytes));
        if (!take(c, ','))
            return fail_at(c, "a merge of two parts");
        PI0_TRY(take_string(c, &c->scratch[1], &m->right, &m->right_bytes));
        return take(c, ']') ? PI0_OK : fail_at(c, "']' after the two parts of a merge");
    }
    size_t bytes;
    PI0_TRY(take_string(c, &c->scratch[0], &m->left, &bytes));
    const char *space = memchr(m->left, ' ', bytes);
    m->left_bytes = space ? (size_t)(space - m->left) : bytes;
    m->right = space ? space + 1 : m->left;
    m->right_bytes = space ? bytes - m->left_bytes - 1 : 0;
    bool two = space && !memchr(m->right, ' ', m->right_bytes);
    return two ? PI0_OK : fail_at(c, "before this place a merge of two parts with one space between them");
}

static bool makes(const pi0_pieces *pieces, const merge_text *m, int32_t id)
{
    if ((size_t)id >= pieces->size || pieces->at[id].bytes != m->left_bytes + m->right_bytes)
        return false;
    const char *name = pi0_piece_name(pieces, id);
    return memcmp(name, m->left, m->left_bytes) == 0 && memcmp(name + m->left_bytes, m->right, m->right_bytes) == 0;
}

/* Ids of the parts and of what they make; only pieces of the model's own vocabulary count. ids[2] comes in as the last merge's: files list
 * merges by what they make, in the order of ids, and a look at two neighbours is cheaper than at a table that no cache holds. */
static pi0_status resolve_merge(pi0_json_cursor *c, const pi0_pieces *pieces, const merge_text *m, size_t rank, int32_t ids[3])
{
    int32_t last = ids[2];
    ids[0] = pi0_pieces_find(pieces, m->left, m->left_bytes, "", 0);
    ids[1] = pi0_pieces_find(pieces, m->right, m->right_bytes, "", 0);
    ids[2] = makes(pieces, m, last) ? last : makes(pieces, m, last + 1) ? last + 1 : -1;
    if (ids[2] < 0)
        ids[2] = pi0_pieces_find(pieces, m->left, m->left_bytes, m->right, m->right_bytes);
    for (int i = 0; i < 3; i++) {
        if (ids[i] >= 0 && pieces->at[ids[i]].type != PI0_PIECE_ADDED)
            continue;
        pi0_fail(c->err, PI0_ERR_FORMAT, "a merge names a piece that the vocabulary does not hold");
        pi0_err_where(c->err, "%s: model.merges[%zu]", c->where, rank);
        pi0_err_expected(c->err, "both parts and their concatenation in model.vocab");
        pi0_err_got(c->err, "\"%.*s\" + \"%.*s\"", (int)(m->left_bytes < 100 ? m->left_bytes : 100), m->left,
                    (int)(m->right_bytes < 100 ? m->right_bytes : 100), m->right);
        return PI0_ERR_FORMAT;
    }
    return PI0_OK;
}

/* The header line of a merges.txt, which the reference reader steps over without counting it. */
static bool at_version_line(const pi0_json_cursor *c)
{
    static const char version[] = "\"#version";
    return (size_t)(c->end - c->at) >= sizeof version - 1 && memcmp(c->at, version, sizeof version - 1) == 0;
}

pi0_status pi0_tokenizer_json_merges(pi0_json_cursor *c, pi0_json_span span, pi0_tokenizer *t)
{
    merge_text m;
    int32_t ids[3] = {0};
    uint32_t rank = 0;
    c->at = span.begin;
    if (t->merging == PI0_MERGE_BY_RANK)
        PI0_TRY(pi0_merges_start(&t->merges, t->pieces.named, c->err));
    if (!take(c, '['))
        return fail_at(c, "model.merges as an array");
    if (take(c, ']'))
        return PI0_OK;
    do {
        skip_space(c);
        if (at_version_line(c)) {
            PI0_TRY(take_string(c, &c->scratch[0], &m.left, &m.left_bytes));
            continue;
        }
        PI0_TRY(take_merge(c, &m));
        PI0_TRY(resolve_merge(c, &t->pieces, &m, rank, ids));
        if (t->merging == PI0_MERGE_BY_RANK)
            PI0_TRY(add_where(c, pi0_merges_put(&t->merges, ids[0], ids[1], rank, ids[2], c->err), "model.merges"));
        else if (t->pieces.at[ids[2]].order > rank)
            t->pieces.at[ids[2]].order = rank;
        rank++; /* 32 bits suffice: a merge takes more than a byte of PI0_MAX_TOKENIZER */
    } while (take(c, ','));
    return take(c, ']') ? PI0_OK : fail_at(c, "',' or ']' in model.merges");
}
