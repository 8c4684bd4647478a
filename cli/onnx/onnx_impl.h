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
    const char *blob, *name;   /* borrowed: of the net, of the names below */
    const ct_shape *shape;     /* borrowed */
    bool output;               /* of the graph */
} ct_onnx_value;

typedef struct ct_onnx_name {
    char *wanted, *name; /* owned; the second differs where the first was taken */
    bool part;           /* a value within a layer, which is asked for by what was wanted */
} ct_onnx_name;

typedef struct ct_onnx_names { /* no two are equal */
    ct_onnx_name *entry;
    int n;
} ct_onnx_names;

struct ct_onnx {
    ct_text nodes, node, attributes, values;
    ct_text node_name; /* of the node under way: its layer's, with the name of a part behind it */
    ct_onnx_names node_names, value_names;
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
/** Top i is now called name, which is borrowed. NULL: there was no memory for the name. */
void ct_onnx_set_value(ct_onnx *x, const ct_onnx_layer *l, int i, const char *name);

/** Takes `wanted`, or where it is taken `wanted` with a number behind it. NULL: no memory, noted.
 */
const char *ct_onnx_take_name(ct_onnx *x, ct_onnx_names *names, const char *wanted, bool part);
bool ct_onnx_name_taken(const ct_onnx_names *names, const char *name);
void ct_onnx_names_destroy(ct_onnx_names *names);

/* ---- what the file holds of a net: onnx_live.c */

typedef enum ct_onnx_use { /* of a value, by all that comes behind it; the largest counts */
                           CT_ONNX_UNREAD,  /* an output of the graph  */
                           CT_ONNX_DROPPED, /* only what is left out reads it */
                           CT_ONNX_NEEDED,
} ct_onnx_use;

typedef struct ct_onnx_live {
    bool written;     /* the layer is in the file                    */
    ct_onnx_use *top; /* owned; of each top that the prototxt names  */
} ct_onnx_live;

/** One entry a layer of the net. CT_ERR_NOMEM. */
ct_status ct_onnx_live_create(const ct_net *net, ct_onnx_live **live_p);
void ct_onnx_live_destroy(ct_onnx_live *live, int n_layer); /* NULL allowed */
/** What layer l does with its bottom i. */
ct_onnx_use ct_onnx_bottom_use(const ct_layer *l, int i);

#endif
