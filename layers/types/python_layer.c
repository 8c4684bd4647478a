/* Python: the program that hosts the run computes it (framework/net/program_layer.h). */
#include <string.h>

#include "framework/base/log.h"
#include "framework/net/program_layer.h"

typedef struct python_state {
    void *made;
    bool is_open;
} python_state;

static ct_status setup(ct_layer *l, const ct_shape *bottom)
{
    const ct_program_layers *program = l->env->program;
    const Ct__PythonParameter *p = l->param->python_param;
    python_state *s = l->state;
    char why[CT_PROGRAM_WHY] = "";

    (void)bottom;
    if ((p == NULL) || (p->module == NULL) || (p->layer == NULL))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "python_param.module and python_param.layer must be given");
    if (program == NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "it runs in programs of Python alone (docs/library.md); there is no "
                             "interpreter in a run of the command");
    if (l->env->n_rank > 1)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "it runs on one rank, and here are %d: what it computes of a batch "
                             "would be of a part of it",
                             l->env->n_rank);
    if (!program->open(program->ctx, l, &s->made, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG, "%s", why);
    s->is_open = true;
    return CT_OK;
}

static ct_status reshape(const ct_layer *l, ct_instance *in)
{
    const ct_program_layers *program = l->env->program;
    const python_state *s = l->state;
    char why[CT_PROGRAM_WHY] = "";

    if (!program->reshape(program->ctx, s->made, in, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_SHAPE, "%s", why);
    if ((l->n_bottom == 0) && (l->n_top > 0)) /* the net's samples come from it */
        in->batch_local = in->batch_global = ct_shape_legacy(&in->top[0]->data.shape, 0);
    return CT_OK;
}

static ct_status forward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_program_layers *program = l->env->program;
    const python_state *s = l->state;
    char why[CT_PROGRAM_WHY] = "";

    (void)ex;
    if (!program->forward(program->ctx, s->made, in, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_DATA, "%s", why);
    return CT_OK;
}

static ct_status backward(const ct_layer *l, ct_instance *in, ct_exec *ex)
{
    const ct_program_layers *program = l->env->program;
    const python_state *s = l->state;
    char why[CT_PROGRAM_WHY] = "";
    int wanted = 0;

    (void)ex;
    for (int i = 0; i < l->n_bottom; i++) {
        float *diff = ct_blob_diff(in->bottom[i]);

        if (diff == NULL) continue;
        memset(diff, 0, (size_t)ct_shape_count(&in->bottom[i]->diff.shape, 0, -1) * sizeof(*diff));
        wanted++;
    }
    if ((wanted > 0) && !program->backward(program->ctx, s->made, in, why, sizeof(why)))
        return CT_LAYER_FAIL(l, CT_ERR_DATA, "%s", why);
    return CT_OK;
}

static void destroy(ct_layer *l)
{
    const python_state *s = l->state;

    if (s->is_open) l->env->program->close(l->env->program->ctx, s->made);
}

const ct_layer_ops ct_layer_python = {
    .type = "Python",
    .params = "python_param",
    .max_bottom = -1,
    .max_top = -1,
    .backward_reads = CT_READS_BOTTOM | CT_READS_TOP,
    .state_size = sizeof(python_state),
    .setup = setup,
    .reshape = reshape,
    .forward = forward,
    .backward = backward,
    .destroy = destroy,
};
