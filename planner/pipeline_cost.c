#include "planner/pipeline_cost.h"

#include <math.h>
#include <stdlib.h>

/* ---- where ranks lie */

int ct_pipeline_tensor(const ct_pipeline_problem *p, const ct_pipeline_config *c)
{
    return p->net->degree[c->degree];
}

int64_t ct_pipeline_micro_batches(const ct_pipeline_problem *p, const ct_pipeline_config *c)
{
    return p->global_batch / ((int64_t)c->data * c->micro_batch);
}

ct_status ct_pipeline_fits_ranks(const ct_pipeline_problem *p, const ct_pipeline_config *c)
{
    int64_t ranks = (int64_t)p->machine->n_node * p->machine->ranks_per_node;
    int tensor = ct_pipeline_tensor(p, c);

    if ((c->data < 1) || (c->n_stage < 1) || (c->micro_batch < 1)) return CT_UNSUPPORTED;
    if ((int64_t)tensor * c->data * c->n_stage != ranks) return CT_UNSUPPORTED;
    if (p->machine->ranks_per_node % tensor != 0) return CT_UNSUPPORTED;
    if (c->n_stage > p->net->n_layer) return CT_UNSUPPORTED;
    return (p->global_batch % ((int64_t)c->data * c->micro_batch) == 0) ? CT_OK : CT_UNSUPPORTED;
}

static int node_of(const ct_pipeline_problem *p, const ct_pipeline_config *c, int stage,
                   int replica)
{
    int64_t rank = ((int64_t)stage * c->data + replica) * ct_pipeline_tensor(p, c);

    return c->order[rank / p->machine->ranks_per_node];
}

static double inject_of(const ct_pipeline_machine *m, int node)
{
    return m->inject[m->node_class[node]];
}

/* bytes/s that one stream between two ranks gets alone. */
static double pair_bandwidth(const ct_pipeline_machine *m, int a, int b)
{
    if (a == b) return m->inside[m->node_class[a]];
    return fmin(inject_of(m, a), inject_of(m, b));
}

/* ---- samples of replicas */

static double batch_factor(const ct_pipeline_problem *p, const ct_pipeline_config *c, int samples)
{
    double rho = p->net->rho[c->degree];

    return (1 - rho) * samples + rho;
}

static size_t row_of(const ct_pipeline_net *net, int node_class, int degree)
{
    return ((size_t)node_class * (size_t)net->n_degree + (size_t)degree) * (size_t)net->n_layer;
}

/* What one sample takes the whole net on a node of the class: replicas are compared by it. */
static double net_time(const ct_pipeline_problem *p, const ct_pipeline_config *c, int node_class)
{
    size_t row = row_of(p->net, node_class, c->degree);
    double sum = 0;

    for (int l = 0; l < p->net->n_layer; ++l)
        sum += p->net->forward_s[row + l] + p->net->backward_s[row + l];
    return sum;
}

/* The replica that ends first with one more sample; alike ones, which stand side by side, in turns.
 */
static int first_to_end(const ct_pipeline_problem *p, const ct_pipeline_config *c,
                        const double *time, const int *share)
{
    double least = INFINITY;
    int first = 0;

    for (int j = 0; j < c->data; ++j) {
        double end = time[j] * batch_factor(p, c, share[j] + 1);

        if (end >= least) continue;
        least = end;
        first = j;
    }
    return first;
}

ct_status ct_pipeline_shares(const ct_pipeline_problem *p, const ct_pipeline_config *c, int stage,
                             int *share)
{
    double *time;
    bool alike = true;

    for (int j = 0; j < c->data; ++j) {
        share[j] = c->micro_batch;
        alike = alike && (p->machine->node_class[node_of(p, c, stage, j)] ==
                          p->machine->node_class[node_of(p, c, stage, 0)]);
    }
    if (!p->uneven || alike) return CT_OK;
    time = malloc((size_t)c->data * sizeof(*time));
    if (time == NULL) return CT_FAIL(CT_ERR_NOMEM, "shares of %d replicas", c->data);
    for (int j = 0; j < c->data; ++j) {
        time[j] = net_time(p, c, p->machine->node_class[node_of(p, c, stage, j)]);
        share[j] = 1;
    }
    for (int64_t left = (int64_t)c->data * (c->micro_batch - 1); left > 0; --left)
        ++share[first_to_end(p, c, time, share)];
    free(time);
    return CT_OK;
}

/* A configuration whose samples are dealt. */
typedef struct placed {
    const ct_pipeline_problem *p;
    const ct_pipeline_config *c;
    int *share;      /* [stage][replica] */
    double *streams; /* that leave and enter each node, [2][n_node] */
} placed;

static void drop_placed(placed *x)
{
    free(x->share);
    free(x->streams);
}

static ct_status place(const ct_pipeline_problem *p, const ct_pipeline_config *c, placed *x)
{
    ct_status status = CT_OK;

    *x = (placed){ .p = p, .c = c };
    x->share = malloc((size_t)c->n_stage * (size_t)c->data * sizeof(*x->share));
    x->streams = calloc(2 * (size_t)p->machine->n_node, sizeof(*x->streams));
    if ((x->share == NULL) || (x->streams == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "pipeline of %d stages", c->n_stage);
    for (int s = 0; (s < c->n_stage) && (status == CT_OK); ++s)
        status = ct_pipeline_shares(p, c, s, x->share + (size_t)s * (size_t)c->data);
    if (status != CT_OK) drop_placed(x);
    return status;
}

/* Samples that a replica of a stage sends to one of the next stage. */
typedef struct overlap {
    int from, to, samples;
    int left_from, left_to; /* of their shares */
} overlap;

/* The next of stage s and s + 1; begins with zeroes. Samples are in the order of the replicas. */
static bool next_overlap(const placed *x, int s, overlap *o)
{
    const int *from = x->share + (size_t)s * (size_t)x->c->data, *to = from + x->c->data;

    if (o->samples == 0) {
        o->left_from = from[0];
        o->left_to = to[0];
    }
    o->left_from -= o->samples;
    o->left_to -= o->samples;
    if (o->left_from == 0) {
        if (++o->from == x->c->data) return false;
        o->left_from = from[o->from];
    }
    if (o->left_to == 0) o->left_to = to[++o->to];
    o->samples = (o->left_from < o->left_to) ? o->left_from : o->left_to;
    return true;
}

/* ---- links */

static void clear_streams(const placed *x)
{
    for (int i = 0; i < 2 * x->p->machine->n_node; ++i) x->streams[i] = 0;
}

static void add_stream(const placed *x, int a, int b, double streams)
{
    if (a == b) return;
    x->streams[a] += streams;
    x->streams[x->p->machine->n_node + b] += streams;
}

/* Seconds that a unit of `streams` takes between two nodes: as many go from pair to pair. */
static double stream_time(const placed *x, int a, int b, double streams)
{
    const ct_pipeline_machine *m = x->p->machine;
    double time = streams / pair_bandwidth(m, a, b);

    if (a == b) return time;
    time = fmax(time, x->streams[a] / inject_of(m, a));
    return fmax(time, x->streams[m->n_node + b] / inject_of(m, b));
}

/* Edges of the ring of a stage's replicas that leave and enter each node, and the seconds of a byte
 * over the slowest edge. */
static double ring_time(const placed *x, int s)
{
    int n = x->c->data;
    double most = 0;

    clear_streams(x);
    for (int j = 0; j < n; ++j)
        add_stream(x, node_of(x->p, x->c, s, j), node_of(x->p, x->c, s, (j + 1) % n),
                   ct_pipeline_tensor(x->p, x->c));
    for (int j = 0; j < n; ++j)
        most = fmax(most, stream_time(x, node_of(x->p, x->c, s, j),
                                      node_of(x->p, x->c, s, (j + 1) % n), 1));
    return most;
}

/* Seconds of a byte of every sample, all replicas at a time, behind stage s. */
static double cut_time(const placed *x, int s)
{
    double most = 0;

    clear_streams(x);
    for (overlap o = { 0 }; next_overlap(x, s, &o);)
        add_stream(x, node_of(x->p, x->c, s, o.from), node_of(x->p, x->c, s + 1, o.to),
                   (double)o.samples * ct_pipeline_tensor(x->p, x->c));
    for (overlap o = { 0 }; next_overlap(x, s, &o);)
        most = fmax(most, stream_time(x, node_of(x->p, x->c, s, o.from),
                                      node_of(x->p, x->c, s + 1, o.to), o.samples));
    return most;
}

/* ---- tables */

static double ring_factor(const ct_pipeline_config *c)
{
    return 2.0 * (c->data - 1) / c->data;
}

static void fill_stage(const placed *x, int s, ct_pipeline_tables *t)
{
    const ct_pipeline_net *net = x->p->net;
    const ct_pipeline_machine *m = x->p->machine;
    const int *share = x->share + (size_t)s * (size_t)x->c->data;
    size_t own = (size_t)s * (size_t)net->n_layer, row = row_of(net, 0, x->c->degree);
    double sum = (x->c->data > 1) ? ring_time(x, s) * ring_factor(x->c) : 0;
    double cut = (s + 1 < x->c->n_stage) ? cut_time(x, s) : 0;
    int before = -1;

    for (int j = 0; j < x->c->data; ++j) {
        int node_class = m->node_class[node_of(x->p, x->c, s, j)];
        size_t from = row_of(net, node_class, x->c->degree);
        double factor = batch_factor(x->p, x->c, share[j]);

        if ((node_class == before) && (share[j] == share[j - 1])) continue;
        before = node_class;
        for (int l = 0; l < net->n_layer; ++l) {
            double time = (net->forward_s[from + l] + net->backward_s[from + l]) * factor;

            t->time_s[own + l] = fmax(t->time_s[own + l], time);
        }
    }
    for (int l = 0; l < net->n_layer; ++l) {
        t->data_s[own + l] = sum * net->sum_bytes[row + l];
        if (s + 1 < x->c->n_stage) t->cut_s[own + l] = m->latency_s + cut * net->cut_bytes[row + l];
    }
}

ct_status ct_pipeline_tables_create(const ct_pipeline_problem *p, const ct_pipeline_config *c,
                                    ct_pipeline_tables *tables_p)
{
    size_t cells = (size_t)c->n_stage * (size_t)p->net->n_layer;
    ct_pipeline_tables t = { .n_stage = c->n_stage, .n_layer = p->net->n_layer };
    placed x;

    CT_TRY(place(p, c, &x));
    t.n_micro = (int)ct_pipeline_micro_batches(p, c);
    t.time_s = calloc(3 * cells, sizeof(*t.time_s));
    if (t.time_s == NULL) {
        drop_placed(&x);
        return CT_FAIL(CT_ERR_NOMEM, "pipeline of %d stages", c->n_stage);
    }
    t.data_s = t.time_s + cells;
    t.cut_s = t.data_s + cells;
    for (int s = 0; s < c->n_stage; ++s) fill_stage(&x, s, &t);
    drop_placed(&x);
    *tables_p = t;
    return CT_OK;
}

void ct_pipeline_tables_destroy(ct_pipeline_tables *t)
{
    free(t->time_s);
    *t = (ct_pipeline_tables){ 0 };
}

/* What the tables count twice: the sums of second layers of a tie within first .. end - 1. */
static double tied(const ct_pipeline_net *net, const double *of_layer, int first, int end)
{
    double twice = 0;

    for (int i = 0; i < net->n_tie; ++i) {
        if ((net->tie[i].first >= first) && (net->tie[i].second < end))
            twice += of_layer[net->tie[i].second];
    }
    return twice;
}

double ct_pipeline_estimate_s(const ct_pipeline_problem *p, const ct_pipeline_tables *t,
                              const int *layers)
{
    double all = 0, slowest = 0, most = 0, before = 0;

    for (int s = 0, first = 0; s < t->n_stage; ++s) {
        const double *time_s = t->time_s + (size_t)s * (size_t)t->n_layer;
        const double *data_s = t->data_s + (size_t)s * (size_t)t->n_layer;
        int end = first + layers[s];
        double stage = 0, data = -tied(p->net, data_s, first, end), behind = 0;

        for (int l = first; l < end; ++l) {
            stage += time_s[l];
            data += data_s[l];
        }
        if (s + 1 < t->n_stage) behind = t->cut_s[(size_t)s * (size_t)t->n_layer + end - 1];
        all += stage + 2 * behind;
        slowest = fmax(slowest, stage + before + behind);
        most = fmax(most, data);
        before = behind;
        first = end;
    }
    return all + (t->n_micro - 1) * slowest + most;
}

/* The least of a layer over the first n rows of a table. */
static double least_of(const double *table, int n, int n_layer, int layer)
{
    double least = INFINITY;

    for (int s = 0; s < n; ++s) least = fmin(least, table[(size_t)s * (size_t)n_layer + layer]);
    return least;
}

/* How many stages there are, each counted by the largest part of any layer's least time that it can
 * do in the same time: so many times the slowest stage do all layers. */
static double count_stages(const ct_pipeline_tables *t, const double *least)
{
    double count = 0;

    for (int s = 0; s < t->n_stage; ++s) {
        double most = 0;

        for (int l = 0; l < t->n_layer; ++l) {
            double time = t->time_s[(size_t)s * (size_t)t->n_layer + l];

            if (time > 0) most = fmax(most, least[l] / time);
        }
        count += most;
    }
    return count;
}

ct_status ct_pipeline_bound_s(const ct_pipeline_problem *p, const ct_pipeline_tables *t,
                              double *bound_s_p)
{
    double *least = malloc((size_t)t->n_layer * sizeof(*least));
    double all = 0, data = 0, slowest = 0, cuts = 0, cut = INFINITY, count;
    int n = t->n_stage;

    if (least == NULL) return CT_FAIL(CT_ERR_NOMEM, "a bound for %d layers", t->n_layer);
    for (int l = 0; l < t->n_layer; ++l) {
        least[l] = least_of(t->time_s, n, t->n_layer, l);
        all += least[l];
        slowest = fmax(slowest, least[l]);
        data += least_of(t->data_s, n, t->n_layer, l);
        if (l + 1 < t->n_layer) cut = fmin(cut, least_of(t->cut_s, n - 1, t->n_layer, l));
    }
    for (int i = 0; i < p->net->n_tie; ++i)
        data -= least_of(t->data_s, n, t->n_layer, p->net->tie[i].second);
    count = count_stages(t, least);
    if (n > 1) cuts = 2 * (n - 1) * cut;
    if (count > 0) slowest = fmax(slowest, all / count);
    slowest = fmax(slowest, (all + cuts) / n);
    *bound_s_p = all + cuts + (t->n_micro - 1) * slowest + fmax(0, data) / n;
    free(least);
    return CT_OK;
}

/* The most of what a stage's replicas need over what they have. */
static double stage_memory(const placed *x, int s, double fixed, double kept)
{
    const ct_pipeline_machine *m = x->p->machine;
    double in_flight =
        fmin((double)ct_pipeline_micro_batches(x->p, x->c), (double)(x->c->n_stage - s));
    double worst = 0;

    for (int j = 0; j < x->c->data; ++j) {
        double has = m->memory[m->node_class[node_of(x->p, x->c, s, j)]];
        double samples = in_flight * x->share[(size_t)s * (size_t)x->c->data + (size_t)j];

        if (has > 0) worst = fmax(worst, (fixed + samples * kept) / has);
    }
    return worst;
}

ct_status ct_pipeline_memory_ratio(const ct_pipeline_problem *p, const ct_pipeline_config *c,
                                   const int *layers, double *ratio_p)
{
    const ct_pipeline_net *net = p->net;
    size_t row = row_of(net, 0, c->degree);
    double worst = 0;
    placed x;

    *ratio_p = 0;
    if ((net->fixed_bytes == NULL) || (p->machine->memory == NULL)) return CT_OK;
    CT_TRY(place(p, c, &x));
    for (int s = 0, first = 0; s < c->n_stage; first += layers[s++]) {
        double fixed = -tied(net, net->fixed_bytes + row, first, first + layers[s]), kept = 0;

        for (int l = first; l < first + layers[s]; ++l) {
            fixed += net->fixed_bytes[row + l];
            kept += net->kept_bytes[row + l];
        }
        worst = fmax(worst, stage_memory(&x, s, fixed, kept));
    }
    drop_placed(&x);
    *ratio_p = worst;
    return CT_OK;
}

/* ---- simulation */

/* All that a simulated step borrows. */
typedef struct model {
    ct_pipeline_list *list;
    ct_pipeline_worker *worker;
    ct_pipeline_message *message;
    ct_pipeline_sum *sum;
    ct_pipeline_load *load;
    ct_pipeline_bucket *bucket;
    int *member;
    double *link;
    int n_message;
    size_t n_load, n_bucket;
} model;

static void destroy_model(model *m, int n_stage)
{
    ct_pipeline_lists_destroy(m->list, n_stage);
    free(m->worker);
    free(m->message);
    free(m->sum);
    free(m->load);
    free(m->bucket);
    free(m->member);
    free(m->link);
}

static ct_status create_model(const ct_pipeline_problem *p, const ct_pipeline_config *c, model *m)
{
    size_t workers = (size_t)c->n_stage * (size_t)c->data, nodes = (size_t)p->machine->n_node;

    m->worker = calloc(workers, sizeof(*m->worker));
    m->message = calloc(2 * workers, sizeof(*m->message));
    m->sum = calloc((size_t)c->n_stage, sizeof(*m->sum));
    m->load = calloc(8 * workers + 2 * nodes * (size_t)c->n_stage, sizeof(*m->load));
    m->bucket = calloc((size_t)p->net->n_layer + (size_t)c->n_stage, sizeof(*m->bucket));
    m->member = calloc(workers, sizeof(*m->member));
    m->link = calloc(2 * nodes, sizeof(*m->link));
    if ((m->worker == NULL) || (m->message == NULL) || (m->sum == NULL) || (m->load == NULL) ||
        (m->bucket == NULL) || (m->member == NULL) || (m->link == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "pipeline of %d stages", c->n_stage);
    for (size_t i = 0; i < nodes; ++i) {
        m->link[i] = inject_of(p->machine, (int)i);
        m->link[nodes + i] = m->link[i];
    }
    return ct_pipeline_lists_1f1b(c->n_stage, (int)ct_pipeline_micro_batches(p, c), &m->list);
}

static void set_worker(const placed *x, model *m, int s, int j, int first, int end)
{
    const ct_pipeline_net *net = x->p->net;
    int worker = s * x->c->data + j;
    int node_class = x->p->machine->node_class[node_of(x->p, x->c, s, j)];
    size_t row = row_of(net, node_class, x->c->degree);
    double forward = 0, backward = 0, factor = batch_factor(x->p, x->c, x->share[worker]);

    for (int l = first; l < end; ++l) {
        forward += net->forward_s[row + l];
        backward += net->backward_s[row + l];
    }
    m->worker[worker] = (ct_pipeline_worker){ &m->list[s], forward * factor, backward * factor };
}

/* Between two nodes: the sender's card, the receiver's card. */
static ct_pipeline_flow make_flow(const ct_pipeline_problem *p, model *m, int from, int to,
                                  int streams, double bytes)
{
    ct_pipeline_flow flow = { .bytes = bytes, .latency_s = p->machine->latency_s };

    flow.bandwidth = pair_bandwidth(p->machine, from, to);
    flow.load = &m->load[m->n_load];
    if (from != to) {
        m->load[m->n_load++] = (ct_pipeline_load){ from, streams };
        m->load[m->n_load++] = (ct_pipeline_load){ p->machine->n_node + to, streams };
        flow.n_load = 2;
    }
    return flow;
}

static void set_messages(const placed *x, model *m, int s, int last)
{
    const ct_pipeline_problem *p = x->p;
    int streams = ct_pipeline_tensor(p, x->c);
    double bytes = p->net->cut_bytes[row_of(p->net, 0, x->c->degree) + last];

    for (overlap o = { 0 }; next_overlap(x, s, &o);) {
        int a = node_of(p, x->c, s, o.from), b = node_of(p, x->c, s + 1, o.to);

        m->message[m->n_message++] = (ct_pipeline_message){
            .from = s * x->c->data + o.from,
            .to = (s + 1) * x->c->data + o.to,
            .forward = make_flow(p, m, a, b, streams, o.samples * bytes),
            .backward = make_flow(p, m, b, a, streams, o.samples * bytes),
        };
    }
}

/* Buckets of a stage's gradients in the order of backward; all together behind it where the
 * problem says so. */
static int set_buckets(const ct_pipeline_problem *p, const ct_pipeline_config *c, int first,
                       int end, double bytes, ct_pipeline_bucket *bucket)
{
    size_t row = row_of(p->net, 0, c->degree);
    double all = 0, done = 0, held = 0, left = bytes;
    int n = 0;

    if ((p->bucket_bytes <= 0) || (bytes <= 0)) {
        bucket[0] = (ct_pipeline_bucket){ 1, 1 };
        return 1;
    }
    for (int l = first; l < end; ++l) all += p->net->backward_s[row + l];
    for (int l = end - 1; l >= first; --l) {
        done += p->net->backward_s[row + l];
        held = fmin(held + p->net->sum_bytes[row + l], left);
        if ((held < p->bucket_bytes) && (l > first)) continue;
        bucket[n++] = (ct_pipeline_bucket){ (all > 0) ? fmin(1, done / all) : 1, held / bytes };
        left -= held;
        held = 0;
    }
    return n;
}

static void set_sum(const placed *x, model *m, int s, int first, int end)
{
    const ct_pipeline_problem *p = x->p;
    const ct_pipeline_config *c = x->c;
    const double *of_layer = p->net->sum_bytes + row_of(p->net, 0, c->degree);
    double bytes = -tied(p->net, of_layer, first, end), bandwidth = INFINITY;
    ct_pipeline_sum *sum = &m->sum[s];

    for (int l = first; l < end; ++l) bytes += of_layer[l];
    sum->n_member = c->data;
    sum->member = &m->member[s * c->data];
    sum->bucket = &m->bucket[m->n_bucket];
    sum->n_bucket = set_buckets(p, c, first, end, bytes, &m->bucket[m->n_bucket]);
    m->n_bucket += (size_t)sum->n_bucket;
    sum->flow = (ct_pipeline_flow){ .bytes = ring_factor(c) * bytes,
                                    .load = &m->load[m->n_load],
                                    .latency_s = 2 * (c->data - 1) * p->machine->latency_s };
    ring_time(x, s);
    for (int j = 0; j < c->data; ++j) {
        int a = node_of(p, c, s, j), b = node_of(p, c, s, (j + 1) % c->data);

        m->member[s * c->data + j] = s * c->data + j;
        bandwidth = fmin(bandwidth, pair_bandwidth(p->machine, a, b));
    }
    sum->flow.bandwidth = bandwidth;
    for (int i = 0; i < 2 * p->machine->n_node; ++i) {
        if (x->streams[i] > 0) m->load[m->n_load++] = (ct_pipeline_load){ i, x->streams[i] };
    }
    sum->flow.n_load = (int)(&m->load[m->n_load] - sum->flow.load);
}

ct_status ct_pipeline_simulate_s(const ct_pipeline_problem *p, const ct_pipeline_config *c,
                                 const int *layers, double *step_s_p)
{
    model m = { 0 };
    placed x;
    ct_pipeline_times times;
    ct_status status;

    CT_TRY(place(p, c, &x));
    status = create_model(p, c, &m);
    if (status == CT_OK) {
        ct_pipeline_step step = { .n_worker = c->n_stage * c->data,
                                  .n_sum = (c->data > 1) ? c->n_stage : 0,
                                  .n_link = 2 * p->machine->n_node,
                                  .worker = m.worker,
                                  .message = m.message,
                                  .sum = m.sum,
                                  .link = m.link,
                                  .n_micro = (int)ct_pipeline_micro_batches(p, c),
                                  .sends_block = p->sends_block };

        for (int s = 0, first = 0; s < c->n_stage; first += layers[s++]) {
            int end = first + layers[s];

            for (int j = 0; j < c->data; ++j) set_worker(&x, &m, s, j, first, end);
            if (s + 1 < c->n_stage) set_messages(&x, &m, s, end - 1);
            if (c->data > 1) set_sum(&x, &m, s, first, end);
        }
        step.n_message = m.n_message;
        status = ct_pipeline_simulate(&step, &times, NULL);
    }
    if (status == CT_OK) *step_s_p = times.step_s;
    destroy_model(&m, c->n_stage);
    drop_placed(&x);
    return status;
}
