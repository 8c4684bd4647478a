/* How much memory there is for the processes of a job on this machine: the machine's, or what a
 * control group leaves of it (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of
 * Linux). A scheduler limits jobs so, and so does whoever runs containers. What of it a process has
 * taken. And how many processes those groups allow. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "framework/base/memory.h"

/* The files of a control group. */
typedef struct group_files {
    const char *controller; /* folder below the mount */
    const char *limit, *used, *cache;
} group_files;

typedef struct controller {
    const char *name;
    group_files version_1, version_2;
} controller;

static const controller memory = { "memory",
                                   { "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                     "total_inactive_file" },
                                   { "", "memory.max", "memory.current", "inactive_file" } };
static const controller processes = { "pids",
                                      { "/pids", "pids.max", "pids.current", "" },
                                      { "", "pids.max", "pids.current", "" } };

static int64_t read_line(const char *file, const char *name);

/* The number in a file; `without` where there is none, such as "max". */
static double read_number(const char *file, double without)
{
    FILE *f = fopen(file, "r");
    double v;

    if (f == NULL) return without;
    if ((fscanf(f, "%lf", &v) != 1) || (v <= 0)) v = without;
    fclose(f);
    return v;
}

/* A limit of the group at `folder`, or with `left` what of it is not taken; at most `most`. */
static double limit_at(const char *folder, const group_files *files, bool left, double most)
{
    char file[8400];
    double limit;

    snprintf(file, sizeof(file), "%s/%s", folder, files->limit);
    limit = read_number(file, 1e300);
    if (left && (limit < 1e300)) {
        snprintf(file, sizeof(file), "%s/%s", folder, files->used);
        limit -= read_number(file, 0);
        snprintf(file, sizeof(file), "%s/memory.stat", folder);
        limit += (double)read_line(file, files->cache);
        if (limit < 0) limit = 0;
    }
    return (limit < 1e300) && (limit < most) ? limit : most;
}

/* Of a group and of those around it. path begins with "/". */
static double limit_of(const char *mount, const char *path, const group_files *files, bool left,
                       double most)
{
    char at[4096], folder[8300];

    snprintf(at, sizeof(at), "%s", path);
    for (;;) {
        char *slash = strrchr(at, '/');

        snprintf(folder, sizeof(folder), "%s%s%s", mount, files->controller, at);
        most = limit_at(folder, files, left, most);
        if (slash == NULL) return most;
        *slash = '\0';
    }
}

/* Whether a name is among the controllers of a line "4:memory,cpu:/path". */
static bool has(const char *list, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n) {
        if (((at == list) || (at[-1] == ',')) && ((at[n] == '\0') || (at[n] == ','))) return true;
    }
    return false;
}

static double of_groups(const char *groups, const char *mount, const controller *c, bool left,
                        double machine)
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
            machine = limit_of(mount, path, &c->version_2, left, machine);
        else if (has(list, c->name))
            machine = limit_of(mount, path, &c->version_1, left, machine);
    }
    if (f != NULL) fclose(f);
    return machine;
}

double ct_memory_limit_of(const char *groups, const char *mount, double machine)
{
    return of_groups(groups, mount, &memory, false, machine);
}

double ct_memory_free_of(const char *groups, const char *mount, double machine)
{
    return of_groups(groups, mount, &memory, true, machine);
}

double ct_process_limit(void)
{
    return of_groups("/proc/self/cgroup", "/sys/fs/cgroup", &processes, false, INFINITY);
}

double ct_memory_limit(void)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);

    return ct_memory_limit_of("/proc/self/cgroup", "/sys/fs/cgroup", machine);
}

double ct_memory_free(void)
{
    double machine = 1024.0 * (double)read_line("/proc/meminfo", "MemAvailable");

    return ct_memory_free_of("/proc/self/cgroup", "/sys/fs/cgroup", machine);
}

/* The number behind `name` in a file of lines "NAME: N kB" or "NAME N"; 0: there is no such line.
 */
static int64_t read_line(const char *file, const char *name)
{
    FILE *f = fopen(file, "r");
    size_t length = strlen(name);
    int64_t n = 0;
    char line[256];

    if (f == NULL) return 0;
    while (fgets(line, sizeof(line), f) != NULL)
        if ((strncmp(line, name, length) == 0) && (strchr(": ", line[length]) != NULL))
            n = strtoll(line + length + 1, NULL, 10);
    fclose(f);
    return (n > 0) ? n : 0;
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

int64_t ct_memory_resident_now(void)
{
    return 1024 * read_line("/proc/self/status", "VmRSS");
}

/* MiB in the environment, as bytes; 0: not there. */
static double env_mib(const char *name)
{
    const char *text = getenv(name);
    double mib = (text != NULL) ? strtod(text, NULL) : 0;

    return (isfinite(mib) && (mib > 0)) ? ldexp(mib, 20) : 0;
}

double ct_memory_limit_each(int n, const char **who_p)
{
    double machine = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double least = ct_memory_limit(), slurm = env_mib("SLURM_MEM_PER_NODE");
    const char *cpus = getenv("SLURM_CPUS_ON_NODE");

    if ((slurm == 0) && (cpus != NULL)) slurm = env_mib("SLURM_MEM_PER_CPU") * strtod(cpus, NULL);
    *who_p = (least < machine) ? "the control group" : "the machine";
    if ((slurm > 0) && (slurm < least)) {
        least = slurm;
        *who_p = "SLURM";
    }
    return least / n;
}
