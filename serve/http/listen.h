/** @file listen.h  The address that the server listens at. */
#ifndef CT_LISTEN_H
#define CT_LISTEN_H

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

#endif
