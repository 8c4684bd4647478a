/* Nets that run: bytes choose layers, what they read, their fields, and the numbers that come in.
 * A net that can be made runs forward and backward, through sanitizers. What `check` says of it
 * holds, and plans of memory change no bit: another plan gives the same loss and gradients. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/net/net.h"
#include "framework/proto/message.h"
#include "framework/proto/upgrade.h"
#include "layers/types/layer_types.h"
#include "tests/fuzz/fuzz.h"

enum {
    MOST_LAYERS = 10,
    MOST_BLOBS = 40,
    MOST_BYTES = 16 << 20, /* of a net that runs */
    MOST_FLOP = 20000000,  /* likewise, forward and backward */
};

typedef struct drawn {
    const uint8_t *at;
    size_t left;
    ct_text text;
    int n_blob;
    int64_t first[5]; /* shape of blob 0 */
    int first_axes;
} drawn;

static unsigned draw(drawn *d, unsigned below)
{
    unsigned v = 0;

    if (d->left > 0) {
        v = *d->at++;
        d->left--;
    }
    return v % below;
}

/* ---- what a field may hold */

static int64_t whole(drawn *d)
{
    static const int64_t odd[] = { -1,       -2,    17,        33,        100,
                                   1000,     65536, INT32_MAX, INT32_MIN, (int64_t)1 << 31,
                                   INT64_MAX };
    unsigned k = draw(d, 64);

    if (k < 48) return (k < 40) ? k % 8 : k - 32; /* 0 to 7, and 8 to 15 */
    return odd[k % (sizeof(odd) / sizeof(odd[0]))];
}

static double real(drawn *d)
{
    static const double odd[] = {
        -1, 2, 1e-3, 0.9, -0.25, 1e30, -1e30, 1e-30, NAN, INFINITY, 3, 7
    };
    unsigned k = draw(d, 32);

    return (k < 20) ? k % 5 * 0.25 : odd[k % (sizeof(odd) / sizeof(odd[0]))];
}

static const char *word(drawn *d)
{
    static const char *const words[] = { "xavier",   "constant", "gaussian",
                                         "uniform",  "msra",     "positive_unitball",
                                         "bilinear", "w",        "v",
                                         "b0",       "b1",       "leveldb",
                                         "",         "x",        "ref" };

    return words[draw(d, sizeof(words) / sizeof(words[0]))];
}

static void add_message(drawn *d, const ProtobufCMessageDescriptor *m, int depth);

static void add_field(drawn *d, const ProtobufCFieldDescriptor *f, int depth)
{
    if (ct_field_is_private(f)) return;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
        if (depth > 3) return;
        ct_text_add(&d->text, " %s {", f->name);
        add_message(d, f->descriptor, depth + 1);
        ct_text_add(&d->text, " }");
        return;
    }
    ct_text_add(&d->text, " %s: ", f->name);
    switch (f->type) {
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumDescriptor *e = f->descriptor;

        ct_text_add(&d->text, "%s", e->values[draw(d, e->n_values)].name);
        return;
    }
    case PROTOBUF_C_TYPE_BOOL:
        ct_text_add(&d->text, "%s", (draw(d, 2) == 0) ? "true" : "false");
        return;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
        ct_text_add(&d->text, "'%s'", word(d));
        return;
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_DOUBLE:
        ct_text_add(&d->text, "%.9g", real(d));
        return;
    default:
        ct_text_add(&d->text, "%lld", (long long)whole(d));
    }
}

/* Some of a message's fields, a repeated one up to three times. */
static void add_message(drawn *d, const ProtobufCMessageDescriptor *m, int depth)
{
    unsigned n = draw(d, (depth > 1) ? 4 : 7);
    bool there[256] = { false };

    for (unsigned i = 0; i < n; i++) {
        unsigned k = draw(d, m->n_fields);
        unsigned times = (m->fields[k].label == PROTOBUF_C_LABEL_REPEATED) ? 1 + draw(d, 3) : 1;

        if ((k >= sizeof(there)) || there[k]) continue;
        there[k] = true;
        while (times-- > 0) add_field(d, &m->fields[k], depth);
    }
}

/* ---- looking at it */

/* Bits of `how`: what is computed. */
static ct_net_options options(unsigned how)
{
    ct_net_options o = { .phase = (how & 4) ? CT_TEST : CT_TRAIN,
                         .env = { .n_rank = 1, .seed = 3, .deterministic = true } };

    if (how & 8) o.env.precision = CT__SOLVER_PARAMETER__PRECISION__BF16;
    return o;
}

static bool is_small(const ct_net *net)
{
    double flop = 0;

    for (int l = 0; l < net->n_layer; l++) {
        ct_estimate e = { 0 };

        ct_net_estimate(net, l, &e);
        flop += e.forward_flop + e.backward_flop + e.forward_bytes + e.backward_bytes;
    }
    return (flop >= 0) && (flop < MOST_FLOP) &&
           (net->memory.unshared + net->memory.weights < MOST_BYTES);
}

/* The net as `check` makes it: no data, no memory. NULL: refused, with one error. */
static ct_net *look(const ct_text *text, unsigned how, Ct__NetParameter **param_p)
{
    ct_net_options o = options(how);
    long n_error = ct_log_n_error();
    ProtobufCMessage *m = NULL;
    ct_net *net = NULL;
    ct_status status = ct_prototxt_parse(&ct__net_parameter__descriptor, "drawn", text->text,
                                         text->length, NULL, &m);

    if (text->failed) abort();
    ct_net_options_alone(&o);
    *param_p = (Ct__NetParameter *)m;
    if (status == CT_OK) status = ct_net_upgrade(*param_p, "drawn", NULL);
    if (status == CT_OK) status = ct_net_create(*param_p, &o, &net);
    if (ct_log_n_error() - n_error != (status != CT_OK)) abort();
    if ((status != CT_OK) && (status != CT_ERR_CONFIG) && (status != CT_ERR_SHAPE) &&
        (status != CT_ERR_DATA) && (status != CT_ERR_IO) && (status != CT_UNSUPPORTED))
        abort();
    return net;
}

static void forget(ct_net *net, Ct__NetParameter *param)
{
    ct_net_destroy(net);
    if (param != NULL) ct__net_parameter__free_unpacked(param, NULL);
}

static bool stands(const ct_text *text, unsigned how)
{
    Ct__NetParameter *param;
    ct_net *net = look(text, how, &param);

    forget(net, param);
    return net != NULL;
}

/* ---- layers */

static void add_shape(drawn *d, int name, const int64_t *dim, int axes)
{
    ct_text_add(&d->text, "layer { name: 'b%d' type: 'Input' top: 'b%d' input_param { shape {",
                name, name);
    for (int i = 0; i < axes; i++) ct_text_add(&d->text, " dim: %lld", (long long)dim[i]);
    ct_text_add(&d->text, " }%s } }\n", (draw(d, 8) == 0) ? " varies: true" : "");
}

/* The first one is of any shape; others, too, or they fit it: as large, its labels, its first two
 * axes, boxes, regions. */
static void add_input(drawn *d)
{
    static const int64_t size[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 1, 24, 33, 40 };
    unsigned fits = (d->n_blob > 0) ? draw(d, 8) : 7;
    int64_t other[5], *dim = (d->n_blob > 0) ? other : d->first;
    int axes = (int)draw(d, 8);

    axes = (axes > 5) ? 4 : axes;
    for (int i = 0; i < axes; i++) dim[i] = size[draw(d, 16)];
    if (d->n_blob == 0) d->first_axes = axes;
    if (fits < 3) {
        static const int most[] = { 5, 1, 2 };

        axes = (d->first_axes < most[fits]) ? d->first_axes : most[fits];
        memcpy(other, d->first, sizeof(other));
    }
    if (fits == 3) {
        axes = 4;
        memcpy(other, (int64_t[]){ 1, 1, 1 + (int)draw(d, 6), 8 }, 4 * sizeof(other[0]));
    }
    if (fits == 4) {
        axes = 2;
        memcpy(other, (int64_t[]){ 1 + (int)draw(d, 6), 5 }, 2 * sizeof(other[0]));
    }
    add_shape(d, d->n_blob++, dim, axes);
}

/* Boxes of an image: a loss, or what is found, and at times how good that is. */
static void add_detection(drawn *d)
{
    static const char *const kind[] = { "MultiBoxLoss", "DetectionOutput" };
    static const char *const field[] = { "multibox_loss_param", "detection_output_param" };
    int64_t boxes = 1 + (int)draw(d, 12), classes = 2 + (int)draw(d, 3);
    int at = d->n_blob;
    unsigned k = draw(d, 2);
    const ProtobufCFieldDescriptor *f =
        ct_field_find(&ct__layer_parameter__descriptor, field[k], strlen(field[k]));

    for (int i = 0; i < 2; i++)
        ct_text_add(&d->text,
                    "layer { name: 'd%d' type: 'InnerProduct' bottom: 'b0' top: 'b%d' "
                    "inner_product_param { num_output: %lld weight_filler { type: 'xavier' } } }\n",
                    at + i, at + i, (long long)(boxes * ((i == 0) ? 4 : classes)));
    add_shape(d, at + 2, (int64_t[]){ 1, 2, 4 * boxes }, 3);
    add_shape(d, at + 3, (int64_t[]){ 1, 1, 1 + (int)draw(d, 6), 8 }, 4);
    ct_text_add(&d->text,
                "layer { name: 'd%d' type: '%s' bottom: 'b%d' bottom: 'b%d' bottom: 'b%d'%s",
                at + 4, kind[k], at, at + 1, at + 2, (k == 0) ? "" : " top: 'found'");
    if (k == 0) ct_text_add(&d->text, " bottom: 'b%d' top: 'b%d'", at + 3, at + 4);
    ct_text_add(&d->text, " %s { num_classes: %lld", field[k], (long long)classes);
    add_message(d, f->descriptor, 1);
    ct_text_add(&d->text, " } }\n");
    if ((k == 1) && (draw(d, 2) == 0))
        ct_text_add(&d->text,
                    "layer { name: 'd%d' type: 'DetectionEvaluate' bottom: 'found' bottom: 'b%d' "
                    "top: 'b%d' detection_evaluate_param { num_classes: %lld } }\n",
                    at + 5, at + 3, at + 4, (long long)classes);
    else if (k == 1)
        ct_text_add(&d->text, "layer { name: 'd%d' type: 'Silence' bottom: 'found' }\n", at + 5);
    d->n_blob = at + 4;
}

/* What reads or writes files, and what nets add themselves, is left out. */
static bool is_drawn(const ct_layer_ops *ops)
{
    bool files =
        ops->is_data && (strcmp(ops->type, "Input") != 0) && (strcmp(ops->type, "DummyData") != 0);

    return !files && !ops->by_net && (strcmp(ops->type, "HDF5Output") != 0) &&
           (strcmp(ops->type, "Python") != 0);
}

static const ct_layer_ops *choose(drawn *d)
{
    unsigned n = 0;
    const ct_layer_ops *ops;

    while (ct_layer_table[n] != NULL) n++;
    ops = ct_layer_table[draw(d, n)];
    return is_drawn(ops) ? ops : &ct_layer_convolution;
}

/* One of the messages that it reads, by their names with blanks between. */
static void add_params(drawn *d, const ct_layer_ops *ops)
{
    for (const char *at = ops->params; at != NULL;) {
        size_t length = strcspn(at, " ");
        const ProtobufCFieldDescriptor *f =
            ct_field_find(&ct__layer_parameter__descriptor, at, length);

        if ((f != NULL) && (draw(d, 8) != 0)) add_field(d, f, 0);
        at += length;
        at = (*at == '\0') ? NULL : at + 1;
    }
    if (draw(d, 4) == 0) { /* what every layer has */
        static const char *const of_all[] = { "param",          "loss_weight", "propagate_down",
                                              "loss_param",     "include",     "ct_kernel",
                                              "transform_param" };
        const char *name = of_all[draw(d, sizeof(of_all) / sizeof(of_all[0]))];

        add_field(d, ct_field_find(&ct__layer_parameter__descriptor, name, strlen(name)), 0);
    }
}

static void add_layer(drawn *d, int i)
{
    const ct_layer_ops *ops = choose(d);
    int bottoms = ops->min_bottom + (int)draw(d, 3), tops = ops->min_top + (int)draw(d, 2);
    int first = d->n_blob;

    if ((ops->max_bottom >= 0) && (bottoms > ops->max_bottom)) bottoms = ops->max_bottom;
    if ((ops->max_top >= 0) && (tops > ops->max_top)) tops = ops->max_top;
    ct_text_add(&d->text, "layer { name: 'l%d' type: '%s'", i, ops->type);
    for (int k = 0; k < bottoms; k++) { /* the last blob, as a rule */
        int b = (k == 0) && (draw(d, 4) != 0) ? d->n_blob - 1 : (int)draw(d, (unsigned)d->n_blob);

        ct_text_add(&d->text, " bottom: 'b%d'", b);
        if (k == 0) first = b;
    }
    if ((bottoms > 0) && (tops == 1) && (draw(d, 3) == 0)) {
        ct_text_add(&d->text, " top: 'b%d'", first);
    } else {
        for (int k = 0; (k < tops) && (d->n_blob < MOST_BLOBS); k++)
            ct_text_add(&d->text, " top: 'b%d'", d->n_blob++);
    }
    add_params(d, ops);
    ct_text_add(&d->text, " }\n");
}

static void add_net(drawn *d, unsigned how)
{
    int inputs = 1 + (int)draw(d, 3), layers = 1 + (int)draw(d, MOST_LAYERS);

    ct_text_add(&d->text, "name: 'drawn'%s\n", (draw(d, 4) != 0) ? " force_backward: true" : "");
    for (int i = 0; i < inputs; i++) add_input(d);
    for (int i = 0; i < layers; i++) { /* one that is refused goes again */
        drawn before = *d;

        if ((i == 1) && (draw(d, 8) == 0))
            add_detection(d);
        else
            add_layer(d, i);
        if (stands(&d->text, how)) continue;
        d->n_blob = before.n_blob;
        d->text.length = before.text.length;
        d->text.text[d->text.length] = '\0';
    }
    if (draw(d, 4) != 0) /* gradients come from there, where no layer is a loss */
        ct_text_add(
            &d->text,
            "layer { name: 'sum' type: 'Reduction' bottom: 'b%d' top: 'sum' loss_weight: 0.5 "
            "reduction_param { operation: SUMSQ } }\n",
            d->n_blob - 1);
}

/* ---- running it */

/* Numbers of a kind: small whole ones, such as labels; others; and, at times, what none should be.
 */
static void fill(float *x, int64_t n, unsigned kind)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 1e10f, -5.0f, 1e-40f };
    uint32_t seed = 2463534242u + kind;

    for (int64_t i = 0; i < n; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        x[i] = (kind % 3 == 0) ? (float)(seed % 4) : (float)(seed % 2001) / 1000.0f - 1.0f;
        if (kind % 3 == 1) /* rows of 8, of true boxes */
            x[i] = ((i % 8 < 2) || (i % 8 == 7)) ? (float)(seed % 3) : (float)(seed % 100) / 99.0f;
        if ((kind % 8 == 7) && (seed % 5 == 0)) x[i] = odd[seed / 5 % 8];
    }
}

static void fill_inputs(const ct_net *net, const unsigned *kind)
{
    for (int l = 0; l < net->n_layer; l++) {
        const ct_layer *input = net->layer[l];

        if (strcmp(input->ops->type, "Input") != 0) continue;
        for (int t = 0; t < input->n_top; t++) {
            const ct_blob *b = net->pass->instance[l]->top[t];

            fill(ct_blob_data(b), ct_tensor_count(&b->data), kind[(l + t) % 3]);
        }
    }
}

/* Forward and backward, twice. *loss_p: the second's. */
static ct_status run(ct_net *net, const unsigned *kind, double *loss_p)
{
    ct_pass *pass = net->pass;

    pass->exec.seed = 5;
    pass->exec.deterministic = true;
    for (int step = 0; step < 2; step++) {
        long n_error = ct_log_n_error();
        ct_status status;

        fill_inputs(net, kind);
        pass->exec.micro_step = step;
        pass->exec.accumulate = step > 0;
        status = ct_pass_forward(pass, loss_p);
        if ((status == CT_OK) && (net->options.phase == CT_TRAIN))
            status = ct_pass_backward(pass, NULL, NULL);
        if (ct_log_n_error() - n_error != (status != CT_OK)) abort();
        if (status != CT_OK) return status;
    }
    return CT_OK;
}

static bool same(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if ((memcmp(&a[i], &b[i], sizeof(a[i])) != 0) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

static void compare(const ct_net *a, const ct_net *b)
{
    if (a->n_param != b->n_param) abort();
    for (int i = 0; i < a->n_param; i++) {
        const ct_param *p = &a->param[i], *q = &b->param[i];

        if ((p->count != q->count) || (strcmp(p->key, q->key) != 0)) abort();
        if (!same(ct_blob_data(&p->blob), ct_blob_data(&q->blob), p->count) ||
            (p->learns && !same(ct_blob_diff(&p->blob), ct_blob_diff(&q->blob), p->count))) {
            fprintf(stderr, "other numbers in %s\n", p->key);
            abort();
        }
    }
}

/* The same net with another plan of memory, and filled with what none should read. */
static void run_again(const Ct__NetParameter *param, const ct_net *net, unsigned how,
                      const unsigned *kind, ct_status wanted, double loss)
{
    static const ct_net_segment some[] = { { "l0", "l1" }, { "l2", "l4" } };
    ct_net_options o = options(how);
    double again = 0;
    ct_net *other = NULL;
    ct_status status;

    o.unshared = how >> 4 & 1;
    o.no_fuse = how >> 5 & 1;
    if (how >> 6 == 1) o.recompute = CT__RECOMPUTE__CHEAP;
    if (how >> 6 == 2) {
        o.again = some;
        o.n_again = 2;
    }
    if (o.unshared == false) setenv("CORTADO_POISON", "1", 1);
    status = ct_net_create(param, &o, &other);
    unsetenv("CORTADO_POISON");
    if (status != CT_OK) {
        if (o.again == NULL) abort(); /* no block for some nets */
        return;
    }
    if (run(other, kind, &again) != wanted) abort();
    if ((wanted == CT_OK) && !o.no_fuse) { /* what fuses may round otherwise: design-notes.md */
        if ((loss != again) && !(isnan(loss) && isnan(again))) {
            fprintf(stderr, "loss %.9g, and %.9g with plan %u\n", loss, again, how);
            abort();
        }
        compare(net, other);
    }
    ct_net_destroy(other);
}

static void try_net(drawn *d, const unsigned *kind, unsigned how)
{
    ct_net_options o = options(how);
    Ct__NetParameter *param;
    ct_net *net = look(&d->text, how, &param);
    bool runs = (net != NULL) && is_small(net);
    double loss = 0;

    if (runs) {
        long n_error = ct_log_n_error();
        ct_status status;

        ct_net_destroy(net);
        net = NULL;
        status = ct_net_create(param, &o, &net);
        if (ct_log_n_error() - n_error != (status != CT_OK)) abort();
        if (status == CT_OK) { /* else data is not there */
            status = run(net, kind, &loss);
            run_again(param, net, how, kind, status, loss);
        }
    }
    forget(net, param);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    drawn d = { .at = data, .left = size };
    unsigned kind[3], how;

    if (getenv("CORTADO_FUZZ_SHOW") == NULL) ct_log_set_sink(fuzz_drop, NULL);
    how = draw(&d, 256);
    for (int i = 0; i < 3; i++) kind[i] = draw(&d, 256);
    add_net(&d, how);
    if (getenv("CORTADO_FUZZ_SHOW") != NULL) fputs(d.text.text, stderr);
    try_net(&d, kind, how);
    ct_text_destroy(&d.text);
    return 0;
}
