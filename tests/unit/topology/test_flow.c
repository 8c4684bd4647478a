/* Loads on links against sums done by hand. */
#include "tests/test.h"

#include "topology/topo.h"

enum { NODE, SWITCH, TOP };

/* 2 switches of 2 nodes of 2 ranks; ranks 0 1 | 2 3 || 4 5 | 6 7. Powers of two: sums are exact. */
static ct_topo *small(void)
{
    ct_topo *t = NULL;

    assert_int_equal(ct_topo_from_string("2sw x 2n x 2", 8, &t), CT_OK);
    assert_int_equal(t->machine.n_level, 3);
    t->machine.level[NODE].latency_s = 1;
    t->machine.level[SWITCH].latency_s = 2;
    t->machine.level[TOP].latency_s = 4;
    for (int l = 0; l < 3; ++l) {
        t->machine.level[l].bandwidth = 64;
        t->machine.level[l].uplink = 64;
        t->machine.level[l].bus = 0;
        t->machine.level[l].pairwise = false;
    }
    return t;
}

static void expect(ct_flow *f, double alpha, double beta)
{
    double a = -1, b = -1;

    ct_flow_time(f, &a, &b);
    assert_true(a == alpha);
    assert_true(b == beta);
    ct_flow_clear(f);
    ct_flow_time(f, &a, &b);
    assert_true((a == 0) && (b == 0));
}

static void add(ct_flow *f, int from, int to, double bytes)
{
    assert_int_equal(ct_flow_add(f, from, to, bytes), CT_OK);
}

static void test_pair_and_uplinks(void **state)
{
    ct_topo *t = small();
    ct_flow *f = NULL;

    (void)state;
    assert_int_equal(ct_flow_create(t, &f), CT_OK);
    expect(f, 0, 0);
    add(f, 3, 3, 1e9); /* nobody */
    expect(f, 0, 0);
    add(f, 0, 1, 128); /* alone: its pair's bandwidth */
    expect(f, 1, 2);
    add(f, 0, 1, 128); /* both directions of a link do not meet */
    add(f, 1, 0, 128);
    expect(f, 1, 2);
    add(f, 0, 1, 64); /* rank 0's uplink carries both, to a sibling and beyond */
    add(f, 0, 4, 64);
    expect(f, 4, 2);
    add(f, 4, 0, 64); /* rank 0's, in the other direction */
    add(f, 1, 0, 64);
    expect(f, 4, 2);
    t->machine.level[SWITCH].uplink = 32; /* of a node: two ranks share it */
    add(f, 0, 2, 64);
    add(f, 1, 3, 64);
    expect(f, 2, 4);
    add(f, 0, 2, 64); /* what stays on the node does not use it */
    add(f, 1, 0, 64);
    expect(f, 2, 2);
    t->machine.level[TOP].uplink = 16; /* of a switch: four ranks share it */
    for (int r = 0; r < 4; ++r) add(f, r, r + 4, 16);
    expect(f, 4, 4);
    for (int r = 0; r < 4; ++r) add(f, r + 4, r, 16); /* the receiving side counts as well */
    add(f, 4, 0, 16);
    expect(f, 4, 5);
    t->machine.level[TOP].bandwidth = 4; /* less than the uplinks: of one message */
    add(f, 0, 4, 16);
    expect(f, 4, 4);
    add(f, 2, 0, 16);
    add(f, 6, 4, 16);
    assert_true(ct_flow_met(f, SWITCH) == 32);
    assert_true(ct_flow_met(f, TOP) == 0);
    ct_flow_destroy(f);
    ct_topo_destroy(t);
}

static void test_bus_and_pairwise(void **state)
{
    ct_topo *t = small();
    ct_flow *f = NULL;

    (void)state;
    t->machine.level[NODE].bus = 32;
    t->machine.level[SWITCH].pairwise = true;
    t->machine.level[SWITCH].size = 5; /* of which 2 are in use: a pair has 64 / 4 */
    assert_int_equal(ct_flow_create(t, &f), CT_OK);
    add(f, 0, 1, 32); /* both directions share a node's memory, other nodes have their own */
    add(f, 1, 0, 32);
    add(f, 2, 3, 32);
    expect(f, 1, 2);
    add(f, 0, 2, 32); /* nodes 0 to 1 */
    expect(f, 2, 2);
    add(f, 0, 2, 32); /* two messages of the same pair of nodes */
    add(f, 1, 3, 32);
    add(f, 2, 0, 32); /* the other direction */
    expect(f, 2, 4);
    add(f, 0, 4, 32); /* meets above: not in the pair's link */
    expect(f, 4, 0.5);
    ct_flow_destroy(f);
    ct_topo_destroy(t);
}

/* More pairs than the table starts with. */
static void test_many_pairs(void **state)
{
    enum { N = 64 };
    ct_topo *t = NULL;
    ct_flow *f = NULL;
    double a = 0, b = 0;

    (void)state;
    assert_int_equal(ct_topo_from_string("64x1", N, &t), CT_OK);
    t->machine.level[1].pairwise = true;
    t->machine.level[1].uplink = N - 1;
    t->machine.level[1].bandwidth = 0; /* no limit */
    t->machine.level[0].uplink = 0;
    assert_int_equal(ct_flow_create(t, &f), CT_OK);
    for (int i = 0; i < N; ++i) {
        for (int j = 0; j < N; ++j) {
            if ((i != 5) || (j != 9)) add(f, i, j, 1);
        }
    }
    ct_flow_time(f, &a, &b);
    assert_true(b == 1); /* each pair 1 at 1 a second; each uplink 63 at 63 */
    add(f, 5, 9, 3);
    ct_flow_time(f, &a, &b);
    assert_true(b == 3);
    ct_flow_destroy(f);
    ct_topo_destroy(t);
}

/* 4 x 3 nodes, the last dimension fastest: node 3 x + y. Links of 8, hops of 0.5. */
static void test_torus(void **state)
{
    ct_topo *t = NULL;
    ct_flow *f = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("torus:4x3", 12, &t), CT_OK);
    t->machine.level[1].latency_s = 2;
    t->machine.level[1].hop_s = 0.5;
    t->machine.level[1].bandwidth = 8;
    t->machine.level[0].uplink = t->machine.level[1].uplink = 0; /* no limit */
    assert_int_equal(ct_flow_create(t, &f), CT_OK);
    add(f, 0, 1, 16); /* neighbours */
    expect(f, 2, 2);
    add(f, 0, 2, 16); /* round the shorter side of 3: down */
    expect(f, 2, 2);
    add(f, 0, 1, 16); /* other links of the same node, and one link's other direction */
    add(f, 0, 2, 16);
    add(f, 0, 3, 16);
    add(f, 0, 9, 16);
    add(f, 1, 0, 16);
    expect(f, 2, 2);
    add(f, 0, 6, 16); /* half way round 4: half of it goes each way */
    expect(f, 2.5, 1);
    add(f, 0, 4, 16); /* first along x, to node 3; both pass there */
    add(f, 3, 4, 16);
    expect(f, 2.5, 4);
    add(f, 0, 7, 16); /* two up or down, and one across */
    expect(f, 3, 2);
    ct_flow_destroy(f);
    ct_topo_destroy(t);
}

/* The longest of all shortest ways. */
static void test_diameter(void **state)
{
    static const ct_torus torus[] = { { .n_dim = 1, .dim = { 7 } },
                                      { .n_dim = 2, .dim = { 4, 3 } },
                                      { .n_dim = 2, .dim = { 2, 9 } },
                                      { .n_dim = 3, .dim = { 5, 2, 6 } } };

    (void)state;
    for (size_t i = 0; i < sizeof(torus) / sizeof(torus[0]); ++i) {
        const ct_torus *t = &torus[i];
        int64_t link[32], n = 1;
        int longest = 0;

        for (int d = 0; d < t->n_dim; ++d) n *= t->dim[d];
        for (int64_t to = 0; to < n; ++to) {
            int way = ct_torus_way(t, 0, to, 0, link);

            if (way > longest) longest = way;
        }
        assert_int_equal(ct_torus_diameter(t), longest);
    }
}

/* Parts of a job stay where they stand. */
static void test_part_of_torus(void **state)
{
    static const int rank[] = { 5, 0, 9 };
    ct_topo *t = NULL, *part = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("torus:4x3", 12, &t), CT_OK);
    assert_non_null(ct_topo_torus(t));
    assert_int_equal(ct_topo_subset(t, rank, 3, &part), CT_OK);
    for (int i = 0; i < 3; ++i) assert_int_equal(part->torus_place[part->node[i]], rank[i]);
    assert_null(ct_topo_torus(part));
    ct_topo_destroy(part);
    ct_topo_destroy(t);
    assert_int_equal(ct_topo_from_string("4x3", 12, &t), CT_OK);
    assert_null(ct_topo_torus(t));
    ct_topo_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pair_and_uplinks), cmocka_unit_test(test_bus_and_pairwise),
        cmocka_unit_test(test_many_pairs),       cmocka_unit_test(test_torus),
        cmocka_unit_test(test_part_of_torus),    cmocka_unit_test(test_diameter),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
