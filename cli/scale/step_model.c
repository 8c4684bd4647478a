#include "cli/scale/step_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/autotune/codec_planner.h"
#include "comm/codec/codec_types.h"
#include "comm/collective/coll_types.h"
#include "framework/base/sort.h"
#include "framework/base/number.h"

/* ---- costs */

#define COUNT_COLLECTIVE(_name) +1
enum { N_ALGORITHM = CT_COLLECTIVES(COUNT_COLLECTIVE) }; /* of ct_coll_table */

typedef struct costs {
    const ct_topo *topo;
    bool deterministic, named;
    bool halves;                   /* of ZeRO: those below are there, too */
    ct_cost *scatter[N_ALGORITHM]; /* of what is in cost; NULL: it has no such half */
    ct_cost *gather[N_ALGORITHM];  /* of those that "auto" takes */
    ct_cost *cost[N_ALGORITHM];    /* NULL: not asked for */
    ct_cost *host[N_ALGORITHM];    /* … where ranks add (ct_coll_ops.host_cost); NULL: as ever */
} costs;

static void destroy_costs(costs *c)
{
    for (int i = 0; i < N_ALGORITHM; i++) {
        ct_cost_destroy(c->cost[i]);
        ct_cost_destroy(c->host[i]);
        ct_cost_destroy(c->scatter[i]);
        ct_cost_destroy(c->gather[i]);
    }
}

/* As comm/collective/persistent.c goes: a reduce-scatter by the half of the chosen allreduce, an
 * allgather by the cheapest of ours. */
static ct_status create_halves(const ct_topo *t, costs *c)
{
    c->halves = true;
    for (int i = 0; i < N_ALGORITHM; i++) {
        const ct_coll_ops *scatter = ct_coll_table[i]->scatter, *gather = ct_coll_table[i]->gather;

        if ((c->cost[i] != NULL) && (scatter != NULL))
            CT_TRY(ct_cost_create(scatter->cost, t, NULL, true, &c->scatter[i]));
        if ((gather != NULL) && ct_coll_is_automatic(gather, t) && !gather->by_mpi)
            CT_TRY(ct_cost_create(gather->cost, t, NULL, true, &c->gather[i]));
    }
    return CT_OK;
}

static ct_status create_costs(const ct_topo *t, const ct_grad_pipe_config *config, costs *c)
{
    const char *name = config->allreduce;
    bool all = (strcmp(name, "auto") == 0), known = all;

    *c = (costs){ .topo = t, .deterministic = config->deterministic, .named = !all };
    for (int i = 0; i < N_ALGORITHM; i++) {
        const ct_coll_ops *ops = ct_coll_table[i];
        bool wanted = all ? ct_coll_is_automatic(ops, t) : (strcmp(name, ops->name) == 0);

        known |= wanted;
        if (all && ops->by_mpi && (t->machine.in_network.bandwidth == 0))
            continue; /* never the least */
        if (!wanted) continue;
        CT_TRY(ct_cost_create(ops->cost, t, NULL, true, &c->cost[i]));
        if (ops->host_cost != NULL)
            CT_TRY(ct_cost_create(ops->host_cost, t, NULL, true, &c->host[i]));
    }
    return known ? CT_OK : CT_FAIL(CT_ERR_CONFIG, "allreduce %s has no costs to model it by", name);
}

/* A sum: of so many bytes. own: it may not go by MPI's own. */
typedef struct allreduce {
    double bytes;
    ct_dtype dtype;
    bool own;
} allreduce;

static double seconds_of(const costs *c, int i, allreduce s)
{
    const ct_coll_ops *ops = ct_coll_table[i];

    if ((c->cost[i] == NULL) || (ops->by_mpi && s.own && !c->named)) return INFINITY;
    if ((c->host[i] != NULL) && ops->on_host(s.dtype)) return ct_cost_s(c->host[i], s.bytes);
    return ct_cost_s(c->cost[i], s.bytes);
}

/* What ct_coll_choose() chooses, or ct_coll_choose_own(): its number; its seconds. */
static int cheapest(const costs *c, allreduce what, double *seconds_p)
{
    double least = INFINITY;
    int best = -1;

    for (int i = 0; i < N_ALGORITHM; i++) {
        double s = seconds_of(c, i, what);
        double weighed = s * ct_cost_weight(ct_coll_table[i]->cost, c->topo, true);

        if ((best >= 0) && !(weighed < least)) continue;
        best = i;
        least = weighed;
        *seconds_p = s;
    }
    return best;
}

static allreduce dense_sum(const costs *c, int64_t bytes)
{
    return (allreduce){ .bytes = (double)bytes, .dtype = CT_F32, .own = c->deterministic };
}

static ct_status cost_of(void *ctx, int64_t bytes, double *latency_s_p, double *all_s_p)
{
    const costs *c = ctx;
    int best = cheapest(c, dense_sum(c, bytes), all_s_p);

    *latency_s_p = ct_cost_s(c->cost[best], 0);
    return CT_OK;
}

/* fp16: all ranks get the exponent. */
static double sum_s(void *ctx, ct_dtype dtype, int64_t bytes, bool own)
{
    const costs *c = ctx;
    const allreduce what = { .bytes = (double)bytes, .dtype = dtype, .own = own };
    double seconds = 0;
    int best = cheapest(c, what, &seconds);

    if (!c->halves || (dtype == CT_U8)) return seconds;
    return ct_cost_s(c->scatter[best], what.bytes);
}

static double dense_s(void *ctx, int64_t bytes)
{
    const costs *c = ctx;
    double seconds = 0;
    int best = cheapest(c, dense_sum(c, bytes), &seconds);

    if (c->halves) return ct_cost_s(c->scatter[best], (double)bytes);
    return seconds;
}

static double gather_s(void *ctx, int64_t bytes)
{
    const costs *c = ctx;
    double least = INFINITY, seconds = 0;

    for (int i = 0; i < N_ALGORITHM; i++) {
        double s = (c->gather[i] != NULL) ? ct_cost_s(c->gather[i], (double)bytes) : INFINITY;
        double weighed = (c->gather[i] != NULL)
                             ? s * ct_cost_weight(ct_coll_table[i]->gather->cost, c->topo, true)
                             : INFINITY;

        if (!(weighed < least)) continue;
        least = weighed;
        seconds = s;
    }
    return seconds;
}

/* ---- all of it */

typedef struct model {
    const ct_profile *p;
    const ct_grad_pipe_config *config;
    const ct_step_model_own *own; /* NULL: none */
    costs costs;
    ct_sparse_allreduce_model *exch;
    ct_grad_range *range;
    ct_codec_seconds *seconds;
    ct_codec_candidates ways;
    ct_bucket_sizes sizes;
    ct_codec_planner choose;
    ct_codec_plan plan;
    ct_profile_timeline line;
    ct_step_timeline apart; /* where progress is AUTO: the same with a thread that codes */
} model;

static void model_release(model *m)
{
    destroy_costs(&m->costs);
    ct_sparse_allreduce_model_destroy(m->exch);
    ct_codec_planner_release(&m->choose);
    ct_profile_line_release(&m->line);
    free(m->plan.way);
    free(m->range);
    free(m->seconds);
}

/* One codec for all is what every range has of its own that has no other. */
static ct_status make_ranges(model *m)
{
    const ct_profile *p = m->p;
    size_t n = (size_t)p->n_param + 1;

    m->range = calloc(n, sizeof(*m->range));
    m->seconds = calloc(n * CT_CODEC_CANDIDATES, sizeof(*m->seconds));
    m->plan.way = calloc(n, sizeof(*m->plan.way));
    if ((m->range == NULL) || (m->seconds == NULL) || (m->plan.way == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d gradients", p->n_param);
    for (int i = 0; i < p->n_param; i++) {
        ct_grad_range *r = &m->range[i];

        *r = (ct_grad_range){ .key = p->param[i].key,
                              .offset = p->param[i].offset,
                              .count = p->param[i].count,
                              .rows = p->param[i].rows };
        m->plan.way[i] = -1;
        if ((m->own == NULL) || (m->own[i].codec == NULL)) continue;
        r->codec = m->own[i].codec;
        r->codec_config = &m->own[i].config;
    }
    CT_TRY(ct_bucket_partition_check(m->config, m->range, p->n_param));
    for (int i = 0; (m->config->codec != &ct_codec_auto) && (i < p->n_param); i++) {
        if (m->range[i].codec != NULL) continue;
        m->range[i].codec = m->config->codec;
        m->range[i].codec_config = &m->config->codec_config;
    }
    return CT_OK;
}

static ct_status choose(model *m, const ct_topo *t)
{
    const ct_grad_pipe_config *config = m->config;
    ct_codec_costs c = { .n_rank = t->n_rank,
                         .speed = ct_topo_codec_speed(t),
                         .deterministic = config->deterministic,
                         .allreduce_s = sum_s,
                         .ctx = &m->costs,
                         .sum_factor = 1,
                         .wire_factor = 1 };

    CT_TRY(ct_sparse_allreduce_model_create(t, &m->exch));
    c.exch = m->exch;
    if (config->codec == &ct_codec_auto)
        CT_TRY(ct_codec_candidates_list(&config->codec_config, config->deterministic, &m->ways));
    if (t->n_rank > 1)
        ct_codec_planner_seconds(&c, config, m->range, m->p->n_param, &m->ways, m->seconds);
    m->choose =
        (ct_codec_planner){ .config = config,
                            .sizes = &m->sizes,
                            .range = m->range,
                            .n_range = m->p->n_param,
                            .n_rank = t->n_rank,
                            .ways = &m->ways,
                            .seconds = m->seconds,
                            .dense_s = dense_s,
                            .gather_s = gather_s,
                            .ctx = &m->costs,
                            .line = &m->line.line,
                            .apart = (config->progress == CT_PROGRESS_AUTO) ? &m->apart : NULL,
                            .margin = 0.02 };
    if (config->codec != &ct_codec_auto) return ct_codec_planner_cost(&m->choose, &m->plan);
    CT_TRY(ct_codec_planner_run(&m->choose));
    memcpy(m->plan.way, m->choose.plan[0].way, sizeof(int) * (size_t)m->p->n_param);
    return ct_codec_planner_cost(&m->choose, &m->plan);
}

static void fill_bucket(const model *m, const ct_bucket_cut *k, int n_rank, ct_step_model_bucket *b)
{
    const ct_grad_range *r = &m->range[k->first];
    const ct_codec_seconds *s = m->seconds + (size_t)k->first * CT_CODEC_CANDIDATES;

    b->first = k->first;
    b->n = k->n;
    b->count = k->count;
    b->bytes = k->count * 4;
    b->codec = ct_codec_none.name;
    b->key = r->key;
    b->coded = k->coded;
    if (n_rank == 1) {
        b->algorithm = "one rank";
        return;
    }
    if (!k->coded) {
        b->algorithm =
            ct_coll_table[cheapest(&m->costs, dense_sum(&m->costs, b->bytes), &b->seconds)]->name;
        if (m->costs.halves)
            b->seconds = dense_s((void *)(uintptr_t)&m->costs, b->bytes) +
                         gather_s((void *)(uintptr_t)&m->costs, b->bytes);
        b->wire_s = b->seconds;
        return;
    }
    if (m->plan.way[k->first] > 0) s += m->plan.way[k->first];
    b->codec = r->codec->name;
    b->bytes = r->codec->payload_bytes(r->codec_config, k->count, (r->rows > 0) ? r->rows : 1);
    b->encode_s = s->encode_s;
    b->wire_s = s->wire_s;
    b->decode_s = s->decode_s;
    if (m->costs.halves) b->wire_s += gather_s((void *)(uintptr_t)&m->costs, k->count * 4);
    b->seconds = s->encode_s + b->wire_s + s->decode_s;
    b->algorithm = (s->exchange != NULL) ? s->exchange : "sum";
}

static ct_status fill_buckets(model *m, int n_rank, ct_step_model *out)
{
    ct_bucket_cut *cut = NULL;
    int n = 0;

    ct_codec_planner_apply(&m->ways, m->plan.way, m->range, m->p->n_param);
    CT_TRY(ct_bucket_partition_cut(m->config, &m->sizes, m->range, m->p->n_param, &cut, &n));
    out->bucket = calloc((size_t)n + 1, sizeof(*out->bucket));
    if (out->bucket == NULL) {
        free(cut);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d buckets", n);
    }
    for (int i = 0; i < n; i++) {
        fill_bucket(m, &cut[i], n_rank, &out->bucket[i]);
        out->n_coded += cut[i].coded;
    }
    out->n_bucket = n;
    free(cut);
    return CT_OK;
}

/* The same plan, with the same progress, where coding takes no time. */
static ct_status find_coding(model *m, ct_step_model *out)
{
    ct_codec_plan free_plan = m->plan;
    size_t n = (size_t)m->p->n_param * CT_CODEC_CANDIDATES;

    for (size_t i = 0; i < n; ++i) m->seconds[i].encode_s = m->seconds[i].decode_s = 0;
    if (m->plan.apart) m->choose.line = m->choose.apart;
    m->choose.apart = NULL;
    CT_TRY(ct_codec_planner_cost(&m->choose, &free_plan));
    out->coding_s = fmax(0, m->plan.times.step_s - free_plan.times.step_s);
    return CT_OK;
}

/* Everything of it must go by halves. */
static ct_status share_out(model *m, const ct_topo *t, const ct_profile_zero *zero)
{
    if ((zero == NULL) || (zero->stage == 0) || (t->n_rank == 1)) return CT_OK;
    if ((m->config->codec != &ct_codec_none) && !m->config->codec->parts)
        return CT_FAIL(CT_ERR_CONFIG, "memory { zero: %d }: compression %s sends whole gradients",
                       zero->stage, m->config->codec->name);
    CT_TRY(create_halves(t, &m->costs));
    for (int i = 0; i < N_ALGORITHM; i++)
        if ((m->costs.cost[i] != NULL) && (m->costs.scatter[i] == NULL))
            return CT_FAIL(CT_ERR_CONFIG, "allreduce \"%s\" cannot be done in halves",
                           ct_coll_table[i]->name);
    m->line.line.owned = 1.0 / t->n_rank;
    m->line.line.visits = (zero->stage == 3);
    m->line.line.ahead = zero->ahead;
    return CT_OK;
}

ct_status ct_step_model_run(const ct_profile *profile, const ct_topo *topo,
                            const ct_grad_pipe_config *config, const ct_step_model_own *own,
                            const ct_profile_zero *zero, ct_step_timeline_overlap overlap,
                            double factor, ct_step_model *out)
{
    model m = { .p = profile, .config = config, .own = own };
    double one_core = 0;
    ct_status status;

    memset(out, 0, sizeof(*out));
    status = ct_profile_make_line(profile, overlap, factor, &m.line);
    m.line.line.after_all = config->after_all;
    one_core = ct_topo_codec_speed(topo).one_core;
    if (config->progress == CT_PROGRESS_THREAD)
        ct_step_timeline_code_apart(&m.line.line, profile->threads, one_core);
    if (status == CT_OK) status = create_costs(topo, config, &m.costs);
    if (status == CT_OK) status = share_out(&m, topo, zero);
    m.apart = m.line.line;
    ct_step_timeline_code_apart(&m.apart, profile->threads, one_core);
    if (status == CT_OK) status = make_ranges(&m);
    if (status == CT_OK)
        status = ct_bucket_sizes_by(cost_of, &m.costs, topo->n_rank, config->bucket_bytes, m.range,
                                    profile->n_param, &m.sizes);
    if (status == CT_OK) status = choose(&m, topo);
    if (status == CT_OK) status = fill_buckets(&m, topo->n_rank, out);
    if (status == CT_OK) status = find_coding(&m, out);
    out->step_s = m.plan.times.step_s;
    out->exposed_s = m.plan.times.exposed_s;
    out->bytes_sent = m.plan.bytes;
    out->apart = m.plan.apart || (m.line.line.alone > 0);
    out->compute_s = factor * ct_profile_compute_s(profile);
    if (config->after_all) out->compute_s += factor * ct_profile_norm_s(profile);
    model_release(&m);
    return status;
}

void ct_step_model_release(ct_step_model *m)
{
    free(m->bucket);
    memset(m, 0, sizeof(*m));
}

/* ---- jitter */

double ct_step_model_slowest(const ct_profile *p, int64_t n)
{
    double *v = calloc((size_t)p->n_sample + 1, sizeof(*v)), sum = 0, k = p->n_sample;

    if ((v == NULL) || (p->n_sample == 0)) {
        free(v);
        return 1;
    }
    for (int i = 0; i < p->n_sample; i++) v[i] = ct_profile_jitter(p, i);
    ct_sort(v, p->n_sample);
    /* the largest of n is the i-th smallest sample with probability ((i+1)/k)^n - (i/k)^n */
    for (int i = 0; i < p->n_sample; i++)
        sum += v[i] * (pow((i + 1) / k, (double)n) - pow(i / k, (double)n));
    free(v);
    return sum;
}

double ct_step_model_mean(const ct_profile *p)
{
    double sum = 0;

    for (int i = 0; i < p->n_sample; i++) sum += ct_profile_jitter(p, i);
    return (p->n_sample > 0) ? sum / p->n_sample : 1;
}

/* ---- reading samples */

static ct_status set_field(const char *option, const char *text, const char *name, size_t n,
                           double v, ct_read_model *m)
{
    static const char *const field[] = { "bytes", "node", "file", "total", "files" };
    double *const to[] = { &m->sample_bytes, &m->node, &m->file, &m->total };

    for (size_t i = 0; i < 5; i++) {
        if ((strlen(field[i]) != n) || (strncmp(name, field[i], n) != 0)) continue;
        if (i == 4) {
            if ((v != floor(v)) || (v > 1e6)) break;
            m->files = (int64_t)v;
        } else {
            *to[i] = (i == 0) ? v : v * 1e9;
        }
        return CT_OK;
    }
    return CT_FAIL(
        CT_ERR_CONFIG,
        "--%s=%s: \"%.*s\": expected bytes (of a sample), node, file, total (GB/s), files "
        "(a whole number)",
        option, text, (int)n, name);
}

ct_status ct_read_model_parse(const char *option, const char *text, ct_read_model *m)
{
    ct_read_model r = *m;

    if (r.files == 0) r.files = 1;
    for (const char *at = text;;) {
        size_t n = strcspn(at, "=,");
        char *end = NULL;
        double v = 0;

        if ((at[n] != '=') || !ct_number_real(at + n + 1, &end, &v) ||
            ((*end != ',') && (*end != '\0')) || (v <= 0))
            return CT_FAIL(CT_ERR_CONFIG,
                           "--%s=%s: expected NAME=NUMBER above 0, as in "
                           "bytes=750000,node=1.2,file=0.5,files=32",
                           option, text);
        CT_TRY(set_field(option, text, at, n, v, &r));
        if (*end == '\0') break;
        at = end + 1;
    }
    if (r.sample_bytes <= 0)
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: bytes of a sample are missing", option, text);
    if ((r.node <= 0) && (r.file <= 0) && (r.total <= 0))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: no bandwidth: node, file or total", option, text);
    *m = r;
    return CT_OK;
}

ct_read_times ct_read_model_run(const ct_read_model *m, int64_t nodes, double node_batch)
{
    double bytes = m->sample_bytes * node_batch;
    int64_t batches = (nodes + m->files - 1) / m->files;
    ct_read_times t = { .bound = "node" };

    t.readers = (m->files == 1 || 2 * batches > nodes) ? nodes : 2 * batches;
    if (m->node > 0) t.node_s = bytes / m->node;
    if (m->file > 0) t.file_s = bytes * (double)batches / m->file;
    if (m->total > 0) t.total_s = bytes * (double)nodes / m->total;
    t.read_s = t.node_s;
    if (t.file_s > t.read_s) {
        t.read_s = t.file_s;
        t.bound = "file";
    }
    if (t.total_s > t.read_s) {
        t.read_s = t.total_s;
        t.bound = "system";
    }
    return t;
}
