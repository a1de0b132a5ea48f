/* Instruction -> ids: cleaned, framed, with the state in digits where the recipe says so (docs/recipe.md, "prompt"). */
#include "io/utf8.h"
#include "model/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ text as it was given */

static pi0_status check_text(const char *prompt, size_t length, pi0_error *err)
{
    if (length > PI0_MAX_PROMPT_BYTES) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the prompt is too long");
        pi0_err_where(err, "prompt");
        pi0_err_expected(err, "at most %d bytes", PI0_MAX_PROMPT_BYTES);
        pi0_err_got(err, "%zu", length);
        return status;
    }
    uint32_t code;
    for (size_t at = 0; at < length;) {
        size_t n = pi0_utf8_decode((const uint8_t *)prompt + at, length - at, &code);
        if (n == 0) {
            pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the prompt is not UTF-8");
            pi0_err_where(err, "prompt, byte %zu", at);
            pi0_err_got(err, "0x%02x", (unsigned char)prompt[at]);
            return status;
        }
        at += n;
    }
    return PI0_OK;
}

/* What Python's str.strip() takes away. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* ------------------------------------------------------------------ text */

/* strip(), then "_" and newline to space, in openpi's order: a prompt that starts with "_" keeps a leading space. */
static void clean_openpi(const char *prompt, size_t length, pi0_text *out)
{
    const uint8_t *text = (const uint8_t *)prompt;
    size_t first = 0, last = 0;
    bool started = false;
    uint32_t code = 0;
    for (size_t at = 0; at < length;) {
        size_t n = pi0_utf8_decode(text + at, length - at, &code);
        if (n == 0)
            break;
        if (!is_space(code)) {
            first = started ? first : at;
            started = true;
            last = at + n;
        }
        at += n;
    }
    for (size_t at = first; started && at < last; at++)
        pi0_text_add_bytes(out, prompt[at] == '_' || prompt[at] == '\n' ? " " : prompt + at, 1);
}

/* np.digitize(x, np.linspace(-1, 1, 257)[:-1]) - 1: how many of the edges -1 + k/128 lie at or below x, minus one. */
static int digit_of(double x)
{
    int bin = x < -1 ? -1 : x >= 1 ? 255 : (int)floor((x + 1) * 128);
    while (bin < 255 && x >= -1 + (bin + 1) / 128.0) /* x + 1 was rounded: the edges are exact */
        bin++;
    while (bin >= 0 && x < -1 + bin / 128.0)
        bin--;
    return bin;
}

static void add_digits(const pi0_recipe *recipe, const double *state, pi0_text *out)
{
    int n = pi0_max_int(recipe->dim[PI0_STATE], recipe->state_pad);
    for (int i = 0; i < n; i++)
        pi0_text_add(out, "%s%d", i ? " " : "", digit_of(i < recipe->dim[PI0_STATE] ? state[i] : 0.0));
}

static pi0_status frame_prompt(const pi0_recipe *recipe, const char *prompt, const double *state, pi0_text *out, pi0_error *err)
{
    size_t length = strlen(prompt);
    PI0_TRY(check_text(prompt, length, err));
    bool digits = recipe->prompt_state == PI0_STATE_DIGITS;
    if (digits && !state) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "this model reads the state in its prompt, and no state was given");
        pi0_err_where(err, "state");
        pi0_err_expected(err, "%d values", recipe->dim[PI0_STATE]);
        return status;
    }
    if (recipe->frame == PI0_FRAME_PI05)
        pi0_text_add(out, "Task: ");
    if (recipe->clean == PI0_CLEAN_OPENPI)
        clean_openpi(prompt, length, out);
    else
        pi0_text_add_bytes(out, prompt, length);
    if (digits) {
        pi0_text_add(out, ", State: ");
        add_digits(recipe, state, out);
    }
    if (recipe->frame == PI0_FRAME_PI05)
        pi0_text_add(out, ";\nAction: ");
    bool ends = out->length && out->data[out->length - 1] == '\n';
    if (recipe->newline == PI0_NEWLINE_ENSURE && !ends)
        pi0_text_add(out, "\n");
    return out->failed ? pi0_fail_memory(err, length, "the prompt") : PI0_OK;
}

/* ------------------------------------------------------------------ ids */

static pi0_status encode(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, const pi0_text *text, int64_t *ids, size_t cap,
                         size_t *count, pi0_error *err)
{
    PI0_TRY(pi0_tokenizer_encode(tokenizer, text->data ? text->data : "", text->length, 1, ids, cap, count, err));
    if (recipe->newline != PI0_NEWLINE_SEPARATE)
        return PI0_OK;
    size_t more = 0;
    PI0_TRY(pi0_tokenizer_encode(tokenizer, "\n", 1, 0, ids + *count, cap - *count, &more, err));
    *count += more;
    return PI0_OK;
}

static pi0_status fit(const pi0_recipe *recipe, const pi0_log *log, size_t *count, pi0_error *err)
{
    size_t limit = (size_t)recipe->max_tokens;
    if (*count <= limit)
        return PI0_OK;
    if (recipe->overflow == PI0_OVERFLOW_ERROR) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the prompt has more tokens than the model takes");
        pi0_err_where(err, "prompt");
        pi0_err_expected(err, "at most %zu tokens (prompt.max_tokens)", limit);
        pi0_err_got(err, "%zu", *count);
        pi0_err_hint(err, "say it in fewer words; --set prompt.overflow=cut drops the end, --set prompt.max_tokens=N makes room");
        return status;
    }
    pi0_log_warning(log, "the prompt has %zu tokens and is cut to %zu: its end is lost", *count, limit);
    *count = limit;
    return PI0_OK;
}

pi0_status pi0_recipe_prompt(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, const char *prompt, const double *text_state,
                             const pi0_log *log, int64_t *ids, size_t cap, size_t *count, pi0_text *framed, pi0_error *err)
{
    enum { SMALL = 1024 };
    int64_t small[SMALL], *room = small;
    pi0_text text = {0};
    pi0_status status = PI0_OK;
    const char *words = prompt ? prompt : recipe->default_prompt;
    *count = 0;
    if (!words) {
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "no prompt was given, and the recipe has no default one");
        pi0_err_where(err, "prompt");
        pi0_err_hint(err, "--prompt TEXT, or --set prompt.default=TEXT");
        return status;
    }
    PI0_TRY_GOTO(frame_prompt(recipe, words, text_state, &text, err));
    size_t bound = text.length + 64; /* a token stands for at least one byte; bos, newline and a tokenizer's own prefix besides */
    if (bound > SMALL) {
        room = pi0_alloc_array(bound, sizeof *room);
        if (!room) {
            status = pi0_fail_memory(err, bound * sizeof *room, "the prompt's tokens");
            goto fail;
        }
    }
    size_t needed = 0;
    PI0_TRY_GOTO(encode(recipe, tokenizer, &text, room, pi0_max_int((int)bound, SMALL), &needed, err));
    PI0_TRY_GOTO(fit(recipe, log, &needed, err));
    if (needed > cap) {
        status = pi0_fail(err, PI0_ERR_INTERNAL, "no room for the prompt's tokens");
        goto fail;
    }
    memcpy(ids, room, needed * sizeof *ids);
    *count = needed;
    if (framed) {
        pi0_text_add_bytes(framed, text.data ? text.data : "", text.length);
        if (recipe->newline == PI0_NEWLINE_SEPARATE)
            pi0_text_add(framed, "\n");
        if (framed->failed)
            status = pi0_fail_memory(err, text.length, "the prompt");
    }
fail:
    if (room != small)
        pi0_free(room);
    pi0_text_release(&text);
    return status;
}
