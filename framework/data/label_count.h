/** @file label_count.h  How many samples each class has: what a data set's maker should see;
 * private to framework/data.
 */
#ifndef CT_LABEL_COUNT_H
#define CT_LABEL_COUNT_H

#include <stdbool.h>
#include <stdint.h>

/** Zero-initialise. */
typedef struct ct_label_count {
    int64_t *n; /* of labels 0 to size - 1 */
    int64_t size;
    int64_t negative, large; /* labels below 0; too large to be classes, or no memory for them */
    int64_t samples;
} ct_label_count;

void ct_label_count_add(ct_label_count *c, int64_t label);
/** Logs how many classes there are and how many samples they have. warn: warns, with the counts, of
 *  labels below 0, of classes below the largest that have no sample, and where the largest class
 * has more than ten times the samples of the smallest. */
void ct_label_count_report(const ct_label_count *c, const char *of, bool warn);
void ct_label_count_release(ct_label_count *c);

#endif
