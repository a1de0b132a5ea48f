/* pi0_open and pi0_close: from a path to compiled plans, and back to nothing. */
#include <string.h>

#include "engine/engine.h"

/* ------------------------------------------------------------------ devices */

static const pi0_device_api *const devices[] = {&pi0_device_cpu};

size_t pi0_device_count(void)
{
    return sizeof devices / sizeof *devices;
}

const pi0_device_api *pi0_device_at(size_t index)
{
    return devices[index];
}

/* "cuda:1" names the kind before the colon. */
pi0_status pi0_find_device(const char *name, const pi0_device_api **out, pi0_error *err)
{
    const char *wanted = name ? name : "cpu";
    const size_t length = strcspn(wanted, ":");
    for (size_t i = 0; i < pi0_device_count(); i++)
        if (strlen(devices[i]->name) == length && !strncmp(devices[i]->name, wanted, length) && !wanted[length]) {
            *out = devices[i];
            return PI0_OK;
        }
    const bool later = !strncmp(wanted, "cuda", 4) || !strncmp(wanted, "ascend", 6);
    pi0_status status = pi0_fail(err, later ? PI0_ERR_DEVICE : PI0_ERR_ARGUMENT,
                                 later ? "the device '%s' is not in this version" : "there is no device '%s'", wanted);
    pi0_err_expected(err, "cpu");
    pi0_err_hint(err, "--device cpu");
    return status;
}

/* ------------------------------------------------------------------ options */

void pi0_options_init(pi0_options *options)
{
    memset(options, 0, sizeof *options);
}

static pi0_status check_options(const char *path, const pi0_options *options, pi0_error *err)
{
    if (!path || !*path)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "no model was named");
    if (options->threads < 0 || options->threads > PI0_MAX_THREADS) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the number of threads is out of range");
        pi0_err_expected(err, "1 .. %d, or 0 for one a physical core", PI0_MAX_THREADS);
        pi0_err_got(err, "%d", options->threads);
        return status;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ closing */

static void close_program(pi0_model *model, pi0_program *program)
{
    if (program->exec)
        model->api->release(model->device, &program->exec);
    for (int i = 0; program->plan && i < program->plan->n_weights; i++) {
        if (!program->weights)
            break;
        if (program->plan->weights[i].shared)
            continue; /* the context's */
        if (program->weights[i].buffer.handle)
            model->api->free(model->device, &program->weights[i].buffer);
        pi0_free(program->weights[i].host.owned);
    }
    pi0_free(program->tensors);
    pi0_free(program->weights);
    pi0_free(program->errors);
    pi0_plan_free(&program->plan);
}

static void free_buffers(pi0_model *model)
{
    pi0_buffer *const list[] = {&model->pictures, &model->tokens,   &model->vision, &model->state,    &model->x,
                                &model->x_next,   &model->velocity, &model->arena,  &model->workspace};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i]->handle)
            model->api->free(model->device, list[i]);
    for (int i = 0; i < PI0_MAX_TABLES; i++)
        if (model->table[i].handle)
            model->api->free(model->device, &model->table[i]);
    for (int layer = 0; layer < PI0_MAX_LAYERS; layer++) {
        if (model->k[layer].handle)
            model->api->free(model->device, &model->k[layer]);
        if (model->v[layer].handle)
            model->api->free(model->device, &model->v[layer]);
        if (model->state_k[layer].handle)
            model->api->free(model->device, &model->state_k[layer]);
        if (model->state_v[layer].handle)
            model->api->free(model->device, &model->state_v[layer]);
    }
}

void pi0_close(pi0_model **handle)
{
    if (!handle || !*handle)
        return;
    pi0_model *model = *handle;
    pi0_tracer_close(&model->tracer);
    if (model->device) {
        model->api->set_hot(model->device, false);
        close_program(model, &model->context);
        close_program(model, &model->schedule);
        close_program(model, &model->denoise);
        free_buffers(model);
        pi0_layers_close(model);
        model->api->close(&model->device);
    }
    pi0_free(model->arrays.prefix_position);
    pi0_free(model->arrays.suffix_position);
    pi0_free(model->arrays.state_position);
    pi0_free(model->arrays.action_position);
    pi0_free(model->arrays.time_row);
    pi0_free(model->arrays.prefix_mask);
    pi0_free(model->arrays.tokens);
    pi0_free(model->host_actions);
    pi0_free(model->host_rows);
    pi0_tokenizer_close(&model->tokenizer);
    pi0_recipe_free(&model->recipe);
    pi0_checkpoint_close(&model->checkpoint);
    if (model->lock_ready)
        pthread_mutex_destroy(&model->lock);
    pi0_counters_close(&model->counters);
    pi0_free(model);
    *handle = NULL;
}

/* ------------------------------------------------------------------ opening */

pi0_status pi0_open_tokenizer(const pi0_checkpoint *checkpoint, const pi0_recipe_facts *facts, const pi0_options *options,
                              pi0_tokenizer **out, pi0_error *err)
{
    char *path = NULL;
    PI0_TRY(pi0_checkpoint_tokenizer(checkpoint, options, &path, err));
    pi0_status status = pi0_tokenizer_open(path, facts->tokenizer_rules, out, err);
    if (status == PI0_OK && pi0_tokenizer_vocab(*out) > (size_t)checkpoint->arch.vocab) {
        status = pi0_fail(err, PI0_ERR_MODEL, "the tokenizer knows more tokens than the model's table has rows");
        pi0_err_where(err, "%s", path);
        pi0_err_expected(err, "at most %d tokens", checkpoint->arch.vocab);
        pi0_err_got(err, "%zu tokens", pi0_tokenizer_vocab(*out));
        pi0_err_hint(err, "give the tokenizer that belongs to this checkpoint with --tokenizer");
        pi0_tokenizer_close(out);
    }
    pi0_free(path);
    return status;
}

static pi0_status alloc_io(pi0_model *model, const pi0_plan *plan, int tensor, pi0_buffer *buffer, pi0_error *err)
{
    return tensor < 0 ? PI0_OK : model->api->alloc(model->device, pi0_tensor_bytes(plan, tensor), buffer, err);
}

static pi0_status alloc_buffers(pi0_model *model, size_t workspace, pi0_error *err)
{
    const pi0_policy_io *io = &model->io;
    const pi0_plan *context = model->context.plan, *denoise = model->denoise.plan;
    PI0_TRY(alloc_io(model, context, io->pictures, &model->pictures, err));
    PI0_TRY(alloc_io(model, context, io->tokens, &model->tokens, err));
    PI0_TRY(alloc_io(model, context, io->vision, &model->vision, err));
    for (int layer = 0; layer < model->arch.prefix.depth; layer++) {
        PI0_TRY(alloc_io(model, context, io->k[layer], &model->k[layer], err));
        PI0_TRY(alloc_io(model, context, io->v[layer], &model->v[layer], err));
    }
    for (int layer = 0; layer < model->arch.expert.depth && model->sizes.state_kv; layer++) {
        PI0_TRY(alloc_io(model, context, io->state_k[layer], &model->state_k[layer], err));
        PI0_TRY(alloc_io(model, context, io->state_v[layer], &model->state_v[layer], err));
    }
    PI0_TRY(alloc_io(model, context, io->context_state, &model->state, err));
    PI0_TRY(alloc_io(model, denoise, io->state, &model->state, err)); /* one of the two */
    PI0_TRY(alloc_io(model, denoise, io->x, &model->x, err));
    PI0_TRY(alloc_io(model, denoise, io->velocity, &model->velocity, err));
    PI0_TRY(alloc_io(model, denoise, io->x_next, &model->x_next, err));
    for (int i = 0; i < io->n_tables; i++)
        PI0_TRY(alloc_io(model, model->schedule.plan, io->table[i], &model->table[i], err));
    const pi0_plan *const plans[] = {context, denoise, model->schedule.plan};
    size_t arena = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (plans[i] && plans[i]->use_arena) /* without one every value is allocated as it is computed */
            arena = pi0_max_size(arena, plans[i]->arena_bytes);
    PI0_TRY(model->api->alloc(model->device, arena, &model->arena, err));
    return model->api->alloc(model->device, workspace, &model->workspace, err);
}

static pi0_status alloc_arrays(pi0_model *model, pi0_error *err)
{
    const int *rows = model->context.plan->max_rows;
    pi0_param_arrays *a = &model->arrays;
    const size_t prefix = (size_t)rows[PI0_ROWS_PREFIX], suffix = (size_t)rows[PI0_ROWS_SUFFIX];
    a->prefix_position = pi0_alloc_array(prefix, sizeof *a->prefix_position);
    a->suffix_position = pi0_alloc_array(suffix, sizeof *a->suffix_position);
    a->state_position = pi0_alloc_array(suffix, sizeof *a->state_position);
    a->action_position = pi0_alloc_array(suffix, sizeof *a->action_position);
    a->time_row = pi0_alloc_array(suffix, sizeof *a->time_row);
    a->prefix_mask = pi0_alloc_array(prefix, sizeof *a->prefix_mask);
    a->tokens = pi0_alloc_array((size_t)rows[PI0_ROWS_TEXT], sizeof *a->tokens);
    model->host_actions = pi0_alloc_array(suffix * (size_t)model->arch.action_dim, sizeof(float));
    model->host_rows = pi0_alloc_array(pi0_host_floats(&model->arch, &model->sizes), sizeof(float));
    if (!a->prefix_position || !a->suffix_position || !a->state_position || !a->action_position || !a->time_row || !a->prefix_mask ||
        !a->tokens || !model->host_actions || !model->host_rows)
        return pi0_fail_memory(err, pi0_param_bytes(&model->arch, &model->sizes, rows), "the parameter block");
    return PI0_OK;
}

pi0_status pi0_import_weight(const pi0_checkpoint *checkpoint, const pi0_device_api *api, pi0_device *device, const pi0_weight *as,
                             pi0_device_weight *out, pi0_error *err)
{
    pi0_placement place;
    pi0_host_weight host;
    PI0_TRY(pi0_place_weight(checkpoint, api, device, as, &place, err));
    if (place.ready) {
        pi0_status status = api->import_packed(device, as, place.stored, place.ready->data, place.ready->bytes, out, err);
        if (status == PI0_ERR_FORMAT) {
            pi0_err_where(err, "%s: tensor \"%.256s\"", checkpoint->path, place.ready->name);
            pi0_err_hint(err, "the file was not packed by this program, or was changed: pack the checkpoint again");
        }
        return status;
    }
    PI0_TRY(pi0_weight_evaluate(checkpoint, as, &host, err));
    pi0_status status = api->import_weight(device, as, &host, out, err);
    if (status == PI0_OK && !out->buffer.handle)
        return PI0_OK;                                    /* the device reads it where it lies */
    for (int i = 0; i < host.n_parts && !host.owned; i++) /* what was copied need not stay in memory */
        pi0_map_release_pages(host.part[i].data, (size_t)(host.part[i].rows * host.cols) * pi0_dtype_size(host.dtype));
    pi0_free(host.owned);
    out->host.owned = NULL;
    return status;
}

pi0_status pi0_open_progress(const pi0_model *model, const char *stage, uint64_t done, uint64_t total, pi0_error *err)
{
    if (!model->progress || !model->progress(model->progress_user, stage, done, total))
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_CANCELLED, "opening the model was cancelled");
    pi0_err_where(err, "%s: %s", model->checkpoint ? model->checkpoint->path : "before its files were read", stage);
    return status;
}

/* What stays mapped counts when its pages are taken in. */
static pi0_status import_weights(pi0_model *model, pi0_program *program, uint64_t *done, uint64_t total, pi0_error *err)
{
    const pi0_plan *plan = program->plan;
    const size_t n = (size_t)plan->n_weights + 1;
    program->weights = pi0_alloc_array(n, sizeof *program->weights);
    if (!program->weights)
        return pi0_fail_memory(err, n * sizeof *program->weights, "the list of weights");
    for (int i = 0; i < plan->n_weights; i++) {
        pi0_device_weight *weight = &program->weights[i];
        PI0_TRY(pi0_open_progress(model, "weights", *done, total, err));
        if (plan->weights[i].rows == 0)
            continue;
        if (plan->weights[i].shared) {
            *weight = model->context.weights[plan->weights[i].shared - 1];
            continue;
        }
        PI0_TRY(pi0_import_weight(model->checkpoint, model->api, model->device, &plan->weights[i], weight, err));
        if (!pi0_is_mapped(&plan->weights[i], weight))
            *done += weight->buffer.bytes ? weight->buffer.bytes : pi0_host_bytes(&weight->host);
    }
    return PI0_OK;
}

static pi0_status compile_program(pi0_model *model, pi0_program *program, pi0_error *err)
{
    const pi0_bindings bindings = {.tensors = program->tensors,
                                   .weights = program->weights,
                                   .arena = model->arena,
                                   .workspace = model->workspace,
                                   .errors = program->errors};
    return model->api->compile(model->device, program->plan, &bindings, &program->exec, err);
}

static pi0_status bind_tensors(pi0_model *model, pi0_error *err)
{
    const pi0_policy_io *io = &model->io;
    pi0_buffer *c = model->context.tensors = pi0_alloc_array((size_t)model->context.plan->n_tensors + 1, sizeof *c);
    pi0_buffer *d = model->denoise.tensors = pi0_alloc_array((size_t)model->denoise.plan->n_tensors + 1, sizeof *d);
    const pi0_plan *schedule = model->schedule.plan;
    pi0_buffer *s = schedule ? pi0_alloc_array((size_t)schedule->n_tensors + 1, sizeof *s) : NULL;
    model->schedule.tensors = s;
    if (!c || !d || (schedule && !s))
        return pi0_fail_memory(err, sizeof *c, "the bindings of a plan");
    for (int i = 0; i < io->n_tables; i++)
        s[io->table[i]] = d[io->table_in[i]] = model->table[i];
    c[io->pictures] = model->pictures;
    c[io->tokens] = model->tokens;
    c[io->vision] = model->vision;
    for (int layer = 0; layer < model->arch.prefix.depth; layer++) {
        c[io->k[layer]] = d[io->k_in[layer]] = model->k[layer];
        c[io->v[layer]] = d[io->v_in[layer]] = model->v[layer];
    }
    for (int layer = 0; layer < model->arch.expert.depth && model->sizes.state_kv; layer++) {
        c[io->state_k[layer]] = d[io->state_k_in[layer]] = model->state_k[layer];
        c[io->state_v[layer]] = d[io->state_v_in[layer]] = model->state_v[layer];
    }
    if (io->context_state >= 0)
        c[io->context_state] = model->state;
    if (io->state >= 0)
        d[io->state] = model->state;
    d[io->x] = model->x;
    d[io->velocity] = model->velocity;
    d[io->x_next] = model->x_next;
    return PI0_OK;
}

static void fill_info(pi0_model *model)
{
    const pi0_device_info device = model->api->info(model->device);
    model->info = (pi0_info){.model = model->arch.pi05 ? "pi05" : "pi0",
                             .layout = pi0_layout_name(model->checkpoint->layout),
                             .device = device.name,
                             .precision = model->precision_text,
                             .isa = device.detail,
                             .horizon = model->sizes.horizon,
                             .window = model->sizes.window,
                             .model_action_dim = model->arch.action_dim,
                             .action_dim = model->facts.action_dim,
                             .state_dim = model->facts.state_dim,
                             .steps = model->facts.steps,
                             .max_tokens = model->facts.max_tokens,
                             .max_batch = model->sizes.lanes,
                             .threads = device.threads,
                             .n_slots = model->facts.n_slots};
    for (int slot = 0; slot < model->facts.n_slots; slot++) {
        model->info.slots[slot] = model->facts.slots[slot];
        model->info.keys[slot] = model->facts.keys[slot];
    }
}

/* With preprocessed inputs nothing of the recipe but sizes and the time schedule is used, so what is missing from it does not matter. */
static pi0_status load_recipe(pi0_model *model, const pi0_options *options, pi0_error *err)
{
    json_t *ignored = options->preprocessed ? json_array() : NULL;
    if (options->preprocessed && !ignored)
        return pi0_fail_memory(err, 0, "the recipe");
    pi0_options chosen = *options;
    /* openpi's configs of one model type differ in the robot, not in slots, schedule or prompt limit: any of them will do here */
    if (options->preprocessed && model->checkpoint->layout == PI0_LAYOUT_OPENPI && !model->checkpoint->packed && !options->config &&
        !options->recipe)
        chosen.config = model->arch.pi05 ? "pi05_droid" : "pi0_droid";
    pi0_status status = pi0_recipe_load(model->checkpoint, &chosen, &model->log, ignored, &model->recipe, err);
    json_decref(ignored);
    if (status == PI0_OK)
        model->facts = *pi0_recipe_get_facts(model->recipe);
    return status;
}

/* Never wrong numbers, only time: what is not there in this machine's order is packed from the stored one. */
static void warn_of_packing(const pi0_model *model, const pi0_options *options, const pi0_blueprint *blueprint)
{
    const pi0_pack_use *use = &blueprint->pack_use;
    if (model->checkpoint->packed && use->packed)
        pi0_log_warning(&model->log,
                        "%s was packed for %s on another kind of machine or for other options: %d of %d weights (%.1f MiB) are packed now; "
                        "it lacks layout %s; `pi0 pack %s%s%s -o NEW.pi0`%s makes a file that opens faster here",
                        model->checkpoint->path, pi0_precision_word(model->checkpoint->packed_for), use->packed, use->packed + use->ready,
                        (double)use->packed_bytes / (1 << 20), use->missing, model->checkpoint->path,
                        options->precision ? " --precision " : "", options->precision ? options->precision : "",
                        options->disable || options->isa ? " with the same --disable and --isa" : "");
}

static pi0_status load(pi0_model *model, const char *path, const pi0_options *options, pi0_error *err)
{
    PI0_TRY(pi0_find_device(options->device, &model->api, err));
    PI0_TRY(pi0_open_progress(model, "checkpoint", 0, 0, err));
    PI0_TRY(pi0_checkpoint_open(path, options, &model->log, &model->checkpoint, err));
    model->arch = model->checkpoint->arch;
    PI0_TRY(load_recipe(model, options, err));
    PI0_TRY(pi0_open_progress(model, "tokenizer", 0, 0, err));
    if (!options->preprocessed)
        PI0_TRY(pi0_open_tokenizer(model->checkpoint, &model->facts, options, &model->tokenizer, err));
    const pi0_device_options device_options = {
        .threads = options->threads, .affinity = options->affinity, .isa = options->isa, .log = &model->log};
    PI0_TRY(model->api->open(&device_options, &model->device, err));

    PI0_TRY(pi0_open_progress(model, "plan", 0, 0, err));
    pi0_blueprint blueprint;
    const pi0_site site = {.checkpoint = model->checkpoint,
                           .facts = &model->facts,
                           .tokenizer = model->tokenizer,
                           .options = options,
                           .api = model->api,
                           .device = model->device};
    PI0_TRY(pi0_blueprint_make(&site, &blueprint, err));
    model->context.plan = blueprint.plans.context;
    model->schedule.plan = blueprint.plans.schedule;
    model->denoise.plan = blueprint.plans.denoise;
    model->sizes = blueprint.sizes;
    model->io = blueprint.io;
    model->precision = blueprint.precision;
    memcpy(model->precision_text, blueprint.precision_text, sizeof model->precision_text);
    model->memory = blueprint.memory;
    PI0_TRY(pi0_layers_open(model, options->layer_errors != 0, err));
    warn_of_packing(model, options, &blueprint);

    PI0_TRY(alloc_buffers(model, blueprint.workspace, err));
    PI0_TRY(alloc_arrays(model, err));
    uint64_t done = 0;
    const uint64_t total = model->memory.weights_mapped + model->memory.weights_owned + model->memory.token_table;
    PI0_TRY(import_weights(model, &model->context, &done, total, err));
    if (model->schedule.plan)
        PI0_TRY(import_weights(model, &model->schedule, &done, total, err));
    PI0_TRY(import_weights(model, &model->denoise, &done, total, err));
    PI0_TRY(pi0_take_pages(model, &done, total, err));
    PI0_TRY(pi0_open_progress(model, "weights", total, total, err));
    PI0_TRY(bind_tensors(model, err));
    PI0_TRY(compile_program(model, &model->context, err));
    if (model->schedule.plan)
        PI0_TRY(compile_program(model, &model->schedule, err));
    PI0_TRY(compile_program(model, &model->denoise, err));
    model->api->set_hot(model->device, true);
    fill_info(model);
    return options->warm ? pi0_warm(model, err) : PI0_OK;
}

pi0_status pi0_open(const char *path, const pi0_options *options, pi0_model **out, pi0_error *err)
{
    *out = NULL;
    pi0_options defaults;
    pi0_options_init(&defaults);
    options = options ? options : &defaults;
    PI0_TRY(check_options(path, options, err));
    pi0_model *model = pi0_alloc(sizeof *model);
    if (!model)
        return pi0_fail_memory(err, sizeof *model, "a model");
    model->log = (pi0_log){options->log, options->log_user};
    model->progress = options->progress;
    model->progress_user = options->progress_user;
    model->stages = options->stages != 0;
    model->preprocessed = options->preprocessed != 0;
    pi0_status status = PI0_OK;
    if (pthread_mutex_init(&model->lock, NULL) != 0)
        status = pi0_fail(err, PI0_ERR_MEMORY, "cannot create a lock");
    else
        model->lock_ready = true;
    const uint64_t resident_before = pi0_resident();
    if (status == PI0_OK)
        status = load(model, path, options, err);
    model->memory.resident_before = resident_before;
    if (status == PI0_OK)
        status = pi0_counters_open(&model->counters, err);
    if (status != PI0_OK)
        pi0_close(&model);
    else
        model->progress = NULL; /* of the opening alone: what it tells may be gone by now */
    *out = model;
    return status;
}

const pi0_info *pi0_model_info(const pi0_model *model)
{
    return &model->info;
}

pi0_memory pi0_model_memory(const pi0_model *model)
{
    pi0_memory memory = model->memory;
    memory.peak_resident = pi0_peak_resident();
    return memory;
}
