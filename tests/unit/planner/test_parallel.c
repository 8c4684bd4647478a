/* Parallel files: each rule with its message, where layers go, and how values lie on the ranks of a
 * replica. */
#include "tests/test.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/sharding.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"

#define DATA                                                                                       \
    "layer { name: 'd' type: 'DummyData' top: 'x' top: 'label' include { phase: TRAIN } "          \
    "dummy_data_param { shape { dim: 8 dim: 3 dim: 6 dim: 6 } shape { dim: 8 } } } "               \
    "layer { name: 'd' type: 'DummyData' top: 'x' top: 'label' include { phase: TEST } "           \
    "dummy_data_param { shape { dim: 8 dim: 3 dim: 6 dim: 6 } shape { dim: 8 } } } "
#define CONV                                                                                       \
    "layer { name: 'conv' type: 'Convolution' bottom: 'x' top: 'c' "                               \
    "convolution_param { num_output: 4 kernel_size: 3 } } "                                        \
    "layer { name: 'relu' type: 'ReLU' bottom: 'c' top: 'c' } "                                    \
    "layer { name: 'pool' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { kernel_size: 2 } "  \
    "} "
#define FULL                                                                                       \
    "layer { name: 'fc1' type: 'InnerProduct' bottom: 'p' top: 'f' "                               \
    "inner_product_param { num_output: 6 } } "                                                     \
    "layer { name: 'relu1' type: 'ReLU' bottom: 'f' top: 'f' } "                                   \
    "layer { name: 'fc2' type: 'InnerProduct' bottom: 'f' top: 'g' "                               \
    "inner_product_param { num_output: 5 } } "                                                     \
    "layer { name: 'relu2' type: 'ReLU' bottom: 'g' top: 'g' } "                                   \
    "layer { name: 'fc3' type: 'InnerProduct' bottom: 'g' top: 's' "                               \
    "inner_product_param { num_output: 3 } } "
#define ENDS                                                                                       \
    "layer { name: 'accuracy' type: 'Accuracy' bottom: 's' bottom: 'label' top: 'a' "              \
    "include { phase: TEST } } "                                                                   \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 's' bottom: 'label' top: 'l' } "         \
    "layer { name: 'seen' type: 'Softmax' bottom: 's' top: 'q' include { phase: TEST } } "
#define NET DATA CONV FULL ENDS

#define HEAD              "ranks: 4 global_batch: 16 micro_batches: 2\n"
#define ONE               "stage { first: 'conv' last: 'pool' rank: 0 rank: 1 }\n"
#define TWO               "stage { first: 'fc1' last: 'loss' rank: 2 rank: 3 tensor: 2 }\n"
#define TWO_WITH(_more)   "stage { first: 'fc1' last: 'loss' rank: 2 rank: 3 tensor: 2\n" _more "}\n"
#define ALL(_head, _more) _head "\nstage { first: 'conv' last: 'loss' " _more "}\n"

static log_capture said;

static ct_status parse(const char *text, ct_parallel **p)
{
    return ct_parallel_parse("p", text, strlen(text), p);
}

static void open_net(const char *text, ct_phase phase, parsed_net *f)
{
    ct_net_env env = { .n_rank = 1, .seed = 1 };

    assert_int_equal(parsed_net_open(text, phase, &env, f), CT_OK);
}

static ct_parallel *bound(const char *text, const parsed_net *f)
{
    ct_parallel *p = NULL;

    assert_int_equal(parse(text, &p), CT_OK);
    assert_int_equal(ct_parallel_bind(p, f->param, f->net), CT_OK);
    return p;
}

/* Whether reading the file, binding it, or a net's values under it are refused with this line
 * alone.
 */
static void refused(const char *net, const char *file, const char *line)
{
    parsed_net f;
    ct_parallel *p = NULL;
    ct_status status;

    if (net != NULL) open_net(net, CT_TRAIN, &f);
    log_capture_start(&said);
    status = parse(file, &p);
    if ((net != NULL) && (status != CT_OK)) fail_msg("%s: not read: %s", file, said.error);
    if (net != NULL) status = ct_parallel_bind(p, f.param, f.net);
    log_capture_stop();
    if ((net != NULL) && (status == CT_OK)) { /* … or finding how its values lie */
        ct_sharded_net s;

        log_capture_start(&said);
        status = ct_sharded_net_make(p, f.net, &s);
        log_capture_stop();
        if (status == CT_OK) ct_sharded_net_destroy(&s);
    }
    if (status != CT_ERR_CONFIG) fail_msg("%s\nis not refused: %s", file, line);
    if (strcmp(said.error, line) != 0) fail_msg("%s\nsays: %s\nnot:  %s", file, said.error, line);
    assert_int_equal(said.n_error, 1);
    ct_parallel_destroy(p);
    if (net != NULL) parsed_net_close(&f);
}

/* ---- what needs no net */

typedef struct wrong {
    const char *file, *line;
} wrong;

static void test_read_refuses(void **state)
{
    static const wrong all[] = {
        { "ranks: 0 global_batch: 1", "p:1: ranks is 0; it must be at least 1" },
        { "ranks: 1\n" ONE, "p:1: global_batch, the samples of a step, must be given" },
        { "\nglobal_batch: 0", "p:2: global_batch is 0; it must be at least 1" },
        { "global_batch: 4\nmicro_batches: -2", "p:2: micro_batches is -2; it must be at least 1" },
        { "global_batch: 16\nmicro_batches: 3",
          "p:2: global_batch 16 cannot be divided by micro_batches 3" },
        { HEAD, "p:1: there is no stage" },
        { HEAD "stage { last: 'a' rank: 0 }", "p:2: stage 0: its first layer must be given" },
        { HEAD "stage { first: 'a' rank: 0 }", "p:2: stage 0: its last layer must be given" },
        { HEAD ONE "stage { first: 'a' last: 'b' }", "p:3: stage 1 has no rank" },
        { HEAD ALL("", "rank: 0\ntensor: 0"), "p:4: stage 0: tensor is 0; it must be at least 1" },
        { HEAD ONE "stage { first: 'a' last: 'b' rank: 2 rank: 3 rank: 1\ntensor: 2 }",
          "p:4: stage 1: its 3 ranks cannot be divided by tensor 2" },
        { HEAD ONE "stage { first: 'a' last: 'b' rank: 2 rank: 4 }",
          "p:3: stage 1 has rank 4, but the ranks are 0 to 3" },
        { HEAD "stage { first: 'a' last: 'b' rank: -1 }",
          "p:2: stage 0 has rank -1, but the ranks are 0 to 3" },
        { HEAD ONE "stage { first: 'a' last: 'b' rank: 2\nrank: 1 }",
          "p:4: stage 1 has rank 1, which is in stage 0 already" },
        { HEAD "stage { first: 'a' last: 'b' rank: 2 rank: 2 }", "p:2: stage 0 has rank 2 twice" },
        { HEAD ONE "stage { first: 'a' last: 'b' rank: 3 }", "p:1: rank 2 of 4 is in no stage" },
        { "ranks: 2147483647 global_batch: 1\n" ALL("", "rank: 0"),
          "p:1: rank 1 of 2147483647 is in no stage" },
        { HEAD ALL("", "rank: 0 rank: 1 rank: 2 rank: 3 share: 5 share: 3"),
          "p:3: stage 0 gives share 2 times, but has 4 replicas: one each, or none" },
        { HEAD ALL("", "rank: 0 rank: 1 rank: 2 rank: 3 tensor: 2\nshare: 8 share: 0"),
          "p:4: stage 0: the share of replica 1 is 0; it must be at least 1" },
        { HEAD ALL("", "rank: 0 rank: 1 rank: 2 rank: 3 tensor: 2 share: 5 share: 2"),
          "p:3: stage 0: its shares add up to 7, but a micro-batch has 8 samples (global_batch 16 "
          "/ micro_batches 2)" },
        { HEAD ALL("", "rank: 0 rank: 1 rank: 2 rank: 3 tensor: 2 share: 9223372036854775807 "
                       "share: 9223372036854775807"),
          "p:3: stage 0: its shares add up to more than 8, but a micro-batch has 8 samples "
          "(global_batch 16 / micro_batches 2)" },
        { "ranks: 4 global_batch: 6 micro_batches: 2\n" ALL("", "rank: 0 rank: 1 rank: 2 rank: 3"),
          "p:3: stage 0 has 4 replicas, but a micro-batch has 3 samples (global_batch 6 / "
          "micro_batches 2): one for each at least" },
        { HEAD ONE "stage { first: 'a' last: 'b' rank: 2 rank: 3\nlayer { split: INPUT } }",
          "p:4: stage 1: an entry `layer` must have a name" },
        { HEAD ONE "stage { first: 'a' last: 'b' rank: 2 rank: 3 again { last: 'b' } }",
          "p:3: stage 1: the first layer of `again` must be given" },
        { HEAD ONE "stage { first: 'a' last: 'b' rank: 2 rank: 3\nagain { first: 'b' } }",
          "p:4: stage 1: the last layer of `again` must be given" },
        { "stage { frist: 'a' }", "p:1:9: unknown field \"frist\"; did you mean \"first\"?" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        refused(NULL, all[i].file, all[i].line);
}

static void test_read(void **state)
{
    ct_parallel *p = NULL;
    ct_parallel_place at;

    (void)state;
    assert_int_equal(parse("ranks: 5 global_batch: 22 micro_batches: 2\n"
                           "stage { first: 'a' last: 'b' rank: 4 rank: 0 rank: 2 }\n"
                           "stage { first: 'c' last: 'd' rank: 3 rank: 1 tensor: 2 share: 11 }",
                           &p),
                     CT_OK);
    assert_int_equal(p->n_rank, 5);
    assert_int_equal(p->micro_batch, 11);
    assert_int_equal(p->n_stage, 2);
    assert_int_equal(p->stage[0].tensor, 1);
    assert_int_equal(p->stage[0].n_replica, 3);
    assert_int_equal(p->stage[0].share[0], 4);
    assert_int_equal(p->stage[0].share[1], 4);
    assert_int_equal(p->stage[0].share[2], 3);
    assert_int_equal(p->stage[1].n_replica, 1);
    assert_int_equal(p->stage[1].share[0], 11);
    at = ct_parallel_place_of(p, 2);
    assert_true((at.stage == 0) && (at.replica == 2) && (at.part == 0));
    at = ct_parallel_place_of(p, 1);
    assert_true((at.stage == 1) && (at.replica == 0) && (at.part == 1));
    log_capture_start(&said);
    assert_int_equal(ct_parallel_check_ranks(p, 5, "the job"), CT_OK);
    assert_int_equal(ct_parallel_check_ranks(p, 4, "the job"), CT_ERR_LAUNCH);
    log_capture_stop();
    assert_string_equal(said.error, "p:1: ranks is 5, but the job has 4");
    ct_parallel_destroy(p);
}

static void test_batch_of_solver(void **state)
{
    Ct__SolverParameter s = CT__SOLVER_PARAMETER__INIT;
    ct_parallel *p = NULL;

    (void)state;
    assert_int_equal(parse("ranks: 1\nglobal_batch: 12 micro_batches: 3\n"
                           "stage { first: 'a' last: 'b' rank: 0 }",
                           &p),
                     CT_OK);
    s.iter_size = 2;
    assert_int_equal(ct_parallel_set_batch(p, &s), CT_OK);
    assert_int_equal(s.global_batch_size, 4);
    assert_int_equal(s.iter_size, 6);
    s.global_batch_size = 12;
    assert_int_equal(ct_parallel_set_batch(p, &s), CT_OK);
    assert_int_equal(s.global_batch_size, 4);
    s.global_batch_size = 13;
    log_capture_start(&said);
    assert_int_equal(ct_parallel_set_batch(p, &s), CT_ERR_CONFIG);
    log_capture_stop();
    assert_string_equal(said.error, "p:2: global_batch is 12, but global_batch_size 13");
    s.global_batch_size = 12;
    s.iter_size = INT32_MAX / 2;
    log_capture_start(&said);
    assert_int_equal(ct_parallel_set_batch(p, &s), CT_ERR_CONFIG);
    log_capture_stop();
    assert_string_equal(said.error, "p:2: micro_batches 3 times iter_size 1073741823 are too many");
    ct_parallel_destroy(p);
}

static void test_batch_of_dummies(void **state)
{
    Ct__NetParameter *net = (Ct__NetParameter *)(void *)test_parsed(
        &ct__net_parameter__descriptor,
        "layer { name: 't' type: 'DummyData' include { phase: TEST } dummy_data_param { "
        "shape { dim: 7 } } } "
        "layer { name: 'a' type: 'DummyData' include { phase: TRAIN } dummy_data_param { "
        "shape { dim: 7 dim: 5 } shape { dim: 1 } shape { } shape { dim: 7 } } } "
        "layer { name: 'b' type: 'DummyData' dummy_data_param { num: 7 num: 2 channels: 7 } } "
        "layer { name: 'd' type: 'DummyData' include { stage: 'x' } include { phase: TEST } "
        "dummy_data_param { shape { dim: 7 } } } layer { name: 'c' type: 'ReLU' }");
    ct_parallel *p = NULL;

    (void)state;
    assert_int_equal(parse("global_batch: 12 micro_batches: 3 stage { first: 'a' last: 'b' rank: 0 "
                           "again { first: 'a' last: 'b' } again { first: 'c' last: 'd' } }",
                           &p),
                     CT_OK);
    assert_int_equal(ct_parallel_set_dummy(p, net), CT_OK);
    assert_int_equal(net->n_layer, 7);
    assert_int_equal(net->layer[0]->dummy_data_param->shape[0]->dim[0], 7);
    assert_int_equal(net->layer[1]->dummy_data_param->shape[0]->dim[0], 4);
    assert_int_equal(net->layer[1]->dummy_data_param->shape[0]->dim[1], 5);
    assert_int_equal(net->layer[1]->dummy_data_param->shape[1]->dim[0], 1);
    assert_int_equal(net->layer[1]->dummy_data_param->shape[3]->dim[0], 4);
    assert_int_equal(net->layer[2]->dummy_data_param->num[0], 4);
    assert_int_equal(net->layer[2]->dummy_data_param->num[1], 2);
    assert_int_equal(net->layer[2]->dummy_data_param->channels[0], 7);
    assert_int_equal(net->layer[2]->exclude[0]->phase, CT__PHASE__TEST);
    /* of both phases: TEST's has a layer of its own, which keeps its batch */
    assert_string_equal(net->layer[3]->name, "b");
    assert_int_equal(net->layer[3]->exclude[0]->phase, CT__PHASE__TRAIN);
    assert_int_equal(net->layer[3]->dummy_data_param->num[0], 7);
    assert_int_equal(net->layer[4]->n_include, 1);
    assert_int_equal(net->layer[4]->include[0]->phase, CT__PHASE__TRAIN);
    assert_string_equal(net->layer[4]->include[0]->stage[0], "x");
    assert_int_equal(net->layer[4]->dummy_data_param->shape[0]->dim[0], 4);
    assert_int_equal(net->layer[5]->n_include, 2);
    assert_int_equal(net->layer[5]->include[0]->phase, CT__PHASE__TEST);
    assert_int_equal(net->layer[5]->dummy_data_param->shape[0]->dim[0], 7);
    assert_int_equal(p->n_again, 2);
    assert_string_equal(p->again[0].last, "b");
    assert_string_equal(p->again[1].first, "c");
    ct_parallel_destroy(p);
    ct__net_parameter__free_unpacked(net, NULL);
}

/* ---- against a net */

static void test_bind_refuses(void **state)
{
    static const wrong all[] = {
        { HEAD "stage { first: 'cnov' last: 'pool' rank: 0 rank: 1 }\n" TWO,
          "p:2: stage 0 names \"cnov\", which no layer of the net is called; did you mean "
          "\"conv\"?" },
        { HEAD ONE "stage { first: 'fc1'\nlast: 'nothing' rank: 2 rank: 3 }",
          "p:4: stage 1 names \"nothing\", which no layer of the net is called" },
        { HEAD "stage { first: 'relu' last: 'pool' rank: 0 rank: 1 }\n" TWO,
          "p:2: layer \"conv\" (Convolution) is in no stage: stage 0 begins with \"relu\" (ReLU)" },
        { HEAD "stage { first: 'conv' last: 'relu' rank: 0 rank: 1 }\n" TWO,
          "p:3: layer \"pool\" (Pooling) is in no stage: stage 0 ends with \"relu\" (ReLU), and "
          "stage 1 begins with \"fc1\" (InnerProduct)" },
        { HEAD ONE "stage { first: 'fc1' last: 'fc3' rank: 2 rank: 3 }",
          "p:3: layer \"loss\" (SoftmaxWithLoss) is in no stage: stage 1, the last one, ends with "
          "\"fc3\" (InnerProduct)" },
        { HEAD "stage { first: 'conv' last: 'fc1' rank: 0 rank: 1 }\n" TWO,
          "p:3: stage 1 has layer \"fc1\" (InnerProduct), which stage 0 has already" },
        { HEAD TWO "stage { first: 'conv' last: 'pool' rank: 0 rank: 1 }",
          "p:3: stage 1 stands before stage 0 in the net: stages go in the order of the layers" },
        { HEAD "stage { first: 'pool' last: 'conv' rank: 0 rank: 1 }\n" TWO,
          "p:2: stage 0: its first layer \"pool\" (Pooling) stands behind its last, \"conv\" "
          "(Convolution)" },
        { HEAD "stage { first: 'd' last: 'd' rank: 0 rank: 1 }\n"
               "stage { first: 'conv' last: 'loss' rank: 2 rank: 3 }",
          "p:2: stage 0 has no layer of the TRAIN net that reads anything" },
        { HEAD ONE TWO_WITH("layer { name: 'fc4' }"),
          "p:4: an entry of stage 1 names \"fc4\", which no layer of the net is called; did you "
          "mean \"fc1\"?" },
        { HEAD ONE TWO_WITH("layer { name: 'conv' split: OUTPUT }"),
          "p:4: an entry of stage 1 names layer \"conv\" (Convolution), which is in stage 0" },
        { HEAD ONE TWO_WITH("layer { name: 'fc1' }\nlayer { name: 'fc1' split: OUTPUT }"),
          "p:5: stage 1 has two entries for layer \"fc1\" (InnerProduct)" },
        { HEAD ONE TWO_WITH("layer { name: 'fc1'\nsplit: HEADS }"),
          "p:5: layer \"fc1\" (InnerProduct) cannot be split HEADS: it may be BATCH, OUTPUT, "
          "INPUT, "
          "REPLICATE or ONE" },
        { HEAD ONE TWO_WITH("layer { name: 'relu1' split: INPUT }"),
          "p:4: layer \"relu1\" (ReLU) cannot be split INPUT: it may be BATCH, OUTPUT, SEQUENCE, "
          "REPLICATE or ONE" },
        { HEAD ONE TWO_WITH("layer { name: 'accuracy' split: OUTPUT }"),
          "p:4: layer \"accuracy\" (Accuracy) cannot be split OUTPUT: it may be BATCH, "
          "REPLICATE or ONE" },
        { HEAD ONE TWO_WITH("layer { name: 'relu1' split: ONE\npart: 2 }"),
          "p:5: part 2 of layer \"relu1\" (ReLU): a replica of 2 ranks has parts 0 to 1" },
        { HEAD ONE TWO_WITH("layer { name: 'relu1' split: OUTPUT\npart: 1 }"),
          "p:5: part is for split ONE; layer \"relu1\" (ReLU) is OUTPUT" },
        { HEAD "stage { first: 'conv' last: 'loss' rank: 0 rank: 1 rank: 2 rank: 3 tensor: 4\n"
               "layer { name: 'd' split: ONE } }",
          "p:3: layer \"d\" (DummyData) reads nothing, so it cannot be ONE" },
        { HEAD ONE TWO_WITH("layer { name: 'relu1' split: SEQUENCE }"),
          "p:4: layer \"relu1\" (ReLU) cannot be split SEQUENCE: its bottom has shape 8 6 (48), "
          "and no tokens" },
        { "ranks: 6 global_batch: 16\n" ONE
          "stage { first: 'fc1' last: 'loss' rank: 2 rank: 3 rank: 4 rank: 5 tensor: 4\n"
          "layer { name: 'fc3' split: OUTPUT } }",
          "p:4: layer \"fc3\" (InnerProduct) cannot be split OUTPUT: it has 3 outputs for tensor "
          "4" },
        { HEAD ONE TWO_WITH("again { first: 'conv' last: 'relu1' }"),
          "p:4: again of stage 1 names layer \"conv\" (Convolution), which is in stage 0" },
        { HEAD ONE TWO_WITH("again { first: 'fc1'\nlast: 'relux' }"),
          "p:5: again of stage 1 names \"relux\", which no layer of the net is called; did you "
          "mean \"relu\"?" },
        { HEAD ONE TWO_WITH("again { first: 'fc2' last: 'fc1' }"),
          "p:4: again of stage 1: its first layer \"fc2\" (InnerProduct) stands behind its last, "
          "\"fc1\" (InnerProduct)" },
        { HEAD ONE TWO_WITH(
              "again { first: 'fc1' last: 'fc2' }\nagain { first: 'fc2' last: 'relu2' }"),
          "p:5: again of stage 1: the segment from \"fc2\" (InnerProduct) on overlaps the one "
          "before, which ends with \"fc2\" (InnerProduct)" },
        { HEAD ONE TWO_WITH(
              "again { first: 'fc2' last: 'relu2' }\nagain { first: 'fc1' last: 'relu1' }"),
          "p:5: again of stage 1: the segment from \"fc1\" (InnerProduct) on stands before the one "
          "before, which ends with \"relu2\" (ReLU)" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        refused(NET, all[i].file, all[i].line);
}

static void test_hash(void **state)
{
    char text[200], line[200];
    parsed_net f;
    ct_parallel *p;

    (void)state;
    open_net(NET, CT_TRAIN, &f);
    snprintf(text, sizeof(text), "net_hash: '%016" PRIx64 "' ranks: 1 global_batch: 8\n%s",
             ct_net_hash(f.net), "stage { first: 'conv' last: 'loss' rank: 0 }");
    p = bound(text, &f);
    ct_parallel_destroy(p);
    snprintf(line, sizeof(line),
             "p:2: the file is for a net of hash 50610790edf0873b, but \"\" has hash %016" PRIx64,
             ct_net_hash(f.net));
    parsed_net_close(&f);
    refused(NET, "\nnet_hash: '50610790edf0873b' global_batch: 8\n" ALL("", "rank: 0"), line);
}

/* An inserted Split. */
#define BRANCH                                                                                     \
    DATA CONV "layer { name: 'a' type: 'InnerProduct' bottom: 'p' top: 'a' "                       \
              "inner_product_param { num_output: 3 } } "                                           \
              "layer { name: 'b' type: 'InnerProduct' bottom: 'p' top: 'b' "                       \
              "inner_product_param { num_output: 3 } } "                                           \
              "layer { name: 'sum' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 's' } " ENDS

static void test_splits(void **state)
{
    parsed_net f;
    ct_parallel *p;
    ct_sharded_net s;
    int n = 0;

    (void)state;
    refused(BRANCH,
            HEAD "stage { first: 'conv' last: 'p_pool_0_split' rank: 0 rank: 1 }\n"
                 "stage { first: 'a' last: 'loss' rank: 2 rank: 3 }",
            "p:2: stage 0 names \"p_pool_0_split\", a Split that the net makes of blob \"p\": it "
            "goes with the layer that makes the blob, and cannot be named");
    open_net(BRANCH, CT_TRAIN, &f);
    p = bound(HEAD ONE "stage { first: 'a' last: 'loss' rank: 2 rank: 3 }", &f);
    assert_int_equal(ct_sharded_net_make(p, f.net, &s), CT_OK);
    for (int i = 0; i < f.net->n_layer; i++) {
        if (strcmp(f.net->layer[i]->name, "p_pool_0_split") != 0) continue;
        assert_int_equal(s.stage[i], 0);
        n++;
    }
    assert_int_equal(n, 1);
    ct_sharded_net_destroy(&s);
    ct_parallel_destroy(p);
    parsed_net_close(&f);
}

static int stage_of(const ct_sharded_net *s, const char *name)
{
    int i = ct_net_find_layer(s->net, name);

    if (i < 0) fail_msg("no layer %s", name);
    return s->stage[i];
}

/* Sources go with their first reader, layers of TEST alone with the one before; in both phases. */
static void test_places(void **state)
{
    static const char *const name[] = { "other", "d",     "conv",  "relu",  "pool",
                                        "fc1",   "relu1", "fc2",   "fc3",   "accuracy",
                                        "loss",  "seen",  "relu2", "added", NULL };
    static const int stage[] = { 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    static const char text[] =
        "layer { name: 'other' type: 'DummyData' top: 'o' dummy_data_param { shape { dim: 8 dim: 6 "
        "} } } " DATA CONV "layer { name: 'fc1' type: 'InnerProduct' bottom: 'p' top: 'f' "
        "inner_product_param { num_output: 6 } } "
        "layer { name: 'added' type: 'Eltwise' bottom: 'f' bottom: 'o' top: 'h' } "
        "layer { name: 'relu1' type: 'ReLU' bottom: 'h' top: 'h' } "
        "layer { name: 'fc2' type: 'InnerProduct' bottom: 'h' top: 'g' "
        "inner_product_param { num_output: 5 } } "
        "layer { name: 'relu2' type: 'ReLU' bottom: 'g' top: 'g' } "
        "layer { name: 'fc3' type: 'InnerProduct' bottom: 'g' top: 's' "
        "inner_product_param { num_output: 3 } } " ENDS;

    (void)state;
    for (int phase = 0; phase < 2; phase++) {
        parsed_net f, g;
        ct_parallel *p;
        ct_sharded_net s;
        ct_net_options o = { .phase = CT_TEST, .env = { .n_rank = 1 }, .forward_only = true };
        ct_net *test = NULL;

        open_net(text, CT_TRAIN, &f);
        p = bound(HEAD ONE TWO, &f);
        assert_int_equal(ct_net_create(f.param, &o, &test), CT_OK);
        open_net(text, CT_TEST, &g); /* of another file, with the same names */
        if (phase == 0) {
            assert_int_equal(ct_sharded_net_make(p, f.net, &s), CT_OK);
            for (int i = 0; name[i] != NULL; i++) {
                if (ct_net_find_layer(f.net, name[i]) >= 0)
                    assert_int_equal(stage_of(&s, name[i]), stage[i]);
            }
            ct_sharded_net_destroy(&s);
        }
        assert_int_equal(ct_sharded_net_make(p, (phase == 0) ? test : g.net, &s), CT_OK);
        for (int i = 0; name[i] != NULL; i++) {
            if (stage_of(&s, name[i]) != stage[i])
                fail_msg("%s: %d", name[i], stage_of(&s, name[i]));
        }
        ct_sharded_net_destroy(&s);
        ct_net_destroy(test);
        parsed_net_close(&g);
        ct_parallel_destroy(p);
        parsed_net_close(&f);
    }
}

/* Layers of TEST alone before the first stage and within a later one that names them. */
static void test_named_in_test(void **state)
{
    parsed_net f;
    ct_parallel *p;

    (void)state;
    open_net(NET, CT_TRAIN, &f);
    p = bound("ranks: 3 global_batch: 9\n"
              "stage { first: 'd' last: 'fc3' rank: 0 }\n"
              "stage { first: 'accuracy' last: 'loss' rank: 1 rank: 2 }",
              &f);
    assert_int_equal(p->layer[p->n_layer - 3].stage, 1); /* accuracy */
    assert_int_equal(p->layer[p->n_layer - 1].stage, 1); /* seen, behind the loss */
    assert_int_equal(p->layer[0].stage, 0);
    assert_int_equal(p->layer[1].stage, 0);
    ct_parallel_destroy(p);
    p = bound("ranks: 3 global_batch: 9\n"
              "stage { first: 'conv' last: 'fc3' rank: 0 }\n"
              "stage { first: 'loss' last: 'loss' rank: 1 rank: 2 }",
              &f);
    assert_int_equal(p->layer[p->n_layer - 3].stage, 0);
    ct_parallel_destroy(p);
    parsed_net_close(&f);
}

/* ---- what the net must not have */

#define IDS                                                                                        \
    "layer { name: 'ids' type: 'DummyData' top: 'i' top: 'next' dummy_data_param { "               \
    "shape { dim: 4 dim: 6 } shape { dim: 4 dim: 6 } } } "
#define EMBED(_weight)                                                                             \
    "layer { name: 'table' type: 'Embed' bottom: 'i' top: 'e' param { name: '" _weight "' } "      \
    "embed_param { num_output: 8 input_dim: 10 bias_term: false } } "
#define BLOCK(_name, _bottom, _weight)                                                             \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name "' "       \
    "param { name: '" _weight                                                                      \
    "' } inner_product_param { num_output: 8 axis: 2 bias_term: false } } "
#define SCORES(_bottom, _weight)                                                                   \
    "layer { name: 'head' type: 'InnerProduct' bottom: '" _bottom "' top: 's' "                    \
    "param { name: '" _weight                                                                      \
    "' } inner_product_param { num_output: 10 axis: 2 bias_term: false } } "                       \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 's' bottom: 'next' top: 'l' "            \
    "softmax_param { axis: 2 } } "

static void test_shared_weights(void **state)
{
    static const char tied[] =
        IDS EMBED("w") BLOCK("m", "e", "a") BLOCK("n", "m", "b") SCORES("n", "w");
    static const char shared[] =
        IDS EMBED("w") BLOCK("m", "e", "a") BLOCK("n", "m", "a") SCORES("n", "v");
    static const char three[] = "ranks: 3 global_batch: 8\n"
                                "stage { first: 'table' last: 'table' rank: 0 }\n"
                                "stage { first: 'm' last: 'm' rank: 1 }\n"
                                "stage { first: 'n' last: 'loss' rank: 2 }";
    parsed_net f;

    (void)state;
    open_net(tied, CT_TRAIN, &f);
    ct_parallel_destroy(bound(three, &f));
    parsed_net_close(&f);
    refused(shared, three,
            "p:4: layers \"m\" (InnerProduct) of stage 1 and \"n\" (InnerProduct) of stage 2 share "
            "the weight \"a\": both belong into one stage, but for a table that an Embed of the "
            "first has and the head in the last");
    refused(tied,
            "ranks: 3 global_batch: 8\nstage { first: 'table' last: 'm' rank: 0 }\n"
            "stage { first: 'n' last: 'head' rank: 1 }\nstage { first: 'loss' last: 'loss' rank: 2 "
            "}",
            "p:3: layers \"table\" (Embed) of stage 0 and \"head\" (InnerProduct) of stage 1 share "
            "the weight \"w\": both belong into one stage, but for a table that an Embed of the "
            "first has and the head in the last");
}

static void test_state_and_filter(void **state)
{
    static const char lstm[] =
        "layer { name: 'd' type: 'DummyData' top: 'x' top: 'c' dummy_data_param { "
        "shape { dim: 3 dim: 4 dim: 5 } shape { dim: 3 dim: 4 } } } "
        "layer { name: 'mem' type: 'LSTM' bottom: 'x' bottom: 'c' top: 'y' "
        "recurrent_param { num_output: 6 } } ";
    static const char filter[] =
        "layer { name: 'd' type: 'DummyData' top: 'x' top: 'k' dummy_data_param { "
        "shape { dim: 4 dim: 5 } shape { dim: 4 } } } "
        "layer { name: 'some' type: 'Filter' bottom: 'x' bottom: 'k' top: 'y' } "
        "layer { name: 'end' type: 'InnerProduct' bottom: 'y' top: 'z' "
        "inner_product_param { num_output: 2 } } ";
    parsed_net f;

    (void)state;
    refused(lstm, "global_batch: 4\nmicro_batches: 2\nstage { first: 'mem' last: 'mem' rank: 0 }",
            "p:2: layer \"mem\" (LSTM) carries its state from batch to batch: micro_batches must "
            "be 1");
    refused(filter,
            "global_batch: 4\nmicro_batches: 2\nstage { first: 'some' last: 'end' rank: 0 }",
            "p:2: layer \"some\" (Filter) passes on another number of samples in each batch: "
            "micro_batches must be 1");
    open_net(lstm, CT_TRAIN, &f);
    ct_parallel_destroy(bound("global_batch: 4 stage { first: 'mem' last: 'mem' rank: 0 }", &f));
    parsed_net_close(&f);
}

/* ---- how layers and values are split */

/* "fc1 OUTPUT, relu1 OUTPUT; SumParts of f for relu" of all stages. */
static void describe(const ct_sharded_net *s, char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    for (int i = 0; i < s->net->n_layer; i++) {
        const ct_layer *l = s->net->layer[i];

        if (s->split[i] == CT_PARALLEL_BATCH) continue;
        at += (size_t)snprintf(text + at, size - at, "%s%s %s", (at > 0) ? ", " : "", l->name,
                               ct_split_name(s->split[i]));
        assert_true(at < size);
    }
    for (int i = 0; i < s->n_conversion; i++) {
        const ct_conversion *c = &s->conversion[i];

        at += (size_t)snprintf(text + at, size - at, "; %s of %s for %s", ct_conversion_name(c),
                               s->net->pass->instance[c->layer]->bottom[c->bottom]->name,
                               s->net->layer[c->layer]->name);
        assert_true(at < size);
    }
}

static void shards(const char *net, const char *entries, const char *as)
{
    char file[2000], text[2000];
    parsed_net f;
    ct_parallel *p;
    ct_sharded_net s;

    open_net(net, CT_TRAIN, &f);
    snprintf(
        file, sizeof(file),
        "ranks: 2 global_batch: 8\nstage { first: '%s' last: 'loss' rank: 0 rank: 1 tensor: 2\n"
        "%s }",
        (strstr(net, "'table'") != NULL) ? "table" : "conv", entries);
    p = bound(file, &f);
    assert_int_equal(ct_sharded_net_make(p, f.net, &s), CT_OK);
    describe(&s, text, sizeof(text));
    if (strcmp(text, as) != 0) fail_msg("%s\nis:  %s\nnot: %s", entries, text, as);
    ct_sharded_net_destroy(&s);
    ct_parallel_destroy(p);
    parsed_net_close(&f);
}

/* The blocks of a language model. */
#define GPT                                                                                        \
    IDS EMBED("w") "layer { name: 'ln' type: 'LayerNorm' bottom: 'e' top: 'n' } "                  \
                   "layer { name: 'qkv' type: 'InnerProduct' bottom: 'n' top: 'qkv' "              \
                   "inner_product_param { num_output: 24 axis: 2 } } "                             \
                   "layer { name: 'att' type: 'Attention' bottom: 'qkv' top: 'att' "               \
                   "attention_param { num_heads: 4 causal: true } } "                              \
                   "layer { name: 'proj' type: 'InnerProduct' bottom: 'att' top: 'o' "             \
                   "inner_product_param { num_output: 8 axis: 2 } } "                              \
                   "layer { name: 'drop' type: 'Dropout' bottom: 'o' top: 'o' } "                  \
                   "layer { name: 'sum' type: 'Eltwise' bottom: 'e' bottom: 'o' top: 'h' } "       \
                   "layer { name: 'gate' type: 'InnerProduct' bottom: 'h' top: 'gate' "            \
                   "inner_product_param { num_output: 12 axis: 2 } } "                             \
                   "layer { name: 'glu' type: 'SwiGLU' bottom: 'gate' top: 'glu' } "               \
                   "layer { name: 'down' type: 'InnerProduct' bottom: 'glu' top: 'down' "          \
                   "inner_product_param { num_output: 8 axis: 2 } } " SCORES("down", "w")

/* Branches side by side, whose sums join: WAY is one of them. */
#define WAY(_n)                                                                                    \
    "layer { name: 'in" _n "' type: 'InnerProduct' bottom: 'e' top: 'in" _n                        \
    "' inner_product_param { num_output: 12 axis: 2 } } "                                          \
    "layer { name: 'out" _n "' type: 'InnerProduct' bottom: 'in" _n "' top: 'out" _n               \
    "' inner_product_param { num_output: 8 axis: 2 } } "
#define JOINED(_terms, _more)                                                                      \
    IDS EMBED("w") WAY("1") WAY("2") "layer { name: 'sum' type: 'Eltwise' " _terms                 \
                                     " top: 'h' " _more " } " SCORES("h", "v")
#define SPLIT_WAYS                                                                                 \
    "layer { name: 'in1' split: OUTPUT } layer { name: 'out1' split: INPUT } "                     \
    "layer { name: 'in2' split: OUTPUT } layer { name: 'out2' split: INPUT } "
#define TABLE   "table REPLICATE, e_table_0_split REPLICATE, "
#define GATHERS "; Gather of i for table; "
#define WAYS    "in1 OUTPUT, out1 INPUT, in2 OUTPUT, out2 INPUT"

/* Values in parts that one layer adds up are summed over the ranks once. */
static void test_joined(void **state)
{
    (void)state;
    shards(JOINED("bottom: 'e' bottom: 'out1' bottom: 'out2'", ""),
           SPLIT_WAYS
           "layer { name: 'table' split: REPLICATE } layer { name: 'sum' split: REPLICATE }",
           TABLE WAYS ", sum REPLICATE" GATHERS "SumParts of out1 for sum; Slice of h for head");
    shards(JOINED("bottom: 'e' bottom: 'out1' bottom: 'out2'", "eltwise_param { operation: MAX }"),
           SPLIT_WAYS
           "layer { name: 'table' split: REPLICATE } layer { name: 'sum' split: REPLICATE }",
           TABLE WAYS ", sum REPLICATE" GATHERS
                      "SumParts of out1 for sum; SumParts of out2 for sum; Slice of h for head");
    shards(JOINED("bottom: 'out1' bottom: 'out2'", "eltwise_param { coeff: 2 coeff: 1 }"),
           SPLIT_WAYS "layer { name: 'table' split: REPLICATE }",
           TABLE WAYS ", sum INPUT" GATHERS "ReduceScatter of h for head");
    shards(JOINED("bottom: 'e' bottom: 'out1' bottom: 'out2'", ""),
           SPLIT_WAYS "layer { name: 'sum' split: SEQUENCE }",
           WAYS ", sum SEQUENCE; Gather of e_table_0_split_0 for in1; Gather of e_table_0_split_1 "
                "for in2; Gather, Slice of e_table_0_split_2 for sum; ReduceScatter of out1 for "
                "sum; Gather, Slice of h for head");
}

static void test_layouts(void **state)
{
    (void)state;
    shards(NET, "", "");
    /* the file of docs/parallel.md: each rank has some outputs, then their part of the sums */
    shards(NET, "layer { name: 'fc1' split: OUTPUT } layer { name: 'fc2' split: INPUT }",
           "fc1 OUTPUT, relu1 OUTPUT, fc2 INPUT, relu2 REPLICATE; Gather of p for fc1; SumParts of "
           "g for relu2; Slice of g for fc3");
    shards(NET,
           "layer { name: 'fc1' split: OUTPUT } layer { name: 'fc2' split: INPUT } "
           "layer { name: 'relu2' }",
           "fc1 OUTPUT, relu1 OUTPUT, fc2 INPUT; Gather of p for fc1; ReduceScatter of g for "
           "relu2");
    /* channels go with the convolution through what acts on each, into a product's inputs */
    shards(NET, "layer { name: 'conv' split: OUTPUT } layer { name: 'fc1' split: INPUT }",
           "conv OUTPUT, relu OUTPUT, pool OUTPUT, fc1 INPUT, relu1 REPLICATE; Gather of x for "
           "conv; SumParts of f for relu1; Slice of f for fc2");
    shards(NET, "layer { name: 'conv' split: OUTPUT }",
           "conv OUTPUT, relu OUTPUT, pool OUTPUT; Gather of x for conv; Gather, Slice of p for "
           "fc1");
    /* the scores with their loss */
    shards(NET, "layer { name: 'fc3' split: OUTPUT } layer { name: 'loss' split: OUTPUT }",
           "fc3 OUTPUT, loss OUTPUT; Gather of g for fc3; Gather of label for loss");
    shards(NET, "layer { name: 'fc3' split: OUTPUT }",
           "fc3 OUTPUT; Gather of g for fc3; Gather, Slice of s for loss");
    shards(NET, "layer { name: 'conv' split: REPLICATE }",
           "conv REPLICATE, relu REPLICATE, pool REPLICATE; Gather of x for conv; Slice of p for "
           "fc1");
}

/* Groups of channels stay whole. An entry splits them; what acts on each channel goes along. */
static void test_groups(void **state)
{
#define GROUPS(_n, _out)                                                                           \
    DATA CONV "layer { name: 'g' type: 'Convolution' bottom: 'p' top: 'g' convolution_param { "    \
              "kernel_size: 1 num_output: " _out " group: " _n " } } "                             \
              "layer { name: 'fc3' type: 'InnerProduct' bottom: 'g' top: 's' "                     \
              "inner_product_param { num_output: 3 } } " ENDS
    static const char file[] = "ranks: 3 global_batch: 9\n"
                               "stage { first: 'conv' last: 'loss' rank: 0 rank: 1 rank: 2 "
                               "tensor: 3\nlayer { name: 'g' split: OUTPUT } }";

    (void)state;
    shards(
        GROUPS("2", "6"), "layer { name: 'conv' split: OUTPUT } layer { name: 'g' split: OUTPUT }",
        "conv OUTPUT, relu OUTPUT, pool OUTPUT, g OUTPUT; Gather of x for conv; Gather, Slice of "
        "g for fc3");
    shards(GROUPS("2", "6"), "layer { name: 'conv' split: OUTPUT }",
           "conv OUTPUT, relu OUTPUT, pool OUTPUT; Gather of x for conv; Gather, Slice of p for g");
    shards(
        GROUPS("4", "4"), "layer { name: 'conv' split: OUTPUT }",
        "conv OUTPUT, relu OUTPUT, pool OUTPUT, g OUTPUT; Gather of x for conv; Gather, Slice of "
        "g for fc3");
    refused(GROUPS("2", "6"), file,
            "p:3: layer \"g\" (Convolution) cannot be split OUTPUT: its 2 groups cannot be divided "
            "by tensor 3");
    refused(GROUPS("2", "2"), file,
            "p:3: layer \"g\" (Convolution) cannot be split OUTPUT: its 2 groups cannot be divided "
            "by tensor 3");
    shards(
        GPT, "layer { name: 'table' split: OUTPUT }",
        "table OUTPUT, e_table_0_split OUTPUT, sum OUTPUT; Gather of i for table; Gather, Slice of "
        "e_table_0_split_0 for ln; Gather, Slice of o for sum; Gather, Slice of h for gate");
}

static void test_layouts_of_tokens(void **state)
{
    (void)state;
    /* what both products read is gathered once, in front of the Split where both want the same */
    shards(BRANCH, "layer { name: 'a' split: OUTPUT } layer { name: 'b' split: OUTPUT }",
           "p_pool_0_split REPLICATE, a OUTPUT, b OUTPUT, sum OUTPUT; Gather of p for "
           "p_pool_0_split; Gather, Slice of s for loss");
    shards(BRANCH, "layer { name: 'a' split: OUTPUT }",
           "a OUTPUT, sum OUTPUT; Gather of p_pool_0_split_0 for a; Gather, Slice of b for sum; "
           "Gather, Slice of s for loss");
    /* heads of packed queries, keys and values; the sum takes what the other end of it has */
    shards(
        GPT,
        "layer { name: 'qkv' split: OUTPUT } layer { name: 'att' split: HEADS } "
        "layer { name: 'proj' split: INPUT } layer { name: 'gate' split: OUTPUT } "
        "layer { name: 'down' split: INPUT }",
        "qkv OUTPUT, att HEADS, proj INPUT, drop REPLICATE, gate OUTPUT, glu OUTPUT, down INPUT; "
        "Gather of n for qkv; SumParts of o for drop; Slice of o for sum; Gather of h for gate; "
        "ReduceScatter of down for head");
    /* tokens between the products */
    shards(
        GPT,
        "layer { name: 'table' split: INPUT } layer { name: 'ln' split: SEQUENCE } "
        "layer { name: 'qkv' split: OUTPUT } layer { name: 'att' split: HEADS } "
        "layer { name: 'proj' split: INPUT } layer { name: 'drop' split: SEQUENCE } "
        "layer { name: 'sum' split: SEQUENCE }",
        "table INPUT, e_table_0_split REPLICATE, ln SEQUENCE, qkv OUTPUT, att HEADS, proj INPUT, "
        "drop SEQUENCE, sum SEQUENCE; Gather of i for table; SumParts of e for e_table_0_split; "
        "Slice of e_table_0_split_0 for ln; Gather of n for qkv; ReduceScatter of o for drop; "
        "Slice of e_table_0_split_1 for sum; Gather, Slice of h for gate");
    /* gate and up side by side are shared out each for itself */
    shards(GPT, "layer { name: 'gate' split: OUTPUT } layer { name: 'glu' split: BATCH }",
           "gate OUTPUT; Gather of h for gate; Gather, Slice of gate for glu");
}

/* Layers that one rank has by itself, with what goes with them; others read sums of what they make.
 */
static void test_ones(void **state)
{
#define TWO_RANKS(_more) "ranks: 2 global_batch: 8\n" ALL("", "rank: 0 rank: 1 tensor: 2\n" _more)
#define A_AND_B          "layer { name: 'a' split: ONE } layer { name: 'b' split: ONE part: 1 }"
#define SCALED                                                                                     \
    DATA CONV "layer { name: 'a' type: 'InnerProduct' bottom: 'p' top: 'a' "                       \
              "inner_product_param { num_output: 3 } } "                                           \
              "layer { name: 'b' type: 'InnerProduct' bottom: 'p' top: 'b' "                       \
              "inner_product_param { num_output: 3 } } "                                           \
              "layer { name: 'sum' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 's' "              \
              "eltwise_param { coeff: 1 coeff: 2 } } " ENDS
#define TOWERS                                                                                     \
    DATA CONV "layer { name: 'a' type: 'InnerProduct' bottom: 'p' top: 'a' "                       \
              "inner_product_param { num_output: 3 } } "                                           \
              "layer { name: 'm' type: 'InnerProduct' bottom: 'p' top: 'm' "                       \
              "inner_product_param { num_output: 3 } } "                                           \
              "layer { name: 'b' type: 'InnerProduct' bottom: 'm' top: 'b' "                       \
              "inner_product_param { num_output: 3 } } "                                           \
              "layer { name: 'sum' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 's' } " ENDS
#define TWINS                                                                                      \
    DATA CONV "layer { name: 'a' type: 'InnerProduct' bottom: 'p' top: 'a' param { name: 'w' } "   \
              "inner_product_param { num_output: 3 bias_term: false } } "                          \
              "layer { name: 'b' type: 'InnerProduct' bottom: 'p' top: 'b' param { name: 'w' } "   \
              "inner_product_param { num_output: 3 bias_term: false } } "                          \
              "layer { name: 'sum' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 's' } " ENDS

    (void)state;
    shards(BRANCH, A_AND_B,
           "p_pool_0_split REPLICATE, a ONE, b ONE, sum INPUT; Gather of p for p_pool_0_split; "
           "ReduceScatter of s for loss");
    shards(BRANCH, A_AND_B " layer { name: 'loss' split: REPLICATE }",
           "p_pool_0_split REPLICATE, a ONE, b ONE, sum INPUT, loss REPLICATE; Gather of p for "
           "p_pool_0_split; SumParts of s for loss; Gather of label for loss");
    /* all of it goes along, but for losses */
    refused(NET, TWO_RANKS("layer { name: 'fc1' split: ONE }"),
            "p:3: layer \"loss\" (SoftmaxWithLoss) reads \"s\", which rank 0 of a replica has by "
            "itself: it must be ONE there, too, or a plain sum of such values");
    refused(SCALED, TWO_RANKS(A_AND_B),
            "p:3: layer \"sum\" (Eltwise) reads \"a\", which rank 0 of a replica has by itself: it "
            "must be ONE there, too, or a plain sum of such values");
    refused(
        BRANCH, "ranks: 3 global_batch: 9\n" ALL("", "rank: 0 rank: 1 rank: 2 tensor: 3\n" A_AND_B),
        "p:3: layer \"sum\" adds up what ranks of a replica have by themselves, but rank 2 of 3 "
        "has none of it");
    refused(
        TOWERS, TWO_RANKS(A_AND_B),
        "p:3: layer \"a\" (InnerProduct) is ONE and reads \"p\", whose gradient is a sum over the "
        "2 ranks of a replica: rank 1 has no ONE layer that reads it");
    refused(TWINS, TWO_RANKS(A_AND_B),
            "p:3: layers \"a\" and \"b\" share a weight: where one is ONE, the other must be, with "
            "the same part");
    refused(TWINS, TWO_RANKS("layer { name: 'b' split: REPLICATE }"),
            "p:3: layers \"b\" (REPLICATE) and \"a\" (BATCH) share a weight: where one is "
            "REPLICATE, the other must be");
}

static void test_heads(void **state)
{
    static const char file[] =
        "ranks: 3 global_batch: 9\n"
        "stage { first: 'table' last: 'loss' rank: 0 rank: 1 rank: 2 tensor: "
        "3\nlayer { name: 'att' split: HEADS } }";

    (void)state;
    refused(GPT, file,
            "p:3: layer \"att\" (Attention) cannot be split HEADS: its 4 heads cannot be divided "
            "by tensor 3");
    refused(
        IDS EMBED("w") "layer { name: 'ln' type: 'LayerNorm' bottom: 'e' top: 'n' } "
                       "layer { name: 'qkv' type: 'InnerProduct' bottom: 'n' top: 'qkv' "
                       "inner_product_param { num_output: 16 axis: 2 } } "
                       "layer { name: 'att' type: 'Attention' bottom: 'qkv' top: 'att' "
                       "attention_param { num_heads: 6 num_kv_heads: 1 causal: true } } " SCORES(
                           "att", "v"),
        file,
        "p:3: layer \"att\" (Attention) cannot be split HEADS: its 1 heads of keys and values "
        "cannot be divided by tensor 3");
    refused(GPT,
            "ranks: 4 global_batch: 9\n"
            "stage { first: 'table' last: 'loss' rank: 0 rank: 1 rank: 2 rank: 3 tensor: 4\n"
            "layer { name: 'ln' split: SEQUENCE } }",
            "p:3: layer \"ln\" (LayerNorm) cannot be split SEQUENCE: its 6 tokens cannot be "
            "divided by tensor 4");
}

/* Every layer type has its place: among those that may be split, or here. The last line has those
 * that the program adds to carry values between ranks. */
static void test_every_type(void **state)
{
    static const char whole[] =
        " Accuracy AnnotatedData ArgMax Axpy BatchReindex CenterLoss Concat ContrastiveLoss Crop "
        "Data "
        "Deconvolution DetectionEvaluate DetectionOutput DummyData EuclideanLoss Filter FocalLoss "
        "HDF5Data "
        "HDF5Output "
        "HingeLoss Im2col ImageData InfogainLoss Input L1Loss LSTM LSTMUnit MatMul MemoryData "
        "MultiBoxLoss "
        "MultinomialLogisticLoss Normalize Parameter Permute Position PriorBox PSROIPooling "
        "Python RNN ROIPooling Reduction Reshape ShuffleChannel SigmoidCrossEntropyLoss Slice "
        "SmoothL1Loss SPP TextData Tile TokenData WindowData "
        "CopyToParts Gather Receive ReduceScatter ScatterToParts Send SumParts ToBlocks ";

    (void)state;
    for (int i = 0; ct_layer_table[i] != NULL; i++) {
        Ct__LayerParameter l = CT__LAYER_PARAMETER__INIT;
        Ct__LRNParameter lrn = CT__LRNPARAMETER__INIT;
        Ct__SoftmaxParameter softmax = CT__SOFTMAX_PARAMETER__INIT;
        Ct__ConvolutionParameter conv = CT__CONVOLUTION_PARAMETER__INIT;
        char type[64], spaced[70], why[300];
        bool splits = false;

        snprintf(type, sizeof(type), "%s", ct_layer_table[i]->type);
        snprintf(spaced, sizeof(spaced), " %s ", type);
        lrn.norm_region = CT__LRNPARAMETER__NORM_REGION__WITHIN_CHANNEL;
        softmax.axis = 2;
        l.type = type;
        l.n_bottom = 1;
        l.lrn_param = &lrn;
        l.softmax_param = &softmax;
        l.convolution_param = &conv;
        for (int k = CT_PARALLEL_OUTPUT; k < CT_PARALLEL_REPLICATE; k++)
            splits |= !ct_split_refuses(&l, NULL, (ct_parallel_split)k, 1, why, sizeof(why));
        assert_false(ct_split_refuses(&l, NULL, CT_PARALLEL_BATCH, 2, why, sizeof(why)));
        assert_false(ct_split_refuses(&l, NULL, CT_PARALLEL_REPLICATE, 2, why, sizeof(why)));
        if (splits == (strstr(whole, spaced) != NULL))
            fail_msg("%s is %s: its splits say how it may be split, or this list "
                     "that it may not",
                     type, splits ? "in both" : "in neither");
    }
}

/* What a layer's parameters allow. */
static void test_types_by_parameters(void **state)
{
    static const struct {
        const char *layer;
        const char *why; /* of OUTPUT; NULL: it may */
    } all[] = {
        { "type: 'Convolution' convolution_param { num_output: 8 group: 2 }", NULL },
        { "type: 'Convolution' convolution_param { num_output: 8 axis: 2 }", "it may be BATCH, "
                                                                             "REPLICATE or ONE" },
        { "type: 'Convolution' convolution_param { num_output: 8 group: 8 }", NULL },
        { "type: 'LRN'", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'LRN' lrn_param { norm_region: WITHIN_CHANNEL }", NULL },
        { "type: 'MVN'", NULL },
        { "type: 'MVN' mvn_param { across_channels: true }", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'PReLU'", NULL },
        { "type: 'PReLU' prelu_param { channel_shared: true }",
          "it may be BATCH, REPLICATE or ONE" },
        { "type: 'Scale' bottom: 'x'", NULL },
        { "type: 'Scale' bottom: 'x' bottom: 'y'", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'Bias' bottom: 'x' bias_param { axis: 0 }", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'Flatten' flatten_param { axis: 2 }", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'LayerNorm'", "it may be BATCH, SEQUENCE, REPLICATE or ONE" },
        { "type: 'RMSNorm' rms_norm_param { axis: 1 }", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'Softmax' softmax_param { axis: 1 }", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'Embed'", NULL },
        { "type: 'Pooling'", NULL },
        { "type: 'Pooling' pooling_param { pool: STOCHASTIC }",
          "it may be BATCH, REPLICATE or ONE" },
        { "type: 'Reduction'", "it may be BATCH, REPLICATE or ONE" },
        { "type: 'Attention'", "it may be BATCH, HEADS, REPLICATE or ONE" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        ProtobufCMessage *m = test_parsed(&ct__layer_parameter__descriptor, all[i].layer);
        char why[300] = "";
        bool refuses = ct_split_refuses((const Ct__LayerParameter *)(const void *)m, NULL,
                                        CT_PARALLEL_OUTPUT, 2, why, sizeof(why));

        assert_int_equal(refuses, all[i].why != NULL);
        if (refuses) assert_string_equal(why, all[i].why);
        protobuf_c_message_free_unpacked(m, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_refuses),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_batch_of_solver),
        cmocka_unit_test(test_batch_of_dummies),
        cmocka_unit_test(test_bind_refuses),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_named_in_test),
        cmocka_unit_test(test_shared_weights),
        cmocka_unit_test(test_state_and_filter),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_layouts_of_tokens),
        cmocka_unit_test(test_ones),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_every_type),
        cmocka_unit_test(test_types_by_parameters),
    };

    return cmocka_run_group_tests_name("parallel", tests, NULL, NULL);
}
