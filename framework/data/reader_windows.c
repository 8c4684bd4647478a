/* Windows of images, drawn at random: Caffe's WindowData.
 *
 * A global batch of G samples has (int)(G * fg_fraction) foreground windows, as in Caffe, spread
 * evenly over it, so that ranks have their part of both. Which window, and whether it is mirrored,
 * follows from (seed, position) alone. Ids: 2 * window + mirrored, background windows first.
 */
#include "framework/data/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/memory.h"
#include "framework/base/rng.h"
#include "framework/data/transform.h"
#include "framework/data/window_list.h"

typedef struct file_bytes {
    uint8_t *data; /* NULL: it could not be read */
    size_t size;
} file_bytes;

typedef struct windows_state {
    ct_window_rule rule;
    ct_window_list list;
    float *mean, mean_value[3]; /* mean: channels x mean_height x mean_width, or NULL */
    int64_t mean_height, mean_width;
    file_bytes *cache; /* of each image, or NULL */
} windows_state;

typedef struct windows_local {
    ct_image_buffer room;
    ct_sample_buffer cut, out;
} windows_local;

static const ct_window *window_of(const ct_reader *r, int64_t id)
{
    const windows_state *s = r->state;
    int64_t w = id / 2;

    return (w < s->list.back.n) ? &s->list.back.window[w]
                                : &s->list.fore.window[w - s->list.back.n];
}

static void windows_describe(const ct_reader *r, int64_t id, char *text, size_t size)
{
    const windows_state *s = r->state;
    const ct_window *w = window_of(r, id);

    snprintf(text, size, "%s (window of line %lld of %s)",
             ct_image_list_path(&s->list.images, w->image), (long long)w->line, r->source);
}

static int64_t windows_pick(const ct_reader *r, uint64_t seed, int64_t position, int64_t place,
                            int64_t global)
{
    const windows_state *s = r->state;
    int64_t n_fore = (int64_t)((float)global * s->rule.fg_fraction);
    bool fore = (place + 1) * n_fore / global > place * n_fore / global;
    ct_rng_block b =
        ct_rng_philox(ct_rng_key(seed, ct_rng_hash("window"), 0), 0, (uint64_t)position);
    uint64_t word = ((uint64_t)b.v[0] << 32) | b.v[1];
    int64_t n = fore ? s->list.fore.n : s->list.back.n;
    int64_t window = (int64_t)(word % (uint64_t)n) + (fore ? s->list.back.n : 0);

    return 2 * window + (s->rule.mirror && ((b.v[2] >> 31) != 0));
}

/* For a broken image: the next window of its kind that is of another image, or just the next. */
static int64_t windows_next(const ct_reader *r, int64_t id)
{
    const windows_state *s = r->state;
    int64_t w = id / 2, back = s->list.back.n;
    int64_t first = (w < back) ? 0 : back, n = (w < back) ? back : s->list.fore.n;
    int32_t image = window_of(r, id)->image;
    int64_t at = w - first;

    for (int64_t i = 0; i < n; i++) {
        at = (at + 1) % n;
        if (window_of(r, 2 * (first + at))->image != image) break;
    }
    return 2 * (first + at) + id % 2;
}

/* ---- one window */

static ct_status load(const ct_reader *r, windows_local *l, int32_t i, ct_image *image_p,
                      ct_why *why)
{
    const windows_state *s = r->state;
    ct_color color = (s->list.channels == 1) ? CT_COLOR_GRAY : CT_COLOR_BGR;

    if ((s->cache == NULL) || (s->cache[i].data == NULL))
        return ct_image_load(&s->list.images, i, color, 0, 0, &l->room, image_p, why);
    return ct_image_decode(s->cache[i].data, s->cache[i].size, color, &l->room.decoded, image_p,
                           why);
}

static ct_status cut_out(windows_local *l, const ct_image *from, const ct_box *box, ct_image *cut_p)
{
    int64_t height = box->y2 - box->y1 + 1, width = box->x2 - box->x1 + 1, c = from->channels;

    CT_TRY(ct_sample_buffer_reserve(&l->cut, (size_t)(height * width * c)));
    for (int64_t y = 0; y < height; y++) {
        memcpy(l->cut.data + y * width * c,
               from->data + ((box->y1 + y) * from->width + box->x1) * c, (size_t)(width * c));
    }
    *cut_p = (ct_image){ l->cut.data, height, width, (int)c };
    return CT_OK;
}

/* The mean of a place of the crop: the middle of the mean image, by its width, as in Caffe. */
static float mean_at(const windows_state *s, int c, int64_t y, int64_t x)
{
    int64_t off = (s->mean_width - s->rule.crop) / 2;

    if (s->mean == NULL) return s->mean_value[c];
    return s->mean[(c * s->mean_height + y + off) * s->mean_width + x + off];
}

static void put(const windows_state *s, const ct_image *from, const ct_warp *w, bool mirrored,
                float *out)
{
    int64_t crop = s->rule.crop;

    for (int c = 0; c < from->channels; c++) {
        for (int64_t y = 0; y < from->height; y++) {
            const uint8_t *row = from->data + y * from->width * from->channels + c;
            float *to = out + (c * crop + w->top + y) * crop + w->left;

            for (int64_t x = 0; x < from->width; x++) {
                int64_t at = mirrored ? from->width - 1 - x : x;

                to[x] = ((float)row[at * from->channels] - mean_at(s, c, w->top + y, w->left + x)) *
                        s->rule.scale;
            }
        }
    }
}

static ct_status make(const ct_reader *r, windows_local *l, int64_t id, ct_why *why)
{
    const windows_state *s = r->state;
    const ct_window *window = window_of(r, id);
    size_t bytes = (size_t)ct_shape_count(&r->field[0], 0, -1) * sizeof(float);
    bool mirrored = id % 2 != 0;
    ct_image image;
    ct_warp warp;
    ct_status status = ct_sample_buffer_reserve(&l->out, bytes);

    if (status != CT_OK) return CT_WHY(why, status, "no memory for a window");
    memset(l->out.data, 0, bytes);
    CT_TRY(load(r, l, window->image, &image, why));
    CT_TRY(ct_window_warp(&s->rule, &window->box, image.height, image.width, mirrored, &warp, why));
    if ((warp.height == 0) || (warp.width == 0)) return CT_OK;
    status = cut_out(l, &image, &warp.from, &image);
    if (status == CT_OK)
        status = ct_image_resize(&image, warp.height, warp.width, &l->room.resized, &image);
    if (status != CT_OK) return CT_WHY(why, status, "no memory for a window");
    put(s, &image, &warp, mirrored, (float *)(void *)l->out.data);
    return CT_OK;
}

static ct_status windows_read(const ct_reader *r, void *local, int64_t id, ct_sample *sample)
{
    windows_local *l = local;
    ct_why why;
    ct_status status = make(r, l, id, &why);

    if (status != CT_OK) return ct_reader_bad(r, id, sample, status, &why);
    sample->u8 = NULL;
    sample->f32 = (const float *)(const void *)l->out.data;
    sample->shape = r->field[0];
    if (r->n_field > 1) sample->rest[0] = (float)window_of(r, id)->label;
    return CT_OK;
}

/* ---- opening */

static ct_status read_mean(ct_reader *r)
{
    windows_state *s = r->state;
    const ct_window_rule *rule = &s->rule;
    ct_shape shape;

    if ((rule->n_mean_value > 1) && (rule->n_mean_value != (size_t)s->list.channels))
        return CT_READER_FAIL(r, CT_ERR_CONFIG,
                              "%zu mean_value for %d channels: give one, or one each",
                              rule->n_mean_value, s->list.channels);
    for (int c = 0; (rule->n_mean_value > 0) && (c < s->list.channels); c++)
        s->mean_value[c] = rule->mean_value[(rule->n_mean_value > 1) ? c : 0];
    if (rule->mean_file == NULL) return CT_OK;
    CT_TRY(ct_mean_read(rule->mean_file, r->who, &shape, &s->mean));
    s->mean_height = shape.dim[1];
    s->mean_width = shape.dim[2];
    if ((shape.dim[0] != s->list.channels) || (s->mean_width < rule->crop) ||
        ((s->mean_width - rule->crop) / 2 + rule->crop > s->mean_height))
        return CT_READER_FAIL(
            r, CT_ERR_CONFIG, "mean_file %s is %s, too small for %d channels and crop_size %lld",
            rule->mean_file, ct_shape_str(&shape).text, s->list.channels, (long long)rule->crop);
    return CT_OK;
}

/* A file that cannot be read is found again, and named, when a window of it is. */
static ct_status fill_cache(ct_reader *r)
{
    windows_state *s = r->state;
    int64_t n = s->list.images.count;
    ct_image_buffer room = { 0 };
    bool good = true;
    ct_why why;

    s->cache = calloc((size_t)n, sizeof(*s->cache));
    good = s->cache != NULL;
    for (int64_t i = 0; (i < n) && good; i++) {
        size_t size;

        if (ct_image_list_bytes(&s->list.images, i, &room, &size, &why) != CT_OK) continue;
        s->cache[i] = (file_bytes){ malloc(size + 1), size };
        good = s->cache[i].data != NULL;
        if (good) memcpy(s->cache[i].data, room.file.data, size);
    }
    ct_image_room_release(&room);
    return good ? CT_OK
                : CT_READER_FAIL(r, CT_ERR_NOMEM, "no memory for the images of %s (cache_images)",
                                 r->source);
}

/* As in Caffe, so that one sees what the thresholds made of the file. */
static void log_counts(const ct_reader *r)
{
    const ct_window_list *list = &((const windows_state *)r->state)->list;
    int32_t least = INT32_MAX, most = 0;

    for (int64_t i = 0; i < list->fore.n; i++) {
        int32_t label = list->fore.window[i].label;

        least = (label < least) ? label : least;
        most = (label > most) ? label : most;
    }
    CT_INFO(
        "%s: %lld images; %lld foreground windows of classes %d to %d, %lld background windows, "
        "%lld of neither",
        r->source, (long long)list->images.count, (long long)list->fore.n,
        (list->fore.n > 0) ? (int)least : 0, (int)most, (long long)list->back.n,
        (long long)list->n_between);
}

static ct_status windows_open(ct_reader *r, const ct_reader_options *o)
{
    windows_state *s = r->state;

    s->rule = *o->window;
    if (o->n_field > 2)
        return CT_READER_FAIL(r, CT_ERR_CONFIG, "windows give data and label, not %d tops",
                              o->n_field);
    if (access(r->source, R_OK) != 0)
        return CT_READER_FAIL(r, CT_ERR_IO, "cannot open %s: %s", r->source,
                              ct_path_why(r->source, errno).text);
    CT_TRY(ct_window_list_read(&s->list, r->source, o->root_folder, &s->rule, r->who));
    log_counts(r);
    if ((s->list.fore.n == 0) && (s->rule.fg_fraction > 0))
        return CT_READER_FAIL(r, CT_ERR_DATA, "%s has no foreground window (fg_threshold %g)",
                              r->source, (double)s->rule.fg_threshold);
    if ((s->list.back.n == 0) && (s->rule.fg_fraction < 1))
        return CT_READER_FAIL(r, CT_ERR_DATA, "%s has no background window (bg_threshold %g)",
                              r->source, (double)s->rule.bg_threshold);
    r->count = s->list.fore.n + s->list.back.n;
    r->n_field = o->n_field;
    r->field[0] = (ct_shape){ 3, { s->list.channels, s->rule.crop, s->rule.crop } };
    r->same_shape = true;
    CT_TRY(read_mean(r));
    return s->rule.cache ? fill_cache(r) : CT_OK;
}

static void windows_close(ct_reader *r)
{
    windows_state *s = r->state;

    for (int64_t i = 0; (s->cache != NULL) && (i < s->list.images.count); i++)
        free(s->cache[i].data);
    free(s->cache);
    ct_mem_release(s->mean);
    ct_window_list_release(&s->list);
}

static void windows_local_release(void *local)
{
    windows_local *l = local;

    ct_image_room_release(&l->room);
    ct_sample_buffer_release(&l->cut);
    ct_sample_buffer_release(&l->out);
}

const ct_reader_ops ct_reader_windows = {
    .name = "windows",
    .open = windows_open,
    .close = windows_close,
    .local_size = sizeof(windows_local),
    .local_release = windows_local_release,
    .read = windows_read,
    .describe = windows_describe,
    .pick = windows_pick,
    .next = windows_next,
    .state_size = sizeof(windows_state),
};
