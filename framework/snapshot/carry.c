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

static bool is_carried(const ct_buffer *b)
{
    return (b->keep == CT_LIFETIME_ALWAYS) && (b->row > 0);
}

bool ct_carry_any(const ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++)
        for (int s = 0; s < CT_MAX_BUFFER; s++)
            if (is_carried(&net->pass->instance[i]->buffer[s])) return true;
    return false;
}

static void find_buffers(const ct_net *net, ct_carry *c)
{
    for (int i = 0; i < net->n_layer; i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            const ct_buffer *b = &net->pass->instance[i]->buffer[s];

            if (!is_carried(b)) continue;
            c->item[c->n++] =
                (ct_carry_item){ .layer = i,
                                 .slot = s,
                                 .local = (int64_t)(b->bytes / sizeof(float)) / b->row,
                                 .row = b->row };
        }
    }
}

/* room: n numbers of rows for this rank, and behind them n for each rank. */
static ct_status share_rows(const ct_group *g, ct_carry *c, int64_t *room)
{
    int64_t *all = room + c->n;

    for (int i = 0; i < c->n; i++) room[i] = c->item[i].local;
    CT_TRY(ct_group_gather(g, room, c->n, all));
    for (int i = 0; i < c->n; i++) {
        ct_carry_item *k = &c->item[i];

        for (int r = 0; r < g->size; r++) {
            if (r < g->rank) k->first += all[(int64_t)r * c->n + i];
            k->rows += all[(int64_t)r * c->n + i];
        }
    }
    return CT_OK;
}

ct_status ct_carry_create(const ct_net *net, const ct_group *g, ct_carry *c)
{
    int64_t *room;
    ct_status status;

    *c = (ct_carry){ 0 };
    c->item = calloc((size_t)net->n_layer * CT_MAX_BUFFER + 1, sizeof(*c->item));
    if (c->item == NULL) return no_memory();
    find_buffers(net, c);
    if (c->n == 0) return CT_OK; /* on every rank */
    room = calloc((size_t)c->n * ((size_t)g->size + 1), sizeof(*room));
    status = ct_group_agree(g, (room != NULL) ? CT_OK : no_memory());
    if (status == CT_OK) status = share_rows(g, c, room);
    free(room);
    return status;
}

void ct_carry_destroy(ct_carry *c)
{
    for (int i = 0; i < c->n; i++) ct_mem_release(c->item[i].data);
    free(c->item);
    *c = (ct_carry){ 0 };
}

/* ---- writing */

/* Zeros, and this rank's rows in their place: over the ranks they add up to all rows. */
static ct_status lay_out(const ct_net *net, ct_carry_item *k)
{
    k->data = ct_mem_acquire(item_bytes(k, k->rows));
    if (k->data == NULL) return no_memory();
    memset(k->data, 0, item_bytes(k, k->rows));
    return device_of(net, k)->to_host(NULL, k->data + k->first * k->row, buffer_of(net, k)->data,
                                      item_bytes(k, k->local));
}

ct_status ct_carry_gather(const ct_net *net, const ct_group *g, bool keeps, ct_carry *c)
{
    for (int i = 0; i < c->n; i++) {
        ct_carry_item *k = &c->item[i];

        CT_TRY(ct_group_agree(g, lay_out(net, k)));
        CT_TRY(ct_group_average(g, k->data, k->rows * k->row, 1.0));
        if (keeps) continue;
        ct_mem_release(k->data);
        k->data = NULL;
    }
    return CT_OK;
}

static ct_text path_of(const ct_net *net, const ct_carry_item *k)
{
    char slot[16];

    snprintf(slot, sizeof(slot), "%d", k->slot);
    return ct_state_path("/carried", slot, net->layer[k->layer]->name);
}

ct_status ct_carry_put(const ct_net *net, const ct_carry *c, ct_h5_writer *w)
{
    for (int i = 0; i < c->n; i++) {
        const ct_carry_item *k = &c->item[i];
        ct_text path = path_of(net, k);
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
static ct_status read_item(ct_h5_reader *r, const char *file, const ct_net *net, ct_carry_item *k)
{
    const char *layer = net->layer[k->layer]->name;
    ct_text path = path_of(net, k);
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

static ct_status read_all(const char *file, const ct_net *net, ct_carry *c)
{
    ct_h5_reader *r = NULL;
    ct_status status;

    CT_TRY(ct_h5_reader_create(file, NULL, &r));
    status = CT_OK;
    for (int i = 0; (status == CT_OK) && (i < c->n); i++)
        status = read_item(r, file, net, &c->item[i]);
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

ct_status ct_carry_read(const char *file, ct_net *net, const ct_group *g)
{
    ct_carry c;
    ct_status status = ct_carry_create(net, g, &c);

    if ((status != CT_OK) || (c.n == 0)) {
        ct_carry_destroy(&c);
        return status;
    }
    CT_TRY_GOTO(status, out, ct_group_agree(g, make_room(&c)));
    if (g->rank == 0) status = read_all(file, net, &c);
    CT_TRY_GOTO(status, out, ct_group_agree(g, status));
    for (int i = 0; i < c.n; i++) {
        const ct_carry_item *k = &c.item[i];

        CT_TRY_GOTO(status, out, ct_group_broadcast(g, k->data, item_bytes(k, k->rows)));
        CT_TRY_GOTO(status, out,
                    device_of(net, k)->from_host(NULL, buffer_of(net, k)->data,
                                                 k->data + k->first * k->row,
                                                 item_bytes(k, k->local)));
    }
out:
    ct_carry_destroy(&c);
    return status;
}
