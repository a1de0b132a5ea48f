#include <stdlib.h>
#include <string.h>

#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pi0_error err = {0};
    json_t *root, *value;
    if (pi0_json_parse((const char *)data, size, "input", &root, &err) == PI0_OK) {
        int64_t integer;
        double number;
        const char *text;
        bool truth;
        pi0_json_get_object(root, "o", "input", &value, &err);
        pi0_json_get_array(root, "a", "input", &value, &err);
        pi0_json_get_string(root, "s", "input", &text, &err);
        pi0_json_get_int(root, "i", "input", -5, 5, &integer, &err);
        pi0_json_get_number(root, "n", "input", &number, &err);
        pi0_json_get_bool(root, "b", "input", &truth, &err);
        /* What was read can be written, and read again as the same. */
        char *again = json_dumps(root, JSON_ENCODE_ANY | JSON_COMPACT);
        if (!again || pi0_json_parse(again, strlen(again), "again", &value, &err) != PI0_OK || !json_equal(root, value))
            __builtin_trap();
        json_decref(value);
        free(again);
    }
    json_decref(root);
    pi0_error_clear(&err);
    return 0;
}
