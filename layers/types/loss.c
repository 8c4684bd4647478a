#include "layers/types/loss.h"

ct_loss_rule ct_loss_rule_read(const ct_layer *l, Ct__LossParameter__NormalizationMode unset)
{
    const Ct__LossParameter *p = l->param->loss_param;
    ct_loss_rule r = { .mode = unset };

    if (p == NULL) return r;
    if (p->has_normalization)
        r.mode = p->normalization;
    else if (p->has_normalize) /* the old form */
        r.mode = p->normalize ? CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID
                              : CT__LOSS_PARAMETER__NORMALIZATION_MODE__BATCH_SIZE;
    r.has_ignore = p->has_ignore_label;
    r.ignore = p->ignore_label;
    return r;
}

ct_status ct_loss_divisor(const ct_loss_rule *r, ct_exec *ex, int64_t all, int64_t counted,
                          int64_t samples, double *divisor_p)
{
    double local = 1;
    bool depends = false;

    switch (r->mode) {
    case CT__LOSS_PARAMETER__NORMALIZATION_MODE__FULL:
        local = (double)all;
        break;
    case CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID:
        local = (double)counted;
        depends = r->has_ignore;
        break;
    case CT__LOSS_PARAMETER__NORMALIZATION_MODE__BATCH_SIZE:
        local = (double)samples;
        break;
    default: /* NONE */
        *divisor_p = 1;
        return CT_OK;
    }
    CT_TRY(ct_exec_global_count(ex, local, depends, divisor_p));
    if (*divisor_p < 1) *divisor_p = 1;
    return CT_OK;
}

ct_status ct_loss_divisor_of(const ct_loss_rule *r, ct_exec *ex, int64_t all, const double *counted,
                             int64_t samples, double *divisor_p)
{
    if (!ct_loss_counts(r)) return ct_loss_divisor(r, ex, all, all, samples, divisor_p);
    *divisor_p = (*counted < 1) ? 1 : *counted;
    return CT_OK;
}

ct_status ct_loss_samples(const ct_instance *in, ct_exec *ex, double *samples_p)
{
    CT_TRY(ct_exec_global_count(ex, (double)in->bottom[0]->data.shape.dim[0], false, samples_p));
    if (*samples_p < 1) *samples_p = 1;
    return CT_OK;
}

float ct_loss_weight(const ct_instance *in)
{
    const float *diff = ct_blob_diff(in->top[0]);

    return (diff != NULL) ? diff[0] : 0.0f;
}

double ct_loss_sum(int64_t n, int64_t work,
                   double (*part)(const void *ctx, int64_t from, int64_t to), const void *ctx)
{
    enum { N_BLOCK = 64 };
    double of[N_BLOCK], sum = 0;

#pragma omp parallel for schedule(static) if (work >= CT_PARALLEL_MIN)
    for (int64_t k = 0; k < N_BLOCK; k++)
        of[k] = part(ctx, n / N_BLOCK * k + n % N_BLOCK * k / N_BLOCK,
                     n / N_BLOCK * (k + 1) + n % N_BLOCK * (k + 1) / N_BLOCK);
    for (int k = 0; k < N_BLOCK; k++) sum += of[k];
    return sum;
}

ct_status ct_loss_reshape_pair(const ct_layer *l, ct_instance *in, int a, int b)
{
    const ct_shape *x = &in->bottom[a]->data.shape, *y = &in->bottom[b]->data.shape;
    ct_shape scalar = { 0 };

    if ((x->ndim < 1) || (y->ndim < 1))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom %d is a scalar, which has no axis of samples",
                             (x->ndim < 1) ? a : b);
    if ((x->dim[0] != y->dim[0]) || (ct_shape_count(x, 1, -1) != ct_shape_count(y, 1, -1)))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottoms %d and %d of shapes %s and %s do not match",
                             a, b, ct_shape_str(x).text, ct_shape_str(y).text);
    ct_blob_set_shape(in->top[0], &scalar);
    return CT_OK;
}

ct_status ct_loss_labels(const ct_layer *l, const ct_exec *ex, const ct_loss_rule *r,
                         const float *value, int64_t n, int64_t per_sample, int64_t n_class,
                         int32_t *label, int64_t *counted_p)
{
    int64_t counted = 0;

    for (int64_t i = 0; i < n; i++) {
        if ((r != NULL) && r->has_ignore && (value[i] == (float)r->ignore)) {
            label[i] = CT_LABEL_IGNORED;
            continue;
        }
        if (!ct_label_class(value[i], n_class, &label[i]))
            return ct_label_fail(l, ex, value[i], i, per_sample, n_class);
        counted++;
    }
    if (counted_p != NULL) *counted_p = counted;
    return CT_OK;
}

ct_status ct_class_loss_reshape(const ct_layer *l, ct_instance *in)
{
    const ct_shape *x = &in->bottom[0]->data.shape;
    ct_class_loss *plan = in->state;
    ct_view v;

    if (x->ndim < 1) return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 0 has no samples");
    v = (ct_view){ x->dim[0], ct_shape_count(x, 1, -1), 1, 0, CT_F32 };
    CT_TRY(ct_layer_check_labels(l, x, &in->bottom[1]->data.shape, &v));
    plan->n = v.outer;
    plan->classes = v.mid;
    ct_instance_buffer(in, CT_CLASS_LOSS_LABEL, CT_LIFETIME_PASS,
                       (size_t)v.outer * sizeof(int32_t));
    ct_blob_set_shape(in->top[0], &(ct_shape){ 0 });
    return CT_OK;
}

ct_status ct_class_loss_begin(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    ct_class_loss *plan = in->state;

    CT_TRY(ct_loss_labels(l, ex, NULL, ct_blob_data(in->bottom[1]), plan->n, 1, plan->classes,
                          in->buffer[CT_CLASS_LOSS_LABEL].data, NULL));
    return ct_loss_samples(in, ex, &plan->samples);
}
