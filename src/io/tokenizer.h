/* tokenizer - byte-pair encoding over a fixed vocabulary: what the two file readers fill and the encoder reads.
 *
 * A vocabulary can be read from two kinds of file and be applied by two sets of rules, so that four combinations exist. The readers bring
 * them to one form: pieces with SentencePiece's types, a way to find what two neighbours merge into, and patterns that stand out of the
 * text before anything is merged. Immutable once read; encoding works in memory of its caller's, so threads may share a tokenizer.
 */
#ifndef PI0_IO_TOKENIZER_H
#define PI0_IO_TOKENIZER_H

#include "io/io.h"

/* Text of one encode call. Positions are 32 bits wide and the workspace takes about 70 bytes for each byte of text. */
#define PI0_MAX_TOKENIZER_TEXT (16u << 20)

/* A hash table that honest data half fills needs far fewer; data made to collide is refused instead of taking quadratic time. */
#define PI0_MAX_TOKENIZER_PROBES 512

/* ------------------------------------------------------------------ pieces */

typedef enum pi0_piece_type {                     /* 1 .. 6 are the numbers of the SentencePiece format */
                              PI0_PIECE_NONE = 0, /* an id that the file leaves out */
                              PI0_PIECE_NORMAL = 1,
                              PI0_PIECE_UNKNOWN = 2,
                              PI0_PIECE_CONTROL = 3,
                              PI0_PIECE_USER = 4,
                              PI0_PIECE_UNUSED = 5,
                              PI0_PIECE_BYTE = 6,
                              PI0_PIECE_ADDED = 7 /* has an id and a name, but is not in the model's own vocabulary */
} pi0_piece_type;

typedef struct pi0_piece {
    uint32_t offset; /* of its name in pi0_pieces.text */
    uint32_t order;  /* rules without a merge table: which merge goes first, smallest first */
    uint16_t bytes;
    uint8_t type;
} pi0_piece;

typedef struct pi0_piece_slot {
    uint32_t tag; /* upper half of the name's hash */
    int32_t id;   /* -1: empty */
} pi0_piece_slot;

typedef struct pi0_pieces {
    pi0_piece *at;   /* [size], by id */
    size_t size;     /* highest id + 1 */
    size_t capacity; /* of at */
    size_t named;    /* pieces that are not NONE or ADDED */
    pi0_text text;   /* all names, back to back */
    pi0_piece_slot *slots;
    size_t mask; /* slots - 1 */
} pi0_pieces;

static inline const char *pi0_piece_name(const pi0_pieces *pieces, int32_t id)
{
    return pieces->text.data + pieces->at[id].offset;
}

/* Errors of these three lack the place; pi0_tokenizer_parse adds the file where a reader knows no better. */
pi0_status pi0_pieces_add(pi0_pieces *pieces, int64_t id, const char *name, size_t bytes, pi0_piece_type type, pi0_error *err);
/* After the last add but `extra` more, which index_one takes; equal names are refused. */
pi0_status pi0_pieces_index(pi0_pieces *pieces, size_t extra, pi0_error *err);
pi0_status pi0_pieces_index_one(pi0_pieces *pieces, int32_t id, pi0_error *err);
int32_t pi0_pieces_find(const pi0_pieces *pieces, const char *a, size_t a_bytes, const char *b, size_t b_bytes); /* id of a+b, or -1 */
int pi0_piece_byte_value(const char *name, size_t bytes);                                                        /* of "<0x41>", else -1 */
void pi0_pieces_release(pi0_pieces *pieces);

/* ------------------------------------------------------------------ patterns: the longest of a set of texts at a position */

typedef struct pi0_pattern {
    uint32_t offset, bytes; /* in pi0_patterns.text */
    int32_t id;             /* the lowest, of patterns with equal text; the reference's choice varies from run to run */
    bool lstrip, rstrip;
} pi0_pattern;

typedef struct pi0_patterns {
    pi0_pattern *at; /* sorted by text */
    size_t count, capacity;
    pi0_text text;
    uint32_t first[257]; /* those that begin with byte b: first[b] .. first[b + 1] */
} pi0_patterns;

pi0_status pi0_patterns_add(pi0_patterns *patterns, const char *text, size_t bytes, int32_t id, bool lstrip, bool rstrip, pi0_error *err);
void pi0_patterns_sort(pi0_patterns *patterns); /* after the last add */
const pi0_pattern *pi0_patterns_match(const pi0_patterns *patterns, const char *text, size_t bytes);
void pi0_patterns_release(pi0_patterns *patterns);

/* ------------------------------------------------------------------ merges by pair of ids */

typedef struct pi0_merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: empty */
    uint32_t rank;
    int32_t id;
} pi0_merge;

typedef struct pi0_merges {
    pi0_merge *slots;
    size_t count, capacity; /* capacity is a power of two, or 0 */
} pi0_merges;

pi0_status pi0_merges_start(pi0_merges *merges, size_t pieces, pi0_error *err); /* before the first put */
pi0_status pi0_merges_put(pi0_merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t id, pi0_error *err); /* the last wins */
const pi0_merge *pi0_merges_find(const pi0_merges *merges, int32_t left, int32_t right);
void pi0_merges_release(pi0_merges *merges);

/* ------------------------------------------------------------------ the tokenizer */

typedef enum pi0_rules { PI0_RULES_HF, PI0_RULES_SPM } pi0_rules;

typedef enum pi0_merging {
    PI0_MERGE_BY_RANK,     /* pairs that the file lists */
    PI0_MERGE_BY_SCORE,    /* SentencePiece: any two neighbours that spell a piece, best score first, then from the left */
    PI0_MERGE_AS_CONVERTED /* what Hugging Face's converter would list: by score, then longest left part, longest right part, id */
} pi0_merging;

struct pi0_tokenizer {
    pi0_rules rules;
    pi0_merging merging;
    pi0_pieces pieces;
    pi0_merges merges;       /* PI0_MERGE_BY_RANK */
    pi0_patterns raw;        /* hf: found in the text as it is given */
    pi0_patterns normalized; /* hf: found after spaces became U+2581; spm: the user-defined pieces */
    int32_t byte_ids[256];   /* -1: no such piece */
    int32_t bos, unknown;    /* -1: none */
    bool escapes_spaces;     /* " " becomes U+2581 */
    bool byte_fallback;
    bool fuses_unknown, ignores_merges; /* hf */
    bool has_unused;                    /* spm: pieces to be taken apart again exist */
};

pi0_status pi0_tokenizer_read_json(pi0_tokenizer *t, const char *data, size_t bytes, const char *where, pi0_error *err);
pi0_status pi0_tokenizer_read_spm(pi0_tokenizer *t, const uint8_t *data, size_t bytes, const char *where, pi0_error *err);

#endif
