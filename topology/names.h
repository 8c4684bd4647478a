/** @file names.h  The named nodes of a cluster, the switches above them, and lists of names.
 * Private to topology/. */
#ifndef CT_NAMES_H
#define CT_NAMES_H

#include "framework/base/text.h"
#include "topology/machine.h"

/** A vertex between the node level and the last level. */
typedef struct ct_named_switch {
    char *name;
    int level;  /* of the machine                              */
    int parent; /* a switch that stands before; -1: the machine */
} ct_named_switch;

struct ct_machine_names {
    int n_switch, n_node;
    ct_named_switch *sw; /* [n_switch] depth first: an outer one before what it holds    */
    char **node;         /* [n_node] in the order of the file                            */
    int *node_switch;    /* [n_node] the switch right above; -1: the machine             */
    int *sorted;         /* [n_node] indices by name, once ct_names_close() has run      */
};

void ct_names_destroy(ct_machine_names *names); /* NULL allowed */
/** Appends a copy; *at_p: its index. CT_ERR_NOMEM. */
ct_status ct_names_add_switch(ct_machine_names *names, const char *name, int level, int parent,
                              int *at_p);
ct_status ct_names_add_node(ct_machine_names *names, const char *name, int node_switch);
/** Sorts for ct_names_find(). *twice_p: the index of a node whose name an earlier one has, else -1.
 */
ct_status ct_names_close(ct_machine_names *names, int *twice_p);
/** The index of a node, or -1. A name with a domain ("n1.site.org") is also found without it, and
 *  the other way round. */
int ct_names_find(const ct_machine_names *names, const char *node);
/** The switch of `level` above node i; where none is of that level, the highest below; or -1. */
int ct_names_above(const ct_machine_names *names, int i, int level);

/* ---- Lists of node names as SLURM writes them: "n[1-4,7],login,r[1-2]c[01-16]" */

/** Calls each(ctx, name) for every name in the order of the list; stops at its first failure. An
 *  empty text is an empty list. A list that is none (a bracket open, an empty name, a range that
 *  runs backwards, a hole as in "n[1-,4]") is CT_ERR_CONFIG, logged as "WHAT: …"; what names the
 *  list's origin. */
ct_status ct_hostlist_each(const char *list, const char *what,
                           ct_status (*each)(void *ctx, const char *name), void *ctx);
/** Appends n names as a list, runs of the same name with rising numbers in brackets; it reads back
 *  as the same names in the same order. */
void ct_hostlist_add(ct_text *out, char *const *name, int n);

#endif
