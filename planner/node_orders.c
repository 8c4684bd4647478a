#include "planner/node_orders.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct maker {
    const int *node_class;
    int n_class, most;
    ct_node_orders *out;
} maker;

/* The next sequence in lexical order; false: it was the last. */
static bool next_sequence(int *v, int n)
{
    int i = n - 2, k = n - 1, held;

    while ((i >= 0) && (v[i] >= v[i + 1])) --i;
    if (i < 0) return false;
    while (v[k] <= v[i]) --k;
    held = v[i];
    v[i] = v[k];
    v[k] = held;
    for (int a = i + 1, b = n - 1; a < b; ++a, --b) {
        held = v[a];
        v[a] = v[b];
        v[b] = held;
    }
    return true;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Gives the nodes of each class, in the order of their numbers, to a sequence of classes. */
static void place_nodes(const maker *m, const int *sequence, int *order)
{
    for (int k = 0; k < m->n_class; ++k) {
        int node = 0;

        for (int i = 0; i < m->out->n_node; ++i) {
            if (sequence[i] != k) continue;
            while (m->node_class[node] != k) ++node;
            order[i] = node++;
        }
    }
}

static ct_status add_order(maker *m, const int *sequence)
{
    size_t n = (size_t)m->out->n_node;
    int *order = realloc(m->out->order, (size_t)(m->out->n + 1) * n * sizeof(*order));

    if (order == NULL) return CT_FAIL(CT_ERR_NOMEM, "orders of %d nodes", m->out->n_node);
    m->out->order = order;
    place_nodes(m, sequence, order + (size_t)m->out->n++ * n);
    return CT_OK;
}

/* Classes as blocks: all nodes of a class side by side. classes: those that there are, ascending.
 */
static ct_status add_blocks(maker *m, int *classes, int n_class, int *sequence)
{
    m->out->n = 0;
    do {
        int n = 0;

        for (int k = 0; k < n_class; ++k) {
            for (int i = 0; i < m->out->n_node; ++i) {
                if (m->node_class[i] == classes[k]) sequence[n++] = classes[k];
            }
        }
        CT_TRY(add_order(m, sequence));
    } while (next_sequence(classes, n_class) && (m->out->n < m->most));
    return CT_OK;
}

ct_status ct_node_orders_make(const int *node_class, int n_node, int n_class, int most,
                              ct_node_orders *orders)
{
    maker m = { node_class, n_class, most, orders };
    int *sequence = malloc(2 * (size_t)n_node * sizeof(*sequence)), n_there = 0;
    int *classes;
    ct_status status = CT_OK;
    bool more = true;

    *orders = (ct_node_orders){ .n_node = n_node };
    if (sequence == NULL) return CT_FAIL(CT_ERR_NOMEM, "orders of %d nodes", n_node);
    classes = sequence + n_node;
    memcpy(sequence, node_class, (size_t)n_node * sizeof(*sequence));
    qsort(sequence, (size_t)n_node, sizeof(*sequence), by_number);
    for (int i = 0; i < n_node; ++i) {
        if ((i == 0) || (sequence[i] != sequence[i - 1])) classes[n_there++] = sequence[i];
    }
    while ((status == CT_OK) && more && (orders->n < most)) {
        status = add_order(&m, sequence);
        more = next_sequence(sequence, n_node);
    }
    if ((status == CT_OK) && more) status = add_blocks(&m, classes, n_there, sequence);
    free(sequence);
    if (status != CT_OK) ct_node_orders_destroy(orders);
    return status;
}

void ct_node_orders_destroy(ct_node_orders *orders)
{
    free(orders->order);
    *orders = (ct_node_orders){ 0 };
}
