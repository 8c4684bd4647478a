/* The server on real sockets: connections, limits, clients that are slow or go away, its end. */
#include "tests/test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "runtime/config/features.h"
#include "serve/http/front.h"
#include "serve/http/sockets.h"
#include "tests/log_capture.h"
#include "tests/served_fake.h"

static served_fake fake;
static ct_api_keys *keys; /* NULL: none are asked for */
static ct_api *api;
static ct_front *front;
static log_capture captured;
static char unix_path[64];

static const ct_front_options usual = { .listen = "127.0.0.1:0",
                                        .most_connections = 64,
                                        .most_header = 32768,
                                        .most_body = 4096,
                                        .read_s = 10,
                                        .write_s = 60,
                                        .linger_s = 20 };

static void start(const ct_front_options *o)
{
    ct_api_options a = {
        .model = &fake.model, .keys = keys, .version = "1", .deadline_s = INFINITY, .most_inputs = 8
    };

    served_fake_open(&fake);
    assert_int_equal(ct_api_create(&a, fake.dispatch, &api), CT_OK);
    assert_int_equal(ct_front_start(api, o, &front), CT_OK);
    assert_int_equal(ct_dispatch_start(fake.dispatch), CT_OK);
}

static void stop(void)
{
    ct_front_stop(front);
    ct_api_destroy(api);
    served_fake_close(&fake);
}

/* ---- a client */

static int dial(void)
{
    const char *address = ct_front_address(front);
    struct sockaddr_un u = { .sun_family = AF_UNIX };
    struct sockaddr_in a = { .sin_family = AF_INET };
    int fd, port;

    if (sscanf(address, "127.0.0.1:%d", &port) == 1) {
        a.sin_port = htons((in_port_t)port);
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0) return fd;
    } else {
        snprintf(u.sun_path, sizeof(u.sun_path), "%s", address + strlen("unix:"));
        fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&u, sizeof(u)) == 0) return fd;
    }
    (void)close(fd);
    return -1;
}

static void tell(int fd, const char *text)
{
    size_t n = strlen(text), at = 0;

    while (at < n) {
        ssize_t some = send(fd, text + at, n - at, MSG_NOSIGNAL);

        if (some <= 0) return; /* the server has closed: what it said is read */
        at += (size_t)some;
    }
}

typedef struct answer {
    int status;
    char text[65536]; /* the head and the body */
    const char *body;
} answer;

static size_t length_said(const char *text)
{
    const char *at = strcasestr(text, "\r\nContent-Length: ");

    return (at != NULL) ? strtoul(at + 18, NULL, 10) : 0;
}

/* One reply; status 0: none, the connection is closed. */
static void hear(int fd, answer *a)
{
    size_t n = 0, whole = sizeof(a->text);
    char *end = NULL;

    memset(a, 0, sizeof(*a));
    while (n < whole) { /* not a byte of the next reply */
        ssize_t some = recv(fd, a->text + n, (end == NULL) ? 1 : whole - n, 0);

        if (some <= 0) return;
        n += (size_t)some;
        if (end != NULL) continue;
        end = strstr(a->text, "\r\n\r\n");
        if (end != NULL) whole = n + length_said(a->text);
        assert_true((end == NULL) ? n < whole : whole < sizeof(a->text));
    }
    a->body = end + 4;
    a->status = atoi(a->text + strlen("HTTP/1.1 "));
}

static void post_on(int fd, const char *path, const char *headers, const char *body)
{
    char text[8192];

    snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s\r\n%s",
             path, strlen(body), headers, body);
    tell(fd, text);
}

static int ask(const char *text, answer *a)
{
    int fd = dial();

    assert_true(fd >= 0);
    tell(fd, text);
    hear(fd, a);
    (void)close(fd);
    return a->status;
}

#define EMBED "{\"model\":\"fake\",\"input\":\"abcde\"}"

static void expect_in(const answer *a, const char *part)
{
    if (strcasestr(a->text, part) == NULL) fail_msg("no %s in %s", part, a->text);
}

static int64_t metric(const char *name)
{
    static answer a;
    const char *at;
    char line[80];

    snprintf(line, sizeof(line), "\n%s", name);
    assert_int_equal(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", &a), 200);
    at = strstr(a.body, line);
    assert_non_null(at);
    return strtol(at + strlen(line), NULL, 10);
}

/* ---- what it does */

static void talk_over_one(void)
{
    int fd = dial();
    static answer a;

    assert_true(fd >= 0);
    for (int i = 0; i < 3; i++) { /* the connection stays open */
        post_on(fd, "/v1/embeddings?x=1", "Content-Type: application/json\r\n", EMBED);
        hear(fd, &a);
        assert_int_equal(a.status, 200);
        expect_in(&a, "Content-Type: application/json");
        expect_in(&a, "[0,1,0,0]");
        tell(fd, "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
        hear(fd, &a);
        assert_int_equal(a.status, 200);
    }
    post_on(fd, "/v1/embeddings", "", EMBED); /* two at once: one after the other */
    post_on(fd, "/v1/embeddings", "", "{}");
    hear(fd, &a);
    assert_int_equal(a.status, 200);
    hear(fd, &a);
    assert_int_equal(a.status, 400);
    (void)close(fd);
}

static void test_port(void **state)
{
    (void)state;
    start(&usual);
    talk_over_one();
    stop();
}

static void test_unix(void **state)
{
    ct_front_options o = usual;
    char where[80];
    ct_listen l;

    (void)state;
    snprintf(unix_path, sizeof(unix_path), "/tmp/test_front.%d", (int)getpid());
    snprintf(where, sizeof(where), "unix:%s", unix_path);
    o.listen = where;
    start(&o);
    assert_string_equal(ct_front_address(front), where);
    talk_over_one();
    log_capture_start(&captured);
    assert_int_equal(ct_listen_open(where, &l), CT_ERR_IO);
    assert_non_null(strstr(captured.error, "another server listens there"));
    log_capture_stop();
    stop();
    assert_int_not_equal(access(unix_path, F_OK), 0);
}

static void test_headers(void **state)
{
    static answer a;
    const char *infer = "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,3],\"datatype\":\"FP32\","
                        "\"data\":[1,2,3]},{\"name\":\"ids\",\"shape\":[1,1],"
                        "\"datatype\":\"INT32\",\"data\":[65]}],"
                        "\"parameters\":{\"binary_data_output\":true}}";
    char length[64];
    int fd;

    (void)state;
    start(&usual);
    assert_int_equal(ask("PUT /v1/embeddings HTTP/1.1\r\nHost: x\r\n\r\n", &a), 405);
    expect_in(&a, "Allow: POST\r\n");
    assert_int_equal(ask("GET /v1/models/f%61ke HTTP/1.1\r\nHost: x\r\n\r\n", &a), 200);
    fd = dial();
    post_on(fd, "/v2/models/fake/infer", "", infer);
    hear(fd, &a);
    assert_int_equal(a.status, 200);
    expect_in(&a, "Content-Type: application/octet-stream\r\n");
    snprintf(length, sizeof(length), "Inference-Header-Content-Length: %zu\r\n",
             (size_t)(strstr(a.body, "]}") + 2 - a.body));
    expect_in(&a, length);
    assert_int_equal(length_said(a.text), (size_t)(strstr(a.body, "]}") + 2 - a.body) + 16);
    snprintf(length, sizeof(length), "Inference-Header-Content-Length: %d\r\n", 7);
    post_on(fd, "/v2/models/fake/infer", length, infer);
    hear(fd, &a);
    assert_int_equal(a.status, 400);
    (void)close(fd);
    stop();
}

static void test_body_limit(void **state)
{
    static char large[5000];
    static answer a;
    int fd;

    (void)state;
    start(&usual);
    /* the header says so: refused before the body comes */
    assert_int_equal(ask("POST /v1/embeddings HTTP/1.1\r\nHost: x\r\n"
                         "Content-Length: 999999999999\r\n\r\n",
                         &a),
                     413);
    expect_in(&a, "the body has more than 4096 bytes");
    /* a body in chunks says nothing before */
    memset(large, ' ', sizeof(large) - 1);
    fd = dial();
    tell(fd,
         "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1387\r\n");
    tell(fd, large);
    tell(fd, "\r\n0\r\n\r\n");
    hear(fd, &a);
    assert_int_equal(a.status, 413);
    (void)close(fd);
    /* as many as may be: a JSON text behind spaces */
    large[4096 - strlen(EMBED)] = '\0';
    fd = dial();
    tell(fd, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\n");
    tell(fd, large);
    tell(fd, EMBED);
    hear(fd, &a);
    assert_int_equal(a.status, 200);
    (void)close(fd);
    stop();
}

/* ---- a client that does not wait for the reply sends all, and reads it then */

enum { LARGE = 32 << 20 /* bytes: more than the sockets between hold */ };

/* Sends n zeros; false: the connection was reset. */
static bool tell_zeros(int fd, int64_t n)
{
    static const char zeros[1 << 16];
    ssize_t some = 1;

    for (; (n > 0) && (some > 0); n -= some)
        some =
            send(fd, zeros, (n < (int64_t)sizeof(zeros)) ? (size_t)n : sizeof(zeros), MSG_NOSIGNAL);
    return some > 0;
}

static void expect_refused(const char *path, int status)
{
    static answer a;
    int fd = dial();
    char text[256];

    snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", path,
             LARGE);
    tell(fd, text);
    assert_true(tell_zeros(fd, LARGE));
    hear(fd, &a);
    assert_int_equal(a.status, status);
    (void)close(fd);
}

static int count_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 4096; fd++) n += (fcntl(fd, F_GETFD) >= 0);
    return n;
}

static void test_sends_on(void **state)
{
    ct_front_options o = usual;
    bool open = true;
    int fd, n_file;

    (void)state;
    start(&usual);
    n_file = count_files();
    for (int i = 0; i < 3; i++) expect_refused("/v1/embeddings", 413);
    expect_refused("/v1/nothing", 404);
    for (double end = ct_clock_s() + 20; (count_files() > n_file) && (ct_clock_s() < end);)
        (void)usleep(1000);
    assert_int_equal(count_files(), n_file);
    stop();
    /* one that goes on for ever is read for a while */
    o.linger_s = 0.2;
    start(&o);
    fd = dial();
    tell(fd, "POST /v1/nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n");
    for (double end = ct_clock_s() + 20; open && (ct_clock_s() < end);) open = tell_zeros(fd, 1024);
    assert_false(open);
    (void)close(fd);
    stop();
}

/* ---- what the header tells is refused before the body comes */

/* Sends a header alone, which says that a body follows. */
static int ask_without_body(const char *path, const char *headers, answer *a)
{
    char text[512];

    snprintf(text, sizeof(text), "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n%s\r\n",
             path, headers);
    return ask(text, a);
}

static void test_early(void **state)
{
    const char *path = "test_front.keys", *key = "Authorization: Bearer a-key\r\n";
    FILE *f = fopen(path, "w");
    static answer a;

    (void)state;
    assert_non_null(f);
    (void)fputs("a-key\n", f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(ct_api_keys_read(path, &keys), CT_OK);
    (void)remove(path);
    start(&usual);
    assert_int_equal(ask_without_body("/v1/embeddings", "", &a), 401);
    expect_in(&a, "WWW-Authenticate: Bearer\r\n");
    assert_int_equal(ask_without_body("/v1/nothing", "", &a), 401);
    assert_int_equal(ask_without_body("/v1/nothing", key, &a), 404);
    assert_int_equal(ask_without_body("/v1/models", key, &a), 405);
    expect_in(&a, "Allow: GET\r\n");
    /* who has no key is not told how large a body may be */
    assert_int_equal(ask("POST /v1/embeddings HTTP/1.1\r\nHost: x\r\n"
                         "Content-Length: 999999999999\r\n\r\n",
                         &a),
                     401);
    ct_api_drain(api);
    assert_int_equal(ask_without_body("/v1/embeddings", key, &a), 503);
    stop();
    ct_api_keys_destroy(keys);
    keys = NULL;
}

static void wait_for(const char *name, int64_t value);

static void test_early_full(void **state)
{
    static answer a;
    int fd[FAKE_QUEUE + 1];

    (void)state;
    start(&usual);
    fake.token_s = 0.3; /* 1.5 s for the batch of the first, behind which the others wait */
    for (int i = 0; i <= FAKE_QUEUE; i++) {
        fd[i] = dial();
        post_on(fd[i], "/v1/embeddings", "", EMBED);
        if (i == 0) wait_for("cortado_batches_total ", 1);
    }
    wait_for("cortado_admitted_total ", FAKE_QUEUE + 1);
    assert_int_equal(ask_without_body("/v1/embeddings", "", &a), 429);
    expect_in(&a, "the queue is full");
    expect_in(&a, "Retry-After: ");
    assert_int_equal(metric("cortado_refused_total{why=\"full\"} "), 1);
    for (int i = 0; i <= FAKE_QUEUE; i++) (void)close(fd[i]);
    stop();
}

/* 100 Continue comes for what is wanted, and an error in place of it for what is not. */
static void test_expect(void **state)
{
    static answer a;
    int fd;

    (void)state;
    start(&usual);
    assert_int_equal(ask_without_body("/v1/nothing", "Expect: 100-continue\r\n", &a), 404);
    fd = dial();
    tell(fd, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 32\r\n"
             "Expect: 100-continue\r\n\r\n");
    hear(fd, &a);
    assert_int_equal(a.status, 100);
    assert_int_equal(strlen(EMBED), 32);
    tell(fd, EMBED);
    hear(fd, &a);
    assert_int_equal(a.status, 200);
    (void)close(fd);
    stop();
}

static void test_header_limit(void **state)
{
    static char large[40000];
    static answer a;
    int fd;

    (void)state;
    start(&usual);
    memset(large, 'a', sizeof(large) - 1);
    fd = dial();
    tell(fd, "GET /v1/models HTTP/1.1\r\nHost: x\r\nX: ");
    tell(fd, large);
    tell(fd, "\r\n\r\n");
    hear(fd, &a);
    assert_int_equal(a.status, 431);
    (void)close(fd);
    assert_int_equal(ask("nonsense\r\n\r\n", &a), 0);
    assert_int_equal(ask("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", &a), 200);
    stop();
}

/* Waits until the server closes; true: it did, within 20 s. */
static bool is_closed(int fd, size_t *n_p)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    char bytes[4096];
    ssize_t n;

    *n_p = 0;
    while (poll(&p, 1, 20000) > 0) {
        n = recv(fd, bytes, sizeof(bytes), 0);
        if (n <= 0) return true;
        *n_p += (size_t)n;
    }
    return false;
}

static void test_slow_writers(void **state)
{
    ct_front_options o = usual;
    int fd[3];
    size_t n;

    (void)state;
    o.read_s = 0.3;
    start(&o);
    for (int i = 0; i < 3; i++) fd[i] = dial();
    tell(fd[1], "GET /v1/mod");
    tell(fd[2], "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{");
    for (int i = 0; i < 3; i++) {
        assert_true(is_closed(fd[i], &n));
        (void)close(fd[i]);
    }
    assert_int_equal(fake.n_embedded, 0);
    stop();
}

/* Asks 1.4 s late, and takes 1.4 s for it. False: a step took nearly the 2 s that it may,
 * since the machine stood still, so that nothing follows. */
static bool ask_late(int fd, answer *a)
{
    double start_s = ct_clock_s(), asked_s, end_s;

    (void)usleep(1400000);
    tell(fd, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 28\r\n\r\n{\"model\"");
    asked_s = ct_clock_s();
    (void)usleep(1400000);
    tell(fd, ":\"fake\",\"input\":\"a\"}");
    hear(fd, a);
    end_s = ct_clock_s();
    return (a->status != 0) || ((asked_s - start_s < 1.9) && (end_s - asked_s < 1.9));
}

/* What a connection waits before it asks is not taken off the time that its request has: neither
 * behind its opening nor behind a reply. */
static void test_late_request(void **state)
{
    ct_front_options o = usual;
    static answer a;
    bool stood_still = true;

    (void)state;
    o.read_s = 2;
    start(&o);
    for (int i = 0; stood_still && (i < 10); i++) {
        int fd = dial();

        stood_still = !ask_late(fd, &a) || ((a.status == 200) && !ask_late(fd, &a));
        (void)close(fd);
    }
    assert_int_equal(a.status, 200);
    stop();
}

/* Asks and never reads: once the buffers between are full, the server gives up. */
static void test_slow_reader(void **state)
{
    const char *one = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    ct_front_options o = usual;
    double end;
    size_t n, asked = 0, at = 0, each;
    static answer a;
    int fd, small = 4096;

    (void)state;
    o.write_s = 0.3;
    start(&o);
    assert_int_equal(ask(one, &a), 200);
    each = strlen(a.text) / 2;
    fd = dial();
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    end = ct_clock_s() + 20;
    while (ct_clock_s() < end) {
        ssize_t some = send(fd, one + at, strlen(one) - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        struct pollfd p = { .fd = fd, .events = POLLOUT };

        if (some > 0) {
            at = (at + (size_t)some) % strlen(one);
            asked += (at == 0);
        } else if ((poll(&p, 1, 100) > 0) && ((p.revents & (POLLERR | POLLHUP)) != 0)) {
            break;
        }
    }
    assert_true(ct_clock_s() < end);
    assert_true(is_closed(fd, &n));
    assert_true(n < asked * each); /* less than half of what was asked for */
    (void)close(fd);
    assert_int_equal(ask(one, &a), 200);
    stop();
}

/* ---- clients that go, and the end */

static void wait_for(const char *name, int64_t value)
{
    double end = ct_clock_s() + 20;

    while ((metric(name) != value) && (ct_clock_s() < end)) (void)usleep(10000);
    assert_int_equal(metric(name), value);
}

static void test_client_goes(void **state)
{
    int fd[3];

    (void)state;
    start(&usual);
    fake.token_s = 0.1; /* 0.5 s for a batch of the first, while the others wait */
    for (int i = 0; i < 3; i++) {
        fd[i] = dial();
        post_on(fd[i], "/v1/embeddings", "", EMBED);
        if (i == 0) wait_for("cortado_batches_total ", 1);
    }
    wait_for("cortado_admitted_total ", 3);
    (void)close(fd[1]);
    (void)close(fd[2]);
    wait_for("cortado_ended_total{how=\"cancelled\"} ", 2);
    wait_for("cortado_ended_total{how=\"done\"} ", 1);
    assert_int_equal(fake.n_embedded, 1); /* nothing was computed for those that went */
    (void)close(fd[0]);
    stop();
}

static void test_drain(void **state)
{
    static answer a;
    int fd;

    (void)state;
    start(&usual);
    fake.token_s = 0.1;
    fd = dial();
    post_on(fd, "/v1/embeddings", "", EMBED);
    wait_for("cortado_admitted_total ", 1);
    ct_api_drain(api);
    assert_int_equal(ask("GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n", &a), 503);
    assert_int_equal(ask("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n", &a), 200);
    assert_int_equal(
        ask("POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", &a), 503);
    assert_false(ct_front_drain(front, 0.01)); /* the first is still at work */
    assert_true(ct_front_drain(front, 20));
    hear(fd, &a);
    assert_int_equal(a.status, 200);
    expect_in(&a, "[0,1,0,0]");
    (void)close(fd);
    stop();
}

/* A request that may never become whole keeps nobody from ending; its client is told nothing. */
static void test_drain_half_sent(void **state)
{
    static answer a;
    int fd[2];

    (void)state;
    start(&usual);
    for (int i = 0; i < 2; i++) fd[i] = dial();
    tell(fd[0], "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{");
    tell(fd[1], "GET /v1/mod");
    assert_int_equal(ask("GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n", &a), 200);
    assert_true(ct_front_drain(front, 5)); /* false: it waited all the time */
    stop();
    for (int i = 0; i < 2; i++) {
        hear(fd[i], &a);
        assert_int_equal(a.status, 0);
        (void)close(fd[i]);
    }
}

/* Ends while work waits: it is given up. */
static void test_stop(void **state)
{
    int fd[2];

    (void)state;
    start(&usual);
    fake.token_s = 0.05;
    for (int i = 0; i < 2; i++) {
        fd[i] = dial();
        post_on(fd[i], "/v1/embeddings", "", EMBED);
        if (i == 0) wait_for("cortado_batches_total ", 1);
    }
    wait_for("cortado_admitted_total ", 2);
    stop();
    for (int i = 0; i < 2; i++) (void)close(fd[i]);
    assert_true(fake.n_embedded <= 1);
}

/* ---- many */

enum { N_CLIENT = 8, N_EACH = 40 };

static void *client(void *arg)
{
    static const char *const row[] = { "[1,0,0,0]", "[0,1,0,0]", "[0,0,1,0]", "[0,0,0,1]" };
    int which = *(int *)arg, wrong = 0, fd = dial();
    answer *a = malloc(sizeof(*a));
    char body[128];

    for (int i = 0; (a != NULL) && (i < N_EACH); i++) {
        int n = 1 + (which + i) % 30;

        snprintf(body, sizeof(body), "{\"model\":\"fake\",\"input\":\"%.*s\"}", n,
                 "abcdefghijklmnopqrstuvwxyzabcdefgh");
        post_on(fd, "/v1/embeddings", "", body);
        hear(fd, a);
        if (a->status == 429) { /* eight at once just fill the queue; the connection ends */
            (void)close(fd);
            fd = dial();
            continue;
        }
        wrong += (a->status != 200) || (strstr(a->text, row[n % 4]) == NULL);
    }
    (void)close(fd);
    free(a);
    *(int *)arg = wrong;
    return NULL;
}

/* Between two batches none runs, and the time of a request is no reason to wait for ever. */
static void look_between(void *ctx)
{
    int64_t before = fake.n_embedded;

    (void)usleep(2000);
    *(bool *)ctx = *(bool *)ctx && (fake.n_embedded == before);
}

static void test_many(void **state)
{
    pthread_t thread[N_CLIENT];
    int arg[N_CLIENT];
    bool still = true;

    (void)state;
    start(&usual);
    for (int i = 0; i < N_CLIENT; i++) {
        arg[i] = i;
        assert_int_equal(pthread_create(&thread[i], NULL, client, &arg[i]), 0);
    }
    for (int i = 0; i < 20; i++) ct_dispatch_between(fake.dispatch, look_between, &still);
    for (int i = 0; i < N_CLIENT; i++) (void)pthread_join(thread[i], NULL);
    assert_true(still);
    for (int i = 0; i < N_CLIENT; i++) assert_int_equal(arg[i], 0);
    assert_true(fake.n_embedded > N_CLIENT * N_EACH / 2);
    stop();
}

/* Thousands of connections stay open, and each is answered. The client's ends are files, too. */
static void test_connections(void **state)
{
    enum { N = 2000, FILES = 2 * N + 1024 };
    static int fd[N];
    static answer a;
    ct_front_options o = usual;
    struct rlimit r;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &r), 0);
    if (r.rlim_max < FILES) skip();
    if (r.rlim_cur < FILES) r.rlim_cur = FILES;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &r), 0);
    o.most_connections = 3000;
    start(&o);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N; i++) {
            if (round == 0) fd[i] = dial();
            tell(fd[i], "GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n");
            hear(fd[i], &a);
            assert_int_equal(a.status, 200);
        }
    for (int i = 0; i < N; i++) (void)close(fd[i]);
    stop();
}

/* ---- addresses */

static void test_wrong_addresses(void **state)
{
    static const char *const wrong[] = {
        "",        "8080",         "127.0.0.1", "127.0.0.1:",  "127.0.0.1:70000", "127.0.0.1:80a",
        "[::1:80", "localhost:80", "1.2.3:80",  "127.0.0.1:-1"
    };
    char path[200], expected[300];
    ct_listen l, other;

    (void)state;
    log_capture_start(&captured);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_int_equal(ct_listen_open(wrong[i], &l), CT_ERR_CONFIG);
        snprintf(expected, sizeof(expected),
                 "--listen=%s: expected ADDRESS:PORT in numbers, as 127.0.0.1:8080 or [::1]:8080, "
                 "or unix:PATH",
                 wrong[i]);
        assert_string_equal(captured.error, expected);
    }
    memset(path, 'a', sizeof(path) - 1);
    memcpy(path, "unix:", 5);
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(ct_listen_open(path, &l), CT_ERR_CONFIG);
    assert_non_null(strstr(captured.error, "expected unix:PATH with 1 to 107 bytes of path"));
    assert_int_equal(ct_listen_open("unix:/tmp", &l), CT_ERR_CONFIG);
    assert_string_equal(captured.error, "--listen=unix:/tmp: there is something that is no socket");
    assert_int_equal(ct_listen_open("unix:/proc/nowhere/x", &l), CT_ERR_IO);
    assert_int_equal(ct_listen_open("127.0.0.1:0", &l), CT_OK);
    assert_int_equal(ct_listen_open(l.address, &other), CT_ERR_IO);
    assert_non_null(strstr(captured.error, "Address already in use; take another port"));
    log_capture_stop();
    assert_true(l.loopback);
    ct_listen_close(&l);
    assert_int_equal(ct_listen_open("0.0.0.0:0", &l), CT_OK);
    assert_false(l.loopback);
    ct_listen_close(&l);
}

/* What a killed server leaves is replaced. */
static void test_left_over(void **state)
{
    char where[80];
    ct_listen l, again;

    (void)state;
    snprintf(where, sizeof(where), "unix:/tmp/test_front_left.%d", (int)getpid());
    assert_int_equal(ct_listen_open(where, &l), CT_OK);
    (void)close(l.fd);
    assert_int_equal(ct_listen_open(where, &again), CT_OK);
    ct_listen_close(&again);
    assert_int_not_equal(access(where + 5, F_OK), 0);
}

/* A socket that is somebody's stays. */
static void test_others_socket(void **state)
{
    struct sockaddr_un u = { .sun_family = AF_UNIX };
    char where[80], expected[200];
    int fd[4];
    ct_listen l;

    (void)state;
    snprintf(u.sun_path, sizeof(u.sun_path), "/tmp/test_front_other.%d", (int)getpid());
    snprintf(where, sizeof(where), "unix:%s", u.sun_path);
    log_capture_start(&captured);
    fd[0] = socket(AF_UNIX, SOCK_DGRAM, 0); /* another program's */
    assert_int_equal(bind(fd[0], (struct sockaddr *)&u, sizeof(u)), 0);
    assert_int_equal(ct_listen_open(where, &l), CT_ERR_IO);
    snprintf(expected, sizeof(expected), "--listen=%s: a socket is there already: ", where);
    assert_non_null(strstr(captured.error, expected));
    assert_int_equal(access(u.sun_path, F_OK), 0);
    (void)close(fd[0]);
    (void)unlink(u.sun_path);
    fd[0] = socket(AF_UNIX, SOCK_STREAM, 0); /* a server that takes no more connections for now */
    assert_int_equal(bind(fd[0], (struct sockaddr *)&u, sizeof(u)), 0);
    assert_int_equal(listen(fd[0], 1), 0);
    for (int i = 1; i < 4; i++) {
        fd[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fd[i], (struct sockaddr *)&u, sizeof(u));
    }
    assert_int_equal(ct_listen_open(where, &l), CT_ERR_IO);
    assert_non_null(strstr(captured.error, "another server listens there"));
    assert_int_equal(access(u.sun_path, F_OK), 0);
    log_capture_stop();
    for (int i = 0; i < 4; i++) (void)close(fd[i]);
    (void)unlink(u.sun_path);
}

/* Without the library: one line that says what to install. */
static void test_without(void **state)
{
    ct_front *f = NULL;

    (void)state;
    log_capture_start(&captured);
    assert_int_equal(ct_front_start(NULL, &usual, &f), CT_ERR_CONFIG);
    assert_string_equal(captured.error,
                        "this program was built without libmicrohttpd, which a server needs: "
                        "install libmicrohttpd-dev (libmicrohttpd-devel) and build it again");
    log_capture_stop();
}

int main(void)
{
    const struct CMUnitTest without[] = {
        cmocka_unit_test(test_wrong_addresses),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_others_socket),
        cmocka_unit_test(test_without),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_port),
        cmocka_unit_test(test_unix),
        cmocka_unit_test(test_headers),
        cmocka_unit_test(test_sends_on),
        cmocka_unit_test(test_body_limit),
        cmocka_unit_test(test_early),
        cmocka_unit_test(test_early_full),
        cmocka_unit_test(test_expect),
        cmocka_unit_test(test_header_limit),
        cmocka_unit_test(test_slow_writers),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_client_goes),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_connections),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_wrong_addresses),
        cmocka_unit_test(test_left_over),
        cmocka_unit_test(test_late_request),
        cmocka_unit_test(test_drain_half_sent),
        cmocka_unit_test(test_others_socket),
    };

    if (!ct_feature_has("libmicrohttpd")) {
        print_message("skip serving: no libmicrohttpd\n");
        return cmocka_run_group_tests(without, NULL, NULL);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
