/* HDF5 sets that are larger than memory: rows by hyperslab, in pieces and one by one. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include <hdf5.h>

#include "framework/base/hdf5.h"
#include "framework/data/reader.h"
#include "tests/data_files.h"

/* Rows of a set of more than 2 GiB, most of which was never written and takes no room. */
enum { BIG_ROW = 1 << 10, BIG_ROWS = 3 << 20 };

static const int64_t big_row[] = { 0, 1, 2, 3, 4, 5, 6, 7, (1 << 21) - 1, 1 << 21, BIG_ROWS - 1 };

enum { N_BIG = sizeof(big_row) / sizeof(big_row[0]) };

static void put_row(hid_t set, hid_t type, int ndim, int64_t row, hsize_t width, const void *values)
{
    const hsize_t first[2] = { (hsize_t)row, 0 }, count[2] = { 1, width };
    hid_t space = H5Dget_space(set), memory = H5Screate_simple(ndim, count, NULL);

    assert_true(H5Sselect_hyperslab(space, H5S_SELECT_SET, first, NULL, count, NULL) >= 0);
    assert_true(H5Dwrite(set, type, memory, space, H5P_DEFAULT, values) >= 0);
    H5Sclose(memory);
    H5Sclose(space);
}

static void make_big(const char *path)
{
    const hsize_t dim[2] = { BIG_ROWS, BIG_ROW }, chunk[2] = { 16, BIG_ROW }, few[1] = { 4096 };
    hid_t file, space, list, set[2];
    uint8_t values[BIG_ROW];

    ct_hdf5_lock();
    file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    for (int k = 0; k < 2; k++) {
        space = H5Screate_simple(2 - k, dim, NULL);
        list = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(list, 2 - k, (k == 0) ? chunk : few);
        set[k] =
            H5Dcreate2(file, (k == 0) ? "data" : "label", (k == 0) ? H5T_STD_U8LE : H5T_STD_I32LE,
                       space, H5P_DEFAULT, list, H5P_DEFAULT);
        H5Pclose(list);
        H5Sclose(space);
    }
    for (int i = 0; i < N_BIG; i++) {
        int label = i + 1;

        for (int k = 0; k < BIG_ROW; k++) values[k] = (uint8_t)(i * 31 + k);
        put_row(set[0], H5T_NATIVE_UINT8, 2, big_row[i], BIG_ROW, values);
        put_row(set[1], H5T_NATIVE_INT, 1, big_row[i], 1, &label);
    }
    H5Dclose(set[0]);
    H5Dclose(set[1]);
    assert_true(H5Fclose(file) >= 0);
    ct_hdf5_unlock();
}

static void test_hdf5_beyond_2_gib(void **state)
{
    static const char *const name[2] = { "data", "label" };
    ct_reader_options o = { .n_field = 2, .field_name = name };
    test_folder f;
    ct_reader *r;
    size_t size;
    void *local;

    (void)state;
    test_folder_make(&f);
    make_big(test_path(&f, "big.h5"));
    free(test_file_read(test_path(&f, "big.h5"), &size));
    assert_true(size < 16 << 20);
    o.source = test_path(&f, "big.h5");
    assert_int_equal(ct_reader_open("hdf5", &o, &r), CT_OK);
    assert_int_equal(r->count, BIG_ROWS);
    assert_int_equal(ct_reader_local(r, &local), CT_OK);
    for (int turn = 0; turn < 2; turn++) { /* in order, in pieces; then backwards, one by one */
        for (int k = 0; k < N_BIG; k++) {
            int i = (turn == 0) ? k : N_BIG - 1 - k;
            float label = -1;
            ct_sample s = { .rest = &label };

            assert_int_equal(r->ops->read(r, local, big_row[i], &s), CT_OK);
            assert_true(label == (float)(i + 1));
            for (int v = 0; v < BIG_ROW; v++) assert_int_equal(s.u8[v], (uint8_t)(i * 31 + v));
        }
    }
    for (int64_t id = BIG_ROWS - 5; id < BIG_ROWS; id++) { /* a piece ends with the file */
        float label = -1;
        ct_sample s = { .rest = &label };

        assert_int_equal(r->ops->read(r, local, id, &s), CT_OK);
        assert_true(label == ((id == BIG_ROWS - 1) ? (float)N_BIG : 0.0f));
    }
    ct_reader_local_release(r, local);
    ct_reader_close(r);
    test_folder_remove(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hdf5_beyond_2_gib),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
