#include "render.h"

#include <string.h>

#include "table.h"

static bool is_scalar(const json_t *value)
{
    return !json_is_object(value) && !json_is_array(value);
}

/* Text from a checkpoint must not steer the terminal. */
static void add_clean(app_text *out, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n' || c == '\t')
            app_text_add(out, " ");
        else if (c < 0x20 || c == 0x7f)
            app_text_add(out, "\\x%02x", c);
        else
            app_text_bytes(out, text, 1);
    }
}

static bool is_bytes_key(const char *key)
{
    size_t n = strlen(key);
    return n >= 5 && strcmp(key + n - 5, "bytes") == 0;
}

static void add_scalar(app_text *out, const char *key, const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        add_clean(out, json_string_value(value));
        break;
    case JSON_INTEGER:
        if (is_bytes_key(key) && json_integer_value(value) >= 1024)
            app_text_size(out, (double)json_integer_value(value));
        else
            app_text_add(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        break;
    case JSON_REAL:
        app_text_add(out, "%.6g", json_real_value(value));
        break;
    case JSON_TRUE:
        app_text_add(out, "yes");
        break;
    case JSON_FALSE:
        app_text_add(out, "no");
        break;
    case JSON_NULL:
        app_text_add(out, "-");
        break;
    case JSON_OBJECT:
    case JSON_ARRAY:
        break;
    }
}

/* A value on one line, whatever it is: nested things in brackets. */
static void add_inline(app_text *out, const char *key, const json_t *value, int depth)
{
    if (is_scalar(value)) {
        add_scalar(out, key, value);
        return;
    }
    bool object = json_is_object(value);
    size_t count = object ? json_object_size(value) : json_array_size(value);
    if (!count) {
        app_text_add(out, "-");
        return;
    }
    if (depth)
        app_text_add(out, object ? "{" : "[");
    if (object) {
        const char *name;
        json_t *member;
        bool first = true;
        json_object_foreach((json_t *)value, name, member)
        {
            app_text_add(out, first ? "" : ", ");
            add_clean(out, name);
            app_text_add(out, ": ");
            add_inline(out, name, member, depth + 1);
            first = false;
        }
    } else {
        for (size_t i = 0; i < count; i++) {
            const json_t *item = json_array_get(value, i);
            bool own_line = !depth && json_is_object(item);
            app_text_add(out, !i ? "" : own_line ? "\n" : ", ");
            add_inline(out, key, item, own_line ? 0 : depth + 1);
        }
    }
    if (depth)
        app_text_add(out, object ? "}" : "]");
}

static bool is_short(const json_t *value)
{
    if (is_scalar(value))
        return true;
    const char *name;
    json_t *member;
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++)
            if (!is_scalar(json_array_get(value, i)))
                return false;
        return true;
    }
    json_object_foreach((json_t *)value, name, member)
    {
        if (!is_scalar(member))
            return false;
    }
    return json_object_size(value) <= 3;
}

/* What the recipe and the statistics are made of. */
static bool has_origin(const json_t *object)
{
    return json_object_size(object) == 2 && json_object_get(object, "value") && json_object_get(object, "origin");
}

/* All members are objects: they become rows, the union of their keys the columns. */
static bool is_table(const json_t *value)
{
    size_t count = json_is_array(value) ? json_array_size(value) : json_object_size(value);
    const char *name;
    json_t *member;
    if (is_scalar(value) || !count)
        return false;
    if (json_is_array(value)) {
        for (size_t i = 0; i < count; i++)
            if (!json_is_object(json_array_get(value, i)))
                return false;
        return true;
    }
    json_object_foreach((json_t *)value, name, member)
    {
        if (!json_is_object(member) || !json_object_size(member))
            return false;
        if (has_origin(member))
            continue;
        const char *inner;
        json_t *cell;
        json_object_foreach(member, inner, cell)
        {
            if (!is_short(cell))
                return false;
        }
    }
    return true;
}

static json_t *row_at(const json_t *value, size_t index, const char **name)
{
    *name = "";
    if (json_is_array(value))
        return json_array_get(value, index);
    void *at = json_object_iter((json_t *)value);
    while (index-- && at)
        at = json_object_iter_next((json_t *)value, at);
    if (!at)
        return NULL;
    *name = json_object_iter_key(at);
    return json_object_iter_value(at);
}

enum { MAX_COLUMNS = 12, MAX_CELL = 48, MAX_LAST_CELL = 72 };

static size_t collect_columns(const json_t *value, const char *columns[MAX_COLUMNS])
{
    size_t n = 0, rows = json_is_array(value) ? json_array_size(value) : json_object_size(value);
    for (size_t r = 0; r < rows; r++) {
        const char *row_name, *key;
        json_t *row = row_at(value, r, &row_name), *cell;
        json_object_foreach(row, key, cell)
        {
            bool known = false;
            for (size_t i = 0; i < n; i++)
                known = known || strcmp(columns[i], key) == 0;
            if (!known && n < MAX_COLUMNS)
                columns[n++] = key;
        }
    }
    return n;
}

/* Where a line of about `most` bytes ends: at a line feed or a blank, never inside a word, which may be a name to copy. */
static size_t line_bytes(const char *text, size_t left, size_t most)
{
    size_t feed = strcspn(text, "\n"), end = most;
    if (feed <= most)
        return feed;
    if (left <= most)
        return left;
    while (end && text[end] != ' ')
        end--;
    return end ? end : strcspn(text, " \n");
}

/* A long cell goes on below itself; in one line it would push every other column off the screen. */
static void render_row(app_table *table, app_text *cells, size_t n)
{
    size_t at[MAX_COLUMNS + 1] = {0};
    bool more = true;
    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            const char *text = cells[i].data ? cells[i].data + at[i] : "";
            size_t left = cells[i].length - at[i], bytes = line_bytes(text, left, i + 1 == n ? MAX_LAST_CELL : MAX_CELL);
            app_table_cell(table, "%.*s", (int)bytes, text);
            at[i] += bytes + (bytes < left);
            more = more || at[i] < cells[i].length;
        }
    }
}

static void render_table(app_text *out, const json_t *value, size_t indent)
{
    const char *columns[MAX_COLUMNS];
    size_t n = collect_columns(value, columns), rows = json_is_array(value) ? json_array_size(value) : json_object_size(value);
    size_t first = json_is_object(value) ? 1 : 0;
    char align[MAX_COLUMNS + 2];
    memset(align, 'l', sizeof align);
    align[n + first] = '\0';
    app_table *table = app_table_open(align);
    if (first)
        app_table_cell(table, "%s", "");
    for (size_t i = 0; i < n; i++)
        app_table_cell(table, "%s", columns[i]);
    for (size_t r = 0; r < rows; r++) {
        const char *name;
        json_t *row = row_at(value, r, &name);
        app_text cells[MAX_COLUMNS + 1] = {{0}};
        if (first)
            add_clean(&cells[0], name);
        for (size_t i = 0; i < n; i++) {
            json_t *cell = json_object_get(row, columns[i]);
            if (cell)
                add_inline(&cells[first + i], columns[i], cell, 0);
        }
        render_row(table, cells, first + n);
        for (size_t i = 0; i < first + n; i++)
            app_text_release(&cells[i]);
    }
    app_table_add_to(table, out, indent, 0);
    app_table_close(&table);
}

static void render_list(app_text *out, const json_t *array, size_t indent, size_t width)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        app_text item = {0};
        add_inline(&item, "", json_array_get(array, i), 0);
        app_text_repeat(out, " ", indent);
        app_text_add(out, "- ");
        app_text_wrap(out, item.data ? item.data : "", indent + 2, width);
        app_text_add(out, "\n");
        app_text_release(&item);
    }
}

static bool is_list_of_texts(const json_t *value)
{
    if (!json_is_array(value) || !json_array_size(value))
        return false;
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_string(item) || strlen(json_string_value(item)) > 30)
            return json_is_string(item);
    }
    return false;
}

static bool fits_one_pair(const json_t *value)
{
    if (is_scalar(value))
        return true;
    bool empty = json_is_array(value) ? !json_array_size(value) : !json_object_size(value);
    return empty || (json_is_array(value) && is_short(value) && !is_list_of_texts(value));
}

/* The members that are too big for a pair, when together they make one table; a new reference, or NULL. */
static json_t *rest_as_table(const json_t *object)
{
    json_t *rest = json_object(), *value;
    const char *key;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!fits_one_pair(value))
            json_object_set(rest, key, value);
    }
    if (json_object_size(rest) >= 2 && is_table(rest))
        return rest;
    json_decref(rest);
    return NULL;
}

static void render_pairs(app_text *out, const json_t *object, size_t indent, size_t width, bool bytes)
{
    const char *key;
    json_t *value;
    size_t widest = 0;
    json_object_foreach((json_t *)object, key, value)
    {
        if (fits_one_pair(value) && app_text_width(key) > widest)
            widest = app_text_width(key);
    }
    json_object_foreach((json_t *)object, key, value)
    {
        if (!fits_one_pair(value))
            continue;
        app_text text = {0};
        add_inline(&text, bytes ? "bytes" : key, value, 0);
        app_text_repeat(out, " ", indent);
        add_clean(out, key);
        app_text_repeat(out, " ", widest - app_text_width(key) + 2);
        app_text_wrap(out, text.data ? text.data : "", indent + widest + 2, width);
        app_text_add(out, "\n");
        app_text_release(&text);
    }
}

/* bytes: every whole number in here counts bytes */
static void render_members(app_text *out, const json_t *object, size_t indent, size_t width, bool bytes)
{
    const char *key;
    json_t *value, *rest = indent ? rest_as_table(object) : NULL;
    render_pairs(out, object, indent, width, bytes);
    if (rest) {
        render_table(out, rest, indent);
        json_decref(rest);
        return;
    }
    json_object_foreach((json_t *)object, key, value)
    {
        if (fits_one_pair(value))
            continue;
        if (!indent)
            app_text_add(out, "\n");
        app_text_repeat(out, " ", indent);
        add_clean(out, key);
        app_text_add(out, "\n");
        if (is_table(value))
            render_table(out, value, indent + 2);
        else if (json_is_array(value))
            render_list(out, value, indent + 2, width);
        else if (indent < 20)
            render_members(out, value, indent + 2, width, strcmp(key, "memory") == 0);
    }
}

void app_render(app_text *out, const json_t *object, size_t width)
{
    render_members(out, object, 0, width, false);
}
