#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/tokenizer.h"
#include "io/utf8.h"

/* A SentencePiece .model: one protobuf message (sentencepiece_model.proto), of which a tokenizer needs about a dozen fields. */

/* ------------------------------------------------------------------ protobuf */

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

typedef struct message {
    const uint8_t *at, *end;
} message;

typedef struct field {
    uint32_t number, wire;
    uint64_t value;  /* varint and fixed */
    message content; /* WIRE_BYTES */
} field;

static bool take_varint(message *m, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint8_t byte = *m->at++;
        *out |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return shift < 63 || byte <= 1;
    }
    return false;
}

static bool take_fixed(message *m, unsigned bytes, uint64_t *out)
{
    if ((size_t)(m->end - m->at) < bytes)
        return false;
    *out = 0;
    memcpy(out, m->at, bytes);
    m->at += bytes;
    return true;
}

/* 1 and a field, 0 at the end, -1 when malformed */
static int take_field(message *m, field *f)
{
    uint64_t key;
    if (m->at == m->end)
        return 0;
    if (!take_varint(m, &key) || key >> 3 == 0 || key >> 3 > 0x1fffffff)
        return -1;
    f->number = (uint32_t)(key >> 3);
    f->wire = key & 7;
    if (f->wire == WIRE_VARINT)
        return take_varint(m, &f->value) ? 1 : -1;
    if (f->wire == WIRE_FIXED32 || f->wire == WIRE_FIXED64)
        return take_fixed(m, f->wire == WIRE_FIXED32 ? 4 : 8, &f->value) ? 1 : -1;
    uint64_t length;
    if (f->wire != WIRE_BYTES || !take_varint(m, &length) || length > (size_t)(m->end - m->at))
        return -1;
    f->content = (message){m->at, m->at + length};
    m->at += length;
    return 1;
}

/* ------------------------------------------------------------------ the message's parts */

typedef struct reader {
    pi0_tokenizer *t;
    const uint8_t *begin;
    const char *where;
    pi0_error *err;
    float *scores; /* by id */
    size_t scores_capacity;
    uint64_t model_type;
    bool byte_fallback;
    message bos_piece;
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces, has_charsmap;
} reader;

static pi0_status fail_malformed(const reader *r, const message *m, const char *what)
{
    pi0_fail(r->err, PI0_ERR_FORMAT, "not a SentencePiece model: %s", what);
    pi0_err_where(r->err, "%s: byte %zu", r->where, (size_t)(m->at - r->begin));
    pi0_err_expected(r->err, "a SentencePiece tokenizer.model or a tokenizer.json");
    return PI0_ERR_FORMAT;
}

static pi0_status keep_score(reader *r, size_t id, float score)
{
    if (id >= r->scores_capacity) {
        size_t capacity = r->scores_capacity ? r->scores_capacity * 2 : 1024;
        float *grown = pi0_alloc_array(capacity, sizeof *grown);
        if (!grown)
            return pi0_fail_memory(r->err, capacity * sizeof *grown, "the scores of the vocabulary");
        if (id)
            memcpy(grown, r->scores, id * sizeof *grown);
        pi0_free(r->scores);
        r->scores = grown;
        r->scores_capacity = capacity;
    }
    r->scores[id] = score + 0.0f; /* -0 equals 0 */
    return PI0_OK;
}

static pi0_status read_piece(reader *r, message m)
{
    message name = {m.at, m.at};
    const message whole = m;
    float score = 0;
    uint64_t type = PI0_PIECE_NORMAL;
    field f;
    int more;
    while ((more = take_field(&m, &f)) == 1) {
        if (f.number == 1 && f.wire == WIRE_BYTES)
            name = f.content;
        else if (f.number == 2 && f.wire == WIRE_FIXED32)
            memcpy(&score, &f.value, sizeof score);
        else if (f.number == 3 && f.wire == WIRE_VARINT)
            type = f.value;
        else if (f.number <= 3)
            return fail_malformed(r, &whole, "a field of a vocabulary entry has another type");
    }
    if (more < 0)
        return fail_malformed(r, &m, "a vocabulary entry is cut short");
    if (type < PI0_PIECE_NORMAL || type > PI0_PIECE_BYTE || !isfinite(score))
        return fail_malformed(r, &whole, "a vocabulary entry of unknown type or without a finite score");
    size_t id = r->t->pieces.size, bytes = (size_t)(name.end - name.at);
    uint32_t code;
    for (size_t i = 0, n; i < bytes; i += n)
        if ((n = pi0_utf8_decode(name.at + i, bytes - i, &code)) == 0)
            return fail_malformed(r, &whole, "a vocabulary entry is not UTF-8");
    pi0_status status = pi0_pieces_add(&r->t->pieces, (int64_t)id, (const char *)name.at, bytes, (pi0_piece_type)type, r->err);
    if (status != PI0_OK) {
        pi0_err_where(r->err, "%s: byte %zu", r->where, (size_t)(whole.at - r->begin));
        return status;
    }
    return keep_score(r, id, score);
}

static pi0_status read_trainer_spec(reader *r, message m)
{
    field f;
    int more;
    while ((more = take_field(&m, &f)) == 1) {
        if (f.number == 3 && f.wire == WIRE_VARINT)
            r->model_type = f.value;
        else if (f.number == 35 && f.wire == WIRE_VARINT)
            r->byte_fallback = f.value != 0;
        else if (f.number == 46 && f.wire == WIRE_BYTES)
            r->bos_piece = f.content;
    }
    return more < 0 ? fail_malformed(r, &m, "the trainer's settings are cut short") : PI0_OK;
}

static pi0_status read_normalizer_spec(reader *r, message m)
{
    field f;
    int more;
    while ((more = take_field(&m, &f)) == 1) {
        bool on = f.wire == WIRE_VARINT && f.value != 0;
        if (f.number == 2 && f.wire == WIRE_BYTES)
            r->has_charsmap = f.content.at < f.content.end;
        else if (f.number == 3)
            r->add_dummy_prefix = on;
        else if (f.number == 4)
            r->remove_extra_whitespaces = on;
        else if (f.number == 5)
            r->escape_whitespaces = on;
    }
    return more < 0 ? fail_malformed(r, &m, "the normalizer's settings are cut short") : PI0_OK;
}

static pi0_status read_message(reader *r, message m)
{
    field f;
    int more;
    while ((more = take_field(&m, &f)) == 1) {
        if (f.number >= 1 && f.number <= 3 && f.wire != WIRE_BYTES)
            return fail_malformed(r, &m, "a field has another type");
        if (f.number == 1)
            PI0_TRY(read_piece(r, f.content));
        else if (f.number == 2)
            PI0_TRY(read_trainer_spec(r, f.content));
        else if (f.number == 3)
            PI0_TRY(read_normalizer_spec(r, f.content));
    }
    if (more < 0)
        return fail_malformed(r, &m, "the file is cut short or of another kind");
    return r->t->pieces.size ? PI0_OK : fail_malformed(r, &m, "it holds no vocabulary");
}

/* ------------------------------------------------------------------ what is refused */

static pi0_status refuse(const reader *r, const char *key, const char *expected, const char *got)
{
    pi0_fail(r->err, PI0_ERR_UNSUPPORTED, "this SentencePiece model asks for something that is not implemented");
    pi0_err_where(r->err, "%s: %s", r->where, key);
    pi0_err_expected(r->err, "%s", expected);
    pi0_err_got(r->err, "%s", got);
    pi0_err_hint(r->err, "PaliGemma's and Gemma's models, and BPE models trained like them, are read");
    return PI0_ERR_UNSUPPORTED;
}

static pi0_status check_settings(const reader *r)
{
    static const char *const model_types[] = {"0", "unigram", "bpe", "word", "char"};
    if (r->model_type != 2)
        return refuse(r, "trainer_spec.model_type", "bpe", r->model_type < 5 ? model_types[r->model_type] : "an unknown type");
    if (r->has_charsmap)
        return refuse(r, "normalizer_spec.precompiled_charsmap", "none (normalization \"identity\")", "a table of replacements");
    if (r->add_dummy_prefix)
        return refuse(r, "normalizer_spec.add_dummy_prefix", "false", "true");
    if (r->remove_extra_whitespaces)
        return refuse(r, "normalizer_spec.remove_extra_whitespaces", "false", "true");
    return PI0_OK;
}

/* ------------------------------------------------------------------ pieces to rules */

static pi0_status find_special_pieces(reader *r)
{
    pi0_tokenizer *t = r->t;
    size_t bytes = 0;
    for (size_t id = 0; id < t->pieces.size; id++) {
        const pi0_piece *piece = &t->pieces.at[id];
        int value = pi0_piece_byte_value(pi0_piece_name(&t->pieces, (int32_t)id), piece->bytes);
        if (piece->type == PI0_PIECE_BYTE && value >= 0) {
            bytes += t->byte_ids[value] < 0;
            t->byte_ids[value] = (int32_t)id;
        }
        if (piece->type == PI0_PIECE_BYTE && (value < 0 || !r->byte_fallback)) {
            message end = {r->begin, r->begin};
            return fail_malformed(r, &end, value < 0 ? "a byte piece not named like <0x41>" : "byte pieces without byte_fallback");
        }
        if (piece->type == PI0_PIECE_UNKNOWN && t->unknown >= 0)
            return refuse(r, "pieces", "one unknown piece", "several");
        if (piece->type == PI0_PIECE_UNKNOWN)
            t->unknown = (int32_t)id;
        t->has_unused = t->has_unused || piece->type == PI0_PIECE_UNUSED;
    }
    if (t->unknown < 0)
        return refuse(r, "pieces", "one unknown piece", "none");
    if (r->byte_fallback && bytes != 256)
        return refuse(r, "pieces", "all of <0x00> to <0xFF>, which byte_fallback needs", "only some of them");
    size_t bos_bytes = (size_t)(r->bos_piece.end - r->bos_piece.at);
    int32_t bos = pi0_pieces_find(&t->pieces, (const char *)r->bos_piece.at, bos_bytes, "", 0);
    t->bos = bos >= 0 && t->pieces.at[bos].type == PI0_PIECE_CONTROL ? bos : -1;
    return PI0_OK;
}

typedef struct scored {
    float score;
    uint32_t id;
} scored;

static int compare_scores(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    return x->score != y->score ? (x->score < y->score) - (x->score > y->score) : (x->id > y->id) - (x->id < y->id);
}

/* Equal scores get equal orders; the orders of n pieces are below n, so that the encoder can put more beside them in one number. */
static pi0_status order_by_score(reader *r)
{
    pi0_pieces *pieces = &r->t->pieces;
    scored *sorted = pi0_alloc_array(pieces->size, sizeof *sorted);
    if (!sorted)
        return pi0_fail_memory(r->err, pieces->size * sizeof *sorted, "the scores of the vocabulary");
    for (size_t id = 0; id < pieces->size; id++)
        sorted[id] = (scored){r->scores[id], (uint32_t)id};
    qsort(sorted, pieces->size, sizeof *sorted, compare_scores);
    uint32_t order = 0;
    for (size_t i = 0; i < pieces->size; i++) {
        order += i > 0 && sorted[i].score != sorted[i - 1].score;
        pieces->at[sorted[i].id].order = order;
    }
    pi0_free(sorted);
    return PI0_OK;
}

/* Hugging Face's converter for Gemma: control, unknown and user-defined pieces become added tokens that are found in the text as given;
 * bytes stand in for unknown characters in any case; and the piece of byte 9 becomes the tab itself where there is no piece of a tab. */
static pi0_status convert_to_hf(reader *r)
{
    pi0_tokenizer *t = r->t;
    t->merging = PI0_MERGE_AS_CONVERTED;
    t->byte_fallback = t->fuses_unknown = true;
    t->escapes_spaces = true;
    for (size_t id = 0; id < t->pieces.size; id++) {
        const pi0_piece *piece = &t->pieces.at[id];
        if (piece->type == PI0_PIECE_CONTROL || piece->type == PI0_PIECE_USER || piece->type == PI0_PIECE_UNKNOWN)
            PI0_TRY(pi0_patterns_add(&t->raw, pi0_piece_name(&t->pieces, (int32_t)id), piece->bytes, (int32_t)id, false, false, r->err));
    }
    int32_t tab = t->byte_ids[9];
    if (tab < 0 || pi0_pieces_find(&t->pieces, "\t", 1, "", 0) >= 0)
        return PI0_OK;
    pi0_piece *piece = &t->pieces.at[tab];
    piece->offset = (uint32_t)t->pieces.text.length;
    piece->bytes = 1;
    pi0_text_add_bytes(&t->pieces.text, "\t", 1);
    if (t->pieces.text.failed)
        return pi0_fail_memory(r->err, t->pieces.text.length + 1, "the vocabulary's text");
    return pi0_pieces_index_one(&t->pieces, tab, r->err);
}

static pi0_status apply_rules(reader *r)
{
    pi0_tokenizer *t = r->t;
    if (t->rules == PI0_RULES_HF)
        return convert_to_hf(r);
    t->merging = PI0_MERGE_BY_SCORE;
    t->byte_fallback = r->byte_fallback;
    t->escapes_spaces = r->escape_whitespaces;
    for (size_t id = 0; id < t->pieces.size; id++) {
        const pi0_piece *piece = &t->pieces.at[id];
        if (piece->type == PI0_PIECE_USER)
            PI0_TRY(
                pi0_patterns_add(&t->normalized, pi0_piece_name(&t->pieces, (int32_t)id), piece->bytes, (int32_t)id, false, false, r->err));
    }
    return PI0_OK;
}

static pi0_status read_all(reader *r, size_t bytes)
{
    PI0_TRY(read_message(r, (message){r->begin, r->begin + bytes}));
    PI0_TRY(check_settings(r));
    PI0_TRY(pi0_pieces_index(&r->t->pieces, 0, r->err));
    PI0_TRY(find_special_pieces(r));
    PI0_TRY(order_by_score(r));
    return apply_rules(r);
}

pi0_status pi0_tokenizer_read_spm(pi0_tokenizer *t, const uint8_t *data, size_t bytes, const char *where, pi0_error *err)
{
    static const uint8_t usual_bos[] = "<s>"; /* these are the format's defaults for absent fields */
    reader r = {.t = t, .begin = data, .where = where, .err = err, .model_type = 1};
    r.bos_piece = (message){usual_bos, usual_bos + 3};
    r.add_dummy_prefix = r.remove_extra_whitespaces = r.escape_whitespaces = true;
    pi0_status status = read_all(&r, bytes);
    pi0_free(r.scores);
    return status;
}
