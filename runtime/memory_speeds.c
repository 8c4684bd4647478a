/* How fast a rank computes and its files move, for AUTO of memory. */
#include "runtime/memory_plan.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/clock.h"
#include "framework/base/log.h"
#include "framework/base/scratch_file.h"
#include "runtime/machine_limit.h"

enum { BLOCK = 4 << 20, BLOCKS = 8 };

/* Bytes a second of all blocks one way; 0: one of them failed. */
static double move_blocks(const ct_scratch_file *f, void *block, bool write)
{
    double start = ct_clock_s();

    for (int i = 0; i < BLOCKS; i++) {
        off_t at = (off_t)i * BLOCK;
        ssize_t n = write ? pwrite(f->fd, block, BLOCK, at) : pread(f->fd, block, BLOCK, at);

        if (n != BLOCK) return 0;
    }
    if (write) ct_scratch_forget(f, 0, (int64_t)BLOCK * BLOCKS);
    return (double)BLOCK * BLOCKS / fmax(ct_clock_s() - start, 1e-9);
}

static void measure_files(const char *folder, void *block, ct_memory_speeds *v)
{
    ct_scratch_file f;
    double written = 0, read = 0;
    bool in_memory;

    /* who takes files is told what is wrong with the folder */
    if ((access(folder, W_OK | X_OK) != 0) || (ct_scratch_check(folder, &in_memory) != CT_OK))
        return;
    if (ct_scratch_open(folder, (int64_t)BLOCK * BLOCKS, &f) != CT_OK) return;
    written = move_blocks(&f, block, true);
    if (written > 0) read = move_blocks(&f, block, false);
    ct_scratch_close(&f);
    if (!(read > 0)) return;
    v->file_write = written;
    v->file_read = read;
}

ct_status ct_memory_speeds_measure(const char *folder, ct_memory_speeds *v)
{
    ct_machine_limit limit = { .n_thread = omp_get_max_threads() };
    void *block = NULL;

    *v = ct_memory_speeds_assumed;
    ct_machine_limit_again(&limit);
    v->compute = (ct_net_limits){ .flop = limit.flop, .bytes = limit.flop / 10 };
    if (posix_memalign(&block, CT_SCRATCH_ALIGN, BLOCK) != 0)
        return CT_FAIL(CT_ERR_NOMEM, "no memory to measure files");
    memset(block, 1, BLOCK);
    measure_files(folder, block, v);
    free(block);
    return CT_OK;
}
