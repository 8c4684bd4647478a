/** @file sweep.h  What the files of `cortado sweep` share: a sweep as its file asks for it, and its
 * runs.
 *
 * The folder of a sweep has all its state: sweep.prototxt, the file as it was; runs/NNNN, a folder
 * of `cortado train --run` each, with its log and, where it diverged, runs/NNNN.diverged. The file
 * runs/NNNN.lock is locked while a process of the run lives, also one whose sweep was killed. What
 * a run was given follows from the file and its number alone, and what came of it is read from its
 * metrics. So a sweep that goes on repeats nothing, and its results do not depend on how many runs
 * go at once.
 */
#ifndef CT_SWEEP_H
#define CT_SWEEP_H

#include "cli/scale/spawn.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/prototxt.h"

enum { CT_SWEEP_MAX_RUN = 9999, CT_SWEEP_MAX_ROUND = 32 };

/** What came of a run, or of a round of it. */
typedef struct ct_sweep_result {
    bool done, diverged;
    int64_t iteration; /* its last                              */
    bool patience;     /* which ended it                        */
    bool tested;       /* there is a best test                  */
    double value;      /* of the metric, the best of its tests */
    int64_t best;      /* its iteration                         */
} ct_sweep_result;

typedef struct ct_sweep_run {
    char **value; /* [fields that vary], as --set takes them */
    ct_sweep_result result;
    int round; /* the last one that it was in, from 0 on */
} ct_sweep_run;

typedef struct ct_sweep {
    char *file, *folder, *solver; /* solver: its path */
    char self[512];               /* the program that runs */
    Ct__SweepParameter *param;
    ct_source_map *map;
    int64_t seed; /* random_seed of all runs; -1: the solver says it */
    int n_run;
    ct_sweep_run *run;
    int n_round; /* 1 unless by halves */
    int64_t
        stop[CT_SWEEP_MAX_ROUND]; /* iterations at which a round ends; 0: where the solver ends */
    bool rises;                   /* more of the metric is better; known with the first result */
} ct_sweep;

/* ---- sweep_lock.c */

/** Waits until no process of run i lives any more, with a line that says so. CT_STOPPED: a signal.
 * CT_ERR_CONFIG: one lives after five minutes. */
ct_status ct_sweep_wait(const ct_sweep *s, int i);
/** Locks run i for a process that inherits *fd_p; 0 where the file system has no locks.
 * CT_ERR_CONFIG: another sweep has it. CT_ERR_IO. */
ct_status ct_sweep_lock(const ct_sweep *s, int i, int *fd_p);
/** The sweep has its folder to itself, or with others of one run each. Open until
 *  ct_sweep_unlock(), or until the process ends; 0 where the file system has no locks.
 *  CT_ERR_CONFIG: another sweep works there. CT_ERR_IO. */
ct_status ct_sweep_lock_folder(const ct_sweep *s, bool one_run, int *fd_p);
/** The lock is free once its processes have ended, too. */
void ct_sweep_unlock(int *fd);

/* ---- sweep_plan.c */

/** Reads and checks a sweep, and makes its runs' settings. s is zeroed. CT_ERR_CONFIG, CT_ERR_IO.
 */
ct_status ct_sweep_read(const char *file, const char *folder, ct_sweep *s);
void ct_sweep_destroy(ct_sweep *s);

/* ---- sweep_runs.c */

/** Makes the folder, or finds the same sweep there. CT_ERR_CONFIG: it is of another one. */
ct_status ct_sweep_open(ct_sweep *s);
/** Reads what is there of run i, up to the end of a round. */
ct_status ct_sweep_look(ct_sweep *s, int i, int round);
/** Runs those of the list that have no result of this round yet, after the last process of a sweep
 * that was killed has ended. CT_STOPPED: a signal, or a run that stopped with a snapshot.
 * CT_ERR_CONFIG: another sweep has a run. */
ct_status ct_sweep_run_list(ct_sweep *s, const int *list, int n, int round);

/* ---- sweep_table.c */

/** Sorts runs: who came further first, then by the metric, then by number. */
void ct_sweep_rank(const ct_sweep *s, int *list, int n);
/** Prints the ranked table, and writes table.csv and table.json into the folder. CT_ERR_IO. */
ct_status ct_sweep_report(const ct_sweep *s);

#endif
