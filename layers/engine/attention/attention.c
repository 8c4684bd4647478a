/* Which engines of attention there are, and the reference: the whole matrix of probabilities, as
 * the formulas stand, in double. The order of a table is the choice of "auto". */
#include "layers/engine/attention/attention.h"

#include <math.h>

#include "framework/base/bf16.h"
#include "framework/base/rng.h"

const ct_attention_impl *const ct_attention_forward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_attention_cuda_forward,
#endif
    &ct_attention_flash_forward,
    &ct_attention_ref_forward, /* last: written to be read, oracle of the others */
    NULL,
};
const ct_attention_impl *const ct_attention_backward_table[] = {
#ifdef CT_HAVE_CUDA
    &ct_attention_cuda_backward,
#endif
    &ct_attention_flash_backward,
    &ct_attention_ref_backward,
    NULL,
};

double ct_attention_pairs(const ct_attention_desc *d)
{
    double pairs = 0;

    for (int64_t i = 0; i < d->tq; i++) {
        int64_t from, to;

        ct_attention_sees(d, i + ct_attention_shift(d), &from, &to);
        pairs += (double)(to - from);
    }
    return pairs;
}

void ct_attention_turns(int64_t first, int64_t n, int64_t dim, double base, float *turn)
{
    int64_t half = dim / 2;

    for (int64_t i = 0; i < half; i++) {
        double speed = pow(base, -2.0 * (double)i / (double)dim);

        for (int64_t p = 0; p < n; p++) {
            turn[p * dim + i] = (float)cos((double)(first + p) * speed);
            turn[p * dim + half + i] = (float)sin((double)(first + p) * speed);
        }
    }
}

void ct_attention_alone(const ct_attention_desc *d, const ct_attention_args *a, int64_t i,
                        ct_attention_desc *own_p, ct_attention_args *args_p)
{
    int64_t at = a->at[i];

    *own_p = *d;
    own_p->n = 1;
    own_p->tq = own_p->tk = a->at[i + 1] - at;
    *args_p = *a;
    args_p->at = NULL;
    args_p->q = ct_num_at(a->q, d->bf16, at * d->q_row);
    args_p->k = ct_num_at(a->k, d->bf16, at * d->k_row);
    args_p->v = ct_num_at(a->v, d->bf16, at * d->v_row);
    args_p->y = ct_num_to(a->y, d->bf16, at * d->heads * d->dim);
    if (a->segment != NULL) args_p->segment = a->segment + at;
}

/* ---- The definition. One head of one sequence at a time. */

typedef struct head {
    const ct_attention_desc *d;
    const ct_attention_args *a;
    int64_t sample, h;
    const float *q, *k, *v;       /* its first query, key and value */
    double *turned_q, *d_q;       /* tq x dim: turned by their positions; their gradient        */
    double *turned_k, *d_k, *d_v; /* tk x dim                                              */
    double *p, *dp;               /* tq x tk: probabilities; gradient, then that of scores */
    double *spare;                /* dim                                                   */
} head;

static bool ref_supports(const ct_attention_desc *d)
{
    return d->device == CT_DEVICE_CPU;
}

static size_t ref_workspace(const ct_attention_desc *d)
{
    return (size_t)((2 * d->tq + 3 * d->tk + 1) * d->dim + 2 * d->tq * d->tk) * sizeof(double);
}

/* y = x (dim numbers) turned by the angles of position p, the other way where back is set. */
static void turn_row(const ct_attention_desc *d, const float *turn, int64_t p, bool back,
                     const double *x, double *y)
{
    int64_t half = d->rope_dim / 2;

    for (int64_t c = d->rope_dim; c < d->dim; c++) y[c] = x[c];
    for (int64_t i = 0; i < half; i++) {
        int64_t one = d->interleaved ? 2 * i : i, other = d->interleaved ? 2 * i + 1 : i + half;
        double c = (double)turn[p * d->rope_dim + i];
        double s = (double)turn[p * d->rope_dim + half + i] * (back ? -1.0 : 1.0);
        double u = x[one], w = x[other];

        y[one] = u * c - w * s;
        y[other] = w * c + u * s;
    }
}

static void turn_rows(const head *t, const float *from, int64_t row, int64_t n, int64_t position,
                      double *to)
{
    const ct_attention_desc *d = t->d;

    for (int64_t i = 0; i < n; i++) {
        double *x = to + i * d->dim;

        for (int64_t c = 0; c < d->dim; c++) x[c] = (double)ct_num_get(from, d->bf16, i * row + c);
        turn_row(d, t->a->turn, i + position, false, x, x);
    }
}

static head make_head(const ct_attention_desc *d, const ct_attention_args *a, int64_t sample,
                      int64_t h)
{
    int64_t group = h / (d->heads / d->kv_heads);
    head t = { .d = d, .a = a, .sample = sample, .h = h };

    t.q = ct_num_at(a->q, d->bf16, sample * d->tq * d->q_row + h * d->dim);
    t.k = ct_num_at(a->k, d->bf16, sample * d->tk * d->k_row + group * d->dim);
    t.v = ct_num_at(a->v, d->bf16, sample * d->tk * d->v_row + group * d->dim);
    t.turned_q = a->work;
    t.d_q = t.turned_q + d->tq * d->dim;
    t.turned_k = t.d_q + d->tq * d->dim;
    t.d_k = t.turned_k + d->tk * d->dim;
    t.d_v = t.d_k + d->tk * d->dim;
    t.p = t.d_v + d->tk * d->dim;
    t.dp = t.p + d->tq * d->tk;
    t.spare = t.dp + d->tq * d->tk;
    turn_rows(&t, t.q, d->q_row, d->tq, ct_attention_shift(d), t.turned_q);
    turn_rows(&t, t.k, d->k_row, d->tk, 0, t.turned_k);
    return t;
}

static bool sees(const head *t, int64_t i, int64_t j)
{
    const float *segment = t->a->segment;
    int64_t p = i + ct_attention_shift(t->d), from, to;

    ct_attention_sees(t->d, p, &from, &to);
    if ((j < from) || (j >= to)) return false;
    if (segment == NULL) return true;
    segment += t->sample * t->d->tk;
    return segment[p] == segment[j];
}

/* Row i of p. */
static void probabilities(const head *t, int64_t i)
{
    const ct_attention_desc *d = t->d;
    double *p = t->p + i * d->tk, most = -INFINITY, sum = 0;

    for (int64_t j = 0; j < d->tk; j++) {
        double s = 0;

        for (int64_t c = 0; c < d->dim; c++)
            s += t->turned_q[i * d->dim + c] * t->turned_k[j * d->dim + c];
        p[j] = sees(t, i, j) ? s * (double)d->scale : -INFINITY;
        most = (p[j] > most) ? p[j] : most;
    }
    if (most == -INFINITY) most = 0;
    for (int64_t j = 0; j < d->tk; j++) {
        p[j] = exp(p[j] - most);
        sum += p[j];
    }
    for (int64_t j = 0; (sum > 0) && (j < d->tk); j++) p[j] /= sum;
    if (t->a->stats != NULL) {
        float *stats = t->a->stats + ((t->sample * d->heads + t->h) * d->tq + i) * 2;

        stats[0] = (float)(most / log(2.0));
        stats[1] = (sum > 0) ? (float)(1 / sum) : 0.0f;
    }
}

/* What dropout multiplies the probability of query i and key j by. */
static double kept(const head *t, int64_t i, int64_t j)
{
    const ct_attention_desc *d = t->d;
    uint64_t number = ct_attention_number(d, t->a->first + t->sample, t->h, i, j);

    if (d->drop_below == 0) return 1;
    return (ct_rng_philox(t->a->key, 0, number / 4).v[number % 4] < d->drop_below)
               ? 0
               : (double)d->keep_scale;
}

static void forward_head(const head *t)
{
    const ct_attention_desc *d = t->d;

    for (int64_t i = 0; i < d->tq; i++) {
        int64_t at = (t->sample * d->tq + i) * d->heads * d->dim + t->h * d->dim;

        probabilities(t, i);
        for (int64_t c = 0; c < d->dim; c++) {
            double sum = 0;

            for (int64_t j = 0; j < d->tk; j++) {
                double p = t->p[i * d->tk + j];

                if (p != 0)
                    sum += p * kept(t, i, j) * (double)ct_num_get(t->v, d->bf16, j * d->v_row + c);
            }
            ct_num_put(t->a->y, d->bf16, at + c, (float)sum);
        }
    }
}

static ct_status ref_forward(const ct_attention_desc *d, ct_exec *ex, const ct_attention_args *a)
{
    (void)ex;
    for (int64_t s = 0; s < d->n; s++) {
        ct_attention_desc own = *d;
        ct_attention_args args = *a;

        if (a->at != NULL) ct_attention_alone(d, a, s, &own, &args);
        for (int64_t h = 0; h < d->heads; h++) {
            head t = make_head(&own, &args, (a->at != NULL) ? 0 : s, h);

            forward_head(&t);
        }
    }
    return CT_OK;
}

/* Row i of the gradient of the scores, in dp; p becomes what was multiplied by the values. */
static void score_gradient(const head *t, int64_t i)
{
    const ct_attention_desc *d = t->d;
    int64_t at = (t->sample * d->tq + i) * d->heads * d->dim + t->h * d->dim;
    double *p = t->p + i * d->tk, *dp = t->dp + i * d->tk, dot = 0;

    for (int64_t j = 0; j < d->tk; j++) {
        dp[j] = 0;
        if (p[j] == 0) continue;
        for (int64_t c = 0; c < d->dim; c++)
            dp[j] += (double)ct_num_get(t->a->dy, d->bf16, at + c) *
                     (double)ct_num_get(t->v, d->bf16, j * d->v_row + c);
        dp[j] *= kept(t, i, j);
        dot += p[j] * dp[j];
    }
    for (int64_t j = 0; j < d->tk; j++) {
        dp[j] = p[j] * (dp[j] - dot);
        p[j] *= kept(t, i, j);
    }
}

/* Adds what this head gives to the gradients of keys and values, and makes that of its queries. */
static void backward_head(const head *t)
{
    const ct_attention_desc *d = t->d;
    double scale = (double)d->scale;

    for (int64_t i = 0; i < d->tq; i++) {
        int64_t at = (t->sample * d->tq + i) * d->heads * d->dim + t->h * d->dim;

        probabilities(t, i);
        score_gradient(t, i);
        for (int64_t c = 0; c < d->dim; c++) t->d_q[i * d->dim + c] = 0;
        for (int64_t j = 0; j < d->tk; j++) {
            double ds = scale * t->dp[i * d->tk + j], p = t->p[i * d->tk + j];

            if ((ds == 0) && (p == 0)) continue;
            for (int64_t c = 0; c < d->dim; c++) {
                t->d_v[j * d->dim + c] += p * (double)ct_num_get(t->a->dy, d->bf16, at + c);
                t->d_k[j * d->dim + c] += ds * t->turned_q[i * d->dim + c];
                t->d_q[i * d->dim + c] += ds * t->turned_k[j * d->dim + c];
            }
        }
    }
}

/* to[n][dim], rows apart, = from turned back. */
static void put_rows(const head *t, const double *from, int64_t n, int64_t position, bool turned,
                     int64_t row, float *to)
{
    const ct_attention_desc *d = t->d;
    double *x = t->spare;

    for (int64_t i = 0; i < n; i++) {
        const double *at = from + i * d->dim;

        for (int64_t c = 0; c < d->dim; c++) x[c] = at[c];
        if (turned) turn_row(d, t->a->turn, i + position, true, at, x);
        for (int64_t c = 0; c < d->dim; c++) ct_num_put(to, d->bf16, i * row + c, (float)x[c]);
    }
}

static void backward_group(const ct_attention_desc *d, const ct_attention_args *a, int64_t sample,
                           int64_t group)
{
    int64_t of_group = d->heads / d->kv_heads;

    for (int64_t g = 0; g < of_group; g++) {
        int64_t h = group * of_group + g;
        head t = make_head(d, a, sample, h);

        for (int64_t x = 0; (g == 0) && (x < d->tk * d->dim); x++) t.d_k[x] = t.d_v[x] = 0;
        backward_head(&t);
        if (a->dq != NULL)
            put_rows(&t, t.d_q, d->tq, ct_attention_shift(d), true, d->q_row,
                     ct_num_to(a->dq, d->bf16, sample * d->tq * d->q_row + h * d->dim));
        if (g + 1 < of_group) continue;
        if (a->dk != NULL)
            put_rows(&t, t.d_k, d->tk, 0, true, d->k_row,
                     ct_num_to(a->dk, d->bf16, sample * d->tk * d->k_row + group * d->dim));
        if (a->dv != NULL)
            put_rows(&t, t.d_v, d->tk, 0, false, d->v_row,
                     ct_num_to(a->dv, d->bf16, sample * d->tk * d->v_row + group * d->dim));
    }
}

static ct_status ref_backward(const ct_attention_desc *d, ct_exec *ex, const ct_attention_args *a)
{
    ct_attention_args again = *a;

    (void)ex;
    again.stats = NULL; /* made anew, more exactly */
    for (int64_t s = 0; s < d->n; s++) {
        for (int64_t g = 0; g < d->kv_heads; g++) backward_group(d, &again, s, g);
    }
    return CT_OK;
}

const ct_attention_impl ct_attention_ref_forward = {
    .name = "reference",
    .supports = ref_supports,
    .workspace = ref_workspace,
    .run = ref_forward,
};
const ct_attention_impl ct_attention_ref_backward = {
    .name = "reference",
    .supports = ref_supports,
    .workspace = ref_workspace,
    .run = ref_backward,
};
