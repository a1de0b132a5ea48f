/* Raw state -> the model's numbers, the model's numbers -> robot actions. The order of the operations, and which are f32, is each family's
 * own (docs/recipe.md): the digits of a prompt and the last bits of an action depend on it. */
#include "model/recipe.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------ ALOHA's grippers
 * The robot reports a linear opening, pi0 was trained on the servo's angle (openpi policies/aloha_policy.py). */

static const double linear_closed = 0.01844, linear_open = 0.05800, arm_length = 0.036, horn_radius = 0.022;
static const double joint_closed = -0.6213, joint_open = 1.4910;

typedef struct angle_range {
    double min, max;
} angle_range;

static angle_range servo_range(int map)
{
    return map == PI0_GRIPPER_ALOHA_LEROBOT03 ? (angle_range){0.4, 1.5} : (angle_range){0.5476, 1.6296};
}

static double gripper_in_f64(int map, double x)
{
    angle_range servo = servo_range(map);
    double p = x * (linear_open - linear_closed) + linear_closed;
    double sine = (horn_radius * horn_radius + p * p - arm_length * arm_length) / (2 * horn_radius * p);
    return (asin(sine < -1 ? -1 : sine > 1 ? 1 : sine) - servo.min) / (servo.max - servo.min);
}

static float gripper_in_f32(int map, float x)
{
    angle_range servo = servo_range(map);
    float p = x * (float)(linear_open - linear_closed) + (float)linear_closed;
    float sine = ((float)(horn_radius * horn_radius) + p * p - (float)(arm_length * arm_length)) / ((float)(2 * horn_radius) * p);
    return (asinf(sine < -1 ? -1 : sine > 1 ? 1 : sine) - (float)servo.min) / (float)(servo.max - servo.min);
}

/* openpi leaves the model's output unscaled here, LeRobot 0.3 scaled it back to its own servo range. */
static double gripper_out_f64(int map, double x)
{
    double angle =
        map == PI0_GRIPPER_ALOHA ? x + servo_range(map).min : x * (servo_range(map).max - servo_range(map).min) + servo_range(map).min;
    return (angle - joint_closed) / (joint_open - joint_closed);
}

static float gripper_out_f32(int map, float x)
{
    angle_range servo = servo_range(map);
    float angle = map == PI0_GRIPPER_ALOHA ? x + (float)servo.min : x * (float)(servo.max - servo.min) + (float)servo.min;
    return (angle - (float)joint_closed) / (float)(joint_open - joint_closed);
}

static bool holds(const pi0_indices *indices, int i)
{
    for (int k = 0; k < indices->n; k++)
        if (indices->v[k] == i)
            return true;
    return false;
}

static bool is_on(const pi0_flags *flags, int i)
{
    return i < flags->n && flags->v[i];
}

/* Joint signs, then grippers, as both families do it, in both directions. */
static double adapt(const pi0_recipe *recipe, int feature, int i, double x)
{
    int map = holds(&recipe->gripper_at[feature], i) ? recipe->gripper[feature] : PI0_GRIPPER_NONE;
    double flipped = is_on(&recipe->flip[feature], i) ? -x : x;
    if (map == PI0_GRIPPER_NONE)
        return flipped;
    if (recipe->arithmetic == PI0_ARITHMETIC_OPENPI)
        return feature == PI0_STATE ? gripper_in_f64(map, flipped) : gripper_out_f64(map, flipped);
    return (double)(feature == PI0_STATE ? gripper_in_f32(map, (float)flipped) : gripper_out_f32(map, (float)flipped));
}

/* ------------------------------------------------------------------ normalisation */

typedef struct pair {
    double low, high; /* mean, std for mean_std */
    bool known;       /* false past the end of the statistics */
} pair;

static pair stats_of(const pi0_recipe *recipe, int feature, int i)
{
    const int *needs = pi0_norm_needs(recipe->norm[feature]);
    if (needs[0] < 0)
        return (pair){0};
    const pi0_numbers *low = &recipe->stats[feature][needs[0]], *high = &recipe->stats[feature][needs[1]];
    return i < low->n && i < high->n ? (pair){low->v[i], high->v[i], true} : (pair){0};
}

static double normalise_f64(const pi0_recipe *recipe, int feature, int i, double x)
{
    pair s = stats_of(recipe, feature, i);
    if (!s.known)
        return x;
    if (recipe->norm[feature] == PI0_NORM_MEAN_STD)
        return (x - s.low) / (s.high + recipe->epsilon);
    return (x - s.low) / (s.high - s.low + recipe->epsilon) * 2.0 - 1.0;
}

static double restore_f64(const pi0_recipe *recipe, int feature, int i, double x, double half)
{
    pair s = stats_of(recipe, feature, i);
    int norm = recipe->norm[feature];
    if (!s.known) /* openpi pads mean with 0 and std with 1, and leaves columns past the quantiles alone */
        return norm == PI0_NORM_MEAN_STD ? x * (1.0 + recipe->epsilon) : x;
    if (norm == PI0_NORM_MEAN_STD)
        return x * (s.high + recipe->epsilon) + s.low;
    return half * (s.high - s.low + recipe->epsilon) + s.low;
}

static float range_f32(const pi0_recipe *recipe, float low, float high)
{
    float range = high - low;
    return range == 0 ? (float)recipe->epsilon : range;
}

static float normalise_f32(const pi0_recipe *recipe, int feature, int i, float x)
{
    pair s = stats_of(recipe, feature, i);
    float low = (float)s.low, high = (float)s.high, epsilon = (float)recipe->epsilon;
    if (!s.known)
        return x;
    if (recipe->norm[feature] == PI0_NORM_MEAN_STD)
        return (x - low) / (high + epsilon);
    if (recipe->arithmetic == PI0_ARITHMETIC_LEROBOT03)
        return (x - low) / (high - low + epsilon) * 2.0f - 1.0f;
    return 2.0f * (x - low) / range_f32(recipe, low, high) - 1.0f;
}

static float restore_f32(const pi0_recipe *recipe, int feature, int i, float x)
{
    pair s = stats_of(recipe, feature, i);
    float low = (float)s.low, high = (float)s.high;
    if (!s.known)
        return x;
    if (recipe->norm[feature] == PI0_NORM_MEAN_STD)
        return x * high + low;
    if (recipe->arithmetic == PI0_ARITHMETIC_LEROBOT03)
        return (x + 1.0f) / 2.0f * (high - low) + low;
    if (recipe->norm[feature] == PI0_NORM_MIN_MAX)
        return (x + 1.0f) / 2.0f * range_f32(recipe, low, high) + low;
    return (x + 1.0f) * range_f32(recipe, low, high) / 2.0f + low;
}

/* ------------------------------------------------------------------ state */

static pi0_status nonfinite(const char *what, const char *where, int i, double value, pi0_error *err)
{
    pi0_status status = pi0_fail(err, PI0_ERR_NONFINITE, "%s", what);
    pi0_err_where(err, "%s", where);
    pi0_err_expected(err, "finite numbers");
    pi0_err_got(err, "%s[%d] = %g", where, i, value);
    return status;
}

/* The state as the family's transforms hold it before normalisation: checkpoint order, adapted; f32 values for LeRobot. */
static pi0_status adapted_state(const pi0_recipe *recipe, const double *raw, double *out, pi0_error *err)
{
    for (int i = 0; i < recipe->dim[PI0_STATE]; i++) {
        int from = recipe->from_robot[PI0_STATE][i];
        if (!isfinite(raw[from]))
            return nonfinite("the state holds a value that is not a finite number", "state", from, raw[from], err);
        double x = recipe->arithmetic == PI0_ARITHMETIC_OPENPI ? raw[from] : (double)(float)raw[from];
        out[i] = adapt(recipe, PI0_STATE, i, x);
    }
    return PI0_OK;
}

pi0_status pi0_recipe_state(const pi0_recipe *recipe, const double *raw, int model_dim, float *padded, double *text, pi0_error *err)
{
    double state[PI0_MAX_DIM];
    int dim = recipe->dim[PI0_STATE];
    PI0_TRY(adapted_state(recipe, raw, state, err));
    memset(padded, 0, (size_t)(model_dim > 0 ? model_dim : 0) * sizeof *padded);
    for (int i = 0; i < dim; i++) {
        bool openpi = recipe->arithmetic == PI0_ARITHMETIC_OPENPI;
        double x = openpi ? normalise_f64(recipe, PI0_STATE, i, state[i]) : (double)normalise_f32(recipe, PI0_STATE, i, (float)state[i]);
        float small = (float)x;
        if (!isfinite(x) || !isfinite(small))
            return nonfinite("the state is not a finite number once normalised", "state", i, x, err);
        if (text)
            text[i] = x;
        if (i < model_dim)
            padded[i] = small;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ actions */

/* openpi normalises the state and un-normalises it again before it adds it to the actions. */
static void delta_origin(const pi0_recipe *recipe, double *state)
{
    if (recipe->arithmetic != PI0_ARITHMETIC_OPENPI)
        return;
    for (int i = 0; i < recipe->dim[PI0_STATE]; i++) {
        double x = normalise_f64(recipe, PI0_STATE, i, state[i]);
        state[i] = restore_f64(recipe, PI0_STATE, i, x, (x + 1.0) / 2.0);
    }
}

static bool any_on(const pi0_flags *flags)
{
    for (int i = 0; i < flags->n; i++)
        if (flags->v[i])
            return true;
    return false;
}

static double robot_action(const pi0_recipe *recipe, int i, float model, const double *state)
{
    bool relative = is_on(&recipe->delta, i);
    if (recipe->arithmetic == PI0_ARITHMETIC_OPENPI) {
        float half = (model + 1.0f) / 2.0f;
        double x = restore_f64(recipe, PI0_ACTION, i, (double)model, (double)half);
        return adapt(recipe, PI0_ACTION, i, relative ? x + state[i] : x);
    }
    float x = restore_f32(recipe, PI0_ACTION, i, model);
    float absolute = relative ? x + (float)state[i] : x;
    return adapt(recipe, PI0_ACTION, i, (double)absolute);
}

pi0_status pi0_recipe_actions(const pi0_recipe *recipe, const float *actions, int rows, int model_dim, const double *raw_state, double *out,
                              pi0_error *err)
{
    double state[PI0_MAX_DIM] = {0};
    int dim = recipe->dim[PI0_ACTION];
    if (dim > model_dim) {
        pi0_status status = pi0_fail(err, PI0_ERR_MODEL, "the robot has more action dims than the model");
        pi0_err_where(err, "action.dim");
        pi0_err_expected(err, "at most %d", model_dim);
        pi0_err_got(err, "%d", dim);
        return status;
    }
    if (any_on(&recipe->delta)) {
        if (!raw_state) {
            pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "the actions are relative to the state, and no state was given");
            pi0_err_where(err, "state");
            return status;
        }
        PI0_TRY(adapted_state(recipe, raw_state, state, err));
        delta_origin(recipe, state);
    }
    for (int row = 0; row < rows; row++)
        for (int i = 0; i < dim; i++) {
            double x = robot_action(recipe, i, actions[(size_t)row * (size_t)model_dim + (size_t)i], state);
            if (!isfinite(x)) {
                char where[64];
                snprintf(where, sizeof where, "actions, row %d", row);
                return nonfinite("an action is not a finite number", where, i, x, err);
            }
            out[(size_t)row * (size_t)dim + (size_t)recipe->from_robot[PI0_ACTION][i]] = x;
        }
    return PI0_OK;
}
