#include "tests/cuda_case.h"

#include "framework/base/bf16.h"
#include "framework/base/f16.h"
#include "tests/parsed_net.h"
#include "tests/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const ct_device *test_cuda_there(void)
{
    const ct_device *dev = NULL;
    log_capture log;
    ct_status status;

    log_capture_start(&log); /* that there is none is no error here */
    status = ct_device_open("cuda", 0, &dev);
    log_capture_stop();
    return (status == CT_OK) ? dev : NULL;
}

static void tell(void)
{
    print_message("skipped: no CUDA device, or built without CUDA=1\n");
}

const ct_device *test_cuda(void)
{
    const ct_device *dev = test_cuda_there();

    if (dev == NULL) {
        tell();
        skip();
    }
    return dev;
}

void *test_cuda_put(const ct_device *dev, const void *from, size_t bytes)
{
    void *to = NULL;

    assert_int_equal(dev->mem_acquire(bytes + 64, &to), CT_OK);
    if (from != NULL) assert_int_equal(dev->from_host(NULL, to, from, bytes), CT_OK);
    return to;
}

void *test_cuda_put_narrow(const ct_device *dev, ct_operand operand, const float *from, int64_t n)
{
    uint16_t *host = malloc((size_t)n * sizeof(*host) + 1);
    void *to;

    assert_non_null(host);
    for (int64_t i = 0; i < n; i++)
        host[i] =
            (operand == CT_OPERAND_F16) ? ct_f16_from_f32(from[i]) : ct_bf16_from_f32(from[i]);
    to = test_cuda_put(dev, host, (size_t)n * sizeof(*host));
    free(host);
    return to;
}

void test_cuda_get_narrow(const ct_device *dev, ct_operand operand, void *from, int64_t n,
                          float *to)
{
    uint16_t *host = malloc((size_t)n * sizeof(*host) + 1);

    assert_non_null(host);
    assert_int_equal(dev->to_host(NULL, host, from, (size_t)n * sizeof(*host)), CT_OK);
    for (int64_t i = 0; i < n; i++)
        to[i] = (operand == CT_OPERAND_F16) ? ct_f16_to_f32(host[i]) : ct_bf16_to_f32(host[i]);
    free(host);
}

void test_cuda_net_open(const char *text, const ct_device *dev, const ct_net_options *options,
                        void (*edit)(Ct__NetParameter *p), test_cuda_net *t)
{
    ct_net_options o = { .phase = CT_TRAIN };

    if (options != NULL) o = *options;
    o.phase = CT_TRAIN;
    o.env.seed = 5;
    o.dev = dev;
    *t = (test_cuda_net){ .net = NULL };
    t->message = test_parsed(&ct__net_parameter__descriptor, text);
    if (edit != NULL) edit((Ct__NetParameter *)t->message);
    assert_int_equal(ct_net_create((const Ct__NetParameter *)t->message, &o, &t->net), CT_OK);
    t->net->pass->exec.seed = 5;
}

ct_status test_cuda_net_try(const char *text, const ct_device *dev,
                            Ct__SolverParameter__Precision precision, log_capture *log)
{
    ct_net_options o = { .phase = CT_TRAIN,
                         .dev = dev,
                         .env = { .n_rank = 1, .seed = 5, .precision = precision } };

    return test_cuda_net_try_with(text, &o, log);
}

ct_status test_cuda_net_try_with(const char *text, const ct_net_options *o, log_capture *log)
{
    ProtobufCMessage *message = test_parsed(&ct__net_parameter__descriptor, text);
    ct_net *net = NULL;
    ct_status status;

    log_capture_start(log);
    status = ct_net_create((const Ct__NetParameter *)message, o, &net);
    log_capture_stop();
    if (status == CT_OK) ct_net_destroy(net);
    protobuf_c_message_free_unpacked(message, NULL);
    return status;
}

void test_cuda_net_engines(const test_cuda_net *t, const char *layer, char engine[2][24])
{
    ct_estimate e;

    ct_net_estimate(t->net, ct_net_find_layer(t->net, layer), &e);
    snprintf(engine[0], 24, "%s", e.engine[CT_RUN_FORWARD]);
    snprintf(engine[1], 24, "%s", e.engine[CT_RUN_BACKWARD_DATA]);
}

double test_cuda_net_pass(test_cuda_net *t, int64_t step, bool accumulate)
{
    double loss = 0.0;

    t->net->pass->exec.micro_step = step;
    t->net->pass->exec.accumulate = accumulate;
    assert_int_equal(ct_pass_forward(t->net->pass, &loss), CT_OK);
    assert_int_equal(ct_pass_backward(t->net->pass, NULL, NULL), CT_OK);
    return loss;
}

float *test_cuda_net_gradients(const test_cuda_net *t)
{
    size_t bytes = (size_t)t->net->grad_count * sizeof(float);
    float *host = malloc(bytes + 1);

    assert_non_null(host);
    assert_int_equal(t->net->pass->exec.dev->to_host(NULL, host, t->net->grad_arena, bytes), CT_OK);
    return host;
}

void test_cuda_net_close(test_cuda_net *t)
{
    ct_net_destroy(t->net);
    protobuf_c_message_free_unpacked(t->message, NULL);
}

double test_cuda_difference(int64_t n, const float *a, const float *b)
{
    double off = 0.0, size = 0.0;

    for (int64_t i = 0; i < n; i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    assert_true(size > 0.0);
    return sqrt(off / size);
}

int test_cuda_codec_open(test_cuda_codec *c)
{
    *c = (test_cuda_codec){ .dev = test_cuda_there() };
    if (c->dev == NULL) {
        tell();
        return 0;
    }
    c->codec = ct_codec_kernels_find(c->dev->kind);
    return ((c->codec != NULL) && (c->codec->stream(NULL, &c->stream) == CT_OK)) ? 0 : -1;
}
