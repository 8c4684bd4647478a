#include "framework/data/augment/boxes.h"

#include <math.h>
#include <string.h>

ct_boxes ct_boxes_of(float *row, int64_t room)
{
    ct_boxes b = { row, room, 0 };

    while ((b.n < room) && (row[b.n * CT_BOX_ROW] >= 0)) b.n++;
    return b;
}

static float *corners(const ct_boxes *b, int64_t i)
{
    return b->row + i * CT_BOX_ROW + CT_BOX_CORNER;
}

static float area(const float *c)
{
    return ((c[2] > c[0]) && (c[3] > c[1])) ? (c[2] - c[0]) * (c[3] - c[1]) : 0.0f;
}

/* What two boxes have in common. */
static float common(const float *a, const float *b)
{
    float c[4] = { fmaxf(a[0], b[0]), fmaxf(a[1], b[1]), fminf(a[2], b[2]), fminf(a[3], b[3]) };

    return area(c);
}

/* ---- the image changes */

static bool lets_through(const Ct__EmitConstraint *e, const float *part, const float *box)
{
    float x = (box[0] + box[2]) / 2, y = (box[1] + box[3]) / 2, of = area(box);

    if (e == NULL) return true;
    if (e->emit_type == CT__EMIT_CONSTRAINT__EMIT_TYPE__CENTER)
        return (x >= part[0]) && (x <= part[2]) && (y >= part[1]) && (y <= part[3]);
    return (of > 0) && (common(box, part) / of > e->emit_overlap);
}

static float within(float v)
{
    return fminf(fmaxf(v, 0.0f), 1.0f);
}

void ct_boxes_project(ct_boxes *b, const ct_image_part *part, const Ct__EmitConstraint *emit)
{
    const float *p = part->corner;
    float side[2] = { p[2] - p[0], p[3] - p[1] };
    int64_t kept = 0;

    for (int64_t i = 0; i < b->n; i++) {
        float *c = corners(b, i), moved[4];

        if (!lets_through(emit, p, c)) continue;
        for (int k = 0; k < 4; k++) moved[k] = within((c[k] - p[k % 2]) / side[k % 2]);
        if (area(moved) <= 0) continue;
        memcpy(c, moved, sizeof(moved));
        if (kept < i)
            memcpy(b->row + kept * CT_BOX_ROW, b->row + i * CT_BOX_ROW, CT_BOX_ROW * sizeof(float));
        kept++;
    }
    for (int64_t i = kept * CT_BOX_ROW; i < b->n * CT_BOX_ROW; i++) b->row[i] = -1;
    b->n = kept;
}

void ct_boxes_mirror(ct_boxes *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        float *c = corners(b, i), left = c[0];

        c[0] = 1 - c[2];
        c[2] = 1 - left;
    }
}

/* One axis: from `before` to `inner` pixels, behind a border, of `after` pixels in all. */
static void scale_axis(float *low, float *high, float before, float inner, float border,
                       float after)
{
    float from = *low * before * inner / before, to = *high * before * inner / before;

    *low = (border + fmaxf(0.0f, from)) / after;
    *high = (border + fminf(after, to)) / after;
}

/* What p makes of an image: its size, and the border on either side, across and down. */
typedef struct resized {
    float wide, tall, border[2];
} resized;

static resized resize(const Ct__ResizeParameter *p, int64_t height, int64_t width)
{
    float aspect = (float)width / (float)height;
    resized r = { .wide = (float)p->width, .tall = (float)p->height };
    bool lying = aspect > r.wide / r.tall;

    if (p->resize_mode == CT__RESIZE_PARAMETER__RESIZE_MODE__FIT_SMALL_SIZE) {
        if (aspect < r.wide / r.tall)
            r.tall = r.wide / aspect;
        else
            r.wide = aspect * r.tall;
    }
    if (p->resize_mode == CT__RESIZE_PARAMETER__RESIZE_MODE__FIT_LARGE_SIZE_AND_PAD) {
        if (lying)
            r.border[1] = (r.tall - r.wide / aspect) / 2;
        else
            r.border[0] = (r.wide - aspect * r.tall) / 2;
    }
    return r;
}

void ct_boxes_resize(ct_boxes *b, const Ct__ResizeParameter *p, int64_t height, int64_t width)
{
    resized r = resize(p, height, width);

    for (int64_t i = 0; i < b->n; i++) {
        float *c = corners(b, i);

        scale_axis(&c[0], &c[2], (float)width, r.wide - 2 * r.border[0], r.border[0], r.wide);
        scale_axis(&c[1], &c[3], (float)height, r.tall - 2 * r.border[1], r.border[1], r.tall);
    }
}

ct_image_part ct_boxes_resized_part(const Ct__ResizeParameter *p, int64_t height, int64_t width)
{
    resized r = resize(p, height, width);
    float x = r.border[0] / (r.wide - 2 * r.border[0]),
          y = r.border[1] / (r.tall - 2 * r.border[1]);

    return (ct_image_part){ { -x, -y, 1 + x, 1 + y } };
}

/* ---- batch samplers */

static bool is_range(double low, double high, double most)
{
    return (low > 0) && (low <= high) && (high <= most);
}

ct_status ct_boxes_check_samplers(const Ct__AnnotatedDataParameter *p, const char *who)
{
    enum { MOST_TRIALS = 100000 };

    for (size_t i = 0; i < p->n_batch_sampler; i++) {
        const Ct__BatchSampler *s = p->batch_sampler[i];
        const Ct__Sampler *r = s->sampler;

        if (s->max_trials > MOST_TRIALS)
            return CT_FAIL(CT_ERR_CONFIG,
                           "%s: annotated_data_param.batch_sampler[%zu].max_trials is %u, at most "
                           "%d",
                           who, i, s->max_trials, MOST_TRIALS);
        if ((r == NULL) ||
            (is_range((double)r->min_scale, (double)r->max_scale, 1) &&
             is_range((double)r->min_aspect_ratio, (double)r->max_aspect_ratio, 1e6)))
            continue;
        return CT_FAIL(CT_ERR_CONFIG,
                       "%s: annotated_data_param.batch_sampler[%zu].sampler: scale %g to %g, "
                       "aspect_ratio %g to %g: above 0, the first at most the second, scales at "
                       "most 1",
                       who, i, (double)r->min_scale, (double)r->max_scale,
                       (double)r->min_aspect_ratio, (double)r->max_aspect_ratio);
    }
    return CT_OK;
}

static ct_image_part draw_part(const Ct__Sampler *s, ct_draw *d)
{
    double scale = ct_draw_between(d, (s != NULL) ? (double)s->min_scale : 1,
                                   (s != NULL) ? (double)s->max_scale : 1);
    double aspect = ct_draw_between(d, (s != NULL) ? (double)s->min_aspect_ratio : 1,
                                    (s != NULL) ? (double)s->max_aspect_ratio : 1);
    double wide, tall, x, y;

    /* neither side is longer than the image's */
    aspect = fmin(fmax(aspect, scale * scale), 1 / (scale * scale));
    wide = fmin(scale * sqrt(aspect), 1);
    tall = fmin(scale / sqrt(aspect), 1);
    x = ct_draw_between(d, 0, 1 - wide);
    y = ct_draw_between(d, 0, 1 - tall);
    return (ct_image_part){ { (float)x, (float)y, (float)(x + wide), (float)(y + tall) } };
}

static bool between(float v, bool has_low, float low, bool has_high, float high)
{
    return (!has_low || (v >= low)) && (!has_high || (v <= high));
}

/* Whether an object meets a constraint. Of several kinds the first one that is given and not met
 * speaks against it; one that is met speaks for it. */
static bool meets(const Ct__SampleConstraint *c, const float *part, const float *box)
{
    float both = common(part, box), of_part = area(part), of_box = area(box);
    float all = of_part + of_box - both;

    if ((c->has_min_jaccard_overlap || c->has_max_jaccard_overlap) &&
        !between((all > 0) ? both / all : 0, c->has_min_jaccard_overlap, c->min_jaccard_overlap,
                 c->has_max_jaccard_overlap, c->max_jaccard_overlap))
        return false;
    if ((c->has_min_sample_coverage || c->has_max_sample_coverage) &&
        !between((of_part > 0) ? both / of_part : 0, c->has_min_sample_coverage,
                 c->min_sample_coverage, c->has_max_sample_coverage, c->max_sample_coverage))
        return false;
    return !(c->has_min_object_coverage || c->has_max_object_coverage) ||
           between((of_box > 0) ? both / of_box : 0, c->has_min_object_coverage,
                   c->min_object_coverage, c->has_max_object_coverage, c->max_object_coverage);
}

static bool is_constrained(const Ct__SampleConstraint *c)
{
    return (c != NULL) && (c->has_min_jaccard_overlap || c->has_max_jaccard_overlap ||
                           c->has_min_sample_coverage || c->has_max_sample_coverage ||
                           c->has_min_object_coverage || c->has_max_object_coverage);
}

static bool satisfies(const ct_boxes *b, const Ct__SampleConstraint *c, const ct_image_part *part)
{
    if (!is_constrained(c)) return true;
    for (int64_t i = 0; i < b->n; i++)
        if (meets(c, part->corner, corners(b, i))) return true;
    return false;
}

/* Of the parts found so far each is kept with the same chance: the n-th takes the place of the one
 * before with chance 1 / n. So no list of them is needed. The draws for that are a stream of their
 * own, behind all others. */
bool ct_boxes_sample(const ct_boxes *b, const Ct__AnnotatedDataParameter *p, ct_draw *d,
                     ct_image_part *part_p)
{
    ct_draw choice = ct_draw_begin(d->key, "choice", (int64_t)d->position);
    int64_t found = 0;

    for (size_t i = 0; i < p->n_batch_sampler; i++) {
        const Ct__BatchSampler *s = p->batch_sampler[i];
        uint32_t of_this = 0;

        if (!s->use_original_image) continue;
        for (uint32_t k = 0; k < s->max_trials; k++) {
            ct_image_part part;

            if (s->has_max_sample && (of_this >= s->max_sample)) break;
            part = draw_part(s->sampler, d);
            if (!satisfies(b, s->sample_constraint, &part)) continue;
            of_this++;
            if (ct_draw_below(&choice, ++found) == 0) *part_p = part;
        }
    }
    return found > 0;
}
