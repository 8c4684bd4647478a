/* From lifetimes to memory: one block, and every blob and buffer bound to its place in it. */
#include "framework/net/engine_plan.h"
#include "framework/net/net_impl.h"
#include "framework/net/step_graph.h"

#include <stdlib.h>
#include <string.h>

static ct_status place(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    size_t unshared = 0, bytes = 0;

    for (int i = 0; i < m->n_region; i++) {
        bool second = m->use[i].backward && !m->use[i].forward;

        if (net->options.unshared) m->region[i].offset = bytes;
        bytes += ct_align_up(m->region[i].bytes);
        if (!second) unshared += ct_align_up(m->region[i].bytes);
    }
    for (int i = 0; i < net->n_layer; i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            const ct_buffer *b = &net->instance[i]->buffer[s];

            if ((b->keep == CT_LIFETIME_ALWAYS) && !ct_host_layer_is(net, i))
                m->always_bytes += ct_align_up(b->bytes);
        }
    }
    if (!net->options.unshared) CT_TRY(ct_engine_plan_place(m->region, m->n_region, &bytes));
    net->memory.planned = bytes + m->always_bytes;
    net->memory.peak_alive = ct_engine_plan_peak(m->region, m->n_region) + m->always_bytes;
    net->memory.unshared = unshared + m->always_bytes;
    return CT_OK;
}

static void bind_blobs(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    char *block = m->block;

    for (int i = 0; i < m->n_region; i++) {
        const ct_use *u = &m->use[i];
        void *at = block + m->region[i].offset;

        for (int k = 0; (u->kind == CT_USE_DATA) && (k < m->n_again); k++) {
            if (m->again[k].root != u->index) continue;
            if (u->forward) m->again[k].forward = at;
            if (u->backward) m->again[k].backward = at;
        }
        if ((u->kind == CT_USE_DATA) && !u->forward) continue;
        for (int b = 0; b < net->n_blob; b++) {
            if ((u->kind == CT_USE_DATA) && (m->data_root[b] == u->index))
                net->blob[b]->data.data = at;
            if ((u->kind == CT_USE_DIFF) && (m->diff_root[b] == u->index) &&
                net->blob[b]->wants_diff)
                net->blob[b]->diff.data = at;
        }
    }
}

static ct_call_buffer *find_call(ct_net_impl *m, int layer, int slot)
{
    ct_call_buffer *c = &m->call_buffer[m->n_call_buffer];

    for (int i = 0; i < m->n_call_buffer; i++) {
        if ((m->call_buffer[i].layer == layer) && (m->call_buffer[i].slot == slot))
            return &m->call_buffer[i];
    }
    *c = (ct_call_buffer){ layer, slot, NULL, NULL };
    m->n_call_buffer++;
    return c;
}

static ct_status bind_buffers(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    char *block = m->block, *always = m->always;

    m->call_buffer = calloc((size_t)m->n_region + 1, sizeof(m->call_buffer[0]));
    if (m->call_buffer == NULL)
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a plan of %d regions", m->n_region);
    for (int i = 0; i < m->n_region; i++) {
        const ct_use *u = &m->use[i];
        void *at = block + m->region[i].offset;
        ct_call_buffer *c;

        if (u->kind != CT_USE_BUFFER) continue;
        net->instance[u->index]->buffer[u->slot].data = at;
        if (u->forward && u->backward) continue;
        c = find_call(m, u->index, u->slot);
        if (u->forward) c->forward = at;
        if (u->backward) c->backward = at;
    }
    for (int i = 0; i < net->n_layer; i++) {
        for (int s = 0; s < CT_MAX_BUFFER; s++) {
            ct_buffer *b = &net->instance[i]->buffer[s];

            if ((b->bytes == 0) || (b->keep != CT_LIFETIME_ALWAYS) || ct_host_layer_is(net, i))
                continue;
            b->data = always;
            always += ct_align_up(b->bytes);
        }
    }
    return CT_OK;
}

ct_status ct_net_memory(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);
    const ct_device *dev = net->options.dev;
    const char *poison = getenv("CORTADO_POISON");

    CT_TRY(place(net));
    ct_engine_plan_settle(net->options.env.plan);
    if (net->options.no_data) return CT_OK;
    CT_TRY(dev->mem_acquire(net->memory.planned - m->always_bytes, &m->block));
    if (m->always_bytes > 0) CT_TRY(dev->mem_acquire(m->always_bytes, &m->always));
    bind_blobs(net);
    CT_TRY(bind_buffers(net));
    CT_TRY(ct_host_layers(net));
    m->poison = (poison != NULL) && (strcmp(poison, "1") == 0) && (dev->kind == CT_DEVICE_CPU);
    CT_TRY(ct_net_report_make(net));
    m->graphs = ct_step_graphs_create(net);
    return CT_OK;
}

void ct_net_memory_release(ct_net *net)
{
    ct_net_impl *m = ct_net_impl_of(net);

    if (m->block != NULL) net->options.dev->mem_release(m->block);
    if (m->always != NULL) net->options.dev->mem_release(m->always);
    ct_step_graphs_destroy(m->graphs);
    ct_host_layers_release(net);
    ct_net_report_release(net);
    free(m->call_buffer);
    free(m->region);
    free(m->use);
}
