/** @file exchange_config.h  `comm` and `compression` of a solver as the settings of a gradient
 * pipe.
 */
#ifndef CT_EXCHANGE_CONFIG_H
#define CT_EXCHANGE_CONFIG_H

#include "comm/grad_pipe.h"
#include "framework/proto/cortado.pb-c.h"

/** What the exchange of a job and the simulation of one make of param. Names inside *config are
 *  borrowed from param. CT_ERR_CONFIG. */
ct_status ct_exchange_read_config(const Ct__SolverParameter *param, ct_grad_pipe_config *config);

#endif
