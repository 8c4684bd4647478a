#include "framework/tools/tools.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "framework/tools/blas_core.h"
#include "framework/tools/features.h"

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
