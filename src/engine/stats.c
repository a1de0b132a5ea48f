/* Counters of a model: what happened since it was opened. Written by whoever infers, read by whoever watches, at any time. */
#include "engine/engine.h"

pi0_status pi0_counters_open(pi0_counters **out, pi0_error *err)
{
    *out = NULL;
    pi0_counters *c = pi0_alloc(sizeof *c);
    if (!c || pthread_mutex_init(&c->lock, NULL) != 0) {
        pi0_free(c);
        return pi0_fail_memory(err, sizeof *c, "the counters of a model");
    }
    c->opened_ns = pi0_now_ns();
    *out = c;
    return PI0_OK;
}

void pi0_counters_close(pi0_counters **counters)
{
    if (!*counters)
        return;
    pthread_mutex_destroy(&(*counters)->lock);
    pi0_free(*counters);
    *counters = NULL;
}

void pi0_count_start(pi0_counters *c)
{
    if (!c) /* an inference that only warms what is being opened */
        return;
    pthread_mutex_lock(&c->lock);
    c->busy_since_ns = pi0_now_ns();
    pthread_mutex_unlock(&c->lock);
}

static void add_timing(pi0_timing *sum, const pi0_timing *t)
{
    sum->decode += t->decode;
    sum->preprocess += t->preprocess;
    sum->tokenize += t->tokenize;
    sum->vision += t->vision;
    sum->prefix += t->prefix;
    sum->denoise += t->denoise;
    sum->post += t->post;
    sum->total += t->total;
}

void pi0_count_end(pi0_counters *c, pi0_session *const *sessions, size_t n, pi0_status status)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->busy_ns += pi0_now_ns() - c->busy_since_ns;
    c->busy_since_ns = 0;
    *(status == PI0_OK ? &c->inferences : &c->failures) += n;
    for (size_t i = 0; i < n && status == PI0_OK; i++) {
        c->last = sessions[i]->timing;
        add_timing(&c->sum, &c->last);
    }
    pthread_mutex_unlock(&c->lock);
}

void pi0_count_queue(pi0_counters *c, pi0_queue_change change)
{
    pthread_mutex_lock(&c->lock);
    c->queue += change.waiting;
    c->queue_limit += change.limit;
    c->dropped += change.dropped;
    c->failures += change.failed;
    pthread_mutex_unlock(&c->lock);
}

pi0_stats pi0_model_stats(const pi0_model *model)
{
    pi0_counters *c = model->counters;
    pthread_mutex_lock(&c->lock);
    const uint64_t now = pi0_now_ns(), running = c->busy_since_ns ? now - c->busy_since_ns : 0;
    pi0_stats stats = {.elapsed_s = (double)(now - c->opened_ns) * 1e-9,
                       .busy_s = (double)(c->busy_ns + running) * 1e-9,
                       .inferences = c->inferences,
                       .failures = c->failures,
                       .sum_ms = c->sum,
                       .last_ms = c->last,
                       .queue = c->queue,
                       .queue_limit = c->queue_limit,
                       .dropped = c->dropped};
    pthread_mutex_unlock(&c->lock);
    stats.memory = pi0_model_memory(model);
    stats.process_cpu_s = (double)pi0_cpu_ns() * 1e-9;
    stats.process_resident = pi0_resident();
    return stats;
}
