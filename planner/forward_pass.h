/** @file forward_pass.h  What a rank does in one forward of a net that a tensor group shares, and
 * how long that takes where sums travel beside what computes: a model.
 *
 * A list has what is computed, when a transfer may leave, and when it must have come: the steps of
 * the rank's own net. Transfers go one after the other over a link of their own, in the order in
 * which they begin. Ranks of a group run the same list, so one rank stands for all: the one that
 * computes most.
 */
#ifndef CT_FORWARD_PASS_H
#define CT_FORWARD_PASS_H

#include "framework/base/json_writer.h"
#include "framework/base/text.h"
#include "framework/tensor/transfer.h"
#include "planner/job_machine.h"
#include "planner/sharding.h"

typedef enum { CT_FORWARD_COMPUTE, CT_FORWARD_BEGIN, CT_FORWARD_WAIT } ct_forward_kind;

typedef struct ct_forward_step {
    ct_forward_kind kind;
    char *layer;               /* owned                                                     */
    double seconds;            /* COMPUTE                                                   */
    int pair;                  /* BEGIN, WAIT: the same number in both, from 0 on           */
    ct_transfer_kind transfer; /* BEGIN: SUM, GATHER or SCATTER                             */
    int64_t bytes;             /* BEGIN: of the whole value                                 */
} ct_forward_step;

typedef struct ct_forward_pass {
    int n_rank; /* of the group          */
    int n_pair, n_step;
    ct_forward_step *step;
} ct_forward_pass;

typedef struct ct_forward_times {
    double all_s, compute_s;
    double sums_s;    /* that transfers are under way                     */
    double exposed_s; /* that computing waits for them: all - compute     */
} ct_forward_times;

/** The list of a file on a machine. A layer takes its operations or its bytes at the machine's
 * limits, whichever is longer. file: bound, of one stage with one replica. s: of the net of phase
 * TEST with `options`. m: the machine of the file's ranks. The caller destroys it, also after
 * errors. CT_ERR_CONFIG. */
ct_status ct_forward_pass_make(const ct_parallel *file, const ct_sharded_net *s,
                               const ct_net_options *options, const ct_job_machine *m,
                               ct_forward_pass *f);
/** The list of a rank's net, of phase TEST, with what step i of its forward took: seconds[i]. As
 *  _make. */
ct_status ct_forward_pass_of(const ct_net *net, int n_rank, const double *seconds,
                             ct_forward_pass *f);
void ct_forward_pass_destroy(ct_forward_pass *f); /* zeroed ones too */

/** How long a transfer takes over that link: among n ranks (n - 1) / n of the value and a message,
 *  a sum twice that. */
double ct_forward_transfer_s(const ct_forward_step *begin, int n_rank, ct_job_link link);
/** hides: computing goes on beside transfers; otherwise it stops when one begins. CT_ERR_NOMEM. */
ct_status ct_forward_pass_time(const ct_forward_pass *f, ct_job_link link, bool hides,
                               ct_forward_times *t);

/* ---- in a file: `cortado check --parallel --phase=TEST --json` and `cortado time` write it, the
 * simulator reads it */

/** Appends members of an object: "forward_pass":1, "net", "ranks", "steps". */
void ct_forward_pass_json(const char *net, const ct_forward_pass *f, ct_json_writer *w);
/** The caller destroys it. CT_ERR_IO; CT_ERR_DATA, with file and member, where the file
 *  is no such list: a pair that begins twice, or is awaited before it begins or twice. */
ct_status ct_forward_pass_read(const char *path, ct_forward_pass *f);
/** The same of a text, in which it may be the member "pass"; path serves the messages. */
ct_status ct_forward_pass_parse(const char *path, const char *text, size_t size,
                                ct_forward_pass *f);

#endif
