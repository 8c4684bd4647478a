/* cortado scale: reads what is asked, has it run, and has the report written. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench/bench.h"
#include "cli/scale/scale.h"
#include "framework/base/file.h"
#include "framework/base/number.h"
#include "runtime/config/features.h"

/* ---- lists: numbers */

static bool is_dots(const char *at, size_t n)
{
    return ((n == 3) && (strncmp(at, "...", 3) == 0)) ||
           ((n == strlen("…")) && (strncmp(at, "…", n) == 0));
}

static ct_status append(const char *option, const char *text, int64_t v, int64_t *out, int *n)
{
    if (*n == CT_SCALE_MAX_POINT)
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: more than %d", option, text, CT_SCALE_MAX_POINT);
    if ((*n > 0) && (v <= out[*n - 1]))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: %lld after %lld: give them ascending, each once",
                       option, text, (long long)v, (long long)out[*n - 1]);
    out[(*n)++] = v;
    return CT_OK;
}

/* Between the last number and `to`, with the ratio of the two before it. */
static ct_status fill(const char *option, const char *text, int64_t to, int64_t *out, int *n)
{
    int64_t ratio = (*n >= 2) ? out[*n - 1] / out[*n - 2] : 0;

    if ((ratio < 2) || (out[*n - 2] * ratio != out[*n - 1]))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--%s=%s: \"...\" goes on with a whole ratio, as in 1,2,...,8", option,
                       text);
    while (out[*n - 1] < to / ratio || out[*n - 1] * ratio < to)
        CT_TRY(append(option, text, out[*n - 1] * ratio, out, n));
    return CT_OK;
}

ct_status ct_scale_numbers(const char *option, const char *text, int64_t *out, int *n_p)
{
    bool dots = false;
    int n = 0;

    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        char *end = NULL;
        int64_t v;

        if (is_dots(at, length) && !dots) {
            dots = true;
        } else {
            if (!ct_number_integer(at, &end, &v) || (end != at + length) || (v < 1) ||
                (v > ((int64_t)1 << 31)))
                return CT_FAIL(
                    CT_ERR_CONFIG,
                    "--%s=%s: \"%.*s\": expected whole numbers from 1 up to 2^31, as in 1,2,4",
                    option, text, (int)length, at);
            if (dots) CT_TRY(fill(option, text, v, out, &n));
            dots = false;
            CT_TRY(append(option, text, v, out, &n));
        }
        if (at[length] == '\0') break;
        at += length + 1;
    }
    if (dots) return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: ends in \"...\"", option, text);
    *n_p = n;
    return CT_OK;
}

/* ---- lists: words */

ct_status ct_scale_words(const char *option, const char *text, const char *const *known, int n,
                         bool *has)
{
    for (int i = 0; i < n; i++) has[i] = false;
    for (const char *at = text;;) {
        size_t length = strcspn(at, ",");
        char word[64];
        const char *near;
        int k = 0;

        snprintf(word, sizeof(word), "%.*s", (int)length, at);
        while ((k < n) && (strcmp(word, known[k]) != 0)) k++;
        if (k == n) {
            near = ct_text_nearest(word, known, n);
            return CT_FAIL(CT_ERR_CONFIG, "--%s: unknown \"%s\"%s%s%s", option, word,
                           (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                           (near != NULL) ? "\"?" : "");
        }
        has[k] = true;
        if (at[length] == '\0') return CT_OK;
        at += length + 1;
    }
}

/* ---- ablations */

typedef struct ablation {
    const char *name;         /* with '=' at its end: a value follows, and is the %s */
    const char *option[3];    /* of `cortado time`                              */
    const char *simulated[4]; /* of the simulator                            */
} ablation;

/* What "swcaffe" means: its published scheme, one message after backward. */
static const ablation known[] = {
    { "flat", { "--set=comm.allreduce=rhd" }, { "--set=comm.allreduce=rhd", "--order=rank" } },
    { "hier", { "--set=comm.allreduce=hier" }, { "--set=comm.allreduce=hier" } },
    { "overlap-off", { "--set=comm.overlap=false" }, { "--overlap=off" } },
    { "overlap-backward", { "--set=comm.forward_overlap=false" }, { "--overlap=backward" } },
    { "swcaffe",
      { "--set=comm.overlap=false", "--set=comm.allreduce=rhd", "--set=comm.bucket_mb=65536" },
      { "--overlap=off", "--set=comm.allreduce=rhd", "--set=comm.bucket_mb=65536" } },
    { "compression=", { "--compression=%s" }, { "--compression=%s" } },
    { "allreduce=", { "--set=comm.allreduce=%s" }, { "--set=comm.allreduce=%s" } },
    { "set=", { "--set=%s" }, { "--set=%s" } },
    { "placement=", { NULL }, { "--placement=%s" } },
    { "read=", { NULL }, { NULL } },
};

enum { N_KNOWN = sizeof(known) / sizeof(known[0]) };

static const ablation *find_ablation(const char *item)
{
    for (int i = 0; i < N_KNOWN; i++) {
        size_t n = strlen(known[i].name);
        bool value = known[i].name[n - 1] == '=';

        if (value ? (strncmp(item, known[i].name, n) == 0) : (strcmp(item, known[i].name) == 0))
            return &known[i];
    }
    return NULL;
}

static void add_option(ct_argv *w, const char *text, const char *value)
{
    const char *mark = strstr(text, "%s");

    if (mark == NULL)
        ct_argv_add(w, "%s", text);
    else
        ct_argv_add(w, "%.*s%s", (int)(mark - text), text, value);
}

static ct_status add_config(ct_scale *s, const char *item)
{
    const ablation *a = find_ablation(item);
    ct_scale_config *c = &s->config[s->n_config];
    const char *names[N_KNOWN], *near, *value;

    if (a == NULL) {
        for (int i = 0; i < N_KNOWN; i++) names[i] = known[i].name;
        near = ct_text_nearest(item, names, N_KNOWN);
        return CT_FAIL(CT_ERR_CONFIG, "--ablate: unknown \"%s\"; did you mean \"%s\"?", item,
                       (near != NULL) ? near : "overlap-off");
    }
    if (s->n_config == CT_SCALE_MAX_CONFIG)
        return CT_FAIL(CT_ERR_CONFIG, "--ablate: more than %d", CT_SCALE_MAX_CONFIG - 1);
    if (strlen(item) >= sizeof(c->name))
        return CT_FAIL(CT_ERR_CONFIG, "--ablate: more than %zu bytes: %s", sizeof(c->name) - 1,
                       item);
    for (int i = 0; i < s->n_config; i++) {
        if (strcmp(s->config[i].name, item) == 0) return CT_OK;
    }
    value = item + strlen(a->name);
    snprintf(c->name, sizeof(c->name), "%s", item);
    if (strcmp(a->name, "placement=") == 0)
        snprintf(c->placement, sizeof(c->placement), "%s", value);
    if (strcmp(a->name, "read=") == 0) snprintf(c->read, sizeof(c->read), "%s", value);
    for (int k = 0; (k < 3) && (a->option[k] != NULL); k++)
        add_option(&c->options, a->option[k], value);
    for (int k = 0; (k < 4) && (a->simulated[k] != NULL); k++)
        add_option(&c->simulated, a->simulated[k], value);
    s->n_config += 1;
    return CT_OK;
}

/* A piece that is no ablation belongs to the value before it: compression=topk:density=0.01,… */
static ct_status add_configs(ct_scale *s, const char *text)
{
    char *copy = strdup(text), item[256] = "";
    ct_status status = (copy != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for --ablate");

    for (char *rest = copy, *piece; (status == CT_OK) && ((piece = strsep(&rest, ",")) != NULL);) {
        if ((item[0] != '\0') && (strchr(item, '=') != NULL) && (find_ablation(piece) == NULL)) {
            snprintf(item + strlen(item), sizeof(item) - strlen(item), ",%s", piece);
            continue;
        }
        if (item[0] != '\0') status = add_config(s, item);
        snprintf(item, sizeof(item), "%s", piece);
    }
    if ((status == CT_OK) && (item[0] != '\0')) status = add_config(s, item);
    free(copy);
    return status;
}

/* The default and every --ablate. CT_ERR_CONFIG with the nearest name. */
static ct_status scale_configs(ct_scale *s)
{
    s->n_config = 1;
    snprintf(s->config[0].name, sizeof(s->config[0].name), "default");
    for (int i = 0; i < ct_options_n(s->options, "ablate"); i++)
        CT_TRY(add_configs(s, ct_options_entry(s->options, "ablate", i, NULL)));
    return CT_OK;
}

/* ---- where nets lie */

enum { MAX_NAME = 64, MAX_FOLDER = 5 };

ct_status ct_scale_self(char *out, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", out, size - 1);

    if ((n <= 0) || ((size_t)n >= size - 1))
        return CT_FAIL(CT_ERR_IO, "/proc/self/exe: %s", (n < 0) ? strerror(errno) : "too long");
    out[n] = '\0';
    return CT_OK;
}

/* Where models/ may lie: named, in the build tree (build/mpicc/cortado), installed (bin/cortado),
 * here. */
static int folders(char folder[MAX_FOLDER][600])
{
    const char *share = getenv("CORTADO_SHARE");
    char self[512];
    int n = 0;

    if (share != NULL) snprintf(folder[n++], 600, "%s/models", share);
    if (ct_scale_self(self, sizeof(self)) == CT_OK) {
        char *slash = strrchr(self, '/');

        if (slash != NULL) *slash = '\0';
        snprintf(folder[n++], 600, "%s/../../models", self);
        snprintf(folder[n++], 600, "%s/../share/cortado/models", self);
        snprintf(folder[n++], 600, "%s/models", self);
    }
    snprintf(folder[n++], 600, "models");
    return n;
}

static int list_names(char folder[MAX_FOLDER][600], int n_folder, char name[MAX_NAME][64])
{
    int n = 0;

    for (int f = 0; f < n_folder; f++) {
        DIR *d = opendir(folder[f]);

        for (const char *at; (n < MAX_NAME) && ((at = ct_folder_next(d, NULL)) != NULL);) {
            if (at[0] != '.') snprintf(name[n++], 64, "%.63s", at);
        }
        if (d != NULL) closedir(d);
    }
    return n;
}

static ct_status scale_find_net(const char *name, char *out, size_t size)
{
    char folder[MAX_FOLDER][600], found[MAX_NAME][64];
    const char *names[MAX_NAME], *near;
    int n_folder = folders(folder), n;

    for (int f = 0; (f < n_folder) && (strchr(name, '/') == NULL); f++) {
        char path[800], *real;

        snprintf(path, sizeof(path), "%.500s/%.200s/train_val.prototxt", folder[f], name);
        if ((real = realpath(path, NULL)) == NULL) continue;
        snprintf(out, size, "%s", real);
        free(real);
        return CT_OK;
    }
    if (access(name, R_OK) == 0) {
        snprintf(out, size, "%s", name);
        return CT_OK;
    }
    n = list_names(folder, n_folder, found);
    for (int i = 0; i < n; i++) names[i] = found[i];
    near = ct_text_nearest(name, names, n);
    if (near != NULL)
        return CT_FAIL(CT_ERR_CONFIG, "--net: unknown net \"%s\"; did you mean \"%s\"?", name,
                       near);
    return CT_FAIL(CT_ERR_CONFIG,
                   "--net: neither a ready net nor a file: \"%s\"; a file of your own "
                   "goes into --model",
                   name);
}

#define S "scale"

static const ct_option table[] = {
    { "solver", CT_OPTION_TEXT, S, "FILE", "measured: the solver; or --model" },
    { "model", CT_OPTION_TEXT, S, "FILE", "the net prototxt" },
    { "net", CT_OPTION_TEXT, S, "NAME", "a ready net, such as resnet50, instead of --model" },
    { "ranks", CT_OPTION_TEXT, S, "LIST", "measured: numbers of ranks, such as 1,2,4" },
    { "nodes", CT_OPTION_TEXT, S, "LIST", "numbers of nodes, such as 1,2,...,1024" },
    { "ranks_per_node", CT_OPTION_SOME, S, "N", "with --nodes (SLURM_NTASKS_PER_NODE, else 1)" },
    { "mode", CT_OPTION_TEXT, S, "LIST", "measured: weak, strong, or weak,strong (weak)" },
    { "repeats", CT_OPTION_SOME, S, "N", "measured: runs of each point (3)" },
    { "iterations", CT_OPTION_SOME, S, "N", "timed steps a run (20; simulated 3)" },
    { "batch", CT_OPTION_SOME, S, "N", "samples a rank (the net's own)" },
    { "global_batch", CT_OPTION_SOME, S, "N",
      "strong scaling: samples of all ranks (those of the smallest run of the weak study)" },
    { "set", CT_OPTION_LIST, S, "FIELD=VALUE", "as in train, for every run" },
    { "compression", CT_OPTION_TEXT, S, "SPEC", "as in train, for every run" },
    { "ablate", CT_OPTION_LIST, S, "LIST",
      "the same points in other ways: flat, hier, overlap-off, overlap-backward, swcaffe, "
      "compression=SPEC, allreduce=NAME, set=FIELD=VALUE; simulated also placement=cyclic|"
      "random:SEED; modelled also read=FIELD=VALUE, changes of --read" },
    { "parallel", CT_OPTION_TEXT, S, "FILE",
      "measured: the point of the file's number of ranks also by this parallel file" },
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
    { "jitter_seed", CT_OPTION_SEED, S, "SEED",
      "simulated: each rank's steps vary as the profile's samples do (they do not)" },
    { "placement", CT_OPTION_TEXT, S, "block|cyclic|random:SEED", "of the ranks (block)" },
    { "read", CT_OPTION_TEXT, S, "bytes=B,node=GBS,file=GBS,files=N,total=GBS",
      "modelled: steps also wait for their samples: bytes of one, bandwidth of a node, of a file "
      "(a "
      "disk array), how many files, of all together; docs/scaling.md" },
    { "kind", CT_OPTION_TEXT, S, "LIST", "on a machine: simulated, modelled (both)" },
    { "simulate_to", CT_OPTION_COUNT, S, "N", "more nodes are modelled only (1024)" },
    { "warmup", CT_OPTION_SOME, S, "N", "simulated: steps that do not count (1)" },
    { "jobs", CT_OPTION_SOME, S, "N", "simulations at once (as many as cores)" },
    { "memory_gib", CT_OPTION_SOME, S, "N", "of all simulations at once (70 % of what is free)" },
    { "limit", CT_OPTION_SOME, S, "SECONDS", "a run that takes longer has failed (1800)" },
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
    if (net != NULL) return scale_find_net(net, s->file, sizeof(s->file));
    snprintf(s->file, sizeof(s->file), "%s", (solver != NULL) ? solver : model);
    if (access(s->file, R_OK) != 0)
        return CT_FAIL(CT_ERR_IO, "%s: %s", s->file, ct_path_why(s->file, errno).text);
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

static ct_status open_study(ct_scale *s)
{
    const char *out = ct_options_text(s->options, "out");
    ct_bench_plan sizes;

    if ((ct_options_text(s->options, "parallel") != NULL) &&
        (ct_options_text(s->options, "machine") != NULL))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--parallel is for measured studies, without --machine: cortado check "
                       "--parallel --machine says what a step would take there");
    CT_TRY(find_file(s));
    CT_TRY(scale_configs(s));
    CT_TRY(ct_bench_sizes(ct_options_text(s->options, "sizes"), &sizes));
    CT_TRY(ct_scale_self(s->self, sizeof(s->self)));
    CT_TRY(ct_study_open((out != NULL) ? out : "scaling", &s->study));
    s->limit_s = (double)ct_options_count(s->options, "limit", 1800);
    s->n_core = cores_here();
    return CT_OK;
}

static ct_status run_study(ct_scale *s)
{
    ct_status status;

    CT_TRY(open_study(s));
    status = (ct_options_text(s->options, "machine") != NULL) ? ct_scale_simulate(s)
                                                              : ct_scale_measure(s);
    if ((status != CT_OK) && (status != CT_STOPPED))
        ct_study_discard(&s->study);   /* options that are refused leave no folders */
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

bool ct_scale_form(int i, ct_verb_form *form_p)
{
    *form_p = (ct_verb_form){ S, "the scaling study", table, N_OPTION };
    return i == 0;
}

ct_status ct_verb_scale(ct_call *call)
{
    ct_scale *s = calloc(1, sizeof(*s));
    ct_options *options = NULL;
    ct_status status;

    if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a study");
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
