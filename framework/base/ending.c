#include "framework/base/ending.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *volatile file_to_remove;

void ct_plain_add(ct_plain_text *t, const char *part)
{
    for (; (*part != '\0') && (t->n + 1 < t->size); part++) t->text[t->n++] = *part;
    t->text[t->n] = '\0';
}

void ct_plain_number(ct_plain_text *t, unsigned long long number, unsigned base)
{
    char digit[24], *d = digit + sizeof(digit);

    *--d = '\0';
    do {
        *--d = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    ct_plain_add(t, d);
}

static long now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* fd opened again without waiting. Another description of the same pipe or terminal, so that those
 * who share fd keep their waits; -1: the kernel gives none. */
static int open_again(int fd)
{
    char path[40];
    ct_plain_text t = { path, sizeof(path), 0 };

    ct_plain_add(&t, "/proc/self/fd/");
    ct_plain_number(&t, (unsigned)fd, 10);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* One try that does not wait where `kind` allows it. */
static ssize_t put(int fd, mode_t kind, const char *text, size_t n)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };

    if (S_ISSOCK(kind)) return send(fd, text, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!S_ISREG(kind) && (poll(&p, 1, 0) != 1)) return errno = EAGAIN, -1;
    return write(fd, text, n);
}

bool ct_write_bounded(int fd, const char *text, size_t n, int limit_ms)
{
    struct stat file;
    long end = now_ms() + limit_ms;
    mode_t kind = (fstat(fd, &file) == 0) ? file.st_mode : 0;
    /* a file opened again would have an offset of its own, and lines would cover each other */
    int own = (S_ISFIFO(kind) || S_ISCHR(kind)) ? open_again(fd) : -1;

    while (n > 0) {
        ssize_t done = put((own >= 0) ? own : fd, kind, text, n);

        if (done > 0) {
            text += done;
            n -= (size_t)done;
            continue;
        }
        if ((done < 0) && (errno != EAGAIN) && (errno != EINTR)) break;
        if (now_ms() >= end) break;
        (void)poll(NULL, 0, 10);
    }
    if (own >= 0) close(own);
    return n == 0;
}

void ct_ending_say(ct_log_level level, const char *what)
{
    char line[600];
    ct_plain_text t = { line, sizeof(line) - 1, 0 };
    int before = errno;

    if (!ct_log_on(level)) return;
    ct_plain_add(&t, (level == CT_LOG_INFO) ? "I " : "E ");
    if (level != CT_LOG_INFO) ct_plain_add(&t, ct_log_who());
    ct_plain_add(&t, what);
    line[t.n++] = '\n';
    (void)ct_write_bounded(STDERR_FILENO, line, t.n, CT_ENDING_LIMIT_MS);
    errno = before;
}

void ct_ending_file(const char *path)
{
    file_to_remove = path;
}

void ct_ending_clean(void)
{
    const char *path = file_to_remove;
    int before = errno;

    file_to_remove = NULL;
    if (path != NULL) (void)unlink(path);
    errno = before;
}
