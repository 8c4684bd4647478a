/* Runs of the real thing: `cortado time` for each number of ranks, and `cortado bench comm`. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "runtime/config/features.h"
#include "cli/scale/scale.h"
#include "planner/parallel.h"

typedef struct plan {
    bool weak, strong, bench;
    int64_t repeats, iterations, per_node, global_batch, batch;
    bool in_slurm;
    char *launcher; /* of --launcher; NULL */
    const char *mpirun, *mpirun_flags;
    bool open_mpi;
    int parallel;           /* the configuration of --parallel; 0: none                */
    int64_t parallel_ranks; /* what its file says                                      */
    int64_t parallel_batch; /* of all ranks                                            */
    char *parallel_text;
} plan;

/* ---- what the place offers */

static int64_t env_count(const char *name)
{
    const char *v = getenv(name);

    return (v != NULL) ? strtoll(v, NULL, 10) : 0;
}

static bool is_open_mpi(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int n = 0;

    MPI_Get_library_version(text, &n);
    return strstr(text, "Open MPI") != NULL;
}

static ct_status read_modes(ct_scale *s, plan *p)
{
    static const char *const mode[] = { "weak", "strong" };
    const char *text = ct_options_text(s->options, "mode");
    bool has[2];

    CT_TRY(ct_scale_words("mode", (text != NULL) ? text : "weak", mode, 2, has));
    p->weak = has[0];
    p->strong = has[1];
    return CT_OK;
}

/* --nodes and --ranks-per-node, or --ranks: in the end both lists, as long as each other. */
static ct_status read_sizes(ct_scale *s, plan *p)
{
    const char *nodes = ct_options_text(s->options, "nodes");
    const char *ranks = ct_options_text(s->options, "ranks");
    int64_t there = env_count("SLURM_JOB_NUM_NODES");

    if ((nodes == NULL) == (ranks == NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "a measured study needs --ranks=1,2,4, or --nodes=1,2,4 in "
                       "an allocation%s",
                       (nodes != NULL) ? "; not both" : "");
    if (ranks != NULL) {
        CT_TRY(ct_scale_numbers("ranks", ranks, s->rank, &s->n_rank));
        s->n_node = s->n_rank;
        for (int i = 0; i < s->n_rank; i++)
            s->node[i] = p->in_slurm ? (s->rank[i] + p->per_node - 1) / p->per_node : 1;
    } else {
        CT_TRY(ct_scale_numbers("nodes", nodes, s->node, &s->n_node));
        s->n_rank = s->n_node;
        for (int i = 0; i < s->n_node; i++) s->rank[i] = s->node[i] * p->per_node;
        if (!p->in_slurm && (p->launcher == NULL) && (s->node[s->n_node - 1] > 1))
            return CT_FAIL(CT_ERR_CONFIG,
                           "--nodes=%s: not in a SLURM allocation: use --ranks, or "
                           "say with --launcher how ranks get to the nodes",
                           nodes);
    }
    if (p->in_slurm && (there > 0) && (s->node[s->n_node - 1] > there))
        return CT_FAIL(CT_ERR_CONFIG, "%lld nodes wanted, but the allocation has %lld",
                       (long long)s->node[s->n_node - 1], (long long)there);
    return CT_OK;
}

static ct_status read_plan(ct_scale *s, plan *p)
{
    const char *launcher = ct_options_text(s->options, "launcher");

    memset(p, 0, sizeof(*p));
    CT_TRY(read_modes(s, p));
    p->repeats = ct_options_count(s->options, "repeats", 3);
    p->iterations = ct_options_count(s->options, "iterations", 20);
    p->batch = ct_options_count(s->options, "batch", 0);
    p->bench = !ct_options_flag(s->options, "no_bench");
    p->in_slurm = (getenv("SLURM_JOB_ID") != NULL) && (launcher == NULL);
    p->per_node =
        ct_options_count(s->options, "ranks_per_node", env_count("SLURM_NTASKS_PER_NODE"));
    if (p->per_node == 0) p->per_node = 1;
    p->mpirun = (getenv("MPIRUN") != NULL) ? getenv("MPIRUN") : "mpirun";
    p->mpirun_flags = getenv("MPIRUN_FLAGS");
    p->open_mpi = is_open_mpi();
    if ((launcher != NULL) && (strstr(launcher, "{ranks}") == NULL))
        return CT_FAIL(CT_ERR_CONFIG, "--launcher=%s: has no {ranks} in it", launcher);
    CT_TRY(read_sizes(s, p));
    if (launcher == NULL) return CT_OK;
    p->launcher = strdup(launcher);
    return (p->launcher != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a launcher");
}

/* ---- commands */

/* Words of the launcher's text, {ranks} and {nodes} replaced. */
static void add_launcher(ct_argv *w, const char *text, int64_t ranks, int64_t nodes)
{
    char *copy = strdup(text);

    for (char *rest = copy, *word; (word = strsep(&rest, " ")) != NULL;) {
        ct_text t = { 0 };

        if (word[0] == '\0') continue;
        for (const char *at = word; *at != '\0';) {
            if (strncmp(at, "{ranks}", 7) == 0) {
                ct_text_add(&t, "%lld", (long long)ranks);
                at += 7;
            } else if (strncmp(at, "{nodes}", 7) == 0) {
                ct_text_add(&t, "%lld", (long long)nodes);
                at += 7;
            } else {
                ct_text_add_bytes(&t, at++, 1);
            }
        }
        ct_argv_add(w, "%s", t.text);
        ct_text_destroy(&t);
    }
    free(copy);
}

static void add_start(const ct_scale *s, const plan *p, int i, bool emulated, ct_argv *w)
{
    long long ranks = s->rank[i], nodes = s->node[i];

    if (p->launcher != NULL) {
        add_launcher(w, p->launcher, ranks, nodes);
    } else if (p->in_slurm) {
        ct_argv_add(w, "srun");
        ct_argv_add(w, "--nodes=%lld", nodes);
        ct_argv_add(w, "--ntasks=%lld", ranks);
        ct_argv_add(w, "--kill-on-bad-exit=1");
    } else {
        add_launcher(w, p->mpirun, ranks, nodes);
        if (p->mpirun_flags != NULL) add_launcher(w, p->mpirun_flags, ranks, nodes);
        if (p->open_mpi && emulated && (p->mpirun_flags == NULL)) {
            ct_argv_add(w, "--oversubscribe");
            ct_argv_add(w, "--bind-to");
            ct_argv_add(w, "none");
        }
        ct_argv_add(w, "-np");
        ct_argv_add(w, "%lld", ranks);
    }
    ct_argv_add(w, "%s", s->self);
}

static bool is_emulated(const ct_scale *s, int i)
{
    int64_t on_node = (s->rank[i] + s->node[i] - 1) / s->node[i];

    return (on_node > s->n_core) || ct_options_flag(s->options, "emulated");
}

/* ---- definitions */

/* What every measured run has in common: also the environment that decides its speed. */
static json_t *define_common(const ct_scale *s, const plan *p, const char *kind, int i)
{
    static const char *const env[] = { "OMP_NUM_THREADS",     "CORTADO_SET",
                                       "CORTADO_COMPRESSION", "CORTADO_ALLREDUCE",
                                       "CORTADO_OVERLAP",     "CORTADO_TOPOLOGY" };
    json_t *d = json_object(), *e = json_object();
    char host[64] = "here";

    gethostname(host, sizeof(host) - 1);
    if (p->in_slurm && (getenv("SLURM_CLUSTER_NAME") != NULL))
        snprintf(host, sizeof(host), "%s", getenv("SLURM_CLUSTER_NAME"));
    json_object_set_new(d, "kind", json_string(kind));
    json_object_set_new(d, "machine", json_string(host));
    json_object_set_new(d, "nodes", json_integer(s->node[i]));
    json_object_set_new(d, "ranks", json_integer(s->rank[i]));
    json_object_set_new(d, "version", json_string(ct_build_version()));
    json_object_set_new(d, "launcher",
                        json_string((p->launcher != NULL) ? p->launcher
                                    : p->in_slurm         ? "srun"
                                                          : p->mpirun));
    for (size_t k = 0; k < sizeof(env) / sizeof(env[0]); k++) {
        if (getenv(env[k]) != NULL) json_object_set_new(e, env[k], json_string(getenv(env[k])));
    }
    json_object_set_new(d, "environment", e);
    return d;
}

static json_t *words_json(const ct_argv *w)
{
    json_t *list = json_array();

    for (int i = 0; i < w->n; i++) json_array_append_new(list, json_string(w->word[i]));
    return list;
}

/* ---- --parallel: the points of its number of ranks once more */

static ct_status add_parallel(ct_scale *s, plan *p)
{
    const char *file = ct_options_text(s->options, "parallel");
    ct_scale_config *c = &s->config[s->n_config];
    ct_parallel *read = NULL;
    size_t size = 0;
    int i = 0;

    if (file == NULL) return CT_OK;
    if (s->n_config == CT_SCALE_MAX_CONFIG)
        return CT_FAIL(CT_ERR_CONFIG, "--parallel: no room beside so many --ablate");
    CT_TRY(ct_parallel_read(file, &read));
    p->parallel_ranks = read->n_rank;
    p->parallel_batch = read->global_batch;
    ct_parallel_destroy(read);
    CT_TRY(ct_settings_read(file, &p->parallel_text, &size));
    while ((i < s->n_rank) && (s->rank[i] != p->parallel_ranks)) i++;
    if (i == s->n_rank)
        return CT_FAIL(CT_ERR_LAUNCH, "--parallel=%s: its %lld ranks are no point of the study",
                       file, (long long)p->parallel_ranks);
    snprintf(c->name, sizeof(c->name), "%s", CT_SCALE_PARALLEL);
    ct_argv_add(&c->options, "--parallel=%s", file);
    p->parallel = s->n_config++;
    return CT_OK;
}

/* Samples of a step at the point of that number of ranks. */
static int64_t step_batch(const ct_scale *s, const plan *p, bool weak)
{
    return weak ? (int64_t)ct_json_int(s->net, "batch", 1) * p->parallel_ranks : p->global_batch;
}

static ct_status check_parallel(const ct_scale *s, const plan *p)
{
    int64_t weak = step_batch(s, p, true), strong = p->global_batch;

    if ((p->parallel == 0) || (p->weak && (weak == p->parallel_batch)) ||
        (p->strong && (strong == p->parallel_batch)))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--parallel=%s: its global_batch is %lld, but the point of %lld ranks has %lld "
                   "samples: give another --%s",
                   ct_options_text(s->options, "parallel"), (long long)p->parallel_batch,
                   (long long)p->parallel_ranks, (long long)(p->weak ? weak : strong),
                   p->weak ? "batch" : "global_batch");
}

/* Whether the configuration is run at the i-th number of ranks. */
static bool has_point(const ct_scale *s, const plan *p, int config, int i, bool weak)
{
    if ((p->parallel == 0) || (config != p->parallel)) return true;
    return (s->rank[i] == p->parallel_ranks) && (step_batch(s, p, weak) == p->parallel_batch);
}

/* The options of `cortado time` for this point. */
static void time_options(const ct_scale *s, const plan *p, const ct_scale_config *c, bool weak,
                         ct_argv *w)
{
    if ((p->parallel > 0) && (c == &s->config[p->parallel]))
        ; /* the file says the batch */
    else if (!weak)
        ct_argv_add(w, "--global_batch_size=%lld", (long long)p->global_batch);
    else if (p->batch > 0)
        ct_argv_add(w, "--set=batch_size=%lld", (long long)p->batch);
    for (int k = 0; k < ct_options_n(s->options, "set"); k++)
        ct_argv_add(w, "--set=%s", ct_options_entry(s->options, "set", k, NULL));
    if (ct_options_text(s->options, "compression") != NULL)
        ct_argv_add(w, "--compression=%s", ct_options_text(s->options, "compression"));
    for (int k = 0; k < c->options.n; k++) ct_argv_add(w, "%s", c->options.word[k]);
    ct_argv_add(w, "--iterations=%lld", (long long)p->iterations);
}

static ct_status add_time(ct_scale *s, const plan *p, ct_scale_jobs *jobs, int i,
                          const ct_scale_config *c, bool weak, int64_t repeat)
{
    json_t *d = define_common(s, p, "measured", i);
    bool emulated = is_emulated(s, i);
    ct_argv words = { 0 };
    ct_scale_job *job = NULL;
    ct_status status;

    time_options(s, p, c, weak, &words);
    json_object_set_new(d, "net", json_string(ct_json_text(s->net, "net", "net")));
    json_object_set_new(d, "net_hash", json_string(ct_json_text(s->net, "net_hash", "")));
    json_object_set_new(d, "file", json_string(s->file));
    json_object_set_new(d, "mode", json_string(weak ? "weak" : "strong"));
    json_object_set_new(d, "config", json_string(c->name));
    json_object_set_new(
        d, "batch",
        json_integer(weak ? (json_int_t)ct_json_number(s->net, "batch", 0) : p->global_batch));
    json_object_set_new(d, "options", words_json(&words));
    if ((p->parallel > 0) && (c == &s->config[p->parallel]))
        json_object_set_new(d, "parallel", json_string(p->parallel_text));
    json_object_set_new(d, "repeat", json_integer(repeat));
    status = ct_scale_jobs_add(s, jobs, d, &job);
    if ((status == CT_OK) && (job != NULL)) {
        job->emulated = emulated;
        add_start(s, p, i, emulated, &job->child.command);
        ct_argv_add(&job->child.command, "time");
        ct_argv_add(&job->child.command, "--%s=%s", s->word, s->file);
        for (int k = 0; k < words.n; k++) ct_argv_add(&job->child.command, "%s", words.word[k]);
        ct_argv_add(&job->child.command, "--limits=false"); /* a study has no roofline */
        ct_argv_add(&job->child.command, "--json=%s", job->out);
    }
    ct_argv_destroy(&words);
    return status;
}

static ct_status add_bench(ct_scale *s, const plan *p, ct_scale_jobs *jobs, int i)
{
    const char *sizes = ct_options_text(s->options, "sizes");
    json_t *d = define_common(s, p, "bench", i);
    bool emulated = is_emulated(s, i);
    ct_scale_job *job = NULL;

    if (sizes == NULL) sizes = "8,4K,16K,64K,256K,1M,4M,16M,64M";
    json_object_set_new(d, "net", json_string("allreduce"));
    json_object_set_new(d, "config", json_string(sizes));
    CT_TRY(ct_scale_jobs_add(s, jobs, d, &job));
    if (job == NULL) return CT_OK;
    job->emulated = emulated;
    add_start(s, p, i, emulated, &job->child.command);
    ct_argv_add(&job->child.command, "bench");
    ct_argv_add(&job->child.command, "comm");
    ct_argv_add(&job->child.command, "--sizes=%s", sizes);
    ct_argv_add(&job->child.command, "--json=%s", job->out);
    return CT_OK;
}

/* Repetitions are the outer loop, so that a machine that drifts meets all points alike. */
static ct_status list_runs(ct_scale *s, const plan *p, ct_scale_jobs *jobs)
{
    for (int64_t k = 0; k < p->repeats; k++) {
        for (int mode = 0; mode < 2; mode++) {
            if (!((mode == 0) ? p->weak : p->strong)) continue;
            for (int c = 0; c < s->n_config; c++) {
                for (int i = 0; i < s->n_rank; i++) {
                    if (has_point(s, p, c, i, mode == 0))
                        CT_TRY(add_time(s, p, jobs, i, &s->config[c], mode == 0, k));
                }
            }
        }
    }
    for (int i = 0; (i < s->n_rank) && p->bench; i++) {
        if (s->rank[i] > 1) CT_TRY(add_bench(s, p, jobs, i));
    }
    return CT_OK;
}

static ct_status check_configs(const ct_scale *s)
{
    for (int i = 0; i < s->n_config; i++) {
        if (s->config[i].placement[0] != '\0')
            return CT_FAIL(CT_ERR_CONFIG,
                           "--ablate=%s: the launcher places the ranks of a measured "
                           "study (srun --distribution, --launcher)",
                           s->config[i].name);
    }
    return CT_OK;
}

ct_status ct_scale_measure(ct_scale *s)
{
    ct_scale_jobs jobs = { 0 };
    plan p;
    ct_status status;

    CT_TRY(read_plan(s, &p));
    CT_TRY_GOTO(status, out, check_configs(s));
    CT_TRY_GOTO(status, out, add_parallel(s, &p));
    CT_TRY_GOTO(status, out, ct_scale_check_net(s, p.batch));
    p.global_batch = ct_options_count(s->options, "global_batch", 0);
    if (p.global_batch == 0) p.global_batch = (int64_t)ct_json_int(s->net, "batch", 1) * s->rank[0];
    if (p.strong && (p.global_batch < s->rank[s->n_rank - 1])) {
        status = CT_FAIL(CT_ERR_CONFIG,
                         "strong scaling of a global batch of %lld over %lld ranks: "
                         "give a larger --global_batch",
                         (long long)p.global_batch, (long long)s->rank[s->n_rank - 1]);
        goto out;
    }
    CT_TRY_GOTO(status, out, check_parallel(s, &p));
    CT_TRY_GOTO(status, out, list_runs(s, &p, &jobs));
    status = ct_scale_jobs_run(s, &jobs, 1, 0);
out:
    ct_scale_jobs_destroy(&jobs);
    free(p.launcher);
    free(p.parallel_text);
    return status;
}
