/* The data layers as nets run them: shapes, shares, order, made-up data, refusals. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/data/convert.h"
#include "framework/data/loader.h"
#include "framework/data/writer.h"
#include "framework/net/net.h"
#include "layers/types/data_common.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"
#include "tests/parsed_net.h"

/* ---- a net of data layers from text; %s of the text is the test's folder */

static ct_status open_net(parsed_net *f, const char *text, const char *folder, ct_phase phase,
                          const ct_net_env *env)
{
    char full[4096];

    snprintf(full, sizeof(full), text, folder, folder);
    return parsed_net_open(full, phase, env, f);
}

static const float *top(const parsed_net *f, const char *name, ct_shape *shape_p)
{
    int i = ct_net_find_blob(f->net, name);

    assert_true(i >= 0);
    *shape_p = f->net->pass->blob[i]->data.shape;
    return ct_blob_data(f->net->pass->blob[i]);
}

static void forward(parsed_net *f, int64_t step)
{
    f->net->pass->exec.micro_step = step;
    assert_int_equal(ct_pass_forward(f->net->pass, NULL), CT_OK);
}

static const ct_net_env one_rank = { .n_rank = 1, .seed = 3 };

static void expect_refused(const char *text, const char *folder, const ct_net_env *env,
                           ct_status want, const char *part)
{
    parsed_net f;
    ct_status status;
    const char *said;

    test_log_start();
    status = open_net(&f, text, folder, CT_TRAIN, env);
    said = test_log_stop();
    if ((status != want) || (strstr(said, part) == NULL)) {
        fail_msg("%s; \"%s\" in: %s", ct_status_str(status), part, said);
    }
    ct__net_parameter__free_unpacked(f.param, NULL);
}

/* ---- HDF5Data: labels are row numbers */

enum { ROWS = 30 };

/* Digits with their row for label: easy to recognise. */
static void make_rows(test_folder *d)
{
    uint8_t pixels[ROWS * 12], label[ROWS];
    const char *name[4] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                            "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" };
    ct_convert_options o = { .backend = "hdf5" };

    test_folder_make(d);
    for (int i = 0; i < ROWS; i++) {
        label[i] = (uint8_t)i;
        for (int k = 0; k < 12; k++) pixels[i * 12 + k] = (uint8_t)(i * 8 + k);
    }
    for (int i = 0; i < 4; i++) {
        bool images = i % 2 == 0;
        size_t size;
        uint8_t *data =
            test_idx(images ? 3 : 1, (int[]){ ROWS, 3, 4 }, images ? pixels : label, &size);

        test_file_write(test_path(d, name[i]), data, size);
        free(data);
    }
    o.from = o.to = d->path;
    test_log_start();
    assert_int_equal(ct_convert_mnist(&o), CT_OK);
    test_log_stop();
}

#define HDF5_NET(_more)                                                                            \
    "layer { name: 'd' type: 'HDF5Data' top: 'data' top: 'label' " _more                           \
    " hdf5_data_param { source: '%s/train.h5' batch_size: 4 } }"

static void test_hdf5_data(void **state)
{
    test_folder d;
    parsed_net f;

    (void)state;
    make_rows(&d);
    for (int phase = CT_TRAIN; phase <= CT_TEST; phase++) {
        assert_int_equal(open_net(&f, HDF5_NET("transform_param { scale: 0.5 }"), d.path,
                                  (ct_phase)phase, &one_rank),
                         CT_OK);
        assert_int_equal(f.net->batch_local, 4);
        assert_int_equal(f.net->batch_global, 4);
        assert_int_equal(f.net->n_sample, ROWS);
        for (int64_t s = 0; s < 20; s++) {
            ct_shape shape;
            const float *data, *label;

            forward(&f, s);
            data = top(&f, "data", &shape);
            assert_true(ct_shape_equal(&shape, &TEST_SHAPE(4, 1, 3, 4)));
            label = top(&f, "label", &shape);
            assert_true(ct_shape_equal(&shape, &TEST_SHAPE(4)));
            for (int64_t i = 0; i < 4; i++) { /* TRAIN mixes the order, TEST does not */
                int64_t id = ct_sample_at(3, phase == CT_TRAIN, s * 4 + i, ROWS);

                assert_true(label[i] == (float)id);
                for (int64_t k = 0; k < 12; k++) {
                    assert_true(data[i * 12 + k] == 0.5f * (float)(id * 8 + k));
                }
            }
        }
        assert_true(f.net->pass->exec.wait_data_s > 0);
        parsed_net_close(&f);
    }
    test_folder_remove(&d);
}

/* Two passes of one net read the data set independently of each other. */
static void test_passes_have_their_own_loaders(void **state)
{
    static const int64_t step[][2] = { { 0, 1 }, { 2, 3 }, { 4, 4 }, { 5, 17 } };
    test_folder d;
    ct_pass *pass[2];
    parsed_net f;

    (void)state;
    make_rows(&d);
    assert_int_equal(open_net(&f, HDF5_NET(""), d.path, CT_TRAIN, &one_rank), CT_OK);
    pass[0] = f.net->pass;
    assert_int_equal(ct_pass_create(f.net, &pass[1]), CT_OK);
    pass[1]->exec.seed = pass[0]->exec.seed;
    for (size_t s = 0; s < sizeof(step) / sizeof(step[0]); s++) {
        for (int k = 0; k < 2; k++) {
            pass[k]->exec.micro_step = step[s][k];
            assert_int_equal(ct_pass_forward(pass[k], NULL), CT_OK);
        }
        for (int k = 0; k < 2; k++) {
            const float *label = ct_blob_data(pass[k]->blob[ct_net_find_blob(f.net, "label")]);

            for (int64_t i = 0; i < 4; i++)
                assert_true(label[i] == (float)ct_sample_at(3, true, step[s][k] * 4 + i, ROWS));
        }
    }
    ct_pass_destroy(pass[1]);
    parsed_net_close(&f);
    test_folder_remove(&d);
}

/* Passes in flight take step after step, all from the loader of the first. */
static void test_passes_in_flight_share_a_loader(void **state)
{
    ct_net_options o = { .phase = CT_TRAIN, .table = ct_layer_table, .env = one_rank };
    const ct_data_instance *source;
    test_folder d;
    ct_pass *pass[3];
    parsed_net f;

    (void)state;
    o.in_flight = 3;
    make_rows(&d);
    assert_int_equal(open_net(&f, HDF5_NET(""), d.path, CT_TRAIN, &one_rank), CT_OK);
    ct_net_destroy(f.net);
    assert_int_equal(ct_net_create(f.param, &o, &f.net), CT_OK);
    pass[0] = f.net->pass;
    source = pass[0]->instance[0]->state;
    for (int k = 1; k < 3; k++) assert_int_equal(ct_pass_create(f.net, &pass[k]), CT_OK);
    for (int64_t step = 0; step < 11; step++) {
        ct_pass *p = pass[step % 3];
        const float *label;

        p->exec.seed = 3;
        p->exec.micro_step = step;
        assert_int_equal(ct_pass_forward(p, NULL), CT_OK);
        label = ct_blob_data(p->blob[ct_net_find_blob(f.net, "label")]);
        for (int64_t i = 0; i < 4; i++)
            assert_true(label[i] == (float)ct_sample_at(3, true, step * 4 + i, ROWS));
    }
    for (int k = 1; k < 3; k++) {
        const ct_data_instance *di = pass[k]->instance[0]->state;

        assert_ptr_equal(di->source, source);
        assert_null(di->loader);
        ct_pass_destroy(pass[k]);
    }
    assert_int_equal(ct_pass_forward(pass[0], NULL), CT_OK);
    parsed_net_close(&f);
    test_folder_remove(&d);
}

static void test_shuffle_false_is_obeyed(void **state)
{
    test_folder d;
    parsed_net f;
    ct_shape shape;

    (void)state;
    make_rows(&d);
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'HDF5Data' top: 'label' hdf5_data_param {"
                              " source: '%s/train.h5' batch_size: 4 shuffle: false } }",
                              d.path, CT_TRAIN, &one_rank),
                     CT_OK);
    for (int64_t s = 0; s < 10; s++) {
        forward(&f, s);
        for (int64_t i = 0; i < 4; i++) {
            assert_true(top(&f, "label", &shape)[i] == (float)((s * 4 + i) % ROWS));
        }
    }
    parsed_net_close(&f);
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'HDF5Data' top: 'label' hdf5_data_param {"
                              " source: '%s/train.h5' batch_size: 4 shuffle: true } }",
                              d.path, CT_TEST, &one_rank),
                     CT_OK);
    forward(&f, 0);
    for (int64_t i = 0; i < 4; i++) {
        assert_true(top(&f, "label", &shape)[i] == (float)ct_sample_at(3, true, i, ROWS));
    }
    parsed_net_close(&f);
    test_folder_remove(&d);
}

/* The ranks' batches, put together, are the same for any number of ranks. */
static void test_global_batch(void **state)
{
    enum { G = 7 };
    test_folder d;

    (void)state;
    make_rows(&d);
    for (int p = 1; p <= 4; p++) {
        for (int64_t s = 0; s < 3; s++) {
            int64_t next = 0;

            for (int r = 0; r < p; r++) {
                ct_net_env env = { .rank = r, .n_rank = p, .seed = 8, .global_batch_size = G };
                parsed_net f;
                ct_shape shape;
                const float *label;

                assert_int_equal(open_net(&f, HDF5_NET(""), d.path, CT_TRAIN, &env), CT_OK);
                assert_int_equal(f.net->batch_global, G);
                assert_int_equal(f.net->batch_first, next);
                forward(&f, s);
                label = top(&f, "label", &shape);
                assert_int_equal(shape.dim[0], f.net->batch_local);
                for (int64_t i = 0; i < f.net->batch_local; i++) {
                    assert_true(label[i] == (float)ct_sample_at(8, true, s * G + next + i, ROWS));
                }
                next += f.net->batch_local;
                parsed_net_close(&f);
            }
            assert_int_equal(next, G);
        }
    }
    for (int r = 0; r < 3; r++) { /* without it, batch_size a rank; in TEST always */
        ct_net_env env = { .rank = r, .n_rank = 3, .seed = 8 };
        parsed_net f;

        for (int phase = CT_TRAIN; phase <= CT_TEST; phase++) {
            env.global_batch_size = (phase == CT_TEST) ? 5 : 0;
            assert_int_equal(open_net(&f, HDF5_NET(""), d.path, (ct_phase)phase, &env), CT_OK);
            assert_int_equal(f.net->batch_local, 4);
            assert_int_equal(f.net->batch_global, 12);
            assert_int_equal(f.net->batch_first, 4 * r);
            parsed_net_close(&f);
        }
    }
    expect_refused(HDF5_NET(""), d.path,
                   &(ct_net_env){ .n_rank = 9, .seed = 1, .global_batch_size = 8 }, CT_ERR_CONFIG,
                   "global batch of 8");
    test_folder_remove(&d);
}

/* ---- Data over LMDB */

#define DATA_NET(_fields)                                                                          \
    "layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { source: '%s' "           \
    "batch_size: 5 " _fields " } }"

static void test_data(void **state)
{
    test_folder d;
    parsed_net f;
    ct_convert_options o = { .count = 40, .seed = 2 };
    ct_shape shape;

    (void)state;
    if (ct_writer_table[0].ops == NULL) skip();
    test_folder_make(&d);
    o.to = d.path;
    test_log_start();
    assert_int_equal(ct_convert_digits(&o), CT_OK);
    test_log_stop();
    for (int threads = 1; threads <= 3; threads++) {
        char text[512];

        snprintf(text, sizeof(text),
                 "layer { name: 'd' type: 'Data' top: 'data' top: 'label' data_param { source: "
                 "'%%s/train_lmdb' batch_size: 5 backend: LMDB threads: %d prefetch: 2 } }",
                 threads);
        assert_int_equal(open_net(&f, text, d.path, CT_TRAIN, &one_rank), CT_OK);
        assert_int_equal(f.net->n_sample, 40);
        forward(&f, 3);
        top(&f, "data", &shape);
        assert_true(ct_shape_equal(&shape, &TEST_SHAPE(5, 1, 28, 28)));
        parsed_net_close(&f);
    }
    expect_refused(DATA_NET("backend: LEVELDB"), test_path(&d, "train_lmdb"), &one_rank,
                   CT_ERR_CONFIG, "LevelDB");
    expect_refused(DATA_NET("backend: LMDB"), test_path(&d, "gone"), &one_rank, CT_ERR_IO,
                   "layer \"d\" (Data): cannot open LMDB");
    expect_refused("layer { name: 'd' type: 'Data' top: 'a' data_param { source: '%s' } }",
                   test_path(&d, "train_lmdb"), &one_rank, CT_ERR_CONFIG, "batch_size is 0");
    expect_refused(DATA_NET("threads: 0"), test_path(&d, "train_lmdb"), &one_rank, CT_ERR_CONFIG,
                   "threads is 0");
    expect_refused(DATA_NET("prefetch: 1000"), test_path(&d, "train_lmdb"), &one_rank,
                   CT_ERR_CONFIG, "prefetch is 1000");
    test_folder_remove(&d);
}

static void test_synthetic(void **state)
{
    ct_net_env env = { .n_rank = 2, .rank = 1, .seed = 1, .synthetic = true };
    parsed_net f;
    ct_shape shape;
    const float *v;

    (void)state;
    assert_int_equal(open_net(&f, DATA_NET("synthetic_shape { dim: 3 dim: 6 dim: 5 }"),
                              "/nowhere/db", CT_TRAIN, &env),
                     CT_OK);
    assert_int_equal(f.net->batch_global, 10);
    assert_int_equal(f.net->n_sample, 0);
    forward(&f, 0);
    v = top(&f, "data", &shape);
    assert_true(ct_shape_equal(&shape, &TEST_SHAPE(5, 3, 6, 5)));
    assert_true(memcmp(v, v + 90, 90 * sizeof(float)) != 0);
    v = top(&f, "label", &shape);
    for (int i = 0; i < 5; i++) assert_true((v[i] == 0) || (v[i] == 1));
    parsed_net_close(&f);

    env.synthetic_batch = 3;
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'Data' top: 'data' transform_param { "
                              "crop_size: 4 mean_file: '/nowhere/mean' } data_param { source: "
                              "'/nowhere/db' batch_size: 5 } }",
                              "", CT_TRAIN, &env),
                     CT_OK);
    forward(&f, 0);
    top(&f, "data", &shape);
    assert_true(ct_shape_equal(&shape, &TEST_SHAPE(3, 3, 4, 4)));
    parsed_net_close(&f);
    expect_refused(DATA_NET(""), "/nowhere/db", &env, CT_ERR_CONFIG,
                   "neither crop_size nor synthetic_shape");
}

/* ---- ImageData */

static void test_image_data(void **state)
{
    uint8_t rgb[6 * 4 * 3], expected[6 * 4 * 3];
    test_folder d;
    parsed_net f;
    ct_shape shape;
    const float *v;

    (void)state;
    if (ct_image_codec_table[1]->decode == NULL) skip();
    test_folder_make(&d);
    for (int i = 0; i < 6 * 4; i++) {
        for (int c = 0; c < 3; c++) {
            rgb[i * 3 + c] = (uint8_t)(i * 10 + c);
            expected[(2 - c) * 24 + i] = (uint8_t)(i * 10 + c); /* planes, blue first */
        }
    }
    test_png(test_path(&d, "a b.png"), 6, 4, 3, rgb);
    test_png(test_path(&d, "c.png"), 2, 2, 1, rgb);
    test_file_text(test_path(&d, "list"), "a b.png 7\n");
    test_file_text(test_path(&d, "two"), "a b.png 7\nc.png 8\n");
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'ImageData' top: 'data' top: 'label' "
                              "image_data_param { source: '%s/list' root_folder: '%s/' "
                              "batch_size: 2 } }",
                              d.path, CT_TEST, &one_rank),
                     CT_OK);
    forward(&f, 0);
    v = top(&f, "data", &shape);
    assert_true(ct_shape_equal(&shape, &TEST_SHAPE(2, 3, 6, 4)));
    for (int i = 0; i < 144; i++) assert_true(v[i] == (float)expected[i % 72]);
    v = top(&f, "label", &shape);
    assert_true((v[0] == 7) && (v[1] == 7));
    parsed_net_close(&f);

    /* another size is an error that names the file, unless a resize makes them equal */
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'ImageData' top: 'data' top: 'label' "
                              "image_data_param { source: '%s/two' root_folder: '%s/' "
                              "batch_size: 2 } }",
                              d.path, CT_TEST, &one_rank),
                     CT_OK);
    test_log_start();
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "c.png (line 2 of"));
    parsed_net_close(&f);
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'ImageData' top: 'data' top: 'label' "
                              "image_data_param { source: '%s/two' root_folder: '%s/' is_color: "
                              "false batch_size: 2 new_height: 5 new_width: 3 } }",
                              d.path, CT_TEST, &one_rank),
                     CT_OK);
    forward(&f, 0);
    top(&f, "data", &shape);
    assert_true(ct_shape_equal(&shape, &TEST_SHAPE(2, 1, 5, 3)));
    parsed_net_close(&f);
    expect_refused("layer { name: 'd' type: 'ImageData' top: 'data' image_data_param { source: "
                   "'%s/two' batch_size: 2 new_height: 5 } }",
                   d.path, &one_rank, CT_ERR_CONFIG, "give both or neither");
    test_folder_remove(&d);
}

/* ---- DummyData, Input */

static void test_dummy_data(void **state)
{
    const char *text =
        "layer { name: 'd' type: 'DummyData' top: 'a' top: 'b' dummy_data_param { "
        "shape { dim: %s dim: 3 } shape { dim: 2 } data_filler { type: 'gaussian' std: 2 } "
        "data_filler { type: 'constant' value: 1.5 } } }";
    parsed_net f;
    ct_shape shape;
    float whole[12];

    (void)state;
    assert_int_equal(open_net(&f, text, "4", CT_TRAIN, &one_rank), CT_OK);
    forward(&f, 5);
    memcpy(whole, top(&f, "a", &shape), sizeof(whole));
    assert_true(ct_shape_equal(&shape, &TEST_SHAPE(4, 3)));
    assert_true(top(&f, "b", &shape)[1] == 1.5f);
    forward(&f, 6);
    assert_true(memcmp(whole, top(&f, "a", &shape), sizeof(whole)) != 0); /* anew every time */
    forward(&f, 5);
    assert_memory_equal(whole, top(&f, "a", &shape), sizeof(whole));
    parsed_net_close(&f);
    for (int r = 0; r < 2; r++) { /* two ranks share what one has */
        ct_net_env env = { .n_rank = 2, .rank = r, .seed = 3 };

        assert_int_equal(open_net(&f, text, "2", CT_TRAIN, &env), CT_OK);
        assert_int_equal(f.net->batch_global, 4);
        forward(&f, 5);
        assert_memory_equal(whole + 6 * r, top(&f, "a", &shape), 6 * sizeof(float));
        parsed_net_close(&f);
    }
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'DummyData' top: 'a' dummy_data_param { "
                              "num: 2 channels: 3 height: 4 width: 5 } }",
                              "", CT_TRAIN, &one_rank),
                     CT_OK);
    forward(&f, 0);
    assert_true(top(&f, "a", &shape)[0] == 0.0f);
    assert_true(ct_shape_equal(&shape, &TEST_SHAPE(2, 3, 4, 5)));
    parsed_net_close(&f);
    expect_refused("layer { name: 'd' type: 'DummyData' top: 'a' top: 'b' top: 'c' "
                   "dummy_data_param { shape { dim: 1 } shape { dim: 2 } } }",
                   "", &one_rank, CT_ERR_CONFIG, "shape is given 2 times for 3 tops");
    expect_refused("layer { name: 'd' type: 'DummyData' top: 'a' dummy_data_param { "
                   "shape { dim: 0 } } }",
                   "", &one_rank, CT_ERR_CONFIG, "is 0");
}

static void test_input(void **state)
{
    parsed_net f;
    ct_shape shape;

    (void)state;
    assert_int_equal(open_net(&f,
                              "layer { name: 'd' type: 'Input' top: 'a' top: 'b' input_param { "
                              "shape { dim: 2 dim: 3 } } }",
                              "", CT_TEST, &one_rank),
                     CT_OK);
    assert_int_equal(f.net->batch_local, 2);
    ((float *)(uintptr_t)top(&f, "b", &shape))[4] = 8.0f;
    forward(&f, 0);
    assert_true(top(&f, "b", &shape)[4] == 8.0f); /* what the caller wrote stays */
    assert_true(ct_shape_equal(&shape, &TEST_SHAPE(2, 3)));
    parsed_net_close(&f);
    expect_refused("layer { name: 'd' type: 'Input' top: 'a' top: 'b' }", "", &one_rank,
                   CT_ERR_CONFIG, "0 shapes for 2 tops");
    expect_refused("layer { name: 'd' type: 'Input' top: 'a' input_param { shape { dim: -1 } } }",
                   "", &one_rank, CT_ERR_CONFIG, "is -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hdf5_data),
        cmocka_unit_test(test_passes_have_their_own_loaders),
        cmocka_unit_test(test_passes_in_flight_share_a_loader),
        cmocka_unit_test(test_shuffle_false_is_obeyed),
        cmocka_unit_test(test_global_batch),
        cmocka_unit_test(test_data),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_image_data),
        cmocka_unit_test(test_dummy_data),
        cmocka_unit_test(test_input),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
