#include "tests/test.h"
#include "tests/data_files.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

void test_folder_make(test_folder *f)
{
    memset(f, 0, sizeof(*f));
    strcpy(f->path, "/tmp/cortado_test_XXXXXX");
    assert_non_null(mkdtemp(f->path));
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

void test_folder_remove(test_folder *f)
{
    assert_int_equal(nftw(f->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

const char *test_path(test_folder *f, const char *name)
{
    char *path = f->name[f->next++ % 16];
    size_t n = strlen(f->path);

    assert_true(n + 1 + strlen(name) < sizeof(f->name[0]));
    memcpy(path, f->path, n);
    path[n] = '/';
    strcpy(path + n + 1, name);
    return path;
}

void test_file_write(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

void test_file_text(const char *path, const char *text)
{
    test_file_write(path, text, strlen(text));
}

void test_file_gzip(const char *path, const void *data, size_t size)
{
    gzFile f = gzopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(gzwrite(f, data, (unsigned)size), size);
    assert_int_equal(gzclose(f), Z_OK);
}

uint8_t *test_file_read(const char *path, size_t *size_p)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    uint8_t *data;

    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    data = malloc((size_t)st.st_size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)st.st_size, f), st.st_size);
    fclose(f);
    *size_p = (size_t)st.st_size;
    return data;
}

void test_file_truncate(const char *path, size_t size)
{
    assert_int_equal(truncate(path, (off_t)size), 0);
}

bool test_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int test_folder_count(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;

    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) n++;
    closedir(dir);
    return n - 2;
}

static uint8_t *put_word(uint8_t *at, uint32_t v)
{
    for (int i = 3; i >= 0; i--) *at++ = (uint8_t)(v >> (8 * i));
    return at;
}

uint8_t *test_idx(int ndim, const int *dim, const uint8_t *values, size_t *size_p)
{
    size_t n = 1;
    uint8_t *data, *at;

    for (int i = 0; i < ndim; i++) n *= (size_t)dim[i];
    *size_p = 4 + 4 * (size_t)ndim + n;
    data = malloc(*size_p);
    assert_non_null(data);
    at = put_word(data, 0x800 + (uint32_t)ndim);
    for (int i = 0; i < ndim; i++) at = put_word(at, (uint32_t)dim[i]);
    memcpy(at, values, n);
    return data;
}

static void png_chunk(FILE *f, const char *kind, const uint8_t *data, size_t n)
{
    uint8_t word[4];
    uLong crc = crc32(crc32(0, NULL, 0), (const Bytef *)kind, 4);

    if (n > 0) crc = crc32(crc, data, (uInt)n);
    put_word(word, (uint32_t)n);
    fwrite(word, 1, 4, f);
    fwrite(kind, 1, 4, f);
    fwrite(data, 1, n, f);
    put_word(word, (uint32_t)crc);
    fwrite(word, 1, 4, f);
}

void test_png(const char *path, int height, int width, int channels, const uint8_t *pixels)
{
    size_t row = (size_t)(width * channels), raw = (row + 1) * (size_t)height;
    uint8_t *lines = malloc(raw), *packed = malloc(compressBound(raw));
    uint8_t head[13] = { 0 };
    uLongf size = compressBound(raw);
    FILE *f = fopen(path, "wb");

    assert_true((lines != NULL) && (packed != NULL) && (f != NULL));
    for (int y = 0; y < height; y++) { /* filter 0 in front of each line */
        lines[(size_t)y * (row + 1)] = 0;
        memcpy(lines + (size_t)y * (row + 1) + 1, pixels + (size_t)y * row, row);
    }
    assert_int_equal(compress(packed, &size, lines, raw), Z_OK);
    put_word(put_word(head, (uint32_t)width), (uint32_t)height);
    head[8] = 8;
    head[9] = (channels == 1) ? 0 : (channels == 3) ? 2 : 6;
    fwrite("\x89PNG\r\n\x1A\n", 1, 8, f);
    png_chunk(f, "IHDR", head, 13);
    png_chunk(f, "IDAT", packed, size);
    png_chunk(f, "IEND", head, 0);
    assert_int_equal(fclose(f), 0);
    free(lines);
    free(packed);
}
