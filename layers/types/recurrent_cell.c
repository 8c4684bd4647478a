/* LSTM and RNN on devices: by their own steps, or all steps at once by an engine of a library, by
 * name or where a plan finds that faster, forward and backward together: what one leaves only the
 * other can read. */
#include "layers/types/recurrent.h"

#include <stdio.h>
#include <string.h>

#include "layers/layer_util.h"

bool ct_recurrent_wants_back(const ct_layer *l, const ct_instance *in)
{
    for (int i = 0; i < l->n_top; i++) {
        if (in->top[i]->wants_diff) return true;
    }
    return false;
}

static ct_cell_desc describe(const ct_layer *l, const ct_instance *in, const ct_recurrent_plan *p)
{
    const ct_recurrent_state *s = l->state;

    return (ct_cell_desc){ .device = l->dev->kind,
                           .lstm = (s->n_hidden == 2),
                           .steps = p->steps,
                           .columns = p->columns,
                           .inputs = s->n_in,
                           .hidden = s->hidden,
                           .back = ct_recurrent_wants_back(l, in),
                           .operand = ct_engine_operand(l),
                           .repeatable = (l->env != NULL) && l->env->deterministic };
}

/* Why no engine can run all steps, as far as the net tells, the same on all ranks; NULL: one may.
 */
static const char *obstacle(const ct_layer *l, const ct_instance *in)
{
    const ct_recurrent_state *s = l->state;

    if (s->has_static) return "it has a static input";
    if (!in->bottom[1]->restarts_first)
        return "its cont may begin sequences anew in any step; of TextData's, and of a DummyData's "
               "of ones, it is known that it does not";
    return NULL;
}

static void use(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                const ct_recurrent_ways *ways, const ct_cell_impl *cell)
{
    plan->cell = cell;
    for (int i = 0; i < CT_MAX_BUFFER; i++) { /* those of steps */
        in->buffer[i].bytes = 0;
        in->buffer[i].row = 0;
    }
    ways->cell(l, in, plan, cell->room(&plan->cell_desc));
}

/* ---- by name */

static bool is_named(const ct_layer *l, bool back)
{
    for (int k = 0; k < (back ? CT_N_RUN : 1); k++) {
        if (ct_cell_named(ct_engine_policy(l, (ct_run_kind)k)) != NULL) return true;
    }
    return false;
}

static ct_status use_named(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                           const ct_recurrent_ways *ways)
{
    const char *name = ct_engine_policy(l, CT_RUN_FORWARD), *why = obstacle(l, in);
    const ct_cell_impl *cell = ct_cell_named(name);

    for (int k = 0; plan->cell_desc.back && (k < CT_N_RUN); k++) {
        if ((cell != NULL) && (ct_cell_named(ct_engine_policy(l, (ct_run_kind)k)) == cell))
            continue;
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "ct_kernel: an engine for all steps runs forward and both gradients: "
                             "name it for all three");
    }
    if (why == NULL && !cell->supports(&plan->cell_desc))
        why = plan->cell_desc.repeatable
                  ? "it is not there, or not of this kind; deterministic runs need "
                    "CUBLAS_WORKSPACE_CONFIG=:16:8 or :4096:2 in the environment, too"
                  : "it is not there, or has none of this size and precision";
    if (why != NULL)
        return CT_LAYER_FAIL(l, CT_ERR_CONFIG,
                             "ct_kernel: \"%s\" cannot run this layer on device %s: %s; there are: "
                             "lt, blas",
                             name, l->dev->name, why);
    use(l, in, plan, ways, cell);
    return CT_OK;
}

/* ---- by timing: whole passes of an instance like the real one, in scratch memory */

enum { STEPS, CELL, N_WAY, MOST_BLOB = 5 };

typedef struct trial {
    ct_engine_plan *plan;
    const ct_layer *l;
    ct_instance in; /* what runs, with its blobs */
    ct_blob bottom[MOST_BLOB], top[MOST_BLOB], weight[CT_MAX_WEIGHT];
    ct_blob *bottoms[MOST_BLOB], *tops[MOST_BLOB];
    ct_recurrent_plan way[N_WAY];
    ct_buffer buffer[N_WAY][CT_MAX_BUFFER];
    int n; /* ways that there are */
    ct_exec ex;
} trial;

static void lay_blob(void *block, size_t *bytes_p, bool diff, ct_blob *b)
{
    int64_t n = ct_tensor_count(&b->data);

    b->data.data = ct_engine_scratch(block, bytes_p, n, false);
    b->diff.data = diff ? ct_engine_scratch(block, bytes_p, n, false) : NULL;
}

/* The blobs, then each way's buffers in one place; block NULL: nothing but the bytes. */
static void lay_out(trial *t, void *block, size_t *bytes_p)
{
    bool back = t->way[STEPS].cell_desc.back;
    size_t most = 0;

    for (int i = 0; i < t->l->n_bottom; i++)
        lay_blob(block, bytes_p, back && t->bottom[i].wants_diff, &t->bottom[i]);
    for (int i = 0; i < t->l->n_top; i++)
        lay_blob(block, bytes_p, back && t->top[i].wants_diff, &t->top[i]);
    for (int i = 0; i < t->l->n_weight; i++) lay_blob(block, bytes_p, back, &t->weight[i]);
    for (int w = 0; w < t->n; w++) {
        size_t at = *bytes_p;

        for (int i = 0; i < CT_MAX_BUFFER; i++) {
            int64_t n = (int64_t)((t->buffer[w][i].bytes + sizeof(float) - 1) / sizeof(float));

            t->buffer[w][i].data = ct_engine_scratch(block, &at, n, false);
        }
        if (at - *bytes_p > most) most = at - *bytes_p;
    }
    *bytes_p += most;
}

static ct_status prepare(void *ctx)
{
    trial *t = ctx;
    size_t bytes = 0;
    void *block;

    lay_out(t, NULL, &bytes);
    block = ct_engine_plan_scratch(t->plan, bytes);
    if (block == NULL) return CT_ERR_NOMEM;
    bytes = 0;
    lay_out(t, block, &bytes);
    return CT_OK;
}

static ct_status run(void *ctx, int way)
{
    trial *t = ctx;

    t->in.state = &t->way[way];
    memcpy(t->in.buffer, t->buffer[way], sizeof(t->in.buffer));
    CT_TRY(t->l->ops->forward(t->l, &t->in, &t->ex));
    return t->way[way].cell_desc.back ? t->l->ops->backward(t->l, &t->in, &t->ex) : CT_OK;
}

/* The blobs of `in` without their memory. */
static void shadow(trial *t, const ct_instance *in)
{
    const ct_layer *l = t->l;

    t->in = *in;
    for (int i = 0; i < l->n_bottom; i++) {
        t->bottom[i] = *in->bottom[i];
        t->bottoms[i] = &t->bottom[i];
    }
    for (int i = 0; i < l->n_top; i++) {
        t->top[i] = *in->top[i];
        t->tops[i] = &t->top[i];
    }
    for (int i = 0; i < l->n_weight; i++) {
        t->weight[i] = (ct_blob){ .name = l->name };
        ct_blob_set_shape(&t->weight[i], &l->weight[i].shape);
    }
    t->in.bottom = t->bottoms;
    t->in.top = t->tops;
    t->in.weight = t->weight;
}

static void write_key(const trial *t, char *text, size_t size)
{
    static const char *const operand[] = { "", " tf32", " bf16", " f16" };
    const ct_cell_desc *d = &t->way[STEPS].cell_desc;

    snprintf(text, size, "recurrent %s %s t%lld n%lld i%lld h%lld%s%s gpu",
             d->lstm ? "lstm" : "rnn", d->back ? "both" : "forward", (long long)d->steps,
             (long long)d->columns, (long long)d->inputs, (long long)d->hidden,
             (d->back && t->bottom[0].wants_diff) ? " dx" : "", operand[d->operand]);
}

/* in and plan come with the steps' way, and leave with the one to take. */
static ct_status ask(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                     const ct_recurrent_ways *ways)
{
    trial t = { .plan = ct_engine_plan_of(l), .l = l, .n = 1, .ex = { .dev = l->dev } };
    int reads = in->backward_reads, way = STEPS;
    const ct_cell_impl *cell = NULL;
    ct_engine_offer offer = { .n = 0 };
    char key[CT_ENGINE_PLAN_KEY];

    for (int i = 0; (cell == NULL) && (ct_cell_table[i] != NULL); i++) {
        if (ct_cell_table[i]->supports(&plan->cell_desc)) cell = ct_cell_table[i];
    }
    shadow(&t, in);
    t.way[STEPS] = t.way[CELL] = *plan;
    memcpy(t.buffer[STEPS], in->buffer, sizeof(in->buffer));
    ct_engine_offer_add(&offer, "steps", STEPS, true);
    if (cell != NULL) {
        use(l, in, &t.way[CELL], ways, cell);
        memcpy(t.buffer[CELL], in->buffer, sizeof(in->buffer));
        ct_engine_offer_add(&offer, cell->name, CELL, false);
        t.n = N_WAY;
    }
    write_key(&t, key, sizeof(key));
    CT_TRY(ct_engine_ask(l, key, &offer, prepare, run, &t, &way));
    *plan = t.way[way];
    for (int i = 0; i < CT_MAX_BUFFER; i++) {
        void *data = in->buffer[i].data; /* not the trial's */

        in->buffer[i] = t.buffer[way][i];
        in->buffer[i].data = data;
    }
    if (way == STEPS) in->backward_reads = reads;
    return CT_OK;
}

ct_status ct_recurrent_choose(const ct_layer *l, ct_instance *in, ct_recurrent_plan *plan,
                              const ct_recurrent_ways *ways)
{
    bool device = (l->dev->kind != CT_DEVICE_CPU);

    plan->cell = NULL;
    plan->cell_desc = describe(l, in, plan);
    plan->cell_keep = ways->cell_keep;
    plan->cell_work = ways->cell_work;
    memcpy(plan->carried, ways->carried, sizeof(plan->carried));
    if (device && is_named(l, plan->cell_desc.back)) return use_named(l, in, plan, ways);
    CT_TRY(ways->steps(l, in, plan));
    if (!device || (ct_engine_plan_of(l) == NULL) || !ct_engine_is_auto(l->param->ct_kernel) ||
        (obstacle(l, in) != NULL))
        return CT_OK;
    return ask(l, in, plan, ways);
}

/* ---- passes */

static void fill(ct_instance *in, float *y, ct_cell_args *a)
{
    const ct_recurrent_state *s = in->layer->state;
    const ct_recurrent_plan *p = in->state;

    *a = (ct_cell_args){ .x = ct_blob_data(in->bottom[0]),
                         .cont = ct_blob_data(in->bottom[1]),
                         .w_x = ct_blob_data(&in->weight[0]),
                         .b = ct_blob_data(&in->weight[1]),
                         .w_h = ct_blob_data(&in->weight[s->w_h]),
                         .y = y,
                         .keep = in->buffer[p->cell_keep].data,
                         .work = in->buffer[p->cell_work].data };
    for (int i = 0; i < s->n_hidden; i++) {
        a->before[i] = s->expose ? ct_blob_data(in->bottom[ct_recurrent_bottom(s, i)])
                                 : in->buffer[p->carried[i]].data;
        a->after[i] = s->expose ? ct_blob_data(in->top[1 + i]) : in->buffer[p->carried[i]].data;
    }
}

ct_status ct_recurrent_cell_forward(ct_instance *in, ct_exec *ex, float *y)
{
    const ct_recurrent_plan *p = in->state;
    ct_cell_args a;

    fill(in, y, &a);
    CT_TRY(p->cell->forward(&p->cell_desc, ex, &a));
    return ct_exec_poll(ex);
}

ct_status ct_recurrent_cell_backward(ct_instance *in, ct_exec *ex, float *y, const float *dy)
{
    const ct_recurrent_state *s = in->layer->state;
    const ct_recurrent_plan *p = in->state;
    ct_cell_args a;

    fill(in, y, &a);
    a.dy = dy;
    a.dx = ct_blob_diff(in->bottom[0]);
    for (int i = 0; s->expose && (i < s->n_hidden); i++) {
        a.d_after[i] = ct_blob_diff(in->top[1 + i]);
        a.d_before[i] = ct_blob_diff(in->bottom[ct_recurrent_bottom(s, i)]);
    }
    a.dw_x = ct_blob_diff(&in->weight[0]);
    a.db = ct_blob_diff(&in->weight[1]);
    a.dw_h = ct_blob_diff(&in->weight[s->w_h]);
    a.add_w_x = ct_weight_beta(in, ex, 0) != 0.0f;
    a.add_b = ct_weight_beta(in, ex, 1) != 0.0f;
    a.add_w_h = ct_weight_beta(in, ex, s->w_h) != 0.0f;
    CT_TRY(p->cell->backward(&p->cell_desc, ex, &a));
    return ct_exec_poll(ex);
}
