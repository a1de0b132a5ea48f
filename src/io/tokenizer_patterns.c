#include <stdlib.h>
#include <string.h>

#include "io/tokenizer.h"

pi0_status pi0_patterns_add(pi0_patterns *patterns, const char *text, size_t bytes, int32_t id, bool lstrip, bool rstrip, pi0_error *err)
{
    if (patterns->count == patterns->capacity) {
        size_t capacity = patterns->capacity ? patterns->capacity * 2 : 64;
        pi0_pattern *grown = pi0_alloc_array(capacity, sizeof *grown);
        if (!grown)
            return pi0_fail_memory(err, capacity * sizeof *grown, "the special tokens");
        if (patterns->count)
            memcpy(grown, patterns->at, patterns->count * sizeof *grown);
        pi0_free(patterns->at);
        patterns->at = grown;
        patterns->capacity = capacity;
    }
    pi0_pattern pattern = {.bytes = (uint32_t)bytes, .id = id, .lstrip = lstrip, .rstrip = rstrip};
    pattern.offset = (uint32_t)patterns->text.length;
    pi0_text_add_bytes(&patterns->text, text, bytes);
    if (patterns->text.failed)
        return pi0_fail_memory(err, bytes, "the special tokens");
    patterns->at[patterns->count++] = pattern;
    return PI0_OK;
}

static int compare_text(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_patterns(const pi0_patterns *patterns, const pi0_pattern *a, const pi0_pattern *b)
{
    int order = compare_text(patterns->text.data + a->offset, a->bytes, patterns->text.data + b->offset, b->bytes);
    return order ? order : (a->id > b->id) - (a->id < b->id);
}

static void sift(const pi0_patterns *patterns, size_t root, size_t count)
{
    pi0_pattern *at = patterns->at;
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare_patterns(patterns, &at[child], &at[child + 1]) < 0)
            child++;
        if (compare_patterns(patterns, &at[root], &at[child]) >= 0)
            return;
        pi0_pattern held = at[root];
        at[root] = at[child];
        at[child] = held;
    }
}

/* A heap sort: qsort has no argument through which the comparison could see the texts. */
void pi0_patterns_sort(pi0_patterns *patterns)
{
    pi0_pattern *at = patterns->at;
    for (size_t i = patterns->count / 2; i-- > 0;)
        sift(patterns, i, patterns->count);
    for (size_t end = patterns->count; end-- > 1;) {
        pi0_pattern held = at[0];
        at[0] = at[end];
        at[end] = held;
        sift(patterns, 0, end);
    }
    size_t kept = 0;
    for (size_t i = 0; i < patterns->count; i++) {
        const pi0_pattern *last = kept ? &at[kept - 1] : NULL;
        const char *text = patterns->text.data;
        if (!last || compare_text(text + last->offset, last->bytes, text + at[i].offset, at[i].bytes) != 0)
            at[kept++] = at[i];
    }
    patterns->count = kept;
    for (size_t i = kept; i-- > 0;)
        patterns->first[(uint8_t)patterns->text.data[at[i].offset] + 1]++;
    for (size_t b = 0; b < 256; b++)
        patterns->first[b + 1] += patterns->first[b];
}

/* First of at[low .. high) whose byte at `depth` is at least `byte`; all of them are longer than depth and agree before it. */
static size_t lower_bound(const pi0_patterns *patterns, size_t low, size_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if ((uint8_t)patterns->text.data[patterns->at[middle].offset + depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const pi0_pattern *pi0_patterns_match(const pi0_patterns *patterns, const char *text, size_t bytes)
{
    const pi0_pattern *best = NULL;
    if (bytes == 0)
        return NULL;
    size_t low = patterns->first[(uint8_t)text[0]], high = patterns->first[(uint8_t)text[0] + 1];
    for (size_t depth = 1; low < high; depth++) {
        if (patterns->at[low].bytes == depth) /* a prefix of all others of this range: sorted first */
            best = &patterns->at[low++];
        if (depth == bytes)
            break;
        unsigned byte = (uint8_t)text[depth];
        low = lower_bound(patterns, low, high, depth, byte);
        high = lower_bound(patterns, low, high, depth, byte + 1);
    }
    return best;
}

void pi0_patterns_release(pi0_patterns *patterns)
{
    pi0_free(patterns->at);
    pi0_text_release(&patterns->text);
    memset(patterns, 0, sizeof *patterns);
}
