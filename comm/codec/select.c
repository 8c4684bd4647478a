/* Exact selection in the update's own pass, and what all selections share. */
#include "comm/codec/select.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/select_impl.h"
#include "framework/base/clock.h"

enum {
    LARGE_SHARE = 16, /* k > n / 16: by a radix histogram */
    MIN_ROOM = 4096,  /* of a thread's candidates         */
    REDSYNC_BYTES = 4 << 20
};

#define MARGIN_START 0.92f /* of a normal distribution's tail this makes 1.8 k of k */
#define MARGIN_LEAST 0.3f
#define MARGIN_MOST  1.5f /* a residual that grows from step to step takes its threshold along */
#define MARGIN_FORTH 1.005f
#define MARGIN_LEAP  1.02f
#define MARGIN_BACK  0.9f
#define MOST_RATIO   1.5f /* of one step's threshold to the last one's */

static const char *const name[] = {
    [CT_SELECT_AUTO] = "auto",       [CT_SELECT_EXACT] = "exact",
    [CT_SELECT_TRIMMED] = "trimmed", [CT_SELECT_SEARCH] = "search",
    [CT_SELECT_SAMPLED] = "sampled", [CT_SELECT_REDSYNC_SIZES] = "redsync_sizes",
};

const char *ct_select_name(ct_select_kind kind)
{
    return name[kind];
}

static int64_t at_most(int64_t a, int64_t most)
{
    return (a < most) ? a : most;
}

ct_status ct_selector_create(ct_select_kind kind, int64_t n, int64_t k, ct_selector **sel_p)
{
    ct_selector *sel;

    if ((n < 0) || (n > CT_SPARSE_MAX) || (k < 1))
        return CT_FAIL(CT_ERR_CONFIG, "%lld of %lld elements cannot be selected", (long long)k,
                       (long long)n);
    sel = calloc(1, sizeof(*sel));
    if (sel == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a selection");
    if (kind == CT_SELECT_AUTO) kind = CT_SELECT_EXACT;
    if (kind == CT_SELECT_REDSYNC_SIZES)
        kind = (n < REDSYNC_BYTES / (int64_t)sizeof(float)) ? CT_SELECT_TRIMMED : CT_SELECT_SAMPLED;
    sel->kind = kind;
    sel->n = n;
    sel->k = sel->k_least = at_most(k, n);
    sel->n_block = (n + CT_SELECT_BLOCK - 1) / CT_SELECT_BLOCK;
    ct_selector_forget(sel);
    *sel_p = sel;
    return CT_OK;
}

static void release(ct_select_found *f)
{
    ct_mem_release(f->index);
    ct_mem_release(f->value);
    ct_mem_release(f->u);
    f->index = NULL;
    f->value = f->u = NULL;
    f->room = 0;
}

void ct_selector_destroy(ct_selector *sel)
{
    if (sel == NULL) return;
    for (int t = 0; t < sel->n_thread; ++t) {
        release(&sel->thread[t].found);
        ct_mem_release(sel->thread[t].bin);
    }
    free(sel->thread);
    ct_mem_release(sel->block_sum);
    ct_mem_release(sel->sample);
    free(sel);
}

void ct_selector_want(ct_selector *sel, int64_t k)
{
    sel->k = at_most(k, sel->n);
}

int64_t ct_selector_bound(const ct_selector *sel)
{
    bool over = (sel->kind == CT_SELECT_SEARCH) || (sel->kind == CT_SELECT_SAMPLED);

    return over ? at_most(ct_select_most(sel->k), sel->n) : sel->k;
}

void ct_selector_sign(ct_selector *sel, int sign)
{
    sel->sign = (sign > 0) - (sign < 0);
}

void ct_selector_forget(ct_selector *sel)
{
    for (int i = 0; i < 3; ++i) sel->history[i] = (ct_select_history){ .margin = MARGIN_START };
}

void ct_selector_stats(const ct_selector *sel, ct_select_stats *out)
{
    *out = sel->stats;
}

static int64_t larger(int64_t a, int64_t b)
{
    return (a > b) ? a : b;
}

/* Memory for the threads of this run, and their blocks. */
static ct_status prepare(ct_select_run *r)
{
    ct_selector *sel = r->sel;

    r->team = ct_momentum_correction_team(r->a);
    if (r->team > sel->n_thread) {
        ct_select_thread *more = realloc(sel->thread, (size_t)r->team * sizeof(*more));

        if (more == NULL)
            return CT_FAIL(CT_ERR_NOMEM, "no memory for the selections of %d threads", r->team);
        memset(more + sel->n_thread, 0, (size_t)(r->team - sel->n_thread) * sizeof(*more));
        sel->thread = more;
        sel->n_thread = r->team;
    }
    for (int t = 0; t < r->team; ++t) {
        sel->thread[t].first = sel->n_block * t / r->team;
        sel->thread[t].last = sel->n_block * (t + 1) / r->team;
    }
    return CT_OK;
}

static ct_status reserve(ct_select_found *f, int64_t room, const ct_momentum_correction *a)
{
    bool masks = (ct_momentum_correction_masked(a) != NULL);

    if ((room <= f->room) && (!masks || (f->u != NULL))) return CT_OK;
    if (room < f->room) room = f->room;
    release(f);
    f->index = ct_mem_acquire((size_t)room * sizeof(*f->index));
    f->value = ct_mem_acquire((size_t)room * sizeof(*f->value));
    if (masks) f->u = ct_mem_acquire((size_t)room * sizeof(*f->u));
    if ((f->index == NULL) || (f->value == NULL) || (masks && (f->u == NULL)))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld candidates of a selection",
                       (long long)room);
    f->room = room;
    return CT_OK;
}

ct_status ct_select_pass(ct_select_run *r, ct_select_work work)
{
    ct_selector *sel = r->sel;
    int team = r->team;
    bool first_pass = !r->updated;
    int32_t worst = 0;

#pragma omp parallel for schedule(static, 1) num_threads(team) if (team > 1)
    for (int t = 0; t < team; ++t) {
        ct_select_thread *th = &sel->thread[t];

        th->found.most = th->found.worst = 0;
        for (int64_t b = th->first; b < th->last; ++b) {
            int64_t at = b * CT_SELECT_BLOCK, n = at_most(sel->n - at, CT_SELECT_BLOCK);

            if (first_pass) ct_momentum_correction_block(r->a, at, n);
            work(r, th, at, n);
        }
    }
    r->updated = true;
    sel->stats.passes += 1;
    for (int t = 0; t < team; ++t)
        worst = (sel->thread[t].found.worst > worst) ? sel->thread[t].found.worst : worst;
    if (worst >= CT_SELECT_FIRST_BAD)
        return CT_FAIL(CT_ERR_DIVERGED, "an accumulated gradient holds NaN or infinity");
    return CT_OK;
}

static void collect_block(const ct_select_run *r, ct_select_thread *t, int64_t first, int64_t n)
{
    ct_block_collect(r->key, r->a, first, n, &t->found);
}

ct_status ct_select_collect(ct_select_run *r, int32_t bound, int64_t *total_p, bool *pruned_p)
{
    ct_selector *sel = r->sel;
    int64_t total = 0;
    bool pruned = false;
    ct_mark_fn mark = ct_mark_pick();

    for (int t = 0; t < r->team; ++t) {
        ct_select_thread *th = &sel->thread[t];
        int64_t mine = (th->last - th->first) * CT_SELECT_BLOCK;
        int64_t room = (2 * r->limit > MIN_ROOM) ? 2 * r->limit : MIN_ROOM;

        if (!r->sized) CT_TRY(reserve(&th->found, at_most(room, mine) + CT_SELECT_GROUP, r->a));
        th->found.count = 0;
        th->found.limit = r->limit;
        th->found.bound = bound;
        th->found.taken = r->taken;
        th->found.mark = mark;
    }
    CT_TRY(ct_select_pass(r, collect_block));
    for (int t = 0; t < r->team; ++t) {
        total += sel->thread[t].found.count;
        pruned = pruned || (sel->thread[t].found.bound != bound);
    }
    sel->stats.candidates += total;
    *total_p = total;
    *pruned_p = pruned;
    return CT_OK;
}

ct_status ct_select_collect_k(ct_select_run *r, int32_t bound, int64_t *total_p)
{
    bool pruned;

    CT_TRY(ct_select_collect(r, bound, total_p, &pruned));
    if ((*total_p >= r->sel->k) || (bound == 0)) return CT_OK;
    for (int t = 0; t < r->team; ++t) ct_block_restore(r->a, &r->sel->thread[t].found);
    r->taken = INT32_MAX;
    return ct_select_collect(r, 0, total_p, &pruned);
}

/* The threshold that this step will have, if it goes on growing or falling as it did. */
static float foreseen(const ct_select_history *h)
{
    float ratio = (h->before > 0.0f) ? h->threshold / h->before : 1.0f;

    if (ratio > MOST_RATIO) ratio = MOST_RATIO;
    return h->threshold * ((ratio < 1 / MOST_RATIO) ? 1 / MOST_RATIO : ratio);
}

/* Candidates in the update's own pass. What lies over the threshold that is foreseen is cleared
 * there, while its lines are in the cache: the few that were not selected after all go back. */
static ct_status exact_by_bound(ct_select_run *r)
{
    ct_select_history *h = r->history;
    int32_t bound = 0;
    int64_t total;

    if (h->threshold > 0.0f) {
        bound = ct_select_bits(h->threshold * h->margin);
        bound -= (bound > 0);
        r->taken = ct_select_bits(foreseen(h));
        r->sel->stats.history = true;
    } else {
        CT_TRY(ct_select_sample_bound(r, &bound));
    }
    CT_TRY(ct_select_collect_k(r, bound, &total));
    if (!r->sel->stats.history) return CT_OK;
    /* a miss costs a pass over V, many candidates little: a large step back, small steps forth */
    if (r->sel->stats.passes > 1)
        h->margin *= (h->margin > MARGIN_LEAST) ? MARGIN_BACK : 1.0f;
    else if ((total > r->sel->k + r->sel->k / 4) && (h->margin < MARGIN_MOST))
        h->margin *= (total > 2 * r->sel->k) ? MARGIN_LEAP : MARGIN_FORTH;
    return CT_OK;
}

static void histogram_block(const ct_select_run *r, ct_select_thread *t, int64_t first, int64_t n)
{
    ct_block_extremes(r->key, r->a->v + first, n, &t->found);
    ct_block_histogram(r->key, r->a->v + first, n, t->bin);
}

/* The bin, from the top, that holds the k-th. */
static int radix_bin(const ct_select_run *r)
{
    int64_t above = 0;
    int b = CT_SELECT_BINS - 1;

    for (; b > 0; --b) {
        for (int t = 0; t < r->team; ++t) above += r->sel->thread[t].bin[b];
        if (above >= r->sel->k) break;
    }
    return b;
}

/* A histogram in the update's pass, then candidates: k, and what else is in the k-th's bin. */
static ct_status exact_by_radix(ct_select_run *r)
{
    ct_selector *sel = r->sel;
    int64_t total;
    int bin;

    for (int t = 0; t < r->team; ++t) {
        ct_select_thread *th = &sel->thread[t];

        if (th->bin == NULL) th->bin = ct_mem_acquire(CT_SELECT_BINS * sizeof(*th->bin));
        if (th->bin == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a histogram");
        memset(th->bin, 0, CT_SELECT_BINS * sizeof(*th->bin));
    }
    CT_TRY(ct_select_pass(r, histogram_block));
    bin = radix_bin(r);
    for (int t = 0; t < r->team; ++t) {
        ct_select_thread *th = &sel->thread[t];
        int64_t room = CT_SELECT_GROUP, mine = (th->last - th->first) * CT_SELECT_BLOCK;

        for (int b = bin; b < CT_SELECT_BINS; ++b) room += th->bin[b];
        if (sel->k_least <= sel->n / LARGE_SHARE) /* k falls: room for candidates over a bound */
            room = larger(room, at_most(2 * (sel->n / LARGE_SHARE), mine) + CT_SELECT_GROUP);
        CT_TRY(reserve(&th->found, room, r->a));
    }
    r->sized = true;
    return ct_select_collect_k(
        r, (bin > 0) ? (int32_t)((uint32_t)bin << CT_SELECT_BIN_SHIFT) - 1 : 0, &total);
}

static ct_status collect(ct_select_run *r)
{
    if (r->sel->kind == CT_SELECT_TRIMMED) return ct_select_trimmed(r);
    if (r->sel->kind == CT_SELECT_SEARCH) return ct_select_search(r);
    if (r->sel->kind == CT_SELECT_SAMPLED) return ct_select_sampled(r);
    return (r->sel->k > r->sel->n / LARGE_SHARE) ? exact_by_radix(r) : exact_by_bound(r);
}

ct_status ct_selector_run(ct_selector *sel, const ct_momentum_correction *a, ct_sparse *out)
{
    ct_select_run r = { .sel = sel, .a = a, .history = &sel->history[sel->sign + 1] };
    double start = ct_clock_s(), collected;

    if (a->n != sel->n)
        return CT_FAIL(CT_ERR_ARG, "a selection of %lld elements was given %lld", (long long)sel->n,
                       (long long)a->n);
    sel->stats = (ct_select_stats){ 0 };
    for (int i = 0; (a->carry != 0) && (i < 3); ++i) {
        sel->history[i].threshold *= a->carry;
        sel->history[i].before *= a->carry;
    }
    r.key = ct_select_key_of_sign(sel->sign);
    r.limit = sel->k;
    r.taken = INT32_MAX;
    if (sel->n == 0) {
        out->n = out->count = 0;
        return CT_OK;
    }
    CT_TRY(prepare(&r));
    CT_TRY(collect(&r));
    collected = ct_clock_s();
    CT_TRY(ct_select_settle(&r, out));
    if (sel->kind == CT_SELECT_EXACT) {
        r.history->before = r.history->threshold;
        r.history->threshold = (out->count == sel->k) ? sel->stats.threshold : 0.0f;
    }
    sel->stats.update_s = collected - start;
    sel->stats.select_s = ct_clock_s() - collected;
    return CT_OK;
}
