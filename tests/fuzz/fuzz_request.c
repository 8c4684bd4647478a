/* Requests to the server: any body ends in a reply whose JSON can be read, with a status that is
 * one. The first byte says what is asked, and for infer how much of the body is JSON, for texts
 * what happens meanwhile: a client that goes, a batch that fails. Events of a stream are JSON, too,
 * and say together what the same request says in one reply. The models are the tests' own. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/multipart.h"
#include "serve/api/transaction.h"
#include "tests/fuzz/fuzz.h"
#include "tests/served_fake.h"
#include "tests/fuzz/tokens.h"

#define TOKENIZER "tests/golden/chat/tokenizer.json" /* make fuzz runs where this is */

enum {
    MOST_TEXTS = 6,
    MOST_STEPS = 2000,
    /* the first byte */
    TEXTS = 3,    /* of its low bits: completions, or chats; 1: embeddings; else infer */
    CHAT = 4,     /* of texts */
    FAILS = 8,    /* a batch fails behind the first                                      */
    GOES = 16,    /* the client goes, behind as many batches as the bits above say       */
    IN_PIECES = 5 /* bits above this: bytes of events that are pulled at a time          */
};

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

/* ---- texts, and events */

/* What a reply, or all events of one, said of each text. */
typedef struct said {
    bool broken, done; /* an error ended it; [DONE] came */
    ct_text text[MOST_TEXTS];
    const char *finish[MOST_TEXTS];
    int n;
} said;

static void free_said(said *s)
{
    for (int i = 0; i < MOST_TEXTS; i++) ct_text_destroy(&s->text[i]);
}

/* A choice of a reply, or of an event. */
static void hear_choice(said *s, const json_t *choice)
{
    const char *const finishes[] = { "stop", "length" };
    const json_t *message = json_object_get(choice, "message");
    const json_t *content = json_object_get(choice, "text");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    json_int_t i = json_integer_value(json_object_get(choice, "index"));

    if (message == NULL) message = json_object_get(choice, "delta");
    if (message != NULL) content = json_object_get(message, "content");
    if (!json_is_string(content) || (i < 0) || (i >= MOST_TEXTS)) abort();
    if (s->finish[i] != NULL) abort(); /* more of a text that has ended */
    ct_text_add_bytes(&s->text[i], json_string_value(content), json_string_length(content));
    for (int k = 0; (finish != NULL) && (k < 2); k++)
        if (strcmp(finish, finishes[k]) == 0) s->finish[i] = finishes[k];
    if ((finish != NULL) && (s->finish[i] == NULL)) abort();
    if (s->n <= i) s->n = (int)i + 1;
}

static void hear(said *s, const char *text, size_t n)
{
    json_t *j = json_loadb(text, n, JSON_ALLOW_NUL, NULL);
    const json_t *choices = json_object_get(j, "choices");

    if ((j == NULL) || s->broken || s->done) abort();
    s->broken = (json_object_get(j, "error") != NULL);
    if (!s->broken && !json_is_array(choices)) abort();
    for (size_t k = 0; k < json_array_size(choices); k++)
        hear_choice(s, json_array_get(choices, k));
    json_decref(j);
}

/* All that came of a stream: lines "data: …" with an empty one behind each. */
static void hear_events(said *s, const ct_text *all)
{
    const char *at = all->text, *end = all->text + all->length;

    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);

        if ((stop == NULL) || (stop - at < 6) || (memcmp(at, "data: ", 6) != 0)) abort();
        at += 6;
        if ((stop - at == 6) && (memcmp(at, "[DONE]", 6) == 0)) {
            if (s->broken || s->done) abort();
            s->done = true;
        } else {
            hear(s, at, (size_t)(stop - at));
        }
        at = stop + 2;
    }
    if (s->done == s->broken) abort(); /* one of the two ends every stream */
    for (int i = 0; s->done && (i < s->n); i++)
        if (s->finish[i] == NULL) abort();
}

static void pull(ct_transaction *x, size_t piece, ct_text *to)
{
    char *some = malloc(piece); /* of its own, so that a byte too many is seen */
    size_t n;

    if (some == NULL) abort();
    while ((n = ct_transaction_pull(x, some, piece)) > 0) ct_text_add_bytes(to, some, n);
    free(some);
}

/* ---- asking */

/* One request until its end. */
typedef struct run {
    served_fake *fake;
    ct_transaction x;
    bool done, streams, gone;
    ct_text events;
} run;

static void nothing(void *ctx)
{
    (void)ctx;
}

static void run_batches(run *r, uint8_t first)
{
    bool texts = (first & 3) == TEXTS;
    int goes = (texts && (first & GOES)) ? first >> IN_PIECES : -1;

    for (int i = 0; (i < MOST_STEPS) && !r->done; i++) {
        r->fake->fails = texts && (first & FAILS) && (i == 1);
        if (i == goes) {
            r->gone = true;
            ct_transaction_cancel(&r->x);
        }
        ct_dispatch_step(r->fake->dispatch);
        if (!r->streams) r->streams = ct_transaction_streams(&r->x);
        if (r->streams) pull(&r->x, 1 + (size_t)(first >> IN_PIECES) * 9, &r->events);
    }
    if (!r->done) abort();
}

static void begin(run *r, ct_api *api, uint8_t first, const char *body, size_t size)
{
    static const char *const path[] = { "/v2/models/fake/infer", "/v1/embeddings",
                                        "/v2/models/fake/infer", "/v1/completions" };
    ct_transaction *x = &r->x;
    char length[8];

    ct_transaction_init(x, api);
    snprintf(length, sizeof(length), "%zu", (first & 2) ? size * (first >> 2) / 63 : size);
    x->request = (ct_http_request){
        .method = "POST", .path = path[first & 3], .json_length = length, .body = body, .size = size
    };
    if (((first & 3) == TEXTS) && (first & CHAT)) x->request.path = "/v1/chat/completions";
    x->set.done = note_done;
    x->set.ctx = &r->done;
    x->wake = nothing;
    if (!ct_transaction_meet(x) && !ct_transaction_begin(x) && !ct_transaction_submit(x)) {
        run_batches(r, first);
        if (r->streams) {
            ct_transaction_end_events(x);
            pull(x, 4096, &r->events);
            return;
        }
        ct_transaction_answer(x);
    }
    check(&x->reply);
}

static void end(run *r)
{
    ct_transaction_end(&r->x);
    ct_text_destroy(&r->events);
}

/* What came, as texts. */
static void take_said(const run *r, said *s)
{
    memset(s, 0, sizeof(*s));
    if (r->streams)
        hear_events(s, &r->events);
    else if (r->x.reply.status == 200)
        hear(s, r->x.reply.body.text, r->x.reply.body.length);
    else
        s->broken = true;
}

/* The body as it would be with this seed, streamed or not; NULL: it is no object. */
static char *vary(const char *body, size_t size, bool stream)
{
    json_t *j = json_loadb(body, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    char *text = NULL;

    if (json_is_object(j)) {
        (void)json_object_set_new(j, "seed", json_integer(5));
        (void)json_object_set_new(j, "stream", json_boolean(stream));
        (void)json_object_del(j, "stream_options"); /* without a stream it is an error */
        text = json_dumps(j, 0);
    }
    json_decref(j);
    return text;
}

/* The same in one reply and in events. */
static void compare(served_fake *fake, ct_api *api, uint8_t first, const char *body, size_t size)
{
    run r[2];
    said s[2];

    memset(r, 0, sizeof(r));
    for (int k = 0; k < 2; k++) {
        char *text = vary(body, size, k == 1);

        if (text == NULL) return;
        r[k].fake = fake;
        begin(&r[k], api, first & (TEXTS | CHAT), text, strlen(text));
        free(text);
        take_said(&r[k], &s[k]);
    }
    if ((r[0].x.reply.status == 200) && !r[1].streams) abort();
    for (int i = 0; (r[0].x.reply.status == 200) && (i < s[0].n); i++) {
        if ((s[0].finish[i] != s[1].finish[i]) || (s[0].text[i].length != s[1].text[i].length) ||
            (memcmp(s[0].text[i].text, s[1].text[i].text, s[0].text[i].length) != 0))
            abort();
    }
    for (int k = 0; k < 2; k++) {
        free_said(&s[k]);
        end(&r[k]);
    }
}

static void ask(served_fake *fake, ct_api *api, uint8_t first, const char *body, size_t size)
{
    run r = { .fake = fake };
    said s;

    begin(&r, api, first, body, size);
    if (r.streams) {
        take_said(&r, &s);
        free_said(&s);
    }
    end(&r);
    if ((first & 3) == TEXTS) compare(fake, api, first, body, size);
}

static const ct_tokenizer *tokenizer_of_chats(void)
{
    static ct_tokenizer *t; /* as long as the program */

    if ((t == NULL) && (ct_tokenizer_open(TOKENIZER, NULL, &t) != CT_OK)) abort();
    return t;
}

/* Any bytes as the body of a form: parts lie in it, one behind the other. */
static void read_form(const char *body, size_t size)
{
    static const char type[] = "multipart/form-data; boundary=b";
    const char *last = body;
    ct_multipart m;

    if (ct_multipart_begin(&m, type, body, size) != NULL) return;
    for (;;) {
        ct_multipart_part part;

        if ((ct_multipart_next(&m, &part) != NULL) || m.over) return;
        if ((part.data < last) || (part.size > (size_t)(body + size - part.data))) abort();
        if (memchr(part.file, '\0', sizeof(part.file)) == NULL) abort();
        last = part.data + part.size;
    }
}

FUZZ_TOKENS(1, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    served_fake fake;
    ct_api *api = NULL;
    ct_api_options o = { .model = &fake.model,
                         .version = "1",
                         .deadline_s = INFINITY,
                         .most_inputs = MOST_TEXTS,
                         .chat = CT_CHAT_CHATML };
    char *body;

    if ((size < 1) || (size > 65536)) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    if ((data[0] & 3) == TEXTS)
        served_fake_open_texts(&fake, tokenizer_of_chats());
    else
        served_fake_open(&fake);
    body = malloc(size); /* of its own, so that a byte too many is seen */
    if ((body == NULL) || (ct_api_create(&o, fake.dispatch, &api) != CT_OK)) abort();
    memcpy(body, data + 1, size - 1);
    ask(&fake, api, data[0], body, size - 1);
    read_form(body, size - 1);
    free(body);
    ct_api_destroy(api);
    served_fake_close(&fake);
    return 0;
}
