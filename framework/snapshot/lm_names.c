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

/* ---- tensors by others' names */

/* What stands behind a layer's name; old files of BERT have the second ones. */
static const char *const ends[][2] = { { ".weight", ".gamma" }, { ".bias", ".beta" } };

/* Tensor `array` (0: weight, 1: bias) of a row for a block; -1: none. */
static ct_status find_tensor(const ct_tensor_set *s, const ct_lm_naming *naming,
                             const ct_lm_row *row, int block, int array, int *tensor_p)
{
    ct_text stem = { 0 }, name = { 0 };
    ct_status status = ct_lm_name(row->theirs, block, &stem);

    *tensor_p = -1;
    for (int k = 0; (k < 4) && (status == CT_OK) && (*tensor_p < 0); k++) {
        name.length = 0;
        ct_text_add(&name, "%s%s%s", (k < 2) ? "" : naming->prefix, stem.text,
                    (row->ours != NULL) ? ends[array][k % 2] : "");
        if (name.failed)
            status = CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
        else
            *tensor_p = ct_tensor_set_find(s, name.text);
    }
    ct_text_destroy(&stem);
    ct_text_destroy(&name);
    return status;
}

static int arrays_of(const ct_lm_row *row)
{
    return (row->ours == NULL) ? 1 : row->has | row->may;
}

static ct_status count_row(const ct_tensor_set *s, const ct_lm_naming *naming, const ct_lm_row *row,
                           int block, int *n_p)
{
    for (int array = 0; array < 2; array++) {
        int tensor = -1;

        if ((arrays_of(row) >> array & 1) != 0)
            CT_TRY(find_tensor(s, naming, row, block, array, &tensor));
        *n_p += (tensor >= 0) ? 1 : 0;
    }
    return CT_OK;
}

ct_status ct_lm_naming_of(const ct_tensor_set *s, const ct_lm_naming **naming_p)
{
    int most = 0;

    *naming_p = NULL;
    for (int f = CT_LM_GPT2; f <= CT_LM_BERT; f++) {
        const ct_lm_naming *naming = ct_lm_naming_hf((ct_lm_family)f);
        int n = 0;

        for (int r = 0; r < naming->n_row; r++)
            CT_TRY(count_row(s, naming, &naming->row[r], 0, &n));
        if (n <= most) continue;
        most = n;
        *naming_p = naming;
    }
    return CT_OK;
}

typedef struct taker {
    const ct_tensor_set *set;
    const ct_lm_naming *naming;
    const int64_t *n_head;
    ct_weight_map *map;
    ct_model *model;
    bool *used; /* of the set's tensors */
} taker;

/* How many tensors of the row the file has decides; the first of them that is not there is named.
 */
static ct_status find_parts(const taker *c, const ct_lm_row *row, int block, int array,
                            ct_weight_origin *o, int *n_p)
{
    ct_text name = { 0 };
    int missing = -1;

    o->n_part = (row->n_part > 0) ? row->n_part : 1;
    *n_p = 0;
    for (int k = 0; k < o->n_part; k++) {
        CT_TRY(find_tensor(c->set, c->naming, &row[k], block, array, &o->part[k].tensor));
        o->part[k].order =
            (array == 1) && (row[k].order == CT_PART_TRANSPOSED) ? CT_PART_AS_IT_IS : row[k].order;
        o->part[k].heads = c->n_head[k % 2];
        if (o->part[k].tensor >= 0)
            (*n_p)++;
        else if (missing < 0)
            missing = k;
    }
    if ((*n_p == 0) || (*n_p == o->n_part)) return CT_OK;
    CT_TRY(ct_lm_name(row[missing].theirs, block, &name));
    (void)CT_FAIL(CT_ERR_DATA, "%s: %s%s is not there, and others that make one array with it are",
                  c->set->file, name.text, ends[array][0]);
    ct_text_destroy(&name);
    return CT_ERR_DATA;
}

/* The shape of a part in our order. */
static ct_status part_shape(const taker *c, const ct_weight_origin *o, int k, ct_shape *shape)
{
    const ct_named_tensor *t = &c->set->tensor[o->part[k].tensor];
    int64_t heads = o->part[k].heads;

    CT_TRY(check_weights(c->set, t));
    *shape = t->shape;
    if (o->part[k].order == CT_PART_TRANSPOSED) {
        if (shape->ndim != 2)
            return CT_FAIL(CT_ERR_DATA, "%s: %s has shape %s, expected inputs x outputs",
                           c->set->file, t->name, ct_shape_str(shape).text);
        *shape = (ct_shape){ 2, { t->shape.dim[1], t->shape.dim[0] } };
    }
    if ((o->n_part > 1) && (shape->ndim == 0))
        return CT_FAIL(CT_ERR_DATA, "%s: %s is a single value", c->set->file, t->name);
    if ((o->part[k].order == CT_PART_INTERLEAVED) &&
        ((heads < 1) || (shape->dim[0] % 2 != 0) || (shape->dim[0] / 2 % heads != 0)))
        return CT_FAIL(CT_ERR_DATA, "%s: %s has shape %s, which %" PRId64 " heads do not divide",
                       c->set->file, t->name, ct_shape_str(shape).text, heads);
    return CT_OK;
}

/* Parts one behind the other: they differ in their rows alone. */
static ct_status join_shapes(const taker *c, const ct_weight_origin *o, ct_shape *shape)
{
    CT_TRY(part_shape(c, o, 0, shape));
    for (int k = 1; k < o->n_part; k++) {
        ct_shape next;
        int64_t rows = shape->dim[0];

        CT_TRY(part_shape(c, o, k, &next));
        shape->dim[0] = next.dim[0];
        if (!ct_shape_equal(shape, &next))
            return CT_FAIL(CT_ERR_DATA,
                           "%s: %s has shape %s, which does not go with that of %s, %s",
                           c->set->file, c->set->tensor[o->part[k].tensor].name,
                           ct_shape_str(&next).text, c->set->tensor[o->part[0].tensor].name,
                           ct_shape_str(&c->set->tensor[o->part[0].tensor].shape).text);
        shape->dim[0] = rows + next.dim[0];
    }
    if (ct_shape_is_valid(shape)) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s: %s and what goes with it make the shape %s, which is too large",
                   c->set->file, c->set->tensor[o->part[0].tensor].name, ct_shape_str(shape).text);
}

static void say_taken(const taker *c, const ct_weight_origin *o, const char *ours, int array)
{
    for (int k = 0; k < o->n_part; k++) {
        c->used[o->part[k].tensor] = true;
        CT_DEBUG("%s: %s is %s/%d, part %d of %d", c->set->file,
                 c->set->tensor[o->part[k].tensor].name, ours, array, k + 1, o->n_part);
    }
}

static ct_status take_array(const taker *c, const ct_lm_row *row, int block, int array, int *n_p)
{
    ct_weight_origin o = { .n_part = 0 };
    ct_text ours = { 0 };
    ct_model_array *a;
    ct_shape shape;
    ct_status status;
    int found;

    CT_TRY(find_parts(c, row, block, array, &o, &found));
    if (found == 0) return CT_OK;
    CT_TRY(join_shapes(c, &o, &shape));
    CT_TRY(ct_lm_name(row->ours, block, &ours));
    status = ct_model_add(c->model, ours.text, ours.length, array, &shape, &a);
    if (status == CT_OK) status = add_origin(c->map, &o, &a->place);
    if (status == CT_OK) say_taken(c, &o, ours.text, array);
    ct_text_destroy(&ours);
    *n_p += found;
    return status;
}

/* Both arrays of a row. What is no weight counts as used. */
static ct_status take_row(const taker *c, const ct_lm_row *row, int block, int *n_p)
{
    int tensor;

    if (row->part > 0) return CT_OK; /* the row of part 0 took it */
    if (row->ours == NULL) {
        CT_TRY(find_tensor(c->set, c->naming, row, block, 0, &tensor));
        if (tensor >= 0) c->used[tensor] = true;
        return CT_OK;
    }
    for (int array = 0; array < 2; array++)
        if ((arrays_of(row) >> array & 1) != 0) CT_TRY(take_array(c, row, block, array, n_p));
    return CT_OK;
}

static bool is_of_block(const ct_lm_row *row)
{
    return strstr(row->theirs, "%d") != NULL;
}

/* Rows first … last of the blocks, block by block, until there is none. */
static ct_status take_blocks(const taker *c, int first, int last, int *n_p)
{
    int found = 1;

    for (int block = 0; found > 0; block++) {
        found = 0;
        for (int r = first; r < last; r++) CT_TRY(take_row(c, &c->naming->row[r], block, &found));
        *n_p += found;
    }
    return CT_OK;
}

static ct_status take_rows(const taker *c, int *n_p)
{
    const ct_lm_naming *naming = c->naming;
    int last;

    for (int r = 0; r < naming->n_row; r = last) {
        last = r + 1;
        if (!is_of_block(&naming->row[r])) {
            CT_TRY(take_row(c, &naming->row[r], 0, n_p));
            continue;
        }
        while ((last < naming->n_row) && is_of_block(&naming->row[last])) last++;
        CT_TRY(take_blocks(c, r, last, n_p));
    }
    return CT_OK;
}

/* Files of models whose head is the table of tokens leave the head out. A BERT has one where it has
 * the head's bias. */
static ct_status share_head(const taker *c)
{
    const ct_model *m = c->model;
    int head = ct_model_find(m, "head"), table = ct_model_find(m, "wte");
    ct_model_array *a;
    ct_shape shape;
    int64_t place;

    if ((table < 0) || !m->layer[table].array[0].present) return CT_OK;
    if ((head >= 0) && m->layer[head].array[0].present) return CT_OK;
    if ((head < 0) && (c->naming->family == CT_LM_BERT)) return CT_OK;
    shape = m->layer[table].array[0].shape;
    place = m->layer[table].array[0].place;
    CT_TRY(ct_model_add(c->model, "head", strlen("head"), 0, &shape, &a));
    a->place = place;
    a->shared = true;
    return CT_OK;
}

enum { MAX_LISTED = 8 };

static void report(const taker *c, int n)
{
    ct_text left = { 0 };
    int n_left = 0;

    for (int i = 0; i < c->set->n_tensor; i++) {
        if (c->used[i]) continue;
        if (++n_left <= MAX_LISTED) ct_text_add(&left, " %s", c->set->tensor[i].name);
    }
    CT_INFO("%s: names of %s: %d tensors are %d layers", c->set->file, c->naming->title, n,
            c->model->n_layer);
    if (n_left > MAX_LISTED) ct_text_add(&left, " and %d more", n_left - MAX_LISTED);
    if (n_left > 0)
        CT_WARN("%s: %d tensors are no weights of such a model, left out:%s", c->set->file, n_left,
                (left.text != NULL) ? left.text : "");
    ct_text_destroy(&left);
}

ct_status ct_weight_map_add_named(ct_weight_map *map, const ct_tensor_set *s,
                                  const ct_lm_naming *naming, const int64_t n_head[2], ct_model *m)
{
    taker c = { .set = s, .naming = naming, .n_head = n_head, .map = map, .model = m };
    ct_status status;
    int n = 0;

    c.used = calloc((size_t)s->n_tensor + 1, sizeof(*c.used));
    if (c.used == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
    status = take_rows(&c, &n);
    if (status == CT_OK) status = share_head(&c);
    if ((status == CT_OK) && (n == 0))
        status = CT_FAIL(CT_ERR_DATA, "%s: none of its tensors has a name of %s", s->file,
                         naming->title);
    if (status == CT_OK) report(&c, n);
    free(c.used);
    return status;
}
