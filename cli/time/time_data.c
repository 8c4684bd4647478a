#include "cli/time/time_data.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "framework/base/clock.h"
#include "framework/base/sort.h"
#include "runtime/net_open.h"

/* More than any layer makes ahead (prefetch is 64 at most), or as long as this. */
enum { WARM_UP = 65 };
#define WARM_UP_S 2.0

static double cpu_s(void)
{
    struct rusage u;

    if (getrusage(RUSAGE_SELF, &u) != 0) return 0.0;
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

/* `in` with only the layers that read nothing: pointers into it, and one array to free. */
static ct_status only_data(const Ct__NetParameter *in, Ct__NetParameter *out)
{
    *out = *in;
    out->n_layer = 0;
    out->layer = calloc(in->n_layer + 1, sizeof(*out->layer));
    if (out->layer == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu layers", in->n_layer);
    for (size_t i = 0; i < in->n_layer; i++)
        if (in->layer[i]->n_bottom == 0) out->layer[out->n_layer++] = in->layer[i];
    return CT_OK;
}

static ct_status take(ct_net *net, ct_exec *ex, int64_t step, double *ms_p)
{
    double start = ct_clock_s();

    ex->micro_step = step;
    CT_TRY(ct_net_forward(net, ex, NULL));
    *ms_p = (ct_clock_s() - start) * 1e3;
    return CT_OK;
}

static ct_status take_all(ct_net *net, ct_exec *ex, double *ms, ct_time_data *r)
{
    double start = ct_clock_s(), cpu, unused;
    int64_t step = 0;

    while ((step < WARM_UP) && (ct_clock_s() - start < WARM_UP_S))
        CT_TRY(take(net, ex, step++, &unused));
    start = ct_clock_s();
    cpu = cpu_s();
    for (int i = 0; i < r->n_batch; i++) CT_TRY(take(net, ex, step + i, &ms[i]));
    r->wall_s = ct_clock_s() - start;
    r->cpu_s = cpu_s() - cpu;
    ct_sort(ms, r->n_batch);
    r->batch_ms = ms[r->n_batch / 2];
    r->max_ms = ms[r->n_batch - 1];
    return CT_OK;
}

ct_status ct_time_data_run(const ct_call *call, const Ct__NetParameter *net,
                           const ct_net_options *options, int n_batch, ct_time_data *result_p)
{
    ct_net_options alone = *options;
    Ct__NetParameter data;
    ct_net *n = NULL;
    ct_exec ex;
    ct_status status = CT_OK;
    double *ms = calloc((size_t)n_batch, sizeof(*ms));

    if (ms == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d times", n_batch);
    *result_p = (ct_time_data){ .n_batch = n_batch };
    CT_TRY_GOTO(status, free_times, only_data(net, &data));
    alone.forward_only = true;
    CT_TRY_GOTO(status, out, ct_net_create(&data, &alone, &n));
    if (n->n_sample < 1) {
        status = CT_FAIL(CT_ERR_CONFIG, "--data: no layer of net \"%s\" reads a data set",
                         (net->name != NULL) ? net->name : "");
        goto out;
    }
    result_p->batch = n->batch_local;
    ct_exec_fill(call, n, &ex);
    CT_TRY_GOTO(status, out, take_all(n, &ex, ms, result_p));
out:
    ct_net_destroy(n);
    free(data.layer);
free_times:
    free(ms);
    return status;
}

void ct_time_data_print(const ct_time_data *r, FILE *to)
{
    double n = (double)r->n_batch * (double)r->batch;

    fprintf(to, "data layers alone: %d batches of %lld, median %.3f ms, longest %.3f ms\n",
            r->n_batch, (long long)r->batch, r->batch_ms, r->max_ms);
    fprintf(to,
            "%.1f images/s; %.1f images/s for each core in use (%.2f s of CPU time in %.2f s)\n",
            n / r->wall_s, n / r->cpu_s, r->cpu_s, r->wall_s);
}

void ct_time_data_json(const ct_time_data *r, ct_text *out)
{
    double n = (double)r->n_batch * (double)r->batch;

    ct_text_add(out,
                "\"batches\":%d,\"batch\":%lld,\"wall_s\":%.9g,\"cpu_s\":%.9g,\"batch_ms\":%.9g,"
                "\"max_ms\":%.9g,\"images_per_s\":%.9g,\"images_per_cpu_s\":%.9g",
                r->n_batch, (long long)r->batch, r->wall_s, r->cpu_s, r->batch_ms, r->max_ms,
                n / r->wall_s, n / r->cpu_s);
}
