#include "framework/snapshot/lm_names.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/memory.h"

/* ---- values of an array of ours, from the tensors that make it */

/* y[c][r] = x[r][c] */
static void transpose(const float *x, int64_t rows, int64_t columns, float *y)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) y[c * rows + r] = x[r * columns + c];
}

/* Within each head rows a0 b0 a1 b1 … become a0 a1 … b0 b1 …: what llama.cpp's converter did to
 * Hugging Face's q and k, undone (LlamaModel.permute). */
static void part_halves(const float *x, int64_t rows, int64_t columns, int64_t heads, float *y)
{
    int64_t dim = rows / heads, half = dim / 2;

    for (int64_t r = 0; r < rows; r++) {
        int64_t d = r % dim, to = r - d + (d % 2) * half + d / 2;

        memcpy(y + to * columns, x + r * columns, (size_t)columns * sizeof(*y));
    }
}

static ct_status read_moved(const ct_weight_origin *o, int k, const ct_named_tensor *t, float *out)
{
    int64_t n = ct_shape_count(&t->shape, 0, -1), rows = t->shape.dim[0];
    float *as_it_is;

    if (n == 0) return CT_OK;
    as_it_is = ct_mem_acquire((size_t)n * sizeof(*as_it_is));
    if (as_it_is == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " values of %s", n, t->name);
    ct_named_tensor_read(t, as_it_is);
    if (o->part[k].order == CT_PART_TRANSPOSED)
        transpose(as_it_is, rows, n / rows, out);
    else
        part_halves(as_it_is, rows, n / rows, o->part[k].heads, out);
    ct_mem_release(as_it_is);
    return CT_OK;
}

ct_status ct_weight_map_read(const ct_weight_map *map, const ct_tensor_set *s, int64_t place,
                             float *out)
{
    const ct_weight_origin *o = &map->origin[place];

    for (int k = 0; k < o->n_part; k++) {
        const ct_named_tensor *t = &s->tensor[o->part[k].tensor];

        if (o->part[k].order == CT_PART_AS_IT_IS)
            ct_named_tensor_read(t, out);
        else
            CT_TRY(read_moved(o, k, t, out));
        out += ct_shape_count(&t->shape, 0, -1);
    }
    return CT_OK;
}

void ct_weight_map_destroy(ct_weight_map *map)
{
    free(map->origin);
    *map = (ct_weight_map){ .n = 0 };
}

static ct_status add_origin(ct_weight_map *map, const ct_weight_origin *o, int64_t *place_p)
{
    if (map->n == map->capacity) {
        int capacity = (map->capacity > 0) ? 2 * map->capacity : 64;
        ct_weight_origin *grown = realloc(map->origin, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the names of weights");
        map->origin = grown;
        map->capacity = capacity;
    }
    *place_p = map->n;
    map->origin[map->n++] = *o;
    return CT_OK;
}

static ct_status check_weights(const ct_tensor_set *s, const ct_named_tensor *t)
{
    if (t->form == CT_VALUES_OTHER)
        return CT_FAIL(CT_ERR_DATA, "%s: %s is of type %s, which weights cannot be read from",
                       s->file, t->name, t->type);
    return CT_OK;
}

ct_status ct_weight_map_add_own(ct_weight_map *map, const ct_tensor_set *s, int tensor, ct_model *m,
                                size_t layer_length, int index)
{
    const ct_named_tensor *t = &s->tensor[tensor];
    const ct_weight_origin o = { .n_part = 1, .part = { { .tensor = tensor } } };
    ct_model_array *a;

    CT_TRY(check_weights(s, t));
    CT_TRY(ct_model_add(m, t->name, layer_length, index, &t->shape, &a));
    return add_origin(map, &o, &a->place);
}
