#include "framework/data/reader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct far_state {
    const ct_reader_ops *ops; /* of the backend */
    ct_reader_options options;
    const char *field_name[CT_MAX_FIELD];
    ct_reader *full; /* NULL: not opened; under the lock */
    pthread_mutex_t lock;
    bool has_lock;
} far_state;

typedef struct far_local {
    const ct_reader_ops *ops;
    void *inner;
} far_local;

static ct_status open_full(const ct_reader *r)
{
    far_state *s = r->state;
    ct_status status = CT_OK;

    pthread_mutex_lock(&s->lock);
    if (s->full == NULL) {
        status = ct_reader_open(s->ops->name, &s->options, &s->full);
        if ((status == CT_OK) && (s->full->count != r->count)) {
            status = CT_READER_FAIL(r, CT_ERR_IO, "%s changed while it was read", r->source);
            ct_reader_close(s->full); /* the next read looks again */
            s->full = NULL;
        }
        if (status == CT_OK) r->io->opened = s->full->io->opened;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static ct_status inner_of(const ct_reader *r, void *local, void **inner_p)
{
    const far_state *s = r->state;
    far_local *l = local;

    if ((l->inner == NULL) && (s->ops->local_size > 0)) {
        l->ops = s->ops;
        l->inner = calloc(1, s->ops->local_size);
        if (l->inner == NULL) return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory");
    }
    *inner_p = l->inner;
    return CT_OK;
}

static ct_status far_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    const far_state *s = r->state;
    void *inner;

    CT_TRY(open_full(r));
    CT_TRY(inner_of(r, local, &inner));
    return s->ops->read(s->full, inner, id, sample);
}

static ct_status far_decode(const ct_reader *r, void *local, int64_t id, const void *bytes,
                            size_t size, ct_sample *sample)
{
    const far_state *s = r->state;
    void *inner;

    CT_TRY(inner_of(r, local, &inner));
    return s->ops->decode(r, inner, id, bytes, size, sample);
}

static void far_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    snprintf(text, size, "record %lld of %s", (long long)id, r->source);
}

static void far_local_release(void *local)
{
    far_local *l = local;

    if ((l->inner != NULL) && (l->ops->local_release != NULL)) l->ops->local_release(l->inner);
    free(l->inner);
}

static void far_close(ct_reader *r)
{
    far_state *s = r->state;

    ct_reader_close(s->full);
    for (int i = 0; i < CT_MAX_FIELD; i++) free((char *)(uintptr_t)s->field_name[i]);
    if (s->has_lock) pthread_mutex_destroy(&s->lock);
}

/* What the caller's options point to need not last. */
static ct_status keep_options(ct_reader *r, const ct_reader_options *o)
{
    far_state *s = r->state;

    s->options = *o;
    s->options.who = r->who;
    s->options.source = r->source;
    s->options.field_name = s->field_name;
    for (int i = 0; (o->field_name != NULL) && (i < o->n_field) && (i < CT_MAX_FIELD); i++) {
        s->field_name[i] = strdup(o->field_name[i]);
        if (s->field_name[i] == NULL) return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory");
    }
    s->has_lock = pthread_mutex_init(&s->lock, NULL) == 0;
    if (!s->has_lock) return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for a lock");
    return CT_OK;
}

static const ct_reader_ops reader_far = {
    .name = "far",
    .close = far_close,
    .local_size = sizeof(far_local),
    .local_release = far_local_release,
    .read = far_read,
    .decode = far_decode,
    .describe = far_describe,
    .state_size = sizeof(far_state),
};

void ct_reader_tell(const ct_reader *r, ct_reader_facts *facts_p)
{
    memset(facts_p, 0, sizeof(*facts_p));
    facts_p->count = r->count;
    facts_p->largest = r->largest;
    facts_p->bytes = r->bytes;
    facts_p->stripes = r->stripes;
    memcpy(facts_p->field, r->field, sizeof(r->field));
    facts_p->n_field = r->n_field;
    facts_p->n_file = r->n_file;
    facts_p->same_shape = r->same_shape;
    facts_p->u8 = r->u8;
}

ct_status ct_reader_open_far(const char *backend, const ct_reader_options *options,
                             const ct_reader_facts *facts, ct_reader **reader_p)
{
    const ct_reader_ops *ops;
    ct_status status;
    ct_reader *r;

    CT_TRY(ct_reader_find(backend, options->who, &ops));
    CT_TRY(ct_reader_create(&reader_far, options->who, options->source, &r));
    ((far_state *)r->state)->ops = ops;
    status = keep_options(r, options);
    if (status != CT_OK) {
        ct_reader_close(r);
        return status;
    }
    r->count = facts->count;
    r->n_field = facts->n_field;
    memcpy(r->field, facts->field, sizeof(r->field));
    r->same_shape = facts->same_shape;
    r->color = options->color;
    r->u8 = facts->u8;
    r->largest = facts->largest;
    r->bytes = facts->bytes;
    r->stripes = facts->stripes;
    r->n_file = facts->n_file;
    *reader_p = r;
    return CT_OK;
}

bool ct_reader_can_feed(const char *backend)
{
    for (const ct_reader_entry *e = ct_reader_table; e->name != NULL; e++) {
        if (strcmp(e->name, backend) == 0) return (e->ops != NULL) && (e->ops->fetch != NULL);
    }
    return false;
}
