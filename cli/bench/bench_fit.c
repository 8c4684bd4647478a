/* `cortado bench comm --fit`: the figures of the machine's levels, measured. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/bench/bench.h"
#include "cli/bench/fit_math.h"
#include "comm/autotune/codec_speed.h"
#include "comm/collective/node_sum.h"
#include "comm/collective/schedule.h"
#include "comm/core/reduce.h"
#include "framework/base/clock.h"
#include "framework/base/sort.h"
#include "runtime/machine_limit.h"

/* What is timed: `run` does it `times` times in a row; `again` makes the buffers new, untimed. */
typedef struct fit_experiment {
    ct_comm *c;
    ct_status (*again)(void *ctx);
    ct_status (*run)(void *ctx, int times);
    void *ctx;
    int times;
    bool all;     /* every rank takes part                                        */
    bool watches; /* this one does not, and leaves its core to those that do      */
} fit_experiment;

/* Times by size, of which those with even numbers are fitted and the others held out. */
typedef struct ct_fit_curve {
    double bytes[CT_MAX_TIME], seconds[CT_MAX_TIME];
    int n;
} ct_fit_curve;

enum { LEAST_REPEAT = 5, MOST_REPEAT = 25, WATCH_US = 100 };

static const double seconds_per_size = 0.15;

static ct_status meet(const fit_experiment *e)
{
    const struct timespec nap = { .tv_nsec = 1000 * WATCH_US };
    MPI_Request request;
    int done = 0;

    if (e->all) { /* they start together; the other lets them start a little apart */
        CT_TRY_MPI(MPI_Barrier(e->c->mpi));
        return CT_OK;
    }
    CT_TRY_MPI(MPI_Ibarrier(e->c->mpi, &request));
    for (;;) {
        CT_TRY_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done) return CT_OK;
        if (e->watches) (void)nanosleep(&nap, NULL);
    }
}

/* The first is not counted, and says how many there is time for. */
static ct_status fit_measure(const fit_experiment *e, double *seconds_p)
{
    double t[MOST_REPEAT + 1];
    int n = LEAST_REPEAT;

    for (int k = 0; k <= n; ++k) {
        CT_TRY(e->again(e->ctx));
        CT_TRY(meet(e));
        t[k] = ct_clock_s();
        CT_TRY(e->run(e->ctx, e->times));
        t[k] = (ct_clock_s() - t[k]) / e->times;
        if (k > 0) continue;
        CT_TRY(meet(e));
        CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &t[0], 1, MPI_DOUBLE, MPI_MAX, e->c->mpi));
        n = (t[0] * e->times * MOST_REPEAT < seconds_per_size)
                ? MOST_REPEAT
                : (int)(seconds_per_size / (t[0] * e->times));
        n = (n < LEAST_REPEAT) ? LEAST_REPEAT : n;
    }
    CT_TRY(meet(e));
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, t + 1, n, MPI_DOUBLE, MPI_MAX, e->c->mpi));
    ct_sort(t + 1, n);
    *seconds_p = t[1 + n / 2];
    return CT_OK;
}

/* The even (odd: 0) or odd (1) ones; how many. */
static int fit_pick(const ct_fit_curve *c, int odd, double *bytes, double *seconds)
{
    int n = 0;

    for (int i = odd; i < c->n; i += 2) {
        bytes[n] = c->bytes[i];
        seconds[n++] = c->seconds[i];
    }
    return n;
}

/* Relative error (RMS) of the odd ones, where straight lines between the even ones foretell them.
 */
static double fit_held_out(const ct_fit_curve *c)
{
    double sum = 0;
    int n = 0;

    for (int i = 1; i + 1 < c->n; i += 2) {
        double share = (c->bytes[i] - c->bytes[i - 1]) / (c->bytes[i + 1] - c->bytes[i - 1]);
        double off = c->seconds[i - 1] + share * (c->seconds[i + 1] - c->seconds[i - 1]);

        off = off / c->seconds[i] - 1;
        sum += off * off;
        n += 1;
    }
    return (n > 0) ? sqrt(sum / n) : 0;
}

enum { N_SHARED = 15, ADD_COUNT = 1 << 18 /* elements */ };

/* ---- inside a node: additions */

typedef struct addition {
    float *x, *y;
    int n_thread;
} addition;

static ct_status renew_terms(void *ctx)
{
    addition *a = ctx;

    for (int i = 0; i < ADD_COUNT; ++i) a->x[i] = a->y[i] = 1;
    return CT_OK;
}

static ct_status add(void *ctx, int times)
{
    addition *a = ctx;

    for (int i = 0; i < times; ++i) ct_reduce_add(CT_F32, ADD_COUNT, a->x, a->y, a->n_thread);
    return CT_OK;
}

/* report->machine.sum_bandwidth: additions of all ranks at once. Collective. */
static ct_status fit_sums(ct_comm *c, ct_fit_report *report)
{
    addition a = { .n_thread = c->n_thread };
    fit_experiment e = { c, renew_terms, add, &a, 1, true, false };
    double seconds = 0;
    ct_status status = CT_OK;

    a.x = ct_mem_acquire(2 * sizeof(*a.x) * ADD_COUNT);
    if (a.x == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a fit");
    a.y = a.x + ADD_COUNT;
    status = fit_measure(&e, &seconds);
    ct_mem_release(a.x);
    report->machine.sum_bandwidth = sizeof(float) * ADD_COUNT / seconds;
    return status;
}

/* ---- inside a node: sums in shared memory */

typedef struct shared {
    ct_comm *node; /* of the ranks of this node alone */
    float *buf;
    ct_coll_req req;
    ct_node_sum *sum;
} shared;

static ct_status renew_gradients(void *ctx)
{
    shared *s = ctx;

    for (int64_t i = 0; i < s->req.count; ++i) s->buf[i] = 1;
    return CT_OK;
}

static ct_status sum_shared(void *ctx, int times)
{
    shared *s = ctx;
    ct_status status = CT_OK;
    int idle = 0;

    (void)times; /* the terms are new each time */
    CT_TRY(ct_node_sum_start(s->sum));
    while ((status = ct_node_sum_progress(s->sum, NULL)) == CT_INPROGRESS) {
        idle += 1;
        ct_comm_relax(s->node, &idle);
    }
    return status;
}

static ct_status time_shared(ct_comm *c, shared *s, int64_t bytes, double *seconds_p)
{
    fit_experiment e = { c, renew_gradients, sum_shared, s, 1, true, false };
    ct_status status = CT_OK;

    s->req = (ct_coll_req){
        .comm = s->node, .buf = s->buf, .count = bytes / 4, .dtype = CT_F32, .tag = 0
    };
    CT_TRY(ct_node_sum_create(&s->req, CT_COLL_ALLREDUCE, &s->sum));
    status = fit_measure(&e, seconds_p);
    ct_node_sum_destroy(s->sum);
    s->sum = NULL;
    return status;
}

/* The times themselves are what counts; the line with a knee says in few words what they are. */
static ct_status fit_curve(ct_comm *c, shared *s, int n, ct_shared_memory *m)
{
    ct_fit_curve k = { .n = n };
    double bytes[CT_MAX_TIME], seconds[CT_MAX_TIME];
    ct_fit_knee fit;

    for (int i = 0; i < n; ++i) {
        k.bytes[i] = ldexp(4096, i);
        CT_TRY(time_shared(c, s, (int64_t)k.bytes[i], &k.seconds[i]));
    }
    fit = ct_fit_knee_of(bytes, seconds, fit_pick(&k, 0, bytes, seconds));
    if (fit.beyond <= 0) return CT_OK; /* more bytes for nothing: no fit */
    m->latency_s = fit.alpha_s / 2;
    m->cached = (fit.beta > 0) ? fit.knee : 0;
    m->cached_bandwidth = (fit.beta > 0) ? 2 / fit.beta : 0;
    m->bandwidth = 2 / fit.beyond;
    m->residual = fit_held_out(&k);
    m->n_time = n;
    memcpy(m->time_bytes, k.bytes, sizeof(k.bytes));
    memcpy(m->time_s, k.seconds, sizeof(k.seconds));
    return CT_OK;
}

/* report->machine.shared: sums in the shared memory of the nodes. Collective. */
static ct_status fit_shared(ct_comm *c, ct_fit_report *report)
{
    const int64_t most = (int64_t)512 << 20; /* of all ranks of a node */
    const ct_arena_ops *arena = NULL;
    shared s = { .node = NULL };
    void *block = NULL;
    int n = N_SHARED, window = -1, all = 0;
    int64_t offset = 0;
    ct_status status = CT_OK;

    report->machine.shared = (ct_shared_memory){ 0 };
    if (!c->node_shares || (ct_topo_min_node_size(c->topo) == 1)) return CT_OK;
    while ((n > 8) && (((int64_t)4096 << (n - 1)) > most / ct_topo_max_node_size(c->topo))) n -= 1;
    CT_TRY(ct_comm_create(c->node, "auto", &s.node));
    arena = ct_comm_arena(s.node);
    CT_TRY_GOTO(status, done, arena->acquire(arena->ctx, (size_t)4096 << (n - 1), "a fit", &block));
    s.buf = block;
    all = ct_node_find(s.node->node_memory, block, 1, &window, &offset); /* else no room for it */
    if (MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, c->mpi) != MPI_SUCCESS) all = 0;
    if (all) status = fit_curve(c, &s, n, &report->machine.shared);

done:
    if (block != NULL) arena->release(arena->ctx, block);
    ct_comm_destroy(s.node);
    return status;
}

/* ---- levels: what the steps of a collective take between ranks that meet there, run by the engine
 * that runs collectives, and what ranks that share a link or a memory get of it. */

enum {
    N_SIZE = 22, /* 4 bytes, then 32 B to 32 MiB in doublings */
    LEAST_SIZES = 9,
    MOST_EAGER = 1 << 20,
    MOST_TEAM = 4 /* ranks that send at once, one of a member */
};

static const double most_s = 0.4; /* a size that takes longer is the last */

/* Ranks of different members of a vertex, and what a step is among them. */
typedef struct team {
    ct_comm *c;
    int level;
    int rank[MOST_TEAM], n;
    int64_t bytes;
    char *buf; /* twice as many */
    ct_schedule s;
    ct_sched_run *run;
} team;

static ct_status renew(void *ctx)
{
    team *x = ctx;

    float *v = (float *)(void *)x->buf;

    /* as gradients are written; memset may go past the caches */
    for (int64_t i = 0; (x->s.n_step > 0) && (i < x->bytes / 2); ++i) v[i] = 1;
    return CT_OK;
}

static ct_status run_steps(void *ctx, int times)
{
    team *x = ctx;
    int64_t sent = 0;

    for (int i = 0; (x->s.n_step > 0) && (i < times); ++i) {
        ct_status status = CT_OK;
        int idle = 0;

        CT_TRY(ct_sched_run_start(x->run, &x->s, x->buf, 0));
        while ((status = ct_sched_run_progress(x->run, &sent, NULL)) == CT_INPROGRESS) {
            idle += 1;
            ct_comm_relax(x->c, &idle);
        }
        CT_TRY(status);
    }
    return CT_OK;
}

/* The second half of a buffer is where sums are made: what comes in is added there and, in the step
 * back, goes from there into the first half of those that it came from. */
static ct_status add_steps(team *x, int to, int from)
{
    int64_t n = x->bytes / 4;

    CT_TRY(ct_schedule_add(&x->s, &(ct_sched_step){ .send_to = to,
                                                    .send_n = n,
                                                    .recv_from = from,
                                                    .recv_at = n,
                                                    .recv_n = n,
                                                    .add = true }));
    return ct_schedule_add(
        &x->s, &(ct_sched_step){
                   .send_to = from, .send_at = n, .send_n = n, .recv_from = to, .recv_n = n });
}

static ct_status make_steps(team *x, ct_pattern pattern)
{
    int me = 0, n = (pattern == CT_PATTERN_SHIFT) ? x->n : x->n & ~1;

    ct_schedule_clear(&x->s);
    while ((me < n) && (x->rank[me] != x->c->rank)) me += 1;
    if (me == n) return CT_OK;
    if (pattern == CT_PATTERN_SHIFT)
        return add_steps(x, x->rank[(me + 1) % n], x->rank[(me + n - 1) % n]);
    if (pattern == CT_PATTERN_SWAP) return add_steps(x, x->rank[me ^ 1], x->rank[me ^ 1]);
    return (me % 2 == 1) ? add_steps(x, x->rank[me - 1], -1) : add_steps(x, -1, x->rank[me + 1]);
}

/* Seconds of half of both steps, of several in a row. The buffer is of that size: MPI reads another
 * rank's memory by its pages, which are small in a small one. */
static ct_status time_steps(team *x, ct_pattern pattern, int64_t bytes, int times,
                            double *seconds_p)
{
    fit_experiment e = { x->c, renew, run_steps, x, times, false, false };
    ct_status status = CT_OK;

    int n_part = (pattern == CT_PATTERN_SHIFT) ? x->n : x->n & ~1;

    x->bytes = bytes;
    CT_TRY(make_steps(x, pattern));
    CT_TRY(ct_sched_run_create(x->c, CT_F32, bytes / 4, &x->run));
    x->buf = ct_mem_acquire(2 * (size_t)bytes);
    e.watches = (x->s.n_step == 0);
    e.all = (n_part == x->c->size);
    status = (x->buf != NULL) ? fit_measure(&e, seconds_p)
                              : CT_FAIL(CT_ERR_NOMEM, "no memory for a fit");
    ct_mem_release(x->buf);
    ct_sched_run_destroy(x->run);
    *seconds_p /= 2;
    return status;
}

static int64_t size_of(int i)
{
    return (i == 0) ? 4 : (int64_t)16 << i;
}

/* Sizes that there is time for, and their times. */
static ct_status time_swaps(team *x, ct_fit_curve *k)
{
    for (int i = 0; i < N_SIZE; ++i) {
        k->bytes[i] = (double)size_of(i);
        CT_TRY(time_steps(x, CT_PATTERN_SWAP, size_of(i), 1, &k->seconds[i]));
        k->n += 1;
        if ((k->n >= LEAST_SIZES) && (k->n % 2 == 1) && (k->seconds[i] > most_s)) break;
    }
    return CT_OK;
}

/* Where twice the bytes take much more than twice the time a protocol changes in between: half of
 * such stretches are looked at, so that the line across them is short. The same for all patterns.
 */
static ct_status refine(team *x, ct_fit_curve *k)
{
    const double jump = 2.2;

    for (int i = 1; (i < k->n) && (k->n < CT_MAX_TIME); ++i) {
        int64_t middle = (int64_t)(k->bytes[i - 1] + k->bytes[i]) / 2;
        size_t above = sizeof(double) * (size_t)(k->n - i);

        if ((k->seconds[i] < jump * k->seconds[i - 1]) || (middle > MOST_EAGER) || (middle < 64))
            continue;
        memmove(k->bytes + i + 1, k->bytes + i, above);
        memmove(k->seconds + i + 1, k->seconds + i, above);
        k->bytes[i] = (double)middle;
        CT_TRY(time_steps(x, CT_PATTERN_SWAP, middle, 1, &k->seconds[i]));
        k->n += 1;
        i += 1;
    }
    return CT_OK;
}

/* Bandwidth is that of large messages; latency what then fits all of them best. */
static ct_status fit_line(const ct_fit_curve *k, ct_level *level)
{
    const int last = k->n - 1, before = k->n - 3;
    ct_fit_line line = ct_fit_line_of(k->bytes, k->seconds, k->n);

    level->latency_s = line.alpha_s;
    level->bandwidth =
        (k->bytes[last] - k->bytes[before]) / (k->seconds[last] - k->seconds[before]);
    if ((level->bandwidth > 0) && isfinite(level->bandwidth)) return CT_OK;
    if (line.beta <= 0)
        return CT_FAIL(CT_ERR_DATA, "the times of messages do not grow with their size: another "
                                    "fit on an idle machine");
    level->bandwidth = 1 / line.beta;
    return CT_OK;
}

/* Two ranks have no shift but to each other. Inside a node two ranks alone swap, and what more get
 * of the memory is its bus; above it each of a team has a link of its own. */
static ct_status fit_times(team *x, ct_level *level)
{
    bool inside = (x->level <= x->c->topo->machine.node_level);
    ct_fit_curve k = { .n = 0 };
    double *time = level->time_s[CT_PATTERN_ONE_WAY];
    int all = x->n;

    x->n = inside ? 2 : all;
    CT_TRY(time_swaps(x, &k));
    CT_TRY(fit_line(&k, level));
    level->residual = fit_held_out(&k);
    CT_TRY(refine(x, &k));
    level->n_time = k.n;
    memcpy(level->time_bytes, k.bytes, sizeof(k.bytes));
    memcpy(level->time_s[CT_PATTERN_SWAP], k.seconds, sizeof(k.seconds));
    memcpy(level->time_s[CT_PATTERN_SHIFT], k.seconds, sizeof(k.seconds));
    for (int i = 0; i < k.n; ++i)
        CT_TRY(time_steps(x, CT_PATTERN_ONE_WAY, (int64_t)k.bytes[i], 1, &time[i]));
    x->n = all;
    time = level->time_s[CT_PATTERN_SHIFT];
    for (int i = 0; (all > 2) && (i < k.n); ++i)
        CT_TRY(time_steps(x, CT_PATTERN_SHIFT, (int64_t)k.bytes[i], 1, &time[i]));
    return CT_OK;
}

/* A token bucket lets steps after a rest through faster than the same steps in a row: of steps that
 * send b bytes each way, 2 b - burst are held to the bandwidth, of n in a row 2 b n - burst. Where
 * that hardly differs there is none. */
static ct_status fit_burst(team *x, ct_level *l)
{
    enum { IN_A_ROW = 4 };

    l->burst = 0;
    if (x->level <= x->c->topo->machine.node_level) return CT_OK;
    for (int64_t b = 64 << 10; b <= (4 << 20); b *= 4) {
        double once = 0, row = 0, burst = 0;

        CT_TRY(time_steps(x, CT_PATTERN_SWAP, b, 1, &once));
        CT_TRY(time_steps(x, CT_PATTERN_SWAP, b, IN_A_ROW, &row));
        burst = 2 * (row - once) * IN_A_ROW / (IN_A_ROW - 1) * l->bandwidth;
        if ((burst > 0.5 * (double)b) && (burst > l->burst)) l->burst = burst;
    }
    return CT_OK;
}

/* ---- who with whom */

/* The first two ranks that meet on the level. */
static bool find_pair(const ct_topo *t, int level, int *pair)
{
    for (int a = 0; a < t->n_rank; ++a) {
        if (t->n_inside[level][t->vertex[level][a]] < 2) continue;
        for (int b = a + 1; b < t->n_rank; ++b) {
            if (ct_topo_meet(t, a, b) != level) continue;
            pair[0] = a;
            pair[1] = b;
            return true;
        }
    }
    return false;
}

/* The pair, and further ranks that meet all of them on the level. */
static void find_team(const ct_topo *t, const int *pair, team *x)
{
    x->n = 0;
    for (int r = pair[0]; (r < t->n_rank) && (x->n < MOST_TEAM); ++r) {
        bool fits = (r == pair[0]) || (r >= pair[1]);

        for (int k = 0; k < x->n; ++k) fits = fits && (ct_topo_meet(t, x->rank[k], r) == x->level);
        if (fits) x->rank[x->n++] = r;
    }
}

/* The k-th rank of a vertex; -1: it has fewer. */
static int rank_of(const ct_topo *t, int level, int vertex, int k)
{
    for (int r = 0; r < t->n_rank; ++r) {
        if ((t->vertex[level][r] == vertex) && (k-- == 0)) return r;
    }
    return -1;
}

/* Ranks of the two members that hold the pair, one of each at a time; of a level whose members are
 * ranks, all ranks of the vertex. How many pairs; two[]: the one that rank `me` is in, if any. */
static int pair_up(const ct_topo *t, int level, const int *pair, int me, int *two, int *n_p)
{
    *n_p = 0;
    for (int k = 0;; ++k) {
        int a = (level == 0) ? rank_of(t, 0, t->vertex[0][pair[0]], 2 * k)
                             : rank_of(t, level - 1, t->vertex[level - 1][pair[0]], k);
        int b = (level == 0) ? rank_of(t, 0, t->vertex[0][pair[0]], 2 * k + 1)
                             : rank_of(t, level - 1, t->vertex[level - 1][pair[1]], k);

        if ((a < 0) || (b < 0)) return k;
        if ((a != me) && (b != me)) continue;
        two[0] = a;
        two[1] = b;
        *n_p = 2;
    }
}

static ct_status fit_many(team *x, int level, ct_fit_report *report)
{
    ct_level *l = &report->machine.level[level];
    double seconds = 0, each = 0, bytes = l->time_bytes[l->n_time - 1];
    int n = report->n_pair[level];

    CT_TRY(time_steps(x, CT_PATTERN_SWAP, (int64_t)bytes, 1, &seconds));
    each = bytes / fmax(seconds - l->latency_s, 0.1 * seconds);
    /* what differs by less than the fit does is no limit */
    if (level > 0) l->uplink = fmin(n * each, n * l->bandwidth);
    if ((level <= report->machine.node_level) && (each < 0.9 * l->bandwidth)) l->bus = 2 * n * each;
    return CT_OK;
}

static ct_status fit_level(team *x, int level, ct_fit_report *report)
{
    const ct_topo *t = x->c->topo;
    ct_level *l = &report->machine.level[level];
    int *pair = report->pair[level];

    if (!find_pair(t, level, pair)) return CT_OK;
    report->measured[level] = true;
    l->uplink = l->bus = 0;
    x->level = level;
    find_team(t, pair, x);
    CT_TRY(fit_times(x, l));
    CT_TRY(fit_burst(x, l));
    report->n_pair[level] = pair_up(t, level, pair, x->c->rank, x->rank, &x->n);
    return (report->n_pair[level] > 1) ? fit_many(x, level, report) : CT_OK;
}

/* ---- speeds of nodes */

/* Where levels above the node have no size yet, as many members as the job has; false where the
 * tree is uneven, so that numbers do not say which node is which. */
static bool close_levels(const ct_topo *t, ct_machine *m)
{
    int64_t n_member[CT_MAX_LEVEL];

    if (ct_topo_fullest(t, n_member) != CT_OK) return false;
    for (int l = m->node_level + 1; l < m->n_level; ++l) m->level[l].size = n_member[l];
    return ct_machine_n_node(m) == t->n_node;
}

/* flop[k]: multiply-adds a second of all ranks of the k-th node of the tree, which measure at once;
 * the best of a few, since what disturbs only makes slower. */
static ct_status measure_speeds(ct_comm *c, double *flop)
{
    enum { TRIES = 3 };
    ct_machine_limit limit = { .n_thread = c->n_thread };
    const ct_topo *t = c->topo;
    int last = -1, at = -1;

    for (int i = 0; i < TRIES; ++i) {
        CT_TRY_MPI(MPI_Barrier(c->mpi));
        ct_machine_limit_again(&limit);
    }
    for (int i = 0; i < c->size; ++i) {
        at += (t->node[t->order[i]] != last);
        last = t->node[t->order[i]];
        if (t->order[i] == c->rank) flop[at] = limit.flop;
    }
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, flop, t->n_node, MPI_DOUBLE, MPI_SUM, c->mpi));
    return CT_OK;
}

static ct_status fit_speeds(ct_comm *c, ct_fit_report *report)
{
    ct_machine *m = &report->machine;
    double *flop = calloc((size_t)c->topo->n_node, sizeof(*flop));
    ct_machine closed = *m;
    ct_status status;

    if (flop == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a fit");
    status = measure_speeds(c, flop);
    if (status == CT_OK) status = ct_machine_class_speeds(m, flop, c->topo->n_node);
    report->flop = flop[0];
    free(flop);
    if ((status != CT_OK) || (m->n_node_class == 1)) return status;
    if (close_levels(c->topo, &closed)) {
        memcpy(m->level, closed.level, sizeof(m->level));
        if (c->rank == 0)
            CT_INFO("fit: nodes differ in speed, so the file is of these %d nodes alone",
                    c->topo->n_node);
        return CT_OK;
    }
    if (c->rank == 0)
        CT_WARN("fit: nodes differ in speed (up to %.3g times), but the tree is uneven, so the "
                "file does not say which: name the nodes and their node_class there",
                m->node_class[m->n_node_class - 1].speed);
    m->n_node_class = m->n_node_run = 0;
    return CT_OK;
}

void ct_bench_fit_free(ct_fit_report *report)
{
    free(report->machine.node_run);
    report->machine.node_run = NULL;
}

ct_status ct_bench_fit(ct_comm *c, ct_fit_report *report)
{
    team x = { .c = c };
    ct_status status = CT_OK;

    if (c->size == 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--fit measures between ranks: start 2 or more (mpirun -np 2)");
    *report = (ct_fit_report){ .machine = c->topo->machine };
    report->machine.names = NULL;
    report->machine.n_node_class = 0;
    if ((c->topo->node_class != NULL) && (c->rank == 0))
        CT_WARN("--fit measures one pair of ranks a level, so its node_class say speeds alone: "
                "compare fits of each class for inside_gbs and inject_gbs");
    for (int l = 0; (l < report->machine.n_level) && (status == CT_OK); ++l)
        status = fit_level(&x, l, report);
    ct_schedule_destroy(&x.s);
    CT_TRY(status);
    CT_TRY(fit_sums(c, report));
    CT_TRY(ct_codec_speed_measure(c, &report->machine.coding));
    CT_TRY(fit_shared(c, report));
    return fit_speeds(c, report);
}

/* ---- a fit as a table */

/* Above it latency and bandwidth say nothing: protocols and caches make 0.1 to 0.6. */
static const double wild = 1.5;

static void print_level(const ct_fit_report *r, int level)
{
    const ct_level *l = &r->machine.level[level];

    printf("%-12s", l->name);
    if (!r->measured[level]) {
        printf("  no two ranks meet here: guessed, %.3g us, %.4g GB/s\n", 1e6 * l->latency_s,
               1e-9 * l->bandwidth);
        return;
    }
    printf("  %4d %4d  %10.3f  %10.3f", r->pair[level][0], r->pair[level][1], 1e6 * l->latency_s,
           1e-9 * l->bandwidth);
    if (l->uplink > 0)
        printf("  %10.3f", 1e-9 * l->uplink);
    else
        printf("  %10s", "-");
    if (l->bus > 0)
        printf("  %10.3f", 1e-9 * l->bus);
    else
        printf("  %10s", "-");
    printf("  %6d  %6.1f\n", r->n_pair[level], 100 * l->residual);
}

static void print_speeds(const ct_fit_report *r)
{
    const ct_machine *m = &r->machine;

    printf("multiply-adds of the first node: %.4g GFLOP/s", 1e-9 * r->flop);
    for (int k = 0; k < m->n_node_class; ++k) {
        ct_text nodes = { 0 };

        ct_machine_list_nodes(m, k, &nodes);
        printf("; nodes %s: speed %.4g", (nodes.text != NULL) ? nodes.text : "all",
               m->node_class[k].speed);
        ct_text_destroy(&nodes);
    }
    printf("\n");
}

void ct_bench_fit_print(const ct_comm *c, const ct_fit_report *report)
{
    const ct_shared_memory *s = &report->machine.shared;
    const ct_codec_speed *k = &report->machine.coding;

    if (c->rank != 0) return;
    printf(
        "%d ranks on %d nodes (%s); GB/s: 10^9 bytes a second, per direction\n\n"
        "level         between  latency us   bandwidth      uplink         bus   pairs  error %%\n",
        c->size, c->topo->n_node, c->topo->source);
    for (int l = 0; l < report->machine.n_level; ++l) print_level(report, l);
    printf("\nadding f32, all ranks at once: %.3f GB/s a rank\n",
           1e-9 * report->machine.sum_bandwidth);
    print_speeds(report);
    printf("codecs: streams %.3f GB/s; an element: update %.3f ns, selection %.3f more; an entry: "
           "packed %.3f ns, added %.3f, merged %.3f\n",
           1e-9 * k->memory, 1e9 * k->update_s, 1e9 * k->select_s, 1e9 * k->pack_s, 1e9 * k->add_s,
           1e9 * k->merge_s);
    printf("        an element: signs %.3f ns more than the update, added %.3f; factors %.3f more, "
           "and %.3f a column\n",
           1e9 * k->sign_s, 1e9 * k->unsign_s, 1e9 * k->factor_s, 1e9 * k->column_s);
    printf("        an element: in 8 bits %.3f ns, back %.3f; in 4 bits %.3f, back %.3f; one core "
           "alone takes %.3g times as long\n",
           1e9 * k->int8_s, 1e9 * k->unint8_s, 1e9 * k->int4_s, 1e9 * k->unint4_s, k->one_core);
    if (s->bandwidth > 0)
        printf("sums in shared memory: %.3f us twice, %.3f GB/s a rank to %.3f MB, %.3f beyond, "
               "error %.1f %%\n",
               1e6 * s->latency_s, 1e-9 * s->cached_bandwidth, 1e-6 * s->cached,
               1e-9 * s->bandwidth, 100 * s->residual);
    printf("error: of sizes that were not fitted\n");
    fflush(stdout);
    for (int l = 0; l < report->machine.n_level; ++l) {
        if (report->measured[l] && (report->machine.level[l].residual > wild))
            CT_WARN("fit: the times of level \"%s\" follow no line (error %.0f %%): measure again "
                    "when the machine is idle, with a core for each rank",
                    report->machine.level[l].name, 100 * report->machine.level[l].residual);
    }
}
