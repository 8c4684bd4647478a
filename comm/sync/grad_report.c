/* What compression did: each bucket, and all of them. */
#include <math.h>

#include "framework/base/json_writer.h"
#include "comm/sync/grad_pipe_impl.h"
#include "comm/codec/select.h"

/* Of V, on this rank. */
static double residual_square(const ct_bucket *b)
{
    ct_codec_state s;

    if (b->ops->left != NULL) return b->ops->left(b->coded);
    if ((b->ops->state == NULL) || !b->ops->state(b->coded, 0, &s)) return 0;
    return ct_momentum_correction_square(s.data, s.count, b->comm->n_thread);
}

/* Seconds from leaving to landing of its coded uses, less those that the same ones would have had
 * dense. */
static double saved_s(const ct_bucket *b)
{
    double n = (double)(b->n_run - b->n_dense);

    return n * ct_bucket_dense_s(b) - (b->under_way_s - b->dense_s);
}

static void add_bucket(const ct_bucket *b, ct_codec_totals *out)
{
    ct_codec_stats s;

    b->ops->stats(b->coded, &s);
    out->n_coded += 1;
    out->elements += b->cut.count * s.n_step;
    out->bytes_dense += s.bytes_dense;
    out->bytes_coded += s.bytes_coded;
    out->bytes_sent += s.bytes_sent;
    out->selected += s.selected;
    out->filled += s.filled;
    out->warm_elements += b->cut.count * s.warm_steps;
    out->warm_selected += s.warm_selected;
    out->select_s += s.accumulate_s + s.select_s;
    out->pack_s += s.pack_s;
    out->exchange_s += s.exchange_s;
    out->unpack_s += s.unpack_s;
    out->saved_s += saved_s(b);
    out->n_modelled += !ct_bucket_dense_measured(b);
    out->residual_norm += residual_square(b);
}

static void add_up(const ct_grad_pipe *gp, int first, int n, ct_codec_totals *out)
{
    *out = (ct_codec_totals){ .n_coded = 0 };
    for (int i = first; i < first + n; ++i) {
        if (gp->bucket[i].coded != NULL) add_bucket(&gp->bucket[i], out);
    }
    out->residual_norm = sqrt(out->residual_norm);
}

void ct_grad_pipe_add_codec(const ct_grad_pipe *gp, ct_codec_totals *t)
{
    ct_codec_totals past = *t;

    add_up(gp, 0, gp->n_bucket, t);
    ct_codec_totals_add(t, &past, 1);
}

/* Apart where the density fell at first. */
static void add_density(ct_text *text, const ct_codec_totals *c)
{
    int64_t elements = (c->elements > 0) ? c->elements : 1, rest = elements - c->warm_elements;

    if (c->warm_elements > 0)
        ct_text_add(text, ", density %.3g %% in the warm-up",
                    100 * (double)c->warm_selected / (double)c->warm_elements);
    if (rest > 0)
        ct_text_add(text, "%s%.3g %%", (c->warm_elements > 0) ? ", then " : ", density ",
                    100 * (double)(c->selected - c->warm_selected) / (double)rest);
    ct_text_add(text, ", filled %.3g %%", 100 * (double)c->filled / (double)elements);
}

/* A line; times are those of a coded step. */
static void add_text(ct_text *text, const ct_codec_totals *c, double steps)
{
    double ms = 1e3 / steps;

    ct_text_add(text, "%.4g of %.4g KB", 1e-3 * (double)c->bytes_coded / steps,
                1e-3 * (double)c->bytes_dense / steps);
    if (c->selected > 0) add_density(text, c);
    ct_text_add(text, "; select %.3g, pack %.3g, exchange %.3g, unpack %.3g ms", ms * c->select_s,
                ms * c->pack_s, ms * c->exchange_s, ms * c->unpack_s);
    if (c->residual_norm > 0) ct_text_add(text, "; residual norm %.3g", c->residual_norm);
}

/* The step is not longer by what buckets are that wait for the network at the same time. */
static void log_line(const char *what, const ct_codec_totals *c, double steps, bool travels)
{
    ct_text text = { .text = NULL };

    add_text(&text, c, steps);
    if (travels)
        ct_text_add(&text, "; %.3g ms %s than %s%s", 1e3 * fabs(c->saved_s) / steps,
                    (c->saved_s >= 0) ? "less" : "more",
                    (c->n_modelled == 0) ? "dense took" : "the machine's model has for dense",
                    (c->n_coded > 1) ? ", added up over buckets, which overlap" : "");
    CT_INFO("%s%s", what, (text.text != NULL) ? text.text : "");
    ct_text_destroy(&text);
}

void ct_grad_pipe_log_coding(const ct_grad_pipe *gp)
{
    ct_codec_totals all, one;
    bool travels = (gp->comm->size > 1);
    double most = 0;

    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket *b = &gp->bucket[i];
        double steps = (double)(b->n_run - b->n_dense);
        char what[224], name[160];

        if ((b->coded == NULL) || (steps == 0)) continue;
        most = (steps > most) ? steps : most;
        add_up(gp, i, 1, &one);
        ct_bucket_name(&b->cut, gp->range, name, sizeof(name));
        snprintf(what, sizeof(what), "compression of %s (%s, %s): ", name, b->ops->name,
                 ct_bucket_algorithm(b, false));
        log_line(what, &one, steps, travels);
    }
    if (most == 0) return;
    add_up(gp, 0, gp->n_bucket, &all);
    log_line("compression, a step in all: ", &all, most, travels);
}

/* ---- the same for programs */

static void add_totals(ct_json_writer *w, const ct_codec_totals *c, double steps)
{
    double elements = (c->elements > 0) ? (double)c->elements : 1, ms = 1e3 / steps;

    ct_json_add_decimals(w, "steps", steps, 0);
    ct_json_add_decimals(w, "bytes_dense", (double)c->bytes_dense / steps, 0);
    ct_json_add_decimals(w, "bytes_coded", (double)c->bytes_coded / steps, 0);
    ct_json_add_number(w, "density", (double)c->selected / elements);
    if (c->warm_elements > 0) {
        ct_json_add_number(w, "warmup_steps", steps * (double)c->warm_elements / elements);
        ct_json_add_number(w, "warmup_density",
                           (double)c->warm_selected / (double)c->warm_elements);
    }
    ct_json_add_number(w, "filled", (double)c->filled / elements);
    ct_json_add_number(w, "select_ms", ms * c->select_s);
    ct_json_add_number(w, "pack_ms", ms * c->pack_s);
    ct_json_add_number(w, "exchange_ms", ms * c->exchange_s);
    ct_json_add_number(w, "unpack_ms", ms * c->unpack_s);
    ct_json_add_number(w, "saved_ms", ms * c->saved_s);
    ct_json_add_bool(w, "dense_modelled", c->n_modelled > 0);
    ct_json_add_number(w, "residual_norm", c->residual_norm);
}

void ct_grad_pipe_coding_json(const ct_grad_pipe *gp, ct_json_writer *w)
{
    ct_codec_totals c;
    double most = 0;
    int n = 0;

    ct_comm_lock(gp->comm);
    for (int i = 0; i < gp->n_bucket; ++i) {
        const ct_bucket *b = &gp->bucket[i];
        double steps = (double)(b->n_run - b->n_dense);
        char name[160];

        if ((b->coded == NULL) || (steps == 0)) continue;
        most = (steps > most) ? steps : most;
        add_up(gp, i, 1, &c);
        ct_bucket_name(&b->cut, gp->range, name, sizeof(name));
        if (n++ == 0) ct_json_begin_list(w, "buckets");
        ct_json_begin_object(w, NULL);
        ct_json_add_text(w, "bucket", name);
        ct_json_add_text(w, "codec", b->ops->name);
        ct_json_add_text(w, "exchange", ct_bucket_algorithm(b, false));
        add_totals(w, &c, steps);
        ct_json_end(w);
    }
    if (n > 0) {
        ct_json_end(w);
        add_up(gp, 0, gp->n_bucket, &c);
        ct_json_begin_object(w, "total");
        add_totals(w, &c, most);
        ct_json_end(w);
    }
    ct_comm_unlock(gp->comm);
}
