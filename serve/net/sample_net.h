/** @file sample_net.h  A net of samples of one shape, such as pictures. It has one Input, N x C x H
 * x W, and outputs with a row for each sample, or the boxes that a DetectionOutput finds in all of
 * them. A batch has any number of samples up to `most`, whatever N the file says, and costs what a
 * net made for so many does.
 */
#ifndef CT_SAMPLE_NET_H
#define CT_SAMPLE_NET_H

#include "framework/net/net.h"

typedef struct ct_sample_net ct_sample_net;

enum { CT_FOUND_ROW = 7 }; /* of a box: sample, class, score, x0 y0 x1 y1 */

/** Whether the first Input of a net is N x C x H x W: it is one of samples. */
bool ct_is_sample_net(const Ct__NetParameter *param);
/** That N. */
int64_t ct_sample_net_batch(const Ct__NetParameter *param);
/** param: ct_is_sample_net(). options: of phase TEST, on the CPU. The Input of param becomes one
 * that varies, of `most` samples; param must outlive the net. CT_ERR_CONFIG, CT_ERR_SHAPE, with the
 * layer: other Inputs, layers that do not follow the number of samples, outputs without a row for
 * each, nor boxes. */
ct_status ct_sample_net_create(Ct__NetParameter *param, const ct_net_options *options, int64_t most,
                               ct_sample_net **s_p);
void ct_sample_net_destroy(ct_sample_net *s); /* NULL allowed */
/** The net that has the weights. */
ct_net *ct_sample_net_of(const ct_sample_net *s);
int64_t ct_sample_net_most(const ct_sample_net *s);
const char *ct_sample_net_input(const ct_sample_net *s);
/** Of a batch of `most` samples. */
const ct_shape *ct_sample_net_shape(const ct_sample_net *s);
/** Likewise of an output, one of net->n_output; *name_p as the net has it. */
const ct_shape *ct_sample_net_output(const ct_sample_net *s, int i, const char **name_p);
/** The layer of type DetectionOutput that makes output i, whose rows are boxes, with corners
 *  in parts of the Input. NULL: another type. */
const Ct__LayerParameter *ct_sample_net_boxes(const ct_sample_net *s, int i);
/** CT_ERR_CONFIG, logged: an output has boxes, and no row for each sample, so it is not served. */
ct_status ct_sample_net_check_rows(const ct_sample_net *s);
/** Whether output i is the top of a Softmax: its numbers are probabilities. So are the scores of
 *  boxes, where a DetectionOutput reads a Softmax, or that flattened. */
bool ct_sample_net_is_softmax(const ct_sample_net *s, int i);
/** Shapes the net for n samples, 1 to `most`. *to_p: where they go, one behind the other. */
ct_status ct_sample_net_begin(ct_sample_net *s, int64_t n, float **to_p);
/** Runs them. */
ct_status ct_sample_net_run(ct_sample_net *s);
/** Rows of output i of that run, the net's until it runs again. */
const float *ct_sample_net_rows(const ct_sample_net *s, int i);
/** Likewise the boxes of output i: *n_p rows of CT_FOUND_ROW, the samples' in their order. */
const float *ct_sample_net_found(const ct_sample_net *s, int i, int64_t *n_p);

#endif
