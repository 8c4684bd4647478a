#include "framework/report/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/clock.h"

#define ERASE "\r\033[K"

struct ct_progress {
    char text[160];
    double drawn_s; /* when it was last drawn           */
    double first_s; /* when the first iteration was seen */
    int64_t first;  /* and which that was               */
    double rate;    /* last known images/s              */
};

static void log_sink(void *ctx, const char *line)
{
    const ct_progress *p = ctx;

    fprintf(stderr, ERASE "%s%s", line, p->text);
}

ct_status ct_progress_create(ct_progress **progress_p)
{
    ct_progress *p;

    *progress_p = NULL;
    if (isatty(STDERR_FILENO) == 0) return CT_OK;
    p = calloc(1, sizeof(*p));
    if (p == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for the progress line");
    p->first = -1;
    ct_log_set_sink(log_sink, p);
    *progress_p = p;
    return CT_OK;
}

void ct_progress_destroy(ct_progress *p)
{
    if (p == NULL) return;
    ct_log_set_sink(NULL, NULL);
    fputs(ERASE, stderr);
    free(p);
}

static void format_time(char *text, size_t size, double seconds)
{
    int64_t s = (int64_t)seconds;

    if (s >= 3600) {
        snprintf(text, size, "%" PRId64 "h%02dm", s / 3600, (int)(s / 60 % 60));
    } else if (s >= 60) {
        snprintf(text, size, "%dm%02ds", (int)(s / 60), (int)(s % 60));
    } else {
        snprintf(text, size, "%ds", (int)s);
    }
}

void ct_progress_format(char *text, size_t size, int64_t iteration, int64_t max_iteration,
                        double loss, double images_per_s, double seconds_left)
{
    char left[32] = "";
    size_t used;

    used = (size_t)snprintf(text, size, "  %" PRId64 "/%" PRId64 "  loss %.4g", iteration,
                            max_iteration, loss);
    if (images_per_s > 0.0)
        used +=
            (size_t)snprintf(text + used, size - used, "  %.0f images/s", fmin(images_per_s, 1e12));
    if ((seconds_left >= 0.0) && isfinite(seconds_left)) {
        format_time(left, sizeof(left), seconds_left);
        snprintf(text + used, size - used, "  %s left", left);
    }
}

void ct_progress_move(ct_progress *p, int64_t iteration, int64_t max_iteration, double loss,
                      double images_per_s)
{
    double now = ct_clock_s(), left = -1.0;

    if (p->first < 0) {
        p->first = iteration;
        p->first_s = now;
    }
    if (images_per_s > 0.0) p->rate = images_per_s;
    if (now - p->drawn_s < 0.1) return;
    if (iteration > p->first)
        left = (now - p->first_s) / (double)(iteration - p->first) *
               (double)(max_iteration - iteration);
    p->drawn_s = now;
    ct_progress_format(p->text, sizeof(p->text), iteration, max_iteration, loss, p->rate, left);
    fprintf(stderr, ERASE "%s", p->text);
}
