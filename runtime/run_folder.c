#include "runtime/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file_lock.h"
#include "framework/base/log.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/reader.h"
#include "framework/data/writer.h"
#include "framework/net/net.h"
#include "framework/snapshot/set_files.h"
#include "framework/snapshot/snapshot.h"

static const char link_name[] = "latest", provenance_name[] = "run.json",
                  solver_name[] = "solver.prototxt";

/* "DIR" of "DIR//", on its own. */
static char *folder_of(const char *option)
{
    size_t n = strlen(option);

    while ((n > 1) && (option[n - 1] == '/')) n--;
    return strndup(option, n);
}

/* "FOLDER/NAME", freed by the caller; NULL: no memory, logged. */
static char *inside(const char *folder, const char *name)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/%s", folder, name);
    if (!t.failed) return t.text;
    ct_text_destroy(&t);
    (void)CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", folder);
    return NULL;
}

/* ---- a run that begins */

/* Where another job still keeps its run there, that is what is said. */
static ct_status refuse_folder(const char *path)
{
    char *log = inside(path, "log.txt");
    ct_status status = (log != NULL) ? ct_file_lock_ask(log) : CT_ERR_NOMEM;

    free(log);
    CT_TRY(status);
    return CT_FAIL(CT_ERR_CONFIG,
                   "--run=%s is there already: give another folder, go on with that run by "
                   "--snapshot=auto, or write over it by --overwrite",
                   path);
}

static ct_status make_folder(const char *path, bool may_be_there, bool *made_p)
{
    struct stat st;

    CT_TRY(ct_set_directories(path));
    *made_p = (mkdir(path, 0777) == 0);
    if (*made_p) return CT_OK;
    if (errno != EEXIST)
        return CT_FAIL(CT_ERR_IO, "--run=%s: cannot make the folder: %s", path, strerror(errno));
    if (!may_be_there) return refuse_folder(path);
    if ((stat(path, &st) == 0) && S_ISDIR(st.st_mode)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--run=%s: no folder", path);
}

static ct_status open_log(ct_run_folder *f)
{
    char *path = inside(f->path, "log.txt");
    int log = (path != NULL) ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    ct_status status = (path != NULL) ? CT_OK : CT_ERR_NOMEM;

    if ((path != NULL) && (log >= 0)) status = ct_file_lock(log, path);
    if ((status == CT_OK) && ((log < 0) || (!f->goes_on && (ftruncate(log, 0) != 0))))
        status = CT_FAIL(CT_ERR_IO, "--run=%s: cannot write log.txt: %s", f->path, strerror(errno));
    free(path);
    if (status != CT_OK) {
        if (log >= 0) close(log);
        return status;
    }
    f->log = log;
    ct_log_copy_to(f->log);
    return CT_OK;
}

/* On rank 0. */
static ct_status begin(const ct_options *o, ct_run_folder *f)
{
    bool resumes = (ct_options_text(o, "snapshot") != NULL);
    char *snapshots;
    int rc;

    f->path = folder_of(ct_options_text(o, "run"));
    if (f->path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the folder of the run");
    if (strcmp(ct_path_base(f->path), link_name) == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--run=%s: \"%s\" is the link to the run that began last: give another name",
                       f->path, link_name);
    CT_TRY(make_folder(f->path, resumes || ct_options_flag(o, "overwrite"), &f->made));
    f->goes_on = resumes && !f->made;
    CT_TRY(open_log(f));
    snapshots = inside(f->path, "snapshots");
    if (snapshots == NULL) return CT_ERR_NOMEM;
    rc = mkdir(snapshots, 0777);
    free(snapshots);
    if ((rc == 0) || (errno == EEXIST)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "--run=%s: cannot make the folder for snapshots: %s", f->path,
                   strerror(errno));
}

ct_status ct_run_folder_open(ct_call *call, ct_run_folder *f)
{
    const char *run = ct_options_text(call->options, "run");
    ct_text metrics = { 0 };
    ct_status status = CT_OK;

    *f = (ct_run_folder){ .log = -1 };
    if (run == NULL) return CT_OK;
    if (call->job->rank == 0) status = begin(call->options, f);
    CT_TRY(ct_job_share(call->job, status));
    ct_text_add(&metrics, "%s/metrics.jsonl", run);
    status = metrics.failed
                 ? CT_FAIL(CT_ERR_NOMEM, "no memory for the folder of the run")
                 : ct_options_take(call->options, "train", "metrics", metrics.text, "--run");
    ct_text_destroy(&metrics);
    return status;
}

static ct_status write_message(const char *folder, const char *name, const ProtobufCMessage *m)
{
    char *path = inside(folder, name);
    ct_text t = { 0 };
    ct_status status = (path != NULL) ? ct_prototxt_write(m, &t) : CT_ERR_NOMEM;

    if (status == CT_OK) status = ct_file_write(path, (t.text != NULL) ? t.text : "", t.length);
    ct_text_destroy(&t);
    free(path);
    return status;
}

static ct_status write_provenance(const char *folder, const char *provenance)
{
    char *path = inside(folder, provenance_name);
    ct_text t = { 0 };
    ct_status status = CT_ERR_NOMEM;

    ct_text_add(&t, "%s\n", provenance);
    if ((path != NULL) && !t.failed) status = ct_file_write(path, t.text, t.length);
    ct_text_destroy(&t);
    free(path);
    return status;
}

/* FOLDER/../latest -> FOLDER. What has the name and is no link stays, and a run goes on without. */
static ct_status link_latest(const char *folder)
{
    const char *name = ct_path_base(folder);
    ct_text to = { 0 }, temp = { 0 };
    ct_status status = CT_OK;
    struct stat st;

    ct_text_add(&to, "%.*s%s", (int)(name - folder), folder, link_name);
    ct_path_add_own(&temp, to.text, "tmp");
    if (to.failed || temp.failed)
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a link");
    else if ((lstat(to.text, &st) == 0) && !S_ISLNK(st.st_mode))
        CT_WARN("%s is no link, and so does not lead to this run", to.text);
    else if ((symlink(name, temp.text) != 0) || (rename(temp.text, to.text) != 0))
        CT_WARN("%s does not lead to this run: %s", to.text, strerror(errno));
    ct_text_destroy(&to);
    ct_text_destroy(&temp);
    return status;
}

static const Ct__NetParameter *tested_net(const ct_config *c)
{
    return (c->solver->n_test_net_param > 0) ? c->solver->test_net_param[0] : c->net;
}

/* Of nets of samples. */
static ct_status write_deploy(const char *folder, const Ct__NetParameter *net)
{
    Ct__NetParameter *deploy = NULL;
    ct_shape sample, input;
    ct_why why;
    ct_status status = ct_net_sample_shape(net, &sample, &input, &why);

    if (status == CT_OK) status = ct_net_make_deploy(net, &sample, &input, &deploy);
    if (status == CT_OK) status = write_message(folder, CT_RUN_DEPLOY, &deploy->base);
    if (deploy != NULL) ct__net_parameter__free_unpacked(deploy, NULL);
    return (status == CT_UNSUPPORTED) ? CT_OK : status;
}

/* A run that goes on keeps what it began with; one that was killed before may lack files. */
static bool wants(const ct_run_folder *f, const char *name)
{
    char *path = f->goes_on ? inside(f->path, name) : NULL;
    bool there = (path != NULL) && (access(path, F_OK) == 0);

    free(path);
    return !there;
}

static ct_status describe(const ct_run_folder *f, const ct_config *c, const char *provenance)
{
    if (wants(f, provenance_name)) CT_TRY(write_provenance(f->path, provenance));
    if (wants(f, solver_name)) CT_TRY(write_message(f->path, solver_name, &c->solver->base));
    if (wants(f, CT_RUN_NET)) CT_TRY(write_message(f->path, CT_RUN_NET, &tested_net(c)->base));
    if (wants(f, CT_RUN_DEPLOY)) CT_TRY(write_deploy(f->path, tested_net(c)));
    CT_TRY(link_latest(f->path));
    CT_INFO("this run is kept in %s", f->path);
    return CT_OK;
}

ct_status ct_run_folder_describe(ct_call *call, ct_run_folder *f, const ct_config *c,
                                 const char *provenance)
{
    ct_status status = CT_OK;

    if (ct_options_text(call->options, "run") == NULL) return CT_OK;
    if (call->job->rank == 0) status = describe(f, c, provenance);
    return ct_job_share(call->job, status);
}

void ct_run_folder_close(ct_run_folder *f, bool begun)
{
    if (f->log >= 0) {
        ct_log_copy_to(-1);
        close(f->log);
    }
    if (f->made && !begun) {
        char *snapshots = inside(f->path, "snapshots");

        if (snapshots != NULL) ct_path_remove(snapshots);
        free(snapshots);
        ct_path_remove(f->path);
    }
    free(f->path);
    *f = (ct_run_folder){ .log = -1 };
}

/* ---- a run that is used */

ct_status ct_run_folder_weights(const char *folder, char **file_p)
{
    ct_text prefix = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&prefix, "%s" CT_CONFIG_RUN_PREFIX, folder);
    if (prefix.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", folder);
    if (status == CT_OK) status = ct_snapshot_best_weights(prefix.text, file_p);
    if ((status == CT_OK) && (*file_p == NULL))
        status = ct_snapshot_newest_weights(prefix.text, file_p);
    ct_text_destroy(&prefix);
    return status;
}

/* Its weights; malloc'ed. On rank 0. */
static ct_status find_weights(const char *folder, const char *net, char **file_p)
{
    char *path = inside(folder, net);
    ct_status status = (path != NULL) ? CT_OK : CT_ERR_NOMEM;

    if ((status == CT_OK) && (access(path, R_OK) != 0))
        status =
            CT_FAIL(CT_ERR_IO, "--run=%s: %s: %s; expected the folder of a training with --run",
                    folder, path, ct_path_why(path, errno).text);
    if (status == CT_OK) status = ct_run_folder_weights(folder, file_p);
    if ((status == CT_OK) && (*file_p == NULL))
        status =
            CT_FAIL(CT_ERR_IO, "--run=%s: no complete snapshot in %s/snapshots", folder, folder);
    free(path);
    return status;
}

ct_status ct_run_folder_take(ct_call *call, const char *net)
{
    const char *run = ct_options_text(call->options, "run"), *verb = call->argv[0];
    char *folder, *model = NULL;
    void *weights = NULL;
    size_t size = 0;
    ct_status status = CT_OK;

    if (run == NULL) return CT_OK;
    folder = folder_of(run);
    if (folder == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the folder of the run");
    if (call->job->rank == 0) {
        char *file = NULL;

        status = find_weights(folder, net, &file);
        weights = file;
        size = (file != NULL) ? strlen(file) + 1 : 0;
    }
    CT_TRY_GOTO(status, out, ct_job_share(call->job, status));
    CT_TRY_GOTO(status, out, ct_job_broadcast(call->job, &weights, &size));
    model = inside(folder, net);
    if (model == NULL) CT_TRY_GOTO(status, out, CT_ERR_NOMEM);
    CT_TRY_GOTO(status, out, ct_options_take(call->options, verb, "model", model, "--run"));
    CT_TRY_GOTO(status, out, ct_options_take(call->options, verb, "weights", weights, "--run"));
    CT_INFO("--run=%s: weights %s", folder, (const char *)weights);
out:
    free(weights);
    free(model);
    free(folder);
    return status;
}
