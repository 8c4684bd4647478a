/** @file box_net.h  A loss that runs on the host in every net: boxes from a blob whose cells are
 * priors, with one true box in the first sample.
 *
 * Put it between layers with weights and the net has a layer on the host between two gradients.
 */
#ifndef CT_TEST_BOX_NET_H
#define CT_TEST_BOX_NET_H

/** from: the blob; image: what it was made of; n_loc, n_conf: 4 and 3 times its cells, as text. */
#define TEST_BOX_LOSS(from, image, n_loc, n_conf)                                                  \
    "layer { name: 'b_data' type: 'DummyData' top: 'b_0' top: 'b_1' top: 'b_low' top: 'b_high' "   \
    "dummy_data_param { shape { dim: 1 dim: 1 dim: 1 dim: 1 } data_filler { value: 0 } "           \
    "data_filler { value: 1 } data_filler { value: 0.2 } data_filler { value: 0.7 } } } "          \
    "layer { name: 'b_true' type: 'Concat' bottom: 'b_0' bottom: 'b_1' bottom: 'b_0' "             \
    "bottom: 'b_low' bottom: 'b_low' bottom: 'b_high' bottom: 'b_high' bottom: 'b_0' "             \
    "top: 'b_true' concat_param { axis: 3 } } "                                                    \
    "layer { name: 'b_prior' type: 'PriorBox' bottom: '" from "' bottom: '" image                  \
    "' top: 'b_prior' prior_box_param { min_size: 5 } } "                                          \
    "layer { name: 'b_loc' type: 'InnerProduct' bottom: '" from "' top: 'b_loc' "                  \
    "inner_product_param { num_output: " n_loc " weight_filler { type: 'xavier' } } } "            \
    "layer { name: 'b_conf' type: 'InnerProduct' bottom: '" from "' top: 'b_conf' "                \
    "inner_product_param { num_output: " n_conf " weight_filler { type: 'xavier' } } } "           \
    "layer { name: 'b_loss' type: 'MultiBoxLoss' bottom: 'b_loc' bottom: 'b_conf' "                \
    "bottom: 'b_prior' bottom: 'b_true' top: 'b_loss' multibox_loss_param { num_classes: 3 } } "

#endif
