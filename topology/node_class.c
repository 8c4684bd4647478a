/* Nodes of several classes: which node is of which, and what its links and ranks then do. */
#include "topology/node_class.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/names.h"
#include "topology/topo.h"

/* ---- runs of nodes */

ct_status ct_node_runs_add(ct_machine *m, int64_t first, int64_t last, int node_class)
{
    int n = m->n_node_run;
    ct_node_run *more = m->node_run;

    if ((n > 0) && (more[n - 1].node_class == node_class) && (more[n - 1].last + 1 == first)) {
        more[n - 1].last = last;
        return CT_OK;
    }
    if ((n & (n - 1)) == 0) { /* full: the room doubles */
        more = realloc(more, sizeof(*more) * 2 * (size_t)((n > 0) ? n : 1));
        if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for classes of nodes");
        m->node_run = more;
    }
    more[m->n_node_run++] = (ct_node_run){ first, last, node_class };
    return CT_OK;
}

static int by_first(const void *a, const void *b)
{
    const ct_node_run *x = a, *y = b;

    if (x->first != y->first) return (x->first < y->first) ? -1 : 1;
    return (x->node_class > y->node_class) - (x->node_class < y->node_class);
}

static ct_node_fault twice(const ct_node_run *a, const ct_node_run *b)
{
    bool ordered = (a->node_class < b->node_class);

    return (ct_node_fault){ .kind = CT_NODES_TWICE,
                            .first = b->first,
                            .last = (a->last < b->last) ? a->last : b->last,
                            .a = ordered ? a->node_class : b->node_class,
                            .b = ordered ? b->node_class : a->node_class };
}

ct_node_fault ct_node_runs_close(ct_machine *m, int64_t n_node)
{
    ct_node_run *run = m->node_run;
    int64_t next = 0;
    int n = 0;

    if (m->n_node_run > 0) qsort(run, (size_t)m->n_node_run, sizeof(*run), by_first);
    for (int i = 0; i < m->n_node_run; ++i) {
        if (run[i].first < next) return twice(&run[n - 1], &run[i]);
        if (run[i].first > next)
            return (
                ct_node_fault){ .kind = CT_NODES_MISSING, .first = next, .last = run[i].first - 1 };
        next = run[i].last + 1;
        if ((n > 0) && (run[n - 1].node_class == run[i].node_class))
            run[n - 1].last = run[i].last;
        else
            run[n++] = run[i];
    }
    m->n_node_run = n;
    if (next < n_node)
        return (ct_node_fault){ .kind = CT_NODES_MISSING, .first = next, .last = n_node - 1 };
    return (ct_node_fault){ .kind = CT_NODES_GOOD };
}

int ct_machine_node_class(const ct_machine *m, int64_t node)
{
    int low = 0, high = m->n_node_run - 1;

    if (m->n_node_run == 0) return (m->n_node_class == 1) ? 0 : -1;
    while (low < high) {
        int middle = (low + high) / 2;

        if (m->node_run[middle].last < node)
            low = middle + 1;
        else
            high = middle;
    }
    return m->node_run[low].node_class;
}

/* ---- lists */

static bool read_number(const char **at_p, int64_t *number_p)
{
    char *end = NULL;

    if (!isdigit((unsigned char)**at_p)) return false;
    errno = 0;
    *number_p = strtoll(*at_p, &end, 10);
    *at_p = end;
    return errno == 0;
}

static void skip_spaces(const char **at_p)
{
    while (**at_p == ' ') *at_p += 1;
}

bool ct_node_numbers_next(const char **list_p, int64_t *first_p, int64_t *last_p)
{
    const char *at = *list_p;

    skip_spaces(&at);
    if (!read_number(&at, first_p)) return false;
    *last_p = *first_p;
    if (*at == '-') {
        at += 1;
        if (!read_number(&at, last_p)) return false;
    }
    skip_spaces(&at);
    if ((*at != ',') && (*at != '\0')) return false;
    if ((*at == ',') && (at[1] == '\0')) return false;
    *list_p = (*at == ',') ? at + 1 : at;
    return true;
}

static void list_names(const ct_machine *m, int node_class, ct_text *out)
{
    char **name = calloc((size_t)m->names->n_node + 1, sizeof(*name));
    int n = 0;

    if (name == NULL) {
        out->failed = true;
        return;
    }
    for (int i = 0; i < m->names->n_node; ++i) {
        if (ct_machine_node_class(m, i) == node_class) name[n++] = m->names->node[i];
    }
    ct_hostlist_add(out, name, n);
    free(name);
}

void ct_machine_list_nodes(const ct_machine *m, int node_class, ct_text *out)
{
    const char *comma = "";

    if (m->names != NULL) {
        list_names(m, node_class, out);
        return;
    }
    for (int i = 0; i < m->n_node_run; ++i) {
        const ct_node_run *run = &m->node_run[i];

        if (run->node_class != node_class) continue;
        ct_text_add(out, "%s%lld", comma, (long long)run->first);
        if (run->last > run->first) ct_text_add(out, "-%lld", (long long)run->last);
        comma = ",";
    }
}

/* ---- classes by speed */

/* How far the nodes of a class may differ. */
static const double alike = 1.1;

static int by_speed(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The classes of speeds in rising order: the slowest of each, and its mean. */
static int group(const double *sorted, int64_t n_node, double *least, double *mean)
{
    int n = 0;
    int64_t members = 0;

    for (int64_t i = 0; i < n_node; ++i) {
        bool joins = (n > 0) && (sorted[i] <= alike * least[n - 1]);

        if (!joins && (n < CT_MAX_NODE_CLASS)) {
            least[n] = sorted[i];
            mean[n] = 0;
            n += 1;
            members = 0;
        }
        members += 1;
        mean[n - 1] += (sorted[i] - mean[n - 1]) / (double)members;
    }
    return n;
}

ct_status ct_machine_class_speeds(ct_machine *m, const double *speed, int64_t n_node)
{
    double least[CT_MAX_NODE_CLASS], mean[CT_MAX_NODE_CLASS];
    double *sorted = malloc(sizeof(*sorted) * (size_t)n_node);
    ct_status status = CT_OK;
    int n;

    if (sorted == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld nodes", (long long)n_node);
    memcpy(sorted, speed, sizeof(*sorted) * (size_t)n_node);
    qsort(sorted, (size_t)n_node, sizeof(*sorted), by_speed);
    n = group(sorted, n_node, least, mean);
    free(sorted);
    free(m->node_run);
    m->node_run = NULL;
    m->n_node_run = 0;
    m->n_node_class = n;
    for (int k = 0; k < n; ++k) {
        m->node_class[k] =
            (ct_node_class){ .speed = mean[k] / mean[0], .gpu_usable = 1, .memory_usable = 1 };
        snprintf(m->node_class[k].name, sizeof(m->node_class[k].name), (n > 1) ? "speed%d" : "all",
                 k + 1);
    }
    for (int64_t i = 0; (n > 1) && (status == CT_OK) && (i < n_node); ++i) {
        int k = n - 1;

        while ((k > 0) && (speed[i] < least[k])) k -= 1;
        status = ct_node_runs_add(m, i, i, k);
    }
    return status;
}

/* ---- a job's nodes */

ct_status ct_topo_class_nodes(ct_topo *topo, const ct_machine *machine, const int64_t *node)
{
    if (machine->n_node_class == 0) return CT_OK;
    topo->node_class = calloc((size_t)topo->n_node, sizeof(*topo->node_class));
    if (topo->node_class == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a topology of %d ranks", topo->n_rank);
    for (int r = 0; r < topo->n_rank; ++r)
        topo->node_class[topo->node[r]] = ct_machine_node_class(machine, node[r]);
    return CT_OK;
}

const ct_node_class *ct_topo_class(const ct_topo *topo, int node)
{
    return (topo->node_class != NULL) ? &topo->machine.node_class[topo->node_class[node]] : NULL;
}

double ct_topo_speed(const ct_topo *topo, int node)
{
    const ct_node_class *c = ct_topo_class(topo, node);

    return (c != NULL) ? c->speed : 1;
}

int ct_topo_slowest_node(const ct_topo *topo)
{
    int slowest = 0;

    for (int k = 1; (topo->node_class != NULL) && (k < topo->n_node); ++k) {
        if (ct_topo_speed(topo, k) < ct_topo_speed(topo, slowest)) slowest = k;
    }
    return slowest;
}

int ct_topo_smallest_node(const ct_topo *topo)
{
    int smallest = -1;

    for (int k = 0; (topo->node_class != NULL) && (k < topo->n_node); ++k) {
        double memory = ct_topo_class(topo, k)->memory;

        if (memory == 0) continue;
        if ((smallest < 0) || (memory < ct_topo_class(topo, smallest)->memory)) smallest = k;
    }
    return smallest;
}

/* ---- links */

/* The node around a vertex of level l, which is not above the node; of level -1: a rank. */
static int node_around(const ct_topo *t, int l, int vertex)
{
    if (l < 0) return t->node[vertex];
    while (l < t->machine.node_level) vertex = t->parent[l++][vertex];
    return vertex;
}

/* A node's bandwidth inside over that of the levels. */
static double inside(const ct_topo *t, int node)
{
    const ct_node_class *c = ct_topo_class(t, node);

    if ((c == NULL) || (c->inside == 0)) return 1;
    return c->inside / t->machine.level[t->machine.node_level].bandwidth;
}

double ct_topo_bandwidth(const ct_topo *topo, int l, int vertex)
{
    double bandwidth = topo->machine.level[l].bandwidth;

    if ((topo->node_class == NULL) || (l > topo->machine.node_level)) return bandwidth;
    return bandwidth * inside(topo, node_around(topo, l, vertex));
}

double ct_topo_bus(const ct_topo *topo, int l, int vertex)
{
    double bus = topo->machine.level[l].bus;

    if ((topo->node_class == NULL) || (l > topo->machine.node_level)) return bus;
    return bus * inside(topo, node_around(topo, l, vertex));
}

double ct_topo_uplink(const ct_topo *topo, int l, int member)
{
    double uplink = topo->machine.level[l].uplink;
    int outside = topo->machine.node_level + 1, node;

    if ((topo->node_class == NULL) || (l > outside)) return uplink;
    node = node_around(topo, l - 1, member);
    if (l < outside) return uplink * inside(topo, node);
    return (ct_topo_class(topo, node)->inject > 0) ? ct_topo_class(topo, node)->inject : uplink;
}

double ct_topo_least_inside(const ct_topo *topo)
{
    double least = 0;

    for (int k = 0; (topo->node_class != NULL) && (k < topo->n_node); ++k) {
        if (topo->node_size[k] == 1) continue;
        if ((least == 0) || (inside(topo, k) < least)) least = inside(topo, k);
    }
    return (least > 0) ? least : 1;
}

double ct_topo_least_inject(const ct_topo *topo)
{
    int outside = topo->machine.node_level + 1;
    double least = ct_topo_uplink(topo, outside, 0);

    for (int k = 1; (topo->node_class != NULL) && (k < topo->n_node); ++k) {
        double inject = ct_topo_uplink(topo, outside, k);

        if (inject < least) least = inject;
    }
    return least;
}

ct_codec_speed ct_topo_codec_speed(const ct_topo *topo)
{
    ct_codec_speed speed = ct_machine_codec_speed(&topo->machine);

    return ct_codec_speed_at(speed, ct_topo_speed(topo, ct_topo_slowest_node(topo)));
}
