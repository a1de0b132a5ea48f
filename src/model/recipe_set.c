/* --set KEY=VALUE: one recipe field, in the words of the field table. */
#include "io/utf8.h"
#include "model/recipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------ names */

int pi0_name_distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    int row[LONGEST + 1];
    size_t na = strlen(a), nb = strlen(b);
    if (na > LONGEST || nb > LONGEST)
        return 2 * LONGEST;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int change = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            row[j] = pi0_min_int(change, 1 + pi0_min_int(row[j], row[j - 1]));
        }
    }
    return row[nb];
}

static pi0_status unknown_field(const char *key, pi0_error *err)
{
    int best = 0;
    for (int id = 1; id < PI0_FIELDS; id++)
        if (pi0_name_distance(key, pi0_recipe_field((pi0_field_id)id)->name) <
            pi0_name_distance(key, pi0_recipe_field((pi0_field_id)best)->name))
            best = id;
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the recipe has no field of this name: %.200s", key);
    pi0_err_where(err, "--set %.200s=...", key);
    pi0_err_expected(err, "a field of the list below, or cameras.SLOT.key, .empty or .required");
    pi0_err_got(err, "%.200s", key);
    pi0_err_hint(err, "nearest: %s", pi0_recipe_field((pi0_field_id)best)->name);
    for (int id = 0; id < PI0_FIELDS; id++)
        pi0_err_item(err, "%s", pi0_recipe_field((pi0_field_id)id)->name);
    return status;
}

/* KEY -> its field; for cameras.SLOT.ATTRIBUTE also where SLOT and ATTRIBUTE start. */
static pi0_status resolve(const char *assignment, char key[PI0_MAX_NAME], int *id, const char **value, char **slot, char **attribute,
                          pi0_error *err)
{
    const char *equals = strchr(assignment, '=');
    size_t length = equals ? (size_t)(equals - assignment) : 0;
    if (length == 0 || length >= PI0_MAX_NAME) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "--set wants KEY=VALUE");
        pi0_err_where(err, "--set");
        pi0_err_expected(err, "KEY=VALUE, for instance --set prompt.state_pad=0");
        pi0_err_got(err, "%.200s", assignment);
        return status;
    }
    memcpy(key, assignment, length);
    key[length] = 0;
    *value = equals + 1;
    *slot = *attribute = NULL;
    *id = pi0_recipe_field_find(key);
    if (*id >= 0)
        return PI0_OK;
    char *dot = strrchr(key, '.');
    if (strncmp(key, "cameras.", 8) != 0 || dot == NULL || dot <= key + 8)
        return unknown_field(key, err);
    *dot = 0;
    *slot = key + 8;
    *attribute = dot + 1;
    *id = PI0_FIELD_CAMERAS;
    return PI0_OK;
}

pi0_status pi0_recipe_note_sets(pi0_recipe_job *job, pi0_error *err)
{
    for (size_t i = 0; i < job->options->n_set; i++) {
        char key[PI0_MAX_NAME], *slot, *attribute;
        const char *value;
        int id;
        PI0_TRY(resolve(job->options->set[i], key, &id, &value, &slot, &attribute, err));
        if (!slot)
            job->recipe->by_user[id] = true;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ values as text */

static json_t *word_json(const pi0_field *field, const char *word, size_t length)
{
    char text[PI0_MAX_NAME], *end;
    if (length >= sizeof text)
        return json_string("(a word too long for any field)");
    memcpy(text, word, length);
    text[length] = 0;
    bool yes = strcmp(text, "true") == 0 || strcmp(text, "on") == 0 || strcmp(text, "1") == 0;
    bool no = strcmp(text, "false") == 0 || strcmp(text, "off") == 0 || strcmp(text, "0") == 0;
    switch (field->type) {
    case PI0_TYPE_BOOL:
    case PI0_TYPE_FLAGS:
        return yes || no ? json_boolean(yes) : json_string(text);
    case PI0_TYPE_INT:
    case PI0_TYPE_INDICES: {
        long long number = strtoll(text, &end, 10);
        return *text && !*end ? json_integer(number) : json_string(text);
    }
    case PI0_TYPE_NUMBER:
    case PI0_TYPE_NUMBERS: {
        double number = strtod(text, &end);
        return *text && !*end && isfinite(number) ? json_real(number) : json_string(text);
    }
    default:
        return json_string(text);
    }
}

/* Text of the command line -> the JSON value that a recipe file would hold; the reader of recipe files then checks it. */
static json_t *text_json(const pi0_field *field, const char *text)
{
    bool list = field->type == PI0_TYPE_FLAGS || field->type == PI0_TYPE_INDICES || field->type == PI0_TYPE_NUMBERS ||
                field->type == PI0_TYPE_NAMES;
    if (field->type == PI0_TYPE_CAMERAS || (list && text[0] == '[')) {
        json_error_t error;
        json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, &error);
        return value || json_error_code(&error) == json_error_out_of_memory ? value : json_string(text);
    }
    if (field->type == PI0_TYPE_TEXT)
        return *text ? json_string(text) : json_null();
    if (!list)
        return word_json(field, text, strlen(text));
    json_t *array = json_array();
    while (array && *text) {
        size_t length = strcspn(text, ",");
        if (json_array_append_new(array, word_json(field, text, length)) != 0) {
            json_decref(array);
            return NULL;
        }
        text += length + (text[length] == ',');
    }
    return array;
}

/* ------------------------------------------------------------------ cameras.SLOT.ATTRIBUTE */

static pi0_status set_camera(pi0_recipe *recipe, const char *slot, const char *attribute, const char *value, const char *where,
                             pi0_error *err)
{
    pi0_recipe_camera_slot *camera = NULL;
    char *end;
    long index = strtol(slot, &end, 10);
    for (int i = 0; i < recipe->cameras.n; i++)
        if (strcmp(recipe->cameras.v[i].slot, slot) == 0 || (*slot && !*end && index == i))
            camera = &recipe->cameras.v[i];
    bool yes = strcmp(value, "true") == 0 || strcmp(value, "1") == 0, no = strcmp(value, "false") == 0 || strcmp(value, "0") == 0;
    bool is_key = strcmp(attribute, "key") == 0, is_empty = strcmp(attribute, "empty") == 0,
         is_required = strcmp(attribute, "required") == 0;
    if (!camera || (is_key && !*value) || (!is_key && !is_empty && !is_required) || (!is_key && !yes && !no)) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "a camera cannot be set like this");
        pi0_err_where(err, "%s", where);
        pi0_err_expected(err, "cameras.SLOT.key=NAME, cameras.SLOT.empty=true|false or cameras.SLOT.required=true|false");
        pi0_err_got(err, "slot %.100s, attribute %.40s, value %.100s", slot, attribute, value);
        for (int i = 0; i < recipe->cameras.n; i++)
            pi0_err_item(err, "slot %d: %s", i, recipe->cameras.v[i].slot);
        return status;
    }
    if (is_required) {
        camera->required = yes;
        return PI0_OK;
    }
    bool empty = is_empty ? yes : false;
    const char *key = is_key ? value : empty ? "" : *camera->key ? camera->key : camera->slot;
    char *copy = pi0_strdup(key);
    if (!copy)
        return pi0_fail_memory(err, strlen(key), "a camera key");
    pi0_free(camera->key);
    camera->key = copy;
    camera->empty = empty;
    return PI0_OK;
}

pi0_status pi0_recipe_set(pi0_recipe *recipe, const char *assignment, pi0_error *err)
{
    char key[PI0_MAX_NAME], where[300], *slot, *attribute;
    const char *text;
    int id;
    PI0_TRY(resolve(assignment, key, &id, &text, &slot, &attribute, err));
    snprintf(where, sizeof where, "--set %.250s", assignment);
    if (slot) {
        PI0_TRY(set_camera(recipe, slot, attribute, text, where, err));
        char *before = recipe->origin[PI0_FIELD_CAMERAS];
        recipe->origin[PI0_FIELD_CAMERAS] = NULL;
        pi0_status status = pi0_recipe_origin(recipe, PI0_FIELD_CAMERAS, err, "%.400s; %.100s", before ? before : "", where);
        pi0_free(before);
        return status;
    }
    if (!pi0_utf8_is_text(text, strlen(text))) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the value is not UTF-8");
        pi0_err_where(err, "%s", where);
        return status;
    }
    json_t *value = text_json(pi0_recipe_field((pi0_field_id)id), text);
    if (!value)
        return pi0_fail_memory(err, strlen(text), "a value of --set");
    pi0_status status = pi0_recipe_value_read(recipe, id, value, where, err);
    json_decref(value);
    if (status == PI0_ERR_FORMAT && err)
        err->status = PI0_ERR_ARGUMENT;
    if (status != PI0_OK)
        return status == PI0_ERR_FORMAT ? PI0_ERR_ARGUMENT : status;
    recipe->by_user[id] = true;
    return pi0_recipe_origin(recipe, id, err, "--set");
}
