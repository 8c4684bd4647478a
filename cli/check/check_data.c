/* --data_shape: what samples look like whose source is not there. It goes where the prototxt could
 * have said it itself, synthetic_shape. */
#include <stdlib.h>
#include <string.h>

#include "cli/check/check.h"

/* [TOP=]D,D,… */
typedef struct entry {
    const char *top; /* NULL: the first one of a layer */
    size_t n_top;
    int n_dim;
    int64_t dim[CT_MAX_DIM];
} entry;

static ct_status read_entry(const char *text, entry *e)
{
    const char *at = strchr(text, '=');
    char *end;

    memset(e, 0, sizeof(*e));
    if (at != NULL) {
        e->top = text;
        e->n_top = (size_t)(at - text);
    }
    for (at = (at != NULL) ? at + 1 : text;; at = end + 1) {
        long long d = strtoll(at, &end, 10);

        if ((end == at) || ((*end != ',') && (*end != '\0')) || (d < 1) || (d > INT32_MAX) ||
            (e->n_dim == CT_MAX_DIM - 1)) {
            return CT_FAIL(CT_ERR_CONFIG,
                           "--data_shape=%s: expected CHANNELS,HEIGHT,WIDTH, or other sizes of one "
                           "sample from 1 on, at most %d, with TOP= in front for another top",
                           text, CT_MAX_DIM - 1);
        }
        e->dim[e->n_dim++] = d;
        if (*end == '\0') return CT_OK;
    }
}

static bool fits(const entry *e, const Ct__LayerParameter *l, size_t top)
{
    if (top >= l->n_top) return false;
    if (e->top == NULL) return top == 0;
    return (strlen(l->top[top]) == e->n_top) && (strncmp(l->top[top], e->top, e->n_top) == 0);
}

/* e NULL: a scalar a sample, such as a label. */
static Ct__BlobShape *make_shape(const entry *e)
{
    Ct__BlobShape *s = calloc(1, sizeof(*s));

    if (s == NULL) return NULL;
    ct__blob_shape__init(s);
    if (e == NULL) return s;
    s->dim = malloc((size_t)e->n_dim * sizeof(s->dim[0]));
    if (s->dim == NULL) {
        free(s);
        return NULL;
    }
    s->n_dim = (size_t)e->n_dim;
    memcpy(s->dim, e->dim, s->n_dim * sizeof(s->dim[0]));
    return s;
}

/* The shape of one top where the layer's parameter has room for one; unset where none fits. */
static ct_status set_one(const entry *e, int n, const Ct__LayerParameter *l, Ct__BlobShape **shape)
{
    for (int i = 0; (i < n) && (*shape == NULL); i++) {
        if (!fits(&e[i], l, 0)) continue;
        *shape = make_shape(&e[i]);
        if (*shape == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a shape");
    }
    return CT_OK;
}

static const entry *find_entry(const entry *e, int n, const Ct__LayerParameter *l, size_t top)
{
    for (int i = 0; i < n; i++) {
        if (fits(&e[i], l, top)) return &e[i];
    }
    return NULL;
}

static ct_status set_all(const entry *e, int n, const Ct__LayerParameter *l,
                         Ct__HDF5DataParameter *p)
{
    if (p->n_synthetic_shape > 0) return CT_OK;
    if (find_entry(e, n, l, 0) == NULL) return CT_OK;
    p->synthetic_shape = calloc(l->n_top, sizeof(p->synthetic_shape[0]));
    for (size_t t = 0; (p->synthetic_shape != NULL) && (t < l->n_top); t++) {
        Ct__BlobShape *s = make_shape(find_entry(e, n, l, t));

        if (s == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a shape");
        p->synthetic_shape[p->n_synthetic_shape++] = s;
    }
    return (p->n_synthetic_shape == l->n_top) ? CT_OK
                                              : CT_FAIL(CT_ERR_NOMEM, "no memory for shapes");
}

static bool is_type(const Ct__LayerParameter *l, const char *type)
{
    return (l->type != NULL) && (strcmp(l->type, type) == 0);
}

ct_status ct_check_data_shapes(const ct_options *o, Ct__NetParameter *net)
{
    int n = ct_options_n(o, "data_shape");
    entry *e = calloc((size_t)n + 1, sizeof(e[0]));
    ct_status status = CT_OK;

    if (e == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for shapes");
    for (int i = 0; (i < n) && (status == CT_OK); i++) {
        ct_origin origin;

        status = read_entry(ct_options_entry(o, "data_shape", i, &origin), &e[i]);
    }
    for (size_t i = 0; (n > 0) && (i < net->n_layer) && (status == CT_OK); i++) {
        Ct__LayerParameter *l = net->layer[i];

        if (is_type(l, "Data") && (l->data_param != NULL))
            status = set_one(e, n, l, &l->data_param->synthetic_shape);
        if (is_type(l, "ImageData") && (l->image_data_param != NULL) &&
            (l->image_data_param->new_height == 0)) /* otherwise the net says it */
            status = set_one(e, n, l, &l->image_data_param->synthetic_shape);
        if (is_type(l, "HDF5Data") && (l->hdf5_data_param != NULL))
            status = set_all(e, n, l, l->hdf5_data_param);
    }
    free(e);
    return status;
}
