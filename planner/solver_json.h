/** @file solver_json.h  Chains and pipelines as JSON, and what the solvers chose: the files of
 * `cortado plan --chain` and `--pipeline`. docs/planning.md describes them.
 */
#ifndef CT_SOLVER_JSON_H
#define CT_SOLVER_JSON_H

#include <stddef.h>

#include "framework/base/text.h"
#include "planner/chain.h"
#include "planner/partition.h"

/** What files may have at most. */
#define CT_CHAIN_MOST_BLOCKS     100000
#define CT_PARTITION_MOST_STAGES 4096
#define CT_PARTITION_MOST_LAYERS 10000

/** A chain and the numbers that it borrows. */
typedef struct ct_chain_file {
    ct_chain chain;
    double *times;
    int64_t *sizes;
} ct_chain_file;

/** path serves the messages and must live as long as the chain. CT_ERR_CONFIG, in one line with
 *  path, field and what was expected there; CT_ERR_NOMEM. */
ct_status ct_chain_parse(const char *path, const char *text, size_t size, ct_chain_file *out);
void ct_chain_release(ct_chain_file *f); /* zeroed ones too */
/** `{"step_s":…,"strategy":[…],"mode":[…]}`; where step_s is not finite, null and empty lists. */
void ct_chain_answer(const ct_chain *c, double step_s, const int *strategy,
                     const ct_chain_mode *mode, ct_text *out);
const char *ct_chain_mode_str(ct_chain_mode mode); /* "keep", "start", "continue"; static */

typedef struct ct_partition_file {
    ct_partition partition;
    double *times;
} ct_partition_file;

ct_status ct_partition_parse(const char *path, const char *text, size_t size,
                             ct_partition_file *out);
void ct_partition_release(ct_partition_file *f); /* zeroed ones too */
/** `{"step_s":…,"layers":[…]}`; where step_s is not finite, null and an empty list. */
void ct_partition_answer(const ct_partition *p, double step_s, const int *layers, ct_text *out);

#endif
