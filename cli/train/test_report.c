#include "cli/train/test_report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/json_writer.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/reader.h"
#include "framework/net/graph.h"
#include "framework/report/report.h"

enum { BINS = 10, WORST = 20, MISTAKE = 4 /* numbers of one */ };

/* Sums of all ranks, one behind the other. */
typedef struct sums {
    double *all;
    int64_t n;
    double *confusion;                      /* [true][predicted]   */
    double *samples, *confidence, *correct; /* of a bin            */
    double *loss, *odd;                     /* odd: labels that are no class */
    double *mistake; /* [rank][WORST][MISTAKE]: probability, sample, true, predicted */
} sums;

struct ct_test_report {
    const ct_config *config;
    const char *scores, *labels; /* blobs */
    bool is_probability;
    int crops;                      /* of a sample; 0: one          */
    const char *option;             /* that asks for it, in messages */
    const Ct__LayerParameter *data; /* what reads the set; NULL: it has no names */
    int64_t n_class, n_sample;
    int rank, n_rank, n_own; /* n_own: mistakes of this rank that are kept */
    sums sum;
    float *score, *label; /* of a batch, on the host */
    double *mean;         /* … probabilities, over its crops */
};

/* ---- what the net says of classes */

static bool is_type(const Ct__LayerParameter *l, const char *type)
{
    return strcmp(l->type, type) == 0;
}

static bool in_test(const Ct__NetParameter *net, const Ct__LayerParameter *l)
{
    ct_net_options o = { .phase = CT_TEST };

    return ct_graph_includes(net, &o, l);
}

bool ct_test_report_is_of_text(const Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (in_test(net, l) && (is_type(l, "TokenData") || is_type(l, "TextData"))) return true;
    }
    return false;
}

static void find_blobs(ct_test_report *r, const Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (!in_test(net, l)) continue;
        if ((l->n_bottom == 0) && (is_type(l, "Data") || is_type(l, "ImageData"))) r->data = l;
        if ((l->n_bottom < 2) || (!is_type(l, "Accuracy") && !is_type(l, "SoftmaxWithLoss")))
            continue;
        r->scores = l->bottom[0];
        r->labels = l->bottom[1];
    }
    for (size_t i = 0; (r->scores != NULL) && (i < net->n_layer); i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if ((l->n_top > 0) && (strcmp(l->top[0], r->scores) == 0) && in_test(net, l))
            r->is_probability = is_type(l, "Softmax");
    }
}

/* What the net reads comes in crops, or has none of its own to come in step with them. */
static ct_status check_crops(const ct_test_report *r, const ct_config *c)
{
    if (r->crops == 0) return CT_OK;
    for (size_t i = 0; i < c->net->n_layer; i++) {
        const Ct__LayerParameter *l = c->net->layer[i];
        const ct_layer_ops *ops;

        if ((l->n_bottom > 0) || (l->n_top == 0) || !in_test(c->net, l)) continue;
        ops = ct_layer_find(l->type);
        if ((ops == NULL) || !ops->is_data) continue;
        if (!is_type(l, "Data") && !is_type(l, "ImageData") && !is_type(l, "HDF5Data"))
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: --crops=%d takes crops of what Data, ImageData and HDF5Data read, "
                           "and layer \"%s\" is of type %s",
                           c->file, r->crops, l->name, l->type);
    }
    return CT_OK;
}

ct_status ct_test_report_check_options(const ct_call *call, const char *option)
{
    static const char *const without[] = { "iterations", "metrics", "parallel" };

    for (size_t i = 0; i < sizeof(without) / sizeof(without[0]); i++)
        if (ct_options_text(call->options, without[i]) != NULL)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s counts each sample of the test set once, and is all that is "
                           "written: leave out --%s",
                           option, without[i]);
    return CT_OK;
}

ct_status ct_test_report_create(const ct_call *call, ct_config *c, int crops, ct_test_report **r_p)
{
    const char *option =
        (ct_options_text(call->options, "report") != NULL) ? "--report" : "--crops";
    ct_test_report *r;

    CT_TRY(ct_test_report_check_options(call, option));
    r = calloc(1, sizeof(*r));
    if (r == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a report");
    *r_p = r;
    r->config = c;
    r->crops = crops;
    r->option = option;
    CT_TRY(check_crops(r, c));
    find_blobs(r, c->net);
    if (r->scores == NULL)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: %s needs the scores and labels of an Accuracy or a SoftmaxWithLoss%s "
                       "in phase TEST, and the net has none",
                       c->file, option, (crops == 0) ? ", or a DetectionEvaluate," : "");
    CT_TRY(ct_value_reader_add(c->net, 0, r->scores));
    return ct_value_reader_add(c->net, 1, r->labels);
}

void ct_test_report_destroy(ct_test_report *r)
{
    if (r == NULL) return;
    free(r->sum.all);
    free(r->score);
    free(r->label);
    free(r->mean);
    free(r);
}

/* ---- counting */

static ct_status make_room(ct_test_report *r, const ct_net *net)
{
    const ct_shape *s = &ct_value_reader_blob(net, 0)->data.shape,
                   *l = &ct_value_reader_blob(net, 1)->data.shape;
    sums *u = &r->sum;

    r->n_class = (s->ndim >= 2) ? s->dim[1] : 0;
    r->n_sample = net->n_sample;
    if ((s->ndim < 2) || (ct_shape_count(s, 2, -1) != 1) || (ct_shape_count(l, 0, -1) != s->dim[0]))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: scores \"%s\" %s and labels \"%s\" %s: expected a number for each "
                       "class and one label of each sample",
                       r->option, r->scores, ct_shape_str(s).text, r->labels, ct_shape_str(l).text);
    if ((net->n_class_name > 0) && (net->n_class_name != r->n_class))
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: the net has %" PRId64 " class_name, expected %" PRId64
                       ", one for each class",
                       r->option, net->n_class_name, r->n_class);
    if (r->n_sample < 1)
        return CT_FAIL(CT_ERR_CONFIG, "%s: the net reads no set that has an end", r->option);
    u->n = r->n_class * r->n_class + 3 * BINS + 2 + (int64_t)r->n_rank * WORST * MISTAKE;
    u->all = calloc((size_t)u->n, sizeof(u->all[0]));
    r->score = malloc((size_t)ct_shape_count(s, 0, -1) * sizeof(float) + 1);
    r->label = malloc((size_t)ct_shape_count(l, 0, -1) * sizeof(float) + 1);
    r->mean = malloc((size_t)ct_shape_count(s, 0, -1) * sizeof(double) + 1);
    if ((u->all == NULL) || (r->score == NULL) || (r->label == NULL) || (r->mean == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a report of %" PRId64 " classes", r->n_class);
    u->confusion = u->all;
    u->samples = u->confusion + r->n_class * r->n_class;
    u->confidence = u->samples + BINS;
    u->correct = u->confidence + BINS;
    u->loss = u->correct + BINS;
    u->odd = u->loss + 1;
    u->mistake = u->odd + 1;
    return CT_OK;
}

/* Keeps the surest of this rank. */
static void keep_mistake(ct_test_report *r, double probability, int64_t sample, int64_t is,
                         int64_t said)
{
    double *own = r->sum.mistake + (int64_t)r->rank * WORST * MISTAKE, *to = own;

    if (r->n_own < WORST) {
        to = own + (int64_t)r->n_own++ * MISTAKE;
    } else {
        for (int i = 1; i < WORST; i++)
            if (own[i * MISTAKE] < to[0]) to = own + (int64_t)i * MISTAKE;
        if (to[0] >= probability) return;
    }
    to[0] = probability;
    to[1] = (double)sample;
    to[2] = (double)is;
    to[3] = (double)said;
}

/* The probability of class c. */
static double probability_of(const ct_test_report *r, const float *score, int64_t best, int64_t c)
{
    double sum = 0.0;

    if (r->is_probability || (r->crops > 0)) return (double)score[c];
    for (int64_t k = 0; k < r->n_class; k++) sum += exp((double)score[k] - (double)score[best]);
    return exp((double)score[c] - (double)score[best]) / sum;
}

static void count(ct_test_report *r, const float *score, float label, int64_t sample)
{
    int64_t best = 0, is = (int64_t)label;
    double p;
    int bin;

    if ((label < 0.0f) || (is >= r->n_class)) {
        *r->sum.odd += 1.0;
        return;
    }
    for (int64_t c = 1; c < r->n_class; c++)
        if (score[c] > score[best]) best = c;
    p = probability_of(r, score, best, best);
    bin = (p >= 1.0) ? BINS - 1 : (int)(p * BINS);
    r->sum.confusion[is * r->n_class + best] += 1.0;
    r->sum.samples[bin] += 1.0;
    r->sum.confidence[bin] += p;
    r->sum.correct[bin] += (best == is) ? 1.0 : 0.0;
    *r->sum.loss -= log(fmax(probability_of(r, score, best, is), 1e-38));
    if (best != is) keep_mistake(r, p, sample, is, best);
}

/* The scores of one crop of a batch, and its labels, to the host. */
static ct_status run_crop(ct_test_report *r, ct_net *net, int64_t step)
{
    ct_exec *ex = &net->pass->exec;
    const ct_tensor *s = &ct_value_reader_blob(net, 0)->data,
                    *l = &ct_value_reader_blob(net, 1)->data;

    ex->micro_step = step;
    CT_TRY(ct_pass_forward(net->pass, NULL));
    CT_TRY(ex->dev->to_host(ex->stream, r->score, s->data,
                            (size_t)ct_tensor_count(s) * sizeof(float)));
    return ex->dev->to_host(ex->stream, r->label, l->data,
                            (size_t)ct_tensor_count(l) * sizeof(float));
}

/* A row of scores becomes one of probabilities. */
static void add_probabilities(const ct_test_report *r, const float *score, double *mean)
{
    int64_t best = 0;
    double sum = 0.0;

    for (int64_t c = 1; c < r->n_class; c++)
        if (score[c] > score[best]) best = c;
    for (int64_t c = 0; c < r->n_class; c++) sum += exp((double)score[c] - (double)score[best]);
    for (int64_t c = 0; c < r->n_class; c++)
        mean[c] += r->is_probability ? (double)score[c]
                                     : exp((double)score[c] - (double)score[best]) / sum;
}

/* Of several crops the scores become the mean of their probabilities. */
static ct_status run_batch(ct_test_report *r, ct_net *net, int64_t batch)
{
    int64_t n = ct_tensor_count(&ct_value_reader_blob(net, 1)->data);

    if (r->crops < 1) return run_crop(r, net, batch);
    memset(r->mean, 0, (size_t)(n * r->n_class) * sizeof(double));
    for (int k = 0; k < r->crops; k++) {
        CT_TRY(run_crop(r, net, batch * r->crops + k));
        for (int64_t i = 0; i < n; i++)
            add_probabilities(r, r->score + i * r->n_class, r->mean + i * r->n_class);
    }
    for (int64_t i = 0; i < n * r->n_class; i++) r->score[i] = (float)(r->mean[i] / r->crops);
    return CT_OK;
}

static ct_status count_batch(ct_test_report *r, ct_net *net, int64_t batch)
{
    int64_t first = batch * net->batch_global + net->batch_first;

    CT_TRY(run_batch(r, net, batch));
    for (int64_t i = 0; i < ct_tensor_count(&ct_value_reader_blob(net, 1)->data); i++)
        if (first + i < r->n_sample) count(r, r->score + i * r->n_class, r->label[i], first + i);
    return CT_OK;
}

ct_status ct_test_report_run(ct_test_report *r, const ct_call *call, ct_net *net)
{
    const ct_group *g = &call->job->group.data;
    int64_t n_batch;

    r->rank = g->rank;
    r->n_rank = g->size;
    CT_TRY(make_room(r, net));
    n_batch = (r->n_sample + net->batch_global - 1) / net->batch_global;
    CT_INFO("Running over %" PRId64 " samples, %d crops of each.", r->n_sample,
            (r->crops > 0) ? r->crops : 1);
    ct_exec_fill(call, net, &net->pass->exec);
    for (int64_t batch = 0; batch < n_batch; batch++) CT_TRY(count_batch(r, net, batch));
    for (int64_t at = 0; at < r->sum.n; at += INT32_MAX / 2) {
        int64_t left = r->sum.n - at;

        CT_TRY(
            ct_group_sum(g, r->sum.all + at, (int)(left < INT32_MAX / 2 ? left : INT32_MAX / 2)));
    }
    if (*r->sum.odd > 0.0) CT_WARN("%.0f labels are of no class and do not count", *r->sum.odd);
    return CT_OK;
}

/* ---- writing */

static double ratio(double a, double b)
{
    return (b > 0.0) ? a / b : 0.0;
}

static double row_sum(const ct_test_report *r, int64_t row)
{
    double sum = 0.0;

    for (int64_t c = 0; c < r->n_class; c++) sum += r->sum.confusion[row * r->n_class + c];
    return sum;
}

static double column_sum(const ct_test_report *r, int64_t column)
{
    double sum = 0.0;

    for (int64_t c = 0; c < r->n_class; c++) sum += r->sum.confusion[c * r->n_class + column];
    return sum;
}

static void add_class(const char *key, const ct_test_report *r, int64_t c, ct_json_writer *w)
{
    const Ct__NetParameter *net = r->config->net;
    char number[24];

    snprintf(number, sizeof(number), "%" PRId64, c);
    ct_json_add_text(w, key, (net->n_class_name > 0) ? net->class_name[c] : number);
}

/* Of each class its share among the predicted ones, or among the true ones. */
static void add_scores(const ct_test_report *r, const char *name,
                       double (*of)(const ct_test_report *r, int64_t c), ct_json_writer *w)
{
    ct_json_break(w);
    ct_json_begin_list(w, name);
    for (int64_t c = 0; c < r->n_class; c++)
        ct_json_add_digits(w, NULL, ratio(r->sum.confusion[c * r->n_class + c], of(r, c)), 17);
    ct_json_end(w);
}

static void add_confusion(const ct_test_report *r, ct_json_writer *w)
{
    ct_json_break(w);
    ct_json_begin_list(w, "confusion");
    for (int64_t a = 0; a < r->n_class; a++) {
        ct_json_break(w);
        ct_json_begin_list(w, NULL);
        for (int64_t b = 0; b < r->n_class; b++)
            ct_json_add_decimals(w, NULL, r->sum.confusion[a * r->n_class + b], 0);
        ct_json_end(w);
    }
    ct_json_end(w);
}

static void add_calibration(const ct_test_report *r, double samples, ct_json_writer *w)
{
    const sums *u = &r->sum;
    double error = 0.0;

    for (int b = 0; b < BINS; b++) error += ratio(fabs(u->confidence[b] - u->correct[b]), samples);
    ct_json_break(w);
    ct_json_begin_object(w, "calibration");
    ct_json_add_digits(w, "error", error, 17);
    ct_json_begin_list(w, "bins");
    for (int b = 0; b < BINS; b++) {
        ct_json_break(w);
        ct_json_begin_object(w, NULL);
        ct_json_add_decimals(w, "from", (double)b / BINS, 1);
        ct_json_add_decimals(w, "to", (double)(b + 1) / BINS, 1);
        ct_json_add_decimals(w, "samples", u->samples[b], 0);
        ct_json_add_number(w, "probability", ratio(u->confidence[b], u->samples[b]));
        ct_json_add_number(w, "accuracy", ratio(u->correct[b], u->samples[b]));
        ct_json_end(w);
    }
    ct_json_end(w);
    ct_json_end(w);
}

/* ---- the surest mistakes, with the names that the set has for them */

static int by_probability(const void *a, const void *b)
{
    const double *x = a, *y = b;

    if (x[0] != y[0]) return (x[0] < y[0]) ? 1 : -1;
    return (x[1] > y[1]) - (x[1] < y[1]);
}

static ct_status open_names(const ct_test_report *r, ct_reader **names_p)
{
    const Ct__LayerParameter *l = r->data;
    const Ct__DataParameter *data;
    const Ct__ImageDataParameter *images;
    ct_reader_options o = { .who = "--report", .n_field = 2 };

    *names_p = NULL;
    if (l == NULL) return CT_OK;
    data = is_type(l, "Data") ? l->data_param : NULL;
    images = is_type(l, "ImageData") ? l->image_data_param : NULL;
    if ((data != NULL) && !(data->has_shuffle && data->shuffle)) {
        o.source = data->source;
        return ct_reader_open("lmdb", &o, names_p);
    }
    if ((images == NULL) || images->shuffle) return CT_OK;
    o.source = images->source;
    o.root_folder = images->root_folder;
    return ct_reader_open("images", &o, names_p);
}

/* Of a key "00000007_sea/1.jpg", as conversions make them, the file. */
static const char *file_of(const char *name)
{
    size_t n = strspn(name, "0123456789");

    return ((n > 0) && (name[n] == '_')) ? name + n + 1 : name;
}

static void add_mistake(const ct_test_report *r, const ct_reader *names, const double *m,
                        ct_json_writer *w)
{
    char name[512] = "";

    if ((names != NULL) && ((int64_t)m[1] < names->count))
        ct_reader_name(names, (int64_t)m[1], name, sizeof(name));
    ct_json_begin_object(w, NULL);
    ct_json_add_text(w, "file", (name[0] != '\0') ? file_of(name) : NULL);
    ct_json_add_decimals(w, "sample", m[1], 0);
    add_class("true", r, (int64_t)m[2], w);
    add_class("predicted", r, (int64_t)m[3], w);
    ct_json_add_number(w, "probability", m[0]);
    ct_json_end(w);
}

static ct_status add_worst(const ct_test_report *r, ct_json_writer *w)
{
    ct_reader *names;
    int n = 0;

    CT_TRY(open_names(r, &names));
    qsort(r->sum.mistake, (size_t)r->n_rank * WORST, MISTAKE * sizeof(double), by_probability);
    ct_json_break(w);
    ct_json_begin_list(w, "worst");
    for (; (n < WORST) && (r->sum.mistake[(int64_t)n * MISTAKE] > 0.0); n++) {
        ct_json_break(w);
        add_mistake(r, names, r->sum.mistake + (int64_t)n * MISTAKE, w);
    }
    ct_json_end(w);
    ct_reader_close(names);
    return CT_OK;
}

ct_status ct_test_report_write_text(const char *path, int64_t samples, double loss,
                                    const ct_text_size *text)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);
    ct_status status;

    ct_json_begin_object(&w, NULL);
    ct_json_add_integer(&w, "samples", samples);
    ct_json_add_number(&w, "loss", loss);
    ct_json_add_number(&w, "perplexity", exp(loss));
    if (text->bytes > 0.0) {
        ct_json_add_decimals(&w, "tokens", text->tokens, 0);
        ct_json_add_decimals(&w, "bytes", text->bytes, 0);
        ct_json_add_number(&w, "bits_per_byte", ct_report_bits_per_byte(loss, text));
    }
    ct_json_end(&w);
    ct_text_add(&t, "\n");
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                      : ct_file_write(path, t.text, t.length);
    ct_text_destroy(&t);
    return status;
}

static ct_status write_classes(const ct_test_report *r, double samples, double right,
                               const char *path)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);
    ct_status status;

    ct_json_begin_object(&w, NULL);
    ct_json_begin_list(&w, "classes");
    for (int64_t c = 0; c < r->n_class; c++) add_class(NULL, r, c, &w);
    ct_json_end(&w);
    ct_json_break(&w);
    ct_json_add_decimals(&w, "samples", samples, 0);
    if (r->crops > 0) ct_json_add_integer(&w, "crops", r->crops);
    ct_json_add_digits(&w, "accuracy", ratio(right, samples), 17);
    ct_json_add_number(&w, "loss", ratio(*r->sum.loss, samples));
    add_confusion(r, &w);
    add_scores(r, "precision", column_sum, &w);
    add_scores(r, "recall", row_sum, &w);
    add_calibration(r, samples, &w);
    status = add_worst(r, &w);
    ct_json_end(&w);
    ct_text_add(&t, "\n");
    if ((status == CT_OK) && t.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path);
    if (status == CT_OK) status = ct_file_write(path, t.text, t.length);
    ct_text_destroy(&t);
    return status;
}

ct_status ct_test_report_write(const ct_test_report *r, const char *path)
{
    double samples = 0.0, right = 0.0;

    for (int64_t c = 0; c < r->n_class; c++) {
        samples += row_sum(r, c);
        right += r->sum.confusion[c * r->n_class + c];
    }
    if (path != NULL) CT_TRY(write_classes(r, samples, right, path));
    printf("accuracy = %g\nloss = %g\n", ratio(right, samples), ratio(*r->sum.loss, samples));
    CT_INFO("%.0f of %.0f samples are right%s%s", right, samples, (path != NULL) ? ": " : "",
            (path != NULL) ? path : "");
    if ((fflush(stdout) == 0) && !ferror(stdout)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write the result to standard output: %s", strerror(errno));
}
