#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/io.h"
#include "io/utf8.h"

/* The values are jansson's; the text is read here, because jansson's own reader drops a byte of a key, without an error, when an
 * allocation fails while it collects that key, and because its messages do not say what was expected. */

#define MAX_DEPTH 100         /* the deepest file in use nests 8 levels; bounds the recursion */
#define MAX_VALUES (4u << 20) /* twice those of the largest tokenizer.json; a byte of text can cost a hundred of memory */

typedef struct parser {
    const char *begin, *at, *end;
    const char *where;
    pi0_error *err;
    pi0_status status;
    char *scratch; /* a stack of decoded strings: the keys of all open objects, then the string being read */
    size_t used, capacity;
    size_t values;
} parser;

static json_t *parse_value(parser *p, int depth);

/* ------------------------------------------------------------------ errors */

static void describe_here(const parser *p, char out[32])
{
    uint32_t code = 0;
    size_t room = (size_t)(p->end - p->at);
    size_t n = pi0_utf8_decode((const uint8_t *)p->at, room, &code);
    if (room == 0)
        snprintf(out, 32, "the end of the text");
    else if (n == 0 || code < 0x20)
        snprintf(out, 32, "byte 0x%02x", (unsigned)(unsigned char)*p->at);
    else
        snprintf(out, 32, "'%.*s'", (int)n, p->at);
}

static void *fail_at(parser *p, const char *expected, const char *hint)
{
    size_t line = 1, column = 1;
    for (const char *c = p->begin; c < p->at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    char got[32];
    describe_here(p, got);
    p->status = pi0_fail(p->err, PI0_ERR_FORMAT, "not valid JSON");
    pi0_err_where(p->err, "%s: line %zu, column %zu", p->where, line, column);
    pi0_err_expected(p->err, "%s", expected);
    pi0_err_got(p->err, "%s", got);
    if (hint)
        pi0_err_hint(p->err, "%s", hint);
    return NULL;
}

static void *fail_memory(parser *p, size_t bytes)
{
    p->status = pi0_fail_memory(p->err, bytes, "JSON");
    pi0_err_where(p->err, "%s", p->where);
    return NULL;
}

static json_t *checked(parser *p, json_t *value)
{
    return value ? value : fail_memory(p, 64);
}

/* ------------------------------------------------------------------ scratch */

static bool scratch_room(parser *p, size_t more)
{
    if (p->capacity - p->used >= more)
        return true;
    size_t capacity = p->capacity ? p->capacity : 256;
    while (capacity - p->used < more) /* cannot overflow: what is decoded is never longer than the text */
        capacity *= 2;
    char *grown = realloc(p->scratch, capacity);
    if (!grown) {
        fail_memory(p, capacity);
        return false;
    }
    p->scratch = grown;
    p->capacity = capacity;
    return true;
}

static bool scratch_put(parser *p, const char *bytes, size_t count)
{
    if (!scratch_room(p, count + 1))
        return false;
    memcpy(p->scratch + p->used, bytes, count);
    p->used += count;
    return true;
}

/* ------------------------------------------------------------------ tokens */

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

static bool next_is(const parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool take_word(parser *p, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
        return false;
    p->at += n;
    return true;
}

/* Four hexadecimal digits, or -1. */
static int take_hex(parser *p)
{
    if (p->end - p->at < 4)
        return -1;
    int code = 0;
    for (int i = 0; i < 4; i++) {
        char c = p->at[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    p->at += 4;
    return code;
}

/* The part of an escape after the backslash. */
static bool take_escape(parser *p)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (p->at == p->end)
        return fail_at(p, "an escaped character", NULL);
    const char *known = *p->at ? strchr(names, *p->at) : NULL;
    if (known) {
        p->at++;
        return scratch_put(p, &values[known - names], 1);
    }
    if (*p->at != 'u')
        return fail_at(p, "one of \" \\ / b f n r t u after the backslash", NULL);
    const char *start = p->at++;
    int code = take_hex(p);
    if (code >= 0xd800 && code < 0xdc00 && take_word(p, "\\u")) {
        int low = take_hex(p);
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + (code - 0xd800) * 0x400 + (low - 0xdc00) : -1;
    }
    char bytes[4];
    size_t n = code > 0 ? pi0_utf8_encode((uint32_t)code, bytes) : 0;
    if (n == 0) {
        p->at = start;
        return fail_at(p, "\\u and four hexadecimal digits of a character (no NUL, surrogates in pairs)", NULL);
    }
    return scratch_put(p, bytes, n);
}

/* Decodes the string at p->at onto the scratch stack, NUL-terminated, from the old p->used on; *length without the NUL. */
static bool take_string(parser *p, size_t *length)
{
    size_t first = p->used;
    p->at++;
    for (;;) {
        const char *run = p->at;
        while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (unsigned char)*p->at >= 0x20) {
            uint32_t code;
            size_t n = pi0_utf8_decode((const uint8_t *)p->at, (size_t)(p->end - p->at), &code);
            if (n == 0)
                return fail_at(p, "text in UTF-8", NULL);
            p->at += n;
        }
        if (!scratch_put(p, run, (size_t)(p->at - run)))
            return false;
        if (p->at == p->end || (unsigned char)*p->at < 0x20)
            return fail_at(p, "the rest of a string, with its closing quote", NULL);
        if (*p->at++ == '"')
            break;
        if (!take_escape(p))
            return false;
    }
    *length = p->used - first;
    return scratch_put(p, "", 1);
}

/* ------------------------------------------------------------------ numbers */

static bool skip_digits(parser *p)
{
    const char *first = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > first;
}

/* The number [first, p->at), already known to follow the grammar, as a double. */
static json_t *make_real(parser *p, const char *first)
{
    size_t length = (size_t)(p->at - first), base = p->used;
    if (!scratch_put(p, first, length) || !scratch_put(p, "", 1))
        return NULL;
    char *point = strchr(p->scratch + base, '.');
    const char *local = localeconv()->decimal_point; /* strtod obeys the program's locale, JSON does not */
    if (point && local[0] && !local[1])
        *point = local[0];
    double value = strtod(p->scratch + base, NULL);
    p->used = base;
    if (!isfinite(value)) {
        p->at = first;
        return fail_at(p, "a number that a double can hold", NULL);
    }
    return checked(p, json_real(value));
}

static json_t *parse_number(parser *p)
{
    const char *first = p->at;
    bool negative = next_is(p, '-'), integral = true;
    p->at += negative;
    const char *digits = p->at;
    if (!skip_digits(p))
        return fail_at(p, "a digit",
                       next_is(p, 'I') ? "JSON has no Infinity: the program that wrote this file had a value that is not finite" : NULL);
    if (*digits == '0' && p->at - digits > 1) {
        p->at = digits + 1;
        return fail_at(p, "a number without leading zeros", NULL);
    }
    const char *digits_end = p->at;
    if (next_is(p, '.')) {
        integral = false;
        p->at++;
        if (!skip_digits(p))
            return fail_at(p, "a digit", NULL);
    }
    if (next_is(p, 'e') || next_is(p, 'E')) {
        integral = false;
        p->at++;
        if (next_is(p, '+') || next_is(p, '-'))
            p->at++;
        if (!skip_digits(p))
            return fail_at(p, "a digit", NULL);
    }
    json_int_t value = 0;
    for (const char *c = digits; integral && c < digits_end; c++) {
        json_int_t digit = *c - '0';
        if (__builtin_mul_overflow(value, (json_int_t)10, &value) || __builtin_add_overflow(value, negative ? -digit : digit, &value))
            integral = false; /* Python writes integers of any length; as a double it fails where an integer is wanted, not here */
    }
    return integral ? checked(p, json_integer(value)) : make_real(p, first);
}

/* ------------------------------------------------------------------ values */

/* One "key": value of the open object. */
static bool parse_member(parser *p, json_t *object, int depth)
{
    size_t base = p->used, length;
    skip_space(p);
    const char *key_at = p->at;
    if (!next_is(p, '"'))
        return fail_at(p, "a key in double quotes", NULL);
    if (!take_string(p, &length))
        return false;
    skip_space(p);
    if (!next_is(p, ':'))
        return fail_at(p, "':' after the key", NULL);
    p->at++;
    json_t *value = parse_value(p, depth);
    if (!value)
        return false;
    size_t before = json_object_size(object);
    if (json_object_set_new_nocheck(object, p->scratch + base, value) != 0)
        return fail_memory(p, length + 64);
    if (json_object_size(object) == before) {
        p->at = key_at;
        fail_at(p, "every key once in an object", NULL);
        pi0_err_got(p->err, "the key \"%.200s\" again", p->scratch + base);
        return false;
    }
    p->used = base;
    return true;
}

static bool parse_element(parser *p, json_t *array, int depth)
{
    json_t *value = parse_value(p, depth);
    if (!value)
        return false;
    return json_array_append_new(array, value) == 0 || fail_memory(p, 64);
}

/* An object or an array: opened, items between commas, closed. */
static json_t *parse_container(parser *p, bool is_object, int depth)
{
    char close = is_object ? '}' : ']';
    if (depth >= MAX_DEPTH)
        return fail_at(p, "at most 100 levels of nesting", NULL);
    json_t *container = checked(p, is_object ? json_object() : json_array());
    if (!container)
        return NULL;
    p->at++;
    skip_space(p);
    if (next_is(p, close)) {
        p->at++;
        return container;
    }
    for (;;) {
        if (!(is_object ? parse_member(p, container, depth + 1) : parse_element(p, container, depth + 1)))
            goto fail;
        skip_space(p);
        if (next_is(p, close)) {
            p->at++;
            return container;
        }
        if (!next_is(p, ',')) {
            fail_at(p, is_object ? "',' or '}' after a member" : "',' or ']' after an element", NULL);
            goto fail;
        }
        p->at++;
    }
fail:
    json_decref(container);
    return NULL;
}

static json_t *parse_text(parser *p)
{
    size_t base = p->used, length;
    if (!take_string(p, &length))
        return NULL;
    json_t *value = checked(p, json_stringn_nocheck(p->scratch + base, length));
    p->used = base;
    return value;
}

static json_t *parse_value(parser *p, int depth)
{
    skip_space(p);
    if (p->at == p->end)
        return fail_at(p, "a value", NULL);
    if (p->values++ >= MAX_VALUES)
        return fail_at(p, "at most 4194304 values in one file", NULL);
    char c = *p->at;
    if (c == '{' || c == '[')
        return parse_container(p, c == '{', depth);
    if (c == '"')
        return parse_text(p);
    if (c == '-' || (c >= '0' && c <= '9'))
        return parse_number(p);
    if (take_word(p, "true"))
        return json_true();
    if (take_word(p, "false"))
        return json_false();
    if (take_word(p, "null"))
        return json_null();
    bool nonfinite = c == 'N' || c == 'I';
    return fail_at(p, "a value",
                   nonfinite ? "JSON has no NaN or Infinity: the program that wrote this file had a value that is not finite" : NULL);
}

pi0_status pi0_json_parse(const char *text, size_t bytes, const char *where, json_t **out, pi0_error *err)
{
    *out = NULL;
    if (!text)
        text = "";
    parser p = {.begin = text, .at = text, .end = text + bytes, .where = where, .err = err};
    json_t *root = parse_value(&p, 0);
    if (root) {
        skip_space(&p);
        if (p.at < p.end) {
            fail_at(&p, "nothing after the value", NULL);
            json_decref(root);
            root = NULL;
        }
    }
    free(p.scratch);
    *out = root;
    return root ? PI0_OK : p.status;
}

pi0_status pi0_json_read(const char *path, size_t max_bytes, json_t **out, pi0_error *err)
{
    *out = NULL;
    pi0_mapping map;
    PI0_TRY(pi0_map_file(path, &map, err));
    pi0_status status = pi0_refuse_impostor(map.data, map.bytes, path, err);
    if (status == PI0_OK && map.bytes > max_bytes) {
        status = pi0_fail(err, PI0_ERR_FORMAT, "the JSON file is too large");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "at most %zu bytes", max_bytes);
        pi0_err_got(err, "%zu bytes", map.bytes);
    } else if (status == PI0_OK) {
        status = pi0_json_parse((const char *)map.data, map.bytes, path, out, err);
    }
    pi0_unmap(&map);
    return status;
}

/* ------------------------------------------------------------------ members of an object */

static int add_bytes(const char *bytes, size_t count, void *text)
{
    pi0_text_add_bytes(text, bytes, count);
    return ((pi0_text *)text)->failed ? -1 : 0;
}

char *pi0_json_text(const json_t *value, size_t flags)
{
    pi0_text text = {0};
    if (!value || json_dump_callback(value, add_bytes, &text, flags) != 0)
        pi0_text_release(&text);
    return text.data;
}

const char *pi0_json_type_name(const json_t *value)
{
    if (!value)
        return "missing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "object";
    case JSON_ARRAY:
        return "array";
    case JSON_STRING:
        return "string";
    case JSON_INTEGER:
        return "integer";
    case JSON_REAL:
        return "real";
    case JSON_TRUE:
    case JSON_FALSE:
        return "boolean";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

/* The type, and the value where one line can show it. */
static void err_got_value(pi0_error *err, const json_t *value)
{
    const char *type = pi0_json_type_name(value);
    if (json_is_string(value))
        pi0_err_got(err, "%s \"%.100s\"", type, json_string_value(value));
    else if (json_is_integer(value))
        pi0_err_got(err, "%s %lld", type, (long long)json_integer_value(value));
    else if (json_is_real(value))
        pi0_err_got(err, "%s %.17g", type, json_real_value(value));
    else if (json_is_boolean(value))
        pi0_err_got(err, "%s %s", type, json_is_true(value) ? "true" : "false");
    else
        pi0_err_got(err, "%s", type);
}

static pi0_status fail_member(pi0_error *err, const json_t *object, const char *key, const char *where, const char *expected)
{
    const json_t *value = json_object_get(object, key);
    pi0_status status = !json_is_object(object) ? pi0_fail(err, PI0_ERR_FORMAT, "not a JSON object, so it has no key \"%s\"", key)
                        : value                 ? pi0_fail(err, PI0_ERR_FORMAT, "the key \"%s\" has a value of the wrong kind", key)
                                                : pi0_fail(err, PI0_ERR_FORMAT, "the key \"%s\" is missing", key);
    pi0_err_where(err, "%s: \"%s\"", where, key);
    pi0_err_expected(err, "%s", expected);
    err_got_value(err, json_is_object(object) ? value : object);
    return status;
}

pi0_status pi0_json_get_object(const json_t *object, const char *key, const char *where, json_t **out, pi0_error *err)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_object(value))
        return fail_member(err, object, key, where, "an object");
    *out = value;
    return PI0_OK;
}

pi0_status pi0_json_get_array(const json_t *object, const char *key, const char *where, json_t **out, pi0_error *err)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_array(value))
        return fail_member(err, object, key, where, "an array");
    *out = value;
    return PI0_OK;
}

pi0_status pi0_json_get_string(const json_t *object, const char *key, const char *where, const char **out, pi0_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        return fail_member(err, object, key, where, "a string");
    *out = json_string_value(value);
    return PI0_OK;
}

pi0_status pi0_json_get_int(const json_t *object, const char *key, const char *where, int64_t min, int64_t max, int64_t *out,
                            pi0_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value))
        return fail_member(err, object, key, where, "an integer");
    int64_t number = json_integer_value(value);
    if (number < min || number > max) {
        pi0_fail(err, PI0_ERR_FORMAT, "the key \"%s\" is out of range", key);
        pi0_err_where(err, "%s: \"%s\"", where, key);
        pi0_err_expected(err, "%lld .. %lld", (long long)min, (long long)max);
        pi0_err_got(err, "%lld", (long long)number);
        return PI0_ERR_FORMAT;
    }
    *out = number;
    return PI0_OK;
}

pi0_status pi0_json_get_number(const json_t *object, const char *key, const char *where, double *out, pi0_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value))
        return fail_member(err, object, key, where, "a number");
    *out = json_number_value(value);
    return PI0_OK;
}

pi0_status pi0_json_get_bool(const json_t *object, const char *key, const char *where, bool *out, pi0_error *err)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_boolean(value))
        return fail_member(err, object, key, where, "true or false");
    *out = json_is_true(value);
    return PI0_OK;
}
