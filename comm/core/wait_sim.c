/* wait.c for a simulation: time passes only in MPI calls, so waiting is a call that waits. And what
 * codecs take there. */
#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/host.h>

#include "comm/core/comm.h"
#include "comm/core/sim_codec.h"

enum {
    ALARM_TAG = 2,
    SMPI_HEADER = 16 /* bytes that SMPI 3.32 adds to each message */
};

void ct_comm_relax(const ct_comm *c, int *idle)
{
    (void)c;
    if (*idle > 0) sg_actor_sleep_for(1e-6);
}

ct_status ct_comm_wait_any(ct_comm *c, MPI_Request **req, int n, int *idle)
{
    MPI_Request list[CT_COMM_MAX_PENDING];
    int done = MPI_UNDEFINED;

    if (n == 0) {
        ct_comm_relax(c, idle);
        return CT_OK;
    }
    for (int i = 0; i < n; ++i) list[i] = *req[i];
    CT_TRY_MPI(MPI_Waitany(n, list, &done, MPI_STATUS_IGNORE));
    for (int i = 0; i < n; ++i) *req[i] = list[i];
    return CT_OK;
}

/* The ranks of a simulation are threads of one process, or coroutines of one thread, and one runs
 * at a time: a lock held across a call that lets another rank run would stop them all. */
void ct_comm_lock(ct_comm *c)
{
    (void)c;
}

void ct_comm_unlock(ct_comm *c)
{
    (void)c;
}

/* Each request that SMPI 3.32 finds complete in MPI_Test stays in a list that every later
 * completion searches (and costs memory): at a thousand ranks that is most of the time. */
int ct_comm_test(MPI_Request *request, int *done_p)
{
    *done_p = (*request == MPI_REQUEST_NULL);
    return MPI_SUCCESS;
}

bool ct_comm_sends_in_turn(void)
{
    return true;
}

double ct_comm_leaves_s(const ct_comm *c, int to, int64_t bytes)
{
    int level = ct_topo_meet(c->topo, c->rank, to);
    double bandwidth = (level >= 0) ? c->topo->machine.level[level].bandwidth : 0;

    return (bandwidth > 0) ? (double)bytes / bandwidth : 0;
}

/* A message to itself: it has no latency, and nothing else is on its link. */
ct_status ct_comm_alarm(double seconds, void *block, MPI_Request *alarm)
{
    double bytes = ceil(seconds * CT_SIM_SELF_BANDWIDTH) - SMPI_HEADER;
    int n = (bytes < CT_COMM_ALARM_BYTES) ? (int)bytes : CT_COMM_ALARM_BYTES;
    char *from = (char *)block + CT_COMM_ALARM_BYTES;
    MPI_Request send;

    if (n < 1) n = 1;
    CT_TRY_MPI(MPI_Irecv(block, n, MPI_BYTE, 0, ALARM_TAG, MPI_COMM_SELF, alarm));
    CT_TRY_MPI(MPI_Isend(from, n, MPI_BYTE, 0, ALARM_TAG, MPI_COMM_SELF, &send));
    CT_TRY_MPI(MPI_Request_free(&send));
    return CT_OK;
}

bool ct_comm_may_thread(const ct_comm *c, const char **why_p)
{
    (void)c;
    *why_p = "a simulation has no second thread";
    return false;
}

/* ---- codecs */

void ct_sim_codec_set(ct_codec_speed *speed)
{
    sg_host_set_data(sg_host_self(), speed);
}

ct_codec_speed ct_sim_codec(void)
{
    const ct_codec_speed *speed = sg_host_get_data(sg_host_self());

    return (speed != NULL) ? *speed : (ct_codec_speed){ .memory = 0 };
}

void ct_sim_codec_pass(double seconds)
{
    if (seconds > 0) sg_actor_sleep_for(seconds);
}

void ct_sim_codec_stream(double bytes)
{
    double memory = ct_sim_codec().memory;

    if (memory > 0) ct_sim_codec_pass(bytes / memory);
}
