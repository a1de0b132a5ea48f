#include <stdlib.h>

#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_tensor(const pi0_safetensors *file, const pi0_tensor_view *tensor, pi0_error *err)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < tensor->bytes; i++)
        sum = (uint8_t)(sum + ((const uint8_t *)tensor->data)[i]);
    if (pi0_safetensors_find(file, tensor->name) != tensor)
        __builtin_trap();
    size_t count = tensor->bytes / pi0_dtype_size(tensor->dtype);
    double *values = malloc((count + 1) * sizeof *values);
    if (values)
        pi0_tensor_to_f64(tensor, values, count, err);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pi0_error err = {0};
    pi0_safetensors *file;
    if (pi0_safetensors_parse(data, size, "input", &file, &err) == PI0_OK) {
        for (size_t i = 0; i < pi0_safetensors_count(file); i++)
            use_tensor(file, pi0_safetensors_at(file, i), &err);
        pi0_safetensors_metadata(file, "format");
        pi0_safetensors_find(file, "absent");
    }
    pi0_safetensors_close(&file);
    pi0_error_clear(&err);
    return 0;
}
