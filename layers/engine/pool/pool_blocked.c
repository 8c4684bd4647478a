/* Pooling of channels in blocks: what is done by whom; a plane is in pool_blocked_plane.c
 * and pool_blocked_back.c. */
#include "framework/base/bf16.h"
#include "framework/base/simd.h"
#include "framework/base/stream.h"
#include "layers/engine/pool/pool_blocked.h"
#include "layers/engine/pool/pool_step1.h"

static bool supports(const ct_pool_desc *d)
{
    return ct_pool_on_cpu(d) && ((d->block == 8) || (d->block == 16)) &&
           (d->h * d->w <= INT32_MAX) &&
           ((d->method == CT_POOL_AVE) || (ct_pool_mask_bytes(d) == 1));
}

static size_t span_bytes(const ct_pool_desc *d)
{
    return (size_t)(d->oh + d->ow + d->h + d->w) * sizeof(ct_pool_span);
}

static size_t row_bytes(const ct_pool_desc *d)
{
    int64_t longest = (d->w > d->ow) ? d->w : d->ow;

    return ct_align_up((size_t)(longest * d->block) * sizeof(float));
}

static size_t room_bytes(const ct_pool_desc *d)
{
    size_t bytes = (d->bf16 ? 2 : 1) * ct_pool_outputs_bytes(d) + row_bytes(d);
    size_t other = ct_pool_is_step1(d) ? ct_pool_step1_blocked_bytes(d) : 0;

    if (ct_pool_step1_is_small(d)) return ct_align_up(ct_pool_step1_flat_bytes(d));
    return (bytes > other) ? bytes : other;
}

static size_t workspace(const ct_pool_desc *d)
{
    return ct_align_up(span_bytes(d)) + (size_t)d->n_thread * room_bytes(d);
}

static void find_spans(int64_t out, int64_t kernel, int64_t stride, int64_t pad, int64_t in,
                       ct_pool_span *window, ct_pool_span *over)
{
    for (int64_t k = 0; k < in; k++) over[k] = (ct_pool_span){ INT32_MAX, 0, 0 };
    for (int64_t o = 0; o < out; o++) {
        int64_t from, to, size;

        ct_pool_window(o, kernel, stride, pad, in, &from, &to, &size);
        window[o] = (ct_pool_span){ (int32_t)from, (int32_t)to, (int32_t)size };
        for (int64_t k = from; k < to; k++) {
            if (over[k].to == 0) over[k].from = (int32_t)o;
            over[k].to = (int32_t)o + 1;
        }
    }
}

static ct_pool_axes make_axes(const ct_pool_desc *d, void *work)
{
    ct_pool_axes a = { .row = work, .in_one = (ct_simd_block() == 16) };

    a.column = a.row + d->oh;
    a.over_row = a.column + d->ow;
    a.over_column = a.over_row + d->h;
    find_spans(d->oh, d->kh, d->sh, d->ph, d->h, a.row, a.over_row);
    find_spans(d->ow, d->kw, d->sw, d->pw, d->w, a.column, a.over_column);
    return a;
}

/* Whether what is written passes the caches by. */
static bool streams(const ct_pool_desc *d, const ct_pool_args *a)
{
    bool back = (a->dx != NULL);
    int64_t plane = back ? d->h * d->w : d->oh * d->ow;

    return !d->bf16 &&
           ct_stream_pays(back ? a->dx : a->y, (size_t)(d->planes * plane) * sizeof(float));
}

static ct_status run(const ct_pool_desc *d, ct_exec *ex, const ct_pool_args *a)
{
    int64_t in = d->h * d->w * d->block, out = d->oh * d->ow * d->block;
    bool max = (d->method == CT_POOL_MAX) && (a->mask != NULL);
    bool forward = (a->dx == NULL) && (d->method == CT_POOL_MAX);
    bool step1 = forward ? ct_pool_is_step1(d) : ct_pool_is_step1_same(d);
    bool stream = streams(d, a);
    ct_pool_axes s = make_axes(d, a->work);
    ct_status polled = CT_OK;

#pragma omp parallel for num_threads(d->n_thread) schedule(static)
    for (int64_t p = 0; p < d->planes / d->block; p++) {
        char *room = (char *)a->work + ct_align_up(span_bytes(d)) +
                     (size_t)omp_get_thread_num() * room_bytes(d);
        const float *x = ct_num_at(a->x, d->bf16, p * in), *dy = ct_num_at(a->dy, d->bf16, p * out);
        float *y = ct_num_to(a->y, d->bf16, p * out), *dx = ct_num_to(a->dx, d->bf16, p * in);
        uint8_t *mask = max ? (uint8_t *)a->mask + p * out : NULL;

        if (ct_pool_step1_is_small(d))
            ct_pool_step1_flat(d, stream, room, x, y, mask, dy, dx);
        else if (step1)
            ct_pool_step1_blocked(d, stream, room, x, y, mask, dy, dx);
        else if (dx == NULL)
            ct_pool_blocked_plane(d, &s, stream, room, x, y, mask);
        else
            ct_pool_blocked_plane_back(d, &s, stream, room, mask, dy, dx);
        if (stream) ct_stream_end();
        ct_engine_poll(ex, &polled);
    }
    return polled;
}

const ct_pool_impl ct_pool_blocked_forward = {
    .name = "blocked", .supports = supports, .workspace = workspace, .run = run
};
const ct_pool_impl ct_pool_blocked_backward = {
    .name = "blocked", .supports = supports, .workspace = workspace, .run = run
};
