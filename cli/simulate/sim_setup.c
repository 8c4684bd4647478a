#include "cli/simulate/sim_setup.h"

#include <ctype.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

const ct_option ct_sim_option_table[] = {
    { "machine", CT_OPTION_TEXT, "*", "NAME|FILE|SPEC", "the machine: docs/topology.md" },
    { "nodes", CT_OPTION_COUNT, "*", "N", "nodes in use" },
    { "ranks_per_node", CT_OPTION_COUNT, "*", "N", "ranks on a node (1)" },
    { "placement", CT_OPTION_TEXT, "*", "block|cyclic|random:SEED", "of the ranks (block)" },
    { "order", CT_OPTION_CHOICE, "*", "tree|rank",
      "collectives join ranks that are near (tree), or take them as they are numbered" },
    { "profile", CT_OPTION_TEXT, "*", "FILE", "of the net: cortado time --json" },
    { "images_per_s", CT_OPTION_TEXT, "*", "S", "of one rank alone, instead of the profile's" },
    { "batch", CT_OPTION_COUNT, "*", "N", "of one rank, instead of the profile's" },
    { "iterations", CT_OPTION_COUNT, "*", "N", "that count (2)" },
    { "warmup", CT_OPTION_COUNT, "*", "N", "iterations before them (1); 0 with --overlap=off" },
    { "jitter_seed", CT_OPTION_COUNT, "*", "SEED",
      "each rank's steps vary as the profile's samples do; without it they do not" },
    { "overlap", CT_OPTION_CHOICE, "*", "off|backward|both", "how far communication hides (both)" },
    { "progress", CT_OPTION_CHOICE, "*", "thread|poll",
      "communication moves as soon as it can, or at the profile's poll points (thread)" },
    { "set", CT_OPTION_LIST, "*", "FIELD=VALUE", "a solver field, such as comm.bucket_mb" },
    { "compression", CT_OPTION_TEXT, "*", "TYPE[:FIELD=VALUE,...]", "as in cortado train" },
    { "bench", CT_OPTION_TEXT, "*", "BYTES[,BYTES]", "collectives alone, instead of training" },
    { "algorithm", CT_OPTION_TEXT, "*", "NAME|all", "of the bench (all)" },
    { "check", CT_OPTION_FLAG, "*", NULL, "the sums of the bench (needs a build with SIM_REAL=1)" },
    { "json", CT_OPTION_TEXT, "*", "FILE", "where the result goes; standard output without it" },
};

const int ct_sim_option_table_n = sizeof(ct_sim_option_table) / sizeof(ct_sim_option_table[0]);

const char *ct_sim_placement(const ct_options *o)
{
    const char *text = ct_options_text(o, "placement");

    return (text != NULL) ? text : "block";
}

static ct_status count_ranks(const ct_options *o, int n_rank, int64_t *per_node_p, int64_t *n_p)
{
    int64_t nodes = ct_options_count(o, "nodes", 0);

    *per_node_p = ct_options_count(o, "ranks_per_node", 1);
    *n_p = (n_rank > 0) ? n_rank : nodes * *per_node_p;
    if ((n_rank == 0) && (nodes < 1))
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=N is needed: how many nodes, 1 or more");
    if ((*per_node_p < 1) || (nodes > INT_MAX) || (*per_node_p > INT_MAX) || (*n_p > INT_MAX))
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=%lld --ranks_per_node=%lld", (long long)nodes,
                       (long long)*per_node_p);
    if ((nodes > 0) && (nodes * *per_node_p != *n_p))
        return CT_FAIL(CT_ERR_CONFIG, "--nodes=%lld and --ranks_per_node=%lld, but %d ranks run",
                       (long long)nodes, (long long)*per_node_p, n_rank);
    return CT_OK;
}

ct_status ct_sim_place(const ct_options *o, int n_rank, ct_topo **topo_p)
{
    const char *order = ct_options_text(o, "order"), *name = ct_options_text(o, "machine");
    ct_machine *machine = NULL;
    int64_t per_node = 1, n = 0;
    ct_status status = CT_OK;

    if (name == NULL) return CT_FAIL(CT_ERR_CONFIG, "--machine=NAME is missing");
    CT_TRY(count_ranks(o, n_rank, &per_node, &n));
    if (isdigit((unsigned char)name[0]) && (access(name, F_OK) != 0))
        CT_TRY(ct_machine_from_spec(name, &machine));
    else
        CT_TRY(ct_machine_read(name, &machine));
    status = ct_topo_place(machine, (int)n, (int)per_node, ct_sim_placement(o), topo_p);
    ct_machine_destroy(machine);
    CT_TRY(status);
    for (int r = 0; (order != NULL) && (strcmp(order, "rank") == 0) && (r < n); ++r)
        (*topo_p)->order[r] = r;
    return CT_OK;
}
