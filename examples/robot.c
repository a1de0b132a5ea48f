/* One chunk of actions from two cameras: the whole way through libpi0.
 *   robot MODEL FIRST.png SECOND.jpg "what to do"
 * With an installed libpi0: cc robot.c -o robot $(pkg-config --cflags --libs pi0) */
#include <pi0.h>
#include <stdio.h>

static pi0_status set_picture(pi0_session *session, const char *camera, const char *path, pi0_error *error)
{
    pi0_arrays *picture = NULL; /* a robot would describe its camera's own buffer by a pi0_array instead */
    pi0_status status = pi0_image_read(path, &picture, error);
    if (status == PI0_OK)
        status = pi0_set_image(session, camera, pi0_arrays_at(picture, 0), error);
    pi0_arrays_free(&picture);
    return status;
}

/* Once per chunk: what the robot sees, where its joints are, what it is told; then the actions. */
static pi0_status step(pi0_session *session, const pi0_info *info, char **argv, pi0_error *error)
{
    double state[256] = {0}; /* the joints as the robot measures them, in its own order and units */
    if (set_picture(session, info->keys[0], argv[2], error) || set_picture(session, info->keys[1], argv[3], error) ||
        pi0_set_state(session, state, (size_t)info->state_dim, error) || pi0_set_prompt(session, argv[4], error) ||
        pi0_infer(&session, 1, /* steps: the recipe's */ 0, error))
        return error->status;
    int rows, columns;
    const double *actions = pi0_actions(session, &rows, &columns); /* [rows, columns], the robot's units */
    for (int i = 0; i < rows * columns; i++)
        printf("%.5f%s", actions[i], (i + 1) % columns ? " " : "\n");
    return PI0_OK;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fprintf(stderr, "usage: robot MODEL FIRST.png SECOND.jpg PROMPT\n"), 2;
    pi0_model *model = NULL;     /* the weights: open once, share between threads */
    pi0_session *session = NULL; /* one robot's timeline: one for each robot */
    pi0_error error = {0};
    pi0_options options;
    pi0_options_init(&options);
    if (pi0_open(argv[1], &options, &model, &error) == PI0_OK && pi0_session_open(model, /* seed */ 0, &session, &error) == PI0_OK)
        step(session, pi0_model_info(model), argv, &error);
    if (error.status != PI0_OK)
        fprintf(stderr, "%s\n  where: %s\n  expected: %s\n  got: %s\n  try: %s\n", error.what, error.where, error.expected, error.got,
                error.hint);
    int code = error.status != PI0_OK;
    pi0_error_clear(&error);
    pi0_session_close(&session);
    pi0_close(&model);
    return code;
}
