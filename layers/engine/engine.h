/** @file engine.h  Tables of implementations of one operation, and the choice from them.
 *
 * An operation `op` defines ct_op_desc (shapes and limits, all that a choice depends on) and
 * ct_op_args (pointers of one call). CT_ENGINE(op) then makes the type of an implementation and the
 * functions that search a table. A table ends with NULL; before it stands the reference, which
 * supports everything on the CPU and is the oracle of the others.
 */
#ifndef CT_ENGINE_ENGINE_H
#define CT_ENGINE_ENGINE_H

#include "framework/math/math.h"
#include "framework/net/engine_plan.h"
#include "framework/net/layer.h"

#include <omp.h>
#include <stdbool.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the prototxt's ct_kernel asks for; "auto" where it says nothing. Never NULL. */
const char *ct_engine_policy(const ct_layer *l, ct_run_kind kind);
/** Whether k, which may be NULL, leaves all engines to "auto". */
bool ct_engine_is_auto(const Ct__KernelParameter *k);
/** Threads that the kernels of this layer may use: fixed at reshape, since workspace and the
 *  order of sums depend on it. */
int ct_engine_n_thread(const ct_layer *l);
/** What products of this layer may multiply: the solver's precision. */
ct_operand ct_engine_operand(const ct_layer *l);
/** Whether that is bfloat16. */
bool ct_engine_bf16(const ct_layer *l);
/** What an engine is called where it rounds so. */
const char *ct_engine_name(const char *name, ct_operand operand);
/** Appends "name" to a list "a, b, c" in text[size]. */
void ct_engine_list(char *text, size_t size, const char *name);
/** Logs that no implementation called `policy` can run this; `names`: those that can. */
ct_status ct_engine_refuse(const ct_layer *l, ct_run_kind kind, const char *policy,
                           const char *names);

/** For products on the host whose rows vary in number: CT_ERR_CONFIG, logged, where `policy` is
 *  "blas" and the run deterministic. BLAS takes other ways, and other sums, for other numbers. */
ct_status ct_engine_check_rows(const ct_layer *l, const char *policy);

/** Between two pieces of work inside a parallel region, or outside of one: where this is the thread
 *  that called the layer, it lets communication move (ct_exec_poll). An error goes to *worst_p,
 *  which all threads may share: no other writes it. */
static inline void ct_engine_poll(ct_exec *ex, ct_status *worst_p)
{
    ct_status status;

    if (omp_get_thread_num() != 0) return;
    status = ct_exec_poll(ex);
    if (status != CT_OK) *worst_p = status;
}

#ifdef __cplusplus
}
#endif

/* ---- choices by timing */

/** What a table has for one computation: engines that support it, the reference left out unless the
 *  static rule takes it. */
typedef struct ct_engine_offer {
    const char *name[CT_ENGINE_PLAN_ENGINES];
    int index[CT_ENGINE_PLAN_ENGINES]; /* in the table               */
    int n, fixed;                      /* of name: the static rule's */
    bool optional;                     /* there may be none          */
} ct_engine_offer;

/** The plan that layer l is to ask; NULL: the static rules decide. */
ct_engine_plan *ct_engine_plan_of(const ct_layer *l);
void ct_engine_offer_add(ct_engine_offer *o, const char *name, int index, bool fixed);
/** Asks. run: offered engine i, once, on what prepare made; ctx: of both. *index_p: in the table.
 *  Collective: first of all the offer becomes what all ranks have of it. Where that is nothing,
 *  CT_ERR_CONFIG, or of an optional one CT_UNSUPPORTED, without a word, on all ranks alike. */
ct_status ct_engine_ask(const ct_layer *l, const char *key, ct_engine_offer *o,
                        ct_status (*prepare)(void *ctx), ct_status (*run)(void *ctx, int i),
                        void *ctx, int *index_p);
/** n floats at *bytes_p of a scratch block, which then moves on (block NULL: only that); filled
 * with numbers of either sign below 1, or left as they are. */
float *ct_engine_scratch(void *block, size_t *bytes_p, int64_t n, bool fill);

/* supports holds every limit of run. workspace may be NULL: none. It is private to the call,
 * 64-byte aligned, and holds garbage. prefers may be NULL (always): whether "auto" takes it where
 * it is supported. can: what else run does where its arguments ask for it, in bits of the
 * operation. Who does not know a bit is not asked. ct_<op>_find: the first that supports d and,
 * unless policy is "auto", is called so. Or NULL. ct_<op>_pick: the same for a layer, which fails
 * with CT_ERR_CONFIG where there is none. */
#define CT_ENGINE_TABLE(_op)                                                                       \
    typedef struct ct_##_op##_impl {                                                               \
        const char *name;                                                                          \
        bool (*supports)(const ct_##_op##_desc *d);                                                \
        size_t (*workspace)(const ct_##_op##_desc *d);                                             \
        ct_status (*run)(const ct_##_op##_desc *d, ct_exec *ex, const ct_##_op##_args *a);         \
        bool (*prefers)(const ct_##_op##_desc *d);                                                 \
        unsigned can;                                                                              \
    } ct_##_op##_impl;                                                                             \
                                                                                                   \
    static inline const ct_##_op##_impl *ct_##_op##_find(                                          \
        const ct_##_op##_impl *const *table, const ct_##_op##_desc *d, const char *policy)         \
    {                                                                                              \
        for (int i = 0; table[i] != NULL; i++) {                                                   \
            bool chosen = (strcmp(policy, table[i]->name) == 0);                                   \
                                                                                                   \
            if (strcmp(policy, "auto") == 0)                                                       \
                chosen = (table[i]->prefers == NULL) || table[i]->prefers(d);                      \
            if (chosen && table[i]->supports(d)) return table[i];                                  \
        }                                                                                          \
        return NULL;                                                                               \
    }                                                                                              \
                                                                                                   \
    static inline ct_status ct_##_op##_pick_static(                                                \
        const ct_layer *l, ct_run_kind kind, const ct_##_op##_impl *const *table,                  \
        const ct_##_op##_desc *d, const ct_##_op##_impl **impl_p)                                  \
    {                                                                                              \
        const char *policy = ct_engine_policy(l, kind);                                            \
        const ct_##_op##_impl *impl = ct_##_op##_find(table, d, policy);                           \
        char names[256] = "";                                                                      \
                                                                                                   \
        if (impl != NULL) {                                                                        \
            *impl_p = impl;                                                                        \
            return CT_OK;                                                                          \
        }                                                                                          \
        for (int i = 0; table[i] != NULL; i++) {                                                   \
            if (table[i]->supports(d)) ct_engine_list(names, sizeof(names), table[i]->name);       \
        }                                                                                          \
        return ct_engine_refuse(l, kind, policy, names);                                           \
    }                                                                                              \
                                                                                                   \
    static inline size_t ct_##_op##_workspace(const ct_##_op##_impl *impl,                         \
                                              const ct_##_op##_desc *d)                            \
    {                                                                                              \
        return (impl->workspace != NULL) ? impl->workspace(d) : 0;                                 \
    }

#define CT_ENGINE(_op)                                                                             \
    CT_ENGINE_TABLE(_op)                                                                           \
    static inline ct_status ct_##_op##_pick(                                                       \
        const ct_layer *l, ct_run_kind kind, const ct_##_op##_impl *const *table,                  \
        const ct_##_op##_desc *d, const ct_##_op##_impl **impl_p)                                  \
    {                                                                                              \
        return ct_##_op##_pick_static(l, kind, table, d, impl_p);                                  \
    }

/* The same for an operation with engines that only timing can tell apart: ct_<op>_pick asks the
 * plan where there is one and nobody named an engine. The operation defines two functions.
 * ct_<op>_key: all that d says but the number of threads, as a text without " |". ct_<op>_scratch:
 * the arguments of a call of that kind, all operands in the block but the workspace. block NULL:
 * nothing but the bytes, in *bytes_p, which starts at 0. */
#define CT_ENGINE_TIMED(_op)                                                                       \
    CT_ENGINE_TABLE(_op)                                                                           \
    void ct_##_op##_key(const ct_##_op##_desc *d, ct_run_kind kind, char *text, size_t size);      \
    void ct_##_op##_scratch(const ct_##_op##_desc *d, ct_run_kind kind, void *block,               \
                            size_t *bytes_p, ct_##_op##_args *a);                                  \
                                                                                                   \
    typedef struct ct_##_op##_trial {                                                              \
        ct_engine_plan *plan;                                                                      \
        const ct_##_op##_desc *d;                                                                  \
        ct_run_kind kind;                                                                          \
        const ct_##_op##_impl *const *table;                                                       \
        ct_engine_offer offer;                                                                     \
        ct_##_op##_args args;                                                                      \
        ct_exec ex;                                                                                \
    } ct_##_op##_trial;                                                                            \
                                                                                                   \
    static inline ct_status ct_##_op##_trial_prepare(void *ctx)                                    \
    {                                                                                              \
        ct_##_op##_trial *t = (ct_##_op##_trial *)ctx;                                             \
        size_t bytes = 0, work = 0;                                                                \
        char *block;                                                                               \
                                                                                                   \
        ct_##_op##_scratch(t->d, t->kind, NULL, &bytes, &t->args);                                 \
        for (int i = 0; i < t->offer.n; i++) {                                                     \
            size_t w = ct_##_op##_workspace(t->table[t->offer.index[i]], t->d);                    \
                                                                                                   \
            if (w > work) work = w;                                                                \
        }                                                                                          \
        block = (char *)ct_engine_plan_scratch(t->plan, bytes + work);                             \
        if (block == NULL) return CT_ERR_NOMEM;                                                    \
        bytes = 0;                                                                                 \
        ct_##_op##_scratch(t->d, t->kind, block, &bytes, &t->args);                                \
        t->args.work = block + bytes;                                                              \
        return CT_OK;                                                                              \
    }                                                                                              \
                                                                                                   \
    static inline ct_status ct_##_op##_trial_run(void *ctx, int i)                                 \
    {                                                                                              \
        ct_##_op##_trial *t = (ct_##_op##_trial *)ctx;                                             \
                                                                                                   \
        return t->table[t->offer.index[i]]->run(t->d, &t->ex, &t->args);                           \
    }                                                                                              \
                                                                                                   \
    static inline ct_status ct_##_op##_pick(                                                       \
        const ct_layer *l, ct_run_kind kind, const ct_##_op##_impl *const *table,                  \
        const ct_##_op##_desc *d, const ct_##_op##_impl **impl_p)                                  \
    {                                                                                              \
        ct_##_op##_trial t;                                                                        \
        char key[CT_ENGINE_PLAN_KEY];                                                              \
        int at;                                                                                    \
                                                                                                   \
        CT_TRY(ct_##_op##_pick_static(l, kind, table, d, impl_p));                                 \
        memset(&t, 0, sizeof(t));                                                                  \
        t.plan = ct_engine_plan_of(l);                                                             \
        if ((t.plan == NULL) || (strcmp(ct_engine_policy(l, kind), "auto") != 0)) return CT_OK;    \
        t.d = d;                                                                                   \
        t.kind = kind;                                                                             \
        t.table = table;                                                                           \
        t.ex.dev = l->dev;                                                                         \
        for (int i = 0; table[i] != NULL; i++) {                                                   \
            if ((table[i] == *impl_p) || ((table[i + 1] != NULL) && table[i]->supports(d)))        \
                ct_engine_offer_add(&t.offer, table[i]->name, i, table[i] == *impl_p);             \
        }                                                                                          \
        ct_##_op##_key(d, kind, key, sizeof(key));                                                 \
        CT_TRY(ct_engine_ask(l, key, &t.offer, ct_##_op##_trial_prepare, ct_##_op##_trial_run, &t, \
                             &at));                                                                \
        *impl_p = table[at];                                                                       \
        return CT_OK;                                                                              \
    }

#endif
