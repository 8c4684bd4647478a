/** @file cudnn.cuh  cuDNN: its library, found when the program runs, and descriptions of its
 * operations. Included by files *_cudnn.cu, which are built where its header is
 * there. */
#ifndef CT_ENGINE_CUDNN_CUH
#define CT_ENGINE_CUDNN_CUH

#include <climits>
#include <cstdlib>
#include <cstring>
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

/* ---- Descriptions of cuDNN's operations, which are the process's: made once, and
 * found again by what they describe. Included by files *_cudnn.cu.
 */

/** Of structs P with a member `desc`, of a name that no other file has. An object of it is static,
 * and zero at first. */
template <class P> struct ct_cudnn_plans {
    P *of;
    int n, room;

    /** That of d, valid until the next call; NULL: no memory. is_same(a, b): of two descriptions.
     *  make(plan): a new one, zero but for desc; where cuDNN cannot, it leaves that so. */
    template <class D, class S, class M> const P *find(const D *d, S is_same, M make)
    {
        for (int i = 0; i < n; i++) {
            if (is_same(&of[i].desc, d)) return &of[i];
        }
        if (n == room) {
            int more = 2 * room + 16;
            P *grown = (P *)realloc(of, (size_t)more * sizeof(*of));

            if (grown == NULL) return NULL;
            of = grown;
            room = more;
        }
        memset(&of[n], 0, sizeof(of[n]));
        of[n].desc = *d;
        make(&of[n]);
        return &of[n++];
    }
};

/** NULL where cuDNN cannot. */
static inline cudnnTensorDescriptor_t ct_cudnn_tensor(cudnnTensorFormat_t form,
                                                      cudnnDataType_t type, int64_t n, int64_t c,
                                                      int64_t h, int64_t w)
{
    cudnnTensorDescriptor_t x = NULL;

    if (ct_dnn.p_cudnnCreateTensorDescriptor(&x) != CUDNN_STATUS_SUCCESS) return NULL;
    if (ct_dnn.p_cudnnSetTensor4dDescriptor(x, form, type, (int)n, (int)c, (int)h, (int)w) ==
        CUDNN_STATUS_SUCCESS)
        return x;
    (void)ct_dnn.p_cudnnDestroyTensorDescriptor(x);
    return NULL;
}

#endif
