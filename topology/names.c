#include "topology/names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void ct_names_destroy(ct_machine_names *names)
{
    if (names == NULL) return;
    for (int i = 0; i < names->n_switch; ++i) free(names->sw[i].name);
    for (int i = 0; i < names->n_node; ++i) free(names->node[i]);
    free(names->sw);
    free(names->node);
    free(names->node_switch);
    free(names->sorted);
    free(names);
}

/* Room for one element more: capacity is n rounded up to a power of two, 8 at least. */
static ct_status grow(void **array, int n, size_t size)
{
    void *more = NULL;

    if ((n != 0) && ((n < 8) || ((n & (n - 1)) != 0))) return CT_OK;
    more = realloc(*array, size * (size_t)((n == 0) ? 8 : 2 * n));
    if (more == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %d names", n);
    *array = more;
    return CT_OK;
}

static ct_status copy_name(const char *name, char **copy_p)
{
    *copy_p = strdup(name);
    return (*copy_p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for the name %s", name);
}

ct_status ct_names_add_switch(ct_machine_names *names, const char *name, int level, int parent,
                              int *at_p)
{
    char *copy = NULL;

    CT_TRY(grow((void **)&names->sw, names->n_switch, sizeof(*names->sw)));
    CT_TRY(copy_name(name, &copy));
    *at_p = names->n_switch;
    names->sw[names->n_switch++] = (ct_named_switch){ copy, level, parent };
    return CT_OK;
}

ct_status ct_names_add_node(ct_machine_names *names, const char *name, int node_switch)
{
    char *copy = NULL;

    CT_TRY(grow((void **)&names->node, names->n_node, sizeof(*names->node)));
    CT_TRY(grow((void **)&names->node_switch, names->n_node, sizeof(*names->node_switch)));
    CT_TRY(copy_name(name, &copy));
    names->node[names->n_node] = copy;
    names->node_switch[names->n_node++] = node_switch;
    return CT_OK;
}

static int by_name(const void *a, const void *b, void *context)
{
    char *const *node = context;

    return strcmp(node[*(const int *)a], node[*(const int *)b]);
}

ct_status ct_names_close(ct_machine_names *names, int *twice_p)
{
    *twice_p = -1;
    names->sorted = malloc(sizeof(*names->sorted) * (size_t)(names->n_node + 1));
    if (names->sorted == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for %d names", names->n_node);
    for (int i = 0; i < names->n_node; ++i) names->sorted[i] = i;
    qsort_r(names->sorted, (size_t)names->n_node, sizeof(*names->sorted), by_name, names->node);
    for (int i = 1; i < names->n_node; ++i) {
        int a = names->sorted[i - 1], b = names->sorted[i];

        if (strcmp(names->node[a], names->node[b]) == 0) *twice_p = (a > b) ? a : b;
    }
    return CT_OK;
}

/* Of the names that start with name[0..length) and end there or at a dot: the first, or -1. */
static int find_label(const ct_machine_names *names, const char *name, size_t length)
{
    int low = 0, high = names->n_node;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (strncmp(names->node[names->sorted[middle]], name, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < names->n_node; ++low) {
        const char *node = names->node[names->sorted[low]];

        if (strncmp(node, name, length) != 0) break;
        if ((node[length] == '\0') || (node[length] == '.')) return names->sorted[low];
    }
    return -1;
}

int ct_names_find(const ct_machine_names *names, const char *node)
{
    size_t length = strcspn(node, ".");
    int at = find_label(names, node, strlen(node));

    if ((at >= 0) || (node[length] == '\0')) return at;
    at = find_label(names, node, length);
    /* n1.a is not n1.b */
    return ((at >= 0) && (strchr(names->node[at], '.') == NULL)) ? at : -1;
}

int ct_names_above(const ct_machine_names *names, int i, int level)
{
    int at = names->node_switch[i];

    if ((at < 0) || (names->sw[at].level > level)) return -1;
    while ((names->sw[at].parent >= 0) && (names->sw[names->sw[at].parent].level <= level))
        at = names->sw[at].parent;
    return at;
}

/* ---- lists as SLURM writes them */

enum { MAX_NAME = 255, MAX_BRACKETS = 4, MAX_DIGITS = 9, MAX_NAMES = 1 << 20 };

typedef struct expansion {
    const char *list, *what;
    ct_status (*each)(void *ctx, const char *name);
    void *ctx;
    char name[MAX_NAME + 1];
    int64_t n_name;
} expansion;

static ct_status fail(const expansion *e, const char *why, const char *at)
{
    return CT_FAIL(CT_ERR_CONFIG, "%s: node list \"%.200s\": %s at \"%.40s\"", e->what, e->list,
                   why, at);
}

/* The end of an element: its next comma outside of brackets, or the end of the list. */
static const char *element_end(const char *p)
{
    int depth = 0;

    for (; (*p != '\0') && ((*p != ',') || (depth > 0)); ++p) {
        if (*p == '[') depth += 1;
        if ((*p == ']') && (depth > 0)) depth -= 1;
    }
    return p;
}

static ct_status read_number(const expansion *e, const char **p, long *value_p, int *width_p)
{
    const char *start = *p;
    long v = 0;

    for (; isdigit((unsigned char)**p); ++*p) {
        if (*p - start >= MAX_DIGITS) return fail(e, "a number of too many digits", start);
        v = 10 * v + (**p - '0');
    }
    if (*p == start) return fail(e, "a number is missing", start);
    *value_p = v;
    *width_p = (int)(*p - start);
    return CT_OK;
}

static ct_status append(expansion *e, size_t *length, const char *text, size_t n)
{
    if (*length + n > MAX_NAME) return fail(e, "a name that is too long", text);
    memcpy(e->name + *length, text, n);
    *length += n;
    e->name[*length] = '\0';
    return CT_OK;
}

static ct_status expand(expansion *e, const char *p, const char *end, size_t length, int n_bracket);

/* One number, or a range of them, and what stands behind the brackets. */
static ct_status expand_range(expansion *e, const char **p, const char *behind, const char *end,
                              size_t length, int n_bracket)
{
    const char *start = *p;
    long first = 0, last = 0;
    int width = 0, last_width = 0;

    CT_TRY(read_number(e, p, &first, &width));
    last = first;
    if (**p == '-') {
        *p += 1;
        CT_TRY(read_number(e, p, &last, &last_width));
    }
    if (last < first) return fail(e, "a range that runs backwards", start);
    if (last - first >= MAX_NAMES) return fail(e, "too many names", start);
    for (long v = first; v <= last; ++v) {
        char number[24];
        size_t n = (size_t)snprintf(number, sizeof(number), "%0*ld", width, v), at = length;

        CT_TRY(append(e, &at, number, n));
        CT_TRY(expand(e, behind, end, at, n_bracket + 1));
    }
    return CT_OK;
}

/* Names that start with e->name[0..length) and go on with p[0..end). */
static ct_status expand(expansion *e, const char *p, const char *end, size_t length, int n_bracket)
{
    size_t plain = strcspn(p, "[]");
    const char *close = NULL;

    if (plain > (size_t)(end - p)) plain = (size_t)(end - p);
    CT_TRY(append(e, &length, p, plain));
    p += plain;
    if (p == end) {
        e->name[length] = '\0';
        if (++e->n_name > MAX_NAMES) return fail(e, "too many names", p);
        return e->each(e->ctx, e->name);
    }
    close = strchr(p, ']');
    if ((*p == ']') || (close == NULL) || (close > end)) return fail(e, "a lonely bracket", p);
    if (n_bracket == MAX_BRACKETS) return fail(e, "too many brackets", p);
    for (p += 1;; p += 1) {
        CT_TRY(expand_range(e, &p, close + 1, end, length, n_bracket));
        if (*p == ']') return CT_OK;
        if (*p != ',') return fail(e, "no number", p);
    }
}

ct_status ct_hostlist_each(const char *list, const char *what,
                           ct_status (*each)(void *ctx, const char *name), void *ctx)
{
    expansion e = { .list = list, .what = what, .each = each, .ctx = ctx };

    for (const char *p = list; *p != '\0';) {
        const char *end = element_end(p);

        if (end == p) return fail(&e, "an empty name", p);
        for (const char *c = p; c < end; ++c) {
            if (!isgraph((unsigned char)*c)) return fail(&e, "a character that no name has", c);
        }
        CT_TRY(expand(&e, p, end, 0, 0));
        p = end;
        if (*p == ',') {
            p += 1;
            if (*p == '\0') return fail(&e, "an empty name", ",");
        }
    }
    return CT_OK;
}

/* ---- a list of names */

/* Where the number at the end of a name starts; at its end where there is none that fits. */
static size_t number_at(const char *name)
{
    size_t n = strlen(name), at = n;

    while ((at > 0) && (n - at < MAX_DIGITS) && isdigit((unsigned char)name[at - 1])) at -= 1;
    return at;
}

static long number_of(const char *digits)
{
    long v = 0;

    for (; *digits != '\0'; ++digits) v = 10 * v + (*digits - '0');
    return v;
}

/* True where b's number, of the same width behind the same word, is one more. */
static bool follows(const char *a, const char *b)
{
    size_t at = number_at(a);

    return (a[at] != '\0') && (strlen(a) == strlen(b)) && (strncmp(a, b, at) == 0) &&
           (number_at(b) == at) && (number_of(b + at) == number_of(a + at) + 1);
}

static bool same_word(const char *a, const char *b)
{
    size_t at = number_at(a);

    return (a[at] != '\0') && (number_at(b) == at) && (b[at] != '\0') && (strncmp(a, b, at) == 0);
}

void ct_hostlist_add(ct_text *out, char *const *name, int n)
{
    for (int i = 0; i < n;) {
        int group = i + 1;
        size_t at = number_at(name[i]);

        while ((group < n) && same_word(name[i], name[group])) group += 1;
        if (i > 0) ct_text_add(out, ",");
        if (group == i + 1) {
            ct_text_add(out, "%s", name[i]);
            i = group;
            continue;
        }
        ct_text_add(out, "%.*s[", (int)at, name[i]);
        for (int first = i; i < group; first = i) {
            for (i += 1; (i < group) && follows(name[i - 1], name[i]);) i += 1;
            ct_text_add(out, "%s%s", name[first] + at, (i - first > 1) ? "-" : "");
            if (i - first > 1) ct_text_add(out, "%s", name[i - 1] + at);
            if (i < group) ct_text_add(out, ",");
        }
        ct_text_add(out, "]");
    }
}
