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
    const ct_sequence_ops *sequence = (ex->sequence != NULL) ? l->ops->sequence : NULL;

    if ((sequence != NULL) && (sequence->forward != NULL)) return sequence->forward(l, in, ex);
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

static ct_status all_parts(const ct_layer *l, ct_instance *in, ct_exec *ex, bool forward)
{
    const ct_sum_ops *sums = l->ops->sums;

    for (int k = 0;; k++) {
        int n = sums->count(l, in, forward, k);

        CT_TRY(forward ? sums->forward(l, in, ex, k) : sums->backward(l, in, ex, k));
        if (n == 0) return CT_OK;
        if (ex->sum_ranks != NULL)
            CT_TRY(ex->sum_ranks(ex->hook_ctx, in->buffer[sums->slot].data, n));
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
    return w;
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
