/** @file coded_onebit.h  What onebit is on a CPU and on a device alike. Private to
 *  comm/coded_onebit*.c.
 */
#ifndef CT_CODED_ONEBIT_H
#define CT_CODED_ONEBIT_H

#include "comm/coded.h"

/** Whether parts go to their owners, or everyone's signs to everyone. Collective. */
ct_status ct_onebit_choose(const ct_coded_setup *s, bool *splits_p);
/** Fit ct_coded_ops. */
ct_status ct_onebit_check(const ct_codec_config *c);
int64_t ct_onebit_bytes(const ct_codec_config *c, int64_t n, int64_t rows);
void ct_onebit_seconds(const ct_coded_costs *m, const ct_codec_config *c, int64_t n, int64_t rows,
                       ct_coded_seconds *out);

#endif
