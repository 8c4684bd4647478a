/** @file cudnn.h  What the sources here call of cuDNN, as plain loops on the host. There is
 * such a library only where CORTADO_EMULATED_CUDNN is set, so that tests run with it and without.
 */
#ifndef CT_EMULATED_CUDNN_H
#define CT_EMULATED_CUDNN_H

#include <cuda_runtime.h>

typedef enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_INTERNAL_ERROR = 4000,
    CUDNN_STATUS_EXECUTION_FAILED = 5000,
    CUDNN_STATUS_EXECUTION_FAILED_CUDART = 5003
} cudnnStatus_t;
#define CUDNN_STATUS_CATEGORY(full_error_code) ((full_error_code) / 1000 * 1000)
typedef enum { CUDNN_DATA_FLOAT = 0, CUDNN_DATA_HALF = 2, CUDNN_DATA_BFLOAT16 = 9 } cudnnDataType_t;
typedef enum { CUDNN_TENSOR_NCHW = 0, CUDNN_TENSOR_NHWC = 1 } cudnnTensorFormat_t;
typedef enum { CUDNN_CONVOLUTION = 0, CUDNN_CROSS_CORRELATION = 1 } cudnnConvolutionMode_t;
typedef enum { CUDNN_DEFAULT_MATH = 0, CUDNN_TENSOR_OP_MATH, CUDNN_FMA_MATH = 3 } cudnnMathType_t;
typedef enum { CUDNN_NON_DETERMINISTIC = 0, CUDNN_DETERMINISTIC = 1 } cudnnDeterminism_t;
typedef enum { CUDNN_FWD_FIRST } cudnnConvolutionFwdAlgo_t;
typedef enum { CUDNN_DATA_FIRST } cudnnConvolutionBwdDataAlgo_t;
typedef enum { CUDNN_FILTER_FIRST } cudnnConvolutionBwdFilterAlgo_t;

typedef struct ct_emulated_cudnn *cudnnHandle_t;
typedef struct ct_emulated_array *cudnnTensorDescriptor_t;
typedef struct ct_emulated_array *cudnnFilterDescriptor_t;
typedef struct ct_emulated_convolution *cudnnConvolutionDescriptor_t;

template <class A> struct ct_emulated_perf {
    A algo;
    cudnnStatus_t status;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
};
typedef ct_emulated_perf<cudnnConvolutionFwdAlgo_t> cudnnConvolutionFwdAlgoPerf_t;
typedef ct_emulated_perf<cudnnConvolutionBwdDataAlgo_t> cudnnConvolutionBwdDataAlgoPerf_t;
typedef ct_emulated_perf<cudnnConvolutionBwdFilterAlgo_t> cudnnConvolutionBwdFilterAlgoPerf_t;

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t st);
const char *cudnnGetErrorString(cudnnStatus_t st);
cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *t);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t t);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *f);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t f);
cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *c);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t c);
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t t, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w);
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t f, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int m, int c, int h, int w);
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t c, int ph, int pw,
                                              int sh, int sw, int dh, int dw,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t sums);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t c, int groups);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t c, cudnnMathType_t math);
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle,
                                                     cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t c,
                                                     cudnnTensorDescriptor_t y, int most, int *n,
                                                     cudnnConvolutionFwdAlgoPerf_t *perf);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t dx, int most, int *n,
    cudnnConvolutionBwdDataAlgoPerf_t *perf);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t c, cudnnFilterDescriptor_t dw, int most, int *n,
    cudnnConvolutionBwdFilterAlgoPerf_t *perf);
cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      cudnnTensorDescriptor_t x, const void *x_at,
                                      cudnnFilterDescriptor_t w, const void *w_at,
                                      cudnnConvolutionDescriptor_t c, cudnnConvolutionFwdAlgo_t how,
                                      void *work, size_t bytes, const void *beta,
                                      cudnnTensorDescriptor_t y, void *y_at);
cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t w, const void *w_at,
                                           cudnnTensorDescriptor_t dy, const void *dy_at,
                                           cudnnConvolutionDescriptor_t c,
                                           cudnnConvolutionBwdDataAlgo_t how, void *work,
                                           size_t bytes, const void *beta,
                                           cudnnTensorDescriptor_t dx, void *dx_at);
cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x, const void *x_at,
                                             cudnnTensorDescriptor_t dy, const void *dy_at,
                                             cudnnConvolutionDescriptor_t c,
                                             cudnnConvolutionBwdFilterAlgo_t how, void *work,
                                             size_t bytes, const void *beta,
                                             cudnnFilterDescriptor_t dw, void *dw_at);

typedef enum { CUDNN_NOT_PROPAGATE_NAN = 0, CUDNN_PROPAGATE_NAN = 1 } cudnnNanPropagation_t;
typedef enum {
    CUDNN_POOLING_MAX = 0,
    CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING = 1
} cudnnPoolingMode_t;
typedef enum { CUDNN_SOFTMAX_FAST = 0, CUDNN_SOFTMAX_ACCURATE = 1 } cudnnSoftmaxAlgorithm_t;
typedef enum { CUDNN_SOFTMAX_MODE_INSTANCE = 0, CUDNN_SOFTMAX_MODE_CHANNEL = 1 } cudnnSoftmaxMode_t;
typedef struct ct_emulated_pooling *cudnnPoolingDescriptor_t;

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *p);
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t p);
cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t p, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t nan, int kh, int kw, int ph, int pw,
                                          int sh, int sw);
cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, cudnnPoolingDescriptor_t p,
                                  const void *alpha, cudnnTensorDescriptor_t x, const void *x_at,
                                  const void *beta, cudnnTensorDescriptor_t y, void *y_at);
cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, cudnnPoolingDescriptor_t p,
                                   const void *alpha, cudnnTensorDescriptor_t y, const void *y_at,
                                   cudnnTensorDescriptor_t dy, const void *dy_at,
                                   cudnnTensorDescriptor_t x, const void *x_at, const void *beta,
                                   cudnnTensorDescriptor_t dx, void *dx_at);
cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t how,
                                  cudnnSoftmaxMode_t mode, const void *alpha,
                                  cudnnTensorDescriptor_t x, const void *x_at, const void *beta,
                                  cudnnTensorDescriptor_t y, void *y_at);
cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t how,
                                   cudnnSoftmaxMode_t mode, const void *alpha,
                                   cudnnTensorDescriptor_t y, const void *y_at,
                                   cudnnTensorDescriptor_t dy, const void *dy_at, const void *beta,
                                   cudnnTensorDescriptor_t dx, void *dx_at);

/* ---- normalisation */

#define CUDNN_LRN_MAX_N      16
#define CUDNN_LRN_MIN_K      1e-5
#define CUDNN_LRN_MIN_BETA   0.01
#define CUDNN_BN_MIN_EPSILON 0.0
typedef enum { CUDNN_LRN_CROSS_CHANNEL_DIM1 = 0 } cudnnLRNMode_t;
typedef enum {
    CUDNN_BATCHNORM_PER_ACTIVATION = 0,
    CUDNN_BATCHNORM_SPATIAL = 1
} cudnnBatchNormMode_t;
typedef struct ct_emulated_lrn *cudnnLRNDescriptor_t;

cudnnStatus_t cudnnCreateLRNDescriptor(cudnnLRNDescriptor_t *r);
cudnnStatus_t cudnnDestroyLRNDescriptor(cudnnLRNDescriptor_t r);
cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t r, unsigned n, double alpha, double beta,
                                    double k);
cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t r,
                                          cudnnLRNMode_t mode, const void *alpha,
                                          cudnnTensorDescriptor_t x, const void *x_at,
                                          const void *beta, cudnnTensorDescriptor_t y, void *y_at);
cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t r,
                                           cudnnLRNMode_t mode, const void *alpha,
                                           cudnnTensorDescriptor_t y, const void *y_at,
                                           cudnnTensorDescriptor_t dy, const void *dy_at,
                                           cudnnTensorDescriptor_t x, const void *x_at,
                                           const void *beta, cudnnTensorDescriptor_t dx,
                                           void *dx_at);
cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    cudnnTensorDescriptor_t x, const void *x_at, cudnnTensorDescriptor_t y, void *y_at,
    cudnnTensorDescriptor_t vector, const void *scale, const void *bias, double factor,
    void *running_mean, void *running_var, double eps, void *mean, void *inv_std);
cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    cudnnTensorDescriptor_t x, const void *x_at, cudnnTensorDescriptor_t y, void *y_at,
    cudnnTensorDescriptor_t vector, const void *scale, const void *bias, const void *mean,
    const void *var, double eps);
cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const void *alpha_vector, const void *beta_vector, cudnnTensorDescriptor_t x, const void *x_at,
    cudnnTensorDescriptor_t dy, const void *dy_at, cudnnTensorDescriptor_t dx, void *dx_at,
    cudnnTensorDescriptor_t vector, const void *scale, void *dscale, void *dbias, double eps,
    const void *mean, const void *inv_std);

/* ---- recurrent layers */

typedef enum { CUDNN_RNN_ALGO_STANDARD = 0 } cudnnRNNAlgo_t;
typedef enum { CUDNN_FWD_MODE_INFERENCE = 0, CUDNN_FWD_MODE_TRAINING = 1 } cudnnForwardMode_t;
typedef enum { CUDNN_RNN_RELU = 0, CUDNN_RNN_TANH = 1, CUDNN_LSTM = 2, CUDNN_GRU } cudnnRNNMode_t;
typedef enum {
    CUDNN_RNN_NO_BIAS = 0,
    CUDNN_RNN_SINGLE_INP_BIAS = 1,
    CUDNN_RNN_DOUBLE_BIAS = 2
} cudnnRNNBiasMode_t;
typedef enum { CUDNN_UNIDIRECTIONAL = 0, CUDNN_BIDIRECTIONAL = 1 } cudnnDirectionMode_t;
typedef enum { CUDNN_LINEAR_INPUT = 0, CUDNN_SKIP_INPUT = 1 } cudnnRNNInputMode_t;
typedef enum {
    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0,
    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED = 1
} cudnnRNNDataLayout_t;
typedef enum { CUDNN_WGRAD_MODE_ADD = 0, CUDNN_WGRAD_MODE_SET = 1 } cudnnWgradMode_t;
#define CUDNN_RNN_PADDED_IO_DISABLED 0
typedef struct ct_emulated_rnn *cudnnRNNDescriptor_t;
typedef struct ct_emulated_sequences *cudnnRNNDataDescriptor_t;
typedef struct ct_emulated_dropout *cudnnDropoutDescriptor_t;

/* CORTADO_EMULATED_CUDNN, where it is a version: above 1. */
size_t cudnnGetVersion(void);
/* Of three dimensions. */
cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t t, cudnnDataType_t type, int n,
                                         const int dim[], const int step[]);
cudnnStatus_t cudnnGetTensorNdDescriptor(cudnnTensorDescriptor_t t, int most, cudnnDataType_t *type,
                                         int *n, int dim[], int step[]);
cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *r);
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t r);
cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t r, cudnnRNNAlgo_t how,
                                       cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
                                       cudnnDirectionMode_t direction, cudnnRNNInputMode_t input,
                                       cudnnDataType_t type, cudnnDataType_t sums,
                                       cudnnMathType_t math, int32_t inputs, int32_t hidden,
                                       int32_t projection, int32_t layers,
                                       cudnnDropoutDescriptor_t dropout, uint32_t flags);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *d);
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t d);
cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t d, cudnnDataType_t type,
                                        cudnnRNNDataLayout_t layout, int longest, int batch,
                                        int size, const int length[], void *padding);
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                         size_t *bytes);
cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t r, int32_t layer,
                                      size_t bytes, const void *weights, int32_t id,
                                      cudnnTensorDescriptor_t matrix, void **matrix_at,
                                      cudnnTensorDescriptor_t bias, void **bias_at);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                        cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x,
                                        size_t *work, size_t *reserve);
cudnnStatus_t cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
                              const int32_t lengths[], cudnnRNNDataDescriptor_t x, const void *x_at,
                              cudnnRNNDataDescriptor_t y, void *y_at, cudnnTensorDescriptor_t h,
                              const void *hx, void *hy, cudnnTensorDescriptor_t c, const void *cx,
                              void *cy, size_t weight_bytes, const void *weights, size_t work_bytes,
                              void *work, size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                      const int32_t lengths[], cudnnRNNDataDescriptor_t y,
                                      const void *y_at, const void *dy, cudnnRNNDataDescriptor_t x,
                                      void *dx, cudnnTensorDescriptor_t h, const void *hx,
                                      const void *dhy, void *dhx, cudnnTensorDescriptor_t c,
                                      const void *cx, const void *dcy, void *dcx,
                                      size_t weight_bytes, const void *weights, size_t work_bytes,
                                      void *work, size_t reserve_bytes, void *reserve);
cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t r,
                                         cudnnWgradMode_t mode, const int32_t lengths[],
                                         cudnnRNNDataDescriptor_t x, const void *x_at,
                                         cudnnTensorDescriptor_t h, const void *hx,
                                         cudnnRNNDataDescriptor_t y, const void *y_at,
                                         size_t weight_bytes, void *dweights, size_t work_bytes,
                                         void *work, size_t reserve_bytes, void *reserve);

#endif
