/* Whole requests to the server: any method, path, query and headers end in one reply, whose status
 * is one and whose JSON can be read; so do pictures, which a thread decodes. The first byte says
 * what the server is about to do. Then come lines: method, path with query; headers of a letter;
 * an empty line; the body. (Bodies of texts: fuzz_request.c.) */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "serve/api/transaction.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/served_fake.h"
#include "tests/fuzz/tokens.h"

enum { N_CLASS = 5, PICTURE = 12, MOST_INPUTS = 3, MOST_BYTES = 1 << 16 };

/* Of the first byte. */
enum { DRAINS = 1, GOES = 2, LATE = 4, FAILS = 8, LOCKED = 16, NAMED = 32, OLDER = 64 };

static const ct_served_blob inputs[] = {
    { .name = "picture", .n_dim = 4, .dim = { -1, 3, 2, 2 }, .most = { 8, 3, 2, 2 } },
};
static const ct_served_blob outputs[] = {
    { .name = "probability", .n_dim = 2, .dim = { -1, N_CLASS } },
};
static const char *const label[N_CLASS] = { "cat", "dog", "a \"b\"", "d\xc3\xa9", "" };

/* ---- the model */

static ct_status decode(void *ctx, const char *file, size_t n, float *to, char *why, size_t size)
{
    (void)ctx;
    snprintf(why, size, "a file of %zu bytes", n);
    if ((n == 0) || (file[0] == 'd')) return CT_ERR_DATA;
    if (file[0] == 'm') return CT_ERR_NOMEM;
    if (file[0] == 'k') return CT_ERR_CONFIG;
    for (size_t i = 0; i < PICTURE; i++) to[i] = (file[0] == 'n') ? NAN : (float)file[i % n];
    return CT_OK;
}

static ct_status infer(void *ctx, ct_work *const *work, int n)
{
    served_fake *fake = ctx;

    if (fake->fails) return CT_ERR_DEVICE;
    for (int i = 0; i < n; i++) {
        const ct_served_values *x = &work[i]->input[0];
        ct_served_values *y = &work[i]->output[0];
        int64_t rows = x->dim[0];

        *y = (ct_served_values){ 2,
                                 { rows, N_CLASS },
                                 calloc((size_t)(N_CLASS * rows), sizeof(float)) };
        if (y->data == NULL) abort();
        for (int64_t k = 0; k < N_CLASS * rows; k++)
            y->data[k] = x->data[k / N_CLASS * PICTURE + k % N_CLASS];
    }
    return CT_OK;
}

static void open_fake(served_fake *fake, int first)
{
    served_fake_open(fake);
    ct_dispatch_destroy(fake->dispatch);
    fake->fails = (first & FAILS) != 0;
    fake->model.n_input = fake->model.n_output = 1;
    fake->model.input = inputs;
    fake->model.output = outputs;
    fake->model.infer = infer;
    fake->model.n_class = ((first & OLDER) != 0) ? 0 : N_CLASS; /* of before there were pictures */
    fake->model.label = ((first & NAMED) != 0) ? label : NULL;
    fake->model.is_probability = (first & NAMED) != 0;
    fake->model.decode = decode;
    served_fake_dispatch(&fake->model, &fake->dispatch);
}

/* ---- a request of lines */

static char *take_line(char **at)
{
    char *line = *at, *end = (line != NULL) ? strchr(line, '\n') : NULL;

    *at = (end != NULL) ? end + 1 : NULL;
    if (end != NULL) *end = '\0';
    return line;
}

static void read_query(char *query, ct_http_request *q)
{
    for (char *one; (one = strsep(&query, "&")) != NULL;) {
        char *value = strchr(one, '=');

        if (q->n_argument == CT_HTTP_ARGUMENTS) return;
        if (value != NULL) *value++ = '\0';
        q->argument[q->n_argument++] = (ct_http_argument){ one, value };
    }
}

/* False: it is none. */
static bool read_head(char **at, ct_http_request *q)
{
    char *method = take_line(at), *path = (method != NULL) ? strchr(method, ' ') : NULL, *query;

    if (path == NULL) return false;
    *path++ = '\0';
    query = strchr(path, '?');
    if (query != NULL) *query++ = '\0';
    q->method = method;
    q->path = path;
    if (query != NULL) read_query(query, q);
    for (char *line; ((line = take_line(at)) != NULL) && (line[0] != '\0');) {
        if (line[0] == 'k') q->authorization = line + 1;
        if (line[0] == 'j') q->json_length = line + 1;
        if (line[0] == 't') q->type = line + 1;
    }
    return true;
}

/* ---- asking */

static void note_done(void *ctx)
{
    atomic_store((atomic_bool *)ctx, true);
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static void check(const ct_http_reply *r)
{
    size_t n = (r->json_length >= 0) ? (size_t)r->json_length : r->body.length;
    json_t *j;

    if ((r->status < 200) || (r->status > 599) || (n > r->body.length) || (r->type == NULL))
        abort();
    if (strcmp(r->type, "application/json") != 0) {
        if (r->status != 200) abort();
        return;
    }
    j = json_loadb(r->body.text, n, JSON_ALLOW_NUL, NULL);
    if (j == NULL) abort();
    if ((r->status != 200) && (json_object_get(j, "error") == NULL) &&
        (json_object_get(j, "ready") == NULL))
        abort();
    json_decref(j);
}

static void ask(served_fake *fake, ct_transaction *x, int first)
{
    atomic_bool done;

    atomic_init(&done, false);
    x->set.done = note_done;
    x->set.ctx = &done;
    x->wake = nothing;
    if (!ct_transaction_meet(x) && !ct_transaction_begin(x) && !ct_transaction_submit(x)) {
        if ((first & GOES) != 0) ct_transaction_cancel(x);
        while (!atomic_load(&done)) {
            ct_dispatch_step(fake->dispatch);
            if (!atomic_load(&done)) (void)sched_yield();
        }
        if (x->reply.status == 0) ct_transaction_answer(x);
    }
    check(&x->reply);
    ct_transaction_end(x);
}

static const ct_api_keys *keys(void)
{
    static ct_api_keys *k; /* as long as the program */
    char path[128];

    if (k != NULL) return k;
    snprintf(path, sizeof(path), "%s/keys", fuzz_folder_path());
    fuzz_write(path, "one\ntwo\n", 8);
    if (ct_api_keys_read(path, &k) != CT_OK) abort();
    return k;
}

FUZZ_TOKENS(1, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    served_fake fake;
    ct_api *api = NULL;
    ct_api_options o = { .model = &fake.model, .version = "1", .most_inputs = MOST_INPUTS };
    ct_transaction x;
    char *text = malloc(size + 1), *at = text + 1, *body;

    if (text == NULL) abort();
    ct_log_set_sink(fuzz_drop, NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    o.deadline_s = ((size > 0) && ((data[0] & LATE) != 0)) ? 0 : INFINITY;
    o.keys = ((size > 0) && ((data[0] & LOCKED) != 0)) ? keys() : NULL;
    if ((size > 1) && (size < MOST_BYTES)) {
        open_fake(&fake, data[0]);
        if (ct_api_create(&o, fake.dispatch, &api) != CT_OK) abort();
        ct_transaction_init(&x, api);
        if (read_head(&at, &x.request)) {
            if ((data[0] & DRAINS) != 0) ct_api_drain(api);
            x.request.size = (at != NULL) ? size - (size_t)(at - text) : 0;
            body = malloc(x.request.size + 1); /* of its own, so that a byte too many is seen */
            if (body == NULL) abort();
            if (at != NULL) memcpy(body, at, x.request.size);
            x.request.body = body;
            ask(&fake, &x, data[0]);
            free(body);
        }
        ct_api_destroy(api);
        served_fake_close(&fake);
    }
    free(text);
    return 0;
}
