/** @file continuation.h  A text that a net goes on with, token by token, or word by word.
 *
 *      ct_continuation c = { .written = 0 };
 *
 *      CT_TRY(ct_continuation_open(options, tokenizer, pattern, &c));
 *      status = ct_continuation_encode(&c, text, n, "--prompt", &prompt);
 *      … a net with room for ct_continuation_most(&c, &prompt, 1) tokens …
 *      status = ct_continuation_run(&c, net, &prompt, put, ctx);
 *      ct_continuation_close(&c);
 */
#ifndef CT_CONTINUATION_H
#define CT_CONTINUATION_H

#include "cli/generate/word_net.h"
#include "framework/base/option.h"
#include "framework/net/packed.h"
#include "framework/text/sampler.h"

enum { CT_CONTINUATION_CHUNK = 128 /* tokens of a prompt that a pass takes at most */ };

typedef struct ct_continuation {
    int64_t max_tokens;
    ct_sampling how;
    ct_tokenizer *tokenizer;
    ct_sampler *sampler;
    bool words; /* blanks between them */
    /* of the last run */
    ct_ids made;
    ct_text text;   /* of these                      */
    size_t written; /* of it, to whoever takes it    */
    bool ended;     /* by the end token              */
    double prompt_s, made_s;
} ct_continuation;

/** Takes a part of the text: whole characters, in their order. */
typedef ct_status (*ct_continuation_put)(void *ctx, const char *text, size_t n);

/** Reads --max_tokens, --temperature, --top_p and --seed, and opens the tokenizer. CT_ERR_CONFIG,
 *  CT_ERR_IO, CT_ERR_DATA, logged. */
ct_status ct_continuation_open(const ct_options *o, const char *tokenizer, const char *pattern,
                               ct_continuation *c);
/** The same with a vocabulary of words: a list, one a line, or a set of words (.h5). */
ct_status ct_continuation_open_words(const ct_options *o, const char *vocabulary,
                                     ct_continuation *c);
void ct_continuation_close(ct_continuation *c); /* zeroed ones allowed */
/** The ids of a text, appended; source: its name in messages. CT_ERR_CONFIG: there are none. */
ct_status ct_continuation_encode(const ct_continuation *c, const char *text, size_t n,
                                 const char *source, ct_ids *prompt);
/** What a cache must have room for, so that each of n prompts can go on in it. */
int64_t ct_continuation_most(const ct_continuation *c, const ct_ids *prompt, int64_t n);
/** Whether the net can go on with the prompt; it needs no weights for that. CT_ERR_CONFIG, logged:
 * it has fewer ids than the tokenizer, or fewer places. */
ct_status ct_continuation_check(const ct_continuation *c, ct_packed_net *net, const ct_ids *prompt);
/** Goes on with a prompt that it can go on with; `c` has what came out. CT_ERR_DATA, logged: the
 *  scores are no numbers. */
ct_status ct_continuation_run(ct_continuation *c, ct_packed_net *net, const ct_ids *prompt,
                              ct_continuation_put put, void *ctx);
/** The same by a net of words: ct_word_net_check_ids() says whether it can. */
ct_status ct_continuation_run_words(ct_continuation *c, ct_word_net *net, const ct_ids *prompt,
                                    ct_continuation_put put, void *ctx);

#endif
