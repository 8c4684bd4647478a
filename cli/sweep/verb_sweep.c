/* cortado sweep: trainings of one solver with settings that vary, ranked by a metric. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cli/scale/scale.h"
#include "cli/sweep/sweep.h"
#include "cli/verb.h"
#include "framework/base/file.h"

/* ---- rounds */

/* Of the list those that go on: the best, as many as one of `reduce` makes. What diverged does not;
 * what patience ended stays, with nothing more to do. */
static int keep_best(const ct_sweep *s, int *list, int n)
{
    int most = (n + s->param->reduce - 1) / s->param->reduce, kept = 0;

    ct_sweep_rank(s, list, n);
    for (int k = 0; (k < n) && (k < most); k++)
        if (!s->run[list[k]].result.diverged) list[kept++] = list[k];
    return kept;
}

static bool is_complete(const ct_sweep *s, const int *list, int n)
{
    for (int k = 0; k < n; k++)
        if (!s->run[list[k]].result.done) return false;
    return true;
}

/* table: starts nothing. */
static ct_status run_rounds(ct_sweep *s, int *list, bool table)
{
    int n = s->n_run;

    for (int k = 0; k < n; k++) list[k] = k;
    for (int round = 0; (round < s->n_round) && (n > 0); round++) {
        if (s->n_round > 1)
            CT_INFO("round %d of %d: %d runs to iteration %lld", round + 1, s->n_round, n,
                    (long long)s->stop[round]);
        if (!table) CT_TRY(ct_sweep_run_list(s, list, n, round));
        for (int k = 0; table && (k < n); k++) CT_TRY(ct_sweep_look(s, list[k], round));
        if (!is_complete(s, list, n)) return CT_OK;
        if (round + 1 < s->n_round) n = keep_best(s, list, n);
    }
    return CT_OK;
}

/* ---- a job array */

static const char job_head[] =
    "#!/bin/bash\n"
    "# A sweep of %d runs, made by cortado sweep: sbatch, then --table shows how far it is.\n"
    "#SBATCH --job-name=cortado-sweep\n"
    "#SBATCH --array=1-%d%%%d             # so many of them at once\n"
    "#SBATCH --nodes=1\n"
    "#SBATCH --ntasks=%d\n"
    "#SBATCH --cpus-per-task=%d          # OpenMP threads of a rank\n"
    "#SBATCH --time=04:00:00\n"
    "#SBATCH --signal=B:TERM@300         # 300 s before the end: snapshot, exit 75\n"
    "#SBATCH --requeue\n"
    "#SBATCH --open-mode=append\n\n"
    "cortado=${CORTADO:-cortado}         # a path, where it is not installed\n"
    "\"$cortado\" sweep ";
/* bash gives signals on when a child is waited for so */
static const char job_tail[] = " --only=\"$SLURM_ARRAY_TASK_ID\" \"$@\" &\n"
                               "child=$!\n"
                               "trap 'kill -TERM $child' TERM\n"
                               "wait $child\n"
                               "rc=$?\n"
                               "[ $rc -le 128 ] || { wait $child; rc=$?; }\n"
                               "# stopped early: the run goes on from its snapshot\n"
                               "case $rc in 75 | 76) scontrol requeue \"$SLURM_JOB_ID\" ;; esac\n"
                               "exit $rc\n";

static ct_status write_array(const ct_sweep *s, const char *file)
{
    const Ct__SweepParameter *p = s->param;
    char *sweep = realpath(s->file, NULL), *folder = realpath(s->folder, NULL);
    ct_argv words = { 0 };
    ct_text t = { 0 };
    ct_status status;

    if ((sweep == NULL) || (folder == NULL))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a job file");
    else {
        ct_text_add(&t, job_head, s->n_run, s->n_run, p->at_once, p->ranks, p->threads);
        ct_argv_add(&words, "%s", sweep);
        ct_argv_add(&words, "--to=%s", folder);
        ct_argv_print(&words, &t);
        ct_text_add(&t, "%s", job_tail);
        status = (t.failed || words.failed) ? CT_FAIL(CT_ERR_NOMEM, "no memory for a job file")
                                            : ct_file_write(file, t.text, t.length);
    }
    if (status == CT_OK) CT_INFO("%s: a job array of %d runs", file, s->n_run);
    ct_argv_destroy(&words);
    ct_text_destroy(&t);
    free(sweep);
    free(folder);
    return status;
}

/* ---- what is asked */

/* Before the folder is made. */
static ct_status check_wish(const ct_sweep *s, const ct_options *o)
{
    const char *array = ct_options_text(o, "job_array");
    bool one = (ct_options_text(o, "only") != NULL);
    long long number = (long long)ct_options_count(o, "only", 1);

    if ((array != NULL) && (s->n_round > 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--job_array=%s: HALVING decides who goes on when all have "
                       "ended: run it in one allocation",
                       array);
    if (array != NULL) return ct_file_check_writable(array);
    if ((number < 1) || (number > s->n_run))
        return CT_FAIL(CT_ERR_CONFIG, "--only=%lld: the sweep has runs 1 to %d", number, s->n_run);
    if (one && (s->n_round > 1))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--only=%lld: HALVING decides who goes on when all have ended", number);
    return CT_OK;
}

static ct_status run_only(ct_sweep *s, int64_t number)
{
    int run = (int)number - 1;

    return ct_sweep_run_list(s, &run, 1, 0);
}

static ct_status run_all(ct_sweep *s, bool table)
{
    int *list = calloc((size_t)s->n_run, sizeof(*list));
    ct_status status;

    if (list == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d runs", s->n_run);
    status = run_rounds(s, list, table);
    if (status == CT_OK) status = ct_sweep_report(s);
    free(list);
    return status;
}

static ct_status sweep(ct_sweep *s, const ct_options *o)
{
    const char *array = ct_options_text(o, "job_array");

    CT_TRY(ct_scale_self(s->self, sizeof(s->self)));
    CT_TRY(ct_sweep_open(s));
    CT_INFO("%d runs of %s in %s, ranked by %s", s->n_run, s->solver, s->folder, s->param->metric);
    if (array != NULL) return write_array(s, array);
    if (ct_options_text(o, "only") != NULL) return run_only(s, ct_options_count(o, "only", 0));
    return run_all(s, ct_options_flag(o, "table"));
}

ct_status ct_verb_sweep(ct_call *call)
{
    const ct_options *o = call->options;
    const char *folder = ct_options_text(o, "to");
    ct_sweep s = { 0 };
    sigset_t before;
    int lock = 0;
    ct_status status;

    if (ct_options_n(o, "sweep") != 1)
        return CT_FAIL(CT_ERR_CONFIG, "cortado sweep: give the one file that says what varies");
    if (folder == NULL) return CT_FAIL(CT_ERR_CONFIG, "cortado sweep needs --to=DIR");
    ct_stop_signals_hold(&before);
    status = ct_sweep_read(ct_options_entry(o, "sweep", 0, NULL), folder, &s);
    if (status == CT_OK) status = check_wish(&s, o);
    if ((status == CT_OK) && !ct_options_flag(o, "table") &&
        (ct_options_text(o, "job_array") == NULL))
        status = ct_sweep_lock_folder(&s, ct_options_text(o, "only") != NULL, &lock);
    if (status == CT_OK) status = sweep(&s, o);
    ct_sweep_unlock(&lock);
    ct_sweep_destroy(&s);
    ct_stop_signals_release(&before);
    return status;
}
