/* The step of a plan, simulated. */
#include <math.h>
#include <stdlib.h>

#include "planner/job_plan.h"
#include "planner/simulate.h"

/* Gradients of so many bytes leave together. */
#define BUCKET_BYTES 4e6

typedef struct model {
    const ct_job_step *s;
    ct_job_plan *p;
    int *base; /* the first worker of each stage; a worker is a group of its replicas */
    int n_worker, n_message, n_load, n_bucket;
    ct_pipeline_list *list;
    ct_pipeline_worker *worker;
    ct_pipeline_message *message;
    ct_pipeline_sum *sum;
    ct_pipeline_load *load;
    ct_pipeline_bucket *bucket;
    int *member, *group[2]; /* group: of each replica of two stages */
    double *link, *end;
} model;

/* Bytes of a sample that a rank of a stage hears of an earlier one. */
static double heard(const model *m, int from, int to)
{
    const ct_job_stage_plan *b = &m->p->stage[to];
    int n = m->p->config.n_stage;

    if (m->s->heard != NULL) return m->s->heard[(size_t)from * (size_t)n + (size_t)to];
    if (to != from + 1) return 0;
    return ct_job_heard_bytes(m->s->net, m->p->config.tensor, b->first, m->p->way[b->first]);
}

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
    free(m->group[0]);
    free(m->group[1]);
    free(m->link);
    free(m->end);
}

/* Messages at most: every group of a stage to every one of a later stage that hears of it. */
static size_t n_pair(const model *m)
{
    int n = m->p->config.n_stage;
    size_t pairs = 0;

    for (int a = 0; a < n; a++) {
        for (int b = a + 1; b < n; b++) {
            if (heard(m, a, b) > 0)
                pairs += (size_t)m->p->stage[a].kind.n_group * (size_t)m->p->stage[b].kind.n_group;
        }
    }
    return pairs;
}

static ct_status open_model(const ct_job_step *s, ct_job_plan *p, model *m)
{
    const ct_job_config *c = &p->config;
    size_t stages = (size_t)c->n_stage, workers, pairs, most = 0;

    *m = (model){ .s = s, .p = p };
    m->base = calloc(stages + 1, sizeof(*m->base));
    if (m->base == NULL) return CT_FAIL(CT_ERR_NOMEM, "a step of %zu stages", stages);
    for (int i = 0; i < c->n_stage; i++) {
        m->base[i + 1] = m->base[i] + p->stage[i].kind.n_group;
        if ((size_t)p->stage[i].kind.data > most) most = (size_t)p->stage[i].kind.data;
    }
    m->n_worker = m->base[stages];
    workers = (size_t)m->n_worker;
    pairs = n_pair(m);
    m->worker = calloc(workers, sizeof(*m->worker));
    m->message = calloc(pairs + 1, sizeof(*m->message));
    m->sum = calloc(stages, sizeof(*m->sum));
    m->load = calloc(4 * pairs + 2 * workers, sizeof(*m->load));
    /* a block may be of two stages of a file */
    m->bucket = calloc((size_t)s->net->n_block * stages + stages, sizeof(*m->bucket));
    m->member = calloc(workers, sizeof(*m->member));
    m->group[0] = calloc(most, sizeof(*m->group[0]));
    m->group[1] = calloc(most, sizeof(*m->group[1]));
    m->link = calloc(2 * workers, sizeof(*m->link));
    m->end = calloc(workers, sizeof(*m->end));
    if ((m->worker == NULL) || (m->message == NULL) || (m->sum == NULL) || (m->load == NULL) ||
        (m->bucket == NULL) || (m->member == NULL) || (m->group[0] == NULL) ||
        (m->group[1] == NULL) || (m->link == NULL) || (m->end == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "a step of %zu stages", stages);
    if (c->micro_batches > INT32_MAX)
        return CT_FAIL(CT_ERR_ARG, "%lld micro-batches", (long long)c->micro_batches);
    return ct_pipeline_lists_1f1b(c->n_stage, (int)c->micro_batches, &m->list);
}

static double inject_of(const model *m, int worker_stage, int group)
{
    return m->s->layout.machine->kind[m->p->stage[worker_stage].kind.group[group].kind].inject;
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
static double overlap(const model *m, const ct_job_stage_plan *a, const ct_job_stage_plan *b,
                      int from, int to)
{
    int64_t at = 0, end_a = a->share[0], end_b = b->share[0], most = 0;

    for (int j = 0, k = 0; (j < a->kind.data) && (k < b->kind.data);) {
        int64_t end = (end_a < end_b) ? end_a : end_b;

        if ((m->group[0][j] == from) && (m->group[1][k] == to) && (end - at > most))
            most = end - at;
        at = end;
        if ((end_a == end) && (++j < a->kind.data)) end_a += a->share[j];
        if ((end_b == end) && (++k < b->kind.data)) end_b += b->share[k];
    }
    return (double)most;
}

static void add_messages(model *m, int stage, int next)
{
    const ct_job_stage_plan *a = &m->p->stage[stage], *b = &m->p->stage[next];
    ct_job_link link = ct_job_cut_link(&m->s->layout, stage, next);
    double bytes = heard(m, stage, next);

    for (int j = 0; j < a->kind.data; j++)
        m->group[0][j] = ct_job_group_of(&m->s->layout, a, stage, j);
    for (int j = 0; j < b->kind.data; j++)
        m->group[1][j] = ct_job_group_of(&m->s->layout, b, next, j);
    for (int g = 0; g < a->kind.n_group; g++) {
        for (int h = 0; h < b->kind.n_group; h++) {
            double samples = overlap(m, a, b, g, h);
            double inject = fmin(inject_of(m, stage, g), inject_of(m, next, h));
            int from = m->base[stage] + g, to = m->base[next] + h;

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

static double backward_of(const ct_job_prices *g, int block, int way)
{
    return g->group[g->kind.n_group].backward[ct_job_cell(block, way)];
}

static int add_buckets(model *m, const ct_job_prices *g, const ct_job_stage_plan *t, double all)
{
    ct_pipeline_bucket *bucket = &m->bucket[m->n_bucket];
    double backward = 0, done = 0, held = 0, left = all;
    int n = 0;

    for (int b = t->first; b < t->end; b++) backward += backward_of(g, b, m->p->way[b]);
    for (int b = t->end - 1; b >= t->first; b--) {
        done += backward_of(g, b, m->p->way[b]);
        held = fmin(left, held + g->sum_bytes[ct_job_cell(b, m->p->way[b])]);
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

static void add_sum(model *m, ct_pipeline_step *step, int stage, const ct_job_prices *g)
{
    const ct_job_stage_plan *t = &m->p->stage[stage];
    int data = t->kind.data;
    ct_job_link link = (data > 1) ? t->kind.ring : t->kind.tensor;
    ct_pipeline_sum *sum = &m->sum[step->n_sum];

    if ((t->figures.sums_s <= 0) || (link.byte_s <= 0)) return;
    step->n_sum++;
    sum->n_member = t->kind.n_group;
    sum->member = &m->member[m->base[stage]];
    sum->bucket = &m->bucket[m->n_bucket];
    sum->n_bucket = add_buckets(m, g, t, t->figures.sum_bytes);
    sum->flow = (ct_pipeline_flow){
        .bytes = t->figures.sums_s / link.byte_s,
        .latency_s = rounds((data > 1) ? data : g->s->tensor) * link.latency_s,
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

        most += n->tie_learned / (cut ? m->s->price[0]->s->tensor : 1) *
                ct_job_cut_link(&m->s->layout, 0, 1).byte_s;
    }
    return most;
}

static ct_status run(model *m)
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
        for (int k = i + 1; k < p->config.n_stage; k++) {
            if (heard(m, i, k) > 0) add_messages(m, i, k);
        }
        add_sum(m, &step, i, m->s->price[i]);
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

ct_status ct_job_step_simulate(const ct_job_step *s, ct_job_plan *p)
{
    model m;
    ct_status status = open_model(s, p, &m);

    if (status == CT_OK) status = run(&m);
    close_model(&m);
    return status;
}

ct_status ct_job_plan_simulate(ct_job_space *s, ct_job_plan *p)
{
    const ct_job_prices **price = calloc((size_t)p->config.n_stage, sizeof(*price));
    ct_job_step step = { .net = s->net, .layout = ct_job_layout_of(s, &p->config), .price = price };
    ct_status status = CT_OK;

    if (price == NULL) return CT_FAIL(CT_ERR_NOMEM, "a step of %d stages", p->config.n_stage);
    for (int i = 0; (i < p->config.n_stage) && (status == CT_OK); i++) {
        ct_job_stage *g = NULL;

        status = ct_job_space_stage(s, &p->config, i, p->stage[i].share, &g);
        if (status == CT_OK) price[i] = ct_job_stage_prices(g);
    }
    if (status == CT_OK) status = ct_job_step_simulate(&step, p);
    free(price);
    return status;
}
