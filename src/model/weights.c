/* Plan weights -> host memory. A weight is an expression over checkpoint tensors; most are one tensor as stored, and stay where the file
 * is mapped. */
#include <string.h>

#include "model/model.h"

static int64_t elements(const pi0_tensor_view *view)
{
    int64_t n = 1;
    for (int i = 0; i < view->rank; i++)
        n *= view->shape[i];
    return n;
}

/* The dtype that a weight has in memory: as stored unless its precision or its form asks for another. */
static pi0_dtype memory_dtype(const pi0_checkpoint *checkpoint, const pi0_weight *weight)
{
    const bool folded = weight->form == PI0_FORM_RIGHT || weight->form == PI0_FORM_FOLD;
    if (weight->use == PI0_USE_VECTOR || weight->n_sources == 0 || folded)
        return PI0_F32;
    const pi0_tensor_view *first = pi0_checkpoint_tensor(checkpoint, weight->source[0]);
    pi0_dtype stored = first ? first->dtype : PI0_F32;
    if (stored == PI0_F64)
        return PI0_F32;
    if (weight->precision == PI0_PRECISION_BF16 && weight->use == PI0_USE_MATRIX)
        return PI0_BF16;
    return stored; /* widening bf16 and f16 to f32 is exact, so f32 needs no copy: the product widens as it reads */
}

static bool is_view(const pi0_checkpoint *checkpoint, const pi0_weight *weight)
{
    if (weight->form != PI0_FORM_TENSOR || weight->n_sources == 0 || (weight->use == PI0_USE_VECTOR && weight->n_sources > 1))
        return false;
    for (int s = 0; s < weight->n_sources; s++) {
        const pi0_tensor_view *view = pi0_checkpoint_tensor(checkpoint, weight->source[s]);
        if (!view || view->dtype != memory_dtype(checkpoint, weight))
            return false;
    }
    return true;
}

pi0_weight_memory pi0_weight_memory_of(const pi0_checkpoint *checkpoint, const pi0_weight *weight)
{
    pi0_weight_memory memory = {.dtype = memory_dtype(checkpoint, weight), .mapped = is_view(checkpoint, weight)};
    memory.bytes = (uint64_t)weight->rows * (uint64_t)weight->cols * pi0_dtype_size(memory.dtype);
    return memory;
}

const char *pi0_precision_word(pi0_precision precision)
{
    return precision == PI0_PRECISION_INT8 ? "int8" : precision == PI0_PRECISION_BF16 ? "bf16" : "f32";
}

pi0_precision pi0_checkpoint_precision(const pi0_checkpoint *checkpoint)
{
    if (checkpoint->packed)
        return checkpoint->packed_for;
    const pi0_tensor_view *matrix =
        pi0_checkpoint_tensor(checkpoint, "paligemma_with_expert.paligemma.model.language_model.layers.0.mlp.gate_proj.weight");
    return matrix && (matrix->dtype == PI0_BF16 || matrix->dtype == PI0_F16) ? PI0_PRECISION_BF16 : PI0_PRECISION_F32;
}

/* ------------------------------------------------------------------ evaluation */

static void fill_rope_table(const pi0_weight *weight, float *out)
{
    const int64_t positions = weight->rows / 2;
    const int head_dim = (int)weight->cols * 2;
    for (int64_t p = 0; p < positions; p++)
        pi0_rope_angles((int)p, head_dim, out + p * weight->cols, out + (positions + p) * weight->cols);
}

enum { PIECE = 1 << 16 }; /* elements converted at a time: the pages of a large source can leave memory behind it */

static pi0_status copy_as_bf16(const pi0_tensor_view *view, uint16_t *out, pi0_error *err)
{
    const size_t element = pi0_dtype_size(view->dtype), total = (size_t)elements(view);
    float *piece = pi0_alloc_array(PIECE, sizeof *piece);
    if (!piece)
        return pi0_fail_memory(err, PIECE * sizeof *piece, "converting a weight");
    pi0_status status = PI0_OK;
    for (size_t first = 0; first < total && status == PI0_OK; first += PIECE) {
        const size_t count = total - first < PIECE ? total - first : PIECE;
        const pi0_tensor_view part = {.name = view->name,
                                      .dtype = view->dtype,
                                      .rank = 1,
                                      .shape = {(int64_t)count},
                                      .data = (const uint8_t *)view->data + first * element,
                                      .bytes = count * element};
        status = pi0_tensor_to_f32(&part, piece, count, err);
        for (size_t i = 0; i < count && status == PI0_OK; i++)
            out[first + i] = pi0_bf16_from_f32(piece[i]);
    }
    pi0_free(piece);
    pi0_map_release_pages(view->data, view->bytes);
    return status;
}

static pi0_status copy_source(const pi0_tensor_view *view, pi0_dtype dtype, uint8_t *to, pi0_error *err)
{
    if (view->dtype == dtype) {
        memcpy(to, view->data, view->bytes);
        return PI0_OK;
    }
    if (dtype == PI0_BF16)
        return copy_as_bf16(view, (uint16_t *)(void *)to, err);
    return pi0_tensor_to_f32(view, (float *)(void *)to, (size_t)elements(view), err);
}

static pi0_status find_source(const pi0_checkpoint *checkpoint, const pi0_weight *weight, int source, const pi0_tensor_view **out,
                              pi0_error *err)
{
    const pi0_tensor_view *view = pi0_checkpoint_tensor(checkpoint, weight->source[source]);
    if (!view) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "a tensor that the model needs is missing");
        pi0_err_where(err, "%s", weight->source[source]);
        return status;
    }
    if (elements(view) != weight->source_rows[source] * weight->cols) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "a tensor has the wrong size");
        pi0_err_where(err, "%s", weight->source[source]);
        pi0_err_expected(err, "%lld x %lld elements", (long long)weight->source_rows[source], (long long)weight->cols);
        pi0_err_got(err, "%lld elements", (long long)elements(view));
        return status;
    }
    *out = view;
    return PI0_OK;
}

/* A source as f32, which must have `count` elements. *out: pi0_free. */
static pi0_status source_as_f32(const pi0_checkpoint *checkpoint, const pi0_weight *weight, int source, int64_t count, float **out,
                                pi0_error *err)
{
    const pi0_tensor_view *view = pi0_checkpoint_tensor(checkpoint, weight->source[source]);
    *out = NULL;
    if (!view || elements(view) != count) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "a tensor that the model needs is missing or has the wrong size");
        pi0_err_where(err, "%s", weight->source[source]);
        pi0_err_expected(err, "%lld elements", (long long)count);
        return status;
    }
    *out = pi0_alloc_array((size_t)count, sizeof **out);
    if (!*out)
        return pi0_fail_memory(err, (size_t)count * sizeof **out, weight->source[source]);
    return pi0_tensor_to_f32(view, *out, (size_t)count, err);
}

/* PI0_FORM_RIGHT, PI0_FORM_FOLD, PI0_FORM_FOLD_BIAS into out [rows, cols]: mlp is [n, 2n], its left half A. */
static pi0_status fold(const pi0_checkpoint *checkpoint, const pi0_weight *weight, float *out, pi0_error *err)
{
    const bool bias = weight->form == PI0_FORM_FOLD_BIAS;
    const int64_t n = bias ? weight->cols : weight->rows, cols = bias ? 1 : weight->cols; /* of what A multiplies */
    float *mlp = NULL, *right = NULL, *constant = NULL;
    pi0_status status;
    PI0_TRY_GOTO(source_as_f32(checkpoint, weight, 0, n * 2 * n, &mlp, err));
    if (weight->form != PI0_FORM_RIGHT)
        PI0_TRY_GOTO(source_as_f32(checkpoint, weight, 1, n * cols, &right, err));
    if (bias)
        PI0_TRY_GOTO(source_as_f32(checkpoint, weight, 2, n, &constant, err));
    for (int64_t i = 0; i < n; i++) {
        if (weight->form == PI0_FORM_RIGHT) {
            memcpy(out + i * n, mlp + i * 2 * n + n, (size_t)n * sizeof *out);
            continue;
        }
        for (int64_t j = 0; j < cols; j++) {
            double sum = bias ? (double)constant[i] : 0.0;
            for (int64_t k = 0; k < n; k++)
                sum += (double)mlp[i * 2 * n + k] * (double)right[k * cols + j];
            out[i * cols + j] = (float)sum;
        }
    }
fail:
    pi0_free(mlp);
    pi0_free(right);
    pi0_free(constant);
    return status;
}

static void one_part(const pi0_weight *weight, void *memory, pi0_host_weight *out)
{
    out->owned = memory;
    out->n_parts = 1;
    out->part[0].data = memory;
    out->part[0].rows = weight->rows;
}

static pi0_status evaluate_fold(const pi0_checkpoint *checkpoint, const pi0_weight *weight, pi0_host_weight *out, pi0_error *err)
{
    float *memory = pi0_alloc_array((size_t)(weight->rows * weight->cols), sizeof *memory);
    if (!memory)
        return pi0_fail_memory(err, (size_t)(weight->rows * weight->cols) * sizeof *memory, weight->source[0]);
    pi0_status status = fold(checkpoint, weight, memory, err);
    if (status != PI0_OK)
        pi0_free(memory);
    else
        one_part(weight, memory, out);
    return status;
}

static pi0_status evaluate_copy(const pi0_checkpoint *checkpoint, const pi0_weight *weight, pi0_host_weight *out, pi0_error *err)
{
    const size_t element = pi0_dtype_size(out->dtype);
    uint8_t *memory = pi0_alloc_array((size_t)(weight->rows * weight->cols), element);
    if (!memory)
        return pi0_fail_memory(err, (size_t)(weight->rows * weight->cols) * element,
                               weight->n_sources ? weight->source[0] : "the rope table");
    size_t offset = 0;
    for (int s = 0; s < weight->n_sources; s++) {
        const pi0_tensor_view *view;
        pi0_status status = find_source(checkpoint, weight, s, &view, err);
        if (status == PI0_OK)
            status = copy_source(view, out->dtype, memory + offset, err);
        if (status != PI0_OK) {
            pi0_free(memory);
            return status;
        }
        offset += (size_t)(weight->source_rows[s] * weight->cols) * element;
    }
    float *values = (float *)(void *)memory;
    if (weight->form == PI0_FORM_ONE_PLUS)
        for (int64_t i = 0; i < weight->rows * weight->cols; i++)
            values[i] = 1.0f + values[i];
    if (weight->form == PI0_FORM_ROPE_TABLE)
        fill_rope_table(weight, values);
    out->owned = memory;
    out->n_parts = pi0_max_int(weight->n_sources, 1);
    offset = 0;
    for (int s = 0; s < out->n_parts; s++) {
        out->part[s].data = memory + offset;
        out->part[s].rows = weight->n_sources ? weight->source_rows[s] : weight->rows;
        offset += (size_t)(out->part[s].rows * weight->cols) * element;
    }
    return PI0_OK;
}

pi0_status pi0_weight_evaluate(const pi0_checkpoint *checkpoint, const pi0_weight *weight, pi0_host_weight *out, pi0_error *err)
{
    *out = (pi0_host_weight){.dtype = memory_dtype(checkpoint, weight), .rows = weight->rows, .cols = weight->cols};
    if (weight->form == PI0_FORM_RIGHT || weight->form == PI0_FORM_FOLD || weight->form == PI0_FORM_FOLD_BIAS)
        return evaluate_fold(checkpoint, weight, out, err);
    if (!is_view(checkpoint, weight))
        return evaluate_copy(checkpoint, weight, out, err);
    for (out->n_parts = 0; out->n_parts < weight->n_sources; out->n_parts++) {
        const pi0_tensor_view *view;
        PI0_TRY(find_source(checkpoint, weight, out->n_parts, &view, err));
        out->part[out->n_parts].data = view->data;
        out->part[out->n_parts].rows = weight->source_rows[out->n_parts];
    }
    return PI0_OK;
}
