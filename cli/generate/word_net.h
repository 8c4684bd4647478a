/** @file word_net.h  A recurrent net that reads a text word by word.
 *
 * The net is a deploy net: one Input of words, steps x columns, with a second top that is 0 where a
 * text begins, and one output, a score for each word of the vocabulary. It runs one step of one
 * column at a time; what it knows of the words before lies in its LSTM and RNN layers.
 */
#ifndef CT_WORD_NET_H
#define CT_WORD_NET_H

#include "framework/net/net.h"

typedef struct ct_word_net ct_word_net;

/** Whether a net has layers of type LSTM or RNN. */
bool ct_is_word_net(const Ct__NetParameter *param);
/** Makes the net of a file, without weights. CT_ERR_CONFIG, CT_ERR_SHAPE, with the layer: it has
 *  other Inputs or outputs, or a layer that may mix words; CT_ERR_IO. */
ct_status ct_word_net_make(const char *model, ct_word_net **p_p);
void ct_word_net_destroy(ct_word_net *p); /* NULL allowed */
/** files: commas between them. CT_ERR_IO, CT_ERR_DATA, CT_ERR_SHAPE. */
ct_status ct_word_net_load(ct_word_net *p, const char *files);
/** Whether tables have n rows, and there are n scores. CT_ERR_CONFIG, with the layer. source: of
 *  the vocabulary, for the message. */
ct_status ct_word_net_check_ids(const ct_word_net *p, int64_t n, const char *source);
/** The next word begins a text. */
void ct_word_net_begin(ct_word_net *p);
/** Reads a word. *score_p: a score for each that may follow, the net's until it runs again: their
 *  Softmax are the probabilities. */
ct_status ct_word_net_run(ct_word_net *p, int32_t id, const float **score_p);

#endif
