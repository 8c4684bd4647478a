#include "framework/snapshot/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";
enum { MAGIC = 6 };

/* Behind "'key':" and blanks, or NULL. */
static const char *find_value(const char *dict, const char *key)
{
    const char *at = strstr(dict, key);

    if (at == NULL) return NULL;
    at += strlen(key);
    at += strspn(at, " ");
    if (*at != ':') return NULL;
    at++;
    return at + strspn(at, " ");
}

/* "(3, 4)", "(5,)", "()" */
static bool read_shape(const char *at, ct_shape *shape)
{
    memset(shape, 0, sizeof(*shape));
    if (*at++ != '(') return false;
    for (;;) {
        char *end;
        long long v;

        at += strspn(at, " ,");
        if (*at == ')') return ct_shape_is_valid(shape);
        if ((*at < '0') || (*at > '9') || (shape->ndim == CT_MAX_DIM)) return false;
        v = strtoll(at, &end, 10);
        if ((*end != ',') && (*end != ')')) return false;
        shape->dim[shape->ndim++] = v;
        at = end;
    }
}

static bool read_dict(const char *dict, ct_npy *npy)
{
    const char *type = find_value(dict, "'descr'");
    const char *order = find_value(dict, "'fortran_order'");
    const char *shape = find_value(dict, "'shape'");

    if ((type == NULL) || (order == NULL) || (shape == NULL)) return false;
    if (strncmp(type, "'<f4'", 5) == 0)
        npy->item = 4;
    else if (strncmp(type, "'<f8'", 5) == 0)
        npy->item = 8;
    else
        return false;
    npy->fortran = (strncmp(order, "True", 4) == 0);
    return (npy->fortran || (strncmp(order, "False", 5) == 0)) && read_shape(shape, &npy->shape);
}

bool ct_npy_read_head(const uint8_t *bytes, size_t size, ct_npy *npy)
{
    char dict[CT_NPY_HEAD_MAX + 1];
    size_t start, length;

    if ((size < 12) || (memcmp(bytes, magic, MAGIC) != 0)) return false;
    length = bytes[8] | (size_t)bytes[9] << 8;
    start = 10;
    if (bytes[6] != 1) { /* versions 2 and 3 have four bytes of length */
        length |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
        start = 12;
    }
    if ((start > size) || (length > size - start)) return false;
    memcpy(dict, bytes + start, length);
    dict[length] = '\0';
    npy->head = start + length;
    return read_dict(dict, npy);
}

static float value_at(const ct_npy *npy, const uint8_t *values, int64_t i)
{
    float f;
    double d;

    if (npy->item == 4) {
        memcpy(&f, values + 4 * i, sizeof(f));
        return f;
    }
    memcpy(&d, values + 8 * i, sizeof(d));
    return (float)d;
}

void ct_npy_values(const ct_npy *npy, const uint8_t *values, float *out)
{
    int64_t n = ct_shape_count(&npy->shape, 0, -1), index[CT_MAX_DIM] = { 0 };

    for (int64_t i = 0; i < n; i++) {
        int64_t from = i;

        if (npy->fortran) {
            from = 0;
            for (int d = npy->shape.ndim - 1; d >= 0; d--)
                from = from * npy->shape.dim[d] + index[d];
            for (int d = npy->shape.ndim - 1; d >= 0; d--) { /* the next in our order */
                if (++index[d] < npy->shape.dim[d]) break;
                index[d] = 0;
            }
        }
        out[i] = value_at(npy, values, from);
    }
}

int64_t ct_npy_write_head(const ct_shape *shape, uint8_t *head)
{
    enum { START = 10, ALIGN = 64 };
    char dict[512];
    int n = snprintf(dict, sizeof(dict), "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    int total;

    for (int i = 0; i < shape->ndim; i++)
        n += snprintf(dict + n, sizeof(dict) - (size_t)n, "%" PRId64 "%s", shape->dim[i],
                      (i + 1 < shape->ndim) ? ", " : ((shape->ndim == 1) ? "," : ""));
    n += snprintf(dict + n, sizeof(dict) - (size_t)n, "), }");
    total = (START + n + 1 + ALIGN - 1) / ALIGN * ALIGN;
    memset(head, ' ', (size_t)total);
    memcpy(head, magic, MAGIC);
    head[6] = 1;
    head[7] = 0;
    head[8] = (uint8_t)((total - START) & 0xff);
    head[9] = (uint8_t)((total - START) >> 8);
    memcpy(head + START, dict, (size_t)n);
    head[total - 1] = '\n';
    return total;
}
