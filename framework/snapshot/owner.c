#include "framework/snapshot/owner.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/log.h"
#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/base/thread.h"
#include "framework/snapshot/set_files.h"

struct ct_owner {
    char path[PATH_MAX], mine[PATH_MAX]; /* PREFIX.owner; the name that is linked to it */
    int fd;                              /* of the file, under both names               */
    double touch_s, limit_s;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    bool runs, stop;
};

/* What one look at PREFIX.owner finds. */
typedef struct finding {
    ct_owner_id id;
    struct stat file;
} finding;

/* Handlers have no other way to know what this process owns, or is about to. */
static const char *volatile owned;
static volatile int owned_fd;

static void tell_handlers(const char *path, int fd)
{
    owned = NULL; /* they never see a path with another file's fd */
    owned_fd = fd;
    owned = path;
}

void ct_owner_clean(void)
{
    const char *path = owned;
    struct stat ours, there;
    int before = errno;

    owned = NULL;
    /* another may have taken it for gone and put its own there */
    if ((path != NULL) && (fstat(owned_fd, &ours) == 0) && (stat(path, &there) == 0) &&
        (ours.st_ino == there.st_ino) && (ours.st_dev == there.st_dev))
        (void)unlink(path);
    errno = before;
}

/* ---- who is who */

static void read_line(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");

    text[0] = '\0';
    if (f == NULL) return;
    if (fgets(text, (int)size, f) == NULL) text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    (void)fclose(f);
}

/* The start of a process in ticks since the boot; 0: it does not run, or cannot be seen. */
static unsigned long long start_of(long process)
{
    char path[64], text[1024], *at;
    unsigned long long start = 0;
    char run_state = 'X';

    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", process);
    read_line(path, text, sizeof(text));
    at = strrchr(text, ')'); /* the name before it may hold anything */
    if (at == NULL) return 0;
    if (sscanf(at + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &run_state, &start) != 2)
        return 0;
    return ((run_state == 'Z') || (run_state == 'X')) ? 0 : start;
}

void ct_owner_self(ct_owner_id *id_p)
{
    const char *job = getenv("SLURM_JOB_ID"), *restart = getenv("SLURM_RESTART_COUNT");
    char boot[48], names[48];
    time_t now = time(NULL);
    struct tm tm;
    ssize_t n = readlink("/proc/self/ns/pid", names, sizeof(names) - 1);

    memset(id_p, 0, sizeof(*id_p));
    names[(n > 0) ? n : 0] = '\0';
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    if (gethostname(id_p->host, sizeof(id_p->host) - 1) != 0) id_p->host[0] = '?';
    (void)snprintf(id_p->space, sizeof(id_p->space), "%s/%s", boot, names);
    id_p->process = (long)getpid();
    id_p->start = start_of(id_p->process);
    (void)snprintf(id_p->job, sizeof(id_p->job), "%s", (job != NULL) ? job : "");
    id_p->restart = (restart != NULL) ? atoi(restart) : 0;
    if (gmtime_r(&now, &tm) != NULL)
        (void)strftime(id_p->since, sizeof(id_p->since), "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static ct_status write_id(int fd, const ct_owner_id *id, const char *path)
{
    ct_text t = { 0 };
    ct_status status = CT_OK;

    ct_text_add(&t, "host %s\nspace %s\nprocess %ld\nstart %llu\njob %s\nrestart %d\nsince %s\n",
                id->host, id->space, id->process, id->start, id->job, id->restart, id->since);
    if (t.failed) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for the owner of snapshots");
    } else if ((write(fd, t.text, t.length) != (ssize_t)t.length) || (fsync(fd) != 0)) {
        status = CT_FAIL(CT_ERR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    ct_text_destroy(&t);
    return status;
}

/* Fields that a broken file lacks stay empty: it says nothing, its age counts. */
static void parse_id(char *text, ct_owner_id *id)
{
    char *rest = NULL;

    memset(id, 0, sizeof(*id));
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        (void)sscanf(line, "host %63s", id->host);
        (void)sscanf(line, "space %95s", id->space);
        (void)sscanf(line, "process %ld", &id->process);
        (void)sscanf(line, "start %llu", &id->start);
        (void)sscanf(line, "job %31s", id->job);
        (void)sscanf(line, "restart %d", &id->restart);
        (void)sscanf(line, "since %31s", id->since);
    }
}

/* Opened anew for each look: NFS then asks the server. */
static bool look(const char *path, finding *f)
{
    char text[1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    ssize_t n;
    bool good;

    if (fd < 0) return false;
    n = read(fd, text, sizeof(text) - 1);
    text[(n > 0) ? n : 0] = '\0';
    good = fstat(fd, &f->file) == 0;
    close(fd);
    parse_id(text, &f->id);
    return good;
}

static double seconds_of(struct timespec t)
{
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef enum verdict { OWNER_RUNS, OWNER_GONE, OWNER_UNKNOWN } verdict;

static verdict judge(const ct_owner_id *me, const ct_owner_id *it)
{
    if ((me->job[0] != '\0') && (strcmp(me->job, it->job) == 0) && (it->restart < me->restart))
        return OWNER_GONE;
    if (strcmp(me->host, it->host) != 0) return OWNER_UNKNOWN;
    if (strcmp(me->space, it->space) != 0) {
        /* started again since then; a container beside this one has the same boot */
        size_t n = strcspn(me->space, "/");

        return ((n > 0) && (strncmp(me->space, it->space, n + 1) != 0)) ? OWNER_GONE
                                                                        : OWNER_UNKNOWN;
    }
    if (it->start != 0) return (start_of(it->process) == it->start) ? OWNER_RUNS : OWNER_GONE;
    return ((kill((pid_t)it->process, 0) == 0) || (errno == EPERM)) ? OWNER_RUNS : OWNER_GONE;
}

static ct_status refuse(const char *prefix, const ct_owner *o, const ct_owner_id *it)
{
    char job[64] = "";

    if (it->job[0] != '\0') (void)snprintf(job, sizeof(job), ", SLURM job %s", it->job);
    return CT_FAIL(CT_ERR_CONFIG,
                   "snapshot_prefix \"%s\" belongs to another training that runs: host %s, process "
                   "%ld%s, since %s (%s); give this one a prefix of its own",
                   prefix, it->host, it->process, job, it->since, o->path);
}

/* ---- taking */

/* On a file system without hard links. For a moment the file is there and says nothing. */
static bool try_open(ct_owner *o, const ct_owner_id *me)
{
    int fd = open(o->path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

    if (fd < 0) return false;
    tell_handlers(o->path, fd);
    (void)write_id(fd, me, o->path);
    close(o->fd);
    o->fd = fd;
    return true;
}

/* PREFIX.owner is our file now? Over NFS an answer may be lost, so the number of links counts. */
static bool try_link(ct_owner *o, const ct_owner_id *me)
{
    struct stat file;

    if (link(o->mine, o->path) == 0) return true;
    if ((errno == EPERM) || (errno == ENOTSUP) || (errno == ENOSYS)) return try_open(o, me);
    if (errno != EEXIST) return false;
    return (fstat(o->fd, &file) == 0) && (file.st_nlink == 2);
}

/* Removes the file of an owner that is gone, unless it is another file by now or was touched. Who
 * removes holds the file's lock, so no newcomer removes what another has put in its place. */
static void remove_gone(const ct_owner *o, const finding *gone)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    const struct timespec nap = { 0, 20 * 1000 * 1000 };
    int fd = open(o->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat file;

    if ((fd >= 0) && (fcntl(fd, F_SETLK, &all) != 0) && ((errno == EAGAIN) || (errno == EACCES))) {
        close(fd); /* another newcomer is at it */
        (void)nanosleep(&nap, NULL);
        return;
    }
    /* with the lock; where the file system has none, without */
    if ((stat(o->path, &file) == 0) && (file.st_ino == gone->file.st_ino) &&
        (seconds_of(file.st_mtim) == seconds_of(gone->file.st_mtim)) && (unlink(o->path) != 0) &&
        (errno != ENOENT)) {
        CT_WARN("cannot remove %s: %s", o->path, strerror(errno));
        (void)nanosleep(&nap, NULL);
    }
    if (fd >= 0) close(fd);
}

/* Waits while nobody can tell whether the owner runs. CT_ERR_CONFIG: it runs. */
static ct_status wait_for_sign(ct_owner *o, const char *prefix, const ct_owner_options *options,
                               const finding *first)
{
    const struct timespec nap = { 0, 200 * 1000 * 1000 };
    bool told = false;

    for (;;) {
        struct stat mine;
        finding now;

        if (!look(o->path, &now) || (now.file.st_ino != first->file.st_ino)) return CT_OK;
        if (seconds_of(now.file.st_mtim) != seconds_of(first->file.st_mtim))
            return refuse(prefix, o, &now.id);
        (void)futimens(o->fd, NULL); /* the server's time of day */
        if ((fstat(o->fd, &mine) == 0) &&
            (seconds_of(mine.st_mtim) - seconds_of(now.file.st_mtim) >= o->limit_s)) {
            remove_gone(o, &now);
            return CT_OK;
        }
        if (!told)
            CT_INFO("snapshot_prefix \"%s\" belonged to host %s, process %ld: waiting up to %.0f s "
                    "for a sign of it",
                    prefix, now.id.host, now.id.process, o->limit_s);
        told = true;
        if (options->waiting != NULL)
            options->waiting(options->ctx, "the start: the owner of snapshot_prefix");
        (void)nanosleep(&nap, NULL);
    }
}

static ct_status take(ct_owner *o, const char *prefix, const ct_owner_options *options,
                      const ct_owner_id *me)
{
    while (!try_link(o, me)) {
        int why = errno;
        finding it;

        if (why != EEXIST) return CT_FAIL(CT_ERR_IO, "cannot make %s: %s", o->path, strerror(why));
        if (!look(o->path, &it)) {
            if (errno == ENOENT) continue; /* given back meanwhile */
            return CT_FAIL(CT_ERR_IO, "cannot read %s: %s", o->path, strerror(errno));
        }
        switch (judge(me, &it.id)) {
        case OWNER_RUNS:
            return refuse(prefix, o, &it.id);
        case OWNER_GONE:
            CT_INFO("snapshot_prefix \"%s\": its owner on host %s, process %ld, is gone", prefix,
                    it.id.host, it.id.process);
            remove_gone(o, &it);
            break;
        case OWNER_UNKNOWN:
            CT_TRY(wait_for_sign(o, prefix, options, &it));
            break;
        }
    }
    return CT_OK;
}

/* ---- what killed processes left */

/* ".HOST.SPACE." in front of the number of a process: where that number means something. The boot
 * is left out: after one no process has both its number and its start. */
static void add_place(ct_text *name, const ct_owner_id *me)
{
    const char *space = strchr(me->space, '[');
    size_t n;

    space = (space != NULL) ? space + 1 : "";
    n = strspn(space, "0123456789");
    ct_text_add(name, ".%s.%.*s.", me->host, (int)n, space);
}

static void add_temporary(ct_text *name, const char *prefix, const char *what,
                          const ct_owner_id *me)
{
    ct_text_add(name, "%s.%s", prefix, what);
    add_place(name, me);
    ct_text_add(name, "%ld.%llu", me->process, me->start);
}

void ct_owner_temporary(ct_text *name, const char *prefix, const char *what)
{
    ct_owner_id me;

    ct_owner_self(&me);
    add_temporary(name, prefix, what, &me);
}

/* "PROCESS.START" of a process that no longer runs. */
static bool is_of_gone(const char *text)
{
    unsigned long long start;
    char *end;
    long process;

    if (!isdigit((unsigned char)text[0])) return false;
    process = strtol(text, &end, 10);
    if ((end[0] != '.') || !isdigit((unsigned char)end[1])) return false;
    start = strtoull(end + 1, &end, 10);
    return (end[0] == '\0') && (start != 0) && (start_of(process) != start);
}

/* Those of one kind, of this host and name space. */
static void remove_left(const char *prefix, const char *what, const ct_owner_id *me)
{
    const char *slash = strrchr(prefix, '/');
    char *folder = ct_path_beside(prefix, ".");
    DIR *d = (folder != NULL) ? opendir(folder) : NULL;
    ct_text begin = { 0 };

    ct_text_add(&begin, "%s.%s", (slash != NULL) ? slash + 1 : prefix, what);
    add_place(&begin, me);
    for (const char *name; !begin.failed && ((name = ct_folder_next(d, NULL)) != NULL);) {
        char *path;

        if ((strncmp(name, begin.text, begin.length) != 0) || !is_of_gone(name + begin.length))
            continue;
        path = ct_path_beside(prefix, name);
        if (path != NULL) (void)unlink(path);
        free(path);
    }
    if (d != NULL) closedir(d);
    free(folder);
    ct_text_destroy(&begin);
}

/* ---- while it is ours */

static void *keep(void *arg)
{
    ct_owner *o = arg;

    pthread_mutex_lock(&o->lock);
    while (!o->stop) {
        struct stat file = { .st_nlink = 0 };

        if (ct_cond_wait_for(&o->change, &o->lock, o->touch_s)) continue;
        pthread_mutex_unlock(&o->lock); /* the file server may take its time */
        (void)futimens(o->fd, NULL);
        if ((fstat(o->fd, &file) == 0) && (file.st_nlink == 0)) {
            CT_WARN("%s is gone: another training may write snapshots of the same names", o->path);
            pthread_mutex_lock(&o->lock);
            break;
        }
        pthread_mutex_lock(&o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

static ct_status create_mine(ct_owner *o, const char *prefix, const ct_owner_id *me)
{
    int n = snprintf(o->path, sizeof(o->path), "%s.owner", prefix);
    ct_text mine = { 0 };
    bool fits;

    add_temporary(&mine, prefix, "owner", me);
    fits = (n > 0) && !mine.failed && (mine.length < sizeof(o->mine));
    if (fits) memcpy(o->mine, mine.text, mine.length + 1);
    ct_text_destroy(&mine);
    if (!fits)
        return CT_FAIL(CT_ERR_CONFIG, "snapshot_prefix has %zu characters: too many",
                       strlen(prefix));
    (void)unlink(o->mine); /* of a process of this number that was killed here */
    ct_ending_file(o->mine);
    o->fd = open(o->mine, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (o->fd < 0)
        return CT_FAIL(CT_ERR_IO, "cannot write snapshots to snapshot_prefix \"%s\": %s", prefix,
                       strerror(errno));
    tell_handlers(o->path, o->fd);
    return write_id(o->fd, me, o->mine);
}

ct_status ct_owner_take(const char *prefix, const ct_owner_options *options, ct_owner **owner_p)
{
    ct_owner *o = calloc(1, sizeof(*o));
    ct_owner_id self;
    ct_status status;

    if (o == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the owner of snapshots");
    ct_owner_self(&self);
    if (options->id != NULL) self = *options->id;
    o->touch_s = (options->touch_s > 0.0) ? options->touch_s : 3.0;
    o->limit_s = (options->limit_s > 0.0) ? options->limit_s : 60.0;
    o->fd = -1;
    status = create_mine(o, prefix, &self);
    if (status == CT_OK) status = take(o, prefix, options, &self);
    if (o->fd >= 0) (void)unlink(o->mine);
    ct_ending_file(NULL);
    if (status == CT_OK) {
        remove_left(prefix, "owner", &self);
        remove_left(prefix, "probe", &self);
        (void)pthread_mutex_init(&o->lock, NULL);
        (void)ct_cond_init(&o->change);
        o->runs = ct_thread_start(keep, o, &o->thread) == 0;
        if (!o->runs) {
            ct_owner_release(o);
            return CT_FAIL(CT_ERR_NOMEM, "no thread for the owner of snapshots");
        }
        *owner_p = o;
        return CT_OK;
    }
    tell_handlers(NULL, -1);
    if (o->fd >= 0) close(o->fd);
    free(o);
    return status;
}

void ct_owner_release(ct_owner *o)
{
    struct stat file, there;

    if (o == NULL) return;
    if (o->runs) {
        pthread_mutex_lock(&o->lock);
        o->stop = true;
        pthread_cond_signal(&o->change);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
    }
    tell_handlers(NULL, -1);
    /* only what is ours: it may have been taken for gone */
    if ((fstat(o->fd, &file) == 0) && (stat(o->path, &there) == 0) &&
        (file.st_ino == there.st_ino) && (file.st_dev == there.st_dev))
        (void)unlink(o->path);
    close(o->fd);
    (void)pthread_cond_destroy(&o->change);
    (void)pthread_mutex_destroy(&o->lock);
    free(o);
}
