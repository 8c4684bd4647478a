#include "runtime/call.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "comm/collective/blocking.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/snapshot/snapshot.h"
#include "framework/solver/update_rule.h"
#include "runtime/compute.h"
#include "runtime/config/exchange_config.h"
#include "runtime/config/features.h"
#include "runtime/job.h"

ct_status ct_config_share(ct_job *job, ct_config *c)
{
    void *data = NULL;
    size_t size = 0;
    ct_status status;

    if (!ct_job_has_mpi(job)) return CT_OK;
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
    CT_TRY(ct_config_share(job, c));
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

static ct_status look_at_gpu(int gpu, double *bytes_p)
{
    ct_device_place place;

    CT_TRY(ct_device_look("cuda", gpu, &place));
    *bytes_p = place.memory;
    return CT_OK;
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
    if (call->job != NULL) CT_TRY(look_at_gpu(which, &call->job->gpu_bytes));
    return check_own_gpu(call, which);
}

ct_status ct_call_connect(ct_call *call, const ct_config *c)
{
    /* --stage of the other verbs is Caffe's, of the net's state */
    bool trains = (call->argc > 0) && (strcmp(call->argv[0], "train") == 0);
    const char *stage = ct_options_text(call->options, trains ? "stage" : "stage_dir");

    CT_TRY(ct_job_connect(call->job, c->solver->comm->topology, c->solver->comm->verify_wire));
    return ct_data_group_open(call->job, c->solver->node_reader, stage, &call->job->reading);
}

char *openblas_get_config(void);

static void add_libraries(bool has_mpi, ct_json_writer *w)
{
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING], hdf5[32], blas[256];
    unsigned major = 0, minor = 0, release = 0;
    int size;

    if (has_mpi) {
        MPI_Get_library_version(mpi, &size);
        mpi[strcspn(mpi, "\r\n")] = '\0';
        ct_json_add_text(w, "mpi", mpi);
    }
    H5get_libversion(&major, &minor, &release);
    snprintf(hdf5, sizeof(hdf5), "%u.%u.%u", major, minor, release);
    snprintf(blas, sizeof(blas), "%s, kernels %s", openblas_get_config(), ct_blas_core_name());
    ct_json_add_text(w, "hdf5", hdf5);
    ct_json_add_text(w, "blas", blas);
}

static void add_job(const ct_call *call, ct_json_writer *w)
{
    const ct_job *job = call->job;
    const ct_topo *topo = job->group.job.topo;

    ct_json_add_text(w, "host", job->host);
    ct_json_add_integer(w, "ranks", job->size);
    ct_json_add_integer(w, "threads", job->threads.n);
    ct_json_add_text(w, "threads_from", job->threads.from);
    ct_json_add_text(w, "cores", job->threads.cores);
    if (topo != NULL) {
        ct_json_begin_object(w, "topology");
        ct_json_add_integer(w, "nodes", topo->n_node);
        ct_json_add_text(w, "source", topo->source);
        ct_json_end(w);
    }
    ct_json_add_text(w, "slurm_job_id", getenv("SLURM_JOB_ID"));
}

static void add_config(const ct_config *c, ct_json_writer *w)
{
    ct_text values = { 0 }, origins = { 0 };
    ct_json_writer value = ct_json_members_into(&values);
    ct_json_writer origin = ct_json_members_into(&origins);

    ct_json_add_text(w, c->is_model ? "model" : "solver", c->file);
    ct_json_add_text(w, "net", c->net->name);
    ct_config_json(c, &value, &origin);
    w->to->failed = w->to->failed || values.failed || origins.failed;
    ct_json_begin_object(w, "config");
    ct_json_add_members(w, values.text);
    ct_json_end(w);
    ct_json_begin_object(w, "origin");
    ct_json_add_members(w, origins.text);
    ct_json_end(w);
    ct_text_destroy(&values);
    ct_text_destroy(&origins);
}

void ct_call_provenance(const ct_call *call, const ct_config *c, ct_json_writer *w)
{
    time_t now = time(NULL);
    char when[32] = "";
    struct tm tm;

    if (gmtime_r(&now, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    ct_json_add_text(w, "version", ct_build_version());
    ct_json_add_text(w, "compiler", ct_build_compiler());
    ct_json_add_text(w, "cflags", ct_build_flags());
    add_libraries((call->job == NULL) || ct_job_has_mpi(call->job), w);
    ct_json_begin_list(w, "command");
    for (int i = 0; i < call->full_argc; i++) ct_json_add_text(w, NULL, call->full_argv[i]);
    ct_json_end(w);
    ct_json_add_text(w, "started", when);
    if (call->job != NULL) add_job(call, w);
    if (c != NULL) add_config(c, w);
}

/* ---- nets for the verbs that have no solver */

ct_status ct_net_state_read(const ct_options *o, ct_net_state *state)
{
    const char *stages = ct_options_text(o, "stage");

    memset(state, 0, sizeof(*state));
    state->level = (int)ct_options_count(o, "level", 0);
    if (stages == NULL) return CT_OK;
    if (strlen(stages) >= sizeof(state->text)) {
        return CT_FAIL(CT_ERR_CONFIG, "--stage: more than %zu bytes", sizeof(state->text) - 1);
    }
    snprintf(state->text, sizeof(state->text), "%s", stages);
    for (char *rest = state->text, *at; (at = strsep(&rest, ",")) != NULL;) {
        if (state->n_stage == CT_MAX_STAGE) {
            return CT_FAIL(CT_ERR_CONFIG, "--stage: more than %d stages", CT_MAX_STAGE);
        }
        if (*at != '\0') state->stage[state->n_stage++] = at;
    }
    return CT_OK;
}

void ct_net_options_fill(const ct_call *call, const ct_config *c, ct_phase phase,
                         const ct_net_state *state, ct_net_options *out)
{
    const Ct__SolverParameter *s = c->solver;

    memset(out, 0, sizeof(*out));
    out->phase = phase;
    out->level = state->level;
    out->stage = state->stage;
    out->n_stage = state->n_stage;
    out->map = c->map;
    out->env.rank = (call->job != NULL) ? call->job->group.data.rank : 0;
    out->env.n_rank = (call->job != NULL) ? call->job->group.data.size : 1;
    out->env.writer = (call->job != NULL) ? call->job->rank : 0;
    out->env.n_writer = (call->job != NULL) ? call->job->size : 1;
    out->env.group = (call->job != NULL) ? call->job->reading : NULL;
    out->env.seed = (s->random_seed >= 0) ? (uint64_t)s->random_seed : 1;
    out->env.global_batch_size = s->global_batch_size;
    out->no_fuse = (s->fuse == 0);
    out->fixed = true; /* their batches are whole */
    out->recompute = s->recompute;
    out->memory_limit = ct_memory_limit() / ((call->job != NULL) ? call->job->group.node.size : 1);
    out->state_bytes = (double)ct_update_rule_state_bytes(s, 1);
    out->send_rows = ct_exchange_sends_rows(s);
    out->decay_matrices = (s->decay_rule == CT__SOLVER_PARAMETER__DECAY_RULE__MATRICES);
    out->graph = (s->cuda_graph != 0);
    out->env.deterministic = (s->deterministic != 0);
    out->env.winograd = s->winograd;
    out->env.precision = s->precision;
}

const char *ct_precision_text(const ct_net *net)
{
    const ct_device *dev = net->options.dev;
    Ct__SolverParameter__Precision precision = net->options.env.precision;

    if (precision == CT__SOLVER_PARAMETER__PRECISION__F32) return "F32";
    if (precision == CT__SOLVER_PARAMETER__PRECISION__TF32)
        return "TF32: operands of products are rounded to 10 bits behind the point";
    if (precision == CT__SOLVER_PARAMETER__PRECISION__FP16)
        return "FP16: operands of products are rounded to f16, sums are f32, the loss is scaled";
    if ((dev != NULL) && (dev->kind != CT_DEVICE_CPU))
        return "BF16: operands of products are rounded to bf16, sums are f32";
    return ct_simd_has_bf16() ? "BF16: operands of products are pairs of bf16 (AVX512_BF16)"
                              : "BF16: operands of products are rounded (no instruction for bf16)";
}

int ct_precision_tops(const ct_net *net, int *all_p)
{
    int n = 0, all = 0;

    for (int i = 0; i < net->n_layer; i++) {
        for (int t = 0; t < net->layer[i]->n_top; t++) {
            all++;
            n += net->pass->instance[i]->top[t]->data.dtype != CT_F32;
        }
    }
    *all_p = all;
    return n;
}

const char *ct_precision_stored(const ct_net *net)
{
    return (net->options.env.precision == CT__SOLVER_PARAMETER__PRECISION__FP16) ? "f16" : "bf16";
}

void ct_exec_fill(const ct_call *call, const ct_net *net, ct_exec *ex)
{
    const ct_group *data = (call->job != NULL) ? &call->job->group.data : NULL;

    memset(ex, 0, sizeof(*ex));
    ex->dev = (net->options.dev != NULL) ? net->options.dev : ct_device_cpu();
    ex->phase = net->options.phase;
    ex->deterministic = net->options.env.deterministic;
    ex->seed = net->options.env.seed;
    ex->batch_local = net->batch_local;
    ex->batch_global = net->batch_global;
    ex->batch_first = net->batch_first;
    ex->batch_axis = net->batch_axis;
    if ((data != NULL) && (data->ops != NULL) && (data->size > 1)) {
        ex->sum_ranks = data->ops->sum;
        ex->hook_ctx = data->ctx;
    }
}

int64_t ct_net_layer_params(const ct_net *net, int layer)
{
    int64_t n = 0;

    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];

        if (strcmp(p->layer, net->layer[layer]->name) == 0) n += p->count;
    }
    return n;
}

/* ---- the plan of engines */

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

void ct_call_plan_machine(int n_thread, bool gpu, ct_engine_plan_machine *m)
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
    m->threads = n_thread;
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
    if (ct_job_has_mpi(job) && (MPI_Bcast(&wanted, 1, MPI_INT, 0, job->agree) != MPI_SUCCESS))
        status = CT_FAIL(CT_ERR_COMM, "whether there is a plan could not be shared");
    ct_call_plan_machine(job->threads.n, gpu, &o.machine);
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
