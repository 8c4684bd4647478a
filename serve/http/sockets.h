/** @file sockets.h  Sockets from the address that the server listens at to the end of a connection.
 */
#ifndef CT_SOCKETS_H
#define CT_SOCKETS_H

#include <stdbool.h>

#include "framework/base/status.h"

typedef struct ct_listen {
    int fd;
    bool loopback;     /* only programs of this machine reach it                          */
    char address[192]; /* as it is: "127.0.0.1:40213", "[::1]:8080", "unix:/run/x.sock"   */
    char path[108];    /* of the socket that ct_listen_close() removes; "": none          */
} ct_listen;

/** Listens at ADDRESS:PORT, numbers both, an IPv6 address in [ ], port 0: any that is free; or at
 *  unix:PATH, where a socket that nobody listens at any more is replaced. CT_ERR_CONFIG: no such
 *  address; CT_ERR_IO: it cannot be had, with the reason. Both logged. */
ct_status ct_listen_open(const char *where, ct_listen *l);
void ct_listen_close(ct_listen *l);

/* ---- A connection that ends before its client has sent all. Were its socket closed while bytes
 * wait in it, or still come, the connection would be reset: a client that is busy sending may then
 * see an error in place of the reply. So the socket is kept after its reply: what comes is read and
 * dropped until the client ends, or the time is over. One thread does it for all of them, and
 * sleeps while there are none. */

typedef struct ct_linger ct_linger;

/** At most `most` sockets, each for at most so many seconds. CT_ERR_NOMEM, logged. */
ct_status ct_linger_create(int most, double seconds, ct_linger **l_p);
/** The caller is about to close fd, and sends no more on it. Where there is no room the connection
 *  ends then. Any thread. */
void ct_linger_add(ct_linger *l, int fd);
/** Those that are left have at most a second. NULL allowed. */
void ct_linger_destroy(ct_linger *l);

#endif
