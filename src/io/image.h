/* image.h - what image.c, resize.c, image_png.c and image_jpeg.c share; private to io. */
#ifndef PI0_IO_IMAGE_H
#define PI0_IO_IMAGE_H

#include "io/io.h"

/* A picture being decoded: the pixels of an array that belongs to *arrays. */
typedef struct pi0_pixels {
    pi0_arrays **arrays;
    uint8_t *data; /* u8 [height,width,3] RGB; NULL until pi0_pixels_alloc */
    int width, height;
} pi0_pixels;

/* Refuses sizes above limits.h before anything is allocated from them; `format` is for the error text. */
pi0_status pi0_pixels_alloc(pi0_pixels *pixels, uint64_t width, uint64_t height, const char *format, const char *where, pi0_error *err);

pi0_status pi0_png_decode(const uint8_t *data, size_t bytes, const char *where, pi0_pixels *out, pi0_error *err);
pi0_status pi0_jpeg_decode(const uint8_t *data, size_t bytes, const char *where, pi0_pixels *out, pi0_error *err);

/* A checked picture in any of the accepted forms. Sizes are in elements. */
typedef struct pi0_picture {
    const void *data;
    pi0_dtype dtype;
    int width, height;
    size_t row_stride, plane; /* from row to row; pixels in one colour plane */
    bool planar;              /* [3,height,width]; else [height,width,3] */
    bool is_signed;           /* floats in [-1,1]; else [0,1] */
} pi0_picture;

pi0_status pi0_picture_open(const pi0_array *image, pi0_picture *out, pi0_error *err);

/* Row y as interleaved RGB. The first may return a pointer into the picture itself instead of filling `row`. */
const uint8_t *pi0_picture_row_u8(const pi0_picture *picture, int y, uint8_t *row);                         /* [width,3] */
void pi0_picture_row_f32(const pi0_picture *picture, int y, const float unit[256] /* i/255 */, float *row); /* [width,3] in [0,1] */

/* Where a picture of width x height lands in a square of `size`. */
typedef struct pi0_letterbox {
    int width, height; /* after the resize; 0 where the picture is too thin */
    int left, top;
} pi0_letterbox;

pi0_letterbox pi0_letterbox_of(int width, int height, int size, pi0_resize resize);

pi0_status pi0_resize_pil(const pi0_picture *picture, int size, float *out, pi0_scratch *scratch, pi0_error *err);
pi0_status pi0_resize_torch(const pi0_picture *picture, pi0_resize resize, int size, float *out, pi0_scratch *scratch, pi0_error *err);

#endif
