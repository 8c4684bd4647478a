/* Which tops lack a shape, who gives them one, and where it is written down. */
#include "framework/data/absent/absent_shapes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "framework/base/log.h"
#include "framework/base/text.h"
#include "framework/data/absent/shape_demand.h"
#include "framework/net/graph.h"

typedef enum {
    OPEN,    /* nobody said anything yet           */
    KNOWN,   /* shape has it                       */
    ITSELF,  /* the layer has a size of its own    */
    NOTHING, /* nothing says it                    */
} slot_state;

/* A top whose samples are not there. */
typedef struct slot {
    Ct__LayerParameter *l;
    int at; /* of the layers of the phase */
    size_t top;
    slot_state state;
    ct_shape shape;                    /* of a sample                                    */
    const Ct__LayerParameter *reason;  /* that asks for it; NULL: nobody does            */
    const Ct__LayerParameter *another; /* whose size it has; NULL: nobody's              */
    bool assumed;                      /* one number, which nothing tells                */
} slot;

typedef struct settling {
    const ct_net_options *o;
    Ct__NetParameter *net;
    Ct__LayerParameter **layer; /* of the phase */
    int n_layer;
    const ct_given_shape *given;
    int n_given;
    slot *slot;
    int n_slot;
} settling;

/* ---- what layers say */

void ct_transform_made_size(const Ct__TransformationParameter *t, int64_t *height_p,
                            int64_t *width_p)
{
    if (t == NULL) return;
    if (t->crop_size > 0) {
        *height_p = *width_p = t->crop_size;
    } else if (t->crop_h > 0) {
        *height_p = t->crop_h;
        *width_p = t->crop_w;
    } else if (t->random_resized_crop != NULL) {
        *height_p = *width_p = t->random_resized_crop->size;
    } else if (t->resize_param != NULL) {
        *height_p = t->resize_param->height;
        *width_p = t->resize_param->width;
    }
}

static bool is_record(const Ct__LayerParameter *l)
{
    return (ct_layer_param_is(l, "Data") || ct_layer_param_is(l, "AnnotatedData")) &&
           (l->data_param != NULL);
}

static bool is_image(const Ct__LayerParameter *l)
{
    return ct_layer_param_is(l, "ImageData") && (l->image_data_param != NULL);
}

static bool is_hdf5(const Ct__LayerParameter *l)
{
    return ct_layer_param_is(l, "HDF5Data") && (l->hdf5_data_param != NULL);
}

static bool is_absent(const Ct__LayerParameter *l)
{
    const char *source = is_record(l)  ? l->data_param->source
                         : is_image(l) ? l->image_data_param->source
                                       : l->hdf5_data_param->source;

    return (source == NULL) || (access(source, F_OK) != 0);
}

/* Channels, height and width of a layer that says its samples' size itself. */
static bool own_size(const Ct__LayerParameter *l, ct_shape *s)
{
    const Ct__TransformationParameter *t = l->transform_param;
    bool gray = (t != NULL) && t->force_gray;
    int64_t height = 0, width = 0;

    if (is_image(l)) {
        height = l->image_data_param->new_height;
        width = l->image_data_param->new_width;
        gray = !l->image_data_param->is_color;
    }
    if (height == 0) ct_transform_made_size(t, &height, &width);
    if ((height < 1) || (width < 1)) return false;
    *s = (ct_shape){ 3, { gray ? 1 : 3, height, width } };
    return true;
}

/* ---- slots */

static bool names(const ct_given_shape *g, const char *name)
{
    return (g->name != NULL) && (name != NULL) && (strlen(name) == g->n_name) &&
           (strncmp(name, g->name, g->n_name) == 0);
}

/* The shape given to that top: by its name, else by the layer's; by no name last. */
static const ct_given_shape *given_to(const settling *s, const Ct__LayerParameter *l, size_t top)
{
    for (int i = 0; i < s->n_given; i++)
        if (names(&s->given[i], l->top[top])) return &s->given[i];
    for (int i = 0; (i < s->n_given) && (top == 0); i++)
        if (names(&s->given[i], l->name)) return &s->given[i];
    return NULL;
}

static const ct_given_shape *given_without_name(const settling *s)
{
    for (int i = 0; i < s->n_given; i++)
        if (s->given[i].name == NULL) return &s->given[i];
    return NULL;
}

void ct_absent_shapes_meet(ct_given_shape *given, int n_given, const Ct__NetParameter *net)
{
    for (size_t i = 0; i < net->n_layer; i++) {
        const Ct__LayerParameter *l = net->layer[i];

        for (int k = 0; (l->n_bottom == 0) && (k < n_given); k++) {
            ct_given_shape *g = &given[k];

            g->met |= names(g, l->name);
            for (size_t t = 0; t < l->n_top; t++) g->met |= names(g, l->top[t]);
        }
    }
}

/* The second top of these layers is a label. */
static ct_status check_label(const settling *s, const Ct__LayerParameter *l)
{
    for (int i = 0; (l->n_top > 1) && (i < s->n_given); i++) {
        const ct_given_shape *g = &s->given[i];

        if (!names(g, l->top[1]) || (ct_shape_count(&g->shape, 0, -1) == 1)) continue;
        return CT_FAIL(
            CT_ERR_CONFIG,
            "--data_shape: top \"%s\" of layer \"%s\" (%s) is one label a sample, not %s",
            l->top[1], l->name, l->type, ct_shape_str(&g->shape).text);
    }
    return CT_OK;
}

static void add_slot(settling *s, Ct__LayerParameter *l, int at, size_t top)
{
    const ct_given_shape *g = given_to(s, l, top);
    slot *one = &s->slot[s->n_slot++];

    *one = (slot){ .l = l, .at = at, .top = top };
    if (g == NULL) return;
    one->state = KNOWN;
    one->shape = g->shape;
}

static ct_status find_slots(settling *s)
{
    for (int i = 0; i < s->n_layer; i++) {
        Ct__LayerParameter *l = s->layer[i];

        if ((l->n_top == 0) || !(is_record(l) || is_image(l) || is_hdf5(l)) || !is_absent(l))
            continue;
        if (is_hdf5(l)) {
            for (size_t t = 0; (t < l->n_top) && (l->hdf5_data_param->n_synthetic_shape == 0); t++)
                add_slot(s, l, i, t);
            continue;
        }
        if (ct_layer_param_is(l, "Data") || is_image(l)) CT_TRY(check_label(s, l));
        if (is_record(l) && (l->data_param->synthetic_shape == NULL)) add_slot(s, l, i, 0);
        if (is_image(l) && (l->image_data_param->synthetic_shape == NULL) &&
            (l->image_data_param->new_height == 0)) /* otherwise the net says it */
            add_slot(s, l, i, 0);
    }
    return CT_OK;
}

/* ---- into the prototxt */

static Ct__BlobShape *make_shape(const ct_shape *from)
{
    Ct__BlobShape *s = calloc(1, sizeof(*s));

    if (s == NULL) return NULL;
    ct__blob_shape__init(s);
    if (from->ndim == 0) return s;
    s->dim = malloc((size_t)from->ndim * sizeof(s->dim[0]));
    if (s->dim == NULL) {
        free(s);
        return NULL;
    }
    s->n_dim = (size_t)from->ndim;
    memcpy(s->dim, from->dim, s->n_dim * sizeof(s->dim[0]));
    return s;
}

static void drop_shape(Ct__BlobShape *s)
{
    if (s == NULL) return;
    free(s->dim);
    free(s);
}

static ct_status write_one(const slot *one, Ct__BlobShape **to)
{
    drop_shape(*to);
    *to = NULL;
    if (one->state != KNOWN) return CT_OK;
    *to = make_shape(&one->shape);
    return (*to != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for a shape");
}

/* All tops of the layer, whose slots follow one another. Those that are open get one number. */
static ct_status write_all(const slot *first, bool unless)
{
    Ct__HDF5DataParameter *p = first->l->hdf5_data_param;

    while (p->n_synthetic_shape > 0) drop_shape(p->synthetic_shape[--p->n_synthetic_shape]);
    free(p->synthetic_shape);
    p->synthetic_shape = NULL;
    if (unless) return CT_OK;
    p->synthetic_shape = calloc(first->l->n_top, sizeof(p->synthetic_shape[0]));
    if (p->synthetic_shape == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for shapes");
    for (size_t t = 0; t < first->l->n_top; t++) {
        static const ct_shape number = { 0 };
        Ct__BlobShape *one = make_shape((first[t].state == KNOWN) ? &first[t].shape : &number);

        if (one == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for a shape");
        p->synthetic_shape[p->n_synthetic_shape++] = one;
    }
    return CT_OK;
}

/* at_last: what is still unknown stays unknown. */
static ct_status write_down(settling *s, bool at_last)
{
    for (int i = 0; i < s->n_slot; i++) {
        slot *one = &s->slot[i];

        if (is_record(one->l)) CT_TRY(write_one(one, &one->l->data_param->synthetic_shape));
        if (is_image(one->l)) CT_TRY(write_one(one, &one->l->image_data_param->synthetic_shape));
        if (is_hdf5(one->l) && (one->top == 0))
            CT_TRY(write_all(one, at_last && (one->state != KNOWN)));
    }
    return CT_OK;
}

/* ---- what the net asks for */

static bool holds(const char *const *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

static bool is_unknown(const slot *one)
{
    return (one->state == OPEN) || (one->state == NOTHING);
}

static const slot *slot_of(const settling *s, int at, size_t top)
{
    for (int i = 0; i < s->n_slot; i++)
        if ((s->slot[i].at == at) && (s->slot[i].top == top)) return &s->slot[i];
    return NULL;
}

/* The layers that can be made now: all that they read is known. lack: names with wrong shapes, room
 * for all slots; known: room for all tops. */
static void choose(const settling *s, Ct__NetParameter *probe, const char **known,
                   const char **lack, int *n_lack_p)
{
    int n_known = 0, n_lack = 0;

    probe->n_layer = 0;
    for (int i = 0; i < s->n_layer; i++) {
        Ct__LayerParameter *l = s->layer[i];
        const slot *first = slot_of(s, i, 0);
        bool can = (first == NULL) || is_hdf5(l) || !is_unknown(first);

        for (size_t b = 0; b < l->n_bottom; b++) can = can && holds(known, n_known, l->bottom[b]);
        for (size_t t = 0; t < l->n_top; t++) {
            const slot *one = slot_of(s, i, t);
            bool is = can && ((one == NULL) || !is_unknown(one));

            if (is) known[n_known++] = l->top[t];
            for (int k = 0; !is && (k < n_known); k++)
                if (strcmp(known[k], l->top[t]) == 0) known[k] = ""; /* in place of it */
            if (can && !is) lack[n_lack++] = l->top[t];
        }
        if (can) probe->layer[probe->n_layer++] = l;
    }
    *n_lack_p = n_lack;
}

static ct_status make_probe(const settling *s, Ct__NetParameter *probe, ct_net **net_p)
{
    ct_net_options o = *s->o;
    ct_status status;

    ct_net_options_alone(&o);
    o.forward_only = true;
    o.dev = NULL;
    o.window = NULL;
    o.n_again = 0;
    ct_log_hush(true);
    status = ct_net_create(probe, &o, net_p);
    ct_log_hush(false);
    return status;
}

/* Gives open slots what the made net tells. *more_p: some got one. */
static void ask(settling *s, const ct_demand_net *d, bool *more_p)
{
    for (int i = 0; i < s->n_slot; i++) {
        slot *one = &s->slot[i];
        const Ct__LayerParameter *reason = NULL;
        ct_shape shape, own;

        if ((one->state != OPEN) ||
            !ct_shape_demanded(d, one->at, one->l->top[one->top], &shape, &reason) ||
            (shape.ndim < 1) || (shape.ndim > CT_MAX_DIM))
            continue;
        one->shape.ndim = shape.ndim - 1;
        memcpy(one->shape.dim, &shape.dim[1], (size_t)one->shape.ndim * sizeof(shape.dim[0]));
        if (!is_hdf5(one->l) && (one->shape.ndim != 3)) { /* images have three axes */
            one->shape.dim[0] = ct_shape_count(&one->shape, 0, -1);
            one->shape.ndim = 3;
            one->shape.dim[1] = one->shape.dim[2] = 1;
        }
        if (own_size(one->l, &own) && (one->shape.ndim == 3)) {
            one->shape.dim[1] = own.dim[1];
            one->shape.dim[2] = own.dim[2];
        }
        one->state = KNOWN;
        one->reason = reason;
        *more_p = true;
    }
}

static ct_status ask_net(settling *s, bool *more_p)
{
    Ct__NetParameter probe = *s->net;
    size_t n_top = 0;
    const char **known = NULL, **lack = NULL;
    ct_net *net = NULL;
    ct_status status = CT_OK;
    ct_demand_net d = { .layer = s->layer, .n_layer = s->n_layer };

    for (int i = 0; i < s->n_layer; i++) n_top += s->layer[i]->n_top;
    probe.layer = calloc((size_t)s->n_layer + 1, sizeof(probe.layer[0]));
    known = calloc(n_top + 1, sizeof(known[0]));
    lack = calloc(n_top + 1, sizeof(lack[0]));
    if ((probe.layer == NULL) || (known == NULL) || (lack == NULL)) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory to look at the net");
        goto out;
    }
    CT_TRY_GOTO(status, out, write_down(s, false));
    choose(s, &probe, known, lack, &d.n_lack);
    if (probe.n_layer == 0) goto out;
    CT_TRY_GOTO(status, out, make_probe(s, &probe, &net));
    d.made = net;
    d.lack = lack;
    ask(s, &d, more_p);
out:
    ct_net_destroy(net);
    free(probe.layer);
    free((void *)known);
    free((void *)lack);
    return status;
}

/* ---- what else there is */

/* The size of a layer that is not in this phase, with a first top of that name. */
static bool size_elsewhere(const settling *s, slot *one)
{
    for (size_t i = 0; i < s->net->n_layer; i++) {
        const Ct__LayerParameter *l = s->net->layer[i];
        const Ct__BlobShape *b = NULL;

        if ((l == one->l) || (l->n_bottom > 0) || (l->n_top == 0) ||
            (strcmp(l->top[0], one->l->top[0]) != 0))
            continue;
        one->another = l;
        if ((is_record(l) || is_image(l)) && own_size(l, &one->shape)) return true;
        if (ct_layer_param_is(l, "Input") && (l->input_param != NULL) &&
            (l->input_param->n_shape > 0))
            b = l->input_param->shape[0];
        if ((b == NULL) || (b->n_dim != 4)) continue;
        one->shape = (ct_shape){ 3, { b->dim[1], b->dim[2], b->dim[3] } };
        if (ct_shape_is_valid(&one->shape) && (ct_shape_count(&one->shape, 0, -1) > 0)) return true;
    }
    one->another = NULL;
    return false;
}

/* A slot of which the net tells nothing. */
static void settle_rest(const settling *s, slot *one)
{
    const ct_given_shape *g = given_without_name(s);
    ct_shape own;

    one->state = KNOWN;
    if (one->top > 0) {
        one->shape.ndim = 0;
        one->assumed = true;
    } else if (g != NULL) {
        one->shape = g->shape;
    } else if (own_size(one->l, &own)) {
        one->state = ITSELF;
        if (is_hdf5(one->l)) one->state = KNOWN;
        one->shape = own;
    } else if (!size_elsewhere(s, one)) {
        one->state = NOTHING;
    }
}

/* Those of which no reader may tell first: inputs, whose shapes decide about others. */
static ct_status settle(settling *s)
{
    ct_demand_net d = { .layer = s->layer, .n_layer = s->n_layer };
    const Ct__LayerParameter *reason;
    ct_shape any;

    for (int i = 0; i < s->n_slot; i++) {
        slot *one = &s->slot[i];

        if ((one->state == OPEN) &&
            !ct_shape_demanded(&d, one->at, one->l->top[one->top], &any, &reason))
            settle_rest(s, one);
    }
    for (;;) {
        bool open = false, more = false;

        for (int i = 0; i < s->n_slot; i++) {
            if (s->slot[i].state == NOTHING) return CT_OK; /* the net cannot be made */
            open |= (s->slot[i].state == OPEN);
        }
        if (!open) return CT_OK;
        CT_TRY(ask_net(s, &more));
        for (int i = 0; !more && (i < s->n_slot); i++) {
            if (s->slot[i].state != OPEN) continue;
            settle_rest(s, &s->slot[i]);
            more = true;
        }
    }
}

/* "3x8x8" */
static void add_dims(ct_text *t, const ct_shape *s)
{
    if (s->ndim == 0) ct_text_add(t, "one number");
    for (int i = 0; i < s->ndim; i++)
        ct_text_add(t, "%s%lld", (i > 0) ? "x" : "", (long long)s->dim[i]);
}

static void tell(const settling *s)
{
    ct_text t = { 0 };

    for (int i = 0; i < s->n_slot; i++) {
        const slot *one = &s->slot[i];

        if (one->state == NOTHING) goto out; /* an error follows */
        if ((one->state != KNOWN) ||
            ((one->reason == NULL) && (one->another == NULL) && !one->assumed))
            continue;
        ct_text_add(&t, "%stop \"%s\" of layer \"%s\" (%s) has ", (t.length > 0) ? "; " : "",
                    one->l->top[one->top], one->l->name, one->l->type);
        add_dims(&t, &one->shape);
        if (one->reason != NULL)
            ct_text_add(&t, ", as layer \"%s\" (%s) needs it", one->reason->name,
                        one->reason->type);
        else if (one->another != NULL)
            ct_text_add(&t, ", as layer \"%s\" (%s)", one->another->name, one->another->type);
        else
            ct_text_add(&t, ", which nothing tells");
    }
    if (!t.failed && (t.length > 0))
        CT_INFO("guessed, a sample, since the data is not there: %s. "
                "--data_shape=TOP:D,D,... says otherwise",
                t.text);
out:
    ct_text_destroy(&t);
}

ct_status ct_absent_shapes_fill(const ct_net_options *o, const ct_given_shape *given, int n_given,
                                Ct__NetParameter *net)
{
    settling s = { .o = o, .net = net, .given = given, .n_given = n_given };
    size_t most = 0;
    ct_status status;

    s.layer = calloc(net->n_layer + 1, sizeof(s.layer[0]));
    if (s.layer == NULL) return CT_FAIL(CT_ERR_NOMEM, "no memory for shapes");
    for (size_t i = 0; i < net->n_layer; i++)
        if (ct_graph_includes(net, o, net->layer[i])) s.layer[s.n_layer++] = net->layer[i];
    for (int i = 0; i < s.n_layer; i++) most += s.layer[i]->n_top;
    s.slot = calloc(most + 1, sizeof(s.slot[0]));
    if (s.slot == NULL) {
        status = CT_FAIL(CT_ERR_NOMEM, "no memory for shapes");
        goto out;
    }
    CT_TRY_GOTO(status, out, find_slots(&s));
    CT_TRY_GOTO(status, out, settle(&s));
    CT_TRY_GOTO(status, out, write_down(&s, true));
    tell(&s);
out:
    free(s.slot);
    free(s.layer);
    return status;
}
