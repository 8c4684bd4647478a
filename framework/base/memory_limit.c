/* How much memory there is for the processes of a job on this machine: the machine's, or what a
 * control group leaves of it (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of
 * Linux). A scheduler limits jobs so, and so does whoever runs containers. And what of it a process
 * has taken. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/memory.h"

/* The number in a file, where it is one below `most`; "max" is none. */
static double read_limit(const char *file, double most)
{
    FILE *f = fopen(file, "r");
    double v;

    if (f == NULL) return most;
    if ((fscanf(f, "%lf", &v) == 1) && (v > 0) && (v < most)) most = v;
    fclose(f);
    return most;
}

/* Of a group and of those around it. path begins with "/". */
static double limit_of(const char *mount, const char *controller, const char *path,
                       const char *name, double most)
{
    char at[4096], file[8400];

    snprintf(at, sizeof(at), "%s", path);
    for (;;) {
        char *slash = strrchr(at, '/');

        snprintf(file, sizeof(file), "%s%s%s/%s", mount, controller, at, name);
        most = read_limit(file, most);
        if (slash == NULL) return most;
        *slash = '\0';
    }
}

/* Whether "memory" is among the controllers of a line "4:memory,cpu:/path". */
static bool has_memory(const char *list)
{
    size_t n = strlen("memory");

    for (const char *at = list; (at = strstr(at, "memory")) != NULL; at += n) {
        if (((at == list) || (at[-1] == ',')) && ((at[n] == '\0') || (at[n] == ','))) return true;
    }
    return false;
}

double ct_memory_limit_of(const char *groups, const char *mount, double machine)
{
    FILE *f = fopen(groups, "r");
    char line[4096];

    while ((f != NULL) && (fgets(line, sizeof(line), f) != NULL)) {
        char *list = strchr(line, ':'), *path = (list != NULL) ? strchr(list + 1, ':') : NULL;

        if (path == NULL) continue;
        list++;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (list[0] == '\0')
            machine = limit_of(mount, "", path, "memory.max", machine);
        else if (has_memory(list))
            machine = limit_of(mount, "/memory", path, "memory.limit_in_bytes", machine);
    }
    if (f != NULL) fclose(f);
    return machine;
}

double ct_memory_limit(void)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    return ct_memory_limit_of("/proc/self/cgroup", "/sys/fs/cgroup", machine);
}

/* Kilobytes behind `name` in a file of lines "NAME: N kB"; 0: there is no such line. */
static int64_t read_line(const char *file, const char *name)
{
    FILE *f = fopen(file, "r");
    size_t length = strlen(name);
    int64_t kb = 0;
    char line[256];

    if (f == NULL) return 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if ((strncmp(line, name, length) == 0) && (line[length] == ':'))
            kb = strtoll(line + length + 1, NULL, 10);
    fclose(f);
    return (kb > 0) ? kb : 0;
}

int64_t ct_memory_resident(void)
{
    struct rusage used = { 0 };
    int64_t shared = read_line("/proc/self/status", "RssShmem");
    int64_t share = read_line("/proc/self/smaps_rollup", "Pss_Shmem");

    (void)getrusage(RUSAGE_SELF, &used);
    /* share 0: Linux before 4.14 does not tell */
    return 1024 *
           ((int64_t)used.ru_maxrss - (((share > 0) && (share < shared)) ? shared - share : 0));
}
