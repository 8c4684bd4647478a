/** @file front.h  HTTP: connections in, replies out.
 *
 * One thread of libmicrohttpd talks to all connections. A request that waits for the model has its
 * connection set aside, so waiting requests cost no thread. A second thread looks after connections
 * that take too long to send a request or to read its reply, and after clients that have gone. A
 * third one reads what refused clients still send (sockets.h).
 */
#ifndef CT_FRONT_H
#define CT_FRONT_H

#include "serve/api/transaction.h"

typedef struct ct_front_options {
    const char *listen;   /* ct_listen_open()                                               */
    int most_connections; /* as far as there may be files; others wait to be accepted       */
    size_t most_header; /* bytes of a connection's own: the lines before a body: else 431 or 414 */
    size_t most_body;   /* bytes: 413 beyond                                              */
    double read_s;      /* from a request's first line until it is whole; and that a connection
                         * may have none                                                  */
    double write_s;     /* until the client has taken the reply                           */
    double linger_s;    /* how long is read what a client sends whose request is refused  */
} ct_front_options;

typedef struct ct_front ct_front;

/** Listens and answers from now on. The api is borrowed. CT_ERR_CONFIG, logged: built without
 *  libmicrohttpd, or no address. */
ct_status ct_front_start(ct_api *api, const ct_front_options *options, ct_front **f_p);
/** Where it listens, as ct_listen.address says it. */
const char *ct_front_address(const ct_front *f);
/** Only programs of this machine reach it. */
bool ct_front_is_private(const ct_front *f);
/** New work gets 503; returns when all that came whole is answered, or after limit_s. True: all. A
 *  request of which a part came is not waited for. */
bool ct_front_drain(ct_front *f, double limit_s);
/** Ends all connections. The dispatcher must run until then. NULL allowed. */
void ct_front_stop(ct_front *f);

#endif
