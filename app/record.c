#include "record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct array_list {
    pi0_array *items;
    size_t count, capacity;
    char **names; /* heap names made here, released with the list */
    size_t n_names;
} array_list;

static pi0_status list_open(array_list *list, size_t capacity, pi0_error *err)
{
    memset(list, 0, sizeof *list);
    list->capacity = capacity;
    list->items = calloc(capacity + 1, sizeof *list->items);
    list->names = calloc(capacity + 1, sizeof *list->names);
    if (!list->items || !list->names)
        return app_err(err, PI0_ERR_MEMORY, "not enough memory for the list of stages");
    return PI0_OK;
}

static void list_close(array_list *list)
{
    for (size_t i = 0; i < list->n_names; i++)
        free(list->names[i]);
    free(list->names);
    free(list->items);
    memset(list, 0, sizeof *list);
}

/* A later array of the same name replaces the earlier one: options override the file. */
static void list_put(array_list *list, const pi0_array *array)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i].name, array->name) == 0) {
            list->items[i] = *array;
            return;
        }
    if (list->count < list->capacity)
        list->items[list->count++] = *array;
}

static pi0_status put_stages(array_list *list, const pi0_session *session, const char *prefix, pi0_error *err)
{
    size_t count = pi0_stage_count(session);
    for (size_t i = 0; i < count; i++) {
        const char *stage = pi0_stage_name(session, i);
        pi0_array array;
        pi0_status status = pi0_stage(session, stage, &array, err);
        if (status != PI0_OK)
            return status;
        size_t bytes = strlen(prefix) + strlen(stage) + 1;
        char *name = malloc(bytes);
        if (!name)
            return app_err(err, PI0_ERR_MEMORY, "not enough memory for the list of stages");
        snprintf(name, bytes, "%s%s", prefix, stage);
        list->names[list->n_names++] = name;
        array.name = name;
        list_put(list, &array);
    }
    return PI0_OK;
}

pi0_status app_dump_write(const char *path, const pi0_session *session, pi0_error *err)
{
    array_list list;
    pi0_status status = list_open(&list, pi0_stage_count(session), err);
    if (status == PI0_OK)
        status = put_stages(&list, session, "", err);
    if (status == PI0_OK)
        status = pi0_arrays_write(path, list.items, list.count, err);
    list_close(&list);
    return status;
}

static void put_observation(array_list *list, const app_observation *observation)
{
    for (size_t i = 0; observation->all && i < pi0_arrays_count(observation->all); i++)
        list_put(list, pi0_arrays_at(observation->all, i));
    for (size_t i = 0; i < observation->n_images; i++)
        list_put(list, &observation->images[i].array);
    if (observation->state) {
        pi0_array state = {.name = "state", .dtype = PI0_F64, .rank = 1, .shape = {(int64_t)observation->state_count}};
        state.data = observation->state;
        state.bytes = observation->state_count * sizeof(double);
        list_put(list, &state);
    }
    if (observation->prompt) {
        pi0_array prompt = {.name = "prompt", .dtype = PI0_TEXT, .data = observation->prompt, .bytes = strlen(observation->prompt)};
        list_put(list, &prompt);
    }
}

pi0_status app_record_write(const char *path, const app_observation *observation, const pi0_session *session, pi0_error *err)
{
    array_list list;
    size_t given = observation->all ? pi0_arrays_count(observation->all) : 0;
    pi0_status status = list_open(&list, pi0_stage_count(session) + given + observation->n_images + 3, err);
    if (status != PI0_OK)
        goto done;
    put_observation(&list, observation);
    pi0_array noise;
    status = pi0_stage(session, "noise", &noise, err);
    if (status != PI0_OK)
        goto done;
    noise.name = "noise";
    list_put(&list, &noise);
    status = put_stages(&list, session, "ref/", err);
    if (status == PI0_OK)
        status = pi0_arrays_write(path, list.items, list.count, err);
done:
    list_close(&list);
    return status;
}
