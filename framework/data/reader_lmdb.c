/* LMDB with Caffe's Datum records.
 *
 * The data file is mapped and never written, so once it is open a record is a place and a length.
 * They are all noted at the start by one walk over the keys, in key order as Caffe reads them: the
 * walk touches no record that has pages of its own. Any thread then reads any record, without
 * transactions, locks or tree look-ups.
 *
 * A mapped file that is shorter than its tree kills the process (SIGBUS) when it is touched, and
 * the library does not look: check_length() does, from the two meta pages.
 */
#include "framework/data/reader_private.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/data/datum.h"

typedef struct record {
    const void *data;
    size_t size;
} record;

typedef struct lmdb_state {
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    record *record;
    ct_color color;
} lmdb_state;

/* On 64-bit machines: page header of 16 bytes, then this (LMDB 0.9's data format version 1). */
typedef struct meta_page {
    uint64_t page_number;
    uint16_t pad, flags;
    uint32_t bounds;
    uint32_t magic, version;
    uint64_t address, map_size;
    struct {
        uint32_t pad; /* of the first: the page size */
        uint16_t flags, depth;
        uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
    } tree[2];
    uint64_t last_page, transaction;
} meta_page;

enum { MAGIC = 0xBEEFC0DE, MAX_PAGE = 1 << 16 };

static ct_status read_meta(const ct_reader *r, int fd, const char *path, off_t at, meta_page *m)
{
    if (pread(fd, m, sizeof(*m), at) != (ssize_t)sizeof(*m)) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: truncated inside its meta pages", path);
    }
    if ((m->magic != MAGIC) || (m->tree[0].pad < 256) || (m->tree[0].pad > MAX_PAGE) ||
        ((m->tree[0].pad & (m->tree[0].pad - 1)) != 0)) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: not an LMDB data file", path);
    }
    return CT_OK;
}

static ct_status check_length(const ct_reader *r, int fd, const char *path, int64_t *size_p)
{
    meta_page m[2];
    const meta_page *newer;
    struct stat st;
    int64_t page, need;

    if (fstat(fd, &st) != 0) return CT_READER_FAIL(r, CT_ERR_IO, "%s: %s", path, strerror(errno));
    *size_p = st.st_size;
    CT_TRY(read_meta(r, fd, path, 0, &m[0]));
    page = m[0].tree[0].pad;
    CT_TRY(read_meta(r, fd, path, page, &m[1]));
    newer = (m[1].transaction > m[0].transaction) ? &m[1] : &m[0];
    if (newer->last_page > (uint64_t)(INT64_MAX / MAX_PAGE - 1)) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: its meta pages are damaged", path);
    }
    need = (int64_t)(newer->last_page + 1) * page;
    if (st.st_size < need) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: truncated: %lld bytes, its pages take %lld", path,
                              (long long)st.st_size, (long long)need);
    }
    return CT_OK;
}

/* The data file of an environment, and whether it is a file by itself. */
static ct_status find_file(const ct_reader *r, char *path, size_t size, bool *single_p)
{
    struct stat st;

    if (stat(r->source, &st) != 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open LMDB %s: %s", r->source, strerror(errno));
    }
    *single_p = !S_ISDIR(st.st_mode);
    if (snprintf(path, size, *single_p ? "%s" : "%s/data.mdb", r->source) >= (int)size) {
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: the path is too long", r->source);
    }
    return CT_OK;
}

static ct_status open_env(const ct_reader *r, lmdb_state *s, const char *path, bool single)
{
    /* Without locks first: shared file systems often have none, and the file may be read-only. */
    const unsigned way[] = { MDB_NOLOCK, 0 };
    int64_t size = 0;
    int rc = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    ct_status status;

    if (fd < 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open LMDB %s: %s", path, strerror(errno));
    }
    status = (sizeof(void *) == 8) ? check_length(r, fd, path, &size) : CT_OK;
    close(fd);
    CT_TRY(status);
    for (size_t i = 0; i < sizeof(way) / sizeof(way[0]); i++) {
        rc = mdb_env_create(&s->env);
        if (rc != 0) break;
        mdb_env_set_mapsize(s->env, (size_t)size); /* not the huge map its writer asked for */
        rc = mdb_env_open(s->env, r->source,
                          MDB_RDONLY | MDB_NOTLS | way[i] | (single ? MDB_NOSUBDIR : 0u), 0644);
        if (rc == 0) return CT_OK;
        mdb_env_close(s->env);
        s->env = NULL;
    }
    return CT_READER_FAIL(r, CT_ERR_IO, "cannot open LMDB %s: %s", r->source, mdb_strerror(rc));
}

static ct_status walk(ct_reader *r, lmdb_state *s, size_t file_size)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    ct_status status = CT_OK;
    int64_t n = 0;
    int rc = mdb_cursor_open(s->txn, s->dbi, &cursor);

    if (rc != 0) return CT_READER_FAIL(r, CT_ERR_IO, "%s: %s", r->source, mdb_strerror(rc));
    while ((rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT)) == 0) {
        if ((n == r->count) || (value.mv_size > file_size)) break;
        s->record[n++] = (record){ value.mv_data, value.mv_size };
    }
    mdb_cursor_close(cursor);
    if ((rc != MDB_NOTFOUND) || (n != r->count)) {
        status = CT_READER_FAIL(r, CT_ERR_IO, "%s: damaged: record %lld of %lld: %s", r->source,
                                (long long)n, (long long)r->count,
                                (rc != 0) ? mdb_strerror(rc) : "impossible length");
    }
    return status;
}

static void lmdb_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    const lmdb_state *s = r->state;
    MDB_cursor *cursor;
    MDB_val key = { 0 }, value;
    int rc = mdb_cursor_open(s->txn, s->dbi, &cursor);

    if (rc == 0) {
        for (int64_t i = 0; (i <= id) && (rc == 0); i++) {
            rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
        }
        mdb_cursor_close(cursor);
    }
    snprintf(text, size, "record %lld (key \"%.*s\") of %s", (long long)id,
             (rc == 0) ? (int)key.mv_size : 0, (const char *)key.mv_data, r->source);
}

static ct_status lmdb_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    const lmdb_state *s = r->state;
    ct_why why;
    ct_status status = ct_datum_decode(s->record[id].data, s->record[id].size, s->color, local,
                                       sample, (r->n_field > 1) ? sample->rest : NULL, &why);

    return (status == CT_OK) ? CT_OK : ct_reader_bad(r, id, sample, status, &why);
}

static ct_status lmdb_open(ct_reader *r, const ct_reader_options *o)
{
    lmdb_state *s = r->state;
    char path[4096];
    bool single;
    MDB_stat st;
    MDB_envinfo info;
    int rc;

    CT_TRY(find_file(r, path, sizeof(path), &single));
    CT_TRY(open_env(r, s, path, single));
    rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &s->txn);
    if (rc == 0) rc = mdb_dbi_open(s->txn, NULL, 0, &s->dbi);
    if (rc == 0) rc = mdb_stat(s->txn, s->dbi, &st);
    if (rc == 0) rc = mdb_env_info(s->env, &info);
    if (rc != 0) {
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot read LMDB %s: %s", r->source, mdb_strerror(rc));
    }
    if (st.ms_entries == 0) {
        return CT_READER_FAIL(r, CT_ERR_DATA, "LMDB %s has no records", r->source);
    }
    if (st.ms_entries > info.me_mapsize / 8) { /* a node has at least 8 bytes */
        return CT_READER_FAIL(r, CT_ERR_IO, "%s: damaged: impossible count", r->source);
    }
    r->count = (int64_t)st.ms_entries;
    r->n_field = o->n_field;
    s->color = o->color;
    s->record = malloc((size_t)r->count * sizeof(record));
    if (s->record == NULL) {
        return CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for the index of %s", r->source);
    }
    if (o->n_field > 2) {
        return CT_READER_FAIL(r, CT_ERR_CONFIG, "LMDB gives data and label, not %d tops",
                              o->n_field);
    }
    return walk(r, s, info.me_mapsize);
}

static void lmdb_close(ct_reader *r)
{
    lmdb_state *s = r->state;

    if (s->txn != NULL) mdb_txn_abort(s->txn);
    if (s->env != NULL) mdb_env_close(s->env);
    free(s->record);
}

static void lmdb_local_release(void *local)
{
    ct_datum_room_release(local);
}

const ct_reader_ops ct_reader_lmdb = {
    .name = "lmdb",
    .open = lmdb_open,
    .close = lmdb_close,
    .local_size = sizeof(ct_datum_room),
    .local_release = lmdb_local_release,
    .read = lmdb_read,
    .describe = lmdb_describe,
    .state_size = sizeof(lmdb_state),
    .probes = true,
};
