#include "comm/sparse/residual_return.h"

void ct_residual_return_note(const ct_residual_return *d, int64_t i, float value)
{
    ct_residual_return_list *list = d->list;

    if ((list == NULL) || (value == 0)) return;
    if (list->entry.count == list->entry.room) {
        list->full = true;
        return;
    }
    list->entry.index[list->entry.count] = (uint32_t)(d->first + i);
    list->entry.value[list->entry.count++] = value;
}

void ct_residual_return_next(const ct_residual_return *d)
{
    ct_residual_return_list *list = d->list;
    int64_t last = 0;

    if (list == NULL) return;
    if (list->n_batch > 0) last = list->end[list->n_batch - 1];
    if (list->entry.count == last) return;
    if (list->n_batch == CT_RESIDUAL_RETURN_BATCHES)
        list->full = true;
    else
        list->end[list->n_batch++] = list->entry.count;
}

void ct_residual_return_clear(ct_residual_return_list *list)
{
    list->entry.count = 0;
    list->n_batch = 0;
    list->full = false;
}
