#include "topology/topo.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ct_link link_intra = { .alpha_s = 1e-6, .beta_s = 1.0 / 6e9, .gamma_s = 1.0 / 10e9 };
static const ct_link link_inter = { .alpha_s = 2e-5, .beta_s = 1.0 / 1.2e9, .gamma_s = 1.0 / 10e9 };

void ct_topo_destroy(ct_topo *topo)
{
    if (topo == NULL) return;
    free(topo->node);
    free(topo->local_rank);
    free(topo->node_size);
    free(topo);
}

/* The node of rank r by host: that of the first earlier rank on the same host, else a new one. The
 * leaders are few, so only they are searched. */
static int node_of(const uint64_t *host, const int *leader, int n_node, uint64_t id)
{
    for (int k = 0; k < n_node; ++k) {
        if (host[leader[k]] == id) return k;
    }
    return n_node;
}

static ct_status number_nodes(ct_topo *t, const uint64_t *host)
{
    int *leader = malloc(sizeof(*leader) * (size_t)t->n_rank);

    if (leader == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", t->n_rank);
    for (int r = 0; r < t->n_rank; ++r) {
        /* neighbours in rank order mostly share a host */
        int k = ((r > 0) && (host[r] == host[r - 1])) ? t->node[r - 1]
                                                      : node_of(host, leader, t->n_node, host[r]);

        if (k == t->n_node) leader[t->n_node++] = r;
        t->node[r] = k;
        t->local_rank[r] = t->node_size[k]++;
    }
    free(leader);
    return CT_OK;
}

ct_status ct_topo_from_hosts(const uint64_t *host, int n_rank, const char *source, ct_topo **topo_p)
{
    ct_topo *t = NULL;
    ct_status status = CT_OK;

    if (n_rank < 1) return CT_FAIL(CT_ERR_ARG, "a topology of %d ranks", n_rank);
    t = calloc(1, sizeof(*t));
    if (t == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a topology");
    t->n_rank = n_rank;
    t->intra = link_intra;
    t->inter = link_inter;
    snprintf(t->source, sizeof(t->source), "%s", source);
    t->node = calloc((size_t)n_rank, sizeof(*t->node));
    t->local_rank = calloc((size_t)n_rank, sizeof(*t->local_rank));
    t->node_size = calloc((size_t)n_rank, sizeof(*t->node_size));
    if ((t->node == NULL) || (t->local_rank == NULL) || (t->node_size == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a topology of %d ranks", n_rank);
        goto err_destroy;
    }
    CT_TRY_GOTO(status, err_destroy, number_nodes(t, host));
    *topo_p = t;
    return CT_OK;

err_destroy:
    ct_topo_destroy(t);
    return status;
}

/* "4x8": both numbers at least 1, nothing around them. */
static bool parse_grid(const char *spec, long *n_node, long *per_node)
{
    char *end = NULL;

    if (!isdigit((unsigned char)spec[0])) return false;
    *n_node = strtol(spec, &end, 10);
    if ((*end != 'x') || !isdigit((unsigned char)end[1])) return false;
    *per_node = strtol(end + 1, &end, 10);
    return (*end == '\0') && (*n_node >= 1) && (*per_node >= 1);
}

static ct_status hosts_from_grid(const char *spec, int n_rank, uint64_t *host)
{
    long n_node = 0, per_node = 0;

    if (!parse_grid(spec, &n_node, &per_node))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": expected \"auto\" or NODESxRANKS, e.g. 2x4",
                       spec);
    if ((n_node > n_rank) || (per_node > n_rank) || (n_node * per_node != n_rank))
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": %ld nodes of %ld ranks, but %d ranks run",
                       spec, n_node, per_node, n_rank);
    for (int r = 0; r < n_rank; ++r) host[r] = (uint64_t)(r / per_node);
    return CT_OK;
}

static ct_status hosts_from_map(const char *spec, const char *map, int n_rank, uint64_t *host)
{
    if (strlen(map) != (size_t)n_rank)
        return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": names the nodes of %zu ranks, but %d run",
                       spec, strlen(map), n_rank);
    for (int r = 0; r < n_rank; ++r) {
        if (!isalnum((unsigned char)map[r]))
            return CT_FAIL(CT_ERR_CONFIG, "topology \"%s\": '%c' is no letter or digit", spec,
                           map[r]);
        host[r] = (uint64_t)(unsigned char)map[r];
    }
    return CT_OK;
}

ct_status ct_topo_from_string(const char *spec, int n_rank, ct_topo **topo_p)
{
    static const char map_prefix[] = "map:";
    char source[32];
    uint64_t *host = NULL;
    ct_status status = CT_OK;

    if (n_rank < 1) return CT_FAIL(CT_ERR_ARG, "a topology of %d ranks", n_rank);
    host = malloc(sizeof(*host) * (size_t)n_rank);
    if (host == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d ranks", n_rank);
    if (strncmp(spec, map_prefix, sizeof(map_prefix) - 1) == 0)
        status = hosts_from_map(spec, spec + sizeof(map_prefix) - 1, n_rank, host);
    else
        status = hosts_from_grid(spec, n_rank, host);
    if (status == CT_OK) {
        snprintf(source, sizeof(source), "synthetic %.20s", spec);
        status = ct_topo_from_hosts(host, n_rank, source, topo_p);
    }
    free(host);
    return status;
}

int ct_topo_min_node_size(const ct_topo *topo)
{
    int least = topo->node_size[0];

    for (int k = 1; k < topo->n_node; ++k) {
        if (topo->node_size[k] < least) least = topo->node_size[k];
    }
    return least;
}

int ct_topo_max_node_size(const ct_topo *topo)
{
    int most = topo->node_size[0];

    for (int k = 1; k < topo->n_node; ++k) {
        if (topo->node_size[k] > most) most = topo->node_size[k];
    }
    return most;
}
