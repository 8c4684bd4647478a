/** @file loader.h  Batches in time: prefetch threads over a reader, and who reads what.
 *
 * The samples of a run are one endless stream: epoch after epoch of the data set, each epoch in its
 * own order. Step s of G samples takes positions [s G, (s + 1) G); rank r takes a contiguous part
 * of them. A batch is a function of (seed, s) alone: threads decide when it is made, not what is in
 * it.
 *
 * With skip_broken, a sample that cannot be read or does not fit is replaced by the next good one
 * in the order of the data set (ct_reader_after()), with its labels. Crop and mirroring stay those
 * of the position. Batches count what was replaced; who may sum over ranks compares it with the
 * limit (layers/types/data_common.c).
 */
#ifndef CT_LOADER_H
#define CT_LOADER_H

#include "framework/data/augment/augment.h"
#include "framework/data/augment/mix.h"
#include "framework/data/reader.h"
#include "framework/data/transform.h"
#include "framework/net/turns.h"

/** A rank's part of a global batch: samples [first, first + local) of `global`. */
typedef struct ct_share {
    int64_t local, global, first;
} ct_share;

/** Deals `global` samples out to n_rank ranks, uneven by at most one: local = G/P + (r < G%P).
 *  CT_ERR_CONFIG, logged, where a rank would get none. */
ct_status ct_share_of(int64_t global, int rank, int n_rank, ct_share *share_p);
/** The sample at a position of the stream over a data set of n: epoch position / n. stripes 0: in
 *  order; 1: shuffled by ct_rng_permute() with key (seed, epoch); more: stripe by stripe
 *  (stripes.h). */
int64_t ct_sample_at(uint64_t seed, int64_t stripes, int64_t position, int64_t n);

/** The same where a global batch has each sample `repeat` times: all its samples once, then all of
 *  them again, … So pairs that are mixed differ, and the ranks' number does not matter. */
int64_t ct_sample_again_at(uint64_t seed, int64_t stripes, int64_t repeat, int64_t global,
                           int64_t position, int64_t n);

struct ct_device;

typedef struct ct_loader_options {
    const ct_reader *reader;       /* borrowed */
    const ct_augment *augment;     /* borrowed; NULL: none */
    const ct_transform *transform; /* borrowed */
    ct_shape shape;                /* of field 0 of a sample after both */
    bool boxes;                    /* field 1 is rows of boxes: they begin with sample numbers */
    ct_mixing mix;                 /* field 1 is a distribution where it acts; shares are even */
    ct_share share;
    ct_turns turns;  /* of a loader without group */
    int64_t stripes; /* of the order: 0: none, in order; 1: shuffled; more: within stripes */
    int64_t repeat;  /* times that a global batch has each sample, at least 1; else no rand_skip */
    int crops;       /* > 0: a batch comes so often, step after step, each time in another crop */
    uint32_t rand_skip;  /* > 0: the stream starts at a place in [0, rand_skip) drawn from seed */
    int64_t skip_broken; /* 0: a broken sample is an error; else at most so many in a row */
    int depth;           /* batches made ahead, at least 1  */
    int threads;         /* decoding threads, at least 1    */
    const struct ct_data_group *group; /* one rank of a node reads for the others (feed.h); then
                                        * create and destroy are collective. NULL: this one does */
    const struct ct_device *pack; /* transforms batches itself: they come packed (pack.h), in memory
                                   * of its host_acquire. NULL: as floats                        */
} ct_loader_options;

typedef struct ct_loader ct_loader;

/** field[i]: share.local samples of field i. Valid until ct_loader_give_back(). */
typedef struct ct_batch {
    const float *field[CT_MAX_FIELD];
    int64_t count[CT_MAX_FIELD];
    const void *block;   /* not NULL: packed, and no fields                    */
    int64_t epoch, last; /* in which the global batch begins, and ends */
    /* of this rank's samples: replaced ones of the first of these epochs, of the last if it is
     * another, of those between; each sample once, whatever repeat is */
    int64_t broken[3];
} ct_batch;

/** Places no batches and starts no thread yet: the first ct_loader_take() does. */
ct_status ct_loader_create(const ct_loader_options *options, ct_loader **loader_p);
void ct_loader_destroy(ct_loader *l); /* NULL allowed; ends the threads */
/** Waits for the batch of `step`, `seconds` (below 1) at most: for a caller that has something else
 *  to do now and then. *wait_s grows by the time waited. */
ct_status ct_loader_wait(ct_loader *l, uint64_t seed, int64_t step, double seconds, double *wait_s,
                         bool *ready_p);
/** The step that follows this one, of those that this rank takes. */
int64_t ct_loader_step_after(const ct_loader *l, int64_t step);
/** The batch of a step. Those that do not follow one another, as turns say, start the
 * pipeline anew. A failure in a thread comes out here, with its status, at the step it belongs to.
 * Adds the seconds waited to *wait_s. Main thread only. */
ct_status ct_loader_take(ct_loader *l, uint64_t seed, int64_t step, ct_batch *batch_p,
                         double *wait_s);
/** Looks at the batch that comes `ahead` turns behind the last one taken (1, 2 …), and takes
 * nothing: false where it is not ready, or will end in an error. It stays where it is until it is
 * taken and given back, or until a take or wait for another step than the next. Main thread. */
bool ct_loader_look(ct_loader *l, int ahead, ct_batch *batch_p);
/** How packed batches are laid out; NULL: they are not. */
const ct_pack *ct_loader_pack(const ct_loader *l);
/** Gives the batch of the last successful take back. */
void ct_loader_give_back(ct_loader *l);

#endif
