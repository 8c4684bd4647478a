#include "framework/data/label_count.h"

#include <stdlib.h>
#include <string.h>

#include "framework/base/log.h"
#include "framework/base/text.h"

enum { MAX_CLASS = 1 << 20, SHOWN = 20, UNEVEN = 10 };

static bool reserve(ct_label_count *c, int64_t label)
{
    int64_t size = (c->size > 0) ? c->size : 16;
    int64_t *grown;

    if (label < c->size) return true;
    while (size <= label) size *= 2;
    grown = realloc(c->n, (size_t)size * sizeof(*grown));
    if (grown == NULL) return false;
    memset(grown + c->size, 0, (size_t)(size - c->size) * sizeof(*grown));
    c->n = grown;
    c->size = size;
    return true;
}

void ct_label_count_add(ct_label_count *c, int64_t label)
{
    c->samples++;
    if (label < 0)
        c->negative++;
    else if ((label >= MAX_CLASS) || !reserve(c, label))
        c->large++;
    else
        c->n[label]++;
}

typedef struct summary {
    int64_t last, classes; /* largest label, classes that have samples */
    int64_t least, most;   /* classes with the fewest and most samples */
} summary;

static summary summarize(const ct_label_count *c)
{
    summary s = { .last = -1, .least = -1, .most = -1 };

    for (int64_t i = 0; i < c->size; i++) {
        if (c->n[i] == 0) continue;
        s.last = i;
        s.classes++;
        if ((s.least < 0) || (c->n[i] < c->n[s.least])) s.least = i;
        if ((s.most < 0) || (c->n[i] > c->n[s.most])) s.most = i;
    }
    return s;
}

/* The first classes that are (or are not) there, with their counts. */
static void list(const ct_label_count *c, const summary *s, bool there, ct_text *t)
{
    int n = 0;

    for (int64_t i = 0; i <= s->last; i++) {
        if ((c->n[i] > 0) != there) continue;
        if (n++ == SHOWN) {
            ct_text_add(t, ", …");
            return;
        }
        ct_text_add(t, (n > 1) ? ", %lld" : "%lld", (long long)i);
        if (there) ct_text_add(t, ": %lld", (long long)c->n[i]);
    }
}

static void warn_of(const ct_label_count *c, const summary *s, const char *of)
{
    ct_text t = { 0 };

    if (c->negative > 0)
        CT_WARN("%s: %lld labels are below 0: losses take them only as ignore_label", of,
                (long long)c->negative);
    /* numbers with more gaps than classes are no classes */
    if ((s->classes <= s->last) && (2 * s->classes > s->last)) {
        list(c, s, false, &t);
        CT_WARN("%s: no sample of class %s, though labels go up to %lld", of,
                (t.text != NULL) ? t.text : "", (long long)s->last);
        ct_text_destroy(&t);
    }
    if ((s->classes > 1) && (c->n[s->most] / UNEVEN > c->n[s->least])) {
        list(c, s, true, &t);
        CT_WARN("%s: the classes are uneven (samples of each: %s)", of,
                (t.text != NULL) ? t.text : "");
        ct_text_destroy(&t);
    }
}

void ct_label_count_report(const ct_label_count *c, const char *of, bool warn)
{
    summary s = summarize(c);

    if (s.classes > 0)
        CT_INFO("%s: %lld classes up to label %lld, of %lld (class %lld) to %lld (class %lld) "
                "samples",
                of, (long long)s.classes, (long long)s.last, (long long)c->n[s.least],
                (long long)s.least, (long long)c->n[s.most], (long long)s.most);
    if (warn) warn_of(c, &s, of);
}

void ct_label_count_release(ct_label_count *c)
{
    free(c->n);
    *c = (ct_label_count){ 0 };
}
