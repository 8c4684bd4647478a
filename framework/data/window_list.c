#include "framework/data/window_list.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"

enum { MAX_PLACE = 1 << 20 };

typedef struct scan {
    char *at;
    int64_t line, word_line; /* where the scan is; of the word it gave last */
    const char *path, *who;
    const ct_window_rule *rule;
    ct_window_list *list;
} scan;

#define SCAN_FAIL(_s, _fmt, ...)                                                                   \
    CT_FAIL(CT_ERR_DATA, "%s: %s:%lld: " _fmt, (_s)->who, (_s)->path, (long long)(_s)->word_line,  \
            ##__VA_ARGS__)

/* The next word, ended in place; NULL at the end. */
static char *next_word(scan *s)
{
    char *word;

    while (isspace((unsigned char)*s->at)) s->line += (*s->at++ == '\n');
    s->word_line = s->line;
    if (*s->at == '\0') return NULL;
    word = s->at;
    while ((*s->at != '\0') && !isspace((unsigned char)*s->at)) s->at++;
    if (*s->at != '\0') {
        s->line += (*s->at == '\n');
        *s->at++ = '\0';
    }
    return word;
}

static ct_status read_whole(scan *s, const char *what, long least, long most, long *value_p)
{
    const char *word = next_word(s);
    char *end = NULL;

    if (word == NULL) return SCAN_FAIL(s, "the file ends where %s should stand", what);
    errno = 0;
    *value_p = strtol(word, &end, 10);
    if ((end == word) || (*end != '\0') || (errno != 0) || (*value_p < least) ||
        (*value_p > most)) {
        return SCAN_FAIL(s, "expected %s, a whole number from %ld to %ld, found \"%.80s\"", what,
                         least, most, word);
    }
    return CT_OK;
}

static ct_status read_overlap(scan *s, float *value_p)
{
    const char *word = next_word(s);
    char *end = NULL;

    if (word == NULL) return SCAN_FAIL(s, "the file ends where an overlap should stand");
    *value_p = strtof(word, &end);
    if ((end == word) || (*end != '\0') || !isfinite(*value_p))
        return SCAN_FAIL(s, "expected an overlap, a number, found \"%.80s\"", word);
    return CT_OK;
}

static ct_status add_window(scan *s, ct_windows *to, const ct_window *window)
{
    if (to->n == to->capacity) {
        int64_t capacity = (to->capacity > 0) ? 2 * to->capacity : 1024;
        ct_window *grown = realloc(to->window, (size_t)capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %s", s->who, s->path);
        to->window = grown;
        to->capacity = capacity;
    }
    to->window[to->n++] = *window;
    return CT_OK;
}

static ct_status read_window(scan *s, int32_t image)
{
    static const char *const name[4] = { "x1", "y1", "x2", "y2" };
    ct_window w = { .image = image };
    long label, v[4];
    float overlap;

    CT_TRY(read_whole(s, "the class of a window", INT32_MIN, INT32_MAX, &label));
    w.line = s->word_line;
    CT_TRY(read_overlap(s, &overlap));
    for (int i = 0; i < 4; i++) CT_TRY(read_whole(s, name[i], -MAX_PLACE, MAX_PLACE, &v[i]));
    if ((v[2] < v[0]) || (v[3] < v[1]))
        return SCAN_FAIL(s, "a window from %ld %ld to %ld %ld: expected x1 y1 x2 y2 in this order",
                         v[0], v[1], v[2], v[3]);
    w.box = (ct_box){ (int32_t)v[0], (int32_t)v[1], (int32_t)v[2], (int32_t)v[3] };
    if (overlap >= s->rule->fg_threshold) {
        if (label < 1)
            return SCAN_FAIL(s, "class %ld of a foreground window (overlap %g); 0 is background",
                             label, (double)overlap);
        w.label = (int32_t)label;
        return add_window(s, &s->list->fore, &w);
    }
    if (overlap < s->rule->bg_threshold) return add_window(s, &s->list->back, &w);
    s->list->n_between++;
    return CT_OK;
}

static ct_status add_image(scan *s, const char *path, int64_t line)
{
    ct_image_list *images = &s->list->images;

    if ((images->count & (images->count - 1)) == 0) { /* room for the next power of two */
        size_t capacity = (images->count > 0) ? 2 * (size_t)images->count : 1;
        ct_image_entry *grown = realloc(images->entry, capacity * sizeof(*grown));

        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %s", s->who, s->path);
        images->entry = grown;
    }
    images->entry[images->count++] =
        (ct_image_entry){ .path = (size_t)(path - images->text), .line = line };
    return CT_OK;
}

/* What stands behind "#". */
static ct_status read_image(scan *s)
{
    int64_t n = s->list->images.count;
    long number, channels, height, width, n_window;
    const char *path;

    CT_TRY(read_whole(s, "the number of an image", 0, INT32_MAX, &number));
    if (number != n)
        return SCAN_FAIL(s, "image %ld: images are numbered from 0 in their order, this is %lld",
                         number, (long long)n);
    path = next_word(s);
    if (path == NULL) return SCAN_FAIL(s, "the file ends where a path should stand");
    CT_TRY(add_image(s, path, s->word_line));
    CT_TRY(read_whole(s, "the channels of an image", 1, 4, &channels));
    if ((channels != 1) && (channels != 3))
        return SCAN_FAIL(s, "an image of %ld channels: 3 or 1", channels);
    if (n == 0) s->list->channels = (int)channels;
    if (channels != s->list->channels)
        return SCAN_FAIL(s, "an image of %ld channels, the first has %d", channels,
                         s->list->channels);
    CT_TRY(read_whole(s, "the height of an image", 1, MAX_PLACE, &height));
    CT_TRY(read_whole(s, "the width of an image", 1, MAX_PLACE, &width));
    CT_TRY(read_whole(s, "the number of windows", 0, INT32_MAX, &n_window));
    for (long i = 0; i < n_window; i++) CT_TRY(read_window(s, (int32_t)number));
    return CT_OK;
}

static ct_status read_all(scan *s)
{
    for (const char *word = next_word(s); word != NULL; word = next_word(s)) {
        if (strcmp(word, "#") != 0)
            return SCAN_FAIL(s, "expected \"#\" and the number of an image, found \"%.80s\"", word);
        CT_TRY(read_image(s));
    }
    if (s->list->images.count == 0)
        return CT_FAIL(CT_ERR_DATA, "%s: %s lists no image", s->who, s->path);
    return CT_OK;
}

ct_status ct_window_list_parse(ct_window_list *list, char *text, size_t size, const char *path,
                               const char *root, const ct_window_rule *rule, const char *who)
{
    scan s = { .at = text, .line = 1, .path = path, .who = who, .rule = rule, .list = list };
    ct_status status;

    *list = (ct_window_list){ .images = { .text = text } };
    list->images.root = strdup((root != NULL) ? root : "");
    if (list->images.root == NULL)
        status = CT_FAIL(CT_ERR_NOMEM, "%s: no memory for %s", who, path);
    else if (memchr(text, '\0', size) != NULL)
        status = CT_FAIL(CT_ERR_DATA, "%s: %s: not a text file", who, path);
    else
        status = read_all(&s);
    if (status != CT_OK) ct_window_list_release(list);
    return status;
}

ct_status ct_window_list_read(ct_window_list *list, const char *path, const char *root,
                              const ct_window_rule *rule, const char *who)
{
    char *text;
    size_t size;

    *list = (ct_window_list){ 0 };
    CT_TRY(ct_file_read(path, &text, &size));
    return ct_window_list_parse(list, text, size, path, root, rule, who);
}

void ct_window_list_release(ct_window_list *list)
{
    ct_image_list_release(&list->images);
    free(list->back.window);
    free(list->fore.window);
    *list = (ct_window_list){ 0 };
}

/* ---- the geometry of Caffe's WindowData layer, in its floats: its rounding decides about pixels
 */

/* One axis of a window. */
typedef struct span {
    int64_t first, last;    /* of the image's pixels */
    int64_t size;           /* resized to            */
    int64_t before, behind; /* places of the crop that the image does not reach */
} span;

static float half_size(int32_t first, int32_t last)
{
    return (float)((int64_t)last - first + 1) / 2.0f;
}

/* `half` to both sides of the middle of [first, last], times the context. */
static span widen(const ct_window_rule *rule, int32_t first, int32_t last, float half, int64_t n)
{
    float middle = (float)first + half_size(first, last);
    float context = (float)rule->crop / (float)(rule->crop - 2 * rule->context_pad);
    float reach = half * context;
    span s = { .first = (int64_t)roundf(middle - reach), .last = (int64_t)roundf(middle + reach) };
    float scale = (float)rule->crop / (float)(s.last - s.first + 1);

    s.before = (s.first < 0) ? -s.first : 0;
    s.behind = (s.last > n - 1) ? s.last - n + 1 : 0;
    s.first += s.before;
    s.last -= s.behind;
    s.size = (int64_t)roundf((float)(s.last - s.first + 1) * scale);
    s.before = (int64_t)roundf((float)s.before * scale);
    s.behind = (int64_t)roundf((float)s.behind * scale);
    return s;
}

/* Roundings may add up to more than the crop. */
static int64_t fit(int64_t size, int64_t at, int64_t crop)
{
    if (size > crop - at) size = crop - at;
    return (size > 0) ? size : 0;
}

ct_status ct_window_warp(const ct_window_rule *rule, const ct_box *box, int64_t height,
                         int64_t width, bool mirrored, ct_warp *warp_p, ct_why *why)
{
    span x = { box->x1, box->x2, rule->crop, 0, 0 }, y = { box->y1, box->y2, rule->crop, 0, 0 };

    if ((rule->context_pad > 0) || rule->square) {
        float half_x = half_size(box->x1, box->x2), half_y = half_size(box->y1, box->y2);

        if (rule->square) half_x = half_y = (half_x > half_y) ? half_x : half_y;
        x = widen(rule, box->x1, box->x2, half_x, width);
        y = widen(rule, box->y1, box->y2, half_y, height);
    }
    if ((x.first < 0) || (y.first < 0) || (x.last >= width) || (y.last >= height) ||
        (x.first > x.last) || (y.first > y.last)) {
        return CT_WHY(why, CT_ERR_DATA,
                      "the window %d %d %d %d lies outside of the image, which is %lld wide and "
                      "%lld high",
                      (int)box->x1, (int)box->y1, (int)box->x2, (int)box->y2, (long long)width,
                      (long long)height);
    }
    warp_p->from = (ct_box){ (int32_t)x.first, (int32_t)y.first, (int32_t)x.last, (int32_t)y.last };
    warp_p->top = y.before;
    warp_p->left = mirrored ? x.behind : x.before;
    warp_p->height = fit(y.size, warp_p->top, rule->crop);
    warp_p->width = fit(x.size, warp_p->left, rule->crop);
    return CT_OK;
}
