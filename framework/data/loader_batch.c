/* One batch, of what this rank reads or another has fetched: decoded, transformed, broken samples
 * replaced. Runs in a thread, without the loader's lock. */
#include "framework/data/loader_private.h"

#include <stdio.h>
#include <string.h>

#include "framework/base/rng.h"

/* What another rank fetched of a sample; bytes NULL: nobody did. */
typedef struct fetched {
    const void *bytes;
    size_t size;
} fetched;

/* Where a sample goes. */
typedef struct target {
    float *values;        /* transformed; NULL: packed */
    ct_pack_place *place; /* … and packed              */
    void *window;
} target;

/* CT_UNSUPPORTED: packed batches of this set are of bytes, this sample is of floats. */
static ct_status read_and_transform(const ct_loader *l, fetched raw, uint64_t seed,
                                    int64_t position, int64_t id, void *local, ct_sample *sample,
                                    const target *to)
{
    const ct_reader *r = l->o.reader;
    ct_why *why = sample->why;
    ct_shape shape;

    if (raw.bytes != NULL)
        CT_TRY(r->ops->decode(r, local, id, raw.bytes, raw.size, sample));
    else
        CT_TRY(r->ops->read(r, local, id, sample));
    CT_TRY(ct_transform_shape(l->o.transform, &sample->shape, &shape, why));
    if (!ct_shape_equal(&shape, &l->o.shape)) {
        return CT_WHY(why, CT_ERR_DATA,
                      "its shape is %s, that of the first sample %s; records of one data set "
                      "must agree, or crop_size must fix their size",
                      ct_shape_str(&shape).text, ct_shape_str(&l->o.shape).text);
    }
    if (to->values != NULL)
        ct_transform_apply(l->o.transform, sample, seed, position, to->values);
    else if (!ct_transform_pack(l->o.transform, sample, seed, position, l->pack.wide, to->place,
                                to->window))
        return CT_UNSUPPORTED;
    return CT_OK;
}

static ct_status fail(const ct_loader *l, int64_t id, ct_status status, const ct_why *why)
{
    ct_sample loud = { 0 };

    return (why->text[0] != '\0') ? ct_reader_bad(l->o.reader, id, &loud, status, why) : status;
}

/* Says once in a run that `by` stands in for sample id. Names of records are the lock's too. */
static void tell(ct_loader *l, int64_t id, int64_t by, const ct_why *why)
{
    const ct_reader *r = l->o.reader;
    char name[512], other[512];
    bool told = false;

    pthread_mutex_lock(&l->lock);
    for (int64_t i = 0; i < l->n_told; i++) told = told || (l->told[i] == id);
    if (!told && (l->n_told < l->o.skip_broken)) {
        l->told[l->n_told++] = id;
        r->ops->describe(r, id, name, sizeof(name));
        r->ops->describe(r, by, other, sizeof(other));
        CT_WARN("%s: %s: %s; skipped, %s stands in for it", r->who, name, why->text, other);
    }
    pthread_mutex_unlock(&l->lock);
}

/* The sample of a position, or the one that stands in for it. */
static ct_status make_sample(ct_loader *l, fetched raw, uint64_t seed, int64_t position, int64_t id,
                             void *local, float *rest, const target *to, bool *replaced_p)
{
    const ct_reader *r = l->o.reader;
    int64_t wanted = id, tried = 0;
    ct_why first = { "" };

    for (;;) {
        ct_why why = { "" };
        ct_sample sample = { .rest = rest, .why = &why };
        ct_status status = read_and_transform(l, raw, seed, position, id, local, &sample, to);

        if (status == CT_OK) break;
        if (status == CT_UNSUPPORTED) return status;
        if (tried == 0) first = why;
        if ((l->o.skip_broken == 0) || !ct_reader_may_skip(status))
            return fail(l, id, status, &why);
        if ((tried++ >= l->o.skip_broken) || (tried >= r->count)) {
            (void)fail(l, wanted, status, &first);
            return CT_READER_FAIL(r, status,
                                  "%s: more broken samples in a row than skip_broken, %lld, allows",
                                  r->source, (long long)l->o.skip_broken);
        }
        id = ct_reader_after(r, id);
        raw = (fetched){ 0 };
    }
    *replaced_p = tried > 0;
    if (tried > 0) tell(l, wanted, id, &first);
    return CT_OK;
}

static int64_t first_position(const ct_loader *l, uint64_t seed, int64_t step)
{
    int64_t skip = 0;

    if (l->o.rand_skip > 0)
        skip = (int64_t)(ct_rng_key(seed, ct_rng_hash("rand_skip"), 0) % l->o.rand_skip);
    return step * l->o.share.global + skip;
}

static target target_of(const ct_loader *l, const ct_loader_slot *s, int64_t i)
{
    int64_t size = ct_shape_count(&l->o.shape, 0, -1);

    if (!s->packed) return (target){ .values = s->field[0] + i * size };
    return (target){ .place = (ct_pack_place *)s->block + i,
                     .window = (char *)s->block + l->pack.values_at +
                               (size_t)(i * size) * (l->pack.wide ? sizeof(float) : 1) };
}

static float *rest_of(const ct_loader *l, const ct_loader_slot *s, int f)
{
    return s->packed ? (float *)((char *)s->block + l->pack.rest_at[f]) : s->field[f];
}

static ct_status fill(ct_loader *l, const ct_feed_part *part, uint64_t seed, int64_t step,
                      void *local, float *rest, ct_loader_slot *s)
{
    const ct_reader *r = l->o.reader;
    const ct_share *share = &l->o.share;
    int64_t begin = first_position(l, seed, step);

    s->epoch = begin / r->count;
    s->broken[0] = s->broken[1] = 0;
    for (int64_t i = 0; i < share->local; i++) {
        int64_t place = share->first + i, position = begin + place;
        int64_t id = (r->ops->pick != NULL) ? r->ops->pick(r, seed, position, place, share->global)
                                            : ct_sample_at(seed, l->o.stripes, position, r->count);
        target to = target_of(l, s, i);
        const float *from = rest;
        fetched raw = { 0 };
        bool replaced;

        if (part != NULL) raw.bytes = ct_feed_record(l->feed, part, i, &raw.size);
        CT_TRY(make_sample(l, raw, seed, position, id, local, rest, &to, &replaced));
        s->broken[position / r->count > s->epoch] += replaced;
        for (int f = 1; f < r->n_field; f++) {
            int64_t n = ct_shape_count(&r->field[f], 0, -1);

            memcpy(rest_of(l, s, f) + i * n, from, (size_t)n * sizeof(float));
            from += n;
        }
    }
    return CT_OK;
}

/* A set whose first sample is of bytes may have others of floats: such a batch comes as without a
 * device. */
static ct_status make_batch(ct_loader *l, const ct_feed_part *part, uint64_t seed, int64_t step,
                            void *local, float *rest, ct_loader_slot *s)
{
    ct_status status;

    s->packed = l->o.pack != NULL;
    status = fill(l, part, seed, step, local, rest, s);
    if (status != CT_UNSUPPORTED) return status;
    s->packed = false;
    CT_TRY(ct_loader_place(l, s));
    return fill(l, part, seed, step, local, rest, s);
}

ct_status ct_loader_make(ct_loader *l, int64_t generation, uint64_t seed, int64_t step, void *local,
                         float *rest, ct_loader_slot *s)
{
    const ct_data_group *g = l->o.group;
    ct_feed_part part;
    ct_status status;

    s->why[0] = '\0';
    if (l->feed == NULL) return make_batch(l, NULL, seed, step, local, rest, s);
    CT_TRY(ct_feed_wait(l->feed, generation, step, &part));
    status = part.status;
    if (status == CT_OK) {
        status = make_batch(l, &part, seed, step, local, rest, s);
    } else if (g->node_rank > 0) {
        snprintf(s->why, sizeof(s->why), "%s", part.text);
    }
    ct_feed_done(l->feed, &part);
    return status;
}
