/* table - aligned columns of text. */
#ifndef APP_TABLE_H
#define APP_TABLE_H

#include "text.h"

typedef struct app_table app_table;

/* align: one letter per column, 'l' or 'r'. NULL when there is no memory; all functions accept NULL. */
app_table *app_table_open(const char *align);
void app_table_close(app_table **table);

/* Cells fill rows from left to right; a started row may be ended early. */
void app_table_cell(app_table *table, const char *format, ...) APP_PRINTF(2, 3);
void app_table_end_row(app_table *table);

/* Appends the rows, each indented. With `width` > 0 columns that do not fit go to further blocks, each led by column 0. */
void app_table_add_to(const app_table *table, app_text *out, size_t indent, size_t width);

/* The same as a table in Markdown; its first row are the headings. */
void app_table_add_markdown(const app_table *table, app_text *out);

/* Appends it in either form, not indented, and closes it. */
void app_table_finish(app_table **table, app_text *out, bool markdown);

#endif
