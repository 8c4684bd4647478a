/* A job's topology from made-up facts: each source, their order, and what contradicts. */
#include "tests/test.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/config/features.h"
#include "tests/log_capture.h"
#include "topology/discover.h"
#include "topology/names.h"

enum { MAX_RANK = 16 };

static log_capture said;
static ct_rank_place place[MAX_RANK];
static ct_rank_name name[MAX_RANK];
static ct_job_facts facts;

/* n ranks, per_node on each of the nodes n1, n2, …; not bound, without SLURM. */
static void make_job(int n, int per_node)
{
    memset(name, 0, sizeof(name));
    for (int r = 0; r < n; ++r) {
        place[r] = (ct_rank_place){ (uint64_t)(r / per_node), -1, -1 };
        snprintf(name[r].node, sizeof(name[r].node), "n%d", r / per_node + 1);
    }
    facts = (ct_job_facts){ .n_rank = n, .place = place, .name = name, .speaks = true };
}

static void set_address(int rank, const char *address, const char *pattern)
{
    snprintf(name[rank].address, sizeof(name[rank].address), "%s", address);
    snprintf(name[rank].pattern, sizeof(name[rank].pattern), "%s", pattern);
}

static ct_status discover_with(const char *topology, const char *file, ct_topo **t)
{
    ct_machine *m = NULL;
    ct_topo_text text;
    ct_status status = ct_topo_text_parse(topology, &text);

    *t = NULL;
    if (status == CT_OK)
        status = ct_topo_text_machine(&text, file, (file != NULL) ? strlen(file) : 0, &m);
    if (status == CT_OK) status = ct_topo_discover(&text, m, &facts, t);
    ct_machine_destroy(m);
    return status;
}

static void expect_refused(const char *topology, const char *file, const char *message)
{
    ct_topo *t = NULL;
    ct_status status;

    log_capture_start(&said);
    status = discover_with(topology, file, &t);
    log_capture_stop();
    if ((status != CT_ERR_CONFIG) || (said.n_error != 1) || (strstr(said.error, message) == NULL))
        fail_msg("\"%s\": status %d, %d errors, said \"%s\", not \"%s\"", topology, status,
                 said.n_error, said.error, message);
    assert_null(t);
}

static ct_topo *expect_found(const char *topology, const char *file)
{
    ct_topo *t = NULL;

    assert_int_equal(discover_with(topology, file, &t), CT_OK);
    assert_int_equal(t->n_rank, facts.n_rank);
    return t;
}

/* ---- MPI and hwloc */

static void test_mpi(void **state)
{
    ct_topo *t = NULL;

    (void)state;
    make_job(6, 2);
    t = expect_found("auto", NULL);
    assert_string_equal(t->source, "mpi shared split");
    assert_int_equal(t->machine.n_level, 2);
    assert_int_equal(t->n_node, 3);
    assert_int_equal(ct_topo_meet(t, 0, 1), 0);
    assert_int_equal(ct_topo_meet(t, 1, 2), 1);
    assert_string_equal(t->vertex_name[0][2], "n3");
    ct_topo_destroy(t);
    facts.name = NULL;
    t = expect_found("auto", NULL);
    assert_null(t->vertex_name[0]);
    ct_topo_destroy(t);
}

static void test_binding(void **state)
{
    ct_topo *t = NULL;

    (void)state;
    make_job(8, 4);
    for (int r = 0; r < 8; ++r) place[r].socket = place[r].numa = (r % 4) / 2;
    t = expect_found("auto", NULL); /* a NUMA node a socket: one level */
    assert_int_equal(t->machine.n_level, 3);
    assert_int_equal(t->machine.node_level, 1);
    assert_string_equal(t->machine.level[0].name, "socket");
    assert_int_equal(t->n_vertex[0], 4);
    assert_int_equal(t->n_node, 2);
    assert_int_equal(ct_topo_meet(t, 0, 1), 0);
    assert_int_equal(ct_topo_meet(t, 1, 2), 1);
    assert_int_equal(ct_topo_meet(t, 3, 4), 2);
    /* nearer is not slower */
    assert_true(t->machine.level[0].latency_s < t->machine.level[1].latency_s);
    assert_true(t->machine.level[0].bandwidth >= t->machine.level[1].bandwidth);
    ct_topo_destroy(t);

    for (int r = 0; r < 8; ++r) place[r].numa = r % 4; /* two NUMA nodes a socket */
    t = expect_found("auto", NULL);
    assert_int_equal(t->machine.n_level, 4);
    assert_string_equal(t->machine.level[0].name, "numa");
    assert_string_equal(t->machine.level[1].name, "socket");
    assert_int_equal(t->n_vertex[0], 8);
    assert_int_equal(ct_topo_meet(t, 0, 1), 1);
    ct_topo_destroy(t);

    place[5].socket = -1; /* one rank is bound to several: nothing is believed of sockets */
    place[6].numa = -1;
    t = expect_found("auto", NULL);
    assert_int_equal(t->machine.n_level, 2);
    ct_topo_destroy(t);

    make_job(4, 2);
    for (int r = 0; r < 4; ++r) place[r].socket = place[r].numa = 0; /* all on the first socket */
    t = expect_found("auto", NULL);
    assert_int_equal(t->machine.n_level, 2);
    ct_topo_destroy(t);
}

/* hwloc itself: a made-up machine of two sockets, and a thread on one core. */
static void test_hwloc(void **state)
{
    cpu_set_t all, one;
    int32_t socket = 7, numa = 7;
    int first = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    ct_rank_place_inside(&socket, &numa);
    if (CPU_COUNT(&all) < 2) {
        print_message("skip hwloc: one core\n");
        return;
    }
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    unsetenv("HWLOC_COMPONENTS"); /* would go before it */
    setenv("HWLOC_SYNTHETIC", "pack:2 [numa] core:64 pu:1", 1);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    ct_rank_place_inside(&socket, &numa);
    sched_setaffinity(0, sizeof(all), &all);
    unsetenv("HWLOC_SYNTHETIC");
    if (!ct_feature_has("hwloc") || (first >= 128)) first = -1;
    assert_int_equal(socket, (first < 0) ? -1 : first / 64);
    assert_int_equal(numa, socket);
}

/* ---- SLURM's addresses */

static void make_slurm_job(void)
{
    static const char *const leaf[] = { "leaf1", "leaf2", "leaf1", "leaf2" };

    make_job(8, 2);
    for (int r = 0; r < 8; ++r) {
        char address[64];

        snprintf(address, sizeof(address), "spine.%s.n%d", leaf[r / 2], r / 2 + 1);
        set_address(r, address, "switch.switch.node");
    }
    facts.node_list = "n[1-4]";
}

static void test_slurm(void **state)
{
    static const int order[] = { 0, 1, 4, 5, 2, 3, 6, 7 };
    ct_topo *t = NULL;

    (void)state;
    make_slurm_job();
    t = expect_found("auto", NULL);
    assert_string_equal(t->source, "slurm");
    assert_int_equal(t->machine.n_level, 3); /* the spine joins all: it is the machine */
    assert_int_equal(t->n_node, 4);
    assert_int_equal(t->n_vertex[1], 2);
    assert_string_equal(t->vertex_name[1][0], "leaf1");
    assert_string_equal(t->vertex_name[1][1], "leaf2");
    assert_string_equal(t->vertex_name[0][3], "n4");
    assert_int_equal(ct_topo_meet(t, 0, 4), 1);
    assert_int_equal(ct_topo_meet(t, 0, 2), 2);
    assert_memory_equal(t->order, order, sizeof(order));
    ct_topo_destroy(t);
    t = expect_found("slurm", NULL);
    assert_int_equal(t->n_vertex[1], 2);
    ct_topo_destroy(t);

    /* with bound ranks below */
    for (int r = 0; r < 8; ++r) place[r].socket = r % 2;
    t = expect_found("auto", NULL);
    assert_int_equal(t->machine.n_level, 4);
    assert_int_equal(t->n_vertex[0], 8);
    assert_int_equal(t->n_vertex[2], 2);
    assert_string_equal(t->vertex_name[2][1], "leaf2");
    ct_topo_destroy(t);
}

/* Trees of several levels and of uneven depth; a domain in the node's name. */
static void test_slurm_deep(void **state)
{
    ct_topo *t = NULL;

    (void)state;
    make_job(4, 1);
    set_address(0, "top.a.s1.n1", "switch.switch.switch.node");
    set_address(1, "top.a.s2.n2", "switch.switch.switch.node");
    set_address(2, "top.b.s1.n3", "switch.switch.switch.node");
    set_address(3, "top.c.n4", "switch.switch.node");
    t = expect_found("slurm", NULL);
    assert_int_equal(t->machine.n_level, 4);
    assert_int_equal(t->n_vertex[1], 4); /* s1 of a is not s1 of b */
    assert_int_equal(t->n_vertex[2], 4 - 1);
    assert_int_equal(ct_topo_meet(t, 0, 1), 2);
    assert_int_equal(ct_topo_meet(t, 0, 2), 3);
    assert_int_equal(ct_topo_meet(t, 2, 3), 3);
    ct_topo_destroy(t);

    make_job(2, 1);
    strcpy(name[0].node, "n1.site");
    strcpy(name[1].node, "n2.site");
    set_address(0, "s1.n1.site", "switch.node");
    set_address(1, "s2.n2.site", "switch.node");
    t = expect_found("auto", NULL);
    assert_int_equal(t->n_vertex[1], 2);
    ct_topo_destroy(t);

    /* all below one switch: MPI's word is as good */
    set_address(1, "s1.n2.site", "switch.node");
    t = expect_found("auto", NULL);
    assert_string_equal(t->source, "mpi shared split");
    ct_topo_destroy(t);
}

/* What contradicts is an error where SLURM was asked for, and where not a warning. */
static void expect_doubted(const char *message)
{
    ct_topo *t = NULL;

    expect_refused("slurm", NULL, message);
    log_capture_start(&said);
    assert_int_equal(discover_with("auto", NULL, &t), CT_OK);
    log_capture_stop();
    assert_int_equal(said.n_error, 0);
    assert_string_equal(t->source, "mpi shared split");
    ct_topo_destroy(t);
}

static void test_slurm_broken(void **state)
{
    (void)state;
    make_slurm_job();
    name[5].address[0] = '\0';
    expect_doubted("rank 5 on n3 has no SLURM_TOPOLOGY_ADDR");
    make_slurm_job();
    set_address(4, "spine..n3", "switch.switch.node");
    expect_doubted("does not follow");
    make_slurm_job();
    set_address(4, "spine.n3", "switch.switch.node");
    expect_doubted("does not follow");
    make_slurm_job();
    set_address(4, "spine.leaf1.n3", "");
    expect_doubted("does not follow");
    make_slurm_job();
    set_address(4, "spine.leaf1.n1", "switch.switch.node"); /* mpirun's own, inherited */
    expect_doubted("is of another node");
    make_slurm_job();
    set_address(3, "spine.leaf1.n2", "switch.switch.node");
    expect_doubted("ranks 2 and 3 share memory");

    make_job(2, 1);
    expect_refused("slurm", NULL, "rank 0 on n1 has no SLURM_TOPOLOGY_ADDR");
    facts.name = NULL;
    expect_refused("slurm", NULL, "SLURM says nothing about switches");
}

/* A list with a hole, or one that lacks a node, is wrong whatever the source. */
static void test_node_list(void **state)
{
    static const char *const source[] = { "auto", "slurm" };

    (void)state;
    for (int i = 0; i < 2; ++i) {
        make_slurm_job();
        facts.node_list = "n[1-2,,4]";
        expect_refused(source[i], NULL, "SLURM: node list \"n[1-2,,4]\": a number is missing");
        facts.node_list = "n[1-2,4]";
        expect_refused(source[i], NULL,
                       "rank 4 runs on n3, which SLURM's node list \"n[1-2,4]\" lacks");
    }
}

/* ---- topology.conf */

static const char conf[] = "# three leaves, one spine\n"
                           "SwitchName=leaf1 Nodes=n[1-2]\n"
                           "switchname=leaf2 nodes=n3,n4 LinkSpeed=1 # slow\n"
                           "\n"
                           "SwitchName=leaf3 Nodes=n[5-8]\r\n"
                           "SwitchName=spine Switches=leaf[1-3]";

static void test_conf(void **state)
{
    static const char branches[] = "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2\n"
                                   "SwitchName=c Switches=a\nSwitchName=d Nodes=n3\n";
    ct_topo *t = NULL;
    ct_machine *m = NULL;

    (void)state;
    make_job(4, 1);
    strcpy(name[1].node, "n7");
    strcpy(name[2].node, "n2");
    t = expect_found("slurm:topology.conf", conf);
    assert_string_equal(t->source, "machine file topology.conf");
    assert_int_equal(t->machine.n_level, 3);
    assert_int_equal(t->n_vertex[1], 3); /* n1 and n2, n7, n4 */
    assert_int_equal(ct_topo_meet(t, 0, 2), 1);
    assert_int_equal(ct_topo_meet(t, 0, 1), 2);
    assert_string_equal(t->vertex_name[1][1], "leaf3");
    ct_topo_destroy(t);

    strcpy(name[1].node, "n9");
    expect_refused("slurm:topology.conf", conf, "names 8 nodes, but not n9, where ranks run");

    /* a branch without the middle level, two roots */
    assert_int_equal(ct_slurm_parse_conf("t", branches, strlen(branches), &m), CT_OK);
    assert_int_equal(m->n_level, 4);
    assert_int_equal(m->names->n_node, 3);
    ct_machine_destroy(m);
}

static void test_conf_broken(void **state)
{
    static const struct {
        const char *text, *message;
    } broken[] = {
        { "", "names no switch" },
        { "# only this\n", "names no switch" },
        { "SwitchName=a\n", "t:1: a switch has a SwitchName, and Nodes or Switches" },
        { "\nNodes=n1\n", "t:2: a switch has" },
        { "SwitchName=a Nodes=n1 Switches=b\n", "t:1: a switch has" },
        { "SwitchName=a Nodes=n1 Colour=red\n", "t:1: unknown word \"Colour\"" },
        { "SwitchName=a Nodes\n", "t:1: expected KEY=VALUE, got \"Nodes\"" },
        { "SwitchName=a SwitchName=b Nodes=n1\n", "SwitchName is given twice" },
        { "SwitchName=a Nodes=n[1-\n", "t:1: node list" },
        { "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n", "t:2: switch \"a\" is described in" },
        { "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1\n",
          "node \"n1\" stands below two switches, one of them b" },
        { "SwitchName=a Switches=b\n", "t:1: switch \"b\" has no line of its own" },
        { "SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "stands below itself" },
        { "SwitchName=a Switches=a\n", "stands below itself" },
        { "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=a\n",
          "switch \"a\" stands below \"b\" and \"c\"" },
        { "SwitchName=a Nodes=n1\nSwitchName=b Switches=a\nSwitchName=c Switches=b\n"
          "SwitchName=d Switches=c\nSwitchName=e Switches=d\nSwitchName=f Nodes=n2\n",
          "more than 4 levels" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); ++i) {
        ct_machine *m = NULL;
        ct_status status;

        log_capture_start(&said);
        status = ct_slurm_parse_conf("t", broken[i].text, strlen(broken[i].text), &m);
        log_capture_stop();
        if ((status != CT_ERR_CONFIG) || (m != NULL) ||
            (strstr(said.error, broken[i].message) == NULL))
            fail_msg("case %zu: status %d, said \"%s\", not \"%s\"", i, status, said.error,
                     broken[i].message);
    }
}

/* ---- machine files */

#define HEAD "level { name: \"node\" size: 2 latency_us: 1 bandwidth_gbs: 6 }\n"
#define TAIL "level { name: \"machine\" latency_us: 3 bandwidth_gbs: 12 }\n"
#define RACK "level { name: \"rack\" size: 2 latency_us: 2 bandwidth_gbs: 12 }\n"

static void test_file_blocks(void **state)
{
    ct_topo *t = NULL;

    (void)state;
    make_job(5, 1);
    facts.name = NULL;
    t = expect_found("m.prototxt", HEAD RACK TAIL);
    assert_int_equal(t->n_vertex[1], 3);
    assert_int_equal(ct_topo_meet(t, 0, 1), 1);
    assert_int_equal(ct_topo_meet(t, 1, 2), 2);
    assert_true(t->machine.level[2].latency_s == 3e-6);
    ct_topo_destroy(t);

    /* more ranks on a node than the file has room for; more nodes than the machine */
    make_job(6, 3);
    expect_refused("m.prototxt", HEAD RACK TAIL, "a node holds 2 ranks by its file");
    make_job(3, 1);
    expect_refused("m.prototxt",
                   HEAD "level { name: \"machine\" size: 2 latency_us: 3 bandwidth_gbs: 12 }",
                   "has 2 nodes, but the job runs on 3");
}

/* Sockets of a file: by the binding, else in blocks of ranks. */
static void test_file_sockets(void **state)
{
    static const char file[] =
        "level { name: \"socket\" size: 2 latency_us: 1 bandwidth_gbs: 9 }"
        "level { name: \"node\" size: 2 latency_us: 1 bandwidth_gbs: 6 }" TAIL;
    ct_topo *t = NULL;

    (void)state;
    make_job(4, 4);
    t = expect_found("m.prototxt", file);
    assert_int_equal(ct_topo_meet(t, 0, 1), 0);
    assert_int_equal(ct_topo_meet(t, 1, 2), 1);
    ct_topo_destroy(t);
    for (int r = 0; r < 4; ++r) place[r].socket = r % 2;
    t = expect_found("m.prototxt", file);
    assert_int_equal(ct_topo_meet(t, 0, 2), 0);
    assert_int_equal(ct_topo_meet(t, 0, 1), 1);
    ct_topo_destroy(t);
    for (int r = 0; r < 4; ++r) place[r].socket = 0;
    expect_refused("m.prototxt", file, "a socket holds 2 ranks by its file");
}

static void test_file_names(void **state)
{
    static const char file[] =
        "name: \"c\"\n" HEAD RACK TAIL "switch { name: \"r1\" nodes: \"n[1,4]\" }\n"
        "switch { name: \"r2\" nodes: \"n[2-3]\" }";
    ct_topo *t = NULL;

    (void)state;
    make_job(8, 2);
    t = expect_found("m.prototxt", file);
    assert_int_equal(ct_topo_meet(t, 0, 1), 0);
    assert_int_equal(ct_topo_meet(t, 0, 6), 1);
    assert_int_equal(ct_topo_meet(t, 0, 2), 2);
    assert_string_equal(t->vertex_name[1][1], "r2");
    ct_topo_destroy(t);

    strcpy(name[2].node, "login");
    strcpy(name[3].node, "login");
    expect_refused("m.prototxt", file,
                   "machine \"c\" names 4 nodes, but not login, where ranks run");
    make_job(8, 2);
    strcpy(name[3].node, "n4");
    expect_refused("m.prototxt", file,
                   "ranks 2 and 3 share memory, but run on n2 and n4, which are two places");
    facts.name = NULL;
    log_capture_start(&said);
    assert_int_equal(discover_with("m.prototxt", file, &t), CT_ERR_ARG);
    log_capture_stop();
}

/* ---- what a text can say */

static void test_text(void **state)
{
    static const char *const bad[] = { "",
                                       "slurm:",
                                       "place:x",
                                       "place:x,1",
                                       "place:,1,block",
                                       "place:x,0,block",
                                       "place:x,one,block",
                                       "2x2@",
                                       "map:00@x" };
    ct_topo_text text;

    (void)state;
    assert_int_equal(ct_topo_text_parse("place:taihulight,4,random:7", &text), CT_OK);
    assert_int_equal(text.kind, CT_TOPO_PLACE);
    assert_string_equal(text.machine, "taihulight");
    assert_int_equal(text.ranks_per_node, 4);
    assert_string_equal(text.spec, "random:7");
    assert_null(ct_topo_text_file(&text));
    assert_int_equal(ct_topo_text_parse("slurm:/etc/slurm/topology.conf", &text), CT_OK);
    assert_string_equal(ct_topo_text_file(&text), "/etc/slurm/topology.conf");
    assert_int_equal(ct_topo_text_parse("2sn x 2n x 1 @ ./m.prototxt", &text), CT_OK);
    assert_string_equal(text.spec, "2sn x 2n x 1");
    assert_string_equal(ct_topo_text_file(&text), "./m.prototxt");
    assert_int_equal(ct_topo_text_parse("4machines.prototxt", &text), CT_OK);
    assert_int_equal(text.kind, CT_TOPO_FILE);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
        log_capture_start(&said);
        assert_int_equal(ct_topo_text_parse(bad[i], &text), CT_ERR_CONFIG);
        log_capture_stop();
        assert_int_equal(said.n_error, 1);
    }
    make_job(4, 1);
    expect_refused("mesh", NULL, "ready machines: ");
    expect_refused("dain", NULL, "did you mean \"daint\"?");
    expect_refused("place:taihulight,1,spiral", NULL, "placement \"spiral\"");
    expect_refused("place:taihulight,1,block ", NULL, "placement \"block \"");
}

/* Pretended nodes with a real machine's figures: as oversubscribed as there. */
static void test_borrowed(void **state)
{
    ct_topo *t = NULL;

    (void)state;
    make_job(8, 8);
    t = expect_found("2sn x 4n x 1@taihulight", NULL);
    assert_int_equal(t->n_node, 8);
    assert_true(t->machine.level[1].latency_s == 2e-6);
    assert_true(t->machine.level[1].uplink == 12e9);
    assert_true(t->machine.level[2].uplink == 12e9); /* 4 nodes of 12 GB/s, over 4 */
    ct_topo_destroy(t);
    t = expect_found("place:taihulight,1,cyclic", NULL);
    assert_int_equal(t->n_node, 8);
    assert_int_equal(t->n_vertex[1], 1);
    ct_topo_destroy(t);
    expect_refused("2sw x 4n x 1@taihulight", NULL, "has no level \"switch\"");
    expect_refused("2sn x 2n x 1@taihulight", NULL, "4 nodes of 1 ranks, but 8 ranks run");
}

/* A found tree with measured figures: what the fit of a small job writes serves a larger one. */
static void test_figures_of(void **state)
{
    static const char file[] =
        "name: \"fit\" sum_gbs: 7 level { name: \"node\" latency_us: 0.6 bandwidth_gbs: 9 bus_gbs: "
        "50 }\n"
        "level { name: \"switch\" size: 4 latency_us: 1.5 bandwidth_gbs: 11 }\n"
        "level { name: \"all\" latency_us: 2.5 bandwidth_gbs: 11 oversubscription: 2 }";
    ct_topo *t = NULL;

    (void)state;
    make_slurm_job();
    for (int r = 0; r < 8; ++r) place[r].socket = r % 2;
    t = expect_found("auto@fit.prototxt", file);
    assert_string_equal(t->source, "slurm, figures of fit");
    assert_int_equal(t->machine.n_level, 4);
    assert_int_equal(t->n_vertex[2], 2);
    assert_string_equal(t->machine.level[0].name, "socket");
    assert_string_equal(t->machine.level[3].name, "machine");
    assert_true(t->machine.level[0].bandwidth == 9e9); /* the file's node stands for its inside */
    assert_true(t->machine.level[1].bus == 50e9);
    assert_true(t->machine.level[2].latency_s == 1.5 / 1e6);
    assert_true(t->machine.level[3].uplink == 11e9); /* 2 nodes a leaf inject 22, over 2 */
    assert_true(t->machine.sum_bandwidth == 7e9);
    ct_topo_destroy(t);

    make_job(4, 2);
    t = expect_found("auto@fit.prototxt", file); /* no switches are seen: the machine's figures */
    assert_int_equal(t->machine.n_level, 2);
    assert_true(t->machine.level[1].latency_s == 2.5 / 1e6);
    assert_true(t->machine.level[1].uplink == 11e9);
    ct_topo_destroy(t);
    make_slurm_job();
    expect_refused("slurm@ethernet", NULL, "ready machines: ");
    expect_refused("slurm@taihulight", NULL, "machine \"taihulight\" has no level \"switch\"");
    expect_refused("auto@", NULL, "expected SPEC@MACHINE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mpi),          cmocka_unit_test(test_binding),
        cmocka_unit_test(test_hwloc),        cmocka_unit_test(test_slurm),
        cmocka_unit_test(test_slurm_deep),   cmocka_unit_test(test_slurm_broken),
        cmocka_unit_test(test_node_list),    cmocka_unit_test(test_conf),
        cmocka_unit_test(test_conf_broken),  cmocka_unit_test(test_file_blocks),
        cmocka_unit_test(test_file_sockets), cmocka_unit_test(test_file_names),
        cmocka_unit_test(test_text),         cmocka_unit_test(test_borrowed),
        cmocka_unit_test(test_figures_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
