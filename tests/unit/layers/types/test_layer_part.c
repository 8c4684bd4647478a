/* Parts of layers against the whole: first weights and random numbers bit by bit; tops and
 * gradients side by side, or added up, up to the order of sums. */
#include "tests/test.h"
#include "tests/layer_harness.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPLIT(_name) CT__PARALLEL_LAYER_PARAMETER__SPLIT__##_name

enum { MOST_PART = 4, WHOLE = -1 };

/* The axis of a blob that is cut, and its pieces; axis WHOLE: every part has all of it. */
typedef struct blob_cut {
    int axis;
    int64_t piece[CT_MAX_RANGE];
} blob_cut;

typedef struct part_case {
    const char *type, *text;
    Ct__ParallelLayerParameter__Split split;
    int n_bottom, most; /* parts; 0: MOST_PART */
    ct_shape bottom[3];
    blob_cut in[3], out; /* a top that is WHOLE is a sum of the parts' */
    int64_t unit;
    int in_axis;             /* of LayerPart */
    bool sums_in;            /* the bottoms' gradients add up */
    double terms;            /* of the longest sum; 0: the same bits */
    int64_t ids;             /* bottom 0 is whole numbers below */
    int64_t first, n_global; /* of the batch; n_global 0: all of it is here */
    int batch_axis;
    ct_phase phase;
} part_case;

static int n_piece(const blob_cut *c)
{
    int n = 0;

    while ((n < CT_MAX_RANGE) && (c->piece[n] > 0)) n++;
    return n;
}

/* What part i of `count` has of a blob: by the rule that the docs give, not by the layer's code. */
static ct_cut cut_of(const part_case *p, const blob_cut *b, const ct_shape *shape, int i, int count)
{
    ct_cut c = { .axis = b->axis, .whole = *shape };
    int64_t unit = (p->unit > 0) ? p->unit : 1, before = 0;

    if (b->axis == WHOLE) return c;
    c.n_range = n_piece(b);
    for (int k = 0; k < c.n_range; k++) {
        c.range[k] = ct_range_of(b->piece[k] / unit, i, count);
        c.range[k].first = before + c.range[k].first * unit;
        c.range[k].count *= unit;
        before += b->piece[k];
    }
    assert_int_equal(before, shape->dim[b->axis]);
    return c;
}

static double largest(const float *v, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs((double)v[i]));
    return most;
}

/* Of two sums of so many products in any order: each is off by at most terms roundings of the sum
 * of what its products are at most. */
static double tolerance_of(const part_case *p, const test_layer *t)
{
    double x = 1, w = 1, y = 1;

    for (int b = 0; b < t->layer.n_bottom; b++)
        x = fmax(x, largest(t->input[b], t->input_count[b]));
    for (int k = 0; k < t->layer.n_weight; k++)
        w = fmax(w, largest(t->weight[k], t->weight_count[k]));
    y = fmax(y, largest(t->top_diff[0], t->top_count[0]));
    return 2 * p->terms * (p->terms + 2) * (double)FLT_EPSILON * fmax(x * w, fmax(x * y, w * y));
}

/* v[n] is what `cut` has of `whole`. */
static void same_part(const part_case *p, const ct_cut *cut, const float *whole, const float *v,
                      double tolerance, const char *what)
{
    ct_shape s = ct_cut_shape(cut);
    int64_t n = ct_shape_count(&s, 0, -1);
    float *want = malloc((size_t)(n + 1) * sizeof(float));
    double *wide = malloc((size_t)(n + 1) * sizeof(double));
    char text[128];

    assert_true((want != NULL) && (wide != NULL));
    snprintf(text, sizeof(text), "%s, split %d: %s", p->type, (int)p->split, what);
    ct_cut_take(cut, whole, want);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)want[i];
    if (tolerance == 0)
        test_same(v, want, n, text);
    else
        test_near(v, wide, n, tolerance, text);
    free(want);
    free(wide);
}

static void same_sum(const part_case *p, const double *sum, const float *whole, int64_t n,
                     double tolerance, const char *what)
{
    float *all = malloc((size_t)(n + 1) * sizeof(float));
    double *wide = malloc((size_t)(n + 1) * sizeof(double));
    char text[128];

    assert_true((all != NULL) && (wide != NULL));
    snprintf(text, sizeof(text), "%s, split %d: %s", p->type, (int)p->split, what);
    for (int64_t i = 0; i < n; i++) {
        all[i] = (float)sum[i];
        wide[i] = (double)whole[i];
    }
    test_near(all, wide, n, fmax(tolerance, (double)FLT_EPSILON), text);
    free(all);
    free(wide);
}

static void set_batch(const part_case *p, test_layer *t)
{
    if (p->n_global == 0) return;
    t->ex.batch_axis = p->batch_axis;
    t->ex.batch_local = t->spec.bottom[0].dim[p->batch_axis];
    t->ex.batch_global = p->n_global;
    t->ex.batch_first = p->first;
}

static test_layer *make_whole(const part_case *p)
{
    test_layer_spec spec = { .type = p->type, .text = p->text, .n_bottom = p->n_bottom };
    test_layer *t;

    spec.phase = p->phase;
    memcpy(spec.bottom, p->bottom, sizeof(p->bottom));
    t = test_layer_make(&spec);
    set_batch(p, t);
    for (int64_t i = 0; (p->ids > 0) && (i < t->input_count[0]); i++)
        t->input[0][i] = (float)((i * 5 + 3) % p->ids);
    test_random(t->top_diff[0], t->top_count[0], 31, -1.0f, 1.0f);
    test_layer_pass(t);
    return t;
}

static test_layer_spec part_spec(const part_case *p, int i, int count, Ct__LayerPart *part)
{
    test_layer_spec spec = { .type = p->type, .text = p->text, .n_bottom = p->n_bottom };
    const blob_cut *by = (p->in[0].axis != WHOLE) ? &p->in[0] : &p->out;

    ct__layer_part__init(part);
    part->split = p->split;
    part->index = i;
    part->count = count;
    part->n_piece = (size_t)n_piece(by);
    part->piece = (int64_t *)by->piece;
    if (p->unit > 0) part->unit = p->unit;
    if (p->in[0].axis != WHOLE) part->axis = p->in[0].axis;
    spec.part = part;
    spec.phase = p->phase;
    for (int b = 0; b < p->n_bottom; b++) {
        ct_cut c = cut_of(p, &p->in[b], &p->bottom[b], i, count);

        spec.bottom[b] = ct_cut_shape(&c);
    }
    return spec;
}

typedef struct sums {
    double *top, *in[3], *weight[CT_MAX_WEIGHT]; /* of weights: where all parts have all of them */
} sums;

static void add(double *to, const float *v, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += (double)v[i];
}

static void check_weights(const part_case *p, const test_layer *whole, const test_layer *t,
                          double tolerance, sums *s)
{
    for (int w = 0; w < t->layer.n_weight; w++) {
        ct_cut c = t->layer.weight[w].cut;

        assert_true(ct_shape_equal(&c.whole, &whole->layer.weight[w].shape));
        same_part(p, &c, whole->weight[w], t->weight[w], 0, "first weights");
        same_part(p, &c, whole->weight_after[w], t->weight_after[w], tolerance, "statistics");
        if ((whole->weight_diff[w] != NULL) && (s->weight[w] != NULL))
            add(s->weight[w], t->weight_diff[w], t->weight_count[w]);
        else if (whole->weight_diff[w] != NULL)
            same_part(p, &c, whole->weight_diff[w], t->weight_diff[w], tolerance,
                      "a weight's gradient");
    }
}

static void run_part(const part_case *p, test_layer *whole, int i, int count, sums *s)
{
    double tolerance = tolerance_of(p, whole);
    ct_cut out = cut_of(p, &p->out, &whole->top_shape[0], i, count);
    Ct__LayerPart part;
    test_layer_spec spec = part_spec(p, i, count, &part);
    test_layer *t = test_layer_make(&spec);
    ct_shape top = ct_cut_shape(&out);

    set_batch(p, t);
    assert_true(ct_shape_equal(&top, &t->top_shape[0]));
    for (int b = 0; b < p->n_bottom; b++) {
        ct_cut c = cut_of(p, &p->in[b], &p->bottom[b], i, count);

        ct_cut_take(&c, whole->input[b], t->input[b]);
    }
    ct_cut_take(&out, whole->top_diff[0], t->top_diff[0]);
    test_layer_pass(t);
    check_weights(p, whole, t, tolerance, s);
    if (p->out.axis == WHOLE)
        add(s->top, t->top[0], t->top_count[0]);
    else
        same_part(p, &out, whole->top[0], t->top[0], tolerance, "the top");
    for (int b = 0; b < p->n_bottom; b++) {
        ct_cut c = cut_of(p, &p->in[b], &p->bottom[b], i, count);

        assert_true((t->input_diff[b] != NULL) == (whole->input_diff[b] != NULL));
        if (t->input_diff[b] == NULL) continue;
        if (p->in[b].axis == WHOLE)
            add(s->in[b], t->input_diff[b], t->input_count[b]);
        else
            same_part(p, &c, whole->input_diff[b], t->input_diff[b], tolerance,
                      "the bottom's gradient");
    }
    test_layer_destroy(t);
}

static double *zeros(int64_t n)
{
    double *v = calloc((size_t)n + 1, sizeof(double));

    assert_non_null(v);
    return v;
}

static void check(const part_case *p)
{
    int most = (p->most > 0) ? p->most : MOST_PART;
    test_layer *whole = make_whole(p);
    double tolerance = tolerance_of(p, whole);

    for (int count = 1; count <= most; count++) {
        sums s;

        if ((p->split == SPLIT(HEADS)) && (most % count != 0)) continue;
        s.top = zeros(whole->top_count[0]);
        for (int b = 0; b < p->n_bottom; b++) s.in[b] = zeros(whole->input_count[b]);
        for (int w = 0; w < CT_MAX_WEIGHT; w++)
            s.weight[w] = (p->split == SPLIT(SEQUENCE)) && (w < whole->layer.n_weight)
                              ? zeros(whole->weight_count[w])
                              : NULL;
        for (int i = 0; i < count; i++) run_part(p, whole, i, count, &s);
        if (p->out.axis == WHOLE)
            same_sum(p, s.top, whole->top[0], whole->top_count[0], tolerance, "the tops' sum");
        for (int b = 0; b < p->n_bottom; b++) {
            if ((p->in[b].axis == WHOLE) && (whole->input_diff[b] != NULL))
                same_sum(p, s.in[b], whole->input_diff[b], whole->input_count[b], tolerance,
                         "the bottom's gradients' sum");
            free(s.in[b]);
        }
        for (int w = 0; w < whole->layer.n_weight; w++) {
            if ((s.weight[w] != NULL) && (whole->weight_diff[w] != NULL))
                same_sum(p, s.weight[w], whole->weight_diff[w], whole->weight_count[w], tolerance,
                         "a weight's gradients' sum");
            free(s.weight[w]);
        }
        free(s.top);
    }
    test_layer_destroy(whole);
}

#define FILL(_name)                                                                                \
    _name " { weight_filler { type: 'gaussian' std: 0.5 } bias_filler { type: 'uniform' min: -1 "  \
          "max: 1 } "

static void test_inner_product_by_output(void **state)
{
    static const char *const text[] = { FILL("inner_product_param") "num_output: 11 }",
                                        FILL("inner_product_param") "num_output: 11 transpose: "
                                                                    "true }" };

    (void)state;
    for (int i = 0; i < 2; i++) {
        part_case p = { .type = "InnerProduct",
                        .text = text[i],
                        .split = SPLIT(OUTPUT),
                        .n_bottom = 1,
                        .bottom = { TEST_SHAPE(5, 3, 2, 3) },
                        .in = { { .axis = WHOLE } },
                        .out = { 1, { 11 } },
                        .terms = 18 + 1 };

        check(&p);
        p.out = (blob_cut){ 1, { 4, 3, 4 } }; /* as of queries, keys and values */
        p.most = 3;
        check(&p);
    }
}

static void test_inner_product_by_input(void **state)
{
    static const char *const text[] = {
        FILL("inner_product_param") "num_output: 6 }",
        FILL("inner_product_param") "num_output: 6 transpose: true }",
        FILL("inner_product_param") "num_output: 6 bias_term: false }",
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        part_case p = { .type = "InnerProduct",
                        .text = text[i],
                        .split = SPLIT(INPUT),
                        .n_bottom = 1,
                        .bottom = { TEST_SHAPE(4, 7, 2, 3) },
                        .in = { { 1, { 7 } } },
                        .out = { .axis = WHOLE },
                        .terms = 7 * 6 + 1 };

        check(&p);
        p.bottom[0] = TEST_SHAPE(4, 21); /* behind Flatten: three places of a channel */
        p.in[0] = (blob_cut){ 1, { 21 } };
        p.unit = 3;
        check(&p);
    }
}

static void test_inner_product_of_tokens(void **state)
{
    part_case p = { .type = "InnerProduct",
                    .text = FILL("inner_product_param") "num_output: 9 axis: 2 }",
                    .split = SPLIT(OUTPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(2, 3, 10) },
                    .in = { { .axis = WHOLE } },
                    .out = { 2, { 9 } },
                    .terms = 11 };

    (void)state;
    check(&p);
    p.split = SPLIT(INPUT);
    p.in[0] = (blob_cut){ 2, { 5, 5 } };
    p.out = (blob_cut){ .axis = WHOLE };
    check(&p);
}

#define CONV(_more) FILL("convolution_param") "kernel_size: 3 pad: 1 stride: 2 " _more " }"

static void test_convolution(void **state)
{
    part_case p = { .type = "Convolution",
                    .text = CONV("num_output: 7"),
                    .split = SPLIT(OUTPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(2, 5, 6, 7) },
                    .in = { { .axis = WHOLE } },
                    .out = { 1, { 7 } },
                    .terms = 7 * 9 + 1 };

    (void)state;
    check(&p);
    p.split = SPLIT(INPUT);
    p.in[0] = (blob_cut){ 1, { 5 } };
    p.out = (blob_cut){ .axis = WHOLE };
    check(&p);
}

/* Each part has some of the groups. */
static void test_convolution_in_groups(void **state)
{
    part_case p = { .type = "Convolution",
                    .text = CONV("num_output: 10 group: 5"),
                    .split = SPLIT(OUTPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(2, 15, 6, 5) },
                    .in = { { 1, { 15 } } },
                    .out = { 1, { 15 } },
                    .unit = 3,
                    .terms = 3 * 9 + 1 };

    (void)state;
    p.bottom[0].dim[1] = p.in[0].piece[0] = 10;
    p.out.piece[0] = 10;
    p.unit = 2;
    check(&p);
    p.type = "DepthwiseConvolution";
    p.text = CONV("num_output: 10");
    p.unit = 1;
    check(&p);
}

static void test_embed(void **state)
{
    part_case p = { .type = "Embed",
                    .text = FILL("embed_param") "input_dim: 13 num_output: 7 }",
                    .split = SPLIT(OUTPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(3, 6) },
                    .in = { { .axis = WHOLE } },
                    .out = { 2, { 7 } },
                    .ids = 13 };

    (void)state;
    check(&p);
    p.split = SPLIT(INPUT);
    p.out = (blob_cut){ WHOLE, { 13 } };
    check(&p);
    p.text = FILL("embed_param") "input_dim: 13 num_output: 7 bias_term: false }";
    check(&p);
}

/* Rows that somebody else adds up. */
typedef struct taken_rows {
    const test_layer *t;
    double *sum; /* of the part's table */
    int n;       /* calls               */
} taken_rows;

static ct_status take_rows(void *ctx, const float *dw, int64_t m, const int32_t *index,
                           const float *value, bool *taken_p)
{
    taken_rows *r = ctx;
    int64_t width = r->t->layer.weight[0].shape.dim[1];

    if (dw != ct_blob_diff(&r->t->instance.weight[0])) return CT_ERR_ARG;
    for (int64_t i = 0; i < m * width; i++) {
        int64_t row = index[i / width];

        if ((row < 0) || (row >= r->t->layer.weight[0].shape.dim[0])) return CT_ERR_ARG;
        r->sum[row * width + i % width] += (double)value[i];
    }
    r->n++;
    *taken_p = true;
    return CT_OK;
}

/* Of a table in parts the rows of a batch that each has, and no other; one part has none. */
static void test_embed_rows(void **state)
{
    part_case p = { .type = "Embed",
                    .text = FILL("embed_param") "input_dim: 16 num_output: 5 }",
                    .split = SPLIT(INPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(3, 6) },
                    .in = { { .axis = WHOLE } },
                    .out = { WHOLE, { 16 } },
                    .ids = 12 };
    test_layer *whole = make_whole(&p);

    (void)state;
    for (int i = 0; i < 4; i++) {
        Ct__LayerPart part;
        test_layer_spec spec = part_spec(&p, i, 4, &part);
        test_layer *t = test_layer_make(&spec);
        taken_rows r = { .t = t, .sum = zeros(t->weight_count[0]) };
        ct_cut cut = t->layer.weight[0].cut;
        float *rows = malloc((size_t)t->weight_count[0] * sizeof(float));

        memcpy(t->input[0], whole->input[0], (size_t)t->input_count[0] * sizeof(float));
        memcpy(t->top_diff[0], whole->top_diff[0], (size_t)t->top_count[0] * sizeof(float));
        t->ex.rows = take_rows;
        t->ex.rows_ctx = &r;
        test_layer_pass(t);
        assert_int_equal(r.n, 1);
        for (int64_t k = 0; k < t->weight_count[0]; k++) rows[k] = (float)r.sum[k];
        /* sums of at most 2 numbers: rounded once, in any order */
        same_part(&p, &cut, whole->weight_diff[0], rows, 0, "rows of a table's gradient");
        free(r.sum);
        free(rows);
        test_layer_destroy(t);
    }
    test_layer_destroy(whole);
}

/* Their numbers are drawn by the heads of the whole. */
static void test_attention(void **state)
{
    part_case p = { .type = "Attention",
                    .text = "name: 'a' attention_param { num_heads: 6 num_kv_heads: 3 causal: true "
                            "dropout: 0.3 rope { } }",
                    .split = SPLIT(HEADS),
                    .n_bottom = 1,
                    .most = 3,
                    .bottom = { TEST_SHAPE(2, 5, 48) },
                    .in = { { 2, { 24, 12, 12 } } },
                    .out = { 2, { 24 } },
                    .first = 3,
                    .n_global = 9 };

    (void)state;
    check(&p);
    p.n_bottom = 3;
    for (int b = 0; b < 3; b++) {
        p.in[b] = (blob_cut){ 2, { (b == 0) ? 24 : 12 } };
        p.bottom[b] = TEST_SHAPE(2, 5, (b == 0) ? 24 : 12);
    }
    check(&p);
}

static void test_channels(void **state)
{
    static const struct {
        const char *type, *text;
    } of[] = {
        { "Scale", "scale_param { filler { type: 'gaussian' } bias_term: true bias_filler { "
                   "type: 'uniform' } }" },
        { "Bias", "bias_param { filler { type: 'gaussian' } }" },
        { "PReLU", "prelu_param { filler { type: 'uniform' } }" },
        { "BatchNorm", "" },
        { "BN", "bn_param { scale_filler { type: 'uniform' min: 1 max: 2 } shift_filler { type: "
                "'gaussian' } }" },
        { "SyncBN", "" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        for (int k = 0; k < 3; k++) {
            part_case p = { .type = of[i].type,
                            .text = of[i].text,
                            .split = SPLIT(OUTPUT),
                            .n_bottom = 1,
                            .bottom = { TEST_SHAPE(4, 11, 3, 5) },
                            .in = { { 1, { 11 } } },
                            .out = { 1, { 11 } } };

            if (k == 1) p.in[0] = p.out = (blob_cut){ 1, { 6, 5 } };
            if (k == 2) p.phase = CT_TEST;
            check(&p);
        }
    }
}

static void test_channels_of_tokens(void **state)
{
    part_case p = { .type = "Scale",
                    .text = "scale_param { axis: -1 filler { type: 'gaussian' } }",
                    .split = SPLIT(OUTPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(3, 4, 9) },
                    .in = { { 2, { 9 } } },
                    .out = { 2, { 9 } } };

    (void)state;
    check(&p);
    p.type = "Bias";
    p.text = "bias_param { axis: 1 num_axes: -1 filler { type: 'gaussian' } }";
    check(&p);
    p.type = "SwiGLU"; /* gate and up, each shared out for itself */
    p.text = "";
    p.bottom[0] = TEST_SHAPE(3, 4, 18);
    p.in[0] = (blob_cut){ 2, { 9, 9 } };
    check(&p);
}

static void test_dropout(void **state)
{
    part_case p = { .type = "Dropout",
                    .text = "name: 'drop' dropout_param { dropout_ratio: 0.4 }",
                    .split = SPLIT(OUTPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(3, 37, 3, 5) },
                    .in = { { 1, { 37 } } },
                    .out = { 1, { 37 } },
                    .first = 2,
                    .n_global = 11 };

    (void)state;
    check(&p);
    p.unit = 1;
    p.bottom[0] = TEST_SHAPE(3, 5, 1100);
    p.in[0] = p.out = (blob_cut){ 2, { 1100 } };
    check(&p);
    p.batch_axis = 1; /* steps x columns x features */
    check(&p);
    p.bottom[0] = TEST_SHAPE(7, 123);
    p.in[0] = p.out = (blob_cut){ 1, { 123 } };
    p.batch_axis = 0;
    check(&p);
    p.bottom[0] = TEST_SHAPE(3, 5, 1100); /* queries, keys and values */
    p.in[0] = p.out = (blob_cut){ 2, { 640, 300, 160 } };
    check(&p);
    p.bottom[0] = TEST_SHAPE(3, 5, 90);
    p.in[0] = p.out = (blob_cut){ 2, { 45, 45 } };
    check(&p);
    p.in[0] = p.out = (blob_cut){ 1, { 37 } };
    p.split = SPLIT(SEQUENCE);
    p.bottom[0] = TEST_SHAPE(3, 37, 29);
    p.in[0] = p.out = (blob_cut){ 1, { 37 } };
    check(&p);
}

/* What works behind the tokens has all of its weights, whose gradients add up. */
static void test_tokens(void **state)
{
    static const struct {
        const char *type, *text;
    } of[] = {
        { "LayerNorm", "layer_norm_param { scale_filler { type: 'gaussian' } }" },
        { "RMSNorm", "rms_norm_param { scale_filler { type: 'gaussian' } }" },
        { "Scale", "scale_param { axis: -1 filler { type: 'gaussian' } bias_term: true }" },
        { "Bias", "bias_param { axis: 2 filler { type: 'gaussian' } }" },
        { "Softmax", "softmax_param { axis: 2 }" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        part_case p = { .type = of[i].type,
                        .text = of[i].text,
                        .split = SPLIT(SEQUENCE),
                        .n_bottom = 1,
                        .bottom = { TEST_SHAPE(3, 7, 11) },
                        .in = { { 1, { 7 } } },
                        .out = { 1, { 7 } },
                        .terms = 21 };

        check(&p);
    }
}

/* ---- what cannot be */

static void refused(const part_case *p, int count, ct_status status, const char *text)
{
    Ct__LayerPart part;
    test_layer_spec spec = part_spec(p, count - 1, count, &part);

    test_layer_refused(&spec, status, text);
}

static void test_refused(void **state)
{
    part_case p = { .type = "PReLU",
                    .text = "prelu_param { channel_shared: true }",
                    .split = SPLIT(OUTPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(2, 8, 2, 2) },
                    .in = { { 1, { 8 } } },
                    .out = { 1, { 8 } } };

    (void)state;
    refused(&p, 2, CT_ERR_CONFIG, "it cannot be a part of a layer: split OUTPUT");
    p.text = "";
    p.split = SPLIT(SEQUENCE);
    refused(&p, 2, CT_ERR_CONFIG, "it cannot be a part of a layer: split SEQUENCE");
    p.split = SPLIT(OUTPUT);
    refused(&p, 9, CT_ERR_CONFIG, "8 channels in units of 1 cannot be shared out to 9 parts");
    p.type = "Scale";
    p.text = "scale_param { axis: 1 }";
    p.in[0] = (blob_cut){ 2, { 8 } };
    p.bottom[0] = TEST_SHAPE(2, 2, 8, 2);
    refused(&p, 2, CT_ERR_CONFIG, "it has no weight along axis 2, which parts are cut along");
    p.in[0] = (blob_cut){ 1, { 8 } };
    p.bottom[0] = TEST_SHAPE(2, 8, 2, 2);
    p.type = "Convolution";
    p.text = CONV("num_output: 4 group: 2");
    p.split = SPLIT(INPUT);
    refused(&p, 2, CT_ERR_CONFIG, "it cannot be a part of a layer: split INPUT");
    p.split = SPLIT(OUTPUT);
    refused(&p, 3, CT_ERR_CONFIG, "cut through one of");
    p.type = "Attention";
    p.text = "attention_param { num_heads: 6 num_kv_heads: 2 }";
    p.split = SPLIT(HEADS);
    refused(&p, 3, CT_ERR_CONFIG, "6 heads, 2 of keys, cannot be shared out to 3 parts");
}

/* A bottom that is not the part's, and pieces that nobody gave. */
static void test_other_bottom(void **state)
{
    part_case p = { .type = "InnerProduct",
                    .text = FILL("inner_product_param") "num_output: 3 }",
                    .split = SPLIT(INPUT),
                    .n_bottom = 1,
                    .bottom = { TEST_SHAPE(2, 8) },
                    .in = { { 1, { 8 } } },
                    .out = { .axis = WHOLE } };
    Ct__LayerPart part;
    test_layer_spec spec = part_spec(&p, 0, 2, &part);

    (void)state;
    spec.bottom[0].dim[1] = 5;
    test_layer_refused(&spec, CT_ERR_SHAPE, "cut along axis 1, is 2 4 (8), not 2 5 (10)");
    part.n_piece = 0;
    test_layer_refused(&spec, CT_ERR_CONFIG, "the channels of its whole bottom are missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inner_product_by_output),
        cmocka_unit_test(test_inner_product_by_input),
        cmocka_unit_test(test_inner_product_of_tokens),
        cmocka_unit_test(test_convolution),
        cmocka_unit_test(test_convolution_in_groups),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_embed_rows),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_channels),
        cmocka_unit_test(test_channels_of_tokens),
        cmocka_unit_test(test_dropout),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_other_bottom),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
