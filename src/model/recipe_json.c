/* The recipe file: one JSON object whose members are the dotted field names of recipe.h. */
#include "io/utf8.h"
#include "model/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PI0_RECIPE_MARK "pi0_recipe" /* member that says what the file is; its value is the version */
#define PI0_RECIPE_VERSION 1

static void *member(pi0_recipe *recipe, int id)
{
    return (char *)recipe + pi0_recipe_field((pi0_field_id)id)->offset;
}

static const void *const_member(const pi0_recipe *recipe, int id)
{
    return (const char *)recipe + pi0_recipe_field((pi0_field_id)id)->offset;
}

/* ------------------------------------------------------------------ writing */

json_t *pi0_json_words(const char *text)
{
    if (pi0_utf8_is_text(text, strlen(text)))
        return json_string(text);
    pi0_text clean = {0};
    const size_t bytes = strlen(text);
    for (size_t i = 0; i < bytes;) {
        uint32_t code;
        const size_t n = pi0_utf8_decode((const uint8_t *)text + i, bytes - i, &code);
        pi0_text_add_bytes(&clean, n ? text + i : "\xef\xbf\xbd", n ? n : 3);
        i += n ? n : 1;
    }
    json_t *value = clean.failed ? NULL : json_string(clean.data);
    pi0_text_release(&clean);
    return value;
}

static json_t *names_json(const pi0_names *names)
{
    json_t *array = json_array();
    for (int i = 0; array && i < names->n; i++)
        if (json_array_append_new(array, pi0_json_words(names->v[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *cameras_json(const pi0_cameras *cameras)
{
    json_t *array = json_array();
    for (int i = 0; array && i < cameras->n; i++) {
        const pi0_recipe_camera_slot *c = &cameras->v[i];
        json_t *entry = json_object();
        bool failed = json_object_set_new(entry, "slot", pi0_json_words(c->slot)) != 0;
        failed |= json_object_set_new(entry, "key", pi0_json_words(c->key)) != 0;
        failed |= json_object_set_new(entry, "empty", json_boolean(c->empty)) != 0;
        failed |= json_object_set_new(entry, "required", json_boolean(c->required)) != 0;
        failed |= json_array_append(array, entry) != 0;
        json_decref(entry);
        if (failed) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *list_json(int n, const bool *flags, const int *indices, const double *numbers)
{
    json_t *array = json_array();
    for (int i = 0; array && i < n; i++) {
        json_t *value = flags                  ? json_boolean(flags[i])
                        : indices              ? json_integer(indices[i])
                        : isfinite(numbers[i]) ? json_real(numbers[i])
                                               : json_null();
        if (json_array_append_new(array, value) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

json_t *pi0_recipe_value_json(const pi0_recipe *recipe, int id)
{
    const pi0_field *field = pi0_recipe_field((pi0_field_id)id);
    const void *value = const_member(recipe, id);
    const pi0_flags *flags = value;
    const pi0_indices *indices = value;
    const pi0_numbers *numbers = value;
    const char *text;
    switch (field->type) {
    case PI0_TYPE_CHOICE:
        return json_string(field->choices[*(const int *)value]);
    case PI0_TYPE_INT:
        return json_integer(*(const int *)value);
    case PI0_TYPE_NUMBER:
        return json_real(*(const double *)value);
    case PI0_TYPE_BOOL:
        return json_boolean(*(const bool *)value);
    case PI0_TYPE_TEXT:
        text = *(char *const *)value;
        return text ? pi0_json_words(text) : json_null();
    case PI0_TYPE_FLAGS:
        return list_json(flags->n, flags->v, NULL, NULL);
    case PI0_TYPE_INDICES:
        return list_json(indices->n, NULL, indices->v, NULL);
    case PI0_TYPE_NUMBERS:
        return list_json(numbers->n, NULL, NULL, numbers->v);
    case PI0_TYPE_NAMES:
        return names_json(value);
    case PI0_TYPE_CAMERAS:
        return cameras_json(value);
    }
    return NULL;
}

json_t *pi0_recipe_to_json(const pi0_recipe *recipe)
{
    json_t *object = json_object();
    bool failed = !object || json_object_set_new(object, PI0_RECIPE_MARK, json_integer(PI0_RECIPE_VERSION)) != 0;
    for (int id = 0; !failed && id < PI0_FIELDS; id++) {
        const pi0_field *field = pi0_recipe_field((pi0_field_id)id);
        if (field->optional && *(const int *)const_member(recipe, id) == 0) /* every optional type starts with its count */
            continue;
        failed = json_object_set_new(object, field->name, pi0_recipe_value_json(recipe, id)) != 0;
    }
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}

/* ------------------------------------------------------------------ reading one value */

static pi0_status mistyped(const pi0_field *field, const char *where, const char *expected, const json_t *got, pi0_error *err)
{
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "the recipe field %s has a wrong value", field->name);
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "%s", expected);
    char *text = got && !json_is_object(got) && !json_is_array(got) ? pi0_json_text(got, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    pi0_err_got(err, "%s%s%.200s", pi0_json_type_name(got), text ? " " : "", text ? text : "");
    pi0_text_free(&text);
    return status;
}

static pi0_status read_choice(const pi0_field *field, const json_t *value, const char *where, int *out, pi0_error *err)
{
    for (int i = 0; field->choices[i]; i++)
        if (json_is_string(value) && strcmp(field->choices[i], json_string_value(value)) == 0) {
            *out = i;
            return PI0_OK;
        }
    pi0_text list = {0};
    for (int i = 0; field->choices[i]; i++)
        pi0_text_add(&list, "%s%s", i ? ", " : "one of ", field->choices[i]);
    pi0_status status = mistyped(field, where, list.data ? list.data : "one of its choices", value, err);
    pi0_text_release(&list);
    return status;
}

static pi0_status read_list(const pi0_field *field, const json_t *value, const char *where, void *out, pi0_error *err)
{
    pi0_flags *flags = out;
    pi0_indices *indices = out;
    pi0_numbers *numbers = out;
    const char *expected = field->type == PI0_TYPE_FLAGS     ? "a list of true and false"
                           : field->type == PI0_TYPE_INDICES ? "a list of positions, each from 0"
                                                             : "a list of numbers";
    if (!json_is_array(value) && !(json_is_null(value) && field->type == PI0_TYPE_NUMBERS))
        return mistyped(field, where, expected, value, err);
    size_t n = json_array_size(value);
    if (n > PI0_MAX_DIM) {
        pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "the recipe field %s is too long", field->name);
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "at most %d values", PI0_MAX_DIM);
        pi0_err_got(err, "%zu", n);
        return status;
    }
    flags->n = 0; /* the count is the first member of all three */
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(value, i);
        bool zero_one = json_is_integer(item) && (json_integer_value(item) == 0 || json_integer_value(item) == 1);
        if (field->type == PI0_TYPE_FLAGS && (json_is_boolean(item) || zero_one))
            flags->v[i] = json_is_true(item) || (json_is_integer(item) && json_integer_value(item) == 1);
        else if (field->type == PI0_TYPE_INDICES && json_is_integer(item) && json_integer_value(item) >= 0 &&
                 json_integer_value(item) < PI0_MAX_DIM)
            indices->v[i] = (int)json_integer_value(item);
        else if (field->type == PI0_TYPE_NUMBERS && json_is_number(item))
            numbers->v[i] = json_number_value(item);
        else
            return mistyped(field, where, expected, item, err);
    }
    flags->n = (int)n;
    return PI0_OK;
}

static pi0_status read_names(const pi0_field *field, const json_t *value, const char *where, pi0_names *out, pi0_error *err)
{
    if (!json_is_array(value))
        return mistyped(field, where, "a list of names", value, err);
    pi0_names_clear(out);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_string(item))
            return mistyped(field, where, "a list of names", item, err);
        PI0_TRY(pi0_names_add(out, json_string_value(item), json_string_length(item), where, err));
    }
    return PI0_OK;
}

static pi0_status read_cameras(const pi0_field *field, const json_t *value, const char *where, pi0_cameras *out, pi0_error *err)
{
    static const char *const shape = "a list of {\"slot\": name, \"key\": name, \"empty\": true or false, \"required\": true or false}";
    if (!json_is_array(value))
        return mistyped(field, where, shape, value, err);
    pi0_cameras_clear(out);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const json_t *slot = json_object_get(item, "slot"), *key = json_object_get(item, "key");
        const json_t *empty = json_object_get(item, "empty"), *required = json_object_get(item, "required");
        bool right = json_is_object(item) && json_is_string(slot) && json_string_length(slot) > 0 && json_is_string(key) &&
                     json_is_boolean(empty) && json_is_boolean(required) && json_object_size(item) == 4;
        if (!right || (json_is_false(empty) && json_string_length(key) == 0))
            return mistyped(field, where, shape, item, err);
        PI0_TRY(
            pi0_cameras_add(out, json_string_value(slot), json_string_value(key), json_is_true(empty), json_is_true(required), where, err));
    }
    return PI0_OK;
}

static pi0_status read_text(const pi0_field *field, const json_t *value, const char *where, char **out, pi0_error *err)
{
    if (!json_is_null(value) && (!json_is_string(value) || json_string_length(value) > PI0_MAX_PROMPT_BYTES))
        return mistyped(field, where, "a text, or null for none", value, err);
    char *copy = json_is_string(value) ? pi0_strdup(json_string_value(value)) : NULL;
    if (json_is_string(value) && !copy)
        return pi0_fail_memory(err, json_string_length(value), "a text of the recipe");
    pi0_free(*out);
    *out = copy;
    return PI0_OK;
}

pi0_status pi0_recipe_value_read(pi0_recipe *recipe, int id, const json_t *value, const char *where, pi0_error *err)
{
    const pi0_field *field = pi0_recipe_field((pi0_field_id)id);
    void *out = member(recipe, id);
    char expected[96];
    double number = json_number_value(value);
    switch (field->type) {
    case PI0_TYPE_CHOICE:
        return read_choice(field, value, where, out, err);
    case PI0_TYPE_INT:
        snprintf(expected, sizeof expected, "a whole number from %g to %g", field->min, field->max);
        if (!json_is_integer(value) || number < field->min || number > field->max)
            return mistyped(field, where, expected, value, err);
        *(int *)out = (int)json_integer_value(value);
        return PI0_OK;
    case PI0_TYPE_NUMBER:
        snprintf(expected, sizeof expected, "a number from %g to %g", field->min, field->max);
        if (!json_is_number(value) || !(number >= field->min && number <= field->max))
            return mistyped(field, where, expected, value, err);
        *(double *)out = number;
        return PI0_OK;
    case PI0_TYPE_BOOL:
        if (!json_is_boolean(value))
            return mistyped(field, where, "true or false", value, err);
        *(bool *)out = json_is_true(value);
        return PI0_OK;
    case PI0_TYPE_TEXT:
        return read_text(field, value, where, out, err);
    case PI0_TYPE_FLAGS:
    case PI0_TYPE_INDICES:
    case PI0_TYPE_NUMBERS:
        return read_list(field, value, where, out, err);
    case PI0_TYPE_NAMES:
        return read_names(field, value, where, out, err);
    case PI0_TYPE_CAMERAS:
        return read_cameras(field, value, where, out, err);
    }
    return pi0_fail(err, PI0_ERR_INTERNAL, "a recipe field has no type");
}

/* ------------------------------------------------------------------ reading the file */

static bool is_note(const char *key)
{
    return strcmp(key, PI0_RECIPE_MARK) == 0 || strcmp(key, "about") == 0;
}

static pi0_status check_members(const json_t *root, const char *path, pi0_error *err)
{
    const char *key;
    json_t *value;
    pi0_text missing = {0}, unknown = {0};
    for (int id = 0; id < PI0_FIELDS; id++) {
        const pi0_field *field = pi0_recipe_field((pi0_field_id)id);
        if (!field->optional && !json_object_get(root, field->name))
            pi0_text_add(&missing, "%s%s", missing.length ? ", " : "", field->name);
    }
    json_object_foreach((json_t *)root, key, value) if (!is_note(key) && pi0_recipe_field_find(key) < 0)
        pi0_text_add(&unknown, "%s%.80s", unknown.length ? ", " : "", key);
    pi0_status status = PI0_OK;
    if (missing.failed || unknown.failed) {
        status = pi0_fail_memory(err, 256, "an error text");
    } else if (missing.length || unknown.length) {
        status = pi0_fail(err, PI0_ERR_FORMAT, "the recipe file does not hold exactly the fields of a recipe");
        pi0_err_where(err, "%s", path);
        if (missing.length)
            pi0_err_item(err, "missing: %s", missing.data);
        if (unknown.length)
            pi0_err_item(err, "unknown: %s", unknown.data);
        pi0_err_expected(err, "every field that docs/recipe.md lists, and no other; only statistics and names may be left out");
        pi0_err_got(err, "%s%.200s%s%s%.200s", missing.length ? "without " : "", missing.length && missing.data ? missing.data : "",
                    missing.length && unknown.length ? "; " : "", unknown.length ? "with " : "",
                    unknown.length && unknown.data ? unknown.data : "");
        pi0_err_hint(err, "pi0 inspect MODEL --write-recipe FILE.json writes a complete one to start from");
    }
    pi0_text_release(&missing);
    pi0_text_release(&unknown);
    return status;
}

/* origins: where each value came from before it was written, or NULL. */
static pi0_status read_root(pi0_recipe_job *job, const json_t *root, const json_t *origins, const char *path, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    const json_t *mark = json_object_get(root, PI0_RECIPE_MARK);
    if (!json_is_object(root) || !json_is_integer(mark) || json_integer_value(mark) != PI0_RECIPE_VERSION) {
        pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "this is not a recipe file");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "a JSON object with \"%s\": %d", PI0_RECIPE_MARK, PI0_RECIPE_VERSION);
        pi0_err_got(err, "%s", json_is_object(root) ? pi0_json_type_name(mark) : pi0_json_type_name(root));
        pi0_err_hint(err, "pi0 inspect MODEL --write-recipe FILE.json writes one to start from");
        return status;
    }
    PI0_TRY(check_members(root, path, err));
    for (int id = 0; id < PI0_FIELDS; id++) {
        const char *name = pi0_recipe_field((pi0_field_id)id)->name, *origin = json_string_value(json_object_get(origins, name));
        const json_t *value = json_object_get(root, name);
        if (!value)
            continue;
        PI0_TRY(pi0_recipe_value_read(recipe, id, value, path, err));
        if (origin) /* a packed file that was made from another tells of it once */
            PI0_TRY(pi0_recipe_origin(recipe, id, err, "%s%s", strncmp(origin, "packed file", 11) ? "packed file, from " : "", origin));
        else
            PI0_TRY(pi0_recipe_origin(recipe, id, err, "recipe file: %s", path));
    }
    job->stats_done = true;
    return PI0_OK;
}

pi0_status pi0_recipe_read(pi0_recipe_job *job, const char *path, pi0_error *err)
{
    json_t *root = NULL;
    PI0_TRY(pi0_json_read(path, PI0_MAX_JSON, &root, err));
    pi0_status status = read_root(job, root, NULL, path, err);
    json_decref(root);
    return status;
}

pi0_status pi0_recipe_read_packed(pi0_recipe_job *job, pi0_error *err)
{
    const pi0_safetensors *file = job->checkpoint->file;
    const char *path = job->checkpoint->path, *recipe = pi0_safetensors_metadata(file, PI0_PACKED_RECIPE_KEY);
    const char *origins = pi0_safetensors_metadata(file, PI0_PACKED_ORIGINS_KEY);
    json_t *root = NULL, *from = NULL;
    pi0_status status = pi0_json_parse(recipe, strlen(recipe), path, &root, err);
    if (status == PI0_OK && origins)
        status = pi0_json_parse(origins, strlen(origins), path, &from, err);
    if (status == PI0_OK)
        status = read_root(job, root, from, path, err);
    json_decref(root);
    json_decref(from);
    return status;
}
