#include "serve/http/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

static ct_status cannot(const char *where, int fd)
{
    int why = errno;

    if (fd >= 0) (void)close(fd);
    return CT_FAIL(CT_ERR_IO, "--listen=%s: %s%s", where, strerror(why),
                   (why == EADDRINUSE) ? "; take another port, or 0 for any that is free" : "");
}

/* ---- unix:PATH */

/* A socket that is there and refuses is left from a server that was killed. Any other error says
 * that it may be somebody's: another kind of socket, a server that is busy, missing rights. */
static ct_status remove_left_over(const char *where, const struct sockaddr_un *a)
{
    struct stat st;
    int fd, why;

    if (lstat(a->sun_path, &st) != 0) return CT_OK;
    if (!S_ISSOCK(st.st_mode))
        return CT_FAIL(CT_ERR_CONFIG, "--listen=%s: there is something that is no socket", where);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return cannot(where, fd);
    why = (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0) ? 0 : errno;
    (void)close(fd);
    if ((why == 0) || (why == EAGAIN))
        return CT_FAIL(CT_ERR_IO, "--listen=%s: another server listens there", where);
    if (why == ENOENT) return CT_OK; /* it has just gone */
    if (why != ECONNREFUSED)
        return CT_FAIL(CT_ERR_IO, "--listen=%s: a socket is there already: %s", where,
                       strerror(why));
    if ((unlink(a->sun_path) != 0) && (errno != ENOENT)) return cannot(where, -1);
    return CT_OK;
}

static ct_status open_unix(const char *where, const char *path, ct_listen *l)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd;

    if ((path[0] == '\0') || (strlen(path) >= sizeof(a.sun_path)))
        return CT_FAIL(CT_ERR_CONFIG, "--listen=%s: expected unix:PATH with 1 to %zu bytes of path",
                       where, sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    CT_TRY(remove_left_over(where, &a));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return cannot(where, fd);
    if (bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0) return cannot(where, fd);
    if (listen(fd, BACKLOG) != 0) {
        (void)unlink(path);
        return cannot(where, fd);
    }
    l->fd = fd;
    l->loopback = true;
    memcpy(l->path, path, strlen(path) + 1);
    snprintf(l->address, sizeof(l->address), "unix:%s", path);
    return CT_OK;
}

/* ---- ADDRESS:PORT */

typedef union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} any_address;

static socklen_t size_of(const any_address *a)
{
    return (a->any.sa_family == AF_INET) ? sizeof(a->v4) : sizeof(a->v6);
}

static bool parse_port(const char *text, in_port_t *port_p)
{
    long port = 0;

    if ((text[0] == '\0') || (strlen(text) > 5)) return false;
    for (; *text != '\0'; text++) {
        if ((*text < '0') || (*text > '9')) return false;
        port = 10 * port + (*text - '0');
    }
    *port_p = htons((in_port_t)port);
    return port <= 65535;
}

static bool parse(const char *where, any_address *a)
{
    const char *colon = strrchr(where, ':');
    bool six = (where[0] == '[');
    char host[64];
    size_t n;

    memset(a, 0, sizeof(*a));
    if (colon == NULL) return false;
    n = (size_t)(colon - where);
    if (six && ((n < 2) || (where[n - 1] != ']'))) return false;
    if (six) where++, n -= 2;
    if (n >= sizeof(host)) return false;
    memcpy(host, where, n);
    host[n] = '\0';
    a->any.sa_family = six ? AF_INET6 : AF_INET;
    if (six)
        return (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1) &&
               parse_port(colon + 1, &a->v6.sin6_port);
    return (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) &&
           parse_port(colon + 1, &a->v4.sin_port);
}

static bool is_loopback(const any_address *a)
{
    if (a->any.sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return (ntohl(a->v4.sin_addr.s_addr) >> 24) == 127;
}

static void print(const any_address *a, char *text, size_t size)
{
    char host[64];

    if (a->any.sa_family == AF_INET6)
        snprintf(text, size, "[%s]:%d", inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof(host)),
                 ntohs(a->v6.sin6_port));
    else
        snprintf(text, size, "%s:%d", inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof(host)),
                 ntohs(a->v4.sin_port));
}

static ct_status open_port(const char *where, ct_listen *l)
{
    any_address a;
    socklen_t size;
    int fd, on = 1;

    if (!parse(where, &a))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--listen=%s: expected ADDRESS:PORT in numbers, as 127.0.0.1:8080 or "
                       "[::1]:8080, or unix:PATH",
                       where);
    fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return cannot(where, fd);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    size = size_of(&a);
    if ((bind(fd, &a.any, size) != 0) || (listen(fd, BACKLOG) != 0) ||
        (getsockname(fd, &a.any, &size) != 0))
        return cannot(where, fd);
    l->fd = fd;
    l->loopback = is_loopback(&a);
    print(&a, l->address, sizeof(l->address));
    return CT_OK;
}

ct_status ct_listen_open(const char *where, ct_listen *l)
{
    memset(l, 0, sizeof(*l));
    l->fd = -1;
    if (strncmp(where, "unix:", 5) == 0) return open_unix(where, where + 5, l);
    return open_port(where, l);
}

void ct_listen_close(ct_listen *l)
{
    if (l->path[0] != '\0') (void)unlink(l->path); /* first: behind close it may be another's */
    if (l->fd >= 0) (void)close(l->fd);
    l->fd = -1;
    l->path[0] = '\0';
}
