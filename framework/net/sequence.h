/** @file sequence.h  Language models that run token by token, on sequences that grow.
 *
 * A decoder is a net in two shapes, with one set of weights: a chunk of tokens, for prompts, and a
 * single one. A sequence has what its tokens left for those that follow: keys and values of each
 * Attention. A decoder may have any number of sequences, fed in any order, one at a time.
 *
 * Such a net has one Input with the ids, sequences x tokens, and one output, sequences x tokens x
 * classes, the scores of the next token. Its layers take each token for itself, but for those that
 * know of sequences that grow (ct_sequence_ops): causal Attention, and Position.
 */
#ifndef CT_SEQUENCE_H
#define CT_SEQUENCE_H

#include "framework/net/net.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ct_decoder ct_decoder;
typedef struct ct_sequence ct_sequence;

/** options: of phase TEST, on the CPU; param and what they point to must outlive the decoder.
 *  chunk: tokens of a prompt that one pass takes. CT_ERR_CONFIG, with the layer, where the net
 *  cannot run so. */
ct_status ct_decoder_create(const Ct__NetParameter *param, const ct_net_options *options,
                            int64_t chunk, ct_decoder **d_p);
/** After its sequences. NULL allowed. */
void ct_decoder_destroy(ct_decoder *d);
/** The net that has the weights, in the shape of a chunk. */
ct_net *ct_decoder_net(const ct_decoder *d);
/** Scores of a token. */
int64_t ct_decoder_classes(const ct_decoder *d);
/** Whether the net has n ids. CT_ERR_CONFIG, with the layer, where a table has fewer rows, or there
 *  are fewer scores. tokenizer: whose ids they are, for the message. */
ct_status ct_decoder_check_ids(const ct_decoder *d, int64_t n, const char *tokenizer);

/** Room for so many tokens. CT_ERR_CONFIG, with the layer: a table of positions has fewer rows. */
ct_status ct_sequence_open(ct_decoder *d, int64_t capacity, ct_sequence **s_p);
void ct_sequence_close(ct_sequence *s); /* NULL allowed */
/** Tokens that it has. */
int64_t ct_sequence_length(const ct_sequence *s);
/** Feeds n >= 1 tokens. *logits_p: the scores of what follows the last one, ct_decoder_classes() of
 *  them, until the decoder is fed again. Beside rounding they do not depend on how tokens are cut
 *  into calls. CT_ERR_ARG: more tokens than there is room for; CT_ERR_DATA: an id that the net
 *  does not have. */
ct_status ct_sequence_feed(ct_sequence *s, const int32_t *id, int64_t n, const float **logits_p);

#ifdef __cplusplus
}
#endif

#endif
