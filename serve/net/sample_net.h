/** @file sample_net.h  A net of samples of one shape, such as pictures: one Input, N x C x H x W,
 * and outputs with a row for each sample. A batch has any number of them up to `most`, whatever N
 * the file says, and costs what a net made for so many does.
 */
#ifndef CT_SAMPLE_NET_H
#define CT_SAMPLE_NET_H

#include "framework/net/net.h"

typedef struct ct_sample_net ct_sample_net;

/** Whether the first Input of a net is N x C x H x W: it is one of samples. */
bool ct_is_sample_net(const Ct__NetParameter *param);
/** That N. */
int64_t ct_sample_net_batch(const Ct__NetParameter *param);
/** options: of phase TEST, on the CPU. The Input of param becomes one that varies, of `most`
 *  samples; param must outlive the net. CT_ERR_CONFIG, CT_ERR_SHAPE, with the layer: other Inputs,
 *  layers that do not follow the number of samples, outputs without a row for each. */
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
/** Whether output i is the top of a Softmax: its numbers are probabilities. */
bool ct_sample_net_is_softmax(const ct_sample_net *s, int i);
/** Shapes the net for n samples, 1 to `most`. *to_p: where they go, one behind the other. */
ct_status ct_sample_net_begin(ct_sample_net *s, int64_t n, float **to_p);
/** Runs them. */
ct_status ct_sample_net_run(ct_sample_net *s);
/** Rows of output i of that run, the net's until it runs again. */
const float *ct_sample_net_rows(const ct_sample_net *s, int i);

#endif
