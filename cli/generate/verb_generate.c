/* cortado generate: goes on with a text, token by token, or word by word. Standard output has the
 * new text alone. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/generate/continuation.h"
#include "cli/generate/word_net.h"
#include "cli/verb.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/snapshot.h"

typedef struct request {
    ct_continuation c;
    ct_ids prompt;
} request;

static ct_status check_needs(const ct_options *o)
{
    static const char *const needs[] = { "model", "weights", "tokenizer", "prompt" };

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if (ct_options_text(o, needs[i]) == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "cortado generate needs --%s", needs[i]);
    }
    return CT_OK;
}

static ct_status read_prompt(const ct_options *o, request *r)
{
    const char *prompt = ct_options_text(o, "prompt");

    return ct_continuation_encode(&r->c, prompt, strlen(prompt), "--prompt", &r->prompt);
}

static ct_status read_request(const ct_options *o, request *r)
{
    CT_TRY(ct_continuation_open(o, ct_options_text(o, "tokenizer"), ct_options_text(o, "pattern"),
                                &r->c));
    return read_prompt(o, r);
}

static void close_request(request *r)
{
    ct_continuation_close(&r->c);
    ct_ids_destroy(&r->prompt);
}

static ct_status write_text(void *ctx, const char *text, size_t n)
{
    (void)ctx;
    if ((fwrite(text, 1, n, stdout) == n) && (fflush(stdout) == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
}

static void say_times(const request *r, const char *what)
{
    CT_INFO("Prompt: %" PRId64 " %s in %.3f s.", r->prompt.n, what, r->c.prompt_s);
    CT_INFO("Generated: %" PRId64 " %s in %.3f s%s.", r->c.made.n, what, r->c.made_s,
            r->c.ended ? ", to the end token" : "");
}

static ct_status run(ct_call *call, const ct_config *c, request *r)
{
    int64_t room = ct_continuation_most(&r->c, &r->prompt, 1), n = r->prompt.n;
    ct_net_options options;
    ct_net_state state;
    ct_packed_most most = { .sequences = 1,
                            .tokens = (n < CT_CONTINUATION_CHUNK) ? n : CT_CONTINUATION_CHUNK,
                            .cached = room,
                            .length = room };
    ct_packed_net *net = NULL;
    ct_status status;

    CT_TRY(ct_net_state_read(call->options, &state));
    ct_net_options_fill(call, c, CT_TEST, &state, &options);
    options.dev = NULL;
    CT_TRY(ct_packed_net_create(c->net, &options, &most, &net));
    CT_TRY_GOTO(status, out, ct_continuation_check(&r->c, net, &r->prompt));
    CT_TRY_GOTO(
        status, out,
        ct_weights_load_all(ct_options_text(call->options, "weights"), ct_packed_net_of(net)));
    ct_net_settle(ct_packed_net_of(net));
    CT_TRY_GOTO(status, out, ct_continuation_run(&r->c, net, &r->prompt, write_text, NULL));
    say_times(r, "tokens");
out:
    ct_packed_net_destroy(net);
    return status;
}

/* ---- nets of words, which run as their file says */

static ct_status run_words(const ct_options *o, ct_word_net *net, request *r)
{
    CT_TRY(ct_word_net_check_ids(net, ct_tokenizer_size(r->c.tokenizer),
                                 ct_tokenizer_source(r->c.tokenizer)));
    CT_TRY(ct_word_net_load(net, ct_options_text(o, "weights")));
    CT_TRY(ct_continuation_run_words(&r->c, net, &r->prompt, write_text, NULL));
    say_times(r, "words");
    return CT_OK;
}

static ct_status generate_words(ct_call *call)
{
    static const char *const of_tokens[] = { "pattern", "set", "strict" };
    const ct_options *o = call->options;
    request r = { .prompt = { .n = 0 } };
    ct_word_net *net = NULL;
    ct_status status;

    for (size_t i = 0; i < sizeof(of_tokens) / sizeof(of_tokens[0]); i++)
        if (ct_options_origin(o, of_tokens[i]) == CT_ORIGIN_COMMAND)
            return CT_FAIL(CT_ERR_CONFIG, "--%s is for nets of tokens, and %s takes words",
                           of_tokens[i], ct_options_text(o, "model"));
    CT_TRY(ct_job_threads(call->job, (int)ct_options_count(o, "threads", 0)));
    status = ct_continuation_open_words(o, ct_options_text(o, "tokenizer"), &r.c);
    if (status == CT_OK) status = read_prompt(o, &r);
    if (status == CT_OK) status = ct_word_net_make(ct_options_text(o, "model"), &net);
    if (status == CT_OK) status = run_words(o, net, &r);
    ct_word_net_destroy(net);
    close_request(&r);
    return status;
}

static ct_status find_words(const ct_options *o, bool *words_p)
{
    Ct__NetParameter *net = NULL;

    CT_TRY(ct_net_read(ct_options_text(o, "model"), NULL, &net));
    *words_p = ct_is_word_net(net);
    ct__net_parameter__free_unpacked(net, NULL);
    return CT_OK;
}

ct_status ct_verb_generate(ct_call *call)
{
    request r = { .prompt = { .n = 0 } };
    ct_config c;
    ct_status status;
    bool words = false;

    if (call->job->size > 1)
        return CT_FAIL(CT_ERR_CONFIG, "cortado generate runs on one rank, not on %d",
                       call->job->size);
    CT_TRY(check_needs(call->options));
    CT_TRY(find_words(call->options, &words));
    if (words) return generate_words(call);
    CT_TRY_GOTO(status, request, read_request(call->options, &r));
    CT_TRY_GOTO(status, request, ct_call_setup(call, CT_TEST, &c));
    CT_TRY_GOTO(status, out, ct_call_connect(call, &c));
    CT_TRY_GOTO(status, out, run(call, &c, &r));
out:
    ct_config_destroy(&c);
request:
    close_request(&r);
    return status;
}
