/** @file node_class.h  Which nodes of a machine are of which class. Private to topology/. */
#ifndef CT_NODE_CLASS_H
#define CT_NODE_CLASS_H

#include "framework/base/text.h"
#include "topology/machine.h"

/** What is wrong with the classes of a machine's nodes. */
typedef struct ct_node_fault {
    enum { CT_NODES_GOOD, CT_NODES_TWICE, CT_NODES_MISSING } kind;
    int64_t first, last; /* the nodes */
    int a, b;            /* twice: of these two classes, a before b, or both the same */
} ct_node_fault;

/** Nodes first..last are of a class. CT_ERR_NOMEM. */
ct_status ct_node_runs_add(ct_machine *m, int64_t first, int64_t last, int node_class);
/** Sorts and joins what was added, and finds the first of the machine's n_node nodes that is of two
 *  classes or of none. */
ct_node_fault ct_node_runs_close(ct_machine *m, int64_t n_node);
/** Takes one part off a list of numbers: "0-3,8" is 0 to 3, then 8 to 8. *list_p goes on behind it.
 *  False where what stands there is no number or range. */
bool ct_node_numbers_next(const char **list_p, int64_t *first_p, int64_t *last_p);

#endif
