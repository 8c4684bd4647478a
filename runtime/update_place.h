/** @file update_place.h  Where updates are made of states that lie in host memory. It is on the
 *  device, to which the states go and from which they come back, or on the host, to which gradients
 *  come.
 */
#ifndef CT_UPDATE_PLACE_H
#define CT_UPDATE_PLACE_H

#include "framework/tensor/device.h"

/** Bytes a second. */
typedef struct ct_host_link {
    double link; /* between a device's memory and pinned memory of the host, each way */
    double host; /* that host memory gives one rank, read and written counted         */
} ct_host_link;

/** What is taken where nothing may be measured (deterministic): PCIe 3 x 16 as node classes have
 *  it, and what a server's memory gives. */
extern const ct_host_link ct_host_link_assumed;

/** Measures both with blocks of some MiB, the best of a few runs. CT_ERR_NOMEM, CT_ERR_DEVICE. */
ct_status ct_host_link_measure(const ct_device *dev, ct_host_link *link_p);

/** Modelled seconds that an update of a parameter of four bytes takes, whose rule has n_state
 *  states. It is the slower one of what crosses the link, both ways at once, and of what it moves
 *  in host memory. On the device states go up and come down, each by pinned memory: 24 n_state
 *  bytes there. On the host gradients come down and weights go up: 28 + 8 n_state bytes. */
double ct_update_on_device_s(const ct_host_link *l, int n_state);
double ct_update_on_host_s(const ct_host_link *l, int n_state);

#endif
