/* Which node makes a value, which nodes read it, and which lead to an output of the graph. */
#include <stdlib.h>

#include "cli/onnx/read/onnx_read.h"

enum { BY_GRAPH = 1000 }; /* more readers than any pattern asks for */

int ct_onnx_maker(const ct_onnx_links *l, const char *name)
{
    return ((name != NULL) && (name[0] != '\0')) ? ct_name_map_find(&l->made_by, name, strlen(name))
                                                 : -1;
}

void ct_onnx_links_destroy(ct_onnx_links *l)
{
    ct_name_map_destroy(&l->made_by);
    free(l->n_reader);
    free(l->reader);
    *l = (ct_onnx_links){ .n_reader = NULL };
}

static ct_status link_nodes(const ct_onnx_reader *r, ct_onnx_links *l)
{
    for (int k = 0; k < r->n_step; k++) {
        const Onnx__NodeProto *n = r->step[k].proto;

        for (size_t i = 0; i < n->n_input; i++) {
            int m = ct_onnx_maker(l, n->input[i]);

            if (m < 0) continue;
            l->n_reader[m]++;
            l->reader[m] = k;
        }
        for (size_t i = 0; i < n->n_output; i++)
            if (n->output[i][0] != '\0') CT_TRY(ct_name_map_put(&l->made_by, n->output[i], k));
    }
    for (size_t i = 0; i < r->model->graph->n_output; i++) {
        int m = ct_onnx_maker(l, r->model->graph->output[i]->name);

        if (m >= 0) l->n_reader[m] += BY_GRAPH;
    }
    return CT_OK;
}

ct_status ct_onnx_link(const ct_onnx_reader *r, ct_onnx_links *l_p)
{
    ct_onnx_links l = { .n_reader = calloc((size_t)r->n_step + 1, sizeof(l.n_reader[0])),
                        .reader = calloc((size_t)r->n_step + 1, sizeof(l.reader[0])) };
    ct_status status = ((l.n_reader != NULL) && (l.reader != NULL))
                           ? link_nodes(r, &l)
                           : CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", r->n_step);

    if (status == CT_OK)
        *l_p = l;
    else
        ct_onnx_links_destroy(&l);
    return status;
}

/* Which nodes lead to an output of the graph: a step that is a pattern reads the pattern's inputs
 * alone. */
static void mark(const ct_onnx_reader *r, const ct_onnx_links *l, bool *live)
{
    const Onnx__GraphProto *g = r->model->graph;

    for (size_t i = 0; i < g->n_output; i++) {
        int m = ct_onnx_maker(l, g->output[i]->name);

        if (m >= 0) live[m] = true;
    }
    for (int k = r->n_step - 1; k >= 0; k--) {
        const ct_onnx_step *s = &r->step[k];
        int n = (s->n_in > 0) ? s->n_in : (int)s->proto->n_input;

        for (int i = 0; live[k] && (i < n); i++) {
            int m = ct_onnx_maker(l, (s->n_in > 0) ? s->in[i] : s->proto->input[i]);

            if (m >= 0) live[m] = true;
        }
    }
}

ct_status ct_onnx_take(ct_onnx_reader *r,
                       ct_status (*take)(ct_onnx_reader *r, const ct_onnx_links *l))
{
    bool *live = calloc((size_t)r->n_step + 1, sizeof(*live));
    ct_onnx_links l = { .n_reader = NULL };
    ct_status status = (live != NULL) ? ct_onnx_link(r, &l)
                                      : CT_FAIL(CT_ERR_NOMEM, "no memory for %d nodes", r->n_step);

    if (status == CT_OK) status = take(r, &l);
    if (status == CT_OK) {
        mark(r, &l, live);
        for (int k = 0; k < r->n_step; k++)
            if (!live[k]) r->step[k].done = true;
    }
    ct_onnx_links_destroy(&l);
    free(live);
    return status;
}
