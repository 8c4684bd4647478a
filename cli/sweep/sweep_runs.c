/* The runs of a sweep: their folders, their processes, what came of them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/sweep/sweep.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/snapshot/set_files.h"
#include "runtime/run_folder.h"

enum { EXIT_DIVERGED = 5, EXIT_STOPPED = 75, EXIT_NOT_BEGUN = 76 };

/* "FOLDER/runs/NNNN" and more; malloc'ed, NULL: no memory, logged. */
static char *path_of(const ct_sweep *s, int i, const char *more)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s/runs/%04d%s", s->folder, i + 1, more);
    if (!t.failed) return t.text;
    ct_text_destroy(&t);
    (void)CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", s->folder);
    return NULL;
}

static bool is_there(const ct_sweep *s, int i, const char *more)
{
    char *path = path_of(s, i, more);
    bool there = (path != NULL) && (access(path, F_OK) == 0);

    free(path);
    return there;
}

/* ---- the folder */

/* The sweep as text, but for how many runs go at once. */
static ct_status describe(const ct_sweep *s, ct_text *out)
{
    Ct__SweepParameter p = *s->param;

    p.has_at_once = false;
    return ct_prototxt_write(&p.base, out);
}

static ct_status compare(const ct_sweep *s, const char *path, const ct_text *want)
{
    char *have = calloc(want->length + 2, 1);
    FILE *f;
    size_t n;
    bool same;

    if (have == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path);
    f = fopen(path, "re");
    n = (f != NULL) ? fread(have, 1, want->length + 1, f) : 0;
    same = (n == want->length) && (memcmp(have, want->text, n) == 0);
    if (f != NULL) fclose(f);
    free(have);
    if (same) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "--to=%s is of another sweep: %s is not what %s says now; give another folder",
                   s->folder, path, s->file);
}

/* Several tasks of a job array may come here at once: each has a file of its own, and the first to
 * link it under the name has said what the folder is of. */
static ct_status describe_folder(const char *path, const ct_text *text)
{
    ct_text own = { 0 };
    ct_status status;

    ct_path_add_own(&own, path, "tmp");
    status = own.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a file name")
                        : ct_file_write(own.text, text->text, text->length);
    if (status == CT_OK) {
        bool linked = (link(own.text, path) == 0);
        int why = errno;

        if (!linked && ((why == EPERM) || (why == ENOSYS) || (why == ENOTSUP)))
            status = ct_file_commit(own.text, path); /* a file system without links */
        else if (!linked && (why != EEXIST))
            status = CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(why));
        (void)unlink(own.text);
    }
    ct_text_destroy(&own);
    return status;
}

ct_status ct_sweep_open(ct_sweep *s)
{
    ct_text path = { 0 }, text = { 0 };
    ct_status status;

    ct_text_add(&path, "%s/runs/", s->folder);
    if (path.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    status = ct_set_directories(path.text);
    path.length = 0;
    ct_text_add(&path, "%s/sweep.prototxt", s->folder);
    if (status == CT_OK) status = describe(s, &text);
    if ((status == CT_OK) && (path.failed || text.failed))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", s->folder);
    if ((status == CT_OK) && (access(path.text, F_OK) != 0))
        status = describe_folder(path.text, &text);
    if (status == CT_OK) status = compare(s, path.text, &text);
    ct_text_destroy(&text);
    ct_text_destroy(&path);
    return status;
}

/* ---- what came of a run */

typedef struct looking {
    ct_sweep *s;
    ct_sweep_result *result;
    int64_t stop; /* of the round; 0: where the solver ends */
} looking;

/* A "done" event of this round, which a run that goes on has once a round. */
static ct_status take_event(void *ctx, const char *file, int line, json_t *e)
{
    looking *l = ctx;
    const char *event = ct_json_text(e, "event", ""), *by = ct_json_text(e, "ended_by", "");
    int64_t iteration = ct_json_int(e, "iter", -1);
    double value = ct_json_number(e, "best.value", NAN);

    (void)file;
    (void)line;
    if ((strcmp(event, "done") != 0) || (strcmp(ct_json_text(e, "status", ""), "finished") != 0))
        return CT_OK;
    if ((l->stop > 0) && (iteration != l->stop) &&
        ((strcmp(by, "patience") != 0) || (iteration > l->stop)))
        return CT_OK;
    *l->result = (ct_sweep_result){ .done = true,
                                    .iteration = iteration,
                                    .patience = (strcmp(by, "patience") == 0),
                                    .tested = isfinite(value),
                                    .value = value,
                                    .best = ct_json_int(e, "best.iter", 0) };
    if (l->result->tested)
        l->s->rises = (strcmp(ct_json_text(e, "best.direction", ""), "HIGHER") == 0);
    return CT_OK;
}

ct_status ct_sweep_look(ct_sweep *s, int i, int round)
{
    looking l = { s, &s->run[i].result, s->stop[round] };
    char *metrics = path_of(s, i, "/metrics.jsonl");
    ct_status status = CT_OK;

    if (metrics == NULL) return CT_ERR_NOMEM;
    s->run[i].round = round;
    s->run[i].result = (ct_sweep_result){ .diverged = is_there(s, i, ".diverged") };
    if (access(metrics, F_OK) == 0) status = ct_json_lines(metrics, take_event, &l);
    s->run[i].result.done = s->run[i].result.done || s->run[i].result.diverged;
    free(metrics);
    return status;
}

/* ---- processes */

/* In a SLURM allocation a step of it; one rank elsewhere needs no launcher. */
static void add_launcher(const ct_sweep *s, ct_argv *w)
{
    const char *mpirun = getenv("MPIRUN"), *flags = getenv("MPIRUN_FLAGS");
    int ranks = s->param->ranks;

    if (getenv("SLURM_JOB_ID") != NULL) {
        ct_argv_add(w, "srun");
        ct_argv_add(w, "--exact");
        ct_argv_add(w, "--ntasks=%d", ranks);
        ct_argv_add(w, "--cpus-per-task=%d", s->param->threads);
        ct_argv_add(w, "--kill-on-bad-exit=1");
    } else if (ranks > 1) {
        char *copy = strdup((flags != NULL) ? flags : ""), *word;

        ct_argv_add(w, "%s", (mpirun != NULL) ? mpirun : "mpirun");
        for (char *rest = copy; (word = strsep(&rest, " ")) != NULL;)
            if (word[0] != '\0') ct_argv_add(w, "%s", word);
        free(copy);
        ct_argv_add(w, "-np");
        ct_argv_add(w, "%d", ranks);
    }
}

static void add_settings(const ct_sweep *s, int i, int round, ct_argv *w)
{
    static const char *const direction[] = { NULL, "LOWER", "HIGHER" };
    const Ct__SweepParameter *p = s->param;

    if (s->seed >= 0) ct_argv_add(w, "--set=random_seed=%" PRId64, s->seed);
    ct_argv_add(w, "--set=best.metric=%s", p->metric);
    if (direction[p->direction] != NULL)
        ct_argv_add(w, "--set=best.direction=%s", direction[p->direction]);
    if (p->has_test_net) ct_argv_add(w, "--set=best.test_net=%d", p->test_net);
    for (size_t k = 0; k < p->n_set; k++) ct_argv_add(w, "--set=%s", p->set[k]);
    for (size_t k = 0; k < p->n_vary; k++)
        ct_argv_add(w, "--set=%s=%s", p->vary[k]->field, s->run[i].value[k]);
    if (s->stop[round] > 0) ct_argv_add(w, "--set=stop_iter=%" PRId64, s->stop[round]);
}

/* A folder that was begun and not described, since its run was killed, is written anew. */
static ct_status fill_child(const ct_sweep *s, int i, int round, ct_child *c)
{
    ct_argv *w = &c->command;
    char *folder = path_of(s, i, "");

    *c = (ct_child){ .log = path_of(s, i, ".log"), .grace_s = 300.0 }; /* for a snapshot */
    if ((folder == NULL) || (c->log == NULL)) {
        free(folder);
        return CT_ERR_NOMEM;
    }
    add_launcher(s, w);
    ct_argv_add(w, "%s", s->self);
    ct_argv_add(w, "train");
    ct_argv_add(w, "--solver=%s", s->solver);
    ct_argv_add(w, "--run=%s", folder);
    ct_argv_add(w, is_there(s, i, "/" CT_RUN_NET) ? "--snapshot=auto" : "--overwrite");
    ct_argv_add(w, "--threads=%d", s->param->threads);
    add_settings(s, i, round, w);
    free(folder);
    return CT_OK;
}

typedef struct running {
    ct_sweep *s;
    const int *run; /* which run each child is */
    ct_child **child;
    int round;
} running;

static ct_status tell(void *ctx, int k)
{
    const running *r = ctx;
    ct_text t = { 0 };

    CT_TRY(ct_sweep_lock(r->s, r->run[k], &r->child[k]->kept));
    for (size_t i = 0; i < r->s->param->n_vary; i++)
        ct_text_add(&t, " %s=%s", r->s->param->vary[i]->field, r->s->run[r->run[k]].value[i]);
    CT_INFO("run %04d:%s", r->run[k] + 1, (t.text != NULL) ? t.text : "");
    ct_text_destroy(&t);
    return CT_OK;
}

static ct_status mark_diverged(const ct_sweep *s, int i)
{
    char *path = path_of(s, i, ".diverged");
    ct_status status = (path != NULL) ? ct_file_write(path, "", 0) : CT_ERR_NOMEM;

    free(path);
    return status;
}

/* A run that diverges is a result; any other error ends the sweep, which can go on later. */
static ct_status take(void *ctx, int k)
{
    running *r = ctx;
    ct_child *c = r->child[k];
    int i = r->run[k];

    ct_sweep_unlock(&c->kept);
    if ((c->exit_code == EXIT_STOPPED) || (c->exit_code == EXIT_NOT_BEGUN)) return CT_STOPPED;
    if (c->exit_code == EXIT_DIVERGED) CT_TRY(mark_diverged(r->s, i));
    if ((c->exit_code != 0) && (c->exit_code != EXIT_DIVERGED))
        return CT_FAIL((c->exit_code == 2) ? CT_ERR_CONFIG : CT_ERR_IO,
                       "run %04d ended with exit code %d; %s says why. Runs that ended before it "
                       "count when the sweep goes on",
                       i + 1, c->exit_code, c->log);
    CT_TRY(ct_sweep_look(r->s, i, r->round));
    if (!r->s->run[i].result.done)
        return CT_FAIL(CT_ERR_DATA, "run %04d ended, but its metrics do not say so: %s", i + 1,
                       c->log);
    if (r->s->run[i].result.diverged)
        CT_INFO("run %04d: diverged", i + 1);
    else
        CT_INFO("run %04d: %s %g after %" PRId64 " iterations", i + 1, r->s->param->metric,
                r->s->run[i].result.value, r->s->run[i].result.iteration);
    return CT_OK;
}

ct_status ct_sweep_run_list(ct_sweep *s, const int *list, int n, int round)
{
    ct_child *child = calloc((size_t)n + 1, sizeof(*child));
    ct_child **of = calloc((size_t)n + 1, sizeof(*of));
    int *run = calloc((size_t)n + 1, sizeof(*run)), n_child = 0;
    ct_status status = CT_OK;

    if ((child == NULL) || (of == NULL) || (run == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for %d runs", n);
    for (int k = 0; (k < n) && (status == CT_OK); k++) {
        status = ct_sweep_wait(s, list[k]);
        if (status == CT_OK) status = ct_sweep_look(s, list[k], round);
        if ((status != CT_OK) || s->run[list[k]].result.done) continue;
        of[n_child] = &child[n_child];
        run[n_child] = list[k];
        status = fill_child(s, list[k], round, &child[n_child++]);
    }
    if ((status == CT_OK) && (n_child < n))
        CT_INFO("%d of %d runs are done already", n - n_child, n);
    if (status == CT_OK)
        status = ct_children_run(of, n_child, s->param->at_once, INFINITY, tell, take,
                                 &(running){ s, run, of, round });
    for (int k = 0; k < n_child; k++) {
        ct_sweep_unlock(&child[k].kept);
        ct_child_destroy(&child[k]);
    }
    free(child);
    free(of);
    free(run);
    return status;
}
