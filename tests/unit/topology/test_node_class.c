/* Unlike nodes: read, refused with line and name, written back, placed, drawn, and their links. */
#include "tests/test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/log_capture.h"
#include "topology/discover.h"
#include "topology/topo.h"

static log_capture said;

#define NODE "level { name: \"node\" size: 2 latency_us: 1 bandwidth_gbs: 8 bus_gbs: 16 }\n"
#define TOP  "level { name: \"machine\" size: 6 latency_us: 2 bandwidth_gbs: 4 }\n"
#define FAST "node_class { name: \"fast\" nodes: \"0-1,3\" nodes: \"2\" memory_gib: 64 }\n"
#define SLOW                                                                                       \
    "node_class { name: \"slow\" nodes: \" 4, 5\" speed: 0.5 memory_gib: 16 inside_gbs: 2 "        \
    "inject_gbs: 1 }\n"
#define NAMES                                                                                      \
    "level { name: \"node\" size: 2 latency_us: 1 bandwidth_gbs: 8 }\n"                            \
    "level { name: \"machine\" latency_us: 2 bandwidth_gbs: 4 }\nnodes: \"n[1-3],login\"\n"

static ct_status parse(const char *text, ct_machine **m)
{
    return ct_machine_parse("x.prototxt", text, strlen(text), m);
}

static ct_machine *good(const char *text)
{
    ct_machine *m = NULL;

    assert_int_equal(parse(text, &m), CT_OK);
    return m;
}

static ct_topo *placed(const char *text, int n_rank, int per_node, const char *placement)
{
    ct_machine *m = good(text);
    ct_topo *t = NULL;

    assert_int_equal(ct_topo_place(m, n_rank, per_node, placement, &t), CT_OK);
    ct_machine_destroy(m);
    return t;
}

static void test_read(void **state)
{
    ct_machine *m = good("name: \"m\"\n" NODE TOP FAST SLOW);

    (void)state;
    assert_int_equal(m->n_node_class, 2);
    assert_string_equal(m->node_class[0].name, "fast");
    assert_true(m->node_class[0].speed == 1);
    assert_true(m->node_class[0].memory == 64.0 * 1073741824);
    assert_true((m->node_class[0].inside == 0) && (m->node_class[0].inject == 0));
    assert_true(m->node_class[1].speed == 0.5);
    assert_true((m->node_class[1].inside == 2e9) && (m->node_class[1].inject == 1e9));
    for (int k = 0; k < 6; ++k) assert_int_equal(ct_machine_node_class(m, k), k >= 4);
    assert_int_equal(m->n_node_run, 2);
    ct_machine_destroy(m);
    m = good(NODE TOP);
    assert_int_equal(ct_machine_node_class(m, 3), -1);
    ct_machine_destroy(m);
    /* by name, in any order */
    m = good(NAMES "node_class { name: \"a\" nodes: \"login\" nodes: \"n2\" }\n"
                   "node_class { name: \"b\" nodes: \"n[1,3]\" }");
    assert_int_equal(ct_machine_node_class(m, 0), 1);
    assert_int_equal(ct_machine_node_class(m, 1), 0);
    assert_int_equal(ct_machine_node_class(m, 2), 1);
    assert_int_equal(ct_machine_node_class(m, 3), 0);
    ct_machine_destroy(m);
}

static const struct {
    const char *text, *message;
} broken[] = {
    { NODE TOP "node_class { nodes: \"0-5\" }", "x.prototxt:3: a node_class has no name" },
    { NODE TOP "node_class { name: \"a name of more than 23 bytes\" nodes: \"0-5\" }",
      "longer than 23" },
    { NODE TOP "node_class { name: \"a\\nb\" nodes: \"0-5\" }",
      "has quotes, backslashes or line ends" },
    { NODE TOP "node_class { name: \"a\" } node_class { name: \"b\" nodes: \"0-3\" }",
      "x.prototxt:3: node_class \"a\" has no nodes" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" sped: 2 }",
      "x.prototxt:3:37: unknown field \"sped\"; did you mean \"speed\"?" },
    { NODE TOP "node_clas { name: \"a\" nodes: \"0-5\" }", "did you mean \"node_class\"?" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" speed: 0 }",
      "x.prototxt:3: node_class \"a\": speed is 0; it must be above 0" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" speed: nan }", "speed is nan" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" memory_gib: -1 }", "memory_gib is -1" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" inside_gbs: 0 }", "inside_gbs is 0" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" gpus: -1 }", "gpus is -1" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" gpus: 2 }", "gpus needs gpu_memory_gib" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" file_read_gbs: 0 }", "file_read_gbs is 0" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" gpu_usable: 1.5 }",
      "gpu_usable is 1.5; it must be above 0, and at most 1" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5\" inject_gbs: inf }", "inject_gbs is inf" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-2\" }\n"
               "node_class { name: \"a\" nodes: \"3-5\" }",
      "x.prototxt:4: two classes of nodes are named \"a\"" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-2,5\" }\n"
               "node_class { name: \"b\" nodes: \"2-4\" }",
      "x.prototxt:4: node_class \"a\" and \"b\" both have node 2" },
    { NODE TOP "node_class { name: \"a\" nodes: \"2-4\" }\n"
               "node_class { name: \"b\" nodes: \"0-3,5\" }",
      "x.prototxt:4: node_class \"a\" and \"b\" both have node 2 and 1 more" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5,3\" }",
      "x.prototxt:3: node_class \"a\" has node 3 twice" },
    { NODE TOP FAST, "x.prototxt:3: no node_class has node 4 and 1 more; every node is of one" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0,2-5\" }", "no node_class has node 1;" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-6\" }",
      "node_class \"a\": there is no node 6: the machine has 6, from 0" },
    { NODE TOP "node_class { name: \"a\" nodes: \"5-0\" }", "5-0 runs backwards" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-5,\" }", "expected numbers such as" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0 5\" }", "expected numbers such as" },
    { NODE TOP "node_class { name: \"a\" nodes: \"-5\" }", "expected numbers such as" },
    { NODE TOP "node_class { name: \"a\" nodes: \"\" }", "expected numbers such as" },
    { NODE TOP "node_class { name: \"a\" nodes: \"n[0-5]\" }", "expected numbers such as" },
    { NODE TOP "node_class { name: \"a\" nodes: \"0-99999999999999999999\" }",
      "expected numbers such as" },
    { NODE "level { name: \"machine\" latency_us: 2 bandwidth_gbs: 4 }\n"
           "node_class { name: \"a\" nodes: \"0-5\" }",
      "x.prototxt:3: node_class needs the number of nodes" },
    { NAMES "node_class { name: \"a\" nodes: \"n[1-3],logn\" }",
      "node_class \"a\": the file names no node \"logn\"; did you mean \"login\"?" },
    { NAMES "node_class { name: \"a\" nodes: \"n[1-3],compute\" }",
      "the file names no node \"compute\"" },
    { NAMES "node_class { name: \"a\" nodes: \"n[1-\" }", "x.prototxt:4: node list" },
    { NAMES "node_class { name: \"a\" nodes: \"n[1-3]\" }", "no node_class has node login;" },
    { NAMES "node_class { name: \"a\" nodes: \"n[1-3],login\" }\n"
            "node_class { name: \"b\" nodes: \"n3\" }",
      "x.prototxt:5: node_class \"a\" and \"b\" both have node n3" },
};

static void test_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); ++i) {
        ct_machine *m = NULL;
        ct_status status;

        log_capture_start(&said);
        status = parse(broken[i].text, &m);
        log_capture_stop();
        if ((status != CT_ERR_CONFIG) || (strstr(said.error, broken[i].message) == NULL))
            fail_msg("%s: status %d, said \"%s\", not \"%s\"", broken[i].text, status, said.error,
                     broken[i].message);
        assert_int_equal(said.n_error, 1);
        assert_null(m);
    }
}

static void test_too_many(void **state)
{
    ct_text text = { 0 };
    ct_machine *m = NULL;

    (void)state;
    ct_text_add(&text, NODE TOP);
    for (int i = 0; i <= CT_MAX_NODE_CLASS; ++i)
        ct_text_add(&text, "node_class { name: \"c%d\" nodes: \"%d\" }\n", i, i);
    log_capture_start(&said);
    assert_int_equal(parse(text.text, &m), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "x.prototxt:19: more than 16 classes of nodes"));
    ct_text_destroy(&text);
}

static void expect_written(const char *text, const char *line)
{
    ct_machine *m = good(text), *again = NULL;
    ct_text first = { 0 }, second = { 0 };

    assert_int_equal(ct_machine_write(m, &first), CT_OK);
    assert_non_null(strstr(first.text, line));
    again = good(first.text);
    assert_int_equal(again->n_node_class, m->n_node_class);
    for (int i = 0; i < m->n_node_class; ++i) {
        assert_string_equal(m->node_class[i].name, again->node_class[i].name);
        assert_true(m->node_class[i].speed == again->node_class[i].speed);
        assert_true(m->node_class[i].memory == again->node_class[i].memory);
        assert_true(m->node_class[i].inside == again->node_class[i].inside);
        assert_true(m->node_class[i].inject == again->node_class[i].inject);
    }
    for (int k = 0; k < 4; ++k)
        assert_int_equal(ct_machine_node_class(m, k), ct_machine_node_class(again, k));
    assert_int_equal(ct_machine_write(again, &second), CT_OK);
    assert_string_equal(first.text, second.text);
    ct_text_destroy(&first);
    ct_text_destroy(&second);
    ct_machine_destroy(m);
    ct_machine_destroy(again);
}

static void test_write(void **state)
{
    (void)state;
    expect_written(NODE TOP FAST SLOW,
                   "  name: \"fast\"\n  nodes: \"0-3\"\n  speed: 1\n  memory_gib: 64\n");
    expect_written(NODE TOP FAST SLOW, "  speed: 0.5\n  memory_gib: 16\n  inside_gbs: 2\n");
    expect_written(NAMES "node_class { name: \"a\" nodes: \"login,n2\" }\n"
                         "node_class { name: \"b\" nodes: \"n[1,3]\" inject_gbs: 0.1234567 }",
                   "  nodes: \"n[1,3]\"\n  speed: 1\n  inject_gbs: 0.1234567\n");
    expect_written(NODE TOP "node_class { name: \"g\" gpus: 8 gpu_memory_gib: 32 gpu_gbs: 16\n"
                            "host_gbs: 120 file_read_gbs: 3 file_write_gbs: 2 gpu_usable: 0.95\n"
                            "memory_usable: 0.9 gpu_tflops: 15.7 gpu_half_tflops: 125 }",
                   "  gpus: 8\n  gpu_memory_gib: 32\n  gpu_gbs: 16\n  host_gbs: 120\n"
                   "  file_read_gbs: 3\n  file_write_gbs: 2\n  gpu_tflops: 15.7\n"
                   "  gpu_half_tflops: 125\n  gpu_usable: 0.95\n  memory_usable: 0.9\n");
}

/* ---- jobs on such machines */

static void expect_classes(const ct_topo *t, const char *classes)
{
    for (int r = 0; r < t->n_rank; ++r)
        assert_int_equal(ct_topo_class(t, t->node[r])->name[0], classes[r]);
}

static void test_place(void **state)
{
    ct_topo *t = placed(NODE TOP FAST SLOW, 12, 2, "block");

    (void)state;
    expect_classes(t, "ffffffffssss");
    assert_int_equal(ct_topo_class(t, ct_topo_slowest_node(t))->name[0], 's');
    assert_true(ct_topo_class(t, ct_topo_smallest_node(t))->memory == ldexp(16, 30));
    ct_topo_destroy(t);
    t = placed(NODE TOP FAST SLOW, 12, 2, "cyclic");
    expect_classes(t, "ffffssffffss");
    t->machine.coding = (ct_codec_speed){ .memory = 8, .add_s = 2, .measured = true };
    assert_true(ct_topo_codec_speed(t).memory == 4); /* on nodes of half the speed */
    assert_true(ct_topo_codec_speed(t).add_s == 4);
    ct_topo_destroy(t);
    t = placed(NODE TOP FAST SLOW, 6, 2, "block"); /* the fast ones alone */
    t->machine.coding = (ct_codec_speed){ .memory = 8, .add_s = 2, .measured = true };
    assert_true(ct_topo_codec_speed(t).memory == 8);
    assert_true(ct_topo_speed(t, ct_topo_slowest_node(t)) == 1);
    assert_true(ct_topo_class(t, ct_topo_smallest_node(t))->memory == ldexp(64, 30));
    ct_topo_destroy(t);
    t = placed(NODE TOP, 12, 2, "block");
    assert_null(ct_topo_class(t, 3));
    assert_int_equal(ct_topo_smallest_node(t), -1);
    assert_true(ct_topo_speed(t, 3) == 1);
    ct_topo_destroy(t);
}

/* Nodes by name, and without names those of the job in blocks. */
static void test_job(void **state)
{
    static const char named[] = NAMES "node_class { name: \"a\" nodes: \"login,n2\" }\n"
                                      "node_class { name: \"b\" nodes: \"n[1,3]\" speed: 2 }";
    const ct_topo_text text = { .kind = CT_TOPO_FILE, .machine = "x.prototxt" };
    const ct_topo_text found = { .kind = CT_TOPO_AUTO };
    ct_rank_place place[3] = { { 7, -1, -1 }, { 9, -1, -1 }, { 8, -1, -1 } };
    ct_rank_name name[3] = { { .node = "n2" }, { .node = "n3" }, { .node = "login.site.org" } };
    ct_job_facts facts = { .n_rank = 3, .place = place, .name = name };
    ct_machine *m = good(named);
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_topo_discover(&text, m, &facts, &t), CT_OK);
    expect_classes(t, "aba");
    ct_topo_destroy(t);
    /* figures for a tree that was found have no nodes */
    log_capture_start(&said);
    assert_int_equal(ct_topo_discover(&found, m, &facts, &t), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "are of its own nodes"));
    ct_machine_destroy(m);
    m = good(NODE TOP "node_class { name: \"s\" nodes: \"0\" }\n"
                      "node_class { name: \"f\" nodes: \"1-5\" }");
    assert_int_equal(ct_topo_discover(&text, m, &facts, &t), CT_OK);
    expect_classes(t, "sff");
    ct_topo_destroy(t);
    ct_machine_destroy(m);
}

static void test_draw(void **state)
{
    ct_topo *t = placed(NODE TOP FAST SLOW, 12, 2, "block");
    ct_machine *m = good(NODE TOP FAST SLOW);
    ct_text out = { 0 };

    (void)state;
    assert_int_equal(ct_topo_draw(t, &out), CT_OK);
    assert_string_equal(out.text, "machine: 12 ranks on 6 nodes\n"
                                  "  4 nodes 0-3 (fast), 2 each: ranks 0-7\n"
                                  "  2 nodes 4-5 (slow), 2 each: ranks 8-11\n");
    ct_text_destroy(&out);
    out = (ct_text){ 0 };
    ct_machine_draw_levels(m, &out);
    assert_non_null(strstr(out.text, "\nnode class fast: nodes 0-3, speed 1, 64 GiB\n"));
    assert_non_null(strstr(out.text, "\nnode class slow: nodes 4-5, speed 0.5, 16 GiB, inside 2 "
                                     "GB/s, into the network 1 GB/s\n"));
    ct_text_destroy(&out);
    ct_machine_destroy(m);
    ct_topo_destroy(t);
}

/* ---- links */

/* Messages a -> b of so many GB, and the seconds on the busiest link. */
static double seconds(const ct_topo *t, int n, const int (*pair)[2], const double *gb)
{
    ct_flow *f = NULL;
    double alpha, beta;

    assert_int_equal(ct_flow_create(t, &f), CT_OK);
    for (int i = 0; i < n; ++i)
        assert_int_equal(ct_flow_add(f, pair[i][0], pair[i][1], gb[i] * 1e9), CT_OK);
    ct_flow_time(f, &alpha, &beta);
    ct_flow_destroy(f);
    return beta;
}

static double one(const ct_topo *t, int a, int b)
{
    const int pair[1][2] = { { a, b } };
    const double gb = 8;

    return seconds(t, 1, pair, &gb);
}

/* Ranks 0 to 7 on the fast nodes, 8 to 11 on the slow. */
static void test_links(void **state)
{
    static const int both[2][2] = { { 8, 9 }, { 9, 8 } };
    static const double gb[2] = { 8, 8 };
    ct_topo *t = placed(NODE TOP FAST SLOW, 12, 2, "block");
    ct_topo *same = placed(NODE TOP, 12, 2, "block");

    (void)state;
    assert_true(one(t, 0, 1) == 1); /* 8 GB/s, as the levels say */
    assert_true(one(t, 8, 9) == 4); /* 2 */
    assert_true(one(t, 0, 2) == 2); /* 4 between fast nodes */
    assert_true(one(t, 0, 8) == 8); /* 1 to a slow one, and from it, and between them */
    assert_true(one(t, 10, 3) == 8);
    assert_true(one(t, 8, 10) == 8);
    /* a node's bus goes with it: 16 for 8 GB/s becomes 4 for 2 */
    assert_true(seconds(t, 2, both, gb) == 4);
    t->machine.level[0].bus = 8e9;
    assert_true(seconds(t, 2, both, gb) == 8);
    t->machine.level[0].bus = 16e9;
    assert_true(ct_topo_least_inside(t) == 0.25);
    assert_true(ct_topo_least_inject(t) == 1e9);
    /* without a class, and between nodes that are as the levels say, all is as before */
    for (int a = 0; a < 8; ++a) {
        for (int b = 0; b < 8; ++b) assert_true(one(t, a, b) == one(same, a, b));
    }
    assert_true((ct_topo_least_inside(same) == 1) && (ct_topo_least_inject(same) == 4e9));
    ct_topo_destroy(t);
    ct_topo_destroy(same);
}

/* Levels inside a node go with it, too: a socket's link of 24 GB/s for a node's 8. */
static void test_inside(void **state)
{
    static const int from_socket[2][2] = { { 4, 6 }, { 5, 7 } };
    static const double gb[2] = { 8, 8 };
    ct_topo *t = placed("level { name: \"socket\" size: 2 latency_us: 1 bandwidth_gbs: 16 }\n"
                        "level { name: \"node\" size: 2 latency_us: 1 bandwidth_gbs: 8 "
                        "uplink_gbs: 8 }\n"
                        "level { name: \"machine\" size: 2 latency_us: 2 bandwidth_gbs: 64 }\n"
                        "node_class { name: \"a\" nodes: \"0\" inside_gbs: 8 }\n"
                        "node_class { name: \"b\" nodes: \"1\" inside_gbs: 2 inject_gbs: 0.5 }\n",
                        8, 4, "block");

    (void)state;
    assert_true(one(t, 0, 1) == 0.5); /* 16 GB/s in a socket of a */
    assert_true(one(t, 4, 5) == 2);   /* 4 in one of b            */
    assert_true(one(t, 4, 6) == 4);   /* 2 between its sockets    */
    assert_true(seconds(t, 2, from_socket, gb) == 8);
    assert_true(one(t, 0, 4) == 16); /* b's link */
    ct_topo_destroy(t);
}

/* A part of a job has the classes and links of the nodes that its ranks run on. */
static void test_part(void **state)
{
    static const int rank[] = { 11, 3, 8, 2 };
    ct_topo *t = placed("name: \"m\"\n" NODE TOP FAST SLOW, 12, 2, "block"), *part = NULL;

    (void)state;
    assert_int_equal(ct_topo_subset(t, rank, 4, &part), CT_OK);
    for (int i = 0; i < 4; ++i) {
        assert_ptr_equal(ct_topo_class(part, part->node[i]),
                         &part->machine.node_class[rank[i] >= 8]);
        assert_true(ct_topo_speed(part, part->node[i]) == ct_topo_speed(t, t->node[rank[i]]));
        assert_true(ct_topo_uplink(part, 1, part->node[i]) ==
                    ct_topo_uplink(t, 1, t->node[rank[i]]));
        for (int k = 0; k < 4; ++k)
            assert_true((i == k) || (one(part, i, k) == one(t, rank[i], rank[k])));
    }
    ct_topo_destroy(part);
    ct_topo_destroy(t);
}

/* Speeds within 10 % of a class's slowest node are alike; figures are over the slowest class. */
static void test_speeds(void **state)
{
    const double speed[] = { 100, 206, 105, 300, 110, 194 }, same[] = { 52, 50, 54 };
    double many[2 * CT_MAX_NODE_CLASS];
    ct_machine *m = good(NODE TOP FAST SLOW);
    ct_text text = { 0 };

    (void)state;
    assert_int_equal(ct_machine_class_speeds(m, speed, 6), CT_OK);
    assert_int_equal(m->n_node_class, 3);
    for (int k = 0; k < 6; ++k)
        assert_int_equal(ct_machine_node_class(m, k), (k == 3) ? 2 : (k == 1) || (k == 5));
    assert_true(m->node_class[0].speed == 1);
    assert_true(fabs(m->node_class[1].speed - 200.0 / 105) < 1e-12);
    assert_true(fabs(m->node_class[2].speed - 300.0 / 105) < 1e-12);
    ct_machine_list_nodes(m, 1, &text);
    assert_string_equal(text.text, "1,5");
    ct_text_destroy(&text);

    assert_int_equal(ct_machine_class_speeds(m, same, 3), CT_OK);
    assert_int_equal(m->n_node_class, 1);
    assert_int_equal(m->n_node_run, 0);
    assert_true(m->node_class[0].speed == 1);
    for (int k = 0; k < 6; ++k) assert_int_equal(ct_machine_node_class(m, k), 0);

    /* more kinds than a machine may have: the last class takes what is faster */
    for (int k = 0; k < 2 * CT_MAX_NODE_CLASS; ++k) many[k] = ldexp(1, k);
    assert_int_equal(ct_machine_class_speeds(m, many, 2 * CT_MAX_NODE_CLASS), CT_OK);
    assert_int_equal(m->n_node_class, CT_MAX_NODE_CLASS);
    assert_int_equal(ct_machine_node_class(m, 2 * CT_MAX_NODE_CLASS - 1), CT_MAX_NODE_CLASS - 1);
    ct_machine_destroy(m);
}

/* A lone class without a list has all nodes, however many there are. */
static void test_all(void **state)
{
    ct_machine *m = good("level { name: \"node\" latency_us: 1 bandwidth_gbs: 4 } level { name: "
                         "\"machine\" latency_us: 2 bandwidth_gbs: 1 } node_class { name: "
                         "\"all\" speed: 1.5 }");
    ct_topo *t = NULL;

    (void)state;
    assert_int_equal(ct_machine_node_class(m, 77), 0);
    assert_int_equal(ct_topo_place(m, 6, 2, "block", &t), CT_OK);
    for (int k = 0; k < 3; ++k) assert_true(ct_topo_speed(t, k) == 1.5);
    ct_topo_destroy(t);
    ct_machine_destroy(m);
    expect_written("level { name: \"node\" latency_us: 1 bandwidth_gbs: 4 } level { name: "
                   "\"machine\" latency_us: 2 bandwidth_gbs: 1 } node_class { name: \"all\" }",
                   "node_class {\n  name: \"all\"\n  speed: 1\n}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),     cmocka_unit_test(test_broken),
        cmocka_unit_test(test_too_many), cmocka_unit_test(test_write),
        cmocka_unit_test(test_place),    cmocka_unit_test(test_job),
        cmocka_unit_test(test_draw),     cmocka_unit_test(test_links),
        cmocka_unit_test(test_inside),   cmocka_unit_test(test_part),
        cmocka_unit_test(test_speeds),   cmocka_unit_test(test_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
