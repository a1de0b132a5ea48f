#include "model/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pi0_error err = {0};
    pi0_safetensors *file;
    pi0_packed_facts facts;
    if (pi0_safetensors_parse(data, size, "input", &file, &err) == PI0_OK && pi0_packed_is(file)) {
        pi0_packed_check(file, "input", &facts, &err);
        json_decref(pi0_packed_describe(file));
    }
    pi0_safetensors_close(&file);
    pi0_error_clear(&err);
    return 0;
}
