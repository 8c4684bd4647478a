/** @file coded_powersgd.h  What powersgd is on a CPU and on a device alike. Private to
 *  comm/coded_powersgd*.c.
 */
#ifndef CT_CODED_POWERSGD_H
#define CT_CODED_POWERSGD_H

#include "comm/coded.h"
#include "comm/low_rank.h"

#define CT_POWERSGD_Q "powersgd_q" /* the state */

ct_low_rank ct_powersgd_shape(const ct_codec_config *c, int64_t n, int64_t rows);
/** CT_ERR_ARG where it does not take the matrix. */
ct_status ct_powersgd_check_shape(const ct_coded_setup *setup);
/** Of columns that are drawn; -1: at the start. */
uint64_t ct_powersgd_key(const char *param, int64_t iteration);
/** A sum that begins when ranks do in any order, of a buffer that stays where it is. Collective. */
ct_status ct_powersgd_sum(const ct_coded_setup *s, float *buf, int64_t count, ct_coll_ways *ways);
/** Fit ct_coded_ops. */
bool ct_powersgd_takes(const ct_codec_config *c, int64_t n, int64_t rows);
ct_status ct_powersgd_check(const ct_codec_config *c);
int64_t ct_powersgd_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_powersgd_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                         ct_coded_seconds *out);

#endif
