/* Costs against the textbook's formulas, where these hold, and against each other. */
#include "tests/test.h"
#include "tests/log_capture.h"

#include <math.h>
#include <string.h>

#include "comm/collective/coll_types.h"
#include "comm/cost/cost.h"

static const double ALPHA = 3e-6, BETA1 = 1e-9, BETA2 = 4e-9, GAMMA = 0.5e-9;

/* p ranks, a rank a node, in supernodes of q with beta2 out of them per rank. Bandwidths of pairs
 * do not limit; each direction of a node's link does. */
static ct_topo *supernodes(int p, int q, const char *placement)
{
    char spec[64];
    ct_machine *m = NULL;
    ct_topo *t = NULL;

    snprintf(spec, sizeof(spec), "%dsn x %dn x 1", p / q, q);
    assert_int_equal(ct_machine_from_spec(spec, &m), CT_OK);
    assert_int_equal(ct_topo_place(m, p, 1, placement, &t), CT_OK);
    for (int l = 0; l < t->machine.n_level; ++l) {
        t->machine.level[l].latency_s = ALPHA;
        t->machine.level[l].bandwidth = 0;
        t->machine.level[l].bus = 0;
        t->machine.level[l].uplink = 1 / BETA1;
    }
    t->machine.level[0].uplink = 0;
    t->machine.level[t->machine.n_level - 1].uplink = q / BETA2;
    t->machine.sum_bandwidth = 0;
    ct_machine_destroy(m);
    return t;
}

static void near(double is, double should)
{
    if (fabs(is - should) > 1e-9 * should) print_error("%g, not %g\n", is, should);
    assert_true(fabs(is - should) <= 1e-9 * should);
}

static double seconds_of(const ct_cost_ops *how, const ct_topo *t, double bytes)
{
    ct_cost *c = NULL;
    double s = 0;

    assert_int_equal(ct_cost_create(how, t, NULL, true, &c), CT_OK);
    s = ct_cost_s(c, bytes);
    ct_cost_destroy(c);
    return s;
}

static double seconds(const char *algorithm, const ct_topo *t, double bytes)
{
    return seconds_of(ct_coll_named(algorithm)->cost, t, bytes);
}

/* What a sum over some ranks of a job takes is what it takes a job of these ranks alone. */
static void test_parts(void **state)
{
    /* first rank, step, how many; and ranks a node and placement of the job that they are */
    static const struct {
        int first, step, n, per_node;
        const char *placement;
    } part[] = { { 8, 1, 8, 2, "block" },
                 { 0, 1, 12, 2, "block" },
                 { 0, 2, 16, 1, "block" },
                 { 16, 2, 8, 1, "block" },
                 { 3, 1, 1, 1, "block" } };
    ct_machine *m = NULL;
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_machine_from_spec("4sn x 4n x 2", &m), CT_OK);
    assert_int_equal(ct_topo_place(m, 32, 2, "block", &t), CT_OK);
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); ++i) {
        int rank[32];
        ct_topo *some = NULL, *alone = NULL;

        for (int k = 0; k < part[i].n; ++k) rank[k] = part[i].first + k * part[i].step;
        assert_int_equal(ct_topo_subset(t, rank, part[i].n, &some), CT_OK);
        assert_int_equal(ct_topo_place(m, part[i].n, part[i].per_node, part[i].placement, &alone),
                         CT_OK);
        for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
            for (double bytes = 1e3; bytes < 1e9; bytes *= 100)
                assert_true(seconds_of((*at)->cost, some, bytes) ==
                            seconds_of((*at)->cost, alone, bytes));
        }
        ct_topo_destroy(some);
        ct_topo_destroy(alone);
    }
    ct_topo_destroy(t);
    ct_machine_destroy(m);
}

/* swCaffe's: 2 log2 p alpha + 2 n ((p - p/q)/p beta1 + (p/q - 1)/p beta2), for its topology-aware
 * numbering, and so for ours from any placement. */
static void test_halving(void **state)
{
    static const char *const placement[] = { "block", "cyclic", "random:5" };
    const double n = 1e8, p = 1024, q = 256;

    (void)state;
    for (size_t i = 0; i < 3; ++i) {
        ct_topo *t = supernodes(1024, 256, placement[i]);

        near(seconds("rhd", t, n),
             20 * ALPHA + 2 * n * ((p - p / q) / p * BETA1 + (p / q - 1) / p * BETA2));
        ct_topo_destroy(t);
    }
}

/* Two switches of two hosts, as tests/bench/slow_link.sh pretends them: of a buffer 1.5 cross each
 * host's link and 1 each switch's. In chunks all links work at a time: 1.5 buffers, and one chunk
 * on its way. In one piece each phase waits for the one before: 0.5 + 0.5 on the hosts' links up,
 * 2 x 0.5 across, as much down. */
static void test_pipelined(void **state)
{
    const double n = 16e6;
    ct_topo *t = supernodes(4, 2, "block");
    ct_cost *c = NULL;
    double each = 0;

    (void)state;
    t->machine.level[t->machine.n_level - 1].uplink = 1 / BETA1;
    assert_int_equal(ct_cost_create(ct_coll_hier.cost, t, NULL, false, &c), CT_OK);
    assert_int_equal(ct_cost_chunks(c, n), 8);
    each = n / 8;
    near(ct_cost_s(c, n), 4 * ALPHA + 2 * each * BETA1 + 7 * 1.5 * each * BETA1);
    assert_int_equal(ct_cost_chunks(c, 1000), 1);
    near(ct_cost_s(c, 1000), 4 * ALPHA + 2 * 1000 * BETA1);
    ct_cost_destroy(c);
    ct_topo_destroy(t);

    t = supernodes(12, 4, "block"); /* phases of several steps: other chunks cannot pass them */
    t->machine.level[t->machine.n_level - 1].uplink = 1 / BETA1;
    assert_int_equal(ct_cost_create(ct_coll_hier.cost, t, NULL, false, &c), CT_OK);
    assert_int_equal(ct_cost_chunks(c, n), 1);
    ct_cost_destroy(c);
    ct_topo_destroy(t);
}

/* The job has a torus to itself, with links of bandwidth 1 / BETA1, and injects into all of them.
 */
static ct_topo *torus(const char *spec, int n)
{
    ct_topo *t = NULL;

    assert_int_equal(ct_topo_from_string(spec, n, &t), CT_OK);
    t->machine.level[1].latency_s = ALPHA;
    t->machine.level[1].bandwidth = 1 / BETA1;
    t->machine.level[0].uplink = t->machine.level[1].uplink = 0;
    t->machine.sum_bandwidth = 0;
    return t;
}

/* What Swing's reduce-scatter of a part puts on each link of a square torus of 2^k a side, over the
 * part's bytes: what a round sends, over (2^(s + 1) + (-1)^s) / 3 links in a dimension's round s.
 * Of the two parts that work along a dimension one sends up from even places, one from odd. */
static double load_of_links(int side)
{
    double sent = 0, share = 1;

    for (int s = 0; (1 << s) < side; ++s) {
        double links = (double)((2 << s) + ((s % 2 == 0) ? 1 : -1)) / 3;

        for (int d = 0; d < 2; ++d) sent += links * (share /= 2);
    }
    return sent;
}

static void test_torus(void **state)
{
    ct_topo *t = torus("torus:32x32", 1024);
    const ct_coll_ops *swing = ct_coll_named("swing");
    const double n = 1e6;
    double byte_s = seconds("swing", t, n) - seconds("swing", t, 0);

    (void)state;
    near(seconds("swing", t, 0), 20 * ALPHA);
    near(byte_s, 2 * n / 4 * BETA1 * load_of_links(32));
    assert_true(seconds("swing", t, n) < 0.3 * seconds("rhd", t, n));
    assert_true(seconds("swing", t, n) < 0.3 * seconds("torus", t, n));
    assert_true(ct_coll_is_automatic(swing, t));
    near(seconds("torus", t, 0), 2 * (31 + 31) * ALPHA); /* its grid is the machine's */
    ct_topo_destroy(t);

    t = torus("torus:4x4", 16); /* neighbours alone: each link has a quarter of least traffic */
    near(seconds("swing", t, n) - seconds("swing", t, 0), 2 * n / 4 * BETA1 * 15 / 16);
    ct_topo_destroy(t);

    t = torus("torus:6x6", 36); /* no power of two: one part, as elsewhere */
    assert_false(ct_coll_is_automatic(swing, t));
    ct_topo_destroy(t);
    t = supernodes(64, 16, "block");
    assert_false(ct_coll_is_automatic(swing, t));
    ct_topo_destroy(t);
}

/* A flat network: the usual formulas, with additions that hide behind slower transfers in
 * rings, where segments pass through. */
static void test_flat_formulas(void **state)
{
    const double n = 32e6; /* halves of up to 16 MB go in 4 segments: 2^20 elements is the most */
    const int p = 8;
    ct_topo *t = supernodes(p, p, "block");
    double part = n / p;

    (void)state;
    near(seconds("ring", t, 0), 14 * ALPHA);
    near(seconds("rhd", t, 0), 6 * ALPHA);
    near(seconds("tree", t, 0), 6 * ALPHA);
    near(seconds("torus", t, 0), 6 * ALPHA);        /* 2 x 2 x 2 */
    near(seconds("hier", t, 0), 2 * ALPHA);         /* direct */
    near(seconds("ring", t, n), 14 * part * BETA1); /* alpha passes under the segments */
    near(seconds("rhd", t, n), 6 * ALPHA + 14 * part * BETA1);
    near(seconds("tree", t, n), 6 * (ALPHA + n * BETA1));
    t->machine.sum_bandwidth = 1 / GAMMA;
    near(seconds("rhd", t, n), 6 * ALPHA + 14 * part * BETA1 + 7 * part * GAMMA * (1 + 0.25) / 2);
    near(seconds("tree", t, n / 2), 6 * (ALPHA + n / 2 * BETA1) + 3 * n / 2 * GAMMA / 4);
    near(seconds("rhd", t, 1e5), 6 * ALPHA + 14 * 1e5 / p * BETA1 + 7 * 1e5 / p * GAMMA);
    near(seconds("ring", t, 1e5), 14 * (ALPHA + 1e5 / p * BETA1) + 7 * 1e5 / p * GAMMA);
    near(seconds("impi", t, n), 1.25 * seconds("ring", t, n));
    t->machine.sum_bandwidth = 0.5 / BETA1; /* slower than the network */
    near(seconds("ring", t, n), 7 * part * (2 * BETA1 + BETA1));
    ct_topo_destroy(t);
}

/* MPI's own where the network adds: latency + bytes / bandwidth, whatever the number of nodes, in
 * pieces where it takes no more at once; and as without where there are too many of them. */
static void test_in_network(void **state)
{
    ct_topo *t = supernodes(64, 16, "block"), *alone = NULL;
    const double n = 32e6, host = 1.25 * seconds("ring", t, 0);
    double least = 1.25 * seconds("rhd", t, 0);

    (void)state;
    if (host < least) least = host;
    near(seconds("impi", t, 0), least);
    t->machine.in_network = (ct_in_network){ .latency_s = 5e-6, .bandwidth = 0.1 / BETA1 };
    near(seconds("impi", t, 0), 5e-6);
    near(seconds("impi", t, 8), 5e-6 + 8 * 10 * BETA1);
    near(seconds("impi", t, n), 5e-6 + n * 10 * BETA1);
    near(seconds_of(ct_coll_impi.host_cost, t, 0), least);
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) /* small: the network's */
        assert_true((*at)->by_mpi || (seconds("impi", t, 64) < seconds((*at)->name, t, 64)));
    assert_true(seconds("impi", t, n) > seconds("hier", t, n)); /* large ones: not at a tenth */
    t->machine.in_network.bandwidth = 1 / BETA1; /* an allreduce by messages sends twice as much */
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at)
        assert_true((*at)->by_mpi || (seconds("impi", t, n) < seconds((*at)->name, t, n)));
    t->machine.in_network.max_bytes = 4096;
    near(seconds("impi", t, 4096), 5e-6 + 4096 * BETA1);
    near(seconds("impi", t, 4097), 2 * 5e-6 + 4097 * BETA1);
    near(seconds("impi", t, 256 * 4096), 256 * 5e-6 + 256 * 4096 * BETA1);
    near(seconds("impi", t, 256 * 4096 + 8), seconds_of(ct_coll_impi.host_cost, t, 256 * 4096 + 8));
    /* no switch adds what ranks of one node have */
    assert_int_equal(ct_topo_from_string("1x4", 4, &alone), CT_OK);
    alone->machine.in_network = t->machine.in_network;
    near(seconds("impi", alone, n), seconds_of(ct_coll_impi.host_cost, alone, n));
    ct_topo_destroy(alone);
    ct_topo_destroy(t);
}

/* Uneven supernodes: hier sends (v - 1)/v of the buffer out of each; the least has the busiest
 * ranks. */
static void test_uneven(void **state)
{
    ct_topo *t = NULL;
    const double n = 64e6;

    (void)state;
    assert_int_equal(ct_topo_from_string("map:aaaaaabb/01234567", 8, &t), CT_OK);
    for (int l = 0; l < 3; ++l) {
        t->machine.level[l].latency_s = 0;
        t->machine.level[l].bandwidth = 0;
        t->machine.level[l].uplink = (l == 2) ? 1e8 : 0; /* only what leaves a switch counts */
    }
    t->machine.sum_bandwidth = 0;
    near(seconds("hier", t, n), 2 * (n / 2) / 1e8);
    /* the ring crosses each boundary once: all but one part of 8 */
    near(seconds("ring", t, n), 2 * (n * 7 / 8) / 1e8);
    ct_topo_destroy(t);
}

/* Nodes that share memory send each byte once out of the node. */
static void test_nodes(void **state)
{
    ct_topo *t = NULL;
    const double n = 64e6;

    (void)state;
    assert_int_equal(ct_topo_from_string("4x4", 16, &t), CT_OK);
    t->machine.sum_bandwidth = 0;
    for (int l = 0; l < 2; ++l) {
        t->machine.level[l].latency_s = (l == 0) ? 1e-7 : ALPHA;
        t->machine.level[l].bandwidth = 0;
        t->machine.level[l].uplink = (l == 1) ? 1e9 : 0;
        t->machine.level[l].bus = (l == 0) ? 1e10 : 0;
    }
    /* on the node 3 n move through the bus each way; then 3/4 n out of the node, twice */
    near(seconds("hier", t, n), 2e-7 + 2 * 3 * n / 1e10 + 2 * 0.75 * n / 1e9);
    near(seconds("hier", t, 0), 2e-7 + 2 * ALPHA);
    /* halves: one way. Cuts are rounded, so a message goes to the parts or from them. In several
     * chunks 3/4 of what each node has go to others. Latencies of a ring hide in large sums */
    near(seconds_of(ct_coll_hier.scatter->cost, t, 4e6),
         1e-7 + 3 * 4e6 / 1e10 + 2 * ALPHA + 0.75 * 4e6 / 1e9);
    near(seconds_of(ct_coll_hier.scatter->cost, t, n),
         1e-7 + 3 * n / 1e10 + ALPHA + (0.75 + 3.0 / 16) * n / 1e9);
    near(seconds_of(ct_coll_hier.gather->cost, t, n), 1e-7 + 3 * n / 1e10 + ALPHA + 0.75 * n / 1e9);
    ct_topo_destroy(t);
}

/* Nodes whose numbers are not their places in the order, of unequal size. */
static void test_nodes_out_of_order(void **state)
{
    ct_topo *t = NULL;
    ct_cost *c = NULL;
    const int *rank = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("map:abcabb/012301", 6, &t), CT_OK);
    assert_int_equal(ct_cost_create(ct_coll_hier.cost, t, NULL, true, &c), CT_OK);
    assert_int_equal(ct_cost_plan(c)->n, 5);
    rank = ct_cost_rank(c);
    for (int i = 1; i < 5; ++i) { /* one of each node, in the order of the tree */
        int at = 0, before = 0;

        while (t->order[at] != rank[i]) at += 1;
        while (t->order[before] != rank[i - 1]) before += 1;
        assert_true(before < at);
        assert_int_not_equal(t->node[rank[i]], t->node[rank[i - 1]]);
    }
    assert_true(ct_cost_s(c, 1e6) > ct_cost_s(c, 1e3));
    ct_cost_destroy(c);
    ct_topo_destroy(t);
}

static void test_line(void **state)
{
    ct_topo *t = supernodes(64, 16, "cyclic");

    (void)state;
    t->machine.sum_bandwidth = 1e10;
    for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
        ct_cost_line line = { .a_s = -1 };
        const char *name = (*at)->name;

        assert_int_equal(ct_cost_line_of((*at)->cost, t, &line), CT_OK);
        near(line.a_s, seconds(name, t, 0));
        assert_true(line.b_s >= 2.0 * 63 / 64 * BETA1);
        assert_true(fabs(line.a_s + 1e10 * line.b_s - seconds(name, t, 1e10)) <
                    0.02 * seconds(name, t, 1e10));
    }
    ct_topo_destroy(t);
}

static void give_times(ct_level *l, const double *bytes, const double *seconds, int n)
{
    l->n_time = n;
    memcpy(l->time_bytes, bytes, sizeof(*bytes) * (size_t)n);
    for (int p = 0; p < CT_PATTERN_N; ++p) {
        for (int i = 0; i < n; ++i) l->time_s[p][i] = (p + 1) * seconds[i];
    }
}

/* Measured times of steps count instead of latency, bandwidth and additions: between them a
 * straight line, below them the first, beyond them the bandwidth; of partners that swap (halving),
 * rings (here twice as long) and trees (three times). */
static void test_times(void **state)
{
    const double mb = 1 << 20, bw = 1 / BETA1;
    const double bytes[3] = { mb, 2 * mb, 4 * mb }, time[3] = { 2e-3, 3e-3, 9e-3 };
    ct_topo *t = supernodes(8, 8, "block");
    ct_level *l = &t->machine.level[1];

    (void)state;
    l->bandwidth = bw;
    t->machine.sum_bandwidth = 1 / GAMMA;
    give_times(l, bytes, time, 3);
    near(ct_level_message_s(l, CT_PATTERN_SWAP, 1), 2e-3);
    near(ct_level_message_s(l, CT_PATTERN_SWAP, 1.25 * mb), 2.25e-3);
    near(ct_level_message_s(l, CT_PATTERN_SHIFT, 3 * mb), 12e-3);
    near(ct_level_message_s(l, CT_PATTERN_ONE_WAY, 6 * mb), 27e-3 + 2 * mb / bw);
    near(seconds("rhd", t, 4 * mb), 2 * (3e-3 + 2e-3 + 2e-3));
    near(seconds("rhd", t, 12 * mb), 2 * (9e-3 + 2 * mb / bw + 6e-3 + 2.5e-3));
    near(seconds("tree", t, 3 * mb), 3 * 2 * 3 * 6e-3);
    near(seconds("ring", t, 8 * mb), 2 * 14 * 2e-3);
    ct_topo_destroy(t);
}

/* What a link or a rank has to do beyond the one message that was measured comes on top: two ranks
 * of a node swap with two of another over one link each; a rank adds what all others send. */
static void test_times_and_loads(void **state)
{
    const double mb = 1 << 20, time = 5e-3;
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("2x2", 4, &t), CT_OK);
    t->machine.sum_bandwidth = 0;
    t->machine.level[0].uplink = 0; /* no limit */
    t->machine.level[1].bandwidth = t->machine.level[1].uplink = 1 / BETA1;
    for (int l = 0; l < 2; ++l) give_times(&t->machine.level[l], &mb, &time, 1);
    /* the nearest first: halves inside the node, quarters across, of both ranks over one link */
    near(seconds("rhd", t, 2 * mb),
         4 * time + 2 * (0.5 * mb * BETA1)); /* a quarter is 0.5 mb, the link has one more */
    ct_topo_destroy(t);

    t = supernodes(4, 4, "block");
    t->machine.level[1].bandwidth = 1 / BETA1;
    t->machine.sum_bandwidth = 1 / GAMMA;
    give_times(&t->machine.level[1], &mb, &time, 1);
    /* direct: three messages of a quarter each way, the first of which was measured, with its sum
     */
    near(seconds("hier", t, 4 * mb), 2 * time + 2 * 2 * mb * BETA1 + 2 * mb * GAMMA);
    ct_topo_destroy(t);
}

/* Each measured step, and its step back, found a full bucket; a collective finds one: what goes
 * beyond it is held to the bandwidth. A tree's root has one in and one out. */
static void test_burst(void **state)
{
    const double mb = 1 << 20, burst = 0.25 * mb, time = 1e-4;
    ct_topo *t = supernodes(4, 4, "block");
    ct_level *l = &t->machine.level[1];

    (void)state;
    l->bandwidth = 1 / BETA1;
    give_times(l, &mb, &time, 1);
    l->burst = burst;
    /* 1/32 MB in all: nothing is held up */
    near(seconds("rhd", t, mb / 64), 4 * time);
    /* 2 x 1/2 and 2 x 1/4 MB: two full bursts were measured, there is one */
    near(seconds("rhd", t, mb), 4 * time + burst * BETA1);
    /* three steps of 1/16 MB and back: all three, 3/8 MB, were let through */
    near(seconds("ring", t, mb / 4), 2 * 6 * time + (0.375 * mb - burst) * BETA1);
    near(seconds("tree", t, mb), 3 * 4 * time + 2 * burst * BETA1);
    ct_topo_destroy(t);
}

/* Measured figures of sums in shared memory count instead of the levels', on each side of the knee,
 * and come on top of what goes between the nodes. */
static void test_shared(void **state)
{
    const double small = 1e6, large = 1e8;
    double between = 0;
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("1x4", 4, &t), CT_OK);
    t->machine.shared = (ct_shared_memory){
        .latency_s = 1e-6, .cached_bandwidth = 50e9, .cached = 4e6, .bandwidth = 20e9
    };
    near(seconds("hier", t, small), 2e-6 + 2 * small / 50e9);
    near(seconds("hier", t, large), 2e-6 + 2 * 4e6 / 50e9 + 2 * (large - 4e6) / 20e9);
    ct_topo_destroy(t);

    assert_int_equal(ct_topo_from_string("2x4", 8, &t), CT_OK);
    t->machine.shared.bandwidth = 1e30; /* free: what is left is the way between the nodes */
    between = seconds("hier", t, large);
    t->machine.shared.bandwidth = 20e9;
    near(seconds("hier", t, large), between + 2 * large / 20e9);
    t->machine.shared.n_time = 2; /* measured ones count */
    t->machine.shared.time_bytes[0] = 1e6;
    t->machine.shared.time_s[0] = 1e-4;
    t->machine.shared.time_bytes[1] = 3e6;
    t->machine.shared.time_s[1] = 5e-4;
    near(ct_shared_memory_s(&t->machine.shared, 1e5), 1e-4);
    near(ct_shared_memory_s(&t->machine.shared, 1.5e6), 2e-4);
    near(seconds("hier", t, large), between + 5e-4 + 2 * (large - 3e6) / 20e9);
    ct_topo_destroy(t);
}

/* ---- nodes of two classes: nodes 0 to 3 as the levels say, 4 to 7 with slower links or ranks */

static const char two_classes[] =
    "node_class { name: \"fast\" nodes: \"0-3\" } node_class { name: \"slow\" nodes: \"4-7\" ";

/* per_node ranks on each of n nodes. sum_gbs 0: sums are free. classes: "" or the text above and
 * the slow ones' figures. */
static ct_topo *unlike(int n, int per_node, double gbs, double sum_gbs, const char *classes)
{
    char text[800];
    ct_machine *m = NULL;
    ct_topo *t = NULL;

    snprintf(text, sizeof(text),
             "sum_gbs: %g level { name: \"node\" size: 2 latency_us: 1 bandwidth_gbs: 16 } "
             "level { name: \"switch\" size: 4 latency_us: 2 bandwidth_gbs: %g } "
             "level { name: \"machine\" size: 2 latency_us: 3 bandwidth_gbs: %g } %s%s",
             sum_gbs, gbs, gbs, (classes[0] != '\0') ? two_classes : "", classes);
    assert_int_equal(ct_machine_parse("m", text, strlen(text), &m), CT_OK);
    assert_int_equal(ct_topo_place(m, n * per_node, per_node, "block", &t), CT_OK);
    ct_machine_destroy(m);
    return t;
}

/* The fast nodes alone cost what they did without classes, bit for bit. All of them cost what the
 * slow ones' links make of it: no more than if all had these, and of rings as much. */
static void test_slow_links(void **state)
{
    static const double size[] = { 0, 64, 4096, 1e6, 3e7 };
    static const char slow[] = "inject_gbs: 2 inside_gbs: 8 speed: 0.5 }";

    (void)state;
    for (int per_node = 1; per_node <= 2; ++per_node) {
        ct_topo *few = unlike(4, per_node, 8, 10, ""), *alone = unlike(4, per_node, 8, 10, slow);
        ct_topo *fast = unlike(8, per_node, 8, 0, ""), *all = unlike(8, per_node, 2, 0, "");
        ct_topo *mixed = unlike(8, per_node, 8, 0, "inject_gbs: 2 }");

        all->machine.level[2].uplink = fast->machine.level[2].uplink; /* the switches' */
        for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
            if ((*at)->cost == NULL) continue;
            for (size_t i = 0; i < sizeof(size) / sizeof(size[0]); ++i) {
                double s = seconds((*at)->name, mixed, size[i]);

                assert_true(seconds((*at)->name, few, size[i]) ==
                            seconds((*at)->name, alone, size[i]));
                assert_true(s >= seconds((*at)->name, fast, size[i]));
                assert_true(s <= seconds((*at)->name, all, size[i]) * (1 + 1e-12));
            }
            assert_true(seconds((*at)->name, mixed, 3e7) > 1.2 * seconds((*at)->name, fast, 3e7));
        }
        near(seconds("ring", mixed, 3e7), seconds("ring", all, 3e7));
        ct_topo_destroy(few);
        ct_topo_destroy(alone);
        ct_topo_destroy(fast);
        ct_topo_destroy(all);
        ct_topo_destroy(mixed);
    }
}

/* Ranks of half the speed take twice as long to add; the network adds as fast as the slowest sends;
 * and sums in memory go as on the slowest node. */
static void test_slow_ranks(void **state)
{
    ct_topo *mixed = unlike(8, 1, 8, 4, "speed: 0.5 }"), *all = unlike(8, 1, 8, 2, "");
    ct_topo *links = unlike(8, 1, 8, 4, "inject_gbs: 2 }");
    const double bytes = 3e7;
    double between = 0;

    (void)state;
    near(seconds("ring", mixed, bytes), seconds("ring", all, bytes));
    near(seconds("rhd", mixed, bytes), seconds("rhd", all, bytes));
    ct_topo_destroy(mixed);
    ct_topo_destroy(all);
    links->machine.in_network = (ct_in_network){ .latency_s = 5e-6, .bandwidth = 6e9 };
    near(seconds("impi", links, bytes), 5e-6 + bytes / 2e9);
    links->machine.in_network.bandwidth = 1e9;
    near(seconds("impi", links, bytes), 5e-6 + bytes / 1e9);
    ct_topo_destroy(links);

    mixed = unlike(8, 2, 8, 0, "inside_gbs: 4 }"); /* a quarter */
    mixed->machine.shared = (ct_shared_memory){ .latency_s = 1e-6, .bandwidth = 1e30 };
    between = seconds("hier", mixed, bytes);
    mixed->machine.shared.bandwidth = 20e9;
    near(seconds("hier", mixed, bytes), between + 4 * 2 * bytes / 20e9);
    ct_topo_destroy(mixed);
}

static void test_errors(void **state)
{
    static const int dim[3] = { 4, 2, 1 }, bad[3] = { 4, 3, 1 },
                     huge[3] = { 2000000000, 2000000000, 9 };
    ct_topo *t = supernodes(8, 4, "block");
    ct_cost *c = NULL;

    (void)state;
    log_capture_start(NULL);
    assert_int_equal(ct_cost_create(ct_coll_torus.cost, t, dim, false, &c), CT_OK);
    near(ct_cost_s(c, 0), 2 * (3 + 1) * ALPHA);
    ct_cost_destroy(c);
    assert_int_equal(ct_cost_create(ct_coll_torus.cost, t, bad, false, &c), CT_ERR_CONFIG);
    assert_int_equal(ct_cost_create(ct_coll_torus.cost, t, huge, false, &c), CT_ERR_CONFIG);
    assert_null(ct_coll_named("rimg"));
    log_capture_stop();
    ct_topo_destroy(t);
}

static void test_spec(void **state)
{
    static const char *const wrong[] = {
        "",
        "<4K,ring",
        "ring,",
        "ring,rhd",
        "tree<64K",
        "tree<4M,rhd<64K,hier",
        "tree<64K,rhd<64K,hier",
        "ring:2x2",
        "torus:",
        "torus:0x2",
        "torus:2x2x2x2",
        "torus:2x",
        "tree<,hier",
        "tree<0,hier",
        "tree<4X,hier",
        "tree<99999999999999999999,hier",
        "tree <4K,hier",
        "averyveryverylongname",
        "torus:99999999999x2",
        "hier;ring",
        "tree<-4,ring",
    };
    ct_coll_term term[CT_COLL_TERMS];
    int n = 0;

    (void)state;
    assert_int_equal(ct_coll_spec_read("auto", term, &n), CT_OK);
    assert_int_equal(n, 1);
    assert_string_equal(term[0].name, "auto");
    assert_true(term[0].below == INT64_MAX);
    assert_int_equal(ct_coll_spec_read("tree<64K,rhd<4m,torus:8x4<1G,hier", term, &n), CT_OK);
    assert_int_equal(n, 4);
    assert_true((term[0].below == 65536) && (term[1].below == 4 << 20) &&
                (term[2].below == 1 << 30));
    assert_true((term[2].dim[0] == 8) && (term[2].dim[1] == 4) && (term[2].dim[2] == 1));
    assert_int_equal(term[1].dim[0], 0);
    assert_int_equal(ct_coll_spec_read("torus:2x3x4", term, &n), CT_OK);
    assert_int_equal(term[0].dim[2], 4);
    log_capture_start(NULL);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); ++i)
        assert_int_equal(ct_coll_spec_read(wrong[i], term, &n), CT_ERR_CONFIG);
    assert_int_equal(
        ct_coll_spec_read("a<1,b<2,c<3,d<4,e<5,f<6,g<7,h<8,i<9,j<10,k<11,l<12,m<13,n<14,"
                          "o<15,p<16,q",
                          term, &n),
        CT_ERR_CONFIG);
    log_capture_stop();
}

/* ---- what they take of memory */

/* Of the first rank of a job that is not there: a tree adds all up there. */
static int64_t bytes_on(const char *spec, int per_node, const char *name, ct_coll_kind kind,
                        bool shared, int64_t n)
{
    ct_coll_size size = { .shared = shared };
    ct_machine *m = NULL;
    ct_topo *t = NULL;
    ct_comm *c = NULL;

    assert_int_equal(ct_machine_from_spec(spec, &m), CT_OK);
    assert_int_equal(ct_topo_place(m, 4, per_node, "block", &t), CT_OK);
    assert_int_equal(ct_comm_create_planned(t, 0, &c), CT_OK);
    assert_int_equal(ct_coll_count(ct_coll_of_kind(ct_coll_named(name), kind), c, n, CT_F32, &size),
                     CT_OK);
    ct_comm_destroy(c);
    ct_machine_destroy(m);
    return size.bytes + size.room;
}

/* Of 4 MiB on 4 ranks. Four segments of at least 64 Ki elements are under way: a ring adds a
 * quarter at a time, a tree all. */
static void test_memory(void **state)
{
    enum { N = 1 << 20, MIB = 1 << 20 };

    (void)state;
    assert_int_equal(bytes_on("1sn x 4n x 1", 1, "ring", CT_COLL_ALLREDUCE, true, N), MIB);
    assert_int_equal(bytes_on("1sn x 4n x 1", 1, "ring", CT_COLL_REDUCE_SCATTER, true, N), MIB);
    assert_int_equal(bytes_on("1sn x 4n x 1", 1, "ring", CT_COLL_ALLGATHER, true, N), 0);
    assert_int_equal(bytes_on("1sn x 4n x 1", 1, "tree", CT_COLL_ALLREDUCE, true, N), 4 * MIB);
    assert_int_equal(bytes_on("1sn x 4n x 1", 1, "impi", CT_COLL_ALLREDUCE, true, N), 4 * MIB);
    /* small ones in one segment: 4 of 1000 floats, each rounded up to cache lines */
    assert_int_equal(bytes_on("1sn x 4n x 1", 1, "tree", CT_COLL_ALLREDUCE, true, 1000), 4 * 4032);
    /* one node: in place; or chunks of 128 Ki elements a rank, and their sums, twice each */
    assert_int_equal(bytes_on("1sn x 1n x 4", 4, "hier", CT_COLL_ALLREDUCE, true, N), 0);
    assert_int_equal(bytes_on("1sn x 1n x 4", 4, "hier", CT_COLL_ALLREDUCE, false, N),
                     2 * (512 + 128) * 1024 * 4 + CT_ALIGN);
    assert_int_equal(bytes_on("1sn x 1n x 4", 4, "hier", CT_COLL_ALLGATHER, false, N), 0);
    /* two nodes of two: two chunks of 512 Ki elements are between them, half of each here */
    assert_int_equal(bytes_on("1sn x 2n x 2", 2, "hier", CT_COLL_ALLREDUCE, true, N), 2 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_flat_formulas),
        cmocka_unit_test(test_torus),
        cmocka_unit_test(test_in_network),
        cmocka_unit_test(test_pipelined),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_line),
        cmocka_unit_test(test_slow_links),
        cmocka_unit_test(test_slow_ranks),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_spec),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_times_and_loads),
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_nodes_out_of_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
