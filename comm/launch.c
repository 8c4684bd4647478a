/* The launch check. */
#include "comm/comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A launcher's variable as a number; *found_p false where it is not set. */
static ct_status read_count(const char *name, bool *found_p, long *value_p)
{
    const char *text = getenv(name);
    char *end = NULL;

    *found_p = (text != NULL);
    if (text == NULL) return CT_OK;
    errno = 0;
    *value_p = strtol(text, &end, 10);
    if ((end == text) || (*end != '\0') || (errno != 0) || (*value_p < 1))
        return CT_FAIL(CT_ERR_LAUNCH, "%s=%s in the environment is no number of ranks", name, text);
    return CT_OK;
}

ct_status ct_comm_check_launch(int world_size)
{
    static const char *const variable[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                            "SLURM_STEP_NUM_TASKS" };

    for (size_t i = 0; i < sizeof(variable) / sizeof(variable[0]); ++i) {
        bool found = false;
        long count = 0;

        CT_TRY(read_count(variable[i], &found, &count));
        if (!found) continue;
        if (count != world_size)
            return CT_FAIL(CT_ERR_LAUNCH,
                           "the launcher started %ld ranks (%s), but MPI sees %d: the launcher and "
                           "the MPI library of this program do not fit together; with srun try "
                           "--mpi=pmix or --mpi=pmi2 (srun --mpi=list shows what there is)",
                           count, variable[i], world_size);
        return CT_OK;
    }
    return CT_OK;
}

#ifdef OPEN_MPI /* from its mpi.h; other MPIs may read Slurm's own variables */
#define NEEDS_A_WORD true
#else
#define NEEDS_A_WORD false
#endif

ct_status ct_comm_check_launcher(void)
{
    static const char *const word[] = { "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_FD" };
    const char *task;
    bool found = false;
    long count = 0;

    if (!NEEDS_A_WORD) return CT_OK;
    for (size_t i = 0; i < sizeof(word) / sizeof(word[0]); i++) {
        if (getenv(word[i]) != NULL) return CT_OK;
    }
    CT_TRY(read_count("SLURM_STEP_NUM_TASKS", &found, &count));
    if (!found || (count <= 1)) return CT_OK;
    task = getenv("SLURM_PROCID"); /* every task finds this: the first one says it */
    if ((task != NULL) && (strcmp(task, "0") != 0)) return CT_ERR_LAUNCH;
    return CT_FAIL(
        CT_ERR_LAUNCH,
        "srun started %ld ranks (SLURM_STEP_NUM_TASKS), but told MPI nothing of them, so "
        "that each would run alone, as 1 of 1: try srun --mpi=pmix (srun --mpi=list "
        "shows what there is)",
        count);
}
