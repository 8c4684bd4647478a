/** @file library.h  What its files share: public calls, and a net as users see it. Private to
 * library.
 *
 * One net of the framework has the weights, the *owner*, and one runs. A net for forward alone runs
 * as in the verbs: its values share memory, so what may be looked at is what is asked for.
 * Then the net is made again, and somebody reads the value at its end. Where single layers are to
 * run, all values get memory of their own. A net with gradients is made so from the start.
 *
 * What users look at are *views*: copies in plain order, which stay where they are while the net
 * behind them is made again. Weights lie in the owner's arena, and stay there.
 */
#ifndef CT_LIBRARY_H
#define CT_LIBRARY_H

#include "framework/net/net.h"
#include "framework/solver/solver.h"
#include "include/cortado/cortado.h"
#include "runtime/job.h"

/** A blob that was handed out. */
typedef struct ct_view {
    const char *name; /* the owner's */
    ct_shape shape;
    float *data, *diff; /* owned; diff NULL: it has none */
    bool is_input;      /* a top of an Input: never taken from the net */
    bool is_read;       /* in a net for forward alone: the net's values are there at its end */
} ct_view;

/** A net of the framework, and the message that it was made of. */
typedef struct ct_made_net {
    Ct__NetParameter *param;
    ct_net *net;
    int64_t *most; /* elements of each blob at most: before the first batch, in which some pass */
} ct_made_net;

struct cortado_net {
    void *message; /* the file's, packed: each net is made of a copy of its own */
    size_t n_message;
    ct_phase phase;
    uint64_t seed;
    bool trains;             /* it may run backward */
    bool forces;             /* … from any output: the file says force_backward */
    bool is_shown;           /* a solver has the net: it is never made again */
    bool visits;             /* … and its weights are there during steps alone */
    const ct_solver *solver; /* … that it learns in; else NULL */
    bool in_groups;          /* a solver with `outer` has the weights */
    ct_made_net owner;       /* of the weights */
    ct_made_net runs;        /* param NULL: the owner does */
    int n_former;            /* owners whose weights users may still hold */
    ct_made_net *former;
    bool is_whole;       /* what runs has memory for all values, and layers that run alone */
    int n_layer, n_blob; /* of the file */
    int *layer;          /* in the owner */
    const char **blob;   /* names */
    int n_view;
    ct_view *view;
    bool is_stale;    /* views came that are not read at the end of what runs */
    bool weights_out; /* users may write to weights at any time */
    int64_t n_run;    /* batches that data layers have given */
    bool has_run;     /* what runs has run forward: its values are there */
    double loss;
};

static inline ct_net *ct_running(const cortado_net *n)
{
    return (n->runs.net != NULL) ? n->runs.net : n->owner.net;
}

/** Elements of blob b of what runs at most. */
static inline int64_t ct_running_most(const cortado_net *n, int b)
{
    return (n->runs.net != NULL) ? n->runs.most[b] : n->owner.most[b];
}

/** Makes what runs anew: whole, or with the views read. Views keep their memory. */
ct_status ct_library_make_again(cortado_net *n, bool whole);
/** Runs what runs as a whole on the last batch again; views keep what users wrote. */
ct_status ct_library_run_again(cortado_net *n);

/** Shows a net that a solver has; keeps: ct_solver_options.keep_values. solver: that it learns in;
 *  NULL: it is for tests. */
ct_status ct_library_show(ct_net *net, bool keeps, const ct_solver *solver, cortado_net **net_p);
/** Around steps of the solver: what users wrote counts, and views have the last batch. */
ct_status ct_library_before_steps(cortado_net *n);
ct_status ct_library_after_steps(cortado_net *n);

/* ---- views.c */

/** The view of a blob, which is made where there is none. CT_ERR_ARG. */
ct_status ct_view_of(cortado_net *n, const char *name, ct_view **view_p);
void ct_views_forget(cortado_net *n);
/** Forgets them, too, and their memory goes to *kept_p. CT_ERR_NOMEM: nothing changed. */
ct_status ct_views_keep(cortado_net *n, cortado_kept **kept_p);
void ct_views_free_kept(cortado_kept *kept); /* NULL allowed */
/** To layers from … to of what runs: what they read and none of them makes. */
ct_status ct_views_give(const cortado_net *n, int from, int to);
/** What these layers made, or what their backward did. */
ct_status ct_views_take(const cortado_net *n, int from, int to);
ct_status ct_views_give_diffs(const cortado_net *n, int from, int to);
ct_status ct_views_take_diffs(const cortado_net *n, int from, int to);

/* ---- call.c: every public call has its threads while it runs, and keeps what its error says */

/** What a call changes of its thread while it runs. */
typedef struct ct_public_call {
    int n_thread; /* that the caller's OpenMP takes */
} ct_public_call;

/** Who computes layers of type Python, for ct_net_env; NULL: nobody. */
const struct ct_program_layers *ct_public_layers(void);

/** The first and the last thing of every public call that may fail. */
void ct_public_begin(ct_public_call *c);
/** The threads of a job's ranks, as cortado_set_threads() said, or else as a job shares out the
 *  node's cores: from now on. Collective. */
ct_status ct_public_share_threads(ct_job *job);
/** The seed of nets: as cortado_set_seed() said. false: nobody did. */
bool ct_public_seed(uint64_t *seed_p);
/** Keeps the text of an error for cortado_error(). */
cortado_status ct_public_end(const ct_public_call *c, ct_status status);

#endif
