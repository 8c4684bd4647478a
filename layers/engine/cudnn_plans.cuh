/** @file cudnn_plans.cuh  Descriptions of cuDNN's operations, which are the process's: made once, and
 * found again by what they describe. Included by files *_cudnn.cu.
 */
#ifndef CT_CUDNN_PLANS_CUH
#define CT_CUDNN_PLANS_CUH

#include <climits>
#include <cstdlib>
#include <cstring>

#include "layers/engine/cudnn.cuh"

/** Of structs P with a member `desc`, of a name that no other file has. An object of it is static, and
 * zero at first. */
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
