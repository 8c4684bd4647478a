/** @file layer_harness.h  One layer alone, with the memory a net would give it.
 *
 * test_layer_create() does what the net does: setup, reshape, place buffers, allocate and fill
 * weights. The test works on host arrays (input, weight, top_diff in; top, input_diff, weight_diff
 * out); each pass copies them to and from the layer's blobs. The harness also holds layers to
 * their contract and fails the test where one
 *  - writes outside a blob or buffer, or changes a bottom, a learned weight or a top diff;
 *  - relies on scratch (CT_LIFETIME_CALL is NaN before every call), on old tops or old diffs (NaN);
 *  - reads more in backward than ops.backward_reads admits (the rest is NaN by then).
 *
 * With CORTADO_TEST_DEVICE=cuda in the environment, layers run there wherever a test names no
 * device, and the first passes of each are compared with those of a twin on the CPU: so every shape
 * that a test looks at is one of GPU against CPU.
 */
#ifndef CT_TEST_LAYER_HARNESS_H
#define CT_TEST_LAYER_HARNESS_H

#include "framework/net/layer.h"

#define TEST_MAX_BLOB 6

/** A shape from its dimensions: TEST_SHAPE(2, 3, 4). */
#define TEST_SHAPE(...)                                                                            \
    ((ct_shape){ (int)(sizeof((int64_t[]){ __VA_ARGS__ }) / sizeof(int64_t)), { __VA_ARGS__ } })

/** What to build. Zero means the default everywhere; n_top 0 is one top. */
typedef struct test_layer_spec {
    const char *type;                /* looked up in the table, unless ops is given         */
    const ct_layer_ops *ops;         /* */
    const char *text;                /* prototxt: the fields inside layer { }; or …          */
    const Ct__LayerParameter *param; /* … made by hand; both NULL: no fields set            */
    const Ct__LayerPart *part;       /* the layer is this part of what the fields say       */
    int n_bottom, n_top;
    ct_shape bottom[TEST_MAX_BLOB];
    ct_phase phase;
    bool in_place;                       /* top 0 is bottom 0                               */
    bool alias;                          /* share the memory that ops.alias lets share      */
    bool no_propagate[TEST_MAX_BLOB];    /* bottom i wants no gradient                      */
    bool no_weight_diff[CT_MAX_WEIGHT];  /* weight i wants none                             */
    bool no_top_diff[TEST_MAX_BLOB];     /* top i has none: nobody asked for its gradient   */
    bool forward_only;                   /* no gradients at all                             */
    bool restarts_first;                 /* of bottom 1 it is known (tensor.h)              */
    bool add_weight_diff[CT_MAX_WEIGHT]; /* another layer wrote the diff before             */
    const ct_device *dev;                /* NULL: CPU                                       */
} test_layer_spec;

/** A block on the layer's device with a guard behind it. */
typedef struct test_block {
    void *data;
    size_t bytes;
} test_block;

typedef struct test_layer {
    test_layer_spec spec;
    ct_layer layer;
    ct_instance instance;
    ct_net_env env; /* may be changed before the first pass */
    ct_exec ex;     /* batch fields: bottom 0's first dimension, one rank; tests change them */
    ct_shape top_shape[TEST_MAX_BLOB];

    /* host arrays: set by the test … */
    float *input[TEST_MAX_BLOB];    /* random in [-1, 1) after create                       */
    float *weight[CT_MAX_WEIGHT];   /* filled by their fillers                              */
    float *top_diff[TEST_MAX_BLOB]; /* zero, or the loss weight 1 of a loss layer's top 0   */
    /* … and results */
    float *top[TEST_MAX_BLOB];
    float *input_diff[TEST_MAX_BLOB];   /* NULL: not wanted                              */
    float *weight_diff[CT_MAX_WEIGHT];  /* NULL: not wanted. Read first where it is added to */
    float *weight_after[CT_MAX_WEIGHT]; /* after forward: running statistics move        */
    int64_t input_count[TEST_MAX_BLOB], top_count[TEST_MAX_BLOB], weight_count[CT_MAX_WEIGHT];

    /* private */
    ct_blob bottom_blob[TEST_MAX_BLOB], top_blob[TEST_MAX_BLOB], weight_blob[CT_MAX_WEIGHT];
    ct_blob *bottom_ptr[TEST_MAX_BLOB], *top_ptr[TEST_MAX_BLOB];
    test_block block[4 * TEST_MAX_BLOB + 2 * CT_MAX_WEIGHT + CT_MAX_BUFFER];
    int n_block;
    struct test_layer *twin; /* the same on the CPU, where the layer runs elsewhere: see below */
    int n_compared;
    Ct__LayerParameter own_param;
    Ct__LayerPart own_part;
    char *blob_name[2 * TEST_MAX_BLOB];
    Ct__LayerParameter *parsed;
} test_layer;

/** Builds the layer; its error status where setup or reshape refuses. Destroyed by the caller. */
ct_status test_layer_create(const test_layer_spec *spec, test_layer **t_p);
void test_layer_destroy(test_layer *t); /* NULL allowed */

/** Shapes t again, as a net does behind a layer whose tops vary: bottoms of these shapes, none
 * larger than those that it was made with. The status of reshape. Inputs and top diffs are the
 * test's to set again. */
ct_status test_layer_shape(test_layer *t, const ct_shape *bottom);

/** input, weight -> top. Its own errors fail the test; the layer's status is returned. */
ct_status test_layer_forward(test_layer *t);
/** top_diff -> input_diff, weight_diff, after a forward of the same input. */
ct_status test_layer_backward(test_layer *t);

/** A layer that must be made. */
test_layer *test_layer_make(const test_layer_spec *spec);
/** Forward and backward, which must succeed. */
void test_layer_pass(test_layer *t);

/** Rounded to float. */
void test_set(float *to, const double *from, int64_t n);
/** Uniform values in [low, high), the same for the same seed. */
void test_random(float *v, int64_t n, uint64_t seed, float low, float high);
/** Random values whose distances are at least (high - low) / n: no ties, no near kinks. */
void test_random_distinct(float *v, int64_t n, uint64_t seed, float low, float high);

/** How test_layer_gradient() measures. Zero: the default. */
typedef struct test_gradient {
    float step;       /* of the central difference; default 1e-2                          */
    double roundings; /* f32 roundings on the way to one top element, in units of the
                         largest |top|; default 16: the length of its longest sum and more */
    int max_element;  /* elements looked at in each blob; default 300, chosen at random    */
    double max_kink;  /* share of elements that may lie at a kink; default 0               */
    uint64_t seed;    /* of the projection                                                 */
    uint32_t skip_bottom, skip_weight; /* bit i: do not look at it                           */
} test_gradient;

/**
 * Compares backward with central differences of loss = sum_j c_j top_j, c random (for a loss
 * layer: c_0 times its first top), in every bottom and weight that has a gradient.
 *
 * With f evaluated at x, x +- h, x +- 2h: D(h) = (f(x+h) - f(x-h)) / 2h,
 * S(h) = (f(x+h) - 2f(x) + f(x-h)) / h, and E = |D(2h) - D(h)| + |S(2h) - 2S(h)| / 2. The allowed
 * difference is  noise / h + E + own, where
 *  - own = roundings * eps * the blob's largest gradient: backward's roundings, which are all there
 *    is where no top moves;
 *  - noise = roundings * eps * sum over the top elements that moved of |c_j| max|top|;
 *  - E bounds the curvature error: D(2h) - D(h) is three times the h^2 f'''/6 of D(h);
 *  - E also bounds the error at one kink of slope change J at distance d < h, which is
 *    J (h - d) / 2h: for d <= 2h/3 E equals it, beyond it is larger. So a kink cannot be missed.
 * Where E is over 5 % of the blob's largest gradient the element counts as lying at a kink and is
 * not compared; more of them than max_kink fail the test.
 */
void test_layer_gradient(test_layer *t, const test_gradient *g);
/** The same, but tells what is wrong (valid until the next call), or NULL: nothing. */
const char *test_layer_gradient_error(test_layer *t, const test_gradient *g);

/** Asserts that building `spec` fails with `expected` and that the message holds `part`. */
void test_layer_refused(const test_layer_spec *spec, ct_status expected, const char *part);
/** Collects log lines instead of printing them, until test_log_stop(). */
void test_log_start(void);
/** The collected lines; valid until the next start. */
const char *test_log_stop(void);

/** Asserts |a[i] - b[i]| <= tolerance (1 + |b[i]|) for all i; says the worst place. */
void test_near(const float *a, const double *b, int64_t n, double tolerance, const char *what);
/** test_near() against numbers of an independent implementation. Where CORTADO_GOLDEN names a file,
 *  a line "TYPE FORWARD|BACKWARD ERROR ALLOWED" goes to its end, ERROR the largest
 *  |a[i] - b[i]| / (1 + |b[i]|): what docs/layers-golden.md is made of. */
typedef enum { TEST_FORWARD, TEST_BACKWARD } test_side;
void test_near_golden(const test_layer *t, test_side side, const float *a, const double *b,
                      int64_t n, double tolerance, const char *what);
/** Asserts that a and b hold the same bits. */
void test_same(const float *a, const float *b, int64_t n, const char *what);

#endif
