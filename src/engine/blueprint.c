/* What a model will compute and how much memory that takes, before any weight is touched. */
#include <string.h>

#include "engine/engine.h"

void pi0_blueprint_free(pi0_blueprint *blueprint)
{
    pi0_policy_free(&blueprint->plans);
}

static const char by_layer[] = "int8:auto";

/* Asked for, or what a packed file was packed for. */
static bool is_by_layer(const pi0_checkpoint *checkpoint, const pi0_options *options)
{
    const char *name = options->precision;
    return name && strcmp(name, "auto") != 0 ? !strcmp(name, by_layer) : pi0_packed_calibration(checkpoint) != NULL;
}

static pi0_status choose_precision(const pi0_checkpoint *checkpoint, const pi0_options *options, pi0_precision *out, pi0_error *err)
{
    const char *name = options->precision;
    if (!name || !strcmp(name, "auto")) {
        *out = pi0_checkpoint_precision(checkpoint);
    } else if (!strcmp(name, "f32")) {
        *out = PI0_PRECISION_F32;
    } else if (!strcmp(name, "bf16")) {
        *out = PI0_PRECISION_BF16;
    } else if (!strcmp(name, "int8") || !strcmp(name, by_layer)) {
        *out = PI0_PRECISION_INT8;
    } else {
        const bool later = !strcmp(name, "int4") || !strcmp(name, "fp8");
        pi0_status status = pi0_fail(err, later ? PI0_ERR_UNSUPPORTED : PI0_ERR_ARGUMENT,
                                     later ? "the precision '%s' is not in this version" : "there is no precision '%s'", name);
        pi0_err_expected(err, "auto, f32, bf16, int8 or int8:auto");
        return status;
    }
    if (options->layer_errors && *out == PI0_PRECISION_INT8)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "int8 is measured beside f32 or bf16, not beside itself: layer_errors with %s", name);
    return PI0_OK;
}

/* int8:auto: which products are not int8. Any other precision has no exceptions. */
static pi0_status choose_exceptions(const pi0_checkpoint *checkpoint, const pi0_options *options, const pi0_log *log,
                                    const pi0_device_info *device, pi0_calibration *out, pi0_error *err)
{
    const bool asked = is_by_layer(checkpoint, options);
    if (asked && pi0_calibration_exists(options, checkpoint))
        return pi0_calibration_open(options, checkpoint, device, out, err);
    if (options->calibration)
        pi0_log_warning(log, "the calibration is not used: only --precision %s reads one", by_layer);
    if (!asked)
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "int8 by layer needs a calibration, which says which products may be int8");
    pi0_err_where(err, "--precision %s", by_layer);
    pi0_err_expected(err, "--calibration FILE");
    pi0_err_hint(err, "make one: pi0 calibrate %s --obs OBSERVATION.npz -o calibration.json; or --precision int8, which needs none",
                 checkpoint->path);
    return status;
}

static void describe_precision(const pi0_device_info *device, pi0_blueprint *b)
{
    const char *plain = b->precision == PI0_PRECISION_INT8 ? device->int8 : b->precision == PI0_PRECISION_BF16 ? "bf16" : "f32";
    snprintf(b->precision_text, sizeof b->precision_text, "%s", plain);
    if (!b->by_layer)
        return;
    const pi0_product_count count = pi0_products_count(&b->plans, "", PI0_PRECISION_BF16);
    snprintf(b->precision_text, sizeof b->precision_text, "%s (%s, %d of %d products bf16)", by_layer, pi0_int8_form_of(device).text,
             count.chosen, count.all);
}

static pi0_status choose_sizes(const pi0_checkpoint *checkpoint, const pi0_recipe_facts *facts, const pi0_options *options,
                               pi0_policy_sizes *out, pi0_error *err)
{
    const pi0_arch *arch = &checkpoint->arch;
    *out = (pi0_policy_sizes){.cameras = facts->n_slots,
                              .max_tokens = facts->max_tokens,
                              .horizon = options->horizon ? options->horizon : facts->horizon,
                              .lanes = options->max_batch ? options->max_batch : 1};
    if (out->horizon < 1 || out->horizon > PI0_MAX_HORIZON) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the horizon is out of range");
        pi0_err_expected(err, "1 .. %d action rows", PI0_MAX_HORIZON);
        pi0_err_got(err, "%d", out->horizon);
        return status;
    }
    if (options->window < 0 || options->window > PI0_MAX_HORIZON) {
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the window is out of range");
        pi0_err_where(err, "--window");
        pi0_err_expected(err, "1 .. %d actions; 0, or one as long as the chunk: no window", PI0_MAX_HORIZON);
        pi0_err_got(err, "%d", options->window);
        return status;
    }
    if (out->lanes < 1 || out->lanes > PI0_MAX_BATCH)
        return pi0_fail(err, PI0_ERR_ARGUMENT, "max_batch must lie in 1 .. %d, got %d", PI0_MAX_BATCH, options->max_batch);
    if (facts->state_dim > arch->action_dim || facts->action_dim > arch->action_dim) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "the robot is wider than the model");
        pi0_err_expected(err, "at most %d state and action values: the columns of action_in_proj.weight", arch->action_dim);
        pi0_err_got(err, "state.dim %d, action.dim %d", facts->state_dim, facts->action_dim);
        return status;
    }
    return PI0_OK;
}

/* 0 when every action sees every other. Loud, for the weights were trained without one. */
static int choose_window(int horizon, const pi0_options *options, const pi0_log *log)
{
    if (options->window == 0 || options->window >= horizon || !pi0_pass_enabled(options->disable, "local-window"))
        return 0;
    pi0_log_warning(log,
                    "local-window: each of %d actions attends to those less than %d away only; this changes the actions of a model that "
                    "was not trained so",
                    horizon, options->window);
    return options->window;
}

static pi0_status prepare_plan(pi0_plan *plan, const pi0_precision_policy *policy, const char *disable, const pi0_device_api *api,
                               int *expanded, pi0_error *err)
{
    int count = 0;
    PI0_TRY(pi0_passes_run(plan, disable, err));
    PI0_TRY(pi0_plan_expand(plan, api->takes, &count, err));
    *expanded += count;
    pi0_plan_drop_unread(plan);
    pi0_plan_quantise(plan, policy);
    PI0_TRY(pi0_plan_verify(plan, err));
    return pi0_plan_layout(plan, err);
}

pi0_status pi0_place_weight(const pi0_checkpoint *checkpoint, const pi0_device_api *api, const pi0_device *device, const pi0_weight *weight,
                            pi0_placement *out, pi0_error *err)
{
    const pi0_weight_memory host = pi0_weight_memory_of(checkpoint, weight);
    const uint64_t packed = api->weight_bytes(device, weight, host.dtype);
    *out = (pi0_placement){.stored = host.dtype};
    if (checkpoint->packed)
        PI0_TRY(api->layout(device, weight, host.dtype, out->layout, err));
    out->ready = pi0_packed_weight(checkpoint, out->layout, weight);
    out->packs = packed && !out->ready;
    if (out->ready)
        out->mapped = out->ready->bytes;
    else if (packed)
        out->owned = packed;
    else if (host.mapped)
        out->mapped = host.bytes;
    else
        out->owned = host.bytes;
    return PI0_OK;
}

pi0_status pi0_blueprint_make(const pi0_site *site, pi0_blueprint *out, pi0_error *err)
{
    const pi0_checkpoint *checkpoint = site->checkpoint;
    const pi0_recipe_facts *facts = site->facts;
    const pi0_options *options = site->options;
    const pi0_device_info info = site->api->info(site->device);
    const pi0_log log = {options->log, options->log_user};
    pi0_calibration calibration = {0};
    memset(out, 0, sizeof *out);
    out->arch = checkpoint->arch;
    pi0_status status;
    PI0_TRY_GOTO(pi0_passes_check(options->disable, err));
    PI0_TRY_GOTO(choose_precision(checkpoint, options, &out->precision, err));
    PI0_TRY_GOTO(choose_exceptions(checkpoint, options, &log, &info, &calibration, err));
    PI0_TRY_GOTO(choose_sizes(checkpoint, facts, options, &out->sizes, err));
    out->sizes.state_kv = !out->arch.pi05 && pi0_pass_enabled(options->disable, "state-kv");
    out->sizes.time_fold = pi0_pass_enabled(options->disable, "time-fold");
    out->sizes.window = choose_window(out->sizes.horizon, options, &log);
    out->sizes.times = pi0_max_int(1, pi0_min_int(facts->steps, PI0_MAX_STEPS));
    PI0_TRY_GOTO(pi0_policy_emit(&out->arch, &out->sizes, facts->min_period, facts->max_period, &out->plans, &out->io, err));
    const pi0_precision_policy policy = {.matrices = out->precision,
                                         .in_bf16 = calibration.in_bf16,
                                         .n_in_bf16 = calibration.n_in_bf16,
                                         .measures_int8 = options->layer_errors != 0};
    pi0_plan *const plans[] = {out->plans.context, out->plans.schedule, out->plans.denoise};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        if (plans[i]) {
            PI0_TRY_GOTO(prepare_plan(plans[i], &policy, options->disable, site->api, &out->expanded, err));
            out->workspace = pi0_max_size(out->workspace, site->api->workspace(site->device, plans[i]));
        }
    pi0_plan_share(out->plans.context, out->plans.denoise);
    out->by_layer = is_by_layer(checkpoint, options);
    describe_precision(&info, out);
    PI0_TRY_GOTO(pi0_plan_memory(site, out, err));
    PI0_TRY_GOTO(pi0_check_memory_limit(site, out, err));
fail:
    pi0_calibration_close(&calibration);
    if (status != PI0_OK)
        pi0_blueprint_free(out);
    return status;
}
