/* Sets of snapshot files: round trips, damage, killed writers, other nets, other numbers of ranks.
 */
#include "tests/test.h"
#include "framework/base/file.h"
#include "tests/solver_harness.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/snapshot/h5.h"
#include "framework/snapshot/model.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot_impl.h"
#include "framework/snapshot/snapshot.h"
#include "tests/forge_hdf5.h"

#define DATA                                                                                       \
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 4 dim: 6 } "  \
    "data_filler { type: 'gaussian' } } } "
#define LINEAR(name, bottom, top, n)                                                               \
    "layer { name: '" name "' type: 'InnerProduct' bottom: '" bottom "' top: '" top                \
    "' inner_product_param { num_output: " n " weight_filler { type: 'xavier' } bias_filler { "    \
    "type: 'constant' value: 0.25 } } } "
#define NORM    "layer { name: 'bn' type: 'BatchNorm' bottom: 'y' top: 'y' } "
#define LOSS(b) "layer { name: 'p' type: 'Probe' bottom: '" b "' top: 'loss' } "
/* a layer's name with a slash, as in GoogLeNet, and statistics */
#define NET "net_param { name: 'small' " DATA LINEAR("in/a", "x", "y", "5") NORM LOSS("y") "} "
#define SOLVER(seed)                                                                               \
    "base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 snapshot_after_train: false "                     \
    "random_seed: " seed " "

static char prefix[96];

static int setup(void **state)
{
    (void)test_solver_setup(state);
    snprintf(prefix, sizeof(prefix), "%s/s", test_solver_dir());
    return 0;
}

/* A path in the directory; a thread's last four stay valid: ranks are threads here. */
static const char *at(const char *name)
{
    static _Thread_local char path[4][160];
    static _Thread_local int next;

    next = (next + 1) % 4;
    snprintf(path[next], sizeof(path[next]), "%s/%s", test_solver_dir(), name);
    return path[next];
}

static bool exists(const char *name)
{
    return access(at(name), F_OK) == 0;
}

static void make(const char *text, test_solver *t)
{
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, t), CT_OK);
}

/* A state with one history arena whose element i is i + iteration. */
typedef struct fixture {
    test_solver t;
    ct_net *net;
    ct_exchange x;
    float *history[1];
    ct_storage stored[1]; /* the same */
    const char *name[1];
    ct_snapshot_state state;
} fixture;

static void fixture_make(const char *text, fixture *f)
{
    memset(f, 0, sizeof(*f));
    make(text, &f->t);
    f->net = ct_solver_net(f->t.solver);
    ct_exchange_single(3, &f->x);
    f->history[0] = calloc((size_t)f->net->grad_count, sizeof(float));
    f->stored[0] = ct_storage_at(ct_device_cpu(), f->history[0], f->net->grad_count);
    f->name[0] = "momentum";
    f->state = (ct_snapshot_state){ .n_rank = 1,
                                    .global_batch = 4,
                                    .seed = 0xfedcba9876543210u,
                                    .n_history = 1,
                                    .history = f->stored,
                                    .history_name = f->name,
                                    .lr_step = 3,
                                    .n_loss = 2,
                                    .next_loss = 1,
                                    .loss_window = { 0.5, 1.0 / 3 },
                                    .provenance = "{\"who\":\"test\"}" };
}

static void fixture_destroy(fixture *f)
{
    free(f->history[0]);
    test_solver_destroy(&f->t);
}

/* Everything that is saved becomes a function of `mark`. */
static void fill(fixture *f, int mark)
{
    for (int k = 0; k < f->net->n_param; k++) {
        const ct_param *p = &f->net->param[k];

        for (int64_t i = 0; i < p->count; i++) {
            f->net->weight_arena[p->offset + i] = (float)(mark + k) + (float)i / 64;
            if (p->offset + p->count <= f->net->grad_count)
                f->history[0][p->offset + i] = (float)(-mark - k) - (float)i / 64;
        }
    }
}

static void assert_filled(const fixture *f, int mark)
{
    for (int k = 0; k < f->net->n_param; k++) {
        const ct_param *p = &f->net->param[k];

        for (int64_t i = 0; i < p->count; i++) {
            assert_true(f->net->weight_arena[p->offset + i] == (float)(mark + k) + (float)i / 64);
            if (p->offset + p->count <= f->net->grad_count)
                assert_true(f->history[0][p->offset + i] == (float)(-mark - k) - (float)i / 64);
        }
    }
}

/* The set of iteration n, filled with n. */
static void write_set(fixture *f, int n, int keep)
{
    double seconds = -1;

    fill(f, n);
    f->state.iteration = n;
    assert_int_equal(ct_snapshot_write(prefix, f->net, &f->state, &f->x, keep, &seconds), CT_OK);
    assert_true(seconds >= 0);
}

static void assert_newest(const char *name)
{
    char *file = NULL;

    assert_int_equal(ct_snapshot_newest(prefix, &file), CT_OK);
    if (name == NULL) {
        assert_null(file);
    } else {
        assert_non_null(file);
        assert_string_equal(file, at(name));
    }
    free(file);
}

/* The list of the best tests comes back; one that cannot be is refused, with its place. */
static void test_best(void **state)
{
    const ct_best want = { .metric = "loss",
                           .n = 2,
                           .set = { { 8, 0.25, true }, { 4, 0.5, false } },
                           .tested = 10,
                           .waited = 1 };
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    f.state.best = want;
    write_set(&f, 12, 0);
    f.state.best = (ct_best){ .n = 0 };
    assert_int_equal(ct_snapshot_read(at("s_iter_12.solverstate.h5"), f.net, &f.state, &f.x),
                     CT_OK);
    assert_string_equal(f.state.best.metric, "loss");
    assert_int_equal(f.state.best.n, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(f.state.best.set[i].iteration, want.set[i].iteration);
        assert_true(f.state.best.set[i].value == want.set[i].value);
        assert_true(f.state.best.set[i].own == want.set[i].own);
    }
    assert_int_equal(f.state.best.tested, 10);
    assert_int_equal(f.state.best.waited, 1);
    for (int i = 0; i < 2; i++) {
        f.state.best = want;
        if (i == 0) f.state.best.set[1].iteration = -1;
        if (i == 1) f.state.best.set[1].value = NAN;
        write_set(&f, 12, 0);
        assert_int_equal(ct_snapshot_read(at("s_iter_12.solverstate.h5"), f.net, &f.state, &f.x),
                         CT_ERR_DATA);
        test_log_holds("/best/sets has 6 numbers, of which those of set 1 are no iteration, value "
                       "and mark");
    }
    fixture_destroy(&f);
}

static void test_round_trip(void **state)
{
    fixture f;
    ct_h5_reader *r = NULL;
    ct_shape shape;
    char *text = NULL;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    write_set(&f, 12, 0);
    fill(&f, 90);
    f.state = (ct_snapshot_state){ .n_history = 1, .history = f.stored, .history_name = f.name };
    assert_int_equal(ct_snapshot_read(at("s_iter_12.solverstate.h5"), f.net, &f.state, &f.x),
                     CT_OK);
    assert_filled(&f, 12);
    assert_int_equal(f.state.iteration, 12);
    assert_int_equal(f.state.n_rank, 1);
    assert_int_equal(f.state.global_batch, 4);
    assert_true(f.state.seed == 0xfedcba9876543210u);
    assert_int_equal(f.state.lr_step, 3);
    assert_int_equal(f.state.n_loss, 2);
    assert_int_equal(f.state.next_loss, 1);
    assert_true((f.state.loss_window[0] == 0.5) && (f.state.loss_window[1] == 1.0 / 3));

    /* Caffe's layout: /data/LAYER/INDEX */
    assert_int_equal(ct_h5_reader_create(at("s_iter_12.caffemodel.h5"), NULL, &r), CT_OK);
    assert_int_equal(ct_h5_get_shape(r, "/data/in/a/0", &shape), CT_OK);
    assert_int_equal(shape.ndim, 2);
    assert_int_equal(shape.dim[0], 5);
    assert_int_equal(shape.dim[1], 6);
    assert_true(ct_h5_has(r, "/data/bn/2"));
    assert_false(ct_h5_has(r, "/data/data"));
    ct_h5_reader_destroy(r);
    assert_int_equal(ct_h5_reader_create(at("s_iter_12.solverstate.h5"), NULL, &r), CT_OK);
    assert_int_equal(ct_h5_get_text(r, "/learned_net", &text), CT_OK);
    assert_string_equal(text, "s_iter_12.caffemodel.h5");
    free(text);
    assert_int_equal(ct_h5_get_text(r, "/provenance", &text), CT_OK);
    assert_string_equal(text, "{\"who\":\"test\"}");
    free(text);
    ct_h5_reader_destroy(r);
    fixture_destroy(&f);
}

/* Equal content gives equal bytes: nothing of time or place is in a weights file. */
static void test_deterministic_bytes(void **state)
{
    uint64_t hash[2];
    int64_t size[2];
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    for (int i = 0; i < 2; i++) {
        fill(&f, 5);
        assert_int_equal(test_weights_save(at("w.caffemodel.h5"), f.net), CT_OK);
        assert_int_equal(ct_h5_file_hash(at("w.caffemodel.h5"), 0, &hash[i], &size[i]), CT_OK);
    }
    assert_true((hash[0] == hash[1]) && (size[0] == size[1]));
    fixture_destroy(&f);
}

static void test_keep(void **state)
{
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    for (int n = 1; n <= 5; n++) write_set(&f, 10 * n, 2);
    assert_false(exists("s_iter_30.solverstate.h5"));
    assert_false(exists("s_iter_30.caffemodel.h5"));
    assert_true(exists("s_iter_40.solverstate.h5"));
    assert_true(exists("s_iter_40.caffemodel.h5"));
    assert_newest("s_iter_50.solverstate.h5");
    write_set(&f, 15, 1); /* a later run that starts again leaves the future alone */
    assert_true(exists("s_iter_50.solverstate.h5"));
    assert_true(exists("s_iter_40.caffemodel.h5"));
    fixture_destroy(&f);
}

static void copy_file(const char *from, const char *to, long bytes, long flip)
{
    char *data = NULL;
    size_t size = 0;
    FILE *f;

    assert_int_equal(ct_file_read(at(from), &data, &size), CT_OK);
    if (flip >= 0) data[flip] ^= 1;
    f = fopen(at(to), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, (bytes >= 0) ? (size_t)bytes : size, f),
                     (bytes >= 0) ? (size_t)bytes : size);
    fclose(f);
    free(data);
}

/* What a kill leaves at each stage of writing set 20: none of it is taken for a set, and the next
 * snapshot cleans up. */
static void test_killed_writer(void **state)
{
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    write_set(&f, 10, 0);
    copy_file("s_iter_10.caffemodel.h5", "s_iter_20.caffemodel.h5.tmp", 300, -1);
    assert_newest("s_iter_10.solverstate.h5");
    test_log_holds("snapshot of iteration 20");
    copy_file("s_iter_10.caffemodel.h5", "s_iter_20.caffemodel.h5.tmp", -1, -1);
    copy_file("s_iter_10.solverstate.h5", "s_iter_20.solverstate.h5.tmp", 700, -1);
    copy_file("s_iter_10.caffemodel.h5", "s_iter_20.rank3.h5.tmp", 100, -1);
    assert_newest("s_iter_10.solverstate.h5");
    assert_int_equal(rename(at("s_iter_20.caffemodel.h5.tmp"), at("s_iter_20.caffemodel.h5")), 0);
    assert_newest("s_iter_10.solverstate.h5");
    test_log_holds("was never finished");
    /* other people's files stay */
    copy_file("s_iter_10.caffemodel.h5", "s_iter_20.notes.tmp", 10, -1);
    copy_file("s_iter_10.caffemodel.h5", "other_iter_20.caffemodel.h5.tmp", 10, -1);
    write_set(&f, 30, 0);
    assert_false(exists("s_iter_20.solverstate.h5.tmp"));
    assert_false(exists("s_iter_20.rank3.h5.tmp"));
    assert_true(exists("s_iter_20.notes.tmp"));
    assert_true(exists("other_iter_20.caffemodel.h5.tmp"));
    assert_newest("s_iter_30.solverstate.h5");
    /* killed between the two renames while overwriting set 30 */
    fill(&f, 77);
    assert_int_equal(test_weights_save(at("s_iter_30.caffemodel.h5"), f.net), CT_OK);
    assert_newest("s_iter_10.solverstate.h5");
    fixture_destroy(&f);
}

static void test_damage(void **state)
{
    struct stat st;
    char *why = NULL;
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    write_set(&f, 10, 0);
    write_set(&f, 20, 0);
    assert_int_equal(ct_snapshot_verify(at("s_iter_20.solverstate.h5"), &why), CT_OK);
    assert_null(why);
    copy_file("s_iter_20.solverstate.h5", "good.state", -1, -1);
    copy_file("s_iter_20.caffemodel.h5", "good.weights", -1, -1);
    assert_int_equal(stat(at("good.state"), &st), 0);
    for (long i = 0; i < st.st_size; i += (i < 36) ? 5 : 61) {
        if ((i >= 37) && (i < CT_H5_HEAD)) continue; /* behind the first line: nothing */
        copy_file("good.state", "s_iter_20.solverstate.h5", -1, i);
        assert_int_equal(ct_snapshot_verify(at("s_iter_20.solverstate.h5"), &why), CT_ERR_DATA);
        assert_non_null(why);
        free(why);
        why = NULL;
    }
    assert_newest("s_iter_10.solverstate.h5");
    test_log_holds("snapshot skipped: ");
    copy_file("good.state", "s_iter_20.solverstate.h5", 400, -1); /* cut short */
    assert_newest("s_iter_10.solverstate.h5");
    copy_file("good.state", "s_iter_20.solverstate.h5", -1, -1);
    assert_newest("s_iter_20.solverstate.h5");

    assert_int_equal(stat(at("good.weights"), &st), 0);
    copy_file("good.weights", "s_iter_20.caffemodel.h5", -1, st.st_size / 2);
    assert_newest("s_iter_10.solverstate.h5");
    test_log_holds("s_iter_20.caffemodel.h5 is damaged");
    assert_int_equal(ct_snapshot_read(at("s_iter_20.solverstate.h5"), f.net, &f.state, &f.x),
                     CT_ERR_DATA);
    copy_file("good.weights", "s_iter_20.caffemodel.h5", st.st_size - 8, -1);
    assert_newest("s_iter_10.solverstate.h5");
    unlink(at("s_iter_20.caffemodel.h5"));
    assert_newest("s_iter_10.solverstate.h5");
    unlink(at("s_iter_10.solverstate.h5"));
    assert_newest(NULL);
    fixture_destroy(&f);
}

/* HDF5 leaves out what is empty or "." in a path, and others' names may have a %. */
static void test_names_of_layers(void **state)
{
    static const char *const name[] = { "a/",      "/a",      "a//b",    "./a",  "a/./b",
                                        "a/.",     "a%b",     "a%2Fb",   "a%2F", "%00a",
                                        "%00a%2F", "%25/./b", "a.b/..c", "" };

    (void)state;
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); i++) {
        char text[1024];
        ct_model *m = NULL;
        fixture f;

        snprintf(text, sizeof(text),
                 SOLVER("1") "net_param { " DATA LINEAR("%s", "x", "y", "5") NORM LOSS("y") "} ",
                 name[i]);
        fixture_make(text, &f);
        write_set(&f, 12, 0);
        fill(&f, 90);
        if (ct_snapshot_read(at("s_iter_12.solverstate.h5"), f.net, &f.state, &f.x) != CT_OK)
            fail_msg("%s: %s", name[i], test_log_all());
        assert_filled(&f, 12);
        assert_int_equal(ct_model_open(at("s_iter_12.caffemodel.h5"), &m), CT_OK);
        assert_true(ct_model_find(m, name[i]) >= 0);
        ct_model_close(m);
        fixture_destroy(&f);
    }
}

/* The best set that is whole, by the list beside the sets. */
static void test_best_weights(void **state)
{
    char *file = NULL;
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    assert_int_equal(ct_snapshot_best_weights(prefix, &file), CT_OK);
    assert_null(file);
    write_set(&f, 4, 0);
    write_set(&f, 8, 0);
    f.state.best = (ct_best){
        .metric = "loss", .n = 2, .set = { { 8, 0.25, true }, { 4, 0.5, true } }, .tested = 8
    };
    f.state.keep_best = 2;
    assert_int_equal(ct_snapshot_list_best(prefix, &f.state, false, 0), CT_OK);
    assert_int_equal(ct_snapshot_best_weights(prefix, &file), CT_OK);
    assert_non_null(file);
    assert_string_equal(file, at("s_iter_8.caffemodel.h5"));
    free(file);
    copy_file("s_iter_4.caffemodel.h5", "s_iter_8.caffemodel.h5", -1, 40);
    assert_int_equal(ct_snapshot_best_weights(prefix, &file), CT_OK);
    assert_non_null(file);
    assert_string_equal(file, at("s_iter_4.caffemodel.h5"));
    test_log_holds("snapshot skipped: ");
    free(file);
    fixture_destroy(&f);
}

/* A forged list of parts that names no weights, and there are none: none are found. */
static void test_no_weights(void **state)
{
    char *file = NULL;
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    write_set(&f, 10, 0);
    assert_int_equal(ct_snapshot_newest_weights(prefix, &file), CT_OK);
    assert_non_null(file);
    assert_string_equal(file, at("s_iter_10.caffemodel.h5"));
    free(file);
    assert_true(forge_words(at("s_iter_10.solverstate.h5"), "/parts", ""));
    assert_true(forge_seal(at("s_iter_10.solverstate.h5")));
    unlink(at("s_iter_10.caffemodel.h5"));
    assert_int_equal(ct_snapshot_newest_weights(prefix, &file), CT_OK);
    assert_null(file);
    fixture_destroy(&f);
}

static void refuses(fixture *f, const char *file, ct_status want, const char *word)
{
    test_log_all_start();
    assert_int_equal(ct_snapshot_read(at(file), f->net, &f->state, &f->x), want);
    test_log_holds(word);
}

static void test_wrong_files_and_nets(void **state)
{
    static const char other[] =
        SOLVER("1") "net_param { name: 'other' " DATA LINEAR("in/a", "x", "y", "7")
            LINEAR("new", "y", "z", "2") LOSS("z") "} ";
    float before;
    fixture f, g;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    fixture_make(other, &g);
    write_set(&f, 10, 0);
    before = g.net->weight_arena[0];
    refuses(&f, "s_iter_11.solverstate.h5", CT_ERR_IO,
            "s_iter_11.solverstate.h5: No such file or directory; did you mean ");
    refuses(&f, "s_iter_10.caffemodel.h5", CT_ERR_DATA,
            "to start from these weights use --weights");
    copy_file("s_iter_10.caffemodel.h5", "x.solverstate", -1, -1);
    refuses(&f, "x.solverstate", CT_ERR_DATA,
            "no solver state (/iter, /history); it holds weights");
    copy_file("s_iter_10.caffemodel.h5", "x.solverstate.h5", -1, -1);
    refuses(&f, "x.solverstate.h5", CT_ERR_DATA,
            "no solver state (/iter, /history); it holds weights");
    refuses(&g, "s_iter_10.solverstate.h5", CT_ERR_SHAPE, "of another net than \"other\"");
    test_log_holds("in/a/0 is 5 6 (30) in the file, 7 6 (42) in the net");
    test_log_holds("new/0 is not in the file");
    test_log_holds("bn/0 is not in the net");
    assert_true(g.net->weight_arena[0] == before);
    f.name[0] = "squares";
    refuses(&f, "s_iter_10.solverstate.h5", CT_ERR_DATA, "no optimiser state \"squares\"");
    fixture_destroy(&f);
    fixture_destroy(&g);
}

/* Forged states of the optimiser: of as many elements in another shape. */
static void test_forged_history(void **state)
{
    static const int64_t shape[] = { 1, 5 };
    fixture f;
    ct_text path;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    write_set(&f, 10, 0);
    path = ct_state_path("/history", f.name[0], "p[0]");
    assert_true(forge_floats(at("s_iter_10.solverstate.h5"), path.text, 2, shape, false));
    assert_true(forge_seal(at("s_iter_10.solverstate.h5")));
    refuses(&f, "s_iter_10.solverstate.h5", CT_ERR_SHAPE,
            "has shape 1 5 (5), but p[0] has 5 1 (5)");
    ct_text_destroy(&path);
    fixture_destroy(&f);
}

/* A forged list of parts: files of ranks that there were not, and one far behind the others, for
 * which every rank would ask millions of times. */
static void test_forged_ranks(void **state)
{
    static const int64_t rank[] = { 1, 16000000 };
    uint64_t hash = 0;
    int64_t size = 0;
    char name[64];
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    write_set(&f, 10, 0);
    for (int i = 0; i < 2; i++) {
        ct_text parts = { 0 };

        snprintf(name, sizeof(name), "s_iter_10.rank%lld.h5", (long long)rank[i]);
        copy_file("s_iter_10.caffemodel.h5", name, -1, -1);
        assert_int_equal(ct_h5_file_hash(at(name), 0, &hash, &size), CT_OK);
        ct_state_add_part(&parts, name, size, hash);
        assert_true(forge_words(at("s_iter_10.solverstate.h5"), "/parts", parts.text));
        ct_text_destroy(&parts);
        if (i == 1) assert_true(forge_int(at("s_iter_10.solverstate.h5"), "/n_rank", 1 << 24));
        assert_true(forge_seal(at("s_iter_10.solverstate.h5")));
        assert_int_equal(ct_snapshot_verify(at("s_iter_10.solverstate.h5"), NULL), CT_OK);
        refuses(&f, "s_iter_10.solverstate.h5", CT_ERR_DATA,
                (i == 0) ? "/parts has 1 files of ranks, one of rank 1; /n_rank is 1"
                         : "/parts has 1 files of ranks, one of rank 16000000");
    }
    fixture_destroy(&f);
}

/* What waits under a temporary name is removed, and a link to elsewhere is not written through. */
static void test_temporary_names(void **state)
{
    static const char *const name[] = { "s_iter_10.caffemodel.h5", "s_iter_10.solverstate.h5",
                                        "w.npz", "w.caffemodel" };
    char temp[64], text[16];
    struct stat st;
    fixture f;
    FILE *v;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    v = fopen(at("victim"), "w");
    assert_non_null(v);
    fputs("untouched", v);
    fclose(v);
    for (int i = 0; i < 4; i++) {
        snprintf(temp, sizeof(temp), "%s.tmp", name[i]);
        assert_int_equal(symlink(at("victim"), at(temp)), 0);
    }
    write_set(&f, 10, 0);
    assert_int_equal(test_weights_save(at("w.npz"), f.net), CT_OK);
    assert_int_equal(test_weights_save(at("w.caffemodel"), f.net), CT_OK);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(lstat(at(name[i]), &st), 0);
        assert_true(S_ISREG(st.st_mode));
    }
    v = fopen(at("victim"), "r");
    assert_non_null(v);
    assert_non_null(fgets(text, sizeof(text), v));
    fclose(v);
    assert_string_equal(text, "untouched");
    fixture_destroy(&f);
}

/* A name that cannot be written to, a file size limit, a device that is full: CT_ERR_IO, and the
 * set before is as it was. */
static void test_full_disk(void **state)
{
    struct rlimit limit, small = { 4096, 0 };
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    write_set(&f, 10, 1);
    f.state.iteration = 20;
    assert_int_equal(mkdir(at("s_iter_20.solverstate.h5.tmp"), 0700), 0);
    assert_int_equal(ct_snapshot_write(prefix, f.net, &f.state, &f.x, 1, NULL), CT_ERR_IO);
    assert_false(exists("s_iter_20.caffemodel.h5.tmp"));
    assert_false(exists("s_iter_20.caffemodel.h5"));
    f.state.binary = true; /* with a state of Caffe's beside it */
    f.state.solver_type = "SGD";
    assert_int_equal(ct_snapshot_write(prefix, f.net, &f.state, &f.x, 1, NULL), CT_ERR_IO);
    test_log_holds("Snapshotting solver state to binary proto file");
    assert_false(exists("s_iter_20.caffemodel.tmp"));
    assert_false(exists("s_iter_20.solverstate.tmp"));
    assert_false(exists("s_iter_20.solverstate"));
    f.state.binary = false;
    assert_int_equal(rmdir(at("s_iter_20.solverstate.h5.tmp")), 0);
    assert_newest("s_iter_10.solverstate.h5");

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small.rlim_max = limit.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    test_log_all_start();
    assert_int_equal(ct_snapshot_write(prefix, f.net, &f.state, &f.x, 1, NULL), CT_ERR_IO);
    small.rlim_cur = 200; /* HDF5 is out of it here: our own code meets the end */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(test_weights_save(at("w.npz"), f.net), CT_ERR_IO);
    test_log_holds("w.npz.tmp (");
    test_log_holds("File too large");
    assert_false(exists("w.npz"));
    assert_false(exists("w.npz.tmp"));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_DFL);
    test_log_holds("ulimit -f");
    assert_newest("s_iter_10.solverstate.h5");
    write_set(&f, 20, 1); /* and HDF5 still works */
    assert_newest("s_iter_20.solverstate.h5");
    fixture_destroy(&f);
}

/* ---- --weights ---- */

static float value(const ct_net *net, const char *key, int64_t i)
{
    int k = ct_net_find_param(net, key);

    assert_true(k >= 0);
    return ct_blob_data(&net->param[k].blob)[i];
}

static void loads(fixture *f, const char *file, ct_status want, const char *word)
{
    test_log_all_start();
    assert_int_equal(ct_weights_load(at(file), f->net), want);
    if (word != NULL) test_log_holds(word);
}

static void test_weights_h5(void **state)
{
    static const char other[] =
        SOLVER("2") "net_param { name: 'other' " DATA LINEAR("in/a", "x", "y", "5")
            LINEAR("new", "y", "z", "2") LOSS("z") "} ";
    static const char wrong[] =
        SOLVER("2") "net_param { " DATA LINEAR("in/a", "x", "y", "7") LOSS("y") "} ";
    static const char foreign[] = SOLVER("2") "net_param { " DATA LINEAR(
        "b", "x", "y", "7") "layer { name: 'q' type: 'Probe' bottom: 'y' top: 'loss' } } ";
    fixture f, g, h, k;
    float fresh;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    fixture_make(other, &g);
    fixture_make(wrong, &h);
    fixture_make(foreign, &k);
    write_set(&f, 10, 0);
    fresh = value(g.net, "new[0]", 3);
    loads(&g, "s_iter_10.caffemodel.h5", CT_OK, "not in that file, left as they were: new");
    test_log_holds("Ignoring source layer bn");
    for (int i = 0; i < 30; i++)
        assert_true(value(g.net, "in/a[0]", i) == value(f.net, "in/a[0]", i));
    assert_true(value(g.net, "in/a[1]", 4) == value(f.net, "in/a[1]", 4));
    assert_true(value(g.net, "new[0]", 3) == fresh);

    fresh = value(h.net, "p[0]", 0);
    loads(&h, "s_iter_10.caffemodel.h5", CT_ERR_SHAPE,
          "blob 0 of layer \"in/a\" has shape 5 6 (30) in the file, 7 6 (42) in the net");
    assert_true(value(h.net, "p[0]", 0) == fresh); /* nothing of it was taken */
    loads(&k, "s_iter_10.caffemodel.h5", CT_ERR_DATA, "none of its layers has the name");
    loads(&f, "s_iter_10.solverstate.h5", CT_ERR_DATA, "it is a solverstate");
    loads(&f, "nothing.caffemodel.h5", CT_ERR_IO, NULL);
    fixture_destroy(&f);
    fixture_destroy(&g);
    fixture_destroy(&h);
    fixture_destroy(&k);
}

/* A blob of n values first, first + 1, … */
static Ct__BlobProto *blob_make(int n, float first)
{
    Ct__BlobProto *b = malloc(sizeof(*b));

    assert_non_null(b);
    ct__blob_proto__init(b);
    b->n_data = (size_t)n;
    b->data = malloc((size_t)n * sizeof(float));
    assert_non_null(b->data);
    for (int i = 0; i < n; i++) b->data[i] = first + (float)i;
    return b;
}

static void blob_free(Ct__BlobProto *b)
{
    free(b->data);
    free(b->double_data);
    free(b);
}

static void write_binary(const char *name, const Ct__NetParameter *net)
{
    size_t size = ct__net_parameter__get_packed_size(net);
    uint8_t *data = malloc(size);

    assert_non_null(data);
    ct__net_parameter__pack(net, data);
    assert_int_equal(ct_file_write(at(name), data, size), CT_OK);
    free(data);
}

static void test_weights_binary(void **state)
{
    Ct__NetParameter net = CT__NET_PARAMETER__INIT;
    Ct__LayerParameter layer = CT__LAYER_PARAMETER__INIT, relu = CT__LAYER_PARAMETER__INIT;
    Ct__LayerParameter *layers[] = { &relu, &layer };
    Ct__V1LayerParameter old = CT__V1_LAYER_PARAMETER__INIT, *olds[] = { &old };
    Ct__BlobShape shape = CT__BLOB_SHAPE__INIT;
    Ct__BlobProto *blob[3] = { blob_make(30, 1), blob_make(5, 100), blob_make(1, 0) };
    int64_t dim[] = { 5, 6 };
    char name[] = "in/a", other[] = "relu";
    fixture f;

    (void)state;
    fixture_make(SOLVER("1") NET, &f);
    relu.name = other;
    layer.name = old.name = name;
    layer.n_blobs = old.n_blobs = 2;
    layer.blobs = old.blobs = blob;
    shape.n_dim = 2;
    shape.dim = dim;
    blob[0]->shape = &shape;
    /* the bias in the old four dimensions, and in doubles */
    blob[1]->has_num = blob[1]->has_channels = blob[1]->has_height = blob[1]->has_width = 1;
    blob[1]->num = blob[1]->channels = blob[1]->height = 1;
    blob[1]->width = 5;
    blob[1]->n_double_data = 5;
    blob[1]->double_data = malloc(5 * sizeof(double));
    for (int i = 0; i < 5; i++) blob[1]->double_data[i] = 50.5 + i;
    blob[1]->n_data = 0;

    net.n_layer = 2;
    net.layer = layers;
    write_binary("new.caffemodel", &net);
    loads(&f, "new.caffemodel", CT_OK, "weights of 1 layers");
    assert_true(value(f.net, "in/a[0]", 29) == 30);
    assert_true(value(f.net, "in/a[1]", 4) == 54.5f);

    /* V1 layers with a weight of 1 x 1 x 5 x 6 */
    net.n_layer = 0;
    net.n_layers = 1;
    net.layers = olds;
    blob[0]->shape = NULL;
    blob[0]->has_num = blob[0]->has_channels = blob[0]->has_height = blob[0]->has_width = 1;
    blob[0]->num = blob[0]->channels = 1;
    blob[0]->height = 5;
    blob[0]->width = 6;
    blob[0]->data[7] = -3;
    write_binary("old.caffemodel", &net);
    loads(&f, "old.caffemodel", CT_OK, NULL);
    assert_true(value(f.net, "in/a[0]", 7) == -3);

    blob[0]->width = 7; /* says more than it holds */
    write_binary("short.caffemodel", &net);
    loads(&f, "short.caffemodel", CT_ERR_DATA, "has shape 1 1 5 7 (35) and 30 values");
    blob[0]->width = 5;
    blob[0]->height = 6;
    write_binary("turned.caffemodel", &net);
    loads(&f, "turned.caffemodel", CT_ERR_SHAPE, "1 1 6 5 (30) in the file, 5 6 (30) in the net");
    blob[0]->width = 6;
    blob[0]->height = 5;
    old.n_blobs = 3;
    write_binary("many.caffemodel", &net);
    loads(&f, "many.caffemodel", CT_ERR_SHAPE, "more blobs in the file than the net's 2");
    old.n_blobs = 1;
    write_binary("few.caffemodel", &net);
    loads(&f, "few.caffemodel", CT_ERR_SHAPE, "blob 1 of layer \"in/a\" is missing");

    copy_file("old.caffemodel", "cut.caffemodel", 60, -1);
    loads(&f, "cut.caffemodel", CT_ERR_DATA, "neither HDF5 nor a whole binary caffemodel");
    assert_true(value(f.net, "in/a[0]", 7) == -3);
    for (int i = 0; i < 3; i++) blob_free(blob[i]);
    fixture_destroy(&f);
}

/* ---- ranks with state of their own ---- */

typedef struct rank_state {
    bool read;
} rank_state;

/* A rank with something to keep. */
typedef struct rank_case {
    test_solver t;
    ct_net *net;
    ct_exchange x;
    float *history[1];
    ct_storage stored[1]; /* the same */
    ct_snapshot_state state;
} rank_case;

/* Rank r's residual, where it has one, of element i is (r + 1) * (i + 1): small integers, so sums
 * are exact. */
static ct_status open_rank(thread_rank *r, bool read, rank_case *k)
{
    static const char *const name[] = { "momentum" };

    memset(k, 0, sizeof(*k));
    CT_TRY(test_solver_create(SOLVER("1") NET, r, NULL, NULL, &k->t));
    k->net = ct_solver_net(k->t.solver);
    thread_rank_open(r, k->net, &k->x);
    k->history[0] = calloc((size_t)k->net->grad_count, sizeof(float));
    k->stored[0] = ct_storage_at(ct_device_cpu(), k->history[0], k->net->grad_count);
    k->state = (ct_snapshot_state){ .iteration = 7,
                                    .n_rank = r->job->n,
                                    .n_history = 1,
                                    .history = k->stored,
                                    .history_name = name };
    for (int64_t i = 0; (r->residual != NULL) && (i < k->net->grad_count); i++)
        r->residual[i] = read ? -1 : (float)((r->rank + 1) * (i + 1));
    return CT_OK;
}

static void close_rank(rank_case *k)
{
    free(k->history[0]);
    test_solver_destroy(&k->t);
}

static ct_status run_rank(thread_rank *r)
{
    const rank_state *c = r->out;
    rank_case k;
    ct_status status = open_rank(r, c->read, &k);

    if (status != CT_OK) return status;
    if (c->read) {
        float share;

        status = ct_snapshot_read(at("s_iter_7.solverstate.h5"), k.net, &k.state, &k.x);
        /* 3 ranks wrote (1 + 2 + 3) (i + 1) together */
        share = (r->job->n == 3) ? (float)(r->rank + 1) : 6.0f / (float)r->job->n;
        for (int i = 0; (status == CT_OK) && (i < r->n_learned); i++) {
            const ct_param *p = &k.net->param[i];

            for (int64_t e = p->offset; e < p->offset + p->count; e++) {
                float want = share * (float)(e + 1), got = r->residual[e];

                if ((got - want > 1e-6f * want) || (want - got > 1e-6f * want))
                    status = CT_ERR_DATA;
            }
        }
        if ((status == CT_OK) && (k.state.n_rank != 3)) status = CT_ERR_DATA;
    } else {
        status = ct_snapshot_write(prefix, k.net, &k.state, &k.x, 0, NULL);
    }
    close_rank(&k);
    return status;
}

static ct_status run_ranks(int n, bool read)
{
    thread_ranks job = { .n = n, .residuals = true, .run = run_rank };
    thread_rank rank[THREAD_RANKS_MAX];
    rank_state c = { .read = read };

    for (int i = 0; i < n; i++) rank[i] = (thread_rank){ .out = &c };
    return thread_ranks_run(&job, rank);
}

static void test_residuals(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(3, false), CT_OK);
    assert_true(exists("s_iter_7.rank0.h5"));
    assert_true(exists("s_iter_7.rank2.h5"));
    for (int n = 1; n <= 5; n++) assert_int_equal(run_ranks(n, true), CT_OK);
    test_log_holds("residuals of 3 ranks were summed and dealt out to 5");
    /* a rank's file counts as part of the set */
    copy_file("s_iter_7.rank2.h5", "keep", -1, -1);
    copy_file("keep", "s_iter_7.rank2.h5", -1, 3000);
    assert_newest(NULL);
    unlink(at("s_iter_7.rank2.h5"));
    assert_newest(NULL);
    assert_int_equal(run_ranks(2, true), CT_ERR_IO);
    /* fewer ranks over the same iteration: no file of the former stays */
    assert_int_equal(run_ranks(3, false), CT_OK);
    assert_int_equal(run_ranks(2, false), CT_OK);
    assert_false(exists("s_iter_7.rank2.h5"));
    assert_newest("s_iter_7.solverstate.h5");
}

/* ---- residuals that have no place in the run that reads them ---- */

#define RATE 0.125f

typedef struct moved {
    bool read, absorbed; /* when it was written */
    const float *before; /* weights, as they are in the file */
} moved;

/* Residuals as run_rank's. Of what was absorbed and is not any more all ranks have the sum, for the
 * weights to come; else each rank owes what its share of the ranks of then had. */
static ct_status check_moved(const thread_rank *r, const ct_snapshot_state *state)
{
    const moved *c = r->out;
    bool kept = r->job->residuals && (r->job->absorbs == c->absorbed);
    float share = 0;

    for (int from = r->rank; from < 3; from += r->job->n) share += (float)(from + 1);
    if ((state->owed != NULL) != (!kept && !c->absorbed)) return CT_ERR_DATA;
    if ((state->late.v != NULL) != (!kept && c->absorbed)) return CT_ERR_DATA;
    for (int k = 0; k < r->n_learned; k++) {
        const ct_param *p = &r->net->param[k];

        for (int64_t i = p->offset; i < p->offset + p->count; i++) {
            float want = c->before[i], got = r->net->weight_arena[i];

            if (want != got) return CT_ERR_DATA;
            if ((state->late.v != NULL) && (state->late.v[i] != 6 * (float)(i + 1)))
                return CT_ERR_DATA;
            if ((state->late.v != NULL) && (state->late.rate[k] != RATE)) return CT_ERR_DATA;
            if ((state->owed != NULL) && (state->owed[i] != share * (float)(i + 1)))
                return CT_ERR_DATA;
            if (!kept && (r->residual != NULL) && (r->residual[i] != 0)) return CT_ERR_DATA;
            if (kept && (r->residual[i] == 0)) return CT_ERR_DATA;
        }
    }
    return CT_OK;
}

/* A snapshot of what is on its way: rank 0 has it, and whoever reads it has all of it. */
static ct_status again(thread_rank *r, ct_net *net, ct_snapshot_state *state)
{
    ct_snapshot_state more = *state;
    char file[128];
    ct_exchange x;
    ct_status status = CT_OK;

    thread_rank_open(r, net, &x);
    more.iteration = 8;
    status = ct_snapshot_write(prefix, net, &more, &x, 0, NULL);
    snprintf(file, sizeof(file), "%s", at("s_iter_8.solverstate.h5"));
    if (status == CT_OK) status = ct_snapshot_read(file, net, &more, &x);
    if (status != CT_OK) return status;
    if ((more.late.v == NULL) || (more.late.n_param != state->late.n_param)) status = CT_ERR_DATA;
    for (int k = 0; (status == CT_OK) && (k < r->n_learned); k++) {
        const ct_param *p = &net->param[k];

        if (more.late.rate[k] != state->late.rate[k]) status = CT_ERR_DATA;
        if (memcmp(more.late.v + p->offset, state->late.v + p->offset,
                   (size_t)p->count * sizeof(float)) != 0)
            status = CT_ERR_DATA;
    }
    net->options.dev->mem_release(more.owed);
    ct_residual_drain_close(net, &more.late);
    return status;
}

static ct_status run_moved(thread_rank *r)
{
    moved *c = r->out;
    float *before = NULL;
    rank_case k;
    ct_status status = open_rank(r, c->read, &k);

    if (status != CT_OK) return status;
    r->rate = RATE;
    before = calloc((size_t)k.net->weight_count, sizeof(float));
    memcpy(before, k.net->weight_arena, (size_t)k.net->weight_count * sizeof(float));
    if (c->read) {
        memset(k.net->weight_arena, 0, (size_t)k.net->weight_count * sizeof(float));
        c->before = before;
        status = ct_snapshot_read(at("s_iter_7.solverstate.h5"), k.net, &k.state, &k.x);
        if (status == CT_OK) status = check_moved(r, &k.state);
        if ((status == CT_OK) && (k.state.late.v != NULL)) status = again(r, k.net, &k.state);
        ct_residual_drain_close(k.net, &k.state.late);
        k.net->options.dev->mem_release(k.state.owed);
    } else {
        status = ct_snapshot_write(prefix, k.net, &k.state, &k.x, 0, NULL);
    }
    free(before);
    close_rank(&k);
    return status;
}

static ct_status move(int n, bool read, bool absorbed, bool keeps, bool absorbs)
{
    thread_ranks job = { .n = n, .residuals = keeps, .absorbs = absorbs, .run = run_moved };
    thread_rank rank[THREAD_RANKS_MAX];
    moved c[THREAD_RANKS_MAX];

    for (int i = 0; i < n; i++) {
        c[i] = (moved){ .read = read, .absorbed = absorbed };
        rank[i] = (thread_rank){ .out = &c[i] };
    }
    return thread_ranks_run(&job, rank);
}

static void test_residuals_without_a_place(void **state)
{
    (void)state;
    for (int absorbed = 0; absorbed < 2; absorbed++) {
        assert_int_equal(move(3, false, absorbed, true, absorbed), CT_OK);
        for (int n = 1; n <= 3; n++) {
            assert_int_equal(move(n, true, absorbed, false, false), CT_OK);
            assert_int_equal(move(n, true, absorbed, true, false), CT_OK);
            assert_int_equal(move(n, true, absorbed, true, true), CT_OK);
        }
    }
    test_log_holds("of 2 what was not sent goes to the weights, no farther in an iteration than "
                   "that moves them, of 0 it goes with the next gradient");
    test_log_holds("of 0 what was not sent goes to the weights, no farther in an iteration than "
                   "that moves them, of 2 it goes with the next gradient");
}

/* A file that does not get its name is an error, and its temporary one goes. */
static void test_commit_fails(void **state)
{
    FILE *f = fopen(at("file.tmp"), "w");

    (void)state;
    assert_non_null(f);
    fclose(f);
    assert_int_equal(mkdir(at("folder"), 0777), 0);
    assert_int_equal(ct_file_commit(at("file.tmp"), at("folder")), CT_ERR_IO);
    test_log_holds("folder: Is a directory");
    assert_false(exists("file.tmp"));
    assert_int_equal(ct_file_commit(at("file.tmp"), at("file")), CT_ERR_IO);
    test_log_holds("file: No such file or directory");
    assert_false(exists("file"));
    assert_int_equal(rmdir(at("folder")), 0);
}

/* Who cannot look does not know that there is nothing; what would go stays. */
static void test_folder_that_cannot_be_read(void **state)
{
    const ct_snapshot_state none = { .iteration = 10 };
    ct_set_entry *list = NULL;
    char *file = NULL;
    int n = 0;
    FILE *f = fopen(at("file"), "w");

    (void)state;
    assert_non_null(f);
    fclose(f);
    assert_int_equal(ct_set_list(at("file/s"), &list, &n), CT_ERR_IO);
    assert_int_equal(ct_snapshot_newest(at("file/s"), &file), CT_ERR_IO);
    test_log_holds("file/s: Not a directory");
    assert_int_equal(ct_snapshot_newest_weights(at("file/s"), &file), CT_ERR_IO);
    assert_int_equal(ct_snapshot_any(at("file/s"), &file), CT_ERR_IO);
    assert_null(file);
    assert_null(list);
    ct_set_clean(at("file/s"));
    ct_set_prune(at("file/s"), &none, 0, 1);
    test_log_holds("file/s to remove: Not a directory");
    assert_true(exists("file"));

    /* there it is known that there is none */
    assert_int_equal(ct_snapshot_newest(at("none/s"), &file), CT_OK);
    assert_null(file);
    assert_int_equal(ct_snapshot_any(at("none/s"), &file), CT_OK);
    assert_null(file);
}

#define TEST(_f) cmocka_unit_test_setup_teardown(_f, setup, test_solver_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_best),
        TEST(test_round_trip),
        TEST(test_deterministic_bytes),
        TEST(test_keep),
        TEST(test_killed_writer),
        TEST(test_damage),
        TEST(test_wrong_files_and_nets),
        TEST(test_best_weights),
        TEST(test_names_of_layers),
        TEST(test_no_weights),
        TEST(test_forged_history),
        TEST(test_forged_ranks),
        TEST(test_temporary_names),
        TEST(test_full_disk),
        TEST(test_weights_h5),
        TEST(test_weights_binary),
        TEST(test_residuals),
        TEST(test_residuals_without_a_place),
        TEST(test_commit_fails),
        TEST(test_folder_that_cannot_be_read),
    };

    alarm(60);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
