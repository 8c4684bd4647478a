#include "tests/log_capture.h"

#include <stdio.h>
#include <string.h>

#include "framework/base/log.h"

static void keep_error(void *ctx, const char *text)
{
    log_capture *c = ctx;
    const char *message = strstr(text, "] "); /* behind "file.c:line" */

    if (text[0] != 'E') return;
    c->n_error++;
    snprintf(c->error, sizeof(c->error), "%s", (message != NULL) ? message + 2 : text);
    c->error[strcspn(c->error, "\n")] = '\0';
}

void log_capture_start(log_capture *c)
{
    memset(c, 0, sizeof(*c));
    ct_log_set_sink(keep_error, c);
}

void log_capture_stop(void)
{
    ct_log_set_sink(NULL, NULL);
}
