/** @file exchange_config.h  `comm` and `compression` of a solver as the settings of a gradient
 * pipe.
 */
#ifndef CT_EXCHANGE_CONFIG_H
#define CT_EXCHANGE_CONFIG_H

#include "comm/sync/grad_pipe.h"
#include "framework/net/net.h"
#include "framework/proto/cortado.pb-c.h"
#include "framework/solver/solver.h"
#include "framework/tensor/device.h"
#include "framework/tensor/storage_shard.h"

struct ct_source_map;

/** The values of `comm`, before anything is made; map (NULL allowed) knows where they stand.
 *  CT_ERR_CONFIG. */
ct_status ct_comm_check(const Ct__SolverParameter *param, const struct ct_source_map *map);
/** What the exchange of differences of local steps is asked to be: a solver of its own, to which
 *  nothing of gradients applies. Borrows from the solver, whose `outer` is not NULL. */
typedef struct ct_outer_param {
    Ct__SolverParameter solver;
    Ct__CommParameter comm;
    Ct__CompressionParameter compression;
} ct_outer_param;

void ct_outer_param_fill(const Ct__SolverParameter *solver, ct_outer_param *p);
/** What the exchange of a job and the simulation of one make of param. Names inside *config are
 *  borrowed from param. CT_ERR_CONFIG. */
ct_status ct_exchange_read_config(const Ct__SolverParameter *param, ct_grad_pipe_config *config);
/** What several ranks can share out of what a solver keeps in files. CT_ERR_CONFIG. */
ct_status ct_exchange_check_shares(const ct_solver_text *t);
/** What of a solver a net can have that ranks divide by a parallel file. CT_ERR_CONFIG. */
ct_status ct_exchange_check_divided(const ct_solver_text *t);
/** What replicas share out among them (ZeRO); with staged gradients, which a device has, nothing.
 *  CT_ERR_CONFIG. */
ct_status ct_exchange_read_shares(const Ct__SolverParameter *param, const ct_net *net, bool staged,
                                  ct_grad_pipe_config *config);
/** The ranges of net's pipe are the n parameters that learn, which the net puts first. own: what
 *  those with a codec of their own have of it; as long as the pipe. Both are the caller's to free.
 *  config learns where gradients lie; those that travel dense the pipe sees on the host.
 *  CT_ERR_CONFIG. */
ct_status ct_exchange_read_ranges(const Ct__SolverParameter *param, const ct_net *net,
                                  ct_grad_pipe_config *config, ct_grad_range **range_p,
                                  ct_codec_config **own_p, int *n_p);
/** Both of these, for who looks at a pipe's buckets and makes none. */
typedef struct ct_exchange_ranges {
    ct_grad_pipe_config config;
    ct_grad_range *range;
    ct_codec_config *own;
    int n;
} ct_exchange_ranges;

/** CT_ERR_CONFIG. */
ct_status ct_exchange_ranges_open(const Ct__SolverParameter *param, const ct_net *net,
                                  ct_exchange_ranges *r);
void ct_exchange_ranges_close(ct_exchange_ranges *r);
/** Ranks may send rows of tables in place of dense gradients: ct_net_options.send_rows. */
bool ct_exchange_sends_rows(const Ct__SolverParameter *param);
/** Any gradient is compressed, or clipped before it travels. */
bool ct_exchange_is_coded(const Ct__SolverParameter *p, const ct_net *net);
/** All gradients of a device may turn out to travel as they are. */
bool ct_exchange_may_be_dense(const Ct__SolverParameter *p, const ct_net *net);
/** The library that sums gradients on net's device, as comm { gpu_sum } says. Every rank must be
 *  able to, or none does. *ops_p NULL: they meet on the host, which is said. Collective.
 *  CT_ERR_CONFIG where that was asked for and cannot be. */
ct_status ct_exchange_pick_sum(const Ct__SolverParameter *param, const ct_net *net, ct_comm *c,
                               bool shares_gpu, const ct_device_sum_ops **ops_p);
/** Where a net's gradient arena lies best for param's allreduce: in memory that ranks share, or in
 *  plain memory, which other algorithms read faster. */
const ct_arena_ops *ct_exchange_arena(ct_comm *comm, const Ct__SolverParameter *param);
/** It is the former, where there is room for it. */
bool ct_exchange_shares(const Ct__SolverParameter *param);
/** Where buckets of net's gradients begin: begins[i] of parameter i that learns. Collective. */
ct_status ct_exchange_cut(ct_comm *comm, const Ct__SolverParameter *param, const ct_net *net,
                          bool *begins);
/** Adds this rank's pieces of what net learns, where the ranks share it out. Collective. */
ct_status ct_exchange_add_shard(ct_comm *comm, const Ct__SolverParameter *param, const ct_net *net,
                                ct_shard *s);
/** The train net's gradients, where `memory` lets them share memory (ct_net_options.window). */
typedef struct ct_exchange_window {
    ct_net_window window;
    ct_comm *comm; /* borrowed, as param */
    const Ct__SolverParameter *param;
} ct_exchange_window;

/** NULL: each has memory of its own. Of ranks that train the whole net; on other devices than the
 *  CPU of one rank, whose states or weights lie elsewhere. w outlives the net. */
const ct_net_window *ct_exchange_window_open(ct_exchange_window *w, ct_comm *comm,
                                             const ct_device *dev,
                                             const Ct__SolverParameter *param);
/** What codecs on a device cannot do, or not yet; who names the codec's in messages.
 *  CT_ERR_CONFIG. */
ct_status ct_exchange_check_device(const ct_device *dev, const ct_grad_pipe_config *config,
                                   const ct_codec_ops *codec, const char *who);

/** One `compression` or `compress` message, beside s's rule; who names it in messages. p NULL is
 * one of defaults. CT_ERR_CONFIG with the reason. Fields that the type has no use for are read all
 * the same. */
ct_status ct_codec_read_config(const Ct__SolverParameter *s, const Ct__CompressionParameter *p,
                               const char *who, const ct_codec_ops **codec_p,
                               ct_codec_config *config_p);

/** … of a parameter's own `compress`, which has the local_clip of s where it gives none. */
ct_status ct_codec_read_own(const Ct__SolverParameter *s, const Ct__CompressionParameter *p,
                            const char *who, const ct_codec_ops **codec_p,
                            ct_codec_config *config_p);
/** Whether the codec suits the rest of the solver. CT_ERR_CONFIG with the reason. */
ct_status ct_codec_check_solver(const Ct__SolverParameter *s, const char *who,
                                const ct_codec_ops *codec, const ct_codec_config *c);
/** Everything that can be said of param's compression, and that of each parameter of its nets,
 *  before a net is made: what makes no sense together is CT_ERR_CONFIG with the reason. */
ct_status ct_compression_check(const Ct__SolverParameter *param, const struct ct_source_map *map);

#endif
