/* cortado time --data --dump_batches=FILE.npz */
#include "cli/time/dump_batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "framework/base/file.h"
#include "framework/base/text.h"
#include "framework/snapshot/zip.h"

/* What such a file holds without the extensions of 64 bits, and what each array adds to its values:
 * two headers with its name. */
#define FILE_LIMIT ((int64_t)0xffffffff)
enum { ARRAY_BYTES = 1024, ARRAY_LIMIT = 65534 };

typedef struct dump {
    const ct_group *g;
    ct_pass *pass;
    int64_t *samples; /* of each rank */
    int64_t global;
    float *part, *whole; /* of a top: from another rank, and of all; rank 0's */
    ct_zip_writer *z;    /* rank 0's */
} dump;

/* Layers that a data set fills: not an Input or a DummyData. */
static bool reads(const ct_instance *in)
{
    return in->layer->ops->is_data && (in->n_sample > 0);
}

/* Boxes of all samples stand below each other, as many rows for each sample. */
static bool is_boxes(const ct_instance *in, int t)
{
    return (t == 1) && ct_layer_param_is(in->layer->param, "AnnotatedData");
}

static int axis_of(const dump *d, const ct_instance *in, int t)
{
    return is_boxes(in, t) ? 2 : d->pass->net->batch_axis;
}

/* Of the global batch. */
static ct_shape shape_of(const dump *d, const ct_instance *in, int t)
{
    ct_shape s = in->top[t]->data.shape;
    int axis = axis_of(d, in, t);

    s.dim[axis] = s.dim[axis] / d->pass->net->batch_local * d->global;
    return s;
}

/* Values of the largest top, and of all of them, of the global batch; arrays of a batch. */
static void count(const dump *d, int64_t *most_p, int64_t *sum_p, int64_t *arrays_p)
{
    *most_p = *sum_p = *arrays_p = 0;
    for (int i = 0; i < d->pass->net->n_layer; i++) {
        const ct_instance *in = d->pass->instance[i];

        for (int t = 0; reads(in) && (t < in->layer->n_top); t++) {
            ct_shape s = shape_of(d, in, t);
            int64_t n = ct_shape_count(&s, 0, -1);

            if (n > *most_p) *most_p = n;
            *sum_p += n;
            (*arrays_p)++;
        }
    }
}

/* Boxes begin with the number of their sample in the part: in the file, in the global batch. */
static void number_boxes(float *box, int64_t n, int64_t first)
{
    for (int64_t i = 0; i < n; i++)
        if (box[8 * i] >= 0) box[8 * i] += (float)first;
}

/* Ranks have contiguous parts of the batch, in their order. */
static ct_status gather(const dump *d, const ct_instance *in, int t)
{
    const ct_tensor *top = &in->top[t]->data;
    const ct_shape *s = &top->shape;
    int axis = axis_of(d, in, t);
    int64_t outer = ct_shape_count(s, 0, axis), first = 0;
    int64_t inner = ct_shape_count(s, axis, -1) / d->pass->net->batch_local; /* of a sample */

    for (int r = 0; r < d->g->size; first += d->samples[r++]) {
        int64_t width = d->samples[r] * inner;
        float *from = (r == d->g->rank) ? top->data : d->part;

        CT_TRY(ct_group_send(d->g, from, (size_t)(outer * width) * sizeof(float), r, 0));
        for (int64_t o = 0; (d->g->rank == 0) && (o < outer); o++)
            memcpy(d->whole + (o * d->global + first) * inner, from + o * width,
                   (size_t)width * sizeof(float));
        if ((d->g->rank == 0) && is_boxes(in, t))
            number_boxes(d->whole + first * inner, width / 8, first);
    }
    return CT_OK;
}

static ct_status put(const dump *d, const char *top, int64_t batch, const ct_shape *shape)
{
    ct_text name = { 0 };
    ct_status status;

    if (d->g->rank != 0) return CT_OK;
    ct_text_add(&name, "%s/%lld.npy", top, (long long)batch);
    status = name.failed ? CT_FAIL(CT_ERR_NOMEM, "no memory for a name")
                         : ct_npz_put(d->z, name.text, shape, d->whole);
    ct_text_destroy(&name);
    return status;
}

static ct_status put_batch(const dump *d, int64_t batch)
{
    for (int i = 0; i < d->pass->net->n_layer; i++) {
        const ct_instance *in = d->pass->instance[i];

        for (int t = 0; reads(in) && (t < in->layer->n_top); t++) {
            ct_shape shape = shape_of(d, in, t);

            CT_TRY(gather(d, in, t));
            CT_TRY(ct_group_agree(d->g, put(d, in->layer->param->top[t], batch, &shape)));
        }
    }
    return CT_OK;
}

static ct_status put_batches(const dump *d, int64_t n_batch)
{
    for (int64_t i = 0; i < n_batch; i++) {
        d->pass->exec.micro_step = i;
        CT_TRY(ct_group_agree(d->g, ct_pass_forward(d->pass, NULL)));
        CT_TRY(put_batch(d, i));
    }
    return CT_OK;
}

/* Room, and the file, on rank 0. */
static ct_status open_file(dump *d, int64_t n_batch, const char *file)
{
    int64_t most, sum, arrays, bytes;

    count(d, &most, &sum, &arrays);
    bytes = sum * (int64_t)sizeof(float) + arrays * ARRAY_BYTES;
    if ((n_batch > FILE_LIMIT / bytes) || (n_batch > ARRAY_LIMIT / arrays))
        return CT_FAIL(CT_ERR_CONFIG,
                       "--dump_batches: %lld batches of %lld bytes are more than an .npz file "
                       "holds, 4 GiB and %d arrays; --iterations says how many are written",
                       (long long)n_batch, (long long)bytes, ARRAY_LIMIT);
    if (d->g->rank != 0) return CT_OK;
    d->part = malloc((size_t)most * sizeof(float));
    d->whole = malloc((size_t)most * sizeof(float));
    if ((d->part == NULL) || (d->whole == NULL))
        return CT_FAIL(CT_ERR_NOMEM, "no memory for a batch of all ranks");
    CT_TRY(ct_file_check_writable(file));
    return ct_zip_create(file, &d->z);
}

ct_status ct_dump_batches(const ct_group *g, ct_pass *pass, int64_t n_batch, const char *file)
{
    dump d = { .g = g, .pass = pass };
    int64_t mine = pass->net->batch_local, size;
    ct_status status;
    uint64_t hash;

    d.samples = malloc((size_t)g->size * sizeof(*d.samples));
    status = (d.samples == NULL) ? CT_FAIL(CT_ERR_NOMEM, "no memory for the ranks' parts") : CT_OK;
    CT_TRY_GOTO(status, out, ct_group_agree(g, status));
    CT_TRY_GOTO(status, out, ct_group_gather(g, &mine, 1, d.samples));
    for (int r = 0; r < g->size; r++) d.global += d.samples[r];
    CT_TRY_GOTO(status, out, ct_group_agree(g, open_file(&d, n_batch, file)));
    status = put_batches(&d, n_batch);
out:
    if (d.z != NULL) status = ct_zip_finish(d.z, status, &hash, &size);
    if ((status == CT_OK) && (g->rank == 0))
        printf("%lld batches of %lld samples written to %s\n", (long long)n_batch,
               (long long)d.global, file);
    free(d.part);
    free(d.whole);
    free(d.samples);
    return status;
}
