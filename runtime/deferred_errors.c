#include "runtime/deferred_errors.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/log.h"

#define MAX_HELD 16384

/* Part of the log, which is the one thing that is global. */
static struct {
    pthread_mutex_t lock;
    char text[MAX_HELD];
    size_t used;
    bool flushed;
} held = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void keep(void *ctx, const char *line)
{
    size_t n = strlen(line);

    (void)ctx;
    pthread_mutex_lock(&held.lock);
    if ((line[0] == 'E') && !held.flushed && (held.used + n < MAX_HELD)) {
        memcpy(held.text + held.used, line, n + 1);
        held.used += n;
    } else {
        fputs(line, stderr);
    }
    pthread_mutex_unlock(&held.lock);
}

void ct_deferred_errors_start(void)
{
    ct_log_set_sink(keep, NULL);
}

void ct_deferred_errors_flush(void)
{
    pthread_mutex_lock(&held.lock);
    fputs(held.text, stderr);
    held.text[0] = '\0';
    held.used = 0;
    held.flushed = true;
    pthread_mutex_unlock(&held.lock);
}

void ct_deferred_errors_flush_now(void)
{
    /* who holds the lock may be waiting for the reader of stderr */
    if (pthread_mutex_trylock(&held.lock) != 0) return;
    (void)ct_write_bounded(STDERR_FILENO, held.text, held.used, CT_ENDING_LIMIT_MS);
    held.text[0] = '\0';
    held.used = 0;
    held.flushed = true;
    pthread_mutex_unlock(&held.lock);
}
