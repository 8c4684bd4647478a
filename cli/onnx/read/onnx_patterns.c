/* Nodes that are one layer together. The last of them becomes the layer, the others are done. */
#include <math.h>
#include <string.h>

#include "cli/onnx/read/onnx_read.h"

typedef struct links { /* between nodes */
    ct_onnx_reader *r;
    ct_onnx_links l;
} links;

/* The node that makes input i of node k, if it is this operator. -1: it is not. */
static int maker(const links *g, int k, size_t i, const char *op)
{
    const Onnx__NodeProto *n = (k >= 0) ? g->r->step[k].proto : NULL;
    int m = ((n != NULL) && (i < n->n_input)) ? ct_onnx_maker(&g->l, n->input[i]) : -1;

    return ((m >= 0) && !g->r->step[m].done && (g->r->step[m].n_in == 0) &&
            (strcmp(g->r->step[m].op, op) == 0))
               ? m
               : -1;
}

static const char *input_of(const links *g, int k, size_t i)
{
    return g->r->step[k].proto->input[i];
}

/* Input i of node k as constant floats, or NULL. */
static const ct_onnx_operand *floats(const links *g, int k, size_t i)
{
    const ct_onnx_operand *v = ct_onnx_value_find(g->r, input_of(g, k, i));

    return ((v != NULL) && (v->f != NULL)) ? v : NULL;
}

/* Of a node with two inputs: which of them is one number, about that (NAN: any). -1: neither. */
static int number_at(const links *g, int k, double about, float *v_p)
{
    for (int i = 0; (k >= 0) && (g->r->step[k].proto->n_input == 2) && (i < 2); i++) {
        const ct_onnx_operand *v = floats(g, k, (size_t)i);

        if ((v == NULL) || (ct_shape_count(&v->shape, 0, -1) != 1)) continue;
        if (!isnan(about) && !(fabs((double)v->f[0] - about) <= 1e-6 * fabs(about))) continue;
        if (v_p != NULL) *v_p = v->f[0];
        return i;
    }
    return -1;
}

/* Nothing but the pattern reads these nodes: so many times each. */
static bool read_by(const links *g, int k, int times)
{
    return (k >= 0) && (g->l.n_reader[k] == times);
}

/* The mean along the last axis, which stays. */
static bool means_last(const links *g, int k)
{
    const Onnx__NodeProto *n;
    int64_t axis = 0, keep = 1;
    const ct_onnx_operand *axes;

    if (k < 0) return false;
    n = g->r->step[k].proto;
    for (size_t i = 0; i < n->n_attribute; i++) {
        const Onnx__AttributeProto *a = n->attribute[i];

        if (a->name == NULL) continue;
        if ((strcmp(a->name, "axes") == 0) && (a->n_ints == 1)) axis = a->ints[0];
        if (strcmp(a->name, "keepdims") == 0) keep = a->i;
    }
    axes = (n->n_input > 1) ? ct_onnx_value_find(g->r, n->input[1]) : NULL;
    if ((axes != NULL) && (axes->i != NULL) && (ct_shape_count(&axes->shape, 0, -1) == 1))
        axis = axes->i[0];
    return (axis == -1) && (keep == 1);
}

static void finish(links *g, int end, const char *op, int n_in, const int *inner, int n_inner)
{
    g->r->step[end].op = op;
    g->r->step[end].n_in = n_in;
    for (int i = 0; i < n_inner; i++) g->r->step[inner[i]].done = true;
}

/* The node that alone reads k, a sum or product with one constant for each of the last axis. */
static int behind(const links *g, int k, const char *op, const char **constant_p)
{
    int next = read_by(g, k, 1) ? g->l.reader[k] : -1;

    if ((next < 0) || g->r->step[next].done || (strcmp(g->r->step[next].op, op) != 0)) return -1;
    for (size_t i = 0; (g->r->step[next].proto->n_input == 2) && (i < 2); i++) {
        const ct_onnx_operand *v = floats(g, next, i);

        if ((v == NULL) || (v->shape.ndim != 1)) continue;
        *constant_p = input_of(g, next, i);
        return next;
    }
    return -1;
}

/* Scale and shift behind a norm become its own, where both are there. */
static int with_affine(links *g, int k)
{
    const char *scale = NULL, *shift = NULL;
    int mul = behind(g, k, "Mul", &scale), add = behind(g, mul, "Add", &shift);

    if (add < 0) return k;
    g->r->step[add].in[1] = scale;
    g->r->step[add].in[2] = shift;
    g->r->step[mul].done = true;
    g->r->step[k].done = true;
    return add;
}

/* (x - mean) / sqrt(mean((x - mean)^2) + eps) */
static void layer_norm(links *g, int k)
{
    int sub = maker(g, k, 0, "Sub"), root = maker(g, k, 1, "Sqrt"), add = maker(g, root, 0, "Add");
    float eps = 0.0f;
    int at = number_at(g, add, NAN, &eps), end;
    int var = (at >= 0) ? maker(g, add, (size_t)(1 - at), "ReduceMean") : -1;
    int mean = maker(g, sub, 1, "ReduceMean"), power = maker(g, var, 0, "Pow");
    int square = (power >= 0) ? power : maker(g, var, 0, "Mul");
    int twice = (power >= 0) ? sub : maker(g, square, 1, "Sub");
    const int inner[6] = { sub, root, add, var, mean, square };

    if ((sub < 0) || (mean < 0) || (square < 0) || !means_last(g, var) || !means_last(g, mean))
        return;
    if ((maker(g, square, 0, "Sub") != sub) || (twice != sub) ||
        ((power >= 0) && (number_at(g, power, 2.0, NULL) != 1)) ||
        (strcmp(input_of(g, sub, 0), input_of(g, mean, 0)) != 0))
        return;
    if (!read_by(g, sub, (power >= 0) ? 2 : 3)) return;
    for (int i = 1; i < 6; i++)
        if (!read_by(g, inner[i], 1)) return;
    end = with_affine(g, k);
    g->r->step[end].in[0] = input_of(g, sub, 0);
    g->r->step[end].eps = eps;
    finish(g, end, "LayerNormalization", (end != k) ? 3 : 1, inner, 6);
}

/* 1 + erf(x / sqrt 2) as input i of product k; the name of x, and the three nodes. */
static const char *erf_part(const links *g, int k, size_t i, int inner[3])
{
    int add = maker(g, k, i, "Add"), at = number_at(g, add, 1.0, NULL);
    int erf_of = (at >= 0) ? maker(g, add, (size_t)(1 - at), "Erf") : -1;
    int div = maker(g, erf_of, 0, "Div"), mul = maker(g, erf_of, 0, "Mul");
    int by = (div >= 0) ? div : mul;
    int number = number_at(g, by, (div >= 0) ? sqrt(2.0) : sqrt(0.5), NULL);

    if ((number < 0) || ((div >= 0) && (number != 1))) return NULL;
    inner[0] = add;
    inner[1] = erf_of;
    inner[2] = by;
    for (int n = 0; n < 3; n++)
        if (!read_by(g, inner[n], 1)) return NULL;
    return input_of(g, by, (size_t)(1 - number));
}

/* x (1 + erf) 0.5, in either order. */
static void gelu(links *g, int k)
{
    int half = number_at(g, k, 0.5, NULL), inner[4] = { -1 }, other;
    const char *x, *own;

    if (half >= 0) { /* the half comes last */
        other = maker(g, k, (size_t)(1 - half), "Mul");
        if (!read_by(g, other, 1)) return;
        for (size_t i = 0; i < 2; i++) {
            x = erf_part(g, other, i, inner);
            if ((x == NULL) || (strcmp(input_of(g, other, 1 - i), x) != 0)) continue;
            inner[3] = other;
            g->r->step[k].in[0] = x;
            finish(g, k, "Gelu", 1, inner, 4);
            return;
        }
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        x = erf_part(g, k, i, inner);
        other = maker(g, k, 1 - i, "Mul");
        half = number_at(g, other, 0.5, NULL);
        if ((x == NULL) || (half < 0) || !read_by(g, other, 1)) continue;
        own = input_of(g, other, (size_t)(1 - half));
        if (strcmp(own, x) != 0) continue;
        inner[3] = other;
        g->r->step[k].in[0] = x;
        finish(g, k, "Gelu", 1, inner, 4);
        return;
    }
}

/* A product with a constant matrix, and its bias. */
static void with_bias(links *g, int k)
{
    const ct_onnx_operand *w = (g->r->step[k].proto->n_input == 2) ? floats(g, k, 1) : NULL, *b;
    const char *bias = NULL;
    int add = ((w != NULL) && (w->shape.ndim == 2)) ? behind(g, k, "Add", &bias) : -1;

    if (add < 0) return;
    b = ct_onnx_value_find(g->r, bias);
    if (b->shape.dim[0] != w->shape.dim[1]) return;
    for (int i = 0; i < 2; i++) g->r->step[add].in[i] = input_of(g, k, (size_t)i);
    g->r->step[add].in[2] = bias;
    finish(g, add, "MatMul", 3, &k, 1);
}

/* x, or a number where x is none. No value of a net is: masks hide with the least float where ONNX
 * has minus infinity. */
static void never_nan(links *g, int k)
{
    int nan_of = maker(g, k, 0, "IsNaN");

    if ((g->r->step[k].proto->n_input != 3) || !read_by(g, nan_of, 1) ||
        (strcmp(input_of(g, nan_of, 0), input_of(g, k, 2)) != 0))
        return;
    g->r->step[k].in[0] = input_of(g, k, 2);
    finish(g, k, "Identity", 1, &nan_of, 1);
}

ct_status ct_onnx_find_patterns(ct_onnx_reader *r)
{
    links g = { .r = r };
    ct_status status = ct_onnx_link(r, &g.l);

    for (int k = 0; (k < r->n_step) && (status == CT_OK); k++) {
        if (r->step[k].done || (r->step[k].n_in > 0)) continue;
        if (strcmp(r->step[k].op, "Div") == 0) layer_norm(&g, k);
        if (strcmp(r->step[k].op, "Mul") == 0) gelu(&g, k);
        if (strcmp(r->step[k].op, "MatMul") == 0) with_bias(&g, k);
        if (strcmp(r->step[k].op, "Where") == 0) never_nan(&g, k);
    }
    ct_onnx_links_destroy(&g.l);
    return status;
}
