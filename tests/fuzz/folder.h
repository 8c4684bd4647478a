/** @file folder.h  A folder in memory for readers that want paths; it goes when the process ends.
 */
#ifndef CT_FUZZ_FOLDER_H
#define CT_FUZZ_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct fuzz_folder {
    char path[64];
} fuzz_folder;

/* One a process: nobody but atexit() reads it later. */
static fuzz_folder fuzz_made;

static int fuzz_remove(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st;
    (void)kind;
    (void)place;
    (void)remove(path);
    return 0;
}

static inline void fuzz_empty(const char *path)
{
    (void)nftw(path, fuzz_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static void fuzz_forget(void)
{
    fuzz_empty(fuzz_made.path);
}

/** Its path: of TMPDIR where that is set, else of /dev/shm or /tmp. */
static inline const char *fuzz_folder_path(void)
{
    const char *above = getenv("TMPDIR");

    if (fuzz_made.path[0] != '\0') return fuzz_made.path;
    if (above == NULL) above = (access("/dev/shm", W_OK) == 0) ? "/dev/shm" : "/tmp";
    if (snprintf(fuzz_made.path, sizeof(fuzz_made.path), "%s/fuzz.XXXXXX", above) >=
        (int)sizeof(fuzz_made.path))
        abort();
    if (mkdtemp(fuzz_made.path) == NULL) abort();
    atexit(fuzz_forget);
    return fuzz_made.path;
}

static inline void fuzz_write(const char *path, const void *data, size_t size)
{
    FILE *f = fopen(path, "wb");

    if ((f == NULL) || (fwrite(data, 1, size, f) != size) || (fclose(f) != 0)) abort();
}

#endif
