#include "runtime/update_place.h"

#include <math.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/memory.h"

const ct_host_link ct_host_link_assumed = { .link = 16e9, .host = 100e9 };

enum { RUNS = 3, FLOAT = sizeof(float) };

/* In: read into the pinned buffer and from there by the copy. Back: likewise, the other way. */
double ct_update_on_device_s(const ct_host_link *l, int n_state)
{
    double crosses = FLOAT * n_state, moves = 2 * 3 * FLOAT * n_state;

    return fmax(crosses / l->link, moves / l->host);
}

/* A gradient is written by the copy and read; weight and states are read and written; the weight
 * is read and written to the pinned buffer, and read from there by the copy. */
double ct_update_on_host_s(const ct_host_link *l, int n_state)
{
    double crosses = FLOAT, moves = FLOAT * (2 + 2 * (1 + n_state) + 3);

    return fmax(crosses / l->link, moves / l->host);
}

/* ---- measured */

static ct_status time_link(const ct_device *dev, void *host, void *data, size_t bytes, double *s_p)
{
    void *ticket = NULL;
    bool done;
    double start = ct_clock_s();

    CT_TRY(dev->copy_begin(NULL, host, data, bytes, true, &ticket));
    CT_TRY(dev->copy_done(ticket, true, &done));
    *s_p = fmin(*s_p, ct_clock_s() - start);
    return CT_OK;
}

/* By all threads of the rank. */
static double time_host(char *to, const char *from, size_t bytes)
{
    enum { PART = 1 << 16 };
    double start = ct_clock_s();

#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < bytes; at += PART) memcpy(to + at, from + at, PART);
    return ct_clock_s() - start;
}

static ct_status measure(const ct_device *dev, char *host, void *pinned, void *data, size_t bytes,
                         ct_host_link *l)
{
    double link_s = INFINITY, host_s = INFINITY;

    for (int i = 0; i < RUNS; i++) {
        CT_TRY(time_link(dev, pinned, data, bytes, &link_s));
        host_s = fmin(host_s, time_host(host, host + bytes, bytes));
    }
    *l = (ct_host_link){ .link = (double)bytes / link_s, .host = 2.0 * (double)bytes / host_s };
    return CT_OK;
}

ct_status ct_host_link_measure(const ct_device *dev, ct_host_link *link_p)
{
    const size_t bytes = (size_t)16 << 20; /* beyond caches, as far as it goes in milliseconds */
    char *host = ct_mem_acquire(2 * bytes);
    void *pinned = NULL, *data = NULL;
    ct_status status =
        (host != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory to measure copies");

    if (status == CT_OK) status = dev->host_acquire(bytes, &pinned);
    if (status == CT_OK) status = dev->mem_acquire(bytes, &data);
    if (status == CT_OK) status = measure(dev, host, pinned, data, bytes, link_p);
    if (data != NULL) dev->mem_release(data);
    if (pinned != NULL) dev->host_release(pinned);
    ct_mem_release(host);
    return status;
}
