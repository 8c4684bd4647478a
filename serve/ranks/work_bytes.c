#include "serve/ranks/work_bytes.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "serve/ranks/bytes.h"

/* ---- values */

static int64_t count_values(const ct_served_values *v)
{
    int64_t n = 1;

    for (int i = 0; i < v->n_dim; i++) n *= v->dim[i];
    return n;
}

static void add_values(ct_text *to, const ct_served_values *v)
{
    int64_t n = count_values(v);

    ct_bytes_add_count(to, v->n_dim);
    for (int i = 0; i < v->n_dim; i++) ct_bytes_add_count(to, v->dim[i]);
    ct_bytes_add_count(to, n);
    if (n > 0) ct_text_add_bytes(to, (const char *)v->data, (size_t)n * sizeof(float));
}

static ct_status take_values(ct_bytes *b, ct_served_values *v)
{
    int64_t n_dim = ct_bytes_take_count(b, sizeof(int64_t)), n, all = 1;

    memset(v, 0, sizeof(*v));
    if (n_dim > CT_SERVED_DIMS) b->bad = true;
    for (int i = 0; !b->bad && (i < n_dim); i++) {
        ct_bytes_take(b, &v->dim[i], sizeof(v->dim[i]));
        if ((v->dim[i] < 0) || ((v->dim[i] > 0) && (all > (int64_t)b->left / v->dim[i])))
            b->bad = true;
        else
            all *= v->dim[i];
    }
    n = ct_bytes_take_count(b, sizeof(float));
    if (n != all) b->bad = true;
    if (b->bad) return CT_OK; /* told at the end */
    v->n_dim = (int)n_dim;
    v->data = malloc((size_t)n * sizeof(float) + 1);
    if (v->data == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " numbers of a request", n);
    ct_bytes_take(b, v->data, (size_t)n * sizeof(float));
    return CT_OK;
}

/* ---- what is asked */

void ct_work_bytes_ask(const ct_served_model *m, ct_work_kind kind, ct_work *const *work, int n,
                       ct_text *to)
{
    ct_bytes_add_count(to, kind);
    ct_bytes_add_count(to, n);
    for (int i = 0; i < n; i++) {
        const ct_work *w = work[i];

        ct_bytes_add_count(to, w->padding);
        if (kind == CT_WORK_EMBED) {
            ct_bytes_add_ids(to, w->ids.id, w->ids.n);
        } else {
            for (int k = 0; k < m->n_input; k++) add_values(to, &w->input[k]);
        }
    }
}

static ct_status take_ids(ct_bytes *b, ct_ids *ids)
{
    int64_t n = ct_bytes_take_count(b, sizeof(*ids->id));

    *ids = (ct_ids){ 0 };
    ids->id = malloc((size_t)n * sizeof(*ids->id) + 1);
    if (ids->id == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %" PRId64 " ids of a request", n);
    ct_bytes_take(b, ids->id, (size_t)n * sizeof(*ids->id));
    ids->n = ids->room = n;
    return CT_OK;
}

static ct_status make_room(const ct_served_model *m, ct_works *w, int64_t n)
{
    size_t each = (w->kind == CT_WORK_EMBED) ? 0 : (size_t)m->n_input + (size_t)m->n_output;
    size_t row = (w->kind == CT_WORK_EMBED) ? (size_t)m->embedding_size : 0;

    w->work = calloc((size_t)n + 1, sizeof(*w->work));
    w->each = calloc((size_t)n + 1, sizeof(ct_work *));
    w->values = calloc((size_t)n * each + 1, sizeof(*w->values));
    w->row = calloc((size_t)n * row + 1, sizeof(*w->row));
    if ((w->work == NULL) || (w->each == NULL) || (w->values == NULL) || (w->row == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a batch of %" PRId64 " requests", n);
    w->n = (int)n;
    w->n_value = (int)((size_t)n * each);
    for (int i = 0; i < w->n; i++) {
        w->each[i] = &w->work[i];
        w->work[i].kind = w->kind;
        w->work[i].row = w->row + (size_t)i * row;
        w->work[i].input = w->values + (size_t)i * each;
        w->work[i].output = w->work[i].input + (each > 0 ? m->n_input : 0);
    }
    return CT_OK;
}

static ct_status read_works(const ct_served_model *m, ct_bytes *b, ct_works *w)
{
    int64_t kind = 0, n;

    ct_bytes_take(b, &kind, sizeof(kind));
    n = ct_bytes_take_count(b, sizeof(int64_t));
    if ((kind != CT_WORK_EMBED) && (kind != CT_WORK_INFER)) b->bad = true;
    if (b->bad || (n > INT32_MAX / 64)) return ct_bytes_check_end(b);
    w->kind = (ct_work_kind)kind;
    CT_TRY(make_room(m, w, n));
    for (int i = 0; i < w->n; i++) {
        ct_bytes_take(b, &w->work[i].padding, sizeof(w->work[i].padding));
        if (w->work[i].padding < 0) b->bad = true;
        if (w->kind == CT_WORK_EMBED) CT_TRY(take_ids(b, &w->work[i].ids));
        for (int k = 0; (w->kind == CT_WORK_INFER) && (k < m->n_input); k++)
            CT_TRY(take_values(b, &w->work[i].input[k]));
    }
    return ct_bytes_check_end(b);
}

ct_status ct_works_read(const ct_served_model *m, const char *data, size_t size, ct_works *w)
{
    ct_bytes b = { data, size, false };

    memset(w, 0, sizeof(*w));
    return read_works(m, &b, w);
}

void ct_works_free(ct_works *w)
{
    for (int i = 0; i < w->n; i++) free(w->work[i].ids.id);
    for (int i = 0; i < w->n_value; i++) free(w->values[i].data);
    free(w->work);
    free(w->each);
    free(w->values);
    free(w->row);
}

/* ---- what came out */

void ct_work_bytes_answer(const ct_served_model *m, ct_work_kind kind, ct_work *const *work, int n,
                          ct_text *to)
{
    for (int i = 0; i < n; i++) {
        if (kind == CT_WORK_EMBED) {
            ct_text_add_bytes(to, (const char *)work[i]->row,
                              (size_t)m->embedding_size * sizeof(float));
        } else {
            for (int k = 0; k < m->n_output; k++) add_values(to, &work[i]->output[k]);
        }
    }
}

ct_status ct_work_bytes_take_answer(const ct_served_model *m, ct_work_kind kind,
                                    ct_work *const *work, int n, const char *data, size_t size)
{
    ct_bytes b = { data, size, false };

    for (int i = 0; i < n; i++) {
        if (kind == CT_WORK_EMBED)
            ct_bytes_take(&b, work[i]->row, (size_t)m->embedding_size * sizeof(float));
        for (int k = 0; (kind == CT_WORK_INFER) && (k < m->n_output); k++)
            CT_TRY(take_values(&b, &work[i]->output[k]));
    }
    return ct_bytes_check_end(&b);
}
