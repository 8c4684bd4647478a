/* What SLURM tells a process about its place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/discover.h"

static void copy_variable(const char *variable, char *text, size_t size)
{
    const char *value = getenv(variable);

    snprintf(text, size, "%s", (value != NULL) ? value : "");
}

void ct_rank_name_fill(ct_rank_name *name)
{
    memset(name, 0, sizeof(*name));
    copy_variable("SLURMD_NODENAME", name->node, sizeof(name->node));
    copy_variable("SLURM_TOPOLOGY_ADDR", name->address, sizeof(name->address));
    copy_variable("SLURM_TOPOLOGY_ADDR_PATTERN", name->pattern, sizeof(name->pattern));
    if ((name->node[0] == '\0') && (gethostname(name->node, sizeof(name->node) - 1) != 0))
        snprintf(name->node, sizeof(name->node), "unknown");
}

const char *ct_slurm_node_list(void)
{
    static const char *const variable[] = { "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST",
                                            "SLURM_NODELIST" };

    for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); ++i) {
        const char *value = getenv(variable[i]);

        if ((value != NULL) && (value[0] != '\0')) return value;
    }
    return "";
}
