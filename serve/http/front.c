#include "serve/http/front.h"

#include <inttypes.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"
#include "serve/http/sockets.h"

#define LOOK_S 0.05 /* between two looks at the connections */

enum { EVENTS = 16384 /* bytes of events at a time */, MOST_LINGER = 256, OTHER_FILES = 512 };

typedef enum {
    READING, /* a request, or nothing yet */
    WORKING, /* set aside                 */
    WRITING  /* the reply                 */
} phase;

typedef struct visit visit;

/* A connection, from its first byte to its last. */
typedef struct guest {
    int fd;
    phase phase;
    double since; /* its phase began */
    bool shut;    /* it took too long */
    bool refused; /* its reply did not wait for its body */
    visit *visit; /* its request, if it has one */
    struct guest *next, **link;
} guest;

/* A request on it. */
struct visit {
    ct_front *front;
    struct MHD_Connection *connection;
    guest *guest;
    ct_transaction transaction;
    ct_text body;
    bool too_large, asked; /* asked: the work is queued, and comes back */
    /* of work that was queued, since the dispatcher's thread sets them, too: */
    pthread_mutex_t lock;
    bool aside; /* the connection is suspended                            */
    bool done;  /* the work has ended                                     */
    bool gone;  /* the connection has closed: the visit ends with its work */
};

struct ct_front {
    ct_front_options o;
    ct_api *api;
    ct_listen listen;
    struct MHD_Daemon *daemon;
    ct_linger *linger;
    pthread_t looker;
    bool looking, stop;
    pthread_mutex_t lock; /* of guests */
    pthread_cond_t stopped, quiet;
    guest *guests;
    int n_busy; /* those that are not READING; quiet: 0 */
    int n_gone; /* visits whose work outlives their connection; quiet: 0 */
};

/* With the lock held. READING begins anew with each request: the time before it is the client's
 * own. */
static void enter(ct_front *f, guest *g, phase p)
{
    if ((g->phase != p) || (p == READING)) g->since = ct_clock_s();
    f->n_busy += (p != READING) - (g->phase != READING);
    g->phase = p;
    if (f->n_busy + f->n_gone == 0) (void)pthread_cond_broadcast(&f->quiet);
}

static void set_phase(ct_front *f, guest *g, phase p)
{
    (void)pthread_mutex_lock(&f->lock);
    enter(f, g, p);
    (void)pthread_mutex_unlock(&f->lock);
}

/* The client took some of a reply. */
static void hear_from(ct_front *f, guest *g)
{
    (void)pthread_mutex_lock(&f->lock);
    enter(f, g, WRITING);
    g->since = ct_clock_s();
    (void)pthread_mutex_unlock(&f->lock);
}

/* ---- replies */

static void add_header(struct MHD_Response *r, const char *name, const char *value)
{
    if (value != NULL) (void)MHD_add_response_header(r, name, value);
}

static void add_number(struct MHD_Response *r, const char *name, int64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRId64, value);
    add_header(r, name, text);
}

/* Events as they come; while there are none the connection is set aside. */
static ssize_t pull_events(void *ctx, uint64_t at, char *to, size_t most)
{
    visit *v = ctx;
    ssize_t n;

    (void)at;
    (void)pthread_mutex_lock(&v->lock);
    n = (ssize_t)ct_transaction_pull(&v->transaction, to, most);
    if ((n == 0) && v->done) {
        ct_transaction_end_events(&v->transaction);
        n = (ssize_t)ct_transaction_pull(&v->transaction, to, most);
    }
    if (n > 0) {
        hear_from(v->front, v->guest);
    } else if (v->done) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        v->aside = true;
        set_phase(v->front, v->guest, WORKING);
        MHD_suspend_connection(v->connection);
    }
    (void)pthread_mutex_unlock(&v->lock);
    return n;
}

static struct MHD_Response *make_response(visit *v, bool streams)
{
    ct_http_reply *reply = &v->transaction.reply;
    struct MHD_Response *r;

    if (streams) {
        r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EVENTS, pull_events, v, NULL);
        if (r != NULL) {
            add_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
            add_header(r, "X-Accel-Buffering", "no"); /* nginx passes events on as they come */
        }
        return r;
    }
    r = MHD_create_response_from_buffer(reply->body.length, reply->body.text,
                                        MHD_RESPMEM_MUST_FREE);
    if (r != NULL) memset(&reply->body, 0, sizeof(reply->body)); /* the response's by now */
    return r;
}

static enum MHD_Result send_reply(visit *v, bool streams)
{
    ct_http_reply *reply = &v->transaction.reply;
    struct MHD_Response *r = make_response(v, streams);
    enum MHD_Result result;

    if (r == NULL) return MHD_NO;
    add_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, reply->type);
    add_header(r, MHD_HTTP_HEADER_ALLOW, (reply->status == 405) ? reply->allow : NULL);
    add_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, (reply->status == 401) ? "Bearer" : NULL);
    if (reply->retry_s > 0) add_number(r, MHD_HTTP_HEADER_RETRY_AFTER, reply->retry_s);
    if (reply->json_length >= 0)
        add_number(r, "Inference-Header-Content-Length", reply->json_length);
    set_phase(v->front, v->guest, WRITING);
    result = MHD_queue_response(v->connection, (unsigned)reply->status, r);
    MHD_destroy_response(r);
    return result;
}

/* ---- requests */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static void free_visit(visit *v)
{
    ct_transaction_end(&v->transaction);
    ct_text_destroy(&v->body);
    (void)pthread_mutex_destroy(&v->lock);
    free(v);
}

/* Nothing waits for what the front has of it any more. */
static void end_gone(visit *v)
{
    ct_front *f = v->front;

    free_visit(v);
    (void)pthread_mutex_lock(&f->lock);
    f->n_gone--;
    if (f->n_busy + f->n_gone == 0) (void)pthread_cond_broadcast(&f->quiet);
    (void)pthread_mutex_unlock(&f->lock);
}

/* With the visit's lock held. */
static void go_on(visit *v)
{
    if (v->aside && !v->gone) MHD_resume_connection(v->connection);
    v->aside = false;
}

/* From the dispatcher's thread: there are events. */
static void events_came(void *ctx)
{
    visit *v = ctx;

    (void)pthread_mutex_lock(&v->lock);
    go_on(v);
    (void)pthread_mutex_unlock(&v->lock);
}

/* From the dispatcher's thread. */
static void work_is_done(void *ctx)
{
    visit *v = ctx;
    bool gone;

    (void)pthread_mutex_lock(&v->lock);
    v->done = true;
    gone = v->gone;
    go_on(v);
    (void)pthread_mutex_unlock(&v->lock);
    if (gone) end_gone(v);
}

static guest *guest_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return (info != NULL) ? info->socket_context : NULL;
}

/* The first line of a request is there. */
static void *hear_of(void *ctx, const char *uri, struct MHD_Connection *c)
{
    guest *g = guest_of(c);

    (void)uri;
    if (g != NULL) g->refused = false;
    if (g != NULL) set_phase(ctx, g, READING);
    return NULL;
}

static visit *arrive(ct_front *f, struct MHD_Connection *c)
{
    guest *g = guest_of(c);
    visit *v = calloc(1, sizeof(*v));

    if ((v == NULL) || (g == NULL) || (pthread_mutex_init(&v->lock, NULL) != 0)) {
        free(v);
        return NULL;
    }
    v->front = f;
    v->connection = c;
    v->guest = g;
    ct_transaction_init(&v->transaction, f->api);
    v->transaction.set.done = work_is_done;
    v->transaction.set.ctx = v;
    v->transaction.wake = events_came;
    (void)pthread_mutex_lock(&f->lock);
    v->guest->visit = v;
    (void)pthread_mutex_unlock(&f->lock);
    return v;
}

/* Whether its header says that the body is larger than it may be. */
static bool says_too_large(const visit *v)
{
    const char *text = header(v->connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    unsigned long long n = (text != NULL) ? strtoull(text, NULL, 10) : 0;

    return n > v->front->o.most_body;
}

static void take_body(visit *v, const char *data, size_t n)
{
    if (v->body.length + n > v->front->o.most_body) {
        v->too_large = true;
        ct_text_destroy(&v->body);
        memset(&v->body, 0, sizeof(v->body));
    }
    if (!v->too_large) ct_text_add_bytes(&v->body, data, n);
}

static enum MHD_Result take_argument(void *ctx, enum MHD_ValueKind kind, const char *name,
                                     const char *value)
{
    ct_http_request *r = ctx;

    (void)kind;
    if (r->n_argument < CT_HTTP_ARGUMENTS)
        r->argument[r->n_argument++] = (ct_http_argument){ name, value };
    return MHD_YES;
}

/* The header is there. True: refused, and the body need not come. A client that waits with it for
 * `100 Continue` gets the reply in place of that. */
static bool refuse_early(visit *v, const char *method, const char *path)
{
    ct_transaction *x = &v->transaction;

    x->request = (ct_http_request){
        .method = method,
        .path = path,
        .authorization = header(v->connection, MHD_HTTP_HEADER_AUTHORIZATION),
        .json_length = header(v->connection, "Inference-Header-Content-Length"),
        .type = header(v->connection, MHD_HTTP_HEADER_CONTENT_TYPE),
    };
    (void)MHD_get_connection_values(v->connection, MHD_GET_ARGUMENT_KIND, take_argument,
                                    &x->request);
    if (ct_transaction_meet(x)) return true;
    if (!says_too_large(v)) return false;
    ct_transaction_refuse_body(x, v->front->o.most_body);
    return true;
}

/* True: the reply is ready. What was sent is read once, and goes: many may wait for the model. */
static bool read_body(visit *v)
{
    ct_transaction *x = &v->transaction;
    bool ready = true;

    x->request.body = (v->body.text != NULL) ? v->body.text : "";
    x->request.size = v->body.length;
    if (v->too_large)
        ct_transaction_refuse_body(x, v->front->o.most_body);
    else if (v->body.failed)
        ct_transaction_fail(x, 500, NULL, "no_memory", "no memory for the body");
    else
        ready = ct_transaction_begin(x);
    ct_text_destroy(&v->body);
    return ready;
}

/* The request is whole. */
static enum MHD_Result begin(visit *v)
{
    set_phase(v->front, v->guest, WORKING);
    if (!read_body(v)) {
        v->asked = v->aside = true;
        MHD_suspend_connection(v->connection); /* first: the work may be done at once */
        if (ct_transaction_submit(&v->transaction)) work_is_done(v);
        return MHD_YES;
    }
    return send_reply(v, false);
}

/* The work is done, or has made a first event. Who is not done has one. */
static enum MHD_Result answer(visit *v)
{
    bool streams = (v->transaction.reply.status == 0) && ct_transaction_streams(&v->transaction);

    if (v->transaction.reply.status == 0) ct_transaction_answer(&v->transaction);
    return send_reply(v, streams);
}

/* Called when the header is there, for each piece of the body, when all is there, and again when
 * the work is done. */
static enum MHD_Result handle(void *ctx, struct MHD_Connection *c, const char *path,
                              const char *method, const char *version, const char *data,
                              size_t *size, void **visit_p)
{
    visit *v = *visit_p;

    (void)version;
    if (v == NULL) {
        v = arrive(ctx, c);
        *visit_p = v;
        if (v == NULL) return MHD_NO;
        v->guest->refused = refuse_early(v, method, path);
        return v->guest->refused ? send_reply(v, false) : MHD_YES;
    }
    if (*size > 0) {
        take_body(v, data, *size);
        *size = 0;
        return MHD_YES;
    }
    return v->asked ? answer(v) : begin(v);
}

/* Whether its work goes on: then it ends with that. */
static bool outlives(visit *v)
{
    bool gone;

    (void)pthread_mutex_lock(&v->lock);
    v->gone = gone = v->asked && !v->done;
    (void)pthread_mutex_unlock(&v->lock);
    return gone; /* if so, the visit is the dispatcher's by now */
}

static void leave(void *ctx, struct MHD_Connection *c, void **visit_p,
                  enum MHD_RequestTerminationCode why)
{
    ct_front *f = ctx;
    visit *v = *visit_p;

    (void)c;
    (void)why;
    if (v == NULL) return;
    *visit_p = NULL;
    (void)pthread_mutex_lock(&f->lock);
    v->guest->visit = NULL;
    f->n_gone++; /* until it is known */
    enter(f, v->guest, READING);
    (void)pthread_mutex_unlock(&f->lock);
    ct_transaction_cancel(&v->transaction);
    if (!outlives(v)) end_gone(v);
}

/* ---- connections */

/* Whether its client may still be sending. A header that was too long is not read to its end. */
static bool is_sending(const guest *g)
{
    int n = 0;

    return !g->shut && (g->refused || ((ioctl(g->fd, FIONREAD, &n) == 0) && (n > 0)));
}

static void open_or_close(void *ctx, struct MHD_Connection *c, void **guest_p,
                          enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    ct_front *f = ctx;
    guest *g = *guest_p;

    (void)pthread_mutex_lock(&f->lock);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        g = (info != NULL) ? calloc(1, sizeof(*g)) : NULL;
        if (g != NULL) {
            *g = (guest){ .fd = info->connect_fd, .since = ct_clock_s(), .next = f->guests };
            g->link = &f->guests;
            if (f->guests != NULL) f->guests->link = &g->next;
            f->guests = g;
            *guest_p = g;
        }
    } else if (g != NULL) {
        if (is_sending(g)) ct_linger_add(f->linger, g->fd);
        *g->link = g->next;
        if (g->next != NULL) g->next->link = g->link;
        free(g);
        *guest_p = NULL;
    }
    (void)pthread_mutex_unlock(&f->lock);
}

/* A connection that is set aside is not read, so nobody else sees that its client has gone. */
static bool has_gone(const guest *g)
{
    struct pollfd p = { .fd = g->fd, .events = POLLRDHUP };

    return (poll(&p, 1, 0) > 0) && ((p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
}

static void look_at(const ct_front *f, guest *g, double now)
{
    double limit = (g->phase == READING) ? f->o.read_s : f->o.write_s;

    if (g->phase == WORKING) {
        if ((g->visit != NULL) && has_gone(g)) ct_transaction_cancel(&g->visit->transaction);
    } else if (!g->shut && (now - g->since > limit)) {
        g->shut = true;
        (void)shutdown(g->fd, SHUT_RDWR); /* the thread of HTTP sees it and closes */
    }
}

static void *look(void *arg)
{
    ct_front *f = arg;

    (void)pthread_mutex_lock(&f->lock);
    while (!f->stop) {
        double now = ct_clock_s();

        for (guest *g = f->guests; g != NULL; g = g->next) look_at(f, g, now);
        (void)ct_cond_wait_for(&f->stopped, &f->lock, LOOK_S);
    }
    (void)pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- the whole */

/* As many connections as there may be files, whose soft limit is raised for them. */
static unsigned most_connections(const ct_front *f)
{
    rlim_t most = (rlim_t)f->o.most_connections, need = most + OTHER_FILES;
    struct rlimit r;

    if ((getrlimit(RLIMIT_NOFILE, &r) != 0) || (r.rlim_cur >= need)) return (unsigned)most;
    r.rlim_cur = ((r.rlim_max == RLIM_INFINITY) || (r.rlim_max > need)) ? need : r.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &r);
    if ((getrlimit(RLIMIT_NOFILE, &r) == 0) && (r.rlim_cur < need))
        most = (r.rlim_cur > 2 * OTHER_FILES) ? r.rlim_cur - OTHER_FILES : r.rlim_cur / 2;
    return (unsigned)most;
}

static ct_status start_threads(ct_front *f)
{
    if ((pthread_mutex_init(&f->lock, NULL) != 0) || (ct_cond_init(&f->stopped) != 0) ||
        (ct_cond_init(&f->quiet) != 0))
        return CT_FAIL(CT_ERR_NOMEM, "no lock for the server");
    CT_TRY(ct_linger_create(MOST_LINGER, f->o.linger_s, &f->linger));
    f->daemon = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        handle, f, MHD_OPTION_LISTEN_SOCKET, f->listen.fd, MHD_OPTION_NOTIFY_COMPLETED, leave, f,
        MHD_OPTION_URI_LOG_CALLBACK, hear_of, f, MHD_OPTION_NOTIFY_CONNECTION, open_or_close, f,
        MHD_OPTION_CONNECTION_LIMIT, most_connections(f), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        f->o.most_header, MHD_OPTION_END);
    if (f->daemon == NULL) return CT_FAIL(CT_ERR_NOMEM, "libmicrohttpd did not start");
    f->listen.fd = -1; /* its own by now */
    if (ct_thread_start(look, f, &f->looker) != 0)
        return CT_FAIL(CT_ERR_NOMEM, "no thread for the server");
    f->looking = true;
    return CT_OK;
}

ct_status ct_front_start(ct_api *api, const ct_front_options *options, ct_front **f_p)
{
    ct_front *f = calloc(1, sizeof(*f));
    ct_status status;

    if (f == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a server");
    f->o = *options;
    f->api = api;
    status = ct_listen_open(options->listen, &f->listen);
    if (status != CT_OK) {
        free(f);
        return status;
    }
    status = start_threads(f);
    if (status != CT_OK) {
        ct_front_stop(f);
        return status;
    }
    *f_p = f;
    return CT_OK;
}

const char *ct_front_address(const ct_front *f)
{
    return f->listen.address;
}

bool ct_front_is_private(const ct_front *f)
{
    return f->listen.loopback;
}

bool ct_front_drain(ct_front *f, double limit_s)
{
    double end = ct_clock_s() + limit_s;
    bool all;

    ct_api_drain(f->api);
    (void)pthread_mutex_lock(&f->lock);
    while ((f->n_busy + f->n_gone > 0) && (ct_clock_s() < end))
        (void)ct_cond_wait_for(&f->quiet, &f->lock, LOOK_S);
    all = (f->n_busy + f->n_gone == 0);
    (void)pthread_mutex_unlock(&f->lock);
    return all;
}

void ct_front_stop(ct_front *f)
{
    if (f == NULL) return;
    (void)pthread_mutex_lock(&f->lock);
    f->stop = true;
    for (guest *g = f->guests; g != NULL; g = g->next)
        if (g->phase == WORKING) ct_transaction_cancel(&g->visit->transaction);
    (void)pthread_cond_broadcast(&f->stopped);
    (void)pthread_mutex_unlock(&f->lock);
    if (f->looking) (void)pthread_join(f->looker, NULL);
    (void)ct_front_drain(f, 10);
    ct_listen_close(&f->listen);
    if (f->daemon != NULL) MHD_stop_daemon(f->daemon);
    ct_linger_destroy(f->linger);
    (void)pthread_cond_destroy(&f->stopped);
    (void)pthread_cond_destroy(&f->quiet);
    (void)pthread_mutex_destroy(&f->lock);
    free(f);
}
