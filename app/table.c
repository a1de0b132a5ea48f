#include "table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct app_table {
    size_t columns, cells, capacity;
    char **cell; /* [row][column]; NULL is empty */
    bool failed;
    char align[];
};

app_table *app_table_open(const char *align)
{
    size_t columns = strlen(align);
    app_table *table = calloc(1, sizeof *table + columns + 1);
    if (!table)
        return NULL;
    table->columns = columns;
    memcpy(table->align, align, columns + 1);
    return table;
}

void app_table_close(app_table **table)
{
    if (!*table)
        return;
    for (size_t i = 0; i < (*table)->cells; i++)
        free((*table)->cell[i]);
    free((*table)->cell);
    free(*table);
    *table = NULL;
}

static void push(app_table *table, char *text)
{
    if (table->cells == table->capacity) {
        size_t capacity = table->capacity * 2 + 64;
        char **cell = realloc(table->cell, capacity * sizeof *cell);
        if (!cell) {
            table->failed = true;
            free(text);
            return;
        }
        table->cell = cell;
        table->capacity = capacity;
    }
    table->cell[table->cells++] = text;
}

void app_table_cell(app_table *table, const char *format, ...)
{
    if (!table || table->failed)
        return;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int count = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = count < 0 ? NULL : malloc((size_t)count + 1);
    if (text) {
        vsnprintf(text, (size_t)count + 1, format, again);
        push(table, text);
    } else {
        table->failed = true;
    }
    va_end(again);
}

void app_table_end_row(app_table *table)
{
    while (table && !table->failed && table->cells % table->columns)
        push(table, NULL);
}

static size_t column_width(const app_table *table, size_t column)
{
    size_t widest = 0;
    for (size_t i = column; i < table->cells; i += table->columns) {
        size_t width = table->cell[i] ? app_text_width(table->cell[i]) : 0;
        widest = width > widest ? width : widest;
    }
    return widest;
}

static void add_cell(const app_table *table, app_text *out, size_t row, size_t column, size_t width, bool last)
{
    const char *text = table->cell[row * table->columns + column];
    text = text ? text : "";
    size_t pad = width - app_text_width(text);
    if (table->align[column] == 'r')
        app_text_repeat(out, " ", pad);
    app_text_add(out, "%s", text);
    if (table->align[column] != 'r' && !last)
        app_text_repeat(out, " ", pad);
}

/* Trailing blanks of short rows would break comparisons by eye and by diff. */
static void trim_line(app_text *out)
{
    while (out->length && out->data[out->length - 1] == ' ')
        out->data[--out->length] = '\0';
}

static void add_block(const app_table *table, app_text *out, size_t indent, size_t first, size_t end)
{
    size_t rows = table->cells / table->columns;
    for (size_t row = 0; row < rows; row++) {
        app_text_repeat(out, " ", indent);
        if (first > 1) {
            add_cell(table, out, row, 0, column_width(table, 0), false);
            app_text_add(out, "  ");
        }
        for (size_t column = first == 1 ? 0 : first; column < end; column++) {
            add_cell(table, out, row, column, column_width(table, column), column + 1 == end);
            app_text_add(out, column + 1 == end ? "" : "  ");
        }
        trim_line(out);
        app_text_add(out, "\n");
    }
}

void app_table_add_to(const app_table *table, app_text *out, size_t indent, size_t width)
{
    if (!table || table->failed) {
        out->failed = true;
        return;
    }
    if (table->columns < 2) {
        add_block(table, out, indent, 0, table->columns);
        return;
    }
    size_t first = 1;
    while (first < table->columns) {
        size_t used = indent + column_width(table, 0), end = first;
        while (end < table->columns && (end == first || !width || used + 2 + column_width(table, end) <= width))
            used += 2 + column_width(table, end++);
        add_block(table, out, indent, first, end);
        if (end < table->columns)
            app_text_add(out, "\n");
        first = end;
    }
}

void app_table_add_markdown(const app_table *table, app_text *out)
{
    if (!table || table->failed) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < table->cells; i++) {
        const bool last = (i + 1) % table->columns == 0;
        app_text_add(out, "%s %s |%s", i % table->columns ? "" : "|", table->cell[i] ? table->cell[i] : "", last ? "\n" : "");
        if (i + 1 != table->columns)
            continue;
        app_text_add(out, "|");
        for (size_t column = 0; column < table->columns; column++)
            app_text_add(out, table->align[column] == 'r' ? "---:|" : "---|");
        app_text_add(out, "\n");
    }
}

void app_table_finish(app_table **table, app_text *out, bool markdown)
{
    if (markdown)
        app_table_add_markdown(*table, out);
    else
        app_table_add_to(*table, out, 0, 0);
    app_table_close(table);
}
