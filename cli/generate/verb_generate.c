/* cortado generate: goes on with a text, token by token. Standard output has the new text alone. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/generate/continuation.h"
#include "cli/verb.h"
#include "framework/snapshot/snapshot.h"

typedef struct request {
    ct_continuation c;
    ct_ids prompt;
} request;

static ct_status read_request(const ct_options *o, request *r)
{
    static const char *const needs[] = { "model", "weights", "tokenizer", "prompt" };
    const char *prompt = ct_options_text(o, "prompt");

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if (ct_options_text(o, needs[i]) == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "cortado generate needs --%s", needs[i]);
    }
    CT_TRY(ct_continuation_open(o, ct_options_text(o, "tokenizer"), ct_options_text(o, "pattern"),
                                &r->c));
    return ct_continuation_encode(&r->c, prompt, strlen(prompt), "--prompt", &r->prompt);
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
    CT_INFO("Prompt: %" PRId64 " tokens in %.3f s.", r->prompt.n, r->c.prompt_s);
    CT_INFO("Generated: %" PRId64 " tokens in %.3f s%s.", r->c.made.n, r->c.made_s,
            r->c.ended ? ", to the end token" : "");
out:
    ct_packed_net_destroy(net);
    return status;
}

ct_status ct_verb_generate(ct_call *call)
{
    request r = { .prompt = { .n = 0 } };
    ct_config c;
    ct_status status;

    if (call->job->size > 1)
        return CT_FAIL(CT_ERR_CONFIG, "cortado generate runs on one rank, not on %d",
                       call->job->size);
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
