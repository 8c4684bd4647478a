/* cortado scale: reads what is asked, has it run, and has the report written. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench/bench_comm.h"
#include "runtime/config/features.h"
#include "cli/scale/scale.h"

#define S "scale"

static const ct_option table[] = {
    { "solver", CT_OPTION_TEXT, S, "FILE", "measured: the solver; or --model" },
    { "model", CT_OPTION_TEXT, S, "FILE", "the net prototxt" },
    { "net", CT_OPTION_TEXT, S, "NAME", "a ready net, such as resnet50, instead of --model" },
    { "ranks", CT_OPTION_TEXT, S, "LIST", "measured: numbers of ranks, such as 1,2,4" },
    { "nodes", CT_OPTION_TEXT, S, "LIST", "numbers of nodes, such as 1,2,...,1024" },
    { "ranks_per_node", CT_OPTION_COUNT, S, "N", "with --nodes (SLURM_NTASKS_PER_NODE, else 1)" },
    { "mode", CT_OPTION_TEXT, S, "LIST", "measured: weak, strong, or weak,strong (weak)" },
    { "repeats", CT_OPTION_COUNT, S, "N", "measured: runs of each point (3)" },
    { "iterations", CT_OPTION_COUNT, S, "N", "timed steps a run (20; simulated 3)" },
    { "batch", CT_OPTION_COUNT, S, "N", "samples a rank (the net's own)" },
    { "global_batch", CT_OPTION_COUNT, S, "N",
      "strong scaling: samples of all ranks (those of the smallest run of the weak study)" },
    { "set", CT_OPTION_LIST, S, "FIELD=VALUE", "as in train, for every run" },
    { "compression", CT_OPTION_TEXT, S, "SPEC", "as in train, for every run" },
    { "ablate", CT_OPTION_LIST, S, "LIST",
      "the same points in other ways: flat, hier, overlap-off, overlap-backward, swcaffe, "
      "compression=SPEC, allreduce=NAME, set=FIELD=VALUE; simulated also placement=cyclic|"
      "random:SEED; modelled also read=FIELD=VALUE, changes of --read" },
    { "launcher", CT_OPTION_TEXT, S, "TEXT",
      "measured: what starts the ranks, with {ranks} and {nodes} in it (srun in an allocation, "
      "else mpirun)" },
    { "emulated", CT_OPTION_FLAG, S, NULL,
      "mark measured points as emulated also where ranks do not exceed cores (pretended nodes)" },
    { "sizes", CT_OPTION_TEXT, S, "LIST", "bytes of the comm micro-benchmark (8 to 64M)" },
    { "no_bench", CT_OPTION_FLAG, S, NULL, "no comm micro-benchmark" },
    { "machine", CT_OPTION_TEXT, S, "NAME|FILE",
      "a described machine, such as taihulight, instead of this one: docs/topology.md" },
    { "profile", CT_OPTION_TEXT, S, "FILE", "of the net, by cortado time --json=FILE" },
    { "images_per_s", CT_OPTION_TEXT, S, "S", "of one rank alone, instead of the profile's" },
    { "jitter_seed", CT_OPTION_COUNT, S, "SEED",
      "simulated: each rank's steps vary as the profile's samples do (they do not)" },
    { "placement", CT_OPTION_TEXT, S, "block|cyclic|random:SEED", "of the ranks (block)" },
    { "read", CT_OPTION_TEXT, S, "bytes=B,node=GBS,file=GBS,files=N,total=GBS",
      "modelled: steps also wait for their samples: bytes of one, bandwidth of a node, of a file "
      "(a "
      "disk array), how many files, of all together; docs/scaling.md" },
    { "kind", CT_OPTION_TEXT, S, "LIST", "on a machine: simulated, modelled (both)" },
    { "simulate_to", CT_OPTION_COUNT, S, "N", "more nodes are modelled only (1024)" },
    { "warmup", CT_OPTION_COUNT, S, "N", "simulated: steps that do not count (1)" },
    { "jobs", CT_OPTION_COUNT, S, "N", "simulations at once (as many as cores)" },
    { "memory_gib", CT_OPTION_COUNT, S, "N", "of all simulations at once (70 % of what is free)" },
    { "limit", CT_OPTION_COUNT, S, "SECONDS", "a run that takes longer has failed (1800)" },
    { "out", CT_OPTION_TEXT, S, "DIR",
      "the study's folder (scaling); what it holds is not redone" },
    { "report", CT_OPTION_TEXT, S, "DIR", "run nothing: make the report of this folder anew" },
    { "question", CT_OPTION_TEXT, S, "TEXT", "the report's first line" },
    { "note", CT_OPTION_LIST, S, "TEXT",
      "a fact for the report that the program cannot know: network, file system, shared or not" },
    { "log", CT_OPTION_CHOICE, S, "error|warn|info|debug", "how much to log (info)" },
};

enum { N_OPTION = sizeof(table) / sizeof(table[0]) };

/* ---- what is asked */

static int64_t cores_here(void)
{
    const char *slurm = getenv("SLURM_CPUS_ON_NODE");
    cpu_set_t set;

    if ((slurm != NULL) && (strtoll(slurm, NULL, 10) > 0)) return strtoll(slurm, NULL, 10);
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
    return sysconf(_SC_NPROCESSORS_ONLN);
}

static ct_status find_file(ct_scale *s)
{
    const char *solver = ct_options_text(s->options, "solver");
    const char *model = ct_options_text(s->options, "model");
    const char *net = ct_options_text(s->options, "net");

    if ((solver != NULL) + (model != NULL) + (net != NULL) != 1)
        return CT_FAIL(CT_ERR_CONFIG, "give one of --solver=FILE, --model=FILE, --net=NAME; see "
                                      "cortado scale --help");
    s->word = (solver != NULL) ? "solver" : "model";
    if (net != NULL) return ct_scale_find_net(net, s->file, sizeof(s->file));
    snprintf(s->file, sizeof(s->file), "%s", (solver != NULL) ? solver : model);
    if (access(s->file, R_OK) != 0) return CT_FAIL(CT_ERR_IO, "%s: cannot be read", s->file);
    return CT_OK;
}

/* ---- who asked, and where: an entry of study.json */

static void set_text(json_t *o, const char *name, const char *value)
{
    if (value != NULL) json_object_set_new(o, name, json_string(value));
}

static void add_cpu(json_t *o)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[512];

    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL)) {
        char *value = strchr(line, ':');

        if ((strncmp(line, "model name", 10) != 0) || (value == NULL)) continue;
        value[strcspn(value, "\n")] = '\0';
        set_text(o, "cpu", value + 2);
        break;
    }
    if (f != NULL) fclose(f);
}

static json_t *entry_of(const ct_scale *s)
{
    json_t *o = json_object(), *notes = json_array();
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    char host[64] = "?", when[32] = "", mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    ct_argv command = { 0 };
    ct_text text = { 0 };
    time_t now = time(NULL);
    struct tm tm;
    int n = 0;

    for (int i = 0; i < s->call->full_argc; i++) ct_argv_add(&command, "%s", s->call->full_argv[i]);
    ct_argv_print(&command, &text);
    set_text(o, "command", text.text);
    if (gmtime_r(&now, &tm) != NULL) strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
    set_text(o, "started", when);
    set_text(o, "version", ct_build_version());
    set_text(o, "compiler", ct_build_compiler());
    MPI_Get_library_version(mpi, &n);
    mpi[strcspn(mpi, "\r\n")] = '\0';
    set_text(o, "mpi", mpi);
    gethostname(host, sizeof(host) - 1);
    set_text(o, "host", host);
    add_cpu(o);
    json_object_set_new(o, "cores", json_integer(s->n_core));
    json_object_set_new(o, "memory_bytes", json_real(memory));
    set_text(o, "slurm_job_id", getenv("SLURM_JOB_ID"));
    set_text(o, "slurm_nodes", getenv("SLURM_JOB_NODELIST"));
    set_text(o, "machine", ct_options_text(s->options, "machine"));
    set_text(o, "profile", ct_options_text(s->options, "profile"));
    set_text(o, "question", ct_options_text(s->options, "question"));
    for (int i = 0; i < ct_options_n(s->options, "note"); i++)
        json_array_append_new(notes, json_string(ct_options_entry(s->options, "note", i, NULL)));
    json_object_set_new(o, "notes", notes);
    if (s->net != NULL) json_object_set(o, "net", s->net);
    if (s->pretended != NULL) json_object_set(o, "pretended", s->pretended);
    ct_argv_destroy(&command);
    ct_text_destroy(&text);
    return o;
}

static ct_status run_study(ct_scale *s)
{
    const char *out = ct_options_text(s->options, "out");
    ct_bench_plan sizes;
    ct_status status;

    CT_TRY(find_file(s));
    CT_TRY(ct_scale_configs(s));
    CT_TRY(ct_bench_sizes(ct_options_text(s->options, "sizes"), &sizes));
    CT_TRY(ct_scale_self(s->self, sizeof(s->self)));
    CT_TRY(ct_study_open((out != NULL) ? out : "scaling", &s->study));
    s->limit_s = (double)ct_options_count(s->options, "limit", 1800);
    s->n_core = cores_here();
    status = (ct_options_text(s->options, "machine") != NULL) ? ct_scale_simulate(s)
                                                              : ct_scale_measure(s);
    if (s->net == NULL) return status; /* nothing was run */
    if (status == CT_STOPPED)
        CT_WARN("stopped; what is finished is kept, and the same command goes on from there");
    if ((status != CT_OK) && (status != CT_STOPPED)) return status;
    if (s->n_run == 0) return status;
    CT_TRY(ct_study_note(&s->study, entry_of(s)));
    CT_TRY(ct_scale_report(&s->study));
    if (status != CT_OK) return status;
    if (s->n_failed > 0)
        return CT_FAIL(CT_ERR_COMM,
                       "%d runs failed; %s/report.md lists them, and the same command "
                       "tries them again",
                       s->n_failed, s->study.dir);
    return CT_OK;
}

static ct_status run(ct_scale *s)
{
    const char *again = ct_options_text(s->options, "report");

    if (again == NULL) return run_study(s);
    if (strlen(again) >= sizeof(s->study.dir)) return CT_FAIL(CT_ERR_CONFIG, "--report: too long");
    snprintf(s->study.dir, sizeof(s->study.dir), "%s", again);
    return ct_scale_report(&s->study);
}

ct_status ct_verb_scale(ct_call *call)
{
    ct_scale *s = calloc(1, sizeof(*s));
    ct_options *options = NULL;
    ct_status status;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a study");
    if ((call->argc > 1) && (strcmp(call->argv[1], "--help") == 0)) {
        printf(
            "usage: cortado scale --solver=FILE --ranks=1,2,4 [--out=DIR]\n"
            "       cortado scale --machine=NAME --nodes=1,2,...,1024 --net=NAME --profile=FILE\n"
            "       cortado scale --report=DIR\n\n");
        ct_options_help(table, N_OPTION, S, stdout);
        free(s);
        return CT_OK;
    }
    s->call = call;
    status = ct_options_parse(table, N_OPTION, call->argc, call->argv, &options);
    s->options = options;
    if (status == CT_OK) status = run(s);
    json_decref(s->net);
    json_decref(s->pretended);
    for (int i = 0; i < s->n_config; i++) ct_argv_destroy(&s->config[i].options);
    ct_options_destroy(options);
    free(s);
    return status;
}
