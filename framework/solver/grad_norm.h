/** @file grad_norm.h  The norm of all gradients, added up as they land. Private to
 * framework/solver.
 *
 * The squares are added up in the blocks of ct_math_cpu.sumsq over the whole gradient arena, each
 * one once all that it holds has landed. So the norm has the bits of that function, whatever the
 * order in which gradients land and the parts in which they travel, and it is the same on all
 * ranks. On the CPU; a device finds norms itself (framework/math/step_there.h).
 */
#ifndef CT_GRAD_NORM_H
#define CT_GRAD_NORM_H

#include "framework/net/net.h"

typedef struct ct_grad_norm {
    int64_t length; /* of a block; 0: not opened             */
    int n_block;
    int64_t *all;     /* [n_block] elements of gradients in it */
    int64_t *missing; /* [n_block] of them that have not landed in this step */
    double *sum;      /* [n_block] of squares                  */
    bool *in_parts;   /* [n_param] lands in parts in this step */
} ct_grad_norm;

/** Of the gradients of net's learned parameters. CT_ERR_NOMEM. */
ct_status ct_grad_norm_open(const ct_net *net, ct_grad_norm *n);
void ct_grad_norm_close(ct_grad_norm *n); /* zeroed ones too */
/** A step's gradients are going to land. */
void ct_grad_norm_begin(const ct_net *net, ct_grad_norm *n);
/** Parameters [first, first + n_param) have landed, but for those that part heard of. ex: messages
 *  move meanwhile. */
ct_status ct_grad_norm_landed(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int first,
                              int n_param);
/** Elements [from, from + count) of a parameter have landed. */
ct_status ct_grad_norm_part(const ct_net *net, ct_grad_norm *n, ct_exec *ex, int param,
                            int64_t from, int64_t count);
/** The square of the norm. CT_ERR_ARG where something has not landed. */
ct_status ct_grad_norm_square(const ct_grad_norm *n, double *square_p);

#endif
