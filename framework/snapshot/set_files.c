#include "framework/snapshot/set_files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/snapshot/snapshot.h"

char *ct_set_path(const char *prefix, int64_t iteration, const char *suffix)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s_iter_%" PRId64 ".%s", prefix, iteration, suffix);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

char *ct_path_beside(const char *path, const char *base)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%.*s%s", (int)(ct_path_base(path) - path), path, base);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

char *ct_path_temp(const char *path)
{
    ct_text t = { 0 };

    ct_text_add(&t, "%s" CT_SET_TEMP, path);
    if (t.failed) ct_text_destroy(&t);
    return t.text;
}

ct_status ct_set_directories(const char *prefix)
{
    char *path = strdup(prefix);
    ct_status status = CT_OK;

    if (path == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a file name");
    for (char *p = strchr(path + 1, '/'); (p != NULL) && (status == CT_OK);
         p = strchr(p + 1, '/')) {
        *p = '\0';
        if ((mkdir(path, 0777) != 0) && (errno != EEXIST))
            status = CT_FAIL(CT_ERR_IO, "cannot make the directory %s of snapshot_prefix: %s", path,
                             strerror(errno));
        *p = '/';
    }
    free(path);
    return status;
}

/* Directory of path, "." where it has none; malloc'ed. */
static char *directory_of(const char *path)
{
    return (ct_path_base(path) == path) ? strdup(".") : ct_path_beside(path, ".");
}

/* Is `name` a file of a set of the prefix? Then its iteration, and its suffix as a pointer into
 * name. */
static bool parse_name(const char *prefix, const char *name, int64_t *iteration_p,
                       const char **suffix_p)
{
    const char *base = ct_path_base(prefix);
    size_t n = strlen(base);
    char *end;
    long long iteration;

    if ((strncmp(name, base, n) != 0) || (strncmp(name + n, "_iter_", 6) != 0)) return false;
    name += n + 6;
    if (!isdigit((unsigned char)*name)) return false;
    errno = 0;
    iteration = strtoll(name, &end, 10);
    if ((errno != 0) || (*end != '.')) return false;
    *iteration_p = iteration;
    *suffix_p = end + 1;
    return true;
}

/* "rankR.h5" gives R, anything else -1. */
static int rank_of(const char *suffix)
{
    char *end;
    long rank;

    if ((strncmp(suffix, "rank", 4) != 0) || !isdigit((unsigned char)suffix[4])) return -1;
    rank = strtol(suffix + 4, &end, 10);
    return ((strcmp(end, ".h5") == 0) && (rank < INT32_MAX)) ? (int)rank : -1;
}

static bool is_temp(const char *suffix)
{
    size_t n = strlen(suffix), temp = strlen(CT_SET_TEMP);

    return (n > temp) && (strcmp(suffix + n - temp, CT_SET_TEMP) == 0);
}

/* A part that rank 0 writes, other than the solver state. */
static bool is_shared(const char *suffix)
{
    static const char *const shared[] = { CT_SET_WEIGHTS, CT_SET_AVERAGE, CT_SET_BINARY,
                                          CT_SET_AVERAGE_BINARY, CT_SET_CAFFE };

    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        if (strcmp(suffix, shared[i]) == 0) return true;
    return false;
}

static bool is_part(const char *suffix)
{
    return is_shared(suffix) || (rank_of(suffix) >= 0);
}

static bool is_part_temp(const char *suffix)
{
    char copy[64];
    int n = snprintf(copy, sizeof(copy), "%s", suffix);

    if (!is_temp(suffix) || (n >= (int)sizeof(copy))) return false;
    copy[(size_t)n - strlen(CT_SET_TEMP)] = '\0';
    return is_part(copy) || (strcmp(copy, CT_SET_STATE) == 0);
}

typedef void (*visit_fn)(void *ctx, int64_t iteration, const char *suffix, const char *name);

/* Calls visit for every file of any set of the prefix; 0, or the errno of why not all were seen. A
 * directory that is not there has none. */
static int each_file(const char *prefix, visit_fn visit, void *ctx)
{
    char *directory = directory_of(prefix);
    DIR *d = (directory != NULL) ? opendir(directory) : NULL;
    int reason = (directory == NULL) ? ENOMEM : ((d != NULL) || (errno == ENOENT)) ? 0 : errno;

    for (const char *name; (name = ct_folder_next(d, &reason)) != NULL;) {
        int64_t iteration;
        const char *suffix;

        if (parse_name(prefix, name, &iteration, &suffix)) visit(ctx, iteration, suffix, name);
    }
    if (d != NULL) closedir(d);
    free(directory);
    return reason;
}

/* The same to find what there is: sets that stay unseen would be taken for none. *failed_p: visit
 * sets it where it has no memory. */
static ct_status list_files(const char *prefix, visit_fn visit, void *ctx, const bool *failed_p)
{
    int reason = each_file(prefix, visit, ctx);

    if (*failed_p) reason = ENOMEM;
    if (reason == 0) return CT_OK;
    return CT_FAIL((reason == ENOMEM) ? CT_ERR_NOMEM : CT_ERR_IO,
                   "cannot list the snapshots of %s: %s", prefix, strerror(reason));
}

/* The same to remove some. */
static void remove_files(const char *prefix, visit_fn visit, void *ctx)
{
    int reason = each_file(prefix, visit, ctx);

    if (reason != 0) CT_WARN("cannot look for files of %s to remove: %s", prefix, strerror(reason));
}

typedef struct list_ctx {
    ct_set_entry *list;
    int n, capacity;
    bool failed;
} list_ctx;

static void list_file(void *ctx, int64_t iteration, const char *suffix, const char *name)
{
    bool state = strcmp(suffix, CT_SET_STATE) == 0;
    list_ctx *c = ctx;

    (void)name;
    if (!state && !is_part(suffix) && !is_part_temp(suffix)) return;
    for (int i = 0; i < c->n; i++) {
        if (c->list[i].iteration == iteration) {
            c->list[i].committed = c->list[i].committed || state;
            return;
        }
    }
    if (c->n == c->capacity) {
        int capacity = (c->capacity > 0) ? 2 * c->capacity : 16;
        ct_set_entry *grown = realloc(c->list, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) {
            c->failed = true;
            return;
        }
        c->list = grown;
        c->capacity = capacity;
    }
    c->list[c->n++] = (ct_set_entry){ .iteration = iteration, .committed = state };
}

static int latest_first(const void *a, const void *b)
{
    int64_t x = ((const ct_set_entry *)a)->iteration, y = ((const ct_set_entry *)b)->iteration;

    return (x < y) - (x > y);
}

ct_status ct_set_list(const char *prefix, ct_set_entry **list_p, int *n_p)
{
    list_ctx c = { 0 };
    ct_status status = list_files(prefix, list_file, &c, &c.failed);

    if (status != CT_OK) {
        free(c.list);
        return status;
    }
    if (c.n > 0) qsort(c.list, (size_t)c.n, sizeof(*c.list), latest_first);
    *list_p = c.list;
    *n_p = c.n;
    return CT_OK;
}

typedef struct any_ctx {
    const char *prefix;
    char *path;
    int64_t iteration;
    bool committed, failed;
} any_ctx;

static void take_later(void *ctx, int64_t iteration, const char *suffix, const char *name)
{
    bool state = strcmp(suffix, CT_SET_STATE) == 0;
    any_ctx *c = ctx;

    if (!state && !is_part(suffix)) return;
    if (c->path != NULL) {
        if (c->committed && !state) return;
        if ((c->committed == state) && (iteration <= c->iteration)) return;
    }
    free(c->path);
    c->path = ct_path_beside(c->prefix, name);
    c->failed = c->failed || (c->path == NULL);
    c->iteration = iteration;
    c->committed = state;
}

ct_status ct_snapshot_any(const char *prefix, char **file_p)
{
    any_ctx c = { .prefix = prefix };
    ct_status status = list_files(prefix, take_later, &c, &c.failed);

    if (status != CT_OK) {
        free(c.path);
        return status;
    }
    *file_p = c.path;
    return CT_OK;
}

static void remove_beside(const char *prefix, const char *name)
{
    char *path = ct_path_beside(prefix, name);

    if ((path != NULL) && (unlink(path) != 0) && (errno != ENOENT))
        CT_WARN("cannot remove %s: %s", path, strerror(errno));
    free(path);
}

static void clean_file(void *ctx, int64_t iteration, const char *suffix, const char *name)
{
    (void)iteration;
    if (is_part_temp(suffix)) remove_beside(ctx, name);
}

void ct_set_clean(const char *prefix)
{
    char *copy = strdup(prefix);

    if (copy != NULL) remove_files(prefix, clean_file, copy);
    free(copy);
}

typedef struct prune_ctx {
    const char *prefix;
    int64_t iteration;
    int first_rank; /* rank files from here on; INT32_MAX: none */
    bool weights;
} prune_ctx;

static void prune_file(void *ctx, int64_t iteration, const char *suffix, const char *name)
{
    const prune_ctx *c = ctx;

    if (iteration != c->iteration) return;
    if ((rank_of(suffix) >= c->first_rank) || (c->weights && is_shared(suffix)))
        remove_beside(c->prefix, name);
}

void ct_set_remove(const char *prefix, int64_t iteration)
{
    prune_ctx c = { .prefix = prefix, .iteration = iteration, .weights = true };
    /* without its solverstate a set does not count, so that one goes first */
    char *state = ct_set_path(prefix, iteration, CT_SET_STATE);

    if (state != NULL) remove_beside(prefix, ct_path_base(state));
    free(state);
    remove_files(prefix, prune_file, &c);
}

static bool is_spared(const ct_snapshot_state *state, int64_t iteration)
{
    for (int i = 0; (i < state->best.n) && (i < state->keep_best); i++)
        if (state->best.set[i].iteration == iteration) return true;
    return false;
}

void ct_set_prune(const char *prefix, const ct_snapshot_state *state, int keep, int n_rank_file)
{
    int64_t newest = state->iteration;
    prune_ctx c = { .prefix = prefix, .iteration = newest, .first_rank = n_rank_file };
    ct_set_entry *list = NULL;
    int n = 0, kept = 1;

    remove_files(prefix, prune_file, &c);
    if ((keep <= 0) || (ct_set_list(prefix, &list, &n) != CT_OK)) return;
    for (int i = 0; i < n; i++) {
        if (!list[i].committed || (list[i].iteration >= newest) || (++kept <= keep)) continue;
        if (!is_spared(state, list[i].iteration)) ct_set_remove(prefix, list[i].iteration);
    }
    free(list);
}

ct_status ct_file_commit(const char *temp, const char *path)
{
    char *directory = directory_of(path);
    int fd = -1, reason = 0;

    if ((directory == NULL) || (rename(temp, path) != 0)) {
        reason = (directory == NULL) ? ENOMEM : errno;
        (void)unlink(temp);
    } else {
        fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* some file systems cannot sync a directory; there the rename is durable or nothing is */
        if ((fd < 0) || ((fsync(fd) != 0) && (errno != EINVAL) && (errno != ENOTSUP)))
            reason = errno;
    }
    if (fd >= 0) close(fd);
    free(directory);
    if (reason != 0) return CT_FAIL(CT_ERR_IO, "cannot make %s: %s", path, strerror(reason));
    return CT_OK;
}
