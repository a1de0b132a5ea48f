#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"

struct pi0_arrays {
    pi0_array *list;
    size_t count, capacity;
};

/* ------------------------------------------------------------------ the set */

pi0_status pi0_arrays_new(pi0_arrays **out, pi0_error *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? PI0_OK : pi0_fail_memory(err, sizeof **out, "a set of arrays");
}

static bool reserve_one(pi0_arrays *set)
{
    size_t capacity = set->capacity ? 2 * set->capacity : 4;
    if (set->count < set->capacity)
        return true;
    pi0_array *grown = realloc(set->list, capacity * sizeof *grown);
    if (!grown)
        return false;
    set->list = grown;
    set->capacity = capacity;
    return true;
}

/* Appends an array like `model`, with `storage` zeroed bytes of its own. */
static pi0_status append(pi0_arrays **arrays, const char *name, const pi0_array *model, size_t storage, void **data, pi0_error *err)
{
    pi0_arrays *set = *arrays;
    char *own_name = NULL;
    void *own_data = NULL;
    if (!set)
        PI0_TRY(pi0_arrays_new(&set, err));
    own_name = pi0_strdup(name);
    own_data = pi0_alloc(storage);
    if (!own_name || !own_data || !reserve_one(set))
        goto fail;
    pi0_array *array = &set->list[set->count++];
    *array = *model;
    array->name = own_name;
    array->data = own_data;
    *data = own_data;
    *arrays = set;
    return PI0_OK;
fail:
    pi0_free(own_name);
    pi0_free(own_data);
    if (!*arrays)
        pi0_arrays_free(&set);
    return pi0_fail_memory(err, storage, "an array");
}

pi0_status pi0_arrays_add(pi0_arrays **arrays, const char *name, pi0_dtype dtype, const int64_t *shape, int rank, void **data,
                          pi0_error *err)
{
    pi0_array array = {.dtype = dtype, .rank = rank};
    size_t size = dtype == PI0_TEXT ? 0 : pi0_dtype_size(dtype);
    bool ok = size && rank >= 0 && rank <= PI0_MAX_RANK && pi0_shape_bytes(shape, rank, size, &array.bytes);
    if (!ok || array.bytes > PI0_MAX_ARRAY_BYTES) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "an array that cannot be made");
        pi0_err_where(err, "array \"%.256s\"", name);
        pi0_err_expected(err, "a numeric type, at most %d extents of 0 or more, at most %llu bytes", PI0_MAX_RANK,
                         (unsigned long long)PI0_MAX_ARRAY_BYTES);
        pi0_err_got(err, "type %s, rank %d", pi0_dtype_name(dtype), rank);
        return PI0_ERR_ARGUMENT;
    }
    for (int i = 0; i < rank; i++)
        array.shape[i] = shape[i];
    return append(arrays, name, &array, array.bytes, data, err);
}

pi0_status pi0_arrays_add_text(pi0_arrays **arrays, const char *name, const char *text, size_t bytes, pi0_error *err)
{
    pi0_array array = {.dtype = PI0_TEXT, .bytes = bytes};
    void *data;
    if (bytes > PI0_MAX_ARRAY_BYTES)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "a text that is too long: %zu bytes", bytes);
    PI0_TRY(append(arrays, name, &array, bytes + 1, &data, err));
    if (bytes)
        memcpy(data, text, bytes);
    return PI0_OK;
}

size_t pi0_arrays_count(const pi0_arrays *arrays)
{
    return arrays ? arrays->count : 0;
}

const pi0_array *pi0_arrays_at(const pi0_arrays *arrays, size_t index)
{
    return arrays && index < arrays->count ? &arrays->list[index] : NULL;
}

const pi0_array *pi0_arrays_find(const pi0_arrays *arrays, const char *name)
{
    for (size_t i = 0; arrays && name && i < arrays->count; i++)
        if (strcmp(arrays->list[i].name, name) == 0)
            return &arrays->list[i];
    return NULL;
}

void pi0_arrays_free(pi0_arrays **arrays)
{
    if (!arrays || !*arrays)
        return;
    for (size_t i = 0; i < (*arrays)->count; i++) {
        pi0_free((void *)(uintptr_t)(*arrays)->list[i].name);
        pi0_free((void *)(uintptr_t)(*arrays)->list[i].data);
    }
    free((*arrays)->list);
    free(*arrays);
    *arrays = NULL;
}

/* ------------------------------------------------------------------ values, whatever the type */

size_t pi0_array_count(const pi0_array *array)
{
    size_t count;
    if (array->rank < 0 || array->rank > PI0_MAX_RANK || !pi0_shape_bytes(array->shape, array->rank, 1, &count))
        return 0;
    return count;
}

static bool is_float(pi0_dtype dtype)
{
    return dtype == PI0_F32 || dtype == PI0_F64 || dtype == PI0_F16 || dtype == PI0_BF16;
}

static pi0_status check_count(const pi0_array *array, size_t count, pi0_error *err)
{
    size_t size = array->dtype == PI0_TEXT ? 0 : pi0_dtype_size(array->dtype);
    size_t have = pi0_array_count(array);
    if (size && have == count && array->bytes / size == count && (array->data || count == 0))
        return PI0_OK;
    pi0_fail(err, PI0_ERR_ARGUMENT, size ? "an array does not have the expected number of values" : "an array does not hold numbers");
    pi0_err_where(err, "array \"%.256s\"", array->name ? array->name : "");
    pi0_err_expected(err, "%zu number%s", count, count == 1 ? "" : "s");
    pi0_err_got(err, "%zu of type %s", have, pi0_dtype_name(array->dtype));
    return PI0_ERR_ARGUMENT;
}

static pi0_status fail_value(const pi0_array *array, size_t i, const char *kind, pi0_error *err)
{
    pi0_fail(err, PI0_ERR_ARGUMENT, "a value cannot be converted exactly");
    pi0_err_where(err, "array \"%.256s\", element %zu", array->name ? array->name : "", i);
    pi0_err_expected(err, "%s", kind);
    return PI0_ERR_ARGUMENT;
}

static double float_at(const pi0_array *array, size_t i)
{
    const uint8_t *p = (const uint8_t *)array->data + i * pi0_dtype_size(array->dtype);
    double wide;
    float single;
    uint16_t half;
    switch (array->dtype) {
    case PI0_F64:
        memcpy(&wide, p, sizeof wide);
        return wide;
    case PI0_F32:
        memcpy(&single, p, sizeof single);
        return (double)single;
    case PI0_F16:
        memcpy(&half, p, sizeof half);
        return (double)pi0_f32_from_f16(half);
    default:
        memcpy(&half, p, sizeof half);
        return (double)pi0_f32_from_bf16(half);
    }
}

/* The integer in two's complement; *negative tells how to read it. */
static uint64_t integer_at(const pi0_array *array, size_t i, bool *negative)
{
    size_t size = pi0_dtype_size(array->dtype);
    const uint8_t *p = (const uint8_t *)array->data + i * size;
    uint64_t value = 0;
    memcpy(&value, p, size); /* little-endian hosts */
    bool is_signed = array->dtype == PI0_I8 || array->dtype == PI0_I16 || array->dtype == PI0_I32 || array->dtype == PI0_I64;
    *negative = is_signed && (value >> (8 * size - 1) & 1u);
    if (*negative && size < 8)
        value |= UINT64_MAX << (8 * size);
    return array->dtype == PI0_BOOL ? value != 0 : value;
}

/* Whether the double, which rounds the integer, still is that integer. */
static bool same_integer(double rounded, uint64_t value, bool negative)
{
    if (negative)
        return (int64_t)rounded == (int64_t)value; /* at least -2^63: no overflow */
    return rounded < 0x1p64 && (uint64_t)rounded == value;
}

pi0_status pi0_array_to_f64(const pi0_array *array, double *out, size_t count, pi0_error *err)
{
    PI0_TRY(check_count(array, count, err));
    for (size_t i = 0; i < count; i++) {
        if (is_float(array->dtype)) {
            out[i] = float_at(array, i);
            continue;
        }
        bool negative;
        uint64_t value = integer_at(array, i, &negative);
        out[i] = negative ? (double)(int64_t)value : (double)value;
        if (!same_integer(out[i], value, negative))
            return fail_value(array, i, "an integer that f64 holds exactly", err);
    }
    return PI0_OK;
}

pi0_status pi0_array_to_f32(const pi0_array *array, float *out, size_t count, pi0_error *err)
{
    PI0_TRY(check_count(array, count, err));
    for (size_t i = 0; i < count; i++) {
        if (is_float(array->dtype)) {
            out[i] = (float)float_at(array, i);
            continue;
        }
        bool negative;
        uint64_t value = integer_at(array, i, &negative);
        out[i] = negative ? (float)(int64_t)value : (float)value;
        if (!same_integer((double)out[i], value, negative))
            return fail_value(array, i, "an integer that f32 holds exactly", err);
    }
    return PI0_OK;
}

pi0_status pi0_array_to_i64(const pi0_array *array, int64_t *out, size_t count, pi0_error *err)
{
    PI0_TRY(check_count(array, count, err));
    for (size_t i = 0; i < count; i++) {
        if (is_float(array->dtype)) {
            double value = float_at(array, i);
            if (!(value >= -0x1p63 && value < 0x1p63) || value != floor(value))
                return fail_value(array, i, "a whole number of 64 bits", err);
            out[i] = (int64_t)value;
            continue;
        }
        bool negative;
        uint64_t value = integer_at(array, i, &negative);
        if (!negative && value > INT64_MAX)
            return fail_value(array, i, "a signed integer of 64 bits", err);
        out[i] = (int64_t)value;
    }
    return PI0_OK;
}
