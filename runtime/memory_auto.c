#include "runtime/memory_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/collective/blocking.h"
#include "comm/collective/persistent.h"
#include "framework/base/log.h"
#include "framework/base/text.h"
#include "framework/solver/update_rule.h"

/* ---- ways */

/* What `memory` and `recompute` then say; below 0, false and 0: as they are. */
typedef struct way {
    int zero, recompute;
    bool state, weights;
    double chunk_mb;
} way;

#define AS_IT_IS -1
#define SMALL_CHUNK                                                                                \
    0.5 /* MiB: rings of files of an eighth, which disks still move at nearly their speed */

enum { MOST_WAYS = 64 };

typedef struct way_text {
    char text[96];
} way_text;

static void add(way_text *t, const char *word)
{
    size_t at = strlen(t->text);

    snprintf(t->text + at, sizeof(t->text) - at, "%s%s", (at > 0) ? " " : "", word);
}

/* As users would write it. */
static way_text text_of(const way *w)
{
    way_text t = { "" };
    char zero[16];

    snprintf(zero, sizeof(zero), "zero: %d", w->zero);
    if (w->zero > 0) add(&t, zero);
    if (w->state) add(&t, "state: FILE");
    if (w->weights) add(&t, "weights: FILE");
    if (w->chunk_mb > 0) add(&t, "chunk_mb: 0.5");
    if ((w->recompute == CT__RECOMPUTE__BLOCKS) && (t.text[0] != '\0')) add(&t, "and");
    if (w->recompute == CT__RECOMPUTE__BLOCKS) add(&t, "recompute: BLOCKS");
    if (t.text[0] == '\0') add(&t, "memory");
    return t;
}

static bool is_auto(Ct__MemoryParameter__Tier tier)
{
    return tier == CT__MEMORY_PARAMETER__TIER__AUTO;
}

/* ---- one way after the other is planned */

/* Sums of a step's gradients over the ranks, in seconds, and of their halves. */
typedef struct sums {
    double whole_s, scatter_s, gather_s;
    bool halves;   /* every sum has them, and codecs sum parts */
    bool corrects; /* a codec changes weights where they lie in memory */
    bool exposed;
} sums;

typedef struct trial {
    const ct_memory_plan *p; /* as it is asked for */
    ct_memory_speeds found;
    const ct_memory_speeds *speeds; /* NULL: not looked for */
    sums sums;
    /* of the way at hand */
    way at;
    Ct__SolverParameter param;
    Ct__MemoryParameter memory;
    ct_solver_options options;
    ct_memory_plan plan;
    ct_memory_nets nets;
    bool is_open;
} trial;

static void trial_close(trial *t)
{
    if (t->is_open) ct_memory_nets_close(&t->nets);
    t->is_open = false;
}

static void take(const way *w, Ct__SolverParameter *param)
{
    Ct__MemoryParameter *m = param->memory;

    if (w->zero >= 0) m->zero = w->zero;
    if (w->state) m->state = CT__MEMORY_PARAMETER__TIER__FILE;
    if (w->weights) m->weights = CT__MEMORY_PARAMETER__TIER__FILE;
    if (w->chunk_mb > 0) m->chunk_mb = w->chunk_mb;
    if (w->recompute >= 0) param->recompute = (Ct__Recompute)w->recompute;
}

/* Nets are made anew where they are others. */
static ct_status trial_open(trial *t, const way *w)
{
    const Ct__SolverParameter *s = t->p->options->param;
    bool same = t->is_open && (w->zero == t->at.zero) && (w->recompute == t->at.recompute) &&
                (w->weights == t->at.weights);

    if (!same) trial_close(t);
    t->at = *w;
    t->param = *s;
    t->memory = *s->memory;
    t->options = *t->p->options;
    t->plan = *t->p;
    t->param.memory = &t->memory;
    t->options.param = &t->param;
    t->plan.options = &t->options;
    take(w, &t->param);
    if (same) return CT_OK;
    CT_TRY(ct_memory_nets_open(&t->plan, &t->nets));
    t->is_open = true;
    return CT_OK;
}

/* What a step sends, where it has k micro-batches. */
static double network_s(const trial *t, int k)
{
    const sums *s = &t->sums;
    int zero = (t->p->comm->size > 1) ? t->memory.zero : 0;

    if (zero == 0) return s->whole_s;
    if (zero == 3) return k * (s->scatter_s + 2 * s->gather_s);
    return ((zero == 2) ? k : 1) * s->scatter_s + s->gather_s;
}

static ct_status find_step(const trial *t, const ct_memory_tiers *tiers, ct_memory_step *s)
{
    const ct_net *net = t->nets.nets.train;
    double visits = (double)(tiers->file_read - tiers->file_written);
    int k = 1;

    CT_TRY(ct_solver_micro_batches(&t->param, t->options.map, net, &k));
    *s = (ct_memory_step){ .compute = ct_net_seconds_of(net, &t->speeds->compute),
                           .network_s = network_s(t, k),
                           .waits = (k > 1) || ct_update_waits_for_all(&t->param),
                           .exposed = t->sums.exposed };
    s->compute.forward_s *= k;
    s->compute.backward_s *= k;
    s->compute.again_s *= k;
    if ((t->memory.zero > 0) && (t->p->groups == NULL)) s->compute.update_s /= t->p->comm->size;
    s->update_s =
        ct_memory_file_s(t->speeds, (double)tiers->file_written, (double)tiers->file_written);
    s->visit_s = ct_memory_file_s(t->speeds, k * visits, 0);
    return CT_OK;
}

/* What a way needs on the rank that takes most, but for a copy that it can do without, and its
 * seconds where speeds are known. */
static ct_status look_at(trial *t, const way *w, ct_memory_way *out)
{
    ct_memory_step step;
    ct_memory_tiers tiers;
    int64_t v[2] = { 0, 0 }, own, rank = 0;

    CT_TRY(trial_open(t, w));
    CT_TRY(ct_memory_nets_count(&t->plan, &t->nets, &tiers));
    v[0] = ct_memory_tier_sum(&tiers, CT_TIER_HOST) - tiers.snapshot;
    if (t->speeds != NULL) {
        CT_TRY(find_step(t, &tiers, &step));
        v[1] = (int64_t)(1e12 * ct_memory_step_s(&step));
    }
    own = v[0];
    if (t->p->agrees) {
        CT_TRY(ct_comm_max(t->p->comm, v, 2));
        rank = (own == v[0]) ? -t->p->comm->rank : -t->p->comm->size;
        CT_TRY(ct_comm_max(t->p->comm, &rank, 1));
    }
    *out = (ct_memory_way){ .need = v[0], .rank = (int)-rank, .seconds = 1e-12 * (double)v[1] };
    return CT_OK;
}

/* ---- sums over the ranks */

static ct_status add_sum(ct_comm *c, const ct_grad_pipe_config *config, int64_t count, sums *s)
{
    int64_t bytes = count * (int64_t)sizeof(float);
    const ct_coll_ops *whole = NULL, *scatter, *gather = NULL;

    CT_TRY(ct_persistent_coll_choose(c, count, CT_F32, config->allreduce, config->deterministic,
                                     &whole));
    CT_TRY(ct_coll_choose_kind(c, CT_COLL_ALLGATHER, count, CT_F32, "auto", true, &gather));
    scatter = ct_coll_of_kind(whole, CT_COLL_REDUCE_SCATTER);
    s->whole_s += ct_coll_cost_s(whole, c, bytes, CT_F32);
    s->gather_s += ct_coll_cost_s(gather, c, bytes, CT_F32);
    if (scatter != NULL) s->scatter_s += ct_coll_cost_s(scatter, c, bytes, CT_F32);
    s->halves = s->halves && (scatter != NULL);
    return CT_OK;
}

/* Codecs send parts, or nothing is coded. */
static bool sends_parts(const ct_exchange_ranges *r)
{
    bool parts = true;

    for (int i = 0; i < r->n; i++) {
        const ct_codec_config *unused = NULL;
        const ct_codec_ops *codec = ct_grad_range_codec(&r->config, &r->range[i], &unused);

        parts = parts && (codec->parts || (strcmp(codec->name, "none") == 0));
    }
    return parts;
}

static bool has_correction(const ct_exchange_ranges *r)
{
    for (int i = 0; i < r->n; i++) {
        const ct_codec_config *config = NULL;
        const ct_codec_ops *codec = ct_grad_range_codec(&r->config, &r->range[i], &config);

        if (ct_codec_corrects(codec, config)) return true;
    }
    return false;
}

/* Buckets are the same at every stage of ZeRO. Gradients count as they are: what codecs leave of
 * them travels at each of the stages that there are with them. */
static ct_status add_buckets(ct_comm *c, const ct_exchange_ranges *r, const bool *begins, sums *s)
{
    int64_t count = 0;

    for (int i = 0; i < r->n; i++) {
        count += r->range[i].count;
        if ((i + 1 < r->n) && !begins[i + 1]) continue;
        CT_TRY(add_sum(c, &r->config, count, s));
        count = 0;
    }
    return CT_OK;
}

/* Ranks of other stages have other parameters. All of them list the same ways. */
static ct_status agree(trial *t)
{
    int64_t words[3] = { t->sums.halves ? 0 : 1, t->sums.exposed ? 1 : 0,
                         t->sums.corrects ? 1 : 0 };

    if (!t->p->agrees) return CT_OK;
    CT_TRY(ct_comm_max(t->p->comm, words, 3));
    t->sums.halves = (words[0] == 0);
    t->sums.exposed = (words[1] != 0);
    t->sums.corrects = (words[2] != 0);
    return CT_OK;
}

static ct_status find_sums(trial *t)
{
    ct_comm *c = t->p->comm;
    ct_exchange_ranges r;
    bool *begins, alone = (c->size == 1) || (t->p->groups != NULL);
    ct_status status = CT_OK;

    CT_TRY(ct_exchange_ranges_open(&t->param, t->nets.nets.train, &r));
    begins = calloc((size_t)r.n + 1, sizeof(*begins));
    t->sums = (sums){ .halves = (c->size > 1) && sends_parts(&r),
                      .corrects = has_correction(&r),
                      .exposed = (c->size > 1) && !r.config.overlap };
    if (begins == NULL)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d parameters", r.n);
    else if (!alone)
        status = ct_grad_pipe_cut(c, &r.config, r.range, r.n, begins);
    if ((status == CT_OK) && !alone) status = add_buckets(c, &r, begins, &t->sums);
    free(begins);
    ct_exchange_ranges_close(&r);
    return (status == CT_OK) ? agree(t) : status;
}

/* ---- which ways are open */

/* A parallel file says what is made again. */
static bool recompute_is_open(const ct_memory_plan *p)
{
    return !p->parallel && (p->options->param->recompute == CT__RECOMPUTE__AUTO);
}

/* As asked for, and all of it in memory. */
static way first_way(const ct_memory_plan *p)
{
    bool is_open = recompute_is_open(p);

    return (way){ .zero = AS_IT_IS, .recompute = is_open ? CT__RECOMPUTE__NEVER : AS_IT_IS };
}

static bool zero_is_open(const trial *t)
{
    return !t->p->options->param->memory->has_zero && t->sums.halves;
}

/* Weights in files are shared out, too, or not at all, and no codec changes them; 16-bit sums are
 * those of parts. Local steps and verify_memory look at what lies in memory, as it is. */
static bool go_together(const trial *t, const way *w)
{
    const Ct__SolverParameter *s = t->p->options->param;
    const Ct__MemoryParameter *m = s->memory;
    bool narrow = (m->gradients == CT__MEMORY_PARAMETER__GRADIENTS__BF16);
    bool weights = w->weights || ct_memory_lies_in_files(m->weights);
    int zero = (w->zero >= 0) ? w->zero : m->zero;

    if (w->weights && t->sums.corrects) return false;
    if ((w->weights || w->state) && ((s->outer != NULL) || s->verify_memory)) return false;
    if ((w->zero > 0) && (s->outer != NULL)) return false;
    if (t->p->parallel && (w->zero == 3)) return false; /* sums over ranks have no time there */
    if (t->p->comm->size == 1) return true;
    if (narrow && !m->has_zero && (zero < 2)) return false;
    return !weights || (zero == 0) || (zero == 3);
}

/* Those of one net stand one behind the other; of small chunks before all others, of large ones. */
static int list_ways(const trial *t, way *list)
{
    const Ct__MemoryParameter *m = t->p->options->param->memory;
    int zeros = zero_is_open(t) ? 4 : 1, agains = recompute_is_open(t->p) ? 2 : 1;
    int tiers = is_auto(m->weights) ? 2 : 1, states = is_auto(m->state) ? 2 : 1, n = 0;

    for (int i = 0; i < zeros * agains * tiers * states; i++) {
        way w = first_way(t->p);

        if (zeros > 1) w.zero = i / (agains * tiers * states);
        if ((agains > 1) && (i / (tiers * states) % agains == 1))
            w.recompute = CT__RECOMPUTE__BLOCKS;
        w.weights = (tiers > 1) && (i / states % tiers == 1);
        w.state = (states > 1) && (i % states == 1);
        if (!go_together(t, &w)) continue;
        list[n++] = w;
        if (!w.weights && !w.state) continue;
        w.chunk_mb = SMALL_CHUNK;
        if (m->chunk_mb == 0) list[n++] = w;
    }
    return n;
}

/* ---- nothing fits */

/* Whether a change to what is given changes anything, and may be. */
static bool may_change(const trial *t, const way *w)
{
    const Ct__SolverParameter *s = t->p->options->param;
    const Ct__MemoryParameter *m = s->memory;

    if ((w->zero >= 0) && ((t->p->comm->size == 1) || (w->zero <= m->zero) || !t->sums.halves))
        return false;
    if ((w->recompute >= 0) && (t->p->parallel || (s->recompute == CT__RECOMPUTE__BLOCKS)))
        return false;
    if (w->weights && ct_memory_lies_in_files(m->weights)) return false;
    if (w->state && !w->weights && ct_memory_lies_in_files(m->state)) return false;
    return go_together(t, w);
}

typedef struct rank_text {
    char text[24];
} rank_text;

/* Where ranks are unlike, the one that takes so much. */
static rank_text rank_of(const trial *t, const ct_memory_way *w)
{
    rank_text r = { "" };

    if (t->p->groups != NULL) snprintf(r.text, sizeof(r.text), " on rank %d", w->rank);
    return r;
}

static ct_status refuse(trial *t, const ct_memory_way *least)
{
    enum { BLOCKS = CT__RECOMPUTE__BLOCKS };
    static const way ways[] = {
        { AS_IT_IS, BLOCKS, false, false, 0 },  { 1, AS_IT_IS, false, false, 0 },
        { 2, AS_IT_IS, false, false, 0 },       { 3, AS_IT_IS, false, false, 0 },
        { AS_IT_IS, AS_IT_IS, true, false, 0 }, { AS_IT_IS, AS_IT_IS, true, false, SMALL_CHUNK },
        { AS_IT_IS, AS_IT_IS, true, true, 0 },  { AS_IT_IS, AS_IT_IS, true, true, SMALL_CHUNK },
        { 1, AS_IT_IS, true, false, 0 },        { 2, AS_IT_IS, true, false, 0 },
        { 3, AS_IT_IS, true, true, 0 },         { AS_IT_IS, BLOCKS, true, true, SMALL_CHUNK },
    };
    double limit_mb = t->p->options->param->memory->limit_mb;
    char limit[64];

    if (limit_mb > 0)
        snprintf(limit, sizeof(limit), "limit_mb: %g", limit_mb);
    else
        snprintf(limit, sizeof(limit), "memory: %s leaves a rank %.0f MiB", t->p->who,
                 floor(ldexp(t->p->limit, -20)));
    t->speeds = NULL;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        ct_memory_way less;

        if (!may_change(t, &ways[i])) continue;
        CT_TRY(look_at(t, &ways[i], &less));
        if ((double)less.need <= t->p->limit)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: the least is %.0f MiB%s; %s would fit, with %.0f MiB", limit,
                           ct_memory_mib(least->need), rank_of(t, least).text,
                           text_of(&ways[i]).text, ct_memory_mib(less.need));
    }
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s: the least is %.0f MiB%s; no recomputation, no stage of ZeRO and no file "
                   "makes it fit: take a smaller batch, or a larger limit",
                   limit, ct_memory_mib(least->need), rank_of(t, least).text);
}

/* ---- the choice */

typedef struct ways {
    way way[MOST_WAYS];
    ct_memory_way price[MOST_WAYS];
    int n;
    int64_t asked; /* what it takes as it is asked for */
} ways;

/* Small chunks are for where large ones do not fit. */
static ct_status look_at_all(trial *t, ways *w)
{
    way list[MOST_WAYS];
    int n = list_ways(t, list);

    for (int i = 0; i < n; i++) {
        bool fits = (w->n > 0) && ((double)w->price[w->n - 1].need <= t->p->limit);

        if ((list[i].chunk_mb > 0) && fits) continue;
        CT_TRY(look_at(t, &list[i], &w->price[w->n]));
        w->way[w->n++] = list[i];
    }
    return CT_OK;
}

/* The next slower one of those that fit. */
static int next_of(const ways *w, double limit, int best)
{
    int next = -1;

    for (int i = 0; i < w->n; i++) {
        bool behind = (w->price[i].seconds > w->price[best].seconds) ||
                      ((w->price[i].seconds == w->price[best].seconds) && (i > best));

        if (!behind || ((double)w->price[i].need > limit)) continue;
        if ((next < 0) || (w->price[i].seconds < w->price[next].seconds)) next = i;
    }
    return next;
}

/* What the choice is, and why not another. */
static void say(const trial *t, const ways *w, int best, const char *whose)
{
    enum { SHOWN = 3 };
    const ct_memory_speeds *v = t->speeds;
    ct_text slower = { 0 };
    int too_large = 0, next = best;

    for (int i = 0; i < w->n; i++) too_large += (double)w->price[i].need > t->p->limit;
    for (int k = 0; (k < SHOWN) && ((next = next_of(w, t->p->limit, next)) >= 0); k++)
        ct_text_add(&slower, "%s%s %.4g ms", (k > 0) ? ", " : "; of what fits, ",
                    text_of(&w->way[next]).text, 1e3 * w->price[next].seconds);
    CT_INFO("memory: AUTO takes %s, since memory takes %.0f MiB of %.0f (%s)",
            text_of(&w->way[best]).text, ct_memory_mib(w->asked), ldexp(t->p->limit, -20),
            t->p->who);
    CT_INFO("memory: %.0f MiB and %.4g ms a step are modelled, without a limit %.4g ms%s; %d of %d "
            "ways do not fit",
            ct_memory_mib(w->price[best].need), 1e3 * w->price[best].seconds,
            1e3 * w->price[0].seconds, (slower.text != NULL) ? slower.text : "", too_large, w->n);
    CT_INFO(
        "memory: the model has %.4g GFLOP/s of a rank, and %.3g GB/s read from its files and %.3g "
        "written, %s",
        1e-9 * v->compute.flop, 1e-9 * v->file_read, 1e-9 * v->file_write, whose);
    ct_text_destroy(&slower);
}

static ct_status find_speeds(const ct_memory_plan *p, ct_memory_speeds *v, const char **whose_p)
{
    *v = ct_memory_speeds_assumed;
    *whose_p = "all assumed";
    if (p->speeds.file_read > 0) {
        *v = p->speeds;
        *whose_p = "the files as described";
    } else if ((p->folder != NULL) && !p->options->param->deterministic) {
        CT_TRY(ct_memory_speeds_measure(p->folder, v));
        *whose_p = "measured";
    }
    return CT_OK;
}

/* Where the first way, looked at already, takes too much. */
static ct_status choose(trial *t, int64_t asked, Ct__SolverParameter *param)
{
    ways w = { .asked = asked };
    const char *whose;
    int best;

    CT_TRY(find_sums(t));
    CT_TRY(find_speeds(t->p, &t->found, &whose));
    t->speeds = &t->found;
    CT_TRY(look_at_all(t, &w));
    best = ct_memory_fastest(w.price, w.n, t->p->limit);
    if (best >= 0) {
        say(t, &w, best, whose);
    } else {
        best = ct_memory_least(w.price, w.n);
        if ((param->memory->limit_mb > 0) || t->p->enforced) return refuse(t, &w.price[best]);
        CT_WARN("memory: a rank needs %.0f MiB at least, but %s leaves it %.0f",
                ct_memory_mib(w.price[best].need), t->p->who, ldexp(t->p->limit, -20));
    }
    take(&w.way[best], param);
    return CT_OK;
}

/* A copy for snapshots is taken where the limit leaves room for it on every rank. */
static ct_status fit_snapshot(const ct_memory_plan *p, Ct__SolverParameter *param,
                              ct_memory_tiers *t)
{
    int64_t sum = ct_memory_tier_sum(t, CT_TIER_HOST), v[2] = { 0, t->snapshot };

    v[0] = (t->snapshot > 0) && (p->limit > 0) && ((double)sum > p->limit);
    if (p->agrees) CT_TRY(ct_comm_max(p->comm, v, 2));
    if (v[0] == 0) return CT_OK;
    CT_WARN("snapshot_async: a copy takes %.0f MiB, for which %s has no room: training waits until "
            "snapshots are written",
            ct_memory_mib(v[1]), p->who);
    param->snapshot_async = false;
    t->snapshot = 0;
    return CT_OK;
}

ct_status ct_memory_auto_settle(const ct_memory_plan *p, Ct__SolverParameter *param,
                                ct_memory_tiers *t)
{
    trial tr = { .p = p };
    way first = first_way(p);
    ct_memory_way price;
    ct_status status = look_at(&tr, &first, &price);

    if ((status == CT_OK) && (p->limit > 0) && ((double)price.need > p->limit))
        status = choose(&tr, price.need, param);
    else if (status == CT_OK)
        take(&first, param);
    trial_close(&tr);
    CT_TRY(status);
    CT_TRY(ct_memory_plan_make(p, t));
    return fit_snapshot(p, param, t);
}
