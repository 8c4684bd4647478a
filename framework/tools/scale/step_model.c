#include "framework/tools/scale/step_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/cost.h"

/* ---- costs */

static const char *const algorithm[] = { "ring", "rhd", "hier", "torus", "tree" };
enum { N_ALGORITHM = sizeof(algorithm) / sizeof(algorithm[0]) };

typedef struct costs {
    const ct_topo *topo;
    ct_cost *cost[N_ALGORITHM]; /* NULL: not asked for */
    ct_cost_line ring;          /* found when first needed */
} costs;

static void destroy_costs(costs *c)
{
    for (int i = 0; i < N_ALGORITHM; i++) ct_cost_destroy(c->cost[i]);
}

static ct_status create_costs(const ct_topo *t, const char *name, costs *c)
{
    bool all = (strcmp(name, "auto") == 0), known = all;

    memset(c, 0, sizeof(*c));
    c->topo = t;
    for (int i = 0; i < N_ALGORITHM; i++) {
        bool wanted = all || (strcmp(name, algorithm[i]) == 0);

        known |= wanted;
        if (wanted)
            CT_TRY(ct_cost_create(algorithm[i], t, NULL, strcmp(algorithm[i], "hier") == 0,
                                  &c->cost[i]));
    }
    return known ? CT_OK : CT_FAIL(CT_ERR_CONFIG, "allreduce %s has no costs to model it by", name);
}

/* What ct_coll_choose() chooses: its number; seconds of an allreduce of so many bytes. */
static int cheapest(const costs *c, double bytes, double *seconds_p)
{
    double least = INFINITY;
    int best = -1;

    for (int i = 0; i < N_ALGORITHM; i++) {
        double s = (c->cost[i] != NULL) ? ct_cost_s(c->cost[i], bytes) : INFINITY;
        double weighed = s * ct_cost_weight(algorithm[i], c->topo, true);

        if ((best >= 0) && !(weighed < least)) continue;
        best = i;
        least = weighed;
        *seconds_p = s;
    }
    return best;
}

static ct_status cost_of(void *ctx, int64_t bytes, double *latency_s_p, double *all_s_p)
{
    const costs *c = ctx;
    int best = cheapest(c, (double)bytes, all_s_p);

    *latency_s_p = ct_cost_s(c->cost[best], 0);
    return CT_OK;
}

/* Everyone's payload to everyone, as a ring does it: (P-1) payloads over the slowest link. Its
 * bandwidth comes from the ring's allreduce, which takes 2 (P-1)/P buffers over it. */
static ct_status gather_s(costs *c, double payload, double *seconds_p)
{
    int p = c->topo->n_rank;

    if ((p > 1) && !(c->ring.b_s > 0)) CT_TRY(ct_cost_line_of("ring", c->topo, &c->ring));
    *seconds_p = (p > 1) ? c->ring.a_s / 2 + c->ring.b_s * payload * p / 2 : 0;
    return CT_OK;
}

/* ---- the timeline */

typedef struct parcel {
    int first, n, n_part; /* ranges, as ct_bucket_cut has them */
    int missing;          /* gradients not ready               */
    bool left, landed, reported;
    double seconds, rest; /* on the link */
} parcel;

typedef struct timeline {
    const ct_profile *p;
    ct_overlap overlap;
    double factor;
    parcel *parcel;
    int n, n_reported, *parts_left; /* of a range */
    double now, link;         /* clocks of the rank, and of the link up to which it is known */
    double exposed, update_s; /* seconds an element */
    bool open;
} timeline;

/* Of those under way the last in the arena, which forward reads first. */
static parcel *first_under_way(timeline *t)
{
    for (int i = t->n - 1; i >= 0; i--) {
        if (t->parcel[i].left && !t->parcel[i].landed) return &t->parcel[i];
    }
    return NULL;
}

/* Lets the link work until `until`, or until one lands with stop_at_landing. */
static void advance(timeline *t, double until, bool stop_at_landing)
{
    for (parcel *b; (t->link < until) && ((b = first_under_way(t)) != NULL);) {
        double most = until - t->link;

        if (b->rest > most) {
            b->rest -= most;
            t->link = until;
            return;
        }
        t->link += b->rest;
        b->rest = 0;
        b->landed = true;
        if (stop_at_landing) return;
    }
    if ((t->link < until) && isfinite(until)) t->link = until; /* idle */
}

/* What landed is reported, and updated at once; while that goes on more may land. */
static void report(timeline *t)
{
    for (int i = 0; i < t->n; i++) {
        parcel *b = &t->parcel[i];

        if (!b->landed || b->reported) continue;
        b->reported = true;
        t->n_reported += 1;
        for (int k = b->first; k < b->first + b->n; k++) {
            t->parts_left[k] -= 1;
            if (t->parts_left[k] == 0)
                t->now += t->update_s * t->factor * (double)t->p->param[k].count;
        }
        advance(t, t->now, false);
        i = -1;
    }
    t->open = (t->n_reported < t->n);
}

static bool all_reported(const timeline *t, int first, int n)
{
    for (int k = first; k < first + n; k++) {
        if (t->parts_left[k] > 0) return false;
    }
    return true;
}

static void wait_for(timeline *t, int first, int n)
{
    if (!t->open) return;
    for (int i = 0; i < t->n; i++) {
        /* without overlap they leave only now */
        if (!t->parcel[i].left) t->link = t->now;
        t->parcel[i].left = true;
    }
    advance(t, t->now, false);
    report(t);
    while (!all_reported(t, first, n)) {
        advance(t, INFINITY, true);
        if (t->link > t->now) {
            t->exposed += t->link - t->now;
            t->now = t->link;
        }
        report(t);
    }
}

static void ready(timeline *t, int param)
{
    advance(t, t->now, false);
    for (int i = 0; i < t->n; i++) {
        parcel *b = &t->parcel[i];

        if ((param < b->first) || (param >= b->first + b->n)) continue;
        b->missing -= 1;
        if ((b->missing == 0) && (t->overlap != CT_OVERLAP_OFF)) b->left = true;
    }
}

static void begin(timeline *t)
{
    memset(t->parts_left, 0, sizeof(*t->parts_left) * (size_t)t->p->n_param);
    for (int i = 0; i < t->n; i++) {
        parcel *b = &t->parcel[i];

        b->missing = b->n;
        b->left = b->landed = b->reported = false;
        b->rest = b->seconds;
        for (int k = b->first; k < b->first + b->n; k++) t->parts_left[k] += 1;
    }
    t->n_reported = 0;
    t->open = (t->n > 0);
}

static void run_list(timeline *t, const ct_step *list, int n)
{
    for (int i = 0; i < n; i++) {
        switch (list[i].kind) {
        case CT_STEP_WAIT:
            if (t->open) wait_for(t, list[i].param, 1);
            break;
        case CT_STEP_READY:
            ready(t, list[i].param);
            break;
        default:
            t->now += list[i].seconds * t->factor;
        }
    }
}

/* ---- all of it */

static ct_status make_parcels(const ct_profile *p, const ct_grad_pipe_config *config, costs *c,
                              timeline *t, ct_step_model *out)
{
    ct_grad_range *range = calloc((size_t)p->n_param, sizeof(*range));
    ct_bucket_cut *cut = NULL;
    ct_grad_sizes sizes;
    double ranks = c->topo->n_rank;
    ct_status status = CT_OK;

    if (range == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d gradients", p->n_param);
    for (int i = 0; i < p->n_param; i++)
        range[i] = (ct_grad_range){ .key = p->param[i].key,
                                    .offset = p->param[i].offset,
                                    .count = p->param[i].count };
    CT_TRY_GOTO(status, done, ct_grad_plan_check(config, range, p->n_param));
    CT_TRY_GOTO(status, done,
                ct_grad_sizes_by(cost_of, c, c->topo->n_rank, config->bucket_bytes, range,
                                 p->n_param, &sizes));
    CT_TRY_GOTO(status, done, ct_grad_plan_cut(config, &sizes, range, p->n_param, &cut, &t->n));
    t->parcel = calloc((size_t)t->n + 1, sizeof(*t->parcel));
    out->bucket = calloc((size_t)t->n + 1, sizeof(*out->bucket));
    if ((t->parcel == NULL) || (out->bucket == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d buckets", t->n);
        goto done;
    }
    for (int i = 0; i < t->n; i++) {
        const ct_bucket_cut *k = &cut[i];
        ct_step_model_bucket *b = &out->bucket[i];

        t->parcel[i] = (parcel){ .first = k->first, .n = k->n, .n_part = k->n_part };
        b->bytes = k->count * 4;
        if (k->coded) b->bytes = config->codec->payload_bytes(&config->codec_config, k->count, 1);
        if (k->coded && config->codec->gathers) {
            b->algorithm = "allgather";
            CT_TRY_GOTO(status, done, gather_s(c, (double)b->bytes, &b->seconds));
            out->bytes_sent += (ranks - 1) * (double)b->bytes;
        } else {
            b->algorithm = algorithm[cheapest(c, (double)b->bytes, &b->seconds)];
            out->bytes_sent += 2 * (ranks - 1) / ranks * (double)b->bytes;
        }
        if (c->topo->n_rank == 1) {
            b->algorithm = "one rank";
            b->seconds = 0;
        }
        t->parcel[i].seconds = b->seconds;
    }
    out->n_bucket = t->n;
done:
    free(range);
    free(cut);
    return status;
}

/* The first steps differ: nothing is under way before them. The last of a few is the steady one. */
static void run_steps(timeline *t, ct_step_model *out)
{
    enum { N_STEP = 4 };
    double mark = 0, exposed = 0;

    for (int i = 0; i < N_STEP; i++) {
        mark = t->now;
        exposed = t->exposed;
        run_list(t, t->p->forward, t->p->n_forward);
        if (t->open) wait_for(t, 0, t->p->n_param);
        begin(t);
        run_list(t, t->p->backward, t->p->n_backward);
        if (t->open && (t->overlap != CT_OVERLAP_BOTH)) wait_for(t, 0, t->p->n_param);
    }
    out->step_s = t->now - mark;
    out->exposed_s = t->exposed - exposed;
}

ct_status ct_step_model_run(const ct_profile *profile, const ct_topo *topo,
                            const ct_grad_pipe_config *config, ct_overlap overlap, double factor,
                            ct_step_model *out)
{
    timeline t = { .p = profile, .overlap = overlap, .factor = factor };
    int64_t count = 0;
    costs c;
    ct_status status;

    memset(out, 0, sizeof(*out));
    for (int i = 0; i < profile->n_param; i++) count += profile->param[i].count;
    t.update_s = 1e-3 * profile->update_ms / (double)((count > 0) ? count : 1);
    t.parts_left = calloc((size_t)profile->n_param + 1, sizeof(*t.parts_left));
    if (t.parts_left == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a model");
    status = create_costs(topo, config->allreduce, &c);
    if (status == CT_OK) status = make_parcels(profile, config, &c, &t, out);
    if (status == CT_OK) run_steps(&t, out);
    out->compute_s = factor * ct_profile_compute_s(profile);
    destroy_costs(&c);
    free(t.parcel);
    free(t.parts_left);
    return status;
}

void ct_step_model_release(ct_step_model *m)
{
    free(m->bucket);
    memset(m, 0, sizeof(*m));
}

/* ---- jitter */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double ct_step_model_slowest(const ct_profile *p, int64_t n)
{
    double *v = calloc((size_t)p->n_sample + 1, sizeof(*v)), sum = 0, k = p->n_sample;

    if ((v == NULL) || (p->n_sample == 0)) {
        free(v);
        return 1;
    }
    for (int i = 0; i < p->n_sample; i++) v[i] = ct_profile_jitter(p, i);
    qsort(v, (size_t)p->n_sample, sizeof(*v), ascending);
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
