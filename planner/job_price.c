#include "planner/job_price.h"

#include <math.h>
#include <stdlib.h>

/* ---- made */

static double *take(double **room, size_t n)
{
    double *p = *room;

    *room += n;
    return p;
}

static double share_of(const ct_job_prices *g, int k)
{
    return (double)g->kind.group[k].share;
}

/* Weights that replicas share out come for each forward and backward, beside what is computed. */
static void visit_weights(const ct_job_prices *g, ct_job_price *p)
{
    double others = 1 - 1.0 / g->kind.data;

    if ((g->kind.zero < 3) || (g->kind.data == 1)) return;
    for (int x = 0; x < g->n_block; x++) {
        for (int w = 0; w < CT_JOB_N_WAY; w++) {
            size_t i = ct_job_cell(x, w);
            double come_s =
                g->s->block[i].weights * g->n->block[x].learned * others * g->kind.ring.byte_s;

            p->forward[i] = fmax(p->forward[i], come_s);
            p->backward[i] = fmax(p->backward[i], come_s);
        }
    }
}

static void price_group(ct_job_prices *g, int k)
{
    const ct_job_class *kind = &g->m->kind[g->kind.group[k].kind];
    ct_job_price *p = &g->group[k];
    double b = share_of(g, k), part = ceil(b / g->s->tensor);

    ct_job_split_price(g->n, g->s, CT_JOB_FORWARD, kind, g->kind.tensor, b, p->forward);
    ct_job_split_price(g->n, g->s, CT_JOB_BACKWARD, kind, g->kind.tensor, b, p->backward);
    p->limit = kind->memory;
    for (int x = 0; x < g->n_block; x++) {
        const ct_job_block *block = &g->n->block[x];

        for (int w = 0; w < CT_JOB_N_WAY; w++) {
            const ct_job_ways *ways = &g->s->block[ct_job_cell(x, w)];
            double own = (w == CT_JOB_BATCH) ? part : b, more = own / b * g->s->tensor;

            /* what is uneven is that of the rank that has most */
            if (w != CT_JOB_BATCH) more = 1;
            p->again[ct_job_cell(x, w)] =
                (1 - ways->once) * block->again * p->forward[ct_job_cell(x, w)];
            p->kept[ct_job_cell(x, w)] = ways->kept * more * ct_job_line_at(block->kept, b);
            p->fixed[ct_job_cell(x, w)] = ways->kept * more * ct_job_line_at(block->fixed, b);
            p->input[ct_job_cell(x, w)] = ways->input * more * ct_job_line_at(block->input, b);
            p->other[ct_job_cell(x, w)] = ways->other * more * ct_job_line_at(block->other, b);
        }
    }
    visit_weights(g, p);
}

static void take_slowest(ct_job_prices *g)
{
    ct_job_price *all = &g->group[g->kind.n_group];

    for (int k = 0; k < g->kind.n_group; k++) {
        const ct_job_price *p = &g->group[k];

        for (size_t i = 0; i < ct_job_cell(g->n_block, 0); i++) {
            all->forward[i] = fmax(all->forward[i], p->forward[i]);
            all->backward[i] = fmax(all->backward[i], p->backward[i]);
            all->again[i] = fmax(all->again[i], p->again[i]);
        }
    }
}

/* Of the groups that with the largest part of its limit, were everything kept. */
static void find_full(ct_job_prices *g)
{
    double most = -1;

    for (int k = 0; k < g->kind.n_group; k++) {
        const ct_job_price *p = &g->group[k];
        double sum = 0;

        for (int x = 0; x < g->n_block; x++)
            sum += g->weights[ct_job_cell(x, CT_JOB_BATCH)] + p->kept[ct_job_cell(x, CT_JOB_BATCH)];
        if (p->limit > 0) sum /= p->limit;
        if ((p->limit == 0) || (sum <= most)) continue;
        most = sum;
        g->full = k;
    }
}

static double slowest_bytes(const ct_job_prices *g)
{
    double least = INFINITY;

    for (int k = 0; k < g->kind.n_group; k++)
        least = fmin(least, g->m->kind[g->kind.group[k].kind].bytes);
    return least;
}

static double ring_part(int n)
{
    return (n > 1) ? 2.0 * (n - 1) / n : 0;
}

/* Of so many bytes of weights, gradients and states, with those of gradients alone: what a rank has
 * where replicas share them out. Windows are not in it: nets tell them (job_exact.h). */
static double part_of(const ct_job_prices *g, double all, double learned)
{
    double others = 1 - 1.0 / g->kind.data;
    double states = learned / sizeof(float) * g->n->options.state_bytes;

    if (g->kind.zero >= 1) all -= others * states;
    if (g->kind.zero >= 2) all -= others * learned;
    if (g->kind.zero >= 3) all -= others * learned; /* as many of weights */
    return all;
}

/* Weights, their gradients' sums, their update. */
static void price_weights(ct_job_prices *g)
{
    double memory = slowest_bytes(g), states = g->n->options.state_bytes;
    double sent = (g->kind.zero == 3) ? 0.5 : 1; /* the first half of a sum: weights come anew */
    double ring = sent * ring_part(g->kind.data) * g->kind.ring.byte_s;
    double group = ring_part(g->s->tensor) * g->kind.tensor.byte_s;

    for (int x = 0; x < g->n_block; x++) {
        for (int w = 0; w < CT_JOB_N_WAY; w++) {
            const ct_job_ways *ways = &g->s->block[ct_job_cell(x, w)];
            double bytes = ways->weights * g->n->block[x].learned, learned = bytes / sizeof(float);

            g->weights[ct_job_cell(x, w)] =
                part_of(g, ways->weights * g->n->block[x].weights, bytes);
            g->sum_bytes[ct_job_cell(x, w)] = sent * ways->summed;
            g->sums[ct_job_cell(x, w)] = ring * ways->summed + group * ways->summed_all;
            g->update[ct_job_cell(x, w)] = (2 * states + 3 * sizeof(float)) * learned / memory;
        }
    }
}

static void price_turns(ct_job_prices *g)
{
    double b = 0;

    for (int k = 0; k < g->kind.n_group; k++) b = fmax(b, share_of(g, k));
    for (int d = 0; d < CT_JOB_N_DIRECTION; d++) {
        for (size_t i = 0; i < ct_job_cell(g->n_block, 0) * CT_JOB_N_WAY; i++)
            g->reshard[i] += ct_job_talk_seconds(&g->s->entry[i], d, g->kind.tensor, b);
        for (size_t i = 0; i < ct_job_cell(g->n_block, 0); i++)
            g->leave[i] += ct_job_talk_seconds(&g->s->leave[i], d, g->kind.tensor, b);
    }
}

/* Whether a tied table lies on the ranks as it is to, where its Embed or its head goes a way.
 * Split, each rank has some of the words: those are the inputs of the Embed, and the outputs of the
 * head. */
static bool ties(const ct_job_prices *g, int way, bool is_head)
{
    int layer = is_head ? g->n->tie_head : g->n->tie_embed;
    int split = g->s->layer[(size_t)layer * CT_JOB_N_WAY + (size_t)way].split;

    if (g->kind.tie_way != CT_JOB_OUTPUT) return way == g->kind.tie_way;
    return split == (is_head ? CT_PARALLEL_OUTPUT : CT_PARALLEL_INPUT);
}

static void tie(ct_job_prices *g)
{
    ct_job_price *all = &g->group[g->kind.n_group];

    if ((g->kind.tie_way < 0) || (g->n->tie_first < 0)) return;
    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        if (!ties(g, w, false)) all->forward[ct_job_cell(g->n->tie_first, w)] = INFINITY;
        if (!ties(g, w, true)) all->forward[ct_job_cell(g->n->tie_last, w)] = INFINITY;
    }
}

static void lay_out(ct_job_prices *g)
{
    size_t n = ct_job_cell(g->n_block, 0);
    double *room = g->numbers;

    for (int k = 0; k <= g->kind.n_group; k++) {
        ct_job_price *p = &g->group[k];

        p->forward = take(&room, n);
        p->backward = take(&room, n);
        p->again = take(&room, n);
        p->kept = take(&room, n);
        p->fixed = take(&room, n);
        p->input = take(&room, n);
        p->other = take(&room, n);
    }
    g->weights = take(&room, n);
    g->sums = take(&room, n);
    g->update = take(&room, n);
    g->sum_bytes = take(&room, n);
    g->leave = take(&room, n);
    g->reshard = take(&room, n * CT_JOB_N_WAY);
}
ct_status ct_job_prices_make(const ct_job_net *n, const ct_job_split *s, const ct_job_machine *m,
                             const ct_job_stage_kind *kind, ct_job_prices *p)
{
    ct_job_prices made = { .n = n, .s = s, .m = m, .kind = *kind, .n_block = n->n_block };
    size_t groups = (size_t)kind->n_group + 1;

    made.group = calloc(groups, sizeof(*made.group));
    made.numbers =
        calloc(ct_job_cell(n->n_block, 0) * (7 * groups + 5 + CT_JOB_N_WAY), sizeof(*made.numbers));
    if ((made.group == NULL) || (made.numbers == NULL)) {
        ct_job_prices_destroy(&made);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks of a stage", n->n_block);
    }
    lay_out(&made);
    for (int k = 0; k < kind->n_group; k++) price_group(&made, k);
    take_slowest(&made);
    price_weights(&made);
    price_turns(&made);
    tie(&made);
    find_full(&made);
    *p = made;
    return CT_OK;
}

void ct_job_prices_destroy(ct_job_prices *p)
{
    free(p->group);
    free(p->numbers);
    *p = (ct_job_prices){ 0 };
}

double ct_job_prices_limit(const ct_job_prices *g, int group)
{
    return g->group[(group < 0) ? g->full : group].limit;
}

/* ---- figures of a choice */

double ct_job_prices_tied(const ct_job_prices *g, int first, int end, int way_last)
{
    const ct_job_net *n = g->n;

    if ((n->tie_first < 0) || (n->tie_first >= first) || (n->tie_last < first) ||
        (n->tie_last >= end))
        return 0;
    if ((way_last == CT_JOB_OUTPUT) || (way_last == CT_JOB_INPUT)) return 1.0 / g->s->tensor;
    return 1;
}

static double kept_of(const ct_job_price *p, int first, int end, int64_t in_flight, const int *way,
                      const ct_chain_mode *mode)
{
    double sum = 0, segment = 0, most = 0;

    for (int x = first; x < end; x++) {
        size_t i = ct_job_cell(x, way[x - first]);
        ct_chain_mode m = mode[x - first];

        if (m == CT_CHAIN_START) segment = 0;
        if (m != CT_CHAIN_KEEP) segment += p->kept[i];
        if (m == CT_CHAIN_KEEP) sum += p->kept[i];
        if (m == CT_CHAIN_START) sum += p->input[i];
        sum += p->fixed[i];
        most = fmax(most, segment);
    }
    return (double)in_flight * sum + most;
}

ct_job_figures ct_job_prices_figures(const ct_job_prices *g, int first, int end, int64_t in_flight,
                                     const int *way, const ct_chain_mode *mode, int group)
{
    const ct_job_price *p = &g->group[(group < 0) ? g->kind.n_group : group];
    const ct_job_price *bytes = &g->group[(group < 0) ? g->full : group];
    ct_job_figures f = { .kept = kept_of(bytes, first, end, in_flight, way, mode) };

    for (int x = first; x < end; x++) {
        int w = way[x - first];
        size_t i = ct_job_cell(x, w);

        f.forward_s += p->forward[i];
        f.backward_s += p->backward[i];
        if (mode[x - first] != CT_CHAIN_KEEP) f.again_s += p->again[i];
        f.sums_s += g->sums[i];
        f.update_s += g->update[i];
        f.sum_bytes += g->sum_bytes[i];
        f.weights += g->weights[i];
        f.other = fmax(f.other, bytes->other[i]);
        if (x == g->n->tie_last)
            f.weights += ct_job_prices_tied(g, first, end, w) * g->n->tie_weights;
        if (x > first) /* half of it forward, half backward */
            f.forward_s +=
                g->reshard[ct_job_cell(x, way[x - first - 1]) * CT_JOB_N_WAY + (size_t)w] / 2,
                f.backward_s +=
                g->reshard[ct_job_cell(x, way[x - first - 1]) * CT_JOB_N_WAY + (size_t)w] / 2;
        if ((x == end - 1) && (x < g->n_block - 1)) f.forward_s += g->leave[i];
    }
    f.backward_s += f.again_s;
    return f;
}
