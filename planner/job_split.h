/** @file job_split.h  In which ways the ranks of a tensor group may run the blocks of a net, and
 * what that takes.
 *
 * A block goes one of four ways: every layer BATCH; every layer REPLICATE; or split, products
 * OUTPUT and INPUT in turns, beginning with one or the other. What follows the products goes with
 * them (heads of an Attention, the vocabulary of an Embed, the classes of a loss). How values then
 * lie and where they are turned is what sharding.h says of a file with these ways. Files are made
 * in which all blocks go one way, and in which neighbours go any two ways.
 */
#ifndef CT_JOB_SPLIT_H
#define CT_JOB_SPLIT_H

#include "planner/job_machine.h"
#include "planner/job_net.h"
#include "planner/sharding.h"

typedef enum ct_job_way {
    CT_JOB_BATCH,
    CT_JOB_REPLICATE,
    CT_JOB_OUTPUT, /* split, the first product by its outputs */
    CT_JOB_INPUT,  /* … by its inputs                         */
    CT_JOB_N_WAY
} ct_job_way;

/** Of a layer: it is of another stage. */
#define CT_JOB_ABSENT (-1)
/** In a split of a file all blocks go this way, whatever its name: as the file says. */
#define CT_JOB_FILE_WAY CT_JOB_REPLICATE

/** What the ranks of a group tell each other for a sample: what each sends, and in how many
 *  messages one after the other. */
typedef struct ct_job_talk {
    double bytes[CT_JOB_N_DIRECTION];
    double messages[CT_JOB_N_DIRECTION];
} ct_job_talk;

/** A layer that goes one way. */
typedef struct ct_job_part {
    int8_t entry; /* what the file says of it; -1: nothing */
    int8_t split; /* ct_parallel_split; CT_JOB_ABSENT      */
    float share;  /* of its activations that a rank moves  */
} ct_job_part;

/** A block that goes one way. */
typedef struct ct_job_ways {
    bool may;
    double once;    /* of its seconds: where it is made again, this part of it is not. 0 but in
                     * files                                                              */
    double kept;    /* of ct_job_block.kept and .fixed, of the group's samples: what a rank has */
    double input;   /* … of .input, and of the value that the block reads                       */
    double other;   /* … of .other                                                              */
    double weights; /* of .weights                                                              */
    double summed;  /* bytes of gradients that a rank sums with those of its place …            */
    double summed_all; /* … and, before, with all ranks of its group */
    ct_job_talk inside;
} ct_job_ways;

typedef struct ct_job_split {
    int tensor, n_block, n_layer;
    ct_job_ways *block; /* [block][way]       */
    ct_job_part *layer; /* [layer][way]       */
    ct_job_talk *entry; /* [block][from][to]: in front of it */
    ct_job_talk *leave; /* [block][way]: behind it where a stage ends there */
} ct_job_split;

ct_status ct_job_split_make(const ct_job_net *n, int tensor, ct_job_split *s);
/** A stage of a file: its layers as the file splits them, no others. sharded is of n->net. Of what
 *  a block has, seconds, messages and weights alone are told. */
ct_status ct_job_split_of_file(const ct_job_net *n, const ct_parallel *file,
                               const ct_sharded_net *sharded, int stage, ct_job_split *s);
/** Bytes of a sample that a rank of one stage hears of another: bytes [from][to] of all stages. */
void ct_job_split_heard(const ct_job_net *n, const ct_parallel *file, const ct_sharded_net *sharded,
                        double *bytes);
void ct_job_split_destroy(ct_job_split *s); /* zeroed ones too */
/** Some block may be split. */
bool ct_job_split_splits(const ct_job_split *s);

/** Seconds of each block in each way, [block][way], with so many samples of the group, on a rank of
 * a kind; what is said in it among them. INFINITY where it cannot go so. */
void ct_job_split_price(const ct_job_net *n, const ct_job_split *s, int direction,
                        const ct_job_class *kind, ct_job_link link, double samples,
                        double *seconds);
double ct_job_talk_seconds(const ct_job_talk *t, int direction, ct_job_link link, double samples);

/** Appends the entries of a stage's blocks, way [n_block], that a file needs so that its layers go
 *  these ways. CT_ERR_NOMEM. */
ct_status ct_job_split_write(const ct_job_net *n, const ct_job_split *s, int first, int end,
                             const int *way, ct_text *out);

#endif
