/* What tests of the command use to forge HDF5 files, and to run a command and see how much memory
 * it takes.
 *   forge FILE
 * delete|int|double|text|string|variable|null|floats|chunk|bytes|external|deep|loop|link … forge
 * FILE seal forge within MIB COMMAND…    the command's exit code, or 99 and a line where it took
 * more */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/forge_hdf5.h"

static int within(int argc, char **argv)
{
    long limit = (argc > 1) ? atol(argv[0]) * 1024 : 0;
    struct rusage used;
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        execvp(argv[1], argv + 1);
        _exit(127);
    }
    if ((child < 0) || (wait4(child, &status, 0, &used) != child)) return 98;
    if (used.ru_maxrss > limit) {
        printf("took %ld MiB of memory\n", used.ru_maxrss / 1024);
        return 99;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool floats(const char *file, const char *path, int argc, char **argv, bool filtered)
{
    int64_t dim[32];
    int n = 0;

    for (; (n < argc) && (n < 32); n++) dim[n] = strtoll(argv[n], NULL, 0);
    return forge_floats(file, path, n, dim, filtered);
}

static bool forge(const char *file, const char *verb, const char *path, int argc, char **argv)
{
    const char *first = (argc > 0) ? argv[0] : "", *second = (argc > 1) ? argv[1] : "";
    int64_t n = strtoll(first, NULL, 0);

    if (strcmp(verb, "delete") == 0) return forge_delete(file, path);
    if (strcmp(verb, "int") == 0) return forge_int(file, path, n);
    if (strcmp(verb, "double") == 0) return forge_double(file, path, strtod(first, NULL));
    if (strcmp(verb, "text") == 0) return forge_text(file, path, n, strtoll(second, NULL, 0), 'x');
    if (strcmp(verb, "string") == 0) return forge_words(file, path, first);
    if (strcmp(verb, "variable") == 0) return forge_variable(file, path, first);
    if (strcmp(verb, "null") == 0) return forge_null(file, path);
    if (strcmp(verb, "floats") == 0) return floats(file, path, argc, argv, false);
    if (strcmp(verb, "bytes") == 0) return forge_bytes(file, path, n);
    if (strcmp(verb, "chunk") == 0) return floats(file, path, argc, argv, true);
    if (strcmp(verb, "external") == 0) return forge_external(file, path, n, second);
    if (strcmp(verb, "deep") == 0) return forge_deep(file, path, (int)n);
    if (strcmp(verb, "loop") == 0) return forge_loop(file, path);
    if (strcmp(verb, "link") == 0) return forge_link(file, path, first, second);
    return false;
}

int main(int argc, char **argv)
{
    bool good = false;

    if ((argc > 3) && (strcmp(argv[1], "within") == 0)) return within(argc - 2, argv + 2);
    if ((argc == 3) && (strcmp(argv[2], "seal") == 0))
        good = forge_seal(argv[1]);
    else if ((argc == 3) && (strcmp(argv[2], "create") == 0))
        good = forge_create(argv[1]);
    else if (argc > 3)
        good = forge(argv[1], argv[2], argv[3], argc - 4, argv + 4);
    if (!good) fprintf(stderr, "forge: cannot do that\n");
    return good ? 0 : 1;
}
