#include "framework/base/cpu_cache.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_INDEX = 10 };

typedef struct cache {
    int level;
    size_t bytes;
    int first; /* of the processors that share it and are this process's */
} cache;

/* The first line of cpus/cpuN/cache/indexM/what, without its end. */
static bool read_line(const char *cpus, int cpu, int index, const char *what, size_t size,
                      char *line)
{
    char path[512];
    FILE *f;
    bool is_there;

    snprintf(path, sizeof(path), "%s/cpu%d/cache/index%d/%s", cpus, cpu, index, what);
    f = fopen(path, "r");
    if (f == NULL) return false;
    is_there = (fgets(line, (int)size, f) != NULL);
    fclose(f);
    if (is_there) line[strcspn(line, "\n")] = '\0';
    return is_there;
}

/* "32768K": the kernel says kibibytes; M and no letter, in case it ever does. */
static size_t bytes_of(const char *text)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);

    if (*end == 'K') return (size_t)n << 10;
    if (*end == 'M') return (size_t)n << 20;
    return (size_t)n;
}

/* Of "0-3,8": the first that is in the set, or -1. */
static int first_of(const char *list, const cpu_set_t *set)
{
    while (*list != '\0') {
        char *end;
        long from = strtol(list, &end, 10), to = from;

        if ((end == list) || (from < 0)) return -1;
        if (*end == '-') to = strtol(end + 1, &end, 10);
        for (long i = from; (i <= to) && (i < CPU_SETSIZE); i++) {
            if (CPU_ISSET(i, set)) return (int)i;
        }
        list = (*end == ',') ? end + 1 : end;
        if ((*end != ',') && (*end != '\0')) return -1;
    }
    return -1;
}

/* The last level that processor cpu has; level 0: nothing is said of it. */
static cache last_of(const char *cpus, int cpu, const cpu_set_t *set)
{
    cache last = { .first = -1 };

    for (int index = 0; index < MAX_INDEX; index++) {
        char level[32], size[32], shared[4096];

        if (!read_line(cpus, cpu, index, "level", sizeof(level), level) ||
            !read_line(cpus, cpu, index, "size", sizeof(size), size) ||
            !read_line(cpus, cpu, index, "shared_cpu_list", sizeof(shared), shared))
            continue;
        if (atoi(level) > last.level)
            last = (cache){ atoi(level), bytes_of(size), first_of(shared, set) };
    }
    return last;
}

size_t ct_cpu_cache_bytes_in(const char *cpus)
{
    cpu_set_t set;
    size_t sum = 0;

    if (sched_getaffinity(0, sizeof(set), &set) != 0) return 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        cache last;

        if (!CPU_ISSET(cpu, &set)) continue;
        last = last_of(cpus, cpu, &set);
        if (last.first == cpu) sum += last.bytes; /* who shares it does not count it again */
    }
    return sum;
}

size_t ct_cpu_cache_bytes(void)
{
    size_t bytes = ct_cpu_cache_bytes_in("/sys/devices/system/cpu");
    long said = 0;

    if (bytes > 0) return bytes;
#ifdef _SC_LEVEL3_CACHE_SIZE
    said = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return (said > 0) ? (size_t)said : 0;
}
