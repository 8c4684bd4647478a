/* Pairs of steps: where waits for weights and sums over ranks stand in the lists, and that sums
 * under way change no bit. */
#include "tests/test.h"

#include <stdio.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/net.h"
#include "tests/parsed_net.h"

#define DATA                                                                                       \
    "layer { name: 'in' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {"             \
    "  shape { dim: 3 dim: 2 dim: 16 dim: 16 } shape { dim: 3 } data_filler { type: 'gaussian' }"  \
    "  data_filler { type: 'constant' value: 1 } } }"
#define CONV(_name, _bottom, _top)                                                                 \
    "layer { name: '" _name "' type: 'Convolution' bottom: '" _bottom "' top: '" _top              \
    "' convolution_param { num_output: 4 kernel_size: 3 pad: 1 weight_filler { type: 'xavier' } }" \
    " }"
#define SYNC(_name, _bottom, _top)                                                                 \
    "layer { name: '" _name "' type: 'SyncBN' bottom: '" _bottom "' top: '" _top "' }"
#define HEAD(_bottom)                                                                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: '" _bottom "' top: 'ip'"                      \
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }"                   \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }"

static const char lenet[] =
    DATA CONV("conv1", "data",
              "conv1") "layer { name: 'pool1' type: 'Pooling' bottom: 'conv1' top: 'pool1'"
                       "  pooling_param { pool: MAX kernel_size: 2 stride: 2 } }" CONV(
                           "conv2", "pool1", "conv2") "layer { name: 'relu' type: 'ReLU' bottom: "
                                                      "'conv2' top: 'conv2' }" HEAD("conv2");
static const char chain[] = DATA CONV("c", "data", "c")
    SYNC("b", "c", "c") "layer { name: 'relu' type: 'ReLU' bottom: 'c' top: 'c' }" HEAD("c");
/* Three branches, one without a sum; a sum in place, one not. */
static const char branches[] = DATA CONV("c0", "data", "c0") CONV("c1", "c0", "c1")
    SYNC("b1", "c1", "b1") CONV("c2", "c0", "c2") SYNC("b2", "c2", "c2")
        CONV("c3", "c0", "c3") "layer { name: 'add' type: 'Eltwise' bottom: 'b1' bottom: 'c2' "
                               "bottom: 'c3' top: 'add' }" HEAD("add");

/* Labels that losses and an accuracy count, beside their scores, which a layer in place makes; and
 * SyncBN, whose sums begin and end while they are under way. */
#define IGNORE "loss_param { ignore_label: 2 }"
#define LABELS                                                                                     \
    "layer { name: 'in' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {"             \
    "  shape { dim: 3 dim: 2 dim: 4 dim: 4 } shape { dim: 3 } data_filler { type: 'gaussian' }"    \
    "  data_filler { type: 'constant' value: 1 } } }"
#define SCORES(_bottom)                                                                            \
    "layer { name: 'ip' type: 'InnerProduct' bottom: '" _bottom "' top: 'ip'"                      \
    "  inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }"                   \
    "layer { name: 'relu' type: 'ReLU' bottom: 'ip' top: 'ip' }"
#define LOSS(_name, _type, _more)                                                                  \
    "layer { name: '" _name "' type: '" _type "' bottom: 'ip' bottom: 'label' top: '" _name        \
    "' " _more " }"
static const char counted[] = LABELS SCORES("data") LOSS("loss", "SoftmaxWithLoss", IGNORE);
static const char counts[] = LABELS CONV("c", "data", "c") SYNC("b", "c", "c") SCORES("c")
    LOSS("acc", "Accuracy", "top: 'of' accuracy_param { ignore_label: 2 }")
        LOSS("loss", "FocalLoss", IGNORE)
            LOSS("center", "CenterLoss",
                 "propagate_down: false propagate_down: false center_loss_param { num_output: 3 "
                 "center_filler { type: 'gaussian' } }");

static ct_net_env ranks(int n)
{
    return (ct_net_env){ .n_rank = n, .seed = 5, .synthetic = true };
}

/* "f:conv1" forward, "b:conv1" backward, with ".1" its part; "d:ip" a diff; "+ip[0]" a gradient is
 * final, "-ip[0]" a wait for it; "+b.0", "-b.0" a sum begins, is waited for. */
static void write_step(const ct_net *net, const ct_step *s, char *text, size_t size)
{
    const char *name = net->layer[s->layer]->name;

    if (ct_step_is_of_weights(s))
        snprintf(text, size, "%c%s ", (s->kind == CT_STEP_BEGIN) ? '+' : '-',
                 net->param[s->param].key);
    else if (ct_step_is_pair(s))
        snprintf(text, size, "%c%s.%d ", (s->kind == CT_STEP_BEGIN) ? '+' : '-', name, s->part);
    else if (s->blob >= 0)
        snprintf(text, size, "d:%s ", name);
    else if (s->n_part > 1)
        snprintf(text, size, "%c:%s.%d ", (s->kind == CT_STEP_FORWARD) ? 'f' : 'b', name, s->part);
    else
        snprintf(text, size, "%c:%s ", (s->kind == CT_STEP_FORWARD) ? 'f' : 'b', name);
}

static const char *write_list(const ct_net *net, const ct_step *list, int n)
{
    static char text[2048];

    text[0] = '\0';
    for (int i = 0; i < n; i++)
        write_step(net, &list[i], text + strlen(text), sizeof(text) - strlen(text));
    return text;
}

static void has_lists(const char *text, int n_rank, const char *forward, const char *backward)
{
    ct_net_env env = ranks(n_rank);
    parsed_net f;

    assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_OK);
    assert_string_equal(write_list(f.net, f.net->forward, f.net->n_forward), forward);
    assert_string_equal(write_list(f.net, f.net->backward, f.net->n_backward), backward);
    parsed_net_close(&f);
}

#define LENET_FORWARD                                                                              \
    "f:in -conv1[0] -conv1[1] f:conv1 f:pool1 -conv2[0] -conv2[1] f:conv2 -ip[0] -ip[1] f:ip "     \
    "f:loss "
#define LENET_BACKWARD                                                                             \
    "d:loss b:loss b:ip +ip[0] +ip[1] b:conv2 +conv2[0] +conv2[1] b:pool1 b:conv1 +conv1[0] "      \
    "+conv1[1] "

static void test_without_sums(void **state)
{
    (void)state;
    has_lists(lenet, 1, LENET_FORWARD, LENET_BACKWARD);
    has_lists(lenet, 4, LENET_FORWARD, LENET_BACKWARD);
    has_lists(chain, 1, "f:in -c[0] -c[1] f:c -b[0] -b[1] f:b f:relu -ip[0] -ip[1] f:ip f:loss ",
              "d:loss b:loss b:ip +ip[0] +ip[1] b:relu b:b +b[0] +b[1] b:c +c[0] +c[1] ");
}

/* Nothing can run beside the sums of forward; in backward gradients leave beside one. Where other
 * branches are, they run meanwhile. */
static void test_with_sums(void **state)
{
    (void)state;
    has_lists(chain, 4,
              "f:in -c[0] -c[1] f:c f:b.0 +b.0 -b.0 f:b.1 +b.1 -b.1 -b[0] -b[1] f:b.2 f:relu "
              "-ip[0] -ip[1] f:ip f:loss ",
              "d:loss b:loss b:ip +ip[0] +ip[1] b:relu b:b.0 +b.0 +b[0] +b[1] -b.0 b:b.1 b:c "
              "+c[0] +c[1] ");
    has_lists(branches, 4,
              "f:in -c0[0] -c0[1] f:c0 f:c0_c0_0_split -c1[0] -c1[1] f:c1 f:b1.0 +b1.0 "
              "-c2[0] -c2[1] f:c2 -b1.0 f:b1.1 +b1.1 f:b2.0 +b2.0 -c3[0] -c3[1] f:c3 "
              "-b2.0 f:b2.1 +b2.1 -b1.1 -b1[0] -b1[1] f:b1.2 -b2.1 -b2[0] -b2[1] f:b2.2 f:add "
              "-ip[0] -ip[1] f:ip f:loss ",
              "d:loss b:loss b:ip +ip[0] +ip[1] b:add b:b1.0 +b1.0 b:b2.0 +b2.0 b:c3 +c3[0] "
              "+c3[1] +b2[0] +b2[1] -b2.0 b:b2.1 b:c2 +c2[0] +c2[1] +b1[0] +b1[1] -b1.0 b:b1.1 "
              "b:c1 +c1[0] +c1[1] b:c0_c0_0_split b:c0 +c0[0] +c0[1] ");
}

/* The count of labels begins right behind the data layer, and is waited for in front of the rest of
 * the loss. On one rank the loss is whole. */
static void test_counts_of_labels(void **state)
{
    (void)state;
    has_lists(counted, 1, "f:in -ip[0] -ip[1] f:ip f:relu f:loss ",
              "d:loss b:loss b:relu b:ip +ip[0] +ip[1] ");
    for (int n = 2; n < 4; n++) {
        has_lists(counted, n, "f:in f:loss.0 +loss.0 -ip[0] -ip[1] f:ip f:relu -loss.0 f:loss.1 ",
                  "d:loss b:loss b:relu b:ip +ip[0] +ip[1] ");
        has_lists(
            counts, n,
            "f:in f:label_in_1_split f:acc.0 +acc.0 f:loss.0 +loss.0 f:center.0 +center.0 -c[0] "
            "-c[1] f:c f:b.0 +b.0 -b.0 f:b.1 +b.1 -b.1 -b[0] -b[1] f:b.2 -ip[0] -ip[1] f:ip "
            "f:relu f:ip_relu_0_split -acc.0 f:acc.1 -loss.0 f:loss.1 -center.0 -center[0] "
            "f:center.1 ",
            "d:center b:center +center[0] d:loss b:loss b:ip_relu_0_split b:relu b:ip b:b.0 "
            "+b.0 +ip[0] +ip[1] +b[0] +b[1] -b.0 b:b.1 b:c +c[0] +c[1] ");
    }
}

/* Losses that divide by the samples, or by all labels, send nothing. */
static void test_known_counts(void **state)
{
    (void)state;
    has_lists(LABELS SCORES("data") LOSS("loss", "SoftmaxWithLoss",
                                         "loss_param { ignore_label: 2 normalization: FULL }"),
              2, "f:in -ip[0] -ip[1] f:ip f:relu f:loss ",
              "d:loss b:loss b:relu b:ip +ip[0] +ip[1] ");
}

/* Another reader of the labels lies in their memory: it does not end a loss that has only begun. */
static void test_labels_pass_through(void **state)
{
    (void)state;
    has_lists(LABELS "layer { name: 'flat' type: 'Reshape' bottom: 'label' top: 'flat' "
                     "reshape_param { shape { dim: -1 } } }"
                     "layer { name: 'none' type: 'Silence' bottom: 'flat' }" SCORES("data")
                         LOSS("loss", "SoftmaxWithLoss", IGNORE),
              2,
              "f:in f:label_in_1_split f:loss.0 +loss.0 f:flat f:none -ip[0] -ip[1] f:ip f:relu "
              "-loss.0 f:loss.1 ",
              "d:loss b:loss b:relu b:ip +ip[0] +ip[1] ");
}

/* A layer whose statistics a second one keeps, too, must run before it, and whole. */
static void test_shared_weights_stay(void **state)
{
#define SHARED(_name, _bottom, _top)                                                               \
    "layer { name: '" _name "' type: 'SyncBN' bottom: '" _bottom "' top: '" _top                   \
    "' param { name: 's' } param { name: 'o' } param { name: 'm' } param { name: 'v' } }"
    (void)state;
    has_lists(DATA SHARED("b1", "data", "b1") SHARED("b2", "b1", "b2") HEAD("b2"), 4,
              "f:in -s -o f:b1 f:b2 -ip[0] -ip[1] f:ip f:loss ",
              "d:loss b:loss b:ip +ip[0] +ip[1] b:b2 b:b1 +s +o ");
}

/* Every number pairs one BEGIN with one WAIT: of weights over both lists, of a sum in one. */
static void test_numbers_pair(void **state)
{
    ct_net_env env = ranks(2);
    int begins[64] = { 0 }, waits[64] = { 0 }, n_sum = 0;
    parsed_net f;

    (void)state;
    assert_int_equal(parsed_net_open(branches, CT_TRAIN, &env, &f), CT_OK);
    for (int l = 0; l < 2; l++) {
        const ct_step *list = (l == 0) ? f.net->forward : f.net->backward;
        int n = (l == 0) ? f.net->n_forward : f.net->n_backward;

        for (int i = 0; i < n; i++) {
            const ct_step *s = &list[i];

            assert_int_equal(s->pair >= 0, ct_step_is_pair(s));
            if (s->pair < 0) continue;
            assert_true(s->pair < 64);
            if (s->of == CT_PAIR_WEIGHTS) assert_int_equal(s->pair, s->param);
            if (s->of == CT_PAIR_SUM) { /* not waited for before it begins */
                assert_true(s->pair >= f.net->n_param);
                assert_int_equal(begins[s->pair], s->kind == CT_STEP_WAIT);
                assert_int_equal(s->count, (l == 1) ? 8 : (s->part == 0) ? 5 : 4);
                n_sum += (s->kind == CT_STEP_BEGIN);
            }
            (s->kind == CT_STEP_BEGIN) ? begins[s->pair]++ : waits[s->pair]++;
        }
    }
    assert_int_equal(n_sum, 6);
    for (int k = 0; k < 64; k++) {
        assert_true(begins[k] <= 1);
        assert_int_equal(begins[k], waits[k]);
    }
    parsed_net_close(&f);
}

/* ---- bits. Two ranks with the same data: a sum is twice what is given. */

enum { MOST_SUMS = 16 };

typedef struct twins {
    double kept[MOST_SUMS][16];
    double *v[MOST_SUMS];
    int n[MOST_SUMS];
    int n_begun, n_waited, n_polls, most; /* most under way at a time */
} twins;

static ct_status sum_at_once(void *ctx, double *v, int n)
{
    (void)ctx;
    for (int i = 0; i < n; i++) v[i] *= 2;
    return CT_OK;
}

/* What is under way is nobody's to read. */
static ct_status sum_begin(void *ctx, double *v, int n, void **ticket_p)
{
    twins *t = ctx;
    int k = t->n_begun++;

    if ((k == MOST_SUMS) || (n > 16)) return CT_ERR_ARG;
    memcpy(t->kept[k], v, (size_t)n * sizeof(*v));
    memset(v, 0xff, (size_t)n * sizeof(*v));
    t->v[k] = v;
    t->n[k] = n;
    if (t->n_begun - t->n_waited > t->most) t->most = t->n_begun - t->n_waited;
    *ticket_p = &t->v[k];
    return CT_OK;
}

static ct_status sum_wait(void *ctx, void *ticket)
{
    twins *t = ctx;
    int k = (int)((double **)ticket - t->v);

    t->n_waited++;
    memcpy(t->v[k], t->kept[k], (size_t)t->n[k] * sizeof(double));
    return sum_at_once(ctx, t->v[k], t->n[k]);
}

static ct_status sum_poll(void *ctx)
{
    ((twins *)ctx)->n_polls++;
    return CT_OK;
}

static void train(const char *text, int n_rank, bool halves, twins *t, float **grad_p, int64_t *n_p)
{
    ct_net_env env = ranks(n_rank);
    double loss = 0;
    parsed_net f;

    memset(t, 0, sizeof(*t));
    assert_int_equal(parsed_net_open(text, CT_TRAIN, &env, &f), CT_OK);
    f.net->pass->exec.sum_ranks = sum_at_once;
    f.net->pass->exec.hook_ctx = t;
    if (halves) {
        f.net->pass->exec.sum_begin = sum_begin;
        f.net->pass->exec.sum_wait = sum_wait;
        f.net->pass->exec.sum_poll = sum_poll;
    }
    assert_int_equal(ct_pass_forward(f.net->pass, &loss), CT_OK);
    assert_int_equal(ct_pass_backward(f.net->pass, NULL, NULL), CT_OK);
    assert_int_equal(f.net->pass->exec.n_sum, 0);
    *n_p = f.net->grad_count;
    *grad_p = malloc((size_t)*n_p * sizeof(float));
    memcpy(*grad_p, f.net->grad_arena, (size_t)*n_p * sizeof(float));
    parsed_net_close(&f);
}

/* On one rank the layer runs whole, and the sums are asked for inside. */
static void test_bits(void **state)
{
    static const char *const net[] = { chain, branches, counted, counts };
    static const int n_sum[] = { 3, 6, 1, 6 }, most[] = { 1, 2, 1, 4 };
    static const float share[] = { 2, 2, 1, 1 };
    static const bool beside[] = { false, true, true, true }; /* layers run beside sums */

    (void)state;
    setenv("CORTADO_POISON", "1", 1);
    for (int k = 0; k < 4; k++) {
        float *whole, *parts, *at_once;
        int64_t n[3];
        twins t;

        train(net[k], 1, false, &t, &whole, &n[0]);
        train(net[k], 2, false, &t, &at_once, &n[1]);
        train(net[k], 2, true, &t, &parts, &n[2]);
        assert_int_equal(t.n_begun, n_sum[k]);
        assert_int_equal(t.n_waited, n_sum[k]);
        assert_int_equal(t.most, most[k]);
        assert_true((t.n_polls > 0) == beside[k]);
        assert_true((n[0] == n[1]) && (n[0] == n[2]) && (n[0] > 0));
        assert_memory_equal(parts, at_once, (size_t)n[0] * sizeof(float));
        /* of two ranks the global batch is twice as large, and each gradient half as large; but
         * where labels are counted, one rank has them twice, too */
        for (int64_t i = 0; i < n[0]; i++) assert_true(whole[i] == share[k] * parts[i]);
        free(whole);
        free(parts);
        free(at_once);
    }
    unsetenv("CORTADO_POISON");
}

/* A SyncBN runs once where its block runs again, and sums over the ranks once. */
static void test_sums_in_blocks(void **state)
{
#define BLOCKS(_recompute)                                                                         \
    "recompute: " _recompute " " DATA CONV(                                                        \
        "first", "data",                                                                           \
        "x") "repeat { count: 2 prefix: 'h%d_' bottom: 'x' top: 'x' " CONV("c", "x", "c")          \
        SYNC("b", "c", "n") "layer { name: 'relu' type: 'ReLU' bottom: 'n' top: 'r' } "            \
                            "layer { name: 'drop' type: 'Dropout' bottom: 'r' top: 'r' } " CONV(   \
                                "d", "r", "d") "layer { name: 'sum' type: 'Eltwise' bottom: 'x' "  \
                                               "bottom: 'd' top: 'x' } }" HEAD("x")
    float *never, *blocks;
    int64_t n[2];
    twins t;

    (void)state;
    setenv("CORTADO_POISON", "1", 1);
    train(BLOCKS("NEVER"), 2, true, &t, &never, &n[0]);
    assert_int_equal(t.n_begun, 6);
    train(BLOCKS("BLOCKS"), 2, true, &t, &blocks, &n[1]);
    assert_int_equal(t.n_begun, 6);
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(never, blocks, (size_t)n[0] * sizeof(float));
    free(never);
    free(blocks);
    unsetenv("CORTADO_POISON");
#undef BLOCKS
}

/* A product of 4 GFLOP: what is under way moves more often than once behind it, whoever began it.
 */
static void test_moves_within_products(void **state)
{
    static const char net[] =
        "layer { name: 'in' type: 'Input' top: 'x' input_param { shape { dim: 2048 dim: 512 } } } "
        "layer { name: 'fc' type: 'InnerProduct' bottom: 'x' top: 'y' "
        "  inner_product_param { num_output: 2048 } }";
    ct_net_env env = ranks(1);
    parsed_net f;
    twins t = { .n_polls = 0 };

    (void)state;
    omp_set_num_threads(1);
    assert_int_equal(parsed_net_open(net, CT_TEST, &env, &f), CT_OK);
    f.net->pass->exec.sum_poll = sum_poll;
    f.net->pass->exec.hook_ctx = &t;
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    assert_int_equal(t.n_polls, 0);
    f.net->pass->exec.n_sum = 1;
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_OK);
    assert_true(t.n_polls > 4);
    f.net->pass->exec.n_sum = 0;
    parsed_net_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves_within_products),
        cmocka_unit_test(test_without_sums),
        cmocka_unit_test(test_with_sums),
        cmocka_unit_test(test_counts_of_labels),
        cmocka_unit_test(test_known_counts),
        cmocka_unit_test(test_labels_pass_through),
        cmocka_unit_test(test_shared_weights_stay),
        cmocka_unit_test(test_numbers_pair),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_sums_in_blocks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
