/** @file node_orders.h  In which orders a plan may take the nodes of a job.
 *
 * Nodes of one class are alike, so an order is a sequence of classes; the nodes of a class come in
 * the order of their numbers.
 */
#ifndef CT_NODE_ORDERS_H
#define CT_NODE_ORDERS_H

#include "framework/base/status.h"

typedef struct ct_node_orders {
    int n, n_node;
    int *order; /* [n][n_node]; owned */
} ct_node_orders;

/** All sequences of classes, in lexical order. Where there are more than `most`, those in which the
 *  nodes of a class stand together, at most so many. CT_ERR_NOMEM. */
ct_status ct_node_orders_make(const int *node_class, int n_node, int n_class, int most,
                              ct_node_orders *orders);
void ct_node_orders_destroy(ct_node_orders *orders); /* zeroed ones too */

#endif
