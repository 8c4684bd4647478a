#include "framework/data/lmdb_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"

/* A page begins with its number, a pad, flags, and where its free space lies (or, on overflow
 * pages, how many there are); leaf and branch pages go on with the places of their nodes. */
typedef struct page_head {
    uint64_t number;
    uint16_t pad, flags, lower, upper;
} page_head;

typedef struct meta_page {
    page_head head;
    uint32_t magic, version;
    uint64_t address, map_size;
    struct {
        uint32_t pad; /* of the first: the page size */
        uint16_t flags, depth;
        uint64_t branch_pages, leaf_pages, overflow_pages, entries, root;
    } tree[2]; /* of free pages; the main one */
    uint64_t last_page, transaction;
} meta_page;

/* On a leaf low and high are the value's length; on a branch low, high and flags the child. */
typedef struct node_head {
    uint16_t low, high, flags, key_size;
} node_head;

enum {
    HEAD = sizeof(page_head),
    BRANCH = 1,
    LEAF = 2,
    ON_OVERFLOW = 1, /* the node's value is the number of a page */
    SEVERAL = 2 | 4, /* its value is a database, or several values */
    MAX_PAGE = 1 << 16,
    MAX_DEPTH = 32
};

static const uint32_t magic = 0xBEEFC0DE;

#define FAIL_AT(_f, _fmt, ...)                                                                     \
    (((_f)->who == NULL)                                                                           \
         ? CT_ERR_IO                                                                               \
         : CT_FAIL(CT_ERR_IO, "%s: %s: " _fmt, (_f)->who, (_f)->path, ##__VA_ARGS__))

bool ct_read_at(int fd, void *to, size_t n, int64_t at)
{
    char *p = to;

    while (n > 0) {
        ssize_t got = pread(fd, p, n, (off_t)at);

        if ((got < 0) && (errno == EINTR)) continue;
        if (got == 0) errno = 0;
        if (got <= 0) return false;
        p += got;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

/* ---- the meta pages */

static ct_status read_meta(ct_lmdb_file *f, int64_t at, meta_page *m)
{
    if (!ct_read_at(f->fd, m, sizeof(*m), at)) return FAIL_AT(f, "truncated inside its meta pages");
    f->bytes_read += (int64_t)sizeof(*m);
    if ((m->magic != magic) || (m->tree[0].pad < 256) || (m->tree[0].pad > MAX_PAGE) ||
        ((m->tree[0].pad & (m->tree[0].pad - 1)) != 0)) {
        return FAIL_AT(f, "not an LMDB data file (or one of a 32-bit machine, or of another byte "
                          "order)");
    }
    return CT_OK;
}

ct_status ct_lmdb_look(int fd, const char *path, const char *who, ct_lmdb_file *f)
{
    meta_page m[2];
    const meta_page *newer;
    struct stat st;

    *f = (ct_lmdb_file){ .fd = fd, .who = who, .path = path };
    if (fstat(fd, &st) != 0) return FAIL_AT(f, "%s", strerror(errno));
    f->size = st.st_size;
    CT_TRY(read_meta(f, 0, &m[0]));
    f->page = m[0].tree[0].pad;
    CT_TRY(read_meta(f, f->page, &m[1]));
    newer = (m[1].transaction > m[0].transaction) ? &m[1] : &m[0];
    if (newer->last_page > (uint64_t)(INT64_MAX / MAX_PAGE - 1))
        return FAIL_AT(f, "damaged: its meta pages make no sense");
    f->n_page = (int64_t)newer->last_page + 1;
    if (f->size < f->n_page * f->page) {
        return FAIL_AT(f, "truncated: %lld bytes, its pages take %lld", (long long)f->size,
                       (long long)(f->n_page * f->page));
    }
    if (newer->tree[1].entries > (uint64_t)f->size / sizeof(node_head))
        return FAIL_AT(f, "damaged: impossible count");
    f->entries = (int64_t)newer->tree[1].entries;
    f->root = newer->tree[1].root;
    return CT_OK;
}

/* ---- the tree */

typedef struct walk {
    ct_lmdb_file *f;
    ct_status (*visit)(void *ctx, const ct_lmdb_entry *e);
    void *ctx;
    int64_t n_page, n; /* pages seen, entries visited: neither beyond what there are */
} walk;

static ct_status read_page(walk *w, uint64_t number, char *page, int *n_node_p)
{
    ct_lmdb_file *f = w->f;
    page_head h;

    if ((number >= (uint64_t)f->n_page) || (w->n_page++ >= f->n_page))
        return FAIL_AT(f, "damaged: page %llu of %lld", (unsigned long long)number,
                       (long long)f->n_page);
    if (!ct_read_at(f->fd, page, (size_t)f->page, (int64_t)number * f->page))
        return FAIL_AT(f, "cannot read page %llu: %s", (unsigned long long)number,
                       (errno != 0) ? strerror(errno) : "the file became shorter");
    f->bytes_read += f->page;
    memcpy(&h, page, sizeof(h));
    if ((h.number != number) || (((h.flags & BRANCH) != 0) == ((h.flags & LEAF) != 0)) ||
        (h.lower < HEAD) || (h.lower > f->page))
        return FAIL_AT(f, "damaged: page %llu is none of the tree", (unsigned long long)number);
    *n_node_p = (h.lower - HEAD) / 2;
    return CT_OK;
}

/* Node i of a page: its head, and where its key begins. */
static ct_status find_node(const walk *w, const char *page, int i, node_head *n, int64_t *key_p)
{
    uint16_t at;

    memcpy(&at, page + HEAD + 2 * i, sizeof(at));
    if (at + (int64_t)sizeof(*n) > w->f->page) return FAIL_AT(w->f, "damaged: a node off its page");
    memcpy(n, page + at, sizeof(*n));
    *key_p = at + (int64_t)sizeof(*n);
    if (*key_p + n->key_size > w->f->page) return FAIL_AT(w->f, "damaged: a key off its page");
    return CT_OK;
}

/* A value on pages of its own, behind the head of the first. */
static ct_status find_overflow(const walk *w, uint64_t number, ct_lmdb_entry *e)
{
    e->offset = 0;
    if (number >= (uint64_t)w->f->n_page) return FAIL_AT(w->f, "damaged: a record off the file");
    e->offset = (int64_t)number * w->f->page + HEAD;
    if (e->size > w->f->size - e->offset)
        return FAIL_AT(w->f, "damaged: record %lld: impossible length", (long long)w->n);
    return CT_OK;
}

static ct_status visit_entry(walk *w, const char *page, uint64_t number, const node_head *n,
                             int64_t key)
{
    int64_t value = key + n->key_size;
    ct_lmdb_entry e = { .key = page + key, .key_size = n->key_size };
    ct_lmdb_file *f = w->f;

    if ((n->flags & SEVERAL) != 0)
        return FAIL_AT(f, "key \"%.*s\" holds several values or a database: no data set of images",
                       (int)n->key_size, e.key);
    if (w->n >= f->entries)
        return FAIL_AT(f, "damaged: more than its %lld records", (long long)f->entries);
    e.size = n->low | ((int64_t)n->high << 16);
    if ((n->flags & ON_OVERFLOW) != 0) {
        uint64_t at;

        if (value + (int64_t)sizeof(at) > f->page)
            return FAIL_AT(f, "damaged: record %lld off its page", (long long)w->n);
        memcpy(&at, page + value, sizeof(at));
        CT_TRY(find_overflow(w, at, &e));
    } else {
        if (value + e.size > f->page)
            return FAIL_AT(f, "damaged: record %lld: impossible length", (long long)w->n);
        e.offset = (int64_t)number * f->page + value;
    }
    w->n++;
    return w->visit(w->ctx, &e);
}

static ct_status walk_page(walk *w, uint64_t number, int depth)
{
    char *page = malloc((size_t)w->f->page);
    int n_node = 0;
    page_head h;
    ct_status status;

    if (page == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for a page", w->f->path);
    status = (depth < MAX_DEPTH) ? read_page(w, number, page, &n_node)
                                 : FAIL_AT(w->f, "damaged: the tree is too deep");
    if (status == CT_OK) memcpy(&h, page, sizeof(h));
    for (int i = 0; (i < n_node) && (status == CT_OK); i++) {
        node_head n;
        int64_t key;

        status = find_node(w, page, i, &n, &key);
        if (status != CT_OK) break;
        if ((h.flags & LEAF) != 0) {
            status = visit_entry(w, page, number, &n, key);
        } else {
            status = walk_page(w, n.low | ((uint64_t)n.high << 16) | ((uint64_t)n.flags << 32),
                               depth + 1);
        }
    }
    free(page);
    return status;
}

ct_status ct_lmdb_walk(ct_lmdb_file *f, ct_status (*visit)(void *ctx, const ct_lmdb_entry *e),
                       void *ctx)
{
    walk w = { .f = f, .visit = visit, .ctx = ctx };

    if (f->root != UINT64_MAX) CT_TRY(walk_page(&w, f->root, 0));
    if (w.n != f->entries)
        return FAIL_AT(f, "damaged: %lld records, its meta page says %lld", (long long)w.n,
                       (long long)f->entries);
    return CT_OK;
}

/* The file: this, the stamps, the offsets, the sizes; in the machine's byte order, which the magic
 * number shows. */
typedef struct index_head {
    uint64_t magic, checksum; /* of all that follows the checksum */
    int64_t count, n_file;
} index_head;

static const uint64_t index_magic = 0x3158444E49544343u; /* "CCTINDX1" */

/* ---- where each record lies, kept in a file */

ct_status ct_record_index_create(ct_record_index *x, int64_t count, int64_t n_file)
{
    *x = (ct_record_index){ .count = count, .n_file = n_file };
    x->file = calloc((size_t)n_file, sizeof(*x->file));
    x->offset = malloc((size_t)count * sizeof(*x->offset) + 1);
    x->size = malloc((size_t)count * sizeof(*x->size) + 1);
    if ((x->file != NULL) && (x->offset != NULL) && (x->size != NULL)) return CT_OK;
    ct_record_index_release(x);
    return CT_FAIL(CT_ERR_NOMEM, "no memory for an index of %lld records", (long long)count);
}

void ct_record_index_release(ct_record_index *x)
{
    free(x->file);
    free(x->offset);
    free(x->size);
    *x = (ct_record_index){ 0 };
}

void ct_record_index_sum(ct_record_index *x)
{
    x->largest = x->bytes = 0;
    for (int64_t i = 0; i < x->count; i++) {
        if (x->size[i] > x->largest) x->largest = x->size[i];
        x->bytes += x->size[i];
    }
}

static uint64_t add_checksum(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t word;

    for (; n >= sizeof(word); n -= sizeof(word), p += sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    for (; n > 0; n--, p++) h = (h ^ *p) * 0x100000001B3u;
    return h;
}

static uint64_t checksum_of(const ct_record_index *x)
{
    int64_t n[2] = { x->count, x->n_file };
    uint64_t h = add_checksum(1, n, sizeof(n));

    h = add_checksum(h, x->file, (size_t)x->n_file * sizeof(*x->file));
    h = add_checksum(h, x->offset, (size_t)x->count * sizeof(*x->offset));
    return add_checksum(h, x->size, (size_t)x->count * sizeof(*x->size));
}

/* ---- the file of an index: reading */

static bool fits(const ct_record_index *x, int64_t (*file_of)(const void *ctx, int64_t i),
                 const void *ctx)
{
    for (int64_t i = 0; i < x->count; i++) {
        int64_t end = x->file[file_of(ctx, i)].size;

        if ((x->offset[i] < 0) || (x->offset[i] > end) || (x->size[i] > end - x->offset[i]))
            return false;
    }
    return true;
}

/* `found` has room for the same counts as x. */
static ct_index_state load(int fd, int64_t size, ct_record_index *x, ct_record_index *found)
{
    size_t stamps = (size_t)x->n_file * sizeof(*x->file);
    size_t offsets = (size_t)x->count * sizeof(*x->offset);
    size_t sizes = (size_t)x->count * sizeof(*x->size);
    int64_t at = (int64_t)sizeof(index_head);
    index_head h;

    if ((size < at) || !ct_read_at(fd, &h, sizeof(h), 0) || (h.magic != index_magic))
        return CT_INDEX_CORRUPT;
    /* another number of files or records is another set: whole or not, it is of no use */
    if ((h.count != x->count) || (h.n_file != x->n_file)) return CT_INDEX_STALE;
    if (size != at + (int64_t)(stamps + offsets + sizes)) return CT_INDEX_CORRUPT;
    if (!ct_read_at(fd, found->file, stamps, at) ||
        !ct_read_at(fd, found->offset, offsets, at + (int64_t)stamps) ||
        !ct_read_at(fd, found->size, sizes, at + (int64_t)(stamps + offsets)) ||
        (h.checksum != checksum_of(found)))
        return CT_INDEX_CORRUPT;
    return (memcmp(found->file, x->file, stamps) == 0) ? CT_INDEX_GOOD : CT_INDEX_STALE;
}

ct_index_state ct_record_index_load(ct_record_index *x, const char *path,
                                    int64_t (*file_of)(const void *ctx, int64_t i), const void *ctx,
                                    int64_t *bytes_p)
{
    int fd = ct_file_open(path);
    ct_index_state state = CT_INDEX_CORRUPT;
    ct_record_index found;
    struct stat st;

    if (fd < 0) return CT_INDEX_ABSENT;
    if (fstat(fd, &st) != 0) st.st_size = 0;
    if (ct_record_index_create(&found, x->count, x->n_file) == CT_OK) {
        state = load(fd, st.st_size, x, &found);
        *bytes_p += st.st_size;
        if ((state == CT_INDEX_GOOD) && !fits(&found, file_of, ctx)) state = CT_INDEX_CORRUPT;
        if (state == CT_INDEX_GOOD) {
            ct_record_index_release(x);
            *x = found;
            ct_record_index_sum(x);
        } else {
            ct_record_index_release(&found);
        }
    }
    close(fd);
    return state;
}

/* ---- the file of an index: writing */

static bool put(int fd, const void *data, size_t n)
{
    const char *p = data;

    while (n > 0) {
        ssize_t put_now = write(fd, p, n);

        if ((put_now < 0) && (errno == EINTR)) continue;
        if (put_now <= 0) return false;
        p += put_now;
        n -= (size_t)put_now;
    }
    return true;
}

bool ct_record_index_save(const ct_record_index *x, const char *path)
{
    index_head h = { index_magic, checksum_of(x), x->count, x->n_file };
    ct_text name = { 0 };
    bool good = false;
    int fd, why;

    ct_path_remove_leftovers(path);
    ct_path_add_own(&name, path, "tmp");
    if (name.failed) return false;
    /* whoever makes the same one at the same time has a name of its own */
    fd = open(name.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    why = errno;
    if (fd >= 0) {
        good = put(fd, &h, sizeof(h)) && put(fd, x->file, (size_t)x->n_file * sizeof(*x->file)) &&
               put(fd, x->offset, (size_t)x->count * sizeof(*x->offset)) &&
               put(fd, x->size, (size_t)x->count * sizeof(*x->size)) && (fsync(fd) == 0);
        why = errno;
        good = (close(fd) == 0) && good && (rename(name.text, path) == 0);
        if (!good) {
            if (why == 0) why = errno;
            unlink(name.text);
        }
    }
    ct_text_destroy(&name);
    errno = why;
    return good;
}
