/* Layers that carry values between the ranks of a divided net: each against the whole, where their
 * steps stand, and two stages under way with several micro-batches. Ranks are threads. */
#include "tests/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/net/net.h"
#include "tests/log_capture.h"
#include "tests/parsed_net.h"
#include "tests/transfer_ranks.h"

/* ---- nets whose transfers are described beside the text */

typedef struct described {
    const char *layer;
    int64_t part[TRANSFER_RANKS];
    int n_part, rank, axis, pieces;
    bool sum_gradients, gradient, bf16;
    int peer, tag;
    int64_t dim[4];
    int n_dim;
    int64_t batch;
} described;

static Ct__TransferParameter *transfer_of(const described *d)
{
    Ct__TransferParameter *p = malloc(sizeof(*p));

    ct__transfer_parameter__init(p);
    p->n_part = (size_t)d->n_part;
    if (d->n_part > 0) {
        p->part = malloc(sizeof(d->part));
        memcpy(p->part, d->part, sizeof(d->part));
    }
    p->rank = d->rank;
    p->axis = d->axis;
    if (d->pieces > 0) p->pieces = d->pieces;
    p->sum_gradients = d->sum_gradients;
    p->gradient = d->gradient;
    p->bf16 = d->bf16;
    p->peer = d->peer;
    p->tag = d->tag;
    p->batch_local = p->batch_global = d->batch;
    if (d->n_dim > 0) {
        p->shape = malloc(sizeof(*p->shape));
        ct__blob_shape__init(p->shape);
        p->shape->n_dim = (size_t)d->n_dim;
        p->shape->dim = malloc(sizeof(d->dim));
        memcpy(p->shape->dim, d->dim, sizeof(d->dim));
    }
    return p;
}

static ct_status open_as(const char *text, const ct_net_options *o, const described *d, int n,
                         parsed_net *f)
{
    memset(f, 0, sizeof(*f));
    f->param = (Ct__NetParameter *)test_parsed(&ct__net_parameter__descriptor, text);
    for (size_t i = 0; i < f->param->n_layer; i++) {
        for (int k = 0; k < n; k++) {
            if (strcmp(f->param->layer[i]->name, d[k].layer) == 0)
                f->param->layer[i]->transfer = transfer_of(&d[k]);
        }
    }
    return ct_net_create(f->param, o, &f->net);
}

/* unshared: every value has memory of its own, and the net is made sooner. */
static ct_status open_net(const char *text, const ct_net_env *env, const described *d, int n,
                          bool unshared, parsed_net *f)
{
    ct_net_options o = { .phase = CT_TRAIN, .env = *env, .unshared = unshared };

    return open_as(text, &o, d, n, f);
}

static ct_blob *blob_of(const parsed_net *f, const char *name)
{
    ct_blob *found = NULL;

    for (int b = 0; b < f->net->n_blob; b++) {
        if (strcmp(f->net->pass->blob[b]->name, name) == 0) found = f->net->pass->blob[b];
    }
    return found;
}

static const ct_param *param_of(const parsed_net *f, const char *key)
{
    for (int k = 0; k < f->net->n_param; k++) {
        if (strcmp(f->net->param[k].key, key) == 0) return &f->net->param[k];
    }
    return NULL;
}

/* ---- each layer against the whole.
 *
 * ids -> Embed -> x -> the layer -> y -> InnerProduct with the unit matrix -> times w, summed up.
 * Each number of x has a row of the table for itself: so its gradient is that of the table. All
 * numbers are small and whole, sums of them exact in f32 and in bf16, whatever the order. */

enum { N = 3, T = 5, C = 10, WHOLE = N * T * C };

typedef struct layer_case {
    const char *type;
    int axis, pieces;
    bool sum_gradients, bf16;
    int n;
} layer_case;

/* What a rank has, in the elements of the whole: dim long from `at` on. The last axis may be
 * several pieces, of each of which it has as much. */
typedef struct shard {
    int64_t dim[3], at[3];
    int pieces;
} shard;

typedef struct layer_run {
    const layer_case *c;
    transfer_rank *rank;
    shard x, y;
    int64_t part[TRANSFER_RANKS];
    float to[WHOLE], dx[WHOLE]; /* results, of this rank's shape */
    ct_status status;
    bool was_bf16;
    char steps[256];
} layer_run;

static const shard everything = { { N, T, C }, { 0, 0, 0 }, 1 };

static int64_t count_of(const shard *s)
{
    return s->dim[0] * s->dim[1] * s->dim[2];
}

/* Of element i of a shard the place in the whole. */
static int64_t place_of(const shard *s, int64_t i)
{
    int64_t c = i % s->dim[2], t = i / s->dim[2] % s->dim[1], n = i / s->dim[2] / s->dim[1];
    int64_t each = s->dim[2] / s->pieces;

    c = c / each * (C / s->pieces) + c % each;
    return ((n + s->at[0]) * T + t + s->at[1]) * C + c + s->at[2];
}

static bool differs(const layer_case *c, bool w)
{
    if (!w) return (strcmp(c->type, "SumParts") == 0) || (strcmp(c->type, "ReduceScatter") == 0);
    if (strcmp(c->type, "Gather") == 0) return c->sum_gradients;
    return true;
}

/* The numbers of x, and w: of the whole; other ones on each rank where they may be. */
static float x_at(const layer_case *c, int rank, int64_t at)
{
    return (float)((at * 5 + 3 + (differs(c, false) ? 7 * rank : 0)) % 17 - 8);
}

static float w_at(const layer_case *c, int rank, int64_t at)
{
    return (float)((at * 3 + 1 + (differs(c, true) ? 5 * rank : 0)) % 15 - 7);
}

static void set_weights(const parsed_net *f, const layer_run *r)
{
    float *table = f->net->weight_arena + param_of(f, "x[0]")->offset;
    float *unit = f->net->weight_arena + param_of(f, "ip[0]")->offset;
    int64_t last = r->y.dim[2];

    for (int64_t i = 0; i < count_of(&r->x); i++)
        table[i] = x_at(r->c, r->rank->rank, place_of(&r->x, i));
    for (int64_t i = 0; i < last * last; i++) unit[i] = (i % (last + 1) == 0) ? 1 : 0;
}

static ct_status open_case(const layer_run *r, parsed_net *f)
{
    ct_net_env env = { .n_rank = 1, .seed = 5 };
    const int64_t *x = r->x.dim, *y = r->y.dim;
    described d = { .layer = "t", .n_part = r->c->n, .rank = r->rank->rank, .axis = r->c->axis };
    char text[2048];

    memcpy(d.part, r->part, sizeof(d.part));
    d.sum_gradients = r->c->sum_gradients;
    d.pieces = r->c->pieces;
    if (r->c->bf16) env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    snprintf(text, sizeof(text),
             "layer { name: 'in' type: 'Input' top: 'ids' top: 'w' input_param {"
             "  shape { dim: %d dim: %d } shape { dim: %d dim: %d dim: %d } } }"
             "layer { name: 'x' type: 'Embed' bottom: 'ids' top: 'x' embed_param { bias_term: false"
             "  input_dim: %d num_output: %d } }"
             "layer { name: 't' type: '%s' bottom: 'x' top: 'y' }"
             "layer { name: 'ip' type: 'InnerProduct' bottom: 'y' top: 'z' param { lr_mult: 0 }"
             "  inner_product_param { num_output: %d axis: 2 bias_term: false } }"
             "layer { name: 'out' type: 'Power' bottom: 'z' top: 'out' }"
             "layer { name: 'm' type: 'Eltwise' bottom: 'z' bottom: 'w' top: 'm' eltwise_param {"
             "  operation: PROD } }"
             "layer { name: 's' type: 'Reduction' bottom: 'm' top: 's' loss_weight: 1 }",
             (int)x[0], (int)x[1], (int)y[0], (int)y[1], (int)y[2], (int)(x[0] * x[1]), (int)x[2],
             r->c->type, (int)y[2]);
    return open_net(text, &env, &d, 1, (r->c->n != 2) || (r->c->axis == 2) || r->c->bf16, f);
}

static void write_transfers(const ct_net *net, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < net->n_forward + net->n_backward; i++) {
        const ct_step *s =
            (i < net->n_forward) ? &net->forward[i] : &net->backward[i - net->n_forward];
        size_t at = strlen(text);

        if (!ct_step_is_pair(s) || ct_step_is_of_weights(s)) continue;
        snprintf(text + at, size - at, "%c%s ", (s->kind == CT_STEP_BEGIN) ? '+' : '-',
                 net->layer[s->layer]->name);
    }
}

static void *run_case(void *ctx)
{
    layer_run *r = ctx;
    parsed_net f;
    double loss;

    r->status = open_case(r, &f);
    if (r->status != CT_OK) return NULL;
    set_weights(&f, r);
    for (int64_t i = 0; i < r->x.dim[0] * r->x.dim[1]; i++)
        ct_blob_data(blob_of(&f, "ids"))[i] = (float)i;
    for (int64_t i = 0; i < count_of(&r->y); i++)
        ct_blob_data(blob_of(&f, "w"))[i] = w_at(r->c, r->rank->rank, place_of(&r->y, i));
    f.net->pass->exec.transfers = &transfer_rank_ops;
    f.net->pass->exec.transfers_ctx = r->rank;
    r->was_bf16 = ct_blob_is_bf16(blob_of(&f, "x")) && ct_blob_is_bf16(blob_of(&f, "y"));
    write_transfers(f.net, r->steps, sizeof(r->steps));
    r->status = ct_pass_forward(f.net->pass, &loss);
    /* y is gone, and out the same, for nobody reads it */
    for (int64_t i = 0; (r->status == CT_OK) && (i < count_of(&r->y)); i++)
        r->to[i] = ct_blob_data(blob_of(&f, "out"))[i];
    if (r->status == CT_OK) r->status = ct_pass_backward(f.net->pass, NULL, NULL);
    if (r->status == CT_OK)
        memcpy(r->dx, f.net->grad_arena + param_of(&f, "x[0]")->offset,
               (size_t)count_of(&r->x) * sizeof(float));
    if (f.net->pass->exec.n_transfer != 0) r->status = CT_ERR_ARG;
    parsed_net_close(&f);
    return NULL;
}

/* What y, or dx, must hold. */
static float must_be(const layer_case *c, int rank, bool forward, int64_t at)
{
    float (*of)(const layer_case *, int, int64_t) = forward ? x_at : w_at;
    bool sums = forward ? differs(c, false) : false;
    float sum = 0;

    if (!forward) {
        if (strcmp(c->type, "CopyToParts") == 0) sums = true;
        if (strcmp(c->type, "Gather") == 0) sums = c->sum_gradients;
    }
    if (!sums) return of(c, rank, at);
    for (int r = 0; r < c->n; r++) sum += of(c, r, at);
    return sum;
}

/* A gradient that is made of pieces comes from the rank that has the piece. */
static int owner_of(const layer_run *run, int rank, bool forward, int64_t at)
{
    const layer_case *c = run[0].c;
    bool pieces = !forward && ((strcmp(c->type, "ReduceScatter") == 0) ||
                               (strcmp(c->type, "ScatterToParts") == 0));
    int64_t index[3] = { at / (T * C), at / C % T, at % C };

    for (int r = 0; pieces && (r < c->n); r++) {
        const shard *y = &run[r].y;
        int64_t in = index[c->axis] % (everything.dim[c->axis] / c->pieces);

        if ((in >= y->at[c->axis]) && (in < y->at[c->axis] + y->dim[c->axis] / c->pieces)) return r;
    }
    return rank;
}

static void cut(const layer_case *c, layer_run *run)
{
    bool none = (strcmp(c->type, "CopyToParts") == 0) || (strcmp(c->type, "SumParts") == 0);
    int64_t length = everything.dim[c->axis] / c->pieces, at = 0, part[TRANSFER_RANKS] = { 0 };

    for (int r = 0; r < c->n; r++) part[r] = length / c->n + ((r < length % c->n) ? 1 : 0);
    for (int r = 0; r < c->n; r++) {
        shard mine = everything;

        mine.dim[c->axis] = c->pieces * part[r];
        mine.at[c->axis] = at;
        mine.pieces = c->pieces;
        at += part[r];
        memcpy(run[r].part, part, sizeof(part));
        run[r].x = run[r].y = everything;
        if (!none && (strcmp(c->type, "Gather") == 0)) run[r].x = mine;
        if (!none && (strcmp(c->type, "Gather") != 0)) run[r].y = mine;
    }
}

/* Which of forward and backward need other ranks. */
static const char *steps_of(const layer_case *c)
{
    bool twice = (strcmp(c->type, "ReduceScatter") == 0) || c->sum_gradients;

    return twice ? "+t -t +t -t " : "+t -t ";
}

static void check_case(const layer_case *c)
{
    static layer_run run[TRANSFER_RANKS];
    static transfer_ranks all;
    transfer_rank rank[TRANSFER_RANKS];

    memset(run, 0, sizeof(run));
    transfer_ranks_open(&all, c->n, rank);
    cut(c, run);
    for (int r = 0; r < c->n; r++) {
        run[r].c = c;
        run[r].rank = &rank[r];
    }
    transfer_ranks_run(&all, run_case, run, sizeof(run[0]));
    for (int r = 0; r < c->n; r++) {
        assert_int_equal(run[r].status, CT_OK);
        assert_int_equal(run[r].was_bf16, c->bf16);
        assert_string_equal(run[r].steps, steps_of(c));
        for (int64_t i = 0; i < count_of(&run[r].y); i++) {
            float y = must_be(c, r, true, place_of(&run[r].y, i));

            if (run[r].to[i] != y)
                fail_msg("%s axis %d, %d ranks, rank %d: y[%d] is %g, not %g", c->type, c->axis,
                         c->n, r, (int)i, run[r].to[i], y);
        }
        for (int64_t i = 0; i < count_of(&run[r].x); i++) {
            int64_t at = place_of(&run[r].x, i);
            float dx = must_be(c, owner_of(run, r, false, at), false, at);

            if (run[r].dx[i] != dx)
                fail_msg("%s axis %d, %d ranks, rank %d: dx[%d] is %g, not %g", c->type, c->axis,
                         c->n, r, (int)i, run[r].dx[i], dx);
        }
    }
    transfer_ranks_close(&all);
}

/* Along each axis that has a piece for every rank; the last one as two pieces, too. */
static void check_axes(layer_case c, bool cuts)
{
    for (int i = 0; i < (cuts ? 4 : 1); i++) {
        c.axis = (i < 3) ? i : 2;
        c.pieces = (i < 3) ? 1 : 2;
        if (cuts && (everything.dim[c.axis] < c.n)) continue;
        check_case(&c);
    }
}

static void test_layers(void **state)
{
    static const char *const type[] = { "CopyToParts", "SumParts", "Gather", "ReduceScatter",
                                        "ScatterToParts" };

    (void)state;
    setenv("CORTADO_POISON", "1", 1);
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < 2 * TRANSFER_RANKS; i++) {
            layer_case c = { .type = type[k], .n = i / 2 + 1, .bf16 = (i % 2 == 1) };

            check_axes(c, k >= 2);
            c.sum_gradients = (k == 2);
            if (k == 2) check_axes(c, true);
        }
    }
    unsetenv("CORTADO_POISON");
}

/* ---- where the steps stand */

#define DATA                                                                                       \
    "layer { name: 'in' type: 'DummyData' top: 'data' top: 'label' dummy_data_param {"             \
    "  shape { dim: 3 dim: 2 dim: 6 dim: 6 } shape { dim: 3 } data_filler { type: 'gaussian' }"    \
    "  data_filler { type: 'constant' value: 1 } } }"
#define CONV(_name, _bottom, _n)                                                                   \
    "layer { name: '" _name "' type: 'Convolution' bottom: '" _bottom "' top: '" _name             \
    "' convolution_param { num_output: " _n " kernel_size: 3 pad: 1 bias_term: false "             \
    " weight_filler { type: 'xavier' } } }"
#define ONE(_name, _type, _bottom)                                                                 \
    "layer { name: '" _name "' type: '" _type "' bottom: '" _bottom "' top: '" _name "' }"
#define HEAD(_bottom)                                                                              \
    "layer { name: 'ip' type: 'InnerProduct' bottom: '" _bottom "' top: 'ip'"                      \
    "  inner_product_param { num_output: 3 bias_term: false weight_filler { type: 'xavier' } } }"  \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }"
#define ADD(_a, _b)                                                                                \
    "layer { name: 'add' type: 'Eltwise' bottom: '" _a "' bottom: '" _b "' top: 'add' }"

static void write_list(const ct_net *net, const ct_step *list, int n, char *text, size_t size)
{
    text[0] = '\0';
    for (int i = 0; i < n; i++) {
        const ct_step *s = &list[i];
        const char *name = net->layer[s->layer]->name;
        size_t at = strlen(text);

        if (ct_step_is_of_weights(s) || (s->blob >= 0)) continue;
        if (ct_step_is_pair(s))
            snprintf(text + at, size - at, "%c%s ", (s->kind == CT_STEP_BEGIN) ? '+' : '-', name);
        else if (s->n_part > 1)
            snprintf(text + at, size - at, "%s.%d ", name, s->part);
        else
            snprintf(text + at, size - at, "%s ", name);
    }
}

static void has_lists(const char *text, const described *d, int n, const char *forward,
                      const char *backward)
{
    ct_net_env env = { .n_rank = 1, .seed = 5, .synthetic = true };
    char list[1024];
    parsed_net f;

    assert_int_equal(open_net(text, &env, d, n, false, &f), CT_OK);
    write_list(f.net, f.net->forward, f.net->n_forward, list, sizeof(list));
    assert_string_equal(list, forward);
    write_list(f.net, f.net->backward, f.net->n_backward, list, sizeof(list));
    assert_string_equal(list, backward);
    parsed_net_close(&f);
}

/* A branch without transfers runs while the other branch adds up, forward and backward, on one
 * replica, too. */
static void test_overlap(void **state)
{
    static const described d[] = { { .layer = "copy" }, { .layer = "sum" } };

    (void)state;
    has_lists(DATA CONV("c", "data", "4") ONE("copy", "CopyToParts", "c") CONV("a", "copy", "2")
                  ONE("relu", "ReLU", "a") CONV("p", "relu", "4") ONE("sum", "SumParts", "p")
                      CONV("b", "c", "4") ADD("sum", "b") HEAD("add"),
              d, 2, "in c c_c_0_split copy a p sum.0 +sum b -sum sum.1 add ip loss ",
              "loss ip add b sum p a copy.0 +copy -copy copy.1 c_c_0_split c ");
    has_lists(DATA CONV("c", "data", "4") CONV("b", "c", "4") ONE("copy", "CopyToParts", "c")
                  CONV("a", "copy", "2") ONE("relu", "ReLU", "a") CONV("p", "relu", "4")
                      ONE("sum", "SumParts", "p") ADD("sum", "b") HEAD("add"),
              d, 2, "in c c_c_0_split b copy a p sum.0 +sum -sum sum.1 add ip loss ",
              "loss ip add sum p a copy.0 +copy b -copy copy.1 c_c_0_split c ");
}

/* What comes from another stage is asked for first; what leaves is no pair of steps. */
static void test_stage_lists(void **state)
{
    static const described d[] = {
        { .layer = "send", .gradient = true, .peer = 1 },
        { .layer = "labels", .peer = 1, .tag = 1 },
        { .layer = "get", .gradient = true, .dim = { 3, 4, 6, 6 }, .n_dim = 4, .batch = 3 },
        { .layer = "label", .tag = 1, .dim = { 3 }, .n_dim = 1, .batch = 3 },
    };

    (void)state;
    has_lists(DATA CONV("c", "data", "4") "layer { name: 'send' type: 'Send' bottom: 'c' }"
                                          "layer { name: 'labels' type: 'Send' bottom: 'label' }",
              d, 4, "in c send labels ", "send.0 +send -send send.1 c ");
    has_lists("layer { name: 'get' type: 'Receive' top: 'x' }" CONV(
                  "b", "x", "4") "layer { name: 'label' type: 'Receive' top: 'label' }" HEAD("b"),
              d, 4, "get.0 +get label.0 +label -get get.1 b ip -label label.1 loss ",
              "loss ip b get ");
}

static bool lies_in(const void *a, size_t a_bytes, const ct_blob *b)
{
    const char *at = a, *from = b->data.data;

    return (at < from + ct_tensor_bytes(&b->data)) && (from < at + a_bytes);
}

/* Memory into which a value comes is nobody else's from its BEGIN on: not for what a layer computes
 * with until the value is waited for, either. */
static void test_memory_on_the_way(void **state)
{
    static const described d = { .layer = "all", .part = { 3 }, .n_part = 1, .axis = 0 };
    ct_net_options o = { .phase = CT_TEST, .env = { .n_rank = 1, .seed = 5, .synthetic = true } };
    int n_buffer = 0;
    char list[1024];
    parsed_net f;

    (void)state;
    assert_int_equal(
        open_as(DATA CONV("c", "data", "4")
                    ONE("all", "Gather",
                        "c") "layer { name: 'b' type: 'Convolution' bottom: 'data' top: 'b' "
                             "ct_kernel { forward: 'gemm' }"
                             "  convolution_param { num_output: 4 kernel_size: 3 pad: 1 } }" ADD(
                                 "b", "all") HEAD("add"),
                &o, &d, 1, &f),
        CT_OK);
    write_list(f.net, f.net->forward, f.net->n_forward, list, sizeof(list));
    assert_string_equal(list, "in data_in_0_split c all.0 +all b -all all.1 add ip loss ");
    for (int s = 0; s < CT_MAX_BUFFER; s++) {
        const ct_buffer *of_b = &f.net->pass->instance[ct_net_find_layer(f.net, "b")]->buffer[s];

        if ((of_b->bytes == 0) || (of_b->keep == CT_LIFETIME_ALWAYS)) continue;
        n_buffer++;
        assert_false(lies_in(of_b->data, of_b->bytes, blob_of(&f, "all")));
    }
    assert_true(n_buffer > 0); /* the columns of the pictures */
    parsed_net_close(&f);
}

/* ---- two stages, micro-batch after micro-batch, in the order of 1F1B */

enum { MICRO = 4, PASSES = 2, B = 3, X = 5, H = 6, Y = 3 };

#define LAYER_A                                                                                    \
    "layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a' inner_product_param {"            \
    "  num_output: 6 weight_filler { type: 'gaussian' std: 0.5 } } }"                              \
    "layer { name: 'act' type: 'Sigmoid' bottom: 'a' top: 'h' }"
#define LAYER_B                                                                                    \
    "layer { name: 'b' type: 'InnerProduct' bottom: 'h' top: 'b' inner_product_param {"            \
    "  num_output: 3 weight_filler { type: 'gaussian' std: 0.5 } } }"                              \
    "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'b' bottom: 'label' top: 'loss' }"
#define INPUT                                                                                      \
    "layer { name: 'in' type: 'Input' top: 'x' top: 'label' input_param { shape { dim: 3 dim: 5 }" \
    "  shape { dim: 3 } } }"

static const char whole_text[] = INPUT LAYER_A LAYER_B;
static const char *const stage_text[] = {
    INPUT LAYER_A "layer { name: 'send' type: 'Send' bottom: 'h' }"
                  "layer { name: 'send_label' type: 'Send' bottom: 'label' }",
    "layer { name: 'get' type: 'Receive' top: 'h' }"
    "layer { name: 'get_label' type: 'Receive' top: 'label' }" LAYER_B,
};

static const described crossing[] = {
    { .layer = "send", .gradient = true, .peer = 1 },
    { .layer = "send_label", .peer = 1, .tag = 1 },
    { .layer = "get", .gradient = true, .dim = { B, H }, .n_dim = 2, .batch = B },
    { .layer = "get_label", .tag = 1, .dim = { B }, .n_dim = 1, .batch = B },
};

typedef struct stage_run {
    transfer_rank *rank;
    bool ahead;
    double loss;
    float grad[2][H * X]; /* of the weights and bias of its layer */
    ct_status status;
} stage_run;

static void fill(const ct_pass *pass, int micro)
{
    const ct_net *net = pass->net;

    for (int b = 0; b < net->n_blob; b++) {
        if (strcmp(pass->blob[b]->name, "x") == 0) {
            for (int i = 0; i < B * X; i++)
                ct_blob_data(pass->blob[b])[i] = 0.25f * (float)((i * 7 + micro * 3) % 11 - 5);
        }
        if ((strcmp(pass->blob[b]->name, "label") == 0) && (net->layer[0]->n_top == 2)) {
            for (int i = 0; i < B; i++) ct_blob_data(pass->blob[b])[i] = (float)((i + micro) % Y);
        }
    }
}

static ct_status forward(ct_pass *pass, int micro, double *sum)
{
    double loss = 0;

    pass->exec.micro_step = micro;
    fill(pass, micro);
    CT_TRY(ct_pass_forward(pass, &loss));
    *sum += loss;
    return CT_OK;
}

static ct_status backward(ct_pass *pass, int micro)
{
    pass->exec.accumulate = (micro > 0);
    return ct_pass_backward(pass, NULL, NULL);
}

static void set_transfers(ct_pass *pass, transfer_rank *rank)
{
    pass->exec.transfers = &transfer_rank_ops;
    pass->exec.transfers_ctx = rank;
    pass->exec.seed = 5;
}

static void take_gradients(const parsed_net *f, const char *name, float grad[2][H * X])
{
    for (int w = 0; w < 2; w++) {
        char key[32];
        const ct_param *p;

        snprintf(key, sizeof(key), "%s[%d]", name, w);
        p = param_of(f, key);
        memcpy(grad[w], f->net->grad_arena + p->offset, (size_t)p->count * sizeof(float));
    }
}

static const float weight_a = 0.125f, weight_b = 0.25f;

/* The same in the whole net and in the stages. */
static void set_stage_weights(const parsed_net *f)
{
    for (int k = 0; k < f->net->n_param; k++) {
        const ct_param *p = &f->net->param[k];
        float unit = (p->layer[0] == 'a') ? weight_a : weight_b;

        for (int64_t i = 0; i < p->count; i++)
            f->net->weight_arena[p->offset + i] = unit * (float)((i * 5 + 2) % 9 - 4);
    }
}

/* Order of 1F1B: as many forwards first as there are stages behind, then one of each. */
static ct_status run_schedule(stage_run *r, ct_pass *const *pass, int n_pass)
{
    int warm = (n_pass == 1) ? 0 : 1, n_forward = 0;

    for (int k = 0; r->ahead && (k < n_pass); k++) CT_TRY(ct_pass_receive_ahead(pass[k], true));
    for (; n_forward < warm; n_forward++)
        CT_TRY(forward(pass[n_forward % n_pass], n_forward, &r->loss));
    for (int micro = 0; micro < MICRO; micro++) {
        if (n_forward < MICRO) {
            CT_TRY(forward(pass[n_forward % n_pass], n_forward, &r->loss));
            if (r->ahead && (n_forward + n_pass < MICRO))
                CT_TRY(ct_pass_receive_ahead(pass[n_forward % n_pass], true));
            n_forward++;
        }
        if (r->ahead) CT_TRY(ct_pass_receive_ahead(pass[micro % n_pass], false));
        CT_TRY(backward(pass[micro % n_pass], micro));
    }
    return CT_OK;
}

static void *run_stage(void *ctx)
{
    stage_run *r = ctx;
    ct_net_env env = { .n_rank = 1, .seed = 5 };
    ct_pass *pass[PASSES] = { NULL };
    int n_pass = (r->rank->rank == 0) ? PASSES : 1;
    parsed_net f;

    r->status = open_net(stage_text[r->rank->rank], &env, crossing, 4, false, &f);
    if (r->status != CT_OK) return NULL;
    set_stage_weights(&f);
    pass[0] = f.net->pass;
    if (n_pass > 1) r->status = ct_pass_create(f.net, &pass[1]);
    for (int k = 0; k < n_pass; k++) set_transfers(pass[k], r->rank);
    if (r->status == CT_OK) r->status = run_schedule(r, pass, n_pass);
    take_gradients(&f, (r->rank->rank == 0) ? "a" : "b", r->grad);
    if (n_pass > 1) ct_pass_destroy(pass[1]);
    parsed_net_close(&f);
    return NULL;
}

static void run_whole(double *loss, float a[2][H * X], float b[2][H * X])
{
    ct_net_env env = { .n_rank = 1, .seed = 5 };
    parsed_net f;

    assert_int_equal(open_net(whole_text, &env, NULL, 0, false, &f), CT_OK);
    set_stage_weights(&f);
    for (int micro = 0; micro < MICRO; micro++) {
        assert_int_equal(forward(f.net->pass, micro, loss), CT_OK);
        assert_int_equal(backward(f.net->pass, micro), CT_OK);
    }
    take_gradients(&f, "a", a);
    take_gradients(&f, "b", b);
    parsed_net_close(&f);
}

/* The same additions in the same order: the same bits. */
static void test_stages(void **state)
{
    float a[2][H * X] = { { 0 } }, b[2][H * X] = { { 0 } };
    double loss = 0;

    (void)state;
    setenv("CORTADO_POISON", "1", 1);
    run_whole(&loss, a, b);
    for (int ahead = 0; ahead < 2; ahead++) {
        static stage_run run[2];
        static transfer_ranks all;
        transfer_rank rank[2];

        memset(run, 0, sizeof(run));
        transfer_ranks_open(&all, 2, rank);
        for (int r = 0; r < 2; r++) {
            run[r].rank = &rank[r];
            run[r].ahead = (ahead == 1);
        }
        transfer_ranks_run(&all, run_stage, run, sizeof(run[0]));
        for (int r = 0; r < 2; r++) {
            assert_int_equal(run[r].status, CT_OK);
            /* a buffer's last message is given up with it: labels and values, or gradients */
            assert_int_equal(rank[r].n_dropped, (r == 0) ? 2 * PASSES : 1);
            assert_int_equal(rank[r].n_begun, rank[r].n_ended);
        }
        assert_true(run[0].loss == 0);
        assert_true(run[1].loss == loss);
        assert_memory_equal(run[0].grad, a, sizeof(a));
        assert_memory_equal(run[1].grad, b, sizeof(b));
        transfer_ranks_close(&all);
    }
    unsetenv("CORTADO_POISON");
}

/* ---- what is refused */

static void fails(const char *text, const described *d, int n, ct_status status, const char *why)
{
    ct_net_env env = { .n_rank = 1, .seed = 5, .synthetic = true };
    static log_capture said;
    parsed_net f;

    log_capture_start(&said);
    assert_int_equal(open_net(text, &env, d, n, false, &f), status);
    log_capture_stop();
    if (strstr(said.error, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", said.error, why);
    parsed_net_close(&f);
}

static void test_refused(void **state)
{
    static const described gather = { .layer = "g", .part = { 2, 1 }, .n_part = 2, .axis = 1 };
    static const described axis = { .layer = "g", .part = { 4, 1 }, .n_part = 2, .axis = 4 };
    static const described rank = { .layer = "g", .part = { 4, 1 }, .n_part = 2, .rank = 2 };
    static const described back = { .layer = "s", .gradient = true };
    static const described no_shape = { .layer = "r" };

    (void)state;
    fails(DATA CONV("c", "data", "4") ONE("g", "SumParts", "c") HEAD("g"), NULL, 0, CT_ERR_CONFIG,
          "layer \"g\" (SumParts): no file has layers of this type: --parallel adds them");
    fails(DATA CONV("c", "data", "4") ONE("g", "SumPart", "c"), NULL, 0, CT_ERR_CONFIG,
          "unknown layer type");
    fails(DATA CONV("c", "data", "4") ONE("g", "Gather", "c") HEAD("g"), &gather, 1, CT_ERR_SHAPE,
          "has 4 along axis 1, where the parts say 2");
    fails(DATA CONV("c", "data", "4") ONE("g", "Gather", "c") HEAD("g"), &axis, 1, CT_ERR_CONFIG,
          "has no axis 4");
    fails(DATA CONV("c", "data", "4") ONE("g", "Gather", "c") HEAD("g"), &rank, 1, CT_ERR_CONFIG,
          "rank 2 of 2 parts");
    fails(DATA "layer { name: 's' type: 'Send' bottom: 'data' }", &back, 1, CT_ERR_CONFIG,
          "a gradient is to come back, and nothing before it learns");
    fails("layer { name: 'r' type: 'Receive' top: 'x' }", &no_shape, 1, CT_ERR_CONFIG,
          "it has no shape");
}

/* Without anyone to carry it, forward says so. */
static void test_nobody_carries(void **state)
{
    static const described d = { .layer = "sum" };
    ct_net_env env = { .n_rank = 1, .seed = 5, .synthetic = true };
    static log_capture said;
    parsed_net f;

    (void)state;
    assert_int_equal(open_net(DATA CONV("c", "data", "4") ONE("sum", "SumParts", "c") HEAD("sum"),
                              &env, &d, 1, false, &f),
                     CT_OK);
    log_capture_start(&said);
    assert_int_equal(ct_pass_forward(f.net->pass, NULL), CT_ERR_ARG);
    log_capture_stop();
    assert_non_null(strstr(said.error, "nobody carries"));
    parsed_net_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_stage_lists),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_nobody_carries),
        cmocka_unit_test(test_memory_on_the_way),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
