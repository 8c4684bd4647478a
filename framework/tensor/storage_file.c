#include "framework/tensor/storage_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/clock.h"
#include "framework/base/hash.h"
#include "framework/base/scratch_file.h"

enum {
    USUAL_CHUNK = 1 << 20, /* floats */
    USUAL_AHEAD = 12,      /* a large layer's states: what disks bring while it computes */
    PAGE = CT_SCRATCH_ALIGN / (int)sizeof(float),
    NOBODY = -1
};

typedef enum { EMPTY, READING, CLEAN, DIRTY, WRITING } buffer_state;

typedef struct buffer {
    int64_t chunk; /* NOBODY: none */
    buffer_state state;
    int pins;     /* ranges of it that are wanted */
    int64_t used; /* when it was wanted last */
    float *data;
    ct_io_request io;
} buffer;

typedef struct file_storage {
    ct_storage_files *files;
    ct_scratch_file file;
    int64_t chunk, n_chunk;
    bool *written;     /* [n_chunk] it is in the file; else zeros */
    uint64_t *sum;     /* [n_chunk] of what is there; NULL: not asked for */
    int64_t *next;     /* [n_chunk] what was wanted after it the last time; NOBODY: unknown */
    int64_t now, tick; /* the chunk that was wanted last */
    int n_buffer;
    buffer *b;
    float *block;
} file_storage;

/* ---- transfers */

static size_t chunk_bytes(const file_storage *f)
{
    return (size_t)f->chunk * sizeof(float);
}

static uint64_t sum_of(const file_storage *f, const float *data)
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, data, chunk_bytes(f));
    return ct_hash_value(&h);
}

static void submit(file_storage *f, buffer *b, bool write)
{
    b->state = write ? WRITING : READING;
    b->io = (ct_io_request){ .fd = f->file.fd,
                             .write = write,
                             .data = b->data,
                             .at = b->chunk * (int64_t)chunk_bytes(f),
                             .bytes = chunk_bytes(f) };
    if (write && (f->sum != NULL)) f->sum[b->chunk] = sum_of(f, b->data);
    ct_io_submit(f->files->io, &b->io);
}

static ct_status failed(const file_storage *f, const buffer *b)
{
    const char *why = (b->io.error > 0) ? strerror(b->io.error) : "the file is shorter than it was";

    return CT_FAIL(CT_ERR_IO,
                   "memory { path }: cannot %s bytes %" PRId64 " to %" PRId64
                   " of a file in \"%s\": %s; give another folder, or keep less in files",
                   b->io.write ? "write" : "read", b->io.at, b->io.at + (int64_t)b->io.bytes,
                   f->files->folder, why);
}

/* Nothing is under way of it any more. */
static ct_status land(file_storage *f, buffer *b)
{
    bool wrote = (b->state == WRITING);
    double start;

    if ((b->state != READING) && !wrote) return CT_OK;
    start = ct_clock_s();
    ct_io_wait(f->files->io, &b->io);
    f->files->waited_s += ct_clock_s() - start;
    b->state = CLEAN;
    if (b->io.error != 0) {
        ct_status status = failed(f, b);

        b->chunk = NOBODY;
        b->state = EMPTY;
        return status;
    }
    if (wrote) {
        f->written[b->chunk] = true;
        f->files->written += (int64_t)b->io.bytes;
        ct_scratch_forget(&f->file, b->io.at, (int64_t)b->io.bytes);
        return CT_OK;
    }
    f->files->read += (int64_t)b->io.bytes;
    if ((f->sum == NULL) || (f->sum[b->chunk] == sum_of(f, b->data))) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "memory { checksum }: bytes %" PRId64 " to %" PRId64
                   " of a file in \"%s\" are not those that were written",
                   b->io.at, b->io.at + (int64_t)b->io.bytes, f->files->folder);
}

/* ---- buffers */

static buffer *find(const file_storage *f, int64_t chunk)
{
    for (int i = 0; i < f->n_buffer; i++)
        if (f->b[i].chunk == chunk) return &f->b[i];
    return NULL;
}

/* What will be wanted soon. */
static bool is_near(const file_storage *f, int64_t chunk)
{
    int64_t c = f->now;

    for (int i = 0; (i < f->files->ahead) && (c != NOBODY); i++) {
        c = f->next[c];
        if (c == chunk) return true;
    }
    return false;
}

/* What was written by now is free again. */
static ct_status land_done(file_storage *f)
{
    for (int i = 0; i < f->n_buffer; i++) {
        buffer *b = &f->b[i];

        if ((b->state == WRITING) && ct_io_done(f->files->io, &b->io)) CT_TRY(land(f, b));
    }
    return CT_OK;
}

/* How well it can be spared: the smaller the better; below 0: not at all. */
static int64_t worth(const file_storage *f, const buffer *b, bool must)
{
    if (b->pins > 0) return -1;
    if (b->chunk == NOBODY) return 0;
    if (!must && ((b->state != CLEAN) || (b->chunk == f->now) || is_near(f, b->chunk))) return -1;
    return 1 + b->used + ((b->state == CLEAN) ? 0 : INT64_MAX / 4) +
           (is_near(f, b->chunk) ? INT64_MAX / 2 : 0);
}

/* A buffer for a chunk. must: others wait for what is under way; else NULL where none is free. */
static ct_status take(file_storage *f, int64_t chunk, bool must, buffer **b_p)
{
    buffer *best = NULL;
    int64_t least = INT64_MAX;

    *b_p = NULL;
    CT_TRY(land_done(f));
    for (int i = 0; i < f->n_buffer; i++) {
        int64_t w = worth(f, &f->b[i], must);

        if ((w < 0) || (w >= least)) continue;
        least = w;
        best = &f->b[i];
    }
    if (best == NULL)
        return must ? CT_FAIL(CT_ERR_ARG, "all buffers of a storage are wanted at once") : CT_OK;
    if (best->state == DIRTY) submit(f, best, true);
    CT_TRY(land(f, best));
    best->chunk = chunk;
    best->state = EMPTY;
    *b_p = best;
    return CT_OK;
}

/* Its bytes are there, or on their way; whole: all of them will be overwritten. */
static void fill(file_storage *f, buffer *b, bool whole)
{
    if (f->written[b->chunk] && !whole) {
        submit(f, b, false);
        return;
    }
    if (!whole) memset(b->data, 0, chunk_bytes(f));
    b->state = CLEAN;
}

/* What was changed and is not wanted goes back. */
static void write_behind(file_storage *f)
{
    for (int i = 0; i < f->n_buffer; i++) {
        buffer *b = &f->b[i];

        if ((b->state == DIRTY) && (b->pins == 0) && (b->chunk != f->now)) submit(f, b, true);
    }
}

static ct_status read_ahead(file_storage *f)
{
    int64_t c = f->now;

    for (int i = 0; i < f->files->ahead; i++) {
        buffer *b = NULL;

        c = f->next[c];
        if ((c == NOBODY) || (c == f->now)) return CT_OK;
        if (find(f, c) != NULL) continue;
        CT_TRY(take(f, c, false, &b));
        if (b == NULL) return CT_OK;
        fill(f, b, false);
    }
    return CT_OK;
}

/* ---- the storage */

static ct_status bring(file_storage *f, const ct_storage_range *r, int64_t chunk, buffer **b_p)
{
    buffer *b = find(f, chunk);
    bool whole =
        (r->use == CT_STORAGE_WRITE) && (r->from == chunk * f->chunk) && (r->count == f->chunk);

    if (chunk != f->now) {
        if (f->now != NOBODY) f->next[f->now] = chunk;
        f->now = chunk;
        write_behind(f);
    }
    if (b == NULL) {
        CT_TRY(take(f, chunk, true, &b));
        fill(f, b, whole);
    }
    CT_TRY(read_ahead(f));
    if ((b->state == READING) || (r->use != CT_STORAGE_READ)) CT_TRY(land(f, b));
    *b_p = b;
    return CT_OK;
}

static ct_status file_want(ct_storage *s, ct_stream st, ct_storage_range *r)
{
    file_storage *f = s->own;
    int64_t chunk = r->from / f->chunk;
    buffer *b = NULL;

    (void)st;
    if (r->count == 0) return CT_OK;
    if (r->from + r->count > (chunk + 1) * f->chunk)
        return CT_FAIL(CT_ERR_ARG,
                       "floats %" PRId64 " to %" PRId64 " of a storage in a file lie in two chunks",
                       r->from, r->from + r->count);
    CT_TRY(bring(f, r, chunk, &b));
    b->pins++;
    b->used = f->tick++;
    r->data = b->data + (r->from - chunk * f->chunk);
    return CT_OK;
}

static ct_status file_done(ct_storage *s, ct_stream st, const ct_storage_range *r)
{
    file_storage *f = s->own;
    buffer *b = (r->count > 0) ? find(f, r->from / f->chunk) : NULL;

    (void)st;
    if (b == NULL) return CT_OK;
    b->pins--;
    if (r->use != CT_STORAGE_READ) b->state = DIRTY;
    return CT_OK;
}

static int64_t file_together(const ct_storage *s, int64_t from)
{
    const file_storage *f = s->own;

    return (from / f->chunk + 1) * f->chunk - from;
}

static void destroy(file_storage *f)
{
    for (int i = 0; (f->b != NULL) && (i < f->n_buffer); i++) (void)land(f, &f->b[i]);
    ct_scratch_close(&f->file);
    free(f->written);
    free(f->sum);
    free(f->next);
    free(f->b);
    free(f->block);
    free(f);
}

static void file_close(ct_storage *s)
{
    file_storage *f = s->own;

    f->files->file_bytes -= f->n_chunk * (int64_t)chunk_bytes(f);
    destroy(f);
}

static ct_status acquire(file_storage *f)
{
    size_t n = (size_t)f->n_chunk + 1;
    void *block = NULL;

    f->written = calloc(n, sizeof(*f->written));
    f->next = malloc(n * sizeof(*f->next));
    f->b = calloc((size_t)f->n_buffer, sizeof(*f->b));
    if (f->files->checksum) f->sum = calloc(n, sizeof(*f->sum));
    if (posix_memalign(&block, CT_SCRATCH_ALIGN, (size_t)f->n_buffer * chunk_bytes(f)) != 0)
        block = NULL;
    f->block = block;
    if ((f->written == NULL) || (f->next == NULL) || (f->b == NULL) || (block == NULL) ||
        (f->files->checksum && (f->sum == NULL)))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for the buffers of a file of %" PRId64 " chunks",
                       f->n_chunk);
    for (int64_t i = 0; i < f->n_chunk; i++) f->next[i] = (i + 1 < f->n_chunk) ? i + 1 : NOBODY;
    for (int i = 0; i < f->n_buffer; i++)
        f->b[i] = (buffer){ .chunk = NOBODY, .data = f->block + (int64_t)i * f->chunk };
    return CT_OK;
}

/* Floats of a chunk, chunks and buffers of a storage of so many floats. */
static void set_sizes(const ct_storage_files *files, int64_t count, file_storage *f)
{
    int64_t chunk = (files->chunk > 0) ? files->chunk : USUAL_CHUNK;
    int ahead = (files->ahead > 0) ? files->ahead : USUAL_AHEAD;

    f->chunk = (chunk + PAGE - 1) / PAGE * PAGE;
    f->n_chunk = (count + f->chunk - 1) / f->chunk;
    f->n_buffer = 2 * ahead + CT_STORAGE_OUT; /* as many are on their way back */
    if (f->n_buffer > f->n_chunk) f->n_buffer = (f->n_chunk > 0) ? (int)f->n_chunk : 1;
}

void ct_storage_file_size(const ct_storage_files *files, int64_t count, int64_t *file_p,
                          int64_t *ring_p)
{
    file_storage f;

    set_sizes(files, count, &f);
    *file_p = f.n_chunk * (int64_t)chunk_bytes(&f);
    *ring_p = f.n_buffer * (int64_t)chunk_bytes(&f);
}

ct_status ct_storage_open_file(void *ctx, const ct_device *dev, int64_t count, ct_storage *s_p)
{
    static const ct_storage_ops ops = { .name = "file",
                                        .want = file_want,
                                        .done = file_done,
                                        .together = file_together,
                                        .close = file_close };
    ct_storage_files *files = ctx;
    file_storage *f = calloc(1, sizeof(*f));
    ct_status status;

    if (dev->kind != CT_DEVICE_CPU) {
        free(f);
        return CT_FAIL(CT_ERR_CONFIG, "memory { state: FILE } is not for device %s yet", dev->name);
    }
    if (f == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a storage");
    if (files->ahead == 0) files->ahead = USUAL_AHEAD;
    f->files = files;
    f->file.fd = -1;
    f->now = NOBODY;
    set_sizes(files, count, f);
    status = acquire(f);
    if (status == CT_OK)
        status = ct_scratch_open(files->folder, f->n_chunk * (int64_t)chunk_bytes(f), &f->file);
    if (status != CT_OK) {
        destroy(f);
        return status;
    }
    files->file_bytes += f->n_chunk * (int64_t)chunk_bytes(f);
    files->direct = f->file.direct;
    *s_p = (ct_storage){ .ops = &ops,
                         .dev = dev,
                         .count = count,
                         .bytes = (size_t)f->n_buffer * chunk_bytes(f),
                         .own = f };
    return CT_OK;
}
