/* The drawing of a topology: what is said, and that it stays short. */
#include "tests/test.h"

#include <string.h>

#include "topology/topo.h"

static int n_line(const char *text)
{
    int n = 0;

    for (; *text != '\0'; ++text) n += (*text == '\n');
    return n;
}

static void expect_tree(const char *spec, int n_rank, const char *tree)
{
    ct_topo *t = NULL;
    ct_text text = { 0 };

    assert_int_equal(ct_topo_from_string(spec, n_rank, &t), CT_OK);
    assert_int_equal(ct_topo_draw(t, &text), CT_OK);
    assert_string_equal(text.text, tree);
    ct_text_destroy(&text);
    ct_topo_destroy(t);
}

static void test_tree(void **state)
{
    (void)state;
    expect_tree("1x1", 1, "machine: 1 rank on 1 node\n  node 0: rank 0\n");
    expect_tree("2x3", 6, "machine: 6 ranks on 2 nodes\n  2 nodes 0-1, 3 each: ranks 0-5\n");
    expect_tree("map:0010", 4,
                "machine: 4 ranks on 2 nodes\n"
                "  node 0: ranks 0-1,3\n"
                "  node 1: rank 2\n");
    expect_tree("2sw x 2n x 2s x 2", 16,
                "machine: 16 ranks on 4 nodes, 2 switches\n"
                "  switch 0: ranks 0-7\n"
                "    2 nodes 0-1, 4 each: ranks 0-7\n"
                "      in each: 2 sockets of 2 ranks\n"
                "  switch 1: ranks 8-15\n"
                "    2 nodes 2-3, 4 each: ranks 8-15\n"
                "      in each: 2 sockets of 2 ranks\n");
    /* uneven: two nodes of 2 ranks and one of 1 below a, one below b */
    expect_tree("map:aaaaab/001123", 6,
                "machine: 6 ranks on 4 nodes, 2 switches\n"
                "  switch 0: ranks 0-4\n"
                "    2 nodes 0-1, 2 each: ranks 0-3\n"
                "    node 2: rank 4\n"
                "  switch 1: rank 5\n"
                "    node 3: rank 5\n");
}

static void test_numbers(void **state)
{
    static const struct {
        int number[20], n;
        const char *text;
    } cases[] = {
        { { 5 }, 1, "5" },
        { { 0, 1, 2, 3 }, 4, "0-3" },
        { { 0, 4, 8, 12 }, 4, "0-12:4" },
        { { 1, 5 }, 2, "1,5" },
        { { 0, 1, 5, 6, 7 }, 5, "0-1,5-7" },
        { { 0, 3, 4, 9, 11, 20, 24, 31, 33, 47, 90, 99 }, 12, "0,3-4,9,11,20,24,31,33,..." },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); ++i) {
        ct_text text = { 0 };

        ct_draw_numbers(cases[i].number, cases[i].n, &text);
        assert_string_equal(text.text, cases[i].text);
        ct_text_destroy(&text);
    }
}

/* Thousands of nodes take a screen at most, whatever the placement. */
static void test_large(void **state)
{
    static const char *const placement[] = { "block", "cyclic", "random:1" };
    ct_machine *m = NULL;
    ct_text text = { 0 };

    (void)state;
    assert_int_equal(ct_machine_read("taihulight", &m), CT_OK);
    assert_int_equal(ct_machine_draw(m, &text), CT_OK);
    assert_string_equal(text.text, "machine: 40960 nodes, 160 supernodes\n"
                                   "  160 supernodes 0-159\n"
                                   "    in each: 256 nodes\n");
    ct_text_destroy(&text);
    for (int i = 0; i < 3; ++i) {
        ct_topo *t = NULL;

        text = (ct_text){ 0 };
        assert_int_equal(ct_topo_place(m, 2048, 2, placement[i], &t), CT_OK);
        assert_int_equal(ct_topo_draw(t, &text), CT_OK);
        assert_in_range(n_line(text.text), 5, 40);
        assert_non_null(strstr(text.text, "machine: 2048 ranks on 1024 nodes, 4 supernodes\n"));
        if (i == 1) assert_non_null(strstr(text.text, "supernode 1: ranks 1-2045:4\n"));
        ct_text_destroy(&text);
        ct_topo_destroy(t);
    }
    ct_machine_destroy(m);
}

static void test_names(void **state)
{
    static const char file[] =
        "level { name: \"node\" latency_us: 1 bandwidth_gbs: 6 }\n"
        "level { name: \"switch\" latency_us: 2 bandwidth_gbs: 12 }\n"
        "level { name: \"machine\" latency_us: 3 bandwidth_gbs: 12 oversubscription: 2 }\n"
        "switch { name: \"leaf1\" nodes: \"n[1-3]\" } switch { name: \"leaf2\" nodes: \"n7\" }";
    ct_machine *m = NULL;
    ct_text text = { 0 };

    (void)state;
    assert_int_equal(ct_machine_parse("m", file, strlen(file), &m), CT_OK);
    ct_machine_draw_levels(m, &text);
    assert_non_null(strstr(text.text, "machine      2 switches             3.00 us         12 GB/s"
                                      "         18 GB/s  2:1\n"));
    assert_int_equal(ct_machine_draw(m, &text), CT_OK);
    assert_non_null(strstr(text.text, "  switch leaf1\n    3 nodes n[1-3]\n"
                                      "  switch leaf2\n    node n7\n"));
    ct_text_destroy(&text);
    ct_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
