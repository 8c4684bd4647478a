/* Schedules of all ranks run against each other in one process, in random order, with messages that
 * are read as late as MPI may; what they move across the levels against theory. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "comm/cost/cost.h"
#include "comm/collective/coll_types.h"
#include "comm/collective/schedule.h"
#include "framework/base/rng.h"

/* ---- an engine of its own: what schedule.c does, without MPI and in any order */

typedef struct message {
    int step, seg;
    int32_t *copy; /* NULL: read from the sender's buffer when it arrives */
    bool gone;
} message;

typedef struct player {
    ct_schedule s;
    int32_t *buf;
    int send_step, recv_step; /* next to post; next to take */
    int64_t send_seg, recv_seg;
    message *sent; /* in order */
    int n_sent, first_open;
} player;

static int64_t n_segment(int64_t n)
{
    return (n + ct_segment_elements(n) - 1) / ct_segment_elements(n);
}

static int64_t length(int64_t n, int64_t seg)
{
    int64_t left = n - seg * ct_segment_elements(n);

    return (left < ct_segment_elements(n)) ? left : ct_segment_elements(n);
}

static void settle(player *p)
{
    while ((p->send_step < p->s.n_step) &&
           (p->send_seg >= n_segment(p->s.step[p->send_step].send_n))) {
        p->send_step += 1;
        p->send_seg = 0;
    }
    while ((p->recv_step < p->s.n_step) &&
           (p->recv_seg >= n_segment(p->s.step[p->recv_step].recv_n))) {
        p->recv_step += 1;
        p->recv_seg = 0;
    }
    while ((p->first_open < p->n_sent) && p->sent[p->first_open].gone) p->first_open += 1;
}

static bool try_send(player *p, uint64_t dice)
{
    const ct_sched_step *step = &p->s.step[p->send_step];
    int after = 0;
    int64_t seg = 0, n = 0;
    message *m = NULL;

    if (p->send_step == p->s.n_step) return false;
    ct_schedule_send_waits(&p->s, p->send_step, p->send_seg, &after, &seg);
    assert_true(after <= step->after);
    if ((after > p->recv_step) || ((after == p->recv_step) && (seg >= p->recv_seg))) return false;
    p->sent = realloc(p->sent, sizeof(*p->sent) * ((size_t)p->n_sent + 1));
    m = &p->sent[p->n_sent++];
    *m = (message){ .step = p->send_step, .seg = (int)p->send_seg };
    n = length(step->send_n, p->send_seg);
    if (dice % 2 == 0) { /* small messages leave at once */
        m->copy = malloc(sizeof(*m->copy) * (size_t)n);
        memcpy(m->copy, p->buf + step->send_at + p->send_seg * ct_segment_elements(step->send_n),
               sizeof(*m->copy) * (size_t)n);
    }
    p->send_seg += 1;
    settle(p);
    return true;
}

/* The oldest message of `from` to rank `to` that has not arrived. */
static message *next_message(player *from, int to)
{
    for (int i = from->first_open; i < from->n_sent; ++i) {
        if (!from->sent[i].gone && (from->s.step[from->sent[i].step].send_to == to))
            return &from->sent[i];
    }
    return NULL;
}

static bool sends_over(const player *p, int step)
{
    return (p->send_step >= step) &&
           ((p->first_open == p->n_sent) || (p->sent[p->first_open].step >= step));
}

static bool try_recv(player *all, int me)
{
    player *p = &all[me];
    const ct_sched_step *step = &p->s.step[p->recv_step], *other = NULL;
    message *m = NULL;
    const int32_t *x = NULL;
    int32_t *y = NULL;
    int64_t n = 0;

    if (p->recv_step == p->s.n_step) return false;
    if (!step->add && !sends_over(p, step->sent_first)) return false;
    m = next_message(&all[step->recv_from], me);
    if (m == NULL) return false;
    other = &all[step->recv_from].s.step[m->step];
    n = length(step->recv_n, p->recv_seg);
    assert_int_equal(n, length(other->send_n, m->seg));
    y = p->buf + step->recv_at + p->recv_seg * ct_segment_elements(step->recv_n);
    x = m->copy;
    if (x == NULL)
        x = all[step->recv_from].buf + other->send_at + m->seg * ct_segment_elements(other->send_n);
    for (int64_t i = 0; i < n; ++i) y[i] = step->add ? y[i] + x[i] : x[i];
    free(m->copy);
    m->copy = NULL;
    m->gone = true;
    p->recv_seg += 1;
    settle(p);
    settle(&all[step->recv_from]);
    return true;
}

/* Nothing may be added to what an earlier step sends, and no step may read what it receives. */
static void check_ranges(const ct_schedule *s)
{
    for (int i = 0; i < s->n_step; ++i) {
        for (int k = 0; k <= i; ++k) {
            const ct_sched_step *a = &s->step[k], *b = &s->step[i];

            if ((a->send_n == 0) || (b->recv_n == 0) || (!b->add && (k < i))) continue;
            assert_true((a->send_at >= b->recv_at + b->recv_n) ||
                        (b->recv_at >= a->send_at + a->send_n));
        }
    }
}

/* Runs all to the end; fails where nobody moves any more. */
static void play(player *all, int n, uint64_t key)
{
    int left = 1, still = 0;
    uint64_t t = 0;

    for (int r = 0; r < n; ++r) {
        check_ranges(&all[r].s);
        settle(&all[r]);
    }
    for (; left > 0; still += 1) {
        int start = (int)(ct_rng_philox(key, 1, t).v[0] % (uint32_t)n);

        left = 0;
        for (int k = 0; k < n; ++k) {
            int r = (start + k) % n;
            uint32_t dice = ct_rng_philox(key, 2, t++).v[0];

            if ((dice % 3 != 0) && try_send(&all[r], dice >> 8)) still = 0;
            if ((dice % 3 != 1) && try_recv(all, r)) still = 0;
            left += (all[r].send_step < all[r].s.n_step) + (all[r].recv_step < all[r].s.n_step);
        }
        assert_true(still < 100);
    }
    for (int r = 0; r < n; ++r) assert_int_equal(all[r].first_open, all[r].n_sent);
}

/* ---- what is run */

typedef enum { ALLREDUCE, SCATTER, GATHER, BROADCAST, TREE, PIPELINED } operation;

static int32_t term(int rank, int64_t i)
{
    return (int32_t)(ct_rng_philox(3, (uint64_t)rank, (uint64_t)i).v[0] % 1000);
}

static void build(const ct_cost *cost, const ct_group_algorithm *way, const ct_topo *t,
                  operation op, int root, int64_t n, player *all)
{
    for (int i = 0; i < t->n_rank; ++i) {
        player *p = &all[t->order[i]];
        ct_engine_plan_use u = { .way = way, .rank = t->order, .me = i, .n = n };

        if (cost != NULL) u.plan = ct_cost_plan(cost);
        if ((op == ALLREDUCE) || (op == SCATTER))
            assert_int_equal(ct_hierarchical_plan_scatter(&u, &p->s), CT_OK);
        if ((op == ALLREDUCE) || (op == GATHER))
            assert_int_equal(ct_hierarchical_plan_gather(&u, &p->s), CT_OK);
        if (op == PIPELINED)
            assert_int_equal(ct_hierarchical_plan_pipelined(&u, 5, false, &p->s), CT_OK);
        if (op == TREE)
            assert_int_equal(ct_tree_reduce(t->order, t->n_rank, 0, i, n, &p->s), CT_OK);
        if ((op == TREE) || (op == BROADCAST))
            assert_int_equal(ct_tree_broadcast(t->order, t->n_rank, root,
                                               (i - root + t->n_rank) % t->n_rank, n, &p->s),
                             CT_OK);
    }
}

static void run(const ct_cost *cost, const ct_group_algorithm *way, const ct_topo *t, operation op,
                int root, int64_t n)
{
    player *all = calloc((size_t)t->n_rank, sizeof(*all));

    build(cost, way, t, op, root, n, all);
    for (int r = 0; r < t->n_rank; ++r) {
        all[r].buf = malloc(sizeof(int32_t) * (size_t)(n + 1));
        for (int64_t i = 0; i < n; ++i) all[r].buf[i] = term(r, i);
        all[r].buf[n] = -7;
    }
    play(all, t->n_rank, (uint64_t)n * 7 + (uint64_t)op);
    for (int64_t i = 0; i < n; ++i) {
        int32_t sum = 0;
        int holders = 0;

        for (int r = 0; r < t->n_rank; ++r) sum += term(r, i);
        if (op == BROADCAST) sum = term(t->order[root], i);
        for (int r = 0; r < t->n_rank; ++r) holders += (all[r].buf[i] == sum);
        if (op == SCATTER)
            assert_true(holders >= 1);
        else if (op != GATHER)
            assert_int_equal(holders, t->n_rank);
    }
    for (int r = 0; r < t->n_rank; ++r) {
        assert_int_equal(all[r].buf[n], -7);
        ct_schedule_destroy(&all[r].s);
        free(all[r].buf);
        free(all[r].sent);
    }
    free(all);
}

static const char *const machine[] = {
    "1x1",
    "2x1",
    "3x1",
    "5x1",
    "7x1",
    "8x1",
    "13x1",
    "16x1",
    "2x2",
    "2sw x 2n x 2",
    "3sw x 2n x 1",
    "map:0010",
    "map:01012200",
    "map:0123/0001",
    "map:aabbb/01012",
    "map:abcabcaab/012340120",
    "map:aaaaabbbbbbbcc/01234012345601",
    "map:xyxyxyxyxyx/ababcbcabab/01010101010",
};

static int ranks_of(const char *spec)
{
    const char *last = strrchr(spec, '/');
    int n = 1;

    if (strncmp(spec, "map:", 4) == 0) return (int)strlen((last != NULL) ? last + 1 : spec + 4);
    for (const char *at = spec; *at != '\0'; ++at) {
        if ((*at >= '0') && (*at <= '9')) {
            n *= (int)strtol(at, (char **)&at, 10);
            at -= 1;
        }
    }
    return n;
}

static void on_machines(void (*f)(const ct_topo *t))
{
    for (size_t i = 0; i < sizeof(machine) / sizeof(machine[0]); ++i) {
        ct_topo *t = NULL;

        assert_int_equal(ct_topo_from_string(machine[i], ranks_of(machine[i]), &t), CT_OK);
        f(t);
        ct_topo_destroy(t);
    }
}

static void every_algorithm(const ct_topo *t)
{
    static const int64_t count[] = { 0, 1, 5, 17, 300, 4099 };

    const ct_cost_ops *const algorithm[] = { ct_coll_ring.cost, ct_coll_rhd.cost, ct_coll_hier.cost,
                                             ct_coll_torus.cost, &ct_cost_flat };

    for (size_t a = 0; a < sizeof(algorithm) / sizeof(algorithm[0]); ++a) {
        ct_cost *cost = NULL;
        ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];

        assert_int_equal(ct_cost_create(algorithm[a], t, NULL, false, &cost), CT_OK);
        for (size_t k = 0; k < sizeof(count) / sizeof(count[0]); ++k) {
            ct_cost_algorithms(cost, 4.0 * (double)count[k], way);
            run(cost, way, t, ALLREDUCE, 0, count[k]);
        }
        /* each way through each plan, also those that no cost would choose */
        for (int w = 0; w < CT_GROUP_ALGORITHM_N; ++w) {
            for (int k = 0; k < CT_HIERARCHICAL_PLAN_PHASES; ++k) way[k] = (ct_group_algorithm)w;
            run(cost, way, t, ALLREDUCE, 0, 1031);
            run(cost, way, t, SCATTER, 0, 1031);
            run(cost, way, t, GATHER, 0, 77);
        }
        ct_cost_destroy(cost);
    }
    run(NULL, NULL, t, TREE, 0, 100);
    for (int root = 0; root < t->n_rank; ++root) run(NULL, NULL, t, BROADCAST, root, 33);
}

static void test_every_algorithm(void **state)
{
    (void)state;
    on_machines(every_algorithm);
}

/* Thirds and quarters have cuts in common that are rounded differently: every count finds the
 * element between them, if there is one, and whoever summed it before goes on with it. */
static void test_common_cuts(void **state)
{
    enum { MAPS = 40 };

    (void)state;
    for (uint64_t k = 0; k < MAPS; ++k) {
        char spec[64] = "map:baaabbaba/222220022";
        ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
        ct_cost *cost = NULL;
        ct_topo *t = NULL;
        int n = 5 + (int)(k % 8);

        for (int i = 0; (k > 0) && (i < n); ++i) {
            spec[4 + i] = (char)('a' + ct_rng_key(7, k, (uint64_t)i) % 2);
            spec[5 + n + i] = (char)('0' + ct_rng_key(8, k, (uint64_t)i) % 3);
        }
        if (k > 0) {
            spec[4 + n] = '/';
            spec[5 + 2 * n] = '\0';
        }
        assert_int_equal(ct_topo_from_string(spec, ranks_of(spec), &t), CT_OK);
        assert_int_equal(ct_cost_create(ct_coll_hier.cost, t, NULL, false, &cost), CT_OK);
        for (int w = 0; w < CT_GROUP_ALGORITHM_N; ++w) {
            for (int l = 0; l < CT_HIERARCHICAL_PLAN_PHASES; ++l) way[l] = (ct_group_algorithm)w;
            for (int64_t count = 2; count <= 64; count += (count < 20) ? 1 : 22)
                run(cost, way, t, ALLREDUCE, 0, count);
        }
        ct_cost_destroy(cost);
        ct_topo_destroy(t);
    }
}

/* Several segments a step, so that sends begin before all has come in. */
static void test_segments(void **state)
{
    static const char *const spec[] = { "3x1", "4x1", "map:aab/011" };
    ct_topo *t = NULL;

    (void)state;
    for (size_t i = 0; i < 3; ++i) {
        assert_int_equal(ct_topo_from_string(spec[i], ranks_of(spec[i]), &t), CT_OK);
        for (int w = 0; w < CT_GROUP_ALGORITHM_N; ++w) {
            ct_cost *cost = NULL;
            ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];

            for (int k = 0; k < CT_HIERARCHICAL_PLAN_PHASES; ++k) way[k] = (ct_group_algorithm)w;
            assert_int_equal(ct_cost_create(ct_coll_hier.cost, t, NULL, false, &cost), CT_OK);
            run(cost, way, t, ALLREDUCE, 0, 1000003);
            ct_cost_destroy(cost);
        }
        run(NULL, NULL, t, TREE, 0, 300001);
        ct_topo_destroy(t);
    }
}

/* 0 sends to 1 what 2 overwrites: 0 must let 1 read it first. No sum of ours does this, since there
 * what comes back depends on what went out; so it needs steps of its own. */
static void test_overwritten_after_sent(void **state)
{
    enum { N = 200000 };

    (void)state;
    for (uint64_t key = 0; key < 20; ++key) {
        player all[3] = { { .buf = NULL } };

        assert_int_equal(
            ct_schedule_add(&all[0].s,
                            &(ct_sched_step){ .send_to = 1, .recv_from = -1, .send_n = N }),
            CT_OK);
        assert_int_equal(ct_schedule_add(&all[0].s, &(ct_sched_step){ .send_to = -1,
                                                                      .recv_from = 2,
                                                                      .recv_at = N / 2,
                                                                      .recv_n = N / 2 }),
                         CT_OK);
        assert_int_equal(
            ct_schedule_add(&all[1].s,
                            &(ct_sched_step){ .send_to = -1, .recv_from = 0, .recv_n = N }),
            CT_OK);
        assert_int_equal(ct_schedule_add(&all[2].s, &(ct_sched_step){ .send_to = 0,
                                                                      .recv_from = -1,
                                                                      .send_at = N / 2,
                                                                      .send_n = N / 2 }),
                         CT_OK);
        for (int r = 0; r < 3; ++r) {
            all[r].buf = malloc(sizeof(int32_t) * N);
            for (int i = 0; i < N; ++i) all[r].buf[i] = r;
        }
        play(all, 3, key);
        for (int i = 0; i < N; ++i) {
            assert_int_equal(all[0].buf[i], (i < N / 2) ? 0 : 2);
            assert_int_equal(all[1].buf[i], 0);
        }
        for (int r = 0; r < 3; ++r) {
            ct_schedule_destroy(&all[r].s);
            free(all[r].buf);
            free(all[r].sent);
        }
    }
}

/* ---- bytes across the levels */

/* Shares of the buffer that a rank sends, on average, to where it meets on each level, in a
 * reduce-scatter by halving; rank[i] at position i. */
static void halving_shares(const ct_topo *t, const int *rank, double *share)
{
    ct_hierarchical_plan *plan = NULL;
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES] = { CT_GROUP_ALGORITHM_HALVING };
    int64_t n = (int64_t)1 << 20;

    assert_int_equal(ct_hierarchical_plan_flat(t->n_rank, &plan), CT_OK);
    memset(share, 0, sizeof(*share) * CT_MAX_LEVEL);
    for (int i = 0; i < t->n_rank; ++i) {
        ct_schedule s = { .step = NULL };
        ct_engine_plan_use u = { .plan = plan, .way = way, .rank = rank, .me = i, .n = n };

        assert_int_equal(ct_hierarchical_plan_scatter(&u, &s), CT_OK);
        for (int k = 0; k < s.n_step; ++k) {
            if (s.step[k].send_to >= 0)
                share[ct_topo_meet(t, rank[i], s.step[k].send_to)] += (double)s.step[k].send_n;
        }
        ct_schedule_destroy(&s);
    }
    for (int l = 0; l < CT_MAX_LEVEL; ++l) share[l] /= (double)n * t->n_rank;
    ct_hierarchical_plan_destroy(plan);
}

/* Thakur's and swCaffe's volumes: p ranks in supernodes of q. Near first: (p - p/q)/p inside and
 * (p/q - 1)/p across; the naive numbering: (q - 1)/p inside and (p - q)/p across. */
static void test_volume_of_halving(void **state)
{
    enum { P = 1024, Q = 256 };
    static const char *const placement[] = { "block", "cyclic", "random:1", "random:77" };
    static int naive[P];
    ct_machine *m = NULL;
    ct_topo *t = NULL;
    double share[CT_MAX_LEVEL];

    (void)state;
    assert_int_equal(ct_machine_from_spec("4sn x 256n x 1", &m), CT_OK);
    for (size_t i = 0; i < sizeof(placement) / sizeof(placement[0]); ++i) {
        int last = 0;

        assert_int_equal(ct_topo_place(m, P, 1, placement[i], &t), CT_OK);
        last = t->machine.n_level - 1;
        halving_shares(t, t->order, share);
        assert_true(share[last] == (P / Q - 1.0) / P);           /* 0.0029 */
        assert_true(share[last - 1] == (P - (double)P / Q) / P); /* 0.996  */
        if (i == 0) { /* position k + 4 j is node j of supernode k: neighbours are far */
            for (int k = 0; k < P; ++k) naive[k] = t->order[k % (P / Q) * Q + k / (P / Q)];
            halving_shares(t, naive, share);
            assert_true(share[last] == (P - (double)Q) / P); /* 0.750 */
            assert_true(share[last - 1] == (Q - 1.0) / P);   /* 0.249 */
        }
        ct_topo_destroy(t);
    }
    ct_machine_destroy(m);
}

/* Uneven vertices: what hier sends out of a vertex of m ranks, all together, is (v - 1)/v of the
 * buffer, v vertices; no plan can send less in a reduce-scatter that ends evenly. */
static void test_volume_of_hier(void **state)
{
    ct_topo *t = NULL;
    ct_cost *cost = NULL;
    ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];
    double out[4] = { 0 };
    const int64_t n = 1 << 20;
    static const char spec[] = "map:aaaaabbbccccccd/01234012012345x";

    (void)state;
    assert_int_equal(ct_topo_from_string(spec, ranks_of(spec), &t), CT_OK);
    assert_int_equal(ct_cost_create(ct_coll_hier.cost, t, NULL, false, &cost), CT_OK);
    for (int w = 0; w < CT_GROUP_ALGORITHM_N; ++w) {
        for (int k = 0; k < CT_HIERARCHICAL_PLAN_PHASES; ++k) way[k] = (ct_group_algorithm)w;
        memset(out, 0, sizeof(out));
        for (int i = 0; i < t->n_rank; ++i) {
            ct_schedule s = { .step = NULL };
            ct_engine_plan_use u = {
                .plan = ct_cost_plan(cost), .way = way, .rank = t->order, .me = i
            };
            int level = t->machine.n_level - 1;

            u.n = n;
            assert_int_equal(ct_hierarchical_plan_scatter(&u, &s), CT_OK);
            for (int k = 0; k < s.n_step; ++k) {
                if ((s.step[k].send_to >= 0) &&
                    (ct_topo_meet(t, t->order[i], s.step[k].send_to) == level))
                    out[t->vertex[level - 1][t->order[i]]] += (double)s.step[k].send_n;
            }
            ct_schedule_destroy(&s);
        }
        for (int v = 0; v < 4; ++v) {
            /* cuts are rounded to 16 elements */
            assert_true((out[v] > 0.749 * n) && (out[v] < 0.751 * n));
        }
    }
    ct_cost_destroy(cost);
    ct_topo_destroy(t);
}

/* Chunks that are on several levels at a time. */
static void pipelined(const ct_topo *t)
{
    static const int64_t count[] = { 0, 3, 50, 1031, 4099 };
    ct_cost *cost = NULL;

    assert_int_equal(ct_cost_create(ct_coll_hier.cost, t, NULL, false, &cost), CT_OK);
    for (int w = 0; w < CT_GROUP_ALGORITHM_N; ++w) {
        ct_group_algorithm way[CT_HIERARCHICAL_PLAN_PHASES];

        for (int k = 0; k < CT_HIERARCHICAL_PLAN_PHASES; ++k) way[k] = (ct_group_algorithm)w;
        for (size_t k = 0; k < sizeof(count) / sizeof(count[0]); ++k)
            run(cost, way, t, PIPELINED, 0, count[k]);
    }
    ct_cost_destroy(cost);
}

static void test_pipelined(void **state)
{
    (void)state;
    on_machines(pipelined);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_algorithm),   cmocka_unit_test(test_common_cuts),
        cmocka_unit_test(test_segments),          cmocka_unit_test(test_overwritten_after_sent),
        cmocka_unit_test(test_volume_of_halving), cmocka_unit_test(test_volume_of_hier),
        cmocka_unit_test(test_pipelined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
