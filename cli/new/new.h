/** @file new.h  What `cortado new` makes of a model and a data set; private to cli/new.
 *
 *   read    the set's samples, labels and names: new_set.c
 *   fitted  sources, batches that the set has samples for, cuts and means of its pictures, the
 *           number of its classes; tests over all of its test set, steps and steps at which the
 *           rate falls: new_fit.c
 *   tried   both phases of the net, before anything is written: verb_new.c
 */
#ifndef CT_NEW_H
#define CT_NEW_H

#include "framework/data/class_names.h"
#include "framework/proto/upgrade.h"
#include "framework/tensor/tensor.h"

/** A folder of sets as `cortado convert` writes it. */
typedef struct ct_new_set {
    char *train, *test; /* absolute; test NULL: there is none */
    char *mean;         /* its mean.binaryproto; NULL: there is none */
    int64_t n_train, n_test;
    ct_shape shape; /* of a sample */
    ct_class_names names;
    int64_t n_class;
} ct_new_set;

/** CT_ERR_IO: no set, CT_ERR_DATA: labels that are no classes; logged. */
ct_status ct_new_set_read(const char *folder, ct_new_set *s);
void ct_new_set_release(ct_new_set *s);

/** Has the net read the set, tell its classes apart, and take pictures of its size. mean: the file
 *  that stands for a mean_file. renames: layers of as many outputs as there are classes get other
 *  names, so that weights of other classes do not go there. CT_ERR_CONFIG, logged: what does not
 *  fit. */
ct_status ct_new_fit_net(Ct__NetParameter *net, const ct_new_set *s, const char *mean,
                         bool renames);
/** Whether a data layer of the net wants a mean_file. */
bool ct_new_wants_mean(const Ct__NetParameter *net);
/** Tests over the whole test set, and as many steps as a set of this size needs. net: fitted. */
ct_status ct_new_fit_solver(Ct__SolverParameter *s, const Ct__NetParameter *net,
                            const ct_new_set *set);

#endif
