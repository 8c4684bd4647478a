#include "planner/job_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slots of the limit while a search goes on, and of a choice: of these numbers that which rounds up
 * least. */
#define LEAST_SLOTS 96
#define MOST_SLOTS  160
#define FINE_SLOTS  512

/* The fastest ways of blocks first … end - 1, everything kept. */
typedef struct whole {
    double time_s, sums_s;
    double weights, kept, other, input; /* bytes; kept: of one micro-batch in flight */
} whole;

/* Of all runs with so many micro-batches in flight what is known; [first][end - 1], for the first
 * of the runs that are alike. */
typedef struct known {
    int64_t in_flight;
    ct_job_run *run;
    bool *exact; /* else from below */
} known;

/* The least bytes of a block over the ways that it may go. */
typedef struct lowest {
    double weights, fixed, other, kept;
} lowest;

struct ct_job_stage {
    ct_job_prices price;
    int *like;       /* [block] the first one with all figures the same */
    int *same;       /* [a][b]: so many blocks from a and b on are alike */
    whole *all;      /* [first][end - 1] */
    int *first_like; /* [first][end - 1] the first block of the first run that is alike */
    lowest *least;   /* [block] */
    int n_way, way[CT_JOB_N_WAY]; /* those that some block may go */
    known *known;
    int n_known;
};

/* ---- alike blocks */

static bool alike(const ct_job_stage *g, int a, int b)
{
    const ct_job_price *p = &g->price.group[g->price.kind.n_group],
                       *f = &g->price.group[g->price.full];
    const double *of[] = { p->forward,    p->backward,     p->again,      f->kept,
                           f->fixed,      f->input,        f->other,      g->price.weights,
                           g->price.sums, g->price.update, g->price.leave };
    size_t n = CT_JOB_N_WAY * sizeof(double);

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        if (memcmp(&of[i][ct_job_cell(a, 0)], &of[i][ct_job_cell(b, 0)], n) != 0) return false;
    }
    return memcmp(&g->price.reshard[ct_job_cell(a, 0) * CT_JOB_N_WAY],
                  &g->price.reshard[ct_job_cell(b, 0) * CT_JOB_N_WAY], n * CT_JOB_N_WAY) == 0;
}

static void find_likes(ct_job_stage *g)
{
    int n = g->price.n_block;

    for (int b = 0; b < n; b++) {
        int a = 0;

        while ((a < b) && !((g->like[a] == a) && alike(g, a, b))) a++;
        g->like[b] = a;
    }
    for (int a = n - 1; a >= 0; a--) {
        for (int b = n - 1; b >= 0; b--) {
            int more = ((a + 1 < n) && (b + 1 < n)) ? g->same[(a + 1) * n + b + 1] : 0;

            g->same[a * n + b] = (g->like[a] == g->like[b]) ? 1 + more : 0;
        }
    }
}

/* Where a run stands in tables [first][end - 1]. */
static size_t run_at(const ct_job_stage *g, int first, int end)
{
    return (size_t)first * (size_t)g->price.n_block + (size_t)end - 1;
}

/* … and the first run that is alike. */
static size_t alike_at(const ct_job_stage *g, int first, int end)
{
    int like = g->first_like[run_at(g, first, end)];

    return run_at(g, like, like + end - first);
}

/* A longer run is alike to fewer. */
static void find_first_likes(ct_job_stage *g)
{
    for (int first = 0; first < g->price.n_block; first++) {
        int a = 0;

        for (int end = first + 1; end <= g->price.n_block; end++) {
            while ((a < first) && (g->same[a * g->price.n_block + first] < end - first)) a++;
            g->first_like[run_at(g, first, end)] = a;
        }
    }
}

/* ---- everything kept: the fastest ways */

/* The least time to each way of a block, and where it came from. */
typedef struct path {
    double time_s[CT_JOB_N_WAY];
    int from[CT_JOB_N_WAY];
} path;

static double block_s(const ct_job_stage *g, int block, int way)
{
    const ct_job_price *p = &g->price.group[g->price.kind.n_group];

    return p->forward[ct_job_cell(block, way)] + p->backward[ct_job_cell(block, way)];
}

/* A block's part of the sums at the end of a step, where they count. */
static double sums_s(const ct_job_stage *g, int block, int way)
{
    if (g->price.kind.micro == 0) return 0;
    return (g->price.sums[ct_job_cell(block, way)] + g->price.update[ct_job_cell(block, way)]) /
           (double)g->price.kind.micro;
}

static void step_path(const ct_job_stage *g, int first, int block, const path *before, path *now)
{
    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        double least = (block == first) ? 0 : INFINITY;

        now->from[w] = 0;
        for (int v = 0; (block > first) && (v < CT_JOB_N_WAY); v++) {
            double t = before->time_s[v] +
                       g->price.reshard[(ct_job_cell(block, v)) * CT_JOB_N_WAY + (size_t)w];

            if (t >= least) continue;
            least = t;
            now->from[w] = v;
        }
        now->time_s[w] = least + block_s(g, block, w) + sums_s(g, block, w);
    }
}

static int best_end(const ct_job_stage *g, int block, const path *p)
{
    int best = 0;
    bool last = (block == g->price.n_block - 1);

    for (int w = 1; w < CT_JOB_N_WAY; w++) {
        double a = p->time_s[w] + (last ? 0 : g->price.leave[ct_job_cell(block, w)]);
        double b = p->time_s[best] + (last ? 0 : g->price.leave[ct_job_cell(block, best)]);

        if (a < b) best = w;
    }
    return best;
}
static whole add_up(const ct_job_stage *g, int first, int end, const int *way)
{
    const ct_job_price *full = &g->price.group[g->price.full];
    whole a = { 0 };

    for (int x = first; x < end; x++) {
        size_t i = ct_job_cell(x, way[x - first]);

        a.weights += g->price.weights[i];
        a.kept += full->kept[i] + full->fixed[i];
        a.other = fmax(a.other, full->other[i]);
        a.sums_s += g->price.sums[i] + g->price.update[i];
        a.time_s -= sums_s(g, x, way[x - first]);
        if (x == g->price.n->tie_last)
            a.weights +=
                ct_job_prices_tied(&g->price, first, end, way[x - first]) * g->price.n->tie_weights;
    }
    return a;
}

static void trace(const ct_job_stage *g, const path *p, int first, int end, int *way)
{
    int w = best_end(g, end - 1, &p[end - 1]);

    for (int x = end - 1; x >= first; x--) {
        way[x - first] = w;
        w = p[x].from[w];
    }
}

static ct_status find_fastest(ct_job_stage *g)
{
    int n = g->price.n_block;
    path *p;
    int *way;

    if (n < 1) return CT_FAIL(CT_ERR_ARG, "a stage of no blocks");
    p = calloc((size_t)n, sizeof(*p));
    way = calloc((size_t)n, sizeof(*way));
    if ((p == NULL) || (way == NULL)) {
        free(p);
        free(way);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks", n);
    }
    for (int first = 0; first < n; first++) {
        for (int x = first; x < n; x++) {
            whole *a = &g->all[run_at(g, first, x + 1)];
            int w, like = g->first_like[run_at(g, first, x + 1)];

            step_path(g, first, x, (x > first) ? &p[x - 1] : NULL, &p[x]);
            if (like < first) {
                *a = g->all[run_at(g, like, like + x - first + 1)];
                continue;
            }
            trace(g, p, first, x + 1, way);
            *a = add_up(g, first, x + 1, way);
            w = way[x - first];
            a->time_s += p[x].time_s[w] + ((x < n - 1) ? g->price.leave[ct_job_cell(x, w)] : 0);
        }
    }
    free(p);
    free(way);
    return CT_OK;
}

/* ---- the least bytes */

static bool may_go(const ct_job_stage *g, int block, int way)
{
    return isfinite(block_s(g, block, way));
}

/* The least over the ways that a block may go. */
static double least_of(const ct_job_stage *g, const double *v, int block)
{
    double least = INFINITY;

    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        if (may_go(g, block, w)) least = fmin(least, v[ct_job_cell(block, w)]);
    }
    return isfinite(least) ? least : 0;
}

/* Of one block: what it takes anyway, and what grows with the micro-batches in flight. */
static void find_lowest(const ct_job_stage *g, int x, lowest *l)
{
    const ct_job_price *full = &g->price.group[g->price.full];

    *l = (lowest){ least_of(g, g->price.weights, x), least_of(g, full->fixed, x),
                   least_of(g, full->other, x), least_of(g, full->kept, x) };
}

static void find_ways(ct_job_stage *g)
{
    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        bool any = false;

        for (int x = 0; x < g->price.n_block; x++) any = any || may_go(g, x, w);
        if (any) g->way[g->n_way++] = w;
    }
}

/* ---- made */

static ct_status fill(ct_job_stage *g)
{
    find_ways(g);
    for (int x = 0; x < g->price.n_block; x++) find_lowest(g, x, &g->least[x]);
    find_likes(g);
    find_first_likes(g);
    return find_fastest(g);
}

ct_status ct_job_stage_create(const ct_job_net *n, const ct_job_split *s, const ct_job_machine *m,
                              const ct_job_stage_kind *kind, ct_job_stage **stage_p)
{
    ct_job_stage *g = calloc(1, sizeof(*g));
    size_t blocks = (size_t)n->n_block;
    ct_status status;

    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a stage");
    g->like = calloc(blocks, sizeof(*g->like));
    g->same = calloc(blocks * blocks, sizeof(*g->same));
    g->first_like = calloc(blocks * blocks, sizeof(*g->first_like));
    g->all = calloc(blocks * blocks, sizeof(*g->all));
    g->least = calloc(blocks, sizeof(*g->least));
    if ((g->like == NULL) || (g->same == NULL) || (g->all == NULL) || (g->first_like == NULL) ||
        (g->least == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %zu blocks of a stage", blocks);
    else
        status = ct_job_prices_make(n, s, m, kind, &g->price);
    if (status == CT_OK) status = fill(g);
    if (status == CT_OK)
        *stage_p = g;
    else
        ct_job_stage_destroy(g);
    return status;
}

void ct_job_stage_destroy(ct_job_stage *g)
{
    if (g == NULL) return;
    ct_job_prices_destroy(&g->price);
    free(g->like);
    free(g->same);
    free(g->all);
    free(g->first_like);
    free(g->least);
    for (int i = 0; i < g->n_known; i++) {
        free(g->known[i].run);
        free(g->known[i].exact);
    }
    free(g->known);
    free(g);
}

const ct_job_prices *ct_job_stage_prices(const ct_job_stage *g)
{
    return &g->price;
}

/* ---- runs under the limit */

double ct_job_stage_least(const ct_job_stage *g, int first, int end, int64_t in_flight)
{
    double sum = 0, other = 0, segment = 0;

    for (int x = first; x < end; x++) {
        const lowest *l = &g->least[x];

        sum += l->weights + (double)in_flight * l->fixed;
        other = fmax(other, l->other);
        segment = fmax(segment, l->kept);
    }
    /* a block is kept, or made again as a segment at last */
    return sum + other + segment;
}

static bool fits_whole(const ct_job_stage *g, const whole *a, int64_t in_flight, double spare)
{
    double limit = g->price.group[g->price.full].limit;

    if (limit == 0) return true;
    return a->weights + (double)in_flight * a->kept + a->other + spare <= limit;
}

double ct_job_stage_whole_s(const ct_job_stage *g, int first, int end)
{
    return g->all[run_at(g, first, end)].time_s;
}

/* ---- times from below
 *
 * A byte over the limit costs `byte_s` seconds: the least of (seconds + byte_s bytes) over all ways
 * and modes, less what the limit is worth, is at most the time of any choice that fits. What a
 * segment keeps of its input, and what it needs while it is made again, is left out. */

enum { N_PRICES = 8 };

static double priced(const ct_job_stage *g, int block, int way, int64_t in_flight, double byte_s)
{
    const ct_job_price *full = &g->price.group[g->price.full],
                       *slow = &g->price.group[g->price.kind.n_group];
    size_t i = ct_job_cell(block, way);
    double bytes = g->price.weights[i] + (double)in_flight * full->fixed[i];
    double keep = byte_s * (double)in_flight * full->kept[i];

    if (!may_go(g, block, way)) return INFINITY;
    return block_s(g, block, way) + byte_s * bytes + fmin(keep, slow->again[i]);
}

/* The least to each way of block x, of that to the ways of the one before; cost: [block][way]. */
static void step_bound(const ct_job_stage *g, int x, bool is_first, const double *cost,
                       const double *before, double *now)
{
    for (int i = 0; i < g->n_way; i++) {
        int w = g->way[i];
        double best = is_first ? 0 : INFINITY;

        for (int k = 0; !is_first && (k < g->n_way); k++) {
            double t = before[g->way[k]] +
                       g->price.reshard[ct_job_cell(x, g->way[k]) * CT_JOB_N_WAY + (size_t)w];

            if (t < best) best = t;
        }
        now[w] = best + cost[ct_job_cell(x, w)];
    }
}

/* cost: room for [block][way]. */
static void bound_runs(const ct_job_stage *g, int64_t in_flight, double byte_s, double *cost,
                       ct_job_run *run)
{
    double limit = g->price.group[g->price.full].limit;
    int n = g->price.n_block;

    for (int x = 0; x < n; x++) {
        for (int w = 0; w < CT_JOB_N_WAY; w++)
            cost[ct_job_cell(x, w)] = priced(g, x, w, in_flight, byte_s);
    }
    for (int first = 0; first < n; first++) {
        double now[CT_JOB_N_WAY] = { 0 }, before[CT_JOB_N_WAY], other = 0;

        for (int x = first; x < n; x++) {
            ct_job_run *r = &run[run_at(g, first, x + 1)];
            double best = INFINITY;

            memcpy(before, now, sizeof(before));
            step_bound(g, x, x == first, cost, before, now);
            for (int i = 0; i < g->n_way; i++) {
                int w = g->way[i];
                double t = now[w] + ((x < n - 1) ? g->price.leave[ct_job_cell(x, w)] : 0);

                if (t < best) best = t;
            }
            if (g->least[x].other > other) other = g->least[x].other;
            best -= byte_s * (limit - other);
            if (best > r->time_s) r->time_s = best;
        }
    }
}

static void bound_sums(const ct_job_stage *g, ct_job_run *run)
{
    for (int first = 0; first < g->price.n_block; first++) {
        double sums = 0;

        for (int x = first; x < g->price.n_block; x++) {
            double best = INFINITY;

            for (int i = 0; i < g->n_way; i++) {
                int w = g->way[i];

                if (may_go(g, x, w))
                    best = fmin(best, g->price.sums[ct_job_cell(x, w)] +
                                          g->price.update[ct_job_cell(x, w)]);
            }
            sums += best;
            run[run_at(g, first, x + 1)].sums_s = sums;
        }
    }
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Prices at which blocks are worth making again, from the cheapest to the dearest. */
static int find_prices(const ct_job_stage *g, int64_t in_flight, double *value)
{
    double *all = calloc((size_t)g->price.n_block, sizeof(*all));
    int n = 0, n_price = 0;

    for (int x = 0; (all != NULL) && (x < g->price.n_block); x++) {
        double kept = (double)in_flight * least_of(g, g->price.group[g->price.full].kept, x);

        if (kept > 0) all[n++] = least_of(g, g->price.group[g->price.kind.n_group].again, x) / kept;
    }
    if (n > 0) qsort(all, (size_t)n, sizeof(*all), by_size);
    for (int i = 0; (n > 0) && (i < N_PRICES); i++)
        value[n_price++] = 1.0001 * all[(size_t)i * (size_t)(n - 1) / (N_PRICES - 1)];
    free(all);
    return n_price;
}

/* What can be told of all runs without a chain. */
static void tell(const ct_job_stage *g, double *room, known *k)
{
    double value[N_PRICES], limit = g->price.group[g->price.full].limit;
    int n_price = find_prices(g, k->in_flight, value), n = g->price.n_block;

    bound_sums(g, k->run);
    bound_runs(g, k->in_flight, 0, room, k->run);
    for (int i = 0; i < n_price; i++) bound_runs(g, k->in_flight, value[i], room, k->run);
    if (n_price > 0) /* … and where ways must change */
        bound_runs(g, k->in_flight, 8 * value[n_price - 1], room, k->run);
    for (int first = 0; first < n; first++) {
        bool none = false;
        double sum = 0, other = 0, segment = 0;

        for (int end = first + 1; end <= n; end++) {
            size_t i = run_at(g, first, end);
            const whole *a = &g->all[i];
            const lowest *l = &g->least[end - 1];

            sum += l->weights + (double)k->in_flight * l->fixed;
            other = fmax(other, l->other);
            segment = fmax(segment, l->kept);

            if (!none && (!isfinite(a->time_s) || fits_whole(g, a, k->in_flight, 0))) {
                k->run[i] = (ct_job_run){ a->time_s, a->sums_s };
                k->exact[i] = true;
                continue;
            }
            none = none || (sum + other + segment > limit);
            if (!none) continue;
            k->run[i] = (ct_job_run){ INFINITY, 0 };
            k->exact[i] = true;
        }
    }
}

static ct_status know(ct_job_stage *g, int64_t in_flight, known **known_p)
{
    size_t n = (size_t)g->price.n_block;
    known *more, *k;
    double *room;

    for (int i = 0; i < g->n_known; i++) {
        *known_p = &g->known[i];
        if (g->known[i].in_flight == in_flight) return CT_OK;
    }
    more = realloc(g->known, ((size_t)g->n_known + 1) * sizeof(*more));
    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu blocks of a stage", n);
    g->known = more;
    k = &more[g->n_known];
    *k = (known){ in_flight, calloc(n * n, sizeof(*k->run)), calloc(n * n, sizeof(*k->exact)) };
    room = calloc(ct_job_cell(g->price.n_block, 0), sizeof(*room));
    if ((k->run == NULL) || (k->exact == NULL) || (room == NULL)) {
        free(k->run);
        free(k->exact);
        free(room);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu blocks of a stage", n);
    }
    tell(g, room, k);
    free(room);
    g->n_known++;
    *known_p = k;
    return CT_OK;
}

ct_status ct_job_stage_look(ct_job_stage *g, int first, int end, int64_t in_flight,
                            ct_job_run *run_p, bool *exact_p)
{
    size_t i = run_at(g, first, end);
    known *k;

    *exact_p = true;
    *run_p = (ct_job_run){ g->all[i].time_s, g->all[i].sums_s };
    if (!isfinite(g->all[i].time_s) || fits_whole(g, &g->all[i], in_flight, 0)) return CT_OK;
    CT_TRY(know(g, in_flight, &k));
    i = alike_at(g, first, end);
    *run_p = k->run[i];
    *exact_p = k->exact[i];
    return CT_OK;
}

/* ---- the chain */

typedef struct problem {
    ct_chain chain;
    double *time_s, *again_s, *reshard_s;
    int64_t *weight, *kept, *input;
    int way[CT_JOB_N_WAY]; /* of its strategies */
} problem;

static void close_problem(problem *p)
{
    free(p->time_s);
    free(p->weight);
}

static ct_status open_problem(const ct_job_stage *g, int first, int end, problem *p)
{
    size_t n = (size_t)(end - first), cells;
    int n_way = 0;

    *p = (problem){ .chain = { .name = "the stage's chain" } };
    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        bool any = false;

        for (int x = first; x < end; x++) any |= may_go(g, x, w);
        if (any) p->way[n_way++] = w;
    }
    cells = n * (size_t)n_way;
    p->time_s = calloc(cells * (2 + (size_t)n_way) + 1, sizeof(*p->time_s));
    p->weight = calloc(3 * cells + 1, sizeof(*p->weight));
    if ((p->time_s == NULL) || (p->weight == NULL)) {
        close_problem(p);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a chain of %zu blocks", n);
    }
    p->again_s = p->time_s + cells;
    p->reshard_s = p->again_s + cells;
    p->kept = p->weight + cells;
    p->input = p->kept + cells;
    p->chain.n_block = (int)n;
    p->chain.n_strategy = n_way;
    p->chain.time_s = p->time_s;
    p->chain.again_s = p->again_s;
    p->chain.reshard_s = p->reshard_s;
    p->chain.weight = p->weight;
    p->chain.kept = p->kept;
    p->chain.input = p->input;
    return CT_OK;
}

static void fill_times(const ct_job_stage *g, int first, int end, problem *p)
{
    const ct_job_price *slow = &g->price.group[g->price.kind.n_group];
    int n_way = p->chain.n_strategy;

    for (int x = first; x < end; x++) {
        for (int v = 0; v < n_way; v++) {
            size_t i = (size_t)(x - first) * (size_t)n_way + (size_t)v,
                   k = ct_job_cell(x, p->way[v]);
            bool leaves = (x == end - 1) && (x < g->price.n_block - 1);

            p->time_s[i] = may_go(g, x, p->way[v])
                               ? block_s(g, x, p->way[v]) + sums_s(g, x, p->way[v]) +
                                     (leaves ? g->price.leave[k] : 0)
                               : INFINITY;
            p->again_s[i] = may_go(g, x, p->way[v]) ? slow->again[k] : 0;
            for (int w = 0; w < n_way; w++)
                p->reshard_s[i * (size_t)n_way + (size_t)w] =
                    g->price.reshard[k * CT_JOB_N_WAY + (size_t)p->way[w]];
        }
    }
}

static int64_t slots_of(double bytes, double slot)
{
    return (int64_t)ceil(bytes / slot - 1e-9);
}

/* What rounding up adds over the blocks, each in the way that it may go at least. */
static double waste_of(const ct_job_stage *g, int first, int end, double slot)
{
    const ct_job_price *full = &g->price.group[g->price.full];
    double sum = 0;

    for (int x = first; x < end; x++) {
        double kept = least_of(g, full->kept, x), input = least_of(g, full->input, x);

        sum += slot * (double)slots_of(kept, slot) - kept;
        sum += slot * (double)slots_of(input, slot) - input;
    }
    return sum;
}

static int64_t best_slots(const ct_job_stage *g, int first, int end, double room, int64_t least,
                          int64_t most)
{
    double best = INFINITY;
    int64_t slots = most;

    for (int64_t n = least; n <= most; n += 2) {
        double waste = waste_of(g, first, end, room / (double)n);

        if (waste >= best) continue;
        best = waste;
        slots = n;
    }
    return slots;
}

/* Weights and what is kept anyway are no multiples of a slot, and few of them matter: what rounding
 * leaves over goes on to the next block. */
static void fill_sizes(const ct_job_stage *g, int first, int end, int64_t in_flight, double slot,
                       problem *p)
{
    const ct_job_price *full = &g->price.group[g->price.full];
    int n_way = p->chain.n_strategy;
    double left[CT_JOB_N_WAY] = { 0 };

    for (int x = first; x < end; x++) {
        for (int v = 0; v < n_way; v++) {
            size_t i = (size_t)(x - first) * (size_t)n_way + (size_t)v,
                   k = ct_job_cell(x, p->way[v]);
            double bytes = g->price.weights[k] + (double)in_flight * full->fixed[k] + left[v];

            if (x == g->price.n->tie_last)
                bytes +=
                    ct_job_prices_tied(&g->price, first, end, p->way[v]) * g->price.n->tie_weights;
            p->weight[i] = (int64_t)floor(bytes / slot);
            left[v] = bytes - slot * (double)p->weight[i];
            p->kept[i] = slots_of(full->kept[k], slot);
            p->input[i] = slots_of(full->input[k], slot);
        }
    }
}

/* way, mode: [end - first]. *step_s_p INFINITY: nothing fits. */
static ct_status solve(const ct_job_stage *g, int first, int end, int64_t in_flight, double spare,
                       bool fine, int *way, ct_chain_mode *mode, double *step_s_p)
{
    double weights = 0, room, other = 0;
    problem p;
    ct_status status;
    int64_t slots;

    *step_s_p = INFINITY;
    for (int x = first; x < end; x++) {
        other = fmax(other, least_of(g, g->price.group[g->price.full].other, x));
        weights += least_of(g, g->price.weights, x) +
                   (double)in_flight * least_of(g, g->price.group[g->price.full].fixed, x);
    }
    room = g->price.group[g->price.full].limit - other - spare;
    if (room - weights <= 0) return CT_OK;
    CT_TRY(open_problem(g, first, end, &p));
    fill_times(g, first, end, &p);
    /* slots of what is left beside weights */
    slots = best_slots(g, first, end, room - weights, fine ? FINE_SLOTS * 3 / 4 : LEAST_SLOTS,
                       fine ? FINE_SLOTS : MOST_SLOTS);
    fill_sizes(g, first, end, in_flight, (room - weights) / (double)slots, &p);
    p.chain.limit = (int64_t)floor(room / ((room - weights) / (double)slots));
    p.chain.in_flight = in_flight;
    status = ct_chain_solve(&p.chain, way, mode, step_s_p);
    for (int x = 0; (status == CT_OK) && isfinite(*step_s_p) && (x < end - first); x++)
        way[x] = p.way[way[x]];
    close_problem(&p);
    return status;
}

static double sums_of(const ct_job_stage *g, int first, int end, const int *way)
{
    double sum = 0;

    for (int x = first; x < end; x++)
        sum += g->price.sums[ct_job_cell(x, way[x - first])] +
               g->price.update[ct_job_cell(x, way[x - first])];
    return sum;
}

ct_status ct_job_stage_settle(ct_job_stage *g, int first, int end, int64_t in_flight)
{
    size_t i = alike_at(g, first, end);
    int n = end - first, *way = calloc((size_t)g->price.n_block, sizeof(*way));
    ct_chain_mode *mode = calloc((size_t)g->price.n_block, sizeof(*mode));
    ct_job_run run = { INFINITY, 0 };
    known *k = NULL;
    ct_status status = know(g, in_flight, &k);

    if ((way == NULL) || (mode == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks", n);
    if (status == CT_OK) status = solve(g, first, end, in_flight, 0, false, way, mode, &run.time_s);
    if (status == CT_OK) {
        for (int x = 0; isfinite(run.time_s) && (x < n); x++)
            run.time_s -= sums_s(g, first + x, way[x]);
        if (isfinite(run.time_s)) run.sums_s = sums_of(g, first, end, way);
        k->run[i] = run;
        k->exact[i] = true;
    }
    free(way);
    free(mode);
    return status;
}

ct_status ct_job_stage_choose(ct_job_stage *g, int first, int end, int64_t in_flight, double spare,
                              int *way, ct_chain_mode *mode, bool *fits_p)
{
    const whole *a = &g->all[run_at(g, first, end)];
    double step_s;

    if (isfinite(a->time_s) && fits_whole(g, a, in_flight, spare)) {
        path *p = calloc((size_t)end, sizeof(*p));

        if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d blocks", end);
        for (int x = first; x < end; x++)
            step_path(g, first, x, (x > first) ? &p[x - 1] : NULL, &p[x]);
        trace(g, p, first, end, way);
        free(p);
        for (int x = 0; x < end - first; x++) mode[x] = CT_CHAIN_KEEP;
        *fits_p = true;
        return CT_OK;
    }
    *fits_p = false;
    if (!isfinite(a->time_s) || !isfinite(spare)) return CT_OK;
    CT_TRY(solve(g, first, end, in_flight, spare, true, way, mode, &step_s));
    *fits_p = isfinite(step_s);
    return CT_OK;
}
