/* What the last caches hold, from folders as the kernel has them. */
#include "framework/base/cpu_cache.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/test.h"

#define NEW_FOLDER "/tmp/cortado-cpus.XXXXXX"

static void write_line(const char *folder, int cpu, int index, const char *what, const char *line)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof(path), "%s/cpu%d/cache/index%d/%s", folder, cpu, index, what);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%s\n", line);
    fclose(f);
}

/* A level of processor cpu, shared by all of `list`. */
static void make_level(const char *folder, int cpu, int index, const char *level, const char *size,
                       const char *list)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/cpu%d", folder, cpu);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/cpu%d/cache", folder, cpu);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/cpu%d/cache/index%d", folder, cpu, index);
    mkdir(path, 0700);
    write_line(folder, cpu, index, "level", level);
    write_line(folder, cpu, index, "size", size);
    write_line(folder, cpu, index, "shared_cpu_list", list);
}

/* Pairs of processors share 3 MiB; who has both counts them once. A level nearer counts nothing,
 * and a processor that is not this process's has no part. */
static void test_shared_caches(void **state)
{
    cpu_set_t set;
    size_t pairs = 0;
    char folder[] = NEW_FOLDER, command[64];

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    assert_non_null(mkdtemp(folder));
    assert_int_equal(ct_cpu_cache_bytes_in(folder), 0); /* nothing is said */
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        char one[16], two[64];
        int first = cpu / 2 * 2;

        if (!CPU_ISSET(cpu, &set) && (cpu > 7)) continue;
        snprintf(one, sizeof(one), "%d", cpu);
        snprintf(two, sizeof(two), "%d-%d,%d", first, first + 1, CPU_SETSIZE + 5);
        make_level(folder, cpu, 0, "1", "64K", one);
        make_level(folder, cpu, 3, "3", "3072K", two);
        make_level(folder, cpu, 1, "2", "1M", one);
        pairs += CPU_ISSET(cpu, &set) && ((cpu == first) || !CPU_ISSET(first, &set));
    }
    assert_true(pairs > 0);
    assert_int_equal(ct_cpu_cache_bytes_in(folder), pairs * 3 * 1024 * 1024);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Lists that are none: the cache is nobody's, and nothing is read beyond their end. */
static void test_broken_lists(void **state)
{
    static const char *const list[] = { "", "x", "1-", "0-x", ",", "-1" };
    char folder[] = NEW_FOLDER, command[64];

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        for (int cpu = 0; cpu < 8; cpu++) make_level(folder, cpu, 3, "3", "1024K", list[i]);
        assert_true(ct_cpu_cache_bytes_in(folder) <= 8 * 1024 * 1024);
    }
    snprintf(command, sizeof(command), "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* This machine's: something, and no more than any has. */
static void test_this_machine(void **state)
{
    (void)state;
    assert_true(ct_cpu_cache_bytes() <= (size_t)1 << 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_caches),
        cmocka_unit_test(test_broken_lists),
        cmocka_unit_test(test_this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
