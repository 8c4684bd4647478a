/* Caffe's binary .solverstate: any bytes end in histories of a net as large as its weights, or in
 * an error. (Those in HDF5: fuzz_hdf5.c.) */
#include <stdlib.h>
#include <string.h>

#include "framework/net/net.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/snapshot_impl.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

static const char net_text[] =
    "name: 'n' layer { name: 'in' type: 'DummyData' top: 'x' top: 'l' dummy_data_param { "
    "shape { dim: 2 dim: 3 } shape { dim: 2 } } } "
    "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'y' inner_product_param { "
    "num_output: 2 weight_filler { type: 'constant' value: 0.5 } } } "
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'y' bottom: 'l' top: 'loss' }";

static const char *const history_name[] = { "momentum" };

/* the one net, and its history */
static struct {
    char path[128];
    ct_net *net;
    float *history;
    ct_storage stored;
} z;

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    ct_net_options o = { .phase = CT_TRAIN, .env = { .n_rank = 1 } };
    Ct__NetParameter *param = NULL;
    ct_source_map *map = NULL;
    char path[128];

    (void)argc;
    (void)argv;
    ct_log_set_sink(fuzz_drop, NULL);
    snprintf(path, sizeof(path), "%s/net.prototxt", fuzz_folder_path());
    snprintf(z.path, sizeof(z.path), "%s/s.solverstate", fuzz_folder_path());
    fuzz_write(path, net_text, sizeof(net_text) - 1);
    if ((ct_source_map_create(&map) != CT_OK) || (ct_net_read(path, map, &param) != CT_OK)) abort();
    o.map = map;
    if (ct_net_create(param, &o, &z.net) != CT_OK) abort();
    z.history = calloc((size_t)z.net->grad_count + 1, sizeof(float));
    if (z.history == NULL) abort();
    z.stored = ct_storage_at(ct_device_cpu(), z.history, z.net->grad_count);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_snapshot_state s = { .n_rank = 1,
                            .n_rank_file = 1,
                            .global_batch = 2,
                            .n_history = 1,
                            .history = &z.stored,
                            .history_name = history_name,
                            .solver_type = "SGD",
                            .n_state = 1,
                            .iteration = 1 };
    ct_status status;

    fuzz_write(z.path, data, size);
    if (!ct_caffe_state_is(z.path) || ct_h5_is_hdf5(z.path)) return 0;
    status = ct_caffe_state_read(z.path, &(ct_weights){ .net = z.net }, &s);
    if ((status == CT_OK) && ((s.iteration < 0) || (s.lr_step < 0))) abort();
    return 0;
}
