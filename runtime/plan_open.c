#include "runtime/plan_open.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/simd.h"
#include "framework/snapshot/snapshot.h"
#include "runtime/config/features.h"

void ct_cpu_name(char *text, size_t size)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[512];

    snprintf(text, size, "unknown");
    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL)) {
        const char *value = strchr(line, ':');

        if ((strncmp(line, "model name", 10) != 0) || (value == NULL)) continue;
        snprintf(text, size, "%s", value + 2);
        text[strcspn(text, "\n")] = '\0';
        break;
    }
    if (f != NULL) fclose(f);
}

static ct_status share(void *ctx, void *data, size_t bytes)
{
    ct_job *job = ctx;

    if (MPI_Bcast(data, (int)bytes, MPI_BYTE, 0, job->agree) != MPI_SUCCESS)
        return CT_FAIL(CT_ERR_COMM, "the plan's engine could not be shared");
    return CT_OK;
}

static ct_status least(void *ctx, int *v, int n)
{
    ct_job *job = ctx;

    if (MPI_Allreduce(MPI_IN_PLACE, v, n, MPI_INT, MPI_MIN, job->agree) != MPI_SUCCESS)
        return CT_FAIL(CT_ERR_COMM, "the plan's engines could not be agreed");
    return CT_OK;
}

/* With a GPU its name stands in place of the processor's: that of the first, as nodes have equal
 * ones. */
static void fill_machine(const ct_job *job, bool gpu, ct_engine_plan_machine *m)
{
    ct_device_place place;

    memset(m, 0, sizeof(*m));
    ct_cpu_name(m->cpu, sizeof(m->cpu));
    snprintf(m->simd, sizeof(m->simd), "%s", ct_simd_name(ct_simd_pick()));
    if (gpu && (ct_device_count("cuda") > 0) && (ct_device_look("cuda", 0, &place) == CT_OK)) {
        snprintf(m->cpu, sizeof(m->cpu), "%.*s", (int)sizeof(m->cpu) - 1, place.name);
        snprintf(m->simd, sizeof(m->simd), "cuda");
    }
    snprintf(m->version, sizeof(m->version), "%s", ct_build_version());
    m->threads = job->threads.n;
}

static bool timing_allowed(const ct_call *call, const ct_config *c)
{
    return (ct_options_text(call->options, "plan") != NULL) && !c->solver->deterministic;
}

/* On rank 0: the rows there are. */
static ct_status read_rows(ct_call *call, const ct_config *c, const char *snapshot,
                           const char *snapshot_rows, ct_engine_plan *plan)
{
    const char *file = ct_options_text(call->options, "plan");

    if (snapshot_rows != NULL)
        CT_TRY(ct_engine_plan_parse(plan, snapshot, snapshot_rows, strlen(snapshot_rows)));
    if (file == NULL) return CT_OK;
    if (timing_allowed(call, c)) {
        CT_TRY(ct_file_check_writable(file));
        if (access(file, F_OK) != 0) return CT_OK;
    }
    return ct_engine_plan_read(plan, file);
}

ct_status ct_call_plan_open(ct_call *call, const ct_config *c, const char *snapshot, bool survey,
                            ct_engine_plan **plan_p)
{
    ct_job *job = call->job;
    ct_engine_plan_options o = {
        .rank = job->rank, .n_rank = job->size, .share = share, .least = least, .share_ctx = job
    };
    bool gpu = (c->solver->solver_mode == CT__SOLVER_PARAMETER__SOLVER_MODE__GPU);
    int wanted = survey || (ct_options_text(call->options, "plan") != NULL);
    char *rows = NULL;
    ct_engine_plan *plan = NULL;
    ct_status status = CT_OK, shared;

    *plan_p = NULL;
    if ((job->rank == 0) && (snapshot != NULL)) status = ct_snapshot_plan(snapshot, &rows);
    wanted = wanted || (rows != NULL);
    if (MPI_Bcast(&wanted, 1, MPI_INT, 0, job->agree) != MPI_SUCCESS)
        status = CT_FAIL(CT_ERR_COMM, "whether there is a plan could not be shared");
    fill_machine(job, gpu, &o.machine);
    if (timing_allowed(call, c)) o.mode = CT_ENGINE_PLAN_TIME;
    if (survey && (ct_options_text(call->options, "plan") == NULL)) o.mode = CT_ENGINE_PLAN_SURVEY;
    if ((status == CT_OK) && wanted) status = ct_engine_plan_create(&o, &plan);
    if ((status == CT_OK) && (plan != NULL) && (job->rank == 0))
        status = read_rows(call, c, snapshot, rows, plan);
    free(rows);
    shared = ct_job_share(job, status);
    if (status == CT_OK) status = shared;
    if (status != CT_OK) {
        ct_engine_plan_destroy(plan);
        return status;
    }
    *plan_p = plan;
    return CT_OK;
}

ct_status ct_call_plan_close(ct_call *call, const ct_config *c, ct_engine_plan *plan)
{
    const char *file = ct_options_text(call->options, "plan");
    ct_status status = CT_OK;

    if (plan == NULL) return CT_OK;
    if (call->job->rank == 0) {
        ct_engine_plan_log(plan);
        if (timing_allowed(call, c)) status = ct_engine_plan_write(plan, file);
    }
    return ct_job_share(call->job, status);
}
