/* A net opened from files: its weights are those of the file, all of them; sizes are as asked; what
 * is wrong with a file is said with its name. */
#include "tests/test.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"

#include "framework/base/file.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/model.h"
#include "serve/net/deployed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS = 24 };

static const char net[] =
    "name: 'Tiny'\n"
    "layer { name: 'in' type: 'Input' top: 'tokens' top: 'mask'\n"
    "  input_param { shape { dim: 1 dim: 32 } varies: true } }\n"
    "layer { name: 'wte' type: 'Embed' bottom: 'tokens' top: 'x'\n"
    "  embed_param { input_dim: 11 num_output: 24 weight_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'qkv' type: 'InnerProduct' bottom: 'x' top: 'qkv'\n"
    "  inner_product_param { num_output: 72 axis: 2 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'attn' type: 'Attention' bottom: 'qkv' bottom: 'mask' top: 'y'\n"
    "  attention_param { num_heads: 2 } }\n"
    "layer { name: 'row' type: 'Reshape' bottom: 'mask' top: 'row'\n"
    "  reshape_param { shape { dim: 0 dim: 1 dim: -1 } } }\n"
    "layer { name: 'pool' type: 'MatMul' bottom: 'row' bottom: 'y' top: 'pool' }\n"
    "layer { name: 'length' type: 'Normalize' bottom: 'pool' top: 'length' }\n";

static const int32_t ids[] = { 3, 1, 4, 1, 5, 9, 2, 6, 10 };

static const char *write_file(const char *name, const char *text)
{
    assert_int_equal(ct_file_write(name, text, strlen(text)), CT_OK);
    return name;
}

static ct_deployed *open_served(const char *model, const char *weights, int64_t tokens,
                                int64_t most)
{
    ct_deployed *s = NULL;

    assert_int_equal(ct_deployed_open(&(ct_deployed_options){ .model = model,
                                                              .weights = weights,
                                                              .most_tokens = tokens,
                                                              .most = most },
                                      &s),
                     CT_OK);
    return s;
}

/* The net itself, whose weights are not packed for good. */
static ct_packed_net *open_plain(const char *model, Ct__NetParameter **param_p)
{
    const ct_net_options o = { .phase = CT_TEST, .env = { .n_rank = 1, .seed = 1 } };
    const ct_packed_most most = { .tokens = 64, .sequences = 4 };
    ct_packed_net *p = NULL;

    assert_int_equal(ct_net_read(model, NULL, param_p), CT_OK);
    assert_int_equal(ct_packed_net_create(*param_p, &o, &most, &p), CT_OK);
    return p;
}

static void run(ct_packed_net *p, float *to)
{
    ct_packed_item item[] = { { .id = ids, .n = 4 }, { .id = ids + 4, .n = 5 } };

    assert_int_equal(ct_packed_net_run(p, item, 2), CT_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(item[i].rows, 1);
        memcpy(to + i * COLUMNS, item[i].row, COLUMNS * sizeof(float));
    }
}

/* Other weights than the fillers': they come by way of the file, with commas between two of them.
 */
static void weights_are_the_files(void **state)
{
    const char *model = write_file("net.prototxt", net), *file = "w.npz";
    ct_deployed *s = open_served(model, NULL, 64, 4);
    float made[2 * COLUMNS], wanted[2 * COLUMNS], got[2 * COLUMNS];
    Ct__NetParameter *param;
    ct_packed_net *p = open_plain(model, &param);
    ct_net *n = ct_packed_net_of(p);
    char two[300];
    ct_model *m;

    (void)state;
    assert_int_equal(ct_packed_net_columns(ct_deployed_net(s)), COLUMNS);
    assert_int_equal(ct_packed_net_most_tokens(ct_deployed_net(s)), 64);
    run(ct_deployed_net(s), got);
    run(p, made);
    test_same(got, made, 2 * COLUMNS, "rows"); /* as fillers make them */
    ct_deployed_close(s);
    for (int64_t i = 0; i < n->weight_count; i++)
        n->weight_arena[i] *= 1.0f + 0.1f * (float)(i % 7);
    ct_net_weights_changed(n);
    run(p, wanted);
    assert_true(memcmp(made, wanted, sizeof(made)) != 0);
    assert_int_equal(ct_model_of_net(n, NULL, NULL, &m), CT_OK);
    assert_int_equal(ct_model_save(m, file), CT_OK);
    ct_model_close(m);
    ct_packed_net_destroy(p);
    ct__net_parameter__free_unpacked(param, NULL);
    snprintf(two, sizeof(two), "%s,%s", file, file);
    s = open_served(model, two, 9, 2);
    run(ct_deployed_net(s), got);
    test_same(got, wanted, 2 * COLUMNS, "rows");
    ct_deployed_close(s);
}

static void refused(const char *model, const char *weights, ct_status status, const char *part)
{
    ct_deployed *s = NULL;
    log_capture log;
    ct_status got;

    log_capture_start(&log);
    got = ct_deployed_open(&(ct_deployed_options){ .model = model, .weights = weights }, &s);
    log_capture_stop();
    assert_int_equal(got, status);
    assert_null(s);
    if (strstr(log.error, part) == NULL) fail_msg("\"%s\" is not in: %s", part, log.error);
}

/* The scale of `length` need not be in the file, the weights of `qkv` must. */
static void files_are_refused(void **state)
{
    const char *model = write_file("net.prototxt", net), *file = "few.npz";
    Ct__NetParameter *param;
    ct_packed_net *p = open_plain(write_file("small.prototxt", net), &param);
    ct_deployed *s;
    ct_model *m;

    (void)state;
    assert_int_equal(ct_model_of_net(ct_packed_net_of(p), NULL, NULL, &m), CT_OK);
    assert_int_equal(ct_model_save(m, file), CT_OK);
    ct_model_close(m);
    ct_packed_net_destroy(p);
    ct__net_parameter__free_unpacked(param, NULL);
    s = open_served(model, file, 0, 0);
    assert_int_equal(ct_packed_net_most_tokens(ct_deployed_net(s)), CT_DEPLOYED_TOKENS);
    ct_deployed_close(s);
    refused(write_file("more.prototxt",
                       "layer { name: 'in' type: 'Input' top: 'tokens' input_param { shape { dim: "
                       "1 dim: 32 } varies: true } }\n"
                       "layer { name: 'wte' type: 'Embed' bottom: 'tokens' top: 'x' embed_param { "
                       "input_dim: 11 num_output: 24 } }\n"
                       "layer { name: 'head' type: 'InnerProduct' bottom: 'x' top: 'y' "
                       "inner_product_param { num_output: 5 axis: 2 } }\n"),
            file, CT_ERR_DATA, "few.npz: no weight 0 of layer \"head\"");
    refused(model, "none.npz", CT_ERR_IO, "none.npz");
    refused("none.prototxt", NULL, CT_ERR_IO, "none.prototxt");
    refused(write_file("bad.prototxt", "layer { name: 'in' type: 'Input' top: 'tokens'\n"
                                       "  input_param { shape { dim: 1 dim: 32 } varies: true } }\n"
                                       "layer { name: 'wte' type: 'Embed' bottom: 'tokens' }\n"),
            NULL, CT_ERR_CONFIG, "bad.prototxt:3: layer \"wte\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_the_files),
        cmocka_unit_test(files_are_refused),
    };
    char folder[] = "/tmp/cortado-served.XXXXXX", command[64];
    int failed;

    if ((mkdtemp(folder) == NULL) || (chdir(folder) != 0)) return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return ((system(command) != 0) || (failed != 0)) ? 1 : 0;
}
