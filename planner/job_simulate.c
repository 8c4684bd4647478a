/* The step of a plan, simulated. */
#include <math.h>
#include <stdlib.h>

#include "planner/job_plan.h"
#include "planner/simulate.h"

/* Gradients of so many bytes leave together. */
#define BUCKET_BYTES 4e6

typedef struct model {
    const ct_job_space *s;
    ct_job_plan *p;
    ct_job_layout layout;
    int *base; /* the first worker of each stage; a worker is a group of its replicas */
    int n_worker, n_message, n_load, n_bucket;
    ct_pipeline_list *list;
    ct_pipeline_worker *worker;
    ct_pipeline_message *message;
    ct_pipeline_sum *sum;
    ct_pipeline_load *load;
    ct_pipeline_bucket *bucket;
    int *member, *group; /* group: of each replica of two stages */
    double *link, *end;
} model;

static void close_model(model *m)
{
    ct_pipeline_lists_destroy(m->list, m->p->config.n_stage);
    free(m->base);
    free(m->worker);
    free(m->message);
    free(m->sum);
    free(m->load);
    free(m->bucket);
    free(m->member);
    free(m->group);
    free(m->link);
    free(m->end);
}

static ct_status open_model(const ct_job_space *s, ct_job_plan *p, model *m)
{
    const ct_job_config *c = &p->config;
    size_t stages = (size_t)c->n_stage, workers, pairs;

    *m = (model){ .s = s, .p = p, .layout = ct_job_layout_of(s, c) };
    m->base = calloc(stages + 1, sizeof(*m->base));
    if (m->base == NULL) return CT_FAIL(CT_ERR_NOMEM, "a step of %zu stages", stages);
    for (int i = 0; i < c->n_stage; i++) m->base[i + 1] = m->base[i] + p->stage[i].kind.n_group;
    m->n_worker = m->base[stages];
    workers = (size_t)m->n_worker;
    pairs = stages * CT_JOB_MOST_GROUPS * 2 + 2 * workers; /* neighbours overlap in so many pairs */
    m->worker = calloc(workers, sizeof(*m->worker));
    m->message = calloc(pairs, sizeof(*m->message));
    m->sum = calloc(stages, sizeof(*m->sum));
    m->load = calloc(4 * pairs + 2 * workers, sizeof(*m->load));
    m->bucket = calloc((size_t)s->net->n_block + stages, sizeof(*m->bucket));
    m->member = calloc(workers, sizeof(*m->member));
    m->group = calloc(2 * (size_t)c->data, sizeof(*m->group));
    m->link = calloc(2 * workers, sizeof(*m->link));
    m->end = calloc(workers, sizeof(*m->end));
    if ((m->worker == NULL) || (m->message == NULL) || (m->sum == NULL) || (m->load == NULL) ||
        (m->bucket == NULL) || (m->member == NULL) || (m->group == NULL) || (m->link == NULL) ||
        (m->end == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "a step of %zu stages", stages);
    if (c->micro_batches > INT32_MAX)
        return CT_FAIL(CT_ERR_ARG, "%lld micro-batches", (long long)c->micro_batches);
    return ct_pipeline_lists_1f1b(c->n_stage, (int)c->micro_batches, &m->list);
}

static double inject_of(const model *m, int worker_stage, int group)
{
    return m->s->machine->kind[m->p->stage[worker_stage].kind.group[group].kind].inject;
}

static void add_workers(model *m)
{
    for (int i = 0; i < m->p->config.n_stage; i++) {
        const ct_job_stage_plan *t = &m->p->stage[i];

        for (int k = 0; k < t->kind.n_group; k++) {
            int w = m->base[i] + k;
            double inject = inject_of(m, i, k);

            m->worker[w] =
                (ct_pipeline_worker){ &m->list[i], t->group[k].forward_s, t->group[k].backward_s };
            m->link[2 * w] = m->link[2 * w + 1] = isfinite(inject) ? inject : 1;
        }
    }
}

/* ---- messages behind a stage */

static int group_of(const model *m, int stage, int replica)
{
    const ct_job_stage_plan *t = &m->p->stage[stage];
    int kind = ct_job_class_of(&m->layout, stage, replica), g = 0;

    while ((g < t->kind.n_group - 1) &&
           !((t->kind.group[g].kind == kind) && (t->kind.group[g].share == t->share[replica])))
        g++;
    return g;
}

static ct_pipeline_flow flow_of(model *m, ct_job_link link, int from, int to, double inject,
                                double bytes)
{
    ct_pipeline_flow f = { .bytes = bytes, .latency_s = link.latency_s };

    f.bandwidth = (link.byte_s > 0) ? 1 / link.byte_s : 0;
    f.load = &m->load[m->n_load];
    if (link.card_s > 0) {
        m->load[m->n_load++] = (ct_pipeline_load){ 2 * from, link.card_s * inject };
        m->load[m->n_load++] = (ct_pipeline_load){ 2 * to + 1, link.card_s * inject };
        f.n_load = 2;
    }
    return f;
}

/* Samples that replicas of two groups pass on at most, from one to another. */
static double overlap(const model *m, int stage, int from, int to)
{
    const ct_job_stage_plan *a = &m->p->stage[stage], *b = a + 1;
    int64_t at = 0, end_a = a->share[0], end_b = b->share[0], most = 0;

    for (int j = 0, k = 0; (j < m->p->config.data) && (k < m->p->config.data);) {
        int64_t end = (end_a < end_b) ? end_a : end_b;

        if ((m->group[j] == from) && (m->group[m->p->config.data + k] == to) && (end - at > most))
            most = end - at;
        at = end;
        if ((end_a == end) && (++j < m->p->config.data)) end_a += a->share[j];
        if ((end_b == end) && (++k < m->p->config.data)) end_b += b->share[k];
    }
    return (double)most;
}

static void add_messages(model *m, int stage)
{
    const ct_job_config *c = &m->p->config;
    const ct_job_stage_plan *a = &m->p->stage[stage], *b = a + 1;
    ct_job_link link = ct_job_cut_link(&m->layout, stage);
    double bytes = ct_job_heard_bytes(m->s->net, c->tensor, b->first, m->p->way[b->first]);

    for (int j = 0; j < c->data; j++) {
        m->group[j] = group_of(m, stage, j);
        m->group[c->data + j] = group_of(m, stage + 1, j);
    }
    for (int g = 0; g < a->kind.n_group; g++) {
        for (int h = 0; h < b->kind.n_group; h++) {
            double samples = overlap(m, stage, g, h);
            double inject = fmin(inject_of(m, stage, g), inject_of(m, stage + 1, h));
            int from = m->base[stage] + g, to = m->base[stage + 1] + h;

            if (samples == 0) continue;
            m->message[m->n_message++] = (ct_pipeline_message){
                .from = from,
                .to = to,
                .forward = flow_of(m, link, from, to, inject, samples * bytes),
                .backward = flow_of(m, link, to, from, inject, samples * bytes),
            };
        }
    }
}

/* ---- sums of gradients */

static int add_buckets(model *m, const ct_job_stage *g, const ct_job_stage_plan *t, double all)
{
    ct_pipeline_bucket *bucket = &m->bucket[m->n_bucket];
    double backward = 0, done = 0, held = 0, left = all;
    int n = 0;

    for (int b = t->first; b < t->end; b++) backward += ct_job_stage_backward_s(g, b, m->p->way[b]);
    for (int b = t->end - 1; b >= t->first; b--) {
        done += ct_job_stage_backward_s(g, b, m->p->way[b]);
        held = fmin(left, held + ct_job_stage_sum_bytes(g, b, m->p->way[b]));
        if ((held < BUCKET_BYTES) && (b > t->first)) continue;
        bucket[n++] = (ct_pipeline_bucket){ (backward > 0) ? fmin(1, done / backward) : 1,
                                            (all > 0) ? held / all : 1 };
        left -= held;
        held = 0;
    }
    m->n_bucket += n;
    return n;
}

/* A ring is as long as it has ranks, but no algorithm needs more steps than a few of doubling. */
static double rounds(int n)
{
    return 2 * ceil(log2((double)n));
}

static void add_sum(model *m, ct_pipeline_step *step, int stage, const ct_job_stage *g)
{
    const ct_job_stage_plan *t = &m->p->stage[stage];
    const ct_job_config *c = &m->p->config;
    ct_job_link link = (c->data > 1) ? t->kind.ring : t->kind.tensor;
    ct_pipeline_sum *sum = &m->sum[step->n_sum];

    if ((t->figures.sums_s <= 0) || (link.byte_s <= 0)) return;
    step->n_sum++;
    sum->n_member = t->kind.n_group;
    sum->member = &m->member[m->base[stage]];
    sum->bucket = &m->bucket[m->n_bucket];
    sum->n_bucket = add_buckets(m, g, t, t->figures.sum_bytes);
    sum->flow = (ct_pipeline_flow){
        .bytes = t->figures.sums_s / link.byte_s,
        .latency_s = rounds((c->data > 1) ? c->data : c->tensor) * link.latency_s,
        .bandwidth = 1 / link.byte_s,
        .load = &m->load[m->n_load],
    };
    for (int k = 0; k < t->kind.n_group; k++) {
        int w = m->base[stage] + k;

        m->member[w] = w;
        if (link.card_s <= 0) continue;
        m->load[m->n_load++] = (ct_pipeline_load){ 2 * w, link.card_s * inject_of(m, stage, k) };
        m->load[m->n_load++] =
            (ct_pipeline_load){ 2 * w + 1, link.card_s * inject_of(m, stage, k) };
        sum->flow.n_load += 2;
    }
}

/* ---- all of it */

/* What comes behind the sums: the slowest update, and the sum of a table that two stages have. */
static double after(const model *m)
{
    const ct_job_config *c = &m->p->config;
    const ct_job_net *n = m->s->net;
    double most = 0;

    for (int i = 0; i < c->n_stage; i++) most = fmax(most, m->p->stage[i].figures.update_s);
    if ((n->tie_first >= 0) && (c->n_stage > 1) &&
        (n->tie_first < m->p->stage[c->n_stage - 1].first)) {
        bool cut = (c->tie_way == CT_JOB_OUTPUT);

        most += n->tie_learned / (cut ? c->tensor : 1) * ct_job_cut_link(&m->layout, 0).byte_s;
    }
    return most;
}

static ct_status run(ct_job_space *s, model *m)
{
    ct_job_plan *p = m->p;
    ct_pipeline_step step = { .n_worker = m->n_worker,
                              .n_link = 2 * m->n_worker,
                              .worker = m->worker,
                              .message = m->message,
                              .sum = m->sum,
                              .link = m->link,
                              .n_micro = (int)p->config.micro_batches };
    ct_pipeline_times times;

    add_workers(m);
    for (int i = 0; i < p->config.n_stage; i++) {
        ct_job_stage *g;

        CT_TRY(ct_job_space_stage(s, &p->config, i, p->stage[i].share, &g));
        if (i + 1 < p->config.n_stage) add_messages(m, i);
        add_sum(m, &step, i, g);
    }
    step.n_message = m->n_message;
    CT_TRY(ct_pipeline_simulate(&step, &times, m->end));
    p->step_s = times.step_s + after(m);
    for (int i = 0; i < p->config.n_stage; i++) {
        ct_job_stage_plan *t = &p->stage[i];
        double busy =
            (double)p->config.micro_batches * (t->figures.forward_s + t->figures.backward_s);

        t->bubble = fmax(0, 1 - busy / p->step_s);
    }
    return CT_OK;
}

ct_status ct_job_plan_simulate(ct_job_space *s, ct_job_plan *p)
{
    model m;
    ct_status status = open_model(s, p, &m);

    if (status == CT_OK) status = run(s, &m);
    close_model(&m);
    return status;
}
