/* Weights and solver states in files of others' making: Caffe's own (tests/golden/caffe), NumPy's,
 * and what comes back from there. */
#include "tests/test.h"
#include "framework/base/file.h"
#include "tests/solver_harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/snapshot/model.h"
#include "framework/snapshot/snapshot.h"

#define GOLDEN "tests/golden/caffe/"

static const char *at(const char *name)
{
    static char path[4][160];
    static int turn;
    char *p = path[turn++ % 4];

    snprintf(p, sizeof(path[0]), "%s/%s", test_solver_dir(), name);
    return p;
}

#define SOLVER                                                                                     \
    "net: '" GOLDEN "net.prototxt' base_lr: 0.05 lr_policy: 'fixed' weight_decay: 0.01 delta: "    \
    "0.001 random_seed: 3 max_iter: 8 snapshot_after_train: false "

static void make(const char *fields, test_solver *t)
{
    char text[1024];

    snprintf(text, sizeof(text), SOLVER "%s", fields);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, t), CT_OK);
}

/* ---- solver states ---- */

static const struct {
    const char *name, *end, *fields;
} kinds[] = {
    { "sgd", "", "type: 'SGD' momentum: 0.9" },
    { "nesterov", "", "type: 'Nesterov' momentum: 0.9" },
    { "adagrad", "", "type: 'AdaGrad'" },
    { "rmsprop", "", "type: 'RMSProp' rms_decay: 0.95" },
    { "adadelta", "", "type: 'AdaDelta' momentum: 0.9" },
    { "adam", "", "type: 'Adam' momentum: 0.9" },
    { "sgd_h5", ".h5", "type: 'SGD' momentum: 0.9" },
    { "adam_h5", ".h5", "type: 'Adam' momentum: 0.9" },
};
enum { N_KIND = sizeof(kinds) / sizeof(kinds[0]) };

/* Caffe trained 4 iterations, we go on to 8: as Caffe itself does, but for rounding. Values are
 * below 2; each of the 4 steps rounds some 32 times through three layers and the rule, and the
 * adaptive ones divide by roots, which rate 0.05 makes small again. */
static void test_goes_on_from_caffe(void **state)
{
    double worst = 0;

    (void)state;
    for (int k = 0; k < N_KIND; k++) {
        char file[160];
        test_solver t, theirs;

        make(kinds[k].fields, &t);
        make(kinds[k].fields, &theirs);
        /* its weights are not where it says, but beside it */
        snprintf(file, sizeof(file), GOLDEN "%s_iter_4.solverstate%s", kinds[k].name, kinds[k].end);
        assert_int_equal(ct_solver_restore(t.solver, file), CT_OK);
        test_log_holds("resuming after 4 iterations of Caffe");
        assert_int_equal(ct_solver_iteration(t.solver), 4);
        assert_int_equal(ct_solver_run(t.solver), CT_OK);
        snprintf(file, sizeof(file), GOLDEN "%s_iter_8.caffemodel%s", kinds[k].name, kinds[k].end);
        assert_int_equal(ct_solver_load_weights(theirs.solver, file), CT_OK);
        for (int64_t i = 0; i < ct_solver_net(t.solver)->weight_count; i++) {
            double a = (double)ct_solver_net(t.solver)->weight_arena[i];
            double b = (double)ct_solver_net(theirs.solver)->weight_arena[i];

            worst = fmax(worst, fabs(a - b));
            if (!(fabs(a - b) <= 4 * 32 * 2 * (double)FLT_EPSILON / 2))
                fail_msg("%s, weight %d: %.9g, Caffe has %.9g", kinds[k].name, (int)i, a, b);
        }
        test_solver_destroy(&t);
        test_solver_destroy(&theirs);
    }
    print_message("worst deviation from Caffe: %.2g\n", worst);
}

/* Our sets with BINARYPROTO hold what Caffe would have written: read back through its formats. */
static void test_writes_for_caffe(void **state)
{
    (void)state;
    for (int k = 0; k < 6; k++) {
        char fields[256];
        test_solver t, own, theirs;
        const ct_net *a, *b;

        snprintf(fields, sizeof(fields),
                 "%s snapshot: 4 snapshot_format: BINARYPROTO "
                 "snapshot_prefix: '%s/s'",
                 kinds[k].fields, test_solver_dir());
        make(fields, &t);
        assert_int_equal(ct_solver_run(t.solver), CT_OK);
        make(kinds[k].fields, &own);
        make(kinds[k].fields, &theirs);
        assert_int_equal(ct_solver_restore(own.solver, at("s_iter_4.solverstate.h5")), CT_OK);
        assert_int_equal(ct_solver_restore(theirs.solver, at("s_iter_4.solverstate")), CT_OK);
        assert_int_equal(ct_solver_run(own.solver), CT_OK);
        assert_int_equal(ct_solver_run(theirs.solver), CT_OK);
        a = ct_solver_net(own.solver);
        b = ct_solver_net(theirs.solver);
        assert_memory_equal(a->weight_arena, b->weight_arena,
                            (size_t)a->weight_count * sizeof(float));
        assert_memory_equal(a->weight_arena, ct_solver_net(t.solver)->weight_arena,
                            (size_t)a->weight_count * sizeof(float));
        test_solver_destroy(&t);
        test_solver_destroy(&own);
        test_solver_destroy(&theirs);
        test_solver_teardown(NULL);
        test_solver_setup(NULL);
    }
}

static void restore_fails(const char *fields, const char *file, ct_status want, const char *why)
{
    test_solver t;

    make(fields, &t);
    assert_int_equal(ct_solver_restore(t.solver, file), want);
    test_log_holds(why);
    test_solver_destroy(&t);
}

static void copy_part(const char *from, const char *to, size_t part)
{
    char *data = NULL;
    size_t size = 0;

    assert_int_equal(ct_file_read(from, &data, &size), CT_OK);
    assert_true(part <= size);
    assert_int_equal(ct_file_write(to, data, (part > 0) ? part : size), CT_OK);
    free(data);
}

static void test_bad_states(void **state)
{
    (void)state;
    restore_fails(kinds[5].fields, GOLDEN "sgd_iter_4.solverstate", CT_ERR_DATA,
                  "6 histories; type \"Adam\" with this net has 2 for each of 6 parameters");
    restore_fails(kinds[0].fields, GOLDEN "adam_h5_iter_4.solverstate.h5", CT_ERR_DATA,
                  "12 histories; type \"SGD\" with this net has 1 for each of 6");
    copy_part(GOLDEN "sgd_iter_4.solverstate", at("cut.solverstate"), 200);
    restore_fails(kinds[0].fields, at("cut.solverstate"), CT_ERR_DATA,
                  "neither HDF5 nor a whole binary solver state");
    copy_part(GOLDEN "sgd_iter_4.solverstate", at("alone.solverstate"), 0);
    restore_fails(kinds[0].fields, at("alone.solverstate"), CT_ERR_IO,
                  "its weights are neither at");
    restore_fails(kinds[0].fields, GOLDEN "sgd_iter_4.caffemodel", CT_ERR_DATA,
                  "holds weights only");
    copy_part(GOLDEN "sgd_h5_iter_4.solverstate.h5", at("cut.solverstate.h5"), 3000);
    restore_fails(kinds[0].fields, at("cut.solverstate.h5"), CT_ERR_IO, "cannot be opened as HDF5");
}

/* ---- weights ---- */

static void assert_same_file(const char *a, const char *b)
{
    char *x = NULL, *y = NULL;
    size_t n = 0, m = 0;

    assert_int_equal(ct_file_read(a, &x, &n), CT_OK);
    assert_int_equal(ct_file_read(b, &y, &m), CT_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* Bytes that Caffe wrote come back as they were; and through every other format the values do. */
static void test_round_trips(void **state)
{
    static const char *const formats[] = { "a.caffemodel", "a.caffemodel.h5", "a.npz",
                                           "a.safetensors" };
    test_solver t, u;

    (void)state;
    assert_int_equal(test_weights_convert(GOLDEN "adam_iter_8.caffemodel", at("b.caffemodel")),
                     CT_OK);
    assert_same_file(GOLDEN "adam_iter_8.caffemodel", at("b.caffemodel"));
    make(kinds[0].fields, &t);
    make("type: 'SGD'", &u);
    assert_int_equal(ct_solver_load_weights(t.solver, at("b.caffemodel")), CT_OK);
    for (int from = 0; from < 4; from++) {
        assert_int_equal(test_weights_save(at(formats[from]), ct_solver_net(t.solver)), CT_OK);
        for (int to = 0; to < 4; to++) {
            ct_net *net = ct_solver_net(u.solver);
            char name[64];

            snprintf(name, sizeof(name), "c%d%d%s", from, to, strchr(formats[to], '.'));
            assert_int_equal(test_weights_convert(at(formats[from]), at(name)), CT_OK);
            memset(net->weight_arena, 0, (size_t)net->weight_count * sizeof(float));
            assert_int_equal(ct_solver_load_weights(u.solver, at(name)), CT_OK);
            assert_memory_equal(net->weight_arena, ct_solver_net(t.solver)->weight_arena,
                                (size_t)net->weight_count * sizeof(float));
        }
    }
    /* what a format does not hold is all that changes: twice the same bytes */
    assert_int_equal(test_weights_convert(at("c22.npz"), at("d.npz")), CT_OK);
    assert_same_file(at("c22.npz"), at("d.npz"));
    assert_same_file(at("c22.npz"), at("c02.npz"));
    assert_same_file(at("c22.npz"), at("c32.npz"));
    assert_same_file(at("c33.safetensors"), at("c03.safetensors"));
    test_solver_destroy(&t);
    test_solver_destroy(&u);
}

static void test_numpy(void **state)
{
    ct_model *m = NULL;
    float v[12];
    int l;

    (void)state;
    assert_int_equal(ct_model_open("tests/golden/numpy.npz", &m), CT_OK);
    test_log_holds("other.npy is no LAYER/INDEX.npy of weights, left out");
    assert_int_equal(m->n_layer, 2);
    l = ct_model_find(m, "ip1");
    assert_int_equal(m->layer[l].n_array, 2);
    assert_int_equal(ct_model_get(m, l, 0, v), CT_OK);
    for (int i = 0; i < 12; i++)
        assert_true(v[i] == 10.0f * (float)(i / 3) + (float)(i % 3) + 0.5f);
    assert_int_equal(ct_model_get(m, l, 1, v), CT_OK);
    for (int i = 0; i < 4; i++) assert_true(v[i] == (float)i);
    l = ct_model_find(m, "deep/er");
    assert_int_equal(m->layer[l].array[0].shape.ndim, 0);
    assert_int_equal(ct_model_get(m, l, 0, v), CT_OK);
    assert_true(v[0] == 7);
    ct_model_close(m);
}

static void open_fails(const char *file, ct_status want, const char *why)
{
    ct_model *m = NULL;
    ct_status status = ct_model_open(file, &m);

    if (status == CT_OK) status = ct_model_load(m);
    ct_model_close(m);
    assert_int_equal(status, want);
    test_log_holds(why);
}

/* A net of 2013: layers inside of layers, of which one has a blob of four dimensions. */
static void test_v0(void **state)
{
    Ct__NetParameter net = CT__NET_PARAMETER__INIT;
    Ct__V1LayerParameter outer = CT__V1_LAYER_PARAMETER__INIT, *outers[] = { &outer, &outer };
    Ct__V0LayerParameter inner = CT__V0_LAYER_PARAMETER__INIT;
    Ct__BlobProto blob = CT__BLOB_PROTO__INIT, *blobs[] = { &blob };
    float data[] = { 1, 2, 3, 4, 5, 6 };
    char name[] = "ip";
    uint8_t bytes[256];
    ct_model *m = NULL;

    (void)state;
    blob.has_num = blob.has_channels = blob.has_height = blob.has_width = 1;
    blob.num = blob.channels = 1;
    blob.height = 2;
    blob.width = 3;
    blob.n_data = 6;
    blob.data = data;
    inner.name = name;
    inner.n_blobs = 1;
    inner.blobs = blobs;
    outer.layer = &inner;
    net.n_layers = 1;
    net.layers = outers;
    assert_true(ct__net_parameter__get_packed_size(&net) <= sizeof(bytes));
    assert_int_equal(
        ct_file_write(at("v0.caffemodel"), bytes, ct__net_parameter__pack(&net, bytes)), CT_OK);
    assert_int_equal(ct_model_open(at("v0.caffemodel"), &m), CT_OK);
    assert_int_equal(m->n_layer, 1);
    assert_string_equal(m->layer[0].name, "ip");
    assert_int_equal(m->layer[0].array[0].shape.ndim, 4);
    assert_true(m->layer[0].array[0].data[5] == 6);
    ct_model_close(m);
    net.n_layers = 2; /* the same name again */
    assert_int_equal(
        ct_file_write(at("twice.caffemodel"), bytes, ct__net_parameter__pack(&net, bytes)), CT_OK);
    open_fails(at("twice.caffemodel"), CT_ERR_DATA, "blob 0 of layer \"ip\" is there twice");
}

/* BatchNorm of a fork: what follows its three statistics is a Scale's. */
static void test_fused_norm(void **state)
{
    Ct__NetParameter net = CT__NET_PARAMETER__INIT;
    Ct__LayerParameter layer = CT__LAYER_PARAMETER__INIT, *layers[] = { &layer };
    Ct__BlobProto blob[5], *blobs[5];
    float data[5] = { 1, 2, 3, 4, 5 };
    char name[] = "bn", type[] = "BatchNorm";
    uint8_t bytes[256];
    ct_model *m = NULL;

    (void)state;
    for (int i = 0; i < 5; i++) {
        ct__blob_proto__init(&blob[i]);
        blob[i].n_data = 1;
        blob[i].data = &data[i];
        blobs[i] = &blob[i];
    }
    layer.name = name;
    layer.type = type;
    layer.n_blobs = 5;
    layer.blobs = blobs;
    net.n_layer = 1;
    net.layer = layers;
    assert_true(ct__net_parameter__get_packed_size(&net) <= sizeof(bytes));
    assert_int_equal(
        ct_file_write(at("bn.caffemodel"), bytes, ct__net_parameter__pack(&net, bytes)), CT_OK);
    assert_int_equal(ct_model_open(at("bn.caffemodel"), &m), CT_OK);
    assert_int_equal(m->n_layer, 2);
    for (int i = 0; i < 5; i++) {
        int l = ct_model_find(m, (i < 3) ? "bn" : "bn_scale");

        assert_true(l >= 0);
        assert_int_equal(m->layer[l].n_array, (i < 3) ? 3 : 2);
        assert_true(m->layer[l].array[i % 3].data[0] == data[i]);
    }
    ct_model_close(m);
}

static void test_bad_files(void **state)
{
    static const char not_npy[] = "neither array nor anything";
    char *data = NULL;
    size_t size = 0;

    (void)state;
    copy_part("tests/golden/numpy.npz", at("cut.npz"), 500);
    open_fails(at("cut.npz"), CT_ERR_DATA, "a broken or cut zip file: no directory at its end");
    assert_int_equal(ct_file_read("tests/golden/numpy.npz", &data, &size), CT_OK);
    data[60] ^= 0x55; /* within the first entry */
    assert_int_equal(ct_file_write(at("bent.npz"), data, size), CT_OK);
    free(data);
    open_fails(at("bent.npz"), CT_ERR_DATA, "a broken or cut zip file: an entry ends early");
    assert_int_equal(test_weights_convert(GOLDEN "sgd_iter_4.caffemodel", at("a.npz")), CT_OK);
    assert_int_equal(ct_file_read(at("a.npz"), &data, &size), CT_OK);
    data[41 + 128 + 5] ^= 1; /* a value of the first entry, behind two heads */
    assert_int_equal(ct_file_write(at("a.npz"), data, size), CT_OK);
    free(data);
    open_fails(at("a.npz"), CT_ERR_DATA, "ip1/0.npy is broken");
    copy_part(GOLDEN "sgd_iter_4.caffemodel", at("cut.caffemodel"), 300);
    open_fails(at("cut.caffemodel"), CT_ERR_DATA, "neither HDF5 nor a whole binary caffemodel");
    assert_int_equal(ct_file_write(at("text.npz"), not_npy, sizeof(not_npy)), CT_OK);
    open_fails(at("text.npz"), CT_ERR_DATA, "neither HDF5 nor a whole binary caffemodel");
    open_fails(at("nothing.npz"), CT_ERR_IO, "nothing.npz: No such file or directory");
    assert_int_equal(test_weights_convert(GOLDEN "sgd_iter_4.caffemodel", at("a.txt")),
                     CT_ERR_CONFIG);
    test_log_holds("the end of the name says the format");
}

/* What was loaded, what not, with names that come near, and everything that does not fit. */
static void test_report(void **state)
{
    static const char renamed[] =
        "base_lr: 1 lr_policy: 'fixed' max_iter: 1 random_seed: 3 snapshot_after_train: false "
        "net_param { name: 'n' layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { "
        "shape { dim: 4 dim: %d } } } "
        "layer { name: 'ip1' type: 'InnerProduct' bottom: 'x' top: 'h' inner_product_param { "
        "num_output: %d weight_filler { type: 'xavier' } } } "
        "layer { name: 'ip2_new' type: 'InnerProduct' bottom: 'h' top: 'z' inner_product_param { "
        "num_output: 2 weight_filler { type: 'xavier' } } } "
        "layer { name: 'frozen' type: 'InnerProduct' bottom: 'z' top: 'f' inner_product_param { "
        "num_output: 3 } } "
        "layer { name: 'loss' type: 'EuclideanLoss' bottom: 'f' bottom: 'f' top: 'loss' } } ";
    char text[2048];
    test_solver t;

    (void)state;
    snprintf(text, sizeof(text), renamed, 5, 6);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_load_weights(t.solver, GOLDEN "sgd_iter_4.caffemodel"),
                     CT_ERR_SHAPE);
    test_log_holds("blob 0 of layer \"ip1\" has shape 4 3 (12) in the file, 6 5 (30) in the net");
    test_log_holds("blob 0 of layer \"frozen\" has shape 3 4 (12) in the file, 3 2 (6) in the net");
    test_solver_destroy(&t);
    snprintf(text, sizeof(text), renamed, 3, 4);
    for (char *at_frozen = strstr(text, "frozen"); at_frozen != NULL;
         at_frozen = strstr(at_frozen, "frozen"))
        memcpy(at_frozen, "frozem", 6);
    assert_int_equal(test_solver_create(text, NULL, NULL, NULL, &t), CT_OK);
    assert_int_equal(ct_solver_load_weights(t.solver, GOLDEN "sgd_iter_4.caffemodel"), CT_OK);
    test_log_holds("weights of 1 layers, 2 of the net not there, 2 there not in the net");
    test_log_holds("frozem [3 2 (6), 3 (3)] (the file has frozen);");
    test_log_holds("Ignoring source layer frozen [3 4 (12), 3 (3)]; ip2 [2 3 (6), 2 (2)];");
    test_solver_destroy(&t);
}

int main(void)
{
#define TEST(_f) cmocka_unit_test_setup_teardown(_f, test_solver_setup, test_solver_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_goes_on_from_caffe),
        TEST(test_writes_for_caffe),
        TEST(test_bad_states),
        TEST(test_round_trips),
        TEST(test_numpy),
        TEST(test_v0),
        TEST(test_fused_norm),
        TEST(test_bad_files),
        TEST(test_report),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
