#include "serve/http/sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/thread.h"

#define END_S 1.0 /* that those have which are left at the end */

enum { PIECE = 1 << 16 };

struct ct_linger {
    int most;
    double seconds;
    int wake; /* an eventfd: there is a new one, or the end */
    pthread_t thread;
    bool made_lock, started;
    pthread_mutex_t lock; /* of these: */
    int n;
    struct pollfd *socket; /* [0] is `wake` */
    double *until;
    bool stop;
    /* the thread's */
    struct pollfd *looked;
    char *piece;
};

/* ---- the thread */

/* True: its client has ended, or will not. */
static bool drop(const ct_linger *l, int fd)
{
    ssize_t n = recv(fd, l->piece, PIECE, MSG_DONTWAIT);

    return (n == 0) || ((n < 0) && (errno != EAGAIN) && (errno != EINTR));
}

/* With the lock held: others may have come behind them, none has gone. */
static void end_some(ct_linger *l, int n_looked, double now)
{
    for (int i = n_looked; i >= 1; i--) {
        bool over = (now >= l->until[i]);

        if (l->looked[i].revents != 0) over |= drop(l, l->looked[i].fd);
        if (!over) continue;
        (void)close(l->socket[i].fd);
        l->socket[i] = l->socket[l->n];
        l->until[i] = l->until[l->n];
        l->n--;
    }
}

/* With the lock held: copies what is to be looked at; until when, at most. */
static int copy(ct_linger *l, double *until_p)
{
    *until_p = INFINITY;
    l->looked[0] = l->socket[0];
    for (int i = 1; i <= l->n; i++) {
        l->looked[i] = l->socket[i];
        *until_p = fmin(*until_p, l->until[i]);
    }
    return l->n;
}

static void *read_on(void *arg)
{
    ct_linger *l = arg;

    (void)pthread_mutex_lock(&l->lock);
    while (!l->stop || (l->n > 0)) {
        double until, s;
        uint64_t count;
        int n = copy(l, &until);

        (void)pthread_mutex_unlock(&l->lock);
        s = fmin(fmax(until - ct_clock_s(), 0), 3600);
        (void)poll(l->looked, (nfds_t)n + 1, (n > 0) ? (int)ceil(1e3 * s) : -1);
        if (l->looked[0].revents != 0) (void)!read(l->wake, &count, sizeof(count));
        (void)pthread_mutex_lock(&l->lock);
        end_some(l, n, ct_clock_s());
    }
    (void)pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- what others call */

static void wake(const ct_linger *l)
{
    const uint64_t one = 1;

    (void)!write(l->wake, &one, sizeof(one));
}

static ct_status make(ct_linger *l)
{
    size_t n = (size_t)l->most + 1;

    l->socket = calloc(n, sizeof(*l->socket));
    l->looked = calloc(n, sizeof(*l->looked));
    l->until = calloc(n, sizeof(*l->until));
    l->piece = malloc(PIECE);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->made_lock = (pthread_mutex_init(&l->lock, NULL) == 0);
    if ((l->socket == NULL) || (l->looked == NULL) || (l->until == NULL) || (l->piece == NULL) ||
        (l->wake < 0) || !l->made_lock)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for connections that end");
    l->socket[0] = (struct pollfd){ .fd = l->wake, .events = POLLIN };
    l->started = (ct_thread_start(read_on, l, &l->thread) == 0);
    return l->started ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no thread for connections that end");
}

ct_status ct_linger_create(int most, double seconds, ct_linger **l_p)
{
    ct_linger *l = calloc(1, sizeof(*l));
    ct_status status;

    if (l == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for connections that end");
    l->most = most;
    l->seconds = seconds;
    l->wake = -1;
    status = make(l);
    if (status != CT_OK) {
        ct_linger_destroy(l);
        return status;
    }
    *l_p = l;
    return CT_OK;
}

void ct_linger_add(ct_linger *l, int fd)
{
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    bool room;

    if (own < 0) return;
    (void)shutdown(own, SHUT_WR); /* the client sees that the reply is whole */
    (void)pthread_mutex_lock(&l->lock);
    room = (l->n < l->most) && !l->stop;
    if (room) {
        l->n++;
        l->socket[l->n] = (struct pollfd){ .fd = own, .events = POLLIN };
        l->until[l->n] = ct_clock_s() + l->seconds;
    }
    (void)pthread_mutex_unlock(&l->lock);
    if (room)
        wake(l);
    else
        (void)close(own);
}

void ct_linger_destroy(ct_linger *l)
{
    if (l == NULL) return;
    if (l->started) {
        (void)pthread_mutex_lock(&l->lock);
        l->stop = true;
        for (int i = 1; i <= l->n; i++) l->until[i] = fmin(l->until[i], ct_clock_s() + END_S);
        (void)pthread_mutex_unlock(&l->lock);
        wake(l);
        (void)pthread_join(l->thread, NULL);
    }
    if (l->made_lock) (void)pthread_mutex_destroy(&l->lock);
    if (l->wake >= 0) (void)close(l->wake);
    free(l->socket);
    free(l->looked);
    free(l->until);
    free(l->piece);
    free(l);
}
