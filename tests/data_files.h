/** @file data_files.h  Small files that tests of data make, in a folder of their own. */
#ifndef CT_TEST_DATA_FILES_H
#define CT_TEST_DATA_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct test_folder {
    char path[64];
    char name[16][160]; /* of the last calls of test_path() */
    int next;
} test_folder;

void test_folder_make(test_folder *f);
void test_folder_remove(test_folder *f);
/** FOLDER/name, valid for sixteen calls. */
const char *test_path(test_folder *f, const char *name);

void test_file_write(const char *path, const void *data, size_t size);
void test_file_text(const char *path, const char *text);
void test_file_gzip(const char *path, const void *data, size_t size);
/** The file's bytes, from malloc. */
uint8_t *test_file_read(const char *path, size_t *size_p);
void test_file_truncate(const char *path, size_t size);
bool test_file_exists(const char *path);
/** How many entries a folder has. */
int test_folder_count(const char *path);

/** An idx file: magic 0x800 + ndim, the sizes, then values. Returns its bytes; *size_p of them. */
uint8_t *test_idx(int ndim, const int *dim, const uint8_t *values, size_t *size_p);
/** An 8-bit PNG of interleaved samples; channels 1, 3 (red first) or 4. */
void test_png(const char *path, int height, int width, int channels, const uint8_t *pixels);

#endif
