/** @file bench.h  The parts of `cortado bench`.
 *
 * comm: the collectives against MPI_Allreduce, or their halves against MPI_Reduce_scatter and
 * MPI_Allgather.
 *
 * Each allreduce is checked on every rank while it is timed, and every rank rewrites its whole
 * buffer before each, untimed, as training does: a buffer that nobody rewrites stays in the cache
 * of the core that summed it. The time of one is that of the slowest rank, after a barrier; the
 * figure is the median. `mpi` is the blocking MPI_Allreduce in place on
 * a warm buffer in plain memory; ours run on the memory that training gives them: hier on a buffer
 * from ct_comm_arena(), the others on the same as mpi.
 */
#ifndef CT_BENCH_H
#define CT_BENCH_H

#include "comm/codec/select.h"
#include "comm/collective/coll.h"
#include "comm/core/comm.h"
#include "comm/sparse/payload.h"
#include "framework/base/text.h"
#include "framework/net/step.h"
#include "runtime/call.h"
#include "runtime/job.h"

#define CT_BENCH_MAX_SIZE 32
#define CT_BENCH_MAX_ALGO 16

typedef struct ct_bench_plan {
    int n_size;
    int64_t bytes[CT_BENCH_MAX_SIZE]; /* multiples of 4 */
    ct_coll_kind kind;
    int n_algo;
    const ct_coll_ops *algo[CT_BENCH_MAX_ALGO]; /* of that kind; NULL: MPI's blocking one itself */
    int repeat; /* 0: as many as take about a second, 5 to 200                */
    bool plain; /* hier on plain memory too: its ranks cannot share it */
} ct_bench_plan;

typedef struct ct_bench_result {
    int64_t bytes;
    const char *algo;
    int repeats;
    double median_s, least_s;
    double to_mpi; /* time of mpi / time of this; 0: mpi was not run */
} ct_bench_result;

/** "4K,64K,1M" (K, M, G: powers of 1024) and "ring,mpi" into the plan, whose kind is set; "all" or
 * NULL: all that there are. CT_ERR_CONFIG, where one has no such half, too. */
ct_status ct_bench_sizes(const char *list, ct_bench_plan *plan);
ct_status ct_bench_algorithms(const ct_comm *c, const char *list, ct_bench_plan *plan);
/** Fills result[n_size * n_algo], size by size; the same on all ranks. Collective. CT_ERR_COMM
 *  where a sum is wrong. */
ct_status ct_bench_comm(ct_comm *c, const ct_bench_plan *plan, ct_bench_result *result);
/** One object a line and point: {"algorithm":…,"bytes":…,"us":…,"algbw_gbs":…,"busbw_gbs":…,…}:
 *  the median time; bytes a second of the whole buffer; and those times 2 (p-1)/p (halves:
 * (p-1)/p), which is what each rank must send and receive at least, so that it compares over
 * numbers of ranks (as in NCCL's tests). */
void ct_bench_json(const ct_comm *c, const ct_bench_plan *plan, const ct_bench_result *result,
                   ct_text *out);
void ct_bench_print(const ct_comm *c, const ct_bench_plan *plan, const ct_bench_result *result);

/* ---- `cortado bench comm --fit`: the figures of the machine's levels, measured.
 *
 * On the ranks of the job, for each level of its topology where two ranks meet: steps of a
 * collective, one that adds and one back, by the engine that runs collectives
 * (comm/collective/schedule.h), 4 bytes to 32 MiB, in the patterns that algorithms have
 * (ct_pattern): inside a node of two ranks alone, above it of one rank of each of up to four
 * members. Their times are what the model takes; latency and bandwidth are a line through those of
 * ranks that swap. Above the node also four steps in a row, which shows what a token bucket lets
 * through at once. Then all ranks of one member of the level with as many of another, which gives
 * the link of that member; on the level of the node all its ranks in pairs, which gives what they
 * share (bus). All ranks at once add (gamma), and sum in the shared memory of their nodes; their
 * multiply-adds make classes of nodes by speed. A time is that of the slowest rank, after a
 * barrier, the median of several; each rank rewrites its buffer before. The error is that of every
 * other size when the rest foretells it: the root of the mean square of the relative differences.
 */

typedef struct ct_fit_report {
    ct_machine
        machine; /* its names are NULL; figures of levels that were not met are the guesses */
    bool measured[CT_MAX_LEVEL];
    int pair[CT_MAX_LEVEL][2]; /* ranks of the one pair alone     */
    int n_pair[CT_MAX_LEVEL];  /* pairs at once; below 2: no more */
    double flop;               /* multiply-adds a second of the first node's ranks */
} ct_fit_report;

/** The same result on all ranks. Collective. Caller frees, also after an error. CT_ERR_CONFIG for
 * one rank alone. */
ct_status ct_bench_fit(ct_comm *c, ct_fit_report *report);
void ct_bench_fit_free(ct_fit_report *report);
void ct_bench_fit_print(const ct_comm *c, const ct_fit_report *report);

/* ---- `cortado bench codec`: encode and decode beside the plain update.
 *
 * A row is a selection and a wire form, or a codec that selects nothing: "none". Encode is the
 * update of momentum and residual with the selection in it, and the payload; decode adds one
 * payload to a dense vector. The yardsticks of the same run: the update alone on the same arrays in
 * the same state (put back afterwards), taking turns with the encodes, and STREAM's triad on arrays
 * of the same size. Before each the caches are swept. Figures are medians. Gradients are normal
 * random numbers, others in each step, and some steps go ahead so that the residual is that of a
 * run under way. Bytes: the update reads g, U, V and writes U, V, 20 n; the triad counts as STREAM
 * does, 12 n.
 */

typedef struct ct_codec_bench {
    int64_t count; /* elements, 1 to 2^32 - 1                     */
    double density;
    int repeat;
    int n_thread;
    const char *selection; /* only rows of this one; NULL: all */
} ct_codec_bench;

typedef struct ct_codec_row {
    const char *codec;     /* the codec whose defaults these are: topk, redsync … */
    const char *selection; /* as ct_select_name(), or "none"                    */
    const char *wire; /* as ct_payload_name(), or the name of a codec that selects nothing      */
    bool history;     /* each step knew the threshold of the one before    */
    int64_t selected; /* in the last step; "none": all                     */
    int64_t bytes;    /* of its payload                                    */
    int passes;       /* over the residual, in the last step               */
    double encode_ms, decode_ms, update_ms, update_gbs, triad_gbs;
} ct_codec_row;

enum { CT_CODEC_ROWS = 16 };

/** Fills row[*n_p], at most CT_CODEC_ROWS. */
ct_status ct_bench_codec(const ct_codec_bench *plan, ct_codec_row *row, int *n_p);
void ct_bench_codec_print(const ct_codec_bench *plan, const ct_codec_row *row, int n);
/** One object a line. */
void ct_bench_codec_json(const ct_codec_bench *plan, const ct_codec_row *row, int n, ct_text *out);

/* ---- `cortado bench serve`: a net as `serve` runs it, without the server. */

#define CT_BENCH_MAX_BATCH 64
#define CT_BENCH_SHAPES    "1x10,1x40,1x100,1x200,1x500,20x10,20x40"

/** `batch` sequences of `tokens` each; cached > 0: behind about as many that a cache has, and the
 *  scores of the last one alone. Where they are `mixed`, `tokens` is that of the longest. Then the
 *  same ones follow as the next shape, padded to it: the runs of both take turns. */
typedef struct ct_serve_shape {
    int64_t batch, tokens, cached;
    bool mixed, padded;
    int64_t length[CT_BENCH_MAX_BATCH]; /* of each that is mixed */
} ct_serve_shape;

typedef struct ct_serve_bench {
    const char *model, *weights; /* weights NULL: as fillers make them          */
    int n_shape;
    ct_serve_shape shape[CT_BENCH_MAX_BATCH];
    int repeat; /* 0: as many as take about a second, 3 to 200 */
    int n_thread;
    bool bf16;
    bool last;            /* of a sequence's rows the last one alone is wanted */
    const char *parallel; /* a file, by which all ranks run one net; NULL: one rank does */
    ct_job *job;          /* connected, where there is a file */
    const char *pass;   /* a file for the steps of the last shape, which ranks share; NULL: none */
    const char *scores; /* a file for the rows of each shape's first run; NULL: none */
    ct_trace_file *trace; /* opened; empty: none */
} ct_serve_bench;

typedef struct ct_serve_row {
    ct_serve_shape shape;
    int repeats;
    double ms, least_ms; /* median and least of a run                                  */
    double norm;         /* of the rows that a run makes: the root of the sum of their squares */
    double reshape_us;   /* of a run that follows one of another shape: shaping alone  */
    int n_sum;           /* that a run has with other ranks                            */
    double hidden;       /* the median of a run's share of them: ct_bench_hidden()     */
} ct_serve_row;

/** "1x10,8x1@128,10+20+30" into the plan; "mix20": 20 sequences of 2 to 100 tokens, 1070 in all.
 *  CT_ERR_CONFIG. */
ct_status ct_bench_shapes(const char *list, ct_serve_bench *plan);
/** The mean, over the sums and other transfers of a timed list of steps, of the share of its time
 *  that is spent elsewhere: 1 - (BEGIN + WAIT) / (from BEGIN to the end of WAIT). 0 where there is
 *  none. */
double ct_bench_hidden(const ct_step *list, int n, int *n_sum_p);
/** row[n_shape]. */
ct_status ct_bench_serve(const ct_serve_bench *plan, ct_serve_row *row);
void ct_bench_serve_print(const ct_serve_bench *plan, const ct_serve_row *row);
/** An object a line: {"batch":…,"tokens":…,"ms":…,…}. */
void ct_bench_serve_json(const ct_serve_bench *plan, const ct_serve_row *row, ct_text *out);

#endif
