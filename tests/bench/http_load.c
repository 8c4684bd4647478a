/* Load for `cortado serve` that takes little of the machine: one thread, epoll, C.
 *
 *   http_load AT MODEL [clients=1] [rate=0] [seconds=10] [requests=0] [least=1] [most=64] [ids=256]
 *             [deadline_ms=0] [seed=1]
 *
 * AT is ADDRESS:PORT or unix:PATH. Each request asks for the embedding of one list of ids, of a
 * length between least and most. With rate 0 each of the clients asks again once it is answered.
 * Else requests come at Poisson's times, over at most so many connections, and how long one takes
 * counts from its time: a client that is late itself is seen. It ends after so many seconds, or
 * requests where that is not 0. deadline_ms says what counts as in time.
 *
 * Prints one JSON object: per status how many and how long, how many came in time and their tokens,
 * the share of a core that this program took, and how late it began to send (99th percentile). */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/rng.h"
#include "framework/base/sort.h"
#include "framework/base/text.h"

enum { STATUSES = 16, ROOM = 1 << 16, EVENTS = 256 };

typedef struct settings {
    const char *at, *model;
    double clients, rate, seconds, requests, least, most, ids, deadline_ms, seed;
} settings;

static const struct setting {
    const char *name;
    size_t offset;
} setting_table[] = {
    { "clients", offsetof(settings, clients) }, { "rate", offsetof(settings, rate) },
    { "seconds", offsetof(settings, seconds) }, { "requests", offsetof(settings, requests) },
    { "least", offsetof(settings, least) },     { "most", offsetof(settings, most) },
    { "ids", offsetof(settings, ids) },         { "deadline_ms", offsetof(settings, deadline_ms) },
    { "seed", offsetof(settings, seed) },
};

/* Numbers that grow. */
typedef struct numbers {
    double *v;
    int64_t n, room;
} numbers;

typedef struct client {
    int fd; /* -1: not connected */
    ct_text out;
    size_t sent;
    char in[ROOM];
    size_t got, need; /* need: of the whole reply, once its head is there */
    int status;
    bool closes, busy;
    double due; /* when its request was to begin */
    int64_t tokens;
    struct client *next; /* of those that are free */
} client;

typedef struct load {
    settings o;
    int epoll, timer;
    client *client, *free;
    uint64_t key, drawn;
    int64_t begun, ended, in_time, tokens;
    double next_due; /* of Poisson's times */
    double end;
    int n_status, status[STATUSES];
    numbers taken[STATUSES], late;
} load;

static void die(const char *what)
{
    fprintf(stderr, "http_load: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void add_number(numbers *all, double v)
{
    if (all->n == all->room) {
        all->room = 2 * all->room + 1024;
        all->v = realloc(all->v, (size_t)all->room * sizeof(double));
        if (all->v == NULL) die("memory");
    }
    all->v[all->n++] = v;
}

static double percentile(const numbers *all, double q)
{
    int64_t k = (int64_t)(q * (double)all->n);

    return (all->n > 0) ? all->v[(k < all->n) ? k : all->n - 1] : 0;
}

/* Uniform in [0, 1). */
static double draw(load *l)
{
    return (double)(ct_rng_key(l->key, l->drawn++, 0) >> 11) * 0x1p-53;
}

static int64_t draw_count(load *l, double least, double most)
{
    return (int64_t)(least + floor(draw(l) * (most - least + 1)));
}

/* ---- a request */

static void write_request(load *l, client *c)
{
    ct_text body = { 0 };

    c->tokens = draw_count(l, l->o.least, l->o.most);
    ct_text_add(&body, "{\"model\":");
    ct_text_add_json(&body, l->o.model);
    ct_text_add(&body, ",\"encoding_format\":\"base64\",\"input\":[");
    for (int64_t i = 0; i < c->tokens; i++)
        ct_text_add(&body, "%s%" PRId64, (i > 0) ? "," : "", draw_count(l, 0, l->o.ids - 1));
    ct_text_add(&body, "]}");
    c->out.length = 0;
    ct_text_add(&c->out, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                body.length);
    ct_text_add_bytes(&c->out, body.text, body.length);
    if (body.failed || c->out.failed) die("memory");
    ct_text_destroy(&body);
    c->sent = c->got = c->need = 0;
    c->busy = true;
}

static int dial_unix(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if ((fd < 0) || (connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0)) die(path);
    return fd;
}

static int dial_port(const char *at)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    const char *colon = strrchr(at, ':');
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    char host[64];

    if ((colon == NULL) || (colon - at >= (ptrdiff_t)sizeof(host))) die("AT");
    snprintf(host, sizeof(host), "%.*s", (int)(colon - at), at);
    a.sin_port = htons((in_port_t)atoi(colon + 1));
    if (inet_pton(AF_INET, host, &a.sin_addr) != 1) die("AT");
    if ((fd < 0) || (connect(fd, (const struct sockaddr *)&a, sizeof(a)) != 0)) die(at);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static void dial(const load *l, client *c)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };
    bool is_unix = (strncmp(l->o.at, "unix:", 5) == 0);

    c->fd = is_unix ? dial_unix(l->o.at + 5) : dial_port(l->o.at);
    (void)fcntl(c->fd, F_SETFL, O_NONBLOCK);
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &e) != 0) die("epoll");
}

/* What the socket takes now; the rest when it has room. */
static void send_more(const load *l, client *c)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };

    while (c->sent < c->out.length) {
        ssize_t n = send(c->fd, c->out.text + c->sent, c->out.length - c->sent, MSG_NOSIGNAL);

        if (n < 0) break; /* a connection that has ended is seen by reading */
        c->sent += (size_t)n;
    }
    if (c->sent < c->out.length) e.events |= EPOLLOUT;
    (void)epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &e);
}

static void begin(load *l, client *c, double due)
{
    double now = ct_clock_s();

    c->due = (l->o.rate > 0) ? due : now;
    if (l->o.rate > 0) add_number(&l->late, now - due);
    write_request(l, c);
    if (c->fd < 0) dial(l, c);
    l->begun++;
    send_more(l, c);
}

/* ---- its reply */

/* 0: not whole yet; else its status, or -1: the connection ended before. */
static int read_reply(client *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->got, sizeof(c->in) - 1 - c->got, 0);
        char *end;

        if ((n < 0) && ((errno == EAGAIN) || (errno == EINTR))) return 0;
        if (n <= 0) return -1;
        c->got += (size_t)n;
        c->in[c->got] = '\0';
        end = (c->need == 0) ? strstr(c->in, "\r\n\r\n") : NULL;
        if (end != NULL) {
            const char *length = strcasestr(c->in, "\r\nContent-Length: ");
            const char *close_said = strcasestr(c->in, "\r\nConnection: close");

            c->need = (size_t)(end + 4 - c->in);
            if (length != NULL) c->need += strtoul(length + 18, NULL, 10);
            c->closes = (close_said != NULL) && (close_said < end);
            c->status = (c->got > 9) ? atoi(c->in + 9) : 0;
            if (c->need >= sizeof(c->in)) return -1;
        }
        if ((c->need > 0) && (c->got >= c->need)) return c->status;
    }
}

static void note(load *l, const client *c, int status)
{
    double s = ct_clock_s() - c->due;
    int k = 0;

    while ((k < l->n_status) && (l->status[k] != status)) k++;
    if (k == STATUSES) return;
    if (k == l->n_status) l->status[l->n_status++] = status;
    add_number(&l->taken[k], s);
    l->ended++;
    if ((status == 200) && ((l->o.deadline_ms <= 0) || (1e3 * s <= l->o.deadline_ms))) {
        l->in_time++;
        l->tokens += c->tokens;
    }
}

static bool wants_more(const load *l)
{
    if (l->o.requests > 0) return (double)l->begun < l->o.requests;
    return ct_clock_s() < l->end;
}

/* Poisson's requests that are due, as far as there are clients. */
static void begin_due(load *l)
{
    struct itimerspec t = { .it_value = { 0 } };

    while ((l->free != NULL) && (l->next_due <= ct_clock_s())) {
        client *c = l->free;

        if ((l->o.requests > 0) ? ((double)l->begun >= l->o.requests) : (l->next_due >= l->end)) {
            l->next_due = INFINITY;
            return;
        }
        l->free = c->next;
        begin(l, c, l->next_due);
        l->next_due -= log(1 - draw(l)) / l->o.rate;
    }
    if (!isfinite(l->next_due)) return;
    t.it_value.tv_sec = (time_t)l->next_due;
    t.it_value.tv_nsec = (long)(1e9 * fmod(l->next_due, 1)) + 1;
    (void)timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

static void hang_up(client *c)
{
    (void)close(c->fd);
    c->fd = -1;
}

static void hear(load *l, client *c)
{
    int status = c->busy ? read_reply(c) : -1;

    if (status == 0) return;
    if ((status < 0) || c->closes) hang_up(c);
    if (!c->busy) return; /* the server has closed a connection that was idle */
    c->busy = false;
    note(l, c, (status > 0) ? status : 0);
    if (l->o.rate > 0) {
        c->next = l->free;
        l->free = c;
    } else if (wants_more(l)) {
        begin(l, c, 0);
    }
}

/* ---- the whole */

static void start(load *l)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = NULL };
    int n = (int)l->o.clients;

    l->key = ct_rng_key((uint64_t)l->o.seed, 1, 0);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    l->client = calloc((size_t)n, sizeof(*l->client));
    if ((l->epoll < 0) || (l->timer < 0) || (l->client == NULL)) die("start");
    if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->timer, &e) != 0) die("epoll");
    l->next_due = ct_clock_s();
    l->end = l->next_due + l->o.seconds;
    for (int i = 0; i < n; i++) {
        l->client[i].fd = -1;
        l->client[i].next = l->free;
        l->free = &l->client[i];
    }
    for (int i = 0; (l->o.rate == 0) && (i < n) && wants_more(l); i++) begin(l, &l->client[i], 0);
    if (l->o.rate > 0) begin_due(l);
}

static void run(load *l)
{
    struct epoll_event event[EVENTS];
    uint64_t ticks;

    while ((l->ended < l->begun) || ((l->o.rate > 0) && isfinite(l->next_due))) {
        int n = epoll_wait(l->epoll, event, EVENTS, 100);

        if ((n < 0) && (errno != EINTR)) die("epoll");
        for (int i = 0; i < n; i++) {
            client *c = event[i].data.ptr;

            if (c == NULL)
                (void)!read(l->timer, &ticks, sizeof(ticks));
            else if (c->fd >= 0) {
                if (event[i].events & EPOLLOUT) send_more(l, c);
                if (event[i].events & ~(uint32_t)EPOLLOUT) hear(l, c);
            }
        }
        if (l->o.rate > 0) begin_due(l);
    }
}

static double cpu_s(void)
{
    struct rusage r;

    (void)getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

static void report(load *l, double took)
{
    printf("{\"requests\":%" PRId64 ",\"seconds\":%.3f,\"in_time\":%" PRId64 ",\"tokens\":%" PRId64
           ",\"client_share\":%.4f,",
           l->ended, took, l->in_time, l->tokens, cpu_s() / took);
    ct_sort(l->late.v, l->late.n);
    printf("\"late_p99_ms\":%.4f,\"status\":{", 1e3 * percentile(&l->late, 0.99));
    for (int k = 0; k < l->n_status; k++) {
        const numbers *t = &l->taken[k];

        ct_sort(t->v, t->n);
        printf("%s\"%d\":{\"n\":%" PRId64
               ",\"p50_ms\":%.4f,\"p90_ms\":%.4f,\"p99_ms\":%.4f,\"most_ms\":%.4f}",
               (k > 0) ? "," : "", l->status[k], t->n, 1e3 * percentile(t, 0.5),
               1e3 * percentile(t, 0.9), 1e3 * percentile(t, 0.99), 1e3 * percentile(t, 1));
    }
    printf("}}\n");
}

static bool read_setting(settings *o, const char *text)
{
    for (size_t k = 0; k < sizeof(setting_table) / sizeof(setting_table[0]); k++) {
        const struct setting *s = &setting_table[k];
        size_t n = strlen(s->name);
        char *end;

        if ((strncmp(text, s->name, n) != 0) || (text[n] != '=')) continue;
        *(double *)((char *)o + s->offset) = strtod(text + n + 1, &end);
        return (end != text + n + 1) && (*end == '\0');
    }
    return false;
}

int main(int argc, char **argv)
{
    static load l = {
        .o = { .clients = 1, .seconds = 10, .least = 1, .most = 64, .ids = 256, .seed = 1 }
    };
    double begun;

    if (argc < 3) {
        printf("usage: http_load ADDRESS:PORT|unix:PATH MODEL [clients=N] [rate=R] …\n");
        return 0;
    }
    l.o.at = argv[1];
    l.o.model = argv[2];
    for (int i = 3; i < argc; i++) {
        if (read_setting(&l.o, argv[i])) continue;
        fprintf(stderr, "http_load: %s: expected NAME=NUMBER of a setting\n", argv[i]);
        return 2;
    }
    begun = ct_clock_s();
    start(&l);
    run(&l);
    report(&l, ct_clock_s() - begun);
    return 0;
}
