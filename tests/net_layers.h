/** @file net_layers.h  Tiny layer types, and nets made of them, for the tests of framework/net.
 *
 *  Source   is_data; tops of input_param's shapes, random, another batch in every micro step
 *  Given    keeps_top: the test writes its tops
 *  Linear   weight (num_output x the rest), bias; backward reads the bottom
 *  Tanh     may work in place; backward reads the top
 *  Half     y = x / 2, may work in place; backward reads nothing
 *  Square   backward reads the bottom
 *  Add      sum of the bottoms           Split, Pass  pass data through (Pass: diffs too)
 *  Work     y = 3 x by way of a KEEP_CALL and a KEEP_PASS buffer of num_output extra elements
 *  Stat     y = x + s, s a statistic     Stop         y = x, no gradient passes
 *  SumSq    loss: sum of squares / 2; a second bottom is a label, without gradient
 */
#ifndef CT_TEST_NET_LAYERS_H
#define CT_TEST_NET_LAYERS_H

#include "framework/net/net.h"

extern const ct_layer_ops *const test_net_table[];
/** The types above, all real ones, which come first where both have a name, and `own` (or NULL).
 *  The array is this function's, one a thread: a program calls it with one `own` only. */
const ct_layer_ops *const *test_full_table(const ct_layer_ops *own);

/** A net and the message it was made of. */
typedef struct test_net {
    Ct__NetParameter *param;
    struct ct_source_map *map;
    ct_net *net;
} test_net;

/** Parses `text` (as file "net") and makes a net of the types above. options may be NULL: phase
 *  TRAIN, seed 1. Its table, map and env.seed are set here. Returns ct_net_create's status;
 *  *t_p is freed by test_net_destroy() in any case. */
ct_status test_net_create(const char *text, const ct_net_options *options, test_net *t_p);
void test_net_destroy(test_net *t);
/** Forward and backward of micro step `step`; fails the test on an error. Returns the loss. */
double test_net_pass(test_net *t, int64_t step, bool accumulate);
/** Asserts that making a net of `text` is refused as wrong and with `part` in the message. */
void test_net_refused(const char *text, const ct_net_options *options, const char *part);

#endif
