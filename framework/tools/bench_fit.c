#include "framework/tools/bench_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/node_sum.h"
#include "comm/reduce.h"
#include "comm/schedule.h"
#include "framework/base/clock.h"
#include "framework/tools/fit_math.h"

enum {
    N_SIZE = 21, /* of messages: those with even numbers are fitted, the others held out */
    N_SHARED = 15,
    MOST_SEGMENTS = 16, /* of the largest */
    LEAST_REPEAT = 5,
    MOST_REPEAT = 25,
    /* bytes that go in a row in one measurement, at least: in a node no more than a fresh buffer,
     * since caches matter; over a network enough to fill what it buffers */
    IN_A_ROW_NODE = 8 << 10,
    IN_A_ROW_NETWORK = 2 << 20,
    WATCH_US = 100,
    ADD_COUNT = 1 << 18 /* elements */
};

static const double seconds_per_size = 0.15;

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a fit");
}

/* ---- times */

/* What is timed: `run` does it `times` times in a row; `again` makes the buffers new, untimed. */
typedef struct experiment {
    ct_comm *c;
    ct_status (*again)(void *ctx);
    ct_status (*run)(void *ctx, int times);
    void *ctx;
    int times;
    bool watches; /* this rank takes no part: it leaves its core to those that do */
} experiment;

static ct_status meet(const experiment *e)
{
    const struct timespec nap = { .tv_nsec = 1000 * WATCH_US };
    MPI_Request request;
    int done = 0;

    CT_TRY_MPI(MPI_Ibarrier(e->c->world, &request));
    for (;;) {
        CT_TRY_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (done) return CT_OK;
        if (e->watches) (void)nanosleep(&nap, NULL);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median seconds of one; the first is not counted, and says how many there is time for. */
static ct_status measure(const experiment *e, double *seconds_p)
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
        CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, &t[0], 1, MPI_DOUBLE, MPI_MAX, e->c->world));
        n = (t[0] * e->times * MOST_REPEAT < seconds_per_size)
                ? MOST_REPEAT
                : (int)(seconds_per_size / (t[0] * e->times));
        n = (n < LEAST_REPEAT) ? LEAST_REPEAT : n;
    }
    CT_TRY(meet(e));
    CT_TRY_MPI(MPI_Allreduce(MPI_IN_PLACE, t + 1, n, MPI_DOUBLE, MPI_MAX, e->c->world));
    qsort(t + 1, (size_t)n, sizeof(*t), ascending);
    *seconds_p = t[1 + n / 2];
    return CT_OK;
}

/* Fits the sizes with even numbers; the residual is that of the others. */
typedef struct curve {
    double bytes[N_SIZE], seconds[N_SIZE];
    int n;
} curve;

static int pick(const curve *c, int odd, double *bytes, double *seconds)
{
    int n = 0;

    for (int i = odd; i < c->n; i += 2) {
        bytes[n] = c->bytes[i];
        seconds[n++] = c->seconds[i];
    }
    return n;
}

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

    for (int at = 0; at < x->bytes; at += each) {
        int size = (x->bytes - at < each) ? x->bytes - at : each;

        CT_TRY_MPI(MPI_Irecv(in + at, size, MPI_BYTE, x->partner, 0, x->c->world, &request[n]));
        CT_TRY_MPI(
            MPI_Isend(out + at, size, MPI_BYTE, x->partner, 0, x->c->world, &request[n + 1]));
        n += 2;
    }
    CT_TRY_MPI(MPI_Waitall(n, request, MPI_STATUSES_IGNORE));
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
    experiment e = { x->c, renew, swap, x, 1, x->partner < 0 };

    x->bytes = bytes;
    if (bytes < x->in_a_row) e.times = x->in_a_row / bytes;
    if (e.times > 50) e.times = 50;
    CT_TRY(measure(&e, seconds_p));
    *seconds_p /= 2;
    return CT_OK;
}

/* The level keeps every second time, foretells the others by them (the residual), then keeps all.
 */
static void keep_times(const curve *c, ct_level *l)
{
    double bytes[N_SIZE], seconds[N_SIZE], sum = 0;
    int n = pick(c, 1, bytes, seconds);

    l->n_time = pick(c, 0, l->time_bytes, l->time_s);
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
    curve c = { .n = N_SIZE };
    const int last = N_SIZE - 1, before = N_SIZE - 3;
    ct_fit_line line;

    for (int i = 0; i < N_SIZE; ++i) {
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

    CT_TRY(time_exchange(x, size_of(N_SIZE - 1), &seconds));
    each = size_of(N_SIZE - 1) / fmax(seconds - l->latency_s, 0.1 * seconds);
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

/* ---- additions */

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

static ct_status fit_sums(ct_comm *c, ct_fit_report *report)
{
    addition a = { .n_thread = c->n_thread };
    experiment e = { c, renew_terms, add, &a, 1, false };
    double seconds = 0;
    ct_status status = CT_OK;

    a.x = ct_mem_acquire(2 * sizeof(*a.x) * ADD_COUNT);
    if (a.x == NULL) return no_memory();
    a.y = a.x + ADD_COUNT;
    status = measure(&e, &seconds);
    ct_mem_release(a.x);
    report->machine.sum_bandwidth = sizeof(float) * ADD_COUNT / seconds;
    return status;
}

/* ---- shared memory */

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
    experiment e = { c, renew_gradients, sum_shared, s, 1, false };
    ct_status status = CT_OK;

    s->req = (ct_coll_req){
        .comm = s->node, .buf = s->buf, .count = bytes / 4, .dtype = CT_F32, .tag = 0
    };
    CT_TRY(ct_node_sum_create(&s->req, &s->sum));
    status = measure(&e, seconds_p);
    ct_node_sum_destroy(s->sum);
    s->sum = NULL;
    return status;
}

static ct_status fit_curve(ct_comm *c, shared *s, int n, ct_shared_memory *m)
{
    curve k = { .n = n };
    double bytes[N_SIZE], seconds[N_SIZE], sum = 0;
    ct_fit_knee fit;
    int held = 0;

    for (int i = 0; i < n; ++i) {
        k.bytes[i] = ldexp(4096, i);
        CT_TRY(time_shared(c, s, (int64_t)k.bytes[i], &k.seconds[i]));
    }
    fit = ct_fit_knee_of(bytes, seconds, pick(&k, 0, bytes, seconds));
    held = pick(&k, 1, bytes, seconds);
    for (int i = 0; i < held; ++i) {
        double off = ct_fit_knee_s(&fit, bytes[i]) / seconds[i] - 1;

        sum += off * off;
    }
    if (fit.beyond <= 0) return CT_OK; /* more bytes for nothing: no fit */
    m->latency_s = fit.alpha_s / 2;
    m->cached = (fit.beta > 0) ? fit.knee : 0;
    m->cached_bandwidth = (fit.beta > 0) ? 2 / fit.beta : 0;
    m->bandwidth = 2 / fit.beyond;
    m->residual = sqrt(sum / held);
    return CT_OK;
}

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
    if (MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, c->world) != MPI_SUCCESS) all = 0;
    if (all) status = fit_curve(c, &s, n, &report->machine.shared);

done:
    if (block != NULL) arena->release(arena->ctx, block);
    ct_comm_destroy(s.node);
    return status;
}

/* ---- all of it */

ct_status ct_bench_fit(ct_comm *c, ct_fit_report *report)
{
    size_t most = (size_t)size_of(N_SIZE - 1);
    exchange x = { .c = c, .partner = -1 };
    ct_status status = CT_OK;

    if (c->size == 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--fit measures between ranks: start 2 or more (mpirun -np 2)");
    *report = (ct_fit_report){ .machine = c->topo->machine };
    report->machine.names = NULL;
    x.out = ct_mem_acquire(3 * most);
    if (x.out == NULL) return no_memory();
    x.in = x.out + 2 * most;
    for (int l = 0; (l < report->machine.n_level) && (status == CT_OK); ++l)
        status = fit_level(c, &x, l, report);
    ct_mem_release(x.out);
    CT_TRY(status);
    CT_TRY(fit_sums(c, report));
    return fit_shared(c, report);
}

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

void ct_bench_fit_print(const ct_comm *c, const ct_fit_report *report)
{
    const ct_shared_memory *s = &report->machine.shared;

    if (c->rank != 0) return;
    printf(
        "%d ranks on %d nodes (%s); GB/s: 10^9 bytes a second, per direction\n\n"
        "level         between  latency us   bandwidth      uplink         bus   pairs  error %%\n",
        c->size, c->topo->n_node, c->topo->source);
    for (int l = 0; l < report->machine.n_level; ++l) print_level(report, l);
    printf("\nadding f32, all ranks at once: %.3f GB/s a rank\n",
           1e-9 * report->machine.sum_bandwidth);
    if (s->bandwidth > 0)
        printf("sums in shared memory: %.3f us twice, %.3f GB/s a rank to %.3f MB, %.3f beyond, "
               "error %.1f %%\n",
               1e6 * s->latency_s, 1e-9 * s->cached_bandwidth, 1e-6 * s->cached,
               1e-9 * s->bandwidth, 100 * s->residual);
    printf("error: of sizes that were not fitted\n");
    fflush(stdout);
}
