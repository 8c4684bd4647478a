/** @file engine.h  Tables of implementations of one operation, and the choice from them.
 *
 * An operation `op` defines ct_op_desc (shapes and limits, all that a choice depends on) and
 * ct_op_args (pointers of one call); CT_ENGINE(op) then makes the type of an implementation and
 * the functions that search a table. A table ends with NULL; before it stands the reference,
 * which supports everything on the CPU and is the oracle of the others.
 */
#ifndef CT_ENGINE_H
#define CT_ENGINE_H

#include "framework/net/layer.h"

#include <omp.h>
#include <stdbool.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the prototxt's ct_kernel asks for; "auto" where it says nothing. Never NULL. */
const char *ct_engine_policy(const ct_layer *l, ct_run_kind kind);
/** Threads that the kernels of this layer may use: fixed at reshape, since workspace and the
 *  order of sums depend on it. */
int ct_engine_n_thread(const ct_layer *l);
/** Appends "name" to a list "a, b, c" in text[size]. */
void ct_engine_list(char *text, size_t size, const char *name);
/** Logs that no implementation called `policy` can run this; `names`: those that can. */
ct_status ct_engine_refuse(const ct_layer *l, ct_run_kind kind, const char *policy,
                           const char *names);

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

/* supports holds every limit of run. workspace may be NULL: none. It is private to the call,
 * 64-byte aligned, and holds garbage. prefers may be NULL (always): whether "auto" takes it where
 * it is supported. can: what else run does where its arguments ask for it, in bits of the
 * operation; who does not know a bit is not asked. ct_<op>_find: the first that supports d and,
 * unless policy is "auto", is called so; or NULL. ct_<op>_pick: the same for a layer, which fails
 * with CT_ERR_CONFIG where there is none. */
#define CT_ENGINE(_op)                                                                             \
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
    static inline ct_status ct_##_op##_pick(                                                       \
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

#endif
