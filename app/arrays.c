/* Reading single values out of a pi0_array, whatever its type. */
#include <stdio.h>
#include <string.h>

#include "observation.h"

static double from_half(uint16_t bits)
{
    double sign = bits & 0x8000u ? -1.0 : 1.0;
    unsigned exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) {
        uint32_t wide = ((uint32_t)(bits & 0x8000u) << 16) | 0x7f800000u | ((uint32_t)mantissa << 13);
        float f;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    }
    double value = exponent ? mantissa + 1024.0 : mantissa;
    for (unsigned e = exponent ? exponent : 1; e < 25; e++)
        value *= 0.5;
    for (unsigned e = 25; e < exponent; e++)
        value *= 2.0;
    return sign * value;
}

#define VALUE_AS(type)                                                 \
    do {                                                               \
        type value_;                                                   \
        memcpy(&value_, bytes + index * sizeof value_, sizeof value_); \
        return (double)value_;                                         \
    } while (0)

double app_array_value(const pi0_array *array, size_t index)
{
    const unsigned char *bytes = array->data;
    uint16_t half;
    uint32_t wide;
    float f;
    switch (array->dtype) {
    case PI0_F32:
        VALUE_AS(float);
    case PI0_F64:
        VALUE_AS(double);
    case PI0_F16:
        memcpy(&half, bytes + index * 2, 2);
        return from_half(half);
    case PI0_BF16:
        memcpy(&half, bytes + index * 2, 2);
        wide = (uint32_t)half << 16;
        memcpy(&f, &wide, sizeof f);
        return (double)f;
    case PI0_U8:
    case PI0_BOOL:
        VALUE_AS(uint8_t);
    case PI0_I8:
        VALUE_AS(int8_t);
    case PI0_I16:
        VALUE_AS(int16_t);
    case PI0_U16:
        VALUE_AS(uint16_t);
    case PI0_I32:
        VALUE_AS(int32_t);
    case PI0_U32:
        VALUE_AS(uint32_t);
    case PI0_I64:
        VALUE_AS(int64_t);
    case PI0_U64:
        VALUE_AS(uint64_t);
    case PI0_TEXT:
        break;
    }
    return 0;
}

size_t app_array_count(const pi0_array *array)
{
    size_t element = pi0_dtype_size(array->dtype);
    return element ? array->bytes / element : 0;
}

void app_array_describe(const pi0_array *array, char *text, size_t size)
{
    int used = snprintf(text, size, "%s [", pi0_dtype_name(array->dtype));
    for (int i = 0; i < array->rank && used > 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, "%s%lld", i ? "," : "", (long long)array->shape[i]);
    if (used > 0 && (size_t)used < size)
        snprintf(text + used, size - (size_t)used, "]");
}
