#include "planner/job_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/prototxt.h"

/* Stages that a space remembers. */
#define MOST_STAGES 160
/* Times that a choice is made again where it does not fit, or leaves much. */
#define MOST_TRIES 12
#define WASTE      0.02

double ct_job_plan_bytes(const ct_job_figures *f)
{
    return f->weights + f->kept + f->other;
}

/* ---- the space */

void ct_job_space_destroy(ct_job_space *s)
{
    for (int i = 0; i < s->n_split; i++) ct_job_split_destroy(&s->split[i]);
    for (int i = 0; i < s->n_stage; i++) ct_job_stage_destroy(s->stage[i]);
    free(s->split);
    free(s->stage);
    s->split = NULL;
    s->stage = NULL;
    s->n_split = s->n_stage = s->most_stage = 0;
}

void ct_job_space_trim(ct_job_space *s)
{
    if (s->n_stage <= MOST_STAGES) return;
    for (int i = 0; i < s->n_stage; i++) ct_job_stage_destroy(s->stage[i]);
    s->n_stage = 0;
}

ct_status ct_job_space_split(ct_job_space *s, int tensor, const ct_job_split **split_p)
{
    ct_job_split *more;

    for (int i = 0; i < s->n_split; i++) {
        if (s->split[i].tensor != tensor) continue;
        *split_p = &s->split[i];
        return CT_OK;
    }
    /* the stages point into the array: it never moves */
    if (s->split == NULL) s->split = calloc(CT_JOB_MOST_DEGREES, sizeof(*more));
    if (s->split == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for tensor %d", tensor);
    if (s->n_split == CT_JOB_MOST_DEGREES)
        return CT_FAIL(CT_ERR_ARG, "more than %d tensor degrees", CT_JOB_MOST_DEGREES);
    more = &s->split[s->n_split];
    CT_TRY(ct_job_split_make(s->net, tensor, more));
    s->n_split++;
    *split_p = more;
    return CT_OK;
}

ct_job_layout ct_job_layout_of(const ct_job_space *s, const ct_job_config *c)
{
    return (ct_job_layout){ s->machine, c->order, c->tensor, c->data, c->n_stage, NULL };
}

int64_t ct_job_in_flight(const ct_job_config *c, int stage)
{
    int64_t behind = c->n_stage - stage;

    return (c->micro_batches < behind) ? c->micro_batches : behind;
}

/* ---- stages */

/* A file may have more kinds of replicas than there is room for: those behind count as the last
 * group that has a place, with the largest share of them. */
void ct_job_group_replicas(const ct_job_layout *l, int stage, const int64_t *share,
                           ct_job_stage_kind *kind)
{
    for (int j = 0; j < ct_job_data_of(l, stage); j++) {
        int at = ct_job_class_of(l, stage, j), g = 0;

        while ((g < kind->n_group) &&
               !((kind->group[g].kind == at) && (kind->group[g].share == share[j])))
            g++;
        if (g == CT_JOB_MOST_GROUPS) {
            g--;
            if (share[j] > kind->group[g].share) kind->group[g].share = share[j];
        }
        if (g == kind->n_group) {
            kind->group[g].kind = at;
            kind->group[g].share = share[j];
            kind->n_group++;
        }
        kind->group[g].n++;
    }
}

static bool same_kind(const ct_job_stage_kind *a, const ct_job_stage_kind *b)
{
    if ((a->n_group != b->n_group) || (a->data != b->data) || (a->tie_way != b->tie_way) ||
        (a->zero != b->zero) || (a->micro != b->micro) || (a->tensor.byte_s != b->tensor.byte_s) ||
        (a->tensor.latency_s != b->tensor.latency_s) || (a->ring.byte_s != b->ring.byte_s) ||
        (a->ring.latency_s != b->ring.latency_s) || (a->ring.card_s != b->ring.card_s))
        return false;
    for (int g = 0; g < a->n_group; g++) {
        if ((a->group[g].kind != b->group[g].kind) || (a->group[g].share != b->group[g].share) ||
            (a->group[g].n != b->group[g].n))
            return false;
    }
    return true;
}

ct_status ct_job_space_stage(ct_job_space *s, const ct_job_config *c, int stage,
                             const int64_t *share, ct_job_stage **stage_p)
{
    ct_job_layout l = ct_job_layout_of(s, c);
    ct_job_stage_kind kind = { .data = c->data,
                               .tie_way = c->tie_way,
                               .zero = c->zero,
                               .micro = c->hides_sums ? 0 : c->micro_batches };
    const ct_job_split *split;

    ct_job_group_replicas(&l, stage, share, &kind);
    kind.tensor = ct_job_tensor_link(&l, stage);
    kind.ring = ct_job_ring_link(&l, stage);
    CT_TRY(ct_job_space_split(s, c->tensor, &split));
    for (int i = 0; i < s->n_stage; i++) {
        if ((ct_job_stage_prices(s->stage[i])->s == split) &&
            same_kind(&ct_job_stage_prices(s->stage[i])->kind, &kind)) {
            *stage_p = s->stage[i];
            return CT_OK;
        }
    }
    if (s->n_stage == s->most_stage) {
        int most = 2 * s->most_stage + 16;
        ct_job_stage **more = realloc(s->stage, (size_t)most * sizeof(*more));

        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d stages", most);
        s->stage = more;
        s->most_stage = most;
    }
    CT_TRY(ct_job_stage_create(s->net, split, s->machine, &kind, &s->stage[s->n_stage]));
    *stage_p = s->stage[s->n_stage++];
    return CT_OK;
}

/* ---- shares */

/* Seconds of the whole net with so many samples, the fastest way of each block, on a kind of node.
 */
static double net_seconds(const ct_job_space *s, const ct_job_split *split,
                          const ct_job_class *kind, double samples, double *room)
{
    size_t n = (size_t)s->net->n_block * CT_JOB_N_WAY;
    double sum = 0;

    for (int d = 0; d < CT_JOB_N_DIRECTION; d++)
        ct_job_split_price(s->net, split, d, kind, (ct_job_link){ 0 }, samples, room + d * n);
    for (int b = 0; b < s->net->n_block; b++) {
        double least = INFINITY;

        for (int w = 0; w < CT_JOB_N_WAY; w++) {
            size_t i = (size_t)b * CT_JOB_N_WAY + (size_t)w;

            least = fmin(least, room[i] + room[n + i]);
        }
        sum += least;
    }
    return sum;
}

typedef struct dealer {
    ct_job_line line[CT_MAX_NODE_CLASS]; /* seconds of the net, by samples */
    int n[CT_MAX_NODE_CLASS];            /* replicas of a kind             */
    int64_t dealt[CT_MAX_NODE_CLASS];    /* samples of all of them         */
} dealer;

/* A kind's next sample goes to its replica that has fewest. */
static double next_end(const dealer *d, int kind)
{
    int64_t has = d->dealt[kind] / d->n[kind];

    return ct_job_line_at(d->line[kind], (double)(has + 1));
}

static void deal(dealer *d, int n_kind, int64_t left)
{
    for (; left > 0; left--) {
        int first = -1;

        for (int k = 0; k < n_kind; k++) {
            if ((d->n[k] > 0) && ((first < 0) || (next_end(d, k) < next_end(d, first)))) first = k;
        }
        if (first < 0) return; /* nobody to deal to */
        d->dealt[first]++;
    }
}

static void deal_evenly(int64_t samples, int n, int64_t *share)
{
    for (int j = 0; j < n; j++) share[j] = samples / n + ((j < samples % n) ? 1 : 0);
}

ct_status ct_job_shares(ct_job_space *s, const ct_job_config *c, int stage, int64_t *share)
{
    int64_t samples = s->batch / c->micro_batches, least = 1;
    ct_job_layout l = ct_job_layout_of(s, c);
    dealer d = { 0 };
    const ct_job_split *split;
    double *room;
    int kinds = 0, seen[CT_MAX_NODE_CLASS] = { 0 };

    if (samples < c->data) return CT_UNSUPPORTED;
    for (int j = 0; j < c->data; j++) {
        int k = ct_job_class_of(&l, stage, j);

        kinds += (d.n[k]++ == 0);
    }
    if ((kinds == 1) || c->even) {
        deal_evenly(samples, c->data, share);
        return CT_OK;
    }
    CT_TRY(ct_job_space_split(s, c->tensor, &split));
    room = calloc(2 * (size_t)s->net->n_block * CT_JOB_N_WAY, sizeof(*room));
    if (room == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for shares");
    for (int k = 0; k < s->machine->n_class; k++) {
        const ct_job_class *kind = &s->machine->kind[k];
        double one = c->tensor, many = fmax(2 * one, (double)samples);

        if (d.n[k] == 0) continue;
        d.line[k] = ct_job_line_of(one, net_seconds(s, split, kind, one, room), many,
                                   net_seconds(s, split, kind, many, room));
        d.dealt[k] = least * d.n[k];
    }
    free(room);
    deal(&d, s->machine->n_class, samples - least * c->data);
    for (int j = 0; j < c->data; j++) {
        int k = ct_job_class_of(&l, stage, j);

        share[j] = d.dealt[k] / d.n[k] + ((seen[k] < d.dealt[k] % d.n[k]) ? 1 : 0);
        seen[k]++;
    }
    return CT_OK;
}

/* ---- cuts */

int64_t ct_job_most_share(const int64_t *share, int n)
{
    int64_t most = 0;

    for (int j = 0; j < n; j++) most = (share[j] > most) ? share[j] : most;
    return most;
}

double ct_job_heard_bytes(const ct_job_net *n, int tensor, int block, int way)
{
    double bytes = n->block[block - 1].value;

    return ((way == CT_JOB_BATCH) || (way == CT_JOB_INPUT)) ? bytes / tensor : bytes;
}

/* ---- a plan */

void ct_job_plan_destroy(ct_job_plan *p)
{
    for (int i = 0; (p->stage != NULL) && (i < p->config.n_stage); i++) free(p->stage[i].share);
    free(p->stage);
    free(p->order);
    free(p->way);
    free(p->mode);
    *p = (ct_job_plan){ 0 };
}

static ct_status open_plan(const ct_job_space *s, const ct_job_config *c, const int *first,
                           ct_job_plan *p)
{
    size_t n_node = (size_t)s->machine->n_node, n_block = (size_t)s->net->n_block;

    *p = (ct_job_plan){ .config = *c, .step_s = INFINITY };
    p->order = malloc(n_node * sizeof(*p->order));
    p->stage = calloc((size_t)c->n_stage, sizeof(*p->stage));
    p->way = calloc(n_block, sizeof(*p->way));
    p->mode = calloc(n_block, sizeof(*p->mode));
    if ((p->order == NULL) || (p->stage == NULL) || (p->way == NULL) || (p->mode == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d stages", c->n_stage);
    memcpy(p->order, c->order, n_node * sizeof(*p->order));
    p->config.order = p->order;
    for (int i = 0; i < c->n_stage; i++) {
        ct_job_stage_plan *g = &p->stage[i];

        g->first = first[i];
        g->end = first[i + 1];
        g->in_flight = ct_job_in_flight(c, i);
        g->share = calloc((size_t)c->data, sizeof(*g->share));
        if (g->share == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for shares");
    }
    return CT_OK;
}

/* Bytes over its limit of the group that is furthest over; below 0: what is left everywhere. */
static double over_limit(const ct_job_stage *g, const ct_job_stage_plan *t, const ct_job_plan *p,
                         bool *limited_p)
{
    double most = -INFINITY;

    *limited_p = false;
    for (int k = 0; k < t->kind.n_group; k++) {
        double limit = ct_job_prices_limit(ct_job_stage_prices(g), k);
        ct_job_figures f =
            ct_job_prices_figures(ct_job_stage_prices(g), t->first, t->end, t->in_flight,
                                  p->way + t->first, p->mode + t->first, k);

        if (limit == 0) continue;
        *limited_p = true;
        most = fmax(most, ct_job_plan_bytes(&f) + t->beside - limit);
    }
    return most;
}

static bool makes_again(const ct_job_plan *p, const ct_job_stage_plan *t)
{
    for (int b = t->first; b < t->end; b++) {
        if (p->mode[b] != CT_CHAIN_KEEP) return true;
    }
    return false;
}

/* Ways and modes of a stage: chosen, looked at, and chosen again with more or less spared, until it
 * fits and leaves little. */
static ct_status choose(ct_job_stage *g, ct_job_plan *p, ct_job_stage_plan *t, bool *fits_p)
{
    size_t n = (size_t)(t->end - t->first);
    double spare = t->beside, low = -INFINITY, high = INFINITY;
    int *way = calloc(n, sizeof(*way)), *at_way = p->way + t->first;
    ct_chain_mode *mode = calloc(n, sizeof(*mode)), *at_mode = p->mode + t->first;
    ct_status status = CT_OK;
    bool fits = false;

    if ((way == NULL) || (mode == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %zu blocks", n);
    for (int i = 0; (i < MOST_TRIES) && (status == CT_OK); i++) {
        bool limited, found;
        double over;

        status =
            ct_job_stage_choose(g, t->first, t->end, t->in_flight, spare, at_way, at_mode, &found);
        if ((status != CT_OK) || (!found && !fits && (spare <= t->beside) && (i > 0))) break;
        over = found ? over_limit(g, t, p, &limited) : 1;
        if (found && (over <= 0 || !limited)) {
            memcpy(way, at_way, n * sizeof(*way));
            memcpy(mode, at_mode, n * sizeof(*mode));
            fits = true;
            high = spare;
            if (!limited || !makes_again(p, t) ||
                (-over <= WASTE * ct_job_prices_limit(ct_job_stage_prices(g), -1)))
                break;
            spare = isfinite(low) ? (low + high) / 2 : spare + over;
        } else if (found) {
            low = spare;
            spare = isfinite(high) ? (low + high) / 2 : spare + over;
        } else { /* less must be spared */
            high = spare;
            spare = isfinite(low) ? (low + high) / 2
                                  : spare - ct_job_prices_limit(ct_job_stage_prices(g), -1) / 16;
        }
    }
    if ((status == CT_OK) && fits) {
        memcpy(at_way, way, n * sizeof(*way));
        memcpy(at_mode, mode, n * sizeof(*mode));
    }
    free(way);
    free(mode);
    *fits_p = fits;
    return status;
}

/* Everything kept, whatever it takes. */
static ct_status keep_all(ct_job_stage *g, ct_job_plan *p, ct_job_stage_plan *t, bool *fits_p)
{
    bool limited, found;

    CT_TRY(ct_job_stage_choose(g, t->first, t->end, t->in_flight, -INFINITY, p->way + t->first,
                               p->mode + t->first, &found));
    *fits_p = found && ((over_limit(g, t, p, &limited) <= 0) || !limited);
    return CT_OK;
}

static void add_figures(const ct_job_stage *g, const ct_job_plan *p, ct_job_stage_plan *t)
{
    const int *way = p->way + t->first;
    const ct_chain_mode *mode = p->mode + t->first;

    t->figures = ct_job_prices_figures(ct_job_stage_prices(g), t->first, t->end, t->in_flight, way,
                                       mode, -1);
    t->limit = ct_job_prices_limit(ct_job_stage_prices(g), -1);
    for (int k = 0; k < t->kind.n_group; k++) {
        t->group[k] = ct_job_prices_figures(ct_job_stage_prices(g), t->first, t->end, t->in_flight,
                                            way, mode, k);
        t->told[k] = ct_job_plan_bytes(&t->group[k]);
    }
}

ct_status ct_job_plan_choose(ct_job_space *s, ct_job_plan *p, int stage, bool *fits_p)
{
    ct_job_stage_plan *t = &p->stage[stage];
    ct_job_stage *g;

    CT_TRY(ct_job_space_stage(s, &p->config, stage, t->share, &g));
    CT_TRY(choose(g, p, t, fits_p));
    if (*fits_p) add_figures(g, p, t);
    return CT_OK;
}

ct_status ct_job_plan_make(ct_job_space *s, const ct_job_config *c, const int *first, bool keep,
                           ct_job_plan *p)
{
    CT_TRY(open_plan(s, c, first, p));
    p->fits = true;
    for (int i = 0; i < c->n_stage; i++) {
        ct_job_stage_plan *t = &p->stage[i];
        ct_job_stage *g;
        bool fits;

        CT_TRY(ct_job_shares(s, c, i, t->share));
        CT_TRY(ct_job_space_stage(s, c, i, t->share, &g));
        t->kind = ct_job_stage_prices(g)->kind;
        CT_TRY(keep ? keep_all(g, p, t, &fits) : choose(g, p, t, &fits));
        p->fits = p->fits && fits;
        if (!fits && !keep) return CT_OK;
        add_figures(g, p, t);
    }
    return ct_job_plan_simulate(s, p);
}

/* ---- its file */

static void write_ranks(const ct_job_layout *l, int stage, ct_text *out)
{
    for (int j = 0; j < l->data; j++) {
        for (int q = 0; q < l->tensor; q++)
            ct_text_add(out, " rank: %d", ct_job_rank(l, stage, j, q));
    }
}

static bool is_even(const int64_t *share, int n)
{
    int64_t sum = 0;

    for (int j = 0; j < n; j++) sum += share[j];
    for (int j = 0; j < n; j++) {
        if (share[j] != sum / n + ((j < sum % n) ? 1 : 0)) return false;
    }
    return true;
}

static void write_again(const ct_job_space *s, const ct_job_plan *p, const ct_job_stage_plan *t,
                        ct_text *out)
{
    const ct_net_chain *chain = &s->net->chain;

    for (int b = t->first; b < t->end; b++) {
        int last = b;

        if (p->mode[b] != CT_CHAIN_START) continue;
        while ((last + 1 < t->end) && (p->mode[last + 1] == CT_CHAIN_CONTINUE)) last++;
        ct_text_add(out, "  again { first: ");
        ct_prototxt_quote(chain->block[b].first, out);
        ct_text_add(out, " last: ");
        ct_prototxt_quote(chain->block[last].last, out);
        ct_text_add(out, " }\n");
    }
}

int ct_job_group_of(const ct_job_layout *l, const ct_job_stage_plan *t, int stage, int replica)
{
    int kind = ct_job_class_of(l, stage, replica), g = 0;

    while ((g < t->kind.n_group - 1) &&
           !((t->kind.group[g].kind == kind) && (t->kind.group[g].share == t->share[replica])))
        g++;
    return g;
}

ct_status ct_job_plan_write(ct_job_space *s, const ct_job_plan *p, ct_text *out)
{
    const ct_job_config *c = &p->config;
    ct_job_layout l = ct_job_layout_of(s, c);
    const ct_net_chain *chain = &s->net->chain;
    const ct_job_split *split;

    CT_TRY(ct_job_space_split(s, c->tensor, &split));
    ct_text_add(out, "net_hash: \"%016" PRIx64 "\"\n", s->net->hash);
    ct_text_add(out, "ranks: %d global_batch: %" PRId64 " micro_batches: %" PRId64 "\n",
                s->machine->n_rank, s->batch, c->micro_batches);
    for (int i = 0; i < c->n_stage; i++) {
        const ct_job_stage_plan *t = &p->stage[i];

        ct_text_add(out, "stage {\n  first: ");
        ct_prototxt_quote(chain->block[t->first].first, out);
        ct_text_add(out, " last: ");
        ct_prototxt_quote(chain->block[t->end - 1].last, out);
        write_ranks(&l, i, out);
        if (c->tensor > 1) ct_text_add(out, " tensor: %d", c->tensor);
        for (int j = 0; !is_even(t->share, c->data) && (j < c->data); j++)
            ct_text_add(out, " share: %" PRId64, t->share[j]);
        ct_text_add(out, "\n");
        if (c->tensor > 1) CT_TRY(ct_job_split_write(s->net, split, t->first, t->end, p->way, out));
        write_again(s, p, t, out);
        ct_text_add(out, "}\n");
    }
    return out->failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for the plan") : CT_OK;
}
