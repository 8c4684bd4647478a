/** @file argmax.h  What ArgMax and Accuracy compute with, on the host and on devices; private to
 * layers/. */
#ifndef CT_TYPES_ARGMAX_H
#define CT_TYPES_ARGMAX_H

#include <stdbool.h>
#include <stdint.h>

#include "framework/base/simd.h"
#include "layers/layer_util.h"

typedef struct ct_argmax_state {
    bool values, has_axis; /* out_max_val */
    int64_t top_k;
} ct_argmax_state;

typedef struct ct_argmax_found {
    float value;
    int64_t place;
} ct_argmax_found;

/** Of equal values the later place comes first, as in Caffe; what is no number comes last. */
CT_HD static inline bool ct_argmax_before(float a, float b)
{
    return (a >= b) || ((b != b) && (a == a)) || ((a != a) && (b != b));
}

/** The k best of n values `step` apart, by insertion: k is small. */
CT_HD static inline void ct_argmax_best_of(const float *x, int64_t n, int64_t step, int64_t k,
                                           ct_argmax_found *f)
{
    int64_t have = 0;

    for (int64_t i = 0; i < n; i++) {
        float value = x[i * step];
        int64_t at = have;

        if ((have == k) && !ct_argmax_before(value, f[k - 1].value)) continue;
        if (have < k)
            have++;
        else
            at = k - 1;
        for (; (at > 0) && ct_argmax_before(value, f[at - 1].value); at--) f[at] = f[at - 1];
        f[at].value = value;
        f[at].place = i;
    }
}

/** Distribution d: its best in f[0..top_k), and from there in y. The distributions lie in x as
 *  outer x mid x inner, along mid. */
CT_HD static inline void ct_argmax_one(const ct_argmax_state *s, int64_t d, int64_t mid,
                                       int64_t inner, const float *x, ct_argmax_found *f, float *y)
{
    int64_t o = d / inner, i = d % inner, k = s->top_k;

    ct_argmax_best_of(x + o * mid * inner + i, mid, inner, k, f);
    for (int64_t j = 0; j < k; j++) {
        if (s->has_axis) {
            y[(o * k + j) * inner + i] = s->values ? f[j].value : (float)f[j].place;
        } else if (s->values) {
            y[2 * o * k + j] = (float)f[j].place;
            y[(2 * o + 1) * k + j] = f[j].value;
        } else {
            y[o * k + j] = (float)f[j].place;
        }
    }
}

/* ---- What Accuracy reads from its parameters and shapes, for every device */

typedef struct ct_accuracy_state {
    int64_t top_k;
    bool has_ignore;
    int32_t ignore;
} ct_accuracy_state;

/* Buffers, in double: for the second top, of each class the right ones, and its samples. The second
 * is summed over the ranks; where labels are ignored, the samples of all classes stand behind it.
 * And on devices what all classes have of both. */
enum { CT_ACCURACY_RIGHT_OF, CT_ACCURACY_SAMPLES_OF, CT_ACCURACY_SUMS };

typedef struct ct_accuracy_plan {
    ct_view view; /* classes in the middle */
    bool soft;    /* labels are distributions: the most probable class is the label */
} ct_accuracy_plan;

#endif
