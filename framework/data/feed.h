/** @file feed.h  One rank of a node fetches records from the files for all ranks of the node.
 *
 * The node's rank 0 has threads that go through the steps of the stream. They put what the files
 * hold of each step's samples, of all ranks of the node, into memory that they share: a few slots
 * of one step each. Every rank's loader decodes its own samples from there. So a node has each file
 * open once and reads each record once an epoch, decoding stays spread over the ranks, and the
 * samples are those that every rank would have read itself.
 *
 * Ranks jump from one run of steps to another (a test pass, a resumed run) at the same places of
 * their programs but at different times. Each run has a generation, and a slot belongs to a
 * generation and a step. A slot is filled anew when no rank can want it any more.
 */
#ifndef CT_FEED_H
#define CT_FEED_H

#include "framework/data/group.h"
#include "framework/data/reader.h"

typedef struct ct_feed ct_feed;

typedef struct ct_feed_options {
    const ct_reader *reader;    /* the node's rank 0: of the files; the others: reader.h */
    const ct_data_group *group; /* borrowed */
    int64_t global;             /* samples of a step */
    int64_t stripes;            /* as in ct_loader_options */
    int64_t repeat;
    int crops;
    uint32_t rand_skip;
    int threads; /* that fetch, on the node's rank 0 */
} ct_feed_options;

/** One rank's records of one step. */
typedef struct ct_feed_part {
    ct_status status; /* of the fetch; the reading rank has logged it, `text` is what it said */
    const char *text;
    int slot;
} ct_feed_part;

/** Collective over the job. CT_UNSUPPORTED, on all ranks alike: nobody reads for others, or memory
 *  cannot be shared. */
ct_status ct_feed_create(const ct_feed_options *options, ct_feed **feed_p);
/** Collective; after ct_feed_stop(), with no thread of this rank in a call. NULL allowed. */
void ct_feed_destroy(ct_feed *f);

/** This rank goes on at `step` with generation `generation` (1, 2, …; the same on all ranks), after
 *  it took the steps before `taken` of the generation before. Main thread; starts the threads. */
ct_status ct_feed_jump(ct_feed *f, int64_t generation, uint64_t seed, int64_t step, int64_t taken);
/** Waits for a step; any thread. CT_STOPPED: the rank has gone on to another generation, or stops.
 *  Ends with ct_feed_done(). */
ct_status ct_feed_wait(ct_feed *f, int64_t generation, int64_t step, ct_feed_part *part_p);
/** Sample i of this rank; NULL: it did not fit, the reader has to be asked. */
const void *ct_feed_record(const ct_feed *f, const ct_feed_part *part, int64_t i, size_t *size_p);
void ct_feed_done(ct_feed *f, const ct_feed_part *part);
/** Ends all waits of this rank, now and later. */
void ct_feed_stop(ct_feed *f);

#endif
