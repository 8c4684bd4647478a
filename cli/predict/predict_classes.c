/* The class of each picture: the one of which the net's number is the largest. A row has the
 * numbers of all classes, added up over the crops of the picture. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/predict/predict.h"

static ct_status take(ct_predicting *p)
{
    const ct_net *net = ct_deployed_whole(p->net);
    const char *name;
    const ct_shape *shape = ct_sample_net_output(ct_deployed_samples(p->net), p->output, &name);

    p->n_class = ct_shape_count(shape, 1, -1);
    p->width = 1 + p->n_class;
    if ((shape->ndim >= 2) && (shape->dim[1] == p->n_class)) return CT_OK;
    return CT_FAIL(
        CT_ERR_CONFIG,
        "output \"%s\" of net \"%s\" has shape %s: expected a number for each class of a "
        "picture",
        name, net->name, ct_shape_str(shape).text);
}

static void add(const ct_predicting *p, const int64_t *file, const ct_picture_frame *frame,
                int64_t n, double *row)
{
    const float *out = ct_sample_net_rows(ct_deployed_samples(p->net), p->output);

    (void)frame;
    for (int64_t i = 0; i < n * p->n_class; i++)
        row[file[i / p->n_class] * p->width + 1 + i % p->n_class] += (double)out[i];
}

/* The mean of class c over crops. */
static double of_class(const ct_predicting *p, const double *row, int64_t c)
{
    return row[1 + c] / p->crops;
}

static int64_t best_of(const ct_predicting *p, const double *row)
{
    int64_t best = 0;

    for (int64_t c = 1; c < p->n_class; c++)
        if (row[1 + c] > row[1 + best]) best = c;
    return best;
}

/* ---- CSV, as RFC 4180 has it */

static void begin_csv(ct_predicting *p)
{
    printf("file,class,%s\n", p->measure);
}

static void add_csv(ct_predicting *p, const char *file, const double *row)
{
    char room[24];
    int64_t best = best_of(p, row);
    const char *class = ct_predict_class(p, best, room);

    ct_predict_put_csv(file, strlen(file));
    putchar(',');
    ct_predict_put_csv(class, strlen(class));
    printf(",%.9g\n", of_class(p, row, best));
}

/* ---- JSON */

static void begin_json(ct_predicting *p)
{
    ct_predict_begin_json(p, -1);
}

static void add_json(ct_predicting *p, const char *file, const double *row)
{
    char room[24];
    int64_t best = best_of(p, row);

    ct_json_break(&p->w);
    ct_json_begin_object(&p->w, NULL);
    ct_json_add_text(&p->w, "file", file);
    ct_json_add_text(&p->w, "class", ct_predict_class(p, best, room));
    ct_json_add_number(&p->w, p->measure, of_class(p, row, best));
    ct_json_begin_list(&p->w, "all");
    for (int64_t c = 0; c < p->n_class; c++) ct_json_add_number(&p->w, NULL, of_class(p, row, c));
    ct_json_end(&p->w);
    ct_json_end(&p->w);
    ct_predict_put_json(p);
}

/* ---- a table for people */

static void begin_table(ct_predicting *p)
{
    printf("%-11s  %-20s  file\n", p->measure, "class");
}

static void add_table(ct_predicting *p, const char *file, const double *row)
{
    int64_t best = best_of(p, row);
    char room[24];

    printf("%11.4f  %-20s  %s\n", of_class(p, row, best), ct_predict_class(p, best, room), file);
}

const ct_predict_answer ct_predict_classes = {
    .names = "one for each class",
    .take = take,
    .add = add,
    .format = { { "table", begin_table, add_table, ct_predict_end_nothing },
                { "csv", begin_csv, add_csv, ct_predict_end_nothing },
                { "json", begin_json, add_json, ct_predict_end_json } },
};
