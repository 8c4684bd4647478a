#include "layers/types/head_loss.h"

#include <string.h>

#include "framework/base/bf16.h"
#include "layers/layer_util.h"
#include "layers/types/loss.h"

/* ---- made at join */

static ct_gemm_desc shape_of(const ct_head *h, ct_run_kind kind)
{
    bool t = h->transpose;

    if (kind == CT_RUN_FORWARD)
        return (ct_gemm_desc){ .tb = !t, .m = h->rows, .n = h->n, .k = h->k };
    if (kind == CT_RUN_BACKWARD_DATA)
        return (ct_gemm_desc){ .tb = t, .m = h->rows, .n = h->k, .k = h->n };
    return (ct_gemm_desc){ .ta = true, .m = t ? h->k : h->n, .n = t ? h->n : h->k, .k = h->rows };
}

static unsigned behind_of(const ct_head *h, ct_run_kind kind)
{
    if (!h->bias || (kind == CT_RUN_BACKWARD_DATA)) return 0;
    if (kind == CT_RUN_FORWARD) return CT_FUSE_BIAS;
    return h->transpose ? CT_FUSE_SUM_B : CT_FUSE_SUM_A;
}

/* Which matrices have 16 bits: CT_NARROW_… */
static unsigned narrow_of(const ct_head *h, ct_run_kind kind)
{
    if (!h->bf16) return 0;
    if (kind == CT_RUN_FORWARD) return CT_NARROW_A;
    if (kind == CT_RUN_BACKWARD_DATA) return CT_NARROW_C;
    return h->transpose ? CT_NARROW_A : CT_NARROW_B;
}

static size_t row_bytes(const ct_head *h)
{
    return (size_t)h->k * ct_num_size(h->bf16);
}

/* The same product of `rows` rows. */
static ct_product of_rows(const ct_product *p, ct_run_kind kind, int64_t rows)
{
    ct_product own = *p;

    if (kind == CT_RUN_BACKWARD_WEIGHT)
        own.d.k = rows;
    else
        own.d.m = rows;
    own.bias_desc.n = rows;
    return own;
}

/* A block of fewer rows may want more: its sums are cut elsewhere. */
static size_t most_work(const ct_head *h)
{
    size_t most = 0;

    for (int kind = 0; kind < CT_N_RUN; kind++) {
        for (int64_t rows = 1; rows <= h->rows; rows++) {
            ct_product p = of_rows(&h->product[kind], (ct_run_kind)kind, rows);
            size_t bytes = ct_product_workspace(&p);

            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static int64_t rows_of(const ct_head *h)
{
    int64_t rows = (int64_t)(CT_HEAD_BLOCK_BYTES / sizeof(float)) / h->most;

    if (rows < CT_HEAD_ROWS) rows = CT_HEAD_ROWS;
    return (rows < h->m) ? rows : h->m;
}

static bool fits(const ct_layer *l, const ct_instance *in, const ct_head *h)
{
    const ct_instance *loss = in->tail->of[CT_EPILOGUE_LOSS];
    const ct_softmax_loss *plan = loss->state;

    return (l->dev->kind == CT_DEVICE_CPU) && !plan->soft && ct_layer_takes_rows(in->bottom[0]) &&
           (plan->desc.outer == h->m) && (plan->desc.classes == h->n) && (plan->desc.inner == 1) &&
           ((size_t)h->m * (size_t)h->most * sizeof(float) >= CT_HEAD_LEAST);
}

static void reserve(ct_instance *in, const ct_head *h)
{
    bool wanted = in->bottom[0]->wants_diff;
    const ct_loss_rule *rule = h->loss->layer->state;
    size_t beside = rule->has_ignore ? (size_t)(h->rows * (h->k + 1)) : 0;

    ct_instance_buffer(in, CT_HEAD_BLOCK, CT_LIFETIME_CALL,
                       ct_align_up((size_t)(h->rows * h->n) * sizeof(float)) +
                           beside * sizeof(float));
    ct_instance_buffer(in, CT_HEAD_DIFF, CT_LIFETIME_PASS,
                       wanted ? (size_t)h->m * row_bytes(h) : 0);
    ct_instance_buffer(in, CT_HEAD_PLACE, CT_LIFETIME_PASS,
                       (wanted && rule->has_ignore) ? (size_t)h->m * sizeof(int32_t) : 0);
    ct_instance_buffer(h->loss, CT_SOFTMAX_LOSS_PROB, CT_LIFETIME_PASS, 0);
    if (((const ct_softmax_loss *)h->loss->state)->part != NULL)
        ct_softmax_loss_reserve(h->loss, h->rows, CT_LIFETIME_CALL);
}

bool ct_head_make(const ct_layer *l, ct_instance *in, ct_head *h, size_t *work_p)
{
    const Ct__LayerParameter *p;
    const ct_softmax_loss *plan = in->tail->of[CT_EPILOGUE_LOSS]->state;

    h->most = (plan->part != NULL) ? plan->part->most : h->n;
    if (!fits(l, in, h)) return false;
    h->rows = rows_of(h);
    h->bf16 = ct_blob_is_bf16(in->bottom[0]);
    for (int kind = 0; kind < CT_N_RUN; kind++) {
        ct_gemm_desc shape = shape_of(h, (ct_run_kind)kind);

        if (ct_product_make_narrow(l, (ct_run_kind)kind, &shape, behind_of(h, (ct_run_kind)kind),
                                   narrow_of(h, (ct_run_kind)kind), &h->product[kind]) != CT_OK) {
            ct_head_drop(h);
            return false;
        }
    }
    h->loss = in->tail->of[CT_EPILOGUE_LOSS];
    p = h->loss->layer->param;
    h->loss_weight = (p->n_loss_weight > 0) ? p->loss_weight[0] : 1.0f;
    *work_p = most_work(h);
    reserve(in, h);
    return true;
}

void ct_head_drop(ct_head *h)
{
    for (int kind = 0; kind < CT_N_RUN; kind++) ct_product_drop(&h->product[kind]);
}

/* ---- forward, block by block */

typedef struct walk {
    const ct_head *h;
    ct_instance *in;
    ct_exec *ex;
    void *work;
    float scale;      /* of the gradient of a score */
    int64_t at, done; /* rows seen, and those that count */
    double sum;
} walk;

/* Rows that count, their scores and labels. */
typedef struct block {
    int64_t n;
    const float *x;
    float *score;
    const int32_t *label;
} block;

static const int32_t *labels_of(const ct_head *h)
{
    return h->loss->buffer[CT_SOFTMAX_LOSS_LABEL].data;
}

static bool gathers(const ct_head *h)
{
    return ((const ct_loss_rule *)h->loss->layer->state)->has_ignore;
}

/* The next rows that count, brought together. */
static void gather(walk *w, block *b)
{
    const ct_head *h = w->h;
    const float *x = ct_blob_data(w->in->bottom[0]);
    const int32_t *label = labels_of(h);
    int32_t *place = w->in->buffer[CT_HEAD_PLACE].data;
    float *rows =
        (float *)((char *)b->score + ct_align_up((size_t)(h->rows * h->n) * sizeof(float)));
    int32_t *labels = (int32_t *)(rows + h->rows * h->k);

    for (; (w->at < h->m) && (b->n < h->rows); w->at++) {
        bool counts = (label[w->at] != CT_LABEL_IGNORED);

        if (place != NULL) place[w->at] = counts ? (int32_t)(w->done + b->n) : -1;
        if (!counts) continue;
        memcpy(ct_num_to(rows, h->bf16, b->n * h->k), ct_num_at(x, h->bf16, w->at * h->k),
               row_bytes(h));
        labels[b->n++] = label[w->at];
    }
    b->x = rows;
    b->label = labels;
}

/* False: there is none. */
static bool next_block(walk *w, block *b)
{
    const ct_head *h = w->h;
    int64_t left = h->m - w->at;

    *b = (block){ .score = w->in->buffer[CT_HEAD_BLOCK].data };
    if (gathers(h)) {
        gather(w, b);
        return b->n > 0;
    }
    b->n = (left < h->rows) ? left : h->rows;
    b->x = ct_num_at(ct_blob_data(w->in->bottom[0]), h->bf16, w->at * h->k);
    b->label = labels_of(h) + w->at;
    w->at += b->n;
    return b->n > 0;
}

static ct_status multiply(const walk *w, const block *b)
{
    const ct_head *h = w->h;
    ct_product p = of_rows(&h->product[CT_RUN_FORWARD], CT_RUN_FORWARD, b->n);

    return ct_product_run(
        &p, w->ex,
        &(ct_product_args){ .a = b->x,
                            .lda = h->k,
                            .b = ct_blob_data(&w->in->weight[0]),
                            .ldb = h->transpose ? h->n : h->k,
                            .c = b->score,
                            .ldc = h->n,
                            .bias = h->bias ? ct_blob_data(&w->in->weight[1]) : NULL,
                            .work = w->work });
}

/* Of the weight and the bias; either may not be wanted. The first block does as backward would. */
static ct_status weight_gradient(const walk *w, const block *b)
{
    const ct_head *h = w->h;
    ct_product p = of_rows(&h->product[CT_RUN_BACKWARD_WEIGHT], CT_RUN_BACKWARD_WEIGHT, b->n);
    ct_product_args g = { .a = b->score, .lda = h->n, .b = b->x, .ldb = h->k, .ldc = h->k };

    if (h->transpose)
        g = (ct_product_args){ .a = b->x, .lda = h->k, .b = b->score, .ldb = h->n, .ldc = h->n };
    g.c = ct_blob_diff(&w->in->weight[0]);
    g.sums = h->bias ? ct_blob_diff(&w->in->weight[1]) : NULL;
    g.beta = (w->done > 0) ? 1.0f : ct_weight_beta(w->in, w->ex, 0);
    g.sums_beta = ((w->done > 0) || !h->bias) ? 1.0f : ct_weight_beta(w->in, w->ex, 1);
    g.work = w->work;
    return ((g.c != NULL) || (g.sums != NULL)) ? ct_product_run(&p, w->ex, &g) : CT_OK;
}

static ct_status bottom_gradient(const walk *w, const block *b)
{
    const ct_head *h = w->h;
    ct_product p = of_rows(&h->product[CT_RUN_BACKWARD_DATA], CT_RUN_BACKWARD_DATA, b->n);
    float *dx = w->in->buffer[CT_HEAD_DIFF].data;

    if (w->in->buffer[CT_HEAD_DIFF].bytes == 0) return CT_OK;
    return ct_product_run(&p, w->ex,
                          &(ct_product_args){ .a = b->score,
                                              .lda = h->n,
                                              .b = ct_blob_data(&w->in->weight[0]),
                                              .ldb = h->transpose ? h->n : h->k,
                                              .c = ct_num_to(dx, h->bf16, w->done * h->k),
                                              .ldc = h->k,
                                              .work = w->work });
}

static bool wants_gradient(const ct_instance *in, const ct_head *h)
{
    return (in->buffer[CT_HEAD_DIFF].bytes > 0) || (ct_blob_diff(&in->weight[0]) != NULL) ||
           (h->bias && (ct_blob_diff(&in->weight[1]) != NULL));
}

/* The scores become probabilities, or what is left to be multiplied by the row's share. */
static ct_status sum_losses(walk *w, const ct_softmax_desc *d, const block *b)
{
    ct_instance *loss = w->h->loss;
    const ct_softmax_loss *plan = loss->state;
    double sum;

    if (plan->part != NULL) {
        CT_TRY(ct_softmax_loss_exchange(loss, w->ex, d, b->score, b->label, b->score, &sum));
    } else {
        CT_TRY(plan->engine->forward(d, w->ex, b->score, b->score));
        CT_TRY(plan->engine->loss(d, w->ex, b->score, b->label,
                                  loss->buffer[CT_SOFTMAX_LOSS_SCRATCH].data, &sum));
    }
    w->sum += sum;
    return CT_OK;
}

static ct_status score_gradient(const walk *w, const ct_softmax_desc *d, const block *b)
{
    const ct_instance *loss = w->h->loss;
    const ct_softmax_loss *plan = loss->state;

    if (plan->part != NULL)
        return plan->engine->loss_backward_part(d, w->ex, b->score,
                                                loss->buffer[CT_SOFTMAX_LOSS_SHARE].data, b->label,
                                                w->scale, b->score);
    return plan->engine->loss_backward(d, w->ex, b->score, b->label, w->scale, b->score);
}

static ct_status run_block(walk *w, const block *b)
{
    ct_softmax_desc d = { CT_DEVICE_CPU, b->n, w->h->n, 1 };

    CT_TRY(multiply(w, b));
    CT_TRY(sum_losses(w, &d, b));
    if (wants_gradient(w->in, w->h)) {
        CT_TRY(score_gradient(w, &d, b));
        CT_TRY(bottom_gradient(w, b));
        CT_TRY(weight_gradient(w, b));
    }
    w->done += b->n;
    return ct_exec_poll(w->ex);
}

/* Of a batch in which no row counts. */
static ct_status no_gradient(const walk *w)
{
    for (int i = 0; i < (w->h->bias ? 2 : 1); i++) {
        ct_blob *v = &w->in->weight[i];

        if ((ct_blob_diff(v) != NULL) && (ct_weight_beta(w->in, w->ex, i) == 0.0f))
            CT_TRY(ct_device_zero(w->ex, ct_tensor_count(&v->data), ct_blob_diff(v)));
    }
    return CT_OK;
}

ct_status ct_head_part(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_head *h,
                       void *work, int part)
{
    const ct_softmax_loss *plan = h->loss->state;
    walk w = { .h = h, .in = in, .ex = ex, .work = work };
    bool rest;
    block b;

    (void)l;
    CT_TRY(ct_softmax_loss_begin(h->loss->layer, h->loss, ex, part, &rest));
    if (!rest) return CT_OK;
    w.scale = (float)((double)h->loss_weight / plan->divisor);
    while (next_block(&w, &b)) CT_TRY(run_block(&w, &b));
    if (w.done == 0) CT_TRY(no_gradient(&w));
    ct_blob_data(h->loss->top[0])[0] = (float)(w.sum / plan->divisor);
    return CT_OK;
}

ct_status ct_head_forward(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_head *h,
                          void *work)
{
    CT_TRY(ct_head_part(l, in, ex, h, work, 0));
    if (ct_softmax_loss_count(h->loss->layer, h->loss, true, 0) == 0) return CT_OK;
    if (ex->sum_ranks != NULL)
        CT_TRY(ex->sum_ranks(ex->hook_ctx, h->loss->buffer[CT_SOFTMAX_LOSS_COUNTED].data, 1));
    return ct_head_part(l, in, ex, h, work, 1);
}

/* ---- backward */

ct_status ct_head_backward(const ct_layer *l, ct_instance *in, ct_exec *ex, const ct_head *h)
{
    const float *from = in->buffer[CT_HEAD_DIFF].data;
    const int32_t *place = in->buffer[CT_HEAD_PLACE].data;
    float *dx = ct_blob_diff(in->bottom[0]);
    size_t bytes = row_bytes(h);

    (void)ex;
    if (ct_loss_weight(h->loss) != h->loss_weight)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "its gradients were made in forward for a loss weight of %g, but "
                             "backward comes with %g; fuse: false keeps the scores",
                             (double)h->loss_weight, (double)ct_loss_weight(h->loss));
    if (dx == NULL) return CT_OK;
#pragma omp parallel for schedule(static) if (h->m * h->k >= CT_PARALLEL_MIN)
    for (int64_t i = 0; i < h->m; i++) {
        int64_t at = gathers(h) ? place[i] : i;

        if (at < 0)
            memset(ct_num_to(dx, h->bf16, i * h->k), 0, bytes);
        else
            memcpy(ct_num_to(dx, h->bf16, i * h->k), ct_num_at(from, h->bf16, at * h->k), bytes);
    }
    return CT_OK;
}
