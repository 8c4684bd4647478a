/** @file exchange_inner.h  What an exchange around another one leaves to that. */
#ifndef CT_EXCHANGE_INNER_H
#define CT_EXCHANGE_INNER_H

#include "framework/exchange/exchange.h"

/** An exchange whose calls are those of the ct_exchange that *ctx begins with, but those about
 *  gradients (ready, poll, finish, wait), which the caller puts in, and any other of its own. What
 *  that one does not have, this has not either, nor `replay` and `records`. */
ct_exchange ct_exchange_inner(void *ctx);

#endif
