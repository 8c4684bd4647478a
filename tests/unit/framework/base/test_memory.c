/* Blocks: aligned, zeroed, and as long as was asked for, which AddressSanitizer watches. */
#include "tests/test.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "framework/base/memory.h"
#include "tests/data_files.h"

static const size_t sizes[] = { 0, 1, 63, 64, 65, 4097, (8 << 20) - 1, 8 << 20, (8 << 20) + 3 };

static void blocks_are_aligned_and_zeroed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        unsigned char *block = ct_mem_acquire(sizes[i]), any = 0;

        assert_non_null(block);
        assert_int_equal((uintptr_t)block % CT_ALIGN, 0);
        for (size_t k = 0; k < sizes[i]; ++k) any |= block[k];
        assert_int_equal(any, 0);
        ct_mem_release(block);
    }
}

static void none_is_longer_than_memory(void **state)
{
    (void)state;
    assert_null(ct_mem_acquire(SIZE_MAX));
    assert_null(ct_mem_acquire(SIZE_MAX - CT_ALIGN + 2));
}

/* The padding to a cache line hides nothing: the first byte past the end is watched. */
static void the_end_is_watched(void **state)
{
    (void)state;
    if (!CT_SAN_ADDRESS) skip();
    for (size_t i = 1; i < sizeof(sizes) / sizeof(sizes[0]); ++i) {
        char *block = ct_mem_acquire(sizes[i]);

        assert_non_null(block);
        assert_false(ct_is_guarded(block + sizes[i] - 1));
        assert_true(ct_is_guarded(block + sizes[i]));
        ct_mem_release(block);
    }
}

static void put(test_folder *folder, const char *file, const char *text)
{
    test_file_text(test_path(folder, file), text);
}

static void make_folder(test_folder *folder, const char *name)
{
    assert_int_equal(mkdir(test_path(folder, name), 0700), 0);
}

/* The least of the group's, those around it, and the machine's; of both versions of groups. */
static void groups_limit_memory(void **state)
{
    test_folder folder;
    char list[sizeof(folder.name[0])];

    (void)state;
    test_folder_make(&folder);
    strcpy(list, test_path(&folder, "list"));
    assert_true(ct_memory_limit_of(list, folder.path, 8e9) == 8e9); /* none */
    put(&folder, "list", "5:cpu,memory:/job/step\n3:cpuset:/other\n0::/slice\n");
    assert_true(ct_memory_limit_of(list, folder.path, 8e9) == 8e9);
    make_folder(&folder, "slice");
    put(&folder, "slice/memory.max", "max\n");
    assert_true(ct_memory_limit_of(list, folder.path, 8e9) == 8e9);
    put(&folder, "slice/memory.max", "5000000000\n");
    assert_true(ct_memory_limit_of(list, folder.path, 8e9) == 5e9);
    put(&folder, "memory.max", "4000000000\n"); /* of the group around it */
    assert_true(ct_memory_limit_of(list, folder.path, 8e9) == 4e9);
    make_folder(&folder, "memory");
    make_folder(&folder, "memory/job");
    make_folder(&folder, "memory/job/step");
    put(&folder, "memory/job/step/memory.limit_in_bytes", "9223372036854771712\n");
    put(&folder, "memory/job/memory.limit_in_bytes", "3000000000\n");
    assert_true(ct_memory_limit_of(list, folder.path, 8e9) == 3e9);
    put(&folder, "list", "3:cpuset,memoryless:/job/step\nnothing\n");
    assert_true(ct_memory_limit_of(list, folder.path, 8e9) == 8e9);
    test_folder_remove(&folder);
    assert_true(ct_memory_limit() > 0);
}

/* What is left of a limit: pages of files that nobody has used for long can go. */
static void groups_have_memory_left(void **state)
{
    test_folder folder;
    char list[sizeof(folder.name[0])];

    (void)state;
    test_folder_make(&folder);
    strcpy(list, test_path(&folder, "list"));
    put(&folder, "list", "5:cpu,memory:/job\n0::/slice\n");
    assert_true(ct_memory_free_of(list, folder.path, 8e9) == 8e9);
    make_folder(&folder, "slice");
    put(&folder, "slice/memory.max", "5000000000\n");
    put(&folder, "slice/memory.current", "3500000000\n");
    put(&folder, "slice/memory.stat", "anon 7\ninactive_file 500000000\nfile 9\n");
    assert_true(ct_memory_free_of(list, folder.path, 8e9) == 2e9);
    assert_true(ct_memory_free_of(list, folder.path, 1e9) == 1e9);
    make_folder(&folder, "memory");
    make_folder(&folder, "memory/job");
    put(&folder, "memory/job/memory.limit_in_bytes", "2000000000\n");
    put(&folder, "memory/job/memory.usage_in_bytes", "2000100000\n");
    assert_true(ct_memory_free_of(list, folder.path, 8e9) == 0);
    put(&folder, "memory/job/memory.stat", "inactive_file 8\ntotal_inactive_file 1000100000\n");
    assert_true(ct_memory_free_of(list, folder.path, 8e9) == 1e9);
    test_folder_remove(&folder);
    assert_true((ct_memory_free() > 0) && (ct_memory_free() <= ct_memory_limit()));
}

/* Two processes have the same 64 MiB: half of it counts. The other half is off by what pages of the
 * C library's own they share, less than 4 MiB. */
static void shared_memory_counts_by_its_share(void **state)
{
    enum { BYTES = 64 << 20, MIB = 1 << 20 };
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    pid_t child;

    (void)state;
    if (access("/proc/self/smaps_rollup", R_OK) != 0) skip(); /* Linux before 4.14 */
    assert_true(block != MAP_FAILED);
    memset(block, 1, BYTES);
    child = fork();
    if (child == 0) {
        struct rusage used = { 0 };
        int64_t left_out;

        memset(block, 2, BYTES);
        (void)getrusage(RUSAGE_SELF, &used);
        left_out = 1024 * (int64_t)used.ru_maxrss - ct_memory_resident();
        _exit(((left_out > 28 * MIB) && (left_out < 36 * MIB)) ? 0 : 1);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0));
    munmap(block, BYTES);
    assert_true(ct_memory_resident() > 0);
}

/* Pages go, neighbours stay, and what went can be written again. */
static void whole_pages_are_discarded(void **state)
{
    const size_t bytes = 64 << 20, edge = 100;
    unsigned char *block = ct_mem_acquire(bytes);
    int64_t before;
    size_t given;

    (void)state;
    assert_non_null(block);
    memset(block, 7, bytes);
    before = ct_memory_resident_now();
    given = ct_mem_discard(block + edge, bytes - 2 * edge);
    assert_true(given <= bytes - 2 * edge);
    assert_true(given + 2 * (size_t)sysconf(_SC_PAGESIZE) >= bytes - 2 * edge);
    if (before > 0) assert_true(ct_memory_resident_now() < before - (60 << 20));
    for (size_t i = 0; i < edge; i++) {
        assert_int_equal(block[i], 7);
        assert_int_equal(block[bytes - 1 - i], 7);
    }
    assert_int_equal(ct_mem_discard(block + edge, edge), 0);
    assert_int_equal(block[edge], 7);
    memset(block, 3, bytes);
    assert_int_equal(block[bytes / 2], 3);
    ct_mem_release(block);
}

/* A large block is zero, and takes memory page by page; a small one is as any other. */
static void reserved_pages_come_later(void **state)
{
    const size_t bytes = (64 << 20) + 100;
    int64_t before = ct_memory_resident_now(), after;
    unsigned char *block = ct_mem_reserve(bytes), *small = ct_mem_reserve(1000);

    (void)state;
    assert_non_null(block);
    assert_non_null(small);
    after = ct_memory_resident_now();
    if (before > 0) assert_true(after < before + (8 << 20));
    for (size_t i = 0; i < 1000; i++) assert_int_equal(small[i], 0);
    for (size_t i = 0; i < bytes; i += 4096) assert_int_equal(block[i], 0);
    for (size_t i = bytes - 200; i < bytes; i++) assert_int_equal(block[i], 0);
    memset(block, 5, bytes);
    if (before > 0) assert_true(ct_memory_resident_now() > before + (60 << 20));
    ct_mem_release(block);
    ct_mem_release(small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_and_zeroed),
        cmocka_unit_test(none_is_longer_than_memory),
        cmocka_unit_test(the_end_is_watched),
        cmocka_unit_test(groups_limit_memory),
        cmocka_unit_test(groups_have_memory_left),
        cmocka_unit_test(shared_memory_counts_by_its_share),
        cmocka_unit_test(whole_pages_are_discarded),
        cmocka_unit_test(reserved_pages_come_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
