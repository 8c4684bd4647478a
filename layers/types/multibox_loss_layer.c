/* MultiBoxLoss (SSD): true boxes are matched with priors; matched priors are to predict the code of
 * their box and its class, the hardest of the others the background. Bottoms: locations N x 4P,
 * scores N x PC, priors 1 x 2 x 4P, and true boxes, rows of 8: sample, class, instance, x0 y0 x1
 * y1, difficult. */
#include <math.h>
#include <string.h>

#include "framework/base/memory.h"
#include "layers/types/layer_types.h"
#include "layers/types/box.h"

typedef struct multibox_plan {
    int64_t n, n_prior, n_row; /* samples, priors, rows of true boxes            */
    int64_t per_sample;        /* > 0: so many rows belong to each sample in turn */
    double divisor;            /* of the last forward                 */
} multibox_plan;

enum { MATCH, TARGET, ROWS, OVERLAP, RANKED, DECODED, LOSS, PAIRS }; /* buffers */

/* True boxes by sample: those of sample i are box[start[i] .. start[i + 1]). */
typedef struct truth_table {
    int64_t *start;
    const float **box;
    ct_ranked *best;
} truth_table;

static ct_status refuse(const ct_layer *l, const Ct__MultiBoxLossParameter *p)
{
    const ct_multibox_rule *s = l->state;

    if (!p->share_location && (s->mining != CT__MULTI_BOX_LOSS_PARAMETER__MINING_TYPE__NONE))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "share_location: false goes with mining_type: NONE only");
    if (!p->share_location && !p->use_prior_for_matching)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "share_location: false with use_prior_for_matching: false is not "
                             "supported");
    if ((p->nms_param != NULL) && (p->nms_param->nms_threshold > 0.0f))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "nms_param in a MultiBoxLoss, suppression of negatives, is not "
                             "supported; leave it out");
    if (p->map_object_to_agnostic && (s->n_class != 2))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "map_object_to_agnostic needs num_classes 2: background and object");
    if (p->has_do_neg_mining &&
        (p->do_neg_mining != (s->mining != CT__MULTI_BOX_LOSS_PARAMETER__MINING_TYPE__NONE)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "do_neg_mining says other than mining_type");
    if (p->sample_size < 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "sample_size %d is below 1", p->sample_size);
    return CT_OK;
}

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const Ct__MultiBoxLossParameter *p = l->param->multibox_loss_param;
    ct_multibox_rule *s = l->state;

    (void)bottom;
    if ((p == NULL) || !p->has_num_classes || (p->num_classes == 0))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "multibox_loss_param.num_classes is missing or 0");
    if ((p->background_label_id >= p->num_classes) || (p->num_classes > INT32_MAX))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "background_label_id %u is not below num_classes %u",
                             p->background_label_id, p->num_classes);
    s->p = p;
    s->n_class = p->num_classes;
    s->loc_class = p->share_location ? 1 : s->n_class;
    s->background = (int)p->background_label_id;
    s->mining = p->mining_type;
    s->loss = ct_loss_rule_read(l, CT__LOSS_PARAMETER__NORMALIZATION_MODE__VALID);
    s->loss.has_ignore = true; /* how many match depends on the data */
    return refuse(l, p);
}

static void declare_buffers(const ct_multibox_rule *s, const multibox_plan *r, ct_instance *in)
{
    size_t n = (size_t)(r->n * r->n_prior), rows = (size_t)r->n_row;

    ct_instance_buffer(in, MATCH, CT_LIFETIME_PASS, n * sizeof(int32_t));
    ct_instance_buffer(in, TARGET, CT_LIFETIME_PASS, n * sizeof(int32_t));
    /* kept: a matched box is read again in backward */
    ct_instance_buffer(in, ROWS, CT_LIFETIME_PASS,
                       ((size_t)r->n + 1) * sizeof(int64_t) + rows * sizeof(float *));
    ct_instance_buffer(in, OVERLAP, CT_LIFETIME_CALL, n * sizeof(float));
    ct_instance_buffer(in, RANKED, CT_LIFETIME_CALL, n * sizeof(ct_ranked));
    ct_instance_buffer(in, DECODED, CT_LIFETIME_CALL,
                       s->p->use_prior_for_matching ? 0 : n * 4 * sizeof(float));
    /* how many match, of this rank and then of all; each sample's loss, and how many match in it */
    ct_instance_buffer(in, LOSS, CT_LIFETIME_CALL, (1 + 2 * (size_t)r->n) * sizeof(double));
    ct_instance_buffer(in, PAIRS, CT_LIFETIME_CALL, rows * sizeof(ct_ranked));
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_multibox_rule *s = l->state;
    const ct_shape *truth = &in->bottom[3]->data.shape;
    multibox_plan *r = in->state;
    int64_t n_prior = 0;

    CT_TRY(ct_box_check_bottoms(l, in, s->n_class, s->loc_class, &n_prior));
    if (ct_shape_count(truth, 0, -1) % 8 != 0)
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "bottom 3 (true boxes) has shape %s: rows of 8",
                             ct_shape_str(truth).text);
    *r = (multibox_plan){ in->bottom[0]->data.shape.dim[0], n_prior,
                          ct_shape_count(truth, 0, -1) / 8, 0, 1.0 };
    if ((truth->ndim == 3) && (truth->dim[0] == r->n) && (truth->dim[2] == 8))
        r->per_sample = truth->dim[1];
    declare_buffers(s, r, in);
    ct_blob_set_shape(in->top[0], &(ct_shape){ 0 });
    return CT_OK;
}

static ct_priors priors_of(const ct_multibox_rule *s, const multibox_plan *r, const ct_instance *in)
{
    const float *prior = ct_blob_data(in->bottom[2]);

    return (ct_priors){ r->n_prior, prior, prior + 4 * r->n_prior, s->p->code_type,
                        s->p->encode_variance_in_target };
}

static truth_table table_of(const multibox_plan *r, const ct_instance *in)
{
    int64_t *start = in->buffer[ROWS].data;

    return (truth_table){ start, (const float **)(void *)(start + r->n + 1),
                          in->buffer[PAIRS].data };
}

/* The sample of a row; -1: it does not count. */
static ct_status check_row(const ct_layer *l, const ct_exec *ex, const multibox_plan *r,
                           const float *row, int64_t at, int64_t *sample_p)
{
    const ct_multibox_rule *s = l->state;
    int64_t before = (r->per_sample > 0) ? at / r->per_sample : 0; /* samples */
    float number = (r->per_sample > 0) ? (float)before : row[0];
    int32_t sample = -1, label = -1;
    bool good;

    *sample_p = -1;
    if ((row[0] == -1.0f) || (!s->p->use_difficult_gt && (row[7] != 0.0f))) return CT_OK;
    good = ct_label_class(number, r->n, &sample) &&
           ct_label_class(row[1], s->p->map_object_to_agnostic ? INT32_MAX : s->n_class, &label) &&
           (label != s->background) && (row[5] > row[3]) && (row[6] > row[4]);
    for (int i = 3; i < 7; i++) good = good && isfinite(row[i]);
    if (!good)
        return CT_LAYER_FAIL(l, CT_ERR_DATA,
                             "true box %lld of batch %lld: sample %g of %lld, class %g of %lld "
                             "(background %d), %g %g %g %g",
                             (long long)at, (long long)ex->micro_step, (double)number,
                             (long long)r->n, (double)row[1], (long long)s->n_class, s->background,
                             (double)row[3], (double)row[4], (double)row[5], (double)row[6]);
    *sample_p = sample;
    return CT_OK;
}

/* Rows by sample, in their order. */
static ct_status sort_rows(const ct_layer *l, const ct_instance *in, const ct_exec *ex,
                           const truth_table *t)
{
    const multibox_plan *r = in->state;
    const float *row = ct_blob_data(in->bottom[3]);
    int64_t sample;

    memset(t->start, 0, ((size_t)r->n + 1) * sizeof(t->start[0]));
    for (int64_t k = 0; k < r->n_row; k++) {
        CT_TRY(check_row(l, ex, r, row + 8 * k, k, &sample));
        if (sample >= 0) t->start[sample + 1]++;
    }
    for (int64_t i = 0; i < r->n; i++) t->start[i + 1] += t->start[i];
    for (int64_t k = 0; k < r->n_row; k++) {
        CT_TRY(check_row(l, ex, r, row + 8 * k, k, &sample));
        if (sample >= 0) t->box[t->start[sample]++] = row + 8 * k + 3;
    }
    for (int64_t i = r->n; i > 0; i--) t->start[i] = t->start[i - 1];
    t->start[0] = 0;
    return CT_OK;
}

static ct_multibox_sample sample_of(const ct_layer *l, const ct_instance *in, int64_t i)
{
    const ct_multibox_rule *s = l->state;
    const multibox_plan *r = in->state;
    truth_table t = table_of(r, in);
    int64_t at = i * r->n_prior;
    float *decoded = in->buffer[DECODED].data;
    ct_multibox_sample m = { .rule = s, .prior = priors_of(s, r, in) };

    m.truth = (ct_truth){ t.start[i + 1] - t.start[i], t.box + t.start[i] };
    m.loc = ct_blob_data(in->bottom[0]) + at * 4 * s->loc_class;
    m.conf = ct_blob_data(in->bottom[1]) + at * s->n_class;
    m.match = (int32_t *)in->buffer[MATCH].data + at;
    m.target = (int32_t *)in->buffer[TARGET].data + at;
    if (in->buffer[OVERLAP].data == NULL) return m;
    m.overlap = (float *)in->buffer[OVERLAP].data + at;
    m.ranked = (ct_ranked *)in->buffer[RANKED].data + at;
    m.best = (t.best != NULL) ? t.best + t.start[i] : NULL;
    m.decoded = (decoded != NULL) ? decoded + 4 * at : NULL;
    return m;
}

/* How many boxes match. */
static int count_sums(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    const ct_multibox_rule *s = l->state;

    (void)in;
    return (forward && (k == 0) && ct_loss_counts(&s->loss)) ? 1 : 0;
}

/* Where the hardest boxes are looked for, what matches depends on all bottoms. */
static ct_status match(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_multibox_rule *s = l->state;
    const multibox_plan *r = in->state;
    truth_table t = table_of(r, in);
    ct_priors prior = priors_of(s, r, in);
    double *matched = in->buffer[LOSS].data, *loss = matched + 1;
    int64_t bad;

    if (!ct_box_priors_ok(&prior, &bad))
        return CT_LAYER_FAIL(l, CT_ERR_DATA, "prior %lld is no box with positive variances",
                             (long long)bad);
    CT_TRY(sort_rows(l, in, ex, &t));
#pragma omp parallel for schedule(dynamic)
    for (int64_t i = 0; i < r->n; i++) {
        ct_multibox_sample m = sample_of(l, in, i);
        int64_t here;

        ct_multibox_match(&m);
        ct_multibox_targets(&m);
        loss[i] = ct_multibox_sum(&m, &here);
        loss[r->n + i] = (double)here;
    }
    *matched = 0;
    for (int64_t i = 0; i < r->n; i++) *matched += loss[r->n + i];
    return CT_OK;
}

/* The last part only divides. */
static ct_status forward_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    const ct_multibox_rule *s = l->state;
    multibox_plan *r = in->state;
    const double *matched = in->buffer[LOSS].data, *loss = matched + 1;
    double sum = 0;

    if (part == 0) CT_TRY(match(l, in, ex));
    if (count_sums(l, in, true, part) > 0) return CT_OK;
    for (int64_t i = 0; i < r->n; i++) sum += loss[i];
    CT_TRY(ct_loss_divisor_of(&s->loss, ex, r->n * r->n_prior, matched, r->n, &r->divisor));
    *ct_blob_data(in->top[0]) = (float)(sum / r->divisor);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_multibox_rule *s = l->state;
    const multibox_plan *r = in->state;
    double scale = (double)ct_loss_weight(in) / r->divisor;
    float *dloc = ct_blob_diff(in->bottom[0]), *dconf = ct_blob_diff(in->bottom[1]);

    (void)ex;
    if (dloc != NULL) memset(dloc, 0, ct_tensor_bytes(&in->bottom[0]->diff));
    if (dconf != NULL) memset(dconf, 0, ct_tensor_bytes(&in->bottom[1]->diff));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < r->n; i++) {
        ct_multibox_sample m = sample_of(l, in, i);
        int64_t at = i * r->n_prior;

        ct_multibox_gradient(&m, scale, (dloc != NULL) ? dloc + at * 4 * s->loc_class : NULL,
                             (dconf != NULL) ? dconf + at * s->n_class : NULL);
    }
    return CT_OK;
}

static const ct_sum_ops sums = { .count = count_sums, .slot = LOSS, .forward = forward_part };

const ct_layer_ops ct_layer_multibox_loss = {
    .type = "MultiBoxLoss",
    .params = "loss_param multibox_loss_param",
    .min_bottom = 4,
    .max_bottom = 4,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 2 | 1 << 3,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(ct_multibox_rule),
    .instance_state_size = sizeof(multibox_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = ct_layer_forward_parts,
    .backward = backward,
    .sums = &sums,
};
