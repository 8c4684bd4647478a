/* `repeat { count prefix bottom top layer { … } }` stands for its layers `count` times. It is
 * expanded where it closes in the text: only there the order of layers and repeats is known, since
 * a message keeps fields of two names apart. So whoever reads a text sees layers alone.
 *
 * Within a copy a blob is one of three. The one called `bottom`, until a layer of the copy makes
 * one of that name, is what the copy before handed on. What a layer of the copy has made gets the
 * prefix. Everything else is from outside, and keeps its name.
 *
 * What the last copy hands on is called `top`, for whoever stands behind. Where a blob is called so
 * already, as with `bottom: "x" top: "x"`, two layers would make one name. There it keeps its
 * prefix, and the bottoms of the layers that follow are changed to that name. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "framework/proto/cortado.pb-c.h"
#include "framework/proto/reader.h"

enum { MOST_LAYERS = 65536 };          /* that all repeats of a text make; nets have thousands */
#define MOST_BYTES (UINT64_C(1) << 28) /* of them, packed */

struct ct_alias {
    const ct_frame *scope; /* the message for whose fields it holds, from where it is made on */
    char *name, *real;
};

typedef enum { OUTSIDE, HANDED_ON, MADE } bottom_kind;

typedef struct expansion {
    ct_prototxt_reader *r;
    const Ct__RepeatParameter *from;
    ProtobufCMessage *to;                   /* a net or a repeat around */
    const ProtobufCFieldDescriptor *layers; /* its field                */
    const char *number;                     /* "%d" in the prefix; NULL: there is none */
    const char *top;                        /* what the layers call what they hand on  */
    bool keeps_name;                        /* the last copy's is called from->top     */
    unsigned char *kind;                    /* of all bottoms, in order                */
    char *handed_on;                        /* by the copy before; of the first: from outside */
} expansion;

/* ---- aliases */

static const char *real_name(const ct_prototxt_reader *r, const ct_frame *scope, const char *name)
{
    for (int i = r->n_alias - 1; i >= 0; i--) {
        if ((r->alias[i].scope == scope) && (strcmp(r->alias[i].name, name) == 0))
            return r->alias[i].real;
    }
    return name;
}

static ct_status add_alias(ct_prototxt_reader *r, const ct_frame *scope, const char *name,
                           const char *real)
{
    ct_alias *grown = realloc(r->alias, (size_t)(r->n_alias + 1) * sizeof(*grown)), *a;

    if (grown == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    r->alias = grown;
    a = &grown[r->n_alias++];
    *a = (ct_alias){ scope, strdup(name), strdup(real) };
    if ((a->name != NULL) && (a->real != NULL)) return CT_OK;
    return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
}

void ct_repeat_leave(ct_prototxt_reader *r, const ct_frame *scope)
{
    while ((r->n_alias > 0) && ((scope == NULL) || (r->alias[r->n_alias - 1].scope == scope))) {
        ct_alias *a = &r->alias[--r->n_alias];

        free(a->name);
        free(a->real);
    }
    if (scope == NULL) free(r->alias);
}

static ct_status rename_to(char **name, const char *to)
{
    char *copy = strdup(to);

    if (copy == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    free(*name);
    *name = copy;
    return CT_OK;
}

/* A layer that stands behind repeats: of its tops only those in place are meant by the alias. */
static ct_status use_aliases(ct_prototxt_reader *r, Ct__LayerParameter *l)
{
    const ct_frame *scope = r->frame->parent;

    for (size_t t = 0; (r->n_alias > 0) && (t < l->n_top) && (t < l->n_bottom); t++) {
        const char *real = real_name(r, scope, l->top[t]);

        if ((strcmp(l->top[t], l->bottom[t]) == 0) && (real != l->top[t]))
            CT_TRY(rename_to(&l->top[t], real));
    }
    for (size_t b = 0; (r->n_alias > 0) && (b < l->n_bottom); b++) {
        const char *real = real_name(r, scope, l->bottom[b]);

        if (real != l->bottom[b]) CT_TRY(rename_to(&l->bottom[b], real));
    }
    return CT_OK;
}

/* ---- a set of names that others own; open addressing */

typedef struct name_set {
    const char **name;
    size_t capacity; /* a power of two, more than twice the names */
} name_set;

static ct_status name_set_open(name_set *set, size_t most)
{
    set->capacity = 4;
    while (set->capacity <= 2 * most) set->capacity *= 2;
    set->name = calloc(set->capacity, sizeof(set->name[0]));
    return (set->name != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for %zu names", most);
}

/* Where it is, or would be. */
static const char **name_slot(const name_set *set, const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    size_t i;

    for (const char *c = name; *c != '\0'; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    i = (size_t)(h ^ (h >> 32)) & (set->capacity - 1);
    while ((set->name[i] != NULL) && (strcmp(set->name[i], name) != 0))
        i = (i + 1) & (set->capacity - 1);
    return &set->name[i];
}

/* ---- what is wrong with one */

/* At `field`, where its place is known, else at the repeat. */
static ct_status fail(const expansion *e, const void *field, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static ct_status fail(const expansion *e, const void *field, const char *fmt, ...)
{
    const ct_frame *frame = e->r->frame;
    ct_place place = ct_source_map_find(e->r->map, field);
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (place.line == 0) place = (ct_place){ "", frame->line, frame->column };
    return ct_prototxt_reader_fail_at(e->r, place.line, place.column, "repeat: %s", text);
}

static ct_status check_prefix(expansion *e)
{
    const Ct__RepeatParameter *from = e->from;
    const char *prefix = (from->prefix != NULL) ? from->prefix : "";
    const char *percent = strchr(prefix, '%');

    if ((percent != NULL) && ((percent[1] != 'd') || (strchr(percent + 1, '%') != NULL)))
        return fail(e, &from->prefix,
                    "prefix \"%s\": \"%%\" stands there once, as \"%%d\", for the number of the "
                    "copy",
                    prefix);
    if ((percent == NULL) && (from->count > 1))
        return fail(e, &from->prefix,
                    "prefix \"%s\": %" PRId32 " copies need \"%%d\" in it, for their number",
                    prefix, from->count);
    e->number = percent;
    return CT_OK;
}

static ct_status check_size(expansion *e)
{
    const Ct__RepeatParameter *from = e->from;
    ct_prototxt_reader *r = e->r;
    uint64_t bytes = protobuf_c_message_get_packed_size(&from->base);

    if (from->count < 1)
        return fail(e, &from->count, "count is %" PRId32 ", and must be at least 1", from->count);
    if (from->n_layer == 0) return fail(e, NULL, "there is no layer in it");
    if ((uint64_t)from->count > (MOST_LAYERS - r->n_copied) / from->n_layer)
        return fail(e, &from->count,
                    "%" PRId32 " copies of %zu layers are too many: the repeats of a file make at "
                    "most %d",
                    from->count, from->n_layer, (int)MOST_LAYERS);
    if ((uint64_t)from->count > (MOST_BYTES - r->copied_bytes) / bytes)
        return fail(e, &from->count,
                    "%" PRId32 " copies of %" PRIu64 " bytes are too many: the repeats of a file "
                    "make at most %" PRIu64,
                    from->count, bytes, MOST_BYTES);
    r->n_copied += (size_t)from->count * from->n_layer;
    r->copied_bytes += (uint64_t)from->count * bytes;
    return CT_OK;
}

/* No layer has the blob `name` as a bottom (what: "reads") or as a top ("makes"). */
static ct_status fail_unused(const expansion *e, const void *field, const char *what,
                             const char *name)
{
    enum { MOST = 64 };
    const char *known[MOST], *near;
    int n = 0;

    for (size_t i = 0; i < e->from->n_layer; i++) {
        const Ct__LayerParameter *l = e->from->layer[i];
        bool reads = (what[0] == 'r');

        for (size_t k = 0; (k < (reads ? l->n_bottom : l->n_top)) && (n < MOST); k++)
            known[n++] = reads ? l->bottom[k] : l->top[k];
    }
    near = ct_text_nearest(name, known, n);
    return fail(e, field, "no layer in it %s \"%s\"%s%s%s", what, name,
                (near != NULL) ? "; did you mean \"" : "", (near != NULL) ? near : "",
                (near != NULL) ? "\"?" : "");
}

/* ---- one copy */

/* What each bottom is. */
static ct_status find_kinds(expansion *e)
{
    const Ct__RepeatParameter *from = e->from;
    size_t n_bottom = 0, n_top = 0, at = 0;
    name_set made;
    bool reads = false, makes;

    for (size_t i = 0; i < from->n_layer; i++) {
        n_bottom += from->layer[i]->n_bottom;
        n_top += from->layer[i]->n_top;
    }
    e->kind = calloc(n_bottom + 1, sizeof(e->kind[0]));
    if (e->kind == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bottoms", n_bottom);
    CT_TRY(name_set_open(&made, n_top));
    for (size_t i = 0; i < from->n_layer; i++) {
        const Ct__LayerParameter *l = from->layer[i];

        for (size_t b = 0; b < l->n_bottom; b++) {
            bottom_kind kind = (strcmp(l->bottom[b], from->bottom) == 0) ? HANDED_ON : OUTSIDE;

            if (*name_slot(&made, l->bottom[b]) != NULL) kind = MADE;
            reads |= (kind == HANDED_ON);
            e->kind[at++] = (unsigned char)kind;
        }
        for (size_t t = 0; t < l->n_top; t++) *name_slot(&made, l->top[t]) = l->top[t];
    }
    makes = (*name_slot(&made, e->top) != NULL);
    free(made.name);
    if (!reads) return fail_unused(e, &from->bottom, "reads", from->bottom);
    return makes ? CT_OK : fail_unused(e, &from->top, "makes", from->top);
}

/* The name with the prefix of a copy; freed with free(). */
static ct_status make_name(const expansion *e, int copy, const char *name, char **name_p)
{
    const char *prefix = (e->from->prefix != NULL) ? e->from->prefix : "";
    ct_text t = { 0 };

    if (e->number != NULL)
        ct_text_add(&t, "%.*s%d%s%s", (int)(e->number - prefix), prefix, copy, e->number + 2, name);
    else
        ct_text_add(&t, "%s%s", prefix, name);
    if (t.failed) {
        ct_text_destroy(&t);
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    }
    *name_p = t.text;
    return CT_OK;
}

static ct_status add_prefix(const expansion *e, int copy, char **name)
{
    char *made;

    CT_TRY(make_name(e, copy, *name, &made));
    free(*name);
    *name = made;
    return CT_OK;
}

/* kind: of its bottoms. */
static ct_status rename_layer(const expansion *e, int copy, const unsigned char *kind,
                              Ct__LayerParameter *l)
{
    const ct_frame *outside = e->r->frame->parent;
    bool is_last = (copy == e->from->count - 1);

    if (l->name != NULL) CT_TRY(add_prefix(e, copy, &l->name));
    for (size_t k = 0; k < l->n_bottom + l->n_top; k++) {
        bool is_top = (k >= l->n_bottom);
        char **name = is_top ? &l->top[k - l->n_bottom] : &l->bottom[k];
        bottom_kind is = is_top ? MADE : (bottom_kind)kind[k];

        if (is == OUTSIDE)
            CT_TRY(rename_to(name, real_name(e->r, outside, *name)));
        else if (is == HANDED_ON)
            CT_TRY(rename_to(name, e->handed_on));
        else if (is_last && e->keeps_name && (strcmp(*name, e->top) == 0))
            CT_TRY(rename_to(name, e->from->top));
        else
            CT_TRY(add_prefix(e, copy, name));
    }
    return CT_OK;
}

/* Of repeats within repeats the outermost counts: it is set last. */
static ct_status note_copy(const expansion *e, int copy, Ct__LayerParameter *l)
{
    const ct_frame *frame = e->r->frame;
    Ct__RepeatCopy *c = l->repeat_copy;

    if (c == NULL) c = (Ct__RepeatCopy *)(void *)ct_message_create(&ct__repeat_copy__descriptor);
    if (c == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a message");
    c->has_line = c->has_column = c->has_copy = c->has_of = true;
    c->line = frame->line;
    c->column = frame->column;
    c->copy = copy;
    c->of = e->from->count;
    l->repeat_copy = c;
    return CT_OK;
}

static ct_status copy_layer(const expansion *e, int copy, const unsigned char *kind,
                            const Ct__LayerParameter *like)
{
    size_t size = ct__layer_parameter__get_packed_size(like);
    uint8_t *wire = malloc(size + 1);
    Ct__LayerParameter *l;
    ct_status status;

    if (wire == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    ct__layer_parameter__pack(like, wire);
    l = ct__layer_parameter__unpack(NULL, size, wire);
    free(wire);
    if (l == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a layer");
    status = ct_field_put(e->to, e->layers, &l, false);
    if (status != CT_OK) {
        ct__layer_parameter__free_unpacked(l, NULL);
        return status;
    }
    CT_TRY(ct_source_map_copy_all(e->r->map, &l->base, &like->base));
    CT_TRY(rename_layer(e, copy, kind, l));
    return note_copy(e, copy, l);
}

static ct_status make_copy(expansion *e, int copy)
{
    const unsigned char *kind = e->kind;
    char *next;

    for (size_t i = 0; i < e->from->n_layer; i++) {
        CT_TRY(copy_layer(e, copy, kind, e->from->layer[i]));
        kind += e->from->layer[i]->n_bottom;
    }
    CT_TRY(make_name(e, copy, e->top, &next));
    free(e->handed_on);
    e->handed_on = next;
    return CT_OK;
}

/* ---- all of them */

/* Whether a blob of that name stands before the repeat in the message around it. */
static bool is_taken(const expansion *e, const char *name)
{
    for (size_t i = 0; i < ct_field_count(e->to, e->layers); i++) {
        const Ct__LayerParameter *l =
            (const Ct__LayerParameter *)(void *)ct_field_message(e->to, e->layers, i);

        for (size_t t = 0; t < l->n_top; t++) {
            if (strcmp(l->top[t], name) == 0) return true;
        }
    }
    if (e->to->descriptor == &ct__net_parameter__descriptor) {
        const Ct__NetParameter *net = (const Ct__NetParameter *)(const void *)e->to;

        for (size_t i = 0; i < net->n_input; i++) {
            if (strcmp(net->input[i], name) == 0) return true;
        }
    }
    return false;
}

static ct_status expand(expansion *e)
{
    const ct_frame *inside = e->r->frame, *outside = inside->parent;

    CT_TRY(check_prefix(e));
    CT_TRY(check_size(e));
    e->top = real_name(e->r, inside, e->from->top);
    CT_TRY(find_kinds(e));
    e->keeps_name = !is_taken(e, e->from->top);
    e->handed_on = strdup(real_name(e->r, outside, e->from->bottom));
    if (e->handed_on == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a name");
    for (int copy = 0; copy < e->from->count; copy++) CT_TRY(make_copy(e, copy));
    return e->keeps_name ? CT_OK : add_alias(e->r, outside, e->from->top, e->handed_on);
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessage *m, const char *name)
{
    return ct_field_find(m->descriptor, name, strlen(name));
}

/* ---- names that layers of copies have in common with others */

typedef struct named_layer {
    const Ct__LayerParameter *layer;
    size_t at;
} named_layer;

static int by_name(const void *left, const void *right)
{
    const named_layer *a = left, *b = right;
    int order = strcmp(a->layer->name, b->layer->name);

    return (order != 0) ? order : (a->at < b->at) ? -1 : 1;
}

/* Two of one name may stand in one copy, as outside of repeats: one of TRAIN, one of TEST. */
static bool same_place(const Ct__RepeatCopy *a, const Ct__RepeatCopy *b)
{
    if ((a == NULL) || (b == NULL)) return a == b;
    return (a->line == b->line) && (a->column == b->column) && (a->copy == b->copy);
}

static void add_place(const ct_prototxt_reader *r, const Ct__LayerParameter *l, ct_text *t)
{
    const Ct__RepeatCopy *c = l->repeat_copy;
    ct_place place = ct_source_map_find(r->map, l);

    if (c != NULL)
        ct_text_add(t, "copy %d of the repeat of line %d", c->copy, c->line);
    else
        ct_text_add(t, "a layer outside of repeats");
    if (place.line > 0) ct_text_add(t, " (line %d)", place.line);
}

static ct_status fail_clash(ct_prototxt_reader *r, const Ct__LayerParameter *a,
                            const Ct__LayerParameter *b)
{
    const Ct__RepeatCopy *c = (b->repeat_copy != NULL) ? b->repeat_copy : a->repeat_copy;
    ct_place place = ct_source_map_find(r->map, b);
    ct_text t = { 0 };
    ct_status status;

    add_place(r, a, &t);
    ct_text_add(&t, " and ");
    add_place(r, b, &t);
    if (place.line == 0) place = (ct_place){ "", c->line, c->column };
    status = ct_prototxt_reader_fail_at(r, place.line, place.column,
                                        "two layers are called \"%s\": %s; change a name or the "
                                        "prefix",
                                        b->name, (t.text != NULL) ? t.text : "");
    ct_text_destroy(&t);
    return status;
}

static ct_status check_names(ct_prototxt_reader *r, const Ct__NetParameter *net)
{
    named_layer *all = malloc((net->n_layer + 1) * sizeof(*all));
    ct_status status = CT_OK;
    size_t n = 0;

    if (all == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for %zu names", net->n_layer);
    for (size_t i = 0; i < net->n_layer; i++) {
        if (net->layer[i]->name != NULL) all[n++] = (named_layer){ net->layer[i], i };
    }
    qsort(all, n, sizeof(*all), by_name);
    for (size_t i = 1; (i < n) && (status == CT_OK); i++) {
        const Ct__LayerParameter *a = all[i - 1].layer, *b = all[i].layer;

        if ((strcmp(a->name, b->name) == 0) && !same_place(a->repeat_copy, b->repeat_copy))
            status = fail_clash(r, a, b);
    }
    free(all);
    return status;
}

/* ---- where the reader calls */

static ct_status close_repeat(ct_prototxt_reader *r, ProtobufCMessage *around,
                              ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *repeats = field_of(around, "repeat");
    bool outer = (around->descriptor == &ct__net_parameter__descriptor);
    expansion e = { .r = r,
                    .from = (const Ct__RepeatParameter *)(const void *)message,
                    .to = around,
                    .layers = field_of(around, "layer") };
    ct_status status;

    if (outer) r->n_repeat++;
    if (outer && (r->repeat_count > 0))
        ((Ct__RepeatParameter *)(void *)message)->count = r->repeat_count;
    status = expand(&e);

    free(e.kind);
    free(e.handed_on);
    CT_TRY(status);
    ct_source_map_forget(r->map, message);
    return ct_field_clear(around, repeats); /* the only one: those before are expanded, too */
}

ct_status ct_repeat_closed(ct_prototxt_reader *r, ProtobufCMessage *around,
                           ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;

    if ((type == &ct__net_parameter__descriptor) && (r->n_copied > 0))
        return check_names(r, (const Ct__NetParameter *)(const void *)message);
    if ((around == NULL) || ((around->descriptor != &ct__net_parameter__descriptor) &&
                             (around->descriptor != &ct__repeat_parameter__descriptor)))
        return CT_OK;
    if (type == &ct__layer_parameter__descriptor)
        return use_aliases(r, (Ct__LayerParameter *)(void *)message);
    return (type == &ct__repeat_parameter__descriptor) ? close_repeat(r, around, message) : CT_OK;
}
