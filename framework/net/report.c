/* What a pass tells the host: losses, and what kernels found wrong in labels and indices. Both are
 * gathered on the device behind the last layer and cross in one copy, beside what the device goes
 * on computing, so that a step waits once. */
#include "framework/net/net_impl.h"

#include <string.h>

static bool tells(const ct_output *o)
{
    return o->loss_weight != 0.0f;
}

static bool on_device(const ct_net *net)
{
    return net->options.dev->kind != CT_DEVICE_CPU;
}

static ct_status host_acquire(const ct_device *dev, size_t bytes, void **block_p)
{
    if (dev->host_acquire != NULL) return dev->host_acquire(bytes, block_p);
    *block_p = ct_mem_acquire(bytes);
    return (*block_p != NULL) ? CT_OK : CT_FAIL(CT_ERR_NOMEM, "no memory for %zu bytes", bytes);
}

static bool draws(const ct_net *net)
{
    for (int i = 0; i < net->n_layer; i++) {
        const ct_device_override *f = net->layer[i]->form;

        if ((f != NULL) && (f->draws != NULL) && f->draws(net->layer[i]->param)) return true;
    }
    return false;
}

ct_status ct_net_numbers_make(ct_net *net)
{
    const ct_device *dev = net->options.dev;
    const ct_step_there first = { .loss = { .scale = 1.0f } };
    void *there = NULL;

    if (ct_step_there_of(dev) == NULL) return CT_OK;
    CT_TRY(dev->mem_acquire(sizeof(first), &there));
    ct_net_impl_of(net)->numbers = there;
    return dev->from_host(NULL, there, &first, sizeof(first));
}

ct_step_there *ct_net_step_there(const ct_net *net)
{
    return ct_net_impl_of(net)->numbers;
}

ct_status ct_pass_report_make(ct_pass *pass)
{
    const ct_net *net = pass->net;
    void *step = NULL;
    ct_pass_report *r = &ct_pass_impl_of(pass)->report;
    const ct_device *dev = net->options.dev;

    r->loss_at = on_device(net) ? (size_t)net->n_layer * sizeof(uint64_t) : 0;
    r->draws = (ct_step_there_of(dev) != NULL) && draws(net);
    r->bytes = r->loss_at;
    for (int i = 0; i < net->n_output; i++) {
        if (tells(&net->output[i]))
            r->bytes += ct_tensor_bytes(&pass->blob[net->output[i].blob]->data);
    }
    CT_TRY(dev->mem_acquire(r->bytes + 1, &r->there));
    CT_TRY(host_acquire(dev, r->bytes + 1, &r->here));
    for (int i = 0; on_device(net) && (i < net->n_layer); i++)
        pass->instance[i]->fault.word = (uint64_t *)r->there + i;
    if (!r->draws) return CT_OK;
    CT_TRY(dev->mem_acquire(sizeof(uint64_t), &step));
    r->micro_step = step;
    return CT_OK;
}

void ct_pass_report_release(ct_pass *pass)
{
    ct_pass_report *r = &ct_pass_impl_of(pass)->report;
    const ct_device *dev = pass->net->options.dev;

    if (r->there != NULL) dev->mem_release(r->there);
    if (r->micro_step != NULL) dev->mem_release(r->micro_step);
    if ((r->here != NULL) && (dev->host_release != NULL))
        dev->host_release(r->here);
    else
        ct_mem_release(r->here);
}

ct_status ct_pass_report_begin(ct_pass *pass)
{
    ct_pass_report *r = &ct_pass_impl_of(pass)->report;
    const ct_device *dev = pass->net->options.dev;
    ct_exec *ex = &pass->exec;
    uint64_t step = (uint64_t)ex->micro_step;

    ex->step_there = r->micro_step;
    ex->numbers_there = ct_net_step_there(pass->net);
    if (r->loss_at == 0) return CT_OK;
    CT_TRY(dev->zero(ex->stream, r->there, r->loss_at));
    if (r->micro_step == NULL) return CT_OK;
    return (dev->upload != NULL) ? dev->upload(ex->stream, r->micro_step, &step, sizeof(step))
                                 : dev->from_host(ex->stream, r->micro_step, &step, sizeof(step));
}

ct_status ct_pass_report_send(ct_pass *pass)
{
    const ct_net *net = pass->net;
    const ct_exec *ex = &pass->exec;
    ct_pass_report *r = &ct_pass_impl_of(pass)->report;
    const ct_device *dev = net->options.dev;
    size_t at = r->loss_at;

    for (int i = 0; i < net->n_output; i++) {
        const ct_tensor *t = &pass->blob[net->output[i].blob]->data;

        if (!tells(&net->output[i])) continue;
        CT_TRY(dev->copy(ex->stream, (char *)r->there + at, t->data, ct_tensor_bytes(t)));
        at += ct_tensor_bytes(t);
    }
    r->ticket = NULL;
    if (dev->copy_begin != NULL)
        return dev->copy_begin(ex->stream, r->here, r->there, r->bytes, true, &r->ticket);
    return dev->to_host(ex->stream, r->here, r->there, r->bytes);
}

/* The first layer's that found something. The word: CT_FAULT_FIRST less the place, above the value.
 */
static ct_status look_at_faults(const ct_pass *pass)
{
    const ct_net *net = pass->net;
    const ct_pass_report *r = &ct_pass_impl_of(pass)->report;
    const uint64_t *word = r->here;

    for (int i = 0; (r->loss_at > 0) && (i < net->n_layer); i++) {
        const ct_fault *f = &pass->instance[i]->fault;
        uint32_t bits = (uint32_t)word[i];
        float value;

        if ((word[i] == 0) || (f->tell == NULL)) continue;
        memcpy(&value, &bits, sizeof(value));
        return f->tell(net->layer[i], &pass->exec, value,
                       (int64_t)(CT_FAULT_FIRST - (word[i] >> 32)), f->a, f->b);
    }
    return CT_OK;
}

ct_status ct_pass_forward_end(ct_pass *pass, double *loss_p)
{
    const ct_net *net = pass->net;
    ct_pass_report *r = &ct_pass_impl_of(pass)->report;
    const char *at = (const char *)r->here + r->loss_at;
    double loss = 0.0;
    bool done;

    if (r->ticket != NULL) CT_TRY(net->options.dev->copy_done(r->ticket, true, &done));
    r->ticket = NULL;
    CT_TRY(look_at_faults(pass));
    for (int i = 0; i < net->n_output; i++) {
        const ct_tensor *t = &pass->blob[net->output[i].blob]->data;
        const float *value = (const float *)at;
        double sum = 0.0;

        if (!tells(&net->output[i])) continue;
        for (int64_t e = 0; e < ct_tensor_count(t); e++) sum += (double)value[e];
        if (!net->output[i].is_twin) loss += (double)net->output[i].loss_weight * sum;
        at += ct_tensor_bytes(t);
    }
    if (loss_p != NULL) *loss_p = loss;
    return CT_OK;
}
