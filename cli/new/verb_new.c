/* cortado new: a folder with net, solver and job file of a model, fitted to a data set. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/new/new.h"
#include "cli/verb.h"
#include "framework/base/file.h"
#include "framework/data/convert.h"
#include "framework/data/reader.h"
#include "framework/data/writer.h"
#include "framework/net/net.h"
#include "framework/proto/prototxt.h"

typedef struct making {
    const ct_options *o;
    char *model;     /* the model's folder                                    */
    char *to;        /* absolute                                              */
    char *temporary; /* what the folder is called until all its files are there */
    ct_new_set set;
    Ct__NetParameter *net;
    Ct__SolverParameter *solver;
} making;

/* "FOLDER/NAME", to be freed. */
static ct_status path_in(const char *folder, const char *name, char **path_p)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s", folder, name);
    if (t.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", folder);
    *path_p = t.text;
    return CT_OK;
}

/* ---- where models are: beside the program, in its sources or where it was installed */

static bool is_folder(const char *path)
{
    struct stat st;

    return (stat(path, &st) == 0) && S_ISDIR(st.st_mode);
}

/* Into text; false: nowhere above the program. */
static bool find_models(ct_text *text)
{
    static const char *const below[] = { "models", "share/cortado/models" };
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

    if (n < 0) return false;
    exe[n] = '\0';
    for (char *slash = strrchr(exe, '/'); slash != NULL; slash = strrchr(exe, '/')) {
        *slash = '\0';
        for (int i = 0; i < 2; i++) {
            ct_text probe = { 0 };
            bool there;

            ct_text_add(&probe, "%s/%s/quick", exe, below[i]);
            there = !probe.failed && is_folder(probe.text);
            ct_text_destroy(&probe);
            if (!there) continue;
            ct_text_add(text, "%s/%s", exe, below[i]);
            return !text->failed;
        }
    }
    return false;
}

static ct_status fail_model(const char *models, const char *name)
{
    const char *known[256], *near;
    char *copy[256];
    int n = 0;
    DIR *dir = opendir(models);

    for (const char *at; (n < 256) && ((at = ct_folder_next(dir, NULL)) != NULL);)
        if ((at[0] != '.') && ((copy[n] = strdup(at)) != NULL)) {
            known[n] = copy[n];
            n++;
        }
    if (dir != NULL) closedir(dir);
    near = ct_text_nearest(name, known, n);
    if (near != NULL)
        (void)CT_FAIL(CT_ERR_CONFIG, "--from=%s: no such model; did you mean \"%s\"?", name, near);
    else
        (void)CT_FAIL(CT_ERR_CONFIG, "--from=%s: no such model in %s", name, models);
    for (int i = 0; i < n; i++) free(copy[i]);
    return CT_ERR_CONFIG;
}

/* A name of a model, or a folder with a train_val.prototxt and a solver.prototxt. */
static ct_status find_model(making *m)
{
    const char *from = ct_options_text(m->o, "from");
    ct_text models = { 0 };
    ct_status status;

    if (strchr(from, '/') != NULL) {
        m->model = strdup(from);
        return (m->model != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    }
    if (!find_models(&models))
        status =
            CT_FAIL(CT_ERR_IO,
                    "--from=%s: no folder of models above the program; give the folder of one, "
                    "as in --from=./%s",
                    from, from);
    else
        status = path_in(models.text, from, &m->model);
    if ((status == CT_OK) && !is_folder(m->model)) status = fail_model(models.text, from);
    ct_text_destroy(&models);
    return status;
}

static ct_status read_model(making *m)
{
    char *net = NULL, *solver = NULL;
    ct_status status = path_in(m->model, "train_val.prototxt", &net);

    if (status == CT_OK) status = path_in(m->model, "solver.prototxt", &solver);
    if (status == CT_OK) status = ct_net_read(net, NULL, &m->net);
    if (status == CT_OK) status = ct_solver_read(solver, NULL, &m->solver);
    free(net);
    free(solver);
    return status;
}

/* ---- the files */

static ct_status write_file(const making *m, const char *name, const char *text, size_t size)
{
    char *path = NULL;
    ct_status status = path_in(m->temporary, name, &path);

    if (status == CT_OK) status = ct_file_write(path, text, size);
    free(path);
    return status;
}

static ct_status write_message(const making *m, const char *name, const ProtobufCMessage *message)
{
    ct_text t = { 0 };
    ct_status status;

    ct_text_add(&t, "# Made by cortado new --from=%s --data=%s\n", ct_options_text(m->o, "from"),
                ct_options_text(m->o, "data"));
    status = ct_prototxt_write(message, &t);
    if (status == CT_OK) status = write_file(m, name, t.text, t.length);
    ct_text_destroy(&t);
    return status;
}

/* The mean that the net wants lies with it: the set's own, or one that is made now. */
static ct_status make_mean(const making *m, const char *mean, const char *called)
{
    const ct_convert_options o = { .from = m->set.train, .to = mean, .called = called };
    char *data = NULL;
    size_t size;
    ct_status status;

    if (m->set.mean == NULL) return ct_convert_mean(&o);
    CT_TRY(ct_settings_read(m->set.mean, &data, &size));
    status = ct_file_write(mean, data, size);
    free(data);
    return status;
}

/* The net is made as `check` does, so that what does not fit is told now. */
static ct_status try_net(const making *m, ct_phase phase)
{
    ct_net_options o = { .phase = phase };
    ct_net *net = NULL;
    ct_status status;

    ct_net_options_alone(&o);
    status = ct_net_create(m->net, &o, &net);
    ct_net_destroy(net);
    if (status == CT_OK) return CT_OK;
    if (m->set.kind == CT_NEW_BOXES)
        return CT_FAIL(CT_ERR_CONFIG, "%s does not fit the images of %s",
                       ct_options_text(m->o, "from"), ct_options_text(m->o, "data"));
    if (m->set.kind != CT_NEW_PICTURES)
        return CT_FAIL(CT_ERR_CONFIG, "%s does not fit the text of %s",
                       ct_options_text(m->o, "from"), ct_options_text(m->o, "data"));
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s does not fit pictures of %s: convert them to another size, by --resize",
                   ct_options_text(m->o, "from"), ct_shape_str(&m->set.shape).text);
}

static ct_status fit_mean(making *m)
{
    char *mean = NULL, *called = NULL;
    ct_status status = path_in(m->temporary, CT_MEAN_FILE, &mean);

    if (status == CT_OK) status = path_in(m->to, CT_MEAN_FILE, &called);
    if (status == CT_OK) status = make_mean(m, mean, called);
    if (status == CT_OK) status = ct_new_set_mean(m->net, mean);
    free(mean);
    free(called);
    return status;
}

static ct_status fit(making *m)
{
    CT_TRY(ct_new_fit_net(m->net, &m->set, ct_options_text(m->o, "weights")));
    if (ct_new_wants_mean(m->net)) CT_TRY(fit_mean(m));
    CT_TRY(try_net(m, CT_TRAIN));
    if (m->set.test != NULL) CT_TRY(try_net(m, CT_TEST));
    CT_TRY(ct_new_fit_solver(m->solver, m->net, &m->set));
    return ct_new_fit_statistics(m->net, m->solver);
}

/* A path as a field of the solver. */
static ct_status set_path(making *m, const char *field, const char *path)
{
    ct_text quoted = { 0 };
    ct_status status;

    ct_prototxt_quote(path, &quoted);
    status = quoted.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a path")
                           : ct_prototxt_set(&m->solver->base, field, quoted.text, "new");
    ct_text_destroy(&quoted);
    return status;
}

/* Absolute ones, so that it runs from anywhere. */
static ct_status fit_paths(making *m)
{
    const char *weights = ct_options_text(m->o, "weights");
    char *path = NULL;
    ct_status status = path_in(m->to, CT_MEAN_FILE, &path);

    if (status == CT_OK) status = ct_new_set_mean(m->net, path);
    free(path);
    path = NULL;
    if (status == CT_OK) status = path_in(m->to, "train_val.prototxt", &path);
    if (status == CT_OK) status = set_path(m, "net", path);
    free(path);
    path = NULL;
    if (status == CT_OK) status = path_in(m->to, "snapshot", &path);
    if (status == CT_OK) status = set_path(m, "snapshot_prefix", path);
    free(path);
    if ((status != CT_OK) || (weights == NULL)) return status;
    path = realpath(weights, NULL);
    if (path == NULL)
        return CT_FAIL(CT_ERR_IO, "--weights=%s: %s", weights, ct_path_why(weights, errno).text);
    status = set_path(m, "weights", path);
    free(path);
    return status;
}

static const char job_head[] =
    "#!/bin/bash\n"
    "# A training job, made by cortado new: sbatch train.sbatch\n"
    "#SBATCH --job-name=cortado\n"
    "#SBATCH --nodes=1\n"
    "#SBATCH --ntasks-per-node=1         # a rank per socket or NUMA domain\n"
    "#SBATCH --cpus-per-task=8           # its OpenMP threads\n"
    "#SBATCH --time=04:00:00\n"
    "#SBATCH --signal=USR1@300           # 300 s before the end: snapshot, exit 75\n"
    "#SBATCH --requeue\n"
    "#SBATCH --open-mode=append\n\n"
    "export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}\n"
    "export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PLACES=cores OMP_PROC_BIND=close\n"
    "cortado=${CORTADO:-cortado}         # a path, where it is not installed\n\n";
static const char job_tail[] = "rc=$?\n"
                               "# stopped early: the job goes on from its snapshot\n"
                               "case $rc in 75 | 76) scontrol requeue \"$SLURM_JOB_ID\" ;; esac\n"
                               "exit $rc\n";

/* A shell's word. */
static void add_quoted(ct_text *t, const char *word)
{
    ct_text_add(t, "'");
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            ct_text_add(t, "'\\''");
        else
            ct_text_add_bytes(t, word, 1);
    }
    ct_text_add(t, "'");
}

static ct_status write_job(const making *m)
{
    ct_text t = { 0 };
    ct_status status;

    ct_text_add(&t, "%scd ", job_head);
    add_quoted(&t, m->to);
    ct_text_add(&t,
                " || exit 1\n"
                "srun --cpu-bind=cores --kill-on-bad-exit=1 \"$cortado\" train "
                "--solver=solver.prototxt --run=\"${RUN:-run}\" --snapshot=auto \"$@\"\n%s",
                job_tail);
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a job file")
                      : write_file(m, "train.sbatch", t.text, t.length);
    ct_text_destroy(&t);
    return status;
}

static ct_status write_deploy(const making *m)
{
    Ct__NetParameter *deploy = NULL;
    ct_shape sample, input;
    ct_status status;
    ct_why why;

    if (m->set.test == NULL) return CT_OK; /* nothing of it is in phase TEST */
    status = ct_net_sample_shape(m->net, &sample, &input, &why);
    if (status == CT_OK) status = ct_net_make_deploy(m->net, &sample, &input, &deploy);
    if (status == CT_OK) status = write_message(m, "deploy.prototxt", &deploy->base);
    if (deploy != NULL) ct__net_parameter__free_unpacked(deploy, NULL);
    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

static ct_status make(making *m)
{
    CT_TRY(fit(m));
    CT_TRY(fit_paths(m));
    CT_TRY(write_message(m, "train_val.prototxt", &m->net->base));
    CT_TRY(write_message(m, "solver.prototxt", &m->solver->base));
    CT_TRY(write_deploy(m));
    return write_job(m);
}

static ct_status fail_to(const making *m, int why)
{
    if ((why == EEXIST) || (why == ENOTEMPTY) || (why == ENOTDIR))
        return CT_FAIL(CT_ERR_CONFIG, "--to=%s: is there already; give a new folder",
                       ct_options_text(m->o, "to"));
    return CT_FAIL(CT_ERR_IO, "--to=%s: %s", ct_options_text(m->o, "to"),
                   ct_path_why(ct_options_text(m->o, "to"), why).text);
}

/* m->to: the absolute path of what is not there yet. */
static ct_status find_to(making *m)
{
    char *to = strdup(ct_options_text(m->o, "to")), *above = NULL;
    ct_status status = CT_OK;
    char *slash;

    if (to == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    for (size_t n = strlen(to); (n > 1) && (to[n - 1] == '/'); n--) to[n - 1] = '\0';
    slash = strrchr(to, '/');
    if (slash != NULL) *slash = '\0';
    above = realpath((slash == NULL) ? "." : (slash == to) ? "/" : to, NULL);
    if (above == NULL)
        status = fail_to(m, errno);
    else
        status = path_in(above, (slash == NULL) ? to : slash + 1, &m->to);
    free(above);
    free(to);
    return status;
}

/* Beside where it belongs, so that there is never a part of it. */
static ct_status make_folder(making *m)
{
    ct_text temporary = { 0 };
    struct stat st;

    CT_TRY(find_to(m));
    if (lstat(m->to, &st) == 0) return fail_to(m, EEXIST);
    ct_path_remove_leftovers(m->to);
    ct_path_add_own(&temporary, m->to, "tmp");
    if (temporary.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    m->temporary = temporary.text;
    return (mkdir(m->temporary, 0777) == 0) ? CT_OK : fail_to(m, errno);
}

static ct_status run(making *m)
{
    ct_new_kind kind;
    ct_status status;

    CT_TRY(find_model(m));
    CT_TRY(read_model(m));
    CT_TRY(ct_new_kind_of(m->net, &kind));
    CT_TRY(ct_new_set_read(ct_options_text(m->o, "data"), kind, ct_options_text(m->o, "tokenizer"),
                           ct_options_text(m->o, "pattern"), &m->set));
    CT_TRY(make_folder(m));
    status = make(m);
    if ((status == CT_OK) && (rename(m->temporary, m->to) != 0)) status = fail_to(m, errno);
    if (status != CT_OK)
        ct_path_remove(m->temporary);
    else
        CT_INFO("cortado train --solver=%s/solver.prototxt --run=DIR trains it",
                ct_options_text(m->o, "to"));
    return status;
}

ct_status ct_verb_new(ct_call *call)
{
    static const char *const needs[] = { "from", "data", "to" };
    making m = { .o = call->options };
    ct_status status;

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++)
        if (ct_options_text(call->options, needs[i]) == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "cortado new needs --%s", needs[i]);
    status = run(&m);
    ct_new_set_release(&m.set);
    if (m.net != NULL) ct__net_parameter__free_unpacked(m.net, NULL);
    if (m.solver != NULL) ct__solver_parameter__free_unpacked(m.solver, NULL);
    free(m.model);
    free(m.to);
    free(m.temporary);
    return status;
}
