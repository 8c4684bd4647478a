/* cortado generate: goes on with a text, token by token. Standard output has the new text alone. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "framework/base/clock.h"
#include "framework/net/packed.h"
#include "framework/snapshot/snapshot.h"
#include "framework/text/sampler.h"
#include "framework/text/unicode.h"

enum { MOST_CHUNK = 128 /* tokens of the prompt that a pass takes */, MOST_NEW = 1000000 };

typedef struct request {
    int64_t max_tokens;
    ct_sampling how;
    ct_tokenizer *tokenizer;
    int64_t n_id; /* of the tokenizer; the net may score more */
    ct_ids prompt, made;
    ct_text text;   /* of made                       */
    size_t written; /* of text, to standard output   */
    ct_sampler *sampler;
} request;

/* ---- what is asked for */

static ct_status read_number(const ct_options *o, const char *name, double least, double most,
                             double *v_p)
{
    const char *text = ct_options_text(o, name);
    char *end;
    double v;

    if (text == NULL) return CT_OK;
    errno = 0;
    v = strtod(text, &end);
    if ((end == text) || (*end != '\0') || !(v >= least) || !(v <= most))
        return CT_FAIL(CT_ERR_CONFIG, "--%s=%s: a number from %g to %g is needed", name, text,
                       least, most);
    *v_p = v;
    return CT_OK;
}

static ct_status read_request(const ct_options *o, request *r)
{
    static const char *const needs[] = { "model", "weights", "tokenizer", "prompt" };
    const char *prompt = ct_options_text(o, "prompt");

    for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
        if (ct_options_text(o, needs[i]) == NULL)
            return CT_FAIL(CT_ERR_CONFIG, "cortado generate needs --%s", needs[i]);
    }
    r->max_tokens = ct_options_count(o, "max_tokens", 64);
    r->how.seed = (uint64_t)ct_options_count(o, "seed", 1);
    r->how.top_p = 1.0;
    if ((r->max_tokens < 1) || (r->max_tokens > MOST_NEW))
        return CT_FAIL(CT_ERR_CONFIG, "--max_tokens=%" PRId64 ": expected 1 to %d", r->max_tokens,
                       MOST_NEW);
    CT_TRY(read_number(o, "temperature", 0.0, 1000.0, &r->how.temperature));
    CT_TRY(read_number(o, "top_p", 1e-9, 1.0, &r->how.top_p));
    CT_TRY(ct_tokenizer_open(ct_options_text(o, "tokenizer"), ct_options_text(o, "pattern"),
                             &r->tokenizer));
    CT_TRY(
        ct_tokenizer_encode(r->tokenizer, prompt, strlen(prompt), false, "--prompt", &r->prompt));
    if (r->prompt.n == 0) return CT_FAIL(CT_ERR_CONFIG, "--prompt has no token");
    r->n_id = ct_tokenizer_size(r->tokenizer);
    return ct_sampler_create(r->tokenizer, &r->sampler);
}

static void close_request(request *r)
{
    ct_tokenizer_close(r->tokenizer);
    ct_ids_destroy(&r->prompt);
    ct_ids_destroy(&r->made);
    ct_text_destroy(&r->text);
    ct_sampler_destroy(r->sampler);
}

static ct_status choose(const request *r, const float *score, int32_t *id_p)
{
    if (ct_sampler_choose(r->sampler, &r->how, r->made.n, score, id_p) == CT_OK) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "after %" PRId64 " tokens the scores of the next are no numbers",
                   r->prompt.n + r->made.n);
}

/* ---- the text */

/* What there is of the text and was not written yet; last: whether characters are whole or not. */
static ct_status write_text(request *r, bool last)
{
    size_t n;

    r->text.length = 0;
    CT_TRY(ct_tokenizer_decode(r->tokenizer, r->made.id, r->made.n, &r->text));
    n = last ? r->text.length : ct_utf8_whole(r->text.text, r->text.length);
    if (n <= r->written) return CT_OK;
    if ((fwrite(r->text.text + r->written, 1, n - r->written, stdout) != n - r->written) ||
        (fflush(stdout) != 0))
        return CT_FAIL(CT_ERR_IO, "cannot write to standard output: %s", strerror(errno));
    r->written = n;
    return CT_OK;
}

/* ---- the net */

/* The prompt in chunks: the scores behind it. */
static ct_status read_prompt(const request *r, ct_packed_net *net, ct_packed_item *item)
{
    int64_t chunk = ct_packed_net_most_tokens(net);

    for (int64_t at = 0; at < r->prompt.n; at += item->n) {
        item->id = r->prompt.id + at;
        item->n = (r->prompt.n - at < chunk) ? r->prompt.n - at : chunk;
        item->want = (at + item->n < r->prompt.n) ? CT_ROWS_NONE : CT_ROWS_LAST;
        CT_TRY(ct_packed_net_run(net, item, 1));
    }
    return CT_OK;
}

static ct_status generate(request *r, ct_packed_net *net, ct_packed_sequence *s)
{
    ct_packed_item item = { .sequence = s };
    int32_t end = ct_tokenizer_end(r->tokenizer), id = 0;
    double start = ct_clock_s(), first;

    CT_TRY(read_prompt(r, net, &item));
    item.id = &id;
    item.n = 1;
    first = ct_clock_s();
    for (;;) {
        CT_TRY(choose(r, item.row, &id));
        if (id == end) break;
        CT_TRY(ct_ids_add(&r->made, &id, 1));
        CT_TRY(write_text(r, false));
        if (r->made.n == r->max_tokens) break;
        CT_TRY(ct_packed_net_run(net, &item, 1));
    }
    CT_TRY(write_text(r, true));
    CT_INFO("Prompt: %" PRId64 " tokens in %.3f s.", r->prompt.n, first - start);
    CT_INFO("Generated: %" PRId64 " tokens in %.3f s%s.", r->made.n, ct_clock_s() - first,
            (id == end) ? ", to the end token" : "");
    return CT_OK;
}

/* Chunks as long as each other, so that little of the last is in vain. */
static int64_t chunk_of(int64_t n)
{
    int64_t chunks = (n + MOST_CHUNK - 1) / MOST_CHUNK;

    return (n + chunks - 1) / chunks;
}

static ct_status run(ct_call *call, const ct_config *c, request *r)
{
    ct_net_options options;
    ct_net_state state;
    ct_packed_most most = { .sequences = 1, .tokens = chunk_of(r->prompt.n) };
    ct_packed_net *net = NULL;
    ct_packed_sequence *s = NULL;
    ct_status status;
    int64_t kept;

    CT_TRY(ct_net_state_read(call->options, &state));
    ct_net_options_fill(call, c, CT_TEST, &state, &options);
    options.dev = NULL;
    most.cached = most.length = r->prompt.n + r->max_tokens - 1;
    CT_TRY(ct_packed_net_create(c->net, &options, &most, &net));
    CT_TRY_GOTO(status, out,
                ct_packed_net_check_ids(net, r->n_id, ct_tokenizer_source(r->tokenizer)));
    CT_TRY_GOTO(status, out,
                ct_packed_sequence_open(net, r->prompt.id, r->prompt.n, most.length, &s, &kept));
    CT_TRY_GOTO(
        status, out,
        ct_weights_load_all(ct_options_text(call->options, "weights"), ct_packed_net_of(net)));
    ct_net_settle(ct_packed_net_of(net));
    CT_TRY_GOTO(status, out, generate(r, net, s));
out:
    ct_packed_sequence_close(s);
    ct_packed_net_destroy(net);
    return status;
}

ct_status ct_verb_generate(ct_call *call)
{
    request r = { .written = 0 };
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
