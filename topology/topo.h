/** @file topo.h  Which ranks share a node, and what a message costs. No MPI in here.
 *
 * Built from what the ranks report (comm/ gathers it) or from a string such as "4x8" (4 nodes of
 * 8 ranks), so every algorithm can be tested on machines we do not have.
 */
#ifndef CT_TOPO_H
#define CT_TOPO_H

#include <stddef.h>
#include <stdint.h>

#include "framework/base/status.h"

/** Time of one message of b bytes: alpha_s + b * beta_s seconds; adding costs gamma_s a byte. The
 *  figures are orders of magnitude (shared memory; a 10 Gbit/s network) that only rank algorithms
 *  against each other: static, so that the same job makes the same choices every time. */
typedef struct ct_link {
    double alpha_s, beta_s, gamma_s;
} ct_link;

typedef struct ct_topo {
    int n_rank, n_node;
    int *node;       /* [n_rank] node of each rank, numbered by first appearance */
    int *local_rank; /* [n_rank] place on its node; 0 is the leader              */
    int *node_size;  /* [n_node]                                                 */
    ct_link intra, inter;
    char source[32]; /* "mpi shared split", "slurm", "synthetic 2x2"             */
} ct_topo;

/** host[r] identifies rank r's node. Caller frees with ct_topo_destroy(). */
ct_status ct_topo_from_hosts(const uint64_t *host, int n_rank, const char *source,
                             ct_topo **topo_p);
/** spec: "<nodes>x<ranks per node>", whose product must be n_rank, ranks numbered node by node; or
 *  "map:" and one letter or digit per rank that names its node, such as "map:0010", for maps that
 *  are uneven or not contiguous (tests). CT_ERR_CONFIG. */
ct_status ct_topo_from_string(const char *spec, int n_rank, ct_topo **topo_p);
void ct_topo_destroy(ct_topo *topo); /* NULL allowed */

/** Ranks of the smallest and of the largest node. */
int ct_topo_min_node_size(const ct_topo *topo);
int ct_topo_max_node_size(const ct_topo *topo);

#endif
