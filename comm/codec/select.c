/* Exact selection in the update's own pass, and what all selections share. */
#include "comm/codec/select.h"

#include <math.h>
#include <stdlib.h>

#include "comm/codec/select_impl.h"
#include "framework/base/clock.h"
#include "framework/base/simd.h"

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

/* ---- A bound for the exact selection where no earlier step has left one. */

enum {
    LINE = 16,         /* elements of a cache line */
    SAMPLE_MIN = 4096, /* elements                 */
    SAMPLE_MAX = 1 << 17,
    SAMPLE_SELECTED = 64, /* as many of a sample should be selected */
    SAMPLE_SHARE = 32     /* at most this part of all is sampled    */
};

/* Lines from all over the arrays, gathered and updated as the pass will: keys in sel->sample. */
static void draw_sample(const ct_select_run *r, int64_t n_line)
{
    const ct_momentum_correction *a = r->a;
    int64_t m = n_line * LINE, stride = a->n / n_line;
    float *g = r->sel->sample, *w = g + m, *u = w + m, *v = u + m;
    ct_momentum_correction s = *a;

    s.grad = g;
    s.weight = (a->weight != NULL) ? w : NULL;
    s.u = (a->u != NULL) ? u : NULL;
    s.v = v;
#pragma omp parallel for schedule(static) num_threads(r->team) if (r->team > 1)
    for (int64_t l = 0; l < n_line; ++l) { /* a line of each stride, not always the same one */
        uint64_t mixed = (uint64_t)(l + 1) * 0x9e3779b97f4a7c15u >> 32;
        int64_t at = l * stride + (int64_t)(mixed % (uint64_t)(stride - LINE)), to = l * LINE;
        size_t bytes = LINE * sizeof(float);

        at -= (at >= LINE) ? at % LINE : 0;
        memcpy(g + to, a->grad + at, bytes);
        memcpy(v + to, a->v + at, bytes);
        if (s.u != NULL) memcpy(u + to, a->u + at, bytes);
        if ((s.u != NULL) && (s.weight != NULL)) memcpy(w + to, a->weight + at, bytes);
        ct_momentum_correction_block(&s, to, LINE);
        for (int64_t i = to; i < to + LINE; ++i)
            v[i] = ct_select_float(ct_select_key_of(v[i], r->key));
    }
}

/* Elements of a sample among which enough are of the k largest. */
static int64_t sample_size(const ct_selector *sel, int64_t k)
{
    int64_t m = SAMPLE_SELECTED * sel->n / k;

    if (m > SAMPLE_MAX) m = SAMPLE_MAX;
    return (m < SAMPLE_MIN) ? SAMPLE_MIN : m;
}

static ct_status select_sample_bound(const ct_select_run *r, int32_t *bound_p)
{
    ct_selector *sel = r->sel;
    int64_t m = sample_size(sel, sel->k), n_line, equal;
    double expected;
    uint32_t bits;

    *bound_p = 0;
    if (m > sel->n / SAMPLE_SHARE) return CT_OK;
    if (sel->sample == NULL) {
        size_t most = (size_t)sample_size(sel, sel->k_least);

        sel->sample = ct_mem_acquire(4 * most * sizeof(*sel->sample));
        if (sel->sample == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sample");
    }
    n_line = m / LINE;
    m = n_line * LINE;
    draw_sample(r, n_line);
    expected = (double)sel->k * (double)m / (double)sel->n;
    ct_sparse_kth(sel->sample + 3 * m, m, llround(1.5 * expected + 4 * sqrt(expected)) + 8, &bits,
                  &equal);
    if (bits > 0) *bound_p = (int32_t)bits - 1;
    return CT_OK;
}

/* ---- RedSync's selections (arXiv 1808.04357): thresholds between the mean and the maximum of the
 * magnitudes. Where the distribution gives no threshold (a constant: mean and maximum are equal; a
 * few huge elements: fewer than k over the mean) they end in the exact selection. With one sign
 * only, mean and maximum are those of the keys: elements of the other sign count as zero. */

enum { MAX_ROUND = 6, MAX_AGE = 5 };

typedef struct spread {
    float mean, max;
} spread;

static void sum_block(const ct_select_run *r, ct_select_thread *t, int64_t first, int64_t n)
{
    ct_block_extremes(r->key, r->a->v + first, n, &t->found);
    r->sel->block_sum[first / CT_SELECT_BLOCK] = ct_block_sum(r->key, r->a->v + first, n);
}

static void count_block(const ct_select_run *r, ct_select_thread *t, int64_t first, int64_t n)
{
    ct_block_count(r->key, r->a->v + first, n, r->probe, t->count);
}

/* Sums of blocks, added in order: the mean does not depend on the number of threads. */
static ct_status find_spread(ct_select_run *r, spread *out)
{
    ct_selector *sel = r->sel;
    double sum = 0.0;
    int32_t most = 0;

    if (sel->block_sum == NULL)
        sel->block_sum = ct_mem_acquire((size_t)sel->n_block * sizeof(*sel->block_sum));
    if (sel->block_sum == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for sums of blocks");
    CT_TRY(ct_select_pass(r, sum_block));
    for (int64_t b = 0; b < sel->n_block; ++b) sum += sel->block_sum[b];
    for (int t = 0; t < r->team; ++t)
        most = (sel->thread[t].found.most > most) ? sel->thread[t].found.most : most;
    out->mean = (float)(sum / (double)sel->n);
    out->max = ct_select_float(most);
    return CT_OK;
}

/* How many keys are over each of the probes. */
static ct_status count(ct_select_run *r, const float *threshold, int n, int64_t *count_p)
{
    for (int j = 0; j < CT_SELECT_PROBES; ++j)
        r->probe[j] = (j < n) ? ct_select_bits(threshold[j]) : INT32_MAX;
    for (int t = 0; t < r->team; ++t)
        memset(r->sel->thread[t].count, 0, sizeof(r->sel->thread[t].count));
    CT_TRY(ct_select_pass(r, count_block));
    for (int j = 0; j < n; ++j) {
        count_p[j] = 0;
        for (int t = 0; t < r->team; ++t) count_p[j] += r->sel->thread[t].count[j];
    }
    return CT_OK;
}

/* mean + ratio (max - mean), ratio = 0.8, 0.6 … 0, all counted in one pass: the first that k pass.
 */
static ct_status select_trimmed(ct_select_run *r)
{
    enum { STEPS = 5 };
    float threshold[STEPS];
    int64_t passed[STEPS], total;
    int32_t bound = 0;
    spread s;

    CT_TRY(find_spread(r, &s));
    for (int j = 0; j < STEPS; ++j)
        threshold[j] = s.mean + 0.2f * (float)(STEPS - 1 - j) * (s.max - s.mean);
    CT_TRY(count(r, threshold, STEPS, passed));
    for (int j = 0; (j < STEPS) && (bound == 0); ++j)
        if (passed[j] >= r->sel->k) bound = ct_select_bits(threshold[j]);
    return ct_select_collect_k(r, bound, &total);
}

/* A threshold that k to 5/4 k keys pass: eight probes a round between low, which too many pass, and
 * high. *found_p false: there is none to be found, but at least k pass *low_p, or it is 0. */
static ct_status search(ct_select_run *r, spread s, float *low_p, bool *found_p)
{
    float low = s.mean, high = s.max, x[CT_SELECT_PROBES];
    int64_t passed[CT_SELECT_PROBES], k = r->sel->k;

    *found_p = false;
    for (int round = 0; (round < MAX_ROUND) && (low < high); ++round) {
        int j = CT_SELECT_PROBES - 1;

        for (int i = 0; i < CT_SELECT_PROBES; ++i)
            x[i] = low + (float)i / CT_SELECT_PROBES * (high - low);
        CT_TRY(count(r, x, CT_SELECT_PROBES, passed));
        while ((j >= 0) && (passed[j] < k)) --j;
        if (j < 0) { /* below the mean, then */
            if (low == 0.0f) break;
            high = low;
            low = 0.0f;
            continue;
        }
        low = x[j];
        *found_p = (passed[j] <= ct_select_most(k));
        if (*found_p) break;
        if (j < CT_SELECT_PROBES - 1) high = x[j + 1];
    }
    *low_p = (low < high) ? low : 0.0f;
    return CT_OK;
}

static ct_status select_search(ct_select_run *r)
{
    float low;
    int64_t total;
    bool found;
    spread s;

    CT_TRY(find_spread(r, &s));
    CT_TRY(search(r, s, &low, &found));
    r->limit = found ? ct_selector_bound(r->sel) : r->sel->k;
    r->history->threshold = found ? low : 0.0f;
    r->history->age = 1;
    return ct_select_collect_k(r, ct_select_bits(low), &total);
}

static ct_status select_sampled(ct_select_run *r)
{
    ct_select_history *h = r->history;
    int64_t total;
    bool pruned;

    if ((h->threshold <= 0.0f) || (h->age >= MAX_AGE)) return select_search(r);
    h->age += 1;
    r->limit = ct_selector_bound(r->sel);
    r->sel->stats.history = true;
    CT_TRY(ct_select_collect(r, ct_select_bits(h->threshold), &total, &pruned));
    if (!pruned && (2 * total >= r->sel->k) && (total <= r->limit)) return CT_OK;
    r->sel->stats.history = false;
    return select_search(r);
}

/* ---- The end of a selection: which of the candidates it is, and V and U without them. */

enum { AHEAD = 16 }; /* elements: prefetched while others are written */

static int64_t all_found(const ct_select_run *r)
{
    int64_t total = 0;

    for (int t = 0; t < r->team; ++t) total += r->sel->thread[t].found.count;
    return total;
}

/* The least magnitude that is selected, and how many of those equal to it, as ct_sparse_kth(). */
static void find_threshold(const ct_select_run *r, float *scratch, uint32_t *bits_p,
                           int64_t *equal_p)
{
    int64_t at = 0;

    for (int t = 0; t < r->team; ++t) {
        const ct_select_found *f = &r->sel->thread[t].found;

        if (f->count > 0) memcpy(scratch + at, f->value, (size_t)f->count * sizeof(*scratch));
        at += f->count;
    }
    ct_sparse_kth(scratch, at, r->limit, bits_p, equal_p);
}

CT_SIMD_CLONES static void count_over(const float *value, int64_t n, int32_t threshold,
                                      int64_t *over_p, int64_t *equal_p)
{
    int64_t over = 0, equal = 0;

#pragma omp simd reduction(+ : over, equal)
    for (int64_t j = 0; j < n; ++j) {
        int32_t m = ct_select_bits(value[j]) & INT32_MAX;

        over += (m > threshold);
        equal += (m == threshold);
    }
    *over_p = over;
    *equal_p = equal;
}

/* Where each thread's go; of those equal to the threshold the first are selected. Returns how many
 * are. */
static int64_t share_out(const ct_select_run *r, int64_t equal)
{
    int64_t at = 0;

    for (int t = 0; t < r->team; ++t) {
        ct_select_thread *th = &r->sel->thread[t];

        if (th->equal > equal) th->equal = equal;
        equal -= th->equal;
        th->at = at;
        at += th->over + th->equal;
    }
    return at;
}

/* Copies what is selected, and leaves of the candidates what has to be written: 0 where one is
 * selected that the pass has not taken, and what was there where it took another. Which it will be
 * cannot be foreseen, so nothing branches on it. */
static void take(const ct_momentum_correction *a, ct_select_thread *th, int32_t threshold,
                 ct_sparse *out)
{
    ct_select_found *f = &th->found;
    int64_t at = th->at, end = at + th->over + th->equal, equal = th->equal, n = 0;
    bool masks = (ct_momentum_correction_masked(a) != NULL);
    uint32_t no_index;
    float no_value;

    for (int64_t j = 0; j < f->count; ++j) {
        uint32_t index = f->index[j];
        float value = f->value[j];
        int32_t m = ct_select_bits(value) & INT32_MAX;
        bool tie = (m == threshold) & (equal > 0), stays = (m > threshold) | tie;

        *((at < end) ? &out->index[at] : &no_index) = index; /* behind are other threads' */
        *((at < end) ? &out->value[at] : &no_value) = value;
        at += stays;
        equal -= tie;
        f->index[n] = index;
        f->value[n] = stays ? 0.0f : value;
        if (masks) f->u[n] = stays ? 0.0f : f->u[j];
        n += stays ^ (m > f->taken);
    }
    f->count = n;
}

static void write_back(const ct_momentum_correction *a, const ct_select_found *f)
{
    float *v = a->v, *u = ct_momentum_correction_masked(a);

    for (int64_t j = 0; j < f->count; ++j) {
        uint32_t i = f->index[j], next = f->index[(j + AHEAD < f->count) ? j + AHEAD : j];

        __builtin_prefetch(&v[next], 1);
        v[i] = f->value[j];
        if (u == NULL) continue;
        __builtin_prefetch(&u[next], 1);
        u[i] = f->u[j];
    }
}

CT_SIMD_CLONES static float least(const float *value, int64_t count)
{
    int32_t m = INT32_MAX;

#pragma omp simd reduction(min : m)
    for (int64_t j = 0; j < count; ++j) {
        int32_t x = ct_select_bits(value[j]) & 0x7fffffff;

        m = (x < m) ? x : m;
    }
    return (count > 0) ? ct_select_float(m) : 0.0f;
}

static ct_status select_settle(const ct_select_run *r, ct_sparse *out)
{
    uint32_t threshold = 0;
    int64_t equal = 0;

    out->count = 0;
    CT_TRY(ct_sparse_reserve(out, all_found(r)));
    find_threshold(r, out->value, &threshold, &equal);
#pragma omp parallel num_threads(r->team) if (r->team > 1)
    {
#pragma omp for schedule(static, 1)
        for (int t = 0; t < r->team; ++t) {
            ct_select_thread *th = &r->sel->thread[t];

            count_over(th->found.value, th->found.count, (int32_t)threshold, &th->over, &th->equal);
        }
#pragma omp single
        out->count = share_out(r, equal);
#pragma omp for schedule(static, 1)
        for (int t = 0; t < r->team; ++t) {
            take(r->a, &r->sel->thread[t], (int32_t)threshold, out);
            write_back(r->a, &r->sel->thread[t].found);
        }
    }
    out->n = r->sel->n;
    r->sel->stats.threshold = least(out->value, out->count);
    return CT_OK;
}

/* ---- exact selections, and a run */

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
        CT_TRY(select_sample_bound(r, &bound));
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
    if (r->sel->kind == CT_SELECT_TRIMMED) return select_trimmed(r);
    if (r->sel->kind == CT_SELECT_SEARCH) return select_search(r);
    if (r->sel->kind == CT_SELECT_SAMPLED) return select_sampled(r);
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
    CT_TRY(select_settle(&r, out));
    if (sel->kind == CT_SELECT_EXACT) {
        r.history->before = r.history->threshold;
        r.history->threshold = (out->count == sel->k) ? sel->stats.threshold : 0.0f;
    }
    sel->stats.update_s = collected - start;
    sel->stats.select_s = ct_clock_s() - collected;
    return CT_OK;
}
