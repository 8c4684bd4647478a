/* Collectives alone, one after the other: the time of each is that of the slowest rank. */
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "comm/collective/blocking.h"
#include "comm/collective/coll.h"
#include "cli/simulate/program/sim.h"

enum { MAX_SIZE = 16 };

/* A number of bytes with K, M or G behind it, perhaps. 0: none. */
static int64_t read_size(const char *text, char **end_p)
{
    static const char unit[] = "KMG";
    long long value = strtoll(text, end_p, 10);
    const char *u = (**end_p != '\0') ? strchr(unit, **end_p) : NULL;

    if ((*end_p == text) || (value < 1) || (value > INT64_C(1) << 33)) return 0;
    if (u == NULL) return value;
    *end_p += 1;
    return value << 10 * (u - unit + 1);
}

static ct_status read_sizes(const char *list, int64_t *bytes, int *n_p)
{
    const char *at = list;

    for (*n_p = 0; *n_p < MAX_SIZE; at += 1) {
        char *end = NULL;
        int64_t value = read_size(at, &end);

        if (value < 4) break;
        bytes[(*n_p)++] = value / 4 * 4;
        at = end;
        if (*at == '\0') return CT_OK;
        if (*at != ',') break;
    }
    return CT_FAIL(CT_ERR_CONFIG,
                   "--bench=%s: expected up to %d sizes of 4 bytes or more, such as 64K,100M", list,
                   MAX_SIZE);
}

static ct_status complete(ct_coll_req *r, const ct_coll_ops *ops)
{
    ct_status status = CT_OK;
    int idle = 0;

    CT_TRY(ops->start(r));
    while ((status = ops->progress(r)) == CT_INPROGRESS) {
        MPI_Request *req[CT_COMM_MAX_PENDING];
        int n = (ops->pending != NULL) ? ops->pending(r, req, CT_COMM_MAX_PENDING) : 0;

        idle += 1;
        CT_TRY(ct_comm_wait_any(r->comm, req, n, &idle));
    }
    return status;
}

/* Whole numbers, whose sums are exact; element i of rank k is k + i % 7. */
static ct_status check(const ct_comm *c, const float *buf, int64_t count, const char *name)
{
    double p = c->size;

    for (int64_t i = 0; i < count; ++i) {
        double expected = p * (p - 1) / 2 + p * (double)(i % 7);

        if ((double)buf[i] != expected)
            return CT_FAIL(CT_ERR_COMM, "%s: element %lld of %lld is %g, expected %g", name,
                           (long long)i, (long long)count, (double)buf[i], expected);
    }
    return CT_OK;
}

/* Bytes that pass each link of a ring, in parts of the buffer. */
static double traffic(const ct_coll_ops *ops, int n)
{
    return ((ops->kind == CT_COLL_ALLREDUCE) ? 2.0 : 1.0) * (n - 1) / n;
}

static ct_status run_one(ct_sim *sim, const ct_coll_ops *ops, int64_t bytes, ct_json_writer *w)
{
    bool checks = ct_options_flag(sim->options, "check");
    ct_coll_req r = { .comm = sim->comm, .count = bytes / 4, .dtype = CT_F32 };
    double seconds[2] = { 0, 0 }, start = 0; /* time, bytes sent */
    ct_status status = CT_OK;
    float *buf = ct_mem_acquire((size_t)bytes);

    if (buf == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %lld bytes", (long long)bytes);
    for (int64_t i = 0; checks && (i < r.count); ++i) buf[i] = (float)(sim->comm->rank + i % 7);
    r.buf = buf;
    CT_TRY_GOTO(status, done, ops->prepare(&r));
    CT_TRY_GOTO(status, done, ct_comm_barrier(sim->comm));
    start = MPI_Wtime();
    CT_TRY_GOTO(status, done, complete(&r, ops));
    seconds[0] = MPI_Wtime() - start;
    seconds[1] = (double)r.bytes_sent;
    if (checks) CT_TRY_GOTO(status, done, check(sim->comm, buf, r.count, ops->name));
    MPI_Allreduce(MPI_IN_PLACE, seconds, 2, MPI_DOUBLE, MPI_MAX, sim->comm->mpi);
    if (sim->comm->rank == 0) {
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "algorithm", ops->name);
        ct_json_add_integer(w, "bytes", bytes);
        ct_json_add_number(w, "us", 1e6 * seconds[0]);
        ct_json_add_number(w, "predicted_us", 1e6 * ct_coll_cost_s(ops, sim->comm, bytes, CT_F32));
        ct_json_add_number(w, "busbw_gbs",
                           1e-9 * (double)bytes * traffic(ops, sim->comm->size) / seconds[0]);
        ct_json_add_decimals(w, "max_bytes_sent", seconds[1], 0);
        ct_json_add_text(w, "collective", ct_coll_kind_name[ops->kind]);
        ct_json_end(w);
    }

done:
    ops->release(&r);
    ct_mem_release(buf);
    return status;
}

/* impi is SMPI's own model of an allreduce, which is nobody's: only by name. */
static bool wanted(const char *name, const ct_coll_ops *ops, const ct_comm *c, int64_t bytes)
{
    if (ops == NULL) return false;
    if (strcmp(name, "all") == 0) {
        if (ops->by_mpi) return false;
        return ops->supports(c, bytes / 4, CT_F32);
    }
    return strcmp(name, ops->name) == 0;
}

static ct_status read_kind(const ct_sim *sim, ct_coll_kind *kind_p)
{
    const char *word = ct_options_text(sim->options, "kind");
    int kind = CT_COLL_ALLREDUCE;

    while ((word != NULL) && (strcmp(word, ct_coll_kind_name[kind]) != 0))
        kind += 1; /* one it is */
    if ((kind != CT_COLL_ALLREDUCE) && ct_options_flag(sim->options, "check"))
        return CT_FAIL(CT_ERR_CONFIG, "--check: of whole sums, not of --kind=%s", word);
    *kind_p = (ct_coll_kind)kind;
    return CT_OK;
}

ct_status ct_sim_bench(ct_sim *sim, ct_json_writer *w)
{
    const char *name = ct_options_text(sim->options, "algorithm");
    const ct_coll_ops *chosen = NULL;
    int64_t bytes[MAX_SIZE];
    ct_coll_kind kind;
    int n = 0;

    if (name == NULL) name = "all";
    CT_TRY(read_sizes(ct_options_text(sim->options, "bench"), bytes, &n));
    CT_TRY(read_kind(sim, &kind));
    if (strcmp(name, "all") != 0)
        CT_TRY(ct_coll_choose_kind(sim->comm, kind, bytes[0] / 4, CT_F32, name, true, &chosen));
    ct_json_begin_list(w, "results");
    for (int i = 0; i < n; ++i) {
        if (strcmp(name, "auto") == 0) {
            CT_TRY(ct_coll_choose_kind(sim->comm, kind, bytes[i] / 4, CT_F32, name, true, &chosen));
            CT_TRY(run_one(sim, chosen, bytes[i], w));
            continue;
        }
        for (const ct_coll_ops *const *at = ct_coll_table; *at != NULL; ++at) {
            const ct_coll_ops *ops = ct_coll_of_kind(*at, kind);

            if (wanted(name, ops, sim->comm, bytes[i])) CT_TRY(run_one(sim, ops, bytes[i], w));
        }
    }
    ct_json_end(w);
    return CT_OK;
}
