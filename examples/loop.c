/* A control loop: the model opens in the background, then a camera thread hands in what it sees and the loop takes the newest actions.
 *   loop MODEL FIRST.png SECOND.jpg "what to do" CHUNKS
 * With an installed libpi0: cc loop.c -o loop $(pkg-config --cflags --libs pi0) -lpthread */
#include <pi0.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct robot {
    const pi0_info *info;
    pi0_pipeline *pipeline;
    char **argv;
    atomic_int stop;
} robot;

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* One camera: a robot would describe the camera's own buffer by a pi0_array instead of reading a file. */
static pi0_status set_picture(pi0_session *session, const char *camera, const char *path, pi0_error *error)
{
    pi0_arrays *picture = NULL;
    pi0_status status = pi0_image_read(path, &picture, error);
    if (status == PI0_OK)
        status = pi0_set_image(session, camera, pi0_arrays_at(picture, 0), error);
    pi0_arrays_free(&picture);
    return status;
}

/* On the pipeline's thread, while the observation before is being computed. `item` would be what the camera thread handed in. */
static pi0_status prepare(void *user, void *item, pi0_session *session, pi0_error *error)
{
    const robot *r = user;
    double state[256] = {0}; /* the joints as the robot measures them */
    (void)item;
    if (set_picture(session, r->info->keys[0], r->argv[2], error) || set_picture(session, r->info->keys[1], r->argv[3], error) ||
        pi0_set_state(session, state, (size_t)r->info->state_dim, error) || pi0_set_prompt(session, r->argv[4], error))
        return error->status;
    return PI0_OK;
}

/* Thirty pictures a second, whether or not anybody keeps up: the newest one counts. */
static void *watch(void *user)
{
    robot *r = user;
    for (; !atomic_load(&r->stop); pause_ms(33))
        pi0_pipeline_submit(r->pipeline, NULL);
    return NULL;
}

static pi0_status act(robot *r, int chunks, pi0_error *error)
{
    pi0_pipeline_result result;
    pthread_t camera;
    if (pthread_create(&camera, NULL, watch, r) != 0)
        return error->status = PI0_ERR_MEMORY;
    for (int i = 0; i < chunks && pi0_pipeline_next(r->pipeline, -1, &result, error) == PI0_OK; i++)
        printf("observation %llu, %.0f ms old, first action %.5f\n", (unsigned long long)result.number, result.latency_ms,
               pi0_actions(result.session, NULL, NULL)[0]);
    atomic_store(&r->stop, 1);
    pthread_join(camera, NULL);
    return error->status;
}

/* Says how far it is; a robot would find its cameras meanwhile. */
static pi0_status open_model(const char *path, pi0_model **model, pi0_error *error)
{
    pi0_opening *opening = NULL;
    if (pi0_open_async(path, NULL, &opening, error) != PI0_OK)
        return error->status;
    for (pi0_open_state s = pi0_opening_poll(opening); !s.finished; s = pi0_opening_poll(opening), pause_ms(100))
        fprintf(stderr, "%s: %llu of %llu bytes\n", s.stage, (unsigned long long)s.done, (unsigned long long)s.total);
    return pi0_opening_wait(&opening, model, error);
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return fprintf(stderr, "usage: loop MODEL FIRST.png SECOND.jpg PROMPT CHUNKS\n"), 2;
    robot r = {.argv = argv};
    pi0_model *model = NULL;
    pi0_error error = {0};
    pi0_pipeline_options options;
    pi0_pipeline_options_init(&options);
    options.prepare = prepare;
    options.user = &r;
    options.latest = 1;
    if (open_model(argv[1], &model, &error) == PI0_OK) {
        r.info = pi0_model_info(model);
        if (pi0_pipeline_open(model, &options, &r.pipeline, &error) == PI0_OK)
            act(&r, (int)strtol(argv[5], NULL, 10), &error);
        pi0_pipeline_close(&r.pipeline);
        const pi0_stats stats = pi0_model_stats(model);
        fprintf(stderr, "%llu inferences, %llu observations dropped for newer ones, busy %.0f %%\n", (unsigned long long)stats.inferences,
                (unsigned long long)stats.dropped, 100 * stats.busy_s / stats.elapsed_s);
    }
    if (error.status != PI0_OK)
        fprintf(stderr, "%s\n  where: %s\n  try: %s\n", error.what, error.where, error.hint);
    const int code = error.status != PI0_OK;
    pi0_error_clear(&error);
    pi0_close(&model);
    return code;
}
