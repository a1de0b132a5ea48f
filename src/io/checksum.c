/* Checksums of files: CRC-32 against accidents, SHA-256 (FIPS 180-4) to tell files apart. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "io/io.h"

uint32_t pi0_crc32(uint32_t crc, const void *data, size_t bytes)
{
    return (uint32_t)crc32_z(crc, data, bytes);
}

/* ------------------------------------------------------------------ SHA-256 */

static inline uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* One round; the names of the eight turn by one from each to the next, so that nothing is moved. */
#define ROUND(a, b, c, d, e, f, g, h, word)                                                 \
    do {                                                                                    \
        h += (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (g ^ (e & (f ^ g))) + (word); \
        d += h;                                                                             \
        h += (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b)));    \
    } while (0)

static void add_block(uint32_t state[8], const uint8_t *block)
{
    static const uint32_t k[64] = {
        0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
        0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
        0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
        0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
        0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
        0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
    uint32_t w[64];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        const uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + w[i - 7] + (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, k[i] + w[i]);
        ROUND(h, a, b, c, d, e, f, g, k[i + 1] + w[i + 1]);
        ROUND(g, h, a, b, c, d, e, f, k[i + 2] + w[i + 2]);
        ROUND(f, g, h, a, b, c, d, e, k[i + 3] + w[i + 3]);
        ROUND(e, f, g, h, a, b, c, d, k[i + 4] + w[i + 4]);
        ROUND(d, e, f, g, h, a, b, c, k[i + 5] + w[i + 5]);
        ROUND(c, d, e, f, g, h, a, b, k[i + 6] + w[i + 6]);
        ROUND(b, c, d, e, f, g, h, a, k[i + 7] + w[i + 7]);
    }
    const uint32_t sums[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++)
        state[i] += sums[i];
}

void pi0_sha256_start(pi0_sha256 *hash)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(hash->state, start, sizeof start);
    hash->bytes = 0;
}

void pi0_sha256_add(pi0_sha256 *hash, const void *data, size_t bytes)
{
    const uint8_t *from = data;
    size_t held = (size_t)(hash->bytes % 64);
    hash->bytes += bytes;
    while (bytes) {
        if (held == 0 && bytes >= 64) {
            add_block(hash->state, from);
            from += 64;
            bytes -= 64;
            continue;
        }
        const size_t piece = bytes < 64 - held ? bytes : 64 - held;
        memcpy(hash->block + held, from, piece);
        held += piece;
        from += piece;
        bytes -= piece;
        if (held == 64) {
            add_block(hash->state, hash->block);
            held = 0;
        }
    }
}

void pi0_sha256_finish(pi0_sha256 *hash, char text[PI0_SHA256_TEXT])
{
    static const uint8_t padding[64] = {0x80};
    const uint64_t bits = hash->bytes * 8;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    pi0_sha256_add(hash, padding, 1 + (119 - (size_t)(hash->bytes % 64)) % 64);
    pi0_sha256_add(hash, length, sizeof length);
    for (int i = 0; i < 8; i++)
        snprintf(text + 8 * i, 9, "%08x", (unsigned)hash->state[i]);
}
