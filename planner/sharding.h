/** @file sharding.h  How the ranks of a replica share a net's values. It says which layers may be
 *  split in which way, how each value lies on the ranks by that, and where it must be turned into
 *  another form.
 */
#ifndef CT_SHARDING_H
#define CT_SHARDING_H

#include <stdio.h>

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "planner/parallel.h"

/** "BATCH" …; static. */
const char *ct_split_name(ct_parallel_split split);
/** Whether a layer cannot be split so over `tensor` ranks, and why. in: its instance in the TRAIN
 *  net, with shapes; NULL: it is not there. */
bool ct_split_refuses(const Ct__LayerParameter *l, const ct_instance *in, ct_parallel_split split,
                      int tensor, char *why, size_t size);

/** Split, Reorder and Cast, which a net adds: what they pass on is the value that they read, and a
 *  rank's net adds its own. */
bool ct_layer_is_passage(const ct_layer *l);

/** What each rank of a replica has of a value. */
typedef enum ct_sharding_kind {
    CT_SHARDING_BATCH,    /* its samples                                             */
    CT_SHARDING_CHANNEL,  /* its channels or features, along an axis                 */
    CT_SHARDING_SEQUENCE, /* its tokens                                              */
    CT_SHARDING_WHOLE,    /* all of it                                               */
    CT_SHARDING_PARTIAL,  /* a sum of some of its terms: the ranks' add up to it     */
    CT_SHARDING_ONE       /* all of it, or nothing                                   */
} ct_sharding_kind;

typedef struct ct_sharding {
    ct_sharding_kind kind;
    int axis;   /* of CHANNEL; otherwise 0 */
    int pieces; /* of CHANNEL: the axis is 1 piece, 2 (gate and up), or 3 (queries, keys, values),
                 * of which each is shared out for itself; otherwise 0 */
    int part;   /* of ONE: the place in the replica of the rank that has it; otherwise 0 */
} ct_sharding;

/** A bottom that does not come as its layer needs it. Of the bottoms of a sum that come in parts
 *  it is the first: each rank adds the others to it before. */
typedef struct ct_conversion {
    int layer, bottom; /* of the net */
    int stage;
    ct_sharding from, to;
} ct_conversion;

/** "Gather", "SumParts", "ReduceScatter", "Slice", or "Gather, Slice"; static. A Slice sends
 *  nothing forward; its backward is a Gather. */
const char *ct_conversion_name(const ct_conversion *c);

/** A net of either phase under a parallel file. Of a stage with `tensor` 1 every layer is BATCH
 *  unless an entry says otherwise, and nothing is converted. */
typedef struct ct_sharded_net {
    const ct_net *net; /* borrowed */
    int *stage;        /* of each layer, of those that the net adds, too */
    ct_parallel_split *split;
    int *part;            /* of layers that are ONE: as ct_parallel_layer.part              */
    ct_sharding *top;     /* how its tops lie            */
    ct_sharding **bottom; /* of each layer, as it takes each of its bottoms */
    int *again;           /* its segment in its stage, or -1 */
    ct_conversion *conversion;
    int n_conversion; /* in the order of the layers  */
} ct_sharded_net;

/** p is bound; net is of the same file, or a test net of another one, whose layers go by their
 *  names. What a bottom from another stage looks like is up to its reader: no conversion of this
 *  list. The caller destroys it. CT_ERR_NOMEM; CT_ERR_CONFIG: a value that one rank has is read by
 *  others, a sum of such values lacks one of a rank, layers of unlike ranks share a weight. */
ct_status ct_sharded_net_make(const ct_parallel *p, const ct_net *net, ct_sharded_net *s_p);
void ct_sharded_net_destroy(ct_sharded_net *s);

/** For people: a row a stage, then what its layers are split by, what is made again, and
 *  conversions. p is bound; s is of the TRAIN net. */
void ct_parallel_print(const ct_parallel *p, const ct_sharded_net *s, FILE *to);
/** Appends the same as members of a JSON object. */
void ct_parallel_json(const ct_parallel *p, const ct_sharded_net *s, ct_json_writer *w);

#endif
