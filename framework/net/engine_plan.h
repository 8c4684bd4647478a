/** @file engine_plan.h  Which engine computes what: found by timing, kept, replayed.
 *
 * A *row* says for one computation (operation, pass, shape, layouts: its key) which engine takes
 * it, and how long each took. Rows hold for one *machine*: CPU model, vector path, threads,
 * version. A text has rows of any number of machines:
 *
 *   cortado plan 1
 *   machine "AMD EPYC" avx512 threads 2 version "0.1.0-gabcdef0"
 *   conv forward n64 c3 … | blocked 0.812 gemm 1.9
 *   end 1
 *
 * The engine in use stands first; times in ms, "-" where not known. `end` counts the rows, so that
 * a text cut short is noticed.
 *
 * A row may also say how long something took that has no choice of engines, such as a batch of a
 * server (ct_engine_plan_keep()).
 *
 * In a job rank 0's rows, and what it times, are everyone's, among what all ranks have. Every
 * ct_engine_plan_agree() and ct_engine_plan_choose() is collective. So ranks must ask the same
 * questions in the same order, as nets of one prototxt do. Whether one is asked must not hang on
 * what a rank's processor or library can do.
 */
#ifndef CT_ENGINE_PLAN_H
#define CT_ENGINE_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "framework/base/status.h"
#include "framework/base/text.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CT_ENGINE_PLAN_ENGINES = 8, CT_ENGINE_PLAN_NAME = 48, CT_ENGINE_PLAN_KEY = 200 };

typedef struct ct_engine_plan_machine {
    char cpu[96], simd[16], version[64];
    int threads;
} ct_engine_plan_machine;

typedef enum {
    CT_ENGINE_PLAN_REPLAY, /* the row, else the static rule: nothing is timed */
    CT_ENGINE_PLAN_TIME,  /* the row, else the fastest by timing, which becomes a row             */
    CT_ENGINE_PLAN_SURVEY /* everything is timed and told, but the static rule decides            */
} ct_engine_plan_mode;

typedef struct ct_engine_plan_options {
    ct_engine_plan_machine machine;
    ct_engine_plan_mode mode;
    int rank, n_rank;
    /** Rank 0's bytes to everyone; needed with several ranks. */
    ct_status (*share)(void *ctx, void *data, size_t bytes);
    /** The least of any rank of each of n numbers; likewise. */
    ct_status (*least)(void *ctx, int *v, int n);
    void *share_ctx;            /* of both */
    double (*clock)(void *ctx); /* seconds; NULL: the real one */
    void *clock_ctx;
} ct_engine_plan_options;

typedef struct ct_engine_plan_engine {
    char name[CT_ENGINE_PLAN_NAME];
    double ms; /* < 0: not known */
} ct_engine_plan_engine;

typedef struct ct_engine_plan_entry {
    char key[CT_ENGINE_PLAN_KEY];
    int n;
    ct_engine_plan_engine
        engine[CT_ENGINE_PLAN_ENGINES]; /* the fastest, or the one to take, first */
    char layer[64];                     /* that asked first; "": nobody did       */
    char taken[CT_ENGINE_PLAN_NAME];    /* what it got                            */
    int n_asked;
} ct_engine_plan_entry;

/** What a computation can be done with. */
typedef struct ct_engine_plan_ask {
    const char *layer, *key;
    const char *name[CT_ENGINE_PLAN_ENGINES];
    int n, fixed;                /* of name; the one of the static rule */
    const struct ct_device *dev; /* where it runs, and scratch data lie; NULL: the CPU */
    /** Makes scratch data for all, from ct_engine_plan_scratch(). */
    ct_status (*prepare)(void *ctx);
    /** Runs engine i once on it. */
    ct_status (*run)(void *ctx, int i);
    void *ctx;
} ct_engine_plan_ask;

/** What happened so far, on rank 0. */
typedef struct ct_engine_plan_counts {
    int n_row;                          /* different computations asked for    */
    int n_replayed, n_timed, n_changed; /* of those; changed: another than the static rule's */
    double seconds;                     /* that timing took                    */
    size_t scratch;                     /* bytes, at most; none of it stays    */
} ct_engine_plan_counts;

typedef struct ct_engine_plan ct_engine_plan;

ct_status ct_engine_plan_create(const ct_engine_plan_options *o, ct_engine_plan **plan_p);
void ct_engine_plan_destroy(ct_engine_plan *p); /* NULL allowed */

/** Adds the rows of a text; one that is there already stays. path serves messages. Rows of other
 *  machines are kept for ct_engine_plan_write(); where there are no rows of this one, one line says
 *  whose there are. CT_ERR_DATA with "path:line". On rank 0. */
ct_status ct_engine_plan_parse(ct_engine_plan *p, const char *path, const char *text, size_t size);
/** The same of a file. CT_ERR_IO. */
ct_status ct_engine_plan_read(ct_engine_plan *p, const char *path);
/** Appends the text of the rows of this machine that somebody asked for; nothing where there are
 *  none. */
void ct_engine_plan_text(const ct_engine_plan *p, ct_text *out);
/** Writes all rows, whole or not at all, with those that came into the file meanwhile; rows of this
 *  machine by other versions are dropped. Nothing where nothing was timed or kept. CT_ERR_IO. On
 *  rank 0. */
ct_status ct_engine_plan_write(ct_engine_plan *p, const char *path);

/** A time that the caller measured, in place of what the row of that key says. key: plain text
 *  without '|'; name: what took it, without blanks. CT_ERR_ARG, CT_ERR_NOMEM. On rank 0. */
ct_status ct_engine_plan_keep(ct_engine_plan *p, const char *key, const char *name, double ms);

/** Which of this rank's engines name[n] all ranks have: all[n]. Collective; n may be 0. */
ct_status ct_engine_plan_agree(ct_engine_plan *p, const char *const *name, int n, bool *all);
/** The engine to take, an index of a->name. Collective. The static rule's where timing is not
 *  possible for want of memory. CT_ERR_CONFIG where this rank does not have rank 0's. */
ct_status ct_engine_plan_choose(ct_engine_plan *p, const ct_engine_plan_ask *a, int *choice_p);
/** At least `bytes` with anything in them, 64-byte aligned, for the ask under way, on its device.
 *  NULL: no memory. */
void *ct_engine_plan_scratch(ct_engine_plan *p, size_t bytes);
/** Gives the scratch memory back: when a net is built, before it gets its own. */
void ct_engine_plan_settle(ct_engine_plan *p); /* NULL allowed */

ct_engine_plan_counts ct_engine_plan_tally(const ct_engine_plan *p);
/** Logs what came of it: rows replayed and timed, what timing took, what differs from the static
 *  rules. */
void ct_engine_plan_log(const ct_engine_plan *p);
/** Row i of this machine, in the order of the file and the asks; NULL: there is none. */
const ct_engine_plan_entry *ct_engine_plan_row(const ct_engine_plan *p, int i);

#ifdef __cplusplus
}
#endif

#endif
