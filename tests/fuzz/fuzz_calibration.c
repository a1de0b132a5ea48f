#include <string.h>

#include "engine/engine.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pi0_error err = {0};
    pi0_calibration calibration;
    if (pi0_calibration_parse((const char *)data, size, "input", &calibration, &err) == PI0_OK) {
        size_t bytes = strlen(calibration.model) + strlen(calibration.form);
        for (size_t i = 0; i < calibration.n_in_bf16; i++)
            bytes += strlen(calibration.in_bf16[i]);
        if (bytes > size)
            __builtin_trap();
    } else if (!err.what[0] || calibration.document || calibration.in_bf16) {
        __builtin_trap();
    }
    pi0_calibration_close(&calibration);
    pi0_error_clear(&err);
    return 0;
}
