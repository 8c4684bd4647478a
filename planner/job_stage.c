#include "planner/job_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slots of the limit while a search goes on, and of a choice: of these numbers that which rounds up
 * least. */
#define LEAST_SLOTS 96
#define MOST_SLOTS  160
#define FINE_SLOTS  512

/* Of one group: what blocks take in each way. */
typedef struct price {
    double *forward, *backward, *again;   /* seconds, [block][way] */
    double *kept, *fixed, *input, *other; /* bytes */
    double limit;                         /* of a rank; 0: any */
} price;

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
    const ct_job_net *n;
    const ct_job_split *s;
    const ct_job_machine *m;
    ct_job_stage_kind kind;
    int n_block;
    price *group;                      /* [n_group + 1]: the last is the slowest of all … */
    int full;                          /* the group with least room */
    double *weights;                   /* [block][way] bytes */
    double *sums, *update, *sum_bytes; /* [block][way] */
    double *reshard;                   /* [block][from][to] */
    double *leave;                     /* [block][way] */
    int *like;                         /* [block] the first one with all figures the same */
    int *same;                         /* [a][b]: so many blocks from a and b on are alike */
    whole *all;                        /* [first][end - 1] */
    int *first_like; /* [first][end - 1] the first block of the first run that is alike */
    lowest *least;   /* [block] */
    int n_way, way[CT_JOB_N_WAY]; /* those that some block may go */
    known *known;
    int n_known;
    double *numbers; /* the memory of most of it */
};

static size_t at(int block, int way)
{
    return (size_t)block * CT_JOB_N_WAY + (size_t)way;
}

/* ---- prices */

static double *take(double **room, size_t n)
{
    double *p = *room;

    *room += n;
    return p;
}

static double share_of(const ct_job_stage *g, int k)
{
    return (double)g->kind.group[k].share;
}

static void price_group(ct_job_stage *g, int k)
{
    const ct_job_class *kind = &g->m->kind[g->kind.group[k].kind];
    price *p = &g->group[k];
    double b = share_of(g, k), part = ceil(b / g->s->tensor);

    ct_job_split_price(g->n, g->s, CT_JOB_FORWARD, kind, g->kind.tensor, b, p->forward);
    ct_job_split_price(g->n, g->s, CT_JOB_BACKWARD, kind, g->kind.tensor, b, p->backward);
    p->limit = kind->memory;
    for (int x = 0; x < g->n_block; x++) {
        const ct_job_block *block = &g->n->block[x];

        for (int w = 0; w < CT_JOB_N_WAY; w++) {
            const ct_job_ways *ways = &g->s->block[at(x, w)];
            double own = (w == CT_JOB_BATCH) ? part : b, more = own / b * g->s->tensor;

            /* what is uneven is that of the rank that has most */
            if (w != CT_JOB_BATCH) more = 1;
            p->again[at(x, w)] = block->again * p->forward[at(x, w)];
            p->kept[at(x, w)] = ways->kept * more * ct_job_line_at(block->kept, b);
            p->fixed[at(x, w)] = ways->kept * more * ct_job_line_at(block->fixed, b);
            p->input[at(x, w)] = ways->input * more * ct_job_line_at(block->input, b);
            p->other[at(x, w)] = ways->other * more * ct_job_line_at(block->other, b);
        }
    }
}

static void take_slowest(ct_job_stage *g)
{
    price *all = &g->group[g->kind.n_group];

    for (int k = 0; k < g->kind.n_group; k++) {
        const price *p = &g->group[k];

        for (size_t i = 0; i < at(g->n_block, 0); i++) {
            all->forward[i] = fmax(all->forward[i], p->forward[i]);
            all->backward[i] = fmax(all->backward[i], p->backward[i]);
            all->again[i] = fmax(all->again[i], p->again[i]);
        }
    }
}

/* Of the groups that with the largest part of its limit, were everything kept. */
static void find_full(ct_job_stage *g)
{
    double most = -1;

    for (int k = 0; k < g->kind.n_group; k++) {
        const price *p = &g->group[k];
        double sum = 0;

        for (int x = 0; x < g->n_block; x++)
            sum += g->weights[at(x, CT_JOB_BATCH)] + p->kept[at(x, CT_JOB_BATCH)];
        if (p->limit > 0) sum /= p->limit;
        if ((p->limit == 0) || (sum <= most)) continue;
        most = sum;
        g->full = k;
    }
}

static double slowest_bytes(const ct_job_stage *g)
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

/* Weights, their gradients' sums, their update. */
static void price_weights(ct_job_stage *g)
{
    double memory = slowest_bytes(g), states = g->n->options.state_bytes;
    double ring = ring_part(g->kind.data) * g->kind.ring.byte_s;
    double group = ring_part(g->s->tensor) * g->kind.tensor.byte_s;

    for (int x = 0; x < g->n_block; x++) {
        for (int w = 0; w < CT_JOB_N_WAY; w++) {
            const ct_job_ways *ways = &g->s->block[at(x, w)];
            double learned = ways->weights * g->n->block[x].learned / sizeof(float);

            g->weights[at(x, w)] = ways->weights * g->n->block[x].weights;
            g->sum_bytes[at(x, w)] = ways->summed;
            g->sums[at(x, w)] = ring * ways->summed + group * ways->summed_all;
            g->update[at(x, w)] = (2 * states + 3 * sizeof(float)) * learned / memory;
        }
    }
}

static void price_turns(ct_job_stage *g)
{
    double b = 0;

    for (int k = 0; k < g->kind.n_group; k++) b = fmax(b, share_of(g, k));
    for (int d = 0; d < CT_JOB_N_DIRECTION; d++) {
        for (size_t i = 0; i < at(g->n_block, 0) * CT_JOB_N_WAY; i++)
            g->reshard[i] += ct_job_talk_seconds(&g->s->entry[i], d, g->kind.tensor, b);
        for (size_t i = 0; i < at(g->n_block, 0); i++)
            g->leave[i] += ct_job_talk_seconds(&g->s->leave[i], d, g->kind.tensor, b);
    }
}

/* Whether a tied table lies on the ranks as it is to, where its Embed or its head goes a way.
 * Split, each rank has some of the words: those are the inputs of the Embed, and the outputs of the
 * head. */
static bool ties(const ct_job_stage *g, int way, bool is_head)
{
    int layer = is_head ? g->n->tie_head : g->n->tie_embed;
    int split = g->s->layer[(size_t)layer * CT_JOB_N_WAY + (size_t)way].split;

    if (g->kind.tie_way != CT_JOB_OUTPUT) return way == g->kind.tie_way;
    return split == (is_head ? CT_PARALLEL_OUTPUT : CT_PARALLEL_INPUT);
}

static void tie(ct_job_stage *g)
{
    price *all = &g->group[g->kind.n_group];

    if ((g->kind.tie_way < 0) || (g->n->tie_first < 0)) return;
    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        if (!ties(g, w, false)) all->forward[at(g->n->tie_first, w)] = INFINITY;
        if (!ties(g, w, true)) all->forward[at(g->n->tie_last, w)] = INFINITY;
    }
}

/* ---- alike blocks */

static bool alike(const ct_job_stage *g, int a, int b)
{
    const price *p = &g->group[g->kind.n_group], *f = &g->group[g->full];
    const double *of[] = { p->forward, p->backward, p->again, f->kept,   f->fixed, f->input,
                           f->other,   g->weights,  g->sums,  g->update, g->leave };
    size_t n = CT_JOB_N_WAY * sizeof(double);

    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        if (memcmp(&of[i][at(a, 0)], &of[i][at(b, 0)], n) != 0) return false;
    }
    return memcmp(&g->reshard[at(a, 0) * CT_JOB_N_WAY], &g->reshard[at(b, 0) * CT_JOB_N_WAY],
                  n * CT_JOB_N_WAY) == 0;
}

static void find_likes(ct_job_stage *g)
{
    int n = g->n_block;

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
    return (size_t)first * (size_t)g->n_block + (size_t)end - 1;
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
    for (int first = 0; first < g->n_block; first++) {
        int a = 0;

        for (int end = first + 1; end <= g->n_block; end++) {
            while ((a < first) && (g->same[a * g->n_block + first] < end - first)) a++;
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
    const price *p = &g->group[g->kind.n_group];

    return p->forward[at(block, way)] + p->backward[at(block, way)];
}

/* A block's part of the sums at the end of a step, where they count. */
static double sums_s(const ct_job_stage *g, int block, int way)
{
    if (g->kind.micro == 0) return 0;
    return (g->sums[at(block, way)] + g->update[at(block, way)]) / (double)g->kind.micro;
}

static void step_path(const ct_job_stage *g, int first, int block, const path *before, path *now)
{
    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        double least = (block == first) ? 0 : INFINITY;

        now->from[w] = 0;
        for (int v = 0; (block > first) && (v < CT_JOB_N_WAY); v++) {
            double t = before->time_s[v] + g->reshard[(at(block, v)) * CT_JOB_N_WAY + (size_t)w];

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
    bool last = (block == g->n_block - 1);

    for (int w = 1; w < CT_JOB_N_WAY; w++) {
        double a = p->time_s[w] + (last ? 0 : g->leave[at(block, w)]);
        double b = p->time_s[best] + (last ? 0 : g->leave[at(block, best)]);

        if (a < b) best = w;
    }
    return best;
}

/* A table that is tied is counted by the first of the two, and where that is of another stage. */
static double tied(const ct_job_stage *g, int first, int end, int way_last)
{
    const ct_job_net *n = g->n;

    if ((n->tie_first < 0) || (n->tie_first >= first) || (n->tie_last < first) ||
        (n->tie_last >= end))
        return 0;
    if ((way_last == CT_JOB_OUTPUT) || (way_last == CT_JOB_INPUT)) return 1.0 / g->s->tensor;
    return 1;
}

static whole add_up(const ct_job_stage *g, int first, int end, const int *way)
{
    const price *full = &g->group[g->full];
    whole a = { 0 };

    for (int x = first; x < end; x++) {
        size_t i = at(x, way[x - first]);

        a.weights += g->weights[i];
        a.kept += full->kept[i] + full->fixed[i];
        a.other = fmax(a.other, full->other[i]);
        a.sums_s += g->sums[i] + g->update[i];
        a.time_s -= sums_s(g, x, way[x - first]);
        if (x == g->n->tie_last)
            a.weights += tied(g, first, end, way[x - first]) * g->n->tie_weights;
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
    int n = g->n_block;
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
            a->time_s += p[x].time_s[w] + ((x < n - 1) ? g->leave[at(x, w)] : 0);
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
        if (may_go(g, block, w)) least = fmin(least, v[at(block, w)]);
    }
    return isfinite(least) ? least : 0;
}

/* Of one block: what it takes anyway, and what grows with the micro-batches in flight. */
static void find_lowest(const ct_job_stage *g, int x, lowest *l)
{
    const price *full = &g->group[g->full];

    *l = (lowest){ least_of(g, g->weights, x), least_of(g, full->fixed, x),
                   least_of(g, full->other, x), least_of(g, full->kept, x) };
}

static void find_ways(ct_job_stage *g)
{
    for (int w = 0; w < CT_JOB_N_WAY; w++) {
        bool any = false;

        for (int x = 0; x < g->n_block; x++) any = any || may_go(g, x, w);
        if (any) g->way[g->n_way++] = w;
    }
}

/* ---- made */

static void lay_out(ct_job_stage *g)
{
    size_t n = at(g->n_block, 0);
    double *room = g->numbers;

    for (int k = 0; k <= g->kind.n_group; k++) {
        price *p = &g->group[k];

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

static ct_status fill(ct_job_stage *g)
{
    lay_out(g);
    for (int k = 0; k < g->kind.n_group; k++) price_group(g, k);
    take_slowest(g);
    price_weights(g);
    price_turns(g);
    tie(g);
    find_full(g);
    find_ways(g);
    for (int x = 0; x < g->n_block; x++) find_lowest(g, x, &g->least[x]);
    find_likes(g);
    find_first_likes(g);
    return find_fastest(g);
}

ct_status ct_job_stage_create(const ct_job_net *n, const ct_job_split *s, const ct_job_machine *m,
                              const ct_job_stage_kind *kind, ct_job_stage **stage_p)
{
    ct_job_stage *g = calloc(1, sizeof(*g));
    size_t blocks = (size_t)n->n_block, groups = (size_t)kind->n_group + 1;
    ct_status status;

    if (g == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a stage");
    g->n = n;
    g->s = s;
    g->m = m;
    g->kind = *kind;
    g->n_block = n->n_block;
    g->group = calloc(groups, sizeof(*g->group));
    g->like = calloc(blocks, sizeof(*g->like));
    g->same = calloc(blocks * blocks, sizeof(*g->same));
    g->first_like = calloc(blocks * blocks, sizeof(*g->first_like));
    g->all = calloc(blocks * blocks, sizeof(*g->all));
    g->least = calloc(blocks, sizeof(*g->least));
    g->numbers = calloc(blocks * CT_JOB_N_WAY * (7 * groups + 5 + CT_JOB_N_WAY), sizeof(double));
    if ((g->group == NULL) || (g->like == NULL) || (g->same == NULL) || (g->all == NULL) ||
        (g->first_like == NULL) || (g->least == NULL) || (g->numbers == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %zu blocks of a stage", blocks);
    else
        status = fill(g);
    if (status == CT_OK)
        *stage_p = g;
    else
        ct_job_stage_destroy(g);
    return status;
}

void ct_job_stage_destroy(ct_job_stage *g)
{
    if (g == NULL) return;
    free(g->group);
    free(g->like);
    free(g->same);
    free(g->all);
    free(g->numbers);
    free(g->first_like);
    free(g->least);
    for (int i = 0; i < g->n_known; i++) {
        free(g->known[i].run);
        free(g->known[i].exact);
    }
    free(g->known);
    free(g);
}

const ct_job_stage_kind *ct_job_stage_kind_of(const ct_job_stage *g)
{
    return &g->kind;
}

const ct_job_split *ct_job_stage_split_of(const ct_job_stage *g)
{
    return g->s;
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
    double limit = g->group[g->full].limit;

    if (limit == 0) return true;
    return a->weights + (double)in_flight * a->kept + a->other + spare <= limit;
}

double ct_job_stage_limit(const ct_job_stage *g, int group)
{
    return g->group[(group < 0) ? g->full : group].limit;
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
    const price *full = &g->group[g->full], *slow = &g->group[g->kind.n_group];
    size_t i = at(block, way);
    double bytes = g->weights[i] + (double)in_flight * full->fixed[i];
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
            double t = before[g->way[k]] + g->reshard[at(x, g->way[k]) * CT_JOB_N_WAY + (size_t)w];

            if (t < best) best = t;
        }
        now[w] = best + cost[at(x, w)];
    }
}

/* cost: room for [block][way]. */
static void bound_runs(const ct_job_stage *g, int64_t in_flight, double byte_s, double *cost,
                       ct_job_run *run)
{
    double limit = g->group[g->full].limit;
    int n = g->n_block;

    for (int x = 0; x < n; x++) {
        for (int w = 0; w < CT_JOB_N_WAY; w++) cost[at(x, w)] = priced(g, x, w, in_flight, byte_s);
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
                double t = now[w] + ((x < n - 1) ? g->leave[at(x, w)] : 0);

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
    for (int first = 0; first < g->n_block; first++) {
        double sums = 0;

        for (int x = first; x < g->n_block; x++) {
            double best = INFINITY;

            for (int i = 0; i < g->n_way; i++) {
                int w = g->way[i];

                if (may_go(g, x, w)) best = fmin(best, g->sums[at(x, w)] + g->update[at(x, w)]);
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
    double *all = calloc((size_t)g->n_block, sizeof(*all));
    int n = 0, n_price = 0;

    for (int x = 0; (all != NULL) && (x < g->n_block); x++) {
        double kept = (double)in_flight * least_of(g, g->group[g->full].kept, x);

        if (kept > 0) all[n++] = least_of(g, g->group[g->kind.n_group].again, x) / kept;
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
    double value[N_PRICES], limit = g->group[g->full].limit;
    int n_price = find_prices(g, k->in_flight, value), n = g->n_block;

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
    size_t n = (size_t)g->n_block;
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
    room = calloc(at(g->n_block, 0), sizeof(*room));
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
    const price *slow = &g->group[g->kind.n_group];
    int n_way = p->chain.n_strategy;

    for (int x = first; x < end; x++) {
        for (int v = 0; v < n_way; v++) {
            size_t i = (size_t)(x - first) * (size_t)n_way + (size_t)v, k = at(x, p->way[v]);
            bool leaves = (x == end - 1) && (x < g->n_block - 1);

            p->time_s[i] = may_go(g, x, p->way[v])
                               ? block_s(g, x, p->way[v]) + sums_s(g, x, p->way[v]) +
                                     (leaves ? g->leave[k] : 0)
                               : INFINITY;
            p->again_s[i] = may_go(g, x, p->way[v]) ? slow->again[k] : 0;
            for (int w = 0; w < n_way; w++)
                p->reshard_s[i * (size_t)n_way + (size_t)w] =
                    g->reshard[k * CT_JOB_N_WAY + (size_t)p->way[w]];
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
    const price *full = &g->group[g->full];
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
    const price *full = &g->group[g->full];
    int n_way = p->chain.n_strategy;
    double left[CT_JOB_N_WAY] = { 0 };

    for (int x = first; x < end; x++) {
        for (int v = 0; v < n_way; v++) {
            size_t i = (size_t)(x - first) * (size_t)n_way + (size_t)v, k = at(x, p->way[v]);
            double bytes = g->weights[k] + (double)in_flight * full->fixed[k] + left[v];

            if (x == g->n->tie_last) bytes += tied(g, first, end, p->way[v]) * g->n->tie_weights;
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
        other = fmax(other, least_of(g, g->group[g->full].other, x));
        weights += least_of(g, g->weights, x) +
                   (double)in_flight * least_of(g, g->group[g->full].fixed, x);
    }
    room = g->group[g->full].limit - other - spare;
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
        sum += g->sums[at(x, way[x - first])] + g->update[at(x, way[x - first])];
    return sum;
}

ct_status ct_job_stage_settle(ct_job_stage *g, int first, int end, int64_t in_flight)
{
    size_t i = alike_at(g, first, end);
    int n = end - first, *way = calloc((size_t)g->n_block, sizeof(*way));
    ct_chain_mode *mode = calloc((size_t)g->n_block, sizeof(*mode));
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

/* ---- figures of a choice */

static double kept_of(const price *p, int first, int end, int64_t in_flight, const int *way,
                      const ct_chain_mode *mode)
{
    double sum = 0, segment = 0, most = 0;

    for (int x = first; x < end; x++) {
        size_t i = at(x, way[x - first]);
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

ct_job_figures ct_job_stage_figures(const ct_job_stage *g, int first, int end, int64_t in_flight,
                                    const int *way, const ct_chain_mode *mode, int group)
{
    const price *p = &g->group[(group < 0) ? g->kind.n_group : group];
    const price *bytes = &g->group[(group < 0) ? g->full : group];
    ct_job_figures f = { .kept = kept_of(bytes, first, end, in_flight, way, mode) };

    for (int x = first; x < end; x++) {
        int w = way[x - first];
        size_t i = at(x, w);

        f.forward_s += p->forward[i];
        f.backward_s += p->backward[i];
        if (mode[x - first] != CT_CHAIN_KEEP) f.again_s += p->again[i];
        f.sums_s += g->sums[i];
        f.update_s += g->update[i];
        f.sum_bytes += g->sum_bytes[i];
        f.weights += g->weights[i];
        f.other = fmax(f.other, bytes->other[i]);
        if (x == g->n->tie_last) f.weights += tied(g, first, end, w) * g->n->tie_weights;
        if (x > first) /* half of it forward, half backward */
            f.forward_s += g->reshard[at(x, way[x - first - 1]) * CT_JOB_N_WAY + (size_t)w] / 2,
                f.backward_s +=
                g->reshard[at(x, way[x - first - 1]) * CT_JOB_N_WAY + (size_t)w] / 2;
        if ((x == end - 1) && (x < g->n_block - 1)) f.forward_s += g->leave[i];
    }
    f.backward_s += f.again_s;
    return f;
}

double ct_job_stage_backward_s(const ct_job_stage *g, int block, int way)
{
    return g->group[g->kind.n_group].backward[at(block, way)];
}

double ct_job_stage_sum_bytes(const ct_job_stage *g, int block, int way)
{
    return g->sum_bytes[at(block, way)];
}
