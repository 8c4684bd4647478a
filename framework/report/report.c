#include "framework/report/report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/file_lock.h"
#include "framework/base/json_writer.h"
#include "framework/base/text.h"

/* NULL allowed; erases the line */
static void progress_destroy(ct_progress *p);
/* Redraws, at most ten times a second. */
static void progress_move(ct_progress *p, int64_t iteration, int64_t max_iteration, double loss,
                          double images_per_s);

struct ct_report {
    bool speaks; /* rank 0 */
    char *path;  /* of the metrics, for messages */
    FILE *metrics;
    ct_event_file *events; /* NULL: none */
    ct_progress *progress;
};

ct_status ct_report_spare(const char *path, const char *more)
{
    struct stat st;

    CT_TRY(ct_file_lock_ask(path));
    if ((stat(path, &st) != 0) || !S_ISREG(st.st_mode) || (st.st_size == 0)) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "%s holds the metrics of an earlier run: --overwrite replaces them%s", path,
                   more);
}

/* The length of the file up to the end of its last whole line. */
static ct_status whole_lines(int fd, const char *path, off_t *length_p)
{
    char block[4096];
    off_t end = lseek(fd, 0, SEEK_END);

    if (end < 0) return CT_FAIL(CT_ERR_IO, "%s: %s", path, strerror(errno));
    while (end > 0) {
        size_t n = (end < (off_t)sizeof(block)) ? (size_t)end : sizeof(block);

        if (pread(fd, block, n, end - (off_t)n) != (ssize_t)n)
            return CT_FAIL(CT_ERR_IO, "%s: cannot read its last line", path);
        while ((n > 0) && (block[n - 1] != '\n')) {
            n--;
            end--;
        }
        if (n > 0) break;
    }
    *length_p = end;
    return CT_OK;
}

/* The file becomes this process's. What was in it goes, or with append the last line that is not
 * whole. */
static ct_status take_metrics(int fd, const char *path, bool append)
{
    struct stat st;
    off_t length = 0;

    CT_TRY(ct_file_lock(fd, path));
    if ((fstat(fd, &st) != 0) || !S_ISREG(st.st_mode)) return CT_OK;
    if (append) CT_TRY(whole_lines(fd, path, &length));
    if ((ftruncate(fd, length) != 0) || (lseek(fd, length, SEEK_SET) < 0))
        return CT_FAIL(CT_ERR_IO, "cannot %s metrics to %s: %s", append ? "append" : "write", path,
                       strerror(errno));
    return CT_OK;
}

static ct_status open_metrics(ct_report *r, const char *path, bool append)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    ct_status status;

    r->path = strdup(path);
    if (r->path == NULL) {
        if (fd >= 0) close(fd);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the report");
    }
    if (fd < 0) return CT_FAIL(CT_ERR_IO, "cannot write metrics to %s: %s", path, strerror(errno));
    status = take_metrics(fd, path, append);
    if (status != CT_OK) {
        close(fd);
        return status;
    }
    r->metrics = fdopen(fd, "w");
    if (r->metrics == NULL) {
        close(fd);
        return CT_FAIL(CT_ERR_IO, "cannot write metrics to %s: %s", path, strerror(errno));
    }
    return CT_OK;
}

ct_status ct_report_create(const ct_report_options *options, ct_report **report_p)
{
    ct_report *r = calloc(1, sizeof(*r));
    ct_status status = CT_OK;

    if (r == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the report");
    r->speaks = (options->rank == 0);
    if (r->speaks && (options->metrics != NULL))
        CT_TRY_GOTO(status, err_destroy, open_metrics(r, options->metrics, options->append));
    if (r->speaks && (options->events != NULL))
        CT_TRY_GOTO(status, err_destroy, ct_event_file_create(options->events, &r->events));
    if (r->speaks && options->progress)
        CT_TRY_GOTO(status, err_destroy, ct_progress_create(&r->progress));
    *report_p = r;
    return CT_OK;

err_destroy:
    ct_report_destroy(r);
    return status;
}

ct_status ct_report_close(ct_report *r)
{
    ct_event_file *events;
    ct_status status = CT_OK;
    FILE *metrics;

    if (r == NULL) return CT_OK;
    metrics = r->metrics;
    events = r->events;
    r->metrics = NULL;
    r->events = NULL;
    if ((metrics != NULL) && (fclose(metrics) != 0))
        status = CT_FAIL(CT_ERR_IO, "cannot write metrics to %s: %s", r->path, strerror(errno));
    if (status == CT_OK) return ct_event_file_close(events);
    ct_event_file_destroy(events);
    return status;
}

void ct_report_destroy(ct_report *r)
{
    if (r == NULL) return;
    progress_destroy(r->progress);
    if (r->metrics != NULL) fclose(r->metrics);
    ct_event_file_destroy(r->events);
    free(r->path);
    free(r);
}

/* Takes over line. */
static ct_status write_line(ct_report *r, ct_text *line)
{
    bool good;

    if (line->failed) {
        ct_text_destroy(line);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a line of metrics");
    }
    ct_text_add_bytes(line, "\n", 1);
    errno = 0;
    good = (fwrite(line->text, 1, line->length, r->metrics) == line->length) &&
           (fflush(r->metrics) == 0);
    ct_text_destroy(line);
    if (!good)
        return CT_FAIL(CT_ERR_IO, "cannot write metrics to %s: %s", r->path, strerror(errno));
    return CT_OK;
}

static ct_status write_fields(ct_report *r, const char *event, const char *fields)
{
    ct_text line = { 0 };
    ct_json_writer w = ct_json_into(&line);

    if ((r == NULL) || (r->metrics == NULL)) return CT_OK;
    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "event", event);
    ct_json_add_members(&w, fields);
    ct_json_end(&w);
    return write_line(r, &line);
}

ct_status ct_report_run(ct_report *r, const char *fields)
{
    return write_fields(r, "run", fields);
}

ct_status ct_report_compression(ct_report *r, const char *fields)
{
    return write_fields(r, "compression", fields);
}

ct_status ct_report_done(ct_report *r, const char *fields)
{
    return write_fields(r, "done", fields);
}

static const char *output_name(const ct_net *net, int i)
{
    return net->pass->blob[net->output[i].blob]->name;
}

int64_t ct_report_n_output(const ct_net *net)
{
    int64_t n = 0;

    for (int i = 0; i < net->n_output; i++) n += ct_net_output_count(net, i);
    return n;
}

/* Columns of words, or windows of tokens. */
static bool is_text(const ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++)
        if (strcmp(net->layer[i]->ops->type, "TokenData") == 0) return true;
    return net->batch_axis == 1;
}

bool ct_report_is_of_words(const ct_net *net, int i)
{
    return is_text(net) && (net->output[i].loss_weight != 0.0f) &&
           (ct_net_output_count(net, i) == 1) &&
           (strcmp(net->layer[net->output[i].layer]->ops->type, "SoftmaxWithLoss") == 0);
}

double ct_report_bits_per_byte(double loss, const ct_text_size *text)
{
    if (!(text->bytes > 0)) return NAN;
    return loss / log(2.0) * text->tokens / text->bytes;
}

/* Caffe's lines, numbered by element over all outputs; %g as a C++ stream prints. */
static void log_outputs(const char *phase, const ct_net *net, const double *value,
                        const ct_text_size *text)
{
    int64_t number = 0;

    for (int i = 0; i < net->n_output; i++) {
        double weight = (double)net->output[i].loss_weight;

        for (int64_t k = 0; k < ct_net_output_count(net, i); k++, number++) {
            double v = value[number];

            if (weight != 0.0) {
                CT_INFO("    %s net output #%" PRId64 ": %s = %g (* %g = %g loss)", phase, number,
                        output_name(net, i), v, weight, weight * v);
            } else {
                CT_INFO("    %s net output #%" PRId64 ": %s = %g", phase, number,
                        output_name(net, i), v);
            }
        }
        if (!ct_report_is_of_words(net, i)) continue;
        CT_INFO("    %s net perplexity: %g (e^%s)", phase, exp(value[number - 1]),
                output_name(net, i));
        if (text->bytes > 0)
            CT_INFO("    %s net bits_per_byte: %g", phase,
                    ct_report_bits_per_byte(value[number - 1], text));
    }
}

/* An event on its way: a line of the metrics, and the same numbers for TensorBoard. */
typedef struct record {
    ct_text line, summary;
    ct_json_writer w;  /* of the line */
    const char *group; /* of the numbers' tags */
} record;

static void begin_record(record *e, const char *event, int64_t iteration)
{
    e->w = ct_json_into(&e->line);
    ct_json_begin_object(&e->w, NULL);
    ct_json_add_text(&e->w, "event", event);
    ct_json_add_integer(&e->w, "iter", iteration);
}

static bool is_recorded(const ct_report *r)
{
    return (r->metrics != NULL) || (r->events != NULL);
}

/* Takes over what the record has. */
static ct_status write_record(ct_report *r, record *e, int64_t iteration)
{
    ct_status status = CT_OK;

    ct_json_end(&e->w);
    if (r->metrics != NULL)
        status = write_line(r, &e->line);
    else
        ct_text_destroy(&e->line);
    if ((status == CT_OK) && (r->events != NULL))
        status = ct_event_file_write(r->events, iteration, &e->summary);
    ct_text_destroy(&e->summary);
    return status;
}

static void add_field(record *e, const char *name, double v)
{
    ct_json_add_number(&e->w, name, v);
    ct_event_add_scalar(&e->summary, e->group, name, v);
}

static void add_count(record *e, const char *name, int64_t v)
{
    ct_json_add_integer(&e->w, name, v);
    ct_event_add_scalar(&e->summary, e->group, name, (double)v);
}

static void add_when(record *e, double epoch)
{
    struct timespec now = { 0 };

    clock_gettime(CLOCK_REALTIME, &now);
    add_field(e, "epoch", epoch);
    ct_json_add_decimals(&e->w, "time", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, 3);
}

/* Compression on this rank, per step; shares are of the compressed elements. */
static void add_codec(record *e, const ct_codec_totals *c, int64_t steps)
{
    double elements = (c->elements > 0) ? (double)c->elements : 1, ms = 1e3 / (double)steps;
    const char *group = e->group;

    e->group = "compression";
    ct_json_begin_object(&e->w, "compression");
    ct_json_add_integer(&e->w, "parameters", c->n_coded);
    add_count(e, "bytes_dense", c->bytes_dense / steps);
    add_count(e, "bytes_coded", c->bytes_coded / steps);
    add_field(e, "density", (double)c->selected / elements);
    add_field(e, "filled", (double)c->filled / elements);
    add_field(e, "select_ms", ms * c->select_s);
    add_field(e, "pack_ms", ms * c->pack_s);
    add_field(e, "exchange_ms", ms * c->exchange_s);
    add_field(e, "unpack_ms", ms * c->unpack_s);
    add_field(e, "saved_ms", ms * c->saved_s);
    add_field(e, "residual_norm", c->residual_norm);
    ct_json_end(&e->w);
    e->group = group;
}

/* Its origin is a float: 0.01, not 0.00999999978. */
static void add_rate(record *e, double rate)
{
    if (!isfinite(rate)) {
        add_field(e, "lr", rate);
        return;
    }
    ct_json_add_digits(&e->w, "lr", rate, 7);
    ct_event_add_scalar(&e->summary, e->group, "lr", rate);
}

ct_status ct_report_train(ct_report *r, const ct_report_train_event *e)
{
    record line = { .group = "train" };

    if ((r == NULL) || !r->speaks) return CT_OK;
    CT_INFO("Iteration %" PRId64 " (%g iter/s, %gs/%" PRId64 " iters), loss = %g", e->iteration,
            e->iterations_per_s, e->seconds, e->iterations, e->loss);
    log_outputs("Train", e->net, e->output, &(ct_text_size){ 0 });
    CT_INFO("Iteration %" PRId64 ", lr = %g", e->iteration, e->rate);
    if (e->tokens_per_s > 0)
        CT_INFO("Iteration %" PRId64 ", tokens/s = %.1f", e->iteration, e->tokens_per_s);
    if (!is_recorded(r)) return CT_OK;
    begin_record(&line, "train", e->iteration);
    add_field(&line, "loss", e->loss);
    add_rate(&line, e->rate);
    add_field(&line, "images_per_s", e->images_per_s);
    if (e->tokens_per_s > 0) add_field(&line, "tokens_per_s", e->tokens_per_s);
    add_field(&line, "wait_data_ms", e->wait_data_ms);
    add_field(&line, "compute_ms", e->compute_ms);
    add_field(&line, "comm_exposed_ms", e->comm_exposed_ms);
    add_count(&line, "bytes_sent", e->bytes_sent);
    if (e->broken_samples > 0) add_count(&line, "broken_samples", e->broken_samples);
    if (e->codec.n_coded > 0) add_codec(&line, &e->codec, (e->iterations > 0) ? e->iterations : 1);
    add_when(&line, e->epoch);
    return write_record(r, &line, e->iteration);
}

ct_status ct_report_test_start(ct_report *r, int64_t iteration, int net_index)
{
    if ((r == NULL) || !r->speaks) return CT_OK;
    CT_INFO("Iteration %" PRId64 ", Testing net (#%d)", iteration, net_index);
    return CT_OK;
}

static void add_outputs(record *e, const ct_net *net, const double *value)
{
    for (int i = 0; i < net->n_output; i++) {
        int64_t n = ct_net_output_count(net, i);

        if (n != 1) ct_json_begin_list(&e->w, output_name(net, i));
        for (int64_t k = 0; k < n; k++, value++) {
            char name[160];

            ct_json_add_number(&e->w, (n == 1) ? output_name(net, i) : NULL, *value);
            snprintf(name, sizeof(name), (n == 1) ? "%s" : "%s/%" PRId64, output_name(net, i), k);
            ct_event_add_scalar(&e->summary, e->group, name, *value);
        }
        if (n != 1) ct_json_end(&e->w);
    }
}

/* Of the first loss of words, if there is one. */
static void add_perplexity(record *e, const ct_net *net, const double *value,
                           const ct_text_size *text)
{
    for (int i = 0; i < net->n_output; value += ct_net_output_count(net, i), i++) {
        if (!ct_report_is_of_words(net, i)) continue;
        add_field(e, "perplexity", exp(*value));
        if (text->bytes > 0) add_field(e, "bits_per_byte", ct_report_bits_per_byte(*value, text));
        return;
    }
}

ct_status ct_report_test(ct_report *r, int64_t iteration, double epoch, int net_index,
                         const ct_net *net, const double *output, const ct_text_size *text)
{
    char group[32] = "test";
    record line = { .group = group };

    if ((r == NULL) || !r->speaks) return CT_OK;
    log_outputs("Test", net, output, text);
    if (!is_recorded(r)) return CT_OK;
    if (net_index > 0) snprintf(group, sizeof(group), "test_%d", net_index);
    begin_record(&line, "test", iteration);
    ct_json_add_integer(&line.w, "net", net_index);
    ct_json_begin_object(&line.w, "outputs");
    add_outputs(&line, net, output);
    ct_json_end(&line.w);
    add_perplexity(&line, net, output, text);
    add_when(&line, epoch);
    return write_record(r, &line, iteration);
}

ct_status ct_report_best(ct_report *r, int64_t iteration, const char *metric, double value,
                         int rank)
{
    ct_text line = { 0 };
    ct_json_writer w = ct_json_into(&line);

    if ((r == NULL) || !r->speaks) return CT_OK;
    if (rank == 1)
        CT_INFO("Iteration %" PRId64 ", best %s so far: %g", iteration, metric, value);
    else
        CT_INFO("Iteration %" PRId64 ", %s %g is number %d of the best so far", iteration, metric,
                value, rank);
    if (r->metrics == NULL) return CT_OK;
    ct_json_begin_object(&w, NULL);
    ct_json_add_text(&w, "event", "best");
    ct_json_add_integer(&w, "iter", iteration);
    ct_json_add_text(&w, "metric", metric);
    ct_json_add_number(&w, "value", value);
    ct_json_add_integer(&w, "rank", rank);
    ct_json_end(&w);
    return write_line(r, &line);
}

void ct_report_broken(ct_report *r, const char *in, int64_t samples)
{
    if ((r == NULL) || !r->speaks || (samples == 0)) return;
    CT_WARN("%s: others stood in for %" PRId64 " broken samples (skip_broken)", in, samples);
}

void ct_report_final_loss(ct_report *r, int64_t iteration, double loss)
{
    if ((r == NULL) || !r->speaks) return;
    CT_INFO("Iteration %" PRId64 ", loss = %g", iteration, loss);
}

void ct_report_progress(ct_report *r, int64_t iteration, int64_t max_iteration, double loss,
                        double images_per_s)
{
    if ((r == NULL) || (r->progress == NULL)) return;
    progress_move(r->progress, iteration, max_iteration, loss, images_per_s);
}

/* ---- the progress line */

#define ERASE "\r\033[K"

struct ct_progress {
    char text[160];
    double drawn_s; /* when it was last drawn           */
    double first_s; /* when the first iteration was seen */
    int64_t first;  /* and which that was               */
    double rate;    /* last known images/s              */
};

static void log_sink(void *ctx, const char *line)
{
    const ct_progress *p = ctx;

    fprintf(stderr, ERASE "%s%s", line, p->text);
}

ct_status ct_progress_create(ct_progress **progress_p)
{
    ct_progress *p;

    *progress_p = NULL;
    if (isatty(STDERR_FILENO) == 0) return CT_OK;
    p = calloc(1, sizeof(*p));
    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the progress line");
    p->first = -1;
    ct_log_set_sink(log_sink, p);
    *progress_p = p;
    return CT_OK;
}

static void progress_destroy(ct_progress *p)
{
    if (p == NULL) return;
    ct_log_set_sink(NULL, NULL);
    fputs(ERASE, stderr);
    free(p);
}

static void format_time(char *text, size_t size, double seconds)
{
    int64_t s = (int64_t)seconds;

    if (s >= 3600) {
        snprintf(text, size, "%" PRId64 "h%02dm", s / 3600, (int)(s / 60 % 60));
    } else if (s >= 60) {
        snprintf(text, size, "%dm%02ds", (int)(s / 60), (int)(s % 60));
    } else {
        snprintf(text, size, "%ds", (int)s);
    }
}

void ct_progress_format(char *text, size_t size, int64_t iteration, int64_t max_iteration,
                        double loss, double images_per_s, double seconds_left)
{
    char left[32] = "";
    size_t used;

    used = (size_t)snprintf(text, size, "  %" PRId64 "/%" PRId64 "  loss %.4g", iteration,
                            max_iteration, loss);
    if (images_per_s > 0.0)
        used +=
            (size_t)snprintf(text + used, size - used, "  %.0f images/s", fmin(images_per_s, 1e12));
    if ((seconds_left >= 0.0) && isfinite(seconds_left)) {
        format_time(left, sizeof(left), seconds_left);
        snprintf(text + used, size - used, "  %s left", left);
    }
}

static void progress_move(ct_progress *p, int64_t iteration, int64_t max_iteration, double loss,
                          double images_per_s)
{
    double now = ct_clock_s(), left = -1.0;

    if (p->first < 0) {
        p->first = iteration;
        p->first_s = now;
    }
    if (images_per_s > 0.0) p->rate = images_per_s;
    if (now - p->drawn_s < 0.1) return;
    if (iteration > p->first)
        left = (now - p->first_s) / (double)(iteration - p->first) *
               (double)(max_iteration - iteration);
    p->drawn_s = now;
    ct_progress_format(p->text, sizeof(p->text), iteration, max_iteration, loss, p->rate, left);
    fprintf(stderr, ERASE "%s", p->text);
}
