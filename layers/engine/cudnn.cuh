/** @file cudnn.cuh  cuDNN's library, found when the program runs. Included by files *_cudnn.cu, which
 * are built where its header is there.
 */
#ifndef CT_CUDNN_CUH
#define CT_CUDNN_CUH

#include <cudnn.h>

#include "framework/math/cuda/narrow.cuh"
#include "layers/engine/engine.h"

#define CT_CUDNN_CALLS(X)                                                                          \
    X(cudnnCreate)                                                                                 \
    X(cudnnSetStream)                                                                              \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnCreateTensorDescriptor)                                                                 \
    X(cudnnDestroyTensorDescriptor)                                                                \
    X(cudnnDestroyFilterDescriptor)                                                                \
    X(cudnnDestroyConvolutionDescriptor)                                                           \
    X(cudnnSetTensor4dDescriptor)                                                                  \
    X(cudnnCreateFilterDescriptor)                                                                 \
    X(cudnnSetFilter4dDescriptor)                                                                  \
    X(cudnnCreateConvolutionDescriptor)                                                            \
    X(cudnnSetConvolution2dDescriptor)                                                             \
    X(cudnnSetConvolutionGroupCount)                                                               \
    X(cudnnSetConvolutionMathType)                                                                 \
    X(cudnnGetConvolutionForwardAlgorithm_v7)                                                      \
    X(cudnnGetConvolutionBackwardDataAlgorithm_v7)                                                 \
    X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                               \
    X(cudnnConvolutionForward)                                                                     \
    X(cudnnConvolutionBackwardData)                                                                \
    X(cudnnConvolutionBackwardFilter)                                                              \
    X(cudnnCreatePoolingDescriptor)                                                                \
    X(cudnnDestroyPoolingDescriptor)                                                               \
    X(cudnnSetPooling2dDescriptor)                                                                 \
    X(cudnnPoolingForward)                                                                         \
    X(cudnnPoolingBackward)                                                                        \
    X(cudnnSoftmaxForward)                                                                         \
    X(cudnnSoftmaxBackward)                                                                        \
    X(cudnnCreateLRNDescriptor)                                                                    \
    X(cudnnDestroyLRNDescriptor)                                                                   \
    X(cudnnSetLRNDescriptor)                                                                       \
    X(cudnnLRNCrossChannelForward)                                                                 \
    X(cudnnLRNCrossChannelBackward)                                                                \
    X(cudnnBatchNormalizationForwardTraining)                                                      \
    X(cudnnBatchNormalizationForwardInference)                                                     \
    X(cudnnBatchNormalizationBackward)                                                             \
    X(cudnnGetVersion)                                                                             \
    X(cudnnSetTensorNdDescriptor)                                                                  \
    X(cudnnGetTensorNdDescriptor)                                                                  \
    X(cudnnCreateRNNDescriptor)                                                                    \
    X(cudnnDestroyRNNDescriptor)                                                                   \
    X(cudnnSetRNNDescriptor_v8)                                                                    \
    X(cudnnCreateRNNDataDescriptor)                                                                \
    X(cudnnDestroyRNNDataDescriptor)                                                               \
    X(cudnnSetRNNDataDescriptor)                                                                   \
    X(cudnnGetRNNWeightSpaceSize)                                                                  \
    X(cudnnGetRNNWeightParams)                                                                     \
    X(cudnnGetRNNTempSpaceSizes)                                                                   \
    X(cudnnRNNForward)                                                                             \
    X(cudnnRNNBackwardData_v8)                                                                     \
    X(cudnnRNNBackwardWeights_v8)

/* The library is the process's, like the device; as the handle of cuBLAS. */
struct ct_cudnn_library {
    bool looked;
    cudnnHandle_t handle; /* NULL: there is none */
#define CT_CUDNN_MEMBER(_name) decltype(&::_name) p_##_name;
    CT_CUDNN_CALLS(CT_CUDNN_MEMBER)
};

extern ct_cudnn_library ct_dnn;

/** Looks for it once. */
bool ct_cudnn_is_there(void);
/** CT_OK, or CT_ERR_DEVICE logged with cuDNN's text. */
ct_status ct_cudnn_check(cudnnStatus_t st, const char *what);
/** Its calls go to the stream of ex from here on. */
ct_status ct_cudnn_follow(const ct_exec *ex);

static inline cudnnDataType_t ct_cudnn_type(ct_dtype type)
{
    return (type == CT_BF16)  ? CUDNN_DATA_BFLOAT16
           : (type == CT_F16) ? CUDNN_DATA_HALF
                              : CUDNN_DATA_FLOAT;
}

#endif
