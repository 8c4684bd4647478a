/* cortado bench serve: what a net takes for sequences side by side, shape by shape. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench/bench.h"
#include "framework/base/clock.h"
#include "framework/base/file.h"
#include "framework/base/json_writer.h"
#include "framework/base/sort.h"
#include "planner/forward_pass.h"
#include "runtime/division/divided_net.h"
#include "serve/net/deployed.h"

enum {
    LEAST = 3,
    MOST = 200,
    MOST_STEPS = 16 /* of sequences that grow, before they begin again */,
    PAGE = 32
};
#define SECONDS 1.0 /* of the runs of a shape, about */

/* 20 requests of 2 to 100 tokens, 1070 in all. */
static const char mix20[] = "2+8+13+19+24+30+36+41+47+52+58+64+69+75+80+86+91+93+100+82";

/* Lengths of unlike sequences, "10+20+30"; 0: none are there. Returns how many characters that is.
 */
static int read_lengths(const char *at, ct_serve_shape *s)
{
    int all = 0, read = 0;
    int64_t n;

    while ((s->batch < CT_BENCH_MAX_BATCH) &&
           (sscanf(at + all, "%8" SCNd64 "%n", &n, &read) == 1)) {
        if (n < 1) return 0;
        s->length[s->batch++] = n;
        if (n > s->tokens) s->tokens = n;
        all += read;
        if (at[all] != '+') break;
        all++;
    }
    s->mixed = (s->batch > 1);
    return s->mixed ? all : 0;
}

/* One shape at the beginning of a list; returns where it ends. NULL: there is none. */
static const char *read_shape(const char *at, ct_serve_shape *s)
{
    int read = 0, more = 0;

    *s = (ct_serve_shape){ 0 };
    if (strncmp(at, "mix20", 5) == 0) return read_lengths(mix20, s) > 0 ? at + 5 : NULL;
    if (at[strspn(at, "0123456789")] == '+') {
        read = read_lengths(at, s);
        return (read > 0) ? at + read : NULL;
    }
    if (sscanf(at, "%8" SCNd64 "x%8" SCNd64 "%n", &s->batch, &s->tokens, &read) != 2) {
        if ((s->batch < 1) || (s->tokens != 0)) return NULL;
        s->tokens = 1;
        (void)sscanf(at, "%8" SCNd64 "%n", &s->batch, &read);
    }
    if ((at[read] == '@') && (sscanf(at + read, "@%8" SCNd64 "%n", &s->cached, &more) == 1) &&
        (s->cached < 1))
        return NULL;
    return ((s->batch >= 1) && (s->tokens >= 1)) ? at + read + more : NULL;
}

ct_status ct_bench_shapes(const char *list, ct_serve_bench *plan)
{
    plan->n_shape = 0;
    for (const char *at = list;; at++) {
        ct_serve_shape s;

        at = read_shape(at, &s);
        if ((at == NULL) || ((*at != ',') && (*at != '\0')) ||
            (plan->n_shape + 1 + s.mixed > CT_BENCH_MAX_BATCH))
            return CT_FAIL(CT_ERR_CONFIG,
                           "--shapes=%s: expected up to %d of SEQUENCESxTOKENS, such as "
                           "1x10,20x40, or SEQUENCESxTOKENS@CACHED, such as 8x1@128, or TOKENS of "
                           "each, such as 10+20+30 or mix20, which count twice, or PICTURES, such "
                           "as 1,8",
                           list, CT_BENCH_MAX_BATCH);
        plan->shape[plan->n_shape++] = s;
        s.padded = true;
        if (s.mixed) plan->shape[plan->n_shape++] = s;
        if (*at == '\0') return CT_OK;
    }
}

/* Tokens of all its sequences; and what they are padded with. */
static int64_t tokens_of(const ct_serve_shape *s)
{
    int64_t n = 0;

    for (int64_t k = 0; s->mixed && (k < s->batch); k++) n += s->length[k];
    return s->mixed ? n : s->batch * s->tokens;
}

static int64_t padding_of(const ct_serve_shape *s)
{
    return s->padded ? s->batch * s->tokens - tokens_of(s) : 0;
}

/* The runs of a shape. */
typedef struct runs {
    double time[MOST], shaping[MOST], hidden[MOST];
} runs;

typedef struct bench {
    ct_deployed *served;
    ct_packed_item *item;
    int32_t *id; /* of a sequence: those in the cache, then those of a run */
    int64_t n_id, n_item;
    int64_t n_filled; /* items of a run */
    ct_divided_net divided;
    runs runs[2];  /* of shapes that take turns */
    int64_t n_run; /* timed ones, of all shapes */
    ct_text scores;
} bench;

/* Sequences of ids that are spread over the table, no two with the same beginning. Padding is a
 * sequence of its own, as in `serve`: no other sees it. */
static void fill(bench *b, const ct_serve_shape *s, bool last)
{
    int64_t ids = ct_packed_net_ids(ct_deployed_net(b->served));

    for (int64_t i = 0; i < b->n_id; i++) b->id[i] = (int32_t)(i * 7919 % ids);
    for (int64_t k = 0; k < s->batch; k++) {
        b->item[k] = (ct_packed_item){ .id = b->id + k * s->tokens,
                                       .n = s->mixed ? s->length[k] : s->tokens };
        if (last || (s->cached > 0)) b->item[k].want = CT_ROWS_LAST;
    }
    b->n_filled = s->batch;
    for (int64_t k = 0; s->padded && (k < s->batch); k++)
        if (s->length[k] < s->tokens)
            b->item[b->n_filled++] = (ct_packed_item){ .id = b->id, .n = s->tokens - s->length[k] };
}

static void close_sequences(bench *b, const ct_serve_shape *s)
{
    for (int64_t k = 0; k < s->batch; k++) {
        ct_packed_sequence_close(b->item[k].sequence);
        b->item[k].sequence = NULL;
    }
}

/* Tokens of a sequence when it begins again. */
static int64_t length_of(const bench *b, const ct_serve_shape *s)
{
    int64_t most = s->cached + MOST_STEPS * s->tokens;
    int64_t room = ct_packed_net_capacity(ct_deployed_net(b->served));

    return (most < room) ? most : room;
}

/* Sequence k has s->cached tokens, and room for some steps. */
static ct_status begin_sequence(bench *b, const ct_serve_shape *s, int64_t k)
{
    ct_packed_net *net = ct_deployed_net(b->served);
    const int32_t *id = b->id + k;
    ct_packed_sequence *q;
    int64_t kept = 0;

    CT_TRY(ct_packed_sequence_open(net, id, s->cached, length_of(b, s), &q, &kept));
    if (q == NULL) return CT_FAIL(CT_ERR_ARG, "no room for %" PRId64 " sequences", s->batch);
    b->item[k].sequence = q;
    for (int64_t at = kept, n; at < s->cached; at += n) {
        ct_packed_item part = { .id = id + at, .sequence = q, .want = CT_ROWS_NONE };

        n = part.n = (s->cached - at < ct_packed_net_most_tokens(net))
                         ? s->cached - at
                         : ct_packed_net_most_tokens(net);
        CT_TRY(ct_packed_net_run(net, &part, 1));
    }
    return CT_OK;
}

/* Before a run: sequences that grow have room for it. */
static ct_status make_room(bench *b, const ct_serve_shape *s)
{
    if (s->cached == 0) return CT_OK;
    if ((b->item[0].sequence != NULL) &&
        (ct_packed_sequence_length(b->item[0].sequence) + s->tokens <= length_of(b, s)))
        return CT_OK;
    close_sequences(b, s);
    for (int64_t k = 0; k < s->batch; k++) CT_TRY(begin_sequence(b, s, k));
    return CT_OK;
}

/* One run of another shape, which is shaped again, and one of this; the time of shaping alone. */
static ct_status time_shaping(bench *b, const ct_serve_shape *s, double *seconds_p)
{
    ct_packed_net *net = ct_deployed_net(b->served);
    ct_packed_item one = { .id = b->id, .n = (s->batch * s->tokens > 1) ? 1 : 2 };

    if (one.n > ct_packed_net_longest(net)) one.n = 1;
    CT_TRY(ct_packed_net_shape(net, &one, 1));
    *seconds_p = ct_clock_s();
    CT_TRY(ct_packed_net_shape(net, b->item, b->n_filled));
    *seconds_p = ct_clock_s() - *seconds_p;
    return CT_OK;
}

/* Of the rows of a run: other ranks' nets can be compared by it. */
static double norm_of(const bench *b, const ct_serve_shape *s)
{
    int64_t columns = ct_packed_net_columns(ct_deployed_net(b->served));
    double sum = 0.0;

    for (int64_t k = 0; k < s->batch; k++) {
        const float *row = b->item[k].row;

        for (int64_t i = 0; i < b->item[k].rows * columns; i++)
            sum += (double)row[i] * (double)row[i];
    }
    return sqrt(sum);
}

static void add_rows(ct_text *to, const float *row, int64_t n, int64_t columns)
{
    for (int64_t i = 0; i < n * columns; i++)
        ct_text_add(to, "%.9g%c", row[i], ((i + 1) % columns == 0) ? '\n' : ' ');
}

double ct_bench_hidden(const ct_step *list, int n, int *n_sum_p)
{
    double share = 0.0;

    *n_sum_p = 0;
    for (int i = 0; i < n; i++) {
        double all = 0.0;
        int k = i;

        if ((list[i].kind != CT_STEP_BEGIN) || (list[i].of != CT_PAIR_TRANSFER)) continue;
        while ((list[k].kind != CT_STEP_WAIT) || (list[k].of != CT_PAIR_TRANSFER) ||
               (list[k].pair != list[i].pair))
            all += list[k++].seconds;
        all += list[k].seconds;
        if (all > 0.0) share += 1.0 - (list[i].seconds + list[k].seconds) / all;
        (*n_sum_p)++;
    }
    return (*n_sum_p > 0) ? share / *n_sum_p : 0.0;
}

/* Whether n runs are enough: the ranks of a net make the same runs, so rank 0 says it. */
static ct_status is_over(const ct_serve_bench *plan, int n, double seconds, bool *over_p)
{
    double over = (n >= LEAST) && (seconds > SECONDS) ? 1.0 : 0.0;

    if (plan->repeat > 0) return CT_OK;
    if (plan->parallel != NULL) {
        if (plan->job->rank != 0) over = 0.0;
        CT_TRY(ct_group_sum(&plan->job->group.job, &over, 1));
    }
    *over_p = (over > 0.0);
    return CT_OK;
}

typedef ct_status (*run_fn)(bench *b, const ct_serve_shape *s, double *shaping_p,
                            double *seconds_p);

/* A run of sequences, and the time of shaping. */
static ct_status run_tokens(bench *b, const ct_serve_shape *s, double *shaping_p, double *seconds_p)
{
    ct_packed_net *net = ct_deployed_net(b->served);

    CT_TRY(make_room(b, s));
    CT_TRY(time_shaping(b, s, shaping_p));
    *seconds_p = ct_clock_s();
    CT_TRY(ct_packed_net_run(net, b->item, b->n_filled));
    *seconds_p = ct_clock_s() - *seconds_p;
    return CT_OK;
}

/* The same of pictures: those of another batch come before. */
static ct_status run_pictures(bench *b, const ct_serve_shape *s, double *shaping_p,
                              double *seconds_p)
{
    ct_sample_net *net = ct_deployed_samples(b->served);
    int64_t each = ct_shape_count(ct_sample_net_shape(net), 1, -1);
    float *to;

    CT_TRY(ct_sample_net_begin(net, (s->batch > 1) ? s->batch - 1 : ct_sample_net_most(net), &to));
    *shaping_p = ct_clock_s();
    CT_TRY(ct_sample_net_begin(net, s->batch, &to));
    *shaping_p = ct_clock_s() - *shaping_p;
    for (int64_t i = 0; i < s->batch * each; i++) to[i] = (float)(i % 251) / 251.0f;
    *seconds_p = ct_clock_s();
    CT_TRY(ct_sample_net_run(net));
    *seconds_p = ct_clock_s() - *seconds_p;
    return CT_OK;
}

/* How many numbers a picture has in the rows. */
static int64_t columns_of_pictures(const bench *b)
{
    const char *name;

    return ct_shape_count(ct_sample_net_output(ct_deployed_samples(b->served), 0, &name), 1, -1);
}

static double norm_of_pictures(const bench *b, const ct_serve_shape *s)
{
    int64_t n = s->batch * columns_of_pictures(b);
    const float *row = ct_sample_net_rows(ct_deployed_samples(b->served), 0);
    double sum = 0.0;

    for (int64_t i = 0; i < n; i++) sum += (double)row[i] * (double)row[i];
    return sqrt(sum);
}

static run_fn run_of(const bench *b)
{
    return (ct_deployed_samples(b->served) != NULL) ? run_pictures : run_tokens;
}

static void keep_scores(bench *b, const ct_serve_shape *s)
{
    bool pictures = (ct_deployed_samples(b->served) != NULL);

    if (pictures)
        add_rows(&b->scores, ct_sample_net_rows(ct_deployed_samples(b->served), 0), s->batch,
                 columns_of_pictures(b));
    for (int64_t k = 0; !pictures && (k < s->batch); k++)
        add_rows(&b->scores, b->item[k].row, b->item[k].rows,
                 ct_packed_net_columns(ct_deployed_net(b->served)));
}

/* Run n of the shape, in the trace where one is wanted. */
static ct_status watch_run(bench *b, const ct_serve_bench *plan, ct_serve_row *row, runs *r, int n)
{
    const ct_net *net = ct_deployed_whole(b->served);
    ct_trace *trace = plan->trace->trace;
    double traced;

    ct_trace_begin(trace, b->n_run++);
    traced = ct_trace_start(trace);
    CT_TRY(run_of(b)(b, &row->shape, &r->shaping[n], &r->time[n]));
    ct_trace_end(trace, traced, CT_TRACE_ITERATION, NULL, NULL);
    ct_trace_stop(trace); /* what comes before another shape's runs is none of them */
    r->hidden[n] = ct_bench_hidden(net->forward, net->n_forward, &row->n_sum);
    return CT_OK;
}

/* A run before those that are timed: it packs weights. */
static ct_status begin_shape(bench *b, const ct_serve_bench *plan, ct_serve_row *row)
{
    bool pictures = (ct_deployed_samples(b->served) != NULL);
    const ct_serve_shape *s = &row->shape;

    if (!pictures) fill(b, s, plan->last);
    CT_TRY(run_of(b)(b, s, &b->runs->shaping[0], &b->runs->time[0]));
    row->norm = pictures ? norm_of_pictures(b, s) : norm_of(b, s);
    if (plan->scores != NULL) keep_scores(b, s);
    return CT_OK;
}

static void end_shape(runs *r, int n, ct_serve_row *row)
{
    row->repeats = n;
    row->least_ms = r->time[0];
    for (int i = 1; i < n; i++)
        row->least_ms = (r->time[i] < row->least_ms) ? r->time[i] : row->least_ms;
    row->least_ms *= 1e3;
    row->ms = 1e3 * ct_median(r->time, n);
    row->reshape_us = 1e6 * ct_median(r->shaping, n);
    row->hidden = ct_median(r->hidden, n);
}

/* A shape, or two that take turns: what else the machine does then slows down both. */
static ct_status time_shapes(bench *b, const ct_serve_bench *plan, ct_serve_row *row, int n_shape)
{
    bool pictures = (ct_deployed_samples(b->served) != NULL);
    bool over = false;
    double begin;
    int n = 0;

    for (int k = 0; k < n_shape; k++) CT_TRY(begin_shape(b, plan, &row[k]));
    begin = ct_clock_s();
    while (!over && (n < ((plan->repeat > 0) ? plan->repeat : MOST))) {
        for (int k = 0; k < n_shape; k++) {
            if (n_shape > 1) fill(b, &row[k].shape, plan->last);
            CT_TRY(watch_run(b, plan, &row[k], &b->runs[k], n));
        }
        n++;
        CT_TRY(is_over(plan, n, (ct_clock_s() - begin) / n_shape, &over));
    }
    if (!pictures) close_sequences(b, &row->shape);
    for (int k = 0; k < n_shape; k++) end_shape(&b->runs[k], n, &row[k]);
    return CT_OK;
}

static ct_status check_pictures(const ct_serve_bench *plan)
{
    if (plan->last)
        return CT_FAIL(CT_ERR_CONFIG, "--rows=LAST: \"%s\" is a net of pictures, without tokens",
                       plan->model);
    for (int i = 0; i < plan->n_shape; i++)
        if ((plan->shape[i].tokens != 1) || (plan->shape[i].cached > 0) || plan->shape[i].mixed)
            return CT_FAIL(CT_ERR_CONFIG,
                           "--shapes: %" PRId64 "x%" PRId64 ": \"%s\" is a net of pictures: "
                           "expected how many, such as 1,8",
                           plan->shape[i].batch, plan->shape[i].tokens, plan->model);
    return CT_OK;
}

/* Steps are timed where some are sums, and traced where that is wanted. */
static ct_status watch(const bench *b, const ct_serve_bench *plan)
{
    ct_net *net = ct_deployed_whole(b->served);

    net->timing = (plan->parallel != NULL);
    net->pass->exec.trace = plan->trace->trace;
    return ct_trace_file_reserve_forward(plan->trace, net);
}

/* Room for the largest shape. */
static ct_status prepare(bench *b, const ct_serve_bench *plan)
{
    ct_deployed_options o = { .model = plan->model, .weights = plan->weights, .bf16 = plan->bf16 };
    int64_t length;

    for (int i = 0; i < plan->n_shape; i++) {
        const ct_serve_shape *s = &plan->shape[i];

        if (s->batch * s->tokens > o.most_tokens) o.most_tokens = s->batch * s->tokens;
        if (s->batch * (1 + s->padded) > o.most) o.most = s->batch * (1 + s->padded);
        if (s->cached == 0) continue;
        length = s->cached + MOST_STEPS * s->tokens;
        if (length > o.most_length) o.most_length = length;
        /* in whole pages */
        if (s->batch * (length + PAGE) > o.cached) o.cached = s->batch * (length + PAGE);
    }
    if (o.most_tokens < 2) o.most_tokens = 2;
    b->n_id = o.most_tokens + o.most_length + o.most;
    b->n_item = o.most;
    b->item = calloc((size_t)o.most, sizeof(b->item[0]));
    b->id = calloc((size_t)b->n_id, sizeof(b->id[0]));
    if ((b->item == NULL) || (b->id == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " tokens", o.most_tokens);
    if (plan->parallel != NULL) {
        CT_TRY(ct_divided_net_open(plan->job, plan->parallel, false, &b->divided));
        o.division = &b->divided.served;
    }
    o.most_samples = o.most;
    CT_TRY(ct_deployed_open(&o, &b->served));
    if (ct_deployed_samples(b->served) != NULL)
        CT_TRY(ct_sample_net_check_rows(ct_deployed_samples(b->served)));
    CT_TRY(watch(b, plan));
    if (ct_deployed_samples(b->served) != NULL) return check_pictures(plan);
    for (int i = 0; i < plan->n_shape; i++) {
        const ct_packed_net *net = ct_deployed_net(b->served);
        bool grows = (plan->shape[i].cached > 0);
        int64_t longest = grows ? ct_packed_net_capacity(net) : ct_packed_net_longest(net);

        if (plan->shape[i].tokens + plan->shape[i].cached > longest)
            return CT_FAIL(CT_ERR_CONFIG,
                           "--shapes: %" PRId64 "x%" PRId64 ": sequences of \"%s\" have at most "
                           "%" PRId64 " tokens",
                           plan->shape[i].batch, plan->shape[i].tokens + plan->shape[i].cached,
                           plan->model, longest);
    }
    return CT_OK;
}

/* The steps of rank 0, with what they took in the last run. */
static ct_status write_pass(const bench *b, const ct_serve_bench *plan)
{
    const ct_net *net = ct_deployed_whole(b->served);
    double *seconds = calloc((size_t)net->n_forward + 1, sizeof(*seconds));
    ct_forward_pass pass = { 0 };
    ct_text text = { 0 };
    ct_json_writer w = ct_json_into(&text);
    ct_status status;

    if (seconds == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", net->n_forward);
    for (int i = 0; i < net->n_forward; i++) seconds[i] = net->forward[i].seconds;
    status = ct_forward_pass_of(net, plan->job->size, seconds, &pass);
    if (status == CT_OK) {
        ct_json_begin_object(&w, NULL);
        ct_forward_pass_json(net->name, &pass, &w);
        ct_json_end(&w);
        ct_text_add(&text, "\n");
        status = text.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", plan->pass)
                             : ct_file_write(plan->pass, text.text, text.length);
    }
    ct_text_destroy(&text);
    ct_forward_pass_destroy(&pass);
    free(seconds);
    return status;
}

static ct_status write_scores(const bench *b, const ct_serve_bench *plan)
{
    if (plan->job->rank != 0) return CT_OK;
    if (b->scores.failed) return CT_FAIL(CT_ERR_NOMEM, "no memory for the scores");
    return ct_file_write(plan->scores, b->scores.text, b->scores.length);
}

ct_status ct_bench_serve(const ct_serve_bench *plan, ct_serve_row *row)
{
    bench b = { .served = NULL };
    ct_status status;

    if (plan->repeat > MOST)
        return CT_FAIL(CT_ERR_CONFIG, "--repeat=%d: expected 1 to %d", plan->repeat, MOST);
    status = prepare(&b, plan);
    for (int i = 0; i < plan->n_shape; i++) row[i] = (ct_serve_row){ .shape = plan->shape[i] };
    for (int i = 0, n; (status == CT_OK) && (i < plan->n_shape); i += n) {
        n = 1 + plan->shape[i].mixed;
        status = time_shapes(&b, plan, &row[i], n);
    }
    if (status == CT_OK) status = ct_trace_file_write(plan->trace);
    if ((status == CT_OK) && (plan->scores != NULL)) status = write_scores(&b, plan);
    if ((status == CT_OK) && (plan->pass != NULL) && (plan->job->rank == 0))
        status = write_pass(&b, plan);
    ct_text_destroy(&b.scores);
    for (int64_t k = 0; (b.item != NULL) && (k < b.n_item); k++)
        ct_packed_sequence_close(b.item[k].sequence);
    ct_deployed_close(b.served);
    ct_divided_net_close(&b.divided);
    free(b.item);
    free(b.id);
    return status;
}

void ct_bench_serve_print(const ct_serve_bench *plan, const ct_serve_row *row)
{
    printf("%s, %s, %d threads, medians\n", plan->model, plan->bf16 ? "BF16" : "F32",
           plan->n_thread);
    printf("%8s %8s %8s %8s %10s %10s %12s %12s %8s\n", "batch", "tokens", "cached", "repeats",
           "ms", "least_ms", "tokens_per_s", "reshape_us", "padding");
    for (int i = 0; i < plan->n_shape; i++) {
        const ct_serve_row *r = &row[i];
        char tokens[24];

        snprintf(tokens, sizeof(tokens), "%s%" PRId64, r->shape.mixed ? "<=" : "", r->shape.tokens);
        printf("%8" PRId64 " %8s %8" PRId64 " %8d %10.3f %10.3f %12.0f %12.1f %8" PRId64 "\n",
               r->shape.batch, tokens, r->shape.cached, r->repeats, r->ms, r->least_ms,
               1e3 * (double)tokens_of(&r->shape) / r->ms, r->reshape_us, padding_of(&r->shape));
    }
}

void ct_bench_serve_json(const ct_serve_bench *plan, const ct_serve_row *row, ct_text *out)
{
    for (int i = 0; i < plan->n_shape; i++) {
        const ct_serve_row *r = &row[i];
        ct_json_writer w = ct_json_into(out);

        ct_json_begin_object(&w, NULL);
        ct_json_add_integer(&w, "batch", r->shape.batch);
        ct_json_add_integer(&w, "tokens", r->shape.tokens);
        ct_json_add_integer(&w, "cached", r->shape.cached);
        ct_json_add_decimals(&w, "ms", r->ms, 4);
        ct_json_add_decimals(&w, "least_ms", r->least_ms, 4);
        ct_json_add_integer(&w, "repeats", r->repeats);
        ct_json_add_integer(&w, "threads", plan->n_thread);
        ct_json_add_text(&w, "precision", plan->bf16 ? "BF16" : "F32");
        ct_json_add_decimals(&w, "reshape_us", r->reshape_us, 2);
        ct_json_add_number(&w, "norm", r->norm);
        if (r->shape.mixed) {
            ct_json_add_integer(&w, "all_tokens", tokens_of(&r->shape));
            ct_json_add_integer(&w, "padding", padding_of(&r->shape));
        }
        if (plan->parallel != NULL) {
            ct_json_add_integer(&w, "sums", r->n_sum);
            ct_json_add_decimals(&w, "hidden", r->hidden, 4);
        }
        ct_json_end(&w);
        ct_text_add(out, "\n");
    }
}
