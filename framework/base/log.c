#include "framework/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "framework/base/thread.h"
#include "framework/base/utf8.h"

static const char *const level_name[] = { "error", "warn", "info", "debug" };

/* Written by ct_log_init() and ct_log_set_sink() before any thread starts. */
static struct {
    int rank, n_rank;
    char who[96]; /* "rank R on HOST: " in a job of several */
    ct_log_level level;
    void (*sink)(void *ctx, const char *text);
    void *sink_ctx;
    atomic_int copy; /* a file that gets the lines, too; -1: none */
    atomic_long n_error;
    atomic_ullong error_hash;
} cfg = { .n_rank = 1, .level = CT_LOG_INFO, .copy = -1 };

void ct_log_init(int rank, int n_rank, const char *host)
{
    const char *want = getenv("CORTADO_LOG");

    cfg.rank = rank;
    cfg.n_rank = n_rank;
    cfg.who[0] = '\0';
    if (n_rank > 1)
        snprintf(cfg.who, sizeof(cfg.who), "rank %d on %s: ", rank, (host != NULL) ? host : "");
    for (int i = 0; (want != NULL) && (i <= CT_LOG_DEBUG); i++) {
        if (strcmp(want, level_name[i]) == 0) cfg.level = (ct_log_level)i;
    }
}

void ct_log_set_level(ct_log_level level)
{
    cfg.level = level;
}

const char *ct_log_who(void)
{
    return cfg.who;
}

static _Thread_local char last_error[600];

void ct_log_last_error(char *text, size_t size)
{
    snprintf(text, size, "%s", last_error);
}

void ct_log_forget_error(void)
{
    last_error[0] = '\0';
}

static _Thread_local bool hushed;

void ct_log_hush(bool hush)
{
    hushed = hush;
}

static _Thread_local bool held;

void ct_log_hold_errors(bool hold)
{
    held = hold;
}

static _Thread_local const char *error_end = "";

void ct_log_end_errors(const char *with)
{
    error_end = (with != NULL) ? with : "";
}

bool ct_log_on(ct_log_level level)
{
    if (hushed && (level > CT_LOG_ERROR)) return false;
    if (level > cfg.level) return false;
    return (level != CT_LOG_INFO) || (cfg.rank == 0);
}

void ct_log_set_sink(void (*sink)(void *ctx, const char *text), void *ctx)
{
    cfg.sink = sink;
    cfg.sink_ctx = ctx;
}

void ct_log_copy_to(int fd)
{
    atomic_store(&cfg.copy, fd);
}

/* What does not get into the copy is on stderr all the same. */
static void copy_line(const char *text)
{
    int fd = atomic_load(&cfg.copy);

    if (fd >= 0) (void)!write(fd, text, strlen(text));
}

long ct_log_n_error(void)
{
    return atomic_load(&cfg.n_error);
}

unsigned long long ct_log_error_hash(void)
{
    return atomic_load(&cfg.error_hash);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Of the n characters: FILE:LINE; an option, or its variable; or what stands for all of them on
 * ranks that do not know. */
static bool is_place(const char *text, size_t n)
{
    size_t at = n;

    if ((n == strlen("solver")) && begins(text, "solver")) return true;
    if (begins(text, "--") || begins(text, "CORTADO_")) return memchr(text, ' ', n) == NULL;
    while ((at > 0) && (text[at - 1] >= '0') && (text[at - 1] <= '9')) at--;
    return (at > 1) && (at < n) && (text[at - 1] == ':');
}

/* Only the rank that read the files knows the place that a text begins with. */
static const char *behind_place(const char *text)
{
    const char *end = strstr(text, ": ");

    return ((end != NULL) && is_place(text, (size_t)(end - text))) ? end + 2 : text;
}

/* A sum, so that the order in which threads fail does not count. */
static void note_error(const char *text)
{
    unsigned long long hash = 0xcbf29ce484222325u;

    text = behind_place(text);
    for (; *text != '\0'; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    atomic_fetch_add(&cfg.error_hash, hash);
    atomic_fetch_add(&cfg.n_error, 1);
}

/* Of a message as long as a name of 5000 characters may make it, begin and end are told: what was
 * expected stands at its end. */
enum { SAID_MOST = 3400, SAID_BEGIN = 1600, SAID_END = 1600, SAID_RAW = 1 << 13 };

/* Appends text[n] at *used_p < size. Control characters, and bytes that are no UTF-8, would end the
 * line or change the terminal: they are \n, \t or \xNN. */
static void add_plain(char *to, size_t size, size_t *used_p, const char *text, size_t n)
{
    const uint8_t *p = (const uint8_t *)text, *end = p + n;

    for (int k; p < end; p += k) {
        uint32_t c = ct_utf8_read(p, end, &k);
        bool plain = (c >= 0x20) && (c != 0x7f) && ((c < 0x80) || (c > 0x9f)) &&
                     (c != CT_NO_CHARACTER) && (c != 0x2028) && (c != 0x2029);

        if (*used_p + 4 * (size_t)k >= size) break;
        if (plain || (c == '\t')) {
            memcpy(to + *used_p, p, (size_t)k);
            *used_p += (size_t)k;
            continue;
        }
        for (int i = 0; i < k; i++)
            *used_p += (size_t)snprintf(to + *used_p, size - *used_p,
                                        (p[i] == '\n') ? "\\n" : "\\x%02x", p[i]);
    }
    to[*used_p] = '\0';
}

/* The message, of at most SAID_MOST bytes where none is escaped. */
static void add_message(char *to, size_t size, size_t *used_p, const char *text, size_t n)
{
    size_t begin = ct_utf8_whole(text, SAID_BEGIN), end = SAID_END;

    if (n <= SAID_MOST) {
        add_plain(to, size, used_p, text, n);
        return;
    }
    while (((unsigned char)text[n - end] & 0xc0) == 0x80) end -= 1;
    add_plain(to, size - SAID_END, used_p, text, begin);
    add_plain(to, size, used_p, " … ", strlen(" … "));
    add_plain(to, size, used_p, text + n - end, end);
}

/* What the arguments say, in the room of `raw` or, where it is larger, in *own_p, which is the
 * caller's to free; NULL: no memory, and the end is missing. */
static const char *print_raw(char *raw, size_t size, char **own_p, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(raw, size, fmt, ap);
    *own_p = ((n >= 0) && ((size_t)n >= size)) ? malloc((size_t)n + 1) : NULL;
    if (*own_p != NULL) (void)vsnprintf(*own_p, (size_t)n + 1, fmt, again);
    va_end(again);
    return (*own_p != NULL) ? *own_p : raw;
}

/* The line with its newline; *said_p: where the message begins in it. */
static void compose(char *text, size_t size, ct_log_level level, const char *file, int line,
                    const char *fmt, va_list ap, size_t *said_p)
{
    static const char letter[] = "EWID";
    const char *base = strrchr(file, '/'), *said;
    char raw[SAID_RAW], *own;
    struct timespec now;
    struct tm tm;
    size_t used;

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &tm);
    used =
        (size_t)snprintf(text, size, "%c%02d%02d %02d:%02d:%02d.%06ld %d %s:%d] ", letter[level],
                         tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                         now.tv_nsec / 1000, (int)getpid(), (base != NULL) ? base + 1 : file, line);
    if (level != CT_LOG_INFO) used += (size_t)snprintf(text + used, size - used, "%s", cfg.who);
    *said_p = used;
    said = print_raw(raw, sizeof(raw), &own, fmt, ap);
    add_message(text, size - 1, &used, said, strlen(said));
    free(own);
    if (level == CT_LOG_ERROR) add_plain(text, size - 1, &used, error_end, strlen(error_end));
    strcpy(text + used, "\n");
}

void ct_log_at(ct_log_level level, const char *file, int line, const char *fmt, ...)
{
    char text[4096];
    size_t said;
    va_list ap;

    if (!ct_log_on(level)) return;
    va_start(ap, fmt);
    compose(text, sizeof(text), level, file, line, fmt, ap, &said);
    va_end(ap);
    if (level == CT_LOG_ERROR) {
        size_t n = strlen(text + said) - 1;

        text[said + n] = '\0'; /* the newline is no part of the message */
        snprintf(last_error, sizeof(last_error), "%s", text + said);
        if (held) return;
        note_error(text + said);
        text[said + n] = '\n';
    }
    copy_line(text);
    if (cfg.sink != NULL) {
        cfg.sink(cfg.sink_ctx, text);
    } else {
        fputs(text, stderr);
    }
}

void ct_log_urgent(ct_log_level level, const char *file, int line, const char *fmt, ...)
{
    char text[4096];
    size_t said;
    va_list ap;

    if (!ct_log_on(level)) return;
    va_start(ap, fmt);
    compose(text, sizeof(text), level, file, line, fmt, ap, &said);
    va_end(ap);
    (void)ct_write_bounded(STDERR_FILENO, text, strlen(text), CT_ENDING_LIMIT_MS);
    copy_line(text); /* as long as its disk takes */
}

/* ---- last words */

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
