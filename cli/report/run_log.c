/* A log for people, of `cortado train` or of Caffe, as the curves of a run:
 *
 *   … Iteration 20 (…), loss = 1.25
 *   …     Train net output #0: loss = 1.25 (* 1 = 1.25 loss)
 *   … Iteration 20, lr = 0.01
 *   … Iteration 40, Testing net (#0)
 *   …     Test net output #1: accuracy = 0.5
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/run_data.h"
#include "framework/base/file.h"
#include "framework/base/log.h"

enum { MOST_NETS = 1000 };

typedef struct log_line {
    ct_run_data *r;
    double iteration; /* that the line is of; NAN: none yet */
    int net;          /* of tests                           */
} log_line;

/* The number behind `key`. */
static bool find_number(const char *line, const char *key, double *v_p)
{
    const char *at = strstr(line, key);
    char *end;

    if (at == NULL) return false;
    at += strlen(key);
    *v_p = strtod(at, &end);
    return end != at;
}

/* "Test net output #1: accuracy = 0.5": the loss of training has a line of its own. */
static ct_status add_output(const log_line *l, const char *line)
{
    bool of_test = strstr(line, "Test net output #") != NULL;
    const char *from = strstr(line, " net output #"), *equal;
    char field[128];
    double v;
    int n;

    if (from == NULL) return CT_OK;
    from = strstr(from, ": ");
    equal = (from != NULL) ? strstr(from, " = ") : NULL;
    if (equal == NULL) return CT_OK;
    from += 2;
    n = (int)(equal - from);
    if ((n < 1) || (n > 100) || !find_number(equal, " = ", &v)) return CT_OK;
    if (!of_test && (n == 4) && (strncmp(from, "loss", 4) == 0)) return CT_OK;
    if (of_test && (l->net > 0))
        snprintf(field, sizeof(field), "%.*s (net %d)", n, from, l->net);
    else
        snprintf(field, sizeof(field), "%.*s", n, from);
    return ct_run_data_add(l->r, field, of_test, l->iteration, v);
}

static ct_status take_line(log_line *l, const char *line)
{
    double v;

    if (find_number(line, "Iteration ", &v)) {
        l->iteration = v;
        l->net = 0;
        if (find_number(line, "Testing net (#", &v) && (v > 0) && (v < MOST_NETS)) l->net = (int)v;
        if (find_number(line, ", loss = ", &v))
            CT_TRY(ct_run_data_add(l->r, "loss", false, l->iteration, v));
        if (find_number(line, ", lr = ", &v))
            CT_TRY(ct_run_data_add(l->r, "lr", false, l->iteration, v));
        return CT_OK;
    }
    return isnan(l->iteration) ? CT_OK : add_output(l, line);
}

ct_status ct_run_log_read(ct_run_data *r, const char *file)
{
    log_line l = { .r = r, .iteration = NAN };
    char *text = NULL, *rest, *line;
    size_t size;
    ct_status status;

    CT_TRY(ct_file_read(file, &text, &size));
    status = (memchr(text, '\0', size) != NULL)
                 ? CT_FAIL(CT_ERR_DATA, "%s: no text; expected a file of --metrics, or a log", file)
                 : CT_OK;
    for (rest = text; (status == CT_OK) && ((line = strsep(&rest, "\n")) != NULL);)
        status = take_line(&l, line);
    free(text);
    if ((status == CT_OK) && (r->n_curve == 0))
        status =
            CT_FAIL(CT_ERR_DATA,
                    "%s: no iteration in it; expected a file of --metrics, or a log of cortado "
                    "train or of Caffe",
                    file);
    return status;
}
