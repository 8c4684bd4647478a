/** @file conv_case.h  Convolution engines on generated shapes, against the definition. */
#ifndef CT_TEST_CONV_CASE_H
#define CT_TEST_CONV_CASE_H

#include "layers/engine/conv/conv.h"

typedef enum { CONV_FORWARD, CONV_DATA, CONV_WEIGHT, N_CONV_DIRECTION } conv_direction;

/** Images, groups; channels, height, width; outputs; kernel; stride; padding; dilation. */
#define CONV_SHAPE(_n, _group, _c, _h, _w, _m, _kh, _kw, _sh, _sw, _ph, _pw, _dh, _dw)             \
    {                                                                                              \
        .n = _n, .group = _group, .c = _c, .h = _h, .w = _w, .m = _m, .kh = _kh, .kw = _kw,        \
        .sh = _sh, .sw = _sw, .ph = _ph, .pw = _pw, .dh = _dh, .dw = _dw                           \
    }

typedef struct conv_tensors {
    float *x, *weight, *bias, *dy, *old;
    int64_t n_x, n_weight, n_y;
} conv_tensors;

typedef struct conv_draw {
    uint64_t at;
} conv_draw;

/** The engines of a direction. */
const ct_conv_impl *const *conv_case_table_of(conv_direction dir);
/** Random in [-1, 1], of bf16 if d is; or their absolute values; to be released. */
conv_tensors conv_case_make_tensors(const ct_conv_desc *d, bool absolute);
void conv_case_release(conv_tensors *t);
/** Elements of a direction's result. */
int64_t conv_case_count(const conv_tensors *t, conv_direction dir);
/** What impl makes of t, in plain order; the caller's. Channels that fill up a block are 1000 and
 * some. */
float *conv_case_run(const ct_conv_impl *impl, const ct_conv_desc *d, conv_direction dir,
                     const conv_tensors *t);
/** d in plain order. */
ct_conv_desc conv_case_plain(const ct_conv_desc *d);
/** The next number, lo to hi, or one of n. */
int64_t conv_case_between(conv_draw *r, int64_t lo, int64_t hi);
int64_t conv_case_one_of(conv_draw *r, const int64_t *choice, int64_t n);
/** Fills in what follows from the rest, one thread; whether anything is left of the plane. */
bool conv_case_complete(ct_conv_desc *d);
/** Calls work for each instruction set of this machine. */
void conv_case_each_level(void (*work)(void));
/** And, before them, with bf16's own instruction where there is one. */
void conv_case_each_bf16(void (*work)(void));
/** Primes, ones, and sizes about those of blocks of b channels and of tiles, with something left of
 *  the plane; taps: one of the first n_tap of 1, 1, 1, 2, 2, 3, 5, 7. */
ct_conv_desc conv_case_draw(conv_draw *r, int64_t b, int n_tap, bool bf16);
/** Allowed errors of the elements of a result; the caller's. */
typedef double *(*conv_limits)(const ct_conv_desc *d, conv_direction dir);
/** Those of sums, one product after the other: k rounded products and sums are off by at most k eps
 *  times the sum of all absolute values (Higham 3.1), to first order, and the reference, summed in
 *  double, by the last rounding. Products of bf16 numbers are exact. */
double *conv_case_sum_limits(const ct_conv_desc *d, conv_direction dir);

/** Fails unless `engine` gives what the reference does, within limits, and the same bits with 1, 3
 *  and 24 threads. Returns whether it takes d. */
bool conv_case_compare(ct_conv_desc d, conv_direction dir, const char *engine, conv_limits limits);

#endif
