/* pi0_calibrate: which products may be int8. One pass in f32 measures for each product how far its int8 form is from it on the inputs that
 * it really has; the products then stand in order of that, and bisection finds how many of the first have to stay bf16 for stages and
 * actions to pass their gates: an inference for each observation and about log2(products) openings of the model. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

/* A choice has to keep this share of the distance that the gate allows, for the observations that it has not seen. */
static const double margin = 0.75;

typedef struct product {
    char name[112];
    char *source[PI0_MAX_SOURCES]; /* owned */
    int n_sources;
    double error, cosine, flop;
} product;

typedef struct closeness {
    double mean, worst, largest; /* of the actions; largest: difference of one, in model space */
    double stage;                /* the lowest cosine of any stage */
    char stage_name[96];
} closeness;

typedef struct search {
    const char *path;
    pi0_options options;
    const pi0_calibrate_options *how;
    pi0_log log;
    double mean_gate, worst_gate;
    pi0_fingerprint model;
    pi0_int8_form form;
    product *products; /* worst first */
    size_t n_products;
    pi0_arrays **reference; /* [observations] every stage in f32 */
    int trials, expected;   /* openings so far and in all, about */
} search;

static void close_search(search *s)
{
    for (size_t i = 0; s->products && i <= s->n_products; i++) /* one more: it may be half made */
        for (int j = 0; j < s->products[i].n_sources; j++)
            pi0_free(s->products[i].source[j]);
    for (size_t i = 0; s->reference && i < s->how->observations; i++)
        pi0_arrays_free(&s->reference[i]);
    pi0_free(s->products);
    pi0_free(s->reference);
}

/* ------------------------------------------------------------------ running the observations */

typedef pi0_status (*result_fn)(search *s, size_t index, const pi0_session *session, void *context, pi0_error *err);

static pi0_status run_one(search *s, pi0_model *model, size_t index, result_fn take, void *context, pi0_error *err)
{
    pi0_session *session = NULL;
    PI0_TRY(pi0_session_open(model, 0, &session, err));
    pi0_status status = s->how->observe(s->how->user, index, model, session, err);
    if (status == PI0_OK)
        status = pi0_infer(&session, 1, s->how->steps, err);
    if (status == PI0_OK)
        status = take(s, index, session, context, err);
    pi0_session_close(&session);
    return status;
}

static pi0_status tell_progress(const search *s, pi0_error *err)
{
    const uint64_t total = (uint64_t)s->expected, done = (uint64_t)s->trials < total ? (uint64_t)s->trials : total;
    if (s->options.progress && s->options.progress(s->options.progress_user, "calibrating", done, total))
        return pi0_fail(err, PI0_ERR_CANCELLED, "the calibration was cancelled");
    return PI0_OK;
}

static pi0_status run_all(search *s, pi0_model *model, result_fn take, void *context, pi0_error *err)
{
    for (size_t i = 0; i < s->how->observations; i++) {
        PI0_TRY(tell_progress(s, err));
        PI0_TRY(run_one(s, model, i, take, context, err));
    }
    s->trials++;
    return tell_progress(s, err);
}

/* ------------------------------------------------------------------ f32, and what int8 costs each product */

/* Inputs and actions in robot units are no stages of the computation. */
static bool is_computed(const pi0_array *stage)
{
    return stage->dtype == PI0_F32 && strncmp(stage->name, "image.", 6) != 0 && strcmp(stage->name, "state") != 0 &&
           strcmp(stage->name, "noise") != 0;
}

static pi0_status keep_stages(search *s, size_t index, const pi0_session *session, void *context, pi0_error *err)
{
    (void)context;
    for (size_t i = 0; i < pi0_stage_count(session); i++) {
        pi0_array stage;
        void *data;
        PI0_TRY(pi0_stage(session, pi0_stage_name(session, i), &stage, err));
        if (!is_computed(&stage))
            continue;
        PI0_TRY(pi0_arrays_add(&s->reference[index], stage.name, PI0_F32, stage.shape, stage.rank, &data, err));
        memcpy(data, stage.data, stage.bytes);
    }
    return PI0_OK;
}

static int worse_first(const void *a, const void *b)
{
    const product *x = a, *y = b;
    if (x->error != y->error)
        return x->error > y->error ? -1 : 1;
    return strcmp(x->name, y->name);
}

static pi0_status take_products(search *s, const pi0_model *model, pi0_error *err)
{
    if (!(s->products = pi0_alloc_array(model->n_layers + 1, sizeof *s->products)))
        return pi0_fail_memory(err, model->n_layers * sizeof *s->products, "the list of products");
    for (; s->n_products < model->n_layers; s->n_products++) {
        const pi0_layer_record *layer = &model->layers[s->n_products];
        product *p = &s->products[s->n_products];
        memcpy(p->name, layer->name, sizeof p->name);
        p->error = pi0_product_error_relative(&layer->error);
        p->cosine = pi0_product_error_cosine(&layer->error);
        p->flop = layer->error.flop;
        for (; p->n_sources < layer->weight->n_sources; p->n_sources++)
            if (!(p->source[p->n_sources] = pi0_strdup(layer->weight->source[p->n_sources])))
                return pi0_fail_memory(err, sizeof p->name, "the name of a product");
    }
    qsort(s->products, s->n_products, sizeof *s->products, worse_first);
    for (size_t n = s->n_products; n > 1; n /= 2)
        s->expected++;
    return PI0_OK;
}

static pi0_status measure(search *s, pi0_error *err)
{
    pi0_model *model = NULL;
    pi0_options options = s->options;
    options.precision = "f32";
    options.layer_errors = 1;
    pi0_status status;
    PI0_TRY_GOTO(pi0_open(s->path, &options, &model, err));
    const pi0_device_info device = model->api->info(model->device);
    s->form = pi0_int8_form_of(&device);
    s->model = pi0_checkpoint_fingerprint(model->checkpoint);
    PI0_TRY_GOTO(run_all(s, model, keep_stages, NULL, err));
    PI0_TRY_GOTO(take_products(s, model, err));
fail:
    pi0_close(&model);
    s->options.log = NULL; /* later openings would only repeat what the first one said */
    return status;
}

/* ------------------------------------------------------------------ trying a choice */

/* The choice "the first n products stay bf16" as a calibration. */
static json_t *calibration_of(const search *s, size_t n)
{
    const char **names = pi0_alloc_array(n * PI0_MAX_SOURCES + 1, sizeof *names);
    size_t count = 0;
    for (size_t i = 0; names && i < n; i++)
        for (int j = 0; j < s->products[i].n_sources; j++)
            names[count++] = s->products[i].source[j];
    json_t *document = names ? pi0_calibration_new(s->model, s->form.text, names, count) : NULL;
    pi0_free(names);
    return document;
}

static double compare(const pi0_array *a, const pi0_array *b, double *largest)
{
    const float *x = a->data, *y = b->data;
    double dot = 0, x2 = 0, y2 = 0;
    for (size_t i = 0; i < a->bytes / sizeof *x; i++) {
        dot += (double)x[i] * (double)y[i];
        x2 += (double)x[i] * (double)x[i];
        y2 += (double)y[i] * (double)y[i];
        *largest = fmax(*largest, fabs((double)x[i] - (double)y[i]));
    }
    return x2 > 0 && y2 > 0 ? dot / sqrt(x2) / sqrt(y2) : x2 == y2;
}

static pi0_status compare_stages(search *s, size_t index, const pi0_session *session, void *context, pi0_error *err)
{
    closeness *result = context;
    for (size_t i = 0; i < pi0_arrays_count(s->reference[index]); i++) {
        const pi0_array *want = pi0_arrays_at(s->reference[index], i);
        pi0_array got;
        double largest = 0;
        PI0_TRY(pi0_stage(session, want->name, &got, err));
        const double cosine = compare(&got, want, &largest);
        if (cosine < result->stage) {
            result->stage = cosine;
            snprintf(result->stage_name, sizeof result->stage_name, "%s", want->name);
        }
        if (strcmp(want->name, "actions_raw") != 0)
            continue;
        result->largest = fmax(result->largest, largest);
        result->mean += cosine / (double)s->how->observations;
        result->worst = fmin(result->worst, cosine);
    }
    return PI0_OK;
}

static pi0_status try_choice(search *s, size_t n, closeness *out, pi0_error *err)
{
    json_t *document = calibration_of(s, n);
    char *text = pi0_json_text(document, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(document);
    if (!text)
        return pi0_fail_memory(err, 0, "a calibration");
    pi0_model *model = NULL;
    pi0_options options = s->options;
    options.precision = "int8:auto";
    options.calibration = text;
    *out = (closeness){.worst = 1, .stage = 1, .stage_name = ""};
    pi0_status status = pi0_open(s->path, &options, &model, err);
    if (status == PI0_OK)
        status = run_all(s, model, compare_stages, out, err);
    pi0_close(&model);
    pi0_free(text);
    if (status == PI0_OK)
        pi0_log_info(&s->log, "%zu of %zu products in bf16: cosine of the actions %.6f on average, %.6f at worst, of all stages %.6f", n,
                     s->n_products, out->mean, out->worst, out->stage);
    return status;
}

static bool passes(const search *s, const closeness *c)
{
    const double mean = margin * (1 - s->mean_gate), worst = margin * (1 - s->worst_gate);
    return 1 - c->mean <= mean && 1 - c->worst <= worst && (s->how->actions_only || 1 - c->stage <= worst);
}

typedef struct choice {
    size_t in_bf16; /* this many of the first */
    bool passed;
    closeness plain, chosen;
} choice;

/* The smallest number that passes, as far as bisection sees it; what it ends at has been tried. */
static pi0_status find_choice(search *s, choice *out, pi0_error *err)
{
    PI0_TRY(try_choice(s, 0, &out->plain, err));
    out->chosen = out->plain;
    if ((out->passed = passes(s, &out->plain)))
        return PI0_OK;
    size_t fails = 0;
    out->in_bf16 = s->n_products;
    while (out->in_bf16 - fails > 1) {
        const size_t middle = fails + (out->in_bf16 - fails) / 2;
        closeness cosine;
        PI0_TRY(try_choice(s, middle, &cosine, err));
        if (passes(s, &cosine)) {
            out->in_bf16 = middle;
            out->chosen = cosine;
            out->passed = true;
        } else {
            fails = middle;
        }
    }
    if (out->passed)
        return PI0_OK;
    PI0_TRY(try_choice(s, out->in_bf16, &out->chosen, err));
    out->passed = passes(s, &out->chosen);
    return PI0_OK;
}

/* ------------------------------------------------------------------ the report */

/* A product that has a tensor in common with one that stays bf16 does so too. */
static bool stays_bf16(const search *s, const choice *c, const product *p)
{
    for (size_t i = 0; i < c->in_bf16; i++)
        for (int a = 0; a < s->products[i].n_sources; a++)
            for (int b = 0; b < p->n_sources; b++)
                if (!strcmp(s->products[i].source[a], p->source[b]))
                    return true;
    return false;
}

static json_t *cosine_json(const closeness *c)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:s}", "mean", c->mean, "worst", c->worst, "largest_difference", c->largest, "stages", c->stage,
                     "lowest_stage", c->stage_name);
}

static pi0_status write_report(const search *s, const choice *c, char **out, pi0_error *err)
{
    json_t *document = calibration_of(s, c->in_bf16), *layers = json_array();
    bool failed = !document;
    int in_bf16 = 0;
    double flop = 0, int8_flop = 0;
    for (size_t i = 0; i < s->n_products; i++) {
        const product *p = &s->products[i];
        const bool bf16 = stays_bf16(s, c, p);
        in_bf16 += bf16;
        flop += p->flop;
        int8_flop += bf16 ? 0 : p->flop;
        failed |= json_array_append_new(layers, json_pack("{s:s,s:f,s:f,s:f,s:s}", "name", p->name, "error", p->error, "cosine", p->cosine,
                                                          "flop", p->flop, "precision", bf16 ? "bf16" : "int8")) != 0;
    }
    pi0_json_put(document, "passed", json_boolean(c->passed), &failed);
    pi0_json_put(document, "observations", json_integer((json_int_t)s->how->observations), &failed);
    pi0_json_put(document, "gate", json_pack("{s:f,s:f,s:f}", "mean", s->mean_gate, "worst", s->worst_gate, "margin", margin), &failed);
    pi0_json_put(document, "plain", cosine_json(&c->plain), &failed);
    pi0_json_put(document, "chosen", cosine_json(&c->chosen), &failed);
    pi0_json_put(document, "products", json_integer((json_int_t)s->n_products), &failed);
    pi0_json_put(document, "products_bf16", json_integer(in_bf16), &failed);
    pi0_json_put(document, "int8_share_of_flop", json_real(flop > 0 ? int8_flop / flop : 0), &failed);
    pi0_json_put(document, "layers", layers, &failed);
    *out = failed ? NULL : pi0_json_text(document, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    json_decref(document);
    return *out ? PI0_OK : pi0_fail_memory(err, 0, "a calibration");
}

/* ------------------------------------------------------------------ the public function */

static pi0_status check_call(const pi0_options *options, const pi0_calibrate_options *how, pi0_error *err)
{
    if (!how || !how->observe || !how->observations)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "a calibration needs observations: none was given");
    if (!(how->cosine >= 0 && how->cosine < 1)) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the cosine that the actions are to keep is out of range");
        pi0_err_expected(err, "0 (the default, %.4f) or more, below 1", PI0_INT8_MEAN_COSINE);
        pi0_err_got(err, "%.9g", how->cosine);
        return status;
    }
    if (options->precision && strcmp(options->precision, "int8") != 0 && strcmp(options->precision, "int8:auto") != 0) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "a calibration is about int8");
        pi0_err_where(err, "--precision");
        pi0_err_got(err, "%.100s", options->precision);
        pi0_err_hint(err, "leave the precision out");
        return status;
    }
    return PI0_OK;
}

pi0_status pi0_calibrate(const char *path, const pi0_options *options, const pi0_calibrate_options *how, char **json, pi0_error *err)
{
    *json = NULL;
    pi0_options defaults;
    pi0_options_init(&defaults);
    options = options ? options : &defaults;
    PI0_TRY(check_call(options, how, err));
    search s = {.path = path, .options = *options, .how = how, .log = {options->log, options->log_user}, .expected = 2};
    s.options.calibration = NULL;
    s.options.stages = 1;
    s.mean_gate = how->cosine > 0 ? how->cosine : PI0_INT8_MEAN_COSINE;
    s.worst_gate = 1 - 4 * (1 - s.mean_gate); /* twice the angle: 0.998 */
    choice chosen = {0};
    pi0_status status = PI0_OK;
    if (!(s.reference = pi0_alloc_array(how->observations, sizeof *s.reference)))
        status = pi0_fail_memory(err, how->observations * sizeof *s.reference, "the list of observations");
    if (status == PI0_OK)
        status = measure(&s, err);
    if (status == PI0_OK)
        status = find_choice(&s, &chosen, err);
    if (status == PI0_OK)
        status = write_report(&s, &chosen, json, err);
    close_search(&s);
    return status;
}
