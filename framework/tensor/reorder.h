/** @file reorder.h  Between plain and blocked order of channels (tensor.h), on the CPU. Plain order
 * is f32; blocks may be bf16, to which numbers are rounded. */
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
/** The same for blocks of bf16 numbers. */
void ct_reorder_to_plain_bf16(int64_t n, int64_t c, int64_t s, int block, const void *blocked,
                              float *plain);
void ct_reorder_to_blocked_bf16(int64_t n, int64_t c, int64_t s, int block, const float *plain,
                                void *blocked);

#ifdef __cplusplus
}
#endif

#endif
