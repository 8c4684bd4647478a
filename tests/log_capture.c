#include "tests/log_capture.h"

#include <stdio.h>
#include <string.h>

#include "framework/base/log.h"

static void keep_line(void *ctx, const char *text)
{
    log_capture *c = ctx;
    const char *message = strstr(text, "] "); /* behind "FILE:LINE" */
    char *to;

    if ((c == NULL) || ((text[0] != 'E') && (text[0] != 'W'))) return;
    to = (text[0] == 'E') ? c->error : c->warning;
    c->n_error += (text[0] == 'E');
    snprintf(to, sizeof(c->error), "%s", (message != NULL) ? message + 2 : text);
    to[strcspn(to, "\n")] = '\0';
}

void log_capture_start(log_capture *c)
{
    if (c != NULL) memset(c, 0, sizeof(*c));
    ct_log_set_sink(keep_line, c);
}

void log_capture_stop(void)
{
    ct_log_set_sink(NULL, NULL);
}
