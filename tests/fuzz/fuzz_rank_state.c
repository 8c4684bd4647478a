/* Files of ranks: any bytes that the HDF5 library opens end in what codecs keep now, in what is
 * owed, or in an error. The first byte says what a rank keeps now, whether it knows of parts of the
 * net, and whether two ranks wrote; all of then have the same file, which is the rest.
 *
 * With FUZZ_SEEDS=FOLDER, a file of each kind goes there. */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/hdf5.h"
#include "framework/snapshot/snapshot_impl.h"
#include "tests/fuzz/broken_hdf5.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/one_net.h"

enum { MOST = 64, N_STATE = 3 };

/* What a rank keeps of each parameter; count 0: as many as that has. */
static const struct {
    int n;
    ct_sync_state state[2];
} kept[] = {
    { 0, { { .name = NULL } } },
    { 1, { { .name = CT_SYNC_RESIDUAL } } },
    { 2,
      { { .name = CT_SYNC_RESIDUAL, .of_update = true },
        { .name = CT_SYNC_RATE, .of_update = true, .replicated = true, .count = 1 } } },
    { 2, { { .name = CT_SYNC_RESIDUAL }, { .name = "momentum", .is_momentum = true } } },
    { 1, { { .name = "seen", .own = true } } },
    { 1, { { .name = "shard", .share = true } } },
    { 1, { { .name = "round", .replicated = true } } },
};

enum {
    N_KEPT = sizeof(kept) / sizeof(kept[0]),
    /* of the first byte, divided by N_KEPT */
    IN_PARTS = 1,
    OF_TWO = 2,
    FROM_CAFFE = 4,
    IS_LATE = 8 /* of seeds */
};

static struct {
    char prefix[128], file[160], rank[2][160];
    ct_net *net;
    ct_parts *parts;
    float *history, data[2][N_STATE][MOST];
    ct_storage stored;
    ct_exchange x;
    int kind;
} z;

static const char *const history_name[] = { "momentum" };

static bool state_of(void *ctx, int param, int k, ct_sync_state *out)
{
    (void)ctx;
    if ((param > 1) || (k >= kept[z.kind].n)) return false;
    *out = kept[z.kind].state[k];
    out->param = param;
    out->data = z.data[param][k];
    if (out->count == 0) out->count = z.net->param[param].count;
    return true;
}

static ct_snapshot_state fresh_state(int how)
{
    return (ct_snapshot_state){ .parts = ((how & IN_PARTS) != 0) ? z.parts : NULL,
                                .n_rank = ((how & OF_TWO) != 0) ? 2 : 1,
                                .n_rank_file = ((how & OF_TWO) != 0) ? 2 : 1,
                                .foreign = (how & FROM_CAFFE) != 0,
                                .global_batch = 2,
                                .n_history = 1,
                                .history = &z.stored,
                                .history_name = history_name,
                                .solver_type = "SGD",
                                .n_state = 1,
                                .iteration = 1 };
}

/* ---- seeds: what a run that keeps this writes */

static void write_seed(const char *folder, int first)
{
    int how = first / N_KEPT;
    ct_snapshot_state s = fresh_state(how & IN_PARTS);
    char path[256], *data = NULL, *whole;
    size_t size = 0;

    z.kind = first % N_KEPT;
    for (int i = 0; ((how & IS_LATE) != 0) && (i < z.net->n_param); i++)
        if (ct_residual_drain_add(z.net, &s.late, i, 0.5f, z.data[0][0]) != CT_OK) abort();
    if (ct_snapshot_write(z.prefix, z.net, &s, &z.x, 0, NULL) != CT_OK) abort();
    ct_residual_drain_close(z.net, &s.late);
    if (access(z.rank[0], F_OK) != 0) return; /* nothing is kept */
    if (ct_file_read(z.rank[0], &data, &size) != CT_OK) abort();
    whole = malloc(size + 1);
    if (whole == NULL) abort();
    whole[0] = (char)first;
    memcpy(whole + 1, data, size);
    snprintf(path, sizeof(path), "%s/seed.rank.%d", folder, first);
    fuzz_write(path, whole, size + 1);
    /* others read it, too: who keeps nothing, or another thing */
    for (int k = 0; k < 2; k++) {
        whole[0] = (char)((k == 0) ? how * N_KEPT : (how | OF_TWO) * N_KEPT + (first + 1) % N_KEPT);
        snprintf(path, sizeof(path), "%s/seed.rank.%d.%d", folder, first, k);
        fuzz_write(path, whole, size + 1);
    }
    free(whole);
    free(data);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    const char *seeds = getenv("FUZZ_SEEDS");

    (void)argc;
    (void)argv;
    ct_log_set_sink(fuzz_drop, NULL);
    z.net = fuzz_net("a/b", 4);
    z.history = calloc((size_t)z.net->grad_count + 1, sizeof(float));
    if (z.history == NULL) abort();
    z.stored = ct_storage_at(ct_device_cpu(), z.history, z.net->grad_count);
    ct_exchange_single(z.net->n_param, &z.x);
    z.x.states.get = state_of;
    if (ct_parts_create(z.net, z.net, &z.x.job, &z.parts) != CT_OK) abort();
    snprintf(z.prefix, sizeof(z.prefix), "%s/s", fuzz_folder_path());
    snprintf(z.file, sizeof(z.file), "%s_iter_1.solverstate.h5", z.prefix);
    for (int r = 0; r < 2; r++)
        snprintf(z.rank[r], sizeof(z.rank[r]), "%s_iter_1.rank%d.h5", z.prefix, r);
    for (int first = 0; (seeds != NULL) && (first < N_KEPT * 16); first++)
        if ((first / N_KEPT & (OF_TWO | FROM_CAFFE)) == 0) write_seed(seeds, first);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ct_snapshot_state s;

    if (size == 0) return 0;
    z.kind = data[0] % N_KEPT;
    s = fresh_state(data[0] / N_KEPT);
    for (int r = 0; r < s.n_rank; r++) fuzz_write(z.rank[r], data + 1, size - 1);
    if (ct_h5_is_hdf5(z.rank[0]) && (ct_rank_state_read(z.file, z.net, &s, &z.x) == CT_OK)) {
        if (s.owed != NULL) z.net->options.dev->mem_release(s.owed);
        ct_residual_drain_close(z.net, &s.late);
    }
    for (int r = 0; r < s.n_rank; r++) (void)unlink(z.rank[r]);
    ct_hdf5_lock();
    if (H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) != 0) abort(); /* something is open yet */
    ct_hdf5_unlock();
    return 0;
}
