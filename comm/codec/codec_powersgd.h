/** @file codec_powersgd.h  What powersgd is on a CPU and on a device alike. Private to
 *  comm/coded_powersgd*.c.
 */
#ifndef CT_CODEC_POWERSGD_H
#define CT_CODEC_POWERSGD_H

#include "comm/codec/error_feedback.h"
#include "comm/codec/low_rank.h"

typedef enum {
    CT_POWERSGD_P_DOWN, /* on a device: P comes to the host */
    CT_POWERSGD_P,
    CT_POWERSGD_Q_DOWN, /* likewise */
    CT_POWERSGD_Q
} ct_powersgd_stage;

/** What an object begins with. */
typedef struct ct_powersgd_head {
    ct_codec_setup setup;
    ct_error_feedback *keep; /* borrowed */
    ct_low_rank shape;
    int64_t of_p, of_q;                /* floats                                             */
    float *warm;                       /* [cols r], the last Q; memory of who begins with it */
    ct_persistent_coll ways_p, ways_q; /* several ranks                                      */
    _Atomic int stage;
    int64_t iteration; /* of the step under way */
    ct_coll_where alone;
    ct_codec_stats stats;
    double left_at;
} ct_powersgd_head;

ct_low_rank ct_powersgd_shape(const ct_codec_config *c, int64_t n, int64_t rows);
/** Close it in any case. CT_ERR_ARG where it does not take the matrix. */
ct_status ct_powersgd_open(ct_powersgd_head *h, const ct_codec_setup *setup,
                           ct_error_feedback *keep);
void ct_powersgd_close(ct_powersgd_head *h);
/** Draws the first Q into `warm`, and with several ranks prepares the sums of p and q, which stay
 *  where they are and begin when ranks do in any order. Collective. */
ct_status ct_powersgd_connect(ct_powersgd_head *h, float *p, float *q);
/** q, the step's, is where the next one starts. */
void ct_powersgd_warm(ct_powersgd_head *h, const float *q);
/** Fit ct_codec_ops; obj begins with a head. */
int ct_powersgd_pending(void *obj, MPI_Request **out, int max);
ct_coll_where *ct_powersgd_where(void *obj);
const char *ct_powersgd_exchange(const void *obj);
bool ct_powersgd_state(void *obj, int i, ct_codec_state *out);
ct_status ct_powersgd_restored(void *obj);
void ct_powersgd_stats(const void *obj, ct_codec_stats *out);
bool ct_powersgd_takes(const ct_codec_config *c, int64_t n, int64_t rows);
ct_status ct_powersgd_check(const ct_codec_config *c);
int64_t ct_powersgd_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_powersgd_seconds(const ct_codec_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_codec_seconds *out);

#endif
