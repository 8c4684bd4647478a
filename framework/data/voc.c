/* Of XML as much as such files have: elements, texts, the five entities, comments. */
#include "framework/data/voc.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"

#define MOST_PIXELS 1e9 /* of a corner, which becomes a float */

enum { MAX_DEPTH = 32, MAX_NAME = 64, MAX_OBJECTS = 1 << 16 };

typedef struct xml {
    const char *path;
    char *at;
    int64_t line;
    int depth;
    char open[MAX_DEPTH][MAX_NAME]; /* names of the elements around `at`, outermost first */
    int64_t opened[MAX_DEPTH];      /* their lines */
    ct_voc *voc;
    bool seen[4]; /* corners of the object that is open */
} xml;

#define XML_FAIL(_x, _fmt, ...)                                                                    \
    CT_FAIL(CT_ERR_DATA, "%s:%lld: " _fmt, (_x)->path, (long long)(_x)->line, ##__VA_ARGS__)

/* Goes on to `to`, counting lines. */
static void go_to(xml *x, char *to)
{
    for (; x->at < to; x->at++) x->line += *x->at == '\n';
}

/* The text from `from` to `end`, its entities replaced, without blanks around it; in place. */
static ct_status take_text(const xml *x, char *from, char *end, char **text_p)
{
    static const struct {
        const char *name;
        char is;
    } entity[] = {
        { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' }
    };
    char *begin = from, *to = from;

    while (from < end) {
        size_t k = 0;

        if (*from != '&') {
            *to++ = *from++;
            continue;
        }
        while ((k < 5) && (strncmp(from, entity[k].name, strlen(entity[k].name)) != 0)) k++;
        if (k == 5) return XML_FAIL(x, "unknown entity \"%.12s\"", from);
        *to++ = entity[k].is;
        from += strlen(entity[k].name);
    }
    while ((to > begin) && isspace((unsigned char)to[-1])) to--;
    *to = '\0';
    *text_p = begin;
    while (isspace((unsigned char)**text_p)) ++*text_p;
    return CT_OK;
}

/* Whether the element that ends has this path. */
static bool is_path(const xml *x, int n, const char *const *path)
{
    if (x->depth != n) return false;
    for (int i = 0; i < n; i++)
        if (strcmp(x->open[i], path[i]) != 0) return false;
    return true;
}

#define IS(_x, ...)                                                                                \
    is_path(_x, (int)(sizeof((const char *[]){ __VA_ARGS__ }) / sizeof(char *)),                   \
            (const char *[]){ __VA_ARGS__ })

static ct_status read_number(const xml *x, const char *text, double *v_p)
{
    char *end;

    *v_p = strtod(text, &end);
    if ((end != text) && (*end == '\0') && isfinite(*v_p)) return CT_OK;
    return XML_FAIL(x, "<%s>: expected a number, found \"%.40s\"", x->open[x->depth - 1], text);
}

static ct_status read_size(const xml *x, const char *text, double *v_p)
{
    CT_TRY(read_number(x, text, v_p));
    if (*v_p >= 0) return CT_OK;
    return XML_FAIL(x, "<%s> is %g; expected 0 or more", x->open[x->depth - 1], *v_p);
}

static ct_status copy_text(const xml *x, const char *text, char **to)
{
    if (*to != NULL) return XML_FAIL(x, "a second <%s>", x->open[x->depth - 1]);
    if (*text == '\0') return XML_FAIL(x, "<%s> is empty", x->open[x->depth - 1]);
    for (const char *c = text; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c))
            return XML_FAIL(x, "<%s> has a line end or a control character within it",
                            x->open[x->depth - 1]);
    *to = strdup(text);
    return (*to != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "%s: no memory", x->path);
}

static ct_status begin_object(xml *x)
{
    ct_voc *v = x->voc;
    ct_voc_object *grown;

    if (v->n == MAX_OBJECTS) return XML_FAIL(x, "more than %d objects", MAX_OBJECTS);
    if ((v->n & (v->n - 1)) == 0) {
        grown = realloc(v->object, (size_t)(v->n > 0 ? 2 * v->n : 1) * sizeof(*grown));
        if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "%s: no memory", x->path);
        v->object = grown;
    }
    v->object[v->n++] = (ct_voc_object){ .line = x->line };
    memset(x->seen, 0, sizeof(x->seen));
    return CT_OK;
}

static ct_status end_object(const xml *x)
{
    static const char *const corner[4] = { "xmin", "ymin", "xmax", "ymax" };
    const ct_voc_object *o = &x->voc->object[x->voc->n - 1];

    if (o->name == NULL)
        return CT_FAIL(CT_ERR_DATA, "%s:%lld: the object has no <name>", x->path,
                       (long long)o->line);
    for (int i = 0; i < 4; i++)
        if (!x->seen[i])
            return CT_FAIL(CT_ERR_DATA, "%s:%lld: object \"%.60s\": its <bndbox> has no <%s>",
                           x->path, (long long)o->line, o->name, corner[i]);
    if ((o->corner[0] < o->corner[2]) && (o->corner[1] < o->corner[3])) return CT_OK;
    return CT_FAIL(CT_ERR_DATA,
                   "%s:%lld: object \"%.60s\": xmin %g, ymin %g, xmax %g, ymax %g: xmin must be "
                   "below xmax, ymin below ymax",
                   x->path, (long long)o->line, o->name, o->corner[0], o->corner[1], o->corner[2],
                   o->corner[3]);
}

/* The innermost element ends; text: what stands behind the last tag within it. */
static ct_status end_element(xml *x, const char *text)
{
    static const char *const corner[4] = { "xmin", "ymin", "xmax", "ymax" };
    ct_voc *v = x->voc;
    ct_voc_object *o = (v->n > 0) ? &v->object[v->n - 1] : NULL;
    double number;

    if (IS(x, "annotation", "filename")) return copy_text(x, text, &v->filename);
    if (IS(x, "annotation", "size", "width")) return read_size(x, text, &v->width);
    if (IS(x, "annotation", "size", "height")) return read_size(x, text, &v->height);
    if (o == NULL) return CT_OK; /* what follows is of an object */
    if (IS(x, "annotation", "object")) return end_object(x);
    if (IS(x, "annotation", "object", "name")) return copy_text(x, text, &o->name);
    if (IS(x, "annotation", "object", "difficult")) {
        CT_TRY(read_number(x, text, &number));
        o->difficult = number != 0;
    }
    for (int i = 0; i < 4; i++) {
        if (!IS(x, "annotation", "object", "bndbox", corner[i])) continue;
        x->seen[i] = true;
        CT_TRY(read_number(x, text, &o->corner[i]));
        if (fabs(o->corner[i]) <= MOST_PIXELS) return CT_OK;
        return XML_FAIL(x, "<%s> is %g; expected a pixel, up to %g", corner[i], o->corner[i],
                        MOST_PIXELS);
    }
    return CT_OK;
}

/* A tag's name ends. */
static size_t name_length(const char *s)
{
    return strcspn(s, " \t\r\n/>");
}

static ct_status close_tag(xml *x, char *begin, char *end)
{
    size_t n = name_length(begin + 2);
    char *from = x->at, *text;

    go_to(x, begin);
    if ((x->depth == 0) || (strlen(x->open[x->depth - 1]) != n) ||
        (strncmp(x->open[x->depth - 1], begin + 2, n) != 0))
        return XML_FAIL(x, "</%.*s> ends what does not begin%s%s", (int)(n < 40 ? n : 40),
                        begin + 2, (x->depth > 0) ? ": open is " : "",
                        (x->depth > 0) ? x->open[x->depth - 1] : "");
    CT_TRY(take_text(x, from, begin, &text));
    CT_TRY(end_element(x, text));
    go_to(x, end + 1);
    x->depth--;
    return CT_OK;
}

static ct_status open_tag(xml *x, char *begin, char *end)
{
    size_t n = name_length(begin + 1);
    bool whole = end[-1] == '/';

    go_to(x, begin);
    if ((n == 0) || (n >= MAX_NAME)) return XML_FAIL(x, "bad tag \"%.20s\"", begin);
    if (x->depth == MAX_DEPTH) return XML_FAIL(x, "elements are nested deeper than %d", MAX_DEPTH);
    memcpy(x->open[x->depth], begin + 1, n);
    x->open[x->depth][n] = '\0';
    x->opened[x->depth++] = x->line;
    if ((x->depth == 1) && (strcmp(x->open[0], "annotation") != 0))
        return XML_FAIL(x, "<%s>: expected <annotation>, as in PASCAL VOC's files", x->open[0]);
    if (IS(x, "annotation", "object")) CT_TRY(begin_object(x));
    go_to(x, end + 1);
    if (!whole) return CT_OK;
    CT_TRY(end_element(x, ""));
    x->depth--;
    return CT_OK;
}

/* Comments, declarations, instructions. */
static ct_status pass_over(xml *x, char *begin)
{
    bool comment = strncmp(begin, "<!--", 4) == 0;
    char *end = comment ? strstr(begin + 4, "-->") : strchr(begin, '>');

    if (end == NULL) {
        go_to(x, begin);
        return XML_FAIL(x, "\"%.12s\" does not end", begin);
    }
    go_to(x, end + (comment ? 3 : 1));
    return CT_OK;
}

ct_status ct_voc_parse(char *text, size_t n, const char *path, ct_voc *v)
{
    xml x = { .path = path, .at = text, .line = 1, .voc = v };
    char *begin;
    bool any = false;

    if (memchr(text, '\0', n) != NULL) return CT_FAIL(CT_ERR_DATA, "%s: not a text file", path);
    while ((begin = strchr(x.at, '<')) != NULL) {
        if ((begin[1] == '?') || (begin[1] == '!')) {
            CT_TRY(pass_over(&x, begin));
        } else {
            char *end = strchr(begin, '>');

            if (end == NULL) {
                go_to(&x, begin);
                return XML_FAIL(&x, "the tag \"%.20s\" does not end", begin);
            }
            CT_TRY((begin[1] == '/') ? close_tag(&x, begin, end) : open_tag(&x, begin, end));
            any = true;
        }
    }
    if (x.depth > 0)
        return CT_FAIL(CT_ERR_DATA, "%s:%lld: <%s> does not end", path,
                       (long long)x.opened[x.depth - 1], x.open[x.depth - 1]);
    return any ? CT_OK : CT_FAIL(CT_ERR_DATA, "%s: no <annotation> in it", path);
}

ct_status ct_voc_read(const char *path, ct_voc *v)
{
    char *text;
    size_t size;
    ct_status status;

    *v = (ct_voc){ 0 };
    CT_TRY(ct_settings_read(path, &text, &size));
    status = ct_voc_parse(text, size, path, v);
    free(text);
    if (status != CT_OK) ct_voc_release(v);
    return status;
}

void ct_voc_release(ct_voc *v)
{
    for (int64_t i = 0; i < v->n; i++) free(v->object[i].name);
    free(v->object);
    free(v->filename);
    *v = (ct_voc){ 0 };
}
