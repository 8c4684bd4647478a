/* What convert writes, readers read back: MNIST's and CIFAR-10's forms, images, made-up digits;
 * and what is broken is refused, with nothing left behind. */
#include "tests/test.h"

#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/sanitizer.h"
#include "framework/base/memory.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/data/convert.h"
#include "framework/data/reader.h"
#include "framework/data/transform.h"
#include "framework/data/writer.h"
#include "runtime/config/features.h"
#include "cli/verb.h"
#include "tests/data_files.h"
#include "tests/layer_harness.h"
#include "tests/log_capture.h"

static const char *const field[2] = { "data", "label" };

static bool have_lmdb(void)
{
    return ct_writer_table[0].ops != NULL;
}

/* ---- a small MNIST: 12 training and 5 test images of 3 x 4 */

enum { N_TRAIN = 12, N_TEST = 5, HEIGHT = 3, WIDTH = 4, SIZE = HEIGHT * WIDTH };

static uint8_t mnist_pixel(int which, int i, int k)
{
    return (uint8_t)(which * 101 + i * 17 + k * 5);
}

static uint8_t mnist_label(int which, int i)
{
    return (uint8_t)((i * 7 + which) % 10);
}

static void write_idx(test_folder *f, const char *name, int ndim, const int *dim,
                      const uint8_t *values, bool gzip)
{
    size_t size;
    uint8_t *data = test_idx(ndim, dim, values, &size);

    (gzip ? test_file_gzip : test_file_write)(test_path(f, name), data, size);
    free(data);
}

static void make_mnist(test_folder *f, bool gzip)
{
    static const char *const stem[2] = { "train", "t10k" };
    const int n[2] = { N_TRAIN, N_TEST };

    for (int w = 0; w < 2; w++) {
        uint8_t pixel[N_TRAIN * SIZE], label[N_TRAIN];
        char name[64];

        for (int i = 0; i < n[w]; i++) {
            label[i] = mnist_label(w, i);
            for (int k = 0; k < SIZE; k++) pixel[i * SIZE + k] = mnist_pixel(w, i, k);
        }
        snprintf(name, sizeof(name), "%s-images-idx3-ubyte%s", stem[w], gzip ? ".gz" : "");
        write_idx(f, name, 3, (int[]){ n[w], HEIGHT, WIDTH }, pixel, gzip);
        snprintf(name, sizeof(name), "%s-labels-idx1-ubyte%s", stem[w], gzip ? ".gz" : "");
        write_idx(f, name, 1, (int[]){ n[w] }, label, gzip);
    }
}

static ct_reader *open_set(const char *backend, const char *path, int64_t ram_limit)
{
    ct_reader_options o = {
        .who = "test", .source = path, .n_field = 2, .field_name = field, .ram_limit = ram_limit
    };
    ct_reader *r;

    assert_int_equal(ct_reader_open(backend, &o, &r), CT_OK);
    return r;
}

static void read_one(const ct_reader *r, void *local, int64_t id, float *values, float *label)
{
    ct_sample s = { .rest = label };

    assert_int_equal(r->ops->read(r, local, id, &s), CT_OK);
    for (int64_t k = 0; k < ct_shape_count(&s.shape, 0, -1); k++) {
        values[k] = (s.u8 != NULL) ? (float)s.u8[k] : s.f32[k];
    }
}

static void check_mnist(const char *backend, const char *path, int which, int n, int64_t ram_limit)
{
    ct_reader *r = open_set(backend, path, ram_limit);
    void *local;

    assert_int_equal(r->count, n);
    assert_true(ct_shape_equal(&r->field[0], &TEST_SHAPE(1, HEIGHT, WIDTH)));
    assert_int_equal(r->field[1].ndim, 0);
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    for (int step = 0; step < 2 * n; step++) { /* in order, then in leaps */
        int i = (step < n) ? step : (step * 5) % n;
        float values[SIZE], label;

        read_one(r, local, i, values, &label);
        assert_true(label == (float)mnist_label(which, i));
        for (int k = 0; k < SIZE; k++) assert_true(values[k] == (float)mnist_pixel(which, i, k));
    }
    ct_reader_local_release(r, local);
    ct_reader_close(r);
}

static void test_mnist(void **state)
{
    (void)state;
    for (int gzip = 0; gzip < 2; gzip++) {
        test_folder f;
        ct_convert_options o = { 0 };
        ct_shape shape;
        float *mean;

        test_folder_make(&f);
        make_mnist(&f, gzip);
        o.from = f.path;
        o.to = test_path(&f, "deep/er/out");
        o.mean = test_path(&f, "mean.binaryproto");
        if (have_lmdb()) {
            assert_int_equal(ct_convert_mnist(&o), CT_OK);
            check_mnist("lmdb", test_path(&f, "deep/er/out/train_lmdb"), 0, N_TRAIN, 0);
            check_mnist("lmdb", test_path(&f, "deep/er/out/test_lmdb"), 1, N_TEST, 0);
            o.mean = NULL;
        }
        o.backend = "hdf5";
        assert_int_equal(ct_convert_mnist(&o), CT_OK);
        check_mnist("hdf5", test_path(&f, "deep/er/out/train.h5"), 0, N_TRAIN, 0);
        check_mnist("hdf5", test_path(&f, "deep/er/out/test.h5"), 1, N_TEST, 1);

        assert_int_equal(ct_mean_read(test_path(&f, "mean.binaryproto"), "test", &shape, &mean),
                         CT_OK);
        assert_true(ct_shape_equal(&shape, &TEST_SHAPE(1, HEIGHT, WIDTH)));
        for (int k = 0; k < SIZE; k++) {
            int sum = 0;

            for (int i = 0; i < N_TRAIN; i++) sum += mnist_pixel(0, i, k);
            assert_true(mean[k] == (float)((double)sum / N_TRAIN));
        }
        ct_mem_release(mean);
        /* the sets and nothing else */
        assert_int_equal(test_folder_count(o.to), have_lmdb() ? 4 : 2);
        test_folder_remove(&f);
    }
}

static void test_refuses_to_overwrite(void **state)
{
    test_folder f;
    ct_convert_options o = { .backend = "hdf5" };

    (void)state;
    test_folder_make(&f);
    make_mnist(&f, false);
    o.from = f.path;
    o.to = test_path(&f, "out");
    for (int lmdb = 0; lmdb <= have_lmdb(); lmdb++) {
        o.backend = lmdb ? "lmdb" : "hdf5";
        o.force = false;
        assert_int_equal(ct_convert_mnist(&o), CT_OK);
        test_log_start();
        assert_int_equal(ct_convert_mnist(&o), CT_ERR_CONFIG);
        assert_non_null(strstr(test_log_stop(), "exists already; --force"));
        o.force = true;
        assert_int_equal(ct_convert_mnist(&o), CT_OK);
    }
    assert_int_equal(test_folder_count(o.to), have_lmdb() ? 4 : 2);
    check_mnist("hdf5", test_path(&f, "out/train.h5"), 0, N_TRAIN, 0);
    test_folder_remove(&f);
}

/* Breaks one file of a good MNIST, converts, and expects the message and no set. */
static void expect_refused(test_folder *f, ct_status status, const char *part)
{
    ct_convert_options o = { .backend = "hdf5", .from = f->path };

    o.to = test_path(f, "out");
    for (int lmdb = 0; lmdb <= have_lmdb(); lmdb++) {
        const char *said;

        o.backend = lmdb ? "lmdb" : "hdf5";
        test_log_start();
        assert_int_equal(ct_convert_mnist(&o), status);
        said = test_log_stop();
        if (strstr(said, part) == NULL) fail_msg("\"%s\" is not in: %s", part, said);
        if (test_file_exists(o.to)) assert_int_equal(test_folder_count(o.to), 0);
    }
}

static void test_broken_mnist(void **state)
{
    const char *const images = "train-images-idx3-ubyte", *const labels = "t10k-labels-idx1-ubyte";
    test_folder f;
    size_t size;
    uint8_t *good;

    (void)state;
    test_folder_make(&f);
    expect_refused(&f, CT_ERR_IO, "train-images-idx3-ubyte.gz is in");
    make_mnist(&f, false);
    good = test_file_read(test_path(&f, images), &size);

    test_file_truncate(test_path(&f, images), size - 1);
    expect_refused(&f, CT_ERR_IO, "is truncated: 1 bytes are missing");
    test_file_truncate(test_path(&f, images), 6);
    expect_refused(&f, CT_ERR_IO, "is truncated");
    good[3] = 9;
    test_file_write(test_path(&f, images), good, size);
    expect_refused(&f, CT_ERR_DATA, "not an idx file of images");
    good[3] = 3;
    good[7] = N_TRAIN + 1;
    test_file_write(test_path(&f, images), good, size);
    expect_refused(&f, CT_ERR_DATA, "has 13 images");
    good[7] = N_TRAIN;
    good[8] = 0xFF; /* height over 4 thousand millions */
    test_file_write(test_path(&f, images), good, size);
    expect_refused(&f, CT_ERR_DATA, "images of");
    good[8] = 0;
    good = realloc(good, size + 1);
    good[size] = 0;
    test_file_write(test_path(&f, images), good, size + 1);
    expect_refused(&f, CT_ERR_DATA, "longer than its header");
    test_file_write(test_path(&f, images), good, size);
    test_file_truncate(test_path(&f, labels), 9);
    expect_refused(&f, CT_ERR_IO, "t10k-labels-idx1-ubyte is truncated");
    free(good);
    test_folder_remove(&f);
}

static void test_truncated_gzip(void **state)
{
    test_folder f;
    size_t size;

    (void)state;
    test_folder_make(&f);
    make_mnist(&f, true);
    free(test_file_read(test_path(&f, "train-images-idx3-ubyte.gz"), &size));
    test_file_truncate(test_path(&f, "train-images-idx3-ubyte.gz"), size - 9);
    expect_refused(&f, CT_ERR_IO, "truncated");
    test_folder_remove(&f);
}

/* A disk that is full at some point, played by the limit on file sizes. */
static void test_full_disk(void **state)
{
    struct rlimit old, small;
    test_folder f;
    ct_convert_options o = { .count = 400 };

    (void)state;
    test_folder_make(&f);
    o.to = test_path(&f, "out");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (int lmdb = 0; lmdb <= have_lmdb(); lmdb++) {
        for (rlim_t limit = 3000; limit <= 200000; limit *= 8) {
            ct_status status;

            small = (struct rlimit){ limit, old.rlim_max };
            o.backend = lmdb ? "lmdb" : "hdf5";
            test_log_start();
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
            status = ct_convert_digits(&o);
            assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
            assert_non_null(strstr(test_log_stop(), "cannot write"));
            assert_int_equal(status, CT_ERR_IO);
            assert_false(test_file_exists(o.to)); /* nor the folder that it made */
        }
    }
    test_folder_remove(&f);
}

/* Links wait under the temporary names: nothing is written through them, and nothing is removed
 * where they lead to. */
static void test_temporary_names(void **state)
{
    uint8_t pixel[12] = { 0 };
    ct_record r = { .key = "0", .values = pixel, .n = 12, .channels = 3, .height = 2, .width = 2 };
    ct_text h5 = { 0 }, lmdb = { 0 }, text = { 0 };
    test_folder f;
    ct_writer *w = NULL;
    uint8_t *kept;
    size_t size;

    (void)state;
    test_folder_make(&f);
    ct_path_add_own(&h5, "w.h5", "tmp");
    ct_path_add_own(&lmdb, "w_lmdb", "tmp");
    ct_path_add_own(&text, "t", "tmp");
    assert_int_equal(mkdir(test_path(&f, "folder"), 0700), 0);
    test_file_text(test_path(&f, "folder/victim"), "untouched");
    assert_int_equal(symlink(test_path(&f, "folder/victim"), test_path(&f, h5.text)), 0);
    assert_int_equal(symlink(test_path(&f, "folder/victim"), test_path(&f, text.text)), 0);
    assert_int_equal(symlink(test_path(&f, "folder"), test_path(&f, lmdb.text)), 0);

    assert_int_equal(ct_file_write(test_path(&f, "t"), "new", 3), CT_OK);
    assert_int_equal(ct_writer_open("hdf5", test_path(&f, "w.h5"), 1, false, &w), CT_OK);
    assert_int_equal(ct_writer_put(w, &r), CT_OK);
    assert_int_equal(ct_writer_commit(w), CT_OK);
    test_log_start();
    if (have_lmdb())
        assert_int_equal(ct_writer_open("lmdb", test_path(&f, "w_lmdb"), 1, false, &w), CT_ERR_IO);
    test_log_stop();
    kept = test_file_read(test_path(&f, "folder/victim"), &size);
    assert_int_equal(size, 9);
    assert_memory_equal(kept, "untouched", 9);
    free(kept);
    unlink(test_path(&f, "folder/victim"));
    rmdir(test_path(&f, "folder"));
    ct_text_destroy(&h5);
    ct_text_destroy(&lmdb);
    ct_text_destroy(&text);
    test_folder_remove(&f);
}

/* ---- CIFAR-10 */

enum { CIFAR_RECORD = 3073 };

static void make_batch(test_folder *f, const char *name, int first, int n, bool gzip)
{
    uint8_t *data = malloc((size_t)n * CIFAR_RECORD);

    assert_non_null(data);
    for (int i = 0; i < n; i++) {
        data[i * CIFAR_RECORD] = (uint8_t)((first + i) % 10);
        for (int k = 1; k < CIFAR_RECORD; k++) {
            data[i * CIFAR_RECORD + k] = (uint8_t)((first + i) * 31 + k);
        }
    }
    (gzip ? test_file_gzip : test_file_write)(test_path(f, name), data, (size_t)n * CIFAR_RECORD);
    free(data);
}

static void test_cifar10(void **state)
{
    test_folder f;
    ct_convert_options o = { .backend = "hdf5" };
    ct_reader *r;
    float values[3072], label;
    void *local;

    (void)state;
    test_folder_make(&f);
    make_batch(&f, "data_batch_2.bin", 3, 2, false);
    make_batch(&f, "data_batch_1.bin.gz", 0, 3, true);
    make_batch(&f, "data_batch_2.bin.gz", 90, 1, true); /* the plain one counts */
    make_batch(&f, "my_test_2k.bin.gz", 50, 4, true);
    test_file_text(test_path(&f, "batches.meta.txt"), "cat\n");
    o.from = f.path;
    o.to = test_path(&f, "out");
    assert_int_equal(ct_convert_cifar10(&o), CT_OK);
    r = open_set("hdf5", test_path(&f, "out/train.h5"), 0);
    assert_int_equal(r->count, 5);
    assert_true(ct_shape_equal(&r->field[0], &TEST_SHAPE(3, 32, 32)));
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    for (int i = 0; i < 5; i++) {
        read_one(r, local, i, values, &label);
        assert_true(label == (float)i);
        for (int k = 0; k < 3072; k++) assert_true(values[k] == (float)(uint8_t)(i * 31 + k + 1));
    }
    ct_reader_local_release(r, local);
    ct_reader_close(r);
    r = open_set("hdf5", test_path(&f, "out/test.h5"), 0);
    assert_int_equal(r->count, 4);
    ct_reader_close(r);
    test_folder_remove(&f);
}

static void test_broken_cifar10(void **state)
{
    test_folder f;
    ct_convert_options o = { .backend = "hdf5" };
    uint8_t *data;
    size_t size;

    (void)state;
    test_folder_make(&f);
    o.from = f.path;
    o.to = test_path(&f, "out");
    test_log_start();
    make_batch(&f, "data_batch_1.bin", 0, 2, false);
    assert_int_equal(ct_convert_cifar10(&o), CT_ERR_IO);
    assert_non_null(strstr(test_log_stop(), "no file *test*.bin"));
    make_batch(&f, "test_batch.bin", 0, 2, false);
    data = test_file_read(test_path(&f, "data_batch_1.bin"), &size);
    data[CIFAR_RECORD] = 10;
    test_file_write(test_path(&f, "data_batch_1.bin"), data, size);
    test_log_start();
    assert_int_equal(ct_convert_cifar10(&o), CT_ERR_DATA);
    assert_non_null(strstr(test_log_stop(), "record 1 has label 10"));
    test_file_truncate(test_path(&f, "data_batch_1.bin"), size - 1);
    test_log_start();
    assert_int_equal(ct_convert_cifar10(&o), CT_ERR_IO);
    assert_non_null(strstr(test_log_stop(), "not whole records"));
    assert_false(test_file_exists(o.to));
    free(data);
    test_folder_remove(&f);
}

/* ---- image files: a team decodes, the order stays */

enum { N_PICTURE = 23 };

/* ThreadSanitizer does not know libgomp's barriers: it would see races between any two teams. */
static void set_threads(int n)
{
#if CT_SAN_THREAD
    n = 1;
#endif
    omp_set_num_threads(n);
}

static void make_pictures(test_folder *f)
{
    char list[1024] = "", name[32];

    for (int i = 0; i < N_PICTURE; i++) {
        uint8_t pixels[2 * 3 * 3];

        memset(pixels, 10 * i + 1, sizeof(pixels));
        snprintf(name, sizeof(name), "p%d.png", i);
        test_png(test_path(f, name), 2, 3, 3, pixels);
        snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s %d\n", name, i);
    }
    test_file_text(test_path(f, "list"), list);
}

static void read_labels(const char *path, float *labels)
{
    ct_reader *r = open_set("hdf5", path, 0);
    void *local;

    assert_int_equal(r->count, N_PICTURE);
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    for (int i = 0; i < N_PICTURE; i++) {
        float values[2 * 3 * 3];

        read_one(r, local, i, values, &labels[i]);
        assert_true(values[7] == 10.0f * labels[i] + 1.0f);
    }
    ct_reader_local_release(r, local);
    ct_reader_close(r);
}

static void test_images_in_order(void **state)
{
    static const int threads[] = { 1, 2, 3, 16 };
    float plain[N_PICTURE], mixed[N_PICTURE], first[N_PICTURE] = { 0 };
    int before = omp_get_max_threads(), moved = 0;
    test_folder f;

    (void)state;
    if (!ct_feature_has("png")) skip();
    test_folder_make(&f);
    make_pictures(&f);
    for (int k = 0; k < 4; k++) {
        ct_convert_options o = { .backend = "hdf5", .seed = 3, .force = true };

        o.list = test_path(&f, "list");
        o.root = f.path;
        o.to = test_path(&f, "set.h5");
        set_threads(threads[k]);
        assert_int_equal(ct_convert_images(&o), CT_OK);
        read_labels(o.to, plain);
        o.shuffle = true;
        assert_int_equal(ct_convert_images(&o), CT_OK);
        read_labels(o.to, mixed);
        for (int i = 0; i < N_PICTURE; i++) assert_true(plain[i] == (float)i);
        if (k == 0) memcpy(first, mixed, sizeof(first));
        assert_memory_equal(mixed, first, sizeof(first));
    }
    for (int i = 0; i < N_PICTURE; i++) moved += first[i] != (float)i;
    assert_true(moved > N_PICTURE / 2);
    omp_set_num_threads(before);
    test_folder_remove(&f);
}

/* Of two broken ones the first in the list is named, alone, and no set appears. */
static void test_images_broken(void **state)
{
    int before = omp_get_max_threads();
    test_folder f;

    (void)state;
    if (!ct_feature_has("png")) skip();
    test_folder_make(&f);
    make_pictures(&f);
    test_file_truncate(test_path(&f, "p7.png"), 60);
    test_file_truncate(test_path(&f, "p9.png"), 60);
    for (int n = 1; n < 9; n += 3) {
        ct_convert_options o = { .backend = "hdf5", .list = test_path(&f, "list"), .root = f.path };
        log_capture log;

        o.to = test_path(&f, "set.h5");
        set_threads(n);
        log_capture_start(&log);
        assert_int_equal(ct_convert_images(&o), CT_ERR_DATA);
        log_capture_stop();
        assert_int_equal(log.n_error, 1);
        assert_non_null(strstr(log.error, "list:8: "));
        assert_false(test_file_exists(o.to));
    }
    omp_set_num_threads(before);
    test_folder_remove(&f);
}

/* ---- digits */

static void test_digits(void **state)
{
    test_folder f;
    ct_convert_options o = { .backend = "hdf5", .count = 200, .seed = 4 };
    uint8_t *one, *two;
    size_t n_one, n_two;
    ct_reader *r;
    void *local;
    int count[10] = { 0 };

    (void)state;
    test_folder_make(&f);
    o.to = test_path(&f, "a");
    assert_int_equal(ct_convert_digits(&o), CT_OK);
    usleep(1100000); /* the same bytes also a second later */
    o.to = test_path(&f, "b");
    assert_int_equal(ct_convert_digits(&o), CT_OK);
    o.to = test_path(&f, "c");
    o.seed = 5;
    assert_int_equal(ct_convert_digits(&o), CT_OK);

    r = open_set("hdf5", test_path(&f, "a/train.h5"), 0);
    assert_int_equal(r->count, 200);
    assert_true(ct_shape_equal(&r->field[0], &TEST_SHAPE(1, 28, 28)));
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    for (int i = 0; i < 200; i++) {
        float values[784], label;
        double sum = 0;

        read_one(r, local, i, values, &label);
        count[(int)label]++;
        for (int k = 0; k < 784; k++) sum += values[k];
        assert_true((sum / 784 > 5) && (sum / 784 < 140)); /* ink, but not everywhere */
    }
    for (int d = 0; d < 10; d++) assert_int_equal(count[d], 20);
    ct_reader_local_release(r, local);
    ct_reader_close(r);
    r = open_set("hdf5", test_path(&f, "a/test.h5"), 0);
    assert_int_equal(r->count, 40);
    ct_reader_close(r);

    one = test_file_read(test_path(&f, "a/train.h5"), &n_one);
    two = test_file_read(test_path(&f, "b/train.h5"), &n_two);
    assert_int_equal(n_one, n_two);
    assert_memory_equal(one, two, n_one);
    free(two);
    two = test_file_read(test_path(&f, "c/train.h5"), &n_two);
    assert_true((n_one != n_two) || (memcmp(one, two, n_one) != 0));
    free(one);
    free(two);
    test_folder_remove(&f);
}

/* ---- the verb */

static void expect_usage(char **argv, const char *part)
{
    ct_call call = { .argv = argv };
    const char *said;

    while (argv[call.argc] != NULL) call.argc++;
    test_log_start();
    assert_int_equal(ct_verb_convert(&call), CT_ERR_CONFIG);
    said = test_log_stop();
    if (strstr(said, part) == NULL) fail_msg("\"%s\" is not in: %s", part, said);
}

#define ARGS(...) ((char *[]){ (char *)(uintptr_t) "convert", __VA_ARGS__, NULL })
#define A(_text)  ((char *)(uintptr_t)(_text))

static void test_usage(void **state)
{
    (void)state;
    expect_usage(ARGS(A("mnst")), "did you mean \"mnist\"");
    expect_usage(ARGS(A("mnist"), A("--frm=x")), "did you mean --from");
    expect_usage(ARGS(A("mnist"), A("--to=x")), "--from is missing");
    expect_usage(ARGS(A("mnist"), A("--from=x"), A("--to=y"), A("--resize=2x2")), "--resize");
    expect_usage(ARGS(A("digits"), A("--to=/tmp/x"), A("--count=many")), "count");
    expect_usage(ARGS(A("digits"), A("--to=/tmp/x"), A("--backend=lbdm")), "lmdb");
    expect_usage(ARGS(A("images"), A("--list=l"), A("--to=y"), A("--resize=256")),
                 "expected HEIGHTxWIDTH");
    expect_usage(ARGS(A("images"), A("--list=l"), A("--to=y"), A("--encoded"), A("--backend=hdf5")),
                 "--encoded is for --backend=lmdb");
}

/* ---- the real thing, where it is */

static void test_real_mnist(void **state)
{
    static const int train_label[10] = { 5, 0, 4, 1, 9, 2, 1, 3, 1, 4 };
    static const int test_label[10] = { 7, 2, 1, 0, 4, 1, 4, 9, 5, 9 };
    const char *data = getenv("TEST_DATA"), *backend = have_lmdb() ? "lmdb" : "hdf5";
    char from[4096];
    test_folder f;
    ct_convert_options o = { .backend = backend };

    (void)state;
    snprintf(from, sizeof(from), "%s/mnist", (data != NULL) ? data : "");
    if ((data == NULL) || !test_file_exists(from)) {
        print_message("TEST_DATA names no folder with mnist: skipped\n");
        skip();
    }
    test_folder_make(&f);
    o.from = from;
    o.to = test_path(&f, "out");
    assert_int_equal(ct_convert_mnist(&o), CT_OK);
    for (int w = 0; w < 2; w++) {
        const char *name = have_lmdb() ? ((w == 0) ? "out/train_lmdb" : "out/test_lmdb")
                                       : ((w == 0) ? "out/train.h5" : "out/test.h5");
        ct_reader *r = open_set(backend, test_path(&f, name), 0);
        void *local;

        assert_int_equal(r->count, (w == 0) ? 60000 : 10000);
        assert_int_equal(ct_reader_local(r, &local), CT_OK);
        for (int i = 0; i < 10; i++) {
            float values[784], label;

            read_one(r, local, i, values, &label);
            assert_int_equal((int)label, (w == 0) ? train_label[i] : test_label[i]);
        }
        ct_reader_local_release(r, local);
        ct_reader_close(r);
    }
    test_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mnist),         cmocka_unit_test(test_images_in_order),
        cmocka_unit_test(test_images_broken), cmocka_unit_test(test_refuses_to_overwrite),
        cmocka_unit_test(test_broken_mnist),  cmocka_unit_test(test_truncated_gzip),
        cmocka_unit_test(test_full_disk),     cmocka_unit_test(test_temporary_names),
        cmocka_unit_test(test_cifar10),       cmocka_unit_test(test_broken_cifar10),
        cmocka_unit_test(test_digits),        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_real_mnist),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
