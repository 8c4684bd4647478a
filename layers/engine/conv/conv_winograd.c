/* Winograd's convolution on blocked layouts: 3 x 3 and 5 x 5, step 1. Which plane and channels it
 * takes, and what it sums. */
#include "layers/engine/conv/winograd.h"

const ct_wino_maps *ct_wino_maps_of(const ct_conv_desc *d)
{
    const ct_wino_maps *kind = ct_wino_map[ct_simd_pick()];
    int64_t small = blk_count(d->oh, 2) * blk_count(d->ow, 2) * 16;
    int64_t large = blk_count(d->oh, 4) * blk_count(d->ow, 4) * 36;

    if ((d->winograd < 2) || !ct_blk_supports(d)) return NULL;
    if ((d->kh != d->kw) || (d->sh != 1) || (d->sw != 1)) return NULL;
    if ((d->dh != 1) || (d->dw != 1)) return NULL;
    if (d->kh == 5) return (d->winograd >= 4) ? &kind[2] : NULL;
    if (d->kh != 3) return NULL;
    return ((d->winograd >= 4) && (large <= small)) ? &kind[1] : &kind[0];
}

bool ct_wino_is_adjoint(const ct_conv_desc *d)
{
    const ct_wino_maps *map = ct_wino_maps_of(d);
    int64_t of_dx = blk_count(d->h, map->m) * blk_count(d->w, map->m);

    return 4 * blk_count(d->oh, map->m) * blk_count(d->ow, map->m) <= 3 * of_dx;
}

static bool supports(const ct_conv_desc *d)
{
    return ct_wino_maps_of(d) != NULL;
}

/* Measured on AVX-512 (docs/results/2026-11-22-convolutions.md): 1.3 times the direct sum at 16
 * channels, 1.5 to 3 times from 32 on, if the mapped weights are used for some tiles at all; more
 * channels and tiles in bf16, which makes products cheaper and maps not. 5 x 5: 1.3 to 1.7 times
 * from some 20 on. */
bool ct_wino_prefers(const ct_conv_desc *d)
{
    enum { CHANNELS = 16, BF16_CHANNELS = 32, CHANNELS_5 = 20, TILES = 16, BF16_TILES = 96 };
    const ct_wino_maps *map = ct_wino_maps_of(d);
    int least = d->bf16 ? BF16_TILES : TILES, channels = d->bf16 ? BF16_CHANNELS : CHANNELS;

    if (d->kh == 5) channels = CHANNELS_5;
    if ((map == NULL) || (d->c / d->group < channels) || (d->m / d->group < channels)) return false;
    return d->n * blk_count(d->oh, map->m) * blk_count(d->ow, map->m) >= least;
}

/* 5 x 5 in bf16, whose products are twice as fast and maps are not: forward and by data 0.7 to 1.1
 * times the plain sum below 32 channels and where tiles stick out by a fifth, 1.1 to 1.5 times from
 * there on (one of 12: 0.95); weights 1.0 to 2.2 times throughout. */
bool ct_wino_prefers_sum(const ct_conv_desc *d)
{
    enum { CHANNELS = 32 };
    const ct_wino_maps *map = ct_wino_maps_of(d);

    if (!ct_wino_prefers(d)) return false;
    if (!d->bf16 || (d->kh != 5)) return true;
    if ((d->c / d->group < CHANNELS) || (d->m / d->group < CHANNELS)) return false;
    return blk_count(d->oh, map->m) * blk_count(d->ow, map->m) * map->m * map->m * 5 <=
           d->oh * d->ow * 6;
}

/* Of whole groups. */
static ct_wino_sum plain_sum(const ct_conv_desc *d)
{
    ct_blk_set set = ct_blk_pick(d->bf16);

    return (ct_wino_sum){ .set = set,
                          .map = ct_wino_maps_of(d),
                          .n_thread = d->n_thread,
                          .n = d->n,
                          .group = d->group,
                          .in = d->c / d->group,
                          .out = d->m / d->group,
                          .h = d->h,
                          .w = d->w,
                          .oh = d->oh,
                          .ow = d->ow,
                          .row = -d->ph,
                          .col = -d->pw,
                          .w_group = group_m(d) * group_k(d),
                          .w_out = group_k(d),
                          .w_in = d->kh * d->kw,
                          .x_bf16 = d->x_bf16,
                          .y_bf16 = d->y_bf16 };
}

static ct_wino_sum forward_sum(const ct_conv_desc *d)
{
    ct_wino_sum s = plain_sum(d);

    ct_wino_slice(&s);
    return s;
}

/* dx[i] takes dy[i + pad - p] by tap p: the taps turned, from dy[i + pad - (taps - 1)] on. */
static ct_wino_sum backward_sum(const ct_conv_desc *d)
{
    ct_wino_sum s = plain_sum(d);

    s.in = d->m / d->group, s.out = d->c / d->group;
    s.h = d->oh, s.w = d->ow, s.oh = d->h, s.ow = d->w;
    s.w_out = d->kh * d->kw, s.w_in = group_k(d);
    s.adjoint = ct_wino_is_adjoint(d);
    s.turned = !s.adjoint;
    if (s.turned) s.row = d->ph - (d->kh - 1), s.col = d->pw - (d->kw - 1);
    s.x_bf16 = d->y_bf16, s.y_bf16 = d->x_bf16;
    ct_wino_slice(&s);
    return s;
}

static size_t forward_workspace(const ct_conv_desc *d)
{
    ct_wino_sum s = forward_sum(d);

    return (size_t)ct_wino_sum_work(&s) * sizeof(float);
}

static ct_status forward(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_wino_sum s = forward_sum(d);

    s.x = a->x, s.weight = a->weight, s.bias = a->bias;
    s.y = a->y, s.work = a->work, s.relu = a->relu;
    return ct_wino_sum_run(&s, ex);
}

static size_t backward_workspace(const ct_conv_desc *d)
{
    ct_wino_sum s = backward_sum(d);

    return (size_t)ct_wino_sum_work(&s) * sizeof(float);
}

static ct_status backward_data(const ct_conv_desc *d, ct_exec *ex, const ct_conv_args *a)
{
    ct_wino_sum s = backward_sum(d);

    s.x = a->dy, s.weight = a->weight;
    s.y = a->dx, s.work = a->work;
    return ct_wino_sum_run(&s, ex);
}

const ct_conv_impl ct_conv_winograd_forward = { .name = "winograd",
                                                .supports = supports,
                                                .workspace = forward_workspace,
                                                .run = forward,
                                                .prefers = ct_wino_prefers_sum,
                                                .can = CT_CONV_CAN_RELU | CT_CONV_CAN_BF16 };
const ct_conv_impl ct_conv_winograd_backward_data = { .name = "winograd",
                                                      .supports = supports,
                                                      .workspace = backward_workspace,
                                                      .run = backward_data,
                                                      .prefers = ct_wino_prefers_sum,
                                                      .can = CT_CONV_CAN_BF16 };
