/** @file log.h  Levelled log on stderr, one line per message, and last words.
 *
 * A line looks like glog's, which Caffe users and their scripts know:
 *     I1120 10:03:31.000123 4711 solver.c:88] Iteration 100 (…), loss = 0.21
 * INFO comes from rank 0 only; WARN and ERROR from every rank, with "rank R on HOST: " in front
 * in a job of more than one rank. Each line is one write, so the ranks' lines do not mix.
 */
#ifndef CT_LOG_H
#define CT_LOG_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CT_LOG_ERROR, CT_LOG_WARN, CT_LOG_INFO, CT_LOG_DEBUG } ct_log_level;

/** Sets what stands in front of a line and reads CORTADO_LOG=error|warn|info|debug. Called
 *  before any thread starts. rank, n_rank: of the job (0, 1 without one). */
void ct_log_init(int rank, int n_rank, const char *host);
/** Up to which level messages are told from now on; before any thread starts. */
void ct_log_set_level(ct_log_level level);
/** From here on this thread tells nothing but errors: it plans what nobody asked for. false: as
 *  before. */
void ct_log_hush(bool hush);
/** What errors of this thread end with from here on, such as why something is tried; NULL: nothing
 * more. The text is the caller's, and lives until then. */
void ct_log_end_errors(const char *with);
/** True where a message of this level would be printed. */
bool ct_log_on(ct_log_level level);
void ct_log_at(ct_log_level level, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/** The same for a thread that must not wait: past sink and stdio, whose locks a thread may hold
 * that waits for the reader of stderr; given up after a second. Not counted as an error. */
void ct_log_urgent(ct_log_level level, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/** "rank R on HOST: " in a job of more than one rank, else "". Static. */
const char *ct_log_who(void);
/** The number of ERROR lines logged so far by this process (tests; the last word in main). */
long ct_log_n_error(void);
/** A hash of those lines without time, rank, host and a leading place in the configuration, which
 * rank 0 alone knows: equal where ranks found the same errors. */
unsigned long long ct_log_error_hash(void);
/** The message of the last ERROR line of this thread, without what stands in front; "": none. */
void ct_log_last_error(char *text, size_t size);
/** From here on there was none. */
void ct_log_forget_error(void);
/** Each line also goes to this file from now on; -1: to none. The file stays the caller's. */
void ct_log_copy_to(int fd);
/** A hook called with each complete line instead of writing it to stderr; NULL: stderr again.
 *  For tests and for the progress line. Called before any thread starts. */
void ct_log_set_sink(void (*sink)(void *ctx, const char *text), void *ctx);

#ifdef __cplusplus
}
#endif

#define CT_WARN(...)  ct_log_at(CT_LOG_WARN, __FILE__, __LINE__, __VA_ARGS__)
#define CT_INFO(...)  ct_log_at(CT_LOG_INFO, __FILE__, __LINE__, __VA_ARGS__)
#define CT_DEBUG(...) ct_log_at(CT_LOG_DEBUG, __FILE__, __LINE__, __VA_ARGS__)

/* ---- Last words: what a process says and does where it must end in any case.
 *
 * For signal handlers and the watchdog. Each call here is safe in a signal handler: it takes no
 * lock, asks for no memory, and returns within its limit even where nobody reads the pipe behind
 * stderr. The file to remove is a global, because a handler has no other way to know of it.
 */

/** How long last words wait for a reader. */
#define CT_ENDING_LIMIT_MS 1000

/** Writes n bytes to fd, or as many as its reader takes within limit_ms. False: not all. The file's
 *  own flags stay as they are, since other processes share them. */
bool ct_write_bounded(int fd, const char *text, size_t n, int limit_ms);
/** A text of at most `size` - 1 characters, put together without the C library's formatting. */
typedef struct ct_plain_text {
    char *text;
    size_t size, n;
} ct_plain_text;
void ct_plain_add(ct_plain_text *t, const char *part);
void ct_plain_number(ct_plain_text *t, unsigned long long number, unsigned base); /* 10 or 16 */
/** Writes "E <rank and host, in a job>what" as one line to stderr; of CT_LOG_INFO "I what", on
 *  rank 0 alone. errno stays as it was. */
void ct_ending_say(ct_log_level level, const char *what);
/** A file that ct_ending_clean() removes; NULL: none. `path` stays the caller's and must live until
 *  the next call. */
void ct_ending_file(const char *path);
void ct_ending_clean(void);

#endif
