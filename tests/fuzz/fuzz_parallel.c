/* Parallel files: any bytes give a file or one error and CT_ERR_CONFIG. One that reads is checked
 * against a net, and what fits the net deals out all samples and places all layers. */
#include <stdlib.h>
#include <string.h>

#include "framework/proto/prototxt.h"
#include "planner/sharding.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

static const char net_text[] =
    "layer { name: 'd' type: 'DummyData' top: 'x' top: 'l' dummy_data_param { "
    "shape { dim: 4 dim: 3 dim: 6 dim: 6 } shape { dim: 4 } } } "
    "layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' "
    "convolution_param { num_output: 4 kernel_size: 3 } } "
    "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' } "
    "layer { name: 'a' type: 'InnerProduct' bottom: 'c' top: 'a' "
    "inner_product_param { num_output: 6 } } "
    "layer { name: 'b' type: 'InnerProduct' bottom: 'c' top: 'b' "
    "inner_product_param { num_output: 6 } } "
    "layer { name: 's' type: 'Eltwise' bottom: 'a' bottom: 'b' top: 's' } "
    "layer { name: 'e' type: 'SoftmaxWithLoss' bottom: 's' bottom: 'l' top: 'e' } ";

static Ct__NetParameter *param;
static ct_net *net;

static void make_net(void)
{
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 1 } };
    ProtobufCMessage *m = NULL;

    if (net != NULL) return;
    if (ct_prototxt_parse(&ct__net_parameter__descriptor, "net", net_text, strlen(net_text), NULL,
                          &m) != CT_OK)
        abort();
    param = (Ct__NetParameter *)(void *)m;
    if (ct_net_create(param, &o, &net) != CT_OK) abort();
}

static void check_shares(const ct_parallel *p)
{
    for (int s = 0; s < p->n_stage; s++) {
        int64_t sum = 0;

        for (int j = 0; j < p->stage[s].n_replica; j++) {
            if (p->stage[s].share[j] < 1) abort();
            sum += p->stage[s].share[j];
        }
        if (sum != p->micro_batch) abort();
    }
    for (int r = 0; r < p->n_rank; r++) {
        if (ct_parallel_place_of(p, r).stage < 0) abort();
    }
    if (ct_parallel_place_of(p, p->n_rank).stage >= 0) abort();
}

static ProtobufCMessage *read_message(const ProtobufCMessageDescriptor *type, const char *text)
{
    ProtobufCMessage *m = NULL;

    if (ct_prototxt_parse(type, "text", text, strlen(text), NULL, &m) != CT_OK) abort();
    return m;
}

/* A solver, and layers DummyData in all forms, become what the file says of a step. */
static void check_batches(const ct_parallel *p)
{
    static const char *const solver_text[] = { "", "global_batch_size: 8 iter_size: 3",
                                               "iter_size: 2147483647", "batch_tokens: 64" };
    static const char dummies[] =
        "layer { name: 'a' type: 'DummyData' top: 'a' dummy_data_param { num: 4 channels: 1 } } "
        "layer { name: 'b' type: 'DummyData' top: 'b' include { phase: TEST } dummy_data_param { "
        "shape { dim: 4 dim: 1 } shape { dim: 4 } } } "
        "layer { name: 'c' type: 'DummyData' top: 'c' include { phase: TRAIN } include { stage: "
        "'s' } dummy_data_param { shape { dim: 4 } shape { } } } "
        "layer { name: 'd' type: 'DummyData' top: 'd' exclude { phase: TRAIN } "
        "dummy_data_param { num: 4 } } ";
    Ct__NetParameter *n =
        (Ct__NetParameter *)(void *)read_message(&ct__net_parameter__descriptor, dummies);

    for (size_t i = 0; i < sizeof(solver_text) / sizeof(solver_text[0]); i++) {
        Ct__SolverParameter *s = (Ct__SolverParameter *)(void *)read_message(
            &ct__solver_parameter__descriptor, solver_text[i]);

        if ((ct_parallel_set_batch(p, s) == CT_OK) &&
            ((s->global_batch_size != p->micro_batch) || (s->iter_size < 1)))
            abort();
        ct__solver_parameter__free_unpacked(s, NULL);
    }
    if (ct_parallel_set_dummy(p, n) != CT_OK) abort();
    if ((n->n_layer < 4) || (n->n_layer > 8)) abort();
    ct__net_parameter__free_unpacked(n, NULL);
    if (ct_parallel_check_ranks(p, p->n_rank, "fuzz") != CT_OK) abort();
    if (ct_parallel_check_ranks(p, (int64_t)p->n_rank + 1, "fuzz") != CT_ERR_LAUNCH) abort();
}

static void read_file(const uint8_t *data, size_t size)
{
    ct_parallel *p = NULL;
    char path[128];

    snprintf(path, sizeof(path), "%s/parallel.prototxt", fuzz_folder_path());
    fuzz_write(path, data, size);
    if (ct_parallel_read(path, &p) != CT_OK) abort();
    ct_parallel_destroy(p);
}

static void check_layers(const ct_parallel *p)
{
    ct_text text = { 0 };
    ct_json_writer w = ct_json_members_into(&text);
    ct_sharded_net s;
    FILE *to = fopen("/dev/null", "w");

    if ((to == NULL) || (ct_sharded_net_make(p, net, &s) != CT_OK)) abort();
    for (int k = 0; k < p->n_layer; k++) {
        if ((p->layer[k].stage < 0) || (p->layer[k].stage >= p->n_stage)) abort();
    }
    for (int i = 1; i < net->n_layer; i++) { /* sources aside, stages go in order */
        if ((s.stage[i] < 0) || (s.stage[i] >= p->n_stage)) abort();
        if ((i > 1) && (s.stage[i] < s.stage[i - 1])) abort();
    }
    ct_parallel_print(p, &s, to);
    ct_parallel_json(p, &s, &w);
    if (text.failed) abort();
    ct_sharded_net_destroy(&s);
    ct_text_destroy(&text);
    fclose(to);
}

FUZZ_TOKENS(0, &ct__parallel_parameter__descriptor);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_parallel *p = NULL;
    ct_status status;
    long n_error;

    ct_log_set_sink(fuzz_drop, NULL);
    make_net();
    n_error = ct_log_n_error();
    status = ct_parallel_parse("fuzz", (const char *)data, size, &p);
    if (status == CT_OK) {
        check_shares(p);
        check_batches(p);
        read_file(data, size);
        n_error = ct_log_n_error();
        status = ct_parallel_bind(p, param, net);
        if (status == CT_OK) check_layers(p);
    }
    if ((status != CT_OK) && (status != CT_ERR_CONFIG)) abort();
    if (ct_log_n_error() - n_error != (status != CT_OK)) abort();
    ct_parallel_destroy(p);
    return 0;
}
