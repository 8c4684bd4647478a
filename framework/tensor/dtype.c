#include "framework/tensor/tensor.h"

size_t ct_dtype_size(ct_dtype dtype)
{
    switch (dtype) {
    case CT_F32:
    case CT_I32:
        return 4;
    case CT_BF16:
    case CT_F16:
        return 2;
    case CT_U8:
        return 1;
    case CT_I64:
        return 8;
    }
    return 0;
}
