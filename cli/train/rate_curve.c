#include "cli/train/rate_curve.h"

#include <math.h>
#include <stdlib.h>

#include "framework/base/json_writer.h"
#include "framework/base/log.h"
#include "framework/report/chart.h"

/* What is suggested is so much below the rate of the least mean: there the loss is about to rise,
 * and with momentum it rises late. */
#define BELOW 10.0
/* So many times the least mean, over the loss 0, is far above it. */
#define FAR 4.0

ct_status ct_rate_curve_create(int n_step, ct_rate_curve *c)
{
    *c = (ct_rate_curve){ .h = (n_step >= 40) ? n_step / 20 : 1, .steepest = -1, .suggested = NAN };
    c->point = calloc((size_t)n_step, sizeof(*c->point));
    return (c->point != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for %d steps", n_step);
}

void ct_rate_curve_destroy(ct_rate_curve *c)
{
    free(c->point);
    *c = (ct_rate_curve){ 0 };
}

/* Of the losses from first to last, as far as there are any that are numbers. */
static double mean_of(const ct_rate_curve *c, int first, int last)
{
    double sum = 0.0;
    int n = 0;

    for (int i = (first > 0) ? first : 0; (i <= last) && (i < c->n); i++) {
        if (!isfinite(c->point[i].loss)) continue;
        sum += c->point[i].loss;
        n++;
    }
    return (n > 0) ? sum / n : NAN;
}

/* While the curve grows, `mean` is the least mean of 2 h + 1 steps so far. */
bool ct_rate_curve_add(ct_rate_curve *c, double rate, double loss)
{
    ct_rate_point *p = &c->point[c->n++];
    double now, least;

    *p = (ct_rate_point){ rate, loss, NAN };
    c->diverged = !isfinite(loss);
    if (c->diverged || (c->n < 2 * c->h + 1)) return c->diverged;
    now = mean_of(c, c->n - 2 * c->h - 1, c->n - 1);
    least = fmin(p[-1].mean, now); /* which is no number at first */
    p->mean = least;
    c->diverged = (now > least + (FAR - 1.0) * fabs(least));
    return c->diverged;
}

/* How the mean changes around step i, per factor of the rate. */
static double slope_at(const ct_rate_curve *c, int i, int last)
{
    int a = (i > c->h) ? i - c->h : 0, b = (i + c->h < last) ? i + c->h : last;

    return (c->point[b].mean - c->point[a].mean) / log(c->point[b].rate / c->point[a].rate);
}

void ct_rate_curve_finish(ct_rate_curve *c)
{
    int last = c->n - 1;
    double steepest = 0.0;

    for (int i = 0; i < c->n; i++) c->point[i].mean = mean_of(c, i - c->h, i + c->h);
    while ((last > 0) && !isfinite(c->point[last].loss)) last--;
    c->least = 0;
    for (int i = 1; i <= last; i++)
        if (c->point[i].mean < c->point[c->least].mean) c->least = i;
    c->steepest = -1;
    for (int i = c->h; i <= c->least; i++) {
        double slope = slope_at(c, i, last);

        if (!(slope < steepest)) continue;
        steepest = slope;
        c->steepest = i;
    }
    c->suggested = (c->steepest >= 0) ? c->point[c->least].rate / BELOW : (double)NAN;
}

void ct_rate_curve_print(const ct_rate_curve *c, ct_text *out)
{
    const ct_rate_point *least = &c->point[c->least];
    int step = (c->n > 20) ? c->n / 20 : 1;

    ct_text_add(out, "%12s %12s %12s\n", "rate", "loss", "mean loss");
    for (int i = 0; i < c->n; i++)
        if ((i % step == 0) || (i == c->n - 1))
            ct_text_add(out, "%12.4g %12.6g %12.6g\n", c->point[i].rate, c->point[i].loss,
                        c->point[i].mean);
    ct_text_add(out, "mean over %d steps; least %.6g at %.3g\n", 2 * c->h + 1, least->mean,
                least->rate);
    if (c->diverged)
        ct_text_add(out, "diverged at %.3g\n", c->point[c->n - 1].rate);
    else if (c->least >= c->n - 1 - 2 * c->h)
        ct_text_add(out, "the loss still falls at %.3g: a higher --to tells more\n",
                    c->point[c->n - 1].rate);
    if (c->steepest >= 0)
        ct_text_add(out,
                    "it falls fastest at %.3g\n"
                    "suggested base_lr: %.2g, a tenth of the rate of the least\n",
                    c->point[c->steepest].rate, c->suggested);
    else
        ct_text_add(out, "no base_lr suggested: the loss does not fall\n");
}

void ct_rate_curve_csv(const ct_rate_curve *c, ct_text *out)
{
    ct_text_add(out, "rate,loss,mean\n");
    for (int i = 0; i < c->n; i++)
        ct_text_add(out, "%.9g,%.9g,%.9g\n", c->point[i].rate, c->point[i].loss, c->point[i].mean);
}

static void add_point(const char *key, const ct_rate_point *p, ct_json_writer *w)
{
    ct_json_begin_object(w, key);
    ct_json_add_number(w, "rate", p->rate);
    ct_json_add_number(w, "loss", p->loss);
    ct_json_add_number(w, "mean", p->mean);
    ct_json_end(w);
}

void ct_rate_curve_json(const ct_rate_curve *c, ct_json_writer *w)
{
    ct_json_add_number(w, "suggested", c->suggested);
    ct_json_add_number(w, "steepest",
                       (c->steepest >= 0) ? c->point[c->steepest].rate : (double)NAN);
    ct_json_add_bool(w, "diverged", c->diverged);
    ct_json_add_integer(w, "mean_over", 2 * c->h + 1);
    add_point("least", &c->point[c->least], w);
    ct_json_begin_list(w, "points");
    for (int i = 0; i < c->n; i++) add_point(NULL, &c->point[i], w);
    ct_json_end(w);
}

void ct_rate_curve_draw(const ct_rate_curve *c, const char *net, ct_text *out)
{
    ct_chart_point *loss = calloc((size_t)c->n, sizeof(*loss)),
                   *mean = calloc((size_t)c->n, sizeof(*mean)), mark[2] = { { .x = c->suggested } };
    ct_chart_series series[] = {
        { .name = "loss", .colour = CT_CHART_GREY, .mark = CT_MARK_DISC, .point = loss, .n = c->n },
        { .name = "mean", .stroke = CT_STROKE_SOLID, .point = mean, .n = c->n },
        { .name = "suggested", .colour = 1, .stroke = CT_STROKE_DASHED, .point = mark, .n = 2 },
    };
    double most = -INFINITY, least;
    ct_chart chart = { .title = "Learning-rate range test",
                       .subtitle = net,
                       .x = { .label = "learning rate", .log = true },
                       .y = { .label = "loss" },
                       .series = series,
                       .n_series = (c->steepest >= 0) ? 3 : 2 };

    for (int i = 0; (loss != NULL) && (mean != NULL) && (i < c->n); i++) {
        loss[i] = (ct_chart_point){ .x = c->point[i].rate, .y = c->point[i].loss, .radius = 2 };
        mean[i] = (ct_chart_point){ .x = c->point[i].rate, .y = c->point[i].mean };
        if (i <= c->least) most = fmax(most, c->point[i].mean);
    }
    /* what diverges would leave the rest flat: as far up as the loss has fallen, and a bit below */
    least = c->point[c->least].mean;
    chart.y.low = least - (most - least) / 4.0;
    chart.y.high = 2.0 * most - least;
    mark[0].y = chart.y.low;
    mark[1] = (ct_chart_point){ .x = c->suggested, .y = chart.y.high };
    if ((loss != NULL) && (mean != NULL))
        ct_chart_draw(&chart, out);
    else
        out->failed = true;
    free(loss);
    free(mean);
}
