/** @file onnx_impl.h  An ONNX file while it is made; private to framework/tools/onnx*.c. */
#ifndef CT_ONNX_IMPL_H
#define CT_ONNX_IMPL_H

#include "cli/onnx/onnx.h"

enum { CT_ONNX_FLOAT = 1, CT_ONNX_INT64 = 7 }; /* of onnx.proto */

typedef struct ct_onnx_init {
    ct_text head; /* TensorProto up to raw_data */
    const void *data;
    void *owned;
    int64_t bytes;
} ct_onnx_init;

typedef struct ct_onnx_value { /* what a blob of the net is called now */
    const char *blob;
    char *name; /* owned */
    bool read;
} ct_onnx_value;

struct ct_onnx {
    ct_text nodes, node, attributes, values;
    ct_onnx_init *init;
    int n_init;
    ct_onnx_value *value;
    int n_value;
    bool failed; /* no memory */
};

/* protobuf's wire, into a text */
void ct_onnx_put_int(ct_text *t, unsigned field, int64_t v);
void ct_onnx_put_text(ct_text *t, unsigned field, const char *text);
/** The message is used up. */
void ct_onnx_put_message(ct_text *t, unsigned field, ct_text *message);

/** The newest value of that blob, or NULL. */
ct_onnx_value *ct_onnx_find_value(ct_onnx *x, const char *blob);
/** blob is now called name, which is taken over. */
void ct_onnx_set_value(ct_onnx *x, const char *blob, char *name);

#endif
