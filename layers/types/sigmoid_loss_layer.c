/* SigmoidCrossEntropyLoss: of each element -t log s - (1 - t) log(1 - s), s = sigmoid(x), computed
 * as ln(1 + e^x) - t x. (CFLAGS_sigmoid_loss_layer in the Makefile: its choices become vectors.) */
#include <math.h>

#include "framework/base/simd.h"
#include "framework/math/scalar.h"
#include "layers/types/layer_types.h"
#include "layers/types/loss.h"

enum { LANES = 16 }; /* sums in so many, whatever the width of the processor's vectors */

enum { COUNTED }; /* buffer: how many targets count, of this rank and then of all */

typedef ct_sigmoid_loss sigmoid_state;

typedef struct sigmoid_plan {
    double divisor; /* of the last forward */
} sigmoid_plan;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    sigmoid_state *s = l->state;
    float g;

    (void)bottom;
    s->rule = ct_loss_rule_read(l, CT__LOSS_PARAMETER__NORMALIZATION_MODE__BATCH_SIZE);
    s->above = s->below = INFINITY;
    g = (float)s->rule.ignore;
    if (!s->rule.has_ignore) return CT_OK;
    s->above = (g > 0.0f) ? nextafterf(g, -INFINITY) : g - 1.0f;
    s->below = (g < 0.0f) ? nextafterf(g, INFINITY) : g + 1.0f;
    return CT_OK;
}

/* The targets that count. On devices a form does it all. */
static int count_sums(const ct_layer *l, const ct_instance *in, bool forward, int k)
{
    const sigmoid_state *s = l->state;

    (void)in;
    return (forward && (k == 0) && (l->dev->kind == CT_DEVICE_CPU) && ct_loss_counts(&s->rule)) ? 1
                                                                                                : 0;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    bool counts = (count_sums(l, in, true, 0) > 0);

    /* the divisor, where labels decide it; on devices backward reads it */
    ct_instance_buffer(in, COUNTED, counts ? CT_LIFETIME_CALL : CT_LIFETIME_PASS,
                       (counts || (l->dev->kind != CT_DEVICE_CPU)) ? sizeof(double) : 0);
    return ct_loss_reshape_pair(l, in, 0, 1);
}

typedef struct cross_entropy {
    const sigmoid_state *s;
    const float *x, *t;
} cross_entropy;

/* Adds to LANES sums. */
CT_SIMD_CLONES
static void add_losses(const cross_entropy *e, int64_t from, int64_t n, double *sum)
{
    const float *x = e->x + from, *t = e->t + from;
    float above = e->s->above, below = e->s->below;

    for (int64_t i = 0; i < n; i += LANES) {
        float of[LANES] = { 0 };
        int len = (n - i < LANES) ? (int)(n - i) : LANES;

#pragma omp simd
        for (int j = 0; j < len; j++) {
            float v = ct_softplus_f32(x[i + j]) - t[i + j] * x[i + j];

            of[j] = ((t[i + j] > above) & (t[i + j] < below)) ? 0.0f : v;
        }
#pragma omp simd
        for (int j = 0; j < LANES; j++) sum[j] += (double)of[j];
    }
}

static double sum_part(const void *ctx, int64_t from, int64_t to)
{
    double part[LANES] = { 0 }, sum = 0;

    add_losses(ctx, from, to - from, part);
    for (int j = 0; j < LANES; j++) sum += part[j];
    return sum;
}

static double count_part(const void *ctx, int64_t from, int64_t to)
{
    const cross_entropy *e = ctx;
    int64_t n = 0;

    for (int64_t i = from; i < to; i++) n += !((e->t[i] > e->s->above) && (e->t[i] < e->s->below));
    return (double)n;
}

/* Where targets are counted, part 0 does that, from the targets alone. */
static ct_status forward_part(const ct_layer *l, ct_instance *in, ct_exec *ex, int part)
{
    sigmoid_plan *plan = in->state;
    cross_entropy e = { l->state, ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]) };
    int64_t n = ct_tensor_count(&in->bottom[0]->data);
    double *counted = in->buffer[COUNTED].data;

    if ((part == 0) && ct_loss_counts(&e.s->rule)) {
        *counted = ct_loss_sum(n, n, count_part, &e);
        return CT_OK;
    }
    CT_TRY(ct_loss_divisor_of(&e.s->rule, ex, n, counted, in->bottom[0]->data.shape.dim[0],
                              &plan->divisor));
    ct_blob_data(in->top[0])[0] = (float)(ct_loss_sum(n, n, sum_part, &e) / plan->divisor);
    return CT_OK;
}

CT_SIMD_CLONES
static void gradient(const cross_entropy *e, int64_t from, int64_t n, float scale, float *dx)
{
    const float *x = e->x + from, *t = e->t + from;
    float above = e->s->above, below = e->s->below;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = scale * (ct_sigmoid_f32(x[i]) - t[i]);

        dx[i] = ((t[i] > above) & (t[i] < below)) ? 0.0f : v;
    }
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    enum { CHUNK = 2048 };
    const sigmoid_plan *plan = in->state;
    cross_entropy e = { l->state, ct_blob_data(in->bottom[0]), ct_blob_data(in->bottom[1]) };
    float *dx = ct_blob_diff(in->bottom[0]);
    float scale = (float)((double)ct_loss_weight(in) / plan->divisor);
    int64_t n = ct_tensor_count(&in->bottom[0]->data);

    (void)ex;
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (n >= CT_PARALLEL_MIN)
    for (int64_t at = 0; at < n; at += CHUNK)
        gradient(&e, at, (at + CHUNK < n) ? CHUNK : n - at, scale, dx + at);
    return CT_OK;
}

static const ct_sum_ops sums = { .count = count_sums,
                                 .slot = COUNTED,
                                 .first_bottoms = 1u << 1,
                                 .first_buffers = 1u << COUNTED,
                                 .forward = forward_part };

const ct_layer_ops ct_layer_sigmoid_loss = {
    .type = "SigmoidCrossEntropyLoss",
    .params = "loss_param",
    .min_bottom = 2,
    .max_bottom = 2,
    .min_top = 1,
    .max_top = 1,
    .is_loss = true,
    .top_is_share = true,
    .no_diff_bottom = 1 << 1,
    .backward_reads = CT_READS_BOTTOM,
    .state_size = sizeof(sigmoid_state),
    .instance_state_size = sizeof(sigmoid_plan),
    .setup = setup,
    .reshape = reshape,
    .forward = ct_layer_forward_parts,
    .backward = backward,
    .sums = &sums,
};
