/* Costs of sparse exchanges against what their steps add up to on machines that are simple. */
#include "tests/test.h"

#include <math.h>
#include <string.h>

#include "comm/sparse/sparse_allreduce_impl.h"
#include "comm/sparse/sparse_cost.h"

static const double ALPHA = 3e-6, BETA = 1e-9, NODE_ALPHA = 2e-7, NODE_BETA = 2e-11;
enum { N = 120000, K = 1200 };

typedef struct rig {
    ct_machine *machine;
    ct_topo *topo;
    ct_sparse_allreduce_model *model;
    const ct_codec_speed *speed;
} rig;

/* So many nodes: one link each to all others. Ranks of a node have a link for each pair. */
static void rig_make(rig *r, int nodes, int per_node, double beta)
{
    char text[512];

    *r = (rig){ .machine = NULL };
    snprintf(text, sizeof(text),
             "level { name: \"node\" size: %d latency_us: %g bandwidth_gbs: %g } "
             "level { name: \"machine\" size: %d latency_us: %g bandwidth_gbs: %g }",
             per_node, NODE_ALPHA * 1e6, 1e-9 / NODE_BETA, nodes, ALPHA * 1e6, 1e-9 / beta);
    assert_int_equal(ct_machine_parse("m", text, strlen(text), &r->machine), CT_OK);
    assert_int_equal(ct_topo_place(r->machine, nodes * per_node, per_node, "block", &r->topo),
                     CT_OK);
    for (int l = 0; l < r->topo->machine.n_level; ++l) r->topo->machine.level[l].bus = 0;
    r->topo->machine.level[0].uplink = 0;
    r->topo->machine.level[1].uplink = 1 / beta;
    r->topo->machine.sum_bandwidth = 1e10; /* what coding takes is estimated from it */
    assert_int_equal(ct_sparse_allreduce_model_create(r->topo, &r->model), CT_OK);
    r->speed = ct_sparse_allreduce_model_coding(r->model);
    assert_true((r->speed->memory > 0) && (r->speed->add_s > 0) && (r->speed->merge_s > 0));
}

static void rig_release(rig *r)
{
    ct_sparse_allreduce_model_destroy(r->model);
    ct_topo_destroy(r->topo);
    ct_machine_destroy(r->machine);
}

static void near(double is, double should)
{
    if (fabs(is - should) > 1e-9 * should) print_error("%.12g, not %.12g\n", is, should);
    assert_true(fabs(is - should) <= 1e-9 * should);
}

static double message_s(double bytes)
{
    return ALPHA + BETA * bytes;
}

static double bytes_of(ct_payload_form form, int64_t n, int64_t k)
{
    return (double)ct_payload_bytes(form, n, k);
}

/* Lists that the busiest rank sends in gtopk's round among the parts of p that are halved for the
 * depth-th time: where one half has a rank more, somebody of the other one serves two. */
static int lists_of(int p, int depth)
{
    int low, high;

    if (p == 1) return 0;
    if (depth == 0) return 1 + p % 2;
    low = lists_of((p + 1) / 2, depth - 1);
    high = lists_of(p / 2, depth - 1);
    return (low > high) ? low : high;
}

static double rounds_s(int p, double beta, double first, double later)
{
    int rounds = (int)ceil(log2(p));
    double s = 0;

    for (int i = 0; i < rounds; ++i)
        s += ALPHA + beta * ((i == 0) ? first : later) * lists_of(p, rounds - 1 - i);
    return s;
}

static ct_sparse_allreduce_seconds seconds(const rig *r, ct_sparse_allreduce_kind kind,
                                           ct_payload_form form)
{
    ct_sparse_allreduce_seconds s = { .wire_s = -1, .work_s = -1 };

    ct_sparse_allreduce_model_s(r->model, kind, N, K, form, &s);
    return s;
}

static double clear_s(const rig *r, double n)
{
    return 8 * n / r->speed->memory;
}

/* A rank a node. Means travel as pairs once lists are merged. */
static void test_flat(void **state)
{
    static const int ranks[] = { 1, 2, 3, 4, 7, 8, 33, 64 };

    (void)state;
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); ++i) {
        int p = ranks[i], rounds = (int)ceil(log2(p));
        int64_t region = N / p, share = (K + p - 1) / p;
        rig r;

        rig_make(&r, p, 1, BETA);
        for (int f = CT_PAYLOAD_PAIRS; f <= CT_PAYLOAD_MEAN; ++f) {
            ct_payload_form form = (ct_payload_form)f;
            ct_payload_form merged = (form == CT_PAYLOAD_MEAN) ? CT_PAYLOAD_PAIRS : form;
            ct_sparse_allreduce_seconds s = seconds(&r, CT_SPARSE_ALLREDUCE_ALLGATHER, form);

            near(s.wire_s, (p - 1) * message_s(bytes_of(form, N, K)));
            near(s.work_s, clear_s(&r, N) + r.speed->add_s * K * p);
            s = seconds(&r, CT_SPARSE_ALLREDUCE_GTOPK, form);
            near(s.wire_s, rounds_s(p, BETA, bytes_of(form, N, K), bytes_of(merged, N, K)));
            near(s.work_s, clear_s(&r, N) + rounds * 2 * K * r.speed->merge_s);
            s = seconds(&r, CT_SPARSE_ALLREDUCE_OKTOPK, form); /* eight messages under way */
            near(s.wire_s, (p - 1) * (ALPHA / 8 + BETA * bytes_of(form, region, share)) +
                               (p - 1) * message_s(bytes_of(merged, region, share) + 64));
            near(s.work_s, clear_s(&r, N) + (r.speed->merge_s + r.speed->add_s) * K);
        }
        near(seconds(&r, CT_SPARSE_ALLREDUCE_DENSE, CT_PAYLOAD_PAIRS).work_s,
             clear_s(&r, N) + 4.0 * N / r.speed->memory + r.speed->add_s * K);
        near(ct_sparse_allreduce_model_ring_s(r.model, 1e6), (p - 1) * message_s(1e6));
        near(ct_sparse_allreduce_model_split_s(r.model, 1e6), (p - 1) * (ALPHA / 8 + BETA * 1e6));
        rig_release(&r);
    }
}

/* More than all are not selected. */
static void test_all_selected(void **state)
{
    ct_sparse_allreduce_seconds all, more;
    rig r;

    (void)state;
    rig_make(&r, 4, 1, BETA);
    ct_sparse_allreduce_model_s(r.model, CT_SPARSE_ALLREDUCE_ALLGATHER, N, N, CT_PAYLOAD_PAIRS,
                                &all);
    ct_sparse_allreduce_model_s(r.model, CT_SPARSE_ALLREDUCE_ALLGATHER, N, 2 * N, CT_PAYLOAD_PAIRS,
                                &more);
    assert_true((all.wire_s == more.wire_s) && (all.work_s == more.work_s));
    rig_release(&r);
}

static void give_times(ct_level *l)
{
    static const double bytes[] = { 1e3, 1e5, 1e7 }, time[] = { 1e-4, 7e-4, 3e-2 };

    l->n_time = 3;
    memcpy(l->time_bytes, bytes, sizeof(bytes));
    for (int p = 0; p < CT_PATTERN_N; ++p) memcpy(l->time_s[p], time, sizeof(time));
}

/* What was measured of messages counts. */
static void test_times(void **state)
{
    rig r;

    (void)state;
    rig_make(&r, 5, 1, BETA);
    give_times(&r.topo->machine.level[1]);
    near(ct_sparse_allreduce_model_ring_s(r.model, 1e5), 4 * 7e-4);
    near(ct_sparse_allreduce_model_ring_s(r.model, 505e4), 4 * (7e-4 + (3e-2 - 7e-4) / 2));
    near(ct_sparse_allreduce_model_ring_s(r.model, 1e8), 4 * (3e-2 + 9e7 * BETA));
    near(ct_sparse_allreduce_model_split_s(r.model, 1e5), 4 * (7e-4 - ALPHA + ALPHA / 8));
    rig_release(&r);
}

/* Two lanes share a node's link. Within the node slices are summed in f32, and results go round. */
static void test_nodes(void **state)
{
    enum { NODES = 6, LANES = 2 };
    const ct_payload_form form = CT_PAYLOAD_PAIRS;
    const int64_t slice = N / LANES, share = K / LANES;
    const int64_t filled =
        llround((double)slice * (1 - pow(1 - (double)share / (double)slice, NODES)));
    const double list = bytes_of(form, slice, share), whole = bytes_of(form, slice, filled);
    ct_sparse_allreduce_seconds s;
    rig r;

    (void)state;
    rig_make(&r, NODES, LANES, BETA);
    ct_sparse_allreduce_model_hier_s(r.model, CT_SPARSE_ALLREDUCE_ALLGATHER, N, K, form, &s);
    near(s.wire_s, (NODES - 1) * (ALPHA + LANES * BETA * list) + NODE_ALPHA +
                       NODE_BETA * 4 * (double)slice + NODE_ALPHA + NODE_BETA * whole);
    near(s.work_s, clear_s(&r, N) + r.speed->add_s * (double)(share * NODES + filled * LANES) +
                       12 * (double)slice / r.speed->memory);
    ct_sparse_allreduce_model_hier_s(r.model, CT_SPARSE_ALLREDUCE_GTOPK, N, K, form, &s);
    near(s.wire_s, rounds_s(NODES, LANES * BETA, list, list) + NODE_ALPHA +
                       NODE_BETA * 4 * (double)slice + NODE_ALPHA + NODE_BETA * list);
    near((double)ct_sparse_allreduce_model_hier_bytes(r.model, CT_SPARSE_ALLREDUCE_ALLGATHER, N, K,
                                                      form),
         (NODES - 1) * list +
             (LANES - 1) * (4 * (double)slice + bytes_of(form, slice, NODES * share)));
    near((double)ct_sparse_allreduce_model_hier_bytes(r.model, CT_SPARSE_ALLREDUCE_ALLGATHER, N,
                                                      N / 3, form),
         (NODES - 1) * bytes_of(form, slice, N / 6) +
             (LANES - 1) * (4 * (double)slice + bytes_of(form, slice, slice)));
    ct_sparse_allreduce_model_two_hops_s(r.model, N, 1e6, &s);
    near(s.wire_s, 2 * (NODES - 1) * (ALPHA / 8 + LANES * BETA * 1e6 / LANES / NODES) +
                       2 * (NODE_ALPHA + NODE_BETA * 4 * (double)slice));
    rig_release(&r);
}

/* Of the exchanges between nodes hier takes what costs least; a lane has half of a node's link. */
static void test_inner(void **state)
{
    enum { LANES = 2 };
    bool taken[CT_SPARSE_ALLREDUCE_HIER] = { false };

    (void)state;
    for (int nodes = 2; nodes <= 64; nodes *= 2) {
        ct_sparse_allreduce_seconds s, of_inner;
        ct_sparse_allreduce_kind inner;
        double least = INFINITY, of[CT_SPARSE_ALLREDUCE_HIER];
        rig r, lane;

        rig_make(&r, nodes, LANES, BETA);
        rig_make(&lane, nodes, 1, LANES * BETA);
        for (int k = CT_SPARSE_ALLREDUCE_ALLGATHER; k < CT_SPARSE_ALLREDUCE_HIER; ++k) {
            ct_sparse_allreduce_model_s(lane.model, (ct_sparse_allreduce_kind)k, N / LANES,
                                        K / LANES, CT_PAYLOAD_PAIRS, &s);
            of[k] = s.wire_s + s.work_s;
            least = fmin(least, of[k]);
        }
        inner = ct_sparse_allreduce_model_inner(r.model, N, K, CT_PAYLOAD_PAIRS);
        near(of[inner], least);
        taken[inner] = true;
        s = seconds(&r, CT_SPARSE_ALLREDUCE_HIER, CT_PAYLOAD_PAIRS);
        ct_sparse_allreduce_model_hier_s(r.model, inner, N, K, CT_PAYLOAD_PAIRS, &of_inner);
        assert_true((s.wire_s == of_inner.wire_s) && (s.work_s == of_inner.work_s));
        rig_release(&lane);
        rig_release(&r);
    }
    assert_true(taken[CT_SPARSE_ALLREDUCE_ALLGATHER] + taken[CT_SPARSE_ALLREDUCE_GTOPK] +
                    taken[CT_SPARSE_ALLREDUCE_OKTOPK] >
                1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat),  cmocka_unit_test(test_all_selected),
        cmocka_unit_test(test_times), cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_inner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
