/** @file upgrade.h  Reads solver and net files, and brings old forms of nets up to date.
 *
 * Old forms: `layers { layer { type: "conv" } }` (V0LayerParameter) with its padding layers,
 * `layers { type: CONVOLUTION }` (V1LayerParameter), `input` with `input_dim` or
 * `input_shape` (they become Input layers), transformation fields in data layers, solver_type,
 * other names of a type (ConvolutionDepthwise).
 */
#ifndef CT_UPGRADE_H
#define CT_UPGRADE_H

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"

/** Upgrades in place; file names the net in messages, map (may be NULL) their places. "input"
 *  without sizes is dropped, as in files of weights. CT_ERR_CONFIG. */
ct_status ct_net_upgrade(Ct__NetParameter *net, const char *file, ct_source_map *map);
/** Reads and upgrades a net; its inputs must have sizes. CT_ERR_CONFIG, CT_ERR_IO. Freed with
 * ct__net_parameter__free_unpacked(). */
ct_status ct_net_read(const char *path, ct_source_map *map, Ct__NetParameter **net_p);
/** The same, its only `repeat` with `count` copies; 0: with as many as it says. */
ct_status ct_net_read_repeat(const char *path, int32_t count, ct_source_map *map,
                             Ct__NetParameter **net_p);

/** Whether layers of `type` (NULL: of some type) read the message `field` of their parameters;
 * field NULL: whether there is such a type. As the layers' tables say: in framework/net/layer.c;
 * the simulator has no layers (layer_sim.c). */
bool ct_layer_type_reads(const char *type, const char *field);
/** The k-th of the types that read the message `field`, from 0; NULL: there are no more. */
const char *ct_layer_type_reading(const char *field, int k);
/** Brings solver_type, and the nets within the solver, up to date. CT_ERR_CONFIG. */
ct_status ct_solver_upgrade(Ct__SolverParameter *solver, const char *file, ct_source_map *map);
/** Reads a solver. The paths in net, train_net and test_net are replaced by those of the file
 *  beside the solver where there is none as given. They are left where there is none at all (an
 *  option may still set them). snapshot_prefix is, where unset, path less its ending, and in a
 *  directory the solver's name. The nets are not read yet. Freed with
 *  ct__solver_parameter__free_unpacked(). CT_ERR_CONFIG, CT_ERR_IO. */
ct_status ct_solver_read(const char *path, ct_source_map *map, Ct__SolverParameter **solver_p);
/** That replacing of the paths in net, train_net and test_net alone. path: the solver's. For paths
 *  that options set. CT_ERR_NOMEM. */
ct_status ct_solver_find_nets(Ct__SolverParameter *solver, const char *path);
/** Likewise the files that `serve` of a net names, by the path of the net. CT_ERR_NOMEM. */
ct_status ct_net_find_served(Ct__NetParameter *net, const char *path);

/* ---- layer types of Caffe and its forks that are known and not there */

/** A type, and after "not supported: " what to use instead, or why it cannot be there. */
typedef struct ct_foreign_type {
    const char *type, *why;
} ct_foreign_type;

/** In alphabetical order; ends with NULL. */
extern const ct_foreign_type ct_foreign_table[];

/** Why the type is not there; NULL: it is not known. */
const char *ct_foreign_why(const char *type);

/* ---- the steps of an upgrade; private to framework/proto */

typedef struct ct_upgrade {
    Ct__NetParameter *net;
    const char *file;
    ct_source_map *map; /* may be NULL */
} ct_upgrade;

/** Logs "FILE:LINE:COL: MESSAGE" with the place of `message`; CT_ERR_CONFIG. */
ct_status ct_upgrade_fail(const ct_upgrade *u, const void *message, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/** `layers { }` (V1LayerParameter) to `layer { }`. */
ct_status ct_upgrade_v1(const ct_upgrade *u);
/** MultiHeadAttention layers to InnerProducts and Attentions. */
ct_status ct_upgrade_multi_head(const ct_upgrade *u);
/** Layers of forks that scale, shift or rectify what they make: a Scale, a ReLU behind them. */
ct_status ct_upgrade_fused(const ct_upgrade *u);

/** Appends a new message to a repeated field of m, or sets an optional one. */
ct_status ct_upgrade_add(const ct_upgrade *u, ProtobufCMessage *m, const char *field,
                         const void *like, void *message_p);

/** A layer that becomes several. */
typedef struct ct_expansion {
    const ct_upgrade *u;
    const Ct__LayerParameter *from;
    Ct__LayerParameter **to; /* room for most_parts behind n */
    size_t n;                /* layers there are */
} ct_expansion;

typedef struct ct_expander {
    bool (*is)(const Ct__LayerParameter *layer);
    ct_status (*expand)(ct_expansion *e);
    size_t most_parts;
} ct_expander;

/** Has x->expand() make the parts of all layers that x->is() true for; they take their places. */
ct_status ct_upgrade_expand(const ct_upgrade *u, const ct_expander *x);
ct_status ct_expansion_no_memory(const ct_expansion *e);
/** A copy of a message; NULL of NULL. */
ct_status ct_expansion_clone(const ct_expansion *e, const void *message, void *copy_p);
/** "NAMEENDING", malloc'ed. */
ct_status ct_expansion_name(const ct_expansion *e, const char *name, const char *ending,
                            char **text_p);
/** field: "bottom" or "top". */
ct_status ct_expansion_add_blob(const ct_expansion *e, Ct__LayerParameter *layer, const char *field,
                                const char *name);
/** A layer called "NAME" and the ending, with the whole one's rules of phases, and its place. */
ct_status ct_expansion_begin(ct_expansion *e, const char *ending, const char *type,
                             Ct__LayerParameter **layer_p);

#endif
