#include "framework/tools/bench_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "comm/schedule.h"
#include "framework/tools/bench_fit_time.h"
#include "framework/tools/fit_math.h"

enum {
    MOST_SEGMENTS = 16, /* of the largest */
    /* bytes that go in a row in one measurement, at least: in a node no more than a fresh buffer,
     * since caches matter; over a network enough to fill what it buffers */
    IN_A_ROW_NODE = 8 << 10,
    IN_A_ROW_NETWORK = 2 << 20
};

/* ---- messages */

typedef struct exchange {
    ct_comm *c;
    int partner; /* -1: this rank watches */
    int bytes, in_a_row;
    char *out, *in;
} exchange;

static ct_status renew(void *ctx)
{
    exchange *x = ctx;

    if (x->partner >= 0) memset(x->out, 1, 2 * (size_t)x->bytes);
    return CT_OK;
}

/* Both ways, in the segments in which a step of a collective sends. */
static ct_status step(exchange *x, char *out, char *in)
{
    int each = 4 * (int)ct_schedule_segment((x->bytes + 3) / 4), n = 0;
    MPI_Request request[2 * MOST_SEGMENTS];
    MPI_Status status[2 * MOST_SEGMENTS]; /* unused; one MPI's MPI_STATUSES_IGNORE makes gcc warn */

    for (int at = 0; at < x->bytes; at += each) {
        int size = (x->bytes - at < each) ? x->bytes - at : each;

        CT_TRY_MPI(MPI_Irecv(in + at, size, MPI_BYTE, x->partner, 0, x->c->world, &request[n]));
        CT_TRY_MPI(
            MPI_Isend(out + at, size, MPI_BYTE, x->partner, 0, x->c->world, &request[n + 1]));
        n += 2;
    }
    CT_TRY_MPI(MPI_Waitall(n, request, status));
    return CT_OK;
}

/* What two ranks do in a sum, but for the adding: the second step receives where the partner has
 * just read, which costs more where they share caches. */
static ct_status swap(void *ctx, int times)
{
    exchange *x = ctx;

    for (int i = 0; (x->partner >= 0) && (i < times); ++i) {
        CT_TRY(step(x, x->out, x->in));
        CT_TRY(step(x, x->out + x->bytes, x->out));
    }
    return CT_OK;
}

/* 4 bytes, then 32 B to 16 MiB in doublings: the odd ones lie between the fitted ones. */
static int size_of(int i)
{
    return (i == 0) ? 4 : 16 << i;
}

static ct_status time_exchange(exchange *x, int bytes, double *seconds_p)
{
    ct_fit_experiment e = { x->c, renew, swap, x, 1, x->partner < 0 };

    x->bytes = bytes;
    if (bytes < x->in_a_row) e.times = x->in_a_row / bytes;
    if (e.times > 50) e.times = 50;
    CT_TRY(ct_fit_measure(&e, seconds_p));
    *seconds_p /= 2;
    return CT_OK;
}

/* The level keeps every second time, foretells the others by them (the residual), then keeps all.
 */
static void keep_times(const ct_fit_curve *c, ct_level *l)
{
    double bytes[CT_FIT_SIZES], seconds[CT_FIT_SIZES], sum = 0;
    int n = ct_fit_pick(c, 1, bytes, seconds);

    l->n_time = ct_fit_pick(c, 0, l->time_bytes, l->time_s);
    for (int i = 0; i < n; ++i) {
        double off = ct_level_message_s(l, bytes[i]) / seconds[i] - 1;

        sum += off * off;
    }
    l->residual = sqrt(sum / n);
    l->n_time = c->n;
    memcpy(l->time_bytes, c->bytes, sizeof(c->bytes));
    memcpy(l->time_s, c->seconds, sizeof(c->seconds));
}

/* Bandwidth is that of large messages; latency what then fits all of them best. */
static ct_status fit_pair(exchange *x, ct_level *level)
{
    ct_fit_curve c = { .n = CT_FIT_SIZES };
    const int last = CT_FIT_SIZES - 1, before = CT_FIT_SIZES - 3;
    ct_fit_line line;

    for (int i = 0; i < CT_FIT_SIZES; ++i) {
        c.bytes[i] = size_of(i);
        CT_TRY(time_exchange(x, size_of(i), &c.seconds[i]));
    }
    line = ct_fit_line_of(c.bytes, c.seconds, c.n);
    level->latency_s = line.alpha_s;
    level->bandwidth = (c.bytes[last] - c.bytes[before]) / (c.seconds[last] - c.seconds[before]);
    if (!(level->bandwidth > 0) || !isfinite(level->bandwidth)) {
        if (line.beta <= 0)
            return CT_FAIL(CT_ERR_DATA,
                           "the times of messages do not grow with their size: another "
                           "fit on an idle machine");
        level->bandwidth = 1 / line.beta;
    }
    keep_times(&c, level);
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

/* The k-th rank of a vertex; -1: it has fewer. */
static int rank_of(const ct_topo *t, int level, int vertex, int k)
{
    for (int r = 0; r < t->n_rank; ++r) {
        if ((t->vertex[level][r] == vertex) && (k-- == 0)) return r;
    }
    return -1;
}

/* Ranks of the two members that hold the pair, one of each at a time; of a level whose members are
 * ranks, all ranks of the vertex. How many pairs, and whom rank `me` has: -1, nobody. */
static int pair_up(const ct_topo *t, int level, const int *pair, int me, int *partner_p)
{
    *partner_p = -1;
    for (int k = 0;; ++k) {
        int a = (level == 0) ? rank_of(t, 0, t->vertex[0][pair[0]], 2 * k)
                             : rank_of(t, level - 1, t->vertex[level - 1][pair[0]], k);
        int b = (level == 0) ? rank_of(t, 0, t->vertex[0][pair[0]], 2 * k + 1)
                             : rank_of(t, level - 1, t->vertex[level - 1][pair[1]], k);

        if ((a < 0) || (b < 0)) return k;
        if (a == me) *partner_p = b;
        if (b == me) *partner_p = a;
    }
}

static ct_status fit_many(exchange *x, int level, ct_fit_report *report)
{
    ct_level *l = &report->machine.level[level];
    double seconds = 0, each = 0;
    int n = report->n_pair[level];

    CT_TRY(time_exchange(x, size_of(CT_FIT_SIZES - 1), &seconds));
    each = size_of(CT_FIT_SIZES - 1) / fmax(seconds - l->latency_s, 0.1 * seconds);
    /* what differs by less than the fit does is no limit */
    if (level > 0) l->uplink = fmin(n * each, n * l->bandwidth);
    if ((level <= report->machine.node_level) && (each < 0.9 * l->bandwidth)) l->bus = 2 * n * each;
    return CT_OK;
}

static ct_status fit_level(ct_comm *c, exchange *x, int level, ct_fit_report *report)
{
    ct_level *l = &report->machine.level[level];
    int *pair = report->pair[level];

    if (!find_pair(c->topo, level, pair)) return CT_OK;
    report->measured[level] = true;
    l->uplink = l->bus = 0;
    x->in_a_row = (level > c->topo->machine.node_level) ? IN_A_ROW_NETWORK : IN_A_ROW_NODE;
    x->partner = (c->rank == pair[0]) ? pair[1] : (c->rank == pair[1]) ? pair[0] : -1;
    CT_TRY(fit_pair(x, l));
    report->n_pair[level] = pair_up(c->topo, level, pair, c->rank, &x->partner);
    return (report->n_pair[level] > 1) ? fit_many(x, level, report) : CT_OK;
}

/* ---- all of it */

ct_status ct_bench_fit(ct_comm *c, ct_fit_report *report)
{
    size_t most = (size_t)size_of(CT_FIT_SIZES - 1);
    exchange x = { .c = c, .partner = -1 };
    ct_status status = CT_OK;

    if (c->size == 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--fit measures between ranks: start 2 or more (mpirun -np 2)");
    *report = (ct_fit_report){ .machine = c->topo->machine };
    report->machine.names = NULL;
    x.out = ct_mem_acquire(3 * most);
    if (x.out == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a fit");
    x.in = x.out + 2 * most;
    for (int l = 0; (l < report->machine.n_level) && (status == CT_OK); ++l)
        status = fit_level(c, &x, l, report);
    ct_mem_release(x.out);
    CT_TRY(status);
    CT_TRY(ct_fit_sums(c, report));
    return ct_fit_shared(c, report);
}
