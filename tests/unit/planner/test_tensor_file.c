/* The parallel file that tensor:N stands for: which products a net's ranks share. */
#include "tests/test.h"

#include <string.h>

#include "planner/sharding.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"

#define INPUT                                                                                      \
    "layer { name: 'in' type: 'Input' top: 't' input_param { shape { dim: 1 dim: 6 } } } "         \
    "layer { name: 'wte' type: 'Embed' bottom: 't' top: 'x' "                                      \
    "embed_param { input_dim: 9 num_output: 8 bias_term: false } } "
#define FULL(_name, _bottom, _n)                                                                   \
    "layer { name: '" _name "' type: 'InnerProduct' bottom: '" _bottom "' top: '" _name "' "       \
    "inner_product_param { num_output: " _n " axis: 2 } } "
#define NORM(_name, _bottom)                                                                       \
    "layer { name: '" _name "' type: 'RMSNorm' bottom: '" _bottom "' top: '" _name "' } "
#define SUM(_name, _a, _b)                                                                         \
    "layer { name: '" _name "' type: 'Eltwise' bottom: '" _a "' bottom: '" _b "' top: '" _name     \
    "' } "
#define ATTENTION(_bottoms, _heads)                                                                \
    "layer { name: 'attn' type: 'Attention' " _bottoms " top: 'attn' "                             \
    "attention_param { num_heads: " _heads " causal: true } } "

/* Writes the file for the net, and has it bound and its values laid out. */
static void write(const char *net, int tensor, ct_text *file, int *n_run_p)
{
    ct_net_env env = { .n_rank = 1, .seed = 1, .global_batch_size = 1 };
    ct_parallel *p = NULL;
    ct_sharded_net s;
    parsed_net f;

    assert_int_equal(parsed_net_open(net, CT_TRAIN, &env, &f), CT_OK);
    assert_int_equal(ct_tensor_file_write(f.net, tensor, "tensor", file, n_run_p), CT_OK);
    assert_int_equal(ct_parallel_parse("tensor", file->text, file->length, &p), CT_OK);
    assert_int_equal(ct_parallel_bind(p, f.param, f.net), CT_OK);
    assert_int_equal(ct_sharded_net_make(p, f.net, &s), CT_OK);
    assert_int_equal(s.top[f.net->n_layer - 1].kind, CT_SHARDING_WHOLE);
    ct_sharded_net_destroy(&s);
    ct_parallel_destroy(p);
    parsed_net_close(&f);
}

static void goes(const ct_text *file, const char *layer, const char *split)
{
    char line[120];

    (void)snprintf(line, sizeof(line), "layer { name: \"%s\" split: %s }", layer, split);
    if (strstr(file->text, line) == NULL) fail_msg("%s is missing in\n%s", line, file->text);
}

static void test_packed(void **state)
{
    ct_text file = { 0 };
    int n_run = 0;

    (void)state;
    write(INPUT NORM("n1", "x") FULL("qkv", "n1", "24") ATTENTION("bottom: 'qkv'", "4")
              FULL("proj", "attn", "8") SUM("s1", "x", "proj") NORM("n2", "s1") FULL(
                  "fc", "n2",
                  "16") "layer { name: 'relu' type: 'ReLU' bottom: 'fc' top: 'fc' } " FULL("out",
                                                                                           "fc",
                                                                                           "8")
                  SUM("s2", "s1", "out") FULL("head", "s2", "9"),
          2, &file, &n_run);
    assert_int_equal(n_run, 2);
    assert_non_null(strstr(file.text, "ranks: 2 global_batch: 1\nstage { first: \"in\" last: "
                                      "\"head\" tensor: 2 rank: 0 rank: 1\n"));
    goes(&file, "in", "REPLICATE");
    goes(&file, "wte", "REPLICATE");
    goes(&file, "qkv", "OUTPUT");
    goes(&file, "attn", "HEADS");
    goes(&file, "proj", "INPUT");
    assert_null(strstr(file.text, "\"s1\"")); /* it adds up parts as they come */
    goes(&file, "n2", "REPLICATE");
    goes(&file, "fc", "OUTPUT");
    goes(&file, "relu", "OUTPUT");
    goes(&file, "out", "INPUT");
    goes(&file, "head", "REPLICATE");
    ct_text_destroy(&file);
}

/* Queries, keys and values of their own; a gate. */
static void test_apart(void **state)
{
    ct_text file = { 0 };
    int n_run = 0;

    (void)state;
    write(INPUT NORM("n1", "x") FULL("q", "n1", "8") FULL("k", "n1", "8") FULL("v", "n1", "8")
              ATTENTION("bottom: 'q' bottom: 'k' bottom: 'v'", "4") FULL("proj", "attn", "8")
                  SUM("s1", "x", "proj") NORM("n2", "s1") FULL("gate", "n2", "16")
                      FULL("up", "n2",
                           "16") "layer { name: 'glu' type: 'SwiGLU' bottom: 'gate' bottom: 'up' "
                                 "top: 'glu' } " FULL("down", "glu", "8") SUM("s2", "s1", "down"),
          2, &file, &n_run);
    assert_int_equal(n_run, 2);
    goes(&file, "q", "OUTPUT");
    goes(&file, "k", "OUTPUT");
    goes(&file, "v", "OUTPUT");
    goes(&file, "attn", "HEADS");
    goes(&file, "proj", "INPUT");
    goes(&file, "gate", "OUTPUT");
    goes(&file, "up", "OUTPUT");
    goes(&file, "down", "INPUT");
    goes(&file, "s2", "REPLICATE"); /* the output */
    ct_text_destroy(&file);
}

/* Heads that the ranks do not divide, what two layers read, and products in a row. */
static void test_left_whole(void **state)
{
    ct_text file = { 0 };
    int n_run = 0;

    (void)state;
    write(INPUT FULL("qkv", "x", "24") ATTENTION("bottom: 'qkv'", "2") FULL("proj", "attn", "8")
              FULL("a", "proj", "6") FULL("b", "a", "6") FULL("c", "b", "6") FULL("d", "c", "6")
                  FULL("e", "d", "6") SUM("s", "d", "e"),
          3, &file, &n_run);
    goes(&file, "qkv", "REPLICATE");
    goes(&file, "attn", "REPLICATE");
    goes(&file, "proj", "OUTPUT");
    goes(&file, "a", "INPUT");
    goes(&file, "b", "OUTPUT");
    goes(&file, "c", "INPUT");
    goes(&file, "d", "REPLICATE"); /* read by e and s */
    goes(&file, "e", "REPLICATE");
    assert_int_equal(n_run, 2);
    ct_text_destroy(&file);
}

static void test_nothing(void **state)
{
    ct_net_env env = { .n_rank = 1, .seed = 1, .global_batch_size = 1 };
    ct_text file = { 0 };
    log_capture said;
    parsed_net f;
    int n_run = 0;

    (void)state;
    assert_int_equal(
        parsed_net_open("name: 'small' " INPUT FULL("head", "x", "9"), CT_TRAIN, &env, &f), CT_OK);
    log_capture_start(&said);
    assert_int_equal(ct_tensor_file_write(f.net, 2, "tensor:2", &file, &n_run), CT_ERR_CONFIG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "tensor:2: net \"small\" has no products that 2 ranks can "
                                       "share"));
    ct_text_destroy(&file);
    parsed_net_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packed),
        cmocka_unit_test(test_apart),
        cmocka_unit_test(test_left_whole),
        cmocka_unit_test(test_nothing),
    };

    return cmocka_run_group_tests_name("tensor_file", tests, NULL, NULL);
}
