/* LMDB files read without the library, their index, and sets in stripes. */
#include "tests/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/rng.h"
#include "framework/data/convert.h"
#include "framework/data/loader.h"
#include "framework/data/lmdb_file.h"
#include "framework/data/reader.h"
#include "framework/data/stripes.h"
#include "framework/data/writer.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"

#define NEEDS_LMDB()                                                                               \
    do {                                                                                           \
        if (ct_writer_table[0].ops == NULL) {                                                      \
            print_message("not built in: skipped\n");                                              \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

/* ---- made-up sets: sample i has width_of(i) bytes, which byte_of() tells */

static int64_t width_of(int64_t i)
{
    return 1 + (int64_t)(ct_rng_key(3, (uint64_t)i, 0) % ((i % 7 == 0) ? 9000 : 700));
}

static uint8_t byte_of(int64_t i, int64_t at)
{
    return (uint8_t)(i * 31 + at * 7 + (at >> 8));
}

static void fill(ct_writer *w, int64_t n)
{
    uint8_t *pixels = malloc(9001);

    for (int64_t i = 0; i < n; i++) {
        char key[32];
        ct_record r = { .key = key,
                        .values = pixels,
                        .n = (size_t)width_of(i),
                        .channels = 1,
                        .height = 1,
                        .width = width_of(i),
                        .label = (int)(i % 1000) };

        snprintf(key, sizeof(key), "%08lld_x", (long long)i);
        for (int64_t k = 0; k < width_of(i); k++) pixels[k] = byte_of(i, k);
        assert_int_equal(ct_writer_put(w, &r), CT_OK);
    }
    free(pixels);
}

static void make_set(const char *path, int64_t n, int shards, int64_t stripe)
{
    ct_writer *w;

    if (shards == 0)
        assert_int_equal(ct_writer_open("lmdb", path, n, true, &w), CT_OK);
    else
        assert_int_equal(ct_writer_open_shards(path, n, true, shards, stripe, &w), CT_OK);
    fill(w, n);
    assert_int_equal(ct_writer_commit(w), CT_OK);
}

static ct_status try_open(const char *source, ct_reader **r_p, const char **said_p)
{
    ct_reader_options o = { .who = "net:7", .source = source, .n_field = 2 };
    ct_status status;

    *r_p = NULL;
    test_log_start();
    status = ct_reader_open("lmdb", &o, r_p);
    *said_p = test_log_stop();
    return status;
}

static ct_reader *open_set(const char *source, const char **said_p)
{
    const char *said;
    ct_reader *r;

    if (said_p == NULL) said_p = &said;
    if (try_open(source, &r, said_p) != CT_OK) fail_msg("%s", *said_p);
    return r;
}

/* True where every sample is what was written. */
static bool samples_are_good(const ct_reader *r, int64_t from, int64_t n)
{
    void *local;
    bool good = ct_reader_local(r, &local) == CT_OK;

    for (int64_t i = from; good && (i < from + n); i++) {
        float label;
        ct_sample s = { .rest = &label };

        good = (r->ops->read(r, local, i, &s) == CT_OK) && (label == (float)(i % 1000)) &&
               (s.shape.ndim == 3) && (s.shape.dim[2] == width_of(i)) && (s.u8 != NULL);
        for (int64_t k = 0; good && (k < width_of(i)); k++) good = s.u8[k] == byte_of(i, k);
    }
    ct_reader_local_release(r, local);
    return good;
}

/* Lines that are not empty. */
static int lines_of(const char *said)
{
    int n = 0;

    for (char last = '\n'; *said != '\0'; last = *said++) n += (*said == '\n') && (last != '\n');
    return n;
}

/* ---- the files */

static void test_all_records(void **state)
{
    static const int64_t count[] = { 1, 2, 130, 6000 }; /* one leaf to a tree of three levels */
    test_folder f;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    for (size_t i = 0; i < sizeof(count) / sizeof(count[0]); i++) {
        const char *path = test_path(&f, "set");
        ct_reader *r;

        make_set(path, count[i], 0, 0);
        r = open_set(path, NULL);
        assert_int_equal(r->count, count[i]);
        assert_true(samples_are_good(r, 0, r->count));
        assert_int_equal(r->io->opened, 1);
        ct_reader_close(r);
    }
    test_folder_remove(&f);
}

/* Damage in any page of the tree, or in the meta pages: a message or other samples, no crash. */
static void test_damaged_pages(void **state)
{
    test_folder f;
    const char *path, *file;
    uint8_t *good, *bad;
    size_t size;
    int refused = 0;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    make_set(test_path(&f, "set"), 300, 0, 0);
    good = test_file_read(test_path(&f, "set/data.mdb"), &size);
    bad = malloc(size);
    for (int round = 0; round < 400; round++) {
        const char *said;
        ct_reader *r;

        memcpy(bad, good, size);
        for (int k = 0; k <= round % 5; k++) {
            ct_rng_block b = ct_rng_philox(11, (uint64_t)round, (uint64_t)k);
            size_t at = b.v[0] % size; /* heads of pages more often than what lies behind */

            if (round % 2 == 0) at = at / 4096 * 4096 + b.v[1] % 64;
            if (at < size) bad[at] = (uint8_t)b.v[2];
        }
        path = test_path(&f, "set");
        file = test_path(&f, "set/data.mdb");
        test_file_write(file, bad, size);
        unlink(test_path(&f, "set/data.mdb.index"));
        if (try_open(path, &r, &said) == CT_OK) {
            test_log_start();
            (void)samples_are_good(r, 0, r->count);
            test_log_stop();
        } else {
            refused++;
            assert_non_null(strstr(said, "net:7: "));
        }
        ct_reader_close(r);
    }
    assert_in_range(refused, 20, 399);
    free(good);
    free(bad);
    test_folder_remove(&f);
}

/* ---- the index */

static void set_mtime(const char *path, int64_t seconds)
{
    struct timespec t[2] = { { .tv_sec = seconds }, { .tv_sec = seconds } };

    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static void test_index_made_once(void **state)
{
    test_folder f;
    const char *said, *path, *data;
    int64_t first_bytes;
    ct_reader *r;
    uint8_t *bytes;
    size_t size;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    path = test_path(&f, "set");
    data = test_path(&f, "set/data.mdb");
    make_set(path, 3000, 0, 0);
    r = open_set(path, &said);
    assert_true(r->io->walked && (said[0] == '\0'));
    first_bytes = r->io->bytes;
    ct_reader_close(r);
    assert_int_equal(test_folder_count(path), 2); /* no lock, nothing temporary */
    r = open_set(path, &said);                    /* reused */
    assert_true(!r->io->walked && (said[0] == '\0'));
    assert_true(r->io->bytes < first_bytes);
    assert_true(samples_are_good(r, 0, 3000));
    ct_reader_close(r);

    set_mtime(data, 1000000); /* stale by time */
    r = open_set(path, &said);
    assert_true(r->io->walked && (lines_of(said) == 1));
    assert_non_null(strstr(said, "older state of the data"));
    ct_reader_close(r);
    bytes = test_file_read(data, &size); /* stale by size: a page that no record uses */
    bytes = realloc(bytes, size + 4096);
    memset(bytes + size, 0, 4096);
    test_file_write(data, bytes, size + 4096);
    free(bytes);
    set_mtime(data, 1000000);
    r = open_set(path, &said);
    assert_true(r->io->walked && (lines_of(said) == 1) && samples_are_good(r, 0, 3000));
    ct_reader_close(r);
    test_folder_remove(&f);
}

/* The counts differ, the time does not: an index from elsewhere. */
static void test_index_of_another_set(void **state)
{
    test_folder f;
    uint8_t *bytes;
    const char *said;
    ct_reader *r;
    size_t size;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    make_set(test_path(&f, "a"), 50, 0, 0);
    make_set(test_path(&f, "b"), 51, 0, 0);
    set_mtime(test_path(&f, "a/data.mdb"), 1000000);
    set_mtime(test_path(&f, "b/data.mdb"), 1000000);
    ct_reader_close(open_set(test_path(&f, "a"), NULL));
    bytes = test_file_read(test_path(&f, "a/data.mdb.index"), &size);
    test_file_write(test_path(&f, "b/data.mdb.index"), bytes, size);
    free(bytes);
    r = open_set(test_path(&f, "b"), &said);
    assert_true(r->io->walked && (lines_of(said) == 1) && samples_are_good(r, 0, 51));
    ct_reader_close(r);
    test_folder_remove(&f);
}

static void test_index_corrupt(void **state)
{
    test_folder f;
    const char *said, *path, *index;
    uint8_t *good, *bad;
    size_t size;
    ct_reader *r;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    path = test_path(&f, "set");
    index = test_path(&f, "set/data.mdb.index");
    make_set(path, 40, 0, 0);
    ct_reader_close(open_set(path, NULL));
    good = test_file_read(index, &size);
    bad = malloc(size + 1);
    for (size_t at = 0; at < size; at += 1 + size / 61) { /* a bit somewhere */
        memcpy(bad, good, size);
        bad[at] ^= 0x10;
        test_file_write(index, bad, size);
        r = open_set(path, &said);
        if (!r->io->walked || (lines_of(said) != 1)) fail_msg("byte %zu: %s", at, said);
        assert_true(samples_are_good(r, 0, 40));
        ct_reader_close(r);
    }
    for (size_t n = 0; n <= size + 1; n += 1 + size / 29) { /* cut off, or longer */
        if (n == size) continue;
        memcpy(bad, good, (n < size) ? n : size);
        test_file_write(index, bad, n);
        r = open_set(path, &said);
        assert_true(r->io->walked && (lines_of(said) == 1));
        assert_non_null(strstr(said, "data.mdb.index is damaged: making it anew"));
        ct_reader_close(r);
    }
    r = open_set(path, &said); /* and what was made anew is good */
    assert_true(!r->io->walked && (said[0] == '\0'));
    ct_reader_close(r);
    free(good);
    free(bad);
    test_folder_remove(&f);
}

static int64_t one_file(const void *ctx, int64_t i)
{
    (void)ctx;
    (void)i;
    return 0;
}

/* The checksum is right, the places are not: nothing outside the file is believed. */
static void test_index_outside_the_file(void **state)
{
    test_folder f;
    const char *path;
    int64_t bytes = 0;

    (void)state;
    test_folder_make(&f);
    path = test_path(&f, "index");
    for (int bad = 0; bad < 4; bad++) {
        ct_record_index x, y;

        assert_int_equal(ct_record_index_create(&x, 3, 1), CT_OK);
        assert_int_equal(ct_record_index_create(&y, 3, 1), CT_OK);
        x.file[0] = y.file[0] = (ct_file_stamp){ 1000, 5, 6, 3 };
        for (int i = 0; i < 3; i++) {
            x.offset[i] = 100 * i;
            x.size[i] = 100;
        }
        if (bad == 1) x.offset[1] = -1;
        if (bad == 2) x.offset[2] = 901;
        if (bad == 3) x.size[0] = 1001;
        assert_true(ct_record_index_save(&x, path));
        assert_int_equal(ct_record_index_load(&y, path, one_file, NULL, &bytes),
                         (bad == 0) ? CT_INDEX_GOOD : CT_INDEX_CORRUPT);
        if (bad == 0) assert_true((y.largest == 100) && (y.bytes == 300) && (y.offset[2] == 200));
        ct_record_index_release(&x);
        ct_record_index_release(&y);
    }
    test_folder_remove(&f);
}

/* No file of the set is locked by anybody: /proc/locks names inodes. */
static bool is_locked(const char *path)
{
    char line[256], inode[32];
    struct stat st;
    FILE *f = fopen("/proc/locks", "r");
    bool found = false;

    assert_int_equal(stat(path, &st), 0);
    snprintf(inode, sizeof(inode), ":%llu ", (unsigned long long)st.st_ino);
    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL))
        found = found || (strstr(line, inode) != NULL);
    if (f != NULL) fclose(f);
    return found;
}

/* One of several processes that read at once, without a right to write anywhere there. */
static int read_as_nobody(const char *set, int64_t n)
{
    ct_reader_options o = { .who = "net:7", .source = set, .n_field = 2 };
    ct_reader *r;
    bool good;

    if ((geteuid() == 0) && ((setgid(65534) != 0) || (setuid(65534) != 0))) return 9;
    if (access(set, W_OK) == 0) return 8;
    if (ct_reader_open("lmdb", &o, &r) != CT_OK) return 7;
    good = samples_are_good(r, 0, n);
    ct_reader_close(r);
    return good ? 0 : 6;
}

static void test_read_only_by_several(void **state)
{
    test_folder f;
    pid_t child[4];
    const char *set;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    assert_int_equal(chmod(f.path, 0755), 0);
    for (int shards = 0; shards <= 3; shards += 3) {
        const char *file = test_path(&f, (shards == 0) ? "s0/data.mdb" : "s3/shard-00001.mdb");
        int files;

        set = test_path(&f, (shards == 0) ? "s0" : "s3");
        make_set(set, 400, shards, 50);
        files = test_folder_count(set);
        assert_int_equal(chmod(set, 0555), 0);
        fflush(NULL);
        for (int i = 0; i < 4; i++) {
            child[i] = fork();
            if (child[i] == 0) _exit(read_as_nobody(set, 400));
        }
        assert_false(is_locked(file));
        for (int i = 0; i < 4; i++) {
            int how = -1;

            assert_int_equal(waitpid(child[i], &how, 0), child[i]);
            assert_int_equal(how, 0);
        }
        assert_int_equal(test_folder_count(set), files); /* no index, no lock */
        assert_int_equal(chmod(set, 0755), 0);
    }
    test_folder_remove(&f);
}

/* ---- stripes */

static void test_stripes_are_runs(void **state)
{
    (void)state;
    for (int64_t n = 1; n < 90; n += 4) {
        for (int64_t b = 1; b <= n; b++) {
            assert_int_equal(ct_stripe_first(n, b, 0), 0);
            assert_int_equal(ct_stripe_first(n, b, b), n);
            for (int64_t i = 0; i < n; i++) {
                int64_t k = ct_stripe_of(n, b, i);

                assert_true((ct_stripe_first(n, b, k) <= i) && (i < ct_stripe_first(n, b, k + 1)));
            }
        }
    }
    /* and far up */
    for (int64_t k = 0; k <= CT_MAX_STRIPE; k += 99991) {
        int64_t n = ((int64_t)1 << 40) - 12345, first = ct_stripe_first(n, CT_MAX_STRIPE, k);

        assert_int_equal(ct_stripe_of(n, CT_MAX_STRIPE, (first < n) ? first : n - 1),
                         (first < n) ? k : CT_MAX_STRIPE - 1);
    }
}

static void test_shuffled_stripes(void **state)
{
    static const int64_t size[][2] = { { 1, 1 },  { 5, 5 },   { 10, 3 },   { 64, 8 },
                                       { 97, 7 }, { 100, 9 }, { 1001, 37 } };

    (void)state;
    for (size_t c = 0; c < sizeof(size) / sizeof(size[0]); c++) {
        int64_t n = size[c][0], b = size[c][1], local = n / b, moved = 0;
        int *seen = calloc((size_t)n, sizeof(*seen));

        for (int64_t epoch = 0; epoch < 4; epoch++) { /* each sample once an epoch */
            for (int64_t i = 0; i < n; i++) {
                int64_t id = ct_sample_at(9, b, epoch * n + i, n);

                assert_in_range(id, 0, n - 1);
                assert_int_equal(seen[id]++, epoch);
                moved += id != i;
            }
        }
        for (int64_t at = 0; at + local <= 4 * n; at++) { /* any batch, over epochs' ends too */
            int64_t met[2] = { -1, -1 };

            for (int64_t i = at; i < at + local; i++) {
                int64_t k = ct_stripe_of(n, b, ct_sample_at(9, b, i, n));

                if ((k == met[0]) || (k == met[1])) continue;
                assert_int_equal(met[1], -1);
                met[(met[0] >= 0)] = k;
            }
        }
        if (n > 5) assert_true(moved > 2 * n); /* shuffled at all */
        free(seen);
    }
    for (int64_t i = 0; i < 300; i++) /* one stripe: the order as it always was */
        assert_int_equal(ct_sample_at(7, 1, i, 100),
                         ct_rng_permute(ct_rng_key(7, ct_rng_hash("shuffle"), (uint64_t)(i / 100)),
                                        (uint64_t)(i % 100), 100));
}

static void test_files_of_a_batch(void **state)
{
    ct_shards s = { .n = 1000, .stripes = 40, .n_file = 8 };
    int64_t all = 0;

    (void)state;
    ct_shards_deal(&s);
    for (int k = 0; k < 8; k++) all += s.count[k];
    assert_int_equal(all, 1000);
    assert_int_equal(ct_shards_touched(&s, 1), 1);
    assert_int_equal(ct_shards_readers(&s, 0, 3), 3);
    assert_int_equal(ct_shards_touched(&s, 25), 2);
    assert_int_equal(ct_shards_touched(&s, 27), 3);
    assert_int_equal(ct_shards_touched(&s, 999), 8);
    /* what is promised is what happens, counted */
    for (int64_t local = 1; local <= 25; local += 3) {
        for (int64_t ranks = 1; ranks <= 64; ranks *= 2) {
            int promised = ct_shards_readers(&s, local, ranks);

            for (int64_t step = 0; step < 50; step++) {
                int reads[8] = { 0 };

                for (int64_t rank = 0; rank < ranks; rank++) {
                    int64_t first = (step * ranks + rank) * local % (1000 - local + 1);
                    bool file[8] = { false };

                    for (int64_t i = first; i < first + local; i++)
                        file[ct_stripe_of(s.n, s.stripes, i) % 8] = true;
                    for (int k = 0; k < 8; k++) reads[k] += file[k];
                }
                if ((step * ranks + ranks) * local > 1000)
                    break; /* the formula is within an epoch */
                for (int k = 0; k < 8; k++) assert_true(reads[k] <= promised);
            }
        }
    }
}

static void test_shards_are_the_set(void **state)
{
    static const int64_t stripe[] = { 0, 7, 16, 50 };
    test_folder f;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    for (int i = 0; i < 4; i++) {
        const char *path = test_path(&f, "set");
        int64_t n = 200 + i, local;
        ct_reader *r;

        make_set(path, n, 4, stripe[i]);
        r = open_set(path, NULL);
        assert_int_equal(r->count, n);
        assert_int_equal(r->n_file, 4);
        assert_true(samples_are_good(r, 0, n));
        local = n / r->stripes;
        assert_true(local >= stripe[i]);
        ct_reader_close(r);
        assert_int_equal(test_folder_count(path), 6); /* shards.txt, index */
        for (int64_t at = 0; at + local <= n; at += local - 1 + (local == 1)) {
            r = open_set(path, NULL); /* the first record is looked at: it may be a third file */
            assert_int_equal(r->io->opened, 1);
            assert_true(!r->io->walked && samples_are_good(r, at, local));
            assert_in_range(r->io->opened, 1, 3);
            ct_reader_close(r);
        }
        r = open_set(test_path(&f, "set/shard-00002.mdb"), NULL); /* an LMDB like any other */
        assert_true(r->count >= n / 4 - local);
        ct_reader_close(r);
    }
    test_folder_remove(&f);
}

static void expect_refused(test_folder *f, const char *list, const char *part)
{
    const char *said;
    ct_reader *r;

    if (list != NULL) test_file_text(test_path(f, "set/shards.txt"), list);
    assert_int_not_equal(try_open(test_path(f, "set"), &r, &said), CT_OK);
    if (strstr(said, part) == NULL) fail_msg("\"%s\" is not in %s", part, said);
}

static void test_shards_at_fault(void **state)
{
    test_folder f;
    ct_writer *w;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    make_set(test_path(&f, "set"), 40, 4, 5);
    expect_refused(&f, "", "not a list of shards");
    expect_refused(&f, "cortado shards 1\nsamples 40\nstripes 8\nfiles 4\nmore", "not a list");
    expect_refused(&f, "cortado shards 1\nsamples 40\nstripes 8\nfiles 0\n", "impossible");
    expect_refused(&f, "cortado shards 1\nsamples 40\nstripes 3\nfiles 4\n", "impossible");
    expect_refused(&f, "cortado shards 1\nsamples -1\nstripes 8\nfiles 4\n", "impossible");
    expect_refused(&f, "cortado shards 1\nsamples 41\nstripes 8\nfiles 4\n", "shards.txt says");
    expect_refused(&f, "cortado shards 1\nsamples 40\nstripes 8\nfiles 5\n",
                   "shard-00004.mdb: No such file");
    test_file_text(test_path(&f, "set/shards.txt"),
                   "cortado shards 1\nsamples 40\nstripes 8\nfiles 4\n");
    test_file_truncate(test_path(&f, "set/shard-00003.mdb"), 9000);
    expect_refused(&f, NULL, "shard-00003.mdb: truncated");
    test_log_start();
    assert_int_equal(ct_writer_open_shards(test_path(&f, "x"), 99, false, 600, 0, &w),
                     CT_ERR_CONFIG);
    test_log_stop();
    for (int i = 0; i < 2; i++) { /* too few for four files */
        ct_reader *r;

        make_set(test_path(&f, "few"), (i == 0) ? 3 : 99, 4, (i == 0) ? 0 : 30);
        r = open_set(test_path(&f, "few"), NULL);
        assert_true((r->n_file == 3) && (r->stripes == 3) && samples_are_good(r, 0, r->count));
        ct_reader_close(r);
    }
    assert_false(test_file_exists(test_path(&f, "x")));
    test_folder_remove(&f);
}

/* The verb's way: what a sharded set trains on is what the plain one does. */
static void test_converted_shards(void **state)
{
    ct_convert_options o = { .count = 300, .seed = 4 };
    ct_reader *plain, *shards;
    test_folder f;
    void *a, *b;

    (void)state;
    NEEDS_LMDB();
    test_folder_make(&f);
    test_log_start();
    o.to = test_path(&f, "plain");
    assert_int_equal(ct_convert_digits(&o), CT_OK);
    o.to = test_path(&f, "shards");
    o.shards = 5;
    o.stripe = 10;
    assert_int_equal(ct_convert_digits(&o), CT_OK);
    o.backend = "hdf5";
    o.to = test_path(&f, "none");
    assert_int_equal(ct_convert_digits(&o), CT_ERR_CONFIG);
    test_log_stop();
    plain = open_set(test_path(&f, "plain/train_lmdb"), NULL);
    shards = open_set(test_path(&f, "shards/train_lmdb"), NULL);
    assert_int_equal(shards->stripes, 30);
    assert_true((ct_reader_local(plain, &a) == CT_OK) && (ct_reader_local(shards, &b) == CT_OK));
    assert_int_equal(plain->count, shards->count);
    for (int64_t i = 0; i < 300; i++) {
        float label[2];
        ct_sample s = { .rest = &label[0] }, t = { .rest = &label[1] };

        assert_int_equal(plain->ops->read(plain, a, i, &s), CT_OK);
        assert_int_equal(shards->ops->read(shards, b, i, &t), CT_OK);
        assert_true(label[0] == label[1]);
        assert_memory_equal(s.u8, t.u8, 28 * 28);
    }
    ct_reader_local_release(plain, a);
    ct_reader_local_release(shards, b);
    ct_reader_close(plain);
    ct_reader_close(shards);
    test_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_records),          cmocka_unit_test(test_damaged_pages),
        cmocka_unit_test(test_index_made_once),      cmocka_unit_test(test_index_of_another_set),
        cmocka_unit_test(test_index_corrupt),        cmocka_unit_test(test_index_outside_the_file),
        cmocka_unit_test(test_read_only_by_several), cmocka_unit_test(test_stripes_are_runs),
        cmocka_unit_test(test_shuffled_stripes),     cmocka_unit_test(test_files_of_a_batch),
        cmocka_unit_test(test_shards_are_the_set),   cmocka_unit_test(test_shards_at_fault),
        cmocka_unit_test(test_converted_shards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
