#include <string.h>

#include "io/tokenizer.h"
#include "io/utf8.h"

#define ESCAPED_SPACE "\xe2\x96\x81" /* U+2581 */

/* ------------------------------------------------------------------ workspace of one call */

typedef struct symbol {
    const char *text;                /* of the text, or of the piece's name */
    uint32_t bytes : 31, frozen : 1; /* bytes 0: merged into the one before */
    int32_t id;                      /* -1: a character that is no piece */
    int32_t before, after;           /* -1: none */
} symbol;

typedef struct candidate {
    uint64_t key; /* smallest first */
    int32_t left; /* then the leftmost */
    int32_t id;   /* of the piece that it makes */
} candidate;

typedef struct encoder {
    const pi0_tokenizer *t;
    char *escaped;   /* text with U+2581 for spaces */
    symbol *symbols; /* of the stretch of text being merged */
    candidate *heap; /* holds twice the symbols: one for each pair, two more and one less for each merge */
    uint16_t *split; /* [pieces], or NULL: bytes of the left part of the last pair seen that makes an unused piece */
    size_t n_symbols, n_heap;
    int64_t *ids;
    size_t cap, count;
    bool after_unknown; /* spm: the last id stands for unknown characters, and takes those that follow */
} encoder;

static void put_id(encoder *e, int32_t id)
{
    if (e->count < e->cap)
        e->ids[e->count] = id;
    e->count++;
    e->after_unknown = false;
}

static size_t character_bytes(char first)
{
    uint8_t c = (uint8_t)first;
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

/* ------------------------------------------------------------------ heap */

static bool goes_first(const candidate *a, const candidate *b)
{
    return a->key != b->key ? a->key < b->key : a->left < b->left;
}

static void heap_push(encoder *e, candidate new_one)
{
    size_t i = e->n_heap++;
    for (size_t parent; i > 0 && goes_first(&new_one, &e->heap[parent = (i - 1) / 2]); i = parent)
        e->heap[i] = e->heap[parent];
    e->heap[i] = new_one;
}

static candidate heap_pop(encoder *e)
{
    candidate top = e->heap[0], last = e->heap[--e->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < e->n_heap; i = child) {
        if (child + 1 < e->n_heap && goes_first(&e->heap[child + 1], &e->heap[child]))
            child++;
        if (!goes_first(&e->heap[child], &last))
            break;
        e->heap[i] = e->heap[child];
    }
    e->heap[i] = last;
    return top;
}

/* ------------------------------------------------------------------ merging */

static uint64_t count_characters(const symbol *s)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < s->bytes; i++)
        count += ((uint8_t)s->text[i] & 0xc0) != 0x80;
    return count;
}

static bool find_by_name(encoder *e, const symbol *left, const symbol *right, candidate *out)
{
    const pi0_pieces *pieces = &e->t->pieces;
    out->id = pi0_pieces_find(pieces, left->text, left->bytes, right->text, right->bytes);
    if (out->id < 0)
        return false;
    const pi0_piece *piece = &pieces->at[out->id];
    out->key = piece->order;
    if (e->t->merging == PI0_MERGE_AS_CONVERTED) {
        /* below 2^20, and two parts of at most PI0_MAX_PIECE characters, and an id below 2^20: 62 bits */
        uint64_t lengths = (PI0_MAX_PIECE - count_characters(left)) << 11 | (PI0_MAX_PIECE - count_characters(right));
        out->key = (uint64_t)piece->order << 42 | lengths << 20 | (uint32_t)out->id;
        return true;
    }
    if (piece->type == PI0_PIECE_UNUSED && e->split)
        e->split[out->id] = (uint16_t)left->bytes;
    return piece->type == PI0_PIECE_NORMAL || piece->type == PI0_PIECE_USER || piece->type == PI0_PIECE_UNUSED;
}

static bool find_by_rank(const encoder *e, const symbol *left, const symbol *right, candidate *out)
{
    const pi0_merge *merge = pi0_merges_find(&e->t->merges, left->id, right->id);
    if (!merge)
        return false;
    out->key = merge->rank;
    out->id = merge->id;
    return true;
}

static void consider_pair(encoder *e, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return;
    const symbol *l = &e->symbols[left], *r = &e->symbols[right];
    if (l->frozen || r->frozen)
        return;
    candidate found = {.left = left};
    if (e->t->merging == PI0_MERGE_BY_RANK ? find_by_rank(e, l, r, &found) : find_by_name(e, l, r, &found))
        heap_push(e, found);
}

static void merge_all(encoder *e)
{
    const pi0_pieces *pieces = &e->t->pieces;
    e->n_heap = 0;
    for (size_t i = 0; i < e->n_symbols; i++) {
        e->symbols[i].before = (int32_t)i - 1;
        e->symbols[i].after = i + 1 < e->n_symbols ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 1; i < e->n_symbols; i++)
        consider_pair(e, (int32_t)i - 1, (int32_t)i);
    while (e->n_heap > 0) {
        candidate best = heap_pop(e);
        symbol *left = &e->symbols[best.left];
        symbol *right = left->after >= 0 ? &e->symbols[left->after] : NULL;
        /* Parts only grow, so that equal lengths mean the pair that was seen. */
        if (left->bytes == 0 || !right || (size_t)left->bytes + right->bytes != pieces->at[best.id].bytes)
            continue;
        left->id = best.id;
        left->text = pi0_piece_name(pieces, best.id);
        left->bytes = pieces->at[best.id].bytes;
        left->after = right->after;
        right->bytes = 0;
        if (left->after >= 0)
            e->symbols[left->after].before = best.left;
        consider_pair(e, left->before, best.left);
        consider_pair(e, best.left, left->after);
    }
}

static symbol *add_symbol(encoder *e, const char *text, size_t bytes, int32_t id)
{
    symbol *s = &e->symbols[e->n_symbols++];
    *s = (symbol){.text = text, .bytes = (uint32_t)bytes & 0x7fffffffu, .id = id};
    return s;
}

static void add_piece(encoder *e, int32_t id)
{
    add_symbol(e, pi0_piece_name(&e->t->pieces, id), e->t->pieces.at[id].bytes, id);
}

/* ------------------------------------------------------------------ rules: spm */

/* The id of what is left after merging; an unused piece is taken apart the way it was last put together. */
static void put_spm(encoder *e, const char *text, size_t bytes, int32_t id)
{
    const pi0_tokenizer *t = e->t;
    if (id >= 0 && t->pieces.at[id].type == PI0_PIECE_UNUSED && e->split && e->split[id] > 0) {
        size_t left = e->split[id];
        put_spm(e, text, left, pi0_pieces_find(&t->pieces, text, left, "", 0)); /* depth: at most a piece's characters */
        put_spm(e, text + left, bytes - left, pi0_pieces_find(&t->pieces, text + left, bytes - left, "", 0));
    } else if (id >= 0 && id != t->unknown && t->pieces.at[id].type != PI0_PIECE_ADDED)
        put_id(e, id);
    else if (t->byte_fallback)
        for (size_t i = 0; i < bytes; i++)
            put_id(e, t->byte_ids[(uint8_t)text[i]]);
    else {
        if (!e->after_unknown)
            put_id(e, t->unknown);
        e->after_unknown = true;
    }
}

static void encode_spm(encoder *e, const char *text, size_t bytes)
{
    const pi0_tokenizer *t = e->t;
    e->n_symbols = 0;
    for (size_t i = 0; i < bytes; i += e->symbols[e->n_symbols - 1].bytes) {
        const pi0_pattern *whole = pi0_patterns_match(&t->normalized, text + i, bytes - i);
        size_t n = character_bytes(text[i]);
        if (whole)
            add_symbol(e, text + i, whole->bytes, whole->id)->frozen = 1;
        else
            add_symbol(e, text + i, n, pi0_pieces_find(&t->pieces, text + i, n, "", 0));
    }
    merge_all(e);
    for (int32_t i = e->n_symbols ? 0 : -1; i >= 0; i = e->symbols[i].after)
        put_spm(e, e->symbols[i].text, e->symbols[i].bytes, e->symbols[i].id);
}

/* ------------------------------------------------------------------ rules: hf */

static int32_t find_in_model(const pi0_pieces *pieces, const char *text, size_t bytes)
{
    int32_t id = pi0_pieces_find(pieces, text, bytes, "", 0);
    return id >= 0 && pieces->at[id].type != PI0_PIECE_ADDED ? id : -1;
}

static bool add_as_bytes(encoder *e, const char *text, size_t bytes)
{
    const pi0_tokenizer *t = e->t;
    if (!t->byte_fallback)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (t->byte_ids[(uint8_t)text[i]] < 0)
            return false;
    for (size_t i = 0; i < bytes; i++)
        add_piece(e, t->byte_ids[(uint8_t)text[i]]);
    return true;
}

/* A stretch of text without added tokens. An unknown token waits for the next known character: bytes in between go before it, as in
 * the reference. */
static void encode_hf(encoder *e, const char *text, size_t bytes)
{
    const pi0_tokenizer *t = e->t;
    bool waiting = false;
    int32_t id = t->ignores_merges ? find_in_model(&t->pieces, text, bytes) : -1;
    if (id >= 0) {
        put_id(e, id);
        return;
    }
    e->n_symbols = 0;
    for (size_t i = 0, n; i < bytes; i += n) {
        n = character_bytes(text[i]);
        id = find_in_model(&t->pieces, text + i, n);
        if (id < 0 && add_as_bytes(e, text + i, n))
            continue;
        if (waiting && (id >= 0 || !t->fuses_unknown)) {
            add_piece(e, t->unknown);
            waiting = false;
        }
        if (id >= 0)
            add_piece(e, id);
        else
            waiting = t->unknown >= 0;
    }
    if (waiting)
        add_piece(e, t->unknown);
    merge_all(e);
    for (int32_t i = e->n_symbols ? 0 : -1; i >= 0; i = e->symbols[i].after)
        put_id(e, e->symbols[i].id);
}

/* ------------------------------------------------------------------ added tokens in the text (hf) */

/* Unicode's White_Space */
static bool is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static size_t spaces_before(const char *text, size_t end)
{
    size_t start = end;
    while (start > 0) {
        size_t previous = start - 1;
        uint32_t code = 0;
        while (previous > 0 && ((uint8_t)text[previous] & 0xc0) == 0x80)
            previous--;
        pi0_utf8_decode((const uint8_t *)text + previous, start - previous, &code);
        if (!is_space(code))
            break;
        start = previous;
    }
    return start;
}

static size_t spaces_after(const char *text, size_t start, size_t bytes)
{
    uint32_t code;
    for (size_t n; start < bytes; start += n) {
        n = pi0_utf8_decode((const uint8_t *)text + start, bytes - start, &code);
        if (n == 0 || !is_space(code))
            break;
    }
    return start;
}

typedef void (*stretch_fn)(encoder *e, const char *text, size_t bytes);

/* Added tokens become ids, what lies between them goes to `between`. */
static void split_at_tokens(encoder *e, const pi0_patterns *patterns, const char *text, size_t bytes, stretch_fn between)
{
    size_t done = 0;
    for (size_t i = 0; i < bytes;) {
        const pi0_pattern *token = pi0_patterns_match(patterns, text + i, bytes - i);
        if (!token) {
            i += character_bytes(text[i]);
            continue;
        }
        size_t start = i, stop = i + token->bytes;
        i = stop;
        if (token->lstrip)
            start = spaces_before(text, start);
        if (token->rstrip)
            stop = spaces_after(text, stop, bytes);
        if (done < start)
            between(e, text + done, start - done);
        put_id(e, token->id);
        done = stop;
    }
    if (done < bytes)
        between(e, text + done, bytes - done);
}

static size_t escape_spaces(encoder *e, const char *text, size_t bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool space = text[i] == ' ' && e->t->escapes_spaces;
        memcpy(e->escaped + n, space ? ESCAPED_SPACE : &text[i], space ? 3 : 1);
        n += space ? 3 : 1;
    }
    return n;
}

static void encode_stretch_hf(encoder *e, const char *text, size_t bytes)
{
    size_t n = escape_spaces(e, text, bytes);
    split_at_tokens(e, &e->t->normalized, e->escaped, n, encode_hf);
}

/* ------------------------------------------------------------------ encode */

static pi0_status check_text(const char *text, size_t bytes, pi0_error *err)
{
    uint32_t code;
    if (bytes > PI0_MAX_TOKENIZER_TEXT) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "the text is too long");
        pi0_err_expected(err, "at most %u bytes", PI0_MAX_TOKENIZER_TEXT);
        pi0_err_got(err, "%zu bytes", bytes);
        return PI0_ERR_ARGUMENT;
    }
    for (size_t i = 0, n; i < bytes; i += n) {
        n = pi0_utf8_decode((const uint8_t *)text + i, bytes - i, &code);
        if (n > 0)
            continue;
        pi0_fail(err, PI0_ERR_ARGUMENT, "the text is not valid UTF-8");
        pi0_err_where(err, "byte %zu of the text", i);
        pi0_err_got(err, "byte 0x%02x", (unsigned)(uint8_t)text[i]);
        return PI0_ERR_ARGUMENT;
    }
    return PI0_OK;
}

typedef struct room {
    size_t symbols, heap, split, all; /* bytes */
} room;

/* longest: bytes of the text with its spaces escaped; all of it stays below 2^32 */
static room room_of(const pi0_tokenizer *t, size_t longest)
{
    room r = {.symbols = longest * sizeof(symbol), .heap = 2 * longest * sizeof(candidate)};
    r.split = t->has_unused && t->merging == PI0_MERGE_BY_SCORE ? t->pieces.size * sizeof(uint16_t) : 0;
    r.all = r.symbols + r.heap + r.split + longest;
    return r;
}

size_t pi0_tokenizer_room(const pi0_tokenizer *tokenizer, size_t bytes)
{
    return room_of(tokenizer, 3 * bytes).all;
}

static pi0_status open_encoder(encoder *e, const char *text, size_t bytes, pi0_scratch *scratch, pi0_error *err)
{
    size_t longest = bytes;
    for (size_t i = 0; i < bytes; i++)
        longest += text[i] == ' ' ? 2 : 0;
    const room r = room_of(e->t, longest);
    if (!pi0_scratch_reserve(scratch, r.all))
        return pi0_fail_memory(err, r.all, "encoding a text");
    e->symbols = scratch->data;
    e->heap = (candidate *)((char *)scratch->data + r.symbols);
    e->split = r.split ? (uint16_t *)((char *)e->heap + r.heap) : NULL;
    if (e->split)
        memset(e->split, 0, r.split);
    e->escaped = (char *)e->heap + r.heap + r.split;
    return PI0_OK;
}

pi0_status pi0_tokenizer_encode_in(const pi0_tokenizer *tokenizer, const char *text, size_t bytes, int bos, int64_t *ids, size_t cap,
                                   size_t *count, pi0_scratch *scratch, pi0_error *err)
{
    encoder e = {.t = tokenizer, .ids = ids, .cap = ids ? cap : 0};
    *count = 0;
    PI0_TRY(check_text(text, bytes, err));
    if (bos && tokenizer->bos < 0) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "this tokenizer has no token for the beginning of a text");
        pi0_err_expected(err, "a vocabulary with <bos> or <s>, or a call without BOS");
        return PI0_ERR_ARGUMENT;
    }
    PI0_TRY(open_encoder(&e, text, bytes, scratch, err));
    if (bos)
        put_id(&e, tokenizer->bos);
    if (tokenizer->rules == PI0_RULES_SPM)
        encode_spm(&e, e.escaped, escape_spaces(&e, text, bytes));
    else
        split_at_tokens(&e, &tokenizer->raw, text, bytes, encode_stretch_hf);
    *count = e.count;
    if (e.count <= cap || (!ids && cap == 0))
        return PI0_OK;
    pi0_fail(err, PI0_ERR_ARGUMENT, "the text has more tokens than there is room for");
    pi0_err_expected(err, "room for %zu ids", e.count);
    pi0_err_got(err, "room for %zu", cap);
    return PI0_ERR_ARGUMENT;
}

pi0_status pi0_tokenizer_encode(const pi0_tokenizer *tokenizer, const char *text, size_t bytes, int bos, int64_t *ids, size_t cap,
                                size_t *count, pi0_error *err)
{
    pi0_scratch scratch = {0};
    pi0_status status = pi0_tokenizer_encode_in(tokenizer, text, bytes, bos, ids, cap, count, &scratch, err);
    pi0_scratch_release(&scratch);
    return status;
}
