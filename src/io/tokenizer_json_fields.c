#include <string.h>

#include "io/tokenizer_json.h"

#define ESCAPED_SPACE "\xe2\x96\x81" /* U+2581, which stands for a space in pieces */

typedef struct reader {
    pi0_json_cursor cursor;
    pi0_json_span vocab, merges;
    json_t *root;
    const json_t *model; /* in root */
    pi0_tokenizer *t;
} reader;

/* ------------------------------------------------------------------ refusals */

/* What this reader understands and does not do; tokenizing some other way would be silently wrong. */
static pi0_status refuse(const reader *r, const char *key, const char *expected, const json_t *got)
{
    pi0_error *err = r->cursor.err;
    const json_t *type = json_object_get(got, "type");
    pi0_fail(err, PI0_ERR_UNSUPPORTED, "this tokenizer.json asks for something that is not implemented");
    pi0_err_where(err, "%s: %s", r->cursor.where, key);
    pi0_err_expected(err, "%s", expected);
    if (json_is_string(type))
        pi0_err_got(err, "type %.100s", json_string_value(type));
    else if (json_is_string(got))
        pi0_err_got(err, "\"%.100s\"", json_string_value(got));
    else
        pi0_err_got(err, "%s", pi0_json_type_name(got));
    pi0_err_hint(err, "Gemma's and PaliGemma's tokenizer files, and byte-fallback BPE made like them, are read");
    return PI0_ERR_UNSUPPORTED;
}

static bool is_absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && strcmp(json_string_value(value), text) == 0;
}

static bool has_type(const json_t *value, const char *type)
{
    return is_text(json_object_get(value, "type"), type);
}

static pi0_status optional_bool(const json_t *object, const char *key, const char *where, bool *value, pi0_error *err)
{
    return json_object_get(object, key) ? pi0_json_get_bool(object, key, where, value, err) : PI0_OK;
}

/* ------------------------------------------------------------------ model */

static pi0_status read_model(reader *r)
{
    pi0_error *err = r->cursor.err;
    pi0_tokenizer *t = r->t;
    const json_t *version = json_object_get(r->root, "version");
    r->model = json_object_get(r->root, "model");
    if (!json_is_object(r->model)) {
        pi0_fail(err, PI0_ERR_FORMAT, "this JSON file is not a tokenizer.json");
        pi0_err_where(err, "%s", r->cursor.where);
        pi0_err_expected(err, "an object \"model\" with a BPE vocabulary");
        pi0_err_got(err, "\"model\": %s", pi0_json_type_name(r->model));
        pi0_err_hint(err, "tokenizer_config.json and special_tokens_map.json hold settings only: give tokenizer.json or tokenizer.model");
        return PI0_ERR_FORMAT;
    }
    if (!is_absent(version) && !is_text(version, "1.0"))
        return refuse(r, "version", "\"1.0\"", version);
    if (json_object_get(r->model, "type") && !has_type(r->model, "BPE"))
        return refuse(r, "model.type", "BPE", json_object_get(r->model, "type"));
    if (!r->vocab.begin || !r->merges.begin) {
        pi0_fail(err, PI0_ERR_FORMAT, "this tokenizer.json has no %s", r->vocab.begin ? "model.merges" : "model.vocab");
        pi0_err_where(err, "%s", r->cursor.where);
        pi0_err_expected(err, "a BPE model with \"vocab\" and \"merges\"");
        return PI0_ERR_FORMAT;
    }
    const json_t *dropout = json_object_get(r->model, "dropout");
    if (!is_absent(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return refuse(r, "model.dropout", "no dropout (ids would be random)", dropout);
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < 2; i++) {
        const json_t *affix = json_object_get(r->model, affixes[i]);
        if (!is_absent(affix) && !is_text(affix, ""))
            return refuse(r, affixes[i], "null", affix);
    }
    PI0_TRY(optional_bool(r->model, "byte_fallback", r->cursor.where, &t->byte_fallback, err));
    PI0_TRY(optional_bool(r->model, "fuse_unk", r->cursor.where, &t->fuses_unknown, err));
    return optional_bool(r->model, "ignore_merges", r->cursor.where, &t->ignores_merges, err);
}

static pi0_status find_unknown(reader *r)
{
    pi0_tokenizer *t = r->t;
    const json_t *token = json_object_get(r->model, "unk_token");
    if (is_absent(token))
        return PI0_OK;
    const char *name;
    PI0_TRY(pi0_json_get_string(r->model, "unk_token", r->cursor.where, &name, r->cursor.err));
    t->unknown = pi0_pieces_find(&t->pieces, name, strlen(name), "", 0);
    if (t->unknown >= 0)
        return PI0_OK;
    pi0_fail(r->cursor.err, PI0_ERR_FORMAT, "the unknown token is not in the vocabulary");
    pi0_err_where(r->cursor.err, "%s: model.unk_token", r->cursor.where);
    pi0_err_got(r->cursor.err, "\"%.100s\"", name);
    return PI0_ERR_FORMAT;
}

static void find_bytes(pi0_tokenizer *t)
{
    int found = 0;
    for (size_t id = 0; id < t->pieces.size; id++) {
        if (t->pieces.at[id].type == PI0_PIECE_NONE)
            continue;
        int value = pi0_piece_byte_value(pi0_piece_name(&t->pieces, (int32_t)id), t->pieces.at[id].bytes);
        if (value >= 0) {
            t->byte_ids[value] = (int32_t)id;
            found++;
        }
    }
    /* The converter for Gemma writes the piece of byte 9 as the tab itself. */
    if (found == 255 && t->byte_ids[9] < 0)
        t->byte_ids[9] = pi0_pieces_find(&t->pieces, "\t", 1, "", 0);
    for (int b = 0; b < 256 && t->byte_fallback; b++)
        if (t->byte_ids[b] >= 0)
            t->pieces.at[t->byte_ids[b]].type = PI0_PIECE_BYTE;
}

/* ------------------------------------------------------------------ normalizer, pre_tokenizer, decoder */

static bool is_replace(const json_t *value, const char *pattern, const char *content)
{
    return has_type(value, "Replace") && is_text(json_object_get(json_object_get(value, "pattern"), "String"), pattern) &&
           is_text(json_object_get(value, "content"), content);
}

static pi0_status read_normalizer(reader *r)
{
    const json_t *value = json_object_get(r->root, "normalizer"), *list = json_object_get(value, "normalizers");
    if (has_type(value, "Sequence") && json_array_size(list) == 1)
        value = json_array_get(list, 0);
    r->t->escapes_spaces = is_replace(value, " ", ESCAPED_SPACE);
    if (!is_absent(value) && !r->t->escapes_spaces)
        return refuse(r, "normalizer", "null, or Replace of \" \" by U+2581 alone", value);
    if (!r->t->escapes_spaces && r->t->rules == PI0_RULES_SPM)
        return refuse(r, "normalizer", "Replace of \" \" by U+2581 (SentencePiece always does this)", value);
    return PI0_OK;
}

/* Gemma's newer files split at spaces, of which the normalizer leaves none: that has no effect. Any other splitting would have one. */
static pi0_status read_pre_tokenizer(reader *r)
{
    const json_t *value = json_object_get(r->root, "pre_tokenizer"), *invert = json_object_get(value, "invert");
    bool idle = has_type(value, "Split") && is_text(json_object_get(json_object_get(value, "pattern"), "String"), " ") &&
                !(invert && !json_is_false(invert)) && r->t->escapes_spaces;
    return is_absent(value) || idle ? PI0_OK
                                    : refuse(r, "pre_tokenizer", "null, or Split at \" \" after a normalizer that removes spaces", value);
}

static pi0_status read_decoder(reader *r)
{
    const json_t *value = json_object_get(r->root, "decoder"), *list = json_object_get(value, "decoders"), *item;
    size_t index;
    if (is_absent(value))
        return PI0_OK;
    if (!has_type(value, "Sequence") || !json_is_array(list))
        return refuse(r, "decoder", "Sequence of Replace (U+2581 by \" \"), ByteFallback and Fuse", value);
    json_array_foreach(
        list, index, item) if (!is_replace(item, ESCAPED_SPACE, " ") && !has_type(item, "ByteFallback") &&
                               !has_type(item, "Fuse")) return refuse(r, "decoder",
                                                                      "Sequence of Replace (U+2581 by \" \"), ByteFallback and Fuse", item);
    return PI0_OK;
}

/* ------------------------------------------------------------------ added_tokens */

typedef struct added_token {
    const char *content;
    size_t bytes;
    int64_t id;
    bool special, normalized, lstrip, rstrip;
} added_token;

static pi0_status read_added_token(reader *r, size_t index, added_token *out)
{
    char where[256];
    pi0_error *err = r->cursor.err;
    bool single_word = false;
    snprintf(where, sizeof where, "%.200s: added_tokens[%zu]", r->cursor.where, index);
    const json_t *item = json_array_get(json_object_get(r->root, "added_tokens"), index);
    *out = (added_token){0};
    PI0_TRY(pi0_json_get_string(item, "content", where, &out->content, err));
    PI0_TRY(pi0_json_get_int(item, "id", where, 0, PI0_MAX_PIECES - 1, &out->id, err));
    PI0_TRY(optional_bool(item, "special", where, &out->special, err));
    out->normalized = !out->special;
    PI0_TRY(optional_bool(item, "normalized", where, &out->normalized, err));
    PI0_TRY(optional_bool(item, "lstrip", where, &out->lstrip, err));
    PI0_TRY(optional_bool(item, "rstrip", where, &out->rstrip, err));
    PI0_TRY(optional_bool(item, "single_word", where, &single_word, err));
    out->bytes = strlen(out->content);
    return single_word ? refuse(r, "added_tokens", "single_word false", item) : PI0_OK;
}

static pi0_status fail_added_id(const reader *r, const added_token *token, int64_t expected)
{
    pi0_error *err = r->cursor.err;
    pi0_fail(err, PI0_ERR_FORMAT, "the id of an added token contradicts the vocabulary");
    pi0_err_where(err, "%s: added_tokens, \"%.100s\"", r->cursor.where, token->content);
    pi0_err_expected(err, "id %lld", (long long)expected);
    pi0_err_got(err, "id %lld", (long long)token->id);
    return PI0_ERR_FORMAT;
}

/* The type that SentencePiece's model had before it was converted. The converter calls these two special although they are user-defined. */
static pi0_piece_type type_before_conversion(const added_token *token)
{
    bool turn = strcmp(token->content, "<start_of_turn>") == 0 || strcmp(token->content, "<end_of_turn>") == 0;
    return token->special && !turn ? PI0_PIECE_CONTROL : PI0_PIECE_USER;
}

/* Ids as the reference gives them when it loads the file: the vocabulary's, else the next free one. */
static pi0_status name_added_tokens(reader *r, size_t count)
{
    pi0_pieces *pieces = &r->t->pieces;
    int64_t vocabulary = (int64_t)pieces->named, highest = -1;
    added_token token;
    for (size_t i = 0; i < count; i++) {
        PI0_TRY(read_added_token(r, i, &token));
        if (token.bytes == 0)
            continue;
        int32_t known = pi0_pieces_find(pieces, token.content, token.bytes, "", 0);
        int64_t expected = known >= 0 ? known : highest >= vocabulary ? highest + 1 : vocabulary;
        if (token.id != expected)
            return fail_added_id(r, &token, expected);
        highest = expected > highest ? expected : highest;
        if (known < 0) {
            PI0_TRY(pi0_pieces_add(pieces, expected, token.content, token.bytes, PI0_PIECE_ADDED, r->cursor.err));
            PI0_TRY(pi0_pieces_index_one(pieces, (int32_t)expected, r->cursor.err));
        } else if (pieces->at[known].type == PI0_PIECE_NORMAL)
            pieces->at[known].type = (uint8_t)(known == r->t->unknown ? PI0_PIECE_UNKNOWN : type_before_conversion(&token));
    }
    return PI0_OK;
}

static pi0_status add_pattern(reader *r, const added_token *token)
{
    pi0_tokenizer *t = r->t;
    pi0_text escaped = {0};
    if (!token->normalized || !t->escapes_spaces)
        return pi0_patterns_add(token->normalized ? &t->normalized : &t->raw, token->content, token->bytes, (int32_t)token->id,
                                token->lstrip, token->rstrip, r->cursor.err);
    for (size_t i = 0; i < token->bytes; i++) {
        bool space = token->content[i] == ' ';
        pi0_text_add_bytes(&escaped, space ? ESCAPED_SPACE : &token->content[i], space ? 3 : 1);
    }
    pi0_status status = escaped.failed ? pi0_fail_memory(r->cursor.err, token->bytes, "the special tokens")
                                       : pi0_patterns_add(&t->normalized, escaped.data, escaped.length, (int32_t)token->id, token->lstrip,
                                                          token->rstrip, r->cursor.err);
    pi0_text_release(&escaped);
    return status;
}

static pi0_status add_patterns(reader *r, size_t count)
{
    added_token token;
    for (size_t i = 0; i < count; i++) {
        PI0_TRY(read_added_token(r, i, &token));
        if (token.bytes > 0)
            PI0_TRY(add_pattern(r, &token));
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ post_processor */

/* The name of the token that the template puts first, or NULL. */
static pi0_status read_template(reader *r, const char **first)
{
    const json_t *value = json_object_get(r->root, "post_processor"), *single = json_object_get(value, "single");
    static const char expected[] = "null, or TemplateProcessing of [BOS] and the text";
    *first = NULL;
    if (is_absent(value))
        return PI0_OK;
    size_t count = json_array_size(single);
    if (!has_type(value, "TemplateProcessing") || count < 1 || count > 2)
        return refuse(r, "post_processor", expected, value);
    const json_t *sequence = json_object_get(json_array_get(single, count - 1), "Sequence");
    if (!is_text(json_object_get(sequence, "id"), "A"))
        return refuse(r, "post_processor.single", expected, json_array_get(single, count - 1));
    if (count == 1)
        return PI0_OK;
    const json_t *token = json_object_get(json_array_get(single, 0), "SpecialToken");
    const char *id = json_string_value(json_object_get(token, "id"));
    const json_t *known = id ? json_object_get(json_object_get(value, "special_tokens"), id) : NULL;
    const json_t *ids = json_object_get(known, "ids");
    if (json_array_size(ids) != 1 || !json_is_integer(json_array_get(ids, 0)))
        return refuse(r, "post_processor.special_tokens", "one token before the text, with one id", known);
    int32_t found = pi0_pieces_find(&r->t->pieces, id, strlen(id), "", 0);
    json_int_t stated = json_integer_value(json_array_get(ids, 0));
    if (found < 0 || stated != found) {
        added_token contradiction = {.content = id, .id = stated};
        return fail_added_id(r, &contradiction, found);
    }
    *first = id;
    return PI0_OK;
}

static pi0_status find_bos(reader *r)
{
    static const char *const usual[] = {"<bos>", "<s>"};
    const char *name;
    PI0_TRY(read_template(r, &name));
    if (name)
        r->t->bos = pi0_pieces_find(&r->t->pieces, name, strlen(name), "", 0);
    for (int i = 0; i < 2 && r->t->bos < 0; i++)
        r->t->bos = pi0_pieces_find(&r->t->pieces, usual[i], strlen(usual[i]), "", 0);
    return PI0_OK;
}

/* ------------------------------------------------------------------ what SentencePiece would know about these pieces */

static bool is_one_character(const pi0_pieces *pieces, size_t id)
{
    size_t characters = 0;
    for (size_t i = 0; i < pieces->at[id].bytes; i++)
        characters += ((uint8_t)pi0_piece_name(pieces, (int32_t)id)[i] & 0xc0) != 0x80;
    return characters == 1;
}

static bool is_normal(const pi0_pieces *pieces, size_t id)
{
    return pieces->at[id].type == PI0_PIECE_NORMAL;
}

/* Older conversions do not declare user-defined pieces, which match before all merging. Their ids tell: SentencePiece's trainer writes
 * them, with the control pieces, before the 256 bytes, then learned pieces, then single characters; Gemma appended some after these. */
static void find_user_defined(pi0_tokenizer *t)
{
    pi0_pieces *pieces = &t->pieces;
    int32_t base = t->byte_ids[0];
    for (int b = 0; b < 256; b++)
        if (t->byte_ids[b] < 0 || t->byte_ids[b] != base + b)
            return;
    size_t learned = (size_t)base + 256;
    if (learned >= pieces->size || !is_normal(pieces, learned))
        return;
    for (size_t id = 0; id < (size_t)base; id++)
        if (is_normal(pieces, id))
            pieces->at[id].type = PI0_PIECE_USER;
    if (is_one_character(pieces, learned))
        return; /* not the trainer's order */
    size_t last = pieces->size - 1;
    while (last > learned && !(is_normal(pieces, last) && is_one_character(pieces, last)))
        last--;
    if (last == learned)
        return;
    for (size_t id = last + 1; id < pieces->size; id++)
        if (is_normal(pieces, id))
            pieces->at[id].type = PI0_PIECE_USER;
}

static pi0_status prepare_spm(reader *r)
{
    pi0_tokenizer *t = r->t;
    for (int b = 0; b < 256 && t->byte_fallback; b++)
        if (t->byte_ids[b] < 0)
            return refuse(r, "model.vocab", "all of <0x00> to <0xFF>, which SentencePiece's byte fallback needs", NULL);
    if (!t->byte_fallback && t->unknown < 0)
        return refuse(r, "model.unk_token", "an unknown token, which SentencePiece needs", NULL);
    if (t->unknown >= 0)
        t->pieces.at[t->unknown].type = PI0_PIECE_UNKNOWN;
    if (t->byte_fallback)
        find_user_defined(t);
    for (size_t id = 0; id < t->pieces.size; id++) {
        pi0_piece *piece = &t->pieces.at[id];
        if (piece->order == UINT32_MAX) /* no listed merge makes it: after all that are, in the order of ids */
            piece->order = UINT32_MAX - PI0_MAX_PIECES + (uint32_t)id;
        if (piece->type == PI0_PIECE_USER)
            PI0_TRY(pi0_patterns_add(&t->normalized, pi0_piece_name(&t->pieces, (int32_t)id), piece->bytes, (int32_t)id, false, false,
                                     r->cursor.err));
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ all of it */

static pi0_status read_all(reader *r, pi0_text *rest)
{
    pi0_tokenizer *t = r->t;
    pi0_json_cursor *c = &r->cursor;
    PI0_TRY(pi0_tokenizer_json_cut(c, &r->vocab, &r->merges, rest));
    PI0_TRY(pi0_json_parse(rest->data, rest->length, c->where, &r->root, c->err));
    PI0_TRY(read_model(r));
    PI0_TRY(read_normalizer(r));
    PI0_TRY(read_pre_tokenizer(r));
    PI0_TRY(read_decoder(r));
    PI0_TRY(pi0_tokenizer_json_vocab(c, r->vocab, &t->pieces));
    json_t *added = json_object_get(r->root, "added_tokens");
    if (!is_absent(added))
        PI0_TRY(pi0_json_get_array(r->root, "added_tokens", c->where, &added, c->err));
    size_t n_added = json_array_size(added);
    PI0_TRY(pi0_pieces_index(&t->pieces, n_added, c->err));
    PI0_TRY(find_unknown(r));
    find_bytes(t);
    PI0_TRY(name_added_tokens(r, n_added));
    PI0_TRY(find_bos(r));
    t->merging = t->rules == PI0_RULES_SPM ? PI0_MERGE_BY_SCORE : PI0_MERGE_BY_RANK;
    for (size_t id = 0; id < t->pieces.size; id++)
        t->pieces.at[id].order = UINT32_MAX;
    PI0_TRY(pi0_tokenizer_json_merges(c, r->merges, t));
    return t->rules == PI0_RULES_SPM ? prepare_spm(r) : add_patterns(r, n_added);
}

pi0_status pi0_tokenizer_read_json(pi0_tokenizer *t, const char *data, size_t bytes, const char *where, pi0_error *err)
{
    reader r = {.cursor = {.begin = data, .at = data, .end = data + bytes, .where = where, .err = err}, .t = t};
    pi0_text rest = {0};
    pi0_status status = read_all(&r, &rest);
    json_decref(r.root);
    pi0_text_release(&rest);
    pi0_text_release(&r.cursor.scratch[0]);
    pi0_text_release(&r.cursor.scratch[1]);
    return status;
}
