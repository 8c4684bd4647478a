#include "framework/snapshot/named_tensor.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/bf16.h"
#include "framework/base/f16.h"

/* ---- values */

enum { QUANTS = 32 /* values of a block of the Q forms */ };

static float f16_at(const uint8_t *p)
{
    return ct_f16_to_f32((uint16_t)ct_little_endian(p, 2));
}

static void read_f32(const uint8_t *p, int64_t n, float *out)
{
    memcpy(out, p, (size_t)n * sizeof(*out));
}

static void read_f16(const uint8_t *p, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = f16_at(p + 2 * i);
}

static void read_bf16(const uint8_t *p, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = ct_bf16_to_f32((uint16_t)ct_little_endian(p + 2 * i, 2));
}

static void read_f64(const uint8_t *p, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        double d;

        memcpy(&d, p + 8 * i, sizeof(d));
        out[i] = (float)d;
    }
}

/* scale, then 32 signed bytes */
static void read_q8_0(const uint8_t *p, int64_t n, float *out)
{
    for (int64_t b = 0; b < n / QUANTS; b++, p += 2 + QUANTS) {
        float scale = f16_at(p);

        for (int i = 0; i < QUANTS; i++) *out++ = (float)(int8_t)p[2 + i] * scale;
    }
}

/* scale, then 16 bytes: value i in the lower half of byte i, value 16 + i in the upper one */
static void read_q4_0(const uint8_t *p, int64_t n, float *out)
{
    for (int64_t b = 0; b < n / QUANTS; b++, p += 2 + QUANTS / 2, out += QUANTS) {
        float scale = f16_at(p);

        for (int i = 0; i < QUANTS / 2; i++) {
            out[i] = (float)((p[2 + i] & 15) - 8) * scale;
            out[QUANTS / 2 + i] = (float)((p[2 + i] >> 4) - 8) * scale;
        }
    }
}

/* scale and least value, then as Q4_0. The product is rounded before the sum, as ggml does. */
static void read_q4_1(const uint8_t *p, int64_t n, float *out)
{
    for (int64_t b = 0; b < n / QUANTS; b++, p += 4 + QUANTS / 2, out += QUANTS) {
        float scale = f16_at(p), least = f16_at(p + 2);

        for (int i = 0; i < QUANTS / 2; i++) {
            out[i] = (float)(p[4 + i] & 15) * scale + least;
            out[QUANTS / 2 + i] = (float)(p[4 + i] >> 4) * scale + least;
        }
    }
}

static const struct {
    unsigned items, bytes; /* of a block */
    void (*read)(const uint8_t *p, int64_t n, float *out);
} form_table[] = {
    [CT_VALUES_OTHER] = { 1, 0, NULL },
    [CT_VALUES_F32] = { 1, 4, read_f32 },
    [CT_VALUES_F16] = { 1, 2, read_f16 },
    [CT_VALUES_BF16] = { 1, 2, read_bf16 },
    [CT_VALUES_F64] = { 1, 8, read_f64 },
    [CT_VALUES_Q4_0] = { QUANTS, 2 + QUANTS / 2, read_q4_0 },
    [CT_VALUES_Q4_1] = { QUANTS, 4 + QUANTS / 2, read_q4_1 },
    [CT_VALUES_Q8_0] = { QUANTS, 2 + QUANTS, read_q8_0 },
};

uint64_t ct_value_form_bytes(ct_value_form form, uint64_t n)
{
    return (n % form_table[form].items == 0) ? n / form_table[form].items * form_table[form].bytes
                                             : 0;
}

void ct_named_tensor_read(const ct_named_tensor *t, float *out)
{
    form_table[t->form].read(t->data, ct_shape_count(&t->shape, 0, -1), out);
}

/* ---- sets */

/* Room for one more of `size` bytes; NULL without memory, and then the array is as it was. */
static void *grow(void *array, int n, int *capacity, size_t size)
{
    int more = (*capacity > 0) ? 2 * *capacity : 16;
    void *grown;

    if (n < *capacity) return array;
    grown = realloc(array, (size_t)more * size);
    if (grown != NULL) *capacity = more;
    return grown;
}

static ct_status no_memory(const ct_tensor_set *s)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", s->file);
}

ct_status ct_tensor_set_map(ct_tensor_set *s, const char *path, const ct_file_map **map_p)
{
    ct_file_map *grown = grow(s->map, s->n_map, &s->map_capacity, sizeof(*s->map));

    if (grown == NULL) return no_memory(s);
    s->map = grown;
    CT_TRY(ct_file_map_open(path, &s->map[s->n_map]));
    *map_p = &s->map[s->n_map++];
    return CT_OK;
}

bool ct_tensor_name_is_plain(const char *name)
{
    size_t n = 0;

    for (; name[n] != '\0'; n++)
        if (((unsigned char)name[n] < 0x20) || (name[n] == 0x7f)) return false;
    return (n > 0) && (n <= 512);
}

ct_status ct_tensor_set_add(ct_tensor_set *s, const char *name, const ct_named_tensor *t)
{
    ct_named_tensor *grown = grow(s->tensor, s->n_tensor, &s->capacity, sizeof(*s->tensor));
    char *copy = (grown != NULL) ? strdup(name) : NULL;

    if (grown != NULL) s->tensor = grown;
    if (copy == NULL) return no_memory(s);
    s->tensor[s->n_tensor] = *t;
    s->tensor[s->n_tensor++].name = copy;
    return CT_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const ct_named_tensor *const *)a)->name,
                  (*(const ct_named_tensor *const *)b)->name);
}

ct_status ct_tensor_set_sort(ct_tensor_set *s)
{
    const ct_named_tensor **order = malloc((size_t)(s->n_tensor + 1) * sizeof(*order));

    if (order == NULL) return no_memory(s);
    for (int i = 0; i < s->n_tensor; i++) order[i] = &s->tensor[i];
    if (s->n_tensor > 0) qsort(order, (size_t)s->n_tensor, sizeof(*order), by_name);
    free(s->sorted);
    s->sorted = order;
    for (int i = 1; i < s->n_tensor; i++)
        if (strcmp(order[i - 1]->name, order[i]->name) == 0)
            return CT_FAIL(CT_ERR_DATA, "%s: the tensor \"%s\" is there twice", s->file,
                           order[i]->name);
    return CT_OK;
}

int ct_tensor_set_find(const ct_tensor_set *s, const char *name)
{
    int low = 0, high = s->n_tensor;

    while (low < high) {
        int middle = low + (high - low) / 2, order = strcmp(s->sorted[middle]->name, name);

        if (order == 0) return (int)(s->sorted[middle] - s->tensor);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

static int by_place(const void *a, const void *b)
{
    const ct_named_tensor *x = *(const ct_named_tensor *const *)a;
    const ct_named_tensor *y = *(const ct_named_tensor *const *)b;

    return ((uintptr_t)x->data > (uintptr_t)y->data) - ((uintptr_t)x->data < (uintptr_t)y->data);
}

ct_status ct_tensor_set_check_overlap(const ct_tensor_set *s, int first)
{
    const ct_named_tensor **order = malloc((size_t)(s->n_tensor - first + 1) * sizeof(*order));
    const ct_named_tensor *a = NULL, *b = NULL;
    int n = 0;

    if (order == NULL) return no_memory(s);
    for (int i = first; i < s->n_tensor; i++)
        if (s->tensor[i].size > 0) order[n++] = &s->tensor[i];
    if (n > 0) qsort(order, (size_t)n, sizeof(*order), by_place);
    for (int i = 1; (i < n) && (a == NULL); i++) {
        if ((uint64_t)(order[i]->data - order[i - 1]->data) >= order[i - 1]->size) continue;
        a = order[i - 1];
        b = order[i];
    }
    free(order);
    if (a != NULL)
        return CT_FAIL(CT_ERR_DATA, "%s: the tensors \"%s\" and \"%s\" share bytes", s->file,
                       a->name, b->name);
    return CT_OK;
}

void ct_tensor_set_destroy(ct_tensor_set *s)
{
    for (int i = 0; i < s->n_tensor; i++) free(s->tensor[i].name);
    for (int i = 0; i < s->n_map; i++) ct_file_map_close(&s->map[i]);
    free(s->sorted);
    free(s->tensor);
    free(s->map);
    *s = (ct_tensor_set){ .file = s->file };
}
