/* One chunk of actions from two cameras: the whole way through libpi0.
 *   robot MODEL FIRST.png SECOND.jpg "what to do"
 * Build against an installed libpi0: cc robot.c $(pkg-config --cflags --libs pi0) */
#include <pi0.h>
#include <stdio.h>

static int give_up(const pi0_error *error)
{
    fprintf(stderr, "%s\n  where: %s\n  expected: %s\n  got: %s\n  try: %s\n", error->what, error->where, error->expected, error->got,
            error->hint);
    return 1;
}

static pi0_status set_picture(pi0_session *session, const char *camera, const char *path, pi0_error *error)
{
    pi0_arrays *picture = NULL; /* a robot would fill a pi0_array with its camera's own buffer instead */
    pi0_status status = pi0_image_read(path, &picture, error);
    if (status == PI0_OK)
        status = pi0_set_image(session, camera, pi0_arrays_at(picture, 0), error);
    pi0_arrays_free(&picture);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return fprintf(stderr, "usage: robot MODEL FIRST.png SECOND.jpg PROMPT\n"), 2;
    pi0_error error = {0};
    pi0_options options;
    pi0_options_init(&options);
    pi0_model *model = NULL;     /* weights: open once, share between threads */
    pi0_session *session = NULL; /* one robot's timeline: one for each robot */
    if (pi0_open(argv[1], &options, &model, &error) || pi0_session_open(model, /*seed*/ 0, &session, &error))
        return give_up(&error);
    const pi0_info *info = pi0_model_info(model);
    double state[256] = {0}; /* the joints as the robot measures them, in its own order and units */

    /* From here on once per chunk. */
    if (set_picture(session, info->keys[0], argv[2], &error) || set_picture(session, info->keys[1], argv[3], &error) ||
        pi0_set_state(session, state, (size_t)info->state_dim, &error) || pi0_set_prompt(session, argv[4], &error) ||
        pi0_infer(&session, 1, /*steps: the recipe's*/ 0, &error))
        return give_up(&error);
    int rows, columns;
    const double *actions = pi0_actions(session, &rows, &columns); /* [rows, columns], the robot's units */
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++)
            printf("%.5f%s", actions[r * columns + c], c + 1 < columns ? " " : "\n");

    pi0_session_close(&session);
    pi0_close(&model);
    return 0;
}
