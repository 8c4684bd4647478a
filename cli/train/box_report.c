#include "cli/train/box_report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/test_report.h"
#include "framework/base/json_writer.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/augment/boxes.h"
#include "framework/net/graph.h"
#include "framework/solver/average_precision.h"

enum { JUDGED = 5, JUDGED_ROWS = 0, TRUE_BOXES = 1 }; /* of a row of its top; value readers */

struct ct_box_report {
    const ct_config *config;
    const Ct__DetectionEvaluateParameter *p;
    int64_t n_class, background, n_sample;
    float *row, *box; /* of a batch, on the host */
    ct_detections seen;
    ct_class_precision *of; /* of each class, of all ranks */
    int64_t n_of;
};

static const Ct__LayerParameter *find_layer(const Ct__NetParameter *net)
{
    ct_net_options o = { .phase = CT_TEST };

    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        if (ct_layer_param_is(l, "DetectionEvaluate") && (l->n_bottom == 2) && (l->n_top == 1) &&
            (l->detection_evaluate_param != NULL) && ct_graph_includes(net, &o, l))
            return l;
    }
    return NULL;
}

bool ct_box_report_is_of(const Ct__NetParameter *net)
{
    return find_layer(net) != NULL;
}

ct_status ct_box_report_create(const ct_call *call, ct_config *c, ct_box_report **r_p)
{
    const Ct__LayerParameter *l = find_layer(c->net);
    ct_box_report *r;

    CT_TRY(ct_test_report_check_options(call, "--report"));
    r = calloc(1, sizeof(*r));
    if (r == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a report");
    *r_p = r;
    r->config = c;
    r->p = l->detection_evaluate_param;
    r->n_class = r->p->num_classes;
    r->background = r->p->background_label_id;
    CT_TRY(ct_value_reader_add(c->net, JUDGED_ROWS, l->top[0]));
    return ct_value_reader_add(c->net, TRUE_BOXES, l->bottom[1]);
}

void ct_box_report_destroy(ct_box_report *r)
{
    if (r == NULL) return;
    free(r->row);
    free(r->box);
    free(r->of);
    ct_detections_release(&r->seen);
    free(r);
}

/* ---- counting */

static ct_status make_room(ct_box_report *r, const ct_net *net)
{
    const float last[JUDGED] = { -1, (float)(r->n_class - 1), 0, -1, -1 };

    r->n_sample = net->n_sample;
    if ((net->n_class_name > 0) && (net->n_class_name != r->n_class))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--report: the net has %" PRId64 " class_name, expected %" PRId64
                       ", one for each class and the background",
                       net->n_class_name, r->n_class);
    if (r->n_sample < 1)
        return CT_FAIL(CT_ERR_CONFIG, "--report: the net reads no set that has an end");
    r->row = malloc(
        (size_t)ct_tensor_count(&ct_value_reader_blob(net, JUDGED_ROWS)->data) * sizeof(float) + 1);
    r->box = malloc(
        (size_t)ct_tensor_count(&ct_value_reader_blob(net, TRUE_BOXES)->data) * sizeof(float) + 1);
    if ((r->row == NULL) || (r->box == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a report of %" PRId64 " classes", r->n_class);
    return ct_detections_add(&r->seen, last, 1); /* so that all classes are there */
}

/* True boxes of the first `left` samples: as DetectionEvaluate's own rows, but of each sample. */
static ct_status count_truth(ct_box_report *r, const ct_tensor *t, int64_t left)
{
    const ct_shape *s = &t->shape;
    int64_t n = ct_shape_count(s, 0, -1) / CT_BOX_ROW;
    int64_t each = ((s->ndim == 3) && (s->dim[2] == CT_BOX_ROW)) ? s->dim[1] : 0;

    for (int64_t i = 0; i < n; i++) {
        const float *b = r->box + i * CT_BOX_ROW;
        int64_t sample = (each > 0) ? i / each : (int64_t)b[0];
        const float row[JUDGED] = { -1, b[1], 1, -1, -1 };

        if ((b[0] < 0) || (sample >= left)) continue;
        if (!r->p->evaluate_difficult_gt && (b[CT_BOX_ROW - 1] != 0)) continue;
        CT_TRY(ct_detections_add(&r->seen, row, 1));
    }
    return CT_OK;
}

static ct_status count_found(ct_box_report *r, const ct_tensor *t, int64_t left)
{
    int64_t n = ct_tensor_count(t) / JUDGED;

    for (int64_t i = 0; i < n; i++) {
        const float *row = r->row + i * JUDGED;

        if ((row[0] >= 0) && (row[0] < (float)left)) CT_TRY(ct_detections_add(&r->seen, row, 1));
    }
    return CT_OK;
}

static ct_status count_batch(ct_box_report *r, ct_net *net, int64_t batch)
{
    const ct_tensor *found = &ct_value_reader_blob(net, JUDGED_ROWS)->data;
    const ct_tensor *truth = &ct_value_reader_blob(net, TRUE_BOXES)->data;
    int64_t left = r->n_sample - batch * net->batch_global - net->batch_first;
    ct_exec *ex = &net->pass->exec;

    ex->micro_step = batch;
    CT_TRY(ct_pass_forward(net->pass, NULL));
    CT_TRY(ex->dev->to_host(ex->stream, r->row, found->data,
                            (size_t)ct_tensor_count(found) * sizeof(float)));
    CT_TRY(ex->dev->to_host(ex->stream, r->box, truth->data,
                            (size_t)ct_tensor_count(truth) * sizeof(float)));
    CT_TRY(count_truth(r, truth, left));
    return count_found(r, found, left);
}

ct_status ct_box_report_run(ct_box_report *r, const ct_call *call, ct_net *net)
{
    int64_t n_batch;

    CT_TRY(make_room(r, net));
    n_batch = (r->n_sample + net->batch_global - 1) / net->batch_global;
    CT_INFO("Running over %" PRId64 " samples.", r->n_sample);
    ct_exec_fill(call, net, &net->pass->exec);
    for (int64_t batch = 0; batch < n_batch; batch++) CT_TRY(count_batch(r, net, batch));
    return ct_detections_judge_classes(&r->seen, &call->job->group.data, &r->of, &r->n_of);
}

/* ---- writing */

/* Of classes but the background; values that are not finite become null. */
static void add_each(const ct_box_report *r, const char *key,
                     double (*of)(const ct_class_precision *c, int k), int k, ct_json_writer *w)
{
    ct_json_break(w);
    ct_json_begin_list(w, key);
    for (int64_t c = 0; c < r->n_class; c++) {
        double v = (c < r->n_of) ? of(&r->of[c], k) : 0.0;

        if (c == r->background) continue;
        if (isfinite(v))
            ct_json_add_digits(w, NULL, v, 17);
        else
            ct_json_add_null(w, NULL);
    }
    ct_json_end(w);
}

static double area_of(const ct_class_precision *c, int version)
{
    return (c->truth > 0) ? c->area[version] : NAN;
}

static double truth_of(const ct_class_precision *c, int k)
{
    (void)k;
    return c->truth;
}

static double found_of(const ct_class_precision *c, int k)
{
    (void)k;
    return c->found;
}

static double right_of(const ct_class_precision *c, int k)
{
    (void)k;
    return c->right;
}

static void add_curves(const ct_box_report *r, ct_json_writer *w)
{
    ct_json_break(w);
    ct_json_begin_list(w, "precision_at_recall");
    for (int64_t c = 0; c < r->n_class; c++) {
        if (c == r->background) continue;
        ct_json_break(w);
        ct_json_begin_list(w, NULL);
        for (int k = 0; k < CT_AP_POINTS; k++) ct_json_add_number(w, NULL, r->of[c].point[k]);
        ct_json_end(w);
    }
    ct_json_end(w);
}

static void add_classes(const ct_box_report *r, ct_json_writer *w)
{
    const Ct__NetParameter *net = r->config->net;

    ct_json_begin_list(w, "classes");
    for (int64_t c = 0; c < r->n_class; c++) {
        char number[24];

        snprintf(number, sizeof(number), "%" PRId64, c);
        if (c != r->background)
            ct_json_add_text(w, NULL, (net->n_class_name > 0) ? net->class_name[c] : number);
    }
    ct_json_end(w);
}

static void add_report(const ct_box_report *r, ct_json_writer *w)
{
    ct_json_begin_object(w, NULL);
    add_classes(r, w);
    ct_json_break(w);
    ct_json_add_integer(w, "samples", r->n_sample);
    ct_json_begin_object(w, "mean_average_precision");
    for (int v = 0; v < CT_AP_N_VERSION; v++)
        ct_json_add_digits(w, ct_ap_version_name((ct_ap_version)v),
                           ct_class_precision_mean(r->of, r->n_of, (ct_ap_version)v), 17);
    ct_json_end(w);
    ct_json_break(w);
    ct_json_begin_object(w, "average_precision");
    for (int v = 0; v < CT_AP_N_VERSION; v++)
        add_each(r, ct_ap_version_name((ct_ap_version)v), area_of, v, w);
    ct_json_end(w);
    add_each(r, "boxes", truth_of, 0, w);
    add_each(r, "detections", found_of, 0, w);
    add_each(r, "right", right_of, 0, w);
    add_curves(r, w);
    ct_json_end(w);
}

ct_status ct_box_report_write(const ct_box_report *r, const char *path)
{
    ct_text t = { 0 };
    ct_json_writer w = ct_json_into(&t);
    ct_status status;

    add_report(r, &w);
    ct_text_add(&t, "\n");
    status = t.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for %s", path)
                      : ct_file_write(path, t.text, t.length);
    ct_text_destroy(&t);
    CT_TRY(status);
    for (int v = 0; v < CT_AP_N_VERSION; v++)
        printf("mean_average_precision = %g (%s)\n",
               ct_class_precision_mean(r->of, r->n_of, (ct_ap_version)v),
               ct_ap_version_name((ct_ap_version)v));
    CT_INFO("%" PRId64 " samples: %s", r->n_sample, path);
    if ((fflush(stdout) == 0) && !ferror(stdout)) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write the result to standard output: %s", strerror(errno));
}
