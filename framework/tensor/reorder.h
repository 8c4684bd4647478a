/** @file reorder.h  Between plain and blocked order of channels (tensor.h), on the CPU, f32. */
#ifndef CT_REORDER_H
#define CT_REORDER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** plain[n][c][s] from blocked[n][c / block, rounded up][s][block]. */
void ct_reorder_to_plain(int64_t n, int64_t c, int64_t s, int block, const float *blocked,
                         float *plain);
/** The other way; what fills up the last block becomes 0. */
void ct_reorder_to_blocked(int64_t n, int64_t c, int64_t s, int block, const float *plain,
                           float *blocked);

#ifdef __cplusplus
}
#endif

#endif
