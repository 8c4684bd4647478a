#include "cli/report/examples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report/box_example.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/data/net_set.h"
#include "framework/proto/upgrade.h"
#include "framework/snapshot/snapshot.h"
#include "runtime/run_folder.h"
#include "serve/net/sample_net.h"

enum { MOST_TILES = 64, SEEN = 48 /* pixels that a small tile has at least */ };

typedef struct work {
    const ct_run_data *run;
    ct_examples *e;
    Ct__NetParameter *tested; /* of the run, with its data layers */
    ct_net_set set;
    ct_sample_net *net;
    int output;                            /* of the net: a row of classes, or boxes */
    const char *conv[CT_MOST_ACTIVATIONS]; /* tops of the first convolutions */
    int n_conv;
} work;

static void say(ct_examples *e, const char *fmt, const char *what)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s%s", fmt, what);
    snprintf(e->why, sizeof(e->why), "%s", (t.text != NULL) ? t.text : fmt);
    ct_text_destroy(&t);
}

/* ---- files of the run */

static ct_status read_net(const ct_run_data *r, const char *name, Ct__NetParameter **net_p)
{
    ct_text path = { 0 };
    ct_status status = CT_OK;

    *net_p = NULL;
    ct_text_add(&path, "%s/%s", r->path, name);
    if (path.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", r->path);
    if ((status == CT_OK) && (access(path.text, R_OK) == 0))
        status = ct_net_read(path.text, NULL, net_p);
    ct_text_destroy(&path);
    return status;
}

/* ---- the net for use, which keeps what its first convolutions put out */

static ct_status keep_activations(work *w)
{
    Ct__NetParameter *net = w->e->net;
    size_t n = net->n_layer;

    for (size_t i = 0; (i < n) && (w->n_conv < CT_MOST_ACTIVATIONS); i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if ((strcmp(l->type, "Convolution") != 0) || (l->n_top != 1)) continue;
        CT_TRY(ct_value_reader_add(net, w->n_conv, l->top[0]));
        w->conv[w->n_conv++] = l->top[0];
    }
    return CT_OK;
}

/* The first output of boxes; without any the first with a number for each of several classes. */
static bool find_output(work *w)
{
    const ct_net *net = ct_sample_net_of(w->net);

    for (w->output = 0; w->output < net->n_output; w->output++) {
        w->e->has_boxes = (ct_sample_net_boxes(w->net, w->output) != NULL);
        if (w->e->has_boxes) return true;
    }
    for (w->output = 0; w->output < net->n_output; w->output++) {
        const char *name;
        const ct_shape *s = ct_sample_net_output(w->net, w->output, &name);

        if ((s->ndim >= 2) && (s->dim[1] > 1) && (ct_shape_count(s, 2, -1) == 1)) return true;
    }
    return false;
}

static ct_status open_net(work *w)
{
    ct_net_options options = { .phase = CT_TEST, .env = { .n_rank = 1, .seed = 1 } };
    char *weights = NULL;
    ct_status status = ct_run_folder_weights(w->run->path, &weights);

    if ((status == CT_OK) && (weights == NULL)) say(w->e, "no complete snapshot in snapshots/", "");
    if ((status == CT_OK) && (weights != NULL)) {
        status = keep_activations(w);
        if (status == CT_OK) status = ct_sample_net_create(w->e->net, &options, 1, &w->net);
        if (status == CT_OK) status = ct_weights_load_list(weights, ct_sample_net_of(w->net));
        snprintf(w->e->weights, sizeof(w->e->weights), "%s", ct_path_base(weights));
        if ((status == CT_OK) && !find_output(w))
            say(w->e, "the net puts out neither classes nor boxes", "");
    }
    free(weights);
    return status;
}

/* ---- pictures */

/* Tiles so small that nobody sees them are drawn larger. */
static int zoom_of(int64_t height)
{
    return (height < SEEN) ? (int)((SEEN + height - 1) / height) : 1;
}

/* The sample as the set has it, where that is a picture. */
static ct_status draw_sample(const ct_sample *s, ct_text *png)
{
    int64_t n = ct_shape_count(&s->shape, 0, -1);
    ct_tiles t = { .n = 1 };
    float *value;
    ct_status status;

    if ((s->shape.ndim != 3) || ((s->shape.dim[0] != 1) && (s->shape.dim[0] != 3))) return CT_OK;
    value = malloc((size_t)n * sizeof(*value) + 1);
    if (value == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a picture");
    for (int64_t i = 0; i < n; i++) value[i] = (s->u8 != NULL) ? (float)s->u8[i] : s->f32[i];
    t.channels = (int)s->shape.dim[0];
    t.height = s->shape.dim[1];
    t.width = s->shape.dim[2];
    t.value = value;
    if (s->u8 != NULL) t.high = 255.0;
    status = ct_tiles_png(&t, png);
    free(value);
    return status;
}

static ct_status draw_filters(const work *w)
{
    const ct_net *net = ct_sample_net_of(w->net);
    ct_inside *to = &w->e->filters;

    for (int i = 0; i < net->n_param; i++) {
        const ct_param *p = &net->param[i];
        const ct_shape *s = &p->blob.data.shape;
        ct_tiles t = { .channels = 1 };

        if ((p->index != 0) || (s->ndim != 4) || ((s->dim[1] != 1) && (s->dim[1] != 3)) ||
            (ct_blob_data(&p->blob) == NULL))
            continue;
        t.n = (s->dim[0] < MOST_TILES) ? s->dim[0] : MOST_TILES;
        t.channels = (int)s->dim[1];
        t.height = s->dim[2];
        t.width = s->dim[3];
        t.value = ct_blob_data(&p->blob);
        t.zoom = zoom_of(t.height);
        t.columns = 16;
        snprintf(to->title, sizeof(to->title), "%lld of %lld filters of \"%.150s\", %lld x %lld",
                 (long long)t.n, (long long)s->dim[0], p->layer, (long long)t.height,
                 (long long)t.width);
        return ct_tiles_png(&t, &to->picture);
    }
    return CT_OK;
}

static ct_status draw_activations(const work *w)
{
    const ct_net *net = ct_sample_net_of(w->net);

    for (int k = 0; k < w->n_conv; k++) {
        ct_inside *to = &w->e->activation[k];
        const ct_shape *s;
        ct_tiles t = { .channels = 1, .columns = 8 };

        s = &ct_value_reader_blob(net, k)->data.shape;
        if (s->ndim != 4) continue;
        t.n = (s->dim[1] < MOST_TILES) ? s->dim[1] : MOST_TILES;
        t.height = s->dim[2];
        t.width = s->dim[3];
        t.value = ct_blob_data(ct_value_reader_blob(net, k));
        t.zoom = zoom_of(t.height);
        snprintf(to->title, sizeof(to->title), "%lld of %lld channels of \"%.150s\", %lld x %lld",
                 (long long)t.n, (long long)s->dim[1], w->conv[k], (long long)t.height,
                 (long long)t.width);
        CT_TRY(ct_tiles_png(&t, &to->picture));
    }
    return CT_OK;
}

/* ---- samples */

/* The net runs the sample that was read; its values are the caller's to free. */
static ct_status run_sample(work *w, ct_shape *shape, float **value_p)
{
    const ct_shape *in = ct_sample_net_shape(w->net);
    ct_shape one = { 0 };
    float *to;

    CT_TRY(ct_net_set_values(&w->set, shape, value_p));
    one.ndim = in->ndim - 1;
    memcpy(one.dim, in->dim + 1, (size_t)one.ndim * sizeof(one.dim[0]));
    if (!ct_shape_equal(&one, shape))
        return CT_FAIL(CT_ERR_SHAPE, "%s: samples of %s are %s, expected %s, as %s has them",
                       w->run->path, w->set.source, ct_shape_str(shape).text,
                       ct_shape_str(&one).text, CT_RUN_DEPLOY);
    CT_TRY(ct_sample_net_begin(w->net, 1, &to));
    memcpy(to, *value_p, (size_t)ct_shape_count(shape, 0, -1) * sizeof(**value_p));
    return ct_sample_net_run(w->net);
}

static void take_class(const work *w, ct_example *x)
{
    const float *row = ct_sample_net_rows(w->net, w->output);
    const char *name;
    int64_t n_class = ct_sample_net_output(w->net, w->output, &name)->dim[1];

    for (int64_t c = 1; c < n_class; c++)
        if (row[c] > row[x->predicted]) x->predicted = c;
    x->score = (double)row[x->predicted];
}

static ct_status draw_boxes(const work *w, const ct_shape *shape, const float *value, ct_example *x)
{
    ct_box_example b = {
        .shape = shape, .value = value, .truth = ct_net_set_boxes(&w->set), .net = w->e->net
    };

    b.found = ct_sample_net_found(w->net, w->output, &b.n_found);
    return ct_box_example_draw(&b, x);
}

static ct_status look_at(work *w, int64_t id, ct_example *x)
{
    float *value = NULL;
    ct_shape shape;
    ct_status status;

    CT_TRY(ct_net_set_read(&w->set, id));
    ct_net_set_name(&w->set, id, x->name, sizeof(x->name));
    x->label = ct_net_set_label(&w->set);
    if (!w->e->has_boxes) CT_TRY(draw_sample(&w->set.sample, &x->picture));
    status = run_sample(w, &shape, &value);
    if ((status == CT_OK) && w->e->has_boxes)
        status = draw_boxes(w, &shape, value, x);
    else if (status == CT_OK)
        take_class(w, x);
    free(value);
    return status;
}

/* Scores of other weights, or of another set, may name what is no mistake here: it is left out. */
static ct_status run_mistakes(work *w)
{
    const json_t *list = json_object_get(w->run->scores, "worst"), *m;
    size_t i;

    json_array_foreach(list, i, m)
    {
        double id = ct_json_number(m, "sample", -1);
        ct_example *x = &w->e->mistake[w->e->n_mistake];

        if (w->e->n_mistake == CT_MOST_MISTAKES) break;
        if (!(id >= 0) || !(id < (double)w->set.reader->count)) continue;
        CT_TRY(look_at(w, (int64_t)id, x));
        if (x->predicted != x->label) {
            w->e->n_mistake++;
            continue;
        }
        ct_text_destroy(&x->picture);
        *x = (ct_example){ .label = 0 };
    }
    return CT_OK;
}

static ct_status run_samples(work *w)
{
    int64_t count = w->set.reader->count;
    int most = w->e->has_boxes ? CT_MOST_BOX_EXAMPLES : CT_MOST_EXAMPLES;
    int n = (count < most) ? (int)count : most;

    w->e->is_probability = ct_sample_net_is_softmax(w->net, w->output);
    for (int i = 0; i < n; i++) {
        CT_TRY(look_at(w, count * i / n, &w->e->example[i]));
        if (i == 0) CT_TRY(draw_activations(w));
        w->e->n++;
    }
    if (!w->e->has_boxes) CT_TRY(run_mistakes(w));
    return draw_filters(w);
}

static ct_status make(work *w)
{
    ct_examples *e = w->e;
    ct_status status;

    CT_TRY(read_net(w->run, CT_RUN_NET, &w->tested));
    CT_TRY(read_net(w->run, CT_RUN_DEPLOY, &e->net));
    if ((w->tested == NULL) || (e->net == NULL) || !ct_is_sample_net(e->net)) {
        say(e, "the run has no net of pictures for use, in ",
            (w->tested == NULL) ? CT_RUN_NET : CT_RUN_DEPLOY);
        return CT_OK;
    }
    status = ct_net_set_open(w->tested, CT_TEST, NULL, &w->set);
    if (status == CT_UNSUPPORTED) {
        if (w->set.source != NULL)
            say(e, "the set of tests is not here: ", w->set.source);
        else
            say(e,
                "tests of the net read no set of type Data, AnnotatedData, ImageData or HDF5Data",
                "");
        return CT_OK;
    }
    CT_TRY(status);
    CT_TRY(open_net(w));
    return (e->why[0] == '\0') ? run_samples(w) : CT_OK;
}

ct_status ct_examples_make(const ct_run_data *r, ct_examples *e)
{
    work w = { .run = r, .e = e };
    ct_status status;

    memset(e, 0, sizeof(*e));
    if (!r->is_folder) {
        say(e, "a file of metrics, or a log, has no net", "");
        return CT_OK;
    }
    status = make(&w);
    ct_sample_net_destroy(w.net);
    if (w.set.reader != NULL) ct_net_set_close(&w.set);
    if (w.tested != NULL) ct__net_parameter__free_unpacked(w.tested, NULL);
    return status;
}

void ct_examples_destroy(ct_examples *e)
{
    for (int i = 0; i < CT_MOST_EXAMPLES; i++) ct_text_destroy(&e->example[i].picture);
    for (int i = 0; i < CT_MOST_MISTAKES; i++) ct_text_destroy(&e->mistake[i].picture);
    for (int k = 0; k < CT_MOST_ACTIVATIONS; k++) ct_text_destroy(&e->activation[k].picture);
    ct_text_destroy(&e->filters.picture);
    if (e->net != NULL) ct__net_parameter__free_unpacked(e->net, NULL);
}
