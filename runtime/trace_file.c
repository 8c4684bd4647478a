#include "framework/base/file.h"
#include "runtime/call.h"
#include "comm/collective/blocking.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/json_writer.h"
#include "framework/base/number.h"
#include "framework/solver/solver.h"

enum {
    WARM = 3,       /* iterations after the first of the run: caches are warm */
    WINDOW = 5,     /* iterations */
    PER_PARAM = 12, /* spans: wait, update, and those of a few pieces on their way */
    PER_ITERATION = 64,
    PART = 1 << 28 /* bytes of a message */
};
static const int64_t MOST_SPANS = (int64_t)1 << 23; /* 576 MB */

static ct_status read_window(const ct_options *o, int64_t *first_p, int64_t *last_p)
{
    const char *text = ct_options_text(o, "trace_iterations");
    char *end = NULL;

    if (ct_number_integer(text, &end, first_p) && (*first_p >= 0) && (*end == '-') &&
        ct_number_integer(end + 1, &end, last_p) && (*end == '\0') && (*last_p >= *first_p))
        return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG, "--trace_iterations=%s: expected FIRST-LAST, such as 10-14",
                   ct_options_text(o, "trace_iterations"));
}

ct_status ct_trace_file_open(const ct_call *call, ct_trace_file *f)
{
    const ct_options *o = call->options;
    int64_t first = WARM, last = WARM + WINDOW - 1;
    bool given = (ct_options_text(o, "trace_iterations") != NULL);
    ct_status status = CT_OK;

    *f = (ct_trace_file){ .path = ct_options_text(o, "trace"), .job = call->job };
    if (given) CT_TRY(read_window(o, &first, &last));
    if ((f->path == NULL) && given)
        return CT_FAIL(CT_ERR_CONFIG, "--trace_iterations without --trace=FILE");
    if (f->path == NULL) return CT_OK;
    /* a path that cannot be written is known now, not after the training */
    if (f->job->rank == 0) status = ct_file_check_writable(f->path);
    CT_TRY(ct_job_share(f->job, status));
    CT_TRY(ct_trace_create(first, last, !given, &f->trace));
    return ct_clock_sync(f->job->comm, &f->first);
}

/* Where the window begins when nobody said. */
static void place_window(ct_trace *t, const Ct__SolverParameter *param, int n_trial)
{
    int64_t first = (n_trial + 1 > WARM) ? n_trial + 1 : WARM, most = param->max_iter;

    if ((most > 0) && (first + WINDOW > most)) first = (most > WINDOW) ? most - WINDOW : 0;
    t->first = first;
    t->last = first + WINDOW - 1;
}

/* For the window's iterations, of so many spans each. */
static ct_status reserve(ct_trace_file *f, int64_t each)
{
    int64_t n = f->trace->last - f->trace->first + 1;

    if (n > MOST_SPANS / each)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--trace_iterations: %" PRId64 " iterations of this net are too many for a "
                       "trace, which is kept in memory; at most %" PRId64,
                       n, MOST_SPANS / each);
    return ct_trace_reserve(f->trace, n * each);
}

ct_status ct_trace_file_reserve_forward(ct_trace_file *f, const ct_net *net)
{
    if (f->trace == NULL) return CT_OK;
    if (f->trace->relative) {
        f->trace->first = 0;
        f->trace->last = WINDOW - 1;
    }
    return reserve(f, 2 * (int64_t)net->n_forward + PER_ITERATION);
}

ct_status ct_trace_file_reserve(ct_trace_file *f, const ct_net *net, const ct_net *whole,
                                const Ct__SolverParameter *param, int n_trial)
{
    int64_t steps, each;
    int micro = 1;

    if (f == NULL || f->trace == NULL) return CT_OK;
    CT_TRY(ct_solver_micro_batches(param, NULL, whole, &micro));
    if (f->trace->relative) place_window(f->trace, param, n_trial);
    steps = (int64_t)micro * 2 * (net->n_forward + net->n_backward);
    each = steps + (int64_t)PER_PARAM * net->n_param + PER_ITERATION;
    if (net->options.dev->marks != NULL)
        each += 2 * (int64_t)net->n_param + PER_ITERATION; /* copies */
    return reserve(f, each);
}

/* ---- writing */

static ct_status put(FILE *to, const char *path, const char *text, size_t n)
{
    if (fwrite(text, 1, n, to) != n) return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    return CT_OK;
}

/* One rank's text to rank 0, when it asks. */
static ct_status send_text(ct_comm *c, int tag, const ct_text *t)
{
    uint64_t n = t->length;
    char word = 0;

    CT_TRY_MPI(MPI_Recv(&word, 1, MPI_CHAR, 0, tag, c->mpi, MPI_STATUS_IGNORE));
    CT_TRY_MPI(MPI_Send(&n, 1, MPI_UINT64_T, 0, tag, c->mpi));
    for (uint64_t at = 0; at < n; at += PART) {
        int k = (n - at < PART) ? (int)(n - at) : PART;

        CT_TRY_MPI(MPI_Send(t->text + at, k, MPI_CHAR, 0, tag, c->mpi));
    }
    return CT_OK;
}

/* A rank's text into the file. Everything is received, also when the disk is full. */
static ct_status take_text(ct_comm *c, int from, int tag, const char *path, FILE *to,
                           ct_status status)
{
    uint64_t n = 0;
    char word = 0, *part = NULL;

    CT_TRY_MPI(MPI_Send(&word, 1, MPI_CHAR, from, tag, c->mpi));
    CT_TRY_MPI(MPI_Recv(&n, 1, MPI_UINT64_T, from, tag, c->mpi, MPI_STATUS_IGNORE));
    part = malloc((n < PART) ? (size_t)n + 1 : PART);
    if (part == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the trace of rank %d", from);
    for (uint64_t at = 0; at < n; at += PART) {
        int k = (n - at < PART) ? (int)(n - at) : PART;
        int rc = MPI_Recv(part, k, MPI_CHAR, from, tag, c->mpi, MPI_STATUS_IGNORE);

        if (rc != MPI_SUCCESS) free(part);
        CT_TRY_MPI(rc);
        if (status == CT_OK) status = put(to, path, part, (size_t)k);
    }
    free(part);
    return status;
}

/* What is around the events of ranks, which end with commas: up to the length that is returned
 * before them, the rest behind. */
static size_t make_frame(const ct_trace_file *f, double error_s, int64_t n_span, int64_t n_lost,
                         ct_text *out)
{
    ct_json_writer w = ct_json_into(out);
    char range[48];
    size_t head;

    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "displayTimeUnit", "ms");
    ct_json_begin_list(&w, "traceEvents");
    ct_text_add(out, "\n");
    head = out->length;
    ct_trace_add_meta(&w, "trace", 0, 0);
    ct_json_end(&w);
    ct_json_end(&w);
    ct_json_break(&w);
    ct_json_end(&w);
    ct_json_break(&w);
    ct_json_begin_object(&w, "otherData");
    ct_json_add_integer(&w, "ranks", f->job->comm->size);
    snprintf(range, sizeof(range), "%" PRId64 "-%" PRId64, f->trace->first, f->trace->last);
    ct_json_add_text(&w, "iterations", range);
    ct_json_add_decimals(&w, "clock_error_us", 1e6 * error_s, 3);
    ct_json_add_integer(&w, "spans", n_span);
    ct_json_add_integer(&w, "lost", n_lost);
    if ((f->coding != NULL) && (f->coding[0] != '\0')) {
        ct_json_begin_object(&w, "compression");
        ct_json_add_members(&w, f->coding);
        ct_json_end(&w);
    }
    ct_json_end(&w);
    ct_json_end(&w);
    ct_text_add(out, "\n");
    return head;
}

/* Rank 0: all texts in rank order, under a name of their own until they are complete. */
static ct_status write_all(ct_trace_file *f, int tag, const ct_text *mine, double error_s,
                           int64_t n_span, int64_t n_lost)
{
    ct_comm *c = f->job->comm;
    ct_text name = { 0 }, frame = { 0 };
    ct_status status = CT_OK;
    size_t head = make_frame(f, error_s, n_span, n_lost, &frame);
    FILE *to = NULL;

    ct_path_add_own(&name, f->path, "tmp");
    if (name.failed || frame.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for a trace");
    to = ct_file_create_stream(name.text);
    if (to == NULL) status = CT_FAIL(CT_ERR_IO, "%s: %s", name.text, strerror(errno));
    if (status == CT_OK) status = put(to, f->path, frame.text, head);
    if (status == CT_OK) status = put(to, f->path, mine->text, mine->length);
    for (int r = 1; r < c->size; r++) status = take_text(c, r, tag, f->path, to, status);
    if (status == CT_OK) status = put(to, f->path, frame.text + head, frame.length - head);
    if ((to != NULL) && (fclose(to) != 0) && (status == CT_OK))
        status = CT_FAIL(CT_ERR_IO, "%s: %s", f->path, strerror(errno));
    if ((status == CT_OK) && (rename(name.text, f->path) != 0))
        status = CT_FAIL(CT_ERR_IO, "%s: %s", f->path, strerror(errno));
    if ((status != CT_OK) && (to != NULL)) (void)unlink(name.text);
    ct_text_destroy(&name);
    ct_text_destroy(&frame);
    return status;
}

static ct_status make_text(ct_trace_file *f, double zero_s, double *error_s, ct_text *out)
{
    ct_clock_offset now;
    ct_trace_clock clock;

    CT_TRY(ct_clock_sync(f->job->comm, &now));
    clock = (ct_trace_clock){ .at_s = { f->first.at_s, now.at_s },
                              .offset_s = { f->first.offset_s, now.offset_s },
                              .error_s = (now.error_s > f->first.error_s) ? now.error_s
                                                                          : f->first.error_s };
    *error_s = clock.error_s;
    return ct_trace_write(f->trace, f->job->rank, f->job->host, &clock, zero_s, out);
}

ct_status ct_trace_file_write(ct_trace_file *f)
{
    ct_comm *c = f->job->comm;
    ct_text text = { 0 };
    double zero_s = f->first.at_s, error_s = 0, sum[2] = { 0, 0 };
    int64_t n, lost, error_ns;
    int tag;
    ct_status status;

    if (f->trace == NULL) return CT_OK;
    ct_trace_stop(f->trace);
    n = ct_trace_count(f->trace, &lost);
    tag = ct_comm_take_tags(c, 1);
    CT_TRY(ct_comm_broadcast(c, &zero_s, sizeof(zero_s)));
    CT_TRY(make_text(f, zero_s, &error_s, &text));
    error_ns = (int64_t)(1e9 * error_s);
    sum[0] = (double)n;
    sum[1] = (double)lost;
    CT_TRY(ct_comm_max(c, &error_ns, 1));
    CT_TRY(ct_comm_sum(c, sum, 2));
    if (c->rank == 0) {
        status =
            write_all(f, tag, &text, 1e-9 * (double)error_ns, (int64_t)sum[0], (int64_t)sum[1]);
    } else {
        status = send_text(c, tag, &text);
    }
    ct_text_destroy(&text);
    CT_TRY(status);
    CT_TRY(ct_job_share(f->job, status));
    if (sum[0] == 0)
        CT_WARN("%s is empty: no iteration from %" PRId64 " to %" PRId64 " ran", f->path,
                f->trace->first, f->trace->last);
    else
        CT_INFO("trace of iterations %" PRId64 " to %" PRId64 ": %.0f spans of %d ranks in %s, "
                "clocks within %.1f us",
                f->trace->first, f->trace->last, sum[0], c->size, f->path, 1e-3 * (double)error_ns);
    if (sum[1] > 0) CT_WARN("%s: no room for %.0f more spans", f->path, sum[1]);
    return CT_OK;
}

void ct_trace_file_close(ct_trace_file *f)
{
    ct_trace_destroy(f->trace);
    *f = (ct_trace_file){ .path = NULL };
}
