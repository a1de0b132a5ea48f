/* layers - the matrix products of a model, and what int8 costs each of them. */
#ifndef APP_LAYERS_H
#define APP_LAYERS_H

#include "json_out.h"
#include "pi0.h"

typedef struct app_layer {
    char name[112];
    char precision[8];
    double error, cosine, flop;
} app_layer;

typedef struct app_layers {
    app_layer *items; /* heap */
    size_t count;
} app_layers;

/* Names and precision of every product of a model. */
pi0_status app_layers_take(app_layers *layers, const pi0_model *model, pi0_error *err);
/* Errors from a model of the same products that was opened with pi0_options.layer_errors; then largest first. */
void app_layers_measure(app_layers *layers, const pi0_model *model);

/* A table of the first `most`. */
void app_layers_add(app_text *out, const app_layers *layers, size_t most);
void app_layers_json(app_json *json, const app_layers *layers);
void app_layers_release(app_layers *layers);

#endif
