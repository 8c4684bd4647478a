/** @file log_capture.h  What a piece of code logs, for tests. */
#ifndef CT_LOG_CAPTURE_H
#define CT_LOG_CAPTURE_H

#include <stdbool.h>

typedef struct log_capture {
    int n_error;
    char error[4096];   /* the last error line, without its prefix and newline */
    char warning[4096]; /* the last warning's                                 */
} log_capture;

/** Begins to keep errors and warnings in c, which is emptied, and to drop every other line; NULL:
 *  to drop all. */
void log_capture_start(log_capture *c);
/** The log goes to stderr again. */
void log_capture_stop(void);

#endif
