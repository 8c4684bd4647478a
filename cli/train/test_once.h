/** @file test_once.h  Tests of a net of tokens in which each window counts once.
 *
 * Batches are whole, so the last one takes windows from the beginning of the text, which have been
 * counted. Their targets become a label that the losses ignore (ct_exec.once), and the batches'
 * means weigh the targets that count. So the loss is the mean over all targets of the text, on any
 * number of ranks and with any batch, but for the order of sums.
 */
#ifndef CT_TEST_ONCE_H
#define CT_TEST_ONCE_H

#include "runtime/call.h"

/** Has the losses and accuracies of the net in phase TEST ignore a label. *once_p: whether that
 *  works. It does not, without a word, where the net reads no tokens; and with a line in the log
 *  where other layers read the targets, or a loss is no mean over labels. CT_ERR_NOMEM. */
ct_status ct_test_once_prepare(Ct__NetParameter *net, int32_t *label_p, bool *once_p);

#endif
