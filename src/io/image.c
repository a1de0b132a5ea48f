/* image.c - pictures: which file it is, which layout it has, and the checks in front of the resize. */
#include "io/image.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------ decoding */

static const uint8_t png_signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

static bool starts_with(const uint8_t *data, size_t bytes, const void *magic, size_t length)
{
    return bytes >= length && memcmp(data, magic, length) == 0;
}

/* NULL when the bytes are of no picture format that is known by name */
static const char *foreign_format(const uint8_t *data, size_t bytes)
{
    if (starts_with(data, bytes, "GIF8", 4))
        return "a GIF";
    if (starts_with(data, bytes, "BM", 2))
        return "a BMP";
    if (starts_with(data, bytes, "RIFF", 4) && bytes >= 12 && memcmp(data + 8, "WEBP", 4) == 0)
        return "a WebP";
    if (starts_with(data, bytes, "II*\0", 4) || starts_with(data, bytes, "MM\0*", 4))
        return "a TIFF";
    if (starts_with(data, bytes, "PK\3\4", 4))
        return "an npz or zip archive";
    return NULL;
}

pi0_status pi0_pixels_alloc(pi0_pixels *pixels, uint64_t width, uint64_t height, const char *format, const char *where, pi0_error *err)
{
    if (width == 0 || height == 0 || width > PI0_MAX_IMAGE_SIDE || height > PI0_MAX_IMAGE_SIDE || width * height > PI0_MAX_IMAGE_PIXELS) {
        pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "the %s declares a size that is refused", format);
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "1 to %d pixels a side, %u in all", PI0_MAX_IMAGE_SIDE, PI0_MAX_IMAGE_PIXELS);
        pi0_err_got(err, "%llu x %llu", (unsigned long long)width, (unsigned long long)height);
        return status;
    }
    const int64_t shape[3] = {(int64_t)height, (int64_t)width, 3};
    void *storage = NULL;
    PI0_TRY(pi0_arrays_add(pixels->arrays, "", PI0_U8, shape, 3, &storage, err));
    pixels->data = storage;
    pixels->width = (int)width;
    pixels->height = (int)height;
    return PI0_OK;
}

pi0_status pi0_image_decode(const void *data, size_t bytes, const char *where, pi0_arrays **out, pi0_error *err)
{
    *out = NULL;
    pi0_pixels pixels = {.arrays = out};
    pi0_status status;
    if (starts_with(data, bytes, png_signature, sizeof png_signature)) {
        status = pi0_png_decode(data, bytes, where, &pixels, err);
    } else if (starts_with(data, bytes, "\xff\xd8\xff", 3)) {
        status = pi0_jpeg_decode(data, bytes, where, &pixels, err);
    } else if ((status = pi0_refuse_impostor(data, bytes, where, err)) == PI0_OK) {
        const char *known = foreign_format(data, bytes);
        status = pi0_fail(err, PI0_ERR_FORMAT, "not a picture that can be read");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "PNG, JPEG or .npy, told by the first bytes");
        pi0_err_got(err, "%s", bytes == 0 ? "an empty file" : known != NULL ? known : "unknown first bytes");
        pi0_err_hint(err, "convert it to PNG");
    }
    if (status != PI0_OK)
        pi0_arrays_free(out);
    return status;
}

pi0_status pi0_image_read(const char *path, pi0_arrays **out, pi0_error *err)
{
    *out = NULL;
    pi0_mapping file = {0};
    PI0_TRY(pi0_map_file(path, &file, err));
    pi0_status status;
    if (starts_with(file.data, file.bytes, "\x93NUMPY", 6))
        status = pi0_arrays_parse(file.data, file.bytes, path, out, err);
    else
        status = pi0_image_decode(file.data, file.bytes, path, out, err);
    pi0_unmap(&file);
    return status;
}

/* ------------------------------------------------------------------ layout */

static void shape_text(const pi0_array *image, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < image->rank && i < PI0_MAX_RANK && at < bytes; i++) {
        int n = snprintf(text + at, bytes - at, "%s%lld", i ? "," : "", (long long)image->shape[i]);
        at += n > 0 ? (size_t)n : 0;
    }
}

static pi0_status bad_shape(const pi0_array *image, const char *what, const char *hint, pi0_error *err)
{
    char shape[PI0_MAX_RANK * 24];
    shape_text(image, shape, sizeof shape);
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "%s", what);
    if (image->name != NULL && image->name[0] != '\0')
        pi0_err_where(err, "image %s", image->name);
    pi0_err_expected(err, "[height,width,3] or [3,height,width] (a leading 1 may stand before it), sides up to %d", PI0_MAX_IMAGE_SIDE);
    pi0_err_got(err, "%s [%s]", pi0_dtype_name(image->dtype), shape);
    pi0_err_hint(err, "%s", hint);
    return status;
}

static pi0_status read_shape(const pi0_array *image, pi0_picture *out, pi0_error *err)
{
    static const char default_hint[] = "pass RGB in one of these layouts";
    int skip = image->rank == 4 && image->shape[0] == 1;
    if (image->rank - skip != 3)
        return bad_shape(image, "a picture must have three dimensions", default_hint, err);
    const int64_t *shape = image->shape + skip;
    bool last = shape[2] == 3, first = shape[0] == 3;
    if (first && last)
        return bad_shape(image, "the picture's layout is ambiguous: its first and its last extent are 3", "give at least 4 rows or columns",
                         err);
    if (!first && !last)
        return bad_shape(image, "the picture does not have three channels",
                         shape[2] == 4 || shape[0] == 4   ? "drop the alpha channel"
                         : shape[2] == 1 || shape[0] == 1 ? "repeat grey three times"
                                                          : default_hint,
                         err);
    int64_t height = last ? shape[0] : shape[1], width = last ? shape[1] : shape[2];
    if (height < 1 || width < 1 || height > PI0_MAX_IMAGE_SIDE || width > PI0_MAX_IMAGE_SIDE)
        return bad_shape(image, "the picture's size is out of range", default_hint, err);
    size_t area = (size_t)height * (size_t)width;
    if (image->data == NULL || image->bytes != area * 3 * pi0_dtype_size(image->dtype))
        return bad_shape(image, "the picture's byte count does not fit its shape", default_hint, err);
    *out = (pi0_picture){.data = image->data, .dtype = image->dtype, .width = (int)width, .height = (int)height};
    out->row_stride = last ? (size_t)width * 3 : (size_t)width;
    out->planar = !last;
    out->plane = area;
    return PI0_OK;
}

/* ------------------------------------------------------------------ elements */

static double element_f64(const void *data, pi0_dtype dtype, size_t i)
{
    switch (dtype) {
    case PI0_F32:
        return (double)((const float *)data)[i];
    case PI0_F64:
        return ((const double *)data)[i];
    case PI0_F16:
        return (double)pi0_f32_from_f16(((const uint16_t *)data)[i]);
    case PI0_BF16:
        return (double)pi0_f32_from_bf16(((const uint16_t *)data)[i]);
    default:
        return (double)((const uint8_t *)data)[i];
    }
}

/* Values this far outside [0,1] or [-1,1] are another library's rounding, not another range. */
#define RANGE_SLACK 1e-5

static pi0_status bad_value(const pi0_array *image, const pi0_picture *picture, size_t index, double value, pi0_error *err)
{
    size_t channel = picture->planar ? index / picture->plane : index % 3;
    size_t pixel = picture->planar ? index % picture->plane : index / 3;
    bool finite = isfinite(value);
    pi0_status status = finite ? pi0_fail(err, PI0_ERR_ARGUMENT, "a float picture must lie in [0,1] or in [-1,1]")
                               : pi0_fail(err, PI0_ERR_NONFINITE, "the picture holds a value that is not finite");
    pi0_err_where(err, "image%s%s, row %zu, column %zu, channel %zu", image->name && image->name[0] ? " " : "",
                  image->name ? image->name : "", pixel / (size_t)picture->width, pixel % (size_t)picture->width, channel);
    pi0_err_expected(err, "%s", finite ? "values in [0,1] or in [-1,1]" : "finite values");
    pi0_err_got(err, "%g", value);
    if (finite)
        pi0_err_hint(err, "divide 0-255 values by 255, or pass them as uint8");
    return status;
}

/* Written so that a NaN counts as outside, and without branches in blocks of a fixed length, which compilers vectorise. */
#define SCAN(type, magnitude)                                                           \
    static void scan_##type(const type *v, size_t count, bool *outside, bool *negative) \
    {                                                                                   \
        const type limit = (type)(1 + RANGE_SLACK), zero = (type)-RANGE_SLACK;          \
        int out = 0, below = 0;                                                         \
        size_t i = 0;                                                                   \
        for (; i + 64 <= count; i += 64) {                                              \
            for (size_t k = 0; k < 64; k++) {                                           \
                out |= !(magnitude(v[i + k]) <= limit);                                 \
                below |= v[i + k] < zero;                                               \
            }                                                                           \
        }                                                                               \
        for (; i < count; i++) {                                                        \
            out |= !(magnitude(v[i]) <= limit);                                         \
            below |= v[i] < zero;                                                       \
        }                                                                               \
        *outside = out;                                                                 \
        *negative = below;                                                              \
    }

SCAN(float, fabsf)
SCAN(double, fabs)

static pi0_status check_range(const pi0_array *image, pi0_picture *picture, pi0_error *err)
{
    size_t count = (size_t)picture->width * (size_t)picture->height * 3;
    bool outside = false;
    if (picture->dtype == PI0_F32)
        scan_float(picture->data, count, &outside, &picture->is_signed);
    else if (picture->dtype == PI0_F64)
        scan_double(picture->data, count, &outside, &picture->is_signed);
    else
        for (size_t i = 0; i < count; i++) {
            double v = element_f64(picture->data, picture->dtype, i);
            outside = outside || !(fabs(v) <= 1 + RANGE_SLACK);
            picture->is_signed = picture->is_signed || v < -RANGE_SLACK;
        }
    if (!outside)
        return PI0_OK;
    size_t first = count;
    for (size_t i = 0; i < count; i++) {
        double v = element_f64(picture->data, picture->dtype, i);
        if (!isfinite(v))
            return bad_value(image, picture, i, v, err);
        if (first == count && !(fabs(v) <= 1 + RANGE_SLACK))
            first = i;
    }
    first = first < count ? first : 0; /* the scan in the array's own type rounds the limit once more */
    return bad_value(image, picture, first, element_f64(picture->data, picture->dtype, first), err);
}

pi0_status pi0_picture_open(const pi0_array *image, pi0_picture *out, pi0_error *err)
{
    *out = (pi0_picture){0};
    bool is_float = image->dtype == PI0_F32 || image->dtype == PI0_F64 || image->dtype == PI0_F16 || image->dtype == PI0_BF16;
    if (image->dtype != PI0_U8 && !is_float)
        return bad_shape(image, "a picture must hold uint8 or floats", "convert 0-255 values to uint8", err);
    PI0_TRY(read_shape(image, out, err));
    return is_float ? check_range(image, out, err) : PI0_OK;
}

/* ------------------------------------------------------------------ rows */

/* A row is one run of 3*width contiguous elements (HWC) or three runs of width (CHW), written every `step`th place. */

#define EACH(expression)               \
    for (size_t i = 0; i < count; i++) \
    out[i * step] = (expression)

static uint8_t byte_of(double v)
{
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

static uint8_t byte_of_f32(float v)
{
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

/* openpi multiplies in the array's own type and truncates; a [-1,1] picture has no such rule there, so it is rounded. */
static void run_u8(const pi0_picture *picture, size_t start, size_t count, uint8_t *out, size_t step)
{
    const void *data = picture->data;
    pi0_dtype dtype = picture->dtype;
    if (dtype == PI0_U8)
        EACH(((const uint8_t *)data)[start + i]);
    else if (picture->is_signed)
        EACH(byte_of((element_f64(data, dtype, start + i) + 1) * 127.5 + 0.5));
    else if (dtype == PI0_F32)
        EACH(byte_of_f32(255.0f * ((const float *)data)[start + i]));
    else if (dtype == PI0_F64)
        EACH(byte_of(255 * ((const double *)data)[start + i]));
    else if (dtype == PI0_F16)
        EACH(byte_of_f32(pi0_f32_from_f16(pi0_f16_from_f32(255.0f * (float)element_f64(data, dtype, start + i)))));
    else
        EACH(byte_of_f32(pi0_f32_from_bf16(pi0_bf16_from_f32(255.0f * (float)element_f64(data, dtype, start + i)))));
}

static float unit_of(float v)
{
    return v < 0 ? 0 : v > 1 ? 1 : v;
}

static void run_f32(const pi0_picture *picture, size_t start, size_t count, const float unit[256], float *out, size_t step)
{
    const void *data = picture->data;
    if (picture->dtype == PI0_U8)
        EACH(unit[((const uint8_t *)data)[start + i]]);
    else if (picture->is_signed)
        EACH(unit_of(((float)element_f64(data, picture->dtype, start + i) + 1) * 0.5f));
    else if (picture->dtype == PI0_F32)
        EACH(unit_of(((const float *)data)[start + i]));
    else
        EACH(unit_of((float)element_f64(data, picture->dtype, start + i)));
}

const uint8_t *pi0_picture_row_u8(const pi0_picture *picture, int y, uint8_t *row)
{
    size_t start = (size_t)y * picture->row_stride, width = (size_t)picture->width;
    if (!picture->planar && picture->dtype == PI0_U8)
        return (const uint8_t *)picture->data + start;
    if (!picture->planar)
        run_u8(picture, start, 3 * width, row, 1);
    for (size_t c = 0; picture->planar && c < 3; c++)
        run_u8(picture, start + c * picture->plane, width, row + c, 3);
    return row;
}

void pi0_picture_row_f32(const pi0_picture *picture, int y, const float unit[256], float *row)
{
    size_t start = (size_t)y * picture->row_stride, width = (size_t)picture->width;
    if (!picture->planar)
        run_f32(picture, start, 3 * width, unit, row, 1);
    for (size_t c = 0; picture->planar && c < 3; c++)
        run_f32(picture, start + c * picture->plane, width, unit, row + c, 3);
}

/* ------------------------------------------------------------------ the way in */

pi0_status pi0_image_to_input(const pi0_array *image, pi0_resize resize, int size, float *out, pi0_scratch *scratch, pi0_error *err)
{
    if (size < 1 || size > PI0_MAX_IMAGE_SIDE || (size_t)size * (size_t)size > PI0_MAX_IMAGE_PIXELS) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "the model's picture size is out of range");
        pi0_err_expected(err, "1 to 8192");
        pi0_err_got(err, "%d", size);
        return PI0_ERR_ARGUMENT;
    }
    pi0_picture picture;
    PI0_TRY(pi0_picture_open(image, &picture, err));
    pi0_letterbox box = pi0_letterbox_of(picture.width, picture.height, size, resize);
    if (box.width < 1 || box.height < 1)
        return bad_shape(image, "the picture is too thin: nothing is left of its short side after the resize", "crop it", err);
    pi0_scratch own = {0};
    pi0_scratch *use = scratch != NULL ? scratch : &own;
    pi0_status status =
        resize == PI0_RESIZE_PIL ? pi0_resize_pil(&picture, size, out, use, err) : pi0_resize_torch(&picture, resize, size, out, use, err);
    pi0_scratch_release(&own);
    return status;
}

pi0_status pi0_preprocess(const pi0_array *image, const char *resize, int size, float *out, pi0_error *err)
{
    pi0_resize kind;
    if (resize == NULL || !pi0_resize_from_name(resize, &kind)) {
        pi0_fail(err, PI0_ERR_ARGUMENT, "unknown resize rule");
        pi0_err_expected(err, "pil, torch, torch-lerobot04 or top-left");
        pi0_err_got(err, "%s", resize != NULL ? resize : "NULL");
        return PI0_ERR_ARGUMENT;
    }
    return pi0_image_to_input(image, kind, size, out, NULL, err);
}
