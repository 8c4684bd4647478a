#include "runtime/call.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/data_group.h"
#include "runtime/config/features.h"
#include "runtime/blas_core.h"

static ct_status share_config(ct_call *call, ct_config *c)
{
    ct_job *job = call->job;
    void *data = NULL;
    size_t size = 0;
    ct_status status;

    if (job->rank == 0) CT_TRY(ct_config_pack(c, &data, &size));
    CT_TRY(ct_job_broadcast(job, &data, &size));
    status = (job->rank == 0) ? CT_OK : ct_config_unpack(c, data, size);
    free(data);
    return status;
}

ct_status ct_call_setup(ct_call *call, ct_phase phase, ct_config *c)
{
    ct_job *job = call->job;
    ct_status status = CT_OK;
    int n_host = 0, leader;

    if (job->rank == 0) status = ct_config_read(call->options, phase, c);
    CT_TRY(ct_job_share(job, status));
    CT_TRY(share_config(call, c));
    MPI_Comm_rank(job->node, &leader);
    leader = (leader == 0);
    MPI_Allreduce(&leader, &n_host, 1, MPI_INT, MPI_SUM, job->agree);
    CT_INFO("cortado %s: %d rank%s on %d host%s, rank 0 on %s", ct_build_version(), job->size,
            (job->size > 1) ? "s" : "", n_host, (n_host > 1) ? "s" : "", job->host);
    CT_TRY(ct_job_threads(job, (int)ct_options_count(call->options, "threads", 0)));
    ct_config_log(c);
    return CT_OK;
}

/* Two ranks of a node on one GPU are an oversight, unless told. Collective over the node. */
static ct_status check_own_gpu(const ct_call *call, int gpu)
{
    ct_job *job = call->job;
    ct_device_place mine, *all;
    int n, rank;
    ct_status status = CT_OK;

    if ((job == NULL) || (job->node == MPI_COMM_NULL)) return CT_OK;
    MPI_Comm_size(job->node, &n);
    MPI_Comm_rank(job->node, &rank);
    CT_TRY(ct_device_look("cuda", gpu, &mine));
    all = calloc((size_t)n, sizeof(*all));
    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the GPUs of %d ranks", n);
    MPI_Allgather(&mine, (int)sizeof(mine), MPI_BYTE, all, (int)sizeof(mine), MPI_BYTE, job->node);
    for (int r = 0; (r < n) && (status == CT_OK); r++) {
        if ((r == rank) || (strcmp(all[r].id, mine.id) != 0)) continue;
        job->shares_gpu = true;
        if (ct_options_flag(call->options, "share_gpu")) continue;
        status =
            CT_FAIL(CT_ERR_CONFIG,
                    "ranks %d and %d of host %s would use the same GPU, %s (%s): give each its "
                    "own, or say --share_gpu",
                    (r < rank) ? r : rank, (r < rank) ? rank : r, job->host, mine.id, mine.name);
    }
    free(all);
    return status;
}

ct_status ct_call_device(const ct_call *call, const ct_config *c, const ct_device **dev_p)
{
    const Ct__SolverParameter *s = c->solver;
    bool gpu = (s->solver_mode == CT__SOLVER_PARAMETER__SOLVER_MODE__GPU);
    int local = 0, n_local = 1, n = ct_device_count("cuda"), which;

    if ((call->job != NULL) && (call->job->node != MPI_COMM_NULL)) {
        MPI_Comm_rank(call->job->node, &local);
        MPI_Comm_size(call->job->node, &n_local);
    }
    if (!gpu) return ct_device_open("cpu", 0, dev_p);
    /* several ranks on a node: one device each; a single one takes the one it is told */
    which = (n_local > 1) ? local % ((n > 0) ? n : 1) : s->device_id;
    if ((n > 0) && ((which < 0) || (which >= n)))
        return CT_FAIL(CT_ERR_CONFIG, "device_id %d, but this process sees %d GPU%s, from 0 on",
                       which, n, (n > 1) ? "s" : "");
    CT_TRY(ct_device_open("cuda", which, dev_p));
    return check_own_gpu(call, which);
}

ct_status ct_call_connect(ct_call *call, const ct_config *c)
{
    /* --stage of the other verbs is Caffe's, of the net's state */
    const char *stage = ct_options_text(
        call->options, (strcmp(call->argv[0], "train") == 0) ? "stage" : "stage_dir");

    CT_TRY(ct_job_connect(call->job, c->solver->comm->topology));
    return ct_data_group_open(call->job->comm, c->solver->node_reader, stage, &call->job->data);
}

char *openblas_get_config(void);

static void add_member(ct_text *t, const char *name, const char *value)
{
    ct_text_add(t, "%s\"%s\":", (t->length > 0) ? "," : "", name);
    if (value == NULL) {
        ct_text_add(t, "null");
    } else {
        ct_text_add_json(t, value);
    }
}

static void add_libraries(ct_text *t)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING], hdf5[32], blas[256];
    unsigned major = 0, minor = 0, release = 0;
    int size;

    MPI_Get_library_version(mpi, &size);
    mpi[strcspn(mpi, "\r\n")] = '\0';
    H5get_libversion(&major, &minor, &release);
    snprintf(hdf5, sizeof(hdf5), "%u.%u.%u", major, minor, release);
    snprintf(blas, sizeof(blas), "%s, kernels %s", openblas_get_config(), ct_blas_core_name());
    add_member(t, "mpi", mpi);
    add_member(t, "hdf5", hdf5);
    add_member(t, "blas", blas);
}

static void add_job(const ct_call *call, ct_text *t)
{
    const ct_job *job = call->job;
    const ct_topo *topo = (job->comm != NULL) ? job->comm->topo : NULL;

    add_member(t, "host", job->host);
    ct_text_add(t, ",\"ranks\":%d,\"threads\":%d", job->size, job->threads.n);
    add_member(t, "threads_from", job->threads.from);
    add_member(t, "cores", job->threads.cores);
    if (topo != NULL) {
        ct_text_add(t, ",\"topology\":{\"nodes\":%d", topo->n_node);
        add_member(t, "source", topo->source);
        ct_text_add(t, "}");
    }
    add_member(t, "slurm_job_id", getenv("SLURM_JOB_ID"));
}

static void add_config(const ct_config *c, ct_text *t)
{
    ct_text values = { 0 }, origins = { 0 };

    add_member(t, c->is_model ? "model" : "solver", c->file);
    add_member(t, "net", c->net->name);
    ct_config_json(c, &values, &origins);
    if (!values.failed && !origins.failed) {
        ct_text_add(t, ",\"config\":{%s},\"origin\":{%s}", (values.text != NULL) ? values.text : "",
                    (origins.text != NULL) ? origins.text : "");
    }
    ct_text_destroy(&values);
    ct_text_destroy(&origins);
}

void ct_call_provenance(const ct_call *call, const ct_config *c, ct_text *out)
{
    time_t now = time(NULL);
    char when[32] = "";
    struct tm tm;

    if (gmtime_r(&now, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    add_member(out, "version", ct_build_version());
    add_member(out, "compiler", ct_build_compiler());
    add_member(out, "cflags", ct_build_flags());
    add_libraries(out);
    ct_text_add(out, ",\"command\":[");
    for (int i = 0; i < call->full_argc; i++) {
        ct_text_add(out, "%s", (i > 0) ? "," : "");
        ct_text_add_json(out, call->full_argv[i]);
    }
    ct_text_add(out, "]");
    add_member(out, "started", when);
    if (call->job != NULL) add_job(call, out);
    if (c != NULL) add_config(c, out);
}
