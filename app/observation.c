#include "observation.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

const app_option app_observation_options[] = {
    {.name = "image",
     .kind = APP_TEXT,
     .repeat = true,
     .metavar = "NAME=FILE",
     .help = "one camera (repeatable): NAME as the robot or the model calls it; png, jpeg or npy"},
    {.name = "state", .kind = APP_TEXT, .metavar = "V,V,...|FILE.npy", .help = "the raw state, in the robot's own order and units"},
    {.name = "prompt", .kind = APP_TEXT, .metavar = "TEXT", .help = "the instruction"},
    {.name = "noise", .kind = APP_TEXT, .metavar = "FILE.npy", .help = "the starting noise, f32 (or f64, f16) [H,A] or [1,H,A]"},
    {.name = "seed", .kind = APP_SEED, .metavar = "N", .help = "of the noise, when none is given (default 0)"},
    {.name = "obs",
     .kind = APP_TEXT,
     .repeat = true, /* for calibrate */
     .metavar = "FILE.npz",
     .help = "all of it in one file: arrays named after the images, state, prompt, noise"},
    {.name = "preprocessed",
     .kind = APP_TEXT,
     .metavar = "FILE.npz",
     .help = "the model's own inputs: image.<slot>, tokens, state, noise; implies --raw"},
    {.name = NULL},
};

uint64_t app_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double app_now_ms(void)
{
    return (double)app_now_ns() * 1e-6;
}

/* The one array of a .npy file. */
static pi0_status read_single(const char *option, const char *path, pi0_arrays **file, const pi0_array **array, pi0_error *err)
{
    pi0_status status = pi0_arrays_read(path, file, err);
    if (status != PI0_OK)
        return status;
    if (pi0_arrays_count(*file) == 1) {
        *array = pi0_arrays_at(*file, 0);
        if ((*array)->dtype != PI0_TEXT)
            return PI0_OK;
    }
    app_err(err, PI0_ERR_ARGUMENT, "%s needs a file that holds one array of numbers", option);
    app_err_field(err->where, "%.400s", path);
    app_err_field(err->got, "%zu arrays", pi0_arrays_count(*file));
    return err->status;
}

static const char state_forms[] = "numbers separated by commas, or a FILE.npy that holds them";

static pi0_status state_from_file(const char *path, double **out, size_t *count, pi0_error *err)
{
    pi0_arrays *file = NULL;
    const pi0_array *array = NULL;
    pi0_status status = read_single("--state", path, &file, &array, err);
    if (status == PI0_ERR_IO)
        app_err_field(err->expected, "%s", state_forms);
    if (status != PI0_OK)
        goto done;
    size_t n = app_array_count(array);
    if (!(array->rank == 1 || (array->rank == 2 && array->shape[0] == 1)) || !n) {
        status = app_err(err, PI0_ERR_ARGUMENT, "--state needs one row of numbers");
        app_err_field(err->where, "%.400s", path);
        app_err_field(err->expected, "[n] or [1,n]");
        app_array_describe(array, err->got, sizeof err->got);
        goto done;
    }
    *out = malloc(n * sizeof **out);
    if (!*out) {
        status = app_err(err, PI0_ERR_MEMORY, "not enough memory for the state");
        goto done;
    }
    for (size_t i = 0; i < n; i++)
        (*out)[i] = app_array_value(array, i);
    *count = n;
done:
    pi0_arrays_free(&file);
    return status;
}

pi0_status app_state_read(const char *text, double **out, size_t *count, pi0_error *err)
{
    if (app_ends_with(text, ".npy"))
        return state_from_file(text, out, count, err);
    size_t n = 1, filled = 0;
    for (const char *at = text; *at; at++)
        n += *at == ',';
    double *values = malloc(n * sizeof *values);
    if (!values)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the state");
    const char *at = text;
    while (true) {
        char item[80];
        size_t bytes = strcspn(at, ",");
        size_t kept = bytes < sizeof item - 1 ? bytes : sizeof item - 1;
        memcpy(item, at, kept);
        item[kept] = '\0';
        if (kept != bytes || !app_read_double(item, &values[filled])) {
            free(values);
            app_err(err, PI0_ERR_ARGUMENT, "the state holds something that is not a finite number");
            app_err_field(err->where, "--state, item %zu", filled + 1);
            app_err_field(err->expected, "%s", state_forms);
            app_err_field(err->got, "%s", item);
            return err->status;
        }
        filled++;
        if (!at[bytes])
            break;
        at += bytes + 1;
    }
    *out = values;
    *count = filled;
    return PI0_OK;
}

pi0_status app_noise_take(const pi0_array *array, const char *where, float **out, int *rows, int *columns, pi0_error *err)
{
    int lead = array->rank == 3 && array->shape[0] == 1;
    bool floats = array->dtype == PI0_F32 || array->dtype == PI0_F64 || array->dtype == PI0_F16;
    if (array->rank - lead != 2 || !floats || array->shape[lead] < 1 || array->shape[lead] > INT32_MAX || array->shape[lead + 1] < 1 ||
        array->shape[lead + 1] > INT32_MAX) {
        app_err(err, PI0_ERR_ARGUMENT, "the noise has a wrong shape or type");
        app_err_field(err->where, "%.400s", where);
        app_err_field(err->expected, "f32 (or f64, f16) [H,A] or [1,H,A]: the horizon, and the model's action width");
        app_array_describe(array, err->got, sizeof err->got);
        return err->status;
    }
    size_t count = app_array_count(array);
    *out = malloc(count * sizeof **out);
    if (!*out)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the noise");
    for (size_t i = 0; i < count; i++)
        (*out)[i] = (float)app_array_value(array, i);
    *rows = (int)array->shape[lead];
    *columns = (int)array->shape[lead + 1];
    return PI0_OK;
}

static pi0_status load_noise(const char *path, app_observation *observation, pi0_error *err)
{
    pi0_arrays *file = NULL;
    const pi0_array *array = NULL;
    pi0_status status = read_single("--noise", path, &file, &array, err);
    if (status == PI0_OK)
        status = app_noise_take(array, path, &observation->noise, &observation->noise_rows, &observation->noise_columns, err);
    pi0_arrays_free(&file);
    return status;
}

static pi0_status load_image(const char *text, app_observation *observation, pi0_error *err)
{
    size_t bytes = strcspn(text, "=");
    if (!bytes || !text[bytes] || !text[bytes + 1] || bytes >= sizeof observation->images[0].name) {
        app_err(err, PI0_ERR_ARGUMENT, "--image needs a camera and a file");
        app_err_field(err->where, "--image");
        app_err_field(err->expected, "NAME=FILE, such as top=frame.png");
        app_err_field(err->got, "%.200s", text);
        return err->status;
    }
    if (observation->n_images == APP_MAX_IMAGES) {
        app_err(err, PI0_ERR_ARGUMENT, "more than %d images", APP_MAX_IMAGES);
        app_err_field(err->where, "--image %.200s", text);
        return err->status;
    }
    size_t n = observation->n_images;
    char *name = observation->images[n].name;
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    for (size_t i = 0; i < n; i++)
        if (strcmp(observation->images[i].name, name) == 0) {
            app_err(err, PI0_ERR_ARGUMENT, "the same camera is given twice");
            app_err_field(err->where, "--image %.200s", name);
            return err->status;
        }
    observation->n_images++;
    pi0_status status = pi0_image_read(text + bytes + 1, &observation->images[n].file, err);
    if (status != PI0_OK)
        return status;
    observation->images[n].array = *pi0_arrays_at(observation->images[n].file, 0);
    observation->images[n].array.name = name;
    return PI0_OK;
}

static pi0_status check_combination(const app_args *args, pi0_error *err)
{
    const char *all = app_args_text(args, "obs"), *preprocessed = app_args_text(args, "preprocessed");
    if (app_args_nth(args, "obs", 1)) {
        app_err(err, PI0_ERR_ARGUMENT, "option given twice");
        app_err_field(err->where, "--obs");
        app_err_field(err->hint, "keep one of them: this command looks at one observation");
        return err->status;
    }
    const char *image = app_args_text(args, "image"), *state = app_args_text(args, "state"), *prompt = app_args_text(args, "prompt");
    if (preprocessed && (all || image || state || prompt)) {
        app_err(err, PI0_ERR_ARGUMENT, "--preprocessed is the whole observation");
        app_err_field(err->got, "also %s", all ? "--obs" : image ? "--image" : state ? "--state" : "--prompt");
        app_err_field(err->hint, "leave out one of the two; only --noise and --seed may stand beside it");
        return err->status;
    }
    if (all || preprocessed || image || state || prompt)
        return PI0_OK;
    app_err(err, PI0_ERR_ARGUMENT, "no observation");
    app_err_field(err->expected,
                  "--image NAME=FILE (one for each camera) with --state and --prompt, or --obs FILE.npz, or --preprocessed FILE.npz");
    app_err_field(err->hint, "`pi0 inspect MODEL` names the cameras and the state that the model expects");
    return err->status;
}

pi0_status app_observation_load(const app_args *args, app_observation *observation, pi0_error *err)
{
    memset(observation, 0, sizeof *observation);
    pi0_status status = check_combination(args, err);
    if (status != PI0_OK)
        return status;
    if (app_args_text(args, "state"))
        status = app_state_read(app_args_text(args, "state"), &observation->state, &observation->state_count, err);
    if (status == PI0_OK && app_args_text(args, "noise"))
        status = load_noise(app_args_text(args, "noise"), observation, err);
    observation->prompt = app_args_text(args, "prompt");

    observation->decode_start_ns = app_now_ns();
    const char *text;
    for (size_t i = 0; status == PI0_OK && (text = app_args_nth(args, "image", i)); i++)
        status = load_image(text, observation, err);
    observation->preprocessed = app_args_text(args, "preprocessed") != NULL;
    const char *all = app_args_text(args, observation->preprocessed ? "preprocessed" : "obs");
    if (status == PI0_OK && all)
        status = pi0_observation_read(all, &observation->all, err);
    observation->decode_end_ns = app_now_ns();
    return status;
}

int app_noise_rows(const pi0_array *noise)
{
    const int64_t rows = noise && noise->rank >= 2 ? noise->shape[noise->rank - 2] : 0;
    return rows > 0 && rows <= 4096 ? (int)rows : 0;
}

void app_observation_settle(const app_observation *observation, pi0_options *options)
{
    options->preprocessed = observation->preprocessed;
    if (!options->horizon && observation->preprocessed)
        options->horizon = app_noise_rows(pi0_arrays_find(observation->all, "noise"));
}

static bool names_slot(const pi0_info *info, int slot, const char *name)
{
    const char *key = info->keys[slot];
    const size_t length = strlen(name), key_length = strlen(key);
    if (!strcmp(name, info->slots[slot]) || !strcmp(name, key))
        return true;
    return length < key_length && !strcmp(key + key_length - length, name) && strchr("./", key[key_length - length - 1]);
}

/* Two names for one camera: whichever came last would win without a word. */
static pi0_status check_cameras(const app_observation *observation, const pi0_info *info, pi0_error *err)
{
    for (int slot = 0; slot < info->n_slots; slot++) {
        const char *first = NULL;
        for (size_t i = 0; i < observation->n_images; i++) {
            const char *name = observation->images[i].name;
            if (!names_slot(info, slot, name))
                continue;
            if (first) {
                app_err(err, PI0_ERR_ARGUMENT, "the same camera is given twice");
                app_err_field(err->where, "--image");
                app_err_field(err->got, "%.100s and %.100s, both for slot %s", first, name, info->slots[slot]);
                return err->status;
            }
            first = name;
        }
    }
    return PI0_OK;
}

pi0_status app_observation_apply(const app_observation *observation, const pi0_info *info, pi0_session *session, pi0_error *err)
{
    pi0_status status = PI0_OK;
    if (observation->all)
        status = pi0_set_observation(session, observation->all, observation->preprocessed, err);
    if (status == PI0_OK)
        status = check_cameras(observation, info, err);
    for (size_t i = 0; status == PI0_OK && i < observation->n_images; i++)
        status = pi0_set_image(session, observation->images[i].name, &observation->images[i].array, err);
    if (status == PI0_OK && observation->state)
        status = pi0_set_state(session, observation->state, observation->state_count, err);
    /* with --obs the file's prompt, or the recipe's, is already set */
    if (status == PI0_OK && (observation->prompt || !observation->all))
        status = pi0_set_prompt(session, observation->prompt, err);
    if (status == PI0_OK && observation->noise)
        status = pi0_set_noise(session, observation->noise, observation->noise_rows, observation->noise_columns, err);
    return status;
}

void app_observation_release(app_observation *observation)
{
    for (size_t i = 0; i < observation->n_images; i++)
        pi0_arrays_free(&observation->images[i].file);
    free(observation->state);
    free(observation->noise);
    pi0_arrays_free(&observation->all);
    memset(observation, 0, sizeof *observation);
}
