/** @file sync_stats.h  What synchronising gradients took on this rank, since it began. comm/sync
 *  counts it, the solver shows differences of it.
 */
#ifndef CT_SYNC_STATS_H
#define CT_SYNC_STATS_H

#include <stdbool.h>
#include <stdint.h>

/** What codecs did in their steps; dense steps are not counted. */
typedef struct ct_codec_totals {
    int n_coded;         /* now: buckets that travel by a codec; 0: nothing is compressed */
    int64_t elements;    /* of them, over all steps                                       */
    int64_t bytes_dense; /* that they hold                                                */
    int64_t bytes_coded; /* of this rank's payloads                                       */
    int64_t bytes_sent;  /* by their exchanges                                            */
    int64_t selected;    /* elements that this rank selected                              */
    int64_t filled;      /* elements that anybody's payload had                           */
    int64_t warm_elements, warm_selected; /* of `elements` and `selected` those of a warm-up in
                                             which the density fell */
    double select_s;                      /* accumulation and selection                   */
    double pack_s, exchange_s, unpack_s;
    double saved_s; /* from leaving to landing, less than dense: as measured in dense steps, or as
                       the model says where there were none … */
    int n_modelled; /* … which is so for so many of the buckets */
    double residual_norm; /* now */
} ct_codec_totals;

typedef struct ct_sync_stats {
    double exposed_s;   /* the main thread waited, or moved messages as nothing else was to be done,
                           or encoded or decoded; updates of what landed are not counted */
    double moving_s;    /* it moved messages and added between layers */
    double encode_s;    /* encode and decode, by whatever thread      */
    int64_t bytes_sent; /* payload                                    */
    ct_codec_totals codec;
} ct_sync_stats;

/** a += sign * b, but what is of now: n_coded and residual_norm. */
static inline void ct_codec_totals_add(ct_codec_totals *a, const ct_codec_totals *b, int sign)
{
    a->elements += sign * b->elements;
    a->bytes_dense += sign * b->bytes_dense;
    a->bytes_coded += sign * b->bytes_coded;
    a->bytes_sent += sign * b->bytes_sent;
    a->selected += sign * b->selected;
    a->filled += sign * b->filled;
    a->warm_elements += sign * b->warm_elements;
    a->warm_selected += sign * b->warm_selected;
    a->select_s += sign * b->select_s;
    a->pack_s += sign * b->pack_s;
    a->exchange_s += sign * b->exchange_s;
    a->unpack_s += sign * b->unpack_s;
    a->saved_s += sign * b->saved_s;
    a->n_modelled += sign * b->n_modelled;
}

#endif
