/* Requests to the server: any body ends in a reply whose JSON can be read, with a status that is
 * one. The first byte says what is asked and how much of the body is JSON; the model is the tests'
 * own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/transaction.h"
#include "tests/fuzz/fuzz.h"
#include "tests/served_fake.h"

static void note_done(void *ctx)
{
    *(bool *)ctx = true;
}

static void check(const ct_http_reply *r)
{
    size_t n = (r->json_length >= 0) ? (size_t)r->json_length : r->body.length;
    json_t *j;

    if ((r->status < 200) || (r->status > 599) || (n > r->body.length)) abort();
    j = json_loadb(r->body.text, n, JSON_ALLOW_NUL, NULL);
    if (j == NULL) abort();
    if ((r->status != 200) && (json_object_get(j, "error") == NULL)) abort();
    json_decref(j);
}

static void ask(served_fake *fake, ct_api *api, uint8_t first, const char *body, size_t size)
{
    const char *path = (first & 1) ? "/v1/embeddings" : "/v2/models/fake/infer";
    char length[8];
    ct_transaction x;
    bool done = false;

    ct_transaction_init(&x, api);
    snprintf(length, sizeof(length), "%zu", (first & 2) ? size * (first >> 2) / 63 : size);
    x.request = (ct_http_request){
        .method = "POST", .path = path, .json_length = length, .body = body, .size = size
    };
    x.set.done = note_done;
    x.set.ctx = &done;
    if (!ct_transaction_meet(&x) && !ct_transaction_begin(&x) && !ct_transaction_submit(&x)) {
        for (int i = 0; (i < 100) && !done; i++) ct_dispatch_step(fake->dispatch);
        if (!done) abort();
        ct_transaction_answer(&x);
    }
    check(&x.reply);
    ct_transaction_end(&x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    served_fake fake;
    ct_api *api = NULL;
    ct_api_options o = {
        .model = &fake.model, .version = "1", .deadline_s = INFINITY, .most_inputs = 6
    };
    char *body;

    if ((size < 1) || (size > 65536)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    served_fake_open(&fake);
    body = malloc(size); /* of its own, so that a byte too many is seen */
    if ((body == NULL) || (ct_api_create(&o, fake.dispatch, &api) != CT_OK)) abort();
    memcpy(body, data + 1, size - 1);
    ask(&fake, api, data[0], body, size - 1);
    free(body);
    ct_api_destroy(api);
    served_fake_close(&fake);
    return 0;
}
