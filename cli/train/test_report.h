/** @file test_report.h  `cortado test --report=FILE`, or --crops: what a net of classes gets right
 * and wrong.
 *
 * Each sample of the test set counts once, on any number of ranks, whatever the batch. The file is
 * one JSON object:
 *
 *   classes              names, as class_name of the net has them, or numbers as texts
 *   samples              that count; labels that are no class do not
 *   crops                of each sample, with --crops
 *   accuracy             the share of them whose largest score is the true class's
 *   loss                 the mean of -log of the true class's probability
 *   confusion            [true][predicted]: samples
 *   precision, recall    of each class; 0 where there is nothing to divide by
 *   calibration          samples by the probability of what was predicted, in ten bins, each with
 *                        the mean probability and the accuracy; `error`: the expected difference
 *                        (Guo et al., "On Calibration of Modern Neural Networks", 2017, section 2)
 *   worst                the surest mistakes, with file names where the set has them
 *
 * With `--crops=N` the probabilities of a sample are the mean over N crops of it.
 *
 * Of a net that finds boxes it has average precisions (box_report.h).
 *
 * Of a net of texts there are no classes to tell apart. Its file has `samples` (windows of tokens,
 * or runs of words), `loss`, `perplexity` (e^loss), and with a tokenizer `tokens`, `bytes` and
 * `bits_per_byte`. Each window of tokens counts once, too (test_once.c).
 *
 * Ranks count what they have of each batch, and one sum over them at the end has everything.
 * Batches go round the set: what the last one has of its beginning was counted before, and does not
 * count again. So the figures are the same for every batch and number of ranks, but for the order
 * of the sums in `loss` and in the means of `calibration`.
 */
#ifndef CT_TEST_REPORT_H
#define CT_TEST_REPORT_H

#include "runtime/call.h"

typedef struct ct_test_report ct_test_report;

/** Whether the net reads a text in phase TEST: its report is ct_test_report_write_text(). */
bool ct_test_report_is_of_text(const Ct__NetParameter *net);
/** Has the losses and accuracies of a net of tokens ignore a label in phase TEST, so that each
 *  window counts once (test_once.c). *once_p: whether that works. It does not, without a word,
 * where the net reads no tokens; and with a line in the log where other layers read the targets, or
 * a loss is no mean over labels. Before the net is made. CT_ERR_NOMEM. */
ct_status ct_test_once_prepare(Ct__NetParameter *net, int32_t *label_p, bool *once_p);
/** What `test` has found of such a net. On rank 0. CT_ERR_IO. */
ct_status ct_test_report_write_text(const char *path, int64_t samples, double loss,
                                    const ct_text_size *text);

/** CT_ERR_CONFIG, logged: an option that does not go with `option`, which looks at the whole set.
 */
ct_status ct_test_report_check_options(const ct_call *call, const char *option);
/** Finds the scores and labels of the config's net, by its Accuracy or SoftmaxWithLoss in phase
 *  TEST, and has the net keep them. Before the net is made. crops: of each sample, as the net's
 *  ct_net_env has them; 0: one. CT_ERR_CONFIG, logged: there are none, or what the net reads has no
 *  crops. */
ct_status ct_test_report_create(const ct_call *call, ct_config *c, int crops, ct_test_report **r_p);
/** NULL allowed. */
void ct_test_report_destroy(ct_test_report *r);
/** Runs the net, which has its weights, over its set. Collective. CT_ERR_CONFIG, CT_ERR_DATA. */
ct_status ct_test_report_run(ct_test_report *r, const ct_call *call, ct_net *net);
/** On rank 0: the file (NULL: none), and accuracy and loss on standard output. CT_ERR_IO. */
ct_status ct_test_report_write(const ct_test_report *r, const char *path);

#endif
