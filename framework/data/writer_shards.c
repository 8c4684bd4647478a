/* A striped set: one LMDB file a shard, and shards.txt. Records come in the set's order and go into
 * their stripe's file; keys stay those of the whole set, so each file is an LMDB that anyone reads.
 */
#include "framework/data/writer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "framework/data/stripes.h"

typedef struct shards_state {
    ct_shards shards;
    ct_writer *file; /* [n_file], made by hand: they appear with the folder */
} shards_state;

static ct_status open_one(ct_writer *w, int k)
{
    shards_state *s = w->state;
    ct_writer *f = &s->file[k];

    f->path = ct_shards_path(w->path, k);
    f->temporary = ct_shards_path(w->temporary, k);
    f->expected = s->shards.count[k];
    f->single = true;
    f->state = calloc(1, f->ops->state_size);
    if ((f->path == NULL) || (f->temporary == NULL) || (f->state == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", w->path);
    return f->ops->open(f);
}

static ct_status shards_open(ct_writer *w)
{
    shards_state *s = w->state;
    const ct_writer_ops *lmdb = NULL;

    CT_TRY(ct_writer_find("lmdb", &lmdb));
    s->shards = *w->shards;
    if (mkdir(w->temporary, 0777) != 0)
        return CT_FAIL(CT_ERR_IO, "cannot make %s: %s", w->temporary, strerror(errno));
    s->file = calloc((size_t)s->shards.n_file, sizeof(*s->file));
    if (s->file == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", w->path);
    for (int k = 0; k < s->shards.n_file; k++) s->file[k].ops = lmdb;
    for (int k = 0; k < s->shards.n_file; k++) CT_TRY(open_one(w, k));
    return CT_OK;
}

/* A file's queue is written at the end of its stripe, so that one file at a time has one. */
static ct_status shards_put(ct_writer *w, const ct_record *record)
{
    shards_state *s = w->state;
    const ct_shards *d = &s->shards;
    int64_t stripe;
    ct_writer *f;

    if (w->count >= w->expected) return CT_FAIL(CT_ERR_ARG, "%s: too many records", w->path);
    stripe = ct_stripe_of(d->n, d->stripes, w->count);
    f = &s->file[stripe % d->n_file];
    CT_TRY(f->ops->put(f, record));
    f->count++;
    if (w->count + 1 < ct_stripe_first(d->n, d->stripes, stripe + 1)) return CT_OK;
    return (f->ops->flush != NULL) ? f->ops->flush(f) : CT_OK;
}

static ct_status shards_finish(ct_writer *w)
{
    shards_state *s = w->state;

    for (int k = 0; k < s->shards.n_file; k++) CT_TRY(s->file[k].ops->finish(&s->file[k]));
    return ct_shards_write(w->temporary, &s->shards);
}

static void shards_close(ct_writer *w)
{
    shards_state *s = w->state;

    for (int k = 0; (s->file != NULL) && (k < s->shards.n_file); k++) {
        ct_writer *f = &s->file[k];

        if (f->state != NULL) f->ops->close(f);
        free(f->state);
        free(f->path);
        free(f->temporary);
    }
    free(s->file);
}

static const ct_writer_ops writer_shards = {
    .name = "shards",
    .open = shards_open,
    .put = shards_put,
    .finish = shards_finish,
    .close = shards_close,
    .state_size = sizeof(shards_state),
};

/* Stripes of so many records, or of 1024 where that leaves each file one at least. A set that is
 * too small for so many files gets fewer: a batch shall touch two of them at most. */
static ct_status cut(const char *path, int64_t expected, int64_t n_file, int64_t stripe,
                     ct_shards *s)
{
    const int64_t usual = 1024;
    int64_t stripes = expected / ((stripe > 0) ? stripe : usual);

    if ((n_file < 1) || (n_file > CT_MAX_SHARD))
        return CT_FAIL(CT_ERR_CONFIG, "--shards=%lld: 1 to %d files", (long long)n_file,
                       CT_MAX_SHARD);
    if ((stripe == 0) && (stripes < n_file)) stripes = n_file;
    if (stripes > expected) stripes = expected;
    if (stripes < 1) stripes = 1;
    if (stripes > CT_MAX_STRIPE)
        return CT_FAIL(CT_ERR_CONFIG, "%s: %lld records in stripes of %lld are %lld, at most %d",
                       path, (long long)expected, (long long)stripe, (long long)stripes,
                       CT_MAX_STRIPE);
    if (stripes < n_file) {
        CT_INFO("%s: its %lld records fill %lld stripes and as many files, not %lld", path,
                (long long)expected, (long long)stripes, (long long)n_file);
        n_file = stripes;
    }
    *s = (ct_shards){ .n = expected, .stripes = stripes, .n_file = (int)n_file };
    ct_shards_deal(s);
    return CT_OK;
}

ct_status ct_writer_open_shards(const char *path, int64_t expected, bool force, int64_t n_file,
                                int64_t stripe, ct_writer **writer_p)
{
    ct_shards shards;

    CT_TRY(cut(path, expected, n_file, stripe, &shards));
    return ct_writer_open_with(&writer_shards, &shards, path, expected, force, writer_p);
}
