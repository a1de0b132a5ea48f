#include "layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "table.h"

pi0_status app_layers_take(app_layers *layers, const pi0_model *model, pi0_error *err)
{
    const size_t count = pi0_layer_count(model);
    layers->items = calloc(count + 1, sizeof *layers->items);
    if (!layers->items)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the list of products");
    for (; layers->count < count; layers->count++) {
        const pi0_layer layer = pi0_layer_at(model, layers->count);
        app_layer *item = &layers->items[layers->count];
        snprintf(item->name, sizeof item->name, "%s", layer.name);
        snprintf(item->precision, sizeof item->precision, "%s", layer.precision);
    }
    return PI0_OK;
}

static int larger_first(const void *a, const void *b)
{
    const app_layer *x = a, *y = b;
    if (x->error != y->error)
        return x->error > y->error ? -1 : 1;
    return strcmp(x->name, y->name);
}

void app_layers_measure(app_layers *layers, const pi0_model *model)
{
    for (size_t i = 0; i < layers->count; i++) {
        const pi0_layer layer = pi0_layer_at(model, i);
        layers->items[i].error = layer.error;
        layers->items[i].cosine = layer.cosine;
        layers->items[i].flop = layer.flop;
    }
    qsort(layers->items, layers->count, sizeof *layers->items, larger_first);
}

void app_layers_add(app_text *out, const app_layers *layers, size_t most)
{
    double flop = 0;
    for (size_t i = 0; i < layers->count; i++)
        flop += layers->items[i].flop;
    app_table *table = app_table_open("lrrrl");
    const char *const headings[] = {"product", "error", "cosine", "FLOP", "computed in"};
    for (size_t i = 0; i < sizeof headings / sizeof *headings; i++)
        app_table_cell(table, "%s", headings[i]);
    for (size_t i = 0; i < layers->count && i < most; i++) {
        const app_layer *layer = &layers->items[i];
        app_table_cell(table, "%s", layer->name);
        app_table_cell(table, "%.4f", layer->error);
        app_table_cell(table, "%.6f", layer->cosine);
        app_table_cell(table, "%.2f %%", flop > 0 ? 100 * layer->flop / flop : 0);
        app_table_cell(table, "%s", layer->precision);
        app_table_end_row(table);
    }
    app_table_add_to(table, out, 0, 0);
    app_table_close(&table);
    if (most < layers->count)
        app_text_add(out, "... and %zu more\n", layers->count - most);
}

void app_layers_json(app_json *json, const app_layers *layers)
{
    app_json_open(json, '[');
    for (size_t i = 0; i < layers->count; i++) {
        const app_layer *layer = &layers->items[i];
        app_json_open(json, '{');
        app_json_key(json, "name");
        app_json_string(json, layer->name);
        app_json_key(json, "error");
        app_json_real(json, layer->error);
        app_json_key(json, "cosine");
        app_json_real(json, layer->cosine);
        app_json_key(json, "flop");
        app_json_real(json, layer->flop);
        app_json_key(json, "precision");
        app_json_string(json, layer->precision);
        app_json_close(json, '}');
    }
    app_json_close(json, ']');
}

void app_layers_release(app_layers *layers)
{
    free(layers->items);
    *layers = (app_layers){0};
}
