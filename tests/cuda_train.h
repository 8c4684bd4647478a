/** @file cuda_train.h  Small trainings on the device, for tests of its steps. */
#ifndef CT_TEST_CUDA_TRAIN_H
#define CT_TEST_CUDA_TRAIN_H

#include "framework/solver/solver_private.h"

/* Of tests/emulated_cuda: not there on a GPU. How often the host waited, and what it gave. */
extern int ct_emulated_waits(void) __attribute__((weak));
extern int ct_emulated_given(void) __attribute__((weak));

#define LABELLED(label)                                                                            \
    "layer { name: 'data' type: 'DummyData' top: 'data' top: 'label' dummy_data_param { "          \
    "shape { dim: 6 dim: 3 dim: 9 dim: 9 } shape { dim: 6 } "                                      \
    "data_filler { type: 'gaussian' std: 1 } data_filler { value: " label " } } } "
#define IMAGES                                                                                     \
    "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { "           \
    "num_output: 8 kernel_size: 3 weight_filler { type: 'xavier' } } } "                           \
    "layer { name: 'bn' type: 'BatchNorm' bottom: 'c' top: 'bn' } "                                \
    "layer { name: 's' type: 'Scale' bottom: 'bn' top: 's' scale_param { bias_term: true } } "     \
    "layer { name: 'r' type: 'ReLU' bottom: 's' top: 's' } "                                       \
    "layer { name: 'n' type: 'LRN' bottom: 's' top: 'n' } "                                        \
    "layer { name: 'p' type: 'Pooling' bottom: 'n' top: 'p' pooling_param { pool: MAX "            \
    "kernel_size: 2 stride: 2 } } "                                                                \
    "layer { name: 'd' type: 'Dropout' bottom: 'p' top: 'p' } "                                    \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'p' top: 'f' inner_product_param { "           \
    "num_output: 5 weight_filler { type: 'xavier' } } } "
/* As AlexNet's: with precision of 16 bits all its values have them. */
#define HEAD                                                                                       \
    "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' convolution_param { "           \
    "num_output: 8 kernel_size: 3 weight_filler { type: 'xavier' } } } "                           \
    "layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' } "                                       \
    "layer { name: 'p' type: 'Pooling' bottom: 'c' top: 'p' pooling_param { pool: MAX "            \
    "kernel_size: 2 stride: 2 } } "                                                                \
    "layer { name: 'g' type: 'InnerProduct' bottom: 'p' top: 'g' inner_product_param { "           \
    "num_output: 16 weight_filler { type: 'xavier' } } } "                                         \
    "layer { name: 'gr' type: 'ReLU' bottom: 'g' top: 'g' } "                                      \
    "layer { name: 'gd' type: 'Dropout' bottom: 'g' top: 'g' } "                                   \
    "layer { name: 'h' type: 'InnerProduct' bottom: 'g' top: 'h' inner_product_param { "           \
    "num_output: 24 weight_filler { type: 'xavier' } } } "                                         \
    "layer { name: 'hr' type: 'ReLU' bottom: 'h' top: 'h' } "                                      \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'h' top: 'f' inner_product_param { "           \
    "num_output: 5 weight_filler { type: 'xavier' } } } "
#define LOSS(type, more)                                                                           \
    "layer { name: 'loss' type: '" type "' bottom: 'f' bottom: 'label' top: 'loss' " more " } "
#define ACCURACY "layer { name: 'a' type: 'Accuracy' bottom: 'f' bottom: 'label' top: 'a' } "
#define WORDS(word)                                                                                \
    "layer { name: 'data' type: 'DummyData' top: 'w' top: 'cont' top: 'label' dummy_data_param { " \
    "shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } shape { dim: 4 dim: 3 } "                     \
    "data_filler { value: " word " } data_filler { value: 1 } data_filler { value: 2 } } } "       \
    "layer { name: 'e' type: 'Embed' bottom: 'w' top: 'e' embed_param { num_output: 6 "            \
    "input_dim: 8 weight_filler { type: 'uniform' min: -1 } } } "                                  \
    "layer { name: 'l' type: 'LSTM' bottom: 'e' bottom: 'cont' top: 'l' recurrent_param { "        \
    "num_output: 5 weight_filler { type: 'uniform' min: -1 } } } "                                 \
    "layer { name: 'f' type: 'InnerProduct' bottom: 'l' top: 'f' inner_product_param { "           \
    "num_output: 8 axis: 2 weight_filler { type: 'xavier' } } } "                                  \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'f' bottom: 'label' top: 'loss' "        \
    "softmax_param { axis: 2 } } "

/** Trains: `fields` and `more` of the solver, the net of these layers. What it ends with. */
ct_status test_cuda_train(const char *layers, const char *fields, const char *more, int steps);

/** What training makes. */
typedef struct trained {
    float weight[4096], average[4096]; /* average: zero where there is none */
    int64_t n;
    float scale; /* of the loss: the host's account, and the device's */
    int64_t good;
    ct_loss_scale there;
} trained;

/** The same, which must succeed. snapshot: NULL, or what it goes on from. */
trained test_cuda_trained(const char *layers, const char *fields, const char *more, int steps,
                          const char *snapshot);

/** The same of a solver that has run to its end, and then goes on from the snapshot to its end once
 *  more, with what it has recorded. */
trained test_cuda_retrained(const char *layers, const char *fields, const char *more, int steps,
                            const char *snapshot);

/** The same, with `late` or its negative on the way to each learned weight from a run before. */
trained test_cuda_trained_late(const char *layers, const char *fields, const char *more, int steps,
                               float late);

/** Fails unless weights, averages and scales are the same, bit by bit, and the host's accounts of
 *  the scale are the device's; what: for the message. */
void test_cuda_same(const trained *a, const trained *b, const char *what);

/** What a step costs in counter(), such as ct_emulated_waits: the difference that five more make,
 *  after the first four. */
int test_cuda_each_step(int (*counter)(void), const char *layers, const char *fields);

#endif
