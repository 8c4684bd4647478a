/* Nets of parts of layers: their first weights, and files of whole weights that they read. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/parsed_net.h"
#include "tests/solver_harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot_impl.h"

enum { COUNT = 3, FEATURES = 7 };

static const char net_text[] =
    "name: 'parts' layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 5 "
    "dim: 6 dim: 6 } } } layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' "
    "param { lr_mult: 1 } param { lr_mult: 2 } convolution_param { num_output: 7 kernel_size: 3 "
    "weight_filler { type: 'msra' } bias_filler { type: 'uniform' min: -1 max: 1 } } } layer { "
    "name: 'r' type: 'ReLU' bottom: 'c' top: 'c' } layer { name: 'f' type: 'InnerProduct' bottom: "
    "'c' top: 'f' param { lr_mult: 1 } param { lr_mult: 2 } inner_product_param { num_output: 9 "
    "weight_filler { type: 'xavier' } bias_filler { type: 'uniform' min: -1 max: 1 } } }";

/* The convolution makes some channels, the product takes them. */
typedef struct part_net {
    Ct__NetParameter *param;
    Ct__LayerPart conv, product;
    int64_t piece[1];
    ct_net *net;
} part_net;

static Ct__LayerPart part_of(part_net *p, Ct__ParallelLayerParameter__Split split, int i)
{
    Ct__LayerPart part = CT__LAYER_PART__INIT;

    part.split = split;
    part.index = i;
    part.count = COUNT;
    part.n_piece = 1;
    part.piece = p->piece;
    return part;
}

static void open_part(part_net *p, int i, uint64_t seed)
{
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = seed } };

    p->param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, net_text);
    p->piece[0] = FEATURES;
    p->conv = part_of(p, CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT, i);
    p->product = part_of(p, CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT, i);
    p->param->layer[1]->part = &p->conv;
    p->param->layer[3]->part = &p->product;
    assert_int_equal(ct_net_create(p->param, &o, &p->net), CT_OK);
}

static void close_part(part_net *p)
{
    ct_net_destroy(p->net);
    p->param->layer[1]->part = p->param->layer[3]->part = NULL; /* not of the reader's memory */
    ct__net_parameter__free_unpacked(p->param, NULL);
}

/* Every weight of the part is what it has of the whole net's. */
static void same_weights(const ct_net *part, const ct_net *whole)
{
    for (int k = 0; k < part->n_param; k++) {
        const ct_param *p = &part->param[k];
        int w = ct_net_find_param(whole, p->key);
        float *want = malloc((size_t)p->count * sizeof(float));

        assert_true((w >= 0) && (want != NULL));
        ct_cut_take(p->cut, ct_blob_data(&whole->param[w].blob), want);
        test_same(ct_blob_data(&p->blob), want, p->count, p->key);
        free(want);
    }
}

static const float *forward(ct_net *net, const float *x)
{
    ct_pass *pass = net->pass;

    memcpy(ct_blob_data(pass->blob[ct_net_find_blob(net, "x")]), x,
           (size_t)(2 * 5 * 6 * 6) * sizeof(float));
    assert_int_equal(ct_pass_forward(pass, NULL), CT_OK);
    return ct_blob_data(pass->blob[ct_net_find_blob(net, "f")]);
}

static void test_first_weights(void **state)
{
    ct_net_env env = { .n_rank = 1, .seed = 12 };
    double sum[2 * 9] = { 0 }, bound = 0, most = 0;
    float x[2 * 5 * 6 * 6];
    parsed_net whole;
    const float *y;

    (void)state;
    test_random(x, 2 * 5 * 6 * 6, 4, -1.0f, 1.0f);
    assert_int_equal(parsed_net_open(net_text, CT_TRAIN, &env, &whole), CT_OK);
    for (int i = 0; i < COUNT; i++) {
        part_net p;

        open_part(&p, i, 12);
        assert_int_equal(p.net->n_param, (i == 0) ? 4 : 3);
        same_weights(p.net, whole.net);
        y = forward(p.net, x);
        for (int k = 0; k < 2 * 9; k++) sum[k] += (double)y[k];
        close_part(&p);
    }
    y = forward(whole.net, x);
    /* 7 x 16 products of values that are sums of 45 of their own, of at most `most` each */
    for (int k = 0; k < whole.net->n_param; k++) {
        const float *w = ct_blob_data(&whole.net->param[k].blob);

        for (int64_t j = 0; j < whole.net->param[k].count; j++)
            most = fmax(most, fabs((double)w[j]));
    }
    bound = 112 * 46 * most * most * (112 + 46 + 4) * (double)FLT_EPSILON;
    for (int k = 0; k < 2 * 9; k++) assert_true(fabs(sum[k] - (double)y[k]) <= bound);
    parsed_net_close(&whole);
}

static void test_reads_whole_weights(void **state)
{
    ct_net_env env = { .n_rank = 1, .seed = 12 };
    parsed_net whole;
    ct_model *m = NULL;
    char file[256];

    (void)state;
    snprintf(file, sizeof(file), "%s/whole.caffemodel", test_solver_dir());
    assert_int_equal(parsed_net_open(net_text, CT_TRAIN, &env, &whole), CT_OK);
    assert_int_equal(ct_model_of_net(whole.net, NULL, NULL, &m), CT_OK);
    assert_int_equal(ct_model_save(m, file), CT_OK);
    ct_model_close(m);
    for (int i = 0; i < COUNT; i++) {
        part_net p;

        open_part(&p, i, 13); /* other first weights */
        assert_int_equal(ct_weights_load(file, p.net), CT_OK);
        same_weights(p.net, whole.net);
        close_part(&p);
        open_part(&p, i, 13);
        assert_int_equal(ct_weights_read(file, &(ct_weights){ .net = p.net }), CT_OK);
        same_weights(p.net, whole.net);
        close_part(&p);
    }
    parsed_net_close(&whole);
}

/* A table and a head share the rows that both have. */
static ct_status open_tied(int of_table, int of_head)
{
    static const char text[] =
        "name: 'tied' layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 "
        "} } } layer { name: 'e' type: 'Embed' bottom: 'x' top: 'e' param { name: 't' } "
        "embed_param { input_dim: 13 num_output: 4 bias_term: false } } layer { name: 'h' type: "
        "'InnerProduct' bottom: 'e' top: 'h' param { name: 't' } inner_product_param { num_output: "
        "13 axis: 2 bias_term: false } }";
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1 } };
    Ct__NetParameter *param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, text);
    part_net p = { .piece = { 13 } };
    Ct__LayerPart table = part_of(&p, CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT, of_table);
    Ct__LayerPart head = part_of(&p, CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT, of_head);
    ct_net *net = NULL;
    ct_status status;

    param->layer[1]->part = &table;
    param->layer[2]->part = &head;
    status = ct_net_create(param, &o, &net);
    if (status == CT_OK) {
        assert_int_equal(net->n_param, 1);
        assert_int_equal(net->param[0].count, (of_table == 0) ? 5 * 4 : 4 * 4);
        assert_int_equal(net->param[0].cut->whole.dim[0], 13);
    }
    ct_net_destroy(net);
    param->layer[1]->part = param->layer[2]->part = NULL;
    ct__net_parameter__free_unpacked(param, NULL);
    return status;
}

static void test_tied(void **state)
{
    ct_status status;

    (void)state;
    for (int i = 0; i < COUNT; i++) assert_int_equal(open_tied(i, i), CT_OK);
    test_log_start();
    status = open_tied(1, 2); /* as many rows, but others */
    assert_non_null(strstr(test_log_stop(), "parameter \"t\" of layer \"e\" is another part"));
    assert_int_equal(status, CT_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_weights),
        cmocka_unit_test_setup_teardown(test_reads_whole_weights, test_solver_setup,
                                        test_solver_teardown),
        cmocka_unit_test(test_tied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
