/** @file metrics.h  What Prometheus reads: counts of replies, how long they took, the queue. */
#ifndef CT_METRICS_H
#define CT_METRICS_H

#include "framework/base/text.h"
#include "serve/api/dispatch.h"

typedef struct ct_metrics ct_metrics;

/** Routes by their names, which are static. */
ct_status ct_metrics_create(const char *const *route, int n_route, ct_metrics **m_p);
void ct_metrics_destroy(ct_metrics *m); /* NULL allowed */
/** A reply of a route, after s seconds; any thread. */
void ct_metrics_count(ct_metrics *m, int route, int status, double s);
/** A token that was made, s seconds after its request, or after the token before it; any thread. */
void ct_metrics_count_token(ct_metrics *m, bool first, double s);
/** The pictures of a request were decoded, or one was found bad, in s seconds; any thread. */
void ct_metrics_count_decode(ct_metrics *m, double s);
/** Appends all of it in Prometheus's text format. */
void ct_metrics_write(ct_metrics *m, const ct_scheduler_stats *stats, bool ready, ct_text *to);
/** Appends what each of n replicas has done. */
void ct_metrics_write_replicas(const ct_replica_stats *s, int n, ct_text *to);

#endif
