/** @file codec_onebit.h  What onebit is on a CPU and on a device alike. Private to
 *  comm/coded_onebit*.c.
 */
#ifndef CT_CODEC_ONEBIT_H
#define CT_CODEC_ONEBIT_H

#include "comm/codec/error_feedback.h"
#include "comm/collective/allgatherv.h"
#include "comm/codec/sign_split.h"

typedef enum {
    CT_ONEBIT_DOWN, /* on a device: this rank's signs come to the host           */
    CT_ONEBIT_SPLIT,
    CT_ONEBIT_PART_DOWN, /* likewise: those of its part, which is complete       */
    CT_ONEBIT_GATHER,
    CT_ONEBIT_DONE
} ct_onebit_stage;

/** What an object begins with. */
typedef struct ct_onebit_head {
    ct_codec_setup setup;
    ct_error_feedback *keep; /* borrowed */
    bool splits;
    ct_sign_cut cut;  /* split: dealt to the ranks by their places in the topology's order */
    int me;           /* this rank's place                                             */
    int64_t first, n; /* split: its part; else all                                     */
    size_t stride;    /* most bytes of a payload that everyone gets                    */
    ct_sign_split *split;
    ct_allgatherv *gather; /* several ranks */
    ct_onebit_stage stage;
    ct_coll_where where;
    ct_codec_stats stats;
    double left_at;
} ct_onebit_head;

/** Close it in any case. */
void ct_onebit_open(ct_onebit_head *h, const ct_codec_setup *setup, ct_error_feedback *keep);
void ct_onebit_close(ct_onebit_head *h);
/** Several ranks: chooses whether parts go to their owners, or everyone's signs to everyone, and
 *  makes what they travel by, on setup.dev. Collective. */
ct_status ct_onebit_connect(ct_onebit_head *h);
/** The end of a step, whose decoding began at start. */
void ct_onebit_delivered(ct_onebit_head *h, double start);
/** Fit ct_codec_ops; obj begins with a head. */
int ct_onebit_pending(void *obj, MPI_Request **out, int max);
ct_coll_where *ct_onebit_where(void *obj);
const char *ct_onebit_exchange(const void *obj);
bool ct_onebit_state(void *obj, int i, ct_codec_state *out);
void ct_onebit_stats(const void *obj, ct_codec_stats *out);
int64_t ct_onebit_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_onebit_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                       ct_codec_seconds *out);

#endif
