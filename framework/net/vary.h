/** @file vary.h  Shapes that change from batch to batch. Private to framework/net.
 *
 * Behind a layer whose tops vary (Filter) every layer is shaped again before its forward, if its
 * bottoms are not what they were. Memory is planned for the most samples; a buffer that fewer
 * samples need larger gets memory of its own. What a layer finds in the exec is the number of
 * samples that there are, so losses, statistics and accuracies are those of a net made for so many.
 * Nothing of it runs in nets without such a layer.
 */
#ifndef CT_VARY_H
#define CT_VARY_H

#include "framework/net/net_impl.h"

/* Samples of this rank, of all, and the place of this rank's first among those of all. */
typedef struct ct_samples {
    int64_t local, global, first;
} ct_samples;

typedef struct ct_vary_layer {
    bool follows;   /* it is shaped again                                                     */
    int source;     /* the layer with tops that vary from which this one's samples come first */
    int from;       /* whose samples it works on: its own count, another layer's; -1: the net's */
    ct_samples n;   /* as it counted them, where from is itself                               */
    ct_shape *seen; /* bottoms that it is shaped for                                          */
    ct_buffer planned[CT_MAX_BUFFER];
    void *own[CT_MAX_BUFFER]; /* memory of buffers that need more than is planned for them    */
    size_t own_bytes[CT_MAX_BUFFER];
} ct_vary_layer;

struct ct_vary {
    ct_vary_layer *layer;
    ct_shape *seen;   /* of all layers                                    */
    ct_tensor *most;  /* each blob as it is with the most samples         */
    double *of_rank;  /* samples of each rank, while they tell each other */
    ct_shape *bottom; /* room for those of one layer                      */
};

/** What of layer i's tops and buffers memory was not planned for, but for the size of buffers.
 * NULL: nothing. */
const char *ct_vary_misfit(const ct_net *net, int i);

#endif
