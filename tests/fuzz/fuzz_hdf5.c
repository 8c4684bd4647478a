/* HDF5 files: any bytes that the library opens end in values inside their arrays, or in a message.
 * Each input is taken for all that we read: weights, words, data, a solver state of Caffe, a file
 * of a rank, and, where it has our first line, one of our solver states, whose hash is then made
 * right.
 *
 * With FUZZ_SEEDS=FOLDER, what our own code writes goes there to begin with. */
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/hdf5.h"
#include "framework/base/memory.h"
#include "framework/data/reader.h"
#include "framework/data/words.h"
#include "framework/data/writer.h"
#include "framework/snapshot/snapshot_impl.h"
#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"
#include "tests/fuzz/broken_hdf5.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/one_net.h"

/* the one net, and the files around an input */
static struct {
    char dir[64], input[128], state[128], rank[128], prefix[128];
    ct_net *net;
    char *good_rank; /* the bytes of the rank's file that the set began with */
    size_t good_rank_size;
    float *history, residual[64];
    ct_storage stored; /* the history */
    ct_exchange x;
} z;

static const char *const history_name[] = { "momentum" };

static bool state_of(void *ctx, int param, int k, ct_sync_state *out)
{
    (void)ctx;
    *out = (ct_sync_state){
        .name = CT_SYNC_RESIDUAL, .param = 0, .data = z.residual, .count = z.net->param[0].count
    };
    return (param == 0) && (k == 0);
}

static ct_snapshot_state fresh_state(void)
{
    return (ct_snapshot_state){ .n_rank = 1,
                                .n_rank_file = 1,
                                .global_batch = 2,
                                .n_history = 1,
                                .history = &z.stored,
                                .history_name = history_name,
                                .solver_type = "SGD",
                                .n_state = 1,
                                .plan = "conv a/b im2col\n",
                                .iteration = 1 };
}

static void make_net(void)
{
    z.net = fuzz_net("a/b", 4);
    z.history = calloc((size_t)z.net->grad_count + 1, sizeof(float));
    z.stored = ct_storage_at(ct_device_cpu(), z.history, z.net->grad_count);
    ct_exchange_single(z.net->n_param, &z.x);
    z.x.states.get = state_of;
}

static void copy(const char *from, const char *folder, const char *name)
{
    char to[512], *data = NULL;
    size_t size = 0;

    snprintf(to, sizeof(to), "%s/%s", folder, name);
    if (ct_file_read(from, &data, &size) != CT_OK) abort();
    fuzz_write(to, data, size);
    free(data);
}

/* The set that inputs are of, and what else we write. */
static void write_seeds(const char *folder)
{
    static const int32_t word[] = { 0, 1, 1, 0, 1 };
    static const char vocabulary[] = "the\ncat\n";
    uint8_t pixel[12] = { 1, 2, 3 };
    ct_snapshot_state s = fresh_state();
    char path[256];
    ct_writer *w = NULL;

    if (ct_snapshot_write(z.prefix, z.net, &s, &z.x, 0, NULL) != CT_OK) abort();
    if (ct_file_read(z.rank, &z.good_rank, &z.good_rank_size) != CT_OK) abort();
    if (folder == NULL) return;
    copy(z.state, folder, "seed.solverstate.h5");
    copy(z.rank, folder, "seed.rank0.h5");
    snprintf(path, sizeof(path), "%s_iter_1.caffemodel.h5", z.prefix);
    copy(path, folder, "seed.caffemodel.h5");
    snprintf(path, sizeof(path), "%s/seed.words.h5", folder);
    if (ct_words_write(path, word, 5, vocabulary, sizeof(vocabulary) - 1) != CT_OK) abort();
    snprintf(path, sizeof(path), "%s/seed.data.h5", folder);
    if (ct_writer_open("hdf5", path, 3, true, &w) != CT_OK) abort();
    for (int i = 0; i < 3; i++) {
        ct_record r = { .key = "k",
                        .values = pixel,
                        .n = sizeof(pixel),
                        .channels = 3,
                        .height = 2,
                        .width = 2,
                        .label = i };

        if (ct_writer_put(w, &r) != CT_OK) abort();
    }
    if (ct_writer_commit(w) != CT_OK) abort();
}

static void set_up(void)
{
    snprintf(z.dir, sizeof(z.dir), "%s", fuzz_folder_path());
    snprintf(z.input, sizeof(z.input), "%s/input.h5", z.dir);
    snprintf(z.prefix, sizeof(z.prefix), "%s/s", z.dir);
    snprintf(z.state, sizeof(z.state), "%s_iter_1.solverstate.h5", z.prefix);
    snprintf(z.rank, sizeof(z.rank), "%s_iter_1.rank0.h5", z.prefix);
    make_net();
    write_seeds(getenv("FUZZ_SEEDS"));
}

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    ct_log_set_sink(fuzz_drop, NULL);
    set_up();
    return 0;
}

static void read_weights(void)
{
    ct_model *m = NULL;
    double sum = 0.0;

    if ((ct_model_open(z.input, &m) == CT_OK) && (ct_model_load(m) == CT_OK)) {
        for (int l = 0; l < m->n_layer; l++) {
            for (int i = 0; i < m->layer[l].n_array; i++) {
                const ct_model_array *a = &m->layer[l].array[i];
                int64_t n = a->present ? ct_shape_count(&a->shape, 0, -1) : 0;

                if (n < 0) abort();
                for (int64_t k = 0; k < n; k++) sum += (double)a->data[k];
            }
        }
    }
    if (sum > 1e300) fprintf(stderr, "large\n"); /* the values were read */
    ct_model_close(m);
    (void)ct_weights_load(z.input, z.net);
}

static void read_words(void)
{
    ct_words w = { 0 };
    int32_t word[64];
    char *text = NULL;
    size_t size = 0;

    if (ct_words_open(z.input, "fuzz", &w) == CT_OK) {
        (void)ct_words_read(&w, "fuzz", 0, (w.count < 64) ? w.count : 64, word);
        if ((ct_words_vocabulary(&w, &text, &size) == CT_OK) && (text[size] != '\0')) abort();
        free(text);
    }
    ct_words_close(&w);
}

/* In memory, and row by row. */
static void read_data(int64_t ram_limit)
{
    static const char *const name[] = { "data", "label" };
    ct_reader_options o = {
        .who = "fuzz", .source = z.input, .n_field = 2, .field_name = name, .ram_limit = ram_limit
    };
    ct_reader *r = NULL;
    void *local = NULL;
    float *rest;

    if (ct_reader_open("hdf5", &o, &r) != CT_OK) return;
    rest = calloc((size_t)ct_reader_rest_count(r) + 1, sizeof(*rest));
    if ((rest != NULL) && (ct_reader_local(r, &local) == CT_OK)) {
        for (int64_t id = 0; (id < r->count) && (id < 4); id++) {
            ct_sample s = { .rest = rest };

            (void)r->ops->read(r, local, id, &s);
        }
    }
    free(rest);
    ct_reader_local_release(r, local);
    ct_reader_close(r);
}

static void drop(ct_snapshot_state *s)
{
    if (s->owed != NULL) z.net->options.dev->mem_release(s->owed);
    ct_residual_drain_close(z.net, &s->late);
}

static void read_rank(const uint8_t *data, size_t size)
{
    ct_snapshot_state s = fresh_state();

    fuzz_write(z.rank, data, size);
    if (ct_rank_state_read(z.state, z.net, &s, &z.x) == CT_OK) drop(&s);
    fuzz_write(z.rank, z.good_rank, z.good_rank_size); /* whole again, for solver states */
}

static void read_caffe(void)
{
    ct_snapshot_state s = fresh_state();

    if ((ct_caffe_state_read(z.input, &(ct_weights){ .net = z.net }, &s) == CT_OK) &&
        (s.iteration < 0))
        abort();
}

static void read_state(const uint8_t *data, size_t size)
{
    ct_snapshot_state s = fresh_state();
    char head[CT_H5_HEAD] = { 0 }, *file = NULL, *plan = NULL;
    uint64_t hash = 0;
    int64_t end;
    FILE *f;

    fuzz_write(z.state, data, size);
    if (ct_h5_file_hash(z.state, CT_H5_HEAD, &hash, &end) != CT_OK) return;
    snprintf(head, sizeof(head), "%s %016llx\n", CT_STATE_TITLE, (unsigned long long)hash);
    f = fopen(z.state, "r+b");
    if ((f == NULL) || (fwrite(head, 1, sizeof(head), f) != sizeof(head)) || (fclose(f) != 0))
        abort();
    (void)ct_snapshot_newest(z.prefix, &file);
    (void)ct_snapshot_plan(z.state, &plan);
    if (ct_snapshot_read(z.state, z.net, &s, &z.x) == CT_OK) {
        if ((s.iteration < 0) || (s.n_rank < 1)) abort();
        drop(&s);
    }
    free(file);
    free(plan);
}

static void read_all(const uint8_t *data, size_t size)
{
    static const char title[] = CT_STATE_TITLE;

    if ((size > CT_H5_HEAD) && (memcmp(data, title, sizeof(title) - 1) == 0)) {
        read_state(data, size);
        return;
    }
    fuzz_write(z.input, data, size);
    if (!ct_h5_is_hdf5(z.input)) return;
    read_weights();
    read_words();
    read_data(0);
    read_data(1);
    read_caffe();
    read_rank(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_all(data, size);
    ct_hdf5_lock();
    if (H5Fget_obj_count((hid_t)H5F_OBJ_ALL, H5F_OBJ_ALL) != 0) abort(); /* something is open yet */
    ct_hdf5_unlock();
    return 0;
}
