/* The launch check. */
#include "comm/core/comm.h"

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

/* Open MPI sends what is larger than its eager limit over TCP only once both sides have spoken, and
 * then whole: when two ranks exchange data, what one says queues behind what the other sends, and
 * the connection works in one direction at a time. Messages below the limit keep both busy. The
 * usual limit is 64 KB; segments of our collectives are 256 KB to 1 MB where they matter. */
void ct_comm_prepare_launch(void)
{
    static const char *const name[] = { "OMPI_MCA_btl_tcp_eager_limit",
                                        "OMPI_MCA_btl_tcp_rndv_eager_limit",
                                        "OMPI_MCA_btl_tcp_max_send_size" };

    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); ++i) {
        if (getenv(name[i]) != NULL) return; /* who sets one of them knows what they do */
    }
    for (size_t i = 0; i < sizeof(name) / sizeof(name[0]); ++i)
        (void)setenv(name[i], "1100000", 0); /* 1 MB and what MPI puts before it */
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
