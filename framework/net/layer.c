#include "framework/net/layer.h"

#include <string.h>

#include "framework/proto/upgrade.h"

const ct_layer_ops *ct_layer_find(const char *type)
{
    for (int i = 0; ct_layer_table[i] != NULL; i++) {
        if (strcmp(ct_layer_table[i]->type, type) == 0) return ct_layer_table[i];
    }
    return NULL;
}

static bool has_word(const char *words, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = words; (at != NULL) && ((at = strstr(at, word)) != NULL); at += n) {
        if (((at == words) || (at[-1] == ' ')) && ((at[n] == ' ') || (at[n] == '\0'))) return true;
    }
    return false;
}

bool ct_layer_type_reads(const char *type, const char *field)
{
    for (int i = 0; ct_layer_table[i] != NULL; i++) {
        const ct_layer_ops *ops = ct_layer_table[i];

        if ((type != NULL) && (strcmp(ops->type, type) != 0)) continue;
        if ((field == NULL) || has_word(ops->params, field)) return true;
    }
    return false;
}

const char *ct_layer_type_reading(const char *field, int k)
{
    for (int i = 0; ct_layer_table[i] != NULL; i++) {
        if (has_word(ct_layer_table[i]->params, field) && (k-- == 0))
            return ct_layer_table[i]->type;
    }
    return NULL;
}

bool ct_layer_on_device(const ct_layer_ops *ops, const Ct__LayerParameter *p, const ct_device *dev,
                        const ct_device_override **form_p)
{
    *form_p = NULL;
    if (dev->kind == CT_DEVICE_CPU) return true;
    for (int i = 0; ct_device_override_table[i] != NULL; i++) {
        const ct_device_override *f = ct_device_override_table[i];

        if (strcmp(f->type, ops->type) != 0) continue;
        if ((f->can != NULL) && !f->can(p)) return false;
        *form_p = f;
        return true;
    }
    return ops->on_cuda;
}

void ct_layer_place(ct_layer *l, const ct_device *dev)
{
    l->dev = ct_layer_on_device(l->ops, l->param, dev, &l->form) ? dev : ct_device_cpu();
}

ct_status ct_layer_forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    if ((l->form != NULL) && (l->form->forward != NULL)) return l->form->forward(l, in, ex);
    return l->ops->forward(l, in, ex);
}

ct_status ct_layer_backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    if ((l->form != NULL) && (l->form->backward != NULL)) return l->form->backward(l, in, ex);
    return l->ops->backward(l, in, ex);
}

int ct_layer_sums(const ct_layer *l, const ct_instance *in, bool forward)
{
    const ct_sum_ops *sums = l->ops->sums;
    int k = 0;

    if ((sums == NULL) || ((l->form != NULL) && (l->form->forward_part == NULL))) return 0;
    while (sums->count(l, in, forward, k) > 0) k++;
    return k;
}

ct_status ct_layer_part(const ct_layer *l, ct_instance *in, ct_exec *ex, bool forward, int part)
{
    if (in->tail != NULL) return l->ops->fusion->forward_part(l, in, ex, part);
    if (l->form != NULL)
        return forward ? l->form->forward_part(l, in, ex, part)
                       : l->form->backward_part(l, in, ex, part);
    return forward ? l->ops->sums->forward(l, in, ex, part)
                   : l->ops->sums->backward(l, in, ex, part);
}

/* What stands between two parts, at once. */
static ct_status between_parts(const ct_layer *l, const ct_instance *in, ct_exec *ex, bool forward,
                               int n)
{
    const ct_sum_ops *sums = l->ops->sums;
    ct_transfer t;
    void *ticket;

    if (sums->transfer != NULL) {
        sums->transfer(l, in, forward, &t);
        CT_TRY(ct_exec_transfer_begin(ex, &t, &ticket));
        return ct_exec_transfer_wait(ex, ticket);
    }
    return (ex->sum_ranks == NULL) ? CT_OK
                                   : ex->sum_ranks(ex->hook_ctx, in->buffer[sums->slot].data, n);
}

static ct_status all_parts(const ct_layer *l, ct_instance *in, ct_exec *ex, bool forward)
{
    const ct_sum_ops *sums = l->ops->sums;

    for (int k = 0;; k++) {
        int n = sums->count(l, in, forward, k);

        CT_TRY(forward ? sums->forward(l, in, ex, k) : sums->backward(l, in, ex, k));
        if (n == 0) return CT_OK;
        CT_TRY(between_parts(l, in, ex, forward, n));
    }
}

ct_status ct_layer_forward_parts(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return all_parts(l, in, ex, true);
}

ct_status ct_layer_backward_parts(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    return all_parts(l, in, ex, false);
}

ct_weight_spec *ct_layer_add_weight(ct_layer *l, const ct_shape *shape,
                                    const Ct__FillerParameter *filler)
{
    ct_weight_spec *w;

    if (l->n_weight == CT_MAX_WEIGHT) return NULL;
    w = &l->weight[l->n_weight++];
    *w = (ct_weight_spec){ .shape = *shape, .filler = filler, .default_lr_mult = 1.0f };
    w->cut.whole = *shape;
    return w;
}

/* ---- the samples of a rank in a divided net */

ct_samples ct_place_samples(const ct_stage_place *p, ct_phase phase, int64_t global, bool replica)
{
    ct_samples n = { .global = global };
    ct_range r;

    if (phase != CT_TRAIN) { /* as evenly as may be */
        r = ct_range_of(global, p->replica, p->n_replica);
        n.first = r.first;
        n.local = r.count;
    } else {
        for (int k = 0; k < p->replica; k++) n.first += p->share[k];
        n.local = p->share[p->replica];
    }
    if (replica) return n;
    r = ct_range_of(n.local, p->part, p->n_part);
    n.first += r.first;
    n.local = r.count;
    return n;
}

bool ct_layer_is_of_replica(const ct_layer *l)
{
    return (l->param->part != NULL) &&
           (l->param->part->split != CT__PARALLEL_LAYER_PARAMETER__SPLIT__BATCH);
}

bool ct_layer_is_twin(const ct_layer *l)
{
    return ct_layer_is_of_replica(l) && (l->param->part->index > 0);
}

bool ct_layer_has_own_samples(const ct_layer *l)
{
    return !ct_layer_is_of_replica(l) ||
           (l->param->part->split == CT__PARALLEL_LAYER_PARAMETER__SPLIT__SEQUENCE);
}

bool ct_layer_varies(const ct_layer_ops *ops, const Ct__LayerParameter *p)
{
    return ops->varies || ((ops->varies_of != NULL) && ops->varies_of(p));
}

/* ---- parts of layers */

static unsigned splits_of(const ct_layer_ops *ops, const Ct__LayerParameter *p)
{
    return (ops->splits_of != NULL) ? ops->splits_of(p) : ops->splits;
}

unsigned ct_layer_splits(const Ct__LayerParameter *p)
{
    const ct_layer_ops *ops = (p->type != NULL) ? ct_layer_find(p->type) : NULL;

    return (ops != NULL) ? splits_of(ops, p) : 0;
}

bool ct_layer_may_split(unsigned splits, Ct__ParallelLayerParameter__Split split)
{
    switch (split) {
    case CT__PARALLEL_LAYER_PARAMETER__SPLIT__OUTPUT:
        return (splits & ~(unsigned)(CT_SPLIT_INPUT | CT_SPLIT_HEADS | CT_SPLIT_TOKEN)) != 0;
    case CT__PARALLEL_LAYER_PARAMETER__SPLIT__INPUT:
        return (splits & CT_SPLIT_INPUT) != 0;
    case CT__PARALLEL_LAYER_PARAMETER__SPLIT__HEADS:
        return (splits & CT_SPLIT_HEADS) != 0;
    case CT__PARALLEL_LAYER_PARAMETER__SPLIT__SEQUENCE:
        return (splits & CT_SPLIT_TOKEN) != 0;
    case CT__PARALLEL_LAYER_PARAMETER__SPLIT__BATCH:
    case CT__PARALLEL_LAYER_PARAMETER__SPLIT__REPLICATE:
    case CT__PARALLEL_LAYER_PARAMETER__SPLIT__ONE:
        return true;
    default:
        return false;
    }
}

const Ct__LayerPart *ct_layer_narrowed(const ct_layer *l)
{
    const Ct__LayerPart *p = l->param->part;

    if ((p == NULL) || (p->split == CT__PARALLEL_LAYER_PARAMETER__SPLIT__BATCH) ||
        (p->split == CT__PARALLEL_LAYER_PARAMETER__SPLIT__REPLICATE))
        return NULL;
    return p;
}

bool ct_layer_is_split(const ct_layer *l, Ct__ParallelLayerParameter__Split split)
{
    return (l->param->part != NULL) && (l->param->part->split == split);
}

/* Of its tokens it has all weights. */
bool ct_layer_is_first(const ct_layer *l)
{
    const Ct__LayerPart *p = ct_layer_narrowed(l);

    return (p == NULL) || (p->index == 0) ||
           (p->split == CT__PARALLEL_LAYER_PARAMETER__SPLIT__SEQUENCE);
}

static int64_t pieces(const Ct__LayerPart *p)
{
    int64_t n = 0;

    for (size_t i = 0; i < p->n_piece; i++) n += p->piece[i];
    return n;
}

ct_status ct_layer_check_part(const ct_layer *l)
{
    const Ct__LayerPart *p = ct_layer_narrowed(l);
    const ProtobufCEnumValue *split;

    if (p == NULL) return CT_OK;
    split = protobuf_c_enum_descriptor_get_value(&ct__parallel_layer_parameter__split__descriptor,
                                                 (int)p->split);
    if ((split == NULL) || !ct_layer_may_split(splits_of(l->ops, l->param), p->split))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "it cannot be a part of a layer: split %s",
                             (split != NULL) ? split->name : "unknown");
    if ((p->count < 1) || (p->index < 0) || (p->index >= p->count) || (p->unit < 1) ||
        (p->n_piece > CT_MAX_RANGE))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "part %d of %d in units of %lld and %zu pieces: this cannot be",
                             p->index, p->count, (long long)p->unit, p->n_piece);
    return CT_OK;
}

/* Range i of the part, in what the pieces are given in. */
static ct_range range_of(const Ct__LayerPart *p, size_t i)
{
    ct_range r = ct_range_of(p->piece[i] / p->unit, p->index, p->count);

    r.first *= p->unit;
    r.count *= p->unit;
    for (size_t k = 0; k < i; k++) r.first += p->piece[k];
    return r;
}

/* Range i of n elements of an axis. */
static ct_status take_range(const ct_layer *l, const Ct__LayerPart *p, size_t i, int64_t n,
                            ct_range *r_p)
{
    int64_t all = pieces(p);
    ct_range r = range_of(p, i);

    if ((p->piece[i] % p->unit != 0) || (p->piece[i] / p->unit < p->count))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "%lld channels in units of %lld cannot be shared out to %d parts",
                             (long long)p->piece[i], (long long)p->unit, p->count);
    if ((r.first * n % all != 0) || (r.count * n % all != 0))
        return CT_LAYER_FAIL(
            l, CT_ERR_CONFIG, "channels %lld to %lld of %lld cut through one of %lld groups",
            (long long)r.first, (long long)(r.first + r.count - 1), (long long)all, (long long)n);
    *r_p = (ct_range){ r.first * n / all, r.count * n / all };
    return CT_OK;
}

ct_status ct_layer_cut(const ct_layer *l, const ct_shape *whole, int axis, ct_cut *cut_p)
{
    const Ct__LayerPart *p = ct_layer_narrowed(l);
    Ct__LayerPart one;
    int64_t n;

    *cut_p = (ct_cut){ .axis = axis, .whole = *whole };
    if (p == NULL) return CT_OK;
    n = whole->dim[axis];
    one = *p;
    if (p->n_piece == 0) one.n_piece = 1, one.piece = &n;
    for (size_t i = 0; i < one.n_piece; i++) CT_TRY(take_range(l, &one, i, n, &cut_p->range[i]));
    cut_p->n_range = (int)one.n_piece;
    return CT_OK;
}

ct_status ct_layer_widen(const ct_layer *l, int axis, ct_shape *shape_p)
{
    const Ct__LayerPart *p = ct_layer_narrowed(l);
    ct_shape whole = *shape_p, part;
    ct_cut cut;

    if (p == NULL) return CT_OK;
    if ((p->n_piece == 0) || (pieces(p) < 1))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "the channels of its whole bottom are missing");
    whole.dim[axis] = pieces(p);
    CT_TRY(ct_layer_cut(l, &whole, axis, &cut));
    part = ct_cut_shape(&cut);
    if (!ct_shape_equal(&part, shape_p))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE,
                             "part %d of %d of a bottom %s, cut along axis %d, is %s, not %s",
                             p->index, p->count, ct_shape_str(&whole).text, axis,
                             ct_shape_str(&part).text, ct_shape_str(shape_p).text);
    *shape_p = whole;
    return CT_OK;
}

ct_weight_spec *ct_layer_add_cut(ct_layer *l, const ct_cut *cut, const Ct__FillerParameter *filler)
{
    ct_shape part = ct_cut_shape(cut);
    ct_weight_spec *w = ct_layer_add_weight(l, &part, filler);

    if (w != NULL) w->cut = *cut;
    return w;
}

ct_status ct_layer_add_part(ct_layer *l, const ct_shape *whole, int axis,
                            const Ct__FillerParameter *filler)
{
    ct_cut cut;

    CT_TRY(ct_layer_cut(l, whole, axis, &cut));
    ct_layer_add_cut(l, &cut, filler);
    return CT_OK;
}

ct_status ct_layer_check_shape(const ct_layer *l, const ct_shape *shape)
{
    if (ct_shape_is_valid(shape)) return CT_OK;
    return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "the shape %s is negative or too large",
                         ct_shape_str(shape).text);
}

void ct_instance_buffer(ct_instance *in, int slot, ct_buffer_lifetime keep, size_t bytes)
{
    in->buffer[slot].keep = keep;
    in->buffer[slot].bytes = bytes;
    in->buffer[slot].row = 0;
}

void ct_instance_carry(ct_instance *in, int slot, int64_t rows, int64_t row)
{
    ct_instance_buffer(in, slot, CT_LIFETIME_ALWAYS, (size_t)(rows * row) * sizeof(float));
    in->buffer[slot].row = row;
}

ct_blob *ct_instance_top(const ct_instance *in)
{
    return ((in->tail != NULL) ? in->tail->last : in)->top[0];
}

float ct_weight_beta(const ct_instance *in, const ct_exec *ex, int i)
{
    return (ex->accumulate || in->add_weight_diff[i]) ? 1.0f : 0.0f;
}
