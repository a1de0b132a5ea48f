#include <string.h>
#include <strings.h>

#include "io/io.h"

static bool begins(const char *text, size_t bytes, const char *with)
{
    size_t length = strlen(with);
    return bytes >= length && strncasecmp(text, with, length) == 0;
}

static bool is_page(const char *text, size_t bytes)
{
    static const char *const openings[] = {"<!doctype", "<html", "<head", "<?xml"};
    size_t skip = begins(text, bytes, "\xef\xbb\xbf") ? 3 : 0;
    while (skip < bytes && strchr(" \t\r\n", text[skip]) && text[skip])
        skip++;
    for (size_t i = 0; i < sizeof openings / sizeof openings[0]; i++)
        if (begins(text + skip, bytes - skip, openings[i]))
            return true;
    return false;
}

pi0_status pi0_refuse_impostor(const void *data, size_t bytes, const char *where, pi0_error *err)
{
    if (bytes == 0)
        return PI0_OK;
    bool pointer = begins(data, bytes, "version https://git-lfs");
    if (!pointer && !is_page(data, bytes))
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "%s",
                                 pointer ? "this is a Git LFS pointer: the data was never downloaded"
                                         : "this is a web page: the download did not give the file itself");
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "the file itself");
    pi0_err_got(err, pointer ? "%zu bytes of text that name the data" : "%zu bytes of HTML or XML", bytes);
    pi0_err_hint(err, "%s",
                 pointer ? "git lfs pull in the folder that was cloned (after git lfs install), or fetch it with hf download"
                         : "fetch it again with hf download, logged in where a licence must be accepted; a browser's address of the page "
                           "(/blob/) is not that of the file (/resolve/)");
    return status;
}
