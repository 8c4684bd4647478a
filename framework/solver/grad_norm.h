/** @file grad_norm.h  The norm of all gradients, added up as they land. Private to
 * framework/solver.
 *
 * The squares are those of framework/math/square_tree.h over the whole gradient arena, each added
 * when it has landed. So the norm has the same bits in whatever order and pieces gradients land,
 * and whichever ranks hold them. On the CPU; a device finds norms itself
 * (framework/math/step_there.h).
 *
 * Where ranks have parts of a net, the squares of each parameter are added up for themselves, and
 * then over the ranks. Of what several ranks have, one counts: so a norm is that of the whole net.
 */
#ifndef CT_GRAD_NORM_H
#define CT_GRAD_NORM_H

#include "framework/math/square_tree.h"
#include "framework/snapshot/parts.h"

/** A sum over ranks that have parts of a net, of each parameter of the whole one. */
typedef struct ct_part_sums {
    const ct_parts *parts; /* borrowed; NULL: not opened */
    int *of;               /* [net->n_param] of this rank's: the parameter of the whole */
    int n;     /* parameters of the whole, times `each`                                        */
    double *v; /* [n] each numbers a parameter                                                 */
    int each;
} ct_part_sums;

/** each: numbers of a parameter. CT_ERR_NOMEM. */
ct_status ct_part_sums_open(const ct_parts *parts, int each, ct_part_sums *s);
void ct_part_sums_close(ct_part_sums *s); /* zeroed ones too */
void ct_part_sums_begin(ct_part_sums *s);
/** Number k of the rank's own parameter i is v, where this rank counts it. */
void ct_part_sums_put(ct_part_sums *s, int i, int k, double v);
/** Adds them up: the same bits on every rank. Collective over the job. */
ct_status ct_part_sums_end(ct_part_sums *s);
/** Then: number k of the whole of the rank's own parameter i. */
double ct_part_sums_of(const ct_part_sums *s, int i, int k);

/** In place of what each rank of a group has added to lists [list, list + n), on all of them: what
 *  all have. Each number came to one rank. Collective. */
ct_status ct_square_sums_share(const ct_group *g, ct_square_sums *s, int list, int n);

typedef struct ct_grad_norm {
    ct_square_sums sums; /* of one list, the arena; over parts of one a parameter */
    int64_t n_line;      /* that land in a step                                   */
    bool *in_parts;      /* [n_param] lands in parts in this step                 */
    ct_part_sums over;   /* of a net that ranks run together; else not open       */
} ct_grad_norm;

/** Of the gradients of net's learned parameters; parts: of the whole net's, NULL: this rank has
 *  all. CT_ERR_NOMEM. */
ct_status ct_grad_norm_open(const ct_net *net, const ct_parts *parts, ct_grad_norm *n);
static inline bool ct_grad_norm_is_open(const ct_grad_norm *n)
{
    return ct_square_sums_is_open(&n->sums);
}
void ct_grad_norm_close(ct_grad_norm *n); /* zeroed ones too */
/** A step's gradients are going to land. */
void ct_grad_norm_begin(const ct_net *net, ct_grad_norm *n);
/** Parameters [first, first + n_param) have landed, but for those that part heard of. ex: messages
 *  move meanwhile. */
ct_status ct_grad_norm_landed(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int first,
                              int n_param);
/** Elements [from, from + count) of a parameter have landed, and lie at data. */
ct_status ct_grad_norm_part(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int param,
                            int64_t from, int64_t count, const float *data);
/** Where each rank of a group has some of the gradients of parameters [first, first + n_param): all
 *  have landed there. Not over parts they are all that learn. Collective, once a step, before
 *  ct_grad_norm_square(). */
ct_status ct_grad_norm_share(const ct_group *g, int first, int n_param, ct_grad_norm *n);
/** The square of the norm. CT_ERR_ARG where something has not landed. Over parts it is collective,
 *  once a step. */
ct_status ct_grad_norm_square(ct_grad_norm *n, double *square_p);

#endif
