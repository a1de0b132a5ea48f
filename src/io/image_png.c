/* image_png.c - PNG through libpng, to what PIL's open(...).convert("RGB") gives: alpha dropped, not composited; colour chunks ignored;
 * 16-bit samples cut to their high byte. */
#include "io/image.h"

#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <string.h>

/* Everything that must survive libpng's longjmp lives here, not in locals of the function that calls setjmp. */
typedef struct job {
    png_structp png;
    png_infop info;
    const uint8_t *data;
    size_t bytes, at;
    pi0_pixels *pixels;
    uint8_t *row;
    const float *floats; /* [size,size,3], when writing */
    int size;
    pi0_writer file;
    pi0_error *err;
    pi0_status file_status;
    bool out_of_memory;
    char message[200];
} job;

static void on_error(png_structp png, png_const_charp message)
{
    job *j = png_get_error_ptr(png);
    snprintf(j->message, sizeof j->message, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static png_voidp on_alloc(png_structp png, png_alloc_size_t bytes)
{
    job *j = png_get_mem_ptr(png);
    void *p = pi0_alloc(bytes);
    j->out_of_memory = j->out_of_memory || p == NULL;
    return p;
}

static void on_free(png_structp png, png_voidp p)
{
    (void)png;
    pi0_free(p);
}

/* Runs body; false when libpng gave up. The setjmp frame holds no local that could be lost. */
static bool protect(job *j, void (*body)(job *))
{
    if (setjmp(png_jmpbuf(j->png)))
        return false;
    body(j);
    return true;
}

static pi0_status png_failed(const job *j, const char *where, pi0_error *err)
{
    if (j->out_of_memory)
        return pi0_fail_memory(err, 0, "decoding a PNG");
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "the PNG cannot be decoded");
    pi0_err_where(err, "%s", where);
    pi0_err_got(err, "libpng: %s", j->message);
    return status;
}

/* ------------------------------------------------------------------ reading */

static void on_read(png_structp png, png_bytep out, size_t count)
{
    job *j = png_get_io_ptr(png);
    if (count > j->bytes - j->at)
        png_error(png, "the file ends early");
    memcpy(out, j->data + j->at, count);
    j->at += count;
}

static void read_header(job *j)
{
    png_set_read_fn(j->png, j, on_read);
    png_set_user_limits(j->png, PI0_MAX_IMAGE_SIDE, PI0_MAX_IMAGE_SIDE);
    png_set_keep_unknown_chunks(j->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1); /* texts, profiles, gamma: never inflated, never applied */
    png_read_info(j->png, j->info);
}

static void read_rows(job *j)
{
    png_structp png = j->png;
    png_set_strip_16(png);
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    int passes = png_set_interlace_handling(png);
    png_read_update_info(png, j->info);
    size_t stride = (size_t)j->pixels->width * 3;
    if (png_get_rowbytes(png, j->info) != stride)
        png_error(png, "a colour type that does not become RGB");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < j->pixels->height; y++)
            png_read_row(png, j->pixels->data + (size_t)y * stride, NULL);
    png_read_end(png, NULL);
}

pi0_status pi0_png_decode(const uint8_t *data, size_t bytes, const char *where, pi0_pixels *out, pi0_error *err)
{
    job j = {.data = data, .bytes = bytes, .pixels = out, .err = err};
    pi0_status status = PI0_OK;
    j.png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, on_alloc, on_free);
    j.info = j.png != NULL ? png_create_info_struct(j.png) : NULL;
    if (j.info == NULL) {
        status = pi0_fail_memory(err, 0, "decoding a PNG");
        goto fail;
    }
    if (bytes >= 24 && memcmp(data + 12, "IHDR", 4) == 0) { /* libpng would refuse too large a size as well, but not say which */
        const uint8_t *p = data + 16;
        uint64_t width = (uint64_t)p[0] << 24 | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 8 | p[3];
        uint64_t height = (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 | (uint64_t)p[6] << 8 | p[7];
        PI0_TRY_GOTO(pi0_pixels_alloc(out, width, height, "PNG", where, err));
    }
    if (!protect(&j, read_header)) {
        status = png_failed(&j, where, err);
        goto fail;
    }
    if (out->data == NULL || png_get_image_width(j.png, j.info) != (png_uint_32)out->width ||
        png_get_image_height(j.png, j.info) != (png_uint_32)out->height) {
        snprintf(j.message, sizeof j.message, "the first chunk is not the header");
        status = png_failed(&j, where, err);
        goto fail;
    }
    if (!protect(&j, read_rows))
        status = png_failed(&j, where, err);
fail:
    if (j.png != NULL)
        png_destroy_read_struct(&j.png, j.info != NULL ? &j.info : NULL, NULL);
    return status;
}

/* ------------------------------------------------------------------ writing */

static void on_write(png_structp png, png_bytep data, size_t count)
{
    job *j = png_get_io_ptr(png);
    j->file_status = pi0_writer_put(&j->file, data, count, j->err);
    if (j->file_status != PI0_OK)
        png_error(png, "cannot write");
}

static void on_flush(png_structp png)
{
    (void)png;
}

static void write_rows(job *j)
{
    png_set_write_fn(j->png, j, on_write, on_flush);
    png_set_IHDR(j->png, j->info, (png_uint_32)j->size, (png_uint_32)j->size, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(j->png, j->info);
    size_t values = (size_t)j->size * 3;
    for (int y = 0; y < j->size; y++) {
        const float *line = j->floats + (size_t)y * values;
        for (size_t i = 0; i < values; i++) {
            float v = (line[i] + 1.0f) * 127.5f + 0.5f;
            j->row[i] = (uint8_t)(v <= 0 ? 0 : v >= 255 ? 255 : v);
        }
        png_write_row(j->png, j->row);
    }
    png_write_end(j->png, j->info);
}

pi0_status pi0_image_write_png(const char *path, const float *pixels, int size, pi0_error *err)
{
    if (size < 1 || size > PI0_MAX_IMAGE_SIDE) {
        pi0_status refused = pi0_fail(err, PI0_ERR_ARGUMENT, "the picture's size is out of range");
        pi0_err_expected(err, "1 to %d", PI0_MAX_IMAGE_SIDE);
        pi0_err_got(err, "%d", size);
        return refused;
    }
    for (size_t i = 0, count = (size_t)size * (size_t)size * 3; i < count; i++) {
        if (!isfinite(pixels[i])) {
            pi0_status refused = pi0_fail(err, PI0_ERR_NONFINITE, "the picture to write holds a value that is not finite");
            pi0_err_where(err, "row %zu, column %zu", i / 3 / (size_t)size, i / 3 % (size_t)size);
            return refused;
        }
    }
    job j = {.floats = pixels, .size = size, .err = err};
    pi0_status status = PI0_OK;
    j.row = pi0_alloc((size_t)size * 3);
    j.png = png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &j, on_error, on_warning, &j, on_alloc, on_free);
    j.info = j.png != NULL ? png_create_info_struct(j.png) : NULL;
    if (j.row == NULL || j.info == NULL) {
        status = pi0_fail_memory(err, (size_t)size * 3, "writing a PNG");
        goto fail;
    }
    PI0_TRY_GOTO(pi0_writer_open(&j.file, path, err));
    if (!protect(&j, write_rows)) {
        status = j.file_status;
        if (status == PI0_OK)
            status = j.out_of_memory ? pi0_fail_memory(err, 0, "writing a PNG") : pi0_fail(err, PI0_ERR_INTERNAL, "libpng: %s", j.message);
        goto fail;
    }
    status = pi0_writer_commit(&j.file, err);
fail:
    if (j.png != NULL)
        png_destroy_write_struct(&j.png, j.info != NULL ? &j.info : NULL);
    pi0_writer_abort(&j.file);
    pi0_free(j.row);
    return status;
}
