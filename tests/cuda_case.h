/** @file cuda_case.h  What tests of the CUDA device share: the device itself, or the test skips;
 * blocks on it; nets from text with their gradients; the device's side of codecs. */
#ifndef CT_TEST_CUDA_CASE_H
#define CT_TEST_CUDA_CASE_H

#include "comm/codec/codec_kernels.h"
#include "framework/math/math.h"
#include "framework/net/net.h"
#include "tests/log_capture.h"

/** NULL where none works, or CUDA=1 is missing in the build; without a word. */
const ct_device *test_cuda_there(void);
/** The same, but the test that calls it skips there, and says why. */
const ct_device *test_cuda(void);

/** A block of `bytes` and some more on the device; from NULL: zeros. Freed with mem_release. */
void *test_cuda_put(const ct_device *dev, const void *from, size_t bytes);
/** The same of n numbers rounded to 16 bits; and numbers of 16 bits from the device. */
void *test_cuda_put_narrow(const ct_device *dev, ct_operand operand, const float *from, int64_t n);
void test_cuda_get_narrow(const ct_device *dev, ct_operand operand, void *from, int64_t n,
                          float *to);

/** A net, phase TRAIN, seed 5, on any device. Anything that goes wrong fails the test. */
typedef struct test_cuda_net {
    ProtobufCMessage *message;
    ct_net *net;
} test_cuda_net;

/** options: without phase, dev and env.seed, which are set here; NULL: all zero. edit: NULL, or
 * what is done to the message before the net is made. */
void test_cuda_net_open(const char *text, const ct_device *dev, const ct_net_options *options,
                        void (*edit)(Ct__NetParameter *p), test_cuda_net *t);
/** Whether such a net can be made at all: an engine that it names may not be there. What is logged
 * goes to *log. */
ct_status test_cuda_net_try(const char *text, const ct_device *dev,
                            Ct__SolverParameter__Precision precision, log_capture *log);
/** The same with options as they are. */
ct_status test_cuda_net_try_with(const char *text, const ct_net_options *o, log_capture *log);
/** What `layer` runs by, forward and by data: names of less than 24 letters. */
void test_cuda_net_engines(const test_cuda_net *t, const char *layer, char engine[2][24]);
/** Forward and backward of micro step `step`; the loss. */
double test_cuda_net_pass(test_cuda_net *t, int64_t step, bool accumulate);
/** Of all weights, in the arena's order: net->grad_count on the host, to be freed. */
float *test_cuda_net_gradients(const test_cuda_net *t);
void test_cuda_net_close(test_cuda_net *t);
/** Root mean square of a - b as a share of b's. */
double test_cuda_difference(int64_t n, const float *a, const float *b);

/** For cmocka's group set-up: the device with its codecs and a stream for them. dev NULL where none
 *  works, which is no failure; each test then begins with TEST_CODEC_NEEDS. */
typedef struct test_cuda_codec {
    const ct_device *dev;
    const ct_codec_kernels *codec;
    ct_stream stream;
} test_cuda_codec;
int test_cuda_codec_open(test_cuda_codec *c);
#define TEST_CODEC_NEEDS(_c)                                                                       \
    if ((_c).dev == NULL) skip()

#endif
