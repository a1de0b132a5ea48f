/* zip - the archive around the members of an .npz file: listing and unpacking. Nothing is allocated from a number that the archive
 * merely claims; a member's size is checked against its packed bytes before anyone sees it. */
#ifndef PI0_IO_ZIP_H
#define PI0_IO_ZIP_H

#include "base/base.h"

typedef struct pi0_zip_member {
    const char *name; /* in the archive's own bytes, not NUL-terminated; valid UTF-8 without NUL */
    size_t name_bytes;
    const uint8_t *packed;
    uint64_t packed_bytes, bytes; /* as stored, as unpacked */
    uint64_t start;               /* of the local header, from the beginning of the archive */
    uint32_t crc;
    bool deflated;
} pi0_zip_member;

/* Lists all members in the order of the central directory; *members is freed with pi0_free. Names are distinct, members do not overlap. */
pi0_status pi0_zip_list(const uint8_t *data, size_t bytes, const char *where, pi0_zip_member **members, size_t *count, pi0_error *err);

/* Unpacks a deflated member: writes exactly member->bytes bytes to out, and checks them. */
pi0_status pi0_zip_inflate(const pi0_zip_member *member, const char *where, uint8_t *out, pi0_error *err);

/* Checks the CRC of a member's unpacked bytes; a stored member's are its packed ones. */
pi0_status pi0_zip_check(const pi0_zip_member *member, const char *where, const uint8_t *unpacked, pi0_error *err);

#endif
