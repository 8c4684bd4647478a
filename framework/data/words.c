#include "framework/data/words.h"

#include <errno.h>
#include <hdf5.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/hash.h"
#include "framework/base/hdf5.h"
#include "framework/base/file.h"

/* ---- reading */

/* The length of an array of one axis of whole numbers of `bytes` bytes, or -1 and why. */
static int64_t array_length(hid_t file, const char *name, int64_t bytes, char why[CT_HDF5_WHY])
{
    hid_t set = ct_hdf5_open_set(file, name, why);
    ct_hdf5_array a;
    bool good;

    if ((set < 0) && (why[0] == '\0')) snprintf(why, CT_HDF5_WHY, "is not there");
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
    char why[CT_HDF5_WHY];
    hid_t set = ct_hdf5_open_set(file, name, why), space = H5Dget_space(set);
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
    if (access(path, R_OK) != 0)
        return CT_FAIL(CT_ERR_IO, "%s: %s: %s", who, path, ct_path_why(path, errno).text);
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

/* ---- words and their numbers */

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a vocabulary");
}

void ct_vocabulary_destroy(ct_vocabulary *v)
{
    for (int64_t i = 0; i < v->n; i++) free(v->word[i].text);
    free(v->word);
    free(v->slot);
    *v = (ct_vocabulary){ 0 };
}

static uint64_t hash_of(const char *word, size_t length)
{
    ct_hash h;

    ct_hash_init(&h);
    ct_hash_add(&h, word, length);
    return ct_hash_value(&h);
}

static bool same(const ct_word *w, const char *word, size_t length)
{
    return (w->length == length) && (memcmp(w->text, word, length) == 0);
}

/* Where the word's number stands or would stand; n_slot is a power of two and never full. */
static int64_t find_slot(const ct_vocabulary *v, const char *word, size_t length)
{
    int64_t at = (int64_t)(hash_of(word, length) & (uint64_t)(v->n_slot - 1));

    while ((v->slot[at] >= 0) && !same(&v->word[v->slot[at]], word, length))
        at = (at + 1) & (v->n_slot - 1);
    return at;
}

static ct_status make_slots(ct_vocabulary *v, int64_t n_slot)
{
    int32_t *slot = malloc((size_t)n_slot * sizeof(*slot));

    if (slot == NULL) return no_memory();
    free(v->slot);
    v->slot = slot;
    v->n_slot = n_slot;
    for (int64_t i = 0; i < n_slot; i++) slot[i] = -1;
    for (int64_t i = 0; i < v->n; i++)
        slot[find_slot(v, v->word[i].text, v->word[i].length)] = (int32_t)i;
    return CT_OK;
}

static ct_status make_room(ct_vocabulary *v)
{
    if (v->n == v->room) {
        int64_t room = (v->room == 0) ? 1024 : 2 * v->room;
        ct_word *word = realloc(v->word, (size_t)room * sizeof(*word));

        if (word == NULL) return no_memory();
        v->word = word;
        v->room = room;
    }
    return (2 * (v->n + 1) > v->n_slot) ? make_slots(v, 4 * v->room) : CT_OK;
}

int32_t ct_vocabulary_find(const ct_vocabulary *v, const char *word, size_t length)
{
    return (v->n > 0) ? v->slot[find_slot(v, word, length)] : -1;
}

ct_status ct_vocabulary_add(ct_vocabulary *v, const char *word, size_t length, int64_t count)
{
    int32_t number = ct_vocabulary_find(v, word, length);
    char *text;

    if (number >= 0) {
        v->word[number].count += count;
        return CT_OK;
    }
    if (v->n == INT32_MAX) return CT_FAIL(CT_ERR_DATA, "more than %d different words", INT32_MAX);
    CT_TRY(make_room(v));
    text = malloc(length + 1);
    if (text == NULL) return no_memory();
    memcpy(text, word, length);
    text[length] = '\0';
    v->word[v->n] = (ct_word){ text, length, count };
    v->slot[find_slot(v, text, length)] = (int32_t)v->n;
    v->n++;
    return CT_OK;
}

static bool is_special(const ct_word *w)
{
    return (strcmp(w->text, CT_WORD_END) == 0) || (strcmp(w->text, CT_WORD_UNKNOWN) == 0);
}

static int by_frequency(const void *pa, const void *pb)
{
    const ct_word *a = pa, *b = pb;

    if (a->count != b->count) return (a->count > b->count) ? -1 : 1;
    return strcmp(a->text, b->text);
}

ct_status ct_vocabulary_rank(ct_vocabulary *v, int64_t most)
{
    int64_t special = 0, kept = 0, plain = 0;

    if (v->n == 0) return CT_OK;
    qsort(v->word, (size_t)v->n, sizeof(v->word[0]), by_frequency);
    for (int64_t i = 0; i < v->n; i++) special += is_special(&v->word[i]);
    for (int64_t i = 0; i < v->n; i++) {
        bool keeps = (most == 0) || is_special(&v->word[i]) || (plain < most - special);

        plain += !is_special(&v->word[i]);
        if (keeps)
            v->word[kept++] = v->word[i];
        else
            free(v->word[i].text);
    }
    v->n = kept;
    return make_slots(v, v->n_slot);
}

ct_status ct_vocabulary_parse(ct_vocabulary *v, const char *text, size_t size, const char *source)
{
    const char *end = text + size;

    for (int64_t line = 1; text < end; line++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)(((stop != NULL) ? stop : end) - text);

        if ((length > 0) && (text[length - 1] == '\r')) length--;
        if (length == 0)
            return CT_FAIL(CT_ERR_DATA, "%s:%lld: an empty line; a vocabulary has a word a line",
                           source, (long long)line);
        for (size_t i = 0; i < length; i++) {
            if ((text[i] == ' ') || (text[i] == '\t') || (text[i] == '\0'))
                return CT_FAIL(CT_ERR_DATA,
                               "%s:%lld: a space in \"%.*s\"; a vocabulary has a word "
                               "a line",
                               source, (long long)line, (int)((length < 64) ? length : 64), text);
        }
        if (ct_vocabulary_find(v, text, length) >= 0)
            return CT_FAIL(CT_ERR_DATA, "%s:%lld: \"%.*s\" is there twice", source, (long long)line,
                           (int)((length < 64) ? length : 64), text);
        CT_TRY(ct_vocabulary_add(v, text, length, 0));
        text = (stop != NULL) ? stop + 1 : end;
    }
    return (v->n > 0) ? CT_OK : CT_FAIL(CT_ERR_DATA, "%s: no words", source);
}
