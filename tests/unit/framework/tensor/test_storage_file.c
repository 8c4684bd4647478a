/* Storages in files, and of shards over them: as memory, whatever is wanted in which order. */
#include "tests/test.h"

#include "framework/base/rng.h"
#include "framework/tensor/storage_file.h"
#include "framework/tensor/storage_shard.h"

#include <stdlib.h>
#include <string.h>

typedef struct rig {
    ct_io *io;
    ct_storage_files files;
    ct_storage s;
    float *want; /* [count] as it should be */
    int64_t count;
    uint64_t draw;
} rig;

static uint64_t draw(rig *r, uint64_t below)
{
    r->draw = ct_rng_key(r->draw, 7, 11);
    return r->draw % below;
}

static void open_rig(rig *r, int64_t count, int64_t chunk, int ahead, bool checksum)
{
    memset(r, 0, sizeof(*r));
    r->count = count;
    r->draw = (uint64_t)(count + chunk + ahead);
    r->want = calloc((size_t)count + 1, sizeof(float));
    assert_int_equal(ct_io_open(&r->io), CT_OK);
    r->files = (ct_storage_files){
        .folder = "/tmp", .io = r->io, .chunk = chunk, .ahead = ahead, .checksum = checksum
    };
}

static void close_rig(rig *r)
{
    assert_int_equal(ct_storage_close(&r->s), CT_OK);
    assert_int_equal(r->files.file_bytes, 0);
    ct_io_close(r->io);
    free(r->want);
}

/* A range that lies together, used in one of the ways. */
static void use(rig *r, int64_t from)
{
    int64_t most = ct_storage_together(&r->s, from);
    int64_t n = 1 + (int64_t)draw(r, (uint64_t)((most < 3000) ? most : 3000));
    ct_storage_use how = (ct_storage_use)(1 + draw(r, 3));
    ct_storage_range range;

    if (n > most) n = most;
    assert_int_equal(ct_storage_want(&r->s, NULL, from, n, how, &range), CT_OK);
    for (int64_t i = 0; i < n; i++) {
        if (how != CT_STORAGE_WRITE) assert_true(range.data[i] == r->want[from + i]);
        if (how == CT_STORAGE_READ) continue;
        r->want[from + i] =
            (how == CT_STORAGE_WRITE) ? (float)draw(r, 1000) : r->want[from + i] + 1.0f;
        range.data[i] = r->want[from + i];
    }
    assert_int_equal(ct_storage_done(&range, NULL), CT_OK);
}

/* In place of the best that is to be had. */
static void by_threads(rig *r)
{
    ct_io_close(r->io);
    assert_int_equal(ct_io_open_as("threads", &r->io), CT_OK);
    r->files.io = r->io;
}

static void as_memory(void **state)
{
    static const struct {
        int64_t count, chunk;
        int ahead;
        bool checksum;
    } of[] = { { 1, 0, 1, false },
               { 5000, 1024, 1, true },
               { 100000, 1024, 3, false },
               { 100000, 4096, 2, true },
               { 65536, 1024, 8, false } };

    (void)state;
    for (size_t k = 0; k < 2 * sizeof(of) / sizeof(of[0]); k++) {
        size_t i = k / 2;
        float *all;
        rig r;

        open_rig(&r, of[i].count, of[i].chunk, of[i].ahead, of[i].checksum);
        if (k % 2 == 1) by_threads(&r);
        assert_int_equal(ct_storage_open_file(&r.files, ct_device_cpu(), r.count, &r.s), CT_OK);
        assert_true(r.s.bytes > 0);
        for (int step = 0; step < 300; step++) use(&r, (int64_t)draw(&r, (uint64_t)r.count));
        all = malloc((size_t)r.count * sizeof(float));
        assert_int_equal(ct_storage_get(&r.s, 0, r.count, all), CT_OK);
        assert_memory_equal(all, r.want, (size_t)r.count * sizeof(float));
        free(all);
        close_rig(&r);
    }
}

/* In turn, as updates go: what is read ahead is what comes. */
static void in_turn(void **state)
{
    enum { N = 64 * 1024 };
    rig r;

    (void)state;
    open_rig(&r, N, 1024, 4, false);
    assert_int_equal(ct_storage_open_file(&r.files, ct_device_cpu(), N, &r.s), CT_OK);
    for (int step = 0; step < 3; step++)
        for (int64_t at = 0; at < N; at += 1024) use(&r, at);
    assert_true(r.files.written > 0);
    assert_true(r.files.read <= 3 * (int64_t)sizeof(float) * N); /* nothing comes twice */
    close_rig(&r);
}

static void two_chunks_are_refused(void **state)
{
    ct_storage_range range;
    rig r;

    (void)state;
    open_rig(&r, 4096, 1024, 1, false);
    assert_int_equal(ct_storage_open_file(&r.files, ct_device_cpu(), r.count, &r.s), CT_OK);
    assert_int_equal(ct_storage_together(&r.s, 1000), 24);
    assert_int_equal(ct_storage_want(&r.s, NULL, 1000, 25, CT_STORAGE_READ, &range), CT_ERR_ARG);
    close_rig(&r);
}

/* Pieces of the whole, in a file: what lies outside is nobody's. */
static void shards(void **state)
{
    static const ct_shard_piece of[] = { { 16, 1000 }, { 1024, 7 }, { 4096, 5000 }, { 9600, 33 } };
    ct_storage_range range;
    ct_shard shard = { .n = 0 };
    rig r;

    (void)state;
    open_rig(&r, 10000, 1024, 2, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(ct_shard_add(&shard, of[i].from, of[i].count), CT_OK);
    assert_int_equal(ct_shard_add(&shard, 9633, 0), CT_OK);
    assert_int_equal(ct_shard_add(&shard, 9633, 31), CT_OK); /* goes on where the last one ends */
    assert_int_equal(shard.n, 4);
    assert_int_equal(shard.count, 6071);
    assert_int_equal(ct_storage_open_shard(&shard, ct_storage_open_file, &r.files, ct_device_cpu(),
                                           r.count, &r.s),
                     CT_OK);
    for (int step = 0; step < 400; step++) {
        const ct_shard_piece *p = &shard.piece[draw(&r, 4)];

        use(&r, p->from + (int64_t)draw(&r, (uint64_t)p->count));
    }
    assert_int_equal(ct_storage_want(&r.s, NULL, 1016, 8, CT_STORAGE_READ, &range), CT_ERR_ARG);
    assert_int_equal(ct_storage_want(&r.s, NULL, 0, 1, CT_STORAGE_READ, &range), CT_ERR_ARG);
    assert_int_equal(ct_storage_want(&r.s, NULL, 1010, 10, CT_STORAGE_READ, &range), CT_ERR_ARG);
    ct_shard_destroy(&shard);
    close_rig(&r);
}

static void no_such_folder(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 100, 0, 1, false);
    r.files.folder = "/nowhere";
    assert_int_equal(ct_storage_open_file(&r.files, ct_device_cpu(), r.count, &r.s), CT_ERR_IO);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_memory),
        cmocka_unit_test(in_turn),
        cmocka_unit_test(two_chunks_are_refused),
        cmocka_unit_test(shards),
        cmocka_unit_test(no_such_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
