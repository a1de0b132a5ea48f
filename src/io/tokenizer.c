#include <stdlib.h>
#include <string.h>

#include "io/tokenizer.h"

/* ------------------------------------------------------------------ pieces */

int pi0_piece_byte_value(const char *name, size_t bytes)
{
    static const char digits[] = "0123456789ABCDEF";
    if (bytes != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>' || !name[3] || !name[4])
        return -1;
    const char *high = strchr(digits, name[3]), *low = strchr(digits, name[4]);
    return high && low ? (int)(high - digits) * 16 + (int)(low - digits) : -1;
}

static pi0_status pieces_reserve(pi0_pieces *pieces, size_t size, pi0_error *err)
{
    if (size <= pieces->capacity)
        return PI0_OK;
    size_t capacity = pieces->capacity ? pieces->capacity : 1024;
    while (capacity < size)
        capacity *= 2;
    pi0_piece *grown = pi0_alloc_array(capacity, sizeof *grown);
    if (!grown)
        return pi0_fail_memory(err, capacity * sizeof *grown, "the vocabulary");
    if (pieces->size)
        memcpy(grown, pieces->at, pieces->size * sizeof *grown);
    pi0_free(pieces->at);
    pieces->at = grown;
    pieces->capacity = capacity;
    return PI0_OK;
}

pi0_status pi0_pieces_add(pi0_pieces *pieces, int64_t id, const char *name, size_t bytes, pi0_piece_type type, pi0_error *err)
{
    if (id < 0 || id >= (int64_t)PI0_MAX_PIECES) {
        pi0_fail(err, PI0_ERR_FORMAT, "a vocabulary id is out of range");
        pi0_err_expected(err, "ids from 0 to %u", PI0_MAX_PIECES - 1);
        pi0_err_got(err, "id %lld of \"%.*s\"", (long long)id, (int)(bytes < 60 ? bytes : 60), name);
        return PI0_ERR_FORMAT;
    }
    if (bytes == 0 || bytes > PI0_MAX_PIECE) {
        pi0_fail(err, PI0_ERR_FORMAT, bytes ? "a vocabulary entry is too long" : "a vocabulary entry is empty");
        pi0_err_expected(err, "1 to %u bytes", (unsigned)PI0_MAX_PIECE);
        pi0_err_got(err, "%zu bytes at id %lld", bytes, (long long)id);
        return PI0_ERR_FORMAT;
    }
    PI0_TRY(pieces_reserve(pieces, (size_t)id + 1, err));
    if ((size_t)id >= pieces->size)
        pieces->size = (size_t)id + 1;
    pi0_piece *piece = &pieces->at[id];
    if (piece->type != PI0_PIECE_NONE) {
        pi0_fail(err, PI0_ERR_FORMAT, "two vocabulary entries have the same id");
        pi0_err_got(err, "id %lld: \"%.*s\" and \"%.*s\"", (long long)id, (int)piece->bytes, pi0_piece_name(pieces, (int32_t)id),
                    (int)bytes, name);
        return PI0_ERR_FORMAT;
    }
    piece->offset = (uint32_t)pieces->text.length; /* PI0_MAX_PIECES * PI0_MAX_PIECE is 2^30 */
    piece->bytes = (uint16_t)bytes;
    piece->type = (uint8_t)type;
    pi0_text_add_bytes(&pieces->text, name, bytes);
    if (pieces->text.failed)
        return pi0_fail_memory(err, pieces->text.length + bytes, "the vocabulary's text");
    pieces->named += type != PI0_PIECE_ADDED;
    return PI0_OK;
}

/* FNV-1a, so that the hash of two parts is that of their concatenation; finished by a mixer for the table's low bits. */
static uint64_t hash_bytes(uint64_t hash, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    return hash;
}

#define HASH_START 0xcbf29ce484222325u

pi0_status pi0_pieces_index_one(pi0_pieces *pieces, int32_t id, pi0_error *err)
{
    const pi0_piece *piece = &pieces->at[id];
    const char *name = pi0_piece_name(pieces, id);
    uint64_t hash = pi0_mix64(hash_bytes(HASH_START, name, piece->bytes));
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t slot = (size_t)hash & pieces->mask, n = 0; n < PI0_MAX_TOKENIZER_PROBES; slot = (slot + 1) & pieces->mask, n++) {
        pi0_piece_slot *s = &pieces->slots[slot];
        if (s->id < 0) {
            s->id = id;
            s->tag = tag;
            return PI0_OK;
        }
        if (s->tag == tag && pieces->at[s->id].bytes == piece->bytes && memcmp(pi0_piece_name(pieces, s->id), name, piece->bytes) == 0) {
            pi0_fail(err, PI0_ERR_FORMAT, "the vocabulary holds the same entry twice");
            pi0_err_got(err, "\"%.*s\" as ids %d and %d", (int)piece->bytes, name, s->id, id);
            return PI0_ERR_FORMAT;
        }
    }
    return pi0_fail(err, PI0_ERR_FORMAT, "the vocabulary is made to collide in a hash table");
}

pi0_status pi0_pieces_index(pi0_pieces *pieces, size_t extra, pi0_error *err)
{
    size_t slots = 16;
    while (slots < (pieces->size + extra) * 2)
        slots *= 2;
    pieces->slots = pi0_alloc_array(slots, sizeof *pieces->slots);
    if (!pieces->slots)
        return pi0_fail_memory(err, slots * sizeof *pieces->slots, "the vocabulary's index");
    pieces->mask = slots - 1;
    for (size_t i = 0; i < slots; i++)
        pieces->slots[i].id = -1;
    for (size_t id = 0; id < pieces->size; id++)
        if (pieces->at[id].type != PI0_PIECE_NONE)
            PI0_TRY(pi0_pieces_index_one(pieces, (int32_t)id, err));
    return PI0_OK;
}

int32_t pi0_pieces_find(const pi0_pieces *pieces, const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    if (a_bytes + b_bytes > PI0_MAX_PIECE)
        return -1;
    uint64_t hash = pi0_mix64(hash_bytes(hash_bytes(HASH_START, a, a_bytes), b, b_bytes));
    uint32_t tag = (uint32_t)(hash >> 32);
    for (size_t slot = (size_t)hash & pieces->mask;; slot = (slot + 1) & pieces->mask) { /* ends: half of the slots are empty */
        const pi0_piece_slot *s = &pieces->slots[slot];
        if (s->id < 0)
            return -1;
        if (s->tag != tag || pieces->at[s->id].bytes != a_bytes + b_bytes)
            continue;
        const char *name = pi0_piece_name(pieces, s->id);
        if (memcmp(name, a, a_bytes) == 0 && (b_bytes == 0 || memcmp(name + a_bytes, b, b_bytes) == 0))
            return s->id;
    }
}

void pi0_pieces_release(pi0_pieces *pieces)
{
    pi0_free(pieces->at);
    pi0_free(pieces->slots);
    pi0_text_release(&pieces->text);
    memset(pieces, 0, sizeof *pieces);
}

/* ------------------------------------------------------------------ merges */

static size_t merge_slot(const pi0_merges *merges, uint64_t pair)
{
    return (size_t)pi0_mix64(pair) & (merges->capacity - 1);
}

static bool merges_place(pi0_merges *merges, pi0_merge merge)
{
    size_t slot = merge_slot(merges, merge.pair);
    for (size_t n = 0; n < PI0_MAX_TOKENIZER_PROBES; slot = (slot + 1) & (merges->capacity - 1), n++) {
        pi0_merge *m = &merges->slots[slot];
        if (m->pair != UINT64_MAX && m->pair != merge.pair)
            continue;
        merges->count += m->pair == UINT64_MAX;
        *m = merge;
        return true;
    }
    return false;
}

static pi0_status merges_resize(pi0_merges *merges, size_t capacity, pi0_error *err)
{
    pi0_merges grown = {.capacity = capacity};
    grown.slots = pi0_alloc_array(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return pi0_fail_memory(err, grown.capacity * sizeof *grown.slots, "the merges");
    for (size_t i = 0; i < grown.capacity; i++)
        grown.slots[i].pair = UINT64_MAX;
    bool placed = true;
    for (size_t i = 0; i < merges->capacity && placed; i++)
        if (merges->slots[i].pair != UINT64_MAX)
            placed = merges_place(&grown, merges->slots[i]);
    pi0_free(merges->slots);
    *merges = grown;
    return placed ? PI0_OK : pi0_fail(err, PI0_ERR_FORMAT, "the merges are made to collide in a hash table");
}

pi0_status pi0_merges_start(pi0_merges *merges, size_t pieces, pi0_error *err)
{
    size_t capacity = 1024; /* Gemma lists 2.3 merges for each piece: room for that without growing */
    while (capacity < pieces * 4)
        capacity *= 2;
    return merges_resize(merges, capacity, err);
}

pi0_status pi0_merges_put(pi0_merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t id, pi0_error *err)
{
    if (merges->count * 8 >= merges->capacity * 5)
        PI0_TRY(merges_resize(merges, merges->capacity * 2, err));
    pi0_merge merge = {(uint64_t)(uint32_t)left << 32 | (uint32_t)right, rank, id};
    return merges_place(merges, merge) ? PI0_OK : pi0_fail(err, PI0_ERR_FORMAT, "the merges are made to collide in a hash table");
}

const pi0_merge *pi0_merges_find(const pi0_merges *merges, int32_t left, int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    if (merges->capacity == 0)
        return NULL;
    for (size_t slot = merge_slot(merges, pair);; slot = (slot + 1) & (merges->capacity - 1)) {
        if (merges->slots[slot].pair == pair)
            return &merges->slots[slot];
        if (merges->slots[slot].pair == UINT64_MAX)
            return NULL;
    }
}

void pi0_merges_release(pi0_merges *merges)
{
    pi0_free(merges->slots);
    memset(merges, 0, sizeof *merges);
}

/* ------------------------------------------------------------------ open, close */

static pi0_status rules_from_name(const char *name, bool is_json, pi0_rules *out, pi0_error *err)
{
    *out = is_json ? PI0_RULES_HF : PI0_RULES_SPM;
    if (!name)
        return PI0_OK;
    if (strcmp(name, "hf") == 0 || strcmp(name, "spm") == 0) {
        *out = strcmp(name, "hf") == 0 ? PI0_RULES_HF : PI0_RULES_SPM;
        return PI0_OK;
    }
    pi0_fail(err, PI0_ERR_ARGUMENT, "unknown tokenizer rules");
    pi0_err_expected(err, "hf (Hugging Face tokenizers) or spm (SentencePiece)");
    pi0_err_got(err, "%.100s", name);
    return PI0_ERR_ARGUMENT;
}

pi0_status pi0_tokenizer_parse(const void *data, size_t bytes, bool is_json, const char *rules, const char *where, pi0_tokenizer **out,
                               pi0_error *err)
{
    pi0_status status;
    pi0_rules which;
    *out = NULL;
    PI0_TRY(rules_from_name(rules, is_json, &which, err));
    PI0_TRY(pi0_refuse_impostor(data, bytes, where, err));
    if (bytes == 0 || bytes > PI0_MAX_TOKENIZER) {
        pi0_fail(err, PI0_ERR_FORMAT, bytes ? "the tokenizer file is too large" : "the tokenizer file is empty");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "1 to %u bytes", PI0_MAX_TOKENIZER);
        pi0_err_got(err, "%zu bytes", bytes);
        return PI0_ERR_FORMAT;
    }
    pi0_tokenizer *t = pi0_alloc(sizeof *t);
    if (!t)
        return pi0_fail_memory(err, sizeof *t, "a tokenizer");
    t->rules = which;
    t->bos = t->unknown = -1;
    memset(t->byte_ids, 0xff, sizeof t->byte_ids);
    if (is_json)
        PI0_TRY_GOTO(pi0_tokenizer_read_json(t, data, bytes, where, err));
    else
        PI0_TRY_GOTO(pi0_tokenizer_read_spm(t, data, bytes, where, err));
    pi0_patterns_sort(&t->raw);
    pi0_patterns_sort(&t->normalized);
    *out = t;
    return PI0_OK;
fail:
    if (err && !err->where[0])
        pi0_err_where(err, "%s", where);
    pi0_tokenizer_close(&t);
    return status;
}

/* By content; the name only settles "\n{", with which either kind could begin. */
static bool looks_like_json(const pi0_mapping *file, const char *path)
{
    size_t length = strlen(path), i = 0;
    while (i < file->bytes && strchr(" \t\r\n", file->data[i]) && file->data[i])
        i++;
    if (i == file->bytes || file->data[i] != '{')
        return length > 5 && strcmp(path + length - 5, ".json") == 0;
    return i == 0 || length < 6 || strcmp(path + length - 6, ".model") != 0;
}

/* Neither of the two kinds has a brace there, behind a number that small. */
static bool looks_like_safetensors(const pi0_mapping *file)
{
    uint64_t header = 0;
    if (file->bytes > 8)
        memcpy(&header, file->data, sizeof header);
    return header > 0 && header <= PI0_MAX_SAFETENSORS_HEADER && file->data[8] == '{';
}

static pi0_status open_inside(const pi0_mapping *file, const char *path, const char *rules, pi0_tokenizer **out, pi0_error *err)
{
    pi0_safetensors *container = NULL;
    PI0_TRY(pi0_safetensors_parse(file->data, file->bytes, path, &container, err));
    const pi0_tensor_view *view = pi0_safetensors_find(container, PI0_TOKENIZER_TENSOR);
    pi0_status status = PI0_OK;
    if (view) {
        const pi0_mapping inside = {view->data, view->bytes};
        status = pi0_tokenizer_parse(view->data, view->bytes, looks_like_json(&inside, path), rules, path, out, err);
    } else {
        status = pi0_fail(err, PI0_ERR_FORMAT, "there is no tokenizer in this file");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "tokenizer.json, a SentencePiece model, or a packed file with the tensor " PI0_TOKENIZER_TENSOR);
        pi0_err_got(err, "a safetensors file without it");
    }
    pi0_safetensors_close(&container);
    return status;
}

pi0_status pi0_tokenizer_open(const char *path, const char *rules, pi0_tokenizer **out, pi0_error *err)
{
    pi0_mapping file = {0};
    *out = NULL;
    PI0_TRY(pi0_map_file(path, &file, err));
    pi0_status status = looks_like_safetensors(&file)
                            ? open_inside(&file, path, rules, out, err)
                            : pi0_tokenizer_parse(file.data, file.bytes, looks_like_json(&file, path), rules, path, out, err);
    pi0_unmap(&file);
    return status;
}

void pi0_tokenizer_close(pi0_tokenizer **tokenizer)
{
    if (!tokenizer || !*tokenizer)
        return;
    pi0_tokenizer *t = *tokenizer;
    pi0_pieces_release(&t->pieces);
    pi0_merges_release(&t->merges);
    pi0_patterns_release(&t->raw);
    pi0_patterns_release(&t->normalized);
    pi0_free(t);
    *tokenizer = NULL;
}

size_t pi0_tokenizer_vocab(const pi0_tokenizer *tokenizer)
{
    return tokenizer->pieces.size;
}

uint64_t pi0_tokenizer_bytes(const pi0_tokenizer *t)
{
    if (!t)
        return 0;
    const uint64_t pieces = t->pieces.capacity * sizeof *t->pieces.at + (t->pieces.mask + 1) * sizeof *t->pieces.slots;
    const uint64_t patterns = (t->raw.capacity + t->normalized.capacity) * sizeof *t->raw.at;
    const uint64_t texts = t->pieces.text.capacity + t->raw.text.capacity + t->normalized.text.capacity;
    return sizeof *t + pieces + t->merges.capacity * sizeof *t->merges.slots + patterns + texts;
}
