/* Engines of a net on the device chosen by timing: what is timed, what it is called, and that the
 * net then runs by it. Skips where no device works. */
#include "tests/test.h"
#include "tests/log_capture.h"

#include "framework/net/engine_plan.h"
#include "framework/net/net.h"
#include "framework/proto/prototxt.h"

#include <string.h>

/* Depthwise convolutions have an engine of their own, and all others have the general one. */
static const char text[] =
    "layer { name: 'data' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 2 dim: 6 "
    "dim: 9 dim: 8 } data_filler { type: 'gaussian' std: 1 } } }\n"
    "layer { name: 'a' type: 'Convolution' bottom: 'x' top: 'a' convolution_param { num_output: 6 "
    "kernel_size: 3 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'b' type: 'Convolution' bottom: 'a' top: 'b' convolution_param { num_output: 6 "
    "kernel_size: 3 group: 6 weight_filler { type: 'xavier' } } }\n"
    "layer { name: 'l' type: 'Reduction' bottom: 'b' top: 'l' loss_weight: 1 }\n";

static const ct_device *cuda(void)
{
    const ct_device *dev = NULL;
    log_capture log;
    ct_status status;

    log_capture_start(&log);
    status = ct_device_open("cuda", 0, &dev);
    log_capture_stop();
    if (status != CT_OK) {
        print_message("skipped: no CUDA device, or built without CUDA=1\n");
        skip();
    }
    return dev;
}

static void engines_are_timed(void **state)
{
    const ct_device *dev = cuda();
    ct_engine_plan_options o = { .machine = { "gpu", "cuda", "1", 1 },
                                 .mode = CT_PLAN_TIME,
                                 .n_rank = 1 };
    ct_net_options n = { .phase = CT_TRAIN, .env = { .n_rank = 1, .seed = 5 }, .dev = dev };
    ct_exec ex = { .dev = dev, .phase = CT_TRAIN, .seed = 5 };
    ProtobufCMessage *message = NULL;
    ct_engine_plan *plan = NULL;
    ct_net *net = NULL;
    int of_depth = 0;
    double loss = 0.0;

    (void)state;
    assert_int_equal(ct_engine_plan_create(&o, &plan), CT_OK);
    assert_int_equal(ct_prototxt_parse(&ct__net_parameter__descriptor, "test", text, strlen(text),
                                       NULL, &message),
                     CT_OK);
    n.env.plan = plan;
    assert_int_equal(ct_net_create((const Ct__NetParameter *)message, &n, &net), CT_OK);
    for (int i = 0; ct_engine_plan_row(plan, i) != NULL; i++) {
        const ct_plan_row *row = ct_engine_plan_row(plan, i);

        assert_non_null(strstr(row->key, " gpu"));
        assert_true(row->n >= 2);
        if (strcmp(row->layer, "b") != 0) continue;
        of_depth++;
        for (int k = 0; k < row->n; k++) {
            assert_true(row->engine[k].ms > 0.0);
            assert_true((strcmp(row->engine[k].name, "depthwise") == 0) ||
                        (strcmp(row->engine[k].name, "cuda") == 0) ||
                        (strcmp(row->engine[k].name, "cudnn") == 0));
        }
        assert_string_equal(row->taken, row->engine[0].name);
    }
    assert_int_equal(of_depth, 3); /* forward and both gradients */
    assert_int_equal(ct_net_forward(net, &ex, &loss), CT_OK);
    assert_int_equal(ct_net_backward(net, &ex, NULL, NULL), CT_OK);
    ct_net_destroy(net);
    ct_engine_plan_destroy(plan);
    protobuf_c_message_free_unpacked(message, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(engines_are_timed) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
