/** @file parts_rig.h  A net that ranks have parts of, divided by hand in several ways, with three
 * arenas of states, for tests of the files that they write and read. The ranks are threads or a
 * job's; nothing is asserted here.
 */
#ifndef CT_TEST_PARTS_RIG_H
#define CT_TEST_PARTS_RIG_H

#include "framework/snapshot/snapshot.h"

typedef enum {
    RIG_WHOLE,    /* 1 rank, that knows of no parts     */
    RIG_ALONE,    /* 1, that has all of them            */
    RIG_OUTPUT,   /* 2, each a part of three products   */
    RIG_STAGES,   /* 2, which share a weight            */
    RIG_INPUT,    /* 3, one product by what it reads    */
    RIG_BOTH,     /* 4, two stages, the first one split */
    RIG_REPLICAS, /* 4, two of RIG_OUTPUT               */
    RIG_COPIES,   /* 2, which do the same               */
    RIG_DATA,     /* 2 replicas, that know of no parts  */
    N_RIG
} rig_plan;

enum { RIG_HISTORY = 3 }; /* two of the rule, and an average */
#define RIG_RATE 0.125f

typedef struct rig_rank {
    rig_plan plan;
    Ct__NetParameter *param, *whole_param;
    ct_net *net, *whole; /* RIG_WHOLE: the same */
    ct_group job;
    ct_parts *parts;
    float *history[RIG_HISTORY];
    ct_storage stored[RIG_HISTORY];
    bool absorbs;
    float *residual; /* NULL: codecs keep nothing */
    float rate;
    ct_exchange x;
    ct_snapshot_state state;
    ct_shard shard; /* of its states; none: it keeps all of them */
} rig_rank;

int rig_ranks(rig_plan plan);
/** This rank's part, of a net with a weight larger than CT_STORAGE_CHUNK, or a small one: g has
 * rig_ranks() ranks. Collective. */
ct_status rig_open(rig_plan plan, bool large, const ct_group *g, rig_rank *r);
void rig_close(rig_rank *r);
typedef enum {
    RIG_WRITE,
    RIG_WRITE_BINARY,
    RIG_READ, /* a solver state */
    RIG_LOAD, /* weights        */
    RIG_CHECKSUM
} rig_work;

/** What all ranks of a division do with a prefix, or a file that they read and then compare with
 *  rig_fill(): CT_ERR_DATA where it differs. The files of all divisions say that one rank wrote
 *  them. */
typedef struct rig_task {
    rig_plan plan;
    rig_work work;
    const char *path;
    bool large;
    uint64_t sum; /* of RIG_CHECKSUM, of the last rank */
    /* every learned parameter has a residual on each rank, which before reading is all -1; absorbs:
     * it counts in updates, at RIG_RATE */
    bool keeps, absorbs;
    bool
        shards; /* replicas share out their states: of what a rank has none, it has a wrong value */
    void (*begin)(void *ctx, rig_rank *r); /* before it is written; may be NULL */
    void (*end)(void *ctx, rig_rank *r);   /* after reading, with state's `owed` and `late` there */
    void *ctx;
} rig_task;

/** Collective over g, which has rig_ranks() ranks. */
ct_status rig_run(const ct_group *g, rig_task *t);

/** Weights and states become functions of mark and of the place in the whole array. */
void rig_fill(rig_rank *r, int mark);
/** Elements that rig_fill() would change; states too on request. */
int64_t rig_differing(const rig_rank *r, int mark, bool states);
/** Calls visit with each element that learns of this rank: of which parameter of the whole net, the
 *  place there, the place in this rank's arenas. */
void rig_each_learned(const rig_rank *r, void (*visit)(void *ctx, int i, int64_t e, int64_t at),
                      void *ctx);
/** Zeros everywhere. */
void rig_clear(rig_rank *r);

#endif
