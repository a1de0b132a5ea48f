/* The calibration file: for which model and which form of int8 it was made, and which tensors stay bf16. What else it holds is a report for
 * people. */
#include <string.h>

#include "engine/engine.h"

static const char format[] = "pi0-calibration";
enum { VERSION = 1 };

pi0_int8_form pi0_int8_form_of(const pi0_device_info *device)
{
    pi0_int8_form form = {{0}};
    const char *open = strchr(device->int8, '(');
    const char *text = open ? open + 1 : device->int8;
    snprintf(form.text, sizeof form.text, "%.*s", (int)strcspn(text, ")"), text);
    return form;
}

json_t *pi0_calibration_new(pi0_fingerprint model, const char *form, const char *const *in_bf16, size_t n_in_bf16)
{
    json_t *names = json_array();
    bool failed = !names;
    for (size_t i = 0; i < n_in_bf16 && !failed; i++)
        failed = json_array_append_new(names, json_string(in_bf16[i])) != 0;
    json_t *document = json_object();
    pi0_json_put(document, "format", json_string(format), &failed);
    pi0_json_put(document, "version", json_integer(VERSION), &failed);
    pi0_json_put(document, "model", json_string(model.text), &failed);
    pi0_json_put(document, "int8", json_string(form), &failed);
    pi0_json_put(document, "passed", json_true(), &failed);
    pi0_json_put(document, "bf16", names, &failed);
    if (!failed)
        return document;
    json_decref(document);
    return NULL;
}

/* ------------------------------------------------------------------ reading */

static pi0_status wrong_kind(const char *where, const char *what, const char *got, pi0_error *err)
{
    pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "%s", what);
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "a file that `pi0 calibrate` wrote: \"format\": \"%s\"", format);
    pi0_err_got(err, "%.200s", got);
    return status;
}

static pi0_status check_version(const json_t *document, const char *where, pi0_error *err)
{
    int64_t version;
    PI0_TRY(pi0_json_get_int(document, "version", where, 1, INT32_MAX, &version, err));
    if (version == VERSION)
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_UNSUPPORTED, "the calibration was written by a newer version of this program");
    pi0_err_where(err, "%s: version", where);
    pi0_err_expected(err, "%d", VERSION);
    pi0_err_got(err, "%lld", (long long)version);
    pi0_err_hint(err, "run `pi0 calibrate` again with this version, or use the newer one");
    return status;
}

static pi0_status check_passed(const json_t *document, const char *where, pi0_error *err)
{
    bool passed;
    PI0_TRY(pi0_json_get_bool(document, "passed", where, &passed, err));
    if (passed)
        return PI0_OK;
    pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "this calibration failed: no choice of products passed the gate");
    pi0_err_where(err, "%s: passed", where);
    pi0_err_hint(err, "--precision bf16 or f32 for this model");
    return status;
}

static pi0_status take_names(json_t *list, const char *where, pi0_calibration *out, pi0_error *err)
{
    const size_t n = json_array_size(list);
    if (n > PI0_MAX_TENSORS)
        return wrong_kind(where, "the calibration lists more tensors than a model has", "\"bf16\" of too many names", err);
    if (!(out->in_bf16 = pi0_alloc_array(n + 1, sizeof *out->in_bf16)))
        return pi0_fail_memory(err, (n + 1) * sizeof *out->in_bf16, "a calibration");
    for (; out->n_in_bf16 < n; out->n_in_bf16++) {
        const json_t *name = json_array_get(list, out->n_in_bf16);
        if (!json_is_string(name)) {
            pi0_status status = pi0_fail(err, PI0_ERR_FORMAT, "the calibration names something that is no tensor");
            pi0_err_where(err, "%s: bf16[%zu]", where, out->n_in_bf16);
            pi0_err_expected(err, "a string");
            pi0_err_got(err, "%s", pi0_json_type_name(name));
            return status;
        }
        out->in_bf16[out->n_in_bf16] = json_string_value(name);
    }
    return PI0_OK;
}

static pi0_status take_document(const char *where, pi0_calibration *out, pi0_error *err)
{
    const char *kind;
    json_t *names;
    if (!json_is_object(out->document))
        return wrong_kind(where, "this JSON is no calibration", pi0_json_type_name(out->document), err);
    PI0_TRY(pi0_json_get_string(out->document, "format", where, &kind, err));
    if (strcmp(kind, format) != 0)
        return wrong_kind(where, "this JSON is no calibration", kind, err);
    PI0_TRY(check_version(out->document, where, err));
    PI0_TRY(pi0_json_get_string(out->document, "model", where, &out->model, err));
    PI0_TRY(pi0_json_get_string(out->document, "int8", where, &out->form, err));
    PI0_TRY(check_passed(out->document, where, err));
    PI0_TRY(pi0_json_get_array(out->document, "bf16", where, &names, err));
    return take_names(names, where, out, err);
}

pi0_status pi0_calibration_parse(const char *text, size_t bytes, const char *where, pi0_calibration *out, pi0_error *err)
{
    *out = (pi0_calibration){0};
    pi0_status status = pi0_json_parse(text, bytes, where, &out->document, err);
    if (status == PI0_OK)
        status = take_document(where, out, err);
    if (status != PI0_OK)
        pi0_calibration_close(out);
    return status;
}

void pi0_calibration_close(pi0_calibration *calibration)
{
    pi0_free(calibration->in_bf16);
    json_decref(calibration->document);
    *calibration = (pi0_calibration){0};
}

/* ------------------------------------------------------------------ does it belong here? */

static pi0_status check_names(const pi0_calibration *calibration, const pi0_checkpoint *checkpoint, const char *where, pi0_error *err)
{
    for (size_t i = 0; i < calibration->n_in_bf16; i++) {
        const pi0_tensor_view *view = pi0_checkpoint_tensor(checkpoint, calibration->in_bf16[i]);
        if (view && view->rank == 2)
            continue;
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "the calibration names a matrix that the model does not have");
        pi0_err_where(err, "%s: bf16[%zu]", where, i);
        pi0_err_got(err, "%.300s", calibration->in_bf16[i]);
        pi0_err_hint(err, "the file was edited, or is damaged: run `pi0 calibrate` again");
        return status;
    }
    return PI0_OK;
}

static pi0_status check_belongs(const pi0_calibration *calibration, const pi0_checkpoint *checkpoint, const pi0_device_info *device,
                                const char *where, pi0_error *err)
{
    const pi0_fingerprint model = pi0_checkpoint_fingerprint(checkpoint);
    if (strcmp(calibration->model, model.text) != 0) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "the calibration was made for another model");
        pi0_err_where(err, "%s: model", where);
        pi0_err_expected(err, "%s, the fingerprint of %.300s", model.text, checkpoint->path);
        pi0_err_got(err, "%.100s", calibration->model);
        pi0_err_hint(err, "run `pi0 calibrate` on this model: training it further changes what int8 costs");
        return status;
    }
    const pi0_int8_form form = pi0_int8_form_of(device);
    if (strcmp(calibration->form, form.text) != 0) {
        pi0_status status =
            pi0_fail(err, PI0_ERR_MODEL, "the calibration was made for another form of int8, and proves nothing of this one");
        pi0_err_where(err, "%s: int8", where);
        pi0_err_expected(err, "%s, which is what %s (%s) multiplies", form.text, device->name, device->detail);
        pi0_err_got(err, "%.100s", calibration->form);
        pi0_err_hint(err,
                     "run `pi0 calibrate` on this machine and with this --isa, and give its file with --calibration; or choose another "
                     "--precision: bf16, f32, or int8, which needs none");
        return status;
    }
    return check_names(calibration, checkpoint, where, err);
}

static pi0_status read_file(const char *path, pi0_calibration *out, pi0_error *err)
{
    *out = (pi0_calibration){0};
    pi0_status status = pi0_json_read(path, PI0_MAX_JSON, &out->document, err);
    if (status == PI0_OK)
        status = take_document(path, out, err);
    if (status != PI0_OK)
        pi0_calibration_close(out);
    return status;
}

bool pi0_calibration_exists(const pi0_options *options, const pi0_checkpoint *checkpoint)
{
    return options->calibration || pi0_packed_calibration(checkpoint);
}

/* Of a packed file: always text, whatever it looks like. */
static pi0_status read_packed(const pi0_checkpoint *checkpoint, const pi0_device_info *device, pi0_calibration *out, pi0_error *err)
{
    const char *text = pi0_packed_calibration(checkpoint);
    char *where = pi0_sprintf("%s: " PI0_PACKED_CALIBRATION_KEY, checkpoint->path);
    if (!where)
        return pi0_fail_memory(err, strlen(checkpoint->path), "a path");
    pi0_status status = pi0_calibration_parse(text, strlen(text), where, out, err);
    if (status == PI0_OK)
        status = check_belongs(out, checkpoint, device, where, err);
    pi0_free(where);
    return status;
}

pi0_status pi0_calibration_open(const pi0_options *options, const pi0_checkpoint *checkpoint, const pi0_device_info *device,
                                pi0_calibration *out, pi0_error *err)
{
    const char *source = options->calibration;
    *out = (pi0_calibration){0};
    pi0_status status;
    if (!source) {
        status = read_packed(checkpoint, device, out, err);
    } else {
        const bool is_text = *source == '{';
        const char *where = is_text ? "the calibration" : source;
        PI0_TRY(is_text ? pi0_calibration_parse(source, strlen(source), where, out, err) : read_file(source, out, err));
        status = check_belongs(out, checkpoint, device, where, err);
    }
    if (status != PI0_OK)
        pi0_calibration_close(out);
    return status;
}
