/* soak - a small random model infers thousands of times, for robots that come and go, with prompts and cameras that change.
 *
 *     soak [INFERENCES]        10000 without a number
 *
 * It fails when the memory of the process grows by a hundredth after the first tenth, or when an inference allocates. How long the first
 * and the last thousand took is told, not judged.
 */
#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { LANES = 4, SIDE = 48, MAX_TURNS = 8, MAX_WORDS = 40, THOUSAND = 1000 };

typedef struct soak {
    pi0_model *model;
    uint64_t drawn; /* random words so far */
    long wanted, done, calls, sessions;
    double *ms; /* [wanted] a robot's share of its call */
    uint64_t allocations;
    int least_tokens, most_tokens;
    uint64_t first_bytes, last_bytes, most_bytes; /* resident with no session open, after the first tenth */
    uint8_t picture[SIDE * SIDE * 3];
} soak;

static int below(soak *s, int end)
{
    return (int)(pi0_random_word(2026, s->drawn++) >> 33) % end;
}

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*s %llu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * pi0_page_bytes();
}

/* ------------------------------------------------------------------ what robots see */

static pi0_status observe(soak *s, pi0_session *session, pi0_error *err)
{
    static const char *const words[] = {"pick", "up", "the", "red", "cube", "and", "put", "it", "into", "a", "bowl", "slowly"};
    const pi0_info *info = pi0_model_info(s->model);
    const pi0_array picture = {
        .name = "", .dtype = PI0_U8, .rank = 3, .shape = {SIDE, SIDE, 3}, .data = s->picture, .bytes = sizeof s->picture};
    char prompt[MAX_WORDS * 8] = "go";
    double state[256];
    for (int n = below(s, MAX_WORDS - 1); n > 0; n--)
        snprintf(prompt + strlen(prompt), sizeof prompt - strlen(prompt), " %s", words[below(s, 12)]);
    for (int i = 0; i < info->state_dim; i++)
        state[i] = below(s, 200) * 0.01 - 1;
    s->picture[below(s, (int)sizeof s->picture)] ^= 0xff;
    const int always = below(s, info->n_slots);
    pi0_status status = pi0_set_prompt(session, prompt, err);
    for (int slot = 0; slot < info->n_slots && status == PI0_OK; slot++)
        status = pi0_set_image(session, info->slots[slot], slot == always || below(s, 2) ? &picture : NULL, err);
    return status == PI0_OK ? pi0_set_state(session, state, (size_t)info->state_dim, err) : status;
}

static pi0_status infer(soak *s, pi0_session **sessions, int n, pi0_error *err)
{
    const uint64_t before = pi0_allocation_count(), start = pi0_now_ns();
    PI0_TRY(pi0_infer(sessions, (size_t)n, 1 + below(s, 4), err));
    const double ms = (double)(pi0_now_ns() - start) * 1e-6;
    s->allocations += pi0_allocation_count() - before;
    s->calls++;
    for (int i = 0; i < n; i++) {
        s->least_tokens = pi0_min_int(s->least_tokens, pi0_token_count(sessions[i]));
        s->most_tokens = pi0_max_int(s->most_tokens, pi0_token_count(sessions[i]));
        if (s->done < s->wanted)
            s->ms[s->done++] = ms / n;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ rounds */

/* Some robots come, infer together for a while, and go. */
static pi0_status one_round(soak *s, pi0_error *err)
{
    pi0_session *sessions[LANES] = {NULL};
    const int n = 1 + below(s, LANES);
    pi0_status status = PI0_OK;
    for (int i = 0; i < n && status == PI0_OK; i++)
        status = pi0_session_open(s->model, (uint64_t)s->sessions++, &sessions[i], err);
    for (int turns = 1 + below(s, MAX_TURNS); turns > 0 && status == PI0_OK; turns--) {
        for (int i = 0; i < n && status == PI0_OK; i++)
            status = observe(s, sessions[i], err);
        if (status == PI0_OK)
            status = infer(s, sessions, n, err);
    }
    for (int i = 0; i < n; i++)
        pi0_session_close(&sessions[i]);
    return status;
}

static pi0_status all_rounds(soak *s, pi0_error *err)
{
    while (s->done < s->wanted) {
        PI0_TRY(one_round(s, err));
        if (s->done < s->wanted / 10)
            continue;
        s->last_bytes = resident_bytes();
        s->first_bytes = s->first_bytes ? s->first_bytes : s->last_bytes;
        s->most_bytes = s->last_bytes > s->most_bytes ? s->last_bytes : s->most_bytes;
    }
    return PI0_OK;
}

/* ------------------------------------------------------------------ report */

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *ms, long n)
{
    qsort(ms, (size_t)n, sizeof *ms, by_size);
    return ms[n / 2];
}

static int report(soak *s)
{
    const long n = s->wanted >= 2 * THOUSAND ? THOUSAND : s->wanted / 2;
    const pi0_session_memory sessions = pi0_model_sessions(s->model);
    const double grown = s->first_bytes ? (double)s->most_bytes / (double)s->first_bytes - 1 : 0;
    const double first = median(s->ms, n), last = median(s->ms + s->wanted - n, n);
    const bool flat = grown < 0.01, quiet = s->allocations == 0, closed = sessions.open == 0 && sessions.bytes == 0;
    printf("%ld inferences in %ld calls, prompts of %d to %d tokens, 1 to %d cameras\n", s->done, s->calls, s->least_tokens, s->most_tokens,
           pi0_model_info(s->model)->n_slots);
    printf("sessions: %ld opened and closed, at most %llu at once in %.1f MiB, %llu refused, %llu bytes left%s\n", s->sessions,
           (unsigned long long)sessions.most_open, (double)sessions.most_bytes / (1 << 20), (unsigned long long)sessions.failures,
           (unsigned long long)sessions.bytes, closed ? "" : ": FAILED");
    printf("resident without sessions: %.2f MiB after a tenth, %.2f MiB at the end, %.2f MiB at most: %+.2f %%%s\n",
           (double)s->first_bytes / (1 << 20), (double)s->last_bytes / (1 << 20), (double)s->most_bytes / (1 << 20), 100 * grown,
           flat ? "" : ": FAILED, 1 % is the limit");
    printf("allocations by inferences: %llu%s\n", (unsigned long long)s->allocations, quiet ? "" : ": FAILED");
    printf("a robot's share of a call, median: %.2f ms in the first %ld, %.2f ms in the last\n", first, n, last);
    return flat && quiet && closed ? 0 : 1;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}

static pi0_status make_model(const char *dir, soak *s, pi0_error *err)
{
    pi0_synth_options synth;
    pi0_options options;
    pi0_synth_options_init(&synth);
    synth.model = "pi0";
    synth.horizon = 8;
    PI0_TRY(pi0_synth(dir, &synth, err));
    pi0_options_init(&options);
    options.max_batch = LANES;
    options.warm = 1;
    return pi0_open(dir, &options, &s->model, err);
}

int main(int argc, char **argv)
{
    const char *parent = getenv("TMPDIR");
    char dir[4096], *end = "";
    pi0_error err = {0};
    soak s = {.wanted = argc > 1 ? strtol(argv[1], &end, 10) : 10 * THOUSAND, .least_tokens = INT32_MAX};
    if (*end || s.wanted < 10 || s.wanted > 100000 * THOUSAND || argc > 2) {
        fprintf(stderr, "soak: it takes a number of inferences, 10 or more\n");
        return 2;
    }
    snprintf(dir, sizeof dir, "%.4000s/pi0_soak.XXXXXX", parent && *parent ? parent : "/tmp");
    s.ms = calloc((size_t)s.wanted, sizeof *s.ms);
    if (!s.ms || !mkdtemp(dir)) {
        fprintf(stderr, "soak: %s: %s\n", dir, strerror(errno));
        return 1;
    }
    pi0_status status = make_model(dir, &s, &err);
    nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    if (status == PI0_OK)
        status = all_rounds(&s, &err);
    if (status != PI0_OK)
        fprintf(stderr, "soak: %s (%s)\n", err.what, err.where);
    int code = status == PI0_OK ? report(&s) : 1;
    pi0_close(&s.model);
    free(s.ms);
    pi0_error_clear(&err);
    return code;
}
