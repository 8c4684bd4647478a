#include "framework/snapshot/snapshot_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static ct_status no_memory(void)
{
    return CT_FAIL(CT_ERR_NOMEM, "no memory for the state that layers carry");
}

static size_t item_bytes(const ct_carry_item *k, int64_t rows)
{
    return (size_t)(rows * k->row) * sizeof(float);
}

static const ct_buffer *buffer_of(const ct_net *net, const ct_carry_item *k)
{
    return &net->pass->instance[k->layer]->buffer[k->slot];
}

/* Where that buffer lies: layers may run on the host in a net on a device. */
static const ct_device *device_of(const ct_net *net, const ct_carry_item *k)
{
    return net->layer[k->layer]->dev;
}

/* ---- who has which rows */

static int64_t rows_of(const ct_buffer *b)
{
    return (int64_t)(b->bytes / sizeof(float)) / b->row;
}

static bool is_carried(const ct_buffer *b)
{
    return (b->keep == CT_LIFETIME_ALWAYS) && (b->row > 0);
}

/* The layer of this rank's net that runs that one, or -1; what brings its top from another rank may
 * have its name. */
static int own_layer(const ct_net *net, const ct_layer *l, int slot)
{
    int i = ct_net_find_layer(net, l->name);

    return ((i >= 0) && is_carried(&net->pass->instance[i]->buffer[slot])) ? i : -1;
}

static void find_buffers(const ct_net *whole, const ct_net *net, ct_carry *c)
{
    for (int i = 0; i < whole->n_layer; i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            const ct_layer *l = whole->layer[i];
            const ct_buffer *b = &whole->pass->instance[i]->buffer[s];

            if (!is_carried(b)) continue;
            c->item[c->n++] = (ct_carry_item){ .name = l->name,
                                               .layer = (whole == net) ? i : own_layer(net, l, s),
                                               .slot = s,
                                               .row = b->row,
                                               .rows = rows_of(b) };
        }
    }
}

/* Ranks have rows in their order in the group whose samples the layer works on. */
static ct_status share_rows(const ct_net *net, const ct_carry_groups *g, ct_carry_item *k)
{
    const ct_layer *l = net->layer[k->layer];
    const ct_group *of = ct_layer_has_own_samples(l) ? g->stage : g->data;
    int64_t *all = calloc((size_t)of->size, sizeof(*all));
    ct_status status = ct_group_agree(of, (all != NULL) ? CT_OK : no_memory());

    k->local = rows_of(buffer_of(net, k));
    k->is_twin = ct_layer_is_twin(l);
    if (status == CT_OK) status = ct_group_gather(of, &k->local, 1, all);
    k->rows = k->first = 0;
    for (int r = 0; (status == CT_OK) && (r < of->size); r++) {
        if (r < of->rank) k->first += all[r];
        k->rows += all[r];
    }
    free(all);
    return status;
}

/* A rank that has not the layer knows of as many rows as one that has it. */
static ct_status check_rows(const ct_carry_groups *g, const ct_carry_item *k)
{
    int64_t rows[2] = { k->rows, -k->rows };

    CT_TRY(ct_group_max(g->all, rows, 2));
    if (rows[0] == -rows[1]) return CT_OK;
    return CT_FAIL(CT_ERR_ARG, "the state of layer \"%s\" has %" PRId64 " or %" PRId64 " columns",
                   k->name, rows[0], -rows[1]);
}

ct_status ct_carry_create(const ct_net *net, const ct_carry_groups *g, ct_carry *c)
{
    const ct_net *whole = (g->whole != NULL) ? g->whole : net;
    ct_status status;

    *c = (ct_carry){ .keeps = (g->all->rank == 0) };
    c->item = calloc((size_t)whole->n_layer * CT_MAX_BUFFER + 1, sizeof(*c->item));
    status = ct_group_agree(g->all, (c->item != NULL) ? CT_OK : no_memory());
    if (status == CT_OK) find_buffers(whole, net, c);
    for (int i = 0; (i < c->n) && (status == CT_OK); i++) {
        if (c->item[i].layer >= 0) status = share_rows(net, g, &c->item[i]);
        if (status == CT_OK) status = check_rows(g, &c->item[i]);
    }
    return status;
}

void ct_carry_destroy(ct_carry *c)
{
    for (int i = 0; i < c->n; i++) ct_mem_release(c->item[i].data);
    free(c->item);
    *c = (ct_carry){ 0 };
}

/* ---- writing */

/* Zeros, and this rank's rows in their place: over the ranks they add up to all rows. Of ranks that
 * do the same one counts. */
static ct_status lay_out(const ct_net *net, ct_carry_item *k)
{
    k->data = ct_mem_acquire(item_bytes(k, k->rows));
    if (k->data == NULL) return no_memory();
    memset(k->data, 0, item_bytes(k, k->rows));
    if ((k->layer < 0) || k->is_twin) return CT_OK;
    return device_of(net, k)->to_host(NULL, k->data + k->first * k->row, buffer_of(net, k)->data,
                                      item_bytes(k, k->local));
}

ct_status ct_carry_gather(const ct_net *net, const ct_carry_groups *g, ct_carry *c)
{
    for (int i = 0; i < c->n; i++) {
        ct_carry_item *k = &c->item[i];

        CT_TRY(ct_group_agree(g->all, lay_out(net, k)));
        CT_TRY(ct_group_average(g->all, k->data, k->rows * k->row, 1.0));
        if (c->keeps) continue;
        ct_mem_release(k->data);
        k->data = NULL;
    }
    return CT_OK;
}

static ct_text path_of(const ct_carry_item *k)
{
    char slot[16];

    snprintf(slot, sizeof(slot), "%d", k->slot);
    return ct_state_path("/carried", slot, k->name);
}

ct_status ct_carry_put(const ct_carry *c, ct_h5_writer *w)
{
    for (int i = 0; i < c->n; i++) {
        const ct_carry_item *k = &c->item[i];
        ct_text path = path_of(k);
        ct_status status =
            (path.text != NULL)
                ? ct_h5_put_floats(w, path.text, &(ct_shape){ 2, { k->rows, k->row } }, k->data)
                : no_memory();

        ct_text_destroy(&path);
        CT_TRY(status);
    }
    return CT_OK;
}

/* ---- reading */

/* Rank 0: all rows of k from the file, or zeros. */
static ct_status read_item(ct_h5_reader *r, const char *file, ct_carry_item *k)
{
    const char *layer = k->name;
    ct_text path = path_of(k);
    ct_shape shape;
    ct_status status = CT_OK;

    if (path.text == NULL) return no_memory();
    if (!ct_h5_has(r, path.text)) {
        CT_WARN("%s: no state of layer \"%s\"; it starts from zeros", file, layer);
        goto out;
    }
    CT_TRY_GOTO(status, out, ct_h5_get_shape(r, path.text, &shape));
    if ((shape.ndim != 2) || (shape.dim[1] != k->row)) {
        status = CT_FAIL(CT_ERR_DATA,
                         "%s: the state of layer \"%s\" has shape %s instead of columns x %" PRId64,
                         file, layer, ct_shape_str(&shape).text, k->row);
    } else if (shape.dim[0] != k->rows) {
        CT_WARN("%s: the state of layer \"%s\" is of %" PRId64 " columns, there are %" PRId64
                " now; it starts from zeros",
                file, layer, shape.dim[0], k->rows);
    } else {
        status = ct_h5_get_floats(r, path.text, k->rows * k->row, k->data);
    }
out:
    ct_text_destroy(&path);
    return status;
}

static ct_status read_all(const char *file, ct_carry *c)
{
    ct_h5_reader *r = NULL;
    ct_status status;

    CT_TRY(ct_h5_reader_create(file, NULL, &r));
    status = CT_OK;
    for (int i = 0; (status == CT_OK) && (i < c->n); i++) status = read_item(r, file, &c->item[i]);
    ct_h5_reader_destroy(r);
    return status;
}

static ct_status make_room(ct_carry *c)
{
    for (int i = 0; i < c->n; i++) {
        ct_carry_item *k = &c->item[i];

        k->data = ct_mem_acquire(item_bytes(k, k->rows));
        if (k->data == NULL) return no_memory();
        memset(k->data, 0, item_bytes(k, k->rows));
    }
    return CT_OK;
}

/* This rank's rows of k, of which it has some. */
static ct_status take_rows(const ct_net *net, const ct_carry_item *k)
{
    return device_of(net, k)->from_host(NULL, buffer_of(net, k)->data, k->data + k->first * k->row,
                                        item_bytes(k, k->local));
}

ct_status ct_carry_read(const char *file, ct_net *net, const ct_carry_groups *g)
{
    ct_carry c;
    ct_status status = ct_carry_create(net, g, &c);

    if ((status != CT_OK) || (c.n == 0)) {
        ct_carry_destroy(&c);
        return status;
    }
    CT_TRY_GOTO(status, out, ct_group_agree(g->all, make_room(&c)));
    if (c.keeps) status = read_all(file, &c);
    CT_TRY_GOTO(status, out, ct_group_agree(g->all, status));
    for (int i = 0; i < c.n; i++) {
        const ct_carry_item *k = &c.item[i];

        CT_TRY_GOTO(status, out, ct_group_broadcast(g->all, k->data, item_bytes(k, k->rows)));
        if (k->layer >= 0) CT_TRY_GOTO(status, out, take_rows(net, k));
    }
out:
    ct_carry_destroy(&c);
    return status;
}
