#include <stdlib.h>
#include <string.h>

#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use_array(const pi0_arrays *arrays, const pi0_array *array, pi0_error *err)
{
    if (pi0_arrays_find(arrays, array->name) != array)
        __builtin_trap();
    if (array->dtype == PI0_TEXT) {
        if (strlen(array->data) != array->bytes)
            __builtin_trap();
        return;
    }
    size_t count = pi0_array_count(array);
    if (count * pi0_dtype_size(array->dtype) != array->bytes)
        __builtin_trap();
    if (count > 4096)
        return;
    union {
        double f64[4096];
        float f32[4096];
        int64_t i64[4096];
    } *values = malloc(sizeof *values);
    if (values) {
        pi0_array_to_f64(array, values->f64, count, err);
        pi0_array_to_f32(array, values->f32, count, err);
        pi0_array_to_i64(array, values->i64, count, err);
    }
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pi0_error err = {0};
    pi0_arrays *arrays;
    if (pi0_arrays_parse(data, size, "input", &arrays, &err) == PI0_OK)
        for (size_t i = 0; i < pi0_arrays_count(arrays); i++)
            use_array(arrays, pi0_arrays_at(arrays, i), &err);
    pi0_arrays_free(&arrays);
    pi0_error_clear(&err);
    return 0;
}
