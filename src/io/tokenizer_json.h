/* tokenizer_json - the two halves of the tokenizer.json reader: large members straight from the text, the rest as JSON values. */
#ifndef PI0_IO_TOKENIZER_JSON_H
#define PI0_IO_TOKENIZER_JSON_H

#include "io/tokenizer.h"

typedef struct pi0_json_cursor {
    const char *begin, *at, *end;
    const char *where;
    pi0_error *err;
    pi0_text scratch[2]; /* decoded strings; released by the owner */
} pi0_json_cursor;

typedef struct pi0_json_span {
    const char *begin, *end; /* NULL when the file has no such member */
} pi0_json_span;

/* *rest: the file with model.vocab and model.merges replaced by null. */
pi0_status pi0_tokenizer_json_cut(pi0_json_cursor *c, pi0_json_span *vocab, pi0_json_span *merges, pi0_text *rest);
pi0_status pi0_tokenizer_json_vocab(pi0_json_cursor *c, pi0_json_span span, pi0_pieces *pieces);

/* Into t->merges, or, where these are not the merging rule, into the pieces' order: the rank of the first merge that makes a piece. */
pi0_status pi0_tokenizer_json_merges(pi0_json_cursor *c, pi0_json_span span, pi0_tokenizer *t);

#endif
