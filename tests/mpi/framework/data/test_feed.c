/* One reader a node: the same samples to the same ranks, fewer files and bytes, one end. */
#include "tests/mpi/mpi_test.h"

#include <stdlib.h>

#include "framework/data/convert.h"
#include "framework/data/writer.h"
#include "framework/net/net.h"
#include "framework/proto/prototxt.h"
#include "runtime/job.h"
#include "layers/types/data_common.h"
#include "tests/data_files.h"
#include "tests/log_capture.h"

enum { SET_LMDB, SET_SHARDS, SET_HDF5, N_SET, COUNT = 60 };

static test_folder folder; /* rank 0's, known to all */

static int all_sets(void)
{
    return ct_writer_table[0].ops != NULL;
}

/* Sets of the same images. Collective. */
static void make_sets(int rank)
{
    if (rank == 0) {
        ct_convert_options o = { .count = COUNT, .seed = 5 };

        test_folder_make(&folder);
        o.to = test_path(&folder, "h");
        o.backend = "hdf5";
        if (ct_convert_digits(&o) != CT_OK) abort();
        o.backend = NULL;
        o.to = test_path(&folder, "l");
        if (all_sets() && (ct_convert_digits(&o) != CT_OK)) abort();
        o.to = test_path(&folder, "s");
        o.shards = 3;
        o.stripe = 5;
        if (all_sets() && (ct_convert_digits(&o) != CT_OK)) abort();
    }
    MPI_Bcast(&folder, (int)sizeof(folder), MPI_BYTE, 0, MPI_COMM_WORLD);
}

/* A net that is one data layer, and its pass. */
typedef struct stream {
    Ct__NetParameter *param;
    ct_net *net;
} stream;

/* Of a job of these ranks; one at a time is open. */
static ct_status open_group(ct_comm *c, bool one_reader, const char *disk, ct_data_group **group_p)
{
    static ct_job job;

    job = (ct_job){ .comm = c, .data_comm = c };
    CT_TRY(ct_job_open_groups(&job));
    return ct_data_group_open(&job, one_reader, disk, group_p);
}

static ct_status open_stream(int set, int batch, const ct_comm *c, const ct_data_group *g,
                             stream *s)
{
    static const char *const source[N_SET] = { "l/train_lmdb", "s/train_lmdb", "h/train.h5" };
    ct_net_options o = { .phase = CT_TRAIN, .forward_only = true };
    ProtobufCMessage *m = NULL;
    char text[700];

    memset(s, 0, sizeof(*s));
    snprintf(text, sizeof(text),
             "layer { name: \"d\" type: \"%s\" top: \"data\" top: \"label\" %s { source: \"%s\" "
             "batch_size: %d shuffle: true %s } transform_param { crop_size: 24 mirror: true } }",
             (set == SET_HDF5) ? "HDF5Data" : "Data",
             (set == SET_HDF5) ? "hdf5_data_param" : "data_param", test_path(&folder, source[set]),
             batch, (set == SET_HDF5) ? "" : "backend: LMDB threads: 2 rand_skip: 9");
    CT_TRY(ct_prototxt_parse(&ct__net_parameter__descriptor, "test", text, strlen(text), NULL, &m));
    s->param = (Ct__NetParameter *)m;
    o.env = (ct_net_env){ .rank = c->rank, .n_rank = c->size, .seed = 3, .group = g };
    return ct_net_create(s->param, &o, &s->net);
}

static void close_stream(stream *s)
{
    ct_net_destroy(s->net);
    if (s->param != NULL) ct__net_parameter__free_unpacked(s->param, NULL);
}

static ct_status take(stream *s, uint64_t seed, int64_t step)
{
    s->net->pass->exec.seed = seed;
    s->net->pass->exec.micro_step = step;
    return ct_pass_forward(s->net->pass, NULL);
}

static const ct_data_state *data_of(const stream *s)
{
    return s->net->layer[0]->state;
}

/* The tops of both are bitwise the same. */
static int differ(const stream *a, const stream *b)
{
    int fault = 0;

    for (int i = 0; i < 2; i++) {
        const ct_blob *x = a->net->pass->instance[0]->top[i],
                      *y = b->net->pass->instance[0]->top[i];
        int64_t n = ct_shape_count(&x->data.shape, 0, -1);

        fault += MPI_FAULT_UNLESS(ct_shape_equal(&x->data.shape, &y->data.shape));
        if (fault > 0) return fault;
        fault +=
            MPI_FAULT_UNLESS(memcmp(x->data.data, y->data.data, (size_t)n * sizeof(float)) == 0);
    }
    return fault;
}

/* Runs of steps as training with test passes, snapshots and other seeds has them; ranks dawdle
 * differently. */
static int compare(int set, int batch, const ct_comm *c, int64_t room)
{
    static const int64_t from[] = { 0, 3, 3, 0, 40, 1, 0, 0, 0, 0, 7, 0 };
    static const int64_t n[] = { 6, 1, 2, 9, 3, 1, 1, 1, 1, 2, 1, 5 };
    ct_data_group *g = NULL;
    stream fed = { 0 }, own = { 0 };
    int fault = 0;

    fault += MPI_FAULT_UNLESS(open_group((ct_comm *)c, true, NULL, &g) == CT_OK);
    g->room = room;
    fault += MPI_FAULT_UNLESS(open_stream(set, batch, c, g, &fed) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_stream(set, batch, c, NULL, &own) == CT_OK);
    if (mpi_verdict(fault) > 0) return fault;
    for (size_t k = 0; k < sizeof(n) / sizeof(n[0]); k++) {
        for (int64_t i = 0; i < n[k]; i++) {
            uint64_t seed = (k == 4) ? 8 : 3;

            if ((int)((k + (size_t)i) % 4) == c->rank) usleep(3000);
            fault += MPI_FAULT_UNLESS(take(&fed, seed, from[k] + i) == CT_OK);
            fault += MPI_FAULT_UNLESS(take(&own, seed, from[k] + i) == CT_OK);
            fault += differ(&fed, &own);
        }
    }
    if (data_of(&fed)->fed && (c->node_rank > 0) && (room == 0))
        fault += MPI_FAULT_UNLESS((data_of(&fed)->reader->io->opened == 0) &&
                                  (data_of(&fed)->reader->io->bytes == 0));
    close_stream(&fed);
    close_stream(&own);
    ct_data_group_close(g);
    return fault;
}

static int same_samples(ct_comm *c)
{
    int fault = 0;

    for (int set = all_sets() ? 0 : SET_HDF5; set < N_SET; set++) {
        fault += compare(set, 4, c, 0);
        fault += compare(set, 1, c, 0);
    }
    /* records that do not fit are read by whoever wants them */
    if (all_sets()) fault += compare(SET_LMDB, 4, c, 3000);
    return fault;
}

static void test_same_samples(void **state)
{
    (void)state;
    assert_int_equal(mpi_verdict(mpi_on_machines(same_samples)), 0);
}

/* What a node reads of the records, and how many of its ranks have the file open. */
static int count_bytes(ct_comm *c, bool one_reader, int64_t steps, int64_t *bytes_p,
                       int64_t *open_p)
{
    ct_data_group *g = NULL;
    stream s = { 0 };
    int64_t n[2];
    int fault = 0;

    fault += MPI_FAULT_UNLESS(open_group(c, one_reader, NULL, &g) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_stream(SET_LMDB, 5, c, g, &s) == CT_OK);
    for (int64_t i = 0; (fault == 0) && (i < steps); i++)
        fault += MPI_FAULT_UNLESS(take(&s, 3, i) == CT_OK);
    n[0] = data_of(&s)->reader->io->bytes;
    n[1] = data_of(&s)->reader->io->opened;
    close_stream(&s);
    ct_data_group_close(g);
    MPI_Allreduce(MPI_IN_PLACE, n, 2, MPI_INT64_T, MPI_SUM, c->node);
    *bytes_p = n[0];
    *open_p = n[1];
    return fault;
}

static void test_bytes_of_a_node(void **state)
{
    ct_comm *c = NULL;
    int64_t alone, together, open_alone, open_together;
    int fault = 0;

    (void)state;
    if (!all_sets()) skip();
    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    fault += count_bytes(c, false, 1, &alone, &open_alone);
    fault += count_bytes(c, true, 1, &together, &open_together);
    /* every rank opens the file and reads index, meta pages and the first record itself; or one */
    fault += MPI_FAULT_UNLESS(open_alone == c->size);
    fault += MPI_FAULT_UNLESS(open_together == 1);
    /* of all ranks' records of the step, and of as many as the threads are ahead: 4 batches that
     * are decoded and 3 slots; and what opening takes */
    fault += MPI_FAULT_UNLESS(together <= 4096 + (1 + 7) * 5 * c->size * (int64_t)900);
    fault += MPI_FAULT_UNLESS(together >= 5 * c->size * (int64_t)784);
    if (c->rank == 0)
        printf("%d ranks: %lld bytes by %lld open files, one reader: %lld by %lld\n", c->size,
               (long long)alone, (long long)open_alone, (long long)together,
               (long long)open_together);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* The file becomes shorter while it is read: all ranks end alike, each with a line. */
static void test_reader_fails(void **state)
{
    ct_comm *c = NULL;
    ct_data_group *g = NULL;
    stream s = { 0 };
    ct_status status = CT_OK;
    int64_t at = 0, last;
    long before, lines;
    int fault = 0;

    (void)state;
    if (!all_sets()) skip();
    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    fault += MPI_FAULT_UNLESS(open_group(c, true, NULL, &g) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_stream(SET_LMDB, 3, c, g, &s) == CT_OK);
    fault += MPI_FAULT_UNLESS(take(&s, 3, 0) == CT_OK);
    before = ct_log_n_error(); /* the threads are ahead: they may find out at once */
    MPI_Barrier(MPI_COMM_WORLD);
    if (c->rank == 0) test_file_truncate(test_path(&folder, "l/train_lmdb/data.mdb"), 16384);
    MPI_Barrier(MPI_COMM_WORLD);
    for (at = 1; (status == CT_OK) && (at < 100); at++) status = take(&s, 3, at);
    lines = ct_log_n_error() - before;
    fault += MPI_FAULT_UNLESS(status == CT_ERR_IO);
    fault += MPI_FAULT_UNLESS((lines >= 1) && (lines <= 2)); /* two threads may each find one */
    last = at;
    MPI_Bcast(&last, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
    fault += MPI_FAULT_UNLESS(last == at); /* at the same step */
    close_stream(&s);
    ct_data_group_close(g);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* A set that is not there: rank 0 finds out, all say so. */
static void test_absent(void **state)
{
    ct_comm *c = NULL;
    ct_data_group *g = NULL;
    stream s = { 0 };
    long before;
    int fault = 0;

    (void)state;
    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    fault += MPI_FAULT_UNLESS(open_group(c, true, NULL, &g) == CT_OK);
    before = ct_log_n_error();
    if (c->rank == 0) unlink(test_path(&folder, "h/train.h5"));
    MPI_Barrier(MPI_COMM_WORLD);
    fault += MPI_FAULT_UNLESS(open_stream(SET_HDF5, 3, c, g, &s) == CT_ERR_IO);
    fault += MPI_FAULT_UNLESS(ct_log_n_error() == before + 1);
    close_stream(&s);
    ct_data_group_close(g);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

/* A group of which the `fail_at`-th agreement fails on rank 0, and that counts. */
typedef struct failing {
    ct_data_group *real;
    int n_agree, fail_at, acquired, released;
} failing;

static ct_status failing_agree(void *ctx, ct_status mine)
{
    failing *f = ctx;

    if ((f->n_agree++ == f->fail_at) && (f->real->data.rank == 0))
        mine = CT_FAIL(CT_ERR_COMM, "made to fail");
    return f->real->agree(f->real->ctx, mine);
}

static ct_status failing_acquire(void *ctx, size_t bytes, void **base_p, void **handle_p)
{
    failing *f = ctx;
    ct_status status = f->real->acquire(f->real->ctx, bytes, base_p, handle_p);

    f->acquired += (status == CT_OK);
    return status;
}

static void failing_release(void *ctx, void *handle)
{
    failing *f = ctx;

    f->released++;
    f->real->release(f->real->ctx, handle);
}

/* Whichever agreement of the set-up fails: all ranks hear it, once, and give back the memory. */
static void test_gives_back(void **state)
{
    ct_comm *c = NULL;
    int fault = 0, n_failed = 0;
    bool good = false;

    (void)state;
    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    while (!good && (n_failed < 20)) {
        failing f = { .fail_at = n_failed };
        ct_data_group g;
        stream s = { 0 };
        long before;

        fault += MPI_FAULT_UNLESS(open_group(c, true, NULL, &f.real) == CT_OK);
        g = *f.real;
        g.agree = failing_agree;
        g.acquire = failing_acquire;
        g.release = failing_release;
        g.ctx = &f;
        before = ct_log_n_error();
        good = (open_stream(SET_HDF5, 3, c, &g, &s) == CT_OK) && (take(&s, 3, 0) == CT_OK);
        fault += MPI_FAULT_UNLESS(good == (f.n_agree <= f.fail_at));
        fault += MPI_FAULT_UNLESS(ct_log_n_error() == before + (good ? 0 : 1));
        close_stream(&s);
        fault += MPI_FAULT_UNLESS(f.acquired == f.released);
        fault += MPI_FAULT_UNLESS(!good || (c->size == 1) || (f.acquired == 1));
        n_failed += good ? 0 : 1;
        ct_data_group_close(f.real);
        if (mpi_verdict(fault) > 0) break;
    }
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
    assert_true(good && (n_failed >= 2));
}

/* The last rank looks for copies where nobody made any: it says so, and all end with that. */
static void test_copy_missing(void **state)
{
    ct_comm *c = NULL;
    ct_data_group *g = NULL;
    stream s = { 0 };
    char disk[300], other[300];
    log_capture log;
    int fault = 0;

    (void)state;
    snprintf(disk, sizeof(disk), "%s", test_path(&folder, "disk"));
    snprintf(other, sizeof(other), "%s", test_path(&folder, "other"));
    assert_int_equal(ct_comm_create(MPI_COMM_WORLD, "auto", &c), CT_OK);
    fault += MPI_FAULT_UNLESS(open_group(c, true, disk, &g) == CT_OK);
    fault += MPI_FAULT_UNLESS(open_stream(SET_HDF5, 3, c, g, &s) == CT_OK);
    fault += MPI_FAULT_UNLESS(take(&s, 3, 0) == CT_OK);
    close_stream(&s);
    if (c->rank == c->size - 1) {
        g->stage = other;
        g->copies = false;
    }
    log_capture_start(&log);
    fault += MPI_FAULT_UNLESS(open_stream(SET_HDF5, 3, c, g, &s) == CT_ERR_IO);
    log_capture_stop();
    fault += MPI_FAULT_UNLESS(log.n_error == 1);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "other/train.h5-") != NULL);
    fault += MPI_FAULT_UNLESS(strstr(log.error, "No such file") != NULL);
    close_stream(&s);
    ct_data_group_close(g);
    ct_comm_destroy(c);
    assert_int_equal(mpi_verdict(fault), 0);
}

static int start(void **state)
{
    int rank;

    (void)state;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    make_sets(rank);
    return 0;
}

static int end(void **state)
{
    int rank;

    (void)state;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) test_folder_remove(&folder);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_same_samples, start),
        cmocka_unit_test(test_bytes_of_a_node),
        cmocka_unit_test(test_gives_back),
        cmocka_unit_test(test_copy_missing),
        cmocka_unit_test(test_reader_fails),
        cmocka_unit_test_teardown(test_absent, end),
    };

    return mpi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]), 60);
}
