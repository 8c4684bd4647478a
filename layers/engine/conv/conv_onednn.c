/* oneDNN's convolutions as an engine, where it is built in (ONEDNN=1): by name, or where a plan's
 * timing finds it the fastest. The static rules leave it alone.
 *
 * Its nChw16c and nChw8c are our blocks. Weights have the layout that it asks for, so each call
 * packs them, as our engines do. Descriptors are made in each call; its own cache keeps the code.
 */
#include "framework/base/memory.h"
#include "layers/engine/conv/conv.h"

#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR != 2
#error "ONEDNN=1 is written for the interface of oneDNN 2"
#endif

typedef enum { FORWARD, DATA, WEIGHT } pass;

/* Of one call: what has to be given back. */
typedef struct call {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t forward, run; /* run may be forward */
    dnnl_memory_desc_t plain;           /* weights in Caffe's order */
} call;

static ct_status failed(dnnl_status_t status, const char *what)
{
    return CT_FAIL(CT_ERR_DEVICE, "oneDNN: status %d of %s", (int)status, what);
}

static void close_call(call *c)
{
    if ((c->run != NULL) && (c->run != c->forward)) dnnl_primitive_desc_destroy(c->run);
    if (c->forward != NULL) dnnl_primitive_desc_destroy(c->forward);
    if (c->attr != NULL) dnnl_primitive_attr_destroy(c->attr);
    if (c->stream != NULL) dnnl_stream_destroy(c->stream);
    if (c->engine != NULL) dnnl_engine_destroy(c->engine);
}

static dnnl_format_tag_t tag_of(int block)
{
    if (block == 16) return dnnl_nChw16c;
    return (block == 8) ? dnnl_nChw8c : dnnl_nchw;
}

/* Where a group's channels do not fill their blocks, ours begin the next group in a new one. */
static bool same_blocks(int64_t channels, int64_t group, int block)
{
    bool depthwise = (channels == group);

    if (block == 0) return true;
    if ((block != 8) && (block != 16)) return false;
    return (group == 1) || depthwise || (channels / group % block == 0);
}

#define TRY(_call)                                                                                 \
    do {                                                                                           \
        dnnl_status_t s_ = (_call);                                                                \
        if (s_ != dnnl_success) return s_;                                                         \
    } while (0)

static dnnl_status_t open_descs(const ct_conv_desc *d, pass way, bool bias, call *c)
{
    const dnnl_dims_t x = { d->n, d->c, d->h, d->w }, y = { d->n, d->m, d->oh, d->ow };
    const dnnl_dims_t w = { d->group, d->m / d->group, d->c / d->group, d->kh, d->kw };
    const dnnl_dims_t stride = { d->sh, d->sw }, dilate = { d->dh - 1, d->dw - 1 };
    const dnnl_dims_t pad = { d->ph, d->pw };
    /* what it adds at the far sides: as much as the last window reaches over them */
    const dnnl_dims_t far = { (d->oh - 1) * d->sh + (d->kh - 1) * d->dh + 1 - d->h - d->ph,
                              (d->ow - 1) * d->sw + (d->kw - 1) * d->dw + 1 - d->w - d->pw };
    const dnnl_alg_kind_t how =
        (d->winograd >= 4) ? dnnl_convolution_auto : dnnl_convolution_direct;
    int one = (d->group == 1); /* weights then have no axis of groups */
    dnnl_memory_desc_t mx, my, mw, mb;
    dnnl_convolution_desc_t desc;

    TRY(dnnl_memory_desc_init_by_tag(&mx, 4, x, dnnl_f32, tag_of(d->x_block)));
    TRY(dnnl_memory_desc_init_by_tag(&my, 4, y, dnnl_f32, tag_of(d->y_block)));
    TRY(dnnl_memory_desc_init_by_tag(&mw, 5 - one, w + one, dnnl_f32, dnnl_format_tag_any));
    TRY(dnnl_memory_desc_init_by_tag(&c->plain, 5 - one, w + one, dnnl_f32,
                                     one ? dnnl_oihw : dnnl_goihw));
    TRY(dnnl_memory_desc_init_by_tag(&mb, 1, (dnnl_dims_t){ d->m }, dnnl_f32, dnnl_a));
    TRY(dnnl_engine_create(&c->engine, dnnl_cpu, 0));
    TRY(dnnl_primitive_attr_create(&c->attr));
    TRY(dnnl_primitive_attr_set_scratchpad_mode(c->attr, dnnl_scratchpad_mode_user));
    TRY(dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, how, &mx, &mw,
                                                   bias ? &mb : NULL, &my, stride, dilate, pad,
                                                   far));
    TRY(dnnl_primitive_desc_create(&c->forward, &desc, c->attr, c->engine, NULL));
    c->run = c->forward;
    if (way == FORWARD) return dnnl_success;
    c->run = NULL;
    if (way == DATA)
        TRY(dnnl_dilated_convolution_backward_data_desc_init(&desc, how, &mx, &mw, &my, stride,
                                                             dilate, pad, far));
    else
        TRY(dnnl_dilated_convolution_backward_weights_desc_init(&desc, how, &mx, &mw, NULL, &my,
                                                                stride, dilate, pad, far));
    TRY(dnnl_primitive_desc_create(&c->run, &desc, c->attr, c->engine, c->forward));
    return dnnl_success;
}

static const dnnl_memory_desc_t *weights_of(const call *c, pass way)
{
    return dnnl_primitive_desc_query_md(
        c->run, (way == WEIGHT) ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
}

static const dnnl_memory_desc_t *scratch_of(const call *c)
{
    return dnnl_primitive_desc_query_md(c->run, dnnl_query_scratchpad_md, 0);
}

static bool may_run(const ct_conv_desc *d)
{
    return (d->device == CT_DEVICE_CPU) && (d->n_front == 0) && !d->x_bf16 && !d->y_bf16 &&
           (d->oh > 0) && (d->ow > 0) && same_blocks(d->c, d->group, d->x_block) &&
           same_blocks(d->m, d->group, d->y_block);
}

/* It refuses what has no sample, which is no work. */
static bool supports(const ct_conv_desc *d, pass way)
{
    ct_conv_desc one = *d;
    call c = { NULL };
    bool good;

    if (!may_run(d)) return false;
    if (one.n == 0) one.n = 1;
    good = (open_descs(&one, way, false, &c) == dnnl_success);
    close_call(&c);
    return good;
}

/* Its weights, then its scratchpad; with a bias or without. */
static size_t workspace(const ct_conv_desc *d, pass way)
{
    size_t most = 0;

    for (int bias = 0; (bias <= (way == FORWARD)) && (d->n > 0); bias++) {
        call c = { NULL };
        size_t bytes = 0;

        if (open_descs(d, way, bias, &c) == dnnl_success)
            bytes = ct_align_up(dnnl_memory_desc_get_size(weights_of(&c, way))) +
                    dnnl_memory_desc_get_size(scratch_of(&c));
        close_call(&c);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* ---- runs */

typedef struct operand {
    int arg;
    const dnnl_memory_desc_t *desc;
    void *data;
} operand;

static ct_status execute(const call *c, const_dnnl_primitive_desc_t desc, const operand *o, int n)
{
    dnnl_exec_arg_t arg[8];
    dnnl_primitive_t run = NULL;
    dnnl_status_t status = dnnl_primitive_create(&run, desc);
    int made = 0;

    while ((status == dnnl_success) && (made < n)) {
        arg[made].arg = o[made].arg;
        status = dnnl_memory_create(&arg[made].memory, o[made].desc, c->engine, o[made].data);
        if (status == dnnl_success) made++;
    }
    if (status == dnnl_success) status = dnnl_primitive_execute(run, c->stream, n, arg);
    if (status == dnnl_success) status = dnnl_stream_wait(c->stream);
    while (made > 0) dnnl_memory_destroy(arg[--made].memory);
    if (run != NULL) dnnl_primitive_destroy(run);
    return (status == dnnl_success) ? CT_OK : failed(status, "a convolution");
}

/* to = beta to + from, in another order. */
static ct_status reorder(const call *c, const dnnl_memory_desc_t *from_desc, const void *from,
                         const dnnl_memory_desc_t *to_desc, void *to, float beta)
{
    const operand o[] = { { DNNL_ARG_FROM, from_desc, (void *)from },
                          { DNNL_ARG_TO, to_desc, to } };
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    ct_status done;

    if (status == dnnl_success) status = dnnl_post_ops_create(&ops);
    if ((status == dnnl_success) && (beta != 0.0f)) status = dnnl_post_ops_append_sum(ops, beta);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(attr, ops);
    if (status == dnnl_success)
        status = dnnl_reorder_primitive_desc_create(&desc, from_desc, c->engine, to_desc, c->engine,
                                                    attr);
    done = (status == dnnl_success) ? execute(c, desc, o, 2) : failed(status, "a reorder");
    if (desc != NULL) dnnl_primitive_desc_destroy(desc);
    if (ops != NULL) dnnl_post_ops_destroy(ops);
    if (attr != NULL) dnnl_primitive_attr_destroy(attr);
    return done;
}

/* Operands of d's pass, weights and scratchpad in the workspace. */
static int list_operands(const call *c, const ct_conv_args *a, pass way, operand *o)
{
    const dnnl_query_t query[3][3] = {
        { dnnl_query_src_md, dnnl_query_dst_md, dnnl_query_weights_md },
        { dnnl_query_diff_src_md, dnnl_query_diff_dst_md, dnnl_query_weights_md },
        { dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md }
    };
    const int arg[3][3] = { { DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS },
                            { DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS },
                            { DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS } };
    size_t weights = ct_align_up(dnnl_memory_desc_get_size(weights_of(c, way)));
    void *data[3] = { (way == DATA) ? a->dx : (void *)a->x, (way == FORWARD) ? a->y : (void *)a->dy,
                      a->work };

    for (int i = 0; i < 3; i++)
        o[i] = (operand){ arg[way][i], dnnl_primitive_desc_query_md(c->run, query[way][i], 0),
                          data[i] };
    o[3] = (operand){ DNNL_ARG_SCRATCHPAD, scratch_of(c), (char *)a->work + weights };
    return 4;
}

static ct_status run_call(const ct_conv_desc *d, const ct_conv_args *a, pass way, call *c)
{
    bool bias = (way == FORWARD) && (a->bias != NULL);
    dnnl_status_t status = open_descs(d, way, bias, c);
    const dnnl_memory_desc_t *weights;
    operand o[5];
    int n;

    if (status == dnnl_success)
        status = dnnl_stream_create(&c->stream, c->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) return failed(status, "a convolution's description");
    weights = weights_of(c, way);
    n = list_operands(c, a, way, o);
    if (way != WEIGHT) CT_TRY(reorder(c, &c->plain, a->weight, weights, a->work, 0.0f));
    if (bias)
        o[n++] = (operand){ DNNL_ARG_BIAS,
                            dnnl_primitive_desc_query_md(c->run, dnnl_query_weights_md, 1),
                            (void *)a->bias };
    CT_TRY(execute(c, c->run, o, n));
    if (way == WEIGHT) CT_TRY(reorder(c, weights, a->work, &c->plain, a->dweight, a->beta));
    return CT_OK;
}

static ct_status run(const ct_conv_desc *d, const ct_conv_args *a, pass way)
{
    int64_t n_weight = d->m * group_k(d);
    call c = { NULL };
    ct_status status;

    if ((d->n == 0) && (way != WEIGHT)) return CT_OK;
    if ((d->n == 0) && (a->beta == 0.0f)) return ct_math_cpu.set(NULL, n_weight, 0.0f, a->dweight);
    if (d->n == 0) return ct_math_cpu.scale(NULL, n_weight, a->beta, a->dweight);
    status = run_call(d, a, way, &c);
    close_call(&c);
    return status;
}

static bool never(const ct_conv_desc *d)
{
    (void)d;
    return false;
}

#define ENGINE(_name, _way)                                                                        \
    static bool _name##_supports(const ct_conv_desc *d)                                            \
    {                                                                                              \
        return supports(d, _way);                                                                  \
    }                                                                                              \
    static size_t _name##_workspace(const ct_conv_desc *d)                                         \
    {                                                                                              \
        return workspace(d, _way);                                                                 \
    }                                                                                              \
    static ct_status _name##_run(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)        \
    {                                                                                              \
        (void)ex;                                                                                  \
        return run(d, a, _way);                                                                    \
    }                                                                                              \
                                                                                                   \
    const ct_conv_impl ct_conv_onednn_##_name = { .name = "onednn",                                \
                                                  .supports = _name##_supports,                    \
                                                  .workspace = _name##_workspace,                  \
                                                  .run = _name##_run,                              \
                                                  .prefers = never };

ENGINE(forward, FORWARD)
ENGINE(backward_data, DATA)
ENGINE(backward_weight, WEIGHT)
