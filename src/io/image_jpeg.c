/* image_jpeg.c - JPEG through libjpeg-turbo, with the same exact DCT and smooth chroma upsampling that PIL uses.
 * The orientation tag is not applied, as PIL's open() does not apply it. */
#include "io/image.h"

#include <turbojpeg.h>

static pi0_status jpeg_failed(tjhandle handle, const char *where, pi0_error *err)
{
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "the JPEG cannot be decoded");
    pi0_err_where(err, "%s", where);
    pi0_err_got(err, "libjpeg-turbo: %s", tjGetErrorStr2(handle));
    pi0_err_hint(err, "save the picture again; a picture with missing parts is never used");
    return status;
}

pi0_status pi0_jpeg_decode(const uint8_t *data, size_t bytes, const char *where, pi0_pixels *out, pi0_error *err)
{
    tjhandle handle = tjInitDecompress();
    if (handle == NULL)
        return pi0_fail_memory(err, 0, "decoding a JPEG");
    pi0_status status = PI0_OK;
    int width = 0, height = 0, sampling = 0, colours = 0;
    if (tjDecompressHeader3(handle, data, (unsigned long)bytes, &width, &height, &sampling, &colours) != 0) {
        status = jpeg_failed(handle, where, err);
        goto fail;
    }
    if (colours == TJCS_CMYK || colours == TJCS_YCCK) {
        status = pi0_fail(err, PI0_ERR_UNSUPPORTED, "a CMYK JPEG, made for printing, is not read");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "a colour or grey JPEG");
        pi0_err_hint(err, "convert it to RGB");
        goto fail;
    }
    PI0_TRY_GOTO(pi0_pixels_alloc(out, width > 0 ? (uint64_t)width : 0, height > 0 ? (uint64_t)height : 0, "JPEG", where, err));
    /* a progressive file can ask for thousands of passes over the picture; warnings stand for missing or damaged data */
    int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS | TJFLAG_STOPONWARNING;
    if (tjDecompress2(handle, data, (unsigned long)bytes, out->data, width, width * 3, height, TJPF_RGB, flags) != 0)
        status = jpeg_failed(handle, where, err);
fail:
    tjDestroy(handle);
    return status;
}
