/* LMDB with Caffe's Datum records: a folder or a file, or a folder of shards (stripes.h).
 *
 * The files are only read, by places and lengths that the set's index has (lmdb_file.h): no
 * locks, no maps, no tree look-ups, and any thread reads any record. Without an index one walk over
 * the keys makes it; records with pages of their own are not touched by that.
 */
#include "framework/data/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/augment/boxes.h"
#include "framework/data/datum.h"
#include "framework/data/lmdb_file.h"
#include "framework/data/stripes.h"

typedef struct data_file {
    char *path;
    int fd;    /* -1: not open yet */
    int64_t n; /* records indexed so far */
} data_file;

typedef struct lmdb_state {
    ct_shards shards; /* a set that has none: one file, one stripe */
    data_file *file;
    char *index_path;
    ct_record_index index;
    pthread_mutex_t lock; /* of opening files */
    bool has_lock;
} lmdb_state;

typedef struct lmdb_local {
    ct_datum_buffer room;
    ct_sample_buffer raw;
} lmdb_local;

/* ---- files */

static int file_of(const lmdb_state *s, int64_t id)
{
    return (int)(ct_stripe_of(s->shards.n, s->shards.stripes, id) % s->shards.n_file);
}

static int64_t index_file_of(const void *ctx, int64_t id)
{
    return file_of(ctx, id);
}

static ct_status open_file(const ct_reader *r, data_file *f)
{
    lmdb_state *s = r->state;
    ct_status status = CT_OK;

    pthread_mutex_lock(&s->lock);
    if (f->fd < 0) {
        f->fd = ct_file_open(f->path);
        if (f->fd < 0) {
            status = CT_READER_FAIL(r, CT_ERR_IO, "cannot open LMDB %s: %s", f->path,
                                    ct_path_why(f->path, errno).text);
        } else {
            r->io->opened++;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void count_bytes(const ct_reader *r, int64_t n)
{
    r->io->bytes += n;
}

/* A folder of sets, as `cortado convert` makes it, is taken for one of them. */
static ct_status check_folder(const ct_reader *r)
{
    ct_text data = { 0 }, part = { 0 };
    ct_status status = CT_OK;
    bool is_above;

    ct_text_add(&data, "%s/data.mdb", r->source);
    ct_text_add(&part, "%s/train_lmdb", r->source);
    is_above = !part.failed && (access(part.text, F_OK) == 0);
    if (!data.failed && (access(data.text, F_OK) != 0) && (errno == ENOENT))
        status = CT_READER_FAIL(r, CT_ERR_IO, "no LMDB in the folder %s: it has no data.mdb%s%s%s",
                                r->source, is_above ? "; did you mean " : "",
                                is_above ? part.text : "", is_above ? "?" : "");
    ct_text_destroy(&data);
    ct_text_destroy(&part);
    return status;
}

/* What the set consists of: its files by name. */
static ct_status find_files(ct_reader *r)
{
    lmdb_state *s = r->state;
    bool shards = ct_shards_is_set(r->source);
    ct_text path = { 0 };
    struct stat st;

    s->shards = (ct_shards){ .stripes = 1, .n_file = 1 };
    if (stat(r->source, &st) != 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open LMDB %s: %s", r->source,
                              ct_path_why(r->source, errno).text);
    }
    if (shards) CT_TRY(ct_shards_read(r->source, r->who, &s->shards));
    if (!shards && S_ISDIR(st.st_mode)) CT_TRY(check_folder(r));
    s->file = calloc((size_t)s->shards.n_file, sizeof(*s->file));
    if (s->file == NULL) return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory");
    for (int k = 0; k < s->shards.n_file; k++) s->file[k].fd = -1;
    for (int k = 0; shards && (k < s->shards.n_file); k++) {
        s->file[k].path = ct_shards_path(r->source, k);
        if (s->file[k].path == NULL) return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory");
    }
    if (!shards) {
        ct_text_add(&path, S_ISDIR(st.st_mode) ? "%s/data.mdb" : "%s", r->source);
        s->file[0].path = path.text;
        path = (ct_text){ 0 };
    }
    ct_text_add(&path, shards ? "%s/index" : "%s.index", shards ? r->source : s->file[0].path);
    s->index_path = path.text;
    return ((s->file[0].path != NULL) && !path.failed)
               ? CT_OK
               : CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory");
}

/* ---- the index */

/* The stamps of the files as they are; of a set without shards, the count too. */
static ct_status stamp_files(ct_reader *r, ct_lmdb_file *first)
{
    lmdb_state *s = r->state;

    if (s->shards.n == 0) {
        CT_TRY(open_file(r, &s->file[0]));
        CT_TRY(ct_lmdb_look(s->file[0].fd, s->file[0].path, r->who, first));
        count_bytes(r, first->bytes_read);
        if (first->entries == 0)
            return CT_READER_FAIL(r, CT_ERR_DATA, "LMDB %s has no records", r->source);
        s->shards.n = first->entries;
        s->shards.count[0] = first->entries;
    }
    CT_TRY(ct_record_index_create(&s->index, s->shards.n, s->shards.n_file));
    for (int k = 0; k < s->shards.n_file; k++) {
        struct stat st;

        if (stat(s->file[k].path, &st) != 0) {
            return CT_READER_FAIL(r, CT_ERR_IO, "cannot open LMDB %s: %s", s->file[k].path,
                                  strerror(errno));
        }
        s->index.file[k] = (ct_file_stamp){ .size = st.st_size,
                                            .mtime_s = (int64_t)st.st_mtim.tv_sec,
                                            .mtime_ns = (int64_t)st.st_mtim.tv_nsec,
                                            .entries = s->shards.count[k] };
    }
    return CT_OK;
}

/* The walks over the files go through each one's stripes in order. */
typedef struct indexing {
    ct_reader *r;
    int k;
    int64_t stripe, left, next; /* records left of the stripe, and the number of its next one */
} indexing;

static ct_status index_record(void *ctx, const ct_lmdb_entry *e)
{
    indexing *w = ctx;
    lmdb_state *s = w->r->state;
    const ct_shards *d = &s->shards;

    if (s->file[w->k].n == d->count[w->k]) return CT_STOPPED; /* more than shards.txt tells of */
    while (w->left == 0) {
        w->stripe += (w->stripe < 0) ? w->k + 1 : d->n_file;
        w->next = ct_stripe_first(d->n, d->stripes, w->stripe);
        w->left = ct_stripe_first(d->n, d->stripes, w->stripe + 1) - w->next;
    }
    s->index.offset[w->next] = e->offset;
    s->index.size[w->next] = (uint32_t)e->size;
    s->file[w->k].n++;
    w->next++;
    w->left--;
    return CT_OK;
}

static ct_status walk_file(ct_reader *r, int k)
{
    lmdb_state *s = r->state;
    data_file *f = &s->file[k];
    indexing w = { .r = r, .k = k, .stripe = -1 };
    ct_lmdb_file file;
    ct_status status;

    CT_TRY(open_file(r, f));
    CT_TRY(ct_lmdb_look(f->fd, f->path, r->who, &file));
    status = ct_lmdb_walk(&file, index_record, &w);
    count_bytes(r, file.bytes_read);
    if ((status == CT_STOPPED) || ((status == CT_OK) && (f->n != s->shards.count[k]))) {
        return CT_READER_FAIL(r, CT_ERR_DATA, "%s has %lld records, shards.txt says %lld", f->path,
                              (long long)file.entries, (long long)s->shards.count[k]);
    }
    return status;
}

static ct_status make_index(ct_reader *r)
{
    lmdb_state *s = r->state;
    ct_index_state found;
    int64_t bytes = 0;

    found = ct_record_index_load(&s->index, s->index_path, index_file_of, s, &bytes);
    count_bytes(r, bytes);
    if (found == CT_INDEX_GOOD) return CT_OK;
    if (found == CT_INDEX_CORRUPT) {
        CT_WARN("%s: %s is damaged: making it anew", r->who, s->index_path);
    } else if (found == CT_INDEX_STALE) {
        CT_INFO("%s: %s is of an older state of the data: making it anew", r->who, s->index_path);
    }
    for (int k = 0; k < s->shards.n_file; k++) CT_TRY(walk_file(r, k));
    ct_record_index_sum(&s->index);
    r->io->walked = true;
    if (!ct_record_index_save(&s->index, s->index_path)) {
        CT_INFO("%s: cannot keep the index as %s (%s): it stays in memory", r->who, s->index_path,
                strerror(errno));
    }
    return CT_OK;
}

/* ---- samples */

/* The key of record number `left` of a file, as far as the walk has come. */
typedef struct key_search {
    int64_t left;
    char key[256];
} key_search;

static ct_status search_key(void *ctx, const ct_lmdb_entry *e)
{
    key_search *k = ctx;

    if (k->left-- > 0) return CT_OK;
    snprintf(k->key, sizeof(k->key), "%.*s", (int)e->key_size, e->key);
    return CT_STOPPED;
}

/* Samples of id's file in front of it. */
static int64_t place_in_file(const lmdb_state *s, int64_t id)
{
    const ct_shards *d = &s->shards;
    int64_t stripe = ct_stripe_of(d->n, d->stripes, id), n = 0;

    for (int64_t k = stripe - d->n_file; k >= 0; k -= d->n_file)
        n += ct_stripe_first(d->n, d->stripes, k + 1) - ct_stripe_first(d->n, d->stripes, k);
    return n + id - ct_stripe_first(d->n, d->stripes, stripe);
}

static void lmdb_name(const ct_reader *r, int64_t id, char *text, size_t size)
{
    const lmdb_state *s = r->state;
    const data_file *f = &s->file[file_of(s, id)];
    key_search k = { .left = place_in_file(s, id) };
    ct_lmdb_file file;

    if ((f->fd >= 0) && (ct_lmdb_look(f->fd, f->path, NULL, &file) == CT_OK)) /* quiet */
        (void)ct_lmdb_walk(&file, search_key, &k);
    snprintf(text, size, "%s", k.key);
}

static void lmdb_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    const lmdb_state *s = r->state;
    char key[512];

    lmdb_name(r, id, key, sizeof(key));
    snprintf(text, size, "record %lld (key \"%s\") of %s", (long long)id, key,
             (s->shards.n_file > 1) ? s->file[file_of(s, id)].path : r->source);
}

/* Quiet. */
static ct_status read_record(const ct_reader *r, int64_t id, void *to, ct_why *why)
{
    const lmdb_state *s = r->state;
    data_file *f = &s->file[file_of(s, id)];
    size_t size = s->index.size[id];

    if (open_file(r, f) != CT_OK) return CT_WHY(why, CT_ERR_IO, "%s cannot be opened", f->path);
    if (!ct_read_at(f->fd, to, size, s->index.offset[id]))
        return CT_WHY(why, CT_ERR_IO, "cannot be read: %s",
                      (errno != 0) ? strerror(errno) : "the file became shorter");
    count_bytes(r, (int64_t)size);
    return CT_OK;
}

static ct_status lmdb_fetch(const ct_reader *r, void *local, int64_t id, void *to, size_t *size_p)
{
    const lmdb_state *s = r->state;
    ct_sample loud = { 0 };
    ct_why why;
    ct_status status = read_record(r, id, to, &why);

    (void)local;
    *size_p = s->index.size[id];
    return (status == CT_OK) ? CT_OK : ct_reader_bad(r, id, &loud, status, &why);
}

static ct_status lmdb_decode(const ct_reader *r, void *local, int64_t id, const void *bytes,
                             size_t size, ct_sample *sample)
{
    lmdb_local *l = local;
    ct_why why;
    ct_status status = ct_datum_decode(bytes, size, r->color, &l->room, sample,
                                       (r->n_field > 1) ? sample->rest : NULL, &why);

    return (status == CT_OK) ? CT_OK : ct_reader_bad(r, id, sample, status, &why);
}

static ct_status annotated_decode(const ct_reader *r, void *local, int64_t id, const void *bytes,
                                  size_t size, ct_sample *sample)
{
    lmdb_local *l = local;
    ct_why why;
    ct_status status = ct_annotated_decode(bytes, size, r->color, &l->room, sample,
                                           (r->n_field > 1) ? r->field[1].dim[0] : 0,
                                           (r->n_field > 1) ? sample->rest : NULL, &why);

    return (status == CT_OK) ? CT_OK : ct_reader_bad(r, id, sample, status, &why);
}

static ct_status lmdb_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    const lmdb_state *s = r->state;
    lmdb_local *l = local;
    size_t size = s->index.size[id];
    ct_why why;
    ct_status status;

    CT_TRY(ct_sample_buffer_reserve(&l->raw, size + 1));
    status = read_record(r, id, l->raw.data, &why);
    if (status != CT_OK) return ct_reader_bad(r, id, sample, status, &why);
    return r->ops->decode(r, local, id, l->raw.data, size, sample);
}

static void lmdb_local_release(void *local)
{
    lmdb_local *l = local;

    ct_datum_room_release(&l->room);
    ct_sample_buffer_release(&l->raw);
}

static ct_status lmdb_open(ct_reader *r, const ct_reader_options *o)
{
    lmdb_state *s = r->state;
    ct_lmdb_file first;

    if (o->n_field > 2) {
        return CT_READER_FAIL(r, CT_ERR_CONFIG, "LMDB gives data and label, not %d tops",
                              o->n_field);
    }
    if (pthread_mutex_init(&s->lock, NULL) != 0)
        return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for a lock");
    s->has_lock = true;
    CT_TRY(find_files(r));
    CT_TRY(stamp_files(r, &first));
    CT_TRY(make_index(r));
    r->count = s->index.count;
    r->n_field = o->n_field;
    r->color = o->color;
    r->largest = s->index.largest;
    r->bytes = s->index.bytes;
    r->stripes = s->shards.stripes;
    r->n_file = s->shards.n_file;
    return CT_OK;
}

static ct_status annotated_open(ct_reader *r, const ct_reader_options *o)
{
    CT_TRY(lmdb_open(r, o));
    if (r->n_field > 1) r->field[1] = (ct_shape){ 2, { o->max_boxes, CT_BOX_ROW } };
    return CT_OK;
}

static void lmdb_close(ct_reader *r)
{
    lmdb_state *s = r->state;

    for (int k = 0; (s->file != NULL) && (k < s->shards.n_file); k++) {
        if (s->file[k].fd >= 0) close(s->file[k].fd);
        free(s->file[k].path);
    }
    free(s->file);
    free(s->index_path);
    ct_record_index_release(&s->index);
    if (s->has_lock) pthread_mutex_destroy(&s->lock);
}

const ct_reader_ops ct_reader_lmdb = {
    .name = "lmdb",
    .open = lmdb_open,
    .close = lmdb_close,
    .local_size = sizeof(lmdb_local),
    .local_release = lmdb_local_release,
    .read = lmdb_read,
    .fetch = lmdb_fetch,
    .decode = lmdb_decode,
    .describe = lmdb_describe,
    .name_of = lmdb_name,
    .state_size = sizeof(lmdb_state),
    .probes = true,
};

/* The same with Caffe-SSD's AnnotatedDatum: field 1 is rows of boxes. */
const ct_reader_ops ct_reader_annotated = {
    .name = "annotated",
    .open = annotated_open,
    .close = lmdb_close,
    .local_size = sizeof(lmdb_local),
    .local_release = lmdb_local_release,
    .read = lmdb_read,
    .fetch = lmdb_fetch,
    .decode = annotated_decode,
    .describe = lmdb_describe,
    .name_of = lmdb_name,
    .state_size = sizeof(lmdb_state),
    .probes = true,
};

static ct_status look_at_first(const ct_reader *r, bool *has_p)
{
    const lmdb_state *s = r->state;
    ct_sample_buffer room = { 0 };
    size_t size = 0;
    ct_status status;

    if (r->count < 1) return CT_READER_FAIL(r, CT_ERR_DATA, "%s: no sample in it", r->source);
    status = ct_sample_buffer_reserve(&room, s->index.size[0] + 1);
    if (status == CT_OK) status = r->ops->fetch(r, NULL, 0, room.data, &size);
    if (status == CT_OK) *has_p = ct_is_annotated(room.data, size);
    ct_sample_buffer_release(&room);
    return status;
}

ct_status ct_lmdb_has_boxes(const char *source, const char *who, bool *has_p)
{
    ct_reader_options o = { .who = who, .source = source, .n_field = 1 };
    ct_reader *r = NULL;
    ct_status status;

    *has_p = false;
    CT_TRY(ct_reader_create(&ct_reader_lmdb, who, source, &r));
    status = r->ops->open(r, &o);
    if (status == CT_OK) status = look_at_first(r, has_p);
    ct_reader_close(r);
    return status;
}
