#include "framework/data/words.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/hdf5.h"
#include "framework/data/hdf5_set.h"
#include "framework/base/text.h"

/* ---- reading */

/* The length of an array of one axis of whole numbers of `bytes` bytes, or -1 and why. */
static int64_t array_length(hid_t file, const char *name, int64_t bytes, char why[CT_HDF5_WHY])
{
    hid_t set = ct_hdf5_open_set(file, name);
    ct_hdf5_array a;
    bool good;

    snprintf(why, CT_HDF5_WHY, "is not there");
    if (set < 0) return -1;
    good = ct_hdf5_look_numbers(set, &a, why);
    if (good && ((a.n_dim != 1) || (a.kind != H5T_INTEGER) || (a.item != bytes))) {
        snprintf(why, CT_HDF5_WHY, "is no list of integers of %d bits", 8 * (int)bytes);
        good = false;
    }
    good = good && ct_hdf5_holds(set, &a, a.count * a.item, false, why);
    H5Dclose(set);
    return good ? a.count : -1;
}

static herr_t read_part(hid_t file, const char *name, hid_t type, int64_t first, int64_t n,
                        void *to)
{
    hsize_t from = (hsize_t)first, count = (hsize_t)n;
    hid_t set = ct_hdf5_open_set(file, name), space = H5Dget_space(set);
    hid_t memory = H5Screate_simple(1, &count, NULL);
    herr_t rc = -1;

    /* the file is opened each time, and may be another one by now */
    if (H5Sget_simple_extent_ndims(space) == 1)
        rc = H5Sselect_hyperslab(space, H5S_SELECT_SET, &from, NULL, &count, NULL);
    if (rc >= 0) rc = H5Dread(set, type, memory, space, H5P_DEFAULT, to);
    H5Sclose(memory);
    H5Sclose(space);
    H5Dclose(set);
    return rc;
}

/* One array, or a part of it, of a file that is opened for that. */
static ct_status read_array(const ct_words *w, const char *who, const char *name, hid_t type,
                            int64_t first, int64_t n, void *to)
{
    hid_t file;
    herr_t rc = -1;

    if (n == 0) return CT_OK;
    ct_hdf5_lock();
    file = ct_hdf5_open(w->path);
    if (file >= 0) {
        rc = read_part(file, name, type, first, n, to);
        H5Fclose(file);
    }
    ct_hdf5_unlock();
    return (rc >= 0) ? CT_OK : CT_FAIL(CT_ERR_IO, "%s: cannot read %s of %s", who, name, w->path);
}

static ct_status count_words(ct_words *w, const char *who)
{
    char *text;
    size_t size;

    CT_TRY(ct_words_vocabulary(w, &text, &size));
    for (size_t i = 0; i < size; i++) w->n_vocabulary += (text[i] == '\n');
    free(text);
    if (w->n_vocabulary > 0) return CT_OK;
    return CT_FAIL(CT_ERR_DATA, "%s: %s has an empty vocabulary", who, w->path);
}

ct_status ct_words_open(const char *path, const char *who, ct_words *w)
{
    char why_words[CT_HDF5_WHY] = "", why[CT_HDF5_WHY] = "";
    int64_t vocabulary = -1;
    hid_t file;

    *w = (ct_words){ 0 };
    if (access(path, R_OK) != 0) return CT_FAIL(CT_ERR_IO, "%s: %s cannot be read", who, path);
    ct_hdf5_lock();
    file = ct_hdf5_open(path);
    if (file >= 0) {
        w->count = array_length(file, "words", sizeof(int32_t), why_words);
        vocabulary = array_length(file, "vocabulary", 1, why);
        H5Fclose(file);
    }
    ct_hdf5_unlock();
    if (file < 0) return CT_FAIL(CT_ERR_IO, "%s: %s is not an HDF5 file", who, path);
    if ((w->count < 0) || (vocabulary < 0))
        return CT_FAIL(CT_ERR_DATA,
                       "%s: %s has no 32-bit `words` and `vocabulary` of bytes (%s %s); cortado "
                       "convert text makes such files",
                       who, path, (w->count < 0) ? "words" : "vocabulary",
                       (w->count < 0) ? why_words : why);
    w->path = strdup(path);
    if (w->path == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", who);
    return count_words(w, who);
}

void ct_words_close(ct_words *w)
{
    free(w->path);
    *w = (ct_words){ 0 };
}

ct_status ct_words_read(const ct_words *w, const char *who, int64_t first, int64_t n, int32_t *to)
{
    CT_TRY(read_array(w, who, "words", H5T_NATIVE_INT32, first, n, to));
    for (int64_t i = 0; i < n; i++) {
        if ((to[i] < 0) || (to[i] >= w->n_vocabulary))
            return CT_FAIL(CT_ERR_DATA, "%s: word %lld of %s is %d, the vocabulary has %lld", who,
                           (long long)(first + i), w->path, (int)to[i], (long long)w->n_vocabulary);
    }
    return CT_OK;
}

ct_status ct_words_vocabulary(const ct_words *w, char **text_p, size_t *size_p)
{
    char why[CT_HDF5_WHY] = "cannot be opened", *text;
    int64_t n = -1;
    ct_status status;
    hid_t file;

    ct_hdf5_lock();
    file = ct_hdf5_open(w->path);
    if (file >= 0) {
        n = array_length(file, "vocabulary", 1, why);
        H5Fclose(file);
    }
    ct_hdf5_unlock();
    if (n < 0) return CT_FAIL(CT_ERR_IO, "the vocabulary of %s %s", w->path, why);
    text = malloc((size_t)n + 1);
    if (text == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory to read %s", w->path);
    status = read_array(w, "text", "vocabulary", H5T_NATIVE_UINT8, 0, n, text);
    if (status != CT_OK) {
        free(text);
        return status;
    }
    text[n] = '\0';
    *text_p = text;
    *size_p = (size_t)n;
    return CT_OK;
}

/* ---- writing */

static herr_t put_array(hid_t file, const char *name, hid_t stored, hid_t type, size_t n,
                        const void *values)
{
    hsize_t dim = n;
    hid_t set = ct_hdf5_make_set(file, name, stored, 1, &dim);
    herr_t rc = (set >= 0) ? H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) : -1;

    if (set >= 0) H5Dclose(set);
    return rc;
}

/* The bytes of the file: HDF5 itself cannot close a file on a full disk, so our own code writes. */
static ct_status take_image(hid_t file, void **image_p, size_t *size_p)
{
    ssize_t size = (H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0) ? H5Fget_file_image(file, NULL, 0) : -1;
    void *image = (size > 0) ? malloc((size_t)size) : NULL;

    if ((image == NULL) || (H5Fget_file_image(file, image, (size_t)size) != size)) {
        free(image);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a file of words");
    }
    *image_p = image;
    *size_p = (size_t)size;
    return CT_OK;
}

static ct_status make_image(const int32_t *word, int64_t n, const char *vocabulary,
                            size_t vocabulary_size, void **image_p, size_t *size_p)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file;
    ct_status status;

    H5Pset_fapl_core(access, (size_t)1 << 20, 0);
    file = H5Fcreate("words", H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    if (file < 0) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file of words");
    if ((put_array(file, "words", H5T_STD_I32LE, H5T_NATIVE_INT32, (size_t)n, word) < 0) ||
        (put_array(file, "vocabulary", H5T_STD_U8LE, H5T_NATIVE_UINT8, vocabulary_size,
                   vocabulary) < 0))
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for a file of words");
    else
        status = take_image(file, image_p, size_p);
    H5Fclose(file);
    return status;
}

ct_status ct_words_write(const char *path, const int32_t *word, int64_t n, const char *vocabulary,
                         size_t vocabulary_size)
{
    void *image = NULL;
    size_t size = 0;
    ct_status status;

    ct_hdf5_lock();
    status = make_image(word, n, vocabulary, vocabulary_size, &image, &size);
    ct_hdf5_unlock();
    if (status == CT_OK) status = ct_file_write(path, image, size);
    free(image);
    return status;
}
