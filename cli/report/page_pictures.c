/* Pictures with what the net says of them, its insides, and what its sets are like: pictures,
 * tokens or words. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/report/box_example.h"
#include "cli/report/examples.h"
#include "cli/report/page.h"
#include "framework/data/net_set.h"
#include "framework/data/token_file.h"
#include "framework/data/words.h"
#include "framework/net/graph.h"
#include "framework/proto/upgrade.h"
#include "runtime/run_folder.h"

/* ---- examples */

static void add_image(const ct_text *png, const char *alt, ct_text *t)
{
    ct_text_add(t, "<img alt=\"");
    ct_text_add_escaped(t, alt);
    ct_text_add(t, "\" src=\"data:image/png;base64,");
    ct_text_add_base64(t, png->text, png->length);
    ct_text_add(t, "\">");
}

static void add_class(const Ct__NetParameter *net, int64_t c, ct_text *t)
{
    if ((c >= 0) && ((size_t)c < net->n_class_name))
        ct_text_add_escaped(t, net->class_name[c]);
    else
        ct_text_add(t, "class %lld", (long long)c);
}

static void add_example(const ct_examples *e, const ct_example *x, ct_text *t)
{
    bool wrong = (x->label >= 0) && (x->label != x->predicted);

    ct_text_add(t, "<figure>");
    if (x->picture.length > 0) add_image(&x->picture, x->name, t);
    ct_text_add(t, "<figcaption>");
    ct_text_add_escaped(t, x->name);
    if (e->has_boxes) {
        ct_text_add(t, "<br>%lld true, %lld found</figcaption></figure>\n", (long long)x->n_true,
                    (long long)x->n_found);
        return;
    }
    ct_text_add(t, "<br><span class=\"%s\">", wrong ? "wrong" : "right");
    add_class(e->net, x->predicted, t);
    ct_text_add(t, " %.4g</span>", x->score);
    if (wrong) {
        ct_text_add(t, ", is ");
        add_class(e->net, x->label, t);
    }
    ct_text_add(t, "</figcaption></figure>\n");
}

static void add_inside(const ct_inside *in, ct_text *t)
{
    if (in->picture.length == 0) return;
    ct_text_add(t, "<p>");
    ct_text_add_escaped(t, in->title);
    ct_text_add(t, "<br>");
    add_image(&in->picture, in->title, t);
    ct_text_add(t, "</p>\n");
}

static void show(const ct_run_data *r, const ct_examples *e, ct_text *t)
{
    const char *measure = e->is_probability ? "probability" : "score";

    ct_page_heading(3, r->name, t);
    if (e->why[0] != '\0') {
        ct_text_add(t, "<p>No pictures: ");
        ct_text_add_escaped(t, e->why);
        ct_text_add(t, ".</p>\n");
        return;
    }
    ct_text_add(t, "<p>%d samples, evenly spread over the set of tests, ", e->n);
    if (e->has_boxes)
        ct_text_add(
            t,
            "as the net gets them: the true boxes, and beside them those that it finds with "
            "a %s of %.2g at least",
            measure, (double)CT_BOX_SHOWN);
    else
        ct_text_add(t, "with the best class and its %s", measure);
    ct_text_add(t, ", by <code>");
    ct_text_add_escaped(t, e->weights);
    ct_text_add(t, "</code>.</p>\n<div class=\"samples%s\">\n", e->has_boxes ? " pairs" : "");
    for (int i = 0; i < e->n; i++) add_example(e, &e->example[i], t);
    ct_text_add(t, "</div>\n");
    if (e->n_mistake > 0) {
        ct_page_heading(4, "The surest mistakes", t);
        ct_text_add(t, "<div class=\"samples\">\n");
        for (int i = 0; i < e->n_mistake; i++) add_example(e, &e->mistake[i], t);
        ct_text_add(t, "</div>\n");
    }
    if (e->filters.picture.length + e->activation[0].picture.length == 0) return;
    ct_page_heading(4, "First layers", t);
    ct_text_add(t, "<p>Filters, and what the first of the samples above makes of them; each tile "
                   "from its least value, black, to its most, white.</p>\n");
    add_inside(&e->filters, t);
    for (int k = 0; k < CT_MOST_ACTIVATIONS; k++) add_inside(&e->activation[k], t);
}

ct_status ct_page_pictures(const ct_run_data *run, int n_run, ct_text *t)
{
    ct_examples *e = calloc(1, sizeof(*e));
    ct_status status = CT_OK;

    if (e == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for pictures");
    ct_page_heading(2, "Pictures", t);
    for (int i = 0; (i < n_run) && (status == CT_OK); i++) {
        status = ct_examples_make(&run[i], e);
        if (status == CT_OK) show(&run[i], e, t);
        ct_examples_destroy(e);
    }
    free(e);
    return status;
}

/* ---- statistics of the sets */

enum { MOST_READ = 1000, MOST_CLASS = 40, MOST_CHANNEL = 4 };

/* Of some samples, evenly spread. */
typedef struct statistics {
    int64_t read, values;
    int channels;
    double sum[MOST_CHANNEL], square[MOST_CHANNEL], least, most;
    double classes[MOST_CLASS]; /* samples by label */
    int n_class;                /* labels that were seen, from 0 on; -1: some are no class here */
} statistics;

static void count_values(const ct_sample *s, statistics *st)
{
    int64_t plane = (s->shape.ndim == 3) ? s->shape.dim[1] * s->shape.dim[2] : 0;

    if ((plane == 0) || (s->shape.dim[0] > MOST_CHANNEL)) return;
    st->channels = (int)s->shape.dim[0];
    st->values += plane;
    for (int64_t i = 0; i < st->channels * plane; i++) {
        double v = (s->u8 != NULL) ? s->u8[i] : (double)s->f32[i];

        st->sum[i / plane] += v;
        st->square[i / plane] += v * v;
        st->least = fmin(st->least, v);
        st->most = fmax(st->most, v);
    }
}

static void count_label(int64_t label, statistics *st)
{
    if ((label < 0) || (label >= MOST_CLASS) || (st->n_class < 0)) {
        st->n_class = -1;
        return;
    }
    st->classes[label] += 1.0;
    if (label >= st->n_class) st->n_class = (int)label + 1;
}

static ct_status count_set(ct_net_set *set, statistics *st)
{
    int64_t count = set->reader->count, n = (count < MOST_READ) ? count : MOST_READ;

    *st = (statistics){ .least = INFINITY, .most = -INFINITY };
    for (int64_t i = 0; i < n; i++) {
        CT_TRY(ct_net_set_read(set, count * i / n));
        count_values(&set->sample, st);
        count_label(ct_net_set_label(set), st);
        st->read++;
    }
    return CT_OK;
}

static void class_bars(const Ct__NetParameter *net, const statistics *st, ct_text *t)
{
    static const char *const part[1] = { "samples" };
    const char *name[MOST_CLASS];
    char number[MOST_CLASS][16], under[96];
    ct_bars bars = { .title = "Classes",
                     .subtitle = under,
                     .label = "samples",
                     .n_bar = st->n_class,
                     .n_part = 1,
                     .bar = name,
                     .part = part,
                     .value = st->classes };

    if (st->n_class < 1) return;
    for (int c = 0; c < st->n_class; c++) {
        snprintf(number[c], sizeof(number[c]), "%d", c);
        name[c] = ((size_t)c < net->n_class_name) ? net->class_name[c] : number[c];
    }
    snprintf(under, sizeof(under), "of %lld samples, evenly spread over the set",
             (long long)st->read);
    ct_bars_draw(&bars, t);
}

static void set_table(const ct_net_set *set, const statistics *st, ct_text *t)
{
    ct_text_add(t, "<table class=\"set\">\n<tr><th>samples</th><th>shape of the first</th>"
                   "<th>bytes</th><th>least value</th><th>most</th></tr>\n<tr>");
    ct_page_number((double)set->reader->count, 15, t);
    ct_page_cell(ct_shape_str(&set->reader->field[0]).text, t);
    ct_page_number((set->reader->bytes > 0) ? (double)set->reader->bytes : NAN, 15, t);
    ct_page_number(st->least, 6, t);
    ct_page_number(st->most, 6, t);
    ct_text_add(t, "</tr>\n</table>\n");
    if (st->channels == 0) return;
    ct_text_add(t, "<table class=\"channels\">\n<tr><th>channel</th><th>mean</th><th>standard "
                   "deviation</th></tr>\n");
    for (int c = 0; c < st->channels; c++) {
        static const char *const colour[3] = { "blue", "green", "red" };
        double n = (double)st->values, mean = st->sum[c] / n;

        ct_text_add(t, "<tr>");
        ct_page_cell((st->channels == 3) ? colour[c] : (c == 0) ? "0" : "further", t);
        ct_page_number(mean, 6, t);
        ct_page_number(sqrt(fmax(st->square[c] / n - mean * mean, 0.0)), 6, t);
        ct_text_add(t, "</tr>\n");
    }
    ct_text_add(t, "</table>\n");
}

/* ---- texts */

typedef struct text_set {
    const char *source, *what;
    int64_t count, kinds; /* tokens or words, and different ones; kinds 0: not said */
} text_set;

static ct_status open_text(const Ct__LayerParameter *l, text_set *s)
{
    *s = (text_set){ .what = (l->token_data_param != NULL) ? "tokens" : "words" };
    if (l->token_data_param != NULL) {
        const Ct__TokenDataParameter *p = l->token_data_param;
        ct_token_file f;

        s->source = p->source;
        s->kinds = p->vocabulary;
        if ((p->source == NULL) || (access(p->source, R_OK) != 0)) return CT_UNSUPPORTED;
        CT_TRY(ct_token_file_open(p->source, (s->kinds > 0) ? ct_token_width(s->kinds) : 0, &f));
        s->count = f.count;
        ct_token_file_close(&f);
    } else {
        ct_words w;

        s->source = l->text_data_param->source;
        if ((s->source == NULL) || (access(s->source, R_OK) != 0)) return CT_UNSUPPORTED;
        CT_TRY(ct_words_open(s->source, l->name, &w));
        s->count = w.count;
        s->kinds = w.n_vocabulary;
        ct_words_close(&w);
    }
    return CT_OK;
}

/* The layer that reads a text in that phase; NULL: there is none. */
static const Ct__LayerParameter *find_text(const Ct__NetParameter *net, ct_phase phase)
{
    ct_net_options o = { .phase = phase };

    for (size_t i = 0; i < net->n_layer; i++)
        if (((net->layer[i]->token_data_param != NULL) ||
             (net->layer[i]->text_data_param != NULL)) &&
            ct_graph_includes(net, &o, net->layer[i]))
            return net->layer[i];
    return NULL;
}

static void say_absent(const char *what, const char *source, ct_text *t)
{
    ct_text_add(t, "<p>The set of %s is not here: <code>", what);
    ct_text_add_escaped(t, (source != NULL) ? source : "");
    ct_text_add(t, "</code>.</p>\n");
}

static void head_of_set(const char *what, const char *source, ct_text *t)
{
    ct_text_add(t, "<h4>Of %s: <code>", what);
    ct_text_add_escaped(t, source);
    ct_text_add(t, "</code></h4>\n");
}

static ct_status show_text(const Ct__LayerParameter *l, const char *what, ct_text *t)
{
    const Ct__TokenDataParameter *p = l->token_data_param;
    text_set s;
    ct_status status = open_text(l, &s);

    if (status == CT_UNSUPPORTED) {
        say_absent(what, s.source, t);
        return CT_OK;
    }
    CT_TRY(status);
    head_of_set(what, s.source, t);
    ct_text_add(t,
                "<table class=\"text\">\n<tr><th>%s</th><th>different ones</th><th>in a sample</th>"
                "<th>samples of a batch and rank</th><th>tokenizer</th></tr>\n<tr>",
                s.what);
    ct_page_number((double)s.count, 15, t);
    ct_page_number((s.kinds > 0) ? (double)s.kinds : NAN, 15, t);
    ct_page_number((p != NULL) ? p->seq_len : l->text_data_param->steps, 9, t);
    ct_page_number((p != NULL) ? p->batch_size : l->text_data_param->batch_size, 9, t);
    ct_page_cell(((p != NULL) && (p->tokenizer != NULL)) ? p->tokenizer : "–", t);
    ct_text_add(t, "</tr>\n</table>\n");
    return CT_OK;
}

static ct_status show_set(const Ct__NetParameter *net, ct_phase phase, ct_text *t)
{
    const char *what = (phase == CT_TRAIN) ? "training" : "tests";
    const Ct__LayerParameter *text = find_text(net, phase);
    ct_net_set set;
    statistics st;
    ct_status status;

    if (text != NULL) return show_text(text, what, t);
    status = ct_net_set_open(net, phase, NULL, &set);
    if ((status == CT_UNSUPPORTED) && (set.source != NULL)) say_absent(what, set.source, t);
    if ((status == CT_UNSUPPORTED) && (set.source == NULL))
        ct_text_add(
            t,
            "<p>For %s the net reads no set of type Data, AnnotatedData, ImageData, HDF5Data, "
            "TokenData or TextData.</p>\n",
            what);
    if (status == CT_UNSUPPORTED) return CT_OK;
    CT_TRY(status);
    head_of_set(what, set.source, t);
    status = count_set(&set, &st);
    if (status == CT_OK) set_table(&set, &st, t);
    if (status == CT_OK) class_bars(net, &st, t);
    ct_net_set_close(&set);
    return status;
}

static ct_status show_sets(const ct_run_data *r, ct_text *t)
{
    Ct__NetParameter *net = NULL;
    ct_text path = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&path, "%s/" CT_RUN_NET, r->path);
    if (path.failed) status = CT_FAIL(CT_ERR_NOMEM, "no memory for the files of %s", r->path);
    if ((status == CT_OK) && (access(path.text, R_OK) == 0))
        status = ct_net_read(path.text, NULL, &net);
    if ((status == CT_OK) && (net != NULL)) {
        ct_page_heading(3, r->name, t);
        status = show_set(net, CT_TRAIN, t);
        if (status == CT_OK) status = show_set(net, CT_TEST, t);
    }
    if (net != NULL) ct__net_parameter__free_unpacked(net, NULL);
    ct_text_destroy(&path);
    return status;
}

ct_status ct_page_sets(const ct_run_data *run, int n_run, ct_text *t)
{
    ct_page_heading(2, "Data", t);
    for (int i = 0; i < n_run; i++)
        if (run[i].is_folder) CT_TRY(show_sets(&run[i], t));
    return CT_OK;
}
