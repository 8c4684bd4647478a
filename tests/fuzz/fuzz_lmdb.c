/* LMDB files and indices: any bytes end in places inside the file, or in a message. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "framework/data/lmdb_file.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz.h"

static ct_status look(void *ctx, const ct_lmdb_entry *e)
{
    const ct_lmdb_file *f = ctx;
    unsigned sum = 0;

    if ((e->offset < 0) || (e->size < 0) || (e->size > f->size - e->offset)) abort();
    for (size_t i = 0; i < e->key_size; i++) sum += (unsigned char)e->key[i];
    return (sum == 1u << 31) ? CT_STOPPED : CT_OK;
}

static int64_t one_file(const void *ctx, int64_t i)
{
    (void)ctx;
    (void)i;
    return 0;
}

/* What is good can be kept, and is the same when it is loaded. */
static void save(const ct_record_index *x)
{
    ct_record_index again;
    int64_t bytes = 0;
    char path[128];

    snprintf(path, sizeof(path), "%s/index", fuzz_folder_path());
    if (!ct_record_index_save(x, path)) abort();
    if (ct_record_index_create(&again, x->count, x->n_file) != CT_OK) abort();
    again.file[0] = x->file[0];
    if (ct_record_index_load(&again, path, one_file, NULL, &bytes) != CT_INDEX_GOOD) abort();
    if (memcmp(again.offset, x->offset, (size_t)x->count * sizeof(*x->offset)) != 0) abort();
    ct_record_index_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("fuzz", 0);
    ct_record_index x;
    ct_lmdb_file f;
    int64_t bytes = 0;
    char path[64];

    ct_log_set_sink(fuzz_drop, NULL);
    if ((fd < 0) || (write(fd, data, size) != (ssize_t)size)) abort();
    if (ct_lmdb_look(fd, "file", "fuzz", &f) == CT_OK) (void)ct_lmdb_walk(&f, look, &f);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (ct_record_index_create(&x, 1 + (int64_t)(size % 5), 1) == CT_OK) {
        x.file[0] = (ct_file_stamp){ 1000, 5, 6, 3 };
        if (ct_record_index_load(&x, path, one_file, NULL, &bytes) == CT_INDEX_GOOD) {
            for (int64_t i = 0; i < x.count; i++)
                if ((x.offset[i] < 0) || (x.offset[i] + x.size[i] > 1000)) abort();
            save(&x);
        }
        ct_record_index_release(&x);
    }
    close(fd);
    return 0;
}
