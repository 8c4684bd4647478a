/** @file owner.h  One training at a time writes the snapshots of a prefix.
 *
 * The owner is the file PREFIX.owner, which says who it is. It comes into being whole: a file of
 * another name is written, then linked to this one, which only one of several can do, on NFS too.
 * The owner's thread touches the file every few seconds.
 *
 * An owner that is gone blocks nobody. It is gone where its process no longer runs, as far as this
 * process can see its processes. It is gone where it is an earlier start of the same SLURM job,
 * which was requeued. It is gone where its file was not touched for the limit. Who cannot tell at
 * once waits until the file is touched or the limit is over. Ages are compared by the file server's
 * clock.
 */
#ifndef CT_SNAPSHOT_OWNER_H
#define CT_SNAPSHOT_OWNER_H

#include "framework/base/status.h"
#include "framework/base/text.h"

typedef struct ct_owner_id {
    char host[64];
    char space[96]; /* boot and process name space: where `process` means something */
    long process;
    unsigned long long
        start;      /* of the process, in ticks since the boot: its number may come again */
    char job[32];   /* SLURM's; "": none        */
    int restart;    /* how often it was requeued */
    char since[32]; /* for people                */
} ct_owner_id;

typedef struct ct_owner_options {
    const ct_owner_id *id;                        /* NULL: this process */
    double touch_s;                               /* 0: 3 s   */
    double limit_s;                               /* 0: 60 s  */
    void (*waiting)(void *ctx, const char *what); /* called while it waits; may be NULL */
    void *ctx;
} ct_owner_options;

typedef struct ct_owner ct_owner;

/** This process. */
void ct_owner_self(ct_owner_id *id_p);
/** Appends "PREFIX.WHAT.HOST.SPACE.PROCESS.START": a file that this process makes beside a prefix
 * and removes at once. Of WHAT "owner" and "probe", who takes the prefix removes those that killed
 *  processes of its host left. */
void ct_owner_temporary(ct_text *name, const char *prefix, const char *what);
/** Takes the prefix, whose directory must be there. Rank 0 calls it. CT_ERR_CONFIG: another
 *  training has it, which is named. CT_ERR_IO. */
ct_status ct_owner_take(const char *prefix, const ct_owner_options *options, ct_owner **owner_p);
/** Gives it back; NULL allowed. */
void ct_owner_release(ct_owner *o);
/** Removes the file of what this process owns, or is about to: for an end in a signal handler,
 * beside ct_ending_clean(). */
void ct_owner_clean(void);

#endif
