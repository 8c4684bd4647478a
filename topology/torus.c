#include "topology/torus.h"

#include <limits.h>
#include <stdbool.h>

int64_t ct_torus_nodes(const ct_torus *t)
{
    int64_t n = 1;

    for (int d = 0; d < t->n_dim; ++d) {
        n *= t->dim[d];
        if (n > INT_MAX) return (int64_t)INT_MAX + 1;
    }
    return n;
}

int ct_torus_ports(const ct_torus *t)
{
    int n = 0;

    for (int d = 0; d < t->n_dim; ++d) n += (t->dim[d] > 1) ? 2 : 0;
    return n;
}

void ct_torus_place(const ct_torus *t, int64_t node, int *at)
{
    for (int d = t->n_dim - 1; d >= 0; --d) {
        at[d] = (int)(node % t->dim[d]);
        node /= t->dim[d];
    }
}

int64_t ct_torus_node(const ct_torus *t, const int *at)
{
    int64_t node = 0;

    for (int d = 0; d < t->n_dim; ++d) node = node * t->dim[d] + at[d];
    return node;
}

int ct_torus_diameter(const ct_torus *t)
{
    int n = 0;

    for (int d = 0; d < t->n_dim; ++d) n += t->dim[d] / 2;
    return n;
}

int ct_torus_way(const ct_torus *t, int64_t from, int64_t to, int other, int64_t *link)
{
    int at[CT_MAX_TORUS], end[CT_MAX_TORUS], n = 0;

    ct_torus_place(t, from, at);
    ct_torus_place(t, to, end);
    for (int d = 0; d < t->n_dim; ++d) {
        int size = t->dim[d], up = (end[d] - at[d] + size) % size;
        bool down = (2 * up > size) || ((2 * up == size) && other);

        while (at[d] != end[d]) {
            link[n++] = (2 * ct_torus_node(t, at) * t->n_dim) + (2 * d) + (down ? 1 : 0);
            at[d] = (at[d] + (down ? size - 1 : 1)) % size;
        }
    }
    return n;
}
