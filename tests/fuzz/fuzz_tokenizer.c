#include <stdlib.h>
#include <string.h>

#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* First byte: which kind of file and which rules. Then the file; its last bytes are the text as well. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MAX_IDS = 512, TEXT = 48 };
    int64_t ids[MAX_IDS];
    char text[TEXT];
    size_t count = 0, n_text = size < TEXT ? size : TEXT;
    pi0_error err = {0};
    pi0_tokenizer *t = NULL;
    if (size == 0)
        return 0;
    if (pi0_tokenizer_parse(data + 1, size - 1, data[0] & 1, data[0] & 2 ? "hf" : "spm", "input", &t, &err) != PI0_OK) {
        if (t)
            __builtin_trap();
        pi0_error_clear(&err);
        return 0;
    }
    memcpy(text, data + size - n_text, n_text);
    for (int pass = 0; pass < 2; pass++) {
        if (pi0_tokenizer_encode(t, text, n_text, data[0] & 4, ids, MAX_IDS, &count, &err) == PI0_OK) {
            char *again = NULL;
            for (size_t i = 0; i < count; i++)
                if (ids[i] < 0 || (uint64_t)ids[i] >= pi0_tokenizer_vocab(t))
                    __builtin_trap();
            if (pi0_tokenizer_decode(t, ids, count, &again, &err) != PI0_OK)
                __builtin_trap(); /* what encode gives, decode takes */
            pi0_text_free(&again);
        }
        for (size_t i = 0; i < n_text; i++)
            text[i] &= 0x7f; /* the second time it is UTF-8 in any case */
    }
    for (size_t i = 0; i < n_text; i++)
        ids[i] = (int8_t)text[i];
    char *decoded = NULL;
    pi0_tokenizer_decode(t, ids, n_text, &decoded, &err);
    pi0_text_free(&decoded);
    pi0_tokenizer_close(&t);
    pi0_error_clear(&err);
    return 0;
}
