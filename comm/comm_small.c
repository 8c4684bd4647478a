/* The small blocking collectives, and the launch check. */
#include "comm/comm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MPI_CHUNK = 1 << 30 /* bytes of one MPI call, well below 2^31 */ };

MPI_Datatype ct_comm_wire(ct_dtype dtype)
{
    switch (dtype) {
    case CT_F32:
        return MPI_FLOAT;
    case CT_BF16:
    case CT_F16:
        return MPI_UINT16_T;
    case CT_I32:
        return MPI_INT32_T;
    case CT_U8:
        return MPI_UINT8_T;
    case CT_I64:
        return MPI_INT64_T;
    }
    return MPI_BYTE;
}

/* Waits for a collective of our own; what else is under way moves meanwhile, if the communicator
 * has something that does (comm.h). Not the blocking calls of MPI: those would leave it standing.
 */
static ct_status complete(ct_comm *c, MPI_Request *request)
{
    int idle = 0;

    for (;;) {
        MPI_Request *pending[CT_COMM_MAX_PENDING] = { request };
        int rc = MPI_SUCCESS, done = 0, n = 1;
        ct_status status = CT_OK;

        ct_comm_lock(c);
        rc = ct_comm_test(request, &done);
        if ((rc == MPI_SUCCESS) && !done && (c->mover.move != NULL)) {
            status = c->mover.move(c->mover.ctx);
            n += c->mover.pending(c->mover.ctx, pending + 1, CT_COMM_MAX_PENDING - 1);
        }
        ct_comm_unlock(c);
        CT_TRY_MPI(rc);
        if (done) return CT_OK;
        CT_TRY(status);
        idle += 1;
        CT_TRY(ct_comm_wait_any(c, pending, n, &idle));
    }
}

ct_status ct_comm_sum(ct_comm *c, double *v, int n)
{
    MPI_Request request = MPI_REQUEST_NULL;
    double *all = NULL;
    ct_status status = CT_OK;
    int rc = MPI_SUCCESS;

    if ((c->size == 1) || (n == 0)) return CT_OK;
    all = malloc(sizeof(*all) * (size_t)n * (size_t)c->size);
    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d x %d numbers", c->size, n);
    ct_comm_lock(c);
    rc = MPI_Iallgather(v, n, MPI_DOUBLE, all, n, MPI_DOUBLE, c->world, &request);
    ct_comm_unlock(c);
    status = (rc == MPI_SUCCESS) ? complete(c, &request) : CT_OK;
    if ((rc == MPI_SUCCESS) && (status == CT_OK)) {
        for (int i = 0; i < n; ++i) {
            double sum = all[i];

            for (int r = 1; r < c->size; ++r) sum += all[(size_t)r * (size_t)n + (size_t)i];
            v[i] = sum;
        }
    }
    free(all);
    CT_TRY_MPI(rc);
    return status;
}

ct_status ct_comm_max(ct_comm *c, int64_t *v, int n)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    if ((c->size == 1) || (n == 0)) return CT_OK;
    ct_comm_lock(c);
    rc = MPI_Iallreduce(MPI_IN_PLACE, v, n, MPI_INT64_T, MPI_MAX, c->world, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    return complete(c, &request);
}

ct_status ct_comm_broadcast(ct_comm *c, void *data, size_t bytes)
{
    char *at = data;

    while ((bytes > 0) && (c->size > 1)) {
        size_t n = (bytes < MPI_CHUNK) ? bytes : MPI_CHUNK;
        MPI_Request request = MPI_REQUEST_NULL;
        int rc = MPI_SUCCESS;

        ct_comm_lock(c);
        rc = MPI_Ibcast(at, (int)n, MPI_BYTE, 0, c->world, &request);
        ct_comm_unlock(c);
        CT_TRY_MPI(rc);
        CT_TRY(complete(c, &request));
        at += n;
        bytes -= n;
    }
    return CT_OK;
}

ct_status ct_comm_barrier(ct_comm *c)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int rc = MPI_SUCCESS;

    if (c->size == 1) return CT_OK;
    ct_comm_lock(c);
    rc = MPI_Ibarrier(c->world, &request);
    ct_comm_unlock(c);
    CT_TRY_MPI(rc);
    return complete(c, &request);
}

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
