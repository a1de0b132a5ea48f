/* resize.c - the two bilinear filters of the references, each with its own arithmetic.
 *
 * PIL widens its triangle when it shrinks, and works on bytes with 22-bit integer weights, columns first, then rows.
 * torch reads the two nearest pixels whatever the scale, in f32, with the source position rounded once to f32.
 * Both are kept to the order of operations of the originals: robots were trained on those bits. */
#include "io/image.h"

#include <math.h>
#include <string.h>

static const char *const names[] = {"pil", "torch", "torch-lerobot04", "top-left"};

bool pi0_resize_from_name(const char *name, pi0_resize *out)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (pi0_resize)i;
            return true;
        }
    }
    return false;
}

const char *pi0_resize_name(pi0_resize resize)
{
    return (unsigned)resize < sizeof names / sizeof names[0] ? names[resize] : "unknown";
}

static pi0_status scratch_reserve(pi0_scratch *scratch, size_t bytes, pi0_error *err)
{
    return pi0_scratch_reserve(scratch, bytes) ? PI0_OK : pi0_fail_memory(err, bytes, "resizing a picture");
}

pi0_letterbox pi0_letterbox_of(int width, int height, int size, pi0_resize resize)
{
    double across = (double)width / size, down = (double)height / size;
    double ratio = across > down ? across : down;
    pi0_letterbox box = {.width = (int)(width / ratio), .height = (int)(height / ratio)};
    /* LeRobot up to 0.3 pads above and to the left only, so that the picture sits in the lower right corner */
    int share = resize == PI0_RESIZE_TOP_LEFT ? 1 : 2;
    box.left = (size - box.width) / share;
    box.top = (size - box.height) / share;
    return box;
}

static void fill(float *out, size_t count, float value)
{
    for (size_t i = 0; i < count; i++)
        out[i] = value;
}

/* ------------------------------------------------------------------ PIL */

#define WEIGHT_BITS 22

/* For each output position: which inputs, and how much of each. */
typedef struct taps {
    int max; /* weights kept for each output */
    int32_t *first, *count, *weight;
} taps;

static double triangle(double x)
{
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

static double taps_support(int in, int out)
{
    double scale = (double)in / out;
    return scale < 1.0 ? 1.0 : scale;
}

static int taps_max(int in, int out)
{
    return (int)ceil(taps_support(in, out)) * 2 + 1;
}

static size_t taps_bytes(int in, int out)
{
    return (size_t)out * (2 + (size_t)taps_max(in, out)) * sizeof(int32_t);
}

static void taps_fill(taps *t, int in, int out, void *memory)
{
    double scale = (double)in / out, support = taps_support(in, out), narrow = 1.0 / support;
    t->max = taps_max(in, out);
    t->first = memory;
    t->count = t->first + out;
    t->weight = t->count + out;
    for (int i = 0; i < out; i++) {
        double center = (i + 0.5) * scale, sum = 0.0;
        int begin = (int)(center - support + 0.5), end = (int)(center + support + 0.5);
        begin = begin < 0 ? 0 : begin;
        end = end > in ? in : end;
        int32_t *weight = t->weight + (size_t)i * (size_t)t->max;
        for (int k = begin; k < end; k++)
            sum += triangle((k - center + 0.5) * narrow);
        for (int k = begin; k < end; k++) {
            double share = triangle((k - center + 0.5) * narrow);
            weight[k - begin] = (int32_t)(0.5 + (sum != 0.0 ? share / sum : share) * (1 << WEIGHT_BITS));
        }
        t->first[i] = begin;
        t->count[i] = end - begin;
    }
}

static uint8_t round_off(int32_t sum)
{
    int32_t v = sum >> WEIGHT_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void filter_row(const taps *t, const uint8_t *row /* [in,3] */, int width, uint8_t *out /* [width,3] */)
{
    for (int x = 0; x < width; x++) {
        const uint8_t *p = row + 3 * (size_t)t->first[x];
        const int32_t *weight = t->weight + (size_t)x * (size_t)t->max;
        int32_t r = 1 << (WEIGHT_BITS - 1), g = r, b = r;
        for (int k = 0; k < t->count[x]; k++, p += 3) {
            r += p[0] * weight[k];
            g += p[1] * weight[k];
            b += p[2] * weight[k];
        }
        out[3 * x] = round_off(r);
        out[3 * x + 1] = round_off(g);
        out[3 * x + 2] = round_off(b);
    }
}

static void filter_column(const taps *t, int y, const uint8_t *rows /* [in,values] */, int values, int32_t *sums, uint8_t *out)
{
    const int32_t *weight = t->weight + (size_t)y * (size_t)t->max;
    const uint8_t *row = rows + (size_t)t->first[y] * (size_t)values;
    for (int i = 0; i < values; i++)
        sums[i] = 1 << (WEIGHT_BITS - 1);
    for (int k = 0; k < t->count[y]; k++, row += values)
        for (int i = 0; i < values; i++)
            sums[i] += row[i] * weight[k];
    for (int i = 0; i < values; i++)
        out[i] = round_off(sums[i]);
}

pi0_status pi0_resize_pil(const pi0_picture *picture, int size, float *out, pi0_scratch *scratch, pi0_error *err)
{
    int width = picture->width, height = picture->height;
    pi0_letterbox box = pi0_letterbox_of(width, height, size, PI0_RESIZE_PIL);
    bool across = box.width != width, down = box.height != height;
    int values = box.width * 3;
    size_t across_bytes = pi0_round_up(across ? taps_bytes(width, box.width) : 0, PI0_ALIGN);
    size_t down_bytes = pi0_round_up(down ? taps_bytes(height, box.height) : 0, PI0_ALIGN);
    size_t sum_bytes = pi0_round_up((size_t)values * sizeof(int32_t), PI0_ALIGN);
    size_t row_bytes = pi0_round_up((size_t)pi0_max_int(width, box.width) * 3, PI0_ALIGN);
    size_t narrowed = (size_t)height * (size_t)values; /* at most 16384 x 8192 x 3 */
    PI0_TRY(scratch_reserve(scratch, across_bytes + down_bytes + sum_bytes + row_bytes + narrowed, err));

    uint8_t *memory = scratch->data;
    taps columns = {0}, lines = {0};
    if (across)
        taps_fill(&columns, width, box.width, memory);
    if (down)
        taps_fill(&lines, height, box.height, memory + across_bytes);
    int32_t *sums = (int32_t *)(void *)(memory + across_bytes + down_bytes); /* [box.width,3] */
    uint8_t *row = memory + across_bytes + down_bytes + sum_bytes;           /* [width,3], then [box.width,3] */
    uint8_t *rows = row + row_bytes;                                         /* [height,box.width,3] */
    for (int y = 0; y < height; y++) {
        const uint8_t *source = pi0_picture_row_u8(picture, y, row);
        uint8_t *target = rows + (size_t)y * (size_t)values;
        if (across)
            filter_row(&columns, source, box.width, target);
        else
            memcpy(target, source, (size_t)values);
    }

    float scaled[256];
    for (int i = 0; i < 256; i++)
        scaled[i] = (float)i / 255.0f * 2.0f - 1.0f;
    fill(out, (size_t)size * (size_t)size * 3, scaled[0]);
    for (int y = 0; y < box.height; y++) {
        const uint8_t *line = rows + (size_t)y * (size_t)values;
        if (down) {
            filter_column(&lines, y, rows, values, sums, row);
            line = row;
        }
        float *target = out + ((size_t)(box.top + y) * (size_t)size + (size_t)box.left) * 3;
        for (int i = 0; i < values; i++)
            target[i] = scaled[line[i]];
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ torch */

/* The two inputs of an output position, and the share of the second. */
typedef struct pair {
    int32_t low, high;
    float share;
} pair;

static void pairs_fill(pair *pairs, int in, int out)
{
    float scale = (float)in / (float)out;
    for (int i = 0; i < out; i++) {
        float at = (float)((double)scale * (i + 0.5) - 0.5); /* torch 2: one rounding, to f32 */
        at = at < 0 ? 0 : at;
        int low = pi0_min_int((int)at, in - 1);
        pairs[i] = (pair){.low = low, .high = low + (low < in - 1), .share = at - (float)low};
    }
}

static float clamp_unit(float v, float low)
{
    return v < low ? low : v > 1.0f ? 1.0f : v;
}

pi0_status pi0_resize_torch(const pi0_picture *picture, pi0_resize resize, int size, float *out, pi0_scratch *scratch, pi0_error *err)
{
    int width = picture->width;
    pi0_letterbox box = pi0_letterbox_of(width, picture->height, size, resize);
    size_t pair_bytes = pi0_round_up((size_t)(box.width + box.height) * sizeof(pair), PI0_ALIGN);
    size_t row_bytes = pi0_round_up((size_t)width * 3 * sizeof(float), PI0_ALIGN);
    PI0_TRY(scratch_reserve(scratch, pair_bytes + 2 * row_bytes, err));
    pair *columns = scratch->data, *lines = columns + box.width;
    pairs_fill(columns, width, box.width);
    pairs_fill(lines, picture->height, box.height);
    float *row[2] = {(float *)(void *)((uint8_t *)scratch->data + pair_bytes), /* [width,3] each, in [0,1] */
                     (float *)(void *)((uint8_t *)scratch->data + pair_bytes + row_bytes)};
    int held[2] = {-1, -1};

    float unit[256];
    for (int i = 0; i < 256; i++)
        unit[i] = (float)i / 255.0f;
    /* LeRobot 0.4 pads with -1 before it maps [0,1] to [-1,1]: its borders are -3 */
    fill(out, (size_t)size * (size_t)size * 3, resize == PI0_RESIZE_TORCH_LEROBOT04 ? -3.0f : -1.0f);
    float least = resize == PI0_RESIZE_TORCH ? 0.0f : -1.0f;
    for (int y = 0; y < box.height; y++) {
        const int wanted[2] = {lines[y].low, lines[y].high};
        for (int i = 0; i < 2; i++) {
            if (held[wanted[i] & 1] != wanted[i]) { /* neighbouring lines differ in parity, so the pair never shares a buffer */
                pi0_picture_row_f32(picture, wanted[i], unit, row[wanted[i] & 1]);
                held[wanted[i] & 1] = wanted[i];
            }
        }
        const float *upper = row[wanted[0] & 1], *lower = row[wanted[1] & 1];
        float down = lines[y].share, up = 1.0f - down;
        float *target = out + ((size_t)(box.top + y) * (size_t)size + (size_t)box.left) * 3;
        for (int x = 0; x < box.width; x++) {
            size_t l = 3 * (size_t)columns[x].low, r = 3 * (size_t)columns[x].high;
            float right = columns[x].share, left = 1.0f - right;
            for (size_t c = 0; c < 3; c++) {
                float a = upper[l + c] * left + upper[r + c] * right, b = lower[l + c] * left + lower[r + c] * right;
                float v = a * up + b * down;
                target[3 * (size_t)x + c] = (resize == PI0_RESIZE_TOP_LEFT ? v : clamp_unit(v, least)) * 2.0f - 1.0f;
            }
        }
    }
    return PI0_OK;
}
