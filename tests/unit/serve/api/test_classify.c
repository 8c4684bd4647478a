/* POST /classify without the network: forms and what is wrong with them, the order of classes,
 * files that a model refuses, and requests that end while they wait for a decoder. */
#include "tests/test.h"
#include "tests/served_fake.h"

#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "serve/api/multipart.h"
#include "serve/api/transaction.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CLASSES = 4, DECODERS = 8 /* at most */ };

/* A file is two digits x and y; the classes have x, y, x and no number. "bad", "kind" and "full"
 * are refused; "slow" waits for the gate. */
typedef struct own {
    ct_served_model model;
    ct_dispatch *dispatch;
    ct_api *api;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
    int n_waiting, n_decoded;
} own;

static own o;

static ct_status decode(void *ctx, const char *file, size_t n, float *to, char *why, size_t size)
{
    const bool slow = (n == 4) && (memcmp(file, "slow", 4) == 0);

    (void)ctx;
    (void)pthread_mutex_lock(&o.lock);
    o.n_decoded++;
    o.n_waiting += slow;
    while (slow && !o.open) (void)pthread_cond_wait(&o.opened, &o.lock);
    (void)pthread_mutex_unlock(&o.lock);
    snprintf(why, size, "%.*s it is", (int)n, file);
    if ((n == 3) && (memcmp(file, "bad", 3) == 0)) return CT_ERR_DATA;
    if ((n == 4) && (memcmp(file, "kind", 4) == 0)) return CT_ERR_CONFIG;
    if ((n == 4) && (memcmp(file, "full", 4) == 0)) return CT_ERR_NOMEM;
    to[0] = (n > 0) ? (float)(file[0] - '0') : 0.0f;
    to[1] = (n > 1) ? (float)(file[1] - '0') : 0.0f;
    return CT_OK;
}

static ct_status infer(void *ctx, ct_work *const *work, int n)
{
    (void)ctx;
    for (int i = 0; i < n; i++) {
        const float *x = work[i]->input->data;
        float *y = malloc(CLASSES * sizeof(*y));

        assert_non_null(y);
        y[0] = y[2] = x[0];
        y[1] = x[1];
        y[3] = NAN;
        *work[i]->output = (ct_served_values){ .n_dim = 2, .dim = { 1, CLASSES }, .data = y };
    }
    return CT_OK;
}

static void begin(double deadline_s, const char *const *label)
{
    static const ct_served_blob input = {
        .name = "x", .n_dim = 4, .dim = { -1, 1, 1, 2 }, .most = { 4, 1, 1, 2 }
    };
    static const ct_served_blob output = { .name = "y", .n_dim = 2, .dim = { -1, CLASSES } };
    ct_api_options a = {
        .model = &o.model, .version = "1", .deadline_s = deadline_s, .most_inputs = 3
    };

    memset(&o, 0, sizeof(o));
    o.model = (ct_served_model){ .name = "m",
                                 .n_input = 1,
                                 .n_output = 1,
                                 .input = &input,
                                 .output = &output,
                                 .infer = infer,
                                 .n_class = CLASSES,
                                 .label = label,
                                 .is_probability = (label != NULL),
                                 .decode = decode };
    assert_int_equal(pthread_mutex_init(&o.lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&o.opened, NULL), 0);
    served_fake_dispatch(&o.model, &o.dispatch);
    assert_int_equal(ct_api_create(&a, o.dispatch, &o.api), CT_OK);
    assert_int_equal(ct_dispatch_start(o.dispatch), CT_OK);
}

static void end(void)
{
    ct_api_destroy(o.api);
    ct_dispatch_destroy(o.dispatch);
    (void)pthread_cond_destroy(&o.opened);
    (void)pthread_mutex_destroy(&o.lock);
}

static void nap(void)
{
    const struct timespec t = { 0, 1000000 };

    (void)nanosleep(&t, NULL);
}

/* ---- requests */

typedef struct asked {
    ct_transaction x;
    atomic_bool done;
    bool over; /* refused at once */
} asked;

static void note_done(void *ctx)
{
    atomic_store(&((asked *)ctx)->done, true);
}

/* The body is as long as it says, and goes once it was read. */
static void ask(asked *a, const char *type, const char *name, const char *value, const char *body,
                size_t size)
{
    char *sent = malloc(size + (size == 0));

    assert_non_null(sent);
    memcpy(sent, body, size);
    ct_transaction_init(&a->x, o.api);
    atomic_init(&a->done, false);
    a->x.request = (ct_http_request){
        .method = "POST", .path = "/classify", .body = sent, .size = size, .type = type
    };
    if (name != NULL)
        a->x.request.argument[a->x.request.n_argument++] = (ct_http_argument){ name, value };
    a->x.set.done = note_done;
    a->x.set.ctx = a;
    a->over = ct_transaction_meet(&a->x) || ct_transaction_begin(&a->x);
    memset(sent, '?', size);
    free(sent);
    if (!a->over) a->over = ct_transaction_submit(&a->x);
}

static char reply[4096];

static int answer(asked *a)
{
    int status;

    while (!a->over && !atomic_load(&a->done)) nap();
    if (a->x.reply.status == 0) ct_transaction_answer(&a->x);
    status = a->x.reply.status;
    assert_true(a->x.reply.body.length < sizeof(reply));
    memcpy(reply, a->x.reply.body.text, a->x.reply.body.length);
    reply[a->x.reply.body.length] = '\0';
    ct_transaction_end(&a->x);
    return status;
}

static int post(const char *type, const char *body, size_t size)
{
    asked a;

    ask(&a, type, NULL, NULL, body, size);
    return answer(&a);
}

static int post_top(const char *name, const char *value)
{
    asked a;

    ask(&a, "image/png", name, value, "12", 2);
    return answer(&a);
}

static void expect(const char *part)
{
    if (strstr(reply, part) == NULL) fail_msg("no %s in %s", part, reply);
}

#define FORM "multipart/form-data; boundary=B"
#define PART(_name, _data)                                                                         \
    "--B\r\nContent-Disposition: form-data; name=\"f\"; filename=" _name "\r\n\r\n" _data "\r\n"

static int post_form(const char *body)
{
    return post(FORM, body, strlen(body));
}

/* ---- tests */

static const char *const labels[] = { "a", "b \"c\"", "d", "e" };

static void classes_come_in_order(void **state)
{
    (void)state;
    begin(INFINITY, labels);
    assert_int_equal(post("image/png", "12", 2), 200);
    assert_string_equal(reply, "{\"model\":\"m\",\"pictures\":[{\"file\":null,\"classes\":["
                               "{\"class\":1,\"label\":\"b \\\"c\\\"\",\"probability\":2},"
                               "{\"class\":0,\"label\":\"a\",\"probability\":1},"
                               "{\"class\":2,\"label\":\"d\",\"probability\":1},"
                               "{\"class\":3,\"label\":\"e\",\"probability\":null}]}]}\n");
    assert_int_equal(post_top("top_k", "1"), 200);
    expect("[{\"class\":1,\"label\":\"b \\\"c\\\"\",\"probability\":2}]");
    assert_int_equal(post_top("top_k", "0"), 400);
    expect("top_k is 0, expected 1 to 1000000");
    assert_int_equal(post_top("top_k", NULL), 400);
    assert_int_equal(post_top("top_k", "99999999999999999999"), 400);
    assert_int_equal(post_top("top_k", "-1"), 400);
    assert_int_equal(post_top("k", "1"), 400);
    expect("?k is nothing that /classify knows");
    end();
    begin(INFINITY, NULL);
    assert_int_equal(post("image/jpeg; x=y", "21", 2), 200);
    expect("[{\"class\":0,\"score\":2},{\"class\":2,\"score\":2},{\"class\":1,\"score\":1},");
    end();
}

static void forms_are_read(void **state)
{
    (void)state;
    begin(INFINITY, NULL);
    assert_int_equal(post_form("before\r\n" PART("\"a;\\\"b\"", "12") PART("c", "34") "--B--after"),
                     200);
    expect("{\"file\":\"a;\\\"b\",\"classes\":[{\"class\":1,\"score\":2}");
    expect("{\"file\":\"c\",\"classes\":[{\"class\":1,\"score\":4}");
    assert_int_equal(post("Multipart/Form-Data; x=1; Boundary=\"B\"", PART("x", "12") "--B--",
                          strlen(PART("x", "12") "--B--")),
                     200);
    assert_int_equal(post_form(PART("\"\377\"", "12") "--B--"), 200);
    expect("{\"file\":\"?\"");
    assert_int_equal(post_form(PART("a", "1\r\n--A\r\n") "--B--"), 200);
    assert_int_equal(post_form(PART("a", "1") PART("a", "1") PART("a", "1") PART("a", "1") "--B--"),
                     422);
    expect("more than 3 files in a request");
    assert_int_equal(post_form("--B\r\n\r\n12\r\n--B--"), 400);
    expect("a part of the form is no file");
    assert_int_equal(post_form("--BC\r\n\r\n12\r\n--B--"), 400);
    expect("a boundary is followed by other than a new line");
    assert_int_equal(post_form("--B--"), 400);
    expect("the form has no file");
    assert_int_equal(post("multipart/form-data", "--B--", 5), 400);
    expect("has no boundary");
    assert_int_equal(post("multipart/form-data; boundary=\"\"", "--B--", 5), 400);
    assert_int_equal(post("multipart/form-data; boundary="
                          "12345678901234567890123456789012345678901234567890123456789012345678901",
                          "--B--", 5),
                     400);
    assert_int_equal(post(NULL, "12", 2), 415);
    expect("Content-Type is missing");
    assert_int_equal(post("image/pngs", "12", 2), 415);
    end();
}

/* Each body that ends too soon is an error, and nothing beyond its end is looked at. */
static void forms_that_end_early(void **state)
{
    const char *body = "x\r\n" PART("a", "12") PART("\"b\\\"\"", "34") "--B--";

    (void)state;
    begin(INFINITY, NULL);
    for (size_t n = 0; n < strlen(body); n++) assert_int_equal(post(FORM, body, n), 400);
    assert_int_equal(post_form(body), 200);
    end();
}

static void files_are_refused(void **state)
{
    (void)state;
    begin(INFINITY, NULL);
    assert_int_equal(post_form(PART("a", "12") PART("b", "bad") "--B--"), 422);
    expect("file 2, b: bad it is");
    assert_int_equal(post("image/png", "kind", 4), 415);
    expect("file 1: kind it is");
    assert_int_equal(post("image/png", "full", 4), 500);
    assert_int_equal(post("image/png", "", 0), 400);
    ct_api_drain(o.api);
    assert_int_equal(post("image/png", "12", 2), 503);
    end();
}

static int count(const int *what)
{
    int n;

    (void)pthread_mutex_lock(&o.lock);
    n = *what;
    (void)pthread_mutex_unlock(&o.lock);
    return n;
}

/* All decoders are at slow files, and one more request waits. */
static void keep_busy(asked *slow, int *n_p, asked *next)
{
    int n = 0;

    for (double start = ct_clock_s(); n < DECODERS; n++) {
        ask(&slow[n], "image/png", NULL, NULL, "slow", 4);
        for (int i = 0; (i < 200) && (count(&o.n_waiting) <= n); i++) nap();
        if (count(&o.n_waiting) <= n) { /* no more threads: this one waits, too */
            n++;
            break;
        }
        assert_true(ct_clock_s() - start < 60);
    }
    *n_p = n;
    ask(next, "image/png", NULL, NULL, "12", 2);
}

static void open_gate(void)
{
    (void)pthread_mutex_lock(&o.lock);
    o.open = true;
    (void)pthread_cond_broadcast(&o.opened);
    (void)pthread_mutex_unlock(&o.lock);
}

/* Nobody waits for it any more: its file is not decoded. */
static void cancelled_while_it_waits(void **state)
{
    asked slow[DECODERS], next;
    int n;

    (void)state;
    begin(INFINITY, NULL);
    keep_busy(slow, &n, &next);
    ct_transaction_cancel(&next.x);
    open_gate();
    assert_int_equal(answer(&next), 503);
    for (int i = 0; i < n; i++) assert_int_equal(answer(&slow[i]), 200);
    assert_int_equal(o.n_decoded, n);
    end();
}

/* … and of several files those that are left are not. */
static void cancelled_between_files(void **state)
{
    static const char form[] =
        "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"1\"\r\n\r\n"
        "slow\r\n--b\r\n"
        "Content-Disposition: form-data; name=\"f\"; filename=\"2\"\r\n\r\n"
        "12\r\n--b--\r\n";
    asked a;

    (void)state;
    begin(INFINITY, NULL);
    ask(&a, "multipart/form-data; boundary=b", NULL, NULL, form, sizeof(form) - 1);
    while (count(&o.n_waiting) == 0) nap();
    ct_transaction_cancel(&a.x);
    open_gate();
    assert_int_equal(answer(&a), 503);
    assert_int_equal(o.n_decoded, 1);
    end();
}

static void expired_while_it_waits(void **state)
{
    asked slow[DECODERS], next;
    double start;
    int n;

    (void)state;
    begin(0.05, NULL);
    keep_busy(slow, &n, &next);
    for (start = ct_clock_s(); ct_clock_s() - start < 0.06;) nap();
    open_gate();
    assert_int_equal(answer(&next), 504);
    for (int i = 0; i < n; i++) assert_int_equal(answer(&slow[i]), 504);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes_come_in_order),    cmocka_unit_test(forms_are_read),
        cmocka_unit_test(forms_that_end_early),     cmocka_unit_test(files_are_refused),
        cmocka_unit_test(cancelled_while_it_waits), cmocka_unit_test(cancelled_between_files),
        cmocka_unit_test(expired_while_it_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
