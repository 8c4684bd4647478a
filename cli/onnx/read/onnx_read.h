/** @file onnx_read.h  An ONNX file on its way to a net; private to cli/onnx/read.
 *
 * A value of the graph is a constant, whose numbers are known, or a blob that a layer makes. Nodes
 * come in the file's order, in which each stands behind those that it reads. A node of constants
 * alone is computed; any other becomes layers, and its output a blob whose shape is known.
 */
#ifndef CT_ONNX_READ_H
#define CT_ONNX_READ_H

#include "cli/onnx/onnx.h"
#include "cli/onnx/onnx.pb-c.h"

typedef struct ct_onnx_operand { /* a value of the graph */
    char *name;                  /* owned: ONNX's; NULL: within a node                           */
    ct_shape shape;
    bool constant;
    const float *f;   /* of a constant: its numbers, or                              */
    const int64_t *i; /* its whole numbers                                           */
    void *owned;      /* what these point to, where they are this value's            */
    char *blob;       /* owned: else the blob that it is                             */
    int64_t pads[4];  /* of a blob behind a Pad: rows and columns of 0 around it     */
    bool padded;
} ct_onnx_operand;

typedef struct ct_onnx_layer_made {
    char *name; /* owned */
    const char *type;
    ct_text bottoms, tops, fields;
} ct_onnx_layer_made;

typedef struct ct_onnx_attends { /* nodes that are an Attention layer together */
    int end;                     /* the last of them, whose output the layer makes    */
    const char *in[4];           /* borrowed: values it reads, q, k, v and segments   */
    int n_in;
    bool packed;       /* in[0] is q, k and v, in[1] segments, where n_in is 2     */
    ct_shape shape[3]; /* of q, k and v: sequences x tokens x channels             */
    ct_shape made;     /* of the output                                            */
    int64_t heads, kv_heads, window;
    bool causal;
    float scale;
} ct_onnx_attends;

typedef struct ct_onnx_detects { /* what nodes say that are a DetectionOutput layer together */
    int64_t n_class, loc_class, n_prior;
    int64_t limit, rows; /* candidates of a class; rows of a sample */
    int64_t background;  /* -1: none */
    float overlap, threshold;
    const char *code; /* borrowed: its code_type */
    bool variance_in_target;
} ct_onnx_detects;

typedef struct ct_onnx_step { /* a node */
    const Onnx__NodeProto *proto;
    const char *op;                 /* its own, or that of the pattern that ends with it */
    const char *in[4];              /* what the pattern reads */
    int n_in;                       /* 0: it is none */
    float eps;                      /* of a pattern */
    const ct_onnx_attends *attends; /* NULL: no attention ends here */
    const ct_onnx_detects *detects; /* NULL: no detections end here */
    bool done;                      /* nothing is left to do: part of a pattern, or a constant */
} ct_onnx_step;

typedef struct ct_onnx_reader {
    const char *path, *sizes; /* sizes: as ct_onnx_convert() has them; NULL: none */
    Onnx__ModelProto *model;
    int64_t opset;
    ct_onnx_operand **value; /* owned */
    int n_value, value_room;
    ct_name_map by_name, blobs, layers; /* by_name: numbers of values */
    ct_onnx_step *step;
    int n_step, at; /* at: the node under way */
    ct_onnx_layer_made *layer;
    int n_layer, layer_room;
    ct_model *weights;        /* whose numbers are those of values, or owned */
    ct_onnx_attends *attends; /* owned: what is found of it, when nodes become layers again */
    int n_attends;
    ct_onnx_detects *detects; /* owned */
} ct_onnx_reader;

/* ---- onnx_values.c */

/** A value without contents; name NULL: within a node. CT_ERR_DATA where the name is taken. */
ct_status ct_onnx_value_add(ct_onnx_reader *r, const char *name, ct_onnx_operand **v_p);
ct_onnx_operand *ct_onnx_value_find(const ct_onnx_reader *r, const char *name);
/** The numbers of t become v's. who names it in messages. CT_ERR_DATA, CT_ERR_CONFIG: a type that
 *  is not taken, CT_ERR_IO: of a file beside. */
ct_status ct_onnx_tensor_read(const ct_onnx_reader *r, const Onnx__TensorProto *t, const char *who,
                              ct_onnx_operand *v);
/** Sizes times each other below what memory may hold of them; CT_ERR_DATA. */
ct_status ct_onnx_shape_check(const ct_onnx_reader *r, const char *who, const ct_shape *s);

/* ---- onnx_build.c: of the node under way */

/** "FILE: node "N" (OP): …", CT_ERR_CONFIG. */
ct_status ct_onnx_refuse(const ct_onnx_reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/** Input i, or NULL where the node does without. */
ct_onnx_operand *ct_onnx_in(const ct_onnx_reader *r, int i);
int ct_onnx_n_in(const ct_onnx_reader *r);
int ct_onnx_n_out(const ct_onnx_reader *r);
const Onnx__AttributeProto *ct_onnx_attribute(const ct_onnx_reader *r, const char *name);
int64_t ct_onnx_attribute_int(const ct_onnx_reader *r, const char *name, int64_t otherwise);
float ct_onnx_attribute_float(const ct_onnx_reader *r, const char *name, float otherwise);
/** Whether it is that text, or is missing and otherwise. */
bool ct_onnx_attribute_is(const ct_onnx_reader *r, const char *name, const char *text,
                          bool otherwise);
/** n whole numbers; each otherwise where the attribute is missing. */
ct_status ct_onnx_attribute_ints(const ct_onnx_reader *r, const char *name, int n, int64_t *v,
                                 int64_t otherwise);
/** A list of an input, or else of an attribute: at most CT_MAX_DIM. *n_p is -1 where both miss. */
ct_status ct_onnx_list_of(const ct_onnx_reader *r, int input, const char *attribute, int *n_p,
                          int64_t *v);
/** An axis of a shape of so many axes, from the end where it is negative. */
ct_status ct_onnx_axis(const ct_onnx_reader *r, int64_t axis, int ndim, int *axis_p);

/** A layer named as the node, or node/part, of these bottoms. Its top is output 0 of the node, or a
 *  value within where part is not NULL. fmt: the fields, as text. */
ct_status ct_onnx_emit(ct_onnx_reader *r, const char *type, const char *part, int n_bottom,
                       ct_onnx_operand *const *bottom, const ct_shape *shape,
                       ct_onnx_operand **top_p, const char *fmt, ...)
    __attribute__((format(printf, 8, 9)));
/** One more top of the last layer: output k of the node, or where k < 0 a value within it; top_p
 *  NULL: nobody asks for it. */
ct_status ct_onnx_emit_top(ct_onnx_reader *r, int k, const ct_shape *shape,
                           ct_onnx_operand **top_p);
/** Array i of the last layer; owned (NULL allowed) is freed with the model. */
ct_status ct_onnx_give(ct_onnx_reader *r, int i, const ct_shape *shape, const float *data,
                       void *owned);
/** Numbers for such an array, from ct_mem_acquire(); NULL is logged. */
float *ct_onnx_numbers(const ct_onnx_reader *r, int64_t n);
/** Output 0 of the node is that value, with another shape. */
ct_status ct_onnx_same(ct_onnx_reader *r, const ct_onnx_operand *v);
/** Output 0 is a constant of these numbers, which it owns. */
ct_status ct_onnx_constant_out(ct_onnx_reader *r, const ct_shape *shape, float *f, int64_t *i);
/** The value as a blob: of a constant a Parameter layer. */
ct_status ct_onnx_as_blob(ct_onnx_reader *r, ct_onnx_operand *v, const char *part,
                          ct_onnx_operand **v_p);
/** The same numbers in another shape. The leading axes that are kept say so in the layer. */
ct_status ct_onnx_reshape_to(ct_onnx_reader *r, ct_onnx_operand *v, const ct_shape *shape,
                             const char *part, ct_onnx_operand **top_p);
/** v repeated along its axes of size 1, as ONNX broadcasts. */
ct_status ct_onnx_spread_to(ct_onnx_reader *r, ct_onnx_operand *v, const ct_shape *shape,
                            const char *part, ct_onnx_operand **top_p);
/** from … below to of an axis. */
ct_status ct_onnx_cut(ct_onnx_reader *r, ct_onnx_operand *v, int axis, int64_t from, int64_t to,
                      const char *part, ct_onnx_operand **top_p);
enum { CT_ONNX_MOST_REVERSED = 4096 };
/** v with an axis the other way round: a Slice to steps of 1 and a Concat, which round nothing.
 *  CT_ERR_CONFIG: more than CT_ONNX_MOST_REVERSED steps. */
ct_status ct_onnx_reverse(ct_onnx_reader *r, ct_onnx_operand *v, int axis, const char *part,
                          ct_onnx_operand **top_p);
/** Two values one behind the other: output k of the node, or with k < 0 a value within it. top_p
 *  may be NULL. */
ct_status ct_onnx_join(ct_onnx_reader *r, ct_onnx_operand *const v[2], int axis, int k,
                       const char *part, ct_onnx_operand **top_p);
/** The common shape; CT_ERR_CONFIG where there is none. */
ct_status ct_onnx_broadcast(const ct_onnx_reader *r, const ct_shape *a, const ct_shape *b,
                            ct_shape *s_p);

/* ---- onnx_links.c: nodes and values as a graph */

typedef struct ct_onnx_links {
    ct_name_map made_by; /* numbers of nodes, of all their outputs */
    /* Of each node's outputs together: how often nodes and the graph read them; the last reader. */
    int *n_reader, *reader;
} ct_onnx_links;

/** *l_p is the caller's, who destroys it. CT_ERR_NOMEM. */
ct_status ct_onnx_link(const ct_onnx_reader *r, ct_onnx_links *l_p);
void ct_onnx_links_destroy(ct_onnx_links *l);
/** The node that makes that value; -1: none, also for a name that is NULL or empty. */
int ct_onnx_maker(const ct_onnx_links *l, const char *name);
/** `take` turns steps into patterns. Then what leads to no output of the graph is done. */
ct_status ct_onnx_take(ct_onnx_reader *r,
                       ct_status (*take)(ct_onnx_reader *r, const ct_onnx_links *l));

/* ---- operators: a table for each family, which ends with a name of NULL */

typedef struct ct_onnx_op {
    const char *name;
    ct_status (*to_layers)(ct_onnx_reader *r); /* NULL: constants alone are taken */
    int min_in, max_in;
    const char *attributes; /* those that are known, with spaces around each */
} ct_onnx_op;

extern const ct_onnx_op ct_onnx_window_ops[], ct_onnx_element_ops[], ct_onnx_shape_ops[],
    ct_onnx_matrix_ops[], ct_onnx_recurrent_ops[], ct_onnx_attention_ops[], ct_onnx_detection_ops[];

/** Computes the node, all of whose inputs are constants. *done_p: it could. */
ct_status ct_onnx_fold(ct_onnx_reader *r, bool *done_p);
/** Nodes that are one layer together: GELU by Erf, LayerNorm by means, a product and its bias. The
 *  graph's constants are known. CT_ERR_NOMEM. */
ct_status ct_onnx_find_patterns(ct_onnx_reader *r);
/** Finds attention among nodes that have become layers, so that all shapes are known. *found_p, of
 *  *n_p, is the caller's, NULL where there is none. CT_ERR_NOMEM. */
ct_status ct_onnx_find_attention(ct_onnx_reader *r, ct_onnx_attends **found_p, int *n_p);
/** Detections as our own files have them: the last of their nodes becomes a layer, others go that
 *  nothing else reads. The graph's constants are known. CT_ERR_NOMEM. */
ct_status ct_onnx_take_detections(ct_onnx_reader *r);
/** Marks the nodes of r->attends: the last of each becomes a layer, others go that nothing else
 *  reads. CT_ERR_NOMEM. */
ct_status ct_onnx_take_attention(ct_onnx_reader *r);

#endif
