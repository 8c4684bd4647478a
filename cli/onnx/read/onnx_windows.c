/* Operators of windows over two axes of space, and what goes with them: Conv, pools, BatchNorm,
 * LRN, Pad. A window's pads may differ at both sides; a layer's do not. Then the layer has more,
 * and what it makes too much is cut off. */
#include <inttypes.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"

typedef struct window {
    int64_t kernel[2], stride[2], dilation[2], pads[4], in[2];
    bool ceil;
    int64_t out[2];           /* what the operator makes                                       */
    int64_t pad[2];           /* of the layer, at both sides                                   */
    int64_t from[2], made[2]; /* of what the layer makes: where the operator's begins; size */
} window;

static int64_t span(const window *w, int i)
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

/* Pads, as numbers or by auto_pad. */
static ct_status read_pads(const ct_onnx_reader *r, window *w)
{
    bool upper = ct_onnx_attribute_is(r, "auto_pad", "SAME_UPPER", false);
    bool lower = ct_onnx_attribute_is(r, "auto_pad", "SAME_LOWER", false);
    bool none = ct_onnx_attribute_is(r, "auto_pad", "VALID", false);

    CT_TRY(ct_onnx_attribute_ints(r, "pads", 4, w->pads, 0));
    if (!upper && !lower && !none && !ct_onnx_attribute_is(r, "auto_pad", "NOTSET", true))
        return ct_onnx_refuse(r, "attribute auto_pad: NOTSET, SAME_UPPER, SAME_LOWER and VALID are "
                                 "taken");
    for (int i = 0; i < 2; i++) {
        int64_t out = (w->in[i] + w->stride[i] - 1) / w->stride[i];
        int64_t all = (out - 1) * w->stride[i] + span(w, i) - w->in[i];

        if (none) w->pads[i] = w->pads[2 + i] = 0;
        if (!upper && !lower) continue;
        if (all < 0) all = 0;
        w->pads[i] = upper ? all / 2 : all - all / 2;
        w->pads[2 + i] = all - w->pads[i];
    }
    return CT_OK;
}

/* Attributes of the node, and the sizes that it makes of x, which is padded already by before. */
static ct_status read_window(const ct_onnx_reader *r, const ct_onnx_operand *x, window *w)
{
    const int64_t most = 1 << 20;

    if (x->shape.ndim != 4)
        return ct_onnx_refuse(r,
                              "input 0 has shape %s; batch, channels and two axes of space are "
                              "taken",
                              ct_shape_str(&x->shape).text);
    if (ct_onnx_attribute(r, "kernel_shape") != NULL)
        CT_TRY(ct_onnx_attribute_ints(r, "kernel_shape", 2, w->kernel, 0));
    CT_TRY(ct_onnx_attribute_ints(r, "strides", 2, w->stride, 1));
    CT_TRY(ct_onnx_attribute_ints(r, "dilations", 2, w->dilation, 1));
    w->ceil = ct_onnx_attribute_int(r, "ceil_mode", 0) != 0;
    for (int i = 0; i < 2; i++) {
        w->in[i] = x->shape.dim[2 + i];
        if ((w->kernel[i] < 1) || (w->kernel[i] > most) || (w->stride[i] < 1) ||
            (w->stride[i] > most) || (w->dilation[i] < 1) || (w->dilation[i] > most))
            return ct_onnx_refuse(
                r, "kernel_shape, strides or dilations of %" PRId64 ", %" PRId64 ", %" PRId64,
                w->kernel[i], w->stride[i], w->dilation[i]);
    }
    CT_TRY(read_pads(r, w));
    for (int i = 0; i < 4; i++) {
        if ((w->pads[i] < 0) || (w->pads[i] > most))
            return ct_onnx_refuse(r, "pads of %" PRId64, w->pads[i]);
        w->pads[i] += x->padded ? x->pads[i] : 0;
    }
    for (int i = 0; i < 2; i++) {
        int64_t room = w->in[i] + w->pads[i] + w->pads[2 + i] - span(w, i);

        if (room < 0)
            return ct_onnx_refuse(r,
                                  "pads of %" PRId64 " and %" PRId64 " around %" PRId64
                                  " values, for a window of %" PRId64,
                                  w->pads[i], w->pads[2 + i], w->in[i], span(w, i));
        w->out[i] = (room + (w->ceil ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
        /* a window begins within the values or the pads before them */
        if (w->ceil && ((w->out[i] - 1) * w->stride[i] >= w->in[i] + w->pads[i])) w->out[i]--;
    }
    return CT_OK;
}

/* The layer's name for output 0, or a part of which the operator's output is then cut. */
static ct_status cut_made(ct_onnx_reader *r, const window *w, ct_onnx_operand *v)
{
    bool rows = w->made[0] != w->out[0], columns = w->made[1] != w->out[1];

    if (rows)
        CT_TRY(
            ct_onnx_cut(r, v, 2, w->from[0], w->from[0] + w->out[0], columns ? "rows" : NULL, &v));
    if (columns) CT_TRY(ct_onnx_cut(r, v, 3, w->from[1], w->from[1] + w->out[1], NULL, &v));
    return CT_OK;
}

static bool is_cut(const window *w)
{
    return (w->made[0] != w->out[0]) || (w->made[1] != w->out[1]);
}

/* ---- convolutions */

enum { MOST_EXTRA = 256 }; /* of output_padding, for each value of which the window may grow */

/* So many rows more in front, whole steps, that the layer's pads suffice behind. */
static void pad_alike(window *w)
{
    for (int i = 0; i < 2; i++) {
        int64_t behind = (w->out[i] - 1) * w->stride[i] + span(w, i) - w->in[i] - w->pads[i];

        w->pad[i] = w->pads[i];
        w->from[i] = 0;
        for (; w->pad[i] < behind; w->pad[i] += w->stride[i]) w->from[i]++;
        w->made[i] = (w->in[i] + 2 * w->pad[i] - span(w, i)) / w->stride[i] + 1;
    }
}

/* The weights are constants of that many axes; input 2, where it is there, n numbers. */
static ct_status weights_of(const ct_onnx_reader *r, int ndim, int64_t n)
{
    const ct_onnx_operand *w = ct_onnx_in(r, 1), *b = ct_onnx_in(r, 2);

    if ((w->f == NULL) || (w->shape.ndim != ndim))
        return ct_onnx_refuse(r,
                              "the weights are computed, or of shape %s; %d axes are taken, of "
                              "constant floats",
                              ct_shape_str(&w->shape).text, ndim);
    if ((b != NULL) && ((b->f == NULL) || (ct_shape_count(&b->shape, 0, -1) != n)))
        return ct_onnx_refuse(r,
                              "the bias is computed, or of shape %s; %" PRId64 " constant "
                              "floats are taken",
                              ct_shape_str(&b->shape).text, n);
    return CT_OK;
}

/* The weights, in a window of kernel[0] x kernel[1]: what these have more is 0. */
static ct_status give_window(ct_onnx_reader *r, const int64_t kernel[2])
{
    const ct_onnx_operand *w = ct_onnx_in(r, 1);
    ct_shape s = w->shape;
    int64_t rows = s.dim[2], columns = s.dim[3];
    float *grown;

    if ((rows == kernel[0]) && (columns == kernel[1]))
        return ct_onnx_give(r, 0, &w->shape, w->f, NULL);
    s.dim[2] = kernel[0];
    s.dim[3] = kernel[1];
    CT_TRY(ct_onnx_shape_check(r, "the weights with output_padding", &s));
    grown = ct_onnx_numbers(r, ct_shape_count(&s, 0, -1));
    if (grown == NULL) return CT_ERR_NOMEM;
    memset(grown, 0, (size_t)ct_shape_count(&s, 0, -1) * sizeof(*grown));
    for (int64_t k = 0; k < s.dim[0] * s.dim[1]; k++) {
        for (int64_t i = 0; i < rows; i++)
            memcpy(grown + (k * kernel[0] + i) * kernel[1], w->f + (k * rows + i) * columns,
                   (size_t)columns * sizeof(*grown));
    }
    return ct_onnx_give(r, 0, &s, grown, grown);
}

static ct_status give_weights(ct_onnx_reader *r, const int64_t kernel[2], int64_t n)
{
    const ct_onnx_operand *b = ct_onnx_in(r, 2);

    CT_TRY(give_window(r, kernel));
    if (b == NULL) return CT_OK;
    return ct_onnx_give(r, 1, &(ct_shape){ 1, { n } }, b->f, NULL);
}

static void add_pair(ct_text *t, const char *name, const int64_t v[2], int64_t otherwise)
{
    if ((v[0] == otherwise) && (v[1] == otherwise)) return;
    ct_text_add(t, " %s: %" PRId64, name, v[0]);
    if (v[0] != v[1]) ct_text_add(t, " %s: %" PRId64, name, v[1]);
}

static ct_status emit_convolution(ct_onnx_reader *r, const char *type, const window *w,
                                  int64_t group, int64_t n, bool cut, ct_onnx_operand **v_p)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    ct_shape s = { 4, { x->shape.dim[0], n, w->made[0], w->made[1] } };
    ct_text t = { 0 };
    ct_status status;

    ct_text_add(&t, "num_output: %" PRId64 "%s", n,
                (ct_onnx_in(r, 2) == NULL) ? " bias_term: false" : "");
    add_pair(&t, "pad", w->pad, 0);
    add_pair(&t, "kernel_size", w->kernel, 0);
    add_pair(&t, "stride", w->stride, 1);
    add_pair(&t, "dilation", w->dilation, 1);
    if (group != 1) ct_text_add(&t, " group: %" PRId64, group);
    status = ct_onnx_emit(r, type, cut ? "padded" : NULL, 1, &x, &s, v_p,
                          "convolution_param { %s }", (t.text != NULL) ? t.text : "");
    ct_text_destroy(&t);
    if (status == CT_OK) status = give_weights(r, w->kernel, n);
    return status;
}

/* Of the weights, which kernel_shape may say again. */
static ct_status read_kernel(const ct_onnx_reader *r, window *w)
{
    const ct_shape *s = &ct_onnx_in(r, 1)->shape;
    int64_t said[2];

    CT_TRY(ct_onnx_attribute_ints(r, "kernel_shape", 2, said, 0));
    for (int i = 0; i < 2; i++) {
        w->kernel[i] = s->dim[2 + i];
        if ((said[i] != 0) && (said[i] != w->kernel[i]))
            return ct_onnx_refuse(
                r, "kernel_shape is %" PRId64 " x %" PRId64 ", the weights have the shape %s",
                said[0], said[1], ct_shape_str(s).text);
    }
    return CT_OK;
}

static ct_status conv(ct_onnx_reader *r)
{
    const ct_onnx_operand *x = ct_onnx_in(r, 0), *f = ct_onnx_in(r, 1);
    int64_t group = ct_onnx_attribute_int(r, "group", 1), n = f->shape.dim[0];
    window w = { .ceil = false };
    ct_onnx_operand *v;

    CT_TRY(weights_of(r, 4, n));
    CT_TRY(read_kernel(r, &w));
    CT_TRY(read_window(r, x, &w));
    if ((group < 1) || (n % group != 0) || (f->shape.dim[1] > INT32_MAX) || (group > INT32_MAX) ||
        (f->shape.dim[1] * group != x->shape.dim[1]))
        return ct_onnx_refuse(r,
                              "weights of shape %s and group %" PRId64 " for %" PRId64 " channels",
                              ct_shape_str(&f->shape).text, group, x->shape.dim[1]);
    pad_alike(&w);
    CT_TRY(emit_convolution(r, "Convolution", &w, group, n, is_cut(&w), &v));
    return cut_made(r, &w, v);
}

/* What a transposed convolution makes without pads, of which the operator leaves out pads, and has
 * `extra` more behind. Where that goes beyond the values there are, the window has zeros more. */
static ct_status fit_transposed(const ct_onnx_reader *r, window *w, const int64_t extra[2])
{
    const int64_t most = 1 << 20;

    for (int i = 0; i < 2; i++) {
        int64_t step = (w->stride[i] > w->dilation[i]) ? w->stride[i] : w->dilation[i], all, spare;

        if ((w->kernel[i] < 1) || (w->stride[i] < 1) || (w->stride[i] > most) ||
            (w->dilation[i] < 1) || (w->dilation[i] > most) || (w->pads[i] < 0) ||
            (w->pads[i] > most) || (w->pads[2 + i] < 0) || (w->pads[2 + i] > most))
            return ct_onnx_refuse(r,
                                  "a kernel, stride, dilation and pads of %" PRId64 ", %" PRId64
                                  ", %" PRId64 ", %" PRId64 " and %" PRId64,
                                  w->kernel[i], w->stride[i], w->dilation[i], w->pads[i],
                                  w->pads[2 + i]);
        if ((extra[i] < 0) || (extra[i] >= step) || (extra[i] > MOST_EXTRA))
            return ct_onnx_refuse(r,
                                  "output_padding of %" PRId64 "; less than strides or dilations, "
                                  "and at most %d, is taken",
                                  extra[i], MOST_EXTRA);
        all = (w->in[i] - 1) * w->stride[i] + span(w, i);
        w->out[i] = all - w->pads[i] - w->pads[2 + i] + extra[i];
        if (w->out[i] < 1)
            return ct_onnx_refuse(r,
                                  "pads of %" PRId64 " and %" PRId64 " leave nothing of %" PRId64,
                                  w->pads[i], w->pads[2 + i], all);
        spare = w->pads[2 + i] - extra[i];
        for (; spare < 0; spare += w->dilation[i]) w->kernel[i]++;
        w->pad[i] = (spare < w->pads[i]) ? spare : w->pads[i];
        w->from[i] = w->pads[i] - w->pad[i];
        w->made[i] = (w->in[i] - 1) * w->stride[i] + span(w, i) - 2 * w->pad[i];
    }
    return CT_OK;
}

static ct_status conv_transpose(ct_onnx_reader *r)
{
    const ct_onnx_operand *x = ct_onnx_in(r, 0), *f = ct_onnx_in(r, 1);
    int64_t group = ct_onnx_attribute_int(r, "group", 1), n, extra[2];
    window w = { .ceil = false };
    ct_onnx_operand *v;

    if ((f->shape.ndim != 4) || (group < 1) || (group > INT32_MAX) || (f->shape.dim[1] > INT32_MAX))
        return ct_onnx_refuse(r, "weights of shape %s and group %" PRId64,
                              ct_shape_str(&f->shape).text, group);
    n = f->shape.dim[1] * group;
    CT_TRY(weights_of(r, 4, n));
    if (x->shape.ndim != 4) return ct_onnx_refuse(r, "two axes of space are taken");
    if (f->shape.dim[0] != x->shape.dim[1])
        return ct_onnx_refuse(r, "weights of shape %s for values of shape %s",
                              ct_shape_str(&f->shape).text, ct_shape_str(&x->shape).text);
    if (!ct_onnx_attribute_is(r, "auto_pad", "NOTSET", true))
        return ct_onnx_refuse(r, "attribute auto_pad: NOTSET is taken");
    CT_TRY(read_kernel(r, &w));
    CT_TRY(ct_onnx_attribute_ints(r, "output_padding", 2, extra, 0));
    CT_TRY(ct_onnx_attribute_ints(r, "strides", 2, w.stride, 1));
    CT_TRY(ct_onnx_attribute_ints(r, "dilations", 2, w.dilation, 1));
    CT_TRY(ct_onnx_attribute_ints(r, "pads", 4, w.pads, 0));
    for (int i = 0; i < 2; i++) w.in[i] = x->shape.dim[2 + i];
    CT_TRY(fit_transposed(r, &w, extra));
    CT_TRY(emit_convolution(r, "Deconvolution", &w, group, n, is_cut(&w), &v));
    return cut_made(r, &w, v);
}

/* ---- pools */

/* What a Pooling layer makes with these pads at both sides. */
static int64_t pooled(const window *w, int i, bool floors)
{
    int64_t room = w->in[i] + 2 * w->pad[i] - w->kernel[i], n;

    if (room < 0) return 0;
    n = (room + (floors ? 0 : w->stride[i] - 1)) / w->stride[i] + 1;
    if ((w->pad[i] > 0) && ((n - 1) * w->stride[i] >= w->in[i] + w->pad[i])) n--;
    return n;
}

/* Pads and rounding with which the layer makes at least what the operator does, at most by
 * moving `more` steps. */
static bool fit_pool(window *w, int64_t more, bool *floors_p)
{
    for (int floors = 1; floors >= 0; floors--) {
        bool enough = true;

        for (int i = 0; i < 2; i++) {
            w->pad[i] = w->pads[i] + more * w->stride[i];
            w->from[i] = more;
            w->made[i] = pooled(w, i, floors != 0);
            enough = enough && (w->pad[i] < w->kernel[i]) && (w->made[i] >= more + w->out[i]);
        }
        *floors_p = floors != 0;
        if (enough) return true;
    }
    return false;
}

static ct_status pool(ct_onnx_reader *r, bool mean)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0), *v;
    bool counts = ct_onnx_attribute_int(r, "count_include_pad", 0) != 0, floors;
    window w = { .ceil = false };
    ct_shape s = x->shape;

    CT_TRY(read_window(r, x, &w));
    if ((ct_onnx_n_out(r) != 1) || (w.dilation[0] != 1) || (w.dilation[1] != 1) ||
        (ct_onnx_attribute_int(r, "storage_order", 0) != 0))
        return ct_onnx_refuse(r, "dilations and Indices are not taken");
    if (!fit_pool(&w, 0, &floors) && (mean || !fit_pool(&w, 1, &floors)))
        return ct_onnx_refuse(r,
                              "pads of %" PRId64 ", %" PRId64 " before and %" PRId64 ", %" PRId64
                              " behind have no form in a layer",
                              w.pads[0], w.pads[1], w.pads[2], w.pads[3]);
    for (int i = 0; mean && (i < 2); i++) {
        int64_t behind = (w.out[i] - 1) * w.stride[i] + w.kernel[i] - w.in[i] - w.pad[i];

        if (counts ? (behind > w.pad[i]) : (w.pads[i] > 0))
            return ct_onnx_refuse(r, "a layer's mean counts its pads, which are the same before "
                                     "and behind: count_include_pad is taken with such, or no "
                                     "pads");
    }
    s.dim[2] = w.made[0];
    s.dim[3] = w.made[1];
    CT_TRY(ct_onnx_emit(r, "Pooling", is_cut(&w) ? "padded" : NULL, 1, &x, &s, &v,
                        "pooling_param { pool: %s kernel_h: %" PRId64 " kernel_w: %" PRId64
                        " stride_h: %" PRId64 " stride_w: %" PRId64 " pad_h: %" PRId64
                        " pad_w: %" PRId64 "%s }",
                        mean ? "AVE" : "MAX", w.kernel[0], w.kernel[1], w.stride[0], w.stride[1],
                        w.pad[0], w.pad[1], floors ? " round_mode: FLOOR" : ""));
    return cut_made(r, &w, v);
}

static ct_status max_pool(ct_onnx_reader *r)
{
    return pool(r, false);
}

static ct_status average_pool(ct_onnx_reader *r)
{
    return pool(r, true);
}

static ct_status global(ct_onnx_reader *r, const char *method)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    ct_shape s = x->shape;

    if (s.ndim != 4) return ct_onnx_refuse(r, "two axes of space are taken");
    s.dim[2] = s.dim[3] = 1;
    return ct_onnx_emit(r, "Pooling", NULL, 1, &x, &s, NULL,
                        "pooling_param { pool: %s global_pooling: true }", method);
}

static ct_status global_average(ct_onnx_reader *r)
{
    return global(r, "AVE");
}

static ct_status global_max(ct_onnx_reader *r)
{
    return global(r, "MAX");
}

static ct_status roi_pool(ct_onnx_reader *r)
{
    ct_onnx_operand *both[2] = { ct_onnx_in(r, 0), ct_onnx_in(r, 1) };
    const ct_shape *x = &both[0]->shape, *rois = &both[1]->shape;
    int64_t size[2];

    CT_TRY(ct_onnx_attribute_ints(r, "pooled_shape", 2, size, 0));
    if ((x->ndim != 4) || (rois->ndim != 2) || (rois->dim[1] != 5) || (size[0] < 1) ||
        (size[1] < 1) || (size[0] > 1 << 20) || (size[1] > 1 << 20) || both[0]->constant ||
        both[1]->constant)
        return ct_onnx_refuse(r,
                              "regions of shape %s in %s; five numbers each are taken, of "
                              "images",
                              ct_shape_str(rois).text, ct_shape_str(x).text);
    return ct_onnx_emit(
        r, "ROIPooling", NULL, 2, both,
        &(ct_shape){ 4, { rois->dim[0], x->dim[1], size[0], size[1] } }, NULL,
        "roi_pooling_param { pooled_h: %" PRId64 " pooled_w: %" PRId64 " spatial_scale: %.9g }",
        size[0], size[1], (double)ct_onnx_attribute_float(r, "spatial_scale", 1.0f));
}

/* ---- normalisation */

static bool all_are(const ct_onnx_operand *v, float value)
{
    int64_t n = ct_shape_count(&v->shape, 0, -1);

    for (int64_t i = 0; i < n; i++) {
        if (v->f[i] != value) return false;
    }
    return true;
}

/* Statistics, and behind them the scale and shift where there are any. */
static ct_status batch_norm(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0), *v, *in[5];
    ct_shape shape = { 1, { (x->shape.ndim > 1) ? x->shape.dim[1] : 0 } };
    bool plain;
    float *one;

    for (int i = 1; i < 5; i++) {
        in[i] = ct_onnx_in(r, i);
        if ((in[i] == NULL) || (in[i]->f == NULL) || !ct_shape_equal(&in[i]->shape, &shape))
            return ct_onnx_refuse(r, "input %d is %" PRId64 " constant floats", i, shape.dim[0]);
    }
    if ((ct_onnx_attribute_int(r, "training_mode", 0) != 0) ||
        (ct_onnx_attribute_int(r, "spatial", 1) != 1))
        return ct_onnx_refuse(r, "training_mode, and spatial: 0, are not taken");
    one = ct_onnx_numbers(r, 1);
    if (one == NULL) return CT_ERR_NOMEM;
    one[0] = 1.0f;
    plain = all_are(in[1], 1.0f) && all_are(in[2], 0.0f);
    CT_TRY(ct_onnx_emit(r, "BatchNorm", plain ? NULL : "statistics", 1, &x, &x->shape, &v,
                        "batch_norm_param { eps: %.9g }",
                        (double)ct_onnx_attribute_float(r, "epsilon", 1e-5f)));
    CT_TRY(ct_onnx_give(r, 2, &(ct_shape){ 1, { 1 } }, one, one));
    CT_TRY(ct_onnx_give(r, 0, &shape, in[3]->f, NULL));
    CT_TRY(ct_onnx_give(r, 1, &shape, in[4]->f, NULL));
    if (plain) return CT_OK;
    CT_TRY(
        ct_onnx_emit(r, "Scale", NULL, 1, &v, &x->shape, NULL, "scale_param { bias_term: true }"));
    CT_TRY(ct_onnx_give(r, 0, &shape, in[1]->f, NULL));
    return ct_onnx_give(r, 1, &shape, in[2]->f, NULL);
}

static ct_status lrn(ct_onnx_reader *r)
{
    ct_onnx_operand *x = ct_onnx_in(r, 0);
    int64_t size = ct_onnx_attribute_int(r, "size", 0);

    if ((size < 1) || (size % 2 != 1) || (size > INT32_MAX))
        return ct_onnx_refuse(r, "attribute size is %" PRId64 "; odd ones are taken", size);
    return ct_onnx_emit(r, "LRN", NULL, 1, &x, &x->shape, NULL,
                        "lrn_param { local_size: %" PRId64 " alpha: %.9g beta: %.9g k: %.9g }",
                        size, (double)ct_onnx_attribute_float(r, "alpha", 1e-4f),
                        (double)ct_onnx_attribute_float(r, "beta", 0.75f),
                        (double)ct_onnx_attribute_float(r, "bias", 1.0f));
}

/* Zeros around rows and columns wait for the convolution that reads them. */
static ct_status pad(ct_onnx_reader *r)
{
    const ct_onnx_operand *x = ct_onnx_in(r, 0), *value = ct_onnx_in(r, 2);
    int64_t pads[CT_MAX_DIM] = { 0 };
    ct_onnx_operand *top;
    int n, any = 0;

    CT_TRY(ct_onnx_list_of(r, 1, "pads", &n, pads));
    for (int i = 0; i < n; i++) {
        any |= pads[i] != 0;
        if ((pads[i] < 0) || (pads[i] > 1 << 20))
            return ct_onnx_refuse(r, "pads of %" PRId64, pads[i]);
    }
    if (any && (!ct_onnx_attribute_is(r, "mode", "constant", true) ||
                (ct_onnx_attribute_float(r, "value", 0.0f) != 0.0f) ||
                ((value != NULL) && ((value->f == NULL) || !all_are(value, 0.0f)))))
        return ct_onnx_refuse(r, "mode constant with the value 0 is taken");
    if (any && ((x->shape.ndim != 4) || (n != 8) || (pads[0] != 0) || (pads[1] != 0) ||
                (pads[4] != 0) || (pads[5] != 0)))
        return ct_onnx_refuse(r, "pads around the last two of four axes are taken");
    CT_TRY(ct_onnx_same(r, x));
    top = ct_onnx_value_find(r, r->step[r->at].proto->output[0]);
    top->padded = any != 0;
    for (int i = 0; i < 2; i++) {
        top->pads[i] = pads[2 + i];
        top->pads[2 + i] = pads[6 + i];
    }
    return CT_OK;
}

const ct_onnx_op ct_onnx_window_ops[] = {
    { "AveragePool", average_pool, 1, 1,
      " auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides " },
    { "BatchNormalization", batch_norm, 5, 5, " epsilon momentum spatial training_mode " },
    { "Conv", conv, 2, 3, " auto_pad dilations group kernel_shape pads strides " },
    { "ConvTranspose", conv_transpose, 2, 3,
      " auto_pad dilations group kernel_shape output_padding pads strides " },
    { "GlobalAveragePool", global_average, 1, 1, " " },
    { "GlobalMaxPool", global_max, 1, 1, " " },
    { "LRN", lrn, 1, 1, " alpha beta bias size " },
    { "MaxPool", max_pool, 1, 1,
      " auto_pad ceil_mode dilations kernel_shape pads storage_order strides " },
    { "MaxRoiPool", roi_pool, 2, 2, " pooled_shape spatial_scale " },
    { "Pad", pad, 1, 3, " mode pads value " },
    { NULL, NULL, 0, 0, NULL },
};
