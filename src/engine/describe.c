/* What people look at: inspect and the recipe file as JSON text; prompts and tokenizers by model. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"

/* ------------------------------------------------------------------ json */

void pi0_json_put(json_t *object, const char *key, json_t *value, bool *failed)
{
    if (json_object_set_new(object, key, value) != 0)
        *failed = true;
}

static pi0_status dump(json_t *object, bool failed, char **out, pi0_error *err)
{
    *out = failed ? NULL : pi0_json_text(object, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(object);
    return *out ? PI0_OK : pi0_fail_memory(err, 0, "a JSON text");
}

static json_t *memory_json(const pi0_memory *m, bool *failed)
{
    json_t *object = json_object();
    for (size_t i = 0; pi0_memory_line_at(m, i).name; i++)
        pi0_json_put(object, pi0_memory_line_at(m, i).name, json_integer((json_int_t)pi0_memory_line_at(m, i).bytes), failed);
    return object;
}

static json_t *use_json(const pi0_pack_use *use)
{
    return json_pack("{s:i,s:I,s:i,s:I}", "weights_ready_here", use->ready, "bytes_ready_here", (json_int_t)use->ready_bytes,
                     "weights_packed_at_open", use->packed, "bytes_packed_at_open", (json_int_t)use->packed_bytes);
}

/* over_live: how many times the least that any layout needs. */
static json_t *plan_json(const pi0_plan *plan)
{
    int products = 0, values = 0;
    for (int i = 0; i < plan->n_ops; i++)
        products += plan->ops[i].kind == PI0_OP_LINEAR || plan->ops[i].kind == PI0_OP_LINEARS;
    for (int i = 0; i < plan->n_ops; i++)
        for (int r = 0; r < pi0_op_results(&plan->ops[i]); r++)
            values += !plan->tensors[pi0_op_result(&plan->ops[i], r)].output;
    return json_pack("{s:i,s:i,s:i,s:I,s:I,s:f}", "ops", plan->n_ops, "matrix_products", products, "arena_values", values, "arena_bytes",
                     (json_int_t)plan->arena_bytes, "live_bytes", (json_int_t)plan->live_bytes, "over_live",
                     plan->live_bytes ? (double)plan->arena_bytes / (double)plan->live_bytes : 1.0);
}

static json_t *plans_json(const pi0_blueprint *b, bool *failed)
{
    const pi0_plan *const plans[] = {b->plans.context, b->plans.schedule, b->plans.denoise};
    json_t *object = json_object();
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (plans[i])
            pi0_json_put(object, plans[i]->name, plan_json(plans[i]), failed);
    pi0_json_put(object, "batch", json_integer(b->sizes.lanes), failed);
    pi0_json_put(object, "fused_ops_expanded", json_integer(b->expanded), failed);
    return object;
}

static json_t *passes_json(const char *disabled, int window, bool *failed)
{
    json_t *list = json_array();
    for (const pi0_pass *pass = pi0_passes; pass->name; pass++)
        *failed |= json_array_append_new(
                       list, json_pack("{s:s,s:b,s:s,s:s}", "name", pass->name, "on",
                                       (int)pi0_pass_enabled(disabled, pass->name) && (pass->class != PI0_PASS_MODEL || window > 0),
                                       "class", pi0_pass_class_name(pass->class), "does", pass->summary)) != 0;
    return list;
}

pi0_pass_info pi0_pass_at(size_t index)
{
    const pi0_pass *pass = pi0_passes;
    while (pass->name && index--)
        pass++;
    return (pi0_pass_info){
        .name = pass->name, .exactness = pi0_pass_class_name(pass->class), .summary = pass->summary, .founding = pass->founding};
}

/* What the matrices of a block become: all of them one type, or int8 with exceptions. */
static json_t *weights_json(const pi0_blueprint *b, const char *block, pi0_dtype stored)
{
    const pi0_product_count int8 = pi0_products_count(&b->plans, block, PI0_PRECISION_INT8);
    const pi0_product_count bf16 = pi0_products_count(&b->plans, block, PI0_PRECISION_BF16);
    if (int8.chosen && bf16.chosen)
        return json_sprintf("int8, %d of %d products bf16", bf16.chosen, bf16.all);
    return json_string(int8.chosen ? "int8" : bf16.chosen ? "bf16" : pi0_dtype_name(stored));
}

/* How each block computes: the stored type of its matrices, what they become, what goes in and what adds up. */
static json_t *compute_json(const pi0_checkpoint *checkpoint, const pi0_blueprint *b, const pi0_device_info *device, bool *failed)
{
    static const char *const blocks[][3] = {
        {"vision tower", "paligemma_with_expert.paligemma.model.vision_tower.", "vision_model.encoder.layers.0.mlp.fc1.weight"},
        {"projector", "paligemma_with_expert.paligemma.model.multi_modal_projector.", "linear.weight"},
        {"prefix (Gemma)", "paligemma_with_expert.paligemma.model.language_model.", "layers.0.mlp.gate_proj.weight"},
        {"action expert", "paligemma_with_expert.gemma_expert.model.", "layers.0.mlp.gate_proj.weight"},
        {"action projections", "action_in_proj.", "weight"},
    };
    json_t *object = json_object();
    pi0_json_put(object, "precision", json_string(b->precision_text), failed);
    pi0_json_put(object, "matrix_products", json_string(device->compute), failed);
    pi0_json_put(object, "norms_softmax_flow", json_string("f32; time embedding angles f64; statistics as the family does"), failed);
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        char name[160];
        snprintf(name, sizeof name, "%s%s", blocks[i][1], blocks[i][2]);
        const pi0_tensor_view *view = pi0_checkpoint_tensor(checkpoint, name);
        if (!view)
            continue;
        const bool whole = pi0_products_count(&b->plans, blocks[i][1], PI0_PRECISION_INT8).chosen > 0;
        *failed |= json_array_append_new(list, json_pack("{s:s,s:s,s:o,s:s}", "block", blocks[i][0], "stored", pi0_dtype_name(view->dtype),
                                                         "weights", weights_json(b, blocks[i][1], view->dtype), "accumulation",
                                                         whole ? "int32" : "f32")) != 0;
    }
    pi0_json_put(object, "blocks", list, failed);
    return object;
}

/* ------------------------------------------------------------------ inspect */

typedef struct inspection {
    pi0_checkpoint *checkpoint;
    pi0_recipe *recipe;
    pi0_tokenizer *tokenizer;
    json_t *problems;
    pi0_log log;
} inspection;

static void close_inspection(inspection *i)
{
    pi0_tokenizer_close(&i->tokenizer);
    pi0_recipe_free(&i->recipe);
    pi0_checkpoint_close(&i->checkpoint);
    json_decref(i->problems);
}

static void add_problem(inspection *i, pi0_error *problem, bool *failed)
{
    pi0_text text = {0};
    pi0_text_add(&text, "%s", problem->what);
    if (*problem->where)
        pi0_text_add(&text, " (%s)", problem->where);
    if (*problem->hint)
        pi0_text_add(&text, "; %s", problem->hint);
    for (const char *item = problem->list; item && *item;) {
        const size_t length = strcspn(item, "\n");
        pi0_text_add(&text, "%s %.*s", item == problem->list ? ":" : ",", (int)length, item);
        item += length + (item[length] == '\n');
    }
    *failed |= text.failed || json_array_append_new(i->problems, pi0_json_words(text.data)) != 0;
    pi0_text_release(&text);
    pi0_error_clear(problem);
}

/* Plans and memory, as pi0_open would make them, but for the weights. What the model refuses here, pi0_open would refuse too: one problem
 * more. */
static pi0_status describe_computation(inspection *i, const pi0_options *options, json_t *out, bool *failed, pi0_error *err)
{
    const pi0_device_api *api;
    pi0_device *device = NULL;
    pi0_blueprint blueprint;
    PI0_TRY(pi0_find_device(options->device, &api, err));
    const pi0_device_options device_options = {
        .threads = options->threads, .affinity = options->affinity, .isa = options->isa, .log = &i->log};
    PI0_TRY(api->open(&device_options, &device, err));
    const pi0_device_info info = api->info(device);
    pi0_json_put(out, "device", json_pack("{s:s,s:s,s:i}", "name", info.name, "kernels", info.detail, "threads", info.threads), failed);
    pi0_error unheard = {0}, *problem = err ? err : &unheard;
    const pi0_site site = {.checkpoint = i->checkpoint,
                           .facts = pi0_recipe_get_facts(i->recipe),
                           .tokenizer = i->tokenizer,
                           .options = options,
                           .api = api,
                           .device = device};
    pi0_status status = pi0_blueprint_make(&site, &blueprint, problem);
    if (status == PI0_OK) {
        pi0_json_put(out, "compute", compute_json(i->checkpoint, &blueprint, &info, failed), failed);
        pi0_json_put(out, "plans", plans_json(&blueprint, failed), failed);
        pi0_json_put(out, "memory", memory_json(&blueprint.memory, failed), failed);
        if (i->checkpoint->packed) {
            json_t *use = use_json(&blueprint.pack_use);
            *failed |= json_object_update(json_object_get(out, "packed"), use) != 0;
            json_decref(use);
        }
        pi0_blueprint_free(&blueprint);
    } else if (status == PI0_ERR_MODEL) {
        add_problem(i, problem, failed);
        status = PI0_OK;
    }
    pi0_error_clear(&unheard);
    api->close(&device);
    return status;
}

static void describe_tokenizer(inspection *i, const pi0_options *options, json_t *out, bool *failed)
{
    char *path = NULL;
    pi0_error problem = {0};
    if (pi0_checkpoint_tokenizer(i->checkpoint, options, &path, &problem) == PI0_OK)
        pi0_json_put(out, "tokenizer",
                     json_pack("{s:o,s:s}", "path", pi0_json_words(path), "rules", pi0_recipe_get_facts(i->recipe)->tokenizer_rules),
                     failed);
    else
        add_problem(i, &problem, failed);
    if (path && pi0_open_tokenizer(i->checkpoint, pi0_recipe_get_facts(i->recipe), options, &i->tokenizer, &problem) != PI0_OK)
        add_problem(i, &problem, failed);
    pi0_free(path);
}

static pi0_status open_inspection(const char *path, const pi0_options *options, inspection *i, pi0_error *err)
{
    memset(i, 0, sizeof *i);
    i->log = (pi0_log){options->log, options->log_user};
    pi0_status status = PI0_OK;
    if (!(i->problems = json_array()))
        return pi0_fail_memory(err, 0, "an inspection");
    PI0_TRY_GOTO(pi0_checkpoint_open(path, options, &i->log, &i->checkpoint, err));
    return PI0_OK;
fail:
    close_inspection(i);
    return status;
}

static void merge_recipe(inspection *i, json_t *out, bool *failed)
{
    json_t *recipe = pi0_recipe_describe(i->recipe);
    if (!recipe) {
        *failed = true;
        return;
    }
    *failed |= json_object_set(out, "recipe", json_object_get(recipe, "fields")) != 0;
    *failed |= json_object_set(out, "statistics", json_object_get(recipe, "statistics")) != 0;
    json_t *warnings = json_object_get(out, "warnings");
    *failed |= json_array_extend(warnings, json_object_get(recipe, "warnings")) != 0;
    json_decref(recipe);
}

pi0_status pi0_inspect(const char *path, const pi0_options *options, char **json, pi0_error *err)
{
    *json = NULL;
    pi0_options defaults;
    pi0_options_init(&defaults);
    options = options ? options : &defaults;
    inspection i;
    PI0_TRY(open_inspection(path, options, &i, err));
    bool failed = false;
    pi0_error problem = {0};
    if (pi0_recipe_load(i.checkpoint, options, &i.log, i.problems, &i.recipe, &problem) != PI0_OK)
        add_problem(&i, &problem, &failed);
    json_t *out = pi0_checkpoint_describe(i.checkpoint, true);
    failed |= !out;
    pi0_status status = PI0_OK;
    if (!failed) {
        pi0_json_put(out, "parameters", json_integer((json_int_t)pi0_arch_parameters(&i.checkpoint->arch, false)), &failed);
        pi0_json_put(out, "parameters_needed", json_integer((json_int_t)pi0_arch_parameters(&i.checkpoint->arch, true)), &failed);
        pi0_json_put(out, "passes", passes_json(options->disable, options->window, &failed), &failed);
        if (i.recipe) {
            merge_recipe(&i, out, &failed);
            describe_tokenizer(&i, options, out, &failed);
            status = describe_computation(&i, options, out, &failed, err);
        }
        failed |= json_object_set(out, "problems", i.problems) != 0;
    }
    if (status == PI0_OK)
        status = dump(out, failed, json, err);
    else
        json_decref(out);
    close_inspection(&i);
    return status;
}

pi0_status pi0_recipe_text(const char *path, const pi0_options *options, char **json, pi0_error *err)
{
    *json = NULL;
    pi0_options defaults;
    pi0_options_init(&defaults);
    inspection i;
    options = options ? options : &defaults;
    PI0_TRY(open_inspection(path, options, &i, err));
    pi0_status status = pi0_recipe_load(i.checkpoint, options, &i.log, i.problems, &i.recipe, err);
    if (status == PI0_OK) {
        json_t *recipe = pi0_recipe_to_json(i.recipe);
        status = dump(recipe, !recipe, json, err);
    }
    close_inspection(&i);
    return status;
}

/* ------------------------------------------------------------------ prompts */

pi0_status pi0_find_tokenizer(const char *path, const pi0_options *options, char **path_out, const char **rules_out, pi0_error *err)
{
    *path_out = NULL;
    pi0_options defaults;
    pi0_options_init(&defaults);
    options = options ? options : &defaults;
    inspection i;
    PI0_TRY(open_inspection(path, options, &i, err));
    /* A recipe may say otherwise, but text can be tokenised without knowing the robot. */
    const bool known = pi0_recipe_load(i.checkpoint, options, &i.log, i.problems, &i.recipe, NULL) == PI0_OK;
    const bool spm = known ? !strcmp(pi0_recipe_get_facts(i.recipe)->tokenizer_rules, "spm") : i.checkpoint->layout == PI0_LAYOUT_OPENPI;
    *rules_out = spm ? "spm" : "hf";
    pi0_status status = pi0_checkpoint_tokenizer(i.checkpoint, options, path_out, err);
    close_inspection(&i);
    return status;
}

struct pi0_prompter {
    pi0_checkpoint *checkpoint;
    pi0_recipe *recipe;
    pi0_tokenizer *tokenizer;
    pi0_log log;
};

void pi0_prompter_close(pi0_prompter **prompter)
{
    if (!prompter || !*prompter)
        return;
    pi0_tokenizer_close(&(*prompter)->tokenizer);
    pi0_recipe_free(&(*prompter)->recipe);
    pi0_checkpoint_close(&(*prompter)->checkpoint);
    pi0_free(*prompter);
    *prompter = NULL;
}

pi0_status pi0_prompter_open(const char *path, const pi0_options *options, pi0_prompter **out, pi0_error *err)
{
    *out = NULL;
    pi0_options defaults;
    pi0_options_init(&defaults);
    options = options ? options : &defaults;
    char *file = NULL;
    pi0_status status;
    pi0_prompter *prompter = pi0_alloc(sizeof *prompter);
    if (!prompter)
        return pi0_fail_memory(err, sizeof *prompter, "a prompter");
    prompter->log = (pi0_log){options->log, options->log_user};
    PI0_TRY_GOTO(pi0_checkpoint_open(path, options, &prompter->log, &prompter->checkpoint, err));
    PI0_TRY_GOTO(pi0_recipe_load(prompter->checkpoint, options, &prompter->log, NULL, &prompter->recipe, err));
    PI0_TRY_GOTO(pi0_checkpoint_tokenizer(prompter->checkpoint, options, &file, err));
    PI0_TRY_GOTO(pi0_tokenizer_open(file, pi0_recipe_get_facts(prompter->recipe)->tokenizer_rules, &prompter->tokenizer, err));
    pi0_free(file);
    *out = prompter;
    return PI0_OK;
fail:
    pi0_free(file);
    pi0_prompter_close(&prompter);
    return status;
}

static pi0_status check_prompt_state(const pi0_recipe_facts *facts, const double *state, size_t count, pi0_error *err)
{
    pi0_status status = PI0_OK;
    if (state && count != (size_t)facts->state_dim) {
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "the state has the wrong number of values");
        pi0_err_where(err, "state");
        pi0_err_expected(err, "%d", facts->state_dim);
        pi0_err_got(err, "%zu", count);
    } else if (!state && facts->state_in_prompt) {
        status = pi0_fail(err, PI0_ERR_ARGUMENT, "this model's prompt holds the state, and none was given");
        pi0_err_where(err, "state");
        pi0_err_hint(err, "--state V,V,... with %d values", facts->state_dim);
    }
    return status;
}

pi0_status pi0_prompter_tokens(const pi0_prompter *prompter, const char *prompt, const double *state, size_t state_count, int64_t **ids,
                               size_t *count, char **framed, pi0_error *err)
{
    *ids = NULL;
    *framed = NULL;
    pi0_prompt_room room = {0};
    double text_state[PI0_MAX_DIM] = {0};
    float padded[PI0_MAX_DIM];
    pi0_status status;
    PI0_TRY(check_prompt_state(pi0_recipe_get_facts(prompter->recipe), state, state_count, err));
    if (state)
        PI0_TRY(pi0_recipe_state(prompter->recipe, state, prompter->checkpoint->arch.action_dim, padded, text_state, err));
    if (!(*ids = calloc(PI0_MAX_TOKENS, sizeof **ids)))
        return pi0_fail_memory(err, PI0_MAX_TOKENS * sizeof **ids, "token ids");
    PI0_TRY_GOTO(pi0_recipe_prompt(prompter->recipe, prompter->tokenizer, prompt, text_state, &prompter->log, *ids, PI0_MAX_TOKENS, count,
                                   &room, err));
    *framed = room.text.data ? room.text.data : calloc(1, 1);
    room.text.data = NULL;
    if (!*framed)
        status = pi0_fail_memory(err, 1, "a prompt");
fail:
    if (status != PI0_OK)
        pi0_ids_free(ids);
    pi0_prompt_room_release(&room);
    return status;
}
