#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "topology/topo.h"

static int n_line;

static void count_line(void *ctx, const char *text)
{
    (void)ctx;
    (void)text;
    n_line += 1;
}

static void expect_map(const ct_topo *t, const int *node, const int *local, const int *size)
{
    for (int r = 0; r < t->n_rank; ++r) {
        assert_int_equal(t->node[r], node[r]);
        assert_int_equal(t->local_rank[r], local[r]);
    }
    for (int k = 0; k < t->n_node; ++k) assert_int_equal(t->node_size[k], size[k]);
}

static void test_hosts(void **state)
{
    static const uint64_t host[] = { 77, 5, 77, 5, 9, 77 };
    static const int node[] = { 0, 1, 0, 1, 2, 0 };
    static const int local[] = { 0, 0, 1, 1, 0, 2 };
    static const int size[] = { 3, 2, 1 };
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_hosts(host, 6, "mpi shared split", &t), CT_OK);
    assert_int_equal(t->n_node, 3);
    expect_map(t, node, local, size);
    assert_int_equal(ct_topo_min_node_size(t), 1);
    assert_int_equal(ct_topo_max_node_size(t), 3);
    assert_string_equal(t->source, "mpi shared split");
    ct_topo_destroy(t);
}

static void test_grid(void **state)
{
    static const int node[] = { 0, 0, 0, 1, 1, 1 };
    static const int local[] = { 0, 1, 2, 0, 1, 2 };
    static const int size[] = { 3, 3 };
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("2x3", 6, &t), CT_OK);
    assert_int_equal(t->n_node, 2);
    expect_map(t, node, local, size);
    assert_string_equal(t->source, "synthetic 2x3");
    ct_topo_destroy(t);
    assert_int_equal(ct_topo_from_string("1024x1", 1024, &t), CT_OK);
    assert_int_equal(t->n_node, 1024);
    assert_int_equal(t->node[1023], 1023);
    assert_int_equal(t->local_rank[1023], 0);
    ct_topo_destroy(t);
}

static void test_map(void **state)
{
    static const int node[] = { 0, 0, 1, 0 };
    static const int local[] = { 0, 1, 0, 2 };
    static const int size[] = { 3, 1 };
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("map:0010", 4, &t), CT_OK);
    assert_int_equal(t->n_node, 2);
    expect_map(t, node, local, size);
    ct_topo_destroy(t);
}

/* Levels of a spec, innermost first, and whom ranks meet where. */
static void test_levels(void **state)
{
    static const int order[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("2sn x 3n x 2", 12, &t), CT_OK);
    assert_int_equal(t->machine.n_level, 3);
    assert_int_equal(t->machine.node_level, 0);
    assert_string_equal(t->machine.level[0].name, "node");
    assert_string_equal(t->machine.level[1].name, "supernode");
    assert_string_equal(t->machine.level[2].name, "machine");
    assert_int_equal(t->machine.level[0].size, 2);
    assert_int_equal(t->machine.level[1].size, 3);
    assert_int_equal(t->machine.level[2].size, 2);
    assert_int_equal(t->n_vertex[0], 6);
    assert_int_equal(t->n_vertex[1], 2);
    assert_int_equal(t->n_vertex[2], 1);
    assert_int_equal(t->parent[0][3], 1);
    assert_int_equal(t->n_inside[1][1], 6);
    assert_int_equal(ct_topo_meet(t, 5, 5), -1);
    assert_int_equal(ct_topo_meet(t, 4, 5), 0);
    assert_int_equal(ct_topo_meet(t, 0, 5), 1);
    assert_int_equal(ct_topo_meet(t, 5, 6), 2);
    assert_memory_equal(t->order, order, sizeof(order));
    /* a supernode's 3 nodes inject 1.2 GB/s each; its guessed uplink carries half of that */
    assert_true(t->machine.level[1].uplink == t->machine.level[1].bandwidth);
    assert_true(t->machine.level[2].uplink == 1.5 * t->machine.level[1].bandwidth);
    ct_topo_destroy(t);

    assert_int_equal(ct_topo_from_string("1g x 2sw x 2n x 2s x 1numa x 2r", 16, &t), CT_OK);
    assert_int_equal(t->machine.n_level, 6);
    assert_int_equal(t->machine.node_level, 2);
    assert_string_equal(t->machine.level[1].name, "socket");
    assert_int_equal(t->n_node, 4);
    assert_int_equal(t->local_rank[7], 3);
    assert_int_equal(ct_topo_meet(t, 0, 2), 2);
    assert_int_equal(ct_topo_meet(t, 0, 15), 4);
    ct_topo_destroy(t);
}

/* Two switches whose nodes are not contiguous, one of them with a node alone. */
static void test_uneven(void **state)
{
    static const int vertex0[] = { 0, 1, 2, 0, 3 }, vertex1[] = { 0, 1, 1, 0, 0 };
    static const int order[] = { 0, 3, 4, 1, 2 };
    ct_topo *t = NULL;

    (void)state;
    /* node 1 under switch a is not node 1 under switch b */
    assert_int_equal(ct_topo_from_string("map:abbaa/01201", 5, &t), CT_OK);
    assert_int_equal(t->n_vertex[0], 4);
    assert_int_equal(t->n_vertex[1], 2);
    assert_memory_equal(t->vertex[0], vertex0, sizeof(vertex0));
    assert_memory_equal(t->node, vertex0, sizeof(vertex0));
    assert_memory_equal(t->vertex[1], vertex1, sizeof(vertex1));
    assert_memory_equal(t->order, order, sizeof(order));
    ct_topo_destroy(t);
}

/* Ranks of a part are as far from each other as in the whole, and keep their order and links. */
static void expect_part(const ct_topo *t, const int *rank, int n)
{
    int seen[CT_MAX_LEVEL][16] = { { 0 } };
    ct_topo *part = NULL;

    assert_int_equal(ct_topo_subset(t, rank, n, &part), CT_OK);
    assert_int_equal(part->n_rank, n);
    assert_int_equal(part->machine.n_level, t->machine.n_level);
    assert_int_equal(part->machine.node_level, t->machine.node_level);
    assert_memory_equal(part->machine.level, t->machine.level, sizeof(t->machine.level));
    for (int i = 0; i < n; ++i) {
        for (int k = 0; k < n; ++k) {
            assert_int_equal(ct_topo_meet(part, i, k), ct_topo_meet(t, rank[i], rank[k]));
            assert_int_equal(part->node[i] == part->node[k], t->node[rank[i]] == t->node[rank[k]]);
        }
        for (int l = 0; l < t->machine.n_level; ++l) seen[l][t->vertex[l][rank[i]]] = 1;
    }
    for (int l = 0; l < t->machine.n_level; ++l) { /* empty branches are gone */
        int left = 0;

        for (int v = 0; v < t->n_vertex[l]; ++v) left += seen[l][v];
        assert_int_equal(part->n_vertex[l], left);
    }
    ct_topo_destroy(part);
}

static void test_parts(void **state)
{
    static const char *const spec[] = { "2sn x 2n x 2", "4x2",
                                        "1x8",          "2sw x 2n x 2s x 1",
                                        "map:00101110", "map:xxxxxyyx/ababcbca/01012010" };

    (void)state;
    for (size_t s = 0; s < sizeof(spec) / sizeof(spec[0]); ++s) {
        ct_topo *t = NULL;

        assert_int_equal(ct_topo_from_string(spec[s], 8, &t), CT_OK);
        for (int mask = 1; mask < 256; ++mask) {
            int rank[8], back[8], n = 0;

            for (int r = 0; r < 8; ++r) {
                if ((mask >> r & 1) != 0) rank[n++] = r;
            }
            for (int i = 0; i < n; ++i) back[i] = rank[n - 1 - i];
            expect_part(t, rank, n);
            expect_part(t, back, n);
        }
        ct_topo_destroy(t);
    }
}

/* Nodes and switches keep their names, and the text says what it is a part of. */
static void test_part_names(void **state)
{
    static const int rank[] = { 5, 2 };
    ct_topo *t = NULL, *part = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("2sn x 3n x 1", 6, &t), CT_OK);
    t->vertex_name[0] = calloc(6, sizeof(char *));
    for (int v = 0; v < 6; ++v) {
        char name[8];

        snprintf(name, sizeof(name), "n%d", v);
        t->vertex_name[0][v] = (v == 1) ? NULL : strdup(name);
    }
    assert_int_equal(ct_topo_subset(t, rank, 2, &part), CT_OK);
    assert_string_equal(part->source, "2 of 6 ranks: synthetic 2sn x 3n x 1");
    assert_string_equal(part->vertex_name[0][part->node[0]], "n5");
    assert_string_equal(part->vertex_name[0][part->node[1]], "n2");
    assert_null(part->vertex_name[1]);
    ct_topo_destroy(part);
    ct_topo_destroy(t);
}

static void test_part_errors(void **state)
{
    static const int high[] = { 0, 4 }, low[] = { -1 }, twice[] = { 2, 1, 2 };
    ct_topo *t = NULL, *part = NULL;

    (void)state;
    assert_int_equal(ct_topo_from_string("2x2", 4, &t), CT_OK);
    ct_log_set_sink(count_line, NULL);
    n_line = 0;
    assert_int_equal(ct_topo_subset(t, high, 2, &part), CT_ERR_ARG);
    assert_int_equal(ct_topo_subset(t, low, 1, &part), CT_ERR_ARG);
    assert_int_equal(ct_topo_subset(t, twice, 3, &part), CT_ERR_ARG);
    assert_int_equal(ct_topo_subset(t, twice, 0, &part), CT_ERR_ARG);
    assert_int_equal(n_line, 4);
    assert_null(part);
    ct_log_set_sink(NULL, NULL);
    ct_topo_destroy(t);
}

/* Where the ranks of a job of 8 on "2sn x 2n x 2" are put. */
static void expect_places(const ct_machine *m, const char *placement, const int *supernode,
                          const int *node)
{
    ct_topo *t = NULL;

    assert_int_equal(ct_topo_place(m, 8, 2, placement, &t), CT_OK);
    assert_int_equal(t->n_node, 4);
    for (int r = 0; r < 8; ++r) {
        assert_int_equal(t->vertex[1][r], supernode[r]);
        assert_int_equal(t->node[r], node[r]);
    }
    ct_topo_destroy(t);
}

static void test_place(void **state)
{
    static const int block_sn[] = { 0, 0, 0, 0, 1, 1, 1, 1 };
    static const int block_node[] = { 0, 0, 1, 1, 2, 2, 3, 3 };
    static const int cyclic_sn[] = { 0, 1, 0, 1, 0, 1, 0, 1 };
    static const int cyclic_node[] = { 0, 1, 2, 3, 0, 1, 2, 3 };
    ct_machine *m = NULL;
    ct_topo *t = NULL, *again = NULL;

    (void)state;
    assert_int_equal(ct_machine_from_spec("2sn x 2n x 2", &m), CT_OK);
    expect_places(m, "block", block_sn, block_node);
    expect_places(m, "cyclic", cyclic_sn, cyclic_node);
    ct_machine_destroy(m);

    /* an uneven job: 3 nodes in the first supernode, 1 in the second */
    assert_int_equal(ct_machine_from_spec("4sn x 3n x 1", &m), CT_OK);
    assert_int_equal(ct_topo_place(m, 4, 1, "cyclic", &t), CT_OK);
    assert_int_equal(ct_topo_meet(t, 0, 1), 2);
    assert_int_equal(ct_topo_meet(t, 0, 2), 1);
    assert_int_equal(ct_topo_meet(t, 0, 3), 1);
    ct_topo_destroy(t);

    assert_int_equal(ct_topo_place(m, 12, 1, "random:7", &t), CT_OK);
    assert_int_equal(ct_topo_place(m, 12, 1, "random:7", &again), CT_OK);
    assert_int_equal(t->n_vertex[1], 4);
    for (int v = 0; v < 4; ++v) assert_int_equal(t->n_inside[1][v], 3);
    assert_memory_equal(t->vertex[1], again->vertex[1], 12 * sizeof(int));
    ct_topo_destroy(again);
    assert_int_equal(ct_topo_place(m, 12, 1, "random:8", &again), CT_OK);
    assert_memory_not_equal(t->vertex[1], again->vertex[1], 12 * sizeof(int));
    ct_topo_destroy(again);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
}

/* Scattered nodes are distinct, and seldom neighbours in a machine of many supernodes. */
static void test_scatter(void **state)
{
    ct_machine *m = NULL;
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_machine_from_spec("100sn x 50n x 1", &m), CT_OK);
    assert_int_equal(ct_topo_place(m, 64, 1, "scatter:1", &t), CT_OK);
    assert_int_equal(t->n_node, 64);
    /* 64 balls into 100 boxes: 47 boxes are hit in the mean, with a deviation of 2.7 */
    assert_in_range(t->n_vertex[1], 36, 58);
    ct_topo_destroy(t);
    assert_int_equal(ct_topo_place(m, 5000, 1, "scatter:1", &t), CT_OK);
    assert_int_equal(t->n_node, 5000);
    assert_int_equal(t->n_vertex[1], 100);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
}

static void test_place_errors(void **state)
{
    static const char *const bad[] = { "",          "Block",
                                       "random",    "random:",
                                       "random:x",  "random:1x",
                                       "random:-1", "scatter:99999999999999999999" };
    ct_machine *m = NULL;
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_machine_from_spec("2sn x 3n x 2", &m), CT_OK);
    ct_log_set_sink(count_line, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        n_line = 0;
        assert_int_equal(ct_topo_place(m, 4, 1, bad[i], &t), CT_ERR_CONFIG);
        assert_int_equal(n_line, 1);
    }
    n_line = 0;
    assert_int_equal(ct_topo_place(m, 7, 1, "block", &t), CT_ERR_CONFIG); /* 7 nodes of 6 */
    assert_int_equal(ct_topo_place(m, 13, 2, "block", &t), CT_ERR_CONFIG);
    assert_int_equal(ct_topo_place(m, 6, 3, "block", &t), CT_ERR_CONFIG); /* 3 ranks on 2 places */
    assert_int_equal(ct_topo_place(m, 0, 1, "block", &t), CT_ERR_ARG);
    assert_int_equal(ct_topo_place(m, 1, 0, "block", &t), CT_ERR_ARG);
    assert_int_equal(n_line, 5);
    assert_null(t);
    ct_log_set_sink(NULL, NULL);
    ct_machine_destroy(m);
}

static void test_errors(void **state)
{
    static const char *const bad[] = { "",
                                       "x",
                                       "2",
                                       "2x",
                                       "x2",
                                       "2x2x2",
                                       "2x3",
                                       "-2x-2",
                                       " 2x2",
                                       "2x2 ",
                                       "0x4",
                                       "4x0",
                                       "2X2",
                                       "8x1",
                                       "map:",
                                       "map:00",
                                       "map:000-",
                                       "map:00000",
                                       "1x99999999999999999999",
                                       "2sn x 2",
                                       "2s x 2",
                                       "2n x 2n x 1",
                                       "2 x 2n x 2 x 1",
                                       "2r x 2n x 1",
                                       "2q x 2",
                                       "2n x 2s",
                                       "1x1x1x1x1x1x1x1x4",
                                       "map:0000/",
                                       "map:0000/000",
                                       "map:00000000",
                                       "map:a/aa/0",
                                       "mesh" };

    (void)state;
    ct_log_set_sink(count_line, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        ct_topo *t = NULL;

        n_line = 0;
        assert_int_equal(ct_topo_from_string(bad[i], 4, &t), CT_ERR_CONFIG);
        assert_null(t);
        assert_int_equal(n_line, 1);
    }
    assert_int_equal(ct_topo_from_string("1x1", 0, &(ct_topo *){ NULL }), CT_ERR_ARG);
    ct_log_set_sink(NULL, NULL);
    ct_topo_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),      cmocka_unit_test(test_grid),
        cmocka_unit_test(test_map),        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_uneven),     cmocka_unit_test(test_place),
        cmocka_unit_test(test_scatter),    cmocka_unit_test(test_place_errors),
        cmocka_unit_test(test_errors),     cmocka_unit_test(test_parts),
        cmocka_unit_test(test_part_names), cmocka_unit_test(test_part_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
