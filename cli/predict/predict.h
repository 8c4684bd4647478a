/** @file predict.h  What of `cortado predict` the kinds of nets share; private to cli/predict.
 *
 * The net says what is asked for: one of samples tells the classes of pictures (verb_predict.c),
 * one of tokens or words goes on with texts (predict_texts.c). The ranks of a job share the files;
 * rank 0 prints, in the files' order, in one of these formats:
 *
 * - table: for people. Pictures: a line with probability, class and file. Texts: of a single one
 *   what the net adds to it, alone and while it is made; of several each behind a line
 *   "==> FILE <==".
 * - csv: as RFC 4180 has it, with a head. Pictures: file, class, and probability or score. Texts:
 *   file and text.
 * - json: one object. Pictures: `classes` and `predictions`, each with `file`, `class`, the number
 *   of that class and `all` of them. Texts: `continuations`, each with
 *     file            null where the text came by --prompt
 *     prompt, text    what the net went on with, and what it added
 *     prompt_tokens   and `tokens` of the two
 *     ended           whether the end token came before --max_tokens
 *
 * Of several crops of a picture (--crops) its numbers are the mean of the net's.
 *
 * Files that cannot be read are told, and those of pictures left out of the result; a text that
 * cannot be read ends all, since nothing has been printed by then.
 *
 * Texts depend on the net, the prompt and the sampling alone: one rank, several of them, and
 * `cortado generate` make the same.
 */
#ifndef CT_PREDICT_H
#define CT_PREDICT_H

#include "cli/verb.h"

/** Goes on with the texts that options name, by the net of --model, which is one of tokens, or of
 *  words. The tokenizer, or the vocabulary, is --tokenizer, or what the net of --run says.
 *  Collective. CT_ERR_CONFIG: no text, no tokenizer, a text that does not fit the net; CT_ERR_IO,
 *  CT_ERR_DATA; logged. */
ct_status ct_predict_texts(ct_call *call, bool of_words);

/** A field of CSV on standard output: n bytes, which may be of value 0. */
void ct_predict_put_csv(const char *text, size_t n);

#endif
