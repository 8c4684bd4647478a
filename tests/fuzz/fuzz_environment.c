/* Values of the environment: twins of options, what launchers and SLURM say, what chooses kernels.
 * An input is lines NAME=VALUE of the names that are read. Any bytes end in options that are whole,
 * and in limits and names that make sense, or in an error. */
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "comm/core/comm.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/snapshot/owner.h"
#include "runtime/job.h"
#include "topology/discover.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_VALUES = 24, MOST_BYTES = 4096 };

/* Beside the twins; those of MPI are read by us before MPI starts. */
static bool is_read(const char *name)
{
    static const char *const start[] = { "CORTADO_", "SLURM", "OMPI_COMM_WORLD_SIZE", "PMI" };

    for (size_t i = 0; i < sizeof(start) / sizeof(start[0]); i++)
        if (strncmp(name, start[i], strlen(start[i])) == 0) return true;
    return false;
}

static int set_values(char *text, const char *set[MOST_VALUES])
{
    int n = 0;

    for (char *line = strtok(text, "\n"); (line != NULL) && (n < MOST_VALUES);
         line = strtok(NULL, "\n")) {
        char *equal = strchr(line, '=');

        if ((equal == NULL) || (equal == line)) continue;
        *equal = '\0';
        if (!is_read(line)) continue;
        if (setenv(line, equal + 1, 1) != 0) abort();
        set[n++] = line;
    }
    return n;
}

static void read_options(void)
{
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) {
        char *verb = (char *)(uintptr_t)v->name;
        char *const argv[] = { verb, NULL };
        ct_options *o = NULL;
        ct_status status = ct_options_parse(ct_option_table, ct_option_table_n, 1, argv, &o);

        if ((status != CT_OK) && (status != CT_ERR_CONFIG)) abort();
        if (status != CT_OK) continue;
        for (int i = 0; i < ct_option_table_n; i++) {
            const ct_option *op = &ct_option_table[i];

            if ((op->kind == CT_OPTION_COUNT) && (ct_options_count(o, op->name, 0) < 0)) abort();
            if ((op->kind == CT_OPTION_LIST) && (ct_options_n(o, op->name) < 0)) abort();
        }
        ct_options_destroy(o);
    }
}

static void read_launch(void)
{
    const char *who = NULL;
    ct_rank_name name;
    ct_owner_id id;
    double limit = ct_memory_limit_each(2, &who);

    if (!(limit > 0) || (who == NULL)) abort();
    (void)ct_comm_check_launch(2);
    (void)ct_comm_check_launcher();
    (void)ct_job_is_launched();
    (void)ct_simd_pick();
    (void)ct_slurm_node_list();
    ct_rank_name_fill(&name);
    if (memchr(name.node, '\0', sizeof(name.node)) == NULL) abort();
    ct_owner_self(&id);
    if (memchr(id.job, '\0', sizeof(id.job)) == NULL) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *set[MOST_VALUES];
    char text[MOST_BYTES + 1];
    int n;

    if (size > MOST_BYTES) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    n = set_values(text, set);
    read_options();
    read_launch();
    for (int i = 0; i < n; i++) unsetenv(set[i]);
    return 0;
}
