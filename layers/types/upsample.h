/** @file upsample.h  What Upsample's setup makes of its prototxt; private to layers/. */
#ifndef CT_UPSAMPLE_H
#define CT_UPSAMPLE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ct_upsample_state {
    int64_t scale_h, scale_w; /* 0: sizes are given */
    int64_t h, w;             /* 0: by scale        */
    bool pad_h, pad_w;
} ct_upsample_state;

#endif
