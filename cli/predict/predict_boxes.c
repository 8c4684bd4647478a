/* The boxes that a net finds in each picture, the surest first. A row has their number, and of each
 * class, score and corners in pixels of the picture. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/predict/predict.h"

enum { COUNT = 1, FIRST = 2 };                      /* of a row */
enum { CLASS = 0, SCORE = 1, CORNER = 2, BOX = 6 }; /* of a box */

static int64_t background_of(const ct_predicting *p)
{
    return ct_sample_net_boxes(ct_deployed_samples(p->net), p->output)
        ->detection_output_param->background_label_id;
}

static ct_status take(ct_predicting *p)
{
    const ct_sample_net *s = ct_deployed_samples(p->net);
    const Ct__LayerParameter *l = ct_sample_net_boxes(s, p->output);
    const char *name;
    int64_t rows = ct_sample_net_output(s, p->output, &name)->dim[2] / ct_sample_net_most(s);

    p->n_class = l->detection_output_param->num_classes;
    p->width = FIRST + rows * BOX;
    if (p->crops > 1)
        return CT_FAIL(CT_ERR_CONFIG,
                       "--crops=%d: the net finds boxes (layer \"%s\"), of which there is no mean "
                       "over crops: leave it out",
                       p->crops, l->name);
    return ct_pictures_check_boxes(p->pictures);
}

/* Corners in parts of the Input as pixels of the picture, cut off at its edges. */
static void place(const ct_picture_frame *f, const float *corner, double *to)
{
    const double side[2] = { (double)f->width, (double)f->height };

    for (int k = 0; k < 4; k++) {
        double low = (double)f->shown.corner[k % 2], high = (double)f->shown.corner[2 + k % 2];
        double at = (low + (double)corner[k] * (high - low)) * side[k % 2];

        to[k] = fmin(fmax(at, 0), side[k % 2]);
    }
}

/* The surest first; of equal ones by class and place, so that the order is one. */
static int by_score(const void *a, const void *b)
{
    const double *x = a, *y = b;

    if (x[SCORE] != y[SCORE]) return (x[SCORE] > y[SCORE]) ? -1 : 1;
    for (int k = 0; k < BOX; k++)
        if (x[k] != y[k]) return (x[k] < y[k]) ? -1 : 1;
    return 0;
}

static void add(const ct_predicting *p, const int64_t *file, const ct_picture_frame *frame,
                int64_t n, double *row)
{
    int64_t found;
    const float *out = ct_sample_net_found(ct_deployed_samples(p->net), p->output, &found);

    for (int64_t i = 0; i < found; i++, out += CT_FOUND_ROW) {
        int64_t of = file[(int64_t)out[0]];
        double *to = row + of * p->width, *box = to + FIRST + (int64_t)to[COUNT] * BOX;

        box[CLASS] = (double)out[1];
        box[SCORE] = (double)out[2];
        place(&frame[of], out + 3, box + CORNER);
        to[COUNT]++;
    }
    for (int64_t i = 0; i < n; i++) {
        double *to = row + file[i] * p->width;

        qsort(to + FIRST, (size_t)to[COUNT], BOX * sizeof(*to), by_score);
    }
}

/* ---- CSV */

static void begin_csv(ct_predicting *p)
{
    printf("file,class,%s,xmin,ymin,xmax,ymax\n", p->measure);
}

static void add_csv(ct_predicting *p, const char *file, const double *row)
{
    const double *box = row + FIRST;

    for (int64_t i = 0; i < (int64_t)row[COUNT]; i++, box += BOX) {
        char room[24];
        const char *class = ct_predict_class(p, (int64_t)box[CLASS], room);

        ct_predict_put_csv(file, strlen(file));
        putchar(',');
        ct_predict_put_csv(class, strlen(class));
        printf(",%.9g", box[SCORE]);
        for (int k = 0; k < 4; k++) printf(",%.7g", box[CORNER + k]);
        putchar('\n');
    }
}

/* ---- JSON */

static void begin_json(ct_predicting *p)
{
    ct_predict_begin_json(p, background_of(p));
}

static void add_json(ct_predicting *p, const char *file, const double *row)
{
    static const char *const corner[] = { "xmin", "ymin", "xmax", "ymax" };
    const double *box = row + FIRST;

    ct_json_break(&p->w);
    ct_json_begin_object(&p->w, NULL);
    ct_json_add_text(&p->w, "file", file);
    ct_json_begin_list(&p->w, "boxes");
    for (int64_t i = 0; i < (int64_t)row[COUNT]; i++, box += BOX) {
        char room[24];

        ct_json_begin_object(&p->w, NULL);
        ct_json_add_text(&p->w, "class", ct_predict_class(p, (int64_t)box[CLASS], room));
        ct_json_add_number(&p->w, p->measure, box[SCORE]);
        for (int k = 0; k < 4; k++) ct_json_add_digits(&p->w, corner[k], box[CORNER + k], 7);
        ct_json_end(&p->w);
    }
    ct_json_end(&p->w);
    ct_json_end(&p->w);
    ct_predict_put_json(p);
}

/* ---- a table for people */

static void begin_table(ct_predicting *p)
{
    printf("%-11s  %-20s  %8s  %8s  %8s  %8s  file\n", p->measure, "class", "xmin", "ymin", "xmax",
           "ymax");
}

static void add_table(ct_predicting *p, const char *file, const double *row)
{
    const double *box = row + FIRST;

    if (row[COUNT] == 0)
        printf("%11s  %-20s  %8s  %8s  %8s  %8s  %s\n", "-", "no box", "-", "-", "-", "-", file);
    for (int64_t i = 0; i < (int64_t)row[COUNT]; i++, box += BOX) {
        char room[24];

        printf("%11.4f  %-20s", box[SCORE], ct_predict_class(p, (int64_t)box[CLASS], room));
        for (int k = 0; k < 4; k++) printf("  %8.1f", box[CORNER + k]);
        printf("  %s\n", file);
    }
}

const ct_predict_answer ct_predict_boxes = {
    .names = "one for each class and the background",
    .take = take,
    .add = add,
    .format = { { "table", begin_table, add_table, ct_predict_end_nothing },
                { "csv", begin_csv, add_csv, ct_predict_end_nothing },
                { "json", begin_json, add_json, ct_predict_end_json } },
};
