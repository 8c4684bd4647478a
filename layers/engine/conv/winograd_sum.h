/** @file winograd_sum.h  How the sum of winograd.h is cut; private to conv/.
 *
 * Weights are mapped once in each call, then tiles go through in groups: mapped, multiplied over
 * channels place by place, mapped back. Where the mapped weights fit beside it into a nearby cache,
 * each thread takes groups of its own, whose mapped tiles stay in its second-level cache ("alone");
 * otherwise all threads work on one group, large enough that weights are worth fetching
 * ("together"). An output's sum is the same both ways.
 */
#ifndef CT_ENGINE_CONV_WINOGRAD_SUM_H
#define CT_ENGINE_CONV_WINOGRAD_SUM_H

#include "layers/engine/conv/winograd.h"

typedef struct ct_wino_plan {
    int n; /* places of a tile along an axis         */
    int64_t in_block, out_block, n_pair;
    int64_t words;            /* of a block of channels of mapped inputs */
    int64_t tiles_h, tiles_w; /* of an image                             */
    int64_t n_tile, size;     /* of all images; of a group               */
    bool alone;
    int64_t chunk;           /* input blocks that are added at a time   */
    int64_t u_step, v_step;  /* from place to place: weights, inputs …  */
    int64_t v_block;         /* blocks of inputs                        */
    int64_t z_step, z_block; /* … outputs, and blocks of outputs        */
    int64_t u, own;          /* floats: weights, a thread's or all's    */
    int64_t plane_row;       /* adjoint: floats of a row of the plane where tiles meet … */
    int64_t plane;           /* … and of the plane, one a thread; else 0                 */
} ct_wino_plan;

ct_wino_plan ct_wino_make_plan(const ct_wino_sum *s);

/* The work: mapped weights, [place][pair of output blocks][input block][word of channels][vecs][b];
 * bias of all groups; planes; mapped tiles. */
float *ct_wino_bias(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g);
/** Of the calling thread. */
float *ct_wino_plane(const ct_wino_sum *s, const ct_wino_plan *p);
float *ct_wino_tiles(const ct_wino_sum *s, const ct_wino_plan *p);

/** Before threads work. */
void ct_wino_fill_bias(const ct_wino_sum *s, const ct_wino_plan *p);
/** Piece i of the weights of group g: an input block of a pair of output blocks. */
void ct_wino_pack_piece(const ct_wino_sum *s, const ct_wino_plan *p, int64_t g, int64_t i);

#endif
