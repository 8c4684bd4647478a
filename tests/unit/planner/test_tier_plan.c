/* Model state laid over GPUs, a node's memory and files: every byte by hand. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/text.h"
#include "planner/tier_plan.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"

/* LAYERS products of 64 x 64 on 4 samples a rank, 4 ranks: a weight has 16384 bytes, a rank's piece
 * of it 4096, which is a chunk. With two states a parameter a chunk of model state is 12288. */
enum { LAYERS = 12, RANKS = 4, WEIGHT = 16384, PIECE = 4096, STATE = 3 * PIECE };

typedef struct fixture {
    Ct__NetParameter *param;
    ct_net_options options;
    ct_tier_request q;
    ct_tier_plan p;
} fixture;

static void open_chain(fixture *f)
{
    ct_text t = { 0 };

    ct_text_add(&t, "layer { name: 'x' type: 'DummyData' top: 'v0' top: 'y' dummy_data_param { "
                    "shape { dim: 4 dim: 64 } shape { dim: 4 } } }\n");
    for (int i = 0; i < LAYERS; i++)
        ct_text_add(&t,
                    "layer { name: 'p%d' type: 'InnerProduct' bottom: 'v%d' top: 'v%d' "
                    "inner_product_param { num_output: 64 bias_term: false } }\n",
                    i, i, i + 1);
    ct_text_add(&t,
                "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'v%d' bottom: 'y' top: 'l' }\n",
                LAYERS);
    *f = (fixture){ .param =
                        (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, t.text) };
    ct_text_destroy(&t);
    f->options = (ct_net_options){ .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 1 } };
    f->q = (ct_tier_request){ .param = f->param,
                              .options = &f->options,
                              .node = { .n_rank = RANKS, .device = 1e9, .host = 1e9 },
                              .chunk_bytes = PIECE,
                              .state_bytes = 12 };
}

static void close_chain(fixture *f)
{
    ct__net_parameter__free_unpacked(f->param, NULL);
}

static int64_t sum(const fixture *f, ct_tier t)
{
    return ct_memory_tier_sum(&f->p.rank, t);
}

static void look(fixture *f)
{
    assert_int_equal(ct_tier_plan_make(&f->q, &f->p), CT_OK);
}

/* The plan of memory of the same net without a window. */
static int64_t planned(const fixture *f)
{
    ct_net_options o = f->options;
    ct_net *net = NULL;
    int64_t bytes;

    o.no_data = o.no_fuse = true;
    assert_int_equal(ct_net_create(f->param, &o, &net), CT_OK);
    bytes = (int64_t)net->memory.planned;
    ct_net_destroy(net);
    return bytes;
}

/* What is on a GPU whatever lies there of the model's state. */
static int64_t fixed_of(fixture *f)
{
    f->q.node.device = f->q.node.host = 1e9;
    look(f);
    return sum(f, CT_TIER_DEVICE) - f->p.n_chunk * STATE;
}

static void all_on_the_gpu(void **state)
{
    fixture f;
    const int64_t *b = f.p.rank.bytes[CT_TIER_DEVICE];

    (void)state;
    open_chain(&f);
    look(&f);
    assert_int_equal(f.p.parameters, LAYERS * 64 * 64);
    assert_int_equal(f.p.batch, 4 * RANKS);
    assert_int_equal(f.p.n_chunk, LAYERS);
    assert_int_equal(f.p.on[CT_TIER_DEVICE], LAYERS);
    assert_int_equal(f.p.rank.chunk_loads, 0);
    assert_int_equal(b[CT_USE_WEIGHTS], LAYERS * PIECE);
    assert_int_equal(b[CT_USE_STATES], LAYERS * 2 * PIECE);
    assert_int_equal(b[CT_USE_GRADIENTS], 0);
    /* five weights: where forward ends the last three stay for backward, and the two before them
     * come again; three gradients: one that is made and two that are summed */
    assert_int_equal(b[CT_USE_WINDOW], (5 + 3) * WEIGHT);
    /* two of value, probabilities and gradient at a time, and a few numbers of the loss */
    assert_in_range(b[CT_USE_LOGITS], 2 * 4 * 64 * 4, 2 * 4 * 64 * 4 + 4 * 64);
    assert_int_equal(b[CT_USE_COMMUNICATION], 2 * PIECE);
    assert_int_equal(sum(&f, CT_TIER_HOST), 0);
    assert_int_equal(b[CT_USE_ACTIVATIONS] + b[CT_USE_LOGITS], planned(&f));
    assert_true(b[CT_USE_ACTIVATIONS] >= (LAYERS - 1) * 1024); /* a value for each backward */
    assert_true(f.p.missing < 0);
    /* those nine come twice, the last three once, gradients are summed: 3/4 comes from others */
    assert_true(f.p.between_bytes == (2.0 * 9 + 3 + LAYERS) * WEIGHT * 3 / 4);
    close_chain(&f);
}

static void over_tiers(void **state)
{
    const int places = 1;
    int64_t fixed, landing = 4 * PIECE;
    fixture f;

    (void)state;
    open_chain(&f);
    fixed = fixed_of(&f);
    /* room for 5 of 12 and the place that the others' weights come to, but for a byte of the next;
     * in the node for 7, and their gradients on their way */
    f.q.node.device = (double)(fixed + places * PIECE + 6 * STATE - 1);
    f.q.node.host = RANKS * (double)(7 * STATE + landing);
    look(&f);
    assert_int_equal(f.p.on[CT_TIER_DEVICE], 5);
    assert_int_equal(f.p.on[CT_TIER_HOST], 7);
    assert_int_equal(f.p.missing, -(STATE - 1));
    assert_int_equal(sum(&f, CT_TIER_DEVICE), fixed + places * PIECE + 5 * STATE);
    assert_int_equal(sum(&f, CT_TIER_HOST), 7 * STATE + landing);
    /* four come twice, the last three once. One is still there when the next step begins, but was
     * changed in the node's memory */
    assert_int_equal(f.p.rank.chunk_loads, 2 * 4 + 3);
    assert_true(f.p.down_bytes == 7.0 * PIECE);
    assert_true(f.p.up_bytes == (double)f.p.rank.chunk_loads * PIECE);
    /* a byte less in the node, and a chunk has no place */
    f.q.node.host -= RANKS;
    look(&f);
    assert_int_equal(f.p.on[CT_TIER_HOST], 6);
    assert_int_equal(f.p.missing, STATE);
    assert_int_equal(f.p.lacks, CT_TIER_HOST);
    /* but in files, whose buffers take the place of eight */
    f.q.files = true;
    f.q.node.host += RANKS * 3 * STATE;
    look(&f);
    assert_int_equal(f.p.on[CT_TIER_HOST] + f.p.on[CT_TIER_FILE], 7);
    assert_int_equal(f.p.rank.bytes[CT_TIER_HOST][CT_USE_WINDOW],
                     (f.p.on[CT_TIER_FILE] > 0) ? 8 * STATE : 0);
    assert_true(f.p.missing <= 0);
    /* none on the GPU, where five bytes are left; eleven in the node, but then not their buffers */
    f.q.node.device = (double)(fixed + places * PIECE + 5);
    f.q.node.host = RANKS * (double)(11 * STATE + landing);
    look(&f);
    assert_int_equal(f.p.on[CT_TIER_DEVICE], 0);
    assert_int_equal(f.p.on[CT_TIER_HOST], 3);
    assert_int_equal(f.p.on[CT_TIER_FILE], 9);
    assert_int_equal(f.p.missing, -5);
    /* a byte less than the buffers take */
    f.q.node.host = RANKS * (double)(8 * STATE + landing - 1);
    look(&f);
    assert_int_equal(f.p.on[CT_TIER_HOST], 0);
    assert_int_equal(f.p.missing, STATE);
    assert_int_equal(f.p.lacks, CT_TIER_HOST);
    /* what must be on the GPU does not fit */
    f.q.node.device = (double)(fixed - 1);
    look(&f);
    assert_int_equal(f.p.lacks, CT_TIER_DEVICE);
    assert_true(f.p.missing > 0);
    close_chain(&f);
}

/* 14 bytes, and 2 of gradients that wait. */
static void other_bytes(void **state)
{
    fixture f;

    (void)state;
    open_chain(&f);
    f.q.state_bytes = 14;
    f.q.gradient_bytes = 2;
    look(&f);
    assert_int_equal(f.p.chunk_bytes, 4 * PIECE);
    assert_int_equal(f.p.rank.bytes[CT_TIER_DEVICE][CT_USE_WEIGHTS], LAYERS * PIECE);
    assert_int_equal(f.p.rank.bytes[CT_TIER_DEVICE][CT_USE_STATES], LAYERS * PIECE / 4 * 10);
    assert_int_equal(f.p.rank.bytes[CT_TIER_DEVICE][CT_USE_GRADIENTS], LAYERS * PIECE / 2);
    close_chain(&f);
}

static void probabilities(void **state)
{
    static const char text[] =
        "layer { name: 'x' type: 'DummyData' top: 'x' top: 'y' dummy_data_param { "
        "shape { dim: 2 dim: 64 dim: 16 } shape { dim: 2 } } }\n"
        "layer { name: 'q' type: 'InnerProduct' bottom: 'x' top: 'q' "
        "inner_product_param { num_output: 48 axis: 2 bias_term: false } }\n"
        "layer { name: 'a' type: 'Attention' bottom: 'q' top: 'a' "
        "attention_param { num_heads: 4 causal: true } }\n"
        "layer { name: 'p' type: 'InnerProduct' bottom: 'a' top: 'p' "
        "inner_product_param { num_output: 8 bias_term: false } }\n"
        "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'p' bottom: 'y' top: 'l' }\n";
    const int64_t whole = 2 * 4 * 64 * 64 * 4;
    int64_t before, after;
    fixture f;

    (void)state;
    open_chain(&f);
    close_chain(&f);
    f.q.param = f.param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, text);
    look(&f);
    before = f.p.rank.bytes[CT_TIER_DEVICE][CT_USE_ACTIVATIONS];
    f.q.probabilities = true;
    look(&f);
    after = f.p.rank.bytes[CT_TIER_DEVICE][CT_USE_ACTIVATIONS];
    /* they and their gradient, in backward of attention; the peak may have been elsewhere */
    assert_true((after - before <= 2 * whole) && (after - before >= 2 * whole - before));
    close_chain(&f);
}

static void machines(void **state)
{
    log_capture said;
    ct_machine *m = NULL;
    ct_tier_node n;

    (void)state;
    assert_int_equal(ct_machine_read("v100_8", &m), CT_OK);
    assert_int_equal(ct_tier_node_of(m, 0, 0, false, &n), CT_OK);
    assert_int_equal(n.n_rank, 8);
    assert_true((n.device > 0.94999 * 32e9) && (n.device < 0.95001 * 32e9));
    assert_true((n.host > 0.89999 * 240e9) && (n.host < 0.90001 * 240e9));
    assert_true((n.flop == 15.7e12) && (n.between == 16e9) && (n.link == 16e9));
    assert_int_equal(ct_tier_node_of(m, 0, 0.8, true, &n), CT_OK);
    assert_true((n.device < 0.80001 * 32e9) && (n.host < 0.80001 * 240e9) && (n.flop == 125e12));
    m->node_class[0].gpu_memory = 0;
    log_capture_start(&said);
    assert_int_equal(ct_tier_node_of(m, 0, 0, false, &n), CT_ERR_CONFIG);
    m->node_class[0].gpus = 0;
    assert_int_equal(ct_tier_node_of(m, 0, 0, false, &n), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "have no GPUs"));
    ct_machine_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_on_the_gpu), cmocka_unit_test(over_tiers),
        cmocka_unit_test(other_bytes),    cmocka_unit_test(probabilities),
        cmocka_unit_test(machines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
