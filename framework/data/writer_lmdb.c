/* LMDB with Caffe's Datum records.
 *
 * The file grows with its data: a transaction that does not fit is dropped, the map doubled and the
 * transaction's records, which wait in a queue, put again. So no map of a terabyte is asked for,
 * which address-space limits refuse, nor left in the file for its readers.
 */
#include "framework/data/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/datum.h"

enum { QUEUE_RECORDS = 1000, QUEUE_BYTES = 16 << 20 };

typedef struct queued {
    char *key;
    uint8_t *data;
    size_t size;
} queued;

typedef struct lmdb_state {
    MDB_env *env;
    MDB_dbi dbi;
    size_t map_size, bytes;
    queued queue[QUEUE_RECORDS];
    int n;
    ct_sample_buffer room;
} lmdb_state;

/* The file that LMDB writes, opened once more; -1 with errno. */
static int open_data(const ct_writer *w, int flags)
{
    ct_text path = { 0 };
    int fd = -1, why = ENOMEM;

    ct_text_add(&path, w->single ? "%s" : "%s/data.mdb", w->temporary);
    if (!path.failed) {
        fd = open(path.text, flags | O_CLOEXEC);
        why = errno;
    }
    ct_text_destroy(&path);
    errno = why;
    return fd;
}

/* LMDB calls a write that stopped midway an I/O error and forgets why: on a full disk, or where a
 * quota or limit ends. The file goes anyway, so we write on at its end until the system says why.
 */
static int why_short(const ct_writer *w)
{
    static const char zeros[64 << 10];
    int fd = open_data(w, O_WRONLY | O_APPEND), rc = EIO;

    for (size_t n = 0; (fd >= 0) && (rc == EIO) && (n < 2 * (size_t)QUEUE_BYTES);
         n += sizeof(zeros)) {
        if (write(fd, zeros, sizeof(zeros)) < 0) rc = errno;
        if (rc == EINTR) rc = EIO;
    }
    if (fd >= 0) close(fd);
    return rc;
}

static ct_status failed(const ct_writer *w, int rc)
{
    if (rc == EIO) rc = why_short(w);
    return CT_FAIL((rc == ENOMEM) ? CT_ERR_NOMEM : CT_ERR_IO, "cannot write LMDB %s: %s", w->path,
                   mdb_strerror(rc));
}

static ct_status lmdb_open(ct_writer *w)
{
    const unsigned single = w->single ? MDB_NOSUBDIR : 0;
    lmdb_state *s = w->state;
    int rc;

    if (!w->single && (mkdir(w->temporary, 0777) != 0)) {
        return CT_FAIL(CT_ERR_IO, "cannot make %s: %s", w->temporary, strerror(errno));
    }
    if (w->single) { /* LMDB itself would follow a link; of an empty file it makes one of its own */
        int fd = ct_file_create(w->temporary);

        if (fd < 0) return CT_FAIL(CT_ERR_IO, "cannot make %s: %s", w->temporary, strerror(errno));
        close(fd);
    }
    s->map_size = (size_t)64 << 20;
    rc = mdb_env_create(&s->env);
    if (rc == 0) rc = mdb_env_set_mapsize(s->env, s->map_size);
    /* nobody else knows the file yet: no locks, and one sync at the end */
    if (rc == 0) rc = mdb_env_open(s->env, w->temporary, MDB_NOLOCK | MDB_NOSYNC | single, 0666);
    return (rc == 0) ? CT_OK : failed(w, rc);
}

static void empty_queue(lmdb_state *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->queue[i].key);
        free(s->queue[i].data);
    }
    s->n = 0;
    s->bytes = 0;
}

static int put_queue(lmdb_state *s)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(s->env, NULL, 0, &txn);

    if (rc != 0) return rc;
    rc = mdb_dbi_open(txn, NULL, 0, &s->dbi);
    for (int i = 0; (i < s->n) && (rc == 0); i++) {
        MDB_val key = { strlen(s->queue[i].key), s->queue[i].key };
        MDB_val value = { s->queue[i].size, s->queue[i].data };

        rc = mdb_put(txn, s->dbi, &key, &value, MDB_NOOVERWRITE);
    }
    if (rc != 0) {
        mdb_txn_abort(txn);
        return rc;
    }
    return mdb_txn_commit(txn);
}

static ct_status lmdb_flush(ct_writer *w)
{
    lmdb_state *s = w->state;
    int rc = put_queue(s);

    while (rc == MDB_MAP_FULL) {
        s->map_size *= 2;
        rc = mdb_env_set_mapsize(s->env, s->map_size);
        if (rc == 0) rc = put_queue(s);
    }
    if (rc != 0) return failed(w, rc);
    empty_queue(s);
    return CT_OK;
}

static ct_status lmdb_put(ct_writer *w, const ct_record *record)
{
    lmdb_state *s = w->state;
    queued *q = &s->queue[s->n];
    size_t size;

    CT_TRY(ct_record_encode(record, &s->room, &size));
    q->key = strdup(record->key);
    q->data = malloc(size);
    q->size = size;
    s->n++;
    if ((q->key == NULL) || (q->data == NULL)) {
        return CT_FAIL(CT_ERR_NOMEM, "no memory to write %s", w->path);
    }
    memcpy(q->data, s->room.data, size);
    s->bytes += size;
    return ((s->n == QUEUE_RECORDS) || (s->bytes >= QUEUE_BYTES)) ? lmdb_flush(w) : CT_OK;
}

/* File systems may write at the close, and LMDB does not say how its own went. So the file is
 * opened before that, and synced and closed behind it. A number of errno, or 0. */
static int close_data(const ct_writer *w)
{
    lmdb_state *s = w->state;
    int fd = open_data(w, O_RDWR | O_NOFOLLOW), why = (fd < 0) ? errno : 0;

    mdb_env_close(s->env);
    s->env = NULL;
    if ((fd >= 0) && (fsync(fd) != 0)) why = errno;
    if ((fd >= 0) && (close(fd) != 0) && (why == 0)) why = errno;
    return why;
}

static ct_status lmdb_finish(ct_writer *w)
{
    lmdb_state *s = w->state;
    int rc;

    CT_TRY(lmdb_flush(w));
    rc = mdb_env_sync(s->env, 1);
    if (rc != 0) return failed(w, rc);
    rc = close_data(w);
    if (rc == 0) return CT_OK;
    return CT_FAIL(CT_ERR_IO, "cannot write LMDB %s: %s", w->path, strerror(rc));
}

static void lmdb_close(ct_writer *w)
{
    lmdb_state *s = w->state;

    empty_queue(s);
    ct_sample_buffer_release(&s->room);
    if (s->env != NULL) mdb_env_close(s->env);
}

const ct_writer_ops ct_writer_lmdb = {
    .name = "lmdb",
    .open = lmdb_open,
    .put = lmdb_put,
    .flush = lmdb_flush,
    .finish = lmdb_finish,
    .close = lmdb_close,
    .state_size = sizeof(lmdb_state),
};
