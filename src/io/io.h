/* io - bytes to checked data: JSON, safetensors, npy/npz, tokenizer, pictures.
 *
 * Every reader here may be given any bytes at all: a length, count, offset or shape is checked with overflow-safe arithmetic against
 * what is really there, and against limits.h, before it is used or allocated from. No reader knows what a model is.
 */
#ifndef PI0_IO_H
#define PI0_IO_H

#include <jansson.h>

#include "base/base.h"

/* ------------------------------------------------------------------ impostor.c */

/* What a failed download leaves under a file's name, a Git LFS pointer or a web page, is an error that says so; PI0_OK for all else. A
 * reader of files asks before it complains of such bytes in its own terms. */
pi0_status pi0_refuse_impostor(const void *data, size_t bytes, const char *where, pi0_error *err);

/* ------------------------------------------------------------------ json.c: jansson's values, read by an own parser whose errors say where
 * In all getters `where` is the file (and path) for the error text. Duplicate keys are refused. Object order is the file's. */

pi0_status pi0_json_read(const char *path, size_t max_bytes, json_t **out, pi0_error *err); /* json_decref by the caller */
pi0_status pi0_json_parse(const char *text, size_t bytes, const char *where, json_t **out, pi0_error *err);

/* Required members with their type: PI0_ERR_FORMAT names where, key, expected and got. Borrowed references. */
pi0_status pi0_json_get_object(const json_t *object, const char *key, const char *where, json_t **out, pi0_error *err);
pi0_status pi0_json_get_array(const json_t *object, const char *key, const char *where, json_t **out, pi0_error *err);
pi0_status pi0_json_get_string(const json_t *object, const char *key, const char *where, const char **out, pi0_error *err);
pi0_status pi0_json_get_int(const json_t *object, const char *key, const char *where, int64_t min, int64_t max, int64_t *out,
                            pi0_error *err);
pi0_status pi0_json_get_number(const json_t *object, const char *key, const char *where, double *out, pi0_error *err);
pi0_status pi0_json_get_bool(const json_t *object, const char *key, const char *where, bool *out, pi0_error *err);
/* Text of a value, whole or NULL: for want of memory, or of a NULL value. malloc'ed, pi0_text_free. json_dumps may leave out what it has no
 * memory for, without a word. flags: jansson's. */
char *pi0_json_text(const json_t *value, size_t flags);

const char *pi0_json_type_name(const json_t *value); /* "object", "missing" for NULL, ... */

/* ------------------------------------------------------------------ safetensors.c
 * https://github.com/huggingface/safetensors (format): u64le header length, JSON header, data. Memory-mapped, never copied. */

typedef struct pi0_tensor_view {
    const char *name;
    pi0_dtype dtype;
    int rank;
    int64_t shape[PI0_MAX_RANK];
    const void *data; /* into the mapping; aligned only as the file aligns it */
    size_t bytes;
    int shard; /* which file */
} pi0_tensor_view;

typedef struct pi0_safetensors pi0_safetensors;

/* path: one .safetensors file, or a .safetensors.index.json of shards (files beside it; absolute paths and ".." refused).
 * Refused: header longer than the file or the cap, duplicate names, unknown dtype, shape * dtype != byte range, ranges that overlap,
 * leave holes, lie outside, or do not cover the data; an index that disagrees with its shards. */
pi0_status pi0_safetensors_open(const char *path, pi0_safetensors **out, pi0_error *err);
pi0_status pi0_safetensors_parse(const void *data, size_t bytes, const char *where, pi0_safetensors **out,
                                 pi0_error *err); /* data stays the caller's */
void pi0_safetensors_close(pi0_safetensors **file);
size_t pi0_safetensors_count(const pi0_safetensors *file);
const pi0_tensor_view *pi0_safetensors_at(const pi0_safetensors *file, size_t index);       /* in file order */
const pi0_tensor_view *pi0_safetensors_find(const pi0_safetensors *file, const char *name); /* NULL when absent */
const char *pi0_safetensors_metadata(const pi0_safetensors *file, const char *key);         /* of __metadata__; NULL when absent */
size_t pi0_safetensors_shards(const pi0_safetensors *file);
const char *pi0_safetensors_shard_path(const pi0_safetensors *file, size_t shard);
uint64_t pi0_safetensors_data_bytes(const pi0_safetensors *file);
const uint8_t *pi0_safetensors_shard_bytes(const pi0_safetensors *file, size_t shard, size_t *bytes); /* the file as it is mapped */
size_t pi0_safetensors_header_bytes(const pi0_safetensors *file, size_t shard); /* how many of them come before the data */

/* Copies a tensor of F32, F64, F16 or BF16 into doubles / floats, count elements exactly. */
pi0_status pi0_tensor_to_f64(const pi0_tensor_view *tensor, double *out, size_t count, pi0_error *err);
pi0_status pi0_tensor_to_f32(const pi0_tensor_view *tensor, float *out, size_t count, pi0_error *err);

/* Writing: declare all tensors, then give their data in declaration order, in pieces of any size. */
typedef struct pi0_safetensors_writer {
    pi0_writer file;
    uint64_t expected; /* data bytes that the header promises */
    uint64_t data_start;
    uint32_t header_crc; /* of all bytes before the data */
} pi0_safetensors_writer;

pi0_status pi0_safetensors_create(pi0_safetensors_writer *writer, const char *path, const pi0_tensor_view *tensors, size_t count,
                                  const char *const *metadata /* key, value, ..., NULL; or NULL */, pi0_error *err);
/* The same with the data at a multiple of `align` bytes in the file, which is a multiple of PI0_ALIGN: as the function above has it. */
pi0_status pi0_safetensors_create_aligned(pi0_safetensors_writer *writer, const char *path, const pi0_tensor_view *tensors, size_t count,
                                          const char *const *metadata, size_t align, pi0_error *err);
pi0_status pi0_safetensors_put(pi0_safetensors_writer *writer, const void *data, size_t bytes, pi0_error *err);
pi0_status pi0_safetensors_skip_all(pi0_safetensors_writer *writer, pi0_error *err); /* every tensor a hole in the file, read as zeros */
pi0_status pi0_safetensors_finish(pi0_safetensors_writer *writer, pi0_error *err);   /* PI0_ERR_INTERNAL if data is missing; renames */
void pi0_safetensors_abort(pi0_safetensors_writer *writer);

/* ------------------------------------------------------------------ checksum.c */

uint32_t pi0_crc32(uint32_t crc, const void *data, size_t bytes); /* of zip and PNG; 0 to begin with */

typedef struct pi0_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* so far */
    uint8_t block[64];
} pi0_sha256;

#define PI0_SHA256_TEXT 65

void pi0_sha256_start(pi0_sha256 *hash);
void pi0_sha256_add(pi0_sha256 *hash, const void *data, size_t bytes);
void pi0_sha256_finish(pi0_sha256 *hash, char text[PI0_SHA256_TEXT]); /* as sha256sum prints it */

/* ------------------------------------------------------------------ npy.c: the reader and writer behind pi0_arrays_* of pi0.h
 * npy 1.0 - 3.0, C and Fortran order (converted to C), little and big endian (converted), <U and S text (to UTF-8);
 * npz: stored and deflated members, zip64, data descriptors; names lose their ".npy". Object arrays (pickle) are refused by name. */

pi0_status pi0_arrays_parse(const void *data, size_t bytes, const char *where, pi0_arrays **out, pi0_error *err);

/* pi0_arrays_read that skips the members of an .npz whose names begin with one of `prefixes` (ends with NULL), undecoded. */
pi0_status pi0_arrays_read_without(const char *path, const char *const *prefixes, pi0_arrays **out, pi0_error *err);

pi0_status pi0_arrays_new(pi0_arrays **out, pi0_error *err); /* an empty set */

/* For whoever makes arrays (pictures, stages): appends an array of zeroes to *arrays, which is made when it is NULL, and gives its
 * PI0_ALIGN-aligned storage to be filled through *data. `name` is copied. On failure *arrays stays what it was. Numeric types only. */
pi0_status pi0_arrays_add(pi0_arrays **arrays, const char *name, pi0_dtype dtype, const int64_t *shape, int rank, void **data,
                          pi0_error *err);

/* The same for one text of `bytes` bytes (without a NUL, which is added): rank 0, PI0_TEXT. */
pi0_status pi0_arrays_add_text(pi0_arrays **arrays, const char *name, const char *text, size_t bytes, pi0_error *err);

/* An array as doubles / floats / int64s, whatever its numeric type (exact or error for integers). count = element count, checked. */
pi0_status pi0_array_to_f64(const pi0_array *array, double *out, size_t count, pi0_error *err);
pi0_status pi0_array_to_f32(const pi0_array *array, float *out, size_t count, pi0_error *err);
pi0_status pi0_array_to_i64(const pi0_array *array, int64_t *out, size_t count, pi0_error *err);
size_t pi0_array_count(const pi0_array *array);

/* ------------------------------------------------------------------ tokenizer.c (public functions in pi0.h) */

/* The tensor of bytes in which a safetensors file may carry a tokenizer's file: pi0_tokenizer_open reads it there. */
#define PI0_TOKENIZER_TENSOR "pi0/tokenizer"

/* For fuzzing and tests: the same as pi0_tokenizer_open on bytes in memory. is_json: tokenizer.json, else a SentencePiece model. */
pi0_status pi0_tokenizer_parse(const void *data, size_t bytes, bool is_json, const char *rules, const char *where, pi0_tokenizer **out,
                               pi0_error *err);

/* The work of pi0_tokenizer_encode in memory that is kept between calls: a call allocates nothing when that has pi0_tokenizer_room of its
 * text's length. */
pi0_status pi0_tokenizer_encode_in(const pi0_tokenizer *tokenizer, const char *text, size_t bytes, int bos, int64_t *ids, size_t cap,
                                   size_t *count, pi0_scratch *scratch, pi0_error *err);
size_t pi0_tokenizer_room(const pi0_tokenizer *tokenizer, size_t bytes);
uint64_t pi0_tokenizer_bytes(const pi0_tokenizer *tokenizer); /* that it takes; 0 of NULL */

/* ------------------------------------------------------------------ image.c, resize.c (public functions in pi0.h) */

typedef enum pi0_resize { PI0_RESIZE_PIL, PI0_RESIZE_TORCH, PI0_RESIZE_TORCH_LEROBOT04, PI0_RESIZE_TOP_LEFT } pi0_resize;

bool pi0_resize_from_name(const char *name, pi0_resize *out);
const char *pi0_resize_name(pi0_resize resize);

/* Decodes PNG or JPEG bytes (told by content) into one u8 [h,w,3] array. Sizes are checked before anything is allocated from them. */
pi0_status pi0_image_decode(const void *data, size_t bytes, const char *where, pi0_arrays **out, pi0_error *err);

/* The work of pi0_preprocess. `scratch` may be NULL, or is kept between calls to avoid allocation. */
pi0_status pi0_image_to_input(const pi0_array *image, pi0_resize resize, int size, float *out, pi0_scratch *scratch, pi0_error *err);

#endif
