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

/* Of a framed text: a token stands for at least one byte; bos, newline and a tokenizer's own prefix besides. */
static size_t most_tokens(size_t bytes)
{
    return bytes + 64;
}

static pi0_status encode(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, pi0_prompt_room *room, size_t *count, pi0_error *err)
{
    const size_t cap = most_tokens(room->text.length);
    if (!pi0_scratch_reserve(&room->ids, cap * sizeof(int64_t)))
        return pi0_fail_memory(err, cap * sizeof(int64_t), "the prompt's tokens");
    int64_t *ids = room->ids.data;
    PI0_TRY(pi0_tokenizer_encode_in(tokenizer, room->text.data ? room->text.data : "", room->text.length, 1, ids, cap, count, &room->work,
                                    err));
    if (recipe->newline != PI0_NEWLINE_SEPARATE)
        return PI0_OK;
    size_t more = 0;
    PI0_TRY(pi0_tokenizer_encode_in(tokenizer, "\n", 1, 0, ids + *count, cap - *count, &more, &room->work, err));
    *count += more;
    pi0_text_add(&room->text, "\n");
    return room->text.failed ? pi0_fail_memory(err, room->text.length, "the prompt") : PI0_OK;
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

pi0_status pi0_prompt_room_reserve(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, const char *prompt, pi0_prompt_room *room,
                                   pi0_error *err)
{
    enum { FRAME = 64, DIGITS = 5 }; /* words of the frame; " 255", and one to spare, of each value */
    const char *words = prompt ? prompt : recipe->default_prompt;
    if (!words || !tokenizer)
        return PI0_OK;
    const size_t state = (size_t)pi0_max_int(recipe->dim[PI0_STATE], recipe->state_pad), bytes = strlen(words) + FRAME + DIGITS * state;
    room->text.length = 0;
    if (pi0_text_reserve(&room->text, bytes) && pi0_scratch_reserve(&room->ids, most_tokens(bytes) * sizeof(int64_t)) &&
        pi0_scratch_reserve(&room->work, pi0_tokenizer_room(tokenizer, bytes)))
        return PI0_OK;
    room->text.failed = false;
    return pi0_fail_memory(err, pi0_tokenizer_room(tokenizer, bytes), "the prompt");
}

void pi0_prompt_room_release(pi0_prompt_room *room)
{
    pi0_text_release(&room->text);
    pi0_scratch_release(&room->ids);
    pi0_scratch_release(&room->work);
}

static pi0_status make_prompt(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, const char *words, const double *text_state,
                              const pi0_log *log, int64_t *ids, size_t cap, size_t *count, pi0_prompt_room *room, pi0_error *err)
{
    size_t needed = 0;
    room->text.length = 0;
    room->text.failed = false;
    PI0_TRY(frame_prompt(recipe, words, text_state, &room->text, err));
    PI0_TRY(encode(recipe, tokenizer, room, &needed, err));
    PI0_TRY(fit(recipe, log, &needed, err));
    if (needed > cap)
        return pi0_fail(err, PI0_ERR_INTERNAL, "no room for the prompt's tokens");
    memcpy(ids, room->ids.data, needed * sizeof *ids);
    *count = needed;
    return PI0_OK;
}

pi0_status pi0_recipe_prompt(const pi0_recipe *recipe, const pi0_tokenizer *tokenizer, const char *prompt, const double *text_state,
                             const pi0_log *log, int64_t *ids, size_t cap, size_t *count, pi0_prompt_room *room, pi0_error *err)
{
    const char *words = prompt ? prompt : recipe->default_prompt;
    pi0_prompt_room own = {0};
    *count = 0;
    if (!words) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "no prompt was given, and the recipe has no default one");
        pi0_err_where(err, "prompt");
        pi0_err_hint(err, "--prompt TEXT, or --set prompt.default=TEXT");
        return status;
    }
    pi0_status status = make_prompt(recipe, tokenizer, words, text_state, log, ids, cap, count, room ? room : &own, err);
    pi0_prompt_room_release(&own);
    return status;
}
