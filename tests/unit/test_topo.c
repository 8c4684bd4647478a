#include "tests/test.h"

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
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
