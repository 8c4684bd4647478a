#include "topology/names.h"

#include <stdlib.h>
#include <string.h>

void ct_names_destroy(ct_machine_names *names)
{
    if (names == NULL) return;
    for (int i = 0; i < names->n_switch; ++i) free(names->sw[i].name);
    for (int i = 0; i < names->n_node; ++i) free(names->node[i]);
    free(names->sw);
    free(names->node);
    free(names->node_switch);
    free(names->sorted);
    free(names);
}

/* Room for one element more: capacity is n rounded up to a power of two, 8 at least. */
static ct_status grow(void **array, int n, size_t size)
{
    void *more = NULL;

    if ((n != 0) && ((n < 8) || ((n & (n - 1)) != 0))) return CT_OK;
    more = realloc(*array, size * (size_t)((n == 0) ? 8 : 2 * n));
    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d names", n);
    *array = more;
    return CT_OK;
}

static ct_status copy_name(const char *name, char **copy_p)
{
    *copy_p = strdup(name);
    return (*copy_p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for the name %s", name);
}

ct_status ct_names_add_switch(ct_machine_names *names, const char *name, int level, int parent,
                              int *at_p)
{
    char *copy = NULL;

    CT_TRY(grow((void **)&names->sw, names->n_switch, sizeof(*names->sw)));
    CT_TRY(copy_name(name, &copy));
    *at_p = names->n_switch;
    names->sw[names->n_switch++] = (ct_named_switch){ copy, level, parent };
    return CT_OK;
}

ct_status ct_names_add_node(ct_machine_names *names, const char *name, int node_switch)
{
    char *copy = NULL;

    CT_TRY(grow((void **)&names->node, names->n_node, sizeof(*names->node)));
    CT_TRY(grow((void **)&names->node_switch, names->n_node, sizeof(*names->node_switch)));
    CT_TRY(copy_name(name, &copy));
    names->node[names->n_node] = copy;
    names->node_switch[names->n_node++] = node_switch;
    return CT_OK;
}

static int by_name(const void *a, const void *b, void *context)
{
    char *const *node = context;

    return strcmp(node[*(const int *)a], node[*(const int *)b]);
}

ct_status ct_names_close(ct_machine_names *names, int *twice_p)
{
    *twice_p = -1;
    names->sorted = malloc(sizeof(*names->sorted) * (size_t)(names->n_node + 1));
    if (names->sorted == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d names", names->n_node);
    for (int i = 0; i < names->n_node; ++i) names->sorted[i] = i;
    qsort_r(names->sorted, (size_t)names->n_node, sizeof(*names->sorted), by_name, names->node);
    for (int i = 1; i < names->n_node; ++i) {
        int a = names->sorted[i - 1], b = names->sorted[i];

        if (strcmp(names->node[a], names->node[b]) == 0) *twice_p = (a > b) ? a : b;
    }
    return CT_OK;
}

/* Of the names that start with name[0..length) and end there or at a dot: the first, or -1. */
static int find_label(const ct_machine_names *names, const char *name, size_t length)
{
    int low = 0, high = names->n_node;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (strncmp(names->node[names->sorted[middle]], name, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < names->n_node; ++low) {
        const char *node = names->node[names->sorted[low]];

        if (strncmp(node, name, length) != 0) break;
        if ((node[length] == '\0') || (node[length] == '.')) return names->sorted[low];
    }
    return -1;
}

int ct_names_find(const ct_machine_names *names, const char *node)
{
    size_t length = strcspn(node, ".");
    int at = find_label(names, node, strlen(node));

    if ((at >= 0) || (node[length] == '\0')) return at;
    at = find_label(names, node, length);
    /* n1.a is not n1.b */
    return ((at >= 0) && (strchr(names->node[at], '.') == NULL)) ? at : -1;
}

int ct_names_above(const ct_machine_names *names, int i, int level)
{
    int at = names->node_switch[i];

    if ((at < 0) || (names->sw[at].level > level)) return -1;
    while ((names->sw[at].parent >= 0) && (names->sw[names->sw[at].parent].level <= level))
        at = names->sw[at].parent;
    return at;
}
