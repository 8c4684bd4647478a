/* Caffe's binary .solverstate: any bytes end in histories of a net as large as its weights, or in
 * an error. (Those in HDF5: fuzz_hdf5.c.) */
#include <stdlib.h>
#include <string.h>

#include "framework/snapshot/h5.h"
#include "framework/snapshot/snapshot_impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/one_net.h"

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
    (void)argc;
    (void)argv;
    ct_log_set_sink(fuzz_drop, NULL);
    snprintf(z.path, sizeof(z.path), "%s/s.solverstate", fuzz_folder_path());
    z.net = fuzz_net("ip", 2);
    z.history = calloc((size_t)z.net->grad_count + 1, sizeof(float));
    if (z.history == NULL) abort();
    z.stored = ct_storage_at(ct_device_cpu(), z.history, z.net->grad_count);
    return 0;
}

/* What was read is written, and read again with the same numbers. */
static void write_again(const ct_snapshot_state *s)
{
    const char *const weights = "w.caffemodel"; /* it names them; they are not there */
    ct_snapshot_state back = *s;
    char path[128];
    uint64_t hash;
    int64_t size;

    snprintf(path, sizeof(path), "%s/again.solverstate", fuzz_folder_path());
    if (ct_caffe_state_write(path, weights, z.net, s, &hash, &size) != CT_OK) abort();
    if (!ct_caffe_state_is(path)) abort();
    if (ct_caffe_state_read(path, &(ct_weights){ .net = z.net }, &back) == CT_OK) {
        if ((back.iteration != s->iteration) || (back.lr_step != s->lr_step)) abort();
    }
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
    if (status == CT_OK) write_again(&s);
    return 0;
}
