#include "layers/engine/cudnn.cuh"

#include <dlfcn.h>

ct_cudnn_library ct_dnn;

#ifdef CT_CUDA_EMULATED
static void *open_library(void)
{
    return &ct_dnn;
}
static bool find_calls(void *)
{
#define LINKED(_name) ct_dnn.p_##_name = _name;
    CT_CUDNN_CALLS(LINKED)
    return true;
}
#else
static void *open_library(void)
{
    return dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
}
static bool find_calls(void *lib)
{
#define FIND(_name)                                                                                \
    ct_dnn.p_##_name = (decltype(ct_dnn.p_##_name))dlsym(lib, #_name);                             \
    if (ct_dnn.p_##_name == NULL) return false;
    CT_CUDNN_CALLS(FIND)
    return true;
}
#endif

bool ct_cudnn_is_there(void)
{
    void *lib;

    if (ct_dnn.looked) return ct_dnn.handle != NULL;
    ct_dnn.looked = true;
    lib = open_library();
    if ((lib == NULL) || !find_calls(lib) ||
        (ct_dnn.p_cudnnCreate(&ct_dnn.handle) != CUDNN_STATUS_SUCCESS)) {
        ct_dnn.handle = NULL;
        CT_DEBUG("no cuDNN 9 here");
    }
    return ct_dnn.handle != NULL;
}

ct_status ct_cudnn_check(cudnnStatus_t st, const char *what)
{
    if (st == CUDNN_STATUS_SUCCESS) return CT_OK;
    return CT_FAIL(CT_ERR_DEVICE, "%s: cuDNN: %s", what, ct_dnn.p_cudnnGetErrorString(st));
}

ct_status ct_cudnn_follow(const ct_exec *ex)
{
    return ct_cudnn_check(ct_dnn.p_cudnnSetStream(ct_dnn.handle, (cudaStream_t)ex->stream),
                          "stream");
}
