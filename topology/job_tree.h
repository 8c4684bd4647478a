/** @file job_tree.h  The keys of a job's ranks level by level, while its topology is found. Private
 *  to topology/. */
#ifndef CT_JOB_TREE_H
#define CT_JOB_TREE_H

#include "topology/discover.h"

/** The job by MPI's word alone, and keys to be filled in. */
typedef struct ct_job_tree {
    const ct_job_facts *facts;
    ct_topo *hosts; /* nodes: the ranks that share memory */
    int *leader;    /* [hosts->n_node] lowest rank        */
    int64_t *key;   /* [CT_MAX_LEVEL * n_rank], 0 at first */
} ct_job_tree;

ct_status ct_job_tree_create(const ct_job_facts *facts, ct_job_tree *tree_p);
void ct_job_tree_destroy(ct_job_tree *tree);
int64_t *ct_job_tree_level(ct_job_tree *tree, int level);

/** SLURM's addresses as levels above the node. CT_UNSUPPORTED where there are none, where all name
 *  one switch, or, unless demanded, where they contradict something, after a warning.
 * CT_ERR_CONFIG: demanded, or the node list is none or lacks a node. */
ct_status ct_job_slurm_tree(ct_job_tree *tree, bool demanded, ct_topo **topo_p);
/** Keys of the sockets and NUMA nodes, where every rank is bound to one and some node uses several
 *  of them. Levels are put in front of m's, its keys moved. */
void ct_job_add_inside(ct_job_tree *tree, ct_machine *m);
/** Names of the nodes, and of switches: name[l * n_rank + r], for levels above the node. */
ct_status ct_job_name_vertices(const ct_job_tree *tree, ct_topo *t);

#endif
