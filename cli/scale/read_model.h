/** @file read_model.h  What reading the samples of a step takes: the input term of modelled steps.
 *
 * P nodes read a batch of D bytes each at the same time, prefetched: a step waits for what reading
 * takes longer than itself. Three things bound reading:
 *
 *     node      D / b_node                 what one node can take in
 *     file      D n(P, F) / b_file         the busiest of the F files (disk arrays) serves n
 * batches system    D P / b_total              all arrays together
 *
 *     T_read = max of them;  waiting for data = max(0, T_read - step)
 *
 * With one file all nodes meet at it: n = P. Striped over F files in stripes of a batch or more, a
 * batch touches at most 2 of them and each serves at most 2 ceil(P / F) readers (Fang et al.,
 * "swCaffe", CLUSTER 2018, section on parallel I/O: 32 arrays, 256 MB stripes, 192 MB a batch of
 * 256); of these each takes half a batch in the mean, so n = ceil(P / F). */
#ifndef CT_READ_MODEL_H
#define CT_READ_MODEL_H

#include <stdint.h>

#include "framework/base/status.h"

/** Bytes a second; 0: no limit. */
typedef struct ct_read_model {
    double sample_bytes; /* 0: reading is not modelled */
    double node, file, total;
    int64_t files;
} ct_read_model;

typedef struct ct_read_times {
    double read_s, node_s, file_s, total_s;
    const char *bound; /* "node", "file", "system": what read_s is */
    int64_t readers;   /* nodes that meet at one file, at most   */
} ct_read_times;

/** "bytes=750000,node=1.2,file=0.5,files=32,total=40": bytes of a sample, GB/s, how many files.
 *  CT_ERR_CONFIG, logged, with the option's name. */
ct_status ct_read_model_parse(const char *option, const char *text, ct_read_model *m);
/** node_batch: samples of one node in a step. */
ct_read_times ct_read_model_run(const ct_read_model *m, int64_t nodes, double node_batch);

#endif
