/* What must hold before a recipe is used, and the facts that the engine reads from it. */
#include "model/recipe.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* hint NULL: at setting the field. Another one where any other value would only lead to the next error, or a single one will do. */
static pi0_status wrong(const pi0_recipe *recipe, int id, pi0_error *err, const char *hint, const char *what, const char *expected, ...)
    PI0_PRINTF(6, 7);

static pi0_status wrong(const pi0_recipe *recipe, int id, pi0_error *err, const char *hint, const char *what, const char *expected, ...)
{
    char text[400];
    va_list args;
    va_start(args, expected);
    vsnprintf(text, sizeof text, expected, args);
    va_end(args);
    const char *name = pi0_recipe_field((pi0_field_id)id)->name;
    pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "%s", what);
    pi0_err_where(err, "%s (%.300s)", name, recipe->origin[id] ? recipe->origin[id] : "not set");
    pi0_err_expected(err, "%s", text);
    json_t *value = pi0_recipe_value_json(recipe, id);
    char *got = pi0_json_text(value, JSON_ENCODE_ANY | JSON_COMPACT);
    pi0_err_got(err, "%.300s", got ? got : "?");
    pi0_text_free(&got);
    json_decref(value);
    if (hint)
        pi0_err_hint(err, "%s", hint);
    else
        pi0_err_hint(err, "--set %s=VALUE", name);
    return status;
}

/* ------------------------------------------------------------------ questions that the files leave open */

/* LeRobot changed the letterbox colour and the padding of the state in one commit (0.5.0): an answer to one answers the other. */
static pi0_status settle(pi0_recipe *recipe, pi0_error *err)
{
    bool resize = recipe->by_user[PI0_FIELD_RESIZE], pad = recipe->by_user[PI0_FIELD_STATE_PAD];
    if (resize && !pad && recipe->question[PI0_FIELD_STATE_PAD]) {
        bool old = recipe->resize == PI0_RESIZE_TORCH_LEROBOT04;
        recipe->state_pad = old ? 32 : 0;
        recipe->by_user[PI0_FIELD_STATE_PAD] = true;
        return pi0_recipe_origin(recipe, PI0_FIELD_STATE_PAD, err, "rule: follows image.resize=%s (LeRobot changed both in 0.5.0)",
                                 old ? "torch-lerobot04" : "torch");
    }
    if (pad && !resize && recipe->question[PI0_FIELD_RESIZE]) {
        bool old = recipe->state_pad == 32;
        recipe->resize = old ? PI0_RESIZE_TORCH_LEROBOT04 : PI0_RESIZE_TORCH;
        recipe->by_user[PI0_FIELD_RESIZE] = true;
        return pi0_recipe_origin(recipe, PI0_FIELD_RESIZE, err, "rule: follows prompt.state_pad=%d (LeRobot changed both in 0.5.0)",
                                 recipe->state_pad);
    }
    return PI0_OK;
}

static pi0_status check_questions(pi0_recipe_job *job, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    pi0_text open = {0};
    int n_open = 0;
    PI0_TRY(settle(recipe, err));
    pi0_status status = PI0_OK;
    for (int id = 0; id < PI0_FIELDS && status == PI0_OK; id++) {
        if (!recipe->question[id] || recipe->by_user[id])
            continue;
        pi0_text_add(&open, "%s%s", n_open++ ? ", " : "", pi0_recipe_field((pi0_field_id)id)->name);
        char line[700];
        snprintf(line, sizeof line, "%s is not settled by the files: %s", pi0_recipe_field((pi0_field_id)id)->name, recipe->question[id]);
        if (job->problems && json_array_append_new(job->problems, pi0_json_words(line)) != 0)
            status = pi0_fail_memory(err, sizeof line, "a problem text");
    }
    if (status == PI0_OK && open.failed)
        status = pi0_fail_memory(err, 256, "an error text");
    if (status == PI0_OK && n_open > 0 && !job->problems) {
        status = pi0_fail(err, PI0_ERR_MODEL, "the files leave a choice that changes the actions: %.300s", open.data);
        pi0_err_where(err, "%s", job->checkpoint && job->checkpoint->dir ? job->checkpoint->dir : "recipe");
        pi0_err_expected(err, "one of the choices below, for each");
        pi0_err_got(err, "no evidence in config.json or in the processors");
        pi0_err_hint(
            err,
            "ask whoever trained it which LeRobot release it was; --set KEY=VALUE decides, and inspect --write-recipe keeps the answer");
        for (int id = 0; id < PI0_FIELDS; id++)
            if (recipe->question[id] && !recipe->by_user[id])
                pi0_err_item(err, "--set %s=...: %s", pi0_recipe_field((pi0_field_id)id)->name, recipe->question[id]);
    }
    pi0_text_release(&open);
    return status;
}

/* ------------------------------------------------------------------ values against each other */

static pi0_status check_ranges(const pi0_recipe *recipe, pi0_error *err)
{
    for (int id = 0; id < PI0_FIELDS; id++) {
        const pi0_field *field = pi0_recipe_field((pi0_field_id)id);
        if (!recipe->origin[id] && !field->optional)
            return pi0_fail(err, PI0_ERR_INTERNAL, "nobody set the recipe field %s", field->name);
        const char *base = (const char *)recipe + field->offset;
        double value = field->type == PI0_TYPE_INT      ? (double)*(const int *)base
                       : field->type == PI0_TYPE_NUMBER ? *(const double *)base
                                                        : field->min;
        bool ranged = field->type == PI0_TYPE_INT || field->type == PI0_TYPE_NUMBER;
        if (ranged && !(value >= field->min && value <= field->max))
            return wrong(recipe, id, err, NULL, "a recipe field is out of range", "%g to %g", field->min, field->max);
    }
    if (!(recipe->max_period > recipe->min_period))
        return wrong(recipe, PI0_FIELD_MAX_PERIOD, err, NULL, "the periods of the time embedding are in the wrong order",
                     "more than time.min_period %g", recipe->min_period);
    return PI0_OK;
}

static pi0_status check_cameras(const pi0_recipe *recipe, pi0_error *err)
{
    const pi0_cameras *cameras = &recipe->cameras;
    int live = 0;
    for (int i = 0; i < cameras->n; i++) {
        live += !cameras->v[i].empty;
        for (int k = 0; k < i; k++)
            if (strcmp(cameras->v[i].slot, cameras->v[k].slot) == 0 ||
                (!cameras->v[i].empty && !cameras->v[k].empty && strcmp(cameras->v[i].key, cameras->v[k].key) == 0))
                return wrong(
                    recipe, PI0_FIELD_CAMERAS, err,
                    "--set cameras.SLOT.key=NAME gives a camera another key, SLOT a position from 0; slots have their names from the "
                    "recipe",
                    "two cameras have one name", "slots and keys that differ: %.100s, %.100s", cameras->v[k].slot, cameras->v[i].slot);
    }
    if (live == 0)
        return wrong(recipe, PI0_FIELD_CAMERAS, err,
                     cameras->n ? "--set cameras.0.key=NAME gives the first slot a camera" : "list them in the recipe's \"cameras\"",
                     "the recipe has no camera", "1 to %d slots, at least one of them with a key", PI0_MAX_CAMERAS);
    return PI0_OK;
}

static pi0_status check_feature(const pi0_recipe *recipe, int f, pi0_error *err)
{
    static const int flip_id[] = {PI0_FIELD_STATE_FLIP, PI0_FIELD_ACTION_FLIP},
                     at_id[] = {PI0_FIELD_STATE_GRIPPER_AT, PI0_FIELD_ACTION_GRIPPER_AT};
    int dim = recipe->dim[f];
    if (recipe->flip[f].n > dim)
        return wrong(recipe, flip_id[f], err, NULL, "a mask is longer than the robot is wide", "at most %d values", dim);
    for (int i = 0; i < recipe->gripper_at[f].n; i++)
        if (recipe->gripper_at[f].v[i] >= dim)
            return wrong(recipe, at_id[f], err, NULL, "a gripper lies past the last dim", "0 to %d", dim - 1);
    return PI0_OK;
}

static pi0_status check_delta(const pi0_recipe *recipe, pi0_error *err)
{
    if (recipe->delta.n > recipe->dim[PI0_ACTION])
        return wrong(recipe, PI0_FIELD_DELTA, err, NULL, "a mask is longer than the robot is wide", "at most %d values",
                     recipe->dim[PI0_ACTION]);
    for (int i = recipe->dim[PI0_STATE]; i < recipe->delta.n; i++)
        if (recipe->delta.v[i])
            return wrong(recipe, PI0_FIELD_DELTA, err, NULL, "an action is relative to a state dim that there is not",
                         "no flag set from position %d on", recipe->dim[PI0_STATE]);
    return PI0_OK;
}

static pi0_status check_prompt(const pi0_recipe *recipe, pi0_error *err)
{
    if (recipe->prompt_state == PI0_STATE_DIGITS && recipe->frame != PI0_FRAME_PI05)
        return wrong(recipe, PI0_FIELD_PROMPT_STATE, err, "--set prompt.state=none, or --set prompt.frame=pi05 --set prompt.newline=none",
                     "the state goes into the prompt in the pi05 frame only", "none with prompt.frame=pi0");
    if (recipe->frame == PI0_FRAME_PI05 && recipe->newline != PI0_NEWLINE_NONE)
        return wrong(recipe, PI0_FIELD_NEWLINE, err, "--set prompt.newline=none", "the pi05 frame ends without a newline of its own",
                     "none with prompt.frame=pi05");
    return PI0_OK;
}

/* Widths that the weights settle. */
static pi0_status check_tensors(const pi0_recipe_job *job, pi0_error *err)
{
    const pi0_recipe *recipe = job->recipe;
    const pi0_arch *arch = job->checkpoint ? &job->checkpoint->arch : NULL;
    if (!arch || arch->action_dim <= 0)
        return PI0_OK;
    static const char other_robot[] =
        "these weights are not of this robot: put the files of one model together, or describe the robot that "
        "they were trained for with --recipe FILE.json";
    const char *model = arch->pi05 ? "pi05" : "pi0";
    if (recipe->model != (int)arch->pi05)
        return wrong(recipe, PI0_FIELD_MODEL, err, "take a recipe of the weights' model, and leave --set model out: more fields differ",
                     "the recipe is for another model than the weights are", "%s: the tensors are %s's", model, model);
    if (recipe->dim[PI0_ACTION] > arch->action_dim)
        return wrong(recipe, PI0_FIELD_ACTION_DIM, err, other_robot, "the robot has more action dims than the model",
                     "at most %d, the width of action_in_proj", arch->action_dim);
    if (recipe->dim[PI0_STATE] > arch->action_dim && !arch->pi05)
        return wrong(recipe, PI0_FIELD_STATE_DIM, err, other_robot, "the robot has more state dims than the model",
                     "at most %d, the width of state_proj", arch->action_dim);
    char only[80];
    snprintf(only, sizeof only, "--set image.size=%d, the only size that these weights take", arch->vision.side);
    if (arch->vision.side > 0 && recipe->image_size != arch->vision.side)
        return wrong(recipe, PI0_FIELD_IMAGE_SIZE, err, only, "the pictures do not have the size that the weights are made for",
                     "%d, from position_embedding", arch->vision.side);
    return PI0_OK;
}

/* ------------------------------------------------------------------ the caller's own order of joints (F3) */

static pi0_status check_order(pi0_recipe *recipe, int f, pi0_error *err)
{
    static const int names_id[] = {PI0_FIELD_STATE_NAMES, PI0_FIELD_ACTION_NAMES},
                     robot_id[] = {PI0_FIELD_STATE_ROBOT_NAMES, PI0_FIELD_ACTION_ROBOT_NAMES};
    const pi0_names *names = &recipe->names[f], *robot = &recipe->robot_names[f];
    int dim = recipe->dim[f];
    for (int i = 0; i < dim; i++)
        recipe->from_robot[f][i] = i;
    if (robot->n == 0)
        return PI0_OK;
    if (names->n != dim)
        return wrong(recipe, names_id[f], err, NULL, "the robot's order of names needs the checkpoint's beside it", "%d names", dim);
    if (robot->n != dim)
        return wrong(recipe, robot_id[f], err, NULL, "the robot's names are not the checkpoint's",
                     "%d names, the checkpoint's in the robot's order", dim);
    for (int i = 0; i < dim; i++) {
        int found = -1, times = 0;
        for (int k = 0; k < dim; k++)
            if (strcmp(names->v[i], robot->v[k]) == 0) {
                found = k;
                times++;
            }
        if (times != 1)
            return wrong(recipe, robot_id[f], err, NULL, "the robot's names are not the checkpoint's", "%.200s exactly once", names->v[i]);
        recipe->from_robot[f][i] = found;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ facts */

static void fill_facts(pi0_recipe *recipe)
{
    pi0_recipe_facts *facts = &recipe->facts;
    *facts = (pi0_recipe_facts){
        .family = (pi0_family)recipe->family,
        .pi05 = recipe->model == 1,
        .n_slots = recipe->cameras.n,
        .close_up = recipe->close_up,
        .resize = (pi0_resize)recipe->resize,
        .image_size = recipe->image_size,
        .state_dim = recipe->dim[PI0_STATE],
        .action_dim = recipe->dim[PI0_ACTION],
        .state_in_prompt = recipe->prompt_state == PI0_STATE_DIGITS,
        .horizon = recipe->horizon,
        .steps = recipe->steps,
        .max_tokens = recipe->max_tokens,
        .time_in_f32 = recipe->schedule == PI0_SCHEDULE_F32,
        .min_period = recipe->min_period,
        .max_period = recipe->max_period,
        .default_prompt = recipe->default_prompt,
        .tokenizer_rules = recipe->rules == PI0_RULES_HF ? "hf" : "spm",
    };
    for (int i = 0; i < recipe->cameras.n; i++) {
        const pi0_recipe_camera_slot *camera = &recipe->cameras.v[i];
        facts->slots[i] = camera->slot;
        facts->keys[i] = camera->key;
        facts->empty[i] = camera->empty;
        facts->required[i] = camera->required && !camera->empty;
    }
}

pi0_status pi0_recipe_check(pi0_recipe_job *job, pi0_error *err)
{
    pi0_recipe *recipe = job->recipe;
    PI0_TRY(check_questions(job, err));
    PI0_TRY(check_ranges(recipe, err));
    PI0_TRY(check_cameras(recipe, err));
    PI0_TRY(check_prompt(recipe, err));
    PI0_TRY(check_tensors(job, err));
    for (int f = 0; f < PI0_FEATURES; f++) {
        PI0_TRY(check_feature(recipe, f, err));
        PI0_TRY(check_order(recipe, f, err));
    }
    PI0_TRY(check_delta(recipe, err));
    PI0_TRY(pi0_stats_check(job, err));
    fill_facts(recipe);
    return PI0_OK;
}
