#include "serve/net/image_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/data/class_names.h"

struct ct_image_model {
    ct_sample_net *net;
    ct_pictures *pictures; /* NULL: it takes no files */
    ct_class_names labels;
    char *name;
    ct_served_model served;
    ct_served_blob input, *output; /* names are copies, since nets come and go */
};

static int64_t count_of(const ct_served_blob *b)
{
    int64_t n = 1;

    for (int i = 1; i < b->n_dim; i++) n *= b->dim[i];
    return n;
}

/* ---- batches */

/* Output k of a work with so many samples, the first of which is row `first` of the batch. */
static ct_status copy_rows(const ct_image_model *m, int k, int64_t first, ct_work *w)
{
    const ct_served_blob *b = &m->output[k];
    int64_t each = count_of(b), n = w->input->dim[0];
    float *data = malloc((size_t)(n * each) * sizeof(float));

    if (data == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for an output of %" PRId64 " numbers", n * each);
    memcpy(data, ct_sample_net_rows(m->net, k) + first * each, (size_t)(n * each) * sizeof(float));
    w->output[k] = (ct_served_values){ .n_dim = b->n_dim, .data = data };
    memcpy(w->output[k].dim, b->dim, sizeof(b->dim));
    w->output[k].dim[0] = n;
    return CT_OK;
}

static ct_status infer(void *ctx, ct_work *const *work, int n)
{
    const ct_image_model *m = ctx;
    int64_t each = count_of(&m->input), samples = 0, at = 0;
    float *to;

    for (int i = 0; i < n; i++) samples += work[i]->input->dim[0];
    CT_TRY(ct_sample_net_begin(m->net, samples, &to));
    for (int i = 0; i < n; i++) {
        int64_t values = work[i]->input->dim[0] * each;

        memcpy(to, work[i]->input->data, (size_t)values * sizeof(float));
        to += values;
    }
    CT_TRY(ct_sample_net_run(m->net));
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < m->served.n_output; k++) CT_TRY(copy_rows(m, k, at, work[i]));
        at += work[i]->input->dim[0];
    }
    return CT_OK;
}

static ct_status decode(void *ctx, const char *file, size_t n, float *to, char *why, size_t size)
{
    const ct_image_model *m = ctx;
    ct_why own;
    ct_status status = ct_pictures_read(m->pictures, file, n, to, &own);

    if (status != CT_OK) snprintf(why, size, "%s", own.text);
    return status;
}

/* ---- making */

static ct_status describe_blob(const char *name, const ct_shape *shape, ct_served_blob *b)
{
    if (shape->ndim > CT_SERVED_DIMS)
        return CT_FAIL(CT_ERR_CONFIG, "blob \"%s\" has %d axes, at most %d are served", name,
                       shape->ndim, CT_SERVED_DIMS);
    *b = (ct_served_blob){ .name = strdup(name), .n_dim = shape->ndim };
    if (b->name == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of a model");
    for (int i = 0; i < shape->ndim; i++) b->dim[i] = b->most[i] = shape->dim[i];
    b->dim[0] = -1;
    return CT_OK;
}

/* Numbers of a row, one a class: axis 1, and nothing behind it. 0: they are something else. */
static int64_t count_classes(const ct_served_blob *b)
{
    int64_t n = count_of(b);

    return ((b->n_dim >= 2) && (b->dim[1] == n)) ? n : 0;
}

static ct_status describe(ct_image_model *m)
{
    const ct_net *net = ct_sample_net_of(m->net);
    ct_served_model *s = &m->served;

    CT_TRY(ct_sample_net_check_rows(m->net));
    m->output = calloc((size_t)net->n_output, sizeof(*m->output));
    if (m->output == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a model");
    *s = (ct_served_model){ .name = m->name,
                            .n_input = 1,
                            .input = &m->input,
                            .output = m->output,
                            .ctx = m,
                            .infer = infer };
    CT_TRY(describe_blob(ct_sample_net_input(m->net), ct_sample_net_shape(m->net), &m->input));
    for (; s->n_output < net->n_output; s->n_output++) {
        const char *name;
        const ct_shape *shape = ct_sample_net_output(m->net, s->n_output, &name);

        CT_TRY(describe_blob(name, shape, &m->output[s->n_output]));
    }
    if ((m->pictures == NULL) || (count_classes(&m->output[0]) == 0)) return CT_OK;
    s->n_class = count_classes(&m->output[0]);
    s->is_probability = ct_sample_net_is_softmax(m->net, 0);
    s->decode = decode;
    return CT_OK;
}

/* Those that the net's file has. */
static ct_status take_own_names(ct_image_model *m)
{
    const ct_net *net = ct_sample_net_of(m->net);

    if ((net->n_class_name == 0) || (m->served.n_class == 0)) return CT_OK;
    if (net->n_class_name != m->served.n_class)
        return CT_FAIL(CT_ERR_CONFIG,
                       "net \"%s\" has %" PRId64 " class_name, expected %" PRId64
                       ", one for each class",
                       net->name, net->n_class_name, m->served.n_class);
    CT_TRY(ct_class_names_copy(net->class_name, net->n_class_name, &m->labels));
    m->served.label = m->labels.name;
    return CT_OK;
}

static ct_status take_labels(ct_image_model *m, const char *path, const char *place)
{
    if (path == NULL) return take_own_names(m);
    if (m->served.n_class == 0)
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s=%s: net \"%s\" has no number for each class of a picture, so no names",
                       place, path, m->name);
    CT_TRY(ct_class_names_read(path, place, m->served.n_class, &m->labels));
    m->served.label = m->labels.name;
    return CT_OK;
}

ct_status ct_image_model_create(ct_sample_net *net, ct_pictures *pictures, const char *name,
                                const char *labels, const char *place, ct_image_model **m_p)
{
    ct_image_model *m = calloc(1, sizeof(*m));
    ct_status status;

    if (m == NULL) {
        ct_pictures_destroy(pictures);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a model");
    }
    m->net = net;
    m->pictures = pictures;
    m->name = strdup(name);
    status = (m->name != NULL) ? describe(m) : CT_FAIL(CT_ERR_NOMEM, "no memory for a model");
    if (status == CT_OK) status = take_labels(m, labels, place);
    if (status != CT_OK) {
        ct_image_model_destroy(m);
        return status;
    }
    *m_p = m;
    return CT_OK;
}

/* What clients have been told stays so. */
static ct_status check_blob(const char *name, const ct_shape *shape, const ct_served_blob *own)
{
    bool same = (strcmp(name, own->name) == 0) && (shape->ndim == own->n_dim);

    for (int i = 0; same && (i < own->n_dim); i++) same = (shape->dim[i] == own->most[i]);
    if (same) return CT_OK;
    return CT_FAIL(CT_ERR_CONFIG,
                   "the net has \"%s\" of shape %s, another blob than \"%s\" in the one that was "
                   "opened first",
                   name, ct_shape_str(shape).text, own->name);
}

ct_status ct_image_model_accepts(const ct_image_model *m, const ct_sample_net *net)
{
    int n = ct_sample_net_of(net)->n_output;

    if (n != m->served.n_output)
        return CT_FAIL(CT_ERR_CONFIG,
                       "the net has %d outputs, and %d the one that was opened first", n,
                       m->served.n_output);
    CT_TRY(check_blob(ct_sample_net_input(net), ct_sample_net_shape(net), &m->input));
    for (int k = 0; k < n; k++) {
        const char *name;
        const ct_shape *shape = ct_sample_net_output(net, k, &name);

        CT_TRY(check_blob(name, shape, &m->output[k]));
    }
    if (ct_sample_net_is_softmax(net, 0) != m->served.is_probability)
        return CT_FAIL(CT_ERR_CONFIG,
                       "the net ends %s a Softmax, other than the one that was "
                       "opened first",
                       m->served.is_probability ? "without" : "with");
    return CT_OK;
}

void ct_image_model_swap(ct_image_model *m, ct_sample_net *net)
{
    m->net = net;
}

void ct_image_model_destroy(ct_image_model *m)
{
    if (m == NULL) return;
    for (int k = 0; (m->output != NULL) && (k < m->served.n_output); k++)
        free((char *)(uintptr_t)m->output[k].name);
    free((char *)(uintptr_t)m->input.name);
    free(m->output);
    ct_class_names_release(&m->labels);
    ct_pictures_destroy(m->pictures);
    free(m->name);
    free(m);
}

const ct_served_model *ct_image_model_served(const ct_image_model *m)
{
    return &m->served;
}

/* ---- costs */

static ct_status time_batch(const ct_image_model *m, int64_t n, double *s_p)
{
    double start = ct_clock_s();
    float *to;

    CT_TRY(ct_sample_net_begin(m->net, n, &to));
    memset(to, 0, (size_t)(n * count_of(&m->input)) * sizeof(float));
    CT_TRY(ct_sample_net_run(m->net));
    *s_p = ct_clock_s() - start;
    return CT_OK;
}

/* One picture at least, more while there is time; then all of them again, once at least: of each
 * its shortest, since what else runs on the machine only adds. */
ct_status ct_image_model_measure(ct_image_model *m, double limit_s, ct_batch_cost *cost)
{
    int64_t most = ct_sample_net_most(m->net), size[CT_BATCH_COST_POINTS];
    double s[CT_BATCH_COST_POINTS], start, once;
    int n = 0;

    CT_TRY(time_batch(m, 1, &once)); /* packs weights, touches memory */
    start = ct_clock_s();
    for (int64_t k = 1; (n < CT_BATCH_COST_POINTS) && (k <= most); k *= 2) {
        if ((n > 0) && !ct_batch_cost_has_time(ct_clock_s() - start, s[n - 1], limit_s)) break;
        size[n] = k;
        CT_TRY(time_batch(m, k, &s[n]));
        n++;
    }
    for (int round = 1; (round < 5) && ((round == 1) || (ct_clock_s() - start < limit_s));
         round++) {
        for (int k = 0; k < n; k++) {
            CT_TRY(time_batch(m, size[k], &once));
            s[k] = fmin(s[k], once);
        }
    }
    return ct_batch_cost_init(cost, n, size, s);
}
