/** @file ending.h  Last words: what a process says and does where it must end in any case.
 *
 * For signal handlers and the watchdog. Each call here is safe in a signal handler: it takes no
 * lock, asks for no memory, and returns within its limit even where nobody reads the pipe behind
 * stderr. The file to remove is a global, because a handler has no other way to know of it.
 */
#ifndef CT_ENDING_H
#define CT_ENDING_H

#include <stdbool.h>
#include <stddef.h>

#include "framework/base/log.h"

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
