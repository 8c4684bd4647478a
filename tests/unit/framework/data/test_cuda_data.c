/* Batches that the device transforms beside those of the CPU, bit by bit; what goes up, and when.
 * Skips where no device works. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/data/convert.h"
#include "framework/data/pack.h"
#include "framework/data/transform.h"
#include "framework/net/net.h"
#include "framework/proto/prototxt.h"
#include "tests/cuda_case.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"

enum { ROWS = 30, H = 5, W = 6, BATCH = 4 };

static const ct_device *real;
static ct_device counting; /* real, but it counts batches that go up */
static int64_t n_ahead, bytes_ahead;
static int64_t under_way; /* tickets that have not ended */

static ct_status count_ahead(ct_stream st, const void *host, void *data, size_t bytes,
                             void **ticket_p)
{
    n_ahead++;
    bytes_ahead += (int64_t)bytes;
    under_way++;
    return real->copy_ahead(st, host, data, bytes, ticket_p);
}

/* The losses' way down: its ticket ends likewise. */
static ct_status count_begin(ct_stream st, void *host, void *data, size_t bytes, bool down,
                             void **ticket_p)
{
    ct_status status = real->copy_begin(st, host, data, bytes, down, ticket_p);

    under_way += *ticket_p != NULL;
    return status;
}

static ct_status count_done(void *ticket, bool wait, bool *done_p)
{
    ct_status status = real->copy_done(ticket, wait, done_p);

    under_way -= *done_p;
    return status;
}

static void need_device(void)
{
    n_ahead = bytes_ahead = under_way = 0;
    if (real != NULL) return;
    real = test_cuda();
    counting = *real;
    counting.copy_ahead = count_ahead;
    counting.copy_begin = count_begin;
    counting.copy_done = count_done;
}

/* ---- nets of a data layer on both sides */

typedef struct side {
    const ct_device *dev;
    ProtobufCMessage *param;
    ct_net *net;
} side;

static void open_sides(side s[2], const char *text, ct_phase phase)
{
    for (int k = 0; k < 2; k++) {
        ct_net_options o = { .phase = phase, .env = { .n_rank = 1, .seed = 3, .synthetic = true } };

        s[k].dev = o.dev = (k == 0) ? ct_device_cpu() : &counting;
        assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "test", text,
                                           strlen(text), NULL, &s[k].param),
                         CT_OK);
        assert_int_equal(ct_net_create((const Ct__NetParameter *)s[k].param, &o, &s[k].net), CT_OK);
        s[k].net->pass->exec.seed = 3;
    }
}

static void close_sides(side s[2])
{
    for (int k = 0; k < 2; k++) {
        ct_net_destroy(s[k].net);
        protobuf_c_message_free_unpacked(s[k].param, NULL);
    }
    assert_int_equal(under_way, 0);
}

static void compare_step(side s[2], int64_t step)
{
    float *value[2];

    for (int k = 0; k < 2; k++) {
        s[k].net->pass->exec.micro_step = step;
        assert_int_equal(ct_pass_forward(s[k].net->pass, NULL), CT_OK);
    }
    for (int b = 0; b < s[0].net->n_blob; b++) {
        size_t bytes = ct_tensor_bytes(&s[0].net->pass->blob[b]->data);

        for (int k = 0; k < 2; k++) {
            value[k] = malloc(bytes);
            assert_non_null(value[k]);
            assert_int_equal(
                s[k].dev->to_host(NULL, value[k], s[k].net->pass->blob[b]->data.data, bytes),
                CT_OK);
        }
        assert_memory_equal(value[0], value[1], bytes);
        free(value[0]);
        free(value[1]);
    }
}

static void make_rows(test_folder *d)
{
    const char *name[4] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                            "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" };
    uint8_t pixels[ROWS * H * W], label[ROWS];
    ct_convert_options o = { .backend = "hdf5" };
    ct_shape shape = { 3, { 1, H, W } };
    float mean[H * W];

    test_folder_make(d);
    for (int i = 0; i < ROWS * H * W; i++) pixels[i] = (uint8_t)(i * 37 + i / 11);
    for (int i = 0; i < ROWS; i++) label[i] = (uint8_t)i;
    for (int i = 0; i < H * W; i++) mean[i] = (float)i * 7.3f;
    for (int i = 0; i < 4; i++) {
        bool images = i % 2 == 0;
        size_t size;
        uint8_t *data =
            test_idx(images ? 3 : 1, (int[]){ ROWS, H, W }, images ? pixels : label, &size);

        test_file_write(test_path(d, name[i]), data, size);
        free(data);
    }
    o.from = o.to = d->path;
    test_log_start();
    assert_int_equal(ct_convert_mnist(&o), CT_OK);
    test_log_stop();
    assert_int_equal(ct_mean_write(test_path(d, "mean"), &shape, mean), CT_OK);
}

static void transforms_are_the_same(void **state)
{
    const char *const how[] = {
        "",
        "scale: 0.00390625",
        "mean_value: 33.3 scale: 0.017",
        "mean_file: '%s/mean' mirror: true crop_size: 3",
        "mean_file: '%s/mean' mirror: true crop_size: 5 pad: 2 scale: 0.3",
        "mean_value: 100 crop_size: 4 pad: 1",
    };
    test_folder d;

    (void)state;
    need_device();
    make_rows(&d);
    for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
        for (int phase = CT_TRAIN; phase <= CT_TEST; phase++) {
            char param[256], text[1024];
            side s[2];

            snprintf(param, sizeof(param), how[i], d.path);
            snprintf(text, sizeof(text),
                     "layer { name: 'd' type: 'HDF5Data' top: 'data' top: 'label' transform_param "
                     "{ %s } hdf5_data_param { source: '%s/train.h5' batch_size: %d } }",
                     param, d.path, BATCH);
            open_sides(s, text, (ct_phase)phase);
            for (int64_t step = 0; step < 12; step++) compare_step(s, step);
            /* a test pass that starts anew, a resumed run, the same step again */
            for (int64_t step = 0; step < 3; step++) compare_step(s, step);
            for (int64_t step = 1000; step < 1003; step++) compare_step(s, step);
            compare_step(s, 1002);
            compare_step(s, 1004);
            assert_true(s[1].net->pass->exec.wait_data_s > 0);
            close_sides(s);
        }
    }
    test_folder_remove(&d);
}

#define MADE                                                                                       \
    "layer { name: 'd' type: 'Data' top: 'data' top: 'label' transform_param { mirror: true "      \
    "crop_size: 7 mean_value: 104 mean_value: 117 mean_value: 123 } data_param { source: "         \
    "'/nowhere' batch_size: 6 synthetic_shape { dim: 3 dim: 9 dim: 11 } } }"

static void two_go_up_ahead(void **state)
{
    enum { STEPS = 20 };
    ct_shape window = { 3, { 3, 7, 7 } };
    int64_t count[2] = { 6 * 3 * 7 * 7, 6 };
    ct_pack pack = ct_pack_lay(6, &window, false, 2, count);
    int ahead = 0;
    side s[2];

    (void)state;
    need_device();
    /* a byte a value, a label, and where the window was */
    assert_true(pack.bytes <= 6 * sizeof(ct_pack_place) + 6 * 4 + 6 * 3 * 7 * 7 + 3 * CT_ALIGN);
    open_sides(s, MADE, CT_TRAIN);
    for (int64_t step = 0; step < STEPS; step++) {
        usleep(20000);           /* so that batches are ready, as a rule */
        ahead += n_ahead > step; /* that of the step is up already */
        compare_step(s, step);
        assert_in_range(n_ahead, step + 1, step + 3);
        assert_in_range(under_way, 1, 3);
    }
    assert_true(ahead > 0);
    assert_int_equal(bytes_ahead, n_ahead * (int64_t)pack.bytes);
    close_sides(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transforms_are_the_same),
        cmocka_unit_test(two_go_up_ahead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
