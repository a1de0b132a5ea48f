/* Any bytes as a picture file; what decodes also goes through a resize. The first byte of the input picks the rule and the size. */
#include <stdlib.h>
#include <string.h>

#include "io/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* Larger pictures are read all right, but a fuzzer learns nothing from spending its time on them. */
#define FUZZ_PIXELS (1 << 18)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static float out[32 * 32 * 3];
    if (bytes < 1)
        return 0;
    pi0_error err = {0};
    pi0_arrays *arrays = NULL;
    bool npy = bytes >= 7 && memcmp(data + 1, "\x93NUMPY", 6) == 0;
    pi0_status status =
        npy ? pi0_arrays_parse(data + 1, bytes - 1, "fuzz", &arrays, &err) : pi0_image_decode(data + 1, bytes - 1, "fuzz", &arrays, &err);
    if ((status == PI0_OK) != (arrays != NULL))
        abort();
    if (status == PI0_OK && pi0_arrays_count(arrays) == 1) {
        const pi0_array *image = pi0_arrays_at(arrays, 0);
        int size = data[0] & 4 ? 32 : 7;
        if (image->bytes <= FUZZ_PIXELS * 3 && pi0_image_to_input(image, (pi0_resize)(data[0] & 3), size, out, NULL, &err) == PI0_OK) {
            for (size_t i = 0; i < (size_t)size * (size_t)size * 3; i++)
                if (!(out[i] >= -3.0f && out[i] <= 1.0f))
                    abort();
        }
    }
    pi0_arrays_free(&arrays);
    pi0_error_clear(&err);
    return 0;
}
