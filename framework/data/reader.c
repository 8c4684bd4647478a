#include "framework/data/reader.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/data/sample.h"

ct_status ct_reader_find(const char *backend, const char *who, const ct_reader_ops **ops_p)
{
    for (const ct_reader_entry *e = ct_reader_table; e->name != NULL; e++) {
        if (strcmp(e->name, backend) != 0) continue;
        if (e->ops == NULL) {
            return CT_FAIL(CT_ERR_CONFIG, "%s: built without %s", who, e->without);
        }
        *ops_p = e->ops;
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_CONFIG, "%s: unknown backend \"%s\"", who, backend);
}

ct_status ct_reader_bad(const ct_reader *r, int64_t id, const ct_sample *s, ct_status status,
                        const ct_why *why)
{
    char name[512];

    if (s->why != NULL) {
        *s->why = *why;
        return status;
    }
    r->ops->describe(r, id, name, sizeof(name));
    return CT_READER_FAIL(r, status, "%s: %s", name, why->text);
}

void ct_reader_name(const ct_reader *r, int64_t id, char *text, size_t size)
{
    text[0] = '\0';
    if (r->ops->name_of != NULL) r->ops->name_of(r, id, text, size);
}

bool ct_reader_may_skip(ct_status status)
{
    return (status == CT_ERR_DATA) || (status == CT_ERR_IO);
}

int64_t ct_reader_after(const ct_reader *r, int64_t id)
{
    return (r->ops->next != NULL) ? r->ops->next(r, id) : (id + 1) % r->count;
}

/* The first good sample says what the others look like. */
static ct_status probe(ct_reader *r, int64_t skip)
{
    ct_why why = { "" };
    ct_sample sample = { .why = &why };
    void *local = NULL;
    ct_status status = ct_reader_local(r, &local);
    int64_t id = 0;

    sample.rest = malloc(((size_t)ct_reader_rest_count(r) + 1) * sizeof(float));
    if (sample.rest == NULL) status = CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for a sample");
    if (status == CT_OK) {
        do {
            status = r->ops->read(r, local, id, &sample);
        } while (ct_reader_may_skip(status) && (id < skip) && (++id < r->count));
        if (status == CT_OK) {
            r->field[0] = sample.shape;
            r->u8 = sample.u8 != NULL;
        } else {
            sample.why = NULL; /* the last one that was read */
            status = ct_reader_bad(r, (id < r->count) ? id : id - 1, &sample, status, &why);
        }
    }
    ct_reader_local_release(r, local);
    free(sample.rest);
    return status;
}

ct_status ct_reader_create(const ct_reader_ops *ops, const char *who, const char *source,
                           ct_reader **reader_p)
{
    ct_reader *r = calloc(1, sizeof(*r));

    if (r == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
    r->who = strdup(who);
    r->source = strdup((source != NULL) ? source : "");
    r->state = calloc(1, ops->state_size);
    r->io = calloc(1, sizeof(*r->io));
    if ((r->who == NULL) || (r->source == NULL) || (r->state == NULL) || (r->io == NULL)) {
        ct_reader_close(r);
        return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
    }
    r->ops = ops;
    *reader_p = r;
    return CT_OK;
}

ct_status ct_reader_open(const char *backend, const ct_reader_options *options,
                         ct_reader **reader_p)
{
    const char *who = (options->who != NULL) ? options->who : "data";
    const ct_reader_ops *ops;
    ct_status status;
    ct_reader *r;

    CT_TRY(ct_reader_find(backend, who, &ops));
    CT_TRY(ct_reader_create(ops, who, options->source, &r));
    status = ops->open(r, options);
    if ((status == CT_OK) && (r->count < 1)) {
        status = CT_READER_FAIL(r, CT_ERR_DATA, "%s: no sample in it", r->source);
    }
    if ((status == CT_OK) && ops->probes) status = probe(r, options->skip_broken);
    if (status != CT_OK) {
        ct_reader_close(r);
        return status;
    }
    *reader_p = r;
    return CT_OK;
}

void ct_reader_close(ct_reader *r)
{
    if (r == NULL) return;
    if (r->ops != NULL) r->ops->close(r);
    free(r->state);
    free(r->io);
    free(r->who);
    free(r->source);
    free(r);
}

ct_status ct_reader_local(const ct_reader *r, void **local_p)
{
    *local_p = NULL;
    if (r->ops->local_size == 0) return CT_OK;
    *local_p = calloc(1, r->ops->local_size);
    return (*local_p != NULL) ? CT_OK : CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory");
}

void ct_reader_local_release(const ct_reader *r, void *local)
{
    if (local == NULL) return;
    if (r->ops->local_release != NULL) r->ops->local_release(local);
    free(local);
}

int64_t ct_reader_rest_count(const ct_reader *r)
{
    int64_t n = 0;

    for (int i = 1; i < r->n_field; i++) n += ct_shape_count(&r->field[i], 0, -1);
    return n;
}

/* ---- the backends there are; the only file that knows which are built in */

const ct_reader_entry ct_reader_table[] = {
    { "lmdb", &ct_reader_lmdb, "" },
    { "annotated", &ct_reader_annotated, "" },
    { "hdf5", &ct_reader_hdf5, "" },
    { "images", &ct_reader_images, "" },
    { "synthetic", &ct_reader_synthetic, "" },
    { "windows", &ct_reader_windows, "" },
    { "leveldb", NULL,
      "LevelDB: convert the data set to LMDB, with `cortado convert` or with Caffe" },
    { NULL, NULL, NULL },
};

/* ---- sample buffers */

ct_status ct_sample_buffer_reserve(ct_sample_buffer *r, size_t bytes)
{
    uint8_t *data;

    if (bytes <= r->capacity) return CT_OK;
    data = malloc(bytes);
    if (data == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a sample of %zu bytes", bytes);
    free(r->data);
    r->data = data;
    r->capacity = bytes;
    return CT_OK;
}

void ct_sample_buffer_release(ct_sample_buffer *r)
{
    free(r->data);
    *r = (ct_sample_buffer){ 0 };
}

void ct_why_set(ct_why *why, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why->text, sizeof(why->text), fmt, ap);
    va_end(ap);
}
