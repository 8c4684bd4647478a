/** @file onnx_impl.h  An ONNX file while it is made; private to cli/onnx. */
#ifndef CT_ONNX_IMPL_H
#define CT_ONNX_IMPL_H

#include "cli/onnx/onnx.h"
#include "cli/onnx/onnx.pb-c.h"
#include "framework/snapshot/disk_file.h"

typedef struct ct_onnx_value { /* what a blob of the net is called now */
    const char *blob, *name;   /* borrowed: of the net, of the names below */
    ct_shape shape;
    bool output; /* of the graph */
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
    Onnx__ModelProto *model; /* owned; the graph, and in it the node under way */
    Onnx__GraphProto *graph;
    Onnx__NodeProto *node;
    bool *borrowed;    /* of each initializer: its bytes are the model's */
    ct_text node_name; /* of the node under way: its layer's, with the name of a part behind it */
    ct_onnx_names node_names, value_names;
    ct_onnx_value *value;
    int n_value;
    int batch_axis; /* of the net's values */
    bool failed;    /* no memory */
};

/* ---- messages: onnx_message.c. A message that is NULL stays so: failed is set. */

/** Sets the field of that name, or appends to it, and takes over what `value` points to. */
void ct_onnx_put(ct_onnx *x, void *message, const char *field, const void *value);
void ct_onnx_put_int(ct_onnx *x, void *message, const char *field, int64_t v);
void ct_onnx_put_text(ct_onnx *x, void *message, const char *field, const char *text);
/** A new message as that field; NULL: no memory, noted. */
void *ct_onnx_add(ct_onnx *x, void *message, const char *field);
/** Writes a message without a copy of its large fields. CT_ERR_NOMEM; the file keeps its errors. */
ct_status ct_onnx_pack(const ProtobufCMessage *m, ct_disk_file *d);

/** Moves the large values of x into the file `temp`, and lets x say that they lie in `data`, beside
 *  its own file. CT_ERR_IO: `data` is there and !force; CT_ERR_NOMEM. */
ct_status ct_onnx_write_beside(ct_onnx *x, const ct_text *data, const char *temp, bool force);

/** The newest value of that blob, or NULL. */
ct_onnx_value *ct_onnx_find_value(ct_onnx *x, const char *blob);
/** Top i is now called name, which is borrowed. NULL: there was no memory for the name. */
void ct_onnx_set_value(ct_onnx *x, const ct_onnx_layer *l, int i, const char *name);

/** Part `part` of the layer comes from outside, or goes there. */
void ct_onnx_graph_input(ct_onnx *x, const ct_onnx_layer *l, const char *part,
                         const ct_shape *shape);
void ct_onnx_graph_output(ct_onnx *x, const ct_onnx_layer *l, const char *part,
                          const ct_shape *shape);
/** field: "input" or "output" of the graph. */
void ct_onnx_add_value(ct_onnx *x, const char *field, const char *name, const ct_shape *shape);

/** Takes `wanted`, or where it is taken `wanted` with a number behind it. NULL: no memory, noted.
 */
const char *ct_onnx_take_name(ct_onnx *x, ct_onnx_names *names, const char *wanted, bool part);
bool ct_onnx_name_taken(const ct_onnx_names *names, const char *name);
void ct_onnx_names_destroy(ct_onnx_names *names);

/* ---- what the file holds of a net: onnx.c */

typedef enum ct_onnx_use { /* of a value, by all that comes behind it; the largest counts */
                           CT_ONNX_UNREAD,  /* an output of the graph  */
                           CT_ONNX_DROPPED, /* only what is left out reads it */
                           CT_ONNX_NEEDED,
} ct_onnx_use;

typedef struct ct_onnx_live {
    bool written;     /* the layer is in the file                    */
    ct_onnx_use *top; /* owned; of each top that the prototxt names  */
} ct_onnx_live;

/* ---- the batch: onnx_batch.c */

/** 1 where layers read steps of columns, which come first; else 0. */
int ct_onnx_batch_axis(const ct_net *net);
/** A net like that of s with one sample more in each batch; NULL: there is none, and why in `why`.
 */
void ct_onnx_widen(const ct_onnx_source *s, Ct__NetParameter **param_p, ct_net **net_p,
                   ct_text *why);
/** Leaves the sizes of x open in which y, of the wider net, differs. Where anything else differs,
 *  x stays as it is, and `why` says what. */
void ct_onnx_open_batch(ct_onnx *x, const ct_onnx *y, ct_text *why);

/* ---- what forms of layers share */

/** CT_ERR_CONFIG: this use of the layer cannot be said in ONNX, or is not here. */
ct_status ct_onnx_no_form(const ct_onnx_layer *l, const char *why);
static inline const ct_shape *ct_onnx_top_shape(const ct_onnx_layer *l)
{
    return &l->in->top[0]->data.shape;
}

static inline const ct_shape *ct_onnx_bottom_shape(const ct_onnx_layer *l, int i)
{
    return &l->in->bottom[i]->data.shape;
}

/** A shape that lies on bottom 0's axes from `axis` on, as one that broadcasts so: ones behind. */
ct_shape ct_onnx_spread(const ct_onnx_layer *l, const ct_shape *small, int axis);

/* A node's start and end: input NULL is bottom 0, else a part; output NULL is top 0, else a part.
 */
void ct_onnx_from(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input);
void ct_onnx_to(ct_onnx *x, const ct_onnx_layer *l, const char *output);
/** One input, one output, nothing else. */
void ct_onnx_unary(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                   const char *output);
/** input OP v. */
void ct_onnx_by_number(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                       const char *name, float v, const char *output);
/** input OP part; of bottom 0 where input is NULL. */
void ct_onnx_by_part(ct_onnx *x, const ct_onnx_layer *l, const char *op, const char *input,
                     const char *part, const char *output);
/** Two parts, one behind the other along an axis. */
void ct_onnx_concat(ct_onnx *x, const ct_onnx_layer *l, const char *a, const char *b, int64_t axis,
                    const char *output);
/** Bottom i, or a part, in another shape; bottom < 0: the part `input`. */
void ct_onnx_reshape(ct_onnx *x, const ct_onnx_layer *l, int bottom, const char *input,
                     const char *name, const ct_shape *shape, const char *output);

typedef struct ct_onnx_form {
    const char *type;
    ct_onnx_fn write;
} ct_onnx_form;

/** End with a type of NULL: layers that compute, functions of elements, layers that move and
 *  reduce, attention, recurrent layers, boxes. */
extern const ct_onnx_form ct_onnx_layers[], ct_onnx_functions[], ct_onnx_moves[],
    ct_onnx_attention[], ct_onnx_recurrent[], ct_onnx_detection[];

#endif
