/** @file spawn.h  Child processes of a study: a few at once, each with a log and a time limit.
 *
 * Every child leads a process group of its own, so that a launcher's own children end with it. The
 * signals INT and TERM are waited for, not caught: they end the children and then the study, with
 * CT_STOPPED, and everything that was finished stays.
 */
#ifndef CT_SPAWN_H
#define CT_SPAWN_H

#include <signal.h>
#include <sys/types.h>

#include "framework/base/text.h"

/** Words of a command; zero-initialise. */
typedef struct ct_argv {
    char **word; /* NULL-terminated; NULL where there are none */
    int n;
    bool failed; /* out of memory; checked by ct_children_run */
} ct_argv;

void ct_argv_add(ct_argv *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ct_argv_destroy(ct_argv *w);
/** Appends the words as one would type them, quoted where a shell needs it. */
void ct_argv_print(const ct_argv *w, ct_text *out);

typedef struct ct_child {
    ct_argv command;
    ct_argv env;     /* "NAME=VALUE" on top of the study's own environment               */
    char *log;       /* where both streams go; owned                                     */
    double limit_s;  /* then it is killed; 0: no limit                                   */
    double grace_s;  /* between TERM and KILL; 0: 5                                      */
    double memory;   /* bytes it is expected to need                                     */
    int kept;        /* an open file that it inherits, above 2; 0: none                  */
    int exit_code;   /* out: 128 + signal where one ended it, 127 where it did not start */
    bool timed_out;  /* out                                                              */
    double wall_s;   /* out                                                              */
    double peak_rss; /* out: bytes of its largest process that it waited for             */
    /* private */
    pid_t pid;
    double start_s, killed_s;
    int state;
} ct_child;

void ct_child_destroy(ct_child *c);

/** Holds INT and TERM back, so that none ends the study between two runs of children; *before gets
 *  the mask that ct_stop_signals_release() puts back. Children that start meanwhile get them. */
void ct_stop_signals_hold(sigset_t *before);
void ct_stop_signals_release(const sigset_t *before);

/** Waits 50 ms, with INT and TERM held. CT_STOPPED: one of them is there. */
ct_status ct_stop_signals_nap(void);

/** Called in the study's own process as each child ends, and before, when it starts. */
typedef ct_status (*ct_child_fn)(void *ctx, int i);

/** Runs all of them in order, up to n_job at once and while the expected memory of those that run
 *  stays below `memory` bytes (one always runs). started may be NULL. CT_STOPPED after a signal;
 *  the status of a callback that failed, after ending the others. */
ct_status ct_children_run(ct_child *const *child, int n, int n_job, double memory,
                          ct_child_fn started, ct_child_fn ended, void *ctx);

#endif
