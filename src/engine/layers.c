/* The matrix products of a model one by one: names, precision, and what int8 would cost each of them. */
#include <math.h>
#include <string.h>

#include "engine/engine.h"

static bool is_product(const pi0_weight *weight)
{
    return weight->use == PI0_USE_MATRIX && weight->most_rows > 0 && !weight->shared; /* no rows: a pass took its last reader */
}

pi0_product_count pi0_products_count(const pi0_policy_plans *plans, const char *prefix, pi0_precision precision)
{
    const pi0_plan *const list[] = {plans->context, plans->schedule, plans->denoise};
    pi0_product_count count = {0};
    for (size_t p = 0; p < sizeof list / sizeof *list; p++)
        for (int i = 0; list[p] && i < list[p]->n_weights; i++) {
            const pi0_weight *weight = &list[p]->weights[i];
            if (!is_product(weight) || strncmp(weight->source[0], prefix, strlen(prefix)) != 0)
                continue;
            count.all++;
            count.chosen += weight->precision == precision;
        }
    return count;
}

/* ------------------------------------------------------------------ names */

/* A canonical name without what all of its tower share: "vision.0.mlp.fc1". */
static void short_name(const char *canonical, char *out, size_t size)
{
    static const char *const towers[][2] = {
        {"paligemma_with_expert.paligemma.model.vision_tower.vision_model.encoder.layers.", "vision."},
        {"paligemma_with_expert.paligemma.model.multi_modal_projector.linear", "projector"},
        {"paligemma_with_expert.paligemma.model.language_model.layers.", "prefix."},
        {"paligemma_with_expert.gemma_expert.model.layers.", "expert."},
    };
    const char *stem = "", *rest = canonical;
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (!strncmp(canonical, towers[i][0], strlen(towers[i][0]))) {
            stem = towers[i][1];
            rest = canonical + strlen(towers[i][0]);
        }
    snprintf(out, size, "%s%s", stem, rest);
    const size_t length = strlen(out), ending = strlen(".weight");
    if (length > ending && !strcmp(out + length - ending, ".weight"))
        out[length - ending] = '\0';
}

/* The first matrix by its name, those that share its product by their last word. */
static void name_product(const pi0_weight *weight, char *out, size_t size)
{
    short_name(weight->source[0], out, size);
    for (int s = 1; s < weight->n_sources; s++) {
        char other[112];
        short_name(weight->source[s], other, sizeof other);
        const char *dot = strrchr(other, '.');
        const size_t length = strlen(out);
        snprintf(out + length, size - length, "+%s", dot ? dot + 1 : other);
    }
}

/* ------------------------------------------------------------------ the list */

static pi0_status list_products(pi0_model *model, pi0_program *program, bool measure, pi0_error *err)
{
    const pi0_plan *plan = program->plan;
    const size_t n = plan ? (size_t)plan->n_weights : 0;
    if (measure && plan && !(program->errors = pi0_alloc_array(n + 1, sizeof *program->errors)))
        return pi0_fail_memory(err, (n + 1) * sizeof *program->errors, "the list of products");
    for (size_t i = 0; i < n; i++) {
        const pi0_weight *weight = &plan->weights[i];
        if (is_product(weight)) {
            pi0_layer_record *layer = &model->layers[model->n_layers++];
            layer->weight = weight;
            name_product(weight, layer->name, sizeof layer->name);
            if (measure)
                program->errors[i] = &layer->error;
        } else if (measure && weight->use == PI0_USE_MATRIX && weight->shared) {
            program->errors[i] = model->context.errors[weight->shared - 1];
        }
    }
    return PI0_OK;
}

pi0_status pi0_layers_open(pi0_model *model, bool measure, pi0_error *err)
{
    const pi0_policy_plans plans = {model->context.plan, model->schedule.plan, model->denoise.plan};
    const size_t n = (size_t)pi0_products_count(&plans, "", PI0_PRECISION_INT8).all;
    if (!(model->layers = pi0_alloc_array(n + 1, sizeof *model->layers)))
        return pi0_fail_memory(err, (n + 1) * sizeof *model->layers, "the list of products");
    PI0_TRY(list_products(model, &model->context, measure, err));
    PI0_TRY(list_products(model, &model->schedule, measure, err));
    return list_products(model, &model->denoise, measure, err);
}

const char *pi0_product_name(const pi0_model *model, const pi0_program *program, const pi0_op *op)
{
    if (op->kind != PI0_OP_LINEAR && op->kind != PI0_OP_LINEARS)
        return "";
    const pi0_weight *weight = &program->plan->weights[program->plan->tensors[op->in[1]].weight];
    if (weight->shared)
        weight = &model->context.plan->weights[weight->shared - 1];
    for (size_t i = 0; i < model->n_layers; i++)
        if (model->layers[i].weight == weight)
            return model->layers[i].name;
    return "";
}

void pi0_layers_close(pi0_model *model)
{
    pi0_free(model->layers);
    model->layers = NULL;
    model->n_layers = 0;
}

size_t pi0_layer_count(const pi0_model *model)
{
    return model->n_layers;
}

double pi0_product_error_relative(const pi0_product_error *error)
{
    if (error->difference2 == 0)
        return 0;
    return error->want2 > 0 ? sqrt(error->difference2 / error->want2) : 1;
}

double pi0_product_error_cosine(const pi0_product_error *error)
{
    if (error->difference2 == 0)
        return 1;
    return error->want2 > 0 && error->got2 > 0 ? error->dot / sqrt(error->want2) / sqrt(error->got2) : 0;
}

pi0_layer pi0_layer_at(const pi0_model *model, size_t index)
{
    if (index >= model->n_layers)
        return (pi0_layer){.name = "", .precision = ""};
    const pi0_layer_record *layer = &model->layers[index];
    const pi0_precision precision = layer->weight->precision;
    return (pi0_layer){.name = layer->name,
                       .precision = precision == PI0_PRECISION_INT8   ? "int8"
                                    : precision == PI0_PRECISION_BF16 ? "bf16"
                                                                      : "f32",
                       .error = layer->error.flop > 0 ? pi0_product_error_relative(&layer->error) : 0,
                       .cosine = layer->error.flop > 0 ? pi0_product_error_cosine(&layer->error) : 0,
                       .flop = layer->error.flop};
}
